"""Floor 6.92. Quizzes: questions with options, and a reason for each, right or wrong."""

from __future__ import annotations

import html
import itertools
import re
import tomllib
from dataclasses import dataclass
from typing import Any

from ..languages import _
from .exercise import tutorials
from .lessons import lesson


@dataclass(frozen=True)
class Option:
    """An answer to choose, whether it is right, and why."""

    text: str
    right: bool
    reason: str


@dataclass(frozen=True)
class Question:
    """A question with one right option."""

    text: str
    options: tuple[Option, ...]


_made = itertools.count(1).__next__         # a page may show a quiz twice: each has names of its own


@dataclass(frozen=True)
class Quiz:
    """The questions of a lesson. A notebook or a page shows them as HTML without a script: what is chosen shows its
    reason. `print` shows questions and options, and no reasons; `learn quiz` asks in a terminal."""

    number: str
    questions: tuple[Question, ...]

    def __str__(self) -> str:
        return "\n\n".join("\n".join([f"{i}. {q.text}", *(f"   {letter}) {o.text}" for letter, o in
                                                          zip("abcdefgh", q.options))])
                           for i, q in enumerate(self.questions, 1))

    def _repr_html_(self) -> str:
        made = _made()
        return f'<div class="tg-quiz"><style>{STYLE}</style>' + "".join(
            f'<fieldset><legend>{_marked(q.text)}</legend>' + "".join(
                f'<input type="radio" name="tg-{made}-{i}" id="tg-{made}-{i}-{j}">'
                f'<label for="tg-{made}-{i}-{j}">{_marked(o.text)}</label>'
                f'<div aria-live="polite"><p class="{"right" if o.right else "wrong"}">'
                f'<strong>{_("Yes.") if o.right else _("No.")}</strong> {_marked(o.reason)}</p></div>'
                for j, o in enumerate(q.options)) + "</fieldset>"
            for i, q in enumerate(self.questions)) + "</div>"


STYLE = """
.tg-quiz { max-width: 44rem; line-height: 1.45 }
.tg-quiz fieldset { border: 0; margin: 0 0 1.4rem; padding: 0; min-width: 0;
  display: grid; grid-template-columns: auto 1fr; gap: .35rem .6rem }
.tg-quiz legend { font-weight: 600; padding: 0 0 .4rem }
.tg-quiz input { margin: .3rem 0 0; align-self: start }
.tg-quiz fieldset > div { grid-column: 2 }
.tg-quiz p { margin: 0 0 .3rem; padding: .3rem .6rem; border-left: 3px solid; display: none;
  overflow-wrap: anywhere }
.tg-quiz input:checked + label + div p { display: block }
.tg-quiz .right { border-color: #2f8f52 }
.tg-quiz .wrong { border-color: #d1495b }
"""


def _marked(text: str) -> str:
    """Text as HTML: `code` and *emphasis*, nothing else."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text)


def quiz(number: str | int) -> Quiz:
    """The quiz of a lesson, from `tutorials/quizzes`.

    >>> from tinygrad_attn.learn import quiz
    >>> len(quiz("05").questions) >= 3
    True
    """
    number = lesson(number).number
    path = tutorials() / "quizzes" / f"{number}.toml"
    try:
        return _read(number, tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None


def _read(number: str, data: dict[str, Any]) -> Quiz:
    return Quiz(number, tuple(Question(_(q["text"]), tuple(Option(_(o["text"]), o.get("right", False), _(o["reason"]))
                                                        for o in q["option"])) for q in data["question"]))
