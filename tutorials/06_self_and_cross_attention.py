# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Self- and cross-attention
#
# **The problem.** "O gato preto dorme" is "the black cat is sleeping". Whoever writes "black" must look at the third
# word of the Portuguese sentence, and whoever writes "is" and "sleeping" at the fourth, twice. The two sentences have
# different lengths and another order, so no fixed rule says where to look. And inside one sentence, "black" must also
# find "cat", which it describes.
#
# The formula of attention does both. The only difference is which sequence the queries, the keys and the values come
# from. You will translate by hand, find out where the shapes come from, see what attention does not know about order,
# follow the gradient into each sequence, and meet a mistake that raises no error.
#
# You need: attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V step by step (tutorial 04), and gradients of Tensors
# (tutorial 02).

# %%
import numpy as np

from tinygrad_attn import ShapeError, Tensor, attention, gradcheck, jacobian
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import heatmap

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. One formula, two sources
#
# A sequence is a matrix, one row for each word. Let X have L rows, and let C, the *context*, be another sequence with S
# rows. The queries come from X in either case. Keys and values share one sequence, X itself or C:
#
# $$\text{self-attention: } Q = X W_q,\quad K = X W_k,\quad V = X W_v$$
#
# $$\text{cross-attention: } Q = X W_q,\quad K = C W_k,\quad V = C W_v$$
#
# So X asks and C answers. In self-attention a sequence asks itself.
#
# ## 2. A translation by hand
#
# Each English word gets four numbers: how much it is an article, a thing, a colour, an action. The Portuguese words
# have a fifth: whether it is masculine. **These numbers, and the matrices below, were chosen so that the
# alignment comes out.** A trained model finds its own, from many sentence pairs, and nobody tells it which word belongs
# to which. Here you see only that attention *can* express an alignment.

# %%
target = ["the", "black", "cat", "is", "sleeping"]
x = np.array([[1.0, 0.0, 0.0, 0.0],         # article, thing, colour, action
              [0.0, 0.0, 1.0, 0.0],
              [0.0, 1.0, 0.0, 0.0],
              [0.2, 0.0, 0.0, 0.8],
              [0.0, 0.0, 0.0, 1.0]])        # (L, 4) = (5, 4)

source = ["o", "gato", "preto", "dorme"]
context = np.array([[1.0, 0.0, 0.0, 0.0, 1.0],      # and masculine
                    [0.0, 1.0, 0.0, 0.0, 1.0],
                    [0.0, 0.0, 1.0, 0.0, 1.0],
                    [0.0, 0.0, 0.0, 1.0, 0.0]])     # (S, 5) = (4, 5)

# %% [markdown]
# W_q and W_k take both sentences to a common width D, which is d_k, where they can be compared. Here it is 4. The last
# row of W_k is zero: English does not ask for the gender, so the keys do not show it. The values keep everything.

# %%
w_q = 3 * np.eye(4)                         # (4, D)
w_k = 3 * np.eye(5, 4)                      # (5, D)
w_v = np.eye(5)                             # (5, 5)

output, weights = attention(x @ w_q, context @ w_k, context @ w_v)
heatmap({"weights": weights}, rows=target, columns=source)

# %% [markdown]
# One row for each English word, one column for each Portuguese one. The dark cells cross where the order does: "black"
# looks at "preto", "cat" at "gato". Both "is" and "sleeping" look at "dorme", "is" a little less firmly. Each row sums
# to 1; columns need not, and that of "dorme" has nearly two words' worth.

# %%
found = [source[j] for j in weights.argmax(axis=1)]
print("column sums:", weights.sum(axis=0).round(2))
print("output of 'cat':", output[2].round(2))
assert found == ["o", "preto", "gato", "dorme", "dorme"]
np.testing.assert_allclose(weights.sum(axis=1), 1)

# %% [markdown]
# The output of "cat" is nearly the vector of "gato", with its gender. That is what the *decoder*, the part of a
# translator that writes, goes on with.
#
# One thing is easier here than in a real decoder. When a decoder is about to write "cat", it does not have the word
# yet. Its query is made of the words so far, and must already ask for what comes next.
#
# ## 3. Where the shapes come from
#
# X is (L, E) and C is (S, F), of any two widths. W_q is (E, D), W_k is (F, D), W_v is (F, Dv).
#
# | | shape | why |
# |---|---|---|
# | Q | (L, D) | one query for each row of X |
# | K | (S, D) | one key for each row of C, as wide as a query, since they are multiplied |
# | V | (S, Dv) | one value for each key; its width is free |
# | weights | (L, S) | each query against each key |
# | output | (L, Dv) | one answer for each query, a sum of values |
#
# The length comes from who asks, and the width from what is told. S is summed over, and leaves no trace in the output's
# shape; nor does D.

# %%
L, S, E, F, D, Dv = 5, 4, 6, 7, 3, 2
x, context = rng.normal(size=(L, E)), rng.normal(size=(S, F))
w_q, w_k, w_v = rng.normal(size=(E, D)), rng.normal(size=(F, D)), rng.normal(size=(F, Dv))
output, weights = attention(x @ w_q, context @ w_k, context @ w_v)
print("output", output.shape, " weights", weights.shape)
assert (output.shape, weights.shape) == ((L, Dv), (L, S))

# %% [markdown]
# Six different sizes are a habit worth having. With them, most mix-ups of two axes are errors:

# %%
keys_of_x = rng.normal(size=(E, D))
try:
    attention(x @ w_q, x @ keys_of_x, context @ w_v)
except ShapeError as error:
    print(error)
else:
    raise AssertionError("it should have been refused")

# %% [markdown]
# ## 4. Attention does not know the order
#
# Reorder the words of the context. Each key moves together with its value, and the output is a sum over them, which has
# no order. So the output of cross-attention stays the same.
#
# Reorder the words of X in self-attention. Let P be the permutation matrix that does it: P X has the rows of X in
# another order, and PᵀP = I. Then Q, K and V become P Q, P K and P V, and the scores P Q KᵀPᵀ: their rows and their
# columns are reordered. The softmax goes along each row, whatever the order in it, so
#
# $$\operatorname{softmax}(P Q K^\top P^\top)\, P V = P \operatorname{softmax}(Q K^\top)\, P^\top P V
# = P \operatorname{softmax}(Q K^\top)\, V.$$
#
# The output is the old one with its rows reordered in the same way. This is called *permutation equivariance*. (The
# division by √d_k changes nothing in it.)

# %%
w_qs, w_ks, w_vs = rng.normal(size=(3, E, E))


def self_attention(x):
    return attention(x @ w_qs, x @ w_ks, x @ w_vs)[0]


order, mixed = [3, 0, 4, 1, 2], [2, 0, 3, 1]
np.testing.assert_allclose(self_attention(x[order]), self_attention(x)[order], atol=1e-12)

again, _ = attention(x @ w_q, context[mixed] @ w_k, context[mixed] @ w_v)
np.testing.assert_allclose(again, output, atol=1e-12)

# %% [markdown]
# So to self-attention, "the cat saw the dog" and "the dog saw the cat" are the same five vectors. "Cat" gets the same
# output in both, although once it sees and once it is seen. The order has to be put into the vectors. Tutorial 11 does
# that.
#
# ## 5. Into which sequence does the gradient flow?
#
# In cross-attention X acts through the queries alone, and C through keys and values. In self-attention X has all three
# roles, so its gradient is the sum of three shares, one from each use (tutorial 02). `detach()` makes a constant of a
# Tensor, and lets you open one way at a time.

# %%
def gradient(*open_ways):
    """dL/dX, for L = Σ output², through these of the roles q, k, v."""
    leaf = Tensor(x, requires_grad=True)
    q, k, v = (leaf if way in open_ways else leaf.detach() for way in "qkv")
    out, _ = attention(q @ w_qs, k @ w_ks, v @ w_vs)
    (out * out).sum().backward()
    return leaf.grad


shares = [gradient(way) for way in "qkv"]
print("norms of the shares through q, k, v:", [f"{np.linalg.norm(share):.2f}" for share in shares])
np.testing.assert_allclose(sum(shares), gradient("q", "k", "v"), atol=1e-9)

# %% [markdown]
# The shares add up to the whole. For cross-attention, ask the definition: `gradcheck` moves each number of each input a
# little, sees how the output moves, and compares that with what the engine says. (Tutorial 09 is about it.)

# %%
def cross(x, context, w_q, w_k, w_v):
    return attention(x @ w_q, context @ w_k, context @ w_v)[0]


report = gradcheck(cross, (x, context, w_q, w_k, w_v))
print(report)
assert report.max_abs_error < 1e-7

# %% [markdown]
# In a translator, the context is the output of another network, the *encoder*, which reads the source sentence. What
# the encoder learns from the translation comes to it through K and V of cross-attention, and by no other way.
#
# If the context has a single word, its weight is 1 whatever the query, so no gradient at all comes to X:

# %%
single = jacobian(lambda x: cross(x, context[:1], w_q, w_k, w_v), x).numpy()
print("largest |d output / dX| with one word of context:", np.abs(single).max())
assert not single.any()

# %% [markdown]
# ## 6. Keys from the wrong sequence
#
# Section 3 mixed up two sequences of different lengths, and got an error. If L = S, and the widths agree, it gets none.
# Here is a cross-attention with its keys from X. It was meant to be `context @ w_k`:

# %%
def wrong(x, context, w_q, w_k, w_v):
    return attention(x @ w_q, x @ w_k, context @ w_v)


x, context = rng.normal(size=(2, 4, E))     # L = S = 4, one width
w_q, w_k, w_v = rng.normal(size=(3, E, E)) / E ** 0.5
output, weights = wrong(x, context, w_q, w_k, w_v)
print("output", output.shape, " weights", weights.shape, " sums of rows", weights.sum(axis=1).round(12))

# %% [markdown]
# All shapes are right, each row sums to 1, the output is a mixture of the context's values, and `gradcheck` would pass,
# since the gradient is that of what was computed. The weights, though, come from comparing X with itself. "Black" would
# be matched with "black", whose place in the English sentence is no place in the Portuguese one.
#
# What gives it away is a question about dependence. Change the context, and see whether the weights move:

# %%
other = rng.normal(size=(4, E))             # another context
moved = np.abs(attention(x @ w_q, other @ w_k, other @ w_v)[1] - attention(x @ w_q, context @ w_k, context @ w_v)[1])
stuck = np.abs(wrong(x, other, w_q, w_k, w_v)[1] - weights)
print(f"the weights move by up to {moved.max():.2f} if right, {stuck.max():.2f} if wrong")
assert moved.max() > 0.01
assert not stuck.any()

# %% [markdown]
# ## Exercises
#
# - **06-shapes**: predict the shape of an output from the shapes of all that goes in.
# - **06-permuted**: predict the order of the output's rows when both sequences are reordered.
# - **06-cross-attention**: write it, from two sequences and three matrices, in NumPy.
# - **06-source**: find the bug. Write a check that tells a right cross-attention from those that take something from
#   the wrong place.

# %%
exercises("06")

# %% [markdown]
# ## Quiz

# %%
quiz("06")

# %% [markdown]
# ## Read on
#
# `multi_head_attention` in `tinygrad_attn/attention.py` takes `context=` for cross-attention; without it, x is its own
# context. `TransformerDecoderLayer` in `tinygrad_attn/nn/transformer.py` has one attention of each kind, one after the
# other. The papers: Vaswani et al. 2017, "Attention is all you need", §3.2.3, names the three uses of attention in a
# translator; Bahdanau, Cho and Bengio 2014, "Neural Machine Translation by Jointly Learning to Align and Translate",
# has the alignments of real sentences, learned and not chosen.
