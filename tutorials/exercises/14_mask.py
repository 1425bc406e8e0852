"""Nine ways to get a mask wrong

Write `check_attention(attention)`, which gets an implementation of `attention(query, key, value, mask)`, on arrays

    (B, L, D), (B, S, D), (B, S, Dv), mask (B, L, S)  ->  output (B, L, Dv)

and raises an AssertionError if it is not softmax(Q Kᵀ / √D) V over the keys that each query may attend to. The mask is
boolean, and True = may attend. What is masked has weight exactly 0, however large its score, and its key and value,
which are finite, may be anything. A query that may attend to nothing gets an output of 0. The output is all that you
see; no weights are returned. Your check must accept every right implementation.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_attention",
    starter="""
import numpy as np


def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 1, 4, 4))       # three times (1, 4, 4)
    causal = np.tri(4, dtype=bool)[None]
    before = attention(query, key, value, causal)
    key[:, -1] += 1
    value[:, -1] += 1                                       # the last token is another one
    after = attention(query, key, value, causal)
    assert np.isfinite(after).all()
    assert not np.allclose(before[:, -1], after[:, -1])
""",
    hints=["What may a key do that nobody may attend to? Change it a little, and then by a lot, and see what moves.",
           "Take a mask that is no triangle, with another pattern in each sequence, L and S different. And one row "
           "that is False throughout.",
           "Values that are the rows of an identity matrix turn the output into the weights."],
    too_strict="Something right was rejected. A query without keys gets 0, what is masked must be finite, and right "
               "implementations round differently.")


def raw(query, key):
    return query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def masked(scores, mask):
    kept = np.where(mask, scores, -np.inf)
    top = np.where(mask.any(axis=-1, keepdims=True), kept.max(axis=-1, keepdims=True), 0)
    e = np.exp(kept - top)
    return e / np.maximum(e.sum(axis=-1, keepdims=True), 0.5)


@exercise.sound
def sound(query, key, value, mask):
    """masked scores are −∞, and a row without keys is 0"""
    return masked(raw(query, key), mask) @ value


@exercise.sound
def one_by_one(query, key, value, mask):
    """a loop over queries, in which each sees its own keys only"""
    output = np.zeros((*query.shape[:-1], value.shape[-1]))
    for b, i in np.ndindex(query.shape[:-1]):
        mine = mask[b, i]
        if mine.any():
            output[b, i] = softmax(key[b, mine] @ query[b, i] / query.shape[-1] ** 0.5) @ value[b, mine]
    return output


@exercise.sound
def divided_last(query, key, value, mask):
    """values are weighed by exponentials, and divided by their sum at the end"""
    scores = np.where(mask, raw(query, key), -np.inf)
    top = np.where(mask.any(axis=-1, keepdims=True), scores.max(axis=-1, keepdims=True), 0)
    e = np.exp(scores - top)
    return e @ value / np.where(mask.any(axis=-1, keepdims=True), e.sum(axis=-1, keepdims=True), 1)


@exercise.solution
def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((2, 3, 5), (2, 4, 5), (2, 4, 7)))
    mask = rng.random((2, 3, 4)) < 0.6
    mask[:, :, 3] = False
    mask[0, 1] = False
    for push in (0, 1e3):
        key[:, 3] = push * query.sum(axis=1)
        value[:, 3] = push
        output = attention(query, key, value, mask)
        for b, i in np.ndindex(2, 3):
            mine = mask[b, i]
            e = np.exp(key[b, mine] @ query[b, i] / 5 ** 0.5)
            expected = e @ value[b, mine] / e.sum() if mine.any() else np.zeros(7)
            assert np.allclose(output[b, i], expected)


@exercise.mutant("One reads the mask the other way round, True = hidden. What should the first query of a causal mask "
                 "see, and what does it see here?")
def flipped(query, key, value, mask):
    return masked(raw(query, key), ~mask) @ value


@exercise.mutant("One multiplies the scores by the mask. A score of 0 is a score like any other: what is its "
                 "exponential?")
def multiplied(query, key, value, mask):
    return np.where(mask.any(axis=-1, keepdims=True), softmax(raw(query, key) * mask) @ value, 0)


@exercise.mutant("One fills in 1e−20 where −1e20 was meant. Where is the sign, and what weight does such a score get?")
def tiny(query, key, value, mask):
    return np.where(mask.any(axis=-1, keepdims=True), softmax(np.where(mask, raw(query, key), 1e-20)) @ value, 0)


@exercise.mutant("One subtracts 20 from what is masked. Usually that leaves next to nothing. How large would a masked "
                 "score have to be?")
def subtracted(query, key, value, mask):
    return np.where(mask.any(axis=-1, keepdims=True), softmax(raw(query, key) - 20.0 * ~mask) @ value, 0)


@exercise.mutant("One sets the weights of masked keys to 0 after the softmax, and leaves it at that. What do the "
                 "others then sum to?")
def afterwards(query, key, value, mask):
    return (softmax(raw(query, key)) * mask) @ value


@exercise.mutant("One masks after the softmax and makes rows sum to 1 again. That is the same, in exact arithmetic. "
                 "What is left of the kept weights, if a masked score is 1000 above theirs?")
def made_whole_again(query, key, value, mask):
    weights = softmax(raw(query, key)) * mask
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(mask.any(axis=-1, keepdims=True), weights / total, 0) @ value


@exercise.mutant("One uses the first sequence's mask for all of the batch. Do your sequences have masks that differ?")
def of_the_first(query, key, value, mask):
    return masked(raw(query, key), np.broadcast_to(mask[:1], mask.shape)) @ value


@exercise.mutant("One lets a query that may see nothing see everything alike: every score is −1e9, and softmax looks "
                 "at differences. Does your mask have such a row?")
def empty_rows_uniform(query, key, value, mask):
    return softmax(np.where(mask, raw(query, key), -1e9)) @ value


@exercise.mutant("One hides a key for all queries if it is hidden from the first. Does your mask differ from row to "
                 "row?")
def of_the_first_query(query, key, value, mask):
    return masked(raw(query, key), np.broadcast_to(mask[:, :1], mask.shape)) @ value


@exercise.mistake("You see that the last token is heard by its own query. Are the queries before it deaf to it, as "
                  "they should be?")
def what_may_change(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 1, 4, 4))
    causal = np.tri(4, dtype=bool)[None]
    before = attention(query, key, value, causal)
    key[:, -1] += 1
    value[:, -1] += 1
    after = attention(query, key, value, causal)
    assert np.isfinite(after).all()
    assert not np.allclose(before[:, -1], after[:, -1])


@exercise.mistake("That what is hidden changes nothing says what is not in the output. It does not say what is: how "
                  "much of it is there?")
def hidden_changes_nothing(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((2, 3, 5), (2, 4, 5), (2, 4, 7)))
    mask = rng.random((2, 3, 4)) < 0.6
    mask[:, :, 3] = False
    before = attention(query, key, value, mask)
    key[:, 3] += 1
    value[:, 3] += 1
    assert np.allclose(before, attention(query, key, value, mask))


@exercise.mistake("Your numbers are the right ones, where scores are moderate and each query has keys. What are the "
                  "extremes of a mask, and of a masked score?")
def moderate(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((2, 3, 5), (2, 4, 5), (2, 4, 7)))
    mask = rng.random((2, 3, 4)) < 0.6
    mask[:, :, 0] = True
    assert np.allclose(attention(query, key, value, mask), sound(query, key, value, mask))


@exercise.mistake("You ask for NaN where no key is left. The statement settles what such a query gets.")
def nan_for_nothing(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((2, 3, 5), (2, 4, 5), (2, 4, 7)))
    mask = np.zeros((2, 3, 4), dtype=bool)
    assert np.isnan(attention(query, key, value, mask)).all()
