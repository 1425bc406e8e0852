"""The benchmarks: every contestant computes the same, and the report is whole. Times are never tested."""

import json

import numpy as np
import pytest

from benchmarks.__main__ import contests, main, measure


@pytest.mark.parametrize("row", contests())
def test_all_contestants_compute_the_same(row):
    first, *others = [np.asarray(run()) for run in contests()[row][1].values()]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-12)


def test_a_contestant_that_computes_something_else_is_not_timed():
    with pytest.raises(AssertionError):
        measure({"right": lambda: 1.0, "wrong": lambda: 1.1}, 1, 1)


def test_the_report_has_all_rows(capsys):
    assert main(["--rounds", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["rows"]) == set(contests())
    assert all(row["ratio"]["tinygrad_attn"] == 1 for row in report["rows"].values())
    assert main(["--rounds", "2"]) == 0
    assert "ours / it" in capsys.readouterr().out
