# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Many heads
#
# **The problem.** Ana lives at kilometre 0 of a road, and Rui at kilometre 1. A parcel has a sender and a receiver.
# Where does it start, and where does it end? These are two lookups: one for the sender, one for the receiver. Attention
# gives each query *one* set of weights, and so one weighted average. Is that enough?
#
# You will see that it is not. Then you give attention several heads: first as a loop, then as one more axis of the
# arrays. On the way there is a classic bug, which no shape shows.
#
# You need: attention and cross-attention (tutorials 04 and 06), the causal mask (07), `reshape` and `swapaxes` of
# NumPy.

# %%
import numpy as np

from tinygrad_attn import Tensor, attention, gradcheck, graph, multi_head_attention, nn
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import heatmap

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. One average for two questions
#
# There are four parcels: from Ana to Ana, Ana to Rui, Rui to Ana, Rui to Rui. The answers we want are pairs (start,
# end):

# %%
wanted = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])     # (4 parcels, 2 numbers)

# %% [markdown]
# The four answers are the corners of a square. Now take a single head, with any matrices. Its two values, multiplied by
# whatever matrix comes behind, are two points of the plane: a for Ana, r for Rui. A parcel gets p · a + (1 − p) · r,
# where p is Ana's weight. All such points lie on the line from a to r, and no line has all four corners of a square.
#
# How near can a line come? Let n be a vector of length 1 at right angles to it. If the line passes through the middle
# of the square, the distance of a corner from it is ½(±n₁ ± n₂), up to the sign. Here are four such lines, one a
# column:

# %%
turn = np.radians([0, 20, 45, 90])                      # four lines
n = np.stack([-np.sin(turn), np.cos(turn)])             # (2, 4 lines)
squares = ((wanted - 0.5) @ n) ** 2                     # (4 corners, 4 lines)
print(squares.round(2), "sums:", squares.sum(axis=0).round(2), sep="\n")
assert np.allclose(squares.sum(axis=0), 1)

# %% [markdown]
# The sum is n₁² + n₂² = 1 in each direction, and moving the line by t away from the middle adds 4t². So no single head
# has a sum of squared errors below 1. One that has it looks up the sender, and says ½ for every receiver.
#
# This holds for one head with linear maps behind it. A second layer could ask the second question, and a layer that is
# not linear could take four different averages apart.
#
# Now two heads. A parcel has four features: is the sender Ana, is it Rui, is the receiver Ana, is it Rui. A person has
# four as well: is it Ana, is it Rui, the kilometre, and nothing. Head 0 asks for the sender, and head 1 for the
# receiver. Both compare with who it is, and both tell the kilometre.

# %%
parcels = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]])    # (4, E)
people = np.array([[1, 0, 0, 0], [0, 1, 1, 0]])                                 # (2, E)
one = np.eye(4)
ask = 30 * np.array([one[:, :2], one[:, 2:]])           # (H, E, D): sender, receiver
offer = np.array([one[:, :2], one[:, :2]])              # (H, E, D): who it is, for both heads
tell = np.array([one[:, 2:3], one[:, 2:3]])             # (H, E, 1): the kilometre

found, weights = attention(parcels @ ask, people @ offer, people @ tell)        # (H, 4, 1), (H, 4, 2)
answers = np.concatenate([found[0], found[1]], axis=-1)                         # (4, 2)
print(answers.round(6))
print(f"sum of squared errors: {np.sum((answers - wanted) ** 2):.0e}")
assert np.sum((answers - wanted) ** 2) < 1e-12

# %% [markdown]
# Here are the weights of the two heads, one row for each parcel. The left table follows the sender, and the right one
# the receiver. In the two rows in the middle the heads look at different people, which one set of weights cannot do.

# %%
parcel_names = ["Ana to Ana", "Ana to Rui", "Rui to Ana", "Rui to Rui"]
heatmap({"head 0": weights[0], "head 1": weights[1]}, rows=parcel_names, columns=["Ana", "Rui"])

# %% [markdown]
# ## 2. A loop over heads
#
# In general, head h has three matrices of its own, of shape (E, D). The H outputs are set side by side, and one more
# matrix, W_o, mixes what the heads have found:
#
# $$\text{head}_h = \operatorname{attention}(X W_q^h, X W_k^h, X W_v^h), \qquad
# \text{output} = [\text{head}_0 \dots \text{head}_{H-1}]\, W_o.$$
#
# Usually D = E // H (elsewhere d_head = d_model // num_heads), so that the heads side by side have width E again. E
# must be a multiple of H.

# %%
B, L, E, H = 2, 3, 8, 4                                 # batch, positions, width, heads
D = E // H                                              # width of a head
x = rng.normal(size=(B, L, E))
w_q, w_k, w_v = rng.normal(size=(3, H, E, D)) / np.sqrt(E)
w_o = rng.normal(size=(E, E)) / np.sqrt(E)


def one_by_one(x):
    heads = [attention(x @ w_q[h], x @ w_k[h], x @ w_v[h])[0] for h in range(H)]    # H times (B, L, D)
    return np.concatenate(heads, axis=-1) @ w_o                                     # (B, L, E)


looped = one_by_one(x)

# %% [markdown]
# W_o can be read in another way. Its first D rows meet head 0 alone, the next D rows head 1, and so on. So each head
# has a matrix (D, E) of its own, which says where in the output it writes, and the heads are added up. Section 3 uses
# that.
#
# ## 3. All heads at once
#
# Set the matrices W_q of all heads side by side. Then one product makes the queries of all heads: the first D columns
# belong to head 0, and so on. A row of E numbers has to be cut into H pieces, and each head must get an array of its
# own, (L, D). Labels show how. There are three words, a, b and c, with four features each, and two heads:

# %%
labels = np.array([[f"{word}{i}" for i in range(4)] for word in "abc"])     # (L, E) = (3, 4)
cut = labels.reshape(3, 2, 2)                           # (L, H, D): each row in two pieces
heads = cut.swapaxes(0, 1)                              # (H, L, D): heads first
print(labels, heads, sep="\n\n")
assert heads[1].tolist() == [["a2", "a3"], ["b2", "b3"], ["c2", "c3"]]

# %% [markdown]
# Head 0 has the features 0 and 1 of each word, head 1 the features 2 and 3. Two steps are needed: `reshape` cuts, and
# keeps the order in which elements are read, row by row; `swapaxes` changes which axis comes first. If you go to (H,
# L, D) by `reshape` alone, the shape is the same, but head 0 has the whole of word a, and half of b:

# %%
print(labels.reshape(2, 3, 2))                          # wrong
assert labels.reshape(2, 3, 2)[0].tolist() == [["a0", "a1"], ["a2", "a3"], ["b0", "b1"]]

# %% [markdown]
# Attention computes with the last two axes, and repeats that for all axes before them. So the head axis needs no loop.
# Here is the whole for one sequence (L, E). W_o is cut into the heads' matrices, and the heads are added up:

# %%
wide_q, wide_k, wide_v = (np.concatenate(list(w), axis=-1) for w in (w_q, w_k, w_v))    # each (E, H·D)


def split(x):
    return x.reshape(L, H, D).swapaxes(0, 1)                                    # (L, E) -> (H, L, D)


output, _ = attention(split(x[0] @ wide_q), split(x[0] @ wide_k), split(x[0] @ wide_v))     # (H, L, D)
together = (output @ w_o.reshape(H, D, E)).sum(axis=0)                          # (L, E)
print(f"largest difference from the loop: {np.abs(together - looped[0]).max():.0e}")
np.testing.assert_allclose(together, looped[0], atol=1e-12)

# %% [markdown]
# With a batch, (B, L, E) goes to (B, L, H, D) and then to (B, H, L, D): B and H are both in front.
#
# ## 4. The way back, and how it goes wrong
#
# To set the heads side by side again, (H, L, D) must become (L, E). Somebody writes `reshape(L, E)`. The shape is
# right, and nothing complains:

# %%
print(heads.reshape(3, 4))                              # wrong
assert heads.reshape(3, 4)[0].tolist() == ["a0", "a1", "b0", "b1"]

# %% [markdown]
# `reshape` reads head 0 to its end before it comes to head 1. So the row of word a now has features of b, and the row
# of b has nothing of b. What went apart by a swap has to come together by a swap, *before* the pieces are joined.
#
# In a model, this moves words past every mask. Take causal attention, where no word may see what comes after it, and
# change the last word. Nothing may change in the first row:

# %%
def merged_wrongly(x):
    output, _ = attention(split(x @ wide_q), split(x @ wide_k), split(x @ wide_v), causal=True)
    return output.reshape(L, E) @ w_o


changed = x[0].copy()
changed[-1] += 1
first, second = (merged_wrongly(one)[0] for one in (x[0], changed))
leak = np.abs(first - second).max()
first, second = (multi_head_attention(one, w_q, w_k, w_v, w_o, H, causal=True)[0] for one in (x[0], changed))
print(f"change of the first row: {leak:.2f} if merged wrongly, {np.abs(first - second).max():.2f} by ours")
assert leak > 0.1
assert np.array_equal(first, second)

# %% [markdown]
# A model that learns to predict the next word could read it there. A gradient check says nothing, as the gradient of
# the wrong function is computed rightly. (`gradcheck` compares our gradients with finite differences, and raises an
# error if they disagree; tutorial 09 is about it.)

# %%
assert gradcheck(merged_wrongly, x[0]).max_abs_error < 1e-8

# %% [markdown]
# A comparison with the loop does find it. Mind the sizes: with one head, or with one position, the wrong merge is
# right.
#
# ## 5. The scale is that of a head
#
# A head's queries and keys have width D, which is its d_k. So its scores are sums of D products, and the standard
# deviation to divide by is √D and not √E. For E = 64 and H = 16, and components of mean 0 and variance 1:

# %%
q, k = rng.normal(size=(2, 5000, 64 // 16))             # 5000 pairs of a head's vectors
spread = (q * k).sum(axis=-1).std()
print(f"standard deviation of the scores: {spread / np.sqrt(4):.2f} divided by √D, {spread / 8:.2f} divided by √E")
assert abs(spread / np.sqrt(4) - 1) < 0.1

# %% [markdown]
# Divided by √E, the scores are too small by √H, which is 4 here, and the weights become too flat.
#
# ## 6. What heads cost
#
# W_q is H matrices of E · E / H numbers, so E² in all; so are W_k and W_v, and W_o has E² too. H is not in the sum:
# more heads are narrower heads. The layer `nn.MultiHeadAttention` also has four bias vectors of width E, which are
# added:

# %%
for num_heads in (1, 2, 8, 32):
    layer = nn.MultiHeadAttention(64, num_heads, rng=0)
    count = sum(p.size for p in layer.parameters())
    print(f"{num_heads:2} heads of width {64 // num_heads:2}: {count} parameters")
    assert count == 4 * 64 ** 2 + 4 * 64

# %% [markdown]
# The price is another: each head compares fewer features, D instead of E. And there are H tables of weights, (L, S)
# each, instead of one.
#
# ## 7. Ours
#
# `multi_head_attention` is this lesson as a function. Its matrices are (H, E, D), and it takes a batch or none. It
# gives what the loop gives, and its gradients agree with finite differences, for x and for all four weights:

# %%
arrays = (x, w_q, w_k, w_v, w_o)
np.testing.assert_allclose(multi_head_attention(*arrays, H), looped, atol=1e-12)    # (B, L, E)
report = gradcheck(lambda *inputs: multi_head_attention(*inputs, H), arrays)
print(f"largest error of a gradient: {report.max_abs_error:.0e}")
assert report.max_abs_error < 1e-7

# %% [markdown]
# Here is its graph, with the inner boxes folded: project, attention, merge. The head axis, of size 4, comes into the
# shapes when x is projected, and goes when the heads are merged.

# %%
inputs = [Tensor(a, requires_grad=True, name=n) for n, a in zip(["X", "W_q", "W_k", "W_v", "W_o"], arrays)]
graph.draw(multi_head_attention(*inputs, H), collapse=1)

# %% [markdown]
# `nn.MultiHeadAttention` is the same as a layer, with parameters that are learned. They are stored as in PyTorch, the
# other way round, (outputs, inputs), and W_q, W_k and W_v one below the other. Taken apart, they give the same output,
# as the biases start at 0. The weights come back for each head:

# %%
layer = nn.MultiHeadAttention(E, H, rng=0)
output, weights = layer(x)                              # (B, L, E), (B, H, L, S)
apart = [m.T.reshape(E, H, D).swapaxes(0, 1) for m in np.split(layer.in_proj_weight.numpy(), 3)]    # (H, E, D)
same = multi_head_attention(x, *apart, layer.out_proj.weight.numpy().T, H)
print(weights.shape)
np.testing.assert_allclose(output.numpy(), same, atol=1e-12)

# %% [markdown]
# ## Exercises
#
# - **08-parameters**: count the parameters of a layer, without making it.
# - **08-shapes**: say the shape of the weights in cross-attention of several heads.
# - **08-split**: (B, L, E) -> (B, H, L, D), for any axes in front. You will need it in each transformer you write.
# - **08-merge**: the way back.
# - **08-multi-head**: the whole function, in NumPy.
# - **08-merge-bug**: write the test that finds the bug of section 4, and some of its relatives.
#
# `check("08-split", split_heads)` tells whether an answer is right, after `from tinygrad_attn.learn import check`.

# %%
exercises("08")

# %% [markdown]
# ## Quiz

# %%
quiz("08")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/attention.py` has `multi_head_attention`, whose box "merge" is the right way back, and
# `tinygrad_attn/nn/attention.py` has the layer. Tutorial 10 draws eight heads as a loop and at once, and tutorial 14
# plants such bugs. The paper is Vaswani et al. 2017, "Attention is all you need", §3.2.2.
