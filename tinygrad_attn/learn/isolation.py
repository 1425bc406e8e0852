"""Floor 6.6. Running an answer that may loop for ever, eat all memory, or end the process.

Where the system can fork, the answer runs in a child, which is killed when its time is over. Where it cannot, as in a
browser, a trace function looks at the clock at each step of Python, and stops it there. This protects a learner from an
accident. It is no prison for hostile code.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

MEMORY = 4 << 30                            # bytes an answer may take beyond what the process has
Say = Callable[[Any], None]


class Stopped(BaseException):
    """Raised in an answer whose time is over. No `except Exception` holds it; and where one of BaseException does, it
    is raised again: Python ends a trace that raises, so one that was caught, and is gone, sets the next."""

    def __init__(self, again: Callable[[FrameType | None], None] = lambda frame: None) -> None:
        self.again = again

    def __del__(self) -> None:
        self.again(sys._getframe().f_back)


def apart(work: Callable[[Say], None], seconds: float | None) -> tuple[list[Any], str]:
    """Call `work(say)`, and return what it said, and how it ended: "" if it came to its end, else "time" or "lost",
    if the process is gone. What is said must be plain data. `seconds=None` sets no limit and makes no child."""
    said: list[Any] = []
    if seconds is None:
        with limited(None):
            work(said.append)
        return said, ""
    seconds = min(seconds, 1e6)
    if hasattr(os, "fork") and sys.platform not in ("emscripten", "wasi"):
        with contextlib.suppress(BlockingIOError):          # no more processes: then without one
            return _in_a_child(work, seconds)
    try:
        with limited(time.monotonic() + seconds):
            work(said.append)
    except Stopped:
        return said, "time"
    return said, ""


# ---------------------------------------------------------------------------------------------------- a child

_END = "the end"


def _in_a_child(work: Callable[[Say], None], seconds: float) -> tuple[list[Any], str]:
    if sys.stdout:
        sys.stdout.flush()
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)     # of forks with threads: the child only computes
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if not child:
        try:
            os.close(reading)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _limit_memory()
            with os.fdopen(writing, "wb") as pipe, limited(None):
                def say(message: Any) -> None:
                    pickle.dump(message, pipe)
                    pipe.flush()
                work(say)
                say(_END)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _heard(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):        # where nobody waits for children
            os.waitpid(child, 0)


def _heard(reading: int, deadline: float) -> tuple[list[Any], str]:
    """The messages of a child until its end, or until its time is over."""
    data, over = bytearray(), ""
    poll = select.poll()                                    # select() takes no file beyond the 1024th
    poll.register(reading, select.POLLIN)
    while not data.endswith(pickle.dumps(_END)):
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            over = "time"
            break
        if not (part := os.read(reading, 1 << 16)):
            break
        data += part
    messages, stream = [], io.BytesIO(data)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            messages.append(pickle.load(stream))
    if messages and messages[-1] == _END:
        return messages[:-1], ""
    return messages, over or "lost"


def _limit_memory() -> None:
    """An answer that fills memory gets a MemoryError, and the machine goes on."""
    try:
        import resource
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, hard))
    except (ImportError, OSError, ValueError):              # another system: then only time is limited
        pass


# ------------------------------------------------------------------------------------------- the same process

@contextlib.contextmanager
def limited(deadline: float | None) -> Iterator[None]:
    """Inside, no warning is printed, and an answer that runs is stopped at the deadline."""
    before, on = sys.gettrace(), [True]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if deadline is not None:
            sys.settrace(_stopping(deadline, on))
        try:
            yield
        finally:
            on.clear()
            if deadline is not None:
                sys.settrace(before)


_answering: list[bool] = []                 # while an answer runs, and not the grader, which has to clear up


def _stopping(deadline: float, on: list[bool]) -> Callable[[FrameType, str, Any], Any]:
    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if _answering and on and frame.f_code is not as_before.__code__ and time.monotonic() > deadline:
            raise Stopped(again)
        frame.f_trace_opcodes = True                        # `while True: pass` in one line is no new line
        return trace

    def again(frame: FrameType | None) -> None:
        if on and not sys.is_finalizing():
            while frame:
                frame.f_trace = trace
                frame = frame.f_back if frame.f_code.co_filename != __file__ else None
            sys.settrace(trace)
    return trace


def as_before(call: Callable[..., Any], *args: Any) -> Any:
    """What a call of the learner's returns. The functions of NumPy and of Python are afterwards what they were."""
    kept = [(vars(module), dict(vars(module))) for module in (np, builtins)]
    with np.errstate(), np.printoptions():
        try:
            _answering.append(True)
            return call(*args)
        finally:
            _answering.clear()
            for now, before in kept:
                now.update(before)
