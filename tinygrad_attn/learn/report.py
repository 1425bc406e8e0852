"""Floor 6.75. What the grader tells a learner."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..languages import _
from .exercise import MUTANT

SHOWN = 2                                   # failing checks that are printed with input and hint; a report has them all
WIDTH = 80
PRINTED = 10                                # lines of what an answer printed


@dataclass(frozen=True)
class Entry:
    """How one check went; of what failed, the smallest input."""

    check: str
    passed: bool
    inputs: int = 0
    failed: int = 0
    given: tuple[tuple[str, str], ...] = ()
    got: str = ""
    expected: str = ""
    hint: str = ""

    def lines(self, whole: bool) -> Iterator[str]:
        """The entry as it is printed; if it is not to be `whole`, without the input."""
        count = _("{count} inputs").format(count=self.inputs) if self.passed else \
            _("{failed} of {count} inputs").format(failed=self.failed, count=self.inputs)
        smallest = _("; the smallest:") if whole and self.given and not self.passed else ""
        yield (f"  {'ok' if self.passed else _('FAIL'):5} {self.check.replace(MUTANT, _(MUTANT))}"
               + (f" ({count}{smallest})" if self.inputs > 1 else ""))
        rows = [*self.given, (_("got"), self.got), (_("expected"), self.expected), (_("hint"), self.hint)]
        rows = [(name, text) for name, text in rows if text and whole]
        width = max((len(name) for name, text in rows), default=0)
        for name, text in rows:
            for i, line in enumerate(_wrapped(text, WIDTH - 10 - width)):
                yield f"        {'' if i else name:{width}}  {line}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a text, sentences broken; arrays come with lines of their own."""
    return [part for line in text.splitlines() for part in
            ([line] if line.startswith(("[", "(", " ")) else textwrap.wrap(line, width) or [""])]


@dataclass(frozen=True)
class Report:
    """What the grader found. It is true if every check passed; printed, it tells a learner how to go on."""

    id: str
    title: str
    entries: tuple[Entry, ...] = ()
    fault: str = ""                         # why there was nothing to check, or not all
    printed: str = ""                       # by the answer

    @property
    def passed(self) -> bool:
        return bool(self.entries) and not self.fault and all(entry.passed for entry in self.entries)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        count = sum(entry.passed for entry in self.entries)
        return f"<{self.id}: {_('{count} of {all} checks passed').format(count=count, all=len(self.entries))}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.id}: {self.title}"
        mutants = [entry for entry in self.entries if entry.check.startswith(MUTANT)]
        counted = bool(mutants) and self.entries[0].passed  # rejecting everything is no merit
        shown = 0
        for entry in self.entries:
            if entry in mutants and entry.passed and not counted:
                continue
            shown += bool(entry.given or entry.hint)
            yield from entry.lines(whole=shown <= SHOWN)
        if self.printed:
            lines = self.printed.splitlines()
            yield f"  {_('your answer printed:')}"
            yield from (f"        {line}" for line in (*lines[:PRINTED], *(["…"] if len(lines) > PRINTED else [])))
        if self.fault:
            yield from textwrap.wrap(self.fault, WIDTH, initial_indent=f"  {_('FAIL'):5} ",
                                     subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
        killed = sum(entry.passed for entry in mutants)
        yield "  " + (_("Solved.") if self.passed else
                      _("Not yet: {count} of {all} mutants rejected.").format(count=killed, all=len(mutants))
                      if counted else _("Not yet."))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {**asdict(self), "passed": self.passed}
