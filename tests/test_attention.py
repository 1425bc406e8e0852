"""Attention, against a loop that knows one query and one head at a time."""

import math

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, attention, causal_mask, multi_head_attention, padding_mask
from tinygrad_attn import functional as F
from tinygrad_attn.cli import EXPECTED_A, EXPECTED_B, KEYS, QUERY, W_K, W_Q, W_V, X

RNG = np.random.default_rng(0)


def one_query(q, keys, values, allowed, scale):
    """The oracle: a weighted sum in Python floats."""
    e = [math.exp(scale * sum(a * b for a, b in zip(q, k, strict=True))) if ok else 0.0
         for k, ok in zip(keys, allowed, strict=True)]
    weights = [x / sum(e) if sum(e) else 0.0 for x in e]
    return np.array([sum(w * v[j] for w, v in zip(weights, values,
        strict=True)) for j in range(len(values[0]))]), weights


def loop(query, key, value, mask=None, scale=None):
    *lead, L, D = query.shape
    S = key.shape[-2]
    mask = np.broadcast_to(True if mask is None else mask, (*lead, L, S))
    output, weights = np.zeros((*lead, L, value.shape[-1])), np.zeros((*lead, L, S))
    for at in np.ndindex(*lead, L):
        output[at], weights[at] = one_query(query[at], key[at[:-1]], value[at[:-1]], mask[at],
                                            1 / math.sqrt(D) if scale is None else scale)
    return output, weights


def inputs(*lead, L=3, S=4, D=2, Dv=5):
    return RNG.normal(size=(*lead, L, D)), RNG.normal(size=(*lead, S, D)), RNG.normal(size=(*lead, S, Dv))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("scale", [None, 1.0, 0.1])
def test_attention_is_the_loop_over_queries(lead, scale):
    q, k, v = inputs(*lead)
    for mask in (None, RNG.random((*lead, 3, 4)) > 0.4, RNG.random((1, 4)) > 0.3):
        output, weights = attention(q, k, v, mask, scale=scale)
        expected_output, expected_weights = loop(q, k, v, mask, scale)
        np.testing.assert_allclose(output, expected_output, atol=1e-14)
        np.testing.assert_allclose(weights, expected_weights, atol=1e-14)


def test_gradients_of_attention_to_order_2_with_masks_and_cross_lengths():
    q, k, v = inputs(2)
    ta.gradcheck(attention, (q, k, v), order=2)
    mask = np.array([[True, False, True, True], [False, False, False, False], [True, True, False, False]])
    ta.gradcheck(lambda *x: attention(*x, mask), (q, k, v), order=2)
    ta.gradcheck(lambda q, k, v, bias: attention(q, k, v, bias), (q, k, v, RNG.normal(size=(3, 4))), order=2)
    ta.gradcheck(lambda *x: attention(*x, causal=True, scale=1.0), inputs(L=3, S=3), order=2)


def test_worked_example_a():
    output, weights = attention(np.array(QUERY), np.array(KEYS), np.eye(3))
    np.testing.assert_allclose(weights, EXPECTED_A["weights"], atol=1e-10)
    np.testing.assert_array_equal(output, weights)
    np.testing.assert_allclose(attention(QUERY, KEYS, KEYS, scale=1.0)[1], EXPECTED_A["weights without / √2"],
        atol=1e-10)


def test_worked_example_b():
    x = Tensor(X)
    output, weights = attention(x @ Tensor(W_Q), x @ Tensor(W_K), x @ Tensor(W_V))
    np.testing.assert_allclose(weights.numpy(), EXPECTED_B["weights"], atol=1e-10)
    np.testing.assert_allclose(output.numpy(), EXPECTED_B["output"], atol=1e-10)


def test_attention_is_composed_of_matmul_softmax_and_reshape_and_nothing_else():
    q, k, v = (Tensor(x, requires_grad=True) for x in inputs(2))
    assert {node.op.name for node in ta.engine.topological_order(attention(q, k, v)[0])} == {
        "matmul", "softmax", "swapaxes", "multiply"}
    x = Tensor(RNG.normal(size=(2, 3, 4)), requires_grad=True)
    w = RNG.normal(size=(3, 2, 4, 2))
    out = multi_head_attention(x, *w, RNG.normal(size=(4, 4)), 2)
    assert {node.op.name for node in ta.engine.topological_order(out)} == {
        "matmul", "softmax", "swapaxes", "multiply", "expand_dims", "reshape"}


def test_a_row_with_nothing_to_attend_to_is_exactly_zero_with_gradient_exactly_zero():
    q, k, v = (Tensor(x, requires_grad=True) for x in inputs())
    for mask in (np.array([[True] * 4, [False] * 4, [True, False, False, False]]),
                 np.array([[0.0] * 4, [-np.inf] * 4, [0.0, -np.inf, -np.inf, -np.inf]])):
        with np.errstate(all="raise", under="ignore"):
            output, weights = attention(q, k, v, mask)
            dq, dk, dv = ta.grad(output, (q, k, v), np.ones(output.shape))
        np.testing.assert_array_equal(output.numpy()[1], 0)
        np.testing.assert_array_equal(weights.numpy()[1], 0)
        np.testing.assert_array_equal(dq.numpy()[1:], 0)        # row 2 sees one key: nothing to shift
        np.testing.assert_array_equal(weights.numpy()[2], [1, 0, 0, 0])
        assert np.isfinite(dk.numpy()).all()
        np.testing.assert_allclose(dv.numpy(), np.repeat(weights.numpy().sum(0)[:, None], 5, axis=1))
    with np.errstate(all="raise", under="ignore"):
        output, weights = attention(q, k, v, np.zeros((3, 4), bool))
        output.sum().backward()
    assert not any(x.any() for x in (output.numpy(), weights.numpy(), q.grad, k.grad, v.grad))


def test_causal_hides_the_future_from_value_and_gradient():
    q, k, v = (Tensor(x, requires_grad=True) for x in inputs(L=4, S=4))
    _, weights = attention(q, k, v, causal=True)
    assert not np.triu(weights.numpy(), 1).any()
    np.testing.assert_allclose(weights.numpy().sum(-1), 1)
    jacobian = ta.jacobian(lambda v: attention(q, k, v, causal=True)[0], v.detach()).numpy()    # (L, Dv, S, Dv)
    assert not np.triu(np.abs(jacobian).sum((1, 3)), 1).any()
    both = attention(q, k, v, np.array([True, False, True, True]), causal=True)[1].numpy()
    np.testing.assert_array_equal(both > 0, np.tri(4, dtype=bool) & [True, False, True, True])
    biased = attention(q, k, v, np.full((4, 4), 3.0), causal=True)[1].numpy()
    np.testing.assert_allclose(biased, weights.numpy())


def test_masks():
    np.testing.assert_array_equal(causal_mask(3), np.tril(np.ones((3, 3), bool)))
    np.testing.assert_array_equal(causal_mask(1, 4, align="upper_left"), [[True, False, False, False]])
    np.testing.assert_array_equal(causal_mask(1, 4, align="lower_right"), [[True] * 4])
    np.testing.assert_array_equal(causal_mask(4, 2, align="lower_right"), [[0, 0], [0, 0], [1, 0], [1, 1]])
    np.testing.assert_array_equal(causal_mask(2, 2, align="lower_right"), causal_mask(2))
    mask = padding_mask([2, 0, 3], 3)
    assert (mask.shape, mask.dtype) == ((3, 1, 1, 3), np.dtype(bool))
    np.testing.assert_array_equal(mask[:, 0, 0], [[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    combined = padding_mask([2, 3], 3) & causal_mask(3)
    np.testing.assert_array_equal(combined[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(padding_mask(Tensor([1]), 2), [[[[True, False]]]])


def test_dropout_acts_on_the_output_and_not_on_the_returned_weights():
    q, k, v = inputs()
    plain, dropped = attention(q, k, v), attention(q, k, v, dropout=0.5, rng=0)
    np.testing.assert_array_equal(plain[1], dropped[1])
    assert not np.allclose(plain[0], dropped[0])
    np.testing.assert_array_equal(dropped[0], attention(q, k, v, dropout=0.5, rng=np.random.default_rng(0))[0])
    with pytest.raises(ValueError, match="rng="):
        attention(q, k, v, dropout=0.5)


def test_float32_stays_float32_also_with_a_float64_mask():
    q, k, v = (Tensor(x, requires_grad=True, dtype=np.float32) for x in inputs())
    output, weights = attention(q, k, v, np.zeros((3, 4)))
    output.sum().backward()
    assert {x.dtype for x in (output, weights, q.grad, k.grad, v.grad)} == {np.dtype(np.float32)}


def test_a_scale_in_float64_does_not_widen_float32():
    q, k, v = (Tensor(x, requires_grad=True, dtype=np.float32) for x in inputs())
    assert attention(q, k, v, scale=1 / np.sqrt(2.0))[0].dtype == np.float32
    assert F.dropout(q, np.float64(0.5), rng=0).dtype == np.float32


def test_the_scale_can_be_learned():
    q, k, v = inputs()
    ta.gradcheck(lambda scale: attention(Tensor(q), k, v, scale=scale), 0.7, order=2)


def test_half_precision_is_scaled_before_it_overflows():
    x = np.full((2, 64), 32, np.float16)
    assert attention(x, x, x)[0].tolist() == x.tolist()
    large = np.full((2, 64), 100, np.float16)               # scores of 80,000
    output, weights = attention(large, large, large)
    assert (output.dtype, weights.dtype, weights.tolist()) == (np.float16, np.float16, [[0.5, 0.5]] * 2)


def test_a_float_mask_means_the_same_to_integers():
    q = np.array([[1, 0]])
    _, weights = attention(q, np.array([[1, 0], [0, 1]]), np.eye(2), np.array([[-0.9, 0.0]]), scale=1)
    np.testing.assert_allclose(weights, [[1 / (1 + np.exp(-0.1)), 1 / (1 + np.exp(0.1))]])


def test_lists_are_taken_and_arrays_given_back():
    output, weights = attention([[1.0, 0.0]], [[1.0, 0.0]], [[7.0]])
    assert (type(output), output.tolist(), weights.tolist()) == (np.ndarray, [[7.0]], [[1.0]])


@pytest.mark.parametrize(("change", "error", "text"), [
    (dict(q=np.ones((3, 3))), ta.ShapeError, r"query \(3, 3\), key \(2, 4, 2\).*widths 3 and 2 differ"),
    (dict(k=np.ones((3, 4, 2)), v=np.ones((3, 4, 5))), ta.ShapeError, r"lengths 2 and 3 at axis -3"),
    (dict(v=np.ones((2, 5, 5))), ta.ShapeError, "4 keys and 5 values"),
    (dict(q=np.ones(2)), ta.ShapeError, r"the query must be.*x\[None, :\]"),
    (dict(q=np.ones((2, 3, 0)), k=np.ones((2, 4, 0))), ta.ShapeError, "width at least 1"),
    (dict(mask=np.ones((3, 4), int)), TypeError, r"int64 could be read two ways.*True = may attend"),
    (dict(mask=np.ones((3, 4), np.uint8)), TypeError, "uint8"),
    (dict(mask=np.ones((2, 4), bool)), ta.ShapeError, r"mask \(2, 4\).*padding_mask\(lengths, S\).*opposite"),
    (dict(mask=np.ones((2, 1, 1, 4), bool)), ta.ShapeError, r"\(2, 1, 1, 4\) does not broadcast"),
    (dict(mask=True), ta.ShapeError, r"mask \(\) does not broadcast"),
    (dict(causal=True), ValueError, r'causal_mask\(3, 4, align="upper_left"\) or "lower_right"'),
    (dict(q="abc"), TypeError, "str is not a number"),
])
def test_bad_input_is_explained(change, error, text):
    q, k, v = inputs(2)
    call = dict(q=q, k=k, v=v, mask=None, causal=False) | change
    with pytest.raises(error, match=text):
        attention(call["q"], call["k"], call["v"], call["mask"], causal=call["causal"])


@pytest.mark.parametrize(("call", "text"), [
    (lambda: causal_mask(2, 3), "align="), (lambda: causal_mask(2, 3, align="left"), "'left'"),
    (lambda: padding_mask([4], 3), "from 0 to S=3"), (lambda: padding_mask([-1], 3), "from 0"),
    (lambda: padding_mask([1.0], 3), "integers"), (lambda: padding_mask([[1]], 3), "one per sequence"),
])
def test_bad_masks_are_explained(call, text):
    with pytest.raises(ValueError, match=text):
        call()


# ------------------------------------------------------------------------------------------------ several heads

def heads(E=6, D=2, H=3, C=None):
    return RNG.normal(size=(H, E, D)), RNG.normal(size=(H, C or E, D)), RNG.normal(size=(H, C or E,
        D)), RNG.normal(size=(H * D, E))


def head_loop(x, w_q, w_k, w_v, w_o, mask=None, context=None, scale=None):
    context = x if context is None else context
    outputs = []
    for h, (a, b, c) in enumerate(zip(w_q, w_k, w_v, strict=True)):
        of_head = mask[..., min(h, mask.shape[-3] - 1), :, :] if mask is not None and mask.ndim > 2 else mask
        outputs.append(loop(x @ a, context @ b, context @ c, of_head, scale)[0])
    return np.concatenate(outputs, axis=-1) @ w_o


def test_multi_head_attention_is_the_loop_over_heads():
    x, w = RNG.normal(size=(2, 4, 6)), heads()
    np.testing.assert_allclose(multi_head_attention(x, *w, 3), head_loop(x, *w), atol=1e-13)
    np.testing.assert_allclose(multi_head_attention(x[0], *w, 3), head_loop(x[0], *w), atol=1e-13)
    np.testing.assert_allclose(multi_head_attention(x, *w, 3, scale=1.0), head_loop(x, *w, scale=1.0), atol=1e-13)
    for mask in (causal_mask(4), padding_mask([2, 4], 4), padding_mask([2, 4], 4) & causal_mask(4),
                 RNG.random((2, 3, 4, 4)) > 0.5):
        np.testing.assert_allclose(multi_head_attention(x, *w, 3, mask), head_loop(x, *w, mask), atol=1e-13)
    np.testing.assert_array_equal(multi_head_attention(x, *w, 3, causal=True),
        multi_head_attention(x, *w, 3, causal_mask(4)))


def test_cross_attention_takes_keys_and_values_from_the_context():
    x, context, w = RNG.normal(size=(2, 4, 6)), RNG.normal(size=(2, 7, 5)), heads(C=5)
    np.testing.assert_allclose(multi_head_attention(x, *w, 3, context=context), head_loop(x, *w, context=context),
        atol=1e-13)
    mask = padding_mask([3, 7], 7)
    np.testing.assert_allclose(multi_head_attention(x, *w, 3, mask, context=context),
                               head_loop(x, *w, mask, context=context), atol=1e-13)


def test_a_list_of_matrices_and_an_array_are_the_same_in_value_and_gradient():
    x, (w_q, w_k, w_v, w_o) = Tensor(RNG.normal(size=(2, 4, 6)), requires_grad=True), heads()
    arrays = [Tensor(w, requires_grad=True) for w in (w_q, w_k, w_v)]
    lists = [[Tensor(one, requires_grad=True) for one in w] for w in (w_q, w_k, w_v)]
    g = RNG.normal(size=(2, 4, 6))
    out = multi_head_attention(x, *arrays, w_o, 3)
    out.backward(g)
    from_arrays = x.grad.copy()
    x.zero_grad()
    twin = multi_head_attention(x, *lists, w_o, 3)
    twin.backward(g)
    np.testing.assert_allclose(twin.numpy(), out.numpy(), atol=1e-12)
    np.testing.assert_allclose(x.grad, from_arrays, atol=1e-12)
    for array, each in zip(arrays, lists, strict=True):
        np.testing.assert_allclose(np.stack([w.grad for w in each]), array.grad, atol=1e-12)


def test_gradients_of_multi_head_attention_to_order_2():
    x, context = RNG.normal(size=(2, 2, 4)), RNG.normal(size=(2, 3, 4))
    ta.gradcheck(lambda *a: multi_head_attention(*a[:-1], 2, context=a[-1]), (x, *heads(4, 2, 2), context), order=2)


def test_splitting_and_merging_heads_scrambles_nothing():
    x, one = np.arange(1.0, 9.0).reshape(1, 2, 4), np.eye(4)
    split = [one[:, :2], one[:, 2:]]
    np.testing.assert_array_equal(multi_head_attention(x, split, split, split, one, 2, mask=np.eye(2, dtype=bool)), x)


def test_the_scale_is_that_of_a_head():
    x, one = np.array([[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]), np.eye(4)
    split = [one[:, :2], one[:, 2:]]
    out = multi_head_attention(x, split, split, split, one, 2)
    np.testing.assert_allclose(out[0, :, :2], [[0.66976155, 0.33023845], [0.33023845, 0.66976155]], atol=1e-8)


def test_no_sample_of_a_batch_sees_another():
    x, w = RNG.normal(size=(3, 4, 6)), heads()
    changed = x.copy()
    changed[1] += 1
    difference = multi_head_attention(changed, *w, 3) - multi_head_attention(x, *w, 3)
    assert difference[1].all()
    assert not difference[[0, 2]].any()


@pytest.mark.parametrize(("change", "text"), [
    (dict(w_q=np.ones((6, 6))), r"w_q \(6, 6\).*reshape\(E, H, D\)\.swapaxes\(0, 1\)"),
    (dict(num_heads=2), r"w_q \(3, 6, 2\), 2 heads"), (dict(num_heads=0), "0 heads"),
    (dict(w_k=np.ones((3, 5, 2))), r"w_k \(3, 5, 2\)"), (dict(w_v=[np.ones((6, 2))] * 2), r"w_v \(2, 6, 2\)"),
    (dict(x=np.ones(6)), r"x \(6,\)"), (dict(w_o=np.ones((5, 6))), "matmul.*inner lengths 6 and 5"),
])
def test_bad_heads_are_explained(change, text):
    names = ("x", "w_q", "w_k", "w_v", "w_o", "num_heads")
    call = dict(zip(names, (RNG.normal(size=(2, 4, 6)), *heads(), 3), strict=True)) | change
    with pytest.raises(ta.ShapeError, match=text):
        multi_head_attention(*(call[name] if name == "w_v" or not isinstance(call[name],
            np.ndarray) else Tensor(call[name])
                               for name in names))


# -------------------------------------------------------------------------- PyTorch's function of the same meaning

def test_scaled_dot_product_attention_aligns_causal_at_the_upper_left():
    q, k, v = inputs(2, L=3, S=5)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v, is_causal=True),
        loop(q, k, v, np.tri(3, 5) > 0)[0])
    with pytest.raises(ValueError, match="not both"):
        F.scaled_dot_product_attention(q, k, v, np.ones((3, 5), bool), is_causal=True)


def test_grouped_queries_share_keys_and_values():
    q, (_, k, v) = RNG.normal(size=(2, 6, 3, 2)), inputs(2, 3)
    expected = loop(q, np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1))[0]
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, v, enable_gqa=True), expected, atol=1e-14)
    one = inputs(1, 2, L=2, S=2, Dv=2)
    ta.gradcheck(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
                 (RNG.normal(size=(1, 4, 2, 2)), *one[1:]))
    with pytest.raises(ta.ShapeError, match=r"query \(2, 6, 3, 2\) cannot share the heads of \(2, 4, 4, 2\)"):
        F.scaled_dot_product_attention(q, np.ones((2, 4, 4, 2)), np.ones((2, 4, 4, 2)), enable_gqa=True)


def test_lengths_may_be_zero():
    one = np.ones((1, 2, 2))
    assert multi_head_attention(np.zeros((0, 2)), one, one, one, np.ones((2, 2)), 1).shape == (0, 2)
    output, weights = attention(np.ones((3, 2)), np.ones((0, 2)), np.ones((0, 4)))
    assert (output.tolist(), weights.shape) == (np.zeros((3, 4)).tolist(), (3, 0))
