"""Set the heads side by side again

Write `merge_heads(x)`: (..., H, L, D) -> (..., L, H·D). The row of a position has the D features of head 0, then those
of head 1, and so on. It undoes the splitting into heads. There may be any axes in front, or none.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "merge_heads",
    starter="""
def merge_heads(x):
    \"\"\"(..., H, L, D) -> (..., L, H·D)\"\"\"
    ...
""",
    hints=["Splitting was two steps. How do you undo two steps: in which order?",
           "Before two axes can be joined by reshape they must be neighbours, in the order in which they are to be "
           "read."])


@exercise.solution
def merge_heads(x):
    *front, H, L, D = x.shape
    return x.swapaxes(-3, -2).reshape(*front, L, H * D)


@exercise.check("one position", "There is one row: head 0's features, then head 1's.")
def one_position(rng):
    yield np.arange(4.0).reshape(2, 1, 2)
    yield np.arange(6.0).reshape(3, 1, 2)


@exercise.check("one sequence", "Follow one position: its features are in every head. Are they in one row afterwards?")
def one_sequence(rng):
    yield np.arange(4.0).reshape(2, 2, 1)
    yield np.arange(12.0).reshape(2, 3, 2)
    yield np.arange(12.0).reshape(3, 2, 2)


@exercise.check("a batch", "The axes in front stay as they are. Do you count axes from the end?")
def batch(rng):
    yield np.arange(16.0).reshape(2, 2, 2, 2)
    yield rng.normal(size=(2, 3, 4, 2))
    yield np.arange(16.0).reshape(2, 1, 2, 2, 2)


@exercise.check("it undoes the split", "Cut by reshape and swapaxes, and merged again, x must be what it was.",
                call=lambda merge, x, num_heads: merge(
                    x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).swapaxes(-3, -2)),
                expected=lambda x, num_heads: x)
def there_and_back(rng):
    yield np.arange(8.0).reshape(2, 4), 2
    yield np.arange(16.0).reshape(2, 2, 4), 2
    yield rng.normal(size=(2, 3, 6)), 3


@exercise.mistake("The shape is right. But reshape reads head 0 to its end before it comes to head 1, so that one row "
                  "has several positions. What has to happen first?")
def without_swapping_back(x):
    *front, H, L, D = x.shape
    return x.reshape(*front, L, H * D)


@exercise.mistake("Here the heads alternate: the first feature of each, then the second of each. Which of the two "
                  "joined axes should be read to its end first?")
def heads_alternate(x):
    *front, H, L, D = x.shape
    return np.moveaxis(x, -3, -1).reshape(*front, L, H * D)


@exercise.mistake("The heads were added up, and what each has found can no longer be told apart. They are to stand "
                  "side by side.")
def heads_added(x):
    return x.sum(axis=-3)


@exercise.mistake("The heads stand behind the positions now, as an axis of their own. The two last axes are still "
                  "to be joined.")
def not_joined(x):
    return x.swapaxes(-3, -2)


@exercise.mistake("This input has no batch in front. Does your answer count on one axis there, and on exactly one?")
def for_a_batch_only(x):
    B, H, L, D = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, L, H * D)


@exercise.mistake("It works for one sequence. With a batch in front, the axes that you exchange are others.")
def first_two_axes(x):
    *front, H, L, D = x.shape
    return x.swapaxes(0, 1).reshape(*front, L, H * D)


@exercise.mistake("Positions and features have changed places, and not heads and positions. Do you count axes from the "
                  "front, as if there were always a batch?")
def counted_for_a_batch(x):
    *front, H, L, D = x.shape
    return x.swapaxes(1, 2).reshape(*front, L, H * D)


@exercise.mistake("`*front` collects the axes in front in a list, and a shape has numbers in it, not a list. How are "
                  "they put in one by one?")
def a_list_in_the_shape(x):
    *front, H, L, D = x.shape
    return x.swapaxes(-3, -2).reshape(front, L, H * D)


@exercise.mistake("The −1 makes exactly one axis in front, whether there was none, one, or two. The rows themselves "
                  "are right.")
def one_axis_in_front(x):
    H, L, D = x.shape[-3:]
    return x.swapaxes(-3, -2).reshape(-1, L, H * D)
