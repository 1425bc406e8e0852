"""tinygrad_attn, by its public names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from tinygrad_attn import Tensor, attention, nn, optim
from tinygrad_attn import functional as F

from .rows import BETAS, DECAY, EPS, RATE, Run, chain


def gradients(leaves: list[Any], output: Callable[[], Any], g: Any) -> Run:
    """A run that computes the output and the gradients of these leaves."""
    def run() -> tuple[Any, ...]:
        for leaf in leaves:
            leaf.zero_grad()
        out = output()
        out.backward(g)
        return out.numpy(), *(leaf.grad for leaf in leaves)
    return run


def recorded_op(p: SimpleNamespace) -> Run:
    x = Tensor(p.x, requires_grad=True)
    return gradients([x], lambda: chain(x, p.step, p.chain), p.g)


def example_b(p: SimpleNamespace, composed: bool = False) -> Run:
    """The three words attend to each other; gradients of the projections."""
    x, weights = Tensor(p.x), [Tensor(w, requires_grad=True) for w in p.weights]

    def output() -> Any:
        q, k, v = (x @ w for w in weights)
        return (attention(q, k, v)[0] if composed else F.scaled_dot_product_attention(q, k, v)).sum()
    return gradients(weights, output, None)


def self_attention(p: SimpleNamespace, composed: bool = False) -> Run:
    q, k, v = leaves = [Tensor(a, requires_grad=True) for a in (p.q, p.k, p.v)]
    return gradients(leaves, lambda: attention(q, k, v)[0] if composed else F.scaled_dot_product_attention(q, k, v),
                     p.g)


def layer(p: SimpleNamespace, composed: bool = False) -> Run:
    module = nn.MultiHeadAttention(p.E, p.H, dtype=p.dtype)
    module.load_state_dict(p.parameters)
    x, named = Tensor(p.x, requires_grad=True), dict(module.named_parameters())
    return gradients([x, *(named[name] for name in p.parameters)], lambda: module(x, need_weights=composed)[0], p.g)


def gpt_step(p: SimpleNamespace) -> Run:
    model = nn.GPT(p.V, p.L, p.E, p.H, p.layers, dtype=p.dtype)
    model.load_state_dict(p.parameters)
    named = dict(model.named_parameters())
    parameters = [named[name] for name in p.parameters]
    optimizer = optim.AdamW(parameters, RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)

    def run() -> tuple[Any, ...]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(p.ids), p.targets)
        loss.backward()
        optimizer.step()
        return loss.numpy(), *(parameter.grad for parameter in parameters)
    return run


def imported(module: str, beyond: str, p: SimpleNamespace) -> Run:
    """The seconds that an import takes in a new process, as that process sees them, once its bytecode is on disk."""
    code = f"import {beyond}, time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    folder = tempfile.TemporaryDirectory()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def run() -> tuple[Any, ...]:           # the folder goes when this goes
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                              env={**env, "PYTHONPYCACHEPREFIX": folder.name})
        return float(done.stdout),
    return run


MAKE: dict[tuple[str, str], Callable[[SimpleNamespace], Run]] = {
    ("recorded op", ""): recorded_op,
    ("example B", ""): example_b,
    ("example B", "composed"): partial(example_b, composed=True),
    ("attention", ""): self_attention,
    ("attention", "composed"): partial(self_attention, composed=True),
    ("layer", ""): layer,
    ("layer", "composed"): partial(layer, composed=True),
    ("GPT step", ""): gpt_step,
    ("import", ""): partial(imported, "tinygrad_attn", "numpy"),
}
