"""Every tutorial runs as a script, from top to bottom, and what it asserts holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[1] / "tutorials").glob("[0-9]*.py"))


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    result = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, cwd=tmp_path,
                            timeout=300, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert (result.returncode, result.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_it_has_the_parts_of_a_tutorial(path):
    text = path.read_text(encoding="utf-8")
    for part in ("**The problem.**", "assert ", "## Exercises", "## Quiz", "## Read on"):
        assert part in text, part
    assert ".plot()" in text or "graph.draw(" in text       # a picture that the code makes
