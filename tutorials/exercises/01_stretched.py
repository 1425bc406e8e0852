"""Scores stretched a thousand times

A soft lookup multiplies its scores by 1000 before the softmax:

    query   [1, 1]
    keys    [2, 0], [0, 1], [1, 1]
    values  10, 90, 30

What is its answer? One decimal place is enough. A calculator does not know e²⁰⁰⁰, and you do not need one.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Write the three scores down. How large is the weight of a key whose score is 1000 below the highest?",
           "Look at section 5 of the tutorial, and at what it says of the exception."],
    tolerance=0.005)

KEYS, VALUES = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([10.0, 90.0, 30.0])


def lookup(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum() @ VALUES


@exercise.solution
def answer():
    return lookup(1000 * KEYS @ np.array([1.0, 1.0]))


@exercise.mistake("That is the value of the first key, which `argmax` would take. Is it the only one with the highest "
                  "score?")
def the_first():
    return 10.0


@exercise.mistake("That is the value of the last key. It has a highest score, but is it alone with it?")
def the_last():
    return 30.0


@exercise.mistake("That is the answer to the scores as they are. What becomes of the weight of the key with the lowest "
                  "score, when all are stretched?")
def not_stretched():
    return lookup(KEYS @ np.array([1.0, 1.0]))


@exercise.mistake("That is the mean of all three values. It would come out if the scores were multiplied by 0. What "
                  "does a large number do?")
def mean_of_all():
    return VALUES.mean()


@exercise.mistake("That is the largest value. A lookup chooses by keys: what is the score of that value's key?")
def the_largest_value():
    return 90.0


@exercise.mistake("That is a sum of values. The weights of keys that tie sum to 1, so that each has how much?")
def added():
    return 10.0 + 30.0


@exercise.mistake("These are the weights, and they are right. What answer do they give with the three values?")
def weights():
    return 0.5, 0.0, 0.5
