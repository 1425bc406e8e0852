"""A side room on floor 4. The Jacobian of a function twice, by the graph and by the definition, side by side.

`gradcheck` asks a `Judge` whether the two agree; and, if they do not, asks again of each single op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .derivatives import made_of
from .differences import Function, central, complex_step, one_hot, step_at
from .engine import grad
from .errors import GraphError
from .tensor import Tensor

DIRECTIONS = 3                              # of method="projected", for each input


@dataclass(frozen=True)
class InputReport:
    """The largest disagreement in the Jacobian with respect to one input: how large, how large as a share of the
    largest derivative, and at which element of the input. `errors` has, in the shape of the input, the largest
    over all outputs. Of directions (method="projected") there are no elements: `at` and `errors` are None."""

    name: str
    shape: tuple[int, ...]
    max_abs_error: float
    max_rel_error: float
    at: tuple[int, ...] | None
    errors: np.ndarray | None = field(default=None, repr=False, compare=False)

    def merged(self, other: InputReport) -> InputReport:
        """Of the reports of two orders: the worse one, and for each element the larger error."""
        worse = max(self, other, key=lambda e: e.max_abs_error)
        both = [e.errors for e in (self, other) if e.errors is not None]
        return replace(worse, errors=np.maximum(*both) if len(both) == 2 else None)


@dataclass(frozen=True)
class Mismatch:
    """One element of input i where graph and definition disagree about one element of the flat output, `row`, or,
    if that is None, about the sum of all of them with `weights`."""

    i: int
    at: tuple[int, ...]
    row: int | None
    analytic: float
    numeric: float
    weights: np.ndarray | None = field(default=None, repr=False, compare=False)

    def of(self, outputs: np.ndarray) -> float:
        """What it is about, from an array with a number for each output."""
        return float(outputs[self.row] if self.weights is None else outputs @ self.weights)

    @property
    def error(self) -> float:
        return abs(self.analytic - self.numeric)


@dataclass(frozen=True)
class Comparison:
    """Both Jacobians with respect to input i, (outputs, elements). Of directions: (pairs, 1), and `blamed`, which
    finds an element that is to blame for what is wrong with a pair."""

    i: int
    x: np.ndarray
    analytic: np.ndarray
    numeric: np.ndarray
    blamed: Callable[[int], Mismatch] | None = None

    @property
    def errors(self) -> np.ndarray:
        """|analytic − numeric|. Two equal infinities agree; what is NaN on either side never does."""
        out, same = np.zeros_like(self.analytic), self.analytic == self.numeric
        return np.abs(np.subtract(self.analytic, self.numeric, where=~same, out=out))

    def mismatches(self, atol: float, rtol: float) -> Iterator[Mismatch]:
        """Where the error exceeds atol + rtol |numeric|, the worst first."""
        errors = self.errors
        with np.errstate(invalid="ignore"):
            excess = np.where(errors > 0, errors - atol - rtol * np.abs(self.numeric), -np.inf)
        excess[np.isnan(errors) | np.isnan(excess)] = np.inf
        for place in np.argsort(-excess, axis=None, kind="stable")[:np.sum(excess > 0)]:
            row, column = (int(k) for k in np.unravel_index(place, excess.shape))
            yield self.blamed(row) if self.blamed else Mismatch(
                self.i, self.index(column), row, float(self.analytic[row, column]), float(self.numeric[row, column]))

    def index(self, column: int) -> tuple[int, ...]:
        return tuple(int(k) for k in np.unravel_index(column, self.x.shape))

    def report(self, name: str) -> InputReport:
        errors = self.errors
        scale = np.abs(self.numeric[np.isfinite(self.numeric)]).max(initial=0.0)
        column = int(np.unravel_index(np.argmax(errors), errors.shape)[1])          # argmax takes a NaN for the largest
        return InputReport(name, self.x.shape, float(errors.max()), float(errors.max() / scale) if scale else 0.0,
                           None if self.blamed else self.index(column),
                           None if self.blamed else errors.max(axis=0).reshape(self.x.shape))


@dataclass(frozen=True)
class Judge:
    """How a function is judged: by which method, with which step, and with whose random numbers."""

    names: list[str]
    eps: float
    method: str
    rng: np.random.Generator

    def comparisons(self, fn: Callable[..., Any], arrays: list[np.ndarray], *,
                    strict: bool = False) -> Iterator[Comparison]:
        """Both Jacobians with respect to each floating input. `strict` refuses one that no output depends on."""
        f = Function(fn, "gradcheck")
        xs, ys = f.recorded(arrays)
        if not sum(y.size for y in ys):
            raise ValueError("gradcheck: nothing to check: the output of fn has no elements")
        if not np.array_equal(np.concatenate([y.numpy().ravel() for y in ys]), f(arrays), equal_nan=True):
            raise RuntimeError("gradcheck: fn is not deterministic: at the same point, two calls differ. Make its "
                               "generator (of dropout, say) anew from a seed in each call")
        tracked, used = [i for i, x in enumerate(xs) if x.requires_grad and x.size], made_of(*ys)
        for i in tracked if strict else ():
            if id(xs[i]) not in used:
                raise GraphError(
                    f"gradcheck: no output depends on {self.names[i]} through recorded ops; its gradient would be "
                    "None: there is nothing to check. Is it used by .numpy(), .detach() or under no_grad()?")
        if self.method == "projected":
            yield from (self.projected(f, arrays, i, xs[i], ys) for i in tracked)
            return
        rows = [grad(y, [xs[i] for i in tracked], seed.reshape(y.shape), allow_unused=True)
                for y in ys for seed in np.eye(y.size)]
        for k, i in enumerate(tracked):
            yield Comparison(i, arrays[i], analytic=np.array([row[k].numpy().ravel() for row in rows]),
                             numeric=np.stack([self.column(f, arrays, i, index) for index in np.ndindex(xs[i].shape)],
                                              axis=1))

    def column(self, f: Function, arrays: list[np.ndarray], i: int, index: tuple[int, ...]) -> np.ndarray:
        """d outputs / d one element, by the definition."""
        v = one_hot(arrays[i], index)
        if self.method == "complex":
            return complex_step(f, arrays, i, v)
        return central(f, arrays, i, v, step_at(arrays[i], index, self.eps))

    def projected(self, f: Function, arrays: list[np.ndarray], i: int, x: Tensor, ys: list[Tensor]) -> Comparison:
        """uᵀ J v, by one walk back and by one difference, for a few drawn pairs of weights u and directions v."""
        reach = np.maximum(1.0, np.abs(arrays[i]))          # each element moves as far as it would alone
        pairs = [(self.direction(sum(y.size for y in ys)), self.direction(x.size).reshape(x.shape) * reach)
                 for _ in range(DIRECTIONS)]
        ends = np.cumsum([y.size for y in ys])[:-1]
        slopes = [np.sum([grad(y, x, cut.reshape(y.shape), allow_unused=True).numpy()
                          for y, cut in zip(ys, np.split(u, ends))], axis=0) for u, _ in pairs]

        def both(pair: int, v: np.ndarray) -> tuple[float, float]:
            return float(np.vdot(slopes[pair], v)), float(pairs[pair][0] @ central(f, arrays, i, v, self.eps))

        def blamed(pair: int) -> Mismatch:
            """Halve the direction and keep the half with more of the error, until it is one element."""
            v, places = pairs[pair][1].ravel(), np.arange(x.size)
            while len(places) > 1:
                halves = [np.where(np.isin(np.arange(x.size), half), v, 0).reshape(x.shape)
                          for half in np.array_split(places, 2)]
                errors = [abs(a - n) for a, n in (both(pair, half) for half in halves)]
                places = np.array_split(places, 2)[int(np.argmax(errors))]
            at = tuple(int(k) for k in np.unravel_index(places[0], x.shape))
            analytic, numeric = both(pair, one_hot(arrays[i], at) * reach)
            return Mismatch(i, at, None, analytic / reach[at], numeric / reach[at], pairs[pair][0])
        found = np.array([both(pair, v) for pair, (_, v) in enumerate(pairs)])
        return Comparison(i, arrays[i], found[:, :1], found[:, 1:], blamed)

    def direction(self, n: int) -> np.ndarray:
        """n numbers of either sign, none near 0: every element counts, and none is sure to cancel another."""
        return self.rng.uniform(0.5, 1.5, n) * self.rng.choice([-1.0, 1.0], n)


def gradient_of(fn: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[..., Any]:
    """The function to judge for the next order: x ↦ Σ c · dy/dx for each output y, with weights c drawn once. They are
    put in as gradients: the judge multiplies and adds by no op that may be the one in question."""
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.5, 1.5, y.shape) for y in Function(fn, "gradcheck").recorded(arrays)[1]]

    def gradient(*xs: Tensor) -> list[Tensor]:
        out = fn(*xs)
        ys = out if isinstance(out, (tuple, list)) else [out]
        wanted = [x for x in xs if x.requires_grad]
        return [slope for y, c in zip(ys, weights)
                for slope in grad(y, wanted, c.astype(y.dtype), create_graph=True, allow_unused=True)]
    return gradient
