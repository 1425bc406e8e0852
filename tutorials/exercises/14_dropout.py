"""Is it dropout, and only in training?

Write `check_dropout(dropout)`, which gets an implementation of `dropout(x, p, training, rng)`. In training, each
element of the array x is dropped, that is, it becomes 0, with probability p, independently of all others and anew at
every call; what is kept is divided by 1 − p. So the mean over many draws is x, if p < 1. Out of training it returns x
as it is. p is from 0 to 1, ends included: with p = 1 all is 0. `rng` is a `np.random.Generator`, the only source of
chance. The array x, of any number of axes, is not changed.

Your check must accept every right implementation, whichever numbers it draws from `rng`, and so must leave room for
chance. To give an idea: at p = 0.2, the mean over 10,000 ones after dropout has a standard deviation of 0.005.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_dropout",
    starter="""
import numpy as np


def check_dropout(dropout):
    out = dropout(np.ones((4, 5)), 0.5, True, np.random.default_rng(0))
    assert out.shape == (4, 5)
    assert (out == 0).any()
    assert (out != 0).any()
""",
    hints=["There are four things to look at: the share of zeros, the value of what is kept, what happens out of "
           "training, and whether elements and calls are independent.",
           "At p = ½ many mistakes are right by symmetry. Take another p, and x with elements that differ. And the two "
           "ends, 0 and 1.",
           "Twice with one generator, twice with the same seed: which pair must be equal, and which must differ?"],
    too_strict="Something right was rejected. Is your tolerance a few standard deviations wide, and do you assume that "
               "numbers are drawn in a certain way?")


def kept_at(rng, p, shape):
    return rng.random(shape) >= p


def scaled(x, keep, p):
    return x * keep / (1 - p) if p < 1 else x * 0.0


@exercise.sound
def sound(x, p, training, rng):
    """kept if a number from [0, 1) is p or more"""
    return scaled(x, kept_at(rng, p, x.shape), p) if training else x.copy()


@exercise.sound
def by_small_numbers(x, p, training, rng):
    """kept if the number is below 1 − p"""
    return np.where(rng.random(x.shape) < 1 - p, x / max(1 - p, 1e-300), 0.0) if training and p < 1 else \
        x * (not training)


@exercise.sound
def by_coins(x, p, training, rng):
    """a coin for each element, from the binomial distribution; out of training x itself"""
    return scaled(x, rng.binomial(1, 1 - p, x.shape), p) if training else x


@exercise.solution
def check_dropout(dropout):
    rng = np.random.default_rng(0)
    x = np.random.default_rng(1).uniform(1, 2, size=(50, 4, 50))
    before = x.copy()
    for p in (0.0, 0.2, 0.9, 1.0):
        out = dropout(x, p, True, rng)
        assert out.shape == x.shape
        assert np.array_equal(x, before)
        kept = out != 0
        assert np.allclose(out[kept], x[kept] / max(1 - p, 1e-9))
        assert abs(kept.mean() - (1 - p)) < 0.03
        assert np.array_equal(dropout(x, p, False, rng), before)
    one, other = (dropout(x, 0.5, True, rng) != 0 for _ in range(2))
    assert 0.4 < (one == other).mean() < 0.6
    for axis in range(3):
        near = np.swapaxes(one, 0, axis)
        assert 0.4 < (near[1:] == near[:-1]).mean() < 0.6
    tossed = [dropout(np.ones(1), 0.3, True, rng)[0] == 0 for _ in range(2000)]
    assert 0.25 < np.mean(tossed) < 0.35
    again, same = (dropout(x, 0.5, True, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(again, same)


@exercise.mutant("One drops, and leaves what is kept as it was. What is the mean over many draws?")
def unscaled(x, p, training, rng):
    return x * kept_at(rng, p, x.shape) if training else x.copy()


@exercise.mutant("One drops out of training, too. What should two calls there have in common?")
def always(x, p, training, rng):
    return sound(x, p, True, rng)


@exercise.mutant("One drops with probability 1 − p, and scales to match. At which p is that the same? What share is 0?")
def other_probability(x, p, training, rng):
    return sound(x, 1 - p, training, rng)


@exercise.mutant("One divides what is kept by p. At which p do you not see it?")
def divided_by_p(x, p, training, rng):
    return x * kept_at(rng, p, x.shape) / max(p, 1e-9) if training else x.copy()


@exercise.mutant("One scales in training, and once more out of it. What is x out of training?")
def scaled_twice(x, p, training, rng):
    return sound(x, p, True, rng) if training else x * (1 - p)


@exercise.mutant("One decides for whole rows. Each element has the right probability; are two in a row independent?")
def whole_rows(x, p, training, rng):
    return scaled(x, kept_at(rng, p, (*x.shape[:-1], 1)), p) if training else x.copy()


@exercise.mutant("One draws a single row, and uses it for all rows. Are elements in a column independent?")
def one_row_for_all(x, p, training, rng):
    return scaled(x, kept_at(rng, p, x.shape[-1:]), p) if training else x.copy()


@exercise.mutant("One draws from a generator of its own, with a fixed seed. What differs from one call to the next?")
def own_seed(x, p, training, rng):
    return sound(x, p, training, np.random.default_rng(0))


@exercise.mutant("One divides rows by their sums, as if they were weights that must sum to 1, and does not divide by "
                 "1 − p. What is a kept element then?")
def rows_renormalised(x, p, training, rng):
    if not training:
        return x.copy()
    out = x * kept_at(rng, p, x.shape)
    return out * x.sum(axis=-1, keepdims=True) / np.maximum(out.sum(axis=-1, keepdims=True), 1e-9)


@exercise.mutant("One writes zeros into the array that it was given. What does x look like afterwards?")
def in_place(x, p, training, rng):
    if training:
        x[...] = sound(x, p, True, rng)
    return x


@exercise.mutant("One comes to 0 / 0 at an end of the range of p. Which p did you try?")
def nothing_over_nothing(x, p, training, rng):
    return x * kept_at(rng, p, x.shape) / np.float64(1 - p) if training else x.copy()


@exercise.mutant("One drops exactly the share p of all elements, to the nearest whole number. If there is a single "
                 "element, how often is it dropped?")
def exact_share(x, p, training, rng):
    if not training:
        return x.copy()
    keep = np.ones(x.size, dtype=bool)
    keep[rng.permutation(x.size)[:round(p * x.size)]] = False
    return scaled(x, keep.reshape(x.shape), p)


@exercise.mistake("That some elements are 0 and some are not is true of most mutants. How many are 0, and how large "
                  "are the others?")
def some(dropout):
    out = dropout(np.ones((4, 5)), 0.5, True, np.random.default_rng(0))
    assert out.shape == (4, 5)
    assert (out == 0).any()
    assert (out != 0).any()


@exercise.mistake("At one half, p and 1 − p are the same. Which faults does that hide?")
def one_half(dropout):
    rng, x = np.random.default_rng(0), np.ones((100, 100))
    out = dropout(x, 0.5, True, rng)
    assert abs(out.mean() - 1) < 0.05
    assert np.array_equal(dropout(x, 0.5, False, rng), x)


@exercise.mistake("You look at the mean alone. Elements that are dropped together, or in every call the same ones, "
                  "have the right mean, too.")
def means(dropout):
    rng, x = np.random.default_rng(0), np.ones((100, 100))
    for p in (0.2, 0.9):
        assert abs(dropout(x, p, True, rng).mean() - 1) < 0.15
        assert np.array_equal(dropout(x, p, False, rng), x)


@exercise.mistake("You ask for one particular draw. Right implementations use the generator in different ways.")
def this_draw(dropout):
    x = np.random.default_rng(1).uniform(1, 2, size=(50, 50))
    expected = x * (np.random.default_rng(0).random(x.shape) >= 0.2) / 0.8
    assert np.allclose(dropout(x, 0.2, True, np.random.default_rng(0)), expected)
