"""Which rows of a learned table move?

`nn.LearnedPositions(16, 4)` has 16 rows, one for each position. A model with such a table is trained for two steps: the
first on a batch of 3 sequences of length 5, the second on a batch of 2 sequences of length 9. How many rows have had a
gradient other than 0 in at least one of the steps? (Every position of every sequence has some part in the loss.)
"""

import numpy as np

from tinygrad_attn import nn
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number
""",
    hints=["Which rows of the table are added to a sequence of length 5?",
           "The second step uses some rows that the first had used. Does a row that is used twice count twice?"])


@exercise.solution
def answer():
    layer, rng = nn.LearnedPositions(16, 4, rng=0), np.random.default_rng(0)
    moved = np.zeros(16, dtype=bool)
    for shape in ((3, 5, 4), (2, 9, 4)):
        layer.zero_grad()
        layer(rng.normal(size=shape)).sum().backward()
        moved |= layer.weight.grad.any(axis=-1)
    return int(moved.sum())


@exercise.mistake("A row gets a gradient only if it was added to something. Is the last row of the table ever used "
                  "here?")
def all_rows():
    return 16


@exercise.mistake("You added the two lengths. Does the second batch go on where the first ended, or does it begin at "
                  "position 0?")
def lengths_added():
    return 14


@exercise.mistake("That is the first step alone. Does the second use rows that the first did not?")
def shorter_length():
    return 5


@exercise.mistake("Sequences of one batch share the row of a position: each of them adds to that row's gradient. What "
                  "do you count, rows or words?")
def words():
    return 3 * 5 + 2 * 9


@exercise.mistake("You left out the rows that both steps have used. They had a gradient in both.")
def only_the_new():
    return 4
