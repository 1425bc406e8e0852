"""Ten tanh in a row: where is it lost?

    y = x.tanh().tanh()…

with ten tanh, at x = 3. The gradient of y with respect to x is 0.0005, so most of it is lost on the way back. Each
tanh passes on some share of what comes to it. Number them in the order in which they are computed, from 1, which x
goes into, to 10, which y comes out of. Which one passes on the smallest share?
"""

import numpy as np

from tinygrad_attn import Tensor, graph
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number from 1 to 10
""",
    hints=["The share that a tanh passes on is its derivative, 1 − tanh², where its input is. For which inputs is that "
           "small?",
           "What does each tanh make of a number: is the next one's input larger, or smaller?"])


@exercise.solution
def answer():
    y = Tensor(3.0, requires_grad=True)
    for _ in range(10):
        y = y.tanh()
    trace = graph.draw(y, grads=True).trace
    grads = [float(v.grad) for v in trace.vertices]             # of x, and of each result
    assert round(grads[0], 4) == 0.0005
    return int(np.argmin([grads[n] / grads[n + 1] for n in range(10)])) + 1


@exercise.mistake("The walk back begins there, but is its input large? What has become of 3 after nine tanh?")
def the_last():
    return 10


@exercise.mistake("From one tanh to the next, do the inputs grow or shrink? Can the extreme be in the middle, then?")
def in_the_middle():
    return 5


@exercise.mistake("Compare the inputs: this one gets a number below 1 already. Is there a tanh that gets a larger one?")
def the_second():
    return 2
