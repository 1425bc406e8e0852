"""A side room on floor 4. The Jacobian of a function twice, by the graph and by the definition, side by side.

`gradcheck` asks a `Judge` whether the two agree; and, if they do not, asks again of each single op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .derivatives import made_of, unit_seeds
from .differences import Function, central, complex_step, one_hot, step_at
from .engine import grad, topological_order
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
        worse = max(self, other, key=lambda e: np.nan_to_num(e.max_abs_error, nan=np.inf))
        both = [e.errors for e in (self, other) if e.errors is not None]
        return replace(worse, errors=np.maximum(*both) if len(both) == 2 else None)


@dataclass(frozen=True)
class Mismatch:
    """One element of input i where graph and definition disagree about one element of the flat output, `row`, or,
    if that is None, about the sum of all of them with `weights`. `terms` estimates the size of the terms that were
    added up in that output, by Σ |J| |x|: its rounding is a share of this. (Cancellation inside an op is not seen.)"""

    i: int
    at: tuple[int, ...]
    row: int | None
    analytic: float
    numeric: float
    terms: float = 0.0
    weights: np.ndarray | None = field(default=None, repr=False, compare=False)

    def of(self, outputs: np.ndarray) -> float:
        """What it is about, from an array with a number for each output."""
        return float(outputs[self.row] if self.weights is None else outputs @ self.weights)

    @property
    def error(self) -> float:
        return abs(self.analytic - self.numeric)

    @property
    def doubt(self) -> float:
        """The error, or, if that is no number, the size of what it is about."""
        return next((x for x in (self.error, abs(self.analytic)) if 0 < x < np.inf), 1.0)


@dataclass(frozen=True)
class Comparison:
    """Both Jacobians with respect to input i, (outputs, elements). Of directions: (pairs, 1), and `blamed`, which
    finds the element that has most of what is wrong with a pair. `terms` is |J| |x| for each row."""

    i: int
    x: np.ndarray
    analytic: np.ndarray
    numeric: np.ndarray
    terms: np.ndarray
    blamed: Callable[[int], Mismatch] | None = None

    @property
    def errors(self) -> np.ndarray:
        """|analytic − numeric|. Two equal infinities agree; what is NaN on either side never does."""
        out, same = np.zeros_like(self.analytic), self.analytic == self.numeric
        return np.abs(np.subtract(self.analytic, self.numeric, where=~same, out=out))

    @property
    def largest(self) -> float:
        """The largest derivative, by either."""
        both = np.abs([self.analytic, self.numeric])
        return float(both[np.isfinite(both)].max(initial=0.0))

    def mismatches(self, atol: float, rtol: float) -> Iterator[Mismatch]:
        """Where the error exceeds atol + rtol |numeric|, the worst first. Of directions: the pairs themselves."""
        errors = self.errors
        with np.errstate(invalid="ignore"):
            excess = np.where(errors > 0, errors - atol - rtol * np.abs(self.numeric), -np.inf)
        excess[np.isnan(errors) | np.isnan(excess)] = np.inf
        for place in np.argsort(-excess, axis=None, kind="stable")[:np.sum(excess > 0)]:
            row, column = (int(k) for k in np.unravel_index(place, excess.shape))
            yield Mismatch(self.i, self.index(column), row, float(self.analytic[row, column]),
                           float(self.numeric[row, column]), float(self.terms[row]))

    def index(self, column: int) -> tuple[int, ...]:
        return tuple(int(k) for k in np.unravel_index(column, self.x.shape))

    def report(self, name: str) -> InputReport:
        errors, largest = self.errors, self.largest
        column = int(np.unravel_index(np.argmax(errors), errors.shape)[1])          # argmax takes a NaN for the largest
        share = errors.max() / largest if largest else np.nan if errors.max() != 0 else 0.0
        return InputReport(name, self.x.shape, float(errors.max()), float(share),
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
        """Both Jacobians with respect to each floating input. `strict` refuses an input that no output depends on, and
        a function that computes in less than double precision."""
        f = Function(fn, "gradcheck")
        xs, ys = f.recorded(arrays)
        if not sum(y.size for y in ys):
            raise ValueError("gradcheck: nothing to check: the output of fn has no elements")
        f.demand_determinism(arrays, ys)
        tracked = [i for i, x in enumerate(xs) if x.requires_grad and x.size]
        if strict:
            self._demand_a_graph(xs, ys, tracked)
        if self.method == "projected":
            yield from (self._projected(f, arrays, i, xs[i], ys) for i in tracked)
            return
        analytic = jacobians([xs[i] for i in tracked], ys)
        for i, rows in zip(tracked, analytic):
            if self.method == "complex":
                self._demand_analyticity(f, arrays, i, ys)
            columns = [self._column(f, arrays, i, index) for index in np.ndindex(xs[i].shape)]
            yield Comparison(i, arrays[i], rows, np.stack(columns, axis=1), _terms(rows, arrays[i]))

    def _demand_a_graph(self, xs: list[Tensor], ys: list[Tensor], tracked: list[int]) -> None:
        used = made_of(*ys)
        for i in tracked:
            if id(xs[i]) not in used:
                raise GraphError(
                    f"gradcheck: no output depends on {self.names[i]} through recorded ops; its gradient would be "
                    "None: there is nothing to check. Is it used by .numpy(), .detach(), under no_grad(), or was the "
                    "graph freed by a backward() in fn?")
        for node in reversed(topological_order(*ys)):
            if node.out is not None and node.out.dtype in (np.float32, np.float16):
                raise TypeError(f"gradcheck: `{node.op.name}` computes in {node.out.dtype} inside fn, where a step of "
                                f"{self.eps:g} is lost in rounding; check the function in float64")

    def _demand_analyticity(self, f: Function, arrays: list[np.ndarray], i: int, ys: list[Tensor]) -> None:
        """The complex step is silently wrong of a function that is not analytic. So look once, along a drawn direction,
        whether a central difference says the same, if that is settled at all."""
        v = self._direction(arrays[i].size).reshape(arrays[i].shape) * np.maximum(1.0, np.abs(arrays[i]))
        by_step = complex_step(f, arrays, i, v)
        with np.errstate(all="ignore"):
            far, near = (central(f, arrays, i, v, h) for h in (self.eps, self.eps / 10))
        sizes = np.maximum(np.abs(far), np.abs(near))
        terms = max((float(np.abs(node.out).max(initial=0.0)) for node in topological_order(*ys)), default=0.0)
        slack = 1e-3 * sizes + 1e-6 * sizes.max() + 10 * np.finfo(float).eps * terms / self.eps
        settled = np.isfinite(far - near).all() and np.all(np.abs(far - near) < slack)
        if settled and np.any(np.abs(by_step - far) > 3 * slack):
            name = self.names[i] if self.names else f"argument {i}"
            raise TypeError(
                f"gradcheck: along a direction of {name} the complex step and a central difference disagree. Either "
                "the function is not analytic in NumPy's complex arithmetic, or the point is a kink or a tie; "
                'method="central" tells')

    def _column(self, f: Function, arrays: list[np.ndarray], i: int, index: tuple[int, ...]) -> np.ndarray:
        """d outputs / d one element, by the definition."""
        v = one_hot(arrays[i], index)
        if self.method == "complex":
            return complex_step(f, arrays, i, v)
        return central(f, arrays, i, v, step_at(arrays[i], index, self.eps))

    def _projected(self, f: Function, arrays: list[np.ndarray], i: int, x: Tensor, ys: list[Tensor]) -> Comparison:
        """uᵀ J v, by one walk back and by one difference, for a few drawn pairs of weights u and directions v."""
        reach = np.maximum(1.0, np.abs(arrays[i]))          # each element moves as far as it would alone
        pairs = [(self._direction(sum(y.size for y in ys)), self._direction(x.size).reshape(x.shape) * reach)
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
                halves = np.array_split(places, 2)
                parts = [np.where(np.isin(np.arange(x.size), half), v, 0).reshape(x.shape) for half in halves]
                errors = [abs(a - n) for a, n in (both(pair, part) for part in parts)]
                places = halves[int(np.argmax(errors))]
            at = tuple(int(k) for k in np.unravel_index(places[0], x.shape))
            analytic, numeric = both(pair, one_hot(arrays[i], at) * reach)
            return Mismatch(i, at, None, analytic / reach[at], numeric / reach[at],
                            float(_terms(slopes[pair].reshape(1, -1), arrays[i])[0]), pairs[pair][0])
        found = np.array([both(pair, v) for pair, (_, v) in enumerate(pairs)])
        return Comparison(i, arrays[i], found[:, :1], found[:, 1:],
                          _terms(np.array(slopes).reshape(DIRECTIONS, -1), arrays[i]), blamed)

    def _direction(self, n: int) -> np.ndarray:
        """n numbers of either sign, none near 0: every element counts, and none is sure to cancel another."""
        return self.rng.uniform(0.5, 1.5, n) * self.rng.choice([-1.0, 1.0], n)


def jacobians(xs: list[Tensor], ys: list[Tensor]) -> list[np.ndarray]:
    """By vjps, with respect to each of xs: (elements of all ys, elements of x). The vjps are fed with −2 and 2 instead
    of 1, and their results divided by it, which finds rules that are not linear in g."""
    rows = []
    for y in ys:
        for k, seed in enumerate(unit_seeds(y)):
            factor = 2.0 if k % 2 else -2.0
            slopes = grad(y, xs, seed * factor, allow_unused=True)
            rows.append([slope.numpy().ravel() / factor + 0.0 for slope in slopes])      # + 0.0: no −0
    return [np.array(column) for column in zip(*rows)]


def _terms(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.nan_to_num(np.abs(rows), posinf=0.0) @ np.abs(x).ravel()


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
