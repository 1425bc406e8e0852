"""Multi-head attention and transformer layers: against a loop over heads, and against faults that users really met."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tinygrad_attn import (
    GraphError,
    ShapeError,
    Tensor,
    attention,
    causal_mask,
    gradcheck,
    graph,
    nn,
    no_grad,
    padding_mask,
    softmax,
)
from tinygrad_attn import functional as F

RNG = np.random.default_rng(0)
loud = np.errstate(all="raise", under="ignore")


def normal(*shape):
    return RNG.normal(size=shape)


def identity(E, H, **options):
    """A layer whose projections do nothing."""
    layer = nn.MultiHeadAttention(E, H, bias=False, **options)
    layer.load_state_dict({"in_proj_weight": np.tile(np.eye(E), (3, 1)), "out_proj.weight": np.eye(E)})
    return layer


def near(actual, expected, tol=1e-7):
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=tol, atol=tol)


def by_hand(layer, query, key, value, keep):
    """One sequence, one head after the other, in plain NumPy: keep is (H, L, S)."""
    E, H = layer.embed_dim, layer.num_heads
    D, G = E // H, layer.num_kv_heads
    state = layer.state_dict()
    rows = np.cumsum([0, E, G * D, G * D])
    w = ([state["in_proj_weight"][a:b] for a, b in pairwise(rows)] if "in_proj_weight" in state else
         [state[f"{name}_proj_weight"] for name in "qkv"])
    b = [state["in_proj_bias"][a:b] for a, b in pairwise(rows)]
    heads, weights = [], []
    for h in range(H):
        g = h * G // H
        q = query @ w[0][h * D:(h + 1) * D].T + b[0][h * D:(h + 1) * D]
        k = key @ w[1][g * D:(g + 1) * D].T + b[1][g * D:(g + 1) * D]
        v = value @ w[2][g * D:(g + 1) * D].T + b[2][g * D:(g + 1) * D]
        e = np.where(keep[h], np.exp(q @ k.T / math.sqrt(D)), 0)
        p = e / np.where(e.sum(-1, keepdims=True) == 0, 1, e.sum(-1, keepdims=True))
        weights.append(p)
        heads.append(p @ v)
    return np.concatenate(heads, axis=-1) @ state["out_proj.weight"].T + state["out_proj.bias"], np.stack(weights)


# ------------------------------------------------------------------------------------------- against a loop

@pytest.mark.parametrize("options", [{}, {"kdim": 5, "vdim": 3}, {"num_kv_heads": 1}, {"num_kv_heads": 2},
                                     {"num_kv_heads": 2, "kdim": 7}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_layer_is_a_loop_over_heads(options, masked, need_weights):
    layer = nn.MultiHeadAttention(8, 4, rng=1, **options)
    layer.in_proj_bias.data, layer.out_proj.bias.data = normal(*layer.in_proj_bias.shape), normal(8)
    query, key, value = normal(2, 3, 8), normal(2, 5, options.get("kdim", 8)), normal(2, 5, options.get("vdim", 8))
    keep = RNG.random((2, 4, 3, 5)) < 0.5 if masked else np.ones((2, 4, 3, 5), bool)
    keep[0, 0, 0] = not masked                      # a query of one head that may attend to nothing
    output, weights = layer(query, key, value, keep if masked else None, need_weights=need_weights)
    for b in range(2):
        expected, expected_weights = by_hand(layer, query[b], key[b], value[b], keep[b])
        near(output[b], expected, 1e-12)
        if need_weights:
            near(weights[b], expected_weights, 1e-12)
    assert need_weights or weights is None
    alone, _ = layer(query[0], key[0], value[0], keep[0] if masked else None)       # without a batch
    near(alone, output[0].numpy(), 1e-12)


def test_gradients_of_layers_to_order_2():
    for options in ({}, {"num_kv_heads": 1, "kdim": 3}, {"positions": nn.Rotary()}, {"positions": nn.ALiBi()}):
        layer = nn.MultiHeadAttention(4, 2, rng=0, **options)
        width = options.get("kdim", 4)

        def attend(x, c, w, layer=layer):
            vars(layer.out_proj)["weight"] = w
            rest = () if layer.positions else (c, c if layer.kdim == 4 else x)
            return (layer(x, *rest, need_weights=False)[0] + 0 * c.sum())
        gradcheck(attend, (normal(3, 4), normal(3, width), normal(4, 4)), order=2)
    for norm_first in (False, True):
        encoder = nn.TransformerEncoderLayer(4, 2, 6, 0.0, "gelu", norm_first=norm_first, rng=0)
        decoder = nn.TransformerDecoderLayer(4, 2, 6, 0.0, "tanh", norm_first=norm_first, rng=0)
        gradcheck(lambda x, layer=encoder: layer(x, causal=True), normal(1, 3, 4), order=2)
        gradcheck(decoder, (normal(1, 2, 4), normal(1, 3, 4)), order=2)


def test_self_attention_needs_the_query_alone_and_cross_attention_the_value_not():
    layer, x, c = nn.MultiHeadAttention(4, 2, rng=0), normal(2, 3, 4), normal(2, 5, 4)
    near(layer(x)[0], layer(x, x, x)[0].numpy(), 0)
    near(layer(x, c)[0], layer(x, c, c)[0].numpy(), 0)


def test_the_scale_can_be_left_out():
    layer, x = nn.MultiHeadAttention(4, 1, rng=0), normal(2, 3, 4)
    weights = layer(x, scale=1.0)[1].numpy()
    near(softmax(np.log(layer(x)[1].numpy()) * 2), weights, 1e-12)          # √D = 2


def test_dropout_acts_on_weights_in_training_only_and_those_returned_are_before_it():
    layer, x = nn.MultiHeadAttention(4, 2, dropout=0.5, rng=0), normal(2, 3, 4)
    assert not np.allclose(layer(x)[0].numpy(), layer(x)[0].numpy())
    near(layer(x)[1].sum(axis=-1), np.ones((2, 2, 3)), 1e-12)
    layer.eval()
    near(layer(x)[0], layer(x, need_weights=False)[0].numpy(), 1e-14)
    same = [nn.MultiHeadAttention(4, 2, dropout=0.5, rng=7)(x)[0].numpy() for _ in range(2)]
    near(*same, 0)


def test_float32_stays_float32():
    for layer in (nn.TransformerEncoderLayer(4, 2, 6, positions=nn.Rotary(), dtype=np.float32, rng=0),
                  nn.TransformerEncoderLayer(4, 2, 6, positions=nn.ALiBi(), rng=0).astype(np.float32)):
        out = layer(normal(1, 3, 4).astype(np.float32), padding_mask([2], 3), causal=True)
        out.sum().backward()
        assert {out.dtype, *(p.dtype for p in layer.parameters()), *(p.grad.dtype for p in layer.parameters())} == {
            np.dtype(np.float32)}


# -------------------------------------------------------------------------------------- faults, by their ids

def test_AT_01_the_scale_of_the_layer_is_that_of_one_head():
    _, weights = identity(4, 2)(np.array([[[1.0, 0, 0, 0], [0, 1, 0, 0]]]))
    near(weights[0, 0], [[0.66976155, 0.33023845], [0.33023845, 0.66976155]])
    near(weights[0, 1], np.full((2, 2), 0.5))


@pytest.mark.parametrize(("make", "named"), [
    (lambda: nn.MultiHeadAttention(10, 4), "embed_dim=10.*num_heads=4"),
    (lambda: nn.MultiHeadAttention(8, 0), "num_heads=0"), (lambda: nn.MultiHeadAttention(8, -2), "num_heads=-2"),
    (lambda: nn.MultiHeadAttention(0, 1), "embed_dim=0"), (lambda: nn.MultiHeadAttention(8, 2.0), r"num_heads=2\.0"),
    (lambda: nn.MultiHeadAttention(8, 4, num_kv_heads=3), "num_heads=4.*num_kv_heads=3"),
    (lambda: nn.MultiHeadAttention(8, 4, num_kv_heads=0), "num_kv_heads=0"),
    (lambda: nn.MultiHeadAttention(8, 4, num_kv_heads=8), "num_kv_heads=8"),
    (lambda: nn.MultiHeadAttention(8, 2, kdim=0), "kdim=0"),
    (lambda: nn.MultiHeadAttention(8, 2, dropout=1), "dropout 1"),
    (lambda: nn.MultiHeadAttention(6, 2, positions=nn.Rotary()), "3 features each, an odd number"),
    (lambda: nn.TransformerEncoderLayer(8, 2, 0), "out_features=0"),
    (lambda: nn.TransformerEncoderLayer(8, 2, 8, -0.1), r"dropout -0\.1"),
    (lambda: nn.TransformerDecoderLayer(8, 2, 8, activation="swish"), "'swish'"),
    (lambda: nn.GPT(10, 8, 8, 3, 1), "embed_dim=8.*num_heads=3"), (lambda: nn.GPT(10, 0, 8, 2, 1), "max_len=0"),
    (lambda: nn.GPT(10, 8, 8, 2, 1, positions="absolute"), "'absolute'"),
    (lambda: nn.GPT(10, 8, 8, 2, 0), "num_layers=0"),
    (lambda: nn.GPT(10, 8, 7, 1, 1, positions="sinusoidal"), "7 is odd"),
    (lambda: nn.EncoderDecoder(10, 9, 3, 1), "9 is odd")])
def test_AT_02_sizes_that_do_not_fit_are_refused_when_the_layer_is_made(make, named):
    with pytest.raises(ValueError, match=named):
        make()


def test_AT_02_keys_and_values_may_have_other_widths():
    layer = nn.MultiHeadAttention(6, 2, kdim=5, vdim=3, rng=0)
    output, weights = layer(normal(2, 4, 6), normal(2, 7, 5), normal(2, 7, 3))
    assert (output.shape, weights.mean(axis=1).shape) == ((2, 4, 6), (2, 4, 7))


def test_AT_03_splitting_and_merging_is_the_identity():
    x = np.array([[[1.0, 2, 3, 4], [5, 6, 7, 8]]])
    for need_weights in (True, False):
        near(identity(4, 2)(x, mask=np.eye(2, dtype=bool), need_weights=need_weights)[0], x)


@loud
@pytest.mark.parametrize("need_weights", [True, False])
def test_AT_05_with_and_without_weights_a_head_that_is_masked_everywhere_is_zero(need_weights):
    x = Tensor([[[1.0, 2, 3], [4, 5, 6]]], requires_grad=True)
    mask = np.ones((1, 3, 2, 2), bool)
    mask[:, 2] = False
    output, weights = identity(3, 3)(x, mask=mask, need_weights=need_weights)
    near(output, [[[3.85772238, 4.99258213, 0], [3.99998157, 4.99999908, 0]]])
    output.sum().backward()
    assert np.isfinite(x.grad).all()
    assert not x.grad[..., 2].any()
    if need_weights:
        assert weights.shape == (1, 3, 2, 2)
        assert not weights[0, 2].numpy().any()
        near(weights.mean(axis=1).sum(axis=-1), np.full((1, 2), 2 / 3))


def test_AT_07_batch_comes_first():
    layer = identity(1, 1)
    layer.in_proj_weight.data = [[0.0], [0.0], [1.0]]
    near(layer(np.array([[[1.0], [2]], [[3], [4]]]))[0], [[[1.5], [1.5]], [[3.5], [3.5]]])


@pytest.mark.parametrize("mask", [None, causal_mask(3), padding_mask([2, 3], 3), normal(3, 3)], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_AT_07_one_sequence_of_a_batch_does_not_see_another(mask, need_weights):
    layer, x = nn.TransformerEncoderLayer(4, 2, 8, rng=0).eval(), normal(2, 3, 4)
    changed = np.stack([x[0], x[1] * 7 + 1])
    near(layer(x, mask)[0], layer(changed, mask)[0].numpy(), 0)
    assert not np.allclose(layer(x, mask)[1].numpy(), layer(changed, mask)[1].numpy())


@loud
@pytest.mark.parametrize("need_weights", [True, False])
def test_MK_01_a_query_of_the_layer_that_may_attend_to_nothing_gets_the_output_bias(need_weights):
    layer = nn.MultiHeadAttention(4, 2, rng=0)
    layer.out_proj.bias.data = [1.0, 2, 3, 4]
    x = Tensor(normal(1, 2, 4), requires_grad=True)
    output, _ = layer(x, mask=np.array([[True, True], [False, False]]), need_weights=need_weights)
    near(output[0, 1], [1, 2, 3, 4], 0)
    output[0, 1].sum().backward()
    assert not x.grad.any()
    assert all(np.isfinite(p.grad).all() for p in layer.parameters())


def test_MK_03_true_means_may_attend_in_the_layer_as_everywhere():
    layer = identity(1, 1)
    x, mask = np.array([[[10.0], [20.0]]]), np.array([[True, False]])
    layer.in_proj_weight.data = [[0.0], [0.0], [1.0]]
    near(layer(x, mask=mask)[0], [[[10.0], [10.0]]])
    near(layer(x, mask=np.where(mask, 0.0, -np.inf))[0], [[[10.0], [10.0]]])        # the same, as a float mask
    near(layer(x, mask=np.tril(np.ones((2, 2))))[0], [[[12.6894142], [15.0]]])      # which is added, not applied
    for wrong in (np.tile(mask, (2, 1)).astype(int), np.ones((2, 2), np.uint8)):
        for options in ({}, {"causal": True}):
            with pytest.raises(TypeError, match="boolean"):
                layer(x, mask=wrong, **options)
        with pytest.raises(TypeError, match="boolean"):
            identity(1, 1, positions=nn.ALiBi())(x, mask=wrong)


@pytest.mark.parametrize("positions", [None, nn.ALiBi()], ids=["none", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4), (4, 4), (3, 2, 3, 3), (2, 1, 1, 4), ()], ids=str)
def test_MK_03_a_mask_that_does_not_fit_is_told_with_the_shapes(shape, causal, positions):
    layer = nn.MultiHeadAttention(4, 2, positions=positions, rng=0)
    with pytest.raises(ShapeError, match=r"mask .* the scores, \(2, 2, 3, 3\)"):
        layer(normal(2, 3, 4), mask=np.ones(shape, bool), causal=causal)


def test_MK_03_a_mask_of_three_axes_could_be_read_two_ways_and_is_refused():
    layer, x = nn.MultiHeadAttention(4, 2, rng=0), normal(2, 3, 4)
    with pytest.raises(ShapeError, match=r"mask\[:, None\]"):
        layer(x, mask=np.ones((2, 3, 3), bool))
    layer(x, mask=np.ones((2, 3, 3), bool)[:, None])
    layer(x[0], mask=np.ones((2, 3, 3), bool))      # of one sequence it can only be (H, L, S)


def test_MK_04_a_causal_layer_sees_no_later_token_and_asks_when_lengths_differ():
    layer, x = nn.MultiHeadAttention(4, 2, rng=0), normal(1, 4, 4)
    whole = layer(x, causal=True)[0].numpy()
    for n in range(1, 4):
        near(layer(x[:, :n], causal=True)[0], whole[:, :n], 1e-12)
    with pytest.raises(ValueError, match="upper_left"):
        layer(x[:, :2], x, causal=True)


@pytest.mark.parametrize("mask", [padding_mask([2], 3), np.where(padding_mask([2], 3), 0.5, -np.inf)],
                         ids=["bool", "float"])
@pytest.mark.parametrize("positions", [None, nn.ALiBi()], ids=["none", "alibi"])
def test_MK_04_causal_and_another_mask_and_alibi_all_hold(mask, positions):
    layer, x = nn.MultiHeadAttention(4, 2, positions=positions, rng=0), normal(1, 3, 4)
    _, weights = layer(x, mask=mask, causal=True)
    assert not weights.numpy()[..., ~(causal_mask(3) & padding_mask([2], 3)[0, 0])].any()
    near(weights.sum(axis=-1), np.ones((1, 2, 3)), 1e-12)


def test_MK_06_what_is_finite_under_the_padding_does_not_leak():
    layer, x = nn.TransformerEncoderLayer(4, 2, 8, rng=0).eval(), normal(1, 3, 4)
    junk = x.copy()
    junk[0, 2] = 1e30
    mask = padding_mask([2], 3)
    near(layer(x, mask)[0, :2], layer(junk, mask)[0, :2].numpy(), 0)


# ---------------------------------------------------------------------------------------- positions and caches

def test_rotary_turns_queries_and_keys_so_that_only_distance_counts():
    layer, x = nn.MultiHeadAttention(8, 2, positions=nn.Rotary(), rng=0), np.tile(normal(1, 1, 8), (1, 6, 1))
    weights = layer(x)[1].numpy()[0]                # one token at all places: a score depends on the distance alone
    for h in range(2):
        scores = np.log(weights[h])
        scores -= np.diagonal(scores)[:, None]
        for d in range(-5, 6):
            assert np.ptp(np.diagonal(scores, d)) < 1e-12
        assert np.ptp(scores) > 1e-3


def test_alibi_is_added_to_the_scores():
    bias, x = nn.alibi_bias(2, 4), normal(1, 4, 8)
    plain, tilted = nn.MultiHeadAttention(8, 2, rng=0), nn.MultiHeadAttention(8, 2, positions=nn.ALiBi(), rng=0)
    near(tilted(x)[1], softmax(np.log(plain(x)[1].numpy()) + bias), 1e-12)


@pytest.mark.parametrize("positions", [None, nn.Rotary(), nn.Rotary(layout="half_split"), nn.ALiBi()], ids=repr)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("cuts", [[1, 2, 3, 4, 5], [3, 5], [1, 4, 5]])
def test_decoding_with_a_cache_is_the_causal_layer_whatever_the_pieces(positions, need_weights, cuts):
    layer, x = nn.MultiHeadAttention(8, 4, num_kv_heads=2, positions=positions, rng=0), normal(2, 5, 8)
    cache = nn.KVCache()
    with no_grad():
        whole = layer(x, causal=True)[0].numpy()
        pieces = [layer(x[:, a:b], causal=True, cache=cache, need_weights=need_weights)[0].numpy()
                  for a, b in zip([0, *cuts], cuts)]
    near(np.concatenate(pieces, axis=1), whole, 1e-12)
    assert (len(cache), cache.keys.shape) == (5, (2, 2, 5, 2))


def test_a_memory_is_projected_once():
    layer, memory = nn.MultiHeadAttention(4, 2, rng=0), normal(1, 3, 4)
    cache = nn.KVCache()
    with no_grad():
        first = layer(normal(1, 1, 4), memory, cache=cache)
        again = layer(x := normal(1, 1, 4), memory * np.nan, cache=cache)[0]         # it is not looked at
        near(again, layer(x, memory)[0].numpy(), 1e-14)
        for other in (normal(1, 4, 4), normal(2, 3, 4)):
            with pytest.raises(ShapeError, match="another memory"):
                layer(normal(len(other), 1, 4), other, cache=cache)
    assert first[1].shape == (1, 2, 1, 3)
    assert len(cache) == 3


def test_a_cache_is_for_decoding_and_for_one_batch_and_is_left_alone_by_what_fails():
    layer, cache = nn.MultiHeadAttention(4, 2, rng=0), nn.KVCache()
    with pytest.raises(GraphError, match="no_grad"):
        layer(normal(1, 2, 4), causal=True, cache=cache)
    assert len(cache) == 0
    with no_grad():
        layer(normal(1, 2, 4), causal=True, cache=cache)
        with pytest.raises(ShapeError, match="one batch"):
            layer(normal(3, 1, 4), causal=True, cache=cache)
        with pytest.raises(ShapeError, match="mask"):
            layer(normal(1, 1, 4), mask=np.ones((7, 7), bool), cache=cache)
    assert len(cache) == 2


def test_self_attention_with_a_cache_may_be_written_with_key_and_value():
    layer, x, cache = nn.MultiHeadAttention(4, 2, rng=0), normal(1, 4, 4), nn.KVCache()
    with no_grad():
        rows = [layer(h, h, h, causal=True, cache=cache)[0].numpy() for h in (x[:, i:i + 1] for i in range(4))]
        near(np.concatenate(rows, axis=1), layer(x, x, x, causal=True)[0].numpy(), 1e-12)


def test_what_would_give_other_numbers_than_are_meant_is_refused():
    for positions in ("rotary", nn.Rotary, nn.SinusoidalPositions(4), nn.LearnedPositions(9, 4)):
        with pytest.raises(TypeError, match="positions="):
            nn.MultiHeadAttention(4, 2, positions=positions)
    x, c = normal(2, 3, 4), normal(2, 3, 4)
    with pytest.raises(ValueError, match="Rotary is for self-attention"):
        nn.MultiHeadAttention(4, 2, positions=nn.Rotary(), rng=0)(x, c)
    layer, cache = nn.MultiHeadAttention(4, 2, rng=0), nn.KVCache()
    with no_grad():
        with pytest.raises(ValueError, match="each would see those after it"):
            layer(x, cache=cache)
        with pytest.raises(ValueError, match="for self-attention"):
            layer(x, c, causal=True, cache=cache)
        layer(x, causal=True, cache=cache)
        with pytest.raises(ShapeError, match="repeated for the 3 keys"):
            layer(x[:, :1], mask=padding_mask([1, 0], 1), causal=True, cache=cache)
        with pytest.raises(ValueError, match="one cache is given to several"):
            nn.GPT(5, 8, 4, 2, 2)([[1]], caches=[nn.KVCache()] * 2)


def test_a_boolean_tensor_is_a_mask_also_with_causal():
    layer, x, mask = nn.MultiHeadAttention(4, 2, rng=0), normal(1, 3, 4), causal_mask(3) | np.eye(3, k=1, dtype=bool)
    near(layer(x, mask=Tensor(mask), causal=True)[0], layer(x, causal=True)[0].numpy(), 0)


def test_generate_refuses_weights_that_are_not_finite_and_takes_tiny_temperatures():
    model = nn.GPT(5, 8, 4, 2, 1, rng=0)
    likeliest = model.generate([[1]], 5, temperature=0.0)
    np.testing.assert_array_equal(model.generate([[1]], 5, temperature=1e-320, rng=0), likeliest)
    np.testing.assert_array_equal(model.generate(np.array([[1]], np.uint64), 5, temperature=0), likeliest)
    model.tokens.weight.data = model.tokens.weight.data * np.nan
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="not finite"):
            model.generate([[1]], 2, temperature=temperature, rng=0)
    assert model(np.zeros((1, 0), int)).shape == (1, 0, 5)
    assert model([[]]).shape == (1, 0, 5)
    with pytest.raises(ShapeError, match="one length"):
        model([[1, 2], [3]])


def test_a_stack_is_made_of_a_list_of_layers():
    for wrong in (nn.TransformerEncoderLayer(4, 2, 8), [nn.Linear], 6):
        with pytest.raises(TypeError, match="list of layers"):
            nn.TransformerEncoder(wrong)


def test_each_layer_needs_a_cache_of_its_own():
    encoder = nn.TransformerEncoder([nn.TransformerEncoderLayer(4, 2, 8, rng=i) for i in range(2)])
    decoder = nn.TransformerDecoder([nn.TransformerDecoderLayer(4, 2, 8, rng=i) for i in range(2)])
    with no_grad(), pytest.raises(ValueError, match="2 layers and 1 caches"):
        encoder(normal(1, 2, 4), causal=True, caches=[nn.KVCache()])
    with no_grad(), pytest.raises(ValueError, match="2 layers and 0 caches"):
        decoder(normal(1, 2, 4), normal(1, 2, 4), caches=[])


# ------------------------------------------------------------------------------------------------- bad inputs

@pytest.mark.parametrize(("shapes", "named"), [
    ([(2, 3, 5)], r"query \(2, 3, 5\).*\(B, length, 4\)"), ([(4,)], r"query \(4,\)"),
    ([(1, 2, 3, 4)], r"query \(1, 2, 3"),
    ([(2, 3, 4), (2, 3, 5)], r"key \(2, 3, 5\)"), ([(2, 3, 4), (3, 4)], r"key \(3, 4\)"),
    ([(2, 3, 4), (1, 3, 4)], "the batch must be the same"),
    ([(2, 3, 4), (2, 5, 4), (2, 6, 4)], "each key has one value")])
def test_inputs_that_do_not_fit_are_named(shapes, named):
    with pytest.raises(ShapeError, match=named):
        nn.MultiHeadAttention(4, 2)(*(np.zeros(shape) for shape in shapes))


def test_too_many_tokens_and_tokens_that_are_none_are_refused():
    model = nn.GPT(10, 4, 8, 2, 1, rng=0)
    with pytest.raises(ShapeError, match="5 tokens, but max_len is 4"):
        model(np.zeros((1, 5), int))
    with no_grad():
        caches = [nn.KVCache()]
        model(np.zeros((1, 3), int), caches=caches)
        with pytest.raises(ShapeError, match="5 tokens"):
            model(np.zeros((1, 2), int), caches=caches)
    for ids, error, named in (([[10]], IndexError, "id 10"), ([[-1]], IndexError, "id -1"),
                              ([[0.5]], TypeError, "float64"),
                              ([1, 2], ShapeError, r"\(2,\)")):
        with pytest.raises(error, match=named):
            model(ids)
    for options in ({"temperature": -1}, {"temperature": math.nan}, {"new": -1}):
        with pytest.raises(ValueError, match=r"GPT\.generate"):
            model.generate([[1]], **{"new": 1, **options})
    with pytest.raises(ShapeError, match="a token to go on from"):
        model.generate(np.zeros((1, 0), int), 2)


# ----------------------------------------------------------------------------------------------------- layers

def test_pre_norm_and_post_norm_are_the_formulas():
    x = normal(2, 3, 4)
    for norm_first in (False, True):
        layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, norm_first=norm_first, rng=0)
        n1, n2, f = layer.norm1, layer.norm2, lambda x, layer=layer: layer.linear2(F.relu(layer.linear1(x)))
        a = x + layer.self_attn(n1(x))[0] if norm_first else n1(x + layer.self_attn(x)[0])
        near(layer(x), (a + f(n2(a)) if norm_first else n2(a + f(a))).numpy(), 1e-12)


def test_the_gpts_output_matrix_is_its_embedding():
    model = nn.GPT(10, 8, 8, 2, 1, rng=0)
    assert [name for name, _ in model.named_parameters() if "tokens" in name] == ["tokens.weight"]
    model([[1, 2]]).sum().backward()
    assert model.tokens.weight.grad[5].any()        # token 5 was no input, and yet a candidate
    assert model(np.array([[1, 2]])).shape == (1, 2, 10)


def test_the_same_seed_makes_the_same_network_and_another_another():
    def make(rng):
        return nn.GPT(10, 8, 8, 2, 2, dropout=0.1, rng=rng)
    one, same, other = make(5), make(np.random.default_rng(5)), make(6)
    ids = [[1, 2, 3]]
    near(one(ids), same(ids).numpy(), 0)
    assert not np.allclose(one(ids).numpy(), other(ids).numpy())


def test_a_picture_of_a_transformer_has_a_box_for_each_module():
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, rng=0)
    x = Tensor(normal(1, 2, 4), requires_grad=True)
    text = str(graph.draw(layer(x), names=dict(layer.named_parameters()), collapse=1))
    for box in ("MultiHeadAttention", "LayerNorm", "Linear"):
        assert f"[{box}]" in text
    assert "self_attn.in_proj_weight" in text
    assert "[TransformerEncoderLayer]" in str(graph.draw(layer(x), collapse=0))


def test_attention_and_the_layer_are_one():
    layer, x = identity(4, 1), normal(1, 3, 4)
    near(layer(x)[0], attention(x, x, x)[0], 1e-12)
