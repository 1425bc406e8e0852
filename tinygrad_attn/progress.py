"""A side room on floor 0. How far a long work is."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any


class Progress:
    """How far the work is, on the terminal's error stream, gone when it is over; nothing where that is no terminal.
    `tqdm` draws the bar if it is installed, and a line of ours does if not. `note` stands behind it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.bar: Any = None
        self.shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if not self.shown:
            return
        if find_spec("tqdm"):
            from tqdm import tqdm
            self.bar = self.bar or tqdm(total=total, desc=self.label, leave=False, file=sys.stderr)
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(done - self.bar.n)
            if done == total:
                self.bar.close()
            return
        sys.stderr.write(f"\r{self.label} [{'#' * (20 * done // total):.<20}] {done}/{total} {note}\033[K")
        sys.stderr.write("\r\033[K" if done == total else "")
        sys.stderr.flush()


def wiped() -> str:
    """What removes a progress line, where there may be one."""
    return "\r\033[K" if sys.stderr.isatty() else ""
