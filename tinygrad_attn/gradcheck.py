"""A side room on floor 4. `gradcheck`: is the gradient that the graph computes the true one?

The judge is the definition of the derivative: move an input and see how the output moves (`differences.py`). It
knows nothing of graphs and vjps, so it cannot share their mistakes. `comparison.py` sets both side by side, and
if they disagree `suspects.py` finds out why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .comparison import DIRECTIONS, Comparison, InputReport, Judge, Mismatch, gradient_of
from .differences import as_float64
from .errors import GradcheckError
from .languages import _
from .plots import INK, figure
from .suspects import Suspect, find_suspect

METHODS = ("central", "complex", "projected")


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
        return float(np.max([entry.max_abs_error for entry in self.inputs]))     # a NaN is the largest

    @property
    def checked(self) -> str:
        """What was compared, and so what was not."""
        if self.method != "projected":
            return "every element of the Jacobian"
        return (f"uᵀ J v for {DIRECTIONS} drawn pairs of weights u of the outputs and a direction v of the input, for "
                "each input and order. No element was compared by itself: an error E of the Jacobian J was seen if, "
                "and only if, |uᵀ E v| exceeds atol + rtol |uᵀ J v| for one of these pairs, up to the truncation and "
                "rounding of a difference; u and v are ± 0.5 to 1.5 (v times |x| where that is above 1)")

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        rows = [("input", "shape", "abs. error", "of largest", "at")]
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
            name = re.sub("^input(?= )", _("input"), entry.name)
            ax.set(title=f"{name} {entry.shape}", xlabel=_("last axis"), ylabel=_("all other axes"))
            for axis, n in ((ax.xaxis, table.shape[1]), (ax.yaxis, table.shape[0])):
                axis.set_ticks(np.unique(np.linspace(0, n - 1, min(n, 6)).round().astype(int)))
        bar = picture.colorbar(shown, ax=list(np.atleast_1d(axes))).ax
        bar.set_ylabel(_("absolute error"), color=INK)
        bar.tick_params(which="both", colors=INK)
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

    A kink where the rule says the mean of both slopes, such as |x| at 0, agrees with a central difference and passes.
    A mismatch is a GradcheckError. It names the input, the index, both numbers, and the op whose rule is wrong, or
    else says what is suspicious about the point; its `.report` has it all, and `.report.suspect` the cause and its
    `kind`. A check that could not tell right from wrong is refused: float32 inputs, a function that is not
    deterministic, or one that does not depend on an input through the graph.

    >>> from tinygrad_attn import gradcheck, softmax
    >>> gradcheck(softmax, [1.0, 2.0, 3.0], order=2).max_abs_error < 1e-8
    True
    >>> gradcheck(softmax, [1.0, 2.0, 3.0], method="complex").max_abs_error < 1e-15
    True
    """
    names, arrays = as_float64(inputs, "gradcheck")
    numbers = {"eps": eps, "atol": atol, "rtol": rtol, "order": order}
    for option, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float, np.integer, np.floating)):
            raise TypeError(f"gradcheck: {option}={number!r} must be a number")
    if not 1 <= order < np.inf or order != int(order):
        raise ValueError(f"gradcheck: order={order}; it is 1 for gradients, 2 for gradients of gradients, and so on")
    if not (1e-14 <= eps < np.inf and 0 <= atol < np.inf and 0 <= rtol < np.inf):
        raise ValueError(f"gradcheck: eps={eps}, atol={atol}, rtol={rtol}; they are finite, the tolerances are not "
                         "below 0, and the step is at least 1e-14, or it is lost in the rounding of x")
    if method not in METHODS:
        raise ValueError(f"gradcheck: method={method!r}; it is one of {', '.join(METHODS)}")
    judge = Judge(names, eps, method, np.random.default_rng(0 if rng is None else rng))
    entries: list[InputReport] = []
    derivative = fn
    for k in range(1, int(order) + 1):
        compared = list(judge.comparisons(derivative, arrays, strict=k == 1))
        found = [comparison.report(names[comparison.i]) for comparison in compared]
        entries = [old.merged(new) for old, new in zip(entries, found)] if entries else found
        for comparison in compared:
            for worst in islice(comparison.mismatches(atol, rtol), 1):
                text = _numbers(names[worst.i], comparison, worst, atol, rtol)
                if comparison.blamed:
                    worst = comparison.blamed(worst.row or 0)
                    text += (f". Halving the direction leads to {list(worst.at)}: analytic {worst.analytic:.10g}, "
                             f"numeric {worst.numeric:.10g}")
                suspect = find_suspect(fn, derivative, arrays, judge, compared, worst, k)
                raise GradcheckError(f"gradcheck: {text}. {suspect.text}.",
                                     GradcheckReport(k, tuple(entries), method, passed=False, suspect=suspect))
        if k < order:
            derivative = gradient_of(derivative, arrays)
    return GradcheckReport(int(order), tuple(entries), method)


def _numbers(name: str, comparison: Comparison, m: Mismatch, atol: float, rtol: float) -> str:
    place = f"at {list(m.at)}, output element {m.row}"
    if comparison.blamed:
        place = f"along random direction {m.row}, for a random weighting of the outputs"
    scale = max(abs(m.analytic), abs(m.numeric))
    share = m.error / scale if scale > 0 else np.nan
    return (f"{name} {place}: analytic {m.analytic:.10g}, numeric {m.numeric:.10g}; absolute error {m.error:.3g}, "
            f"relative {share:.3g} (allowed: atol={atol:g} + rtol={rtol:g} · |numeric|)")
