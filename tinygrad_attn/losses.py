"""A side room on floor 4. Losses: how far an answer is from what it should be, as one number.

All are means unless `reduction` says "sum", or "none" for one loss each. Targets are constants where they are class
numbers, and may be differentiated where they are numbers. `functional` has these under the same names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import kernels, ops
from .engine import Value, operand
from .errors import ShapeError
from .fused import fused
from .ops import at_least_single, log, log_softmax, narrow, softplus, where


@fused(kernels.cross_entropy)
def cross_entropy(logits: Any, targets: Any, *, weight: Any = None, ignore_index: int = -100,
                  label_smoothing: float = 0.0, reduction: str = "mean") -> Any:
    """The mean of −log softmax(logits)[target]: logits (..., C), integer targets (...) -> ().

    It is the number of nats that the right answer came as a surprise; its gradient, softmax − one-hot, cannot vanish
    while the answer is wrong. Targets equal to `ignore_index` do not count; if none is left, the loss is 0 and so is
    its gradient. `weight` (C,), one for each class, makes the mean a weighted one. With `label_smoothing` ε, the target
    is 1 − ε of the class and ε of all classes alike. A target that is no class, or no integer, or in another shape, is
    an error that names it. (Szegedy et al. 2016, §7, for the smoothing.)

    >>> float(cross_entropy(np.zeros((2, 4)), [1, -100]).round(4))      # ln 4
    1.3863
    """
    if not logits.ndim:
        raise ShapeError("cross_entropy: logits are one number; they must be (..., C), a number for each class")
    targets, C = np.asarray(operand(targets)), logits.shape[-1]
    if targets.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: targets are class numbers, integers, not {targets.dtype}")
    if targets.shape != logits.shape[:-1]:
        raise ShapeError(f"cross_entropy: logits {logits.shape} need targets {logits.shape[:-1]}, not {targets.shape}; "
                         "the classes are the last axis")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing={label_smoothing!r}; it is from 0 to 1")
    if weight is not None and np.shape(weight) != (C,):
        raise ShapeError(f"cross_entropy: weight has shape {np.shape(weight)}; it needs ({C},), one for each class")
    flat = targets.reshape(-1)
    rows = np.flatnonzero(flat != ignore_index)
    kept = flat[rows]
    wrong = kept[(kept < 0) | (kept >= C)]
    if wrong.size:
        raise ValueError(f"cross_entropy: target {wrong[0]} is not among the {C} classes 0 … {C - 1}")
    log_p = log_softmax(at_least_single(logits)).reshape((flat.size, C))
    of_class = np.ones(C) if weight is None else np.asarray(operand(weight))
    of_class = of_class.astype(log_p.dtype)
    losses = -log_p[rows, kept] * of_class[kept]                                        # (rows,)
    if label_smoothing:
        even = -(log_p[rows] * of_class).sum(axis=-1)
        losses = losses * float(1 - label_smoothing) + even * float(label_smoothing / C)
    if reduction == "none":
        loss = ops.scatter(losses, index=(rows,), shape=flat.shape).reshape(targets.shape)
    elif reduction in ("mean", "sum"):
        loss = losses.sum() / (float(of_class[kept].sum()) or 1.0 if reduction == "mean" else 1.0)
    else:
        raise _unknown("cross_entropy", reduction)
    return narrow(loss, logits)


def binary_cross_entropy_with_logits(logits: Any, targets: Any, *, pos_weight: Any = None,
                                     reduction: str = "mean") -> Any:
    """The mean of −t log σ(x) − (1 − t) log(1 − σ(x)), of logits x and targets t in 0 … 1 of the same shape.

    From logits, since log σ(x) = −softplus(−x) is finite where σ(x) has underflowed. `pos_weight`, broadcast to x,
    multiplies the first term: how much more a missed 1 costs than a missed 0. A target outside 0 … 1 is a ValueError.

    >>> float(binary_cross_entropy_with_logits(np.array([0.0, 1000.0]), [1.0, 1.0]).round(4))   # ln 2 / 2
    0.3466
    """
    targets = _like("binary_cross_entropy_with_logits", logits, targets)
    values = operand(targets)
    if not ((values >= 0) & (values <= 1)).all():
        bad = values[~((values >= 0) & (values <= 1))].flat[0]
        raise ValueError(f"binary_cross_entropy_with_logits: target {bad} is no probability, from 0 to 1")
    ones = targets
    if pos_weight is not None:
        weight: Any = pos_weight if isinstance(pos_weight, Value) else np.asarray(pos_weight)
        lengths = zip(weight.shape[::-1], logits.shape[::-1])
        if weight.ndim > logits.ndim or any(m not in (1, n) for m, n in lengths):
            raise ShapeError(f"binary_cross_entropy_with_logits: pos_weight {weight.shape}, logits "
                             f"{logits.shape}: the first must broadcast to the second")
        ones = targets * weight.astype(targets.dtype)
    return _reduced("binary_cross_entropy_with_logits",
                    ones * softplus(-logits) + (1 - targets) * softplus(logits), reduction)


def mse_loss(output: Any, targets: Any, *, reduction: str = "mean") -> Any:
    """The mean of (output − target)², both of one shape: what broadcasting would pair by mistake is a ShapeError.

    >>> float(mse_loss(np.array([1.0, 2.0]), [1.0, 4.0]))
    2.0
    """
    difference = output - _like("mse_loss", output, targets)
    return _reduced("mse_loss", difference * difference, reduction)


def kl_div(log_q: Any, p: Any, *, log_target: bool = False, reduction: str = "batchmean") -> Any:
    """Σ p (log p − log q), of log-probabilities log q and probabilities p, (..., C), averaged over the rows.

    How many nats it costs to believe q where p is true. Where p = 0 the term is 0, as lim p log p is, also where
    log q = −∞. `log_target=True` takes log p instead of p. The mean over rows is the divergence; "mean", over all
    elements, as PyTorch has it by default, is C times smaller. (PyTorch's "batchmean" divides by the first axis alone;
    it is the same for (B, C). Kullback & Leibler 1951.)

    >>> float(kl_div(np.log([[0.5, 0.5]]), [[0.0, 1.0]]).round(4))      # ln 2
    0.6931
    """
    if not log_q.ndim:
        raise ShapeError("kl_div: log_q is one number; it must be (..., C), a row for each distribution")
    p, given, log_q = _like("kl_div", log_q, p), log_q, at_least_single(log_q)
    p = at_least_single(p)
    there = ~(operand(p) == (-np.inf if log_target else 0))             # where p ≠ 0
    if log_target:
        log_p = where(there, p, 0)
        p = where(there, ops.exp(log_p), 0)
    else:
        if not (operand(p) >= 0).all():
            raise ValueError("kl_div: a probability p is negative or NaN; log_target=True takes their logarithms")
        log_p = log(where(there, p, 1))
    terms = p * where(there, log_p - where(there, log_q, 0), 0)
    if reduction == "batchmean":
        return narrow(terms.sum() / max(1, terms.size // max(1, terms.shape[-1])), given)
    return narrow(_reduced("kl_div", terms, reduction), given)


def _like(name: str, output: Any, targets: Any) -> Any:
    """The targets, in the shape and with the floating dtype of the output."""
    targets = targets if isinstance(targets, Value) else np.asarray(targets)
    if np.shape(targets) != output.shape:
        raise ShapeError(f"{name}: output {output.shape}, target {np.shape(targets)}; they must have one shape, since "
                         "broadcasting would compare each with several")
    return targets.astype(output.dtype if output.dtype.kind == "f" else np.float64)


def _reduced(name: str, losses: Any, reduction: str) -> Any:
    if reduction not in ("mean", "sum", "none"):
        raise _unknown(name, reduction)
    return losses if reduction == "none" else losses.sum() if reduction == "sum" or not losses.size else losses.mean()


def _unknown(name: str, reduction: str) -> ValueError:
    return ValueError(f'{name}: reduction={reduction!r}; it is "mean", "sum" or "none"'
                      + (', or "batchmean"' if name == "kl_div" else ""))
