"""The shapes of every step

In a batch, the queries have shape (2, 5, 8), the keys (2, 7, 8) and the values (2, 7, 3). Which shapes have

1. the keys, transposed as the product needs them,
2. the scores,
3. the weights,
4. the output?

Give a tuple of four tuples, in this order.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = (
    ...,            # the transposed keys, such as (1, 2, 3)
    ...,            # the scores
    ...,            # the weights
    ...,            # the output
)
""",
    hints=["Name the sizes first: which of them is B, L, S, D, Dv? The batch stays in front all the way.",
           "A product (…, n, m) @ (…, m, k) has shape (…, n, k). Go through the two products with that rule."])


@exercise.solution
def answer():
    query, key, value = np.ones((2, 5, 8)), np.ones((2, 7, 8)), np.ones((2, 7, 3))
    turned = key.swapaxes(-1, -2)
    scores = query @ turned
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return turned.shape, scores.shape, weights.shape, (weights @ value).shape


@exercise.mistake("That is `.T`, which turns round all axes, the batch's as well. Each sequence must stay in its "
                  "place.")
def all_axes_reversed():
    return (8, 7, 2), (2, 5, 7), (2, 5, 7), (2, 5, 3)


@exercise.mistake("In the scores a row belongs to one that asks. How many ask, and how many are asked?")
def scores_transposed():
    return (2, 8, 7), (2, 7, 5), (2, 7, 5), (2, 5, 3)


@exercise.mistake("The output is a mixture of values. How wide is a mixture of vectors of one width?")
def output_like_the_query():
    return (2, 8, 7), (2, 5, 7), (2, 5, 7), (2, 5, 8)


@exercise.mistake("The output has one row for each that *asks*, and the keys do not ask.")
def output_like_the_value():
    return (2, 8, 7), (2, 5, 7), (2, 5, 7), (2, 7, 3)


@exercise.mistake("The softmax makes weights of scores one by one. Its sum over an axis is only what it divides by.")
def softmax_reduces():
    return (2, 8, 7), (2, 5, 7), (2, 5), (2, 5, 3)


@exercise.mistake("The keys are not turned yet: with which of its axes does the left factor meet the right one?")
def not_transposed():
    return (2, 7, 8), (2, 5, 7), (2, 5, 7), (2, 5, 3)


@exercise.mistake("That is for one sequence of the batch. Where is the axis in front?")
def without_the_batch():
    return (8, 7), (5, 7), (5, 7), (5, 3)
