"""Faults that users of autodiff frameworks really met, each with the value that is right.

The id in a name (ACC = accumulation, BC = broadcasting, …) is the same for all tests of one fault. Expected
numbers are worked out by hand, or by NumPy without this package.
"""

import asyncio
import contextlib
import copy
import gc
import itertools
import math
import operator
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tinygrad_attn import (
    GradcheckError,
    GraphFreedError,
    ShapeError,
    Tensor,
    attention,
    causal_mask,
    concatenate,
    einsum,
    enable_grad,
    grad,
    gradcheck,
    hessian,
    jacobian,
    jvp,
    log_softmax,
    logsumexp,
    maximum,
    minimum,
    multi_head_attention,
    no_grad,
    ops,
    padding_mask,
    primitive,
    softmax,
    stack,
    vjp,
    where,
)
from tinygrad_attn import functional as F

INF, NAN = math.inf, math.nan
loud = np.errstate(all="raise", under="ignore")         # a decorator: no overflow, no 0/0, no ∞ − ∞ on the way


def leaf(data, dtype=None):
    return Tensor(data, requires_grad=True, dtype=dtype)


def near(actual, expected, tol=1e-12):
    """Equal in shape, and in value up to `tol`."""
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def grads(fn, *arrays, seed=None, dtype=None):
    """The .grad of fresh leaves of the arrays, after fn(*leaves).backward(seed)."""
    xs = [leaf(a, dtype) for a in arrays]
    fn(*xs).backward(seed)
    return xs[0].grad if len(xs) == 1 else [x.grad for x in xs]


def uses(shape, op, seed):
    """The gradient of an op that only moves or repeats elements: each place sums the seeds of its copies."""
    places = op(np.arange(math.prod(shape)).reshape(shape))
    return np.bincount(places.ravel(), np.asarray(seed).ravel(), minlength=math.prod(shape)).reshape(shape)


def steps(shape, fn, seed):
    """The gradient of an fn that is linear in its argument: its value at each unit array, weighed by the seed."""
    n = math.prod(shape)
    units = np.eye(n).reshape(n, *shape)
    return np.reshape([(fn(unit) * seed).sum() for unit in units], shape)


# -------------------------------------------------------------------------------------------------- accumulation

def test_ACC_01_a_reused_result_counts_each_use_once():
    def doubled_twice(a):
        b = a + a
        return b + b
    near(grads(doubled_twice, -1.5), 4.0)

    def unequal_paths(x):
        h = 2 * x
        return h * h + h * x + x
    assert unequal_paths(Tensor(3.0)).item() == 57
    near(grads(unequal_paths, 3.0), 37.0)


def test_ACC_01_sixty_doublings_are_walked_by_node_not_by_path():
    x = y = leaf([1.0, 2.0])
    for _ in range(60):
        y = y + y
    y.sum().backward()
    near(x.grad, [2.0**60, 2.0**60])


@pytest.mark.parametrize("number", range(10))
def test_ACC_01_random_graphs_agree_with_the_complex_step(number):
    def program(x):
        rng, pool = np.random.default_rng(number), [x, 2 * x]
        for _ in range(30):
            i, j = rng.integers(len(pool), size=2)
            a, b = pool[i], pool[j]
            pool.append((0.5 * (a + b), a - b, 0.5 * a * b, 1 - a, a / 2)[rng.integers(5)])
        return pool[-1] + pool[-2] * x
    near(grads(program, 0.7), program(0.7 + 1e-30j).imag / 1e-30, tol=1e-9)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_ACC_01_the_order_of_use_does_not_matter(order):
    def fn(x):
        h = x.exp()
        terms = [lambda: h * x, lambda: (h + h).sum(), lambda: h[1] * 3]
        total = 0
        for i in order:
            total = total + terms[i]().sum()
        return total
    x = np.array([0.5, -1.0])
    near(grads(fn, x), np.exp(x) * (x + 1) + 2 * np.exp(x) + np.array([0, 3]) * np.exp(x))


SAME_OPERAND_TWICE = {
    "x*x": (lambda x: x * x, [6, -8]),
    "x+x": (lambda x: x + x, [2, 2]),
    "x-x": (lambda x: x - x, [0, 0]),
    "x/x": (lambda x: x / x, [0, 0]),
    "x-x+x/x": (lambda x: x - x + x / x, [0, 0]),
    "x@x": (lambda x: x @ x, [6, -8]),
    "x*x*x": (lambda x: x * x * x, [27, 48]),
    "abs(x)**x": (lambda x: abs(x) ** abs(x), [27 * (math.log(3) + 1), -256 * (math.log(4) + 1)]),
    "concatenate": (lambda x: concatenate([x, x]), [2, 2]),
    "concatenate3": (lambda x: concatenate([x, x, x]), [3, 3]),
    "stack": (lambda x: stack([x, x], axis=1), [2, 2]),
    "where": (lambda x: where(np.array([True, False]), x, x), [1, 1]),
    "maximum": (lambda x: maximum(x, x), [1, 1]),
    "minimum": (lambda x: minimum(x, x), [1, 1]),
    "einsum": (lambda x: einsum("i,i->", x, x), [6, -8]),
    "outer": (lambda x: einsum("i,j->ij", x, x), [-2, -2]),
    "outer@": (lambda x: x[:, None] @ x[None, :], [-2, -2]),
    "linear": (lambda x: F.linear(x[None], x[None], x[:1]), [7, -8]),
}


@pytest.mark.parametrize("case", SAME_OPERAND_TWICE)
def test_ACC_02_one_tensor_as_several_operands_gets_every_share(case):
    fn, expected = SAME_OPERAND_TWICE[case]
    near(grads(lambda x: fn(x).sum(), [3.0, -4.0]), np.array(expected, float))


def test_ACC_02_self_attention_adds_the_shares_of_query_key_and_value():
    x = np.random.default_rng(0).normal(size=(3, 2))
    together = grads(lambda x: (attention(x, x, x)[0] ** 2).sum(), x)
    near(together, sum(grads(lambda q, k, v: (attention(q, k, v)[0] ** 2).sum(), x, x, x)))


def test_ACC_03_the_two_operands_of_add_do_not_share_a_buffer():
    x, y = leaf(1.0), leaf(2.0)
    z = x + y
    (z + 10 * x).backward()
    near(x.grad, 11.0)
    near(y.grad, 1.0)

    x, y = leaf([1.0, 1.0]), leaf([2.0, 2.0])
    (x + y).backward(np.ones(2))
    x.grad[...] = 0
    near(y.grad, [1.0, 1.0])


PASSES_ITS_SEED_ON = {
    "leaf itself": lambda x: x,
    "+0": lambda x: x + 0,
    "0+": lambda x: 0 + x,
    "-0": lambda x: x - 0,
    "pos": lambda x: +x,
    "index": lambda x: x[:],
    "ellipsis": lambda x: x[...],
    "reshape": lambda x: x.reshape(2, 2),
    "swap twice": lambda x: x.swapaxes(0, 1).swapaxes(0, 1),
    "squeeze": lambda x: x[None].squeeze(0),
    "astype": lambda x: x.astype(np.float64),
    "broadcast_to": lambda x: x.broadcast_to((2, 2)),
    "concatenate": lambda x: concatenate([x]),
    "where": lambda x: where(np.ones((2, 2), bool), x, 0.0),
    "sum of no axes": lambda x: x.sum(axis=()),
    "dropout off": lambda x: F.dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("case", PASSES_ITS_SEED_ON)
def test_ACC_03_the_seed_of_the_caller_is_neither_kept_nor_changed(case):
    x, seed = leaf(np.ones((2, 2))), np.full((2, 2), 3.0)
    PASSES_ITS_SEED_ON[case](x).backward(seed)
    assert not np.shares_memory(x.grad, seed)
    PASSES_ITS_SEED_ON[case](x).backward(seed)
    near(x.grad, np.full((2, 2), 6.0))
    x.grad *= 0
    near(seed, np.full((2, 2), 3.0))


@pytest.mark.parametrize("join", [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: concatenate([x, y]), lambda x, y: stack([x, y]),
    lambda x, y: x.T + y.T, lambda x, y: x[::-1] + y[::-1], lambda x, y: einsum("ij,ij->ij", x, y) + x + y])
def test_ACC_03_no_two_gradients_share_memory(join):
    x, y = leaf(np.ones((2, 2))), leaf(np.ones((2, 2)))
    join(x, y).sum().backward()
    dx, dy = grad(join(x, y).sum(), (x, y))
    arrays = [x.grad, y.grad, x.data, y.data, dx.data, dy.data]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))
    assert x.grad.flags.writeable


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_ACC_03_a_copied_leaf_accumulates_into_a_gradient_of_its_own(duplicate):
    x = leaf([1.0, 2.0])
    (x * 3).sum().backward()
    twin = duplicate(x)
    (twin * 2).sum().backward()
    near(x.grad, [3.0, 3.0])


def test_ACC_05_a_second_walk_adds_the_same_again_and_no_more():
    x = leaf(2.0)
    h = 3 * x
    y = h * h
    y.backward(retain_graph=True)
    near(x.grad, 36.0)
    assert h.grad is None
    y.backward()
    near(x.grad, 72.0)
    with pytest.raises(GraphFreedError, match="retain_graph"):
        y.backward()
    near(x.grad, 72.0)


def test_ACC_05_two_losses_on_one_trunk_add_up_or_say_that_it_was_freed():
    x = leaf([1.0, 2.0])
    h = x * x
    (h * 3).sum().backward(retain_graph=True)
    (h * 5).sum().backward()
    near(x.grad, [16.0, 32.0])
    before = x.grad.copy()
    with pytest.raises(GraphFreedError, match="multiply"):
        (h + x).sum().backward()
    near(x.grad, before)


def test_ACC_05_grad_leaves_every_gradient_alone_and_can_be_repeated():
    x = leaf(2.0)
    h = 3 * x
    y = h * h
    for _ in range(3):
        dx, dh = grad(y, (x, h))
        near(dx, 36.0)
        near(dh, 12.0)
    assert x.grad is None
    assert h.grad is None


# -------------------------------------------------------------------------------------------------- broadcasting

@pytest.mark.parametrize("value", [2.0, np.float64(2.0), np.array(2.0)])
def test_BC_01_the_gradient_of_a_0d_tensor_is_a_0d_array(value):
    v = leaf(value)
    (np.ones(2) * v).sum().backward()
    assert type(v.grad) is np.ndarray
    near(v.grad, 2.0)
    v.grad += 1                                         # in place, as an optimiser does
    (v * v).backward()
    near(v.grad, 7.0)


OPERATORS = {
    "add": (operator.add, lambda x, y: (1 + 0 * x * y, 1 + 0 * x * y)),
    "subtract": (operator.sub, lambda x, y: (1 + 0 * x * y, -1 + 0 * x * y)),
    "multiply": (operator.mul, lambda x, y: (y + 0 * x, x + 0 * y)),
    "divide": (operator.truediv, lambda x, y: (1 / y + 0 * x, -x / y**2)),
    "power": (operator.pow, lambda x, y: (y * x ** (y - 1), x**y * np.log(x))),
    "maximum": (maximum, lambda x, y: (1.0 * (x > y), 1.0 * (x < y))),
    "minimum": (minimum, lambda x, y: (1.0 * (x < y), 1.0 * (x > y))),
    "where": (lambda x, y: where([[True], [False]], x, y) + 0 * x * y,
              lambda x, y: (np.array([[1], [0]]) + 0.0 * x * y, np.array([[0], [1]]) + 0.0 * x * y)),
}
SHAPES = [((), (2, 3)), ((1,), (2, 3)), ((3,), (2, 3)), ((1, 3), (2, 3)), ((2, 1), (2, 3)), ((1, 1), (2, 3)),
          ((2, 1), (1, 3)), ((2, 1), (3,)), ((4, 1, 3), (2, 1)), ((), ()), ((1, 2, 1), ()), ((2, 0), (2, 1)),
          ((1, 1, 1), (2, 1, 1))]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_BC_01_a_repeated_operand_gets_the_sum_over_its_repetitions(name, shapes, flip):
    op, derivatives = OPERATORS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2.0, shape) for shape in (shapes[::-1] if flip else shapes)]
    out = op(*arrays)
    seed = rng.normal(size=out.shape)
    for found, x, slope in zip(grads(op, *arrays, seed=seed), arrays, derivatives(*arrays)):
        weighed = np.broadcast_to(slope, out.shape) * seed
        assert type(found) is np.ndarray
        near(found, uses(x.shape, lambda places, s=out.shape: np.broadcast_to(places, s), weighed))


def test_BC_01_shapes_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"add\(\(2, 3\), \(2,\)\)"):
        leaf(np.ones((2, 3))) + leaf(np.ones(2))


# -------------------------------------------------------------------------------------------------------- matmul

def test_MM_01_one_dimensional_operands_have_the_gradients_of_the_derivation():
    A, b = [[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]
    near(leaf(A) @ leaf(b), [17.0, 39.0])
    dA, db = grads(operator.matmul, A, b, seed=[1.0, 1.0])
    near(dA, [[5.0, 6.0], [5.0, 6.0]])
    near(db, [4.0, 6.0])
    dA, db = grads(operator.matmul, A, b, seed=[1.0, 10.0])
    near(dA, [[5.0, 6.0], [50.0, 60.0]])
    near(db, [31.0, 42.0])

    da, db = grads(operator.matmul, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    near(da, [4.0, 5.0, 6.0])
    near(db, [1.0, 2.0, 3.0])

    da, dB = grads(lambda a, B: (a @ B).sum(), [1.0, 2.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    near(da, [6.0, 15.0])
    near(dB, [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])

    dA, dv = grads(lambda A, v: (A @ v).sum(), np.ones((2, 3, 4)), np.ones(4))
    near(dA, np.ones((2, 3, 4)))
    near(dv, [6.0, 6.0, 6.0, 6.0])


MATMUL_SHAPES = [((3,), (3,)), ((2, 2), (2,)), ((2,), (2, 2)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2)),
                 ((3, 3), (3, 3)), ((2, 3, 3), (3,)), ((3,), (2, 3, 3)), ((4, 2, 3), (3, 2)), ((2, 3), (4, 3, 2)),
                 ((4, 2, 3), (4, 3, 2)), ((1, 2, 3), (4, 3, 2)), ((5, 1, 2, 3), (4, 3, 2)), ((5, 4, 2, 3), (3,)),
                 ((3,), (5, 4, 3, 1)), ((1, 1), (1,)), ((2, 0), (0, 3)), ((0,), (0,)), ((0, 2, 3), (3,))]


@pytest.mark.parametrize("shapes", MATMUL_SHAPES, ids=str)
def test_MM_01_every_rank_of_operands_agrees_with_the_bilinear_map(shapes):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape) for shape in shapes)
    seed = rng.normal(size=np.shape(x @ y))
    near(leaf(x) @ leaf(y), x @ y)
    for product in (operator.matmul, np.matmul):
        dx, dy = grads(product, x, y, seed=seed)
        near(dx, steps(x.shape, lambda unit: unit @ y, seed))
        near(dy, steps(y.shape, lambda unit: x @ unit, seed))
    near(grads(lambda t: t @ y, x, seed=seed), dx)      # a plain array on the other side
    near(grads(lambda t: x @ t, y, seed=seed), dy)


@pytest.mark.parametrize("subscripts", ["ij,j->i", "i,ij->j", "i,i->", "ij,kj->ik", "bij,bjk->bik", "bij,jk->ik",
                                        "i,j->ij",
                                        "ii,i->i", "ij,ij->", "...ij,...jk->...ik", "ij,jk", "ij,k->ik"])
def test_MM_01_einsum_agrees_with_the_bilinear_map(subscripts):
    rng = np.random.default_rng(0)
    sides = subscripts.split("->")[0].split(",")
    x, y = (rng.normal(size=tuple(3 if c != "b" else 2 for c in side.replace("...", "b"))) for side in sides)
    seed = rng.normal(size=np.shape(np.einsum(subscripts, x, y)))
    dx, dy = grads(lambda x, y: einsum(subscripts, x, y), x, y, seed=seed)
    near(dx, steps(x.shape, lambda unit: np.einsum(subscripts, unit, y), seed))
    near(dy, steps(y.shape, lambda unit: np.einsum(subscripts, x, unit), seed))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3)])
def test_MM_01_linear_takes_one_vector_as_well_as_a_batch(shape):
    x, w, b = np.random.default_rng(0).normal(size=shape), np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0])
    near(F.linear(leaf(x), leaf(w), leaf(b)), np.einsum("...i,oi->...o", x, w) + b)
    dx, dw, db = grads(lambda *a: F.linear(*a).sum(), x, w, b)
    near(dx, np.broadcast_to(w.sum(0), shape))
    near(dw, np.tile(x.reshape(-1, 3).sum(0), (2, 1)))
    near(db, np.full(2, x.size / 3))


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((3,), (2, 3)), ((2, 3), (2, 3)), ((2, 3, 4), (3, 4, 5)),
                                    ((), (3,)),
                                    ((3,), ())], ids=str)
def test_MM_01_lengths_that_do_not_fit_are_named(shapes):
    with pytest.raises(ShapeError, match=r"matmul: .* @ .*: "):
        leaf(np.ones(shapes[0])) @ leaf(np.ones(shapes[1]))


# --------------------------------------------------------------------------------------------------------- dtype

@pytest.mark.parametrize("data", [[1, 2, 3], 1, True, [True, False], 1j, np.ones(2, np.int8), np.ones(2, np.uint64),
                                  np.zeros((0,), int)], ids=str)
def test_DT_01_only_a_floating_tensor_can_require_a_gradient(data):
    kind = str(np.asarray(data).dtype)
    with pytest.raises(TypeError, match=kind):
        Tensor(data, requires_grad=True)
    with pytest.raises(TypeError, match=kind):
        Tensor(data).requires_grad = True
    near(grads(lambda x: (x * 0.5).sum(), np.real(data), dtype=float), np.full(np.shape(data), 0.5))


def test_DT_01_new_integer_data_of_a_leaf_becomes_floating():
    t = leaf([1.0, 2.0], np.float32)
    t.data = np.array([3, 4])
    assert t.dtype == np.float32
    (t * 0.5).sum().backward()
    near(t.grad, np.array([0.5, 0.5]))
    with pytest.raises(TypeError, match="complex"):
        t.data = np.array([1j, 0])


@pytest.mark.parametrize("integer_valued", [
    lambda t: t.argmax(), lambda t: t.argsort(), lambda t: t > 1, lambda t: t == t,
    lambda t: t != 1, lambda t: operator.le(1, t),
    np.argmax, np.argmin, np.argsort, np.sign, np.floor, np.isnan, lambda t: t.astype(int), lambda t: t.astype(bool)])
def test_DT_01_what_has_no_derivative_is_not_tracked(integer_valued):
    assert not getattr(integer_valued(leaf([1.0, 3.0, 2.0])), "requires_grad", False)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, bool])
def test_DT_01_an_integer_constant_lets_the_gradient_of_its_partner_through(dtype):
    n = np.array([0, 1, 1], dtype)
    for constant in (n, Tensor(n)):
        near(grads(lambda x, c=constant: (x * c * 0.5).sum(), [1.0, 2.0, 3.0]), [0.0, 0.5, 0.5])
        near(grads(lambda x, c=constant: (c @ x), [1.0, 2.0, 3.0]), [0.0, 1.0, 1.0])


KEEPS_DTYPE = {
    "x*2+1": lambda x: x * 2.0 + 1, "2*x-1": lambda x: 2 * x - 1.0, "1-x": lambda x: 1 - x, "2/x": lambda x: 2 / x,
    "x/2": lambda x: x / 2, "x**2": lambda x: x**2, "x**0.5": lambda x: x**0.5, "2**x": lambda x: 2**x,
    "2.0**x": lambda x: 2.0**x, "True*x": lambda x: True * x, "-x": lambda x: -x, "abs": abs,
    "builtin sum": lambda x: sum([x, x]),
    "exp": Tensor.exp, "log": Tensor.log, "sqrt": Tensor.sqrt, "tanh": Tensor.tanh, "relu": Tensor.relu,
    "sigmoid": Tensor.sigmoid, "clip": lambda x: x.clip(0.25, 1.5), "sum": Tensor.sum, "mean": Tensor.mean,
    "var": Tensor.var,
    "max": Tensor.max, "min": Tensor.min, "softmax": Tensor.softmax, "log_softmax": Tensor.log_softmax,
    "logsumexp": logsumexp, "masked softmax": lambda x: softmax(x, where=np.ones(x.shape, bool)),
    "cumsum": lambda x: x.cumsum(), "where": lambda x: where(x > 1, x, 0.5), "maximum": lambda x: maximum(x, 1.25),
    "minimum": lambda x: minimum(1.25, x), "stack": lambda x: stack([x, x]), "index": lambda x: x[..., None],
    "reshape": lambda x: x.reshape(-1), "outer": lambda x: einsum("i,j->ij", x.reshape(-1), x.reshape(-1)),
    "row sums": lambda x: einsum("ij->i", x.reshape(1, -1)), "matmul": lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
    "erf": ops.erf, "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "norm": F.norm,
    "layer_norm": lambda x: F.layer_norm(x.reshape(1, -1)), "dropout": lambda x: F.dropout(x, 0.5, rng=0),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(1, -1), [0]), "np.square": np.square, "np.mean": np.mean,
    "attention": lambda x: attention(x.reshape(-1, 1), x.reshape(-1, 1), x.reshape(-1, 1), causal=True)[0],
    "scaled": lambda x: attention(x.reshape(-1, 1), x.reshape(-1, 1), x.reshape(-1, 1), scale=0.3, dropout=0.1,
                                  rng=0)[0],
    "sdpa": lambda x: F.scaled_dot_product_attention(x.reshape(-1, 1), x.reshape(-1, 1), x.reshape(-1, 1),
                                                     is_causal=True),
    "float64 mask": lambda x: attention(x.reshape(-1, 1), x.reshape(-1, 1), x.reshape(-1, 1), np.zeros((1, 1)))[0],
}


@pytest.mark.parametrize("data", [1.5, [1.0, 2.0]], ids=["0d", "1d"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("case", KEEPS_DTYPE)
def test_DT_02_the_dtype_of_the_input_is_kept_by_output_gradient_and_second_gradient(case, dtype, data):
    x = leaf(data, dtype)
    y = KEEPS_DTYPE[case](x)
    assert y.dtype == dtype
    total = y if y.ndim == 0 else y.sum()
    first = grad(total, x, create_graph=True)
    assert first.dtype == dtype
    if first.requires_grad:
        assert grad(first.sum(), x, allow_unused=True).dtype == dtype
    total.backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
                                operator.matmul,
                                maximum, minimum, lambda x, y: concatenate([x, y]), lambda x, y: einsum("i,i->", x, y),
                                lambda x, y: where([True, False], x, y)])
@pytest.mark.parametrize("flip", [False, True])
def test_DT_02_of_two_dtypes_the_wider_is_the_outputs_and_each_gradient_is_its_owners(op, flip):
    x, y = leaf([1.0, 2.0], np.float32), leaf([3.0, 4.0], np.float64)
    out = op(y, x) if flip else op(x, y)
    assert out.dtype == np.float64
    (out if out.ndim == 0 else out.sum()).backward()
    assert x.grad.dtype == np.float32
    assert y.grad.dtype == np.float64


def test_DT_02_a_numpy_scalar_is_strong_and_a_python_scalar_weak_as_in_numpy():
    x = leaf([1.0, 2.0], np.float32)
    assert (x * np.float32(2)).dtype == np.float32
    assert (np.float64(2) * x).dtype == np.float64
    assert (Tensor(2.0) * x).dtype == np.float64
    assert (2.0 * x).dtype == np.float32
    near(grads(lambda x: (x * x * np.float64(2)).sum(), [1.0, 2.0], dtype=np.float32), [4.0, 8.0])


def test_DT_02_a_seed_of_another_dtype_is_read_in_the_dtype_of_the_value():
    for seed in ([1, 2], np.array([1, 2], np.int64), np.array([1.0, 2.0]), Tensor([1.0, 2.0])):
        x = leaf([1.0, 2.0], np.float32)
        (x * 3).backward(seed)
        assert x.grad.dtype == np.float32
        near(x.grad, [3.0, 6.0])


@loud
def test_DT_04_a_float16_mean_is_finite_where_the_sum_overflows():
    x = leaf(np.full(100, 60000, np.float16))
    y = x.mean()
    assert y.dtype == np.float16
    assert y.item() == 60000
    y.backward()
    assert x.grad.dtype == np.float16
    np.testing.assert_array_equal(x.grad, np.full(100, 0.01000213623046875))


@loud
@pytest.mark.parametrize("axis", [0, -1, (0, 1)])
def test_DT_04_float16_reductions_along_an_axis_do_not_overflow(axis):
    x = np.full((80, 80), 60000, np.float16)
    y = leaf(x).mean(axis=axis)
    np.testing.assert_array_equal(y.numpy(), np.full(y.shape, 60000.0))
    x[::2] -= 1024                                      # 60000 and 58976: half their distance is 512
    assert leaf(x[:, 0]).mean().item() == 59488
    assert leaf(np.array([0, 500], np.float16)).var().item() == np.float16(62500)   # although Σ (x − mean)² is 125000


@loud
def test_DT_04_the_gradient_of_a_float16_mean_over_more_than_65504_elements_is_not_lost():
    x = leaf(np.ones(100_000, np.float16))
    x.mean().backward()
    near(x.grad, np.full(100_000, np.float16(1e-5)), tol=1e-7)


@loud
def test_DT_04_the_gradient_of_a_float16_variance_over_more_than_65504_elements_is_not_lost():
    x = leaf(np.tile(np.array([-100, 100], np.float16), 50_000))
    x.var().backward()
    np.testing.assert_allclose(x.grad, np.tile([-0.002, 0.002], 50_000), rtol=2 * np.finfo(np.float16).eps)


@loud
def test_DT_04_float16_softmax_sums_its_denominator_in_single_precision():
    near(softmax(leaf(np.zeros(80_000, np.float16))), np.full(80_000, np.float16(1 / 80_000)), tol=1e-7)
    near(logsumexp(leaf(np.zeros(80_000, np.float16))), np.float16(math.log(80_000)), tol=1e-2)


@loud
def test_DT_04_float16_layer_norm_squares_in_single_precision():
    x = np.array([-600, 0, 600], np.float16)            # 600² is not a float16
    near(F.layer_norm(leaf(x)), [-1.2247, 0.0, 1.2247], tol=1e-3)
    dx = grads(lambda x: (F.layer_norm(x) * np.array([1, 2, 4], np.float16)).sum(), x)
    near(dx, np.array([1, -2, 1]) / 6 * math.sqrt(1.5) / 600, tol=2e-6)


@loud
def test_DT_04_a_float16_norm_is_finite_where_the_squares_overflow():
    y = F.norm(leaf(np.array([300, 400], np.float16)))
    assert y.item() == 500
    near(grads(F.norm, np.array([300, 400], np.float16)), [0.6, 0.8], tol=1e-3)


@loud
def test_DT_04_a_float16_cross_entropy_is_finite_where_the_sum_of_losses_overflows():
    logits = np.tile(np.array([0, 1000], np.float16), (100, 1))
    assert F.cross_entropy(leaf(logits), np.zeros(100, int)).item() == 1000
    dx = grads(lambda x: F.cross_entropy(x, np.zeros(100, int)), logits)
    near(dx, np.tile([-0.01, 0.01], (100, 1)), tol=1e-4)


@loud
def test_DT_04_float16_attention_is_finite_where_the_scores_before_scaling_overflow():
    x = np.full((2, 64), 32, np.float16)                # q·k = 65536, over √64 it is 8192
    for attend in (lambda x: attention(x, x, x)[0], lambda x: F.scaled_dot_product_attention(x, x, x)):
        near(attend(leaf(x)), x)
        assert np.isfinite(grads(lambda x, f=attend: f(x).sum(), x)).all()


# ----------------------------------------------------------------------------------------------------- stability

@loud
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ST_01_softmax_and_cross_entropy_of_large_logits_are_exact(dtype):
    z = leaf([[-900.0, -300.0, 1200.0]], dtype)
    near(softmax(z), [[0.0, 0.0, 1.0]])
    near(grads(lambda z: softmax(z)[0, 0], z.data), [[0.0, 0.0, 0.0]])
    loss = F.cross_entropy(z, [0])
    assert loss.item() == 2100
    loss.backward()
    near(z.grad, [[-1.0, 0.0, 1.0]])
    near(softmax(leaf([1e4, -1e4, 1e4], dtype)), [0.5, 0.0, 0.5])


@loud
def test_ST_01_log_softmax_is_finite_where_softmax_is_zero():
    near(log_softmax(leaf([0.0, 1000.0])), [-1000.0, 0.0])
    near(grads(lambda z: log_softmax(z)[0], [0.0, 1000.0]), [1.0, -1.0])
    near(grads(lambda z: log_softmax(z)[1], [0.0, 1000.0]), [0.0, 0.0])


@loud
@pytest.mark.parametrize("fn", [softmax, Tensor.softmax])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("big", [1e3, 1e30, 1e300])
def test_ST_01_softmax_along_any_axis_survives_any_size(fn, axis, big):
    z = np.array([[0.0, big], [-big, big]])
    expected = [[1.0, 0.5], [0.0, 0.5]] if axis in (0, -2) else [[0.0, 1.0], [0.0, 1.0]]
    near(fn(leaf(z), axis=axis), expected)
    assert np.isfinite(grads(lambda z: fn(z, axis=axis), z, seed=[[1.0, 2.0], [3.0, 4.0]])).all()
    shifted = log_softmax(leaf(z), axis=axis)
    assert np.isfinite(shifted.numpy()).all()


@loud
def test_ST_01_logsumexp_and_sigmoids_do_not_overflow():
    near(logsumexp(leaf([1000.0, 1000.0])), 1000 + math.log(2))
    near(logsumexp(leaf([-1000.0, -1000.0])), -1000 + math.log(2))
    near(logsumexp(leaf([[1e300], [-1e300]]), axis=0), [1e300])
    x = [-1000.0, 0.0, 1000.0]
    near(leaf(x).sigmoid(), [0.0, 0.5, 1.0])
    near(grads(Tensor.sigmoid, x, seed=np.ones(3)), [0.0, 0.25, 0.0])
    near(leaf(x).tanh(), [-1.0, 0.0, 1.0])
    near(grads(Tensor.tanh, x, seed=np.ones(3)), [0.0, 1.0, 0.0])
    for approximate in ("none", "tanh"):
        near(F.gelu(leaf(x), approximate=approximate), [0.0, 0.0, 1000.0])
        near(grads(lambda x, a=approximate: F.gelu(x, approximate=a), x, seed=np.ones(3)), [0.0, 0.5, 1.0])


@loud
def test_ST_01_attention_with_huge_scores_is_a_hard_lookup():
    q, k, v = [[1e3, 0.0]], [[1e3, 0.0], [-1e3, 0.0]], [[10.0], [20.0]]
    out, weights = attention(leaf(q), leaf(k), leaf(v))
    near(out, [[10.0]])
    near(weights, [[1.0, 0.0]])
    for g in grads(lambda *a: attention(*a)[0].sum(), q, k, v):
        assert np.isfinite(g).all()


HALF = np.float16


@loud
def test_ST_03_a_mask_in_float16_needs_no_constant_for_minus_infinity():
    q, k = np.ones((1, 1), HALF), np.array([[1], [2]], HALF)
    v = np.array([[5], [7]], HALF)
    out, weights = attention(leaf(q), leaf(k), leaf(v), [[True, False]], scale=1.0)
    assert weights.dtype == HALF
    near(weights, [[1.0, 0.0]])
    near(out, [[5.0]])
    near(softmax(leaf(np.array([[1, -100]], HALF)), where=[[True, False]]), [[1.0, 0.0]])
    near(softmax(leaf(np.array([[-60000, 60000]], HALF)), where=[[True, False]]), [[1.0, 0.0]])


@loud
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ST_03_a_fully_masked_row_is_zero_in_every_precision(dtype):
    scores = leaf([[1.0, -100.0], [3.0, 4.0]], dtype)
    weights = softmax(scores, where=[[False, False], [True, True]])
    near(weights[0], [0.0, 0.0])
    near(weights[1].sum(), 1.0, tol=1e-3)
    weights.backward(np.array([[1, 2], [3, 3]], dtype))
    near(scores.grad, np.zeros((2, 2)), tol=1e-2)
    assert not scores.grad[0].any()


@pytest.mark.parametrize("low", [-1e9, -65504.0, -INF])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ST_03_a_float_mask_of_any_low_number_excludes_the_key(low, dtype):
    one = np.ones((1, 1), dtype)
    with np.errstate(over="ignore"):                    # −1e9 is −∞ in float16, and so is −100 − 65504
        _, weights = attention(one, np.array([[1], [-100]], dtype), np.ones((2, 1), dtype), np.array([[0, low]]),
                               scale=1.0)
    near(weights, [[1.0, 0.0]])


# --------------------------------------------------------------------------------------------------------- masks

EYE, V = np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])


@loud
@pytest.mark.parametrize("attend", [lambda *a: attention(*a)[0], F.scaled_dot_product_attention])
@pytest.mark.parametrize("mask", [np.array([[True, True], [False, False]]), np.array([[True], [False]]),
                                  np.array([[0.0, 0.0], [-INF, -INF]])])
def test_MK_01_a_query_that_may_attend_to_nothing_gets_zero_and_sends_zero_back(attend, mask):
    near(attend(EYE, EYE, V, mask), [[1.6604769, 2.6604769], [0.0, 0.0]], tol=1e-7)
    dq, dk, dv = grads(lambda q, k, v: attend(q, k, v, mask).sum(), EYE, EYE, V)
    near(dq, [[-0.62559439, 0.62559439], [0.0, 0.0]], tol=1e-7)
    near(dk, [[-0.62559439, 0.0], [0.62559439, 0.0]], tol=1e-7)
    near(dv, [[0.66976155, 0.66976155], [0.33023845, 0.33023845]], tol=1e-7)


@loud
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("mask", [np.zeros((1, 1), bool), np.zeros((2, 3, 2, 2), bool), padding_mask([0, 0], 2),
                                  np.full((2, 2), -INF)], ids=["one", "all", "padding", "-inf"])
def test_MK_01_with_everything_masked_output_and_gradients_are_zero(mask, dtype):
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 2)).astype(dtype)
    out, weights = attention(x, x, x, mask)
    assert not out.any()
    assert not weights.any()
    for g in grads(lambda q, k, v: attention(q, k, v, mask)[0].sum(), x, x, x):
        assert not g.any()                              # true of NaN as well as of any number but 0


@loud
def test_MK_01_an_empty_row_does_not_disturb_the_rows_beside_it():
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    dq, dk, dv = grads(lambda q, k, v: attention(q, k, v, mask)[0].sum(), q, k, v)
    dq2, dk2, dv2 = grads(lambda q, k, v: attention(q, k, v, mask[::2])[0].sum(), q[::2], k, v)
    near(dq, np.stack([dq2[0], [0, 0], dq2[1]]))
    near(dk, dk2)
    near(dv, dv2)
    assert gradcheck(lambda q, k, v: attention(q, k, v, mask)[0], (q, k, v), order=2)


@loud
def test_MK_01_an_empty_row_along_any_axis_of_softmax_is_zero():
    x, mask = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[True, False], [True, False]])
    near(softmax(leaf(x), axis=0, where=mask), [[1 / (1 + math.e**2), 0.0], [1 / (1 + math.e**-2), 0.0]])
    near(softmax(leaf(x), axis=1, where=mask), [[1.0, 0.0], [1.0, 0.0]])
    near(softmax(leaf(np.full((1, 2), -INF))), [[0.0, 0.0]])
    near(grads(softmax, np.full((1, 2), -INF), seed=[[1.0, 2.0]]), [[0.0, 0.0]])


def identity_heads(E, H):
    """Projections after which head h sees the h-th E/H features."""
    return np.eye(E).reshape(E, H, E // H).swapaxes(0, 1)


ATTEND = {
    "attention": lambda q, k, v, mask: attention(q, k, v, mask)[0],
    "sdpa": F.scaled_dot_product_attention,
    "attn_mask=": lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    "multi_head": lambda q, k, v, mask: multi_head_attention(
        q, np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.ones((1, 1, 1)), np.eye(1), 1, mask, context=v),
}
ZERO2, TENS = np.zeros((2, 1)), np.array([[10.0], [20.0]])


@pytest.mark.parametrize("wrap", [lambda m: m, Tensor, np.ndarray.tolist], ids=["array", "Tensor", "list"])
@pytest.mark.parametrize("case", ATTEND)
def test_MK_03_true_means_may_attend_everywhere(case, wrap):
    attend = ATTEND[case]
    near(attend(ZERO2[:1], ZERO2, TENS, wrap(np.array([[True, False]]))), [[10.0]])
    near(attend(ZERO2[:1], ZERO2, TENS, wrap(np.array([[False, True]]))), [[20.0]])
    near(softmax(np.zeros((1, 2)), where=wrap(np.array([[True, False]]))), [[1.0, 0.0]])


@pytest.mark.parametrize("case", ATTEND)
def test_MK_03_a_float_mask_is_added_not_applied(case):
    near(ATTEND[case](ZERO2, ZERO2, TENS, np.tril(np.ones((2, 2)))), [[12.6894142], [15.0]], tol=1e-8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("case", ATTEND)
def test_MK_03_a_float_mask_of_minus_infinity_is_the_boolean_mask(case, dtype):
    keep = np.array([[True, False], [True, True]])
    near(ATTEND[case](ZERO2, ZERO2, TENS, np.where(keep, 0, -INF).astype(dtype)), [[10.0], [15.0]])
    near(ATTEND[case](ZERO2, ZERO2, TENS, keep), [[10.0], [15.0]])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8, complex])
@pytest.mark.parametrize("case", ATTEND)
def test_MK_03_an_integer_mask_is_refused(case, dtype):
    for mask in (np.eye(2).astype(dtype), Tensor(np.eye(2).astype(dtype))):
        with pytest.raises(TypeError, match="True = may attend"):
            ATTEND[case](ZERO2, ZERO2, TENS, mask)
    with pytest.raises(TypeError, match="boolean"):
        softmax(np.zeros((2, 2)), where=np.eye(2).astype(dtype))


def test_MK_03_a_float_mask_is_differentiable_and_a_float_where_is_refused():
    bias = leaf(np.zeros((1, 2)))
    attention(ZERO2[:1], ZERO2, TENS, bias)[0].sum().backward()
    near(bias.grad, [[-2.5, 2.5]])                      # p (v − Σ p v), with p = 1/2
    with pytest.raises(TypeError, match="boolean"):
        softmax(np.zeros((1, 2)), where=np.ones((1, 2)))


@pytest.mark.parametrize("mask", [np.ones((3, 2), bool), np.ones((2, 3), bool), np.ones((5, 1, 2, 2), bool),
                                  np.ones(3, bool), np.zeros((3, 2))], ids=lambda m: str(m.shape))
def test_MK_03_a_mask_that_does_not_fit_the_scores_is_refused(mask):
    with pytest.raises(ShapeError, match="mask"):
        attention(ZERO2[None], ZERO2[None], TENS[None], mask)


def test_MK_03_a_padding_mask_cannot_be_read_as_queries_by_keys():
    mask = padding_mask([1, 2], 2)
    assert mask.shape == (2, 1, 1, 2)
    assert mask.dtype == bool
    x = np.zeros((2, 1, 2, 1))                          # (B, H, L, D) with B = L = S
    near(attention(x, x, TENS, mask)[0], [[[[10.0], [10.0]]], [[[15.0], [15.0]]]])
    near(attention(x, x, TENS, mask & causal_mask(2))[0], [[[[10.0], [10.0]]], [[[10.0], [15.0]]]])


def column(*numbers):
    return np.array(numbers, float)[:, None]


@pytest.mark.parametrize(("L", "v", "upper_left", "lower_right"), [
    (1, [1, 2, 3, 4], [1], [2.5]),
    (4, [1, 2], [1, 1.5, 1.5, 1.5], [0, 0, 1, 1.5]),
    (3, [3, 6, 9], [3, 4.5, 6], [3, 4.5, 6]),
    (2, [3, 6, 9], [3, 4.5], [4.5, 6]),
    (2, [5], [5, 5], [0, 5]),
    (1, [5], [5], [5]),
])
@loud
def test_MK_04_each_alignment_of_a_causal_mask_is_what_it_says(L, v, upper_left, lower_right):
    S = len(v)
    q, k, v = np.zeros((L, 1)), np.zeros((S, 1)), column(*v)
    for align, expected in (("upper_left", upper_left), ("lower_right", lower_right)):
        near(attention(q, k, v, causal_mask(L, S, align=align))[0], column(*expected))
    near(F.scaled_dot_product_attention(q, k, v, is_causal=True), column(*upper_left))
    if L == S:
        near(attention(q, k, v, causal=True)[0], column(*upper_left))
        np.testing.assert_array_equal(causal_mask(L), np.tril(np.ones((L, L), bool)))


@pytest.mark.parametrize(("L", "S"), [(1, 4), (4, 2), (2, 3)])
def test_MK_04_causal_with_unequal_lengths_asks_which_ends_are_aligned(L, S):
    q, k = np.zeros((L, 1)), np.zeros((S, 1))
    with pytest.raises(ValueError, match="lower_right"):
        attention(q, k, k, causal=True)
    with pytest.raises(ValueError, match="lower_right"):
        causal_mask(L, S)
    with pytest.raises(ValueError, match="lower_right"):
        multi_head_attention(q, *[np.ones((1, 1, 1))] * 3, np.eye(1), 1, context=k, causal=True)
    with pytest.raises(ValueError, match="bottom"):
        causal_mask(L, S, align="bottom")


@pytest.mark.parametrize("shape", [(5, 2), (2, 3, 5, 2)])
def test_MK_04_no_output_of_causal_attention_depends_on_a_later_input(shape):
    x = np.random.default_rng(0).normal(size=shape)
    for t in range(5):
        g = grads(lambda x, t=t: attention(x, x, x, causal=True)[0][..., t, :].sum(), x)
        assert not g[..., t + 1:, :].any()
        assert g[..., :t + 1, :].any()


def test_MK_04_causal_and_another_mask_both_hold():
    mask = np.array([[True, True, True], [False, True, True], [True, False, True]])
    near(attention(np.zeros((3, 1)), np.zeros((3, 1)), column(3, 6, 9), mask, causal=True)[0], column(3, 6, 6))
    bias = np.where(mask, 0, -INF)
    near(attention(np.zeros((3, 1)), np.zeros((3, 1)), column(3, 6, 9), bias, causal=True)[0], column(3, 6, 6))


@loud
@pytest.mark.parametrize("junk", [1e30, -1e30, 1e300])
def test_MK_06_a_finite_value_under_the_mask_does_not_leak(junk):
    q, k, v, mask = np.zeros((1, 1)), np.zeros((2, 1)), column(5, junk), [[True, False]]
    assert attention(q, k, v, mask)[0].item() == 5
    dq, dk, dv = grads(lambda *a: attention(*a, mask)[0].sum(), q, k, v)
    near(dq, [[0.0]])
    near(dk, [[0.0], [0.0]])
    near(dv, [[1.0], [0.0]])
    k = column(0, junk)                                 # and so for junk in the key
    near(attention(q + 1, k, column(5, 7), mask)[0], [[5.0]])
    near(grads(lambda k: attention(q + 1, k, column(5, 7), mask)[0].sum(), k), [[0.0], [0.0]])


def test_MK_06_padding_that_is_not_finite_must_be_zeroed_by_where_as_the_docstring_says():
    assert "finite" in attention.__doc__
    q, k, mask = np.zeros((1, 1)), np.zeros((2, 1)), np.array([[True, False]])
    for junk in (NAN, INF):
        v = leaf(column(5, junk))
        out = attention(q, k, where(mask.T, v, 0), mask)[0]
        near(out, [[5.0]])
        out.backward()
        near(v.grad, [[1.0], [0.0]])


# --------------------------------------------------------------------------------------------------------- kinks

def test_KK_01_tied_largest_elements_share_one_gradient():
    near(grads(Tensor.max, [2.0, 2.0, 1.0]), [0.5, 0.5, 0.0])
    near(grads(lambda x: x.max(axis=1).sum(), [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]),
         [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    near(grads(lambda x: stack([x, x]).max(), 1.0), 1.0)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, 2, (0, 1), (-1, 0), (0, 1, 2), ()], ids=str)
def test_KK_01_the_shares_of_ties_sum_to_one_in_each_reduced_slice(reduce, keepdims, axis):
    x = np.random.default_rng(0).integers(0, 3, size=(2, 3, 4)).astype(float)       # full of ties
    extreme = getattr(np, reduce)(x, axis=axis, keepdims=True)
    seed = np.random.default_rng(1).normal(size=extreme.shape)
    tied = x == extreme
    expected = tied * seed / np.where(tied, tied, 0).sum(axis=axis, keepdims=True)
    shape = getattr(np, reduce)(x, axis=axis, keepdims=keepdims).shape
    for fn in (getattr(Tensor, reduce), getattr(np, reduce)):
        near(grads(lambda x, fn=fn: fn(x, axis=axis, keepdims=keepdims), x, seed=seed.reshape(shape)), expected)


@pytest.mark.parametrize("op", [maximum, minimum, np.maximum, np.minimum])
def test_KK_01_equal_operands_of_maximum_and_minimum_share_equally(op):
    dx, dy = grads(op, [2.0, 2.0], [2.0, 2.0], seed=[1.0, 10.0])
    near(dx, [0.5, 5.0])
    near(dy, [0.5, 5.0])
    near(grads(lambda x: op(x, 2.0), [2.0, 2.0], seed=[1.0, 10.0]), [0.5, 5.0])
    dx, dy = grads(op, 0.0, [-0.0, 0.0, 0.0], seed=[1.0, 1.0, 1.0])
    near(dx, 1.5)
    near(dy, [0.5, 0.5, 0.5])


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_KK_01_the_settled_slopes_at_kinks(zero):
    near(grads(Tensor.relu, zero), 0.0)
    near(grads(abs, zero), 0.0)
    near(grads(np.abs, [zero, -3.0, 3.0], seed=np.ones(3)), [0.0, -1.0, 1.0])
    near(grads(lambda x: x.clip(-1.0, 1.0), [-2.0, -1.0, zero, 1.0, 2.0], seed=np.ones(5)), [0.0, 1.0, 1.0, 1.0, 0.0])
    near(grads(lambda x: x.clip(min=0.0), [-1.0, zero, 9.0], seed=np.ones(3)), [0.0, 1.0, 1.0])
    near(grads(lambda x: x.clip(max=0.0), [-1.0, zero, 9.0], seed=np.ones(3)), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("fn", [lambda x: x.max(), lambda x: x.min(), lambda x: maximum(x, 2.0), lambda x: x.relu(),
                                lambda x: abs(x), lambda x: x.clip(0.0, 2.0)])
def test_KK_01_the_second_derivative_at_a_tie_is_zero(fn):
    near(hessian(lambda x: fn(x).sum(), [2.0, 2.0]), np.zeros((2, 2)))


# ------------------------------------------------------------------------------------------------------ singular

@pytest.mark.parametrize("exponent", [float, np.float64, lambda p: np.array([p]), lambda p: Tensor([p]),
                                      lambda p: leaf([float(p)])],
                         ids=["float", "np.float64", "array", "Tensor", "leaf"])
@pytest.mark.parametrize(("p", "value", "slope"), [(3, 0, 0), (2, 0, 0), (1, 0, 1), (0.5, 0, INF), (0, 1, 0),
                                                   (-1, INF, -INF)])
def test_SG_01_powers_of_zero(p, value, slope, exponent):
    x = leaf([0.0])
    with np.errstate(divide="ignore", invalid="ignore"):
        y = (x ** exponent(p)).sum()
        y.backward()
    assert y.item() == value
    assert x.grad.item() == slope


def test_SG_01_powers_of_zero_with_one_exponent_an_element():
    p = np.array([3.0, 2.0, 1.0, 0.5, 0.0, -1.0])
    with np.errstate(divide="ignore"):
        near(grads(lambda x: x**p, np.zeros(6), seed=np.ones(6)), [0.0, 0.0, 1.0, INF, 0.0, -INF])
    near(grads(lambda x: x ** p[[0, 1, 2, 2, 4]], 0.0, seed=np.ones(5)), 2.0)


@loud
def test_SG_01_a_tracked_exponent_of_zero_has_gradient_zero():
    dp = grads(lambda x, p: x**p, np.zeros(4), [3.0, 2.0, 1.0, 0.0], seed=np.ones(4))[1]    # 0ᵖ is 0 for all p > 0
    near(dp, [0.0, 0.0, 0.0, 0.0])
    near(grads(lambda x, p: (x**p).sum(), [0.0, 1.0, math.e], 2.0)[1], math.e**2)


@loud
@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.0, 1.0, 2.0, 3.0])
def test_SG_01_all_derivatives_of_an_integer_power_at_zero_are_finite(p):
    x = leaf([0.0, 2.0])
    y, expected = x**p, np.polynomial.Polynomial([0] * int(p) + [1])
    for _ in range(4):
        near(y, expected(np.array([0.0, 2.0])))
        expected = expected.deriv()
        y = grad(y.sum(), x, create_graph=True, allow_unused=True) if y.requires_grad else y * 0


@loud
@pytest.mark.parametrize("base", [float, np.float32, lambda x: [x], lambda x: [[x, x]]])
def test_SG_03_a_negative_base_with_a_constant_integer_exponent_is_silent(base):
    x = base(-2.5)
    for p, value, slope in ((2, 6.25, -5.0), (2.0, 6.25, -5.0), (3, -15.625, 18.75), (-1, -0.4, -0.16), (0, 1.0, 0.0)):
        near(leaf(x) ** p, np.full(np.shape(x), value), tol=1e-6)
        near(grads(lambda x, p=p: (x**p).sum(), x), np.full(np.shape(x), slope), tol=1e-6)
        near(grads(lambda x, p=p: (x ** Tensor(float(p))).sum(), x), np.full(np.shape(x), slope), tol=1e-6)


def test_SG_03_a_tracked_exponent_of_a_negative_base_is_nan_and_does_not_disturb_the_base():
    with np.errstate(invalid="ignore"):
        dx, db = grads(lambda x, b: (x**b).sum(), [-2.0, 2.0], [3.0, 3.0])
    near(dx, [12.0, 12.0])
    near(db, [NAN, 8 * math.log(2)])


def test_SG_03_integers_are_not_floored_by_negative_powers_or_division():
    ints = Tensor([1, 2, 4])
    for p in (-1, np.array([-1]), np.array(-2)):
        with pytest.raises(TypeError, match="negative power"):
            ints**p
    with pytest.raises(TypeError, match="negative power"):
        2 ** Tensor([-1, 1])
    near(ints**-1.0, [1.0, 0.5, 0.25])
    near(1 / ints, [1.0, 0.5, 0.25])
    near(ints / 4, [0.25, 0.5, 1.0])
    x = leaf([2.0])
    y = x ** np.array([-1])
    near(y, [0.5])
    y.backward()
    near(x.grad, [-0.25])
    near(grads(lambda x: 4 / x, [2.0], seed=[1.0]), [-1.0])


@loud
@pytest.mark.parametrize("junk", [NAN, INF, -INF])
def test_SG_04_where_does_not_touch_the_branch_not_taken(junk):
    for fn, taken in ((where, 0), (np.where, 0), (lambda c, x, y: where(~np.array(c), y, x), 0)):
        x, y = leaf([1.0]), leaf([junk])
        out = fn([True], x, y)
        near(out, [1.0])
        out.backward()
        near((x, y)[taken].grad, [1.0])
        near((x, y)[1 - taken].grad, [0.0])


def test_SG_04_the_chain_rule_through_a_pole_is_nan_and_where_says_so():
    assert "NaN" in where.__doc__
    with np.errstate(divide="ignore", invalid="ignore"):
        near(grads(lambda x: where(x > 0, 1 / x, 2 * x).sum(), [0.0, 2.0]), [NAN, -0.25])


@loud
@pytest.mark.parametrize(("pole", "slope"), [
    (lambda x: 1 / x, -0.25), (lambda x: x.log(), 0.5), (lambda x: x.sqrt(), math.sqrt(2) / 4),
    (lambda x: x**-2, -0.25),
    (lambda x: x**0.5, math.sqrt(2) / 4)])
def test_SG_04_the_double_where_is_safe(pole, slope):
    def fn(x):
        safe = where(x > 0, x, 1)
        return where(x > 0, pole(safe), 2 * x).sum()
    near(grads(fn, [0.0, 2.0]), [2.0, slope])
    assert np.isfinite(hessian(fn, [0.0, 2.0]).numpy()).all()


@loud
def test_SG_05_the_norm_of_zero_has_gradient_zero():
    near(F.norm(leaf([0.0, 0.0, 0.0])), 0.0)
    near(grads(F.norm, [0.0, 0.0, 0.0]), [0.0, 0.0, 0.0])
    near(grads(F.norm, 0.0), 0.0)
    near(grads(F.norm, np.zeros((2, 2))), np.zeros((2, 2)))
    near(grads(F.norm, [3.0, 4.0]), [0.6, 0.8])


@loud
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [1, -1, 0])
def test_SG_05_a_zero_row_does_not_contaminate_the_others(axis, keepdims):
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    x, expected = (x.T, [[0.0, 0.6], [0.0, 0.8]]) if axis == 0 else (x, [[0.0, 0.0], [0.6, 0.8]])
    y = F.norm(leaf(x), axis=axis, keepdims=keepdims)
    near(y, np.array([0.0, 5.0]).reshape(y.shape))
    assert y.ndim == (2 if keepdims else 1)
    near(grads(lambda x: F.norm(x, axis=axis, keepdims=keepdims).sum(), x), expected)


def test_SG_05_the_square_root_of_zero_is_infinitely_steep_and_its_composite_nan():
    assert "∞" in ops.sqrt.__doc__
    with np.errstate(divide="ignore", invalid="ignore"):
        near(grads(Tensor.sqrt, 0.0), INF)
        near(grads(lambda x: (x**2).sum().sqrt(), [0.0, 0.0]), [NAN, NAN])
        near(grads(lambda x: (x**2).sum(axis=1).sqrt().sum(), [[0.0, 0.0], [3.0, 4.0]]), [[NAN, NAN], [0.6, 0.8]])
    near(grads(lambda x: ((x**2).sum() + 1e-4).sqrt(), [0.0, 0.0]), [0.0, 0.0])


# ------------------------------------------------------------------------------------------------------ indexing

def test_IX_01_a_repeated_index_collects_every_contribution():
    near(grads(lambda x: x[[2, 0, -1, 2]], [5.0, 6.0, 7.0], seed=[1.0, 10.0, 100.0, 1000.0]), [10.0, 0.0, 1101.0])
    ids = [[1, 1, 1], [0, 2, 1]]
    table = np.arange(6.0).reshape(3, 2)
    for index in (ids, np.array(ids), np.array(ids, np.int32), np.array(ids, np.uint8), Tensor(ids)):
        near(leaf(table)[index], table[ids])
        near(grads(lambda x, i=index: x[i].sum(), table), [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0]])


INDEXES = [
    0, -1, np.int64(1), np.array(1), [1, 1], [1, -1, 0], [[0, 1], [1, 1]], [], slice(None), slice(0, 0),
    slice(None, None, -2),
    slice(5, None), None, ..., (..., 0), (None, 0, None), (0, 1), (0, 1, 2), (-1, ..., -1), ([0, 1, 1], [2, 2, 2]),
    ([[0], [1]], [2, 2]), ([1, 1], slice(None), [0, 0]), (slice(None), [2, 2, 0]), (..., [3, 3]), (0, [1, 1]),
    (slice(None, None, -1), [0, 0], None), (None, [1, 1]), ([1, 1], ..., 0), (), True, False, (True, [0, 0]),
    [True, False], [False, False], (slice(None), [True, False, True]), (..., [True, False, False, True]),
    ([True, True], [0, 0]), ([1, 1], [True, True, False]), np.arange(24).reshape(2, 3, 4) % 3 == 0,
    np.ones((2, 3), bool), (np.eye(2, 3, dtype=bool), [1, 1]), (None, np.eye(2, 3, dtype=bool), slice(1, 3)),
    (np.array([0, 0]), np.newaxis, slice(1, None)), (range(2),),
]


@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_IX_01_every_kind_of_index_gives_each_element_the_seeds_of_its_copies(index):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    plain = tuple(map(list, index)) if isinstance(index, tuple) and index and isinstance(index[0], range) else index
    seed = np.random.default_rng(1).normal(size=np.shape(x[plain]))
    near(leaf(x)[index], x[plain])
    near(grads(lambda x: x[index], x, seed=seed), uses(x.shape, lambda places: np.asarray(places[plain]), seed))


def test_IX_01_the_index_is_kept_as_it_was_when_used():
    idx, x = np.array([2, 0]), leaf([5.0, 6.0, 7.0])
    as_list = [2, 0]
    y, z = x[idx] * 1.0, x[as_list]
    idx[:] = 1
    as_list[:] = [1, 1]
    y.backward([1.0, 10.0])
    near(x.grad, [10.0, 0.0, 1.0])
    z.backward([1.0, 10.0])
    near(x.grad, [20.0, 0.0, 2.0])


@pytest.mark.parametrize("index", [3, -4, [0, 3], (0, 0), 1.0, [0.5], Tensor([1.0]), "a", [True, False]], ids=repr)
def test_IX_01_an_index_that_does_not_fit_is_an_error_and_not_wrapped_round(index):
    with pytest.raises((IndexError, TypeError), match=r"ind(ex|ic)|number"):
        operator.getitem(leaf([1.0, 2.0, 3.0]), index)


def test_IX_03_a_boolean_mask_selects_and_is_not_read_as_zeros_and_ones():
    x, m = [4.0, 5.0, 6.0, 7.0], np.array([False, True, True, False])
    for mask in (m, m.tolist(), Tensor(m), leaf(x).data % 3 != 1, abs(leaf(x) - 5.5) < 1):
        near(leaf(x)[mask], np.array(x)[np.asarray(operand_of(mask))])
        near(grads(lambda x, m=mask: x[m], x, seed=[10.0, 20.0]), [0.0, 10.0, 20.0, 0.0])
    near(grads(lambda x: x[x > 5.5], x, seed=[10.0, 20.0]), [0.0, 0.0, 10.0, 20.0])


def operand_of(mask):
    return mask.numpy() if isinstance(mask, Tensor) else mask


@pytest.mark.parametrize("mask", [[True, False], np.array([True, False]), Tensor([True, False])],
                         ids=["list", "array", "Tensor"])
def test_IX_03_a_mask_after_an_ellipsis_selects_on_the_last_axis(mask):
    x = leaf(np.ones((4, 3, 2)))
    y = x[..., mask]
    assert y.shape == (4, 3, 1)
    y.sum().backward()
    near(x.grad, np.broadcast_to([1.0, 0.0], (4, 3, 2)))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3)])
def test_IX_03_a_mask_with_no_true_selects_nothing_and_sends_zero_back(shape):
    x = leaf(np.ones(shape))
    y = x[np.zeros(shape, bool)]
    assert y.shape == (0,)
    y.sum().backward()
    near(x.grad, np.zeros(shape))


# --------------------------------------------------------------------------------------------------------- shape

def test_SH_01_gradients_of_reductions_go_back_to_the_right_axes():
    near(grads(lambda x: x.mean(axis=(0, 2)).sum(), np.ones((2, 3, 4))), np.full((2, 3, 4), 1 / 8))
    by_j = np.broadcast_to(np.arange(3.0)[:, None], (2, 3, 4))
    near(grads(lambda x: (x.sum(axis=(-1, 0)) * [0, 1, 2]).sum(), np.ones((2, 3, 4))), by_j)
    near(grads(lambda x: (x.sum(axis=(-1, 0), keepdims=True) * [[[0], [1], [2]]]).sum(), np.ones((2, 3, 4))), by_j)


AXES = [((2, 3, 4), axis) for axis in (None, 0, 1, 2, -1, -2, -3, (0, 2), (2, 0), (-1, 0), (0, -1), (1,), (-2, -3),
                                       (0, 1, 2),
                                       (2, -3, 1), (), np.int64(1))]
AXES += [((), None), ((), ()), ((1,), 0), ((1, 1), (0, 1)), ((3, 3), 0), ((3, 3), 1), ((3, 3, 3), (0, 2)), ((2, 1), 1)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), AXES, ids=str)
def test_SH_01_sum_mean_and_var_over_any_axes_agree_with_numpy(shape, axis, keepdims):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    kept = np.sum(x, axis=axis, keepdims=True)
    seed, n = rng.normal(size=kept.shape), x.size / kept.size
    deviation = x - np.mean(x, axis=axis, keepdims=True)
    slopes = {"sum": np.ones(shape), "mean": np.full(shape, 1 / n), "var": 2 * deviation / n}
    for name, slope in slopes.items():
        out = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        for fn in (getattr(Tensor, name), getattr(np, name)):
            near(fn(leaf(x), axis=axis, keepdims=keepdims), out)
            found = grads(lambda x, f=fn: f(x, axis=axis, keepdims=keepdims), x, seed=seed.reshape(np.shape(out)))
            near(found, slope * seed)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_SH_01_softmax_and_its_logarithms_along_any_axis_agree_with_numpy(axis):
    rng = np.random.default_rng(0)
    x, seed = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4))
    p = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    near(softmax(leaf(x), axis=axis), p)
    near(grads(lambda x: softmax(x, axis=axis), x, seed=seed), p * (seed - (p * seed).sum(axis=axis, keepdims=True)))
    near(log_softmax(leaf(x), axis=axis), np.log(p))
    near(grads(lambda x: log_softmax(x, axis=axis), x, seed=seed), seed - p * seed.sum(axis=axis, keepdims=True))
    total = np.log(np.exp(x).sum(axis=axis))
    near(logsumexp(leaf(x), axis=axis), total)
    near(grads(lambda x: logsumexp(x, axis=axis), x, seed=total), p * np.expand_dims(total, axis))
    near(grads(lambda x: logsumexp(x, axis=axis, keepdims=True), x, seed=np.expand_dims(total, axis)),
         p * np.expand_dims(total, axis))
    tail = np.flip(np.cumsum(np.flip(seed, axis), axis), axis)
    near(grads(lambda x: x.cumsum(axis=axis), x, seed=seed), tail)


MOVES = [       # read with an array and with a Tensor
    lambda x: x.reshape(4, 6), lambda x: x.reshape((-1, 2)), lambda x: x.reshape(-1), lambda x: x.T, lambda x: x.mT,
    lambda x: x.transpose(), lambda x: x.transpose(1, 2, 0), lambda x: x.transpose((2, 0, 1)),
    lambda x: x.transpose(-1, 0, -2), lambda x: np.transpose(x, (1, 0, 2)), lambda x: x.swapaxes(0, -1),
    lambda x: np.swapaxes(x, -3, 1), lambda x: np.expand_dims(x, 0), lambda x: np.expand_dims(x, -1),
    lambda x: np.expand_dims(x, (0, -1)), lambda x: np.squeeze(x[:, :1], axis=1), lambda x: np.squeeze(x[:1, :, :1]),
    lambda x: x[:1, :, :1].squeeze((0, -1)), lambda x: np.broadcast_to(x, (2, 2, 3, 4)),
    lambda x: np.broadcast_to(x[:, :1], (2, 5, 4)),
    lambda x: np.concatenate([x, x[:1]]), lambda x: np.concatenate([x[..., ::-1], x], axis=-1),
    lambda x: np.concatenate([x, x], axis=-2),
    lambda x: np.stack([x, x], axis=0), lambda x: np.stack([x, x], axis=-1), lambda x: np.stack([x, x, x], axis=-2),
    lambda x: np.reshape(x, (3, -1)),
]


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_SH_01_an_op_that_moves_elements_moves_their_gradients_back(number):
    move, x = MOVES[number], np.random.default_rng(0).normal(size=(2, 3, 4))
    seed = np.random.default_rng(1).normal(size=move(x).shape)
    near(move(leaf(x)), move(x))
    near(grads(move, x, seed=seed), uses(x.shape, move, seed))


@pytest.mark.parametrize("axis", [2, -3, (0, 0), (0, -2), (0, 5)], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "var"])
def test_SH_01_an_axis_that_is_not_there_or_there_twice_is_named(name, axis):
    with pytest.raises(ValueError, match=rf"{name}\(\(2, 3\), axis="):
        getattr(leaf(np.ones((2, 3))), name)(axis=axis)


def test_SH_03_reductions_of_nothing():
    x = leaf(np.zeros((0, 3)))
    near(x.softmax(-1), np.zeros((0, 3)))
    near(x.softmax(0), np.zeros((0, 3)))
    near(x.log_softmax(0), np.zeros((0, 3)))
    near(x.sum(), 0.0)
    near(x.sum(axis=0), np.zeros(3))
    near(x.sum(axis=1), np.zeros(0))
    near(x.max(axis=1), np.zeros(0))
    for reduce in (Tensor.max, Tensor.min):
        for axis in (0, None):
            with pytest.raises(ValueError, match="zero-size"):
                reduce(x, axis=axis)
    with np.errstate(invalid="ignore"):         # 0/0, of which NumPy warns
        near(x.mean(), NAN)
        with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
            near(x.var(), NAN)


@pytest.mark.parametrize("fn", [
    lambda x: x.sum(), lambda x: x.softmax(-1).sum(), lambda x: x.softmax(0).sum(), lambda x: x.log_softmax(0).sum(),
    lambda x: x.sum(axis=0).sum(), lambda x: x.max(axis=1).sum(), lambda x: x.mean(axis=1).sum(),
    lambda x: x.var(axis=1).sum(),
    lambda x: x.exp().sum(), lambda x: (x @ np.ones((3, 2))).sum(), lambda x: (x.T @ x).sum(),
    lambda x: (x * [1, 2, 3]).sum(),
    lambda x: x.reshape(-1, 3).sum(), lambda x: x.T.sum(), lambda x: concatenate([x, np.ones((1, 3))]).sum(),
    lambda x: stack([x, x]).sum(), lambda x: x[:, [0, 0]].sum(), lambda x: x[x > 0].sum(),
    lambda x: x.cumsum(axis=0).sum(),
    lambda x: F.layer_norm(x).sum(), lambda x: F.norm(x), lambda x: F.norm(x, axis=1).sum(),
    lambda x: einsum("ij,ij->", x, x),
    lambda x: F.cross_entropy(x, np.zeros(0, int)), lambda x: F.dropout(x, 0.5, rng=0).sum(),
    lambda x: logsumexp(x).sum(), lambda x: attention(x, x, x)[0].sum()])
def test_SH_03_an_empty_batch_has_an_empty_gradient(fn):
    near(grads(fn, np.zeros((0, 3))), np.zeros((0, 3)))


def test_SH_03_an_empty_axis_gives_zero_to_the_other_operand():
    near(grads(lambda w: (np.zeros((0, 3)) @ w).sum(), np.ones((3, 2))), np.zeros((3, 2)))
    near(grads(lambda b: (np.zeros((0, 3)) + b).sum(), np.ones(3)), np.zeros(3))
    near(grads(lambda b: (np.zeros((0, 3)) + b).sum(), 1.0), 0.0)
    near(F.cross_entropy(leaf(np.zeros((0, 3))), np.zeros(0, int)), 0.0)


def test_SH_03_attention_without_keys_or_without_queries():
    q, none = np.ones((2, 3)), np.ones((0, 3))
    out, weights = attention(leaf(q), leaf(none), leaf(none))
    near(out, np.zeros((2, 3)))
    assert weights.shape == (2, 0)
    near(grads(lambda q: attention(q, none, none)[0].sum(), q), np.zeros((2, 3)))
    near(attention(leaf(none), leaf(q), leaf(q))[0], np.zeros((0, 3)))
    near(grads(lambda k: attention(none, k, q)[0].sum(), q), np.zeros((2, 3)))


def test_SH_03_reshape_of_nothing_infers_a_length_only_where_there_is_one():
    x = leaf(np.zeros((0, 3)))
    assert x.reshape(-1, 3).shape == (0, 3)
    assert x.reshape((3, -1)).shape == (3, 0)
    with pytest.raises(ValueError, match="reshape"):
        x.reshape(-1, 0)


# ------------------------------------------------------------------------------------------------------ mutation

def test_MU_01_new_data_of_a_leaf_does_not_change_a_graph_already_recorded():
    x, w = leaf([3.0]), leaf([2.0])
    y = (x * w).sum()
    w.data = w.data * 10
    y.backward()
    near(x.grad, [2.0])
    near(w.grad, [3.0])
    near(w, [20.0])


@pytest.mark.parametrize("make", [
    lambda: leaf([3.0]), lambda: Tensor([3.0]), lambda: leaf([3.0]) * 2, lambda: leaf([3.0]).detach(),
    lambda: leaf([[3.0]])[0], lambda: leaf([[3.0]]).T[0], lambda: (leaf([3.0]) * 2).detach(),
    lambda: grad((leaf([3.0]) ** 2).sum(), leaf([1.0]), allow_unused=True)],
    ids=range(8))
def test_MU_01_the_arrays_of_a_tensor_cannot_be_written_to(make):
    t = make()
    for array in (t.data, t.numpy(), t.numpy()[:]):
        with pytest.raises(ValueError, match="read-only"):
            array *= 10
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_MU_01_tensors_do_not_share_memory_with_the_arrays_that_they_were_made_of():
    a = np.ones(2)
    t, u, v = Tensor(a), leaf(a[::-1]), leaf(np.zeros(2))
    v.data = a
    a[:] = 7
    near(t, [1.0, 1.0])
    near(u, [1.0, 1.0])
    near(v, [1.0, 1.0])
    a += 1                                              # and the caller's array stays writable


CONSTANTS = {
    "x*c": lambda x, c: x * c, "c*x": lambda x, c: c * x, "x/c": lambda x, c: x / c, "c/x": lambda x, c: c / x,
    "x**c": lambda x, c: x**c, "c**x": lambda x, c: c**x, "x@c": lambda x, c: x @ c, "c@x": lambda x, c: c @ x,
    "maximum": lambda x, c: maximum(x, c), "minimum": lambda x, c: minimum(c, x),
    "where": lambda x, c: where(c > 2, x, c),
    "condition": lambda x, c: where(c.astype(bool), x, -x), "einsum": lambda x, c: einsum("i,i->i", x, c),
    "clip": lambda x, c: x.clip(c, 9.0), "np.multiply": lambda x, c: np.multiply(c, x),
    "softmax mask": lambda x, c: softmax(x, where=c > 2),
    "attention": lambda x, c: attention(c[:, None], x[:, None], c[:, None])[0],
    "attention bias": lambda x, c: attention(x[:, None], x[:, None], x[:, None], c)[0],
    "linear": lambda x, c: F.linear(x[None], Tensor(c[None])), "concatenate": lambda x, c: concatenate([c, x]) ** 2,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("case", CONSTANTS)
def test_MU_01_a_constant_array_may_be_overwritten_before_the_walk_back(case, create_graph):
    fn, data = CONSTANTS[case], [2.0, 3.0, 1.5]

    def gradient(c, overwrite):
        x = leaf(data)
        y = (fn(x, c) ** 2).sum()
        if overwrite:
            c[:] = 100.0
        first = grad(y, x, create_graph=create_graph)
        return grad((first * first).sum(), x).data if create_graph else first.data
    near(gradient(np.array([1.0, 3.0, 2.5]), overwrite=True), gradient(np.array([1.0, 3.0, 2.5]), overwrite=False))


def test_MU_01_boolean_masks_targets_and_conditions_may_be_overwritten_before_the_walk_back():
    mask, targets = np.array([[True, False]]), np.array([1])
    x = leaf([[1.0, 2.0]])
    y = F.cross_entropy(x, targets) + where(mask, x, 0.0).sum() + x[mask].sum()
    y = y + (softmax(x, where=mask) * [[1.0, 5.0]]).sum()
    mask[:], targets[:] = [[False, True]], 0
    y.backward()
    p = 1 / (1 + math.e)
    near(x.grad, [[p + 0 + 1 + 1, p + 0 + 0 + 0 - 2 * p]])


def test_MU_01_the_seed_may_be_overwritten_before_a_second_derivative():
    x, v = leaf([1.0, 2.0]), np.array([1.0, 2.0])
    first = grad(x * x, x, v, create_graph=True)        # 2 v x
    v[:] = 0
    near(first, [2.0, 8.0])
    near(grad(first.sum(), x), [2.0, 4.0])
    v += 1                                              # and it stays the caller's to write to


def test_MU_01_an_array_given_to_a_users_primitive_by_keyword_may_be_overwritten_before_the_walk_back():
    @primitive
    def weighed(x, *, by):
        return x * by
    weighed.defvjp(lambda g, out, x, *, by: g * by)
    x, by = leaf([1.0, 2.0]), np.array([3.0, 4.0])
    y = weighed(x, by=by).sum()
    by[:] = 0
    y.backward()
    near(x.grad, [3.0, 4.0])


def test_MU_01_the_users_arrays_stay_writable():
    a = np.ones((2, 2))
    for fn in (lambda x, a: x + a, lambda x, a: a @ x, lambda x, a: concatenate([a, x]), lambda x, a: maximum(a, x),
               lambda x, a: attention(a, a, x, a)[0], lambda x, a: where(a > 0, a, x), lambda x, a: F.linear(x, a.T),
               lambda x, a: einsum("ij,jk->ik", a, x), lambda x, a: x * a.reshape(-1).reshape(2, 2)):
        fn(leaf(np.ones((2, 2))), a).sum().backward()
        a += 1


def test_MU_01_a_second_derivative_through_replaced_data_is_refused():
    w = leaf([2.0])
    y = (w * w).sum()
    w.data = [5.0]
    with pytest.raises(RuntimeError, match="new data"):
        grad(y, w, create_graph=True)
    near(grad(y, w), [4.0])


@pytest.mark.parametrize(("op", "value", "slope"), [
    (operator.iadd, 2.0, 3.0), (operator.isub, 0.0, 1.0), (operator.imul, 1.0, 2.0), (operator.itruediv, 1.0, 2.0),
    (operator.ipow, 1.0, 2.0)])
def test_MU_03_an_augmented_assignment_makes_a_new_tensor(op, value, slope):
    x = leaf([1.0])
    y = op(x, 1)
    assert y is not x
    near(x, [1.0])
    z = (x * y).sum()
    near(z, value)
    z.backward()
    near(x.grad, [slope])


def test_MU_03_an_augmented_matmul_makes_a_new_tensor():
    x = y = leaf(np.eye(2))
    y @= np.ones((2, 2))
    near(x, np.eye(2))
    near(y, np.ones((2, 2)))


@pytest.mark.parametrize("index", [0, slice(None), ..., [True, False], ([0], [1])], ids=str)
@pytest.mark.parametrize("make", [leaf, Tensor, lambda a: leaf(a) * 2])
def test_MU_03_setting_an_item_is_refused_and_names_the_remedy(make, index):
    t = make(np.zeros((2, 2)))
    with pytest.raises(TypeError, match=r"where.*concatenate"):
        t[index] = 1.0
    assert not t.numpy().any()


def test_MU_03_a_tracked_tensor_cannot_be_written_into_an_array():
    A, B = leaf(np.ones((2, 2))), np.zeros((4, 4))
    with pytest.raises(TypeError, match="graph"):
        B[:2, :2] = A
    with pytest.raises(TypeError, match="copyto"):
        np.copyto(B[:2, :2], A)
    with pytest.raises(TypeError, match="out"):
        np.add(B[:2, :2], A, out=B[:2, :2])
    with pytest.raises(TypeError, match="out"):
        operator.iadd(B[:2, :2], A)
    assert not B.any()


# ----------------------------------------------------------------------------------------------- python protocol

@pytest.mark.parametrize(("fn", "slope"), [
    (lambda t: np.array([1.0, 2.0, 3.0]) * t, [1, 2, 3]),
    (lambda t: np.float64(2) * t, [2, 2, 2]),
    (lambda t: np.float32(2) * t, [2, 2, 2]),
    (lambda t: np.array(2.0) * t, [2, 2, 2]),
    (lambda t: np.diag([1, 1, -1.0]) @ t, [1, 1, -1]),
    (lambda t: np.array([1.0, 2.0, 3.0]) + t, [1, 1, 1]),
    (lambda t: np.array([1.0, 2.0, 3.0]) - t, [-1, -1, -1]),
    (lambda t: np.array([100.0, 400.0, 900.0]) / t, [-1, -1, -1]),
    (lambda t: np.float64(1) - t, [-1, -1, -1]),
    (lambda t: np.array([1.0, 1.0, 1.0]) ** t, [0, 0, 0]),
    (lambda t: [1, 2, 3] * t, [1, 2, 3]),
    (lambda t: [1, 2, 3] - t, [-1, -1, -1]),
    (lambda t: [[1, 0, 2]] @ t, [1, 0, 2]),
    (lambda t: np.array([1, 2, 3]) * t, [1, 2, 3]),
    (lambda t: np.array([True, False, True]) * t, [1, 0, 1]),
    (lambda t: np.add(np.ones(3), t), [1, 1, 1]),
    (lambda t: np.subtract(np.ones(3), t), [-1, -1, -1]),
    (lambda t: np.multiply([1, 2, 3], t), [1, 2, 3]),
    (lambda t: np.matmul(np.diag([1, 1, -1.0]), t), [1, 1, -1]),
    (lambda t: np.negative(t), [-1, -1, -1]),
    (lambda t: np.square(t), [20, 40, 60]),
    (lambda t: np.maximum(np.full(3, 15.0), t), [0, 1, 1]),
    (lambda t: np.where([True, False, True], t, 0), [1, 0, 1]),
    (lambda t: np.where([True, False, True], np.zeros(3), t), [0, 1, 0]),
    (lambda t: np.concatenate([np.ones(2), t]), [1, 1, 1]),
    (lambda t: np.concatenate((t[:1], np.ones(2), t)), [2, 1, 1]),
    (lambda t: np.stack([np.ones(3), t]), [1, 1, 1]),
    (lambda t: np.sum(t), [1, 1, 1]),
    (lambda t: np.sum(t * t, axis=0), [20, 40, 60]),
    (lambda t: np.mean(t, axis=0, keepdims=True), [1 / 3, 1 / 3, 1 / 3]),
    (lambda t: np.max(t), [0, 0, 1]),
    (lambda t: np.clip(t, 15, 25), [0, 1, 0]),
    (lambda t: np.einsum("i,i->", np.array([1.0, 2.0, 3.0]), t), [1, 2, 3]),
    (lambda t: np.tril(np.ones((3, 3))) @ t, [3, 2, 1]),
    (lambda t: np.log(t), [0.1, 0.05, 1 / 30]),
])
def test_PY_01_numpy_on_the_left_keeps_the_graph(fn, slope):
    t = leaf([10.0, 20.0, 30.0])
    y = fn(t)
    assert type(y) is Tensor
    assert y.dtype.kind == "f"
    y.sum().backward()
    near(t.grad, np.array(slope, float))
    assert type(fn(Tensor([10.0, 20.0, 30.0]))) is Tensor


@pytest.mark.parametrize("fn", [
    lambda t: np.transpose(t, axes=(1, 0)), lambda t: np.reshape(t, shape=(3, 2)),
    lambda t: np.clip(t, a_min=15, a_max=25),
    lambda t: np.clip(t, min=15, max=25), lambda t: np.sum(t, axis=1), lambda t: np.max(t, axis=(0, 1), keepdims=True),
    lambda t: np.var(t, axis=0, ddof=1), lambda t: np.squeeze(t[:1], axis=0), lambda t: np.concatenate((t, t), axis=1),
    lambda t: np.stack(arrays=[t, t], axis=-1), lambda t: np.expand_dims(t, axis=0), lambda t: np.cumsum(t, axis=1),
    lambda t: np.swapaxes(t, axis1=0, axis2=1), lambda t: np.broadcast_to(t, shape=(4, 2, 3)),
    lambda t: np.tril(t, k=1)])
def test_PY_01_a_numpy_function_takes_its_keywords_for_a_tensor_too(fn):
    t = np.array([[10.0, 20.0, 30.0], [25.0, 15.0, 5.0]])
    y = fn(leaf(t))
    assert type(y) is Tensor
    near(y, fn(t))


@pytest.mark.parametrize("compare", [operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne])
@pytest.mark.parametrize("left", [np.array([1.0, 20.0, 99.0]), [1.0, 20.0, 99.0], 20.0, np.float64(20),
                                  Tensor([1.0, 20.0, 99.0])],
                         ids=repr)
def test_PY_01_comparisons_on_either_side_are_plain_boolean_arrays(compare, left):
    t, plain = leaf([10.0, 20.0, 30.0]), np.array([10.0, 20.0, 30.0])
    array = left.numpy() if isinstance(left, Tensor) else np.asarray(left)
    for found, expected in ((compare(left, t), compare(array, plain)), (compare(t, left), compare(plain, array))):
        assert type(found) is np.ndarray
        assert found.dtype == bool
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("fn", [
    np.sin, np.linalg.norm, lambda t: np.dot(t, t), lambda t: np.outer(t, t), lambda t: np.add.reduce(t),
    lambda t: np.floor_divide(t, 2),
    lambda t: np.array([1.0, 2.0, 3.0]) // t, lambda t: np.ones(3) % t, lambda t: t // 2, lambda t: t % 2,
    lambda t: np.add.outer(t, t), np.asarray, np.array, lambda t: np.array([t, t]), lambda t: np.array([t[0], t[1]]),
    lambda t: np.ones(3) * [t[0], 1, 2],
    lambda t: np.add(np.ones(3), t, where=[True, False, True]), lambda t: np.add(t, 1, dtype=np.float32),
    lambda t: operator.imul(np.ones(3), t), np.sort, lambda t: t + "a", lambda t: "a" + t, lambda t: t + None,
    lambda t: None * t,
    lambda t: Tensor([t[0], t[1]]), lambda t: Tensor(t), lambda t: t + np.array([None, 1, 2], object)], ids=range(27))
def test_PY_01_what_would_lose_the_graph_is_a_type_error(fn):
    with pytest.raises(TypeError):
        fn(leaf([10.0, 20.0, 30.0]))


def test_PY_02_tensors_are_hashed_by_identity_and_compared_by_element():
    t, p, q = leaf([1.0, 2.0]), leaf([0.0]), leaf([0.0])
    assert len({t, p, q, p}) == 3
    assert {p: 1, q: 2}[q] == 2
    assert {t: "found"}.get(Tensor([1.0, 2.0])) is None
    np.testing.assert_array_equal(t == Tensor([1.0, 0.0]), [True, False])
    np.testing.assert_array_equal(t != [1.0, 0.0], [False, True])


def test_PY_02_the_truth_of_one_element_is_its_own_and_of_several_an_error():
    assert not Tensor([0.0])
    assert not Tensor(0.0)
    assert Tensor([[2.0]])
    for several in (Tensor([1.0, 2.0]), leaf([0.0, 0.0]), Tensor([])):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(several)
    with pytest.raises(ValueError, match="ambiguous"):
        operator.contains([Tensor([1.0, 2.0])], Tensor([1.0, 2.0]))


def test_PY_02_distinct_parameters_of_equal_value_are_not_merged():
    p, q, r = leaf([0.0]), leaf([0.0]), leaf([0.0])
    y = (2 * p + 3 * q + p * 0).sum()
    dp, dq = grad(y, [p, q])
    near(dp, [2.0])
    near(dq, [3.0])
    near(grad(y, [r, q], allow_unused=True)[0], [0.0])
    same = grad(y, [q, q])
    near(same[0] + same[1], [6.0])
    y.backward()
    near(p.grad, [2.0])
    near(q.grad, [3.0])
    assert r.grad is None


def test_PY_04_deepcopy_keeps_ties_and_parts_from_the_original():
    shared = leaf([1.0, 2.0], np.float32)
    model = {"a": shared, "b": shared, "c": [shared, leaf([1.0, 2.0])]}
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin["a"] is twin["b"] is twin["c"][0]
        assert twin["a"] is not shared
        assert twin["c"][1] is not twin["a"]
        (twin["a"] * 3).sum().backward()
        assert shared.grad is None
        near(twin["b"].grad, [3.0, 3.0])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("t", [leaf([1.0, 2.0], np.float32), leaf(3.0), Tensor([1, 2]), Tensor([[True]]),
                               Tensor(np.zeros((0, 3))), Tensor([1.0], requires_grad=True, name="w")], ids=repr)
def test_PY_04_a_pickled_leaf_comes_back_whole(t, protocol):
    for twin in (pickle.loads(pickle.dumps(t, protocol)), copy.deepcopy(t), copy.copy(t)):
        assert type(twin) is Tensor
        near(twin, t.numpy())
        assert (twin.dtype, twin.requires_grad, twin.name) == (t.dtype, t.requires_grad, t.name)
        with pytest.raises(ValueError, match="read-only"):
            twin.numpy()[...] = 0


def test_PY_04_a_copied_result_is_a_constant_and_the_graph_stays_behind():
    p = leaf([1.0, 2.0])
    y = 2 * p
    for twin in (copy.deepcopy(y), pickle.loads(pickle.dumps(y)), copy.copy(y)):
        near(twin, [2.0, 4.0])
        assert not twin.requires_grad
    y.sum().backward()
    near(p.grad, [2.0, 2.0])


def test_PY_04_the_end_of_a_long_chain_can_be_copied_pickled_and_shown():
    x = y = leaf(1.0)
    for _ in range(5000):
        y = y + 0.0
    assert len(pickle.dumps(y)) < 2000
    for twin in (copy.deepcopy(y), pickle.loads(pickle.dumps(y)), copy.copy(y)):
        near(twin, 1.0)
    assert len(repr(y)) < 200
    y.backward()
    near(x.grad, 1.0)


# -------------------------------------------------------------------------------------------------- backward api

@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (0,), (3, 1, 1)], ids=str)
def test_BW_01_a_value_of_several_elements_needs_its_gradient(shape):
    x = leaf(np.ones(shape))
    for ask in (lambda: (2 * x).backward(), lambda: grad(2 * x, x), lambda: x.backward(),
                lambda: vjp(lambda x: 2 * x, x)):
        with pytest.raises(ValueError, match="shape"):
            ask()
    assert x.grad is None


@pytest.mark.parametrize("seed", [[1.5], np.ones(2), np.ones((2, 1)), np.ones((1, 2)), np.ones((1, 2, 2)), 1.0,
                                  np.float64(1), np.ones(4),
                                  [[1.0, 1.0]], Tensor([1.0, 1.0]), Tensor(1.0), np.ones((0, 2))],
                                  ids=lambda s: str(np.shape(s)))
def test_BW_01_a_gradient_of_another_shape_is_never_broadcast(seed):
    x = leaf(np.ones((2, 2)))
    y = 2 * x
    for ask in (lambda: y.backward(seed), lambda: grad(y, x, seed), lambda: vjp(lambda x: 2 * x, x, seed),
                lambda: jvp(lambda x: 2 * x, x, seed), lambda: grad(y, x, seed, create_graph=True)):
        with pytest.raises(ValueError, match=r"\(2, 2\)"):
            ask()
    assert x.grad is None
    y.backward(np.ones((2, 2)))                         # the failures have not freed the graph
    near(x.grad, np.full((2, 2), 2.0))


@pytest.mark.parametrize("seed", [[[1.0, 2.0], [3.0, 4.0]], ((1, 2), (3, 4)), Tensor([[1.0, 2.0], [3.0, 4.0]]),
                                  np.array([[1, 2], [3, 4]]),
                                  leaf([[1.0, 2.0], [3.0, 4.0]])], ids=lambda s: type(s).__name__)
def test_BW_01_a_gradient_may_be_a_list_an_array_or_a_tensor(seed):
    near(grads(lambda x: 2 * x, np.ones((2, 2)), seed=seed), [[2.0, 4.0], [6.0, 8.0]])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)], ids=str)
def test_BW_01_a_value_of_one_element_needs_none(shape):
    near(grads(lambda x: 2 * x, np.ones(shape)), np.full(shape, 2.0))
    near(grads(lambda x: 2 * x, np.ones(shape), seed=np.full(shape, 3.0)), np.full(shape, 6.0))
    with pytest.raises(ValueError, match="shape"):
        grads(lambda x: 2 * x, np.ones(shape), seed=np.ones((*shape, 1)))


@pytest.mark.parametrize("make", [lambda x: Tensor(1.0), lambda x: x.detach(), lambda x: Tensor(1.0) * 2,
                                  lambda x: (x * 2).detach(),
                                  lambda x: Tensor(x.numpy()) * 2, lambda x: no_grad()(lambda: x * 2)(),
                                  lambda x: x.astype(int)])
def test_BW_02_backward_where_no_gradient_can_flow_is_an_error(make):
    x = leaf(1.0)
    y = make(x)
    for ask in (y.backward, lambda: y.backward(retain_graph=True), lambda: grad(y, x), lambda: grad(y, y)):
        with pytest.raises(RuntimeError):
            ask()
    assert x.grad is None
    assert y.grad is None


@pytest.mark.parametrize("seed", [None, 3.0])
def test_BW_02_backward_on_a_leaf_is_its_own_gradient(seed):
    x = leaf(5.0)
    x.backward(seed)
    near(x.grad, seed or 1.0)
    x.backward(seed)
    near(x.grad, 2 * (seed or 1.0))
    near(grad(x, x), 1.0)
    x.zero_grad()
    assert x.grad is None
    y = leaf([1.0, 2.0])
    y.backward([3.0, 4.0])
    near(y.grad, [3.0, 4.0])


# ----------------------------------------------------------------------------------------------------- grad mode

def records():
    return (leaf(1.0) * 2).requires_grad


def test_GM_01_the_mode_is_restored_after_an_exception():
    for mode in (no_grad, enable_grad):
        with pytest.raises(ZeroDivisionError), mode():
            raise ZeroDivisionError
        assert records()
    with no_grad():
        with pytest.raises(ZeroDivisionError), enable_grad():
            raise ZeroDivisionError
        assert not records()
    assert records()


def test_GM_01_leaving_an_inner_mode_restores_the_outer_one():
    seen = []
    with no_grad():
        seen.append(records())
        with enable_grad():
            seen.append(records())
            with no_grad():
                seen.append(records())
            seen.append(records())
        seen.append(records())
        with no_grad():
            seen.append(records())
        seen.append(records())
    seen.append(records())
    assert seen == [False, True, False, True, False, False, False, True]


def test_GM_01_one_instance_can_be_entered_twice():
    mode = no_grad()
    with mode:
        with mode:
            assert not records()
        assert not records()
        with enable_grad(), mode:
            assert not records()
    assert records()
    with mode:
        assert not records()
    assert records()


def test_GM_01_the_modes_are_decorators_also_of_what_raises_or_recurses():
    @no_grad()
    def off(depth):
        return off(depth - 1) if depth else records()

    @enable_grad()
    def on():
        """Says what it does."""
        return records()

    @no_grad()
    def fails():
        raise KeyError("inside")
    assert not off(0)
    assert not off(3)
    assert records()
    with no_grad():
        assert on()
        assert not records()
    assert on.__doc__ == "Says what it does."
    for _ in range(2):
        with pytest.raises(KeyError, match="inside"):
            fails()
        assert records()


def test_GM_01_no_grad_leaves_recorded_graphs_and_leaves_alone():
    x = leaf(3.0)
    y = x * x
    with no_grad():
        assert leaf(1.0).requires_grad
        assert not (y * 2).requires_grad
        y.backward(retain_graph=True)
        slope = grad(y, x, create_graph=True)           # asked for, so recorded
    near(x.grad, 6.0)
    near(grad(slope, x), 2.0)
    assert not (x * x).detach().requires_grad


def test_GM_03_no_grad_in_one_thread_does_not_switch_off_another():
    def work():
        x = leaf(3.0)
        y = x * x
        y.backward()
        return x.grad.item(), records()
    with ThreadPoolExecutor(1) as pool, no_grad():
        assert pool.submit(work).result(timeout=30) == (6.0, True)
        assert not records()


@pytest.mark.parametrize("first_out", ["A", "B"])
def test_GM_03_overlapping_modes_of_two_threads_leave_both_recording(first_out):
    inside, out = {"A": threading.Event(), "B": threading.Event()}, {"A": threading.Event(), "B": threading.Event()}

    def work(me, other):
        if me == "B":
            assert inside["A"].wait(30)
        with no_grad():
            inside[me].set()
            assert inside[other].wait(30)
            before = records()
            if me != first_out:
                assert out[first_out].wait(30)
            between = records()
        out[me].set()
        assert out[other].wait(30)
        return before, between, records()
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work, "A", "B"), pool.submit(work, "B", "A")]
        assert [job.result(timeout=60) for job in jobs] == [(False, False, True)] * 2
    assert records()


def test_GM_03_overlapping_modes_of_two_tasks_do_not_mix():
    async def task(mode, expected):
        with mode():
            for _ in range(5):
                await asyncio.sleep(0)
                assert records() is expected
        return records()

    async def main():
        return await asyncio.gather(task(no_grad, False), task(enable_grad, True), task(no_grad, False))
    assert asyncio.run(main()) == [True, True, True]
    assert records()


def test_GM_03_threads_that_walk_back_from_their_own_graphs_do_not_mix():
    def work(k):
        x = leaf(np.full(50, float(k)))
        y = x
        for _ in range(200):
            y = y + x
        (y * y).sum().backward()
        return x.grad
    with ThreadPoolExecutor(4) as pool:
        for k, g in enumerate(pool.map(work, range(16))):
            near(g, np.full(50, 2 * 201**2 * k))


# ------------------------------------------------------------------------------------------------ depth and memory

def test_ME_01_a_chain_of_a_hundred_thousand_ops_needs_no_recursion():
    limit = sys.getrecursionlimit()
    x = y = leaf(1.0)
    for _ in range(100_000):
        y = y + 0.0
    near(grad(y, x), 1.0)
    y.backward()
    near(x.grad, 1.0)
    assert sys.getrecursionlimit() == limit
    del y


def test_ME_01_a_long_chain_is_deleted_without_having_been_walked():
    y = leaf(1.0)
    for _ in range(300_000):
        y = y + 0.0
    last = weakref.ref(y)
    del y
    assert last() is None


@pytest.mark.parametrize("step", [lambda y, x: y * 1.0, lambda y, x: y + x * 0, lambda y, x: stack([y, x * 0]).sum(),
                                  lambda y, x: -(0 - y)])
def test_ME_01_long_chains_of_other_ops_need_no_recursion(step):
    x = y = leaf(2.0)
    for _ in range(5000):
        y = step(y, x)
    near(y, 2.0)
    y.backward()
    near(x.grad, 1.0)


def test_ME_01_a_second_derivative_through_a_long_chain_needs_no_recursion():
    x = y = leaf(2.0)
    for _ in range(3000):
        y = y * 1.0
    slope = grad(y * y * y, x, create_graph=True)
    near(slope, 12.0)
    slope.backward()
    near(x.grad, 12.0)


def test_ME_01_reference_counting_alone_frees_a_graph():
    gc.collect()
    gc.disable()
    try:
        x = leaf(np.ones(3))
        h = x.exp()
        watched = [weakref.ref(h), weakref.ref(h.data)]
        y = (h * h).sum() + softmax(h)[0] + concatenate([h, x]).sum() + einsum("i,i->", h, h)
        del h
        del y
        assert [ref() for ref in watched] == [None, None]

        h = x.exp()
        watched = [weakref.ref(h), weakref.ref(h.data)]
        y = (h * h).sum()
        del h
        y.backward()                                    # the result lives on, its graph does not
        assert [ref() for ref in watched] == [None, None]

        h = x.exp()
        watched = [weakref.ref(h), weakref.ref(h.data)]
        slope = grad((h * h).sum(), x, create_graph=True)
        del h
        grad(slope.sum(), x)
        del slope
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()


def test_ME_01_what_no_grad_computes_holds_on_to_nothing():
    x = leaf(np.ones(3))
    with no_grad():
        h = x * 2
        watched = weakref.ref(h.data)
        y = h * 3
        del h
    assert watched() is None
    near(y, [6.0, 6.0, 6.0])


# ----------------------------------------------------------------------------------------------------- gradcheck

@pytest.mark.parametrize("x", [np.float32(100), np.array([1, 100], np.float32), np.ones(2, np.float16),
                               Tensor([1.0], dtype=np.float32), leaf([1.0], np.float32)], ids=repr)
def test_GC_01_an_input_too_coarse_for_the_step_is_refused(x):
    with pytest.raises(TypeError, match="float64"):
        gradcheck(lambda x: x**2, x)
    with pytest.raises(TypeError, match="input 1"):
        gradcheck(lambda y, x: y.sum() * x.sum(), (np.ones(2), x))


def test_GC_01_the_same_point_in_float64_passes():
    report = gradcheck(lambda x: x**2, np.float64(100))
    assert report
    assert report.max_abs_error < 1e-4


@pytest.mark.parametrize(("fn", "x", "at", "analytic", "numeric"), [
    (lambda x: x.relu(), 0.0, r"\[\]", "0", "0.5"),
    (lambda x: x.relu(), [1.0, 0.0, -1.0], r"\[1\]", "0", "0.5"),
    (lambda x: x.clip(-1.0, 2.0), [[0.0, 1.0], [2.0, 5.0]], r"\[1, 0\]", "1", "0.5"),
    (lambda x: x.clip(-1.0, 2.0), [-1.0], r"\[0\]", "1", "0.5"),
    (lambda x: stack([x[0], x[1], x[2]]).max(), [1.0, 1.0, 1.0], r"\[0\]", "0.3333333333", "0.5"),
    (lambda x: x.max(axis=0), [[1.0], [1.0], [1.0]], r"\[0, 0\]", "0.3333333333", "0.5"),
])
def test_GC_02_a_kink_is_reported_with_place_both_numbers_and_a_hint(fn, x, at, analytic, numeric):
    with pytest.raises(GradcheckError, match=f"input 0 at {at}.*analytic {analytic}.*numeric {numeric}.*kink"):
        gradcheck(fn, np.array(x))
    with pytest.raises(GradcheckError, match=f"weights at {at}"):
        gradcheck(fn, Tensor(x, name="weights"))


def test_GC_02_near_a_kink_but_further_than_the_step_all_is_well():
    for fn in (Tensor.relu, abs, lambda x: x.clip(0.0, 5.0), lambda x: maximum(x, 0.0), lambda x: x.max(axis=0)):
        assert gradcheck(fn, np.array([-1e-3, 1e-3, 2e-3]), order=2)


def test_GC_03_inputs_that_overlap_or_are_views_are_copied_first():
    overlapping = np.lib.stride_tricks.as_strided(np.ones(1), (2,), (0,))
    assert gradcheck(lambda x: x.sum(), overlapping).max_abs_error < 1e-8
    assert gradcheck(lambda x: (x * x).sum(), overlapping).max_abs_error < 1e-8
    assert gradcheck(lambda x: x**2, np.broadcast_to(3.0, (2, 3))).max_abs_error < 1e-8
    base = np.arange(6.0)
    views = (base.reshape(2, 3).T, base[::-1], base[::2], base.reshape(3, 2)[:, 1],
             np.asfortranarray(base.reshape(2, 3)))
    for view in views:
        assert gradcheck(lambda x: (x**2).sum(), view).max_abs_error < 1e-8
        with pytest.raises(GradcheckError, match=r"input 0 at"):
            gradcheck(doubled_wrongly, view)            # the finite differences are not 0 by accident
    assert gradcheck(lambda x, y: x * y, (base, base)).max_abs_error < 1e-8
    near(base, np.arange(6.0))


@primitive
def doubled_wrongly(x):
    return x * 2


doubled_wrongly.defvjp(lambda g, out, x: g * 0)


def test_GC_03_the_inputs_and_their_gradients_are_untouched():
    x, before = leaf([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    plain = before.copy()
    gradcheck(lambda x, y: x @ y, (x, plain), order=2)
    near(x, before)
    near(plain, before)
    assert x.grad is None
    assert plain.flags.writeable


def test_GC_05_a_function_that_is_not_deterministic_is_refused():
    rng = np.random.default_rng(0)
    for fn, x in ((lambda x: x * rng.random(), [3.0]), (lambda x: x + rng.random(), 3.0),
                  (lambda x: x * rng.random(x.shape), np.ones((2, 2))),
                  (lambda x: F.dropout(x, 0.5, rng=rng), np.ones(50)), (lambda x: (x * 2, x * rng.random()), [3.0]),
                  (lambda x: attention(x, x, x, dropout=0.5, rng=rng)[0], rng.normal(size=(8, 2)))):
        with pytest.raises(RuntimeError, match="not deterministic"):
            gradcheck(fn, x)


def test_GC_05_dropout_of_one_element_never_passes_with_a_wrong_number():
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(50):
        with contextlib.suppress(RuntimeError, GradcheckError):     # (an AssertionError: so no assert in here)
            worst = max(worst, gradcheck(lambda x: F.dropout(x, 0.5, rng=rng), [3.0]).max_abs_error)
    assert worst < 1e-6


def test_GC_05_the_same_function_with_a_seed_passes():
    assert gradcheck(lambda x: F.dropout(x, 0.5, rng=0), np.arange(1.0, 9.0), order=2)
    assert gradcheck(lambda x: attention(x, x, x, dropout=0.5, rng=7)[0], np.random.default_rng(0).normal(size=(4, 2)))


# -------------------------------------------------------------------------------------------------- higher order

def test_HO_01_second_derivatives_are_those_of_the_derivation():
    near(hessian(lambda x: x**3, 2.0), 12.0)
    near(hessian(lambda x: x * x * x, 2.0), 12.0)
    near(hessian(lambda z: F.cross_entropy(z[None], [0]), [0.0, 0.0]), [[0.25, -0.25], [-0.25, 0.25]])
    (daa, dab), (dba, dbb) = hessian(lambda a, b: (-((a - b) ** 2).sum()).exp(), ([1.0, 2.0], [1.0, 2.0]))
    near(dab, 2 * np.eye(2))
    near(dba, 2 * np.eye(2))
    near(daa, -2 * np.eye(2))
    near(dbb, -2 * np.eye(2))


@pytest.mark.parametrize(("fn", "x", "derivatives"), [
    (lambda x: x**3, 2.0, [12, 12, 6, 0]),
    (lambda x: x**-1, 2.0, [-1 / 4, 1 / 4, -3 / 8]),
    (lambda x: 1 / x, 2.0, [-1 / 4, 1 / 4, -3 / 8]),
    (lambda x: 2**x, 1.0, [2 * math.log(2), 2 * math.log(2) ** 2, 2 * math.log(2) ** 3]),
    (lambda x: x**x, 1.0, [1, 2, 3]),
    (lambda x: x.exp(), 0.0, [1, 1, 1]),
    (lambda x: x.log(), 2.0, [1 / 2, -1 / 4, 1 / 4]),
    (lambda x: x.sqrt(), 4.0, [1 / 4, -1 / 32, 3 / 256]),
    (lambda x: x.tanh(), 0.0, [1, 0, -2, 0]),
    (lambda x: x.sigmoid(), 0.0, [1 / 4, 0, -1 / 8]),
    (lambda x: ops.erf(x), 0.0, [2 / math.sqrt(math.pi), 0, -4 / math.sqrt(math.pi)]),
    (lambda x: F.gelu(x), 0.0, [1 / 2, 2 / math.sqrt(2 * math.pi)]),
    (lambda x: x.relu() ** 2, 3.0, [6, 2, 0]),
    (lambda x: abs(x) ** 3, -2.0, [-12, 12, -6]),
    (lambda x: maximum(x, 0.0) ** 3, 2.0, [12, 12, 6]),
    (lambda x: where(x > 0, x**3, x), 2.0, [12, 12, 6]),
    (lambda x: (x * x).clip(0.0, 10.0), 2.0, [4, 2, 0]),
    (lambda x: stack([x, x]).max() ** 3, 2.0, [12, 12, 6]),
    (lambda x: (x.reshape(1, 1) @ x.reshape(1, 1))[0, 0] * x, 2.0, [12, 12, 6]),
    (lambda x: einsum("i,i,i->", *[x.reshape(1)] * 3), 2.0, [12, 12, 6]),
    (lambda x: (x.broadcast_to((3,)) ** 3).mean(), 2.0, [12, 12, 6]),
    (lambda x: x.reshape(1)[[0, 0]].sum() ** 3 / 8, 2.0, [12, 12, 6]),
    (lambda x: (x.reshape(1).cumsum()[0]) ** 3, 2.0, [12, 12, 6]),
    (lambda x: F.norm(stack([x, x])), 2.0, [math.sqrt(2), 0]),
    (lambda x: logsumexp(stack([x, -x])), 0.0, [0, 1, 0, -2]),
    (lambda x: softmax(stack([x, -x]))[0], 0.0, [1 / 2, 0, -1]),
    (lambda x: log_softmax(stack([x, 0 * x]))[0], 0.0, [1 / 2, -1 / 4, 0]),
    (lambda x: stack([x, 3 * x]).var(), 2.0, [4, 2, 0]),
    (lambda x: x.astype(np.float64) ** 3, 2.0, [12, 12, 6]),
])
def test_HO_01_each_derivative_of_a_function_of_one_number_can_be_differentiated(fn, x, derivatives):
    x = leaf(x)
    y = fn(x)
    for expected in derivatives:
        y = grad(y, x, create_graph=True, allow_unused=True) if y.requires_grad else Tensor(0.0)
        near(y, float(expected))


def test_HO_01_without_create_graph_a_gradient_is_a_constant():
    x = leaf(2.0)
    slope = grad(x**3, x)
    assert not slope.requires_grad
    with pytest.raises(RuntimeError, match="grad"):
        grad(slope, x)
    assert grad(x**3, x, create_graph=True).requires_grad


def test_HO_01_mixed_partials_and_broadcasting():
    (xx, xy), (yx, yy) = hessian(lambda x, y: (x**2 * y**3).sum(), ([1.0, 2.0], 3.0))      # y is shared by both
    near(xx, np.diag([54.0, 54.0]))
    near(xy, [54.0, 108.0])
    near(yx, [54.0, 108.0])
    near(yy, 90.0)
    (ww, wx), _ = hessian(lambda w, x: (w @ x).sum(), (np.ones((2, 3)), np.ones(3)))
    near(ww, np.zeros((2, 3, 2, 3)))
    near(wx, np.broadcast_to(np.eye(3), (2, 3, 3)))
    near(hessian(lambda x: (x[[0, 0, 1]] ** 2).sum(), [5.0, 7.0]), [[4.0, 0.0], [0.0, 2.0]])
    near(hessian(F.norm, [3.0, 4.0]), (np.eye(2) - np.outer([0.6, 0.8], [0.6, 0.8])) / 5)
    near(hessian(lambda x: (x * x).sum(), np.zeros((2, 2))), 2 * np.eye(4).reshape(2, 2, 2, 2))


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, -1.0, 0.5])
def test_HO_01_the_mixed_partial_of_a_power_holds_for_every_exponent(p, shape):
    x, p = np.full(shape, 2.0), np.full(shape, p)
    (_, dxp), (dpx, dpp) = hessian(lambda x, p: (x**p).sum(), (x, p))
    for mixed in (dxp, dpx):                            # by x first, and by p first
        near(mixed, (x ** (p - 1) * (1 + p * math.log(2))).reshape(2 * shape))
    near(dpp, (x**p * math.log(2) ** 2).reshape(2 * shape))


def test_HO_01_hessian_of_cross_entropy_is_the_covariance_of_the_classes():
    z = np.array([0.3, -1.0, 2.0])
    p = np.exp(z) / np.exp(z).sum()
    for target in range(3):
        near(hessian(lambda z, t=target: F.cross_entropy(z[None], [t]), z), np.diag(p) - np.outer(p, p))
    near(hessian(logsumexp, z), np.diag(p) - np.outer(p, p))
    near(jacobian(softmax, z), np.diag(p) - np.outer(p, p))


def test_HO_01_a_gradient_penalty_reaches_the_weights():
    x, w = leaf([1.0, -2.0]), leaf([3.0, 0.5])
    slope = grad((w * x**2).sum(), x, create_graph=True)         # 2 w x
    (slope**2).sum().backward()                                  # Σ 4 w² x²
    near(w.grad, [24.0, 16.0])                                   # 8 w x²
    near(x.grad, [72.0, -4.0])                                   # 8 w² x


def test_HO_01_a_seed_that_is_tracked_is_differentiated_too():
    x, v = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    product = grad(x**3, x, v, create_graph=True)                # 3 v x²
    near(grad(product.sum(), v), [3.0, 12.0])
    near(jvp(lambda x: x**3, [1.0, 2.0], [3.0, 4.0])[1], [9.0, 48.0])


@pytest.mark.parametrize("masked", [False, True])
def test_HO_01_attention_can_be_differentiated_twice(masked):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 2)) for _ in range(3))
    mask = np.array([[True, False], [True, True]]) if masked else None

    def energy(q):
        e = np.exp(q @ k.T / math.sqrt(2)) * (1 if mask is None else mask)
        return ((e / e.sum(axis=1, keepdims=True) @ v) ** 2).sum()
    h, eye = 1e-4, np.eye(4).reshape(4, 2, 2)

    def second(a, b):
        up, down = energy(q + a + b) - energy(q + a - b), energy(q - a + b) - energy(q - a - b)
        return (up - down) / (4 * h * h)
    numeric = [[second(h * a, h * b) for b in eye] for a in eye]
    exact = hessian(lambda q: (attention(q, k, v, mask)[0] ** 2).sum(), q)
    near(exact.numpy().reshape(4, 4), numeric, tol=1e-5)


# ----------------------------------------------------------------------------------------------------- attention

def test_AT_01_the_scale_is_that_of_one_head():
    x, w = np.eye(4)[None, :2], identity_heads(4, 2)
    both_tell_the_tokens = [w[0], w[0]]                 # so that each head's output is its weights
    for form in (w, list(w), [leaf(m) for m in w], leaf(w)):
        out = multi_head_attention(x, form, form, both_tell_the_tokens, np.eye(4), 2)
        a, b = 0.66976155, 0.33023845
        near(out, [[[a, b, 0.5, 0.5], [b, a, 0.5, 0.5]]], tol=1e-8)
    out = multi_head_attention(x, w, w, both_tell_the_tokens, np.eye(4), 2, scale=1.0)
    near(out[0, :, :2], [[0.73105858, 0.26894142], [0.26894142, 0.73105858]], tol=1e-8)
    one = identity_heads(4, 1)
    near(multi_head_attention(x, one, one, one, np.eye(4), 1)[0, 0, :2], [0.62245933, 0.37754067], tol=1e-8)


@pytest.mark.parametrize("H", [1, 2, 4])
@pytest.mark.parametrize("shape", [(1, 2, 4), (2, 4), (3, 5, 4), (2, 2, 2, 4)], ids=str)
def test_AT_03_splitting_and_merging_heads_is_the_identity(shape, H):
    x = np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    w, L = identity_heads(4, H), shape[-2]
    near(multi_head_attention(x, w, w, w, np.eye(4), H, np.eye(L, dtype=bool)), x)
    near(grads(lambda x: (multi_head_attention(x, w, w, w, np.eye(4), H, np.eye(L, dtype=bool)) * x).sum(), x), 2 * x)
    w_o = np.random.default_rng(0).normal(size=(4, 4))
    near(multi_head_attention(x, w, w, w, w_o, H, np.eye(L, dtype=bool)), x @ w_o, tol=1e-9)


@loud
def test_AT_05_a_head_masked_everywhere_gives_zero_and_leaves_the_others_alone():
    x, w = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]), identity_heads(3, 3)
    expected = [[[3.85772238, 4.99258213, 0.0], [3.99998157, 4.99999908, 0.0]]]
    heads = np.array([True, True, False]).reshape(3, 1, 1)
    for mask in (heads, np.broadcast_to(heads, (3, 2, 2)), heads[None], np.where(heads, 0, -INF)):
        near(multi_head_attention(x, w, w, w, np.eye(3), 3, mask), expected, tol=1e-8)
        dx = grads(lambda x, m=mask: multi_head_attention(x, w, w, w, np.eye(3), 3, m).sum(), x)
        assert np.isfinite(dx).all()
        assert not dx[..., 2].any()
    _, weights = attention(*[x.swapaxes(-1, -2)[..., None]] * 3, heads)      # (1, 3, 2, 1), one head a feature
    near(weights.sum(axis=-1), [[[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]])
    near(weights.mean(axis=1).sum(axis=-1), [[2 / 3, 2 / 3]])


def test_AT_07_attention_runs_along_the_sequence_and_never_across_the_batch():
    x, nought, one = np.array([[[1.0], [2.0]], [[3.0], [4.0]]]), np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    near(multi_head_attention(x, nought, nought, one, np.eye(1), 1), [[[1.5], [1.5]], [[3.5], [3.5]]])
    near(attention(0 * x, 0 * x, x)[0], [[[1.5], [1.5]], [[3.5], [3.5]]])
    near(F.scaled_dot_product_attention(0 * x, 0 * x, x), [[[1.5], [1.5]], [[3.5], [3.5]]])


@pytest.mark.parametrize("mask", [None, causal_mask(3), padding_mask([2, 3], 3),
                                  np.random.default_rng(0).normal(size=(3, 3))],
                         ids=["none", "causal", "padding", "bias"])
@pytest.mark.parametrize("context", [False, True])
def test_AT_07_one_sample_of_a_batch_does_not_depend_on_another(mask, context):
    rng = np.random.default_rng(0)
    x, c, w = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2, 4, 2))
    w_o = rng.normal(size=(4, 4))

    def attend(x, c):
        return multi_head_attention(x, w[0], w[1], w[2], w_o, 2, mask, context=c if context else None)
    changed = [np.concatenate([a[:1], a[1:] * 7 + 1]) for a in (x, c)]
    near(attend(*changed)[0], attend(x, c)[0])
    assert not np.allclose(attend(*changed)[1], attend(x, c)[1])
    for g in grads(lambda x, c: attend(x, c)[0].sum() + 0 * (x + c).sum(), x, c):
        assert not g[1].any()


# --------------------------------------------------------------------------------------------- losses and norms

def test_LS_01_ignored_targets_count_neither_in_the_sum_nor_in_the_divisor():
    x = leaf(np.zeros((2, 4)))
    loss = F.cross_entropy(x, [1, -100])
    near(loss, 1.3862943611, tol=1e-10)
    loss.backward()
    near(x.grad, [[0.25, -0.75, 0.25, 0.25], [0.0, 0.0, 0.0, 0.0]])
    near(F.cross_entropy(leaf(np.zeros((1, 3, 4))), [[0, 9, 9]], ignore_index=9), 1.3862943611, tol=1e-10)
    near(grads(lambda x: F.cross_entropy(x, [0, 1], ignore_index=0), np.zeros((2, 2))), [[0.0, 0.0], [0.5, -0.5]])


@loud
def test_LS_01_with_all_targets_ignored_the_loss_is_zero_and_so_is_its_gradient():
    for shape in ((2,), (2, 3), (0,)):
        x = leaf(np.zeros((*shape, 4)))
        loss = F.cross_entropy(x, np.full(shape, -100))
        near(loss, 0.0)
        loss.backward()
        near(x.grad, np.zeros((*shape, 4)))


@pytest.mark.parametrize(("targets", "error", "named"), [
    ([4, 0], ValueError, "4"), ([0, -1], ValueError, "-1"), ([0, -101], ValueError, "-101"),
    ([0.0, 1.0], TypeError, "float64"),
    ([True, False], TypeError, "bool"), ([0], ValueError, r"\(1,\)"), ([[0], [1]], ValueError, r"\(2, 1\)"),
    (0, ValueError, r"\(\)")])
def test_LS_01_a_target_that_is_no_class_is_named(targets, error, named):
    with pytest.raises(error, match=named):
        F.cross_entropy(leaf(np.zeros((2, 4))), targets)


def test_LN_01_layer_norm_divides_by_n_with_eps_inside_the_root():
    x = leaf([0.0, 0.0, 3.0])
    y = F.layer_norm(x, eps=1e-5)
    near(y, [-0.70710501, -0.70710501, 1.41421003], tol=1e-8)
    (y * [1, 2, 3]).sum().backward()
    near(x.grad, [-0.35355427, 0.35355074, 0.0000035354], tol=1e-8)


@loud
def test_LN_01_a_constant_row_is_finite_and_does_not_disturb_the_others():
    def weighed(x):
        return (F.layer_norm(x) * [1, 2, 3]).sum()
    x = [[2.0, 2.0, 2.0], [0.0, 0.0, 3.0]]
    near(F.layer_norm(leaf(x)), [[0.0, 0.0, 0.0], [-0.70710501, -0.70710501, 1.41421003]], tol=1e-8)
    near(grads(weighed, x), [[-316.227766, 0.0, 316.227766], [-0.35355427, 0.35355074, 0.0000035354]], tol=1e-8)


def test_LN_01_weight_and_bias_are_over_the_last_axis():
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(2, 3, 4)), rng.normal(size=4), rng.normal(size=4)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    near(F.layer_norm(leaf(x), leaf(w), leaf(b)), normal * w + b)
    dx, dw, db = grads(lambda *a: F.layer_norm(*a).sum(), x, w, b)
    near(dw, normal.sum((0, 1)))
    near(db, np.full(4, 6.0))
    near(dx.sum(-1), np.zeros((2, 3)), tol=1e-10)       # a shift of a row changes nothing
