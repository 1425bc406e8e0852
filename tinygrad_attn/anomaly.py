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


class detect_anomaly(ModeChange):
    """Inside, the first op whose output or gradient becomes NaN or infinite raises an AnomalyError.

    It names the op, the shapes, the direction, and the line of yours that called the op. NaN is reported wherever
    it appears, also if it came in from outside. Infinity is reported where an op makes it of finite numbers; one that
    is given infinities, such as a mask of −∞, may pass them on. NumPy's own warnings are silent inside. Every array
    is looked at and every line is kept, so the code runs slower: it is for finding a fault, not for every day.

    >>> from tinygrad_attn import Tensor, detect_anomaly
    >>> x = Tensor([0.0, 1.0], requires_grad=True)
    >>> with detect_anomaly():
    ...     x.sqrt().sum().backward()                       # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tinygrad_attn.errors.AnomalyError: sqrt((2,)), backward: 1 of 2 elements of the gradient of argument 0 became inf...
    """

    def __init__(self) -> None:
        super().__init__(watcher=self)

    def __enter__(self) -> None:
        super().__enter__()
        _settings.set((*_settings.get(), np.seterr(all="ignore")))

    def __exit__(self, *exception: object) -> None:
        *outer, before = _settings.get()
        _settings.set(tuple(outer))
        np.seterr(**before)
        super().__exit__(*exception)

    def ran(self, op: Primitive, args: list[Any], params: dict[str, Any], out: Any, node: Node | None) -> None:
        """An op gave `out`. What vjps compute on the way back is judged by what they send back."""
        if node:
            node.line = users_line()
        fault = _fault("the output", out, [*args, *params.values()])
        if fault and not _walking():
            outside = [i for i, a in enumerate(args) if _count(a, np.isnan)]
            came = f" (argument {outside[0]} had NaN already, from outside)" if outside else ""
            call = call_text(op.name, args, params)
            raise AnomalyError(f"{call}, forward: {fault}{came}, at {users_line()}")

    def sent_back(self, node: Node, i: int, g: Any, share: Any, total: Any) -> None:
        """The vjp of argument i of a node made `share` of g; with what other uses sent, that makes `total`."""
        g, share, total = (x._array if isinstance(x, Value) else x for x in (g, share, total))
        several = f"the sum of the gradients of argument {i}, which has several uses,"
        fault = (_fault(f"the gradient of argument {i}", share, [g, *node.args])
                 or _fault(several, total, [g, *node.args]))
        if fault:
            came = " (the gradient of its output had NaN already, from outside)" if _count(g, np.isnan) else ""
            line = getattr(node, "line", "an unknown line: the forward pass was outside of detect_anomaly()")
            call = call_text(node.op.name, node.args, node.params)
            raise AnomalyError(f"{call}, backward: {fault}{came}; the op was called at {line}")


def _count(array: Any, which: Any) -> int:
    array = np.asarray(array)
    return int(which(array).sum()) if array.dtype.kind in "fc" else 0


def _fault(what: str, out: Any, given: list[Any]) -> str:
    """What is wrong with an array, or nothing."""
    for name, which in (("NaN", np.isnan), ("inf", np.isinf)):
        n = _count(out, which)
        if n and (name == "NaN" or not any(_count(a, np.isinf) for a in given)):
            return f"{n} of {np.size(out)} element{'s' if np.size(out) > 1 else ''} of {what} became {name}"
    return ""


def users_line() -> str:
    """The innermost line outside this package, as `file:12, in loss: y = x.log()`."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    name, number = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(name, number).strip()
    return f"{name}:{number}, in {frame.f_code.co_name}{': ' if source else ''}{source}"


def _walking() -> bool:
    """Is a walk back under way, so that this op runs in the rule of another?"""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code is not backpropagate.__code__:
        frame = frame.f_back
    return frame is not None
