"""What the missing scale does to training, told as it was measured.

The task is the one that attention is for: look something up by content. A context holds some of the tokens, each with
a value of its own, drawn afresh; the query is one of these tokens, and the answer its value. The layer has a query
vector and a key vector for each token, the rows of W_q and W_k, standard normal at the start, so that scores have
standard deviation √d_k times the scale. To answer, it must learn to make the score of a token with itself the largest.
The loss is the mean squared error of the answer.

What was found, with 16 tokens that all stand in every context, 400 steps, five seeds and rates in decades, is what the
`claims()` of a `training_map` say, no more. Unscaled, the layer learns at d_k = 4 like the scaled one; it learns worse and
worse with larger d_k, and from 64 on with no rate, by SGD or Adam. A right key whose weight is e⁻³⁰ gets no gradient, and
it would rise only in a context where all its rivals happen to score low, which never comes if all tokens are
always there. What changes that is told by the `CONTROLS`:

- *few rivals*: with 4 of 64 tokens in a context the unscaled layer learns, worse.
- *cross-entropy* on the weights, −ln of the weight of the right key, has the gradient p − 1 at its score, which cannot
  vanish: the logarithm undoes what the softmax does. The unscaled layer learns at once. So it is not large scores as
  such that stop it, but the softmax's Jacobian between them and the loss.
- *tied*: if W_k starts as a copy of W_q, and the query must find another token than itself, each query is locked on
  itself with a score near d_k. Unscaled, at d_k = 1024, the gradient is exactly 0 in double precision: a true stall. Here
  1/√d_k is not enough either; 1/d_k is. What fits depends on how queries and keys are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from ..engine import grad
from ..ops import log_softmax, softmax
from ..plots import INK, SERIES, figure
from ..tensor import Tensor
from .measure import SCALES, SYMBOLS

RATES = {"sgd": (0.1, 1.0, 10.0, 100.0, 1000.0), "adam": (0.001, 0.01, 0.1, 1.0)}
DEAD = 1e-6                                 # below it, moving all scores by 1 hardly changes a query's own loss
LEARNED = 0.95
LOSSES = ("squared", "cross-entropy")


@dataclass(frozen=True)
class Task:
    """How many tokens there are, how many of them stand in a context, how wide their values are; how many contexts there
    are in a step of training and in the test; the loss, "squared" or "cross-entropy"; and whether W_k starts as a copy of
    W_q (`tied`), in which case a query asks for the token before it in the vocabulary instead of itself."""

    tokens: int = 16
    keys: int = 16
    width: int = 8
    batch: int = 64
    test: int = 512
    loss: str = "squared"
    tied: bool = False

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n contexts: the tokens in them (n, keys), the place of the one asked for (n,), the values (n, keys, width)."""
        keys = rng.permuted(np.tile(np.arange(self.tokens), (n, 1)), axis=1)[:, :self.keys]
        return keys, rng.integers(self.keys, size=n), rng.standard_normal((n, self.keys, self.width))

    def start(self, rng: np.random.Generator, d_k: int) -> list[Tensor]:
        w_q, w_k = rng.standard_normal((2, self.tokens, d_k))
        return [Tensor(w_q, requires_grad=True, name="W_q"),
                Tensor(w_q if self.tied else w_k, requires_grad=True, name="W_k")]

    def lookup(self, weights: list[Tensor], scale: float, keys: np.ndarray, right: np.ndarray,
               values: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, scores and attention weights. They are those of `attention(w_q[asking], w_k[keys], values, scale=scale)`,
        but the scores of all pairs of tokens are computed once and then looked up, which saves most of the work."""
        (w_q, w_k), rows = weights, np.arange(len(keys))
        pairs = (w_q * scale) @ w_k.mT                                                  # (tokens, tokens)
        asking = (keys[rows, right] + self.tied) % self.tokens
        scores = pairs[asking[:, None], keys]                                           # (n, keys)
        p = softmax(scores)
        if self.loss == "cross-entropy":
            return -log_softmax(scores)[rows, right].mean(), scores, p
        error = (p[:, None, :] @ values)[:, 0] - values[rows, right]                    # (n, width)
        return (error * error).mean(), scores, p


CONTROLS = {"few rivals: 4 of 64 tokens": Task(tokens=64, keys=4), "cross-entropy": Task(loss="cross-entropy"),
            "tied start": Task(tied=True)}


@dataclass(frozen=True)
class Run:
    """One training. At each step in `steps`, on the test contexts: the loss; the share of queries whose largest weight is
    on the right key; the share that is *stuck*, on a wrong key and with a dead gradient: below a millionth, at its
    scores, of its own loss; and the norm of ∂L/∂W_q. A run that overflowed ends where it did."""

    scale: str
    d_k: int
    lr: float
    optimizer: str
    seed: int
    steps: tuple[int, ...]
    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    stuck: tuple[float, ...]
    gradient: tuple[float, ...]

    @property
    def steps_to_learn(self) -> int | None:
        """The first step looked at with 95 % right, or None."""
        return next((step for step, share in zip(self.steps, self.accuracy) if share >= LEARNED), None)


Update = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def sgd(lr: float) -> Update:
    """−lr · g"""
    return lambda gradients: [-lr * g for g in gradients]


def adam(lr: float, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Update:
    """−lr · m / (√v + eps), with m and v the running means of g and g², freed of their start at 0. (Kingma & Ba 2015.)"""
    means: list[Any] = []
    t = 0

    def update(gradients: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        nonlocal t
        t += 1
        means[:] = means or [(0.0, 0.0) for _ in gradients]
        means[:] = [(beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g) for (m, v), g in zip(means, gradients)]
        return [-lr * m / (1 - beta1 ** t) / (np.sqrt(v / (1 - beta2 ** t)) + eps) for m, v in means]
    return update


OPTIMIZERS: dict[str, Callable[[float], Update]] = {"sgd": sgd, "adam": adam}
NAMES = {"sgd": "SGD", "adam": "Adam"}


def train(scale: str = "sqrt", d_k: int = 256, lr: float = 10.0, steps: int = 400, seed: int = 0, optimizer: str = "sgd",
          *, task: Task = Task(), every: int = 20) -> Run:
    """Train one attention layer on the look-up, and look at it every so many steps.

    For one seed and d_k the start, the contexts and the test are the same for all scales, rates and optimisers. An
    unknown scale or optimiser, or a number out of range, is a ValueError.

    >>> from tinygrad_attn import saturation
    >>> run = saturation.train("sqrt", d_k=64, lr=100.0, steps=100)
    >>> run.accuracy[0] < 0.2, run.accuracy[-1] > 0.9
    (True, True)
    """
    if scale not in SCALES or optimizer not in OPTIMIZERS or task.loss not in LOSSES:
        raise ValueError(f"train: scale={scale!r}, optimizer={optimizer!r}, loss={task.loss!r}; they are one of "
                         f"{', '.join(SCALES)}, one of {', '.join(OPTIMIZERS)}, and one of {', '.join(LOSSES)}")
    if d_k < 1 or steps < 1 or every < 1 or not (0 < lr < math.inf) or not 2 <= task.keys <= task.tokens:
        raise ValueError(f"train: d_k={d_k}, steps={steps}, every={every}, lr={lr}, {task.keys} keys of {task.tokens} "
                         "tokens; the numbers are above 0, and at least two keys, and at most all tokens, are in a context")
    rng = np.random.default_rng([seed, d_k])
    weights, test = task.start(rng, d_k), task.draw(rng, task.test)
    factor, update = SCALES[scale](d_k), OPTIMIZERS[optimizer](lr)
    seen: list[tuple[float, ...]] = []
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):     # a rate may be far too large: the map shows it
        for step in range(steps + 1):
            if step % every == 0 or step == steps:
                seen.append((step, *_look(task, weights, factor, test)))
                if not math.isfinite(seen[-1][1]):
                    break
            loss, _, _ = task.lookup(weights, factor, *task.draw(rng, task.batch))
            for w, change in zip(weights, update([g.numpy() for g in grad(loss, weights)])):
                w.data = w.data + change
    step_at, losses, accuracy, stuck, gradient = zip(*seen)
    return Run(scale, d_k, lr, optimizer, seed, step_at, losses, accuracy, stuck, gradient)


def _look(task: Task, weights: list[Tensor], factor: float, test: tuple[np.ndarray, np.ndarray, np.ndarray]
          ) -> tuple[float, float, float, float]:
    """Loss, accuracy, the share of queries that are stuck, and ‖∂L/∂W_q‖."""
    loss, scores, p = task.lookup(weights, factor, *test)
    at_scores, at_w_q = (g.numpy() for g in grad(loss, [scores, weights[0]]))
    own = len(at_scores) * np.sqrt((at_scores ** 2).sum(axis=-1))       # of the loss of each query, not of their mean
    right = p.argmax(axis=-1) == test[1]
    return loss.item(), float(right.mean()), float((~right & (own < DEAD)).mean()), float(np.sqrt((at_w_q ** 2).sum()))


@dataclass(frozen=True)
class Cell:
    """One scale at one d_k with one optimiser, over all rates and seeds. `best` is the rate with the highest median accuracy
    at the end (of equals, with the lowest median loss); `accuracy` has that of each seed there; `steps` the median number
    to 95 %, None if most seeds never came there; `rates` those with which every seed did. `stuck` has the median shares
    at the start and, with the best rate, at the end."""

    optimizer: str
    d_k: int
    scale: str
    best: float
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    steps: float | None
    rates: tuple[float, ...]
    stuck: tuple[float, float]

    @property
    def learns(self) -> bool:
        """Every seed learned, with some rate."""
        return bool(self.rates)


@dataclass(frozen=True)
class Map:
    """The runs of a grid."""

    runs: tuple[Run, ...]
    task: Task

    def axis(self, name: str) -> tuple[Any, ...]:
        """The values along one axis of the grid, "d_k" or another name in a `Run`."""
        return tuple(dict.fromkeys(getattr(run, name) for run in self.runs))

    def select(self, **where: Any) -> list[Run]:
        """The runs with these values: `select(scale="none", seed=0)`."""
        return [run for run in self.runs if all(getattr(run, name) == value for name, value in where.items())]

    def cell(self, optimizer: str, d_k: int, scale: str) -> Cell:
        by_rate: dict[float, list[Run]] = {}
        for run in self.select(optimizer=optimizer, d_k=d_k, scale=scale):
            by_rate.setdefault(run.lr, []).append(run)
        if not by_rate:
            raise KeyError(f"the map has no runs with {optimizer}, d_k={d_k}, scale={scale}")

        def merit(rate: float) -> tuple[float, float]:
            runs = by_rate[rate]
            return median(r.accuracy[-1] for r in runs), -median(np.nan_to_num(r.loss[-1], nan=np.inf) for r in runs)
        best = max(by_rate, key=merit)
        runs = by_rate[best]
        steps = median(math.inf if r.steps_to_learn is None else r.steps_to_learn for r in runs)
        return Cell(optimizer, d_k, scale, best, tuple(r.accuracy[-1] for r in runs), tuple(r.loss[-1] for r in runs),
                    steps if math.isfinite(steps) else None,
                    tuple(rate for rate, rs in by_rate.items() if all(r.accuracy[-1] >= LEARNED for r in rs)),
                    (median(r.stuck[0] for r in runs), median(r.stuck[-1] for r in runs)))

    def cells(self) -> list[Cell]:
        return [self.cell(optimizer, d_k, scale) for optimizer in self.axis("optimizer") for d_k in self.axis("d_k")
                for scale in self.axis("scale")]

    def _rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head = ("optimiser", "d_k", "scores", "best rate", "right at the end", "steps to 95 %", "rates that work",
                "stuck at the start", "at the end")
        return head, [(c.optimizer, str(c.d_k), SYMBOLS[c.scale], f"{c.best:g}", _spread(c.accuracy),
                       "-" if c.steps is None else f"{c.steps:g}", ", ".join(f"{r:g}" for r in c.rates) or "none",
                       f"{c.stuck[0]:.0%}", f"{c.stuck[1]:.0%}") for c in self.cells()]

    def table(self) -> str:
        """A line for each optimiser, d_k and scale, at its best rate: median over the seeds, and the range."""
        head, rows = self._rows()
        widths = [max(map(len, column)) for column in zip(head, *rows)]
        lines = ["  ".join(cell.rjust(n) if k != 2 else cell.ljust(n) for k, (cell, n) in enumerate(zip(row, widths)))
                 for row in (head, *rows)]
        return "\n".join([f"{self.task.keys} keys of {self.task.tokens} tokens, {max(r.steps[-1] for r in self.runs)} steps, "
                          f"seeds {', '.join(map(str, self.axis('seed')))}", *lines, "",
                          *(f"{c['claim']}  {'ok' if c['ok'] else 'OFF'}" for c in self.claims())])

    __str__ = table

    def claims(self) -> list[dict[str, Any]]:
        """What the map shows of the unscaled layer and of the scaled one, as far as it has their runs: `claim` in words,
        and `ok`, whether it holds in all seeds."""
        found = []
        for optimizer in self.axis("optimizer"):
            cells = {(c.scale, c.d_k): c for c in self.cells() if c.optimizer == optimizer}
            name, lengths = NAMES[optimizer], self.axis("d_k")
            scaled, raw = ([cells[scale, d] for d in lengths if (scale, d) in cells] for scale in ("sqrt", "none"))
            if scaled:
                found.append((f"{name}, scaled by 1/√d_k: each seed learns at every d_k",
                              all(c.learns for c in scaled)))
            short, long = [c for c in raw if c.d_k <= 4], [c for c in raw if c.d_k >= 64]
            if short:
                found.append((f"{name}, unscaled, d_k up to 4: each seed learns", all(c.learns for c in short)))
            if long:
                best = max(self.select(scale="none", optimizer=optimizer), key=lambda r: (r.d_k >= 64) * r.accuracy[-1])
                found.append((f"{name}, unscaled, d_k from 64 on: no seed learns with any rate; the best has "
                              f"{best.accuracy[-1]:.0%} right", best.accuracy[-1] < LEARNED))
                found.append((f"{name}, unscaled, d_k = {long[-1].d_k}: {long[-1].stuck[0]:.0%} of the queries are stuck at "
                              "the start, scaled none", long[-1].stuck[0] > 0.2 and all(c.stuck[0] == 0 for c in scaled)))
        return [{"claim": claim, "ok": bool(ok)} for claim, ok in found]

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {"task": asdict(self.task), "claims": self.claims(), "cells": [asdict(c) for c in self.cells()],
                "runs": [asdict(run) for run in self.runs]}

    def plot(self) -> Any:
        """Share of right answers at the end against the learning rate, a panel for each optimiser and d_k, as a matplotlib
        Figure (extra `[plot]`). Lines are medians over the seeds, bands reach from the worst to the best of them."""
        optimizers, lengths = self.axis("optimizer"), self.axis("d_k")
        picture, axes = figure(len(optimizers), len(lengths), size=(2.9 * len(lengths) + 0.6, 2.7 * len(optimizers) + 0.4))
        for panels, optimizer in zip(np.reshape(axes, (len(optimizers), len(lengths))), optimizers):
            for ax, d_k in zip(panels, lengths):
                self.draw_panel(ax, optimizer, d_k)
        return picture

    def draw_panel(self, ax: Any, optimizer: str, d_k: int, lang: str = "en") -> None:
        """One panel of `plot` on given axes."""
        rates = sorted({run.lr for run in self.select(optimizer=optimizer)})
        for scale, colour in zip(SCALES, SERIES):
            shares = [[r.accuracy[-1] for r in self.select(optimizer=optimizer, d_k=d_k, scale=scale, lr=rate)]
                      for rate in rates]
            if all(shares):
                ax.fill_between(rates, [min(s) for s in shares], [max(s) for s in shares], color=colour, alpha=0.15, lw=0)
                ax.plot(rates, [median(s) for s in shares], "o-", ms=4, color=colour, label=SYMBOLS[scale])
        ax.axhline(1 / self.task.keys, color=INK, lw=1, ls=":")
        labels = {"en": ("learning rate", "share of right answers"), "pt": ("taxa de aprendizado", "fração de acertos")}[lang]
        ax.set(title=f"{NAMES[optimizer]}, d_k = {d_k}", xlabel=labels[0], ylabel=labels[1], xscale="log", ylim=(-0.02, 1.04))
        for text in ax.legend(loc="best", fontsize=8, frameon=False).get_texts():
            text.set_color(INK)

    def plot_loss(self, d_k: int, optimizer: str = "sgd") -> Any:
        """Loss on the test contexts against steps, each scale at its best rate, a thin line for each seed, as a matplotlib
        Figure (extra `[plot]`)."""
        picture, ax = figure(1, 1, size=(6.4, 4.2))
        for scale, colour in zip(SCALES, SERIES):
            if scale in self.axis("scale"):
                best = self.cell(optimizer, d_k, scale).best
                for k, run in enumerate(self.select(optimizer=optimizer, d_k=d_k, scale=scale, lr=best)):
                    ax.plot(run.steps, run.loss, color=colour, lw=1.2, alpha=0.8,
                            label=None if k else f"{SYMBOLS[scale]}, rate {best:g}")
        ax.set(xlabel="step", ylabel="loss on the test contexts", yscale="log", title=f"{NAMES[optimizer]}, d_k = {d_k}")
        for text in ax.legend(loc="best", fontsize=9, frameon=False).get_texts():
            text.set_color(INK)
        return picture


def _spread(shares: Sequence[float]) -> str:
    low, middle, high = f"{min(shares):.0%}", f"{median(shares):.0%}", f"{max(shares):.0%}"
    return middle if low == high else f"{middle} ({low} to {high})"


def training_map(d_k: Sequence[int] = (4, 16, 64, 256, 1024), *, scales: Sequence[str] = ("none", "sqrt", "linear"),
                 optimizers: Sequence[str] = ("sgd", "adam"), rates: dict[str, Sequence[float]] | None = None,
                 seeds: Sequence[int] = (0, 1, 2, 3, 4), steps: int = 400, task: Task = Task(),
                 progress: Callable[[int, int], None] | None = None) -> Map:
    """Train with every combination, and return the `Map`. `rates` has, by optimiser, the learning rates, decades from 0.1
    to 1000 for SGD and from 0.001 to 1 for Adam if not given. `progress(done, total)` is called after each run.

    >>> from tinygrad_attn import saturation
    >>> found = saturation.training_map([16], scales=["sqrt"], optimizers=["sgd"], rates={"sgd": [10, 100]}, seeds=[0])
    >>> found.cell("sgd", 16, "sqrt").learns
    True
    """
    rates = {**RATES, **(rates or {})}
    grid = [(scale, d, lr, seed, optimizer) for optimizer in optimizers for d in d_k for scale in scales
            for lr in rates.get(optimizer, (1.0,)) for seed in seeds]
    if not grid:
        raise ValueError("training_map: there is nothing to train; give at least one of each of d_k, scales, optimizers, "
                         "rates and seeds")
    runs = []
    for scale, d, lr, seed, optimizer in grid:
        runs.append(train(scale, d, lr, steps, seed, optimizer, task=task))
        if progress:
            progress(len(runs), len(grid))
    return Map(tuple(runs), task)
