"""Back through a softmax, without its Jacobian

Write `softmax_vjp(g, p)`: (..., n), (..., n) -> (..., n). Here p is what a softmax along the last axis gave, and
g = ∂L/∂p. It returns the gradient at the scores,

    ∂L/∂sⱼ = pⱼ (gⱼ − Σᵢ gᵢ pᵢ)

for each row by itself. No (n, n) matrix may be built: one check has rows of 100,000 weights. What is returned sums to 0
in each row, and is 0 where p is 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "softmax_vjp",
    starter="""
import numpy as np


def softmax_vjp(g, p):
    \"\"\"∂L/∂scores from g = ∂L/∂p and p = softmax(scores), all (..., n)\"\"\"
    ...
""",
    hints=["Begin with the mean of g, each element taken with its weight: one number for each row.",
           "The mean must keep its axis, so that it can be subtracted from g row by row."])


def soft(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def by_differences(g, p):
    """One score after the other is moved, in the scores that have these weights."""
    scores, h, slopes = np.log(p), 1e-5, np.empty(p.shape)
    for place in np.ndindex(p.shape):
        step = np.zeros(p.shape)
        step[place] = h
        slopes[place] = (g * (soft(scores + step) - soft(scores - step))).sum() / (2 * h)
    return slopes


@exercise.solution
def softmax_vjp(g, p):
    return p * (g - (g * p).sum(axis=-1, keepdims=True))


@exercise.check("one row", "Two weights of a half, and g = (1, 0): the mean of g is a half. How far is each from it?")
def one_row(rng):
    yield np.array([1.0, 0.0]), np.array([0.5, 0.5])
    yield np.array([2.0, 2.0]), np.array([0.25, 0.75])
    yield np.array([1.0, 2.0, 6.0]), np.array([0.5, 0.25, 0.25])


@exercise.check("many rows", "Each row has a mean of its own, whatever axes stand before it. What shape do your means "
                "have?")
def rows(rng):
    for shape in ((2, 2), (2, 3), (2, 3, 4), (1, 2, 2, 5)):
        yield rng.normal(size=shape), soft(rng.normal(size=shape))


@exercise.check("the definition: central differences", "Move each score a little and see how Σ g p moves: the gradient "
                "is not what you return.", expected=by_differences, tolerance=1e-7)
def definition(rng):
    yield rng.normal(size=5), soft(3 * rng.normal(size=5))
    yield rng.normal(size=(2, 2)), soft(rng.normal(size=(2, 2)))


@exercise.check("sums of rows", "Raising all scores of a row together changes nothing, so the gradients of a row sum "
                "to a number that you know.", call=lambda f, g, p: np.sum(f(g, p), axis=-1))
def sums(rng):
    yield rng.normal(size=4), soft(rng.normal(size=4))
    yield rng.normal(size=(3, 5)), soft(rng.normal(size=(3, 5)))


@exercise.check("one-hot weights", "Where one weight is 1 and the others are 0, nothing gets through, and all must be "
                "exactly 0.", tolerance=0)
def one_hot(rng):
    yield np.array([3.0, -1.0]), np.array([1.0, 0.0])
    yield rng.normal(size=(3, 3)), np.eye(3)


@exercise.check("long rows", "With 100,000 weights a matrix of all pairs takes 80 GB for each row. The formula needs a "
                "sum alone.")
def long_rows(rng):
    yield rng.normal(size=(2, 100_000)), soft(rng.normal(size=(2, 100_000)))


@exercise.mistake("The whole Jacobian is built here, and there is no room for it. The formula has the same result "
                  "with one sum and two products.")
def with_the_matrix(g, p):
    if p.shape[-1] > 10_000:
        raise MemoryError("Unable to allocate 74.5 GiB")        # as NumPy would
    return g * p - p * (g[..., None, :] @ p[..., :, None])[..., 0]


@exercise.mistake("Each g times its own slope p (1 − p): that forgets that every weight depends on every score.")
def diagonal(g, p):
    return g * p * (1 - p)


@exercise.mistake("You take the plain mean of g. Which mean does the formula take: does a key of weight 0 count in it?")
def plain_mean(g, p):
    return p * (g - g.mean(axis=-1, keepdims=True))


@exercise.mistake("The sum of g without the weights is not a mean at all. What is under the sum?")
def no_weights_in_the_sum(g, p):
    return p * (g - g.sum(axis=-1, keepdims=True))


@exercise.mistake("With several rows, one mean of everything is subtracted. Each row is a softmax of its own.")
def over_everything(g, p):
    return p * (g - (g * p).sum())


@exercise.mistake("The means of two rows have shape (2,), and broadcasting lines that up with the columns.")
def axis_lost(g, p):
    return p * (g - (g * p).sum(axis=-1))


@exercise.mistake("You went down the columns. A row of weights lies along the last axis.")
def first_axis(g, p):
    return p * (g - (g * p).sum(axis=0, keepdims=True))


@exercise.mistake("How far each g is above the mean, that is half of the rule. By what is it multiplied?")
def not_times_the_weight(g, p):
    return g - (g * p).sum(axis=-1, keepdims=True)


@exercise.mistake("You treat p as if it were the scores, and take a softmax of it again. It is one already.")
def softmax_again(g, p):
    p = soft(p)
    return p * (g - (g * p).sum(axis=-1, keepdims=True))


@exercise.mistake("The weight multiplies g alone here, and the mean is subtracted whole. What stands in the brackets "
                  "of the formula?")
def no_brackets(g, p):
    return p * g - (g * p).sum(axis=-1, keepdims=True)


@exercise.mistake("That builds the Jacobian of a single row, and with several rows it does not fit. Which rule needs "
                  "no matrix at all?")
def matrix_of_one_row(g, p):
    return g @ (np.diag(p) - np.outer(p, p))
