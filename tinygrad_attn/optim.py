"""A side room on floor 4. Optimisers: how parameters move along their gradients, and how fast.

A rate is a number, or a schedule: a function of the number of steps taken so far. So a schedule has no state of its
own, and is restored with the optimiser. Moments are kept in single precision at least. What each optimiser computes
stands in its docstring; step for step it is what PyTorch's of the same name does. What they share is in
`optimizer.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import AnomalyError
from .ops import at_least_single
from .optimizer import Optimizer, Schedule, at_least_0
from .tensor import Tensor

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "Schedule", "clip_grad_norm", "clip_grad_value", "constant", "cosine",
           "inverse_sqrt", "step"]


class SGD(Optimizer):
    """w ← w − lr · g, downhill; with momentum w ← w − lr · m, where m ← momentum · m + g runs on from earlier steps.

    The first m is g. Nesterov's steps along g + momentum · m, where the momentum will have led. Weight decay adds
    weight_decay · w to g. (Polyak 1964; Nesterov 1983; Sutskever et al. 2013.)

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     ((w - 3.0) ** 2).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(3)
    array([3.])
    """

    elementwise = True

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule, *, momentum: float = 0.0,
                 nesterov: bool = False, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)

    def keeps(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("m",) if options["momentum"] else ()

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, momentum: float, nesterov: bool,
              weight_decay: float) -> Any:
        g = g + weight_decay * w if weight_decay else g
        if momentum:
            state["m"] = m = momentum * state["m"] + g if "m" in state else np.array(g)
            g = g + momentum * m if nesterov else m
        return w - lr * g


class Adam(Optimizer):
    """w ← w − lr · m̂ / (√v̂ + eps): steps of about lr in each direction, whatever the size of the gradient.

    m and v are running means of g and of g², m̂ and v̂ the same freed of their start at 0: m̂ = m / (1 − β₁ᵗ). Weight
    decay adds weight_decay · w to g, and so is divided by √v̂ as well; `AdamW` has the other one. (Kingma & Ba 2015.)

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.1)
    >>> (w * [1000.0, 0.001]).sum().backward()
    >>> optimizer.step()
    >>> w.numpy().round(4)                      # the first step is the sign of g
    array([0.9, 0.9])
    """

    elementwise = True

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule = 1e-3, *,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def keeps(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("m", "v")

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, betas: tuple[float, float], eps: float,
              weight_decay: float) -> Any:
        g = g + weight_decay * w if weight_decay else g
        (beta1, beta2), t = betas, state["step"]
        state["m"] = m = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        state["v"] = v = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
        return w - lr / (1 - beta1 ** t) * m / (np.sqrt(v / (1 - beta2 ** t)) + eps)


class AdamW(Adam):
    """Adam, with weight decay on its own: w ← (1 − lr · weight_decay) · w first, and g as it is.

    So that all weights shrink at one rate, and not those less whose gradients are large. (Loshchilov & Hutter 2019.)

    >>> w = Tensor(1.0, requires_grad=True)
    >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.1)
    >>> (w * 0.5).backward()
    >>> optimizer.step()
    >>> round(w.item(), 9)                      # 0.99 − 0.1 · 0.5 / (0.5 + 1e-8)
    0.890000002
    """

    elementwise = True

    def __init__(self, parameters: Iterable[Any], lr: float | Schedule = 1e-3, *,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01) -> None:
        super().__init__(parameters, lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def moved(self, w: Any, g: Any, state: dict[str, Any], *, lr: float, weight_decay: float, **options: Any) -> Any:
        return super().moved(w * (1 - lr * weight_decay), g, state, lr=lr, weight_decay=0.0, **options)


# --------------------------------------------------------------------------------------------------- schedules

def constant(lr: float, *, warmup: int = 0) -> Schedule:
    """lr, after a linear rise from lr / warmup in the first `warmup` steps."""
    _check("constant", lr=lr, warmup=warmup)
    return lambda t: lr * _rise(t, warmup)


def cosine(lr: float, steps: int, *, warmup: int = 0, least: float = 0.0) -> Schedule:
    """From lr down to `least` along half a cosine, over `steps` in all, after a linear rise in the first `warmup`; then
    `least`. (Loshchilov & Hutter 2017.)

    >>> rate = cosine(1.0, steps=110, warmup=10)
    >>> [round(rate(t), 3) for t in (0, 9, 10, 60, 110)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    _check("cosine", lr=lr, steps=steps, warmup=warmup, least=least)
    if warmup >= steps:
        raise ValueError(f"cosine: warmup={warmup} leaves nothing of {steps} steps")

    def rate(t: int) -> float:
        if t < warmup:
            return lr * _rise(t, warmup)
        done = min(1.0, (t - warmup) / (steps - warmup))
        return least + (lr - least) * (1 + math.cos(math.pi * done)) / 2
    return rate


def step(lr: float, every: int, *, gamma: float = 0.1) -> Schedule:
    """lr, times gamma after each `every` steps.

    >>> rate = step(1.0, every=10)
    >>> [round(rate(t), 3) for t in (0, 9, 10, 20)]
    [1.0, 1.0, 0.1, 0.01]
    """
    _check("step", lr=lr, every=every, gamma=gamma)
    if every < 1:
        raise ValueError(f"step: every={every}; it must be 1 or more")
    return lambda t: lr * gamma ** (t // every)


def inverse_sqrt(d_model: int, *, warmup: int = 4000, factor: float = 1.0) -> Schedule:
    """factor · d_model^−½ · min(n^−½, n · warmup^−3/2) at step n = t + 1: up in a line, then down like 1/√n. (Vaswani
    et al. 2017, §5.3, eq. 3.)

    >>> rate = inverse_sqrt(512)
    >>> max(range(10000), key=rate), round(rate(3999), 6)
    (3999, 0.000699)
    """
    _check("inverse_sqrt", factor=factor, d_model=d_model, warmup=warmup)
    if warmup < 1 or d_model < 1:
        raise ValueError(f"inverse_sqrt: warmup={warmup}, d_model={d_model}; both must be 1 or more")
    return lambda t: factor * d_model ** -0.5 * min((t + 1) ** -0.5, (t + 1) * warmup ** -1.5)


def _rise(t: int, warmup: int) -> float:
    return min(1.0, (t + 1) / warmup) if warmup else 1.0


def _check(owner: str, **numbers: float) -> None:
    for name, value in numbers.items():
        at_least_0(owner, name, value)


# ---------------------------------------------------------------------------------------------------- clipping

def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients by one factor, so that the norm of them all is at most `max_norm`; return what it was.

    The direction stays. Parameters without gradients are passed over. A norm that is not finite, which no factor mends,
    is an AnomalyError, and nothing is changed. (Pascanu et al. 2013.)

    >>> w = Tensor([0.0, 0.0], requires_grad=True)
    >>> w.grad = np.array([3.0, 4.0])
    >>> clip_grad_norm([w], 1.0), w.grad
    (5.0, array([0.6, 0.8]))
    """
    if not isinstance(max_norm, (int, float, np.number)) or not max_norm >= 0:
        raise ValueError(f"clip_grad_norm: max_norm={max_norm!r}; it must be a number of 0 or more")
    gradients = _gradients(parameters)
    norm = math.hypot(*(_norm(g) for _, g in gradients))
    if not math.isfinite(norm):
        bad = next((p for p, g in gradients if not np.isfinite(g).all()), None)
        which = "it is too large" if bad is None else f"one of shape {bad.shape} is not finite" + (
            f" ({bad.name})" if bad.name else "")
        raise AnomalyError(f"clip_grad_norm: the norm of the gradients is {norm}: {which}; `with detect_anomaly():` "
                           "finds the op that it came from")
    if norm > max_norm:
        for p, g in gradients:              # in single precision at least, in which a small factor has its digits
            p.grad = (at_least_single(g) * float(max_norm / norm)).astype(g.dtype)
    return norm


def _norm(g: np.ndarray) -> float:
    """√Σ g², of what may be too large to be squared."""
    top = float(np.abs(g).max(initial=0.0))
    return top * float(np.linalg.norm(g.astype(np.float64).ravel() / top)) if 0 < top < math.inf else top


def clip_grad_value(parameters: Iterable[Tensor], limit: float) -> None:
    """Limit each element of each gradient to −limit … limit, which may turn its direction.

    >>> w = Tensor([0.0, 0.0], requires_grad=True)
    >>> w.grad = np.array([0.5, -4.0])
    >>> clip_grad_value([w], 1.0)
    >>> w.grad
    array([ 0.5, -1. ])
    """
    _check("clip_grad_value", limit=limit)
    for p, g in _gradients(parameters):
        p.grad = np.clip(g, -float(limit), float(limit))


def _gradients(parameters: Iterable[Tensor]) -> list[tuple[Tensor, np.ndarray]]:
    """Each parameter that has a gradient, once, and the gradient."""
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [(p, np.asarray(p.grad)) for p in dict.fromkeys(given) if p.grad is not None]
