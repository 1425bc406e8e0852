"""The table of sines

Write `sinusoids(length, width)`: the table (length, width) of sinusoidal positions, for an even width:

    PE[p, 2i] = sin(p ωᵢ)      PE[p, 2i+1] = cos(p ωᵢ)      ωᵢ = 10000^(−2i / width),      i = 0 … width/2 − 1

A sine and its cosine stand side by side. Position 0 is 0, 1, 0, 1, …
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "sinusoids",
    starter="""
import numpy as np


def sinusoids(length, width):
    \"\"\"(length, width)\"\"\"
    ...
""",
    hints=["The angles are a table (length, width / 2): positions as a column times speeds as a row.",
           "Make an array of zeros, and fill every second column: `table[:, 0::2]` are the even ones."])


@exercise.solution
def sinusoids(length, width):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    table = np.zeros((length, width))
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


def unevenness(table):
    """Of each diagonal of the products: the largest number less the smallest."""
    return [np.ptp(np.diagonal(table @ table.T, d)) for d in range(len(table))]


@exercise.check("one pair", "With width 2 there is one speed, 1: a row is sin p, cos p.")
def one_pair(rng):
    yield 1, 2
    yield 3, 2


@exercise.check("several pairs", "Write down ω₀ and ω₁ for width 4. In which columns are they?")
def several(rng):
    yield 1, 4
    yield 2, 4
    yield 3, 6
    yield 5, 16


@exercise.check("the product depends on the distance alone", "On each diagonal of the table of products, all numbers "
                "are equal. Do a sine and its cosine have the same speed?",
                call=lambda sinusoids, length, width: unevenness(sinusoids(length, width)),
                expected=lambda length, width: [0.0] * length)
def products(rng):
    yield 4, 6
    yield 12, 16


@exercise.check("far positions", "Nothing is special about a large p.")
def far(rng):
    yield 300, 4


def made(length, width, speeds, halves=False, swapped=False):
    angles = np.arange(length)[:, None] * speeds
    pair = (np.cos(angles), np.sin(angles)) if swapped else (np.sin(angles), np.cos(angles))
    return np.concatenate(pair, axis=1) if halves else np.stack(pair, axis=-1).reshape(length, width)


@exercise.mistake("The numbers are right, and in other columns: all sines, then all cosines. Where should the "
                  "cosine of a speed stand?")
def in_halves(length, width):
    return made(length, width, 10000.0 ** (-np.arange(0, width, 2) / width), halves=True)


@exercise.mistake("Sine and cosine have changed places. What is the sine of 0?")
def swapped(length, width):
    return made(length, width, 10000.0 ** (-np.arange(0, width, 2) / width), swapped=True)


@exercise.mistake("The speeds fall half as fast as they should. What is the exponent of the second pair, for width 4?")
def half_the_exponent(length, width):
    return made(length, width, 10000.0 ** (-np.arange(width // 2) / width))


@exercise.mistake("The later pairs turn faster than the first. Which sign has the exponent?")
def faster_and_faster(length, width):
    return made(length, width, 10000.0 ** (np.arange(0, width, 2) / width))


@exercise.mistake("Every feature has a speed of its own. A sine and its cosine are one hand of the clock: how many "
                  "speeds are there?")
def a_speed_for_each_feature(length, width):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(width) / width)
    return np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))


@exercise.mistake("All pairs turn at one speed, so that positions a whole turn apart can hardly be told. What makes "
                  "the speeds differ?")
def one_speed(length, width):
    return made(length, width, np.ones(width // 2))


@exercise.mistake("In ωᵢ, i is the number of the pair, 0 … width/2 − 1, and not that of the feature. How many "
                  "features share an i?")
def the_number_of_the_feature(length, width):
    angles = np.arange(length)[:, None] * 10000.0 ** (-2 * np.arange(width) / width)
    return np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))


@exercise.mistake("The positions are counted from 1 here. What is the first row to be?")
def from_one(length, width):
    return sinusoids(length + 1, width)[1:]
