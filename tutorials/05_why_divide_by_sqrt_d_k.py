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
# weights. Most texts say that the scores must be divided by √d_k, the root of the vectors' width, or "the softmax
# saturates and the gradient vanishes". Is that true? How much of it? And what happens to training?
#
# You will derive it, measure it, confirm it by differences that know nothing of our engine, and then train a layer.
#
# You need: mean and variance, the softmax and its Jacobian (tutorial 03), and attention's formula (tutorial 04).

# %%
import math

import numpy as np

from tinygrad_attn import gradcheck, jacobian, saturation, softmax
from tinygrad_attn.learn import exercises, quiz
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
# Take the same eight scores, and stretch them. How much gradient can get through is the size of the Jacobian,
# J = diag(p) − p pᵀ; as in tutorial 03, take its norm ‖J‖, the root of the sum of all squares.

# %%
scores, sizes = rng.normal(size=8), {}
for stretch in (0.1, 1, 2, 8, 64):
    sizes[stretch] = np.linalg.norm(jacobian(softmax, scores * stretch).numpy())
    print(f"times {stretch:3}: weights {np.round(softmax(scores * stretch), 2)}, ‖J‖ = {sizes[stretch]:.2g}")
assert sizes[64] < 1e-3 * sizes[1]
assert abs(sizes[0.1] - math.sqrt(7) / 8) < 0.01

# %% [markdown]
# Small scores: all weights are near 1/n, and ‖J‖ is near √(n − 1)/n. Large scores: the winner takes all, and what
# comes back to the weights goes no further. The most gets through in between.
#
# ## 3. Measure it
#
# `saturation.sweep` draws queries and 64 keys at each d_k, and runs the framework's real attention forward and
# backward, with the scores as they are, divided by √d_k, and divided by d_k. The loss L is the attention's output,
# with values of width 1, so that nothing but the softmax is between it and the scores. The entropy is −Σ p ln p: 0 if
# one weight is 1, and ln 64 = 4.159 if all are equal. Rows marked "theory" are what section 4 derives.

# %%
sweep = saturation.sweep((1, 4, 16, 64, 256, 1024), draws=200)
print(sweep.table())

# %% [markdown]
# Read the column "J median" from top to bottom: half of the draws have a norm below that. The picture has it in its
# lower left panel. Bands reach over nine tenths of the draws.

# %%
sweep.plot()

# %% [markdown]
# Unscaled (red), the norm *rises* at first, from 0.15 at d_k = 1 to 0.33 at d_k = 16, because the softmax of small
# scores is nearly flat. Then its median falls off a cliff. At d_k = 64, as in the paper, scores have a standard
# deviation of about 8, and the largest weight is 0.78 on average. Divided by √d_k (blue), it stays between 0.15 and
# 0.18. Divided by d_k (green), the scores shrink, and the weights become flat.

# %%
raw, scaled = (sweep[1024, scale].jacobian.median for scale in ("none", "sqrt"))
print(f"median norm at d_k = 1024: {raw:.1e} unscaled, {scaled:.2f} scaled")
assert raw < scaled / 100
assert sweep[16, "none"].jacobian.median > 2 * sweep[1, "none"].jacobian.median

# %% [markdown]
# ## 4. Derive it
#
# Why a cliff, and where? When the scores are spread widely, with standard deviation σ = √d_k, only the two largest
# matter. Let Δ be the gap between them. The larger has weight p = 1/(1 + e^−Δ), and between these two the Jacobian is
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
print(f"median gap of 64: {gap:.3f} by theory, {np.median(ordered[:, -1] - ordered[:, -2]):.3f} by drawing")
print(f"of 8: {theory.median_gap(8):.3f}, of 512: {theory.median_gap(512):.3f}")
for d_k in (256, 1024):
    measured, expected = sweep[d_k, "none"].jacobian, 2 * math.exp(-gap * math.sqrt(d_k))
    low, high = measured.median_band
    print(f"d_k = {d_k:4}: median {measured.median:.1e}, between {low:.1e} and {high:.1e}; theory {expected:.1e}")
    assert low / 1.25 < expected < high * 1.25

# %% [markdown]
# **The mean tells another story.** Now and then the two largest scores nearly tie. Let f be the density of the gap of
# n standard normal numbers: a short piece dx at x has the probability f(x) dx. Then Δ has density f(Δ/σ)/σ, which for
# large σ is near f(0)/σ wherever the softmax is awake. Those few draws carry the mean:
#
# $$E\|J\| \approx \frac{f(0)}{\sigma} \int_0^\infty 2p(1-p)\,d\Delta = \frac{c}{\sqrt{d_k}}, \qquad c = f(0).$$
#
# The integral is 1, since dp/dΔ = p(1 − p) and p goes from ½ to 1. For 64 keys c is about 2.3. This is a limit for
# large σ: at d_k = 256 a third score near the tie still takes some of it.

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
# So "the gradient vanishes" is true of the typical query, and much less of the average. And what reaches Q is also
# multiplied by the keys, whose length grows like √d_k, so that its *mean* does not fall at all: most queries get next
# to nothing, and the few that get something get the more, the fewer they are.

# %%
limit = math.sqrt(2 / math.pi) * c                      # see theory.py
for d_k in (64, 256, 1024):
    raw, scaled = sweep[d_k, "none"].grad_query, sweep[d_k, "sqrt"].grad_query
    print(f"‖∂L/∂Q‖ at d_k = {d_k:4}: unscaled median {raw.median:.1e}, mean {raw.mean:.2f} (theory {limit:.2f}); "
          f"scaled median {scaled.median:.2f}, mean {scaled.mean:.2f}")
assert sweep[1024, "none"].grad_query.median < 0.1 < sweep[1024, "none"].grad_query.mean

# %% [markdown]
# ## 5. A witness that knows no graph
#
# All of this came from our vjps. Are they right? At scores of ordinary size `gradcheck` can tell. But try scores whose
# Jacobian is next to nothing:

# %%
wide = np.array([60.0, 0.0, -5.0])
print(gradcheck(softmax, scores))
print(gradcheck(softmax, wide))

# %% [markdown]
# The second passes, and means nothing. Its error is as large as the largest derivative itself ("of largest" is 1); it
# passes because errors below 10⁻⁵ always do. The difference of two weights that agree in all their digits is 0, and
# not "very small". The *complex step* helps: move the score by *ih*, and the change sits in the imaginary part, where
# it is a number of its own, with nothing to subtract (tutorial 09 is about that).

# %%
second, h = np.array([0, 1, 0]), 1e-5
central = (softmax(wide + h * second) - softmax(wide - h * second))[0] / (2 * h)
stepped = softmax(wide + 1e-30j * second)[0].imag / 1e-30
exact = -math.exp(-60)                                  # −p₀ p₁; the rest is smaller by e⁻⁶⁰
print(f"∂p₀/∂s₁: central {central:.1e}, complex step {stepped:.6e}, exact {exact:.6e}")
assert central == 0
assert abs(stepped / exact - 1) < 1e-12

# %% [markdown]
# `sweep` has asked this witness, too, at scores of its own: that is the paragraph below its table.
#
# ## 6. What does it do to training?
#
# Texts say that training stalls. Let us see. There are 16 tokens, each with a query vector and a key vector, standard
# normal at the start: the rows of W_q and W_k. Asked for a token, the layer must find that token's key among all 16,
# and return its value. L is the squared error of the answer. Each step takes the gradient and subtracts *rate* times
# it from W_q and W_k. A query is called *stuck* if its largest weight is on a wrong key and the gradient at its
# scores is below a millionth.

# %%
def told(run):
    return (f"{run.accuracy[0]:4.0%} right, after {run.steps[-1]} steps {run.accuracy[-1]:4.0%}; "
            f"stuck {run.stuck[0]:3.0%}, then {run.stuck[-1]:4.0%}; ‖∂L/∂W_q‖ at first {run.gradient[0]:.0e}")


runs = {(d_k, scale): saturation.train(scale, d_k=d_k, lr=10.0) for d_k in (4, 256) for scale in ("sqrt", "none")}
for (d_k, scale), run in runs.items():
    print(f"d_k = {d_k:3}, {scale:4}: {told(run)}")
assert runs[256, "sqrt"].accuracy[-1] > 0.97
assert runs[256, "none"].accuracy[-1] < 0.6

# %% [markdown]
# At d_k = 4 there is hardly a difference. At 256 the unscaled layer does not get there in 400 steps. It is not dead at
# the start: its gradient is even the larger one, as section 4 said. But most of that belongs to queries whose two
# highest scores lie close together, and after the steps that it makes, most queries are stuck, on wrong keys.
#
# This is one rate, one rule for the steps and one seed. `saturation.training_map()` tries others, in a few minutes.
# Here, change one thing at a time in the task:

# %%
few = saturation.Task(keys=4)                           # 4 of the 16 tokens to choose from, instead of all
other = saturation.Task(loss="cross-entropy")           # −ln of the weight of the right key
for name, task in (("few rivals", few), ("cross-entropy", other)):
    run = saturation.train("none", d_k=256, lr=10.0, task=task)
    print(f"unscaled, {name:13}: {told(run)}")
    assert run.accuracy[-1] > 0.9

# %% [markdown]
# With few rivals, a key with a low score sometimes meets only lower ones, gets some gradient, and rises. And with
# −ln p as the loss the gradient at the right key's score is p − 1 (tutorial 03): the logarithm undoes the
# exponential, and a wrong answer is always heard. So **what stops learning is not large scores as such, but the
# softmax's Jacobian between them and the loss.** Inside a network, where attention's weights meet values and never a
# logarithm, that Jacobian is always there. Whether it "stalls" depends on what is asked of it.
#
# ## 7. Why the root, and not d_k?
#
# Divide by d_k, and the scores are small, the weights flat, the softmax wide awake. The layer learns that way, too:

# %%
for d_k in (16, 256):
    for scale, rate in (("sqrt", 10.0), ("linear", 10.0), ("linear", 1000.0)):
        run = runs[d_k, scale, rate] = saturation.train(scale, d_k=d_k, lr=rate)
        print(f"d_k = {d_k:3}, {scale:6}, rate {rate:4.0f}: {run.accuracy[-1]:4.0%} right, loss {run.loss[-1]:.1e}")
assert runs[256, "sqrt", 10.0].loss[-1] < runs[256, "linear", 10.0].loss[-1] / 100
assert runs[16, "linear", 1000.0].accuracy[-1] < 0.6 < 0.97 < runs[256, "linear", 1000.0].accuracy[-1]

# %% [markdown]
# But what reaches Q falls like 1/√d_k (the last part of section 3's table), and the rate has to rise to make up for
# it: the one that is good at 256 breaks the layer at 16. With the root, scores and gradients have the same size at
# every d_k, and one rate serves both. That is what it buys.
#
# ## Exercises
#
# - **05-spread**: predict the spread of a dot product when the components are smaller.
# - **05-saturated**: predict ‖J‖ for two large scores.
# - **05-which-divisor**: write scores that have variance 1, whatever the variances of the components.
# - **05-tied**: predict how a query scores with itself. Section 1 does not cover that.
# - **05-two-keys**: predict the mean of ‖J‖ for two keys, by section 4.
# - **05-jacobian-norm**: write ‖J‖ without J, to measure it for many keys.
# - **05-scale**: write a check that tells honest measurements of a spread from eight that are not.
#
# After `from tinygrad_attn.learn import check`, `check("05-spread", 16)` says what it thinks of 16; where a function is
# asked for, give it yours.

# %%
exercises("05")

# %% [markdown]
# ## Quiz

# %%
quiz("05")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/saturation/theory.py` has all limits with their derivations, `tinygrad_attn/saturation/measure.py` how
# they are measured, and `tinygrad_attn/saturation/training.py` the task. In a terminal,
# `python3 -m tinygrad_attn saturation --out lab` writes a page with a slider. (Vaswani et al. 2017, "Attention is all
# you need", §3.2.1, footnote 4.)
