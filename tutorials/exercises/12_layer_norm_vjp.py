"""The gradient of layer norm

Write `layer_norm_vjp(g, x, weight)`: (..., n), (..., n), (n,) -> (..., n). With

    y = (x − mean) / s,   s = √(variance + 1e-5),   out = y · weight

along the last axis, it gets g = dL/d out and returns dL/dx. Tutorial 12 derived the Jacobian J of y for one row. Do it
for all rows at once, and without building any n × n matrix.
"""

import tracemalloc

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "layer_norm_vjp",
    starter="""
import numpy as np


def layer_norm_vjp(g, x, weight):
    \"\"\"(..., n), (..., n), (n,) -> (..., n)\"\"\"
    ...
""",
    hints=["First go back through the product with the weight: what is dL/dy? Then apply J to it.",
           "The matrix 1 1ᵀ / n, applied to a row, fills a row with the mean of its numbers. What does y yᵀ / n do to "
           "a row? Only means along the last axis are needed."])


@exercise.solution
def layer_norm_vjp(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / s


def by_differences(g, x, weight, h=1e-6):
    def loss(x):
        y = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        return (g * y * weight).sum()
    found = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        found[i] = (loss(x + step) - loss(x - step)) / (2 * h)
    return found


@exercise.check("one row, against a difference", "Each x moves its own y, and also the mean and the spread, and so all "
                "other y of its row.", expected=by_differences, tolerance=1e-5)
def differences(rng):
    yield np.array([1.0, 0.0, 0.0]), np.array([1.0, 2.0, 4.0]), np.ones(3)
    yield rng.normal(size=4), rng.normal(size=4), np.ones(4)


@exercise.check("several rows", "The same as for one row, for each row by itself: all means are along the last axis.")
def rows(rng):
    for shape in ((2, 3), (3, 3), (2, 3, 4)):
        yield rng.normal(size=shape), 2 * rng.normal(size=shape), np.ones(shape[-1])


@exercise.check("with a weight", "The weight multiplies y in the forward pass. So what comes back to y?")
def weighted(rng):
    for shape in ((3,), (2, 3), (2, 3, 4)):
        yield rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape[-1])


@exercise.check("directions that do not matter: the sums of rows",
                "Adding a number to a whole row changes no y, so the gradient of each row "
                "sums to 0. (These are the sums.)",
                call=lambda f, g, x, weight: np.sum(f(g, x, weight), axis=-1).round(9) + 0, tolerance=1e-7)
def sums(rng):
    yield rng.normal(size=(2, 5)), 10 * rng.normal(size=(2, 5)), rng.normal(size=5)


@exercise.check("a row without spread", "There y is 0, and s is √1e-5, not 0: the gradient is large, and finite.")
def flat(rng):
    yield np.array([1.0, 0.0, 2.0]), np.array([3.0, 3.0, 3.0]), np.ones(3)


def memory(layer_norm_vjp, g, x, weight):
    """What is the largest that the function holds at one time, in arrays of the size of x?"""
    tracemalloc.start()
    layer_norm_vjp(g, x, weight)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return "no more than 50 arrays of n numbers" if most < 50 * x.nbytes else "as much as an (n, n) matrix"


@exercise.check("memory, at 500 numbers", "A matrix of 500 by 500 was made on the way.", call=memory)
def thrift(rng):
    yield rng.normal(size=500), rng.normal(size=500), rng.normal(size=500)


@exercise.mistake("That would be right if mean and s were constants. How do they move when one x moves?")
def constants(g, x, weight):
    return g * weight / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


@exercise.mistake("The mean is accounted for. But s also depends on every x of the row; which term of J is that?")
def constant_spread(g, x, weight):
    g = g * weight
    return (g - g.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


@exercise.mistake("The spread is accounted for. But the mean also depends on every x of the row; which term of J is "
                  "that?")
def constant_mean(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return (g - y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("Right as long as all weights are 1. The weight is the last thing that the forward pass does: at "
                  "which place does it come on the way back?")
def weight_last(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y = (x - x.mean(axis=-1, keepdims=True)) / s
    return weight * (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("With several rows, your means go over all of them. Along which axis was the forward pass?")
def over_everything(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return (g - g.mean() - y * (g * y).mean()) / s


@exercise.mistake("Right but for the size: how does dy depend on s? Look at what stands in front of the bracket in J.")
def not_divided(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)


@exercise.mistake("The last term is n times too large: compare your sum along y with y yᵀ / n.")
def a_sum_for_a_mean(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).sum(axis=-1, keepdims=True)) / s


def with_y(g, x, weight):
    s = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / s, s, g * weight


@exercise.mistake("Your last term is made of x − mean, and not of y. By what do the two differ?")
def centred_for_y(g, x, weight):
    y, s, g = with_y(g, x, weight)
    y = y * s
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("You subtract sums where J has 1/n: both of its last terms are means.")
def two_sums(g, x, weight):
    y, s, g = with_y(g, x, weight)
    return (g - g.sum(axis=-1, keepdims=True) - y * (g * y).sum(axis=-1, keepdims=True)) / s


@exercise.mistake("Look at the sign of the last term of J. Is the part along y taken out, or put in once more?")
def along_y_added(g, x, weight):
    y, s, g = with_y(g, x, weight)
    return (g - g.mean(axis=-1, keepdims=True) + y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("The matrix y yᵀ has a y on either side. g meets the one; where is the other?")
def one_y(g, x, weight):
    y, s, g = with_y(g, x, weight)
    return (g - g.mean(axis=-1, keepdims=True) - (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("For one row it is right. With several, your means have lost an axis, so that they no longer stand "
                  "beside their rows.")
def no_keepdims(g, x, weight):
    y, s, g = with_y(g, x, weight)
    return (g - g.mean(axis=-1) - y * (g * y).mean(axis=-1)) / s


@exercise.mistake("Nearly right: what stands under the root of s, besides the variance?")
def no_eps(g, x, weight):
    s = x.std(axis=-1, keepdims=True)
    y, g = (x - x.mean(axis=-1, keepdims=True)) / s, g * weight
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("Without a weight it is right. With one, you leave it out. The forward pass multiplies y by it; what "
                  "then does the way back do?")
def no_weight(g, x, weight):
    y, s, g = with_y(g, x, 1)
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / s


@exercise.mistake("Right, and an n × n matrix is made for each row. What does each of J's three terms do to a row of "
                  "numbers, if there is no matrix?")
def with_the_matrix(g, x, weight):
    y, s, g = with_y(g, x, weight)
    n = x.shape[-1]
    J = (np.eye(n) - 1 / n - y[..., :, None] * y[..., None, :] / n) / s[..., None]
    return (J @ g[..., None])[..., 0]


@exercise.mistake("For one row it is right. But `np.outer` makes one long row of all rows. And J was not to be built: "
                  "what does each of its terms do to a row?")
def outer_of_all_rows(g, x, weight):
    y, s, g = with_y(g, x, weight)
    n = x.shape[-1]
    return (np.eye(n) - 1 / n - np.outer(y, y) / n) / s @ g


@exercise.mistake("You subtract 1/n itself. In J a matrix stands there, 1 1ᵀ / n, which has yet to meet g.")
def one_over_n(g, x, weight):
    y, s, g = with_y(g, x, weight)
    return (g - 1 / x.shape[-1] - y * (g * y).mean(axis=-1, keepdims=True)) / s
