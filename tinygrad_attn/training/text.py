"""A GPT on real text, letter by letter: the Universal Declaration of Human Rights, in English and Portuguese.

The text is small, 22,000 letters, so that a laptop trains a model in a minute; and the model can soon recite it. So
every eighth paragraph is held out, and what counts is the loss there, beside that of a bigram model, which knows the
letter before and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import functional as F
from ..engine import no_grad
from ..nn import GPT
from ..nn.models import evaluation
from ..optim import AdamW, cosine
from .loop import Training

TEXTS = {lang: Path(__file__).parent / "udhr" / f"{lang}.txt" for lang in ("en", "pt")}


@dataclass(frozen=True)
class Corpus:
    """A text as numbers: the letters there are, and the two parts as indices into them."""

    letters: str
    train: np.ndarray
    held_out: np.ndarray

    @classmethod
    def of(cls, text: str, every: int = 8) -> Corpus:
        """Each `every`-th line is held out. A text of fewer lines is a ValueError."""
        lines = [line + "\n" for line in text.splitlines() if line.strip()]
        if len(lines) < every:
            raise ValueError(f"the text has {len(lines)} lines; it takes {every} or more: each {every}th is held out")
        letters, held = "".join(sorted(set("".join(lines)))), lines[every - 1::every]
        del lines[every - 1::every]
        return cls(letters, *(np.array([letters.index(c) for c in "".join(part)]) for part in (lines, held)))

    def encode(self, text: str) -> np.ndarray:
        if unknown := sorted(set(text) - set(self.letters)):
            raise ValueError(f"the text that was learned from has no {' '.join(map(repr, unknown))}")
        return np.array([self.letters.index(c) for c in text], dtype=np.intp)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return "".join(self.letters[i] for i in ids)


def declaration(lang: str = "both") -> str:
    """The declaration in English ("en"), Brazilian Portuguese ("pt"), or one after the other ("both")."""
    if lang not in (*TEXTS, "both"):
        raise ValueError(f"declaration: lang={lang!r}; it is {', '.join(TEXTS)} or both")
    return "".join(TEXTS[one].read_text(encoding="utf-8") for one in (TEXTS if lang == "both" else (lang,)))


def bigram_loss(corpus: Corpus) -> float:
    """Nats per letter of the held-out text by p(b | a) = (n_ab + k p(b)) / (n_a + k), counted in the training text; for
    the k that is best on the held-out text itself, an advantage that the GPT has not. (Jelinek & Mercer 1980.)"""
    V, counts = len(corpus.letters), np.zeros((len(corpus.letters),) * 2)
    np.add.at(counts, (corpus.train[:-1], corpus.train[1:]), 1)
    alone = np.bincount(corpus.train, minlength=V) + 1.0
    alone /= alone.sum()
    before, after = corpus.held_out[:-1], corpus.held_out[1:]
    return min(float(-np.log((counts[before, after] + k * alone[after]) / (counts.sum(axis=1)[before] + k)).mean())
               for k in 2.0 ** np.arange(-4, 10))


def gpt_loss(model: GPT, ids: np.ndarray) -> float:
    """Nats per letter of the text, each letter but the first predicted once, from half a window of those before it, or
    more, where there are as many."""
    L, half, targets, total = model.max_len, max(1, model.max_len // 2), len(ids) - 1, 0.0
    with no_grad(), evaluation(model):
        for start in range(0, targets, half):
            end = min(start + half, targets)
            first = max(0, end - L)
            logits = model(ids[None, first:end])[0, start - first:]
            total += F.cross_entropy(logits, ids[start + 1:end + 1], reduction="sum").item()
    return total / targets


def text_training(corpus: Corpus, *, seed: int = 0, steps: int = 600, batch: int = 16, length: int = 64,
                  d_model: int = 96, num_heads: int = 4, num_layers: int = 2, dropout: float = 0.1,
                  positions: str = "rotary", lr: float = 3e-3) -> Training:
    """A GPT that is to learn to go on with the text, a window of `length` letters at a time; `.train(steps)` trains."""
    if len(corpus.train) <= length:
        raise ValueError(f"the training text has {len(corpus.train)} letters; a window of {length} and the next one do "
                         "not fit in: give a longer text, or a smaller length")
    rng = np.random.default_rng(seed)
    model = GPT(len(corpus.letters), length, d_model, num_heads, num_layers, dropout=dropout, positions=positions,
                dtype=np.float32, rng=rng)

    def loss(rng: np.random.Generator) -> Any:
        starts = rng.integers(0, len(corpus.train) - length, batch)
        windows = corpus.train[starts[:, None] + np.arange(length + 1)]                 # (B, L + 1)
        return F.cross_entropy(model(windows[:, :-1]), windows[:, 1:])

    optimizer = AdamW(model.parameters(), cosine(lr, steps, warmup=min(50, steps // 2)), betas=(0.9, 0.99),
                      weight_decay=0.1)
    return Training(model, optimizer, loss, rng)
