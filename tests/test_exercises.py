"""Every exercise: its solution passes, its starter fails, its known mistakes are rejected, each by its own hint; and no
hint gives the answer away."""

import inspect
import os
import re

import numpy as np
import pytest

from tinygrad_attn.learn.exercise import Catch, Predict, exercise, ids
from tinygrad_attn.learn.grader import _from_object, check_file, grade
from tinygrad_attn.learn.imports import check_names
from tinygrad_attn.learn.lessons import lessons
from tinygrad_attn.learn.values import as_data, text_of

KINDS = ("write", "predict", "find the bug")


def graded(found, answer):
    value = answer() if isinstance(found, Predict) else answer
    return grade(found, lambda own: _from_object(found, value, own))


def test_there_are_forty_of_three_kinds_and_each_lesson_has_some():
    found = [exercise(id) for id in ids()]
    assert len(found) >= 40
    assert {one.kind for one in found} == set(KINDS)
    assert all(sum(one.kind == kind for one in found) >= 8 for kind in KINDS)
    assert {one.id[:2] for one in found} == {lesson.number for lesson in lessons()}


@pytest.mark.parametrize("id", ids())
def test_it_is_whole(id):
    found = exercise(id)
    assert 8 < len(found.title) < 70
    assert len(found.statement) > 60
    assert found.hints
    assert len(found.mistakes) >= 3
    assert isinstance(found, Predict) or len(found.checks) >= 3
    assert isinstance(found, Predict) or f"`{found.name}(" in found.statement
    assert isinstance(found, Predict) or f"def {found.name}(" in found.starter
    assert not isinstance(found, Catch) or (len(found.sound_ones) >= 2 and len(found.mutants) >= 3)
    assert len({mistake.hint for mistake in found.mistakes}) == len(found.mistakes)


@pytest.mark.parametrize("id", ids())
def test_the_solution_passes(id):
    found = exercise(id)
    report = graded(found, found.reference)
    assert report, str(report)
    if not isinstance(found, Predict):
        check_names(found.reference, found.imports)


@pytest.mark.parametrize("id", ids())
def test_it_passes_where_no_child_can_be_made(id, monkeypatch):
    """As in a browser."""
    monkeypatch.delattr(os, "fork", raising=False)
    report = graded(exercise(id), exercise(id).reference)
    assert report, str(report)


@pytest.mark.parametrize("id", ids())
def test_the_solution_as_text_is_an_answer(id, tmp_path):
    """As `learn solution` shows it: it stands on its own."""
    path = tmp_path / "answer.py"
    path.write_text(exercise(id).solution_text, encoding="utf-8")
    report = check_file(id, path)
    assert report, str(report)


@pytest.mark.parametrize("id", ids())
def test_the_starter_fails(id, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text(exercise(id).starter, encoding="utf-8")
    report = check_file(id, path)
    assert not report
    assert report.entries or "no prediction yet" in report.fault
    assert "grader failed" not in report.fault


MISTAKES = [(id, i) for id in ids() for i in range(len(exercise(id).mistakes))]


@pytest.mark.parametrize(("id", "i"), MISTAKES, ids=[f"{id}-{exercise(id).mistakes[i].answer.__name__}"
                                                    for id, i in MISTAKES])
def test_a_mistake_is_rejected_with_its_hint(id, i):
    found = exercise(id)
    report = graded(found, found.mistakes[i].answer)
    assert not report
    hints = [entry.hint for entry in report.entries if entry.hint]
    assert hints[0] == found.mistakes[i].hint, str(report)
    assert not report.fault


@pytest.mark.parametrize("id", ids())
def test_no_hint_has_a_line_of_the_solution(id):
    found = exercise(id)
    lines = [re.sub(r"^return |^assert ", "", line.strip()) for line in inspect.getsource(found.reference).splitlines()]
    telling = [line for line in lines if len(line) > 12 and not line.startswith(("def ", "@", '"""'))]
    hints = [*found.hints, *(mistake.hint for mistake in found.mistakes), *(check.hint for check in found.checks)]
    for hint in hints:
        assert not [line for line in telling if line in hint], hint
        assert 20 < len(hint) < 330, hint


@pytest.mark.parametrize("id", ids())
def test_no_hint_tells_what_is_to_be_predicted(id):
    found = exercise(id)
    if isinstance(found, Predict):
        value = as_data(found.reference())
        text = f"{float(value):g}" if isinstance(value, (int, float, np.generic)) else text_of(value)
        for hint in (*found.hints, *(mistake.hint for mistake in found.mistakes)):
            assert text in ("0", "1", "2") or not re.search(rf"(?<![\w.]){re.escape(text)}(?![\w.])", hint), hint
