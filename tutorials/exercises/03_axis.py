"""A check of a softmax that six wrong ones do not pass

Write `check_softmax(softmax)`, which gets an implementation of `softmax(x)` along the last axis, (..., n) -> (..., n),
for NumPy arrays of any number of axes and any finite scores. It raises an AssertionError if something is wrong. It must
accept every right one, even one that rounds a little differently. Each mutant has one fault. You may give any inputs,
and compute what is expected in a way of your own.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_softmax",
    starter="""
import numpy as np


def check_softmax(softmax):
    x = np.random.default_rng(0).normal(size=4)
    p = softmax(x)
    assert p.shape == x.shape
    assert (p > 0).all()
    assert np.isclose(p.sum(), 1)
""",
    hints=["One row is not enough: an axis can only be wrong where there are several. Let all sizes differ.",
           "Sums of 1 are not enough: which numbers must the weights be? The formula by hand tells, for small scores. "
           "For large ones, think of two scores whose weights you know."],
    too_strict="Something right was rejected. Floating-point numbers are compared within a tolerance, and a weight may "
               "underflow to exactly 0 where the scores are far apart.")


@exercise.sound
def sound(x):
    """the maximum of each row subtracted, then the formula"""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@exercise.sound
def by_logarithms(x):
    """exp(x − log Σ exp x), which rounds differently"""
    moved = x - x.max(axis=-1, keepdims=True)
    return np.exp(moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True)))


@exercise.sound
def row_by_row(x):
    """a loop over the rows"""
    rows = x.reshape(-1, x.shape[-1])
    return np.array([np.exp(row - row.max()) / sum(np.exp(row - row.max())) for row in rows]).reshape(x.shape)


@exercise.solution
def check_softmax(softmax):
    rng = np.random.default_rng(0)
    for shape in ((4,), (2, 3), (2, 3, 4)):
        x = rng.normal(size=shape)
        assert np.allclose(softmax(x), np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))
    far = np.array([[1000.0, 1000.0], [-1000.0, -1000.0]])
    assert np.allclose(softmax(far), 0.5)


@exercise.mutant("One goes along the first axis. In which of your inputs are rows and columns not the same?")
def first_axis(x):
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


@exercise.mutant("One divides by the sum of the whole table. Does your check look at the sum of each row?")
def all_together(x):
    e = np.exp(x - x.max())
    return e / e.sum()


@exercise.mutant("One goes along axis 1, which is the last of two, and not of three. How many axes do your inputs "
                 "have?")
def axis_one(x):
    axis = min(1, x.ndim - 1)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@exercise.mutant("One subtracts no maximum. Which scores make its exponentials overflow? And mind that a comparison "
                 "with NaN is False, whichever way round it is written.")
def overflows(x):
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mutant("One subtracts the largest score of the whole table from all rows. Which *pair* of rows does that "
                 "ruin?")
def one_maximum(x):
    e = np.exp(x - x.max())
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mutant("One has another base: positive weights, each row with sum 1, in the right order, and yet the wrong "
                 "ones. Do you compare the numbers?")
def base_two(x):
    e = np.exp2(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@exercise.mistake("A single row has one axis, so that it cannot tell which axis is taken.")
def one_row(softmax):
    x = np.array([2.0, 1.0, -1.0])
    assert np.allclose(softmax(x), np.exp(x) / np.exp(x).sum())
    assert np.allclose(softmax(np.array([1000.0, 1000.0])), 0.5)


@exercise.mistake("In a table axis 1 is the last. With how many axes is it not? The statement allows any number.")
def two_axes(softmax):
    for x in (np.random.default_rng(0).normal(size=(2, 3)), np.array([[1000.0, 999.0], [-1000.0, -999.0]])):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        assert np.allclose(softmax(x), e / e.sum(axis=1, keepdims=True))


@exercise.mistake("Your large scores are all in one row, or all alike. What if one row is at 1000, and another far "
                  "below?")
def alike(softmax):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    for offset in (0, 1000):
        assert np.allclose(softmax(x + offset), np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))


@exercise.mistake("Small scores alone never overflow. The other mutants you have; which scores does exp not survive?")
def small(softmax):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert np.allclose(softmax(x), np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True))


@exercise.mistake("Sums and signs are right for other weights as well. What does the formula say they are?")
def sums(softmax):
    for x in (np.random.default_rng(0).normal(size=(2, 3, 4)), np.array([[1000.0, 999.0], [0.0, 1.0]])):
        p = softmax(x)
        assert (p > 0).all()
        assert np.allclose(p.sum(axis=-1), 1)


@exercise.mistake("Two right ways of computing it differ in the last digits; `==` sees that.")
def exact(softmax):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    assert (softmax(x) == e / e.sum(axis=-1, keepdims=True)).all()


@exercise.mistake("With scores that are far apart, a weight underflows to exactly 0, also in a right softmax.")
def never_zero(softmax):
    assert (softmax(np.array([1000.0, 0.0])) > 0).all()


@exercise.mistake("No softmax passes, not even a right one. Has what you expect enough digits? `np.allclose` looks at "
                  "five and more.")
def four_digits(softmax):
    assert np.allclose(softmax(np.array([1000.0, 999.0])), [0.7311, 0.2689])
