"""Floor 6.55. Markdown as messages: the one walk by which catalogues are made, and texts translated."""

from __future__ import annotations

import re
from collections.abc import Callable

MARK = r"[ ]*(?:[-*+]|\d+\.|[a-h]\))[ ]+"               # of an item of a list
MORE = rf"(?:\n(?![ ]*$|{MARK}|\#+[ ]|\$\$|```|\|)[^\n]+)*"     # the other lines of a paragraph
PIECE = re.compile(rf"""
      (?P<code>    ^[ ]*```.*?^[ ]*```[^\n]*$)
    | (?P<formula> ^\$\$.*?\$\$[ ]*$)
    | (?P<row>     ^\|[^\n]*$)                          # of a table
    | (?P<set_off> ^[ ]{{4}}[^\n]*$)                    # a formula, or code
    | (?P<heading> ^\#+[ ][^\n]*$)
    | (?P<item>    ^{MARK}[^\n]+{MORE})
    | (?P<plain>   ^[^\n]*\S[^\n]*{MORE})
    """, re.VERBOSE | re.DOTALL | re.MULTILINE)
WORDS = re.compile(r"(?!.*\bdef )(?:.*[A-Za-z]{3,} +[A-Za-z]{2,}|.*\b(?:if|with|where) |.*  # .*[a-z]{3})")


def for_speakers(text: str, lang: str) -> str:
    """A text with the language in the commands that it shows, so that what is typed as it stands goes on in it."""
    command = r"(tinygrad_attn learn\b[^`\n#]*?)(?=\s*(?:[`\n#]|$))"
    return text if lang == "en" else re.sub(command, rf"\1 --lang {lang}", text)


def mapped(markdown: str, said: Callable[[str], str]) -> str:
    """A text with `said` in place of each message: a paragraph, a heading, an item of a list, a cell of a table, each
    in one line whatever its breaks were; a formula that has words, whole. Code is as it was."""
    def piece(found: re.Match[str]) -> str:
        kind, text = found.lastgroup, found[0]
        if kind == "code":
            return text
        if kind == "formula":
            return said(text) if r"\text{" in text else text
        if kind == "row":
            return "|".join(f" {said(cell.strip())} " if re.search(r"[^\W\d_]", cell) else cell
                            for cell in text.split("|"))
        if kind == "set_off":
            return text[:-len(text.lstrip())] + said(text.strip()) if WORDS.match(text) else text
        mark = re.match(rf"\#+[ ]+|{MARK}|", text)
        start = mark[0] if mark else ""
        return start + said(" ".join(line.strip() for line in text[len(start):].splitlines()))
    return PIECE.sub(piece, markdown)
