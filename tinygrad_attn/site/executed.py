"""Floor 7.2. Lessons that have run: their cells with what they printed and showed, as the notebooks that Sphinx reads.

A lesson that ran is kept, and is not run again until something changes that it depends on: its text, its exercises and
its quiz, the translations, the package, Python, NumPy, matplotlib, or the program that draws graphs.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import languages
from ..files import write_whole
from ..graph import Graph
from ..graph.page import Page
from ..graph.render import find_dot
from ..languages import asking, catalogue, language, speaking
from ..learn import record
from ..learn.exercise import tutorials
from ..learn.lessons import Cell, Exercises, Lesson, lesson, run_cells
from ..learn.quiz import Quiz
from ..plots import described, inline_svg
from . import catalogues

PACKAGE, HERE = Path(__file__).parents[1], Path(__file__).parent
DAYS = 30                                   # that outputs are kept, when they are no longer asked for


def executed(number: str, lang: str, *, fresh: bool = False) -> dict[str, Any]:
    """A lesson as a notebook with outputs, from what is kept or by running it. What its cells show is in its language,
    and what they should say but nobody has translated is a LookupError."""
    if (known := found(number, lang)) and not fresh:
        return known
    with speaking(lang):
        made = _run(lesson(number))
    path = kept(number, lang)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{number}-{lang}-*.json"):
        if old.stat().st_mtime < time.time() - DAYS * 24 * 3600:
            old.unlink(missing_ok=True)
    write_whole(path, json.dumps(made, ensure_ascii=False).encode())
    return made


def found(number: str, lang: str) -> dict[str, Any] | None:
    """A lesson that ran, if it is kept; a file that is damaged is none."""
    try:
        made = json.loads(kept(number, lang).read_text(encoding="utf-8"))
        return made if made["cells"][0]["metadata"]["line"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def kept(number: str, lang: str) -> Path:
    """The file of a lesson that ran: its name changes with all that its outputs depend on."""
    own = [path for folder in (tutorials(), tutorials() / "exercises", tutorials() / "quizzes")
           for path in folder.glob(f"{number}*.*")]
    words = [] if lang == "en" else languages.folder(lang).glob("*.po")
    return record.folder() / "site" / f"{number}-{lang}-{_hashed([*own, *words], _surroundings())}.json"


@cache
def _surroundings() -> str:
    import matplotlib
    dot = find_dot() or ""
    drawn_by = f"{dot} {Path(dot).stat().st_mtime if dot else 0}"
    package = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".js", ".css", ".html")
               and tutorials() not in path.parents and (path.suffix == ".py" or HERE not in path.parents)]
    return _hashed(package, f"{platform.python_version()} {np.__version__} {matplotlib.__version__} {drawn_by}")


def _hashed(paths: Iterable[Path], seed: str) -> str:
    state = hashlib.sha256(seed.encode())
    for path in sorted(paths):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()[:16]


def _run(one: Lesson) -> dict[str, Any]:
    """Run a lesson. Each cell of the notebook knows which line of the lesson it begins at."""
    cells: list[dict[str, Any]] = []

    def shown(cell: Cell, printed: str, value: Any) -> None:
        made: dict[str, Any] = {"cell_type": cell.kind, "id": f"line-{cell.line}", "metadata": {"line": cell.line},
                                "source": cell.text}
        cells.append(made)
        if cell.kind == "code":
            outputs: list[dict[str, Any]] = []
            if printed:                                     # where a line of the lesson is told, not on which machine
                text = printed.replace(str(one.path), f"tutorials/{one.path.name}")
                outputs.append({"output_type": "stream", "name": "stdout", "text": text})
            made |= {"execution_count": None, "outputs": outputs}
            if isinstance(value, Exercises):                # with headings, which a page's contents list
                cells.append({"cell_type": "markdown", "id": f"shown-{cell.line}", "metadata": {},
                              "source": value._repr_markdown_()})
            elif value is not None:
                outputs.append({"output_type": "display_data", "metadata": {}, "data": _bundle(value)})
        if lacking := sorted(asked - catalogue(language()).keys()):
            name = "code" if lacking[0] in catalogues.of_code() else one.number
            raise LookupError(f"{languages.folder(language()) / name}.po: no translation of {lacking[0]!r}, which is "
                              f"said by the cell at {one.path}, line {cell.line}")

    with asking() as asked:
        run_cells(one, shown)
    return {"cells": cells, "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name":
                                                        "Python 3"}}, "nbformat": 4, "nbformat_minor": 5}


def _bundle(value: Any) -> dict[str, str]:
    """What a page shows of a value: pictures as they can stand in a page, quizzes and films as HTML, or text."""
    if isinstance(value, ImportError):
        raise value
    if hasattr(value, "savefig"):
        return {"text/html": plot_html(value)}
    if isinstance(value, Graph):
        return {"text/html": graph_html(value)}
    if isinstance(value, (Quiz, Page)):
        return {"text/html": value._repr_html_()}
    return {"text/plain": repr(value)}


def plot_html(picture: Any) -> str:
    """A matplotlib Figure as part of a page, no wider than it was made, and with its description."""
    width = picture.get_size_inches()[0] * 96
    return (f'<figure class="tg-plot" style="--wide: {width:.0f}px; max-width: {width:.0f}px">'
            f"{inline_svg(picture, described(picture))}</figure>")


def graph_html(drawn: Graph) -> str:
    """A graph as part of a page: as large as Graphviz meant it, in points; in dark where the page's reader has chosen
    so, whatever the browser's choice is; and light on paper."""
    def dark(found: re.Match[str]) -> str:
        return (f'<style>@media screen {{ body[data-theme="dark"] {{{found[1]}}} }}\n@media screen and '
                f'(prefers-color-scheme: dark) {{ body[data-theme="auto"] {{{found[1]}}} }}</style>')

    svg = drawn.render("svg", language()).decode()
    svg = re.sub(r"<style>\s*@media \(prefers-color-scheme: dark\) \{(.*?)\n\}\s*</style>", dark, svg, flags=re.DOTALL)
    width, height = (float(size) * 4 / 3 for size in re.findall(r' (?:width|height)="([\d.]+)"', svg)[:2])
    svg = re.sub(r'width="[\d.]+" height="[\d.]+"', f'width="{width:.0f}" height="{height:.0f}"', svg, count=1)
    return f'<figure class="tg-graph" style="--wide: {width:.0f}px">{svg}</figure>'
