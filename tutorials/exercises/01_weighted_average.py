"""An average with weights

Write `weighted_average(weights, values)`: (S,), (S, Dv) -> (Dv,). There are S values, one a row, and a weight for each.
No weight is negative, and at least one is positive; they need not sum to 1. The average is

    (w₁ v₁ + … + w_S v_S) / (w₁ + … + w_S)

so that equal weights give the plain mean, whatever their size. If one weight alone is positive, its value is returned.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "weighted_average",
    starter="""
import numpy as np


def weighted_average(weights, values):
    \"\"\"weights (S,), values (S, Dv) -> (Dv,)\"\"\"
    ...
""",
    hints=["There are two sums in the formula, over the same i. Do the one above the line first.",
           "The product of a vector (S,) with a matrix (S, Dv) is the sum of the rows, each times its number."])


@exercise.solution
def weighted_average(weights, values):
    total = weights.sum()
    return weights @ values / total


@exercise.check("weights that sum to 1", "Multiply each row by its weight, and add the rows up. What is left is a row.")
def shares(rng):
    yield np.array([1.0]), np.array([[7.0]])
    yield np.array([0.25, 0.75]), np.array([[4.0], [8.0]])
    yield np.array([0.5, 0.5]), np.array([[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]])


@exercise.check("any weights", "Twice as large weights must give the same average. Where is the sum of the weights?")
def any_weights(rng):
    yield np.array([2.0, 2.0]), np.array([[10.0], [20.0]])
    for shape in ((3, 1), (3, 3), (2, 5), (6, 2)):
        yield rng.random(shape[0]) + 0.1, rng.normal(size=shape)


@exercise.check("one weight alone, or tiny ones", "The formula holds as it stands; nothing must be added to the sum "
                "below the line, nor may it be rounded.")
def alone(rng):
    yield np.array([0.0, 3.0]), np.array([[5.0], [6.0]])
    yield np.array([0.0, 0.0, 1e-12, 0.0]), rng.normal(size=(4, 2))
    yield 1e-200 * np.array([1.0, 3.0]), np.array([[1.0, 0.0], [5.0, 0.0]])


@exercise.mistake("This is right if the weights sum to 1. What if they are all 2? Then an average of 10 and 20 would "
                  "be 60.")
def not_divided(weights, values):
    return weights @ values


@exercise.mistake("It is divided by the number of values. By what must it be divided for equal weights to give the "
                  "plain mean, whatever their size?")
def divided_by_the_number(weights, values):
    return weights @ values / len(weights)


@exercise.mistake("The weights play no part: each value counts the same. Which one should count more?")
def plain_mean(weights, values):
    return values.mean(axis=0)


@exercise.mistake("Each value is multiplied by its weight, but they are not yet added up. How many rows has an "
                  "average?")
def not_summed(weights, values):
    return weights[:, None] * values / weights.sum()


@exercise.mistake("The sum goes over the components of each value, and so mixes them. Which axis counts the values?")
def wrong_axis(weights, values):
    return (weights[:, None] * values).sum(axis=1) / weights.sum()


@exercise.mistake("Something small is added below the line, to be safe. For tiny weights that is not small at all, "
                  "and it was never needed: one weight is positive.")
def padded(weights, values):
    return weights @ values / (weights.sum() + 1e-12)


@exercise.mistake("`weights * values` lines the weights up with the components, and not with the rows. Write both "
                  "shapes down: which axis of the values counts them?")
def lined_up_with_components(weights, values):
    return (weights * values).sum(axis=0) / weights.sum()


@exercise.mistake("These weights have been sent through a softmax. A softmax makes weights of scores; these are "
                  "weights already.")
def softmax_again(weights, values):
    e = np.exp(weights)
    return e / e.sum() @ values


@exercise.mistake("It is off by a little everywhere: something small is added below the line. That is not needed, as "
                  "one weight is positive.")
def padded_more(weights, values):
    return weights @ values / (weights.sum() + 1e-8)
