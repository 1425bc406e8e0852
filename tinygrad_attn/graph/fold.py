"""Less of a graph: boxes folded into one vertex each, and what is still too much left out. Traces in, traces out."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from .trace import Box, Edge, Trace, Vertex


def fold(traced: Trace, collapse: int | str | Collection[str] | None) -> Trace:
    """The same graph with boxes folded, each into one vertex that takes what went in and gives what came out.

    A number leaves that many levels of boxes open: 0 folds the outermost. A name, or several, folds the boxes that have
    it. A value that a box uses several times goes in once, and the gradients that it gets from there are added up.
    """
    if collapse is None:
        return traced
    folded = _folded(traced.boxes, collapse)
    into = {v.id: folded.get(v.box) or v.id if v.box else v.id for v in traced.vertices}
    vertices: list[Vertex] = []
    merged: dict[tuple[Any, ...], Edge] = {}
    names = {box.id: box.name for box in traced.boxes}
    insides: dict[str, list[Vertex]] = {}
    for vertex in traced.vertices:
        if into[vertex.id] == vertex.id:
            vertices.append(vertex)
            continue
        inside = insides.setdefault(into[vertex.id], [])
        if not inside:
            vertices.append(Vertex(into[vertex.id], "box", names[into[vertex.id]], None, (), ""))
        inside.append(vertex)
    arguments: Counter[str] = Counter()
    oldest: dict[tuple[Any, ...], str] = {}
    for k, edge in enumerate(traced.edges):
        source, target = into[edge.source], into[edge.target]
        if source == target:
            continue
        key = (edge.source, target) if target in insides else (k,)
        if key in merged:
            # The walk goes back: of the uses, those by the oldest op come last, in the order of its arguments.
            total = edge.total if edge.target == oldest[key] else merged[key].total
            merged[key] = replace(merged[key], grad=_sum(merged[key].grad, edge.grad), total=total)
        else:
            oldest[key] = edge.target
            merged[key] = replace(edge, source=source, target=target,
                                  argument=arguments[target] if target in insides else edge.argument,
                                  rule="" if target in insides else edge.rule)
            arguments[target] += 1
    leaving = {edge.source for edge in traced.edges if into[edge.source] != into[edge.target]} | set(traced.outputs)
    outer = {box.id: box.outer for box in traced.boxes}
    takes: dict[str, list[tuple[int, ...]]] = {box: [] for box in insides}
    for edge in merged.values():
        if edge.target in takes:
            takes[edge.target].append(edge.shape)
    closed = {v.id: _closed(v, insides[v.id], takes[v.id], leaving, outer[v.id]) for v in vertices if v.id in insides}
    gone = {box.id for box in traced.boxes if box.id in folded}
    return replace(traced, vertices=tuple(closed.get(v.id, v) for v in vertices), edges=tuple(merged.values()),
                   outputs=tuple(dict.fromkeys(into[v] for v in traced.outputs)),
                   boxes=tuple(box for box in traced.boxes if box.id not in gone))


def _folded(boxes: Collection[Box], collapse: int | str | Collection[str]) -> dict[str, str]:
    """For each box that is not shown, the folded one that it is in, or is."""
    if isinstance(collapse, int) and collapse < 0:
        raise ValueError(f"graph: collapse={collapse} levels of boxes cannot stay open; 0 folds them all")
    wanted = {collapse} if isinstance(collapse, str) else collapse
    if not isinstance(wanted, int) and (unknown := set(wanted) - {box.name for box in boxes}):
        raise ValueError(f"graph: collapse names no box: {', '.join(sorted(map(str, unknown)))}; the boxes are "
                         f"{', '.join(sorted({box.name for box in boxes})) or 'none'}")
    into: dict[str, str] = {}
    depth: dict[str | None, int] = {None: -1}
    for box in boxes:
        depth[box.id] = depth[box.outer] + 1
        if box.outer in into:
            into[box.id] = into[box.outer]
        elif depth[box.id] >= wanted if isinstance(wanted, int) else box.name in wanted:
            into[box.id] = box.id
    return into


def _closed(vertex: Vertex, inside: list[Vertex], takes: list[tuple[int, ...]], leaving: set[str],
            outer: str | None) -> Vertex:
    """The vertex of a folded box, with what goes in and comes out."""
    out = [v for v in inside if v.id in leaving] or inside[-1:]
    one = out[0] if len(out) == 1 else None
    return replace(vertex, shape=out[-1].shape, dtype=out[-1].dtype, box=outer, name=one.name if one else None,
                   formula=f"{_listed(takes)} → {_listed([v.shape for v in out])}",
                   params=(("ops", str(sum(v.kind == "op" for v in inside))),),
                   value=one.value if one else None, grad=one.grad if one else None)


def _listed(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(f"{n} × {shape}" if n > 1 else str(shape) for shape, n in Counter(shapes).items()) or "nothing"


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def fit(traced: Trace, max_nodes: int | None, remedy: str = "max_nodes=None shows all") -> Trace:
    """The graph in at most `max_nodes` vertices: boxes are folded, the innermost first; if that is not enough, the
    oldest vertices are left out. `note` says so."""
    if max_nodes is None or len(traced.vertices) <= max_nodes:
        return traced
    if max_nodes < 2:
        raise ValueError(f"graph: max_nodes={max_nodes}; a picture needs 2 or more, or None for all")
    n = len(traced.vertices)
    if traced.boxes:
        fitting = bisect_right(range(_depth(traced.boxes)), max_nodes, key=lambda k: len(fold(traced, k).vertices))
        folded = fold(traced, max(fitting - 1, 0))
        if fitting:
            return replace(folded, note=f"{n:,} nodes; boxes are folded to show them in {len(folded.vertices):,} "
                                        f"({remedy})")
        traced = folded
    newest = traced.vertices[-(max_nodes - 1):]
    kept = {v.id for v in newest} | {"rest"}
    left_out = len(traced.vertices) - len(newest)
    rest = Vertex("rest", "rest", f"… {left_out:,} older nodes", None, (), "")
    edges: dict[tuple[str, str, int], Edge] = {}
    for edge in traced.edges:
        if edge.target in kept:
            moved = edge if edge.source in kept else replace(edge, source="rest")
            edges.setdefault((moved.source, moved.target, moved.argument), moved)
    boxes = _around({v.box for v in newest}, traced.boxes)
    return replace(traced, vertices=(rest, *newest), edges=tuple(edges.values()), boxes=boxes,
                   outputs=tuple(dict.fromkeys(v if v in kept else "rest" for v in traced.outputs)),
                   note=f"{n:,} nodes, of which the newest {len(newest):,} are shown ({remedy})")


def _depth(boxes: Collection[Box]) -> int:
    depth: dict[str | None, int] = {None: 0}
    for box in boxes:
        depth[box.id] = depth[box.outer] + 1
    return max(depth.values())


def _around(inner: set[str | None], boxes: Collection[Box]) -> tuple[Box, ...]:
    """The boxes that are still in use, and those around them."""
    used = set(inner)
    for box in reversed(tuple(boxes)):
        if box.id in used:
            used.add(box.outer)
    return tuple(box for box in boxes if box.id in used)
