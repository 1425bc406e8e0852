"""Which leaf has the largest gradient?

Write `largest(drawn)`. `drawn` is what `graph.draw(..., grads=True)` returns, and the answer is the name of the leaf
whose gradient has the largest Euclidean norm, √Σ g².

`drawn.trace.vertices` has every value of the graph. Of a vertex `v`, `v.kind` is "leaf", "constant" or "op" (and for
folded parts "box" or "rest"); `v.name` is a string or None; `v.value` is an array, and so is `v.grad`, or None where
no gradient comes. `drawn.trace.edges` has the uses. Every leaf here has a name, and results of ops may have one, too.
"""

import numpy as np

from tinygrad_attn import Tensor, graph
from tinygrad_attn.learn import Write

exercise = Write(
    "largest",
    starter="""
import numpy as np


def largest(drawn):
    \"\"\"the name of the leaf with the largest gradient\"\"\"
    ...
""",
    hints=["Which vertices may be the answer at all? `max` takes a `key=`, a function that says how large each is.",
           "A norm is never negative, and counts all elements of an array. NumPy has it in `np.linalg`.",
           "The gradient of a vertex is complete; what an edge carries is one share of it."])


@exercise.solution
def largest(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.linalg.norm(v.grad)).name


def on_numbers(largest, x, w, b):
    x, w, b = (Tensor(number, requires_grad=True) for number in (x, w, b))
    return largest(graph.draw((w * x + b).tanh() * x, names={"x": x, "w": w, "b": b}, grads=True))


def on_arrays(largest, x, w, b):
    x, w, b = (Tensor(array, requires_grad=True) for array in (x, w, b))
    h = x @ w
    return largest(graph.draw((h + b) * 3.0 * h.tanh(), names={"x": x, "w": w, "b": b, "h": h}, grads=True))


def on_three(largest, a, b, c):
    a, b, c = (Tensor(array, requires_grad=True) for array in (a, b, c))
    total = (a * b).sum() + c.sum() * 2.0
    return largest(graph.draw(total, names={"a": a, "b": b, "c": c, "total": total}, grads=True))


@exercise.check("(w * x + b).tanh() * x, of three numbers", "Draw it, and look at the three leaves. How large is a "
                "negative number?", call=on_numbers)
def numbers(rng):
    yield 2.0, -1.5, 3.5
    yield 0.1, 3.0, 0.2
    yield 3.0, -0.5, 1.5
    yield 1.1, -1.3, 2.2


@exercise.check("(a * b).sum() + c.sum() * 2.0, of arrays", "A gradient is large if all of its elements together are: "
                "take the norm.", call=on_three)
def arrays(rng):
    yield np.array([1.0, 1.0]), np.array([-3.0, 0.0]), np.array([0.0])
    yield np.array([1.0, 0.0]), np.array([3.0, 0.0]), np.zeros(9)
    yield np.array([5.0, -5.0]), np.array([1.0, 1.0]), np.zeros(2)
    yield np.array([1.0, 0.0]), np.array([5.0, 0.0]), np.zeros(4)
    yield np.array([1.0, 0.0]), np.array([3.5, 0.0]), np.zeros(4)
    yield np.zeros((2, 2)), 3 * np.eye(2), np.zeros(4)
    yield np.full(4, 1.9), np.array([3.0, 0.0, 0.0, 0.0]), np.zeros(1)


@exercise.check("h = x @ w; (h + b) * 3.0 * h.tanh()", "h has a name, too, and a gradient, but nobody made it by hand. "
                "What is its kind?", call=on_arrays)
def layer(rng):
    for n in (2, 3, 5):
        yield rng.normal(size=(n, 2)), rng.normal(size=(2, 4)), rng.normal(size=4)


@exercise.mistake("That is the result of an op, or a constant. Which kind of vertex was asked for?")
def of_any_kind(drawn):
    named = [v for v in drawn.trace.vertices if v.name and v.grad is not None]
    return max(reversed(named), key=lambda v: np.linalg.norm(v.grad)).name


@exercise.mistake("You look at every vertex. The results of ops are there, too, and constants, to which no gradient "
                  "comes. Which kind was asked for?")
def of_all_vertices(drawn):
    return max(drawn.trace.vertices, key=lambda v: np.linalg.norm(v.grad)).name


@exercise.mistake("Is −5 smaller than 1? A gradient that points down can be large, too.")
def signed(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.sum(v.grad)).name


@exercise.mistake("That is the largest single element. Many small ones can have the larger norm.")
def largest_element(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.abs(v.grad).max()).name


@exercise.mistake("That is the root of the mean of the squares, which does not grow with the number of elements. The "
                  "Euclidean norm does.")
def root_of_mean(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.sqrt(np.mean(np.square(v.grad)))).name


@exercise.mistake("You return the whole vertex. Which part of it was asked for?")
def the_vertex(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.linalg.norm(v.grad))


@exercise.mistake("That leaf has the largest value. What was asked is how much the output moves with it.")
def by_value(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.linalg.norm(v.value)).name


@exercise.mistake("An edge carries one share. A leaf with two uses has the sum of two, and they may cancel.")
def largest_share(drawn):
    names = {v.id: v.name for v in drawn.trace.vertices if v.kind == "leaf"}
    edges = [e for e in drawn.trace.edges if e.source in names]
    return names[max(edges, key=lambda e: np.linalg.norm(e.grad)).source]


@exercise.mistake("You add up the sizes of all elements. By that, the vector (3, 4) would have the length 7. Which "
                  "length does Pythagoras give it?")
def sum_of_sizes(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.sum(np.abs(v.grad))).name


@exercise.mistake("`np.linalg.norm(a, 2)` of a matrix is not the root of the sum of the squares, but its largest "
                  "singular value. Of which norm does the statement speak?")
def spectral(drawn):
    leaves = [v for v in drawn.trace.vertices if v.kind == "leaf"]
    return max(leaves, key=lambda v: np.linalg.norm(np.atleast_1d(v.grad), 2)).name
