"""The logarithm of a softmax, without a logarithm of 0

Write `log_softmax(x)`: (..., n) -> (..., n). Along the last axis,

    log_softmax(x)ᵢ = xᵢ − ln Σⱼ exp(xⱼ)

so that exp of it is softmax(x). It must be finite and right for all finite scores: log_softmax([1000, 0]) is
[0, −1000].
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "log_softmax",
    starter="""
import numpy as np


def log_softmax(x):
    \"\"\"(..., n) -> (..., n), the logarithms of the weights\"\"\"
    ...
""",
    hints=["As for the softmax: what may be subtracted from all scores of a row, so that no exponential overflows?",
           "Move the scores first, and then use the moved ones everywhere in the formula. Which sum is at least 1 "
           "then, so that its logarithm is finite?"])


def soft(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@exercise.solution
def log_softmax(x):
    moved = x - x.max(axis=-1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))


@exercise.check("a few scores", "Two equal scores have weights of a half: both results are ln ½ = −0.693….")
def few(rng):
    yield np.array([0.0, 0.0])
    yield np.array([3.0])
    yield np.array([0.0, 1.0, 2.0])


@exercise.check("many rows", "Each row is a softmax of its own, along the last axis. What shape do your maxima and "
                "sums have?")
def rows(rng):
    for shape in ((2, 2), (2, 3), (4, 1), (2, 3, 4)):
        yield rng.normal(size=shape)


@exercise.check("its exponential", "exp of the result must be the softmax: positive, and each row with sum 1.",
                call=lambda f, x: np.exp(f(x)), expected=soft)
def exponential(rng):
    yield rng.normal(size=3)
    yield 5 * rng.normal(size=(2, 4))


@exercise.check("large scores", "Which of your intermediate results is infinite for a score of 1000, and which is the "
                "logarithm of 0?")
def large(rng):
    yield np.array([1000.0, 0.0])
    yield np.array([-1000.0, -1000.0])
    yield np.array([0.0, 800.0, -800.0])
    yield np.array([[1000.0, 999.0], [0.0, 1.0]])


@exercise.mistake("The formula as it stands overflows in exp. What can be subtracted from all scores first?")
def no_maximum(x):
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@exercise.mistake("The weight underflows to 0 before you take its logarithm. Can the logarithm be taken on paper, "
                  "before anything is rounded?")
def log_of_softmax(x):
    return np.log(soft(x))


@exercise.mistake("The maximum is subtracted inside the exponential, and nowhere else, so the result is off by just "
                  "that.")
def maximum_only_inside(x):
    return x - np.log(np.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True))


@exercise.mistake("The maximum is subtracted outside, and the exponentials inside still have the old scores. Both must "
                  "be moved.")
def maximum_only_outside(x):
    return x - x.max(axis=-1, keepdims=True) - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@exercise.mistake("With several rows, the sum goes over all of them.")
def over_everything(x):
    moved = x - x.max()
    return moved - np.log(np.exp(moved).sum())


@exercise.mistake("The sums of two rows have shape (2,), and broadcasting lines that up with the columns.")
def axis_lost(x):
    moved = x - x.max(axis=-1, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis=-1))


@exercise.mistake("Each column is treated as a row. Which axis do the scores of one query lie along?")
def first_axis(x):
    moved = x - x.max(axis=0, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis=0, keepdims=True))


@exercise.mistake("One maximum for all rows: in a row far below it every exponential is 0, and so is their sum.")
def one_maximum(x):
    moved = x - x.max()
    return moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))


@exercise.mistake("A small number inside the logarithm hides the infinity, and gives a wrong value instead. Is −800 "
                  "far from what you get?")
def with_an_epsilon(x):
    return np.log(soft(x) + 1e-12)
