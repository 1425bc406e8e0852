"""Floor 6.6. Prose of the tutorials on a terminal: Markdown and its formulas as plain lines of a given width."""

from __future__ import annotations

import html
import itertools
import re
import textwrap

SYMBOLS = {"cdot": "·", "times": "×", "sqrt": "√", "approx": "≈", "sigma": "σ", "Delta": "Δ", "delta": "δ", "sum": "Σ",
           "int": "∫", "infty": "∞", "le": "≤", "ge": "≥", "ne": "≠", "to": "→", "qquad": "   ",
           "quad": "  ", "ldots": "…", "dots": "…", "cdots": "…", "top": "ᵀ", "theta": "θ", "omega": "ω", "phi": "φ",
           "pi": "π", "mu": "μ", "epsilon": "ε", "varepsilon": "ε", "lVert": "‖", "rVert": "‖", "|": "‖", "odot": "∘",
           "circ": "∘", "in": "∈", "beta": "β", "alpha": "α", "gamma": "γ", "lambda": "λ", "Phi": "Φ", "pm": "±",
           ",": " ", ";": " ", "!": "", ":": " ", "left": "", "right": "", "big": "", "Big": "", "bigl": "", "bigr": "",
           "Rightarrow": "⇒", "rightarrow": "→", "mapsto": "↦", "neq": "≠", "leq": "≤", "geq": "≥", "mid": "|",
           "sim": "~", "propto": "∝", "prime": "′", "displaystyle": ""}


def formula(tex: str) -> str:
    """A formula in TeX as a line of text: √ for \\sqrt, a/b for \\frac. A matrix is its rows in brackets."""
    tex = re.sub(r"\\begin\{[a-z]*matrix\}(.*?)\\end\{[a-z]*matrix\}",
                 lambda m: "[" + re.sub(r"\s*\\\\\s*", "; ", m[1].strip()).replace("&", " ") + "]", tex, flags=re.S)
    tex = re.sub(r"\\(?:begin|end)\{[a-z*]+\}", "", tex).replace("&", "")
    tex = re.sub(r"\\(?:operatorname|mathrm|text|mathbf|mathit|textbf)\{([^{}]*)\}", r"\1", tex)
    inner = r"[^{}]*"
    for _ in range(3):                      # braces in braces
        inner = rf"(?:[^{{}}]|\{{{inner}\}})*"
    group = rf"\{{({inner})\}}"
    tex = re.sub(r"\\partial\s*(?:\\,)?", "∂", tex)
    for _ in range(3):
        tex = re.sub(rf"\\[td]?frac\s*{group}\s*{group}", lambda m: f"{_one(m[1])}/{_one(m[2])}", tex)
        tex = re.sub(rf"\\sqrt\s*{group}", lambda m: f"√{_one(m[1])}", tex)
    tex = re.sub(r"\\\\", "\n", tex)
    tex = re.sub(r"\\([A-Za-z]+|[,;!:|{}])", lambda m: SYMBOLS.get(m[1], m[1]), tex)
    for _ in range(3):
        tex = re.sub(rf"([_^]){group}", lambda m: m[1] + _one(m[2], r"[^\W_]"), tex)
    tex = tex.replace("^ᵀ", "ᵀ")
    return "\n".join(re.sub(r" +", " ", line).strip() for line in tex.strip().splitlines())


def _one(tex: str, word: str = r"\w") -> str:
    """A part of a formula, in parentheses if it is more than one thing."""
    return tex if re.fullmatch(rf"\s*-?[∂\\]?{word}*[.ᵀ]?{word}*\s*|[√∞]|√.|\([^()]*\)", tex) else f"({tex})"


def filled(markdown: str, width: int = 80) -> str:
    """Markdown as lines of at most `width`: headings underlined, paragraphs and lists filled, tables in columns, and
    code as it is."""
    markdown = re.sub(r"</?(?:details|summary)[^>]*>", "", markdown)
    done, fence = [], False
    for block in re.split(r"\n\s*\n", markdown.strip("\n")):
        if fence or block.lstrip().startswith("```"):
            fence ^= block.count("```") % 2 == 1
            done.append("\n".join(f"    {line}" for line in block.splitlines() if not line.startswith("```")))
        elif block.lstrip().startswith("$$"):
            done.append(textwrap.indent(formula(block.replace("$$", " ")), "    "))
        elif block.lstrip().startswith("|"):
            done.append(_table(block))
        elif block.startswith("    "):
            done.append(block)
        else:
            done.append("\n".join(_filled(part, width) for part in _items(block)))
    return "\n\n".join(part for part in done if part.strip())


def _table(block: str) -> str:
    """A table, its columns as wide as they need to be."""
    rows = [[_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    widths = [max(map(len, column)) for column in itertools.zip_longest(*rows, fillvalue="")]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows)


def _items(block: str) -> list[str]:
    """A paragraph, or the items of a list, each in one piece; a formula in the midst of it apart."""
    parts: list[str] = []
    for line in block.splitlines():
        if not parts or re.match(r"\s*(?:[-*+]|\d+\.|[a-h]\)) |#+ |\$\$", line) or parts[-1].startswith("#"):
            parts.append(line)
        else:
            parts[-1] += " " + line.strip()
    return parts


def _filled(part: str, width: int) -> str:
    if part.startswith("$$"):
        return textwrap.indent(formula(part.replace("$$", " ")), "    ")
    if heading := re.fullmatch(r"(#+) (.*)", part):
        text = _inline(heading[2])
        return text + "\n" + ("=" if len(heading[1]) == 1 else "-") * len(text)
    marker = re.match(r"\s*(?:[-*+] |\d+\. |[a-h]\) )?", part)
    indent = " " * len(marker[0]) if marker else ""
    return textwrap.fill(_inline(part), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _inline(text: str) -> str:
    """Without the marks of Markdown, which say nothing on a terminal; what is code keeps its marks."""
    text = re.sub(r"\$([^$]+)\$", lambda m: formula(m[1]), text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"\1", text)
    text = re.sub(r"(?<![\w*`])\*([^*\s][^*]*)\*(?![\w*])", r"\1", text)
    text = re.sub(r"\[([^\]]+)\]\((https?:[^)]+)\)", r"\1 (\2)", text)
    return html.unescape(text)
