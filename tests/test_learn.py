"""The command `learn`, and what it is made of: tutorials as cells, quizzes as HTML, the record of progress."""

import ast
import configparser
import html.parser
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import chrome
import numpy as np
import pytest

from tinygrad_attn import ShapeError, cli, learn_command, plots
from tinygrad_attn.learn import exercises, hint, quiz, record
from tinygrad_attn.learn.exercise import exercise, ids
from tinygrad_attn.learn.lessons import Lesson, cells, lesson, lessons, run_cells
from tinygrad_attn.learn.terminal import filled, formula

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def learn(*arguments):
    return cli.main(["learn", *arguments])


# ------------------------------------------------------------------------------------------------ the command

def test_it_lists_the_path_and_says_what_is_next(capsys):
    assert learn() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines[:14]] == [f"{n:02}" for n in range(1, 15)]
    assert lines[-1] == "Next: python3 -m tinygrad_attn learn 01"


def test_progress_is_kept_and_shown(capsys, home):
    record.note("read", "01")
    for id in ids():
        if id.startswith("01"):
            record.note("solved", id)
    record.note("quiz", "01", [2, 3])
    record.note("quiz", "01", [1, 3])
    learn()
    lines = capsys.readouterr().out.splitlines()
    n = sum(id.startswith("01") for id in ids())
    assert lines[0].split("min  ")[1].split() == ["read", f"{n}/{n}", "solved", "quiz", "2/3"]
    assert lines[-1] == "Next: python3 -m tinygrad_attn learn 02"
    learn("--json")
    rows = json.loads(capsys.readouterr().out)["lessons"]
    assert (rows[0]["quiz"], len(rows[0]["solved"]), rows[1]["read"]) == ([2, 3], n, None)


def test_an_exercise_from_start_to_end(capsys, home):
    assert learn("03-softmax") == 0
    assert "exp(xᵢ) / Σⱼ exp(xⱼ)" in capsys.readouterr().out
    assert learn("start", "03-softmax", "answer.py") == 0
    assert capsys.readouterr().out.splitlines() == [
        "written: answer.py", "then: python3 -m tinygrad_attn learn check 03-softmax answer.py"]
    assert learn("check", "03-softmax", "answer.py") == 1
    assert "None, as a function gives that has no return" in capsys.readouterr().out
    assert learn("solution", "03-softmax") == 2
    assert "is not solved yet" in capsys.readouterr().err
    assert not record.progress()["solved"]
    assert learn("solution", "03-softmax", "--give-up") == 0
    Path("answer.py").write_text(capsys.readouterr().out, encoding="utf-8")
    assert learn("check", "03-softmax", "answer.py") == 0
    assert capsys.readouterr().out.endswith("  Solved.\n")
    assert list(record.progress()["solved"]) == ["03-softmax"]
    assert learn("solution", "03-softmax") == 0
    assert learn("exercises", "03") == 0
    assert "ok  03-softmax" in capsys.readouterr().out


@pytest.mark.parametrize("id", ids())
def test_every_starter_as_a_file_is_python_that_states_the_exercise(id):
    assert learn("start", id, "answer.py") == 0
    assert ast.get_docstring(ast.parse(Path("answer.py").read_text(encoding="utf-8"))).startswith(f"{id}: ")


def test_what_is_there_is_not_written_over(capsys):
    Path("answer.py").write_text("mine")
    assert learn("start", "03-softmax", "answer.py") == 2
    assert learn("notebook", "03", "answer.py") == 2
    assert Path("answer.py").read_text() == "mine"
    assert capsys.readouterr().err.count("answer.py is there already, and is left as it is") == 2


def test_an_answer_may_come_from_a_pipe_and_the_report_as_json():
    answer = "import numpy as np\ndef softmax(x):\n    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)\n"
    result = subprocess.run([sys.executable, "-m", "tinygrad_attn", "learn", "check", "03-softmax", "-", "--json"],
                            input=answer, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    found = json.loads(result.stdout)
    assert (result.returncode, result.stderr, found["passed"]) == (1, "", False)
    assert {entry["check"]: entry["passed"] for entry in found["entries"]}["many rows"] is True


def test_hints_come_one_by_one(capsys):
    n = len(exercise("03-softmax").hints)
    assert learn("hint", "03-softmax") == 0
    assert "(Next: python3 -m tinygrad_attn learn hint 03-softmax 2)" in capsys.readouterr().out
    assert learn("hint", "03-softmax", str(n + 1)) == 2
    assert f"has {n} hints" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "words"), [
    (("99",), "there is no tutorial 99"),
    (("03-sofmax",), "did you mean 03-softmax"),
    (("check", "03-nothing", "a.py"), "there is no exercise '03-nothing'"),
    (("check", "03-softmax", "missing.py"), "missing.py: No such file"),
    (("quiz", "77"), "there is no tutorial 77"),
])
def test_a_request_that_cannot_be_met_says_so(arguments, words, capsys):
    assert learn(*arguments) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert "Traceback" not in out + err


def test_a_line_of_the_record_that_cannot_be_read_is_passed_over(capsys, home):
    record.note("read", "01")
    with open(home / "progress.jsonl", "a") as file:
        file.write('[1,\n{"section": "quiz", "name": "01", "value": 7}\n"text"\n{"section": "later", "name": "x"}\n')
    record.note("read", "02")
    assert learn() == 0
    assert list(record.progress()["read"]) == ["01", "02"]


def test_two_sessions_at_once_lose_nothing(home):
    code = "from tinygrad_attn.learn import record; [record.note('solved', f'{%d}-{i}') for i in range(20)]"
    writers = [subprocess.Popen([sys.executable, "-c", code % n], cwd=ROOT) for n in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert len(record.progress()["solved"]) == 60


@pytest.mark.parametrize("actions", [("check", "03-softmax", "answer.py"), ("02",)])
def test_progress_that_cannot_be_kept_is_said_and_changes_nothing_else(actions, capsys, monkeypatch):
    Path("answer.py").write_text(exercise("03-softmax").solution_text)
    Path("file").touch()
    monkeypatch.setenv("TINYGRAD_ATTN_HOME", str(Path("file").resolve() / "home"))
    assert learn(*actions) == 0
    assert "(progress is not kept: " in capsys.readouterr().err


def test_a_user_without_a_home_can_use_it(monkeypatch):
    for name in ("TINYGRAD_ATTN_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert not record.folder().is_absolute()
    with pytest.raises(SystemExit):
        cli.main(["--version"])


@pytest.mark.parametrize(("given", "meant"), [
    (["learn", "05"], ["learn", "read", "05"]), (["learn", "5", "--out", "x"], ["learn", "read", "5", "--out", "x"]),
    (["learn", "03-softmax"], ["learn", "show", "03-softmax"]), (["learn", "quiz", "05"], ["learn", "quiz", "05"]),
    (["graph", "05"], ["graph", "05"]), ([], [])])
def test_a_number_means_read_and_an_id_means_show(given, meant):
    assert learn_command.expanded(given) == meant


QUESTION = re.compile(rb"q ends\] |\[a(?:/[b-h])+\] ")


def at_a_terminal(arguments, typed, home):
    """What a terminal shows when `learn` is run there, and `typed` is typed, each when a question has come."""
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(TINYGRAD_ATTN_HOME=str(home), PYTHONPATH=str(ROOT), TERM="xterm", COLUMNS="80")
        os.execv(sys.executable, [sys.executable, "-m", "tinygrad_attn", "learn", *arguments])
    shown, waiting, asked = b"", list(typed), 0
    deadline = time.monotonic() + 60
    while select.select([fd], [], [], max(deadline - time.monotonic(), 0))[0]:
        try:
            part = os.read(fd, 4096)
        except OSError:                     # the program has ended
            break
        shown += part
        while waiting and len(QUESTION.findall(shown)) > asked:
            asked += 1
            os.write(fd, waiting.pop(0).encode() + b"\n")
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return shown.decode().replace("\r\n", "\n"), os.waitstatus_to_exitcode(status)


def test_a_quiz_at_a_terminal_gives_the_reason_of_each_choice(home):
    questions = quiz("05").questions
    typed, said = [], []
    for i, question in enumerate(questions):
        letters = "abcd"[:len(question.options)]
        right = next(k for k, option in enumerate(question.options) if option.right)
        wrong = (right + 1) % len(letters)
        typed += ["x", letters[wrong], letters[right]] if i == 0 else [letters[right]]
        said += [question.options[right].reason] + ([question.options[wrong].reason] if i == 0 else [])
    shown, code = at_a_terminal(["quiz", "05"], typed, home)
    assert code == 0, shown
    flat = " ".join(shown.split())
    assert all(" ".join(filled(reason, 80).split()) in flat for reason in said)
    assert f"{len(questions) - 1} of {len(questions)} at the first try." in flat
    assert json.loads((home / "progress.jsonl").read_text())["value"] == [len(questions) - 1, len(questions)]


def test_reading_at_a_terminal_waits_and_can_be_left(home):
    shown, code = at_a_terminal(["03"], ["", "q"], home)
    assert code == 0
    assert "[Enter goes on, q ends]" in shown
    assert "Exercises\n---" not in shown
    assert not (home / "progress.jsonl").exists()


# -------------------------------------------------------------------------------------------------- tutorials

SMALL = '# ---\n# header\n# ---\n\n# %% [markdown]\n# # A title\n#\n# Prose.\n\n# %%\nx = 1\nx + 1\n'


def test_cells_are_prose_and_code_with_their_lines():
    prose, code = cells(SMALL)
    assert (prose.kind, prose.text, prose.line) == ("markdown", "# A title\n\nProse.", 6)
    assert (code.kind, code.text, code.line) == ("code", "x = 1\nx + 1", 11)
    assert SMALL.splitlines()[code.line - 1] == "x = 1"


def test_a_cell_shows_what_it_prints_and_the_value_of_its_last_line(tmp_path):
    path = tmp_path / "01_small.py"
    seen = []
    text = SMALL + "\n# %%\nprint('printed')\ny = 3\n\n# %%\nimport numpy\nnumpy.set_printoptions(precision=2)\n"
    run_cells(Lesson("01", path, cells(text)), lambda cell, printed, value: seen.append((cell.kind, printed, value)))
    assert seen == [("markdown", "", None), ("code", "", 2), ("code", "printed\n", None), ("code", "", None)]
    assert np.get_printoptions()["precision"] == 8          # as it was


def test_a_cell_that_raises_names_file_and_line(tmp_path):
    text = SMALL + "\n# %%\nfirst = 1\n1 / 0\n"
    path = tmp_path / "01_small.py"
    path.write_text(text)
    here = Path.cwd()
    with pytest.raises(ZeroDivisionError) as caught:
        run_cells(Lesson("01", path, cells(text)), lambda *shown: None)
    assert caught.value.__notes__ == [f"in the cell at {path}, line 15"]
    assert caught.traceback[-1].lineno + 1 == 16
    assert Path.cwd() == here


@pytest.mark.parametrize("number", [one.number for one in lessons()])
def test_a_tutorial_as_a_notebook_has_the_same_cells(number):
    assert learn("notebook", number, "lesson.ipynb") == 0
    book, one = json.loads(Path("lesson.ipynb").read_text(encoding="utf-8")), lesson(number)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]] == [
        (cell.kind, cell.text) for cell in one.cells]
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    assert not any(cell.get("outputs") for cell in book["cells"])


def test_exercises_are_shown_in_a_notebook_and_in_a_terminal():
    found = exercises("03")
    assert "def softmax(x):" in found._repr_markdown_()
    assert 'check("03-softmax", softmax)' in found._repr_markdown_()
    assert "03-softmax: " in str(found)
    assert exercises(3) == exercises("3") == found
    assert quiz(3) == quiz("03")
    with pytest.raises(ValueError, match="there is no tutorial 99"):
        exercises("99")


def test_a_hint_in_a_notebook(capsys):
    hint("03-softmax")
    assert capsys.readouterr().out.startswith("First write")
    with pytest.raises(ValueError, match=r"has \d hints, and no number 9"):
        hint("03-softmax", 9)


def test_a_picture_that_cannot_be_made_does_not_end_the_reading():
    """matplotlib is an extra."""
    code = ("import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None; "
            "from tinygrad_attn import cli; sys.exit(cli.main(['learn', '01']))")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("(no picture: plots need matplotlib: pip install") == 2
    assert "Read on" in result.stdout


def test_pictures_go_where_they_are_asked_for(capsys):
    assert learn("03", "--out", "out") == 0
    assert f"picture: {os.path.join('out', '03_1.png')}" in capsys.readouterr().out
    assert len(list(Path("out").glob("03_*.png"))) == 2


def test_what_cannot_be_written_is_not_the_fault_of_the_tutorial():
    result = subprocess.run(f"{sys.executable} -m tinygrad_attn learn 03 > /dev/full", shell=True, cwd=ROOT, text=True,
                            capture_output=True)
    assert result.returncode != 0
    assert "cannot be run to its end" not in result.stderr


@pytest.mark.parametrize("arguments", [("quiz", "03"), ("check", "03-softmax", "-"), ("02",)])
def test_it_can_be_started_without_any_input(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert learn(*arguments) == (2 if "-" in arguments else 0)
    assert "Traceback" not in capsys.readouterr().err


def test_a_pipe_is_read_as_the_file_would_be():
    """Whatever the language of the terminal."""
    answer = exercise("03-softmax").solution_text.replace("def ", "# √\ndef ", 1).encode()
    result = subprocess.run([sys.executable, "-m", "tinygrad_attn", "learn", "check", "03-softmax", "-"], input=answer,
                            capture_output=True, cwd=ROOT, env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0",
                                                                "PYTHONCOERCECLOCALE": "0"})
    assert (result.returncode, result.stderr) == (0, b"")


def test_all_packages_are_in_the_wheel():
    """The tutorials too, which stand beside the package in a checkout, and inside it where it is installed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tinygrad_attn").rglob("__init__.py")}
    assert listed == {".".join(folder.parts) for folder in folders} | {"tinygrad_attn.tutorials"}
    data = config["options.package_data"]["tinygrad_attn.tutorials"].replace(",", " ").split()
    kept = {path for pattern in data for path in (ROOT / "tutorials").glob(pattern)}
    assert kept == {path for path in (ROOT / "tutorials").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    for package, folder in (("tinygrad_attn", "locale"), ("tinygrad_attn.site", "site")):
        data = config["options.package_data"][package].replace(",", " ").split()
        kept = {path for pattern in data for path in (ROOT / package.replace(".", "/")).glob(pattern)}
        wanted = {path for path in (ROOT / "tinygrad_attn" / folder).rglob("*")
                  if path.is_file() and path.suffix not in (".py", ".pyc")}
        assert wanted <= kept
        assert wanted


# -------------------------------------------------------------------------------------------------- terminals

@pytest.mark.parametrize(("tex", "text"), [
    (r"\frac{1}{\sqrt{d_k}}", "1/(√d_k)"),
    (r"\operatorname{Var}(q \cdot k) = d_k", "Var(q · k) = d_k"),
    (r"p(1-p) \begin{pmatrix} 1 & -1 \\ -1 & 1 \end{pmatrix}", "p(1-p) [1 -1; -1 1]"),
    (r"2 e^{-m_n \sqrt{d_k}}", "2 e^(-m_n √d_k)"),
    (r"\|J\| \approx \frac{a + b}{2}", "‖J‖ ≈ (a + b)/2")])
def test_a_formula_is_a_line_of_text(tex, text):
    assert formula(tex) == text


def test_prose_is_filled_and_code_and_tables_are_not():
    text = filled("## A heading\n\nSome **bold** and *leaning* words, and `code * 2`, in a paragraph that is long.\n\n"
                 "- an item that goes on and on, and on, and on\n- another\n\n| a | table |\n|---|---|\n\n"
                 "```python\nx  =  1\n```\n\n$$\\sqrt{x}$$", 40)
    assert text == ("A heading\n---------\n\nSome bold and leaning words, and `code *\n2`, in a paragraph that is long."
                    "\n\n- an item that goes on and on, and on,\n  and on\n- another\n\na  table\n\n"
                    "    x  =  1\n\n    √x")


# ----------------------------------------------------------------------------------------------------- quizzes

class Structure(html.parser.HTMLParser):
    """Whether every tag is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag != "input":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("number", [one.number for one in lessons()])
def test_a_quiz_is_sound_html_and_its_text_tells_no_answer(number):
    asked = quiz(number)
    Structure(asked._repr_html_())
    assert all(option.text in str(asked) and option.reason not in str(asked)
               for question in asked.questions for option in question.options)


def test_two_quizzes_in_one_page_do_not_share_names():
    first, second = quiz("05")._repr_html_(), quiz("05")._repr_html_()
    names = [set(re.findall(r'name="([^"]+)"', text)) for text in (first, second)]
    assert names[0]
    assert not names[0] & names[1]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("quiz") / "quiz.html"
    body = "".join(quiz(one.number)._repr_html_() for one in lessons())
    path.write_text('<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
                    "<style>body { font-family: sans-serif; background: #fff; color: #222 } @media "
                    f"(prefers-color-scheme: dark) {{ body {{ background: #16191d; color: #ddd }} }}</style>{body}",
                    encoding="utf-8")
    return path


def shown(browser):
    return browser.execute_script("return [...document.querySelectorAll('.tg-quiz p')].filter(p => p.offsetParent)"
                                  ".map(p => p.textContent)")


def test_a_choice_in_the_page_shows_its_reason_and_no_other(browser, page):
    from selenium.webdriver.common.keys import Keys
    chrome.opened(browser, page)
    assert shown(browser) == []
    reasons = [f"{'Yes' if option.right else 'No'}. " + re.sub("[`*]", "", option.reason)
               for option in quiz(lessons()[0].number).questions[0].options]
    browser.find_element("css selector", "fieldset label").click()
    assert shown(browser) == reasons[:1]
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)             # by keyboard, the next
    assert shown(browser) == reasons[1:2]


def test_a_screen_reader_is_told_no_answer_before_a_choice(browser, page):
    chrome.opened(browser, page)
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    options = [node for node in nodes if node.get("role", {}).get("value") == "radio"]
    assert len(options) == sum(len(q.options) for one in lessons() for q in quiz(one.number).questions)
    assert all(node["name"]["value"] and not node.get("description", {}).get("value") for node in options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_readable_and_fits_a_phone(browser, page, scheme):
    chrome.opened(browser, page, width=360, scheme=scheme)
    browser.execute_script("document.querySelectorAll('.tg-quiz fieldset').forEach((f, i) => { const all = "
                           "f.querySelectorAll('input'); all[i % all.length].click() })")
    assert len(shown(browser)) >= 3 * len(lessons())
    low = [(what, ratio) for what, ratio in chrome.contrasts(browser, ".tg-quiz p, .tg-quiz label, .tg-quiz legend")
           if ratio < 4.5]
    assert low == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


# --------------------------------------------------------------------------------------------------- pictures

def test_every_curve_is_drawn():
    picture = plots.curves({f"{i}": ([0, 1], [i, i]) for i in range(7)}, xlabel="x", ylabel="y")
    assert len(picture.axes[0].lines) == 7


@pytest.mark.parametrize(("table", "options"), [([1.0, 2.0], {}), ([[1.0, 2.0]], dict(rows=["a", "b"])),
                                                ([[1.0, 2.0]], dict(columns=["a"])), ([[]], {})])
def test_a_heatmap_of_what_is_no_table_says_so(table, options):
    with pytest.raises(ShapeError, match="heatmap: w has shape"):
        plots.heatmap({"w": table}, **options)
