"""Find the heads that were put together wrongly

Write `check_multi_head(multi_head)`, which gets an implementation of `multi_head(x, w_q, w_k, w_v, w_o)`, on arrays

    x (L, E), w_q, w_k, w_v (H, E, D), w_o (E, E)  ->  output (L, E)

with D = E // H, and raises an AssertionError if it is not multi-head self-attention, [head₀ … headₕ …] W_o, with
headₕ = attention(X W_qₕ, X W_kₕ, X W_vₕ). It must accept every right one, even one that rounds a little differently.
You may use `attention` of this package, which returns output and weights. The shapes of all mutants are right.
"""

import numpy as np

from tinygrad_attn import attention
from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_multi_head",
    starter="""
import numpy as np

from tinygrad_attn import attention


def check_multi_head(multi_head):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 4))                             # (L, E)
    w_q, w_k, w_v = rng.normal(size=(3, 2, 4, 2))           # each (H, E, D)
    w_o = np.eye(4)
    output = multi_head(x, w_q, w_k, w_v, w_o)
    expected = [attention(x @ w_q[h], x @ w_k[h], x @ w_v[h])[0] for h in range(2)]
    assert output.shape == (1, 4)
    assert np.allclose(output, np.concatenate(expected, axis=-1))
""",
    hints=["One of the sizes in the starter hides nearly every fault. What are the weights, if there is one key?",
           "A matrix that is special, such as the identity, hides what it is done to."],
    too_strict="Something right was rejected. Floating-point numbers are compared within a tolerance, and what you "
               "compare with must have the scale of a head, the heads in order, and W_o behind them.",
    imports=("tinygrad_attn.attention",))


def attend(query, key, value, scale=None):
    scores = query @ key.swapaxes(-1, -2) * (1 / np.sqrt(query.shape[-1]) if scale is None else scale)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ value


@exercise.sound
def with_an_axis(x, w_q, w_k, w_v, w_o):
    """all heads at once, by an axis of their own"""
    heads = attend(x @ w_q, x @ w_k, x @ w_v)
    return heads.swapaxes(0, 1).reshape(len(x), -1) @ w_o


@exercise.sound
def added_up(x, w_q, w_k, w_v, w_o):
    """head by head, each times its rows of W_o, and added up: it rounds differently"""
    D = w_q.shape[-1]
    return sum(attend(x @ w_q[h], x @ w_k[h], x @ w_v[h]) @ w_o[h * D:(h + 1) * D] for h in range(len(w_q)))


@exercise.sound
def by_wide_matrices(x, w_q, w_k, w_v, w_o):
    """one product for the queries of all heads, which are split afterwards"""
    H, _, D = w_q.shape
    wide = [x @ w.swapaxes(0, 1).reshape(-1, H * D) for w in (w_q, w_k, w_v)]
    heads = attend(*(a.reshape(-1, H, D).swapaxes(0, 1) for a in wide))
    return heads.swapaxes(0, 1).reshape(len(x), -1) @ w_o


@exercise.solution
def check_multi_head(multi_head):
    rng = np.random.default_rng(0)
    x, w_o = rng.normal(size=(5, 6)), rng.normal(size=(6, 6))
    w_q, w_k, w_v = rng.normal(size=(3, 3, 6, 2))
    heads = [attention(x @ w_q[h], x @ w_k[h], x @ w_v[h])[0] for h in range(3)]
    assert np.allclose(multi_head(x, w_q, w_k, w_v, w_o), np.concatenate(heads, axis=-1) @ w_o)


@exercise.mutant("One joins the heads by reshape alone. At how many positions, and at how many heads, is that right?")
def merged_by_reshape(x, w_q, w_k, w_v, w_o):
    return attend(x @ w_q, x @ w_k, x @ w_v).reshape(len(x), -1) @ w_o


@exercise.mutant("One cuts queries, keys and values into heads by reshape alone, and merges rightly. Does your "
                 "check use several heads and several positions at once?")
def split_by_reshape(x, w_q, w_k, w_v, w_o):
    H, _, D = w_q.shape
    wide = [(x @ w.swapaxes(0, 1).reshape(-1, H * D)).reshape(H, -1, D) for w in (w_q, w_k, w_v)]
    return attend(*wide).swapaxes(0, 1).reshape(len(x), -1) @ w_o


@exercise.mutant("One divides by the root of the model's width. At which number of heads, or of positions, does "
                 "that not matter?")
def scaled_by_the_model(x, w_q, w_k, w_v, w_o):
    heads = attend(x @ w_q, x @ w_k, x @ w_v, 1 / np.sqrt(x.shape[-1]))
    return heads.swapaxes(0, 1).reshape(len(x), -1) @ w_o


@exercise.mutant("In one, all heads share the queries of the first. Do your heads have queries that differ, and "
                 "more than one key to choose from?")
def one_query_matrix(x, w_q, w_k, w_v, w_o):
    heads = attend(x @ w_q[:1], x @ w_k, x @ w_v)
    return heads.swapaxes(0, 1).reshape(len(x), -1) @ w_o


@exercise.mutant("One gives every head the average of all heads. Do your heads have values that differ?")
def heads_averaged(x, w_q, w_k, w_v, w_o):
    heads = attend(x @ w_q, x @ w_k, x @ w_v).mean(axis=0)
    return np.concatenate([heads] * len(w_q), axis=-1) @ w_o


@exercise.mutant("One multiplies by W_o transposed. For which W_o would you not see it?")
def w_o_transposed(x, w_q, w_k, w_v, w_o):
    return attend(x @ w_q, x @ w_k, x @ w_v).swapaxes(0, 1).reshape(len(x), -1) @ w_o.T


@exercise.mutant("One joins the features in another order: the first of each head, then the second of each. How many "
                 "heads, and how many features in each, does it take to see that?")
def heads_alternate(x, w_q, w_k, w_v, w_o):
    return np.moveaxis(attend(x @ w_q, x @ w_k, x @ w_v), 0, -1).reshape(len(x), -1) @ w_o


@exercise.mutant("One sets the heads side by side in reverse order. Would your check notice, if head 0 and the last "
                 "head changed places?")
def in_reverse(x, w_q, w_k, w_v, w_o):
    return attend(x @ w_q, x @ w_k, x @ w_v)[::-1].swapaxes(0, 1).reshape(len(x), -1) @ w_o


def expected(x, w_q, w_k, w_v, w_o):
    return added_up(x, w_q, w_k, w_v, w_o)


def drawn(L, H, D):
    rng = np.random.default_rng(0)
    E = H * D
    return (rng.normal(size=(L, E)), *rng.normal(size=(3, H, E, D)), rng.normal(size=(E, E)))


@exercise.mistake("Most mutants pass: their shapes are right, and nothing in your check asks for the right numbers. "
                  "What should they be?")
def only_the_shape(multi_head):
    assert multi_head(*drawn(3, 2, 2)).shape == (3, 4)


@exercise.mistake("With one position, the only key has weight 1 whatever the score is, and each order of the axes "
                  "is the same. How many positions does it take to mix them up?")
def one_position(multi_head):
    inputs = drawn(1, 2, 2)
    assert np.allclose(multi_head(*inputs), expected(*inputs))


@exercise.mistake("With one head there is nothing to split, to merge or to share. Take more.")
def one_head(multi_head):
    inputs = drawn(3, 1, 4)
    assert np.allclose(multi_head(*inputs), expected(*inputs))


@exercise.mistake("Two right implementations add the same numbers in another order, and differ in the last digits. "
                  "Compare within a tolerance.")
def exact(multi_head):
    inputs = drawn(5, 3, 2)
    assert (multi_head(*inputs) == expected(*inputs)).all()


@exercise.mistake("Your heads are set side by side, but W_o is the identity: no mutant that mistreats it is seen.")
def identity(multi_head):
    *inputs, _ = drawn(5, 3, 2)
    assert np.allclose(multi_head(*inputs, np.eye(6)), expected(*inputs, np.eye(6)))


@exercise.mistake("Heads of width 1 have no order of their features, and the root of that width is 1. Make them wider.")
def narrow_heads(multi_head):
    inputs = drawn(3, 4, 1)
    assert np.allclose(multi_head(*inputs), expected(*inputs))


@exercise.mistake("The starter has one position, so that each weight is 1, and W_o is the identity. Which numbers "
                  "would leave a fault nowhere to hide?")
def as_it_was(multi_head):
    *inputs, _ = drawn(1, 2, 2)
    assert np.allclose(multi_head(*inputs, np.eye(4)), expected(*inputs, np.eye(4)))
