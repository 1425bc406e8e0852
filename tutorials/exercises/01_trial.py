"""Put a soft lookup on trial

Write `check_lookup(lookup)`, which gets a function `lookup(query, keys, values)`, on arrays

    query (D,), keys (S, D), values (S, Dv)  ->  answer (Dv,)

and raises an AssertionError, by an `assert`, if it is not the soft lookup of tutorial 01, with undivided scores. It
must accept every right one, even one that rounds a little differently. The six mutants are lookups that each do one
thing wrong. A right answer that you have worked out once, step by step, is a good thing to compare with.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_lookup",
    starter="""
import numpy as np


def check_lookup(lookup):
    query = np.zeros(2)
    keys = np.array([[1.0, 0.0], [0.0, 1.0]])
    values = np.array([[10.0, 0.0], [20.0, 4.0]])
    assert np.allclose(lookup(query, keys, values), [15.0, 2.0])
""",
    hints=["With a query of zeros nothing depends on the keys. Use a query that is not zero, and keys that differ.",
           "Section 3 of the tutorial has a whole example with numbers. Which faults would that one example show, and "
           "which not? Two of its keys are the same."],
    too_strict="Something right was rejected. Floating-point numbers are compared within a tolerance, by "
               "`np.allclose`, and the expected numbers need enough digits for it.")


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


@exercise.sound
def sound(query, keys, values):
    """the three steps as the text has them"""
    e = np.exp(keys @ query)
    return e / e.sum() @ values


@exercise.sound
def one_by_one(query, keys, values):
    """a loop over the keys, which adds in another order and divides at the end"""
    total, answer = 0.0, np.zeros(values.shape[1])
    for key, value in zip(keys[::-1], values[::-1]):
        e = np.exp(float(key @ query))
        total, answer = total + e, answer + e * value
    return answer / total


@exercise.solution
def check_lookup(lookup):
    query = np.array([1.0, 2.0, -1.0])
    keys = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]])
    values = np.array([[10.0, 0.0], [0.0, 20.0], [30.0, 5.0], [1.0, 2.0]])
    e = np.exp([1.0, 2.0, -3.0, 2.0])
    assert np.allclose(lookup(query, keys, values), (e / e.sum())[None, :] @ values)


@exercise.mutant("One lets every value count the same, whatever the query. In your test, are the right weights "
                 "different from each other?")
def plain_mean(query, keys, values):
    return values.mean(axis=0)


@exercise.mutant("One is the hard lookup. Is there a value in your test that should count a little, and does not?")
def hard(query, keys, values):
    scores = keys @ query
    best = scores >= scores.max() - 1e-12
    return values[best].mean(axis=0)


@exercise.mutant("One divides the scores by the root of the width. Your test must tell the undivided weights from "
                 "those.")
def divided(query, keys, values):
    return softmax(keys @ query / np.sqrt(len(query))) @ values


@exercise.mutant("One takes the size of a score and forgets its sign. Does a key in your test point away from the "
                 "query?")
def unsigned(query, keys, values):
    return softmax(np.abs(keys @ query)) @ values


@exercise.mutant("One returns the first component of the answer in all places. Do your values have a second component "
                 "that differs?")
def first_component(query, keys, values):
    return np.full(values.shape[1], (softmax(keys @ query) @ values)[0])


@exercise.mutant("One divides each key by its length, so that only its direction counts. Are all keys of your test of "
                 "length 1?")
def direction_alone(query, keys, values):
    lengths = np.sqrt((keys * keys).sum(axis=1))
    return softmax(keys @ query / np.where(lengths > 0, lengths, 1)) @ values


@exercise.mistake("Lookups with wrong weights pass. With a query of zeros all weights are equal, whatever is done with "
                  "the keys; and every average lies between the smallest and the largest value.")
def zeros(lookup):
    values = np.array([[10.0, 0.0], [20.0, 4.0]])
    assert np.allclose(lookup(np.zeros(2), np.eye(2), values), [15.0, 2.0])


@exercise.mistake("A shape is not an answer: all of the mutants return the right shape.")
def only_shapes(lookup):
    assert lookup(np.ones(2), np.eye(2), np.ones((2, 3))).shape == (3,)


@exercise.mistake("A very long query shows that the best key wins, and so it does in a hard lookup. Which queries "
                  "tell the two apart?")
def only_the_limit(lookup):
    answer = lookup(np.array([60.0, 0.0]), np.eye(2), np.array([[10.0, 1.0], [20.0, 2.0]]))
    assert np.allclose(answer, [10.0, 1.0])


@exercise.mistake("`==` asks for the same digits to the last. Two right lookups that add in another order differ "
                  "there.")
def exactly(lookup):
    rng = np.random.default_rng(0)
    query, keys, values = rng.normal(size=3), rng.normal(size=(7, 3)), rng.normal(size=(7, 30))
    assert (lookup(query, keys, values) == sound(query, keys, values)).all()


@exercise.mistake("No lookup passes, not even a right one. Is what you expect right, to enough digits? The text "
                  "prints four of them, and `np.allclose` looks at five and more.")
def four_digits(lookup):
    keys, values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([[10.0], [0.0], [30.0]])
    assert np.allclose(lookup(np.array([1.0, 0.0]), keys, values), [16.89])


@exercise.mistake("You expect the answer of divided scores, and only the lookup that divides gives that. Here scores "
                  "are taken as they are.")
def expects_division(lookup):
    rng = np.random.default_rng(0)
    query, keys, values = rng.normal(size=3), rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    assert np.allclose(lookup(query, keys, values), divided(query, keys, values))


@exercise.mistake("The example of section 3 is a good beginning. But its scores are 0 and 1, and all its keys have "
                  "length 1. Which faults cannot show at such numbers?")
def the_example(lookup):
    keys, values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([[10.0, 0.0], [0.0, 20.0], [30.0, 0.0]])
    assert np.allclose(lookup(np.array([1.0, 0.0]), keys, values), [16.8928, 3.1072], atol=1e-3)


@exercise.mistake("Your values have one component each. What may be wrong with a second one, you cannot see.")
def one_component(lookup):
    rng = np.random.default_rng(0)
    query, keys, values = rng.normal(size=3), rng.normal(size=(7, 3)), rng.normal(size=(7, 1))
    assert np.allclose(lookup(query, keys, values), sound(query, keys, values))


@exercise.mistake("Your vectors have width 1, and the root of 1 is 1. Which fault hides there?")
def width_one(lookup):
    query, keys = np.array([1.5]), np.array([[1.0], [-2.0], [0.5]])
    values = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]])
    assert np.allclose(lookup(query, keys, values), sound(query, keys, values))


@exercise.mistake("No score in your check is negative. Let one key point away from the query.")
def no_negative_score(lookup):
    rng = np.random.default_rng(0)
    query, keys, values = rng.random(3), rng.random((7, 3)), rng.normal(size=(7, 2))
    assert np.allclose(lookup(query, keys, values), sound(query, keys, values))


@exercise.mistake("All keys of your check have length 1. A longer key has larger scores: does the lookup know?")
def keys_of_length_one(lookup):
    query, keys = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    values = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 0.0]])
    assert np.allclose(lookup(query, keys, values), sound(query, keys, values))
