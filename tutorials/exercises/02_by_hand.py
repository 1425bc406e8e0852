"""One gradient by hand

Let h = 2 · x and

    y = h · h + h · x + x

at x = −2. What is ∂y/∂x? Go back from y as in section 1 of tutorial 02: first ∂y/∂h, over all uses of h, then ∂y/∂x,
over all uses of x. The answer is a whole number.
"""

from tinygrad_attn import Tensor
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number
""",
    hints=["h is used three times, twice of them in h · h. What does each use send back to h?",
           "x is used three times: in h, in h · x, and alone. Three shares make the gradient, and not all are "
           "negative."])


@exercise.solution
def answer():
    x = Tensor(-2.0, requires_grad=True)
    h = 2 * x
    y = h * h + h * x + x
    y.backward()
    return float(x.grad)


@exercise.mistake("One share is missing at x: beside the way through h and the product h · x, is there a use of x "
                  "alone?")
def without_x_alone():
    return -24.0


@exercise.mistake("That is what comes to x by way of h alone. Where else is x used?")
def through_h_alone():
    return -20.0


@exercise.mistake("h · h has two factors, and both are h. How many shares does this product send back?")
def square_once():
    return -15.0


@exercise.mistake("∂y/∂h is right, but on the way from h to x there is a slope: how much does h grow if x grows by 1?")
def without_the_slope_of_h():
    return -13.0


@exercise.mistake("The product h · x has two inputs. Have both of them had their share?")
def half_of_the_product():
    return -19.0


@exercise.mistake("That is ∂y/∂h. The last step is left, from h and from the other uses to x.")
def at_h():
    return -10.0


@exercise.mistake("That is the value of y. The question is how fast it grows when x does.")
def value_of_y():
    return 22.0


@exercise.mistake("The size is right. Put x = −1.9 in: is y larger or smaller than at −2?")
def sign():
    return 23.0
