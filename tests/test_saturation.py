"""The saturation table: against theory, and against numbers measured independently in plain NumPy."""

import math

import numpy as np
import pytest

from tinygrad_attn import saturation

ROWS = {(row.d_k, row.scale): row for row in saturation.sweep((1, 16, 256, 1024), draws=300)}


def test_scores_spread_as_the_root_of_d_k_and_scaled_ones_do_not():
    for (d_k, scale), row in ROWS.items():
        # The scores of one query have variance ‖q‖², a χ² of d_k; the mean over draws is d_k (1 ± √(2 / d_k draws)).
        expected = math.sqrt(d_k) if scale == "none" else 1.0
        assert row.score_std == pytest.approx(expected, rel=4 * math.sqrt(2 / 300 / d_k) / 2 + 0.02)


def test_the_norm_rises_before_it_collapses_and_scaled_it_stays():
    unscaled = [ROWS[d, "none"].jacobian_median for d in (1, 16, 256, 1024)]
    assert unscaled[0] < unscaled[1] > unscaled[2] > 30 * unscaled[3]
    scaled = [ROWS[d, "sqrt"].jacobian_median for d in (1, 16, 256, 1024)]
    assert max(scaled) < 1.3 * min(scaled)


def test_the_mean_does_not_collapse_as_the_median_does():
    row = ROWS[1024, "none"]
    assert row.jacobian_mean == pytest.approx(0.0684, rel=0.3)      # 2.3 / √1024 and a little; 300 draws
    assert row.jacobian_median < row.jacobian_mean / 100


def test_the_numbers_are_near_those_measured_independently():
    # median ‖J‖ and mean largest weight of 500 draws elsewhere, by another generator
    for d_k, scale, norm, weight in ((1, "none", 0.150, 0.10), (16, "none", 0.328, 0.57), (16, "sqrt", 0.177, 0.10),
                                     (1024, "none", None, 0.95), (1024, "sqrt", 0.181, 0.11)):
        row = ROWS[d_k, scale]
        assert norm is None or row.jacobian_median == pytest.approx(norm, rel=0.06)
        assert row.largest_weight == pytest.approx(weight, abs=0.02)


def test_finite_differences_bear_witness():
    for row in ROWS.values():
        assert row.witness < 1e-9
    assert max(row.witness_scale for row in ROWS.values()) > 0.1    # there was something to agree on


def test_the_jacobian_is_the_textbooks():
    scores = np.random.default_rng(0).normal(size=(3, 5))
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    np.testing.assert_allclose(saturation.softmax_jacobians(scores), expected, atol=1e-15)
    np.testing.assert_allclose(saturation.finite_difference_jacobians(scores), expected, atol=1e-10)
    skewed = np.array([[0.0, 1.0, 5.0]])
    assert saturation.finite_difference_jacobians(skewed).shape == (1, 3, 3)


def test_the_same_seed_gives_the_same_rows_and_progress_is_told():
    told = []
    first = saturation.sweep((2, 4), draws=5, progress=lambda done, total: told.append((done, total)))
    assert first == saturation.sweep((2, 4), draws=5)
    assert first != saturation.sweep((2, 4), draws=5, seed=1)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(("options", "text"), [
    (dict(d_k=(0,)), "at least 1"), (dict(d_k=()), "at least 1"), (dict(d_k=(1.5,)), "at least 1"),
         (dict(draws=0), "draws=0"),
    (dict(n_keys=1), "two keys"), (dict(scales=("none", "cube")), "unknown scale 'cube'"),
         (dict(witnesses=0), "witness"),
])
def test_bad_requests_are_explained(options, text):
    with pytest.raises(ValueError, match=text):
        saturation.sweep(**options)
