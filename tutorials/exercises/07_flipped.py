"""Is this attention causal?

Write `check_causal_attention(attention)`, which gets an implementation of causal attention on arrays,

    attention(query (L, D), key (S, D), value (S, Dv))  ->  output (L, Dv), weights (L, S),    L ≤ S

and raises an AssertionError if it is not softmax(Q Kᵀ / √D) V with a causal mask, aligned at the lower right: query i
sees the keys 0 … i + S − L. Each mutant does something else with the mask. Those that are right may round a little
differently.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_causal_attention",
    starter="""
import numpy as np


def check_causal_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 4, 2))          # three times (4, 2)
    output, weights = attention(query, key, value)
    assert weights.shape == (4, 4)
    assert (np.abs(weights.sum(axis=1) - 1) < 1e-9).all()
""",
    hints=["Write down by hand which weights must be zero, for L = 2 and S = 4. Must the others be something as well?",
           "Compute the weights yourself, row by row: the softmax of the allowed scores of that row. Then compare all "
           "of them."],
    too_strict="Something right was rejected. Is there a tolerance? And is the mask that you expect aligned at the "
               "lower right, with the word itself allowed?")


def attend(query, key, value, mask):
    scores = np.where(mask, query @ key.T / np.sqrt(query.shape[-1]), -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total > 0, total, 1)
    return weights @ value, weights


def triangle(query, key, shift=0):
    L, S = len(query), len(key)
    return np.tri(L, S, S - L + shift, dtype=bool)


@exercise.sound
def sound(query, key, value):
    """the formula, with the mask before the softmax"""
    return attend(query, key, value, triangle(query, key))


@exercise.sound
def row_by_row(query, key, value):
    """each query with the keys that it may see, and no mask"""
    L, S = len(query), len(key)
    output, weights = np.zeros((L, value.shape[1])), np.zeros((L, S))
    for i in range(L):
        seen = i + S - L + 1
        scores = (key[:seen] / np.sqrt(query.shape[1])) @ query[i]
        e = np.exp(scores - scores.max())
        weights[i, :seen] = e / e.sum()
        output[i] = weights[i, :seen] @ value[:seen]
    return output, weights


@exercise.solution
def check_causal_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
    output, weights = attention(query, key, value)
    for i in range(3):
        e = np.exp(key[:i + 3] @ query[i] / 2 ** 0.5)
        expected = np.append(e / e.sum(), np.zeros(2 - i))
        assert np.allclose(weights[i], expected)
        assert np.allclose(output[i], expected @ value)


@exercise.mutant("One has its mask the other way round, and sees nothing but the future. What is the weight of the "
                 "last key for the first query?")
def flipped(query, key, value):
    return attend(query, key, value, ~triangle(query, key))


@exercise.mutant("In one, no query sees its own key. Do you look at the diagonal?")
def strict(query, key, value):
    return attend(query, key, value, triangle(query, key, -1))


@exercise.mutant("One sets forbidden weights to 0 after the softmax. Its zeros are right: what is wrong with the rest?")
def afterwards(query, key, value):
    _, weights = attend(query, key, value, True)
    weights = weights * triangle(query, key)
    return weights @ value, weights


@exercise.mutant("One adds the mask to the scores, as 0 and 1. Its rows sum to 1: are its zeros there?")
def added(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1]) + triangle(query, key)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mutant("One is aligned at the upper left, and sees less than it should. With how many keys does that make a "
                 "difference, and which weights must then not be zero?")
def upper_left(query, key, value):
    return attend(query, key, value, np.tri(len(query), len(key), dtype=bool))


@exercise.mutant("In one, queries and keys have changed places in the mask: the first query sees everything. Which "
                 "weights should be zero?")
def transposed(query, key, value):
    L, S = len(query), len(key)
    return attend(query, key, value, np.arange(S) - (S - L) >= np.arange(L)[:, None])


@exercise.mutant("One lets each query see its own key and the one before, and none that are older. Which weights must "
                 "not be zero?")
def window(query, key, value):
    return attend(query, key, value, triangle(query, key) & ~triangle(query, key, -2))


@exercise.mistake("In your inputs there are as many keys as queries. Then upper left and lower right are the same.")
def square(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 2))
    output, weights = attention(query, key, value)
    expected = attend(query, key, value, np.tri(4, dtype=bool))
    assert np.allclose(weights, expected[1])
    assert np.allclose(output, expected[0])


@exercise.mistake("What must be zero is zero here. Your check does not ask what the other weights have to be.")
def zeros_alone(attention):
    rng = np.random.default_rng(0)
    weights = attention(rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4)))[1]
    assert (weights[~np.tri(3, 5, 2, dtype=bool)] == 0).all()


@exercise.mistake("The rows of this one sum to 1, as those of any softmax do. Which keys get the weight, and which "
                  "must get none?")
def sums_alone(attention):
    rng = np.random.default_rng(0)
    weights = attention(rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4)))[1]
    assert np.allclose(weights.sum(axis=1), 1)


@exercise.mistake("Two right ways of computing it differ in the last digits; `==` sees that.")
def exact(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
    assert (attention(query, key, value)[1] == attend(query, key, value, triangle(query, key))[1]).all()
