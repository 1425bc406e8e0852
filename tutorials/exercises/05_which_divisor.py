"""Scores of variance 1, whatever the components are

The components of queries and keys are independent, with mean 0. Those of queries have variance `query_variance`, and
those of keys `key_variance`. Write `scores(query, key, query_variance, key_variance)`:

    query (..., L, d_k), key (..., S, d_k)  ->  (..., L, S)

the dot product of each query with each key, divided by one number, so that each score has variance 1. The number
depends on d_k and on the two variances. It is not estimated from the arrays: they may hold a single query and a single
key. With both variances 1 these are the scores of attention.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "scores",
    starter="""
import numpy as np


def scores(query, key, query_variance, key_variance):
    \"\"\"(..., L, d_k), (..., S, d_k) -> (..., L, S), of variance 1\"\"\"
    ...
""",
    hints=["Repeat section 1 of tutorial 05, with E[q₁²] and E[k₁²] as they are here. What is the variance of the "
           "sum?",
           "Dividing a number by c divides its variance by c². And which axis of `key` must be swapped with which, so "
           "that `@` multiplies over d_k?"])


def raw(query, key):
    return query @ np.swapaxes(key, -1, -2)


@exercise.solution
def scores(query, key, query_variance, key_variance):
    variance = query.shape[-1] * query_variance * key_variance
    return query @ np.swapaxes(key, -1, -2) / np.sqrt(variance)


@exercise.check("variances of 1", "Four products of variance 1 make a score of variance 4. By what is it divided, so "
                "that 1 is left?")
def ones(rng):
    yield np.array([[3.0]]), np.array([[2.0]]), 1.0, 1.0
    yield np.ones((1, 4)), np.ones((1, 4)), 1.0, 1.0
    yield np.ones((2, 4)), np.ones((3, 4)), 1.0, 1.0


@exercise.check("other variances", "Multiply numbers by 2, and their variance is 4 times as large. What does that mean "
                "for the divisor?")
def others(rng):
    yield np.array([[2.0]]), np.array([[1.0]]), 4.0, 1.0
    yield np.ones((1, 4)), np.ones((1, 4)), 0.25, 4.0
    yield np.ones((2, 9)), np.ones((3, 9)), 2.0, 0.5
    yield rng.normal(size=(3, 5)), rng.normal(size=(2, 5)), 3.0, 7.0


@exercise.check("several axes in front", "Only the last two axes are those of the matrices; all before stay in place.")
def batches(rng):
    yield rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4)), 1.0, 2.0
    yield rng.normal(size=(2, 1, 3, 6)), rng.normal(size=(2, 4, 2, 6)), 0.1, 1.0


def spread(scores, d_k, query_variance, key_variance):
    """The standard deviation of a quarter of a million scores, to one digit."""
    rng = np.random.default_rng(1)
    query = np.sqrt(query_variance) * rng.normal(size=(500, d_k))
    key = np.sqrt(key_variance) * rng.normal(size=(500, d_k))
    return round(float(np.std(scores(query, key, query_variance, key_variance))), 1)


@exercise.check("measured: the standard deviation of 500 x 500 drawn scores", "The spread of drawn scores is not 1. "
                "How does it depend on d_k, and how on the two variances?", call=spread,
                expected=lambda d_k, query_variance, key_variance: 1.0)
def measured(rng):
    yield 16, 1.0, 1.0
    yield 64, 0.25, 0.25
    yield 256, 4.0, 0.5


@exercise.mistake("That is √d_k alone, which fits components of variance 1. Where do the two variances come in?")
def of_unit_variance(query, key, query_variance, key_variance):
    return raw(query, key) / np.sqrt(query.shape[-1])


@exercise.mistake("You divide by the variance of the score. Dividing by c divides the variance by c²: what is "
                  "left of it?")
def by_the_variance(query, key, query_variance, key_variance):
    return raw(query, key) / (query.shape[-1] * query_variance * key_variance)


@exercise.mistake("d_k stands under the root, and the variances are outside of it. What has the units of a score: a "
                  "variance or its root?")
def root_of_the_width_alone(query, key, query_variance, key_variance):
    return raw(query, key) / (np.sqrt(query.shape[-1]) * query_variance * key_variance)


@exercise.mistake("You add the two variances. That is for a sum of a query's and a key's component; a score is made of "
                  "products.")
def variances_added(query, key, query_variance, key_variance):
    return raw(query, key) / np.sqrt(query.shape[-1] * (query_variance + key_variance))


@exercise.mistake("The number under the root counts keys. How many *terms* has the sum that makes one score?")
def by_the_number_of_keys(query, key, query_variance, key_variance):
    return raw(query, key) / np.sqrt(key.shape[-2] * query_variance * key_variance)


@exercise.mistake("These scores are as wide as before, or wider. Do you divide by the root, or multiply by it?")
def multiplied(query, key, query_variance, key_variance):
    return raw(query, key) * np.sqrt(query.shape[-1] * query_variance * key_variance)


@exercise.mistake("Your scores have their own mean and spread taken out. The divisor must be known before any score "
                  "is: what if there is one score alone?")
def estimated(query, key, query_variance, key_variance):
    found = raw(query, key)
    return (found - found.mean()) / found.std()


@exercise.mistake("`query * key` multiplies component by component, and adds nothing up. What makes one number of two "
                  "vectors?")
def componentwise(query, key, query_variance, key_variance):
    return query * key / np.sqrt(query.shape[-1] * query_variance * key_variance)


@exercise.mistake("`.T` reverses all axes. Which two of them should be swapped?")
def all_axes_reversed(query, key, query_variance, key_variance):
    return query @ key.T / np.sqrt(query.shape[-1] * query_variance * key_variance)


@exercise.mistake("The number under the root counts queries. How many *terms* has the sum that makes one score?")
def by_the_number_of_queries(query, key, query_variance, key_variance):
    return raw(query, key) / np.sqrt(query.shape[-2] * query_variance * key_variance)


@exercise.mistake("You divide by the spread of one product. A score is a sum of products: how many?")
def without_the_width(query, key, query_variance, key_variance):
    return raw(query, key) / np.sqrt(query_variance * key_variance)


@exercise.mistake("You divide by the spread of the scores that you have. Of a single score it is 0. Which number is "
                  "known before any score is?")
def by_the_spread_found(query, key, query_variance, key_variance):
    found = raw(query, key)
    return found / found.std()
