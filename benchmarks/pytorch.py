"""PyTorch, eager: attention composed of its ops, and as its one function, `scaled_dot_product_attention` (SDPA).

`torch.compile` is left out: it needs a C++ compiler, and the comparison is between frameworks that run Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from .ours import imported
from .rows import BETAS, DECAY, EPS, RATE, Run, chain


def started(p: SimpleNamespace) -> Any:
    import torch
    torch.set_num_threads(p.threads)
    return torch


def leaf(a: Any) -> Any:
    import torch
    return torch.from_numpy(a.copy()).requires_grad_()


def gradients(leaves: list[Any], output: Callable[[], Any], g: Any) -> Run:
    def run() -> tuple[Any, ...]:
        for x in leaves:
            x.grad = None
        out = output()
        out.backward(g)
        return out.detach(), *(x.grad for x in leaves)
    return run


def attention(q: Any, k: Any, v: Any, *, sdpa: bool, future: Any = None) -> Any:
    """`future`, if there is one, is what no query may see; SDPA knows by itself. Only (B, H, L, D) is blocked."""
    import torch
    if sdpa and q.ndim == 3:
        return attention(q[None], k[None], v[None], sdpa=True)[0]
    if sdpa:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=future is not None)
    scores = q * q.shape[-1] ** -0.5 @ k.mT
    return torch.softmax(scores if future is None else scores.masked_fill(future, -torch.inf), -1) @ v


def recorded_op(p: SimpleNamespace) -> Run:
    torch = started(p)
    x = leaf(p.x)
    return gradients([x], lambda: chain(x, p.step, p.chain), torch.from_numpy(p.g))


def example_b(p: SimpleNamespace, sdpa: bool = False) -> Run:
    torch = started(p)
    x, weights = torch.from_numpy(p.x), [leaf(w) for w in p.weights]
    return gradients(weights, lambda: attention(*(x @ w for w in weights), sdpa=sdpa).sum(), None)


def self_attention(p: SimpleNamespace, sdpa: bool = False) -> Run:
    torch = started(p)
    leaves = [leaf(a) for a in (p.q, p.k, p.v)]
    return gradients(leaves, lambda: attention(*leaves, sdpa=sdpa), torch.from_numpy(p.g))


def multi_head(x: Any, w: dict[str, Any], H: int, prefix: str, sdpa: bool, future: Any = None) -> Any:
    """(B, L, E) -> (B, L, E)"""
    from torch.nn.functional import linear
    B, L, E = x.shape
    qkv = linear(x, w[prefix + "in_proj_weight"], w[prefix + "in_proj_bias"])
    q, k, v = qkv.view(B, L, 3, H, E // H).permute(2, 0, 3, 1, 4)               # (B, H, L, D) each
    out = attention(q, k, v, sdpa=sdpa, future=future).transpose(1, 2).reshape(B, L, E)
    return linear(out, w[prefix + "out_proj.weight"], w[prefix + "out_proj.bias"])


def layer(p: SimpleNamespace) -> Run:
    torch = started(p)
    x, parameters = leaf(p.x), {name: leaf(w) for name, w in p.parameters.items()}
    return gradients([x, *parameters.values()], lambda: multi_head(x, parameters, p.H, "", sdpa=False),
                     torch.from_numpy(p.g))


def layer_module(p: SimpleNamespace) -> Run:
    """PyTorch's own module, which takes the way of SDPA where no weights are asked for."""
    torch = started(p)
    module = torch.nn.MultiheadAttention(p.E, p.H, batch_first=True, dtype=getattr(torch, p.dtype))
    module.load_state_dict({name: torch.from_numpy(w) for name, w in p.parameters.items()})
    x, named = leaf(p.x), dict(module.named_parameters())
    return gradients([x, *(named[name] for name in p.parameters)], lambda: module(x, x, x, need_weights=False)[0],
                     torch.from_numpy(p.g))


def gpt_step(p: SimpleNamespace, sdpa: bool = False) -> Run:
    torch = started(p)
    F, w = torch.nn.functional, {name: leaf(a) for name, a in p.parameters.items()}
    ids, targets = torch.from_numpy(p.ids), torch.from_numpy(p.targets)
    future = torch.ones(p.L, p.L, dtype=torch.bool).triu(1)
    optimizer = torch.optim.AdamW(w.values(), RATE, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=sdpa)

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (p.E,), w[name + ".weight"], w[name + ".bias"])

    def logits() -> Any:
        x = F.embedding(ids, w["tokens.weight"]) + w["positions.weight"]
        for block in (f"blocks.layers.{i}." for i in range(p.layers)):
            x = x + multi_head(norm(x, block + "norm1"), w, p.H, block + "self_attn.", sdpa, future)
            inner = F.linear(norm(x, block + "norm2"), w[block + "linear1.weight"], w[block + "linear1.bias"])
            x = x + F.linear(F.gelu(inner, approximate="tanh"), w[block + "linear2.weight"], w[block + "linear2.bias"])
        return F.linear(norm(x, "blocks.norm"), w["tokens.weight"])

    def run() -> tuple[Any, ...]:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits().view(-1, p.V), targets.view(-1))
        loss.backward()
        optimizer.step()
        return loss.detach(), *(x.grad for x in w.values())
    return run


MAKE: dict[tuple[str, str], Callable[[SimpleNamespace], Run]] = {
    ("recorded op", ""): recorded_op,
    ("example B", ""): example_b,
    ("example B", "sdpa"): partial(example_b, sdpa=True),
    ("attention", ""): self_attention,
    ("attention", "sdpa"): partial(self_attention, sdpa=True),
    ("layer", ""): layer,
    ("layer", "sdpa"): layer_module,
    ("GPT step", ""): gpt_step,
    ("GPT step", "sdpa"): partial(gpt_step, sdpa=True),
    ("import", ""): partial(imported, "torch", "sys"),
}
