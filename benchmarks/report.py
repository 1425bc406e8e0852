"""What was measured, in words: the machine's facts, a block for each row, the targets, and the table for README."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .measure import ratio
from .rows import TARGETS, TORCHES, Target

HEADINGS = {"floor": "floor", "NumPy by hand": "NumPy by hand", "tinygrad_attn": "tinygrad_attn",
            "tinygrad_attn, composed": "composed", "pytorch": "PyTorch", "pytorch, SDPA": "PyTorch, SDPA",
            "autograd": "autograd", "mygrad": "MyGrad", "jax": "jax.jit"}


def machine(peers: Sequence[str]) -> dict[str, Any]:
    """What the times depend on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    facts = {"processor": processor(), "cores": os.cpu_count(), "system": platform.system(),
             "Python": platform.python_version(), "NumPy": f"{np.__version__} ({blas['name']} {blas['version']})"}
    for package in ("threadpoolctl", *peers):               # the first lets ours share its work between threads
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return {**facts, "date": date.today().isoformat(), "load": [round(x, 2) for x in os.getloadavg()]}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")),
                platform.processor() or platform.machine())


def facts_line(facts: dict[str, Any]) -> str:
    return (f"{facts['processor']}, {facts['cores']} cores, " + ", ".join(
        f"{name} {fact}" for name, fact in facts.items() if name not in ("processor", "cores", "date", "load"))
        + f"; {facts['date']}, load at the start {facts['load'][0]:g}")


def verdicts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each target whose row was measured, in its full size: what was found, and whether it is met."""
    found = []
    for row in rows:
        for target in () if row["quick"] else TARGETS:
            if (target.row, target.threads) == (row["row"], row["threads"]):
                value = measured(target, row["contestants"])
                found.append({**target._asdict(), "measured": value, "met": None if value is None else
                              value <= target.limit})
    return found


def measured(target: Target, contestants: dict[str, Any]) -> float | None:
    ours = contestants.get("tinygrad_attn")
    if ours is None:
        return None
    if target.versus in ("ms", "MiB"):
        return ours["median"] if target.versus == "ms" else ours["extra"]
    if target.versus in TORCHES:
        return ratio(ours, contestants[target.versus]) if target.versus in contestants else None
    return ours.get({"floor": "to floor", "the best pytorch": "to pytorch"}[target.versus])


def target_text(verdict: dict[str, Any]) -> str:
    limit, versus, value = verdict["limit"], verdict["versus"], verdict["measured"]
    unit = f" {versus}" if versus in ("ms", "MiB") else f" x {HEADINGS.get(versus, 'PyTorch')}"
    result = "not measured" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"
    return f"≤ {limit:g}{unit}: {result}" + {True: ", met", False: ", missed", None: ""}[verdict["met"]]


def plural(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"


def number(x: float) -> str:
    """Three digits, and no exponent."""
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:,.0f}"


def as_text(report: dict[str, Any]) -> str:
    warning = ["small sizes, whose times mean nothing"] if report["quick"] else []
    return "\n\n".join([facts_line(report["machine"]), *warning, *map(block, report["rows"])])


def block(row: dict[str, Any]) -> str:
    """One row at one number of threads."""
    facts = [row["dtype"], plural(row["threads"], "thread"), row["unit"], plural(row["rounds"], "round")]
    lines = [f"{row['row']} ({', '.join(filter(None, facts))})"]
    lines += [f"  {row['note']}"] if row["note"] else []
    memory = any(found["extra"] for found in row["contestants"].values())
    lines.append(f"  {'':<24}{'median':>9}  {'quartiles':<19}{'/ floor':>8}{'/ PyTorch':>10}{'busy':>6}"
                 + ("  extra MiB" if memory else ""))
    for name, found in row["contestants"].items():
        low, high = map(number, found["quartiles"])
        ratios = [f"{found[key]:.2f}" if key in found else "" for key in ("to floor", "to pytorch")]
        lines.append(f"  {name:<24}{number(found['median']):>9}  {f'{low} to {high}':<19}{ratios[0]:>8}{ratios[1]:>10}"
                     f"{found['busy']:6.2f}" + (f"{found['extra']:11.1f}" if memory else ""))
    lines += [f"  {name}: NOT TIMED: {error}" for name, error in row["errors"].items()]
    lines += [f"  target {target_text(verdict)}" for verdict in verdicts([row])]
    return "\n".join(lines)


def as_markdown(report: dict[str, Any]) -> str:
    """The table for README."""
    rows = [row for row in report["rows"] if ":" not in row["row"]]
    names = [name for name in HEADINGS if any(name in row["contestants"] for row in rows)]
    lines = ["| work | ours / floor | ours / PyTorch | " + " | ".join(HEADINGS[name] for name in names) + " |",
             "|---" * (len(names) + 3) + "|"]
    for row in rows:
        ours = row["contestants"].get("tinygrad_attn", {}) if row["row"] != "import" else {}
        ratios = " | ".join(f"{ours[key]:.2f}" if key in ours else "–" for key in ("to floor", "to pytorch"))
        threads = f", {row['threads']} threads" if row["threads"] > 1 else ""
        lines.append(f"| {row['row']}{threads}, {row['unit']} | {ratios} | " + " | ".join(cells(row, names)) + " |")
    return "\n".join([*lines, "", facts_line(report["machine"]) + "."])


def cells(row: dict[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The median of each, with the extra memory where that is of interest; of the two floors the lower."""
    for name in names:
        there = [row["contestants"][n] for n in ([name, "floor, split"] if name == "floor" else [name])
                 if n in row["contestants"]]
        found = min(there, key=lambda found: found["median"], default=None)
        memory = f" ({number(found['extra'])} MiB)" if found and row["memory"] and name != "floor" else ""
        yield f"{number(found['median'])}{memory}" if found else "–"
