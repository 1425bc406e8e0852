"""A side room on floor 3. `gradcheck`: is the gradient that the graph computes the true one?

The derivative's definition is the judge. Move one input element by ±eps, and see how the output moves:

    (f(x + eps) − f(x − eps)) / 2 eps  =  f′(x) + O(eps²) + O(rounding / eps)

It knows nothing of graphs, ops or vjps, so it cannot share their mistakes. With float64 and eps = 1e-6 both
error terms are near 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .engine import enable_grad, grad, operand
from .errors import GradcheckError, GraphError
from .tensor import Tensor


@dataclass(frozen=True)
class InputReport:
    """The largest disagreement over the elements of one input, and where it is."""

    name: str
    shape: tuple[int, ...]
    max_abs_error: float
    max_rel_error: float
    at: tuple[int, ...]


@dataclass(frozen=True)
class GradcheckReport:
    """What a passed check saw; true, so that `assert gradcheck(...)` reads well."""

    order: int
    inputs: tuple[InputReport, ...]

    @property
    def max_abs_error(self) -> float:
        return max(entry.max_abs_error for entry in self.inputs)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = [f"gradcheck, order {self.order}: passed", f"{'input':<12} {'shape':<16} {'abs. error':>10} {'rel. error':>10}  at"]
        lines += [f"{e.name:<12} {e.shape!s:<16} {e.max_abs_error:>10.1e} {e.max_rel_error:>10.1e}  {e.at}" for e in self.inputs]
        return "\n".join(lines)


def gradcheck(fn: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              order: int = 1) -> GradcheckReport:
    """Compare the whole Jacobian of `fn(*inputs)`, from vjps, with central differences, element by element.

    `inputs` is a tuple, or a single input; arrays are taken as float64 leaves, integer and boolean ones as
    constants. `fn` returns a Tensor or several. Elements pass when |analytic − numeric| ≤ atol + rtol |numeric|.
    `order=2` checks the gradient's own gradient too, and so on. The inputs are not touched.

    Raises GradcheckError, which names the input, the index and both numbers; and refuses what could not tell
    right from wrong: float32, functions that are not deterministic, inputs that are not in the graph.

    >>> from tinygrad_attn import gradcheck, softmax
    >>> report = gradcheck(softmax, [1.0, 2.0, 3.0], order=2)
    >>> report.max_abs_error < 1e-8
    True
    """
    names, arrays = _as_float64(inputs)
    if order < 1:
        raise ValueError(f"gradcheck: order={order}; it is 1 for the gradient, 2 for the gradient's gradient, …")
    report = _check_first_order(fn, names, arrays, eps, atol, rtol, order=1)
    if order > 1:
        higher = gradcheck(_gradient_function(fn, arrays), tuple(arrays), eps=eps, atol=atol, rtol=rtol, order=order - 1)
        pairs = zip(report.inputs, higher.inputs, strict=True)
        report = GradcheckReport(order, tuple(max(pair, key=lambda entry: entry.max_abs_error) for pair in pairs))
    return report


def _as_float64(inputs: Any) -> tuple[list[str], list[np.ndarray]]:
    """A fresh, contiguous array for each input, and what to call it."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    names = [(x.name if isinstance(x, Tensor) else None) or f"input {i}" for i, x in enumerate(inputs)]
    arrays = [np.array(operand(x), order="C") for x in inputs]
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind in "fc" and array.dtype != np.float64:
            raise TypeError(f"gradcheck: {name} is {array.dtype}, in which a step of 1e-6 is lost in rounding; "
                            "write .astype(np.float64)")
    if not any(array.dtype == np.float64 and array.size for array in arrays):
        raise ValueError("gradcheck: nothing to check: none of the inputs is a non-empty float64 array")
    return names, arrays


def _outputs(fn: Callable[..., Any], arrays: list[np.ndarray], *, track: bool) -> tuple[list[Tensor], list[Any]]:
    """The leaves made of `arrays`, and what fn makes of them, as a list of Tensors."""
    xs = [Tensor(a, requires_grad=track and a.dtype == np.float64) for a in arrays]
    with enable_grad():
        out = fn(*xs)
    ys = list(out) if isinstance(out, (tuple, list)) else [out]
    if not all(isinstance(y, Tensor) for y in ys):
        raise TypeError(f"gradcheck: fn returned {', '.join(type(y).__name__ for y in ys)}; it must return Tensors, "
                        "computed from its inputs by Tensor ops")
    return xs, ys


def _flat(ys: list[Tensor]) -> np.ndarray:
    return np.concatenate([y.numpy().reshape(-1) for y in ys]) if ys else np.zeros(0)


def _check_first_order(fn: Callable[..., Any], names: list[str], arrays: list[np.ndarray], eps: float, atol: float,
                       rtol: float, order: int) -> GradcheckReport:
    xs, ys = _outputs(fn, arrays, track=True)
    if not np.array_equal(_flat(ys), _flat(_outputs(fn, arrays, track=True)[1]), equal_nan=True):
        raise ValueError("gradcheck: fn is not deterministic: two calls at the same point differ. Give its dropout or "
                         "other randomness a generator that is made anew, from a seed, in each call")
    entries = []
    for i, (name, x, array) in enumerate(zip(names, xs, arrays, strict=True)):
        if not x.requires_grad or not x.size:
            continue
        analytic = _analytic_jacobian(ys, x, name)
        numeric = np.empty_like(analytic)
        for j, index in enumerate(np.ndindex(array.shape)):
            numeric[:, j] = _central_difference(fn, arrays, i, index, eps)
        entries.append(_compare(name, array, analytic, numeric, atol, rtol))
    return GradcheckReport(order, tuple(entries))


def _analytic_jacobian(ys: list[Tensor], x: Tensor, name: str) -> np.ndarray:
    """One row for each output element, each by a walk back."""
    rows = []
    connected = False
    for y in ys:
        for seed in np.eye(y.size):
            row = np.zeros(x.shape)
            if y.requires_grad:
                try:
                    row = grad(y, x, seed.reshape(y.shape).astype(y.dtype)).numpy()
                    connected = True
                except GraphError:
                    pass
            rows.append(row.reshape(-1))
    if not connected:
        raise GraphError(f"gradcheck: no output depends on {name} through recorded ops, so its gradient would be None: "
                         "there is nothing to check. Does fn use .numpy(), .detach() or no_grad() on it?")
    return np.array(rows)


def _central_difference(fn: Callable[..., Any], arrays: list[np.ndarray], i: int, index: tuple[int, ...],
                        eps: float) -> np.ndarray:
    """d outputs / d arrays[i][index], from fn alone."""
    sides = []
    for step in (eps, -eps):
        moved = list(arrays)
        moved[i] = arrays[i].copy()
        moved[i][index] += step
        sides.append((_flat(_outputs(fn, moved, track=True)[1]), moved[i][index]))
    (above, x_above), (below, x_below) = sides
    return (above - below) / (x_above - x_below)            # the step as float64 could take it


def _compare(name: str, array: np.ndarray, analytic: np.ndarray, numeric: np.ndarray, atol: float,
             rtol: float) -> InputReport:
    error = np.abs(analytic - numeric)
    error[(analytic == numeric)] = 0                        # also where both are the same infinity
    excess = np.where(np.isnan(error), np.inf, error - (atol + rtol * np.abs(numeric)))
    row, column = np.unravel_index(np.argmax(excess), excess.shape)
    relative = error / np.maximum(np.maximum(np.abs(analytic), np.abs(numeric)), np.finfo(float).tiny)
    at = tuple(int(k) for k in np.unravel_index(column, array.shape))
    if excess[row, column] > 0:
        raise GradcheckError(
            f"gradcheck: d output[{row}] / d {name}{list(at)}: analytic {analytic[row, column]:.10g}, numeric "
            f"{numeric[row, column]:.10g}; absolute error {error[row, column]:.3g}, relative "
            f"{relative[row, column]:.3g} (atol={atol:g}, rtol={rtol:g}). A vjp is wrong, or the point is a kink, a tie or "
            "a jump, where a difference across it means nothing")
    worst = np.unravel_index(np.argmax(error), error.shape)
    return InputReport(name, array.shape, float(error.max()), float(relative[error > atol * 1e-3].max(initial=0.0)),
                       tuple(int(k) for k in np.unravel_index(worst[1], array.shape)))


def _gradient_function(fn: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[..., Any]:
    """x ↦ d (c · fn(x)) / dx, for cotangents c drawn once: the function to check for the next order."""
    rng = np.random.default_rng(0)
    cotangents = [Tensor(rng.uniform(0.5, 1.5, y.shape)) for y in _outputs(fn, arrays, track=False)[1]]

    def gradient(*xs: Tensor) -> list[Any]:
        out = fn(*xs)
        ys = list(out) if isinstance(out, (tuple, list)) else [out]
        total: Any = sum((y * c).sum() for y, c in zip(ys, cotangents, strict=True))
        return list(grad(total, [x for x in xs if x.requires_grad], create_graph=True, allow_unused=True))
    return gradient
