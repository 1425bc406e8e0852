"""Floor 7.2. What Sphinx is taught: how docstrings are written here, which members are shown, and a search in
Portuguese that finds a word with or without its accents."""

from __future__ import annotations

import unicodedata
from typing import Any

from sphinx.search.pt import SearchPortuguese

from .. import ops
from .reference import as_markup

INSIDE = {"facts", "keeps", "ran", "sent_back", "draw_panel", "draw_loss"}     # public for other files, not for users


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", on_docstring)
    app.connect("autodoc-skip-member", on_member)
    app.add_search_language(Unaccented)
    return {"parallel_read_safe": True}


def on_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings come one by one. A method of Tensor that has none is the operation of its name."""
    if not any(lines) and what == "method":
        lines[:] = (getattr(getattr(ops, name.rpartition(".")[2], None), "__doc__", None) or "").splitlines()
    lines[:] = as_markup(lines)


def on_member(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Whether to leave a member out. What an op does, and how a layer is called, is shown without a docstring, too."""
    shown = name == "forward" or (hasattr(ops, name) and not name.startswith("_"))
    return True if name in INSIDE else False if shown else None


class Unaccented(SearchPortuguese):
    """Portuguese words without their accents, as many write them on a phone; `search.js` does the same to the query."""

    def stem(self, word: str) -> str:
        return plain(super().stem(plain(word)))


def plain(word: str) -> str:
    """A word without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
