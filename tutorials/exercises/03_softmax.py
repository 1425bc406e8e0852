"""Softmax that survives large scores

Write `softmax(x)`: (..., n) -> (..., n). Along the last axis, each number becomes

    softmax(x)ᵢ = exp(xᵢ) / Σⱼ exp(xⱼ)

so that all are positive and each row sums to 1. It must also do so for scores of 1000, whose exponential is no
floating-point number.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "softmax",
    starter="""
import numpy as np


def softmax(x):
    \"\"\"(..., n) -> (..., n), each row positive, with sum 1\"\"\"
    ...
""",
    hints=["First write the formula as it stands. `keepdims=True` keeps the summed axis, so that the division fits.",
           "What happens to the weights if the same number is subtracted from all scores of a row? Choose a number "
           "that makes every exponential at most 1."])


@exercise.solution
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@exercise.check("a few scores", "Compare with the formula by hand: exp(0) is 1, so two zeros must give a half each.")
def few(rng):
    yield np.array([0.0, 0.0])
    yield np.array([0.0, 1.0, 2.0])


@exercise.check("many rows", "Each row is a softmax of its own, along the last axis, whatever stands before it. What "
                "shape do your maxima and your sums have, and how does it line up with x?")
def rows(rng):
    for shape in ((2, 2), (2, 3), (4, 1), (2, 3, 4), (1, 2, 2, 5)):
        yield rng.normal(size=shape)


@exercise.check("large scores", "exp(1000) overflows, and exp(-1000) is 0. The weights depend on differences of scores "
                "alone: use that freedom.")
def large(rng):
    yield np.array([1000.0, 0.0])
    yield np.array([-1000.0, -1000.0])
    yield np.array([[1000.0, 0.0], [0.0, 0.0]])
    yield 1e4 * rng.normal(size=(2, 3))


@exercise.check("rows with different maxima", "Every row needs room of its own: is the number that you subtract one "
                "for all rows, or one for each?")
def apart(rng):
    yield np.array([[1000.0, 999.0], [0.0, 1.0]])


@exercise.mistake("For these inputs the formula is right, but one of its intermediate results is infinite, or 0. "
                  "Which, and what is ∞ / ∞?")
def no_maximum(x):
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mistake("With several rows, all numbers together sum to 1, not each row. Which axis does the sum go over?")
def over_everything(x):
    e = np.exp(x - x.max())
    return e / e.sum()


@exercise.mistake("Here columns sum to 1. A row of scores belongs to one query; along which axis does it lie?")
def over_the_first_axis(x):
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


@exercise.mistake("That is right for two axes. With three or four, axis 1 is no longer the last. How do you count from "
                  "the end?")
def over_axis_one(x):
    axis = min(1, x.ndim - 1)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@exercise.mistake("The sums of two rows have shape (2,), and broadcasting lines that up with the columns. How does a "
                  "sum keep the axis that it sums over?")
def axis_lost(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1)


@exercise.mistake("One number is subtracted from all rows. In a row far below that, every exponential is 0, and 0 / 0 "
                  "is no number.")
def one_maximum(x):
    e = np.exp(x - x.max())
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mistake("You subtract something, but the largest exponential is not 1 yet. Which number of the row must be "
                  "subtracted, so that none is above 0?")
def mean_subtracted(x):
    e = np.exp(x - x.mean(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mistake("With one axis there is no axis 1, and with three it is not the last. How do you count from the end?")
def axis_one_exactly(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@exercise.mistake("`-=` writes into the scores of whoever called, who may still need them. Which way to subtract makes "
                  "a new array?")
def in_place(x):
    x -= x.max(axis=-1, keepdims=True)
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)
