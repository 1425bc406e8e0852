"""The whole soft lookup

Write `soft_lookup(query, keys, values)`: (D,), (S, D), (S, Dv) -> (Dv,). Each key's score is its dot product with the
query, not divided by anything. Its weight is

    wᵢ = exp(scoreᵢ) / Σⱼ exp(scoreⱼ)

and the answer is Σᵢ wᵢ vᵢ, the sum of the values, each times its weight. A query of zeros must give the plain mean of
all values, and a very long query the value of the key that it fits best. (No score here is above 100. What to do about
scores of 1000 is an exercise of tutorial 03.)
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "soft_lookup",
    starter="""
import numpy as np


def soft_lookup(query, keys, values):
    \"\"\"query (D,), keys (S, D), values (S, Dv) -> (Dv,)\"\"\"
    ...
""",
    hints=["Three steps, one a line: scores, weights, answer. Write the shape behind each.",
           "In `keys @ query` the width D is summed over. In the last product, what is summed over?"])


def softmax(scores):
    e = np.exp(scores)
    return e / e.sum()


@exercise.solution
def soft_lookup(query, keys, values):
    scores = keys @ query
    e = np.exp(scores)
    weights = e / e.sum()
    return weights @ values


@exercise.check("one key, and two", "With one key its value must come back. With two, compute the scores by hand "
                                    "first.")
def few(rng):
    yield np.array([3.0]), np.array([[2.0]]), np.array([[5.0]])
    yield np.array([1.0, 0.0]), np.eye(2), np.array([[0.0], [10.0]])
    yield np.array([0.0, 2.0]), np.eye(2), np.array([[0.0], [10.0]])


@exercise.check("a query of zeros", "All scores are equal then. What must the weights be?")
def zeros(rng):
    yield np.zeros(2), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0], [4.0]])
    yield np.zeros(3), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))


@exercise.check("any shapes", "Write down the shape of each step. Which axis counts the keys, which the width?")
def shapes(rng):
    for S, D, Dv in ((2, 2, 2), (3, 2, 1), (2, 3, 4), (5, 1, 2), (4, 4, 4)):
        yield rng.normal(size=D), rng.normal(size=(S, D)), rng.normal(size=(S, Dv))


@exercise.check("long queries", "The best key takes nearly all, and scores may be negative.")
def long(rng):
    yield np.array([90.0, 0.0]), np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])
    yield np.array([-40.0, -41.0]), np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])


@exercise.mistake("These scores are divided by the root of the width. That will be right from tutorial 05 on; this "
                  "exercise asks for the scores as they are.")
def divided(query, keys, values):
    return softmax(keys @ query / np.sqrt(len(query))) @ values


@exercise.mistake("The weights do not sum to 1, so the answer is no average. What are the exponentials still to be "
                  "divided by?")
def not_normalised(query, keys, values):
    return np.exp(keys @ query) @ values


@exercise.mistake("The scores are divided by their sum, without the exponential. What does that give for a query of "
                  "zeros, or for negative scores?")
def no_exponential(query, keys, values):
    scores = keys @ query
    return scores / scores.sum() @ values


@exercise.mistake("This is the hard lookup: it takes one value and lets the others have no say.")
def hard(query, keys, values):
    return values[np.argmax(keys @ query)]


@exercise.mistake("What is averaged here are the keys. What do they have to tell, and what do the values?")
def keys_for_values(query, keys, values):
    return softmax(keys @ query) @ keys


@exercise.mistake("These are the weights. One step is left: what do they weigh?")
def weights_alone(query, keys, values):
    return softmax(keys @ query)


@exercise.mistake("The weighted values are not added up yet. The answer is one vector, and not one a key.")
def not_summed(query, keys, values):
    return softmax(keys @ query)[:, None] * values


@exercise.mistake("`weights * values` lines the weights up with the components of the values, and not with the keys. "
                  "Write both shapes down, or take a product that sums over the keys.")
def lined_up_with_components(query, keys, values):
    return (softmax(keys @ query) * values).sum(axis=0)


@exercise.mistake("`query @ keys` sums over the keys. A score sums over the width: its key is a row. Which order "
                  "gives one number for each row?")
def scores_by_columns(query, keys, values):
    return softmax(query @ keys) @ values


@exercise.mistake("`keys.T` makes columns of the keys, and then its product with the query sums over the keys. Over "
                  "what does a score sum?")
def keys_transposed(query, keys, values):
    return softmax(keys.T @ query) @ values


@exercise.mistake("The weights share out a total of 1 already. What does a mean over the keys do to the answer?")
def mean_besides(query, keys, values):
    return (softmax(keys @ query)[:, None] * values).mean(axis=0)
