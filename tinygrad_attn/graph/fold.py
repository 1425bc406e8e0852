"""Less of a graph: boxes folded into one vertex each, and what is still too much left out. Traces in, traces out."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..languages import _
from .trace import Box, Edge, Trace, Vertex


def fold(traced: Trace, collapse: int | str | Collection[str] | None) -> Trace:
    """The same graph with boxes folded, each into one vertex that takes what went in and gives what came out.

    A number leaves that many levels of boxes open: 0 folds the outermost. A name, or several, folds the boxes that have
    it. A value that a box uses several times goes in once, and the gradients that it gets from there are added up.
    Below 0 is a ValueError, and so is a name that no box has; what is neither number nor name is a TypeError.

    >>> from tinygrad_attn import Tensor, graph
    >>> x = Tensor(2.0, requires_grad=True)
    >>> with graph.scope("cube"):
    ...     y = x * x * x
    >>> for vertex in fold(graph.trace(y, grads=True), 0).vertices:
    ...     print(vertex.kind, vertex.label, vertex.formula, vertex.grad)
    leaf   12.0
    box cube () → () 1.0
    """
    if collapse is None:
        return traced
    folded = _folded(traced.boxes, collapse)
    into = {v.id: folded.get(v.box or "") or v.id for v in traced.vertices}
    inside: dict[str, list[Vertex]] = {}
    for v in traced.vertices:
        if into[v.id] != v.id:
            inside.setdefault(into[v.id], []).append(v)
    edges = _merged(traced.edges, into, inside)
    takes: dict[str, list[tuple[int, ...]]] = {box: [] for box in inside}
    for edge in edges:
        if edge.target in takes:
            takes[edge.target].append(edge.shape)
    leaving = {edge.source for edge in traced.edges if into[edge.source] != into[edge.target]} | set(traced.outputs)
    box_of = {box.id: box for box in traced.boxes}
    last = {members[-1].id: box for box, members in inside.items()}     # a box stands where its last vertex stood
    vertices = [_closed(box_of[last[v.id]], inside[last[v.id]], takes[last[v.id]], leaving) if v.id in last else v
                for v in traced.vertices if into[v.id] == v.id or v.id in last]
    return replace(traced, vertices=tuple(vertices), edges=tuple(edges),
                   outputs=tuple(dict.fromkeys(into[v] for v in traced.outputs)),
                   places={v: into[place] for v, place in traced.places.items()},
                   titles={into[v]: title for v, title in traced.titles.items()},
                   boxes=tuple(box for box in traced.boxes if box.id not in folded))


def _merged(edges: Iterable[Edge], into: Mapping[str, str], absorbing: Collection[str]) -> list[Edge]:
    """The edges between what vertices went `into`; those within one are gone. An absorbing vertex takes a value once,
    and what its uses send back is added up."""
    merged: dict[tuple[Any, ...], Edge] = {}
    taken: Counter[str] = Counter()
    for k, edge in enumerate(edges):
        source, target = into[edge.source], into[edge.target]
        if source == target:
            continue
        if target not in absorbing:
            merged[k,] = replace(edge, source=source, target=target)
            continue
        key = edge.origin, target
        if key not in merged:
            merged[key] = replace(edge, source=source, target=target, argument=taken[target], parameter="", rule="")
            taken[target] += 1
        elif edge.grad is not None:
            before = merged[key].grad
            with np.errstate(all="ignore"):
                merged[key] = replace(merged[key], grad=edge.grad if before is None else before + edge.grad)
    return list(merged.values())


def _folded(boxes: Collection[Box], collapse: int | str | Collection[str]) -> dict[str, str]:
    """For each box that is not shown, the folded one that it is in, or is."""
    wanted: int | set[str]
    if isinstance(collapse, (int, np.integer)) and not isinstance(collapse, bool):
        wanted = int(collapse)
        if wanted < 0:
            raise ValueError(f"graph: collapse={wanted} levels of boxes cannot stay open; 0 folds them all")
    elif isinstance(collapse, str) or (isinstance(collapse, Collection) and all(isinstance(n, str) for n in collapse)):
        wanted = {collapse} if isinstance(collapse, str) else set(collapse)
        if unknown := wanted - {box.name for box in boxes if not box.frame}:
            known = ", ".join(sorted({box.name for box in boxes if not box.frame}))
            raise ValueError(f"graph: collapse names no box: {', '.join(sorted(unknown))}; "
                             + (f"the boxes are {known}" if known else "there are no boxes"))
    else:
        raise TypeError(f"graph: collapse={collapse!r}; it is a number of levels, the name of a box, or several names")
    into: dict[str, str] = {}
    level = _levels(boxes)
    for box in boxes:
        if box.frame:
            continue
        if box.outer in into:
            into[box.id] = into[box.outer]
        elif level[box.id] >= wanted if isinstance(wanted, int) else box.name in wanted:
            into[box.id] = box.id
    return into


def _closed(box: Box, inside: list[Vertex], takes: list[tuple[int, ...]], leaving: set[str]) -> Vertex:
    """The vertex of a folded box, with what goes in and comes out. Inside may be a box that was folded before."""
    out = [v for v in inside if v.id in leaving] or inside[-1:]
    ops = sum(int(dict(v.params)["ops"]) if v.kind == "box" else v.kind == "op" for v in inside)
    one = out[0] if len(out) == 1 else None
    return Vertex(box.id, "box", box.name, one.name if one else None, out[-1].shape, out[-1].dtype,
                  (("ops", str(ops)),), box.outer, f"{_listed(takes)} → {_listed([v.shape for v in out])}".strip(),
                  one.value if one else None, one.grad if one else None)


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(f"{n} × {shape}" if n > 1 else str(shape) for shape, n in Counter(shapes).items())


def size(traced: Trace) -> int:
    """How much there is to draw: vertices, and boxes around them."""
    return len(traced.vertices) + len(traced.boxes)


def fit(traced: Trace, max_nodes: int | None, remedy: str = "") -> Trace:
    """The graph in at most `max_nodes`, vertices and boxes: boxes are folded, the innermost first; if that is not
    enough, the oldest vertices are left out. `note` says so."""
    if max_nodes is not None and (not isinstance(max_nodes, (int, np.integer)) or max_nodes < 2):
        raise ValueError(f"graph: max_nodes={max_nodes!r}; a picture needs 2 or more, or None for all")
    if max_nodes is None or size(traced) <= max_nodes:
        return traced
    remedy = remedy or _("max_nodes=None shows all")
    n = _("{count:,} nodes").format(count=len(traced.vertices))
    if all(box.frame for box in traced.boxes):
        return _cut(traced, max_nodes, n, _("… {count:,} older nodes"), remedy)
    levels = range(max(_levels(traced.boxes).values()) + 1)
    fitting = bisect_right(levels, max_nodes, key=lambda k: size(fold(traced, k)))      # so many levels may stay open
    folded = fold(traced, max(fitting - 1, 0))
    if fitting:
        return replace(folded, note=_("{nodes}; boxes are folded to show them in {count:,} ({remedy})").format(
            nodes=n, count=len(folded.vertices), remedy=remedy))
    left = _("{nodes}; boxes are folded, and {count:,} are left").format(nodes=n, count=len(folded.vertices))
    return _cut(folded, max_nodes, left, _("… {count:,} folded and older nodes"), remedy)


def _cut(traced: Trace, max_nodes: int, which: str, what: str, remedy: str) -> Trace:
    """A graph without boxes, but for frames, in `max_nodes`: in each frame one vertex stands for all but the outputs
    and the newest others."""
    frames: dict[str | None, list[Vertex]] = {}
    for v in traced.vertices:
        frames.setdefault(v.box, []).append(v)
    room = max((max_nodes - len(traced.boxes)) // len(frames), 2) - 1
    kept: dict[str, Vertex] = {}
    into: dict[str, str] = {}
    rests: list[Vertex] = []
    for frame, inside in frames.items():
        outputs = [v for v in inside if v.id in traced.outputs][-room:]
        others = [v for v in inside if v.id not in traced.outputs]
        shown = {v.id: v for v in [*others[len(others) - room + len(outputs):], *outputs]}
        shown = shown if len(inside) > len(shown) + 1 else {v.id: v for v in inside}    # a rest of one is no rest
        kept |= shown
        rest = f"rest{frame or ''}"
        into |= {v.id: v.id if v.id in shown else rest for v in inside}
        if len(inside) > len(shown):
            rests.append(Vertex(rest, "rest", what.format(count=len(inside) - len(shown)), None, (), "", box=frame))
    shown_are = _("of which {count:,} are shown") if len(kept) > 1 else _("of which {count:,} is shown")
    return replace(traced, vertices=(*rests, *(v for v in traced.vertices if v.id in kept)),
                   edges=tuple(_merged(traced.edges, into, {v.id for v in rests})),
                   outputs=tuple(v for v in traced.outputs if v in kept),
                   places={v: into[place] for v, place in traced.places.items()},
                   titles={v: title for v, title in traced.titles.items() if v in kept},
                   note=f"{which}, {shown_are.format(count=len(kept))}, "
                        + _("the outputs and the newest others") + f" ({remedy})")


def _levels(boxes: Collection[Box]) -> dict[str | None, int]:
    """How many boxes each is in, not counting frames."""
    level: dict[str | None, int] = {None: -1}
    for box in boxes:
        level[box.id] = level[box.outer] + (not box.frame)
    return level
