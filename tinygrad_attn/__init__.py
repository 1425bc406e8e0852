"""Understand attention by building it: reverse-mode automatic differentiation from scratch, on NumPy.

Read the source in this order: `errors.py`, `engine.py`, `ops.py`, `tensor.py`, `attention.py`, `functional.py`; then,
from layers to a GPT, `nn/`, `optim.py` and `serialize.py`.
"""

from importlib import import_module
from typing import Any

from . import functional
from .anomaly import detect_anomaly
from .attention import attention, causal_mask, multi_head_attention, padding_mask
from .derivatives import hessian, jacobian, jvp, vjp
from .differences import eps_curve
from .engine import enable_grad, grad, no_grad, primitive
from .errors import AnomalyError, GradcheckError, GraphError, GraphFreedError, NotDifferentiableError, ShapeError
from .gradcheck import gradcheck
from .ops import concatenate, einsum, log_softmax, logsumexp, maximum, minimum, softmax, stack, where
from .tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "AnomalyError", "GradcheckError", "GraphError", "GraphFreedError", "NotDifferentiableError", "ShapeError",
    "Tensor", "attention", "causal_mask", "concatenate", "detect_anomaly", "einsum", "enable_grad", "eps_curve",
    "functional", "grad", "gradcheck", "graph", "hessian", "jacobian", "jvp", "learn", "log_softmax", "logsumexp",
    "maximum", "minimum", "multi_head_attention", "nn", "no_grad", "optim", "padding_mask", "primitive", "saturation",
    "serialize", "softmax", "stack", "vjp", "where",
]


def __getattr__(name: str) -> Any:
    """Pictures and the laboratory are loaded when they are asked for: most programs do without them."""
    if name in ("graph", "learn", "nn", "optim", "saturation", "serialize"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
