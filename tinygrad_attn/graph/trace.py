"""The recorded graph as plain data: what there is to draw, and nothing about drawing.

Vertices are numbered by the order in which they were made, never by `id()`, so that one computation has one
trace, in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..engine import Node, Value, freed, topological_order
from ..errors import GraphFreedError
from ..tensor import Tensor

Kind = Literal["leaf", "constant", "op"]


@dataclass(frozen=True)
class Vertex:
    """A leaf, a constant (a Tensor that needs no gradient, an array or a number) or the result of an op."""

    id: str
    kind: Kind
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
    if not tensors:
        raise TypeError("graph: give one Tensor or more")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"graph: {type(t).__name__} has no graph; give Tensors")
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    ids: dict[Node | Value, str] = {}

    def add(key: Node | Value | None, vertex: Vertex) -> str:
        vertices.append(vertex)
        if key is not None:
            ids[key] = vertex.id
        return vertex.id

    def new_id() -> str:
        return f"n{len(vertices)}"

    def source_of(x: Value | None, array: Any) -> str:
        """The vertex of an argument: of the op or leaf it came from, or a new one."""
        key = x if x is None else x.node or x
        if key in ids:
            return ids[key]
        kind: Kind = "leaf" if x is not None and x._requires_grad else "constant"
        label = _number(array) if kind == "constant" else ""
        name = str(x.name) if x is not None and x.name else None
        return add(key, Vertex(new_id(), kind, label, name, np.shape(array), str(np.asarray(array).dtype)))

    nodes, names = _nodes_and_names(tensors)
    for node in nodes:
        sources = [source_of(x, array) for x, array in zip(node.inputs, node.args)]
        target = add(node, Vertex(new_id(), "op", node.op.name, names.get(node), node.out.shape, str(node.out.dtype),
                                  _params(node.params)))
        edges += [Edge(source, target, i) for i, source in enumerate(sources)]
    outputs = tuple(source_of(t, t.data) for t in tensors)
    return Trace(tuple(vertices), tuple(edges), outputs)


def _nodes_and_names(tensors: tuple[Tensor, ...]) -> tuple[list[Node], dict[Node, str]]:
    """All nodes, oldest first, and the names that users gave to their results."""
    nodes = topological_order(*tensors)[::-1]
    for node in nodes:
        if node.out is None:
            raise GraphFreedError(f"{freed(node)}. To draw it, draw before backward()")
    results = [x for node in nodes for x in node.inputs if x is not None] + list(tensors)
    return nodes, {x.node: str(x.name) for x in results if x.node and x.name}


def _number(x: Any) -> str:
    """A single number, in as few digits as a picture can take; nothing for an array."""
    value = np.asarray(x)[()]
    return "" if np.ndim(x) else f"{value:.4g}" if value.dtype.kind in "fc" else str(value)


def _params(params: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The parameters that say something, as text."""
    def text(v: Any) -> str:
        if isinstance(v, np.ndarray):
            return f"array {v.shape}"
        if isinstance(v, type):
            return v.__name__
        if isinstance(v, slice):
            return ":".join("" if part is None else str(part) for part in ((v.start, v.stop) if v.step is None else
                                                                           (v.start, v.stop, v.step)))
        if isinstance(v, (tuple, list)):
            return f"({', '.join(map(text, v))})"
        return "…" if v is Ellipsis else v if isinstance(v, str) else repr(v.item() if isinstance(v, np.generic) else v)
    return tuple((key, text(v)) for key, v in params.items() if v is not None and v is not False)
