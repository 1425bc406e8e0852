"""vjp, jvp, jacobian, hessian: against matrices written out."""

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, hessian, jacobian, jvp, vjp

RNG = np.random.default_rng(0)
M = RNG.normal(size=(4, 3))


def test_vjp_and_jvp_are_the_two_products_with_the_jacobian():
    x, v, u = RNG.normal(size=3), RNG.normal(size=3), RNG.normal(size=4)
    f = lambda x: (M @ x).tanh()
    J = (1 - np.tanh(M @ x) ** 2)[:, None] * M
    np.testing.assert_allclose(jacobian(f, x).numpy(), J)
    y, row = vjp(f, x, u)
    np.testing.assert_allclose(y.numpy(), np.tanh(M @ x))
    np.testing.assert_allclose(row.numpy(), u @ J)
    y, column = jvp(f, x, v)
    np.testing.assert_allclose(column.numpy(), J @ v)
    assert [t.requires_grad for t in (y, row, column)] == [False] * 3


def test_several_inputs_are_a_tuple_and_so_is_the_answer():
    a, b = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 2))
    f = lambda a, b: a @ b
    dy_da, dy_db = jacobian(f, (a, b))
    np.testing.assert_allclose(dy_da.numpy(), np.einsum("im,nj->ijmn", np.eye(2), b))
    np.testing.assert_allclose(dy_db.numpy(), np.einsum("im,nj->ijmn", a, np.eye(2)))
    da, db = RNG.normal(size=a.shape), RNG.normal(size=b.shape)
    np.testing.assert_allclose(jvp(f, (a, b), (da, db))[1].numpy(), da @ b + a @ db)
    ga, gb = vjp(f, (a, b), np.ones((2, 2)))[1]
    np.testing.assert_allclose(ga.numpy(), np.ones((2, 2)) @ b.T)
    np.testing.assert_allclose(gb.numpy(), a.T @ np.ones((2, 2)))


def test_hessian_is_the_matrix_of_second_derivatives():
    A = RNG.normal(size=(3, 3))
    np.testing.assert_allclose(hessian(lambda x: x @ A @ x, RNG.normal(size=3)).numpy(), A + A.T)
    (xx, xy), (yx, yy) = hessian(lambda x, y: (x * x * y).sum(), ([1.0, 2.0], [3.0, 4.0]))
    np.testing.assert_allclose(xx.numpy(), np.diag([6.0, 8.0]))
    np.testing.assert_allclose(xy.numpy(), np.diag([2.0, 4.0]))
    np.testing.assert_allclose(yx.numpy(), xy.numpy().T)
    np.testing.assert_array_equal(yy.numpy(), np.zeros((2, 2)))
    np.testing.assert_array_equal(hessian(lambda x: x.sum(), [1.0, 2.0]).numpy(), np.zeros((2, 2)))


def test_what_does_not_depend_on_an_input_has_derivative_zero():
    first = lambda x, y: x * 2
    np.testing.assert_array_equal(jacobian(first, ([1.0], [1.0, 2.0]))[1].numpy(), np.zeros((1, 2)))
    assert jvp(first, (1.0, 1.0), (0.0, 5.0))[1].item() == 0
    assert vjp(first, (1.0, 1.0))[1][1].item() == 0


@pytest.mark.parametrize("fn", [
    lambda x: Tensor([1.0, 2.0]), lambda x: x.detach() * 2, lambda x: jacobian(lambda x: x ** 3, x),
    lambda x: vjp(lambda x: x ** 3, x)[1], lambda x: ta.grad(x ** 3, x)])
def test_a_function_that_cuts_the_graph_is_an_error_and_not_a_derivative_of_zero(fn):
    for derivative in (jacobian, vjp, lambda fn, x: jvp(fn, x, 1.0)):
        with pytest.raises(ta.GraphError, match=r"does not depend on its inputs.*create_graph=True"):
            derivative(fn, 2.0)
    assert jacobian(lambda x: ta.grad(x ** 3, x, create_graph=True), 2.0).item() == 12.0
    captured = Tensor(3.0, requires_grad=True)
    with pytest.raises(ta.GraphError):
        jacobian(lambda x: captured * captured, captured)       # the argument is not used


def test_inputs_are_fresh_leaves_even_if_one_tensor_is_given_twice_or_used_inside():
    t = Tensor(3.0, requires_grad=True)
    assert [d.item() for d in jacobian(lambda a, b: a * b, (t, t))] == [3.0, 3.0]
    assert jvp(lambda a, b: a * b, (t, t), (1.0, 0.0))[1].item() == 3.0
    assert [[d.item() for d in row] for row in hessian(lambda a, b: a * b, (t, t))] == [[0.0, 1.0], [1.0, 0.0]]
    assert jacobian(lambda x: x * t, t).item() == 3.0
    assert t.grad is None


def test_derivatives_do_not_depend_on_the_grad_mode_around_them():
    with ta.no_grad():
        np.testing.assert_array_equal(jacobian(lambda x: x * x, [1.0, 2.0]).numpy(), np.diag([2.0, 4.0]))
        assert hessian(lambda x: x ** 3, 2.0).item() == 12.0
        assert jvp(lambda x: x * x, 3.0, 1.0)[1].item() == vjp(lambda x: x * x, 3.0)[1].item() == 6.0
        assert not (Tensor(1.0, requires_grad=True) * 2).requires_grad


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: jacobian(lambda x: x.numpy(), [1.0]), TypeError, "returned a ndarray.*must return a Tensor"),
    (lambda: vjp(lambda x: x * 2, [1.0, 2.0]), ta.ShapeError, "no single gradient"),
    (lambda: jvp(lambda x: x * 2, [1.0, 2.0], [1.0]), ta.ShapeError, r"v has shape \(1,\), its input \(2,\)"),
    (lambda: jvp(lambda x: x * 2, (1.0,), ()), ta.ShapeError, "1 inputs and 0 directions"),
    (lambda: hessian(lambda x: x * 2, [1.0, 2.0]), ta.ShapeError, r"hessian: fn must return one number.*\(2,\)"),
    (lambda: jacobian(lambda x: x, [1, 2]), TypeError, "floating dtype"),
])
def test_misuse_is_explained(call, error, text):
    with pytest.raises(error, match=text):
        call()
