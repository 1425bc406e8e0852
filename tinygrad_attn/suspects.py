"""A side room on floor 4. Whose fault is it? What a failed gradcheck does next.

The recorded graph is an album of the computation: each node holds an op and the arrays it saw. So each op can be
judged alone, at the very point where it was used, and the first, in the order of the computation, whose own rule is
wrong is the culprit. Of an order above 1 the graph is that of the gradient, which has the ops of the rules in it.

To accuse an innocent is the worst fault here, and a difference may itself be wrong: its step may be too long for a
sharp curve, or too short for a function whose terms are large, so that it sees rounding only. So an op is accused on
settled evidence alone: the differences at the two shortest steps that rounding allows must agree with each other, and
no pair of longer steps may agree with the rule. If no op is accused, the point is looked at, and then whether the
function does something that its graph does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .anomaly import Watcher, users_line
from .comparison import Comparison, Judge, Mismatch, gradient_of
from .differences import Function, one_hot, step_at
from .engine import ModeChange, Node, Primitive, leading_to, topological_order
from .tensor import Tensor

DECADES = np.arange(-7, 7)                  # of steps that are tried, around that of the check
NOMINAL = 7                                 # where that is
LARGE = 300                                 # elements above which an op is judged along directions
TRIALS = 100                                # distinct mismatches of an op that are looked at


@dataclass(frozen=True)
class Suspect:
    """What a failed check found when it looked for the cause; `text` says it in words. `kind` is

    - "rule": the vjp of `op` is wrong, for its `argument`, at index `at`;
    - "kink": that op bends or jumps there; "jump": the function does, outside of any op;
    - "domain": an op, or the function, is not finite on both sides, or its derivative is not;
    - "step": eps is too long; "noise": it is too short, or rounding hides the derivative at every step;
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
    """The cause of the `worst` mismatch of `derivative`, which is `fn`, or its gradient, and so on, by order."""
    with np.errstate(all="ignore"), ModeChange(watcher=None):
        f = Function(derivative, "gradcheck")
        with _keeping_lines():
            xs, ys = f.recorded(arrays)
            base = Function(fn, "gradcheck").recorded(arrays) if order > 1 else ([], [])
        innocent: list[Suspect] = []
        unjudged: dict[str, None] = {}
        trials = [(node, places, 1) for node, places in _judgeable(xs, ys)]
        trials += [(node, places, order) for node, places in _judgeable(*base)]
        for node, places, k in trials:
            for suspect in _trial(node, places, judge, k, unjudged):
                if suspect.kind == "rule":
                    return suspect
                innocent.append(suspect)
        for node, places, _ in trials:
            for suspect in _written_into(node, places):
                return suspect
        nodes = topological_order(*ys)
        size = max([float(np.abs(node.out).max(initial=0.0)) for node in nodes if node.out is not None], default=0.0)
        seen = Evidence.of(f, arrays, replace(worst, terms=max(worst.terms, size)), judge.eps)
        every = "No op's own rule was found wrong"
        if unjudged:
            names = ", ".join(f"`{op}`" for op in unjudged)
            every += f" (of {names}, which could not be computed alone, nothing is known)"
        return _cause(every, seen, worst, innocent, judge,
                      lambda: Evidence.of(_replayed(xs, ys), arrays, worst, judge.eps))


def _cause(every: str, seen: Evidence, worst: Mismatch, innocent: list[Suspect], judge: Judge,
           recorded: Callable[[], Evidence]) -> Suspect:
    """What it is, if it is no rule. `seen` is of the function, `recorded()` of its graph, computed again."""
    def named(kind: str, otherwise: Suspect) -> Suspect:
        """What was said of an op, if one stands where the function does, or else of the function."""
        found = next((suspect for suspect in innocent if suspect.kind == kind), otherwise)
        return replace(found, text=f"{every}, but {found.text}")
    nowhere = Suspect("domain", "the function is not finite on both sides of this point, at any step tried")
    if not seen.finite.any() or (not np.isfinite(worst.analytic) and any(s.kind == "domain" for s in innocent)):
        return named("domain", nowhere)
    if seen.bends(worst):
        return named("kink", Suspect("jump", "the function itself has a kink, a tie or a jump here, outside of any op "
                                             f"(a branch on values, perhaps): {seen.slopes()}"))
    settled, h = seen.settled(worst), seen.steps[seen.k]
    agreeing = seen.agreeing(worst)
    if agreeing and judge.method != "complex":
        step, value = agreeing
        if step < h:
            return Suspect("step", f"{every}, and a step of {step:.0e} gives {value:.6g}, which agrees with the graph: "
                                   f"eps={judge.eps:g} is too long here")
        return Suspect("noise", f"{every}, and a step of {step:.0e} gives {value:.6g}, which agrees with the graph: "
                                f"eps={judge.eps:g} is too short here, where the terms of the function are of size "
                                f"{seen.size:.1g} and differences are lost in their rounding")
    if settled is None and seen.noise[seen.k] > 0.02 * worst.doubt:
        return Suspect("noise", f"{every}. The terms of the function are of size {seen.size:.1g}: their rounding "
                                f"alone can move a difference by {seen.noise[seen.k]:.1g}, which hides the derivative")
    at = seen.k if settled is None else int(np.argmin(np.abs(seen.steps - settled[0])))
    value, alone = float(seen.middle[at]), float(recorded().middle[at])
    if abs(alone - worst.analytic) <= 0.1 * worst.doubt and abs(value - alone) > 0.5 * worst.doubt:
        return Suspect("bypass", f"{every}, and the recorded graph, computed again, moves by {alone:.6g} where the "
                                 f"function moves by {value:.6g}: a part of the function depends on "
                                 f"{judge.names[worst.i]} without being recorded, through .numpy(), .detach(), "
                                 "no_grad(), a derivative taken without create_graph=True, or a vjp that does one of "
                                 "these")
    return Suspect("unknown", f"{every}, as far as central differences can tell, and the cause was not found: the "
                              "point is no kink, and no part of the function was seen to bypass the graph")


# ------------------------------------------------------------------------------------------------ one op on trial
def _judgeable(xs: list[Tensor], ys: list[Tensor]) -> Iterator[tuple[Node, list[int]]]:
    """The nodes in the order of the computation, each with those of its arguments that lead to xs."""
    tracked = [x for x in xs if x.requires_grad]
    nodes = [node for node in topological_order(*ys) if node.out is not None] if tracked else []
    useful = leading_to(tracked, nodes) if nodes else set()
    for node in reversed(nodes):
        places = [i for i,
                  x in enumerate(node.inputs) if x is not None and x._requires_grad and (x.node or x) in useful]
        if places and np.size(node.out):
            yield node, places


def _trial(node: Node, tracked: list[int], judge: Judge, order: int, unjudged: dict[str, None]) -> Iterator[Suspect]:
    """What is wrong with one op, at the arrays that it saw. One that cannot be computed alone is noted as unjudged."""
    tied: dict[int, list[int]] = {}
    for i in tracked:                       # the same tensor twice, as in x * x, is moved in both places as well
        tied.setdefault(id(node.inputs[i]), []).append(i)
    for groups in [[[i] for i in tracked]] + [list(tied.values())] * (len(tied) < len(tracked)):
        arrays = [np.array(node.args[group[0]], np.float64) for group in groups]
        try:
            found = list(_judged(node, groups, arrays, judge, order))
            yield from found
            if found and _large(node, arrays):              # at kinks, perhaps, which hide the rest: look beside them
                beside = [a + 1e-3 * (1 + np.abs(a)) * judge.rng.normal(size=a.shape) for a in arrays]
                yield from (s for s in _judged(node, groups, beside, judge, order) if s.kind == "rule")
        except Exception:                   # it may want what only its place in the graph gives it
            unjudged[node.op.name] = None


def _large(node: Node, arrays: list[np.ndarray]) -> bool:
    return max(np.size(node.out), *(a.size for a in arrays)) > LARGE


def _judged(node: Node, groups: list[list[int]], arrays: list[np.ndarray], judge: Judge,
            order: int) -> Iterator[Suspect]:
    """Each group of arguments is one input of the op alone."""
    def alone(*xs: Tensor) -> Any:
        args = list(node.args)
        for group, x in zip(groups, xs):
            for i in group:
                args[i] = x
        return node.op(*args, **node.params)
    derivative: Callable[..., Any] = alone
    for _ in range(order - 1):
        derivative = gradient_of(derivative, arrays)
    method = "projected" if _large(node, arrays) else "central"
    compared = list(replace(judge, method=method).comparisons(derivative, arrays))
    f, terms = Function(derivative, "gradcheck"), np.sum([c.terms for c in compared], axis=0)
    for comparison in compared:
        # Tighter than the check itself, since an error may grow on its way to the output.
        for m in _distinct(comparison, atol=1e-6 * comparison.largest, rtol=1e-5):
            seen = Evidence.of(f, arrays, replace(m, terms=max(m.terms, float(terms[m.row or 0]))), judge.eps)
            yield from _verdict(node, groups[m.i], m, seen, order, bool(np.isinf(comparison.analytic).any()))


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


def _verdict(node: Node, group: list[int], m: Mismatch, seen: Evidence, order: int,
             infinite: bool) -> Iterator[Suspect]:
    """A suspect, if a mismatch in one op is due to its rule, or to the point; none if it may be due to the step.
    `infinite`: one of the derivatives is, by the rule, so that 0 · ∞ may have made NaN of others."""
    arguments = f"argument {group[0]}" if len(group) == 1 else (
        f"arguments {' and '.join(map(str, group))}, which are one tensor")
    where, facts = f"`{node.op.name}`, {arguments}, at {m.at}", (node.op.name, group[0], m.at, m.analytic)
    settled = seen.settled(m)
    if np.isinf(m.analytic) or not seen.finite.any() or (np.isnan(m.analytic) and (infinite or not seen.all_finite)):
        yield Suspect("domain", f"{where}{_called(node)}, has no finite value or slope on both sides of its point: "
                                f"analytic {m.analytic:.6g}. If another branch is meant to be taken there, make the "
                                "input safe: where(ok, op(where(ok, x, 1)), 0)", *facts, m.numeric)
    elif seen.bends(m):
        yield Suspect("kink", f"{where}{_called(node)}, stands at a kink, a tie or a jump: {seen.slopes()}", *facts,
                      m.numeric)
    elif settled and not abs(settled[1] - m.analytic) <= 0.1 * m.doubt and not seen.agreeing(m):
        numeric = m.numeric if abs(m.numeric - settled[1]) <= 0.1 * m.doubt else settled[1]
        of = "" if order == 1 else f" (in the derivative of order {order})"
        yield Suspect("rule", f"{where}: analytic {m.analytic:.6g}, numeric {numeric:.6g}. This is the first op whose "
                              f"own rule is wrong{of}{_called(node)}", *facts, numeric)


def _called(node: Node) -> str:
    return f", called at {node.line}" if hasattr(node, "line") else ""


def _written_into(node: Node, tracked: list[int]) -> Iterator[Suspect]:
    """A rule that is right, but changes g, or an argument, in its place, changes it for others as well."""
    g = np.ones_like(np.asarray(node.out))
    g.setflags(write=False)
    for i in tracked if g.ndim else ():
        try:
            if node.op.joint:
                node.op.joint({i}, g, node.out, *node.args, **node.params)
            else:
                node.op.vjps[i](g, node.out, *node.args, **node.params)
        except ValueError as error:
            if "read-only" in str(error):
                yield Suspect("rule", f"`{node.op.name}`, argument {i}: its rule writes into an array that is not its "
                                      f"own, g perhaps, which other rules share{_called(node)}", node.op.name, i)
        except Exception:                   # that is for the trial to tell
            return


# ------------------------------------------------------------------------------------------------------- evidence
@dataclass(frozen=True)
class Evidence:
    """How one output moves with one element, by steps of many lengths, of which the k-th is that of the check: to the
    left of the point, across it and to the right. `size` is that of the terms that are rounded, and `noise` what their
    rounding can make of a difference. `all_finite` tells whether all outputs are, at some step."""

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
        usual = step_at(x, m.at, eps) * 10.0 ** DECADES
        own = abs(x[m.at]) * 10.0 ** np.arange(-7, 0)       # of an x so small that all usual steps leap over 0
        steps = np.sort(np.concatenate([usual, own[(own > 0) & (own < 0.5 * usual[0])]]))

        def value(moved: np.ndarray) -> np.ndarray:
            try:
                return f([moved if k == m.i else a for k, a in enumerate(arrays)])
            except Exception:               # a step may lead where the function refuses to be computed
                return np.full(here.shape, np.nan)
        found, all_finite = [], False
        for h in steps:
            above, below = x + h * v, x - h * v
            up, down = value(above), value(below)
            ahead, behind = above[m.at] - x[m.at], x[m.at] - below[m.at]
            all_finite = all_finite or (behind > 0 and bool(np.isfinite([up, here, down]).all()))
            found.append((m.of(here - down) / behind, m.of(up - down) / (ahead + behind), m.of(up - here) / ahead)
                         if min(ahead, behind) > 0 else (np.nan, np.nan, np.nan))
        left, middle, right = np.array(found).T
        largest = float(np.abs(here[m.row]) if m.weights is None else np.abs(here) @ np.abs(m.weights))
        return cls(steps, len(steps) - len(usual) + NOMINAL, left, middle, right, max(largest, m.terms), all_finite)

    @property
    def noise(self) -> np.ndarray:
        return 4 * np.finfo(float).eps * self.size / self.steps

    @property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.left) & np.isfinite(self.middle) & np.isfinite(self.right)

    def settled(self, m: Mismatch) -> tuple[float, float] | None:
        """The shortest step at which rounding is far below what is in doubt, and the difference there, if the next
        step agrees with it; or else None."""
        good = np.isfinite(self.middle) & (self.noise <= 0.02 * m.doubt)
        for k in np.flatnonzero(good[:-1] & good[1:])[:1]:
            near, far = self.middle[k:k + 2]
            if abs(far - near) <= min(0.05 * m.doubt, 0.1 * max(abs(near), abs(far)) + 10 * self.noise[k]):
                return float(self.steps[k]), float(near)
        return None

    def agreeing(self, m: Mismatch) -> tuple[float, float] | None:
        """A step, the nearest to that of the check, at which the difference agrees with the graph, as it does at the
        next; or None."""
        same = np.abs(self.middle - m.analytic) <= 0.05 * m.doubt
        places = np.flatnonzero(same[:-1] & same[1:] & (np.arange(len(same) - 1) <= self.k + 6))
        if not places.size:
            return None
        k = min({*places, *(places + 1)} - {self.k}, key=lambda k: abs(k - self.k))
        return float(self.steps[k]), float(self.middle[k])

    def bends(self, m: Mismatch) -> bool:
        """Is this a kink, where any number between the slopes is a fair answer? At one, other than in a curve that is
        sharp but smooth, the slopes stay as they are with a shorter step; at a jump one of them grows with it."""
        (l1, l2), (r1, r2) = self.left[self.k - 1:self.k + 1], self.right[self.k - 1:self.k + 1]
        low, high = sorted((l2, r2))
        gap, nearer = high - low, abs(r1 - l1)
        fair = low - 0.02 * gap <= m.analytic <= high + 0.02 * gap
        stays = abs(l1 - l2) <= 0.1 * gap and abs(r1 - r2) <= 0.1 * gap
        jumps = 8 * gap <= nearer <= 12 * gap
        return bool(fair and gap > max(0.5 * m.doubt, 20 * self.noise[self.k - 1]) and (stays or jumps))

    def slopes(self) -> str:
        return (f"the slope is {self.left[self.k] + 0.0:.6g} to the left and {self.right[self.k] + 0.0:.6g} to the "
                "right, so a central difference, which averages the two, means nothing")


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


class _keeping_lines(Watcher):
    """Inside, each node keeps the line of the user's program that made it."""

    def ran(self, op: Primitive, args: list[Any], params: dict[str, Any], out: Any, node: Node | None) -> None:
        if node:
            node.line = users_line()
