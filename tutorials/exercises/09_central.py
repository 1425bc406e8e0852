"""The central difference, for an array of any shape

Write `numeric_gradient(f, x)`. f takes an array of the shape of x and returns a number. The result has the shape of x,
and its element at each place is

    (f(x + h e) − f(x − h e)) / 2h

where e is 1 at that place and 0 elsewhere. Choose a step h that is right to five digits for functions of ordinary size.
x may have no axis or several, may hold whole numbers, and must be left as it is. At a kink it gives the mean of both
slopes, so 0 for |x| at 0.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "numeric_gradient",
    starter="""
import numpy as np


def numeric_gradient(f, x):
    \"\"\"∂f/∂x by central differences, in the shape of x\"\"\"
    ...
""",
    hints=["`for place in np.ndindex(x.shape)` goes through all places, whatever the number of axes; with no axis "
           "there is one place, `()`.",
           "At each place make an array of zeros, with h at that place, and add it to x: then x itself is not "
           "touched."])


def square(x):
    return float(np.sum(x ** 2))


def product(x):
    return float(np.prod(x))


def waves(x):
    return float(np.sum(np.sin(x) * np.exp(0.5 * x)))


def sizes(x):
    return float(np.sum(np.abs(x)))


def first_column(x):
    """the squares of the first number of each row"""
    return float(np.sum(x[..., 0] ** 2))


SLOPES = {square: lambda x: 2.0 * x, sizes: np.sign,
          waves: lambda x: np.exp(0.5 * x) * (np.cos(x) + 0.5 * np.sin(x))}


@exercise.solution
def numeric_gradient(f, x):
    h, gradient = 1e-6, np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        gradient[place] = (f(x + step) - f(x - step)) / (2 * h)
    return gradient


@exercise.check("one number", "These x have no axis: is there an error? If not, look at the digits. Are some right, "
                "but not five? Then the step is too short, or too long. If none is, what do you divide by?",
                tolerance=1e-5)
def one(rng):
    yield square, np.array(3.0)
    yield waves, np.array(-0.5)


@exercise.check("a few numbers", "Each element is moved by itself, while the others stay where they are.",
                tolerance=1e-5)
def few(rng):
    yield square, np.array([1.0, 2.0])
    yield product, np.array([2.0, 3.0, 5.0])
    yield waves, rng.normal(size=4)


@exercise.check("several axes", "The gradient has one number for each element, in the shape of x.", tolerance=1e-5)
def shapes(rng):
    for shape in ((1, 2), (2, 3), (2, 1, 3)):
        yield waves, rng.normal(size=shape)
    yield first_column, np.array([[1.0, 2.0], [3.0, 4.0]])


@exercise.check("slopes known on paper", "Differentiate by hand: x² has 2x. Yours is another number, so look at the "
                "step and at what it is divided by.", expected=lambda f, x: SLOPES[f](x), tolerance=1e-5)
def known(rng):
    yield square, np.array([-1.0, 0.0, 4.0])
    yield waves, rng.normal(size=(2, 2))
    yield sizes, np.array([2.0, -3.0])


@exercise.check("at a kink", "To the right of 0 the slope of |x| is 1, to the left −1. A central difference has seen "
                "both.", tolerance=1e-5)
def kink(rng):
    yield sizes, np.array([0.0])
    yield sizes, np.array([1.0, 0.0])


@exercise.check("whole numbers", "These x are integers. What is left of 10⁻⁶, if it is written into an array of "
                "integers?", tolerance=1e-5)
def whole(rng):
    yield square, np.array([3])
    yield product, np.array([[2, 3], [4, 5]])


@exercise.mistake("At a kink you see one side alone. A central difference steps to both.")
def forward(f, x):
    h, gradient = 1e-6, np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        gradient[place] = (f(x + step) - f(x)) / h
    return gradient


@exercise.mistake("Twice too large. How far is x + h from x − h?")
def by_one_step(f, x):
    return 2 * numeric_gradient(f, x)


@exercise.mistake("All elements move together here, which gives one number: the sum of all slopes. Which one is to "
                  "move?")
def all_at_once(f, x):
    return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6


@exercise.mistake("The numbers are right, and they lie in one row. What shape has the gradient?")
def flat(f, x):
    return numeric_gradient(f, x).ravel()


@exercise.mistake("You write into x itself. Whoever called you still needs it.")
def in_place(f, x):
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        x[place] += 1e-6
        above = f(x)
        x[place] -= 2e-6
        gradient[place] = (above - f(x)) / 2e-6
    return gradient


@exercise.mistake("The copy has the type of x. Write 3.000001 into an array of integers, and look what stands there.")
def integers(f, x):
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[place], below[place] = x[place] + 1e-6, x[place] - 1e-6
        gradient[place] = (f(above) - f(below)) / 2e-6
    return gradient


@exercise.mistake("The array of steps has the type of x, so that for integers every step in it is 0. Which type "
                  "should it have?")
def integer_steps(f, x):
    return numeric_gradient(f, x) if x.dtype.kind == "f" else np.zeros(x.shape)


@exercise.mistake("What comes out is 0, or nearly. Are the two values the same number, because the step is lost in the "
                  "rounding of x? If they are not, how does Python read `/ 2 * h`?")
def too_short(f, x):
    return np.zeros(x.shape)


@exercise.mistake("That is f(x + h) − f(x − h), divided by nothing, or not by the step.")
def undivided(f, x):
    return 2e-6 * numeric_gradient(f, x)


@exercise.mistake("Your step is a part of x. How long is it at x = 0?")
def relative_step(f, x):
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = 1e-6 * abs(x[place])
        with np.errstate(all="ignore"):
            gradient[place] = np.float64(f(x + step) - f(x - step)) / (2 * step[place])
    return gradient


@exercise.mistake("What was found has been cut to whole numbers. Which type has the array that you write it into?")
def result_of_integers(f, x):
    gradient = np.zeros_like(x)
    gradient[...] = numeric_gradient(f, x)
    return gradient


@exercise.mistake("The gradient has the right shape. But what does f get: an array of the shape of x, or one long row? "
                  "A function that looks at columns would tell them apart.")
def f_gets_a_row(f, x):
    flat, found = np.array(x, dtype=float).ravel(), []
    for i in range(flat.size):
        step = np.zeros(flat.size)
        step[i] = 1e-6
        up, down = (flat + step, flat - step) if x.ndim else (flat[0] + step[0], flat[0] - step[0])
        found.append((f(up) - f(down)) / 2e-6)
    return np.reshape(found, x.shape)
