# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Your own op
#
# **The problem.** You need log(1 + eˣ), a smooth max(x, 0) called *softplus*. Composed of exp and log, it breaks at
# x = 1000: eˣ is infinite, and the gradient is no number. NumPy's `np.logaddexp` does not break, but the engine
# cannot differentiate it. So you make an op: you say what it computes, and how a gradient comes back. (The engine has
# one, `F.softplus`. Pretend that it has not.)
#
# You will write ops with options, with two inputs, and with a shared derivative; check them to second order; and plant
# faults that a check sees, and some that it does not. You need: the walk back and vjps (tutorial 02), and `gradcheck`.

# %%
import numpy as np

from tinygrad_attn import GradcheckError, NotDifferentiableError, Tensor, grad, gradcheck, primitive
from tinygrad_attn import functional as F
from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.plots import curves

x = Tensor([1.0, 1000.0], requires_grad=True)
with np.errstate(all="ignore"):                             # no warnings
    composed = (1 + x.exp()).log()
    composed.sum().backward()
print("composed:", composed.numpy(), "gradient:", x.grad)
assert np.isinf(composed.numpy()[1])
assert np.isnan(x.grad[1])

# %% [markdown]
# ## 1. A function and a rule
#
# A *primitive* is a NumPy function from arrays to an array, and a rule for each of its inputs. The rule is a vjp. It
# gets g, which is dL/d out, then the output, then the inputs, and returns dL/dx. For softplus the derivative is
#
# $$\frac{d}{dx}\,\ln(1+e^x)=\frac{e^x}{1+e^x}=\frac{1}{1+e^{-x}}=\sigma(x),$$
#
# so the rule is g σ(x). Both halves must be written so that large numbers do no harm.

# %%
@primitive
def softplus(x):
    """log(1 + eˣ)"""
    return np.logaddexp(0, x)                               # log(e⁰ + eˣ)


softplus.defvjp(lambda g, out, x: g * F.sigmoid(x))

x = Tensor([1.0, 1000.0, -1000.0], requires_grad=True)
softplus(x).sum().backward()
print("as an op:", softplus(x.numpy()), "gradient:", x.grad.round(4))
assert np.isfinite(x.grad).all()
assert gradcheck(softplus, [0.3, -2.0, 30.0])

# %% [markdown]
# Called with arrays, an op returns an array. Called with a Tensor, it returns a Tensor and is recorded. Without a rule
# it still computes; only the walk back stops there, and says so.
#
# ## 2. Options
#
# Positional arguments are inputs, which may be differentiated. Keyword arguments are options, which may not; the rule
# gets them too. Here β says how sharp the bend is: log(1 + e^βx) / β. The larger β, the nearer it is to max(x, 0).

# %%
@primitive
def softplus(x, *, beta=1.0):
    """log(1 + e^βx) / β"""
    return np.logaddexp(0, beta * x) / beta


softplus.defvjp(lambda g, out, x, *, beta=1.0: g * F.sigmoid(beta * x))
assert gradcheck(lambda x: softplus(x, beta=4.0), [0.3, -2.0])
place = np.linspace(-2, 2, 81)
assert np.isclose(softplus(0.0, beta=8), np.log(2) / 8)
curves({**{f"β = {beta}": (place, softplus(place, beta=beta)) for beta in (1, 2, 8)},
        "max(x, 0)": (place, np.maximum(place, 0))}, xlabel="x", ylabel="softplus")

# %% [markdown]
# The three curves lie above max(x, 0), and the larger β, the closer. At 0 they are ln 2 / β high.
#
# ## 3. A rule is differentiated too
#
# For second derivatives, the walk back is recorded. Then rules are called with Tensors, and `out` is a Tensor that
# depends on x. So a rule must be made of what both arrays and Tensors have: operators, methods such as `.sum()`, and
# ops. `F.sigmoid` is an op. That is why the rule above has it, and why it passes at order 2:

# %%
assert gradcheck(softplus, [0.3, -2.0], order=2)
x = Tensor(0.0, requires_grad=True)
slope = grad(softplus(x), x, create_graph=True)
print(f"σ(0) = {slope.item()}, σ′(0) = {grad(slope, x).item()}")

# %% [markdown]
# Now a shortcut: the forward pass keeps σ(x) in a dict, and the rule takes it from there. It saves an exponential, and
# the first derivative is right. But what was kept is an array, a constant that does not know x:

# %%
kept = {}


@primitive
def hasty(x):
    kept["sigmoid"] = F.sigmoid(x)
    return np.logaddexp(0, x)


def verdict(function, inputs, **options):
    try:
        gradcheck(function, inputs, **options)
        return "passed"
    except GradcheckError as error:
        return f"{error.report.suspect.kind}: {str(error).removeprefix('gradcheck: ').split(';')[0]}"


hasty.defvjp(lambda g, out, x: g * kept["sigmoid"])
for order in (1, 2):
    print(f"order {order}: {verdict(hasty, [0.3, -2.0], order=order)}")
assert verdict(hasty, [0.3, -2.0]) == "passed" != verdict(hasty, [0.3, -2.0], order=2)

# %% [markdown]
# (0.28 is σ′(0.3) times a g that `gradcheck` drew. And the shortcut is wrong for another reason as well: two uses of
# the op share one dict.) Use `out` where it helps: the rule of eˣ is g · out, and of tanh g (1 − out²). As `out` is
# connected to x, both are right at any order.
#
# ## 4. Two inputs, and what broadcasting does
#
# An op of two inputs has two rules. The angle of the point (x, y) is atan2(y, x). With r² = x² + y²,
#
# $$\frac{\partial}{\partial y}=\frac{x}{r^2},\qquad\frac{\partial}{\partial x}=-\frac{y}{r^2}.$$

# %%
@primitive
def angle(y, x):
    """the angle of the point (x, y)"""
    return np.arctan2(y, x)


angle.defvjp(lambda g, out, y, x: g * x / (x * x + y * y),
             lambda g, out, y, x: -g * y / (x * x + y * y))
y, x = np.array([[1.0], [2.0]]), np.array([0.5, -1.0, 3.0])     # (2, 1), (3,)
print("output:", angle(y, x).shape)
print(gradcheck(angle, (y, x), order=2))

# %% [markdown]
# The inputs have shapes (2, 1) and (3,), the output and g have (2, 3), and so has what the rules return. Yet the
# gradients come out as (2, 1) and (3,): **the walk undoes broadcasting**. It sums over the axes along which an input
# was repeated, as an element that was used three times gets the sum of three shares. No rule has to do that.
#
# The two rules share r². A *joint* rule computes both at once. It gets the set of the inputs that are wanted, and
# returns a dict. (A gradient that nobody wanted does no harm.)

# %%
def both(wanted, g, out, y, x):
    share = g / (x * x + y * y)
    return {0: share * x, 1: -share * y}


angle.defvjp(joint=both)
assert gradcheck(angle, (y, x), order=2)

# %% [markdown]
# An input for which a derivative makes no sense has the rule `None`. Here a mask says which elements are replaced. If
# somebody asks for its gradient, there is an error, and no silent zero:

# %%
@primitive
def replaced(x, mask, *, value):
    return np.where(mask, value, x)


replaced.defvjp(lambda g, out, x, mask, *, value: g * ~mask, None)
assert gradcheck(lambda x: replaced(x, np.array([True, False]), value=7.0), [1.0, 2.0])
try:
    replaced(np.ones(2), Tensor([1.0, 0.0], requires_grad=True), value=7.0).sum().backward()
except NotDifferentiableError as error:
    print(error)
else:
    raise AssertionError("it should have been refused")

# %% [markdown]
# ## 5. Wrong on purpose
#
# Rounding has the derivative 0 nearly everywhere, so nothing can be learned through it. The *straight-through* rule
# acts as if rounding did nothing: it sends g on. Let two whole numbers be learned:

# %%
@primitive
def rounded(x):
    """x, rounded; the rule is no derivative"""
    return np.round(x)


rounded.defvjp(lambda g, out, x: g)
w, target = Tensor([0.2, 0.4], requires_grad=True), np.array([3.0, -2.0])
for _ in range(50):
    w.zero_grad()
    ((rounded(w) - target) ** 2).sum().backward()
    w.data = w.data - 0.1 * w.grad
print("learned:", rounded(w).numpy())
print("gradcheck:", verdict(rounded, [0.2, 1.4]))
assert (rounded(w).numpy() == target).all()
assert verdict(rounded, [0.2, 1.4]).startswith("rule")

# %% [markdown]
# gradcheck calls the rule wrong, and it is: it is not the derivative of what was computed. That it helps is another
# matter, to be shown by results. So say in the docstring what the rule is.
#
# A second one: pass x on, and clip the gradient. Here the check sees less:

# %%
@primitive
def clipped(x):
    return x * 1.0


clipped.defvjp(lambda g, out, x: np.clip(g, -5, 5))
print("alone:     ", verdict(clipped, [0.3, -2.0]))
print("in 100 · x:", verdict(lambda x: 100 * clipped(x), [0.3, -2.0]))
assert verdict(clipped, [0.3, -2.0]) == "passed" != verdict(lambda x: 100 * clipped(x), [0.3, -2.0])

# %% [markdown]
# A true vjp is *linear* in g: twice the g, twice the result. A check calls the rule with a few g, and cannot know of
# others. (`gradcheck` starts from dL/d out = ±2 and halves what comes back. So alone, nothing is clipped; inside, ±200
# becomes ±5, and half of that is left. Each op looks right by itself, so none is blamed.) Check an op where you use it,
# too, with inputs of the signs, sizes and shapes that occur there.
#
# ## 6. Kinks
#
# max(x, 0) has no derivative at 0: its slope is 0 on the left and 1 on the right. A rule must say something all the
# same, and any number from 0 to 1 will do. The usual one is 0. A difference across the kink says ½:

# %%
print("relu at 0:", verdict(F.relu, [0.0, 1.0]))
print("relu at −1 and 1:", verdict(F.relu, [-1.0, 1.0]))
assert verdict(F.relu, [0.0, 1.0]).startswith("kink")

# %% [markdown]
# So keep checks away from kinks. What a rule says at a kink is a convention; test it as such.
#
# ## Exercises
#
# - **13-undone**: predict what the walk makes of a rule's result.
# - **13-swish**: make an op of one input, stable, right at order 2.
# - **13-two-inputs**: make an op of two inputs and an option.
# - **13-vjp-of-norm**: write the vjp of a length, whose kink is the zero vector.
# - **13-second-order**: predict a second derivative from a rule that uses `out`.
# - **13-wrong-rules**: find the bug in rules, some of which are wrong only for some inputs.

# %%
exercises("13")

# %% [markdown]
# ## Quiz

# %%
quiz("13")

# %% [markdown]
# ## Read on
#
# `tinygrad_attn/ops.py` is the table of all ops, each with its rules below it; `Primitive` and `unbroadcast` in
# `tinygrad_attn/engine.py` are what you have used here. `tinygrad_attn/fused.py` makes one op of a composition, to be
# faster. On straight-through rules: Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons
# for Conditional Computation".
