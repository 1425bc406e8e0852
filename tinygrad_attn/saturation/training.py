"""What the missing scale does to training, told as it was measured.

The task is the one that attention is for: look something up by content. A context holds some of the tokens, each with
a value of its own, drawn afresh; the query is one of these tokens, and the answer its value. The layer has a query
vector and a key vector for each token, the rows of W_q and W_k, standard normal at the start, so that scores have
standard deviation √d_k times the scale. To answer, it must learn to make the score of a token with itself the
largest. The loss is the mean squared error of the answer.

With 16 tokens that all stand in every context, 400 steps, five seeds, and rates in decades, `training_map` finds:
at d_k = 4 the unscaled layer learns like the scaled one, at 16 worse or more slowly, and from 64 on not at all in
these steps, with no rate, neither by SGD nor by Adam. A right key whose weight is e⁻³⁰ gets no gradient; it rises
when all its rivals happen to score low, which comes the more rarely, the more of them are always there, and the wider
scores are spread. The `CONTROLS` tell what it takes:

- *few rivals*: with 4 of the 16 tokens in a context the unscaled layer learns, worse.
- *cross-entropy*, −ln of the weight of the right key, has the gradient p − 1 at its score, which cannot vanish: the
  logarithm undoes what the softmax does. The unscaled layer learns at once. So it is not large scores as such that
  stop it, but the softmax's Jacobian between them and the loss.
- *tied start*: if W_k starts as a copy of W_q, and a query must find another token than its own, it is locked on
  its own with a score near d_k times the scale. Unscaled, at d_k = 1024, the gradient is exactly 0 in double
  precision: a true stall. Here 1/√d_k is not enough either, and 1/d_k is: what fits depends on how queries and keys
  are correlated.

What was not tried: other starts than the standard normal, float32, weight decay, clipping, layer norm, several heads,
a layer below or above. """

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ..engine import grad
from ..languages import language
from ..ops import log_softmax, softmax
from ..optim import SGD, Adam
from ..plots import INK, figure
from ..tensor import Tensor
from .measure import finite, names, numbers, whole
from .panels import COLOURS, SYMBOLS
from .theory import SCALES
from .words import say

RATES = {"sgd": (0.1, 1.0, 10.0, 100.0, 1000.0), "adam": (0.001, 0.01, 0.1, 1.0)}
DEAD = 1e-6                                 # below it, a step of length 1 in the scores hardly moves a query's loss
LEARNED = 0.95
LOSSES = ("squared", "cross-entropy")


@dataclass(frozen=True)
class Task:
    """How many tokens there are, how many of them stand in a context, how wide their values are; how many contexts
    there are in a step of training and in the test; the loss, "squared" or "cross-entropy"; and whether W_k starts as a
    copy of W_q (`tied`), in which case a query asks for the token before it in the vocabulary instead of itself."""

    tokens: int = 16
    keys: int = 16
    width: int = 8
    batch: int = 64
    test: int = 512
    loss: str = "squared"
    tied: bool = False

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n contexts: their tokens (n, keys), the place of the one asked for (n,), the values (n, keys, width)."""
        keys = rng.permuted(np.tile(np.arange(self.tokens), (n, 1)), axis=1)[:, :self.keys]
        return keys, rng.integers(self.keys, size=n), rng.standard_normal((n, self.keys, self.width))

    def start(self, rng: np.random.Generator, d_k: int) -> list[Tensor]:
        w_q, w_k = rng.standard_normal((2, self.tokens, d_k))
        return [Tensor(w_q, requires_grad=True, name="W_q"),
                Tensor(w_q if self.tied else w_k, requires_grad=True, name="W_k")]

    def lookup(self, weights: list[Tensor], scale: float, keys: np.ndarray, right: np.ndarray,
               values: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, scores and attention weights, as of `attention(w_q[asking], w_k[keys], values, scale=scale)`; but the
        scores of all pairs of tokens are computed once and then looked up, which saves most of the work."""
        (w_q, w_k), rows = weights, np.arange(len(keys))
        pairs = (w_q * scale) @ w_k.mT                                                  # (tokens, tokens)
        asking = (keys[rows, right] + self.tied) % self.tokens
        scores = pairs[asking[:, None], keys]                                           # (n, keys)
        p = softmax(scores)
        if self.loss == "cross-entropy":
            return -log_softmax(scores)[rows, right].mean(), scores, p
        error = (p[:, None, :] @ values)[:, 0] - values[rows, right]                    # (n, width)
        return (error * error).mean(), scores, p


CONTROLS = {"few rivals": Task(keys=4), "cross-entropy": Task(loss="cross-entropy"),
            "tied start": Task(tied=True)}


@dataclass(frozen=True)
class Run:
    """One training. At each step in `steps`, on the test contexts: the loss; the share of queries whose largest weight
    is on the right key; the share that is *stuck*, on a wrong key and with a dead gradient, the norm of that of its own
    loss at its scores being below a millionth; and the norm of ∂L/∂W_q. A run that overflowed ends where it did."""

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


OPTIMIZERS: dict[str, type[SGD | Adam]] = {"sgd": SGD, "adam": Adam}
NAMES = {"sgd": "SGD", "adam": "Adam"}


def train(scale: str = "sqrt", d_k: int = 256, lr: float = 10.0, steps: int = 400, seed: int = 0,
          optimizer: str = "sgd", *, task: Task = Task(), every: int = 20) -> Run:
    """Train one attention layer on the look-up, and look at it every so many steps.

    `scale` is "none", "sqrt" or "linear", `optimizer` "sgd" or "adam". For one seed and d_k the start, the contexts and
    the test are the same for all of them, and for all rates. The result, a `Run`, has `.steps`, and at each of them
    `.loss`, `.accuracy`, `.stuck` and `.gradient`. Why: to see what a vanished gradient does, and what it does not. An
    unknown name, or a number out of range, is a ValueError.

    >>> from tinygrad_attn import saturation
    >>> run = saturation.train("sqrt", d_k=64, lr=100.0, steps=100)
    >>> run.accuracy[0] < 0.2, run.accuracy[-1] > 0.9
    (True, True)
    """
    (scale,), (optimizer,) = names("train", "scale", scale, SCALES), names("train", "optimizer", optimizer, OPTIMIZERS)
    names("train", "loss", task.loss, LOSSES)
    d_k, steps, every = (whole("train", name, x, 1) for name, x in (("d_k", d_k), ("steps", steps), ("every", every)))
    seed = whole("train", "seed", seed, 0)
    for name, least in (("tokens", 2), ("keys", 2), ("width", 1), ("batch", 1), ("test", 1)):
        whole("train", f"task.{name}", getattr(task, name), least)
    if not isinstance(lr, (int, float, np.number)) or not 0 < lr < math.inf or task.keys > task.tokens:
        raise ValueError(f"train: lr={lr!r}, {task.keys} keys of {task.tokens} tokens; the rate is above 0, and at "
                         "most all tokens are in a context")
    rng = np.random.default_rng([seed, d_k])
    weights, test = task.start(rng, d_k), task.draw(rng, task.test)
    factor, stepper = SCALES[scale](d_k), OPTIMIZERS[optimizer](weights, lr)
    seen: list[tuple[float, ...]] = []
    with np.errstate(over="ignore", invalid="ignore",
                     divide="ignore"):     # a rate may be far too large: the map shows it
        for step in range(steps + 1):
            if step % every == 0 or step == steps:
                seen.append((step, *_look(task, weights, factor, test)))
                if step == steps or not math.isfinite(seen[-1][1]):
                    break
            loss, _, _ = task.lookup(weights, factor, *task.draw(rng, task.batch))
            stepper.zero_grad()
            loss.backward()
            stepper.step()
    step_at, losses, accuracy, stuck, gradient = zip(*seen)
    return Run(scale, d_k, lr, optimizer, seed, step_at, losses, accuracy, stuck, gradient)


def _look(task: Task, weights: list[Tensor], factor: float, test: tuple[np.ndarray, np.ndarray, np.ndarray]
          ) -> tuple[float, float, float, float]:
    """Loss, accuracy, the share of queries that are stuck, and ‖∂L/∂W_q‖."""
    loss, scores, p = task.lookup(weights, factor, *test)
    at_scores, at_w_q = (g.numpy() for g in grad(loss, [scores, weights[0]]))
    own = len(at_scores) * np.sqrt((at_scores ** 2).sum(axis=-1))       # of the loss of each query, not of their mean
    right = (p.argmax(axis=-1) == test[1]) & np.isfinite(p.numpy()).all(axis=-1)
    return loss.item(), float(right.mean()), float((~right & (own < DEAD)).mean()), float(np.sqrt((at_w_q ** 2).sum()))


@dataclass(frozen=True)
class Cell:
    """One scale at one d_k with one optimiser, over all rates and seeds. `best` is the rate whose worst seed is best at
    the end (of equals, the best median, then the lowest median loss), and `accuracy` and `loss` have what each seed
    came to with it; `steps` is the median number to 95 %, None if most seeds never came there; `rates` those with
    which every seed did; `stuck` the median shares at the start and, with the best rate, at the end."""

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

        def merit(rate: float) -> tuple[float, ...]:
            shares, losses = zip(*((run.accuracy[-1], run.loss[-1]) for run in by_rate[rate]))
            return min(shares), median(shares), -median(x if math.isfinite(x) else math.inf for x in losses)
        best = max(by_rate, key=merit)
        runs = by_rate[best]
        steps = median(math.inf if r.steps_to_learn is None else r.steps_to_learn for r in runs)
        return Cell(optimizer, d_k, scale, best, tuple(r.accuracy[-1] for r in runs), tuple(r.loss[-1] for r in runs),
                    steps if math.isfinite(steps) else None,
                    tuple(rate for rate, rs in by_rate.items() if all(r.accuracy[-1] >= LEARNED for r in rs)),
                    (median(r.stuck[0] for r in runs), median(r.stuck[-1] for r in runs)))

    def cells(self) -> list[Cell]:
        """Those that have runs, by optimiser, then by d_k, then by scale."""
        there = {(run.optimizer, run.d_k, run.scale) for run in self.runs}
        return [self.cell(optimizer, d_k, scale) for optimizer in self.axis("optimizer") for d_k in self.axis("d_k")
                for scale in self.axis("scale") if (optimizer, d_k, scale) in there]

    def cells_as_text(self, lang: str = "en") -> list[tuple[str, ...]]:
        """A line for each optimiser, d_k and scale, under the columns of `table`."""
        def shares(found: Sequence[float]) -> str:
            low, middle, high = f"{min(found):.0%}", f"{median(found):.0%}", f"{max(found):.0%}"
            return middle if low == high else f"{middle} ({say('to', lang, low=low, high=high)})"
        return [(NAMES[c.optimizer], str(c.d_k), SYMBOLS[c.scale], f"{c.best:g}", shares(c.accuracy),
                 "-" if c.steps is None else f"{c.steps:g}", ", ".join(f"{r:g}" for r in c.rates) or say("none", lang),
                 f"{c.stuck[0]:.0%}", f"{c.stuck[1]:.0%}") for c in self.cells()]

    def table(self) -> str:
        """A line for each optimiser, d_k and scale, at its best rate: median over the seeds, and the range."""
        head, rows = say("map columns"), self.cells_as_text()
        widths = [max(map(len, column)) for column in zip(head, *rows)]
        lines = ["  ".join(cell.rjust(n) if k != 2 else cell.ljust(n) for k, (cell, n) in enumerate(zip(row, widths)))
                 for row in (head, *rows)]
        return "\n".join([self.title(), *lines])

    __str__ = table

    def title(self) -> str:
        steps, seeds = max(run.steps[-1] for run in self.runs), ", ".join(map(str, self.axis("seed")))
        return (f"{self.task.keys} of {self.task.tokens} tokens in a context, {self.task.loss} loss"
                f"{', tied start' if self.task.tied else ''}, {steps} steps, seeds {seeds}")

    def claims(self, lang: str = "en") -> list[dict[str, Any]]:
        """What the map shows, as far as it has the runs for it: `claim` in words, and `ok`, whether it holds in all
        seeds. There are claims for the task itself, and for each of the `CONTROLS`. That something does not learn is
        said only of 200 steps and three rates or more."""
        found: list[tuple[str, bool]] = []
        for optimizer in self.axis("optimizer"):
            cells = {scale: [c for c in self.cells() if c.optimizer == optimizer and c.scale == scale]
                     for scale in SCALES}
            runs = self.select(optimizer=optimizer)
            steps, rates = max(run.steps[-1] for run in runs), len({run.lr for run in runs})
            tell = partial(say, lang=lang, name=NAMES[optimizer])
            patient = steps >= 200 and rates >= 3
            if self.task.tied:
                found += self._tied(partial(tell, steps=steps), cells, patient)
            elif self.task.loss == "cross-entropy":
                found += [(tell("unscaled learns"), all(c.learns for c in cells["none"]))] if cells["none"] else []
            elif self.task.keys < self.task.tokens:
                found += self._few_rivals(tell, cells)
            else:
                found += self._all_rivals(tell, cells, steps, rates if patient else 0)
        return [{"claim": claim, "ok": bool(ok)} for claim, ok in found]

    def _all_rivals(self, tell: Callable[..., str], cells: dict[str, list[Cell]], steps: int,
                    rates: int) -> Iterator[tuple[str, bool]]:
        short, long = ([c for c in cells["none"] if c.d_k <= 4], [c for c in cells["none"] if c.d_k >= 64])
        if cells["sqrt"]:
            yield tell("scaled learns"), all(c.learns for c in cells["sqrt"])
        if short:
            yield tell("short learns"), all(c.learns for c in short)
        if long and rates:
            best = max(run.accuracy[-1] for c in long
                       for run in self.select(scale="none", optimizer=c.optimizer, d_k=c.d_k))
            yield tell("long fails", best=best, steps=steps, rates=rates), best < LEARNED
        if long and cells["sqrt"] and long[-1].d_k >= 1024:
            yield (tell("stuck", d_k=long[-1].d_k, stuck=long[-1].stuck[0]),
                   long[-1].stuck[0] > 0.2 and all(c.stuck[0] == 0 for c in cells["sqrt"]))

    def _few_rivals(self, tell: Callable[..., str], cells: dict[str, list[Cell]]) -> Iterator[tuple[str, bool]]:
        scaled = {c.d_k: c for c in cells["sqrt"]}
        for bad, good in ((c, scaled[c.d_k]) for c in cells["none"] if c.d_k in scaled):
            yield (tell("learns worse", d_k=bad.d_k, bad=median(bad.accuracy), bad_loss=median(bad.loss),
                        good=median(good.accuracy), good_loss=median(good.loss)),
                   median(bad.accuracy) > 0.6 and min(bad.loss) > 5 * max(good.loss))

    def _tied(self, tell: Callable[..., str], cells: dict[str, list[Cell]],
              patient: bool) -> Iterator[tuple[str, bool]]:
        unlearned = 2 / self.task.keys
        for c in (c for c in cells["none"] if c.d_k >= 1024 and patient):
            first = [run.gradient[0] for run in self.select(scale="none", d_k=c.d_k, optimizer=c.optimizer)]
            yield tell("true stall", d_k=c.d_k), not any(first) and max(c.accuracy) <= unlearned
        for c in (c for c in cells["sqrt"] if c.d_k >= 1024 and patient):
            yield tell("stalls too", d_k=c.d_k), max(c.accuracy) <= unlearned
        for c in (c for c in cells["linear"] if c.d_k >= 1024):
            yield tell("flat learns", d_k=c.d_k), c.learns

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON: a loss that overflowed is None."""
        return finite({"task": asdict(self.task), "claims": self.claims(), "cells": [asdict(c) for c in self.cells()],
                       "runs": [asdict(run) for run in self.runs]})

    def plot(self) -> Any:
        """Share of right answers at the end against the learning rate, a panel for each optimiser and d_k, as a
        matplotlib Figure (extra `[plot]`). Lines are medians over the seeds, bands reach from the worst to the best of
        them, and the dotted line is chance."""
        optimizers, lengths = self.axis("optimizer"), self.axis("d_k")
        size = (2.9 * len(lengths) + 0.6, 2.7 * len(optimizers) + 0.6)
        picture, axes = figure(len(optimizers), len(lengths), size=size)
        axes = np.reshape(axes, (len(optimizers), len(lengths)))
        for panels, optimizer in zip(axes, optimizers):
            for ax, d_k in zip(panels, lengths):
                self.draw_panel(ax, optimizer, d_k, language())
                if ax is not panels[0]:
                    ax.set_ylabel("")
        for text in picture.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3,
                                   fontsize=9, frameon=False).get_texts():
            text.set_color(INK)
        return picture

    def draw_panel(self, ax: Any, optimizer: str, d_k: int, lang: str = "en") -> None:
        """One panel of `plot` on given axes, without a legend."""
        rates = sorted({run.lr for run in self.select(optimizer=optimizer)})
        for scale, colour in COLOURS.items():
            shares = [[r.accuracy[-1] for r in self.select(optimizer=optimizer, d_k=d_k, scale=scale, lr=rate)]
                      for rate in rates]
            if all(shares):
                ax.fill_between(rates, [min(s) for s in shares], [max(s) for s in shares], color=colour, alpha=0.15,
                                lw=0)
                ax.plot(rates, [median(s) for s in shares], "o-", ms=4, color=colour, label=SYMBOLS[scale])
        ax.axhline(1 / self.task.keys, color=INK, lw=1, ls=":")
        x, y = say("map axes", lang)
        ax.set(title=f"{NAMES[optimizer]}, d_k = {d_k}", xlabel=x, ylabel=y, xscale="log", ylim=(-0.02, 1.04))
        ax.minorticks_off()

    def plot_loss(self, d_k: int, optimizer: str = "sgd") -> Any:
        """Loss on the test contexts against steps, each scale at its best rate, a thin line for each seed, as a
        matplotlib Figure (extra `[plot]`)."""
        picture, ax = figure(1, 1, size=(6.4, 4.2))
        self.draw_loss(ax, optimizer, d_k, language())
        for text in ax.legend(loc="best", fontsize=9, frameon=False).get_texts():
            text.set_color(INK)
        return picture

    def draw_loss(self, ax: Any, optimizer: str, d_k: int, lang: str = "en") -> None:
        """The same on given axes, without a legend."""
        for scale, colour in COLOURS.items():
            runs = self.select(optimizer=optimizer, d_k=d_k, scale=scale)
            best = self.cell(optimizer, d_k, scale).best if runs else None
            for k, run in enumerate(run for run in runs if run.lr == best):
                ax.plot(run.steps, run.loss, color=colour, lw=1.2, alpha=0.8,
                        label=None if k else f"{SYMBOLS[scale]}, rate {best:g}")
        x, y = say("loss axes", lang)
        ax.set(xlabel=x, ylabel=y, yscale="log", title=f"{NAMES[optimizer]}, d_k = {d_k}")


def controls(d_k: int = 1024, *, seeds: Sequence[int] = (0, 1, 2, 3, 4), steps: int = 400,
             progress: Callable[[int, int], None] | None = None) -> dict[str, Map]:
    """The map of each of the `CONTROLS` at one d_k, by SGD: which one thing turns the stall into something else."""
    found, size = {}, len(SCALES) * len(RATES["sgd"]) * len(seeds)
    for k, (name, task) in enumerate(CONTROLS.items()):
        def tell(done: int, total: int, before: int = k * size) -> None:
            if progress:
                progress(before + done, size * len(CONTROLS))
        found[name] = training_map([d_k], optimizers=["sgd"], seeds=seeds, steps=steps, task=task, progress=tell)
    return found


def training_map(d_k: Sequence[int] = (4, 16, 64, 256, 1024), *, scales: Sequence[str] = ("none", "sqrt", "linear"),
                 optimizers: Sequence[str] = ("sgd", "adam"), rates: dict[str, Sequence[float]] | None = None,
                 seeds: Sequence[int] = (0, 1, 2, 3, 4), steps: int = 400, task: Task = Task(),
                 progress: Callable[[int, int], None] | None = None) -> Map:
    """Train with every combination, and return the `Map`. `rates` has, by optimiser, the learning rates, decades from
    0.1 to 1000 for SGD and from 0.001 to 1 for Adam if not given. `progress(done, total)` is called after each run.

    >>> from tinygrad_attn import saturation
    >>> found = saturation.training_map([16], scales=["sqrt"], optimizers=["sgd"], rates={"sgd": [10, 100]}, seeds=[0])
    >>> found.cell("sgd", 16, "sqrt").learns
    True
    """
    scales, optimizers = (names("training_map", name, given, known) for name, given, known in (
        ("scale", scales, SCALES), ("optimizer", optimizers, OPTIMIZERS)))
    names("training_map", "optimizer in rates", list(rates or RATES), OPTIMIZERS)
    rates = {**RATES, **(rates or {})}
    grid = [(scale, d, lr, seed, optimizer) for optimizer in optimizers for d in dict.fromkeys(numbers(d_k))
            for scale in scales for lr in dict.fromkeys(rates[optimizer]) for seed in dict.fromkeys(numbers(seeds))]
    if not grid:
        raise ValueError("training_map: there is nothing to train; give at least one of each of d_k, rates and seeds")
    runs = []
    for scale, d, lr, seed, optimizer in grid:
        runs.append(train(scale, d, lr, steps, seed, optimizer, task=task))
        if progress:
            progress(len(runs), len(grid))
    return Map(tuple(runs), task)
