"""The command `site`: the tutorials as pages, in English and Portuguese, and a server to read them from."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from .languages import LANGUAGES
from .progress import Progress, wiped


def add_parser(commands: Any) -> None:
    p = commands.add_parser(
        "site", help="the tutorials as pages to read in a browser",
        description="Build the site of the tutorials: lessons that have run, quizzes, a reference and a search, in "
                    "English and in Brazilian Portuguese. It asks nobody for anything when it is read. Needs the extra "
                    "[site].",
        epilog="The first time takes about a minute; lessons that ran are kept in your data directory, or in "
               "$TINYGRAD_ATTN_HOME, and run again when they change. The exit code is 1 if the site cannot be built: "
               "a cell that raises, a link that leads nowhere, or a missing translation is told with its file.")
    p.add_argument("--out", dest="folder", type=Path, default=Path("site"), metavar="DIR",
                   help="where to build it: a new or empty folder, or one with an older site (default: site)")
    p.add_argument("--languages", nargs="+", choices=list(LANGUAGES), default=list(LANGUAGES), metavar="LANG",
                   help=f"of {', '.join(LANGUAGES)} (default: all)")
    p.add_argument("--fresh", action="store_true", help="run every lesson again")
    p.add_argument("--serve", action="store_true", help="then serve it on this machine alone, until Ctrl-C")
    p.add_argument("--port", type=int, default=8000, metavar="N",
                   help="of the server; 0 takes any that is free (default: %(default)s)")
    p.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    p.set_defaults(job=site)


def site(args: argparse.Namespace) -> int:
    """Build it, and serve it if that was asked for."""
    building, serving = (import_module(f"{__package__}.site.{name}") for name in ("build", "serve"))    # for no other
    building.check_folder(args.folder)
    for name in {"SIGTERM", "SIGHUP"} & set(dir(signal)):                       # and what is half done is removed
        signal.signal(getattr(signal, name), lambda number, frame: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving.server(args.folder, args.port)) if args.serve else None    # or no port
        if not sys.stderr.isatty():
            print("building the site: about a minute", file=sys.stderr)
        try:
            report = building.build(args.folder, list(dict.fromkeys(args.languages)), fresh=args.fresh,
                                    progress=Progress("site"))
        except building.SiteError as error:
            print(f"{wiped()}the site was not built:\n{error}", file=sys.stderr)
            return 1
        if args.json:
            print(json.dumps(report, indent=1), flush=True)
        else:
            print(f"written: {args.folder / 'index.html'} ({report['pages']} pages, {report['lessons_run']} lessons "
                  f"run, {report['seconds']:.0f} s)", flush=True)
        if server:
            print(f"serving: http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", file=sys.stderr, flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
            print(file=sys.stderr)
    return 0
