"""Floor 7.4. The site: all lessons run in all languages, one Sphinx for each language, and all of it put in place.

Nothing of an old site is touched before the new one is whole. What Sphinx warns of is an error here.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import __version__
from ..languages import LANGUAGES, _, speaking
from ..learn.lessons import lesson, lessons
from . import catalogues, executed, reference, sources

HERE = Path(__file__).parent
MARK = ".tinygrad-attn-site"                # a folder with this file has a site of ours, which may be replaced
WORK = ".site-"                             # what a folder's name begins with while a site is made in it
NEEDED = {"sphinx": "sphinx", "myst_nb": "myst-nb", "furo": "furo", "matplotlib": "matplotlib",
          "sphinx-mathjax-offline": "sphinx-mathjax-offline"}       # what is imported, and what it is installed as
ELSEWHERE = re.compile(r'<(?:img|script|iframe|link|source|video|audio)\b[^>]*\b(?:src|href)="(?:\w+:)?//[^"]*"')
MATHJAX = "tex-svg.js"                      # a MathJax in one file: it draws formulas, and asks for no fonts
NAMES = {"en": "English", "pt": "Português"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
LONGEST = ("12", "10", "05")                # lessons that are better begun first


class SiteError(Exception):
    """The site cannot be built, and why."""


def build(out: Path, langs: Sequence[str] = tuple(LANGUAGES), *, fresh: bool = False,
          progress: Callable[[int, int, str], None] = lambda done, total, note: None) -> dict[str, Any]:
    """Build the site to `out`, a new folder, an empty one, or one that has an older site.

    `fresh` runs every lesson again. `progress(done, total, note)` is told what is done. What cannot be built, because
    a cell raises, a cross-reference leads nowhere, or a translation is missing, is a SiteError that names the file and
    the place; then `out` is as it was. Returned are counts, of pages and of lessons that ran, and seconds.
    """
    began = time.monotonic()
    check_folder(out)
    if missing := [package for module, package in NEEDED.items() if not find_spec(module)]:
        raise ImportError(f"the site needs {', '.join(missing)}: pip install 'tinygrad_attn[site]'")
    with _told():
        lacking = [line for lang in langs if lang != "en" for line in catalogues.lacking(lang)]
    if lacking:
        raise SiteError("\n".join(lacking))
    jobs = sorted(((one.number, lang) for one in lessons() for lang in langs), key=lambda job: job[0] not in LONGEST)
    waiting = [job for job in jobs if fresh or executed.found(*job) is None]
    steps = iter(range(1, len(waiting) + len(langs) + 1))

    def finish(tasks: dict[Future[None], str]) -> None:
        for task in as_completed(tasks):
            task.result()
            progress(next(steps), len(waiting) + len(langs), tasks[task])

    with _within(out) as made:
        with _workers(len(waiting)) as pool:
            finish({pool.submit(_execute, *job, fresh): " ".join(job) for job in waiting})
        with contextlib.ExitStack() as stack:               # Sphinx can be set up once in a process
            finish({stack.enter_context(_workers(1)).submit(_pages, made, lang, langs): f"pages, {lang}"
                    for lang in langs})
        (made / "index.html").write_text(_entrance(langs), encoding="utf-8")
        (made / MARK).write_text("made by: python -m tinygrad_attn site\n", encoding="utf-8")
        check_folder(out)
        _put(made, out)
    pages = sum(1 for lang in langs for path in (out / lang).rglob("*.html"))
    return {"out": str(out), "languages": list(langs), "pages": pages, "lessons_run": len(waiting),
            "lessons_kept": len(jobs) - len(waiting), "seconds": round(time.monotonic() - began, 1)}


def check_folder(out: Path) -> None:
    """Raise a ValueError unless a site may be written there."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out}: that is a file, and must be a folder")
    if out.is_dir() and not (out / MARK).exists() and any(not path.name.startswith(WORK) for path in out.iterdir()):
        raise ValueError(f"--out {out}: there are other files in it; give a new folder, an empty one, or one that has "
                         "an older site")


@contextlib.contextmanager
def _within(out: Path) -> Iterator[Path]:
    """A folder to work in, inside of `out`, so that all can be put in place at once. If `out` is new and nothing comes
    of it, it is gone again."""
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=out.resolve(), prefix=WORK) as name:
            yield Path(name)
    finally:
        if new:
            with contextlib.suppress(OSError):              # it is not empty
                out.rmdir()


@contextlib.contextmanager
def _workers(tasks: int) -> Iterator[ProcessPoolExecutor]:
    """Processes, as many as are of use, that do not outlast what they are for: a lesson is the module `__main__` while
    it runs, and Sphinx leaves its traces in whatever process it has run in. Each computes on one thread: two processes
    whose matrix products have two threads each wait for one another, on a busy machine for minutes."""
    others, usual = set(multiprocessing.active_children()), {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))          # which processes read when they begin
    count = max(1, min(tasks, os.cpu_count() or 1, 60))     # Windows waits for no more than 61
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise SiteError("a process was ended from outside, perhaps for want of memory") from None
        raise
    finally:
        pool.shutdown()
        for name, number in usual.items():
            if number is None:
                del os.environ[name]
            else:
                os.environ[name] = number


def _begin() -> None:
    """A worker leaves Ctrl-C to the one who asked for the work, and ends with it, however that ends."""
    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What is raised inside is told in a line, with what is known of its place: all that a site is made of may be
    wrong. A cell may also ask to exit."""
    try:
        yield
    except SiteError:
        raise
    except (Exception, SystemExit) as error:
        raise SiteError(": ".join([*getattr(error, "__notes__", ()), type(error).__name__, str(error)])) from None


def _execute(number: str, lang: str, fresh: bool) -> None:
    with _told():
        executed.executed(number, lang, fresh=fresh)


def _pages(made: Path, lang: str, langs: Sequence[str]) -> None:
    """Build the pages of a language. What Sphinx warns of is told with the files that it means."""
    work, said = made / f"work-{lang}", io.StringIO()
    with _told(), warnings.catch_warnings():
        warnings.simplefilter("ignore")                     # of Python's, in packages that are not ours
        from sphinx.application import Sphinx
        with speaking(lang):
            sources.write(work / "source")
            settings = _settings(work / "source", lang, langs)
        Sphinx(work / "source", None, work / lang, work / "trees", "html", settings, status=None, warning=said,
               freshenv=True).build()
    if lines := re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()).strip():
        raise SiteError("\n".join(_placed(line, work / "source", lang) for line in lines.splitlines()))
    for path in (work / lang).rglob("*.html"):
        if asks := ELSEWHERE.search(path.read_text(encoding="utf-8")):
            raise SiteError(f"{lang}/{path.relative_to(work / lang)}: a page would ask another host: {asks[0]}")
    for path in (path for name in ("_modules", "reference") for path in (work / lang / name).rglob("*.html")):
        path.write_text(reference.mended(path.read_text(encoding="utf-8")), encoding="utf-8")
    for unread in (".buildinfo", "objects.inv"):
        (work / lang / unread).unlink(missing_ok=True)
    os.replace(work / lang, made / lang)
    shutil.rmtree(work)


def _settings(source: Path, lang: str, langs: Sequence[str]) -> dict[str, Any]:
    """What conf.py would say, in the language of now; and the files that it would name."""
    code = LANGUAGES[lang].replace("-", "_")
    shutil.copytree(HERE / "static", source / "_static")
    spec = find_spec("sphinx-mathjax-offline")
    shutil.copy(Path(next(iter((spec and spec.submodule_search_locations) or ()))) / "static" / "mathjax" / MATHJAX,
                source / "_static")
    _write_words(source / "locale" / code / "LC_MESSAGES", catalogues.THEME)
    return dict(
        project="tinygrad_attn", html_title="tinygrad_attn", version=__version__, language=code,
        locale_dirs=[str(source / "locale")], exclude_patterns=["notebooks"],
        extensions=["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx.ext.mathjax",
                    f"{__package__}.extension"],
        myst_enable_extensions=["dollarmath", "amsmath"], myst_heading_anchors=3, nb_execution_mode="off",
        mathjax_path=MATHJAX, mathjax3_config={"options": {"enableMenu": False}}, smartquotes=False,
        autodoc_member_order="bysource", autodoc_typehints="none", maximum_signature_line_length=75,
        templates_path=[str(HERE / "templates")], html_static_path=[str(source / "_static")],
        html_css_files=["site.css"],
        html_js_files=[("site.js", {"defer": "defer", "data-larger": _("Enlarge"), "data-smaller": _("Fit")})],
        html_theme="furo", html_theme_options={"top_of_page_buttons": []},
        html_show_sphinx=False, html_show_copyright=False, html_copy_source=False, html_permalinks_icon="#",
        html_context={"languages": {each: (LANGUAGES[each], NAMES[each]) for each in langs}, "here": lang,
                      "language_word": _("Language"), "theme_words": {f"{at}{said}{end}": f"{at}{_(said)}{end}"
                                                                      for at, end, messages in catalogues.FURO
                                                                      for said in messages}},
        html_sidebars={"**": ["sidebar/brand.html", "sidebar/language.html", "sidebar/search.html",
                              "sidebar/scroll-start.html", "sidebar/navigation.html", "sidebar/scroll-end.html"]})


def _write_words(folder: Path, messages: Iterable[str]) -> None:
    """Messages in the language of now, as gettext reads them."""
    from babel.messages.catalog import Catalog
    from babel.messages.mofile import write_mo
    words = Catalog()
    for message in messages:
        words.add(message, _(message))
    folder.mkdir(parents=True)
    with open(folder / "sphinx.mo", "wb") as file:
        write_mo(file, words)


def _placed(warning: str, source: Path, lang: str) -> str:
    """A warning, with the file and line that somebody wrote in place of those that were made of them."""
    def place(found: re.Match[str]) -> str:
        cells = json.loads((source / "lessons" / f"{found[1]}.ipynb").read_text(encoding="utf-8"))["cells"]
        number, line = divmod(int(found[2] or 0), 10_000)   # myst_nb counts so: cells from 1, their lines from 2
        cell = cells[min(max(number - 1, 0), len(cells) - 1)]
        path, within = lesson(found[1][:2]).path, max(line - 2 - cell["metadata"].get("added", 0), 0)
        if "line" in cell["metadata"]:                      # a translation has a line for each paragraph
            return f"{path}:{cell['metadata']['line'] + (within if lang == 'en' else 0)}"
        before = "\n".join(cell["source"].splitlines()[:within + 1])
        names = re.findall(r"^### ([\w-]+):", before, re.MULTILINE) or [found[1][:2]]
        return str(path.parent / "exercises" / f"{names[-1].replace('-', '_')}.py")

    here = re.escape(str(source) + os.sep)
    warning = re.sub(rf"{here}lessons[/\\](\d\d_\w+)\.ipynb(?::(\d+))?", place, warning)
    return re.sub(rf"{here}index\.md", lambda found: str(catalogues.FIRST), warning)


def _entrance(langs: Sequence[str]) -> str:
    """The page at the root, which leads to the reader's language."""
    links = " ".join(f'<a href="{lang}/index.html" lang="{LANGUAGES[lang]}">{NAMES[lang]}</a>' for lang in langs)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>tinygrad_attn</title>
<link rel="icon" href="data:,">
<script>
const own = navigator.languages.map(code => code.slice(0, 2)).find(code => {list(langs)}.includes(code));
location.replace((own || "{langs[0]}") + "/index.html");
</script>
</head>
<body><h1>tinygrad_attn</h1><p>{links}</p></body>
</html>
"""


def _put(made: Path, out: Path) -> None:
    """Put what was made in place of what was there, all or nothing. Files that are not of a site stay."""
    old = made / "old"
    old.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for name in (*LANGUAGES, "index.html", MARK):
            for source, target in ((out / name, old / name), (made / name, out / name)):
                if source.exists():
                    os.replace(source, target)
                    moved.append((source, target))
    except BaseException:
        for source, target in reversed(moved):
            os.replace(target, source)
        raise
