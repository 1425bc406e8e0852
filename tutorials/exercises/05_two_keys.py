"""Two keys, and a mean that falls slowly

There are two keys, and the scores are not divided by anything. For large d_k, section 4 of tutorial 05 says that the
mean of ‖J‖ over draws is near c/√d_k. What is c for two keys? It is the density at 0 of the gap |x − y| of two
independent standard normal numbers. Two digits are enough; an expression, such as 3 / math.sqrt(2), is better.

The difference of two independent normal numbers is normal, too, and a normal number of mean 0 and variance v has the
density 1/√(2πv) at 0.
"""

import math

from tinygrad_attn.learn import Predict
from tinygrad_attn.saturation import theory

exercise = Predict(
    starter="""
import math

answer = ...        # a number
""",
    hints=["Begin with x − y, without the bars: it is normal, too. What are its mean and its variance?",
           "Then the bars: they fold the negative half onto the positive one. You may also draw a million pairs and "
           "count."],
    tolerance=0.02)


@exercise.solution
def answer():
    return theory.tie_density(2)


@exercise.mistake("That is the density of x − y. What do the bars of |x − y| do to it, if the whole must still be 1?")
def not_folded():
    return 1 / math.sqrt(4 * math.pi)


@exercise.mistake("That is what one normal number, folded, would have. Is x − y spread as x is?")
def of_one():
    return math.sqrt(2 / math.pi)


@exercise.mistake("That is the density of a single standard normal number. The gap is a difference of two, and it is "
                  "never negative.")
def standard():
    return 1 / math.sqrt(2 * math.pi)


@exercise.mistake("That is c for the 64 keys of the tutorial. With two keys, are near ties of the largest two as "
                  "frequent?")
def of_64():
    return theory.tie_density(64)


@exercise.mistake("That is the *median* of the gap. The question is how dense the gap is at 0.")
def the_median():
    return theory.median_gap(2)
