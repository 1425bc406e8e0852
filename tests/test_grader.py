"""The grader, and answers that want to break it: whatever an answer does is told of the answer, and the process that
grades is as it was before. Both ways of isolation are tried, the child process and, where none can be had, the trace
function."""

import builtins
import errno
import functools
import io
import itertools
import json
import math
import os
import pdb
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn import Tensor, cli
from tinygrad_attn.learn import Catch, Predict, Write, check, isolation
from tinygrad_attn.learn.grader import _from_object, check_file, grade
from tinygrad_attn.learn.values import equal

MISCHIEF = ("builtins", "itertools", "os", "signal", "sys", "threading", "time", "tinygrad_attn.Tensor", "warnings")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="only a process of its own can be killed")


def twice():
    found = Write("double", starter="def double(x):\n    ...\n", hints=["Which operator multiplies?"], imports=MISCHIEF)
    found.id, found.title = "99-double", "Twice a number"
    found.solution(lambda x: 2 * x)
    found.mistake("That is the square: equal to the double at 2 alone.")(lambda x: x * x)

    @found.check("one row", "Compare with what you get by hand.")
    def row(rng):
        yield np.array([1.0, 2.0])
        yield np.array([3.0])
        yield np.array([5.0, -1.0])

    @found.check("a matrix", "Is each element doubled?")
    def matrix(rng):
        yield rng.normal(size=(2, 3))
    return found


TWICE = twice()


def on(*inputs, solution, imports=(), tolerance=1e-9):
    """An exercise with one check."""
    found = Write("f", starter="def f(x):\n    ...\n", hints=["Think."], imports=imports)
    found.id, found.title = "99-f", "Something"
    found.solution(solution)
    found.check("all", "Look again.", tolerance=tolerance)(lambda rng: iter(inputs))
    return found


ALONE = on(np.array([1.0, 2.0]), np.array([[1.0, -3.0]]), solution=lambda x: 2 * x)


def graded(answer, found=TWICE, seconds=20):
    """The report on an answer, of which is always true what a learner may rely on."""
    report = grade(found, lambda own: _from_object(found, answer, own), seconds)
    text = str(report)
    text.encode()
    json.dumps(report.to_dict(), allow_nan=False)
    for internal in ("grader failed", "Traceback", "grader.py", "isolation.py", "raise TypeError("):
        assert internal not in text
    assert len(text) < 10_000
    return report


@pytest.fixture(params=["fork", "trace"])
def apart(request, monkeypatch):
    """Both ways to run an answer apart."""
    if request.param == "trace":
        monkeypatch.delattr(os, "fork", raising=False)
    elif not hasattr(os, "fork"):
        pytest.skip("no fork")
    return request.param


def failing(report):
    """The first failing check, which has an input, what came, and what was expected."""
    assert not report
    assert not report.fault, report.fault
    entry = next(entry for entry in report.entries if not entry.passed)
    assert entry.given
    assert entry.got
    assert entry.expected
    return entry


# --------------------------------------------------------------------------------------------------- what it reports

def test_a_right_answer_passes_every_check(apart):
    report = graded(lambda x: x + x)
    assert report
    assert [(entry.check, entry.inputs, entry.failed) for entry in report.entries] == [("one row", 3, 0),
                                                                                     ("a matrix", 1, 0)]
    assert str(report).endswith("Solved.")


def test_of_a_wrong_one_it_shows_what_passed_and_the_smallest_input_that_failed(apart):
    report = graded(lambda x: 2 * x if x.ndim > 1 else 2 * np.abs(x) + (x > 2))
    assert [entry.passed for entry in report.entries] == [False, True]
    entry = failing(report)
    assert (entry.given, entry.failed, entry.inputs) == ((("x", "[3.]"),), 2, 3)
    assert entry.got.startswith("[7.]")
    assert (entry.expected, entry.hint) == ("[6.]", "Compare with what you get by hand.")
    assert str(report).splitlines()[-1].startswith("  Not yet")


def test_a_known_mistake_gets_its_own_hint_and_gets_it_once(apart):
    report = graded(lambda x: x ** 2)
    assert [entry.hint for entry in report.entries] == [TWICE.mistakes[0].hint, ""]


def test_the_same_answer_gets_the_same_report(apart):
    def drawn(x):
        return x * np.random.default_rng(3).normal(size=x.shape)
    assert graded(drawn) == graded(drawn)
    assert str(graded(drawn)) == str(graded(drawn))


def test_a_report_with_nan_is_plain_data(apart):
    found = on(np.array([np.nan, 1.0]), solution=lambda x: x)
    entry = failing(graded(lambda x: x * np.inf, found))
    assert "nan" in entry.got
    assert graded(lambda x: x.copy(), found)


def test_check_prints_its_report_and_returns_it(apart, capsys):
    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)
    report = check("03-softmax", softmax)
    assert report
    assert capsys.readouterr() == (f"{report}\n", "")
    report = check("03-softmax", lambda x: softmax(x.T).T)
    assert not report
    assert capsys.readouterr() == (f"{report}\n", "")


@pytest.mark.parametrize(("got", "true", "same"), [
    (np.array([0.0, 5.0]), np.array([0.0, -np.inf]), False), (-1e300, -np.inf, False), (np.inf, -np.inf, False),
    (np.nan, np.inf, False), (np.inf, 1.0, False), (-np.inf, -np.inf, True), (np.nan, np.nan, True),
    (np.array([1, 0]), np.array([True, False]), False), (np.array([True]), np.array([True]), True),
    ([[1.0, 2.0]], np.array([[1, 2]]), True), ((1, 2), [1, 2], True), (np.array([1, 2]), (1, 2), True),
    (np.ones((2, 1)), np.ones(2), False), (1.0, np.ones(1), False), (np.uint8(255), np.uint8(0), False),
    (1 + 1e-12, 1.0, True), (1 + 1e-6, 1.0, False), (1e9 + 0.1, 1e9, True), (1e-12, 0.0, True),
    ("a", "a", True), ("3", 3, False), (None, 0.0, False), (None, None, True), ({"a": 1}, {"a": 1.0}, True),
    ({"a": 1}, {"b": 1}, False), ((1, (2, 3)), np.ones(2), False), (np.array([1.0], dtype=object), [1.0], False),
    (np.float32(0.1), 0.1, False), (2**63 - 1, -2**63, False), (np.str_("a"), "a", True)])
def test_what_is_equal(got, true, same):
    assert equal(got, true, 1e-9) is same


# ------------------------------------------------------------------------------------------------- strange values

class Evil:
    """An object on which everything raises."""

    def raising(self, *args, **options):
        raise RuntimeError("evil")

    __array__ = __bool__ = __len__ = __iter__ = __repr__ = __str__ = __float__ = __eq__ = raising
    __class__ = property(raising)
    __hash__ = object.__hash__


class EvilKey(Evil):
    __class__ = property(lambda self: EvilKey)


class EvilFloat(float):
    __array__ = __float__ = __repr__ = __eq__ = Evil.raising
    __hash__ = object.__hash__


class EvilText(str):
    __repr__ = __str__ = __eq__ = __len__ = Evil.raising
    __hash__ = object.__hash__


class EvilArray(np.ndarray):
    size = shape = ndim = property(Evil.raising)
    __repr__ = __eq__ = __array_function__ = __array_ufunc__ = Evil.raising
    __hash__ = object.__hash__


class TextOfItsOwn(str):
    def __repr__(self):
        return self


class EvilDict(dict):
    items = keys = __iter__ = Evil.raising


class EndlessList(list):
    def __iter__(self):
        return itertools.chain(super().__iter__(), map(self._more, itertools.count()))

    def _more(self, i):
        if i > 10:
            raise RuntimeError("enough")
        return i


def evils():
    """An array of such objects."""
    return np.frompyfunc(lambda i: Evil(), 1, 1)(np.arange(2))


def itself(x):
    return itself


def inside_itself(x):
    x = [x]
    x.append(x)
    return x


def deep(x):
    return functools.reduce(lambda inner, _: (inner,), range(400), x)


def generator(x):
    while True:
        yield x


async def coroutine(x):
    return 2 * x


STRANGE = {
    "None": lambda x: None, "a generator": generator, "a coroutine": coroutine, "an endless iterator": lambda x:
    itertools.count(), "a ragged list": lambda x: [[1.0], [2.0, 3.0]], "everything raises": lambda x: Evil(),
    "a list of those": lambda x: [Evil()], "a key that raises": lambda x: {EvilKey(): 1},
    "an array of those": lambda x: evils(), "evil floats": lambda x:
    EvilFloat(2), "evil texts": lambda x: EvilText("a"), "an evil array": lambda x: (2 * x + 1).view(EvilArray),
    "an evil dict": lambda x: EvilDict(a=1), "an evil list": lambda x: EndlessList([1]),
    "a text of its own": lambda x: TextOfItsOwn("a"), "NaN": lambda x: x * np.nan,
    "a huge integer": lambda x: 10 ** 5000, "a tuple of those": lambda x: (10 ** 5000, -10 ** 5000),
    "a complex array": lambda x: 2 * x + 1j, "itself": itself, "a list that is inside itself": inside_itself,
    "tuples in tuples": deep, "a text": lambda x: "2x", "half a surrogate": lambda x: "\ud800", "bytes": lambda x: b"2",
    "a class": lambda x: Evil, "a module": lambda x: np, "a record": lambda x: np.zeros(2, dtype="f4,i4"),
    "dates": lambda x: x.astype("M8[s]"), "texts": lambda x: x.astype(str), "a mixed set": lambda x: {1, "a"},
    "an empty list": lambda x: [], "another shape": lambda x: 2 * x[None], "an array of 8 TB": lambda x:
    np.broadcast_to(0.0, (10 ** 6, 10 ** 6)), "a long text": lambda x: "a" * 10 ** 6, "a long list": lambda x:
    list(range(3000)), "long texts": lambda x: np.array(["a" * 10_000] * 40), "a dict of arrays": lambda x:
    {i: np.ones(100) for i in range(40)}, "Ellipsis": lambda x: ...,
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_value_is_a_wrong_answer_and_is_shown_in_short(apart, name):
    entry = failing(graded(STRANGE[name]))
    assert len(entry.got) < 3000
    assert entry.expected == "[6.]"


RIGHT = {"a list": lambda x: (2 * x).tolist(), "a tensor": lambda x: Tensor(x) * 2, "a tensor with a gradient":
         lambda x: Tensor(x, requires_grad=True) * 2, "a matrix": lambda x: np.asmatrix(2 * x) if x.ndim > 1 else 2 * x,
         "a view": lambda x: np.repeat(2 * x, 2, axis=-1)[..., ::2], "a list of scalars and rows": lambda x:
         [row * 2 for row in x], "a buffer": lambda x: np.multiply(x, 2, out=np.empty(x.shape)), "Fortran's order":
         lambda x: np.asfortranarray(2 * x), "a frozen array": lambda x: np.broadcast_to(2 * x, x.shape)}


@pytest.mark.parametrize("name", RIGHT)
def test_right_numbers_may_come_in_many_forms(apart, name):
    assert graded(RIGHT[name])


def test_of_objects_that_look_like_the_right_numbers_it_says_what_they_are(apart):
    assert "object" in failing(graded(lambda x: (2 * x).astype(object))).got


def test_an_answer_may_use_a_buffer_again():
    buffer = np.zeros(2)
    assert graded(lambda x: np.multiply(x, 2, out=buffer), on(np.ones(2), np.zeros(2), solution=lambda x: 2 * x))


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("evil")

    __repr__ = __str__


ERRORS = {"silent": SilentError, "half a surrogate": lambda: ValueError("\ud800"), "long":
          lambda: ValueError("a" * 10 ** 6), "evil": lambda: ValueError(Evil()),
          "several": lambda: BaseExceptionGroup("two", [SystemExit(), ValueError()]),
          **{kind.__name__: kind for kind in (StopIteration, SystemExit, GeneratorExit, MemoryError, ImportError)}}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_told_with_its_type_and_its_line(apart, name):
    def double(x):
        raise ERRORS[name]()
    got = failing(graded(double)).got
    assert got.startswith(f"raised {type(ERRORS[name]()).__name__}")
    assert "raise ERRORS[name]()" in got


def test_a_solution_that_raises_wants_the_same_type_of_error_and_is_not_shown():
    def solution(x):
        if x.ndim > 1:
            raise ValueError("one axis only")
        return x
    found = on(np.ones(2), np.ones((2, 2)), solution=solution)

    def raising(error):
        def f(x):
            if x.ndim > 1:
                raise error
            return x
        return f
    assert graded(raising(ValueError("it must be a vector")), found), "no statement gives the words of a message"
    report = graded(raising(TypeError("one axis only")), found)
    assert "ValueError" in failing(report).expected
    assert 'raise ValueError("one axis only")' not in str(report)


def test_a_strange_value_is_no_type_error_where_one_is_wanted():
    def solution(x):
        raise TypeError("numbers only")
    assert not graded(lambda x: (i for i in x), on(np.ones(2), solution=solution))


# --------------------------------------------------------------------------------------------------- what does not end

def plain_loop(x):
    while True:
        x = x + 1


def one_line_loop(x):
    while True: pass                                            # noqa: E701


def swallowing_loop(x):
    while True:
        try:
            while True:
                x = x + 1
        except BaseException:
            pass


def finally_loop(x):
    while True:
        try:
            x = x + 1
        finally:
            continue                                         # noqa: B012


def comprehended(x):
    return [0 * i for i in iter(lambda: 1, 0)]


def summed(x):
    return sum(0 * i for i in itertools.count())


def loop_in_c(x):
    return list(itertools.repeat(0))


def sleeping(x):
    time.sleep(1000)


def stopped_by_a_signal(x):
    os.kill(os.getpid(), signal.SIGSTOP)


def printing(x):
    while True:
        print("and again" * 100)


LOOPS = [plain_loop, one_line_loop, swallowing_loop, finally_loop, comprehended, summed, loop_in_c, sleeping,
         stopped_by_a_signal, printing]


@forks
@pytest.mark.parametrize("answer", LOOPS, ids=lambda answer: answer.__name__)
def test_what_does_not_end_is_stopped(answer):
    start = time.monotonic()
    report = graded(answer, seconds=0.3)
    assert time.monotonic() - start < 5
    assert "stopped after 0.3 s" in report.fault
    assert not report


WITHOUT_FORK = """
import json, os, sys
from pathlib import Path
from tinygrad_attn.learn.grader import check_file
del os.fork
report = check_file("03-softmax", Path("answer.py"), source=sys.stdin.buffer.read(), seconds=0.3)
print(json.dumps(report.to_dict()))
"""


@pytest.mark.parametrize("answer", [one_line_loop, swallowing_loop, finally_loop, comprehended, summed],
                         ids=lambda answer: answer.__name__)
def test_what_does_not_end_is_stopped_without_a_process_of_its_own(answer):
    """In a process of the test's, as it would never end if this failed."""
    source = Path(__file__).read_text(encoding="utf-8").splitlines()[answer.__code__.co_firstlineno - 1:]
    body = [source[0], *itertools.takewhile(lambda line: not line or line.startswith(" "), source[1:])]
    text = "import itertools\n" + "\n".join(body).replace(f"def {answer.__name__}(", "def softmax(")
    try:
        run = subprocess.run([sys.executable, "-c", WITHOUT_FORK], input=text, capture_output=True, text=True,
                             timeout=6, cwd=Path(cli.__file__).parents[1])
    except subprocess.TimeoutExpired:
        pytest.fail("it goes on for ever")
    assert run.stderr == ""
    assert "stopped after 0.3 s" in json.loads(run.stdout)["fault"]


def test_a_loop_is_stopped_where_it_is_and_named_with_its_check(apart):
    def double(x):
        while x.ndim > 1:
            x = x + 0
        return 2 * x
    report = graded(double, seconds=0.3)
    assert report.fault.startswith("a matrix: stopped after 0.3 s")


def test_what_passed_before_a_loop_is_told(apart):
    def double(x):
        while x.ndim > 1:
            x = x + 0
        return 2 * x
    report = graded(double, seconds=0.3)
    assert [(entry.check, entry.passed) for entry in report.entries] == [("one row", True)]


def test_what_was_printed_before_a_loop_is_shown(apart):
    def double(x):
        print("the shape is", x.shape)
        while True:
            x = x + 0
    assert "the shape is (2,)" in graded(double, seconds=0.3).printed


def test_what_was_printed_before_an_error_at_the_top_is_shown(apart, tmp_path):
    report = check_file("03-softmax", tmp_path / "answer.py", source=b"print('so far')\n1 / 0\n")
    assert "ZeroDivisionError" in report.fault
    assert report.printed == "so far\n"


def test_an_endless_recursion_is_an_error(apart):
    def double(x):
        return double(x)
    assert failing(graded(double)).got.startswith("raised RecursionError")


# ------------------------------------------------------------------------------------------- the end of its process

def leaving(x):
    os._exit(0)


def killed(x):
    os.kill(os.getpid(), 9)


def closing_files(x):
    os.closerange(3, 256)
    return 2 * x


@forks
@pytest.mark.parametrize("answer", [leaving, killed, closing_files], ids=lambda answer: answer.__name__)
def test_an_answer_that_ends_its_process_ends_no_other(answer):
    report = graded(answer)
    assert not report
    assert report.fault


HOARD = []


def hoarding(x):
    while True:
        HOARD.append(np.ones(10 ** 6))


def filling(x):
    hoard = []
    while True:
        hoard.append(bytearray(10 ** 6))


@forks
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is not limited here")
@pytest.mark.parametrize("answer", [hoarding, filling], ids=lambda answer: answer.__name__)
def test_an_answer_that_fills_memory_is_told_so(answer, monkeypatch):
    monkeypatch.setattr(isolation, "MEMORY", 1 << 28)
    assert failing(graded(answer)).got.startswith("raised MemoryError")
    assert not HOARD


def test_input_waits_for_nobody(apart):
    def double(x):
        return float(input("which? ")) * x
    report = graded(double)
    assert failing(report).got.startswith("raised EOFError")
    assert report.printed.startswith("which?")


def test_a_breakpoint_waits_for_nobody(apart, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)

    def double(x):
        breakpoint()
        return 2 * x
    graded(double)


def test_without_a_limit_it_runs_here_for_a_debugger(monkeypatch):
    """One that can be talked to."""
    met = []
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.setattr(pdb, "set_trace", lambda **options: met.append((os.getpid(), sys.stdin, sys.stdout)))

    def double(x):
        breakpoint()
        return 2 * x
    assert graded(double, seconds=None)
    assert met[:1] == [(os.getpid(), sys.stdin, sys.stdout)]


def test_without_a_limit_ctrl_c_is_no_error_of_the_answer():
    def double(x):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        graded(double, seconds=None)


# ------------------------------------------------------------------------------------------------- what it prints

def test_what_an_answer_prints_is_shown_and_is_not_mixed_with_the_report(apart, capfd):
    def double(x):
        print("one")
        print("two", file=sys.stderr)
        warnings.warn("three", stacklevel=1)
        return 2 * x
    report = graded(double)
    assert report
    assert report.printed.startswith("one\ntwo\none\n")
    assert "your answer printed:\n        one\n        two" in str(report)
    assert capfd.readouterr() == ("", "")


def test_of_megabytes_it_shows_the_beginning(apart):
    def double(x):
        print("x" * 10 ** 7)
        return 2 * x
    report = graded(double)
    assert report
    assert 0 < len(report.printed) < 5000


def test_half_a_surrogate_can_be_printed(apart, capsys):
    def softmax(x):
        print("\ud800")
        raise ValueError("\udfff")
    assert not check("03-softmax", softmax)
    assert "ValueError" in capsys.readouterr().out


def test_a_terminal_without_the_characters_is_no_reason_to_fail(apart, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)

    def softmax(x):
        raise ValueError("λ is too large")
    assert not check("03-softmax", softmax)
    stream.flush()
    assert b"is too large" in stream.buffer.getvalue()


def test_without_any_terminal_it_goes_on(apart, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert not check("03-softmax", lambda x: x)


# ------------------------------------------------------------------------------------------ what it changes globally

def changed(x):
    x *= 2
    return x


def test_an_answer_must_leave_its_input_alone(apart):
    got = failing(graded(changed)).got
    assert got.startswith("the input x was changed")


def test_inputs_inside_lists_must_be_left_alone_too(apart):
    def total(xs):
        found = sum(x.sum() for x in xs)
        xs[0][:] = 7
        return found
    for given in ([np.ones(2), np.ones(3)], (np.ones(2), np.ones(3))):
        assert "was changed" in failing(graded(total, on((given,), solution=lambda xs: sum(x.sum() for x in xs)))).got


def test_a_tensor_is_given_without_the_gradient_that_the_solution_left_in_it(apart):
    def gradient(x):
        (x * x).sum().backward()
        return x.grad
    found = on(Tensor(np.array([1.0, -2.0]), requires_grad=True), solution=gradient)
    assert graded(lambda x: gradient(x), found)
    assert graded(lambda x: gradient(x), found), "and it is the same the second time"


def seterr(x):
    np.seterr(all="raise")
    return np.exp(np.full(x.shape, 1e5)) if x.ndim > 1 else 2 * x


def test_errors_asked_for_are_errors_of_the_answer_alone(apart):
    found = on(np.array([1.0]), np.array([-1000.0, 0.0]), solution=lambda x: np.exp(x))

    def f(x):
        np.seterr(all="raise")
        return np.exp(x)
    assert "FloatingPointError" in failing(graded(f, found)).got
    before = np.geterr()
    failing(graded(seterr))
    assert np.geterr() == before


def test_print_options_of_an_answer_change_nothing_in_its_report(apart):
    with np.printoptions():
        def plain(x):
            return 3 * x

        def rounded(x):
            np.set_printoptions(precision=0, suppress=True, formatter={"float": lambda number: 1 / 0})
            return 3 * x
        assert graded(rounded) == graded(plain)


def cheating(x):
    for name in ("all", "allclose", "array_equal", "isclose", "isfinite"):
        setattr(np, name, lambda *args, **options: True)
    np.abs = np.exp = np.maximum = lambda x, *rest: 0 * x
    return x


def breaking(x):
    for name in ("abs", "all", "array_equal", "array2string", "asarray", "errstate", "isfinite", "maximum", "ndarray"):
        setattr(np, name, None)
    return 2 * x


def deleting(x):
    for name in ("len", "zip", "isinstance", "enumerate", "str", "print", "min", "max", "sum"):
        delattr(builtins, name)
    return 2 * x


def closing(x):
    sys.stdout.close()
    sys.stderr.close()
    return 3 * x


def replacing(x):
    sys.stdout = sys.stderr = sys.stdin = None
    return 3 * x


@forks
def test_functions_of_numpy_replaced_do_not_make_it_right():
    assert not graded(cheating)


@forks
@pytest.mark.parametrize("answer", [breaking, deleting], ids=lambda answer: answer.__name__)
def test_what_breaks_numpy_or_python_is_not_told_of_the_grader(answer):
    """Whether it then passes is of no matter."""
    graded(answer)


@pytest.mark.parametrize("answer", [closing, replacing], ids=lambda answer: answer.__name__)
def test_streams_closed_or_replaced_are_no_trouble(apart, answer):
    assert failing(graded(answer)).got.startswith("[9.]")


def test_afterwards_all_is_as_it_was(apart):
    def state():
        return (sys.stdin, sys.stdout, sys.stderr, sys.gettrace(), builtins.__import__, np.geterr(),
                warnings.filters[:])

    def messy(x):
        sys.stdin = sys.stdout = sys.stderr = None
        np.seterr(all="raise")
        warnings.simplefilter("always")
        raise SystemExit
    before = state()
    for answer in (messy, plain_loop):
        graded(answer, seconds=0.3)
        assert state() == before


def test_time_that_is_over_at_any_moment_leaves_all_as_it_was(monkeypatch):
    """In one process, where an answer is stopped by an error that is raised in any line."""
    ticks, end = 0, math.inf

    def monotonic():
        nonlocal ticks
        ticks += 1
        return 0.0 if ticks < end else 1e6

    def state():
        return sys.stdin, sys.stdout, sys.stderr, sys.gettrace(), builtins.__import__, np.geterr()
    monkeypatch.delattr(os, "fork", raising=False)
    monkeypatch.setattr(isolation, "time", types.SimpleNamespace(monotonic=monotonic))
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))                  # put back if this fails
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    before = state()
    grade(ALONE, lambda own: lambda x: 2 * x)
    last = ticks
    for end in [*range(2, 100), *range(max(last - 300, 100), last + 2)]:
        ticks = 0
        with np.errstate():
            grade(ALONE, lambda own: lambda x: 2 * x)
            assert state() == before, end


def test_warnings_that_are_errors_here_are_none_in_an_answer(apart):
    def double(x):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return np.where(x == x, 2 * x, np.log(0 * x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graded(double)


@forks
def test_threads_of_an_answer_do_not_keep_it_alive():
    def double(x):
        threading.Thread(target=threading.Event().wait).start()
        return 2 * x
    start = time.monotonic()
    assert graded(double)
    assert time.monotonic() - start < 10


# ------------------------------------------------------------------------------------------- what may be imported

USES = {
    "from at the top": "from statistics import mean\ndef double(x): return x * mean([2])",
    "another name": "import statistics as s\ndef double(x): return x * s.mean([2])",
    "another function's name": "from statistics import mean as sum\ndef double(x): return x * sum([2])",
    "inside": "def double(x):\n    import statistics\n    return x * statistics.mean([2])",
    "from, inside": "def double(x):\n    from statistics import mean\n    return x * mean([2])",
    "importlib": "import importlib\ndef double(x): return x * importlib.import_module('statistics').mean([2])",
    "__import__": "def double(x): return x * __import__('statistics').mean([2])",
    "exec": "def double(x):\n    exec('import statistics as s; globals().update(s=s)')\n    return x * s.mean([2])",
    "a helper": "import statistics as s\ndef two(): return s.mean([2])\ndef double(x): return x * two()",
    "a helper that imports": "def two():\n    import statistics\n    return statistics.mean([2])\n"
                             "def double(x): return x * two()",
    "a function inside": "def double(x):\n    def two():\n        import statistics as s\n        return s.mean([2])\n"
                         "    return x * two()",
    "a lambda": "from statistics import mean\ndouble = lambda x: x * mean([2])",
    "partial": "import statistics as s\nfrom functools import partial\n"
               "double = partial(lambda n, x: x * s.mean([n]), 2)",
    "partial of it": "import statistics as s\nfrom functools import partial\ntwo = partial(s.mean, [2])\n"
                     "def double(x): return x * two()",
    "a default": "import statistics\ndef double(x, mean=statistics.mean): return x * mean([2])",
    "a default by name": "import statistics\ndef double(x, *, mean=statistics.mean): return x * mean([2])",
    "__call__": "import statistics as s\nclass Double:\n    def __call__(self, x): return x * s.mean([2])\n"
                "double = Double()",
    "__call__ that imports": "class Double:\n    def __call__(self, x):\n        import statistics\n"
                             "        return x * statistics.mean([2])\ndouble = Double()",
    "a bound method": "import statistics as s\nclass Double:\n    def __init__(self): pass\n"
                      "    def go(self, x): return x * s.mean([2])\ndouble = Double().go",
    "a method behind one": "import statistics as s\nclass Double:\n    def two(self): return s.mean([2])\n"
                           "    def go(self, x): return x * self.two()\ndouble = Double().go",
    "a static method": "import statistics as s\nclass Double:\n    @staticmethod\n    def two(): return s.mean([2])\n"
                       "def double(x): return x * Double.two()",
    "an object that is called": "import statistics as s\nclass Two:\n    def __call__(self): return s.mean([2])\n"
                                "two = Two()\ndef double(x): return x * two()",
    "decorated": "import statistics as s\nfrom functools import wraps\ndef plain(f):\n    @wraps(f)\n"
                 "    def inner(*args): return f(*args)\n    return inner\n"
                 "@plain\ndef double(x): return x * s.mean([2])",
    "a cached helper": "import statistics as s\nfrom functools import cache\n@cache\ndef two(): return s.mean([2])\n"
                       "def double(x): return x * two()",
    "in a table": "import statistics as s\ntable = {'mean': s.mean}\ndef double(x): return x * table['mean']([2])",
    "by numpy": "import numpy as np, statistics as s\nmean = np.vectorize(lambda x: s.mean([x]))\n"
                "def double(x): return x * mean(2)",
    "of this package": "from tinygrad_attn import functional as F\n"
                       "def double(x): return x + F.softmax(x, axis=-1) - F.softmax(x, axis=-1) + x",
}
INNOCENT = {
    "numpy by any name": "import numpy as anything\ndef double(x): return anything.add(x, x)",
    "numpy.linalg": "import numpy as np\nfrom numpy.linalg import norm\n"
                    "def double(x): return x * 2 * norm(np.ones(1)) * np.linalg.det(np.eye(2))",
    "numpy.random": "import numpy as np\nrng = np.random.default_rng(0)\nfrom numpy.random import normal\n"
                    "def double(x): return 2 * x + 0 * rng.normal() + 0 * normal()",
    "math": "import math\nfrom math import exp, pi\ndef double(x): return x * 2 * exp(0) * math.cos(0) + 0 * pi",
    "operator": "import operator\ndef double(x): return operator.mul(x, 2)",
    "from operator": "from operator import mul\ndef double(x): return mul(x, 2)",
    "functools": "import functools\ndef double(x): return functools.reduce(lambda a, b: a + b, [x, x])",
    "from functools": "from functools import reduce\ndef double(x): return reduce(lambda a, b: a + b, [x, x])",
    "from itertools": "from itertools import repeat\nfrom collections import defaultdict, deque\n"
                      "def double(x): return sum(repeat(x, 2)) + 0 * len(deque()) + 0 * len(defaultdict(int))",
    "typing": "from typing import Any, Callable, NamedTuple\nclass P(NamedTuple):\n    a: Any\n"
              "def double(x: Any, *rest: Any, **more: Callable[[int], int]) -> Any: return P(x * 2).a",
    "a dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    a: object\n"
                   "    def twice(self): return self.a * 2\ndef double(x): return P(x).twice()",
    "a closure": "def times(n):\n    def by(x): return n * x\n    return by\ndouble = times(2)",
    "constants": "TWO, NAMES = 2, {'two': 2}\ndef double(x): return TWO * x * NAMES['two'] / 2",
    "defaults": "def double(x, n=2, *args, m=1, **options): return n * m * x",
    "any arguments": "def double(*args): return 2 * args[0]",
    "helpers": "def one(x): return x\ndef two(x): return one(x) + one(x)\ndef double(x): return two(x)",
    "recursion": "def double(x, n=2): return x + double(x, n - 1) if n else 0",
    "a lambda": "double = lambda x: 2 * x",
    "partial": "from functools import partial\ndouble = partial(lambda n, x: n * x, 2)",
    "__call__": "class Double:\n    def __call__(self, x): return 2 * x\ndouble = Double()",
    "a bound method": "class Double:\n    def go(self, x): return 2 * x\ndouble = Double().go",
    "decorated": "from functools import wraps\ndef plain(f):\n    @wraps(f)\n    def inner(*args): return f(*args)\n"
                 "    return inner\n@plain\ndef double(x): return 2 * x",
    "ufuncs": "import numpy as np\ndouble = np.frompyfunc(lambda x: x * 2, 1, 1)\n"
              "_double = double\ndef double(x): return _double(x).astype(float)",
    "a forbidden module that is not used": "import statistics, json\ndef double(x): return 2 * x",
    "a method named like what is forbidden": "from statistics import mean\nimport json as sum\n"
                                             "def double(x): return 2 * x + 0 * x.mean() + 0 * x.sum()",
    "imports inside": "def double(x):\n    import math, numpy as np, numpy.linalg, collections.abc\n"
                      "    from functools import reduce\n    from typing import Any\n    return np.multiply(x, 2)",
    "an import tried": "def double(x):\n    try:\n        import statistics\n    except ImportError:\n"
                       "        return 2 * x\n    return x",
    "copies of every kind": "def double(x): return 2 * x.copy().astype('f8').__deepcopy__({}) + 0 * len(x.dumps())",
    "printing": "def double(x): print(x, f'{x}', repr(x)); return 2 * x",
}


def from_notebook(source):
    """What `check` gets in a notebook where a cell with this source was run."""
    known = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), known)
    return known["double"]


@pytest.mark.parametrize("name", USES)
def test_what_an_exercise_does_not_allow_is_refused(name):
    answer = from_notebook(USES[name])
    np.testing.assert_allclose(np.asarray(answer(np.ones(2))), 2)           # it would be right
    report = graded(answer, ALONE)
    assert not report
    said = report.fault + "".join(entry.got for entry in report.entries)
    assert "is not allowed here" in said, said


@pytest.mark.parametrize("name", INNOCENT)
def test_what_is_innocent_is_not_refused(name):
    report = graded(from_notebook(INNOCENT[name]), ALONE)
    assert report, str(report)


def test_a_ufunc_of_another_package_is_no_function_of_numpy():
    known = {"__name__": "__main__", "inv": np.linalg._umath_linalg.inv}       # NumPy has no `np.inv`
    exec("def double(x): return 2 * x + 0 * inv(x)", known)
    assert "is not allowed here" in graded(known["double"], ALONE).fault


@pytest.mark.parametrize("answer", [np.ones(2), 2, None, "double", (lambda x: x,)], ids=repr)
def test_what_is_no_function_is_told_so(answer):
    report = graded(answer)
    assert "must be the function double" in report.fault
    assert type(answer).__name__ in report.fault


class EvilCallable(Evil):
    __class__ = property(lambda self: EvilCallable)
    __signature__ = property(Evil.raising)

    def __call__(self, x):
        return x

    def __getattr__(self, name):
        raise RuntimeError(name)


class Unsigned:
    __signature__ = property(Evil.raising)

    def __call__(self, x):
        x *= 2
        return x


CALLABLES = {"evil": EvilCallable(), "without a signature": Unsigned(), "a class": Evil, "type": type, "exp": np.exp,
             "print": print, "len": len, "partial": functools.partial(print)}


@pytest.mark.parametrize("name", CALLABLES)
def test_strange_callables_are_wrong_answers(apart, name):
    assert not graded(CALLABLES[name])


# ------------------------------------------------------------------------------------------------------- predictions

@pytest.fixture(scope="module")
def four():
    found = Predict(starter="answer = ...\n", hints=["Count."], tolerance=0.02)
    found.id, found.title = "99-four", "How many?"
    found.solution(lambda: 4.0)
    return found


@pytest.mark.parametrize("value", [4, 4.0, 4.01, np.float32(4), np.array(4.0), Tensor(4.0),
                                   Tensor(4.0, requires_grad=True)], ids=repr)
def test_a_prediction_that_is_near_is_right(four, value, apart):
    assert graded(value, four)


WRONG = {"3": 3, "NaN": math.nan, "infinity": math.inf, "a text": "4", "a boolean": True, "a list": [4], "nothing": (),
         "a set": {4}, "a dict": {"a": 4}, "bytes": b"4", "a range": range(4), "a function": len, "a class": Evil,
         "a huge integer": 10 ** 5000, "a mixed set": {1, "a"}, "a ragged list": [[1], [2, 3]], "surrogate": "\ud800",
         "a key that raises": {EvilKey(): 1}, "a list of what raises": [Evil()], "an evil float": EvilFloat(5),
         "an iterator": iter([4]), "objects": evils(), "masked": np.ma.masked}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_right_prediction_is_wrong_and_the_right_one_is_not_told(four, name, apart):
    report = graded(WRONG[name], four)
    assert not report
    (entry,) = report.entries
    assert entry.got
    assert entry.expected in ("", "a number")               # the sort of thing that is asked for, and no more
    assert entry.given == ()
    assert "Count." in str(report) or entry.expected


@pytest.mark.parametrize("value", [None, ...])
def test_no_prediction_is_not_a_wrong_one(four, value):
    assert graded(value, four).fault.startswith("there is no prediction yet")


# ------------------------------------------------------------------------------------------------ checks that catch

@pytest.fixture(scope="module")
def positive():
    found = Catch("check_abs", starter="def check_abs(f):\n    ...\n", hints=["Which numbers are special?"],
                  imports=MISCHIEF, too_strict="It rejects what is right.")
    found.id, found.title = "99-abs", "Is it the absolute value?"

    @found.sound
    def sound(x):
        """the larger one of x and -x"""
        return max(x, -x)

    @found.mutant("What of numbers below zero?")
    def identity(x):
        return x

    @found.mutant("What of one above zero?")
    def negated(x):
        return -x if x > 0 else abs(x)
    return found


def asserting(f):
    if f(-2) != 2 or f(3) != 3:
        raise AssertionError                # as `assert` is here pytest's own


@pytest.mark.parametrize("check_abs", [
    asserting, lambda f: f(-2) == 2 and f(3) == 3, lambda f: np.bool_(f(-2) + f(3) == 5),
    lambda f: 1 / (f(-2) == 2 and f(3) == 3)], ids=["assert", "bool", "numpy", "raises"])
def test_a_check_may_assert_return_false_or_break_down_on_a_mutant(positive, check_abs, apart):
    assert graded(check_abs, positive)


@pytest.mark.parametrize(("check_abs", "hint"), [
    (lambda f: False, "It rejects what is right."), (lambda f: 1 / 0, "It rejects what is right."),
    (lambda f: None, "What of numbers below zero?"), (lambda f: f(-2) == 2, "What of one above zero?"),
    (lambda f: np.array([True, f(-2) == 2]), "It rejects what is right.")])
def test_a_check_that_catches_too_much_or_too_little_gets_the_hint_for_it(positive, check_abs, hint, apart):
    report = graded(check_abs, positive)
    assert not report
    assert next(entry.hint for entry in report.entries if entry.hint) == hint


def test_a_check_does_not_get_the_names_of_mutants(positive, apart):
    """Each is a function like any other."""
    graded(lambda f: print(f.__name__, f, f.__doc__), positive)
    report = graded(lambda f: print(f.__name__, f.__qualname__, f.__doc__), positive)
    assert not any(name in report.printed for name in ("identity", "negated", "mutant"))


def test_a_check_that_loops_on_a_mutant_is_stopped(positive, apart):
    def check_abs(f):
        while f(-2) != 2:
            time.sleep(0.001)
        return f(3) == 3
    report = graded(check_abs, positive, seconds=0.3)
    assert "stopped after 0.3 s" in report.fault


# ------------------------------------------------------------------------------------------------------------ files

SOFTMAX = textwrap.dedent("""\
    import numpy as np


    def softmax(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)
    """)
READABLE = {
    "as it is": SOFTMAX, "with a byte order mark": "\ufeff" + SOFTMAX, "with CRLF": SOFTMAX.replace("\n", "\r\n"),
    "with tabs": SOFTMAX.replace("    ", "\t"), "without a last newline": SOFTMAX.rstrip(),
    "with a name in it": "if __name__ == '__main__':\n    1 / 0\n" + SOFTMAX,
    "with \\sum in its docstring": '"""\\sum \\d"""\n' + SOFTMAX, "with a doubtful line": SOFTMAX + "assert (1, 'a')\n",
    "with functools": "from functools import reduce\n" + SOFTMAX.replace("return e", "return reduce(np.add, [0, e])"),
    "with operator": "from operator import sub\n" + SOFTMAX.replace("x - x.max(axis=-1, keepdims=True)",
                                                                    "sub(x, x.max(axis=-1, keepdims=True))"),
    "with print options": SOFTMAX + "np.set_printoptions(precision=1, suppress=True)\n",
    "with another encoding": b"# -*- coding: latin-1 -*-\n# \xe9\n" + SOFTMAX.encode(),
    "with a dataclass": "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n"
                        "    a: int = 0\n" + SOFTMAX,
    "with annotations": SOFTMAX.replace("(x)", "(x: int)") + "assert softmax.__annotations__ == {'x': int}\n",
    "with a NamedTuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    a: int = 0\n" + SOFTMAX,
}
UNREADABLE = {
    "a syntax error": ("def softmax(x:\n", "line 1"), "tabs and spaces": ("def f(x):\n\tx\n        x\n", "line 3"),
    "nothing": ("", "does not define softmax"), "a wrong name": ("def soft_max(x): return x\n", "not define softmax"),
    "a value": ("softmax = 3\n", "must be the function softmax, not int"), "None": ("softmax = None\n", "NoneType"),
    "NUL": (SOFTMAX + "\0", "null byte"), "Latin-1": (b"# \xe9\n" + SOFTMAX.encode(), "UTF-8"),
    "UTF-16": (SOFTMAX.encode("utf-16"), "UTF-8"), "return outside": (SOFTMAX + "return 3\n", "line 7"),
    "an error": (SOFTMAX + "1 / 0\n", "ZeroDivisionError: division by zero (line 7: 1 / 0)"),
    "a silent error": ("class E(Exception):\n    def __str__(self): raise E\nraise E\n", "raised E"),
    "the end": (SOFTMAX + "raise SystemExit(3)\n", "SystemExit"),
    "half a surrogate": (SOFTMAX + "raise ValueError('\\ud800')\n", "ValueError"),
    "many minuses": ("x = " + "-" * 100_000 + "1\n", ""), "a long sum": ("x = " + "1+" * 100_000 + "1\n", ""),
    "many parentheses": ("x = " + "(" * 1000 + ")" * 1000 + "\n", "parentheses"),
    "an import": ("import os\n" + SOFTMAX, "line 1: os is not allowed here"),
    "an import inside": (SOFTMAX.replace("    e =", "    from scipy.special import softmax\n    e ="),
                         "line 5: scipy.special.softmax is not allowed here"),
    "__import__": ("__import__('statistics')\n" + SOFTMAX, "statistics is not allowed here"),
}


def written(content, folder):
    path = folder / "answer.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def told(report):
    text = str(report)
    text.encode()
    json.dumps(report.to_dict(), allow_nan=False)
    assert "grader failed" not in text
    return " ".join(text.split())           # however it is broken into lines


@pytest.mark.parametrize("name", READABLE)
def test_a_file_may_be(name, tmp_path):
    report = check_file("03-softmax", written(READABLE[name], tmp_path))
    assert report, told(report)


@pytest.mark.parametrize("name", UNREADABLE)
def test_of_a_file_that_is_no_answer_it_says_why(name, tmp_path, apart):
    content, why = UNREADABLE[name]
    report = check_file("03-softmax", written(content, tmp_path))
    assert why in told(report)
    assert report.fault
    assert not report


def test_a_class_is_called_like_a_function(tmp_path):
    report = check_file("03-softmax", written("class softmax:\n    def __init__(self, x): pass\n", tmp_path))
    assert "it returned softmax, which is no array and no number" in told(report)


def test_a_file_that_loops_is_stopped(tmp_path, apart):
    report = check_file("03-softmax", written("while True:\n    x = 1\n", tmp_path), seconds=0.3)
    assert "stopped after 0.3 s" in report.fault


def test_a_path_may_be_a_text(tmp_path):
    assert check_file("03-softmax", str(written(SOFTMAX, tmp_path)))


@pytest.mark.parametrize("name", [".", "nowhere.py", "nowhere/answer.py"])
def test_the_command_says_that_there_is_no_file(name, tmp_path, capsys):
    assert cli.main(["learn", "check", "03-softmax", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert name in err or str(tmp_path) in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("content", ["print('\\ud800')\n", "import numpy as np\ndef softmax(x): return x * np.nan\n"])
def test_the_command_prints_json_of_anything(content, tmp_path, capsys):
    assert cli.main(["learn", "check", "03-softmax", str(written(content, tmp_path)), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.parametrize(("id", "near"), [
    ("03_softmax", "03-softmax"), ("softmax", "03-softmax"), ("03-softmx", "03-softmax"), ("03", "03-softmax"),
    ("03-softmax\n", "03-softmax"), ("", "learn exercises"), ("99-x", "learn exercises"), (None, ""), (3, ""), ([], ""),
    (len, "")])
def test_an_unknown_exercise_is_a_value_error_that_names_those_like_it(id, near):
    with pytest.raises(ValueError, match="there is no exercise") as error:
        check(id, len)
    assert near in str(error.value)


# --------------------------------------------------------------------------------------------- what it leaves behind

def children():
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


linux = pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs /proc")


@linux
def test_two_hundred_checks_leave_no_process_and_no_open_file():
    before = children(), descriptors()
    for answer in itertools.islice(itertools.cycle([lambda x: 2 * x, leaving, lambda x: None, killed]), 200):
        grade(ALONE, lambda own, answer=answer: answer)
    assert (children(), descriptors()) == before


@pytest.fixture
def interrupt(monkeypatch):
    """Ctrl-C in 0.3 s."""
    def pressed(*args):
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGALRM, pressed)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@linux
@pytest.mark.parametrize("seconds", [20, None])
def test_ctrl_c_ends_a_check_and_leaves_no_mess(apart, interrupt, seconds):
    def state():
        return (children(), descriptors(), sys.stdin, sys.stdout, sys.stderr, sys.gettrace(), builtins.__import__,
                np.geterr())
    before, start = state(), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        graded(plain_loop, seconds=seconds)
    assert time.monotonic() - start < 5
    assert state() == before


def test_it_works_beside_running_threads(apart):
    done = threading.Event()
    beside = [threading.Thread(target=lambda: [np.ones(100).sum() for _ in iter(done.is_set, True)]) for _ in range(2)]
    for thread in beside:
        thread.start()
    try:
        assert graded(lambda x: 2 * x)
    finally:
        done.set()
        for thread in beside:
            thread.join()


def test_it_works_in_a_thread(apart):
    found = []
    thread = threading.Thread(target=lambda: found.extend([graded(lambda x: 2 * x), graded(plain_loop, seconds=0.3)]))
    thread.start()
    thread.join()
    assert found[0]
    assert "stopped after" in found[1].fault


@forks
def test_it_works_where_children_are_not_waited_for():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert graded(lambda x: 2 * x)
    finally:
        signal.signal(signal.SIGCHLD, before)


@forks
def test_it_works_with_a_thousand_open_files(monkeypatch):
    fcntl, resource = pytest.importorskip("fcntl"), pytest.importorskip("resource")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("so many are not allowed")
    pipe = os.pipe

    def high():
        low = pipe()
        found = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 1100) for fd in low)
        for fd in low:
            os.close(fd)
        return found
    monkeypatch.setattr(os, "pipe", high)
    assert graded(lambda x: 2 * x)


@linux
def test_where_a_fork_fails_it_does_without(monkeypatch):
    def fork():
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    monkeypatch.setattr(os, "fork", fork)
    before = descriptors()
    assert graded(lambda x: 2 * x)
    assert descriptors() == before


@pytest.mark.parametrize("platform", ["emscripten", "wasi"])
def test_in_a_browser_it_does_not_fork(platform, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forks"), raising=False)
    assert graded(lambda x: 2 * x)
    assert "stopped after" in graded(plain_loop, seconds=0.3).fault


@pytest.mark.parametrize("seconds", [math.inf, 1e12])
def test_much_time_is_no_trouble(apart, seconds):
    assert graded(lambda x: 2 * x, seconds=seconds)


def test_what_is_solved_at_a_prompt_is_noted_and_nothing_else(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path))
    answer = from_notebook(SOFTMAX + "double = softmax\n")
    record = tmp_path / "progress.jsonl"
    assert check("03-softmax", answer)
    assert not record.exists()                                  # a script notes nothing
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not check("03-softmax", lambda x: x)
    assert not record.exists()
    assert check("03-softmax", answer)
    assert json.loads(record.read_text())["name"] == "03-softmax"


@pytest.mark.parametrize("content", ["{\n", "[]\n", '{"solved": 3}\n', "\ufeff{}\n"])
def test_a_broken_record_does_not_keep_an_answer_from_being_right(content, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    (tmp_path / "progress.jsonl").write_text(content, encoding="utf-8")
    assert check("03-softmax", from_notebook(SOFTMAX + "double = softmax\n"))
    assert (tmp_path / "progress.jsonl").read_text(encoding="utf-8").startswith(content)        # nor is it lost
