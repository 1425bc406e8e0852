"""The penalties of all heads

Write `alibi(num_heads, L, S)`: the float mask of ALiBi, (H, L, S), that is added to the scores of H heads, L queries
and S keys. Head h = 1 … H has the slope 2^(−8h/H); let H be a power of 2. An element is

    −slope · |distance between query and key|

If there are fewer queries than keys, the last query stands with the last key, as when a new word meets all words so
far. No element is above 0, and the last of the last row is 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "alibi",
    starter="""
import numpy as np


def alibi(num_heads, L, S):
    \"\"\"(H, L, S), to be added to the scores\"\"\"
    ...
""",
    hints=["First make the table of distances, (L, S): the position of each query, as a column, less that of each key.",
           "If the last of L queries is at position S − 1, where is the first?",
           "Slopes of shape (H, 1, 1) times a table (L, S) are (H, L, S)."])


@exercise.solution
def alibi(num_heads, L, S):
    distance = np.abs(np.arange(S - L, S)[:, None] - np.arange(S))
    slopes = 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)
    return slopes[:, None, None] * -distance


@exercise.check("one head, as many queries as keys", "The slope of the only head is 2⁻⁸. A query has distance 0 from "
                "its own key.")
def one_head(rng):
    yield 1, 1, 1
    yield 1, 2, 2
    yield 1, 4, 4


@exercise.check("several heads", "Two heads have the slopes 2⁻⁴ and 2⁻⁸. Which head comes first?")
def several(rng):
    yield 2, 2, 2
    yield 4, 3, 3
    yield 8, 3, 3
    yield 16, 2, 2


@exercise.check("fewer queries than keys", "One query and three keys: the query is the last word. How far is each key?")
def fewer_queries(rng):
    yield 1, 1, 3
    yield 2, 2, 4
    yield 4, 1, 10


def made(slopes, distance):
    return np.asarray(slopes)[:, None, None] * -distance


def distances(L, S):
    return np.arange(S - L, S)[:, None] - np.arange(S)


def usual(num_heads):
    return 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)


@exercise.mistake("What is far gets a higher score here. A penalty makes a score smaller: which sign has it?")
def a_reward(num_heads, L, S):
    return -made(usual(num_heads), np.abs(distances(L, S)))


@exercise.mistake("The distance has a sign in your table, so that keys after the query are rewarded where those "
                  "before it are penalised, or the other way round.")
def signed(num_heads, L, S):
    return made(usual(num_heads), distances(L, S))


@exercise.mistake("The distance has a sign in your table. Here it is the keys before the query that are rewarded. Is a "
                  "distance ever below 0?")
def signed_backwards(num_heads, L, S):
    return -made(usual(num_heads), distances(L, S))


@exercise.mistake("You hide the keys after the query. That is the work of a causal mask, which may be added or not. "
                  "What does the formula give them?")
def hidden_future(num_heads, L, S):
    return np.where(distances(L, S) >= 0, made(usual(num_heads), distances(L, S)), -np.inf)


@exercise.mistake("There is no axis for the heads. Each slope needs a table of its own: of which shape are the slopes "
                  "in your product?")
def one_table(num_heads, L, S):
    return made(usual(num_heads), np.abs(distances(L, S)))[0]


@exercise.mistake("The first query stands with the first key. A new word that meets all words so far: with which of "
                  "them does it stand?")
def upper_left(num_heads, L, S):
    return made(usual(num_heads), np.abs(np.arange(L)[:, None] - np.arange(S)))


@exercise.mistake("The first head has the slope 1. Does h begin with 0 or with 1?")
def from_zero(num_heads, L, S):
    return made(2.0 ** (-8 * np.arange(num_heads) / num_heads), np.abs(distances(L, S)))


@exercise.mistake("Your slopes are halved from head to head. That is right for one number of heads. What do the slopes "
                  "depend on?")
def halved(num_heads, L, S):
    return made(2.0 ** -np.arange(1, num_heads + 1), np.abs(distances(L, S)))


@exercise.mistake("The slopes come in the opposite order. Which head looks nearest, the first or the last?")
def flat_first(num_heads, L, S):
    return made(usual(num_heads)[::-1], np.abs(distances(L, S)))


@exercise.mistake("Keys after the query have no penalty here. Is a key that comes later at no distance?")
def past_only(num_heads, L, S):
    return made(usual(num_heads), np.maximum(distances(L, S), 0))
