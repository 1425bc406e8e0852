"""Which of these rules are wrong?

Write `check_rule(op)`. It gets an object with two functions of NumPy arrays:

    op.f(x)         x (n, m) -> an array of some shape, which depends on the op
    op.vjp(g, x)    g in the shape of op.f(x), x (n, m) -> dL/dx (n, m)

and raises an AssertionError if the vjp is not that of f. Each op takes matrices of all sizes n and m, with any numbers.
The check must accept every right one: some have kinks at 0, where any rule is a convention, and some have large values.
You choose x, g and the tolerance, and ask the definition of the derivative.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_rule",
    starter="""
import numpy as np


def check_rule(op):
    x, h = np.array([[1.0, 2.0], [3.0, 4.0]]), 1e-6
    g = np.ones(op.f(x).shape)
    numeric = (op.f(x + h) - op.f(x - h)).sum() / (2 * h)   # all of x moved at once
    assert np.allclose(op.vjp(g, x).sum(), numeric)
""",
    hints=["Move one element of x at a time. With L = Σ g · f(x), the element of dL/dx is the change of L over twice "
           "the step.",
           "Ask what your inputs have in common: all positive? n = m? all g equal, or small? A rule may be right for "
           "just those."],
    too_strict="Something right was rejected. A difference is exact to some digits only, relative to the size of what "
               "it measures, and at a kink it means nothing.")


@exercise.sound
class Square:
    """x², elementwise"""

    def f(x):
        return x ** 2

    def vjp(g, x):
        return 2 * g * x


@exercise.sound
class Relu:
    """max(x, 0), elementwise, with slope 0 at 0"""

    def f(x):
        return np.maximum(x, 0)

    def vjp(g, x):
        return g * (x > 0)


@exercise.sound
class Softmax:
    """the softmax of each row"""

    def f(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def vjp(g, x):
        p = Softmax.f(x)
        return p * (g - (g * p).sum(axis=1, keepdims=True))


@exercise.sound
class Gram:
    """xᵀ x, (n, m) -> (m, m)"""

    def f(x):
        return x.T @ x

    def vjp(g, x):
        return x @ (g + g.T)


@exercise.sound
class ColumnMeans:
    """the mean of each column, (n, m) -> (m,)"""

    def f(x):
        return x.mean(axis=0)

    def vjp(g, x):
        return np.ones(x.shape) * g / len(x)


@exercise.sound
class Large:
    """a million times sin x, elementwise"""

    def f(x):
        return 1e6 * np.sin(x)

    def vjp(g, x):
        return 1e6 * g * np.cos(x)


@exercise.solution
def check_rule(op):
    rng, h = np.random.default_rng(0), 1e-6
    x = rng.normal(size=(3, 4))
    g = 3 * rng.normal(size=op.f(x).shape)
    numeric = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        numeric[i] = (g * (op.f(x + step) - op.f(x - step))).sum() / (2 * h)
    analytic = op.vjp(g, x)
    assert analytic.shape == x.shape
    assert np.allclose(analytic, numeric, rtol=1e-4, atol=1e-4 * np.abs(numeric).max())


@exercise.mutant("One lacks a factor 2. Do you compare numbers at all?")
class SquareHalved(Square):
    def vjp(g, x):
        return g * x


@exercise.mutant("One has the right gradient for positive numbers, and the wrong sign for negative ones. Are there "
                 "some in your x?")
class AbsoluteValue:
    def f(x):
        return np.abs(x)

    def vjp(g, x):
        return g


@exercise.mutant("One is nearly right, to a few per cent. How large is the difference that your tolerance lets pass?")
class TanhNearly:
    def f(x):
        return np.tanh(x)

    def vjp(g, x):
        return g * np.exp(-x * x)


@exercise.mutant("One lets each output depend on its own input alone. Do you move one element at a time, with g that "
                 "differ?")
class SoftmaxElementwise(Softmax):
    def vjp(g, x):
        p = Softmax.f(x)
        return g * p * (1 - p)


@exercise.mutant("One forgets to transpose g. Which g are equal to their transpose?")
class GramOneSided(Gram):
    def vjp(g, x):
        return 2 * x @ g


@exercise.mutant("One divides by the wrong length. For which x are the two lengths equal?")
class ColumnMeansByWidth(ColumnMeans):
    def vjp(g, x):
        return np.ones(x.shape) * g / x.shape[1]


@exercise.mutant("One does not look at g: it says 3 whatever comes back. Which g do you send?")
class TripleWithoutG:
    def f(x):
        return 3 * x

    def vjp(g, x):
        return 3 * np.ones(x.shape)


@exercise.mutant("One clips what comes back to −1 … 1. A vjp is linear in g; how large are yours?")
class TripleClipped(TripleWithoutG):
    def vjp(g, x):
        return 3 * np.clip(g, -1, 1)


def compared(op, x, g, rtol=1e-4, atol=1e-4, h=1e-6):
    numeric = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        numeric[i] = (g * (op.f(x + step) - op.f(x - step))).sum() / (2 * h)
    assert np.allclose(op.vjp(g, x), numeric, rtol=rtol, atol=atol * np.abs(numeric).max())


def drawn(op, *shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    return x, 3 * rng.normal(size=op.f(x).shape)


@exercise.mistake("All your x are positive, n = m, and all your g are 1. Which faults are seen only by others? (And is "
                  "each element moved and compared by itself?)")
def all_at_once(op):
    x, h = np.array([[1.0, 2.0], [3.0, 4.0]]), 1e-6
    g = np.ones(op.f(x).shape)
    numeric = (op.f(x + h) - op.f(x - h)).sum() / (2 * h)
    assert np.allclose(op.vjp(g, x).sum(), numeric)


@exercise.mistake("All your x are positive. What might a rule do with the others?")
def positive(op):
    x, g = drawn(op, 3, 4)
    compared(op, np.abs(x), g)


@exercise.mistake("All your g are 1. A rule that does not look at g, or forgets to transpose it, is right for just "
                  "those.")
def ones(op):
    x, g = drawn(op, 3, 4)
    compared(op, x, np.ones(g.shape))


@exercise.mistake("Your x is square. What could be confused in a rule, if n and m are the same number?")
def square(op):
    compared(op, *drawn(op, 3, 3))


@exercise.mistake("Your tolerance lets pass what is wrong by a few per cent. How exact is a central difference?")
def loose(op):
    x, g = drawn(op, 3, 4)
    compared(op, x / 4, g, rtol=0.1, atol=0.1)


@exercise.mistake("Your tolerance asks for more digits than a difference has, above all of large values.")
def strict(op):
    compared(op, *drawn(op, 3, 4), rtol=1e-12, atol=1e-12)


@exercise.mistake("There is a 0 in your x, where max(x, 0) has a kink. What does a central difference say there, and "
                  "what does it mean?")
def at_the_kink(op):
    x, g = drawn(op, 3, 4)
    x[0, 0] = 0
    compared(op, x, g)


@exercise.mistake("Your g are small. Is twice the g always twice the result? A faulty rule may tell the difference.")
def small_g(op):
    x, g = drawn(op, 3, 4)
    compared(op, x, g / 10)
