"""A rule that uses its output

The rule of this op divides the output by the input, to save a power:

    @primitive
    def cube(x):
        return x ** 3

    cube.defvjp(lambda g, out, x: 3 * g * out / x)

    x = Tensor(3.0, requires_grad=True)
    slope = grad(cube(x), x, create_graph=True)
    print(grad(slope, x).item())

As 3 x³ / x is 3 x², the first derivative is right (except at 0). Which number is printed?
"""

from tinygrad_attn import Tensor, grad, primitive
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["What are `out` and x when the rule is called with create_graph=True: arrays or Tensors? Of what does each "
           "depend?",
           "Differentiate 3 out / x as a quotient, and remember by which op `out` was made."])


@exercise.solution
def answer():
    @primitive
    def cube(x):
        return x ** 3

    cube.defvjp(lambda g, out, x: 3 * g * out / x)
    x = Tensor(3.0, requires_grad=True)
    slope = grad(cube(x), x, create_graph=True)
    return grad(slope, x).item()


@exercise.mistake("That would come out if `out` were a constant in the rule. Is it, when the walk back is recorded?")
def out_is_constant():
    return -9.0


@exercise.mistake("That is the first derivative at 3, or what comes out if x were a constant in the rule.")
def first():
    return 27.0


@exercise.mistake("Nothing in the rule would depend on x then. With create_graph=True, what are `out` and x?")
def all_constant():
    return 0.0


@exercise.mistake("That is the third derivative of x³. How many times was it differentiated here?")
def third():
    return 6.0


@exercise.mistake("That is the second derivative of x² times 3, without the x that is left.")
def factor_lost():
    return 9.0
