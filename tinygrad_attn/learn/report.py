"""Floor 6.75. What the grader tells a learner."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

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
        count = "" if self.inputs < 2 else f" ({self.inputs} inputs)" if self.passed else \
            f" ({self.failed} of {self.inputs} inputs{'; the smallest:' if whole and self.given else ''})"
        yield f"  {'ok   ' if self.passed else 'FAIL '} {self.check}{count}"
        rows = [*self.given, ("got", self.got), ("expected", self.expected), ("hint", self.hint)] if whole else []
        rows = [(name, text) for name, text in rows if text]
        width = max((len(name) for name, _ in rows), default=0)
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
        return f"<{self.id}: {sum(entry.passed for entry in self.entries)} of {len(self.entries)} checks passed>"

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
            yield "  your answer printed:"
            yield from (f"        {line}" for line in (*lines[:PRINTED], *(["…"] if len(lines) > PRINTED else [])))
        if self.fault:
            yield from textwrap.wrap(self.fault, WIDTH, initial_indent="  FAIL  ", subsequent_indent="        ",
                                     break_long_words=False, break_on_hyphens=False)
        killed = sum(entry.passed for entry in mutants)
        yield ("  Solved." if self.passed else
               f"  Not yet: {killed} of {len(mutants)} mutants rejected." if counted else "  Not yet.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {**asdict(self), "passed": self.passed}
