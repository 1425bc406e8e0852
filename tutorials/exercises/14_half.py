"""Attention in sixteen bits

A float16 has about three digits. Its largest number is 65,504, and what is beyond becomes infinite; between 2048 and
4096 it knows every second whole number only.

Write `check_half(attention)`, which gets an implementation of `attention(query, key, value, mask)`, on float16 arrays

    (L, D), (S, D), (S, Dv), and a boolean mask (L, S), True = may attend  ->  output (L, Dv), float16

It is right if it agrees, to 2 % of the largest element of `value`, with softmax(Q Kᵀ / √D) V over the keys that each
query may attend to, as float64 computes it from the same inputs, provided that Q Kᵀ / √D is below 60,000 in size. What
is masked has weight 0, and a query that may attend to nothing gets an output of 0. Every mutant is right for a few
small inputs and a mask that leaves each query some keys.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_half",
    starter="""
import numpy as np


def check_half(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 4, 4)).astype(np.float16)       # three times (4, 4)
    output = attention(query, key, value, np.tri(4, dtype=bool))
    assert output.dtype == np.float16
    assert np.isfinite(output).all()
""",
    hints=["Which intermediate results can leave the range of float16 although inputs and output are inside it? Go "
           "through the formula, product by product and sum by sum.",
           "Make each of these large by itself: a score, the exponential of one, the number of keys, the values. And a "
           "mask with an empty row.",
           "In float64 you can compute what is expected by the formula, with any way of masking that works there."],
    too_strict="Something right was rejected. Two per cent of the largest value is what float16 is given here, and a "
               "scaled score of 60,000 is as large as it gets.")


def softmax(scores, mask):
    kept = np.where(mask, scores, -np.inf)
    top = np.where(mask.any(axis=-1, keepdims=True), kept.max(axis=-1, keepdims=True), 0)
    e = np.exp(kept - top)
    return e / np.maximum(e.sum(axis=-1, keepdims=True, dtype=np.float32), np.float32(0.5))


def wide(query, key, dtype=np.float32):
    return query.astype(dtype) @ key.astype(dtype).T / query.shape[-1] ** 0.5


def half(scores):
    return scores.astype(np.float16)


@exercise.sound
def sound(query, key, value, mask):
    """all of it in float32, rounded at the end"""
    return half(softmax(wide(query, key), mask) @ value.astype(np.float32))


@exercise.sound
def doubled(query, key, value, mask):
    """all of it in float64, a row at a time"""
    output = np.zeros((len(query), value.shape[-1]))
    for i, mine in enumerate(mask):
        if mine.any():
            scores = wide(query[i:i + 1], key[mine], np.float64)[0]
            e = np.exp(scores - scores.max())
            output[i] = e / e.sum() @ value[mine]
    return half(output)


@exercise.sound
def short_weights(query, key, value, mask):
    """scores in float32; the weights are rounded to float16 before they meet the values"""
    return half(softmax(wide(query, key), mask)) @ value


@exercise.solution
def check_half(attention):
    rng = np.random.default_rng(0)

    def compare(query, key, value, mask):
        query, key, value = (np.asarray(x, np.float16) for x in (query, key, value))
        output = attention(query, key, value, mask)
        assert output.dtype == np.float16
        q, k, v = (x.astype(float) for x in (query, key, value))
        for i in range(len(q)):
            scores = k @ q[i] / len(q[i]) ** 0.5
            e = np.exp(scores[mask[i]] - scores[mask[i]].max()) if mask[i].any() else np.zeros(0)
            expected = e @ v[mask[i]] / max(e.sum(), 1e-9)
            assert np.isfinite(output[i]).all()
            assert (abs(output[i] - expected) < 0.02 * abs(v).max()).all()

    mask = np.array([[True, False, True, True], [False] * 4, [False, True, False, True]])
    compare(rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2)), mask)
    for size in (5, 60):
        query, key = rng.normal(size=(3, 64)), rng.normal(size=(4, 64))
        key[:3] = query
        compare(size * query, size * key, rng.normal(size=(4, 2)), mask)
        compare(size * query, -size * key, rng.normal(size=(4, 2)), mask)
    compare(np.zeros((3, 5)), rng.normal(size=(4, 5)), np.full((4, 2), 3e4), mask)
    for many in (5_000, 70_000):
        compare(np.zeros((1, 5)), np.zeros((many, 5)), np.ones((many, 1)), np.ones((1, many), dtype=bool))


@exercise.mutant("In one, exponentials are taken of scores as they are. From which score on is that infinite in "
                 "float16?")
def without_the_maximum(query, key, value, mask):
    e = half(np.exp(half(wide(query, key)))) * mask
    total = e.sum(axis=-1, keepdims=True)
    return half(e / np.where(mask.any(axis=-1, keepdims=True), total, 1)) @ value


@exercise.mutant("One divides by √D after the product. The scaled scores fit into float16. Do the ones before that?")
def scaled_too_late(query, key, value, mask):
    scores = (query @ key.T) / np.float16(query.shape[-1] ** 0.5)
    return half(softmax(scores.astype(np.float32), mask) @ value.astype(np.float32))


@exercise.mutant("One adds −1e9 to what is masked. What is that in float16, and what are differences in a row that has "
                 "nothing else?")
def minus_1e9(query, key, value, mask):
    scores = half(wide(query, key)) + np.where(mask, 0, -1e9).astype(np.float16)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return half(e / e.sum(axis=-1, keepdims=True, dtype=np.float32)) @ value


@exercise.mutant("One adds −10,000 to what is masked, because that fits into float16. By how much can two scores "
                 "differ?")
def minus_10000(query, key, value, mask):
    scores = wide(query, key) + np.where(mask, 0, -1e4).astype(np.float32)
    weights = softmax(scores, np.ones_like(mask)) * mask.any(axis=-1, keepdims=True)
    return half(weights @ value.astype(np.float32))


@exercise.mutant("One takes the most negative float16 for masked scores. In an empty row all scores are then alike: "
                 "what are the weights?")
def most_negative(query, key, value, mask):
    scores = np.where(mask, half(wide(query, key)), np.finfo(np.float16).min).astype(np.float32)
    return half(softmax(scores, np.ones_like(mask)) @ value.astype(np.float32))


@exercise.mutant("In one, the exponentials, which are at most 1, are summed in float16. How many ones make more than "
                 "65,504?")
def sum_overflows(query, key, value, mask):
    kept = np.where(mask, wide(query, key), -np.inf)
    e = half(np.exp(kept - np.where(mask.any(axis=-1, keepdims=True), kept.max(axis=-1, keepdims=True), 0)))
    total = np.maximum(e.sum(axis=-1, keepdims=True), np.float16(0.5))
    return half((e.astype(np.float32) / total) @ value.astype(np.float32))


@exercise.mutant("One sums in float16, one number after another. What is 2048 + 1 there? How many keys does it take?")
def sum_stands_still(query, key, value, mask):
    kept = np.where(mask, wide(query, key), -np.inf)
    e = half(np.exp(kept - np.where(mask.any(axis=-1, keepdims=True), kept.max(axis=-1, keepdims=True), 0)))
    total = np.maximum(np.cumsum(e, axis=-1)[:, -1:], np.float16(0.5))
    return half((e.astype(np.float32) / total) @ value.astype(np.float32))


@exercise.mutant("One weighs the values with exponentials, and divides last. How large is that sum before it is "
                 "divided, if values are large?")
def divided_last(query, key, value, mask):
    kept = np.where(mask, wide(query, key), -np.inf)
    e = half(np.exp(kept - np.where(mask.any(axis=-1, keepdims=True), kept.max(axis=-1, keepdims=True), 0)))
    total = np.maximum(e.sum(axis=-1, keepdims=True, dtype=np.float32), 0.5)
    return half((e @ value) / total)


@exercise.mutant("One subtracts the largest of all scores, of the masked ones too. What is left of exp of the kept "
                 "ones, if a masked score is far above them?")
def largest_of_all(query, key, value, mask):
    scores = wide(query, key)
    e = half(np.exp(scores - scores.max(axis=-1, keepdims=True))) * mask
    total = e.sum(axis=-1, keepdims=True, dtype=np.float32)
    return half(e / np.where(total > 0, total, 1)) @ value


@exercise.mistake("With four small keys nothing is large. What in attention grows with the inputs, and what with the "
                  "number of keys?")
def small(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float16)
    output = attention(query, key, value, np.tri(4, dtype=bool))
    assert output.dtype == np.float16
    assert np.isfinite(output).all()


@exercise.mistake("Your scores are large, and all that is finite passes. Numbers can be finite and wrong: what should "
                  "they be?")
def finite(attention):
    rng = np.random.default_rng(0)
    query, key, value = (60 * rng.normal(size=(3, 4, 64))).astype(np.float16)
    key[:] = query
    for sign in (1, -1):
        output = attention(query, sign * key, value, np.tri(4, k=-1, dtype=bool))
        assert np.isfinite(output).all()


@exercise.mistake("You compare numbers, in small cases only. Which of the formula's parts have you not yet made large?")
def moderate(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape).astype(np.float16) for shape in ((3, 5), (4, 5), (4, 2)))
    mask = np.array([[True, False, True, True], [False] * 4, [False, True, False, True]])
    output, expected = attention(query, key, value, mask), doubled(query, key, value, mask)
    assert np.allclose(output, expected, atol=0.02)


@exercise.mistake("Four digits are more than float16 has.")
def four_digits(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape).astype(np.float16) for shape in ((3, 5), (4, 5), (4, 2)))
    mask = np.array([[True, False, True, True], [False] * 4, [False, True, False, True]])
    exact = softmax(wide(query, key), mask) @ value.astype(np.float64)
    assert np.allclose(attention(query, key, value, mask), exact, rtol=1e-5, atol=1e-6)
