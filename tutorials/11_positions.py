# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Positions
#
# **The problem.** "Dog bites man" is no news, and "man bites dog" is. Both have the same three words. Attention is made
# of dot products and of a sum over all keys, and in neither does it matter where a word stands: to attention, the two
# are one sentence. How do you tell it the order?
#
# You will see the problem in numbers, and then four remedies: a table of sines that is added, a table that is learned,
# turning queries and keys by an angle, and a penalty that grows with the distance. Of each you check what it promises.
#
# You need: self-attention (tutorial 06), float masks and the causal mask (07), sine and cosine.

# %%
import numpy as np

from tinygrad_attn import ShapeError, attention, gradcheck, nn
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.nn import alibi_bias, alibi_slopes, rotate, sinusoids
from tinygrad_attn.plots import curves, heatmap

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. The same words, turned round
#
# Three words, each a vector, and self-attention with drawn matrices, as in tutorial 06. Turn the sentence round, and
# compare what comes out for "dog", which is now the last word:

# %%
words = rng.normal(size=(3, 8))                         # dog, bites, man
w_q, w_k, w_v = rng.normal(size=(3, 8, 8)) / np.sqrt(8)


def out(x, at, **options):
    """What comes out at one position."""
    return attention(x @ w_q, x @ w_k, x @ w_v, **options)[0][at]                   # (8,)


plain = np.abs(out(words, 0) - out(words[::-1], 2)).max()
causal = np.abs(out(words, 0, causal=True) - out(words[::-1], 2, causal=True)).max()
print(f"dog in both sentences: difference {plain:.0e}; with a causal mask {causal:.2f}")
assert plain < 1e-12
assert causal > 0.1
assert np.allclose(out(words, 2, causal=True), out(words[[1, 0, 2]], 2, causal=True))

# %% [markdown]
# A causal mask tells a little: the first word sees one key, and the last sees three. But, as the last line checks, you
# may exchange the two words before the last, and it does not notice. In one layer, the past is a heap without an order.
#
# ## 2. A table of sines
#
# The position p itself, as one more feature, would grow without bound beside features of size 1. Look at a clock: it
# tells the time by hands that only turn, a fast one, a slower one, a slow one. Here, a pair of features is a hand: the
# sine and the cosine of an angle that grows with p, at a speed ωᵢ of its own.
#
# $$PE_{p, 2i} = \sin(p\, \omega_i), \qquad PE_{p, 2i+1} = \cos(p\, \omega_i), \qquad
# \omega_i = 10000^{-2i/\text{width}}.$$
#
# This is added to the vector of the word. In the picture a row is a position, and a column a feature, blue at 1 and
# red at −1. The first hand, on the left, turns once in 2π positions, about 6.3. The last, on the right, hardly moves.

# %%
table = sinusoids(51, 32)                               # (L, width)
assert np.allclose(table[:, 0], np.sin(np.arange(51)))
heatmap({"51 positions, 32 features": table}, limits=(-1, 1))

# %% [markdown]
# How alike are two rows? Since cos a cos b + sin a sin b = cos(a − b), each pair gives
#
# $$PE_p \cdot PE_q = \sum_i \cos((p - q)\, \omega_i).$$
#
# **The product depends on the distance alone.** In the table of all products, each diagonal has one number:

# %%
omega = 10000.0 ** (-np.arange(0, 32, 2) / 32)          # (width / 2,)
products = table @ table.T                              # (L, L)
for distance in range(51):
    assert np.allclose(np.diagonal(products, distance), np.cos(distance * omega).sum())

curves({f"width {n}": (range(101), sinusoids(101, n) @ sinusoids(1, n)[0] / (n / 2)) for n in (32, 128)},
       xlabel="distance", ylabel="product, divided by width / 2")

# %% [markdown]
# It is largest at distance 0, falls, and wobbles: a larger distance does not always mean a smaller product. And it is
# the same ahead and behind, as the cosine is.
#
# That does not keep a head from looking behind. To go from p to p + k, each hand turns by kωᵢ, wherever it stands. So
# one matrix shifts every row by k, and training may find such a matrix for W_q. Here it is for "one back":

# %%
def shift(k, omega):
    matrix, at = np.zeros((2 * len(omega), 2 * len(omega))), 2 * np.arange(len(omega))
    matrix[at, at] = matrix[at + 1, at + 1] = np.cos(k * omega)
    matrix[at, at + 1], matrix[at + 1, at] = np.sin(k * omega), -np.sin(k * omega)
    return matrix


np.testing.assert_allclose(table[1:] @ shift(-1, omega).T, table[:-1], atol=1e-12)
_, weights = attention(table @ shift(-1, omega).T, table, table)
print("position 1, 2, 3 … looks most at", weights[1:].argmax(axis=-1)[:8], "…")
assert (weights[1:].argmax(axis=-1) == np.arange(50)).all()

# %% [markdown]
# ## 3. A table that is learned
#
# Or leave the table to training: `nn.LearnedPositions` has one row of parameters for each position. It can become
# whatever is useful, but a row gets a gradient only when a sequence is long enough to reach it (from each of two
# sequences, here), and there is no row beyond the last.

# %%
learned = nn.LearnedPositions(6, 4, rng=0)              # max_len, width
learned(rng.normal(size=(2, 3, 4))).sum().backward()    # two sequences of length 3
print("gradient of each row:", learned.weight.grad[:, 0])
assert learned.weight.grad[:3].all()
assert not learned.weight.grad[3:].any()
try:
    learned(np.zeros((7, 4)))
except ShapeError as error:
    print(error)
else:
    raise AssertionError("it should have been refused")

# %% [markdown]
# ## 4. Turn instead of adding
#
# Add a table, and the scores are products of sums: (q + PE_m)·(k + PE_n) has four terms. PE_m·PE_n depends on the
# distance alone, as long as no W_q or W_k comes between. But q·PE_n and PE_m·k depend on where in the text a word
# stands.
#
# Rotary positions leave the words as they are, and *turn* queries and keys, just before their product. Each pair of
# features is a point of the plane. At position p, pair i turns by θ = pωᵢ:
#
# $$(x_1, x_2) \;\to\; (x_1 \cos\theta - x_2 \sin\theta,\;\; x_1 \sin\theta + x_2 \cos\theta).$$
#
# Call that R(θ). A product of two vectors does not change if both are turned alike. So if the query is turned by mω and
# the key by nω, turn both back by mω: the query is where it was, and the key is turned by (n − m)ω.
#
# $$R(m\omega)\,q \cdot R(n\omega)\,k = q \cdot R((n - m)\,\omega)\,k.$$
#
# To see it, put the same query, and the same key, at each of 16 positions. On the left sinusoids are added, and a
# diagonal has many shades. On the right query and key are turned, and each diagonal has one. Blue is above the mean of
# the table, red below it.

# %%
q = np.tile(rng.normal(size=32), (16, 1))               # (16, 32): one vector, 16 times
k = q + np.tile(rng.normal(size=32), (16, 1))           # and one that is like it
added = (q + table[:16]) @ (k + table[:16]).T           # (L, S)
turned = rotate(q, layout="interleaved") @ rotate(k, layout="interleaved").T


def uneven(scores):
    return max(np.ptp(np.diagonal(scores, d)) for d in range(-15, 16))      # largest less smallest


print(f"largest difference on a diagonal: {uneven(added):.1f} added, {uneven(turned):.0e} turned")
assert uneven(added) > 1
assert uneven(turned) < 1e-12
tables = {"added": added - added.mean(), "turned": turned - turned.mean()}
assert all(np.abs(scores).max() < 18 for scores in tables.values())
heatmap(tables, limits=(-18, 18))

# %% [markdown]
# Ahead and behind now differ. Scores do not change if the whole text begins later (`start` is the first position), and
# gradients go through the turn, to second order:

# %%
later = rotate(q, layout="interleaved", start=1000) @ rotate(k, layout="interleaved", start=1000).T
np.testing.assert_allclose(later, turned, atol=1e-9)
assert not np.isclose(turned[0, 3], turned[3, 0])
report = gradcheck(lambda x: rotate(x, layout="interleaved"), rng.normal(size=(3, 4)), order=2)
print(f"largest error of a gradient: {report.max_abs_error:.0e}")
assert report.max_abs_error < 1e-7

# %% [markdown]
# Values are not turned: what is told should not depend on where it stands. And mind which features are a pair. The
# paper pairs 2i with 2i + 1, our layout "interleaved"; LLaMA in Hugging Face's form pairs i with i + D/2, our
# "half_split". Weights that were trained with one do not fit the other.
#
# ## 5. A penalty that grows with the distance
#
# ALiBi adds −slope · |i − j| to the score of query i and key j. That is a float mask, and nothing else changes. Each
# of H heads has a slope of its own, 2^(−8/H), 2^(−16/H), … 2⁻⁸, so that some look near and others far. In the softmax,
# a key at distance d gets the factor e^(−slope·d).

# %%
same = np.zeros((4, 6, 2))                              # (H, L, D): all scores are 0, the penalty is left
_, weights = attention(same, same, same, alibi_bias(4, 6), causal=True)         # (H, L, S)
slopes = alibi_slopes(4)
print("slopes:", slopes)
assert np.allclose(weights[:, 5, 2] / weights[:, 5, 4], np.exp(-2 * slopes))
heatmap({f"slope {slopes[0]}": weights[0], f"slope {slopes[3]:.4f}": weights[3]}, rows="012345", columns="012345")

# %% [markdown]
# On the left the last word looks mostly at itself and its neighbours; on the right its weights are nearly equal.
#
# The distance has no sign. So without a causal mask, ALiBi does not tell left from right: turn the sentence round, and
# "dog" has the same words at the same distances. Rotary tells them apart.

# %%
penalty = alibi_bias(1, 3)[0]                           # (L, S)
mirrored = np.abs(out(words, 0, mask=penalty) - out(words[::-1], 2, mask=penalty)).max()
layer = nn.MultiHeadAttention(8, 2, positions=nn.Rotary(), rng=0)
rotary = np.abs(layer(words)[0].numpy()[0] - layer(words[::-1].copy())[0].numpy()[2]).max()
print(f"dog bites man, man bites dog: difference {mirrored:.0e} by ALiBi, {rotary:.2f} by rotary positions")
assert mirrored < 1e-12 < 0.01 < rotary

# %% [markdown]
# ## 6. What each can, and what it cannot
#
# | | acts on | learned | the scores depend on | a longer text than in training |
# |---|---|---|---|---|
# | sinusoids | the words' vectors | no | the words and both positions | can be computed |
# | learned | the words' vectors | yes | the words and both positions | is an error |
# | rotary | queries and keys | no | the words and the distance | can be computed |
# | ALiBi | scores | no | the words and the distance | can be computed |
#
# "Can be computed" is not "works". A model that was trained on 64 positions has not met what comes after them. With
# rotary positions, most hands of a head of width 64 have not gone once round by then, and a greater distance brings
# angles that were never seen:

# %%
omega = 10000.0 ** (-np.arange(0, 64, 2) / 64)
unfinished = int((64 * omega < 2 * np.pi).sum())
print(f"{unfinished} of {len(omega)} pairs turn less than once in 64 positions")
assert unfinished > len(omega) / 2

# %% [markdown]
# ALiBi's penalties make far keys count less. Take scores that are drawn, standard normal, and a last query that sees
# 64 keys, and then 1024. How much of its weight stays on the nearest 64? The mean over 200 draws, for three slopes:

# %%
scores = rng.normal(size=(200, 1024))                   # the last query of each draw
for slope in (1 / 2, 1 / 32, 1 / 256):
    e = np.exp(scores - slope * np.arange(1023, -1, -1))
    share = (e[:, -64:].sum(axis=-1) / e.sum(axis=-1)).mean()
    print(f"slope {slope:.4f}: {share:.0%} of the weight is on the nearest 64 of 1024 keys")
    assert abs(share - (1 - np.exp(-64 * slope)) / (1 - np.exp(-1024 * slope))) < 0.05

# %% [markdown]
# A steep head hardly notices that the text is longer. A flat one spreads most of its weight over distances that it
# never had. This was for drawn scores. How a trained model does on longer texts has to be measured on that model, and
# nothing here has done that.
#
# ## Exercises
#
# - **11-table**: which rows of a learned table move?
# - **11-distance**: which rows have the same product?
# - **11-sinusoids**: write the table of sines.
# - **11-alibi**: write the penalties of all heads.
# - **11-rotate**: turn queries or keys, at any positions, as a model does that writes one word after another.
# - **11-order**: write the test that a scheme depends on the distance alone.

# %%
exercises("11")

# %% [markdown]
# ## Quiz

# %%
quiz("11")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/nn/positions.py` has all four, and `tinygrad_attn/nn/attention.py` shows where `Rotary` and `ALiBi`
# come in. `nn.GPT` takes any of them, `positions="rotary"`. The papers: Vaswani et al. 2017,
# §3.5 (sinusoids), Gehring et al. 2017 (learned), Su et al. 2021 (rotary), Press et al. 2022 (ALiBi, with measurements
# on texts longer than those of training).
