"""A causal mask, aligned at its lower right

Write `causal_mask(L, S)`: a boolean array (L, S), True where a query may attend to a key. The last of the L queries
stands at the last of the S keys, and sees all of them. The query before it sees all but the last key, and so on up. If
there are more queries than keys, the first ones see nothing.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "causal_mask",
    starter="""
import numpy as np


def causal_mask(L, S):
    \"\"\"boolean (L, S), True = may attend\"\"\"
    ...
""",
    hints=["Draw the table for L = 2 and S = 4 on paper. Which is the last key that the query 0 sees? And in general, "
           "query i?",
           "np.arange(L)[:, None] is a column of the queries' numbers, np.arange(S) a row of the keys'. A comparison "
           "of the two is a table of booleans."])


@exercise.solution
def causal_mask(L, S):
    return np.arange(S) <= np.arange(L)[:, None] + S - L


@exercise.check("as many keys as queries", "Each query sees its own key and those before it, so that the diagonal is "
                "True. Rows are queries, and columns are keys.")
def square(rng):
    yield 1, 1
    yield 2, 2
    yield 3, 3


@exercise.check("more keys than queries", "The last query must see all keys. By how much is the triangle moved if "
                "there are S − L keys more than queries?")
def longer(rng):
    yield 1, 2
    yield 1, 4
    yield 2, 3
    yield 3, 7


@exercise.check("more queries than keys", "The last query still stands at the last key. How much is left for the first "
                "ones?")
def shorter(rng):
    yield 2, 1
    yield 3, 2
    yield 6, 3


@exercise.check("how many keys each query sees", "From one query to the next there is one more key to see, until the "
                "last query sees all S.", call=lambda causal_mask, L, S: np.sum(causal_mask(L, S), axis=1),
                expected=lambda L, S: np.maximum(np.arange(L) + 1 + S - L, 0))
def counts(rng):
    yield 1, 3
    yield 4, 6
    yield 5, 4


@exercise.mistake("The first query is aligned with the first key. Which two should be aligned here?")
def upper_left(L, S):
    return np.tri(L, S, dtype=bool)


@exercise.mistake("The right cells are marked, but by numbers. Added to scores, a 1 forbids nothing; a mask should be "
                  "able to say only yes or no.")
def numbers(L, S):
    return np.tri(L, S, S - L)


@exercise.mistake("Your queries do not see their own key. A word may look at itself: what it must not see begins one "
                  "further.")
def strict(L, S):
    return np.tri(L, S, S - L - 1, dtype=bool)


@exercise.mistake("True stands where it is forbidden to look. What does True mean in tutorial 07?")
def flipped(L, S):
    return ~np.tri(L, S, S - L, dtype=bool)


@exercise.mistake("Here the first query sees everything, and the last only itself. Which axis are the queries?")
def transposed(L, S):
    return np.arange(S) >= np.arange(L)[:, None] + S - L


@exercise.mistake("The triangle has moved to the wrong side: with more keys than queries, each should see more than "
                  "before, not less.")
def moved_back(L, S):
    return np.tri(L, S, L - S, dtype=bool)


@exercise.mistake("The right cells, but as 0 and −∞, to be added to scores. The table should say yes and no: "
                  "which dtype has just two values?")
def to_be_added(L, S):
    return np.where(np.tri(L, S, S - L, dtype=bool), 0, -np.inf)


@exercise.mistake("Each query sees one key too many, the next one: that is the word which it has to guess. Where does "
                  "the future begin?")
def one_further(L, S):
    return np.tri(L, S, S - L + 1, dtype=bool)
