"""Positions: sines, turns and slopes against formulas written otherwise, and what depends on the distance alone."""

import math

import numpy as np
import pytest

from tinygrad_attn import ShapeError, Tensor, attention, gradcheck, nn, softmax
from tinygrad_attn.nn import alibi_bias, alibi_slopes, rotate, sinusoids

RNG = np.random.default_rng(0)
LAYOUTS = ("interleaved", "half_split")
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def near(actual, expected, tol=1e-12):
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


# -------------------------------------------------------------------------------------------------------- sinusoids

@pytest.mark.parametrize("width", [1, 5, 7])
def test_PE_01_an_odd_width_is_an_error_that_says_what_to_take(width):
    for make in (lambda: sinusoids(2, width), lambda: nn.SinusoidalPositions(width),
                 lambda: rotate(np.ones((2, width)), layout="interleaved")):
        with pytest.raises(ValueError, match=f"width {width} is odd; features go in pairs, a sine and a cosine"):
            make()


def test_PE_02_a_sine_and_its_cosine_share_one_frequency():
    table = sinusoids(3, 4)
    near(table[0], [0.0, 1.0, 0.0, 1.0])
    near(table[1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])
    near(table[1], [0.84147098, 0.54030231, 0.00999983, 0.99995000], 5e-9)
    near(table[2], [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)])


@pytest.mark.parametrize("width", [2, 6, 64])
def test_PE_02_the_product_of_two_rows_depends_on_their_distance_alone(width):
    table = sinusoids(50, width)
    products = table @ table.T
    for distance in (0, 1, 7, 30):
        near(np.diagonal(products, distance), np.full(50 - distance, products[0, distance]))
    near(np.diagonal(products), np.full(50, width / 2))         # cos² + sin² of each pair
    frequencies = [10000 ** (-2 * i / width) for i in range(width // 2)]
    near(products[0, 7], sum(math.cos(7 * f) for f in frequencies))


def test_a_later_row_is_an_earlier_one_turned_so_that_a_linear_map_leads_there():
    table = sinusoids(20, 6)
    turn = np.zeros((6, 6))
    for i in range(3):
        c, s = math.cos(4 * 10000 ** (-i / 3)), math.sin(4 * 10000 ** (-i / 3))
        turn[2 * i:2 * i + 2, 2 * i:2 * i + 2] = [[c, s], [-s, c]]
    near(table[:16] @ turn.T, table[4:])


def test_sinusoids_start_where_they_are_told_to():
    near(sinusoids(3, 8, start=5), sinusoids(8, 8)[5:], 0)
    near(sinusoids(1, 2, start=10 ** 6), [[math.sin(1e6), math.cos(1e6)]], 1e-9)
    assert sinusoids(0, 4).shape == (0, 4)


def test_the_layer_of_sinusoids_adds_them_and_passes_gradients_through():
    layer, x = nn.SinusoidalPositions(4), RNG.normal(size=(2, 3, 4))
    near(layer(x), x + sinusoids(3, 4))
    near(layer(x[0], start=2), x[0] + sinusoids(5, 4)[2:])
    assert list(layer.parameters()) == []
    gradcheck(layer, x, order=2)
    assert layer(Tensor(x, dtype=np.float16)).dtype == np.float16
    near(layer(np.zeros((20, 4)))[19, 2], math.sin(0.19))       # no length is too long


# ---------------------------------------------------------------------------------------------------------- learned

def test_learned_positions_are_rows_of_a_table_and_get_its_gradient():
    layer, x = nn.LearnedPositions(5, 4, rng=0), RNG.normal(size=(2, 3, 4))
    table = layer.weight.numpy()
    near(layer(x), x + table[:3])
    near(layer(x, start=2), x + table[2:])
    near(layer(x[0], start=np.int64(1)), x[0] + table[1:4])
    layer(x, start=2).sum().backward()
    near(layer.weight.grad, np.repeat([[0.0], [0.0], [2.0], [2.0], [2.0]], 4, axis=1))      # from both sequences

    def with_table(x, w):
        vars(layer)["weight"] = w
        return layer(x, start=1)
    gradcheck(with_table, (x, table), order=2)
    assert abs(nn.LearnedPositions(1000, 16, rng=0).weight.numpy().std() - 0.02) < 0.0005


@pytest.mark.parametrize(("length", "start"), [(6, 0), (1, 5), (3, 3), (1, 10 ** 9)])
def test_a_sequence_that_is_too_long_for_the_table_is_an_error(length, start):
    layer = nn.LearnedPositions(5, 2)
    with pytest.raises(ShapeError, match=f"LearnedPositions: {start + length} positions, but there are 5; shorten"):
        layer(np.zeros((length, 2)), start)
    assert layer(np.zeros((5, 2))).shape == (5, 2)
    assert layer(np.zeros((1, 2)), 4).shape == (1, 2)


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 1), ()])
def test_another_width_is_an_error_and_is_not_broadcast(shape):
    for layer in (nn.SinusoidalPositions(4), nn.LearnedPositions(8, 4)):
        with pytest.raises(ShapeError, match=r"x .*; it must be \(\.\.\., L, 4\)"):
            layer(np.zeros(shape))


# ----------------------------------------------------------------------------------------------------------- rotary

def turned(x, layout, start=0, base=10000.0):
    """Each pair as a complex number, times e^(i · position · base^(−2k/D)), one after the other."""
    L, D = x.shape[-2:]
    out = np.empty(x.shape)
    for at in range(L):
        for k in range(D // 2):
            first, second = (2 * k, 2 * k + 1) if layout == "interleaved" else (k, k + D // 2)
            z = (x[..., at, first] + 1j * x[..., at, second]) * np.exp(1j * (start + at) * base ** (-2 * k / D))
            out[..., at, first], out[..., at, second] = z.real, z.imag
    return out


@each_layout
@pytest.mark.parametrize(("shape", "start", "base"), [
    ((3, 2), 0, 10000.0), ((5, 6), 0, 10000.0), ((2, 3, 4, 8), 7, 10000.0), ((2, 4), 1000, 500000), ((1, 4), 0, 2.0)])
def test_a_turn_is_a_product_of_complex_numbers(layout, shape, start, base):
    x = RNG.normal(size=shape)
    near(rotate(x, layout=layout, start=start, base=base), turned(x, layout, start, base), 1e-11)
    near(nn.Rotary(layout=layout, base=base)(Tensor(x), start), turned(x, layout, start, base), 1e-11)


@each_layout
def test_the_product_of_a_turned_query_and_a_turned_key_depends_on_their_distance_alone(layout):
    q, k = RNG.normal(size=(2, 8))
    queries = rotate(np.tile(q, (30, 1)), layout=layout)
    keys = rotate(np.tile(k, (30, 1)), layout=layout)
    scores = queries @ keys.T
    for distance in (-11, -1, 0, 1, 5, 20):
        near(np.diagonal(scores, distance), np.full(30 - abs(distance), np.diagonal(scores, distance)[0]))
    near(scores[0, 0], q @ k)
    assert not np.isclose(scores[0, 1], scores[1, 0])           # ahead and behind differ


@each_layout
def test_the_start_shifts_queries_and_keys_alike_and_changes_no_score(layout):
    q, k = RNG.normal(size=(2, 6, 8))

    def scores(start):
        return rotate(q, layout=layout, start=start) @ rotate(k, layout=layout, start=start).T
    near(scores(100), scores(0), 1e-10)
    whole = rotate(q, layout=layout)
    near(np.concatenate([rotate(q[:2], layout=layout), rotate(q[2:], layout=layout, start=2)]), whole)


@each_layout
def test_lengths_stay_and_the_first_position_is_not_turned(layout):
    x = RNG.normal(size=(2, 7, 6))
    y = rotate(x, layout=layout)
    near(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1))
    near(y[:, 0], x[:, 0], 0)
    assert not np.isclose(y[:, 1:], x[:, 1:]).any()


def test_the_layouts_differ_by_the_order_of_features():
    x = RNG.normal(size=(5, 8))
    order = [0, 4, 1, 5, 2, 6, 3, 7]                            # half_split's pairs, side by side
    near(rotate(x, layout="half_split")[:, order], rotate(x[:, order], layout="interleaved"), 0)
    assert not np.allclose(rotate(x, layout="half_split"), rotate(x, layout="interleaved"))
    near(rotate(x[:, :2], layout="half_split"), rotate(x[:, :2], layout="interleaved"), 0)  # with one pair they agree


@each_layout
def test_gradients_of_a_turn_to_order_2_are_turned_back(layout):
    x = RNG.normal(size=(3, 4))
    gradcheck(lambda x: rotate(x, layout=layout, start=3) ** 2, x, order=2)
    t, g = Tensor(x, requires_grad=True), RNG.normal(size=(3, 4))
    rotate(t, layout=layout).backward(g)
    near(rotate(t.grad, layout=layout), g)                      # the transpose of a rotation is its inverse


@each_layout
def test_a_turn_keeps_the_dtype_and_far_positions_stay_exact_in_single_precision(layout):
    for dtype in (np.float16, np.float32):
        x = np.array([[1.0, 0.0]], dtype)
        y = rotate(Tensor(x), layout=layout, start=100_000)
        assert y.dtype == dtype
        near(y, [[math.cos(1e5), math.sin(1e5)]], 1e-3 if dtype == np.float16 else 1e-7)


def test_an_unknown_layout_or_too_few_axes_are_errors():
    for make in (lambda: rotate(np.ones((2, 2)), layout="neox"), lambda: nn.Rotary(layout="neox")):
        with pytest.raises(ValueError, match="layout='neox'; it is one of interleaved, half_split"):
            make()
    with pytest.raises(TypeError, match="layout"):
        rotate(np.ones((2, 2)))                                 # weights depend on it: there is no usual one
    for shape in ((), (4,)):
        with pytest.raises(ShapeError, match=r"rotate: x .*; it must be \(\.\.\., L, D\)"):
            rotate(np.ones(shape), layout="interleaved")


# ------------------------------------------------------------------------------------------------------------ ALiBi

def test_slopes_of_a_power_of_2_halve_down_to_one_256th():
    near(alibi_slopes(8), [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256], 0)
    near(alibi_slopes(16), [2 ** (-i / 2) for i in range(1, 17)])
    near(alibi_slopes(4), [1 / 4, 1 / 16, 1 / 64, 1 / 256], 0)
    near(alibi_slopes(2), [1 / 16, 1 / 256], 0)
    near(alibi_slopes(1), [1 / 256], 0)


def test_slopes_of_other_numbers_are_those_of_the_authors_code():
    near(alibi_slopes(12), [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
                            0.7071067811865476, 0.35355339059327384, 0.17677669529663692, 0.08838834764831849])
    near(alibi_slopes(3), [1 / 16, 1 / 256, 1 / 4])
    near(alibi_slopes(6), [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])


@pytest.mark.parametrize("H", [1, 2, 3, 5, 7, 8, 20, 64, 100])
def test_each_head_has_a_slope_of_its_own_between_0_and_1(H):
    slopes = alibi_slopes(H)
    assert slopes.shape == (H,)
    assert len(set(slopes)) == H
    assert ((slopes > 0) & (slopes < 1)).all()


@pytest.mark.parametrize(("L", "S"), [(3, 3), (1, 4), (2, 5), (4, 2), (1, 1), (0, 3)])
def test_the_bias_is_the_slope_times_the_distance_where_the_last_query_stands_with_the_last_key(L, S):
    bias = alibi_bias(3, L, S)
    expected = np.empty((3, L, S))
    for h, slope in enumerate((1 / 16, 1 / 256, 1 / 4)):
        for i in range(L):
            for j in range(S):
                expected[h, i, j] = -slope * abs((L - 1 - i) - (S - 1 - j))
    near(bias, expected)
    near(nn.ALiBi()(3, L, S), bias, 0)
    if L == S:
        near(alibi_bias(3, L), bias, 0)


def test_the_bias_of_the_newest_query_is_the_last_row_of_all():
    near(alibi_bias(4, 1, 6), alibi_bias(4, 6)[:, -1:], 0)
    near(alibi_bias(4, 2, 6), alibi_bias(4, 6)[:, -2:], 0)


def test_far_keys_weigh_less_by_the_slope_of_each_distance():
    _, weights = attention(np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), np.zeros((2, 3, 1)), alibi_bias(2, 3))
    for h, slope in enumerate((1 / 16, 1 / 256)):
        near(weights[h, 2], softmax(np.array([-2 * slope, -slope, 0.0])))


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "8", None], ids=repr)
def test_a_number_of_heads_is_a_whole_number_of_at_least_1(bad):
    for make in (lambda: alibi_slopes(bad), lambda: alibi_bias(bad, 2)):
        with pytest.raises(ValueError, match=f"num_heads={bad!r}; it must be a whole number of at least 1"):
            make()


# ------------------------------------------------------------------------------------------------ without positions

def test_attention_alone_does_not_see_the_order_of_keys_and_each_kind_of_position_does():
    x, order = RNG.normal(size=(1, 5, 8)), [3, 1, 4, 0, 2]
    shuffled = x[:, order]

    def last(layer, x):
        """What a query outside the sequence, the mean, finds in it."""
        return layer(x.mean(axis=1, keepdims=True), x)[0].numpy()
    layer = nn.MultiHeadAttention(8, 2, rng=0)
    near(last(layer, shuffled), last(layer, x))
    for positions in (nn.SinusoidalPositions(8), nn.LearnedPositions(5, 8, rng=1), nn.Rotary()):
        assert not np.allclose(last(layer, positions(Tensor(shuffled))), last(layer, positions(Tensor(x))))
    for positions in (nn.Rotary(), nn.ALiBi()):
        layer = nn.MultiHeadAttention(8, 2, positions=positions, rng=0)
        assert not np.allclose(layer(shuffled)[0].numpy(), layer(x)[0].numpy()[:, order])


@pytest.mark.parametrize("length", [1, 2])
def test_a_start_below_0_is_an_error(length):
    with pytest.raises(ValueError, match="start"):
        nn.LearnedPositions(8, 2)(np.zeros((length, 2)), -1 - length)


@pytest.mark.parametrize("layout", ["interleaved", "half_split"])
def test_integers_are_turned_as_floats_are_or_refused(layout):
    try:
        y = nn.rotate(np.array([[1, 0], [1, 0]]), layout=layout)
    except TypeError:
        return
    np.testing.assert_allclose(y[1], [math.cos(1), math.sin(1)])


def test_sinusoids_are_not_cut_to_integers():
    try:
        y = nn.SinusoidalPositions(2)(np.zeros((2, 2), int))
    except TypeError:
        return
    np.testing.assert_allclose(y[1], [math.sin(1), math.cos(1)])


@pytest.mark.parametrize("base", [0, -1.0, math.nan, "x", None], ids=repr)
def test_a_base_is_a_number_above_0(base):
    with pytest.raises(ValueError, match="base="):
        nn.Rotary(base=base)
