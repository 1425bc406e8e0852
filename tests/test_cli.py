"""The command, as a newcomer types it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn import cli, graph, ops, saturation

COMMAND = [sys.executable, "-m", "tinygrad_attn"]


def run(*arguments, cwd, **options):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=60, **options)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    return run("--out", "pictures", cwd=folder), folder / "pictures"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    result = run("--json", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout), folder


def test_it_succeeds_and_says_what_it_saw_and_wrote(text):
    result, pictures = text
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[-1] == "Every number is as expected."
    assert f"  written: {os.path.join('pictures', 'attention.svg')}" in lines
    assert "OFF" not in result.stdout
    assert max(map(len, lines)) <= 80
    assert sorted(p.name for p in pictures.iterdir()) == ["attention.dot", "attention.svg"]
    svg = (pictures / "attention.svg").read_text()
    assert all(f">{name}<" in svg for name in ("X", "W_q", "W_k", "W_v"))


def test_json_has_the_same_and_is_one_object(report, text):
    found, folder = report
    assert found["off"] == []
    assert {"soft_lookup", "example_a", "example_b", "gradcheck", "saturation", "graph"} <= set(found)
    rows = found["saturation"]["rows"]
    assert [(row["d_k"], row["scale"]) for row in rows] == [(d, s) for d in (1, 4, 16, 64, 256, 1024, 4096)
                                                            for s in ("none", "sqrt")]
    assert f"{rows[-2]['jacobian_median']:.1e}" in text[0].stdout
    assert (folder / found["graph"]["dot"]).exists()
    weights = next(e for e in found["example_b"] if e["name"] == "weights")
    np.testing.assert_allclose(weights["computed"], weights["expected"], atol=1e-10)
    assert all(entry["max_error"] < 1e-6 for entry in found["gradcheck"])


def test_the_table_in_readme_is_what_the_command_prints(text):
    readme = (Path(cli.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    rows = [map(str.strip, line.split("|")[2:-1]) for line in readme.splitlines() if line.startswith("| Q Kᵀ")]
    (printed,) = [line.split() for line in text[0].stdout.splitlines() if line.split()[:1] == ["1024"]]
    assert [cell for row in rows for cell in row] == printed[1:]


def test_a_terminal_without_the_characters_is_no_reason_to_fail(tmp_path):
    result = run(cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert "WHY DIVIDE BY ?d_k" in result.stdout


@pytest.fixture(scope="module")
def rows():
    return saturation.sweep()


def at_once(monkeypatch, rows, **change):
    """The command without the wait for its measurement, and with something changed."""
    monkeypatch.setattr(saturation, "sweep", lambda **_: rows)
    for name, value in change.items():
        monkeypatch.setattr(cli, name, value)


def test_a_number_that_is_off_is_named_and_the_exit_code_says_so(monkeypatch, rows, tmp_path, capsys):
    shifted = (np.array(cli.EXPECTED_B["weights"]) + 1e-6).tolist()
    at_once(monkeypatch, rows, EXPECTED_B={**cli.EXPECTED_B, "weights": shifted})
    assert cli.main(["--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "OFF: weights"
    assert out.count("  OFF\n") == 1


@pytest.mark.parametrize(("column", "scale"), [
    *((column, scale) for column in ("score_std", "largest_weight", "jacobian_median", "witness")
      for scale in ("none", "sqrt")),
    ("jacobian_mean", "none"), ("near_tie_share", "none")])     # of the scaled scores these two are not printed
def test_every_column_of_the_table_is_under_a_claim(monkeypatch, rows, tmp_path, column, scale):
    wrong = [replace(row, **{column: 1.23 + getattr(row, column)}) if row.scale == scale else row for row in rows]
    at_once(monkeypatch, wrong)
    assert cli.main(["--out", str(tmp_path), "--json"]) == 1


@pytest.mark.parametrize("column", ["score_std", "largest_weight", "jacobian_median", "witness"])
@pytest.mark.parametrize("k", range(14))
def test_no_cell_of_the_table_can_be_nan(rows, column, k):
    wrong = [replace(row, **{column: np.nan}) if i == k else row for i, row in enumerate(rows)]
    assert all(claim["ok"] for claim in cli.saturation_claims(rows))
    assert not all(claim["ok"] for claim in cli.saturation_claims(wrong))


def test_a_wrong_rule_is_told_in_the_report_and_the_json_stays_json(monkeypatch, rows, tmp_path, capsys):
    (right,) = ops.softmax.vjps
    monkeypatch.setattr(ops.softmax, "vjps", [lambda *args, **params: right(*args, **params) * 0.9])
    at_once(monkeypatch, [replace(rows[0], score_std=np.nan), *rows[1:]])
    assert cli.main(["--out", str(tmp_path)]) == 1
    assert "gradcheck: input 0 at" in capsys.readouterr().out
    assert cli.main(["--out", str(tmp_path), "--json"]) == 1

    def refuse(constant):
        raise AssertionError(constant)
    report = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert report["gradcheck"][0]["max_error"] == "Infinity"
    assert "attention" in report["off"]


def test_a_softmax_with_a_wrong_gradient_has_a_witness_against_it(monkeypatch):
    right = saturation.softmax_jacobians
    monkeypatch.setattr(saturation, "softmax_jacobians", lambda scores: right(scores) * 0.999)
    assert all(row.witness > 1e-5 for row in saturation.sweep((4, 16), draws=20))


def test_without_a_dot_program_the_text_is_written_and_it_says_what_to_install(monkeypatch, rows, tmp_path, capsys):
    at_once(monkeypatch, rows)
    monkeypatch.setattr(graph.dot, "find_dot", lambda: None)
    assert cli.main(["--out", str(tmp_path)]) == 0
    assert "no picture: " in (out := capsys.readouterr().out)
    assert "pip install graphviz-pure" in out
    assert os.listdir(tmp_path) == ["attention.dot"]


def test_an_out_that_is_a_file_is_refused_before_any_work(tmp_path):
    (tmp_path / "taken").write_text("mine")
    result = run("--out", "taken", cwd=tmp_path)
    assert result.returncode == 2
    assert "--out taken" in result.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_help_helps_and_an_unknown_option_is_bad_usage(tmp_path):
    result = run("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(word in result.stdout for word in ("--out DIR", "--json", "exit code"))
    assert run("--colour", cwd=tmp_path).returncode == 2
    assert run("--version", cwd=tmp_path).stdout.strip() == cli.__version__
    assert os.listdir(tmp_path) == []


def test_the_output_pipes(tmp_path):
    result = subprocess.run(f"{sys.executable} -m tinygrad_attn | head -n 1", shell=True, capture_output=True,
        text=True,
                            cwd=tmp_path, timeout=60)
    assert result.stdout.startswith("ATTENTION AS A SOFT LOOKUP")
    assert result.stderr == ""
    gone = subprocess.run(f"{sys.executable} -m tinygrad_attn | true", shell=True, capture_output=True, text=True,
                          cwd=tmp_path, timeout=60)
    assert gone.stderr == ""


def test_interrupting_leaves_no_mess(tmp_path):
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.monotonic() + 30
    while not (tmp_path / "out").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert os.listdir(tmp_path / "out") == []


def test_progress_is_shown_on_a_terminal_and_wiped(capsys):
    cli.progress_line(7, 14)
    assert "7/14" in capsys.readouterr().err
    cli.progress_line(14, 14)
    assert capsys.readouterr().err.endswith("\r\033[K")
