"""Which order finds the fault?

Somebody wrote the op `cube`, x ↦ x³, with this rule, where g = dL/d out:

    lambda g, out, x: g * 3 * constant(x) ** 2

`constant(x)` has the numbers of x, but is outside of the graph, as `x.detach()` is. What is the smallest `order` with
which `gradcheck(cube, [0.5, 2.0], order=…)` fails? Answer 1, 2 or 3, or "none".
"""

from tinygrad_attn import GradcheckError, Tensor, gradcheck, primitive
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # 1, 2, 3 or "none"
""",
    hints=["What number does the rule give for the first derivative? Is that the derivative of x³?",
           "For the next order the rule itself is differentiated. Which parts of it depend on x, if the graph is "
           "asked?"])


@exercise.solution
def answer():
    @primitive
    def cube(x):
        """x³"""
        return x ** 3

    def constant(x):
        return x.detach() if isinstance(x, Tensor) else x

    cube.defvjp(lambda g, out, x: g * 3 * constant(x) ** 2)
    for order in (1, 2, 3):
        try:
            gradcheck(cube, [0.5, 2.0], order=order)
        except GradcheckError:
            return order
    return "none"


@exercise.mistake("The first derivative comes out as 3x², with the right numbers: a constant has the same numbers as "
                  "x. When is the difference felt?")
def first():
    return 1


@exercise.mistake("Order 3 includes the orders before it. Is the derivative of the rule itself still right, or does it "
                  "fail there already?")
def third():
    return 3


@exercise.mistake("The numbers of the first derivative are right. But what is the derivative of a constant, and what "
                  "should the next derivative be?")
def none():
    return "none"


@exercise.mistake("An order is a number, and this is a text. Leave out the quotation marks.")
def as_a_text():
    return "2"
