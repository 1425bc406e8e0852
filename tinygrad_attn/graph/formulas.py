"""What an op computes, and how it sends a gradient back, as text: read from its docstring and from its rule.

The rule is read from the source of the very function that the walk calls, and only if that source still compiles to
it, so it cannot say anything else. Where there is no such source, as for a rule typed into a plain interpreter, there
is no text.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

from ..engine import Primitive, no_derivative

LONGEST = 8                                 # lines of a rule


def formula(op: Primitive) -> str:
    """What the op computes: the first sentence of its docstring, or, if it has none, its code.

    >>> from tinygrad_attn import ops
    >>> formula(ops.sqrt), rule(ops.sqrt, 0), rule(ops.where, 0)
    ('√x, with √′(0) = +∞', 'dL/dx = g * 0.5 / out', 'dL/dcondition: none')
    """
    return _first_sentence(op.forward.__doc__) or _code(op.forward)


def parameter(op: Primitive, argument: int) -> str:
    """What the rule of an argument calls it: x, y, ... (or what the op does, if the rule has no names)."""
    if argument >= op.arity:
        return f"{op.forward.__code__.co_varnames[op.arity + len(op.keywords)]}[{argument}]"
    vjp: Any = op.joint or op.vjps[argument]
    before = 3 if op.joint else 2           # g and out, or wanted, g and out
    code = getattr(vjp, "__code__", None)
    if code is not None and code.co_argcount == before + op.arity:
        return str(code.co_varnames[before + argument])
    return str(op.forward.__code__.co_varnames[argument])


def rule(op: Primitive, argument: int) -> str:
    """The vjp of one argument: as code, or in the words of its docstring. Of one that has none it says so."""
    vjp: Any = op.joint or op.vjps[argument]
    target = f"dL/d{parameter(op, argument)}"
    if vjp is no_derivative:
        return f"{target}: none"
    code = _code(vjp)
    if not code or code.startswith("dL/d"):
        return code
    return f"{target}:\n{code}" if "\n" in code else f"{target} = {code}"


def _first_sentence(docstring: str | None) -> str:
    paragraph = " ".join(inspect.cleandoc(docstring or "").split("\n\n")[0].split())
    return re.split(r"(?<=[^.\s])\.\s+(?=[A-Z])", paragraph)[0].removesuffix(".").replace("`", "")


@lru_cache(maxsize=1024)
def _code(function: Callable[..., Any]) -> str:
    """What a function returns: of a lambda its body, of others the docstring, or the lines of the body."""
    function = inspect.unwrap(function)
    try:
        lines, _ = inspect.findsource(function)
        node = _functions("".join(lines)).get(function.__code__)
    except (OSError, TypeError, SyntaxError, AttributeError):   # there is no source
        return ""
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    if node is None or not node.body:
        return ""
    if said := ast.get_docstring(node):
        return _first_sentence(said)
    if len(node.body) == 1 and isinstance(node.body[0], ast.Return) and node.body[0].value:
        return ast.unparse(node.body[0].value)
    code = "\n".join(map(ast.unparse, node.body)).splitlines()
    return "\n".join([*code[:LONGEST], "…"] if len(code) > LONGEST else code)


@lru_cache(maxsize=16)
def _functions(source: str) -> dict[CodeType, ast.Lambda | ast.FunctionDef]:
    """All functions of a source by what they compile to. Code objects are equal if they do the same at the same place.

    Several lambdas may share a line: the columns of the expression that one returns, which are those of some
    instruction of it, tell them apart.
    """
    places: dict[Any, ast.Lambda | ast.FunctionDef] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            body = node.body
            places[body.lineno, body.end_lineno, body.col_offset, body.end_col_offset] = node
        elif isinstance(node, ast.FunctionDef):
            places[min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.name] = node
    found: dict[CodeType, ast.Lambda | ast.FunctionDef] = {}
    pending = [compile(source, "<source>", "exec", dont_inherit=True)]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        candidates = code.co_positions() if code.co_name == "<lambda>" else [(code.co_firstlineno, code.co_name)]
        function = next((places[place] for place in candidates if place in places), None)
        if function:
            found[code] = function
    return found
