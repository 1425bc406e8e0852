"""Attention on ever longer sequences, as a picture: what is quadratic in time, and what need not be in memory."""

from __future__ import annotations

import io
from typing import Any

from tinygrad_attn.plots import INK, SERIES, figure

LINES = {"tinygrad_attn": ("tinygrad_attn, blocked", SERIES[0], "-"),
         "tinygrad_attn, composed": ("tinygrad_attn, composed", SERIES[0], "--"),
         "pytorch, SDPA": ("PyTorch, SDPA", SERIES[1], "-"),
         "pytorch": ("PyTorch, composed", SERIES[1], "--")}
SMALLEST = 0.25                             # MiB; what is less cannot be told from the rest of a process


def plot(report: dict[str, Any]) -> Any:
    """A figure of all rows with attention alone, at the smallest number of threads: time and extra peak memory."""
    rows = sorted((row for row in report["rows"] if row["memory"]), key=lambda row: row["sizes"]["L"])
    threads = min(row["threads"] for row in rows)
    rows = [row for row in rows if row["threads"] == threads]
    made, panels = figure(1, 2, size=(9, 3.8))
    for ax, key, title in zip(panels, ("median", "extra"), ("time, ms", "extra peak memory, MiB")):
        for name, (label, colour, style) in LINES.items():
            points = [(row["sizes"]["L"], row["contestants"][name][key]) for row in rows if name in row["contestants"]]
            points = [(L, y) for L, y in points if y >= (SMALLEST if key == "extra" else 0)]
            if points:
                ax.plot(*zip(*points), style, color=colour, marker="o", ms=3.5, lw=1.6, label=label)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks([row["sizes"]["L"] for row in rows], [f"{row['sizes']['L']:,}" for row in rows], rotation=30)
        ax.minorticks_off()
        ax.set_xlabel("length L, of queries and of keys")
        ax.set_title(title)
    sizes = rows[0]["sizes"]
    panels[0].legend(labelcolor=INK, frameon=False, fontsize=9)
    made.suptitle(f"Attention, {sizes['H']} heads of width {sizes['D']}, forward and backward, {threads} "
                  f"thread{'s' * (threads > 1)}", color=INK, fontsize=11)
    return made


def as_bytes(report: dict[str, Any], format: str) -> bytes:
    """The picture with nothing behind it, so that it can be read on white and on black."""
    plot(report).savefig(picture := io.BytesIO(), format=format, transparent=True)
    return picture.getvalue()
