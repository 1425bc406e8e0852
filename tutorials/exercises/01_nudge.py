"""A gradient by trying

Write `nudge(f, x)`, where f is a function of an array of shape (D,) that returns a number, and x is such an array. Move
one component of x at a time by h = 1e-5, to both sides, and return the D finite differences,

    (f(x with h added to component i) − f(x with h taken from it)) / 2h

in an array of shape (D,). x itself must be left as it was. For x with no component, return an array with none.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "nudge",
    starter="""
import numpy as np


def nudge(f, x):
    \"\"\"f: (D,) -> a number, x (D,) -> (D,)\"\"\"
    h = 1e-5
    ...
""",
    hints=["First do it for component 0 alone. What do you add to x, so that only this component moves?",
           "A vector with h at place i and zeros elsewhere can be added to x, and makes a new array: x stays as it "
           "was."])


def square(x):
    return float((x * x).sum())


def plane(x):
    return float(x @ np.arange(1.0, len(x) + 1))


def cubes(x):
    return float((x ** 3).sum())


def steep(x):
    return float(1e6 * x.sum())


def lookup(x):
    """the softmax of x, with the values 0, 1, 2 …"""
    e = np.exp(x)
    return float(e / e.sum() @ np.arange(len(x)))


@exercise.solution
def nudge(f, x):
    h = 1e-5
    steps = h * np.eye(len(x))
    return np.array([(f(x + step) - f(x - step)) / (2 * h) for step in steps])


@exercise.check("one component", "f is called twice. What is the distance between the two places?", tolerance=1e-6)
def one(rng):
    yield square, np.array([3.0])
    yield cubes, np.array([1.0])
    yield steep, np.array([16.0])


@exercise.check("several components", "Each result belongs to one component: all the others stay where they are.",
                tolerance=1e-6)
def several(rng):
    yield plane, np.array([0.0, 0.0])
    yield plane, rng.normal(size=4)
    yield square, rng.normal(size=5)
    yield lookup, np.array([1.0, 0.0, 1.0])


def exact(f, x):
    """the derivatives of the textbook"""
    e = np.exp(x)
    weights = e / e.sum()
    places = np.arange(len(x))
    return {square: 2 * x, plane: places + 1.0, cubes: 3 * x ** 2, lookup: weights * (places - weights @ places)}[f]


@exercise.check("against the textbook's derivatives", "The derivative of x³ is 3x². A difference to one side alone is "
                "wrong by about h times 3x.", expected=exact, tolerance=1e-8)
def textbook(rng):
    yield cubes, np.array([1.0, -1.0, 2.0])
    yield lookup, rng.normal(size=6)


@exercise.check("no component, and many", "With none there is nothing to move; the result has the length of x.",
                tolerance=1e-6)
def extremes(rng):
    yield square, np.zeros(0)
    yield square, rng.normal(size=300)


@exercise.mistake("x moves to one side only. That is nearly right, and wrong by about h: for x³, look at the fifth "
                  "digit.")
def forward(f, x):
    return np.array([(f(x + 1e-5 * e) - f(x)) / 1e-5 for e in np.eye(len(x))])


@exercise.mistake("It is twice as much as it should be. From x − h to x + h, how far is it?")
def half_the_distance(f, x):
    return np.array([(f(x + 1e-5 * e) - f(x - 1e-5 * e)) / 1e-5 for e in np.eye(len(x))])


@exercise.mistake("All components move at once here, so each result is the sum of all derivatives.")
def all_at_once(f, x):
    return np.array([(f(x + 1e-5) - f(x - 1e-5)) / 2e-5 for _ in x])


@exercise.mistake("A result for each component is asked for, in an array. Here there is one number for all of them.")
def one_number(f, x):
    return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


@exercise.mistake("`+=` and `x[i] =` write into the caller's array. Whoever uses it afterwards has other numbers than "
                  "before, if only in the last digits.")
def in_place(f, x):
    found = []
    for i in range(len(x)):
        x[i] += 1e-5
        above = f(x)
        x[i] -= 2e-5
        found.append((above - f(x)) / 2e-5)
    return np.array(found)


@exercise.mistake("The step is so short that most digits of the two results are the same, and their difference is "
                  "mostly rounding. The statement says which h to take.")
def too_short(f, x):
    return np.array([(f(x + 1e-13 * e) - f(x - 1e-13 * e)) / 2e-13 for e in np.eye(len(x))])


@exercise.mistake("Python works from left to right: a / 2 * h is a / 2, and that times h. What should h do to the "
                  "difference?")
def precedence(f, x):
    h = 1e-5
    return np.array([(f(x + h * e) - f(x - h * e)) / 2 * h for e in np.eye(len(x))])


@exercise.mistake("A second name is not a second array: after `up = x`, whatever is written into `up` stands in x as "
                  "well. So f is asked twice at one place.")
def one_array_two_names(f, x):
    found = []
    for i in range(len(x)):
        up = down = x
        up[i] += 1e-5
        down[i] -= 1e-5
        found.append((f(up) - f(down)) / 2e-5)
    return np.array(found)


@exercise.mistake("Only the second of the two is divided. What has to be taken from what before there is a division?")
def no_brackets(f, x):
    return np.array([f(x + 1e-5 * e) - f(x - 1e-5 * e) / 2e-5 for e in np.eye(len(x))])


@exercise.mistake("You put x back by adding what you took away. Rounding may leave it elsewhere, in the last digit; "
                  "and it is the caller's array. Is there another to write into?")
def put_back(f, x):
    found = []
    for i in range(len(x)):
        x[i] += 1e-5
        above = f(x)
        x[i] -= 2e-5
        below = f(x)
        x[i] += 1e-5
        found.append((above - below) / 2e-5)
    return np.array(found)
