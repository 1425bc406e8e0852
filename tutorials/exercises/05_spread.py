"""How widely are these scores spread?

The 400 components of a query and of a key are independent, with mean 0, and with standard deviation ½ each. What is
the standard deviation of their dot product? It is not divided by anything. Two digits are enough.
"""

import math

from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Variances of independent terms add up. What is the variance of one of the products?",
           "The variance of a product of two independent numbers of mean 0 is the product of their variances. There "
           "are 400 such terms, and the question is not about the variance."],
    tolerance=0.02)


@exercise.solution
def answer():
    d_k, variance = 400, 0.5 ** 2
    return math.sqrt(d_k * variance * variance)


@exercise.mistake("That would be right for components of standard deviation 1. How much smaller is each product here?")
def of_unit_components():
    return 20.0


@exercise.mistake("That is the sum of the standard deviations of all products. What adds up, if terms are independent?")
def spreads_added():
    return 100.0


@exercise.mistake("Both factors of each product are halved, the query's component and the key's.")
def one_factor():
    return 10.0


@exercise.mistake("That is the variance. Which function of it was asked for?")
def the_variance():
    return 25.0


@exercise.mistake("That is what is left after a division by √d_k. These scores are not divided by anything.")
def divided():
    return 0.25
