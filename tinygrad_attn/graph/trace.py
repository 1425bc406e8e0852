"""The recorded graph as plain data: what there is to draw, and nothing about drawing.

Vertices are numbered by the order in which they were made, never by `id()`, so that one computation has one
trace, in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..engine import Node, history
from ..errors import GraphFreedError
from ..tensor import Tensor


@dataclass(frozen=True)
class Vertex:
    """A leaf, a constant (a Tensor that needs no gradient, an array or a number) or the result of an op."""

    id: str
    kind: Literal["leaf", "constant", "op"]
    label: str                              # the op's name; a number's value
    name: str | None                        # what the user called the tensor
    shape: tuple[int, ...]
    dtype: str
    params: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Edge:
    """One use: the vertex `source` is argument number `argument` of the vertex `target`."""

    source: str
    target: str
    argument: int


@dataclass(frozen=True)
class Trace:
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    outputs: tuple[str, ...]                # the vertices that were asked for


def trace(*tensors: Tensor) -> Trace:
    """The graph that `tensors` were computed by, each shared part once, each use as one edge.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> for edge in trace(x + x).edges:
    ...     print(edge)
    Edge(source='n0', target='n1', argument=0)
    Edge(source='n0', target='n1', argument=1)
    """
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"graph: a {type(t).__name__} has no graph; give Tensors")
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    ids: dict[Node | Tensor, str] = {}

    def add(key: Any, make: Callable[[str], Vertex]) -> str:
        new = f"n{len(vertices)}"
        vertices.append(make(new))
        if key is not None:
            ids[key] = new
        return new

    def add_source(tensor: Tensor) -> str:
        kind: Literal["leaf", "constant"] = "leaf" if tensor.requires_grad else "constant"
        return ids.get(tensor) or add(tensor, lambda new: Vertex(new, kind, _number(tensor.data), tensor.name,
                                                                 tensor.shape, str(tensor.dtype)))

    nodes, names = _nodes_and_names(tensors)
    for node in nodes:
        sources = []
        for x, array in zip(node.inputs, node.args):
            if x is None:
                sources.append(add(None, lambda new, a=array: Vertex(new, "constant", _number(a), None, np.shape(a),
                                                                     str(np.asarray(a).dtype))))
            else:
                sources.append(ids[x.node] if x.node else add_source(x))
        target = add(node, lambda new, n=node: Vertex(new, "op", n.op.name, names.get(n), n.out.shape, str(n.out.dtype),
                                                      _params(n.params)))
        edges += [Edge(source, target, i) for i, source in enumerate(sources)]
    outputs = tuple(ids[t.node] if t.node else add_source(t) for t in tensors)
    return Trace(tuple(vertices), tuple(edges), outputs)


def _nodes_and_names(tensors: tuple[Tensor, ...]) -> tuple[list[Node], dict[Node, str]]:
    """All nodes, oldest first, and the names that users gave to their results."""
    try:
        nodes = {node for t in tensors for node in history(t)}
    except GraphFreedError as error:
        raise GraphFreedError(f"{error}. To draw it, draw before backward()") from None
    results = [x for node in nodes for x in node.inputs if x is not None] + list(tensors)
    return (sorted(nodes, key=lambda node: node.tick),
            {x.node: x.name for x in results if x.node and x.name})


def _number(x: Any) -> str:
    """A single number in words few enough for a picture; nothing for an array."""
    return "" if np.ndim(x) else f"{np.asarray(x)[()]:.4g}" if np.asarray(x).dtype.kind in "fc" else str(np.asarray(x)[()])


def _params(params: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The parameters that say something, as text."""
    def text(v: Any) -> str:
        if isinstance(v, np.ndarray):
            return f"array {v.shape}"
        if isinstance(v, slice):
            return ":".join("" if part is None else str(part) for part in ((v.start, v.stop) if v.step is None else
                                                                           (v.start, v.stop, v.step)))
        if isinstance(v, (tuple, list)):
            return f"({', '.join(map(text, v))})"
        return "…" if v is Ellipsis else v if isinstance(v, str) else repr(v)
    return tuple((key, text(v)) for key, v in params.items() if v is not None and v is not False)
