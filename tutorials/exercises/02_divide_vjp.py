"""The two vjps of a quotient

For out = x / y, element by element, write `divide_vjps(g, out, x, y)`. It returns two arrays, (∂L/∂x, ∂L/∂y), where g
is ∂L/∂out. All of g, out, x and y have the same shape; no y is 0. From calculus,

    ∂out/∂x = 1 / y,        ∂out/∂y = −x / y²

Both must be right also for elements as small as 1e-200, whose square is too small for a floating-point number, and is
rounded to 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "divide_vjps",
    starter="""
import numpy as np


def divide_vjps(g, out, x, y):
    \"\"\"g = dL/d out and out = x / y, all of one shape -> (dL/dx, dL/dy)\"\"\"
    ...
""",
    hints=["A vjp is the derivative from calculus, times g. There are two, so return a pair.",
           "−x / y² has x / y in it. Is that number there already, so that no square is needed?"])


@exercise.solution
def divide_vjps(g, out, x, y):
    return g / y, -g * out / y


def inputs(g, x, y):
    return g, x / y, x, y


@exercise.check("a few numbers", "Do it by hand for x = 6, y = 2: out is 3. If y grew a little, would out grow?")
def few(rng):
    yield inputs(np.array([1.0]), np.array([6.0]), np.array([2.0]))
    yield inputs(np.array([10.0]), np.array([6.0]), np.array([2.0]))
    yield inputs(np.array([1.0, 2.0]), np.array([0.0, 3.0]), np.array([4.0, -1.0]))


@exercise.check("any shapes", "Everything is element by element; no shape changes.")
def shapes(rng):
    for shape in ((4,), (2, 3), (2, 1, 3)):
        yield inputs(rng.normal(size=shape), rng.normal(size=shape), 0.5 + rng.random(shape))


def differences(g, out, x, y):
    """each element moved a little, and L = Σ g · out"""
    h = 1e-6
    return g * ((x + h) / y - (x - h) / y) / (2 * h), g * (x / (y + h) - x / (y - h)) / (2 * h)


@exercise.check("against finite differences", "Here x and y were moved, and out was looked at.", expected=differences,
                tolerance=1e-6)
def witness(rng):
    yield inputs(rng.normal(size=3), rng.normal(size=3), 1.0 + rng.random(3))
    yield inputs(rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), -1.0 - rng.random((2, 2)))


@exercise.check("very small numbers", "The square of 1e-200 is rounded to 0. Is there a way without a square?")
def small(rng):
    yield inputs(np.array([1.0]), np.array([2e-200]), np.array([1e-200]))
    yield inputs(1e-100 * rng.normal(size=4), 1e-200 * rng.normal(size=4), 1e-200 * (1 + rng.random(4)))


@exercise.mistake("The formula is right. But the square of a very small y is 0 to the computer. Which of the four "
                  "inputs spares you the square?")
def squared(g, out, x, y):
    return g / y, -g * x / (y * y)


@exercise.mistake("If y grows, x / y falls. Which sign has its derivative, for positive x and y?")
def sign(g, out, x, y):
    return g / y, g * out / y


@exercise.mistake("These are the derivatives of the quotient itself. How much does L grow for each step of out?")
def without_g(g, out, x, y):
    return 1 / y, -out / y


@exercise.mistake("The second has one factor of y too few below the line. What is the derivative of 1 / y?")
def not_squared(g, out, x, y):
    return g / y, -g * out


@exercise.mistake("These are the two rules of the product. What is the derivative of x / y with respect to x?")
def of_the_product(g, out, x, y):
    return g * y, g * x


@exercise.mistake("Both are there, in the wrong order: first the gradient of x, then that of y.")
def swapped(g, out, x, y):
    return -g * out / y, g / y


@exercise.mistake("That is the gradient of x alone. y is an input as well, and needs its own.")
def only_x(g, out, x, y):
    return g / y


@exercise.mistake("The second does not depend on x. But if x is twice as large, does x / y not fall twice as fast "
                  "when y grows?")
def without_x(g, out, x, y):
    return g / y, -g / (y * y)
