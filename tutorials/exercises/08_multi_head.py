"""Multi-head self-attention in NumPy

Write `multi_head_attention(x, w_q, w_k, w_v, w_o)`: x (L, E) -> (L, E), for one sequence. `w_q`, `w_k` and `w_v` are
(H, E, D), one matrix for each head; `w_o` is (H·D, E).

    headₕ = softmax(X W_qₕ (X W_kₕ)ᵀ / √D) X W_vₕ        output = [head₀ … headₕ …] W_o

The heads stand side by side, in order. A loop over heads will do, and so will an axis. D is the width of a head, and
need not be E // H. Scores may be in the thousands.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "multi_head_attention",
    starter="""
import numpy as np


def multi_head_attention(x, w_q, w_k, w_v, w_o):
    \"\"\"x (L, E), w_q, w_k, w_v (H, E, D), w_o (H·D, E) -> (L, E)\"\"\"
    ...
""",
    hints=["Begin with one head: queries, keys, scores, a softmax along each row, the average of the values. That is "
           "tutorial 04.",
           "`np.concatenate` of a list of (L, D) arrays sets them one below the other, unless you name an axis.",
           "Does your softmax subtract the largest score of each row?"])


@exercise.solution
def multi_head_attention(x, w_q, w_k, w_v, w_o):
    query, key, value = x @ w_q, x @ w_k, x @ w_v
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(w_q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = e / e.sum(axis=-1, keepdims=True) @ value
    return np.concatenate(list(heads), axis=-1) @ w_o


def drawn(rng, L, E, H, D, size=1):
    """x, the three matrices of each head, times size, and w_o, in numbers of one decimal, none 0."""
    def numbers(*shape):
        return rng.integers(1, 20, shape) * rng.choice([-1, 1], shape) / 10
    return numbers(L, E), *(size * numbers(3, H, E, D)), numbers(H * D, E)


@exercise.check("one position", "A query that has one key gives it weight 1. Then the output is the values of all "
                "heads, side by side, times W_o.")
def one_position(rng):
    one = np.eye(2)
    heads = np.array([one[:, :1], one[:, 1:]])
    yield np.array([[1.0, 2.0]]), heads, heads, heads, one
    yield np.array([[1.0, 2.0]]), heads, heads, heads, np.array([[0.0, 1.0], [2.0, 0.0]])
    yield drawn(rng, 1, 4, 2, 2)


@exercise.check("one head", "With H = 1 this is attention as you know it, times W_o. Compare it with the steps of "
                "tutorial 04.")
def one_head(rng):
    yield drawn(rng, 2, 2, 1, 2)
    yield drawn(rng, 3, 2, 1, 2)


@exercise.check("several heads", "Every head has its own scores and its own softmax. In which order do the heads "
                "stand, and which features are one head's?")
def several(rng):
    yield drawn(rng, 2, 2, 2, 1)
    yield drawn(rng, 2, 4, 2, 2)
    yield drawn(rng, 3, 4, 2, 2)
    yield drawn(rng, 3, 6, 3, 2)


@exercise.check("heads of another width", "D is here not E // H. Where do you take the widths from?")
def other_widths(rng):
    yield drawn(rng, 2, 2, 1, 1)
    yield drawn(rng, 2, 4, 3, 1)
    yield drawn(rng, 3, 2, 3, 4)


@exercise.check("large scores", "exp of a score in the thousands is no number; and what is left of a row far below the "
                "maximum that was subtracted? Tutorial 03 has the remedy.")
def large(rng):
    yield np.array([[1.0], [2.0]]), *np.full((2, 1, 1, 1), 30.0), np.ones((1, 1, 1)), np.ones((1, 1))
    yield (np.array([[1.0], [2.0]]), np.full((1, 1, 1), 30.0), np.full((1, 1, 1), -30.0), np.ones((1, 1, 1)),
           np.ones((1, 1)))
    yield drawn(rng, 2, 4, 2, 2, size=60)


def attend(x, w_q, w_k, w_v, scale, axis=-1):
    scores = x @ w_q @ (x @ w_k).swapaxes(-1, -2) * scale
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True) @ (x @ w_v)


@exercise.mistake("The scores of a head are sums of D products. Which width did you take the root of?")
def scaled_by_the_model(x, w_q, w_k, w_v, w_o):
    heads = attend(x, w_q, w_k, w_v, 1 / np.sqrt(x.shape[-1]))
    return np.concatenate(list(heads), axis=-1) @ w_o


@exercise.mistake("The scores are not divided at all. How far are those of a head spread?")
def unscaled(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1.0)), axis=-1) @ w_o


@exercise.mistake("The heads, (H, L, D), became (L, H·D) in one step. With several positions, whose features are in "
                  "the first row?")
def merged_by_reshape(x, w_q, w_k, w_v, w_o):
    return attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1])).reshape(len(x), -1) @ w_o


@exercise.mistake("The weights of each key sum to 1, and those of each query do not. Which axis of the scores "
                  "belongs to the keys?")
def softmax_over_queries(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1]), axis=-2)), axis=-1) @ w_o


@exercise.mistake("The heads are side by side, but nothing mixes what they found. What is the last matrix for?")
def without_w_o(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1]))), axis=-1)


@exercise.mistake("W_o is met from the wrong side: its rows belong to the features of the heads, its columns to "
                  "those of the output.")
def w_o_transposed(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1]))), axis=-1) @ w_o.T


@exercise.mistake("With scores in the thousands exp is infinite. What may be subtracted from a row without a change of "
                  "its weights?")
def without_the_maximum(x, w_q, w_k, w_v, w_o):
    e = np.exp(x @ w_q @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[-1]))
    return np.concatenate(list(e / e.sum(axis=-1, keepdims=True) @ (x @ w_v)), axis=-1) @ w_o


@exercise.mistake("What meets W_o is as wide as one head, D, but W_o has H·D rows. Are your heads set one below the "
                  "other, or sent through it one by one? Along which axis do they join?")
def one_below_the_other(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1])))) @ w_o


@exercise.mistake("You divide by the width of a head. The width is the variance of the scores: what is their standard "
                  "deviation?")
def scaled_by_the_width(x, w_q, w_k, w_v, w_o):
    return np.concatenate(list(attend(x, w_q, w_k, w_v, 1 / w_q.shape[-1])), axis=-1) @ w_o


@exercise.mistake("It takes for granted that H·D is E, and here it is not. From which arrays can H and D be read?")
def width_taken_for_granted(x, w_q, w_k, w_v, w_o):
    heads = attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1]))
    return heads.swapaxes(0, 1).reshape(x.shape) @ w_o


@exercise.mistake("You subtract the largest score of all. A row that lies far below it has nothing left, and 0 / 0. "
                  "Whose maximum does each row need?")
def one_maximum_for_all(x, w_q, w_k, w_v, w_o):
    scores = x @ w_q @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[-1])
    e = np.exp(scores - scores.max())
    return np.concatenate(list(e / e.sum(axis=-1, keepdims=True) @ (x @ w_v)), axis=-1) @ w_o


@exercise.mistake("The heads alternate in your rows: the first feature of each head, then the second of each. W_o "
                  "expects one head's features to stand together.")
def heads_alternate(x, w_q, w_k, w_v, w_o):
    heads = attend(x, w_q, w_k, w_v, 1 / np.sqrt(w_q.shape[-1]))
    return np.stack(list(heads), axis=-1).reshape(len(x), -1) @ w_o


@exercise.mistake("The `.T` of an array (H, L, D) turns around all three axes, the heads too. Which two should change "
                  "places?")
def transposed_with_the_heads(x, w_q, w_k, w_v, w_o):
    scores = x @ w_q @ (x @ w_k).T / np.sqrt(w_q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = e / e.sum(axis=-1, keepdims=True) @ (x @ w_v)
    return heads.swapaxes(0, 1).reshape(len(x), -1) @ w_o
