"""The rule of a length

Write `norm_vjp(g, x)`: (...,), (..., n) -> (..., n). The op computes the length of each row of x,

    out = √(Σⱼ xⱼ²)      (..., n) -> (...,)

and g = dL/d out has one number for each row. Return dL/dx. At the zero vector, where the length has a kink, return 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "norm_vjp",
    starter="""
import numpy as np


def norm_vjp(g, x):
    \"\"\"(...,), (..., n) -> (..., n)\"\"\"
    ...
""",
    hints=["Differentiate the root first, then the sum below it: what is left of the 2 of the square and the ½ of the "
           "root?",
           "g has one axis less than x; `g[..., None]` gives it back. For rows of zeros, divide by something harmless "
           "and then use `np.where`."])


@exercise.solution
def norm_vjp(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return g[..., None] * x / np.where(length > 0, length, 1)


def by_differences(g, x, h=1e-6):
    found = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        change = np.linalg.norm(x + step, axis=-1) - np.linalg.norm(x - step, axis=-1)
        found[i] = (g * change).sum() / (2 * h)
    return found


@exercise.check("one row",
                "The length of (3, 4) is 5. If 3 grows by a little, by how much of that does the length grow?")
def one(rng):
    yield np.array(1.0), np.array([3.0, 4.0])
    yield np.array(-2.0), np.array([3.0, 4.0])


@exercise.check("rows, against a difference", "Each row has one g, for all of its numbers.", expected=by_differences,
                tolerance=1e-5)
def differences(rng):
    for shape in ((2, 3), (3, 3), (2, 3, 4)):
        yield rng.normal(size=shape[:-1]), rng.normal(size=shape)


@exercise.check("long and short rows",
                "Only the direction of a row counts: (3, 4) and (3e-6, 4e-6) have the same gradient.")
def short(rng):
    yield np.array([1.0, 1.0]), np.array([[3e-6, 4e-6], [3e6, 4e6]])
    yield np.array(1.0), np.array([3e-100, 4e-100])


@exercise.check("the zero vector", "0 / 0 is no number. The convention is 0 there, and other rows are as before.")
def zero(rng):
    yield np.array(1.0), np.zeros(2)
    yield np.array([1.0, 2.0]), np.array([[0.0, 0.0], [0.0, 2.0]])


@exercise.mistake("That is right but for the zero vector, where 0 is divided by 0.")
def not_at_zero(g, x):
    return g[..., None] * x / np.sqrt((x * x).sum(axis=-1, keepdims=True))


@exercise.mistake("That would be the gradient of ½ Σ x². What does the root add to the chain?")
def no_root(g, x):
    return g[..., None] * x


@exercise.mistake("The 2 of the square is there, and the ½ of the root is missing.")
def twice(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return 2 * g[..., None] * x / np.where(length > 0, length, 1)


@exercise.mistake("Something small was added to the length, to be safe. For a short row it is not small. What keeps 0 "
                  "from being divided by 0, and changes no other row?")
def with_eps(g, x):
    return g[..., None] * x / (np.sqrt((x * x).sum(axis=-1, keepdims=True)) + 1e-8)


@exercise.mistake("The g of a row must meet all numbers of that row. Along which axis does yours go?")
def g_as_it_is(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return g * x / np.where(length > 0, length, 1)


@exercise.mistake("That is the derivative of the length. The vjp is more: what has come back from behind the op?")
def without_g(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return x / np.where(length > 0, length, 1)


@exercise.mistake("[:, None] puts the new axis second. For one row there is no first, and with three axes it is the "
                  "wrong place. Where is it always?")
def second_axis(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return g[:, None] * x / np.where(length > 0, length, 1)


@exercise.mistake("You divide by the square of the length. The derivative of √u is 1 / (2√u); what is √u here?")
def by_the_square(g, x):
    square = (x * x).sum(axis=-1, keepdims=True)
    return g[..., None] * x / np.where(square > 0, square, 1)


@exercise.mistake("The root is differentiated, and the sum below it is not. What does xⱼ² add to the chain?")
def root_alone(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return g[..., None] / (2 * np.where(length > 0, length, 1)) + 0 * x


@exercise.mistake("One length was taken of all numbers together. Each row has a length of its own.")
def length_of_everything(g, x):
    length = np.sqrt((x * x).sum())
    return g[..., None] * x / (length if length > 0 else 1)


@exercise.mistake("Short rows count as the zero vector here, and get 0. Does the direction of a row fade when the row "
                  "gets shorter? Which rows have none at all?")
def short_is_zero(g, x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    none = np.isclose(length, 0)
    return np.where(none, 0, g[..., None] * x / np.where(none, 1, length))
