"""Every tutorial runs, as a script and cell by cell, what it asserts holds, it has the parts that all have, and what it
points to exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad_attn.learn import exercises, quiz
from tinygrad_attn.learn.lessons import lesson, lessons

ROOT = Path(__file__).parents[1]
TUTORIALS = lessons()
each = pytest.mark.parametrize("one", TUTORIALS, ids=lambda one: one.path.stem)


def prose(one):
    return "\n\n".join(cell.text for cell in one.cells if cell.kind == "markdown")


def test_there_are_fourteen_in_order():
    assert [one.number for one in TUTORIALS] == [f"{n:02}" for n in range(1, 15)]
    assert all(one.path.parent == ROOT / "tutorials" for one in TUTORIALS)


@each
def test_it_runs_as_a_script(one, tmp_path):
    result = subprocess.run([sys.executable, "-W", "error", str(one.path)], capture_output=True, text=True,
                            cwd=tmp_path, timeout=300, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert (result.returncode, result.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


@each
def test_it_runs_cell_by_cell_and_makes_a_picture(one, tmp_path):
    """As `learn` does it, and a notebook."""
    result = subprocess.run([sys.executable, "-W", "error", "-m", "tinygrad_attn", "learn", one.number, "--out",
                             str(tmp_path / "pictures")], capture_output=True, text=True, cwd=tmp_path, timeout=300,
                            env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT),
                                 "TINYGRAD_ATTN_HOME": str(tmp_path / "home")})
    assert (result.returncode, result.stderr) == (0, "")
    pictures = [path for path in (tmp_path / "pictures").iterdir() if path.suffix in (".png", ".svg")]
    assert pictures
    assert all(path.stat().st_size > 2000 for path in pictures)
    assert "\\" not in re.sub(r"^  │.*$", "", result.stdout, flags=re.M)       # TeX that a terminal does not show


@each
def test_it_has_the_parts_of_a_tutorial(one):
    first, *_, last = one.cells
    assert re.match(r"# .+\n\n\*\*The problem\.\*\*", first.text)
    assert "You need" in first.text
    headings = [line for line in prose(one).splitlines() if line.startswith("#")]
    assert headings[0].startswith("# ")
    assert all(line.startswith("## ") for line in headings[1:])
    assert headings[-3:] == ["## Exercises", "## Quiz", "## Read on"]
    assert last.text.startswith("## Read on")
    code = [cell.text for cell in one.cells if cell.kind == "code"]
    assert code[-2].splitlines()[-1] == f'exercises("{one.number}")'
    assert code[-1] == f'quiz("{one.number}")'
    assert any("assert " in cell for cell in code)
    assert any(re.search(r"\bgradcheck\(", cell) for cell in code)
    assert max(len(cell.splitlines()) for cell in code) <= 45
    assert len(headings) >= 7


@each
def test_it_is_read_in_a_quarter_of_an_hour(one):
    assert 4 < one.minutes < 15


def test_the_engine_of_tutorial_02_has_the_lines_that_its_title_says():
    parts = lesson("02").cells
    start, end = (next(i for i, cell in enumerate(parts) if heading in cell.text) for heading in ("## 2. ", "## 4. "))
    code = [line for cell in parts[start:end] if cell.kind == "code" for line in cell.text.splitlines() if line.strip()]
    assert 40 < len(code) < 60


@each
def test_it_names_all_its_exercises(one):
    named = set(re.findall(rf"\b({one.number}-[a-z0-9-]+)\b", prose(one)))
    assert named == {found.id for found in exercises(one.number).found}


@each
def test_what_it_points_to_exists(one):
    text = prose(one)
    for name in re.findall(r"`((?:tinygrad_attn|tests|tutorials|benchmarks)/[\w./]*)`|`([\w/]+\.py)`", text):
        path = name[0] or name[1]
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "tinygrad_attn")) or path in (
            "answer.py", "my_model.py"), path
    for number in re.findall(r"[Tt]utorials? (\d\d)", text):
        assert lesson(number)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith("https://") or (one.path.parent / target).exists(), target


@each
def test_its_quiz_has_a_reason_for_each_option(one):
    questions = quiz(one.number).questions
    assert len(questions) >= 3
    for question in questions:
        assert len(question.text) > 15
        assert 3 <= len(question.options) <= 4
        assert [option.right for option in question.options].count(True) == 1
        assert all(len(option.reason) > 15 for option in question.options)
        assert len({option.text for option in question.options}) == len(question.options)
        assert len({option.reason for option in question.options}) == len(question.options)


def test_the_right_option_stands_anywhere_and_is_not_the_longest():
    """So that nobody passes by a habit."""
    found = [question for one in TUTORIALS for question in quiz(one.number).questions]
    places = [[option.right for option in question.options].index(True) for question in found]
    assert all(places.count(place) < 0.55 * len(places) for place in range(4))
    longest = [max(question.options, key=lambda option: len(option.text)).right for question in found]
    assert sum(longest) < 0.6 * len(longest)
