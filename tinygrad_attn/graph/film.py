"""What the film shows, as plain data ready for JSON: each vertex and edge, in which order gradients are sent, how they
add up, and the rules, told in the names of the graph."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from .labels import Strengths, norm, outputs
from .trace import Edge, Trace, Vertex
from .words import translated

LARGEST = 12                                # rows and columns of an array that are shown
MANY = 150                                  # vertices, beyond which less of each is shown


def film(traced: Trace, lang: str = "en") -> dict[str, Any]:
    """The whole graph; the steps are the ops that send gradients, in the order of the walk."""
    strengths = Strengths(traced)
    most = LARGEST if len(traced.vertices) <= MANY else LARGEST // 3
    vertices = {v.id: v for v in traced.vertices}
    into: dict[str, list[Edge]] = {}
    for edge in traced.edges:
        into.setdefault(edge.target, []).append(edge)
    sending = [v.id for v in reversed(traced.vertices) if any(e.grad is not None for e in into.get(v.id, []))]
    totals = _totals(traced, sending)
    spoken = {v: {e.parameter: _spoken(vertices[e.source]) for e in edges} for v, edges in into.items()}

    def of_vertex(v: Vertex) -> dict[str, Any]:
        return {"id": v.id, "kind": v.kind, "label": v.label, "name": v.name, "shape": str(v.shape), "box": v.box,
                "params": [f"{key}={text}" for key, text in v.params], "formula": translated(v.formula, lang),
                "value": excerpt(v.value, most), "grad": excerpt(v.grad, most), "level": strengths.level(v),
                "scalar": not v.shape}

    def of_edge(e: Edge) -> dict[str, Any]:
        total = totals.get(id(e))
        return {"source": e.source, "target": e.target, "origin": e.origin, "order": e.argument,
                "parameter": e.parameter, "rule": e.rule, "shape": str(e.shape) if e.shape else "",
                "grad": excerpt(e.grad, most), "level": strengths.level(e), **told(e.rule, spoken[e.target]),
                "total": None if total is e.grad else excerpt(total, most),     # of the first share there is no sum
                "sum": None if total is None else strengths.of(norm(total))}

    seeds = [{"id": traced.places[v], "name": called, "grad": excerpt(traced.seeds[v], most),
              "level": strengths.of(norm(traced.seeds[v]))}
             for v, called in traced.called.items() if v in traced.seeds]
    return {"seed": traced.seed, "seeds": seeds,
            "vertices": [of_vertex(v) for v in traced.vertices], "edges": [of_edge(e) for e in traced.edges],
            "boxes": [{"id": box.id, "name": box.name, "outer": box.outer, "frame": box.frame} for box in traced.boxes],
            "steps": [v for v in sending if vertices[v].kind != "rest"], "outputs": traced.outputs,
            "called": outputs(traced, lang), "legend": strengths.legend(lang)}


def _totals(traced: Trace, sending: list[str]) -> dict[int, Any]:
    """For each share, by the `id` of its edge, what its source has got when it has come, in the order of the film."""
    order = {v: k for k, v in enumerate(sending)}
    got = dict(traced.seeds)
    found: dict[int, Any] = {}
    for edge in sorted((e for e in traced.edges if e.grad is not None), key=lambda e: (order[e.target], e.argument)):
        with np.errstate(all="ignore"):
            got[edge.origin] = edge.grad if edge.origin not in got else got[edge.origin] + edge.grad
        found[id(edge)] = got[edge.origin]
    return found


def _spoken(v: Vertex) -> str:
    """What a vertex is called in a formula; nothing, if it has neither name nor op nor number."""
    return v.name or (v.label if v.kind in ("op", "box", "constant") else "")


def told(rule: str, spoken: dict[str, str]) -> dict[str, Any]:
    """A rule in the names of the graph instead of the op's own, where that cannot be misread; which of the op's names,
    `out` among them, it uses; and whether they stand in it still.

    >>> told("dL/dx = g * y", {"x": "tanh", "y": "1/√d_k"})
    {'share': 'g * (1/√d_k)', 'needs': ['y'], 'own': False}
    >>> told("dL/dx = g * y", {"x": "a", "y": "g"})['share']            # two different things called g
    'g * y'
    """
    text = re.sub(r"^dL/d\S+?( =|:)\s*", "", rule)
    words = set(re.findall(r"[^\W\d]\w*", text.replace("ᵀ", " ")))
    try:
        tree = ast.parse(text, mode="eval")
        if any(isinstance(node, (ast.Lambda, ast.comprehension, ast.NamedExpr)) for node in ast.walk(tree)):
            raise SyntaxError("it has names of its own")
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    except SyntaxError:                     # several lines, or words; but g yᵀ is neither
        tree, used = None, words
    needs = [name for name in spoken if name.split("[")[0] in used]
    names = {name: spoken[name] for name in needs}
    plain = tree is not None or re.fullmatch(r"\w+ \w+", text) is not None
    taken = {"g", "out"} | used - set(names)
    clear = (all(names.values()) and len(set(names.values())) == len(names) and not taken & set(names.values())
             and not any("[" in name for name in names))
    if plain and clear:
        if tree is None:
            text = re.sub(r"[^\W\d]\w*?(?=ᵀ|\b)", lambda m: _operand(names[m[0]]) if m[0] in names else m[0], text)
        else:
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node.id in names:
                    node.id = _operand(names[node.id])
            text = ast.unparse(tree)
    return {"share": text, "needs": [*needs, *(["out"] if "out" in used else [])], "own": not (plain and clear)}


def _operand(name: str) -> str:
    """A name as part of a product: in parentheses, if it could be read as more than one."""
    return name if re.fullmatch(r"[^\W\d]\w*(\[\w+\])*|\d+(\.\d+)?", name) else f"({name})"


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
