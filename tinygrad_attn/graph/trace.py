"""The recorded graph as plain data: what there is to draw, and nothing about drawing.

Vertices are numbered by the order in which they were made, never by `id()`, so that one computation has one
trace, in every run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Box:
    """A named part, from one time that a `scope` was entered."""

    id: str
    name: str
    outer: str | None
    frame: bool = False                     # around a graph that is compared; it is never folded


@dataclass(frozen=True)
class Trace:
    """A graph: its vertices, the oldest first, and each use of one by another."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    outputs: tuple[str, ...]                # the vertices that were asked for
    called: Mapping[str, str]               # what they are called, by their own ids, also where they are folded,
    places: Mapping[str, str]               # and the vertex that each is then in
    boxes: tuple[Box, ...] = ()             # an outer one before those inside it
    seed: Seed | None = None                # where the walk back began, if gradients were asked for, and with what,
    seeds: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)       # by output, unfolded
    titles: Mapping[str, str] = field(default_factory=dict)     # of graphs that are compared, by output
    note: str = ""                          # what is not shown


def trace(*tensors: Tensor, names: Any = None, grads: Any = False) -> Trace:
    """The graph that `tensors` were computed by, each shared part once, each use as one edge.

    `names` and `grads` are those of `draw`, and so are the errors. Why: what is plain data can be drawn, counted,
    searched and tested, by whoever likes.

    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> for edge in trace(x + x, grads=True).edges:
    ...     print(edge.source, edge.target, edge.argument, edge.rule, edge.grad)
    n0 n1 0 dL/dx = g 1.0
    n0 n1 1 dL/dy = g 1.0
    """
    if not tensors:
        raise TypeError("graph: give one Tensor or more")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"graph: {type(t).__name__} has no graph; give Tensors, one by one: draw(a, b)")
    tensors = tuple({t.node or t: t for t in tensors}.values())     # each once
    nodes = topological_order(*tensors)[::-1]
    for node in nodes:
        if node.out is None:
            raise GraphFreedError(f"{freed(node)}. To draw it, draw before backward(), or with grads=True instead of "
                                  "backward(): that walks back by itself and frees nothing")
    grads = bool(grads) if grads is None or isinstance(grads, np.bool) else grads
    ledger = _Ledger(tensors, grads)
    called = _called(names, nodes, tensors)
    vertices: list[Vertex] = []
    edges: list[Edge] = []
    ids: dict[Node | Value, str] = {}
    boxes: dict[int, Box] = {}
    arrays: dict[Node | Value, Any] = {}
    moved: set[str] = set()

    def vertex_of(x: Value | None, array: Any, box: str | None) -> str:
        """The vertex of an argument: of the op or leaf it came from, or a new one. A plain number stands with its
        op; tensors and arrays come from outside."""
        key = (x.node or x) if x is not None else None
        if key is not None and key in ids:
            if x is not None and not x.node and array is not arrays[key]:
                moved.add(ids[key])         # a leaf that was given new data between two uses has no one value
            return ids[key]
        tracked, plain = x is not None and x._requires_grad, x is None and not np.ndim(array)
        vertices.append(Vertex(
            id=f"n{len(vertices)}", kind="leaf" if tracked else "constant",
            label=number(array) if not tracked and not np.ndim(array) else "",
            name=called.get(key) if key is not None else None, shape=np.shape(array),
            dtype=str(np.asarray(array).dtype), box=box if plain else None, value=array, grad=ledger.leaves.get(key)))
        if key is not None:
            ids[key], arrays[key] = vertices[-1].id, array
        return vertices[-1].id

    for node in nodes:
        box = _box(node.scope, boxes)
        sources = [vertex_of(x, array, box) for x, array in zip(node.inputs, node.args)]
        ids[node] = target = f"n{len(vertices)}"
        vertices.append(Vertex(
            id=target, kind="op", label=node.op.name, name=called.get(node), shape=node.out.shape,
            dtype=str(node.out.dtype), params=_params(node.op, node.params), box=box, formula=formula(node.op),
            value=node.out, grad=ledger.results.get(node)))
        given = node.params.get("given")                    # the names of a fused op's inputs
        for i, (source, array) in enumerate(zip(sources, node.args)):
            called_there = given[i] if given else parameter(node.op, i)
            edges.append(Edge(source, target, i, np.shape(array), origin=source, parameter=called_there,
                              rule=rule(node.op, i), grad=ledger.shares.get((node, i))))
    outputs = tuple(vertex_of(t, t.data, None) for t in tensors)
    shown = tuple(replace(v, value=None, label="") if v.id in moved else v for v in vertices)
    output_names = {v.id: v.name or v.label or "Tensor" for v in shown if v.id in outputs}
    return Trace(shown, tuple(edges), outputs, {v: output_names[v] for v in outputs},
                 {v: v for v in outputs}, tuple(boxes.values()), _seed(tensors, grads),
                 {ids[key]: seed for key, seed in ledger.seeds.items()})


def _seed(tensors: Sequence[Tensor], grads: Any) -> Seed | None:
    """What is differentiated."""
    if grads is False:
        return None
    if grads is not True:
        return "given"
    return "itself" if len(tensors) == 1 and not tensors[0].shape else "sum"


class _Ledger(Watcher):
    """Every gradient of a walk back from `tensors`, which the walk itself lets go. Nobody's `.grad` is touched."""

    def __init__(self, tensors: Sequence[Tensor], gradient: Any) -> None:
        super().__init__()
        self.results: dict[Node, Any] = {}                          # complete
        self.leaves: dict[Any, Any] = {}
        self.shares: dict[tuple[Node, int], Any] = {}               # what each use sends back
        self.seeds: dict[Any, Any] = {}                             # dL/d tensor, to begin with
        if gradient is not False:
            self._walk(tensors, gradient)

    def sent_back(self, node: Node, i: int, g: Any, share: Any, total: Any) -> None:
        self.results[node] = g
        self.shares[node, i] = share

    def _walk(self, tensors: Sequence[Tensor], gradient: Any) -> None:
        """From the sum of all elements, or from one tensor with dL/d tensor = gradient."""
        tracked = [t for t in tensors if t.requires_grad]
        if not tracked:
            raise GraphError("graph: no gradient can flow from here, so grads= has nothing to show. Was a leaf made "
                             "without requires_grad=True, or the value computed under no_grad()?")
        if gradient is not True:
            gradient = _given(tensors, gradient)
        weights = [gradient if gradient is not True else np.ones(t.shape, t.dtype) for t in tracked]
        with enable_grad(), self, np.errstate(all="ignore"):
            total: Any = 0
            for t, weight in zip(tracked, weights):
                total = ops.sum(t * weight) + total
            self.leaves = backpropagate(total, np.ones((), total.dtype)[()], topological_order(total))
        self.seeds = {t.node or t: weight for t, weight in zip(tracked, weights)}


def _given(tensors: Sequence[Tensor], gradient: Any) -> np.ndarray:
    """The caller's dL/d tensor, as an array of its own."""
    try:
        array = np.array(operand(gradient)).astype(tensors[0].dtype, casting="same_kind")
    except TypeError as error:
        raise TypeError(f"graph: grads={gradient!r:.60}: {error}; it is True, or dL/d tensor") from None
    if len(tensors) > 1 or array.shape != tensors[0].shape:
        raise ShapeError(f"graph: grads= has shape {array.shape}; it is True, or dL/d tensor for one tensor, in its "
                         f"shape, here {', '.join(str(t.shape) for t in tensors)}")
    return array


# What IPython itself puts among the variables: results of earlier cells.
_IPYTHON = re.compile(r"_+|_\d+|_o?i?h|_i+|_i\d+|Out|In")


def named(names: Any) -> dict[str, Value]:
    """The tensors in a dict, by name, also those in lists and dicts in it; the parameters of modules, by their path.

    All else is ignored, so that the dict may be `locals()`, where anything may be: also objects that cannot even be
    asked what they are.
    """
    if names is not None and not isinstance(names, Mapping) and not hasattr(names, "named_parameters"):
        raise TypeError(f"graph: names= is a dict of Tensors by name, locals() for instance, or a module, and not a "
                        f"{type(names).__name__}")
    items = list(names.items()) if isinstance(names, Mapping) else [("", names)]
    notebook = isinstance(names, Mapping) and isinstance(names.get("Out"), dict) and isinstance(names.get("In"), list)
    found: dict[str, Value] = {}
    for name, x in items:
        if not (notebook and _IPYTHON.fullmatch(str(name))):
            with contextlib.suppress(Exception):
                found |= {called: t for called, t in _inside(str(name), x) if isinstance(t, Value)}
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
        return [(f"{name}.{path}" if name else str(path), weight) for path, weight in x.named_parameters()]
    return []


def _called(names: Any, nodes: list[Node], tensors: Sequence[Tensor]) -> dict[Node | Value, str]:
    """What each leaf or result is called: by `names`, or else by itself."""
    called: dict[Node | Value, str] = {}
    for name, x in named(names).items():
        called.setdefault(x.node or x, name)
    for x in [x for node in nodes for x in node.inputs if x is not None] + list(tensors):
        if x.name:
            called.setdefault(x.node or x, str(x.name))
    return called


def _box(scope: Any, boxes: dict[int, Box]) -> str | None:
    """The id of the box of a scope, (name, tick, outer scope). It and those around it are made if need be."""
    new = []
    while scope:
        name, tick, scope_around = scope
        if tick in boxes:
            break
        new.append((name, tick))
        scope = scope_around
    box = boxes[scope[1]].id if scope else None
    for name, tick in reversed(new):        # the outermost first
        boxes[tick] = Box(f"b{len(boxes)}", name, box)
        box = boxes[tick].id
    return box


def number(x: Any, digits: int = 4) -> str:
    """A single number in few digits, written out unless that is long.

    >>> number(2.0), number(60_000.0), number(1.25e-7), number(-0.5), number(True)
    ('2', '60000', '1.25e-7', '-0.5', 'True')
    """
    value: Any = np.asarray(x)[()]
    if value.dtype.kind != "f":
        return f"{value:.{digits}g}" if value.dtype.kind == "c" else str(value)
    value = float(value)                    # half precision cannot even be compared with 10⁶
    if not value or 1e-4 <= abs(value) < 1e6:
        return np.format_float_positional(value, digits, fractional=False, trim="-")
    return np.format_float_scientific(value, digits - 1, trim="-", exp_digits=1).replace(".e", "e").replace("e+", "e")


def _params(op: Primitive, params: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The parameters that are not the usual ones, as text."""
    def text(v: Any) -> str:
        if isinstance(v, np.ndarray):
            return f"array {v.shape}"
        if isinstance(v, type):
            return v.__name__
        if isinstance(v, slice):
            written = ":".join("" if part is None else str(part) for part in (v.start, v.stop, v.step))
            return written.removesuffix(":") if v.step is None else written
        if isinstance(v, (tuple, list)):
            return f"({', '.join(map(text, v))})"
        return "…" if v is Ellipsis else v if isinstance(v, str) else repr(v.item() if isinstance(v, np.generic) else v)

    def index(v: Any) -> str:
        return f"[{', '.join(map(text, v)) if isinstance(v, tuple) else text(v)}]"
    usual = {key: text(v) for key, v in (op.forward.__kwdefaults__ or {}).items()}
    shown = ((key, index(v) if key == "index" else text(v)) for key, v in params.items() if key != "given")
    return tuple((key, said) for key, said in shown if usual.get(key) != said)
