"""Flat optimisers: many parameters moved as one are, to the bit, where each on its own would be."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from tinygrad_attn import Tensor, buffers, flat, nn, optim
from tinygrad_attn import functional as F
from tinygrad_attn.nn import Module, Parameter
from tinygrad_attn.optim import SGD, Adam, AdamW


def one_by_one(kind):
    """The same optimiser, that moves each parameter on its own."""
    return type(kind.__name__, (kind,), {"elementwise": False})


KINDS = {
    "SGD": (SGD, {}),
    "momentum": (SGD, dict(momentum=0.9)),
    "decay": (SGD, dict(weight_decay=0.1)),
    "Nesterov": (SGD, dict(momentum=0.9, nesterov=True, weight_decay=0.01)),
    "Adam": (Adam, {}),
    "Adam, decay": (Adam, dict(betas=(0.8, 0.95), weight_decay=0.1)),
    "AdamW": (AdamW, {}),
    "AdamW, eps": (AdamW, dict(eps=0.01, weight_decay=0.2)),
}
SHAPES = [(), (1,), (7,), (3, 4), (0,), (2, 0, 3), (1, 1, 1), (33, 129), (300,), (180, 200)]


class Net(Module):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        dtypes = rng.choice(
            [["float32"], ["float64"], ["float16", "float32", "float64"], ["float32", "float64"]][seed % 4], 9
        )
        self.ps = [Parameter(rng.normal(size=SHAPES[rng.integers(len(SHAPES))]), dtype=dtype) for dtype in dtypes]
        self.ps[3] = self.ps[0]                             # tied

    def loss(self, which, factors, rng):
        return sum(((p * f).astype(np.float64) ** 2).sum() + (p.astype(np.float64) * rng.normal(size=p.shape)).sum()
                   for p, f in zip(self.ps, factors) if p in which)


def same(x, y):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert x.tobytes() == y.tobytes()


def same_states(x, y):
    assert {**x, "state": 0} == {**y, "state": 0}
    for a, b in zip(x["state"], y["state"]):
        assert a.keys() == b.keys()
        for name in a:
            same(np.asarray(a[name]), np.asarray(b[name]))


def program(seed, one):
    """A drawn training: what there is after each step."""
    rng, net = np.random.default_rng(seed), Net(seed)
    first = dict.fromkeys(net.ps)
    kinds = [KINDS[name] for name in rng.choice(list(KINDS), 2)]
    kinds = [(one_by_one(kind) if one else kind, options) for kind, options in kinds]
    params = list(first)
    groups = [{"params": params[:4], "lr": 0.05}, {"params": params[4:]}] if rng.random() < 0.5 else params
    optimizers = [
        kinds[0][0](
            groups, optim.cosine(0.1, 50, warmup=2) if rng.random() < 0.3 and groups is params else 0.1, **kinds[0][1]
        )
    ]
    if rng.random() < 0.3:
        optimizers.append(kinds[1][0](params[2:], 0.03, **kinds[1][1]))
    saved, trail = [optimizer.state_dict() for optimizer in optimizers], []
    for _ in range(14):
        owner = optimizers[rng.integers(len(optimizers))]
        (owner if rng.random() < 0.6 else net).zero_grad()
        some = params if rng.random() < 0.6 else [p for p in params if rng.random() < 0.6]
        live = [p for p in some if p.requires_grad]
        for _ in range(rng.choice([1, 1, 1, 2])):           # gradients may add up
            if live:
                net.loss(set(live), rng.normal(size=len(net.ps)), rng).backward()
        event = rng.choice(
            ["", "", "", "data", "freeze", "grad", "in place", "clip", "value", "load", "save", "lr", "swap", "none"]
        )
        p = params[rng.integers(len(params))]
        if event == "data":
            p.data = p.data * 0.5
        elif event == "freeze":
            p.requires_grad = not p.requires_grad
        elif event == "grad":
            p.grad = rng.normal(size=p.shape).astype(rng.choice([p.dtype, "float64", "float32"]))
        elif event == "in place" and p.grad is not None:
            p.grad *= 2
        elif event == "clip":
            optim.clip_grad_norm(params, 0.5)
        elif event == "value":
            optim.clip_grad_value(params, 0.3)
        elif event == "save":
            saved = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
        elif event == "load":
            for optimizer, state in zip(optimizers, saved):
                optimizer.load_state_dict(state)
        elif event == "lr" and groups is not params:
            optimizers[0].param_groups[0]["lr"] = 0.01
        elif event == "swap":
            ones = [q for q in params if q.grad is not None and q.shape == p.shape and q.dtype == p.dtype]
            for q, g in zip(ones, [q.grad for q in ones][::-1]):
                q.grad = g
        elif event == "none":
            p.grad = None
        for optimizer in optimizers if rng.random() < 0.7 else [owner]:
            optimizer.step()
        trail.append(
            (
                [p.numpy() for p in params],
                [p.grad for p in params],
                [optimizer.state_dict() for optimizer in optimizers],
                event,
            )
        )
    return trail


def compared(trail, right):
    for (weights, grads, states, _), (weights2, grads2, states2, _) in zip(trail, right):
        for x, y in itertools.chain(zip(weights, weights2), zip(grads, grads2)):
            assert (x is None) == (y is None)
            if x is not None:
                same(np.asarray(x), np.asarray(y))
        for x, y in zip(states, states2):
            same_states(x, y)


@pytest.mark.parametrize("seed", range(60))
def test_any_program_of_steps_ends_where_it_ends_one_by_one(seed):
    flats = []
    move = flat.Flat.move
    flat.Flat.move = lambda self, *args: flats.append(len(self.params)) or move(self, *args)
    try:
        trail = program(seed, one=False)
        assert flats
        flats.clear()
        right = program(seed, one=True)
        assert not flats
    finally:
        flat.Flat.move = move
    compared(trail, right)


@pytest.mark.parametrize("name", KINDS)
def test_a_hundred_steps_of_a_network_end_where_they_end_one_by_one(name):
    kind, options = KINDS[name]
    found = []
    for make in (kind, one_by_one(kind)):
        model = nn.MultiHeadAttention(8, 2, rng=0, dtype=np.float32)
        optimizer, rng = make(model.parameters(), 0.01, **options), np.random.default_rng(0)
        for _ in range(100):
            optimizer.zero_grad()
            x = rng.normal(size=(3, 5, 8)).astype(np.float32)
            (model(x, need_weights=False)[0] ** 2).sum().backward()
            optimizer.step()
        found.append(([p.numpy() for p in model.parameters()], optimizer.state_dict()))
    for x, y in zip(found[0][0], found[1][0]):
        same(x, y)
    same_states(found[0][1], found[1][1])


@pytest.mark.parametrize("dtypes", [("float64", "float32"), ("float32", "float64"), ("float16", "float32")])
@pytest.mark.parametrize("name", ["SGD", "momentum", "Adam"])
def test_a_module_that_changes_its_dtype_goes_on_as_it_does_one_by_one(name, dtypes):
    kind, options = KINDS[name]
    found = []
    for make in (kind, one_by_one(kind)):
        layer, rng = nn.Linear(3, 2, rng=0, dtype=dtypes[0]), np.random.default_rng(0)
        optimizer = make(layer.parameters(), 0.1, **options)
        for step in range(6):
            for p in layer.parameters():
                p.grad = rng.normal(size=p.shape).astype(p.dtype)
            optimizer.step()
            if step == 2:
                layer.astype(dtypes[1])
        found.append(([p.numpy() for p in layer.parameters()], optimizer.state_dict()))
    for x, y in zip(found[0][0], found[1][0]):
        same(x, y)
    same_states(found[0][1], found[1][1])


def leaf(*values, dtype=float):
    return Tensor(np.array(values, dtype), requires_grad=True)


@pytest.mark.parametrize("make", [SGD, one_by_one(SGD)])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_momentum_that_is_off_for_a_while_is_that_of_each_parameter(make, order):
    """So that of two that have taken as many steps only one has a moment."""
    ws = [leaf(1.0), leaf(1.0)]
    optimizer = make([ws[i] for i in order], 0.1, momentum=0.9)
    for momentum, gs in ((0.9, (1.0, None)), (0.0, (None, 1.0)), (0.9, (1.0, 1.0))):
        optimizer.param_groups[0]["momentum"] = momentum
        for w, g in zip(ws, gs):
            w.grad = None if g is None else np.array([g])
        optimizer.step()
    np.testing.assert_allclose([w.item() for w in ws], [0.71, 0.8], atol=1e-15)


def test_each_group_moves_at_its_own_rate_though_both_have_one_dtype():
    ws = [leaf(1.0), leaf(1.0)]
    optimizer = SGD([{"params": [ws[0]], "lr": 0.5}, {"params": [ws[1]], "lr": 0.25}], 0.1)
    for w in ws:
        w.grad = np.ones(1)
    optimizer.step()
    assert [w.item() for w in ws] == [0.5, 0.75]


def test_a_step_in_which_nothing_moves_is_not_counted():
    w = leaf(1.0)
    optimizer = SGD([w], 0.1)
    optimizer.step()
    assert optimizer.steps == 0
    w.grad = np.ones(1)
    optimizer.step()
    assert optimizer.steps == 1


def test_a_parameter_that_is_one_number_stays_what_one_number_is():
    w = Tensor(1.0, requires_grad=True)
    before, optimizer = type(w.data), SGD([w], 0.5)
    w.grad = np.array(1.0)
    optimizer.step()
    assert (type(w.data), w.item()) == (before, 0.5)


# ------------------------------------------------------------------------------------------- optimisers of a user

def ended(kind, **options):
    """Where two parameters are after three steps."""
    rng = np.random.default_rng(0)
    ws = [Tensor(rng.normal(size=shape), requires_grad=True) for shape in ((3,), (2, 2))]
    optimizer = kind(ws, 0.1, **options)
    for factor in (10.0, 0.1, 1.0):
        for w in ws:
            w.grad = factor * rng.normal(size=w.shape)
        optimizer.step()
    return [w.numpy() for w in ws], optimizer.state_dict()


class Signs(optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)

    def keeps(self, options):
        return ("longest",)

    def moved(self, w, g, state, *, lr):
        state["longest"] = np.maximum(state.get("longest", 0.0), np.broadcast_to(np.linalg.norm(g), w.shape))
        assert w.ndim in (1, 2)
        return w - lr * g / state["longest"]


def test_an_optimiser_of_a_user_gets_each_parameter_by_itself_in_its_own_shape():
    (weights, state), moved = ended(Signs), []
    rng = np.random.default_rng(0)
    ws = [rng.normal(size=shape) for shape in ((3,), (2, 2))]
    longest = [0.0, 0.0]
    for factor in (10.0, 0.1, 1.0):
        for i in range(2):
            g = factor * rng.normal(size=ws[i].shape)
            longest[i] = max(longest[i], np.linalg.norm(g))
            ws[i] = ws[i] - 0.1 * g / longest[i]
    for x, y in zip(weights, ws):
        np.testing.assert_allclose(x, y, rtol=1e-15)
    assert [own["step"] for own in state["state"]] == [3, 3]
    assert not moved


class Lamb(Adam):
    """Adam, whose steps are as long as the parameter is: a formula of the whole parameter."""

    def moved(self, w, g, state, **options):
        step = super().moved(w, g, state, **options) - w
        return w + 0.1 * step * np.linalg.norm(w) / np.linalg.norm(step)


class Amsgrad(Adam):
    """With a moment of its own."""

    def moved(self, w, g, state, *, lr, betas, eps, weight_decay):
        super().moved(w, g, state, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        state["top"] = np.maximum(state.get("top", 0.0), state["v"])
        return w - lr * state["m"] / (np.sqrt(state["top"]) + eps)


class Centred(SGD):
    """In the shape of the parameter."""

    def moved(self, w, g, state, **options):
        return super().moved(w, g - g.mean(axis=-1, keepdims=True), state, **options)


@pytest.mark.parametrize("kind", [Lamb, Amsgrad, Centred])
def test_a_subclass_of_ours_with_a_formula_of_its_own_gets_each_parameter_by_itself(kind):
    (found, state), (expected, right) = ended(kind), ended(one_by_one(kind))
    for x, y in zip(found, expected):
        same(x, y)
    same_states(state, right)


# ------------------------------------------------------------------------------------------------- what is shared

def stepped(optimizer, ws, seed=0):
    rng = np.random.default_rng(seed)
    for w in ws:
        w.grad = rng.normal(size=w.shape)
    optimizer.step()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
@pytest.mark.parametrize("cleared", [False, True])
def test_a_copy_of_an_optimiser_and_its_parameters_goes_on_by_itself(again, cleared):
    ws = [leaf(1.0, 2.0), leaf(3.0)]
    optimizer = Adam(ws, 0.1)
    stepped(optimizer, ws)
    ws2, optimizer2 = again((ws, optimizer))
    before = [w.numpy().copy() for w in ws]
    for seed in (1, 2):
        if cleared:
            optimizer2.zero_grad()
        stepped(optimizer2, ws2, seed)
    for w, then in zip(ws, before):
        np.testing.assert_array_equal(w.numpy(), then)
    for seed in (1, 2):
        stepped(optimizer, ws, seed)
    for w, w2 in zip(ws, ws2):
        same(w.numpy(), w2.numpy())
    same_states(optimizer.state_dict(), optimizer2.state_dict())


def test_a_saved_state_and_old_data_stay_what_they_were():
    ws = [Tensor(np.ones((50, 200)), requires_grad=True), leaf(3.0)]
    optimizer = Adam(ws, 0.1)
    stepped(optimizer, ws)
    state, data = optimizer.state_dict(), [w.data for w in ws]
    then = copy.deepcopy((state, data))
    for seed in range(5):
        stepped(optimizer, ws, seed)
    same_states(state, then[0])
    for x, y in zip(data, then[1]):
        same(x, y)


def test_moments_can_be_read_and_set_by_hand():
    def run(kind):
        ws = [leaf(1.0, 2.0), leaf(3.0)]
        optimizer = kind(ws, 0.1)
        for seed in range(6):
            stepped(optimizer, ws, seed)
            if seed == 1:
                optimizer.state[ws[0]]["m"] = np.array([5.0, -5.0])
            if seed == 3:
                optimizer.state[ws[1]]["v"] *= 100
            if seed == 4:
                del optimizer.state[ws[1]]
        return [w.numpy() for w in ws], optimizer.state_dict()
    (found, state), (expected, right) = run(Adam), run(one_by_one(Adam))
    for x, y in zip(found, expected):
        same(x, y)
    same_states(state, right)


def test_a_step_whose_formula_fails_leaves_the_moments_as_they_were():
    ws = [Tensor(np.ones(200_000), requires_grad=True)]
    optimizer = Adam(ws, 0.1)
    stepped(optimizer, ws)
    then = copy.deepcopy(optimizer.state_dict())
    ws[0].grad = np.ones(200_000)
    ws[0].grad[-1] = 1e200
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        optimizer.step()
    same_states(optimizer.state_dict(), then)


def test_data_of_a_parameter_cannot_be_written_to_and_is_aligned_with_nobody_elses():
    ws = [Tensor(np.ones((100, 100)), requires_grad=True), leaf(1.0)]
    optimizer = SGD(ws, 0.1, momentum=0.9)
    for seed in range(3):
        stepped(optimizer, ws, seed)
        for w in ws:
            with pytest.raises(ValueError, match="read-only"):
                w.data[...] = 0
            assert not np.shares_memory(w.data, w.grad)
            assert not any(np.shares_memory(w.data, other.data) for other in ws if other is not w)
            assert not np.shares_memory(w.data, optimizer.state[w]["m"])


def test_gradients_lie_side_by_side_after_zero_grad_and_no_number_differs():
    def run(clear, most):
        buffers.limit(most)
        layer = nn.MultiHeadAttention(32, 4, rng=0)
        optimizer, x = Adam(layer.parameters(), 0.01), np.random.default_rng(0).normal(size=(2, 5, 32))
        for _ in range(4):
            clear(optimizer, layer)
            (layer(x, need_weights=False)[0] ** 2).mean().backward()
            optimizer.step()
        return [p.numpy() for p in layer.parameters()], [p.grad.base for p in layer.parameters()]
    together, bases = run(lambda optimizer, layer: optimizer.zero_grad(), 2 ** 29)
    assert bases[0] is not None
    assert all(base is bases[0] for base in bases)
    for clear, most in (
        (lambda optimizer, layer: layer.zero_grad(), 2**29),
        (lambda optimizer, layer: optimizer.zero_grad(), 0),
    ):
        for x, y in zip(together, run(clear, most)[0]):
            same(x, y)
    buffers.limit(2 ** 29)


def test_room_for_a_gradient_is_used_once_and_only_in_its_dtype():
    w = leaf(1.0, 2.0)
    optimizer = SGD([w], 0.1)
    stepped(optimizer, [w])
    optimizer.zero_grad()
    (w * 3.0).sum().backward()
    first = w.grad
    w.grad = None
    (w * 5.0).sum().backward()
    np.testing.assert_array_equal(first, [3.0, 3.0])
    np.testing.assert_array_equal(w.grad, [5.0, 5.0])
    optimizer.zero_grad()
    module = Net(1)
    module.ps = [Parameter([1.0, 2.0])]
    optimizer = SGD(module.parameters(), 0.1)
    stepped(optimizer, module.ps)
    optimizer.zero_grad()
    module.astype(np.float32)
    F.gelu(module.ps[0]).sum().backward()
    assert module.ps[0].grad.dtype == np.float32
