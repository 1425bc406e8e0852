"""Layer norm, with weight and bias

Write `layer_norm(x, weight, bias)`: (..., n), (n,), (n,) -> (..., n). Bring each row of x, along the last axis, to mean
0 and variance 1, then multiply by the weight and add the bias:

    y = (x − mean) / √(variance + 1e-5),   result = y · weight + bias

The variance is the mean of (x − mean)². A row of equal numbers must give the bias, and not NaN.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "layer_norm",
    starter="""
import numpy as np


def layer_norm(x, weight, bias):
    \"\"\"(..., n), (n,), (n,) -> (..., n)\"\"\"
    ...
""",
    hints=["Compute mean and variance along the last axis first. `keepdims=True` keeps that axis, so that the "
           "subtraction fits.",
           "NumPy's `var` divides by n unless told otherwise. Where exactly does the formula add the 1e-5?"])


@exercise.solution
def layer_norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    s = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / s * weight + bias


def plain(*shape):
    return np.ones(shape[-1]), np.zeros(shape[-1])


@exercise.check("one row",
                "Compute it by hand: of the row (1, 3) the mean is 2 and the variance 1, so y is very nearly "
                "(−1, 1).")
def one(rng):
    yield np.array([1.0, 3.0]), *plain(2)
    yield np.array([3.0, 0.0, -1.0, 2.0]), *plain(4)


@exercise.check("many rows", "Each row is brought to mean 0 by itself, whatever stands in other rows.")
def rows(rng):
    for shape in ((2, 3), (3, 2), (4, 4), (2, 3, 5)):
        yield 3 + 2 * rng.normal(size=shape), *plain(*shape)


@exercise.check("weight and bias", "They come after y has been made: first the product, then the sum.")
def affine(rng):
    for shape in ((2,), (2, 3), (2, 3, 4)):
        yield rng.normal(size=shape), rng.normal(size=shape[-1]), rng.normal(size=shape[-1])


@exercise.check("rows without spread",
                "If all numbers of a row are equal, all of its y are 0, and what is left of the "
                "result is the bias.")
def flat(rng):
    yield np.array([2.0, 2.0]), np.array([1.0, 3.0]), np.array([0.0, 7.0])
    yield 1e-4 * rng.normal(size=(2, 3)), *plain(3)


@exercise.check("large numbers",
                "The numbers are large and their spread is small. Do you subtract two large numbers that are nearly "
                "equal, after they were rounded?", tolerance=1e-6)
def large(rng):
    yield 1e7 + np.array([0.0, 4.0, 8.0]), *plain(3)


@exercise.mistake("Nearly right, but for the small 1e-5, which keeps the root from being 0. Where does the formula "
                  "have it?")
def no_eps(x, weight, bias):
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True) * weight + bias


@exercise.mistake("You add 1e-5 to the root. The formula adds it to the variance, under the root.")
def eps_outside(x, weight, bias):
    return (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1e-5) * weight + bias


@exercise.mistake("Your variance is divided by n − 1. The formula takes the mean, which divides by n.")
def of_a_sample(x, weight, bias):
    s = np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + 1e-5)
    return (x - x.mean(axis=-1, keepdims=True)) / s * weight + bias


@exercise.mistake("Mean and variance of all numbers together were taken. Which numbers belong together?")
def of_everything(x, weight, bias):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias


@exercise.mistake("You divide by the variance. The numbers then have another unit than x; what brings their variance "
                  "to 1?")
def by_the_variance(x, weight, bias):
    return (x - x.mean(axis=-1, keepdims=True)) / (x.var(axis=-1, keepdims=True) + 1e-5) * weight + bias


@exercise.mistake("The bias is inside the product with the weight. In which order does the formula have them?")
def bias_first(x, weight, bias):
    return ((x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) + bias) * weight


@exercise.mistake("For one row it is right. With several, the means have lost an axis, so that they no longer stand "
                  "beside their rows. How do you keep it?")
def no_keepdims(x, weight, bias):
    return (x - x.mean(axis=-1)) / np.sqrt(x.var(axis=-1) + 1e-5) * weight + bias


@exercise.mistake("The weight multiplies x before it is normalised, which undoes part of it. On what does the formula "
                  "put the weight?")
def weight_first(x, weight, bias):
    x = x * weight
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) + bias


@exercise.mistake("Means were taken along the first axis: each column has mean 0. Along which axis does a row go?")
def along_the_first_axis(x, weight, bias):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) * weight + bias


@exercise.mistake("This is y. What becomes of the weight and the bias?")
def y_alone(x, weight, bias):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


@exercise.mistake("The weight is there. What else does the formula do with y?")
def no_bias(x, weight, bias):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * weight


@exercise.mistake("The mean of your y is not 0. What is divided by the root in the formula?")
def not_centred(x, weight, bias):
    return x / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * weight + bias


@exercise.mistake("You take the mean of x², and divide x itself. Of what is the variance the mean? What is divided?")
def root_mean_square(x, weight, bias):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * weight + bias


@exercise.mistake("On paper, the mean of the squares less the square of the mean is the variance. Here both are near "
                  "10¹⁴, and are rounded before they are subtracted.")
def mean_of_squares(x, weight, bias):
    mean = x.mean(axis=-1, keepdims=True)
    s = np.sqrt((x ** 2).mean(axis=-1, keepdims=True) - mean ** 2 + 1e-5)
    return (x - mean) / s * weight + bias
