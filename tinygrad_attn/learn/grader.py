"""Floor 6.8. The grader: an answer beside the solution, on every input of every check.

What it says is for a learner: the smallest input that fails, what came, what was expected, and the hint that fits. It
never says anything of itself: whatever an answer does, raise, return a strange thing, or end the process, is a fact
about the answer.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import linecache
import os
import re
import sys
import tokenize
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..languages import _
from .exercise import Catch, Check, Exercise, Mistake, Predict, Write, exercise
from .imports import Forbidden, allowed, check_names, guarded_imports, refusal
from .isolation import Say, Stopped, apart, as_before
from .record import note
from .report import Entry, Report
from .values import Strange, as_data, beside, copies, equal, form, size, text_of, unchanged

SECONDS = 10.0                              # for all checks of one answer together
PRINTED = 2000                              # letters of what an answer prints are kept

Globals = list[dict[str, Any]]              # of the learner's modules, in which imports are guarded


def check(id: str, answer: Any, *, seconds: float | None = SECONDS) -> Report:
    """Grade an answer, print what was found, and return it: a Report, true if every check passed.

    `answer` is a function, or for a prediction a value. It runs apart from this process, for at most `seconds` in all;
    `seconds=None` runs it here and without limit, for a debugger. In a notebook or at a prompt, a solved exercise is
    noted in the progress that `python -m tinygrad_attn learn` shows. An unknown id is a ValueError.

    >>> from tinygrad_attn.learn import check
    >>> import numpy as np
    >>> def softmax(x):
    ...     return np.exp(x) / np.exp(x).sum()
    >>> report = check("03-softmax", softmax)           # doctest: +ELLIPSIS
    03-softmax: ...
    >>> report.passed
    False
    """
    found = exercise(id)
    report = grade(found, lambda own: _from_object(found, answer, own), seconds)
    if sys.stdout:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        print(str(report).encode(encoding, "replace").decode(encoding))
    if report and hasattr(sys, "ps1"):
        with contextlib.suppress(OSError):
            note("solved", id)
    return report


def check_file(id: str, path: Path | str, *, source: bytes | None = None, seconds: float | None = SECONDS) -> Report:
    """Grade the answer that a file defines, or that is given as its source; nothing is printed."""
    found = exercise(id)
    try:
        text = _decoded(Path(path).read_bytes() if source is None else source, path)
        code = _compiled(text, path, found.imports)
    except (Unusable, Forbidden) as error:
        return Report(id, found.title, fault=str(error))
    linecache.cache[str(path)] = len(text), None, text.splitlines(keepends=True), str(path)     # for lines of errors
    return grade(found, lambda own: _from_source(found, code, path, own), seconds)


class Unusable(Exception):
    """There is no answer to check."""


def _decoded(source: bytes, path: Path | str) -> str:
    """Python's source as text: UTF-8, with or without a byte order mark, unless its first lines say otherwise."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
        return source.decode(encoding).replace("\r\n", "\n")
    except (UnicodeDecodeError, SyntaxError):
        raise Unusable(_("{path} is no text in UTF-8").format(path=path)) from None


def _compiled(text: str, path: Path | str, imports: tuple[str, ...]) -> types.CodeType:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, str(path))
            _check_imports(tree, imports, path)
            return compile(tree, str(path), "exec", dont_inherit=True)
    except (RecursionError, MemoryError):
        raise Unusable(_("{path}: an expression in it is too long for Python").format(path=path)) from None
    except SyntaxError as error:
        place = _line(path, error.lineno) if error.lineno else path
        code = f": {error.text.strip()[:80]}" if error.text else ""
        raise Unusable(f"{place}: {_('this is no Python')}: {error.msg}{code}") from None
    except ValueError as error:
        raise Unusable(f"{path}: {_('this is no Python')}: {error}") from None


def _line(path: Path | str, number: int) -> str:
    return _("{path}, line {number}").format(path=path, number=number)


def _check_imports(tree: ast.Module, imports: tuple[str, ...], path: Path | str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if not allowed(name, imports):
                raise Forbidden(f"{_line(path, node.lineno)}: {refusal(name, imports)}")


def _from_source(found: Exercise, code: Any, path: Path | str, own: Globals) -> Any:
    """The answer of a file, which runs now."""
    sys.modules["answer"] = module = types.ModuleType("answer")     # where a dataclass looks itself up
    module.__file__ = str(path)
    own.append(vars(module))
    exec(code, vars(module))
    if found.name not in vars(module):
        raise Unusable(_("{path} does not define {name}").format(path=path, name=found.name))
    return _from_object(found, vars(module)[found.name], own)


def _from_object(found: Exercise, answer: Any, own: Globals) -> Any:
    """The answer, if it can be checked at all."""
    if isinstance(found, Predict):
        if answer is ... or answer is None:
            raise Unusable(_("there is no prediction yet: give answer a value"))
        return lambda: answer
    if not callable(answer):
        raise Unusable(_("the answer must be the function {name}, not {kind}: give its name, without parentheses")
                       .format(name=found.name, kind=type(answer).__name__))
    own += check_names(answer, found.imports)
    return answer


# ------------------------------------------------------------------------------------------------- the grading

def grade(found: Exercise, obtain: Callable[[Globals], Any], seconds: float | None = SECONDS) -> Report:
    """Obtain the answer and run all checks, apart from this process and within the time."""
    def work(say: Say) -> None:
        own: Globals = []
        with _surroundings(found, say, own, debugging=seconds is None):
            say(("at", _("the answer itself")))
            try:
                asked = _asked(found)
                answer = as_before(obtain, own)
            except (Unusable, Forbidden) as error:
                say(("fault", str(error)))
                return
            except (Stopped, KeyboardInterrupt):
                raise
            except BaseException as error:
                say(("fault", f"{_('the answer could not be run')}: {_told(error, None)}"))
                return
            try:
                _entries(found, answer, asked, say)
            except Forbidden as error:
                say(("fault", str(error)))
            except Exception as error:
                say(("fault", f"{_('the grader failed, and that is no fault of yours; please report it')}: {error!r}"))

    messages, ended = apart(work, seconds)
    said: dict[str, list[Any]] = {kind: [] for kind in ("at", "entry", "fault", "printed")}
    for kind, content in messages:
        said[kind].append(content)
    entries = {entry.check: entry for entry in said["entry"]}       # what came later knows the hints
    if ended and said["at"][-1:] != [_HINTS]:
        said["fault"].append(f"{(said['at'] or [_('the answer itself')])[-1]}: " + (
            _("stopped after {seconds:g} s. Is there a loop that does not end, or one that does far more than it "
              "needs?").format(seconds=seconds) if ended == "time" else _("the answer ended the process it ran in")))
    return Report(found.id, found.title, tuple(entries.values()), "".join(said["fault"][:1]), "".join(said["printed"]))


_HINTS = "the hints"


@contextlib.contextmanager
def _surroundings(found: Exercise, say: Say, own: Globals, debugging: bool) -> Iterator[None]:
    """Where an answer runs: what it prints is kept, `input()` finds no input, and imports are guarded. A debugger talks
    to its user, and may be imported."""
    with contextlib.ExitStack() as stack:
        if not debugging:
            stack.enter_context(contextlib.redirect_stdout(Printed(say)))
            stack.enter_context(contextlib.redirect_stderr(sys.stdout))
            before, sys.stdin = sys.stdin, stack.enter_context(open(os.devnull))
            stack.callback(setattr, sys, "stdin", before)
        state, usual = np.random.get_state(), np.random.default_rng
        stack.callback(np.random.set_state, state)          # answers that draw draw the same each time
        stack.callback(setattr, np.random, "default_rng", usual)
        np.random.seed(0)
        np.random.default_rng = lambda seed=0: usual(0 if seed is None else seed)
        stack.enter_context(np.errstate(all="ignore"))
        stack.enter_context(np.printoptions(suppress=False, sign="-", floatmode="maxprec", legacy=False))
        stack.enter_context(guarded_imports((*found.imports, "pdb") if debugging else found.imports,
                                            lambda globals: any(globals is known for known in own)))
        yield


class Printed(io.TextIOBase):
    """The beginning of what an answer prints, told at once, as an answer may not come to its end."""

    def __init__(self, say: Say) -> None:
        self.say, self.room = say, PRINTED

    def write(self, text: str) -> int:
        if self.room and text:
            self.say(("printed", _clean(text[:self.room])))
            self.room = max(0, self.room - len(text))
        return len(text)

    def close(self) -> None:
        """It stays open, whatever an answer does with it."""


@dataclass(frozen=True)
class Outcome:
    """What an answer did with one input: a value, or an error."""

    value: Any = None
    error: str = ""                         # as it is told
    kind: str = ""                          # its type
    message: str = ""

    def agrees(self, other: Outcome, tolerance: float) -> bool:
        """Whether two outcomes are the same, to within the tolerance. Of errors the type counts."""
        if self.kind or other.kind:
            return self.kind == other.kind
        return equal(self.value, other.value, tolerance)


@dataclass
class Asked:
    """The inputs of a check, what is right for them, and, when it has run, what the answer did."""

    inputs: list[tuple[Any, ...]]
    right: list[Outcome]
    outcomes: list[Outcome]


def _asked(found: Exercise) -> dict[Check, Asked]:
    """All inputs, with what is right for them: before the answer has run, and so has changed anything."""
    asked = {}
    for one in found.checks:
        inputs = [given if isinstance(given, tuple) else (given,) for given in one.inputs(np.random.default_rng(0))]
        right = [Outcome(as_data(one.expected(*copies(given)))) if one.expected else
                 outcome(one, found.reference, given) for given in inputs]
        asked[one] = Asked(inputs, right, [])
    return asked


def _entries(found: Exercise, answer: Any, asked: dict[Check, Asked], say: Say) -> None:
    """Say how each check went: at once, and again when all have run. The more is known of what an answer does, the
    surer is the mistake that it shows."""
    failing = {}
    for one, case in asked.items():
        say(("at", one.name))
        case.outcomes = [outcome(one, answer, given) for given in case.inputs]
        failing[one] = [i for i, (got, true) in enumerate(zip(case.outcomes, case.right))
                        if not got.agrees(true, one.tolerance)]
        say(("entry", Entry(one.name, not failing[one], len(case.inputs), len(failing[one]),
                            hint=one.hint if failing[one] else "")))
    say(("at", _HINTS))

    @functools.cache
    def alike(mistake: Mistake, one: Check) -> bool:
        """Whether a known mistake does on all inputs of a check what the answer does."""
        mine = [outcome(one, mistake.answer, given) for given in asked[one].inputs]
        return all(a.message == b.message and a.agrees(b, one.tolerance) for a, b in zip(mine, asked[one].outcomes))

    told: set[str] = set()
    for one, case in asked.items():
        if failing[one]:
            smallest = min(failing[one], key=lambda i: size(case.inputs[i]))
            got, true = case.outcomes[smallest], case.right[smallest]
            entry = Entry(one.name, False, len(case.inputs), len(failing[one]))
            if not got.error or got.error not in told:      # what fails everywhere in one way is told once
                entry = Entry(one.name, False, len(case.inputs), len(failing[one]),
                              _given(found, one, case.inputs[smallest]), *_told_apart(found, got, true),
                              _hint(found, one, asked, alike, told))
            told |= {entry.hint, got.error} - {""}
            say(("entry", entry))


def _told_apart(found: Exercise, got: Outcome, true: Outcome) -> tuple[str, str]:
    """What came, and what was expected. Of a prediction the right value is not told; and a verdict needs no words."""
    if isinstance(found, Catch):
        return got.error, ""
    if isinstance(found, Predict):
        return (got.error, "") if got.kind else (text_of(got.value), form(got.value, true.value))
    wanted = f"{_('an error')}: {true.kind}: {true.message}" if true.kind else text_of(true.value)
    return got.error or beside(got.value, true.value), wanted


def _hint(found: Exercise, one: Check, asked: dict[Check, Asked], alike: Callable[[Mistake, Check], bool],
          told: set[str]) -> str:
    """The hint of the known mistake that does here all that the answer does, and elsewhere most of it. A mistaken
    check must be one to the last verdict: those that let one mutant pass have little else in common. If no mistake is
    known, the hint is the check's own, unless something has been said already, or says itself."""
    telling = found.checks if isinstance(found, Catch) else [one]
    likely = [mistake for mistake in found.mistakes if all(alike(mistake, other) for other in telling)]
    if likely:
        hint = max(likely, key=lambda mistake: sum(alike(mistake, other) for other in found.checks)).hint
        return "" if hint in told else hint
    return "" if _says_all(found, one, asked) or (told and isinstance(found, Write)) else one.hint


def _says_all(found: Exercise, one: Check, asked: dict[Check, Asked]) -> bool:
    """Whether what is shown needs no hint: an input was changed, nothing was returned, all inputs of all checks raised
    the same error, or a prediction is of another sort than what is asked for."""
    outcomes = asked[one].outcomes
    if isinstance(found, Predict):
        return bool(form(outcomes[0].value, asked[one].right[0].value))
    errors = {(got.kind, got.message) for case in asked.values() for got in case.outcomes}
    return (any(got.kind == "changed" for got in outcomes)
            or all(got.value is None and not got.kind for got in outcomes)
            or (isinstance(found, Write) and bool(outcomes[0].kind) and len(errors) == 1))


def outcome(one: Check, answer: Any, given: tuple[Any, ...]) -> Outcome:
    """What an answer does with an input; it gets a copy, and must leave that as it is."""
    mine = copies(given)
    try:
        value = as_before(lambda: as_data(one.call(answer, *mine) if one.call else answer(*mine)))
    except (Stopped, Forbidden, KeyboardInterrupt):
        raise
    except Strange as error:
        return Outcome(error=str(error), kind="returned")
    except BaseException as error:
        return Outcome(error=_told(error, answer), kind=type(error).__name__, message=_comparable(error))
    for name, before, after in zip(_names(answer, len(given)), given, mine):
        if not unchanged(before, after):
            return Outcome(error=_("the input {name} was changed: make a new array, since += and [...] = write into it")
                           .format(name=name), kind="changed")
    return Outcome(value)


def _message(error: BaseException) -> str:
    try:
        return _clean(str(error))
    except Exception:
        return ""


def _comparable(error: BaseException) -> str:
    """What two answers with the same fault have in common of their message: not a name, and not how deep it was."""
    return "" if isinstance(error, RecursionError) else re.sub(r"^[\w.<>]+\(\) ", "", _message(error)[:1000])


def _clean(text: str) -> str:
    """Text that every file and terminal in UTF-8 takes."""
    return text.encode("utf-8", "replace").decode()


def _told(error: BaseException, answer: Any) -> str:
    """An error in one sentence, with the line of the learner's that raised it."""
    text = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    text = text if len(text) < 400 else text[:400] + " …"
    own = answer.__code__.co_filename if isinstance(answer, types.FunctionType) else None
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__
              and (frame.filename == own if own else frame.name == "<module>")]
    if not places or not places[-1].lineno:
        return _("raised {error}").format(error=text)
    code = f": {places[-1].line}" if places[-1].line else ""
    return _("raised {error} (line {number}{code})").format(error=text, number=places[-1].lineno, code=code)


def _given(found: Exercise, one: Check, given: tuple[Any, ...]) -> tuple[tuple[str, str], ...]:
    """The input as it is shown: by the names that the inputs have in the check, or else in the solution."""
    if isinstance(found, Catch):
        return tuple((_("given"), text) for text in [inspect.getdoc(given[0])] if text and one is found.checks[0])
    names = _names(one.call, len(given) + 1)[1:] if one.call else _names(found.reference, len(given))
    return tuple(zip(names, map(text_of, given)))


def _names(function: Any, n: int) -> list[str]:
    try:
        names = list(inspect.signature(function).parameters)
    except Exception:
        names = []
    return (names + [_("input {number}").format(number=i + 1) for i in range(len(names), n)])[:n]
