"""A step left out, or in the wrong place

Write `check_attention(attention)`, which gets an implementation of `attention(query, key, value)` on arrays

    (L, D), (S, D), (S, Dv)  ->  output (L, Dv), weights (L, S)

and raises an AssertionError if it is not softmax(Q Kᵀ / √D) V, or if the weights returned are not that softmax. It must
accept every right one, even one that rounds a little differently. In each mutant one step is missing, or at the wrong
place, or done with the wrong thing. Compute what is expected in a way of your own, for example with loops.
"""

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
    assert weights.shape == (4, 4)
    assert np.allclose(output, weights @ value)
""",
    hints=["If all sizes are equal, much can be exchanged without being seen. Which sizes may differ?",
           "Compute the weights by hand, step by step, and compare both results with it: weights *and* output."],
    too_strict="Something right was rejected. Compare within a tolerance. And is your own way of computing it right?")


def soft(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@exercise.sound
def sound(query, key, value):
    """the formula as it stands"""
    weights = soft(query @ key.T / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.sound
def scaled_query(query, key, value):
    """the query is divided before the product, which rounds differently"""
    weights = soft(query / np.sqrt(query.shape[-1]) @ key.T)
    return weights @ value, weights


@exercise.sound
def one_by_one(query, key, value):
    """a loop over the queries, and the division by the sum at the very end"""
    rows, weights = [], []
    for q in query:
        e = np.exp([q @ k / len(q) ** 0.5 for k in key])
        rows.append(sum(w * v for w, v in zip(e, value)) / e.sum())
        weights.append(e / e.sum())
    return np.array(rows), np.array(weights)


@exercise.solution
def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    output, weights = attention(query, key, value)
    e = np.exp(query @ key.T / 5 ** 0.5)
    expected = e / e.sum(axis=1, keepdims=True)
    assert np.allclose(weights, expected)
    assert np.allclose(output, expected @ value)


@exercise.mutant("One leaves out the softmax, and its output is its weights times V. Do you look at the weights?")
def no_softmax(query, key, value):
    weights = query @ key.T / np.sqrt(query.shape[-1])
    return weights @ value, weights


@exercise.mutant("One divides after the softmax, and not before. What do its rows sum to?")
def scaled_afterwards(query, key, value):
    weights = soft(query @ key.T) / np.sqrt(query.shape[-1])
    return weights @ value, weights


@exercise.mutant("One normalises over the queries: columns sum to 1, and rows do not.")
def over_the_queries(query, key, value):
    weights = soft(query @ key.T / np.sqrt(query.shape[-1]), axis=0)
    return weights @ value, weights


@exercise.mutant("One leaves out the division. Its rows sum to 1 as they should; what should the numbers in them be?")
def not_scaled(query, key, value):
    weights = soft(query @ key.T)
    return weights @ value, weights


@exercise.mutant("One lets the keys ask and the queries answer. If there are as many of each, shapes do not tell.")
def exchanged(query, key, value):
    weights = soft(key @ query.T / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.mutant("One weighs the keys, and not the values. Its weights are right; what do you ask of the output?")
def keys_weighed(query, key, value):
    weights = soft(query @ key.T / np.sqrt(query.shape[-1]))
    return weights @ key, weights


@exercise.mutant("One returns the right output, and beside it scores in place of weights.")
def scores_returned(query, key, value):
    scores = query @ key.T / np.sqrt(query.shape[-1])
    return soft(scores) @ value, scores


@exercise.mistake("That output is weights @ V is true of any weights. What must these be?")
def consistent(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4))
    output, weights = attention(query, key, value)
    assert output.shape == weights.shape == (4, 4)
    assert np.allclose(output, weights @ value)


@exercise.mistake("Rows that sum to 1 are not enough: other steps make such rows, too. Which one leaves them so when "
                  "it is left out?")
def rows_sum_to_one(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4))
    output, weights = attention(query, key, value)
    assert np.allclose(weights.sum(axis=-1), 1)
    assert np.allclose(output, weights @ value)


@exercise.mistake("You compare the weights, and nobody looks at what is done with them.")
def weights_alone(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    assert np.allclose(attention(query, key, value)[1], soft(query @ key.T / 5 ** 0.5))


@exercise.mistake("You compare the output, and nobody looks at the weights that are returned with it.")
def output_alone(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    assert np.allclose(attention(query, key, value)[0], soft(query @ key.T / 5 ** 0.5) @ value)


@exercise.mistake("Two right ways of computing it differ in the last digits; `==` sees that.")
def exact(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
    assert (attention(query, key, value)[1] == soft(query @ key.T / np.sqrt(5))).all()


@exercise.mistake("Your own way leaves out the division by √D, so that you reject what is right.")
def expects_unscaled(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4))
    assert np.allclose(attention(query, key, value)[1], soft(query @ key.T))
