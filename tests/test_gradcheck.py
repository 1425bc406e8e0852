"""gradcheck: it passes what is right, catches every planted error, and refuses what it cannot judge."""

import pickle

import numpy as np
import pytest
from test_ops import CASES, IDS

import tinygrad_attn as ta
from tinygrad_attn import GradcheckError, Tensor, gradcheck, ops
from tinygrad_attn import functional as F


def test_an_error_that_only_the_second_order_shows_is_caught_at_order_2():
    @ta.primitive
    def square(x):
        return x * x
    square.defvjp(lambda g, out, x: g * 2 * (x.detach() if isinstance(x, Tensor) else x))
    gradcheck(square, [1.0, 2.0])
    with pytest.raises(GradcheckError):
        gradcheck(square, [1.0, 2.0], order=2)


def test_the_error_names_input_index_and_numbers():
    @ta.primitive
    def half_right(x, y):
        return x * y
    half_right.defvjp(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x * np.array([[1.0, 1.0], [1.0, 2.0]]))
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0]], name="x"), Tensor(np.ones((2, 2)), name="w")
    with pytest.raises(GradcheckError, match=r"w at \[1, 1\], output element 3: analytic 8, numeric 4\.?0*; "
                                             r"absolute error 4, relative 0\.5 \(allowed: atol=1e-05"):
        gradcheck(half_right, (x, y))
    with pytest.raises(GradcheckError, match=r"input 1 at \[1, 1\]"):
        gradcheck(half_right, (x.numpy(), y.numpy()))


def test_the_report_is_true_and_readable():
    report = gradcheck(lambda x, y: x @ y, (np.ones((2, 3)), Tensor(np.ones(3), name="y")), order=2)
    assert report
    assert [entry.name for entry in report.inputs] == ["input 0", "y"]
    assert 0 <= report.max_abs_error < 1e-8
    assert "gradcheck passed, order 2" in str(report)
    assert "(2, 3)" in str(report)


def failed(fn, inputs, **options):
    with np.errstate(all="ignore"), pytest.raises(GradcheckError) as caught:
        gradcheck(fn, inputs, **options)
    report = caught.value.report
    assert not report
    assert report.suspect.text in str(caught.value)
    assert report.suspect.text in str(report)
    assert "FAILED" in str(report)
    return report


def sharp(x):
    return 1 / (x * x + 1e-6)


@ta.primitive
def double(x):
    return 2 * x
double.defvjp(lambda g, out, x: g * (2.0 if np.all(x != 5.0) else 3.0))


@pytest.mark.parametrize(("kind", "op", "fn", "point", "options"), [
    ("kink", "relu", F.relu, 0.0, {}),
    ("kink", "max", lambda x: (x * 2).max().exp(), [1.0, 1.0, 1.0], {}),
    ("kink", "clip", lambda x: x.clip(0.0, 1.0), [0.5, 1.0], {}),
    ("kink", "abs", lambda x: (x - 1).abs(), 1 + 1e-8, {}),
    ("kink", "maximum", lambda x: ops.maximum(x, 3 * x - 4), [1.0, 2.5 - 0.5 + 1e-9], {}),
    ("kink", "relu", lambda x: x.relu().sum(), [0.0, 1.0], {"method": "projected"}),
    ("domain", "sqrt", lambda x: x.sqrt(), [0.0, 1.0], {}),
    ("domain", "log", lambda x: (x - 2).log(), [1.0], {}),
    ("domain", "divide", lambda x: 1 / x, [0.0], {}),
    ("jump", None, lambda x: ta.where(x > 0, x + 1, x), 0.0, {}),
    ("jump", None, lambda x: x if x > 0 else 3 * x, 0.0, {}),
    ("step", None, sharp, 2e-4, {"eps": 1e-4}),
    ("step", None, lambda x: x.log(), 1e-5, {}),
    ("bypass", None, lambda x: x * x.detach(), [1.0, 2.0], {}),
    ("bypass", None, lambda x: x * ta.no_grad()(lambda: x * x)(), [1.0, 2.0], {}),
    ("bypass", None, lambda x: x + ta.grad((x ** 3).sum(), x), [1.0, 2.0], {}),
    ("noise", None, lambda x: x + 1e11, 1.0, {}),
    ("noise", None, lambda x: x * 2 + 1e9, [1.0, 2.0], {}),
    ("step", None, lambda x: 1 / x, 1e-7, {}),
    ("step", None, lambda x: x.log(), 5e-7, {}),
    ("step", None, ops.sigmoid, [1.0, 0.3, 2.0], {"eps": 1e3}),
    ("step", None, lambda x: ops.exp(-(x / 1e-8) ** 2), 1e-8, {}),
    ("rule", "double", lambda x: (double(x) * 3).exp(), [0.1, 5.0], {}),
])
def test_the_cause_of_a_mismatch_is_told(kind, op, fn, point, options):
    suspect = failed(fn, np.real(point), **options).suspect
    assert (suspect.kind, suspect.op) == (kind, op), suspect.text
    assert op is None or f"`{op}`, argument {suspect.argument}, at (" in suspect.text


def test_a_rule_that_is_wrong_is_told_from_a_kink_elsewhere_in_the_same_array():
    half = ops.relu.vjps[0]
    try:
        ops.relu.vjps = [lambda g, out, x: half(g, out, x) * np.where(x == 2, 0.9, 1.0)]
        suspect = failed(F.relu, [0.0, 1.0, 2.0]).suspect
    finally:
        ops.relu.vjps = [half]
    assert (suspect.kind, suspect.op, suspect.at) == ("rule", "relu", (2,))


def test_the_first_wrong_op_in_the_order_of_the_computation_is_named(monkeypatch):
    (tanh,), (softmax,) = ops.tanh.vjps, ops.softmax.vjps
    w, x = np.random.default_rng(0).normal(size=(3, 4)), np.random.default_rng(1).normal(size=(2, 3))
    fn = lambda x: ops.log(ops.softmax(ops.tanh(x * 0.5) @ w + x.sum())).sum(axis=0)
    monkeypatch.setattr(ops.softmax, "vjps", [lambda g, out, x, **params: softmax(g, out, x, **params) * 1.5])
    suspect = failed(lambda x: fn(x) * np.arange(4.0), x).suspect
    assert (suspect.op, suspect.argument) == ("softmax", 0)
    monkeypatch.setattr(ops.tanh, "vjps", [lambda g, out, x: tanh(g, out, x) * 0.5])
    suspect = failed(lambda x: fn(x) * np.arange(4.0), x).suspect
    assert (suspect.op, suspect.argument) == ("tanh", 0)
    assert suspect.analytic == pytest.approx(0.5 * suspect.numeric, rel=1e-6)
    assert suspect.numeric == pytest.approx(1 - np.tanh(0.5 * x[suspect.at]) ** 2, rel=1e-6)


def test_the_culprit_is_found_in_attention_and_in_large_arrays(monkeypatch):
    right = ops.matmul.vjps
    monkeypatch.setattr(ops.matmul, "vjps", [right[0], lambda g, out, x, y: right[1](g, out, x, y) * 1.01])
    rng = np.random.default_rng(0)
    suspect = failed(lambda *x: ta.attention(*x)[0], tuple(rng.normal(size=(3, 4, 2)))).suspect
    assert (suspect.op, suspect.argument) == ("matmul", 1)
    suspect = failed(lambda x: (ops.exp(np.ones((40, 60)) @ x * 0.01)).mean(), rng.normal(size=(60, 50)),
                     method="projected", rtol=1e-4).suspect
    assert (suspect.op, suspect.argument) == ("matmul", 1)


def test_nan_for_a_gradient_is_the_rules_fault_where_the_op_is_fine():
    @ta.primitive
    def cube(x):
        return x ** 3
    cube.defvjp(lambda g, out, x: g * 3 * out / x)
    suspect = failed(cube, [0.0, 1.0]).suspect
    assert (suspect.kind, suspect.op, suspect.at) == ("rule", "cube", (0,))


def test_nan_never_passes_and_equal_infinities_do():
    with np.errstate(invalid="ignore"), pytest.raises(GradcheckError):
        gradcheck(lambda x: (x - 2).sqrt(), [1.0])
    with np.errstate(all="ignore"), pytest.raises(GradcheckError, match="analytic inf"):
        gradcheck(lambda x: x.sqrt(), [0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex128])
def test_low_precision_is_refused(dtype):
    with pytest.raises(TypeError, match=r"gradcheck: input 0 is (float.*\.astype\(np\.float64\)|complex128; complex)"):
        gradcheck(lambda x: x * x, np.array(100, dtype))


def test_a_function_that_is_not_deterministic_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(RuntimeError, match="not deterministic"):
        gradcheck(lambda x: F.dropout(x, 0.5, rng=rng), np.ones(20))
    gradcheck(lambda x: F.dropout(x, 0.5, rng=0), np.ones(20))


@pytest.mark.parametrize(("fn", "inputs", "error", "text"), [
    (lambda x: x.detach() * 2, 1.0, ta.GraphError, "no output depends on input 0"),
    (lambda x: Tensor(x.numpy() * 2), 1.0, ta.GraphError, "no output depends on input 0"),
    (lambda x, y: x * 2, (1.0, 2.0), ta.GraphError, "no output depends on input 1"),
    (ta.no_grad()(lambda x: x * 2), 1.0, None, None),
    (lambda x: x * 2, np.arange(3), ValueError, "nothing to check"),
    (lambda x: x * 2, np.zeros((0, 3)), ValueError, "nothing to check"),
    (lambda x: x[:0], [1.0], ValueError, "nothing to check"),
    (lambda: 2, (), ValueError, "nothing to check"),
    (lambda x: x.numpy() * 2, [1.0], TypeError, "returned ndarray"),
    (lambda x: x * 2, "abc", TypeError, "not a number"),
])
def test_a_check_that_could_not_fail_is_refused(fn, inputs, error, text):
    with pytest.raises(error or ta.GraphError, match=text or "no_grad"):
        gradcheck(fn, inputs)


def test_order_below_one_is_refused():
    with pytest.raises(ValueError, match="order=0"):
        gradcheck(ops.exp, 1.0, order=0)


def test_inputs_of_any_memory_layout_are_checked_and_untouched():
    x = np.arange(1.0, 7.0).reshape(2, 3)
    overlapping = np.lib.stride_tricks.as_strided(np.array([1.5]), shape=(2,), strides=(0,))
    for a in (x.T, x[:, ::-2], np.asfortranarray(x), np.broadcast_to(x, (2, 2, 3)), overlapping):
        before = a.copy()
        gradcheck(lambda t: (t * t).sum(), a)
        np.testing.assert_array_equal(a, before)
    t = Tensor(x, requires_grad=True)
    gradcheck(lambda t: t * t, t)
    assert (t.grad, t.node) == (None, None)


def test_integer_and_boolean_inputs_are_constants_and_several_outputs_are_all_checked():
    report = gradcheck(lambda x, i, m: (x[i], x.softmax(where=np.asarray(m))),
                       (np.arange(3.0), np.array([0, 2, 2]), np.array([True, True, False])), order=2)
    assert [entry.name for entry in report.inputs] == ["input 0"]


def test_third_order():
    gradcheck(lambda x: x ** 4, [0.5, -1.5], order=3)
    gradcheck(ta.softmax, [0.5, -1.5, 0.1], order=3)


@pytest.mark.parametrize("options", [dict(atol=np.nan), dict(rtol=np.nan), dict(eps=0.0), dict(eps=-1e-6),
                                     dict(order=1.5), dict(rtol=np.inf), dict(atol=-1.0)])
def test_tolerances_and_steps_that_pass_anything_are_refused(options):
    with pytest.raises(ValueError, match="gradcheck: "):
        gradcheck(ops.exp, 1.0, **options)


def test_the_grad_mode_around_a_check_does_not_matter():
    with ta.no_grad():
        assert gradcheck(ops.exp, [0.5, 1.0], order=2)


# ------------------------------------------------------------------------------------------------------ the methods
NOT_ANALYTIC = {"abs", "astype", "erf", "sigmoid", "softplus", "var"}   # as NumPy computes them, of complex numbers


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("op", "call", "inputs"), [case[:3] for case in CASES], ids=IDS)
def test_the_complex_step_is_exact_to_rounding_or_says_which_op_is_not_analytic(op, call, inputs, order):
    if op.name in NOT_ANALYTIC:
        named = "imaginary part" if op is ops.astype else op.name           # there NumPy itself warns
        with pytest.raises(TypeError, match=rf'{named}.*ops that are analytic.*"central"'):
            gradcheck(call, inputs, method="complex")
    else:
        report = gradcheck(call, inputs, method="complex", order=order, atol=1e-13, rtol=1e-12)
        assert max(entry.max_rel_error for entry in report.inputs) < 1e-13


def test_the_complex_step_sees_what_central_differences_cannot():
    tiny = lambda x: x * 1e-7 * 1e-7
    @ta.primitive
    def off(x):
        return x * 1e-14
    off.defvjp(lambda g, out, x: g * 1.001e-14)
    assert gradcheck(tiny, 1.0, method="complex", atol=0, rtol=1e-12)
    assert gradcheck(off, 1.0)
    report = failed(off, 1.0, method="complex", atol=0, rtol=1e-5)
    assert report.suspect.op == "off"
    assert report.inputs[0].max_rel_error == pytest.approx(1e-3, rel=2e-3)


def test_projection_takes_six_evaluations_an_input_however_many_elements_it_has():
    for n in (3, 30_000):
        calls = []

        def fn(x, y, calls=calls):
            calls.append(1)
            return (x * y).tanh()
        report = gradcheck(fn, (np.linspace(-1, 1, n), np.linspace(1, 2, n)), method="projected")
        assert len(calls) == 2 + 2 * 6
        assert [entry.at for entry in report.inputs] == [None, None]
    assert "|uᵀ E v| exceeds atol + rtol |uᵀ J v|" in str(report)
    with pytest.raises(ValueError, match="compares no elements"):
        report.plot()


def test_what_projection_says_of_itself_is_so():
    """An error E is seen if, and only if, |uᵀ E v| exceeds the tolerance for a drawn pair: both sides of it."""
    n, k = 1000, 123
    rng = np.random.default_rng(7)          # the pairs that gradcheck will draw from the same seed
    pairs = [[rng.uniform(0.5, 1.5, n) * rng.choice([-1.0, 1.0], n) for _ in "uv"] for _ in range(3)]
    largest = max(abs(u[k] * v[k]) for u, v in pairs)
    numeric = [abs(u @ v) for u, v in pairs]

    def identity(error):
        @ta.primitive
        def copy(x):
            return x.copy()
        copy.defvjp(lambda g, out, x: g + np.where(np.arange(n) == k, error * g, 0))
        return copy
    atol = 1e-3
    assert gradcheck(identity(0.9 * atol / largest), np.zeros(n), method="projected", rng=7, atol=atol, rtol=0)
    report = failed(identity(1.1 * atol / largest), np.zeros(n), method="projected", rng=7, atol=atol, rtol=0)
    suspect = report.suspect
    assert (suspect.op, suspect.at) == ("copy", (k,))
    assert min(numeric) > 0


def test_an_error_is_traced_to_its_element_by_halving_the_direction():
    @ta.primitive
    def copy(x):
        return x.copy()
    copy.defvjp(lambda g, out, x: g * np.where(np.arange(5000).reshape(x.shape) == 4321, 2.0, 1.0))
    with pytest.raises(GradcheckError, match=r"Halving the direction leads to \[43, 21\].*`copy`, argument 0, at "
                                             r"\(43, 21\): "):
        gradcheck(copy, np.zeros((50, 100)), method="projected")


# ------------------------------------------------------------------------------------------------------ the report
def test_the_report_has_the_error_of_each_element_and_the_largest_of_all_orders():
    @ta.primitive
    def off(x):
        return x * x
    off.defvjp(lambda g, out, x: g * 2 * x * (1 + 1e-6 * (x > 1.5)))
    entry = gradcheck(off, [[1.0, 2.0]]).inputs[0]
    assert entry.errors.shape == entry.shape == (1, 2)
    assert entry.errors[0, 1] == entry.max_abs_error == pytest.approx(4e-6, rel=1e-3)
    assert entry.errors[0, 0] < 1e-8
    assert entry.at == (0, 1)
    assert gradcheck(off, [[1.0, 2.0]], order=2).inputs[0].max_abs_error >= entry.max_abs_error
    assert gradcheck(off, [[1.0, 2.0]]) == gradcheck(off, [[1.0, 2.0]])


def test_the_report_of_a_failure_has_all_inputs_and_survives_pickling():
    report = failed(lambda x, y: double(x) * y, (np.array([5.0, 1.0]), np.ones(2)))
    assert [entry.name for entry in report.inputs] == ["input 0", "input 1"]
    assert report.inputs[0].max_abs_error == pytest.approx(1)
    assert report.inputs[1].max_abs_error < 1e-8
    copy = pickle.loads(pickle.dumps(GradcheckError("text", report)))
    assert str(copy) == "text"
    assert copy.report.suspect == report.suspect


@pytest.mark.parametrize("inputs", [(np.ones(3), np.full((2, 2, 3), 0.5)), 1.0])
def test_the_picture_has_a_pixel_for_each_element(inputs):
    report = gradcheck(lambda *xs: sum((x.exp().sum() for x in xs), Tensor(0.0)), inputs)
    picture = report.plot()
    images = [ax.images[0].get_array() for ax in picture.axes if ax.images]
    assert [image.size for image in images] == [max(1, int(np.prod(e.shape))) for e in report.inputs]
    np.testing.assert_array_equal(images[0].ravel(), np.clip(report.inputs[0].errors.ravel(), 1e-17, 1e2))
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_a_function_that_changes_its_shape_or_returns_no_tensor_is_refused():
    with pytest.raises(RuntimeError, match=r"returned shapes \[\(1,\)\] and later \[\(0,\)\]"):
        gradcheck(lambda x: x[np.asarray(x.data) >= 1], [1.0])
    with pytest.raises(TypeError, match="returned NoneType"):
        gradcheck(lambda x: None, [1.0])
    with pytest.raises(TypeError, match="returned Tensor, float"):
        gradcheck(lambda x: (x, 1.0), [1.0])
    with pytest.raises(ValueError, match="method='exact'; it is one of central, complex, projected"):
        gradcheck(ops.exp, 1.0, method="exact")


@pytest.mark.parametrize("method", ["central", "complex", "projected"])
def test_inputs_are_untouched_bit_for_bit_also_by_a_check_that_fails(method):
    x = np.array([1.0, -0.0, 1e-300, 5.0])
    x.setflags(write=True)
    before = x.tobytes()
    gradcheck(lambda x: x * x, x, method=method)
    with pytest.raises(GradcheckError):
        gradcheck(double, x, method=method)
    assert x.tobytes() == before
    assert x.flags.writeable
