"""What the walk makes of a rule's result

An op multiplies two inputs. Neither of its rules knows of broadcasting:

    @primitive
    def product(x, y):
        return x * y

    product.defvjp(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x)

    x = Tensor([[1.0], [1.0], [1.0]], requires_grad=True)       # (3, 1)
    product(x, np.array([1.0, 2.0, 3.0, 4.0])).sum().backward()

What is the first number in x.grad?
"""

import numpy as np

from tinygrad_attn import Tensor, primitive
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["Write down the output, three rows of four. In which of its elements was the first x used?",
           "The rule returns an array of the output's shape. How must it become one of x's shape, if each use of x has "
           "its share?"])


@exercise.solution
def answer():
    @primitive
    def product(x, y):
        return x * y

    product.defvjp(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x)
    x = Tensor([[1.0], [1.0], [1.0]], requires_grad=True)
    product(x, np.array([1.0, 2.0, 3.0, 4.0])).sum().backward()
    return float(x.grad[0, 0])


@exercise.mistake("That is the first share alone. The same x was used along a whole row.")
def one_share():
    return 1.0


@exercise.mistake("That is the mean of the shares. What does the chain rule do with several paths to one x?")
def mean():
    return 2.5


@exercise.mistake("You count how often the x was used. By what is it multiplied at each use?")
def count():
    return 4.0


@exercise.mistake("That is the sum over the whole output. Which rows did the first x have no part in?")
def everything():
    return 30.0


@exercise.mistake("That sums over the rows. Along which axis was x, of shape (3, 1), repeated?")
def other_axis():
    return 3.0
