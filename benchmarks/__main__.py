"""`python -m benchmarks`: this project beside other frameworks, NumPy by hand, and the floor.

Forward and backward, each contestant in a process of its own, in turn, with results compared before any is timed. Times
move from run to run; ratios within one run count. Exit code 1 if a contestant computes something else or fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tinygrad_attn.files import write_whole
from tinygrad_attn.progress import wiped

from .measure import measure
from .plot import as_bytes
from .report import as_markdown, as_text, machine, verdicts
from .rows import CONTESTANTS, ROWS, Row, installed

PEERS = ("torch", "autograd", "mygrad", "jax")
PLOT = "out/benchmarks.svg"


def chosen(wanted: str | None) -> list[Row]:
    """The rows whose names have one of these words in them; those of a group only if they are asked for."""
    if not wanted:
        return [row for row in ROWS if not row.group]
    return [row for row in ROWS if any(word.strip() in row.name for word in wanted.split(","))]


def run(rows: Sequence[Row], peers: Sequence[str], threads: Sequence[int], rounds: int, quick: bool) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"{wiped()}{text[:100]} …", end="", file=sys.stderr, flush=True)

    report: dict[str, Any] = {"machine": machine(peers), "quick": quick, "rows": []}
    for row in rows:
        for n in (n for n in row.threads if n in threads):
            names = [name for name in row.contestants(n) if installed(name)
                     and (CONTESTANTS[name].needs in ("numpy", *peers))]
            report["rows"].append(measure(row, names, n, rounds, quick, progress))
    print(wiped(), end="", file=sys.stderr)
    report["targets"] = verdicts(report["rows"])
    report["errors"] = [f"{row['row']}, {name}: {error}" for row in report["rows"]
                        for name, error in row["errors"].items()]
    return report


def main(argv: Sequence[str] | None = None) -> int:
    assert __doc__
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split(": ", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS), help="frameworks to compare with, of those installed "
                        "(default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="readings of each, fewer where one takes long (default: "
                        "%(default)s)")
    parser.add_argument("--rows", help="only rows with one of these words in the name, as in 'GPT,import'; 'ops' and "
                        "'lengths' are groups of further rows")
    parser.add_argument("--json", metavar="FILE", help="write the whole report; - is the standard output, instead of "
                        "the tables")
    parser.add_argument("--plot", metavar="FILE", help="draw time and memory of attention against its length, svg, png "
                        f"or pdf (default: {PLOT} if all rows are run)")
    parser.add_argument("--markdown", action="store_true", help="print the table for README")
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything run? Its times mean nothing")
    args = parser.parse_args(argv)
    peers = [peer for peer in args.peers.split(",") if peer]
    if unknown := set(peers) - set(PEERS):
        parser.error(f"--peers {', '.join(unknown)}: not among {', '.join(PEERS)}")
    if not all(n.isdecimal() and int(n) for n in [*args.threads.split(","), str(args.rounds)]):
        parser.error(f"--threads {args.threads} --rounds {args.rounds}: both are numbers from 1, threads with commas")
    rows, picture = chosen(args.rows), Path(args.plot or PLOT)
    if not rows:
        parser.error(f"--rows {args.rows}: no row has that in its name; there are\n  "
                     + "\n  ".join(row.name for row in ROWS))
    if args.plot and not find_spec("matplotlib"):
        parser.error("--plot needs matplotlib: pip install matplotlib")
    drawn = bool(args.plot or (not args.rows and not args.quick and find_spec("matplotlib")))
    if drawn:
        rows += [row for row in chosen("lengths, 4096, 16384") if row not in rows]
    for file in (*([Path(args.json)] if args.json and args.json != "-" else []), *([picture] if drawn else [])):
        file.parent.mkdir(parents=True, exist_ok=True)      # now, and not when everything has been measured
    try:
        report = run(rows, peers, [int(n) for n in args.threads.split(",")], args.rounds, args.quick)
    except KeyboardInterrupt:
        print(wiped(), end="", file=sys.stderr)
        return 130
    text = json.dumps(report, indent=2)
    if args.json and args.json != "-":
        write_whole(Path(args.json), text.encode())
    if drawn:
        write_whole(picture, as_bytes(report, picture.suffix[1:] or "svg"))
        print(f"drawn: {picture}", file=sys.stderr)
    print(text if args.json == "-" else as_markdown(report) if args.markdown else as_text(report))
    for error in report["errors"]:
        print(f"error: {error}", file=sys.stderr)
    return 1 if report["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
