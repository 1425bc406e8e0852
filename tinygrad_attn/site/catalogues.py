"""Floor 7.1. What there is to translate: the messages of every lesson, of the site and of the code, as templates.

    python3 -m tinygrad_attn.site.catalogues build/gettext
    sphinx-intl update -p build/gettext -d tinygrad_attn/locale -l pt_BR

writes the templates, and brings the catalogues up to date with them: what is new is empty there, what has changed is
marked as fuzzy, and a test asks for both to be seen to.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from .. import languages
from ..languages import asking, speaking, translations
from ..learn.exercise import MUTANT, Catch, Exercise, Predict, Write
from ..learn.lessons import Lesson, exercises, lesson, lessons, run_cells
from ..learn.prose import mapped
from ..learn.quiz import quiz

PACKAGE = Path(__file__).parents[1]
FIRST = Path(__file__).with_name("index.md")            # the first page
THEME = ("Skip to content", "Back to top", "On this page", "Home", "Next", "Previous", "Search", "Made with ")
FURO = (('aria-label="', '"', ("Toggle Light / Dark / Auto color theme", "Toggle site navigation sidebar",
                               "Toggle table of contents sidebar")), ('aria-label="', "", ("Toggle navigation of ",)),
        ("<title>", "</title>", ("Contents", "Menu", "Expand", "Light mode", "Dark mode",
                                 "Auto light/dark, in light mode", "Auto light/dark, in dark mode")))
# What the theme says: by gettext, for which Sphinx has no translation, and without, between what stands around it.
GRADER = (MUTANT, "accepts what is right", "your prediction", *(kind.kind for kind in (Write, Predict, Catch)))

Messages = dict[str, str]                               # each message, and the file that it is in


def within(markdown: str) -> list[str]:
    """The messages of a text."""
    found: list[str] = []

    def keep(message: str) -> str:
        found.append(message)
        return message
    mapped(markdown, keep)
    return found


def of_lesson(number: str) -> Messages:
    """The messages of a lesson, in the order in which they are read, but for the labels of its plots."""
    with speaking("en"):
        one = lesson(number)
        prose = [message for cell in one.cells if cell.kind == "markdown" for message in within(cell.text)]
        tasks = {message: f"tutorials/exercises/{each.path.name}" for each in exercises(number).found[::-1]
                 for message in of_exercise(each)}
        asked = [text for question in quiz(number).questions for text in
                 (question.text, *(text for option in question.options for text in (option.text, option.reason)))]
    return dict.fromkeys(prose, f"tutorials/{one.path.name}") | tasks | dict.fromkeys(
        asked, f"tutorials/quizzes/{number}.toml")


def of_exercise(one: Exercise) -> Iterator[str]:
    """The messages of an exercise."""
    yield from (one.title, *within(one.statement), *one.hints)
    for sound in one.sound_ones if isinstance(one, Catch) else ():
        yield from [inspect.getdoc(sound) or ""] if sound.__doc__ else []
    for check in one.checks:
        yield from (check.hint,) if check.name in GRADER or check.name.startswith(MUTANT) else (check.name, check.hint)
    for mistake in one.mistakes:
        yield mistake.hint


def of_code() -> Messages:
    """What the code says by `_("...")`, and the names that the grader gives its checks."""
    found = dict.fromkeys(GRADER, "tinygrad_attn/learn/exercise.py")
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="_"), args=[ast.Constant(value=str(message))]):
                    found.setdefault(message, path.relative_to(PACKAGE.parent).as_posix())
    return found


def of_site() -> Messages:
    """What the first page and the theme say."""
    theme = (*THEME, *(message for at, end, messages in FURO for message in messages))
    return (dict.fromkeys(theme, "tinygrad_attn/site/catalogues.py")
            | dict.fromkeys(within(FIRST.read_text(encoding="utf-8")), "tinygrad_attn/site/index.md"))


def written() -> Iterator[tuple[str, Messages]]:
    """Each catalogue's name, and its messages, but for the labels of plots."""
    yield "code", of_code()
    yield "site", of_site()
    for one in lessons():
        yield one.number, of_lesson(one.number)


def templates() -> Iterator[tuple[str, Messages]]:
    """The same with the labels: what is looked up when the cells of a lesson run, and is written nowhere else. The
    lessons run for it."""
    messages = dict(written())
    known = set[str]().union(*messages.values())
    yield "code", messages["code"]
    yield "site", messages["site"]
    for one in lessons():
        labels = sorted(_asked_by(one) - known)
        yield one.number, messages[one.number] | dict.fromkeys(labels, f"tutorials/{one.path.name}")


def _asked_by(one: Lesson) -> set[str]:
    with speaking("pt"), asking() as asked:
        run_cells(one, lambda cell, printed, value: None)
    return asked


def write(folder: Path) -> None:
    """Write all templates, in gettext's format."""
    from babel.messages.catalog import Catalog
    from babel.messages.pofile import write_po
    folder.mkdir(parents=True, exist_ok=True)
    for name, messages in templates():
        catalogue = Catalog(project="tinygrad_attn", version="1", fuzzy=False, last_translator="the authors",
                            msgid_bugs_address="the issues of the project", language_team="the authors",
                            header_comment="# What learners read. CONTRIBUTING.md says how this file is kept.")
        for message, path in messages.items():
            catalogue.add(message, locations=[(path, 1)])
        with open(folder / f"{name}.pot", "wb") as file:
            write_po(file, catalogue, include_lineno=False)
        print(f"{name}: {len(messages)} messages", flush=True)


def lacking(lang: str) -> list[str]:
    """What is not translated into a language: each message, with the catalogue that it belongs to, and its file."""
    found = []
    for name, messages in written():
        path = languages.folder(lang) / f"{name}.po"
        known = translations(path) if path.exists() else {}
        found += [f"{path.relative_to(PACKAGE.parent).as_posix()}: no translation of {message!r}, in {source}"
                  for message, source in messages.items() if message not in known]
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))
