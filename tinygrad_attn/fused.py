"""A side room on floor 3. `fused`: a composition that one kernel computes, as one op.

`@fused(kernel)` above a textbook form changes no result beyond rounding. The kernel takes what it can: arrays, or
Tensors, of one floating dtype. Everything else, and every error, is the textbook form's; it is there as `.textbook`,
and inside `with textbook():` it is what runs. A gradient that is to be differentiated again comes from the textbook
form too: the kernel's backward pass is arithmetic on arrays, which leaves no record.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from . import ops
from .engine import ModeChange, Primitive, Value, grad, mode
from .kernels import Kernel

_KINDS = ({np.dtype(np.float32)}, {np.dtype(np.float64)})       # all inputs in one of them, in the usual order of bytes


class textbook(ModeChange):
    """Inside, compositions are computed, and recorded, op by op, as their textbook forms say: for pictures, and to
    compare.

    >>> from tinygrad_attn import Tensor, functional as F, graph
    >>> x = Tensor([[1.0, 2.0]], requires_grad=True, name="x")
    >>> with textbook():
    ...     print(graph.draw(F.linear(x, np.eye(2))))
    matmul (1, 2)
      x (1, 2)
      (2, 2)
    """

    def __init__(self) -> None:
        super().__init__(textbook=True)


class Fused:
    """A textbook form, and `op`, the primitive that computes it by a kernel. Inputs that are None are left out of the
    graph; `given` names the others."""

    def __init__(self, textbook: Callable[..., Any], kernel: Kernel) -> None:
        functools.update_wrapper(self, textbook)
        self.textbook, self.kernel, parameters = textbook, kernel, inspect.signature(textbook).parameters
        self.names = frozenset(parameters)
        self.order = tuple(p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD)
        self.defaults = {p.name: p.default for p in parameters.values() if p.default is not p.empty}

        def forward(*xs: Any, given: tuple[str, ...], **options: Any) -> Any:
            return self._forward(*xs, given=given, **options)[0]

        @functools.wraps(kernel.backward)       # for the text of its rule
        def joint(*args: Any, **params: Any) -> dict[int, Any]:
            return self._gradients(*args, **params)

        forward.__name__, forward.__doc__, forward.__kwdefaults__ = textbook.__name__, textbook.__doc__, self.defaults
        self.op = Primitive(forward)
        self.op.keeping = self._forward
        self.op.defvjp(joint=joint)

    def __call__(self, *args: Any, **options: Any) -> Any:
        placed = dict(zip(self.order, args))
        bound = {**self.defaults, **placed, **options}
        wrong = len(placed) < len(args) or bound.keys() != self.names or placed.keys() & options.keys()
        if wrong or mode.get().textbook:
            return self.textbook(*args, **options)
        xs = [bound.pop(name) for name in self.kernel.inputs]
        arrays = [x._array if isinstance(x, Value) else x for x in xs]
        if not self._of_one_kind(arrays) or not self.kernel.fits(*arrays, **bound):
            return self.textbook(*args, **options)
        given = tuple(name for name, x in zip(self.kernel.inputs, xs) if x is not None)
        return self.op(*(x for x in xs if x is not None), given=given, **bound)

    def _of_one_kind(self, arrays: list[Any]) -> bool:
        missing = any(x is None and name not in self.defaults for name, x in zip(self.kernel.inputs, arrays))
        kinds = {x.dtype if isinstance(x, np.ndarray) else None for x in arrays if x is not None}
        return not missing and kinds in _KINDS

    def _all(self, given: tuple[str, ...], xs: Any) -> list[Any]:
        """The inputs that were given, and None for the others."""
        named = dict(zip(given, xs))
        return [named.get(name) for name in self.kernel.inputs]

    def _forward(self, *xs: Any, given: tuple[str, ...], **options: Any) -> tuple[Any, Any]:
        arrays = self._all(given, xs)
        if not self._of_one_kind(arrays):       # such as complex ones, when gradcheck does the op again
            return self.textbook(**dict(zip(given, xs)), **options), None
        return self.kernel.forward(*arrays, **options)

    def _gradients(self, wanted: set[int], g: Any, out: Any, *xs: Any, given: tuple[str, ...], kept: Any = None,
                   **options: Any) -> dict[int, Any]:
        if isinstance(g, Value):            # the gradient itself is to be differentiated
            return self._recorded(wanted, g, xs, given, options)
        if kept is None:
            _, kept = self._forward(*xs, given=given, **options)
        found = self.kernel.backward({given[i] for i in wanted}, g, kept, *self._all(given, xs), **options)
        return {i: found[given[i]] for i in wanted}

    def _recorded(self, wanted: set[int], g: Any, xs: Any, given: tuple[str, ...], options: dict[str, Any]
                  ) -> dict[int, Any]:
        """What the textbook form's graph sends back. Each input gets a name of its own, in case that one Tensor is
        several of them."""
        each: list[Any] = [ops.reshape(x, shape=x._array.shape) if isinstance(x, Value) else x for x in xs]
        out = self.textbook(**dict(zip(given, each)), **options)
        numbers = sorted(wanted)
        return dict(zip(numbers, grad(out, [each[i] for i in numbers], g, create_graph=True, allow_unused=True)))

    def __repr__(self) -> str:
        return f"<fused {self.op.name}>"


def fused(kernel: Kernel) -> Callable[[Callable[..., Any]], Fused]:
    """Computes the function below by a kernel, where that can."""
    return lambda textbook: Fused(textbook, kernel)
