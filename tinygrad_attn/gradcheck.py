"""A side room on floor 3. `gradcheck`: is the gradient that the graph computes the true one?

The judge is the definition of the derivative. Move one input element by ±eps (times |x| where that is above 1)
and see how the output moves:

    (f(x + eps) − f(x − eps)) / 2 eps  =  f′(x) + O(eps²) + O(rounding / eps)

It knows nothing of graphs and vjps, so it cannot share their mistakes. In float64 with eps = 1e-6 the two error
terms are near 1e-12 and 1e-10, for values and derivatives near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .derivatives import made_of
from .engine import enable_grad, grad, operand
from .errors import GradcheckError, GraphError
from .tensor import Tensor


@dataclass(frozen=True)
class InputReport:
    """The largest disagreement in the Jacobian with respect to one input: how large, how large as a share of the
    largest derivative, and at which element of the input."""

    name: str
    shape: tuple[int, ...]
    max_abs_error: float
    max_rel_error: float
    at: tuple[int, ...]


@dataclass(frozen=True)
class GradcheckReport:
    """What a check that passed has seen. It is true, so that `assert gradcheck(...)` reads well."""

    order: int
    inputs: tuple[InputReport, ...]

    @property
    def max_abs_error(self) -> float:
        return max(entry.max_abs_error for entry in self.inputs)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        rows = [("input", "shape", "abs. error", "rel. error", "at")]
        rows += [(e.name, str(e.shape), f"{e.max_abs_error:.1e}", f"{e.max_rel_error:.1e}", str(e.at))
                 for e in self.inputs]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([f"gradcheck passed, order {self.order}", *lines])


def gradcheck(fn: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              order: int = 1) -> GradcheckReport:
    """Compare the whole Jacobian of `fn(*inputs)`, by vjps, with central differences, element by element.

    `inputs` is a tuple, or one input. Floating ones must be float64 and are made leaves; integer and boolean
    ones are constants. Inputs are left untouched. `fn` returns a Tensor, or several. An element passes if
    |analytic − numeric| ≤ atol + rtol |numeric|. `order=2` checks the gradient's gradient as well, and so on.

    A mismatch is a GradcheckError, which names the input, the index and both numbers. A check that could not tell
    right from wrong is refused: float32 inputs, a function that is not deterministic, or one that does not depend
    on an input through the graph.

    >>> from tinygrad_attn import gradcheck, softmax
    >>> gradcheck(softmax, [1.0, 2.0, 3.0], order=2).max_abs_error < 1e-8
    True
    """
    names, arrays = _as_float64(inputs)
    if order < 1 or order != int(order):
        raise ValueError(f"gradcheck: order={order}; it is 1 for gradients, 2 for gradients of gradients, and so on")
    if not (0 < eps < np.inf and 0 <= atol < np.inf and 0 <= rtol < np.inf):
        raise ValueError(f"gradcheck: eps={eps}, atol={atol}, rtol={rtol}; they are finite, the step is above 0, and "
                         "the tolerances are not below")
    entries: list[InputReport] = []
    for k in range(order):
        checked = _check(fn, names, arrays, eps, atol, rtol, first=k == 0)
        entries = [max(pair, key=lambda e: e.max_abs_error) for pair in zip(entries or checked, checked)]
        if k + 1 < order:
            fn = _gradient_of(fn, arrays)
    return GradcheckReport(order, tuple(entries))


def _as_float64(inputs: Any) -> tuple[list[str], list[np.ndarray]]:
    """For each input a name and a fresh contiguous array, so that neither views nor overlaps matter."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    names = [getattr(x, "name", None) or f"input {i}" for i, x in enumerate(inputs)]
    arrays = [np.array(operand(x), order="C") for x in inputs]
    for name, array in zip(names, arrays):
        if array.dtype.kind in "fc" and array.dtype != np.float64:
            raise TypeError(f"gradcheck: {name} is {array.dtype}; the check is made in float64 (in float32 a step of "
                            "1e-6 is lost in rounding): write .astype(np.float64)")
    if not any(array.dtype == np.float64 and array.size for array in arrays):
        raise ValueError("gradcheck: nothing to check: no input is a float64 array with an element")
    return names, arrays


def _call(fn: Callable[..., Any], arrays: list[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
    """Fresh leaves made of the arrays, and the outputs of fn on them."""
    xs = [Tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    with enable_grad():
        out = fn(*xs)
    ys = list(out) if isinstance(out, (tuple, list)) else [out]
    if not all(isinstance(y, Tensor) for y in ys):
        raise TypeError(f"gradcheck: fn returned {', '.join(type(y).__name__ for y in ys)}; it must return Tensors, "
                        "computed from its inputs by Tensor ops")
    return xs, ys


def _flat(ys: list[Tensor]) -> np.ndarray:
    return np.concatenate([y.numpy().ravel() for y in ys])


def _check(fn: Callable[..., Any], names: list[str], arrays: list[np.ndarray], eps: float, atol: float, rtol: float,
           first: bool) -> list[InputReport]:
    xs, ys = _call(fn, arrays)
    if not sum(y.size for y in ys):
        raise ValueError("gradcheck: nothing to check: the output of fn has no elements")
    if not np.array_equal(_flat(ys), _flat(_call(fn, arrays)[1]), equal_nan=True):
        raise RuntimeError("gradcheck: fn is not deterministic: at the same point, two calls differ. Make its "
                           "generator (of dropout, say) anew from a seed in each call")
    used = made_of(*ys)
    tracked = [i for i, x in enumerate(xs) if x.requires_grad and x.size]
    rows = [grad(y, [xs[i] for i in tracked], seed.reshape(y.shape), allow_unused=True)
            for y in ys for seed in np.eye(y.size)]
    entries = []
    for i in tracked:
        name, x = names[i], xs[i]
        if first and id(x) not in used:
            raise GraphError(f"gradcheck: no output depends on {name} through recorded ops; its gradient would be "
                             "None: there is nothing to check. Is it used by .numpy(), .detach() or under no_grad()?")
        analytic = np.array([row[tracked.index(i)].numpy().ravel() for row in rows])
        numeric = np.stack([_difference(fn, arrays, i, index, eps) for index in np.ndindex(x.shape)], axis=1)
        entries.append(_compare(name, x.shape, analytic, numeric, atol, rtol))
    return entries


def _difference(fn: Callable[..., Any], arrays: list[np.ndarray], i: int, index: tuple[int, ...],
                eps: float) -> np.ndarray:
    """d outputs / d arrays[i][index], by a central difference."""
    def at(step: float) -> tuple[np.ndarray, float]:
        moved = [a.copy() if k == i else a for k, a in enumerate(arrays)]
        moved[i][index] += step * max(1.0, abs(arrays[i][index]))       # a step that rounding does not swallow
        return _flat(_call(fn, moved)[1]), moved[i][index]
    (above, x_above), (below, x_below) = at(eps), at(-eps)
    return (above - below) / (x_above - x_below)            # the step that was taken, after rounding


def _compare(name: str, shape: tuple[int, ...], analytic: np.ndarray, numeric: np.ndarray, atol: float,
             rtol: float) -> InputReport:
    """Both are (outputs, elements of the input)."""
    same = analytic == numeric                              # two equal infinities agree; a NaN never does
    error = np.where(same, 0.0, np.abs(np.subtract(analytic, numeric, where=~same, out=np.zeros_like(analytic))))
    excess = np.where(np.isnan(error), np.inf, error - atol - rtol * np.where(same, 0.0, np.abs(numeric)))
    row, column = np.unravel_index(np.argmax(excess), excess.shape)
    if not excess[row, column] <= 0:
        a, n, e = analytic[row, column], numeric[row, column], error[row, column]
        index = [int(k) for k in np.unravel_index(column, shape)]
        raise GradcheckError(
            f"gradcheck: {name} at {index}, output element {row}: analytic {a:.10g}, numeric {n:.10g}; absolute error "
            f"{e:.3g}, relative {e / max(abs(a), abs(n)):.3g} (allowed: atol={atol:g} + rtol={rtol:g} · |numeric|). "
            "Either a vjp is wrong, or the point is a kink, a tie or a jump, across which a difference means nothing, "
            "or eps·|x| is too long a step here: try a smaller eps")
    column = np.unravel_index(np.argmax(error), error.shape)[1]
    scale = np.abs(numeric[np.isfinite(numeric)]).max(initial=0.0)
    return InputReport(name, shape, float(error.max()), float(error.max() / scale) if scale else 0.0,
                       tuple(int(k) for k in np.unravel_index(column, shape)))


def _gradient_of(fn: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[..., Any]:
    """The function to check for the next order: x ↦ d (Σ c · fn(x)) / dx, with weights c drawn once."""
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.5, 1.5, y.shape) for y in _call(fn, arrays)[1]]

    def gradient(*xs: Tensor) -> Any:
        out = fn(*xs)
        ys = out if isinstance(out, (tuple, list)) else [out]
        total: Any = sum((y * c).sum() for y, c in zip(ys, weights))
        return grad(total, [x for x in xs if x.requires_grad], create_graph=True, allow_unused=True)
    return gradient
