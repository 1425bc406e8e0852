"""Is this measurement of a spread honest?

Write `check_measure(measure)`, which gets an implementation of `measure(d_k, scale)`: it draws many queries and keys of
d_k independent components of mean 0 and variance 1, and returns the standard deviation of scale · (q·k), a number. Your
check must raise an AssertionError if that is not what comes back.

For every d_k from 1 to 1000 a right one is within 5 % of the truth, which you know from section 1 of tutorial 05; they
draw different numbers, and one draws none, so that their digits differ. Every mutant is off by more than 15 %, at some
d_k or at some scale. What you compare with must come from theory, not from `measure`.
"""

import functools

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_measure",
    starter="""
import math


def check_measure(measure):
    found = measure(1, 1.0)
    assert abs(found - 1.0) < 0.5
""",
    hints=["At d_k = 1 many formulas agree: 1, its root and its square are the same number. Try others, also at "
           "another scale.",
           "The tolerance must be relative, and fit between what a right one may be off by and what a mutant is.",
           "One mutant is wrong only where vectors are short, others where they are long: one d_k is not enough."],
    too_strict="A right measurement was rejected. Is the number that you compare with that of section 1? And it may be "
               "off by 5 % of that, whatever its size: what does your check allow?")


@functools.cache
def drawn(d_k, seed, draws=2000):
    """q·k for so many pairs"""
    q, k = np.random.default_rng(seed).normal(size=(2, draws, d_k))
    return (q * k).sum(axis=1)


@exercise.sound
def sound(d_k, scale):
    """draws 50,000 pairs of short vectors, 4000 of longer ones"""
    return float(np.std(scale * drawn(d_k, 1, 50_000 if d_k <= 16 else 4000)))


@exercise.sound
def other_numbers(d_k, scale):
    """draws other numbers, scales at the end, and divides by n − 1"""
    return scale * float(drawn(d_k, 2, 50_000 if d_k <= 16 else 4000).std(ddof=1))


@exercise.sound
def without_drawing(d_k, scale):
    """returns scale · √d_k, and draws nothing"""
    return scale * d_k ** 0.5


@exercise.solution
def check_measure(measure):
    for d_k in (1, 2, 16, 400):
        for scale in (1.0, 0.25):
            expected = scale * d_k ** 0.5
            assert abs(measure(d_k, scale) / expected - 1) < 0.065


@exercise.mutant("One returns the variance. At which d_k and scale is that the same number?")
def variance(d_k, scale):
    return sound(d_k, scale) ** 2


@exercise.mutant("One forgets the scale. Did you try one that is not 1?")
def unscaled(d_k, scale):
    return sound(d_k, 1.0)


@exercise.mutant("One divides by √d_k on its own account, as if you had asked for attention's scores.")
def divided(d_k, scale):
    return sound(d_k, scale) / d_k ** 0.5


@exercise.mutant("One compares each query with itself: k is q. Its spread is √2 times what it should be.")
def tied(d_k, scale):
    q = np.random.default_rng(1).normal(size=(2000, d_k))
    return float(np.std(scale * (q * q).sum(axis=1)))


@exercise.mutant("One draws components between −1 and 1, all equally likely. Their mean is 0; is their variance 1?")
def uniform(d_k, scale):
    q, k = np.random.default_rng(1).uniform(-1, 1, size=(2, 2000, d_k))
    return float(np.std(scale * (q * k).sum(axis=1)))


@exercise.mutant("One returns the mean of the sizes |score|, which for long vectors is 0.8 of the standard deviation. "
                 "Is your tolerance narrow enough?")
def mean_size(d_k, scale):
    return float(np.mean(np.abs(scale * drawn(d_k, 1, 4000))))


@exercise.mutant("One draws a single key for all queries. Its length is near √d_k if it is long: at which d_k is that "
                 "far off?")
def one_key(d_k, scale):
    key = np.random.default_rng(3).normal(size=d_k)
    return float(np.std(scale * (np.random.default_rng(1).normal(size=(2000, d_k)) @ key)))


@exercise.mutant("One takes whole numbers for the square root of d_k, rounded down. At which d_k is there something to "
                 "round?")
def rounded(d_k, scale):
    return scale * int(d_k ** 0.5)


@exercise.mistake("You look at d_k = 1 alone, where d_k, its root and its square are the same number.")
def only_one(measure):
    assert abs(measure(1, 1.0) - 1) < 0.06
    assert abs(measure(1, 0.25) - 0.25) < 0.016


@exercise.mistake("Your tolerance is so wide that another kind of average fits into it. How far off is a right one?")
def lenient(measure):
    for d_k in (1, 2, 16, 400):
        for scale in (1.0, 0.25):
            assert abs(measure(d_k, scale) / (scale * d_k ** 0.5) - 1) < 0.4


@exercise.mistake("All your d_k are squares, so that their roots are whole numbers. What would not be seen there?")
def squares_alone(measure):
    for d_k in (1, 4, 16, 64):
        for scale in (1.0, 0.25):
            assert abs(measure(d_k, scale) / (scale * d_k ** 0.5) - 1) < 0.065


@exercise.mistake("A measurement is never exact: it was drawn. How far off may a right one be?")
def exact(measure):
    assert measure(16, 0.25) == 1.0


@exercise.mistake("You compare `measure` with itself, at two d_k. A factor that is always wrong cancels in the ratio.")
def ratios(measure):
    for scale in (1.0, 0.25):
        assert abs(measure(64, scale) / measure(16, scale) / 2 - 1) < 0.06


@exercise.mistake("Your scale is always 1, so that it does not matter where it comes in.")
def scale_of_one(measure):
    for d_k in (1, 2, 16, 400):
        assert abs(measure(d_k, 1.0) / d_k ** 0.5 - 1) < 0.065


@exercise.mistake("Measurements that are right are rejected, and one that returns the variance passes. What was asked "
                  "for?")
def of_the_variance(measure):
    for d_k in (1, 2, 16, 400):
        for scale in (1.0, 0.25):
            assert abs(measure(d_k, scale) / (scale ** 2 * d_k) - 1) < 0.1


@exercise.mistake("Nothing passes, not even what is right. What is the standard deviation of q·k at d_k = 4, and what "
                  "becomes of it at scale ½?")
def of_something_else(measure):
    for d_k in (1, 2, 16, 400):
        for scale in (1.0, 0.25):
            assert abs(measure(d_k, scale) / (scale * d_k) - 1) < 0.065
