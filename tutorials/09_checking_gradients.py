# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Checking gradients
#
# **The problem.** A wrong gradient raises no error. The network trains, a little worse, and nobody knows why. How do
# you know that a derivative is right? Ask the definition: move the input and see how the output moves. This tutorial
# is about doing that well: which step to take, how to take none that costs digits, how to find the op to blame, and
# what a check cannot tell.

# %%
import numpy as np

from tinygrad_attn import (
    AnomalyError,
    GradcheckError,
    Tensor,
    attention,
    detect_anomaly,
    eps_curve,
    gradcheck,
    primitive,
)
from tinygrad_attn import functional as F

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Two errors that pull in opposite directions
#
# The central difference (f(x + h) − f(x − h)) / 2h is f′(x) + h² f‴(x)/6 + …: *truncation* falls with h². But the two
# values agree in more and more digits, the shorter the step, and each is rounded to 16 digits: *rounding* grows like
# 10⁻¹⁶ / h. Somewhere between there is a best step. `eps_curve` shows it, for eˣ at 1:

# %%
curve = eps_curve(lambda x: x.exp(), 1.0)
print(curve.table())

# %%
curve.plot()

# %% [markdown]
# On the right, the lines have the slopes of the formulas: 1 for the forward difference, 2 for the central one. On the
# left both rise together.

# %%
ratio = curve.central[0] / curve.central[1]             # ten times the step
print(f"central: ten times the step, {ratio:.0f} times the error; best at h = {curve.best('central')[0]:.0e}")
assert 90 < ratio < 110
assert 9 < curve.forward[0] / curve.forward[1] < 11
assert 1e-8 < curve.best("central")[0] < 1e-3

# %% [markdown]
# ## 2. A step without a subtraction
#
# Take the step in the imaginary direction: f(x + ih) = f(x) + ih f′(x) − …, so f′(x) ≈ Im f(x + ih) / h. Nothing is
# subtracted, so nothing cancels, and h may be 10⁻³⁰. What is left is the rounding of f itself. (Squire & Trapp 1998.)

# %%
x = 1.0
print(f"Im exp(1 + 1e-30i) / 1e-30 = {np.exp(x + 1e-30j).imag / 1e-30:.16f}")
print(f"exp(1)                     = {np.exp(x):.16f}")
assert curve.best("complex")[1] < 1e-15

# %% [markdown]
# It asks for a function that is *analytic*, as NumPy computes it. |x| is not: for a complex number NumPy returns the
# length, and the imaginary part, with the derivative in it, is gone. Then the check says which op it was.

# %%
try:
    gradcheck(lambda x: x.abs(), [1.0, -2.0], method="complex")
except TypeError as error:
    print(error)
else:
    raise AssertionError("it should have been refused")

# %% [markdown]
# ## 3. The whole Jacobian, and the gradient's gradient
#
# `gradcheck` compares every element of the Jacobian with respect to every input. `order=2` does the same with the
# gradient as the function.

# %%
q, k, v = rng.normal(size=(3, 4, 2))                    # three times (length 4, width 2)
report = gradcheck(lambda q, k, v: attention(q, k, v)[0], (q, k, v), order=2)
print(report)
assert report.max_abs_error < 1e-8

# %%
report.plot()

# %% [markdown]
# ## 4. Find the culprit
#
# Now plant an error. Somebody wrote an op, and forgot the square in the derivative of x / (1 + |x|):

# %%
@primitive
def softsign(x):
    """x / (1 + |x|)"""
    return x / (1 + np.abs(x))


softsign.defvjp(lambda g, out, x: g / (1 + abs(x)))     # it should be (1 + |x|)²


def model(x, w):
    hidden = softsign(x @ w)
    return F.layer_norm(hidden).tanh().sum()


x, w = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
try:
    gradcheck(model, (x, w))
except GradcheckError as error:
    print(error)
    blamed = error.report.suspect
assert (blamed.kind, blamed.op, blamed.argument) == ("rule", "softsign", 0)

# %% [markdown]
# The numbers at the start are of the whole model. They tell that something is wrong, and nothing else. So the recorded
# graph is walked: each op is judged alone, at the arrays that it saw, and the first whose own rule is wrong is named,
# with the line that called it.
#
# (A rule is called as `rule(g, out, *inputs)`, with g = dL/d out: with arrays, and with Tensors when the gradient is
# to be differentiated again. That is why softsign's uses `abs`, which both have.)
#
# ## 5. When nobody is to blame
#
# A difference can be wrong, too. Here are four checks that fail although every rule is right. Guess the verdict
# first. (`x.detach()` is x as a constant, outside of the graph. And not every kink fails: at 0 the rule of |x| says
# 0, the mean of its two slopes, as a central difference does.)

# %%
def verdict(fn, inputs, **options):
    try:
        gradcheck(fn, inputs, **options)
    except GradcheckError as error:
        return error.report.suspect


for name, fn, point in (("relu at 0", F.relu, [0.0, 1.0]),
                        ("log near 0", lambda x: x.log(), 1e-5),
                        ("a large constant", lambda x: x + 1e11, 1.0),
                        ("half of it detached", lambda x: x * x.detach(), [1.0, 2.0])):
    found = verdict(fn, point)
    print(f"{name}: {found.kind}. {found.text}\n")
assert [verdict(F.relu, 0.0).kind, verdict(lambda x: x.log(), 1e-5).kind, verdict(lambda x: x + 1e11, 1.0).kind,
        verdict(lambda x: x * x.detach(), [1.0]).kind] == ["kink", "step", "noise", "bypass"]

# %% [markdown]
# ## 6. Many inputs
#
# Element by element, a function of a million inputs needs two million evaluations. Along a direction v, with weights
# u on the outputs, one number is compared, uᵀJv, in two. That is `method="projected"`, with three drawn pairs. It
# can miss something, and says what:

# %%
large = rng.normal(size=(400, 500))
report = gradcheck(lambda x: F.layer_norm(x).tanh(), large, method="projected")
print(report)

# %% [markdown]
# ## 7. Where did the NaN come from?
#
# By the time that a loss is NaN, everything is. `detect_anomaly` stops at the first op that made one:

# %%
def entropy(p):
    return -(p * p.log()).sum()


weights = Tensor([0.5, 0.5, 0.0], requires_grad=True)
try:
    with detect_anomaly():
        entropy(weights).backward()
except AnomalyError as error:
    found = str(error)
print(found)
assert found.startswith("log((3,)), forward: 1 of 3 elements of the output became inf")

# %% [markdown]
# ## Exercises
#
# 1. By hand: for central differences, the error is about h² f‴/6 + ε f/h. At which h is it least, for f = f‴ = 1 and
#    ε = 10⁻¹⁶? Compare with the curve.
# 2. Write an op `cube` with its rule, and check it to order 3. Which order finds the fault of the rule
#    `lambda g, out, x: 3 * g * (x.detach() if isinstance(x, Tensor) else x) ** 2`?
# 3. Plant an error of 0.1 % in the rule of one element out of a thousand. Which method finds it with the tolerances as
#    they are, and with which tolerances do the others?
# 4. Mend `entropy` so that p = 0 gives 0 and a finite gradient, with `from tinygrad_attn import where`. (A hint is
#    in its docstring.)
#
# <details><summary>Answers</summary>
#
# 1. Set the derivative to 0: h³ = 3ε, h ≈ 7·10⁻⁶. The curve is noise at its bottom, so its least point may lie a
#    decade or two from there, by luck.
# 2. Order 2: the first derivative is right, and what it forgets is the second.
# 3. None with rtol=10⁻³. With rtol=10⁻⁴ and atol=10⁻⁹ the elements one by one do; along directions, where it is a
#    thousandth part of a sum, only with an rtol near 10⁻⁷.
# 4. `safe = where(p > 0, p, 1)` inside the logarithm: `-(p * where(p > 0, p, 1).log()).sum()`.
# </details>
#
# ## Quiz
#
# **Why is a shorter step not always better?**
#
# - a) It takes longer. *No, each difference costs the same.*
# - b) The two values agree in more digits, and what is left of their difference is rounding. *Yes.*
#
# **The complex step is exact to 16 digits. Why not use it always?**
#
# - a) It is slow. *Complex numbers cost about twice as much; that is not it.*
# - b) For functions that are not analytic, such as |x|, it is silently wrong. *Yes; ours refuses them.*
#
# ## Read on
#
# `tinygrad_attn/differences.py` has the three differences, `comparison.py` and `gradcheck.py` the check, and
# `suspects.py` the search for the culprit. `tests/test_mutants.py` plants wrong rules in every op of this package.
