"""The command `graph`, as a newcomer types it, and the pictures of README, which it made."""

import json
import os
import re
import shlex
import subprocess
import sys
import webbrowser
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tinygrad_attn import cli, examples, graph
from tinygrad_attn.graph import render

README = Path(__file__).parents[1] / "README.md"
PICTURES = re.findall(r"^python3 -m tinygrad_attn (graph .*out/.*svg)$", README.read_text(encoding="utf-8"), re.M)


def command(*arguments, cwd, **options):
    return subprocess.run([sys.executable, "-m", "tinygrad_attn", "graph", *arguments], capture_output=True, text=True,
                          encoding="utf-8", cwd=cwd, timeout=60,
                          env={**os.environ, "PYTHONIOENCODING": "utf-8", **options})


def structure(path):
    """What a picture shows, wherever it stands: texts, tooltips, and the class of each part."""
    parts = list(ElementTree.fromstring(path.read_text(encoding="utf-8")).iter())
    return sorted((part.tag, part.get("class") or "", "".join(part.itertext()).strip()) for part in parts
                  if part.tag.endswith(("}g", "}text", "}title")))


@pytest.mark.parametrize("arguments", PICTURES)
def test_the_pictures_in_readme_are_what_its_commands_draw(arguments, tmp_path, capsys):
    words = shlex.split(arguments)
    committed = README.parent / "pictures" / Path(words[-1]).name
    assert words[-2] == "--out"
    assert cli.main([*words[:-1], str(tmp_path / committed.name)]) == 0
    assert structure(tmp_path / committed.name) == structure(committed)
    assert capsys.readouterr().out == f"written: {tmp_path / committed.name}\n"


def test_every_picture_in_readme_has_its_command():
    shown = re.findall(r"\]\((pictures/.*?)\)", README.read_text(encoding="utf-8"))
    assert sorted(Path(p).name for p in shown) == sorted(Path(shlex.split(a)[-1]).name for a in PICTURES)
    assert sorted(path.name for path in (README.parent / "pictures").iterdir()) == sorted(Path(p).name for p in shown)


def test_without_a_file_it_prints_an_outline(tmp_path):
    result = command("scalar", "--values", "--grads", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{graph.draw(examples.scalar(), values=True, grads=True)}\n"
    assert os.listdir(tmp_path) == []
    assert command(cwd=tmp_path).stdout.startswith("output = matmul (3, 4)\n")


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_every_example_is_drawn(name, tmp_path, capsys):
    assert cli.main(["graph", name, "--out", str(tmp_path / "x.html"), "--lang", "pt"]) == 0
    assert cli.main(["graph", name, "--out", str(tmp_path / "x.svg")]) == 0
    assert sorted(os.listdir(tmp_path)) == ["x.html", "x.svg"]


def test_a_function_of_ones_own_is_drawn(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from tinygrad_attn import Tensor, graph\n"
        "x = Tensor(3.0, requires_grad=True, name='x')\n"
        "def loss():\n    return (x * x).sqrt()\n"
        "def several():\n    return {'double': x * 2, 'square': x * x}\n"
        "def pair():\n    return x * 2, x * 3\n"
        "def ready():\n    return graph.draw(x * 2)\n"
        "def number():\n    return 3\n"
        "def broken():\n    raise ValueError('my own fault')\n"
        "def needs(batch):\n    return x\n"
        "def constant():\n    return Tensor(1.0) * 2\n"
        "def freed():\n    y = x * 2\n    y.backward()\n    return y\n"
        "def talks():\n    print('hello')\n    return x * 2\n"
        "class Model:\n    @staticmethod\n    def loss():\n        return x * 2\n"
        "def small():\n    y = x\n    for _ in range(20): y = y.tanh()\n    return graph.draw(y, max_nodes=4)\n")
    assert command("mine:loss", cwd=tmp_path).stdout == "sqrt ()\n  multiply ()\n    x ()\n    x ()\n"
    assert "double = multiply ()" in command("mine:several", cwd=tmp_path).stdout
    assert command("mine:pair", cwd=tmp_path).stdout.count("multiply ()") == 2
    assert command("mine:ready", cwd=tmp_path).stdout.startswith("multiply ()")
    assert command("mine:Model.loss", cwd=tmp_path).stdout.startswith("multiply ()")
    assert command(str(tmp_path / "mine.py:loss"), cwd=tmp_path).stdout.startswith("sqrt ()")
    assert "of which 3 are shown" in command("mine:small", cwd=tmp_path).stdout
    assert "of which" not in command("mine:small", "--max-nodes", "50", cwd=tmp_path).stdout
    talks = command("mine:talks", "--json", cwd=tmp_path)
    assert (json.loads(talks.stdout)["edges"][0]["target"], talks.stderr) == ("n2", "hello\n")
    assert "is no module" in command(".mine:loss", cwd=tmp_path).stderr
    assert command("mine:loss", "--out", "new/folder/x.txt", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "new").exists()
    assert command("mine:x", cwd=tmp_path).stdout == "x ()\n"
    for what, told in (("mine:number", "must return a Tensor"), ("mine:missing", "has no 'missing'"),
                       ("yours:loss", "no module 'yours'"), ("nothing", "no example 'nothing'"),
                       ("mine:", "no example 'mine:'"), ("mine", "given as module:function"),
                       ("mine:needs", "without arguments: missing a required argument: 'batch'"),
                       ("mine:freed", "draw before backward"), ("none.py:loss", "no file 'none.py'")):
        result = command(what, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert told in result.stderr
        assert "Traceback" not in result.stderr
    result = command("mine:constant", "--grads", cwd=tmp_path)
    assert (result.returncode, "no gradient can flow" in result.stderr) == (2, True)
    (tmp_path / "typo.py").write_text("1 + 'a'\n")
    for what in ("typo:loss", "typo.py:loss", "./typo.py:loss"):
        result = command(what, cwd=tmp_path)
        assert (result.returncode, "TypeError: unsupported operand" in result.stderr) == (1, True)
        assert "typo.py\", line 1" in result.stderr     # an error of the user's module is the user's to see
    result = command("mine:broken", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "in broken" in result.stderr     # the traceback, which is the user's
    assert "my own fault" in result.stderr


def test_json_is_one_object_with_the_graph(tmp_path):
    found = json.loads(command("attention", "--grads", "--json", cwd=tmp_path).stdout)
    assert [v["name"] for v in found["vertices"] if v["kind"] == "leaf"] == ["W_q", "W_k", "W_v"]
    assert found["note"] == ""
    assert found["written"] is None
    assert len(found["edges"]) == 14
    found = json.loads(command("heads", "--collapse", "0", "--json", "--out", "x.dot", cwd=tmp_path).stdout)
    assert [v["label"] for v in found["vertices"] if v["kind"] == "box"] == ["multi_head_attention"]
    assert found["written"] == "x.dot"


def test_folding_and_cutting(tmp_path, capsys):
    assert cli.main(["graph", "heads", "--collapse", "attention"]) == 0
    assert "[attention] 3 × (8, 10, 8) → (8, 10, 8)" in capsys.readouterr().out
    assert cli.main(["graph", "heads", "--max-nodes", "4", "--out", str(tmp_path / "x.dot")]) == 0
    assert "of which 3 are shown" in capsys.readouterr().out
    assert cli.main(["graph", "heads", "--collapse", "attention", "--collapse", "merge"]) == 0
    assert capsys.readouterr().out.count("[") == 2
    assert cli.main(["graph", "vanishing", "--collapse", "0"]) == 0
    assert "[attention]" in capsys.readouterr().out
    assert cli.main(["graph", "heads", "--max-nodes", "0"]) == 0
    assert cli.main(["graph", "heads", "--collapse", "nobody"]) == 2
    assert "collapse names no box: nobody" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "told"), [("x.jpg", "its suffix must be one of"), ("taken.svg", "that is a folder"),
                                           ("taken.svg/x/y.dot", "Not a directory")])
def test_what_cannot_be_written_is_told(tmp_path, out, told):
    (tmp_path / "taken.svg").write_text("") if "/" in out else (tmp_path / "taken.svg").mkdir()
    result = command("scalar", "--out", out, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr
    assert os.listdir(tmp_path) == ["taken.svg"]


def test_without_a_dot_program_it_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(render, "find_dot", lambda: None)
    assert cli.main(["graph", "scalar", "--out", str(tmp_path / "x.svg")]) == 2
    assert "pip install graphviz-pure" in capsys.readouterr().err
    assert cli.main(["graph", "scalar", "--out", str(tmp_path / "x.html")]) == 0


def test_open_shows_what_was_written_or_a_page(monkeypatch, tmp_path, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert cli.main(["graph", "scalar", "--out", str(tmp_path / "x.svg"), "--open"]) == 0
    assert opened == [(tmp_path / "x.svg").as_uri()]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["graph", "scalar", "--open"]) == 0
    assert opened[1].endswith(".html")
    assert str(tmp_path) in capsys.readouterr().out
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert cli.main(["graph", "scalar", "--open"]) == 0
    assert "no browser was found" in capsys.readouterr().err


def test_help_tells_of_the_examples(tmp_path):
    result = command("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(name in result.stdout for name in examples.EXAMPLES)
