"""The best step, with a large constant in the way

You differentiate f(x) = 10⁶ + sin x at x = 0 by central differences. By section 1 of tutorial 09 the error is about

    h² |f‴| / 6  +  ε |f| / h        with ε = 10⁻¹⁶

At which step h is that least? Answer with the exponent of the nearest power of ten, such as −7 for h near 10⁻⁷.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number, such as -7
""",
    hints=["How large are |f| and |f‴| at 0? Put both in. Then the formula has only h left in it.",
           "Where a sum of two terms is least, its derivative with respect to h is 0. What is the derivative of each "
           "term?"],
    tolerance=0.01)


@exercise.solution
def answer():
    h = np.logspace(-14, 0, 100_001)
    error = h ** 2 * 1.0 / 6 + 1e-16 * 1e6 / h
    return round(float(np.log10(h[error.argmin()])))


@exercise.mistake("So it would be without the constant. Its derivative is 0, but which of the two errors does it make "
                  "larger?")
def without_the_constant():
    return -5


@exercise.mistake("That is about right for *forward* differences of a function of size 1. Which power of h has the "
                  "truncation here, and how large is f?")
def forward():
    return -8


@exercise.mistake("That is what `gradcheck` takes if you do not say otherwise. Is it long enough, where f has this "
                  "size?")
def the_default():
    return -6


@exercise.mistake("There the second term is still 1, as large as the derivative itself. Where is the *sum* of both "
                  "least?")
def the_rounding():
    return -10


@exercise.mistake("A step was asked for by its exponent: a whole number.")
def the_step_itself():
    return 1e-3


@exercise.mistake("A step of that size leaves the neighbourhood of 0. Mind the sign of the exponent.")
def sign_lost():
    return 3


@exercise.mistake("That is the lowest point of the tutorial's curve, for a function of size 1, and it was partly "
                  "luck. Put this function into the formula.")
def from_the_curve():
    return -7


@exercise.mistake("That is the exponent of the best step itself. Which power of ten, with a whole exponent, is nearest "
                  "to it?")
def not_rounded():
    return float(np.log10((3 * 1e-10) ** (1 / 3)))
