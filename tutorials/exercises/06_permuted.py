"""In which order do the rows come out?

A cross-attention of x and context, four words each, has an output with rows y₀, y₁, y₂, y₃. Now both are reordered:

    x = x[[2, 0, 3, 1]]
    context = context[[1, 2, 3, 0]]

with the same matrices. Which of the old rows stand in the new output? Answer with a tuple: (0, 1, 2, 3) would mean that
the output is as before, (3, 2, 1, 0) that it is upside down.
"""

import numpy as np

from tinygrad_attn import attention
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # the numbers of the old rows, from the top, such as (3, 2, 1, 0)
""",
    hints=["Take one reordering at a time. What becomes of the output if only the context is reordered? If only x is?",
           "x[[2, 0, 3, 1]] has the old row 2 at its top. Whose answer is the first row of the new output?"])


@exercise.solution
def answer():
    rng = np.random.default_rng(0)
    x, context, w_q, w_k, w_v = rng.normal(size=(5, 4, 4))
    old, _ = attention(x @ w_q, context @ w_k, context @ w_v)
    x, context = x[[2, 0, 3, 1]], context[[1, 2, 3, 0]]
    new, _ = attention(x @ w_q, context @ w_k, context @ w_v)
    return tuple(int(np.abs(old - row).sum(axis=1).argmin()) for row in new)


@exercise.mistake("That holds if only the context is reordered. The queries moved, too: whose answer is in the first "
                  "row?")
def unchanged():
    return (0, 1, 2, 3)


@exercise.mistake("This is the order of the context, over which the output is a sum. Does a sum know the order of its "
                  "terms?")
def like_the_context():
    return (1, 2, 3, 0)


@exercise.mistake("This says where each old row went. The question is which old row each new one is.")
def the_other_way_round():
    return (1, 3, 0, 2)


@exercise.mistake("One reordering was applied after the other. But they act on two different sequences, and only one "
                  "of these has a row for each row of the output.")
def both_in_turn():
    return (0, 3, 1, 2)


@exercise.mistake("Two reorderings are joined to one here. But they act on two different sequences. Which of them has "
                  "a row for each row of the output?")
def both_in_the_other_turn():
    return (3, 1, 0, 2)
