"""Right shapes along wrong axes

Write `check_attention(attention)`, which gets an implementation of `attention(query, key, value)`, on arrays

    (..., L, D), (..., S, D), (..., S, Dv)  ->  output (..., L, Dv), weights (..., L, S)

and raises an AssertionError if it is not softmax(Q Kᵀ / √D) V, with a softmax over the keys. There may be no leading
axis, or one, or two: each matrix along them is by itself, and the implementation must be right for every number of
them. Every mutant has the right scale, and returns arrays of the right shape for some inputs; something in it goes
along a wrong axis. Your check decides what it is called with. It must accept every right implementation.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_attention",
    starter="""
import numpy as np


def check_attention(attention):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 2, 4, 4))       # three times (2, 4, 4)
    output, weights = attention(query, key, value)
    assert output.shape == weights.shape == (2, 4, 4)
    assert abs(weights.sum() - 2 * 4) < 1e-9                # 2 · 4 rows, each with sum 1
""",
    hints=["An axis can be mistaken for another that is as long. Make no two of your sizes equal.",
           "The last axis of a matrix has number 1; that of a stack of matrices has another number. Which numbers of "
           "leading axes do you try?",
           "Loops over all indices know no axes. What a loop computes, compared number by number, leaves no axis "
           "free."],
    too_strict="Something right was rejected. Do you compare within a tolerance? And does the formula that you compare "
               "with treat each matrix by itself?")


def softmax(scores, axis=-1):
    e = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def scores_of(query, key):
    return query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])


@exercise.sound
def sound(query, key, value):
    """the formula, batched"""
    weights = softmax(scores_of(query, key))
    return weights @ value, weights


@exercise.sound
def by_names_of_axes(query, key, value):
    """written with einsum, which names the axes"""
    weights = softmax(np.einsum("...ld,...sd->...ls", query, key) / np.sqrt(query.shape[-1]))
    return np.einsum("...ls,...sv->...lv", weights, value), weights


@exercise.sound
def transposed(query, key, value):
    """the scores of all keys with all queries, transposed at the end"""
    weights = softmax(key @ query.swapaxes(-1, -2) / np.sqrt(query.shape[-1]), axis=-2).swapaxes(-1, -2)
    return weights @ value, weights


@exercise.solution
def check_attention(attention):
    rng = np.random.default_rng(0)
    for leading in ((), (2,), (2, 6)):
        query, key, value = (rng.normal(size=(*leading, *shape)) for shape in ((3, 5), (4, 5), (4, 7)))
        output, weights = attention(query, key, value)
        for place in np.ndindex(leading):
            for i in range(3):
                scores = np.array([query[place][i] @ key[place][j] for j in range(4)]) / 5 ** 0.5
                expected = np.exp(scores) / np.exp(scores).sum()
                assert np.allclose(weights[place][i], expected)
                assert np.allclose(output[place][i], expected @ value[place])


@exercise.mutant("One takes the softmax over the queries. In which direction do you sum the weights, and of how much "
                 "do you look at the sum alone?")
def over_queries(query, key, value):
    weights = softmax(scores_of(query, key), axis=-2)
    return weights @ value, weights


@exercise.mutant("One makes all weights of a matrix together sum to 1, and then rows have too little. What is the sum "
                 "of one row?")
def over_the_matrix(query, key, value):
    e = np.exp(scores_of(query, key))
    weights = e / e.sum(axis=(-1, -2), keepdims=True)
    return weights @ value, weights


@exercise.mutant("One counts the softmax's axis from the front, and is right for a single matrix. How many axes have "
                 "your inputs?")
def axis_one(query, key, value):
    weights = softmax(scores_of(query, key), axis=1)
    return weights @ value, weights


@exercise.mutant("One counts the axis from the front as if there were always a batch. With two leading axes, what is "
                 "axis 2?")
def axis_two(query, key, value):
    weights = softmax(scores_of(query, key), axis=min(2, query.ndim - 1))
    return weights @ value, weights


@exercise.mutant("One reshapes the keys to (D, S) where it should transpose them. The shapes agree always; which "
                 "numbers meet?")
def reshaped_keys(query, key, value):
    turned = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
    weights = softmax(query @ turned / np.sqrt(query.shape[-1]))
    return weights @ value, weights


@exercise.mutant("One lets each key ask, and each query answer. For which L and S does nobody complain?")
def roles_exchanged(query, key, value):
    weights = softmax(scores_of(key, query))
    return weights @ value, weights


@exercise.mutant("One has the right weights, and computes Vᵀ Pᵀ, which it reshapes to (L, Dv). Do you look at the "
                 "numbers of the output?")
def reshaped_output(query, key, value):
    weights = softmax(scores_of(query, key))
    turned = value.swapaxes(-1, -2) @ weights.swapaxes(-1, -2)
    return turned.reshape(*query.shape[:-1], value.shape[-1]), weights


@exercise.mutant("One takes the softmax over the axis before the matrices, where heads stand. With how many heads "
                 "would rows still sum to 1?")
def over_the_heads(query, key, value):
    weights = softmax(scores_of(query, key), axis=-3 if query.ndim > 2 else -1)
    return weights @ value, weights


@exercise.mutant("One subtracts nothing from the scores and divides by the sum of the first matrix's rows. Does each "
                 "matrix of your stack have sums of its own?")
def sums_of_the_first(query, key, value):
    e = np.exp(scores_of(query, key))
    first = e[(0,) * (e.ndim - 2)]
    weights = e / first.sum(axis=-1, keepdims=True)
    return weights @ value, weights


@exercise.mistake("You sum over everything, and a total does not tell how it is distributed. What must each row do?")
def totals(attention):
    query, key, value = np.random.default_rng(0).normal(size=(3, 2, 4, 4))
    output, weights = attention(query, key, value)
    assert output.shape == weights.shape == (2, 4, 4)
    assert abs(weights.sum() - 2 * 4) < 1e-9


@exercise.mistake("Your rows sum to 1, and they do so for many weights that are not the right ones. And what checks "
                  "the output?")
def rows_sum_to_one(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((2, 3, 5), (2, 4, 5), (2, 4, 7)))
    output, weights = attention(query, key, value)
    assert output.shape == (2, 3, 7)
    assert np.allclose(weights.sum(axis=-1), 1)


@exercise.mistake("A single matrix has so few axes that counting from the front and from the back is the same for some "
                  "of them.")
def one_matrix(attention):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((3, 5), (4, 5), (4, 7)))
    expected = softmax(scores_of(query, key))
    output, weights = attention(query, key, value)
    assert np.allclose(weights, expected)
    assert np.allclose(output, expected @ value)


@exercise.mistake("You compare numbers, and the weights' alone. What is done with the weights afterwards?")
def weights_alone(attention):
    rng = np.random.default_rng(0)
    for leading in ((), (2,), (2, 6)):
        query, key, value = (rng.normal(size=(*leading, *shape)) for shape in ((3, 5), (4, 5), (4, 7)))
        assert np.allclose(attention(query, key, value)[1], softmax(scores_of(query, key)))
