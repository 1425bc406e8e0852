"""The command `train`: copy, reverse, or a GPT on real text, with a loss plot and a checkpoint to go on from."""

from __future__ import annotations

import argparse
import io
import json
import math
import shlex
import signal
import string
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from . import serialize
from .files import write_whole
from .nn import GPT, EncoderDecoder
from .progress import Progress, wiped
from .training import (
    Corpus,
    SequenceTask,
    bigram_loss,
    declaration,
    gpt_loss,
    loss_plot,
    sequence_training,
    text_training,
)
from .training.sequences import END, FIRST, PAD, START

STEPS = {"copy": 500, "reverse": 500, "gpt": 600}
EVERY = 100                                 # steps between checkpoints


def add_parser(commands: Any) -> None:
    p = commands.add_parser(
        "train", help="train a small transformer: copy, reverse, or a GPT on real text",
        description="Train a small transformer. copy and reverse: an encoder-decoder writes random symbols again, or "
        "from back to front; gpt: a character-level GPT goes on with the Universal Declaration of Human Rights, or "
        "with a text of yours. A minute is enough for each. A checkpoint and a plot of the loss are written; after "
        "Ctrl-C, --resume goes on from the checkpoint, to the bit.")
    p.add_argument("task", choices=list(STEPS), help="what is to be learned")
    p.add_argument("--steps", type=int, metavar="N", help="steps in all (default: 500; gpt: 600)")
    p.add_argument("--seed", type=int, metavar="N", help="of all that is drawn (default: 0)")
    p.add_argument("--text", metavar="en | pt | both | FILE",
                   help="for gpt: the declaration in English, in Brazilian Portuguese, in both, or a text file of "
                        "yours in UTF-8 (default: both)")
    p.add_argument("--resume", type=Path, metavar="FILE",
                   help="go on from a checkpoint; its task, steps, seed and text are taken from it")
    p.add_argument("--prompt", metavar="TEXT", help="for gpt: what to go on with, when it has learned")
    p.add_argument("--letters", type=int, default=200, metavar="N",
                   help="for gpt: how many letters to write (default: %(default)s)")
    p.add_argument("--temperature", type=float, default=0.8, metavar="T",
                   help="for gpt: 0 writes the likeliest letter, 1 draws as the model predicts (default: %(default)s)")
    p.add_argument("--out", type=Path, default=argparse.SUPPRESS, metavar="DIR",
                   help="where TASK.npz, the checkpoint, and TASK.svg, the plot, go; made if missing (default: out)")
    p.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    p.set_defaults(job=run)


def run(args: argparse.Namespace) -> int:
    """Train, measure, write; return the exit code."""
    saved = opened(args)
    options = saved["options"] if saved else {
        "task": args.task, "steps": STEPS[args.task] if args.steps is None else args.steps,
        "seed": args.seed or 0, "text": args.text or "both"}
    if options["steps"] < 1 or options["seed"] < 0 or args.letters < 0 or not args.temperature >= 0:
        raise ValueError("train: --steps is 1 or more; --seed, --letters and --temperature are 0 or more")
    if args.task != "gpt" and (args.text or args.prompt):
        raise ValueError(f"train: --text and --prompt are for gpt, not for {args.task}")
    work = Text(options) if args.task == "gpt" else Sequences(options)
    if saved:
        work.training.restore(saved)
        if saved["data"] != work.data:
            raise ValueError(f"train: {args.resume} was trained on another text than {options['text']} is now")
    prompt = work.checked(args.prompt)      # before the time is spent
    out = args.out or Path("out")
    out.mkdir(parents=True, exist_ok=True)
    checkpoint, steps = out / f"{args.task}.npz", options["steps"]

    def keep() -> None:
        serialize.save(checkpoint, {"options": options, "data": work.data, **work.training.checkpoint()})

    if not sys.stderr.isatty() and len(work.training.losses) < steps:
        print(f"training: {steps - len(work.training.losses)} steps", file=sys.stderr)
    show = Progress("training")
    with between_steps() as interrupted:
        def progress(done: int, total: int, note: str) -> None:
            show(done, total, note)
            if interrupted():
                raise KeyboardInterrupt
            if done % EVERY == 0:
                keep()
        try:
            work.training.train(steps, progress)
        except KeyboardInterrupt:
            keep()
            print(f"{wiped()}stopped after {len(work.training.losses)} of {steps} steps; to go on: python3 -m "
                  f"tinygrad_attn train {args.task} --resume {shlex.quote(str(checkpoint))} --out "
                  f"{shlex.quote(str(out))}", file=sys.stderr)
            return 130
    keep()
    report = {"task": args.task, **options, "losses": work.training.losses,
              **work.measured(prompt, args.letters, args.temperature), "checkpoint": str(checkpoint), "plot": None}
    if find_spec("matplotlib"):
        loss_plot(work.training.losses, work.title, work.levels(report)).savefig(
            picture := io.BytesIO(), format="svg", transparent=True)
        write_whole(out / f"{args.task}.svg", picture.getvalue())
        report["plot"] = str(out / f"{args.task}.svg")
    if args.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        print("\n".join([work.title, f"  loss: {report['losses'][0]:.3f} at first, "
                         f"{np.mean(report['losses'][-20:]):.3f} in the last 20 steps", *work.told(report)]))
        print(f"written: {checkpoint}" + (f"\nwritten: {report['plot']}" if report["plot"] else
                                          "\nno plot: pip install 'tinygrad_attn[plot]' draws one"))
    return 0


def opened(args: argparse.Namespace) -> dict[str, Any] | None:
    """The checkpoint to go on from, if there is one."""
    if args.resume is None:
        return None
    if not (args.steps is None and args.seed is None and args.text is None):
        raise ValueError("train: --resume takes steps, seed and text from the checkpoint; leave them out")
    saved = serialize.load(args.resume)
    options = saved.get("options")
    if not (isinstance(options, Mapping) and {"task", "steps", "seed", "text"} <= set(options) and "data" in saved
            and options["task"] in STEPS):
        raise ValueError(f"train: {args.resume} is no checkpoint of this command")
    if options["task"] != args.task:
        raise ValueError(f"train: {args.resume} is a checkpoint of {options['task']}, not of {args.task}")
    return saved


@contextmanager
def between_steps() -> Iterator[Any]:
    """Inside, Ctrl-C is only noted, so that no step is torn; a second one stops at once."""
    pressed = False

    def note(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:                      # not in the main thread, where no signal comes
        yield lambda: False
        return
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class Sequences:
    """copy and reverse."""

    data = 0

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.task = SequenceTask(options["task"])
        self.training = sequence_training(self.task, seed=options["seed"], steps=options["steps"])
        self.title = (f"{self.task.kind} of {self.task.shortest} to {self.task.longest} of {self.task.symbols} "
                      "symbols, by an encoder-decoder")

    def checked(self, prompt: str | None) -> str:
        return ""

    def measured(self, prompt: str, letters: int, temperature: float) -> dict[str, Any]:
        rng = np.random.default_rng([2026, 1])          # other sequences than the training's
        source, target = self.task.draw(rng, 500)
        assert isinstance(self.training.model, EncoderDecoder)
        written = self.training.model.generate(source[:3], target.shape[1], start=START)
        return {"exact": self.task.exact(self.training.model, source, target),
                "examples": [[spelled(row) for row in triple] for triple in zip(source, target, written)]}

    def levels(self, report: Mapping[str, Any]) -> dict[str, float]:
        return {f"guessing one of {self.task.symbols} symbols": math.log(self.task.symbols)}

    def told(self, report: Mapping[str, Any]) -> list[str]:
        lines = [f"  {report['exact']:.1%} of 500 new sequences are exact, end mark included; for example"]
        return lines + [f"    {source} → {written}" + ("" if written == target else f"   (right: {target})")
                        for source, target, written in report["examples"]]


def spelled(ids: np.ndarray) -> str:
    """Symbols as letters, up to the end mark."""
    row = list(ids)
    return "".join((string.ascii_letters[i - FIRST] if i >= FIRST else "?" if i != PAD else "·")
                   for i in row[:row.index(END) if END in row else None])


class Text:
    """A GPT."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.source = options["text"]
        builtin = self.source in ("en", "pt", "both")
        try:
            text = declaration(self.source) if builtin else Path(self.source).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"train: --text {self.source}: this is no text in UTF-8: {error}") from None
        self.corpus, self.data = Corpus.of(text), zlib.crc32(text.encode())
        self.training = text_training(self.corpus, seed=options["seed"], steps=options["steps"])
        named = {"en": "the declaration in English", "pt": "the declaration in Portuguese",
                 "both": "the declaration in English and Portuguese"}.get(self.source, self.source)
        self.title = f"{named}, {len(self.corpus.train):,} letters, by a character-level GPT"

    def checked(self, prompt: str | None) -> str:
        prompt = prompt or self.corpus.decode(self.corpus.held_out[:16])
        self.corpus.encode(prompt)
        return prompt

    def measured(self, prompt: str, letters: int, temperature: float) -> dict[str, Any]:
        model = self.training.model
        assert isinstance(model, GPT)
        ids = model.generate(self.corpus.encode(prompt)[None], letters, temperature=temperature, rng=0)[0]
        return {"held_out": gpt_loss(model, self.corpus.held_out), "bigram": bigram_loss(self.corpus),
                "prompt": prompt, "sample": self.corpus.decode(ids)}

    def levels(self, report: Mapping[str, Any]) -> dict[str, float]:
        return {"bigrams, on the held-out text": report["bigram"],
                "GPT, at the end, on the held-out text": report["held_out"]}

    def told(self, report: Mapping[str, Any]) -> list[str]:
        return [f"  on the {len(self.corpus.held_out):,} letters held out: {report['held_out']:.3f} nats a letter; a "
                f"smoothed bigram model has {report['bigram']:.3f}",
                f"  it goes on from {report['prompt']!r}:", *(f"    {line}" for line in report["sample"].splitlines())]
