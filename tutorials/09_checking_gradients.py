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
# you know that a derivative is right? Ask the definition: move the input and see how the output moves.
#
# You have done so since tutorial 01, with a step that somebody chose. Now you will see which step is best, take one
# that costs no digits, find the op to blame when a check fails, tell a wrong rule from a wrong check, and learn what no
# check can tell.
#
# You need: finite differences and `gradcheck` (from tutorial 01 on), Jacobians and vjps (02 and 03), and Taylor's
# series.

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
    softmax,
)
from tinygrad_attn.functional import relu
from tinygrad_attn.learn import exercises, quiz

rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. Two errors that pull in opposite directions
#
# Write f(x + h) and f(x − h) as Taylor's series, and subtract. The even terms cancel, and
#
# $$\frac{f(x+h) - f(x-h)}{2h} = f'(x) + \frac{h^2}{6} f'''(x) + \dots$$
#
# The first error is *truncation*, what is left out of the series. It falls with h². But the shorter the step, the more
# digits the two values share, and each of them is rounded to 16 digits. Subtract them, and what they share is gone; the
# rounding is not. So the second error, *rounding*, is about ε|f(x)|/h, with ε = 10⁻¹⁶: it grows as h falls. Somewhere
# between there is a best step.
#
# The *forward* difference (f(x + h) − f(x)) / h has a larger truncation, h f″(x)/2. `eps_curve` shows the errors of
# both for eˣ at 1, and of a third kind, which section 2 is about:

# %%
curve = eps_curve(lambda x: x.exp(), 1.0)
print(curve.table())

# %%
curve.plot()

# %% [markdown]
# The picture has the step on one axis and the error on the other, both logarithmic. On the right the lines have the
# slopes of the formulas: 1 for the forward difference, 2 for the central one. On the left both rise together, along the
# dotted line of rounding. (An error of 0 has no logarithm; it is drawn at 10⁻¹⁷.) The lowest point of a
# line is partly luck, since rounding is noise: it may lie a decade or two from the step that the formulas call best.

# %%
ratio = curve.central[0] / curve.central[1]             # ten times the step
print(f"central: ten times the step, {ratio:.0f} times the error; best at h = {curve.best('central')[0]:.0e}")
assert 90 < ratio < 110
assert 9 < curve.forward[0] / curve.forward[1] < 11
assert 1e-8 < curve.best("central")[0] < 1e-3

# %% [markdown]
# ## 2. A step without a subtraction
#
# Take the step in the imaginary direction:
#
# $$f(x + ih) = f(x) + ih f'(x) - \frac{h^2}{2} f''(x) - \dots, \qquad
# f'(x) \approx \frac{\operatorname{Im} f(x + ih)}{h}.$$
#
# Nothing is subtracted, so nothing cancels, and h may be 10⁻³⁰. What is left is the rounding of f itself.

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
# `gradcheck` compares every element of the Jacobian with respect to every input. `order=2` does the same once more,
# with the gradient as the function. An element passes if it is off by at most `atol + rtol * |numeric|`: an absolute
# tolerance, for what is near 0, and a relative one for the rest.

# %%
q, k, v = rng.normal(size=(3, 4, 2))                    # three times (length 4, width 2)
report = gradcheck(lambda q, k, v: attention(q, k, v)[0], (q, k, v), order=2)
print(report)
assert report.max_abs_error < 1e-8

# %% [markdown]
# The picture has a table for each input: the error at each of its elements, the largest over both orders. All are of
# nearly one dark colour, near 10⁻¹⁰, which is what central differences can resolve.

# %%
report.plot()

# %% [markdown]
# **It passed. What do you know?** That the gradient is that of the function you *wrote*, at this point. Not that it is
# the function you *meant*. Forget the division by √d_k, and the check is as content:

# %%
assert gradcheck(lambda q, k, v: attention(q, k, v, scale=1.0)[0], (q, k, v))

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
    return (softmax(hidden) ** 2).sum()


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
# (`@primitive` made the op; tutorial 13 is about ops of your own. A rule is called as `rule(g, out, *inputs)`, with
# g = dL/d out: with arrays, and with Tensors when the gradient is to be differentiated again. That is why softsign's
# uses `abs`, which both have.)
#
# ## 5. When nobody is to blame
#
# A difference can be wrong, too. Here are four checks that fail although every rule is right. Guess the verdict
# first. (`relu(x)` is x where that is positive, and 0 elsewhere. `x.detach()` is x as a constant, outside of the graph.
# And not every kink fails: at 0 the rule of |x| says 0, the mean of its two slopes, as a central difference does.)

# %%
def verdict(fn, inputs, **options):
    try:
        gradcheck(fn, inputs, **options)
    except GradcheckError as error:
        return error.report.suspect


for name, fn, point in (("relu at 0", relu, [0.0, 1.0]),
                        ("log near 0", lambda x: x.log(), 1e-5),
                        ("a large constant", lambda x: x + 1e11, 1.0),
                        ("half of it detached", lambda x: x * x.detach(), [1.0, 2.0])):
    found = verdict(fn, point)
    print(f"{name}: {found.kind}. {found.text}\n")
assert [verdict(relu, 0.0).kind, verdict(lambda x: x.log(), 1e-5).kind, verdict(lambda x: x + 1e11, 1.0).kind,
        verdict(lambda x: x * x.detach(), [1.0]).kind] == ["kink", "step", "noise", "bypass"]

# %% [markdown]
# In the third, 1.00708 is as near to 1 as rounding allows. That is about ε|f|/h, here 10⁻¹⁶ · 10¹¹ / 10⁻³, or 1 %.
#
# ## 6. Many inputs
#
# Element by element, a function of a million inputs needs two million evaluations. Move all inputs at once instead,
# along a direction v, and add up all outputs, with weights u:
#
# $$u^\top J v \approx u \cdot \frac{f(x + hv) - f(x - hv)}{2h}.$$
#
# Two evaluations give one number, and a vjp gives the same: uᵀJ, times v. That is `method="projected"`, with three
# drawn pairs of u and v. It can miss something, and says what:

# %%
large = rng.normal(size=(400, 500))
report = gradcheck(lambda x: softmax(x).tanh(), large, method="projected")
print(report)

# %% [markdown]
# ## 7. Where did the NaN come from?
#
# By the time that a loss is NaN, everything is. `detect_anomaly` stops at the first op whose output is not finite. Here
# it watches the entropy −Σ p ln p, which tells how undecided attention's weights are. A masked key has weight 0:

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
# 0 · ln 0 is 0, on paper: p ln p goes to 0 with p. In floating point it is 0 · ∞. The op to blame is the logarithm, and
# the one to mend is yours: the logarithm must not see that 0.
#
# ## Exercises
#
# - **09-best-step**: predict the best step, where a large constant is in the way.
# - **09-second-order**: predict which order of `gradcheck` finds a fault.
# - **09-central**: write the central difference, for arrays of any shape.
# - **09-complex-step**: write the complex step, exact to 13 digits.
# - **09-directional**: write uᵀJv, in two evaluations.
# - **09-entropy**: mend `entropy`, so that its gradient is finite.
# - **09-checker**: write a check of gradient checkers, which tells good ones from eight that are not.
#
# In a notebook, `check("09-central", numeric_gradient)`, after `from tinygrad_attn.learn import check`. In a terminal,
# first `python3 -m tinygrad_attn learn start 09-central answer.py`, and then the same with `check` in place of `start`.

# %%
exercises("09")

# %% [markdown]
# ## Quiz

# %%
quiz("09")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/differences.py` has the three differences, `comparison.py` and `gradcheck.py` beside it the check, and
# `suspects.py` the search for the culprit. `tests/test_mutants.py` plants wrong rules in every op of this package.
# (Squire & Trapp 1998, "Using complex variables to estimate derivatives of real functions".)
