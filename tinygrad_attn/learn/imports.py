"""Floor 6.6. What an answer may use: the modules of its exercise, and not, for a softmax, somebody else's softmax."""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..languages import _


class Forbidden(ImportError):
    """An answer imports, or uses, what the exercise does not allow."""


def allowed(name: str, imports: Sequence[str]) -> bool:
    """Whether a module or a module's name, "math" or "tinygrad_attn.Tensor", may be used."""
    return any(name == entry or name.startswith(f"{entry}.") for entry in imports)


def refusal(what: str, imports: Sequence[str]) -> str:
    beyond = [entry for entry in imports if entry in ("numpy", "math") or
              ("." in entry and entry != "tinygrad_attn.learn.check")]
    return _("{name} is not allowed here: this exercise is to be done with {allowed}").format(
        name=what, allowed=", ".join(beyond))


@contextlib.contextmanager
def guarded_imports(imports: Sequence[str], within: Callable[[dict[str, Any]], bool]) -> Iterator[None]:
    """Inside, an import in code whose globals `within` knows is refused, unless it is allowed."""
    usual = builtins.__import__

    def guarded(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if within(sys._getframe(1).f_globals if globals is None else globals):
            for wanted in [f"{name}.{part}" for part in fromlist or ()] or [name]:
                if not allowed(wanted, imports):
                    raise Forbidden(refusal(wanted, imports))
        return usual(name, globals, locals, fromlist, level)

    builtins.__import__ = guarded
    try:
        yield
    finally:
        builtins.__import__ = usual


def check_names(answer: Any, imports: Sequence[str]) -> list[dict[str, Any]]:
    """Refuse an answer that uses, by the names it knows, a module or a function which is not allowed. What the learner
    wrote and it uses is looked through as well; the globals of all of that are returned."""
    seen: dict[int, Any] = {}
    pending, found = [answer], []
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        origin = value.__name__ if isinstance(value, ModuleType) else _origin(value)
        if origin and not allowed(origin, imports):
            raise Forbidden(refusal(origin, imports))
        if not origin or hasattr(value, "pyfunc"):          # np.vectorize has the name of what it calls
            pending += _parts(value)
            if isinstance(known := getattr(value, "__globals__", None), dict):
                found.append(known)
    return found


def _parts(value: Any) -> list[Any]:
    """What a function, a method, a class, an object or a container of the learner's is made of."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return list(value.values() if isinstance(value, dict) else value) if len(value) < 1000 else []
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget]
    if isinstance(value, type):
        return [*vars(value).values(), *value.__bases__] if _origin(value) == "" and value is not object else []
    if isinstance(value, FunctionType):
        return _of_function(value)
    wrapped = getattr(value, "__wrapped__", None) or getattr(value, "pyfunc", None)
    if wrapped is not None:
        return [wrapped]
    if callable(value) or type(value).__module__ in ("__main__", "answer"):
        return [type(value), *getattr(value, "__dict__", {}).values()]
    return []


def _of_function(function: FunctionType) -> list[Any]:
    """The globals it reads, what it is closed over, and its defaults."""
    known, cells = function.__globals__, []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):               # an empty one
            cells.append(cell.cell_contents)
    if _installed(known.get("__name__")):                   # a wrapper that another module made
        return [*cells, getattr(function, "__wrapped__", None)]
    return [*(known[name] for name in _globals_read(function.__code__) if name in known), *cells,
            *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _globals_read(code: CodeType) -> set[str]:
    """The globals that code reads, and not the attributes of the same name."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(_globals_read(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _origin(value: Any) -> str | None:
    """Where a function or class comes from, as "package.name"; "" if the learner wrote it, None if it is data."""
    if not callable(value) or not getattr(value, "__name__", None):
        return None
    name, module = value.__name__, getattr(value, "__module__", None) or type(value).__module__
    if isinstance(value, np.ufunc) and getattr(np, name, None) is not value:        # it says that it is NumPy's
        return "" if "(vectorized)" in name else _("another package's {name}").format(name=name)
    root = str(module).partition(".")[0]
    root = root.removeprefix("_") if root.removeprefix("_") in sys.stdlib_module_names else root     # written in C
    return f"{root}.{name}" if _installed(root) else ""


def _installed(module: Any) -> bool:
    """Whether a module is Python's or of an installed package, and not the learner's."""
    root = str(module).partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return root not in ("__main__", "builtins") and (
        root in sys.stdlib_module_names or root == "tinygrad_attn" or "-packages" in file)
