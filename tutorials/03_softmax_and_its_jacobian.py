# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Softmax and its Jacobian
#
# **The problem.** A query was compared with three keys, and the scores are 2, 1 and −1. A soft lookup needs weights:
# positive, with sum 1, larger where the score is larger, and differentiable. Dividing by the sum of the scores gives
# 1, ½ and −½, so that the third value is *subtracted*. Taking the largest alone gives 1, 0 and 0, and these do not
# move when a score moves a little: there is nothing to learn from.
#
# The softmax gives such weights; tutorial 01 used it. You will see why it is made of exponentials, keep it from
# overflowing, derive its Jacobian, send a gradient back through it without building that matrix, and find out where it
# lets nothing through.
#
# You need: the soft lookup (tutorial 01), what a vjp is (tutorial 02), and partial derivatives.

# %%
import math

import numpy as np

from tinygrad_attn import Tensor, gradcheck, jacobian, log_softmax, softmax, vjp
from tinygrad_attn.learn import check, exercises, quiz
from tinygrad_attn.plots import curves, heatmap

np.set_printoptions(precision=4, suppress=True)
s = np.array([2.0, 1.0, -1.0])                          # the scores
assert np.allclose(s / s.sum(), [1, 0.5, -0.5])

# %% [markdown]
# ## 1. Why exponentials?
#
# Make every score positive by some function f, and divide by the sum. Which f? Ask that only *differences* of scores
# count: if every key gets 5 more, none is preferred more than before. Then f(s + 5) / f(s) must be the same number for
# all s, and exponentials do just that: e^(s + 5) / e^s = e⁵. (Other continuous functions that do, for every number in
# place of 5, have only another base, see section 3, or a factor that the division takes out.) So
#
# $$p_i = \operatorname{softmax}(s)_i = \frac{e^{s_i}}{\sum_j e^{s_j}}, \qquad \frac{p_i}{p_j} = e^{s_i - s_j}.$$

# %%
def by_the_formula(s):
    e = np.exp(s)
    return e / e.sum()


p = by_the_formula(s)
print(f"exponentials {np.exp(s)}, their sum {np.exp(s).sum():.3f}, weights {p}")
print(f"all scores 5 higher:                              weights {by_the_formula(s + 5)}")
assert np.isclose(p.sum(), 1)
assert np.allclose(by_the_formula(s + 5), p)
assert np.isclose(p[0] / p[1], math.e)                  # a score higher by 1

# %% [markdown]
# One more point of score makes a weight e = 2.718… times as large, compared with the others.
#
# ## 2. Why is the maximum subtracted?
#
# On paper the formula is right for all scores. In floating point e¹⁰⁰⁰ is infinite, and e⁻¹⁰⁰⁰ is 0:

# %%
with np.errstate(over="ignore", invalid="ignore"):
    print("scores  1000 and  999:", by_the_formula(np.array([1000.0, 999.0])))      # ∞ / ∞
    print("scores −1000 and −999:", by_the_formula(np.array([-1000.0, -999.0])))    # 0 / 0

# %% [markdown]
# But the weights depend on differences alone, so you may subtract what you like from all scores. Subtract the largest,
# m = max s:
#
# $$p_i = \frac{e^{s_i - m}}{\sum_j e^{s_j - m}}.$$
#
# Now the largest exponential is e⁰ = 1. None overflows, and the sum of n of them is between 1 and n, never 0.
# What underflows is too small to be seen beside that 1.
#
# In a table of scores every row belongs to one query, and is a softmax of its own. So every row needs a maximum of
# its own: 1000 subtracted from the row (0, 1) would make it 0 / 0 again. `softmax` of this package does all this, along
# the last axis.

# %%
table = np.array([[1000.0, 999.0],
                  [0.0, 1.0]])                          # (2, 2)
print(softmax(table))
assert np.allclose(softmax(table)[0], softmax(table)[1, ::-1])      # the same difference, the other way round
assert np.allclose(softmax(s), p)

# %% [markdown]
# ## 3. Temperature
#
# In tutorial 01 scores were multiplied by a number. The usual name is for its inverse: scores are *divided* by a
# temperature τ, so that the base is e^(1/τ). The picture shows the three weights, at temperatures from 0.05 to 50.

# %%
temperatures = np.geomspace(0.05, 50, 60)
weights = softmax(s / temperatures[:, None])            # (60, 3)
assert np.allclose(weights[0], [1, 0, 0])
assert np.allclose(weights[-1], 1 / 3, atol=0.02)
curves({f"score {score:g}": (temperatures, weight) for score, weight in zip(s, weights.T)},
       xlabel="temperature τ", ylabel="weight", log="x")

# %% [markdown]
# On the left, where it is cold, the largest score takes everything: the hard choice. On the right, where it is hot, all
# three approach ⅓: no choice at all. The order never changes. Attention divides by √d_k, which is a temperature, too;
# tutorial 05 is about why that one.
#
# ## 4. The Jacobian
#
# Each weight depends on *every* score, through the sum. So the derivative is a matrix: J has ∂pᵢ/∂sⱼ in row i and
# column j. The logarithm makes it short:
#
# $$\ln p_i = s_i - \ln \sum_k e^{s_k}, \qquad
# \frac{\partial \ln p_i}{\partial s_j} = \delta_{ij} - \frac{e^{s_j}}{\sum_k e^{s_k}} = \delta_{ij} - p_j,$$
#
# where δᵢⱼ is 1 if i = j, and 0 otherwise. As ∂ ln pᵢ = ∂pᵢ / pᵢ, multiply by pᵢ:
#
# $$\frac{\partial p_i}{\partial s_j} = p_i\,(\delta_{ij} - p_j), \qquad J = \operatorname{diag}(p) - p\,p^\top.$$
#
# Here diag(p) is the matrix with p on its diagonal and 0 elsewhere, and p pᵀ has pᵢ pⱼ in row i and column j. The
# function `jacobian` computes such a matrix with the engine, one row for each walk back:

# %%
J = jacobian(softmax, s).numpy()                        # (3, 3)
print(J)
print(f"p₀ (1 − p₀) = {p[0] * (1 - p[0]):.4f}, −p₀ p₁ = {-p[0] * p[1]:.4f}")
assert np.allclose(J[0, :2], [p[0] * (1 - p[0]), -p[0] * p[1]])

# %% [markdown]
# Is that right? Ask the definition of the derivative. Move score j up and down by h, and see how far all weights
# move: that is column j. It knows nothing of the engine. `gradcheck` makes the same comparison for any function of
# Tensors, and raises an error if it fails.

# %%
h = 1e-5
columns = [(softmax(s + h * unit) - softmax(s - h * unit)) / (2 * h) for unit in np.eye(3)]
numeric = np.stack(columns, axis=1)                     # (3, 3)
print(f"farthest apart: {np.abs(numeric - J).max():.0e}")
assert np.abs(numeric - J).max() < 1e-9
print(gradcheck(softmax, s))

# %% [markdown]
# What the matrix says:
#
# - The diagonal is positive, pᵢ(1 − pᵢ), at most ¼; all else is negative, −pᵢ pⱼ. The weights *compete*: a score
#   that rises takes weight from all others, and the more from those that have more.
# - It is symmetric: score j moves weight i just as much as score i moves weight j.
# - Each column sums to 0, since the weights keep their sum, 1. Each row sums to 0, since raising all scores together
#   changes no weight.

# %%
print(f"largest sum of a column: {abs(J.sum(axis=0)).max():.0e}, of a row: {abs(J.sum(axis=1)).max():.0e}")
assert np.allclose(J, J.T)
assert np.allclose(J.sum(axis=0), 0)
assert np.allclose(J.sum(axis=1), 0)

# %% [markdown]
# ## 5. Back through it, without the matrix
#
# The backward walk never asks for J. It comes with g = ∂L/∂p, one number for each weight, and needs ∂L/∂s, which is
# gᵀJ: the vjp. Write it out, for score j:
#
# $$\frac{\partial L}{\partial s_j} = \sum_i g_i\,p_i\,(\delta_{ij} - p_j) = p_j\,\left(g_j - \sum_i g_i\,p_i\right).$$
#
# Read the right side from the inside. Σ gᵢ pᵢ is the mean of g, each element taken with its weight. So a score's
# gradient is its weight, times how far its g is *above that mean*. Written for all j at once, it is p ∘ (g − Σ g∘p),
# where ∘ multiplies element by element.

# %%
g = np.array([1.0, 2.0, 6.0])                           # what comes back to the weights
mean = (g * p).sum()
_, back = vjp(softmax, s, g)
print(f"mean of g: {mean:.4f}; g is above it by {g - mean};\nsent to the scores: {back.numpy()}")
assert np.allclose(back.numpy(), g @ J)
assert np.isclose(back.numpy()[2], p[2] * (6 - mean))
assert abs(back.numpy().sum()) < 1e-12                  # what one score gets, others lose

# %% [markdown]
# The third has the largest g by far, but so small a weight that its score gets little. The first has a g below the
# mean: to raise its score would lower L.
#
# You have met this rule before. If L is the answer of a soft lookup, Σ pᵢ vᵢ, then g is v, and the mean of g is the
# answer. Score j is q · kⱼ, whose derivative for q is kⱼ. Together they are the advice to the query in tutorial 01:
#
# $$\frac{\partial L}{\partial q} = \sum_j \frac{\partial L}{\partial s_j}\,k_j
# = \sum_j p_j\,(v_j - \text{answer})\,k_j.$$
#
# Does it matter that no matrix is built? Count the numbers, for one query and 4,096 keys:

# %%
n = 4096
print(f"the Jacobian: {n * n:,} numbers, {n * n * 8 / 1e6:.0f} MB; the rule reads {2 * n:,} and writes {n:,}")

# %% [markdown]
# ## 6. Where is it large, and where is it nothing?
#
# Stretch the scores: times 0 all weights are alike, times 1 they are those from above, and times 8 the first has
# nearly everything. The picture shows the three Jacobians, blue where an element is positive and red where it is
# negative. On the right all elements are nearly 0, and white.

# %%
stretched = {name: jacobian(softmax, s * times).numpy() for name, times in (("times 0", 0), ("times 1", 1),
                                                                             ("times 8", 8))}
heatmap(stretched, limits=(-0.25, 0.25))

# %% [markdown]
# How much gets through, in one number? Take the norm ‖J‖, the root of the sum of all squares. If all n weights are
# equal, it is √(n − 1) / n. If one weight is 1 and the others are 0, then pᵢ(δᵢⱼ − pⱼ) is 0 for every i and j, and so
# is the norm: the softmax passes nothing on, *whatever* comes back.

# %%
wants_the_third = np.array([0.0, 0.0, 1.0])             # only more of the third weight would help
for times in (0, 1, 2, 4, 8):
    size = np.linalg.norm(jacobian(softmax, s * times).numpy())
    sent = vjp(softmax, s * times, wants_the_third)[1].numpy()
    print(f"times {times}: weights {softmax(s * times)}, ‖J‖ = {size:.1e}, the third score gets {sent[2]:.0e}")
assert np.isclose(np.linalg.norm(stretched["times 0"]), math.sqrt(2) / 3)
assert np.linalg.norm(stretched["times 8"]) < 1e-3

# %% [markdown]
# Look at the last line. More of the third weight is all that would help, and its score gets almost nothing, because the
# weight is almost nothing. A softmax that is sure, and wrong, does not hear that it is wrong. It is called *saturated*.
# Dot products of wide vectors make scores as large as these: tutorial 05.
#
# ## 7. The logarithm of it
#
# A network that sorts pictures, say, gives a weight p to each class (a cat, a dog), and is judged by L = −ln p of the
# right one, its *loss*: 0 if p is 1, and the larger, the smaller p is. Suppose it is sure and wrong: scores 800 and 0,
# and the second is right. On paper L is 800. By softmax and then `log` it is not:

# %%
for name, logarithms in (("softmax, then log", lambda x: x.softmax().log()), ("log_softmax      ", log_softmax)):
    scores = Tensor([800.0, 0.0], requires_grad=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = -logarithms(scores)[1]
        loss.backward()
    print(f"{name}: L = {loss.item():g}, gradient {scores.grad}")
assert loss.item() == 800
assert np.array_equal(scores.grad, [1, -1])

# %% [markdown]
# The weight underflowed to 0, and the logarithm of 0 is −∞. Take the logarithm on paper instead, before anything is
# rounded:
#
# $$\ln p_i = s_i - \ln \sum_j e^{s_j} = (s_i - m) - \ln \sum_j e^{s_j - m}.$$
#
# That is `log_softmax`: it never takes the logarithm of 0. Its derivative you know from section 4: ∂ ln pᵢ/∂sⱼ =
# δᵢⱼ − pⱼ. The factor pᵢ, which was the trouble, is gone. So the gradient of L is p, minus 1 at the right class, which
# is (1, −1) above. It is large just where the network is wrong.
#
# Inside attention there is no logarithm between the weights and the values, so there the factor stays.

# %%
print(gradcheck(log_softmax, s))
assert np.allclose(jacobian(log_softmax, s).numpy(), np.eye(3) - p)         # row i, column j: δᵢⱼ − pⱼ

# %% [markdown]
# ## Exercises
#
# - **03-shift**: predict a weight after its score was moved.
# - **03-softmax**: write the softmax, for any scores and any number of axes.
# - **03-push**: predict how far one weight moves when another score does.
# - **03-log-softmax**: write its logarithm, which losses are made of.
# - **03-jacobian**: write the matrix of section 4.
# - **03-vjp**: write the rule of section 5, which the engine uses in every attention.
# - **03-axis**: write a check that tells right softmaxes from six wrong ones.
#
# In a notebook, give your function to `check`, as below; a prediction is `check("03-shift", 0.5)`. In a terminal,
# `python3 -m tinygrad_attn learn start 03-softmax softmax.py` writes a file to edit, and
# `python3 -m tinygrad_attn learn check 03-softmax softmax.py` checks it.

# %%
report = check("03-softmax", by_the_formula)            # for one row of small scores it was good enough
assert not report

# %%
exercises("03")

# %% [markdown]
# ## Quiz

# %%
quiz("03")

# %% [markdown]
# ## Read on
#
# `softmax`, `log_softmax` and `logsumexp` in `tinygrad_attn/ops.py`, each with its rule in one line below it, and
# `jacobian` and `vjp` in `tinygrad_attn/derivatives.py`. The name is from Bridle 1990, "Probabilistic interpretation
# of feedforward classification network outputs".
