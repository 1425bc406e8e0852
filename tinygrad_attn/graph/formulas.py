"""What an op computes, and how it sends a gradient back, as text: read from its docstring and from its rule.

The rule is read from the source of the very function that the walk calls, so it cannot say anything else. Where there
is no source to read, as for a rule typed into a plain interpreter, there is no text.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..engine import Primitive, no_derivative

LONGEST = 8                                 # lines of a rule


@lru_cache(maxsize=1024)
def formula(op: Primitive) -> str:
    """What the op computes: the first sentence of its docstring, or, if it has none, its code.

    >>> from tinygrad_attn import ops
    >>> formula(ops.sqrt), rule(ops.sqrt, 0), rule(ops.where, 0)
    ('√x, with √′(0) = +∞', 'dL/dx = g * 0.5 / out', 'dL/dcondition: none')
    """
    return _first_sentence(op.forward.__doc__) or _code(op.forward)


def parameter(op: Primitive, argument: int) -> str:
    """What the op calls an argument, and its rules too: x, y, ..."""
    names = op.forward.__code__.co_varnames
    return names[argument] if argument < op.arity else f"{names[op.arity + len(op.keywords)]}[{argument}]"


@lru_cache(maxsize=4096)
def rule(op: Primitive, argument: int) -> str:
    """The vjp of one argument: as code, or in the words of its docstring. Of one that has none it says so."""
    vjp: Any = op.joint or op.vjps[argument]
    target = f"dL/d{parameter(op, argument)}"
    if vjp is no_derivative:
        return f"{target}: none"
    code = _code(vjp)
    return "" if not code else code if code.startswith("dL/d") else f"{target}:\n{code}" if "\n" in code else (
        f"{target} = {code}")


def _first_sentence(docstring: str | None) -> str:
    paragraph = " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^.\s])\.\s+(?=[A-Z])", paragraph)[0].removesuffix(".").replace("`", "")


def _code(function: Callable[..., Any]) -> str:
    """What a function returns: of a lambda its body, of others the docstring, or the lines of the body."""
    try:
        lines, _ = inspect.findsource(function)
        functions = _functions("".join(lines))
        node = next(functions[place] for place in _places(function) if place in functions)
    except (OSError, TypeError, SyntaxError, AttributeError, StopIteration):    # no source, or another than this
        return ""
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    if said := ast.get_docstring(node):
        return _first_sentence(said)
    if len(node.body) == 1 and isinstance(node.body[0], ast.Return) and node.body[0].value:
        return ast.unparse(node.body[0].value)
    code = "\n".join(map(ast.unparse, node.body)).splitlines()
    return "\n".join([*code[:LONGEST], "…"] if len(code) > LONGEST else code)


def _places(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """Where a function may stand in its source. Several lambdas may share a line: the columns of the expression that
    one returns, which are those of some instruction of it, tell them apart."""
    code = function.__code__
    return list(code.co_positions()) if code.co_name == "<lambda>" else [(code.co_firstlineno, code.co_name)]


@lru_cache(maxsize=16)
def _functions(source: str) -> dict[tuple[Any, ...], ast.Lambda | ast.FunctionDef]:
    """All functions of a source, by place."""
    found: dict[tuple[Any, ...], ast.Lambda | ast.FunctionDef] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            body = node.body
            found[body.lineno, body.end_lineno, body.col_offset, body.end_col_offset] = node
        elif isinstance(node, ast.FunctionDef):
            found[min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.name] = node
    return found
