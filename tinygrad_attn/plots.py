"""A side room on floor 0. What every plot of this package shares: its colours, and matplotlib, which is optional."""

from __future__ import annotations

import hashlib
import html
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import ShapeError
from .languages import _

INK = "#5f6b7a"                             # axes and text: readable on white and on black
SERIES = ("#d1495b", "#2a78c2", "#3a9d5d", "#c98a10", "#8a5cc2")     # so are these, and told apart by the colour-blind


def figure(rows: int, columns: int, *, size: tuple[float, float]) -> tuple[Any, Any]:
    """A matplotlib Figure of its own, which no `pyplot` keeps alive, and its axes. It shows itself in notebooks;
    elsewhere write `.savefig("plot.png")`."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError(_("plots need matplotlib: pip install matplotlib, the extra tinygrad_attn[plot]")) from error

    class Shown(Figure):
        """A Figure that a notebook displays, also without pyplot."""

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            self.savefig(picture := io.BytesIO(), format="png", dpi=110)
            return picture.getvalue(), {"alt": described(self)}

    made = Shown(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = made.subplots(rows, columns)
    for ax in made.axes:
        ax.grid(True, color=INK, alpha=0.18, lw=0.6)
        ax.tick_params(which="both", colors=INK, labelsize=9)
        for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
            text.set_color(INK)
            text.set_fontsize(10)
        for side, spine in ax.spines.items():
            spine.set_color(INK)
            spine.set_visible(side in ("left", "bottom"))
    return made, axes


def described(picture: Any) -> str:
    """What is to be seen in a Figure, in words, for those who do not see it: the alternative text of a page."""
    panels = []
    for ax in picture.axes:
        said = [ax.get_title(), _("{y} against {x}").format(y=ax.get_ylabel() or ax.get_title(), x=ax.get_xlabel())
                if ax.get_xlabel() else ax.get_ylabel()]
        said += [text for image in ax.images for text in _of_table(ax, image.get_array())]
        said += [_("{curve} goes from {first} to {last}").format(curve=line.get_label(), first=_short(y[0]),
                                                                 last=_short(y[-1]))
                 for line in ax.lines if len(y := line.get_ydata()) and not line.get_label().startswith("_")]
        panels.append(", ".join(dict.fromkeys(filter(None, said))))
    return "; ".join(filter(None, panels))


def _of_table(ax: Any, table: Any) -> list[str]:
    """Its size and range, and, if its rows have names, where in each the largest number is."""
    numbers: np.ndarray = np.ma.filled(np.ma.asarray(table, float), np.nan)
    known = numbers[np.isfinite(numbers)]
    said = [_("a table of {n} rows and {m} columns, from {low} to {high}").format(
        n=table.shape[0], m=table.shape[1], low=_short(known.min()), high=_short(known.max()))] if known.size else []
    rows, columns = ([text.get_text() for text in axis.get_ticklabels()] for axis in (ax.yaxis, ax.xaxis))
    if table.shape[:2] == (len(rows), len(columns)) and not all(name.isdigit() for name in rows):
        said += [_("{row}: most at {column}").format(row=name, column=columns[int(np.nanargmax(row))])
                 for name, row in zip(rows, numbers) if np.isfinite(row).any()]
    return said


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float, np.number)) else str(value)


def inline_svg(picture: Any, label: str) -> str:
    """A matplotlib figure as an <svg> that scales, takes the page's text colour, and is named for those who hear it."""
    import matplotlib
    with matplotlib.rc_context({"svg.hashsalt": label, "savefig.transparent": True}):
        picture.savefig(text := io.StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()[text.getvalue().index("<svg"):]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"',
                 lambda found: f'{found[1]} role="img" aria-label="{html.escape(label)}"', svg)
    prefix = f"p{hashlib.sha256(svg.encode()).hexdigest()[:8]}"     # ids are the page's: no two pictures may share one
    svg = re.sub(r'id="([^"]*)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", svg)
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    return svg.replace(INK, "currentColor")


def _label(text: Any) -> str:
    """A label in the language of now. A symbol or a name of one letter is the same in all."""
    return _(text) if re.search("[A-Za-z]{3}", text := str(text)) else text


def _names(names: Sequence[str]) -> list[str]:
    """The same for the names of rows and columns, of which one word alone is data."""
    return [_label(name) if " " in str(name) else str(name) for name in names]


def heatmap(tables: Mapping[str, Any], *, rows: Sequence[str] = (), columns: Sequence[str] = (),
            limits: tuple[float, float] = (0.0, 1.0)) -> Any:
    """Tables (n, m) side by side, dark where a number is large: weights of attention, masks, positions. Limits (−a, a)
    make white zero, blue positive and red negative. The keys are the titles; `rows` and `columns` name what is
    compared. Small tables have their numbers written in."""
    arrays = {title: np.asarray(table, float) for title, table in tables.items()}
    for title, table in arrays.items():
        if table.ndim != 2 or not table.size or len(rows or table) != len(table) or \
                len(columns or table.T) != table.shape[1]:
            raise ShapeError(f"heatmap: {title} has shape {table.shape}, with {len(rows)} names of rows and "
                             f"{len(columns)} of columns: a table is (n, m), with n and m names, or none")
    rows, columns = _names(rows), _names(columns)
    n, m = max(len(a) for a in arrays.values()), max(a.shape[1] for a in arrays.values())
    cell = 0.62 if max(n, m) <= 8 else 4.6 / max(n, m)
    labels = 0.09 * max((len(name) for name in rows), default=3) + 0.5
    picture, axes = figure(1, len(arrays), size=(len(arrays) * (m * cell + labels) + 0.3, n * cell + 1.1))
    low, high = limits
    signed = low == -high
    for ax, (title, table) in zip(np.atleast_1d(axes), arrays.items()):
        ax.imshow(table, cmap="RdBu" if signed else "Blues", vmin=low, vmax=high, aspect="equal",
                  interpolation="nearest")
        ax.set_title(_label(title))
        ax.grid(False)
        for axis, names, count in ((ax.xaxis, columns, table.shape[1]), (ax.yaxis, rows, table.shape[0])):
            axis.set_ticks(range(0, count, 1 if names else -(-count // 7)))
            if names:
                axis.set_ticklabels(names)
        if max(table.shape) <= 20:          # lines between the cells
            for axis, count in ((ax.xaxis, table.shape[1]), (ax.yaxis, table.shape[0])):
                axis.set_ticks(np.arange(0.5, count - 1), minor=True)
            ax.tick_params(which="minor", length=0)
            ax.grid(True, which="minor", color="white", lw=1)
        if columns and max(map(len, columns)) > 3:
            ax.tick_params(axis="x", labelrotation=90)
        if max(table.shape) <= 8:
            for (i, j), number in np.ndenumerate(table):
                dark = abs(number) > 0.6 * high if signed else number > low + 0.6 * (high - low)
                ax.text(j, i, f"{number:z.2f}", ha="center", va="center", fontsize=9,
                        color="white" if dark else "#1d2733")
    picture.draw_without_rendering()        # squares, and long names below: only the second drawing has room for both
    return picture


def curves(lines: Mapping[str, tuple[Any, Any]], *, xlabel: str, ylabel: str, log: str = "") -> Any:
    """Named curves, each (x, y), in one plot. `log` names the axes that are logarithmic: "x", "y" or "xy"."""
    picture, ax = figure(1, 1, size=(6.4, 3.8))
    for colour, (name, (x, y)) in zip(itertools.cycle(SERIES), lines.items()):
        ax.plot(x, y, color=colour, lw=1.8, marker="o" if len(x) <= 12 else "", ms=4, label=_label(name))
    ax.set_xlabel(_label(xlabel), color=INK)
    ax.set_ylabel(_label(ylabel), color=INK)
    for axis in log:
        ax.set(**{f"{axis}scale": "log"})
    if len(lines) > 1:
        ax.legend(labelcolor=INK, frameon=False, fontsize=9)
    return picture
