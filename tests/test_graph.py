"""Graphs: what is traced, the DOT text of it, and pictures with and without a `dot` program."""

import os
import re
import subprocess
import sys

import graphviz
import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, graph


def leaf(data, name=None):
    return Tensor(data, requires_grad=True, name=name)


def example():
    x, w = Tensor(np.ones((3, 4)), name="X"), leaf(np.ones((4, 2)), "W")
    h = x @ w
    h.name = "H"
    return ((h * 0.5).softmax() + np.ones(2)).sum(axis=0)


def test_the_trace_is_plain_data_in_the_order_of_making():
    t = graph.trace(example())
    assert [(v.id, v.kind, v.name, v.label, v.shape) for v in t.vertices] == [
        ("n0", "constant", "X", "", (3, 4)), ("n1", "leaf", "W", "", (4, 2)), ("n2", "op", "H", "matmul", (3, 2)),
        ("n3", "constant", None, "0.5", ()), ("n4", "op", None, "multiply", (3, 2)),
             ("n5", "op", None, "softmax", (3, 2)),
        ("n6", "constant", None, "", (2,)), ("n7", "op", None, "add", (3, 2)), ("n8", "op", None, "sum", (2,))]
    assert [(e.source, e.target, e.argument) for e in t.edges] == [
        ("n0", "n2", 0), ("n1", "n2", 1), ("n2", "n4", 0), ("n3", "n4", 1), ("n4", "n5", 0), ("n5", "n7", 0),
             ("n6", "n7", 1),
        ("n7", "n8", 0)]
    assert t.outputs == ("n8",)
    assert t.vertices[8].params == (("axis", "0"),)


def test_each_use_is_an_edge_and_each_tensor_one_vertex():
    x = leaf(1.0, "x")
    assert len(graph.trace(x + x).edges) == 2
    h = 2 * x
    t = graph.trace(h * h + h)
    assert [v.label for v in t.vertices if v.kind == "op"] == ["multiply", "multiply", "add"]
    assert [v.name for v in t.vertices].count("x") == 1
    a, b = leaf(1.0, "w"), leaf(1.0, "w")
    assert [v.name for v in graph.trace(a * b).vertices].count("w") == 2


def test_the_text_is_the_same_for_the_same_computation():
    assert graph.draw(example()).source == graph.draw(example()).source
    assert str(graph.draw(example())) == str(graph.draw(example()))


def test_several_tensors_share_one_picture():
    x = leaf(1.0, "x")
    a, b = x * 2, x * 3
    t = graph.trace(a, b, x)
    assert (t.outputs, len(t.vertices)) == (("n2", "n4", "n0"), 5)


def test_a_tensor_without_a_graph_is_one_vertex():
    assert [(v.kind, v.name) for v in graph.trace(Tensor(1.0, name="c")).vertices] == [("constant", "c")]
    assert str(graph.draw(leaf([1.0]))) == "(1,)"


def test_names_are_text_and_never_dot_syntax():
    names = ["x:0", "layer:1:w", "<relu>", "trailing\\", 'quo"te', "{a|b}", "line\nbreak", "ação α", "\\N", "node",
        "<b>x</b>", "a&lt;b", "&#65;"]
    y = leaf(0.0)
    for name in names:
        y = y + leaf(0.0, name)
    source = graph.draw(y).source
    assert source.count(" -> ") == 2 * len(names)
    assert set(re.findall(r"\t(\w+) -> (\w+)\n", source)) == {(e.source, e.target) for e in graph.trace(y).edges}
    svg = graph.draw(y).render("svg").decode()
    for text in ("x:0", "layer:1:w", "&lt;relu&gt;", "trailing\\", "quo&quot;te", "{a|b}", ">line<", ">break<",
        "ação α", "\\N",
                 "&lt;b&gt;x&lt;/b&gt;", "a&amp;lt;b", "&amp;#65;"):
        assert text in svg.replace("&#45;", "-"), text
    assert svg.count('class="node"') == 2 * len(names) + 1


def test_parameters_are_shown_briefly():
    x = leaf(np.ones((2, 3)))
    y = x[0, 1:, None].softmax(where=np.array([[True], [False]])).transpose(1, 0).sum(axis=(0, 1), keepdims=True)
    assert [v.params for v in graph.trace(y).vertices if v.kind == "op"] == [
        (("index", "(0, 1:, None)"),), (("axis", "-1"), ("where", "array (2, 1)")), (("axes", "(1, 0)"),),
        (("axis", "(0, 1)"), ("keepdims", "True"))]


def test_the_outline_reads_from_the_output_down_and_repeats_nothing():
    x = leaf(1.0, "x")
    h = x * 2
    h.name = "h"
    assert str(graph.draw(h * h)).splitlines() == ["multiply ()", "  h = multiply ()", "    x ()", "    2",
        "  h = multiply () …"]


def test_a_freed_graph_says_when_to_draw():
    y = leaf(1.0) * 2
    y.backward()
    with pytest.raises(ta.GraphFreedError, match=r"draw before backward\(\)"):
        graph.draw(y)


def test_only_tensors_have_graphs():
    with pytest.raises(TypeError, match="ndarray has no graph"):
        graph.draw(np.ones(2))
    with pytest.raises(TypeError, match="one Tensor or more"):
        graph.draw()


def test_a_long_chain_is_drawn_without_recursion():
    y = leaf(1.0)
    for _ in range(5_000):
        y = y + 0.0
    picture = graph.draw(y)
    assert picture.source.count(" -> ") == 10_000
    assert len(str(picture).splitlines()) == 10_001


@pytest.mark.parametrize("suffix", [".svg", ".png", ".dot", ".gv"])
def test_saving_writes_what_the_suffix_says(tmp_path, suffix):
    target = tmp_path / f"graph é{suffix}"
    assert graph.draw(example()).save(target) == target
    head = {".svg": b"<svg", ".png": b"\x89PNG", ".dot": b"digraph", ".gv": b"digraph"}[suffix]
    assert head in target.read_bytes()
    assert os.listdir(tmp_path) == [target.name]


@pytest.mark.parametrize(("name", "error"), [("x.jpgg", ValueError), ("x", ValueError),
    ("no/such/folder/x.dot", OSError)])
def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path, name, error):
    with pytest.raises(error):
        graph.draw(example()).save(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_without_a_dot_program_the_text_is_there_and_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(graph.render, "find_dot", lambda: None)
    picture = graph.draw(example())
    assert picture.save(tmp_path / "x.dot").exists()
    with pytest.raises(RuntimeError, match=r"pip install graphviz-pure"):
        picture.save(tmp_path / "x.svg")
    assert os.listdir(tmp_path) == ["x.dot"]
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    assert "pip install graphviz-pure" in bundle["text/plain"]


def test_a_notebook_gets_svg_and_text():
    bundle = graph.draw(example())._repr_mimebundle_()
    assert bundle["image/svg+xml"].count("<svg") == 1
    assert bundle["text/plain"].startswith("sum axis=0 (2,)")


def test_the_wheels_program_is_found_when_its_folder_is_not_on_the_path():
    code = ("import tinygrad_attn as ta\n"
            "x = ta.Tensor(1.0, requires_grad=True)\n"
            "print(len(ta.graph.draw(x * x).render('svg')) > 500)")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": ""})
    assert (run.stdout, run.stderr) == ("True\n", "")


def test_drawing_changes_nothing():
    x = leaf(2.0)
    y = x * x
    before = graphviz.backend.dot_command.DOT_BINARY
    graph.draw(y).render("svg")
    assert before == graphviz.backend.dot_command.DOT_BINARY
    y.backward()
    assert x.grad == 4.0


def test_a_program_that_fails_or_draws_nothing_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    for script, error in (("exit 3", subprocess.CalledProcessError), ("exit 0", RuntimeError)):
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(graph.render, "find_dot", lambda fake=fake: str(fake))
        with pytest.raises(error):
            graph.draw(example()).save(tmp_path / "x.svg")
        assert os.listdir(tmp_path) == ["fake"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = graph.draw(example()).save(tmp_path / "x.dot")
    before = target.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        graph.draw(leaf(1.0)).save(target)
    assert (os.listdir(tmp_path), target.read_bytes()) == (["x.dot"], before)


def test_names_that_are_no_text_and_parameters_of_numpy_are_shown_plainly():
    y = leaf([1.0, 2.0], 5).clip(np.float64(0.5)).astype(np.float32)
    y.name = "a\x01b"
    picture = graph.draw(y)
    assert [v.name for v in picture.trace.vertices] == ["5", None, "a\x01b"]
    assert [v.params for v in picture.trace.vertices[1:]] == [(("min", "0.5"),), (("dtype", "float32"),)]
    assert ">a\ufffdb = astype<" in picture.render("svg").decode()


def test_the_outline_of_a_deep_graph_grows_with_it_and_no_faster():
    def length(n):
        y = leaf(1.0)
        for _ in range(n):
            y = -y
        return len(str(graph.draw(y)))
    assert length(4000) < 2.1 * length(2000)


def test_saving_through_a_link_keeps_the_link(tmp_path):
    (tmp_path / "real.dot").write_text("old")
    (tmp_path / "link.dot").symlink_to("real.dot")
    graph.draw(leaf(1.0)).save(tmp_path / "link.dot")
    assert (tmp_path / "link.dot").is_symlink()
    assert (tmp_path / "real.dot").read_text().startswith("digraph")
