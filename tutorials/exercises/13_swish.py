"""Swish as an op

Write `make_swish()`, which makes an op with `@primitive`, gives it its rule, and returns it. The op computes

    swish(x) = x σ(x),   σ(x) = 1 / (1 + e⁻ˣ)

for an array x of any shape. It is one op, and no composition. Its rule must be right to second order, and value and
gradient must be finite for x = ±1000.
"""

import numpy as np

from tinygrad_attn import Tensor, grad, primitive
from tinygrad_attn import functional as F
from tinygrad_attn.engine import topological_order
from tinygrad_attn.learn import Write

exercise = Write(
    "make_swish",
    starter="""
import numpy as np

from tinygrad_attn import functional as F
from tinygrad_attn import primitive


def make_swish():
    \"\"\"the op x σ(x), with its rule\"\"\"
    ...
""",
    imports=("tinygrad_attn.primitive", "tinygrad_attn.functional", "tinygrad_attn.sigmoid", "tinygrad_attn.Tensor"),
    hints=["Inside the function, decorate a function of x, call `defvjp` with a lambda of g, out and x, and return the "
           "op.",
           "Differentiate the product x σ(x) with the product rule. σ′ is σ (1 − σ). `F.sigmoid` takes arrays and "
           "Tensors."])


@exercise.solution
def make_swish():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    def rule(g, out, x):
        s = F.sigmoid(x)
        return g * (s + x * s * (1 - s))

    swish.defvjp(rule)
    return swish


def value(make, x):
    return make()(x)


def gradient(make, x, g):
    x = Tensor(x, requires_grad=True)
    make()(x).backward(g)
    return x.grad


def second(make, x):
    x = Tensor(x, requires_grad=True)
    return grad(grad(make()(x).sum(), x, create_graph=True).sum(), x)


def second_of_the_square(make, x):
    x = Tensor(x, requires_grad=True)
    out = make()(x)
    return grad(grad((out * out).sum(), x, create_graph=True).sum(), x)


def bend_by_differences(x, h=1e-4):
    def f(x):
        return (x / (1 + np.exp(-x))) ** 2
    return (f(x + h) - 2 * f(x) + f(x - h)) / h ** 2


def ops(make, x):
    return len(topological_order(make()(Tensor(x, requires_grad=True))))


def by_differences(x, g, h=1e-6):
    def f(x):
        return x / (1 + np.exp(-x))
    return g * (f(x + h) - f(x - h)) / (2 * h)


@exercise.check("values",
                "Called with an array, the op returns x σ(x), elementwise. At 0 that is 0, at 1 it is 0.731.",
                call=value)
def values(rng):
    yield np.array([0.0])
    yield np.array([1.0, -1.0])
    yield rng.normal(size=(2, 3))


@exercise.check("one op", "The graph of op(x) must have one node: NumPy inside, and one rule for all of it.", call=ops)
def one_op(rng):
    yield np.array([1.0])


@exercise.check("gradients, against a difference",
                "Compare your rule with the derivative of the product x σ(x), times the g that "
                "comes back.", call=gradient, expected=by_differences, tolerance=1e-5)
def gradients(rng):
    yield np.array([1.0]), np.array([1.0])
    yield np.array([0.5, -2.0]), np.array([1.0, 1.0])
    yield rng.normal(size=(2, 3)), rng.normal(size=(2, 3))


@exercise.check("second derivatives",
                "The rule is called with Tensors and is differentiated itself. Is anything in it an array that "
                "was kept?", call=second)
def seconds(rng):
    yield np.array([0.0])
    yield rng.normal(size=3)


@exercise.check("second derivatives of swish(x)²", "Behind the op there is a square, so that the g that comes back "
                "depends on x as well. Does your rule know?", call=second_of_the_square, expected=bend_by_differences,
                tolerance=1e-5)
def squared(rng):
    yield np.array([1.0])
    yield rng.normal(size=3)


@exercise.check("large numbers", "At 1000 the value is 1000, at −1000 it is 0. Which intermediate result overflows?",
                call=lambda make, x: (value(make, x), gradient(make, x, np.ones(x.shape))))
def large(rng):
    yield np.array([1000.0])
    yield np.array([-1000.0, 1000.0])


@exercise.mistake("You differentiate x and leave σ(x) as it is. Both factors of the product depend on x.")
def half_of_it():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    swish.defvjp(lambda g, out, x: g * F.sigmoid(x))
    return swish


@exercise.mistake("Your rule returns the derivative of the op, and not of the loss. What has come back from behind the "
                  "op?")
def without_g():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    swish.defvjp(lambda g, out, x: F.sigmoid(x) * (1 + x * (1 - F.sigmoid(x))))
    return swish


@exercise.mistake("The first derivative is right. But σ(x) was kept from the forward pass as an array, which does not "
                  "depend on x.")
def kept_array():
    kept = []

    @primitive
    def swish(x):
        kept[:] = [F.sigmoid(x)]
        return x * kept[0]

    swish.defvjp(lambda g, out, x: g * (kept[0] + x * kept[0] * (1 - kept[0])))
    return swish


@exercise.mistake("Right for moderate x. At 1000 two infinite numbers are divided. In which form of σ does nothing "
                  "become infinite there?")
def overflows():
    @primitive
    def swish(x):
        return x * np.exp(x) / (1 + np.exp(x))

    swish.defvjp(lambda g, out, x: g * (F.sigmoid(x) + x * F.sigmoid(x) * (1 - F.sigmoid(x))))
    return swish


@exercise.mistake("This is a composition of ops that have rules of their own. What is asked for is one op.")
def composed():
    return lambda x: x * F.sigmoid(x)


@exercise.mistake("The op computes, but the walk back stops at it. What does an op need besides its forward function?")
def no_rule():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    return swish


@exercise.mistake("The function makes an op, and does not hand it out. What does it return?")
def not_returned():
    make_swish()


@exercise.mistake("The function returns a value or an array, not an op. `make_swish()` is called first, and what it "
                  "returns is called with x.")
def a_value():
    return np.zeros(1)


@exercise.mistake("The derivative is right where it can be computed. But your rule divides by x: what does that give "
                  "at 0?")
def sigma_by_division():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    swish.defvjp(lambda g, out, x: g * (out / x + out * (1 - out / x)))
    return swish


@exercise.mistake("You differentiate σ(x) and leave x as it is. Both factors of the product depend on x.")
def other_half():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    swish.defvjp(lambda g, out, x: g * x * F.sigmoid(x) * (1 - F.sigmoid(x)))
    return swish


@exercise.mistake("That is the derivative of σ alone. The derivative of a product has a term for each factor.")
def of_sigma_alone():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    swish.defvjp(lambda g, out, x: g * F.sigmoid(x) * (1 - F.sigmoid(x)))
    return swish


@exercise.mistake("Right, as long as nothing comes after the op. Then g depends on x, too; but an array was made of it "
                  "here. What does an array know of the graph?")
def g_cut_out():
    @primitive
    def swish(x):
        return x * F.sigmoid(x)

    def rule(g, out, x):
        s = F.sigmoid(x)
        return (g.numpy() if isinstance(g, Tensor) else g) * (s + x * s * (1 - s))

    swish.defvjp(rule)
    return swish
