"""Floor 7.1. The reference: a page for each room of the package, made of its docstrings by Sphinx's autodoc.

Docstrings are plain text as a terminal shows it: `code` in single backticks, formulas and tables set off by spaces.
`as_markup` makes of them what Sphinx reads.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, get_origin

from ..languages import _


@dataclass(frozen=True)
class Room:
    """A page of the reference: its file, its title, the module that its names are taken from, and the names."""

    file: str
    title: str
    module: str
    names: tuple[str, ...] = ()

    @property
    def public(self) -> tuple[str, ...]:
        """The names, or else all classes and functions that the module says are public, but for those that are the
        package's own as well."""
        package, module = import_module("tinygrad_attn"), import_module(self.module)
        return self.names or tuple(sorted((name for name in module.__all__ if name not in package.__all__ and
                                           _origin(getattr(module, name)).startswith("tinygrad_attn")), key=str.lower))


def _origin(value: Any) -> str:
    """The module that something was written in; of numbers and types that have only a name here, none."""
    return "" if get_origin(value) else getattr(value, "__module__", "")


def rooms() -> tuple[Room, ...]:
    """All pages of the reference, from the engine up; their titles in the language of now."""
    top = "tinygrad_attn"
    return (
        Room("tensor", _("Tensor and gradients"), top, (
            "Tensor", "grad", "vjp", "jvp", "jacobian", "hessian", "no_grad", "enable_grad", "primitive",
            "engine.Primitive", "detect_anomaly")),
        Room("operations", _("Operations on tensors"), top, (
            "softmax", "log_softmax", "logsumexp", "concatenate", "stack", "where", "maximum", "minimum", "einsum")),
        Room("attention", _("Attention"), top, ("attention", "multi_head_attention", "causal_mask", "padding_mask")),
        Room("gradcheck", _("Gradient checks"), top, ("gradcheck", "eps_curve")),
        Room("functional", _("Functions of networks"), f"{top}.functional"),
        Room("nn", _("Layers and models"), f"{top}.nn"),
        Room("optim", _("Optimisers"), f"{top}.optim"),
        Room("serialize", _("Saving and loading"), f"{top}.serialize", ("save", "load")),
        Room("training", _("Training"), f"{top}.training"),
        Room("graph", _("Computation graphs"), f"{top}.graph"),
        Room("saturation", _("The saturation laboratory"), f"{top}.saturation"),
        Room("plots", _("Plots"), f"{top}.plots", ("curves", "heatmap", "figure")),
        Room("learn", _("Exercises and quizzes"), f"{top}.learn"),
        Room("errors", _("Errors"), top, (
            "ShapeError", "GradcheckError", "GraphError", "GraphFreedError", "NotDifferentiableError", "AnomalyError")),
    )


@cache
def modules() -> frozenset[str]:
    """The modules whose source the reference shows: those that what it lists is written in."""
    origins = (_origin(attrgetter(name)(import_module(room.module))) for room in rooms() for name in room.public)
    return frozenset(name for name in origins if name.startswith("tinygrad_attn"))


def index() -> str:
    """The page that lists the others, in reStructuredText."""
    title = _("Reference")
    return "\n".join([title, "=" * len(title), "",
                      _("What each name does, from its docstring, and the source of all of it."), "",
                      ".. toctree::", "   :maxdepth: 2", "", *(f"   {room.file}" for room in rooms()), "",
                      f":ref:`{_('All names, from A to Z')} <genindex>`", ""])


def page(room: Room) -> str:
    """A page of the reference, in reStructuredText."""
    module = import_module(room.module)
    lines = [room.title, "=" * len(room.title), ""]
    about = (inspect.getdoc(module) or "") if room.module.count(".") else ""
    lines += [*as_markup(re.sub(r"^(?:A side room on f|F)loor [\d.]+\. ", "", about).splitlines()), ""]
    for name in room.public:
        if inspect.isclass(attrgetter(name)(module)):
            lines += [f".. autoclass:: {room.module}.{name}", "   :members:", ""]
        else:
            lines += [f".. autofunction:: {room.module}.{name}", ""]
    return "\n".join(lines)


def as_markup(lines: list[str]) -> list[str]:
    """The lines of a docstring in reStructuredText."""
    return "\n".join(_blocks(lines)).splitlines()


def _blocks(lines: list[str]) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if block.lstrip().startswith(">>>"):
            yield f"{inspect.cleandoc(block)}\n"
        elif block.startswith("    "):                      # a formula, or a table
            yield f"::\n\n{block}\n"
        else:
            yield "".join(_marked(part) for part in re.split(r"(`[^`]+`\w*)", block)) + "\n"


def _marked(part: str) -> str:
    """`code` as code; and everything else as it is written, whatever it means in reStructuredText."""
    if code := re.fullmatch(r"(`[^`]+`)(\w*)", part):
        return f"`{code[1]}`" + (f"\\ {code[2]}" if code[2] else "")
    escaped = re.sub(r"([\\*|`]|_(?=_*(?!\w))|^\.\.(?= )|:$)", r"\\\1", part, flags=re.MULTILINE)
    return re.sub(r"(?<!\w)\\\*(\w[^*]*\w)\\\*(?!\w)", r"*\1*", escaped)      # but *emphasis* is meant


def mended(page: str) -> str:
    """A page of the reference, which is in English, says so; and one of source has its links back put right. Sphinx
    gives all names of a file the module that it met one of them in; but what `ops.py` defines is public in two."""
    known = {(room.file, name.rpartition(".")[2]): f"{room.module}.{name}" for room in rooms() for name in room.public}
    modules = "|".join(sorted({re.escape(room.module) for room in rooms()}, key=len, reverse=True))
    page = re.sub(rf'(reference/(\w+)\.html#)(?:{modules})\.(\w+)',
                  lambda found: found[1] + known.get((found[2], found[3]), found[3]), page)
    return page.replace('<dl class="py', '<dl lang="en" class="py')
