"""One step of Adam

Write `adam_step(w, g, m, v, t)`, which returns the new w, m and v. All are arrays of one shape, except t, the number of
this step, counted from 1. With β₁ = 0.9, β₂ = 0.999, lr = 0.01, ε = 1e-8:

    m ← β₁ m + (1 − β₁) g
    v ← β₂ v + (1 − β₂) g²
    w ← w − lr · m̂ / (√v̂ + ε),   m̂ = m / (1 − β₁ᵗ),   v̂ = v / (1 − β₂ᵗ)

What is kept for the next step are m and v, not m̂ and v̂. Where all gradients have been 0, w stays as it is.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "adam_step",
    starter="""
import numpy as np


def adam_step(w, g, m, v, t):
    \"\"\"arrays of one shape, and t = 1, 2, … -> new w, m, v\"\"\"
    ...
""",
    hints=["Write the three lines as they stand, with new names for what is corrected, and return (w, m, v).",
           "Write in place nowhere: `m *= 0.9` would change the caller's array. The correction uses the new m and v."])

STEPS = np.array([[0.5], [-1.0], [0.0], [2.0]])


@exercise.solution
def adam_step(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    m_hat, v_hat = m / (1 - 0.9 ** t), v / (1 - 0.999 ** t)
    return w - 0.01 * m_hat / (np.sqrt(v_hat) + 1e-8), m, v


def several(step, w, gradients):
    m, v = np.zeros_like(w), np.zeros_like(w)
    for i, g in enumerate(gradients):
        w, m, v = step(w, g, m, v, i + 1)
    return w, m, v


@exercise.check("the first step", "m and v are 0 before it. Corrected, m̂ is g and v̂ is g², so that w moves by nearly "
                "lr = 0.01.")
def first(rng):
    yield np.array([1.0]), np.array([0.5]), np.zeros(1), np.zeros(1), 1
    yield np.array([1.0, 2.0]), np.array([-3.0, 4.0]), np.zeros(2), np.zeros(2), 1


@exercise.check("tiny gradients", "Here ε is as large as the root. Does it stand beside the root, or under it?")
def tiny(rng):
    yield np.array([0.0]), np.array([1e-8]), np.zeros(1), np.zeros(1), 1
    yield np.zeros(3), 1e-7 * rng.normal(size=3), np.zeros(3), np.zeros(3), 1


@exercise.check("no gradient at all", "Where g has always been 0, the step is 0 / (0 + ε).")
def none(rng):
    yield np.array([1.0, 2.0]), np.array([0.0, 1.0]), np.zeros(2), np.zeros(2), 1


@exercise.check("a later step",
                "m and v carry on from earlier steps, and t is larger, so that the correction is smaller.")
def later(rng):
    for shape, t in (((1,), 2), ((3,), 10), ((2, 3), 100), ((2, 2), 5000)):
        w, g, m, v = rng.normal(size=(4, *shape))
        yield w, g, m, v * v, t


@exercise.check("steps in a row",
                "What you return is what the next step gets. Is it what should be kept?", call=several)
def in_a_row(rng):
    yield np.array([1.0]), STEPS
    yield rng.normal(size=(2, 3)), rng.normal(size=(6, 2, 3))


@exercise.mistake("Your means start at 0 and are not corrected. By how much is m too small after the first step, and "
                  "by how much √v?")
def uncorrected(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * m / (np.sqrt(v) + 1e-8), m, v


@exercise.mistake("w is right, but you return m̂ and v̂. The next step would correct what has been corrected already.")
def keeps_the_corrected(w, g, m, v, t):
    m = (0.9 * m + 0.1 * g) / (1 - 0.9 ** t)
    v = (0.999 * v + 0.001 * g * g) / (1 - 0.999 ** t)
    return w - 0.01 * m / (np.sqrt(v) + 1e-8), m, v


@exercise.mistake("Your v is a mean of gradients. Of what is it the mean in the formula, and what would its root be "
                  "otherwise?")
def not_squared(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * np.abs(g)
    return w - 0.01 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8), m, v


@exercise.mistake("Look at the sign: does w move along the gradient or against it?")
def uphill(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w + 0.01 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8), m, v


@exercise.mistake("At the first step it is right, at later ones not. Where do the old m and v go in?")
def forgets(w, g, m, v, t):
    m, v = 0.1 * g, 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8), m, v


@exercise.mistake("At the first step it is right. What should the correction be at step 10? Look at the exponent in "
                  "the formula.")
def always_the_first(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / 0.1) / (np.sqrt(v / 0.001) + 1e-8), m, v


@exercise.mistake("The small ε stands under the root, where it counts as much as v̂. In the formula it stands beside "
                  "it.")
def eps_under_the_root(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 ** t)) / np.sqrt(v / (1 - 0.999 ** t) + 1e-8), m, v


@exercise.mistake("The new w comes back alone. What does the next step need besides?")
def w_alone(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


def moved(w, m, v, t):
    return w - 0.01 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


@exercise.mistake("Your v is a mean of gradients, and below 0 where they are. Of what is it the mean in the formula?")
def mean_of_gradients(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g
    return moved(w, m, v, t), m, v


@exercise.mistake("w did not move: the step is made with the old m and v, which are 0. In which order are the three "
                  "lines?")
def with_the_old_means(w, g, m, v, t):
    return moved(w, m, v, t), 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g


@exercise.mistake("β₁ and β₂ have changed places. Which mean has the longer memory?")
def betas_swapped(w, g, m, v, t):
    m = 0.999 * m + 0.001 * g
    v = 0.9 * v + 0.1 * g * g
    return moved(w, m, v, t), m, v


@exercise.mistake("β and 1 − β have changed places. How much of a running mean is old, and how much is new?")
def new_for_old(w, g, m, v, t):
    m = 0.1 * m + 0.9 * g
    v = 0.001 * v + 0.999 * g * g
    return moved(w, m, v, t), m, v


@exercise.mistake("You divide by v̂ itself. If all gradients were twice as large, the step should stay as it is.")
def no_root(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 ** t)) / (v / (1 - 0.999 ** t) + 1e-8), m, v


@exercise.mistake("m and v are right, and your step is corrected as if it were the next one. From which number is t "
                  "counted?")
def one_too_far(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return moved(w, m, v, t + 1), m, v


@exercise.mistake("Right but for lr: how long should the first step be, by the statement?")
def usual_rate(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w + (moved(w, m, v, t) - w) / 10, m, v


@exercise.mistake("The ε is missing. It matters where the root is as small as ε, or 0.")
def no_eps(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 ** t)) / np.sqrt(v / (1 - 0.999 ** t)), m, v


@exercise.mistake("At the first step it is right. At the second, what is β₁ᵗ: is it β₁ times t?")
def times_t(w, g, m, v, t):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * (m / (1 - 0.9 * t)) / (np.sqrt(v / (1 - 0.999 * t)) + 1e-8), m, v
