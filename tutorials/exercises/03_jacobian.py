"""The Jacobian of the softmax

Write `softmax_jacobian(x)`: (n,) -> (n, n). With p = softmax(x), row i and column j hold

    ∂pᵢ/∂xⱼ = pᵢ (δᵢⱼ − pⱼ)        δᵢⱼ = 1 if i = j, otherwise 0

Every row and every column sums to 0. For scores of 1000 it must be finite, too, and where one weight is 1 it is all 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "softmax_jacobian",
    starter="""
import numpy as np


def softmax_jacobian(x):
    \"\"\"(n,) -> (n, n), ∂pᵢ/∂xⱼ in row i and column j\"\"\"
    ...
""",
    hints=["First the weights p, with the maximum subtracted. Then two loops over i and j are a good start.",
           "Without loops: `np.diag` makes a matrix with p on its diagonal, and `np.outer` one of all products. Which "
           "of them is subtracted from which?"])


def soft(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def by_differences(x):
    h = 1e-5
    return np.stack([(soft(x + h * unit) - soft(x - h * unit)) / (2 * h) for unit in np.eye(len(x))], axis=1)


@exercise.solution
def softmax_jacobian(x):
    e = np.exp(x - x.max())
    p = e / e.sum()
    return np.diag(p) - np.outer(p, p)


@exercise.check("a few scores", "Two equal scores have weights of a half each: which four numbers does the formula "
                "give?")
def few(rng):
    yield np.array([0.0, 0.0])
    yield np.array([0.0, np.log(3)])
    yield np.array([5.0])
    yield np.array([2.0, 1.0, -1.0])


@exercise.check("random scores", "The result has one row for each weight and one column for each score.")
def drawn(rng):
    for n in (2, 3, 5, 8):
        yield rng.normal(size=n)


@exercise.check("sums of rows", "All scores raised together change no weight, so what must a row sum to?",
                call=lambda f, x: np.sum(f(x), axis=-1))
def sums(rng):
    for n in (1, 2, 6):
        yield rng.normal(size=n)


@exercise.check("the definition: central differences", "Move one score a little, and see how all weights move: that is "
                "a column. Yours are not like that.", expected=by_differences, tolerance=1e-7)
def definition(rng):
    yield np.array([0.0, 1.0])
    yield rng.normal(size=4)
    yield 3 * rng.normal(size=6)


@exercise.check("large scores", "The weights must survive scores of 1000, as in 03-softmax. Where one weight is 1, "
                "nothing moves.")
def large(rng):
    yield np.array([1000.0, 0.0])
    yield np.array([1000.0, 999.0])
    yield np.array([-1000.0, -1000.0])
    yield np.array([0.0, 800.0, -800.0])


@exercise.mistake("Right, while exp has room. What does your softmax give for a score of 1000?")
def overflows(x):
    p = np.exp(x) / np.exp(x).sum()
    return np.diag(p) - np.outer(p, p)


@exercise.mistake("You have the diagonal, as if each weight depended on its own score alone. What is between a weight "
                  "and the *other* scores?")
def diagonal(x):
    return np.diag(soft(x) * (1 - soft(x)))


@exercise.mistake("That is how each weight moves with its own score: n of the n² numbers. Where are the others?")
def slopes(x):
    return soft(x) * (1 - soft(x))


@exercise.mistake("Off the diagonal it is right. What does δᵢⱼ add where i = j?")
def no_diagonal(x):
    return -np.outer(soft(x), soft(x))


@exercise.mistake("On the diagonal it is right. What is δᵢⱼ where i and j differ?")
def delta_always_one(x):
    return soft(x)[:, None] * (1 - soft(x))


@exercise.mistake("Column j has −pⱼ² off its diagonal, so that both factors are one weight. A vector times a vector "
                  "goes element by element, and `.T` does nothing to it: you need the table of all n² products.")
def squares(x):
    return np.diag(soft(x)) - soft(x) * soft(x)


@exercise.mistake("The signs are reversed. If a score rises, does its own weight rise or fall?")
def reversed_signs(x):
    return np.outer(soft(x), soft(x)) - np.diag(soft(x))


@exercise.mistake("That subtracts p from every row, by broadcasting. The formula has a *product* of two weights there; "
                  "which two?")
def broadcast(x):
    return np.diag(soft(x)) - soft(x)


@exercise.mistake("This is δᵢⱼ − pⱼ, the derivative of the *logarithm* of the weights. Which factor is missing?")
def of_the_logarithm(x):
    return np.eye(len(x)) - soft(x)


@exercise.mistake("`p @ p` of two vectors is one number, and so is `p @ p.T`: transposing a vector does nothing. You "
                  "need the table of all products.")
def inner(x):
    return np.diag(soft(x)) - soft(x) @ soft(x)


@exercise.mistake("These are products of scores, and the formula has products of weights. What is p here?")
def of_the_scores(x):
    return np.diag(x) - np.outer(x, x)


@exercise.mistake("The diagonal is too large. In the formula δᵢⱼ stands in brackets: what multiplies it?")
def delta_outside(x):
    return np.eye(len(x)) - np.outer(soft(x), soft(x))
