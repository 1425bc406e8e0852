"""The way back from broadcasting

Write `unbroadcast(g, shape)`. An input of shape `shape` was broadcast to the shape of g, and g is the gradient there.
Return the gradient of the input, an array of shape `shape`: each of its elements is the sum of g over all places where
that element was used.

Broadcasting aligns the shapes at their ends. Axes that `shape` does not have were put in front; axes of length 1 were
repeated. If nothing was broadcast, g comes back as it is. `shape` may be (), of a single number that was used
everywhere.
"""

import itertools

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "unbroadcast",
    starter="""
import numpy as np


def unbroadcast(g, shape):
    \"\"\"g, of a shape that `shape` broadcasts to -> the gradient, of shape `shape`\"\"\"
    ...
""",
    hints=["Do it in two steps. First get rid of the axes in front: how many are there?",
           "Then, where `shape` has a 1, sum over that axis and keep it, so that the other axes stay in their places."])


@exercise.solution
def unbroadcast(g, shape):
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1)
    return g.sum(axis=repeated, keepdims=True)


@exercise.check("an axis in front", "In x + b, each element of b is used in every row. What is the sum of its shares?")
def front(rng):
    yield np.array([[1.0, 2.0], [10.0, 20.0]]), (2,)
    yield rng.normal(size=(3, 2)), (2,)
    yield rng.normal(size=(2, 3, 2)), (2,)
    yield rng.normal(size=(2, 3, 2)), (3, 2)


@exercise.check("axes of length 1", "An axis of length 1 was repeated. It is summed over, and it is still there.")
def ones(rng):
    yield np.array([[1.0, 2.0]]), (1, 1)
    yield np.array([[1.0, 2.0], [10.0, 20.0]]), (2, 1)
    yield rng.normal(size=(3, 3)), (1, 3)
    yield rng.normal(size=(2, 3, 4)), (2, 1, 4)
    yield rng.normal(size=(2, 3, 4)), (1, 1)


@exercise.check("nothing, or everything", "With equal shapes there is nothing to sum. With () there is one sum, a "
                                          "number.")
def ends(rng):
    yield np.array([[1.0], [2.0]]), (2, 1)
    yield rng.normal(size=(2, 3)), (2, 3)
    yield rng.normal(size=(2, 3)), ()
    yield np.array(3.0), ()
    yield np.zeros((0, 2)), (2,)


def differences(g, shape):
    """L = Σ g · (b, broadcast), with each element of b moved a little"""
    found = np.zeros(shape)
    for place in itertools.product(*map(range, shape)):
        step = np.zeros(shape)
        step[place] = 1e-3
        found[place] = ((g * (1.0 + step)).sum() - (g * (1.0 - step)).sum()) / 2e-3
    return found


@exercise.check("against finite differences", "Here each element of the input was moved, and Σ g · input was looked "
                                              "at.",
                expected=differences, tolerance=1e-6)
def witness(rng):
    for big, shape in (((2, 2), (2,)), ((3, 2), (3, 1)), ((2, 3, 2), (1, 2)), ((2, 2, 3), (2, 1, 1))):
        yield rng.normal(size=big), shape


@exercise.mistake("The shape is wrong: what was put in front has to be summed over before anything else.")
def only_ones(g, shape):
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True) if len(shape) == g.ndim else g


@exercise.mistake("Axes in front are dealt with. The other kind is left: an axis that is there, with length 1.")
def only_front(g, shape):
    return g.sum(axis=tuple(range(g.ndim - len(shape))))


@exercise.mistake("The uses of one element add up. If they are averaged, a number that moves y in three places counts "
                  "as if it were in one.")
def mean(g, shape):
    g = g.mean(axis=tuple(range(g.ndim - len(shape))))
    return g.mean(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@exercise.mistake("The sums are right, but an axis of length 1 has gone. How does NumPy's `sum` keep it?")
def axis_lost(g, shape):
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1))


@exercise.mistake("That is one of the shares. An element that was used in several places gets one from each.")
def first_share(g, shape):
    for _ in range(g.ndim - len(shape)):
        g = g[0] if len(g) else g.sum(axis=0)
    for i, n in enumerate(shape):
        g = g.take([0], axis=i) if n == 1 else g
    return g


@exercise.mistake("Here the last axes are summed over. Broadcasting aligns shapes at their ends: which axes are new?")
def at_the_end(g, shape):
    g = g.sum(axis=tuple(range(len(shape), g.ndim)))
    return g.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


@exercise.mistake("The places of the ones are counted in `shape`, but g still has axes in front. Which of the two "
                  "steps has to come first?")
def ones_first(g, shape):
    for i, n in enumerate(shape):
        g = g.sum(axis=i, keepdims=True) if n == 1 else g
    return g.sum(axis=tuple(range(g.ndim - len(shape))))


@exercise.mistake("It is always the first axis that is summed over. Which axes have to be, and how many of them, "
                  "depends on both shapes.")
def first_axis(g, shape):
    return g.sum(axis=0)
