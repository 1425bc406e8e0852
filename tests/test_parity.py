"""Does PyTorch agree? Outputs, gradients, and derivatives of gradients, over the table in `fixtures/torch_cases.py`.

The recorded half compares with `fixtures/torch_parity.npz` and needs no torch. The live half, where torch is
installed, draws other shapes, and does it in float32 too; with PARITY_TESTS=required in the environment it must be
there. Modules and optimisers are in `test_parity_modules.py`.
"""

from __future__ import annotations

import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn import Tensor, engine, ops

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
from make_torch_fixtures import recorded
from torch_cases import CASES, Case, draw, ours, sizes, the_torch, theirs

RECORDED = recorded()
NO_COUNTERPART: dict[str, str] = {}         # primitive -> why PyTorch has nothing to compare it with

each_case = pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
draws = [pytest.param(c, seed, id=f"{c.name}-{seed}")
         for c in CASES for seed in range(4 if any(isinstance(x, str) for x in c.inputs) else 1)]
absent = pytest.param(None, 0, id="all")    # where there is no torch, one test skips, or fails, for all
each_draw = pytest.mark.parametrize(("c", "seed"), draws if find_spec("torch") else [absent])


def assert_agree(found: dict, expected: dict) -> None:
    """In float64, to 1e-12, whatever the op; in shape and dtype too."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key, strict=True)


# ------------------------------------------------------------------------------------------------------- recorded

@each_case
def test_we_agree_with_what_pytorch_recorded(c: Case) -> None:
    record = RECORDED[c.name]
    inputs = [record[f"x{i}"] for i in range(len(c.inputs))]
    expected = {key: value for key, value in record.items() if not key.startswith("x")}
    assert_agree(ours(c, inputs), expected)


def test_the_record_is_of_this_table_and_holds_no_nan() -> None:
    assert list(RECORDED) == [c.name for c in CASES], "run make_torch_fixtures.py; or two cases have one name"
    infinite = {name for name, record in RECORDED.items() for value in record.values() if np.isinf(value).any()}
    assert infinite == {"softmax/large", "log_softmax/infinite", "logsumexp/large", "logsumexp/infinite"}
    assert not any(np.isnan(value).any() for record in RECORDED.values() for value in record.values())


def test_every_primitive_is_compared_with_pytorch() -> None:
    compared = set()
    for c in (c for c in CASES if c.order > 0):
        out = c.ours(*(Tensor(RECORDED[c.name][f"x{i}"], requires_grad=True) for i in range(len(c.inputs))))
        compared |= {c.op} & {node.op.name for node in engine.topological_order(out)}
    primitives = {op.name for op in vars(ops).values() if isinstance(op, engine.Primitive)}
    assert primitives - compared == set(NO_COUNTERPART), "add a case to torch_cases.py, or a reason to NO_COUNTERPART"


# ----------------------------------------------------------------------------------------------------------- live

@pytest.fixture(scope="module")
def T():
    return the_torch()


def drawn(c: Case, seed: int, dtype: type) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, zlib.crc32(c.name.encode())])
    return draw(c, sizes(rng), rng, dtype)


@each_draw
def test_we_agree_with_pytorch_on_other_shapes(T, c: Case, seed: int) -> None:
    inputs = drawn(c, seed, np.float64)
    assert_agree(ours(c, inputs), theirs(c, inputs, T))


@each_draw
def test_float32_stays_float32_and_is_as_accurate_as_pytorch(T, c: Case, seed: int) -> None:
    """PyTorch's float64 is the truth. We may miss it by 1e-5 relative, 1e-6 absolute, and, where float32 has not
    the digits (a row of layer_norm with hardly any variance), by 4 times what PyTorch's float32 misses it by."""
    inputs = drawn(c, seed, np.float32)
    found, rounded = ours(c, inputs), theirs(c, inputs, T)
    for key, truth in theirs(c, [x.astype(np.float64) for x in inputs], T).items():
        missed = np.subtract(rounded[key], truth, where=np.isfinite(truth), out=np.zeros_like(truth))
        atol = 1e-6 + 4 * np.abs(missed).max(initial=0)
        np.testing.assert_allclose(found[key], truth, rtol=1e-5, atol=atol, err_msg=key)
        assert found[key].dtype == rounded[key].dtype == np.float32, key
        assert found[key].shape == truth.shape, key
