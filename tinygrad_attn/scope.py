"""A side room on floor 1. `scope`: a name for a part of a computation, drawn as a box around its ops."""

from __future__ import annotations

from typing import Any

from .engine import ModeChange, current_scope, next_tick


class scope(ModeChange):
    """Inside, ops are recorded as part of `name`: a context manager, and a decorator of functions.

    A picture draws a box around them, or folds them into one node. Each time that a scope is entered makes a box of
    its own, and scopes nest. Nothing else changes. A name that is no string is a TypeError.

    >>> from tinygrad_attn import Tensor, graph
    >>> x = Tensor(3.0, requires_grad=True, name="x")
    >>> with graph.scope("square"):
    ...     y = x * x
    >>> print(graph.draw(y + 1.0, collapse=0))
    add ()
      [square] () → ()
        x ()
      1
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"scope: its name must be a string, and not {name!r}")
        self.name = name

    def __call__(self, function: Any) -> Any:
        if isinstance(function, type):
            raise TypeError(f"scope: {function.__name__} is a class; decorate the methods that compute")
        return super().__call__(function)

    def __enter__(self) -> None:
        current_scope.set((self.name, next_tick(), current_scope.get()))

    def __exit__(self, *exception: object) -> None:
        current_scope.set((current_scope.get() or (None, 0, None))[2])      # as a generator may be closed elsewhere
