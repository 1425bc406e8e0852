"""Top floor. The command line: attention at work, checked, in one command.

Every number is computed when it is printed, and compared with what it must be: numbers worked out by hand in the
lesson that this project grew from, a closed form, a finite difference, or theory. The exit code is 1 if one is off.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, draw_command, learn_command, saturation, site_command, train_command
from .attention import attention, multi_head_attention
from .errors import GradcheckError
from .examples import W_K, W_Q, W_V, X, self_attention_of_three_words
from .files import write_whole
from .gradcheck import gradcheck
from .graph import draw
from .languages import LANGUAGES, language, speaking
from .progress import Progress, wiped
from .tensor import Tensor

# Worked example A: one query, three keys. Ten digits are given, so 1e-10 is all that can be asked of ours.
QUERY, KEYS = [[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
EXPECTED_A = {
    "scores": [[1, 0, 1]],
    "scores / √2": [[0.7071067812, 0, 0.7071067812]],
    "weights": [[0.4011120927, 0.1977758146, 0.4011120927]],
    "weights without / √2": [[0.4223187983, 0.1553624035, 0.4223187983]],
}

# Worked example B: self-attention of three words.
EXPECTED_B = {
    "Q Kᵀ": [[0.06, 0.28, 0.20], [0.30, 0.60, 0.60], [0.21, 0.58, 0.50]],
    "weights": [[0.3135989436, 0.3500636237, 0.3363374327],
                [0.3008723657, 0.3495638172, 0.3495638172],
                [0.2976847854, 0.3581798232, 0.3441353914]],
    "output": [[0.3109394040, 0.2599745505, 0.2722865736, 0.4409266793],
               [0.3146074354, 0.2601744731, 0.2747819086, 0.4446946720],
               [0.3181485113, 0.2567280707, 0.2762810252, 0.4465125467]],
}


# Measured elsewhere, in plain NumPy, from other draws: d_k -> median ‖J‖ and mean largest weight, unscaled, scaled.
ELSEWHERE = {1: (0.150, 0.10, 0.152, 0.10), 4: (0.256, 0.27, 0.172, 0.11), 16: (0.328, 0.57, 0.177, 0.10),
             64: (0.193, 0.80, 0.180, 0.11), 256: (2.0e-2, 0.90, 0.181, 0.11), 1024: (2.0e-4, 0.95, 0.181, 0.11),
             4096: (1.1e-8, 0.98, 0.180, 0.11)}
MEASURED: dict[str, Any] = {"scales": ("none", "sqrt"), "n_keys": 64, "draws": 500, "seed": 0}


def compared(name: str, computed: Any, expected: Any, tolerance: float) -> dict[str, Any]:
    """One checked result, ready for JSON."""
    computed = computed.numpy() if isinstance(computed, Tensor) else np.asarray(computed)
    error = float(np.abs(computed - np.asarray(expected)).max())
    return {"name": name, "computed": computed.tolist(), "expected": np.asarray(expected).tolist(),
            "max_error": error, "tolerance": tolerance, "ok": error <= tolerance}


def soft_lookup() -> list[dict[str, Any]]:
    """A dict answers "a" with 10. Attention over one-hot keys answers (10 eˢ + 20 + 30) / (eˢ + 2), s the scale."""
    dictionary = {"a": 10.0, "b": 20.0, "c": 30.0}
    keys, values = np.eye(3), np.array(list(dictionary.values()))[:, None]
    results = []
    for scale in (0.0, 1.0, 4.0, 16.0):
        answer, _ = attention(keys[:1], keys, values, scale=scale)
        closed = (10 * math.exp(scale) + 20 + 30) / (math.exp(scale) + 2)
        results.append({"scale": scale, "dict": dictionary["a"],
                        **compared(f"scale {scale:g}", answer[0, 0], closed, 1e-12)})
    return results


def example_a() -> list[dict[str, Any]]:
    query, keys = Tensor(QUERY), Tensor(KEYS)
    scores = query @ keys.mT
    computed = {"scores": scores, "scores / √2": scores / math.sqrt(2),
                "weights": attention(query, keys, keys)[1],
                "weights without / √2": attention(query, keys, keys, scale=1.0)[1]}
    return [compared(name, computed[name], EXPECTED_A[name], 1e-10) for name in EXPECTED_A]


def gradient_checks() -> list[dict[str, Any]]:
    """Both functions at inputs of example B's size, to order 2."""
    rng = np.random.default_rng(0)
    x, w_o = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    w_q, w_k, w_v = rng.normal(size=(3, 2, 4, 2))
    checks: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "attention": (attention, (rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2)))),
        "multi_head_attention": (lambda x, q, k, v, o: multi_head_attention(x, q, k, v, o, 2), (x, w_q, w_k, w_v, w_o))}
    results = []
    for name, (fn, inputs) in checks.items():
        for order in (1, 2):
            result = {"name": name, "order": order, "inputs": len(inputs), "elements": sum(a.size for a in inputs)}
            try:
                error = gradcheck(fn, inputs, order=order).max_abs_error
            except GradcheckError as mismatch:
                error = math.inf
                result["mismatch"] = str(mismatch)
            results.append({**result, "max_error": error, "tolerance": 1e-5, "ok": error <= 1e-5})
    return results


def near_elsewhere(row: saturation.Row) -> bool:
    """Is this row what was measured elsewhere? A median that is far out in the tail varies by its draws most."""
    norm, weight = ELSEWHERE[row.d_k][:2] if row.scale == "none" else ELSEWHERE[row.d_k][2:]
    factor = 1.25 if norm > 0.1 else 3.0
    return 1 / factor < row.jacobian.median / norm < factor and abs(row.largest_weight.mean - weight) < 0.03


def saturation_claims(sweep: saturation.Sweep) -> list[dict[str, Any]]:
    """What the table must show, each as a claim with the numbers it rests on. A NaN fulfils none."""
    unscaled, last = {row.d_k: row for row in sweep.rows if row.scale == "none"}, sweep[4096, "none"]
    peak = max(unscaled, key=lambda d: unscaled[d].jacobian.median)
    collapse = last.jacobian.median / sweep[4096, "sqrt"].jacobian.median
    return [
        *sweep.claims(),
        {"claim": "weights and norms are near those of other draws, measured in plain NumPy",
         "ok": all(near_elsewhere(row) for row in sweep.rows)},
        {"claim": f"unscaled, the norm peaks at d_k = {peak} and at 4096 is {collapse:.1e} of the scaled",
         "ok": 1 < peak < 1024 and collapse < 1e-5},
        {"claim": f"the mean at 4096 is {last.jacobian.mean:.2g}, {last.near_tie_share:.0%} of it from a tenth of the "
                  "draws", "ok": 0.8 < last.near_tie_share <= 1},
    ]


def run(out: Path, progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """The whole job as one JSON-ready object; the graph is written to `out`."""
    example = self_attention_of_three_words()
    sweep = saturation.sweep(**MEASURED, progress=progress)
    picture = draw(example["output"], grads=True)
    graph: dict[str, Any] = {"dot": str(picture.save(out / "attention.dot")), "svg": None,
                             "html": str(picture.save(out / "attention.html")),
                             "vertices": len(picture.trace.vertices), "edges": len(picture.trace.edges)}
    try:
        graph["svg"] = str(picture.save(out / "attention.svg"))
    except RuntimeError as error:           # no `dot` program, or one that fails
        graph["svg_missing"] = str(error)
    report: dict[str, Any] = {
        "version": __version__,
        "inputs": {"query": QUERY, "keys": KEYS, "X": X, "W_q": W_Q, "W_k": W_K, "W_v": W_V},
        "soft_lookup": soft_lookup(),
        "example_a": example_a(),
        "example_b": [compared(name, example[name], expected, 1e-10) for name, expected in EXPECTED_B.items()],
        "gradcheck": gradient_checks(),
        "saturation": {**sweep.to_dict(), "claims": saturation_claims(sweep)},
        "graph": graph,
    }
    checks = [entry for part in report.values() if isinstance(part, list) for entry in part]
    report["off"] = [entry.get("name") or entry["claim"] for entry in [*checks, *report["saturation"]["claims"]]
                     if not entry["ok"]]
    return report


def as_json(report: dict[str, Any]) -> str:
    """The report as one object; JSON has no NaN and no infinity, so they are strings."""
    return json.dumps(json.loads(json.dumps(report), parse_constant=str), indent=2)


def as_text(report: dict[str, Any]) -> str:
    """The report as tables for a terminal 80 columns wide."""
    lines = ["ATTENTION AS A SOFT LOOKUP: {'a': 10, 'b': 20, 'c': 30}, asked for 'a'",
             "  A dict says 10. Attention over one-hot keys says (10 eˢ + 20 + 30) / (eˢ + 2):",
             "  at scale s = 0 it is the plain average, and the larger s, the nearer the dict.",
             "  scale s     answer    closed form"]
    lines += [f"  {e['scale']:7g} {e['computed']:10.6f} {e['expected']:14.6f}  {_mark(e)}"
              for e in report["soft_lookup"]]
    given = report["inputs"]
    for title, names, entries in (
            ("ONE QUERY, THREE KEYS: d_k = 2", ("query", "keys"), report["example_a"]),
            ("SELF-ATTENTION OF THREE WORDS: d_k = 4", ("X", "W_q", "W_k", "W_v"), report["example_b"])):
        lines += ["", title]
        lines += [f"  {name:<5} = {json.dumps(given[name]).replace('.0', '').replace(', ', ',')}" for name in names]
        for e in entries:
            lines.append(f"  {e['name']:<41}expected")
            lines += [f"    {_numbers(row):<39}{_numbers(other)}" for row, other in zip(e["computed"], e["expected"])]
            lines.append(f"    largest difference {e['max_error']:.1e} (allowed {e['tolerance']:g})  {_mark(e)}")
    lines += ["", "GRADIENTS AGAINST FINITE DIFFERENCES, every element of every input",
              "  function               to order   inputs   elements   largest difference"]
    lines += [f"  {e['name']:<22} {e['order']:8}   {e['inputs']:6}   {e['elements']:8}   {e['max_error']:18.1e}  "
              f"{_mark(e)}" for e in report["gradcheck"]]
    lines += [f"  {e['mismatch']}" for e in report["gradcheck"] if "mismatch" in e]
    measured = report["saturation"]
    lines += ["", f"WHY DIVIDE BY √d_k: {measured['n_keys']} keys, {measured['draws']} draws of standard normal "
              "queries and keys",
              "               scores Q Kᵀ                   scores Q Kᵀ / √d_k",
              "         spread   largest  Jacobian      spread   largest  Jacobian",
              "  d_k              weight    (norm)                weight    (norm)"]
    by_d_k: dict[int, dict[str, dict[str, Any]]] = {}
    for row in measured["rows"]:
        by_d_k.setdefault(row["d_k"], {})[row["scale"]] = row
    for d_k, pair in by_d_k.items():
        cells = ["   ".join(_shown(*cell) for cell in (
            (row["spread"], "7.2f"), (row["largest_weight"]["mean"], "7.2f"), (row["jacobian"]["median"], "7.1e")))
            for row in (pair["none"], pair["sqrt"])]
        lines.append(f"  {d_k:4}  {'     '.join(cells)}")
    lines += ["  spread: standard deviation of all scores; weight: mean over draws;",
              "  Jacobian: median over draws of its Frobenius norm, ‖diag(p) − p pᵀ‖, which is",
              "  how much gradient the softmax lets through, from its output to the scores.",
              "  While scores are small, the softmax is flat and a larger spread helps; once",
              "  they are large it saturates, and the norm collapses. The mean falls slower:",
              "  now and then the two largest scores nearly tie."]
    lines += [f"  {e['claim']}  {_mark(e)}" for e in measured["claims"]]
    graph = report["graph"]
    lines += ["", f"THE GRAPH OF THE THREE WORDS: {graph['vertices']} vertices, {graph['edges']} edges",
              "  The wider an edge, the larger the gradient that comes back along it, on a log",
              "  scale. The page, .html, steps through the backward pass, op by op."]
    lines += [f"  written: {graph[key]}" for key in ("dot", "svg", "html") if graph[key]]
    lines += [f"  no picture: {graph['svg_missing']}"] if "svg_missing" in graph else []
    lines += ["", f"OFF: {', '.join(report['off'])}" if report["off"] else "Every number is as expected."]
    return "\n".join(lines)


def _shown(x: float | None, spec: str) -> str:
    return f"{math.nan if x is None else x:{spec}}"


def _mark(entry: dict[str, Any]) -> str:
    return "ok" if entry["ok"] else "OFF"


def _numbers(row: Sequence[float]) -> str:
    return " ".join(f"{x:.6f}" for x in row)


def laboratory(args: argparse.Namespace) -> int:
    """`saturation`: theory, measurement and differences side by side, and, with --train, what follows for training."""
    sweep = saturation.sweep(args.d_k, scales=args.scales, n_keys=args.keys, draws=args.draws, seed=args.seed,
                             progress=Progress("measuring"))
    maps: dict[str, saturation.Map] = {}
    if args.train:
        if not sys.stderr.isatty():
            print("training: about five minutes", file=sys.stderr)
        maps = {"training": saturation.training_map(progress=Progress("training")),
                **saturation.controls(progress=Progress("controls"))}
    claims = [*sweep.claims(), *(claim for found in maps.values() for claim in found.claims())]
    report: dict[str, Any] = {"version": __version__, "sweep": sweep.to_dict(),
                              "maps": {name: found.to_dict() for name, found in maps.items()},
                              "off": [claim["claim"] for claim in claims if not claim["ok"]]}
    if not args.json:                       # first, so that a full disk takes nothing
        lines = [sweep.table(), ""]
        for name, found in maps.items():
            lines += [name.upper(), found.table(), ""]
        print("\n".join([*lines, *(f"{claim['claim']}  {_mark(claim)}" for claim in claims)]), flush=True)
    written = []
    if args.out:
        page, numbers = args.out / "saturation.html", args.out / "saturation.json"
        write_whole(numbers, as_json(report).encode())
        controls = {name: found for name, found in maps.items() if name != "training"}
        saturation.report(page, lang=language(), measured=sweep, trained=maps.get("training"), controls=controls)
        written = [str(page), str(numbers)]
    print(as_json({**report, "written": written}) if args.json else
          "\n".join(f"written: {path}" for path in written), end="\n" if args.json or written else "", flush=True)
    return 1 if report["off"] else 0


def main_job(args: argparse.Namespace) -> int:
    """No subcommand: attention at work, every number checked."""
    report = run(args.out, Progress("measuring"))
    print(as_json(report) if args.json else as_text(report), flush=True)
    return 1 if report["off"] else 0


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="tinygrad-attn", description="Attention at work: a soft lookup, two worked examples, gradient checks, the "
        "vanishing gradient of unscaled scores, and a computation graph. Each number is computed now and checked; the "
        "exit code is 1 if one is off.")
    p.add_argument("--out", type=Path, default=None, metavar="DIR",
                   help="where attention.dot, .svg and .html go; made if missing (default: out)")
    p.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    p.add_argument("--version", action="version", version=__version__)
    p.set_defaults(job=main_job)
    commands = p.add_subparsers(title="more", metavar="COMMAND")
    lab = commands.add_parser(
        "saturation", help="the laboratory: why scores are divided by √d_k", description="Why scores are divided by "
        "√d_k: scores, weights and gradients at each d_k, measured, beside what theory says of them, and confirmed by "
        "differences; with --train also what it does to training. The exit code is 1 if they disagree.")
    lab.add_argument("--d-k", type=int, nargs="+", default=list(saturation.D_K), metavar="N",
                     help=f"lengths of the vectors, with spaces between (default: "
                          f"{' '.join(map(str, saturation.D_K))})")
    lab.add_argument("--scales", nargs="+", choices=list(saturation.SCALES), default=list(saturation.SCALES),
                     metavar="SCALE", help=f"of {', '.join(saturation.SCALES)} (default: all)")
    lab.add_argument("--keys", type=int, default=64, metavar="N", help="keys for each query (default: %(default)s)")
    lab.add_argument("--draws", type=int, default=500, metavar="N", help="queries at each d_k (default: %(default)s)")
    lab.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: %(default)s)")
    lab.add_argument("--train", action="store_true",
                     help="train one attention layer as well, over a grid of its own, with three controls: some "
                          "minutes")
    lab.add_argument("--out", type=Path, default=argparse.SUPPRESS, metavar="DIR",
                     help="write saturation.html, a page with plots and a slider, and saturation.json there")
    lab.add_argument("--lang", choices=list(LANGUAGES), default=None,
                     help="language of the page (default: $TINYGRAD_ATTN_LANG, or en)")
    lab.add_argument("--json", action="store_true", default=argparse.SUPPRESS,
                     help="print one JSON object instead of tables")
    lab.set_defaults(job=laboratory)
    draw_command.add_parser(commands)
    train_command.add_parser(commands)
    learn_command.add_parser(commands)
    site_command.add_parser(commands)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 if a number is off, 2 if it could not be run, 130 if interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")            # a terminal without √ shows ? and goes on
    p = parser()
    args = p.parse_args(learn_command.expanded(sys.argv[1:] if argv is None else argv))
    if args.job is main_job:
        args.out = args.out or Path("out")
    if args.job is laboratory and args.out and not find_spec("matplotlib"):
        print(f"{p.prog}: --out: plots need matplotlib: pip install 'tinygrad_attn[plot]'", file=sys.stderr)
        return 2
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        p.error(f"--out {args.out}: that is a file, and must be a folder")
    except OSError as error:
        p.error(f"--out {args.out}: {error.strerror}")
    try:
        with speaking(getattr(args, "lang", None) or language()):
            return args.job(args)
    except KeyboardInterrupt:
        print(f"{wiped()}interrupted", file=sys.stderr)
        return 130
    except (ValueError, ImportError) as error:              # a request that cannot be met
        print(f"{wiped()}{p.prog}: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"{wiped()}{p.prog}: not enough memory: {error or 'ask for less'}", file=sys.stderr)
        return 2
    except BrokenPipeError:                 # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:                # a folder that cannot be written to, a full disk
        print(f"{wiped()}{p.prog}: {error.filename2 or error.filename or 'output'}: {error.strerror}", file=sys.stderr)
        return 2
