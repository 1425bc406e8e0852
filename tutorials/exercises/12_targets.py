"""One step later

A model that predicts the next symbol is trained on pairs that `make(sequences)` makes: integers (B, n) -> inputs
(B, n − 1) and targets (B, n − 1). Each row of the inputs is a sequence without its last symbol. Each row of the targets
is the same sequence without its first symbol, so that at each place stands the symbol that comes next.

Write `check_targets(make)`, which gets such a function and raises an AssertionError if it does anything else. It must
accept every right one. Each mutant has another fault. You choose the sequences.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_targets",
    starter="""
import numpy as np


def check_targets(make):
    sequences = np.zeros((3, 6), dtype=int)                 # (B, n)
    inputs, targets = make(sequences)
    assert inputs.shape == targets.shape == (3, 5)
    assert (inputs[:, 1:] == targets[:, :-1]).all()
""",
    hints=["With which sequences do all shifts look alike? Choose some with which no two symbols are the same.",
           "There are two facts to check, what the inputs are and what the targets are. The last column is where a "
           "fault hides best."],
    too_strict="Something right was rejected. What the statement asks for is what the numbers are and in which shape; "
               "it does not say whether an array is a view or a copy, or of which integer type.")


@exercise.sound
def slices(sequences):
    """two slices, which share memory with the sequences"""
    return sequences[:, :-1], sequences[:, 1:]


@exercise.sound
def copies(sequences):
    """copies as 32-bit integers"""
    n = sequences.shape[1]
    return np.array(sequences[:, :n - 1], dtype=np.int32), np.array(sequences[:, 1:n], dtype=np.int32)


@exercise.sound
def by_index(sequences):
    """picked by a table of places"""
    places = np.arange(sequences.shape[1] - 1)
    return np.take(sequences, places, axis=1), np.take(sequences, places + 1, axis=1)


@exercise.solution
def check_targets(make):
    sequences = np.random.default_rng(0).permutation(24).reshape(4, 6)
    inputs, targets = make(sequences)
    assert inputs.shape == targets.shape == (4, 5)
    assert (inputs == sequences[:, :5]).all()
    assert (targets == sequences[:, 1:]).all()


@exercise.mutant("One does not shift at all: the target is the input itself, and the loss soon is 0. With which "
                 "sequences would you see it?")
def not_shifted(sequences):
    return sequences[:, :-1], sequences[:, :-1]


@exercise.mutant("One shifts by two in the middle of a row, so that the model learns the symbol after the next.")
def shifted_by_two(sequences):
    return sequences[:, :-1], np.concatenate([sequences[:, 2:], sequences[:, -1:]], axis=1)


@exercise.mutant("One shifts the wrong way: inputs and targets have changed places, and the model learns what came "
                 "before. Do you say which of the two is which?")
def backwards(sequences):
    return sequences[:, 1:], sequences[:, :-1]


@exercise.mutant("One takes the last target of each row from the beginning of that row. Do you look at the last "
                 "column?")
def wraps_round(sequences):
    return sequences[:, :-1], np.roll(sequences[:, :-1], -1, axis=1)


@exercise.mutant("One takes the last target of each row from the next row. Do your rows differ, and do you look at "
                 "their ends?")
def into_the_next_row(sequences):
    inputs = sequences[:, :-1]
    return inputs, np.roll(inputs.reshape(-1), -1).reshape(inputs.shape)


@exercise.mutant("One loses the last pair of each row: less to learn from, and no error. What shapes must come back?")
def one_pair_short(sequences):
    return sequences[:, :-2], sequences[:, 1:-1]


@exercise.mutant("One has right targets, and inputs in which the target already stands. Do you check the inputs?")
def sees_the_answer(sequences):
    return sequences[:, 1:], sequences[:, 1:]


@exercise.mistake("Your sequences are all alike, so that every shift of them is the same. Which sequences would tell?")
def all_zeros(make):
    inputs, targets = make(np.zeros((3, 6), dtype=int))
    assert inputs.shape == targets.shape == (3, 5)
    assert (inputs[:, 1:] == targets[:, :-1]).all()


@exercise.mistake("You compare inputs and targets with each other, and neither with the sequence: the last target has "
                  "no input to be compared with.")
def among_themselves(make):
    inputs, targets = make(np.arange(18).reshape(3, 6))
    assert inputs.shape == targets.shape == (3, 5)
    assert (inputs[:, 1:] == targets[:, :-1]).all()


@exercise.mistake("Your targets are checked well, and the inputs not at all. What if the answer already stands there?")
def targets_only(make):
    sequences = np.arange(18).reshape(3, 6)
    inputs, targets = make(sequences)
    assert inputs.shape == targets.shape == (3, 5)
    assert (targets == sequences[:, 1:]).all()


@exercise.mistake("Your check asks for the integer type of the sequences. Nothing was said about that.")
def same_type(make):
    sequences = np.arange(18).reshape(3, 6)
    inputs, targets = make(sequences)
    assert inputs.dtype == targets.dtype == sequences.dtype
    assert (inputs == sequences[:, :-1]).all()
    assert (targets == sequences[:, 1:]).all()
