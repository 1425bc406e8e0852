"""Where a token stands. Attention itself does not see it: shuffle keys and values together, and the answer is the same.

Four ways to tell it. Added to the embedding: a table of sines, or a table that is learned. Inside attention: queries
and keys turned by an angle that grows with the position, so that their product depends on the distance alone, or a
penalty on the scores that grows with the distance. `start` is the position of the first token, for decoding with a
cache, where the tokens before it were seen earlier.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ops import concatenate, stack
from .layers import floats, size
from .module import Module, Parameter

LAYOUTS = ("interleaved", "half_split")


def angles(length: int, width: int, *, start: int = 0, base: float = 10000.0) -> np.ndarray:
    """θ = position · base^(−2i / width), (length, width / 2): each pair of features turns at a speed of its own."""
    return np.arange(start, start + length)[:, None] * base ** (-np.arange(0, width, 2) / width)


def _even(owner: str, width: Any) -> int:
    if size(owner, "width", width) % 2:
        raise ValueError(f"{owner}: width {width} is odd; features go in pairs, a sine and a cosine: take an even one")
    return int(width)


def sinusoids(length: int, width: int, *, start: int = 0) -> np.ndarray:
    """PE[p, 2i] = sin(p / 10000^(2i/width)), PE[p, 2i+1] = cos of the same: (length, width).

    The product of two rows depends on their distance alone. An odd width is a ValueError. (Vaswani et al. 2017, §3.5.)

    >>> sinusoids(2, 4).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    theta = angles(length, _even("sinusoids", width), start=start)
    return np.stack([np.sin(theta), np.cos(theta)], axis=-1).reshape(length, width)


def rotate(x: Any, *, layout: str, start: int = 0, base: float = 10000.0) -> Any:
    """Turn each pair of features by its angle at each position: (..., L, D) -> (..., L, D).

    (x₁, x₂) becomes (x₁ cos θ − x₂ sin θ, x₁ sin θ + x₂ cos θ). Of a query at m and a key at n so turned, the product
    depends on m − n alone, and lengths stay. Which features are a pair is a matter of convention, and weights trained
    with one do not work with the other: "interleaved" pairs 2i with 2i + 1, as the paper does, "half_split" i with
    i + D/2, as GPT-NeoX and LLaMA in Hugging Face's form do. An odd D is a ValueError. (Su et al. 2021.)

    >>> rotate(np.array([[1.0, 0.0], [1.0, 0.0]]), layout="interleaved").round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    if layout not in LAYOUTS:
        raise ValueError(f"rotate: layout={layout!r}; it is one of {', '.join(LAYOUTS)}")
    if not isinstance(base, (int, float, np.number)) or not 0 < base < math.inf:
        raise ValueError(f"rotate: base={base!r}; it must be a number above 0")
    x = floats(x)
    if x.ndim < 2:
        raise ShapeError(f"rotate: x {x.shape}; it must be (..., L, D), positions and features")
    L, D = x.shape[-2:]
    theta = angles(L, _even("rotate", D), start=start, base=base)
    cos, sin = np.cos(theta).astype(x.dtype), np.sin(theta).astype(x.dtype)             # (L, D/2)
    if layout == "interleaved":
        first, second = x[..., 0::2], x[..., 1::2]
        return stack([first * cos - second * sin, first * sin + second * cos], axis=-1).reshape(x.shape)
    first, second = x[..., :D // 2], x[..., D // 2:]
    return concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """2^(−8/H), 2^(−16/H), … 2^−8, one for each head; if H is no power of 2, those of the power below, and between
    them every second one of the power above, as the authors' code has it. (Press et al. 2022.)

    >>> alibi_slopes(4)
    array([0.25      , 0.0625    , 0.015625  , 0.00390625])
    """
    H = size("alibi_slopes", "num_heads", num_heads)
    below = 2 ** (H.bit_length() - 1)
    slopes = 2.0 ** (-8 / below * np.arange(1, below + 1))
    between = 2.0 ** (-8 / (2 * below) * np.arange(1, 2 * below + 1, 2))
    return np.concatenate([slopes, between])[:H]


def alibi_bias(num_heads: int, L: int, S: int | None = None) -> np.ndarray:
    """−slope · |distance|, (H, L, S), to be added to the scores: the last query stands with the last key.

    What is far counts less, at a rate of its own in each head, also at distances that training never saw.

    >>> alibi_bias(2, 2)[0]
    array([[ 0.    , -0.0625],
           [-0.0625,  0.    ]])
    """
    S = L if S is None else S
    distance = np.abs(np.arange(S - L, S)[:, None] - np.arange(S))                      # (L, S)
    return alibi_slopes(num_heads)[:, None, None] * -distance


class SinusoidalPositions(Module):
    """x + scale · PE: (..., L, width) -> the same; nothing to learn, and no length too long.

    The sinusoids have size 1; `scale` makes them smaller where what they are added to is, which they would drown.

    >>> SinusoidalPositions(4)(np.zeros((1, 2, 4)))[0, 1].round(4)
    array([0.8415, 0.5403, 0.01  , 1.    ])
    """

    def __init__(self, width: int, *, scale: float = 1.0) -> None:
        self.width, self.scale = _even("SinusoidalPositions", width), float(scale)

    def forward(self, x: Any, start: int = 0) -> Any:
        x = _checked("SinusoidalPositions", x, self.width)
        return x + (self.scale * sinusoids(x.shape[-2], self.width, start=start)).astype(x.dtype)

    def facts(self) -> str:
        return f"{self.width}" + ("" if self.scale == 1 else f", scale={self.scale:g}")


class LearnedPositions(Module):
    """x + weight[positions]: (..., L, width) -> the same, for L up to `max_len`; weight (max_len, width).

    The table starts normal with standard deviation 0.02, as GPT-2's. A longer sequence is a ShapeError.
    (Gehring et al. 2017.)

    >>> LearnedPositions(8, 4, rng=0)(np.zeros((1, 2, 4))).shape
    (1, 2, 4)
    """

    def __init__(self, max_len: int, width: int, *, dtype: Any = None, rng: Any = None) -> None:
        shape = size("LearnedPositions", "max_len", max_len), size("LearnedPositions", "width", width)
        self.weight = Parameter(np.random.default_rng(rng).normal(0, 0.02, shape), dtype=dtype or np.float64)

    def forward(self, x: Any, start: int = 0) -> Any:
        max_len, width = self.weight.shape
        x = _checked("LearnedPositions", x, width)
        L = x.shape[-2]
        if start < 0:
            raise ValueError(f"LearnedPositions: start={start}; the first position is 0")
        if start + L > max_len:
            raise ShapeError(f"LearnedPositions: {start + L} positions, but there are {max_len}; shorten the sequence, "
                             "or make more with max_len")
        return x + self.weight[start:start + L]

    def facts(self) -> str:
        return ", ".join(map(str, self.weight.shape))


class Rotary(Module):
    """`rotate` with its options, to be given to attention, which turns queries and keys (but not values) with it.

    >>> Rotary(layout="half_split")
    Rotary(half_split, base=10000)
    """

    def __init__(self, *, layout: str = "interleaved", base: float = 10000.0) -> None:
        rotate(np.zeros((1, 2)), layout=layout, base=base)      # what it cannot do is an error now
        self.layout, self.base = layout, base

    def forward(self, x: Any, start: int = 0) -> Any:
        return rotate(x, layout=self.layout, start=start, base=self.base)

    def facts(self) -> str:
        return f"{self.layout}, base={self.base:g}"


class ALiBi(Module):
    """`alibi_bias`, to be given to attention, which adds it to its scores.

    >>> ALiBi()(2, 1, 3)[:, 0].round(4)
    array([[-0.125 , -0.0625,  0.    ],
           [-0.0078, -0.0039,  0.    ]])
    """

    def forward(self, num_heads: int, L: int, S: int) -> np.ndarray:
        return alibi_bias(num_heads, L, S)


def _checked(owner: str, x: Any, width: int) -> Any:
    x = floats(x)
    if x.ndim < 2 or x.shape[-1] != width:
        raise ShapeError(f"{owner}: x {x.shape}; it must be (..., L, {width})")
    return x
