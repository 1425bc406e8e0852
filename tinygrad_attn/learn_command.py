"""The command `learn`: the tutorials with your progress, reading one, exercises, their grader, quizzes."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from .files import write_whole
from .languages import LANGUAGES, _, language, of_environment
from .learn import record
from .learn.exercise import exercise, ids
from .learn.grader import SECONDS, check_file
from .learn.lessons import Cell, described, exercises, hint, lesson, lessons, run_cells
from .learn.quiz import Quiz, quiz
from .learn.terminal import filled

WIDTH = 118                                 # of a file that is written


def command(rest: str) -> str:
    """A command of this kind, as it was typed, and in the same language."""
    program = Path(sys.argv[0]).stem
    lang = "" if language() == of_environment() else f" --lang {language()}"
    return f"{program if program == 'tinygrad-attn' else 'python3 -m tinygrad_attn'} learn {rest}{lang}"


def expanded(argv: Sequence[str]) -> list[str]:
    """`learn 05` means `learn read 05`, and `learn 03-softmax` means `learn show 03-softmax`, also behind options."""
    argv = list(argv)
    at = next((i for i in range(1, len(argv)) if not argv[i].startswith("-") and argv[i - 1] != "--lang"), 0)
    if argv[:1] == ["learn"] and at:
        if re.fullmatch(r"\d+", argv[at]):
            argv.insert(at, "read")
        elif re.match(r"\d", argv[at]):
            argv.insert(at, "show")
    return argv


def add_parser(commands: Any) -> None:
    lang = argparse.ArgumentParser(add_help=False)
    lang.add_argument("--lang", choices=list(LANGUAGES), default=argparse.SUPPRESS,
                      help="language of what you read: en, or pt, Portuguese (default: $TINYGRAD_ATTN_LANG, or en)")
    p = commands.add_parser(
        "learn", parents=[lang], help="the tutorials: read, run, solve and check",
        description="The tutorials, in order, with your progress. `learn 05` reads one, and runs it as you go; `learn "
                    "03-softmax` shows an exercise.",
        epilog="An exercise, from start to end: learn start 03-softmax answer.py; edit answer.py; learn check "
               "03-softmax answer.py; and if you are stuck, learn hint 03-softmax. Progress is kept in your data "
               "directory, or in $TINYGRAD_ATTN_HOME.")
    p.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    p.set_defaults(job=listed)
    actions = p.add_subparsers(title="actions", metavar="ACTION")

    def action(name: str, job: Any, about: str, what: str = "", **options: Any) -> Any:
        sub = actions.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".", parents=[lang],
                                 **options)
        sub.set_defaults(job=job)
        if what:
            sub.add_argument(what.lower(), metavar=what)
        return sub

    read = action("read", reading, "read a tutorial here, and run its cells as you go", "LESSON")
    read.add_argument("--out", type=Path, default=argparse.SUPPRESS, metavar="DIR", help="write its pictures there")
    some = action("exercises", listed_exercises, "list the exercises, of one tutorial or of all")
    some.add_argument("lesson", nargs="?", metavar="LESSON")
    some.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    action("show", showing, "show what an exercise asks", "EXERCISE")
    start = action("start", starting, "write a file to begin with", "EXERCISE")
    start.add_argument("file", nargs="?", type=Path, metavar="FILE",
                       help="where (default: the exercise's name, 03_softmax.py)")
    grade = action("check", checking, "grade an answer; the exit code is 1 if it is not right yet", "EXERCISE")
    grade.add_argument("file", type=Path, metavar="FILE", help="the Python file that defines it; - is standard input")
    grade.add_argument("--seconds", type=float, default=SECONDS, metavar="S",
                       help="stop it after S seconds (default: %(default)g)")
    grade.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    hints = action("hint", hinting, "give a hint", "EXERCISE")
    hints.add_argument("number", nargs="?", type=int, default=1, metavar="N",
                      help="which one (default: the first, the mildest)")
    solve = action("solution", solving, "show a solution, once yours is right", "EXERCISE")
    solve.add_argument("--give-up", action="store_true", help="show it before")
    action("quiz", asking, "answer the questions of a tutorial", "LESSON")
    book = action("notebook", notebook, "write a tutorial as a notebook", "LESSON")
    book.add_argument("file", nargs="?", type=Path, metavar="FILE", help="where (default: its name, with .ipynb)")


def listed(args: argparse.Namespace) -> int:
    """`learn`: the path, and how far you are."""
    done, known = record.progress(), ids()
    rows: list[dict[str, Any]] = []
    for one in lessons():
        own = [id for id in known if id.startswith(one.number + "-")]
        score = done["quiz"].get(one.number)
        rows.append({"lesson": one.number, "title": one.title, "minutes": round(one.minutes),
                     "read": done["read"].get(one.number), "exercises": len(own),
                     "solved": [id for id in own if id in done["solved"]], "quiz": score, "path": str(one.path)})
    if args.json:
        return _printed({"lessons": rows, "progress": str(record.folder() / "progress.jsonl")})
    width = max((len(row["title"]) for row in rows), default=0)
    for row in rows:
        solved = _("{count}/{all} solved").format(count=len(row["solved"]), all=row["exercises"])
        print(f"{row['lesson']}  {row['title']:{width}}  {row['minutes']:2} min  "
              f"{_('read') if row['read'] else '':{len(_('read'))}}  "
              f"{solved:12} {'quiz {}/{}'.format(*row['quiz']) if row['quiz'] else ''}".rstrip())
    ahead = next((row for row in rows if not row["read"] or len(row["solved"]) < row["exercises"]), None)
    if ahead and not ahead["read"]:
        print(f"\n{_('Next')}: {command(ahead['lesson'])}")
    elif ahead:
        print(f"\n{_('Next')}: {command('exercises ' + ahead['lesson'])}")
    else:
        print("\n" + _("All read, all solved."))
    return 0


def listed_exercises(args: argparse.Namespace) -> int:
    chosen = [lesson(args.lesson)] if args.lesson else lessons()
    found = [one for each in chosen for one in exercises(each.number).found]
    solved = record.progress()["solved"]
    if args.json:
        return _printed({"exercises": [{"id": one.id, "title": one.title, "kind": one.kind, "solved":
                                        solved.get(one.id), "path": str(one.path)} for one in found]})
    width = max(len(one.id) for one in found)
    for one in found:
        print(f"{'ok' if one.id in solved else '  '}  {one.id:{width}}  {one.title} ({_(one.kind)})")
    return 0


def showing(args: argparse.Namespace) -> int:
    found = exercise(args.exercise)
    print(described(found, _width()))
    print("\n" + _("To begin: {start}\nA hint:   {hint}").format(start=command(f"start {found.id}"),
                                                             hint=command(f"hint {found.id}")))
    return 0


def starting(args: argparse.Namespace) -> int:
    found = exercise(args.exercise)
    statement = "\n".join(line if line.startswith(" ") else fill(line, WIDTH, break_long_words=False,
                                                                 break_on_hyphens=False)
                          for line in found.statement.splitlines())
    doc = f'"""{found.id}: {found.title}\n\n{statement}\n"""\n\n'
    prefix = "r" if "\\" in doc else ""
    path = _written(args.file or Path(found.path.name), f"{prefix}{doc}{found.starter}")
    print(f"{_('then')}: {command(f'check {found.id} {path}')}")
    return 0


def _written(path: Path, text: str) -> Path:
    """Write a file that is not there yet, and say so."""
    if path.exists():
        raise ValueError(_("{path} is there already, and is left as it is; give another name").format(path=path))
    write_whole(path, text.encode())
    print(f"{_('written')}: {path}")
    return path


def _printed(report: dict[str, Any]) -> int:
    print(json.dumps(report, ensure_ascii=False, indent=1), flush=True)
    return 0


def _noted(section: str, name: str, value: Any = None) -> None:
    """Keep the progress; if that cannot be, all else holds."""
    try:
        record.note(section, name, value)
    except OSError as error:
        print(f"({_('progress is not kept')}: {error.filename or record.folder()}: {error.strerror})", file=sys.stderr)


def checking(args: argparse.Namespace) -> int:
    if not args.seconds > 0:
        raise ValueError(_("--seconds {seconds:g}: it must be above 0").format(seconds=args.seconds))
    if str(args.file) != "-":
        report = check_file(args.exercise, args.file, seconds=args.seconds)
    elif sys.stdin:
        report = check_file(args.exercise, _("standard input"), source=sys.stdin.buffer.read(), seconds=args.seconds)
    else:
        raise ValueError(_("there is no standard input; give a file"))
    if args.json:
        _printed(report.to_dict())
    else:
        print(report, flush=True)
    if report:
        _noted("solved", args.exercise)
    return 0 if report else 1


def hinting(args: argparse.Namespace) -> int:
    hint(args.exercise, args.number)
    if args.number < len(exercise(args.exercise).hints):
        print(f"({_('Next')}: {command(f'hint {args.exercise} {args.number + 1}')})")
    return 0


def solving(args: argparse.Namespace) -> int:
    found = exercise(args.exercise)
    if not args.give_up and args.exercise not in record.progress()["solved"]:
        raise ValueError(_("{id} is not solved yet; --give-up shows a solution all the same, and {hint} helps").format(
            id=args.exercise, hint=command(f"hint {args.exercise}")))
    print(found.solution_text, end="")
    return 0


def asking(args: argparse.Namespace) -> int:
    """`learn quiz 05`: question by question, with the reason for what was chosen."""
    asked = quiz(args.lesson)
    if not (sys.stdin and sys.stdin.isatty()):
        print(asked)
        return 0
    right = 0
    for i, question in enumerate(asked.questions, 1):
        print(filled(f"{i}/{len(asked.questions)}  {question.text}", _width()))
        letters = "abcdefgh"[:len(question.options)]
        for letter, option in zip(letters, question.options):
            print(filled(f"{letter}) {option.text}", _width()))
        first = True
        while True:
            try:
                chosen = input(f"[{'/'.join(letters)}] ").strip().lower()
            except EOFError:
                print()
                return 0
            if len(chosen) != 1 or chosen not in letters:
                print(_("one of {letters}, please").format(letters=", ".join(letters)))
                continue
            option = question.options[letters.index(chosen)]
            print(filled(f"{_('Yes.') if option.right else _('No.')} {option.reason}", _width()) + "\n")
            if option.right:
                break
            first = False
        right += first
    print(_("{count} of {all} at the first try.").format(count=right, all=len(asked.questions)))
    _noted("quiz", asked.number, [right, len(asked.questions)])
    return 0


def notebook(args: argparse.Namespace) -> int:
    found = lesson(args.lesson)
    _written(args.file or Path(found.path.with_suffix(".ipynb").name), found.notebook())
    return 0


def reading(args: argparse.Namespace) -> int:
    """`learn 05`: the prose, and each cell with what it prints, at your own pace on a terminal."""
    found = lesson(args.lesson)
    at_terminal = sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()
    out = args.out and args.out.resolve()                   # cells run in a folder of their own
    pictures = 0

    def shown(cell: Cell, printed: str, value: Any) -> None:
        nonlocal pictures
        if cell.kind == "markdown":
            if at_terminal and re.match(r"#+ ", cell.text) and cell is not found.cells[0]:
                _wait()
            print(filled(cell.text, _width()) + "\n")
            return
        print("\n".join(f"  │ {line}".rstrip() for line in cell.text.splitlines()) + "\n", flush=True)
        text = printed.rstrip("\n")
        if value is not None:
            kind, content = _picture(value)
            if isinstance(value, ImportError):
                text += f"\n({_('no picture')}: {value})"
            elif kind and out:
                pictures += 1
                name = f"{found.number}_{pictures}.{kind}"
                write_whole(out / name, content)
                text += f"\n{_('picture')}: {args.out / name}"
            elif kind:
                text += "\n" + _("(a picture; --out DIR writes it)")
            else:
                text += "\n" + (filled(str(value), _width()) if isinstance(value, Quiz) else
                                str(value) if hasattr(value, "_repr_markdown_") else
                                repr(value))
        if text.strip():
            print(text.strip("\n") + "\n", flush=True)

    try:
        run_cells(found, shown)
    except Enough:
        return 0
    except Exception as error:
        if not (place := getattr(error, "__notes__", ())):  # not of a cell, but of what is written here
            raise
        print(_("{number} cannot be run to its end").format(number=found.number)
              + f": {place[0]}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    _noted("read", found.number)
    return 0


class Enough(Exception):
    """The reader ends the reading before the end."""


def _wait() -> None:
    """Until the reader has read so far. The end of input, or q, ends the reading."""
    try:
        answer = input(_("[Enter goes on, q ends] "))
    except EOFError:
        answer = "q"
    print("\033[F\033[K", end="")
    if answer.strip().lower() == "q":
        raise Enough


def _picture(value: Any) -> tuple[str, bytes]:
    """A picture as what a file would hold, and that file's suffix."""
    if hasattr(value, "_repr_png_"):
        return "png", value._repr_png_()[0]
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        return ("svg", bundle["image/svg+xml"].encode()) if "image/svg+xml" in bundle else ("txt", str(value).encode())
    if isinstance(value, str) and value.lstrip().startswith("<!doctype html>"):
        return "html", value.encode()
    return "", b""


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100)
