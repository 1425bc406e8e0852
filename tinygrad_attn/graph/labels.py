"""What the renderers say alike: arrays and gradients in few words, and how strong a gradient is, on one scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .trace import Edge, Trace, Vertex, number
from .words import say

LEVELS = 7                                  # of the scale: 0 is no gradient at all, 7 the strongest in the picture
DECADES = 6                                 # that the scale spans
MOST = 5                                    # rows and columns of an array that is written out


def norm(array: Any) -> float:
    """The root of the sum of squares, also where the squares would overflow or underflow."""
    values = np.abs(np.asarray(array)).astype(float).ravel()
    largest = values.max(initial=0.0)
    if not largest or not math.isfinite(largest):
        return float(largest)
    return float(largest * np.sqrt(np.sum(np.square(values / largest))))


class Strengths:
    """The scale of a picture, by its strongest gradient: each level is a factor of ten."""

    def __init__(self, traced: Trace) -> None:
        parts: list[Vertex | Edge] = [*traced.vertices, *traced.edges]
        self.norms = {id(x): norm(x.grad) for x in parts if x.grad is not None}
        self.strongest = max((n for n in self.norms.values() if math.isfinite(n)), default=0.0)

    def level(self, x: Vertex | Edge) -> int | None:
        """Of a vertex or an edge: None if no gradient comes there, 0 if it is exactly zero, else 1 to LEVELS."""
        return self.of(self.norms[id(x)]) if id(x) in self.norms else None

    def of(self, n: float) -> int:
        """The level of a norm."""
        if not n:
            return 0
        if not math.isfinite(n):
            return LEVELS
        below = math.log10(self.strongest) - math.log10(n)
        return max(1, round(LEVELS - below / DECADES * (LEVELS - 1)))

    def legend(self, lang: str = "en") -> str:
        """What the levels mean, in the numbers of this picture."""
        words, finite = say(lang), [n for n in self.norms.values() if n and math.isfinite(n)]
        least = self.strongest / 10 ** DECADES
        text = (words["legend"].format(strongest=said(self.strongest), weakest=said(least)) if finite and
                10 * min(finite) <= self.strongest else words["all_alike"].format(
                    weakest=said(min(finite)), strongest=said(self.strongest)) if finite else "")
        if not all(map(math.isfinite, self.norms.values())):
            return f"{text} {words['not_finite']}".strip()
        return text or words["all_zero"]


def said(x: float) -> str:
    """Two digits of a number, written out unless that is long."""
    if not x or 1e-4 <= x < 1e6:
        return np.format_float_positional(x, 2, fractional=False, trim="-")
    return np.format_float_scientific(x, 1, trim="-", exp_digits=1).replace(".e", "e").replace("e+", "e")


def written(array: Any) -> list[str]:
    """A number, a small array row by row, or the range of a large one."""
    array = np.asarray(array)
    if not array.ndim:
        return [number(array)]
    if not array.size:
        return ["empty"]
    rows = array.reshape(-1, array.shape[-1])
    if array.ndim <= 2 and rows.shape[0] <= MOST and rows.shape[1] <= MOST:
        return ["  ".join(f"{x:.3g}" if array.dtype.kind in "fc" else str(x) for x in row) for row in rows]
    return [f"{number(array.min())} … {number(array.max())}"]


def words(vertex: Vertex, shapes: bool = True) -> list[str]:
    """What to say of a vertex: its name and op or value, the parameters, the shape."""
    if vertex.kind in ("box", "rest"):
        return [" = ".join(filter(None, [vertex.name, vertex.label])), *([vertex.formula] if shapes else [])]
    title = " = ".join(filter(None, [vertex.name, vertex.label]))
    params = ", ".join(f"{key}={text}" for key, text in vertex.params)
    shape = str(vertex.shape) if shapes and not (vertex.kind == "constant" and vertex.label) else ""
    return [word for word in (title, params, shape) if word]


def facts(vertex: Vertex, values: bool, grads: bool) -> Iterator[str]:
    """The lines about value and gradient."""
    if values and vertex.value is not None and not (vertex.kind == "constant" and vertex.label):
        first, *others = written(vertex.value)
        yield from ([f"= {first}"] if not others else [first, *others])
    if grads and vertex.grad is not None:
        yield (f"grad {number(vertex.grad)}" if not np.ndim(vertex.grad) else f"‖grad‖ {said(norm(vertex.grad))}")
