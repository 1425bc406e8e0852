"""Floor 6.7. An exercise: what is asked, how an answer is judged, and the mistakes that are known beforehand.

Each is a file in `tutorials/exercises/`: its docstring is the title and the statement, its variable `exercise` one of
three kinds. `Write`: the answer is a function, and must do on all inputs what the solution does. `Predict`: the answer
is a value. `Catch`: the answer is a check, which must accept sound implementations and reject mutants, that is, ones
with a fault planted.

A mistake is written as what it is: another answer. If an answer of a learner does what a known mistake does, that
mistake's hint is the one that helps.
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..languages import _, language
from .prose import mapped
from .values import as_data, text_of

MUTANT = "rejects mutant"                   # the checks that count how many are killed
STANDARD = ("numpy", "math", "__future__", "typing", "collections", "functools", "itertools", "operator",
            "dataclasses", "tinygrad_attn.learn.check")


@dataclass(frozen=True)
class Check:
    """Inputs, smallest first, on which `call(answer, *inputs)` must be what it is for the solution, or what
    `expected(*inputs)` says."""

    name: str
    hint: str
    inputs: Callable[[np.random.Generator], Iterable[Any]]
    call: Callable[..., Any] | None = None
    expected: Callable[..., Any] | None = None
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Mistake:
    """An answer that is wrong in a known way, and the hint for it."""

    hint: str
    answer: Any


class Exercise:
    """What the three kinds share. `name` is that of the function, or the variable, that an answer must define.

    `starter` is the text to begin with; `hints` are for the one who asks, the first the mildest. `imports` are the
    modules and names, such as "tinygrad_attn.Tensor", that an answer may use beyond NumPy and a few of Python's.
    """

    kind: ClassVar[str]

    def __init__(self, name: str, *, starter: str, hints: Sequence[str], imports: Sequence[str] = ()) -> None:
        self.name, self.starter, self.hints = name, starter.strip("\n") + "\n", tuple(hints)
        self.imports = (*STANDARD, *imports)
        self.checks: list[Check] = []
        self.mistakes: list[Mistake] = []
        self.reference: Any = None
        self.id = self.title = self.statement = ""
        self.path = Path()

    def solution(self, reference: Callable[..., Any]) -> Callable[..., Any]:
        """The decorated function is the reference solution."""
        self.reference = reference
        return reference

    def mistake(self, hint: str) -> Callable[[Any], Any]:
        """The decorated function is a plausible wrong answer; `hint` is for those who gave it."""
        def keep(answer: Any) -> Any:
            self.mistakes.append(Mistake(hint, answer))
            return answer
        return keep

    @property
    def solution_text(self) -> str:
        """The reference solution as an answer would be written: its source, behind what the starter gives."""
        source = inspect.getsource(self.reference)
        return self.starter.partition("def ")[0] + source[source.index("def "):]


class Write(Exercise):
    """Write a function: it is compared with the solution on the inputs of all checks."""

    kind = "write"

    def check(self, name: str, hint: str, *, call: Callable[..., Any] | None = None,
              expected: Callable[..., Any] | None = None, tolerance: float = 1e-9) -> Callable[[Any], Any]:
        """The decorated function yields the inputs of one check, each a tuple, from a generator of random numbers."""
        def keep(inputs: Any) -> Any:
            self.checks.append(Check(name, hint, inputs, call, expected, tolerance))
            return inputs
        return keep


class Predict(Exercise):
    """Predict a number, a shape, a word. The solution computes it; an answer may differ by `tolerance`."""

    kind = "predict"

    def __init__(self, *, starter: str, hints: Sequence[str], tolerance: float = 1e-9) -> None:
        super().__init__("answer", starter=starter, hints=hints)
        self.checks.append(Check("your prediction", hints[0], lambda rng: [()], tolerance=tolerance))

    @property
    def solution_text(self) -> str:
        """The value, and how it was computed."""
        way = "".join(f"# {line}".rstrip() + "\n" for line in inspect.getsource(self.reference).splitlines())
        return f"answer = {text_of(as_data(self.reference()))}\n\n# {_('computed by')}\n{way}"


class Catch(Exercise):
    """Write a check that accepts what is sound, and rejects every mutant, by an `assert` or by returning False."""

    kind = "find the bug"

    def __init__(self, name: str, *, starter: str, hints: Sequence[str], imports: Sequence[str] = (),
                 too_strict: str) -> None:
        super().__init__(name, starter=starter, hints=hints, imports=imports)
        self.sound_ones: list[Any] = []
        self.mutants: list[Any] = []
        self.checks.append(Check("accepts what is right", too_strict, lambda rng: [(one,) for one in self.sound_ones],
                                 verdict, lambda one: "accepted"))

    def sound(self, implementation: Any) -> Any:
        """The decorated implementation is right: a check that rejects it asks for too much."""
        self.sound_ones.append(implementation)
        return implementation

    def mutant(self, hint: str) -> Callable[[Any], Any]:
        """The decorated implementation has a fault; `hint` is for those whose check lets it pass."""
        def keep(implementation: Any) -> Any:
            self.mutants.append(implementation)
            self.checks.append(Check(f"{MUTANT} {len(self.mutants)}", hint, lambda rng: [(implementation,)],
                                     _failed, lambda one: "rejected"))
            return implementation
        return keep


def verdict(check: Callable[..., Any], implementation: Any) -> str:
    """What a learner's check says of an implementation, which it gets without its telling name."""
    if inspect.isfunction(implementation):
        def given(*args: Any, **options: Any) -> Any:
            return implementation(*args, **options)
        given.__signature__ = inspect.signature(implementation)  # type: ignore[attr-defined]
    else:
        given = implementation
    try:
        said = check(given)
    except AssertionError:
        return "rejected"
    return "accepted" if said is None or said else "rejected"


def _failed(check: Callable[..., Any], mutant: Any) -> str:
    """The same of a mutant, on which a check may also break down: a test that does has failed."""
    try:
        return verdict(check, mutant)
    except Exception:
        return "rejected"


def tutorials() -> Path:
    """The folder of the tutorials: in an installed package inside it, in a checkout beside it."""
    package = Path(__file__).parents[1]
    for folder in (package / "tutorials", package.parent / "tutorials"):
        if (folder / "exercises").is_dir():
            return folder
    raise FileNotFoundError(errno.ENOENT, "the tutorials are missing: install the package again", str(package))


@functools.cache
def ids() -> tuple[str, ...]:
    """The ids of all exercises, "03-softmax", in the order of the lessons, in which the easy ones come first."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(tutorials().glob("[0-9]*.py")))
    found = sorted(path.stem.replace("_", "-") for path in (tutorials() / "exercises").glob("[0-9]*.py"))
    return tuple(sorted(found, key=lambda id: (id[:2], text.find(f"**{id}**"))))


def exercise(id: str) -> Exercise:
    """The exercise of that id. One that does not exist is a ValueError that names those that are like it."""
    known = ids()
    if id not in known:
        near = get_close_matches(str(id), known, n=3) or [other for other in known if other[:2] == str(id)[:2]]
        raise ValueError(_("there is no exercise {id!r}").format(id=id) + "; " + (
            _("did you mean {ids}?").format(ids=", ".join(near)) if near else _("`learn exercises` lists them")))
    return _loaded(id, language())


@functools.cache
def _loaded(id: str, lang: str) -> Exercise:
    """The exercise, its texts in the language of now, which is `lang`."""
    path = tutorials() / "exercises" / f"{id.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"tinygrad_attn_exercise_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module                         # so that the source of a class in it can be found
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        error.add_note(f"in {path}")
        raise
    found: Exercise = module.exercise
    title, statement = (inspect.cleandoc(module.__doc__ or "") + "\n").split("\n", 1)
    found.id, found.title, found.path = id, _(title.rstrip(".")), path
    found.statement = statement.strip("\n") if lang == "en" else mapped(statement.strip("\n"), _)
    found.hints = tuple(map(_, found.hints))
    found.checks = [replace(one, name=one.name if one.name.startswith(MUTANT) else _(one.name), hint=_(one.hint))
                    for one in found.checks]
    found.mistakes = [replace(one, hint=_(one.hint)) for one in found.mistakes]
    for one in found.sound_ones if isinstance(found, Catch) else ():
        one.__doc__ = _(inspect.getdoc(one) or "") if one.__doc__ else None
    return found
