"""A query that is its own key

Section 1 of tutorial 05 needs queries and keys that are independent. Now let W_k = W_q, as a layer might start, so that
the key of a token is the same vector as its query. Its d_k = 144 components are independent, with mean 0 and
variance 1. What is the *mean*, over draws, of the score q·q/√d_k of a token with itself?
"""

import math

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Write the dot product as a sum. What is the mean of one of its terms, now that both factors are the same?",
           "E[q₁²] is the variance of q₁, as its mean is 0. Means add up, and then there is the division."],
    tolerance=0.01)


@exercise.solution
def answer():
    d_k, variance = 144, 1.0
    return d_k * variance / math.sqrt(d_k)


@exercise.mistake("That is so for two *independent* vectors. Can a term q₁ q₁ be negative?")
def independent():
    return 0.0


@exercise.mistake("That is q·q, before the division by √d_k.")
def undivided():
    return 144.0


@exercise.mistake("That would be the mean after a division by d_k. By what does attention divide?")
def by_the_width():
    return 1.0


@exercise.mistake("That is the standard deviation of this score, which the division does make small. The question is "
                  "what its mean is.")
def the_deviation():
    return math.sqrt(2)
