"""How many parameters do 12 heads have?

`nn.MultiHeadAttention(96, 12, bias=False)` has 12 heads in a model of width 96. How many numbers does it learn? Count
the matrices W_q, W_k, W_v of all heads, and W_o; there are no bias vectors.
"""

from tinygrad_attn import nn
from tinygrad_attn.learn import Predict

exercise = Predict(
    starter="""
answer = ...        # a whole number
""",
    hints=["How wide is one head? Its matrix W_q leads from the width of the model to the width of the head.",
           "Count W_q of one head, then of all heads. How does the number of heads enter the product?"])


@exercise.solution
def answer():
    return sum(parameter.size for parameter in nn.MultiHeadAttention(96, 12, bias=False, rng=0).parameters())


@exercise.mistake("Three kinds of matrices make queries, keys and values. What comes after the heads are set side by "
                  "side?")
def without_w_o():
    return 3 * 96 * 96


@exercise.mistake("You gave each head matrices of the full width. How many features does one head have, if all heads "
                  "side by side have the width of the model?")
def full_width_heads():
    return 12 * 3 * 96 * 96 + 96 * 96


@exercise.mistake("You gave each of the heads all four matrices of the full width. How wide is a head, and how "
                  "often is there a W_o?")
def twelve_layers():
    return 12 * 4 * 96 * 96


@exercise.mistake("The matrices of one head are counted, and W_o. How many heads have matrices of their own?")
def one_head():
    return 3 * 96 * 8 + 96 * 96


@exercise.mistake("W_o leads from all heads side by side back to the model. It is one matrix, and its width is not "
                  "that of one head.")
def narrow_w_o():
    return 3 * 96 * 96 + 8 * 96


@exercise.mistake("There is a bias in your count. This layer was made without.")
def with_bias():
    return 4 * 96 * 96 + 4 * 96
