"""An op of two vectors

Write `make_bilinear()`, which makes an op with `@primitive`, gives it its rules, and returns it. The op is called as
bilinear(x, y, matrix=M) and computes the number

    out = Σᵢⱼ xᵢ Mᵢⱼ yⱼ = xᵀ M y

of two vectors, x (n,) and y (m,). M (n, m) is an option, not an input, and need not be square. The rules must be right
to second order.
"""

import numpy as np

from tinygrad_attn import Tensor, grad, primitive
from tinygrad_attn.learn import Write

exercise = Write(
    "make_bilinear",
    starter="""
import numpy as np

from tinygrad_attn import primitive


def make_bilinear():
    \"\"\"the op bilinear(x, y, *, matrix), with its two rules\"\"\"
    ...
""",
    imports=("tinygrad_attn.primitive", "tinygrad_attn.Tensor"),
    hints=["`defvjp` takes one rule for each input, in their order. Each is called with g, out, x, y, and the option "
           "by its name.",
           "Look at the sum: what stands beside xᵢ in it is the derivative with respect to xᵢ. Which shape must that "
           "have?"])


@exercise.solution
def make_bilinear():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ y),
                    lambda g, out, x, y, *, matrix: g * (x @ matrix))
    return bilinear


def value(make, x, y, matrix):
    return make()(x, y, matrix=matrix)


def gradients(make, x, y, matrix, g):
    x, y = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    make()(x, y, matrix=matrix).backward(np.asarray(g))
    return x.grad, y.grad


def mixed(make, x, y, matrix):
    x, y = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    at_x = grad(make()(x, y, matrix=matrix), x, create_graph=True)
    return grad(at_x.sum(), y)


def mixed_from_y(make, x, y, matrix):
    x, y = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    at_y = grad(make()(x, y, matrix=matrix), y, create_graph=True)
    return grad(at_y.sum(), x)


def of_the_square(make, x, y, matrix):
    x, y = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    out = make()(x, y, matrix=matrix)
    at_x, at_y = grad(out * out, (x, y), create_graph=True)
    return grad(at_x.sum(), x), grad(at_y.sum(), y)


def of_the_square_on_paper(x, y, matrix):
    at_x, at_y = matrix @ y, x @ matrix
    return 2 * at_x.sum() * at_x, 2 * at_y.sum() * at_y


def by_differences(x, y, matrix, g, h=1e-6):
    def f(x, y):
        return np.einsum("i,ij,j", x, matrix, y)
    return (np.array([g * (f(x + h * e, y) - f(x - h * e, y)) / (2 * h) for e in np.eye(len(x))]),
            np.array([g * (f(x, y + h * e) - f(x, y - h * e)) / (2 * h) for e in np.eye(len(y))]))


SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]])


@exercise.check("values",
                "A vector, a matrix and a vector: two products, one after the other, make a number.", call=value)
def values(rng):
    yield np.array([1.0, 0.0]), np.array([0.0, 1.0]), SQUARE
    yield rng.normal(size=2), rng.normal(size=3), rng.normal(size=(2, 3))


@exercise.check("both gradients, against differences",
                "The gradient of x is what each xᵢ is multiplied by; that of y is "
                "what each yⱼ is.", call=gradients, expected=by_differences, tolerance=1e-5)
def slopes(rng):
    yield np.array([1.0, 2.0]), np.array([1.0, -1.0]), SQUARE, 1.0
    yield rng.normal(size=3), rng.normal(size=3), rng.normal(size=(3, 3)), 1.0


@exercise.check("matrices that are not square", "n and m differ. Which of the two lengths does each gradient have?",
                call=gradients)
def oblong(rng):
    for n, m in ((1, 2), (3, 2), (2, 4)):
        yield rng.normal(size=n), rng.normal(size=m), rng.normal(size=(n, m)), 1.0


@exercise.check("what comes back is not 1", "Behind the op the loss went on: g is dL/d out.", call=gradients)
def weighted(rng):
    yield np.array([1.0, 2.0]), np.array([1.0, -1.0]), SQUARE, -3.0


@exercise.check("second derivatives",
                "The gradient of x depends on y. Is your rule made of things that know y?", call=mixed)
def twice(rng):
    yield np.array([1.0, 2.0]), np.array([1.0, -1.0]), SQUARE
    yield rng.normal(size=2), rng.normal(size=3), rng.normal(size=(2, 3))


@exercise.check("second derivatives, the other way round", "The gradient of y depends on x. Is your second rule made "
                "of things that know x?", call=mixed_from_y)
def twice_from_y(rng):
    yield np.array([1.0, 2.0]), np.array([1.0, -1.0]), SQUARE
    yield rng.normal(size=2), rng.normal(size=3), rng.normal(size=(2, 3))


@exercise.check("second derivatives of out²", "Behind the op there is a square, so that what comes back, g = 2 out, "
                "depends on x and y as well. Does your rule know?", call=of_the_square, expected=of_the_square_on_paper)
def squared(rng):
    yield np.array([1.0, 2.0]), np.array([1.0, -1.0]), SQUARE
    yield rng.normal(size=2), rng.normal(size=3), rng.normal(size=(2, 3))


@exercise.mistake("The two rules have changed places. The first one is for the first input.")
def swapped():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (x @ matrix),
                    lambda g, out, x, y, *, matrix: g * (matrix @ y))
    return bilinear


@exercise.mistake("The matrix is the wrong way round. In the sum, over which of its two indices does each gradient "
                  "sum?")
def transposed():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (y @ matrix),
                    lambda g, out, x, y, *, matrix: g * (matrix @ x))
    return bilinear


@exercise.mistake("Right if the op is the last thing that is computed. What is g for?")
def without_g():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: matrix @ y, lambda g, out, x, y, *, matrix: x @ matrix)
    return bilinear


@exercise.mistake("The rules do not take the option. They are called with the same keyword arguments as the op.")
def without_the_option():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x)
    return bilinear


@exercise.mistake("To first order it is right. But `np.array(y.numpy())`, or whatever made an array of y, has cut it "
                  "out of the graph. What does the rule get when it is to be differentiated?")
def cut_out():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    def plain(a):
        return a.numpy() if isinstance(a, Tensor) else a

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ plain(y)),
                    lambda g, out, x, y, *, matrix: g * (plain(x) @ matrix))
    return bilinear


@exercise.mistake("out / x would be right if the op were a product of numbers. Here `out` is a sum: which of its terms "
                  "have xᵢ in them?")
def divided():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * out / x, lambda g, out, x, y, *, matrix: g * out / y)
    return bilinear


@exercise.mistake("The function makes an op, and does not hand it out. What does it return?")
def not_returned():
    make_bilinear()


@exercise.mistake("`defvjp` got one rule, and the op has two inputs. What should come back to y?")
def one_rule():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ y))
    return bilinear


@exercise.mistake("Your matrix is a positional argument, so it counts as an input, and `defvjp` misses its rule. What "
                  "makes an option of it?")
def three_inputs():
    @primitive
    def bilinear(x, y, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, matrix: g * (matrix @ y), lambda g, out, x, y, matrix: g * (x @ matrix))
    return bilinear


@exercise.mistake("The rules get the matrix and do not use it. What is each xᵢ multiplied by in the sum?")
def unused_matrix():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * y, lambda g, out, x, y, *, matrix: g * x)
    return bilinear


@exercise.mistake("The matrix stands between the wrong two: this is yᵀ M x. Which index of M goes with x?")
def other_way_round():
    @primitive
    def bilinear(x, y, *, matrix):
        return y @ matrix @ x

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ y),
                    lambda g, out, x, y, *, matrix: g * (x @ matrix))
    return bilinear


@exercise.mistake("What comes back to x is right. For y, over which index of M must the sum go?")
def second_transposed():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ y),
                    lambda g, out, x, y, *, matrix: g * (matrix @ x))
    return bilinear


@exercise.mistake("Here g is a single number, and `@` multiplies vectors and matrices. Which sign is there for a "
                  "number and a vector?")
def g_in_a_product_of_matrices():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g @ matrix @ y, lambda g, out, x, y, *, matrix: g @ x @ matrix)
    return bilinear


@exercise.mistake("Your first rule can be differentiated again, and your second cannot. What has become of x on its "
                  "way into it?")
def x_cut_out():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    bilinear.defvjp(lambda g, out, x, y, *, matrix: g * (matrix @ y),
                    lambda g, out, x, y, *, matrix: g * ((x.numpy() if isinstance(x, Tensor) else x) @ matrix))
    return bilinear


@exercise.mistake("x and y are still in the graph, and g is not: an array was made of it. If a square comes after the "
                  "op, on what does g depend?")
def g_cut_out():
    @primitive
    def bilinear(x, y, *, matrix):
        return x @ matrix @ y

    def plain(a):
        return a.numpy() if isinstance(a, Tensor) else a

    bilinear.defvjp(lambda g, out, x, y, *, matrix: plain(g) * (matrix @ y),
                    lambda g, out, x, y, *, matrix: plain(g) * (x @ matrix))
    return bilinear
