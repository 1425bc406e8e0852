"""Differences of three kinds, against derivatives known in closed form, and the curve of their errors."""

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, eps_curve
from tinygrad_attn.differences import Function, central, complex_step, forward

X = [np.array([[0.3, -1.2], [2.0, 0.7]])]
V = np.array([[1.0, -2.0], [0.5, 0.0]])


def test_each_difference_has_the_truncation_error_that_its_formula_says():
    f = Function(lambda x: x.exp(), "test")
    exact = (np.exp(X[0]) * V).ravel()
    for h in (1e-2, 1e-3):
        second, third = (np.exp(X[0]) * V ** 2).ravel(), (np.exp(X[0]) * V ** 3).ravel()
        np.testing.assert_allclose(forward(f, X, 0, V, h) - exact, h / 2 * second, rtol=2 * h, atol=1e-12)
        np.testing.assert_allclose(central(f, X, 0, V, h) - exact, h * h / 6 * third, rtol=h, atol=1e-11)
        np.testing.assert_allclose(complex_step(f, X, 0, V, h) - exact, -h * h / 6 * third, rtol=h, atol=1e-14)
    np.testing.assert_allclose(complex_step(f, X, 0, V), exact, rtol=1e-15)


def test_a_backward_difference_is_a_forward_one_with_a_negative_step():
    f = Function(lambda x: abs(x), "test")
    at, v = [np.array([0.0])], np.ones(1)
    assert (forward(f, at, 0, v, -1e-6), forward(f, at, 0, v, 1e-6)) == (-1, 1)


def test_the_step_is_what_the_point_has_really_moved():
    f = Function(lambda x: x * 1.0, "test")
    large = [np.array([1e6])]               # 1e6 + 1e-7 is not 1e-7 away
    assert central(f, large, 0, np.ones(1), 1e-7) == forward(f, large, 0, np.ones(1), 1e-7) == 1


def test_the_curve_falls_and_rises_as_theory_has_it_and_the_complex_one_does_not_rise():
    curve = eps_curve(lambda x: x.exp(), 1.0)
    h, truncation = curve.steps[:3], curve.steps[:3]
    np.testing.assert_allclose(curve.forward[:3], truncation / 2, rtol=0.06)
    np.testing.assert_allclose(curve.central[:3], h * h / 6, rtol=0.02)
    np.testing.assert_allclose(curve.complex[:3], h * h / 6, rtol=0.02)
    assert curve.forward[-1] > 1e-6
    assert curve.central[-1] > 1e-6
    assert max(curve.complex[7:]) < 1e-15
    assert [1e-10 < curve.best("forward")[0] < 1e-6, 1e-8 < curve.best("central")[0] < 1e-3] == [True, True]
    assert curve.best("forward")[1] > 1e-10
    assert curve.best("complex")[1] < 1e-15


def test_the_curve_is_that_of_the_whole_jacobian_of_several_inputs_and_outputs():
    curve = eps_curve(lambda x, i, w: (x[i] @ w, x.softmax()), (np.ones((2, 3)), np.array([1, 0, 1]), X[0][[0, 1, 0]].T
                                                                 .repeat(2, 0)[:3]), steps=[1e-4, 1e-6])
    assert curve.steps.tolist() == [1e-4, 1e-6]
    assert max(curve.central) < 1e-8
    assert max(curve.complex) < 1e-8


def test_where_the_complex_step_cannot_be_taken_the_curve_says_why():
    curve = eps_curve(lambda x: x.abs(), [1.0, -2.0])
    assert curve.complex is None
    assert str(curve).endswith("no complex step: `abs` drops the imaginary part of its input")
    assert curve.to_dict()["complex"] is None
    with pytest.raises(ValueError, match="no complex differences: `abs`"):
        curve.best("complex")
    curve.plot()


def test_a_step_that_leaves_the_domain_is_shown_as_nan_and_never_the_best():
    curve = eps_curve(lambda x: x.log(), 0.05)
    assert np.isnan(curve.central[0])
    assert curve.best("central")[0] < 1e-2


def test_the_table_and_the_picture_show_the_same_numbers():
    curve = eps_curve(ta.softmax, [1.0, 2.0, 3.0])
    lines = curve.table().splitlines()
    assert lines[0].split() == ["step", "forward", "central", "complex"]
    assert [float(cell) for cell in lines[6].split()] == pytest.approx(
        [curve.steps[5], curve.forward[5], curve.central[5], curve.complex[5]], rel=0.05)
    picture = curve.plot()
    drawn = {line.get_label(): line.get_ydata() for line in picture.axes[0].lines}
    np.testing.assert_array_equal(drawn["central"], curve.central)
    assert {"forward", "central", "complex"} < set(drawn)


@pytest.mark.parametrize(("fn", "inputs", "options", "error", "text"), [
    (lambda x: x * 2, np.float32(1), {}, TypeError, "eps_curve: input 0 is float32"),
    (lambda x: x * 0, 1.0, {}, ValueError, "all derivatives are 0"),
    (lambda x: x[:0], [1.0], {}, ValueError, "all derivatives are 0 here, or there is none"),
    (lambda x: x * 2, np.arange(3), {}, ValueError, "nothing to check"),
    (lambda x: 3, 1.0, {}, TypeError, "returned int"),
    (lambda x: x * 2, 1.0, {"steps": [0.0]}, ValueError, "above 0"),
    (lambda x: x * 2, 1.0, {"steps": []}, ValueError, "one at least"),
    (lambda x: Tensor(x.numpy() * 2), 1.0, {}, ValueError, "all derivatives are 0"),
])
def test_what_has_no_curve_is_refused(fn, inputs, options, error, text):
    with pytest.raises(error, match=text):
        eps_curve(fn, inputs, **options)


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"tinygrad_attn\[plot\]"):
        eps_curve(ta.softmax, [1.0, 2.0]).plot()


def test_a_wrong_rule_is_told_from_steps_that_are_all_too_long_or_leave_the_domain():
    @ta.primitive
    def double(x):
        return x * 2
    double.defvjp(lambda g, out, x: g * 3)
    told = "the differences agree with one another, and not with the graph"
    assert told in eps_curve(double, [1.0, 2.0]).table()
    assert told not in eps_curve(lambda x: x.exp(), 1.0, steps=[0.5]).table()
    assert "nan" in str(eps_curve(lambda x: x.log(), 1e-3, steps=[0.1]))
