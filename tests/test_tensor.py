"""Tensor: what it owns, how it meets NumPy and Python, and what it refuses."""

import copy
import pickle

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def test_data_is_copied_and_read_only():
    a = np.array([1.0, 2.0])
    t = leaf(a)
    a[0] = 9.0
    np.testing.assert_array_equal(t.numpy(), [1.0, 2.0])
    for array in (t.data, t.numpy(), (t * 2).data, (t * 2).numpy(), t[0:1].numpy(), t.detach().numpy()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        t.numpy().setflags(write=True)
    with pytest.raises(ValueError, match="read-only"):
        t.data *= 10


def test_a_scalar_is_a_numpy_scalar_inside_and_a_0d_array_outside():
    t = leaf(2.0)
    assert isinstance(t.data, np.float64)
    assert (type(t.numpy()), t.numpy().shape, t.shape, t.ndim, t.size) == (np.ndarray, (), (), 0, 1)
    (t * t).backward()
    assert (type(t.grad), t.grad.shape, t.grad) == (np.ndarray, (), 4.0)


def test_new_data_keeps_shape_and_dtype_or_is_refused():
    t = leaf([1.0, 2.0], dtype=np.float32)
    fresh = np.array([3, 4])
    t.data = fresh                          # integers, explicitly into float32
    fresh[0] = 7
    assert (t.dtype, t.numpy().tolist()) == (np.float32, [3.0, 4.0])
    with pytest.raises(ta.ShapeError, match=r"\(2,\).*\(1,\)"):
        t.data = [1.0]
    with pytest.raises(TypeError, match="same_kind"):
        Tensor([1, 2]).data = [0.5, 0.5]
    with pytest.raises(ta.GraphError, match="multiply computed"):
        (t * 2).data = [1.0, 2.0]
    assert t.numpy().tolist() == [3.0, 4.0]


@pytest.mark.parametrize("data", [[1, 2], True, np.arange(3), [1j], np.zeros(2, np.int8)])
def test_only_floats_can_need_a_gradient(data):
    with pytest.raises(TypeError, match=r"floating dtype, not .*write 1\.0 for 1"):
        leaf(data)
    t = Tensor(data)
    with pytest.raises(TypeError, match="floating dtype"):
        t.requires_grad = True
    assert not t.requires_grad


def test_a_masked_array_does_not_cut_the_graph_either():
    with pytest.raises(TypeError, match="cut its graph"):
        np.ma.array([1.0, 2.0]) * leaf([3.0, 4.0])


@pytest.mark.parametrize("options", [dict(data=2 ** 70), dict(data=[1.0], dtype=object), dict(data=[1.0], dtype=str)])
def test_a_tensor_holds_numbers(options):
    with pytest.raises(TypeError, match="holds numbers"):
        Tensor(**options)


@pytest.mark.parametrize("data", ["abc", None, object(), np.array(["a"]), np.array([None]), [[1.0], [1.0, 2.0]]])
def test_what_is_not_numbers_is_refused(data):
    with pytest.raises((TypeError, ValueError)):
        Tensor(data)


@pytest.mark.parametrize("make", [lambda t: Tensor(t), lambda t: Tensor([t, t]), lambda t: np.array([t, t]), np.asarray,
                                  lambda t: np.add(np.ones(2), [t, t])])
def test_a_graph_is_never_cut_silently(make):
    with pytest.raises(TypeError, match=r"cut (their|its) graph"):
        make(leaf(1.0))


def test_an_untracked_tensor_is_an_array_to_numpy():
    t = Tensor([1.0, 2.0])
    assert type(np.asarray(t)) is np.ndarray
    assert np.asarray(t, dtype=np.float32).dtype == np.float32
    np.testing.assert_allclose(t, [1.0, 2.0])


def test_requires_grad_of_a_result_cannot_be_set():
    with pytest.raises(ta.GraphError, match="detach"):
        (leaf(1.0) * 2).requires_grad = False
    t = leaf(1.0)
    t.requires_grad = False
    assert (t * 2).node is None


NUMPY_CALLS = {
    "add": lambda a, t: np.add(a, t), "sub": lambda a, t: a - t, "mul": lambda a, t: a * t, "div": lambda a, t: a / t,
    "scalar": lambda a, t: np.float64(2) * t, "pow": lambda a, t: np.power(t, 2), "matmul": lambda a, t: np.diag(a) @ t,
    "exp": lambda a, t: np.exp(t), "abs": lambda a, t: np.abs(t), "square": lambda a, t: np.square(t),
    "positive": lambda a, t: +t, "sum": lambda a, t: np.sum(t, 0), "mean": lambda a,
        t: np.mean(t, axis=0, keepdims=True),
    "max": lambda a, t: np.max(t), "var": lambda a, t: np.var(t, ddof=1), "where": lambda a, t: np.where(a > 2, t, a),
    "clip": lambda a, t: np.clip(t, 0.5, 2.5), "concatenate": lambda a, t: np.concatenate((a, t)),
    "stack": lambda a, t: np.stack([a, t], axis=1), "reshape": lambda a, t: np.reshape(t, (3, 1)),
    "transpose": lambda a, t: np.transpose(np.outer(a, [1.0, 2.0]) * t[:, None], (1, 0)),
    "einsum": lambda a, t: np.einsum("i,j->ij", a, t), "maximum": lambda a, t: np.maximum(a, t + 0.5),
    "squeeze": lambda a, t: np.squeeze(t[None]), "expand_dims": lambda a, t: np.expand_dims(t, 1),
    "broadcast_to": lambda a, t: np.broadcast_to(t, (2, 3)), "cumsum": lambda a, t: np.cumsum(t),
    "tril": lambda a, t: np.tril(np.outer(a, a) * t, -1), "matrix_transpose": lambda a, t: np.matrix_transpose(t[None]),
}


@pytest.mark.parametrize("name", NUMPY_CALLS)
def test_a_numpy_function_of_a_tensor_is_recorded(name):
    a, x = np.array([1.0, 2.0, 3.0]), np.array([1.5, 0.25, 4.0])
    t = leaf(x)
    out = NUMPY_CALLS[name](a, t)
    assert type(out) is Tensor
    np.testing.assert_allclose(out.numpy(), NUMPY_CALLS[name](a, x), rtol=1e-15)
    ta.gradcheck(lambda t: NUMPY_CALLS[name](a, t), x)


@pytest.mark.parametrize(("call", "text"), [
    (lambda t: np.sin(t), "numpy.sin is not defined for Tensors.*@primitive"),
    (lambda t: np.linalg.norm(t), "numpy.linalg.norm is not defined"), (lambda t: np.sort(t), "numpy.sort is not"),
    (lambda t: np.add.reduce(t), "np.add.*without .reduce"), (lambda t: np.add(t, 1, out=np.zeros(2)), "without out"),
    (lambda t: np.exp(t, where=[True, False]), "without where"), (lambda t: np.sum(t, 0, np.float32), "positional"),
    (lambda t: np.sum(t, dtype=np.float32), "dtype"), (lambda t: np.reshape(t, (2,), order="F"), "order"),
])
def test_what_numpy_cannot_do_with_a_tensor_is_a_type_error_and_never_an_object_array(call, text):
    with pytest.raises(TypeError, match=text):
        call(leaf([1.0, 2.0]))


def test_an_array_cannot_take_a_tensor_in_place():
    a, t = np.ones(2), leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="without out"):
        a += t
    np.testing.assert_array_equal(a, [1.0, 1.0])


def test_comparisons_and_the_like_are_plain_arrays():
    t, a = leaf([1.0, 5.0]), np.array([2.0, 2.0])
    plain = [t > a, a > t, t == 1.0, t != t, t <= [1.0, 4.0], np.isnan(t), np.sign(t), t.argmax(), t.argsort(),
             np.argmax(t), np.greater(t, 2), np.floor(t), np.array_equal(t, t), np.allclose(t, [1, 5]),
                 np.zeros_like(t)]
    assert not any(isinstance(p, Tensor) for p in plain)
    assert [(t > a).tolist(), (a > t).tolist(), (t == 1.0).tolist()] == [[False, True], [True, False], [True, False]]


def test_python_conversions():
    t = leaf(2.5)
    assert (float(t), int(t), bool(t), t.item(), f"{t:.2f}", [10, 20, 30][Tensor(2)]) == (2.5, 2, True, 2.5, "2.50", 30)
    assert [row.item() for row in leaf([1.0, 2.0])] == [1.0, 2.0]
    assert len(leaf([[1.0], [2.0]])) == 2
    with pytest.raises(TypeError):
        iter(t)
    with pytest.raises(TypeError):
        len(t)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(leaf([1.0, 2.0]))
    assert sum([leaf(1.0), leaf(2.0)]).item() == 3.0


@pytest.mark.parametrize(("tensor", "text"), [
    (Tensor([1.0, 2.0]), "Tensor([1., 2.])"), (leaf(3.0), "Tensor(3., requires_grad=True)"),
    (leaf([1.0], name="w"), "Tensor([1.], requires_grad=True, name='w')"),
    (leaf(np.float32(1)) * 2, "Tensor(2., dtype=float32, op=multiply)"),
    (Tensor([[1, 2], [3, 4]]), "Tensor([[1, 2],\n        [3, 4]])"),
])
def test_repr(tensor, text):
    assert repr(tensor) == text


def test_item_assignment_names_the_remedy():
    with pytest.raises(TypeError, match=r"where\(mask, value, t\) or concatenate"):
        leaf([1.0, 2.0])[0] = 5.0


def test_reshape_and_transpose_take_shapes_both_ways():
    t = leaf(np.arange(6.0))
    assert t.reshape(2, 3).shape == t.reshape((2, 3)).shape == t.reshape([2, 3]).shape == (2, 3)
    cube = t.reshape(1, 2, 3)
    assert cube.transpose(2, 0, 1).shape == cube.transpose((2, 0, 1)).shape == cube.transpose([2, 0, 1]).shape == (3,
        1, 2)
    assert cube.T.shape == cube.transpose().shape == (3, 2, 1)
    assert cube.mT.shape == (1, 3, 2)
    assert t.transpose(0).shape == t.reshape(6).shape == (6,)
    assert t[0].reshape().shape == t[0].reshape(()).shape == ()
    t.transpose(0).sum().backward()
    assert cube.transpose(np.argsort([2, 0, 1])).shape == (2, 3, 1)
    assert np.reshape(t, np.array([3, 2])).shape == (3, 2)


def test_a_list_of_axes_or_indices_changed_later_does_no_harm():
    axes, rows, mask = [1, 2, 0], np.array([0, 0]), np.array([True, False])
    t = leaf(np.arange(12.0).reshape(2, 3, 2))
    turned, picked, masked = t.transpose(axes), t[rows], t[mask]
    axes[:] = [0, 1, 2]
    rows[:] = 1
    mask[:] = True
    (turned.sum() + 10 * picked.sum() + 100 * masked.sum()).backward()
    np.testing.assert_array_equal(t.grad, np.broadcast_to([[[121.0]], [[1.0]]], (2, 3, 2)))


def test_astype_is_differentiable_between_floats_and_constant_otherwise():
    t = leaf([1.5, 2.5])
    t.astype(np.float32).sum().backward()
    assert t.grad.dtype == np.float64
    whole = t.astype(int)
    assert (whole.requires_grad, whole.numpy().tolist()) == (False, [1, 2])


def test_copies_and_pickles_keep_leaves_whole_and_drop_graphs():
    t = leaf([1.0, 2.0], dtype=np.float32, name="w")
    (t * t).sum().backward()
    for twin in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert twin is not t
        assert (twin.requires_grad, twin.name, twin.dtype, twin.node) == (True, "w", np.float32, None)
        np.testing.assert_array_equal(twin.grad, [2.0, 4.0])
        with pytest.raises(ValueError, match="read-only"):
            twin.data[0] = 1.0
    result = t * 2
    for twin in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert (twin.requires_grad, twin.numpy().tolist()) == (False, [2.0, 4.0])
    tied = copy.deepcopy([t, t])
    assert tied[0] is tied[1]
    tied[0].grad[0] = 99.0
    assert t.grad[0] == 2.0
    y = t
    for _ in range(5000):
        y = y + 0.0
    copy.deepcopy(y)
    pickle.dumps(y)


def test_subclasses_survive_a_copy():
    twin = copy.deepcopy(_Weight([1.0], requires_grad=True))
    assert type(twin) is _Weight
    assert twin.requires_grad


class _Weight(Tensor):
    __slots__ = ()


def test_backward_asks_for_a_gradient_of_the_shape_of_the_value():
    x = leaf(np.ones((2, 2)))
    with pytest.raises(ta.ShapeError, match=r"backward: a value of shape \(2, 2\) has no single gradient.*\.sum"):
        (2 * x).backward()
    for seed in ([1.5], np.ones(2), np.ones((2, 1)), np.ones((1, 2, 2)), 1.0):
        with pytest.raises(ta.ShapeError, match="must agree"):
            (2 * x).backward(seed)
    assert x.grad is None
    (2 * x).backward([[1, 2], [3, 4]])
    np.testing.assert_array_equal(x.grad, [[2.0, 4.0], [6.0, 8.0]])
    x.zero_grad()
    (2 * x).backward(Tensor(np.ones((2, 2))))
    np.testing.assert_array_equal(x.grad, np.full((2, 2), 2.0))


def test_one_element_of_any_rank_needs_no_gradient():
    x = leaf([[3.0]])
    (x * x).backward()
    np.testing.assert_array_equal(x.grad, [[6.0]])


def test_backward_from_a_constant_says_why():
    for constant in (Tensor(1.0), leaf(1.0).detach(), Tensor(1.0) * 2):
        with pytest.raises(ta.GraphError, match="no gradient can flow from here"):
            constant.backward()


def test_gradients_are_never_aliases():
    x, y, seed = leaf([1.0, 2.0]), leaf([3.0, 4.0]), np.ones(2)
    (x + y).backward(seed)
    x.grad *= 0
    np.testing.assert_array_equal(y.grad, [1.0, 1.0])
    np.testing.assert_array_equal(seed, [1.0, 1.0])
    x.backward(seed)
    x.grad += 5
    np.testing.assert_array_equal(seed, [1.0, 1.0])
    x.zero_grad()
    x.sum().backward()
    x.grad[0] = 7                           # not a broadcast view
    np.testing.assert_array_equal(x.grad, [7.0, 1.0])


def test_a_constant_array_changed_after_the_forward_pass_does_no_harm():
    x, a = leaf([3.0]), np.array([2.0])
    ys = [(x * a).sum(), (a @ x), ta.where(a > 1, x * a, 0.0).sum(), ta.einsum("i,i", x, a), (x / a).sum(),
        (x ** a).sum()]
    a *= 10
    grads = [ta.grad(y, x).item() for y in ys]
    assert grads == [2.0, 2.0, 2.0, 2.0, 0.5, 6.0]
