"""The recorded graph as plain data: what there is to draw, and nothing about drawing.

Vertices are numbered by the order in which they were made, never by `id()`, so that one computation has one
trace, in every run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .. import ops
from ..anomaly import Watcher
from ..engine import Node, Primitive, Value, backpropagate, enable_grad, freed, operand, topological_order
from ..errors import GraphError, GraphFreedError, ShapeError
from ..tensor import Tensor
from .formulas import formula, parameter, rule

Kind = Literal["leaf", "constant", "op", "box", "rest"]
# What is differentiated: the output itself, a number; the sum of all elements of the outputs; or a loss of the caller's
Seed = Literal["itself", "sum", "given"]


@dataclass(frozen=True)
class Vertex:
    """A leaf, a constant (a Tensor that needs no gradient, an array or a number) or the result of an op; where not all
    is shown, a folded box, or the rest of the graph. Its arrays are not copied."""

    id: str
    kind: Kind
    label: str                              # the op's name, a number's value, the name of a box
    name: str | None                        # what the user called the tensor
    shape: tuple[int, ...]
    dtype: str
    params: tuple[tuple[str, str], ...] = ()
    box: str | None = None                  # the innermost box that it stands in
    formula: str = ""                       # what the op computes; of a folded box, what goes in and comes out
    value: Any = field(default=None, repr=False, compare=False)
    grad: Any = field(default=None, repr=False, compare=False)      # complete, if gradients were asked for


@dataclass(frozen=True)
class Edge:
    """One use: the vertex `source` is argument number `argument` of the vertex `target`."""

    source: str
    target: str
    argument: int
    shape: tuple[int, ...]
    origin: str                             # whose value it is: the source, or, of a folded box, the vertex inside it
    parameter: str = ""                     # what the op calls this argument
    rule: str = ""                          # how the op makes a gradient for it
    grad: Any = field(default=None, repr=False, compare=False)      # what this use sends back
    total: Any = field(default=None, repr=False, compare=False)     # what the source has got by then


@dataclass(frozen=True)
class Box:
    """A named part, from one time that a `scope` was entered."""

    id: str
    name: str
    outer: str | None


@dataclass(frozen=True)
class Trace:
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    outputs: tuple[str, ...]                # the vertices that were asked for
    boxes: tuple[Box, ...] = ()             # an outer one before those inside it
    seed: Seed | None = None                # where the walk back began, if gradients were asked for, and with what
    seeds: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    note: str = ""                          # what is not shown


def trace(*tensors: Tensor, names: Any = None, grads: Any = False) -> Trace:
    """The graph that `tensors` were computed by, each shared part once, each use as one edge.

    `names` and `grads` are those of `draw`.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> for edge in trace(x + x, grads=True).edges:
    ...     print(edge.source, edge.target, edge.argument, edge.rule, edge.grad, edge.total)
    n0 n1 0 dL/dx = g 1.0 1.0
    n0 n1 1 dL/dy = g 1.0 2.0
    """
    if not tensors:
        raise TypeError("graph: give one Tensor or more")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"graph: {type(t).__name__} has no graph; give Tensors")
    nodes = topological_order(*tensors)[::-1]
    for node in nodes:
        if node.out is None:
            raise GraphFreedError(f"{freed(node)}. To draw it, draw before backward(), or with grads=True instead of "
                                  "backward(): that walks back by itself and frees nothing")
    given = _called(names, nodes, tensors)
    ledger, wanted = _Ledger(), grads is not None and not (isinstance(grads, (bool, np.bool)) and not grads)
    if wanted:
        ledger.walk(tensors, grads)
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    ids: dict[Node | Value, str] = {}
    boxes: dict[int, Box] = {}

    def add(key: Node | Value | None, vertex: Vertex) -> str:
        vertices.append(vertex)
        if key is not None:
            ids[key] = vertex.id
        return vertex.id

    def new_id() -> str:
        return f"n{len(vertices)}"

    def source_of(x: Value | None, array: Any, box: str | None) -> str:
        """The vertex of an argument: of the op or leaf it came from, or a new one. A plain number stands with its
        op; tensors and arrays come from outside."""
        key = x if x is None else x.node or x
        if key in ids:
            return ids[key]
        kind: Kind = "leaf" if x is not None and x._requires_grad else "constant"
        label = number(array) if kind == "constant" and not np.ndim(array) else ""
        return add(key, Vertex(new_id(), kind, label, None if key is None else given.get(key), np.shape(array),
                               str(np.asarray(array).dtype), box=None if np.ndim(array) or x is not None else box,
                               value=array, grad=ledger.found.get(key)))

    for node in nodes:
        box = _box(node.scope, boxes)
        sources = [source_of(x, array, box) for x, array in zip(node.inputs, node.args)]
        target = add(node, Vertex(new_id(), "op", node.op.name, given.get(node), node.out.shape, str(node.out.dtype),
                                  _params(node.op, node.params), box, formula(node.op), node.out,
                                  ledger.given.get(node)))
        edges += [Edge(source, target, i, np.shape(node.args[i]), source, parameter(node.op, i), rule(node.op, i),
                       *ledger.sent.get((node, i), ())) for i, source in enumerate(sources)]
    every_output = [source_of(t, t.data, None) for t in tensors]
    seed: Seed | None = (None if not wanted else "given" if grads is not True else
                         "itself" if len(tensors) == 1 and not tensors[0].shape else "sum")
    seeds = {v: ledger.seed(t, grads, every_output.count(v)) for v, t in zip(every_output, tensors)
             if wanted and t.requires_grad}
    return Trace(tuple(vertices), tuple(edges), tuple(dict.fromkeys(every_output)), tuple(boxes.values()), seed, seeds)


class _Ledger(Watcher):
    """It keeps every gradient of a walk, which the walk itself lets go."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Node, Any] = {}                        # of the results, complete
        self.sent: dict[tuple[Node, int], tuple[Any, Any]] = {}     # of each use, and the sum with those before it
        self.found: dict[Any, Any] = {}                         # of the leaves

    def sent_back(self, node: Node, i: int, g: Any, share: Any, total: Any) -> None:
        self.given[node] = g
        self.sent[node, i] = share, total

    @staticmethod
    def seed(t: Tensor, gradient: Any, times: int) -> Any:
        """What the walk begins with at one of the tensors, which may have been given several times."""
        return np.asarray(gradient) if gradient is not True else np.full(t.shape, times, t.dtype)

    def walk(self, tensors: Sequence[Tensor], gradient: Any) -> None:
        """Walk back from the sum of all elements of `tensors`, or from one with dL/d tensor = gradient."""
        tracked = [t for t in tensors if t.requires_grad]
        if not tracked:
            raise GraphError("graph: no gradient can flow from here, so grads= has nothing to show. Was a leaf made "
                             "without requires_grad=True, or the value computed under no_grad()?")
        if gradient is not True:
            gradient = np.asarray(operand(gradient))
            if len(tensors) > 1 or gradient.shape != tensors[0].shape:
                raise ShapeError(f"graph: grads= has shape {gradient.shape}; it is True, or dL/d tensor for one "
                                 f"tensor, in its shape, here {', '.join(str(t.shape) for t in tensors)}")
        with enable_grad(), self, np.errstate(all="ignore"):
            if gradient is not True:
                tracked = [tensors[0] * gradient.astype(tensors[0].dtype)]
            total = ops.sum(tracked[0])
            for t in tracked[1:]:
                total = total + ops.sum(t)
            self.found = backpropagate(total, np.ones((), total.dtype)[()], topological_order(total))


# What IPython itself puts among the variables: results of earlier cells.
_IPYTHON = re.compile(r"_+|_\d+|_o?i?h|_i+|_i\d+|Out|In")


class Named(list[tuple[str, Value]]):
    """Tensors by name, found before."""


def named(names: Any) -> Named:
    """The tensors in a dict, by name, also those in lists and dicts in it; the parameters of modules, by their path.

    All else is ignored, so that the dict may be `locals()`, where anything may be: also objects that cannot even be
    asked what they are.
    """
    if isinstance(names, Named):
        return names
    if not hasattr(names, "named_parameters") and not isinstance(names, Mapping | None):
        raise TypeError(f"graph: names= is a dict of Tensors by name, locals() for instance, or a module, and not a "
                        f"{type(names).__name__}")
    items = list(names.items()) if isinstance(names, Mapping) else [("", names)]
    notebook = isinstance(names, Mapping) and isinstance(names.get("Out"), dict) and isinstance(names.get("In"), list)
    found = Named()
    for name, x in items:
        if not (notebook and _IPYTHON.fullmatch(str(name))):
            with contextlib.suppress(Exception):
                found += [(called, t) for called, t in _inside(str(name), x) if isinstance(t, Value)]
    return found


def _inside(name: str, x: Any) -> list[tuple[str, Any]]:
    """What a variable holds, by name."""
    if isinstance(x, Value):
        return [(name, x)]
    if isinstance(x, (list, tuple)):
        return [(f"{name}[{i}]", item) for i, item in enumerate(x)]
    if isinstance(x, dict):
        return [(f"{name}[{key!r}]", item) for key, item in x.items()]
    if hasattr(x, "named_parameters") and not isinstance(x, type):
        return [(f"{name}.{path}" if name else str(path), parameter) for path, parameter in x.named_parameters()]
    return []


def _called(names: Any, nodes: list[Node], tensors: Sequence[Tensor]) -> dict[Node | Value, str]:
    """What each leaf or result is called: by `names`, or else by itself."""
    called: dict[Node | Value, str] = {}
    for name, x in named(names):
        called.setdefault(x.node or x, name)
    for x in [x for node in nodes for x in node.inputs if x is not None] + list(tensors):
        if x.name:
            called.setdefault(x.node or x, str(x.name))
    return called


def _box(scope: Any, boxes: dict[int, Box]) -> str | None:
    """The id of the box of a scope; it and those around it are made if need be, from the outermost in."""
    new = []
    while scope and scope[1] not in boxes:
        new.append(scope)
        scope = scope[2]
    inner = boxes[scope[1]].id if scope else None
    for name, tick, _ in reversed(new):
        boxes[tick] = Box(f"b{len(boxes)}", name, inner)
        inner = boxes[tick].id
    return inner


def number(x: Any) -> str:
    """A single number, in as few digits as a picture can take."""
    value = np.asarray(x)[()]
    return f"{value:.4g}" if value.dtype.kind in "fc" else str(value)


def _params(op: Primitive, params: dict[str, Any]) -> tuple[tuple[str, str], ...]:
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
    def index(v: Any) -> str:
        return f"[{', '.join(map(text, v)) if isinstance(v, tuple) else text(v)}]"
    usual = {key: text(v) for key, v in (op.forward.__kwdefaults__ or {}).items()}
    shown = ((key, index(v) if key == "index" else text(v)) for key, v in params.items()
             if v is not None and v is not False)
    return tuple((key, said) for key, said in shown if usual.get(key) != said)
