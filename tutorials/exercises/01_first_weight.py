"""The weight of the first key

A soft lookup as in section 3 of tutorial 01, with scores as they are, not divided:

    query  [1, 2]
    keys   [1, 0], [0, 1], [1, 1]

What is the weight of the first key? Two decimal places are enough. (Paper and a calculator will do.)
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number between 0 and 1
""",
    hints=["First the three scores: each is the dot product of the query with a key.",
           "Then three exponentials. The weight of a key is its share of their sum."],
    tolerance=0.005)


@exercise.solution
def answer():
    query, keys = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    positive = np.exp(keys @ query)
    return positive[0] / positive.sum()


@exercise.mistake("That is the first score's share of the sum of the scores. What happens to the scores before the "
                  "division, and why would negative ones cause trouble otherwise?")
def without_exponential():
    return 1 / 6


@exercise.mistake("These scores were divided by √2. Here they are used as they are.")
def divided_by_the_root():
    scores = np.array([1.0, 2.0, 3.0]) / np.sqrt(2)
    return np.exp(scores[0]) / np.exp(scores).sum()


@exercise.mistake("That is the largest weight. Which key does it belong to?")
def the_largest():
    return np.exp(3.0) / np.exp([1.0, 2.0, 3.0]).sum()


@exercise.mistake("That is the weight of the second key. Which key is asked for?")
def the_second():
    return np.exp(2.0) / np.exp([1.0, 2.0, 3.0]).sum()


@exercise.mistake("That is the exponential of a score. A weight is a share: what are all three exponentials together?")
def not_divided():
    return np.exp(1.0)


@exercise.mistake("That is the first score, or what a hard lookup would give its best key. Three weights have to share "
                  "a total of 1.")
def the_score():
    return 1.0


@exercise.mistake("Equal weights would need equal scores. Are the three dot products equal?")
def equal():
    return 1 / 3
