"""A side room on floor 4. Whose fault is it? What a failed gradcheck does next.

The recorded graph is an album of the computation: each node holds an op and the arrays it saw. So each op can be
judged alone, at the very point where it was used, and the first, in the order of the computation, whose own rule is
wrong is the culprit. Of an order above 1 the graph is that of the gradient, which has the ops of the rules in it.

To accuse an innocent is the worst fault here. A difference may be wrong itself: if its step is too long for a sharp
curve, or too short for a function whose terms are large, so that it sees rounding only. So an op is accused on
settled evidence alone: the differences at two steps in a row, the shortest that rounding allows, must agree with each
other and not with the rule. If no op is accused, the point is looked at, and then whether the function does something
that its graph does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .anomaly import users_line
from .comparison import Comparison, Judge, Mismatch, gradient_of
from .differences import Function, one_hot, step_at
from .engine import ModeChange, Node, topological_order
from .tensor import Tensor

STEPS = 10.0 ** np.arange(-13, 3)           # beside that of the check; in units of |x| where that is above 1
LARGE = 2000                                # elements above which an op is judged along directions
TRIALS = 100                                # distinct mismatches of an op that are looked at


@dataclass(frozen=True)
class Suspect:
    """What a failed check found when it looked for the cause; `text` says it in words. `kind` is

    - "rule": the vjp of `op` is wrong, for its `argument`, at index `at`;
    - "kink": that op bends or jumps there; "jump": the function does, outside of any op;
    - "domain": the function is not finite on both sides, however short the step;
    - "step": eps is too long, and "noise": it is too short, or rounding is too large for any;
    - "bypass": a part of the function is not recorded;
    - "unknown": none of these.
    """

    kind: str
    text: str
    op: str | None = None
    argument: int | None = None
    at: tuple[int, ...] | None = None
    analytic: float | None = None
    numeric: float | None = None


def find_suspect(fn: Callable[..., Any], derivative: Callable[..., Any], arrays: list[np.ndarray], judge: Judge,
                 compared: list[Comparison], worst: Mismatch, order: int) -> Suspect:
    """The cause of the `worst` of a comparison of `derivative`, which is `fn`, or its gradient, and so on, by order."""
    with np.errstate(all="ignore"):
        f = Function(derivative, "gradcheck")
        with _keeping_lines():
            xs, ys = f.recorded(arrays)
            own = topological_order(*Function(fn, "gradcheck").recorded(arrays)[1]) if order > 1 else []
        nodes = topological_order(*ys)
        trials = [*((node, 1) for node in reversed(nodes)), *((node, order) for node in reversed(own))]
        innocent: list[Suspect] = []
        for node, k in trials:
            for suspect in _trial(node, judge, k):
                if suspect.kind == "rule":
                    return suspect
                innocent.append(suspect)
        terms = sum(float(c.terms[worst.row or 0]) for c in compared if len(c.terms) > (worst.row or 0))
        seen = Evidence.of(f, arrays, replace(worst, terms=terms), judge.eps)
        return _cause(seen, worst, innocent, judge, _replayed(xs, ys), arrays)


def _cause(seen: Evidence, worst: Mismatch, innocent: list[Suspect], judge: Judge, graph: Function,
           arrays: list[np.ndarray]) -> Suspect:
    def named(kind: str, otherwise: Suspect) -> Suspect:
        """What was said of an op, if one stands where the function does, or else of the function."""
        found = next((suspect for suspect in innocent if suspect.kind == kind), otherwise)
        return replace(found, text=f"{every}, but {found.text}")
    every, h, noise = "Every op's own rule is right at the arrays it saw", *seen.nominal(seen.steps, seen.noise)
    if not seen.finite.any():
        return named("domain", Suspect("domain", "the function is not finite on both sides of this point, however "
                                                 "short the step"))
    if seen.bends(worst):
        return named("kink", Suspect("jump", "the function itself has a kink, a tie or a jump here, outside of any op "
                                             f"(a branch on values, perhaps): {seen.slopes()}"))
    settled = seen.settled(worst)
    if settled is not None and abs(settled[1] - worst.analytic) <= 0.1 * worst.doubt:
        step, value = settled
        if step < h:
            step, value = seen.longest_that_agrees(worst, below=h)
            return Suspect("step", f"{every}, and a step of {step:.0e} gives {value:.6g}, which agrees with the graph: "
                                   f"eps={judge.eps:g} is too long here")
        return Suspect("noise", f"{every}, and a step of {step:.0e} gives {value:.6g}, which agrees with the graph: "
                                f"eps={judge.eps:g} is too short here, where the terms of the function are of size "
                                f"{seen.size:.1g} and differences are lost in their rounding")
    if settled is None and noise > 0.02 * worst.doubt:
        return Suspect("noise", f"{every}. The terms of the function are of size {seen.size:.1g}: their rounding "
                                f"alone can move a difference by {noise:.1g}, and no step gives a settled one")
    recorded = Evidence.of(graph, arrays, worst, judge.eps)
    at = seen.k if settled is None else int(np.argmin(np.abs(seen.steps - settled[0])))
    value, alone = float(seen.middle[at]), float(recorded.middle[at])
    if abs(alone - worst.analytic) <= 0.1 * worst.doubt and abs(value - alone) > 0.5 * worst.doubt:
        return Suspect("bypass", f"{every}, and the recorded graph, computed again, moves by {alone:.6g} where the "
                                 f"function moves by {value:.6g}: a part of the function depends on "
                                 f"{judge.names[worst.i]} without being recorded, through .numpy(), .detach(), "
                                 "no_grad(), or a vjp that does one of these")
    return Suspect("unknown", f"{every}, as far as differences can tell, and the cause was not found: it is no kink, "
                              "and no step gives what the graph says")


# ------------------------------------------------------------------------------------------------ one op on trial
def _trial(node: Node, judge: Judge, order: int) -> Iterator[Suspect]:
    """What is wrong with one op, with respect to its tracked arguments, at the arrays that it saw. An op that cannot
    be computed again alone cannot be judged."""
    tracked = [i for i, x in enumerate(node.inputs) if x is not None and x._requires_grad]
    if not tracked or not np.size(node.out):
        return
    at = f", called at {node.line}" if hasattr(node, "line") else ""
    yield from _written_into(node, tracked, at)
    tied: dict[int, list[int]] = {}
    for i in tracked:                       # the same tensor twice, as in x * x, is moved in both places as well
        tied.setdefault(id(node.inputs[i]), []).append(i)
    arrangements = [[[i] for i in tracked]] + [list(tied.values())] * (len(tied) < len(tracked))
    for places in arrangements:
        try:
            yield from _judged(node, places, judge, order, at)
        except Exception:                   # it may want what only its place in the graph gives it
            return


def _written_into(node: Node, tracked: list[int], at: str) -> Iterator[Suspect]:
    """A rule that changes g, or an argument, changes it for others as well."""
    g = np.ones_like(np.asarray(node.out))
    g.setflags(write=False)
    for i in tracked:
        try:
            if node.op.joint:
                node.op.joint({i}, g, node.out, *node.args, **node.params)
            else:
                node.op.vjps[i](g, node.out, *node.args, **node.params)
        except ValueError as error:
            if "read-only" in str(error):
                yield Suspect("rule", f"`{node.op.name}`, argument {i}: its rule writes into an array that is not its "
                                      f"own, g perhaps, which other rules share{at}", node.op.name, i)
        except Exception:                   # the trial itself will tell
            return


def _judged(node: Node, places: list[list[int]], judge: Judge, order: int, at: str) -> Iterator[Suspect]:
    arrays = [np.array(node.args[group[0]], np.float64) for group in places]

    def alone(*xs: Tensor) -> Any:
        args = list(node.args)
        for group, x in zip(places, xs):
            for i in group:
                args[i] = x
        return node.op(*args, **node.params)
    derivative: Callable[..., Any] = alone
    for _ in range(order - 1):
        derivative = gradient_of(derivative, arrays)
    large = max(np.size(node.out), *(a.size for a in arrays)) > LARGE
    judge = replace(judge, method="complex" if judge.method == "complex" else "projected" if large else "central")
    try:
        compared = list(judge.comparisons(derivative, arrays))
    except TypeError:                       # not analytic
        judge = replace(judge, method="central")
        compared = list(judge.comparisons(derivative, arrays))
    exact = judge.method == "complex"
    tight = 1e-13 if exact else 1e-6        # than the check, since an error may grow on its way to the output
    f, terms = Function(derivative, "gradcheck"), np.sum([c.terms for c in compared], axis=0)
    for comparison in compared:
        for m in _distinct(comparison, atol=tight * comparison.largest, rtol=10 * tight):
            seen = Evidence.of(f, arrays, replace(m, terms=float(terms[m.row or 0])), judge.eps)
            yield from _verdict(node.op.name, places[m.i], m, seen, order, exact, at)


def _distinct(comparison: Comparison, atol: float, rtol: float) -> Iterator[Mismatch]:
    """The mismatches, but of those with the same two numbers only one: of a thousand zeros at a kink one will do."""
    met: set[tuple[str, str]] = set()
    for m in comparison.mismatches(atol, rtol):
        numbers = (f"{m.analytic:.3g}", f"{m.numeric:.3g}")
        if numbers not in met:
            met.add(numbers)
            yield comparison.blamed(m.row or 0) if comparison.blamed else m
        if len(met) == TRIALS:
            return


def _verdict(op: str, places: list[int], m: Mismatch, seen: Evidence, order: int, exact: bool,
             at: str) -> Iterator[Suspect]:
    """A suspect, if a mismatch in one op is due to its rule, or to the point; none if it may be due to the step."""
    arguments = f"argument {places[0]}" if len(places) == 1 else (
        f"arguments {' and '.join(map(str, places))}, which are one tensor")
    where, facts = f"`{op}`, {arguments}, at {m.at}", (op, places[0], m.at, m.analytic)
    settled = seen.settled(m)
    if not seen.finite.any() or (np.isnan(m.analytic) and not seen.all_finite):
        yield Suspect("domain", f"{where}, is not finite on both sides of its point, however short the step: analytic "
                                f"{m.analytic:.6g}", *facts, m.numeric)
    elif seen.bends(m):
        yield Suspect("kink", f"{where}, stands at a kink, a tie or a jump: {seen.slopes()}", *facts, m.numeric)
    elif settled is not None or exact:
        numeric = m.numeric if settled is None or abs(m.numeric - settled[1]) <= 0.1 * m.doubt else settled[1]
        if not abs(numeric - m.analytic) <= 0.1 * m.doubt:
            of = "" if order == 1 else f" (in the derivative of order {order})"
            yield Suspect("rule", f"{where}: analytic {m.analytic:.6g}, numeric {numeric:.6g}. This is the first op "
                                  f"whose own rule is wrong{of}{at}", *facts, numeric)


@dataclass(frozen=True)
class Evidence:
    """How one output moves with one element, by steps of many lengths, of which the k-th is that of the check: to the
    left of the point, across it and to the right. `noise` is what rounding alone can make of a difference, `size` that
    of the terms that were rounded; `finite` tells at which steps all three are, and `all_finite` whether all outputs
    are, at some step."""

    steps: np.ndarray
    k: int
    left: np.ndarray
    middle: np.ndarray
    right: np.ndarray
    size: float
    all_finite: bool

    @classmethod
    def of(cls, f: Function, arrays: list[np.ndarray], m: Mismatch, eps: float) -> Evidence:
        x, v, here = arrays[m.i], one_hot(arrays[m.i], m.at), f(arrays)
        found, all_finite = [], False
        steps = np.unique([*STEPS, eps / 10, eps]) * step_at(x, m.at, 1.0)
        for h in steps:
            above, below = x + h * v, x - h * v
            up, down = (f([moved if k == m.i else a for k, a in enumerate(arrays)]) for moved in (above, below))
            ahead, behind = above[m.at] - x[m.at], x[m.at] - below[m.at]
            all_finite = all_finite or bool(np.isfinite([up, here, down]).all())
            found.append((m.of(here - down) / behind, m.of(up - down) / (ahead + behind), m.of(up - here) / ahead)
                         if min(ahead, behind) > 0 else (np.nan, np.nan, np.nan))
        left, middle, right = np.array(found).T
        largest = float(np.abs(here[m.row]) if m.weights is None else np.abs(here) @ np.abs(m.weights))
        return cls(steps, int(np.argmin(np.abs(steps - step_at(x, m.at, eps)))), left, middle, right,
                   max(largest, m.terms), all_finite)

    def nominal(self, *columns: np.ndarray) -> list[float]:
        """Of each column the number at the step of the check."""
        return [float(column[self.k]) for column in columns]

    @property
    def noise(self) -> np.ndarray:
        return 4 * np.finfo(float).eps * self.size / self.steps

    @property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.left) & np.isfinite(self.middle) & np.isfinite(self.right)

    def settled(self, m: Mismatch) -> tuple[float, float] | None:
        """The shortest step and the difference there, such that rounding is far below what is in doubt, and the next
        step agrees; None if there is none."""
        good = np.isfinite(self.middle) & (self.noise <= 0.02 * m.doubt)
        same = np.abs(np.diff(self.middle)) <= 0.05 * m.doubt
        for k in np.flatnonzero(good[:-1] & good[1:] & same):
            return float(self.steps[k]), float(self.middle[k])
        return None

    def longest_that_agrees(self, m: Mismatch, below: float) -> tuple[float, float]:
        """The longest step, shorter than `below`, whose difference agrees with the graph, and that difference."""
        k = np.flatnonzero((self.steps < below) & (np.abs(self.middle - m.analytic) <= 0.01 * m.doubt))
        k = k if k.size else np.flatnonzero((self.steps < below) & (np.abs(self.middle - m.analytic) <= 0.1 * m.doubt))
        return float(self.steps[k[-1]]), float(self.middle[k[-1]])

    def bends(self, m: Mismatch) -> bool:
        """Is this a kink, where any number between the slopes is a fair answer? At one, other than in a curve that is
        sharp but smooth, left and right differ as much with a shorter step."""
        low, high = sorted(self.nominal(self.left, self.right))
        gap, nearer = high - low, abs(self.right[self.k - 1] - self.left[self.k - 1])
        fair = low - 0.02 * gap <= m.analytic <= high + 0.02 * gap
        return bool(fair and gap > 0.5 * m.doubt and nearer > 0.5 * gap and gap > 20 * self.noise[self.k - 1])

    def slopes(self) -> str:
        left, right = self.nominal(self.left, self.right)
        return (f"the slope is {left + 0.0:.6g} to the left and {right + 0.0:.6g} to the right, and a difference "
                "across both means nothing")


def _replayed(xs: list[Tensor], ys: list[Tensor]) -> Function:
    """The recorded graph as a function of its leaves, with all that was not recorded kept as it was."""
    nodes = list(reversed(topological_order(*ys)))

    def replay(*leaves: Tensor) -> list[Tensor]:
        new: dict[Any, Any] = {id(x): leaf._array for x, leaf in zip(xs, leaves)}
        for node in nodes:
            args = [new.get(id(x.node or x), a) if x is not None else a for x, a in zip(node.inputs, node.args)]
            new[id(node)] = node.op.forward(*args, **node.params)
        return [Tensor(new.get(id(y.node or y), y._array)) for y in ys]
    return Function(replay, "gradcheck")


class _keeping_lines(ModeChange):
    """Inside, each node keeps the line of the user's program that made it."""

    def __init__(self) -> None:
        super().__init__(watcher=self)

    def ran(self, op: Any, args: Any, params: Any, out: Any, node: Node | None) -> None:
        if node:
            node.line = users_line()

    def sent_back(self, *what: Any) -> None:
        """Of no interest here."""
