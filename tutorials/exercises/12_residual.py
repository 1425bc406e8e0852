"""The slope of ten residual layers

Ten layers stand one behind the other. Each computes x + f(x), with f(x) = tanh(x / 2). The input is the number 0. What
is the derivative of the output with respect to the input? Two digits are enough. (The slope of tanh at 0 is 1.)
"""

from tinygrad_attn import Tensor
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["What is the output of the first layer at 0? So at which number does the second one stand?",
           "First find the derivative of one layer, residual included. The chain rule then says what ten in a row do."],
    tolerance=0.02)


@exercise.solution
def answer():
    x = h = Tensor(0.0, requires_grad=True)
    for _ in range(10):
        h = h + (h / 2).tanh()
    h.backward()
    return float(x.grad)


@exercise.mistake("That is what is left without the residuals. What does the x in x + f(x) add to the derivative of a "
                  "layer?")
def no_residual():
    return 0.5 ** 10


@exercise.mistake("Derivatives of layers in a row are multiplied. In your number they are added up.")
def added():
    return 1 + 10 * 0.5


@exercise.mistake("One path skips all ten layers, and has derivative 1. But each layer has a residual of its own, so "
                  "that there are many more paths: each goes, at each layer, through f or past it.")
def one_around_all():
    return 1 + 0.5 ** 10


@exercise.mistake("The slope of tanh(x / 2) at 0 is not 1: the chain rule has a factor for the x / 2.")
def no_half():
    return 2.0 ** 10


@exercise.mistake("That is the derivative of one layer, ten times. What does the chain rule do with ten derivatives in "
                  "a row?")
def ten_times():
    return 10 * 1.5


@exercise.mistake("That is the derivative of one layer. There are ten, one behind the other.")
def one_layer():
    return 1.5
