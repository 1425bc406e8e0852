"""An entropy that survives the weight 0

Write `entropy(p)`: a Tensor (..., n) -> a Tensor (...). Each row of p holds weights that sum to 1, and its entropy is

    −Σᵢ pᵢ ln pᵢ        along the last axis, with the natural logarithm, and 0 ln 0 = 0

The gradient is −ln pᵢ − 1 where pᵢ is above 0, however small. Where pᵢ is 0 it may be any number, but must be finite. A
masked key has weight 0, and one NaN in a gradient spoils every weight of a network.

`where(condition, x, y)` takes x where the condition holds, and y elsewhere, as NumPy's does, and passes gradients on to
both. `p > 0` is such a condition.
"""

import numpy as np

from tinygrad_attn import Tensor, where
from tinygrad_attn.learn import Write

exercise = Write(
    "entropy",
    imports=("tinygrad_attn.Tensor", "tinygrad_attn.where", "tinygrad_attn.maximum"),
    starter="""
from tinygrad_attn import where


def entropy(p):
    \"\"\"−Σ p ln p along the last axis of a Tensor, with 0 ln 0 = 0\"\"\"
    ...
""",
    hints=["First make the value right: which terms of the sum may be replaced, and by what?",
           "The vjp of ln x is g / x. If x = 0 is in its input, that is infinite, and `where` around the *result* "
           "sends back 0 · ∞. What must the logarithm see instead of 0?"])


@exercise.solution
def entropy(p):
    positive = where(p > 0, p, 1.0)
    return -(p * positive.log()).sum(axis=-1)


def value(entropy, p):
    return entropy(Tensor(p))


def slopes(entropy, p):
    x = Tensor(p, requires_grad=True)
    entropy(x).sum().backward()
    return x.grad


def by_differences(p):
    h, gradient = 1e-6, np.zeros(p.shape)
    for place in np.ndindex(p.shape):
        x, low = p.copy(), p.copy()
        x[place] += h
        low[place] -= h
        gradient[place] = (np.sum(low * np.log(low)) - np.sum(x * np.log(x))) / (2 * h)
    return gradient


def drawn(rng, *shape):
    e = rng.uniform(0.1, 1, size=shape)
    return e / e.sum(axis=-1, keepdims=True)


@exercise.check("one row", "Two weights of a half have the entropy ln 2 = 0.693. Is it positive, and is the "
                "logarithm the natural one?", call=value)
def one_row(rng):
    yield np.array([0.5, 0.5])
    yield np.array([0.25, 0.75])


@exercise.check("many rows", "Each row has an entropy of its own.", call=value)
def rows(rng):
    for shape in ((2, 2), (2, 3), (2, 3, 4)):
        yield drawn(rng, *shape)


@exercise.check("the value where a weight is 0", "0 · ln 0 is 0 · ∞ for a computer. On paper that term is "
                "0.", call=value, expected=lambda p: 0.0 - np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))
def with_zeros(rng):
    yield np.array([1.0, 0.0])
    yield np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])


@exercise.check("the gradient, beside central differences", "Move each weight a little, and see how the sum of all "
                "entropies moves: the gradient is another one.", call=slopes, expected=by_differences, tolerance=1e-6)
def gradient(rng):
    yield drawn(rng, 2)
    yield drawn(rng, 2, 3)


@exercise.check("is the gradient finite, where a weight is 0?", "The value is right, and the gradient is not finite. "
                "Which op sends back something infinite?", call=lambda entropy, p: np.isfinite(slopes(entropy, p)))
def finite(rng):
    yield np.array([1.0, 0.0])
    yield np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])


@exercise.check("the gradient of very small weights", "The gradient is −ln p − 1, however small p is: about 459.5 at "
                "10⁻²⁰⁰, and 712.8 at 10⁻³¹⁰. A weight that is small is not 0.", call=slopes,
                expected=lambda p: -np.log(p) - 1)
def small(rng):
    yield np.array([1.0, 1e-200])
    yield np.array([1.0, 1e-310])
    yield np.array([0.5, 0.5, 1e-30])


@exercise.mistake("That is the formula as it stands, and right where all weights are positive. What is ln 0, and "
                  "what is 0 times it?")
def as_it_stands(p):
    return -(p * p.log()).sum(axis=-1)


@exercise.mistake("The value is right: `where` has thrown the bad term away. But the logarithm has seen the 0, and "
                  "on the way back its rule divides by it. How is that 0 kept from it?")
def around_the_result(p):
    return -where(p > 0, p * p.log(), 0.0).sum(axis=-1)


@exercise.mistake("A small number is added, or a lower limit set. That changes the logarithm of weights that are "
                  "smaller still, and their gradient. Change only what is exactly 0.")
def with_an_epsilon(p):
    return -(p * (p + 1e-12).log()).sum(axis=-1)


@exercise.mistake("An entropy is never negative. Which sign have logarithms of numbers below 1?")
def no_minus(p):
    return -entropy(p)


@exercise.mistake("One number came out for all rows. Along which axis does the sum go?")
def over_everything(p):
    return -(p * where(p > 0, p, 1.0).log()).sum()


@exercise.mistake("That is in bits, with the logarithm to the base 2. The natural one is `.log()`.")
def in_bits(p):
    return entropy(p) / np.log(2)


@exercise.mistake("The value is right, but there is no graph: what went through NumPy's own arrays is a constant. "
                  "Stay with Tensors.")
def left_the_graph(p):
    return entropy(p).numpy()


@exercise.mistake("A new Tensor, made of numbers that were computed outside of the graph, does not know where they "
                  "came from. Nothing goes back to p.")
def a_new_leaf(p):
    return Tensor(entropy(p).numpy())


@exercise.mistake("The numbers are right, and they have an axis too many: (..., n) becomes (...).")
def an_axis_kept(p):
    return -(p * where(p > 0, p, 1.0).log()).sum(axis=-1, keepdims=True)


@exercise.mistake("The gradient is −ln p here, without the −1. That comes through the logarithm: is it in the graph?")
def logarithm_outside(p):
    return -(p * where(p > 0, p, 1.0).log().detach()).sum(axis=-1)
