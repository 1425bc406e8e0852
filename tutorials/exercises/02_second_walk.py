"""Two walks through one graph

With our Tensor, and a graph that is kept:

    x = Tensor(1.0, requires_grad=True)
    h = 3 * x
    y = h * h + h
    y.backward(retain_graph=True)
    y.backward()

What is x.grad at the end? The answer is a whole number.
"""

from tinygrad_attn import Tensor
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number
""",
    hints=["First find what one walk adds to x.grad: ∂y/∂h, over the three uses of h, times the slope of h.",
           "Section 4 says what is added up when a graph is walked again, and what is forgotten with each walk."])


@exercise.solution
def answer():
    x = Tensor(1.0, requires_grad=True)
    h = 3 * x
    y = h * h + h
    y.backward(retain_graph=True)
    y.backward()
    return float(x.grad)


@exercise.mistake("That is right after the first walk. What does the second do with the .grad that it finds at a leaf?")
def one_walk():
    return 21.0


@exercise.mistake("Here h has kept its gradient of the first walk, and the second has sent it on once more. Does a "
                  "value on the way keep its gradient?")
def stale():
    return 63.0


@exercise.mistake("h · h uses h twice, and each use sends back a share.")
def square_once():
    return 24.0


@exercise.mistake("On the way from h to x there is a slope. How much does h grow if x grows by 1?")
def without_the_slope():
    return 14.0


@exercise.mistake("The uses of h are the two factors of h · h, and one more. Which?")
def sum_forgotten():
    return 36.0


@exercise.mistake("That is the value of y. The question is what the walks leave in x.grad.")
def value_of_y():
    return 12.0
