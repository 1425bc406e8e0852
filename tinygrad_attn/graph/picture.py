"""`draw` and `compare`, and the `Graph` that they return: a traced graph that can be shown anywhere."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..tensor import Tensor
from . import page
from .dot import dot
from .fold import fit, fold
from .outline import outline
from .render import MISSING, find_dot, render
from .trace import Box, Trace, trace

TEXTS, PICTURES, PAGES = (".dot", ".gv"), (".svg", ".png", ".pdf"), (".html",)


def draw(*tensors: Tensor, names: Any = None, values: bool = False, grads: Any = False, shapes: bool = True,
         collapse: int | str | Collection[str] | None = None, max_nodes: int | None = 500) -> Graph:
    """The computation graph of `tensors`: leaves and constants as boxes, ops as rounded ones, shapes on the edges.

    `names`: a dict of tensors by name (`locals()` gives your own variables), also lists and dicts of them, or a module,
    for the paths of its parameters; without it a tensor has the `name` it was made with. `values` writes out what is
    small. `grads=True` walks back from the sum of all elements and shows each gradient as the width of the edge that
    it takes and the shade of the vertex, on a log scale; instead of True it may be dL/d tensor, in its shape. Nobody's
    `.grad` is touched, and nothing freed, so that it may be drawn in any order. `collapse` folds boxes (made by `scope`,
    `attention` and modules): a number leaves that many levels open, a name, or several, folds those. A graph of more
    than `max_nodes` is folded, and if that is not enough, its oldest part left out; `.note` says so.

    A freed graph is a GraphFreedError. A graph shows what the chain rule walks through: without one, it stays a story.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> print(draw(x * x + 1.0, values=True, grads=True))
    add () = 10 grad 1
      multiply () = 9 grad 1
        x () = 3 grad 6
        x ()
      1
    """
    return Graph(trace(*tensors, names=names, grads=grads), tensors=tensors, names=names, values=values, shapes=shapes,
                 collapse=collapse, max_nodes=max_nodes)


def compare(a: Graph | Tensor, b: Graph | Tensor, titles: tuple[str, str] = ("a", "b"), **options: Any) -> Graph:
    """Two graphs side by side, their gradients on one scale; `options` are those of `draw`.

    They are Graphs, or Tensors, which are drawn with `grads=True` if the options do not say otherwise. A gradient that
    vanishes in one of them is seen beside the other, where it does not.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> print(compare(x * x, x * 1e-3, titles=("square", "small"), shapes=False))
    multiply grad 1
      x grad 6
      x
    multiply grad 1
      x grad 0.001
      0.001
    """
    options = {"grads": True, **options}
    graphs = [x if isinstance(x, Graph) else draw(x, **options) for x in (a, b)]
    if len({graph.trace.has_grads for graph in graphs}) > 1:
        raise ValueError("graph.compare: one graph was drawn with grads=, the other without; draw both alike")
    parts = [_inside_box(graph.trace, title, prefix) for graph, title, prefix in zip(graphs, titles, ("a", "b"))]
    both = Trace(*((*getattr(parts[0], part), *getattr(parts[1], part)) for part in ("vertices", "edges", "outputs",
                                                                                     "boxes")),
                 has_grads=graphs[0].trace.has_grads)
    look = dict(graphs[0].look)
    if isinstance(look["collapse"], int):
        look["collapse"] += 1               # the two are boxes themselves
    look |= {key: options[key] for key in look if key in options and key != "collapse"}
    return Graph(both, **look)


def _inside_box(traced: Trace, title: str, prefix: str) -> Trace:
    """The same graph as one box, with ids of its own."""
    def own(name: str | None) -> str:
        return f"{prefix}{name}" if name else f"{prefix}b"
    return Trace(tuple(replace(v, id=own(v.id), box=own(v.box)) for v in traced.vertices),
                 tuple(replace(e, source=own(e.source), target=own(e.target)) for e in traced.edges),
                 tuple(map(own, traced.outputs)),
                 (Box(own(None), title, None), *(Box(own(b.id), b.name, own(b.outer)) for b in traced.boxes)),
                 traced.has_grads, traced.note)


class Graph:
    """A drawn graph. A notebook shows it by itself, `print` outlines it, `.save(path)` writes a picture or a page.

    `.trace` is the whole graph as plain data, `.shown` the part that is drawn, `.source` that part as DOT text, and
    `.note` says what is left out.
    """

    def __init__(self, traced: Trace, *, tensors: tuple[Tensor, ...] = (), names: Any = None, values: bool = False,
                 shapes: bool = True, collapse: int | str | Collection[str] | None = None,
                 max_nodes: int | None = None) -> None:
        self.trace = traced
        self.shown = fit(fold(traced, collapse), max_nodes)
        self.look = {"values": values, "shapes": shapes, "collapse": collapse, "max_nodes": max_nodes}
        self._again = tensors, names

    @property
    def note(self) -> str:
        """What is left out of the picture, and how to see it; empty if nothing is."""
        return self.shown.note

    @property
    def source(self) -> str:
        """DOT text, the same for the same computation in every run."""
        return dot(self.shown, values=self.look["values"], grads=self.trace.has_grads, shapes=self.look["shapes"])

    def render(self, format: str = "svg") -> bytes:
        """The picture as bytes. A RuntimeError says what to install if no `dot` program is found."""
        return render(self.source, format)

    def page(self, lang: str = "en") -> str:
        """The backward pass as a film: one page that needs no network, to be stepped through op by op.

        It needs gradients. If they were not drawn, the walk is made now, so the graph must not be freed by then.
        """
        traced = self.trace
        tensors, names = self._again
        if not traced.has_grads and any(t.requires_grad for t in tensors):
            traced = trace(*tensors, names=names, grads=True)
        limit = self.look["max_nodes"]
        whole = fit(traced, limit)
        folded = {box.id for box in whole.boxes} - {box.id for box in fold(whole, self.look["collapse"]).boxes}
        return page.page(whole, folded, lang=lang, shapes=self.look["shapes"])

    def save(self, path: str | os.PathLike[str], *, lang: str = "en") -> Path:
        """Write DOT text (.dot, .gv), a picture (.svg, .png, .pdf) or the film of the backward pass (.html, in `lang`,
        "en" or "pt"); the suffix decides. The file is written whole or not at all."""
        target = Path(path)
        kind = target.suffix.lower()
        if kind not in TEXTS + PICTURES + PAGES:
            raise ValueError(f"graph: cannot save {str(path)!r}; its suffix must be one of "
                             f"{', '.join(TEXTS + PICTURES + PAGES)}")
        if target.is_dir():
            raise IsADirectoryError(f"graph: {path} is a folder; give the name of a file")
        if not target.absolute().parent.is_dir():
            raise FileNotFoundError(f"graph: cannot save {str(path)!r}; there is no folder {str(target.parent)!r}")
        content = (self.source.encode() if kind in TEXTS else self.page(lang).encode() if kind in PAGES else
                   self.render(kind[1:]))
        write_whole(target, content)
        return target

    def _repr_svg_(self) -> str | None:
        """SVG for a notebook, or nothing, where none can be made."""
        try:
            return self.render("svg").decode()
        except Exception:                   # a notebook must show something whatever is missing
            return None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For a notebook: SVG; where there is no program to draw it the page, in a frame; always text."""
        try:
            bundle = {"text/plain": str(self)}
        except Exception as error:
            return {"text/plain": f"a graph ({type(error).__name__}: {error})"}
        try:
            if find_dot():
                bundle["image/svg+xml"] = self.render("svg").decode()
            else:
                bundle["text/html"] = page.framed(self.page())
                bundle["text/plain"] += f"\n({MISSING})"
        except Exception as error:          # a notebook must show something whatever is missing
            bundle["text/plain"] += f"\n({type(error).__name__}: {error})"
        return bundle

    def __str__(self) -> str:
        """An indented outline, from the outputs down to what they were made of; a part shown before is `…`."""
        return outline(self.shown, values=self.look["values"], grads=self.trace.has_grads, shapes=self.look["shapes"])

    def __repr__(self) -> str:
        ops = sum(vertex.kind == "op" for vertex in self.trace.vertices)
        return f"<Graph of {ops} ops, {len(self.trace.vertices)} vertices, {len(self.trace.edges)} edges>"
