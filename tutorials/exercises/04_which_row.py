"""Which key gets the most attention?

A query is (1, 2). There are four keys, each with a value:

    a = (4, 0)      b = (1, 2)      c = (3, 3)      d = (−6, 1)

From which value does the output take most? Answer "a", "b", "c" or "d".
"""

import numpy as np

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # "a", "b", "c" or "d"
""",
    hints=["The largest weight has the largest score. How is a score computed? There are only four.",
           "A dot product grows with the length of both vectors, and is the larger, the nearer their directions are."])


@exercise.solution
def answer():
    keys = np.array([[4.0, 0.0], [1.0, 2.0], [3.0, 3.0], [-6.0, 1.0]])
    return "abcd"[int(np.argmax(keys @ [1.0, 2.0]))]


@exercise.mistake("That key equals the query, so no other is nearer to it. But is it nearness that attention measures?")
def the_nearest():
    return "b"


@exercise.mistake("That is the longest key. Into which direction does it point, seen from the query?")
def the_longest():
    return "d"


@exercise.mistake("Its first component is the largest of all. What does the query say of the second?")
def the_largest_first_component():
    return "a"
