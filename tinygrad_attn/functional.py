"""Floor 5. Compositions: what networks are made of, built from the ops below and nothing new.

The chain rule has their derivatives; `@fused` computes the same faster, as one op. All take arrays or Tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import kernels, ops
from .errors import ShapeError
from .fused import fused
from .grouped import scaled_dot_product_attention
from .losses import binary_cross_entropy_with_logits, cross_entropy, kl_div, mse_loss
from .ops import dropout, log_softmax, relu, sigmoid, softmax, softplus, tanh

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "dropout", "gelu", "kl_div", "layer_norm",
           "linear", "log_softmax", "mse_loss", "norm", "relu", "rms_norm", "scaled_dot_product_attention", "sigmoid",
           "softmax", "softplus", "tanh"]


@fused(kernels.linear)
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x Wᵀ + b: (..., in), (out, in), (out,) -> (..., out), the layout of PyTorch's weights."""
    out = ops.matmul(x, weight.mT)
    return out if bias is None else out + bias


@fused(kernels.gelu)
def gelu(x: Any, approximate: str = "none") -> Any:
    """x Φ(x), x times the probability that a standard normal is below it; "tanh" gives the paper's approximation.

    (Hendrycks & Gimpel 2016.)

    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'gelu: approximate={approximate!r}; it is "none" or "tanh"')
    wide = ops.at_least_single(x)
    phi = (ops.erf(wide / math.sqrt(2)) if approximate == "none" else
           tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)))
    return ops.narrow(0.5 * wide * (1 + phi), x)


@fused(kernels.layer_norm)
def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x − mean) / √(var + eps) · weight + bias, over the last axis, with the variance over n.

    It keeps the size of activations the same at any depth. (Ba et al. 2016.)

    >>> layer_norm(np.array([0.0, 0.0, 3.0])).round(4)
    array([-0.7071, -0.7071,  1.4142])
    """
    for name, w in (("weight", weight), ("bias", bias)):
        if w is not None and np.shape(w) != x.shape[-1:]:
            raise ShapeError(f"layer_norm: {name} has shape {np.shape(w)}, x {x.shape}; it needs {x.shape[-1:]}. "
                             "(There is no normalized_shape, as in PyTorch: it is the last axis)")
    wide = ops.at_least_single(x)
    out = (wide - wide.mean(axis=-1, keepdims=True)) / ops.sqrt(ops.var(wide, axis=-1, keepdims=True) + float(eps))
    out = ops.narrow(out, x)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def norm(x: Any, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """√Σ x², whose gradient at the zero vector, where it has a kink, is 0.

    >>> float(norm(np.array([3.0, 4.0])))
    5.0
    """
    wide = ops.at_least_single(x)
    squares = ops.sum(wide * wide, axis=axis, keepdims=keepdims)
    return ops.narrow(ops.where(squares > 0, ops.sqrt(ops.where(squares > 0, squares, 1)), 0), x)


def rms_norm(x: Any, weight: Any = None, eps: float | None = None) -> Any:
    """x / √(mean x² + eps) · weight, over the last axis: a layer norm that leaves the mean alone.

    `eps=None` is the machine epsilon of x's dtype, as in PyTorch. (Zhang & Sennrich 2019.)

    >>> rms_norm(np.array([3.0, 4.0, 0.0, 0.0]))
    array([1.2, 1.6, 0. , 0. ])
    """
    if weight is not None and np.shape(weight) != x.shape[-1:]:
        raise ShapeError(f"rms_norm: weight has shape {np.shape(weight)}, x {x.shape}; it needs {x.shape[-1:]}")
    wide = ops.at_least_single(x)
    eps = float(np.finfo(x.dtype).eps if eps is None else eps)
    out = ops.narrow(wide / ops.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps), x)
    return out if weight is None else out * weight
