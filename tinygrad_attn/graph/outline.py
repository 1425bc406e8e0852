"""A graph as indented text, for terminals, and for all who do not see pictures."""

from __future__ import annotations

from dataclasses import replace

from .labels import facts, words
from .trace import Trace


def outline(traced: Trace, *, values: bool = False, shapes: bool = True) -> str:
    """From the outputs down to what they were made of; a part shown before is `…`. Deeper than 40 the indentation
    stays, so that the text grows with the graph and no faster."""
    vertices = {vertex.id: vertex for vertex in traced.vertices}
    sources: dict[str, list[str]] = {}
    for edge in traced.edges:
        sources.setdefault(edge.target, []).append(edge.source)
    lines: list[str] = []
    shown: set[str] = set()
    pending = [(output, 0) for output in reversed(traced.outputs)]
    while pending:
        vertex_id, depth = pending.pop()
        vertex, again = vertices[vertex_id], vertex_id in shown and vertex_id in sources
        vertex = replace(vertex, label=f"[{vertex.label}]") if vertex.kind == "box" else vertex
        said = [*words(vertex, shapes), *(() if again else facts(vertex, values, traced.seed is not None))]
        lines.append("  " * min(depth, 40) + " ".join(" ".join(said).split()) + (" …" if again else ""))
        if not again:
            pending += [(source, depth + 1) for source in reversed(sources.get(vertex_id, []))]
        shown.add(vertex_id)
    return "\n".join([*lines, *([f"({traced.note})"] if traced.note else [])])
