"""Ten times the words: which shares are left?

Three words attend to each other with no weights at all, `attention(q, q, q)[0]`, for

    q = [[3, 0], [0, 2], [1, 1]]

so that q has three uses: as query, as key and as value. `graph.draw` with `grads=True` shows a share of each, of the
gradient of the sum of all elements of the output. Now q is replaced by 10 q, and the graph is drawn again. Which shares
have less than a thousandth of the norm that they had? The answer is one of

    "query", "key", "value", "query and key", "query and value", "key and value", "all", "none"
"""

import numpy as np

from tinygrad_attn import Tensor, attention, graph
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # one of the eight strings
""",
    hints=["Which of the three ways back from the output lead through the softmax?",
           "With 10 q, the scores are a hundred times as large. What are the weights like then, and what does the "
           "softmax send back (section 4)?"])


@exercise.solution
def answer():
    sizes, q = [], np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    for factor in (1, 10):
        query, key, value = (Tensor(factor * q, requires_grad=True, name=name) for name in ("query", "key", "value"))
        trace = graph.draw(attention(query, key, value)[0], grads=True).trace
        sizes.append({v.name: float(np.linalg.norm(v.grad)) for v in trace.vertices if v.kind == "leaf"})
    gone = [name for name in sizes[0] if sizes[1][name] < sizes[0][name] / 1000]
    return {3: "all", 0: "none"}.get(len(gone), " and ".join(gone))


@exercise.mistake("What comes back to the value is the transposed weights times g. Can that vanish, if each row of "
                  "weights sums to 1?")
def everything():
    return "all"


@exercise.mistake("Larger inputs make larger products, but here they go through a softmax. What is its Jacobian, where "
                  "one weight is nearly 1?")
def nothing():
    return "none"


@exercise.mistake("Query and key meet in one product, the scores. What comes back to it, before it is shared out?")
def one_of_them():
    return "query"


@exercise.mistake("Query and key meet in one product, the scores. If nothing comes back there, can one of the two get "
                  "something?")
def the_other():
    return "key"


@exercise.mistake("The value's way back is the shortest: it does not lead through the softmax. Which ways do?")
def the_value():
    return "value"
