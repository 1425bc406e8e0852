"""Floor 7.3. What Sphinx reads: the first page, the lessons as notebooks that have run, and the reference."""

from __future__ import annotations

import html
import json
import re
import string
from pathlib import Path
from typing import Any

from .. import saturation
from ..languages import _, language
from ..learn.lessons import Lesson, exercises, lessons
from ..learn.prose import for_speakers, mapped
from ..plots import curves
from . import reference
from .catalogues import FIRST
from .executed import executed, plot_html

LENGTHS, DRAWS, KEYS = (1, 4, 16, 64, 256, 1024), 500, 64      # what the picture of the first page measures


def write(folder: Path) -> None:
    """Write all sources of the site in the language of now."""
    for name in ("lessons", "notebooks", "reference"):
        (folder / name).mkdir(parents=True)
    names = [f"{one.number} {one.title} <{one.path.stem}>" for one in lessons()]
    texts = {"index.md": first_page() + _contents(["lessons/index", "reference/index"]),
             "lessons/index.md": f"# {_('Tutorials')}\n\n```{{raw}} html\n{cards('')}\n```\n" + _contents(names),
             "reference/index.rst": reference.index()}
    texts |= {f"lessons/{one.path.stem}.ipynb": json.dumps(page(one)) for one in lessons()}
    texts |= {f"notebooks/{one.path.stem}.ipynb": one.notebook() for one in lessons()}
    texts |= {f"reference/{room.file}.rst": reference.page(room) for room in reference.rooms()}
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")


def _contents(names: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", "", *names, "```", ""])


def first_page() -> str:
    """The first page; its numbers are measured now."""
    sweep = saturation.sweep(LENGTHS, scales=("none", "sqrt"), draws=DRAWS, n_keys=KEYS)
    norms = {scale: [sweep[d_k, scale].jacobian.median for d_k in LENGTHS] for scale in ("none", "sqrt")}
    picture = curves({_("scores as they are, Q Kᵀ"): (LENGTHS, norms["none"]),
                      _("scores divided, Q Kᵀ / √d_k"): (LENGTHS, norms["sqrt"])},
                     xlabel="d_k", ylabel=_("gradient that the softmax lets through"), log="xy")
    return string.Template(for_speakers(mapped(FIRST.read_text(encoding="utf-8"), _), language())).substitute(
        lessons=len(lessons()), exercises=sum(len(exercises(one.number).found) for one in lessons()),
        cover=plot_html(picture), path=cards("lessons/"), draws=DRAWS, keys=KEYS, d_k=LENGTHS[-1],
        none=_number(norms["none"][-1]), sqrt=_number(norms["sqrt"][-1]))


def _number(x: float) -> str:
    """A number as it is written in a sentence in the language of now."""
    text = f"{x:.2f}" if x > 0.01 else f"{x:.5f}"
    return text.replace(".", ",") if language() == "pt" else text


def cards(folder: str) -> str:
    """The lessons as cards, in order; `folder` is where they are, from the page that shows them."""
    return '<ol class="tg-path">' + "".join(
        f'<li><a href="{folder}{one.path.stem}.html"><span class="tg-number">{one.number}</span> '
        f"<strong>{html.escape(one.title)}</strong> <small>{_extent(one)}</small></a></li>\n"
        for one in lessons()) + "</ol>"


def _extent(one: Lesson) -> str:
    return _("{minutes} min, {count} exercises").format(minutes=round(one.minutes),
                                                        count=len(exercises(one.number).found))


def page(one: Lesson) -> dict[str, Any]:
    """A lesson as the notebook that a page is made of: below its title its place, its extent and its own download, and
    links wherever it names another lesson, or a file."""
    made = executed(one.number, language())
    for cell in made["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = linked(cell["source"], one.number)
    title, rest = made["cells"][0]["source"].split("\n", 1)
    place = _("Tutorial {number} of {all}").format(number=int(one.number), all=len(lessons()))
    download = f"{{download}}`{_('Download as a notebook')} <../notebooks/{one.path.stem}.ipynb>`"
    made["cells"][0]["source"] = f"{title}\n\n{place}: {_extent(one)} · {download}\n{rest}"
    made["cells"][0]["metadata"]["added"] = 2               # lines, which no one is told of
    return made


def linked(text: str, own: str) -> str:
    """A text with a link wherever it names other lessons, or a file of the package whose source the reference shows.
    Titles, code, formulas and links are as they were."""
    known = {each.number: each.path.stem for each in lessons() if each.number != own}

    def to_lessons(found: re.Match[str]) -> str:            # "tutorials 02, 03 and 05"
        return re.sub(r"(?:[Tt]\w+\s)?(\d\d)", to_lesson, found[0])

    def to_lesson(found: re.Match[str]) -> str:
        return f"[{found[0]}]({known[found[1]]}.ipynb)" if found[1] in known else found[0]

    def to_source(found: re.Match[str]) -> str:
        link = f'<a href="../_modules/{found[1]}.html"><code class="literal">{found[1]}.py</code></a>'
        return link if found[1].replace("/", ".") in reference.modules() else found[0]

    kept = r"(^#+ [^\n]*$|^ *```.*?^ *```|^ {4}[^\n]*$|`[^`\n]*`|\$[^$]+\$|!?\[[^]]*\]\([^)]*\))"
    parts = re.split(kept, text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"\b[Tt]utoria(?:ls?|is)\s\d\d\b(?:(?:,| and| to| e| a)\s\d\d\b)*", to_lessons, part)
                  for part in parts[::2]]
    parts[1::2] = [re.sub(r"^`(tinygrad_attn/[\w/]+)\.py`$", to_source, part) for part in parts[1::2]]
    return "".join(parts)
