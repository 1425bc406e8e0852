"""Turn queries and keys by their positions

Write `rotary(x, positions)`: x (..., L, D) -> the same shape, D even. `positions` (L,) are whole numbers, in any order.
The features 2i and 2i + 1 are a pair, and at position p it turns by the angle θ = p ωᵢ, with ωᵢ = 10000^(−2i / D):

    (x₁, x₂)  ->  (x₁ cos θ − x₂ sin θ,  x₁ sin θ + x₂ cos θ)

Position 0 changes nothing. Lengths stay.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "rotary",
    starter="""
import numpy as np


def rotary(x, positions):
    \"\"\"x (..., L, D), positions (L,) -> (..., L, D)\"\"\"
    ...
""",
    hints=["The angles are a table (L, D / 2). The first ones of all pairs are `x[..., 0::2]`.",
           "Do not write into x: make a new array of its shape, and fill its even and its odd features.",
           "Both new numbers of a pair are made of both old ones."])


@exercise.solution
def rotary(x, positions):
    D = x.shape[-1]
    theta = np.asarray(positions)[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    first, second, turned = x[..., 0::2], x[..., 1::2], np.zeros(x.shape)
    turned[..., 0::2] = first * np.cos(theta) - second * np.sin(theta)
    turned[..., 1::2] = first * np.sin(theta) + second * np.cos(theta)
    return turned


@exercise.check("one pair", "With D = 2, the vector (1, 0) at position p becomes (cos p, sin p).")
def one_pair(rng):
    yield np.array([[1.0, 0.0]]), np.array([0])
    yield np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])
    yield np.array([[0.0, 1.0]]), np.array([2])
    yield rng.normal(size=(2, 2)), np.array([5, 3])


@exercise.check("two pairs", "The second pair turns slower. Which two features is it?")
def two_pairs(rng):
    yield np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([1])
    yield np.array([[0.0, 0.0, 1.0, 0.0]]), np.array([100])
    yield np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([7])


@exercise.check("axes in front", "A batch and heads may stand before the positions. Count axes from the end.")
def axes_in_front(rng):
    yield rng.normal(size=(1, 2, 2)), np.array([3, 4])
    yield rng.normal(size=(2, 1, 3, 4)), np.array([0, 1, 2])
    yield rng.normal(size=(2, 2, 3, 6)), np.array([9, 0, 250])


@exercise.check("lengths stay", "A turn does not make a vector longer or shorter. Is each new number made of the two "
                "old ones?", call=lambda rotary, x, positions: np.square(rotary(x, positions)).sum(axis=-1),
                expected=lambda x, positions: (x ** 2).sum(axis=-1))
def lengths(rng):
    yield np.array([[3.0, 4.0]]), np.array([1])
    yield rng.normal(size=(5, 8)), np.array([0, 1, 2, 30, 400])


@exercise.check("the score depends on the distance alone", "The same query and key, moved by the same shift, must "
                "have the same score.",
                call=lambda rotary, q, k, m, n: np.ptp([rotary(q, np.array([m + s])) @ rotary(k, np.array([n + s])).T
                                                        for s in (0, 1, 10, 77)]),
                expected=lambda q, k, m, n: 0.0)
def relative(rng):
    yield rng.normal(size=(1, 2)), rng.normal(size=(1, 2)), 2, 0
    yield rng.normal(size=(1, 8)), rng.normal(size=(1, 8)), 5, 9


def speeds(D):
    return 10000.0 ** (-np.arange(0, D, 2) / D)


def turned(first, second, theta):
    return [first * np.cos(theta) - second * np.sin(theta), first * np.sin(theta) + second * np.cos(theta)]


def turn(x, theta):
    return np.stack(turned(x[..., 0::2], x[..., 1::2], theta), axis=-1).reshape(x.shape)


@exercise.mistake("It turns the other way. Where does (1, 0) go, turned by a small positive angle: is its second "
                  "number positive?")
def backwards(x, positions):
    return turn(x, -positions[:, None] * speeds(x.shape[-1]))


@exercise.mistake("Where does (0, 1) go, turned by a small positive angle: is its first number positive? Compare the "
                  "signs of all four products.")
def no_minus(x, positions):
    theta, a, b = positions[:, None] * speeds(x.shape[-1]), x[..., 0::2], x[..., 1::2]
    return np.stack([a * np.cos(theta) + b * np.sin(theta), a * np.sin(theta) + b * np.cos(theta)],
                    axis=-1).reshape(x.shape)


@exercise.mistake("All pairs turn at the speed of the first. Where does the number of the pair enter the angle?")
def one_speed(x, positions):
    return turn(x, positions[:, None] * np.ones(x.shape[-1] // 2))


@exercise.mistake("The angles are counted from 0, whatever the positions are. With a cache, the first row is not at "
                  "position 0.")
def always_from_zero(x, positions):
    return turn(x, np.arange(len(positions))[:, None] * speeds(x.shape[-1]))


@exercise.mistake("You pair feature i with i + D/2. That is the other convention, and weights for one do not work with "
                  "the other. Which is asked here?")
def in_halves(x, positions):
    D = x.shape[-1]
    return np.concatenate(turned(x[..., :D // 2], x[..., D // 2:], positions[:, None] * speeds(D)), axis=-1)


@exercise.mistake("The pairs are read side by side, and written in two halves. Where does the second number of a pair "
                  "belong?")
def written_in_halves(x, positions):
    return np.concatenate(turned(x[..., 0::2], x[..., 1::2], positions[:, None] * speeds(x.shape[-1])), axis=-1)


@exercise.mistake("The second number of a pair is made of the new first one. Both are to be made of the old ones: what "
                  "was overwritten?")
def overwritten(x, positions):
    theta, out = positions[:, None] * speeds(x.shape[-1]), x.copy()
    out[..., 0::2] = out[..., 0::2] * np.cos(theta) - out[..., 1::2] * np.sin(theta)
    out[..., 1::2] = out[..., 0::2] * np.sin(theta) + out[..., 1::2] * np.cos(theta)
    return out


@exercise.mistake("You add the sines and cosines, as the older scheme does. Here nothing is added: the pair itself "
                  "turns.")
def added(x, positions):
    theta = positions[:, None] * speeds(x.shape[-1])
    return x + np.stack([np.sin(theta), np.cos(theta)], axis=-1).reshape(len(positions), -1)


@exercise.mistake("The speeds fall half as fast as they should. What is ω₁ for D = 4?")
def half_the_exponent(x, positions):
    D = x.shape[-1]
    return turn(x, positions[:, None] * 10000.0 ** (-np.arange(D // 2) / D))
