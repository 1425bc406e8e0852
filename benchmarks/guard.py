"""The regression guard: has ours become slower, next to NumPy alone? `python -m benchmarks.guard`.

Two contestants in one process with one thread, in turn, the fastest reading of each: that ratio depends little on the
machine, and not on what others do on it. Nothing is held against other frameworks, whose next version may be faster.
"""

from __future__ import annotations

import sys
import timeit
from collections.abc import Sequence

from .rows import ROWS, inputs, maker

# Ours to the other, as measured; with more than the slack above that, it has become slower.
RATIOS = {
    ("recorded op (scalar)", "NumPy by hand"): 14.1,
    ("recorded op (4 elements)", "NumPy by hand"): 3.22,
    ("layer 8 x 128 x 256", "floor"): 1.25,
    ("GPT step", "floor"): 1.79,
    ("lengths: attention 8 x 1024 x 64", "floor"): 1.37,
}
SLACK, ATTEMPTS, ROUNDS, READING = 1.25, 5, 5, 0.02


def measured(name: str, versus: str) -> float:
    """How many times as long ours takes."""
    row, best = next(row for row in ROWS if row.name == name), []
    timers = []
    for contestant in ("tinygrad_attn", versus):
        make = maker(row, contestant)
        assert make is not None
        timers.append(timeit.Timer(make(inputs(row))))
    numbers = [max(1, round(READING / min(timer.repeat(2, 1)))) for timer in timers]
    for timer, number in zip(timers * ROUNDS, numbers * ROUNDS):
        best.append(timer.timeit(number) / number)
    return min(best[::2]) / min(best[1::2])


def main(argv: Sequence[str] | None = None) -> int:
    """Each row whose name has one of these words in it. When the machine is busy, another attempt may do."""
    words, slower = sys.argv[1:] if argv is None else argv, False
    if unknown := [word for word in words if not any(word in name for name, _ in RATIOS)]:
        print(f"no row has {', '.join(unknown)} in its name; there are\n  " + "\n  ".join(name for name, _ in RATIOS),
              file=sys.stderr)
        return 2
    for (name, versus), usual in RATIOS.items():
        if words and not any(word in name for word in words):
            continue
        limit = SLACK * usual
        found: list[float] = []
        while not found or (min(found) > limit and len(found) < ATTEMPTS):
            found.append(measured(name, versus))
        slower |= min(found) > limit
        print(f"{name}: {min(found):.2f} x {versus}, at most {limit:.2f}, of {len(found)} "
              f"attempt{'s' * (len(found) > 1)}{', SLOWER' * (min(found) > limit)}")
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
