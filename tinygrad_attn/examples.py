"""Small computations to look at: the worked example of the lessons, and the graphs that the command line draws.

Each function makes one, and returns what is to be drawn: a Tensor, or a `Graph`, where how it is drawn matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .attention import attention, multi_head_attention
from .graph import Graph, compare, draw
from .nn import TransformerEncoderLayer
from .ops import softmax
from .tensor import Tensor

# Self-attention of three words, each a row of X.
X = [[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0]]
W_Q = [[0.1, 0.2, 0.0, 0.0], [0.0, 0.1, 0.3, 0.0], [0.1, 0.0, 0.0, 0.2], [0.0, 0.0, 0.2, 0.3]]
W_K = [[0.2, 0.0, 0.1, 0.0], [0.0, 0.1, 0.0, 0.3], [0.1, 0.0, 0.2, 0.0], [0.0, 0.2, 0.0, 0.1]]
W_V = [[0.0, 0.1, 0.0, 0.2], [0.2, 0.0, 0.2, 0.0], [0.0, 0.3, 0.1, 0.0], [0.1, 0.0, 0.0, 0.3]]


def leaf(data: object, name: str) -> Tensor:
    return Tensor(data, requires_grad=True, name=name)


def scalar() -> Tensor:
    """tanh(w x + b) · x: an expression of numbers, in which x has two uses."""
    x, w, b = leaf(2.0, "x"), leaf(-1.5, "w"), leaf(3.5, "b")
    y = (w * x + b).tanh() * x
    y.name = "y"
    return y


def self_attention_of_three_words() -> dict[str, Tensor]:
    """Everything named, so that its graph can be read."""
    x = Tensor(X, name="X")
    query, key, value = (x @ leaf(w, name) for w, name in ((W_Q, "W_q"), (W_K, "W_k"), (W_V, "W_v")))
    output, weights = attention(query, key, value, scale=Tensor(1 / math.sqrt(key.shape[-1]), name="1/√d_k"))
    assert weights.node is not None
    for tensor, name in ((query, "Q"), (key, "K"), (value, "V"), (weights.node.inputs[0], "scores"),
                         (weights, "weights"), (output, "output")):
        tensor.name = name
    return {"Q Kᵀ": query @ key.mT, "weights": weights, "output": output}


def three_words() -> Tensor:
    """Self-attention of three words, the worked example of the lessons."""
    return self_attention_of_three_words()["output"]


def heads(n: int = 8, length: int = 10, width: int = 64) -> Tensor:
    """Multi-head attention: 8 heads over 10 positions of width 64."""
    rng, each = np.random.default_rng(0), width // n
    x = Tensor(rng.normal(size=(length, width)), name="X")
    w_q, w_k, w_v = (leaf(rng.normal(size=(n, width, each)) / math.sqrt(width), name) for name in ("W_q", "W_k", "W_v"))
    output = multi_head_attention(x, w_q, w_k, w_v, leaf(rng.normal(size=(width, width)) / math.sqrt(width), "W_o"), n)
    output.name = "output"
    return output


def transformer(length: int = 10, width: int = 64) -> Tensor:
    """A pre-norm transformer layer: 4 heads over 10 positions of width 64, with its parameters' names."""
    layer = TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, norm_first=True, rng=0)
    for name, parameter in layer.named_parameters():
        parameter.name = name
    y = layer(leaf(np.random.default_rng(0).normal(size=(1, length, width)), "x"))
    y.name = "y"
    return y


def vanishing(d_k: int = 1024, n_keys: int = 64, draws: int = 101) -> Graph:
    """One query, 64 keys, d_k = 1024: where the gradient dies without the division by √d_k.

    Of 101 draws of standard normal queries, keys and values, it is the one in the middle: with the median of the norms
    of the gradient at the unscaled scores.
    """
    def drawn(seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng([0, seed])
        return [rng.normal(size=shape) for shape in ((1, d_k), (n_keys, d_k), (n_keys, 1))]

    def at_scores(seed: int) -> float:
        query, key, value = drawn(seed)
        p = softmax(query @ key.T)
        return float(np.linalg.norm(p * (value.T - p @ value)))

    def graph(scale: float) -> Graph:
        query, key, value = (leaf(data, name) for data, name in zip(drawn(middle), ("query", "key", "value")))
        return draw(attention(query, key, value, scale=scale)[0], grads=True)

    middle = sorted(range(draws), key=at_scores)[draws // 2]
    return compare(graph(1 / math.sqrt(d_k)), graph(1.0), titles=("Q Kᵀ / √d_k", "Q Kᵀ"))


EXAMPLES: dict[str, Callable[[], Tensor | Graph]] = {
    "scalar": scalar, "attention": three_words, "heads": heads, "transformer": transformer,
    "vanishing": vanishing}
