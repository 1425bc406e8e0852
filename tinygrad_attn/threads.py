"""Beside floor 1. Work shared between threads: NumPy lets the interpreter's lock go while it computes.

The number is that of OMP_NUM_THREADS, else of the processor's cores, or what `limit(n)` says. Work comes in pieces that
depend on the shapes alone, so results do not depend on the number of threads to the last bit. Meanwhile the matrix
products run on one thread each: two layers of threads that know nothing of each other are slower than one thread.
To hold them to one takes `threadpoolctl` (the extra `[fast]`); without it there is one Python thread, and the matrix
products have theirs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

PATIENCE = 2.0                             # seconds to wait for a call that shares its work, which may wait for us
ALONE, SHARED = 1 << 13, 1 << 16           # elements; with fewer, products stay on one thread, and so does all the rest


def _at_start() -> int:
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"].partition(",")[0]))
    except (KeyError, ValueError):
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_USUAL = _at_start()
_number: ContextVar[int] = ContextVar("threads", default=_USUAL)


def count() -> int:
    """How many threads share the work.

    >>> with limit(1):
    ...     count()
    1
    """
    return _number.get()


@contextmanager
def limit(number: int) -> Iterator[None]:
    """Inside, `number` threads share the work."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"threads.limit: {number!r} is no number of threads, 1 or more")
    before = _number.set(number)
    try:
        yield
    finally:
        _number.reset(before)


class _Pool:
    """The helpers, and what else a forked child must have anew: it has none of its parent's threads."""

    def __init__(self) -> None:
        self.busy = threading.Lock()        # one call at a time shares its work
        self.work: SimpleQueue[tuple[Callable[[], None], SimpleQueue[BaseException | None]]] = SimpleQueue()
        self.helpers: list[threading.Thread] = []
        self.here = threading.local()       # .working: whether this thread is at a piece of work

    def start(self, number: int) -> int:
        """Start helpers until there are so many; return how many there are, if the system has no more to give."""
        while len(self.helpers) < number:
            helper = threading.Thread(target=self.help, name="tinygrad_attn", daemon=True)
            try:
                helper.start()
            except RuntimeError:
                break
            self.helpers.append(helper)
        return min(number, len(self.helpers))

    def help(self) -> None:
        self.here.working = True
        while True:
            work, done = self.work.get()
            fault: BaseException | None = None
            try:
                work()
            except BaseException as error:
                fault = error
            del work                        # it refers to arrays, and so may the error
            done.put(fault)
            del fault, done


_pool = _Pool()
_blas: list[Any] | None = None              # the libraries for matrix products, once they were looked for
_held_back: list[int] = []                  # how many threads each had, while they are held to one


def each(function: Callable[[Any], None], pieces: Iterable[Any], size: int) -> None:
    """Call the function with each of the pieces, which must not depend on each other's results.

    `size`, about the number of elements to be worked on, tells whether it is worth it to share: to wake a thread takes
    as long as some 10,000 additions.
    """
    pieces, here = list(pieces), _pool.here
    alone = size < ALONE or getattr(here, "working", False) or not _libraries()
    if alone or not _pool.busy.acquire(timeout=PATIENCE):
        for piece in pieces:
            function(piece)
        return
    try:
        here.working = True
        _held_back[:] = [library.get_num_threads() for library in _libraries()]
        _set_threads([1] * len(_held_back))
        _share(function, pieces, min(count(), len(pieces)) - 1 if size >= SHARED else 0)
    finally:
        _set_threads(_held_back)
        for library in _libraries():        # threadpoolctl remembers who did it, and would not let other threads
            getattr(library, "clear_controlling_thread", lambda: None)()
        here.working = False
        _pool.busy.release()


def _share(function: Callable[[Any], None], pieces: list[Any], helpers: int) -> None:
    rest, done = deque(pieces), SimpleQueue[BaseException | None]()

    def work() -> None:
        while True:
            try:
                piece = rest.popleft()      # who is free takes the next; a deque hands out each once
            except IndexError:
                return
            try:
                function(piece)
            except BaseException:
                rest.clear()                # nobody starts another one
                raise

    helpers = _pool.start(helpers)
    for _ in range(helpers):                # NumPy's errstate, for one, belongs to a context
        _pool.work.put((partial(copy_context().run, work), done))
    try:
        work()
    finally:
        faults = [done.get() for _ in range(helpers)]
    for fault in faults:
        if fault:
            raise fault


def _set_threads(numbers: list[int]) -> None:
    for library, number in zip(_libraries(), numbers):
        library.set_num_threads(number)


def _libraries() -> list[Any]:
    global _blas
    if _blas is None:
        try:
            from threadpoolctl import ThreadpoolController
        except ImportError:
            _blas = []
        else:
            _blas = [found for found in ThreadpoolController().lib_controllers if found.user_api == "blas"]
    return _blas


def _after_fork() -> None:
    global _pool
    if _pool.busy.locked():
        _set_threads(_held_back)
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
