"""Floor 1. The engine: values that remember how they were made, and the walk back.

An expression such as `y = tanh(x @ w)` is a chain of *primitives*. While it is computed, each primitive
leaves a `Node`: which op ran, on which inputs, with which arrays. The nodes form a graph whose edges point
from an output to its inputs. To differentiate, walk that graph from the output backwards and apply the
chain rule at each node:

    dL/dx  =  Σ over the uses of x of  (dL/d out) · (d out/dx)

The map g ↦ g · (d out/dx) is the op's *vector-Jacobian product* (vjp). It is all that an op has to know
about derivatives; no Jacobian is ever built.

The order of the walk needs no recursion and no search. A value is made only of values that already exist,
so a count of the nodes as they are made (`tick`), newest first, is a topological order of the graph.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .buffers import empty
from .errors import GraphError, GraphFreedError, NotDifferentiableError, ShapeError, broadcast_fault, call_text


class Mode(NamedTuple):
    """What applies to the ops that run now, and what applied before."""

    recording: bool = True
    watcher: Any = None                     # who is told of each op
    textbook: bool = False                  # whether compositions are computed op by op
    outer: Mode | None = None


# A ContextVar belongs to its thread or asyncio task: one thread's no_grad() does not switch off another's recording.
_USUAL = Mode()
mode: ContextVar[Mode] = ContextVar("mode", default=_USUAL)


class ModeChange(ContextDecorator):
    """A context manager and a decorator. It keeps no state, so it may be entered twice; leaving it, even by an
    exception, drops the innermost mode."""

    def __init__(self, **change: Any) -> None:
        self.change = change

    def __enter__(self) -> None:
        mode.set((outer := mode.get())._replace(outer=outer, **self.change))

    def __exit__(self, *exception: object) -> None:
        mode.set(mode.get().outer or _USUAL)

    def __call__(self, function: Any) -> Any:
        if any(is_later(function) for is_later in (inspect.isgeneratorfunction, inspect.iscoroutinefunction,
                                                   inspect.isasyncgenfunction)):
            raise TypeError(f"{type(self).__name__}: the body of {function.__name__} runs after the call is over; "
                            "write the `with` inside it")
        return super().__call__(function)


class enable_grad(ModeChange):
    """Inside, ops are recorded, even within an outer `no_grad()`."""

    def __init__(self) -> None:
        super().__init__(recording=True)


class no_grad(ModeChange):
    """Inside, nothing is recorded: for evaluation, and for updating weights.

    >>> from tinygrad_attn import Tensor, no_grad
    >>> x = Tensor(3.0, requires_grad=True)
    >>> with no_grad():
    ...     print((x * x).requires_grad)
    False
    """

    def __init__(self) -> None:
        super().__init__(recording=False)


class Value:
    """An array in a graph. A *leaf* was made by the user and has no node; a *result* has the node that made
    it, if a gradient can flow through it. `tensor.py` gives values their operators.

    A 0-d array is held as a NumPy scalar: NumPy's functions return those, and multiply them far faster.
    """

    __slots__ = ("__weakref__", "_array", "_requires_grad", "grad", "name", "node", "room")

    result_type: ClassVar[type[Value]]      # what primitives return, whatever subclass went in: Tensor

    _array: Any
    _requires_grad: bool
    grad: np.ndarray | None
    name: str | None
    node: Node | None
    room: np.ndarray | None                 # where an optimiser would like the next gradient to be


next_tick = itertools.count().__next__
current_scope: ContextVar[Any] = ContextVar("scope", default=None)      # for pictures: a name, a tick, the outer scope


class Node:
    """One use of a primitive: the op, its inputs, and the arrays as they were at the time.

    `inputs[i]` is the value that was argument i, None if that was a plain array or number; `args[i]` is its
    array. A node holds its output's array but never its output: edges point one way only, so reference
    counting frees a graph at once, without the garbage collector. `scope` is for pictures alone.
    """

    __slots__ = ("args", "inputs", "kept", "line", "op", "out", "params", "scope", "tick")

    op: Primitive
    inputs: Sequence[Value | None]
    args: Sequence[Any]
    params: dict[str, Any]
    tick: int
    scope: Any
    out: Any
    kept: Any                               # what a fused op's forward pass has for its backward pass
    line: str                               # of the user's program; set by a watcher, if there is one


def result(data: Any, node: Node | None = None) -> Any:
    """What a primitive returns: a value around an array that nobody else writes to, and now nobody at all."""
    if type(data) is np.ndarray:
        data.setflags(False)  # type: ignore[call-arg]          # by position, it takes half the time of write=
        if not data.ndim:
            data = data[()]
    elif not isinstance(data, np.generic):
        return result(np.asarray(data), node)
    value = _new(Value.result_type)
    value._array, value._requires_grad = data, node is not None
    value.grad, value.name, value.node = None, None, node
    if node:
        node.out = data
    return value


_new = object.__new__
_SCALARS = frozenset((float, int, bool, complex))       # weak in NumPy's promotion: float32 * 2.0 is float32


def operand(x: Any) -> Any:
    """`x` as something NumPy computes with: Python's numbers as they are, lists as arrays, nothing else."""
    if type(x) in _SCALARS:
        return x
    if isinstance(x, Value):
        return x._array
    array = np.asarray(x)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{type(x).__name__} is not a number or an array of numbers: {x!r}")
    return array


class Primitive:
    """A differentiable op: a NumPy function, and a vjp for each of its positional arguments.

    Called with arrays it returns an array. Called with a Tensor among its arguments it returns a Tensor, and
    records a `Node` if one of them needs a gradient. Positional arguments are inputs, which may be
    differentiated; keyword arguments are parameters, which may not.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        if not inspect.isfunction(forward) or forward.__defaults__:
            raise TypeError("primitive: write a function, def f(x, y, *, option=1), whose inputs have no defaults, and "
                            "call NumPy in it")
        functools.update_wrapper(self, forward)
        self.forward, self.name, code = forward, forward.__name__.strip("_"), forward.__code__
        self.arity, self.variadic = code.co_argcount, bool(code.co_flags & inspect.CO_VARARGS)
        self.keywords = code.co_varnames[self.arity:self.arity + code.co_kwonlyargcount]
        self.vjps: Sequence[Callable[..., Any]] = (no_derivative,) * self.arity
        self.joint: Callable[..., Any] | None = (
            lambda wanted, *args, **params: dict.fromkeys(wanted)) if self.variadic else None
        self.keeping: Callable[..., tuple[Any, Any]] | None = None

    def defvjp(self, *vjps: Callable[..., Any] | None, joint: Callable[..., Any] | None = None) -> None:
        """Register a vjp for each positional argument: `vjp(g, out, *args, **params)` is dL/d arg, given g =
        dL/d out. None marks an argument that has no derivative. For an op of any number of inputs, or one whose
        gradients share work, `joint(wanted, g, out, *args, **params)` returns those in `wanted`, a set of
        argument numbers, by number. A vjp is read twice, with arrays, and with Tensors when its result is to be
        differentiated again: it uses what both have, and primitives."""
        if not joint and (self.variadic or len(vjps) != self.arity):
            raise TypeError(f"{self.name}.defvjp: " + ("an op of *args needs joint=" if self.variadic else
                            f"{len(vjps)} vjps for {self.arity} positional arguments; None for one that has none"))
        self.vjps, self.joint = [vjp or no_derivative for vjp in vjps], joint

    def __call__(self, *args: Any, **params: Any) -> Any:
        arrays: list[Any] = []
        any_value = any_tracked = any_constant = any_foreign = False
        try:
            for x in args:
                if isinstance(x, Value):
                    any_value = True
                    arrays.append(x._array)
                    if x._requires_grad:
                        any_tracked = True
                else:
                    any_constant = True
                    any_foreign = any_foreign or type(x) not in _SCALARS
                    arrays.append(operand(x))
            if any_foreign and any_value:       # its owner may write to it before the walk back: use our own copy
                arrays = [a if isinstance(x, Value) or not isinstance(a, np.ndarray) else a.copy()
                          for x, a in zip(args, arrays)]
            if not params:
                out, kept = self.forward(*arrays), None
            else:
                for key, param in params.items():
                    if isinstance(param, (Value, np.ndarray, list)):
                        params[key] = _constant(key, param, any_tracked)
                out = (self.keeping or self.forward)(*arrays, **params)
                out, kept = out if self.keeping else (out, None)
        except (ValueError, TypeError) as error:
            raise self._explain(error, arrays, params) from error
        recording, watcher, _, _ = mode.get()
        node = None
        if any_tracked and recording:           # without an __init__, as calling one takes as long as the rest
            node = Node()
            node.op, node.args, node.params = self, arrays, params
            node.inputs = [x if isinstance(x, Value) else None for x in args] if any_constant else args
            node.kept, node.tick, node.scope = kept, next_tick(), current_scope.get()
        if watcher:
            watcher.ran(self, arrays, params, out, node)
        return result(out, node) if any_value else out

    def _explain(self, error: Exception, arrays: list[Any], params: dict[str, Any]) -> Exception:
        """The same failure, in terms of this op."""
        if isinstance(error, ShapeError):
            return error
        kind, reason = TypeError if isinstance(error, TypeError) else ValueError, str(error)
        if kind is TypeError and "argument" in reason:
            reason += f" (inputs go by position, the rest by keyword: {', '.join(self.keywords) or 'there is none'})"
        if kind is ValueError and re.search("shape|size|dimension|ax[ie]s", reason):
            kind = ShapeError
            if "broadcast" in reason and not params:
                reason = broadcast_fault([np.shape(a) for a in arrays]) or reason
        return kind(f"{call_text(self.name, arrays, params)}: {reason}")

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def no_derivative(*args: Any, **params: Any) -> None:
    """The vjp of an argument that has none."""


def _constant(key: str, param: Any, keep: bool) -> Any:
    """A parameter as the op gets it: a Tensor's array, and, if a graph may keep it, a copy of one that is not ours."""
    if isinstance(param, Value):
        if param._requires_grad:
            raise TypeError(f"no gradient flows through {key}=; if a constant is meant, write .detach()")
        return param._array
    return param.copy() if keep else param


def primitive(forward: Callable[..., Any]) -> Primitive:
    """Make a primitive of a function on arrays; its `defvjp` then says how to differentiate it.

    >>> import numpy as np
    >>> from tinygrad_attn import Tensor, primitive
    >>> @primitive
    ... def sin(x):
    ...     return np.sin(x)
    >>> @primitive
    ... def cos(x):
    ...     return np.cos(x)
    >>> sin.defvjp(lambda g, out, x: g * cos(x))
    >>> cos.defvjp(lambda g, out, x: -g * sin(x))
    >>> x = Tensor(0.0, requires_grad=True)
    >>> sin(x).backward()
    >>> x.grad
    array(1.)
    """
    return Primitive(forward)


def topological_order(*roots: Value) -> list[Node]:
    """The nodes that `roots` were computed by, newest first: each before all that it was computed from."""
    pending = [root.node for root in roots if root.node]
    seen = set(pending)
    while pending:
        for x in pending.pop().inputs:
            if x is not None and (node := x.node) and node not in seen:
                seen.add(node)
                pending.append(node)
    return sorted(seen, key=operator.attrgetter("tick"), reverse=True)


def freed(node: Node) -> GraphFreedError:
    return GraphFreedError(f"{node.op.name}: an earlier backward() freed this part of the graph; recompute it, or pass "
                           "retain_graph=True to that backward()")


def leading_to(targets: Sequence[Value], nodes: list[Node]) -> set[Node | Value]:
    """The targets, and those of `nodes`, newest first, that were computed from one. A freed node has lost its
    inputs: it is an error if a target, being older, may be among them."""
    oldest = min(x.node.tick if x.node else -1 for x in targets)
    useful: set[Node | Value] = {x.node or x for x in targets}
    for node in reversed(nodes):
        if node.out is None and node not in useful and node.tick > oldest:
            raise freed(node)
        if any(x is not None and (x.node or x) in useful for x in node.inputs):
            useful.add(node)
    return useful


def backpropagate(root: Value, seed: Any, nodes: list[Node], targets: Sequence[Value] | None = None,
                  create_graph: bool = False) -> dict[Node | Value, Any]:
    """Walk through `nodes` from `root` back and return the gradients: those of the leaves, or of `targets`, which
    are keyed by node if they are results. The vjps get arrays; with `create_graph` Tensors, so that what they
    do is recorded. A gradient is complete when its node is reached, and then let go, unless it was asked for."""
    useful = leading_to(targets, nodes) if targets else None                # None: everything is
    asked = {x.node for x in targets or ()}
    gradients: dict[Node | Value, Any] = {root.node or root: seed}
    watcher = mode.get().watcher
    for node in nodes:
        if useful is not None and node not in useful:
            continue
        op, out, params = node.op, node.out, node.params
        if out is None:
            if useful is None:
                raise freed(node)
            continue                        # it was asked for itself, and nothing behind it
        g = gradients.pop(node) if useful is None or node not in asked else gradients[node]
        call, joint = (g, out, *node.args), op.joint
        if create_graph:
            call = g, result(out, node), *(_as_used(x, a, op) for x, a in zip(node.inputs, node.args))
        if joint:
            wanted = {i for i, x in enumerate(node.inputs)
                      if x is not None and x._requires_grad and (useful is None or (x.node or x) in useful)}
            shares = joint(wanted, *call, **params, **({"kept": node.kept} if op.keeping else {}))
        for i, x in enumerate(node.inputs):
            if x is None or not x._requires_grad:
                continue
            key = x.node or x
            if useful is not None and key not in useful:
                continue
            share = shares.get(i) if joint else op.vjps[i](*call, **params) if params else op.vjps[i](*call)
            array = node.args[i]
            if (kind := type(share)) is not type(array) or (kind is np.ndarray and (
                    share.shape != array.shape or share.dtype is not array.dtype)):
                share = unbroadcast(share, array, op, i)
            gradients[key] = gradients[key] + share if key in gradients else share
            if watcher:
                watcher.sent_back(node, i, g, share, gradients[key])
    return gradients


def unbroadcast(g: Any, x: Any, op: Primitive, i: int) -> Any:
    """The gradient `g` in the shape and dtype of `x`, argument i of `op`, that owns it.

    An element of x that broadcasting used in several places gets the sum of their gradients. No vjp has to know.
    """
    if g is None:
        raise NotDifferentiableError(f"{op.name}: argument {i} has no derivative (does the op lack its defvjp?); if a "
                                     "constant is meant, write .detach()")
    if not hasattr(g, "shape"):
        raise TypeError(f"{op.name}: the vjp of argument {i} returned a {type(g).__name__}, not an array or a Tensor")
    if g.dtype.kind == "c" and x.dtype.kind != "c":
        raise TypeError(f"{op.name}: a gradient became complex; complex numbers are not differentiated here")
    if g.shape != x.shape:
        padded = (1,) * (g.ndim - x.ndim) + x.shape
        if len(padded) != g.ndim or any(n not in (1, m) for n, m in zip(padded, g.shape)):
            raise ShapeError(f"{op.name}: the vjp of argument {i} returned shape {g.shape} for one of {x.shape}")
        g = g.astype(np.float32) if g.dtype == np.float16 else g        # which would stop counting at 2048
        g = g.sum(axis=tuple(k for k, n in enumerate(padded) if n == 1)).reshape(x.shape)
    return g if g.dtype is x.dtype or g.dtype == x.dtype else g.astype(x.dtype)


def _as_used(x: Value | None, array: Any, op: Primitive) -> Any:
    """An argument for a vjp that is recorded: the input itself, if a gradient flows to it."""
    if x is None or not x._requires_grad:
        return array
    if x._array is not array:
        raise GraphError(f"{op.name}: an input of shape {array.shape} was given new data after its use, perhaps by an "
                         "optimiser; create_graph=True needs the old")
    return x


def _seed(root: Value, gradient: Any, caller: str) -> Any:
    """dL/d root to start from: 1 if `root` is one number, else what the caller gives, in the same shape."""
    shape, dtype = root._array.shape, root._array.dtype
    if gradient is None:
        if root._array.size != 1:
            raise ShapeError(f"{caller}: a value of shape {shape} has no single gradient. Reduce it to one number, by "
                             ".sum() or .mean(), or give gradient=, dL/d value, in that shape")
        return np.ones(shape, dtype)[()]
    if isinstance(gradient, bool):
        raise TypeError(f"{caller}: {gradient} is no gradient; to keep the graph, write retain_graph=True")
    array = operand(gradient)
    if np.shape(array) != shape:
        raise ShapeError(f"{caller}: gradient has shape {np.shape(array)}, the value {shape}; they must agree")
    tracked = isinstance(gradient, Value) and gradient._requires_grad
    return gradient if tracked else np.asarray(array).astype(dtype, casting="same_kind")[()]


_handing_out = threading.Lock()     # two threads may add to the gradient of one leaf


def backward(root: Value, gradient: Any = None, retain_graph: bool = False) -> None:
    """`Tensor.backward`. Gradients are handed out, and the graph freed, when the whole walk is over: a walk
    that fails changes nothing."""
    if not root._requires_grad:
        raise GraphError("backward: no gradient can flow from here. Was a leaf made without requires_grad=True, or "
                         "the value computed under no_grad(), or from .detach() or .numpy()?")
    nodes = topological_order(root)
    found: dict[Any, Any] = backpropagate(root, operand(_seed(root, gradient, "backward")), nodes)
    with _handing_out:
        sums = {leaf: np.array(leaf.grad + g) for leaf, g in found.items() if leaf.grad is not None}    # or none at all
        for leaf in list(found):            # one after the other, so that a copy can use the memory of the g before
            leaf.grad = sums[leaf] if leaf in sums else _copied(found.pop(leaf), getattr(leaf, "room", None))
            leaf.room = None
    for node in () if retain_graph else nodes:
        node.inputs, node.args, node.out, node.kept = (), (), None, None        # the op stays, for an error to name


def _copied(g: Any, room: np.ndarray | None) -> np.ndarray:
    """An array of the leaf's own: no alias of another's gradient, nor of one that somebody holds from before."""
    room = empty(g.shape, g.dtype) if room is None or room.dtype != g.dtype else room
    room[...] = g
    return room


def grad(y: Value, xs: Any, gradient: Any = None, *, create_graph: bool = False, allow_unused: bool = False) -> Any:
    """dy/dx, as a Tensor, for a Tensor x; a tuple of them for a sequence of Tensors, leaves or results.

    Nobody's `.grad` is touched and the graph is not freed. If `y` has several elements, `gradient` is dL/dy.
    With `create_graph=True` the gradients can be differentiated again, to any order. An x that y does not
    depend on raises GraphError, since that is nearly always a mistake; with `allow_unused=True` its gradient
    is what mathematics says, zero.

    >>> from tinygrad_attn import Tensor, grad
    >>> x = Tensor(2.0, requires_grad=True)
    >>> slope = grad(x ** 3, x, create_graph=True)          # 3x²
    >>> slope.item(), grad(slope, x).item()                 # 6x
    (12.0, 12.0)
    """
    targets = (xs,) if isinstance(xs, Value) else tuple(xs)
    if not all(isinstance(x, Value) for x in (y, *targets)):
        raise TypeError("grad: y must be a Tensor, and xs a Tensor or a sequence of Tensors")
    seed, nodes = _seed(y, gradient, "grad"), topological_order(y)
    if create_graph:
        with enable_grad():
            seed = seed if isinstance(seed, Value) else result(seed)
            found = backpropagate(y, seed, nodes, targets, create_graph=True)
    else:
        found = backpropagate(y, operand(seed), nodes, targets)
    gradients = [found.get(x.node or x) if x._requires_grad else None for x in targets]
    for i, (x, g) in enumerate(zip(targets, gradients)):
        if g is None and not allow_unused:
            raise GraphError(f"grad: y does not depend on xs[{i}], of shape {x._array.shape}, through recorded ops; "
                             "allow_unused=True gives zeros")
        if not isinstance(g, Value):
            gradients[i] = result(np.zeros(x._array.shape, x._array.dtype) if g is None else np.array(g)[()])
    return gradients[0] if isinstance(xs, Value) else tuple(gradients)
