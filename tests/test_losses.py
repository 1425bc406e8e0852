"""Losses: each against NumPy written out, finite wherever the truth is, and an error for what would be compared by
mistake."""

import math
from itertools import product

import numpy as np
import pytest

from tinygrad_attn import ShapeError, Tensor, gradcheck
from tinygrad_attn import functional as F
from tinygrad_attn.losses import binary_cross_entropy_with_logits, cross_entropy, kl_div, mse_loss

RNG = np.random.default_rng(0)
REDUCTIONS = ("mean", "sum", "none")
LN2 = math.log(2)
loud = np.errstate(all="raise", under="ignore")         # a decorator: no overflow, no 0/0, no ∞ − ∞ on the way


def near(actual, expected, tol=1e-12):
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def gradient(loss, *arrays):
    """The loss of fresh leaves, and their gradients."""
    leaves = [Tensor(a, requires_grad=True) for a in arrays]
    value = loss(*leaves)
    value.sum().backward()
    return value.numpy(), *(x.grad for x in leaves)


def reduced(losses, reduction):
    return {"mean": np.mean, "sum": np.sum, "none": lambda x: x}[reduction](losses)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_functional_has_the_losses_under_the_same_names():
    assert (F.cross_entropy, F.mse_loss, F.kl_div) == (cross_entropy, mse_loss, kl_div)
    assert F.binary_cross_entropy_with_logits is binary_cross_entropy_with_logits


# ----------------------------------------------------------------------------------------------------- cross-entropy

def by_hand(x, targets, weight, ignore, eps, reduction):
    """A sum over rows and classes: −Σ weight · q · log p, with q the smoothed target."""
    C, losses, total = x.shape[-1], np.zeros(targets.shape), 0.0
    for at in np.ndindex(targets.shape):
        if targets[at] == ignore:
            continue
        p = np.exp(x[at]) / np.exp(x[at]).sum()
        for c in range(C):
            q = (1 - eps) * (c == targets[at]) + eps / C
            losses[at] -= weight[c] * q * math.log(p[c])
        total += weight[targets[at]]
    return losses.sum() / total if reduction == "mean" else reduced(losses, reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("weighted", "eps", "ignore"), list(product([False, True], [0.0, 0.1, 1.0], [-100, 2])))
def test_cross_entropy_is_its_sum_over_rows_and_classes(reduction, weighted, eps, ignore):
    x, targets = RNG.normal(size=(2, 3, 4)), np.array([[0, 3, 2], [1, 1, 2]])
    targets[1, 0] = ignore
    weight = np.array([0.5, 2.0, 1.0, 0.0]) if weighted else np.ones(4)
    options = {"weight": weight if weighted else None, "ignore_index": ignore, "label_smoothing": eps,
               "reduction": reduction}
    near(cross_entropy(x, targets, **options), by_hand(x, targets, weight, ignore, eps, reduction))
    gradcheck(lambda x: cross_entropy(x, targets, **options), x, order=2)


def test_LS_01_the_mean_is_over_the_rows_that_count():
    value, g = gradient(lambda x: cross_entropy(x, [1, -100]), np.zeros((2, 4)))
    near(value, 1.3862943611, 1e-10)                        # ln 4, and not half of it
    near(g, [[0.25, -0.75, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]])
    assert not g[1].any()


@loud
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, {"weight": np.array([0.5, 1, 2])}, {"label_smoothing": 0.1}], ids=str)
def test_LS_01_with_all_targets_ignored_loss_and_gradient_are_zero(reduction, options):
    for shape in ((2,), (2, 2), (0,)):
        value, g = gradient(lambda x, n=shape: cross_entropy(x, np.full(n, -100), reduction=reduction, **options),
                            np.ones((*shape, 3)))
        near(value, np.zeros(shape if reduction == "none" else ()), 0)
        near(g, np.zeros((*shape, 3)), 0)


@loud
def test_LS_01_kept_targets_whose_weight_is_zero_give_zero_as_well():
    value, g = gradient(lambda x: cross_entropy(x, [0, 0], weight=[0.0, 1.0]), np.zeros((2, 2)))
    assert value == 0
    assert not g.any()


def test_a_weight_makes_the_mean_a_weighted_one():
    p = softmax(np.array([[1.0, 2.0], [0.0, 0.5]]))
    expected = -(3 * math.log(p[0, 0]) + 1 * math.log(p[1, 1])) / 4
    for weight in ([3, 1], np.array([3.0, 1.0], np.float32), Tensor([3.0, 1.0])):
        near(cross_entropy(np.array([[1.0, 2.0], [0.0, 0.5]]), [0, 1], weight=weight), expected)


def test_the_gradient_of_cross_entropy_is_softmax_minus_one_hot():
    x, targets = RNG.normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
    near(gradient(lambda x: cross_entropy(x, targets), x)[1], (softmax(x) - np.eye(3)[targets]) / 5)
    near(gradient(lambda x: cross_entropy(x, targets, label_smoothing=0.3), x)[1],
         (softmax(x) - 0.7 * np.eye(3)[targets] - 0.1) / 5)


@loud
@pytest.mark.parametrize("big", [1e3, 1e30, 1e300])
def test_cross_entropy_of_extreme_logits_is_finite_and_right(big):
    x = np.array([[big, 0.0, -big], [-big, big, 0.0]])
    value, g = gradient(lambda x: cross_entropy(x, [0, 0]), x)
    near(value, big)                                        # (0 + 2 big) / 2
    near(g, [[0.0, 0.0, 0.0], [-0.5, 0.5, 0.0]])
    value, g = gradient(lambda x: cross_entropy(x, [0, 0], label_smoothing=0.3, reduction="none"), x)
    near(value / big, [0.3 / 3 * 3, 0.7 * 2 + 0.1 * 3])     # each row lies 0, 1 and 2 big below its largest
    near(g, [[1 - 0.8, -0.1, -0.1], [-0.8, 1 - 0.1, -0.1]])


@loud
def test_a_class_that_is_masked_with_minus_infinity_has_no_part_unless_it_is_the_target():
    value, g = gradient(lambda x: cross_entropy(x, [0]), np.array([[0.0, 0.0, -np.inf]]))
    near(value, LN2)
    near(g, [[-0.5, 0.5, 0.0]])
    assert cross_entropy(np.array([[0.0, -np.inf]]), [1]) == np.inf


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
def test_targets_may_be_any_integers_and_of_any_shape(dtype):
    x = RNG.normal(size=(2, 3))
    expected = cross_entropy(x, [2, 0])
    near(cross_entropy(x, np.array([2, 0], dtype)), expected)
    near(cross_entropy(x, Tensor(np.array([2, 0], dtype))), expected)
    near(cross_entropy(x[None], np.array([[2, 0]], dtype)), expected)
    near(cross_entropy(x[0], dtype(2)), -math.log(softmax(x[0])[2]))       # one row, without a batch


@pytest.mark.parametrize(("targets", "error", "said"), [
    ([0, 3], ValueError, "target 3 is not among the 3 classes 0 … 2"), ([-1, 0], ValueError, "target -1 is not among"),
    ([0, -101], ValueError, "target -101"), ([0.0, 1.0], TypeError, "class numbers, integers, not float64"),
    ([True, False], TypeError, "not bool"), ([0], ShapeError, r"logits \(2, 3\) need targets \(2,\), not \(1,\); the"),
    ([[0], [1]], ShapeError, r"not \(2, 1\)"), (0, ShapeError, r"not \(\)"), ([0, 1, 2], ShapeError, r"not \(3,\)"),
    ([[1, 0, 0], [0, 1, 0]], ShapeError, r"not \(2, 3\); the classes are the last axis")])
def test_targets_that_are_no_classes_are_named(targets, error, said):
    with pytest.raises(error, match=f"cross_entropy: .*{said}"):
        cross_entropy(np.zeros((2, 3)), targets)


@pytest.mark.parametrize(("options", "error", "said"), [
    ({"label_smoothing": -0.1}, ValueError, "label_smoothing=-0.1; it is from 0 to 1"),
    ({"label_smoothing": 1.1}, ValueError, "label_smoothing=1.1"),
    ({"label_smoothing": math.nan}, ValueError, "label_smoothing=nan"),
    ({"weight": [1.0, 2.0]}, ShapeError, r"weight has shape \(2,\); it needs \(3,\), one for each class"),
    ({"weight": 1.0}, ShapeError, r"weight has shape \(\)"), ({"weight": [[1, 1, 1]]}, ShapeError, r"\(1, 3\)"),
    ({"reduction": "average"}, ValueError, 'reduction=\'average\'; it is "mean", "sum" or "none"$'),
    ({"reduction": "batchmean"}, ValueError, "reduction='batchmean'"), ({"reduction": None}, ValueError, "=None")])
def test_options_of_cross_entropy_out_of_range_are_named(options, error, said):
    with pytest.raises(error, match=f"cross_entropy: .*{said}"):
        cross_entropy(np.zeros((2, 3)), [0, 1], **options)


def test_an_ignored_target_may_be_any_number_also_a_class():
    x = RNG.normal(size=(3, 2))
    near(cross_entropy(x, [0, 9, 1], ignore_index=9), cross_entropy(x[[0, 2]], [0, 1]))
    near(cross_entropy(x, [0, 1, 0], ignore_index=1), cross_entropy(x[[0, 2]], [0, 0]))
    with pytest.raises(ValueError, match="target -100"):
        cross_entropy(x, [0, -100, 1], ignore_index=1)


# ----------------------------------------------------------------------------------------------- binary cross-entropy

@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("pos_weight", [None, 3.0, np.array([0.5, 2.0, 1.0])], ids=str)
def test_binary_cross_entropy_is_minus_the_log_of_the_probability(reduction, pos_weight):
    x, t = RNG.normal(size=(2, 3)), RNG.random((2, 3))
    t[0, :2] = 0, 1
    p = 1 / (1 + np.exp(-x))
    losses = -(1 if pos_weight is None else pos_weight) * t * np.log(p) - (1 - t) * np.log(1 - p)
    options = {"pos_weight": pos_weight, "reduction": reduction}
    near(binary_cross_entropy_with_logits(x, t, **options), reduced(losses, reduction))
    gradcheck(lambda x: binary_cross_entropy_with_logits(x, t, **options), x, order=2)
    inside = np.clip(t, 0.2, 0.8)                           # a difference must stay a probability
    gradcheck(lambda x, t: binary_cross_entropy_with_logits(x, t, **options), (x, inside), order=2)


def test_the_gradient_of_binary_cross_entropy_is_probability_minus_target():
    x, t = RNG.normal(size=6), np.array([0, 1, 1, 0, 0.5, 0.25])
    near(gradient(lambda x: binary_cross_entropy_with_logits(x, t), x)[1], (1 / (1 + np.exp(-x)) - t) / 6)


@loud
@pytest.mark.parametrize("big", [1e3, 1e30, 1e300])
def test_binary_cross_entropy_of_extreme_logits_is_finite_and_right(big):
    value, g = gradient(lambda x: binary_cross_entropy_with_logits(x, [1.0, 0.0, 1.0, 0.0], reduction="none"),
                        np.array([big, -big, -big, big]))
    near(value, [0.0, 0.0, big, big])
    near(g, [0.0, 0.0, -1.0, 1.0])
    near(gradient(lambda x: binary_cross_entropy_with_logits(x, [0.5, 0.5]), np.array([big, -big]))[1], [0.25, -0.25])


def test_binary_targets_may_be_integers_booleans_lists_and_single_numbers():
    x, expected = np.array([0.5, -1.0]), (math.log1p(math.exp(-0.5)) + math.log1p(math.exp(-1))) / 2
    for targets in ([1, 0], [True, False], np.array([1, 0], np.uint8), np.array([True, False]), Tensor([1.0, 0.0])):
        near(binary_cross_entropy_with_logits(x, targets), expected)
    near(binary_cross_entropy_with_logits(Tensor(0.0), 1), LN2)


@pytest.mark.parametrize(("targets", "options", "error", "said"), [
    ([0.0, 1.5], {}, ValueError, "target 1.5 is no probability, from 0 to 1"),
    ([-0.1, 0.5], {}, ValueError, "target -0.1"), ([0.0, math.nan], {}, ValueError, "target nan"),
    ([0, 2], {}, ValueError, "target 2"), ([0.0], {}, ShapeError, r"output \(2,\), target \(1,\); they must have one"),
    ([[0.0, 1.0]], {}, ShapeError, r"target \(1, 2\)"), (0.5, {}, ShapeError, r"target \(\)"),
    ([0.0, 1.0], {"pos_weight": np.ones(3)}, ShapeError, r"pos_weight \(3,\), logits \(2,\)"),
    ([0.0, 1.0], {"reduction": "batchmean"}, ValueError, "reduction='batchmean'")])
def test_what_binary_cross_entropy_cannot_take_is_named(targets, options, error, said):
    with pytest.raises(error, match=f"binary_cross_entropy_with_logits: .*{said}"):
        binary_cross_entropy_with_logits(np.zeros(2), targets, **options)


# ------------------------------------------------------------------------------------------------------ mean square

@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_mean_square_is_the_mean_of_squares_and_both_sides_have_a_gradient(reduction):
    x, t = RNG.normal(size=(2, 2, 3))
    near(mse_loss(x, t, reduction=reduction), reduced((x - t) ** 2, reduction))
    gradcheck(lambda x, t: mse_loss(x, t, reduction=reduction), (x, t), order=2)
    _, dx, dt = gradient(mse_loss, x, t)
    near(dx, 2 * (x - t) / 6)
    near(dt, -dx)


@pytest.mark.parametrize("targets", [np.zeros(3), np.zeros((1, 2)), np.zeros((2, 2)), 0.0, [0.0], None], ids=str)
def test_the_mean_square_does_not_broadcast(targets):
    with pytest.raises(ShapeError, match=r"mse_loss: output \(2, 1\), target .*; they must have one shape"):
        mse_loss(np.zeros((2, 1)), targets)
    with pytest.raises(ValueError, match="mse_loss: reduction='max'"):
        mse_loss(np.zeros(2), np.zeros(2), reduction="max")


# ------------------------------------------------------------------------------------------------------ divergence

@loud
def test_LS_03_a_probability_of_zero_adds_nothing_to_a_divergence_or_an_entropy():
    assert kl_div(np.array([-np.inf, 0.0]), [0.0, 1.0]) == 0                # t = q = (0, 1)
    p = np.array([0.0, 0.5, 0.5])
    near(math.log(3) - kl_div(np.full(3, -math.log(3)), p), 0.6931471806, 1e-10)     # the entropy: ln 3 − KL(p ‖ 1/3)
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    assert kl_div(log_p, log_p, log_target=True) == 0
    near(kl_div(np.full(3, -math.log(3)), log_p, log_target=True), math.log(3) - LN2)


@loud
def test_LS_03_nor_to_its_gradient():
    q, p = np.array([[-np.inf, 0.0, -1.0]]), np.array([[0.0, 0.5, 0.5]])
    value, dq, dp = gradient(kl_div, q, p)
    near(value, 0.5 * math.log(0.5) + 0.5 * (math.log(0.5) + 1))
    near(dq, -p)
    near(dp, [[0.0, math.log(0.5) + 1, math.log(0.5) + 1 + 1]])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    _, dq, d_log_p = gradient(lambda q, log_p: kl_div(q, log_p, log_target=True), q, log_p)
    near(dq, -p)
    near(d_log_p, p * dp)


@pytest.mark.parametrize(("reduction", "divisor"), [("batchmean", 6), ("mean", 24), ("sum", 1), ("none", None)])
@pytest.mark.parametrize("log_target", [False, True])
def test_the_divergence_is_its_sum_over_classes_averaged_over_rows(reduction, divisor, log_target):
    p, log_q = softmax(RNG.normal(size=(2, 3, 4))), np.log(softmax(RNG.normal(size=(2, 3, 4))))
    terms = p * (np.log(p) - log_q)
    given = np.log(p) if log_target else p
    near(kl_div(log_q, given, log_target=log_target, reduction=reduction),
         terms.sum() / divisor if divisor else terms)
    gradcheck(lambda q, p: kl_div(q, p, log_target=log_target, reduction=reduction), (log_q, given), order=2)


def test_the_divergence_is_the_mean_over_rows_unless_told_otherwise_and_zero_only_between_equals():
    p, q = softmax(RNG.normal(size=(2, 5, 3)))
    assert kl_div(np.log(q), p) == pytest.approx((p * np.log(p / q)).sum(-1).mean())
    assert kl_div(np.log(q), p) > 0
    near(kl_div(np.log(p), p), 0.0)
    near(kl_div(np.log(q[0]), p[0]), (p[0] * np.log(p[0] / q[0])).sum())   # one row, without a batch
    assert kl_div(np.array([[-np.inf, 0.0]]), [[0.5, 0.5]]) == np.inf      # what q thinks impossible happens


@pytest.mark.parametrize(("p", "options", "error", "said"), [
    ([[0.5, -0.1]], {}, ValueError, "a probability p is negative or NaN; log_target=True takes their logarithms"),
    ([[0.5, math.nan]], {}, ValueError, "negative or NaN"),
    ([0.5, 0.5], {}, ShapeError, r"output \(1, 2\), target \(2,\)"), (0.5, {}, ShapeError, r"target \(\)"),
    ([[0.5, 0.5]], {"reduction": "max"}, ValueError, '"mean", "sum" or "none", or "batchmean"$')])
def test_what_the_divergence_cannot_take_is_named(p, options, error, said):
    with pytest.raises(error, match=f"kl_div: .*{said}"):
        kl_div(np.log([[0.5, 0.5]]), p, **options)


# ----------------------------------------------------------------------------------------------------------- all

LOSSES = {"cross_entropy": lambda x, **o: cross_entropy(x, np.zeros(x.shape[:-1], int), **o),
          "smoothed": lambda x, **o: cross_entropy(x, np.zeros(x.shape[:-1], int), label_smoothing=0.1, **o),
          "weighted": lambda x, **o: cross_entropy(x, np.zeros(x.shape[:-1], int), weight=np.ones(x.shape[-1]), **o),
          "binary": lambda x, **o: binary_cross_entropy_with_logits(x, np.full(x.shape, 0.25), **o),
          "mse": lambda x, **o: mse_loss(x, np.full(x.shape, 0.25), **o),
          "kl_div": lambda x, **o: kl_div(x, np.full(x.shape, 0.25), **o)}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_loss_has_the_dtype_of_what_came_out_of_the_network_whatever_the_targets(name, dtype):
    x = RNG.normal(size=(2, 4)).astype(dtype)
    for reduction in REDUCTIONS:
        value, g = gradient(lambda x, r=reduction: LOSSES[name](x, reduction=r), x)
        assert (value.dtype, g.dtype) == (dtype, dtype)
        exact = LOSSES[name](x.astype(float), reduction=reduction)
        near(value, exact, {np.float16: 3e-3, np.float32: 2e-6, np.float64: 0}[dtype])


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_plain_arrays_is_a_plain_number(name):
    x = RNG.normal(size=(2, 4))
    assert isinstance(LOSSES[name](x), float)
    assert LOSSES[name](x) == LOSSES[name](Tensor(x)).item()


@loud
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_loss_of_nothing_is_zero(name, reduction):
    value, g = gradient(lambda x: LOSSES[name](x, reduction=reduction), np.zeros((0, 3)))
    assert value.sum() == 0
    assert g.shape == (0, 3)


@pytest.mark.parametrize("name", LOSSES)
def test_a_large_batch_in_half_precision_does_not_overflow_where_its_mean_does_not(name):
    """70 000 losses of about 1 sum up to more than 65 504, the largest number there is, and so does their number."""
    x = np.full((70_000, 4), -1.0, np.float16)
    options = [{"reduction": "mean"}] + ([{"reduction": "batchmean"}] if name == "kl_div" else [])
    for option in options:
        near(LOSSES[name](x, **option), LOSSES[name](x.astype(float), **option), 2e-3)


@pytest.mark.parametrize("loss", [F.mse_loss, F.binary_cross_entropy_with_logits])
def test_targets_are_not_cut_to_integers_where_the_output_has_integers(loss):
    try:
        value = loss(np.array([1, 2]), [0.5, 0.25])
    except TypeError:
        return
    assert value == loss(np.array([1.0, 2.0]), [0.5, 0.25])


def test_a_log_probability_that_is_nan_is_not_taken_for_zero():
    try:
        value = F.kl_div(np.log([[0.5, 0.5]]), np.array([[math.nan, 0.0]]), log_target=True)
    except ValueError:
        return
    assert math.isnan(value)


def test_pos_weight_keeps_the_dtype_and_does_not_enlarge_the_loss():
    x = np.zeros(2, np.float32)
    assert F.binary_cross_entropy_with_logits(x, [0.0, 1.0], pos_weight=np.ones(2)).dtype == np.float32
    with pytest.raises(ShapeError, match="pos_weight"):
        F.binary_cross_entropy_with_logits(x, [0.0, 1.0], pos_weight=np.ones((3, 2)))


def test_a_smoothing_of_numpys_keeps_the_dtype():
    assert F.cross_entropy(np.zeros((2, 3), np.float32), [0, 1], label_smoothing=np.float64(0.1)).dtype == np.float32


def test_without_a_class_axis_are_a_shape_error():
    for loss in (lambda: F.cross_entropy(np.array(1.0), 0), lambda: F.kl_div(np.array(0.0), 1.0)):
        with pytest.raises(ShapeError):
            loss()
