"""gradcheck: it passes what is right, catches every planted error, and refuses what it cannot judge."""

import numpy as np
import pytest
from test_ops import CASES, PRIMITIVES

import tinygrad_attn as ta
from tinygrad_attn import GradcheckError, Tensor, gradcheck, ops
from tinygrad_attn import functional as F
from tinygrad_attn.engine import no_derivative


def scaled(g):
    return g * 1.01


def flipped(g):
    return -g


def one_element_lost(g):
    kept = np.ones(g.shape)
    kept[np.unravel_index(np.argmax(np.abs(g.numpy() if isinstance(g, Tensor) else g)), g.shape)] = 0
    return g * kept


def planted(op, mutate, i):
    """The vjps of `op`, with the i-th one wrong."""
    if op.joint:
        right = op.joint

        def joint(*args, **params):
            return {k: mutate(share) if k == i else share for k, share in right(*args, **params).items()}
        return (), joint
    right = op.vjps[i]
    wrong = lambda *args, **params: mutate(right(*args, **params))
    return (*op.vjps[:i], wrong, *op.vjps[i + 1:]), None


MUTANTS = [(op, i, mutate) for op in sorted(PRIMITIVES, key=lambda op: op.name)
           for i in ([0, 1] if op.joint else [i for i, vjp in enumerate(op.vjps) if vjp is not no_derivative])
           for mutate in (scaled, flipped, one_element_lost)]


@pytest.mark.parametrize(("op", "i", "mutate"), MUTANTS, ids=[f"{op.name}-{i}-{m.__name__}" for op, i, m in MUTANTS])
def test_a_planted_error_in_the_rule_of_any_primitive_is_caught(op, i, mutate, monkeypatch):
    cases = [(call, inputs) for of, call, inputs, _ in CASES if of is op]
    vjps, joint = planted(op, mutate, i)
    for call, inputs in cases:
        gradcheck(call, inputs)
    monkeypatch.setattr(op, "vjps", vjps)
    monkeypatch.setattr(op, "joint", joint)
    caught = 0
    for call, inputs in cases:
        try:
            gradcheck(call, inputs)
        except GradcheckError:
            caught += 1
    assert caught


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


@pytest.mark.parametrize(("fn", "point"), [
    (F.relu, 0.0), (lambda x: x.max(), [1.0, 1.0, 1.0]), (lambda x: x.clip(0.0, 1.0), 1.0), (ops.abs, 1e-8),
    (lambda x: ta.where(x > 0, x + 1, x), 0.0)])
def test_a_kink_a_tie_or_a_jump_is_reported_as_one_possibility(fn, point):
    with pytest.raises(GradcheckError, match="kink, a tie or a jump"):
        gradcheck(fn, point)


def test_nan_never_passes_and_equal_infinities_do():
    with np.errstate(invalid="ignore"), pytest.raises(GradcheckError):
        gradcheck(lambda x: (x - 2).sqrt(), [1.0])
    with np.errstate(all="ignore"), pytest.raises(GradcheckError, match="analytic inf"):
        gradcheck(lambda x: x.sqrt(), [0.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex128])
def test_low_precision_is_refused(dtype):
    with pytest.raises(TypeError, match=r"gradcheck: input 0 is (float|complex).*\.astype\(np\.float64\)"):
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
