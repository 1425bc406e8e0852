"""Floor 0. The errors a user of this package can meet, and how they are worded.

Each names the op, the shapes, the rule that was broken, and what to do about it.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any


class ShapeError(ValueError):
    """Shapes that do not fit an operation, a mask, or a gradient."""


class GraphError(RuntimeError):
    """There is no recorded graph to walk back through."""


class GraphFreedError(GraphError):
    """The graph was there, and an earlier `backward()` freed it."""


class NotDifferentiableError(TypeError):
    """A gradient was asked of something that has none."""


class GradcheckError(AssertionError):
    """The gradients of the graph and the finite differences disagree; `report` has where, and which op is to blame."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class AnomalyError(FloatingPointError):
    """A value or a gradient became NaN or infinite, inside `detect_anomaly()`."""


def call_text(op: str, arrays: Any, params: dict[str, Any]) -> str:
    """The call, with shapes in place of arrays: `sum((2, 3), axis=5)`."""
    def show(x: Any) -> str:
        return x.__name__ if isinstance(x, type) else str(x.shape) if hasattr(x, "shape") else repr(x)
    return f"{op}({', '.join([show(x) for x in arrays] + [f'{key}={show(x)}' for key, x in params.items()])})"


def broadcast_fault(shapes: list[tuple[int, ...]]) -> str | None:
    """Why `shapes` do not broadcast together, or None when they do."""
    for axis, lengths in enumerate(zip_longest(*map(reversed, shapes), fillvalue=1), start=1):
        different = sorted(set(lengths) - {1})
        if len(different) > 1:
            return (f"lengths {' and '.join(map(str, different))} at axis -{axis} differ. Shapes are aligned from the "
                    "right, where two lengths must be equal or one of them 1: reshape or expand_dims one of them")
    return None
