# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Why divide by √d_k
#
# **The problem.** Attention compares a query with keys by dot products, and the softmax turns these scores into
# weights. Every text says that the scores must be divided by √d_k, the root of the vectors' length, or "the softmax
# saturates and the gradient vanishes". Is that true? How much of it? And what happens to training?
#
# You will derive it, measure it, confirm it by differences that know nothing of our engine, and then train a layer.
# You need: the dot product, variance, the softmax and its Jacobian.

# %%
import math

import numpy as np

from tinygrad_attn import jacobian, saturation, softmax
from tinygrad_attn.saturation import theory

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. How large is a dot product?
#
# Let q and k have d_k independent components of mean 0 and variance 1. Then q·k is a sum of d_k products. Each product
# has mean E[q₁] E[k₁] = 0 and variance E[q₁²] E[k₁²] = 1, and variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = d_k, \qquad \text{standard deviation } \sqrt{d_k}.$$

# %%
for d_k in (1, 16, 256, 4096):
    q, k = rng.normal(size=(2, 2000, d_k))              # 2000 pairs of vectors
    spread = (q * k).sum(axis=1).std()
    print(f"d_k = {d_k:4}: standard deviation {spread:6.2f}, √d_k = {math.sqrt(d_k):5.1f}")
    assert abs(spread / math.sqrt(d_k) - 1) < 0.15

# %% [markdown]
# Nothing is wrong with large numbers as such. But the softmax is about to exponentiate them.
#
# ## 2. What does the softmax do with large scores?
#
# Take the same eight scores, and stretch them. Small ones: all weights are alike. Large ones: the winner takes all.

# %%
scores = rng.normal(size=8)
for stretch in (0.1, 1, 8, 64):
    print(f"times {stretch:4}: weights {np.round(softmax(scores * stretch), 3)}")

# %% [markdown]
# The Jacobian of the softmax is diag(p) − p pᵀ. If one weight is 1 and the others 0, it is zero in every element: what
# comes back to the weights goes no further. At the other end, where all weights are 1/n, its norm is √(n − 1)/n, which
# is not large either. The most gets through in between.

# %%
sizes = {stretch: float(np.linalg.norm(jacobian(softmax, scores * stretch).numpy())) for stretch in (0.1, 1, 2, 8, 64)}
print({stretch: f"{size:.2g}" for stretch, size in sizes.items()})
assert sizes[64] < 1e-3 * sizes[1]
assert abs(sizes[0.1] - math.sqrt(7) / 8) < 0.01

# %% [markdown]
# ## 3. Measure it
#
# `saturation.sweep` draws queries and keys at each d_k, runs the framework's real attention forward and backward,
# with three scales (none, 1/√d_k and 1/d_k), and sets theory below measurement. J is the Jacobian of the softmax.
# The loss L is the attention's output, with values of width 1, so that nothing but the softmax is between it and the
# scores.

# %%
sweep = saturation.sweep((1, 4, 16, 64, 256, 1024), draws=200)
print(sweep.table())

# %%
sweep.plot()

# %% [markdown]
# Read the column J of the table, and then its panel. Unscaled (red), the norm *rises* at first, from 0.15 to 0.33 at
# d_k = 16, because the softmax of small scores is nearly flat. Then its median falls off a cliff. Divided by √d_k
# (blue), it stays where it was at d_k = 1. Divided by d_k (green) the scores shrink, and the weights become flat.

# %%
raw, scaled = (sweep[1024, scale].jacobian.median for scale in ("none", "sqrt"))
print(f"median norm at d_k = 1024: {raw:.1e} unscaled, {scaled:.2f} scaled")
assert raw < scaled / 100
assert sweep[16, "none"].jacobian.median > sweep[1, "none"].jacobian.median

# %% [markdown]
# ## 4. Derive it
#
# Why a cliff, and where? When the scores are spread widely, with standard deviation σ = √d_k, only the two largest
# matter. Let Δ be the gap between them. The larger has weight p = 1/(1 + e^−Δ), and the Jacobian is
#
# $$p(1-p) \begin{pmatrix} 1 & -1 \\ -1 & 1 \end{pmatrix}, \qquad \|J\| = 2p(1-p) \approx 2e^{-\Delta}.$$
#
# The gap is σ times the gap of n standard normal numbers. Half of the draws have a gap above its median, m_n, so
#
# $$\text{median of } \|J\| \approx 2 e^{-m_n \sqrt{d_k}}.$$
#
# For 64 keys m_n is about 0.28: a number, not a fit.

# %%
gap = theory.median_gap(64)
ordered = np.sort(rng.normal(size=(20_000, 64)), axis=1)
print(f"median gap: {gap:.3f} by theory, {np.median(ordered[:, -1] - ordered[:, -2]):.3f} by drawing")
for d_k in (256, 1024):
    measured, expected = sweep[d_k, "none"].jacobian, 2 * math.exp(-gap * math.sqrt(d_k))
    low, high = measured.median_band
    print(f"d_k = {d_k:4}: median {measured.median:.1e}, between {low:.1e} and {high:.1e}; theory {expected:.1e}")
    assert low / 1.25 < expected < high * 1.25

# %% [markdown]
# **The mean tells another story.** Now and then the two largest scores nearly tie. However large σ is, the gap is
# below 1 with a probability near f(0)/σ, where f is the density of the gap of standard normals. In those draws the
# softmax is wide awake, and they carry the mean:
#
# $$E\|J\| \approx \frac{f(0)}{\sigma} \int_0^\infty 2p(1-p)\,d\Delta = \frac{c}{\sqrt{d_k}}, \qquad c = f(0).$$
#
# The integral is 1, since d p/dΔ = p(1 − p). For 64 keys c is about 2.3. This is a limit for large σ: at d_k = 256 a
# third score near the tie still takes some of it.

# %%
c = theory.tie_density(64)
print(f"c = {c:.3f}")
for d_k in (256, 1024):
    row = sweep[d_k, "none"]
    print(f"d_k = {d_k:4}: mean {row.jacobian.mean:.3f}, c/√d_k = {c / math.sqrt(d_k):.3f}; "
          f"{row.near_tie_share:.0%} of it from the tenth of draws with the smallest gaps")
    slack = theory.next_term(row.spread, 64) * c / math.sqrt(d_k)
    assert row.jacobian.mean_band[0] - slack < c / math.sqrt(d_k) < row.jacobian.mean_band[1] + slack

# %% [markdown]
# So "the gradient vanishes" is true of nearly every query, and not of the average. What reaches Q is also multiplied
# by the keys, whose length grows like √d_k, so that its *mean* does not fall at all. Nearly all queries get nothing,
# and a few get as much more as they are fewer.

# %%
limit = math.sqrt(2 / math.pi) * c
for d_k in (64, 256, 1024):
    raw, scaled = sweep[d_k, "none"].grad_query, sweep[d_k, "sqrt"].grad_query
    print(f"‖∂L/∂Q‖ at d_k = {d_k:4}: unscaled median {raw.median:.1e}, mean {raw.mean:.2f} (theory {limit:.2f}); "
          f"scaled median {scaled.median:.2f}, mean {scaled.mean:.2f}")
assert sweep[1024, "none"].grad_query.median < 0.1 < sweep[1024, "none"].grad_query.mean

# %% [markdown]
# ## 5. A witness that knows no graph
#
# All of this came from our vjps (vector-Jacobian products: the rules that send a gradient back through an op). Are
# they right? Move a score a little and see how the weights move. But a difference of two weights that agree in all
# their digits is 0, and not "very small". The complex step helps: move the score by *ih*, and the change sits in the
# imaginary part, where it is a number of its own (tutorial 09).

# %%
wide, second = np.array([60.0, 0.0, -5.0]), np.array([0, 1, 0])
h = 1e-5
central = (softmax(wide + h * second) - softmax(wide - h * second))[0] / (2 * h)
stepped = softmax(wide + 1e-30j * second)[0].imag / 1e-30
exact = -math.exp(-60)                                  # −p₀ p₁; the rest is smaller by e⁻⁶⁰
print(f"∂p₀/∂s₁: central {central:.1e}, complex step {stepped:.6e}, exact {exact:.6e}")
assert central == 0
assert abs(stepped / exact - 1) < 1e-12
print(sweep.testimony())

# %% [markdown]
# ## 6. What does it do to training?
#
# Lessons say that training stalls. Let us see. A layer has a query vector and a key vector for each of 16 tokens: the
# rows of W_q and W_k, standard normal at the start. Asked for a token, it must find that token's key among all 16, and
# return the value there. The loss is the squared error. A query is *stuck* if its largest weight is on a wrong key and
# its gradient is dead, below a millionth.

# %%
def told(run):
    return (f"{run.accuracy[0]:4.0%} right, after {run.steps[-1]} steps {run.accuracy[-1]:4.0%}; "
            f"stuck {run.stuck[0]:3.0%}, then {run.stuck[-1]:4.0%}; "
            f"‖∂L/∂W_q‖ {run.gradient[0]:.0e}, then {run.gradient[-1]:.0e}")


for d_k in (4, 256):
    for scale in ("sqrt", "none"):
        print(f"d_k = {d_k:3}, {scale:4}: {told(saturation.train(scale, d_k=d_k, lr=10.0))}")
assert saturation.train("sqrt", d_k=256, lr=10.0).accuracy[-1] > 0.97
assert saturation.train("none", d_k=256, lr=10.0).accuracy[-1] < 0.6

# %% [markdown]
# At d_k = 4 there is hardly a difference. At 256 the unscaled layer does not get there in 400 steps. It is not dead
# at the start: the mean gradient is even large, as section 4 said. A few queries with near ties make large steps,
# and these drive more and more queries into saturation, on the wrong keys. Other rates and Adam do somewhat better,
# and none comes to 95 % from d_k = 64 on (`saturation.training_map()` tries them over five seeds; it takes minutes).
# So the lesson is right? Change one thing at a time:

# %%
few = saturation.Task(keys=4)                           # 4 of the 16 tokens in each context, instead of all
other = saturation.Task(loss="cross-entropy")           # −ln of the weight of the right key
for name, task in (("few rivals", few), ("cross-entropy", other)):
    run = saturation.train("none", d_k=256, lr=10.0, task=task)
    print(f"unscaled, {name:13}: {told(run)}")
    assert run.accuracy[-1] > 0.6

# %% [markdown]
# With few rivals in a context, a buried key sometimes meets only low scores, gets some gradient, and rises. And with
# cross-entropy the gradient at the scores is p − 1 at the right key: the logarithm undoes the exponential, and
# nothing vanishes. **It is not large scores as such that stop learning, but the softmax's Jacobian between them and
# the loss.** Inside a network, where attention weights meet values and never a logarithm, that Jacobian is always
# there.
#
# ## 7. Why the root, and not d_k?
#
# Divide by d_k, and the scores are small, the weights flat, the softmax wide awake. The layer learns that way, too:

# %%
for d_k in (16, 256):
    for scale, rate in (("sqrt", 10.0), ("linear", 10.0), ("linear", 1000.0)):
        run = saturation.train(scale, d_k=d_k, lr=rate)
        print(f"d_k = {d_k:3}, {scale:6}, rate {rate:4.0f}: {run.accuracy[-1]:4.0%} right, loss {run.loss[-1]:.1e}")
assert saturation.train("sqrt", d_k=256, lr=10.0).loss[-1] < saturation.train("linear", d_k=256, lr=10.0).loss[-1] / 100

# %% [markdown]
# But what reaches Q falls like 1/√d_k (the table of section 3), and the rate has to rise with d_k to make up for it.
# With the root, scores and gradients have the same size at every d_k, and one rate serves them all. That is what it
# buys.

# %% [markdown]
# ## Exercises
#
# 1. What is the standard deviation of q·k if the components have variance ½ instead of 1? By what would you divide?
# 2. With 2 keys, c = 1/√π. Derive it: the gap of two standard normals is |x − y|. Compare with
#    `theory.tie_density(2)`.
# 3. `print(saturation.sweep([1024], n_keys=512, scales="none", draws=100))`, and the same with 64 keys: do more keys
#    make saturation better or worse? Explain with m_n.
# 4. `saturation.Task(tied=True)` starts from W_k = W_q, and asks for the token *before* the query's own. Print
#    `train(scale, d_k, task=...).gradient[0]` for d_k of 64, 256 and 1024, with "none" and with "sqrt". What are the
#    mean and the standard deviation of the score of a token with itself?
#
# <details><summary>Answers</summary>
#
# 1. √d_k / 2, since each product has variance ¼; divide by √d_k / 2.
# 2. x − y has variance 2, its density at 0 is 1/√(4π), and folding doubles it: 1/√π.
# 3. Milder: the two largest of more numbers lie nearer to each other. For 512 keys m_n is 0.22 and c is 3.0, so the
#    cliff comes later, and ties are denser.
# 4. Unscaled it is near 1e-11, 1e-63 and, in double precision, 0; with the root near 1e-2, 1e-5 and 1e-12. A query's
#    score with its own key is near d_k, or √d_k with the root, far above the others, and it is the wrong one. q·q
#    has mean d_k and standard deviation √(2 d_k): the derivation of section 1 needs independent vectors.
# </details>
#
# ## Quiz
#
# **Why does the unscaled median collapse exponentially, while the mean falls only like 1/√d_k?**
#
# - a) The median is harder to estimate. *No: both are measured, with bands.*
# - b) Near ties of the two largest scores are rare, but let much through. *Yes.*
# - c) The mean includes the scaled draws. *No, each scale has its own.*
#
# **Which change lets the unscaled layer learn at once?**
#
# - a) Adam. *It helps somewhat at d_k = 16; from 64 on no run of the map came to 95 %.*
# - b) A smaller rate. *No rate of the map did, in 400 steps. How much more steps help was not mapped.*
# - c) A loss with a logarithm at the weights. *Yes.*
#
# ## Read on
#
# `tinygrad_attn/saturation/theory.py` has all limits with their derivations, `measure.py` how they are measured, and
# `training.py` the task. In a terminal: `python -m tinygrad_attn saturation --out lab` writes a page with a slider.
# (Vaswani et al. 2017, "Attention is all you need", §3.2.1, footnote 4.)
