"""A side room on floor 0. What every plot of this package shares: its colours, and matplotlib, which is optional."""

from __future__ import annotations

import io
from typing import Any

INK = "#5f6b7a"                             # axes and text: readable on white and on black
SERIES = ("#d1495b", "#2a78c2", "#3a9d5d", "#c98a10", "#8a5cc2")     # so are these, and told apart by the colour-blind


def figure(rows: int, columns: int, *, size: tuple[float, float]) -> tuple[Any, Any]:
    """A matplotlib Figure of its own, which no `pyplot` keeps alive, and its axes. It shows itself in notebooks;
    elsewhere write `.savefig("plot.png")`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib, the extra tinygrad_attn[plot]") from error

    class Shown(Figure):
        """A Figure that a notebook displays, also without pyplot."""

        def _repr_png_(self) -> bytes:
            self.savefig(picture := io.BytesIO(), format="png", dpi=110)
            return picture.getvalue()

    made = Shown(figsize=size, layout="constrained")
    axes = made.subplots(rows, columns)
    for ax in made.axes:
        ax.grid(True, color=INK, alpha=0.18, lw=0.6)
        ax.tick_params(colors=INK, labelsize=9)
        for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
            text.set_color(INK)
            text.set_fontsize(10)
        for side, spine in ax.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
    return made, axes
