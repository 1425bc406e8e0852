"""Threads: the work is shared, each result is what one thread gives, and nothing that fails leaves a trace."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from contextlib import suppress

import numpy as np
import pytest

from tinygrad_attn import Tensor, blocked, kernels, optim, threads
from tinygrad_attn import functional as F
from tinygrad_attn.grouped import grouped_attention, packed_attention
from tinygrad_attn.nn.layers import rows_at

threadpoolctl = pytest.importorskip("threadpoolctl")


@pytest.fixture(autouse=True)
def _small_is_enough(monkeypatch):
    """Usually one thread computes what is small, and the textbook form."""
    for module in (kernels, blocked):
        monkeypatch.setattr(module, "FEWEST", 1)


def each(work, pieces):
    threads.each(work, pieces, 1 << 30)


def blas():
    return [library.get_num_threads() for library in threads._libraries()]


def run(code, timeout=60, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout.strip(), done.stderr


def all_threads(n, work, timeout=60):
    """Run work(i) in n threads of the user's; their faults."""
    faults = []

    def one(i):
        try:
            work(i)
        except BaseException as error:
            faults.append(error)
    users = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(n)]
    for user in users:
        user.start()
    for user in users:
        user.join(timeout)
    assert not any(user.is_alive() for user in users), "they wait for each other"
    return faults


# ------------------------------------------------------------------------------------------------------- the pool

@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_each_piece_is_done_once_and_all_are_done_at_the_end(number):
    with threads.limit(number):
        for n in (0, 1, 2, 5, 100):
            done, who = [], set()

            def work(i, done=done, who=who):
                time.sleep(0.0005)
                done.append(i)
                who.add(threading.get_ident())
            each(work, (i for i in range(n)))
            assert sorted(done) == list(range(n))
            assert 1 <= len(who | {0}) - 1 <= min(number, n) or not n
            if n == 100 and number > 1:
                assert len(who) > 1


def test_matrix_products_run_on_one_thread_each_meanwhile_and_on_their_old_number_afterwards():
    for library in threads._libraries():
        library.set_num_threads(2)
    inside = []
    each(lambda i: inside.append(blas()), range(4))
    assert inside == [[1] * len(blas())] * 4
    assert blas() == [2] * len(blas())


class Stop(BaseException):
    pass


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, Stop])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_an_exception_in_a_piece_reaches_the_caller_and_the_pool_works_afterwards(kind, number):
    before, main = blas(), threading.get_ident()
    for where in ("caller", "helper", "any"):
        if where == "helper" and number == 1:
            continue
        started = []

        def work(i, where=where, started=started):
            started.append(i)
            time.sleep(0.002)
            mine = threading.get_ident() == main
            if where == "any" or (where == "caller") == mine:
                raise kind("here")
        with threads.limit(number), pytest.raises(kind, match="here"):
            each(work, range(50))
        assert len(started) < 25 if where != "any" else len(started) <= number      # nobody starts another one
        assert (blas(), threads._pool.busy.locked()) == (before, False)
        done = []
        with threads.limit(number):
            each(done.append, range(20))
        assert sorted(done) == list(range(20))


def test_an_exception_of_the_helper_that_ends_last_reaches_the_caller():
    together, main, helpers = threading.Barrier(3, timeout=10), threading.get_ident(), []

    def work(i):
        together.wait()
        if threading.get_ident() != main:
            helpers.append(i)
            if helpers.index(i) == 1:
                time.sleep(0.05)
                raise ValueError("here")
    with threads.limit(3), pytest.raises(ValueError, match="here"):
        each(work, range(3))


def test_an_exception_of_a_helper_does_not_keep_its_arrays():
    class Large:
        pass

    def fail():
        large = Large()
        seen.append(weakref.ref(large))

        def work(i, large=large):
            time.sleep(0.01)
            if threading.get_ident() != main:
                raise ValueError("here")
        each(work, range(4))
    seen, main = [], threading.get_ident()
    with threads.limit(2):
        with suppress(ValueError):
            fail()
        time.sleep(0.05)
        gc.collect()
        assert seen[0]() is None


def test_a_thread_that_cannot_be_started_is_an_error_and_is_not_waited_for_later():
    code = """
import faulthandler, threading
from tinygrad_attn import threads
faulthandler.dump_traceback_later(6, exit=True)
start = threading.Thread.start
def refuse(self): raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
with threads.limit(2):
    try: threads.each(lambda i: None, range(4), 1 << 30)
    except RuntimeError: pass
    threading.Thread.start = start
    done = []
    threads.each(done.append, range(4), 1 << 30)
print(sorted(done))
"""
    assert run(code)[:2] == (0, "[0, 1, 2, 3]")


def test_nested_and_concurrent_use_waits_for_nobody_and_gets_everything_right():
    results = {}

    def nested(i):
        found = []
        each(lambda a: each(lambda b: found.append((a, b)), range(4)), range(4))
        assert sorted(found) == [(a, b) for a in range(4) for b in range(4)]
        x = np.random.default_rng(0).normal(size=(2, 600, 8))
        results[i] = grouped_attention(x, x, x, causal=True)
    with threads.limit(3):
        nested("alone")
        for _ in range(5):
            assert all_threads(6, nested) == []
    for i in range(6):
        np.testing.assert_allclose(results[i], results["alone"], atol=1e-13)


@pytest.mark.parametrize("number", [1, 2])
def test_pieces_that_are_cut_again_do_not_wait_for_the_call_they_are_part_of(number, monkeypatch):
    monkeypatch.setattr(threads, "PATIENCE", 3.0)
    start = time.monotonic()
    with threads.limit(number):
        each(lambda a: time.sleep(0.01) or each(lambda b: None, range(4)), range(4))
    assert time.monotonic() - start < 2


def test_a_piece_may_wait_for_another_thread_that_shares_work_too():
    def piece(i):
        if i == 0:
            assert all_threads(1, lambda _: each(lambda j: None, range(8)), timeout=20) == []
    with threads.limit(2):
        each(piece, range(4))


def test_limit_is_restored_on_exceptions_and_takes_numbers_only():
    before = threads.count()
    with threads.limit(before + 3):
        assert threads.count() == before + 3
        with suppress(KeyError), threads.limit(1):
            assert threads.count() == 1
            raise KeyError
        assert threads.count() == before + 3
    assert threads.count() == before
    for wrong in (0, -1, 1.5, True, None, "2"):
        with pytest.raises(ValueError, match=r"threads\.limit"), threads.limit(wrong):
            pass
    assert threads.count() == before


def test_limits_of_two_threads_that_overlap_leave_the_number_as_it_was():
    before, first, second = threads.count(), threading.Event(), threading.Event()

    def one(i):
        if i == 0:
            with threads.limit(1):
                first.set()
                second.wait(10)
        else:
            first.wait(10)
            with threads.limit(3):
                second.set()
                time.sleep(0.1)
    assert all_threads(2, one) == []
    left = threads.count()
    assert threads.count() == before
    assert left == before


def test_what_numpy_is_told_about_errors_holds_in_all_threads():
    """np.errstate is of the thread that sets it."""
    x, w = np.full((8192, 64), 1e38, np.float32), np.ones((64, 64), np.float32)
    with threads.limit(2), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with np.errstate(all="ignore"):
            for _ in range(10):
                F.linear(x, w)
                F.gelu(x)
                F.layer_norm(x)
    assert [str(warning.message) for warning in told] == []


# --------------------------------------------------------------------------------------------- processes of all kinds

COMPUTE = """
import hashlib, numpy as np
from tinygrad_attn import Tensor, threads, functional as F, optim
def compute():
    r = np.random.default_rng(0)
    shapes = (4000, 256), (300, 256), (300,)
    x, w, b = (Tensor(r.normal(size=s).astype(np.float32), requires_grad=True) for s in shapes)
    h = F.layer_norm(F.gelu(F.linear(x, w, b)), b, b).reshape(4, 1000, 300)
    y = F.scaled_dot_product_attention(h, h, h, is_causal=True)
    (y * Tensor(r.normal(size=y.shape).astype(np.float32))).sum().backward()
    return hashlib.md5(b"".join(t.tobytes() for t in (y.numpy(), x.grad, w.grad, b.grad))).hexdigest()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_can_compute_and_its_parent_goes_on():
    code = COMPUTE + """
import os, signal
with threads.limit(2):
    first = compute()
    for _ in range(3):
        if not (child := os.fork()):
            signal.alarm(20)
            os._exit(0 if compute() == first and len(threads._pool.helpers) == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert compute() == first
print("through")
"""
    assert run(code)[:2] == (0, "through")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_made_while_another_thread_computes_can_compute_on_several_threads():
    code = COMPUTE + """
import os, signal, threading, time
first = compute()
def blas(): return [library.get_num_threads() for library in threads._libraries()]
for library in threads._libraries(): library.set_num_threads(2)
before = blas()
stop = False
def hammer():
    while not stop: threads.each(lambda i: sum(range(3000)), range(64), 1 << 30)
with threads.limit(2):
    threading.Thread(target=hammer, daemon=True).start()
    time.sleep(0.05)
    bad = set()
    for _ in range(10):
        if not (child := os.fork()):
            signal.alarm(20)
            free = threads._pool.busy.acquire(blocking=False)
            if free: threads._pool.busy.release()
            os._exit(0 if free and blas() == before and compute() == first else 1)
        bad.add(os.waitpid(child, 0)[1])
    stop = True
print(bad)
"""
    assert run(code)[:2] == (0, "{0}")


def test_without_threadpoolctl_one_python_thread_does_everything():
    code = "import sys; sys.modules['threadpoolctl'] = None\n" + COMPUTE + """
import threading
with threads.limit(4):
    who = set()
    threads.each(lambda i: who.add(threading.get_ident()), range(40), 1 << 30)
    compute()
print(threading.active_count(), len(who), threads._pool.helpers)
"""
    assert run(code)[:2] == (0, "1 1 []")


@pytest.mark.parametrize(("said", "number"), [("1", 1), ("3", 3), ("5,2", 5), ("0", 1), ("many", None), ("", None)])
def test_OMP_NUM_THREADS_is_obeyed(said, number):
    code = "import os; from tinygrad_attn import threads; print(threads.count(), len(os.sched_getaffinity(0)))"
    status, out, _ = run(code, OMP_NUM_THREADS=said)
    count, cores = map(int, out.split())
    assert (status, count) == (0, number or cores)


def test_results_do_not_depend_on_OMP_NUM_THREADS_to_the_bit():
    assert len({run(COMPUTE + "print(compute())", OMP_NUM_THREADS=str(n))[1] for n in (1, 2, 3)}) == 1


# -------------------------------------------------------------------------------- bits, whatever the number of threads

def computations(dtype):
    r = np.random.default_rng(0)

    def leaf(*shape):
        return Tensor(r.normal(size=shape).astype(dtype), requires_grad=True)
    t, ids = r.integers(0, 600, 700), r.integers(0, 700, (3, 900))
    return {
        "linear": (F.linear, [leaf(3, 700, 130), leaf(700, 130), leaf(700)]),
        "layer norm": (F.layer_norm, [leaf(1500, 300), leaf(300), leaf(300)]),
        "gelu": (F.gelu, [leaf(500, 301)]),
        "gelu tanh": (lambda x: F.gelu(x, "tanh"), [leaf(500, 301)]),
        "cross-entropy": (lambda x: F.cross_entropy(x, t), [leaf(700, 600)]),
        "embedding": (lambda w: rows_at(w, ids), [leaf(700, 100)]),
        "attention": (
            lambda q, k, v: grouped_attention(q, k, v, causal=True, grouped=True),
            [leaf(2, 6, 600, 16), leaf(2, 3, 700, 16), leaf(2, 3, 700, 8)],
        ),
        "short attention": (
            lambda q, k, v: grouped_attention(q, k, v),
            [leaf(40, 4, 65, 16), leaf(40, 4, 65, 16), leaf(40, 4, 65, 16)],
        ),
        "dropout": (
            lambda q, k, v: grouped_attention(q, k, v, dropout=0.2, rng=1),
            [leaf(3, 300, 16), leaf(3, 400, 16), leaf(3, 400, 16)],
        ),
        "packed": (lambda x: packed_attention(x, 4, 2, causal=True), [leaf(12, 257, 128)]),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_bit_depends_on_the_number_of_threads(dtype):
    for call, leaves in computations(dtype).values():
        found = []
        for number in (1, 2, 3, 7):
            with threads.limit(number):
                y = call(*leaves)
                y.backward(np.random.default_rng(1).normal(size=y.shape).astype(dtype))
            found.append([y.numpy(), *(x.grad for x in leaves)])
            for x in leaves:
                x.grad = None
        for other in found[1:]:
            for a, b in zip(found[0], other):
                np.testing.assert_array_equal(a, b)


def test_no_bit_depends_on_what_other_threads_of_the_user_compute():
    call, leaves = computations("float32")["linear"]
    y = call(*leaves)
    y.backward(np.ones(y.shape, y.dtype))
    right, stop = [y.numpy(), *(x.grad for x in leaves)], threading.Event()

    def other(i):
        if i:
            while not stop.is_set():
                each(lambda j: np.ones((200, 200)) @ np.ones((200, 200)), range(3))
            return
        try:
            for _ in range(30):
                own = [Tensor(x.data, requires_grad=True) for x in leaves]
                y = call(*own)
                y.backward(np.ones(y.shape, y.dtype))
                for a, b in zip(right, [y.numpy(), *(x.grad for x in own)]):
                    np.testing.assert_array_equal(a, b)
        finally:
            stop.set()
    with threads.limit(2):
        assert all_threads(3, other) == []


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW])
def test_no_bit_of_a_step_depends_on_the_number_of_threads(kind):
    found = []
    for number in (1, 2, 3, 7):
        r = np.random.default_rng(0)
        ws = [Tensor(r.normal(size=(n, 97)).astype(np.float32), requires_grad=True) for n in (900, 1, 1300)]
        with threads.limit(number):
            optimizer = kind(ws, 0.1)
            for _ in range(3):
                for w in ws:
                    w.grad = r.normal(size=w.shape).astype(np.float32)
                optimizer.step()
        found.append([w.numpy() for w in ws])
    for other in found[1:]:
        for a, b in zip(found[0], other):
            np.testing.assert_array_equal(a, b)
