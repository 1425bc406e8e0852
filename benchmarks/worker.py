"""One contestant of one row, in a process of its own: `python -m benchmarks.worker '{"row": …, "contestant": …}'`.

It answers each line on its input by a line of JSON on its output, and in between waits in a read, where it costs the
others nothing. It ends with its input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
import timeit
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .rows import ROWS, Run, inputs, maker

READING = 0.1                               # seconds that one reading lasts at least


def given_back() -> None:
    """Give freed memory back to the system, so that using it again counts."""
    gc.collect()
    with suppress(OSError, AttributeError, TypeError):      # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


class Peak:
    """The peak of this process's memory, in bytes above what it had at the start of the `with`.

    Linux lets a process reset its own high-water mark. Elsewhere the rise of the mark must do, which is right as long
    as nothing larger came before: measure first, in a fresh process.
    """

    def __enter__(self) -> Peak:
        given_back()
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = resident("VmRSS")
        except OSError:
            self.before = resident("VmHWM")
        return self

    def __exit__(self, *exception: object) -> None:
        self.extra = max(0, resident("VmHWM") - self.before)


def resident(field: str) -> int:
    """Bytes in memory: now, VmRSS, or at most so far, VmHWM, which is all that there is without Linux."""
    try:
        fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields[field].split()[0]) * 1024
    except OSError:
        import resource  # there is none on Windows

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Session:
    """What the parent may ask for, in this order: `start`, then `read` any number of times."""

    def __init__(self, row: str, contestant: str, threads: int, quick: bool) -> None:
        self.row = next(r for r in ROWS if r.name == row)
        self.contestant, self.threads, self.quick = contestant, threads, quick
        self.number = 1

    def start(self, results: str) -> dict[str, Any]:
        """Compute twice, and save what came out; the first time, watch the memory. A small problem before that loads
        and sets up whatever is done once in a process."""
        make = maker(self.row, self.contestant)
        assert make is not None
        make(inputs(self.row, self.threads, quick=True))()
        problem = inputs(self.row, self.threads, self.quick)
        given_back()
        self.run: Run = make(problem)
        with Peak() as peak:
            first = self.run()
        arrays = [np.asarray(a) for a in first]
        wrong = {str(a.dtype) for a in arrays} - {problem.dtype}
        if wrong and self.row.work != "import":
            raise TypeError(f"computed in {', '.join(wrong)}, not in {problem.dtype}")
        extra = max(0, peak.extra - sum(a.nbytes for a in arrays))
        np.savez(results, *arrays)          # now, as the next run may write to the same arrays
        del first, arrays
        begin = time.perf_counter()
        again = self.run()
        once = time.perf_counter() - begin
        np.savez(results.replace(".npz", "_again.npz"), *map(np.asarray, again[:1]))
        reading = READING / 50 if self.quick else READING
        if once < reading and self.row.work != "import":
            self.number = int(np.ceil(reading / min(timeit.repeat(self.run, repeat=3, number=1))))
        return {"extra": extra}

    def read(self) -> dict[str, float]:
        """The seconds of one run, as an average over so many that the clock is exact; how many processors were busy.
        The garbage collector is on, as it is in use."""
        if self.row.work == "import":       # it has its own clock
            return {"seconds": self.run()[0], "busy": 1.0}
        if self.number > 1:
            self.run()                      # the others' turns have emptied the caches
        busy, start = time.process_time(), time.perf_counter()
        seconds = timeit.timeit(self.run, "import gc; gc.enable()", number=self.number) / self.number
        return {"seconds": seconds, "busy": (time.process_time() - busy) / (time.perf_counter() - start)}


def spare_the_others() -> None:
    """Let an allocation for which there is no memory be an error here, and not the end of some other process."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (available, resource.RLIM_INFINITY))


def main() -> None:
    spare_the_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)            # Ctrl-C is for the parent, which ends this process
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)                                           # what a library prints is no answer
    session = Session(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        command, *args = json.loads(line)
        try:
            answer = getattr(session, command)(*args)
        except Exception as error:                          # of whatever framework this is; the parent names it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
