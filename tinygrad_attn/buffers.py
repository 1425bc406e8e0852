"""Beside floor 1. Large arrays used again: `empty` is NumPy's, but takes memory that nothing refers to any more.

Training makes the same large arrays at every step. The C library gives each back to the system, which hands it out
again page by page, all zeroed: that takes longer than the arithmetic done on it. Here an array stays with the pool, and
is handed out again when the pool is the only one left that refers to it. A view refers to the array that it looks into,
so an array that somebody can still see is never touched.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from typing import Any

import numpy as np

SMALLEST = 1 << 16                          # bytes; below, the C library is as fast
ALIGNED = 64                                # bytes: a cache line, and the widest vector register
LOOKED_AT = 64                              # arrays of a size, before a new one is made

_lock = threading.Lock()                    # whoever finds it closed does without the pool, and never waits
_Owned = tuple[np.ndarray, np.ndarray]      # memory, and a view of it that is handed out, reshaped
_kept: dict[tuple[int, np.dtype], deque[_Owned]] = {}
_held = 0                                   # bytes of all that is kept


def _made(n: int, dtype: np.dtype) -> _Owned:
    memory = np.empty(n * dtype.itemsize + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory, memory[start:start + n * dtype.itemsize].view(dtype)


def _references(owned: deque[_Owned]) -> int:
    return sys.getrefcount(owned[-1][0])    # each view of a view refers to the memory itself


_UNUSED = _references(deque([_made(1, np.dtype(float))]))       # by the pair alone
# Counting references tells nothing where threads run without the interpreter's lock.
_most = 1 << 29 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0


def limit(size: int) -> None:
    """The pool keeps at most `size` bytes, 512 MiB unless told; with 0 it is off, and `empty` is `np.empty`.

    What is in use stays with those who use it, and is only not taken back.

    >>> limit(0)
    >>> limit(2 ** 29)
    """
    global _most
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"buffers.limit: {size!r} is no number of bytes, 0 or more")
    with _lock:
        _most = size
        _forget_all()


def _forget_all() -> None:
    global _held
    _kept.clear()
    _held = 0


def held() -> int:
    """The bytes of all arrays that the pool refers to, in use or not.

    >>> held() <= 2 ** 29
    True
    """
    return _held


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """`np.empty`, with memory that was used before, if there is some that nobody sees. Any thread may call it.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    global _held
    n = math.prod(shape)
    size = n * (dtype := np.dtype(dtype)).itemsize
    if not SMALLEST <= size <= _most // 4 or not _lock.acquire(blocking=False):
        return np.empty(shape, dtype)
    try:
        owned = _kept.setdefault((n, dtype), deque())
        for _ in range(min(len(owned), LOOKED_AT)):
            owned.rotate(-1)                # the one that was handed out, or looked at, longest ago
            if _references(owned) == _UNUSED:
                return owned[-1][1].reshape(shape)
        _make_room(size)
        made = _made(n, dtype)
        _kept.setdefault((n, dtype), owned).append(made)
        _held += size
        return made[1].reshape(shape)
    finally:
        _lock.release()


def _make_room(needed: int) -> None:
    """Forget arrays until there is room: first those that nobody uses."""
    global _held
    for used in (False, True):
        for key in list(_kept) if _held + needed > _most else ():
            owned, size = _kept[key], key[0] * key[1].itemsize
            for _ in range(len(owned)):
                if _held + needed <= _most:
                    return
                owned.rotate(-1)
                if used or _references(owned) == _UNUSED:
                    owned.pop()
                    _held -= size
            if not owned:
                del _kept[key]


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _forget_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
