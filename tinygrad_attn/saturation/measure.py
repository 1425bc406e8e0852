"""The thesis, measured: unscaled scores saturate the softmax, and its gradient vanishes.

`sweep` draws queries, keys and values, standard normal, and runs the framework's own attention forward and backward.
The loss is the attention's output itself, with values of width 1: it is linear in the weights, so whatever vanishes
on the way back vanishes in the softmax. How much that lets through is also measured without any loss, as the Frobenius
norm of its Jacobian diag(p) − p pᵀ, one vjp for each row.

Beside each number stands what theory says (`theory.py`), and a witness that knows no graph: differences.

**Why the witness takes a complex step.** At d_k = 4096 the median norm is near 1e-8, and of single draws 1e-70. A
central difference subtracts two weights that agree in all their digits, and sees nothing below 1e-16 / 1e-5 = 1e-11.
The complex step carries the change in the imaginary part, where it is a number of its own, with all its digits,
however small (`differences.py`). It even sees further than the vjp, which computes p (1 − p) for the largest weight:
1 − p is rounded when the others are near 1e-16, and to 0 when they are below. So the two agree to one rounding of 1,
about 1e-16, always; relative to the norm they agree as long as it is well above that. (Only what concerns the largest
weight is rounded so: the other elements are exact, however small.) The sweep reports both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from ..attention import attention
from ..differences import COMPLEX_STEP
from ..engine import grad
from ..languages import language
from ..ops import softmax
from ..plots import figure
from ..tensor import Tensor
from . import theory
from .claims import SURE, claims
from .panels import PANELS, SYMBOLS, draw_panel
from .theory import SCALES
from .words import say

D_K = (1, 4, 16, 64, 256, 1024, 4096)
CHUNK = 1 << 18                             # numbers in the keys of the draws computed at a time: what a cache holds
RESOLVED = 1e-9                             # norms from which vjp and complex step are compared as shares of the norm


@dataclass(frozen=True)
class Stat:
    """One quantity over all draws. `low` and `high` hold 90 % of the draws between them. The bands hold the true
    median and mean with 99.9 % confidence: by the order of the draws, which assumes nothing, and by the normal
    approximation."""

    median: float
    mean: float
    low: float
    high: float
    median_band: tuple[float, float]
    mean_band: tuple[float, float]

    @classmethod
    def of(cls, draws: np.ndarray) -> Stat:
        ordered, n = np.sort(draws), len(draws)
        reach = SURE * math.sqrt(n) / 2     # so many places around the middle
        first, last = math.floor(n / 2 - reach), math.ceil(n / 2 + reach)
        mean, error = float(draws.mean()), float(draws.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
        low, high = (float(q) for q in np.quantile(draws, [0.05, 0.95]))
        return cls(float(np.median(draws)), mean, low, high,
                   (float(ordered[first]) if first >= 0 else -math.inf, float(ordered[last]) if last < n else math.inf),
                   (mean - SURE * error, mean + SURE * error))


@dataclass(frozen=True)
class Witness:
    """Differences against vjps, at the draws whose norms are the quartiles and the extremes. `absolute`: the largest
    difference between an element of the Jacobian by vjp and by complex step; `relative`: the same of the whole
    Jacobian, as a share of its norm, where that is above 1e-9 (None if nowhere); `query`: of ∂L/∂Q along a drawn
    direction, as a share of what would arrive if the softmax let everything through; `central`: between vjp and central
    difference, in any element. `smallest`: the least norm, by complex step and by vjp."""

    draws: int
    absolute: float
    relative: float | None
    query: float
    central: float
    smallest: tuple[float, float]


@dataclass(frozen=True)
class Row:
    """What was measured at one d_k with one scale. `spread` is the standard deviation of all scores of all draws;
    `near_tie_share` the part of the mean norm due to the tenth of draws whose two largest scores are nearest."""

    d_k: int
    scale: str
    spread: float
    score_std: Stat
    entropy: Stat
    largest_weight: Stat
    jacobian: Stat
    grad_scores: Stat
    grad_query: Stat
    grad_key: Stat
    near_tie_share: float
    witness: Witness


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, by d_k and then by scale; `sweep[1024, "none"]` is one of them."""

    rows: tuple[Row, ...]
    n_keys: int
    draws: int
    seed: int

    @property
    def d_k(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(row.d_k for row in self.rows))

    @property
    def scales(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.scale for row in self.rows))

    def __getitem__(self, at: tuple[int, str]) -> Row:
        for row in self.rows:
            if (row.d_k, row.scale) == at:
                return row
        raise KeyError(f"{at}: the sweep has d_k in {self.d_k} and scales {self.scales}")

    def scale(self, row: Row) -> float:
        """By what the scores of a row are multiplied."""
        return SCALES[row.scale](row.d_k)

    @property
    def witness(self) -> float:
        """The largest disagreement of all rows between an element of a Jacobian by vjp and by complex step."""
        return max(row.witness.absolute for row in self.rows)

    def theory(self, d_k: int, scale: str, reach: float = theory.SATURATED) -> dict[str, dict[str, float]]:
        """What theory says at one point: `spread`, and `mean` and `median` by quantity, where the spread is in reach of
        a limit, for large scores or for small ones."""
        s = SCALES[scale](d_k)
        spread = theory.score_std(d_k, s)
        found: dict[str, dict[str, float]] = {"spread": {"all": spread}, "mean": {}, "median": {}}
        if spread >= reach:
            found["mean"] = theory.saturated_means(d_k, s, self.n_keys)
            found["median"] = theory.saturated_medians(d_k, s, self.n_keys)
        elif spread <= 1 / reach:
            found["mean"] = found["median"] = theory.flat(self.n_keys)
        return found

    def table(self) -> str:
        """A block for each scale, 80 columns wide: what was measured, and below it, where theory has a limit near, what
        that is. (Means and medians of all quantities are in `to_dict()`.)"""
        names = (("spread", "", 8, ".2f"), ("entropy", "mean", 8, ".3f"), ("largest_weight", "mean", 8, ".3f"),
                 ("jacobian", "median", 9, ".1e"), ("jacobian", "mean", 8, ".4f"), ("grad_scores", "median", 9, ".1e"),
                 ("grad_query", "median", 9, ".1e"), ("grad_query", "mean", 7, ".2g"), ("grad_key", "median", 8, ".1e"))
        lines = [f"{self.n_keys} keys, {self.draws} draws, seed {self.seed}. L: the output. J: the softmax's Jacobian.",
                 "Of J and of gradients: the norm. Rows of theory: the limit, where one is near."]
        for scale in self.scales:
            lines += ["", SYMBOLS[scale],
                      "   d_k  spread entropy largest        J       J    ∂L/∂s    ∂L/∂Q  ∂L/∂Q   ∂L/∂K",
                      "                  mean  weight   median    mean   median   median   mean  median"]
            for row in (row for row in self.rows if row.scale == scale):
                said, measured, limit = self.theory(row.d_k, scale), f"{row.d_k:6}", "theory"
                for name, kind, width, spec in names:
                    x = getattr(getattr(row, name), kind) if kind else row.spread
                    y = said[kind].get(name) if kind else said["spread"]["all"]
                    measured += f"{x:{width}{spec}}"
                    limit += " " * width if y is None else f"{y:{width}{spec}}"
                lines += [measured, limit.rstrip()]
        return "\n".join([*lines, "", self.testimony()])

    __str__ = table

    def testimony(self, lang: str = "en") -> str:
        """What the witness says, in words."""
        w = [row.witness for row in self.rows]
        stepped, walked = min(x.smallest for x in w)
        said = say("testimony", lang, points=sum(x.draws for x in w), absolute=self.witness, resolved=RESOLVED,
                   relative=max((x.relative for x in w if x.relative is not None), default=math.nan),
                   central=max(x.central for x in w))
        return said + ("\n" + say("smallest", lang, stepped=stepped, walked=walked) if stepped < RESOLVED else "")

    def claims(self, lang: str = "en") -> list[dict[str, Any]]:
        """Where measurement, theory and witness must agree, and whether they do: `claim` in words, and `ok`. A NaN
        agrees with nothing. The bands are those of 99.9 % confidence, with what the limits leave out added to them; a
        claim for which there are too few draws is not made."""
        return claims(self, lang)

    def to_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON, which has no infinity: a bound that is none is None."""
        rows = [{**asdict(row), "theory": self.theory(row.d_k, row.scale)} for row in self.rows]
        return finite({"n_keys": self.n_keys, "draws": self.draws, "seed": self.seed, "witness": self.witness,
                       "claims": self.claims(), "rows": rows})

    def plot(self) -> Any:
        """Four panels over d_k as a matplotlib Figure (extra `[plot]`): the spread of the scores, the largest weight,
        the norm of the Jacobian, and the gradient that reaches Q. Lines are medians over draws (the spread is that of
        all scores), dotted lines means, bands hold 90 % of the draws, and dashed lines are the limits of theory."""
        picture, axes = figure(2, 2, size=(10.5, 7.6))
        for ax, name in zip(axes.flat, PANELS):
            draw_panel(self, ax, name, language())
        return picture


def finite(part: Any) -> Any:
    """The same, with None for every number that is not finite."""
    if isinstance(part, dict):
        return {key: finite(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [finite(value) for value in part]
    return None if isinstance(part, float) and not math.isfinite(part) else part


def whole(caller: str, name: str, number: Any, least: int) -> int:
    """`number` as an int, or a ValueError that names it."""
    try:
        found = int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or found < least or isinstance(number, (str, bool)):
        raise ValueError(f"{caller}: {name}={number!r} must be a whole number, at least {least}")
    return found


def names(caller: str, name: str, given: str | Sequence[str], known: Iterable[str]) -> list[str]:
    """One name or several, each once, or a ValueError that tells which there are."""
    found = list(dict.fromkeys([given] if isinstance(given, str) else given))
    unknown = [one for one in found if one not in known]
    if unknown or not found:
        raise ValueError(f"{caller}: unknown {name} {(unknown or [''])[0]!r}; it is one of {', '.join(known)}")
    return found


def numbers(given: Any) -> list[Any]:
    """One number or several."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def sweep(d_k: Sequence[int] = D_K, *, scales: Sequence[str] = ("none", "sqrt", "linear"), n_keys: int = 64,
          draws: int = 500, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Sweep:
    """Measure attention over random queries, keys and values at each d_k, with each scale, from the same draws.

    A draw is a query (1, d_k), keys (n_keys, d_k) and values (n_keys, 1), standard normal. L is the output. The scales
    "none", "sqrt" and "linear" are 1, 1/√d_k and 1/d_k. Why: to see what they do to scores, weights and gradients,
    beside what theory says. The result, a `Sweep`, has a `Row` at `[d_k, scale]` with a `Stat` for each of the
    `QUANTITIES`, and `.table()`, `.plot()`, `.claims()`, `.to_dict()`.
    `progress(done, total)` is called as the work goes on. A d_k below 1, no draws, fewer than two keys, a negative
    seed, or an unknown scale is a ValueError.

    >>> from tinygrad_attn import saturation
    >>> found = saturation.sweep([1024], draws=100)
    >>> found[1024, "none"].jacobian.median < found[1024, "sqrt"].jacobian.median / 100
    True
    >>> found.witness < 1e-14
    True
    """
    d_k = [whole("sweep", "d_k", d, 1) for d in dict.fromkeys(numbers(d_k))]
    if not d_k:
        raise ValueError("sweep: d_k is empty; give one at least")
    draws, n_keys, seed = (whole("sweep", name, x, least) for name, x, least in (
        ("draws", draws, 1), ("n_keys", n_keys, 2), ("seed", seed, 0)))
    scales = names("sweep", "scale", scales, SCALES)
    steps = {d: max(1, CHUNK // (n_keys * d)) for d in d_k}
    chunks = [(d, start, min(steps[d], draws - start)) for d in steps for start in range(0, draws, steps[d])]
    arrays = _ahead(partial(drawn, d, n_keys, count, [seed, d, start]) for d, start, count in chunks)
    found: dict[tuple[int, str], list[dict[str, np.ndarray]]] = {(d, scale): [] for d in steps for scale in scales}
    for done, ((d, _, _), (q, k, v)) in enumerate(zip(chunks, arrays), start=1):
        query, key = Tensor(q, requires_grad=True), Tensor(k, requires_grad=True)
        for scale in scales:
            found[d, scale].append(_measured(query, key, v, SCALES[scale](d)))
        if progress:
            progress(done, len(chunks))
    rows = [_row(d, scale, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, n_keys, seed)
            for (d, scale), parts in found.items()]
    return Sweep(tuple(rows), n_keys, draws, seed)


def _ahead(jobs: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """What each job returns, while the next is already at work in another thread: NumPy draws without the GIL."""
    with ThreadPoolExecutor(1) as pool:
        coming = None
        for job in jobs:
            coming, ready = pool.submit(job), coming
            if ready:
                yield ready.result()
        if coming:
            yield coming.result()


def drawn(d: int, n_keys: int, draws: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries (draws, 1, d), keys (draws, n_keys, d), values (draws, n_keys, 1)."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((draws, 1, d)), rng.standard_normal((draws, n_keys, d)),
            rng.standard_normal((draws, n_keys, 1)))


def walked(query: Tensor, key: Tensor, v: np.ndarray, scale: float) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Scores and weights of all draws, and ∂L/∂scores, ∂L/∂Q and ∂L/∂K, from one forward and one backward pass."""
    output, weights = attention(query, key, v, scale=scale)
    assert weights.node is not None         # the scores are what the softmax was given
    scores = weights.node.inputs[0]
    return scores, weights, grad(output.sum(), [scores, query, key])    # in a sum over draws each has its own gradient


def _measured(query: Tensor, key: Tensor, v: np.ndarray, scale: float) -> dict[str, np.ndarray]:
    """One number a draw for each quantity; and the scores."""
    scores, weights, gradients = walked(query, key, v, scale)
    s, p = scores.numpy()[:, 0], weights.numpy()[:, 0]
    at_scores, at_query, at_key = (np.sqrt((g.numpy() ** 2).sum(axis=(1, 2))) for g in gradients)
    return {"scores": s, "score_std": s.std(axis=-1), "entropy": -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1),
            "largest_weight": p.max(axis=-1), "grad_scores": at_scores, "grad_query": at_query, "grad_key": at_key}


def _row(d: int, scale: str, found: dict[str, np.ndarray], n_keys: int, seed: int) -> Row:
    scores = found.pop("scores")
    norms = jacobian_norms(scores)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    nearest = np.argsort(first - second)[:max(1, len(norms) // 10)]
    return Row(d, scale, spread=float(scores.std()), jacobian=Stat.of(norms),
               near_tie_share=float(norms[nearest].sum() / norms.sum()) if norms.any() else math.nan,
               witness=_witness(d, SCALES[scale](d), scores, norms, n_keys, seed),
               **{name: Stat.of(draws) for name, draws in found.items()})


def softmax_jacobians(scores: np.ndarray) -> np.ndarray:
    """(draws, n) -> (draws, n, n): the Jacobian of softmax at each row of scores, one vjp for each of its rows."""
    return np.stack(list(_rows(scores)), axis=1)


def _rows(scores: np.ndarray) -> Iterator[np.ndarray]:
    """Row i of the Jacobian at each row of scores, for each i."""
    x = Tensor(scores, requires_grad=True)
    p = softmax(x)
    for one_hot in np.eye(scores.shape[-1]):
        yield grad(p, x, np.broadcast_to(one_hot, scores.shape)).numpy()


def jacobian_norms(scores: np.ndarray) -> np.ndarray:
    """(draws, n) -> (draws,): the Frobenius norms, without holding all Jacobians."""
    return np.sqrt(sum((row * row).sum(axis=-1) for row in _rows(scores)))


def complex_step_jacobians(scores: np.ndarray, h: float = COMPLEX_STEP) -> np.ndarray:
    """(draws, n) -> (draws, n, n): ∂pᵢ/∂sⱼ = Im pᵢ(s + ih eⱼ) / h, to full relative precision however small."""
    steps = 1j * h * np.eye(scores.shape[-1])[:, None, :]   # (n, 1, n): move one score of every draw
    return (softmax(scores + steps).imag / h).transpose(1, 2, 0)


def central_jacobians(scores: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """The same by central differences: of what is below 1e-16 / h they can only say that it is small."""
    steps = h * np.eye(scores.shape[-1])[:, None, :]
    above, below = scores + steps, scores - steps           # after rounding, not 2h apart
    taken = np.einsum("jdj->jd", above - below)[:, :, None]
    return ((softmax(above) - softmax(below)) / taken).transpose(1, 2, 0)


def _witness(d: int, scale: float, scores: np.ndarray, norms: np.ndarray, n_keys: int, seed: int) -> Witness:
    places = np.unique(np.linspace(0, len(norms) - 1, 5).round().astype(int))
    sampled = scores[np.argsort(norms)[places]]
    by_vjp, by_step, by_difference = (jacobians(sampled) for jacobians in (
        softmax_jacobians, complex_step_jacobians, central_jacobians))
    size, vjp_size = (np.sqrt((j ** 2).sum(axis=(1, 2))) for j in (by_step, by_vjp))
    apart = np.sqrt(((by_vjp - by_step) ** 2).sum(axis=(1, 2)))
    large = size > RESOLVED
    return Witness(len(places), absolute=float(np.abs(by_vjp - by_step).max()),
                   relative=float((apart[large] / size[large]).max()) if large.any() else None,
                   query=_query_witness(d, scale, n_keys, seed), central=float(np.abs(by_vjp - by_difference).max()),
                   smallest=(float(size.min()), float(vjp_size[np.argmin(size)])))


def _query_witness(d: int, scale: float, n_keys: int, seed: int) -> float:
    """∂L/∂Q along a drawn direction, all the way through attention, by walk and by complex step, at a few draws: how
    far they are apart, as a share of what would arrive if the softmax let everything through."""
    draws = max(1, min(5, CHUNK // (n_keys * d)))
    q, k, v = drawn(d, n_keys, draws, [seed, d, 0])
    along = np.random.default_rng([seed, d]).standard_normal(q.shape)
    query = Tensor(q, requires_grad=True)
    walked = (grad(attention(query, k, v, scale=scale)[0].sum(), query).numpy() * along).sum(axis=(1, 2))
    stepped = attention(q + 1j * COMPLEX_STEP * along, k, v, scale=scale)[0].imag.sum(axis=(1, 2)) / COMPLEX_STEP
    all_of_it = scale * np.sqrt(((k @ along.swapaxes(-1, -2)) ** 2).sum(axis=(1, 2)))
    return float((np.abs(walked - stepped) / all_of_it).max())
