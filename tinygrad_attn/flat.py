"""A side room on floor 4. `Flat`: many parameters side by side in one array, to be moved as one.

A network has a hundred parameters, most of them small. One after the other, each costs some twenty calls of NumPy; as
one array they cost that once a block, in the cache, on several threads. Each parameter's data, its gradient and its
moments are views of the long arrays. Whoever puts another array in their place, as `p.data = ...` does, is right: it is
copied to its place at the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .buffers import empty
from .kernels import BLOCK, pieces
from .tensor import Tensor
from .threads import each


class Flat:
    """Parameters of one floating dtype. `whole` has the long arrays by name, `parts` the views handed out of each."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        ends = np.cumsum([0, *(p.size for p in params)]).tolist()
        self.params, self.n, self.dtype = params, ends[-1], params[0].dtype
        self.places = [slice(*ends[i:i + 2]) for i in range(len(params))]
        self.whole: dict[str, np.ndarray] = {}
        self.parts: dict[str, list[Any]] = {}

    def joined(self, name: str, parts: list[Any]) -> np.ndarray:
        """The parts as one array: that which they look into, or a new one, if one of them is not that."""
        given = self.parts.get(name, ())
        if len(given) == len(parts) and all(x is y for x, y in zip(given, parts)):
            return self.whole[name]
        return np.concatenate([np.ravel(x) for x in parts], dtype=self.dtype)

    def handed_out(self, name: str, whole: np.ndarray) -> list[Any]:
        parts = [whole[i].reshape(p.shape) for i, p in zip(self.places, self.params)]
        self.whole[name], self.parts[name] = whole, parts
        return parts

    def long(self) -> np.ndarray:
        return empty((self.n,), self.dtype)

    def make_room(self) -> None:
        """Let the next backward pass write the gradients side by side. The array is one that nobody sees any more."""
        self.whole.pop("gradient", None)
        self.parts.pop("gradient", None)
        for p, room in zip(self.params, self.handed_out("gradient", self.long())):
            p.room = room

    def move(self, moved: Callable[..., Any], gradients: list[Any], states: list[dict[str, Any]], names: Sequence[str],
             options: Mapping[str, Any]) -> None:
        """What the optimiser's formula says of a parameter, done to all of them: new data, and new moments."""
        w, g = self.joined("data", [p._array for p in self.params]), self.joined("gradient", gradients)
        before = {name: self.joined(name, [state[name] for state in states]) for name in names if name in states[0]}
        step, new, after = states[0]["step"] + 1, self.long(), {name: self.long() for name in names}

        def block(i: slice) -> None:
            own = {"step": step, **{name: x[i] for name, x in before.items()}}
            new[i] = moved(w[i], g[i], own, **options)
            for name, x in after.items():
                x[i] = own[name]
        each(block, pieces(self.n, BLOCK), self.n)
        for p, part in zip(self.params, self.handed_out("data", new)):      # nothing fails any more
            part.setflags(write=False)
            p._array = part if part.ndim else part[()]
        for name in names:
            for state, part in zip(states, self.handed_out(name, after[name])):
                state[name] = part
        for state in states:
            state["step"] = step
