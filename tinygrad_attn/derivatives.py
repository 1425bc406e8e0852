"""A side room on floor 3. Derivatives of functions, rather than of values: vjp, jvp, jacobian, hessian.

Each takes a function `fn(*inputs) -> Tensor` and its inputs, of which it makes fresh leaves: a tuple is several
inputs, anything else is one, and the answer has the same arrangement. All are `grad` underneath: a reverse walk
gives one row of the Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .engine import enable_grad, grad, operand, topological_order
from .errors import GraphError, ShapeError
from .tensor import Tensor


def leaves(inputs: Any) -> tuple[Tensor, ...]:
    """The inputs as fresh leaves, so that two of them are never one, and nobody's `.grad` is concerned."""
    return tuple(Tensor(operand(x), requires_grad=True) for x in (inputs if isinstance(inputs, tuple) else (inputs,)))


def made_of(*ys: Tensor) -> set[int]:
    """The `id` of every value that went into `ys` through recorded ops, and of `ys` themselves."""
    return {id(x) for x in (*ys, *(source for node in topological_order(*ys) for source in node.inputs))}


def value_of(fn: Callable[..., Any], xs: Sequence[Tensor]) -> Tensor:
    """fn(*xs), which must be a Tensor."""
    y = fn(*xs)
    if not isinstance(y, Tensor):
        raise TypeError(f"{getattr(fn, '__name__', 'the function')} returned a {type(y).__name__}; to be "
                        "differentiated it must return a Tensor, computed from its inputs by Tensor ops")
    used = made_of(y)
    if not any(id(x) in used for x in xs):
        raise GraphError("the output of the function does not depend on its inputs through recorded ops. Inside it, "
                         ".numpy(), .detach(), and derivatives without create_graph=True cut the graph")
    return y


def _arranged(inputs: Any, outputs: Sequence[Any]) -> Any:
    return tuple(outputs) if isinstance(inputs, tuple) else outputs[0]


@enable_grad()
def vjp(fn: Callable[..., Any], inputs: Any, v: Any = None) -> tuple[Tensor, Any]:
    """`(fn(*inputs), vᵀ J)`: the vector-Jacobian product, in one walk back whatever the number of inputs.

    >>> y, product = vjp(lambda x: x * x, [1.0, 2.0], [1.0, 10.0])
    >>> product
    Tensor([ 2., 40.])
    """
    xs = leaves(inputs)
    y = value_of(fn, xs)
    return y.detach(), _arranged(inputs, grad(y, xs, v, allow_unused=True))


@enable_grad()
def jvp(fn: Callable[..., Any], inputs: Any, v: Any) -> tuple[Tensor, Tensor]:
    """`(fn(*inputs), J v)`: how the output moves when the inputs move along `v`, one v for each input.

    uᵀ J is linear in u; its derivative with respect to u, along v, is J v. So two walks back make one forward.
    (J. Townsend, "A new trick for calculating Jacobian vector products", 2017.)

    >>> y, product = jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))        # d(xy)/dx = y
    >>> product
    Tensor(3.)
    """
    xs, vs = leaves(inputs), v if isinstance(inputs, tuple) else (v,)
    if len(xs) != len(vs):
        raise ShapeError(f"jvp: {len(xs)} inputs and {len(vs)} directions v; give one for each")
    y = value_of(fn, xs)
    for x, direction in zip(xs, vs):
        if np.shape(direction) != x.shape:
            raise ShapeError(f"jvp: v has shape {np.shape(direction)}, its input {x.shape}; they must be equal")
    u = Tensor(np.ones_like(y.data), requires_grad=True)
    rows = grad(y, xs, u, create_graph=True, allow_unused=True)
    along: Any = sum((row * operand(direction)).sum() for row, direction in zip(rows, vs))
    product = grad(along, u, allow_unused=True) if along.requires_grad else Tensor(np.zeros_like(y.data))
    return y.detach(), product


@enable_grad()
def jacobian(fn: Callable[..., Any], inputs: Any) -> Any:
    """d fn / dx for each input, of shape `out.shape + x.shape`, by one walk back for each element of the output.

    >>> from tinygrad_attn import softmax
    >>> jacobian(softmax, [0.0, 0.0])                       # diag(p) − p pᵀ
    Tensor([[ 0.25, -0.25],
            [-0.25,  0.25]])
    """
    xs = leaves(inputs)
    return _arranged(inputs, _jacobians(value_of(fn, xs), xs))


def unit_seeds(y: Tensor) -> Iterator[np.ndarray]:
    """dL/dy for each element of y that L may be: 1 there and 0 elsewhere."""
    for place in np.ndindex(y.shape):
        seed = np.zeros(y.shape, y.dtype)
        seed[place] = 1
        yield seed


def _jacobians(y: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    rows = [grad(y, xs, seed, allow_unused=True) for seed in unit_seeds(y)]
    return [Tensor(np.reshape([row[i].data for row in rows], y.shape + x.shape), dtype=x.dtype)
            for i, x in enumerate(xs)]


@enable_grad()
def hessian(fn: Callable[..., Any], inputs: Any) -> Any:
    """d² fn / dxᵢ dxⱼ of a function to one number, of shape `xᵢ.shape + xⱼ.shape`: the Jacobian of its gradient.

    >>> hessian(lambda x: (x ** 3).sum(), [1.0, 2.0])
    Tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    xs = leaves(inputs)
    y = value_of(fn, xs)
    if y.size != 1:
        raise ShapeError(f"hessian: fn must return one number; it returned shape {y.shape}")
    slopes = grad(y, xs, np.ones(y.shape), create_graph=True, allow_unused=True)
    return _arranged(inputs, [_arranged(inputs, _jacobians(slope, xs)) for slope in slopes])
