"""Who is to blame: no innocent op is accused, whatever the scales and the rounding, and no guilty one hides."""

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import GradcheckError, Tensor, gradcheck, ops
from tinygrad_attn import functional as F
from tinygrad_attn.engine import topological_order


@ta.primitive
def bad(x):
    return x * 2
bad.defvjp(lambda g, out, x: g * 3)


@ta.primitive
def of_probabilities(p):
    """An op that cannot be moved element by element."""
    if abs(p.sum() - 1) > 1e-12:
        raise ValueError("p must sum to 1")
    return p * 1.0


def suspect(fn, inputs, **options):
    with pytest.raises(GradcheckError) as caught:
        gradcheck(fn, inputs, **options)
    return caught.value.report.suspect


def suspect_if_any(fn, inputs, **options):
    """None for a check that passes."""
    try:
        gradcheck(fn, inputs, **options)
    except GradcheckError as error:
        return error.report.suspect


def changed(monkeypatch, op, factor, i=0):
    """The op with a rule that is wrong by a factor."""
    right = op.vjps[i]
    wrong = lambda *args, **params: right(*args, **params) * factor
    monkeypatch.setattr(op, "vjps", [*op.vjps[:i], wrong, *op.vjps[i + 1:]])


# ------------------------------------------------------------------------------------------------- random programs
def program(seed):
    """A random function of one (3, 4) array, of 3 to 8 steps, each of which uses earlier values."""
    rng = np.random.default_rng(seed)
    c, sq, mask = rng.normal(size=(3, 4)), rng.normal(size=(4, 4)), rng.random((3, 4)) > 0.4
    rows = rng.integers(0, 3, 3)
    one = [Tensor.tanh, Tensor.sigmoid, Tensor.relu, Tensor.abs, Tensor.softmax, Tensor.log_softmax, ops.erf,
           F.layer_norm, F.gelu, lambda a: a.tanh().exp(), lambda a: (a * a + 0.5).log(),
           lambda a: (a * a + 0.5).sqrt(),
           lambda a: a.sum(axis=0) * c, lambda a: a.mean(axis=-1, keepdims=True) * c, lambda a: a.var(axis=0) + c,
           lambda a: a.max(axis=1, keepdims=True) - a * 0.5, lambda a: a.cumsum(axis=1), lambda a: a @ sq,
           lambda a: a[rows], lambda a: a.clip(-0.7, 0.7), lambda a: a.T.reshape(3, 4), lambda a: a ** 3 * 0.3,
           lambda a: a / (a * a + 1), lambda a: a[:1].broadcast_to((3, 4)), lambda a: ops.where(mask, a, a * 2)]
    two = [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / (b * b + 1),
           lambda a, b: a @ (b.T @ c) * 0.1, lambda a, b: ops.einsum("ij,kj,kl->il", a, b, c) * 0.1,
           lambda a, b: ops.concatenate([a, b], 1)[:, ::2], lambda a, b: (a * a + 0.3) ** b.tanh(),
           lambda a, b: ta.attention(a, b, b)[0], ops.maximum]
    steps = []
    for k in range(rng.integers(3, 9)):
        table, n = (one, 1) if rng.random() < 0.65 else (two, 2)
        steps.append((table[rng.integers(len(table))], [int(rng.integers(max(0, k - 2), k + 1)) for _ in range(n)]))

    def fn(x):
        values = [x]
        for step, places in steps:
            values.append(step(*(values[i] for i in places)))
        return values[-1]
    return fn, rng


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("reach", [(0, 0), (-8, 6), (-2, 6)])
def test_where_no_rule_is_wrong_no_op_is_accused(seed, reach):
    """At points from 1e-8 to 1e6 most of these checks fail at some time, for the step or for rounding."""
    fn, rng = program(seed)
    x = rng.normal(size=(3, 4)) * 10.0 ** rng.uniform(*reach, size=(3, 4))
    with np.errstate(all="ignore"):
        found = suspect_if_any(fn, x)
    if found:
        assert found.kind in ("noise", "step", "kink", "unknown", "domain"), found.text
        assert found.kind != "kink" or found.op in ("relu", "abs", "max", "clip", "maximum")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_where_one_rule_is_wrong_no_other_is_accused(seed, order, monkeypatch):
    fn, rng = program(seed)
    x = rng.normal(size=(3, 4))
    gradcheck(fn, x)
    nodes = topological_order(fn(Tensor(x, requires_grad=True)))
    node = nodes[rng.integers(len(nodes))]
    tracked = [i for i, value in enumerate(node.inputs) if value is not None and value.requires_grad]
    i = tracked[rng.integers(len(tracked))]
    if node.op.joint:
        right = node.op.joint
        monkeypatch.setattr(node.op, "joint", lambda *args, **params: {
            k: share * 1.05 if k == i else share for k, share in right(*args, **params).items()})
    else:
        changed(monkeypatch, node.op, 1.05, i)
    with np.errstate(all="ignore"):
        found = suspect_if_any(fn, x, order=order)
    if found:
        one_tensor = {id(node.inputs[k]) for k in tracked} == {id(node.inputs[i])}
        assert (found.kind, found.op) == ("rule", node.op.name), found.text
        assert one_tensor or found.argument in tracked


# ------------------------------------------------------------------------------------------ guilty ones do not hide
def test_rounding_is_called_rounding_and_does_not_hide_a_wrong_rule(monkeypatch):
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 40)), rng.normal(size=40)
    x[0] = 1.7e9                            # a time stamp among features
    found = suspect(lambda x: w @ x, x)
    assert (found.kind, found.op) == ("noise", None)
    assert "their rounding alone" in found.text or "too short here, where the terms" in found.text
    changed(monkeypatch, ops.sigmoid, 1.05)
    x[0] = 2e6
    found = suspect(lambda x: ops.sigmoid(w @ x * 1e-7), x, atol=1e-12)
    assert (found.kind, found.op) == ("rule", "sigmoid")


@pytest.mark.parametrize(("op", "factor", "i", "fn"), [
    (ops.exp, 1.01, 0, F.log_softmax), (ops.multiply, 1.01, 1, ops.exp), (ops.sum, 1.01, 0, ta.softmax),
    (ops.log, 1.01, 0, lambda x: x ** x), (ops.exp, 1.01, 0, F.gelu)])
def test_of_second_order_an_op_that_only_the_rules_use_is_named_and_not_the_op_whose_rule_it_is(op, factor, i, fn,
                                                                                                monkeypatch):
    changed(monkeypatch, op, factor, i)
    found = suspect(fn, [1.0, 2.0], order=2)
    assert (found.kind, found.op, found.argument) == ("rule", op.name, i)


def test_a_rule_that_leaves_the_graph_is_found_at_the_order_where_that_matters():
    @ta.primitive
    def square(x):
        return x * x
    square.defvjp(lambda g, out, x: g * 2 * (x.detach() if isinstance(x, Tensor) else x))
    found = suspect(lambda x: square(x.tanh()), [1.0, 2.0], order=2)
    assert (found.kind, found.op) == ("rule", "square")
    assert "in the derivative of order 2" in found.text


def test_small_derivatives_and_small_errors_are_judged_by_their_own_size():
    @ta.primitive
    def small(x):
        return x * 1e-8
    small.defvjp(lambda g, out, x: g * 2e-8)
    assert suspect(lambda x: small(x) * 1e8, 1.0).op == "small"

    @ta.primitive
    def nearly(x):
        return x * 1.0
    nearly.defvjp(lambda g, out, x: g * (1 + 1e-3))
    assert suspect(nearly, 1.0, atol=1e-9, rtol=1e-7).op == "nearly"

    @ta.primitive
    def almost(x):
        return x * 1e-14
    almost.defvjp(lambda g, out, x: g * 1e-14 * (1 + 1e-9))
    found = suspect(almost, 1.0, method="complex", atol=0, rtol=1e-10)
    assert found.kind == "unknown"          # an op is accused on what central differences can see, and not on less
    assert "as far as central differences can tell" in found.text


@pytest.mark.parametrize("rule", [lambda g, out, x: g * g, lambda g, out, x: np.clip(g, -1, 1),
                                  lambda g, out, x: abs(g)])
def test_a_rule_that_is_not_linear_in_g_is_found(rule):
    @ta.primitive
    def copy(x):
        return x.copy()
    copy.defvjp(rule)
    assert suspect(copy, [1.0, 2.0]).op == "copy"
    assert suspect(lambda x: copy(x) * 3, [1.0, 2.0]).op == "copy"


def test_a_rule_that_writes_into_g_is_named():
    @ta.primitive
    def double(x):
        return x * 2

    def in_place(g, out, x):
        g *= 2
        return g
    double.defvjp(in_place)
    found = suspect(lambda x: (y := x * 1.0) * 3 + double(y) + double(y), [1.0, 2.0])
    assert (found.kind, found.op) == ("rule", "double")
    assert "writes into an array that is not its own" in found.text


def test_a_kink_elsewhere_does_not_excuse_what_is_wrong_here(monkeypatch):
    assert suspect(lambda x: F.relu(x) ** 2 + x * x.detach(), [0.0, 2.0]).kind == "bypass"
    changed(monkeypatch, ops.relu, 1.01)
    assert suspect(F.relu, np.r_[np.zeros(300), 1.0, 2.0]).kind == "rule"
    assert suspect(lambda x: F.relu(x) ** 2, np.r_[np.zeros(300), 1.0, 2.0]).kind == "rule"


def test_one_tensor_in_two_places_is_moved_in_both(monkeypatch):
    changed(monkeypatch, ops.maximum, 1.01)
    found = suspect(lambda x: ops.maximum(x, x), [1.0, 2.0])
    assert (found.kind, found.op) == ("rule", "maximum")
    assert "arguments 0 and 1, which are one tensor" in found.text


def test_an_op_that_cannot_be_judged_alone_does_not_end_the_search():
    @ta.primitive
    def drop(x, *, rng):
        return x * (rng.random(x.shape) > 0.5) * 2
    drop.defvjp(lambda g, out, x, *, rng: g * (out != 0) * 2)

    of_probabilities.defvjp(lambda g, out, p: g)
    assert suspect(lambda x: bad(drop(x, rng=np.random.default_rng(0))), np.ones(8)).op == "bad"
    assert suspect(lambda x: bad(of_probabilities(x.softmax())), [1.0, 2.0]).op == "bad"
    with np.errstate(all="raise"):
        assert suspect(lambda x: bad(x.relu()), [0.0, 1.0]).op == "bad"


def test_the_line_that_called_the_culprit_is_told():
    def model(x):
        hidden = x.tanh()
        return bad(hidden).sum()            # the line to name
    text = suspect(model, [1.0, 2.0]).text
    assert "test_suspects.py:" in text
    assert text.endswith("in model: return bad(hidden).sum()            # the line to name")


def test_a_function_that_computes_in_less_than_double_precision_is_refused():
    for fn in (lambda x: (x.astype(np.float32) * 2).sum(), lambda x: x.astype(np.float16).astype(np.float64)):
        with pytest.raises(TypeError, match=r"`astype` computes in float(32|16) inside fn"):
            gradcheck(fn, [1.0, 2.0])


@pytest.mark.parametrize("make", [
    lambda: (lambda x: x / (1 + np.abs(x)), lambda g, out, x: g / (1 + np.abs(x))),
    lambda: (lambda x: x - np.real(x).max(), lambda g, out, x: g),
    lambda: (lambda x: np.sqrt(np.vdot(x, x)) + 0 * x.sum(), lambda g, out, x: 0 * g * x)])
def test_the_complex_step_does_not_pass_what_is_not_analytic(make):
    forward, rule = make()

    @ta.primitive
    def custom(x):
        return forward(x)
    custom.defvjp(rule)
    with pytest.raises((TypeError, GradcheckError)):
        gradcheck(custom, [1.0, -2.0], method="complex")


def test_the_complex_step_does_not_pass_what_bypasses_the_graph():
    def buffered(x):
        buffer = np.zeros(2)
        buffer[:] = x.numpy()
        return x * buffer
    for fn in (buffered, lambda x: x * float(x.sum()), lambda x: x * x.numpy().real):
        with pytest.raises((TypeError, GradcheckError)):
            gradcheck(fn, [1.0, 2.0] if fn is buffered else [1.5], method="complex")


def test_the_search_is_quick_and_small_also_where_arrays_are_large():
    d = np.random.default_rng(0).normal(size=200_000)
    assert suspect(lambda s: bad((s * d).sum()), 1.3).op == "bad"
    assert suspect(lambda x: bad((x * 1.5).sum()), d[:20_000], method="projected").op == "bad"


def test_steps_tolerances_and_inputs_that_make_no_sense_are_refused():
    for options, text in (({"eps": "1e-6"}, "eps='1e-6' must be a number"), ({"order": None}, "order=None must be"),
                          ({"eps": 1e-17}, "lost in the rounding"), ({"order": np.inf}, "order=inf")):
        with pytest.raises((TypeError, ValueError), match=text):
            gradcheck(ops.exp, 1.0, **options)
    assert gradcheck(ops.exp, 1.0, order=2.0).order == 2
    with pytest.raises(TypeError, match=r"several inputs are given as a tuple"):
        gradcheck(lambda x, y: x + y.sum(), [np.ones(2), np.ones(3)])
    with pytest.raises(ValueError, match=r"input 0 at \(1,\) is nan, from where there is no step"):
        gradcheck(ops.exp, [1.0, np.nan])
    with pytest.raises(TypeError, match="output 1 of fn is int64, which has no derivative"):
        gradcheck(lambda x: (x * 2, Tensor([1])), [1.0])


def test_programs_differ():
    x = Tensor(np.ones((3, 4)), requires_grad=True)
    programs = {tuple(node.op.name for node in topological_order(program(seed)[0](x))) for seed in range(30)}
    assert len(programs) > 25


# ------------------------------------------------------------------------------- what outsiders found, and now holds
@ta.primitive
def sin(x):
    return np.sin(x)
sin.defvjp(lambda g, out, x: g * np.cos(x))


def test_an_op_that_loses_digits_is_not_accused_for_an_error_elsewhere():
    rng = np.random.default_rng(0)
    for method in ("central", "complex"):
        found = suspect(lambda q: bad(ta.attention(q * 5, q * 5, q)[0]), rng.normal(size=(4, 8)), method=method)
        assert (found.kind, found.op) == ("rule", "bad")
    for seed in range(20):                  # and where nothing is wrong but the digits
        x = np.random.default_rng(seed).normal(size=8) * 10
        found = suspect_if_any(ta.softmax, x, method="complex", atol=0, rtol=1e-12)
        assert found is None or found.kind != "rule"


@pytest.mark.parametrize(("fn", "point"), [
    (lambda x: 1 / x, 1e-14), (lambda x: 1 / x, 3e-13), (lambda x: x ** -2, 1e-13), (sin, 1e12),
                                           (lambda x: x.log(), 1e-15),
    (lambda x: sin(x * 1e10), 1e3), (lambda x: x.sqrt(), 1e-16), (lambda x: (x + 1e12) - 1e12, 0.3),
    (lambda x: (x + 1e10) - 1e10, 0.3), (lambda x: x * sin(1 / x), -0.0049)])
def test_at_points_of_all_sizes_no_op_is_accused(fn, point):
    with np.errstate(all="ignore"):
        found = suspect(fn, point, atol=1e-12, rtol=1e-9)
    assert found.kind in ("step", "noise", "unknown"), found.text


@pytest.mark.parametrize(("fn", "point", "op"), [
    (lambda x: (x * x).sum().sqrt(), [0.0, 0.0], "sqrt"), (lambda x: x.abs().sqrt(), [0.0], "sqrt"),
    (lambda x: ops.where(x > 0, x.sqrt(), 0.0 * x), [0.0, 1.0], "sqrt"),
    (lambda x: ops.where(x > 0, x * x.log(), 0.0 * x), [0.0, 1.0], "log"),
    (lambda x: x.exp() / x.exp().sum(), [0.0, 1000.0], "exp")])
def test_where_a_gradient_is_nan_the_op_that_made_it_is_named_with_the_remedy(fn, point, op):
    with np.errstate(all="ignore"):
        found = suspect(fn, point)
    assert (found.kind, found.op) == ("domain", op)
    assert "make the input safe: where(" in found.text


def test_an_infinite_derivative_is_not_the_rules_fault():
    @ta.primitive
    def root(x):
        return 0.1 * np.cbrt(x)
    root.defvjp(lambda g, out, x: g * 0.1 / (3 * np.cbrt(x) ** 2))
    with np.errstate(all="ignore"):
        assert suspect(root, [0.0, 1.0]).kind == "domain"


def test_an_argument_that_is_not_under_check_is_not_judged():
    @ta.primitive
    def two(x, w):
        return x * w
    w = Tensor([2.0, 3.0], requires_grad=True)
    for rule in (lambda g, out, x, w: g * x * 9, None):
        two.defvjp(lambda g, out, x, w: g * w, rule)
        assert suspect(lambda x: bad(two(x, w)), [1.0, 2.0]).op == "bad"


def test_a_harmless_rule_in_place_does_not_take_the_blame():
    @ta.primitive
    def double(x):
        return x * 2

    def in_place(g, out, x):
        g *= 2
        return g
    double.defvjp(in_place)
    assert suspect(lambda x: bad(double(x)), [1.0, 2.0]).op == "bad"


def test_ops_that_could_not_be_judged_are_named_where_nobody_was_found():
    of_probabilities.defvjp(lambda g, out, p: g * 3)
    text = suspect(lambda x: of_probabilities(x.softmax()), [1.0, 2.0]).text
    assert "of `of_probabilities`, which could not be computed alone, nothing is known" in text


def test_the_search_survives_a_function_that_refuses_to_be_computed_elsewhere():
    def guarded(x):
        if np.min(x.numpy()) <= 0:
            raise ValueError("x must be positive")
        return x * x.detach()
    assert suspect(guarded, [0.5, 2.0]).kind == "bypass"
    table = np.arange(20.0)
    assert suspect(lambda x: x * table[int(x.numpy().real)] + x * x.detach(), 3.5).kind == "bypass"
    with ta.detect_anomaly():
        assert suspect(lambda x: x.exp() * x.detach(), [10.0]).kind == "bypass"


def test_nothing_over_nothing_is_reported_and_not_divided():
    with np.errstate(all="ignore"), pytest.raises(GradcheckError, match="relative nan"):
        gradcheck(lambda x: (x.log() * 0.0).sum(), [1e-7])


def test_a_nan_is_the_largest_error_of_all_inputs_and_orders():
    with np.errstate(all="ignore"), pytest.raises(GradcheckError) as caught:
        gradcheck(lambda x, y: x * 3 + y.sqrt(), ([1.0], [0.0]))
    report = caught.value.report
    assert np.isnan(report.max_abs_error)
    assert np.isnan(report.inputs[1].max_rel_error)
    with np.errstate(all="ignore"), pytest.raises(GradcheckError) as caught:
        gradcheck(lambda x: x.abs() ** 1.5, [0.0, 1.0], order=2, atol=1e-2)
    assert caught.value.report.order == 2
    assert not np.isfinite(caught.value.report.max_abs_error)


def test_two_complex_checks_at_once_leave_the_warnings_of_the_process_alone():
    import threading
    import warnings
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [gradcheck(ta.softmax, [1.0, 2.0], method="complex") for _ in range(30)])
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="anybody"):
        warnings.warn("is anybody there?", UserWarning, stacklevel=1)


def test_a_check_that_is_interrupted_leaves_nothing_behind():
    before = np.geterr()
    for method in ("central", "complex", "projected"):
        for n in (1, 4, 9):
            calls = []

            def fn(x, calls=calls, n=n):
                calls.append(1)
                if len(calls) == n:
                    raise KeyboardInterrupt
                return bad(x).sum()
            with pytest.raises((KeyboardInterrupt, GradcheckError)):
                gradcheck(fn, [1.0, 2.0], method=method)
    assert np.geterr() == before
    assert (Tensor(1.0, requires_grad=True) * 2).requires_grad
    with pytest.raises(RuntimeWarning):
        Tensor([-1.0]).log()


def test_the_whole_search_is_quick_for_a_chain_of_middling_arrays():
    def chain(x):
        for _ in range(20):
            x = x.tanh()
        return bad(x)
    assert suspect(chain, np.random.default_rng(0).normal(size=280)).op == "bad"


def test_directions_of_any_size_can_be_taken():
    assert gradcheck(lambda x: x * 2, [1e200, 1.0], method="projected")
