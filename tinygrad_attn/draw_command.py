"""The command `graph`: an example, or what a function of yours returns, as a picture, a page, or an outline."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import re
import sys
import tempfile
import traceback
import webbrowser
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from typing import Any

from .errors import GraphError, GraphFreedError
from .examples import EXAMPLES
from .graph import Graph, draw
from .graph.film import film
from .graph.picture import SUFFIXES
from .languages import LANGUAGES, language
from .tensor import Tensor


class UsersError(Exception):
    """Code of the user's failed, with the error that caused this one."""


def add_parser(commands: Any) -> None:
    about = "; ".join(f"{name}: {(make.__doc__ or '').partition(chr(10))[0].rstrip('.')}"
                      for name, make in EXAMPLES.items())
    p = commands.add_parser(
        "graph", help="draw a computation graph, or step through its backward pass",
        description="Draw a computation graph. Without --out, an outline is printed.",
        epilog=f"The examples are {about}. A function, as module:function or file.py:function, takes no arguments and "
               "returns a Tensor, several, a dict of them by name, or a Graph: graph.draw(y, names=locals()) shows its "
               "own variable names.")
    p.add_argument("what", nargs="?", default="attention", metavar="EXAMPLE | MODULE:FUNCTION",
                   help=f"one of {', '.join(EXAMPLES)}, or a function of yours (default: %(default)s)")
    p.add_argument("--out", type=Path, dest="file", metavar="FILE",
                   help="write it: .svg, .png, .pdf, .dot, or .html, the backward pass to step through")
    p.add_argument("--grads", action="store_true",
                   help="show gradients, of the output or of the sum of its elements: as width, shade and number")
    p.add_argument("--values", action="store_true", help="write out what is small")
    p.add_argument("--collapse", action="append", metavar="N | NAME",
                   help="open N levels of boxes, or fold the boxes of that name (which may be given several times)")
    p.add_argument("--max-nodes", type=int, metavar="N", help="fold, or cut, what is larger; 0 for no limit (default: "
                                                              "500)")
    p.add_argument("--lang", choices=list(LANGUAGES), default=None,
                   help="language of the page (default: $TINYGRAD_ATTN_LANG, or en)")
    p.add_argument("--open", action="store_true", help="open what was written, or else the page, in the browser")
    p.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the graph as one JSON object")
    p.set_defaults(job=run)


def run(args: argparse.Namespace) -> int:
    """Draw it; return the exit code."""
    try:
        graph = drawn(args)
    except UsersError as error:
        traceback.print_exception(error.__cause__)
        return 1
    except (GraphError, GraphFreedError) as error:
        raise ValueError(str(error)) from error
    out = args.file or (Path(tempfile.mkdtemp(prefix="tinygrad_attn-")) / "graph.html" if args.open else None)
    if out and out.suffix.lower() in SUFFIXES:
        out.parent.mkdir(parents=True, exist_ok=True)
    try:
        written = graph.save(out, lang=language()) if out else None
    except RuntimeError as error:           # no `dot` program, or one that fails
        raise ValueError(str(error)) from error
    if args.json:
        print(json.dumps({**film(graph.shown), "note": graph.note, "written": str(written) if written else None},
                         indent=2, ensure_ascii=False))
    elif written:
        print(f"written: {written}" + (f"\n{graph.note}" if graph.note and written.suffix != ".html" else ""))
    else:
        print(graph)
    if args.open and written and not webbrowser.open(written.resolve().as_uri()):
        print(f"no browser was found to open {written} with", file=sys.stderr)
    return 0


def drawn(args: argparse.Namespace) -> Graph:
    """The graph that was asked for."""
    made = made_by(args.what)
    asked: dict[str, Any] = {"values": True} if args.values else {}
    if args.collapse:
        one = args.collapse[0] if len(args.collapse) == 1 else ""
        asked["collapse"] = int(one) if re.fullmatch(r"-?\d+", one) else args.collapse
    if args.max_nodes is not None:
        asked["max_nodes"] = args.max_nodes or None
    if isinstance(made, Graph):             # it has a look of its own
        return made.with_look(grads=args.grads, **asked)
    if isinstance(made, dict) and made and all(isinstance(t, Tensor) for t in made.values()):
        return draw(*made.values(), names=made, grads=args.grads, **asked)
    tensors = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise ValueError(f"graph: {args.what} gave {made!r:.60}; it must return a Tensor, several, a dict of them by "
                         "name, or a Graph")
    return draw(*tensors, grads=args.grads, **asked)


def made_by(what: str) -> Any:
    """What an example, or a function of the user's, returns. What that prints goes to the error stream."""
    if what in EXAMPLES:
        return EXAMPLES[what]()
    with contextlib.redirect_stdout(sys.stderr):
        return of_the_users(what)


def of_the_users(what: str) -> Any:
    place, colon, name = what.rpartition(":")
    if not (place and colon and name):
        raise ValueError(f"graph: there is no example {what!r}. There are {', '.join(EXAMPLES)}; a function of yours "
                         "is given as module:function, or file.py:function")
    found: Any = loaded(place, what)
    try:
        found = attrgetter(name)(found)
    except AttributeError:
        raise ValueError(f"graph: {place!r} has no {name!r}") from None
    if not callable(found) or isinstance(found, (Tensor, Graph)):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ValueError(f"graph: {what} must be callable without arguments: {error}") from None
    try:
        return found()
    except Exception as error:
        raise UsersError from error


def loaded(place: str, what: str) -> Any:
    """The user's module, by name or by file."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if place.endswith(".py") and not os.path.exists(place):
        raise ValueError(f"graph: there is no file {place!r}")
    if place.startswith(".") and not place.endswith(".py"):
        raise ValueError(f"graph: {what!r} is read as module:function, and {place!r} is no module: it is relative")
    try:
        if not place.endswith(".py"):
            return import_module(place)
        spec = spec_from_file_location(Path(place).stem, place)
        assert spec is not None             # it ends in .py
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except ModuleNotFoundError as error:
        if error.name and (place + ".").startswith(error.name + "."):
            raise ValueError(f"graph: there is no module {error.name!r} here; {what!r} is read as module:function") \
                from None
        raise UsersError from error
    except Exception as error:
        raise UsersError from error
