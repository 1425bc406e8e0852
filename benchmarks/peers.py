"""The other frameworks that speak NumPy: HIPS autograd, MyGrad and JAX. One text serves all three, written as their
users write it, with each one's own softmax and cross-entropy where it has them. JAX compiles the whole (`jit`), and so
has no single recorded op.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from .ours import imported
from .rows import BETAS, DECAY, EPS, RATE, Run, chain

PEERS = ("autograd", "mygrad", "jax")
Model = Callable[..., Any]                  # (xp, *arrays) -> the output, xp being the framework's NumPy


def namespace(peer: str, p: SimpleNamespace) -> Any:
    """The framework's NumPy, with a softmax and a cross-entropy beside it."""
    if peer == "jax":
        import_module("jax").config.update("jax_enable_x64", p.dtype == "float64")
        return SimpleNamespace(np=import_module("jax.numpy"), softmax=import_module("jax.nn").softmax,
                               cross_entropy=None)
    if peer == "mygrad":
        np_ = import_module("mygrad")
        np_.turn_memory_guarding_off()      # as its manual advises where speed counts
        return SimpleNamespace(np=np_, softmax=import_module("mygrad.nnet").softmax,
                               cross_entropy=import_module("mygrad.nnet").softmax_crossentropy)
    np_ = import_module("autograd.numpy")

    def softmax(x: Any, axis: int = -1) -> Any:
        e = np_.exp(x - np_.max(x, axis=axis, keepdims=True))
        return e / np_.sum(e, axis=axis, keepdims=True)
    return SimpleNamespace(np=np_, softmax=softmax, cross_entropy=None)


def gradients(peer: str, p: SimpleNamespace, f: Model, arrays: list[np.ndarray], g: Any) -> Run:
    """A run that computes f(xp, *arrays) and its gradients by all arrays, for dL/d out = g."""
    xp = namespace(peer, p)
    if peer == "jax":
        jax = import_module("jax")

        @jax.jit
        def both(arrays: Any, g: Any) -> Any:
            out, vjp = jax.vjp(partial(f, xp), *arrays)
            return out, *vjp(g)
        arrays, g = jax.device_put(arrays), jax.device_put(g)
        return lambda: jax.block_until_ready(both(arrays, g))
    if peer == "mygrad":
        def run() -> tuple[Any, ...]:
            leaves = [xp.np.tensor(a, copy=False) for a in arrays]
            out = f(xp, *leaves)
            out.backward(g)
            return out.data, *(leaf.grad for leaf in leaves)
        return run
    vjp_and_value = import_module("autograd").make_vjp(partial(f, xp), argnum=tuple(range(len(arrays))))

    def run_autograd() -> tuple[Any, ...]:
        vjp, out = vjp_and_value(*arrays)
        return out, *vjp(g)
    return run_autograd


def attention(xp: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = q * q.dtype.type(q.shape[-1] ** -0.5) @ xp.np.swapaxes(k, -1, -2)
    return xp.softmax(scores if mask is None else scores + mask, axis=-1) @ v


def multi_head(xp: Any, H: int, mask: Any, x: Any, w_in: Any, b_in: Any, w_out: Any, b_out: Any) -> Any:
    B, L, E = x.shape
    qkv = xp.np.transpose((x @ w_in.T + b_in).reshape(B, L, 3, H, E // H), (2, 0, 3, 1, 4))
    out = attention(xp, qkv[0], qkv[1], qkv[2], mask)                           # (B, H, L, D)
    return xp.np.transpose(out, (0, 2, 1, 3)).reshape(B, L, E) @ w_out.T + b_out


def layer_norm(xp: Any, x: Any, w: Any, b: Any) -> Any:
    centred = x - xp.np.mean(x, axis=-1, keepdims=True)
    variance = xp.np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.np.sqrt(variance + x.dtype.type(1e-5)) * w + b


def gelu(xp: Any, x: Any) -> Any:
    half, a, b, one = map(x.dtype.type, (0.5, (2 / np.pi) ** 0.5, 0.044715, 1))
    return half * x * (one + xp.np.tanh(a * (x + b * x * x * x)))


def gpt_loss(xp: Any, p: SimpleNamespace, mask: Any, w: dict[str, Any]) -> Any:
    x = w["tokens.weight"][p.ids] + w["positions.weight"]
    for block in (f"blocks.layers.{i}." for i in range(p.layers)):
        part = [w[block + "self_attn." + name] for name in
                ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")]
        x = x + multi_head(xp, p.H, mask, layer_norm(xp, x, w[block + "norm1.weight"], w[block + "norm1.bias"]), *part)
        inner = layer_norm(xp, x, w[block + "norm2.weight"], w[block + "norm2.bias"])
        inner = gelu(xp, inner @ w[block + "linear1.weight"].T + w[block + "linear1.bias"])
        x = x + inner @ w[block + "linear2.weight"].T + w[block + "linear2.bias"]
    last = layer_norm(xp, x, w["blocks.norm.weight"], w["blocks.norm.bias"])
    logits, targets = (last @ w["tokens.weight"].T).reshape(-1, p.V), p.targets.ravel()
    if xp.cross_entropy:
        return xp.cross_entropy(logits, targets)
    shifted = logits - xp.np.max(logits, axis=-1, keepdims=True)
    return xp.np.mean(xp.np.log(xp.np.sum(xp.np.exp(shifted), axis=-1)) - shifted[np.arange(len(targets)), targets])


def recorded_op(peer: str, p: SimpleNamespace) -> Run:
    return gradients(peer, p, lambda xp, x: chain(x, p.step, p.chain), [p.x], p.g)


def example_b(peer: str, p: SimpleNamespace) -> Run:
    return gradients(peer, p, lambda xp, *weights: xp.np.sum(attention(xp, *(p.x @ w for w in weights))), p.weights,
                     np.ones(()))


def self_attention(peer: str, p: SimpleNamespace) -> Run:
    return gradients(peer, p, attention, [p.q, p.k, p.v], p.g)


def layer(peer: str, p: SimpleNamespace) -> Run:
    return gradients(peer, p, lambda xp, *arrays: multi_head(xp, p.H, None, *arrays),
                     [p.x, *p.parameters.values()], p.g)


def moved(xp: Any, t: Any, w: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
    """AdamW, for each parameter; neither autograd nor MyGrad nor JAX has it."""
    (b1, b2), number = BETAS, w.dtype.type
    m = number(b1) * m + number(1 - b1) * g
    v = number(b2) * v + number(1 - b2) * g * g
    m_hat, v_hat = m / (1 - b1 ** t).astype(w.dtype), v / (1 - b2 ** t).astype(w.dtype)
    return number(1 - RATE * DECAY) * w - number(RATE) * m_hat / (xp.sqrt(v_hat) + number(EPS)), m, v


def gpt_step(peer: str, p: SimpleNamespace) -> Run:
    xp, w = namespace(peer, p), dict(p.parameters)
    mask = np.where(np.tri(p.L, dtype=bool), 0, -np.inf).astype(p.dtype)
    moments = {name: (np.zeros_like(a), np.zeros_like(a)) for name, a in w.items()}
    t = np.array(0.0)

    def loss_and_gradients(w: Any) -> tuple[Any, dict[str, Any]]:
        if peer == "mygrad":
            leaves = {name: xp.np.tensor(a, copy=False) for name, a in w.items()}
            loss = gpt_loss(xp, p, mask, leaves)
            loss.backward()
            return loss.data, {name: leaf.grad for name, leaf in leaves.items()}
        return import_module(peer).value_and_grad(partial(gpt_loss, xp, p, mask))(w)

    def step(t: Any, w: Any, moments: Any) -> tuple[Any, Any, Any, Any]:
        loss, g = loss_and_gradients(w)
        new = {name: moved(xp.np if peer == "jax" else np, t, w[name], g[name], *moments[name]) for name in w}
        return loss, g, {name: a[0] for name, a in new.items()}, {name: a[1:] for name, a in new.items()}

    if peer == "jax":
        jax = import_module("jax")
        step = jax.jit(step, donate_argnums=(1, 2))
        w, moments = jax.device_put((w, moments))

    def run() -> tuple[Any, ...]:
        nonlocal t, w, moments
        t = t + 1
        loss, g, w, moments = step(t, w, moments)
        if peer == "jax":
            jax.block_until_ready((loss, g, w, moments))
        return loss, *(g[name] for name in p.parameters)
    return run


MAKE: dict[tuple[str, str], Callable[[SimpleNamespace], Run]] = {
    **{("recorded op", peer): partial(recorded_op, peer) for peer in PEERS if peer != "jax"},
    **{(work, peer): partial(make, peer) for work, make in
       (("example B", example_b), ("attention", self_attention), ("layer", layer), ("GPT step", gpt_step))
       for peer in PEERS},
    **{("import", peer): partial(imported, peer, "sys") for peer in PEERS},
}
