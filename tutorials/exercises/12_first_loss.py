"""The first loss of a model that knows nothing

A model predicts the next character of a text with 65 characters, and is trained by cross-entropy, −ln of the
probability of the right one. Its last layer starts with all weights and biases 0, so that all its logits are 0. What is
the loss of the first batch? Two decimal places are enough.
"""

import numpy as np

from tinygrad_attn import functional as F
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a number
""",
    hints=["What is the softmax of 65 logits that are all equal?",
           "The loss is −ln of one of those 65 equal probabilities, whichever character was right. NumPy's `log` is "
           "ln."],
    tolerance=0.002)


@exercise.solution
def answer():
    targets = np.random.default_rng(0).integers(65, size=(4, 10))
    return float(F.cross_entropy(np.zeros((4, 10, 65)), targets))


@exercise.mistake("That is the logarithm to base 2, which gives the loss in bits. Which one does the lesson take?")
def in_bits():
    return float(np.log2(65))


@exercise.mistake("That is the logarithm to base 10. Which base does the cross-entropy have?")
def in_digits():
    return float(np.log10(65))


@exercise.mistake("Equal logits are equal probabilities. How likely does such a model think the right character is?")
def nothing():
    return 0.0


@exercise.mistake("That is the probability of the right character. What does the loss do with it?")
def probability():
    return 1 / 65


@exercise.mistake("Look at the sign: a probability is below 1, so what is the sign of its logarithm, and of the loss?")
def negative():
    return -float(np.log(65))
