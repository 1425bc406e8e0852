"""DOT text of a traced graph, by the `graphviz` package. Its colours are for light paper; `render.py` adds the dark."""

from __future__ import annotations

import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .labels import Strengths, gradient_text, title_lines, value_lines
from .trace import Box, Edge, Trace, Vertex, number
from .words import say, translated

FONT = "Arial"
INK, SOFT = "#1c2733", "#5a6775"
# fill and line, for light and dark paper
COLOURS = {
    "leaf": (("#fdeccb", "#b9770e"), ("#4a3714", "#d9a441")),
    "constant": (("#f1f3f5", "#8b95a0"), ("#262c33", "#7b8794")),
    "op": (("#e4eefb", "#3f7cc4"), ("#1d3552", "#5b9be6")),
    "box": (("#ece6fa", "#7d5fc7"), ("#332a52", "#a48be8")),
    "rest": (("#ffffff", "#a3acb6"), ("#14181d", "#66717d")),
}
# By level of gradient: of vertices the fill, of edges the line
SHADES = (("#ffffff", "#fffbf5", "#fff4e6", "#ffecd4", "#ffe2be", "#ffd7a5", "#ffcb8b", "#ffbe70"),
          ("#14181d", "#211d19", "#30261d", "#402f20", "#513922", "#624224", "#744c25", "#865625"))
LINES = (("#b4bcc5", "#c0ae9b", "#c4a27d", "#c79560", "#c98846", "#c97b2f", "#c66d1b", "#c05f08"),
         ("#4b555f", "#5b534c", "#73614f", "#8b6f52", "#a47d54", "#bd8b56", "#d69957", "#f0a858"))
LONG = 1000                                 # ranks passed by all edges, beyond which Graphviz gets slow
CAPTION = 48                                # characters a line
CLASS = "tinygrad"                          # a prefix: the classes of a picture in a notebook are those of the page
SHAPES = {"leaf": "box", "constant": "box", "op": "box", "box": "box", "rest": "plaintext"}


def dot(traced: Trace, *, values: bool = False, shapes: bool = True, lang: str = "en") -> str:
    """DOT text, with gradients if they were traced; the same for the same computation in every run. What users wrote
    in a name is shown as they wrote it, and is never syntax: ids are the trace's own."""
    graphviz = graphviz_package()
    strengths = Strengths(traced) if traced.seed else None
    captions = [f"{strengths.legend(lang)} {say(lang)['against']}" if strengths else "", traced.note]
    caption = "\n".join(line for text in captions for line in textwrap.wrap(text, CAPTION))
    digraph = graphviz.Digraph(
        graph_attr={"bgcolor": "white", "rankdir": "TB", "nodesep": "0.25", "ranksep": "0.35", "fontname": FONT,
                    "fontsize": "10", "fontcolor": SOFT, "pad": "0.2", "labelloc": "b", "ordering": "in",
                    **({"label": _padded(_in_quotes(caption))} if caption else {}),
                    **({"nslimit": "1", "nslimit1": "1", "splines": "line"} if _crowded(traced) else {})},
        node_attr={"fontname": FONT, "fontsize": "12", "fontcolor": INK, "height": "0.3", "margin": "0.1,0.06"},
        edge_attr={"fontname": FONT, "fontsize": "9", "fontcolor": SOFT, "color": "#7b8794", "arrowsize": "0.6"})
    uses = Counter(edge.source for edge in traced.edges)
    sinks = {vertex.id for vertex in traced.vertices if not uses[vertex.id]}
    rules: dict[str, dict[str, None]] = {}
    for edge in traced.edges:
        rules.setdefault(edge.target, {})[edge.rule] = None
    for item in _nested(traced):
        if isinstance(item, Vertex):
            look = _node(item, strengths, values, shapes, item.id in sinks)
            look |= {"penwidth": "2.2"} if item.id in traced.outputs else {}
            digraph.node(item.id, **look, tooltip=_tooltip(item, rules.get(item.id, {}), lang))
        elif isinstance(item, Box):
            digraph.body.append(
                f'\tsubgraph "cluster_{item.id}" {{\n\tgraph [label="{_titled(item.name)}" labeljust=l '
                f'labelloc=t tooltip="{_tip(item.name)}" style="rounded,filled" color="#cfd8e1" '
                f'fillcolor="#f6f8fa" margin=10 class="{CLASS}-cluster"]\n')
        else:
            digraph.body.append("\t}\n")
    for edge in traced.edges:
        digraph.edge(edge.source, edge.target, **_edge(edge, strengths, shapes, uses[edge.source] > 1))
    return str(digraph.source)


def graphviz_package() -> Any:
    """The `graphviz` package, which writes DOT and runs programs; loaded when it is first needed."""
    try:
        import graphviz
    except ImportError:
        raise ImportError("graph: DOT text and pictures need the package graphviz: python3 -m pip install graphviz. "
                          "The outline, print(graph), and the page, .save('graph.html'), need nothing") from None
    return graphviz


def _nested(traced: Trace) -> Iterator[Vertex | Box | None]:
    """The vertices, each in its box: a Box opens one, and None closes the innermost."""
    boxes = {box.id: box for box in traced.boxes}
    inside: dict[str | None, list[Vertex | Box]] = {None: []}
    for vertex in traced.vertices:
        item: Vertex | Box = vertex
        while (outer := item.outer if isinstance(item, Box) else item.box) not in inside:     # the first in its box
            inside[outer], item = [item], boxes[str(outer)]
        inside[outer].append(item)
    open_ = [iter(inside[None])]
    while open_:
        part = next(open_[-1], None)
        if part is None:
            open_.pop()
            if open_:
                yield None
        elif isinstance(part, Box) and [getattr(v, "label", None) for v in inside[part.id]] == [part.name]:
            yield from inside[part.id]      # a box named softmax around the op softmax alone says nothing
        else:
            yield part
            if isinstance(part, Box):
                open_.append(iter(inside[part.id]))


def _crowded(traced: Trace) -> bool:
    """Would Graphviz take minutes for beauty? It does if very many edges pass very many ranks."""
    early: Counter[str] = Counter()
    for edge in traced.edges:               # each vertex as high as its inputs let it stand
        early[edge.target] = max(early[edge.target], early[edge.source] + 1)
    late, moved = dict(early), set[str]()
    for edge in reversed(traced.edges):     # and as low as its uses do
        last = late.get(edge.target, 0) - 1
        late[edge.source] = min(late[edge.source], last) if edge.source in moved else last
        moved.add(edge.source)
    return min(sum(rank[edge.target] - rank[edge.source] for edge in traced.edges) for rank in (early, late)) > LONG


def _node(vertex: Vertex, strengths: Strengths | None, values: bool, shapes: bool, last: bool) -> dict[str, str]:
    """Its attributes. The shape stands on the edges, and on a vertex only if no edge leaves it."""
    lines = title_lines(vertex, shapes and (vertex.kind == "box" or (last and bool(vertex.shape))))
    lines = lines or [str(vertex.shape) if shapes else vertex.kind]
    if values and (rows := value_lines(vertex)):
        lines += [f"= {rows[0]}"] if len(rows) == 1 else rows
    lines += filter(None, [gradient_text(vertex) if strengths else ""])
    level = strengths.level(vertex) if strengths else None
    (fill, line), _ = COLOURS[vertex.kind]
    style, classes = ["filled"], [f"{CLASS}-{vertex.kind}"]
    style += ["rounded"] if vertex.kind in ("op", "box") else []
    if level is not None:
        fill = SHADES[0][level]
        style += [] if level else ["dashed"]
        classes.append(f"{CLASS}-shade{level}")
    small = vertex.kind == "constant" and vertex.label
    size = 10 if small else 12
    return {"label": _label(lines), "shape": SHAPES[vertex.kind], "style": ",".join(style), "fillcolor": fill,
            "color": line, "class": " ".join(classes), "width": f"{_width(lines, size):.2f}",
            **({"peripheries": "2"} if vertex.kind == "box" else {}),
            **({"fontsize": "10", "height": "0.2", "margin": "0.06,0.03"} if small else {})}


def _edge(edge: Edge, strengths: Strengths | None, shapes: bool, shared: bool) -> dict[str, str]:
    """Its attributes. Where a number has several uses, each edge says its share of the gradient."""
    level = strengths.level(edge) if strengths else None
    look = {"tooltip": _tip(edge.rule or str(edge.shape))}
    if shapes and edge.shape:
        look["label"] = f"\u00a0\u00a0{edge.shape}\u00a0"
    elif shared and edge.grad is not None and not np.ndim(edge.grad):
        look["label"] = f"\u00a0\u00a0{number(edge.grad)}\u00a0"
    if strengths:
        look |= {"color": LINES[0][level or 0], "class": f"{CLASS}-line{level or 0}",
                 "penwidth": f"{0.5 + 0.7 * (level or 0):.1f}"}
    return look | ({"style": "dashed"} if level == 0 else {})


def _tooltip(vertex: Vertex, rules: Iterable[str], lang: str) -> str:
    """What the op computes, and how it sends a gradient back."""
    first = ": ".join(filter(None, [vertex.label, translated(vertex.formula, lang)])) or vertex.name or vertex.kind
    return _tip("\n".join([first, *filter(None, rules)]))


def _tip(text: str) -> Any:
    """A tooltip: no escape of DOT, no entity and no markup is meant. Graphviz unescapes it twice."""
    return graphviz_package().nohtml(_in_quotes(text).replace("&#92;", "&#92;&#92;"))


def _in_quotes(text: str) -> str:
    """Lines of plain text for an attribute in quotes."""
    return _safe(text).replace("\n", r"\n")


def _safe(text: str) -> str:
    """Text in which nothing is special: no quote, no &, and no backslash, which Graphviz would read even as an entity:
    as two it reads one."""
    printable = "".join("�" if c != "\n" and (unicodedata.category(c) in ("Cc", "Cs") or c in "\ufffe\uffff") else c
                        for c in text)      # of what XML cannot hold
    return printable.replace("&", "&amp;").replace("\\", "&#92;&#92;").replace('"', "&quot;")


def _label(lines: list[str]) -> str:
    """Graphviz's markup of several lines, the first as it is and the others smaller; spaces are kept."""
    first, *others = (part.replace("<", "&lt;").replace(">", "&gt;").replace("  ", "&#160;&#160;") or "&#160;"
                      for line in lines for part in _safe(line).split("\n"))
    gap = '<BR/><FONT POINT-SIZE="4">&#160;</FONT>' if others else ""
    small = (f'<BR/><FONT POINT-SIZE="10">{line}</FONT>' for line in others)
    return f"<{first}{gap}{''.join(small)}>"


def _width(lines: list[str], size: int) -> float:
    """Inches that the lines take in a wide font: who looks at the picture may have another than who drew it."""
    def ems(line: str) -> float:
        return sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.64 for c in line)
    first, *others = (part for line in lines for part in line.split("\n"))
    return (max([ems(first) * size, *(ems(line) * 10 for line in others)]) + 8) / 72


def _titled(name: str) -> str:
    """A name for the left end of a box's top, and room beside it, for edges to come in by."""
    return _in_quotes(name) + "\u00a0" * min(4 * len(name), 32) + r"\l"


def _padded(text: str) -> str:
    """Each line of a label with room for a wider font, by spaces at both ends."""
    return r"\n".join(("\u00a0" * (len(line) // 8)).join(["", line, ""]) for line in text.split(r"\n"))
