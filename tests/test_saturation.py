"""The laboratory: measurement against theory, against numbers measured elsewhere, and against a witness."""

import json
import math

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, attention, saturation
from tinygrad_attn.saturation import measure, panels, theory, words

SWEEP = saturation.sweep((1, 4, 16, 64, 256, 1024), draws=300)
LARGE = saturation.sweep((1024, 4096), scales=("none",), draws=200, seed=3)


# ---------------------------------------------------------------------------------------------------------- theory
def test_the_constants_are_those_of_closed_forms_and_of_many_normal_numbers():
    assert theory.tie_density(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-9)
    assert theory.median_gap(2) == pytest.approx(math.sqrt(2) * 0.6744897501960817, rel=1e-6)
    ordered = np.sort(np.random.default_rng(0).normal(size=(100_000, 64)), axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    assert theory.median_gap(64) == pytest.approx(np.median(gaps), rel=0.02)
    assert theory.tie_density(64) == pytest.approx((gaps < 0.02).mean() / 0.02, rel=0.08)
    assert theory.tie_density(64) == pytest.approx(2.34, abs=0.005)         # the c of the docstring
    lengths = np.linalg.norm(np.random.default_rng(1).normal(size=(100_000, 5)), axis=1)
    assert theory.mean_inverse_length(5) == pytest.approx((1 / lengths).mean(), rel=0.01)
    assert theory.mean_inverse_length(1) == math.inf


def test_the_integrals_behind_the_limits_are_what_the_docstring_says():
    gap = np.linspace(0, 60, 200_001)
    p = 1 / (1 + np.exp(-gap))
    q = np.exp(-gap) / (1 + np.exp(-gap))
    assert np.trapezoid(2 * p * q, gap) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(q, gap) == pytest.approx(math.log(2), abs=1e-6)
    assert np.trapezoid(-p * np.log(p) - q * np.log(q), gap) == pytest.approx(math.pi ** 2 / 6, abs=1e-6)


def test_the_limits_are_approached_and_the_next_term_bounds_what_is_missing():
    rng = np.random.default_rng(2)
    for n in (8, 64):
        for spread in (16.0, 64.0):
            scores = rng.normal(size=(60_000, n)) * spread
            p = np.asarray(ta.softmax(scores))
            v = rng.normal(size=p.shape)
            at_scores = np.sqrt((p ** 2 * (v - (p * v).sum(1, keepdims=True)) ** 2).sum(1)).mean()
            c = theory.tie_density(n) / spread
            for measured, limit in ((at_scores, math.sqrt(2 / math.pi) * c), (1 - p.max(1).mean(), math.log(2) * c)):
                assert abs(measured / limit - 1) < theory.next_term(spread, n) + 0.04


# ----------------------------------------------------------------------------------------- measurement and theory
def test_all_claims_hold_and_there_is_one_for_each_limit():
    claims = SWEEP.claims()
    assert [claim for claim in claims if not claim["ok"]] == []
    assert len(claims) == 11                # spread, six means, the median, one for each other scale, the witness
    assert all(claim["ok"] for claim in LARGE.claims())


def test_scores_spread_as_the_root_of_d_k_times_the_scale():
    for row in SWEEP.rows:
        expected = math.sqrt(row.d_k) * {"none": 1, "sqrt": 1 / math.sqrt(row.d_k), "linear": 1 / row.d_k}[row.scale]
        # The scores of one query have variance ‖q‖², a χ² of d_k; the mean over draws is d_k (1 ± √(2 / d_k draws)).
        assert row.spread == pytest.approx(expected, rel=4 * math.sqrt(2 / 300 / row.d_k) / 2 + 0.02)
        assert SWEEP.theory(row.d_k, row.scale)["spread"]["all"] == pytest.approx(expected)


def test_unscaled_the_norm_rises_before_it_collapses_and_scaled_it_stays():
    unscaled = [SWEEP[d, "none"].jacobian.median for d in (1, 16, 256, 1024)]
    assert unscaled[0] < unscaled[1] > unscaled[2] > 30 * unscaled[3]
    scaled = [SWEEP[d, "sqrt"].jacobian.median for d in (1, 16, 256, 1024)]
    assert max(scaled) < 1.3 * min(scaled)


def test_the_median_collapses_exponentially_and_the_mean_only_like_the_root():
    for d_k in (1024, 4096):
        row, said = LARGE[d_k, "none"], LARGE.theory(d_k, "none")
        low, high = row.jacobian.median_band
        assert low / 1.25 < said["median"]["jacobian"] < high * 1.25
        low, high = row.jacobian.mean_band
        limit = said["mean"]["jacobian"]
        assert low < limit * (1 + theory.next_term(row.spread, 64))
        assert high > limit * (1 - theory.next_term(row.spread, 64))
        assert row.near_tie_share > {1024: 0.4, 4096: 0.8}[d_k]             # from a tenth of the draws
    ratio = LARGE[4096, "none"].jacobian.median / LARGE[1024, "none"].jacobian.median
    assert ratio < 1e-3                     # exp(−0.282 (64 − 32)) is 1.2e-4
    assert LARGE[4096, "none"].jacobian.mean > 0.1 * LARGE[1024, "none"].jacobian.mean


def test_the_mean_gradient_that_reaches_the_query_does_not_vanish_though_its_median_does():
    row = LARGE[4096, "none"]
    limit = math.sqrt(2 / math.pi) * theory.tie_density(64)
    assert row.grad_query.mean_band[0] < limit < row.grad_query.mean_band[1] * 1.1
    assert row.grad_query.median < 1e-4
    assert SWEEP[1024, "sqrt"].grad_query.mean < 0.3        # smaller, and every draw has it
    assert SWEEP[1024, "sqrt"].grad_query.low > 0.05


def test_divided_by_d_k_the_weights_flatten():
    row, flat = SWEEP[1024, "linear"], theory.flat(64)
    assert row.entropy.mean == pytest.approx(flat["entropy"], rel=1e-3)
    assert row.jacobian.mean == pytest.approx(flat["jacobian"], rel=0.01)
    assert row.largest_weight.mean == pytest.approx(1 / 64, rel=0.15)


def test_the_numbers_are_near_those_measured_independently():
    # median ‖J‖ and mean largest weight of 500 draws elsewhere, by another generator
    for d_k, scale, norm, weight in ((1, "none", 0.150, 0.10), (16, "none", 0.328, 0.57), (16, "sqrt", 0.177, 0.10),
                                     (1024, "none", None, 0.95), (1024, "sqrt", 0.181, 0.11)):
        row = SWEEP[d_k, scale]
        assert norm is None or row.jacobian.median == pytest.approx(norm, rel=0.07)
        assert row.largest_weight.mean == pytest.approx(weight, abs=0.025)
    low, high = LARGE[4096, "none"].jacobian.mean_band
    assert low < 0.0368 < high              # the mean that was found elsewhere; its band is wide, as ties are rare


def test_the_numbers_of_one_draw_are_those_of_its_textbook_formulas():
    found = saturation.sweep([8], scales=["none"], n_keys=5, draws=1, seed=4)[8, "none"]
    q, k, v = measure.drawn(8, 5, 1, [4, 8, 0])
    s = k[0] @ q[0, 0]
    p = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
    jacobian = np.diag(p) - np.outer(p, p)
    at_scores = jacobian @ v[0, :, 0]
    assert found.spread == pytest.approx(s.std())
    assert found.entropy.mean == pytest.approx(-(p * np.log(p)).sum())
    assert found.largest_weight.median == pytest.approx(p.max())
    assert found.jacobian.mean == pytest.approx(np.linalg.norm(jacobian))
    assert found.grad_scores.mean == pytest.approx(np.linalg.norm(at_scores))
    assert found.grad_query.mean == pytest.approx(np.linalg.norm(at_scores @ k[0]))
    assert found.grad_key.mean == pytest.approx(np.linalg.norm(np.outer(at_scores, q[0, 0])))
    assert found.jacobian.median_band == (-math.inf, math.inf)              # one draw bounds nothing
    assert json.dumps(saturation.sweep([8], draws=1).to_dict(), allow_nan=False)


def test_the_bands_hold_what_they_promise():
    rng = np.random.default_rng(0)
    held = np.array([[s.median_band[0] < math.log(2) < s.median_band[1], s.mean_band[0] < 1 < s.mean_band[1]]
                     for s in (measure.Stat.of(rng.exponential(size=200)) for _ in range(2000))]).mean(axis=0)
    assert held[0] > 0.997                  # 99.9 % of 2000, give or take four standard errors
    assert held[1] > 0.985                  # an exponential is skewed, and the normal approximation is one


# ----------------------------------------------------------------------------------------------------- the witness
def test_the_witness_agrees_to_one_rounding_of_1_and_relatively_where_the_norm_is_above_that():
    assert SWEEP.witness < 1e-15
    for row in (*SWEEP.rows, *LARGE.rows):
        w = row.witness
        assert w.absolute < 1e-15
        assert w.relative is None or w.relative < 1e-6
        assert w.query < 1e-13
        assert w.central < 1e-9
    smallest = LARGE[4096, "none"].witness.smallest
    assert smallest[0] < 1e-20              # far below what a central difference could resolve
    assert 0.5 < smallest[1] / smallest[0] < 1              # far below 1e-16 the vjp has 0 for p (1 − p)


def test_the_complex_step_is_exact_where_the_central_difference_and_even_the_vjp_are_not():
    scores = np.array([[100.0, 0.0, -1.0]])
    e = np.exp(scores[0] - 100)
    rest = e[1:].sum()
    exact = np.array([[rest, -e[1], -e[2]], [-e[1], e[1], 0], [-e[2], 0, e[2]]])       # to first order in rest
    stepped = measure.complex_step_jacobians(scores)[0]
    np.testing.assert_allclose(stepped, exact, rtol=1e-13, atol=1e-80)
    walked = measure.softmax_jacobians(scores)[0]
    assert walked[0, 0] == 0                # p (1 − p), with p = 1
    np.testing.assert_allclose(walked[1:, 1:], exact[1:, 1:], rtol=1e-13, atol=1e-80)
    assert np.abs(measure.central_jacobians(scores)[0] - exact).max() < 1e-11


def test_a_softmax_with_a_wrong_gradient_has_a_witness_against_it(monkeypatch):
    (right,) = ta.ops.softmax.vjps
    monkeypatch.setattr(ta.ops.softmax, "vjps", [lambda *args, **params: right(*args, **params) * 0.999])
    found = saturation.sweep((4, 16), draws=20)
    assert all(row.witness.absolute > 1e-6 and row.witness.query > 1e-6 for row in found.rows)
    assert not found.claims()[-1]["ok"]


MANY = saturation.sweep((1024,), scales=("none",), draws=1500)


@pytest.mark.parametrize("wrong", ["spread", *saturation.QUANTITIES])
def test_a_measurement_that_is_off_or_nan_fulfils_no_claim(wrong):
    from dataclasses import replace
    assert all(claim["ok"] for claim in MANY.claims())
    for factor in (np.nan, 0.0, 0.5, 3.0):
        rows = []
        for row in MANY.rows:
            old = getattr(row, wrong)
            new = old * factor if wrong == "spread" else measure.Stat(
                *(x * factor for x in (old.median, old.mean, old.low, old.high)),
                *(tuple(x * factor for x in band) for band in (old.median_band, old.mean_band)))
            rows.append(replace(row, **{wrong: new}))
        assert not all(claim["ok"] for claim in replace(MANY, rows=tuple(rows)).claims()), factor


def test_the_jacobian_is_the_textbooks():
    scores = np.random.default_rng(0).normal(size=(3, 5))
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    expected = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    np.testing.assert_allclose(measure.softmax_jacobians(scores), expected, atol=1e-15)
    np.testing.assert_allclose(measure.complex_step_jacobians(scores), expected, atol=1e-15)
    np.testing.assert_allclose(measure.central_jacobians(scores), expected, atol=1e-10)
    np.testing.assert_allclose(measure.jacobian_norms(scores), np.linalg.norm(expected, axis=(1, 2)), rtol=1e-14)
    assert measure.central_jacobians(np.array([[0.0, 1.0, 5.0]])).shape == (1, 3, 3)


# -------------------------------------------------------------------------------------------------- what one gets
def test_the_same_seed_gives_the_same_rows_and_progress_is_told():
    told = []
    first = saturation.sweep((2, 4), draws=5, progress=lambda done, total: told.append((done, total)))
    assert first == saturation.sweep((2, 4), draws=5)
    assert first != saturation.sweep((2, 4), draws=5, seed=1)
    assert told == [(1, 2), (2, 2)]
    whole = saturation.sweep((64,), draws=400)[64, "none"]
    assert whole.spread == saturation.sweep((16, 64), draws=400)[64, "none"].spread     # whatever else is measured


def test_the_table_is_80_columns_wide_and_has_the_numbers_and_theory_below_them():
    lines = str(SWEEP).splitlines()
    assert max(map(len, lines)) <= 80
    (row,) = [line.split() for line in lines if line.startswith("  1024  ")][:1]
    at = SWEEP[1024, "none"]
    assert [float(cell) for cell in row[:6]] == pytest.approx(
        [1024, at.spread, at.entropy.mean, at.largest_weight.mean, at.jacobian.median, at.jacobian.mean], rel=0.05)
    below = lines[[line.startswith("  1024  ") for line in lines].index(True) + 1].split()
    assert below[:2] == ["theory", "32.00"]
    assert float(below[4]) == pytest.approx(SWEEP.theory(1024, "none")["median"]["jacobian"], rel=0.05)


def test_the_dictionary_is_json_and_complete():
    found = json.loads(json.dumps(SWEEP.to_dict()))
    assert [(row["d_k"], row["scale"]) for row in found["rows"]] == [
        (d, s) for d in (1, 4, 16, 64, 256, 1024) for s in ("none", "sqrt", "linear")]
    for name in saturation.QUANTITIES:
        assert set(found["rows"][0][name]) == {"median", "mean", "low", "high", "median_band", "mean_band"}
    assert found["rows"][-3]["jacobian"]["median"] == SWEEP[1024, "none"].jacobian.median
    assert found["witness"] == SWEEP.witness


def test_the_picture_shows_each_number_once():
    picture = SWEEP.plot()
    assert [ax.get_title() for ax in picture.axes] == [words.say(f"panel {name}") for name in panels.PANELS]
    for ax, name in zip(picture.axes, panels.PANELS):
        drawn = [tuple(line.get_ydata()) for line in ax.lines]
        for scale in SWEEP.scales:
            rows = [row for row in SWEEP.rows if row.scale == scale]
            expected = [row.spread if name == "spread" else getattr(row, name).median for row in rows]
            assert sum(len(y) == len(expected) and np.allclose(y, np.maximum(expected, 1e-17)) for y in drawn) == 1
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_an_unknown_row_says_which_there_are():
    with pytest.raises(KeyError, match=r"\(5, 'none'\): the sweep has d_k in \(1, 4, 16"):
        SWEEP[5, "none"]


@pytest.mark.parametrize(("options", "text"), [
    (dict(d_k=(0,)), "at least 1"), (dict(d_k=()), "d_k is empty"), (dict(d_k=(1.5,)), "at least 1"),
    (dict(d_k=0), "d_k=0"), (dict(d_k="16"), "d_k='16'"), (dict(d_k=math.nan), "d_k=nan"), (dict(draws=0), "draws=0"),
    (dict(draws=1.5), "draws=1.5"), (dict(seed=-1), "seed=-1"), (dict(seed=None), "seed=None"),
                                               (dict(n_keys=1), "n_keys=1"),
                                               (dict(scales=("none", "cube")), "unknown scale 'cube'"),
    (dict(scales="cube"), "unknown scale 'cube'"), (dict(scales=()), "unknown scale"),
])
def test_bad_requests_are_explained(options, text):
    with pytest.raises(ValueError, match=text):
        saturation.sweep(**options)


def test_one_number_is_one_d_k_and_one_name_one_scale():
    found = saturation.sweep(9, scales="sqrt", draws=3)
    assert (found.d_k, found.scales) == ((9,), ("sqrt",))
    assert saturation.sweep(np.int64(9), scales="sqrt", draws=3.0) == found


def test_a_scale_or_d_k_given_twice_is_measured_once():
    assert saturation.sweep([16, 16], scales=("none", "none"), draws=10) == saturation.sweep(16, scales="none",
                                                                                             draws=10)


def test_where_there_are_too_few_draws_a_claim_is_not_made_and_none_is_off():
    for draws in (1, 3, 20, 50):
        for seed in range(5):
            claims = saturation.sweep((16, 256, 4096), draws=draws, seed=seed, n_keys=16).claims()
            assert [claim["claim"] for claim in claims if not claim["ok"]] == []
            assert not any("mean norm" in claim["claim"] for claim in claims) or draws == 50


def test_the_limits_of_the_gradients_at_query_and_keys_hold_for_short_vectors_and_any_scale():
    rng = np.random.default_rng(3)
    d, n, s, draws = 4, 8, 100.0, 40_000
    q, k, v = rng.normal(size=(draws, d)), rng.normal(size=(draws, n, d)), rng.normal(size=(draws, n))
    p = np.asarray(ta.softmax(s * np.einsum("id,ind->in", q, k)))
    at_scores = p * (v - (p * v).sum(1, keepdims=True))
    limit = theory.saturated_means(d, s, n)
    at_query = np.linalg.norm(s * np.einsum("in,ind->id", at_scores, k), axis=1)
    at_key = np.linalg.norm(at_scores, axis=1) * s * np.linalg.norm(q, axis=1)
    for found, name in ((at_query, "grad_query"), (at_key, "grad_key")):
        error = found.std() / math.sqrt(draws)
        assert abs(found.mean() - limit[name]) < 4 * error + 0.02 * limit[name]
        assert found.std() == pytest.approx(theory.saturated_deviations(d, s, n)[name], rel=0.15)


def test_the_spread_of_one_draws_scores_is_known_exactly():
    for d, n, s in ((1, 4, 2.0), (7, 64, 0.5)):
        rng = np.random.default_rng(0)
        found = (s * np.einsum("id,ind->in", rng.normal(size=(20_000, d)), rng.normal(size=(20_000, n, d)))).std(axis=1)
        mean, deviation = theory.score_std_of_a_draw(d, s, n)
        assert found.mean() == pytest.approx(mean, rel=0.02)
        assert found.std() == pytest.approx(deviation, rel=0.03)


def test_attention_takes_complex_queries_as_the_witness_needs():
    q, k, v = (np.random.default_rng(0).normal(size=shape) for shape in ((1, 4), (3, 4), (3, 1)))
    u = np.random.default_rng(1).normal(size=(1, 4))
    query = Tensor(q, requires_grad=True)
    slope = (ta.grad(attention(query, k, v)[0].sum(), query).numpy() * u).sum()
    assert attention(q + 1e-30j * u, k, v)[0].imag.item() / 1e-30 == pytest.approx(slope, rel=1e-13)


def test_both_languages_say_the_same_things_with_the_same_numbers():
    import string
    places = lambda text: sorted(name for _, name, *_ in string.Formatter().parse(text) if name)
    for key, (en, pt) in words.TEXT.items():
        assert type(en) is type(pt), key
        if isinstance(en, str):
            assert places(en) == places(pt), key
        else:
            assert len(en) == len(pt), key
        assert en != pt or key in ("arrives",), key
