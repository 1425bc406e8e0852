"""Buffers: memory that somebody can still see is never handed out again, and no number depends on where it lies."""

import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

from tinygrad_attn import Tensor, buffers, grad, nn, optim
from tinygrad_attn import functional as F

LARGE = buffers.SMALLEST // 8               # numbers of float64 that are just enough


@pytest.fixture(autouse=True)
def _fresh():
    buffers.limit(2 ** 29)
    yield
    buffers.limit(2 ** 29)


def place(array):
    return np.asarray(array).ctypes.data


def test_memory_that_nobody_sees_is_used_again_and_aligned_to_a_cache_line():
    first = buffers.empty((LARGE,), np.float64)
    where = place(first)
    assert where % buffers.ALIGNED == 0
    del first
    second = buffers.empty((2, LARGE // 2), float)
    assert (place(second), second.shape, second.dtype, second.flags.c_contiguous) == (
        where,
        (2, LARGE // 2),
        float,
        True,
    )
    assert place(buffers.empty((LARGE,), np.int64)) != where
    assert place(buffers.empty((LARGE,), np.float64)) != where


def test_memory_that_is_used_again_has_the_dtype_that_is_asked_for():
    for dtype in (np.float64, np.int64, np.float64, np.complex64, np.dtype(">f8")):
        assert buffers.empty((LARGE,), dtype).dtype == dtype


def test_arrays_of_any_size_begin_at_a_cache_line():
    live = [buffers.empty((LARGE + n,), float) for n in range(40)]
    assert {place(array) % buffers.ALIGNED for array in live} == {0}


SEEN = {
    "itself": lambda a: a,
    "part": lambda a: a[1:2],
    "reversed": lambda a: a[::-1],
    "view of a view": lambda a: a[1:].reshape(-1)[::3],
    "transposed": lambda a: a.T,
    "other dtype": lambda a: a.view(np.uint8),
    "subclass": lambda a: a.view(np.recarray),
    "matrix of a part": lambda a: a[5:].view(np.matrix)[:, 1:],
    "memoryview": memoryview,
    "cast memoryview": lambda a: memoryview(a.reshape(-1)).cast("B")[8:],
    "buffer": lambda a: np.frombuffer(a, float),
    "iterator": lambda a: a.flat,
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "strides": lambda a: np.lib.stride_tricks.as_strided(a, (3,), (8,)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a.reshape(-1), 4),
    "dlpack": np.from_dlpack,
    "base": lambda a: a.base,
    "interface": lambda a: np.asarray(type("A", (), {"__array_interface__": a.__array_interface__, "a": a})()),
    "ctypes": lambda a: np.ctypeslib.as_ctypes(a),
    "tensor": lambda a: _tensor(a).data,
    "nditer": lambda a: np.nditer(a),
    "iterator of rows": lambda a: iter(a),
    "list of rows": lambda a: list(a)[3],
    "bound method": lambda a: a.sum,
    "closure": lambda a: lambda: a,
    "a zero-sized part": lambda a: a[:0],
}


def _tensor(a):
    t = Tensor(0.0)
    t._array = a
    return t


@pytest.mark.parametrize("name", SEEN)
def test_memory_is_not_handed_out_while_it_can_be_seen_as(name):
    array = buffers.empty((64, LARGE // 64), float)
    array[...], where = 5, place(array)
    seen = SEEN[name](array)
    del array
    others = [buffers.empty((LARGE,), float) for _ in range(5)]
    for other in others:
        other[...] = 7
    assert where not in map(place, others)
    del seen, others, other
    gc.collect()
    assert where in {place(x) for x in [buffers.empty((LARGE,), float) for _ in range(6)]}


def test_torch_sees_it_too(torch):
    array = buffers.empty((LARGE,), float)
    array[...], seen = 5, torch.from_numpy(array)
    part = seen[3:]
    del array, seen
    buffers.empty((LARGE,), float)[...] = 7
    assert (part == 5).all()


VIEWS = [
    lambda a: a,
    lambda a: a[1:],
    lambda a: a.reshape(-1)[::3],
    lambda a: a.T[::-1],
    memoryview,
    lambda a: a[None][0, 1:][..., ::-1],
    lambda a: np.broadcast_to(a, (2, *a.shape)),
    lambda a: np.frombuffer(a, a.dtype),
    np.from_dlpack,
    lambda a: [a[1:][1:]][0],
]


@pytest.mark.parametrize("most", [0, 500_000, 3_000_000, 2 ** 29])
def test_every_array_keeps_its_own_number_whatever_five_threads_take_and_let_go(most):
    buffers.limit(most)
    faults, made = [], []

    def work(seed):
        r, live = random.Random(seed), []
        try:
            for step in range(1500):
                if r.random() < 0.5 or not live:
                    a = buffers.empty(
                        r.choice([(8192,), (64, 128), (16384,), (3, 40, 100), (128, 128)]),
                        r.choice([np.float64, np.float32, np.int64]),
                    )
                    a[...] = mark = seed * 100_000 + step
                    live.append((r.choice(VIEWS)(a), mark))
                    made.append(1)
                    del a
                else:
                    view, mark = live.pop(r.randrange(len(live)))
                    if not (np.asarray(view) == mark).all():
                        faults.append((seed, step))
                    del view
                if len(live) > 20:
                    del live[r.randrange(20)]
                if buffers.held() > most:
                    faults.append("held")
        except Exception as error:
            faults.append(error)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert (faults, any(thread.is_alive() for thread in threads)) == ([], False)
    assert len(made) > 2000


def test_the_pool_keeps_no_more_than_its_limit_whatever_is_in_use():
    buffers.limit(10 * buffers.SMALLEST)
    live = []
    for n in itertools.chain(range(LARGE, LARGE + 40), range(LARGE, LARGE + 40)):
        live.append(buffers.empty((n,), float))
        live[-1][...] = n
        assert buffers.held() <= 10 * buffers.SMALLEST
    assert all((x == len(x)).all() for x in live)
    buffers.limit(0)
    assert buffers.held() == 0
    buffers.empty((LARGE,), float)
    assert buffers.held() == 0
    assert all((x == len(x)).all() for x in live)
    for wrong in (-1, 1.5, True, None, "1"):
        with pytest.raises(ValueError, match=r"buffers\.limit"):
            buffers.limit(wrong)


def test_what_is_large_against_the_limit_and_what_is_small_is_not_kept():
    buffers.limit(8 * buffers.SMALLEST)
    arrays = [buffers.empty((n,), np.uint8) for n in (0, 1, buffers.SMALLEST - 1, 2 * buffers.SMALLEST + 1)]
    assert buffers.held() == 0
    arrays.append(buffers.empty((2 * buffers.SMALLEST,), np.uint8))
    assert buffers.held() == 2 * buffers.SMALLEST
    assert buffers.empty((), float).shape == ()


# ------------------------------------------------------------------------------------------------------- training

def gpt(rng=0, **options):
    return nn.GPT(
        vocab_size=40, max_len=32, d_model=32, num_heads=4, num_layers=1, dtype=np.float32, rng=rng, **options
    )


def train(model, steps, optimizer=None, each=lambda step, loss: None):
    optimizer, rng = optimizer or optim.AdamW(model.parameters(), 1e-3), np.random.default_rng(0)
    for step in range(steps):
        ids = rng.integers(0, 40, (16, 33))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
        loss.backward()
        each(step, loss)
        optim.clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
    return [p.numpy() for p in model.parameters()]


def test_training_gives_the_same_bits_with_a_pool_and_without():
    found = []
    for most in (2 ** 29, 0, 2 ** 20):
        buffers.limit(most)
        found.append(train(gpt(dropout=0.1), 8))
        assert (buffers.held() > 0) == (most > 0)
    for other in found[1:]:
        for x, y in zip(found[0], other):
            np.testing.assert_array_equal(x, y)


def test_training_takes_no_more_memory_with_every_step():
    sizes = []
    tracemalloc.start()
    try:
        train(gpt(), 200, each=lambda step, loss: sizes.append((tracemalloc.get_traced_memory()[0], buffers.held())))
    finally:
        tracemalloc.stop()
    (before, held), (after, held_after) = sizes[40], sizes[-1]
    assert after - before < 200_000
    assert held == held_after


def test_gradients_that_somebody_keeps_keep_their_numbers():
    model, kept = gpt(), []

    def keep(step, loss):
        kept.append([(p.grad, p.grad[-1:], p.data, p.grad.copy(), p.data.copy()) for p in model.parameters()])
    train(model, 12, each=keep)
    for step in kept:
        for g, part, w, g_then, w_then in step:
            np.testing.assert_array_equal(g, g_then)
            np.testing.assert_array_equal(part, g_then[-1:])
            np.testing.assert_array_equal(w, w_then)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_a_graph_recorded_before_a_step_and_walked_after_it_has_the_old_weights(kind):
    rng = np.random.default_rng(0)
    w, v = (Tensor(rng.normal(size=(300, 300)), requires_grad=True) for _ in range(2))
    x, optimizer = Tensor(rng.normal(size=(50, 300))), kind([w, v], 0.1)
    graphs, expected = [], []
    for _ in range(6):
        optimizer.zero_grad()
        y = F.linear(F.gelu(F.linear(x, w)), v).sum()
        z = F.linear(F.gelu(F.linear(x, w)), v).sum()
        expected.append([g.numpy() for g in grad(z, [w, v])])
        graphs.append(y)
        z.backward()
        optimizer.step()
    for y, right in zip(graphs, expected):
        for g, e in zip(grad(y, [w, v]), right):
            np.testing.assert_array_equal(g.numpy(), e)
    optimizer.zero_grad()
    graphs[0].backward()
    np.testing.assert_array_equal(w.grad, expected[0][0])


def test_the_gradients_of_two_terms_are_two_arrays():
    x, y = (Tensor(np.ones((3, 2)), requires_grad=True) for _ in range(2))
    ((x + y) * 2.0).sum().backward()
    x.grad += 1
    np.testing.assert_array_equal(y.grad, np.full((3, 2), 2.0))


def test_a_gradient_that_somebody_keeps_does_not_change_when_the_next_is_added():
    x = Tensor(np.ones((3, 2)), requires_grad=True)
    (x * 2.0).sum().backward()
    first = x.grad
    (x * 3.0).sum().backward()
    np.testing.assert_array_equal(first, np.full((3, 2), 2.0))
    np.testing.assert_array_equal(x.grad, np.full((3, 2), 5.0))


def test_outputs_that_somebody_keeps_keep_their_numbers():
    x = Tensor(np.random.default_rng(0).normal(size=(4, 100, 100)))
    kept = []
    for i in range(30):
        y = F.layer_norm(F.gelu(F.scaled_dot_product_attention(x * float(i), x, x)))
        kept.append((y, y[1], y.numpy()[2, 1:], y.numpy().copy()))
        if i % 3 == 0:
            del kept[i // 3]
    for y, part, view, then in kept:
        np.testing.assert_array_equal(y.numpy(), then)
        np.testing.assert_array_equal(part.numpy(), then[1])
        np.testing.assert_array_equal(view, then[2, 1:])


def test_of_many_arrays_in_use_only_some_are_looked_at(monkeypatch):
    live, looked = [buffers.empty((LARGE,), float) for _ in range(2 * buffers.LOOKED_AT)], []
    monkeypatch.setattr(buffers, "_references", lambda owned: looked.append(1) or buffers._UNUSED + 1)
    live.append(buffers.empty((LARGE,), float))
    assert len(looked) == buffers.LOOKED_AT


def test_room_is_made_by_forgetting_what_nobody_uses_first():
    buffers.limit(8 * buffers.SMALLEST)
    used = buffers.empty((LARGE,), float)
    unused = [buffers.empty((LARGE + 1,), float) for _ in range(6)]
    del unused
    buffers.empty((LARGE + 2,), float)
    used[...] = 5
    del used
    assert buffers.empty((LARGE,), float)[0] == 5


# ----------------------------------------------------------------------------------------- no waiting for oneself

def run(code, timeout=60, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout.strip(), done.stderr


def test_a_finaliser_may_take_memory_while_memory_is_being_taken():
    """The garbage collector may run at any allocation, so also inside the pool."""
    code = """
import faulthandler, gc
from tinygrad_attn import buffers
faulthandler.dump_traceback_later(6, exit=True)
class Odd:
    def __init__(self): self.me = self
    def __del__(self): buffers.empty((20001,), float)
for k in range(1, 40):
    gc.set_threshold(k)
    for i in range(60):
        Odd()
        buffers.empty((9000 + 60 * k + i,), float)
print("through")
"""
    assert run(code)[:2] == (0, "through")


def test_a_handler_of_signals_may_take_memory_while_memory_is_being_taken():
    code = """
import faulthandler, signal, time
from tinygrad_attn import buffers
faulthandler.dump_traceback_later(6, exit=True)
inside = False
def handler(*signal):
    global inside
    if not inside:
        inside = True
        buffers.empty((20001,), float)
        inside = False
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
start = time.time()
while time.time() - start < 2: buffers.empty((20000,), float)
signal.setitimer(signal.ITIMER_REAL, 0)
print("through")
"""
    assert run(code)[:2] == (0, "through")


def test_taking_memory_is_fast_whatever_sizes_were_taken_before_and_however_much_is_in_use():
    def seconds(take):
        start = time.perf_counter()
        for _ in range(100):
            take()
        return time.perf_counter() - start
    buffers.limit(2 ** 24)
    sizes = itertools.count(LARGE)
    for _ in range(5000):
        buffers.empty((next(sizes),), float)
    assert seconds(lambda: buffers.empty((next(sizes),), float)) < 0.02             # 200 µs each
    live = [buffers.empty((LARGE,), float) for _ in range(1000)]
    assert seconds(lambda: live.append(buffers.empty((LARGE,), float))) < 0.02


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_can_take_memory_whatever_the_parents_threads_were_doing():
    code = """
import os, signal, threading
from tinygrad_attn import buffers
stop = False
def hammer():
    while not stop: buffers.empty((20000,), float)
threading.Thread(target=hammer, daemon=True).start()
hung = 0
for i in range(30):
    if not (child := os.fork()):
        signal.alarm(3)
        buffers.empty((20000,), float)
        os._exit(0)
    hung += os.waitpid(child, 0)[1] != 0
    if hung: break
print(hung)
"""
    assert run(code)[:2] == (0, "0")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_has_a_pool_of_its_own_that_works_though_the_parents_was_in_use():
    code = """
import os
from tinygrad_attn import buffers
buffers.empty((30000,), float)
buffers._lock.acquire()
if not (child := os.fork()):
    before = buffers.held()
    buffers.empty((20000,), float)
    os._exit(0 if (before, buffers.held()) == (0, 160000) else 1)
print(os.waitpid(child, 0)[1])
"""
    assert run(code)[:2] == (0, "0")
