"""Are two large scores saturated?

Two keys have the scores 20 and 20. What is ‖J‖, the root of the sum of the squares of all four elements of the
softmax's Jacobian diag(p) − p pᵀ?
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Begin with the weights. Do they depend on the scores themselves, or on their difference?",
           "Write down the four numbers pᵢ(δᵢⱼ − pⱼ), square them, add them up, and take the root."],
    tolerance=0.01)


@exercise.solution
def answer():
    e = np.exp(np.array([20.0, 20.0]) - 20.0)
    p = e / e.sum()
    return float(np.linalg.norm(np.diag(p) - np.outer(p, p)))


@exercise.mistake("Large scores alone do not saturate a softmax. How large is the *gap* here, and which weights does "
                  "it give?")
def nothing():
    return 0.0


@exercise.mistake("That is one element of the matrix, or the sum of all squares. Which elements are there, and what is "
                  "still to be done?")
def one_element():
    return 0.25


@exercise.mistake("That is the norm of the weights p. The question is about the matrix diag(p) − p pᵀ.")
def of_the_weights():
    return 2 ** -0.5


@exercise.mistake("You added the sizes of the elements. The norm adds their squares, and takes the root of the sum.")
def sizes_added():
    return 1.0


@exercise.mistake("That is the diagonal alone. What stands beside it?")
def the_diagonal():
    return 2 ** 0.5 / 4
