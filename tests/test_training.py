"""What the missing scale does to training: the task, the optimisers, and what is robust over seeds. Thresholds leave
room: they are far from what twenty seeds of each showed."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor, attention, saturation
from tinygrad_attn.saturation import training
from tinygrad_attn.saturation.training import CONTROLS, Map, Run, Task, train, training_map

SEEDS = (0, 1, 2)


# -------------------------------------------------------------------------------------------------- the task
@pytest.mark.parametrize("task", [Task(), Task(tokens=9, keys=4), Task(tied=True)])
def test_the_lookup_is_attention_over_the_rows_of_its_weights(task):
    rng = np.random.default_rng(0)
    weights = task.start(rng, 8)
    keys, right, values = task.draw(rng, 5)
    loss, scores, p = task.lookup(weights, 0.3, keys, right, values)
    w_q, w_k = (w.numpy() for w in weights)
    asking = (keys[np.arange(5), right] + task.tied) % task.tokens
    output, expected = attention(w_q[asking][:, None], w_k[keys], values, scale=0.3)
    np.testing.assert_allclose(p.numpy(), expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(scores.numpy(), 0.3 * (w_k[keys] @ w_q[asking][:, :, None])[..., 0], rtol=1e-12)
    error = output[:, 0] - values[np.arange(5), right]
    assert loss.item() == pytest.approx((error ** 2).mean())
    if task.tied:
        np.testing.assert_array_equal(w_q, w_k)


def test_the_other_loss_is_the_cross_entropy_of_the_weights():
    task = Task(loss="cross-entropy")
    rng = np.random.default_rng(0)
    weights = task.start(rng, 8)
    keys, right, values = task.draw(rng, 5)
    loss, scores, p = task.lookup(weights, 1.0, keys, right, values)
    assert loss.item() == pytest.approx(-np.log(p.numpy()[np.arange(5), right]).mean())
    slope = ta.grad(loss, scores).numpy() * 5
    np.testing.assert_allclose(slope, p.numpy() - np.eye(16)[right], atol=1e-12)        # p − 1 at the right key


def test_contexts_have_distinct_tokens_and_ask_for_one_of_them():
    keys, right, values = Task(tokens=10, keys=4).draw(np.random.default_rng(0), 200)
    assert all(len(set(row)) == 4 for row in keys)
    assert set(keys.ravel()) == set(range(10))
    assert set(right) == set(range(4))
    assert values.shape == (200, 4, 8)


def test_the_task_can_be_differentiated_as_gradcheck_demands():
    for task in (Task(tokens=4, keys=3, width=2), Task(tokens=4, keys=3, loss="cross-entropy")):
        keys, right, values = task.draw(np.random.default_rng(0), 3)
        w = np.random.default_rng(1).normal(size=(2, 4, 3))
        ta.gradcheck(lambda q, k, t=task, c=(keys, right, values): t.lookup([q, k], 0.5, *c)[0], tuple(w))


# ---------------------------------------------------------------------------------------------------- one run
def test_a_run_starts_from_the_same_point_whatever_the_scale_rate_and_optimiser():
    runs = [train(scale, 64, lr, 20, 5, optimizer) for scale, lr, optimizer in
            (("none", 1.0, "sgd"), ("none", 10.0, "sgd"), ("none", 0.01, "adam"))]
    assert len({(run.loss[0], run.accuracy[0], run.stuck[0]) for run in runs}) == 1
    assert runs[0] == train("none", 64, 1.0, 20, 5, "sgd")
    assert runs[0].loss[0] != train("none", 64, 1.0, 20, 6, "sgd").loss[0]
    assert runs[0].accuracy[0] == train("sqrt", 64, 1.0, 20, 5).accuracy[0]         # a scale changes no order


def test_a_run_records_what_it_says_it_does():
    run = train("sqrt", 64, 100.0, 50, 0, every=20)
    assert run.steps == (0, 20, 40, 50)
    assert len(run.loss) == len(run.accuracy) == len(run.stuck) == len(run.gradient) == 4
    assert run.steps_to_learn == next(s for s, a in zip(run.steps, run.accuracy) if a >= 0.95)
    assert train("none", 1024, 0.1, 20, 0).steps_to_learn is None


def test_a_rate_that_is_far_too_large_ends_where_it_overflowed():
    run = train("none", 64, 1e300, 100, 0)
    assert run.steps[-1] < 100
    assert not math.isfinite(run.loss[-1])
    assert run.accuracy[-1] == 0            # and NaN is no right answer
    assert json.dumps(Map((run,), Task()).to_dict(), allow_nan=False)


def test_stuck_is_wrong_and_without_a_gradient():
    task = Task(tokens=2, keys=2, test=100)
    for gap, wrong, expected in ((1000.0, True, 1.0), (1000.0, False, 0.0), (1.0, True, 0.0)):
        # Two tokens, one component: the query of token 0 is 1, of token 1 is −1, and so are the keys, or the opposite.
        w_q, w_k = Tensor([[1.0], [-1.0]], requires_grad=True), Tensor([[gap], [-gap]], requires_grad=True)
        weights = [w_q, Tensor(-w_k.numpy(), requires_grad=True)] if wrong else [w_q, w_k]
        _, accuracy, stuck, _ = training._look(task, weights, 1.0, task.draw(np.random.default_rng(0), 100))
        assert (accuracy, stuck) == (0.0 if wrong else 1.0, expected)


# -------------------------------------------------------------------------------------- what is robust over seeds
@pytest.mark.parametrize("seed", SEEDS)
def test_at_a_rate_where_the_scaled_layer_learns_the_unscaled_one_does_not_from_d_k_64_on(seed):
    for d_k in (64, 1024):
        assert train("sqrt", d_k, 10.0, 400, seed, every=400).accuracy[-1] > 0.97
        assert train("none", d_k, 10.0, 400, seed, every=400).accuracy[-1] < 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_at_d_k_4_both_learn(seed):
    assert train("none", 4, 10.0, 400, seed, every=400).accuracy[-1] > 0.97
    assert train("sqrt", 4, 10.0, 400, seed, every=400).accuracy[-1] > 0.97


@pytest.mark.parametrize("seed", SEEDS)
def test_with_cross_entropy_the_unscaled_layer_learns_too(seed):
    task = CONTROLS["cross-entropy"]
    assert train("none", 1024, 0.1, 200, seed, task=task, every=200).accuracy[-1] > 0.97


@pytest.mark.parametrize("seed", SEEDS)
def test_with_few_rivals_the_unscaled_layer_learns_but_worse(seed):
    task = CONTROLS["few rivals"]
    unscaled, scaled = (train(scale, 1024, 10.0, 400, seed, task=task, every=400) for scale in ("none", "sqrt"))
    assert unscaled.accuracy[-1] > 0.5
    assert scaled.accuracy[-1] > 0.97
    assert unscaled.loss[-1] > 10 * scaled.loss[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_tied_start_the_gradient_is_exactly_zero_and_the_root_is_not_enough(seed):
    task = CONTROLS["tied start"]
    run = train("none", 1024, 100.0, 40, seed, task=task)
    assert run.gradient[0] == 0
    assert set(run.stuck) == {1.0}
    assert len(set(run.loss)) == 1          # nothing moves
    root = train("sqrt", 1024, 100.0, 40, seed, task=task)
    assert 0 < root.gradient[0] < 1e-9
    assert root.accuracy[-1] == 0
    assert train("linear", 1024, 1000.0, 400, seed, task=task, every=400).accuracy[-1] > 0.97


def test_the_share_that_is_stuck_at_the_start_is_what_the_gap_of_normal_scores_predicts():
    """Wrong and dead: the chance of a wrong largest, times that of a gap so large that about 2 e^−gap is below 1e-6."""
    scores = np.sort(np.random.default_rng(0).normal(size=(200_000, 16)), axis=1)
    for d_k, slack in ((256, 0.08), (1024, 0.12)):
        gaps = (scores[:, -1] - scores[:, -2]) * math.sqrt(d_k)
        predicted = 15 / 16 * (gaps > math.log(2e6)).mean()
        measured = [train("none", d_k, 1.0, 1, seed).stuck[0] for seed in range(12)]
        assert np.mean(measured) == pytest.approx(predicted, abs=slack)
        assert train("sqrt", d_k, 1.0, 1, 0).stuck[0] == 0


# ------------------------------------------------------------------------------------------------------- the map
def made(scale, lr, seed, accuracy, loss=0.5, d_k=64, optimizer="sgd", stuck=(0.1, 0.2)):
    return Run(scale, d_k, lr, optimizer, seed, (0, 200), (1.0, loss), (0.0, accuracy), stuck, (1.0, 1.0))


def test_a_cell_picks_the_rate_whose_worst_seed_is_best():
    runs = [made("none", 1.0, 0, 1.0), made("none", 1.0, 1, 0.5), made("none", 10.0, 0, 0.9),
            made("none", 10.0, 1, 0.9),
            made("sqrt", 1.0, 0, 1.0, 0.2), made("sqrt", 1.0, 1, 0.96, 0.2), made("sqrt", 10.0, 0, 1.0, 0.1),
            made("sqrt", 10.0, 1, 0.96, 0.1)]
    found = Map(tuple(runs), Task())
    cell = found.cell("sgd", 64, "none")
    assert (cell.best, cell.accuracy, cell.steps, cell.rates, cell.learns) == (10.0, (0.9, 0.9), None, (), False)
    cell = found.cell("sgd", 64, "sqrt")
    assert (cell.best, cell.loss, cell.steps, cell.rates, cell.stuck) == (10.0, (0.1, 0.1), 200, (1.0, 10.0),
                                                                          (0.1, 0.2))
    with pytest.raises(KeyError, match="no runs with adam"):
        found.cell("adam", 64, "none")


def test_claims_say_what_the_map_shows_and_are_off_where_it_does_not():
    rates = (1.0, 2.0, 3.0)
    good = [made("sqrt", r, 0, 1.0, d_k=d, stuck=(0.0, 0.0)) for d in (4, 1024) for r in rates]
    bad = [made("none", r, 0, *at) for r in rates for at in ((1.0, 0.5, 4), (0.1, 0.5, 1024, "sgd", (0.5, 0.5)))]
    assert [c["ok"] for c in Map(tuple(good + bad), Task()).claims()] == [True] * 4
    other = [made("none", r, 0, *at) for r in rates for at in ((0.5, 0.5, 4), (0.99, 0.5, 1024, "sgd", (0.0, 0.0)))]
    assert [c["ok"] for c in Map(tuple(good + other), Task()).claims()] == [True, False, False, False]
    hasty = [replace(run, steps=(0, 20)) for run in (*good, *bad)]
    assert len(Map(tuple(hasty), Task()).claims()) == 3     # nothing about not learning
    assert [c["ok"] for c in Map((made("sqrt", 1.0, 0, 0.9),), Task()).claims()] == [False]


@pytest.fixture(scope="module")
def small():
    told = []
    found = training_map([4, 64], scales=["none", "sqrt"], rates={"sgd": [1.0, 10.0], "adam": [0.1]}, seeds=[0, 1],
                         steps=200, progress=lambda done, total: told.append((done, total)))
    assert told == [(k + 1, 24) for k in range(24)]
    return found


def test_a_map_has_every_combination_and_prints_as_a_table(small):
    assert len(small.runs) == 24
    assert (small.axis("d_k"), small.axis("optimizer"), small.axis("seed")) == ((4, 64), ("sgd", "adam"), (0, 1))
    assert len(small.select(scale="none", seed=0)) == 6
    lines = str(small).splitlines()
    assert len(lines) == 2 + 8
    assert lines[0] == "16 of 16 tokens in a context, squared loss, 200 steps, seeds 0, 1"
    assert small.cell("sgd", 64, "sqrt").best == 10.0
    assert "100%" in next(line for line in lines if line.split()[:2] == ["SGD", "64"] and "√" in line)
    found = json.loads(json.dumps(small.to_dict()))
    assert len(found["runs"]) == 24
    assert found["task"]["tokens"] == 16


def test_a_map_is_drawn_with_a_panel_for_each_optimiser_and_d_k(small):
    picture = small.plot()
    assert [ax.get_title() for ax in picture.axes] == ["SGD, d_k = 4", "SGD, d_k = 64", "Adam, d_k = 4",
                                                       "Adam, d_k = 64"]
    (line,) = [line for line in picture.axes[1].lines if line.get_label() == "Q Kᵀ / √d_k"]
    assert line.get_ydata()[1] == np.median(small.cell("sgd", 64, "sqrt").accuracy)
    curves = small.plot_loss(64).axes[0].lines
    assert len(curves) == 4                 # two scales, two seeds
    assert len(curves[0].get_ydata()) == 11


def test_the_controls_are_maps_by_name():
    found = saturation.controls(64, seeds=(0,), steps=20)
    assert list(found) == list(CONTROLS)
    assert all(isinstance(part, Map) for part in found.values())


@pytest.mark.parametrize(("options", "text"), [
    (dict(scale="cube"), "unknown scale 'cube'"), (dict(optimizer="lion"), "unknown optimizer 'lion'"),
                                               (dict(d_k=0), "d_k=0"),
    (dict(lr=0.0), "lr=0.0"), (dict(lr="x"), "lr='x'"), (dict(lr=math.nan), "lr=nan"), (dict(steps=0), "steps=0"),
    (dict(task=Task(keys=17)), "17 keys of 16 tokens"), (dict(task=Task(keys=1)), "task.keys=1"),
    (dict(task=Task(width=0)), "task.width=0"), (dict(steps=1.5), "steps=1.5"), (dict(seed=-1), "seed=-1"),
    (dict(task=Task(loss="hinge")), "unknown loss 'hinge'"),
])
def test_bad_requests_are_explained(options, text):
    with pytest.raises(ValueError, match=text):
        train(**options)


def test_an_empty_grid_is_refused():
    with pytest.raises(ValueError, match="nothing to train"):
        training_map([4], seeds=[])
    for options, text in ((dict(scales="cube"), "unknown scale 'cube'"),
                          (dict(rates={"SGD": [1.0]}), "unknown optimizer")):
        with pytest.raises(ValueError, match=text):
            training_map(4, **options)
