"""A side room on floor 0. What learners read, in their language: English in the sources, catalogues for all others.

A catalogue is a file of messages and their translations, in the format of GNU gettext, one for each lesson; `learn`,
the plots, quizzes and exercises look their texts up here when they show them. In code a message is `_("...")`, as
always with gettext. CONTRIBUTING.md says how catalogues are brought up to date.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

LANGUAGES = {"en": "en", "pt": "pt-BR"}     # on a command line, and as pages and browsers call them
CATALOGUES = Path(__file__).parent / "locale"
ENTRY = re.compile(r'((?:^#.*\n)*)^msgid ((?:"[^\n]*\n)+)^msgstr ((?:"[^\n]*\n)+)', re.MULTILINE)

_chosen: ContextVar[str] = ContextVar("_chosen", default="")
_asked: ContextVar[set[str] | None] = ContextVar("_asked", default=None)


def language() -> str:
    """The language of what is shown: what `speaking` has set, or else that of the environment."""
    return _chosen.get() or of_environment()


def of_environment() -> str:
    """What $TINYGRAD_ATTN_LANG says, "pt" or "pt_BR.UTF-8", or "en"."""
    lang = re.split("[-_.]", os.environ.get("TINYGRAD_ATTN_LANG", ""))[0].lower()
    return lang if lang in LANGUAGES else "en"


@contextlib.contextmanager
def speaking(lang: str) -> Iterator[None]:
    """Show everything inside in this language. One that there is not is a ValueError.

    >>> from tinygrad_attn.languages import _, speaking
    >>> with speaking("pt"):
    ...     print(_("hint"))
    dica
    """
    if lang not in LANGUAGES:
        raise ValueError(f"there is no language {lang!r}; it is one of {', '.join(LANGUAGES)}")
    token = _chosen.set(lang)
    try:
        yield
    finally:
        _chosen.reset(token)


@contextlib.contextmanager
def asking() -> Iterator[set[str]]:
    """The messages that are looked up inside, in another language than English, as they come."""
    asked: set[str] = set()
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)


def folder(lang: str) -> Path:
    """Where the catalogues of a language are, as gettext's tools expect them."""
    return CATALOGUES / LANGUAGES[lang].replace("-", "_") / "LC_MESSAGES"


@functools.cache
def catalogue(lang: str) -> dict[str, str]:
    """All translations into a language."""
    return {message: text for path in sorted(folder(lang).glob("*.po")) for message, text in translations(path).items()}


def translations(path: Path) -> dict[str, str]:
    """What a catalogue translates: what is neither empty nor marked as fuzzy, that is, guessed. A text that gettext
    could not read is a ValueError that names the file and the text."""
    def text(lines: str) -> str:
        try:
            return "".join(json.loads(line) for line in lines.splitlines())     # whose escapes gettext's are
        except ValueError:
            raise ValueError(f"{path}: a quotation mark or a backslash is wrong in {lines.strip()[:200]}") from None

    found = {}
    for notes, *lines in ENTRY.findall(path.read_text(encoding="utf-8-sig") + "\n"):
        message, said = map(text, lines)
        if message and said and not re.search(r"^#,.*\bfuzzy\b", notes, re.M):
            found[message] = said
    return found


def _(message: str) -> str:
    """The message in the language of now; as it is, if that is English, or nobody has translated it."""
    if language() == "en":
        return message
    if (asked := _asked.get()) is not None:
        asked.add(message)
    return catalogue(language()).get(message, message)
