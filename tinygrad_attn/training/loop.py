"""The loop of every training: draw a batch, walk back from its loss, step; and start again where it was stopped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..nn import Module
from ..optim import Optimizer, clip_grad_norm
from ..plots import INK, SERIES, figure
from ..tensor import Tensor

Loss = Callable[[np.random.Generator], Tensor]


class Training:
    """A model, its optimiser, and `loss`, which draws a batch with the generator it is given and returns its loss.

    `losses` has that of each step so far. All randomness, that of dropout as well if the model was made with the same
    `rng`, comes from one generator, so that a training resumed from its `checkpoint()` goes on to the bit.
    """

    def __init__(self, model: Module, optimizer: Optimizer, loss: Loss, rng: np.random.Generator, *,
                 max_norm: float = 1.0) -> None:
        self.model, self.optimizer, self.loss, self.rng, self.max_norm = model, optimizer, loss, rng, max_norm
        self.losses: list[float] = []

    def train(self, steps: int, progress: Callable[[int, int, str], None] | None = None) -> list[float]:
        """Go on until `steps` steps have been taken in all; return all losses. `progress` is told after each step how
        many there have been, of how many, and the loss; what it raises leaves the training as it is between steps."""
        self.model.train()
        for done in range(len(self.losses), steps):
            self.optimizer.zero_grad()
            loss = self.loss(self.rng)
            loss.backward()
            clip_grad_norm(self.model.parameters(), self.max_norm)
            self.optimizer.step()
            self.losses.append(loss.item())
            if progress:
                progress(done + 1, steps, f"loss {self.losses[-1]:.3f}")
        return self.losses

    def checkpoint(self) -> dict[str, Any]:
        """All that the next step depends on, for `serialize.save`."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "rng": self.rng.bit_generator.state, "losses": np.array(self.losses)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of the same model, optimiser and data; what does not fit is a ValueError."""
        if missing := {"model", "optimizer", "rng", "losses"} - set(saved):
            raise ValueError(f"restore: this is no checkpoint of a training; it lacks {', '.join(sorted(missing))}")
        losses = np.asarray(saved["losses"], dtype=float).ravel().tolist()
        copy.deepcopy(self.rng.bit_generator).state = saved["rng"]      # another kind of generator is an error now
        before = self.model.state_dict()
        self.model.load_state_dict(saved["model"])
        try:
            self.optimizer.load_state_dict(saved["optimizer"])
        except BaseException:               # all of it or nothing
            self.model.load_state_dict(before)
            raise
        self.rng.bit_generator.state, self.losses = saved["rng"], losses


def loss_plot(losses: list[float], title: str, levels: Mapping[str, float]) -> Any:
    """The loss at each step, its mean over 20 steps, and named levels to compare it with, as a matplotlib Figure."""
    plot, ax = figure(1, 1, size=(7, 4))
    steps, width = np.arange(1, len(losses) + 1), min(20, len(losses))
    ax.plot(steps, losses, color=SERIES[1], lw=0.8, alpha=0.35)
    if width:
        means = np.convolve(losses, np.full(width, 1 / width), "valid")                 # drawn amid its steps
        ax.plot(steps[:len(means)] + (width - 1) / 2, means, color=SERIES[1], lw=1.8,
                label=f"training loss, and its mean over {width} steps")
    for colour, (name, level) in zip((SERIES[0], SERIES[2], SERIES[3]), levels.items()):
        ax.axhline(level, color=colour, lw=1.4, ls="--", label=f"{name}: {level:.2f}")
    if max(losses, default=1) > 30 * min(losses, default=1):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("step", color=INK)
    ax.set_ylabel("cross-entropy, nats", color=INK)
    ax.set_title(title, color=INK, fontsize=10)
    ax.legend(frameon=False, labelcolor=INK, fontsize=9)
    return plot
