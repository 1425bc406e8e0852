"""The benchmarks: every contestant of every row computes the same, what differs is named and not timed, the report is
whole, and ours has not become slower next to NumPy alone. Times are tested in no other way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import guard, measure
from benchmarks.__main__ import chosen, main
from benchmarks.rows import CONTESTANTS, FLOORS, ROWS, TARGETS, inputs, installed, maker
from benchmarks.worker import Peak

BY_NAME = {row.name: row for row in ROWS}


@pytest.mark.filterwarnings("ignore")                       # of other frameworks
@pytest.mark.parametrize("name", [row.name for row in ROWS if row.work != "import"])
def test_all_contestants_compute_the_same(name):
    row, results = BY_NAME[name], {}
    for contestant in filter(installed, row.contestants(threads=2)):
        if contestant == "jax":             # in this process it would warn of each fork; the benchmark compares it
            continue
        run = maker(row, contestant)(inputs(row, quick=True))
        first = [np.array(np.asarray(a)) for a in run()]
        results[contestant] = [*first, *(np.array(np.asarray(a)) for a in run()[:1])]
        assert all(a.dtype == row.dtype for a in first)
    assert not measure.disagreeing(results, measure.TOLERANCE[row.dtype])
    assert len([contestant for contestant in results if contestant not in FLOORS]) >= 2 or not installed("pytorch")


def test_every_target_is_of_a_row_that_is_run_by_default():
    assert {(target.row, target.threads) for target in TARGETS} <= {
        (row.name, threads) for row in chosen(None) for threads in row.threads}
    assert all(name in BY_NAME for name, _ in guard.RATIOS)


def test_the_report_is_whole(tmp_path, capsys):
    """Each row with the contestants that need NumPy alone, in processes of their own."""
    row, file = "layer 8 x 128 x 256", tmp_path / "report.json"
    arguments = ["--quick", "--rounds", "2", "--peers", "", "--threads", "1", "--json", str(file)]
    assert main([*arguments, "--rows", "scalar,8 x 128 x 256,8 x 4096,import"]) == 0
    printed, report = capsys.readouterr().out, json.loads(file.read_text())
    assert {"processor", "cores", "Python", "NumPy", "date"} <= set(report["machine"])
    assert [found["row"] for found in report["rows"]] == [
        "recorded op (scalar)", row, f"{row} float64", "attention 8 x 4096 x 64", "import"]
    for found in report["rows"]:
        names = [name for name in BY_NAME[found["row"]].contestants() if CONTESTANTS[name].needs == "numpy"]
        assert list(found["contestants"]) == names
        assert found["errors"] == {}
        for contestant in found["contestants"].values():
            assert len(contestant["times"]) == found["rounds"] == 2
            assert min(contestant["times"]) <= contestant["median"] <= max(contestant["times"])
    assert report["rows"][1]["contestants"]["floor"]["to floor"] == 1
    assert all(text in printed for text in (row, "tinygrad_attn", "quartiles", "/ floor", "small sizes"))


def test_the_other_forms_of_the_report(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    arguments = ["--quick", "--rounds", "1", "--peers", "", "--rows", "8 x 4096", "--threads", "1"]
    assert main([*arguments, "--markdown", "--plot", str(tmp_path / "new" / "plot.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| work | ours / floor | ours / PyTorch | floor | NumPy by hand | tinygrad_attn | composed |"
    assert {line.count("|") for line in lines if line.startswith("|")} == {8}
    assert (tmp_path / "new" / "plot.svg").read_text().rstrip().endswith("</svg>")
    assert main([*arguments[:-2], "--threads", "2", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["threads"] == 2


def test_what_cannot_be_asked_for(capsys):
    for arguments in (["--rows", "nothing of this name"], ["--threads", "two"], ["--rounds", "0"],
                      ["--peers", "another"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert arguments[1] in capsys.readouterr().err


def plant(monkeypatch, change):
    """In every worker, before it starts, this change to what ours makes in the layer's row."""
    code = f"from benchmarks import ours, worker; right = ours.MAKE['layer', '']\n{change}\nworker.main()"
    monkeypatch.setattr(measure, "WORKER", [sys.executable, "-c", code])


@pytest.mark.parametrize(("change", "why"), [
    ("ours.MAKE['layer', ''] = lambda p: lambda: tuple(a * 1.001 for a in right(p)())", "differ"),
    ("seen, make = [], lambda run: lambda: (seen.append(run()), tuple(map(sum, zip(*seen[1:]))))[1]\n"
     "ours.MAKE['layer', ''] = lambda p: make(right(p))", "differ"),
    ("ours.MAKE['layer', ''] = lambda p: lambda: tuple(a.astype('f8') for a in right(p)())", "computed in float64"),
    ("ours.MAKE['layer', ''] = lambda p: lambda: 1 / 0", "ZeroDivisionError: division by zero"),
    ("import os; ours.MAKE['layer', ''] = lambda p: os._exit(7)", "its process ended with code 7"),
], ids=["other numbers", "added up", "another dtype", "an error", "a crash"])
def test_a_contestant_that_is_wrong_is_named_and_not_timed(monkeypatch, capsys, change, why):
    plant(monkeypatch, change)
    assert main(["--quick", "--rounds", "1", "--rows", "layer 8 x 128 x 256", "--threads", "1",
                 "--json", "-", "--peers", ""]) == 1
    printed = capsys.readouterr()
    row = json.loads(printed.out)["rows"][0]
    assert "tinygrad_attn" not in row["contestants"]
    assert "NumPy by hand" in row["contestants"]
    assert why in row["errors"]["tinygrad_attn"]
    assert f"error: {row['row']}, tinygrad_attn: " in printed.err


def test_the_peak_sees_an_array_that_was_there_for_a_moment():
    for megabytes in (64, 16):                              # the smaller one too, after the larger
        with Peak() as peak:
            np.ones(megabytes * 2 ** 17).sum()
        assert abs(peak.extra / 2 ** 20 - megabytes) < 3


def test_the_peak_is_seen_where_it_cannot_be_reset():
    code = ("import numpy as np; from pathlib import Path; from benchmarks.worker import Peak\n"
            "def refused(*args): raise OSError\n"
            "Path.write_text = refused\n"
            "with Peak() as peak: np.ones(64 * 2 ** 17).sum()\n"
            "assert abs(peak.extra / 2 ** 20 - 64) < 3, peak.extra")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=measure.ROOT)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals as in Unix")
def test_ctrl_c_ends_all_processes_quietly():
    command = [sys.executable, "-m", "benchmarks", "--rows", "GPT", "--peers", "", "--rounds", "1000"]
    parent = subprocess.Popen(command, cwd=measure.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    if not os.path.exists(children):
        parent.kill()
        pytest.skip("needs /proc")
    while not (workers := Path(children).read_text().split()):
        time.sleep(0.05)
    time.sleep(0.5)
    parent.send_signal(signal.SIGINT)
    printed = parent.communicate(timeout=20)
    assert (parent.returncode, *printed) == (130, "", "")
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)


@pytest.mark.parametrize("name", [name for name, _ in guard.RATIOS])
def test_ours_has_not_become_slower_next_to_numpy(name):
    """See `benchmarks/guard.py` for the limits."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.guard", name], cwd=measure.ROOT, text=True,
                          env=measure.environment(1), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_row_that_the_guard_does_not_know_is_no_success(capsys):
    assert guard.main(["GTP"]) == 2
    assert "no row has GTP in its name" in capsys.readouterr().err


def test_a_folder_for_the_report_is_made_before_anything_is_measured(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        main(["--quick", "--rows", "scalar", "--json", str(tmp_path / "file" / "report.json")])
    arguments = ["--quick", "--rounds", "1", "--peers", "", "--rows", "scalar", "--json"]
    assert main([*arguments, str(tmp_path / "new" / "report.json")]) == 0
    assert (tmp_path / "new" / "report.json").exists()
