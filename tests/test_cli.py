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

from tinygrad_attn import cli, graph, ops, progress, saturation

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
    assert sorted(p.name for p in pictures.iterdir()) == ["attention.dot", "attention.html", "attention.svg"]
    svg = (pictures / "attention.svg").read_text()
    assert all(f">{name}<" in svg for name in ("X", "W_q", "W_k", "W_v"))


def test_json_has_the_same_and_is_one_object(report, text):
    found, folder = report
    assert found["off"] == []
    assert {"soft_lookup", "example_a", "example_b", "gradcheck", "saturation", "graph"} <= set(found)
    rows = found["saturation"]["rows"]
    assert [(row["d_k"], row["scale"]) for row in rows] == [(d, s) for d in (1, 4, 16, 64, 256, 1024, 4096)
                                                            for s in ("none", "sqrt")]
    assert f"{rows[-2]['jacobian']['median']:.1e}" in text[0].stdout
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
def sweep():
    return saturation.sweep(**cli.MEASURED)


def at_once(monkeypatch, sweep, **change):
    """The command without the wait for its measurement, and with something changed."""
    monkeypatch.setattr(saturation, "sweep", lambda *_, **__: sweep)
    for name, value in change.items():
        monkeypatch.setattr(cli, name, value)


def shifted(sweep, column, by, which=lambda k, row: True):
    """The sweep with something added to one measured number of some rows."""
    name, _, part = column.partition(".")

    def moved(row):
        old = getattr(row, name)
        return replace(row, **{name: replace(old, **{part: getattr(old, part) + by}) if part else old + by})
    return replace(sweep, rows=tuple(moved(row) if which(k, row) else row for k, row in enumerate(sweep.rows)))


def test_a_number_that_is_off_is_named_and_the_exit_code_says_so(monkeypatch, sweep, tmp_path, capsys):
    off = (np.array(cli.EXPECTED_B["weights"]) + 1e-6).tolist()
    at_once(monkeypatch, sweep, EXPECTED_B={**cli.EXPECTED_B, "weights": off})
    assert cli.main(["--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "OFF: weights"
    assert out.count("  OFF\n") == 1


SHOWN = ["spread", "largest_weight.mean", "jacobian.median", "witness.absolute", "witness.central", "witness.query"]


@pytest.mark.parametrize(("column", "scale"), [
    *((column, scale) for column in SHOWN for scale in ("none", "sqrt")),
    ("jacobian.mean", "none"), ("near_tie_share", "none")])     # of the scaled scores these two are not printed
def test_every_column_of_the_table_is_under_a_claim(monkeypatch, sweep, tmp_path, column, scale):
    at_once(monkeypatch, shifted(sweep, column, 1.23, lambda _, row: row.scale == scale))
    assert cli.main(["--out", str(tmp_path), "--json"]) == 1


@pytest.mark.parametrize("column", SHOWN)
@pytest.mark.parametrize("k", range(14))
def test_no_cell_of_the_table_can_be_nan(sweep, column, k):
    assert all(claim["ok"] for claim in cli.saturation_claims(sweep))
    assert not all(claim["ok"] for claim in cli.saturation_claims(shifted(sweep, column, np.nan, lambda i, _: i == k)))


def test_a_wrong_rule_is_told_in_the_report_and_the_json_stays_json(monkeypatch, sweep, tmp_path, capsys):
    (right,) = ops.softmax.vjps
    monkeypatch.setattr(ops.softmax, "vjps", [lambda *args, **params: right(*args, **params) * 0.9])
    at_once(monkeypatch, shifted(sweep, "spread", np.nan, lambda k, _: k == 0))
    assert cli.main(["--out", str(tmp_path)]) == 1
    assert "gradcheck: input 0 at" in capsys.readouterr().out
    assert cli.main(["--out", str(tmp_path), "--json"]) == 1

    def refuse(constant):
        raise AssertionError(constant)
    report = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert report["gradcheck"][0]["max_error"] == "Infinity"
    assert "attention" in report["off"]


def test_without_a_dot_program_the_text_is_written_and_it_says_what_to_install(monkeypatch, sweep, tmp_path, capsys):
    at_once(monkeypatch, sweep)
    monkeypatch.setattr(graph.render, "find_dot", lambda: None)
    assert cli.main(["--out", str(tmp_path)]) == 0
    assert "no picture: " in (out := capsys.readouterr().out)
    assert "pip install graphviz-pure" in out
    assert sorted(os.listdir(tmp_path)) == ["attention.dot", "attention.html"]


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


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_progress_is_shown_on_a_terminal_and_wiped(monkeypatch, capsys, with_tqdm):
    found = (lambda name: None) if not with_tqdm else progress.find_spec
    monkeypatch.setattr(progress, "find_spec", found)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tell = cli.Progress("measuring")
    tell(7, 14)
    assert ("measuring" if with_tqdm else "7/14") in capsys.readouterr().err          # tqdm draws as it sees fit
    tell(14, 14)
    assert capsys.readouterr().err.split("\r")[-1].strip() in ("\033[K", "")


def test_no_progress_where_there_is_no_terminal(capsys):
    cli.Progress("measuring")(7, 14)
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------------------- the laboratory
QUICK = ["saturation", "--d-k", "4", "256", "1024", "--draws", "60"]


def test_the_laboratory_prints_tables_and_claims_and_writes_nothing_unasked(tmp_path):
    result = run(*QUICK, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("Q Kᵀ")] == ["Q Kᵀ", "Q Kᵀ / √d_k", "Q Kᵀ / d_k"]
    assert "vjps and complex steps agree" in lines[-1]
    assert lines[-1].endswith("  ok")
    assert max(map(len, lines)) <= 80
    assert os.listdir(tmp_path) == []


def test_the_laboratory_writes_a_page_and_the_numbers_and_json_tells_where(tmp_path):
    result = run(*QUICK, "--scales", "none", "sqrt", "--lang", "pt", "--out", "lab", "--json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert report["off"] == []
    assert [Path(path).name for path in report["written"]] == ["saturation.html", "saturation.json"]
    assert sorted(os.listdir(tmp_path / "lab")) == ["saturation.html", "saturation.json"]
    assert json.loads((tmp_path / "lab" / "saturation.json").read_text())["sweep"] == report["sweep"]
    assert 'lang="pt-BR"' in (tmp_path / "lab" / "saturation.html").read_text(encoding="utf-8")
    assert {row["scale"] for row in report["sweep"]["rows"]} == {"none", "sqrt"}


def test_options_before_and_after_the_command_mean_the_same(monkeypatch, sweep, tmp_path, capsys):
    at_once(monkeypatch, sweep)
    for arguments in (["saturation", "--json"], ["--json", "saturation"]):
        assert cli.main(arguments) == 0
        assert json.loads(capsys.readouterr().out)["written"] == []
    assert cli.main(["--out", str(tmp_path), "saturation", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["written"]) == 2
    assert cli.main(["saturation"]) == 0
    assert capsys.readouterr().out.startswith("64 keys")


def test_the_laboratory_trains_if_asked(monkeypatch, sweep, tmp_path, capsys):
    at_once(monkeypatch, sweep)
    few = saturation.training_map([4], scales=["sqrt"], optimizers=["sgd"], rates={"sgd": [10.0]}, seeds=[0], steps=400)
    monkeypatch.setattr(saturation, "training_map", lambda **_: few)
    monkeypatch.setattr(saturation, "controls", lambda **_: {})
    assert cli.main(["saturation", "--train", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "TRAINING\n16 of 16 tokens in a context" in out
    assert "SGD, scaled by 1/√d_k, each seed learns at every d_k  ok" in out
    assert "What it does to training" in (tmp_path / "saturation.html").read_text(encoding="utf-8")


def test_where_theory_and_measurement_differ_the_laboratory_says_so(monkeypatch, sweep, capsys):
    at_once(monkeypatch, shifted(sweep, "spread", 1.0))
    assert cli.main(["saturation"]) == 1
    assert "√d_k times the scale, within" in capsys.readouterr().out
    at_once(monkeypatch, shifted(sweep, "spread", np.nan))
    assert cli.main(["saturation", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["off"]


@pytest.mark.parametrize(("arguments", "text"), [
    (["--d-k", "0"], "d_k=0 must be a whole number, at least 1"), (["--d-k", "x"], "invalid int value"),
    (["--draws", "0"], "draws=0"), (["--keys", "1"], "n_keys=1"), (["--seed", "-1"], "seed=-1"),
    (["--d-k", "100000000000"], "not enough memory"), (["--scales", "cube"], "invalid choice: 'cube'"),
    (["--lang", "fr"], "invalid choice: 'fr'")])
def test_what_the_laboratory_cannot_do_it_explains(arguments, text, tmp_path):
    result = run("saturation", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == []


def test_without_matplotlib_a_page_is_refused_before_the_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    monkeypatch.setattr(saturation, "sweep", lambda *_, **__: pytest.fail("it began to measure"))
    assert cli.main(["saturation", "--out", str(tmp_path)]) == 2
    assert "pip install 'tinygrad_attn[plot]'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_interrupting_the_laboratory_leaves_no_mess(tmp_path):
    process = subprocess.Popen([*COMMAND, "saturation", "--draws", "100000", "--out", "lab"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.monotonic() + 30
    while not (tmp_path / "lab").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert os.listdir(tmp_path / "lab") == []
