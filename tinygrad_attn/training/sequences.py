"""Copy and reverse: the smallest tasks that need an encoder, a decoder, and attention from the one to the other.

A source is some random symbols and an end mark, the target the same, or the same from back to front. Which symbol comes
next cannot be guessed, so that every right answer was looked up. Sequences of a batch differ in length; padding fills
them up, is not attended to, and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import functional as F
from ..nn import EncoderDecoder
from ..optim import AdamW, cosine
from .loop import Training

PAD, START, END, FIRST = 0, 1, 2, 3         # token ids: what they are, and that of the first symbol


@dataclass(frozen=True)
class SequenceTask:
    """`kind` is "copy" or "reverse"; so many symbols there are, and so many stand in a sequence."""

    kind: str = "copy"
    symbols: int = 20
    shortest: int = 4
    longest: int = 10

    def __post_init__(self) -> None:
        if self.kind not in ("copy", "reverse") or not 1 <= self.shortest <= self.longest or self.symbols < 2:
            raise ValueError(f"{self}: kind is copy or reverse; there are 2 symbols or more; lengths go from 1 up")

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """n sources and their targets, each (n, longest + 1), with an end mark and padding."""
        source = np.full((n, self.longest + 1), PAD)
        target = source.copy()
        for row, wanted, length in zip(source, target, rng.integers(self.shortest, self.longest + 1, n)):
            row[:length] = rng.integers(FIRST, FIRST + self.symbols, length)
            wanted[:length] = row[:length] if self.kind == "copy" else row[:length][::-1]
            row[length] = wanted[length] = END
        return source, target

    def exact(self, model: EncoderDecoder, source: np.ndarray, target: np.ndarray) -> float:
        """The share of targets that the model writes without an error, end mark included."""
        written = model.generate(source, target.shape[1], start=START)
        return float(((written == target) | (target == PAD)).all(axis=1).mean())


def sequence_training(task: SequenceTask, *, seed: int = 0, steps: int = 600, batch: int = 64, d_model: int = 64,
                      num_heads: int = 4, num_layers: int = 2, lr: float = 3e-3) -> Training:
    """An encoder-decoder that is to learn the task; `.train(steps)` trains it."""
    rng = np.random.default_rng(seed)
    model = EncoderDecoder(FIRST + task.symbols, d_model, num_heads, num_layers, dim_feedforward=2 * d_model, pad=PAD,
                           dtype=np.float32, rng=rng)

    def loss(rng: np.random.Generator) -> Any:
        source, target = task.draw(rng, batch)
        given = np.concatenate([np.full((batch, 1), START), target[:, :-1]], axis=1)    # one step behind the target
        return F.cross_entropy(model(source, given), target, ignore_index=PAD)

    optimizer = AdamW(model.parameters(), cosine(lr, steps, warmup=min(50, steps // 2)), betas=(0.9, 0.98))
    return Training(model, optimizer, loss, rng)
