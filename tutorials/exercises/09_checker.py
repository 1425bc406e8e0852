"""Check the checker

Write `check_gradcheck(gradcheck)`, which gets an implementation of `gradcheck(f, gradient, x)`. There f takes an array
of the shape of x and returns a number; `gradient` is an array, which is claimed to be that of f at x. A right checker
compares it with differences, and returns True or False:

    True     if every element of `gradient` is right to six digits, and f is smooth, with slopes between 0.001 and 1000
    False    if any element is off by 2 % of itself or more, or is NaN

and leaves x and `gradient` as they are. Your check must raise an AssertionError if a checker does not do that. Eight
mutants have the faults of real ones: each says yes, or no, where it should not, or leaves a mess.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_gradcheck",
    starter="""
import numpy as np


def check_gradcheck(gradcheck):
    x = np.array([1.0, 2.0, 3.0])

    def f(x):
        return (x ** 2).sum()
    assert gradcheck(f, 2 * x, x)
    assert not gradcheck(f, 4 * x, x)
""",
    hints=["Begin with a right gradient, and spoil it in as many ways as you can: one element, by little, in sign, "
           "by NaN.",
           "Some checkers look at a sum. Which errors does a sum not show?",
           "Multiply f by 0.001, so that its slopes are small: which tolerance then lets everything through?"],
    too_strict="A right checker was rejected. Its steps and tolerances are its own: between six digits and 2 % it "
               "may say what it likes, and at a kink, too.")


def numeric(f, x, h, forward=False):
    """Differences, one element at a time."""
    x = np.asarray(x, dtype=float)
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        found[place] = (f(x + step) - f(x)) / h if forward else (f(x + step) - f(x - step)) / (2 * h)
    return found


def near(gradient, found, rtol):
    return bool(np.all(np.abs(gradient - found) <= rtol * np.abs(found) + 1e-6 * np.abs(found).max()))


@exercise.sound
def sound(f, gradient, x):
    """central differences with a step of 1e-6, and a tolerance of 0.1 %"""
    return near(gradient, numeric(f, x, 1e-6), 1e-3)


@exercise.sound
def longer_steps(f, gradient, x):
    """central differences with a step of 1e-4, and a tolerance of 1 %"""
    return near(gradient, numeric(f, x, 1e-4), 1e-2)


@exercise.sound
def one_sided(f, gradient, x):
    """forward differences with a step of 1e-7, and a tolerance of 0.5 %"""
    return near(gradient, numeric(f, x, 1e-7, forward=True), 5e-3)


@exercise.solution
def check_gradcheck(gradcheck):
    x = np.array([1.0, 2.0, -3.0])
    for size in (1.0, 0.001):
        def f(x, size=size):
            return size * (x ** 2).sum()
        right = 2 * size * x
        given, claimed = x.copy(), right.copy()
        assert gradcheck(f, claimed, given)
        assert np.array_equal(given, x)
        assert np.array_equal(claimed, right)
        assert not gradcheck(f, -right, x)
        assert not gradcheck(f, right + size * np.array([0.5, -0.5, 0.0]), x)
        for i in range(3):
            for factor in (1.03, 0.97, np.nan):
                wrong = right.copy()
                wrong[i] *= factor
                assert not gradcheck(f, wrong, x)


@exercise.mutant("One lets everything within 10 % pass. How small is the smallest error that you plant?")
def lenient(f, gradient, x):
    return near(gradient, numeric(f, x, 1e-6), 0.1)


@exercise.mutant("One looks at the first element only. Where do you plant your errors?")
def first_element(f, gradient, x):
    return near(np.ravel(gradient)[:1], np.ravel(numeric(f, x, 1e-6))[:1], 1e-3)


@exercise.mutant("One moves all elements together and compares one number, the sum. Did you plant errors that cancel "
                 "in it?")
def the_sum(f, gradient, x):
    x = np.asarray(x, dtype=float)
    along = (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
    return bool(abs(np.sum(gradient) - along) <= 1e-3 * abs(along) + 1e-6 * np.abs(gradient).max())


@exercise.mutant("One compares absolute errors only, and lets 0.01 pass. How large are the slopes of your functions?")
def absolute(f, gradient, x):
    return bool(np.all(np.abs(gradient - numeric(f, x, 1e-6)) <= 0.01))


@exercise.mutant("One compares sizes without signs. Did you try a gradient that points the other way?")
def without_sign(f, gradient, x):
    return near(np.abs(gradient), np.abs(numeric(f, x, 1e-6)), 1e-3)


@exercise.mutant("One asks whether any error is too large, and NaN is not larger than anything. Did you try a NaN?")
def lets_nan_pass(f, gradient, x):
    found = numeric(f, x, 1e-6)
    return not np.any(np.abs(gradient - found) > 1e-3 * np.abs(found) + 1e-6 * np.abs(found).max())


@exercise.mutant("One takes a step of 1e-13, so short that rounding decides, and says no to right gradients. Do you "
                 "ask for a yes?")
def short_step(f, gradient, x):
    return near(gradient, numeric(f, x, 1e-13, forward=True), 1e-6)


@exercise.mutant("One moves x in place, and does not bring it back. Do you look at x afterwards?")
def leaves_a_mess(f, gradient, x):
    verdict = near(gradient, numeric(f, x, 1e-6), 1e-3)
    x += 1e-6
    return verdict


def cases(check, *, small=True, cancelling=True, sign=True, nan=True, places=(0, 1, 2), factor=1.03, yes=True,
          intact=True):
    """The solution's check, with something left out."""
    x = np.array([1.0, 2.0, -3.0])
    for size in (1.0, 0.001) if small else (1.0,):
        def f(x, size=size):
            return size * (x ** 2).sum()
        right = 2 * size * x
        given = x.copy()
        assert check(f, right, given) or not yes
        assert np.array_equal(given, x) or not intact
        assert not (sign and check(f, -right, x.copy()))
        assert not (cancelling and check(f, right + size * np.array([0.5, -0.5, 0.0]), x.copy()))
        for i in places:
            for times in (factor, np.nan) if nan else (factor,):
                wrong = right.copy()
                wrong[i] *= times
                assert not check(f, wrong, x.copy())


@exercise.mistake("Every error that you plant is gross. Checkers with too wide a tolerance see those, too.")
def gross(gradcheck):
    cases(gradcheck, factor=2.0)


@exercise.mistake("You doubled the whole gradient, and no more. What if a single element is off, or by 3 %, or in "
                  "sign?")
def doubled(gradcheck):
    x = np.array([1.0, 2.0, 3.0])
    assert gradcheck(lambda x: (x ** 2).sum(), 2 * x, x)
    assert not gradcheck(lambda x: (x ** 2).sum(), 4 * x, x)


@exercise.mistake("The first element is always among those that you spoil. Who looks no further finds it all the same.")
def the_first(gradcheck):
    cases(gradcheck, places=(0,))


@exercise.mistake("Your functions all have slopes of about 1. An error of 2 % of a slope of 0.001 is small: who "
                  "forgives it?")
def slopes_of_one(gradcheck):
    cases(gradcheck, small=False)


@exercise.mistake("You plant errors in one element at a time. Two that are opposite are a harder test, for whoever "
                  "adds up.")
def no_cancelling(gradcheck):
    x = np.array([1.0, 2.0, 3.0])
    for size in (1.0, 0.001):
        def f(x, size=size):
            return size * (x ** 3).sum()
        right = 3 * size * x ** 2
        for spoilt in (right * 1.03, -right, right * np.array([1, np.nan, 1])):
            given = x.copy()
            assert gradcheck(f, right, given)
            assert np.array_equal(given, x)
            assert not gradcheck(f, spoilt, x.copy())


@exercise.mistake("You never turn a gradient around. Who compares sizes alone would be content with one that leads "
                  "uphill.")
def no_sign(gradcheck):
    cases(gradcheck, sign=False)


@exercise.mistake("You never ask with a NaN. Comparisons with it are False, whichever way they are written.")
def no_nan(gradcheck):
    cases(gradcheck, nan=False)


@exercise.mistake("You ask only for noes. A checker that always says no would pass.")
def never_yes(gradcheck):
    cases(gradcheck, yes=False)


@exercise.mistake("You do not look at x after the call. Is it still what you gave?")
def not_intact(gradcheck):
    cases(gradcheck, intact=False)


@exercise.mistake("You ask for a no where the error is far below 2 %. There a right checker may say yes, and some "
                  "errors no difference can see.")
def too_strict(gradcheck):
    cases(gradcheck)
    x = np.array([1.0, 2.0])
    assert not gradcheck(lambda x: (x ** 2).sum(), 2 * x * (1 + 1e-12), x)
