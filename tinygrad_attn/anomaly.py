"""A side room on floor 1. `detect_anomaly`: where did the NaN come from?

By the time a loss is NaN, thousands of ops have passed the NaN on. The engine tells a watcher of each op that has
run and of each gradient that was sent back; this one stops at the first that made something that is no number.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from .engine import ModeChange, Node, Primitive, Value, backpropagate
from .errors import AnomalyError, call_text

# What stands between an op and its user: this package, and the standard library's decorator of `@no_grad()`.
_OURS = (str(Path(__file__).parent) + os.sep, contextlib.__file__)
# NumPy's settings, to be restored: of a thread or task each, as the modes are.
_settings: ContextVar[tuple[Any, ...]] = ContextVar("settings", default=())


class Watcher(ModeChange):
    """Inside, it is told of each op that runs, and of each gradient that is sent back."""

    def __init__(self) -> None:
        super().__init__(watcher=self)

    def ran(self, op: Primitive, args: list[Any], params: dict[str, Any], out: Any, node: Node | None) -> None:
        """An op gave `out`, and left `node`, if it was recorded."""

    def sent_back(self, node: Node, i: int, g: Any, share: Any, total: Any) -> None:
        """The vjp of argument i of a node made `share` of g; with what other uses sent, that makes `total`."""


class detect_anomaly(Watcher):
    """Inside, the first op whose output or gradient becomes NaN or infinite raises an AnomalyError.

    It names the op, the shapes, the direction, and the line of yours that called the op. NaN is reported wherever it
    appears, also if it came in from outside. Infinity is reported where an op makes it of finite numbers; one that is
    given infinities, such as a mask of −∞, may pass them on. NumPy's warnings of overflow and the like are silent
    inside. Every array is looked at and every line is kept, so the code runs slower: it is for finding a fault, not
    for every day.

    >>> from tinygrad_attn import Tensor, detect_anomaly
    >>> x = Tensor([0.0, 1.0], requires_grad=True)
    >>> with detect_anomaly():
    ...     x.sqrt().sum().backward()                       # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tinygrad_attn.errors.AnomalyError: sqrt((2,)), backward: 1 of 2 elements of the gradient of argument 0 became inf...
    """

    def __enter__(self) -> None:
        super().__enter__()
        _settings.set((*_settings.get(), np.seterr(all="ignore")))

    def __exit__(self, *exception: object) -> None:
        *outer, before = _settings.get()
        _settings.set(tuple(outer))
        np.seterr(**before)
        super().__exit__(*exception)

    def ran(self, op: Primitive, args: list[Any], params: dict[str, Any], out: Any, node: Node | None) -> None:
        if node:
            node.line = users_line()
        fault = _fault("the output", out, [*args, *params.values()])
        if fault and not _inside_another():
            given = [i for i, a in enumerate(args) if _where(a, np.isnan).any()]
            came = f" (argument {given[0]} already held NaN)" if given else ""
            call = call_text(op.name, args, params)
            raise AnomalyError(f"{call}, forward: {fault}{came}, at {users_line()}")

    def sent_back(self, node: Node, i: int, g: Any, share: Any, total: Any) -> None:
        g, share, total = (x._array if isinstance(x, Value) else x for x in (g, share, total))
        given = [g, *node.args, *node.params.values()]
        fault = (_fault(f"the gradient of argument {i}", share, given)
                 or _fault(f"the sum of the gradients of argument {i}, which has several uses,", total, given))
        if fault:
            came = " (the gradient of its output already held NaN)" if _where(g, np.isnan).any() else ""
            line = getattr(node, "line", "an unknown line: the forward pass was outside of detect_anomaly()")
            call = call_text(node.op.name, node.args, node.params)
            raise AnomalyError(f"{call}, backward: {fault}{came}; the op was called at {line}")


def _where(array: Any, which: Any) -> Any:
    """Where an array has such numbers; of what is no array of floats, nowhere."""
    floats = isinstance(array, (np.ndarray, np.generic, float)) and np.asarray(array).dtype.kind in "fc"
    return which(array) if floats else np.False_


def _fault(what: str, out: Any, given: list[Any]) -> str:
    """What is wrong with an array, or nothing. Infinity is excused where one was given: at the same place, if what was
    given aligns with the array, or else anywhere."""
    nan, inf = _where(out, np.isnan), _where(out, np.isinf)
    for infinite in (_where(a, np.isinf) for a in given) if inf.any() else ():
        if infinite.any():
            try:
                inf = inf & ~np.broadcast_to(infinite, inf.shape)
            except ValueError:
                inf = np.zeros_like(inf)
    name, n = ("NaN", nan.sum()) if nan.any() else ("inf", inf.sum())
    return f"{n} of {np.size(out)} element{'s' if np.size(out) > 1 else ''} of {what} became {name}" if n else ""


def users_line() -> str:
    """The innermost line outside this package, as `file:12, in loss: y = x.log()`."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    name, number = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(name, number).strip()
    return f"{name}:{number}, in {frame.f_code.co_name}{': ' if source else ''}{source}"


def _inside_another() -> bool:
    """Does this op run in the rule, or in the forward function, of another? Then that one's result is what counts."""
    frame: FrameType | None = sys._getframe(3)              # beyond `ran` and the call of the op itself
    while frame and frame.f_code not in (backpropagate.__code__, Primitive.__call__.__code__):
        frame = frame.f_back
    return frame is not None
