"""One score, after a word has changed

In the worked example of tutorial 04 the first word is (1, 0, 1, 0). Let the second be (0, 1, 0, 0) instead. The
matrices stay:

    W_q = [[.1, .2,  0,  0],        W_k = [[.2,  0, .1,  0],
           [ 0, .1, .3,  0],               [ 0, .1,  0, .3],
           [.1,  0,  0, .2],               [.1,  0, .2,  0],
           [ 0,  0, .2, .3]]               [ 0, .2,  0, .1]]

What is the score of the first word's query with the second word's key, *after* the division by √d_k?
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["You need two vectors: which word is multiplied by which matrix? With words of zeros and ones, you only "
           "have to add rows.",
           "A word (0, 1, 0, 0) picks one row of a matrix. And how long are the queries, so what is √d_k?"],
    tolerance=1e-6)

W_Q = np.array([[0.1, 0.2, 0.0, 0.0], [0.0, 0.1, 0.3, 0.0], [0.1, 0.0, 0.0, 0.2], [0.0, 0.0, 0.2, 0.3]])
W_K = np.array([[0.2, 0.0, 0.1, 0.0], [0.0, 0.1, 0.0, 0.3], [0.1, 0.0, 0.2, 0.0], [0.0, 0.2, 0.0, 0.1]])
FIRST, SECOND = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])


@exercise.solution
def answer():
    return (FIRST @ W_Q) @ (SECOND @ W_K) / np.sqrt(4)


@exercise.mistake("The dot product is right. One step comes between it and the softmax.")
def not_scaled():
    return (FIRST @ W_Q) @ (SECOND @ W_K)


@exercise.mistake("The dot product is right, and what you divided by is d_k itself.")
def by_d_k():
    return (FIRST @ W_Q) @ (SECOND @ W_K) / 4


@exercise.mistake("That is how it was before the second word changed. Which of the two vectors changes with it?")
def of_the_old_word():
    return (FIRST @ W_Q) @ (np.array([0.0, 2.0, 0.0, 2.0]) @ W_K) / 2


@exercise.mistake("That is what the second word finds in the first. Who asks here, and who is asked?")
def the_other_way():
    return (SECOND @ W_Q) @ (FIRST @ W_K) / 2


@exercise.mistake("The words themselves are at right angles, and so are their two keys. But what is compared is the "
                  "query of one with the key of the other.")
def without_projection():
    return 0.0


@exercise.mistake("Both vectors were made with W_q. Which matrix makes what a word offers?")
def two_queries():
    return (FIRST @ W_Q) @ (SECOND @ W_Q) / 2


@exercise.mistake("A word is a row, and stands to the left of its matrix: it adds up rows of it. You took columns.")
def columns():
    return (W_Q @ FIRST) @ (W_K @ SECOND) / 2
