# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Masks
#
# **The problem.** A model is to say the next word. For training, a whole sentence goes in at once: at "the" it must
# say "cat", at "cat" it must say "sat". But in self-attention every word sees every other, also the one that it has to
# guess. Such a model can copy: its loss falls, and it has nothing to say when there is no next word to copy.
#
# And there is a second one. Sentences of different lengths go into one array, and the shorter ones are filled up with
# *padding*. It is no word, but it has a key like any other, and gets a weight.
#
# A mask says who may look at whom. It is one table of booleans, and it goes wrong in many ways, mostly silently. You
# will check a mask by gradients, and see what each of these ways looks like.
#
# You need: the softmax (tutorial 03), attention step by step (04), self- and cross-attention (06).

# %%
import numpy as np

from tinygrad_attn import attention, causal_mask, gradcheck, jacobian, padding_mask, softmax
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import heatmap

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Who may look at whom
#
# A mask M has the shape of the scores, (L, S): one row for each query, one column for each key. **True means: may
# attend.** The softmax is taken over the allowed keys alone:
#
# $$w_{ij} = \frac{M_{ij} \exp(s_{ij})}{\sum_k M_{ik} \exp(s_{ik})}$$
#
# with M counted as 1 and 0. A forbidden key has weight exactly 0, and the others share the whole 1. If a row allows
# nothing, this is 0 / 0; by our convention its weights are 0.
#
# The *causal* mask lets query i see the keys 0 … i: what has been said, and the word itself, but nothing that comes
# after it. It is a triangle, `causal_mask(L)`.

# %%
words = ["the", "cat", "sat", "too"]
x = rng.normal(size=(4, 3))                 # (L, E)
mask = causal_mask(4)
_, weights = attention(x, x, x, mask)
heatmap({"mask": mask, "weights": weights}, rows=words, columns=words)

# %% [markdown]
# Read it by rows. "the" can only look at itself, so that weight is 1. "too" may look at all four. Above the diagonal
# all weights are 0. (Q, K and V are x itself here, which is enough to see the mask at work.)
#
# ## 2. The promise, checked by gradients
#
# A causal mask promises that output i does not depend on word j, if j > i. That is a statement about derivatives, and
# you can ask for them. The Jacobian of the output has the shape (L, E, L, E). The norm of each block tells how strongly
# output i (row) depends on word j (column).

# %%
def dependence(f, x):
    """Norms of d output_i / d x_j: (L, L)"""
    blocks = jacobian(f, x).numpy()         # (L, E, L, E)
    return np.sqrt((blocks ** 2).sum(axis=(1, 3)))


free = dependence(lambda x: attention(x, x, x)[0], x)
causal = dependence(lambda x: attention(x, x, x, mask)[0], x)
assert not np.triu(causal, k=1).any()       # above the diagonal
assert free.all()
heatmap({"no mask": free, "causal": causal}, rows=words, columns=words, limits=(0, 2))

# %% [markdown]
# Without a mask, every output depends on every word. With it, nothing above the diagonal is left: not little, but 0.
#
# A derivative sees no steps. If a function counts the positive numbers of the future, its derivative is 0. Another
# check sees that, too: change the future, by a lot, and see whether the past stays the same.

# %%
later = x.copy()
later[2:] = rng.normal(size=(2, 3))         # "sat" and "too" become other words
before, after = attention(x, x, x, mask)[0], attention(later, later, later, mask)[0]
print("largest change of each output:", np.abs(after - before).max(axis=1).round(3))
assert np.array_equal(before[:2], after[:2])
assert gradcheck(lambda x: attention(x, x, x, mask)[0], x).max_abs_error < 1e-7     # the gradient is right

# %% [markdown]
# Both checks take the function as a whole, whatever is in it. That matters, since the future can slip in elsewhere:
# subtract the mean of the sequence somewhere, and each word knows something about all others.
#
# ## 3. Before the softmax, not after
#
# Why not compute all weights, and then set the forbidden ones to 0?

# %%
scores = np.array([[1.0, 2.0, 3.0]])
allowed = np.array([[True, True, False]])
late = softmax(scores) * allowed
print("zeroed after the softmax:", late.round(3), "sum", late.sum().round(3))
print("masked in the softmax:   ", softmax(scores, where=allowed).round(3))

# %% [markdown]
# (`where=` is how our softmax takes a mask.) Zeroed afterwards, the row no longer sums to 1. Worse, the forbidden score
# is still in the denominator, so that the other weights depend on it. In a causal model that is the future:

# %%
zeroed = jacobian(lambda s: softmax(s) * allowed, scores).numpy()[0, :, 0, 2]
masked = jacobian(lambda s: softmax(s, where=allowed), scores).numpy()[0, :, 0, 2]
print("d weights / d forbidden score: zeroed", zeroed.round(3), " masked", masked + 0)
assert np.abs(zeroed).max() > 0.1
assert not masked.any()

# %% [markdown]
# And if you divide by the sum again? Then the old denominator cancels, and what is left is the formula of section 1. In
# exact arithmetic nothing leaks. But a computer's softmax subtracts the maximum, and that may be a forbidden score. Let
# it be about 1000 above the others, and their exponentials round to 0:

# %%
scores = np.array([[1.0, 2.0, 1000.0]])
late = softmax(scores) * allowed
with np.errstate(invalid="ignore"):         # 0 / 0
    print("zeroed and divided:", late / late.sum())
print("masked:            ", softmax(scores, where=allowed).round(3))
assert np.exp(-746.0) == np.float16(np.exp(-18.0)) == 0 < min(np.exp(-745.0), np.float16(np.exp(-17.0)))

# %% [markdown]
# So the future can still be seen in the past, as a NaN. In float64 it takes a gap of about 745 between the scores, in
# half precision (float16) one of about 17.
#
# ## 4. Minus a billion
#
# Much code masks by adding −10⁹ to the forbidden scores, so that their exponentials are 0. That works while a row has
# something left. Take a row that has not, as in a sentence of length 0, in three formats, with the softmax written out:

# %%
def plain_softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


scores = np.array([1.0, 3.0, 2.0])
print("not masked      ", plain_softmax(scores).round(3))
with np.errstate(over="ignore", invalid="ignore"):
    for dtype in (np.float64, np.float32, np.float16):
        shifted = scores.astype(dtype) + dtype(-1e9)
        print(f"{dtype.__name__}: first score {shifted[0]:.0f}, weights {plain_softmax(shifted).round(3)}")
print("with a mask     ", softmax(scores, where=np.zeros(3, bool)))

# %% [markdown]
# One line of code, three answers. In float64 all scores move by the same number, which a softmax does not notice: the
# mask does nothing. In float32, numbers near 10⁹ are 64 apart, the scores are lost in the rounding, and all weights are
# equal. In float16 no finite number is lower than −65504, so −10⁹ is −∞, and −∞ − (−∞) is NaN.
#
# Nor does it help to add that lowest number. Near it the numbers of float16 are 32 apart, so −65504 plus a score of −1
# or 2 is −65504 again, by rounding. With a score of −16 or less it is −∞.

# %%
lowest = np.finfo(np.float16).min
with np.errstate(over="ignore"):
    print([f"{score}: {lowest + np.float16(score):.0f}" for score in (2, -1, -15, -16)])
assert (np.spacing(np.float16(65000)), np.spacing(np.float32(1e9))) == (32, 64)

# %% [markdown]
# A boolean mask has no number in it, so no format can change what it means. What an average over nothing should be is
# a matter of choice. 0 is finite, belongs to no word, and has gradient 0.
#
# ## 5. Padding
#
# Three sentences of 3, 1 and 2 words make a batch (B, S, E) = (3, 3, 2). A padding mask goes along the keys, and is the
# same for all queries of a sentence, since padding is no word for anyone. So it has an axis of length 1 where the
# queries are. (`padding_mask` gives (B, 1, 1, S), with another axis for tutorial 08; `[:, 0]` takes that out.)

# %%
lengths = np.array([3, 1, 2])
batch = rng.normal(size=(3, 3, 2))          # (B, L, E), L = S = 3
keys = padding_mask(lengths, 3)[:, 0]       # (B, 1, S)
_, weights = attention(batch, batch, batch, keys)
heatmap({f"length {n}": table for n, table in zip(lengths, weights)})

# %% [markdown]
# Columns of padding are empty. Rows of padding are not: there, too, a query asks. Its output is of no use, and it is
# left out later, when the loss is computed. To mask those rows as well would only make empty ones.
#
# **The silent one.** Without that axis the mask is (B, S). Shapes are matched from the right, so against scores of
# shape (B, L, S) it is read as (L, S). If B and L differ, that is a ShapeError (unless B is 1, when it is right). If
# they are equal, no error comes:

# %%
bare = np.arange(3) < lengths[:, None]      # (B, S)
_, read_wrongly = attention(batch, batch, batch, bare)
print("sentence 1, query 0, right: ", weights[1, 0].round(3))
print("sentence 1, query 0, (B, S):", read_wrongly[1, 0].round(3))
assert read_wrongly[1, 0, 1:].all()         # padding is attended

# %% [markdown]
# **NaN in the padding.** A weight of 0 does not protect from everything, for 0 · NaN is NaN, and so is 0 · ∞. Padding
# must be finite. Zeros are a good choice; memory from `np.empty` is not.

# %%
values = np.array([[5.0], [np.nan]])
output, weights = attention(np.zeros((1, 2)), np.zeros((2, 2)), values, np.array([[True, False]]))
print("weights", weights, " output", output)

# %% [markdown]
# Masks are combined with `&`: may attend by the one *and* by the other. A batch for a model of the next word has both:

# %%
both = causal_mask(3) & keys                # (L, S) & (B, 1, S) -> (B, L, S)
print(both[2].astype(int))

# %% [markdown]
# ## 6. More keys than queries
#
# A model that writes gets one word at a time, and keeps the keys of all words before. Then there is one query, L = 1,
# and S keys. Where in this wide table does the triangle lie? There are two conventions:

# %%
value = np.array([[1.0], [2.0], [3.0], [4.0]])
for align in ("upper_left", "lower_right"):
    mask = causal_mask(1, 4, align=align)
    output, _ = attention(np.zeros((1, 2)), np.zeros((4, 2)), value, mask)      # zeros: equal weights
    print(f"{align:11}", mask.astype(int), "mean of what it sees:", output.item())

# %% [markdown]
# *Upper left* aligns the first query with the first key: query i sees keys 0 … i. *Lower right* aligns the last query
# with the last key, and so query i sees keys 0 … i + S − L. A new word that sees only the first of all words is surely
# not meant, and yet that is what `is_causal=True` does in PyTorch's `scaled_dot_product_attention`. Ours refuses
# `causal=True` if L ≠ S, and asks. With lower right and L > S, the first L − S queries have empty rows.
#
# ## 7. The other way round
#
# PyTorch has two polarities. In `scaled_dot_product_attention` True means *may attend*; in `nn.MultiheadAttention` it
# means *is masked*, both in `attn_mask` and in `key_padding_mask`. A mask that goes from the one to the other must be
# inverted, by `~`. No error says so. A flipped causal mask shows each word the future and nothing else, and a loss that
# falls then proves nothing.

# %%
mask = causal_mask(3)
flipped = dependence(lambda x: attention(x, x, x, ~mask)[0], x[:3])
print(flipped.round(2))

# %% [markdown]
# The last row is empty. The last word has no future.
#
# And a mask of numbers 0 and 1 is not boolean. Added to the scores, as a float mask is, a 1 raises a score by 1 and
# forbids nothing. Our `attention` adds a mask of floats, and refuses one of integers, which could mean either.

# %% [markdown]
# ## Exercises
#
# - **07-causal**: write the mask, aligned at its lower right.
# - **07-padding**: write the mask of a batch, in a shape that can be read in one way only.
# - **07-last-word**: predict how many weights are left under two masks.
# - **07-half**: predict a weight in half precision.
# - **07-masked-softmax**: write it, with empty rows and large scores.
# - **07-flipped**: find the bug. Write a check that tells a causal attention from those that are not quite.
# - **07-leak**: find the bug. Write a check that no function can pass which looks into the future, whatever it is.

# %%
exercises("07")

# %% [markdown]
# ## Quiz

# %%
quiz("07")

# %% [markdown]
# ## Read on
#
# `causal_mask`, `padding_mask` and `fitting`, which reads a mask, are in `tinygrad_attn/attention.py`; the `where=` of
# the softmax is in `tinygrad_attn/ops.py`. `F.scaled_dot_product_attention` follows PyTorch's rules; it is in
# `tinygrad_attn/grouped.py`. The paper: Vaswani et al. 2017, §3.2.3, which masks by −∞ in the decoder.
