"""Cross-entropy from logits

Write `cross_entropy(logits, targets)`: logits (..., C), integer targets (...) -> one number, the mean over all places
of

    −ln softmax(logits)[target]  =  ln Σⱼ exp(logitsⱼ) − logits[target]

The softmax is along the last axis, and each target is the number of the right class, 0 … C − 1. The loss must be right
for logits of ±1000, too.
"""

import numpy as np

from tinygrad_attn.learn import Write

exercise = Write(
    "cross_entropy",
    starter="""
import numpy as np


def cross_entropy(logits, targets):
    \"\"\"(..., C), integers (...) -> a number\"\"\"
    ...
""",
    hints=["For one row, logits[target] is an index. For many, `np.take_along_axis(logits, targets[..., None], "
           "axis=-1)` picks one number from each.",
           "Work with the right-hand form, in which no logarithm of a probability is taken. What may be subtracted "
           "from all logits of a row without changing the loss?"])


@exercise.solution
def cross_entropy(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(z).sum(axis=-1)) - right).mean()


@exercise.check("one place", "Two equal logits are two probabilities of ½, and the loss is ln 2 ≈ 0.693.")
def one(rng):
    yield np.array([[0.0, 0.0]]), np.array([0])
    yield np.array([[0.0, 1.0, 2.0]]), np.array([2])
    yield np.array([[0.0, 1.0, 2.0]]), np.array([0])


@exercise.check("many places", "One number comes back: the mean over all places, each with the target of its own.")
def many(rng):
    for shape in ((2, 3), (3, 2), (4, 3)):
        yield rng.normal(size=shape), rng.integers(shape[-1], size=shape[:-1])


@exercise.check("places along several axes, or along none",
                "The places may be a table, such as (B, L), or have more axes: all but the "
                "last axis of the logits. For a single place none is left.")
def tables(rng):
    for shape in ((1, 2, 2), (2, 3, 4), (2, 1, 2, 3)):
        yield rng.normal(size=shape), rng.integers(shape[-1], size=shape[:-1])
    yield np.array([0.0, 1.0, 2.0]), np.array(2)                # a single place, and no axis for it


@exercise.check("large logits", "exp(1000) overflows, and exp(−1000) is 0. The loss is finite all the same.")
def large(rng):
    yield np.array([[1000.0, 1000.0]]), np.array([1])
    yield np.array([[-1000.0, -1000.0]]), np.array([1])
    yield np.array([[1000.0, 0.0]]), np.array([0])


@exercise.check("a right answer thought impossible",
                "The probability of the right class rounds to 0, and the loss is not "
                "infinite: about how far apart are the logits?")
def impossible(rng):
    yield np.array([[0.0, 1000.0]]), np.array([0])
    yield np.array([[0.0, 1000.0], [-800.0, 800.0]]), np.array([1, 0])


@exercise.check("rows far apart", "Every row has a largest logit of its own.")
def apart(rng):
    yield np.array([[2000.0, 1999.0], [-2000.0, -1999.0]]), np.array([0, 1])


@exercise.mistake("Right for these logits. Now exp(1000): which intermediate result is infinite, and which 0?")
def no_maximum(logits, targets):
    right = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(logits).sum(axis=-1)) - right).mean()


@exercise.mistake("You take the logarithm of the softmax. Where a probability has rounded to 0, that is −∞. Which form "
                  "has no such logarithm?")
def log_of_softmax(logits, targets):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return -np.log(np.take_along_axis(p, targets[..., None], axis=-1)).mean()


@exercise.mistake("With several places you add the losses up. What does the statement do with them?")
def summed(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(z).sum(axis=-1)) - right).sum()


@exercise.mistake("The sign: a loss is large when the right class is unlikely. Is yours?")
def wrong_sign(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return -(np.log(np.exp(z).sum(axis=-1)) - right).mean()


@exercise.mistake("That loss falls when the right class is likely, but by 1 − p. Which function of p does the "
                  "statement have?")
def one_minus_p(logits, targets):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return (1 - np.take_along_axis(p, targets[..., None], axis=-1)).mean()


@exercise.mistake("One number is subtracted from all rows. In a row far below that, every exponential is 0, and so is "
                  "their sum.")
def one_maximum(logits, targets):
    z = logits - logits.max()
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(z).sum(axis=-1)) - right).mean()


@exercise.mistake("An index such as [:, targets] picks, for each row, the targets of all rows. How is each row paired "
                  "with its own?")
def all_pairs(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    return (np.log(np.exp(z).sum(axis=-1, keepdims=True)) - z)[:, targets].mean()


@exercise.mistake("Your index goes through the places along one axis. With a table of places it pairs the wrong ones, "
                  "or fails. Could the places be put into one row first?")
def one_axis(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return -logp[np.arange(len(targets)), targets].mean()


@exercise.mistake("There is one loss for each place. The statement asks for one number: what does it do with them?")
def each_place(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return np.log(np.exp(z).sum(axis=-1)) - right


@exercise.mistake("Your mean goes over the classes, too, most of which add 0. Over what does the statement take it?")
def over_the_classes(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return -(np.eye(logits.shape[-1])[targets] * logp).mean()


@exercise.mistake("The largest logit was subtracted in the sum. The loss stays the same only if it is subtracted in "
                  "both terms.")
def one_term_shifted(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(z).sum(axis=-1)) - right).mean()


@exercise.mistake("Indexed by the targets alone, the table gives whole rows. Which axis do the classes stand along?")
def rows_by_target(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    return (np.log(np.exp(z).sum(axis=-1, keepdims=True)) - z)[targets].mean()


@exercise.mistake("A small number under the logarithm keeps it finite, and wrong: no loss can then be larger than "
                  "about −ln of that number.")
def log_with_eps(logits, targets):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return -np.log(np.take_along_axis(p, targets[..., None], axis=-1) + 1e-12).mean()


@exercise.mistake("You divide the sum by the length of the first axis. How many places has a table of them?")
def by_the_first_axis(logits, targets):
    z = logits - logits.max(axis=-1, keepdims=True)
    right = np.take_along_axis(z, targets[..., None], axis=-1)[..., 0]
    return (np.log(np.exp(z).sum(axis=-1)) - right).sum() / len(logits)
