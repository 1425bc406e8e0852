"""The size of the Jacobian, without the Jacobian

Write `jacobian_norm(scores)`: (..., n) -> (...). With p = softmax(scores) along the last axis, it is the root of the
sum of the squares of all elements of diag(p) − p pᵀ, one number for each row of scores. No (n, n) matrix may be made:
for 100,000 keys it would take 80 GB. What must hold: for n equal scores it is √(n − 1)/n; for scores of 1000 and 0 it
is 0; and it is never NaN. An error of 10⁻⁶ is allowed.
"""

import tracemalloc

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "jacobian_norm",
    starter="""
import numpy as np


def jacobian_norm(scores):
    \"\"\"‖diag(p) − p pᵀ‖ for p = softmax(scores): (..., n) -> (...)\"\"\"
    ...
""",
    hints=["Split the sum of squares in two: the elements on the diagonal are pᵢ(1 − pᵢ), all others are −pᵢ pⱼ.",
           "Σ over all pairs of pᵢ² pⱼ² is a product of two sums over one index. It has the pairs with i = j in it, "
           "too.",
           "If the sum of squares is 0 on paper, rounding may make it a little less. What is the root of that?"])


def soft(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def whole(scores):
    """By the matrix, as it stands."""
    p = soft(scores)
    J = p[..., None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :]
    return np.sqrt((J ** 2).sum(axis=(-1, -2)))


def by_differences(scores):
    h, units = 1e-5, np.eye(scores.shape[-1])
    columns = [(soft(scores + h * unit) - soft(scores - h * unit)) / (2 * h) for unit in units]
    return np.sqrt(sum((column ** 2).sum(axis=-1) for column in columns))


@exercise.solution
def jacobian_norm(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    on_the_diagonal = (p ** 2 * (1 - p) ** 2).sum(axis=-1)
    beside_it = (p ** 2).sum(axis=-1) ** 2 - (p ** 4).sum(axis=-1)
    return np.sqrt(on_the_diagonal + np.maximum(beside_it, 0))


@exercise.check("a few scores", "With two equal scores all four elements are ¼ in size. What does that make?",
                tolerance=1e-6)
def few(rng):
    yield np.array([0.0, 0.0])
    yield np.array([5.0])
    yield np.array([0.0, 0.0, 0.0])
    yield np.array([0.0, 1.0])
    yield rng.normal(size=5)


@exercise.check("many rows", "Each row of scores has a Jacobian of its own: one number for each row.", tolerance=1e-6)
def rows(rng):
    for shape in ((2, 2), (3, 4), (2, 3, 5)):
        yield rng.normal(size=shape)


@exercise.check("the definition: central differences", "Move each score a little, see how all weights move, square and "
                "add: that is another number.", expected=by_differences, tolerance=1e-6)
def definition(rng):
    yield rng.normal(size=3)
    yield 3 * rng.normal(size=(2, 6))


@exercise.check("large scores", "Two things go wrong with large scores: exponentials overflow, and a sum of squares "
                "that is nearly 0 may be rounded below 0.", tolerance=1e-6)
def large(rng):
    yield np.array([1000.0, 0.0])
    yield np.array([1000.0, 1000.0])
    yield np.array([-1000.0, -1000.0])
    yield np.array([19.0, 0.0])
    yield np.array([1000.0, 999.0])
    yield np.array([-1000.0, 1000.0])
    yield np.array([[1000.0, 0.0], [0.0, 0.0]])
    yield np.stack([np.linspace(17, 20, 200), np.zeros(200)], axis=-1)      # where 1 − p is as small as its rounding


def memory(jacobian_norm, scores):
    """What is the largest that the function holds at one time, in arrays of the size of its input?"""
    tracemalloc.start()
    jacobian_norm(scores)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return "no more than 50 arrays of n numbers" if most < 50 * scores.nbytes else "as much as an (n, n) matrix"


@exercise.check("memory, at 500 scores", "A matrix of 500 by 500 was made on the way to the numbers.",
                call=memory)
def thrift(rng):
    yield rng.normal(size=500)


@exercise.mistake("Somewhere an (n, n) array is made. Of which sums over *one* index does the sum of its squares "
                  "consist?")
def with_the_matrix(scores):
    return whole(scores)


@exercise.mistake("You have the diagonal alone. What do the elements −pᵢ pⱼ beside it add?")
def diagonal(scores):
    p = soft(scores)
    return np.sqrt((p ** 2 * (1 - p) ** 2).sum(axis=-1))


@exercise.mistake("Your sum over all pairs has those with i = j in it, and the diagonal counts them again.")
def counted_twice(scores):
    p = soft(scores)
    return np.sqrt((p ** 2 * (1 - p) ** 2).sum(axis=-1) + (p ** 2).sum(axis=-1) ** 2)


@exercise.mistake("That is the sum of the squares. The norm is its root.")
def squared(scores):
    return whole(scores) ** 2


@exercise.mistake("That is the norm of the weights, and it is near 1 where one weight is. The Jacobian's is 0 there.")
def of_the_weights(scores):
    return np.sqrt((soft(scores) ** 2).sum(axis=-1))


@exercise.mistake("One number came out for all rows together. Each row has its own softmax, and its own norm.")
def over_everything(scores):
    return np.sqrt((whole(scores) ** 2).sum())


@exercise.mistake("Right for small scores. Now 1000: which intermediate result is infinite?")
def overflows(scores):
    e = np.exp(scores)
    p = e / e.sum(axis=-1, keepdims=True)
    return np.sqrt((p ** 2 * (1 - p) ** 2).sum(axis=-1) + np.maximum((p ** 2).sum(axis=-1) ** 2
                                                                     - (p ** 4).sum(axis=-1), 0))


@exercise.mistake("In some rows it is NaN: the root of a number below 0. On paper a sum of squares is never negative. "
                  "What may rounding do to it, and how do you keep it out?")
def below_zero(scores):
    p = soft(scores)
    squares = (p ** 2).sum(axis=-1)
    return np.sqrt(squares - 2 * (p ** 3).sum(axis=-1) + squares ** 2)


@exercise.mistake("The squares of diag(p) and of p pᵀ are added here. The square of a difference has one more term.")
def without_the_cross_term(scores):
    squares = (soft(scores) ** 2).sum(axis=-1)
    return np.sqrt(squares + squares ** 2)


@exercise.mistake("The squares of p pᵀ are subtracted from those of diag(p) here. Is (a − b)² the same as a² − b²?")
def difference_of_squares(scores):
    squares = (soft(scores) ** 2).sum(axis=-1)
    return np.sqrt(np.abs(squares - squares ** 2))


@exercise.mistake("2p(1 − p) is section 4's, for scores so wide that only two weights matter. What if a third does?")
def of_two_weights(scores):
    p = soft(scores).max(axis=-1)
    return 2 * p * (1 - p)


@exercise.mistake("One number is subtracted from all rows. In a row far below it every exponential is 0, and 0 / 0 is "
                  "no number.")
def one_maximum(scores):
    e = np.exp(scores - scores.max())
    p = e / e.sum(axis=-1, keepdims=True)
    squares = (p ** 2).sum(axis=-1)
    return np.sqrt(np.abs(squares - 2 * (p ** 3).sum(axis=-1) + squares ** 2))
