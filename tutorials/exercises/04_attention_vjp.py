"""The way back through attention

Write `attention_vjp(g, query, key, value, weights)`. The way forward was

    scores = Q Kᵀ / √D        weights = softmax(scores)        output = weights V

and g = ∂L/∂output, (..., L, Dv), comes back. Return `(dquery, dkey, dvalue)`, the gradients of L with respect to Q, K
and V, each of its shape. The weights (..., L, S) are those of the way forward, so no exponential is needed. All have
the same axes in front. If each query's weights are one-hot, dquery and dkey are 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "attention_vjp",
    starter="""
import numpy as np


def attention_vjp(g, query, key, value, weights):
    \"\"\"gradients with respect to query (..., L, D), key (..., S, D), value (..., S, Dv), from g (..., L, Dv)\"\"\"
    ...
    return dquery, dkey, dvalue
""",
    hints=["The last step first: output = weights V is a product, and sends a gradient to each of its two factors.",
           "What has come to the weights goes through the softmax's rule, p ∘ (g − Σ g∘p), row by row. What is g "
           "there?",
           "Then the division, then the product Q Kᵀ. If you are unsure which to transpose, let the shapes decide: a "
           "gradient has the shape of what it belongs to."])


def soft(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def forward(query, key, value):
    return soft(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])) @ value


def by_differences(g, query, key, value, weights):
    """Each number of each input is moved, and L = Σ g ∘ output computed anew."""
    inputs, h, found = [query, key, value], 1e-5, []
    for i, x in enumerate(inputs):
        slopes = np.empty(x.shape)
        for place in np.ndindex(x.shape):
            values = []
            for step in (h, -h):
                moved = x.copy()
                moved[place] += step
                values.append((g * forward(*inputs[:i], moved, *inputs[i + 1:])).sum())
            slopes[place] = (values[0] - values[1]) / (2 * h)
        found.append(slopes)
    return tuple(found)


def drawn(rng, L, S, D, Dv, batch=()):
    shapes = (L, D), (S, D), (S, Dv), (L, Dv)
    query, key, value, g = (rng.normal(size=(*batch, *shape)) for shape in shapes)
    return g, query, key, value, soft(query @ key.swapaxes(-1, -2) / np.sqrt(D))


QUERY, KEY = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])
TIDY = (np.array([[1.0], [-2.0]]), QUERY, KEY, np.array([[1.0], [3.0]]), soft(QUERY @ KEY.T / np.sqrt(2)))


@exercise.solution
def attention_vjp(g, query, key, value, weights):
    dvalue = weights.swapaxes(-1, -2) @ g
    dweights = g @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


def third(attention_vjp, g, query, key, value, weights):
    return attention_vjp(g, query, key, value, weights)[2]


def first(attention_vjp, g, query, key, value, weights):
    return attention_vjp(g, query, key, value, weights)[0]


def second(attention_vjp, g, query, key, value, weights):
    return attention_vjp(g, query, key, value, weights)[1]


@exercise.check("dvalue", "Value j went into every row of the output, with the weights of column j. So what comes back "
                "to it?", call=third)
def values(rng):
    yield TIDY
    yield drawn(rng, 2, 3, 4, 3)


@exercise.check("dquery", "Four steps lie between the output and the queries. Is each of them there, in reverse order?",
                call=first)
def queries(rng):
    yield TIDY
    yield drawn(rng, 2, 3, 4, 2)


@exercise.check("dkey", "The product Q Kᵀ sends to its right factor, which is Kᵀ. What do you have to do for K?",
                call=second)
def keys(rng):
    yield TIDY
    yield drawn(rng, 2, 3, 4, 2)


@exercise.check("the definition: central differences", "Each number of Q, K and V was moved a little, and L computed "
                "anew. Your gradients are not like that.", expected=by_differences, tolerance=1e-6)
def definition(rng):
    yield drawn(rng, 1, 2, 1, 1)
    yield drawn(rng, 3, 4, 2, 5)


@exercise.check("axes in front", "Each sequence of the batch by itself. Is there a `.T`, which reverses all axes?")
def batches(rng):
    yield drawn(rng, 2, 2, 2, 2, (2,))
    yield drawn(rng, 2, 3, 4, 2, (2, 2))


@exercise.check("one-hot weights", "A saturated softmax sends nothing back, but V gets its share all the same.")
def one_hot(rng):
    g, query, key, value, _ = drawn(rng, 2, 2, 2, 1)
    yield g, query, key, value, np.eye(2)


def back(g, query, key, value, weights):
    dvalue = weights.swapaxes(-1, -2) @ g
    dweights = g @ value.swapaxes(-1, -2)
    return dvalue, weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)), np.sqrt(query.shape[-1])


@exercise.mistake("For V, weights @ g mixes rows of g by the weights of one query. Who sends to value j: a row of the "
                  "weights, or a column?")
def values_not_transposed(g, query, key, value, weights):
    _, dscores, root = back(g, query, key, value, weights)
    return dscores @ key / root, dscores.swapaxes(-1, -2) @ query / root, weights @ g


@exercise.mistake("The three gradients are there, and in another order than the statement's.")
def from_the_last(g, query, key, value, weights):
    dvalue, dscores, root = back(g, query, key, value, weights)
    return dvalue, dscores.swapaxes(-1, -2) @ query / root, dscores @ key / root


@exercise.mistake("Too large by one factor. Between the scores and the softmax there was a division, which has a "
                  "derivative, too.")
def scale_forgotten(g, query, key, value, weights):
    dvalue, dscores, _ = back(g, query, key, value, weights)
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("Too small by one factor: the division is done twice.")
def scale_twice(g, query, key, value, weights):
    dvalue, dscores, root = back(g, query, key, value, weights)
    return dscores @ key / root ** 2, dscores.swapaxes(-1, -2) @ query / root ** 2, dvalue


@exercise.mistake("The gradient goes from the weights to the scores as if they were the same. What is between them?")
def softmax_forgotten(g, query, key, value, weights):
    dvalue, dscores = weights.swapaxes(-1, -2) @ g, g @ value.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("That is p (1 − p), the diagonal of the softmax's Jacobian. Every weight depends on every score of "
                  "its row.")
def only_the_diagonal(g, query, key, value, weights):
    dvalue = weights.swapaxes(-1, -2) @ g
    dscores = g @ value.swapaxes(-1, -2) * weights * (1 - weights) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("In the softmax's rule a mean is subtracted. Which mean: does a key of weight 0 count as much as the "
                  "others?")
def plain_mean(g, query, key, value, weights):
    dvalue, dweights = weights.swapaxes(-1, -2) @ g, g @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - dweights.mean(axis=-1, keepdims=True)) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("In the softmax's rule the mean goes along a row, the keys of one query. Along what does yours go?")
def mean_of_columns(g, query, key, value, weights):
    dvalue, dweights = weights.swapaxes(-1, -2) @ g, g @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-2, keepdims=True)) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("dkey has a row for each key. In which direction must the gradient of the scores lie, to be "
                  "multiplied with the queries?")
def keys_not_transposed(g, query, key, value, weights):
    dvalue, dscores, root = back(g, query, key, value, weights)
    return dscores @ key / root, dscores @ query / root, dvalue


@exercise.mistake("Queries and keys are exchanged: what comes back to one factor of a product is multiplied with the "
                  "*other* one.")
def own_factor(g, query, key, value, weights):
    dvalue, dscores, root = back(g, query, key, value, weights)
    return dscores @ query / root, dscores.swapaxes(-1, -2) @ key / root, dvalue


@exercise.mistake("For one sequence it is right. With axes in front, what does `.T` do?")
def transposed(g, query, key, value, weights):
    dvalue, dweights = weights.T @ g, g @ value.T
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.T @ query, dvalue


@exercise.mistake("In the softmax's rule one mean of the whole table is subtracted. How many softmaxes are in it?")
def one_mean(g, query, key, value, weights):
    dvalue, dweights = weights.swapaxes(-1, -2) @ g, g @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum()) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("Too large: where the scores were divided, you multiply. What is the derivative of s / √D?")
def scale_the_wrong_way(g, query, key, value, weights):
    dvalue, dscores, root = back(g, query, key, value, weights)
    return dscores @ key * root, dscores.swapaxes(-1, -2) @ query * root, dvalue


@exercise.mistake("The sums in the softmax's rule have lost an axis, so that they no longer stand beside their rows. "
                  "(All three gradients are looked at together: dvalue need not be wrong.)")
def axis_lost(g, query, key, value, weights):
    dvalue, dweights = weights.swapaxes(-1, -2) @ g, g @ value.swapaxes(-1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1)) / np.sqrt(query.shape[-1])
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue


@exercise.mistake("Two things: p (1 − p) is only the diagonal of the softmax's Jacobian, and a step between the scores "
                  "and the softmax has not been undone.")
def the_diagonal_unscaled(g, query, key, value, weights):
    dvalue = weights.swapaxes(-1, -2) @ g
    dscores = g @ value.swapaxes(-1, -2) * weights * (1 - weights)
    return dscores @ key, dscores.swapaxes(-1, -2) @ query, dvalue
