"""What is left after the last word?

A sentence of 5 words is filled up with padding to 8. In its self-attention, L = S = 8, the mask is the causal mask
*and* the padding mask, which goes along the keys. How many of the 64 weights are not zero?
"""

import numpy as np

from tinygrad_attn import attention, causal_mask, padding_mask
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number
""",
    hints=["Go row by row. How many keys does query 0 see, and query 4? Where does the padding begin?",
           "The queries 5, 6 and 7 stand at padding. Does the mask forbid them to ask?"])


@exercise.solution
def answer():
    x = np.random.default_rng(0).normal(size=(8, 4))
    _, weights = attention(x, x, x, causal_mask(8) & padding_mask([5], 8)[0, 0])
    return int((weights > 0).sum())


@exercise.mistake("The queries at the padding were left out. The mask goes along the keys: what do those queries see?")
def without_padded_queries():
    return 15


@exercise.mistake("That is the triangle alone. Which of its cells have padding as their key?")
def causal_alone():
    return 36


@exercise.mistake("That is the padding mask alone. Which of these keys are in the future of their query?")
def padding_alone():
    return 40


@exercise.mistake("Is it 5 times 5, the words among themselves? Some of these cells are in the future, and the "
                  "queries at the padding ask as well. Or the triangle without its diagonal? A word may look at "
                  "itself.")
def strict():
    return 25


@exercise.mistake("That is every weight there is. A forbidden key has the weight 0.")
def all_of_them():
    return 64
