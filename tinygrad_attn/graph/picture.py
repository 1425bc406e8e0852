"""`draw` and `compare`, and the `Graph` that they return: a traced graph that can be shown anywhere."""

from __future__ import annotations

import contextlib
import errno
import html
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..languages import _, language, speaking
from ..tensor import Tensor
from .dot import dot
from .fold import fit, fold, size
from .labels import outputs
from .outline import outline
from .page import Page, page
from .render import render
from .trace import Box, Trace, named, trace
from .words import say

TEXTS, PICTURES, PAGES = (".dot", ".gv"), (".svg", ".png", ".pdf"), (".html",)
SUFFIXES = TEXTS + PICTURES + PAGES
PAGE, OPEN, DEEP = 500, 200, 12             # nodes that a page can lay out; that it opens with, and levels of boxes
Collapse = int | str | Collection[str] | None


def draw(*tensors: Tensor, names: Any = None, values: bool = False, grads: Any = False, shapes: bool = True,
         collapse: Collapse = None, max_nodes: int | None = 500) -> Graph:
    """The computation graph of `tensors`: leaves and constants as rectangles, ops rounded, shapes on the edges.

    `names` is a dict of tensors by name (`locals()` gives your own variables), also of lists and dicts of them, or a
    module, for the paths of its parameters; what it does not name has the `name` it was made with. `values=True` writes
    out small arrays, and of large ones the least and the largest element. `grads=True` walks back from the sum of all
    elements and shows each gradient as the width of the edge that it takes and the shade of the vertex, on a log scale;
    instead of True it may be dL/d tensor, in its shape. Nobody's `.grad` is touched and nothing is freed, so it does
    not matter when you draw.

    `collapse` folds the boxes that `scope`, `attention` and modules make: a number leaves that many levels open, a
    name, or several, folds those. A graph of more than `max_nodes` is folded, and if that is not enough, its oldest
    part is left out; `.note` says so. Why: the chain rule walks along these edges; who has seen it do so once needs no
    formula for it.

    A freed graph is a GraphFreedError; gradients of what needs none, a GraphError, and of another shape a ShapeError;
    a name that no box has, or fewer than 2 nodes, a ValueError; what is no Tensor, or names that are no dict, a
    TypeError.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> print(draw(x * x + 1.0, values=True, grads=True))
    add () = 10 grad 1
      multiply () = 9 grad 1
        x () = 3 grad 6
        x () = 3 grad 6
      1
    """
    called = named(names)                   # now: locals() is another dict later
    return Graph(trace(*tensors, names=called, grads=grads), Look(values, shapes, collapse, max_nodes),
                 lambda: trace(*tensors, names=called, grads=any(t.requires_grad for t in tensors)))


def compare(a: Graph | Tensor, b: Graph | Tensor, titles: tuple[str, str] = ("a", "b"), **options: Any) -> Graph:
    """Two graphs side by side, their gradients on one scale.

    They are Graphs, of which the first gives the look of both, or Tensors, which are drawn with `grads=True` if the
    options do not say otherwise. `options` are those of `draw`; for two Graphs only those that change the look. Why: a
    gradient that vanishes is seen best beside one that does not. One graph drawn with gradients and one without is a
    ValueError, and titles that are not two names, or options that nothing uses, a TypeError.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> print(compare(x * x, x * 1e-3, titles=("square", "small"), shapes=False))
    square:
    multiply grad 1
      x grad 6
      x grad 6
    small:
    multiply grad 1
      x grad 0.001
      0.001
    """
    if not isinstance(titles, (tuple, list)) or [type(title) for title in titles] != [str, str]:
        raise TypeError(f"graph.compare: titles={titles!r}; give two names, of the one graph and of the other")
    changes = {key: options.pop(key) for key in list(options) if key in Look.__dataclass_fields__}
    if options and isinstance(a, Graph) and isinstance(b, Graph):
        raise TypeError(f"graph.compare: {', '.join(options)}= cannot change graphs that are drawn already")
    one, two = (x if isinstance(x, Graph) else draw(x, **{"grads": True, **options}) for x in (a, b))
    if bool(one.trace.seed) != bool(two.trace.seed):
        raise ValueError("graph.compare: one graph was drawn with grads=, the other without; draw both alike")
    return Graph(_side_by_side(one.trace, two.trace, titles), replace(one.look, **changes),
                 lambda: _side_by_side(one._with_gradients(), two._with_gradients(), titles))


def _side_by_side(one: Trace, two: Trace, titles: Sequence[str]) -> Trace:
    """Both graphs in one, each in a box, with ids of its own."""
    left, right = _as_box(one, titles[0], "a"), _as_box(two, titles[1], "b")
    seed = left.seed if left.seed == right.seed else "given" if "given" in (left.seed, right.seed) else "sum"
    return Trace(left.vertices + right.vertices, left.edges + right.edges, left.outputs + right.outputs,
                 {**left.called, **right.called}, {**left.places, **right.places}, left.boxes + right.boxes, seed,
                 {**left.seeds, **right.seeds}, {**left.titles, **right.titles})


def _as_box(traced: Trace, title: str, prefix: str) -> Trace:
    def own(name: str | None) -> str:
        return f"{prefix}{name}" if name else f"{prefix}b"
    return Trace(tuple(replace(v, id=own(v.id), box=own(v.box)) for v in traced.vertices),
                 tuple(replace(e, source=own(e.source), target=own(e.target), origin=own(e.origin))
                       for e in traced.edges),
                 tuple(map(own, traced.outputs)), {own(v): name for v, name in traced.called.items()},
                 {own(v): own(place) for v, place in traced.places.items()},
                 (Box(own(None), title, None, frame=True),
                  *(Box(own(b.id), b.name, own(b.outer), b.frame) for b in traced.boxes)),
                 traced.seed, {own(v): seed for v, seed in traced.seeds.items()},
                 {own(v): " / ".join([title, *([traced.titles[v]] if v in traced.titles else [])])
                  for v in traced.outputs})


@dataclass(frozen=True)
class Look:
    """How a graph is shown."""

    values: bool = False
    shapes: bool = True
    collapse: Collapse = None
    max_nodes: int | None = None


class Graph:
    """A drawn graph. A notebook shows it by itself, `print` outlines it, `.save(path)` writes a picture or a page.

    `.trace` is the whole graph as plain data, `.shown` the part that is drawn, `.source` that part as DOT text, and
    `.note` says what is left out.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> drawn = draw((x * x).tanh())
    >>> drawn
    <Graph: 2 ops, 3 vertices, 3 edges>
    >>> drawn.source.count("->"), "The backward pass" in drawn.page(), drawn.with_look(max_nodes=2).note
    (3, True, '3 nodes, of which 1 is shown, the outputs and the newest others (max_nodes=None shows all)')
    """

    def __init__(self, traced: Trace, look: Look | None = None, again: Callable[[], Trace] | None = None) -> None:
        self.trace, self.look, self._again = traced, look or Look(), again
        self.shown = fit(fold(traced, self.look.collapse), self.look.max_nodes)

    @property
    def note(self) -> str:
        """What is left out of the picture, and how to see it; empty if nothing is."""
        return self.shown.note

    @property
    def source(self) -> str:
        """DOT text, the same for the same computation in every run."""
        return self._dot()

    def _dot(self, lang: str = "en") -> str:
        return dot(self.shown, values=self.look.values, shapes=self.look.shapes, lang=lang)

    def render(self, format: str = "svg", lang: str = "en") -> bytes:
        """The picture as bytes, "svg", "png" or "pdf". If nothing is found to draw with, a RuntimeError says what to
        install."""
        ops = Counter(v.label or v.name or "" for v in self.shown.vertices if v.kind in ("op", "box"))
        counts = ", ".join(f"{n} × {name}" if n > 1 else name for name, n in reversed(ops.items()))
        return render(self._dot(lang), format, f"{say(lang)['graph_of']} {outputs(self.shown, lang)}: {counts}")

    def page(self, lang: str | None = None) -> Page:
        """The backward pass as a film: a page to step through, op by op. It needs no network and no `dot` program. It
        is a string, which a notebook shows as the page.

        If no gradients were drawn, the walk back is made now; the graph must not be freed by then. `lang` is "en" or
        "pt", Brazilian Portuguese; if none is given, it is that of `languages.language()`.
        """
        with speaking(lang or language()):
            return self._page()

    def _page(self) -> Page:
        traced, limit = self._with_gradients(), PAGE
        remedy = _("a page lays out no more than {count}").format(count=PAGE)
        if self.look.max_nodes is not None and self.look.max_nodes < PAGE:
            limit, remedy = self.look.max_nodes, _("max_nodes= sets how many")
        whole = traced if size(traced) <= limit else fit(fold(traced, self.look.collapse), limit, remedy)
        # It opens with little enough to be there at once; the rest is a click away.
        opened = fit(fold(fold(whole, self.look.collapse if whole is traced else None), DEEP), OPEN)
        cut, still = any(v.kind == "rest" for v in opened.vertices), {box.id for box in opened.boxes}
        closed = [box.id for box in whole.boxes if not box.frame and (cut or box.id not in still)]
        return page(whole, closed, lang=language(), shapes=self.look.shapes)

    def with_look(self, *, grads: bool = False, **look: Any) -> Graph:
        """The same graph, shown otherwise: `values`, `shapes`, `collapse`, `max_nodes` as in `draw`, and with
        `grads=True` with gradients, if they were not drawn."""
        if unknown := look.keys() - Look.__dataclass_fields__.keys():
            raise TypeError(f"graph: a look has no {', '.join(sorted(unknown))}; it has "
                            f"{', '.join(Look.__dataclass_fields__)}")
        return Graph(self._with_gradients() if grads else self.trace, replace(self.look, **look), self._again)

    def _with_gradients(self) -> Trace:
        """The trace; if it was made without gradients, another, now, if any can flow."""
        return self.trace if self.trace.seed or not self._again else self._again()

    def save(self, path: str | os.PathLike[str], *, lang: str = "en") -> Path:
        """Write DOT text (.dot, .gv), a picture (.svg, .png, .pdf) or the film of the backward pass (.html); the
        suffix decides. `lang` is "en" or "pt". The file is written whole or not at all. Another suffix is a ValueError;
        a folder that is not there, a FileNotFoundError; no program to draw with, a RuntimeError."""
        say(lang)                           # an unknown language is an error for text as well
        target = Path(path)
        kind = target.suffix.lower()
        if kind not in SUFFIXES:
            raise ValueError(f"graph: cannot save {str(path)!r}; its suffix must be one of {', '.join(SUFFIXES)}")
        if target.is_dir():                 # now, before a layout that may take a minute
            raise IsADirectoryError(errno.EISDIR, "that is a folder; give the name of a file", str(path))
        if not target.absolute().parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(target.parent))
        content = (self.source.encode() if kind in TEXTS else self.page(lang).encode() if kind in PAGES else
                   self.render(kind[1:], lang))
        write_whole(target, content)
        return target

    def _repr_svg_(self) -> str | None:
        """SVG, or nothing where none can be made."""
        return self._repr_mimebundle_().get("image/svg+xml")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """For a notebook, which must show something whatever is missing: SVG, or else the page, in a frame; always
        text."""
        bundle = {}
        try:
            bundle["text/plain"] = str(self)
            bundle["image/svg+xml"] = self.render("svg", language()).decode()
        except Exception as error:
            bundle["text/plain"] = f"{bundle.get('text/plain', repr(self))}\n({type(error).__name__}: {error})"
            with contextlib.suppress(Exception):
                bundle["text/html"] = f"<p>{html.escape(str(error))}</p>{self.page()._repr_html_()}"
        return bundle

    def __str__(self) -> str:
        """An indented outline, from the outputs down to what they were made of."""
        return outline(self.shown, values=self.look.values, shapes=self.look.shapes)

    def __repr__(self) -> str:
        ops = sum(vertex.kind == "op" for vertex in self.trace.vertices)
        return f"<Graph: {ops} ops, {len(self.trace.vertices)} vertices, {len(self.trace.edges)} edges>"
