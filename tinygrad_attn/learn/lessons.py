"""Floor 6.9. The tutorials: texts with code, in jupytext's percent format, that run as they are."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ..languages import _, language
from .exercise import Exercise, exercise, ids, tutorials
from .prose import for_speakers, mapped
from .terminal import filled

WORDS = 200                                 # a minute, of prose
LINES = 12                                  # a minute, of code


@dataclass(frozen=True)
class Cell:
    """A cell: prose or code, and the line of the file that it begins at."""

    kind: str                               # "markdown" or "code"
    text: str
    line: int


@dataclass(frozen=True)
class Lesson:
    """A tutorial."""

    number: str                             # "03"
    path: Path
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        return next(re.findall(r"^# (.+)", cell.text, re.M)[0] for cell in self.cells if cell.kind == "markdown")

    @property
    def minutes(self) -> float:
        """How long it takes to read: prose at 200 words a minute, code at 12 lines."""
        words = sum(len(cell.text.split()) for cell in self.cells if cell.kind == "markdown")
        lines = sum(bool(line.strip()) for cell in self.cells if cell.kind == "code" for line in cell.text.splitlines())
        return words / WORDS + lines / LINES

    def notebook(self) -> str:
        """The same as a notebook, without outputs: JSON in the format that Jupyter opens. In another language than
        English, a cell behind the title makes that the language of what the others show."""
        cells: list[dict[str, Any]] = []
        chosen = Cell("code", f'import os\n\nos.environ["TINYGRAD_ATTN_LANG"] = "{language()}"', 0)
        for i, cell in enumerate([self.cells[0], *([chosen] if language() != "en" else []), *self.cells[1:]]):
            made: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{i}", "metadata": {},
                                    "source": cell.text.splitlines(keepends=True)}
            cells.append({**made, "execution_count": None, "outputs": []} if cell.kind == "code" else made)
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        return json.dumps({"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5},
                          ensure_ascii=False, indent=1) + "\n"


def cells(source: str) -> tuple[Cell, ...]:
    """The cells of a text in percent format. What stands before the first `# %%` is the header, and no cell."""
    found: list[Cell] = []
    lines = source.splitlines()
    marks = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    for start, end in zip(marks, [*marks[1:], len(lines)]):
        kind = "markdown" if "[markdown]" in lines[start] else "code"
        body = lines[start + 1:end]
        if kind == "markdown":
            body = [re.sub(r"^# ?", "", line) for line in body]
        found.append(Cell(kind, "\n".join(body).strip("\n"), start + 2))
    return tuple(found)


def lessons() -> tuple[Lesson, ...]:
    """All tutorials, in order; their prose in the language of now."""
    return _lessons(language())


@functools.cache
def _lessons(lang: str) -> tuple[Lesson, ...]:
    found = tuple(Lesson(path.name[:2], path, cells(path.read_text(encoding="utf-8")))
                  for path in sorted(tutorials().glob("[0-9][0-9]_*.py")))
    return found if lang == "en" else tuple(replace(one, cells=tuple(
        cell if cell.kind == "code" else replace(cell, text=for_speakers(mapped(cell.text, _), lang))
        for cell in one.cells))
        for one in found)


def lesson(number: str | int) -> Lesson:
    """The tutorial of that number; one that does not exist is a ValueError."""
    found = {one.number: one for one in lessons()}
    if str(number).zfill(2) not in found:
        raise ValueError(_("there is no tutorial {number}; there are {all}").format(
            number=number, all=", ".join(found)))
    return found[str(number).zfill(2)]


@dataclass(frozen=True)
class Exercises:
    """The exercises of a lesson, as a notebook, a page or a terminal shows them."""

    found: tuple[Exercise, ...]

    def __str__(self) -> str:
        return "\n\n".join(described(one) for one in self.found)

    def _repr_markdown_(self) -> str:
        return "\n\n".join(f"### {one.id}: {one.title}\n\n*{_(one.kind)}*\n\n{one.statement}\n\n"
                           f"```python\n{one.starter}```\n\n`check(\"{one.id}\", {one.name})`" for one in self.found)


def described(one: Exercise, width: int = 80) -> str:
    """An exercise as text: what is asked, and what to begin with."""
    starter = "\n".join(f"    {line}".rstrip() for line in one.starter.splitlines())
    return f"{one.id}: {one.title} ({_(one.kind)})\n\n{filled(one.statement, width)}\n\n{starter}"


def exercises(number: str | int) -> Exercises:
    """The exercises of a lesson.

    >>> from tinygrad_attn.learn import exercises
    >>> print(exercises("03"))                          # doctest: +ELLIPSIS
    03-...
    """
    one = lesson(number)
    return Exercises(tuple(exercise(id) for id in ids() if id.startswith(one.number)))


def hint(id: str, number: int = 1) -> None:
    """Print a hint to an exercise; the first is the mildest. A number that there is not is a ValueError.

    >>> from tinygrad_attn.learn import hint
    >>> hint("03-softmax")                              # doctest: +ELLIPSIS
    First write ...
    """
    hints = exercise(id).hints
    if not 1 <= number <= len(hints):
        raise ValueError(_("{id} has {count} hints, and no number {number}").format(
            id=id, count=len(hints), number=number))
    print(filled(hints[number - 1]))


def run_cells(one: Lesson, shown: Callable[[Cell, str, Any], None]) -> None:
    """Run a tutorial cell by cell, in a folder of its own, as the module `__main__`, so that what its cells define
    counts as the learner's. `shown` gets each cell, what it printed, and the value of its last expression. An error
    gets a note with the file and the line of the cell."""
    module = ModuleType("__main__")
    module.__file__ = str(one.path)
    before, here = sys.modules.get("__main__"), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, np.printoptions():
        sys.modules["__main__"] = module
        os.chdir(folder)
        try:
            for cell in one.cells:
                if cell.kind == "markdown":
                    shown(cell, "", None)
                    continue
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    try:
                        value = _executed(cell, one.path, vars(module))
                    except (Exception, SystemExit) as error:
                        error.add_note(f"in the cell at {one.path}, line {cell.line}")
                        raise
                shown(cell, printed.getvalue(), value)
        finally:
            os.chdir(here)
            if before is not None:
                sys.modules["__main__"] = before


def _executed(cell: Cell, path: Path, known: dict[str, Any]) -> Any:
    """Run the statements of a cell; the value of its last line, if that is an expression. A picture that cannot be
    made, because a package is missing, is the error that says so, and the reading can go on."""
    tree = ast.parse("\n" * (cell.line - 1) + cell.text, str(path))
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(path), "exec"), known)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), str(path), "exec"), known)
    try:
        return eval(compile(ast.Expression(last.value), str(path), "eval"), known)
    except ImportError as error:
        return error
