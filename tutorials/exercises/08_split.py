"""Give each head its features

Write `split_heads(x, num_heads)`: (..., L, E) -> (..., H, L, D), with H = num_heads and D = E // H. Head 0 gets the
first D features of every position, head 1 the next D, and so on. There may be any axes in front, such as a batch, or
none.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "split_heads",
    starter="""
def split_heads(x, num_heads):
    \"\"\"(..., L, E) -> (..., H, L, D)\"\"\"
    ...
""",
    hints=["Two steps: the first cuts the last axis in two, the second changes the places of two axes.",
           "For any axes in front, count axes from the end. `*x.shape[:-1]` are all sizes but the last."])


@exercise.solution
def split_heads(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, num_heads, E // num_heads).swapaxes(-3, -2)


@exercise.check("one position", "There is one row. Cut it in order: the first D features are head 0's.")
def one_position(rng):
    yield np.arange(4.0).reshape(1, 4), 2
    yield np.arange(6.0).reshape(1, 6), 2


@exercise.check("one sequence", "Each head has a row for each position. Whose features are in the first row of head 0?")
def one_sequence(rng):
    yield np.arange(8.0).reshape(2, 4), 2
    yield np.arange(18.0).reshape(3, 6), 2
    yield np.arange(18.0).reshape(3, 6), 3


@exercise.check("a batch", "The batch stays in front, and the heads come behind it. Do you count axes from the end?")
def batch(rng):
    yield np.arange(16.0).reshape(2, 2, 4), 2
    yield rng.normal(size=(2, 3, 6)), 3
    yield rng.normal(size=(2, 1, 3, 4)), 2


@exercise.check("one head, and heads of one feature", "At H = 1 an axis of size 1 is still an axis; at H = E each "
                "head has width 1.")
def extremes(rng):
    yield rng.normal(size=(2, 3)), 1
    yield rng.normal(size=(2, 2, 3)), 3


@exercise.mistake("Every shape is right. But reshape keeps the elements in order, so that head 0 got the first "
                  "positions with all their features. Which step is missing between?")
def without_swapping(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, num_heads, L, E // num_heads)


@exercise.mistake("The features are cut, but the heads still stand behind the positions. Attention takes the last two "
                  "axes: which should they be?")
def positions_first(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, num_heads, E // num_heads)


@exercise.mistake("Here head 0 has every H-th feature, and not the first D. Of the two new axes, which one is it that "
                  "runs fast?")
def every_other_feature(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, E // num_heads, num_heads).swapaxes(-2, -1).swapaxes(-3, -2)


@exercise.mistake("It works for one sequence. With a batch in front, the axes that you exchange are others.")
def first_two_axes(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, num_heads, E // num_heads).swapaxes(0, 1)


@exercise.mistake("This input has no batch in front. Does your answer count on one axis there, and on exactly one?")
def for_a_batch_only(x, num_heads):
    B, L, E = x.shape
    return x.reshape(B, L, num_heads, E // num_heads).swapaxes(1, 2)


@exercise.mistake("The cut is right. But heads and features have changed places, and not positions and heads. Do you "
                  "count axes from the front, as if there were always a batch?")
def counted_for_a_batch(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, num_heads, E // num_heads).swapaxes(1, 2)


@exercise.mistake("A size must be a whole number. In Python, `/` gives a float even if nothing is left over; what "
                  "divides whole numbers?")
def divided_to_a_float(x, num_heads):
    *front, L, E = x.shape
    return x.reshape(*front, L, num_heads, E / num_heads).swapaxes(-3, -2)
