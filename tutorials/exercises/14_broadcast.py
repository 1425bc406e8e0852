"""The gradient of what was broadcast

NumPy adds arrays of different shapes: x of shape (3, 4) and b of shape (4,) give (3, 4), b being used once for each
row. By the rules of broadcasting, a missing axis in front, or an axis of length 1, is used again for each place along
it. What is used more than once gets the sum of what all its uses send back.

Write `check_add_vjp(add_vjp)`, which gets an implementation of `add_vjp(g, x, b)`. Here g is dL/d(x + b), an array of
the shape of x + b, and x and b are arrays of any shapes that broadcast together, one axis or several, or none: each of
them may be the one that is broadcast, or both. It returns (dL/dx, dL/db), which have exactly the shapes of x and of b.
Your check must accept every right implementation.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_add_vjp",
    starter="""
import numpy as np


def check_add_vjp(add_vjp):
    x, b = np.zeros((3, 3)), np.zeros(3)
    dx, db = add_vjp(np.ones((3, 3)), x, b)
    assert np.allclose(dx, 1)
    assert np.allclose(db, 3)
""",
    hints=["`np.allclose` broadcasts, too. What does it say of arrays of shapes (4,) and (3, 4)?",
           "With g full of ones, a sum is a count, and each sum is like every other. Draw g instead.",
           "Try a table of shapes: (3, 4) and (4,), (3, 1), (1, 4), (), each in both orders; three axes; both "
           "broadcast."],
    too_strict="Something right was rejected. Each result has the shape of its input, whichever of them was broadcast. "
               "Sums in another order round differently.")


def reduced(g, shape, reduce=np.sum):
    """g, reduced to the shape that was broadcast to it"""
    front = g.ndim - len(shape)
    alone = tuple(range(front)) + tuple(front + n for n, size in enumerate(shape) if size == 1)
    return reduce(g, axis=alone, keepdims=True).reshape(shape)


@exercise.sound
def sound(g, x, b):
    """one sum over all axes that were broadcast"""
    return reduced(g, x.shape), reduced(g, b.shape)


@exercise.sound
def element_by_element(g, x, b):
    """each element of g is added where it came from"""
    found = []
    for shape in (x.shape, b.shape):
        places = np.broadcast_to(np.arange(np.prod(shape, dtype=int)).reshape(shape), g.shape)
        found.append(np.bincount(places.ravel(), g.ravel(), np.prod(shape, dtype=int)).reshape(shape))
    return tuple(found)


@exercise.sound
def in_two_steps(g, x, b):
    """first the axes that are missing in front, then those of length 1, one after another"""
    found = []
    for shape in (x.shape, b.shape):
        share = g
        while share.ndim > len(shape):
            share = share.sum(axis=0)
        for n, size in enumerate(shape):
            share = share.sum(axis=n, keepdims=True) if size == 1 else share
        found.append(np.asarray(share))
    return tuple(found)


@exercise.solution
def check_add_vjp(add_vjp):
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4,), (3, 1), (1, 4), (1,), (), (2, 3, 4), (2, 1, 4), (5, 1, 3, 1)]
    for one in shapes:
        for other in shapes:
            x, b = rng.normal(size=one), rng.normal(size=other)
            g = rng.normal(size=(x + b).shape)
            for found, before in zip(add_vjp(g, x, b), (x, b)):
                assert np.shape(found) == before.shape
                for place in np.ndindex(before.shape):
                    mark = np.zeros(before.shape)
                    mark[place] = 1
                    assert abs(np.asarray(found)[place] - (g * mark).sum()) < 1e-9


@exercise.mutant("One sends g back as it is, in the shape of the sum. Do you compare the shapes of gradient and input?")
def unreduced(g, x, b):
    return g, g


@exercise.mutant("One sums over the last axis instead of the first. In which shapes does nothing show that?")
def along_the_last(g, x, b):
    return tuple(reduced(g.sum(axis=tuple(range(y.ndim, g.ndim))), y.shape) for y in (x, b))


@exercise.mutant("One takes the mean over the uses, which has the right shape. What does the chain rule say: mean, or "
                 "sum?")
def mean(g, x, b):
    return reduced(g, x.shape, np.mean), reduced(g, b.shape, np.mean)


@exercise.mutant("One counts the uses, and forgets what each of them sent. Which g makes a count and a sum the same?")
def counted(g, x, b):
    return np.full(x.shape, g.size / max(x.size, 1)), np.full(b.shape, g.size / max(b.size, 1))


@exercise.mutant("One keeps the axis that it sums over: the gradient of a (4,) has the shape (1, 4). The next use adds "
                 "it without an error. Who would notice?")
def one_axis_too_many(g, x, b):
    return tuple(reduced(g, (1,) * (g.ndim - y.ndim) + y.shape) for y in (x, b))


@exercise.mutant("One drops the axes that it sums over: the gradient of a (3, 1) has the shape (3,). Is there an axis "
                 "of length 1 in your inputs?")
def axes_of_one_dropped(g, x, b):
    return tuple(reduced(g, y.shape).squeeze() if 1 in y.shape[1:] else reduced(g, y.shape) for y in (x, b))


@exercise.mutant("One sums over the axes that are missing in front, and overlooks those of length 1. Has one of your "
                 "inputs such an axis?")
def missing_axes_only(g, x, b):
    return tuple(g.sum(axis=tuple(range(g.ndim - y.ndim))) for y in (x, b))


@exercise.mutant("One sums over axes of length 1, and of those that are missing in front it keeps the first place "
                 "only. Do you compare with numbers where two axes or more were added?")
def first_row(g, x, b):
    found = []
    for y in (x, b):
        share = g
        while share.ndim > y.ndim:
            share = share[0]
        found.append(reduced(share, y.shape))
    return tuple(found)


@exercise.mutant("One takes it for granted that b is the smaller one. What comes back to x, if x is broadcast to b?")
def second_only(g, x, b):
    return g, reduced(g, b.shape)


@exercise.mutant("One sums over the first axis that is missing, and of a second one it keeps the first place. How many "
                 "axes can b lack?")
def one_axis_in_front(g, x, b):
    found = []
    for y in (x, b):
        share = g.sum(axis=0) if g.ndim > y.ndim else g
        while share.ndim > y.ndim:
            share = share[0]
        found.append(reduced(share, y.shape))
    return tuple(found)


@exercise.mistake("Squares and ones hide a lot: which axis was summed over, and whether anything was summed at all? "
                  "And what does `np.allclose` do with shapes that differ?")
def ones(add_vjp):
    x, b = np.zeros((3, 3)), np.zeros(3)
    dx, db = add_vjp(np.ones((3, 3)), x, b)
    assert np.allclose(dx, 1)
    assert np.allclose(db, 3)


@exercise.mistake("You look at shapes alone. Which numbers of the right shape are the wrong ones?")
def shapes_alone(add_vjp):
    rng = np.random.default_rng(0)
    for one, other in (((3, 4), (4,)), ((3, 4), (3, 1)), ((), (3, 4)), ((3, 1), (1, 4)), ((2, 3, 4), (4,))):
        dx, db = add_vjp(rng.normal(size=np.broadcast_shapes(one, other)), np.zeros(one), np.zeros(other))
        assert np.shape(dx) == one
        assert np.shape(db) == other


@exercise.mistake("A bias of one axis is one way of being broadcast. Which others does NumPy know, and may x be the "
                  "smaller one?")
def one_bias(add_vjp):
    g = np.random.default_rng(0).normal(size=(3, 4))
    dx, db = add_vjp(g, np.zeros((3, 4)), np.zeros(4))
    assert np.shape(dx) == (3, 4)
    assert np.shape(db) == (4,)
    assert np.allclose(dx, g)
    assert np.allclose(db, g.sum(axis=0))


@exercise.mistake("You sum over what `np.allclose` is happy with. Compare the shapes first: it broadcasts its "
                  "arguments.")
def numbers_alone(add_vjp):
    rng = np.random.default_rng(0)
    for one, other in (((3, 4), (4,)), ((3, 4), (3, 1)), ((), (3, 4)), ((3, 3), (3,)), ((2, 3, 4), (4,))):
        g = rng.normal(size=np.broadcast_shapes(one, other))
        for found, shape in zip(add_vjp(g, np.zeros(one), np.zeros(other)), (one, other)):
            assert np.allclose(found, reduced(g, shape))
