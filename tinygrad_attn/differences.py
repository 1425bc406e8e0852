"""A side room on floor 3. Derivatives as numbers, without any graph: three ways, and how far each can be trusted.

    forward    (f(x + h) − f(x)) / h               =  f′ + h f″ / 2 + …      + rounding / h
    central    (f(x + h) − f(x − h)) / 2h          =  f′ + h² f‴ / 6 + …     + rounding / h
    complex    Im f(x + ih) / h                    =  f′ − h² f‴ / 6 + …

The first two subtract numbers that are nearly equal, so that the shorter the step, the more digits cancel. There is
a best h, near 1e-8 for forward and 1e-5 for central differences in double precision, and errors near 1e-8 and 1e-11
are the least one gets. The complex step subtracts nothing: with h = 1e-30 the truncation is gone as well, and what is
left is the rounding of f itself, near 1e-16. It asks for a function that is analytic as NumPy computes it: |x|, which
drops the imaginary part, is not. (Squire & Trapp 1998, "Using complex variables to estimate derivatives of real
functions".)

`eps_curve` shows all of this for a function of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .anomaly import Watcher
from .derivatives import unit_seeds
from .engine import Primitive, enable_grad, grad, operand
from .languages import _
from .plots import INK, SERIES, figure
from .tensor import Tensor

COMPLEX_STEP = 1e-30                        # nothing is subtracted, so the step may be as short as one likes


class Function:
    """`fn(*inputs)`, as a function of arrays; its outputs, one Tensor or several, as one flat array.

    Each call makes fresh leaves, so that no call can see another's, and demands outputs of the same shapes.
    """

    def __init__(self, fn: Callable[..., Any], caller: str) -> None:
        self.fn, self.caller = fn, caller
        self.shapes: list[tuple[int, ...]] | None = None

    def recorded(self, arrays: Sequence[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
        """The leaves, and the outputs on them, with their graph."""
        xs = [Tensor(a) for a in arrays]
        for x in xs:                        # a complex leaf, too, which a user's may not be
            x._requires_grad = x.dtype.kind in "fc"
        try:
            with enable_grad():
                out = self.fn(*xs)
        except TypeError as error:
            if len(xs) == 1 and "required positional argument" in str(error):
                raise TypeError(f"{self.caller}: {error}; a list is one input, several are a tuple: (x, y)") from error
            raise
        ys = list(out) if isinstance(out, (tuple, list)) else [out]
        if not all(isinstance(y, Tensor) for y in ys):
            raise TypeError(f"{self.caller}: fn returned {', '.join(type(y).__name__ for y in ys) or 'nothing'}; it "
                            "must return Tensors, computed from its inputs by Tensor ops")
        for k, y in enumerate(ys):
            if y.dtype.kind not in "fc":
                raise TypeError(f"{self.caller}: output {k} of fn is {y.dtype}, which has no derivative; leave it out")
        shapes = [y.shape for y in ys]
        if self.shapes not in (None, shapes):
            raise RuntimeError(f"{self.caller}: fn returned shapes {self.shapes} and later {shapes}; the shape of its "
                               "output must not depend on the values of its inputs")
        self.shapes = shapes
        return xs, ys

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([y.numpy().ravel() for y in self.recorded(arrays)[1]])

    def demand_determinism(self, arrays: Sequence[np.ndarray], ys: list[Tensor]) -> None:
        """Refuse a function that gives something else than ys at the same point."""
        if not np.array_equal(np.concatenate([y.numpy().ravel() for y in ys]), self(arrays), equal_nan=True):
            raise RuntimeError(f"{self.caller}: fn is not deterministic: at the same point, two calls differ. Make its "
                               "generator (of dropout, say) anew from a seed in each call")

    def at_complex(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The same at complex points, or a TypeError that names an op which is not analytic there."""
        try:
            with _watched_for_analyticity():
                return self(arrays)
        except (TypeError, np.exceptions.ComplexWarning) as error:
            raise TypeError(f"{self.caller}: {error}. The complex step needs ops that are analytic in NumPy's complex "
                            'arithmetic; method="central" has no such requirement') from error


class _watched_for_analyticity(Watcher):
    """Inside, an op that makes real numbers of complex ones is a TypeError: a derivative would be lost unseen."""

    def ran(self, op: Primitive, args: list[Any], params: dict[str, Any], out: Any, node: Any) -> None:
        if np.asarray(out).dtype.kind != "c" and any(np.asarray(a).dtype.kind == "c" for a in args):
            raise TypeError(f"`{op.name}` drops the imaginary part of its input")


def _moved(arrays: Sequence[np.ndarray], i: int, step: np.ndarray) -> list[np.ndarray]:
    return [a + step if k == i else a for k, a in enumerate(arrays)]


def central(f: Function, arrays: Sequence[np.ndarray], i: int, v: np.ndarray, h: float) -> np.ndarray:
    """(f(x + hv) − f(x − hv)) / 2h: the derivative of all outputs, flat, when input i moves along v, of its shape."""
    above, below = _moved(arrays, i, h * v), _moved(arrays, i, -h * v)
    return (f(above) - f(below)) / _length(above[i] - below[i], v)


def forward(f: Function, arrays: Sequence[np.ndarray], i: int, v: np.ndarray, h: float) -> np.ndarray:
    """(f(x + hv) − f(x)) / h: the same from one side; with a negative h from the other."""
    ahead = _moved(arrays, i, h * v)
    return (f(ahead) - f(arrays)) / _length(ahead[i] - arrays[i], v)


def complex_step(f: Function, arrays: Sequence[np.ndarray], i: int, v: np.ndarray,
                 h: float = COMPLEX_STEP) -> np.ndarray:
    """Im f(x + ihv) / h: the same without a subtraction, for functions that are analytic."""
    along = [a.astype(np.complex128) if a.dtype.kind == "f" else a for a in arrays]
    return f.at_complex(_moved(along, i, 1j * h * v)).imag / h


def _length(step: np.ndarray, v: np.ndarray) -> float:
    """How far x moved along v, after rounding: x + h is hardly ever h away from x."""
    scaled = v / np.abs(v).max()
    return float(np.vdot(step, scaled) / np.vdot(v, scaled))


def one_hot(x: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """The direction, in the shape of x, in which one element alone moves."""
    v = np.zeros(x.shape)
    v[index] = 1.0
    return v


def step_at(x: np.ndarray, index: tuple[int, ...], h: float) -> float:
    """h, in units of |x| where that is above 1, so that rounding does not swallow it."""
    return float(h * max(1.0, abs(x[index])))


def as_float64(inputs: Any, caller: str) -> tuple[list[str], list[np.ndarray]]:
    """For each input a name and a fresh contiguous array, so that neither views nor overlaps matter."""
    if isinstance(inputs, list) and any(isinstance(x, (Tensor, np.ndarray)) for x in inputs):
        raise TypeError(f"{caller}: several inputs are given as a tuple, (x, y); a list is one array")
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    names = [getattr(x, "name", None) or f"input {i}" for i, x in enumerate(inputs)]
    arrays = [np.array(operand(x), order="C") for x in inputs]
    for name, array in zip(names, arrays):
        if array.dtype.kind == "c":
            raise TypeError(f"{caller}: {name} is {array.dtype}; complex numbers are not differentiated here")
        if array.dtype.kind == "f" and array.dtype != np.float64:
            raise TypeError(f"{caller}: {name} is {array.dtype}; the check is made in float64 (in float32 a step of "
                            "1e-6 is lost in rounding): write .astype(np.float64)")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
            raise ValueError(f"{caller}: {name} at {at} is {array[at]}, from where there is no step; if it is a "
                             "constant, let fn close over it")
    if not any(array.dtype == np.float64 and array.size for array in arrays):
        raise ValueError(f"{caller}: nothing to check: no input is a float64 array with an element "
                         "(write 1.0 for 1)")
    return names, arrays


@dataclass(frozen=True)
class EpsCurve:
    """For each step the error of each kind of difference: the largest over all elements of the Jacobian, as a share
    of its largest element. `complex` is None where an op is not analytic, and `why_not` tells which."""

    steps: np.ndarray
    forward: np.ndarray
    central: np.ndarray
    complex: np.ndarray | None
    why_not: str = ""

    def best(self, kind: str = "central") -> tuple[float, float]:
        """The step at which a kind of difference is nearest to the truth, and how near: (h, error)."""
        if kind not in ("forward", "central", "complex"):
            raise ValueError(f"eps_curve: kind={kind!r}; it is forward, central or complex")
        errors = getattr(self, kind)
        if errors is None or np.isnan(errors).all():
            raise ValueError(f"eps_curve: no {kind} differences: {self.why_not or 'every step leaves the domain'}")
        k = int(np.nanargmin(errors))
        return float(self.steps[k]), float(errors[k])

    def table(self) -> str:
        rows = ["      step   forward   central   complex"]
        for k, h in enumerate(self.steps):
            last = "        -" if self.complex is None else f"{self.complex[k]:9.1e}"
            rows.append(f"{h:10.1e} {self.forward[k]:9.1e} {self.central[k]:9.1e} {last}")
        if self.why_not:
            rows.append(f"no complex step: {self.why_not}")
        if self._agree_on_another():
            rows.append("the differences agree with one another, and not with the graph: gradcheck finds the op")
        return "\n".join(rows)

    __str__ = table

    def _agree_on_another(self) -> bool:
        """Is the error, where it is least, as large for all kinds? Then it is not theirs."""
        least = [np.nanmin(e) for e in (self.forward, self.central, self.complex)
                 if e is not None and not np.isnan(e).all()]
        return len(least) > 1 and min(least) > 1e-3 and max(least) < 1.01 * min(least)

    def to_dict(self) -> dict[str, Any]:
        return {"steps": self.steps.tolist(), "forward": self.forward.tolist(), "central": self.central.tolist(),
                "complex": None if self.complex is None else self.complex.tolist(), "why_not": self.why_not}

    def plot(self) -> Any:
        """Error against step, both on logarithmic axes, as a matplotlib Figure (extra `[plot]`): truncation grows
        like h or h², rounding like 1/h. Errors of exactly 0 are drawn at 1e-17."""
        picture, axes = figure(1, 1, size=(6.4, 4.2))
        kinds = {"forward": self.forward, "central": self.central, "complex": self.complex}
        for (kind, errors), colour, marker in zip(kinds.items(), SERIES, "sov"):
            if errors is not None:
                axes.loglog(self.steps, np.maximum(errors, 1e-17), marker=marker, ms=4, color=colour, label=_(kind))
        rounding = np.finfo(float).eps / self.steps
        axes.loglog(self.steps, rounding, ":", color=INK, lw=1, label=_("rounding, 2.2e-16 / h"))
        axes.set(xlabel=_("step h"), ylabel=_("error, of the largest derivative"), ylim=(3e-18, 3))
        axes.legend(loc="lower right", fontsize=9, frameon=False, labelcolor=INK)
        return picture


def eps_curve(fn: Callable[..., Any], inputs: Any, *, steps: Sequence[float] | None = None) -> EpsCurve:
    """The error of forward, central and complex differences against the step, 1e-1 to 1e-13 unless `steps` says other.

    The error is taken against the gradient that the graph computes, so it is of use where that is right: see
    `gradcheck`. A step is in units of |x| where that is above 1. It shows that there is a best step, and why a central
    difference cannot tell a derivative that is smaller than about 1e-11 of the function itself. Inputs and functions
    that `gradcheck` refuses are refused here, and so are derivatives that are all 0, or not finite.

    >>> from tinygrad_attn import eps_curve
    >>> curve = eps_curve(lambda x: x.exp(), 1.0)
    >>> 1e-8 < curve.best("central")[0] < 1e-3, curve.best("complex")[1] < 1e-15
    (True, True)
    """
    arrays = as_float64(inputs, "eps_curve")[1]
    hs = np.array(10.0 ** -np.arange(1, 14) if steps is None else steps, dtype=float)
    if hs.ndim != 1 or not hs.size or not np.all((hs > 0) & np.isfinite(hs)):
        raise ValueError("eps_curve: steps must be finite numbers above 0, one at least")
    f = Function(fn, "eps_curve")
    xs, ys = f.recorded(arrays)
    wanted = [i for i, x in enumerate(xs) if x.requires_grad and x.size]
    rows = [grad(y, [xs[i] for i in wanted], seed, allow_unused=True) for y in ys for seed in unit_seeds(y)]
    exact = np.array([np.concatenate([g.numpy().ravel() for g in row]) for row in rows])   # (outputs, elements)
    f.demand_determinism(arrays, ys)
    if not np.isfinite(exact).all():
        raise ValueError("eps_curve: a derivative is NaN or infinite here; move the point")
    if not exact.size or not np.abs(exact).max() > 0:
        raise ValueError("eps_curve: all derivatives are 0 here, or there is none, so no error is a share of them")

    def errors(difference: Callable[..., np.ndarray]) -> np.ndarray:
        found = []
        for h in hs:
            columns = [difference(f, arrays, i, one_hot(arrays[i], index), step_at(arrays[i], index, h))
                       for i in wanted for index in np.ndindex(arrays[i].shape)]
            found.append(np.abs(np.stack(columns, axis=1) - exact).max() / np.abs(exact).max())
        return np.array(found)
    with np.errstate(all="ignore"):         # a step may leave the domain: that error is NaN, and is shown
        try:
            by_complex, why_not = errors(complex_step), ""
        except TypeError as error:
            by_complex, why_not = None, str(error).removeprefix("eps_curve: ").partition(". The complex")[0]
        return EpsCurve(hs, errors(forward), errors(central), by_complex, why_not)
