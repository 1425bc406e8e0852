"""Do modules and optimisers do what PyTorch's do? State dicts move either way as they are; outputs, weights of each
head and all gradients agree; optimisers agree step for step. The tables are in `fixtures/torch_modules.py`.

The recorded half compares with `fixtures/torch_modules.npz` and needs no torch. The live half, where torch is
installed, draws other sizes, says where PyTorch does something else than we do, and compares how parameters start.
With PARITY_TESTS=required in the environment a missing torch is a failure.
"""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, nn, optim, serialize
from tinygrad_attn import functional as F

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
from make_torch_fixtures import MODULES_PATH, recorded
from torch_cases import sizes, the_torch
from torch_modules import (
    CLIPPING,
    MODULES,
    OPTIMISERS,
    SCHEDULES,
    STEPS,
    ModuleCase,
    Rates,
    Steps,
    drawn,
    gradients,
    our_clipped,
    our_module,
    our_path,
    ours,
    shapes_of,
    theirs,
    torch_clipped,
    torch_module,
    torch_path,
    torch_rates,
)

RECORDED = recorded(MODULES_PATH)
LIVE = find_spec("torch") is not None
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])


def each(names: str, table: list, seeds: int = 0):
    """A test for each row of the table; with `seeds`, for each seed also, and only where torch is, for without it one
    test skips, or fails, for all."""
    if not seeds:
        return pytest.mark.parametrize(names, table, ids=lambda c: c.name)
    rows = [pytest.param(c, seed, id=f"{c.name}-{seed}") for c in table for seed in range(1, seeds + 1)]
    return pytest.mark.parametrize((names, "seed"), rows if LIVE else [pytest.param(None, 0, id="all")])


def assert_agree(found: dict, expected: dict, truth: dict | None = None) -> None:
    """float64: to 1e-10. float32: PyTorch's float64 is the truth, which we may miss by 1e-5, or, where float32 has not
    the digits (a norm of features that hardly differ), by 4 times what PyTorch's float32 misses it by."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape), key
        if truth is None:
            np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-11, err_msg=key)
        else:
            missed = np.abs(value - truth[key]).max(initial=0)
            np.testing.assert_allclose(found[key], truth[key], rtol=1e-5, atol=1e-5 + 4 * missed, err_msg=key)


def assert_same_path(found: dict, expected: dict, dtype: type) -> None:
    """After each of the steps. What float32 keeps of a sum depends on the largest number in it."""
    for key, w in found.items():
        assert w.dtype == dtype
        rtol, atol = (1e-10, 1e-12) if dtype == np.float64 else (1e-5, 1e-6 * np.abs(expected[key]).max())
        np.testing.assert_allclose(w, expected[key], rtol=rtol, atol=atol, err_msg=key)


def assert_clipped_alike(kind: str, limit: float, found: dict, expected: dict, rtol: float = 1e-12) -> None:
    """PyTorch divides by norm + 1e-6, to be safe at 0, and so clips a little more; the rest is the same."""
    if kind == "norm":
        np.testing.assert_allclose(found["norm"], expected["norm"], rtol=rtol)
    more = 1.0 if kind == "value" or found["norm"] <= limit else found["norm"] / (found["norm"] + 1e-6)
    for key in ("g0", "g1"):
        np.testing.assert_allclose(found[key] * more, expected[key], rtol=rtol)


# ------------------------------------------------------------------------------------------------------- recorded

def of_record(c: ModuleCase) -> tuple[dict, list, dict]:
    """State dict, inputs, and what came out."""
    record = RECORDED[c.name]
    inputs = [record[f"x{i}"] for i in range(len(c.inputs))]
    return ({key[2:]: value for key, value in record.items() if key.startswith("p ")}, inputs,
            {key: value for key, value in record.items() if key[0] not in "px"})


@each("c", MODULES)
def test_a_recorded_state_dict_of_pytorch_loads_as_it_is_and_gives_its_outputs_and_gradients(c: ModuleCase) -> None:
    state, inputs, expected = of_record(c)
    module = our_module(c, sizes())
    assert module.load_state_dict(state) == ([], [])
    assert_agree(ours(module, c, inputs), expected)


@each("c", MODULES)
def test_a_recorded_state_dict_gives_the_same_in_float32_to_5_digits(c: ModuleCase) -> None:
    state, inputs, expected = of_record(c)
    module = our_module(c, sizes(), np.float32)
    module.load_state_dict(state)
    for key, value in ours(module, c, [x.astype(np.float32) for x in inputs]).items():
        assert value.dtype == np.float32, key
        np.testing.assert_allclose(value, expected[key], rtol=1e-5, atol=1e-5, err_msg=key)


@each("c", MODULES)
def test_what_was_loaded_is_given_back_to_the_bit(c: ModuleCase) -> None:
    state, _, _ = of_record(c)
    module = our_module(c, sizes())
    module.load_state_dict(state)
    found = module.state_dict()
    assert found.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(found[key], value, strict=True)


def test_the_record_is_of_these_tables_and_holds_finite_numbers_alone() -> None:
    names = [*(c.name for c in MODULES), "gradients", *(o.name for o in OPTIMISERS),
             *(f"schedule/{rates.name}" for rates in SCHEDULES),
             *(f"clip_grad_{kind}/{limit}" for kind, limit in CLIPPING)]
    assert list(RECORDED) == names, "run make_torch_fixtures.py; or two cases have one name"
    assert all(np.isfinite(value).all() for record in RECORDED.values() for value in record.values())


def test_every_module_optimiser_and_schedule_with_a_counterpart_is_compared() -> None:
    compared = {type(module) for c in MODULES for _, module in c.ours(sizes()).named_modules()}
    classes = {value for value in vars(nn).values() if isinstance(value, type) and issubclass(value, nn.Module)}
    no_counterpart = {nn.Module, nn.ALiBi, nn.LearnedPositions, nn.Rotary, nn.SinusoidalPositions, nn.GPT,
                      nn.EncoderDecoder}
    assert classes - compared == no_counterpart
    optimisers = {name for name, value in vars(optim).items()
                  if isinstance(value, type) and issubclass(value, optim.Optimizer)}
    assert optimisers - {o.kind for o in OPTIMISERS} == {"Optimizer"}
    assert {"constant", "cosine", "inverse_sqrt", "step"} <= {rates.name.partition("/")[0] for rates in SCHEDULES}


@DTYPES
@each("o", OPTIMISERS)
def test_each_of_50_steps_is_the_one_that_pytorch_recorded(o: Steps, dtype: type) -> None:
    record, given = RECORDED[o.name], RECORDED["gradients"]
    expected = {key: record[f"{key} in float32" if dtype == np.float32 else key] for key in ("w0", "w1")}
    assert expected["w0"].shape == (STEPS, *given["start0"].shape)
    assert_same_path(our_path(o, given, dtype), expected, dtype)


@each("rates", SCHEDULES)
def test_each_rate_of_50_steps_is_the_one_that_pytorch_recorded(rates: Rates) -> None:
    found = [rates.schedule(t) for t in range(STEPS)]
    np.testing.assert_allclose(found, RECORDED[f"schedule/{rates.name}"]["rates"], rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize(("kind", "limit"), CLIPPING)
def test_clipped_gradients_are_those_that_pytorch_recorded_but_for_its_1e_6(kind: str, limit: float) -> None:
    found = our_clipped(kind, limit, [RECORDED["gradients"][key] for key in ("g0", "g1")])
    assert_clipped_alike(kind, limit, found, RECORDED[f"clip_grad_{kind}/{limit}"])


# ------------------------------------------------------------------------------------------------- live: modules

@pytest.fixture(scope="module")
def T():
    return the_torch()


def lengths(seed: int) -> dict[str, int]:
    return sizes(np.random.default_rng(seed))


@each("c", MODULES, seeds=3)
def test_pytorchs_state_dict_loads_as_it_is_and_gives_the_same(T, c: ModuleCase, seed: int) -> None:
    n = lengths(seed)
    module, mine = torch_module(T, c, n), our_module(c, n)
    state, inputs = drawn(c, shapes_of(module), n, seed)
    module.load_state_dict({key: T.tensor(value) for key, value in state.items()})
    assert mine.load_state_dict(module.state_dict()) == ([], [])
    assert_agree(ours(mine, c, inputs), theirs(module, c, inputs, T))


@each("c", MODULES, seeds=3)
def test_our_state_dict_loads_into_pytorch_strictly_and_gives_the_same(T, c: ModuleCase, seed: int) -> None:
    n = lengths(seed)
    module, mine = torch_module(T, c, n), our_module(c, n)
    state, inputs = drawn(c, shapes_of(mine), n, seed)
    mine.load_state_dict(state)
    module.load_state_dict({key: T.tensor(value) for key, value in mine.state_dict().items()}, strict=True)
    assert_agree(ours(mine, c, inputs), theirs(module, c, inputs, T))


@each("c", MODULES, seeds=3)
def test_float32_stays_float32_and_is_as_accurate_as_pytorchs(T, c: ModuleCase, seed: int) -> None:
    n = lengths(seed)
    module, exact, mine = torch_module(T, c, n, np.float32), torch_module(T, c, n), our_module(c, n, np.float32)
    state, inputs = drawn(c, shapes_of(module), n, seed, np.float32)
    for net in (module, exact):
        net.load_state_dict({key: T.tensor(value) for key, value in state.items()})
    mine.load_state_dict(module.state_dict())
    assert_agree(ours(mine, c, inputs), theirs(module, c, inputs, T),
                 theirs(exact, c, [x.astype(np.float64) for x in inputs], T))


FAST = [c for c in MODULES if c.name.startswith(("TransformerEncoder/", "TransformerEncoderLayer/p")) or c.name in {
    "TransformerEncoderLayer/causal", "TransformerEncoderLayer/mask of each head", "TransformerEncoderLayer/eps",
    "MultiHeadAttention/self", "MultiHeadAttention/causal", "MultiHeadAttention/padding, causal",
    "MultiHeadAttention/boolean mask, causal", "MultiHeadAttention/one token"}]


@each("c", FAST, seeds=1)
def test_pytorchs_fast_path_without_gradients_gives_the_same_outputs(T, c: ModuleCase, seed: int, monkeypatch) -> None:
    taken = []

    def counted(fast):
        return lambda *args, **options: (taken.append(fast), fast(*args, **options))[1]
    for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention"):
        monkeypatch.setattr(T, name, counted(getattr(T, name)))
    n = sizes()
    module, mine = torch_module(T, c, n), our_module(c, n)
    state, inputs = drawn(c, shapes_of(module), n, seed)
    module.load_state_dict({key: T.tensor(value) for key, value in state.items()})
    mine.load_state_dict(state)
    with T.no_grad(), ta.no_grad():
        expected = c.torch_call(T, module, *map(T.tensor, inputs))
        found = c.call(mine, *map(Tensor, inputs))
    assert_agree({key: out.numpy() for key, out in found.items()}, {key: out.numpy() for key, out in expected.items()})
    assert taken


def test_weights_move_either_way_through_a_safetensors_file(T, tmp_path) -> None:
    files = pytest.importorskip("safetensors.torch")
    mine = nn.TransformerEncoderLayer(8, 2, 16, rng=0)
    module = T.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dtype=T.float64)
    serialize.save(tmp_path / "ours.safetensors", mine.state_dict())
    module.load_state_dict(files.load_file(tmp_path / "ours.safetensors"), strict=True)
    x = np.random.default_rng(0).standard_normal((2, 3, 8))
    np.testing.assert_allclose(mine.eval()(x).numpy(), module.eval()(T.tensor(x)).detach().numpy(), rtol=1e-10)
    for p in module.parameters():
        p.data = T.cos(p.data)
    files.save_file(module.state_dict(), tmp_path / "theirs.safetensors")
    mine.load_state_dict(serialize.load(tmp_path / "theirs.safetensors"))
    np.testing.assert_allclose(mine(x).numpy(), module(T.tensor(x)).detach().numpy(), rtol=1e-10)


def test_bfloat16_weights_of_pytorch_load_exactly(T) -> None:
    module, mine = T.nn.Linear(5, 3).bfloat16(), nn.Linear(5, 3, dtype=np.float32)
    mine.load_state_dict(module.state_dict())
    np.testing.assert_array_equal(mine.weight.numpy(), module.weight.detach().float().numpy())


# ------------------------------------------------------------------------- live: where PyTorch does something else

def pair_of_attentions(T, E: int = 4, H: int = 2):
    """PyTorch's layer and ours with the same weights, biases included."""
    mine = nn.MultiHeadAttention(E, H, rng=0)
    rng = np.random.default_rng(1)
    mine.load_state_dict({key: rng.standard_normal(value.shape) for key, value in mine.state_dict().items()})
    module = T.nn.MultiheadAttention(E, H, batch_first=True, dtype=T.float64)
    module.load_state_dict({key: T.tensor(value) for key, value in mine.state_dict().items()})
    return module, mine


@pytest.mark.parametrize("padding", [False, True], ids=["attn_mask", "key_padding_mask"])
def test_a_query_that_may_see_nothing_is_nan_in_pytorch_with_weights_and_0_without_but_ours_is_0_always(T, padding):
    module, mine = pair_of_attentions(T)
    x = np.random.default_rng(2).standard_normal((2, 3, 4))
    mask = np.ones((2, 1, 3, 3), bool)
    mask[1, :, slice(None) if padding else 1] = False
    empty = ~mask[:, 0].any(-1)                                                         # (B, L)
    options = ({"key_padding_mask": T.tensor(~mask[:, 0, 0])} if padding else
               {"attn_mask": T.tensor(np.repeat(~mask[:, 0], 2, axis=0))})
    tx = T.tensor(x, requires_grad=True)

    output, weights = module(tx, tx, tx, **options, average_attn_weights=False)
    np.testing.assert_array_equal(np.isnan(output.detach().numpy()).all(-1), empty)
    np.testing.assert_array_equal(np.isnan(weights.detach().numpy()).all((1, 3)), empty)
    output.sum().backward()
    assert np.isnan(module.in_proj_weight.grad.numpy()).any()                           # one row spoils a training
    module.zero_grad()
    tx.grad = None
    without = module(tx, tx, tx, **options, need_weights=False)[0]
    without.sum().backward()
    assert np.isfinite(without.detach().numpy()).all()

    for need_weights in (True, False):
        t = Tensor(x, requires_grad=True)
        mine.zero_grad()
        found, heads = mine(t, mask=mask, need_weights=need_weights)
        found.sum().backward()
        np.testing.assert_array_equal(found.numpy()[empty], np.tile(mine.out_proj.bias.numpy(), (empty.sum(), 1)))
        np.testing.assert_allclose(found.numpy(), without.detach().numpy(), rtol=1e-10)
        np.testing.assert_allclose(t.grad, tx.grad.numpy(), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(mine.in_proj_weight.grad, module.in_proj_weight.grad.numpy(), rtol=1e-10, atol=1e-12)
        if need_weights:
            np.testing.assert_array_equal(heads.numpy().sum(-1).round(12), np.repeat(~empty[:, None], 2, axis=1))


def test_a_query_that_may_see_nothing_is_nan_in_pytorch_also_without_weights_in_evaluation_without_gradients(T) -> None:
    layer = T.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x, masked = T.ones(1, 2, 4), T.tensor([[False, False], [True, True]])
    mine = nn.MultiHeadAttention(4, 2, dtype=np.float32)
    mine.load_state_dict(layer.state_dict())
    assert layer(x, x, x, attn_mask=masked, need_weights=False)[0][0, 1].abs().max() == 0       # the bias, at its start
    with T.no_grad():
        assert layer(x, x, x, attn_mask=masked, need_weights=False)[0][0, 1].isnan().all()
    with ta.no_grad():
        assert not mine.eval()(x.numpy(), mask=~masked.numpy(), need_weights=False)[0][0, 1].numpy().any()



def test_true_means_may_attend_in_pytorchs_function_and_masked_in_its_layer_but_ours_has_one_meaning(T) -> None:
    module, mine = pair_of_attentions(T, 4, 1)
    x = np.random.default_rng(2).standard_normal((1, 3, 4))
    mask = np.array([[True, False, False], [False, True, False], [True, False, True]])
    tx = T.tensor(x)
    function = T.nn.functional.scaled_dot_product_attention(tx, tx, tx, T.tensor(mask)).numpy()
    np.testing.assert_allclose(F.scaled_dot_product_attention(x, x, x, mask), function, rtol=1e-10)
    np.testing.assert_allclose(ta.attention(x, x, x, mask)[0], function, rtol=1e-10)
    _, weights = module(tx, tx, tx, attn_mask=T.tensor(~mask))
    np.testing.assert_allclose(mine(x, mask=mask)[1].numpy()[:, 0], weights.detach().numpy(), rtol=1e-10)
    _, inverted = module(tx, tx, tx, attn_mask=T.tensor(mask))
    np.testing.assert_array_equal(inverted.detach().numpy()[0] == 0, mask)
    padding = ta.padding_mask([2], 3)
    _, weights = module(tx, tx, tx, key_padding_mask=T.tensor(~padding[:, 0, 0]))
    np.testing.assert_allclose(mine(x, mask=padding)[1].numpy()[:, 0], weights.detach().numpy(), rtol=1e-10)


def test_a_mask_of_integers_is_an_error_and_one_of_floats_0_and_1_is_added_in_both(T) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4))
    tx, mask = T.tensor(x), np.tri(3)
    theirs_ = T.nn.functional.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="dtype"):
        theirs_(tx, tx, tx, T.tensor(mask.astype(int)))
    with pytest.raises(TypeError, match="could be read two ways"):
        F.scaled_dot_product_attention(x, x, x, mask.astype(int))
    np.testing.assert_allclose(F.scaled_dot_product_attention(x, x, x, mask),
                               theirs_(tx, tx, tx, T.tensor(mask)).numpy(), rtol=1e-12)


@pytest.mark.parametrize("width", [2, 3])
def test_a_mask_together_with_is_causal_is_an_error_in_pytorch_unless_a_kernel_takes_both_and_always_in_ours(T, width):
    q, v, mask = np.eye(3, 2)[None, None], np.eye(3, width)[None, None], np.eye(3, dtype=bool)[::-1].copy()
    torchs = T.nn.functional.scaled_dot_product_attention
    tensors = [T.tensor(x) for x in (q, q, v)]
    with T.nn.attention.sdpa_kernel(T.nn.attention.SDPBackend.MATH), pytest.raises(RuntimeError, match="is_causal"):
        torchs(*tensors, T.tensor(mask), is_causal=True)
    if width == q.shape[-1]:                # the CPU's flash kernel, which needs values as wide as keys
        found = torchs(*tensors, T.tensor(mask), is_causal=True).numpy()
        np.testing.assert_array_equal(found, torchs(*tensors, T.tensor(mask & np.tri(3, dtype=bool))).numpy())
    with pytest.raises(ValueError, match="not both"):
        F.scaled_dot_product_attention(q, q, v, mask, is_causal=True)


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_a_float_mask_is_added_in_ours_and_read_as_true_or_false_by_the_fast_path_of_pytorchs_encoder(T, norm_first):
    """What is not 0 is then masked: ALiBi lets each token see itself alone. With gradients it is added."""
    module = T.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, norm_first=norm_first, dtype=T.float64).eval()
    mine = nn.TransformerEncoderLayer(4, 2, 8, norm_first=norm_first).eval()
    mine.load_state_dict(module.state_dict())
    x, bias = np.random.default_rng(0).standard_normal((2, 3, 4)), -0.5 * np.abs(np.arange(3)[:, None] - np.arange(3))
    slow = module(T.tensor(x), T.tensor(bias)).detach().numpy()
    with T.no_grad():
        fast = module(T.tensor(x), T.tensor(bias)).numpy()
    assert np.abs(fast - slow).max() > 1e-3
    np.testing.assert_allclose(fast, mine(x, bias == 0).numpy(), rtol=1e-10)
    np.testing.assert_allclose(slow, mine(x, bias).numpy(), rtol=1e-10)
    with ta.no_grad():
        np.testing.assert_allclose(mine(x, bias).numpy(), slow, rtol=1e-10)


def test_causal_with_other_lengths_is_upper_left_in_the_function_of_both_and_a_question_in_our_attention(T) -> None:
    q, kv = np.ones((1, 1, 2, 2)), np.arange(8.0).reshape(1, 1, 4, 2)
    expected = T.nn.functional.scaled_dot_product_attention(T.tensor(q), T.tensor(kv), T.tensor(kv), is_causal=True)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, kv, kv, is_causal=True), expected.numpy(), rtol=1e-12)
    np.testing.assert_allclose(expected.numpy()[0, 0, 0], kv[0, 0, 0])
    with pytest.raises(ValueError, match="leaves open which are aligned"):
        ta.attention(q, kv, kv, causal=True)
    with pytest.raises(ValueError, match="align"):
        nn.MultiHeadAttention(2, 1, rng=0)(q[0], kv[0], causal=True)


@pytest.mark.parametrize("width", [2, 3])
def test_a_masked_value_may_be_huge_in_both_and_if_it_is_nan_both_are(T, width: int) -> None:
    q, k, v = np.zeros((1, 1, 1, 2)), np.zeros((1, 1, 2, 2)), np.full((1, 1, 2, width), 5.0)
    mask = np.array([[True, False]])
    for bad, expected in ((1e30, 5.0), (np.nan, np.nan)):
        v[..., 1, :] = bad
        torchs = T.nn.functional.scaled_dot_product_attention(*map(T.tensor, (q, k, v, mask)))
        np.testing.assert_array_equal(torchs.numpy(), np.full((1, 1, 1, width), expected))
        np.testing.assert_array_equal(F.scaled_dot_product_attention(q, k, v, mask), torchs.numpy())


def test_a_masked_key_of_nan_is_nan_in_pytorch_and_in_ours_reaches_the_gradient_but_not_the_output(T) -> None:
    q, k, v = np.ones((1, 1, 1, 2)), np.zeros((1, 1, 2, 2)), np.full((1, 1, 2, 2), 5.0)
    k[..., 1, :] = np.nan
    mask = np.array([[True, False]])
    torch_query, query = T.tensor(q, requires_grad=True), Tensor(q, requires_grad=True)
    torchs = T.nn.functional.scaled_dot_product_attention(torch_query, *map(T.tensor, (k, v, mask)))
    found = F.scaled_dot_product_attention(query, k, v, mask)
    assert np.isnan(torchs.detach().numpy()).all()
    np.testing.assert_array_equal(found.numpy(), np.full((1, 1, 1, 2), 5.0))
    torchs.sum().backward()
    found.sum().backward()
    assert np.isnan(torch_query.grad.numpy()).all()
    assert np.isnan(query.grad).all()       # 0 · NaN: what is masked must be finite, in both


def test_returned_weights_are_after_dropout_in_pytorch_and_before_it_in_ours(T) -> None:
    T.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((2, 6, 8))
    _, weights = T.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True, dtype=T.float64)(*[T.tensor(x)] * 3)
    assert (np.abs(weights.detach().numpy().sum(-1) - 1) > 0.1).any()
    _, weights = nn.MultiHeadAttention(8, 2, dropout=0.5, rng=0)(x)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padded_rows_are_0_in_pytorchs_encoder_if_it_takes_the_fast_path_and_numbers_otherwise_as_in_ours(T) -> None:
    module = T.nn.TransformerEncoder(T.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dtype=T.float64), 2).eval()
    mine = nn.TransformerEncoder([nn.TransformerEncoderLayer(4, 2, 8, rng=i) for i in range(2)]).eval()
    mine.load_state_dict(module.state_dict())
    x, mask = np.random.default_rng(0).standard_normal((2, 3, 4)), ta.padding_mask([3, 1], 3)
    there, padding = mask[:, 0, 0], T.tensor(~mask[:, 0, 0])
    slow = module(T.tensor(x), src_key_padding_mask=padding).detach().numpy()
    with T.no_grad():
        fast = module(T.tensor(x), src_key_padding_mask=padding).numpy()
    np.testing.assert_array_equal(fast[~there], 0)
    assert (slow[~there] != 0).all()
    np.testing.assert_allclose(fast[there], slow[there], rtol=1e-10)
    np.testing.assert_allclose(mine(x, mask).numpy(), slow, rtol=1e-10)


def test_layers_of_a_stack_start_alike_in_pytorch_and_each_on_its_own_in_ours(T) -> None:
    module = T.nn.TransformerEncoder(T.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    assert T.equal(module.layers[0].linear1.weight, module.layers[1].linear1.weight)
    first, second = nn.TransformerEncoder([nn.TransformerEncoderLayer(4, 2, 8) for _ in range(2)]).layers
    assert not np.array_equal(first.linear1.weight.numpy(), second.linear1.weight.numpy())


def test_a_parameter_listed_twice_is_stepped_twice_in_pytorch_with_a_warning_and_once_in_ours(T) -> None:
    w = T.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = T.optim.SGD([w, w], lr=0.1)
    w.grad = T.ones(1)
    optimizer.step()
    assert w.item() == pytest.approx(0.8)
    mine = Tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([mine, mine], lr=0.1)
    mine.grad = np.ones(1)
    optimizer.step()
    assert mine.item() == pytest.approx(0.9)


def test_tied_weights_are_listed_once_by_parameters_and_twice_by_state_dict_in_both(T) -> None:
    module = T.nn.Sequential(T.nn.Linear(3, 3), T.nn.Tanh(), T.nn.Linear(3, 3))
    mine = nn.Sequential(nn.Linear(3, 3, rng=0), nn.Tanh(), nn.Linear(3, 3, rng=1))
    module[2].weight, mine[2].weight = module[0].weight, mine[0].weight
    assert list(mine.state_dict()) == list(module.state_dict())
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in module.named_parameters()]
    mine.load_state_dict({key: value.double() for key, value in module.state_dict().items()})
    module.double().load_state_dict({key: T.tensor(value) for key, value in mine.state_dict().items()}, strict=True)


def test_a_loss_with_nothing_to_count_is_nan_in_pytorch_and_0_in_ours(T) -> None:
    loss = T.nn.functional
    assert math.isnan(loss.cross_entropy(T.zeros(2, 4), T.tensor([-100, -100])))
    assert float(F.cross_entropy(np.zeros((2, 4)), [-100, -100])) == 0
    assert math.isnan(loss.cross_entropy(T.zeros(1, 2), T.tensor([0]), weight=T.tensor([0.0, 1.0])))
    assert float(F.cross_entropy(np.zeros((1, 2)), [0], weight=[0.0, 1.0])) == 0
    assert math.isnan(loss.mse_loss(T.zeros(0), T.zeros(0)))
    assert float(F.mse_loss(np.zeros(0), np.zeros(0))) == 0


def test_batchmean_of_kl_div_divides_by_the_first_axis_in_pytorch_and_by_the_rows_in_ours(T) -> None:
    rng = np.random.default_rng(0)
    for shape in ((4,), (3, 4), (2, 3, 4)):
        log_q, p = F.log_softmax(rng.standard_normal(shape)), F.softmax(rng.standard_normal(shape))
        total, rows = F.kl_div(log_q, p, reduction="sum"), math.prod(shape[:-1])
        torchs = T.nn.functional.kl_div(T.tensor(log_q), T.tensor(p), reduction="batchmean").item()
        assert torchs == pytest.approx(total / shape[0])        # of one distribution, the number of its classes
        assert F.kl_div(log_q, p) == pytest.approx(total / rows)


def test_what_neither_can_be_nor_is_believed_costs_nan_in_pytorch_and_nothing_in_ours(T) -> None:
    """p log(p / q) → 0 as p → 0, also where q = 0."""
    log_q, p, log_p = [[0.0, -math.inf]], [[1.0, 0.0]], [[0.0, -math.inf]]
    kl_div = T.nn.functional.kl_div
    assert math.isnan(kl_div(T.tensor(log_q), T.tensor(p), reduction="batchmean"))
    assert math.isnan(kl_div(T.tensor(log_q), T.tensor(log_p), reduction="batchmean", log_target=True))
    for target, log_target in ((p, False), (log_p, True)):
        t = Tensor(log_q, requires_grad=True)
        found = F.kl_div(t, np.array(target), log_target=log_target)
        found.backward()
        assert found.item() == 0
        np.testing.assert_array_equal(t.grad, [[-1.0, 0.0]])


def test_targets_that_do_not_fit_are_believed_by_pytorch_and_an_error_in_ours(T) -> None:
    loss = T.nn.functional
    assert loss.binary_cross_entropy_with_logits(T.tensor([5.0]), T.tensor([2.0])) < 0      # no loss is
    with pytest.raises(ValueError, match="is no probability"):
        F.binary_cross_entropy_with_logits(np.array([5.0]), [2.0])
    with pytest.warns(UserWarning, match="broadcasting"):
        assert loss.mse_loss(T.tensor([[1.0], [2.0]]), T.tensor([1.0, 2.0])) == 0.5
    with pytest.raises(ta.ShapeError, match="compare each with several"):
        F.mse_loss(np.array([[1.0], [2.0]]), [1.0, 2.0])


@pytest.mark.parametrize("wrong", [-1, 3])
def test_an_id_that_is_no_row_is_an_index_error_in_both(T, wrong: int) -> None:
    with pytest.raises(IndexError):
        T.nn.Embedding(3, 2)(T.tensor([wrong]))
    with pytest.raises(IndexError, match=str(wrong)):
        nn.Embedding(3, 2, rng=0)([wrong])


def test_a_norm_that_is_infinite_makes_pytorch_scale_gradients_to_nan_and_is_an_error_in_ours(T) -> None:
    w = T.zeros(2, requires_grad=True)
    w.grad = T.tensor([math.inf, 1.0])
    assert T.nn.utils.clip_grad_norm_([w], 1.0) == math.inf
    np.testing.assert_array_equal(w.grad.numpy(), [math.nan, 0.0])
    mine = Tensor(np.zeros(2), requires_grad=True)
    mine.grad = np.array([math.inf, 1.0])
    with pytest.raises(ta.AnomalyError, match="not finite"):
        optim.clip_grad_norm([mine], 1.0)
    np.testing.assert_array_equal(mine.grad, [math.inf, 1.0])


def test_after_its_last_step_pytorchs_cosine_rises_again_and_ours_stays(T) -> None:
    cosine = Rates("cosine", optim.cosine(0.1, 20, least=0.01),
                   lambda T, o: T.optim.lr_scheduler.CosineAnnealingLR(o, 20, 0.01))
    torchs, found = torch_rates(cosine, T), np.array([cosine.schedule(t) for t in range(STEPS)])
    np.testing.assert_allclose(found[:21], torchs[:21], rtol=1e-12)
    assert torchs[40] == pytest.approx(0.1)
    np.testing.assert_allclose(found[20:], 0.01, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- live: optimisers

@DTYPES
@each("o", OPTIMISERS, seeds=3)
def test_each_of_50_steps_is_pytorchs(T, o: Steps, seed: int, dtype: type) -> None:
    given = gradients(seed)
    assert_same_path(our_path(o, given, dtype), torch_path(o, given, T, dtype), dtype)


@each("rates", SCHEDULES, seeds=1)
def test_each_rate_of_50_steps_is_pytorchs(T, rates: Rates, seed: int) -> None:
    np.testing.assert_allclose([rates.schedule(t) for t in range(STEPS)], torch_rates(rates, T), rtol=1e-12, atol=1e-16)


@DTYPES
@pytest.mark.parametrize(("kind", "limit"), CLIPPING)
def test_clipped_gradients_are_pytorchs_but_for_its_1e_6(T, kind: str, limit: float, dtype: type) -> None:
    gs = [gradients(5)[key].astype(dtype) for key in ("g0", "g1")]
    found = our_clipped(kind, limit, gs)
    assert found["g0"].dtype == found["g1"].dtype == dtype
    assert_clipped_alike(kind, limit, found, torch_clipped(T, kind, limit, gs), 1e-12 if dtype == np.float64 else 1e-6)


# ------------------------------------------------------------------------------------------ live: initialisation

def xavier(rows: int, columns: int) -> tuple[str, float]:
    return "uniform", math.sqrt(6 / (rows + columns))


def fan_in(n: int) -> tuple[str, float]:
    return "uniform", 1 / math.sqrt(n)


ZEROS, ONES, NORMAL = ("constant", 0.0), ("constant", 1.0), ("normal", 1.0)
_ATTENTION = {"in_proj_weight": xavier(3 * 64, 64), "in_proj_bias": ZEROS, "out_proj.weight": fan_in(64),
              "out_proj.bias": ZEROS}
_LAYER = {"linear1.weight": fan_in(64), "linear1.bias": fan_in(64), "linear2.weight": fan_in(300),
          "linear2.bias": fan_in(300), "norm1.weight": ONES, "norm1.bias": ZEROS, "norm2.weight": ONES,
          "norm2.bias": ZEROS, **{f"self_attn.{key}": value for key, value in _ATTENTION.items()}}

STARTS = [SimpleNamespace(name=name, ours=ours, theirs=theirs, expected=expected) for name, ours, theirs, expected in (
    ("Linear", lambda: nn.Linear(20, 500, rng=0), lambda T: T.nn.Linear(20, 500),
     {"weight": fan_in(20), "bias": fan_in(20)}),
    ("Embedding", lambda: nn.Embedding(500, 10, rng=0), lambda T: T.nn.Embedding(500, 10), {"weight": NORMAL}),
    ("MultiHeadAttention", lambda: nn.MultiHeadAttention(64, 4, rng=0), lambda T: T.nn.MultiheadAttention(64, 4),
     _ATTENTION),
    ("MultiHeadAttention/kdim, vdim", lambda: nn.MultiHeadAttention(64, 4, kdim=100, vdim=20, rng=0),
     lambda T: T.nn.MultiheadAttention(64, 4, kdim=100, vdim=20),
     {"q_proj_weight": xavier(64, 64), "k_proj_weight": xavier(64, 100), "v_proj_weight": xavier(64, 20),
      "in_proj_bias": ZEROS, "out_proj.weight": fan_in(64), "out_proj.bias": ZEROS}),
    ("MultiHeadAttention/no bias", lambda: nn.MultiHeadAttention(64, 4, bias=False, rng=0),
     lambda T: T.nn.MultiheadAttention(64, 4, bias=False),
     {"in_proj_weight": xavier(3 * 64, 64), "out_proj.weight": fan_in(64)}),
    ("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(64, 4, 300, rng=0),
     lambda T: T.nn.TransformerEncoderLayer(64, 4, 300), _LAYER),
    ("TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(64, 4, 300, rng=0),
     lambda T: T.nn.TransformerDecoderLayer(64, 4, 300),
     {**_LAYER, "norm3.weight": ONES, "norm3.bias": ZEROS,
      **{f"multihead_attn.{key}": value for key, value in _ATTENTION.items()}}),
    ("LayerNorm", lambda: nn.LayerNorm(8), lambda T: T.nn.LayerNorm(8), {"weight": ONES, "bias": ZEROS}),
    ("RMSNorm", lambda: nn.RMSNorm(8), lambda T: T.nn.RMSNorm(8), {"weight": ONES}))]


@each("start", STARTS, seeds=1)
def test_parameters_start_with_pytorchs_distribution(T, start: SimpleNamespace, seed: int) -> None:
    T.manual_seed(seed)
    found, torchs = start.ours().state_dict(), start.theirs(T).state_dict()
    assert found.keys() == torchs.keys() == start.expected.keys()
    for name, (kind, size) in start.expected.items():
        both = found[name].ravel(), torchs[name].numpy().astype(np.float64).ravel()
        for w in both:
            assert_distributed(w, kind, size, name)
        assert kind == "constant" or same_distribution(*both), name


def assert_distributed(w: np.ndarray, kind: str, size: float, name: str) -> None:
    """Constant, or within bounds and up to them, or normal; mean and deviation within 5 of their standard errors."""
    if kind == "constant":
        np.testing.assert_array_equal(w, size, err_msg=name)
        return
    sigma, spread = (size / math.sqrt(3), 0.8) if kind == "uniform" else (size, 2.0)    # spread: kurtosis − 1
    assert abs(w.mean()) < 5 * sigma / math.sqrt(w.size), name
    assert abs(w.std() / sigma - 1) < 5 * math.sqrt(spread / w.size) / 2, name
    if kind == "uniform":
        assert size * (1 - 8 / w.size) < np.abs(w).max() <= size * (1 + 1e-7), name     # missed once in e⁸
    else:
        assert np.abs(w).max() > 3 * size, name                                         # it is not cut off


def same_distribution(x: np.ndarray, y: np.ndarray) -> bool:
    """Kolmogorov and Smirnov: their distribution functions are nowhere further apart than once in 1000 by chance."""
    at = np.concatenate([x, y])
    below_x, below_y = (np.searchsorted(np.sort(sample), at, "right") / sample.size for sample in (x, y))
    return np.abs(below_x - below_y).max() < 1.95 * math.sqrt(1 / x.size + 1 / y.size)


def test_the_row_of_padding_starts_at_0_in_both(T) -> None:
    for rows in (nn.Embedding(5, 3, padding_idx=2, rng=0).weight.numpy(),
                 T.nn.Embedding(5, 3, padding_idx=2).weight.detach().numpy()):
        np.testing.assert_array_equal((rows == 0).all(1), [False, False, True, False, False])
