"""A side room on floor 4. `gradcheck`: is the gradient that the graph computes the true one? If not, whose fault is it?

The judge is the definition of the derivative: move an input and see how the output moves (`differences.py`). It
knows nothing of graphs and vjps, so it cannot share their mistakes.

When the two disagree, the recorded graph can tell more. Each of its nodes holds an op and the arrays it saw, so each
op can be judged alone, at the very point where it was used: the first, in the order of the computation, whose own
rule is wrong is the culprit. If all rules are right, the point itself is looked at. At a kink or a tie the slopes to
the left and to the right differ, and no rule can be right there. Or a step is too long, or a part of the function
bypasses the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from .comparison import DIRECTIONS, InputReport, Judge, Mismatch, gradient_of
from .differences import Function, as_float64, central, forward, one_hot, step_at
from .engine import Node, topological_order
from .errors import GradcheckError
from .plots import figure
from .tensor import Tensor

METHODS = ("central", "complex", "projected")


@dataclass(frozen=True)
class Suspect:
    """What a failed check found when it looked for the cause; `text` says it in words. `kind` is

    - "rule": the vjp of `op` is wrong, for its `argument`, at index `at`;
    - "kink": that op bends or jumps there, and "domain": it is not finite on both sides;
    - "jump": the function bends or jumps, outside of any op;
    - "step": eps is too long; "method": the complex step cannot judge an op that is not analytic;
    - "bypass": a part of the function is not recorded.
    """

    kind: str
    text: str
    op: str | None = None
    argument: int | None = None
    at: tuple[int, ...] | None = None
    analytic: float | None = None
    numeric: float | None = None


@dataclass(frozen=True)
class GradcheckReport:
    """What a check has seen. It is true if the check passed, so that `assert gradcheck(...)` reads well; a
    `GradcheckError` carries one that is false, with a `suspect`."""

    order: int
    inputs: tuple[InputReport, ...]
    method: str = "central"
    passed: bool = True
    suspect: Suspect | None = None

    @property
    def max_abs_error(self) -> float:
        return max(entry.max_abs_error for entry in self.inputs)

    @property
    def checked(self) -> str:
        """What was compared, and so what was not."""
        if self.method != "projected":
            return "every element of the Jacobian"
        return (f"uᵀ J v for {DIRECTIONS} drawn pairs of weights u of the outputs and a direction v of the input, for "
                "each input and order. No element was compared by itself: an error E of the Jacobian J was seen if, "
                "and only if, |uᵀ E v| exceeds the tolerance for one of these pairs")

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        rows = [("input", "shape", "abs. error", "rel. error", "at")]
        rows += [(e.name, str(e.shape), f"{e.max_abs_error:.1e}", f"{e.max_rel_error:.1e}",
                  "-" if e.at is None else str(e.at)) for e in self.inputs]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join([
            f"gradcheck {'passed' if self.passed else 'FAILED'}, order {self.order}, method {self.method}",
            *("  ".join(cell.ljust(n) for cell, n in zip(row, widths)).rstrip() for row in rows),
            f"compared: {self.checked}", *([self.suspect.text] if self.suspect else [])])

    def plot(self) -> Any:
        """The error at each element, a heat map for each input, as a matplotlib Figure (extra `[plot]`). Axes before
        the last lie one below the other. Agreement to 1e-17 and better is one colour, and NaN is the worst."""
        if any(entry.errors is None for entry in self.inputs):
            raise ValueError('gradcheck: method="projected" compares no elements; for a picture use "central"')
        picture, axes = figure(1, len(self.inputs), size=(3.4 * len(self.inputs) + 1.2, 3.4))
        from matplotlib.colors import LogNorm
        for ax, entry in zip(np.atleast_1d(axes), self.inputs):
            errors = np.clip(np.nan_to_num(np.atleast_1d(np.asarray(entry.errors)), nan=np.inf), 1e-17, 1e2)
            table = errors.reshape(-1, errors.shape[-1])
            shown = ax.imshow(table, norm=LogNorm(1e-17, 1e2), cmap="magma", aspect="auto", interpolation="nearest")
            ax.grid(False)
            ax.set(title=f"{entry.name} {entry.shape}", xlabel="last axis", ylabel="all other axes")
            for axis, n in ((ax.xaxis, table.shape[1]), (ax.yaxis, table.shape[0])):
                axis.set_ticks(np.unique(np.linspace(0, n - 1, min(n, 6)).round().astype(int)))
        picture.colorbar(shown, ax=list(np.atleast_1d(axes)), label="absolute error")
        return picture


def gradcheck(fn: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              order: int = 1, method: str = "central", rng: Any = None) -> GradcheckReport:
    """Compare the Jacobian of `fn(*inputs)`, by vjps, with the definition of the derivative.

    `inputs` is a tuple, or one input. Floating ones must be float64 and are made leaves; integer and boolean
    ones are constants. Inputs are left untouched. `fn` returns a Tensor, or several. An element passes if
    |analytic − numeric| ≤ atol + rtol |numeric|. `order=2` checks the gradient's gradient as well, and so on.

    - `method="central"`: each element by a central difference of step `eps`, times |x| where that is above 1.
    - `method="complex"`: each element by the complex step, exact to rounding, for ops that are analytic as NumPy
      computes them; another op is a TypeError that names it. `eps` is not used.
    - `method="projected"`: along a few directions drawn from `rng` (a generator or a seed, 0 if not given), in six
      evaluations an input, however many elements it has. `report.checked` says what that can miss.

    A mismatch is a GradcheckError. It names the input, the index, both numbers, and the op whose rule is wrong, or
    else says what is suspicious about the point; its `.report` has it all. A check that could not tell right from
    wrong is refused: float32 inputs, a function that is not deterministic, or one that does not depend on an input
    through the graph.

    >>> from tinygrad_attn import gradcheck, softmax
    >>> gradcheck(softmax, [1.0, 2.0, 3.0], order=2).max_abs_error < 1e-8
    True
    >>> gradcheck(softmax, [1.0, 2.0, 3.0], method="complex").max_abs_error < 1e-15
    True
    """
    names, arrays = as_float64(inputs, "gradcheck")
    if order < 1 or order != int(order):
        raise ValueError(f"gradcheck: order={order}; it is 1 for gradients, 2 for gradients of gradients, and so on")
    if not (0 < eps < np.inf and 0 <= atol < np.inf and 0 <= rtol < np.inf):
        raise ValueError(f"gradcheck: eps={eps}, atol={atol}, rtol={rtol}; they are finite, the step is above 0, and "
                         "the tolerances are not below")
    if method not in METHODS:
        raise ValueError(f"gradcheck: method={method!r}; it is one of {', '.join(METHODS)}")
    judge = Judge(names, eps, method, np.random.default_rng(0 if rng is None else rng))
    entries: list[InputReport] = []
    derivative = fn
    for k in range(1, order + 1):
        compared = list(judge.comparisons(derivative, arrays, strict=k == 1))
        found = [comparison.report(names[comparison.i]) for comparison in compared]
        entries = [old.merged(new) for old, new in zip(entries, found)] if entries else found
        for comparison in compared:
            for worst in islice(comparison.mismatches(atol, rtol), 1):
                suspect = _suspect(fn, derivative, arrays, judge, worst, k)
                numbers = _numbers(names[worst.i], worst, atol, rtol)
                raise GradcheckError(f"gradcheck: {numbers}. {suspect.text}.",
                                     GradcheckReport(k, tuple(entries), method, passed=False, suspect=suspect))
        if k < order:
            derivative = gradient_of(derivative, arrays)
    return GradcheckReport(order, tuple(entries), method)


def _numbers(name: str, m: Mismatch, atol: float, rtol: float) -> str:
    of = "a weighted sum of the outputs" if m.row is None else f"output element {m.row}"
    return (f"{name} at {list(m.at)}, {of}: analytic {m.analytic:.10g}, numeric {m.numeric:.10g}; absolute error "
            f"{m.error:.3g}, relative {m.error / max(abs(m.analytic), abs(m.numeric)):.3g} (allowed: atol={atol:g} + "
            f"rtol={rtol:g} · |numeric|)")


def _suspect(fn: Callable[..., Any], derivative: Callable[..., Any], arrays: list[np.ndarray], judge: Judge,
             worst: Mismatch, order: int) -> Suspect:
    """The cause of a mismatch in `derivative`, which is `fn`, or its gradient, or that of its gradient, by order."""
    innocent: list[Suspect] = []
    for node in reversed(topological_order(*Function(fn, "gradcheck").recorded(arrays)[1])):
        for suspect in _trial(node, judge, order) if np.size(node.out) and node.inputs else ():
            if suspect.kind == "rule":
                return suspect
            innocent.append(suspect)
    near = Slopes.of(Function(derivative, "gradcheck"), arrays, worst, judge.eps)
    every = "Every op's own rule is right at the arrays it saw"
    if judge.method == "complex" and abs(near.middle - worst.analytic) < 0.5 * worst.error:
        return Suspect("method", f"{every}, and a central difference agrees with the graph: an op is not analytic in "
                                 'NumPy\'s complex arithmetic, so that method="complex" cannot judge this function')
    if innocent:
        return replace(innocent[0], text=f"{every}; but {innocent[0].text}")
    if not near.finite:
        return Suspect("domain", f"{every}, but the function is not finite on both sides of this point")
    if near.bend(worst):
        return Suspect("jump", f"{every}, but the function itself has a kink, a tie or a jump here, outside of any op "
                               f"(a branch on values, perhaps): {near}")
    if abs(near.closer - worst.analytic) < 0.5 * worst.error:
        return Suspect("step", f"{every}, and a step ten times shorter gives {near.closer:.6g}: eps={judge.eps:g} is "
                               "too long here")
    return Suspect("bypass", f"{every}, and the function is smooth here: a part of it depends on "
                             f"{judge.names[worst.i]} without being recorded, through .numpy(), .detach(), no_grad(), "
                             "or a vjp that does one of these")


def _trial(node: Node, judge: Judge, order: int) -> Iterator[Suspect]:
    """What is wrong with one op, with respect to its tracked arguments, at the arrays that it saw."""
    tracked = [i for i, x in enumerate(node.inputs) if x is not None and x._requires_grad]
    arrays = [np.array(node.args[i], np.float64) for i in tracked]

    def derivative(*xs: Tensor) -> Any:
        args = list(node.args)
        for i, x in zip(tracked, xs):
            args[i] = x
        return node.op(*args, **node.params)
    large = np.size(node.out) * max((a.size for a in arrays), default=0) > 4_000_000
    alone = Judge([], judge.eps, "projected" if large else "central", judge.rng)
    for k in range(1, order + 1):
        for comparison in alone.comparisons(derivative, arrays):
            # Tighter than the check itself, since an error may grow on its way to the output.
            for mismatch in islice(comparison.mismatches(atol=1e-7, rtol=1e-5), 200):
                near = Slopes.of(Function(derivative, "gradcheck"), arrays, mismatch, judge.eps)
                yield from _verdict(node.op.name, tracked[mismatch.i], mismatch, near, k)
        if k < order:
            derivative = gradient_of(derivative, arrays)


def _verdict(op: str, argument: int, m: Mismatch, near: Slopes, order: int) -> Iterator[Suspect]:
    """Is a mismatch in one op due to its rule, or to the point? If it is due to the step, nothing is said."""
    where, facts = f"`{op}`, argument {argument}, at {m.at}", (op, argument, m.at, m.analytic, m.numeric)
    numbers = f"analytic {m.analytic:.6g}, numeric {m.numeric:.6g}"
    if not (near.finite and np.isfinite(m.numeric)) or (np.isnan(m.analytic) and not near.all_finite):
        yield Suspect("domain", f"{where}, is not finite on both sides of its point: {numbers}", *facts)
    elif near.bend(m):
        yield Suspect("kink", f"{where}, stands at a kink, a tie or a jump: {near}", *facts)
    elif near.settled(m) or np.isnan(m.analytic):
        of = "" if order == 1 else f" (in the derivative of order {order})"
        yield Suspect("rule", f"{where}: {numbers}. This is the first op whose own rule is wrong{of}", *facts)


@dataclass(frozen=True)
class Slopes:
    """How an output moves with one element: to the left of the point, across it, to the right; and, with a tenth of
    the step, across it, and by how much left and right then differ. And whether all outputs stay finite."""

    left: float
    middle: float
    right: float
    closer: float
    gap: float
    all_finite: bool

    @classmethod
    def of(cls, f: Function, arrays: list[np.ndarray], m: Mismatch, eps: float) -> Slopes:
        v, h = one_hot(arrays[m.i], m.at), step_at(arrays[m.i], m.at, eps)
        with np.errstate(all="ignore"):
            left, right, near_left, near_right = (forward(f, arrays, m.i, v, step) for step in (-h, h, -h / 10, h / 10))
            middle, closer = (central(f, arrays, m.i, v, step) for step in (h, h / 10))
        return cls(m.of(left), m.of(middle), m.of(right), m.of(closer), abs(m.of(near_right) - m.of(near_left)),
                   bool(np.isfinite([left, right]).all()))

    @property
    def finite(self) -> bool:
        return bool(np.isfinite([self.left, self.middle, self.right]).all())

    def bend(self, m: Mismatch) -> bool:
        """Is this a kink, where any number between the slopes is a fair answer? At one, other than in a curve that is
        sharp but smooth, left and right differ as much however short the step."""
        low, high = sorted((self.left, self.right))
        slack = 0.02 * (high - low)
        fair = low - slack <= m.analytic <= high + slack
        return fair and high - low > 0.5 * m.error and self.gap > 0.5 * (high - low)

    def settled(self, m: Mismatch) -> bool:
        """Does a shorter step give the same number?"""
        change = abs(self.closer - m.numeric)
        return change <= 0.1 * m.error and change <= 0.1 * max(abs(self.closer), abs(m.numeric)) + 1e-5

    def __str__(self) -> str:
        return (f"the slope is {self.left + 0.0:.6g} to the left and {self.right + 0.0:.6g} to the right, and a "
                "difference across both means nothing")
