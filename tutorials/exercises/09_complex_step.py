"""The complex step: a derivative without a subtraction

Write `complex_gradient(f, x)`. f takes an array of the shape of x, real or complex, and returns a number. x is an array
of real numbers, of any shape. The result is real, has the shape of x, and its element at each place is

    Im f(x + ih e) / h        with e = 1 at that place, and 0 elsewhere

It must be right to 13 digits, and also find a derivative of 10⁻²⁶.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "complex_gradient",
    starter="""
import numpy as np


def complex_gradient(f, x):
    \"\"\"∂f/∂x by the complex step, in the shape of x\"\"\"
    ...
""",
    hints=["In Python ih is `1j * h`, and the imaginary part of a number z is `z.imag`.",
           "An array of floats cannot hold an imaginary number. `np.zeros(x.shape, dtype=complex)` can.",
           "Truncation is h² f‴/6 for this step, too. Nothing is subtracted, so what keeps you from making it as "
           "small as you like?"])


def exponential(x):
    return np.sum(np.exp(x))


def squire_trapp(x):
    """e^x / √(sin³x + cos³x), the example of 1998"""
    return np.sum(np.exp(x) / np.sqrt(np.sin(x) ** 3 + np.cos(x) ** 3))


def product(x):
    return np.prod(x)


def first_column(x):
    """the exponentials of the first number of each row"""
    return np.sum(np.exp(x[..., 0]))


def first_weight(x):
    e = np.exp(x - x.real.max())
    return e[0] / e.sum()


def by_differences(f, x):
    h, gradient = 1e-5, np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        gradient[place] = (f(x + step) - f(x - step)) / (2 * h)
    return gradient


@exercise.solution
def complex_gradient(f, x):
    h, gradient = 1e-30, np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape, dtype=complex)
        step[place] = 1j * h
        gradient[place] = f(x + step).imag / h
    return gradient


@exercise.check("one number, to 13 digits", "These x have no axis: is there an error? If not, and too few digits are "
                "right, which step do you take, and is anything subtracted?", tolerance=1e-13)
def one(rng):
    yield exponential, np.array(1.0)
    yield squire_trapp, np.array(0.5)


@exercise.check("a few numbers", "Each element is moved by itself, while the others stay where they are.",
                tolerance=1e-12)
def few(rng):
    yield exponential, np.array([0.0, 1.0])
    yield product, np.array([2.0, 3.0, 5.0])


@exercise.check("several axes", "The gradient has the shape of x, however many axes there are, and its elements are "
                "real numbers.", tolerance=1e-12)
def shapes(rng):
    for shape in ((1, 2), (2, 3), (2, 1, 2)):
        yield squire_trapp, rng.uniform(0, 1, size=shape)
    yield first_column, np.array([[0.0, 1.0], [1.0, 0.0]])


@exercise.check("are the elements real numbers?", "An imaginary part is a real number, and so is the gradient. Of "
                "which dtype is the array that holds yours?",
                call=lambda complex_gradient, f, x: "complex" if np.iscomplexobj(complex_gradient(f, x)) else "real")
def real_numbers(rng):
    yield exponential, np.array([0.0])
    yield exponential, np.array([0.0, 1.0])


@exercise.check("beside central differences", "A central difference, which is good to some eight digits, gives another "
                "number.", expected=by_differences, tolerance=1e-6)
def beside(rng):
    yield squire_trapp, rng.uniform(0, 1, size=3)
    yield first_weight, np.array([1.0, 0.0, -1.0])


@exercise.check("a saturated softmax: derivatives times 10²⁶", "The first weight is 1 in all its digits, and still "
                "it has a derivative, in the imaginary part.",
                call=lambda complex_gradient, f, x: 1e26 * complex_gradient(f, x), tolerance=1e-10)
def tiny(rng):
    yield first_weight, np.array([60.0, 0.0])


@exercise.mistake("Good to ten digits or so. Which two numbers that are nearly equal do you subtract?")
def central(f, x):
    return by_differences(f, x)


@exercise.mistake("That is the real part, which is the value f(x), and hardly moves. Where did the derivative go?")
def real_part(f, x):
    return np.reshape([f(x + 1e-30j * e).real / 1e-30 for e in units(x)], x.shape)


@exercise.mistake("What comes out is 0, or nearly. The imaginary part is the derivative *times the step*: is the step "
                  "still in it? Or was the step lost, in an array that holds real numbers alone?")
def undivided(f, x):
    return 1e-30 * complex_gradient(f, x)


@exercise.mistake("Right to a few digits, so there is truncation, h² f‴/6. Your step may be far shorter than that.")
def long_step(f, x):
    return np.reshape([f(x + 1e-3j * e).imag / 1e-3 for e in units(x)], x.shape)


@exercise.mistake("All elements move together, which gives the sum of all slopes. Move them one by one.")
def all_at_once(f, x):
    return f(x + 1e-30j).imag / 1e-30


@exercise.mistake("The first element is right. The next ones are too large by those before them, which were moved, and "
                  "not moved back.")
def piling_up(f, x):
    return np.cumsum(complex_gradient(f, x)).reshape(x.shape)


@exercise.mistake("An array of real numbers cannot hold ih. Of which dtype must the step be?")
def into_floats(f, x):
    gradient = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = 1e-30j
        gradient[place] = f(x + step).imag / 1e-30
    return gradient


@exercise.mistake("The numbers are right, and they lie in one row. What shape has the gradient?")
def flat(f, x):
    return complex_gradient(f, x).ravel()


def units(x):
    """For each element the array that is 1 there, and 0 elsewhere."""
    return np.eye(x.size).reshape(x.size, *x.shape)


@exercise.mistake("The gradient has the right shape. But what does f get: an array of the shape of x, or one long row? "
                  "A function that looks at columns would tell them apart.")
def f_gets_a_row(f, x):
    flat, found = np.array(x, dtype=complex).ravel(), []
    for i in range(flat.size):
        step = np.zeros(flat.size, dtype=complex)
        step[i] = 1e-30j
        found.append(np.imag(f(flat + step)) / 1e-30)
    return np.reshape(found, x.shape)


@exercise.mistake("The values are right, and each of them carries an imaginary part of 0 along. Which of your arrays "
                  "has to be complex: that of the steps, that of the results, or both?")
def kept_complex(f, x):
    gradient = np.zeros(x.shape, dtype=complex)
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape, dtype=complex)
        step[place] = 1e-30j
        gradient[place] = f(x + step).imag / 1e-30
    return gradient
