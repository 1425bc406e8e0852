"""The lowest number of half precision

Three scores of one query, in float16, are 3, −100 and 1. All three keys are forbidden. Somebody masks by adding the
lowest number of the format, −65504, to each score, in float16. Then comes the softmax, `plain_softmax` of tutorial 07.
What is the first of the three weights? `float("nan")` is an answer, too.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number, or float("nan")
""",
    hints=["What are the three sums, in float16? Around there its numbers are 32 apart.",
           "Two of the sums are one and the same number. The third is lower than any number.",
           "The softmax subtracts the largest of the three sums first. What is left of each?"],
    tolerance=0.01)


@exercise.solution
def answer():
    with np.errstate(all="ignore"):
        scores = np.array([3, -100, 1], np.float16) + np.finfo(np.float16).min
        e = np.exp(scores - scores.max())
        return float((e / e.sum())[0])


@exercise.mistake("That is what it should be, for a row with nothing left. But what was added is a number like any "
                  "other: what are the three sums?")
def nothing():
    return 0.0


@exercise.mistake("It would be NaN if all three sums were −∞. Is 3 − 65504 out of range?")
def no_number():
    return float("nan")


@exercise.mistake("All three sums would have to be equal for that. Is −100 − 65504 a number of the format?")
def a_third():
    return 1 / 3


@exercise.mistake("That would be so if each sum were exact. How far apart are the numbers of float16 there?")
def as_if_unmasked():
    return float(1 / (1 + np.exp(-2)))


@exercise.mistake("One key would have the whole weight. Is one of the sums larger than the others, after rounding?")
def one_hot():
    return 1.0
