# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Attention step by step
#
# **The problem.** Here are three words, each with four numbers. Each word is to look at all three, itself among them,
# decide by content how much it takes from each, and become a mixture of what it took. Which numbers come out?
#
# You have the parts: a soft lookup (tutorial 01) and the softmax (tutorial 03). Here they are put together for many
# queries at once, with numbers small enough for paper. You will compute every intermediate result, one row of it by
# hand, write the whole as a function, send gradients back through each step, and count what it costs.
#
# You need: products of matrices and their transposes, and tutorials 01 to 03.

# %%
import math

import numpy as np

from tinygrad_attn import Tensor, attention, gradcheck, graph, softmax
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import heatmap

np.set_printoptions(precision=4, suppress=True)

X = np.array([[1.0, 0.0, 1.0, 0.0],
              [0.0, 2.0, 0.0, 2.0],
              [1.0, 1.0, 1.0, 1.0]])                    # (3, 4): a word a row

# %% [markdown]
# ## 1. Ask, offer, tell: three products
#
# Each word plays three parts. It *asks* with its query, *offers* its key to the questions of others, and *tells* its
# value. The three are different views of the same four numbers, and what makes the views is three matrices:
#
# $$Q = X W_q, \qquad K = X W_k, \qquad V = X W_v.$$
#
# In a network they are learned; here they are given. Row i of Q is row i of X times W_q. So each word is treated by
# itself, and all words alike.

# %%
W_q = np.array([[0.1, 0.2, 0.0, 0.0],
                [0.0, 0.1, 0.3, 0.0],
                [0.1, 0.0, 0.0, 0.2],
                [0.0, 0.0, 0.2, 0.3]])                  # (4, 4)
W_k = np.array([[0.2, 0.0, 0.1, 0.0],
                [0.0, 0.1, 0.0, 0.3],
                [0.1, 0.0, 0.2, 0.0],
                [0.0, 0.2, 0.0, 0.1]])                  # (4, 4)
W_v = np.array([[0.0, 0.1, 0.0, 0.2],
                [0.2, 0.0, 0.2, 0.0],
                [0.0, 0.3, 0.1, 0.0],
                [0.1, 0.0, 0.0, 0.3]])                  # (4, 4)

Q, K, V = X @ W_q, X @ W_k, X @ W_v                     # (3, 4) each
for name, table in (("Q", Q), ("K", K), ("V", V)):
    print(f"{name}, {table.shape}:\n{table}")

# %% [markdown]
# By hand: the first word is (1, 0, 1, 0), so its query is the first row of W_q plus the third,
# (0.1, 0.2, 0, 0) + (0.1, 0, 0, 0.2) = (0.2, 0.2, 0, 0.2).

# %%
assert np.allclose(Q[0], [0.2, 0.2, 0.0, 0.2], atol=1e-12)
assert np.allclose(K[1], [0.0, 0.6, 0.0, 0.8], atol=1e-12)

# %% [markdown]
# ## 2. Compare: the scores
#
# A product of matrices is a table of dot products: rows of the left with columns of the right. The columns of Kᵀ are
# the keys, so Q Kᵀ has in row i and column j the dot product of query i with key j. **A row belongs to the word that
# asks, a column to the word that is asked.** By hand, what the first word finds in the second:
#
# $$(0.2,\; 0.2,\; 0,\; 0.2) \cdot (0,\; 0.6,\; 0,\; 0.8) = 0.12 + 0.16 = 0.28.$$

# %%
scores = Q @ K.T                                        # (3, 4) @ (4, 3) = (3, 3)
print(scores)
assert np.allclose(scores, [[0.06, 0.28, 0.20], [0.30, 0.60, 0.60], [0.21, 0.58, 0.50]], atol=1e-9)

# %% [markdown]
# The table is not symmetric: the second word finds 0.30 in the first. To ask and to offer are two views.
#
# ## 3. Scale
#
# The scores are divided by the root of d_k, the width of a query, that is, how many numbers it has. It is 4, so they
# are halved. Tutorial 05 says why the root; it is a temperature.

# %%
d_k = Q.shape[-1]
scaled = scores / math.sqrt(d_k)                        # (3, 3)
print(scaled)

# %% [markdown]
# ## 4. Normalise: the weights
#
# A softmax of each row: every word has one unit of attention to give, and gives it away in parts. The first row by
# hand: e^0.03 = 1.0305, e^0.14 = 1.1503, e^0.10 = 1.1052, together (before rounding) 3.2859. Divided by that, 0.3136,
# 0.3501 and 0.3363.

# %%
weights = softmax(scaled)                               # (3, 3), along the last axis
print(weights)
print("sums of rows:", weights.sum(axis=1), " of columns:", weights.sum(axis=0))

by_hand = np.exp([0.03, 0.14, 0.10])
print(f"by hand: {by_hand} / {by_hand.sum():.4f} = {by_hand / by_hand.sum()}")
assert np.allclose(weights[0], by_hand / by_hand.sum(), atol=1e-12)
assert np.allclose(weights, [[0.3135989436, 0.3500636237, 0.3363374327],
                             [0.3008723657, 0.3495638172, 0.3495638172],
                             [0.2976847854, 0.3581798232, 0.3441353914]], atol=1e-9)

# %% [markdown]
# Columns need not sum to 1: the second word gets more than one unit in all, and the first less.
#
# All weights are near ⅓, as these scores are small and nobody trained the matrices. On the left of the picture are the
# weights as they are, nearly one colour. On the right W_q and W_k are three times as large, and the scores nine times.
# Now the second and the third word leave little for the first, whose column is pale.

# %%
sharper = softmax(9 * scaled)                           # (3, 3)
heatmap({"weights": weights, "scores times 9": sharper}, rows=["asks 1", "asks 2", "asks 3"],
        columns=["1", "2", "3"])

# %% [markdown]
# ## 5. Weigh: the output
#
# Row i of the output is the mixture of all values, by the weights in row i: weights V. Each of its numbers is an
# average, so it lies between the smallest and the largest in that column of V.

# %%
output = weights @ V                                    # (3, 3) @ (3, 4) = (3, 4)
print(output)
first = weights[0, 0] * V[0] + weights[0, 1] * V[1] + weights[0, 2] * V[2]
assert np.allclose(output[0], first, atol=1e-12)
assert np.allclose(output, [[0.3109394040, 0.2599745505, 0.2722865736, 0.4409266793],
                            [0.3146074354, 0.2601744731, 0.2747819086, 0.4446946720],
                            [0.3181485113, 0.2567280707, 0.2762810252, 0.4465125467]], atol=1e-9)
assert np.array_equal(output, output.clip(V.min(axis=0), V.max(axis=0)))

# %% [markdown]
# The order of the steps is: **project, compare, scale, normalise, weigh.** In one line (Vaswani et al. 2017, eq. 1)
#
# $$\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V.$$
#
# ## 6. As a function, and in a batch
#
# Here are all five steps, for one sequence. Since Q, K and V come from the same X, this is *self*-attention.

# %%
def self_attention(x, w_q, w_k, w_v):
    query, key, value = x @ w_q, x @ w_k, x @ w_v       # (L, D), (L, D), (L, Dv)
    scores = query @ key.T                              # (L, L)
    weights = softmax(scores / math.sqrt(query.shape[-1]))      # (L, L)
    return weights @ value, weights                     # (L, Dv), (L, L)


assert np.allclose(self_attention(X, W_q, W_k, W_v)[0], output, atol=1e-12)

# %% [markdown]
# Nothing in the formula asks that there be as many queries as keys: L queries and S keys give a table (L, S). Queries
# and keys must have the same width D, which is d_k, or there is no dot product. Each key needs one value, so there
# are S values, but their width Dv may be another.
#
# Networks compute many sequences at once: X gets an axis in front, (B, L, 4). NumPy's `@` multiplies the last two axes
# and repeats that over all in front. But `.T` reverses *all* axes, so that `queries @ keys.T` finds nothing that fits.
# (If B, L and D are equal it does fit, and is wrong.) In a batch, swap the last two axes of K:

# %%
batch = np.stack([X, 2 * X])                            # (B, L, 4) = (2, 3, 4)
queries, keys, values = batch @ W_q, batch @ W_k, batch @ W_v       # (2, 3, 4) each
print("K:", keys.shape, " K.T:", keys.T.shape, " last two swapped:", keys.swapaxes(-1, -2).shape)
assert np.allclose((queries @ keys.swapaxes(-1, -2))[0], scores, atol=1e-9)

# %% [markdown]
# `attention` of this package takes any number of axes in front, and returns the same pair, output and weights. (It
# scales the query before the product, which is the same on paper.)

# %%
outputs, tables = attention(queries, keys, values)      # (2, 3, 4), (2, 3, 3)
assert np.allclose(outputs[0], output, atol=1e-12)
assert np.allclose(outputs[1], self_attention(2 * X, W_q, W_k, W_v)[0], atol=1e-12)

# %% [markdown]
# ## 7. The way back
#
# To learn W_q, W_k and W_v, their gradients are needed. What is the rule for a product C = A B, if g = ∂L/∂C comes
# back? We have Cᵢⱼ = Σₖ Aᵢₖ Bₖⱼ. So Aᵢₖ reaches Cᵢⱼ with the factor Bₖⱼ, for every j, and ∂L/∂Aᵢₖ = Σⱼ gᵢⱼ Bₖⱼ. B goes
# the same way. As matrices:
#
# $$\frac{\partial L}{\partial A} = g\,B^\top, \qquad \frac{\partial L}{\partial B} = A^\top g.$$
#
# Attention is two such products with a softmax between them, so the way back is the way forward in reverse
# order. Let g = ∂L/∂output, (L, Dv). (Here L is two things: under ∂ the one number at the end, as in tutorial 02, and
# in shapes the number of queries.)
#
# 1. output = weights V is a product: it sends gradients to V and to the weights.
# 2. weights = softmax(scaled): row by row, p ∘ (g − Σ g∘p), where g is now what came to the weights.
# 3. scaled = scores / √d_k: divide by the same number.
# 4. scores = Q Kᵀ is a product: it sends gradients to Q and to Kᵀ, and that of K is the transpose of the latter.
# 5. Q = X W_q, and so on: products again.
#
# The picture shows it, with L the sum of all outputs. Read it from the bottom, against the arrows: each box has the
# norm of the gradient that comes to it, ‖grad‖, and wide edges carry much. (The 0.5 is 1/√d_k, which is multiplied
# with Q here.)

# %%
x = Tensor(X, name="X")
w_q, w_k, w_v = (Tensor(w, requires_grad=True, name=name) for w, name in ((W_q, "W_q"), (W_k, "W_k"), (W_v, "W_v")))
result, _ = attention(x @ w_q, x @ w_k, x @ w_v)        # (3, 4)
drawn = graph.draw(result, grads=True)
drawn

# %% [markdown]
# The first step by numbers. With that L, g is 1 everywhere. Then ∂L/∂V is weightsᵀ g: each value gets the sum of its
# column of weights, that is, how much it was heard. One step further back, W_v gets Xᵀ times that.

# %%
g = np.ones((3, 4))
result.sum().backward()
heard = weights.T @ g                                   # (3, 3) @ (3, 4) = (3, 4)
print("gradient of V, a row for each value:\n", heard)
print("norms:", {w.name: f"{np.linalg.norm(w.grad):.2f}" for w in (w_q, w_k, w_v)})

came = {(v.label, v.shape): np.linalg.norm(v.grad) for v in drawn.trace.vertices if v.kind == "op"}
print(f"to the softmax comes {came['softmax', (3, 3)]:.2f}, and it sends on {came['matmul', (3, 3)]:.2f}")
assert came["matmul", (3, 3)] < came["softmax", (3, 3)] / 10
assert np.allclose(w_v.grad, X.T @ heard)
assert np.linalg.norm(w_v.grad) > 20 * np.linalg.norm(w_q.grad)

# %% [markdown]
# W_q and W_k get far less than W_v. What goes to them must pass the softmax, which sends on only by how much each
# value is above the mean, and these values differ little.
#
# Are all of these right? Ask the definition, for every number of X and of the three matrices:

# %%
print(gradcheck(lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)[0], (X, W_q, W_k, W_v)))

# %% [markdown]
# ## 8. What does it cost?
#
# The projections treat each word by itself: a text twice as long takes twice the work. The other two products grow
# faster. For Q Kᵀ each of L queries meets each of S keys, in D multiplications; for weights V, each of L · S weights
# multiplies a value of Dv numbers. In self-attention S is L, and a text twice as long takes four times the work, and
# four times the memory for the weights. In numbers, for D = Dv = 64:

# %%
D = 64
for L in (1000, 2000, 4000):
    print(f"L = {L}: {2 * L * L * D / 1e6:5,.0f} million multiplications, weights {8 * L * L / 1e6:4,.0f} MB")

# %% [markdown]
# In return, any word reaches any other in one step, however far apart they are.
#
# ## Exercises
#
# - **04-scores**: predict one score after a word has changed.
# - **04-shapes**: predict the shape of every intermediate result.
# - **04-which-row**: predict which key gets the most attention.
# - **04-attention**: write it, for any number of axes in front.
# - **04-attention-vjp**: write its way back, steps 1 to 4 of section 7.
# - **04-steps**: write a check that finds a step left out, or in the wrong place.

# %%
exercises("04")

# %% [markdown]
# ## Quiz

# %%
quiz("04")

# %% [markdown]
# ## Read on
#
# `attention` in `tinygrad_attn/attention.py` has steps 2 to 5 of this page, and masks (tutorial 07). `three_words` in
# `tinygrad_attn/examples.py` has these matrices, and `python3 -m tinygrad_attn graph attention --out attention.html`
# writes a page that steps back through their graph. Where Q comes from another sequence than K and V, see tutorial 06.
# (Vaswani et al. 2017, "Attention is all you need", §3.2.1.)
