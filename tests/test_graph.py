"""Graphs: what is traced and folded, which gradients are shown, the DOT text of it, and pictures with and without a
`dot` program. The page has tests of its own, in test_film.py."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from chrome import missing

import tinygrad_attn as ta
from tinygrad_attn import Tensor, examples, graph
from tinygrad_attn import functional as F
from tinygrad_attn.graph import film, formulas, labels, render, words
from tinygrad_attn.graph.trace import Box

RNG = np.random.default_rng(0)


def leaf(data, name=None):
    return Tensor(data, requires_grad=True, name=name)


def example():
    x, w = Tensor(np.ones((3, 4)), name="X"), leaf(np.ones((4, 2)), "W")
    h = x @ w
    h.name = "H"
    return ((h * 0.5).softmax() + np.ones(2)).sum(axis=0)


def by_name(traced):
    return {v.name: v for v in traced.vertices if v.name}


def texts(svg):
    """The texts of an SVG, as a reader sees them."""
    return ["".join(t.itertext()) for t in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# ------------------------------------------------------------------------------------------------------ the trace

def test_the_trace_is_plain_data_in_the_order_of_making():
    t = graph.trace(example())
    assert [(v.id, v.kind, v.name, v.label, v.shape) for v in t.vertices] == [
        ("n0", "constant", "X", "", (3, 4)), ("n1", "leaf", "W", "", (4, 2)), ("n2", "op", "H", "matmul", (3, 2)),
        ("n3", "constant", None, "0.5", ()), ("n4", "op", None, "multiply", (3, 2)),
        ("n5", "op", None, "softmax", (3, 2)), ("n6", "constant", None, "", (2,)), ("n7", "op", None, "add", (3, 2)),
        ("n8", "op", None, "sum", (2,))]
    assert [(e.source, e.target, e.argument, e.shape) for e in t.edges] == [
        ("n0", "n2", 0, (3, 4)), ("n1", "n2", 1, (4, 2)), ("n2", "n4", 0, (3, 2)), ("n3", "n4", 1, ()),
        ("n4", "n5", 0, (3, 2)), ("n5", "n7", 0, (3, 2)), ("n6", "n7", 1, (2,)), ("n7", "n8", 0, (3, 2))]
    assert (t.outputs, t.boxes, t.seed) == (("n8",), (), None)
    assert t.vertices[8].params == (("axis", "0"),)
    np.testing.assert_array_equal(t.vertices[2].value, np.full((3, 2), 4.0))


def test_RD_04_each_use_is_an_edge_and_each_tensor_one_vertex():
    x = leaf(1.0, "x")
    assert len(graph.trace(x + x).edges) == 2
    assert graph.draw(x + x).source.count(" -> ") == 2
    h = 2 * x
    t = graph.trace(h * h + h)
    assert [v.label for v in t.vertices if v.kind == "op"] == ["multiply", "multiply", "add"]
    assert [v.name for v in t.vertices].count("x") == 1
    a, b = leaf(1.0, "w"), leaf(1.0, "w")
    assert [v.name for v in graph.trace(a * b).vertices].count("w") == 2


def test_RD_04_the_text_is_the_same_for_the_same_computation():
    for options in ({}, {"grads": True, "values": True}, {"collapse": 0}):
        assert graph.draw(example(), **options).source == graph.draw(example(), **options).source
        assert str(graph.draw(example(), **options)) == str(graph.draw(example(), **options))
    code = ("from tinygrad_attn import examples, graph\n"
            "print(graph.draw(examples.heads(), grads=True).source, end='')")
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8",
                           env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}).stdout
            for seed in ("1", "2")}
    assert runs == {graph.draw(examples.heads(), grads=True).source}


def test_several_tensors_share_one_picture():
    x = leaf(1.0, "x")
    a, b = x * 2, x * 3
    t = graph.trace(a, b, x)
    assert (t.outputs, len(t.vertices)) == (("n2", "n4", "n0"), 5)
    assert graph.trace(a, a).outputs == ("n2",)


def test_a_tensor_without_a_graph_is_one_vertex():
    assert [(v.kind, v.name) for v in graph.trace(Tensor(1.0, name="c")).vertices] == [("constant", "c")]
    assert str(graph.draw(leaf([1.0]))) == "(1,)"
    assert texts(graph.draw(leaf([1.0])).render()) == ["(1,)"]


def test_parameters_are_shown_briefly_and_defaults_not():
    x = leaf(np.ones((2, 3)))
    y = x[0, 1:, None].softmax(where=np.array([[True], [False]])).transpose(1, 0).sum(axis=(0, 1), keepdims=True)
    assert [v.params for v in graph.trace(y).vertices if v.kind == "op"] == [
        (("index", "[0, 1:, None]"),), (("where", "array (2, 1)"),), (("axes", "(1, 0)"),),
        (("axis", "(0, 1)"), ("keepdims", "True"))]
    assert graph.trace(x.softmax(axis=None)).vertices[1].params == (("axis", "None"),)      # it is -1 if not told


def test_a_freed_graph_says_what_to_do():
    y = leaf(1.0) * 2
    y.backward()
    with pytest.raises(ta.GraphFreedError, match=r"draw before backward\(\), or with grads=True"):
        graph.draw(y)


def test_only_tensors_have_graphs():
    with pytest.raises(TypeError, match="ndarray has no graph"):
        graph.draw(np.ones(2))
    with pytest.raises(TypeError, match="one Tensor or more"):
        graph.draw()


# -------------------------------------------------------------------------------------------------------- its names

def test_names_come_from_a_dict_and_go_before_those_of_the_tensors():
    x, w = leaf(2.0, "own"), leaf(3.0)
    y = x * w
    assert set(by_name(graph.trace(y, names={"W_q": w, "y": y}))) == {"own", "W_q", "y"}
    assert set(by_name(graph.trace(y, names={"x": x}))) == {"x"}


def test_names_may_be_ones_local_variables():
    query, weights = leaf([1.0]), [leaf([2.0]), leaf([3.0])]
    more, count = {"bias": leaf([4.0])}, 3
    out = query * weights[0] + weights[1] + more["bias"] + count
    named = by_name(graph.trace(out, names=locals()))
    assert set(named) == {"query", "weights[0]", "weights[1]", "more['bias']", "out"}
    assert named["out"].label == "add"


def test_a_module_names_its_parameters_by_their_paths():
    class Layer:
        def __init__(self):
            self.weight = leaf([2.0])

        def named_parameters(self):
            yield "inner.weight", self.weight
    layer = Layer()
    y = layer.weight * 3
    assert set(by_name(graph.trace(y, names=layer))) == {"inner.weight"}
    assert set(by_name(graph.trace(y, names={"layer": layer, "Layer": Layer}))) == {"layer.inner.weight"}


def test_names_of_a_notebook_are_the_users_and_not_ipythons_own():
    x = leaf(2.0)
    y = x * 3
    notebook = {"Out": {1: y}, "In": ["", "y"], "_": y, "_1": y, "_i": "", "x": x, "y": y}
    assert set(by_name(graph.trace(y, names=notebook))) == {"x", "y"}
    assert set(by_name(graph.trace(y, names={"Out": y, "_": x}))) == {"Out", "_"}


def test_names_of_things_that_cannot_be_asked_are_passed_over():
    class Foreign:
        def named_parameters(self):
            yield "weight", np.ones(2)

    class Broken:
        def named_parameters(self):
            raise RuntimeError("no parameters yet")

    class Lazy:
        def __getattr__(self, name):
            raise RuntimeError("not loaded")

    class Proxy:
        @property
        def __class__(self):
            raise RuntimeError("nobody")
    x = leaf(2.0)
    odd = {"foreign": Foreign(), "broken": Broken(), "mock": Mock(), "lazy": Lazy(), "proxy": Proxy(), "none": None,
           3: "text", "x": x, "array": np.ones(3), "cls": Foreign, "self": {"deep": {"x": x}}}
    assert set(by_name(graph.trace(x * 2, names=odd))) == {"x"}
    assert by_name(graph.trace(x * 2, names=Foreign())) == {}


def test_names_are_looked_up_when_it_is_drawn():
    x = leaf(2.0)
    names = {"first": x}
    drawn = graph.draw(x * 3, names=names)
    names.clear()
    names["second"] = x
    assert '"first"' in drawn.page()
    assert '"second"' not in drawn.page()


def test_names_that_are_no_dict_are_refused():
    with pytest.raises(TypeError, match=r"locals\(\) for instance"):
        graph.draw(leaf(1.0), names=["x"])


# ---------------------------------------------------------------------------------------------------- its gradients

def test_gradients_are_those_of_backward_and_nobodys_grad_is_touched():
    x, w = leaf(RNG.normal(size=(3, 4)), "x"), leaf(RNG.normal(size=(4, 2)), "w")
    y = ((x @ w).tanh() * x.sum()).softmax()
    weight = RNG.normal(size=(3, 2))
    shown = by_name(graph.trace(y, grads=weight))
    assert (x.grad, w.grad) == (None, None)
    y.backward(weight)
    np.testing.assert_array_equal(shown["x"].grad, x.grad)
    np.testing.assert_array_equal(shown["w"].grad, w.grad)


def test_gradients_of_results_and_the_shares_of_each_use():
    x = leaf(3.0, "x")
    h = x * x
    h.name = "h"
    t = graph.trace(h * h + h, grads=True)
    assert by_name(t)["h"].grad == 2 * 9 + 1
    assert by_name(t)["x"].grad == 19 * 6
    assert [e.grad for e in t.edges if e.source == by_name(t)["h"].id] == [9.0, 9.0, 1.0]
    sums = [e["total"] and e["total"]["rows"][0][0] for e in film.film(t)["edges"] if e["source"] == by_name(t)["h"].id]
    assert sums == [10.0, 19.0, None]       # the walk meets the last op first, and its share is no sum yet


def test_several_outputs_are_walked_from_their_sum():
    x = leaf([1.0, 2.0], "x")
    h = x * 2
    h.name = "h"
    y = h * h
    t = by_name(graph.trace(h, y, Tensor(1.0), grads=True))
    np.testing.assert_array_equal(t["h"].grad, 1 + 2 * np.array([2.0, 4.0]))
    np.testing.assert_array_equal(t["x"].grad, 2 * t["h"].grad)
    assert len(graph.trace(h, y, grads=True).vertices) == len(graph.trace(h, y).vertices)


def test_any_order_of_drawing_and_walking_gives_the_same():
    x = leaf(2.0, "x")
    y = x * x
    first = graph.trace(y, grads=True)
    y.backward(retain_graph=True)
    assert x.grad == 4.0
    second = graph.trace(y, grads=True)
    assert by_name(first)["x"].grad == by_name(second)["x"].grad == 4.0
    y.backward()
    assert x.grad == 8.0


def test_gradients_are_shown_also_where_nothing_is_recorded_and_of_joint_rules():
    x, y = leaf([1.0, 2.0], "x"), leaf([3.0], "y")
    z = ta.concatenate([x, y, x]) * np.arange(5)
    with ta.no_grad():
        t = by_name(graph.trace(z, grads=True))
    np.testing.assert_array_equal(t["x"].grad, [3.0, 5.0])
    np.testing.assert_array_equal(t["y"].grad, [2.0])
    branch = by_name(graph.trace(ta.where(np.array([True, False]), x, 0.0), grads=True))
    np.testing.assert_array_equal(branch["x"].grad, [1.0, 0.0])


def test_infinite_gradients_are_drawn_and_warn_nobody():
    x = leaf([0.0, 1.0], "x")
    picture = graph.draw(x.sqrt(), grads=True)
    assert "‖grad‖ inf" in str(picture)
    assert "inf" in picture.source


def test_gradients_that_cannot_be_shown_say_why():
    x = leaf([1.0, 2.0])
    with pytest.raises(ta.GraphError, match="no gradient can flow"):
        graph.draw(Tensor([1.0]), grads=True)
    with pytest.raises(ta.ShapeError, match=r"grads= has shape \(3,\)"):
        graph.draw(x * 2, grads=np.ones(3))
    with pytest.raises(ta.ShapeError, match="for one tensor"):
        graph.draw(x * 2, x * 3, grads=np.ones(2))
    for bad in ("all", np.array([1j, 2])):
        with pytest.raises(TypeError, match="it is True, or dL/d tensor"):
            graph.draw(x * 2, grads=bad)
    assert graph.trace(x * 2, grads=np.True_).seed == "sum"
    given = np.ones(2)
    traced = graph.trace(x * 2, grads=given)
    given[:] = 7.0
    np.testing.assert_array_equal(traced.seeds["n2"], [1.0, 1.0])
    assert graph.trace(x * 2, grads=None).seed is graph.trace(x * 2, grads=np.False_).seed is None


def test_gradients_hundreds_of_decades_apart_and_such_that_are_no_numbers():
    x, y = leaf(1.0, "x"), leaf(1.0, "y")
    far = graph.draw(x * 1e200 + y * 1e-200, grads=True)
    assert "1e200" in far.source
    strengths = labels.Strengths(far.trace)
    assert [strengths.level(v) for v in far.trace.vertices if v.kind == "leaf"] == [labels.LEVELS, 1]
    nan = labels.Strengths(graph.trace(x * leaf(2.0), grads=np.float64("nan"))).legend()
    assert nan == "Gradients for the given dL/d multiply. Some are infinite or NaN, and drawn as the strongest."
    assert "exactly 0" in labels.Strengths(graph.trace(x * 2.0, grads=0.0)).legend()
    assert labels.Strengths(graph.trace(x * 2.0)).legend() == ""
    with graph.scope("box"):
        folded = leaf([0.0]).sqrt()
        difference = folded - folded
    graph.fold(graph.trace(difference, grads=True), 0)          # ∞ − ∞, and no warning
    many = leaf(1.0)
    total = many
    for _ in range(20):
        total = total + many
    strengths = labels.Strengths(graph.trace(total - 20.0 * many, grads=True))
    assert strengths.of(21.0) == labels.LEVELS


def test_it_is_told_where_the_walk_began():
    x = leaf([1.0, 2.0], "x")
    y = (x * x).sum()
    begun = [graph.trace(*t, grads=g).seed for t, g in (((y,), True), ((x * 2,), True), ((y, y), True), ((y,), 3.0))]
    assert begun == ["itself", "sum", "itself", "given"]
    assert [float(s) for s in graph.trace(y, y, grads=True).seeds.values()] == [1.0]       # each output once
    with graph.scope("two"):
        a, b = x * 2, x * 3
    a.name = "a"
    folded = graph.draw(a, b, grads=True, collapse=0)
    assert len(folded.shown.seeds) == 2
    assert "Gradients of the sum of all elements of a, multiply." in labels.Strengths(folded.shown).legend()
    assert [float(s) for s in graph.trace(y, grads=3.0).seeds.values()] == [3.0]


def test_width_and_shade_follow_the_norm_on_a_log_scale():
    x = leaf(1.0, "x")
    t = graph.trace(x * 1e-3 + leaf(1.0, "b"), grads=True)
    strengths = labels.Strengths(t)
    assert strengths.level(by_name(t)["b"]) == labels.LEVELS
    assert strengths.level(by_name(t)["x"]) == round(labels.LEVELS - 3 / labels.DECADES * (labels.LEVELS - 1))
    assert [strengths.of(n) for n in (0.0, 1e-300, 1e-6, 1.0, np.inf)] == [0, 1, 1, labels.LEVELS, labels.LEVELS]
    widths = {e.rule: float(w) for e, w in zip(t.edges, re.findall(r"penwidth=([\d.]+) ?tooltip", graph.draw(
        x * 1e-3 + leaf(1.0, "b"), grads=True).source))}
    assert len(set(widths.values())) > 1


def test_a_gradient_of_exactly_zero_is_dashed_and_a_missing_one_thin():
    x, c = leaf([1.0], "x"), Tensor([2.0], name="c")
    source = graph.draw(x * 0.0 + c, grads=True).source
    assert source.count("style=dashed") == 1                    # the edge from x
    assert source.count('style="filled,dashed"') == 1           # and x itself
    assert len(re.findall(r"penwidth=0.5", source)) >= 2        # c and 0.0 get none


def test_norms_neither_overflow_nor_underflow():
    assert labels.norm(np.full(4, 1e200)) == pytest.approx(2e200)
    assert labels.norm(np.full(4, 1e-200)) == pytest.approx(2e-200)
    assert labels.norm(np.zeros(3)) == labels.norm(np.ones(0)) == 0.0
    assert labels.norm(np.array([-128], np.int8)) == 128.0
    assert labels.norm(np.array([3 + 4j])) == 5.0
    assert labels.norm(np.full(100, 1e308)) == np.inf


# ------------------------------------------------------------------------------------------------- scopes and boxes

def test_scopes_make_boxes_that_nest_and_one_for_each_time():
    x = leaf(1.0)
    for _ in range(2):
        with graph.scope("outer"):
            y = x * 2
            with graph.scope("inner"):
                x = y.tanh()
    t = graph.trace(x)
    assert t.boxes == (Box("b0", "outer", None), Box("b1", "inner", "b0"), Box("b2", "outer", None),
                       Box("b3", "inner", "b2"))
    assert [v.box for v in t.vertices if v.kind == "op"] == ["b0", "b1", "b2", "b3"]
    assert [v.box for v in t.vertices if v.label == "2"] == ["b0", "b2"]        # a number stands with its op
    assert [v.box for v in t.vertices if v.kind == "leaf"] == [None]


def test_scopes_are_left_by_exceptions_and_kept_apart_in_threads():
    x = leaf(1.0)
    with pytest.raises(ZeroDivisionError), graph.scope("a"):
        _ = 1 / 0
    found = []

    def other():
        with graph.scope("b"):
            found.append(graph.trace(x * 2).boxes[0].name)
    with graph.scope("a"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        y = x * 2
    assert (found, [box.name for box in graph.trace(y).boxes]) == (["b"], ["a"])
    assert graph.trace(x * 2).boxes == ()


def test_a_scope_decorates_a_function_and_refuses_what_runs_later_and_odd_names():
    @graph.scope("square")
    def square(x):
        return x * x
    assert [box.name for box in graph.trace(square(square(leaf(1.0)))).boxes] == ["square", "square"]

    def later():
        yield
    with pytest.raises(TypeError, match="after the call is over"):
        graph.scope("g")(later)
    with pytest.raises(TypeError, match="must be a string"):
        graph.scope(3)
    with pytest.raises(TypeError, match="is a class; decorate the methods"):
        graph.scope("c")(type("Layer", (), {}))


def test_a_scope_may_be_left_elsewhere():
    def generator():
        with graph.scope("a"):
            yield
    steps = generator()
    next(steps)
    thread = threading.Thread(target=steps.close)
    thread.start()
    thread.join()
    graph.scope("b").__exit__(None, None, None)
    assert graph.trace(leaf(1.0) * 2).boxes == ()


def test_attention_reads_scale_scores_softmax_weigh():
    q, k, v = (leaf(RNG.normal(size=(3, 2)), n) for n in "qkv")
    t = graph.trace(ta.attention(q, k, v)[0])
    assert [(box.name, box.outer) for box in t.boxes] == [
        ("attention", None), ("scale", "b0"), ("scores", "b0"), ("weigh", "b0")]
    assert [v.label for v in t.vertices if v.box == "b0"] == ["softmax"]        # an op that needs no box to be named


def test_multi_head_attention_reads_project_attention_merge():
    t = graph.trace(examples.heads())
    assert [(box.name, box.outer) for box in t.boxes if box.outer in (None, "b0")] == [
        ("multi_head_attention", None), ("project", "b0"), ("attention", "b0"), ("merge", "b0")]
    assert {v.name: v.kind for v in t.vertices if v.name} == {
        "X": "constant", "W_q": "leaf", "W_k": "leaf", "W_v": "leaf", "W_o": "leaf", "output": "op"}


def test_a_module_is_a_box_if_it_opens_a_scope_and_names_its_parameters():
    class Module:
        def __init__(self, **parts):
            self.parts = parts

        def named_parameters(self):
            for name, part in self.parts.items():
                yield from ((f"{name}.{path}", p) for path, p in part.named_parameters()) if isinstance(
                    part, Module) else [(name, part)]

        def __call__(self, x):
            with graph.scope(type(self).__name__):
                return self.forward(x)

    class Linear(Module):
        def forward(self, x):
            return x @ self.parts["weight"]

    class Block(Module):
        def forward(self, x):
            return self.parts["second"](self.parts["first"](x).tanh())
    block = Block(first=Linear(weight=leaf(np.eye(2))), second=Linear(weight=leaf(np.eye(2))))
    drawn = graph.draw(block(np.ones((3, 2))), names=block)
    assert [(box.name, box.outer) for box in drawn.trace.boxes] == [("Block", None), ("Linear", "b0"), ("Linear", "b0")]
    assert set(by_name(drawn.trace)) == {"first.weight", "second.weight"}
    assert [v.label for v in drawn.with_look(collapse=1).shown.vertices if v.kind != "leaf"] == [
        "", "Linear", "tanh", "Linear"]


def test_a_folded_box_is_one_vertex_with_what_goes_in_and_comes_out():
    t = graph.fold(graph.trace(examples.heads()), 0)
    (box,) = [v for v in t.vertices if v.kind == "box"]
    assert (box.label, box.name, box.formula) == (
        "multi_head_attention", "output", "(10, 64), 3 × (8, 64, 8), (64, 64) → (10, 64)")
    assert [(v.name, v.kind) for v in t.vertices if v is not box] == [
        ("X", "constant"), ("W_q", "leaf"), ("W_k", "leaf"), ("W_v", "leaf"), ("W_o", "leaf")]
    assert len(t.edges) == 5                # X goes in once, though it is used three times
    assert (t.outputs, t.boxes) == ((box.id,), ())
    t = graph.fold(graph.trace(examples.heads()), 1)
    assert [v.label for v in t.vertices if v.kind == "box"] == ["project", "attention", "merge"]
    assert [box.name for box in t.boxes] == ["multi_head_attention"]
    assert sum(e.source == "b1" for e in t.edges) == 3          # three different values leave


def test_an_op_with_a_parameter_called_ops_can_be_folded():
    @ta.primitive
    def scaled(x, *, ops):
        return x * ops
    scaled.defvjp(lambda g, out, x, *, ops: g * ops)
    with graph.scope("s"):
        y = scaled(leaf(1.0), ops=2.5)
    assert [dict(v.params) for v in graph.draw(y, collapse=0).shown.vertices if v.kind == "box"] == [{"ops": "1"}]


def test_boxes_are_folded_by_name_and_unknown_names_refused():
    traced = graph.trace(examples.heads())
    t = graph.fold(traced, {"project", "attention"})
    assert [v.label for v in t.vertices if v.kind == "box"] == ["project", "attention"]
    assert any(v.label == "reshape" for v in t.vertices)
    assert graph.fold(traced, "merge") == graph.fold(traced, ["merge"])
    assert graph.fold(traced, None) is traced
    with pytest.raises(ValueError, match="collapse names no box: heads; the boxes are attention, merge"):
        graph.fold(traced, "heads")
    with pytest.raises(ValueError, match="cannot stay open"):
        graph.fold(traced, -1)
    assert graph.fold(traced, np.int64(0)) == graph.fold(traced, 0)
    for bad in (1.5, True, b"a", [1]):
        with pytest.raises(TypeError, match="it is a number of levels, the name of a box"):
            graph.fold(traced, bad)


def test_gradients_of_a_folded_box_are_added_up():
    x = leaf(2.0, "x")
    with graph.scope("cube"):
        y = x * x * x
    t = graph.fold(graph.trace(y + x, grads=True), 0)
    edges = {(e.source, e.target): e for e in t.edges}
    assert edges["n0", "b0"].grad == 12.0
    assert [v.grad for v in t.vertices] == [13.0, 1.0, 1.0]


def test_a_box_that_is_left_and_entered_again_can_be_folded_though_it_makes_a_circle():
    x = leaf(1.0, "x")
    with graph.scope("around"):
        a = x * 2
        with graph.scope("inner"):
            b = a.tanh()
        c = b + a
    t = graph.fold(graph.trace(c), "inner")
    assert [(e.source, e.target) for e in t.edges if "b1" in (e.source, e.target)] == [("n2", "b1"), ("b1", "n4")]
    y = leaf(1.0)
    outer = graph.scope("f")
    outer.__enter__()
    first = y * 2
    outer.__exit__(None, None, None)
    between = first.exp()
    picture = graph.draw(between + first, collapse=0)
    assert str(picture).splitlines()[0] == "add ()"
    assert picture.render().count(b'class="edge') == 4


def test_a_large_graph_is_folded_first_and_then_cut_and_says_so():
    y = leaf(1.0, "x")
    for i in range(20):
        with graph.scope(f"layer {i}"):
            for _ in range(10):
                y = y.tanh()
    assert graph.draw(y).note == ""
    picture = graph.draw(y, max_nodes=50)
    assert picture.note == "201 nodes; boxes are folded to show them in 21 (max_nodes=None shows all)"
    assert len(picture.shown.vertices) == 21
    picture = graph.draw(y, max_nodes=10)
    assert picture.note == ("201 nodes; boxes are folded, and 21 are left, of which 9 are shown, the outputs and the "
                            "newest others (max_nodes=None shows all)")
    assert [v.label for v in picture.shown.vertices] == [
        "… 12 folded and older nodes", *(f"layer {i}" for i in range(11, 20))]
    assert str(picture).splitlines()[-2].strip() == "… 12 folded and older nodes"
    assert str(picture).splitlines()[-1] == f"({picture.note})"
    assert "older nodes" in picture.source
    assert "201 nodes" in picture.source.replace("\u00a0", " ")
    assert len(graph.draw(y, max_nodes=None).shown.vertices) == 201
    for bad in (1, 0, -3, 2.5, "3"):
        with pytest.raises(ValueError, match="needs 2 or more, or None"):
            graph.draw(y, max_nodes=bad)


def test_what_is_cut_is_never_the_output_and_what_it_gave_is_seen():
    h = leaf(1.0, "h")
    with graph.scope("model"):
        for i in range(1000):
            h = h * leaf(1.0, f"w{i}")
    picture = graph.draw(h, grads=True)
    (box,) = [v for v in picture.shown.vertices if v.kind == "box"]
    assert picture.shown.outputs == (box.id,)
    assert {e.target for e in picture.shown.edges} == {box.id}
    assert ("rest", box.id) in {(e.source, e.target) for e in picture.shown.edges}
    old, y = leaf(1.0, "old"), leaf(2.0)
    early = old * 2
    for _ in range(50):
        y = y.tanh()
    cut = graph.draw(early, y * early, max_nodes=10).shown
    assert [v.label for v in cut.vertices if v.id in cut.outputs] == ["multiply", "multiply"]
    assert ("rest", cut.outputs[0]) in {(e.source, e.target) for e in cut.edges}
    h = leaf(3.0, "h")
    old = h * 2
    for _ in range(5):
        y = y * old + old
    whole, cut = graph.trace(old, y, grads=True), graph.draw(old, y, grads=True, max_nodes=4).shown
    sent = sum(e.grad for e in whole.edges if e.source == cut.outputs[0])
    assert sum(e.grad for e in cut.edges if e.source == cut.outputs[0]) == pytest.approx(sent)      # none is lost
    assert [(e.rule, e.parameter) for e in cut.edges if e.target == "rest"] == [("", "")] * sum(
        e.target == "rest" for e in cut.edges)


def test_folding_twice_keeps_values_apart():
    x = leaf([1.0, 2.0, 3.0], "x")
    with graph.scope("A"):
        a, b = x * 2.0, x[:2] * 3.0
    with graph.scope("B"):
        c = a.sum() + b.sum()
    traced = graph.trace(c * 1.0, grads=True)
    twice, once = graph.fold(graph.fold(traced, "A"), 0), graph.fold(traced, 0)
    assert [(e.source, e.target, e.shape) for e in twice.edges] == [(e.source, e.target, e.shape) for e in once.edges]
    assert [(e.shape, np.shape(e.grad)) for e in twice.edges if e.source == "b0"] == [((3,), (3,)), ((2,), (2,))]
    assert [dict(v.params) for v in twice.vertices if v.kind == "box"] == [{"ops": "3"}, {"ops": "3"}]


def test_an_op_beside_a_box_in_a_box_of_its_name_is_drawn():
    x = leaf([1.0, 2.0], "x")
    with graph.scope("softmax"):
        with graph.scope("shift"):
            z = x - 1.0
        y = z.softmax()
    picture = graph.draw(y)
    assert picture.source.count("subgraph") == 2
    assert picture.render().count(b'class="node') == len(picture.trace.vertices)


def test_a_long_chain_is_drawn_without_recursion():
    y = leaf(1.0)
    for _ in range(5_000):
        y = y + 0.0
    picture = graph.draw(y, max_nodes=None, grads=True)
    assert picture.source.count(" -> ") == 10_000
    assert len(str(picture).splitlines()) == 10_001
    assert len(graph.draw(y).shown.vertices) == 500


def test_deep_scopes_are_drawn_without_recursion():
    y = leaf(1.0)
    scopes = [graph.scope(f"s{i}") for i in range(1_500)]
    for s in scopes:
        s.__enter__()
        y = y.tanh()
    for s in scopes:
        s.__exit__(None, None, None)
    assert graph.draw(y, max_nodes=None).source.count("subgraph") == 1_500
    assert "boxes are folded" in graph.draw(y, max_nodes=100).note
    assert graph.fold(graph.trace(y), 0).vertices[1].params == (("ops", "1500"),)
    shown = graph.draw(y, max_nodes=100).shown
    assert 98 <= len(shown.vertices) + len(shown.boxes) <= 100      # boxes take room as well


def test_what_would_take_graphviz_minutes_is_drawn_plainly():
    x = leaf(np.ones(2), "x")
    y, s, t = x, 0.0, 0.0
    for i in range(100):
        y, s, t = (y + x).tanh(), s + (x * float(i)).sum(), t + x * 2.0
    for slow in (y, s, t):
        assert "splines=line" in graph.draw(slow).source
        assert graph.draw(slow).render().startswith(b"<svg")
    assert "splines" not in graph.draw(example()).source
    h = leaf(np.ones((4, 8)))
    for _ in range(24):                     # as long as a transformer, and as easy
        h = h + F.linear(F.layer_norm(h), leaf(np.eye(8)))
    assert "splines" not in graph.draw(h, max_nodes=None).source


# ---------------------------------------------------------------------------------------------------------- compare

def test_compare_puts_two_graphs_on_one_scale():
    x = leaf([1.0, 2.0], "x")
    both = graph.compare(x * 1.0, x * 1e-3, titles=("large", "small"))
    assert [box.name for box in both.trace.boxes] == ["large", "small"]
    assert len({v.id for v in both.trace.vertices}) == len(both.trace.vertices) == 6
    strengths = labels.Strengths(both.trace)
    levels = [strengths.level(v) for v in both.trace.vertices if v.name == "x"]
    assert levels[0] == labels.LEVELS > levels[1]
    assert both.render().startswith(b"<svg")


def test_compare_takes_drawn_graphs_and_folds_them_alike():
    q = leaf(RNG.normal(size=(2, 2)), "q")
    graphs = [graph.draw(ta.attention(q, q, q, scale=s)[0], grads=True, collapse=0) for s in (None, 1.0)]
    both = graph.compare(*graphs)
    assert [v.label for v in both.shown.vertices if v.kind == "box"] == ["attention", "attention"]
    assert [box.name for box in both.shown.boxes] == ["a", "b"]
    with pytest.raises(ValueError, match="draw both alike"):
        graph.compare(graphs[0], graph.draw(q * 2))
    one_sided = graph.compare(q * 2, ta.attention(q, q, q)[0], collapse="attention", max_nodes=50)
    assert [v.label for v in one_sided.shown.vertices if v.kind == "box"] == ["attention"]
    both = graph.compare(graphs[0], graphs[1], values=True, collapse=None)
    assert (both.look.values, both.look.collapse) == (True, None)
    with pytest.raises(TypeError, match="typo= cannot change graphs that are drawn already"):
        graph.compare(graphs[0], graphs[1], typo=3)
    with pytest.raises(ValueError, match="cannot stay open"):
        graph.compare(q * 2, q * 3, collapse=-1)
    shown = graph.compare(q * 2, ta.attention(q, q, q)[0], collapse=np.int64(0)).shown
    assert [box.name for box in shown.boxes] == ["a", "b"]
    assert graph.compare(q.sum(), q * 2).trace.seed == "sum"
    with pytest.raises(TypeError, match="a look has no typo; it has values, shapes, collapse, max_nodes"):
        graph.draw(q * 2).with_look(typo=3)
    for titles in (("a",), (1, None), None, {"a": 1, "b": 2}):
        with pytest.raises(TypeError, match="give two names"):
            graph.compare(q * 2, q * 3, titles=titles)


def test_the_vanishing_gradient_is_seen():
    both = examples.vanishing()
    strengths = labels.Strengths(both.trace)
    scores = [v for v in both.trace.vertices if v.label == "matmul" and v.shape == (1, 64)]
    scaled, unscaled = (labels.norm(v.grad) for v in scores)
    assert scaled > 1000 * unscaled
    at_query = [labels.norm(v.grad) for v in both.trace.vertices if v.name == "query"]
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"{round(scaled / unscaled, -2):,.0f} times less at the scores" in readme
    assert f"{round(at_query[0] / at_query[1], -1):.0f} times less at the query" in readme.replace("\n", " ")
    assert strengths.level(scores[0]) - strengths.level(scores[1]) >= 3


# ---------------------------------------------------------------------------------------------------------- formulas

def test_every_op_tells_its_formula_and_its_rule():
    from test_ops import PRIMITIVES
    modules = ta.functional, ta.losses, ta.grouped, ta.nn.layers
    fused = {x.op for module in modules for x in vars(module).values() if isinstance(x, ta.fused.Fused)}
    for op in PRIMITIVES:
        assert formulas.formula(op), op
        for i in range(max(op.arity, 1)):
            assert formulas.rule(op, i), (op, i)
    assert formulas.formula(ta.ops.multiply) == "x · y, elementwise"
    assert formulas.rule(ta.ops.multiply, 1) == "dL/dy = g * x"
    assert formulas.rule(ta.ops.matmul, 0) == "dL/dx = g yᵀ"
    assert formulas.rule(ta.ops.softmax, 0) == "dL/dx = out * (g - (g * out).sum(axis=axis, keepdims=True))"
    assert formulas.rule(ta.ops.maximum, 1) == "dL/dy = _extremum_dx(g, out, y, x)"
    assert formulas.rule(ta.ops._concatenate, 5).startswith("dL/dxs[5]:\nbefore = ")
    assert not any(formulas.formula(op).endswith(".") or "`" in formulas.formula(op) for op in PRIMITIVES)
    in_words = {formulas.formula(op) for op in PRIMITIVES if op.__doc__ and re.search("[a-z]{4}", op.__doc__)}
    in_words = {f for f in in_words if re.search("[a-z]{4}", f)} - {"tanh x"}
    assert len(fused) == 7
    assert in_words | {formulas.formula(op) for op in fused} == words.FORMULAS.keys()           # all in Portuguese too
    assert all(formulas.rule(op, i).startswith("dL/d") for op in fused for i in range(2))


def test_ops_of_ones_own_tell_theirs():
    @ta.primitive
    def cube(x):
        """x³. And more."""
        return x ** 3
    rules = (lambda g, out, x: g * 3 * x ** 2), (lambda g, out, x: g * 3 * x ** 2 + 0)       # two on one line
    cube.defvjp(rules[1])
    assert (formulas.formula(cube), formulas.rule(cube, 0)) == ("x³", "dL/dx = g * 3 * x ** 2 + 0")
    cube.defvjp(rules[0])
    assert formulas.rule(cube, 0) == "dL/dx = g * 3 * x ** 2"
    typed = {}
    exec("rule = lambda g, out, x: g", typed)
    cube.defvjp(typed["rule"])
    assert formulas.rule(cube, 0) == ""     # no source to read: no text, and no error


def test_a_rule_that_was_edited_on_disk_is_not_told(tmp_path, monkeypatch):
    module = tmp_path / "edited_rule.py"
    module.write_text("rule = lambda g, out, x: g * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    rule = importlib.import_module("edited_rule").rule

    @ta.primitive
    def double(x):
        return x * 2
    double.defvjp(rule)
    assert formulas.rule(double, 0) == "dL/dx = g * 2"
    formulas._code.cache_clear()
    module.write_text("rule = lambda g, out, x: g * 9\n# longer\n")
    assert formulas.rule(double, 0) == ""   # what runs is still g * 2


def test_tooltips_have_the_formula_and_the_rules():
    source = graph.draw(leaf(2.0, "x") * leaf(3.0, "y")).source
    assert r'tooltip="multiply: x · y, elementwise\ndL/dx = g * y\ndL/dy = g * x"' in source
    svg = graph.draw(leaf(2.0, "x") * leaf(3.0, "y")).render().decode()
    assert "<title>multiply: x · y, elementwise\ndL/dx = g * y\ndL/dy = g * x</title>" in svg.replace("&#10;", "\n")


# -------------------------------------------------------------------------------------------------- DOT and pictures

NAMES = ["x:0", "layer:1:w", "<relu>", "trailing\\", 'quo"te', "{a|b}", "line\nbreak", "ação α", "\\N", "node",
         "<b>x</b>", "a&lt;b", "&#65;", "a  b", "]]>", "--", "<>", "\\l", "日本語", "%d", "$x"]


def test_RD_01_names_are_text_and_never_dot_syntax(program):
    y = leaf(0.0)
    for name in NAMES:
        with graph.scope(name):
            y = y + leaf(0.0, name)
    picture = graph.draw(y)
    edges = set(re.findall(r"\t(\w+) -> (\w+) \[", picture.source))
    assert edges == {(e.source, e.target) for e in picture.trace.edges}
    assert len(picture.trace.edges) == 2 * len(NAMES) == picture.source.count(" -> ")
    svg = picture.render().decode()
    shown = [text.replace("\u00a0", " ").strip() for text in texts(svg)]
    for name in NAMES:
        for line in name.split("\n"):
            assert shown.count(line) == 2, line     # as the name of a leaf, and of a box
    assert svg.count('class="node') == 2 * len(NAMES) + 1
    assert svg.count('class="cluster') == len(NAMES)
    titles = [t.text for t in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert all(titles.count(name.replace("  ", " \u00a0")) == 2 for name in NAMES)


def test_joiners_and_wide_spaces_are_kept():
    name = "می\u200cخواهم 👨\u200d👩\u3000!"
    assert name in texts(graph.draw(leaf(0.0, name)).render())


def test_control_characters_are_shown_as_such_and_break_nothing(program):
    name = "a\x00b\x1b[31m\ud800c"
    with graph.scope(name):
        y = leaf(0.0, name) * 2
    shown = texts(graph.draw(y).render())
    assert [text.replace("\u00a0", "") for text in shown].count("a�b�[31m�c") == 2
    graph.draw(y).page()


def test_shapes_stand_on_the_edges_values_and_gradients_in_the_vertices():
    shown = {text.replace("\u00a0", " ").strip()
             for text in texts(graph.draw(example(), values=True, grads=True).render())}
    assert {"(3, 4)", "(4, 2)", "‖grad‖ 0", "0.5  0.5", "0.5"} <= shown
    without = texts(graph.draw(example(), shapes=False).render())
    assert not any("(" in text for text in without)


def test_a_leaf_that_was_given_new_data_between_two_uses_has_no_one_value():
    x = leaf(2.0, "x")
    y = x * x
    x.data = np.array(5.0)
    text = str(graph.draw(x * 1.0, y, values=True))
    assert "= 5" in text
    assert "x () = 2" not in text
    assert str(graph.draw(y, values=True)).splitlines()[1] == "  x () = 2"
    c = Tensor(2.0)
    first = x * c
    c.data = np.array(3.0)
    second = first * c
    assert [(v.label, v.value) for v in graph.trace(second).vertices if v.kind == "constant"] == [("", None)]
    assert [v.label for v in graph.trace(first).vertices if v.kind == "constant"] == ["2"]


def test_half_precision_is_written_without_a_warning():
    x = leaf(np.float16(3.0), "x")
    assert str(graph.draw(x * x * Tensor(np.float16(2.0)), values=True)).splitlines()[0] == "multiply () = 18"


def test_large_values_are_elided():
    big = leaf(np.linspace(-1, 2, 10_000).reshape(100, 100), "big")
    assert "-1 … 2" in str(graph.draw(big.sum(), values=True))
    assert labels.written(np.ones((0, 3))) == ["empty"]
    assert labels.written(np.array([[1.5, 2.0], [3.0, 4.0]])) == ["1.5  2", "3  4"]
    assert labels.written(np.array([True, False])) == ["True  False"]
    assert labels.written(np.ones((1, 1, 1))) == ["1"]
    m = leaf([[1.0, 2.0], [3.0, 4.0]], "m")
    assert "m (2, 2) = 1 2; 3 4" in str(graph.draw(m * 2, values=True))


def test_the_outline_reads_from_the_output_down_and_repeats_nothing():
    x = leaf(1.0, "x")
    h = x * 2
    h.name = "h"
    assert str(graph.draw(h * h)).splitlines() == ["multiply ()", "  h = multiply ()", "    x ()", "    2",
                                                   "  h = multiply () (above)"]


@pytest.fixture(params=["graphviz", "wheel"])
def program(request, monkeypatch):
    """Each of the two programs that draw: Graphviz itself, if this machine has it, and the wheel."""
    if request.param == "wheel":
        monkeypatch.setenv("PATH", "")
    elif not shutil.which("dot"):
        missing("Graphviz's own dot (Debian: apt-get install graphviz)")
    return request.param


def test_a_pdf_needs_graphviz_itself_and_the_error_says_so(program, tmp_path):
    if program == "graphviz":
        assert graph.draw(example()).save(tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
        return
    with pytest.raises(RuntimeError, match=r"no \.pdf; install Graphviz itself"):
        graph.draw(example()).save(tmp_path / "x.pdf")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".svg", ".png", ".dot", ".gv", ".html", ".SVG"])
def test_RD_03_saving_writes_what_the_suffix_says(program, tmp_path, suffix):
    folder = tmp_path / "out dir ação"
    folder.mkdir()
    target = folder / f"graphe é{suffix}"
    assert graph.draw(example()).save(str(target)) == target
    head = {".svg": b"<svg", ".png": b"\x89PNG", ".html": b"<!doctype html>"}
    assert target.read_bytes().startswith(head.get(suffix.lower(), b"digraph"))
    assert os.listdir(folder) == [target.name]


@pytest.mark.parametrize(("name", "error", "told"), [
    ("x.jpgg", ValueError, "one of .dot"), ("x", ValueError, "one of .dot"), ("", ValueError, "one of .dot"),
    ("no/such/folder/x.dot", FileNotFoundError, "no such folder"), ("taken.svg", IsADirectoryError, "is a folder")])
def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path, name, error, told):
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(error, match=told):
        graph.draw(example()).save(tmp_path / name)
    assert os.listdir(tmp_path) == ["taken.svg"]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path, monkeypatch):
    def denied(**_):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr("tinygrad_attn.files.tempfile.mkstemp", denied)     # root may write anywhere
    for name in ("x.dot", "x.svg", "x.html"):
        with pytest.raises(PermissionError):
            graph.draw(example()).save(tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_RD_03_without_a_dot_program_the_text_and_the_page_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "find_dot", lambda: None)
    picture = graph.draw(example())
    assert picture.save(tmp_path / "x.dot").exists()
    assert picture.save(tmp_path / "x.html").exists()
    with pytest.raises(RuntimeError, match=r"pip install graphviz-pure .*\n?.*page \(\.html\) and DOT text") as error:
        picture.save(tmp_path / "x.svg")
    assert "\n" not in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["x.dot", "x.html"]
    assert picture._repr_svg_() is None
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}           # the page, in a frame
    assert bundle["text/html"].startswith("<p>no `dot` program was found")
    assert "<iframe srcdoc=" in bundle["text/html"]
    assert bundle["text/plain"].startswith("sum axis=0 (2,)")
    assert "pip install graphviz-pure" in bundle["text/plain"]


def test_RD_03_neither_the_package_nor_a_program_is_needed_until_a_picture_is_asked_for(tmp_path):
    code = ("import sys; sys.modules['graphviz'] = None\n"
            "import tinygrad_attn as ta\n"
            "x = ta.Tensor(1.0, requires_grad=True, name='x')\n"
            "picture = ta.graph.draw(x * x)\n"
            "print(picture)\n"
            "picture.save('x.html')\n"
            "print(sorted(picture._repr_mimebundle_()))\n"
            "try:\n"
            "    picture.source\n"
            "except ImportError as error:\n"
            "    print(error)\n")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.stderr == ""
    assert run.stdout.splitlines()[:3] == ["multiply ()", "  x ()", "  x ()"]
    assert "text/plain" in run.stdout
    assert "need the package graphviz: python3 -m pip install graphviz" in run.stdout
    assert os.listdir(tmp_path) == ["x.html"]


@pytest.fixture
def two_programs(tmp_path):
    """A `dot` and a `graphviz-pure` that say which of them was called, in folders of their own."""
    for name in ("dot", "graphviz-pure"):
        program = tmp_path / name / name
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '<svg width=\"1pt\" height=\"1pt\">{name}</svg>'\n")
        program.chmod(0o755)
    return tmp_path


def test_RD_03_graphviz_itself_comes_first_then_the_wheel_then_none(two_programs, monkeypatch):
    picture = graph.draw(example())
    both = os.pathsep.join(str(two_programs / name) for name in ("graphviz-pure", "dot"))
    monkeypatch.setenv("PATH", both + os.pathsep + os.environ["PATH"])
    assert picture.render().endswith(b">dot</svg>\n")
    monkeypatch.setenv("PATH", str(two_programs / "graphviz-pure"))
    assert picture.render().endswith(b">graphviz-pure</svg>\n")
    monkeypatch.setenv("PATH", "")
    assert picture.render().count(b"<g class=\"node") == 9          # the wheel's, beside this interpreter
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(render.sysconfig, "get_path", lambda *_: "/nowhere")
    with pytest.raises(RuntimeError, match="no `dot` program"):
        picture.render()


def test_the_wheels_program_is_found_when_its_folder_is_not_on_the_path():
    code = ("import tinygrad_attn as ta\n"
            "x = ta.Tensor(1.0, requires_grad=True)\n"
            "print(len(ta.graph.draw(x * x).render('svg')) > 500)")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": ""})
    assert (run.stdout, run.stderr) == ("True\n", "")


def test_a_notebook_gets_svg_and_text():
    bundle = graph.draw(example())._repr_mimebundle_()
    assert bundle["image/svg+xml"].count("<svg") == 1
    assert bundle["text/plain"].startswith("sum axis=0 (2,)")
    assert graph.draw(example())._repr_svg_() == bundle["image/svg+xml"]


def test_the_svg_shrinks_is_not_clipped_follows_dark_and_has_no_ids(program):
    svg = graph.draw(example()).render().decode()
    ElementTree.fromstring(svg)
    head = svg[:svg.index(">")]
    assert "max-width: 100%; height: auto" in head
    width, height = (float(re.search(rf' {side}="([\d.]+)"', head)[1]) for side in ("width", "height"))
    box = re.search(r'viewBox="0.00 0.00 ([\d.]+) ([\d.]+)"', head)
    assert (float(box[1]), float(box[2])) == pytest.approx((width, height), abs=0.6)
    assert "prefers-color-scheme: dark" in svg
    assert " id=" not in svg                # of two pictures on a page, which would share them
    assert "<?xml" not in svg


def test_a_format_that_is_none_is_refused_before_it_is_drawn():
    with pytest.raises(ValueError, match="it is one of svg, png, pdf"):
        graph.draw(example()).render("jpg")


def test_a_number_with_several_uses_tells_each_share_on_its_edge():
    shown = [text.replace("\u00a0", "") for text in texts(graph.draw(examples.scalar(), grads=True).render())]
    assert {"-2.359", "0.4621"} <= set(shown)
    assert "1.573" not in shown             # of w·x + b, which has one use


def test_drawing_changes_nothing():
    x = leaf(2.0)
    y = x * x
    graph.draw(y, grads=True).render("svg")
    y.backward()
    assert x.grad == 4.0


def test_a_program_that_fails_or_draws_nothing_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    for script, told in (("echo oops >&2; exit 3", r"gave no picture \(exit code 3\): oops"), ("exit 0", "no picture"),
                         ("echo hello", "no picture"), ("echo '<svg'", "no picture"), ("sleep 9", "after 1 seconds")):
        if script == "sleep 9":             # and only then: a busy machine may take a second for the others
            monkeypatch.setattr(render, "PATIENCE", 1)
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setattr(render, "find_dot", lambda fake=fake: str(fake))
        picture = graph.draw(example())
        for name in ("x.svg", "x.png"):
            with pytest.raises(RuntimeError, match=told):
                picture.save(tmp_path / name)
        assert os.listdir(tmp_path) == ["fake"]
        assert set(picture._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = graph.draw(example()).save(tmp_path / "x.dot")
    before = target.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        graph.draw(leaf(1.0)).save(target)
    assert (os.listdir(tmp_path), target.read_bytes()) == (["x.dot"], before)


def test_a_transformers_layer_is_drawn_whole(program):
    x = leaf(RNG.normal(size=(2, 5, 8)), "x")
    w = leaf(RNG.normal(size=(2, 8, 4)), "w")
    h = x + ta.multi_head_attention(F.layer_norm(x), w, w, w, leaf(np.eye(8), "o"), 2)
    y = h + F.gelu(F.linear(F.layer_norm(h), leaf(np.eye(8), "m")))
    picture = graph.draw(y, grads=True, names=locals())
    assert picture.note == ""
    assert picture.render().count(b'class="node') == len(picture.trace.vertices)
