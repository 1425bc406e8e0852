"""The plots of a sweep, panel by panel, for `Sweep.plot` and for the page."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..plots import INK, SERIES
from . import theory
from .words import say

PANELS = ("spread", "largest_weight", "jacobian", "grad_query")
FLOOR = 1e-17                               # below the rounding of 1 a plot shows nothing
SYMBOLS = {"none": "Q Kᵀ", "sqrt": "Q Kᵀ / √d_k", "linear": "Q Kᵀ / d_k"}
COLOURS = dict(zip(SYMBOLS, SERIES))


def draw_panel(sweep: Any, ax: Any, name: str, lang: str = "en") -> None:
    """One of the `PANELS` on given axes: medians over draws (the spread is that of all scores), means dotted, bands
    that hold 90 % of the draws, and the limits of theory dashed."""
    for scale in sweep.scales:
        _draw_scale(sweep, ax, name, scale)
    ax.set(title=say(f"panel {name}", lang), xlabel="d_k", xscale="log",
           yscale="linear" if name == "largest_weight" else "log")
    ax.set_xticks(sweep.d_k, [str(d) for d in sweep.d_k], fontsize=8)
    ax.minorticks_off()
    if name != "spread":
        ax.set(ylim=(0, 1.02) if name == "largest_weight" else (FLOOR, 30))
    styles = {SYMBOLS[scale]: ("o-", COLOURS[scale]) for scale in sweep.scales}
    if name == "jacobian":
        styles = {text: (style, INK) for text, style in zip(say("lines", lang), ("-", ":", "--"))}
    if name in ("spread", "jacobian"):
        handles = [ax.plot([], [], style, color=colour, ms=4)[0] for style, colour in styles.values()]
        for text in ax.legend(handles, styles, loc="best", fontsize=9, frameon=False).get_texts():
            text.set_color(INK)


def _draw_scale(sweep: Any, ax: Any, name: str, scale: str) -> None:
    rows, colour = [row for row in sweep.rows if row.scale == scale], COLOURS[scale]
    x = [row.d_k for row in rows]
    dense = [int(d) for d in np.unique(np.geomspace(min(x), max(x), 60).round())]
    if name == "spread":
        ax.plot(x, [row.spread for row in rows], "o-", ms=4, lw=2.4, alpha=0.7, color=colour)
        ax.plot(dense, [theory.score_std(d, theory.SCALES[scale](d)) for d in dense], "--", lw=1, color=INK)
        return
    stats = [getattr(row, name) for row in rows]
    ax.fill_between(x, *(np.maximum(edge, FLOOR) for edge in ([s.low for s in stats], [s.high for s in stats])),
                    color=colour, alpha=0.15, lw=0)
    ax.plot(x, np.maximum([s.median for s in stats], FLOOR), "o-", ms=4, color=colour)
    ax.plot(x, [s.mean for s in stats], ":", lw=1.8, color=colour)
    for kind in ("mean", "median"):
        said = [(d, sweep.theory(d, scale, reach=8)[kind].get(name)) for d in dense]
        ax.plot([d for d, y in said if y], [max(y, FLOOR) for _, y in said if y], "--", lw=1.2, color=INK)
