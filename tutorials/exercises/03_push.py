"""How far does one weight move when another score does?

Three weights of a softmax are 0.5, 0.3 and 0.2. The score of the first rises by 0.01. By how much does the *third*
weight change, about? Give a number with its sign, to two digits. Do it with the Jacobian, and without a computer.
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number: what is added to the third weight
""",
    hints=["Which element of the Jacobian tells how the third weight moves with the first score?",
           "A small step changes the weight by about the derivative, times the step."],
    tolerance=3e-5)


@exercise.solution
def answer():
    scores = np.log([0.5, 0.3, 0.2])
    scores[0] += 0.01
    e = np.exp(scores)
    return e[2] / e.sum() - 0.2


@exercise.mistake("Each exponential has its own score. But through which part of the formula does every score reach "
                  "every weight?")
def nothing():
    return 0.0


@exercise.mistake("The size is right. If the first weight gains and the sum stays 1, can the third gain as well?")
def wrong_sign():
    return 0.001


@exercise.mistake("That is how much the *first* weight gains. Who pays for it, and in which shares?")
def its_own():
    return 0.0025


@exercise.mistake("The first gains that much, and the others lose it together. What is the share of the third?")
def all_of_the_loss():
    return -0.0025


@exercise.mistake("The others do not lose the same. Each loses in proportion to something; look at a row of the "
                  "Jacobian.")
def shared_equally():
    return -0.00125


@exercise.mistake("That is the derivative. How large was the step?")
def without_the_step():
    return -0.1


@exercise.mistake("Of the two factors of that element, one belongs to the weight that moves, the other to the score "
                  "that was moved. Which score was it?")
def of_the_second_score():
    return -0.0006


@exercise.mistake("That is what the *second* weight loses. In which row of the Jacobian is the third?")
def the_second():
    return -0.0015
