"""The backward pass as a film: one self-contained page, with the graph, its values and its gradients inside.

The page lays the graph out itself, so that boxes can be folded and unfolded in it; `dagre.min.js`, a library, does
that. What is ours is `page.js`, which draws, steps and explains, over the data made here.
"""

from __future__ import annotations

import html
import json
import string
from collections.abc import Collection
from pathlib import Path

from ..pages import document
from .dot import COLOURS
from .film import film
from .trace import Trace
from .words import say


def page(traced: Trace, folded: Collection[str] = (), *, lang: str = "en", shapes: bool = True) -> Page:
    """The page, with the boxes in `folded` closed to begin with."""
    words, folder = say(lang), Path(__file__).parent
    data = json.dumps({**film(traced, lang), "folded": sorted(folded), "shapes": shapes, "words": words},
                      separators=(",", ":"), allow_nan=False)
    template, style, script, library = ((folder / name).read_text(encoding="utf-8")
                                        for name in ("page.html", "page.css", "page.js", "dagre.min.js"))
    shown = {key: html.escape(text) for key, text in words.items()}
    body = string.Template(template).substitute(shown, library=library, script=script, note=html.escape(traced.note),
                                                data=data.replace("<", r"\u003c"))
    colours = f":root {{ {_colours(0)} }} @media (prefers-color-scheme: dark) {{ :root {{ {_colours(1)} }} }}\n"
    return Page(document(lang, words["title"], colours + style, body))


class Page(str):
    """A page, which a notebook shows in a frame that can run it and reach nothing else."""

    def _repr_html_(self) -> str:
        title = self.partition("<title>")[2].partition("</title>")[0]
        return (f'<iframe srcdoc="{html.escape(self)}" sandbox="allow-scripts" title="{title}" '
                'style="width: 100%; height: 52rem; border: 0"></iframe>')


def _colours(scheme: int) -> str:
    """Those of the pictures, as variables of the style."""
    return " ".join(f"--{kind}: {both[scheme][0]}; --{kind}-line: {both[scheme][1]};" for kind, both in COLOURS.items())
