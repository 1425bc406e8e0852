"""Where theory, measurement and witness must agree, and whether they do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import theory
from .words import say

SURE = 3.29                                 # standard deviations within which a normal number is in 99.9 % of cases
TIES = 15                                   # expected near ties below which a mean that they carry says nothing
# What is measured of each draw, beside the standard deviation of its scores; for each theory has a limit.
LIMITED = ("jacobian", "entropy", "largest_weight", "grad_scores", "grad_query", "grad_key")
QUANTITIES = ("score_std", *LIMITED)


def claims(sweep: Any, lang: str) -> list[dict[str, Any]]:
    """See `Sweep.claims`."""
    return [{"claim": claim, "ok": bool(ok)} for claim, ok in (
        *_spread(sweep, lang), *_saturated(sweep, lang), *_stays(sweep, lang), *_flattens(sweep, lang),
        *_witness(sweep, lang))]


def _spread(sweep: Any, lang: str) -> Iterator[tuple[str, bool]]:
    """Of all scores, and of those of a draw; and that no number is NaN."""
    off, ok = [], []
    wide = [0.01 + SURE * math.sqrt((1 / row.d_k + 1 / sweep.n_keys) / (2 * sweep.draws)) for row in sweep.rows]
    if max(wide) > 0.25:                    # a quarter off would say nothing
        return
    for row, slack in zip(sweep.rows, wide):
        scale, n = sweep.scale(row), sweep.n_keys
        off.append(abs(row.spread / theory.score_std(row.d_k, scale) - 1))
        ok.append(off[-1] <= slack)
        mean, deviation = theory.score_std_of_a_draw(row.d_k, scale, n)
        ok.append(abs(row.score_std.mean - mean) <= SURE * deviation / math.sqrt(sweep.draws))
        ok += [not np.isnan([getattr(row, name).mean, getattr(row, name).median]).any() for name in QUANTITIES]
    yield say("spread is", lang, off=max(off)), all(ok)


def _saturated(sweep: Any, lang: str) -> Iterator[tuple[str, bool]]:
    """The limits for large scores. A mean that rests on fewer near ties than can be counted on is left out."""
    n, c = sweep.n_keys, theory.tie_density(sweep.n_keys)
    large = [row for row in sweep.rows if theory.score_std(row.d_k, sweep.scale(row)) >= theory.SATURATED]
    told = [row for row in large if sweep.draws * c / theory.score_std(row.d_k, sweep.scale(row)) >= TIES]
    for name in LIMITED if told else ():
        ratios, ok = [], []
        for row in told:
            scale = sweep.scale(row)
            limit, deviation = (found[name] for found in (theory.saturated_means(row.d_k, scale, n),
                                                          theory.saturated_deviations(row.d_k, scale, n)))
            mean = getattr(row, name).mean
            mean, limit = (1 - mean, 1 - limit) if name == "largest_weight" else (mean, limit)
            ratios.append(mean / limit)
            ok.append(abs(mean - limit) <= SURE * deviation / math.sqrt(sweep.draws)
                      + theory.next_term(theory.score_std(row.d_k, scale), n) * limit)
        yield say(f"mean {name}", lang, ratios=_range(ratios, lang), c=c), all(ok)
    medians = [(row.jacobian, theory.saturated_medians(row.d_k, sweep.scale(row), n)["jacobian"]) for row in large
               if math.isfinite(sum(row.jacobian.median_band))]
    if medians:
        ratios = [stat.median / limit for stat, limit in medians]
        yield (say("median jacobian", lang, ratios=_range(ratios, lang), gap=theory.median_gap(n)),
               all(s.median_band[0] / 1.25 <= limit <= s.median_band[1] * 1.25 for s, limit in medians))


def _stays(sweep: Any, lang: str) -> Iterator[tuple[str, bool]]:
    """Divided by √d_k: all bands of the median have a number in common, to within 5 %."""
    scaled = [row.jacobian for row in sweep.rows if row.scale == "sqrt" and row.d_k >= 16]
    if scaled and all(math.isfinite(sum(stat.median_band)) for stat in scaled):
        low, high = max(stat.median_band[0] for stat in scaled), min(stat.median_band[1] for stat in scaled)
        yield (say("stays", lang, ratios=_range([stat.median for stat in scaled], lang)),
               0 < low <= 1.05 * high and not any(math.isnan(stat.median) for stat in scaled))


def _flattens(sweep: Any, lang: str) -> Iterator[tuple[str, bool]]:
    """Divided by d_k: near the limit for small scores, to within 2 %."""
    limit = theory.flat(sweep.n_keys)["jacobian"]
    flat = [row.jacobian for row in sweep.rows
            if theory.score_std(row.d_k, sweep.scale(row)) <= 1 / theory.SATURATED]
    if flat and sweep.draws > 1:
        yield (say("flattens", lang, ratios=_range([stat.mean / limit for stat in flat], lang)),
               all(s.mean_band[0] / 1.02 <= limit <= s.mean_band[1] * 1.02 for s in flat))


def _witness(sweep: Any, lang: str) -> Iterator[tuple[str, bool]]:
    w = [row.witness for row in sweep.rows]
    yield (say("witness agrees", lang, absolute=sweep.witness, central=max(x.central for x in w)),
           all(x.absolute < 4e-15 and x.central < 1e-9 and x.query < 1e-13 for x in w)
           and all(x.relative < 1e-5 for x in w if x.relative is not None))


def _range(numbers: Sequence[float], lang: str) -> str:
    low, high = f"{min(numbers):.2g}", f"{max(numbers):.2g}"
    return low if low == high else say("to", lang, low=low, high=high)
