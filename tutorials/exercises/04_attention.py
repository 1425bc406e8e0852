"""Attention, for any number of axes in front

Write `attention(query, key, value)`, which returns the pair `(output, weights)`:

    (..., L, D), (..., S, D), (..., S, Dv)  ->  output (..., L, Dv), weights (..., L, S)

    weights = softmax(Q Kᵀ / √D), along the last axis        output = weights V

Axes in front are broadcast, as `@` does: one query may come with a batch of keys and values. The softmax is yours to
write, too, and must survive scores of 1000 (exercise 03-softmax).
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "attention",
    starter="""
import numpy as np


def attention(query, key, value):
    \"\"\"(..., L, D), (..., S, D), (..., S, Dv) -> output (..., L, Dv), weights (..., L, S)\"\"\"
    ...
""",
    hints=["Write the steps in their order, each on a line of its own, with the shape at its end: compare, scale, "
           "normalise, weigh.",
           "With axes in front, which two must be swapped to turn keys? And along which axis is the softmax?"])


def soft(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@exercise.solution
def attention(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.check("one query, three keys", "The scores by hand are 1, 0 and 1, then divided by √2. The first and the "
                "third weight are equal, 0.4011….")
def one_query(rng):
    yield np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.eye(3, 4)


@exercise.check("sizes that differ", "L, S, D and Dv are all different here. Which two lengths must be equal in each "
                "of the two products?")
def sizes(rng):
    for L, S, D, Dv in ((2, 3, 1, 4), (3, 2, 4, 1), (3, 5, 4, 2)):
        yield rng.normal(size=(L, D)), rng.normal(size=(S, D)), rng.normal(size=(S, Dv))


@exercise.check("axes in front", "Each sequence of the batch by itself. Is there a `.T`, or an axis that you counted "
                "from the front?")
def batches(rng):
    yield rng.normal(size=(2, 1, 2)), rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 1))
    for batch in ((3,), (2, 3)):
        yield rng.normal(size=(*batch, 2, 3)), rng.normal(size=(*batch, 4, 3)), rng.normal(size=(*batch, 4, 2))


@exercise.check("one query for a whole batch of keys, or the other way round", "Axes in front are broadcast, as "
                "NumPy's `@` does by itself, if they do not stand in its way.")
def broadcast(rng):
    yield rng.normal(size=(2, 3)), rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4, 2))
    yield rng.normal(size=(2, 2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    yield rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(2, 4, 2))


@exercise.check("large scores", "Which exponential overflows? A softmax may subtract something from every row.")
def large(rng):
    yield np.array([[1000.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [2.0]])
    yield np.array([[1000.0], [1.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [2.0]])
    yield np.array([[1000.0]]), np.array([[-1.0], [-2.0]]), np.array([[1.0], [2.0]])
    yield np.array([[1000.0]]), np.array([[-1.0], [1.0]]), np.array([[1.0], [2.0]])
    yield 1e3 * rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))


@exercise.mistake("The weights are as if the scores had not been divided by anything.")
def not_scaled(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2))
    return weights @ value, weights


@exercise.mistake("The scores are divided by the width itself, which makes the weights too much alike. What is taken "
                  "of it first?")
def by_the_length(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / query.shape[-1])
    return weights @ value, weights


@exercise.mistake("You divide by the root of the *values'* width. Which vectors are in the dot product?")
def by_the_values(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / np.sqrt(value.shape[-1]))
    return weights @ value, weights


@exercise.mistake("You divide by the root of the number of keys. How many products does a dot product add "
                  "up?")
def by_the_keys(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / np.sqrt(key.shape[-2]))
    return weights @ value, weights


@exercise.mistake("You divide after the softmax, so that the weights no longer sum to 1. Which step comes first?")
def scaled_afterwards(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2)) / np.sqrt(query.shape[-1])
    return weights @ value, weights


@exercise.mistake("Here each key shares itself out among the queries. It is the query that has one unit to give: which "
                  "axis are the keys along?")
def over_the_queries(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]), axis=-2)
    return weights @ value, weights


@exercise.mistake("With axes in front, `.T` reverses them all. Which two did you want to swap?")
def transposed(query, key, value):
    weights = soft(query @ key.T / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.mistake("`transpose(0, 2, 1)` asks for exactly three axes, and here are two, or four. Count the two that you "
                  "swap from the end.")
def three_axes(query, key, value):
    weights = soft(query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.mistake("`@` takes rows of the left and columns of the right. Which way do the keys lie?")
def not_transposed(query, key, value):
    weights = soft(query @ key / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.mistake("For small scores it is right. What is exp(1000)?")
def overflows(query, key, value):
    e = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("The output alone is returned. The weights are wanted as well, to look at: what does the statement "
                  "say?")
def output_alone(query, key, value):
    return soft(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])) @ value


@exercise.mistake("Both are right, in the other order.")
def the_other_order(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    return weights, weights @ value


@exercise.mistake("These are scores, and there is no softmax: they may be negative, and their rows do not sum to 1.")
def no_softmax(query, key, value):
    weights = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    return weights @ value, weights


@exercise.mistake("You divide by the root of the number of queries, which is 1 in the first check. What has that to "
                  "do with how large a dot product is?")
def by_the_queries(query, key, value):
    weights = soft(query @ key.swapaxes(-1, -2) / np.sqrt(len(query)))
    return weights @ value, weights


@exercise.mistake("One number is subtracted from the scores of all queries. In a row far below it every exponential is "
                  "0, and 0 / 0 is no number.")
def one_maximum(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max())
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("The maxima or the sums of the softmax have lost an axis: with one query that does no harm. With "
                  "two, how do their shapes line up with the scores?")
def axis_lost(query, key, value):
    e = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    weights = e / e.sum(axis=-1)
    return weights @ value, weights


@exercise.mistake("You subtract something from each row, and an exponential is still infinite. With scores of 1000 and "
                  "−1000, how far above their mean is the largest?")
def mean_subtracted(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.mean(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("You limit the scores. Two that are beyond the limit are equal then, whatever they were: do their "
                  "weights still depend on their difference?")
def clipped(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(np.clip(scores, -700, 700))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights
