"""A graph as indented text, for terminals, and for all who do not see pictures."""

from __future__ import annotations

from dataclasses import replace

from .labels import gradient_text, title_lines, value_lines
from .trace import Trace, Vertex


def outline(traced: Trace, *, values: bool = False, shapes: bool = True) -> str:
    """From the outputs down to what they were made of; what was shown before is not shown again. Deeper than 40 the
    indentation stays, so that the text grows with the graph and no faster. Graphs that are compared have titles."""
    vertices = {vertex.id: vertex for vertex in traced.vertices}
    sources: dict[str, list[str]] = {}
    for edge in traced.edges:
        sources.setdefault(edge.target, []).append(edge.source)
    lines: list[str] = []
    shown: set[str] = set()
    pending = [(output, 0) for output in reversed(traced.outputs)]
    while pending:
        vertex_id, depth = pending.pop()
        again = vertex_id in shown and vertex_id in sources
        if not depth and vertex_id in traced.titles:
            lines.append(f"{traced.titles[vertex_id]}:")
        lines.append("  " * min(depth, 40) + _line(vertices[vertex_id], values and not again, shapes, traced, again))
        if not again:
            pending += [(source, depth + 1) for source in reversed(sources.get(vertex_id, []))]
        shown.add(vertex_id)
    return "\n".join([*lines, *([f"({traced.note})"] if traced.note else [])])


def _line(vertex: Vertex, values: bool, shapes: bool, traced: Trace, again: bool) -> str:
    if vertex.kind == "box":
        vertex = replace(vertex, label=f"[{vertex.label}]")
    said = title_lines(vertex, shapes)
    if values and (rows := value_lines(vertex)):
        said.append(f"= {'; '.join(rows)}")
    if traced.seed and not again:
        said.append(gradient_text(vertex))
    return " ".join(" ".join([*said, *(["(above)"] if again else [])]).split())
