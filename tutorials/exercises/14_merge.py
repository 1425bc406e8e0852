"""Heads that were split and merged, but how?

Write `check_heads(multi_head)`, which gets an implementation of `multi_head(x, w_q, w_k, w_v, w_o, heads)`, on arrays

    x (B, L, E), four matrices (E, E)  ->  output (B, L, E)

and raises an AssertionError if it is not multi-head self-attention without a mask, as follows. With D = E // heads,
head h uses the columns h·D to (h + 1)·D, exclusive, of w_q, w_k and w_v, and attends with the scale 1/√D. The outputs
of the heads, (B, L, D) each, stand side by side in the order of the heads, and w_o is multiplied from the right. Every
mutant returns the right shape. Your check must accept every right implementation.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_heads",
    starter="""
import numpy as np


def check_heads(multi_head):
    rng = np.random.default_rng(0)
    x, one = rng.normal(size=(1, 1, 4)), np.eye(4)          # a single token attends to itself
    assert np.allclose(multi_head(x, one, one, one, one, 2), x)
""",
    hints=["With one token, or one head, or matrices that are the identity, many ways of cutting are the same.",
           "A loop over heads, with the columns of each cut out by a slice, needs no reshape and no transpose. Compare "
           "with that.",
           "Shapes that no fault can hide behind: B, L, D and the number of heads all different, and all above 1."],
    too_strict="Something right was rejected. Is the order of the heads the one that is asked for, and do you compare "
               "within a tolerance?")


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)            # (B, H, L, D)


def merge(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)         # (B, L, E)


def attend(query, key, value, width=None):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(width or query.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ value


@exercise.sound
def sound(x, w_q, w_k, w_v, w_o, heads):
    """all heads at once, by one more axis"""
    return merge(attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v)))) @ w_o


@exercise.sound
def one_by_one(x, w_q, w_k, w_v, w_o, heads):
    """a loop over heads, whose outputs are concatenated"""
    parts = zip(*(np.split(x @ w, heads, axis=-1) for w in (w_q, w_k, w_v)))
    return np.concatenate([attend(*part) for part in parts], axis=-1) @ w_o


@exercise.sound
def summed(x, w_q, w_k, w_v, w_o, heads):
    """each head's output times its own rows of w_o, and the sum of these"""
    rows = np.split(w_o, heads, axis=0)
    parts = zip(*(np.split(x @ w, heads, axis=-1) for w in (w_q, w_k, w_v)))
    return sum(attend(*part) @ mine for part, mine in zip(parts, rows))


@exercise.solution
def check_heads(multi_head):
    rng = np.random.default_rng(0)
    B, L, H, D = 2, 5, 3, 4
    x = rng.normal(size=(B, L, H * D))
    w_q, w_k, w_v, w_o = rng.normal(size=(4, H * D, H * D))
    expected = np.zeros(x.shape)
    for h in range(H):
        mine = slice(h * D, (h + 1) * D)
        for b in range(B):
            query, key, value = x[b] @ w_q[:, mine], x[b] @ w_k[:, mine], x[b] @ w_v[:, mine]
            scores = query @ key.T / D ** 0.5
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            expected[b] += e / e.sum(axis=1, keepdims=True) @ value @ w_o[mine]
    assert np.allclose(multi_head(x, w_q, w_k, w_v, w_o, H), expected)


@exercise.mutant("One merges by reshape, without moving the axis of the heads back. With how many tokens does that "
                 "scramble something?")
def merged_straight(x, w_q, w_k, w_v, w_o, heads):
    return attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v))).reshape(x.shape) @ w_o


@exercise.mutant("One splits by reshape, straight to (B, H, L, D), and merges in the same way. The two undo each "
                 "other. What did a head get to see?")
def split_straight(x, w_q, w_k, w_v, w_o, heads):
    B, L, E = x.shape
    parts = ((x @ w).reshape(B, heads, L, E // heads) for w in (w_q, w_k, w_v))
    return attend(*parts).reshape(x.shape) @ w_o


@exercise.mutant("One gives every H-th column to a head, and puts them back there. Which columns belong together is "
                 "part of the statement: do your matrices tell columns apart?")
def interleaved(x, w_q, w_k, w_v, w_o, heads):
    B, L, E = x.shape
    parts = ((x @ w).reshape(B, L, E // heads, heads).transpose(0, 3, 1, 2) for w in (w_q, w_k, w_v))
    return attend(*parts).transpose(0, 2, 3, 1).reshape(x.shape) @ w_o


@exercise.mutant("One splits as it should, and merges with the heads' axis last, so that their columns alternate. What "
                 "does w_o find in its first rows?")
def merged_alternating(x, w_q, w_k, w_v, w_o, heads):
    return attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v))).transpose(0, 2, 3, 1).reshape(x.shape) @ w_o


@exercise.mutant("One lets the heads attend to each other, at each position by itself, instead of positions. What "
                 "becomes of the output if another token changes?")
def across_heads(x, w_q, w_k, w_v, w_o, heads):
    parts = ((x @ w).reshape(*x.shape[:2], heads, -1) for w in (w_q, w_k, w_v))         # (B, L, H, D)
    return attend(*parts).reshape(x.shape) @ w_o


@exercise.mutant("One takes √E for the scale, and not the root of a head's width. How many heads have you?")
def scaled_by_the_model(x, w_q, w_k, w_v, w_o, heads):
    return merge(attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v)), width=x.shape[-1])) @ w_o


@exercise.mutant("One uses the keys of the first head for all heads. Do your heads have keys that differ?")
def keys_of_the_first(x, w_q, w_k, w_v, w_o, heads):
    query, key, value = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return merge(attend(query, key[:, :1], value)) @ w_o


@exercise.mutant("One leaves out w_o, as if the heads needed no mixing. Which w_o would not show that?")
def without_mixing(x, w_q, w_k, w_v, w_o, heads):
    return merge(attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v))))


@exercise.mutant("One multiplies by the transpose of w_o. Which matrices are their own transpose?")
def mixed_by_the_transpose(x, w_q, w_k, w_v, w_o, heads):
    return merge(attend(*(split(x @ w, heads) for w in (w_q, w_k, w_v)))) @ w_o.T


@exercise.mistake("One token has nothing to be confused with, and its only weight is 1. How many are needed for a "
                  "scramble to show?")
def one_token(multi_head):
    x, one = np.random.default_rng(0).normal(size=(1, 1, 4)), np.eye(4)
    assert np.allclose(multi_head(x, one, one, one, one, 2), x)


@exercise.mistake("With one head there is nothing to split and nothing to merge. Which number of heads makes a wrong "
                  "cut visible?")
def one_head(multi_head):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 5, 12)), rng.normal(size=(4, 12, 12))
    assert np.allclose(multi_head(x, *w, 1), sound(x, *w, 1))


@exercise.mistake("You compare numbers, but with matrices that are the identity. What would such a w_o never tell you?")
def identities(multi_head):
    x, one = np.random.default_rng(0).normal(size=(2, 5, 12)), np.eye(12)
    assert np.allclose(multi_head(x, one, one, one, one, 3), sound(x, one, one, one, one, 3))


@exercise.mistake("That permuting tokens permutes the output is true of each head's work, right or not. Which faults "
                  "treat all tokens alike?")
def equivariance(multi_head):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 5, 12)), rng.normal(size=(4, 12, 12))
    assert np.allclose(multi_head(x, *w, 3)[:, ::-1], multi_head(x[:, ::-1], *w, 3))
