"""Cross-attention

Write `cross_attention(x, context, w_q, w_k, w_v)`, on arrays

    x (..., L, E), context (..., S, F), w_q (E, D), w_k (F, D), w_v (F, Dv)

that returns two arrays, the output (..., L, Dv) and the weights (..., L, S). The queries are made from x, the keys and
the values from context, and the output is softmax(Q Kᵀ / √D) V. The dots stand for any leading axes, such as one for
the sentences of a batch, or none. Scores may be in the thousands.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "cross_attention",
    starter="""
import numpy as np


def cross_attention(x, context, w_q, w_k, w_v):
    \"\"\"(..., L, E), (..., S, F) -> output (..., L, Dv), weights (..., L, S)\"\"\"
    ...
""",
    hints=["Three products make Q, K and V. Write the shape of each at the end of its line, then that of the scores.",
           "`.T` of an array with three axes turns around all of them. Only the last two should change places: "
           "`swapaxes` does that.",
           "The softmax goes along the keys, the last axis of the scores; `keepdims=True` makes the division fit."])


@exercise.solution
def cross_attention(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.check("one word of context", "With a single key there is nothing to choose from: each weight is 1, and each "
                "row of the output is the one value. Which sequence is the value made from?")
def single(rng):
    yield np.array([[2.0]]), np.array([[3.0]]), np.array([[1.0]]), np.array([[1.0]]), np.array([[10.0]])
    yield inputs(rng, (1, 2), (1, 2), 1, 2)


@exercise.check("two sequences of the same length", "Go through it step by step, by hand for the smallest input: Q of "
                "x, K and V of context, the scores, what they are divided by, the softmax along the keys.")
def alike(rng):
    yield inputs(rng, (2, 1), (2, 1), 1, 1)
    yield inputs(rng, (2, 2), (2, 2), 2, 2)
    yield inputs(rng, (4, 3), (4, 3), 3, 3)


@exercise.check("different sizes", "The weights are (L, S) and the output is (L, Dv): which axis is summed over in "
                "each product?")
def different(rng):
    yield inputs(rng, (1, 2), (2, 1), 1, 3)
    yield inputs(rng, (2, 3), (1, 2), 2, 1)
    yield inputs(rng, (2, 3), (3, 1), 4, 5)


@exercise.check("a batch", "With leading axes, only the last two take part in the product and in the softmax; all "
                "others stay where they are.")
def batch(rng):
    yield inputs(rng, (2, 1, 2), (2, 2, 1), 2, 1)
    yield inputs(rng, (2, 1, 2, 2), (2, 1, 3, 1), 2, 3)


@exercise.check("each row of weights sums to 1", "Each query spreads exactly 1 over the keys. Along which axis do they "
                "lie?", call=lambda cross_attention, x, context, w_q, w_k, w_v:
                cross_attention(x, context, w_q, w_k, w_v)[1].sum(axis=-1),
                expected=lambda x, context, w_q, w_k, w_v: np.ones(x.shape[:-1]))
def rows(rng):
    yield inputs(rng, (1, 1), (2, 1), 1, 1)
    yield inputs(rng, (3, 2), (4, 2), 2, 2)


@exercise.check("large scores", "exp(1000) overflows. Lesson 03 had a remedy that changes no weight.")
def large(rng):
    yield np.array([[1000.0]]), np.array([[1.0], [2.0]]), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))
    yield np.array([[1000.0], [1.0]]), np.array([[1.0], [2.0]]), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))
    yield np.array([[1000.0]]), np.array([[-1.0], [-2.0]]), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))
    yield np.array([[1000.0]]), np.array([[1.0], [-1.0]]), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))


def inputs(rng, x, context, D, Dv):
    """Two sequences of these shapes and the three matrices, in numbers of one decimal, none 0."""
    shapes = x, context, (x[-1], D), (context[-1], D), (context[-1], Dv)
    return tuple(rng.integers(1, 20, shape) * rng.choice([-1, 1], shape) / 10 for shape in shapes)


def attend(query, key, value, scale=None, axis=-1):
    scores = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    weights = e / e.sum(axis=axis, keepdims=True)
    return weights @ value, weights


@exercise.mistake("This is right inside: the weights are missing in what comes back. How does a function return two "
                  "things?")
def output_alone(x, context, w_q, w_k, w_v):
    return cross_attention(x, context, w_q, w_k, w_v)[0]


@exercise.mistake("Here the keys are made from the sequence that asks. Which sequence is it that answers?")
def keys_of_x(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, x @ w_k, context @ w_v)


@exercise.mistake("Queries, keys and values all come from x. That is self-attention: what is the context there for?")
def self_attention(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, x @ w_k, x @ w_v)


@exercise.mistake("The two sequences have changed their roles: here the context asks, and x answers.")
def the_other_way(x, context, w_q, w_k, w_v):
    return attend(context @ w_q, x @ w_k, x @ w_v)


@exercise.mistake("The weights are too sharp wherever keys are wider than 1. What are the scores divided by, before "
                  "the softmax?")
def unscaled(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, scale=1.0)


@exercise.mistake("The scores are divided by D, not by its root. Which of the two is the standard deviation of a "
                  "score?")
def scaled_by_the_width(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, scale=1 / w_q.shape[-1])


@exercise.mistake("The sums of the rows have lost an axis, and are laid along the columns. With L = S no error tells. "
                  "What keeps the axis?")
def axis_lost(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    e = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    weights = e / e.sum(axis=-1)
    return weights @ value, weights


@exercise.mistake("You divide by the root of the width of x. But the sums that make the scores are as long as a key: "
                  "how long is that?")
def scaled_by_x(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, scale=x.shape[-1] ** -0.5)


@exercise.mistake("In your weights columns sum to 1. Each row belongs to one query, and is what it spreads over the "
                  "keys.")
def over_queries(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, axis=-2)


@exercise.mistake("Without a batch it is right. `.T` turns around all axes, not only the last two: what becomes of the "
                  "batch?")
def transposed(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ key.T / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("For scores of ordinary size it is right. At 1000, which intermediate result is infinite?")
def no_maximum(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    e = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("You divide by the root of the width of a value. The scores are made before any value is looked at: "
                  "what are they sums over?")
def scaled_by_a_value(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, scale=w_v.shape[-1] ** -0.5)


@exercise.mistake("All your weights together sum to 1, not those of each row. Each query has 1 of its own to spread "
                  "over the keys.")
def over_everything(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, axis=None)


@exercise.mistake("`transpose(0, 2, 1)` asks for exactly three axes, and here are two, or four. Count the two that "
                  "change places from the end.")
def three_axes(x, context, w_q, w_k, w_v):
    query, key = x @ w_q, context @ w_k
    return attend(query, key.transpose(0, 2, 1).swapaxes(-1, -2), context @ w_v)


@exercise.mistake("Axes 1 and 2 are the last two of a batch. Here there is no batch, or one of two axes: how do you "
                  "count from the end?")
def axes_one_and_two(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ np.swapaxes(key, 1, 2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("The maxima have kept their axis, and the sums have lost it: with L = S they are laid along the "
                  "columns, and no error tells.")
def axis_of_the_sums_lost(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1)
    return weights @ value, weights


@exercise.mistake("One number is subtracted from all rows. In a row far below it every exponential is 0, and 0 / 0 is "
                  "no number.")
def one_maximum(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.max())
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("You subtract something from each row, and an exponential is still infinite. With scores of 1000 and "
                  "−1000, how far above their mean is the largest?")
def mean_subtracted(x, context, w_q, w_k, w_v):
    query, key, value = x @ w_q, context @ w_k, context @ w_v
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(scores - scores.mean(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights
