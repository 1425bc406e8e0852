"""What shape comes out?

A cross-attention gets x of shape (7, 12), context of shape (5, 10), and the matrices W_q of shape (12, 4), W_k of
shape (10, 4) and W_v of shape (10, 6). What is the shape of its output? Answer with a tuple.
"""

import numpy as np

from tinygrad_attn import attention
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a shape, such as (2, 3)
""",
    hints=["Write down the shapes of Q, K and V first, and then that of Q Kᵀ. Which of these lengths are summed over "
           "on the way to the output?",
           "The output has one row for each one who asks, and each row is a weighted sum of rows of V."])


@exercise.solution
def answer():
    x, context = np.ones((7, 12)), np.ones((5, 10))
    output, _ = attention(x @ np.ones((12, 4)), context @ np.ones((10, 4)), context @ np.ones((10, 6)))
    return output.shape


@exercise.mistake("That is the shape of the weights, one for each query and key. What are they multiplied by?")
def of_the_weights():
    return (7, 5)


@exercise.mistake("The width 4 is that of queries and keys, which are only compared. What is it that the weights add "
                  "up?")
def as_wide_as_keys():
    return (7, 4)


@exercise.mistake("There would be one row for each word of the context. Who asks, and how many of them are there?")
def as_long_as_the_context():
    return (5, 6)


@exercise.mistake("The output need not be as wide as x. Nothing of x itself is in it, only sums of values: how wide is "
                  "a value?")
def like_x():
    return (7, 12)


@exercise.mistake("The values are not the context itself. What does W_v make of a row of width 10?")
def as_wide_as_the_context():
    return (7, 10)
