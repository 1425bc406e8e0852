"""A softmax with a mask

Write `masked_softmax(scores, mask)`: scores (..., L, S), and a boolean mask that broadcasts to them, True = may attend.
Along the last axis,

    wᵢⱼ = Mᵢⱼ exp(sᵢⱼ) / Σₖ Mᵢₖ exp(sᵢₖ)

A forbidden key has weight exactly 0, and a row that allows nothing is 0 throughout. Neither large scores nor those that
are forbidden may do any harm, not even if a forbidden one is NaN. Warnings of NumPy do not matter.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "masked_softmax",
    starter="""
import numpy as np


def masked_softmax(scores, mask):
    \"\"\"(..., L, S), boolean (..., L, S) -> weights (..., L, S)\"\"\"
    ...
""",
    hints=["First let every forbidden score be so low that its exponential is 0, in any format. `np.where(mask, …, …)` "
           "chooses cell by cell.",
           "exp(−∞) is 0, but −∞ − (−∞) is NaN. In which rows would that happen, if you subtract the row's maximum?",
           "In an empty row you may subtract any finite number, and divide by any that is not 0."])


@exercise.solution
def masked_softmax(scores, mask):
    allowed = np.where(mask, scores, -np.inf)
    top = allowed.max(axis=-1, keepdims=True)
    e = np.exp(allowed - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


@exercise.check("a row with a forbidden key", "The allowed weights sum to 1, and stand to each other as their "
                "exponentials do. The forbidden one is 0.")
def row(rng):
    yield np.array([[0.0, 0.0]]), np.array([[True, False]])
    yield np.array([[1.0, 2.0, 3.0]]), np.array([[True, True, False]])
    yield rng.normal(size=(2, 3)).round(1), np.array([[True, False, True], [False, True, True]])


@exercise.check("a mask that is broadcast", "The mask may have axes of length 1, or fewer axes than the scores.")
def broadcast(rng):
    yield rng.normal(size=(2, 2, 2)).round(1), np.tri(2, dtype=bool)
    yield rng.normal(size=(2, 2, 3)).round(1), np.array([[[True, True, False]], [[True, False, False]]])
    yield rng.normal(size=(1, 3)).round(1), np.ones((1, 1), bool)
    yield rng.normal(size=(2, 1, 2, 2)).round(1), np.array([[[[True, False]]], [[[True, True]]]])


@exercise.check("large scores", "exp(1000) overflows. Which scores does the number that you subtract have to be the "
                "maximum of?")
def large(rng):
    yield np.array([[1000.0, 999.0, 0.0]]), np.array([[True, True, False]])
    yield np.array([[1.0, 2.0, 1000.0]]), np.array([[True, True, False]])
    yield np.array([[0.0, 5000.0], [0.0, 0.0]]), np.array([[True, False], [True, True]])
    yield np.array([[1000.0, 0.0], [1.0, 0.0]]), np.array([[True, True]])
    yield np.array([[-1000.0, 1000.0]]), np.array([[True, True]])


@exercise.check("a row with nothing left", "All weights of that row are 0, and the other rows go on as if nothing "
                                           "were.")
def empty(rng):
    yield np.array([[5.0]]), np.array([[False]])
    yield np.array([[1.0, 2.0]]), np.array([[False, False]])
    yield rng.normal(size=(2, 2)).round(1), np.array([[False, False], [True, True]])


@exercise.check("very low scores", "No constant is low enough for all scores: here some allowed ones are lower than "
                                   "−10⁹, and one is lower than −10³⁰⁰.")
def low(rng):
    yield np.array([[-2e9, 0.0]]), np.array([[True, False]])
    yield np.array([[-3e9, -3e9, 7.0]]), np.array([[True, True, False]])
    yield np.array([[-1e305, 0.0]]), np.array([[True, False]])


@exercise.check("NaN where it is forbidden", "What stands at a forbidden key must not take part in anything: 0 · NaN "
                "is NaN, and so is the maximum of anything and NaN.")
def poisoned(rng):
    yield np.array([[1.0, np.nan]]), np.array([[True, False]])
    yield np.array([[1.0, np.inf, 2.0]]), np.array([[True, False, True]])
    yield np.array([[np.nan, np.nan], [1.0, np.nan]]), np.array([[False, False], [True, False]])


@exercise.check("how many forbidden weights are not exactly 0", "Nearly 0 is not 0: what is forbidden would still be "
                "mixed in. What is the exponential of the score that you give to a forbidden key?", tolerance=0,
                call=lambda masked_softmax, scores, mask: np.count_nonzero(
                    np.where(mask, 0, masked_softmax(scores, mask))))
def exactly(rng):
    yield np.array([[0.0, 0.0]]), np.array([[True, False]])
    yield np.array([[0.0, 1000.0]]), np.array([[True, False]])


def plain(scores, axis=-1):
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@exercise.mistake("The forbidden weight is 0, and the row no longer sums to 1. Where is the forbidden score still "
                  "counted?")
def zeroed_afterwards(scores, mask):
    return plain(scores) * mask


@exercise.mistake("Right on paper. But the maximum that you subtract may belong to a forbidden key, far above the "
                  "others. What is left of them then?")
def divided_again(scores, mask):
    weights = plain(scores) * mask
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


@exercise.mistake("Right on paper. But the maximum that you subtract may belong to a forbidden key, and then you "
                  "divide 0 by 0.")
def divided_by_nothing(scores, mask):
    weights = plain(scores) * mask
    return weights / weights.sum(axis=-1, keepdims=True)


@exercise.mistake("A score of 0 is a score like any other: its exponential is 1. What number has the exponential 0?")
def scores_times_mask(scores, mask):
    return plain(scores * mask)


@exercise.mistake("True counts as 1, and was added: allowed scores are a little higher, and nothing is forbidden.")
def added(scores, mask):
    return plain(scores + mask)


@exercise.mistake("The allowed keys have weight 0, and the forbidden ones the rest. What does True mean here?")
def flipped(scores, mask):
    return masked_softmax(scores, ~mask)


@exercise.mistake("In a row with nothing left all scores are the same very low number, so all weights are equal. What "
                  "should they be?")
def replaced_by_a_billion(scores, mask):
    return plain(np.where(mask, scores, -1e9))


@exercise.mistake("In a row with nothing left −10⁹ was added to every score. Does a softmax notice that?")
def added_a_billion(scores, mask):
    return plain(scores + np.where(mask, 0, -1e9))


@exercise.mistake("In a row with nothing left something is not a number: −∞ − (−∞), if the maximum is −∞, or 0 / 0. "
                  "What could be put in the place of that maximum, or of that sum?")
def infinite(scores, mask):
    return plain(np.where(mask, scores, -np.inf))


@exercise.mistake("Without a maximum subtracted it is right for small scores. What is exp(1000)?")
def no_maximum(scores, mask):
    e = np.where(mask, np.exp(scores), 0)
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


@exercise.mistake("The formula as it stands, and right on paper. What is exp(1000) in a computer? And what is 0 / 0?")
def formula_as_it_stands(scores, mask):
    e = np.exp(scores) * mask
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mistake("Columns sum to 1 here, over the queries. Each query has 1 to give away: along which axis are the "
                  "keys?")
def over_queries(scores, mask):
    e = np.exp(scores - scores.max()) * mask
    total = e.sum(axis=-2, keepdims=True)
    return e / np.where(total > 0, total, 1)


@exercise.mistake("A forbidden score is put to 0 before the maximum is taken. What is left of allowed scores that are "
                  "all far below 0?")
def maximum_of_zeros(scores, mask):
    scores = np.where(mask, scores, 0)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True)) * mask
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


@exercise.mistake("A small number was added to the sum, so that it is never 0. But now every row sums to a little less "
                  "than 1. Which rows alone need it?")
def a_little_added(scores, mask):
    scores = np.where(mask, scores, -1e9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True)) * mask
    return e / (e.sum(axis=-1, keepdims=True) + 1e-9)


@exercise.mistake("One number is subtracted from all rows. In a row far below it every exponential is 0, although "
                  "there are allowed keys in it.")
def one_maximum(scores, mask):
    allowed = np.where(mask, scores, -np.inf)
    top = allowed.max()
    e = np.exp(allowed - (top if np.isfinite(top) else 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1)


@exercise.mistake("One number is subtracted from all rows. In a row far below it every exponential is 0, and so is "
                  "their sum: 0 / 0.")
def one_maximum_divided_by_nothing(scores, mask):
    allowed = np.where(mask, scores, -np.inf)
    e = np.exp(allowed - allowed.max())
    return np.where(mask, e / e.sum(axis=-1, keepdims=True), 0)


@exercise.mistake("Two things are no number here: −∞ − (−∞), in a row with nothing left, and NaN + (−∞), in any. What "
                  "is forbidden must be replaced; is it, by a sum?")
def added_infinity(scores, mask):
    return plain(scores + np.where(mask, 0, -np.inf))


@exercise.mistake("NaN + (−∞) is NaN. To add something to a forbidden score does not get rid of it: what would?")
def added_infinity_and_guarded(scores, mask):
    return masked_softmax(scores + np.where(mask, 0, -np.inf), np.ones_like(mask))
