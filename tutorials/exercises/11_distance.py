"""Which rows have the same product?

In the table of sinusoids, 100 positions of width 64, the dot product of the rows 3 and 7 is some number. Which pair of
rows has the same product: "6 and 14", "1 and 9", "12 and 8", or "none of these"?
"""

import numpy as np

from tinygrad_attn.learn import Predict
from tinygrad_attn.nn import sinusoids

exercise = Predict(
    starter="""
answer = ...        # one of the texts, such as "none of these"
""",
    hints=["On what does the product of two rows depend, and on what does it not?",
           "A product of two vectors does not change if they change places."])


@exercise.solution
def answer():
    table = sinusoids(100, 64)
    products, pairs = table @ table.T, ((6, 14), (1, 9), (12, 8))
    same = [f"{p} and {q}" for p, q in pairs if np.isclose(products[p, q], products[3, 7])]
    return same[0] if len(same) == 1 else "none of these"


@exercise.mistake("These have the same ratio as 3 and 7. How far are they from each other?")
def same_ratio():
    return "6 and 14"


@exercise.mistake("These have the same middle as 3 and 7. Does the product depend on where the rows are, or on how far "
                  "they are from each other?")
def same_middle():
    return "1 and 9"


@exercise.mistake("One of them has. The cosine of an angle and the cosine of its negative are equal: what follows "
                  "for p and q in the formula?")
def none():
    return "none of these"
