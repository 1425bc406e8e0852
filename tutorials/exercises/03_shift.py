"""One weight, after all scores were moved

A softmax gives four keys the weights 0.4, 0.3, 0.2 and 0.1. You do not know the scores. Now 100 is added to all four
scores, and then ln 2 = 0.693… more to the first one alone. What is the first weight? Give it to three digits.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Take the two changes one after the other. What does the first one do to the differences of the scores?",
           "A score that is higher by c makes its exponential e^c times as large. Then the weights must sum to 1 "
           "again."],
    tolerance=1e-3)


@exercise.solution
def answer():
    scores = np.log([0.4, 0.3, 0.2, 0.1]) + 100         # one choice of many
    scores[0] += np.log(2)
    e = np.exp(scores - scores.max())
    return e[0] / e.sum()


@exercise.mistake("The first exponential is indeed twice as large. But do these four weights still sum to 1?")
def not_normalised():
    return 0.8


@exercise.mistake("That is near, and rounded too soon. How many digits does the statement ask for?")
def rounded():
    return 0.57


@exercise.mistake("A shift of all scores changes nothing, however large it is. But one score was moved against the "
                  "others.")
def nothing_changes():
    return 0.4


@exercise.mistake("Scores that are all large are no more decided than small ones. What counts besides their size?")
def saturated():
    return 1.0


@exercise.mistake("You added to the weight what was added to the score. What does the softmax do with a score before "
                  "it divides?")
def added_to_the_weight():
    return (0.4 + np.log(2)) / (1 + np.log(2))


@exercise.mistake("The sum that you divide by has changed as well: all four exponentials are in it, with the new first "
                  "one.")
def twice_over_one_and_a_bit():
    return 0.8 / (1 + np.log(2))


@exercise.mistake("That is how much of 1 is left for the others. How much has the first?")
def of_the_others():
    return 0.6 / 1.4


@exercise.mistake("A weight is never above 1. ln 2 was added to the score, and the score stands in the exponent: by "
                  "what does its exponential change?")
def score_and_weight_mixed_up():
    return 0.4 + np.log(2)
