"""detect_anomaly stops at the first op that makes NaN or infinity, and says where it was called."""

import threading

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import AnomalyError, Tensor, detect_anomaly, ops


def leaf(data):
    return Tensor(data, requires_grad=True)


def test_forward_names_the_op_the_shapes_and_the_line():
    x = leaf([[1.0, -1.0, 2.0]])
    with detect_anomaly(), pytest.raises(AnomalyError) as caught:
        x.log().exp()
    text = str(caught.value)
    assert text.startswith("log((1, 3)), forward: 1 of 3 elements of the output became NaN, at ")
    assert "test_anomaly.py:" in text
    assert text.endswith("in test_forward_names_the_op_the_shapes_and_the_line: x.log().exp()")


def test_backward_names_the_op_and_the_line_that_called_it_not_that_of_the_walk():
    x = leaf([0.0, 4.0])
    with detect_anomaly():
        root = x.sqrt()                     # the line to name
        loss = (root * 3).sum()
        with pytest.raises(AnomalyError, match=(r"^sqrt\(\(2,\)\), backward: 1 of 2 elements of the gradient of "
                                                r"argument 0 became inf; the op was called at .*: root = x.sqrt")):
            loss.backward()
    assert x.grad is None


def test_the_first_op_is_named_not_one_that_passes_it_on():
    def unstable_log_softmax(x):
        e = x.exp()
        return (e / e.sum()).log()
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"^exp\(\(2,\)\), forward: 1 of 2 .* inf, .*: e = x.exp"):
        unstable_log_softmax(leaf([1000.0, 1.0]))


def test_the_gradient_of_an_op_in_library_code_is_told_at_the_line_that_called_the_library():
    x = leaf(np.zeros((2, 3)))
    with detect_anomaly():
        y = (x * x).sum(axis=-1).sqrt()
        with pytest.raises(AnomalyError, match=r"^sqrt.*backward"):
            y.sum().backward()
        q = leaf(np.full((2, 3), 1e200))
        with pytest.raises(AnomalyError, match=r"^matmul.*forward.*: ta\.attention\(q, q, q\)"):
            ta.attention(q, q, q)


def test_nan_is_reported_also_when_it_came_in_and_says_so():
    x = leaf([np.nan, 1.0])
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"^multiply.*\(argument 0 already held NaN"):
        x * 2


def test_infinities_that_were_given_may_be_passed_on_but_may_not_become_nan():
    scores, mask = leaf(np.zeros((2, 2))), np.array([[0.0, -np.inf], [0.0, 0.0]])
    with detect_anomaly():
        weights = (scores + mask).softmax()
        weights.sum().backward()
        with pytest.raises(AnomalyError, match=r"^subtract.*became NaN"):
            (scores + mask) - mask
    np.testing.assert_array_equal(scores.grad, 0)


def test_a_sum_of_finite_gradients_that_overflows_is_found():
    x = leaf([1.0])
    with detect_anomaly():
        both = ta.concatenate([x * 1.5e308, x * 1.5e308])
        with pytest.raises(AnomalyError, match=r"the sum of the gradients of argument 0, .* became inf"):
            both.backward(np.ones(2))


def test_with_create_graph_the_op_of_the_forward_pass_is_named_and_not_one_inside_its_rule():
    x = leaf([0.0, 4.0])
    with detect_anomaly():
        y = x.sqrt().sum()
        with pytest.raises(AnomalyError, match=r"^sqrt\(\(2,\)\), backward"):
            ta.grad(y, x, create_graph=True)
        slope = ta.grad((x * x).sum(), x, create_graph=True)
        ta.grad(slope.sum(), x)


def test_a_rule_may_compute_infinities_that_it_does_not_send_back():
    x = leaf([0.0, 2.0])
    with detect_anomaly():
        ops.power(x, leaf([0.0, 2.0])).sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 4])


def test_a_forward_pass_outside_is_told_from_one_inside():
    y = leaf([0.0]).sqrt()
    with detect_anomaly(), pytest.raises(AnomalyError, match="unknown line: the forward pass was outside"):
        y.backward()


def test_it_works_with_arrays_under_no_grad_as_a_decorator_and_nested():
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"^softmax"):
        ta.softmax(np.array([np.nan]))
    with detect_anomaly(), ta.no_grad(), pytest.raises(AnomalyError, match=r"^log"):
        leaf([-1.0]).log()

    @detect_anomaly()
    def loss(x):
        with detect_anomaly():
            pass
        return x.log()
    for _ in range(2):
        with pytest.raises(AnomalyError, match=r"return x\.log\(\)"):
            loss(leaf([-1.0]))


def test_afterwards_and_in_other_threads_all_is_as_before():
    before = np.geterr()
    with pytest.raises(AnomalyError), detect_anomaly():
        leaf([-1.0]).log()
    assert np.geterr() == before
    found = []

    def other():
        with np.errstate(all="ignore"):
            found.append(leaf([-1.0]).log())
    with detect_anomaly():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert np.isnan(found[0].numpy()).all()
    with pytest.raises(RuntimeWarning):     # NumPy's own, an error in these tests
        leaf([-1.0]).log()


def test_integers_booleans_and_empty_arrays_are_no_anomalies():
    with detect_anomaly():
        x = leaf([1.0, 2.0])
        ta.where(x > 1, x, x[:0].sum()).sum().backward()
        x[np.array([1, 0])].sum()
    assert issubclass(AnomalyError, FloatingPointError)


def test_the_line_is_the_users_also_in_derivatives_of_functions():
    with detect_anomaly():
        for broken in (lambda: ta.hessian(lambda x: (x ** 1.5).sum(), [0.0]),
                       lambda: ta.jvp(lambda x: x * 1e200, leaf([1e200]), [1.0])):
            with pytest.raises(AnomalyError, match=r"test_anomaly\.py:\d+, in <lambda>"):
                broken()


def test_what_a_rule_of_ones_own_computes_inside_is_judged_by_what_it_sends_back():
    @ta.primitive
    def safe_inverse(x):
        return np.where(x == 0, 0, 1 / np.where(x == 0, 1, x))
    safe_inverse.defvjp(lambda g, out, x: ops.where(x == 0, 0.0, -g / (x * x)))
    x = leaf([0.0, 2.0])
    with detect_anomaly():
        for create_graph in (False, True):
            slope = ta.grad(safe_inverse(x).sum(), x, create_graph=create_graph)
            np.testing.assert_array_equal(slope.numpy(), [0, -0.25])


def test_infinities_that_came_as_parameters_or_arguments_are_not_the_ops_doing():
    @ta.primitive
    def fill(x, *, value):
        return np.where(x > 0, x, value)
    fill.defvjp(lambda g, out, x, *, value: g * (x > 0))
    with detect_anomaly():
        fill(leaf([1.0, -1.0]), value=-np.inf).softmax().sum().backward()
        (leaf([1.0, 1.0]) * np.array([np.inf, 1.0])).sum().backward()
        with pytest.raises(AnomalyError, match=r"NaN \(the gradient of its output already held NaN\)"):
            (leaf([1.0, 2.0]) * 3).backward([np.nan, 1.0])


def test_one_instance_may_serve_several_threads():
    watch, failed, gate = detect_anomaly(), [], threading.Barrier(2)

    def work():
        try:
            with watch:
                gate.wait(10)
                with pytest.raises(AnomalyError):
                    leaf([-1.0]).log()
                gate.wait(10)
        except Exception as error:
            failed.append(error)
    before = np.geterr()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert np.geterr() == before


def test_an_op_whose_forward_masks_what_it_computes_is_judged_by_its_result():
    @ta.primitive
    def safe_log(x):
        return np.where(x > 0, ops.log(x), 0.0)
    safe_log.defvjp(lambda g, out, x: g * np.where(x > 0, 1 / np.where(x > 0, x, 1), 0))
    with detect_anomaly():
        safe_log(leaf([0.0, 1.0])).sum().backward()


def test_infinity_is_excused_only_where_it_was_given():
    scores = leaf([0.0, 800.0])
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"^exp\(\(2,\)\), forward: 1 of 2 .* inf"):
        (scores + np.array([-np.inf, 0.0])).exp()


def test_parameters_of_any_kind_are_no_trouble():
    @ta.primitive
    def contract(x, *, axes, dtype=np.float32):
        return x.sum() * np.inf
    contract.defvjp(lambda g, out, x, *, axes, dtype: g + x)
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"^contract\(\(2,\), axes=.*dtype=float32\), forward"):
        contract(leaf([1.0, 2.0]), axes=((0, 1), 2), dtype=np.float32)
