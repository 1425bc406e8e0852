"""A million derivatives in two evaluations

Write `projected(f, x, u, v)`. f takes an array of the shape of x and returns an array, perhaps of another shape, and J
is its Jacobian at x. v has the shape of x, and u that of f(x). The result is one number, uᵀJv, by the central
difference

    Σ u · (f(x + hv) − f(x − hv)) / 2h

with the sum over all elements. f is called twice, however many elements x has. Five digits are enough; v is used as it
is, and not made to have length 1.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "projected",
    starter="""
import numpy as np


def projected(f, x, u, v):
    \"\"\"uᵀJv at x, in two evaluations of f\"\"\"
    ...
""",
    hints=["Moving x along v moves f(x) by J v, times the step. That is an array in the shape of f(x).",
           "u has that shape, too. Multiply element by element, and add up everything, whatever the number of axes."])


def squares(x):
    return x ** 2


def sizes(x):
    return np.abs(x)


def total(x):
    return np.array([np.sum(x), np.sum(x ** 2)])


def weights(x):
    """the softmax along the last axis"""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def on_paper(f, x, u, v):
    if f is squares:
        return float(np.sum(u * 2 * x * v))
    p = weights(x)
    return float(np.sum(u * p * (v - np.sum(p * v, axis=-1, keepdims=True))))


@exercise.solution
def projected(f, x, u, v):
    h = 1e-6
    return np.sum(u * (f(x + h * v) - f(x - h * v))) / (2 * h)


@exercise.check("one number", "x² at 3 has the slope 6. Along v = 2 it moves twice as fast, and u = 5 counts that five "
                "times. If only some digits are right, look at the step.", tolerance=1e-5)
def one(rng):
    yield squares, np.array([3.0]), np.array([1.0]), np.array([1.0])
    yield squares, np.array([3.0]), np.array([1.0]), np.array([2.0])
    yield squares, np.array([3.0]), np.array([5.0]), np.array([2.0])


@exercise.check("outputs of another shape", "u has the shape of the outputs, and v that of the inputs.", tolerance=1e-5)
def other_shape(rng):
    yield total, np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5]), np.array([1.0, 0.0, -1.0])
    yield total, rng.normal(size=(2, 3)), rng.normal(size=2), rng.normal(size=(2, 3))


@exercise.check("several axes", "One number must come out. Over which axes does the sum go?", tolerance=1e-5)
def axes(rng):
    for shape in ((2, 2), (2, 3), (2, 3, 4)):
        yield squares, *rng.normal(size=(3, *shape))


@exercise.check("known on paper", "The Jacobians of x² and of the softmax are known, and uᵀJv by them is another "
                "number.",
                expected=on_paper, tolerance=1e-5)
def paper(rng):
    yield squares, *rng.normal(size=(3, 2))
    yield weights, *rng.normal(size=(3, 3))
    yield weights, *rng.normal(size=(3, 2, 4))


@exercise.check("at a kink", "|x| rises on both sides of 0, and a central difference sees both. Which two points do "
                "you take?", tolerance=1e-5)
def kink(rng):
    yield sizes, np.array([0.0]), np.array([1.0]), np.array([1.0])


def calls(projected, f, x, u, v):
    """How many evaluations does it take?"""
    seen = []

    def counted(x):
        seen.append(1)
        return f(x)
    projected(counted, x, u, v)
    return f"{len(seen)} evaluations"


@exercise.check("evaluations", "However many elements there are, f is called on two points only.", call=calls)
def evaluations(rng):
    yield weights, *rng.normal(size=(3, 2))
    yield weights, *rng.normal(size=(3, 8, 8))


def stopped(projected, f, x, u, v):
    """With an f that soon refuses: there are too many elements to go through."""
    seen = []

    def limited(x):
        seen.append(1)
        if len(seen) > 100:
            raise RuntimeError("f was called more than 100 times")
        return f(x)
    return projected(limited, x, u, v)


@exercise.check("200,000 elements", "So many elements, and still two points.", call=stopped, tolerance=1e-5)
def many(rng):
    yield weights, *rng.normal(size=(3, 400, 500))


@exercise.mistake("The number is right, but each element is moved by itself. What happens if all move at once, each as "
                  "far as v says?")
def one_by_one(f, x, u, v):
    found = 0.0
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = 1e-6
        found += v[place] * np.sum(u * (f(x + step) - f(x - step))) / 2e-6
    return found


@exercise.mistake("You made v have length 1. But twice as long a v means that all elements move twice as fast.")
def normalised(f, x, u, v):
    return projected(f, x, u, v / np.linalg.norm(v))


@exercise.mistake("All outputs count the same in your sum. Where does u come in?")
def without_u(f, x, u, v):
    return projected(f, x, np.ones_like(u), v)


@exercise.mistake("That is uᵀJ times ones: every input moves by h. Where does v come in?")
def without_v(f, x, u, v):
    return projected(f, x, u, np.ones_like(v))


@exercise.mistake("That is an array in the shape of the outputs. Which sum makes one number of it?")
def not_summed(f, x, u, v):
    return u * (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6


@exercise.mistake("Twice too large. How far is x + hv from x − hv?")
def by_one_step(f, x, u, v):
    return 2 * projected(f, x, u, v)


@exercise.mistake("`@` of two matrices is a matrix. You need one number: multiply element by element, and sum over all "
                  "axes.")
def matrix_product(f, x, u, v):
    return u @ (f(x + 1e-6 * v) - f(x - 1e-6 * v)) / 2e-6


@exercise.mistake("Your two points are x and x + hv, so that you see one side alone. Where are they in the formula?")
def forward(f, x, u, v):
    return np.sum(u * (f(x + 1e-7 * v) - f(x))) / 1e-7


@exercise.mistake("u and v have changed places. Which of them has the shape of the inputs?")
def swapped(f, x, u, v):
    return projected(f, x, v, u)


@exercise.mistake("Far too small: as small as h² would make it. Python reads `a / 2 * h` from the left.")
def times_the_step(f, x, u, v):
    return 1e-12 * projected(f, x, u, v)


@exercise.mistake("That is a mean over the outputs. The formula has their sum.")
def averaged(f, x, u, v):
    return projected(f, x, u, v) / np.size(u)
