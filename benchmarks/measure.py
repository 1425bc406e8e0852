"""How a row is measured: a process for each contestant, results compared first, then readings in turn.

All contestants have their turn in each round, and each round begins with another one, so that what else the machine
does, and how warm it is, meets all of them; a ratio is the median over rounds of ratios within a round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from .rows import CONTESTANTS, FLOORS, TORCHES, Row

ROOT = Path(__file__).resolve().parent.parent
WORKER = [sys.executable, "-m", "benchmarks.worker"]
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}      # of the largest entry of an array
SECONDS = 60                                        # for the rounds of one row at most, but 3 rounds at least
PAUSE = 0.2             # seconds in which the threads of the last one stop looking for work, with several threads


class Failure(Exception):
    """A contestant that cannot be measured, and why."""


def environment(threads: int) -> dict[str, str]:
    """So many threads for every library, which must be known before any of them is loaded."""
    names = "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS NPROC"
    one = "--xla_cpu_multi_thread_eigen=false" if threads == 1 else ""
    return {**os.environ, **dict.fromkeys(names.split(), str(threads)), "XLA_FLAGS": one, "JAX_PLATFORMS": "cpu"}


class Worker:
    """A contestant in its process; leaving the `with` ends it."""

    def __init__(self, row: Row, contestant: str, threads: int, quick: bool) -> None:
        about = {"row": row.name, "contestant": contestant, "threads": threads, "quick": quick}
        blas = 1 if CONTESTANTS[contestant].variant == "split" else threads
        self.noise = tempfile.TemporaryFile()           # noqa: SIM115
        self.process = subprocess.Popen(
            [*WORKER, json.dumps(about)], cwd=ROOT, env=environment(blas), text=True, process_group=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.noise)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.noise.close()

    def ask(self, *command: str) -> dict[str, Any]:
        """The answer to one line; the worker is idle before and after."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.noise.seek(0)
            last = self.noise.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Failure(f"its process ended with code {self.process.wait()}: {' '.join(last)}")
        found = json.loads(answer)
        if "error" in found:
            raise Failure(found["error"])
        return found


def measure(row: Row, names: Sequence[str], threads: int, rounds: int, quick: bool = False,
            progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The row's report: for each contestant its times and its extra memory; and what is wrong with the others."""
    errors: dict[str, str] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        workers = {name: stack.enter_context(Worker(row, name, threads, quick)) for name in names}
        started: dict[str, dict[str, Any]] = {}

        def ask(name: str, *command: str) -> dict[str, Any] | None:
            progress(f"{row.name}, {threads} thread{'s' * (threads > 1)}: {name}, {command[0]}")
            try:
                return workers[name].ask(*command)
            except Failure as failure:
                errors[name] = str(failure)
                return None

        for i, name in enumerate(names):
            if answer := ask(name, "start", f"{folder}/{i}.npz"):
                started[name] = answer
        results = {name: load(f"{folder}/{i}") for i, name in enumerate(names) if name in started}
        if row.work != "import":
            errors |= disagreeing(results, TOLERANCE[row.dtype])
        readings: dict[str, list[dict[str, float]]] = {name: [] for name in started if name not in errors}
        begin, done = time.monotonic(), 0
        while readings and done < rounds and (done < 3 or (time.monotonic() - begin) * (done + 1) / done < SECONDS):
            first = done % len(readings)
            for name in [*readings][first:] + [*readings][:first]:
                if threads > 1:
                    time.sleep(PAUSE)
                answer = ask(name, "read")
                if answer is None:
                    del readings[name]
                else:
                    readings[name].append(answer)
            done += 1
    scale = {"ms": 1e3, "µs": 1e6}[row.unit] / (row.quick if quick else row.sizes).get("chain", 1)
    contestants = {name: {"times": [r["seconds"] * scale for r in found], "extra": started[name]["extra"] / 2 ** 20,
                          "busy": statistics.median(r["busy"] for r in found)}
                   for name, found in readings.items()}
    return {"row": row.name, "threads": threads, "dtype": row.dtype, "unit": row.unit, "note": row.note,
            "quick": quick, "sizes": row.quick if quick else row.sizes, "memory": row.memory, "rounds": done,
            "contestants": summed_up(contestants), "errors": errors}


def load(stem: str) -> list[np.ndarray]:
    """The output and the gradients, and the output of a second run, in which nothing may have been left over."""
    return [a for path in (stem, stem + "_again") for a in np.load(path + ".npz").values()]


def same(results: list[np.ndarray], others: list[np.ndarray], tolerance: float) -> bool:
    return len(results) == len(others) and all(
        a.shape == b.shape and np.isfinite(a).all() and np.abs(a - b).max() <= tolerance * np.abs(b).max()
        for a, b in zip(results, others))


def disagreeing(results: dict[str, list[np.ndarray]], tolerance: float) -> dict[str, str]:
    """Those that do not compute what most do. The floor computes nothing that could be compared."""
    compared = {name: found for name, found in results.items() if name not in FLOORS}
    if not compared:
        return {}
    agreeing = {name: [other for other in compared if same(compared[other], mine, tolerance)]
                for name, mine in compared.items()}
    best = max(agreeing, key=lambda name: len(agreeing[name]))
    return {name: f"its results differ from those of {best} by more than {tolerance:g} of the largest entry"
            for name in compared if name not in agreeing[best]}


def summed_up(contestants: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Medians and quartiles, and ratios to the faster floor and to the faster of PyTorch's two."""
    for found in contestants.values():
        found["median"] = statistics.median(found["times"])
        found["quartiles"] = (statistics.quantiles(found["times"], n=4)[::2] if len(found["times"]) > 1
                              else found["times"] * 2)
    for label, group in (("floor", FLOORS), ("pytorch", TORCHES)):
        there = [name for name in group if name in contestants]
        if there:
            best = min(there, key=lambda name: contestants[name]["median"])
            for found in contestants.values():
                found[f"to {label}"] = ratio(found, contestants[best])
    return contestants


def ratio(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(one["times"], other["times"]))
