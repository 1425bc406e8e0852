"""Does it look into the future?

Write `check_causal(f)`. f is a function from a sequence to a sequence, on arrays: x (L, E) -> y (L, E), of any length
L ≥ 1 and any width. What it computes inside is not known: it may be an attention, a mean, or anything else. Your check
must raise an AssertionError if any row of y depends on a later row of x, and accept f if none does. Rounding may
differ: f is in float64, and 1e-8 is a fair tolerance for numbers of ordinary size.
"""

import numpy as np

from tinygrad_attn.learn import Catch

exercise = Catch(
    "check_causal",
    starter="""
import numpy as np


def check_causal(f):
    x = np.random.default_rng(0).normal(size=(8, 3))
    changed = x.copy()
    changed[7] += 1                                         # another last word
    assert np.allclose(f(changed)[0], f(x)[0])              # the first answer stays
""",
    hints=["Tutorial 07 changed the future and looked at the past. Where does the future begin? Is one place enough?",
           "For each place t: change all that comes from t on, and compare all the rows before t.",
           "Change it by a lot, not by a little, and differently in each cell: f may count, round, or compare."],
    too_strict="Something right was rejected. Are you comparing within a tolerance, with numbers of ordinary size? May "
               "row t itself change if word t does?")


def attend(x, mask, late=False):
    scores = x @ x.T / np.sqrt(x.shape[-1])
    scores = scores if late else np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) * mask @ x


@exercise.sound
def running_mean(x):
    """the mean of the words so far"""
    return np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None]


@exercise.sound
def causal_attention(x):
    """self-attention with a causal mask: later words have weight 0"""
    return attend(x, np.tri(len(x), dtype=bool))


@exercise.sound
def running_sum(x):
    """the sum of the words so far, as the total minus what comes later: that cancels, to rounding"""
    total = x.sum(axis=0)
    return np.array([total - x[i + 1:].sum(axis=0) for i in range(len(x))])


@exercise.sound
def word_by_word(x):
    """each word by itself"""
    return np.tanh(x) + 1


@exercise.solution
def check_causal(f):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3))
    for t in range(1, 8):
        changed = x.copy()
        changed[t:] = 3 * rng.normal(size=(8 - t, 3))
        assert np.allclose(f(changed)[:t], f(x)[:t], atol=1e-8)


@exercise.mutant("One adds the next word to each. Which rows see the word that you change?")
def next_word(x):
    return x + np.vstack([x[1:], np.zeros_like(x[:1])])


@exercise.mutant("One adds the word after next, and does not see the next one at all. Does your check look further "
                 "than one place back?")
def after_next(x):
    y = x.copy()
    y[:-2] += x[2:]
    return y


@exercise.mutant("One subtracts the mean of the whole sequence. Each row depends a little on all words; what tolerance "
                 "do you have, and which numbers?")
def centred(x):
    return x - x.mean(axis=0)


@exercise.mutant("One divides by the standard deviation over the sequence. It does not change if all words are moved "
                 "alike.")
def normalised(x):
    return x / (x.std(axis=0) + 1e-5)


@exercise.mutant("In one, the last row but one sees the last word, and nothing else is wrong. Is that place among "
                 "those you look at?")
def at_the_end(x):
    y = np.tanh(x)
    y[-2:-1] += x[-1:]
    return y


@exercise.mutant("In one, the first row sees the second word, and nothing else is wrong. Is that place among those you "
                 "look at?")
def at_the_beginning(x):
    y = np.tanh(x)
    y[:1] += x[1:2]
    return y


@exercise.mutant("One counts the positive numbers that are still to come. A small change, or one that leaves all signs "
                 "as they are, is not seen by a count.")
def counting(x):
    positive = (x > 0).astype(float)
    return x + positive[::-1].cumsum(axis=0)[::-1] - positive


@exercise.mutant("One is an attention that sets forbidden weights to 0 after the softmax. Where is the future left in "
                 "it?")
def masked_too_late(x):
    return attend(x, np.tri(len(x), dtype=bool), late=True)


def past_moves(f, t, rows, change, compare=np.allclose):
    """Whether rows of the answer stay as they are when the words from t on change."""
    x = np.random.default_rng(0).normal(size=(8, 3))
    changed = x.copy()
    changed[t:] = change(x[t:])
    return not compare(f(changed)[rows], f(x)[rows])


def redrawn(x):
    return np.random.default_rng(1).normal(size=x.shape)


@exercise.mistake("You change the last word only. A row that sees some other later word goes unnoticed.")
def last_word(f):
    assert not past_moves(f, 7, slice(0, 7), redrawn)


@exercise.mistake("The future begins at one place only in your check. A row that looks ahead, but not across that "
                  "place, goes unnoticed.")
def half(f):
    assert not past_moves(f, 4, slice(0, 4), redrawn)


@exercise.mistake("What if f counts, rounds or compares? Is your change large enough, and does it turn any sign round?")
def a_little(f):
    assert not any(past_moves(f, t, slice(0, t), lambda x: x + 1e-3 * redrawn(x)) for t in range(1, 8))


@exercise.mistake("You look at the first row only. The others have a future, too.")
def first_row(f):
    assert not past_moves(f, 1, slice(0, 1), redrawn)


@exercise.mistake("Two right ways of computing it differ in the last digits, also if something cancels; `==` sees "
                  "that.")
def exact(f):
    assert not any(past_moves(f, t, slice(0, t), redrawn, np.array_equal) for t in range(1, 8))


@exercise.mistake("A right attention and a right sum are rejected. Is there NaN in your future? 0 · NaN is NaN. Or do "
                  "you compare by `==`? Another length, another order of adding: other last digits.")
def poisoned(f):
    assert not any(past_moves(f, t, slice(0, t), lambda x: np.nan * x) for t in range(1, 8))
