"""`python -m benchmarks`: the cost of recorded ops, forward and backward, beside PyTorch's where it is installed.

Machines are noisy, so only ratios inside one run mean anything: the rounds of all contestants are interleaved, each
figure is a median over rounds, and the results are compared with each other before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import timeit
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from tinygrad_attn import Tensor, attention
from tinygrad_attn.cli import W_K, W_Q, W_V, X

CHAIN = 100                         # ops in a chain; enough for its start and end not to matter
START = (1.001, 1.001, 0.25)        # by the number of axes: powers of this neither grow nor vanish
Run = Callable[[], Any]


# What one step of a chain does, y -> y, for an x that is used in each: the same expression for both frameworks.
STEPS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "scalar": ((), lambda y, x: y * x),
    "4 elements": ((4,), lambda y, x: y * x),
    "times a number": ((4,), lambda y, x: y * 1.001),
    "tanh": ((4,), lambda y, x: y.tanh()),
    "relu": ((4,), lambda y, x: y.relu()),
    "4 x 4 matmul": ((4, 4), lambda y, x: y @ x),
    "softmax": ((4,), lambda y, x: y.softmax(-1)),
}


def chain(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    y = x
    for _ in range(CHAIN):
        y = step(y, x)
    return y


def ours(shape: tuple[int, ...], step: Callable[[Any, Any], Any]) -> Run:
    x = Tensor(np.full(shape, START[len(shape)]), requires_grad=True)

    def run() -> np.ndarray | None:
        x.zero_grad()
        chain(x, step).backward(np.ones(shape))
        return x.grad
    return run


def pytorch(shape: tuple[int, ...], step: Callable[[Any, Any], Any]) -> Run:
    import torch
    x = torch.full(shape, START[len(shape)], dtype=torch.float64, requires_grad=True)

    def run() -> Any:
        x.grad = None
        chain(x, step).backward(torch.ones(shape, dtype=torch.float64))
        return x.grad
    return run


def by_hand(shape: tuple[int, ...]) -> Run:
    """The same products and sums in NumPy, recorded in a list: what no framework on NumPy can beat."""
    x = np.full(shape, START[len(shape)])[()]

    def run() -> Any:
        ys = [x]
        for _ in range(CHAIN):
            ys.append(ys[-1] * x)
        g, total = np.ones(shape)[()], 0.0
        for y in reversed(ys[:-1]):
            total = total + g * y
            g = g * x
        return total + g
    return run


def example_b() -> dict[str, Run]:
    """Self-attention of three words of width 4, from the projections to the gradients of the three matrices."""
    weights = [Tensor(w, requires_grad=True) for w in (W_Q, W_K, W_V)]
    x = Tensor(X)

    def run() -> Any:
        for w in weights:
            w.zero_grad()
        attention(*(x @ w for w in weights))[0].sum().backward()
        return np.stack([w.grad for w in weights if w.grad is not None])
    runs = {"tinygrad_attn": run}
    if find_spec("torch"):
        import torch
        theirs = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (W_Q, W_K, W_V)]
        tx = torch.tensor(X, dtype=torch.float64)

        def run_torch() -> Any:
            for w in theirs:
                w.grad = None
            q, k, v = (tx @ w for w in theirs)
            (torch.softmax(q @ k.mT / 2, -1) @ v).sum().backward()
            return np.stack([w.grad.numpy() for w in theirs if w.grad is not None])
        runs["pytorch"] = run_torch
    return runs


def contests() -> dict[str, tuple[int, dict[str, Run]]]:
    """For each row: the number of ops that one run stands for, and the contestants."""
    rows: dict[str, tuple[int, dict[str, Run]]] = {}
    for name, (shape, step) in STEPS.items():
        runs = {"tinygrad_attn": ours(shape, step)}
        runs |= {"NumPy by hand": by_hand(shape)} if name in ("scalar", "4 elements") else {}
        runs |= {"pytorch": pytorch(shape, step)} if find_spec("torch") else {}
        rows[f"recorded op, {name}"] = (CHAIN, runs)
    rows["example B"] = (1, example_b())
    return rows


def measure(runs: dict[str, Run], per_run: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds an op, of each contestant in each round."""
    first, *others = [np.asarray(run(), dtype=float) for run in runs.values()]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-9)
    timers = {name: timeit.Timer(run) for name, run in runs.items()}
    numbers = {name: max(1, round(0.05 / min(timer.repeat(3, 1)))) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(timer.timeit(numbers[name]) / numbers[name] / per_run * 1e6)
    return times


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    args = parser.parse_args(argv)
    if find_spec("torch"):
        import torch
        torch.set_num_threads(1)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
               "python": platform.python_version(), "numpy": np.__version__}
    report: dict[str, Any] = {"machine": machine, "rows": {}}
    for row, (per_run, runs) in contests().items():
        if sys.stderr.isatty():
            print(f"\r\033[K{row} …", end="", file=sys.stderr, flush=True)
        times = measure(runs, per_run, args.rounds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        quartiles = {name: statistics.quantiles(values, n=4)[::2] for name, values in times.items()}
        report["rows"][row] = {"microseconds": medians, "quartiles": quartiles,
                               "ratio": {name: medians["tinygrad_attn"] / m for name, m in medians.items()}}
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in report["machine"].items()))
    print(f"{'forward and backward, float64, one thread':<48}{'µs':>8}  {'quartiles':<17}{'ours / it':>9}")
    for row, found in report["rows"].items():
        for name, value in found["microseconds"].items():
            low, high = found["quartiles"][name]
            print(f"  {row:<28} {name:<16}{value:9.2f}  {f'{low:.2f} to {high:.2f}':<17}{found['ratio'][name]:9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
