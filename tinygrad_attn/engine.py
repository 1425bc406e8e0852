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
import itertools
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, ClassVar

import numpy as np

from .errors import GraphError, GraphFreedError, NotDifferentiableError, ShapeError, broadcast_fault, call_text

# ------------------------------------------------------------------------------ to record or not to record

# The modes entered so far, innermost last. A ContextVar belongs to its thread or asyncio task, so that one
# thread's no_grad() does not switch off another's recording.
_modes: ContextVar[tuple[bool, ...]] = ContextVar("modes", default=(True,))


class _GradMode(ContextDecorator):
    """A context manager and decorator without state of its own: it may be entered twice, and leaving it,
    also by an exception, restores what was there before."""

    recording: ClassVar[bool]

    def __enter__(self) -> None:
        _modes.set((*_modes.get(), self.recording))

    def __exit__(self, *exception: object) -> None:
        _modes.set(_modes.get()[:-1])


class no_grad(_GradMode):
    """Inside, nothing is recorded: for evaluation, and for updating weights.

    >>> from tinygrad_attn import Tensor, no_grad
    >>> x = Tensor(3.0, requires_grad=True)
    >>> with no_grad():
    ...     print((x * x).requires_grad)
    False
    """

    recording = False


class enable_grad(_GradMode):
    """Inside, ops are recorded again, also within an outer `no_grad()`."""

    recording = True


# ------------------------------------------------------------------------------------------ values and nodes


class Value:
    """An array in a graph. A *leaf* was made by the user and has no node; a *result* has the node that made
    it, if a gradient can flow through it. `tensor.py` gives values their operators.

    A 0-d array is held as a NumPy scalar: NumPy's own functions return those, and multiply them eight times
    faster.
    """

    __slots__ = ("__weakref__", "_data", "_requires_grad", "grad", "name", "node")

    result_type: ClassVar[type[Value]]      # what primitives return, whatever subclass went in: Tensor

    _data: Any
    _requires_grad: bool
    grad: np.ndarray | None
    name: str | None
    node: Node | None


_next_tick = itertools.count().__next__


class Node:
    """One use of a primitive: the op, its inputs, and the arrays as they were at the time.

    `inputs[i]` is the value through which the gradient flows on, None for a constant; `args[i]` is its
    array. A node holds its output's array but never its output: edges point one way only, so reference
    counting frees a graph at once, without the garbage collector.
    """

    __slots__ = ("args", "inputs", "op", "out", "options", "tick")

    def __init__(self, op: Primitive, inputs: list[Value | None], args: list[Any], options: dict[str, Any],
                 out: Any) -> None:
        self.op = op
        self.inputs = inputs
        self.args = args
        self.options = options
        self.out = out
        self.tick = _next_tick()

    def free(self) -> None:
        """Let go of inputs and arrays. The op stays, so that an error can still name it."""
        self.inputs = self.args = ()
        self.out = None


def result(data: Any, node: Node | None = None) -> Any:
    """A value of the one result type around `data`, an array that nobody else writes to."""
    cls = Value.result_type
    value = cls.__new__(cls)
    value._data = data
    value._requires_grad = node is not None
    value.grad = value.name = None
    value.node = node
    return value


# ------------------------------------------------------------------------------------------------ primitives

_SCALARS = frozenset((float, int, bool, complex))       # weak in NumPy's promotion: float32 * 2.0 is float32


def operand(x: Any) -> Any:
    """`x` as something NumPy computes with: Python's numbers stay, lists become arrays, the rest is refused."""
    if type(x) in _SCALARS or type(x) is np.ndarray:
        return x
    if isinstance(x, Value):
        return x._data
    array = np.asarray(x)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{x!r} is a {type(x).__name__}, not a number or an array of numbers")
    return array


class Primitive:
    """A differentiable op: a NumPy function, and a vjp for each of its positional arguments.

    Called with arrays it returns an array. Called with a Tensor among its arguments it returns a Tensor, and
    records a `Node` if one of them needs a gradient. Positional arguments are inputs, which may be
    differentiated; keyword arguments are options.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self.forward, self.name, code = forward, forward.__name__.strip("_"), forward.__code__
        self.arity = code.co_argcount
        self.variadic = bool(code.co_flags & 0x04)      # its inputs are *xs (inspect.CO_VARARGS)
        self.options = code.co_varnames[self.arity:self.arity + code.co_kwonlyargcount]
        self.vjps: Sequence[Callable[..., Any] | None] = (None,) * self.arity
        self.joint: Callable[..., Sequence[Any]] | None = None

    def defvjp(self, *vjps: Callable[..., Any] | None, joint: Callable[..., Sequence[Any]] | None = None) -> None:
        """Register the vjps, one for each positional argument. `vjp(g, out, *args, **options)` is dL/d arg,
        given g = dL/d out; None marks an argument that cannot be differentiated. `joint` returns them all
        at once, for an op of any number of inputs, or one whose gradients share work.

        A vjp is read twice: with arrays, and with Tensors when its result is to be differentiated again. So
        it uses operators, what arrays and Tensors have in common, and primitives.
        """
        if joint is None and (self.variadic or len(vjps) != self.arity):
            raise TypeError(f"{self.name}.defvjp: {len(vjps)} vjps for {'any number of' if self.variadic else self.arity} "
                            "positional arguments: give one each (None if not differentiable), or joint=")
        self.vjps, self.joint = vjps, joint

    def __call__(self, *args: Any, **options: Any) -> Any:
        arrays: list[Any] = []
        inputs: list[Value | None] = []
        any_value = any_tracked = any_constant = False
        for x in args:
            if isinstance(x, Value):
                any_value = True
                arrays.append(x._data)
                if x._requires_grad:
                    any_tracked = True
                    inputs.append(x)
                else:
                    inputs.append(None)
            else:
                any_constant = True
                arrays.append(operand(x))
                inputs.append(None)
        try:
            out = self.forward(*arrays, **options)
        except (ValueError, TypeError) as error:
            raise self._explain(error, arrays, options) from error
        if not any_value:
            return out
        if type(out) is np.ndarray:
            out.setflags(write=False)
        elif not isinstance(out, np.generic):
            out = np.asarray(out)[()]
        if not (any_tracked and _modes.get()[-1]):
            return result(out)
        if any_constant:                    # its owner may write to it before the walk back: keep our own copy
            arrays = [a if isinstance(x, Value) or np.isscalar(a) else a.copy()
                      for x, a in zip(args, arrays)]
        return result(out, Node(self, inputs, arrays, options, out))

    def _explain(self, error: Exception, arrays: list[Any], options: dict[str, Any]) -> Exception:
        """The same failure in terms of this op."""
        reason = str(error)
        if isinstance(error, ShapeError):
            return error
        if isinstance(error, TypeError):
            if "argument" in reason:
                reason += f" (inputs are positional, options go by keyword: {', '.join(self.options) or 'none'})"
            return TypeError(f"{call_text(self.name, arrays, options)}: {reason}")
        if "broadcast" in reason and not options:
            reason = broadcast_fault([np.shape(a) for a in arrays]) or reason
        return ShapeError(f"{call_text(self.name, arrays, options)}: {reason}")

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def primitive(forward: Callable[..., Any]) -> Primitive:
    """Make a primitive of a NumPy function; its `defvjp` then says how to differentiate it.

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


# --------------------------------------------------------------------------------------------- the walk back


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` over the axes along which an input of `shape` was repeated to fit the other inputs.

    Broadcasting uses an element in several places, so its gradient is the sum of theirs. This is the one
    place that knows: no vjp has to.
    """
    added = g.ndim - len(shape)
    repeated = tuple(i for i in range(g.ndim) if i < added or shape[i - added] == 1 != g.shape[i])
    return g.sum(axis=repeated).reshape(shape)


def history(root: Value) -> list[Node]:
    """The nodes that `root` was made of, newest first: each before all that it was made of."""
    pending = [root.node] if root.node else []
    seen = set(pending)
    while pending:
        node = pending.pop()
        if node.out is None:
            raise GraphFreedError(f"{node.op.name}: an earlier backward() freed this part of the graph; "
                                  "compute it again, or call that backward(retain_graph=True)")
        for x in node.inputs:
            if x is not None and x.node and x.node not in seen:
                seen.add(x.node)
                pending.append(x.node)
    return sorted(seen, key=lambda node: node.tick, reverse=True)


def chain_rule(root: Value, seed: Any, nodes: list[Node], targets: Sequence[Value] | None = None,
               create_graph: bool = False) -> dict[Node | Value, Any]:
    """Walk `nodes` from `root` back; return the gradients, keyed by leaf, or by node for a result.

    Without `targets`, those of all leaves. With them, theirs, and only nodes between them and the root are
    visited. The vjps get arrays; with `create_graph` Tensors, so that their own work is recorded.
    """
    kept = {x.node or x for x in targets or ()}
    useful: set[Node | Value] | None = None             # everything
    if targets is not None:
        useful = set(kept)
        for node in reversed(nodes):
            if any(x is not None and (x.node or x) in useful for x in node.inputs):
                useful.add(node)
        nodes = [node for node in nodes if node in useful]

    gradients: dict[Node | Value, Any] = {root.node or root: seed}
    for node in nodes:
        g = gradients[node] if node in kept else gradients.pop(node)
        op, args, out, options = node.op, node.args, node.out, node.options
        if create_graph:
            args, out = [a if x is None else _unchanged(x, a, op) for x, a in zip(node.inputs, args)], result(out, node)
        shares = op.joint(g, out, *args, **options) if op.joint else None
        for i, x in enumerate(node.inputs):
            if x is None:
                continue
            key = x.node or x
            if useful is not None and key not in useful:
                continue
            if shares is not None:
                share = shares[i]
            elif vjp := op.vjps[i]:
                share = vjp(g, out, *args, **options)
            else:
                raise NotDifferentiableError(f"{op.name}: argument {i} has no derivative; if it is meant as a constant, "
                                             "write .detach()")
            array = node.args[i]
            if share.shape != array.shape or share.dtype is not array.dtype:
                share = _fitted(share, array, op, i)
            gradients[key] = gradients[key] + share if key in gradients else share
    return gradients


def _fitted(g: Any, x: Any, op: Primitive, i: int) -> Any:
    """The gradient `g` in the shape and dtype of the input `x` that owns it."""
    if g.shape != x.shape:
        try:
            g = unbroadcast(g, x.shape)
        except (ValueError, IndexError) as error:
            raise ShapeError(f"{op.name}: the vjp of argument {i} returned shape {g.shape}, "
                             f"but the argument has {x.shape}") from error
    return g if g.dtype is x.dtype else g.astype(x.dtype)


def _unchanged(x: Value, array: Any, op: Primitive) -> Value:
    """An input as it was used. A leaf's data may have been replaced since, by an optimiser's step."""
    if x._data is not array:
        raise GraphError(f"{op.name}: an input of shape {array.shape} was given new data after it was used; "
                         "create_graph=True needs it as it was")
    return x


def seed_for(root: Value, gradient: Any, asker: str) -> Any:
    """dL/d root to start from: 1 if `root` is one number, else what the caller gives, in the same shape."""
    if gradient is None:
        if root._data.size != 1:
            raise ShapeError(f"{asker}: of a value of shape {root._data.shape} there is no single gradient. Reduce it to "
                             "one number, by .sum() or .mean(), or give gradient=, dL/d value, in that shape")
        return np.ones(root._data.shape, root._data.dtype)[()]
    data = operand(gradient)
    if np.shape(data) != root._data.shape:
        raise ShapeError(f"{asker}: gradient has shape {np.shape(data)}, the value has {root._data.shape}; they must be equal")
    return gradient if isinstance(gradient, Value) else np.asarray(data, root._data.dtype)[()]


def backward(root: Value, gradient: Any = None, retain_graph: bool = False) -> None:
    """`Tensor.backward`. Gradients are handed out, and the graph freed, only when the whole walk is over:
    a walk that fails changes nothing."""
    if not root._requires_grad:
        raise GraphError("backward: no gradient can flow from here. Was a leaf made without requires_grad=True, or "
                         "the value computed under no_grad(), or from .detach() or .numpy()?")
    nodes = history(root)
    for leaf, g in chain_rule(root, operand(seed_for(root, gradient, "backward")), nodes).items():
        assert isinstance(leaf, Value)
        if leaf.grad is None:
            leaf.grad = np.array(g)         # a copy: the array is the leaf's alone
        else:
            leaf.grad += g
    if not retain_graph:
        for node in nodes:
            node.free()


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
    seed = seed_for(y, gradient, "grad")
    if create_graph:
        with enable_grad():
            seed = seed if isinstance(seed, Value) else result(seed)
            found = chain_rule(y, seed, history(y), targets, create_graph=True)
    else:
        found = chain_rule(y, operand(seed), history(y), targets)
    gradients = []
    for i, x in enumerate(targets):
        g = found.get(x.node or x)
        if g is None or not x._requires_grad:
            if not allow_unused:
                raise GraphError(f"grad: y does not depend on xs[{i}], of shape {x._data.shape}, through recorded ops. "
                                 "If that is meant, allow_unused=True gives zeros")
            g = np.zeros_like(x._data)
        gradients.append(g if isinstance(g, Value) else result(np.array(g)))
    return gradients[0] if isinstance(xs, Value) else tuple(gradients)
