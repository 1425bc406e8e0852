"""Wrong rules, planted in every primitive: gradcheck must catch each, and name the very op and argument.

A mutant is one rule (op, argument) made wrong in one way, where that makes a difference. The number planted and killed
is printed at the end of a run of the tests.
"""

import numpy as np
import pytest
from test_ops import CASES, PRIMITIVES, SQUARE

import tinygrad_attn as ta
from tinygrad_attn import GradcheckError, gradcheck, ops
from tinygrad_attn.engine import no_derivative, unbroadcast

RNG = np.random.default_rng(5)
S, T, P = SQUARE, RNG.normal(size=(3, 3)), RNG.uniform(0.5, 2.0, size=(3, 3))
M = RNG.random((3, 3)) > 0.5

# Each primitive once more, with gradients whose last two axes are equally long, so that one can be transposed.
SQUARES = [
    (ops.add, lambda x, y: x + y, (S, T)), (ops.subtract, lambda x, y: x - y, (S, T)),
    (ops.multiply, lambda x, y: x * y, (S, T)), (ops.divide, lambda x, y: x / y, (S, P)),
    (ops.negative, lambda x: -x, (S,)), (ops.power, lambda x, y: x ** y, (P, T)),
    (ops.matmul, lambda x, y: x @ y, (S, T)), (ops.exp, ops.exp, (S,)), (ops.log, ops.log, (P,)),
    (ops.sqrt, ops.sqrt, (P,)), (ops.tanh, ops.tanh, (S,)), (ops.sigmoid, ops.sigmoid, (S,)), (ops.erf, ops.erf, (S,)),
    (ops.softplus, ops.softplus, (S,)),
    (ops.relu, ops.relu, (S,)), (ops.abs, ops.abs, (S,)), (ops.clip, lambda x: x.clip(-0.5, 0.5), (S,)),
    (ops.astype, lambda x: x.astype(np.float64), (S,)), (ops.where, lambda x, y: ops.where(M, x, y), (S, T)),
    (ops.maximum, ops.maximum, (S, T)), (ops.minimum, ops.minimum, (S, T)), (ops.tril, lambda x: ops.tril(x), (S,)),
    (ops.triu, lambda x: ops.triu(x), (S,)), (ops.sum, lambda x: x.sum(axis=0), (S,)),
    (ops.mean, lambda x: x.mean(axis=0), (S,)), (ops.var, lambda x: x.var(axis=0), (S,)),
    (ops.max, lambda x: x.max(axis=0), (S,)), (ops.min, lambda x: x.min(axis=0), (S,)),
    (ops.cumsum, lambda x: x.cumsum(axis=0), (S,)), (ops.softmax, ops.softmax, (S,)),
    (ops.logsumexp, ops.logsumexp, (S,)), (ops.log_softmax, ops.log_softmax, (S,)),
    (ops.reshape, lambda x: x.reshape(-1), (S,)), (ops.squeeze, lambda x: x.squeeze(), (S[None],)),
    (ops.expand_dims, lambda x: x.expand_dims(0), (S,)), (ops.transpose, lambda x: x.T, (S,)),
    (ops.swapaxes, lambda x: x.swapaxes(0, 1), (S,)), (ops.broadcast_to, lambda x: x.broadcast_to((2, 3, 3)), (S,)),
    (ops._concatenate, lambda x, y: ta.concatenate([x, y]), (S, T)), (ops.getitem, lambda x: x[[2, 0, 1]], (S,)),
    (ops.scatter, lambda x: ops.scatter(x, index=(np.array([0, 2, 1]),), shape=(3, 3)), (S,)),
    (ops._einsum, lambda x, y: ta.einsum("ij,jk->ik", x, y), (S, T)),
]

# Ops whose own rule contains a sum, without it. (Where broadcasting makes the sum, see `missing_sum`.)
WITHOUT_THEIR_SUM = {
    ops.softmax: lambda g, out, x, **params: out * g,
    ops.log_softmax: lambda g, out, x, **params: g - np.exp(out) * g,
    ops.cumsum: lambda g, out, x, **params: g,
    ops.var: lambda g, out, x, *, axis=None, keepdims=False, ddof=0: (
        ops._keep(g, x, axis) * (2 / (x.size / out.size - ddof)) * x),
    ops.getitem: lambda g, out, x, *, index: _last_wins(g, x, index),
}


def _last_wins(g, x, index):
    out = np.zeros(x.shape)
    out[index] = g
    return out


def scaled(g, x):
    return g * 1.01


def flipped(g, x):
    return -g


def one_element_lost(g, x):
    kept = np.ones(g.shape)
    kept[np.unravel_index(np.argmax(np.abs(g)), g.shape)] = 0
    return g * kept


def transposed(g, x):
    return g.swapaxes(-1, -2) if g.ndim > 1 and g.shape[-1] == g.shape[-2] else g


def missing_sum(g, x):
    """Where an input was broadcast, the gradient of one of its uses instead of their sum."""
    padded = (1,) * (g.ndim - np.ndim(x)) + np.shape(x)
    return g[tuple(slice(0, 1) if n == 1 else slice(None) for n in padded)].reshape(np.shape(x))


class Planted:
    """An op with a wrong rule for argument i, and whether that has made a difference so far."""

    def __init__(self, op, i, mutate, monkeypatch):
        self.op, self.i, self.mutate, self.differs = op, i, mutate, False
        self.vjps, self.joint = op.vjps, op.joint
        monkeypatch.setattr(op, "vjps", [*op.vjps[:i], self.wrong, *op.vjps[i + 1:]])
        monkeypatch.setattr(op, "joint", self.wrong_joint if op.joint else None)

    def changed(self, right, wrong, x):
        right, wrong = (np.asarray(share, float) for share in (right, wrong))
        worth = np.abs(unbroadcast(right, np.asarray(x), self.op, self.i)
                       - unbroadcast(wrong, np.asarray(x), self.op, self.i)).max()
        self.differs |= bool(worth > 3e-3 * max(0.1, np.abs(right).max()))
        return wrong

    def wrong(self, g, out, *args, **params):
        right = self.vjps[self.i](g, out, *args, **params)
        x = args[self.i]
        rule = WITHOUT_THEIR_SUM.get(self.op) if self.mutate is missing_sum else None
        return self.changed(right, rule(g, out, *args, **params) if rule else self.mutate(right, x), x)

    def wrong_joint(self, wanted, g, out, *args, **params):
        shares = self.joint(wanted, g, out, *args, **params)
        if self.i in shares:
            share, x = shares[self.i], args[self.i]
            shares[self.i] = self.changed(share, self.mutate(share, x), x)
        return shares


def arguments(op):
    return [0, 1] if op.joint else [i for i, vjp in enumerate(op.vjps) if vjp is not no_derivative]


EVERY = [(op, i, mutate) for op in sorted(PRIMITIVES, key=lambda op: op.name) for i in arguments(op)
         for mutate in (scaled, flipped, one_element_lost, transposed, missing_sum)]
# Where there is no sum to miss: what these ops send back to an input, they send once.
NO_SUM = {op for op in PRIMITIVES if op not in WITHOUT_THEIR_SUM} - {
    ops.add, ops.subtract, ops.multiply, ops.divide, ops.power, ops.matmul, ops.where, ops.maximum, ops.minimum,
    ops.broadcast_to, ops._einsum}
MUTANTS = [(op, i, mutate) for op, i, mutate in EVERY if mutate is not missing_sum or op not in NO_SUM]
ROW = S.mean(axis=0) + 0.03                 # in each column larger than some of S and smaller than others
BROADCAST = [
    *((op, op, inputs) for op in (ops.add, ops.subtract, ops.multiply, ops.maximum, ops.minimum)
      for inputs in ((S[::-1], ROW), (ROW, S[::-1]))),
    (ops._einsum, lambda x, y: ta.einsum("...i,...i->...", x, y), (ROW[None], S)),
    (ops.divide, lambda x, y: x / y, (S[:1], P)), (ops.divide, lambda x, y: x / y, (S, P[:1])),
    (ops.power, lambda x, y: x ** y, (P[:1], T)), (ops.power, lambda x, y: x ** y, (P, T[:1])),
    (ops.where, lambda x, y: ops.where(M, x, y), (S[:1], T)), (ops.where, lambda x, y: ops.where(M, x, y), (S, T[:1])),
    (ops.matmul, lambda x, y: x @ y, (RNG.normal(size=(2, 2, 3)), S)),
    (ops.matmul, lambda x, y: x @ y, (S, RNG.normal(size=(2, 3, 2)))),
]


def embedded(call):
    """The call in the middle of a graph, so that naming the op takes some finding."""
    return lambda *xs: call(*(x.reshape(x.shape).reshape(x.shape) for x in xs)).expand_dims(0).expand_dims(0)


def verdict(call, inputs, **options):
    """The error that gradcheck raises, or None."""
    try:
        gradcheck(embedded(call), inputs, **options)
    except (GradcheckError, TypeError) as error:
        return error


@pytest.mark.parametrize(("op", "i", "mutate"), MUTANTS, ids=[f"{op.name}-{i}-{m.__name__}" for op, i, m in MUTANTS])
def test_a_wrong_rule_is_caught_and_named(op, i, mutate, monkeypatch, record_property):
    cases = [case[1:3] for case in [*CASES, *SQUARES, *BROADCAST] if case[0] is op]
    for call, inputs in cases:
        gradcheck(embedded(call), inputs)
    record_property("mutant", "planted")
    planted, killed = Planted(op, i, mutate, monkeypatch), 0
    for call, inputs in cases:
        planted.differs = False
        error = verdict(call, inputs)
        if error is None:
            assert not planted.differs, f"it got past gradcheck with inputs of shapes {[np.shape(x) for x in inputs]}"
            continue
        suspect = error.report.suspect
        assert (suspect.kind, suspect.op, suspect.argument) == ("rule", op.name, i), str(error)
        assert f"`{op.name}`, argument {i}, at (" in str(error)
        assert abs(suspect.analytic - suspect.numeric) > 1e-7
        killed += 1
    assert killed, "no case where this mutation makes a difference"
    record_property("mutant", "killed")


def test_every_primitive_has_its_mutants_and_its_square_case():
    assert {op for op, *_ in MUTANTS} == {op for op, *_ in SQUARES} == PRIMITIVES
    assert {mutate.__name__ for _, _, mutate in MUTANTS} == {"scaled", "flipped", "one_element_lost", "transposed",
                                                             "missing_sum"}


@pytest.mark.parametrize("method", ["complex", "projected"])
@pytest.mark.parametrize("mutate", [scaled, flipped])
@pytest.mark.parametrize("op", sorted(PRIMITIVES, key=lambda op: op.name), ids=lambda op: op.name)
def test_the_other_methods_catch_and_name_them_too(op, mutate, method, monkeypatch):
    call, inputs = next(case[1:] for case in SQUARES if case[0] is op)
    refused = verdict(call, inputs, method=method)
    if refused:
        assert (type(refused), method) == (TypeError, "complex")
        assert (op.name if op is not ops.astype else "imaginary part") in str(refused)
        return
    Planted(op, 0 if op is not ops.where else 1, mutate, monkeypatch)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(embedded(call), inputs, method=method)
    assert caught.value.report.suspect.op == op.name
