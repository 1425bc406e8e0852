"""Every primitive, by one table: its value against NumPy, its vjps against finite differences to order 2, its dtype."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import tinygrad_attn as ta
from tinygrad_attn import Tensor, gradcheck, ops
from tinygrad_attn.engine import Primitive

PRIMITIVES = {op for op in vars(ops).values() if isinstance(op, Primitive)}

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 3))         # no ties, nothing at a kink: asserted below
ROW, COLUMN = RNG.normal(size=3), RNG.normal(size=(2, 1))
POSITIVE = RNG.uniform(0.5, 2.0, size=(2, 3))
CUBE = RNG.normal(size=(2, 3, 4))
SQUARE = RNG.normal(size=(3, 3))
POWERS = np.array([0, 1, 2], np.int8)
MASK = np.array([[True, False, True], [True, True, False]])
NOTHING = np.array([[True, False, True], [False, False, False]])


def reference_softmax(x, axis=-1, where=True):
    e = np.where(where, np.exp(x), 0)
    total = e.sum(axis=axis, keepdims=True)
    return np.divide(e, total, where=total > 0, out=np.zeros_like(e))


def reference_scatter(x, index, shape):
    out = np.zeros(shape)
    for place in np.ndindex(x.shape):
        out[np.arange(math.prod(shape)).reshape(shape)[index][place] // shape[1],
            np.arange(math.prod(shape)).reshape(shape)[index][place] % shape[1]] += x[place]
    return out


# (primitive, what is called, on which inputs, what NumPy says). Constants that are not differentiated are
# bound by the lambda.
CASES = [
    (ops.add, lambda x, y: x + y, (A, B), np.add),
    (ops.add, lambda x, y: x + y, (A, ROW), np.add),
    (ops.subtract, lambda x, y: x - y, (A, COLUMN), np.subtract),
    (ops.subtract, lambda x: 2.0 - x, (A,), lambda x: 2 - x),
    (ops.multiply, lambda x, y: x * y, (ROW, COLUMN), np.multiply),
    (ops.multiply, lambda x: x * x, (A,), np.square),
    (ops.divide, lambda x, y: x / y, (A, POSITIVE), np.divide),
    (ops.divide, lambda y: 1 / y, (POSITIVE,), np.reciprocal),
    (ops.negative, lambda x: -x, (A,), np.negative),
    (ops.power, lambda x: x ** 3, (A,), lambda x: x ** 3),
    (ops.power, lambda x: x ** 0, (A,), np.ones_like),
    (ops.power, lambda x, y: x ** y, (POSITIVE, ROW), np.power),
    (ops.power, lambda y: 2 ** y, (A,), np.exp2),
    (ops.power, lambda x: x ** POWERS, (A,), lambda x: x ** POWERS),
    (ops.matmul, lambda x, y: x @ y, (A, SQUARE), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (ROW, SQUARE), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (SQUARE, ROW), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (ROW, ROW[::-1]), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (CUBE, RNG.normal(size=(4, 2))), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (CUBE, RNG.normal(size=4)), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (RNG.normal(size=3), CUBE), np.matmul),
    (ops.matmul, lambda x, y: x @ y, (RNG.normal(size=(2, 1, 2, 3)), RNG.normal(size=(3, 3, 2))), np.matmul),
    (ops.exp, ops.exp, (A,), np.exp),
    (ops.log, ops.log, (POSITIVE,), np.log),
    (ops.sqrt, ops.sqrt, (POSITIVE,), np.sqrt),
    (ops.tanh, ops.tanh, (A,), np.tanh),
    (ops.softplus, ops.softplus, (A,), lambda x: np.log(1 + np.exp(x))),
    (ops.sigmoid, ops.sigmoid, (A,), lambda x: 1 / (1 + np.exp(-x))),
    (ops.erf, ops.erf, (A,), lambda x: np.reshape([math.erf(v) for v in x.flat], x.shape)),
    (ops.relu, ops.relu, (A,), lambda x: np.where(x > 0, x, 0)),
    (ops.abs, abs, (A,), np.abs),
    (ops.clip, lambda x: x.clip(-0.5, 0.5), (A,), lambda x: np.minimum(np.maximum(x, -0.5), 0.5)),
    (ops.clip, lambda x: x.clip(max=0.2), (A,), lambda x: np.minimum(x, 0.2)),
    (ops.astype, lambda x: x.astype(np.float64), (A,), lambda x: x),
    (ops.where, lambda x, y: ops.where(MASK, x, y), (A, ROW), lambda x, y: np.where(MASK, x, y)),
    (ops.maximum, ops.maximum, (A, B), np.maximum),
    (ops.maximum, lambda x: ops.maximum(x, 0.1), (A,), lambda x: np.maximum(x, 0.1)),
    (ops.minimum, ops.minimum, (A, ROW), np.minimum),
    (ops.tril, lambda x: ops.tril(x), (SQUARE,), np.tril),
    (ops.tril, lambda x: np.tril(x, -1), (CUBE,), lambda x: np.tril(x, -1)),
    (ops.triu, lambda x: np.triu(x, k=1), (A,), lambda x: np.triu(x, 1)),
    (ops.sum, lambda x: x.sum(), (A,), np.sum),
    (ops.sum, lambda x: x.sum(axis=(0, -1)), (CUBE,), lambda x: x.sum((0, 2))),
    (ops.sum, lambda x: x.sum(axis=1, keepdims=True), (CUBE,), lambda x: x.sum(1, keepdims=True)),
    (ops.sum, lambda x: x.sum(axis=()), (A,), lambda x: x),
    (ops.mean, lambda x: x.mean(), (A,), np.mean),
    (ops.mean, lambda x: x.mean(axis=(-1, 0)), (CUBE,), lambda x: x.mean((0, 2))),
    (ops.var, lambda x: x.var(), (A,), np.var),
    (ops.var, lambda x: x.var(axis=-1, ddof=1, keepdims=True), (CUBE,), lambda x: x.var(-1, ddof=1, keepdims=True)),
    (ops.max, lambda x: x.max(), (A,), np.max),
    (ops.max, lambda x: x.max(axis=(0, 2)), (CUBE,), lambda x: x.max((0, 2))),
    (ops.min, lambda x: x.min(axis=-1, keepdims=True), (CUBE,), lambda x: x.min(-1, keepdims=True)),
    (ops.cumsum, lambda x: x.cumsum(axis=-2), (CUBE,), lambda x: x.cumsum(1)),
    (ops.cumsum, lambda x: x.cumsum(), (A,), np.cumsum),
    (ops.softmax, ops.softmax, (A,), reference_softmax),
    (ops.softmax, lambda x: x.softmax(axis=1), (CUBE,), lambda x: reference_softmax(x, 1)),
    (ops.softmax, lambda x: x.softmax(where=NOTHING), (A,), lambda x: reference_softmax(x, -1, NOTHING)),
    (ops.softmax, lambda x: ops.softmax(x, axis=(0, 1), where=MASK), (A,),
         lambda x: reference_softmax(x, (0, 1), MASK)),
    (ops.logsumexp, ops.logsumexp, (A,), lambda x: np.log(np.exp(x).sum(-1))),
    (ops.logsumexp, lambda x: ops.logsumexp(x, axis=(0, 1), keepdims=True), (A,),
     lambda x: np.log(np.exp(x).sum(keepdims=True))),
    (ops.log_softmax, lambda x: x.log_softmax(axis=0), (A,), lambda x: np.log(reference_softmax(x, 0))),
    (ops.reshape, lambda x: x.reshape(3, -1), (A,), lambda x: x.reshape(3, 2)),
    (ops.squeeze, lambda x: x.squeeze(), (COLUMN,), np.ravel),
    (ops.squeeze, lambda x: x.squeeze(axis=-1), (COLUMN,), np.ravel),
    (ops.expand_dims, lambda x: x.expand_dims((0, 2)), (A,), lambda x: x[None, :, None]),
    (ops.transpose, lambda x: x.transpose(), (A,), np.transpose),
    (ops.transpose, lambda x: x.transpose(1, -1, 0), (CUBE,), lambda x: x.transpose(1, 2, 0)),
    (ops.swapaxes, lambda x: x.swapaxes(0, -1), (CUBE,), lambda x: x.swapaxes(0, 2)),
    (ops.broadcast_to, lambda x: x.broadcast_to((4, 2, 3)), (COLUMN,), lambda x: np.broadcast_to(x, (4, 2, 3))),
    (ops._concatenate, lambda x, y: ta.concatenate([x, y, x], axis=-1), (A, COLUMN), lambda x, y: np.hstack([x, y, x])),
    (ops._concatenate, lambda x, y: ta.concatenate([x, y], axis=None), (A, COLUMN),
     lambda x, y: np.concatenate([x, y], axis=None)),
    (ops._concatenate, lambda x, y: ta.stack([x, y], axis=1), (A, B), lambda x, y: np.stack([x, y], 1)),
    (ops.getitem, lambda x: x[0], (A,), lambda x: x[0]),
    (ops.getitem, lambda x: x[..., 1:, None, ::-2], (CUBE,), lambda x: x[..., 1:, None, ::-2]),
    (ops.getitem, lambda x: x[[1, 0, -1, 1]], (A,), lambda x: x[[1, 0, 1, 1]]),
    (ops.getitem, lambda x: x[MASK], (A,), lambda x: x[MASK]),
    (ops.getitem, lambda x: x[:, [0, 0], np.array([[1], [3]])], (CUBE,), lambda x: x[:, [0, 0], np.array([[1], [3]])]),
    (ops.getitem, lambda x: x[[True, False], 1], (A,), lambda x: x[0:1, 1]),
    (ops.getitem, lambda x: ta.concatenate([x[[]], x]), (A,), lambda x: x),
    (ops.scatter, lambda x: ops.scatter(x, index=(np.array([0, 1, 0]),), shape=(2, 3)), (SQUARE,),
     lambda x: reference_scatter(x, (np.array([0, 1, 0]),), (2, 3))),
    (ops._einsum, lambda x, y: ta.einsum("ij,kj->ik", x, y), (A, SQUARE), lambda x, y: x @ y.T),
    (ops._einsum, lambda x: ta.einsum(",i->i", np.int8(2), x), (ROW,), lambda x: 2 * x),
    (ops._einsum, lambda x: ta.einsum("ii", x), (SQUARE,), np.trace),
    (ops._einsum, lambda x: ta.einsum("ii->i", x), (SQUARE,), np.diagonal),
    (ops._einsum, lambda x: ta.einsum("iji->j", x), (RNG.normal(size=(2, 3, 2)),),
         lambda x: np.trace(x, axis1=0, axis2=2)),
    (ops._einsum, lambda x, y: ta.einsum("ij,k->k", x, y), (A, ROW), lambda x, y: x.sum() * y),
    (ops._einsum, lambda x, y: ta.einsum("...ij,jk", x, y), (CUBE, RNG.normal(size=(4, 2))), np.matmul),
    (ops._einsum, lambda x, y, z: ta.einsum("bi, ij, bj -> b", x, y, z), (A, SQUARE, B),
     lambda x, y, z: (x @ y * z).sum(1)),
    (ops._einsum, lambda x, y: ta.einsum("...i,...i->...", x, y), (CUBE, RNG.normal(size=(3, 1))),
     lambda x, y: (x * y).sum(-1)),
]
IDS = [f"{op.name}-{i}" for i, (op, *_) in enumerate(CASES)]


def test_the_table_covers_every_primitive():
    assert {op for op, *_ in CASES} == PRIMITIVES


@pytest.mark.parametrize(("op", "call", "inputs", "reference"), CASES, ids=IDS)
def test_the_value_is_numpys_and_the_op_is_recorded(op, call, inputs, reference):
    out = call(*[Tensor(x, requires_grad=True) for x in inputs])
    np.testing.assert_allclose(out.numpy(), reference(*inputs), rtol=1e-13, atol=1e-14)
    ops_used, pending = set(), [out.node]
    while pending:
        node = pending.pop()
        ops_used.add(node.op)
        pending += [x.node for x in node.inputs if x is not None and x.node]
    assert op in ops_used


@pytest.mark.parametrize(("op", "call", "inputs", "reference"), CASES, ids=IDS)
def test_gradients_agree_with_finite_differences_to_order_2(op, call, inputs, reference):
    gradcheck(call, inputs, order=2, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("op", "call", "inputs", "reference"), CASES, ids=IDS)
def test_the_dtype_of_the_inputs_is_kept_in_value_and_gradient(op, call, inputs, reference, dtype):
    if op is ops.astype:
        call = lambda x: x.astype(dtype)
    xs = [Tensor(x, requires_grad=True, dtype=dtype) for x in inputs]
    out = call(*xs)
    assert out.dtype == dtype
    out.sum().backward()
    for x in xs:
        assert type(x.grad) is np.ndarray
        assert (x.grad.dtype, x.grad.shape) == (dtype, x.shape)


@pytest.mark.parametrize(("op", "call", "inputs", "reference"), CASES, ids=IDS)
def test_a_plain_array_gives_a_plain_array(op, call, inputs, reference):
    with ta.no_grad():
        recorded = call(*[Tensor(x) for x in inputs])
    assert recorded.node is None
    if not isinstance(call, Primitive):
        return
    assert not isinstance(call(*inputs), Tensor)
    np.testing.assert_array_equal(call(*inputs), recorded.numpy())


def test_no_case_stands_at_a_kink_or_a_tie():
    distances = [np.abs(np.subtract.outer(A, [0, 0.1, 0.2, 0.5, -0.5])), np.abs(A - B), np.abs(A - ROW)]
    distances += [np.diff(np.sort(x, axis=None)) for x in (A, B, ROW, COLUMN, CUBE)]
    assert min(d.min() for d in distances) > 1e-4


BINARY = {ops.add: np.add, ops.subtract: np.subtract, ops.multiply: np.multiply, ops.divide: np.divide,
          ops.power: np.power, ops.maximum: np.maximum, ops.minimum: np.minimum,
          ops.where: lambda x, y: np.where(x > 1, x, y)}


@settings(deadline=None, max_examples=60)
@given(shapes=mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=3),
       op=st.sampled_from(sorted(BINARY, key=lambda op: op.name)), seed=st.integers(0, 99))
def test_any_two_broadcastable_shapes_work_and_each_input_gets_a_gradient_of_its_own_shape(shapes, op, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(0.5, 2.0, shape) for shape in shapes.input_shapes)
    call = (lambda x, y: ops.where(np.asarray(x.data) > 1, x, y)) if op is ops.where else op
    tx, ty = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    out = call(tx, ty)
    np.testing.assert_allclose(out.numpy(), BINARY[op](x, y), rtol=1e-14)
    assert out.shape == shapes.result_shape
    g = rng.normal(size=out.shape)
    out.backward(g)
    assert (tx.grad.shape, ty.grad.shape) == (x.shape, y.shape)
    for t, array, other in ((tx, x, 0), (ty, y, 1)):            # the directional derivative along all of one input
        def moved(step, other=other):
            args = [Tensor(x + step * (other == 0)), Tensor(y + step * (other == 1))]
            return float((call(*args).numpy() * g).sum())
        if op not in (ops.where, ops.maximum, ops.minimum) and array.size:
            numeric = (moved(1e-6) - moved(-1e-6)) / 2e-6
            np.testing.assert_allclose(t.grad.sum(), numeric, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(shapes=mutually_broadcastable_shapes(signature=np.matmul.signature, max_side=3, max_dims=3),
       seed=st.integers(0, 99))
def test_matmul_takes_all_shapes_that_numpy_takes(shapes, seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=shape) for shape in shapes.input_shapes)
    tx, ty = Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)
    out = tx @ ty
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-13, atol=1e-14)
    g = rng.normal(size=out.shape)
    out.backward(g)
    dx, dy = rng.normal(size=x.shape), rng.normal(size=y.shape)   # bilinear: exact directional derivatives
    np.testing.assert_allclose((tx.grad * dx).sum(), (g * (dx @ y)).sum(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((ty.grad * dy).sum(), (g * (x @ dy)).sum(), rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(data=st.data(), seed=st.integers(0, 99))
def test_reductions_take_all_axes(data, seed):
    shape = data.draw(st.lists(st.integers(1, 3), max_size=4).map(tuple))
    axes = st.none() | st.lists(st.sampled_from(range(-len(shape), len(shape))) if shape else st.nothing(),
                                unique_by=lambda a: a % max(len(shape), 1)).map(tuple)
    axis, keepdims = data.draw(axes), data.draw(st.booleans())
    x = np.random.default_rng(seed).normal(size=shape)
    for op in (ops.sum, ops.mean, ops.max, ops.min, ops.var):
        t = Tensor(x, requires_grad=True)
        out = op(t, axis=axis, keepdims=keepdims)
        expected = getattr(np, op.name)(x, axis=axis, keepdims=keepdims)
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-13)
        assert out.shape == np.shape(expected)
        out.sum().backward()
        share = {ops.sum: x.size, ops.var: 0.0}.get(op, out.size)   # Σ of the gradient of Σ out
        np.testing.assert_allclose(t.grad.sum(), share, rtol=1e-12, atol=1e-12)


def test_second_derivatives_by_name():
    x = Tensor(2.0, requires_grad=True)
    first = ta.grad(x ** 3, x, create_graph=True)
    second = ta.grad(first, x, create_graph=True)
    assert (first.item(), second.item(), ta.grad(second, x).item()) == (12.0, 12.0, 6.0)


def test_softmax_has_the_jacobian_of_the_book():
    p = reference_softmax(ROW)
    np.testing.assert_allclose(ta.jacobian(ta.softmax, ROW).numpy(), np.diag(p) - np.outer(p, p), atol=1e-15)


def test_a_vjp_runs_only_for_an_input_that_needs_it():
    calls = []

    @ta.primitive
    def product(x, y):
        return x * y
    product.defvjp(lambda g, out, x, y: calls.append("x") or g * y, lambda g, out, x, y: calls.append("y") or g * x)
    product(Tensor(2.0), Tensor(3.0, requires_grad=True)).backward()
    assert calls == ["y"]
    x, y = Tensor(2.0, requires_grad=True), Tensor(3.0, requires_grad=True)
    ta.grad(product(x, y), x)
    assert calls == ["y", "x"]


def test_defvjp_counts():
    @ta.primitive
    def product(x, y, *, scale=1):
        return x * y * scale
    with pytest.raises(TypeError, match=r"product\.defvjp: 1 vjps for 2 positional arguments"):
        product.defvjp(lambda g, out, x, y: g)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda t: t + np.ones((2, 4)), ta.ShapeError, r"add\(\(2, 3\), \(2, 4\)\): lengths 3 and 4 at axis -1 differ"),
    (lambda t: t @ np.ones((2, 3)), ta.ShapeError, r"matmul: \(2, 3\) @ \(2, 3\): inner lengths 3 and 2 differ"),
    (lambda t: np.ones((4, 5, 2)) @ t[None].broadcast_to((3, 2, 3)), ta.ShapeError, "batch axes: lengths 3 and 4"),
    (lambda t: t @ 2.0, ta.ShapeError, r"matmul: .*0-d; write \*"),
    (lambda t: t.reshape(4, 2), ta.ShapeError, r"reshape\(\(2, 3\), shape=\(4, 2\)\): cannot reshape"),
    (lambda t: t.sum(axis=2), ta.ShapeError, r"sum\(\(2, 3\), axis=2.*axis 2 is out of bounds"),
    (lambda t: ops.softmax(t, -1), TypeError, r"softmax.*takes 1 positional.*by keyword: axis, where"),
    (lambda t: ops.softmax(t, dim=1), TypeError, r"softmax.*unexpected keyword.*axis, where"),
    (lambda t: t.softmax(where=np.ones((2, 3), int)), TypeError, "where= must be boolean"),
    (lambda t: t.softmax(where=np.ones((4, 2, 3), bool)), ta.ShapeError, "does not broadcast to x"),
    (lambda t: t.clip(min=t), TypeError, r"clip.*no gradient flows through min=.*detach"),
    (lambda t: t + "a", TypeError, "str is not a number"),
    (lambda t: t * np.array(["a"]), TypeError, "is not a number"),
    (lambda t: ta.concatenate([t, np.ones((3, 2))]), ta.ShapeError, r"concatenate\(\(2, 3\), \(3, 2\), axis=0\)"),
    (lambda t: ta.stack([t, t[0]]), ta.ShapeError, r"stack: .*\(2, 3\), \(3,\)"),
    (lambda t: ta.stack([]), ta.ShapeError, "one or more arrays"),
    (lambda t: np.ones((5, 4, 2)) @ t[None].broadcast_to((3, 2, 3)), ta.ShapeError, "lengths 3 and 5 at axis -3"),
    (lambda t: t + None, TypeError, r"add\(\(2, 3\)\): NoneType is not a number"),
    (lambda t: ta.einsum("ij", t, t), ta.ShapeError, "einsum: 'ij' with 2 operands"),
    (lambda t: ta.einsum("ij,jk->ik", t, t), ta.ShapeError, "einsum"),
    (lambda t: ta.einsum("...j->j", t), ta.ShapeError, r"einsum: the output of '\.\.\.j->j' must have the '\.\.\.'"),
    (lambda t: t.max(axis=0)[5], IndexError, "out of bounds"),
    (lambda t: t ** np.ones((2, 4)), ta.ShapeError, r"power\(\(2, 3\), \(2, 4\)\): lengths 3 and 4 at axis -1"),
    (lambda t: Tensor([1, 2]) ** -1, TypeError, "power.*integer to a negative power"),
    (lambda t: ta.functional.dropout(t, 0.5), ValueError, "rng="),
    (lambda t: ta.functional.dropout(t, 1.0, rng=0), ValueError, "below 1"),
])
def test_errors_name_the_op_the_shapes_the_rule_and_the_remedy(call, error, text):
    t = Tensor(A, requires_grad=True)
    with pytest.raises(error, match=text):
        call(t)
    np.testing.assert_array_equal(t.numpy(), A)
    assert t.grad is None


@pytest.mark.parametrize("flat", [lambda x: x.relu(), lambda x: x.clip(0.0), lambda x: ops.maximum(x, 0.0)])
def test_a_flat_piece_sends_back_zero_whatever_comes(flat):
    x = Tensor([-1.0, 4.0], requires_grad=True)
    with np.errstate(divide="ignore"):      # √′(0) = ∞
        flat(x).sqrt().sum().backward()
    np.testing.assert_array_equal(x.grad, [0.0, 0.25])


def test_variance_without_degrees_of_freedom_has_no_gradient_either():
    for ddof in (3, 4):
        x = Tensor([1.0, 2.0, 4.0], requires_grad=True)
        with pytest.warns(RuntimeWarning), np.errstate(all="ignore"):
            out = x.var(ddof=ddof)
        out.backward()
        assert np.isnan(x.grad).all()


def test_einsum_of_many_operands_is_factored():
    a, b, c, d = (RNG.normal(size=(60, 60)) for _ in range(4))
    out = ta.einsum("ij,jk,kl,lm->im", *(Tensor(x, requires_grad=True) for x in (a, b, c, d)))   # 60⁵ unfactored
    np.testing.assert_allclose(out.numpy(), a @ b @ c @ d, rtol=1e-9, atol=1e-9)
    out.sum().backward()


def test_half_precision_does_not_stop_counting_at_2048():
    x = Tensor(np.ones(3, np.float16), requires_grad=True)
    x[np.zeros(5000, int)].sum().backward()
    np.testing.assert_array_equal(x.grad, [5000, 0, 0])
    assert ops.cumsum(np.ones(5000, np.float16), axis=0)[-1] == 5000


def test_the_exponents_gradient_at_zero_is_that_of_the_limit():
    for y, slope in ((2.0, 0.0), (0.0, 0.0), (-1.0, -np.inf)):
        e = Tensor(y, requires_grad=True)
        with np.errstate(divide="ignore"):
            (0.0 ** e).backward() if y >= 0 else (np.zeros(()) ** e).backward()
        assert e.grad == slope
