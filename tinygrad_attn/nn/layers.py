"""Layers that transformers are made of, with PyTorch's parameter names, layouts and starts.

Each takes `dtype`, float64 if none is given, and where something is drawn `rng`, a `np.random.Generator` or a seed.
Without `rng` each draws afresh; one generator handed to all of them makes a network that can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import functional as F
from .. import kernels
from ..engine import Value, operand
from ..errors import ShapeError
from ..fused import fused
from ..ops import where
from .module import Module, Parameter


def uniform(shape: tuple[int, ...], bound: float, dtype: Any, rng: Any) -> Parameter:
    """A parameter drawn evenly from −bound … bound."""
    return Parameter(np.random.default_rng(rng).uniform(-bound, bound, shape), dtype=dtype or np.float64)


def filled(shape: tuple[int, ...], value: float, dtype: Any) -> Parameter:
    return Parameter(np.full(shape, value), dtype=dtype or np.float64)


def size(owner: str, name: str, n: Any) -> int:
    """A width or a number, which must be an integer of at least 1."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"{owner}: {name}={n!r}; it must be a whole number of at least 1")
    return int(n)


def probability(owner: str, p: Any) -> float:
    if not isinstance(p, (int, float, np.number)) or not 0 <= p < 1:
        raise ValueError(f"{owner}: dropout {p!r}; the probability must be at least 0 and below 1")
    return float(p)


def array(x: Any) -> Any:
    """A list as an array; Tensors and arrays as they are."""
    return x if isinstance(x, (Value, np.ndarray)) else np.asarray(operand(x))


def floats(x: Any) -> Any:
    """Integers as floats, to which something can be added that is no integer."""
    x = array(x)
    return x if x.dtype.kind == "f" else x.astype(np.float64)


class Linear(Module):
    """x Wᵀ + b: (..., in_features) -> (..., out_features), weight (out, in), bias (out,).

    Both start evenly drawn from ±1/√in_features, which keeps the size of activations alike whatever the width.

    >>> layer = Linear(3, 2, rng=0)
    >>> layer
    Linear(3, 2, 8 parameters)
    >>> layer(np.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True, dtype: Any = None,
                 rng: Any = None) -> None:
        n, m = size("Linear", "in_features", in_features), size("Linear", "out_features", out_features)
        rng = np.random.default_rng(rng)
        self.weight = uniform((m, n), 1 / math.sqrt(n), dtype, rng)
        self.bias = uniform((m,), 1 / math.sqrt(n), dtype, rng) if bias else None

    def forward(self, x: Any) -> Any:
        x = array(x)
        if x.shape[-1:] != self.weight.shape[1:]:
            raise ShapeError(f"Linear: x {x.shape}; its last axis must be {self.weight.shape[1]}, in_features")
        return F.linear(x, self.weight, self.bias)

    def facts(self) -> str:
        out_features, in_features = self.weight.shape
        return f"{in_features}, {out_features}" + ("" if self.bias is not None else ", bias=False")


class Embedding(Module):
    """weight[ids], a vector for each number: integers (...) -> (..., embedding_dim); weight (num_embeddings, dim).

    It makes a token something that can be learned. Rows start standard normal; the row `padding_idx` starts at 0 and
    gets no gradient. An id that is no row is an IndexError, and −1 is none; an id that is no integer a TypeError.

    >>> Embedding(10, 4, rng=0)([[1, 2, 3]]).shape
    (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, padding_idx: int | None = None, dtype: Any = None,
                 rng: Any = None) -> None:
        n, m = (size("Embedding", "num_embeddings", num_embeddings), size("Embedding", "embedding_dim", embedding_dim))
        if padding_idx is not None and (isinstance(padding_idx, bool) or
                                        not isinstance(padding_idx, (int, np.integer)) or not 0 <= padding_idx < n):
            raise ValueError(f"Embedding: padding_idx={padding_idx!r}; it must be one of the rows 0 … {n - 1}")
        rows = np.random.default_rng(rng).standard_normal((n, m))
        if padding_idx is not None:
            rows[padding_idx] = 0
        self.weight, self.padding_idx = Parameter(rows, dtype=dtype or np.float64), padding_idx

    def forward(self, ids: Any) -> Any:
        ids, n = np.asarray(operand(ids)), self.weight.shape[0]
        if ids.dtype.kind not in "iu":
            raise TypeError(f"Embedding: ids are row numbers, integers, not {ids.dtype}")
        if ((ids < 0) | (ids >= n)).any():
            raise IndexError(f"Embedding: id {ids[(ids < 0) | (ids >= n)][0]} is not among the {n} rows 0 … {n - 1}")
        rows = rows_at(self.weight, ids)
        return rows if self.padding_idx is None else where((ids == self.padding_idx)[..., None], rows.detach(), rows)

    def facts(self) -> str:
        return ", ".join(map(str, self.weight.shape)) + (
            "" if self.padding_idx is None else f", padding_idx={self.padding_idx}")


@fused(kernels.embedding)
def rows_at(weight: Any, ids: Any) -> Any:
    """weight[ids]: (n, E), integers (...) -> (..., E)."""
    return weight[ids]


class LayerNorm(Module):
    """(x − mean) / √(var + eps) · weight + bias over the last axis, whose length is `normalized_shape`.

    It keeps the size of activations the same at any depth. `elementwise_affine=False` has neither weight nor bias.
    (Ba et al. 2016.)

    >>> LayerNorm(3)(np.array([0.0, 0.0, 3.0])).numpy().round(4)
    array([-0.7071, -0.7071,  1.4142])
    """

    def __init__(self, normalized_shape: int, eps: float = 1e-5, *, elementwise_affine: bool = True, bias: bool = True,
                 dtype: Any = None) -> None:
        self.n, self.eps = _last_axis("LayerNorm", normalized_shape), _eps("LayerNorm", eps)
        self.weight = filled((self.n,), 1, dtype) if elementwise_affine else None
        self.bias = filled((self.n,), 0, dtype) if elementwise_affine and bias else None

    def forward(self, x: Any) -> Any:
        x = _with_last_axis("LayerNorm", x, self.n)
        return F.layer_norm(x, self.weight, self.bias, self.eps)

    def facts(self) -> str:
        return f"{self.n}, eps={self.eps:g}"


class RMSNorm(Module):
    """x / √(mean x² + eps) · weight over the last axis; `eps=None` is the machine epsilon of x's dtype.

    A layer norm without the mean, which costs less and does as well. (Zhang & Sennrich 2019.)

    >>> RMSNorm(4)(np.array([3.0, 4.0, 0.0, 0.0])).numpy().round(4)
    array([1.2, 1.6, 0. , 0. ])
    """

    def __init__(self, normalized_shape: int, eps: float | None = None, *, elementwise_affine: bool = True,
                 dtype: Any = None) -> None:
        self.n = _last_axis("RMSNorm", normalized_shape)
        self.eps = None if eps is None else _eps("RMSNorm", eps)
        self.weight = filled((self.n,), 1, dtype) if elementwise_affine else None

    def forward(self, x: Any) -> Any:
        x = _with_last_axis("RMSNorm", x, self.n)
        return F.rms_norm(x, self.weight, self.eps)

    def facts(self) -> str:
        return f"{self.n}" + ("" if self.eps is None else f", eps={self.eps:g}")


def _last_axis(owner: str, shape: Any) -> int:
    """The one length in `normalized_shape`; PyTorch's may have several axes."""
    if isinstance(shape, (tuple, list)):
        if len(shape) != 1:
            raise ValueError(f"{owner}: normalized_shape={shape!r}; it normalises the last axis alone: give its length")
        (shape,) = shape
    return size(owner, "normalized_shape", shape)


def _eps(owner: str, eps: float) -> float:
    if not isinstance(eps, (int, float, np.number)) or not 0 <= eps < math.inf:
        raise ValueError(f"{owner}: eps={eps!r}; it keeps a root from 0, and must be a number of 0 or more")
    return float(eps)


def _with_last_axis(owner: str, x: Any, n: int) -> Any:
    x = floats(x)
    if x.shape[-1:] != (n,):
        raise ShapeError(f"{owner}: x {x.shape}; its last axis must be {n}, normalized_shape")
    return x


class Dropout(Module):
    """In training, each element is zero with probability p, and the others are divided by 1 − p; in evaluation x.

    No part can then rely on another being there. (Srivastava et al. 2014.)

    >>> Dropout(0.5, rng=0)(np.ones(4)), Dropout(0.5).eval()(np.ones(4))
    (array([2., 0., 0., 0.]), array([1., 1., 1., 1.]))
    """

    def __init__(self, p: float = 0.5, *, rng: Any = None) -> None:
        self.p, self.rng = probability("Dropout", p), np.random.default_rng(rng)

    def forward(self, x: Any) -> Any:
        return F.dropout(array(x), self.p, training=self.training, rng=self.rng)

    def facts(self) -> str:
        return f"{self.p:g}"


class Sequential(Module):
    """Modules one after the other; `model[0]` is the first.

    >>> Sequential(Linear(3, 8, rng=0), ReLU(), Linear(8, 1, rng=1))
    Sequential(41 parameters)
      0: Linear(3, 8, 32 parameters)
      1: ReLU()
      2: Linear(8, 1, 9 parameters)
    """

    def __init__(self, *modules: Module) -> None:
        for i, module in enumerate(modules):
            if not isinstance(module, Module):
                raise TypeError(f"Sequential: {module!r} is no module; for a function, write a Module whose forward "
                                "calls it")
            setattr(self, str(i), module)       # so that its parameters are "0.weight", as PyTorch's are

    def _modules(self) -> list[Module]:
        return [item for key, item in vars(self).items() if key.isdigit()]

    def forward(self, x: Any) -> Any:
        for module in self._modules():
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(self._modules())

    def __getitem__(self, index: int) -> Module:
        return self._modules()[index]


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Any) -> Any:
        return F.relu(array(x))


class GELU(Module):
    """x Φ(x), Φ the normal distribution; "tanh" is the approximation that GPT-2 has. (Hendrycks & Gimpel 2016.)"""

    def __init__(self, approximate: str = "none") -> None:
        F.gelu(np.zeros(1), approximate)        # an unknown one is an error now
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        return F.gelu(floats(x), self.approximate)

    def facts(self) -> str:
        return "" if self.approximate == "none" else f"{self.approximate!r}"


class SiLU(Module):
    """x σ(x), a smooth relu. (Elfwing et al. 2018.)"""

    def forward(self, x: Any) -> Any:
        return F.sigmoid(x := floats(x)) * x


class Tanh(Module):
    """tanh x"""

    def forward(self, x: Any) -> Any:
        return F.tanh(x)


class Sigmoid(Module):
    """1 / (1 + e⁻ˣ)"""

    def forward(self, x: Any) -> Any:
        return F.sigmoid(x)


ACTIVATIONS: dict[str, Callable[[], Module]] = {
    "relu": ReLU, "gelu": GELU, "gelu_tanh": partial(GELU, "tanh"), "silu": SiLU, "tanh": Tanh}


def activation_named(owner: str, named: Any) -> Any:
    """The activation of that name, or the function that was given."""
    if isinstance(named, str) and named in ACTIVATIONS:
        return ACTIVATIONS[named]()
    if not callable(named) or isinstance(named, type):
        raise ValueError(f"{owner}: activation={named!r}; it is {', '.join(ACTIVATIONS)}, or a function")
    return named
