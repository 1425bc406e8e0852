"""A padding mask that can be read in one way only

Write `padding_mask(lengths, S)`. `lengths` is an array of B integers from 0 to S: sentence b has `lengths[b]` words,
and padding after them. The answer is a boolean array of shape (B, 1, S), True where there is a word: it will be
broadcast against scores of shape (B, L, S).
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "padding_mask",
    starter="""
import numpy as np


def padding_mask(lengths, S):
    \"\"\"(B,) -> boolean (B, 1, S), True = a word\"\"\"
    ...
""",
    hints=["Number the keys, np.arange(S). Which of them exist in a sentence of length 2?",
           "A comparison broadcasts: what shapes must lengths and the keys' numbers have, so that their comparison has "
           "the shape (B, 1, S)? `x[:, None]` puts an axis of length 1 in."])


@exercise.solution
def padding_mask(lengths, S):
    return np.arange(S) < np.asarray(lengths)[:, None, None]


@exercise.check("one sentence", "Its first words are there, and what comes after them is padding. The shape is (1, 1, "
                                "S).")
def one(rng):
    yield np.array([1]), 2
    yield np.array([3]), 3
    yield np.array([2]), 5


@exercise.check("a batch", "Each sentence has its own length, and all of its queries share one row: the shape is "
                "(B, 1, S).")
def batch(rng):
    yield np.array([1, 2]), 3
    yield np.array([4, 1, 3]), 4
    yield np.array([2, 2]), 2


@exercise.check("nothing there", "A sentence of length 0 is padding from its first key on.")
def empty(rng):
    yield np.array([0]), 1
    yield np.array([0, 2]), 2


@exercise.check("against scores", "Counted are the keys that each query may attend to. The queries of one sentence "
                "have one length, that of their own sentence.",
                call=lambda padding_mask, lengths, S: np.where(padding_mask(lengths, S), np.ones((len(lengths), 2, S)),
                                                               0).sum(axis=-1),
                expected=lambda lengths, S: np.repeat(lengths[:, None], 2, axis=1))
def scores(rng):
    yield np.array([1, 2]), 2
    yield rng.integers(0, 6, size=4), 5


@exercise.mistake("The right cells, in the shape (B, S). Against scores (B, L, S) it is read from the right, as (L, "
                  "S): where does an axis belong?")
def two_axes(lengths, S):
    return np.arange(S) < lengths[:, None]


@exercise.mistake("In the shape (B, S, 1) it would be broadcast along the keys, and forbid whole queries. Which of the "
                  "last two axes are the keys?")
def along_queries(lengths, S):
    return (np.arange(S) < lengths[:, None])[:, :, None]


@exercise.mistake("That is a shape for scores with an axis for heads, (B, H, L, S). Here they are (B, L, S).")
def with_heads(lengths, S):
    return np.arange(S) < lengths[:, None, None, None]


@exercise.mistake("True stands at the padding. PyTorch's key_padding_mask is like that. What does True mean here?")
def flipped(lengths, S):
    return np.arange(S) >= lengths[:, None, None]


@exercise.mistake("One key too many: keys are numbered from 0. What is the number of the last word, if there are two?")
def one_more(lengths, S):
    return np.arange(S) <= lengths[:, None, None]


@exercise.mistake("The right cells, but numbers. A mask of numbers could be read as something to be added to the "
                  "scores.")
def numbers(lengths, S):
    return (np.arange(S) < lengths[:, None, None]).astype(int)


@exercise.mistake("Queries at the padding are masked as well, so that there is a row for each query. What is asked for "
                  "is one row for all queries of a sentence: padding is a matter of the keys alone.")
def for_each_query(lengths, S):
    real = np.arange(S) < lengths[:, None]
    return real[:, None, :] & real[:, :, None]


@exercise.mistake("In the shape (1, B, S) a row is for one query, of all sentences. Before which axis does the new one "
                  "belong?")
def new_axis_first(lengths, S):
    return (np.arange(S) < lengths[:, None])[None]


@exercise.mistake("The words stand at the end in this mask, behind the padding. Where does the sentence have its "
                  "padding?")
def padding_first(lengths, S):
    return np.arange(S) >= S - lengths[:, None, None]


@exercise.mistake("This is as wide as the longest sentence. The scores have S keys, even if none of the sentences is "
                  "as long as that.")
def as_wide_as_the_longest(lengths, S):
    return np.arange(lengths.max()) < lengths[:, None, None]
