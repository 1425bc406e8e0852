"""What the renderers say alike: arrays and gradients in few words, and how strong a gradient is, on one scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .trace import Edge, Trace, Vertex, number
from .words import say

LEVELS = 7                                  # of the scale: 0 is no gradient at all, 7 the strongest in the picture
DECADES = 6                                 # that the scale spans
MOST = 5                                    # rows and columns of an array that is written out


def norm(array: Any) -> float:
    """The root of the sum of squares, also where the squares would overflow or underflow."""
    with np.errstate(all="ignore"):
        values = np.abs(np.asarray(array) * 1.0).astype(float).ravel()
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
        self.traced = traced

    def level(self, x: Vertex | Edge) -> int | None:
        """Of a vertex or an edge: None if no gradient comes there, 0 if it is exactly zero, else 1 to LEVELS."""
        return self.of(self.norms[id(x)]) if id(x) in self.norms else None

    def of(self, n: float) -> int:
        """The level of a norm."""
        if not n:
            return 0
        if not self.strongest or not n < self.strongest:
            return LEVELS                   # also what is infinite or NaN
        below = math.log10(self.strongest) - math.log10(n)
        return max(1, round(LEVELS - below / DECADES * (LEVELS - 1)))

    def legend(self, lang: str = "en") -> str:
        """What is differentiated, and what the levels mean, in the numbers of this picture."""
        traced, text = self.traced, say(lang)
        if not traced.seed:
            return ""
        said = [text[f"of_{traced.seed}"].format(outputs=outputs(traced, lang))]
        finite = [n for n in self.norms.values() if n and math.isfinite(n)]
        if finite and 10 * min(finite) <= self.strongest:
            least = self.strongest / 10 ** DECADES
            said.append(text["legend"].format(strongest=number(self.strongest, 2), weakest=number(least, 2)))
        elif finite:
            said.append(text["all_alike"].format(weakest=number(min(finite), 2), strongest=number(self.strongest, 2)))
        if not all(map(math.isfinite, self.norms.values())):
            said.append(text["not_finite"])
        elif not finite:
            said.append(text["all_zero"])
        return " ".join(said)


def outputs(traced: Trace, lang: str = "en") -> str:
    """What the outputs are called; of graphs that are compared, each is differentiated by itself."""
    return say(lang)["each_output"] if traced.titles else ", ".join(traced.called.values())


def written(array: Any) -> list[str]:
    """A number, a small array row by row, or the range of a large one.

    >>> written(np.eye(2)), written(np.arange(1000.0))
    (['1  0', '0  1'], ['0 … 999'])
    """
    array = np.asarray(array)
    if array.size == 1:
        return [number(array.item() if array.ndim else array)]
    if not array.size:
        return ["empty"]
    rows = array.reshape(-1, array.shape[-1])
    if array.ndim <= 2 and rows.shape[0] <= MOST and rows.shape[1] <= MOST:
        return ["  ".join(number(x, 3) for x in row) for row in rows]
    return [f"{number(array.min(), 3)} … {number(array.max(), 3)}"]


def title_lines(vertex: Vertex, shapes: bool = True) -> list[str]:
    """What to say of a vertex: its name and op or value, the parameters, the shape."""
    title = " = ".join(filter(None, [vertex.name, vertex.label]))
    if vertex.kind in ("box", "rest"):
        return [title, *([vertex.formula] if shapes else [])]
    params = ", ".join(f"{key}={text}" for key, text in vertex.params)
    shape = str(vertex.shape) if shapes and not (vertex.kind == "constant" and vertex.label) else ""
    return [word for word in (title, params, shape) if word]


def value_lines(vertex: Vertex) -> list[str]:
    """Its value, if that is not said by its label."""
    return [] if vertex.value is None or (vertex.kind == "constant" and vertex.label) else written(vertex.value)


def gradient_text(vertex: Vertex) -> str:
    """Its gradient: the number, or the norm of an array; nothing if it has none."""
    if vertex.grad is None:
        return ""
    return f"‖grad‖ {number(norm(vertex.grad), 2)}" if np.ndim(vertex.grad) else f"grad {number(vertex.grad)}"
