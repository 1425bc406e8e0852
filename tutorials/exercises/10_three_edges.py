"""Three edges, and what each carries

    h = 2 * x
    y = h * h + h

The graph of y, at x = 2, is drawn with `grads=True`. Predict what comes back along the three edges that leave h, and
then the gradient of x. The walk takes the newest op first; give the shares in the order in which they come to h, and
the gradient of x last: four numbers.
"""

import numpy as np

from tinygrad_attn import Tensor, graph
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # (share, share, share, gradient of x)
""",
    hints=["Which op is the newest? What does a sum send to each of its inputs?",
           "A product sends to each input what came to it, times the other input. Here the other input is the same "
           "value.",
           "All three shares must have come to h before the walk goes on to x. What does it take along then?"])


def shares(h_of=lambda x: 2 * x):
    x = Tensor(2.0, requires_grad=True, name="x")
    h = h_of(x)
    y = h * h + h
    trace = graph.draw(y, names={"h": h}, grads=True).trace
    (place,) = [v.id for v in trace.vertices if v.name == "h"]
    order = [v.id for v in trace.vertices]
    edges = sorted((e for e in trace.edges if e.source == place), key=lambda e: -order.index(e.target))
    return [float(e.grad) for e in edges], float(next(v.grad for v in trace.vertices if v.name == "x"))


@exercise.solution
def answer():
    found, slope = shares()
    assert np.isclose(slope, 2 * sum(found))
    return (*found, slope)


@exercise.mistake("The shares are right. Does the walk end at h? What does the product 2 · x do to what comes to it?")
def stopped_at_h():
    found, _ = shares()
    return (*found, sum(found))


@exercise.mistake("The product has two edges from h, and each of them carries the other factor. Is 2h not their sum?")
def both_along_each():
    found, slope = shares()
    return (found[0], 2 * found[1], 2 * found[2], slope)


@exercise.mistake("The order of the ops in the code is not the order of the walk back. Which op is the newest?")
def oldest_first():
    found, slope = shares()
    return (*found[::-1], slope)


@exercise.mistake("What a product sends is the value of its other factor. Is that x, or h?")
def of_x():
    return (1.0, 2.0, 2.0, 10.0)


@exercise.mistake("The shares are right, and there are three of them. Have all come to h before the walk goes on to x?")
def one_share_forgotten():
    found, _ = shares()
    return (*found, 2 * (found[0] + found[1]))
