"""The backward pass as a film: one self-contained page, with the graph, its values and its gradients inside.

The page lays the graph out itself, so that boxes can be folded and unfolded in it; `dagre.min.js`, a library, does
that. What is ours is `page.js`, which draws, steps and explains, over the data made here.
"""

from __future__ import annotations

import html
import json
import math
import string
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from .dot import COLOURS
from .labels import Strengths, norm
from .trace import Edge, Trace, Vertex
from .words import LANGUAGES, say, translated

LARGEST = 12                                # rows and columns of an array that are shown
MANY = 150                                  # vertices, beyond which less of each is shown


def page(traced: Trace, folded: Collection[str] = (), *, lang: str = "en", shapes: bool = True) -> Page:
    """The page, with the boxes in `folded` closed to begin with."""
    words, folder = say(lang), Path(__file__).parent
    data = json.dumps({**film(traced, lang), "folded": sorted(folded), "shapes": shapes, "words": words},
                      separators=(",", ":"), allow_nan=False)
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js",
                                                                            "dagre.min.js")}
    shown = {key: html.escape(text) for key, text in words.items()}
    return Page(string.Template(parts["page.html"]).substitute(
        shown, language=LANGUAGES[lang], style=parts["page.css"], library=parts["dagre.min.js"],
        script=parts["page.js"], data=data.replace("<", r"\u003c"), note=html.escape(traced.note),
        light=_colours(0), dark=_colours(1)))


class Page(str):
    """A page, which a notebook shows in a frame that can run it and reach nothing else."""

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self)}" sandbox="allow-scripts" title="computation graph" '
                'style="width: 100%; height: 52rem; border: 0"></iframe>')


def _colours(scheme: int) -> str:
    """Those of the pictures, as variables of the style."""
    return " ".join(f"--{kind}: {both[scheme][0]}; --{kind}-line: {both[scheme][1]};" for kind, both in COLOURS.items())


def film(traced: Trace, lang: str = "en") -> dict[str, Any]:
    """What there is to see, ready for JSON: the steps are the ops that send gradients, in the order of the walk."""
    strengths = Strengths(traced)
    most = LARGEST if len(traced.vertices) <= MANY else LARGEST // 3
    uses: dict[str, int] = dict.fromkeys(traced.seeds, 1)
    for edge in traced.edges:
        uses[edge.source] = uses.get(edge.source, 0) + (edge.grad is not None)
    sending = {edge.target for edge in traced.edges if edge.grad is not None}

    def of_vertex(v: Vertex) -> dict[str, Any]:
        return {"id": v.id, "kind": v.kind, "label": v.label, "name": v.name, "shape": str(v.shape), "box": v.box,
                "params": [f"{key}={text}" for key, text in v.params], "formula": translated(v.formula, lang),
                "value": excerpt(v.value, most), "grad": excerpt(v.grad, most), "level": strengths.level(v),
                "scalar": not v.shape}

    def of_edge(e: Edge) -> dict[str, Any]:
        several = uses[e.source] > 1
        return {"source": e.source, "target": e.target, "origin": e.origin, "order": e.argument,
                "parameter": e.parameter, "rule": e.rule, "shape": str(e.shape) if e.shape else "",
                "grad": excerpt(e.grad, most), "level": strengths.level(e),
                "total": excerpt(e.total, most) if several else None,
                "sum": strengths.of(norm(e.total)) if several and e.total is not None else strengths.level(e)}

    seeds = [{"id": v, "grad": excerpt(seed, most), "level": strengths.of(norm(seed))}
             for v, seed in traced.seeds.items()]
    return {"seed": traced.seed, "seeds": seeds,
            "vertices": [of_vertex(v) for v in traced.vertices], "edges": [of_edge(e) for e in traced.edges],
            "boxes": [{"id": box.id, "name": box.name, "outer": box.outer} for box in traced.boxes],
            "steps": [v.id for v in reversed(traced.vertices) if v.id in sending and v.kind != "rest"],
            "outputs": traced.outputs, "output_names": strengths.outputs(lang), "titles": dict(traced.titles),
            "legend": strengths.legend(lang)}


def excerpt(array: Any, most: int) -> dict[str, Any] | None:
    """As much of an array as a page can show: rows of numbers, and what they are part of."""
    if array is None:
        return None
    whole = np.asarray(array)
    matrix = np.zeros((0, 0)) if not whole.size else np.atleast_2d(whole[(0,) * (whole.ndim - 2)])
    rows = [[_number(x) for x in row] for row in matrix[:most, :most].tolist()]
    cut = matrix.shape[0] > most or matrix.shape[1] > most
    return {"rows": rows, "shape": str(whole.shape), "scalar": not whole.ndim, "norm": _number(norm(whole)),
            "part": "slice" if whole.size > matrix.size else "cut" if cut else ""}


def _number(x: Any) -> Any:
    """Seven digits are enough to look at; JSON has no NaN."""
    if isinstance(x, float):
        return float(f"{x:.7g}") if math.isfinite(x) else str(x)
    return x if isinstance(x, (bool, int)) else str(x)
