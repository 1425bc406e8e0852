"""Which shape do the weights have?

A decoder looks at a source sentence: the queries are made from x, (2, 5, 12), and the keys and values from a context,
(2, 7, 12). That is a batch of 2, with 5 and 7 positions, in a model of width 12. There are 3 heads. Which shape has the
array of all weights, one table for each sequence and each head?
"""

import numpy as np

from tinygrad_attn import nn
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a tuple, such as (4, 3)
""",
    hints=["One table of weights has a row for each query. What has it a column for?",
           "The axes in front say of which sequence, and of which head, a table is. The batch comes first."])


@exercise.solution
def answer():
    _, weights = nn.MultiHeadAttention(12, 3, rng=0)(np.ones((2, 5, 12)), np.ones((2, 7, 12)))
    return weights.shape


@exercise.mistake("Each head has its own weights; that is what it is for. Where are they?")
def one_table():
    return (2, 5, 7)


@exercise.mistake("The softmax goes along the last axis, so that the weights of one query sum to 1. Whose axis is "
                  "last?")
def transposed():
    return (2, 3, 7, 5)


@exercise.mistake("Heads are split off behind the batch: when the head axis comes to the front, which axis does it "
                  "change places with?")
def heads_first():
    return (3, 2, 5, 7)


@exercise.mistake("That is the shape of the queries, or of the output of the heads. The weights come before the values "
                  "are met: what does a query have one weight for?")
def head_outputs():
    return (2, 3, 5, 4)


@exercise.mistake("The keys come from the context here, and not from x. How many are there?")
def self_attention():
    return (2, 3, 5, 5)


@exercise.mistake("This is not attention of the context to itself. From where do the queries come, and how many are "
                  "there?")
def context_to_itself():
    return (2, 3, 7, 7)


@exercise.mistake("The heads still stand behind the queries, where the cut has put them. Attention takes the last two "
                  "axes: which two make up one table?")
def heads_behind():
    return (2, 5, 3, 7)


@exercise.mistake("That is the output of the layer, after the heads are merged. The weights come before it, and there "
                  "are three tables for each sequence.")
def layer_output():
    return (2, 5, 12)
