"""Which sequence is it made from?

Write `check_cross_attention(cross_attention)`, which gets an implementation of
`cross_attention(x, context, w_q, w_k, w_v)`, on arrays

    x (L, E), context (S, F), w_q (E, D), w_k (F, D), w_v (F, Dv)  ->  output (L, Dv), weights (L, S)

and raises an AssertionError if the output is not softmax(Q Kᵀ / √D) V, with Q made from x, K and V from context. It
must accept every right one, even one that rounds a little differently. Each mutant takes something from the wrong
place, or sums along the wrong axis. You may draw any inputs. A mutant on which your check breaks down, by whatever
error, counts as found.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_cross_attention",
    starter="""
import numpy as np


def check_cross_attention(cross_attention):
    rng = np.random.default_rng(0)
    x, context = rng.normal(size=(2, 4, 4))                 # two sequences, (4, 4) each
    w_q, w_k, w_v = rng.normal(size=(3, 4, 4))
    output, weights = cross_attention(x, context, w_q, w_k, w_v)
    assert output.shape == (4, 4)
    assert weights.shape == (4, 4)
    assert (weights > 0).all()
""",
    hints=["What are the lengths and the widths in your inputs? If they all differ, no axis can stand in for another.",
           "Shapes do not find everything, whatever they are. Compute Q, K, V and the weights yourself, line by line, "
           "and compare the numbers within a tolerance.",
           "You may call it several times. What must change, and what must not, if you change the context alone?"],
    too_strict="Something right was rejected. Are numbers compared within a tolerance? And x and context are only "
               "those that you gave: their shapes need not be equal, but must fit the matrices.")


def attend(query, key, value, axis=-1, scale=None):
    scores = query @ key.T * (query.shape[-1] ** -0.5 if scale is None else scale)
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    weights = e / e.sum(axis=axis, keepdims=True)
    return weights @ value, weights


@exercise.sound
def sound(x, context, w_q, w_k, w_v):
    """the formula as it stands"""
    return attend(x @ w_q, context @ w_k, context @ w_v)


@exercise.sound
def joined(x, context, w_q, w_k, w_v):
    """W_q W_kᵀ is one matrix, and the values are projected last; it rounds differently"""
    scores = x @ (w_q @ w_k.T) @ context.T / np.sqrt(w_k.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return (weights @ context) @ w_v, weights


@exercise.sound
def one_by_one(x, context, w_q, w_k, w_v):
    """one query after another"""
    rows = [attend(row[None] @ w_q, context @ w_k, context @ w_v) for row in x]
    return np.concatenate([output for output, _ in rows]), np.concatenate([weights for _, weights in rows])


@exercise.solution
def check_cross_attention(cross_attention):
    rng = np.random.default_rng(0)
    x, context = rng.normal(size=(3, 5)), rng.normal(size=(4, 6))
    w_q, w_k, w_v = rng.normal(size=(5, 2)), rng.normal(size=(6, 2)), rng.normal(size=(6, 7))
    output, weights = cross_attention(x, context, w_q, w_k, w_v)
    scores = (x @ w_q) @ (context @ w_k).T / 2 ** 0.5
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.allclose(weights, expected)
    assert np.allclose(output, expected @ (context @ w_v))


@exercise.mutant("One makes its keys from x. When does that raise no error? And what do its weights not depend on?")
def keys_of_x(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, x @ w_k, context @ w_v)


@exercise.mutant("One makes its values from x. Its weights are right: what else is there to compare?")
def values_of_x(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, x @ w_v)


@exercise.mutant("One lets the context ask. How many rows has its output, and would you see it?")
def query_of_context(x, context, w_q, w_k, w_v):
    return attend(context @ w_q, context @ w_k, context @ w_v)


@exercise.mutant("In one, the weights of each key sum to 1 over the queries. What sums to 1 in a right one?")
def over_queries(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, axis=0)


@exercise.mutant("One replaces each word of the context by the mean of all of them. Its shapes are right, and its rows "
                 "sum to 1. Does your check ask which key gets how much?")
def averaged(x, context, w_q, w_k, w_v):
    context = np.broadcast_to(context.mean(axis=0), context.shape)
    return attend(x @ w_q, context @ w_k, context @ w_v)


@exercise.mutant("One makes the values with the keys' matrix. Its weights are right, and if keys and values are "
                 "equally wide, so are its shapes.")
def values_by_w_k(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_k)


@exercise.mutant("One divides by the root of the width of x, not of the keys. Are those two widths equal in your "
                 "inputs?")
def scaled_by_x(x, context, w_q, w_k, w_v):
    return attend(x @ w_q, context @ w_k, context @ w_v, scale=x.shape[-1] ** -0.5)


def drawn():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(3, 5)), rng.normal(size=(4, 6)), rng.normal(size=(5, 2)), rng.normal(size=(6, 2)),
            rng.normal(size=(6, 7)))


@exercise.mistake("All your sizes are equal. Then what comes from the wrong sequence, or is summed along the wrong "
                  "axis, has the right shape. What else is there to look at?")
def equal_shapes(cross_attention):
    output, weights = cross_attention(*np.random.default_rng(0).normal(size=(5, 4, 4)))
    assert output.shape == (4, 4)
    assert weights.shape == (4, 4)


@exercise.mistake("Something is made from the wrong sequence here, and your check does not see it. In what do x and "
                  "context differ in your inputs: in length, in width, in their numbers?")
def the_same_twice(cross_attention):
    rng = np.random.default_rng(0)
    x, w_q, w_k, w_v = rng.normal(size=(3, 5)), *rng.normal(size=(2, 5, 2)), rng.normal(size=(5, 4))
    output, weights = cross_attention(x, x, w_q, w_k, w_v)
    expected = attend(x @ w_q, x @ w_k, x @ w_v)
    assert np.allclose(weights, expected[1])
    assert np.allclose(output, expected[0])


@exercise.mistake("No shape shows what is wrong here. What should each weight be, and what do those of one query sum "
                  "to?")
def shapes_alone(cross_attention):
    output, weights = cross_attention(*drawn())
    assert output.shape == (3, 7)
    assert weights.shape == (3, 4)


@exercise.mistake("Here the weights are right, and something else is not. What are they for?")
def weights_alone(cross_attention):
    rng = np.random.default_rng(0)
    x, context, w_q, w_k, w_v = rng.normal(size=(5, 4, 4))
    w_q, w_k = w_q[:, :3], w_k[:, :3]
    assert np.allclose(cross_attention(x, context, w_q, w_k, w_v)[1], attend(x @ w_q, context @ w_k, context)[1])


@exercise.mistake("You compare the numbers, which is right. But in your inputs some widths are equal, and one is taken "
                  "for the other.")
def equal_widths(cross_attention):
    x, context, w_q, w_k, w_v = np.random.default_rng(0).normal(size=(5, 4, 4))
    expected = attend(x @ w_q, context @ w_k, context @ w_v)
    output, weights = cross_attention(x, context, w_q, w_k, w_v)
    assert np.allclose(weights, expected[1])
    assert np.allclose(output, expected[0])


@exercise.mistake("Two right ways of computing it differ in the last digits; `==` sees that.")
def exact(cross_attention):
    x, context, w_q, w_k, w_v = drawn()
    expected = attend(x @ w_q, context @ w_k, context @ w_v)
    output, weights = cross_attention(x, context, w_q, w_k, w_v)
    assert (output == expected[0]).all()
    assert (weights == expected[1]).all()
