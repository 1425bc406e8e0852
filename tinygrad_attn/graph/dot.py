"""DOT text of a traced graph, by the `graphviz` package, and pictures of it, where a `dot` program can be found."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from ..tensor import Tensor
from .trace import Trace, Vertex, trace

PICTURES = (".svg", ".png", ".pdf")
TEXTS = (".dot", ".gv")

_FONT = "Arial"
_STYLE = {
    "leaf": {"shape": "box", "style": "filled,rounded", "fillcolor": "#fde7c5", "color": "#b4690e"},
    "constant": {"shape": "box", "style": "filled", "fillcolor": "#eeeeee", "color": "#8a8a8a"},
    "op": {"shape": "ellipse", "style": "filled", "fillcolor": "#dbe9fb", "color": "#2f6fb7"},
}


def draw(*tensors: Tensor) -> Graph:
    """The computation graph of `tensors`: ops as ellipses, leaves as rounded and constants as plain boxes, each
    with its shape and its name, if it was given one.

    >>> x = Tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> picture = draw((x * x).sum())
    >>> print(picture)
    sum ()
      multiply (2,)
        x (2,)
        x (2,)
    """
    return Graph(trace(*tensors))


class Graph:
    """A drawn graph: `.source` is its DOT text, `.save(path)` writes a picture; a notebook shows it by itself."""

    def __init__(self, traced: Trace) -> None:
        self.trace = traced

    @property
    def source(self) -> str:
        """DOT text, the same for the same computation in every run."""
        import graphviz

        dot = graphviz.Digraph(graph_attr={"bgcolor": "white", "rankdir": "TB", "nodesep": "0.3", "ranksep": "0.35"},
                               node_attr={"fontname": _FONT, "fontsize": "12", "fontcolor": "#1c1c1c", "height": "0.4"},
                               edge_attr={"color": "#555555", "arrowsize": "0.7"})
        for vertex in self.trace.vertices:
            style = dict(_STYLE[vertex.kind], penwidth="2.5" if vertex.id in self.trace.outputs else "1")
            dot.node(vertex.id, label=_label(graphviz, vertex), **style)
        for edge in self.trace.edges:
            dot.edge(edge.source, edge.target)
        return str(dot.source)

    def render(self, format: str = "svg") -> bytes:
        """The picture as bytes. A RuntimeError says what to install if no `dot` program is found."""
        import graphviz

        binary = find_dot()
        if binary is None:
            raise RuntimeError("no `dot` program was found to draw with: python3 -m pip install graphviz-pure brings "
                               "one (the extra [graph]), as does Graphviz itself. The DOT text, .source, needs none")
        dot_command = graphviz.backend.dot_command
        before, dot_command.DOT_BINARY = dot_command.DOT_BINARY, Path(binary)
        try:
            picture = bytes(graphviz.Source(self.source).pipe(format=format, quiet=True))
        finally:
            dot_command.DOT_BINARY = before
        if not picture:
            raise RuntimeError(f"{binary} drew nothing")
        return picture

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write DOT text (.dot, .gv) or a picture (.svg, .png, .pdf); the suffix decides. The file is written whole
        or not at all."""
        target = Path(path)
        if target.suffix not in TEXTS + PICTURES:
            raise ValueError(f"graph: cannot save {str(path)!r}; its suffix must be one of "
                             f"{', '.join(TEXTS + PICTURES)}")
        content = self.source.encode() if target.suffix in TEXTS else self.render(target.suffix[1:])
        write_whole(target, content)
        return target

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle = {"text/plain": str(self)}
        try:
            bundle["image/svg+xml"] = self.render("svg").decode()
        except Exception as error:          # a notebook must show something whatever is missing
            bundle["text/plain"] += f"\n({type(error).__name__}: {error})"
        return bundle

    def __str__(self) -> str:
        """An indented outline, from the outputs down to what they were made of; a part shown before is `…`. Deeper
        than 40 the indentation stays, so that the text grows with the graph and no faster."""
        vertices = {vertex.id: vertex for vertex in self.trace.vertices}
        sources: dict[str, list[str]] = {}
        for edge in self.trace.edges:
            sources.setdefault(edge.target, []).append(edge.source)
        lines: list[str] = []
        shown: set[str] = set()
        pending = [(output, 0) for output in reversed(self.trace.outputs)]
        while pending:
            vertex_id, depth = pending.pop()
            again = vertex_id in shown and vertex_id in sources
            lines.append("  " * min(depth, 40) + " ".join(_words(vertices[vertex_id])) + (" …" if again else ""))
            if not again:
                pending += [(source, depth + 1) for source in reversed(sources.get(vertex_id, []))]
            shown.add(vertex_id)
        return "\n".join(lines)


def _words(vertex: Vertex) -> list[str]:
    """What to say of a vertex: its name and op or value, the parameters, the shape."""
    title = " = ".join(filter(None, [vertex.name, vertex.label]))
    params = ", ".join(f"{key}={text}" for key, text in vertex.params)
    shape = "" if vertex.kind == "constant" and vertex.label else str(vertex.shape)
    return [word for word in (title, params, shape) if word]


def _label(graphviz: Any, vertex: Vertex) -> Any:
    """Words as lines; whatever users write in a name is shown as they wrote it, and is never DOT syntax."""
    def shown(word: str) -> str:
        printable = "".join(c if c.isprintable() or c == "\n" else "�" for c in word)
        return str(graphviz.escape(printable.replace("&", "&amp;"))).replace("\n", r"\n")
    return graphviz.nohtml(r"\n".join(map(shown, _words(vertex))))


def find_dot() -> str | None:
    """A `dot` program: Graphviz's own on PATH, else the one of the `graphviz-pure` wheel, also where its folder of
    scripts is not on PATH, as in a virtual environment that was not activated."""
    folders = [Path(sys.executable).parent, *(Path(sysconfig.get_path("scripts", scheme)) for scheme in
                                              (sysconfig.get_default_scheme(), f"{os.name}_user")
                                              if scheme in sysconfig.get_scheme_names())]
    return (shutil.which("dot") or shutil.which("graphviz-pure")
            or shutil.which("graphviz-pure", path=os.pathsep.join(map(str, folders))))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old one or the new one, and never a part."""
    path = Path(os.path.realpath(path))     # through a link, to what it names
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
