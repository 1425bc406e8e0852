"""Optimisers: step for step what their papers say, restored to the bit, and nothing half done."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest

from tinygrad_attn import AnomalyError, GraphError, ShapeError, Tensor, grad, nn, optim, serialize
from tinygrad_attn.nn import Module, Parameter
from tinygrad_attn.optim import SGD, Adam, AdamW

OPTIMISERS = {"SGD": (SGD, {}), "momentum": (SGD, {"momentum": 0.9, "weight_decay": 0.01}),
              "Nesterov": (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
              "Adam": (Adam, {}), "Adam with decay": (Adam, {"weight_decay": 0.1, "betas": (0.8, 0.95)}),
              "AdamW": (AdamW, {}), "AdamW, eps": (AdamW, {"weight_decay": 0.1, "eps": 0.01})}
each_optimiser = pytest.mark.parametrize("name", OPTIMISERS)


class Holder(Module):
    def __init__(self, **attributes):
        vars(self).update(attributes)


def leaf(*values, dtype=None):
    return Tensor(np.array(values, dtype or float), requires_grad=True)


def with_grad(w, *g):
    w.grad = np.array(g, w.dtype).reshape(w.shape)
    return w


def moved(make, w, *gradients):
    """The values of a parameter after one step along each gradient; None is a step without one."""
    w = Tensor(w, requires_grad=True)
    optimiser = make([w])
    for g in gradients:
        w.grad = None if g is None else np.asarray(g, w.dtype)
        optimiser.step()
    return w.numpy()


# ----------------------------------------------------------------------------------------------- what a step is

@pytest.mark.parametrize(("optimiser", "g", "expected"), [
    (Adam, 0.5, 0.9000000017), (AdamW, 0.5, 0.890000002), (Adam, 0.0, 0.90000001), (AdamW, 0.0, 0.99)])
def test_OP_01_adam_takes_decay_into_its_moments_and_adamw_shrinks_the_weight_first(optimiser, g, expected):
    assert abs(moved(lambda ws: optimiser(ws, 0.1, weight_decay=0.1), 1.0, g) - expected) < 1e-10


def test_OP_01_sgd_multiplies_its_decay_by_the_rate():
    assert moved(lambda ws: SGD(ws, 0.1, weight_decay=0.1), 1.0, 0.5) == pytest.approx(1 - 0.1 * (0.5 + 0.1), abs=1e-15)


def by_hand(w, gradients, lr, kind, *, momentum=0.0, nesterov=False, weight_decay=0.0, betas=(0.9, 0.999), eps=1e-8):
    """The papers' formulas, one after the other."""
    m = v = velocity = 0.0
    for t, g in enumerate(gradients, start=1):
        if kind is AdamW:
            w = w - lr * weight_decay * w
        elif weight_decay:
            g = g + weight_decay * w
        if kind is SGD:
            velocity = momentum * velocity + g
            w = w - lr * (g + momentum * velocity if nesterov else velocity)
        else:
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g ** 2
            w = w - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return w


@each_optimiser
def test_twenty_steps_are_those_of_the_papers(name):
    kind, options = OPTIMISERS[name]
    w, gradients = np.random.default_rng(0).normal(size=(2, 3)), np.random.default_rng(1).normal(size=(20, 2, 3))
    np.testing.assert_allclose(moved(lambda ws: kind(ws, 0.05, **options), w, *gradients),
                               by_hand(w, gradients, 0.05, kind, **({"weight_decay": 0.01} if name == "AdamW" else {}),
                                       **options), rtol=1e-13)


@each_optimiser
def test_twenty_steps_are_those_of_pytorch(torch, name):
    kind, options = OPTIMISERS[name]
    w, gradients = np.random.default_rng(0).normal(size=(2, 3)), np.random.default_rng(1).normal(size=(20, 2, 3))
    theirs = torch.tensor(w, requires_grad=True)
    optimiser = getattr(torch.optim, kind.__name__)([theirs], lr=0.05, **options)
    for g in gradients:
        theirs.grad = torch.tensor(g)
        optimiser.step()
    np.testing.assert_allclose(moved(lambda ws: kind(ws, 0.05, **options), w, *gradients), theirs.detach().numpy(),
                               rtol=1e-12)


def test_the_first_velocity_is_the_gradient_and_the_first_step_of_adam_is_the_rate():
    assert moved(lambda ws: SGD(ws, 0.5, momentum=0.9), [1.0], [2.0]).tolist() == [0.0]
    for g in (1e-3, 1.0, 1e3):
        np.testing.assert_allclose(moved(lambda ws: Adam(ws, 0.25), [1.0, 1.0], [g, -g]), [0.75, 1.25], rtol=1e-5)


def test_usual_options_are_those_of_pytorch():
    w = [leaf(1.0)]
    assert repr(SGD(w, 0.1)) == "SGD(1 parameters, lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)"
    assert repr(Adam(w)) == "Adam(1 parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)"
    assert repr(AdamW(w)) == "AdamW(1 parameters, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"


@each_optimiser
def test_a_quadratic_is_minimised(name):
    kind, options = OPTIMISERS[name]
    w = leaf(5.0, -3.0)
    optimiser = kind([w], 0.05, **{**options, "weight_decay": 0.0})
    for _ in range(500):
        optimiser.zero_grad()
        ((w - [1.0, 2.0]) ** 2).sum().backward()
        optimiser.step()
    np.testing.assert_allclose(w.numpy(), [1.0, 2.0], atol=1e-2)


@each_optimiser
def test_a_step_makes_new_arrays_and_writes_into_none(name):
    kind, options = OPTIMISERS[name]
    w = leaf(1.0, 2.0)
    optimiser, held, g = kind([w], 0.1, **options), w.numpy(), np.array([1.0, -1.0])
    for _ in range(3):
        w.grad = g
        optimiser.step()
    assert (held.tolist(), g.tolist()) == ([1.0, 2.0], [1.0, -1.0])
    assert w.grad is g
    assert not w.numpy().flags.writeable
    assert w.numpy()[0] != 1.0


# -------------------------------------------------------------------------------------------- which are moved

def test_OP_03_a_parameter_that_is_listed_twice_is_moved_once():
    w = with_grad(leaf(1.0), 1.0)
    SGD([w, w], 0.1).step()
    assert w.item() == 0.9
    optimiser = Adam([w, w], 0.1)
    optimiser.step()
    assert [own["step"] for own in optimiser.state.values()] == [1]


def test_OP_03_a_tied_weight_of_a_model_is_moved_once_and_two_equal_ones_both():
    class Tied(nn.Module):
        def __init__(self):
            self.a, self.b, self.c = nn.Parameter([1.0]), nn.Parameter([1.0]), nn.Parameter([1.0])
            self.again = {"a": self.a}
    model = Tied()
    optimiser = SGD(model.parameters(), 0.1)
    for w in (model.a, model.b, model.c):
        with_grad(w, 1.0)
    optimiser.step()
    assert [w.item() for w in (model.a, model.b, model.c)] == [0.9, 0.9, 0.9]
    assert len(optimiser.param_groups[0]["params"]) == 3


def test_OP_03_a_parameter_in_two_groups_is_an_error():
    w = leaf(1.0)
    with pytest.raises(ValueError, match=r"SGD: a parameter of shape \(1,\) is in two groups"):
        SGD([{"params": [w]}, {"params": [leaf(2.0), w], "lr": 1.0}], 0.1)


@each_optimiser
def test_OP_04_a_parameter_without_gradient_is_left_alone_with_its_state_and_the_count(name):
    kind, options = OPTIMISERS[name]
    w = leaf(1.0)
    optimiser = kind([w], 0.1, **{**options, "weight_decay": 0.1})
    optimiser.step()
    assert (w.item(), optimiser.state, optimiser.steps) == (1.0, {}, 0)
    with_grad(w, 1.0)
    optimiser.step()
    after, state = w.item(), optimiser.state_dict()
    w.grad = None
    optimiser.step()
    assert (w.item(), repr(optimiser.state_dict())) == (after, repr(state))


def test_OP_04_a_gradient_of_zeros_is_one_so_that_decay_and_momentum_go_on():
    assert moved(lambda ws: SGD(ws, 0.1, weight_decay=0.1), 1.0, 0.0) == pytest.approx(0.99, abs=1e-15)
    assert moved(lambda ws: AdamW(ws, 0.1, weight_decay=0.1), 1.0, 0.0) == pytest.approx(0.99, abs=1e-15)
    assert moved(lambda ws: SGD(ws, 0.1, momentum=0.5), 1.0, 1.0, 0.0) == pytest.approx(1 - 0.1 - 0.05, abs=1e-15)
    assert moved(lambda ws: SGD(ws, 0.1, momentum=0.5), 1.0, 1.0, None) == pytest.approx(0.9, abs=1e-15)


def test_a_parameter_that_joins_later_counts_its_own_steps():
    early, late = leaf(1.0), leaf(1.0)
    optimiser = Adam([early, late], 0.25)
    for _ in range(9):
        with_grad(early, 1.0)
        optimiser.step()
    with_grad(late, 3.0)
    optimiser.step()
    assert late.item() == pytest.approx(0.75, abs=1e-7)     # its first step, freed of the start of its moments
    assert [own["step"] for own in optimiser.state.values()] == [10, 1]
    assert optimiser.steps == 10


def test_a_frozen_parameter_may_be_there_and_stays():
    frozen, w = nn.Parameter([1.0], requires_grad=False), leaf(1.0)
    optimiser = AdamW([frozen, w], 0.1)
    (w * frozen).sum().backward()
    optimiser.step()
    assert frozen.item() == 1.0
    assert w.item() < 1.0


def test_zero_grad_forgets_the_gradients_of_all_groups():
    a, b = with_grad(leaf(1.0), 1.0), with_grad(leaf(1.0), 1.0)
    SGD([{"params": a}, {"params": [b]}], 0.1).zero_grad()
    assert (a.grad, b.grad) == (None, None)


@each_optimiser
def test_a_gradient_of_another_shape_is_an_error_and_nothing_has_moved(name):
    kind, options = OPTIMISERS[name]
    fits, does_not = with_grad(leaf(1.0, 2.0), 1.0, 1.0), leaf(1.0, 2.0)
    optimiser = kind([fits, does_not], 0.1, **options)
    for wrong in (np.ones((1, 2)), np.ones(1), 1.0, np.ones(3)):
        does_not.grad = wrong
        with pytest.raises(ShapeError, match=r"a parameter of shape \(2,\) has a gradient of shape"):
            optimiser.step()
        assert (fits.numpy().tolist(), optimiser.state, optimiser.steps) == ([1.0, 2.0], {}, 0)


# ------------------------------------------------------------------------------------------------------- groups

def test_a_group_has_options_of_its_own_and_those_it_lacks_from_the_others():
    a, b = with_grad(leaf(1.0), 1.0), with_grad(leaf(1.0), 1.0)
    optimiser = SGD([{"params": [a]}, {"params": b, "lr": 0.5, "weight_decay": 1.0}], 0.25)
    optimiser.step()
    assert (a.item(), b.item()) == (0.75, 1 - 0.5 * 2)
    assert (optimiser.lr(), optimiser.lr(1)) == (0.25, 0.5)
    assert repr(optimiser) == ("SGD(1 parameters, lr=0.25, momentum=0.0, nesterov=False, weight_decay=0.0; "
                               "1 parameters, lr=0.5, momentum=0.0, nesterov=False, weight_decay=1.0)")


def test_a_group_that_was_given_is_not_changed():
    group = {"params": [leaf(1.0)], "lr": 0.5}
    SGD([group], 0.1)
    assert group.keys() == {"params", "lr"}


def test_an_option_may_be_changed_between_steps_and_is_checked_then():
    w = with_grad(leaf(1.0), 1.0)
    optimiser = SGD([w], 0.25)
    optimiser.param_groups[0]["lr"] = 0.5
    optimiser.step()
    assert w.item() == 0.5
    optimiser.param_groups[0]["lr"] = -0.5
    with pytest.raises(ValueError, match=r"SGD: lr=-0.5; it must be a number of 0 or more"):
        optimiser.step()
    assert (w.item(), optimiser.steps) == (0.5, 1)


# ---------------------------------------------------------------------------------------- what cannot be optimised

def used_up():
    parameters = nn.Linear(1, 1).parameters()
    list(parameters)
    return parameters


@pytest.mark.parametrize(("parameters", "error", "said"), [
    (list, ValueError, "SGD: there are no parameters"),
    (used_up, ValueError, r"If model.parameters\(\) was used before, it is used up: make it anew"),
    (lambda: leaf(1.0), TypeError, r"parameters must be several, as model.parameters\(\) gives; one is \[w\]"),
    (lambda: {"params": [leaf(1.0)]}, TypeError, "parameters must be several"),
    (lambda: [leaf(1.0) * 2], GraphError, r"a parameter of shape \(1,\) is what multiply computed; only leaves"),
    (lambda: [Tensor([1, 2])], TypeError, "a parameter of dtype int64 has no gradient"),
    (lambda: [1.0], TypeError, "a parameter is a float, and must be a Tensor"),
    (lambda: nn.Linear(1, 1).named_parameters(), TypeError, "a parameter is a tuple"),
    (lambda: nn.Linear(1, 1).state_dict(), TypeError, "parameters must be several"),
    (lambda: [leaf(1.0), {"params": [leaf(1.0)]}], TypeError, "Tensors, or a dict .* for each group, not both"),
    (lambda: [{"params": [leaf(1.0)], "rate": 1}], TypeError, "a group has rate; there is lr, momentum, nesterov, we"),
    (lambda: [{"params": [leaf(1.0)], "momentum": 2}], ValueError, "momentum=2"),
    (lambda: [{"params": [leaf(1.0)], "lr": -1}], ValueError, "lr=-1")])
def test_what_is_no_parameter_is_an_error_that_says_why(parameters, error, said):
    with pytest.raises(error, match=said):
        SGD(parameters(), 0.1)


def test_a_generator_of_parameters_is_listed_once():
    model = nn.Linear(2, 2, rng=0)
    optimiser = SGD(model.parameters(), 0.1)
    for _ in range(2):
        before = model.weight.numpy()
        model(np.ones((1, 2))).sum().backward()
        optimiser.step()
        assert (model.weight.numpy() != before).all()


NO_NUMBERS = (-0.1, math.nan, math.inf, -math.inf, "0.1", None, [0.1], np.array([0.1, 0.2]))


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(("make", "name"), [
    (lambda x: SGD([leaf(1.0)], x), "SGD: lr"), (lambda x: Adam([leaf(1.0)], x), "Adam: lr"),
    (lambda x: AdamW([leaf(1.0)], lr=x), "AdamW: lr"), (lambda x: SGD([leaf(1.0)], 1, weight_decay=x), "weight_decay"),
    (lambda x: SGD([leaf(1.0)], 1, momentum=x), "momentum"), (lambda x: Adam([leaf(1.0)], eps=x), "Adam: eps"),
    (lambda x: Adam([leaf(1.0)], weight_decay=x), "Adam: weight_decay"),
    (lambda x: AdamW([leaf(1.0)], weight_decay=x), "AdamW: weight_decay"),
    (lambda x: Adam([leaf(1.0)], betas=(x, 0.9)), "betas"), (lambda x: AdamW([leaf(1.0)], betas=(0.9, x)), "betas")])
def test_an_option_out_of_range_is_named(make, name, bad):
    with pytest.raises(ValueError, match=f"{name}="):
        make(bad)


@pytest.mark.parametrize("betas", [(0.9,), (0.9, 0.9, 0.9), 0.9, None, "ab", (1.0, 0.9), (0.9, 1), ()], ids=repr)
def test_betas_are_two_numbers_below_1(betas):
    with pytest.raises(ValueError, match="they are two numbers, at least 0 and below 1"):
        Adam([leaf(1.0)], betas=betas)


def test_momentum_is_below_1_and_nesterov_needs_it():
    with pytest.raises(ValueError, match="momentum=1; it must be at least 0 and below 1"):
        SGD([leaf(1.0)], 0.1, momentum=1)
    for options in ({"nesterov": True}, {"nesterov": True, "momentum": 0}):
        with pytest.raises(ValueError, match="nesterov=True looks ahead along the momentum, and there is none"):
            SGD([leaf(1.0)], 0.1, **options)
    with pytest.raises(ValueError, match="nesterov=True"):
        SGD([{"params": leaf(1.0), "momentum": 0.0}], 0.1, momentum=0.9, nesterov=True)


def test_a_rate_of_0_moves_nothing_and_a_beta_of_0_forgets():
    for kind in (SGD, Adam, AdamW):
        assert moved(lambda ws, kind=kind: kind(ws, 0), [1.0], [3.0]).tolist() == [1.0]
    np.testing.assert_allclose(moved(lambda ws: Adam(ws, 0.25, betas=(0, 0)), [1.0], [3.0], [-7.0]), [1.0], rtol=1e-7)


# ------------------------------------------------------------------------------------------------------- precision

@each_optimiser
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_numpys_float64_as_options_leave_every_dtype_as_it_is(name, dtype):
    kind, options = OPTIMISERS[name]
    numpys = {key: tuple(map(np.float64, x)) if key == "betas" else x if key == "nesterov" else np.float64(x)
              for key, x in options.items()}
    found = []
    for rate, given in ((0.1, options), (np.float64(0.1), numpys), (lambda t: np.float64(0.1), numpys)):
        w = leaf(1.0, -2.0, dtype=dtype)
        optimiser = kind([w], rate, **given)
        for g in (1.0, -0.5):
            with_grad(w, g, g)
            optimiser.step()
        assert w.dtype == dtype
        assert {x.dtype for x in optimiser.state[w].values() if isinstance(x, np.ndarray)} <= {
            np.dtype(np.float64 if dtype == np.float64 else np.float32)}
        found.append(w.numpy().tolist())
    assert found[0] == found[1] == found[2]


@each_optimiser
def test_steps_in_half_precision_are_computed_in_single_and_rounded_once(name):
    kind, options = OPTIMISERS[name]
    half, single = leaf(1.0, -0.3, dtype=np.float16), leaf(1.0, np.float16(-0.3), dtype=np.float32)
    optimisers = [kind([w], 0.01, **options) for w in (half, single)]
    for g in (1e-4, -3e-5, 2.0):                            # whose squares are nothing in half precision
        for w, optimiser in zip((half, single), optimisers):
            w.grad = np.array([g, -g], np.float16).astype(w.dtype)
            optimiser.step()
        single.data = single.numpy().astype(np.float16)     # the weights are rounded, the moments are not
        np.testing.assert_array_equal(half.numpy(), single.numpy())
    assert half.dtype == np.float16


@each_optimiser
def test_a_parameter_without_axes_is_moved_like_one_with(name):
    kind, options = OPTIMISERS[name]
    for dtype in (np.float16, np.float32, np.float64):
        none, one = Tensor(1.0, requires_grad=True, dtype=dtype), leaf(1.0, dtype=dtype)
        for w in (none, one):
            optimiser = kind([w], 0.1, **options)
            for g in (0.5, -0.25, 1.0):
                with_grad(w, g)
                optimiser.step()
        assert (none.shape, none.dtype, none.item()) == ((), dtype, one.item())


# ------------------------------------------------------------------------------------------------------- schedules

def rates(schedule, steps):
    return [schedule(t) for t in steps]


def test_a_constant_rate_rises_in_a_line():
    assert rates(optim.constant(0.5), (0, 1, 1000)) == [0.5, 0.5, 0.5]
    assert rates(optim.constant(0.5, warmup=4), (0, 1, 2, 3, 4, 99)) == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]


def test_a_cosine_falls_along_half_a_cosine_to_the_least_and_stays_there():
    rate = optim.cosine(1.0, 8, least=0.5)
    np.testing.assert_allclose(rates(rate, (0, 2, 4, 6, 8, 9, 100)), [
        1, 0.75 + 0.25 * math.sqrt(0.5), 0.75, 0.75 - 0.25 * math.sqrt(0.5), 0.5, 0.5, 0.5], rtol=1e-15)
    rate = optim.cosine(1.0, 12, warmup=4)
    np.testing.assert_allclose(rates(rate, (0, 1, 2, 3, 4, 6, 8, 12, 13)), [
        0.25, 0.5, 0.75, 1, 1, (1 + math.sqrt(0.5)) / 2, 0.5, 0, 0], atol=1e-15)


def test_steps_are_taken_down_after_each_so_many():
    assert rates(optim.step(1.0, 3, gamma=0.5), range(8)) == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    np.testing.assert_allclose(rates(optim.step(2.0, 1), (0, 1, 3)), [2, 0.2, 0.002])


def test_the_schedule_of_the_paper_rises_in_a_line_and_falls_like_one_over_the_root():
    rate = optim.inverse_sqrt(512)
    np.testing.assert_allclose(rates(rate, (0, 1999, 3999, 15999)), [       # of steps 1, 2000, 4000 and 16000
        512 ** -0.5 * 4000 ** -1.5, 512 ** -0.5 * 4000 ** -0.5 / 2, 512 ** -0.5 * 4000 ** -0.5,
        512 ** -0.5 * 4000 ** -0.5 / 2], rtol=1e-14)
    np.testing.assert_allclose(rates(optim.inverse_sqrt(4, warmup=1, factor=3.0), (0, 3)), [1.5, 0.75], rtol=1e-15)
    assert max(range(9000), key=rate) == 3999


@pytest.mark.parametrize("schedule", [
    optim.constant(1.0, warmup=10), optim.cosine(1.0, 50, warmup=10, least=0.1), optim.inverse_sqrt(16, warmup=10)])
def test_a_schedule_with_warmup_has_no_step_back_and_no_jump(schedule):
    values = rates(schedule, range(60))
    assert all(0 < a < b for a, b in pairwise(values[:10]))
    assert all(b <= a for a, b in pairwise(values[9:]))
    assert max(abs(b - a) for a, b in pairwise(values)) <= max(values) / 10 + 1e-15


@pytest.mark.parametrize(("make", "said"), [
    (lambda: optim.constant(-1), "constant: lr=-1; it must be a number of 0 or more"),
    (lambda: optim.constant(math.nan), "constant: lr=nan"), (lambda: optim.constant(len), "constant: lr="),
    (lambda: optim.constant(1, warmup=-1), "constant: warmup=-1"), (lambda: optim.cosine("1", 9), "cosine: lr='1'"),
    (lambda: optim.cosine(1, 0), "cosine: warmup=0 leaves nothing of 0 steps"),
    (lambda: optim.cosine(1, -9), "cosine: steps=-9"), (lambda: optim.cosine(1, math.inf), "cosine: steps=inf"),
    (lambda: optim.cosine(1, 9, warmup=9), "cosine: warmup=9 leaves nothing of 9 steps"),
    (lambda: optim.cosine(1, 9, warmup=-1), "cosine: warmup=-1"),
    (lambda: optim.cosine(1, 9, least=-1), "cosine: least=-1"), (lambda: optim.step(-1, 1), "step: lr=-1"),
    (lambda: optim.step(1, 0), "step: every=0; it must be 1 or more"), (lambda: optim.step(1, -1), "step: every=-1"),
    (lambda: optim.step(1, 1, gamma=-1), "step: gamma=-1"),
    (lambda: optim.inverse_sqrt(0), "inverse_sqrt: warmup=4000, d_model=0; both must be 1 or more"),
    (lambda: optim.inverse_sqrt(4, warmup=0), "inverse_sqrt: warmup=0"),
    (lambda: optim.inverse_sqrt(-4), "d_model=-4"), (lambda: optim.inverse_sqrt(4, factor=-1), "=-1")])
def test_a_schedule_out_of_range_is_named(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_an_optimiser_asks_its_schedule_with_the_number_of_steps_taken_so_far():
    w, asked = leaf(0.0), []
    optimiser = SGD([w], lambda t: asked.append(t) or 1 / 2 ** t)
    for rate in (1.0, 0.5, 0.25):
        assert optimiser.lr() == rate
        before = w.item()
        w.grad = np.ones(1)
        optimiser.step()
        assert before - w.item() == rate
        w.grad = None
        optimiser.step()                                    # without a gradient there is no step
    assert set(asked) == {0, 1, 2, 3}


def test_each_group_may_have_a_schedule_of_its_own():
    a, b = leaf(0.0), leaf(0.0)
    optimiser = SGD([{"params": [a], "lr": optim.step(1.0, 1, gamma=0.5)}, {"params": [b]}], optim.constant(0.25))
    for _ in range(3):
        with_grad(a, -1.0)
        with_grad(b, -1.0)
        optimiser.step()
    assert (a.item(), b.item()) == (1.75, 0.75)


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_schedule_that_gives_no_rate_is_an_error_at_the_step_and_nothing_has_moved(rate):
    a, b = with_grad(leaf(1.0), 1.0), with_grad(leaf(1.0), 1.0)
    optimiser = SGD([{"params": [a]}, {"params": [b], "lr": lambda t: rate}], 0.1)
    with pytest.raises(ValueError, match=f"SGD: lr={rate}"):
        optimiser.step()
    assert (a.item(), b.item(), optimiser.steps) == (1.0, 1.0, 0)


# ------------------------------------------------------------------------------------------------- its own state

def squares(ws, optimiser, steps):
    """Steps along the gradient of Σ w²."""
    for _ in range(steps):
        optimiser.zero_grad()
        sum((w * w).sum() for w in ws).backward()
        optimiser.step()
    return [w.numpy().tolist() for w in ws]


def test_OP_05_adam_goes_on_from_its_state_to_the_bit_and_without_it_elsewhere():
    straight = leaf(1.0, -2.0)
    [expected] = squares([straight], Adam([straight], 0.1), 5)
    np.testing.assert_allclose(expected, [0.5079636593, -1.5029557813], atol=1e-10)
    w = leaf(1.0, -2.0)
    old = Adam([w], 0.1)
    squares([w], old, 3)
    new, lost = Adam([w], 0.1), leaf(*w.numpy())
    new.load_state_dict(old.state_dict())
    assert squares([w], new, 2) == [expected]
    np.testing.assert_allclose(squares([lost], Adam([lost], 0.1), 2)[0], [0.5022782987, -1.5008270855], atol=1e-10)


def test_OP_05_a_state_is_a_copy_when_it_is_taken_and_when_it_is_loaded():
    w = leaf(1.0, -2.0)
    old = Adam([w], 0.1)
    squares([w], old, 3)
    state = old.state_dict()
    kept = copy.deepcopy(state)
    new = Adam([w], 0.1)
    new.load_state_dict(state)
    squares([w], old, 1)
    assert repr(new.state_dict()) == repr(state) == repr(kept)
    old.state_dict()["state"][0]["m"][:] = 99.0
    assert (next(iter(old.state.values()))["m"] < 1).all()
    state["state"][0]["m"][:] = 99.0
    state["param_groups"][0]["params"].append(7)
    state["param_groups"][0]["lr"] = 99.0
    assert repr(new.state_dict()) == repr(kept)
    assert old.steps == 4


SHAPES = ((), (3,), (2, 2), (0, 2))


@each_optimiser
@pytest.mark.parametrize("by_way_of", [None, ".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_OP_05_every_optimiser_goes_on_to_the_bit_with_schedule_and_groups_through_files_too(name, by_way_of, dtype,
                                                                                              tmp_path):
    kind, options = OPTIMISERS[name]

    def make():
        rng = np.random.default_rng(0)
        ws = [Tensor(rng.normal(size=shape).astype(dtype), requires_grad=True) for shape in SHAPES]
        groups = [{"params": ws[:1]}, {"params": ws[1:], "lr": optim.cosine(0.1, 8, warmup=2), "weight_decay": 0.5}]
        return ws, kind(groups, 0.05, **options)

    straight = squares(*make(), 7)
    ws, optimiser = make()
    squares(ws, optimiser, 3)
    state = {"weights": [w.numpy() for w in ws], "optimiser": optimiser.state_dict()}
    if by_way_of:
        serialize.save(tmp_path / f"a{by_way_of}", state)
        state = serialize.load(tmp_path / f"a{by_way_of}")
    others, other = make()
    for w, array in zip(others, state["weights"]):
        w.data = array
    other.load_state_dict(state["optimiser"])
    assert other.steps == 3
    assert squares(others, other, 4) == straight


def test_options_are_restored_with_the_state_and_a_schedule_stays():
    w, v = leaf(1.0), leaf(1.0)
    old = AdamW([{"params": w, "lr": 0.5}, {"params": v, "lr": lambda t: 0.25}], betas=[0.5, 0.75], eps=1e-3)
    new = AdamW([{"params": w}, {"params": v, "lr": lambda t: 0.125}])
    new.load_state_dict(old.state_dict())
    assert (new.lr(0), new.lr(1)) == (0.5, 0.125)
    assert [group["betas"] for group in new.param_groups] == [(0.5, 0.75)] * 2
    assert [group["eps"] for group in new.param_groups] == [1e-3] * 2


def test_a_state_that_was_never_stepped_restores_a_start():
    w = leaf(1.0)
    optimiser = Adam([w], 0.1)
    start = optimiser.state_dict()
    squares([w], optimiser, 2)
    optimiser.load_state_dict(start)
    assert (optimiser.steps, optimiser.state) == (0, {})


def test_OP_05_another_models_state_lists_all_that_does_not_fit_and_changes_nothing():
    w, v = leaf(1.0, 2.0), leaf(3.0)
    optimiser = Adam([{"params": [w]}, {"params": [v], "lr": lambda t: 0.1}], 0.1)
    squares([w, v], optimiser, 2)
    before = repr(optimiser.state_dict()), repr(optimiser)
    a, b, c = leaf(1.0), leaf(2.0, 3.0), leaf(0.0)
    other = AdamW([{"params": [a, b], "lr": lambda t: 0.1}, {"params": [c]}], 0.5)
    squares([a, b, c], other, 1)
    with pytest.raises(ValueError, match=r"Adam\.load_state_dict: nothing was loaded") as caught:
        optimiser.load_state_dict(other.state_dict())
    assert str(caught.value).splitlines()[1:] == [
        "  it is the state of AdamW", "  groups of [1, 1] parameters expected, found [2, 1]",
        "  parameter 0: expected shape (2,), found (1,)", "  parameter 1: expected shape (1,), found (2,)",
        "  group 0: a rate expected, found a schedule", "  group 1: a schedule expected, found a rate"]
    assert (repr(optimiser.state_dict()), repr(optimiser)) == before


@pytest.mark.parametrize("damage", [
    lambda s: s.pop("steps"), lambda s: s.pop("state"), lambda s: s.pop("param_groups"), lambda s: s.pop("shapes"),
    lambda s: s.pop("optimizer"), lambda s: s.update(optimizer="SGD"), lambda s: s["param_groups"].pop(),
    lambda s: s["param_groups"].append(s["param_groups"][0]), lambda s: s.update(shapes=[[3], [1]]),
    lambda s: s["state"][0].update(m=np.ones(3)), lambda s: s["state"][1].update(v=np.ones((1, 1))),
    lambda s: s["param_groups"][0].update(params=[0, 1, 2]), lambda s: s["param_groups"][0].update(lr=None)])
def test_OP_05_a_damaged_state_is_an_error_and_changes_nothing(damage):
    w, v = leaf(1.0, 2.0), leaf(3.0)
    old, new = (Adam([w, v], 0.1) for _ in range(2))
    squares([w, v], old, 1)
    state, before = old.state_dict(), repr(new.state_dict())
    new.load_state_dict(copy.deepcopy(state))
    new.load_state_dict(Adam([w, v], 0.1).state_dict())
    damage(state)
    with pytest.raises(ValueError, match=r"Adam\.load_state_dict: nothing was loaded"):
        new.load_state_dict(state)
    assert repr(new.state_dict()) == before


@pytest.mark.parametrize("wrong", [None, [], "state.npz", 3, {}, {"state": {}, "param_groups": []}, nn.Linear(1, 1)])
def test_what_is_no_state_of_an_optimiser_is_told_as_such(wrong):
    with pytest.raises(ValueError, match="it is no state of an optimiser"):
        SGD([leaf(1.0)], 0.1).load_state_dict(wrong)


# -------------------------------------------------------------------------------------------------------- clipping

def test_the_norm_of_all_gradients_together_is_limited_and_their_direction_stays():
    a, b, none = with_grad(leaf(0.0, 0.0), 3.0, 0.0), with_grad(leaf(0.0), 4.0), leaf(0.0)
    assert optim.clip_grad_norm([a, b, none], 2.5) == 5.0
    assert (a.grad.tolist(), b.grad.tolist(), none.grad) == ([1.5, 0.0], [2.0], None)
    assert optim.clip_grad_norm([a, b], 2.5) == 2.5         # at the limit nothing changes
    assert (a.grad.tolist(), b.grad.tolist()) == ([1.5, 0.0], [2.0])
    assert optim.clip_grad_norm([a, b], 0.0) == 2.5
    assert (a.grad.tolist(), b.grad.tolist()) == ([0.0, 0.0], [0.0])
    assert optim.clip_grad_norm([a, b], 0.0) == 0.0


def test_a_tied_parameter_counts_once_in_the_norm_and_a_generator_will_do():
    w = with_grad(leaf(0.0, 0.0), 3.0, 4.0)
    assert optim.clip_grad_norm((w for _ in range(3)), 10.0) == 5.0
    assert optim.clip_grad_norm(w, 1.0) == 5.0
    np.testing.assert_allclose(w.grad, [0.6, 0.8], rtol=1e-15)
    assert optim.clip_grad_norm([], 1.0) == optim.clip_grad_norm([leaf(0.0)], 1.0) == 0.0


def test_the_array_that_somebody_holds_is_not_written_to_by_clipping():
    w = with_grad(leaf(0.0, 0.0), 3.0, -4.0)
    held = w.grad
    optim.clip_grad_norm([w], 1.0)
    optim.clip_grad_value([w], 0.5)
    assert held.tolist() == [3.0, -4.0]


def test_the_norm_in_half_precision_neither_overflows_nor_loses_the_dtype():
    w = Tensor(np.zeros(4, np.float16), requires_grad=True)
    w.grad = np.full(4, 30000, np.float16)
    assert optim.clip_grad_norm([w], 4.0) == 60000.0
    assert w.grad.dtype == np.float16
    np.testing.assert_allclose(w.grad, 2.0, rtol=1e-3)
    single = with_grad(leaf(1.0, dtype=np.float32), 2.0)
    optim.clip_grad_norm([single], 1.0)
    assert single.grad.dtype == np.float32
    optim.clip_grad_value([single, w], 0.5)
    assert (single.grad.dtype, w.grad.dtype) == (np.float32, np.float16)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_norm_that_is_not_finite_is_an_error_that_names_the_parameter_and_changes_nothing(bad):
    fine, w = with_grad(leaf(0.0), 9.0), Tensor([0.0, 0.0], requires_grad=True, name="out.bias")
    with_grad(w, 1.0, bad)
    with pytest.raises(AnomalyError, match=r"one of shape \(2,\) is not finite \(out.bias\); `with detect_anomaly"):
        optim.clip_grad_norm([fine, w], 1.0)
    assert (fine.grad.tolist(), w.grad[0]) == ([9.0], 1.0)


def test_each_element_is_limited_by_itself():
    a, none = with_grad(leaf(0.0, 0.0, 0.0), -3.0, 0.25, 4.0), leaf(0.0)
    optim.clip_grad_value([a, none], 0.5)
    assert (a.grad.tolist(), none.grad) == ([-0.5, 0.25, 0.5], None)
    optim.clip_grad_value([a], 0)
    assert a.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [-1.0, math.nan, "1", None], ids=repr)
def test_a_limit_out_of_range_is_named(bad):
    w = with_grad(leaf(0.0), 2.0)
    with pytest.raises(ValueError, match=f"clip_grad_norm: max_norm={bad!r}"):
        optim.clip_grad_norm([w], bad)
    with pytest.raises(ValueError, match=f"clip_grad_value: limit={bad!r}"):
        optim.clip_grad_value([w], bad)
    assert w.grad.tolist() == [2.0]


@pytest.mark.parametrize("clip", [optim.clip_grad_norm, optim.clip_grad_value])
def test_clipping_at_a_number_of_numpys_keeps_the_dtype(clip):
    w = Tensor([3.0, 4.0], requires_grad=True, dtype=np.float32)
    w.grad = np.array([3.0, 4.0], np.float32)
    clip([w], np.float64(0.5))
    assert w.grad.dtype == np.float32


def test_clipping_in_half_precision_does_not_lose_the_gradient():
    w = Tensor(np.zeros(1 << 20, np.float16), requires_grad=True)
    w.grad = np.full(1 << 20, 60000, np.float16)            # the factor, 1.6e-6, has two digits in half precision
    optim.clip_grad_norm([w], 100.0)
    np.testing.assert_allclose(w.grad.astype(float), 100 / 1024, rtol=1e-3)


def test_a_norm_whose_squares_overflow_is_a_norm():
    w = Tensor([0.0, 0.0], requires_grad=True)
    w.grad = np.array([1e200, 1e200])
    assert optim.clip_grad_norm([w], 1.0) == pytest.approx(math.sqrt(2) * 1e200, rel=1e-14)
    np.testing.assert_allclose(w.grad, [math.sqrt(0.5)] * 2, rtol=1e-14)
    w.grad = np.array([1.7e308, 1.7e308])
    with pytest.raises(AnomalyError, match="it is too large"):
        optim.clip_grad_norm([w], 1.0)


def test_a_gradient_that_cannot_be_used_has_moved_nothing():
    a, b = (Tensor([1.0], requires_grad=True) for _ in range(2))
    a.grad = np.ones(1)
    optimiser = optim.SGD([a, b], 0.1)
    for bad in (grad((b ** 3).sum(), b, create_graph=True), np.array([1j]), np.array(["x"])):
        b.grad = bad
        with pytest.raises((TypeError, ValueError)):
            optimiser.step()
        assert (a.item(), optimiser.state, optimiser.steps) == (1.0, {}, 0)


def test_OP_05_after_astype_a_restored_training_goes_on_to_the_bit():
    def steps(w, optimiser, n):
        for _ in range(n):
            optimiser.zero_grad()
            (w * w).sum().backward()
            optimiser.step()
    module = Holder(w=Parameter([1.0, -2.0]))
    old = optim.Adam(module.parameters(), 0.1)
    steps(module.w, old, 3)
    module.astype(np.float32)
    steps(module.w, old, 1)
    other = Holder(w=Parameter(module.w.numpy()))
    new = optim.Adam(other.parameters(), 0.1)
    new.load_state_dict(old.state_dict())
    before = old.state[module.w]["m"]
    np.testing.assert_array_equal(new.state[other.w]["m"], before, strict=True)
    steps(module.w, old, 50)
    steps(other.w, new, 50)
    assert module.w.numpy().tolist() == other.w.numpy().tolist()


DAMAGE = {
    "steps is text": lambda s: s.update(steps="a"), "steps is negative": lambda s: s.update(steps=-1),
    "steps is None": lambda s: s.update(steps=None), "no moments": lambda s: s.update(state=[]),
    "no shapes": lambda s: s.update(shapes=[]), "a parameter more": lambda s: s["state"].append({}),
    "state of None": lambda s: s.update(state=[None]), "groups of None": lambda s: s.update(param_groups=None),
    "a group without params": lambda s: s["param_groups"][0].pop("params"),
    "a rate below 0": lambda s: s["param_groups"][0].update(lr=-1.0),
    "a rate that is text": lambda s: s["param_groups"][0].update(lr="a"),
    "an unknown option": lambda s: s["param_groups"][0].update(foo=1.0),
    "an option missing": lambda s: s["param_groups"][0].pop("betas"),
    "a moment missing": lambda s: s["state"][0].pop("v"), "a count missing": lambda s: s["state"][0].pop("step"),
    "a count below 0": lambda s: s["state"][0].update(step=-1), "a list": lambda s: s["state"][0].update(m=[1.0, 1.0]),
    "text": lambda s: s["state"][0].update(m="a"), "shape of None": lambda s: s.update(shapes=[None])}


@pytest.mark.parametrize("damage", DAMAGE)
def test_OP_05_a_state_damaged_within_is_an_error_and_changes_nothing(damage):
    w = Tensor([1.0, 2.0], requires_grad=True)
    w.grad = np.ones(2)
    old, new = optim.Adam([w], 0.1), optim.Adam([w], 0.1)
    old.step()
    state, before = old.state_dict(), repr(new.state_dict())
    DAMAGE[damage](state)
    with pytest.raises(ValueError, match=r"Adam\.load_state_dict: nothing was loaded"):
        new.load_state_dict(state)
    assert repr(new.state_dict()) == before


@pytest.mark.parametrize("make", [
    lambda ws: optim.SGD([{"params": []}], 0.1), lambda ws: optim.SGD([{"lr": 0.1}], 0.1),
    lambda ws: optim.SGD([{"params": ws}, {"params": iter(())}], 0.1)])
def test_a_group_without_parameters_is_an_error_as_a_list_is(make):
    with pytest.raises(ValueError, match="no parameters"):
        make([Tensor([1.0], requires_grad=True)])


@pytest.mark.parametrize("options", [{"weight_decay": lambda t: 0.1}, {"eps": lambda t: 0.1}], ids=str)
def test_an_option_that_is_a_function_is_an_error_where_only_the_rate_may_be_one(options):
    with pytest.raises(ValueError, match="it must be a number of 0 or more"):
        optim.Adam([Tensor([1.0], requires_grad=True)], 0.1, **options)


@pytest.mark.parametrize("wrong", [[np.ones(3)], [[Tensor([1.0], requires_grad=True)]], 5, None], ids=str)
def test_what_is_no_parameter_is_named(wrong):
    with pytest.raises(TypeError, match="SGD: "):
        optim.SGD(wrong, 0.1)


def test_the_rate_is_set_in_its_group():
    optimiser = SGD([leaf(1.0)], optim.cosine(0.1, 10))
    with pytest.raises(AttributeError, match="param_groups"):
        optimiser.lr = 5.0
    assert repr(optimiser) == "SGD(1 parameters, lr=cosine, momentum=0.0, nesterov=False, weight_decay=0.0)"


def test_clipping_takes_gradients_that_are_tensors():
    w = leaf(1.0, 2.0)
    w.grad = Tensor([3.0, 4.0])
    assert optim.clip_grad_norm([w], 1.0) == 5.0
    np.testing.assert_allclose(w.grad, [0.6, 0.8])
    assert optim.clip_grad_norm([w], math.inf) == pytest.approx(1.0)
