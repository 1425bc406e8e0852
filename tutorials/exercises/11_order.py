"""Does the score see the distance, and nothing else?

A scheme of positions is given as `score(q, k, m, n)`: the score, a number, of a query q (D,) at position m and a key k
(D,) at position n, for any even D and any whole numbers m, n ≥ 0. Write `check_relative(score)`, which raises an
AssertionError unless both hold:

- the score does not change if query and key are moved by the same number of positions;
- it does change with the distance m − n.

It must accept every scheme that keeps both, whatever it does otherwise with the distance: larger distances need not
mean smaller scores, and ahead and behind may differ or not.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_relative",
    starter="""
import numpy as np


def check_relative(score):
    q, k = np.random.default_rng(0).normal(size=(2, 2))     # two vectors of width 2
    assert np.isclose(score(q, k, 0, 0), score(q, k, 1, 1))
""",
    hints=["Take several distances, behind and ahead, and several shifts for each, small and large.",
           "How many pairs of features has a vector of width 2? A fault may be in the later ones only.",
           "A scheme that forgets all positions is moved by nothing. Which of the two conditions does it break?"],
    too_strict="A sound scheme was rejected. Angles of large positions round in the last digits; and the score may "
               "rise with the distance, or be the same on both sides, or not.")


def speeds(D):
    return 10000.0 ** (-np.arange(0, D, 2) / D)


def turn(x, theta, layout="interleaved"):
    """Half-split pairs, if asked for; the order of features does not matter to a product of two that are alike."""
    first, second = (x[0::2], x[1::2]) if layout == "interleaved" else (x[:len(x) // 2], x[len(x) // 2:])
    pair = [first * np.cos(theta) - second * np.sin(theta), first * np.sin(theta) + second * np.cos(theta)]
    return np.stack(pair, axis=-1).ravel() if layout == "interleaved" else np.concatenate(pair)


def encoding(p, D):
    return np.stack([np.sin(p * speeds(D)), np.cos(p * speeds(D))], axis=-1).ravel()


@exercise.sound
def rotary(q, k, m, n):
    """rotary positions, the pairs side by side"""
    return turn(q, m * speeds(len(q))) @ turn(k, n * speeds(len(k)))


@exercise.sound
def rotary_in_halves(q, k, m, n):
    """rotary positions, with i and i + D/2 as a pair"""
    return turn(q, m * speeds(len(q)), "halves") @ turn(k, n * speeds(len(k)), "halves")


@exercise.sound
def rotary_complex(q, k, m, n):
    """rotary positions by complex numbers, which round differently"""
    a, b = ((x[0::2] + 1j * x[1::2]) * np.exp(1j * p * speeds(len(x))) for x, p in ((q, m), (k, n)))
    return float((a * b.conj()).real.sum())


@exercise.sound
def alibi(q, k, m, n):
    """a penalty that grows with the distance, the same on both sides"""
    return q @ k - 0.25 * abs(m - n)


@exercise.sound
def product_of_sinusoids(q, k, m, n):
    """q·k, plus the product of the sinusoids of both positions"""
    return q @ k + encoding(m, len(q)) @ encoding(n, len(k))


@exercise.solution
def check_relative(score):
    q, k = np.random.default_rng(0).normal(size=(2, 8))
    for distance in (-5, 0, 3):
        scores = [score(q, k, n + distance, n) for n in (5, 6, 40, 1000)]
        assert np.allclose(scores, scores[0])
    assert not np.isclose(score(q, k, 5, 5), score(q, k, 6, 5))


@exercise.mutant("One adds sinusoids to query and key before the product. On what do the mixed terms depend? Compare a "
                 "score with its shifted one.")
def added_before(q, k, m, n):
    return (q + encoding(m, len(q))) @ (k + encoding(n, len(k)))


@exercise.mutant("One turns the query, and forgets the key. Is your shift more than 0?")
def only_the_query(q, k, m, n):
    return turn(q, m * speeds(len(q))) @ k


@exercise.mutant("One pairs the features of queries in one way, and those of keys in another. For which D are the "
                 "two ways the same?")
def pairs_mixed_up(q, k, m, n):
    return turn(q, m * speeds(len(q))) @ turn(k, n * speeds(len(k)), "halves")


@exercise.mutant("In one, the later half of the key's pairs all turn at speed 1. How many pairs do your vectors have?")
def half_unscaled(q, k, m, n):
    slow = speeds(len(k))
    return turn(q, m * speeds(len(q))) @ turn(k, n * np.where(np.arange(len(slow)) < (len(slow) + 1) // 2, slow, 1.0))


@exercise.mutant("One turns query and key in opposite directions. At which distance, and from which position, did you "
                 "look?")
def opposite(q, k, m, n):
    return turn(q, m * speeds(len(q))) @ turn(k, -n * speeds(len(k)))


@exercise.mutant("One takes its angles from a table of 32 positions, and all later ones get the last row. Do you "
                 "shift far enough?")
def short_table(q, k, m, n):
    return rotary(q, k, min(m, 31), min(n, 31))


@exercise.mutant("One has a penalty that counts from the start of the text, and not from the query. It is 0 for the "
                 "first key.")
def from_the_start(q, k, m, n):
    return q @ k - 0.25 * n


@exercise.mutant("One counts distances right for keys behind the query, and from the start for keys ahead. Do you "
                 "look to both sides?")
def wrong_ahead(q, k, m, n):
    return q @ k - 0.25 * (m - n if n <= m else n)


@exercise.mutant("One has forgotten positions altogether: no shift changes its score. What else must hold?")
def blind(q, k, m, n):
    return q @ k


def drawn(D):
    return np.random.default_rng(0).normal(size=(2, D))


def moved(score, D, distances=(-5, 0, 3), starts=(5, 6, 40, 1000)):
    q, k = drawn(D)
    return all(np.ptp([score(q, k, n + d, n) for n in starts]) < 1e-6 for d in distances)


def sees(score, D):
    q, k = drawn(D)
    return abs(score(q, k, 5, 5) - score(q, k, 6, 5)) > 1e-6


@exercise.mistake("You compare a shift only, and a scheme that takes no notice of positions passes that. There is a "
                  "second condition.")
def no_distance(score):
    assert moved(score, 8)


@exercise.mistake("Vectors of width 2 have one pair. With one pair there is one speed, and there is one way to pair.")
def one_pair(score):
    assert moved(score, 2)
    assert sees(score, 2)


@exercise.mistake("Your positions are all small. Something may go wrong at the later ones only.")
def near_the_start(score):
    assert moved(score, 8, starts=(5, 6, 9))
    assert sees(score, 8)


@exercise.mistake("The distance is 0 in all that you shift. Do query and key ever stand apart?")
def distance_zero(score):
    assert moved(score, 8, distances=(0,))
    assert sees(score, 8)


@exercise.mistake("All your keys are behind the query. What if a key is ahead of it?")
def behind_only(score):
    assert moved(score, 8, distances=(0, 3))
    assert sees(score, 8)


@exercise.mistake("You ask that the score be the same ahead and behind. Nobody promised that: a turn to the left is "
                  "not a turn to the right.")
def symmetric(score):
    q, k = drawn(8)
    assert moved(score, 8)
    assert sees(score, 8)
    assert np.isclose(score(q, k, 5, 9), score(q, k, 9, 5))


@exercise.mistake("Angles of large positions are rounded, and the last digits of the score with them. Compare within a "
                  "tolerance.")
def exact(score):
    q, k = drawn(8)
    assert all(score(q, k, n + 3, n) == score(q, k, 8, 5) for n in (5, 6, 40, 1000))
    assert sees(score, 8)


@exercise.mistake("You ask that the score fall with the distance. That was not promised: on what else does it depend?")
def falling(score):
    q, k = drawn(8)
    assert moved(score, 8)
    assert all(np.diff([score(q, k, 5 + distance, 5) for distance in range(10)]) < 0)
