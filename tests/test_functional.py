"""The compositions, against NumPy written out."""

import math

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor
from tinygrad_attn import functional as F

RNG = np.random.default_rng(0)


def test_gradients_to_order_2():
    x, w, b = RNG.normal(size=(2, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=4)
    ta.gradcheck(F.linear, (x, w, b), order=2)
    ta.gradcheck(F.layer_norm, (x, RNG.normal(size=3), RNG.normal(size=3)), order=2)
    for approximate in ("none", "tanh"):
        ta.gradcheck(lambda x, a=approximate: F.gelu(x, a), x, order=2)
    ta.gradcheck(lambda x: F.norm(x, axis=-1), x, order=2)
    ta.gradcheck(lambda x: F.cross_entropy(x, [2, 0]), x, order=2)
    ta.gradcheck(lambda x: F.dropout(x, 0.4, rng=3), x, order=2)


def test_linear_has_pytorchs_layout():
    x, w, b = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=4)
    np.testing.assert_allclose(F.linear(x, w, b), np.einsum("...i,oi->...o", x, w) + b)
    assert F.linear(Tensor(x), w).shape == (2, 5, 4)


def test_gelu_is_x_times_the_normal_distribution():
    x = np.linspace(-4, 4, 9)
    phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(F.gelu(x), x * phi, atol=1e-14)
    np.testing.assert_allclose(F.gelu(x, "tanh"), x * phi, atol=1e-3)
    with pytest.raises(ValueError, match="'sigmoid'"):
        F.gelu(x, "sigmoid")


def test_layer_norm_has_mean_0_and_variance_1_before_weight_and_bias():
    x = RNG.normal(3.0, 5.0, size=(4, 64))
    out = F.layer_norm(x, eps=0.0)
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(out.var(-1), 1)
    np.testing.assert_allclose(F.layer_norm(x, np.full(64, 2.0), np.ones(64), eps=0.0), 2 * out + 1)
    for wrong in ((64,), np.ones(3), np.ones((4, 64))):
        with pytest.raises(ta.ShapeError, match=r"layer_norm: weight has shape .*it needs \(64,\)"):
            F.layer_norm(x, wrong)


def test_layer_norm_in_half_precision_does_not_overflow_inside():
    x = np.array([[60000.0, -60000.0, 0.0]], np.float16)
    out = F.layer_norm(Tensor(x, requires_grad=True))
    assert out.dtype == np.float16
    np.testing.assert_allclose(out.numpy(), [[1.2247, -1.2247, 0.0]], atol=2e-3)


def test_norm_is_smooth_everywhere_but_at_zero_where_its_gradient_is_zero():
    x = Tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    with np.errstate(all="raise"):
        F.norm(x, axis=1).sum().backward()
    np.testing.assert_allclose(x.grad, [[0.0, 0.0], [0.6, 0.8]])


def test_cross_entropy_is_minus_the_log_of_the_right_probability():
    logits, targets = RNG.normal(size=(2, 3, 5)), np.array([[0, 4, -100], [2, 2, 1]])
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    kept = [p[i][targets[i]] for i in np.ndindex(2, 3) if targets[i] != -100]
    np.testing.assert_allclose(F.cross_entropy(logits, targets), -np.mean(np.log(kept)))
    t = Tensor(logits, requires_grad=True)
    F.cross_entropy(t, targets).backward()
    expected = p - np.eye(5)[np.maximum(targets, 0)]
    expected[0, 2] = 0
    np.testing.assert_allclose(t.grad, expected / 5, atol=1e-15)


@pytest.mark.parametrize("targets", [[-100, -100], np.zeros(0, int)])
def test_with_no_target_left_the_loss_and_its_gradient_are_zero(targets):
    t = Tensor(np.ones((len(targets), 3)), requires_grad=True)
    loss = F.cross_entropy(t, targets)
    loss.backward()
    assert loss.item() == 0
    assert not math.copysign(1, loss.item()) < 0
    np.testing.assert_array_equal(t.grad, np.zeros((len(targets), 3)))


@pytest.mark.parametrize(("targets", "error", "text"), [
    ([0, 3], ValueError, "target 3 is not among the 3 classes"), ([-1, 0], ValueError, "target -1"),
    ([0.0, 1.0], TypeError, "integers, not float64"), ([0], ta.ShapeError, r"need targets \(2,\), not \(1,\)"),
    ([[1, 0, 0], [0, 1, 0]], ta.ShapeError, r"not \(2, 3\)"), ([True, False], TypeError, "bool"),
])
def test_wrong_targets_are_named(targets, error, text):
    with pytest.raises(error, match=text):
        F.cross_entropy(np.zeros((2, 3)), targets)


def test_dropout_keeps_the_mean_and_is_silent_outside_training():
    x = np.ones(10_000)
    out = F.dropout(x, 0.25, rng=0)
    assert set(np.unique(out)) == {0.0, 1 / 0.75}
    assert abs(out.mean() - 1) < 0.03       # 5 standard deviations
    assert F.dropout(x, 0.25, training=False) is x
    np.testing.assert_array_equal(out, F.dropout(x, 0.25, rng=np.random.default_rng(0)))
    t = Tensor(x, requires_grad=True)
    F.dropout(t, 0.25, rng=0).sum().backward()
    np.testing.assert_array_equal(t.grad, out)
    assert F.dropout(Tensor(x, dtype=np.float32), 0.25, rng=0).dtype == np.float32
