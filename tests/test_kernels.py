"""Kernels: each is its textbook form, in values, gradients, gradients of gradients, random numbers and errors."""

import itertools
import math

import numpy as np
import pytest

from tinygrad_attn import Tensor, blocked, fused, grad, gradcheck, grouped, kernels
from tinygrad_attn import functional as F
from tinygrad_attn.engine import topological_order
from tinygrad_attn.grouped import grouped_attention, packed_attention
from tinygrad_attn.nn.layers import rows_at

SDPA, PACKED = grouped._grouped_attention, grouped._packed_attention
FEWEST = kernels.FEWEST, blocked.FEWEST       # as they are, before the tests make them 1
TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(autouse=True)
def _small_is_enough(monkeypatch):
    """Usually the textbook form computes what is small."""
    for module in (kernels, blocked):
        monkeypatch.setattr(module, "FEWEST", 1)


def drawn(seed, *shapes, dtype="float64", spread=1.0):
    rng = np.random.default_rng(seed)
    return [None if shape is None else (spread * rng.normal(size=shape)).astype(dtype) for shape in shapes]


def walked(call, inputs, wanted):
    """The output, and the gradients of the inputs that are `wanted`, along a drawn direction."""
    leaves = [
        x if not isinstance(x, np.ndarray) else Tensor(x, requires_grad=i in wanted) for i, x in enumerate(inputs)
    ]
    out = call(*leaves)
    out.backward(np.random.default_rng(7).normal(size=out.shape).astype(out.dtype))
    return out.numpy(), [x.grad for x in leaves if isinstance(x, Tensor)]


def used(op, call):
    """What the call returns, and how often the kernel of the fused op ran in it."""
    kernel, runs = op.kernel, []
    op.kernel = kernel._replace(forward=lambda *xs, **options: runs.append(1) or kernel.forward(*xs, **options))
    try:
        return call(), len(runs)
    finally:
        op.kernel = kernel


def agree(op, call, inputs, *, wanted=None, runs=1, factor=1.0):
    """The kernel ran as often as said, and agrees with the textbook form, in which it did not run."""
    wanted = [i for i, x in enumerate(inputs) if x is not None] if wanted is None else wanted
    (out, gradients), n = used(op, lambda: walked(call, inputs, wanted))
    with fused.textbook():
        (expected, slopes), none = used(op, lambda: walked(call, inputs, wanted))
    assert (n, none) == (runs, 0)
    assert [g is None for g in gradients] == [g is None for g in slopes]
    for x, y in [(out, expected), *((g, s) for g, s in zip(gradients, slopes) if g is not None)]:
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        finite = np.abs(y[np.isfinite(y)])
        np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE.get(y.dtype.name, 1e-2) * factor * max(
            1, finite.max(initial=0)))


# ------------------------------------------------------------------------------------------------ the simple ones

LEADING = [(), (1,), (7,), (1300,), (3, 129), (2, 1, 7), (2, 3, 1, 5), (2, 1, 2, 2, 3)]


@each_dtype
@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 33), (129, 300), (33, 1), (1, 129)])
def test_linear_is_its_textbook_form(n, m, dtype):
    for leading, bias in itertools.product(LEADING, [(m,), None]):
        agree(F.linear, F.linear, drawn(0, (*leading, n), (m, n), bias, dtype=dtype))


@each_dtype
@pytest.mark.parametrize("n", [1, 2, 7, 33, 129, 300])
def test_layer_norm_is_its_textbook_form(n, dtype):
    for leading, weight, bias in itertools.product(LEADING, [(n,), None], [(n,), None]):
        agree(F.layer_norm, F.layer_norm, drawn(n, (*leading, n), weight, bias, dtype=dtype),
              factor=400 if n < 3 else 2)                   # two numbers may be so close that 1/√(var + eps) is 300
    agree(F.layer_norm, lambda x: F.layer_norm(x, eps=0.5), drawn(n, (3, n), dtype=dtype))


@each_dtype
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_its_textbook_form(approximate, dtype):
    def call(x):
        return F.gelu(x, approximate)
    for leading in LEADING[1:]:
        agree(F.gelu, call, drawn(0, (*leading, 33), dtype=dtype, spread=2))
    agree(F.gelu, call, [np.r_[np.linspace(-9, 9, 4001), 0.0, -0.0, 1e-30, 40.0, -40.0, 1e6, -1e6].astype(dtype)])


def test_erf_inside_gelu_is_that_of_the_library_to_the_last_places():
    x = np.linspace(-9, 7, 100_001)
    exact = x * np.array([0.5 * math.erfc(-t / math.sqrt(2)) for t in x])
    np.testing.assert_allclose(F.gelu(x), exact, rtol=0, atol=2e-15)


@each_dtype
@pytest.mark.parametrize("C", [1, 2, 7, 33, 300])
def test_cross_entropy_is_its_textbook_form(C, dtype):
    rng = np.random.default_rng(C)
    for leading, reduction, spread in itertools.product(LEADING, ["mean", "sum"], [1, 300]):
        targets = np.asarray(
            rng.integers(0, C, leading), rng.choice([np.int64, np.int32, np.int8 if C < 99 else np.int16])
        )
        targets = np.where(rng.random(leading) < 0.2, -100, targets).astype(targets.dtype)
        kept = (targets != -100).any()
        agree(F.cross_entropy, lambda x, t=targets, r=reduction: F.cross_entropy(x, t, reduction=r),
              drawn(C, (*leading, C), dtype=dtype, spread=spread), factor=spread, runs=int(kept))


def test_cross_entropy_leaves_to_the_textbook_form_what_is_not_plain():
    (x,), t = drawn(0, (5, 4)), np.array([0, 3, 2, 2, 1])
    for options in ({"weight": np.arange(4.0)}, {"label_smoothing": 0.1}, {"reduction": "none"}):
        agree(F.cross_entropy, lambda x, o=options: F.cross_entropy(x, t, **o), [x], runs=0)
    for targets in (list(t), t.astype(np.uint8), Tensor(t)):
        agree(F.cross_entropy, lambda x, t=targets: F.cross_entropy(x, t), [x], runs=0)
    agree(F.cross_entropy, lambda x: F.cross_entropy(x, t, ignore_index=2), [x])
    agree(F.cross_entropy, lambda x: F.cross_entropy(x, np.full(5, 9), ignore_index=9), [x], runs=0)


@each_dtype
@pytest.mark.parametrize(("n", "E"), [(1, 1), (3, 7), (33, 129), (300, 33)])
def test_rows_of_an_embedding_are_those_of_its_textbook_form(n, E, dtype):
    rng = np.random.default_rng(n)
    for leading in LEADING:
        ids = np.asarray(rng.integers(0, n, leading), rng.choice([np.int64, np.int16]))
        agree(rows_at, lambda w, ids=ids: rows_at(w, ids), drawn(n, (n, E), dtype=dtype))
    agree(rows_at, lambda w: rows_at(w, np.array([-1, 0])), drawn(n, (n, E), dtype=dtype), runs=0)


def test_the_gradient_of_a_row_does_not_depend_to_the_bit_on_which_others_are_looked_up():
    ids, (g,) = np.random.default_rng(0).integers(0, 9, 3000), drawn(0, (3000, 5))
    leaves = [Tensor(np.ones((9, 5)), requires_grad=True) for _ in range(2)]
    rows_at(leaves[0], ids).backward(g)
    for i in range(9):
        rows_at(leaves[1], ids[ids == i]).backward(g[ids == i])
    np.testing.assert_array_equal(leaves[0].grad, leaves[1].grad)


# ------------------------------------------------------------------------------------------------------ attention

def masks(kind, scores, dtype, rng):
    """A mask that broadcasts to the scores; some rows of it allow nothing."""
    if kind == "none":
        return None
    ndim = rng.integers(1, len(scores) + 1)
    shape = tuple(n if rng.random() < 0.7 else 1 for n in scores[-ndim:])
    keep = rng.random(shape) < 0.7
    if kind == "bool":
        return keep
    added = rng.normal(size=shape).astype(rng.choice([dtype, "float64", "float32", "float16"]))
    return np.where(keep, added, -np.inf) if kind == "-inf" else added


def attention_case(seed, *, lengths, leading=None, dtype=None):
    """A drawn call, (call, inputs, options)."""
    rng = np.random.default_rng(seed)
    L, S = lengths
    D, Dv = rng.choice([1, 2, 7, 16, 33], 2)
    G, R, dtype = rng.integers(1, 4), rng.integers(1, 4), dtype or rng.choice(["float32", "float64"])
    leading = leading or rng.choice(["flat", "head", "batch", "deep"])
    first = {"flat": None, "head": (), "batch": (2,), "deep": (2, 1, 2)}[leading]
    grouped_ = bool(rng.random() < 0.6) and first is not None
    R = R if grouped_ else 1
    shapes = [(n, w) if first is None else (*first, h, n, w) for h, n, w in ((G * R, L, D), (G, S, D), (G, S, Dv))]
    scores = (*shapes[0][:-1], S)
    kind = rng.choice(["none", "bool", "float", "-inf"]) if len(scores) < 5 else "none"
    options = dict(mask=masks(kind, scores, dtype, rng), causal=bool(rng.random() < 0.5), grouped=grouped_,
                   scale=rng.choice([None, 1.0, 0.0, -0.5, 2, 0.3]))
    options["scale"] = None if options["scale"] is None else float(options["scale"])
    if rng.random() < 0.35:
        options |= dict(dropout=float(rng.choice([0.1, 0.5, 0.9])), rng=int(rng.integers(99)))
    return (lambda q, k, v: grouped_attention(q, k, v, **options)), drawn(seed, *shapes, dtype=dtype), options


@pytest.mark.parametrize("seed", range(150))
def test_attention_of_short_sequences_is_its_textbook_form(seed):
    lengths = np.random.default_rng(seed).choice([1, 2, 5, 7, 33, 64], 2) if seed % 3 else (9, 9)
    call, inputs, _ = attention_case(seed, lengths=lengths)
    agree(SDPA, call, inputs, runs=int(lengths[1] > 1), factor=10)


LIMITS = [1, 7, 129, 255, 256, 257, 300, 383, 384, 385, 511, 512, 513, 700, 767, 768, 769]


@pytest.mark.parametrize("seed", range(60))
def test_attention_of_lengths_about_the_size_of_a_tile_is_its_textbook_form(seed):
    rng = np.random.default_rng(seed)
    L, S = rng.choice(LIMITS), rng.choice(LIMITS[1:])
    call, inputs, _ = attention_case(seed, lengths=(S, S) if seed % 2 else (L, S), leading=("flat", "head")[seed % 2])
    agree(SDPA, call, inputs, factor=20)


@each_dtype
@pytest.mark.parametrize("spread", [30, 300])
@pytest.mark.parametrize("lengths", [(40, 50), (300, 700), (700, 700)])
def test_large_scores_are_right_to_their_own_rounding(spread, lengths, dtype):
    (q, k, v), _ = drawn(3, (2, lengths[0], 8), (2, lengths[1], 8), (2, lengths[1], 5), dtype=dtype), None
    for causal, mask in ((False, None), (True, None), (False, np.random.default_rng(0).random(lengths) < 0.5)):
        agree(SDPA, lambda q, k, v, c=causal, m=mask: grouped_attention(q, k, v, m, causal=c),
              [q * np.asarray(spread, dtype), k, v], factor=30 * spread)
    agree(SDPA, grouped_attention, [q * np.asarray(spread, dtype), k * np.asarray(spread, dtype), v],
          factor=30 * spread ** 2)


@pytest.mark.parametrize("seed", range(60))
def test_attention_of_packed_inputs_is_its_textbook_form(seed):
    rng = np.random.default_rng(seed)
    L = rng.choice([2, 3, 7, 33, 129] if seed % 4 else [256, 257, 300, 384, 385, 513])
    G, R, D = map(int, (rng.integers(1, 4), rng.integers(1, 4), rng.choice([1, 3, 8, 16])))
    dtype, L = ["float32", "float64"][seed % 2], int(L)
    leading = [(), (1,), (3,), (2, 2)][rng.integers(4)]
    kind = rng.choice(["none", "bool", "float", "-inf"]) if len(leading) < 2 else "none"
    options = dict(mask=masks(kind, (*leading, G * R, L, L), dtype, rng), causal=bool(rng.random() < 0.5),
                   scale=[None, 1.0, -0.3][rng.integers(3)])
    if rng.random() < 0.35:
        options |= dict(dropout=0.3, rng=5)
    inputs = drawn(seed, (*leading, L, (G * R + 2 * G) * D), dtype=dtype)
    agree(PACKED, lambda x: packed_attention(x, G * R, G, **options), inputs, factor=20)


def test_packed_inputs_that_are_not_contiguous_are_taken_apart_first():
    (x,) = drawn(0, (3, 8, 5))
    out, n = used(PACKED, lambda: packed_attention(x.mT, 2, 1))
    with fused.textbook():
        np.testing.assert_allclose(out, packed_attention(x.mT, 2, 1), atol=1e-14)
    assert n == 0


def test_a_finite_mask_so_negative_that_it_means_never_is_as_in_the_textbook_form():
    """As in models of Hugging Face: a row of nothing but the least number is an even mean, not 0."""
    for dtype, n in itertools.product(["float32", "float64"], [5, 700]):
        mask = np.zeros((4, n), dtype)
        for low, factor in ((np.finfo(dtype).min, 1.0), (-1e4, 1e4)):       # of which scores keep some digits: as many
            mask[0], mask[1, 2:] = low, low
            agree(SDPA, lambda q, k, v, m=mask: grouped_attention(q, k, v, m),
                  drawn(0, (4, 8), (n, 8), (n, 8), dtype=dtype), factor=factor)


@each_dtype
def test_large_values_do_not_overflow_where_their_mean_does_not(dtype):
    """exp(score) · value is not to be summed before it is divided, if it may overflow."""
    big = np.asarray({"float32": 1e32, "float64": 1e302}[dtype], dtype)
    for n, sign, c in itertools.product((5, 700), (1, -1), (3, 4)):         # scores of ±18 and of ±32
        q, k, v = np.full((4, 4), c * sign, dtype), np.full((n, 4), c, dtype), np.full((n, 3), big)
        np.testing.assert_allclose(grouped_attention(q, k, v) / big, 1, atol=1e-4)
        v[0] = 1
        np.testing.assert_allclose(grouped_attention(q, k, v) / big, (n - 1) / n, atol=1e-4)
        leaf = Tensor(np.ones((n, 3), dtype), requires_grad=True)
        grouped_attention(q, k, leaf).backward(np.full((4, 3), big))
        np.testing.assert_allclose(leaf.grad / big, 4 / n, rtol=1e-4)


def test_tiles_that_lie_in_the_future_are_not_computed(monkeypatch):
    tiles = []
    masked = blocked._Problem.masked
    monkeypatch.setattr(blocked._Problem, "masked", lambda self, *args: tiles.append(args[-2:]) or masked(self, *args))
    n = 4 * blocked.COLUMNS
    x = Tensor(drawn(0, (1, n, 2))[0], requires_grad=True)
    grouped_attention(x, x, x, causal=True).sum().backward()
    assert len(tiles) == 2 * (1 + 2 + 3 + 4)                # forward, and backward
    assert all(j.start <= i.start for i, j in tiles)


def test_what_is_small_is_recorded_as_the_textbook_form_and_what_is_large_as_one_op(monkeypatch):
    monkeypatch.setattr(kernels, "FEWEST", FEWEST[0])
    monkeypatch.setattr(blocked, "FEWEST", FEWEST[1])
    width, rows, keys = 64, FEWEST[0] // 64 ** 2, FEWEST[1] // 128
    assert (rows * width * width, keys * 128) == FEWEST

    def recorded(call, *shapes):
        return [node.op.name for node in topological_order(call(*(
            Tensor(np.ones(shape), requires_grad=True) for shape in shapes)))]
    for less in (0, 1):
        names = recorded(F.linear, (rows - less, width), (width, width))
        assert (names == ["linear"], "matmul" in names) == (not less, bool(less))
        names = recorded(grouped_attention, (128 - less, 4), (keys, 4), (keys, 4))
        assert (names == ["grouped_attention"], "softmax" in names) == (not less, bool(less))
        names = recorded(lambda x: packed_attention(x, 2, 1), (128 - less, 16))
        assert (names == ["packed_attention"], "softmax" in names) == (not less, bool(less))


def test_exponentials_that_fit_are_not_multiplied_by_what_makes_them_overflow():
    for n in (5, 700):                      # exp of the scores, 67, is 1e29
        x, v = np.full((n, 4), 5.8, np.float32), np.full((n, 3), 5e8, np.float32)
        np.testing.assert_allclose(grouped_attention(x, x, v), v, rtol=1e-4)


# ------------------------------------------------------------------------------------------------------ the inputs

@pytest.mark.parametrize("wanted", [s for n in (1, 2) for s in itertools.combinations(range(3), n)])
def test_only_the_gradients_that_are_needed_come_and_they_are_the_same(wanted):
    agree(F.linear, F.linear, drawn(0, (40, 7), (5, 7), (5,)), wanted=wanted)
    agree(F.layer_norm, F.layer_norm, drawn(0, (40, 7), (7,), (7,)), wanted=wanted)
    for n in (6, 700):
        agree(SDPA, lambda q, k, v: grouped_attention(q, k, v, causal=True),
              drawn(0, (2, n, 4), (2, n, 4), (2, n, 3)), wanted=wanted)


def test_one_tensor_may_be_several_inputs():
    for n in (9, 600):
        agree(SDPA, lambda x: grouped_attention(x, x, x, causal=True), drawn(0, (2, n, 4)), factor=10)
    agree(F.linear, lambda x: F.linear(x, x), drawn(0, (5, 5)))
    agree(F.layer_norm, lambda x, w: F.layer_norm(x, w, w), drawn(0, (4, 5), (5,)))


def test_views_of_any_strides_are_taken_as_they_are():
    rng = np.random.default_rng(0)
    wide, square = rng.normal(size=(40, 6, 20)), rng.normal(size=(7, 7))
    for x in (wide[::2, :, ::-2], wide.T, wide.swapaxes(0, 1), np.broadcast_to(wide[:1, :, :10], (3, 6, 10))):
        n = x.shape[-1]
        w, b = rng.normal(size=(n, 5)).T, rng.normal(size=20)[::4]
        for op, args in ((F.linear, (x, w, b)), (F.gelu, (x,)), (F.layer_norm, (x, *rng.normal(size=(n, 2)).T)),
                         (SDPA, ())):
            call = op if args else lambda x: grouped_attention(x, x[..., ::-1], x, causal=True)
            arrays, n_runs = used(op, lambda op=op, c=call, a=args or (x,): c(*a))
            with fused.textbook():
                np.testing.assert_allclose(arrays, call(*(args or (x,))), atol=1e-13)
            assert n_runs == 1
            agree(op, (lambda *a, f=call: f(*a)), list(args or (x,)))
    agree(rows_at, lambda w: rows_at(w.swapaxes(0, 1), np.array([[1, 2], [6, 1]])), [square])
    agree(SDPA, lambda x: grouped_attention(*(x.swapaxes(0, 1) for _ in range(3))), [wide])


@pytest.mark.parametrize("kinds", ["eee", "fdf", "ddf", "fed"])
def test_half_precision_and_mixed_precisions_are_left_to_the_textbook_form(kinds):
    kinds = [np.dtype(kind) for kind in kinds]
    for op, call, shapes in (
        (F.linear, F.linear, ((4, 3), (2, 3), (2,))),
        (F.layer_norm, F.layer_norm, ((4, 3), (3,), (3,))),
        (SDPA, grouped_attention, ((4, 3), (5, 3), (5, 2))),
    ):
        agree(op, call, [x.astype(kind) for x, kind in zip(drawn(0, *shapes), kinds)], runs=0)


@pytest.mark.parametrize("kind", [">f4", ">f8"])
def test_numbers_whose_bytes_are_in_the_other_order_are_left_to_the_textbook_form(kind):
    (x,) = drawn(0, (4, 4), dtype=kind)
    for op, call in ((F.gelu, F.gelu), (F.linear, F.linear), (SDPA, grouped_attention)):
        args = (x,) if op is F.gelu else (x, x) if op is F.linear else (x, x, x)
        out, n = used(op, lambda c=call, a=args: c(*a))
        with fused.textbook():
            np.testing.assert_array_equal(out, call(*args), strict=True)
        assert n == 0


def test_integers_lists_and_numbers_are_left_to_the_textbook_form():
    x, w = np.arange(6).reshape(2, 3), np.arange(3).reshape(1, 3)
    for op, call in (
        (F.linear, lambda: F.linear(x, w)),
        (F.linear, lambda: F.linear([[1.0, 2.0, 3.0]], w * 1.0)),
        (F.linear, lambda: F.linear(x * 1.0, w)),
        (F.gelu, lambda: F.gelu(x)),
        (F.gelu, lambda: F.gelu(1.5)),
        (F.gelu, lambda: F.gelu(Tensor(1.5)).numpy()),
        (F.layer_norm, lambda: F.layer_norm(x)),
        (SDPA, lambda: grouped_attention([[1.0, 2.0]], [[1.0, 0.0], [2.0, 2.0]], [[1.0], [5.0]])),
        (SDPA, lambda: grouped_attention(x, x, x)),
        (F.linear, lambda: F.linear(x * 1j, w * 1j)),
    ):
        out, n = used(op, call)
        with fused.textbook():
            np.testing.assert_array_equal(out, call(), strict=True)
        assert n == 0


def test_options_that_the_kernel_does_not_know_are_left_to_the_textbook_form():
    inputs = drawn(0, (2, 4, 3), (2, 5, 3), (2, 5, 2))
    bias = Tensor(drawn(1, (4, 5))[0], requires_grad=True)
    for options in (
        dict(scale=Tensor(0.5)),
        dict(mask=bias),
        dict(scale=np.float32(0.5)),
        dict(mask=Tensor(np.ones((4, 5)) > 0)),
    ):
        agree(SDPA, lambda q, k, v, o=options: grouped_attention(q, k, v, **o), inputs, runs=0)
    for shapes in (((2, 4, 3), (5, 3), (1, 5, 2)), ((2, 4, 3), (2, 5, 3), (1, 5, 2))):
        agree(SDPA, grouped_attention, drawn(0, *shapes), runs=0)
    for mask in (np.tri(4, 5, dtype=bool), drawn(2, (2, 1, 2, 4, 5))[0]):
        agree(SDPA, lambda q, k, v, m=mask: grouped_attention(q, k, v, m),
              drawn(0, (2, 1, 2, 4, 3), (2, 1, 2, 5, 3), (2, 1, 2, 5, 2)), runs=0)
    agree(SDPA, lambda q, k, v: grouped_attention(q, k, v, grouped=True),
          drawn(0, (2, 4, 5, 3), (1, 2, 5, 3), (1, 2, 5, 2)), runs=0)


@pytest.mark.parametrize(
    ("op", "call", "shapes"),
    [
        (F.linear, F.linear, ((0, 3), (2, 3), (2,))),
        (F.linear, F.linear, ((4, 0), (2, 0), (2,))),
        (F.linear, F.linear, ((4, 3), (0, 3), (0,))),
        (F.layer_norm, F.layer_norm, ((0, 3), (3,), (3,))),
        (F.gelu, F.gelu, ((0,),)),
        (SDPA, grouped_attention, ((0, 3), (5, 3), (5, 2))),
        (SDPA, grouped_attention, ((4, 3), (0, 3), (0, 2))),
        (SDPA, grouped_attention, ((0, 4, 3), (0, 5, 3), (0, 5, 2))),
        (PACKED, lambda x: packed_attention(x, 2, 1), ((0, 5, 8),)),
        (PACKED, lambda x: packed_attention(x, 2, 1), ((2, 0, 8),)),
        (rows_at, lambda w: rows_at(w, np.zeros((0, 2), int)), ((3, 2),)),
        (rows_at, lambda w: rows_at(w, np.zeros(2, int)), ((3, 0),)),
    ],
)
def test_empty_arrays_are_as_in_the_textbook_form(op, call, shapes):
    inputs = drawn(0, *shapes)
    wanted = range(len(inputs))
    out, gradients = walked(call, inputs, wanted)
    with fused.textbook():
        expected, slopes = walked(call, inputs, wanted)
    for x, y in zip([out, *gradients], [expected, *slopes]):
        np.testing.assert_array_equal(x, y, strict=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@each_dtype
def test_nan_and_infinity_spread_as_in_the_textbook_form(bad, dtype):
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        for op, call, shapes in (
            (F.linear, F.linear, ((6, 5), (4, 5), (4,))),
            (F.layer_norm, F.layer_norm, ((6, 5), (5,), (5,))),
            (F.gelu, F.gelu, ((6, 5),)),
            (F.gelu, lambda x: F.gelu(x, "tanh"), ((6, 5),)),
            (F.cross_entropy, lambda x: F.cross_entropy(x, np.array([0, 1, -100, 2, 3, 4])), ((6, 5),)),
            (SDPA, grouped_attention, ((6, 5), (9, 5), (9, 2))),
        ):
            for i, shape in enumerate(shapes):
                inputs = drawn(0, *shapes, dtype=dtype)
                inputs[i][tuple(rng.integers(shape))] = bad
                agree(op, call, inputs)
        for L, at in itertools.product((6, 600), range(3)):
            inputs = drawn(0, (L, 3), (L, 3), (L, 2), dtype=dtype)
            inputs[at][L // 2, 0] = bad
            agree(SDPA, grouped_attention, inputs)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [6, 600])
@pytest.mark.parametrize("at", ["key", "value"])
def test_nan_and_infinity_that_are_masked_do_no_more_harm_than_in_the_textbook_form(bad, n, at):
    """They may do less: tiles that nobody sees are not computed at all."""
    inputs, keep = drawn(0, (n, 3), (n, 3), (n, 2)), np.ones((n, n), bool)
    inputs[("query", "key", "value").index(at)][n // 2, 0], keep[:, n // 2] = bad, False
    with np.errstate(all="ignore"):
        for options in (dict(mask=keep), dict(causal=True)):
            def call(*xs, o=options):
                return grouped_attention(*xs, **o)
            out, gradients = walked(call, inputs, range(3))
            with fused.textbook():
                expected, slopes = walked(call, inputs, range(3))
            for x, y in zip([out, *gradients], [expected, *slopes]):
                ours, theirs = np.isfinite(x), np.isfinite(y)
                assert (ours | ~theirs).all()
                np.testing.assert_allclose(x[theirs], y[theirs], rtol=0, atol=1e-11)


@each_dtype
def test_a_mask_of_infinity_or_nan_spreads_as_in_the_textbook_form(dtype):
    for L, bad in itertools.product((6, 600), (np.nan, np.inf)):
        mask = np.zeros((L, L), dtype)
        mask[1, 2] = bad
        with np.errstate(all="ignore"):
            agree(
                SDPA,
                lambda q, k, v, m=mask: grouped_attention(q, k, v, m),
                drawn(0, (L, 3), (L, 3), (L, 2), dtype=dtype),
            )


@each_dtype
def test_layer_norm_of_rows_that_are_all_one_number_is_the_bias(dtype):
    """A mean that is off by a rounding is divided by √eps, which is small."""
    for n, c in itertools.product((3, 7, 48, 300, 768, 1000), (1.0, 10.0, -3.0)):
        weight, bias = drawn(0, (n,), (n,), dtype=dtype)
        out = F.layer_norm(np.full((5, n), c, dtype), weight, bias)
        np.testing.assert_allclose(out, np.broadcast_to(bias, out.shape), rtol=0, atol=4 * TOLERANCE[dtype])


# ---------------------------------------------------------------------------------------------------------- dropout

@pytest.mark.parametrize(
    "kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]
)
@pytest.mark.parametrize("n", [6, 300])
def test_dropout_leaves_what_it_leaves_in_the_textbook_form_and_the_generator_where_it_leaves_it(kind, n):
    in_parts = kind in (np.random.PCG64, np.random.PCG64DXSM)
    for op, call, shapes in (
            (SDPA, lambda rng, *xs: F.scaled_dot_product_attention(*xs, dropout_p=0.3, enable_gqa=True, rng=rng),
             ((2, 4, n, 3), (2, 2, n + 1, 3), (2, 2, n + 1, 3))),
            (PACKED, lambda rng, x: packed_attention(x, 2, 1, causal=True, dropout=0.6, rng=rng), ((3, n, 8),))):
        after = []
        for form in (fused.textbook, None):
            rng = np.random.Generator(kind(5))
            rng.integers(9, dtype=np.int32)                 # half a number is left over
            inputs = drawn(0, *shapes)
            if form:
                with form():
                    out = call(rng, *inputs)
            else:
                out, ran = used(op, lambda rng=rng, inputs=inputs, call=call: call(rng, *inputs))
                assert ran == in_parts
            after.append((out, rng.integers(1 << 30, size=5, dtype=np.int32), rng.random(3)))
        np.testing.assert_allclose(after[0][0], after[1][0], atol=1e-12)
        for x, y in zip(after[0][1:], after[1][1:]):
            np.testing.assert_array_equal(x, y)
        rng = np.random.Generator(kind(5))
        agree(op, lambda *xs, c=call: c(np.random.Generator(kind(5)), *xs), drawn(0, *shapes), runs=int(in_parts))


def test_numbers_of_heads_may_be_numpys():
    (x,) = drawn(0, (3, 5, 16))
    out = packed_attention(x, np.int64(2), np.int64(1), dropout=0.5, rng=0)
    np.testing.assert_array_equal(out, packed_attention(x, 2, 1, dropout=0.5, rng=0))


def test_dropout_draws_as_many_numbers_as_there_are_weights_also_if_keys_have_the_larger_batch():
    rng, other = np.random.default_rng(0), np.random.default_rng(0)
    for generator in (rng, other):
        generator.integers(9, dtype=np.int32)               # half a number is left over
    q, k = drawn(0, (1, 4, 3, 2), (3, 2, 3, 2))
    F.scaled_dot_product_attention(q, k, k, dropout_p=0.5, enable_gqa=True, rng=rng)
    other.random((3, 4, 3, 3))
    for _ in range(2):
        assert rng.integers(1 << 30, dtype=np.int32) == other.integers(1 << 30, dtype=np.int32)
    assert rng.random() == other.random()


def test_shapes_that_do_not_fit_are_told_in_the_same_words_with_dropout_and_without():
    q, k = drawn(0, (2, 3, 4), (5, 3, 4))
    for dropout in (0.0, 0.5):
        with pytest.raises(ValueError, match="attention: query"):
            F.scaled_dot_product_attention(q, k, k, dropout_p=dropout, rng=0)


# ----------------------------------------------------------------------------------------------------------- errors

X, W, Q = np.ones((2, 3)), np.ones((4, 3)), np.ones((2, 3, 4))
WRONG = {
    "linear widths": lambda: F.linear(X, np.ones((4, 2))),
    "linear bias": lambda: F.linear(X, W, np.ones(3)),
    "linear bias of rows": lambda: F.linear(X, W, np.ones((1, 4))),
    "linear vector": lambda: F.linear(X, np.ones(3)),
    "linear number": lambda: F.linear(np.float64(1), W),
    "linear missing": lambda: F.linear(X),
    "linear many": lambda: F.linear(X, W, None, 1),
    "linear unknown": lambda: F.linear(X, W, biased=1),
    "linear twice": lambda: F.linear(X, W, x=X),
    "linear text": lambda: F.linear(X, np.full((4, 3), "a")),
    "linear None": lambda: F.linear(None, W),
    "norm weight": lambda: F.layer_norm(X, np.ones(2)),
    "norm bias": lambda: F.layer_norm(X, None, np.ones((1, 3))),
    "norm eps": lambda: F.layer_norm(X, eps="small"),
    "norm eps None": lambda: F.layer_norm(X, eps=None),
    "norm 0-d": lambda: F.layer_norm(np.array(1.0)),
    "gelu option": lambda: F.gelu(X, "sigmoid"),
    "gelu twice": lambda: F.gelu(X, x=X),
    "gelu text": lambda: F.gelu(np.array(["a"])),
    "targets": lambda: F.cross_entropy(X, np.array([0, 3])),
    "targets below": lambda: F.cross_entropy(X, np.array([0, -1])),
    "targets shape": lambda: F.cross_entropy(X, np.array([0])),
    "targets floats": lambda: F.cross_entropy(X, np.zeros(2)),
    "reduction": lambda: F.cross_entropy(X, np.zeros(2, int), reduction="max"),
    "smoothing": lambda: F.cross_entropy(X, np.zeros(2, int), label_smoothing=2),
    "loss 0-d": lambda: F.cross_entropy(np.array(1.0), np.array(0)),
    "weight by position": lambda: F.cross_entropy(X, np.zeros(2, int), None),
    "ignored by position": lambda: F.cross_entropy(X, np.zeros(2, int), None, 0),
    "ids": lambda: rows_at(X, np.array([5])),
    "ids by one": lambda: rows_at(X, np.array([1, 2])),
    "ids floats": lambda: rows_at(X, np.array([0.0])),
    "ids of bool": lambda: rows_at(X, np.array([True, False])),
    "ids twice": lambda: rows_at(X, np.array([0]), ids=np.array([1])),
    "attention widths": lambda: grouped_attention(Q, np.ones((2, 3, 5)), Q),
    "attention lengths": lambda: grouped_attention(Q, Q, np.ones((2, 2, 4))),
    "attention batches": lambda: grouped_attention(Q, np.ones((3, 3, 4)), np.ones((3, 3, 4))),
    "attention vector": lambda: grouped_attention(Q, np.ones(4), np.ones(4)),
    "attention vectors": lambda: grouped_attention(np.ones(4), np.ones(4), np.ones(4)),
    "attention without heads": lambda: grouped_attention(Q, Q[0], Q[0], grouped=True),
    "attention heads apart": lambda: grouped_attention(np.ones((4, 5, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 4))),
    "attention no values": lambda: grouped_attention(np.ones((4, 3)), np.ones((5, 3)), np.ones((5, 0))),
    "attention no width": lambda: grouped_attention(np.ones((4, 0)), np.ones((5, 0)), np.ones((5, 2))),
    "attention heads": lambda: grouped_attention(
        np.ones((3, 5, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 4)), grouped=True
    ),
    "mask dtype": lambda: grouped_attention(Q, Q, Q, np.ones((3, 3), int)),
    "mask shape": lambda: grouped_attention(Q, Q, Q, np.ones((3, 2), bool)),
    "mask 0-d": lambda: grouped_attention(Q, Q, Q, np.array(True)),
    "mask deep": lambda: grouped_attention(Q, Q, Q, np.ones((1, 2, 3, 3), bool)),
    "scale": lambda: grouped_attention(Q, Q, Q, scale="x"),
    "dropout": lambda: grouped_attention(Q, Q, Q, dropout=1.0, rng=0),
    "dropout below": lambda: grouped_attention(Q, Q, Q, dropout=-0.1, rng=0),
    "no rng": lambda: grouped_attention(Q, Q, Q, dropout=0.5),
    "a rng that is none": lambda: grouped_attention(Q, Q, Q, dropout=0.5, rng="x"),
    "both masks": lambda: F.scaled_dot_product_attention(Q, Q, Q, np.ones((3, 3), bool), 0, True),
    "mask that learns": lambda: rows_at(X, Tensor(np.ones(2), requires_grad=True)),
    "packed width": lambda: packed_attention(np.ones((2, 5, 13)), 2, 1),
    "packed no width": lambda: packed_attention(np.ones((2, 5, 0)), 2, 1),
    "packed heads": lambda: packed_attention(np.ones((2, 5, 14)), 3, 2),
    "packed groups": lambda: packed_attention(np.ones((2, 5, 28)), 3, 2),
    "packed none": lambda: packed_attention(np.ones((2, 5, 12)), 2, 0),
    "packed vector": lambda: packed_attention(np.ones(12), 2, 1),
    "packed mask": lambda: packed_attention(np.ones((2, 5, 12)), 2, 1, np.ones(4, bool)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_the_same_error_in_both_forms(name):
    def told():
        try:
            return WRONG[name]()
        except Exception as error:
            return type(error).__name__, str(error)
    with fused.textbook():
        expected = told()
    found = told()
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------------------------ outside oracles

def by_loops(q, k, v, keep=None, added=None, scale=None):
    """One head after the other, one query after the other, in plain numbers."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for *at, i in np.ndindex(q.shape[:-1]):
        here = [j for j in range(k.shape[-2]) if keep is None or keep[(*at, i, j)]]
        scores = [
            sum(a * b for a, b in zip(q[(*at, i)], k[(*at, j)])) * (q.shape[-1] ** -0.5 if scale is None else scale)
            + (0 if added is None else added[(*at, i, j)])
            for j in here
        ]
        es = [math.exp(s - max(scores)) for s in scores]
        for e, j in zip(es, here):
            out[(*at, i)] += e / sum(es) * v[(*at, j)]
    return out


@pytest.mark.parametrize("lengths", [(1, 2), (7, 7), (5, 12), (12, 5), (40, 61), (61, 61), (61, 40)])
def test_attention_is_what_loops_over_heads_and_rows_say(lengths, monkeypatch):
    monkeypatch.setattr(blocked, "ROWS", 20)                # so that there are several tiles
    monkeypatch.setattr(blocked, "COLUMNS", 16)
    (L, S), D = lengths, 3
    rng = np.random.default_rng(L)
    q, k, v = drawn(L, (1, 2, L, D), (1, 2, S, D), (1, 2, S, 2))
    keep, added, past = rng.random((1, 2, L, S)) < 0.6, rng.normal(size=(1, 2, L, S)), np.tri(L, S, dtype=bool)
    each = {
        "plain": ({}, {}),
        "bool": ({"mask": keep}, {"keep": keep}),
        "float": ({"mask": added, "scale": 1.0}, {"added": added, "scale": 1.0}),
        "causal": ({"causal": True}, {"keep": np.broadcast_to(past, keep.shape)}),
        "all": ({"causal": True, "mask": keep, "scale": -2.0}, {"keep": keep & past, "scale": -2.0}),
    }
    for name in each:
        options, theirs = each[name]
        out, n = used(SDPA, lambda o=options: grouped_attention(q, k, v, **o))
        np.testing.assert_allclose(out, by_loops(q, k, v, **theirs), rtol=0, atol=1e-13)
        assert n == 1


@pytest.mark.parametrize("lengths", [(5, 9), (300, 700), (700, 300)])
def test_attention_is_pytorchs_with_gradients(torch, lengths):
    L, S = lengths
    rng = np.random.default_rng(0)
    inputs = drawn(0, (2, 4, L, 8), (2, 2, S, 8), (2, 2, S, 3))
    for options in (
        {},
        {"is_causal": True},
        {"attn_mask": rng.random((2, 1, L, S)) < 0.9},
        {"attn_mask": rng.normal(size=(L, S))},
        {"scale": 1.7},
    ):
        ours = [Tensor(x, requires_grad=True) for x in inputs]
        theirs = [torch.tensor(x, requires_grad=True) for x in inputs]
        out = F.scaled_dot_product_attention(*ours, **options, enable_gqa=True)
        assert out.node.op is SDPA.op
        mask = {"attn_mask": torch.tensor(options["attn_mask"])} if "attn_mask" in options else {}
        expected = torch.nn.functional.scaled_dot_product_attention(*theirs, **{**options, **mask}, enable_gqa=True)
        g = rng.normal(size=out.shape)
        out.backward(g)
        expected.backward(torch.tensor(g))
        for x, y in zip([out.numpy(), *(x.grad for x in ours)], [expected, *(x.grad for x in theirs)]):
            np.testing.assert_allclose(x, y.detach().numpy(), rtol=0, atol=1e-12)


def test_the_simple_kernels_are_pytorchs_with_gradients(torch):
    T = torch.nn.functional
    x, w, b, n, m = drawn(0, (2, 50, 33), (7, 33), (7,), (33,), (33,))
    t = np.random.default_rng(0).integers(0, 33, (2, 50))
    for op, call, theirs, inputs in (
            (F.linear, F.linear, T.linear, (x, w, b)), (F.gelu, F.gelu, T.gelu, (3 * x,)),
            (F.layer_norm, F.layer_norm, lambda x, w, b: T.layer_norm(x, (33,), w, b), (x, n, m)),
            (F.gelu, lambda x: F.gelu(x, "tanh"), lambda x: T.gelu(x, approximate="tanh"), (3 * x,)),
            (F.cross_entropy, lambda x: F.cross_entropy(x, t), lambda x: T.cross_entropy(x.mT, torch.tensor(t)), (x,)),
            (rows_at, lambda w: rows_at(w, t % 7), lambda w: T.embedding(torch.tensor(t % 7), w), (w,))):
        ours, others = (
            [Tensor(x, requires_grad=True) for x in inputs],
            [torch.tensor(x, requires_grad=True) for x in inputs],
        )
        (out, ran), expected = used(op, lambda c=call, o=ours: c(*o)), theirs(*others)
        g = np.random.default_rng(1).normal(size=out.shape)
        out.backward(g)
        expected.backward(torch.tensor(g))
        assert ran == 1
        for a, e in zip([out.numpy(), *(a.grad for a in ours)], [expected, *(a.grad for a in others)]):
            np.testing.assert_allclose(a, e.detach().numpy(), rtol=0, atol=1e-12)


def test_an_op_that_is_called_by_itself_needs_nothing_kept_and_takes_integers():
    (x, g), n = drawn(0, (4, 3), (4, 3)), np.arange(5)
    np.testing.assert_array_equal(
        F.gelu.op(n, given=("x",), approximate="tanh"), F.gelu.textbook(n, "tanh"), strict=True
    )
    leaf = Tensor(x, requires_grad=True)
    F.gelu(leaf).backward(g)
    found = F.gelu.op.joint({0}, g, F.gelu(x), x, given=("x",), approximate="none")
    np.testing.assert_array_equal(found[0], leaf.grad)


# ------------------------------------------------------------------------------------------ gradients of gradients

T3 = np.array([0, 2, -100])
SMALL = {
    "linear": (F.linear, F.linear, ((2, 3), (4, 3), (4,))),
    "linear, bare": (F.linear, F.linear, ((2, 3), (4, 3))),
    "layer norm": (F.layer_norm, F.layer_norm, ((2, 3), (3,), (3,))),
    "gelu": (F.gelu, F.gelu, ((2, 3),)),
    "gelu, tanh": (F.gelu, lambda x: F.gelu(x, "tanh"), ((2, 3),)),
    "cross-entropy": (F.cross_entropy, lambda x: F.cross_entropy(x, T3), ((3, 3),)),
    "embedding": (rows_at, lambda w: rows_at(w, np.array([1, 0, 1])) ** 3, ((2, 3),)),
    "attention": (SDPA, lambda q, k, v: grouped_attention(q, k, v, causal=True), ((3, 2), (3, 2), (3, 2))),
    "groups": (
        SDPA,
        lambda q, k, v: grouped_attention(q, k, v, np.array([[True, False], [False, False]]), grouped=True),
        ((2, 2, 2), (1, 2, 2), (1, 2, 1)),
    ),
    "dropout": (SDPA, lambda q, k, v: grouped_attention(q, k, v, dropout=0.4, rng=3), ((3, 2), (3, 2), (3, 2))),
    "packed": (PACKED, lambda x: packed_attention(x, 2, 1, causal=True), ((3, 8),)),
    "itself": (SDPA, lambda x: grouped_attention(x, x, x), ((3, 2),)),
}


@pytest.mark.parametrize("name", SMALL)
def test_gradients_and_their_gradients_are_the_finite_differences(name):
    op, call, shapes = SMALL[name]
    inputs = drawn(3, *shapes)
    _, runs = used(op, lambda: gradcheck(call, tuple(inputs), order=2))
    assert runs


@pytest.mark.parametrize("name", SMALL)
def test_a_gradient_that_is_recorded_is_that_of_the_textbook_form_to_the_third_order(name):
    op, call, shapes = SMALL[name]

    def derivatives():
        xs = [Tensor(x, requires_grad=True) for x in drawn(3, *shapes)]
        y, found = (call(*xs) ** 2).sum(), []
        for k in (1, 2, 3):
            gs = grad(y, xs, create_graph=k < 3, allow_unused=True)
            found += [g.numpy() for g in gs]
            y = sum(((g * g).sum() for g in gs), Tensor(0.0))
        return found
    found, runs = used(op, derivatives)
    with fused.textbook():
        expected = derivatives()
    assert runs
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12 * max(1, np.abs(y).max()))


def test_a_graph_that_is_retained_gives_the_same_gradient_to_the_bit_again():
    for n in (6, 600):
        for options, factor in itertools.product(({"causal": True}, {"dropout": 0.3, "rng": 1}), (1.0, 1e10)):
            x = Tensor(drawn(0, (2, n, 4))[0], requires_grad=True)
            y = F.gelu(F.layer_norm(grouped_attention(x, x, x * factor, **options))).sum()
            y.backward(retain_graph=True)
            first, x.grad = x.grad, None
            y.backward(retain_graph=True)
            np.testing.assert_array_equal(first, x.grad)
            np.testing.assert_array_equal(first, grad(y, x).numpy())


def test_what_a_forward_pass_keeps_is_let_go_by_the_walk_back():
    x = Tensor(drawn(0, (4, 3))[0], requires_grad=True)
    y = F.gelu(x)
    node = y.node
    assert node.kept is not None
    y.sum().backward()
    assert node.kept is None


def test_gradients_of_part_of_the_inputs_and_of_results_between():
    x, w = (Tensor(a, requires_grad=True) for a in drawn(0, (5, 4), (4, 4)))
    h = F.linear(x, w)
    y = (F.gelu(h) * F.layer_norm(h)).sum()
    found = grad(y, [h, w])
    with fused.textbook():
        h2 = F.linear(x, w)
        expected = grad((F.gelu(h2) * F.layer_norm(h2)).sum(), [h2, w])
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-13)


def test_inputs_are_as_they_were_and_what_comes_out_can_be_changed_by_nobody():
    arrays = drawn(0, (2, 300, 4), (2, 300, 4), (2, 300, 4))
    before = [x.copy() for x in arrays]
    walked(lambda *xs: grouped_attention(*xs, causal=True), arrays, range(3))
    out = grouped_attention(*arrays)
    out += 1                                                # of plain arrays it is the caller's own
    for x, y in zip(arrays, before):
        np.testing.assert_array_equal(x, y)
    t = F.gelu(Tensor(arrays[0], requires_grad=True))
    with pytest.raises(ValueError, match="read-only"):
        t.data[0] = 1


def test_an_array_given_beside_a_tensor_may_be_changed_before_the_walk_back():
    q, k, v = drawn(0, (6, 4), (6, 4), (6, 4))
    mask, t = np.tri(6, dtype=bool), Tensor(v, requires_grad=True)
    y, z = grouped_attention(q, k, t, mask), rows_at(t, ids := np.array([0, 1]))
    q[:], k[:], mask[:], ids[:] = 0, 0, False, 5
    (y.sum() + z.sum()).backward()
    q, k, v = drawn(0, (6, 4), (6, 4), (6, 4))
    u = Tensor(v, requires_grad=True)
    (grouped_attention(q, k, u, np.tri(6, dtype=bool)).sum() + rows_at(u, np.array([0, 1])).sum()).backward()
    np.testing.assert_array_equal(t.grad, u.grad)


# ------------------------------------------------------------------------------------ what a result may depend on

@each_dtype
def test_bits_of_one_sequence_do_not_depend_on_the_others_of_its_batch(dtype):
    for n, (causal, mask) in itertools.product((5, 40, 300), ((False, None), (True, None), (False, "random"))):
        x, other = drawn(0, (4, n, 24), (4, n, 24), dtype=dtype)
        m = mask and np.random.default_rng(0).random((1, 1, n, n)) < 0.8
        results = []
        for factor in (1, 1000, np.nan):
            batch = np.concatenate([x[:1], other[1:] * np.asarray(factor, dtype)])
            with np.errstate(all="ignore"):
                results.append([a[:1] for a in (lambda out, gs: [out, *gs])(*walked(
                    lambda x, c=causal, m=m: packed_attention(x, 4, 2, m, causal=c), [batch], [0]))])
        for found in results[1:]:
            for a, b in zip(results[0], found):
                np.testing.assert_array_equal(a, b)
