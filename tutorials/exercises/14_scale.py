"""Which root is it divided by?

Write `check_attention(attention)`, which gets an implementation of `attention(query, key, value)`, on arrays

    (..., L, D), (..., S, D), (..., S, Dv)  ->  output (..., L, Dv), weights (..., L, S)

and raises an AssertionError if it is not softmax(Q Kᵀ / √D) V. The leading axes, if there are any, are a batch, or
heads, or both: each matrix along them is by itself. Your check must accept every right implementation, even one that
rounds a little differently. Each mutant divides the scores by something else. You may draw any inputs, and compute what
is expected by hand, in a way of your own.
"""

import math

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_attention",
    starter="""
import numpy as np


def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 4, 4))          # three times (4, 4)
    output, weights = attention(query, key, value)
    assert output.shape == (4, 4)
    assert np.allclose(weights.sum(axis=-1), 1)
""",
    hints=["Every mutant's weights sum to 1. What is wrong must be seen in their sizes: compute what they should be.",
           "If L, S, D and Dv are all different, none can stand in for another. And each size may be special: what do "
           "the root of a number and the number itself have in common at 1? Which roots are whole numbers?",
           "Some faults depend on what stands in front of the last two axes, so give your inputs such axes, too."],
    too_strict="Something right was rejected. Floating-point numbers are compared within a tolerance, and leading axes "
               "are whatever you gave.")


def attend(query, key, value, scale):
    scores = query @ key.swapaxes(-1, -2) * scale
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.sound
def sound(query, key, value):
    """the formula as it stands"""
    return attend(query, key, value, 1 / np.sqrt(query.shape[-1]))


@exercise.sound
def scaled_query(query, key, value):
    """the query is scaled before the product, which rounds differently"""
    return attend(query / np.sqrt(query.shape[-1]), key, value, 1.0)


@exercise.sound
def shared(query, key, value):
    """query and key are each divided by the fourth root of D"""
    root = query.shape[-1] ** 0.25
    return attend(query / root, key / root, value, 1.0)


@exercise.solution
def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(6, 3, 5)), rng.normal(size=(6, 4, 5)), rng.normal(size=(6, 4, 2))
    output, weights = attention(query, key, value)
    for h in range(6):
        scores = query[h] @ key[h].T / 5 ** 0.5
        expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
        assert np.allclose(weights[h], expected)
        assert np.allclose(output[h], expected @ value[h])


@exercise.mutant("One does not divide at all. Are weights that sum to 1 always the right ones?")
def unscaled(query, key, value):
    return attend(query, key, value, 1.0)


@exercise.mutant("One divides by D, not by its root. At which D would you not see it?")
def by_the_width(query, key, value):
    return attend(query, key, value, 1 / query.shape[-1])


@exercise.mutant("One takes the root of another size. Do your inputs have two sizes that are equal?")
def by_the_keys(query, key, value):
    return attend(query, key, value, 1 / np.sqrt(key.shape[-2]))


@exercise.mutant("One takes the width of the values. Do queries and values have the same width in your inputs?")
def by_the_values(query, key, value):
    return attend(query, key, value, 1 / np.sqrt(value.shape[-1]))


@exercise.mutant("One rounds the root to a whole number. For which of your sizes is it a whole number anyway?")
def by_the_whole_root(query, key, value):
    return attend(query, key, value, 1 / math.isqrt(query.shape[-1]))


@exercise.mutant("One takes the width of the model, all heads together. How many heads have your inputs?")
def by_the_model(query, key, value):
    heads = query.shape[-3] if query.ndim > 2 else 1
    return attend(query, key, value, 1 / np.sqrt(heads * query.shape[-1]))


@exercise.mutant("One multiplies by the root where it should divide. At which width do the two agree?")
def multiplied(query, key, value):
    return attend(query, key, value, np.sqrt(query.shape[-1]))


@exercise.mistake("Your check looks at what no scale changes: shapes, sums, or the weights of equal scores. What do "
                  "the weights have to be where scores differ?")
def only_sums(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4))
    output, weights = attention(query, key, value)
    assert output.shape == (4, 4)
    assert np.allclose(weights.sum(axis=-1), 1)


@exercise.mistake("All your sizes are equal, so that the root of one is the root of the other.")
def square(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4))
    assert np.allclose(attention(query, key, value)[1], attend(query, key, value, 0.5)[1])


@exercise.mistake("What a multi-head layer hands to attention has an axis for its heads. What could be divided by "
                  "there that one pair of matrices does not have?")
def one_head(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    assert np.allclose(attention(query, key, value)[1], attend(query, key, value, 1 / np.sqrt(5))[1])


@exercise.mistake("Your sizes differ, but D is a square number. Which roots look like the right one there?")
def a_square_number(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(5, 3, 4)), rng.normal(size=(5, 6, 4)), rng.normal(size=(5, 6, 2))
    assert np.allclose(attention(query, key, value)[1], attend(query, key, value, 1 / np.sqrt(4))[1])


@exercise.mistake("Two right ways of computing it differ in the last digits; `==` sees that.")
def exact(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(6, 3, 5)), rng.normal(size=(6, 4, 5)), rng.normal(size=(6, 4, 2))
    assert (attention(query, key, value)[1] == attend(query, key, value, 1 / np.sqrt(5))[1]).all()
