"""The walk: each node once, newest first, with nothing changed on failure and nothing kept alive."""

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, enable_grad, grad, no_grad
from tinygrad_attn.engine import topological_order, unbroadcast


def leaf(data, **options):
    return Tensor(data, requires_grad=True, **options)


def test_gradient_accumulates_through_a_diamond():
    x = leaf(3.0)
    h = 2 * x
    y = h * h + h * x + x                   # paths of length 1, 2 and 3 to x
    y.backward()
    assert (y.item(), x.grad) == (57.0, 37.0)


def test_a_deep_ladder_of_diamonds_is_walked_once_per_node():
    x = leaf(1.0)
    y = x
    for _ in range(60):                     # 2**60 paths
        y = y * 0.5 + y * 0.5
    assert len(topological_order(y)) == 180
    y.backward()
    assert x.grad == 1.0


def test_a_chain_of_a_million_nodes_is_walked_and_freed_without_recursion():
    code = textwrap.dedent("""
        import sys
        from tinygrad_attn import Tensor, graph
        limit = sys.getrecursionlimit()
        x = Tensor(1.0, requires_grad=True)
        y = x
        for _ in range(1_000_000):
            y = y + 0.0
        y.backward()
        print(x.grad, sys.getrecursionlimit() == limit)
        y = x
        for _ in range(1_000_000):
            y = y + 0.0
        del y
        print("freed")
    """)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.stdout.split(), run.returncode) == (["1.0", "True", "freed"], 0), run.stderr


@pytest.mark.parametrize("backward", [True, False])
def test_reference_counting_alone_frees_a_graph(backward):
    gc.disable()
    try:
        x = leaf(np.ones(3))
        h = x * 2
        watched = [weakref.ref(h), weakref.ref(h.data)]
        y = (h.softmax() @ h).sum()
        del h
        assert all(ref() is not None for ref in watched)
        if backward:
            y.backward()                    # y lives on; its graph does not
        else:
            del y
        assert all(ref() is None for ref in watched)
    finally:
        gc.enable()


def test_create_graph_leaves_no_cycle():
    gc.disable()
    try:
        x = leaf(2.0)
        y = x ** 3
        watched = weakref.ref(y)
        g = grad(y, x, create_graph=True)
        del y, g
        assert watched() is None
    finally:
        gc.enable()


def test_a_second_walk_is_a_clear_error_and_changes_nothing():
    x = leaf(2.0)
    h = x * x
    y = h * 3
    y.backward()
    with pytest.raises(ta.GraphFreedError, match=r"multiply: an earlier backward.*pass retain_graph=True"):
        y.backward()
    with pytest.raises(ta.GraphFreedError):
        (h + 1).backward()                  # new on top, freed below
    with pytest.raises(ta.GraphFreedError):
        grad(h + 1, x)
    assert grad(h * h, h).item() == 8.0     # what was freed is not needed


def test_a_freed_part_never_hides_a_path():
    w = leaf(2.0)
    h = w * w
    (h * 1.0).backward()
    x = leaf(2.0)
    c = x * x
    d = c * 3
    d.backward()
    for y, target in ((h + w, w), (d + c, c), ((h * h) + leaf(1.0), w)):
        for allow_unused in (False, True):
            with pytest.raises(ta.GraphFreedError):
                grad(y, target, allow_unused=allow_unused)
    e = c * 2
    assert grad(e * e, e).item() == 16.0


def test_gradients_from_several_threads_into_one_leaf_are_all_counted():
    x = leaf(1.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [(x * 1.0).backward() for _ in range(300)]) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert x.grad == 1200


def test_after_the_second_walk_is_refused_nothing_has_changed():
    x = leaf(2.0)
    y = x * x * 3
    y.backward()
    with pytest.raises(ta.GraphFreedError):
        y.backward()
    assert x.grad == 12.0


def test_retain_graph_keeps_it_and_leaves_accumulate():
    x = leaf(2.0)
    y = (3 * x) * (3 * x)
    y.backward(retain_graph=True)
    assert x.grad == 36.0
    y.backward()
    assert x.grad == 72.0


def test_grad_frees_nothing_and_touches_no_grad():
    x = leaf(2.0)
    h = x * x
    y = h * 3
    assert [grad(y, x).item(), grad(y, h).item(), grad(y, (x, h, y))[2].item()] == [12.0, 3.0, 1.0]
    assert (x.grad, h.grad) == (None, None)


def test_grad_of_what_y_does_not_depend_on_is_an_error_or_zero_by_request():
    x, z = leaf(2.0), leaf([1.0, 2.0])
    y = x * x
    with pytest.raises(ta.GraphError, match=r"xs\[1\], of shape \(2,\)"):
        grad(y, [x, z])
    first, second = grad(y, [x, z], allow_unused=True)
    assert first.item() == 4.0
    np.testing.assert_array_equal(second.numpy(), [0.0, 0.0])
    assert grad(Tensor(1.0), x, allow_unused=True).item() == 0.0
    with pytest.raises(ta.GraphError):
        grad(y, Tensor(3.0))                # a constant


def test_gradients_in_the_middle_of_a_walk_can_be_asked_for():
    x = leaf([1.0, 2.0])
    h = x * 2
    y = (h * h).sum() + h.sum()
    gh, gx = grad(y, [h, x])
    np.testing.assert_array_equal(gh.numpy(), [5.0, 9.0])
    np.testing.assert_array_equal(gx.numpy(), [10.0, 18.0])


def test_create_graph_needs_the_data_that_was_used():
    w = leaf(2.0)
    y = w * w * w
    w.data = 5.0
    assert grad(y, w).item() == 12.0        # the arrays of the forward pass
    with pytest.raises(ta.GraphError, match=r"multiply: an input of shape.*given new data"):
        grad(y, w, create_graph=True)


def test_create_graph_records_under_no_grad():
    x = leaf(2.0)
    y = x ** 3
    with no_grad():
        g = grad(y, x, create_graph=True)
        assert not (x * 2).requires_grad
    assert grad(g, x).item() == 12.0


def test_an_argument_without_derivative_is_named_when_it_is_reached():
    condition, x = leaf([1.0, 0.0]), leaf([1.0, 2.0])
    y = ta.where(condition, x, 0.0).sum()
    np.testing.assert_array_equal(grad(y, x).numpy(), [1.0, 0.0])       # not on the way
    with pytest.raises(ta.NotDifferentiableError, match=r"where: argument 0 has no derivative.*\.detach"):
        y.backward()
    assert (x.grad, condition.grad) == (None, None)


def test_a_walk_that_fails_changes_nothing():
    @ta.primitive
    def fragile(x):
        return x * 2

    def vjp(g, out, x):
        if broken:
            raise RuntimeError("broken")
        return g * 2
    fragile.defvjp(vjp)
    x = leaf(3.0)
    y = fragile(x) + x
    broken = True
    with pytest.raises(RuntimeError, match="broken"):
        y.backward()
    assert x.grad is None
    broken = False
    y.backward()
    assert x.grad == 3.0


@pytest.mark.parametrize("returned", [np.ones((3, 2)), np.ones(2), np.ones(()), np.ones((2, 4)), np.ones((1, 2, 2))])
def test_a_vjp_of_the_wrong_shape_is_named_and_never_reshaped_to_fit(returned):
    @ta.primitive
    def odd(x):
        return x * 2
    odd.defvjp(lambda g, out, x: returned)
    with pytest.raises(ta.ShapeError, match=r"odd: the vjp of argument 0 returned shape"):
        odd(leaf(np.ones((2, 3)))).sum().backward()


def test_unbroadcast_sums_over_repetitions_and_restores_the_dtype():
    g = np.arange(24.0).reshape(2, 3, 4)
    op = ta.softmax
    for shape in [(2, 3, 4), (3, 4), (4,), (), (1, 1, 1), (2, 1, 4), (3, 1)]:
        x = np.zeros(shape, np.float32)
        owned = unbroadcast(g, x, op, 0)
        expected = sum(np.broadcast_to(np.eye(1, x.size, k).reshape(shape), g.shape)[..., None] * 0
                       + (np.broadcast_to(np.arange(x.size).reshape(shape), g.shape) == k).astype(float)[..., None]
                       * g[..., None] * np.eye(1, x.size, k) for k in range(x.size)).sum((0, 1, 2)).reshape(shape)
        np.testing.assert_allclose(owned, expected)
        assert owned.dtype == np.float32


def test_grad_mode_is_restored_after_exceptions_and_nests():
    x = leaf(1.0)
    mode = no_grad()
    with pytest.raises(ValueError, match="inside"), mode:
        raise ValueError("inside")
    assert (x * 2).requires_grad
    with mode:
        with enable_grad():
            assert (x * 2).requires_grad
        with mode:                          # one object, entered twice
            assert not (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad


def test_grad_modes_decorate():
    x = leaf(1.0)

    @no_grad()
    def evaluate(fail=False):
        if fail:
            raise KeyError
        return x * 2
    assert not evaluate().requires_grad
    with pytest.raises(KeyError):
        evaluate(fail=True)
    assert (x * 2).requires_grad
    assert enable_grad()(lambda: x * 2)().requires_grad


def test_grad_mode_belongs_to_a_thread():
    x, seen = leaf(2.0), []
    inside, leave = threading.Event(), threading.Event()

    def first():
        with no_grad():
            inside.set()
            leave.wait(10)
            seen.append(("first", (x * x).requires_grad))

    def second():
        inside.wait(10)
        y = leaf(3.0)
        (y * y).backward()
        seen.append(("second", float(y.grad)))
        with no_grad():                     # enters after, leaves before
            pass
        leave.set()
    threads = [threading.Thread(target=f) for f in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)
    assert sorted(seen) == [("first", False), ("second", 6.0)]
    assert (x * x).requires_grad


def test_threads_can_build_and_walk_graphs_at_once():
    results = {}

    def work(k):
        for _ in range(30):
            x = leaf(float(k))
            y = x
            for _ in range(20):
                y = y * 1.0 + x
            y.backward()
            results.setdefault(k, set()).add(float(x.grad))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: {21.0} for k in range(8)}


def test_a_graph_across_threads_is_still_sorted():
    x = leaf(2.0)
    halves = {}
    t = threading.Thread(target=lambda: halves.update(a=x * x))
    t.start()
    t.join()
    (halves["a"] + x * 3).backward()
    assert x.grad == 7.0


def test_results_have_the_one_tensor_type_whatever_went_in():
    class Parameter(Tensor):
        __slots__ = ()
    p = Parameter([1.0], requires_grad=True)
    assert [type(y) for y in (p * 2, 2 * p, p.sum(), p[0], p.detach(), grad(p.sum(), p))] == [Tensor] * 6


def test_an_op_of_your_own_takes_part_in_everything():
    @ta.primitive
    def cube(x, *, scale=1.0):
        return scale * x * x * x
    cube.defvjp(lambda g, out, x, *, scale=1.0: g * 3 * scale * x * x)
    assert cube(2.0) == 8.0
    ta.gradcheck(lambda x: cube(x, scale=2.0), [1.0, -2.0], order=3)
    assert repr(cube) == "<primitive cube>"
    assert "cube" in ta.graph.draw(cube(leaf(1.0))).source


def test_an_op_may_return_a_python_number():
    @ta.primitive
    def first(x):
        return float(x[0])
    first.defvjp(lambda g, out, x: np.concatenate([[g], np.zeros(len(x) - 1)]))
    x = leaf([3.0, 4.0])
    first(x).backward()
    np.testing.assert_array_equal(x.grad, [1.0, 0.0])


def test_an_op_without_vjps_works_until_a_gradient_is_asked_of_it():
    @ta.primitive
    def total(*xs):
        return sum(xs)

    @ta.primitive
    def floor(x):
        return np.floor(x)
    for y in (total(leaf(1.5), leaf(2.0)), floor(leaf(1.5)), total(*[leaf(1.0)] * 20)):
        with pytest.raises(ta.NotDifferentiableError, match="argument 0 has no derivative"):
            y.backward()


def test_modes_cannot_be_left_more_often_than_entered():
    """A generator suspended inside no_grad() and closed in another thread leaves a mode that thread never entered."""
    def inside():
        with no_grad():
            yield
    suspended = inside()
    next(suspended)
    recorded = []

    def close_elsewhere():
        suspended.close()
        recorded.append((leaf(1.0) * 2).requires_grad)
    thread = threading.Thread(target=close_elsewhere)
    thread.start()
    thread.join()
    no_grad().__exit__()                    # here it was entered, and not yet left
    assert recorded == [True]
    assert (leaf(1.0) * 2).requires_grad


def test_a_mode_cannot_decorate_what_runs_after_the_call():
    def generator():
        yield

    async def coroutine():
        pass
    for later in (generator, coroutine):
        with pytest.raises(TypeError, match=rf"no_grad: the body of {later.__name__} runs after the call"):
            no_grad()(later)


def test_gradients_are_handed_out_all_or_none():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    b.grad = np.ones(3)                     # of another shape: it cannot be added to
    y = (a * b).sum()
    with pytest.raises(ValueError, match="broadcast"):
        y.backward()
    assert a.grad is None
    b.grad = np.ones(2)
    b.grad.setflags(write=False)
    held = b.grad
    y.backward()                            # the graph is still there
    np.testing.assert_array_equal(a.grad, [3.0, 4.0])
    np.testing.assert_array_equal(b.grad, [2.0, 3.0])
    np.testing.assert_array_equal(held, [1.0, 1.0])


def test_an_op_may_return_its_argument_and_nobodys_array_is_frozen_or_shared():
    @ta.primitive
    def second(x, y):
        return y
    second.defvjp(lambda g, out, x, y: g * 0, lambda g, out, x, y: g)
    a = np.array([1.0, 2.0])
    for x in (leaf([0.0, 0.0]), Tensor([0.0, 0.0])):
        out = second(x, a[:])
        a[0] = 7.0
        assert out.numpy().tolist() == [1.0, 2.0]
        a[0] = 1.0

    @ta.primitive
    def listed(x):
        return [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        listed(leaf(1.0)).data[0] = 5.0


@pytest.mark.parametrize(("make", "text"), [
    (lambda: ta.primitive(np.sin), "write a function"), (lambda: ta.primitive(lambda x, y=2.0: x), "no defaults")])
def test_a_primitive_is_made_of_a_function_without_defaults(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_an_op_of_any_number_of_inputs_is_told_which_gradients_are_wanted():
    asked = []

    @ta.primitive
    def total(*xs):
        return sum(xs)
    with pytest.raises(TypeError, match=r"an op of \*args needs joint="):
        total.defvjp(lambda g, out, *xs: g)

    def joint(wanted, g, out, *xs):
        asked.append(set(wanted))
        return dict.fromkeys(wanted, g)
    total.defvjp(joint=joint)
    x, y = leaf(1.0), leaf(2.0)
    total(x, 5.0, y, Tensor(1.0)).backward()
    grad(total(x, y), y)
    assert asked == [{0, 2}, {1}]


def test_a_vjp_that_returns_no_array_is_named():
    @ta.primitive
    def lazy(x):
        return x * 0
    lazy.defvjp(lambda g, out, x: 0.0)
    with pytest.raises(TypeError, match="lazy: the vjp of argument 0 returned a float"):
        lazy(leaf(1.0)).backward()


def test_an_error_of_ones_own_in_an_op_keeps_its_kind():
    @ta.primitive
    def picky(x, *, p):
        raise ValueError("p must be positive")
    with pytest.raises(ValueError, match=r"picky\(\(\), p=0\): p must be positive") as caught:
        picky(leaf(1.0), p=0)
    assert not isinstance(caught.value, ta.ShapeError)


def test_grad_of_what_is_not_a_tensor_says_so():
    x = leaf(1.0)
    for y, xs in ((x * x, np.ones(2)), ([x * x], x), (x * x, [x, 1.0])):
        with pytest.raises(TypeError, match="y must be a Tensor"):
            grad(y, xs)


def test_the_gradient_given_has_the_dtype_of_the_value():
    x = leaf([1.0, 2.0], dtype=np.float32)
    assert grad(x, x, Tensor([1.0, 1.0])).dtype == np.float32
    with pytest.raises(TypeError, match="same_kind"):
        (x * x).backward(np.array([1j, 1.0]))


def test_a_complex_gradient_is_an_error_and_not_zero():
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="multiply: a gradient became complex"):
        (x * 1j).sum().backward()


def test_retain_graph_is_not_taken_for_a_gradient():
    with pytest.raises(TypeError, match="retain_graph=True"):
        (leaf(1.0) * 2).backward(True)


def test_half_precision_is_summed_in_single():
    b = leaf(np.zeros(3), dtype=np.float16)
    (b + np.ones((5000, 3), np.float16)).sum().backward()
    np.testing.assert_array_equal(b.grad, np.full(3, 5000))
    np.testing.assert_array_equal(Tensor(np.ones((5000, 3), np.float16)).sum(axis=0).numpy(), np.full(3, 5000))


def test_a_list_given_as_parameter_may_be_changed_later():
    @ta.primitive
    def scaled(x, *, by):
        return x * by[0]
    scaled.defvjp(lambda g, out, x, *, by: g * by[0])
    x, by = leaf(1.0), [2.0]
    y = scaled(x, by=by)
    by[0] = 100.0
    y.backward()
    assert x.grad == 2.0
