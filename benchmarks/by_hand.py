"""NumPy by hand: what a careful person writes who needs this one computation and no framework.

The derivatives are worked out on paper. Everything is done in place or into buffers made beforehand, operands of
products are contiguous, gradients of weights are one product over the whole batch, and the softmax takes a few heads at
a time, while their scores are in the cache. In single precision 2ˣ is faster than eˣ, so queries are multiplied by
log₂ e.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from .ours import imported
from .rows import BETAS, DECAY, EPS, RATE, Run

CACHE = 2 ** 20                             # bytes of scores that are worked on at a time
TILE = 512                                  # queries, and keys, of a tile of attention on long sequences


def recorded_op(p: SimpleNamespace) -> Run:
    """The products of a chain of y ← y x, recorded in a list, and the sums of their gradients."""
    x = p.x[()]

    def run() -> tuple[Any, ...]:
        ys = [x]
        for _ in range(p.chain):
            ys.append(ys[-1] * x)
        g, total = p.g[()], 0.0
        for y in reversed(ys[:-1]):
            total = total + g * y
            g = g * x
        return ys[-1], total + g
    return run


def example_b(p: SimpleNamespace) -> Run:
    x, (w_q, w_k, w_v), scale = p.x, p.weights, p.x.shape[1] ** -0.5
    x_t, g = x.T.copy(), np.ones((3, 4))

    def run() -> tuple[Any, ...]:
        q, k, v = x.dot(w_q), x.dot(w_k), x.dot(w_v)
        q *= scale
        s = q.dot(k.T)
        np.exp(s, out=s)                    # of scores below 1
        s /= np.add.reduce(s, axis=1, keepdims=True)
        out = s.dot(v)
        d = g.dot(v.T)
        d -= np.add.reduce(d * s, axis=1, keepdims=True)
        d *= s
        return (np.add.reduce(out, axis=None), x_t.dot(d.dot(k)) * scale, x_t.dot(d.T.dot(q)),
                x_t.dot(s.T.dot(g)))
    return run


def exponential(dtype: Any) -> tuple[Callable[..., Any], float]:
    """A function f and a factor c with f(c x) = eˣ."""
    return (np.exp2, math.log2(math.e)) if dtype == np.float32 else (np.exp, 1.0)


class Heads:
    """softmax(Q Kᵀ / √D) V of many heads, (n, L, D) each, and the gradients of all three.

    Scores are kept as K Qᵀ, keys first: a maximum over the first axis of a matrix is three times as fast as over the
    last. Weights stay as they are before the division by their sums, which is done to the output.
    """

    def __init__(self, n: int, L: int, D: int, dtype: Any, causal: bool = False) -> None:
        self.exp, self.unit = exponential(dtype)
        self.scale = D ** -0.5
        step = max(1, CACHE // (L * L * np.dtype(dtype).itemsize))
        self.parts = [slice(i, min(i + step, n)) for i in range(0, n, step)]
        self.weights, self.d = np.empty((n, L, L), dtype), np.empty((min(step, n), L, L), dtype)
        self.q, self.k, self.v, self.out, self.g, self.dq, self.dk, self.dv = np.empty((8, n, L, D), dtype)
        self.q_t, self.g_t = np.empty((2, n, D, L), dtype)
        self.sums, self.row = np.empty((2, n, 1, L), dtype)
        self.ones, self.seen = np.ones((1, L), dtype), np.tri(L, dtype=dtype).T.copy() if causal else None

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        np.multiply(q, self.scale * self.unit, out=self.q.reshape(q.shape))
        for mine, theirs in ((self.q_t, self.q.mT), (self.k, k), (self.v, v)):
            np.copyto(mine.reshape(theirs.shape), theirs)
        for part in self.parts:
            s, row, out = self.weights[part], self.row[part], self.out[part]
            np.matmul(self.k[part], self.q_t[part], out=s)
            np.maximum.reduce(s, axis=1, keepdims=True, out=row)
            s -= row
            self.exp(s, out=s)
            if self.seen is not None:
                s *= self.seen
            np.matmul(self.ones, s, out=self.sums[part])
            np.matmul(s.mT, self.v[part], out=out)
            out /= self.sums[part].mT
        return self.out

    def backward(self, g: Any) -> tuple[Any, Any, Any]:
        np.divide(g, self.sums.reshape(*g.shape[:-1], 1), out=self.g.reshape(g.shape))
        np.copyto(self.g_t, self.g.mT)
        np.vecdot(self.g, self.out, out=self.row[:, 0])
        for part in self.parts:
            w, d = self.weights[part], self.d[:part.stop - part.start]
            np.matmul(w, self.g[part], out=self.dv[part])
            np.matmul(self.v[part], self.g_t[part], out=d)
            d -= self.row[part]
            d *= w
            np.matmul(d.mT, self.k[part], out=self.dq[part])
            np.matmul(d, self.q[part], out=self.dk[part])
        self.dq *= self.scale
        self.dk *= 1 / self.unit
        return self.dq, self.dk, self.dv


class Linear:
    """x Wᵀ + b, of x (rows, in), and the gradients, written to where they belong."""

    def __init__(self, rows: int, w: Any, b: Any, dw: Any, db: Any) -> None:
        self.w, self.b, self.dw, self.db = w, b, dw, db
        self.out, self.dx = np.empty((rows, w.shape[0]), w.dtype), np.empty((rows, w.shape[1]), w.dtype)
        self.ones = np.ones(rows, w.dtype)

    def forward(self, x: Any) -> Any:
        self.x = x
        np.matmul(x, self.w.T, out=self.out)
        self.out += self.b
        return self.out

    def backward(self, g: Any) -> Any:
        np.matmul(g.T, self.x, out=self.dw)
        np.matmul(self.ones, g, out=self.db)
        return np.matmul(g, self.w, out=self.dx)


class MultiHead:
    """The layer: (B · L, E) -> (B · L, E)."""

    def __init__(self, p: SimpleNamespace, w: dict[str, Any], dw: dict[str, Any], prefix: str = "",
                 causal: bool = False) -> None:
        self.project, self.merge = (
            Linear(p.B * p.L, *(table[f"{prefix}{name}{kind}"] for table in (w, dw) for kind in ("weight", "bias")))
            for name in ("in_proj_", "out_proj."))
        self.shape = p.B, p.L, 3, p.H, p.E // p.H
        self.heads = Heads(p.B * p.H, p.L, p.E // p.H, p.dtype, causal)
        self.dqkv = np.empty((p.B * p.L, 3 * p.E), p.dtype)
        self.merged = np.empty((p.B * p.L, p.E), p.dtype)

    def split(self, qkv: Any) -> Any:
        """(B · L, 3 · E) -> (3, B, H, L, D), a view"""
        return qkv.reshape(self.shape).transpose(2, 0, 3, 1, 4)

    def side_by_side(self, x: Any) -> Any:
        """(B · L, E) -> (B, H, L, D), a view"""
        B, L, _, H, D = self.shape
        return x.reshape(B, L, H, D).transpose(0, 2, 1, 3)

    def forward(self, x: Any) -> Any:
        out, there = self.heads.forward(*self.split(self.project.forward(x))), self.side_by_side(self.merged)
        np.copyto(there, out.reshape(there.shape))
        return self.merge.forward(self.merged)

    def backward(self, g: Any) -> Any:
        gradients = self.heads.backward(self.side_by_side(self.merge.backward(g)))
        for there, gradient in zip(self.split(self.dqkv), gradients):
            np.copyto(there, gradient.reshape(there.shape))
        return self.project.backward(self.dqkv)


def layer(p: SimpleNamespace) -> Run:
    gradients = {name: np.empty_like(w) for name, w in p.parameters.items()}
    module, x, g = MultiHead(p, p.parameters, gradients), p.x.reshape(-1, p.E), p.g.reshape(-1, p.E)

    def run() -> tuple[Any, ...]:
        out, dx = module.forward(x), module.backward(g)
        return out.reshape(p.x.shape), dx.reshape(p.x.shape), *gradients.values()
    return run


def blocked_attention(p: SimpleNamespace) -> Run:
    """Tile by tile, with no memory for all scores: the online softmax forward, and scores computed again backward.

    A further column in the operands brings S − log Σ eˢ and dP − D straight out of the products.
    (Milakov & Gimelshein 2018; Dao et al. 2022.)
    """
    (H, L, D), dtype, exp_and_unit = p.q.shape, p.q.dtype, exponential(p.q.dtype)
    exp, unit = exp_and_unit
    T, scale = min(TILE, L), D ** -0.5
    tiles = [slice(i, min(i + T, L)) for i in range(0, L, T)]
    out, dq, dk, dv = np.empty((4, H, L, D), dtype)
    lse, s, d = np.empty((H, L, 1), dtype), np.empty((T, T), dtype), np.empty((T, T), dtype)
    q, k, v, g = np.empty((4, L, D + 1), dtype)         # of one head, with the further column
    k_t, v_t = np.empty((2, D + 1, L), dtype)
    part, ones = np.empty((T, D), dtype), np.ones((T, 1), dtype)

    def load(h: int) -> None:
        np.multiply(p.q[h], scale * unit, out=q[:, :D])
        for mine, theirs in ((k, p.k[h]), (v, p.v[h]), (g, p.g[h])):
            np.copyto(mine[:, :D], theirs)
            mine[:, D] = 1
        np.copyto(k_t, k.T)
        np.copyto(v_t, v.T)

    def forward(h: int) -> None:
        for i in tiles:
            o, n = out[h, i], i.stop - i.start
            top, total = np.full((n, 1), -np.inf, dtype), np.zeros((n, 1), dtype)
            o[:] = 0
            for j in tiles:
                w, product = s[:n, :j.stop - j.start], part[:n]
                np.matmul(q[i, :D], k_t[:D, j], out=w)
                new = np.maximum(top, w.max(axis=1, keepdims=True))
                w -= new
                exp(w, out=w)
                shrink = exp(top - new)
                total *= shrink
                total += w @ ones[:w.shape[1]]
                o *= shrink
                o += np.matmul(w, p.v[h, j], out=product)
                top = new
            o /= total
            lse[h, i] = top + (np.log2 if exp is np.exp2 else np.log)(total)

    def backward(h: int) -> None:
        q[:, D] = -lse[h, :, 0]
        g[:, D] = -np.vecdot(p.g[h], out[h])
        for gradient in (dq, dk, dv):
            gradient[h] = 0
        for j in tiles:
            for i in tiles:
                w, e = (a[:i.stop - i.start, :j.stop - j.start] for a in (s, d))
                rows, columns = part[:i.stop - i.start], part[:j.stop - j.start]
                np.matmul(q[i], k_t[:, j], out=w)
                exp(w, out=w)
                dv[h, j] += np.matmul(w.T, p.g[h, i], out=columns)
                np.matmul(g[i], v_t[:, j], out=e)
                e *= w
                dq[h, i] += np.matmul(e, p.k[h, j], out=rows)
                dk[h, j] += np.matmul(e.T, q[i, :D], out=columns)
        dq[h] *= scale
        dk[h] *= 1 / unit

    def run() -> tuple[Any, ...]:
        for h in range(H):
            load(h)
            forward(h)
            backward(h)
        return out, dq, dk, dv
    return run


class LayerNorm:
    """(x − mean) / √(var + eps) · w + b"""

    def __init__(self, rows: int, w: Any, b: Any, dw: Any, db: Any) -> None:
        self.w, self.b, self.dw, self.db = w, b, dw, db
        self.x, self.out, self.d = np.empty((3, rows, len(w)), w.dtype)
        self.factor, self.row = np.empty((2, rows, 1), w.dtype)
        self.ones, self.mean = np.ones(rows, w.dtype), np.full((len(w), 1), 1 / len(w), w.dtype)

    def forward(self, x: Any) -> Any:
        factor = self.factor
        np.subtract(x, np.matmul(x, self.mean, out=self.row), out=self.x)
        np.vecdot(self.x, self.x, out=factor[:, 0])
        factor *= 1 / len(self.w)
        factor += 1e-5
        np.sqrt(factor, out=factor)
        np.divide(1, factor, out=factor)
        self.x *= factor
        np.multiply(self.x, self.w, out=self.out)
        self.out += self.b
        return self.out

    def backward(self, g: Any) -> Any:
        """With h = g · w: (h − mean h − x mean (h x)) / √(var + eps), x normalised"""
        np.multiply(g, self.x, out=self.d)
        np.matmul(self.ones, self.d, out=self.dw)
        np.matmul(self.ones, g, out=self.db)
        h = np.multiply(g, self.w, out=self.out)
        np.vecdot(h, self.x, out=self.row[:, 0])
        self.row *= 1 / len(self.w)
        self.x *= self.row
        self.x += np.matmul(h, self.mean, out=self.row)
        h -= self.x
        h *= self.factor
        return h


class Gelu:
    """x (1 + tanh u) / 2 with u = √(2/π) (x + 0.044715 x³), a few rows at a time: there are many passes."""

    def __init__(self, rows: int, width: int, dtype: Any) -> None:
        self.t, self.out, self.dx = np.empty((3, rows, width), dtype)
        step = max(1, 2 ** 15 // width)
        self.parts = [slice(i, min(i + step, rows)) for i in range(0, rows, step)]
        self.free = np.empty((step, width), dtype)

    def forward(self, x: Any) -> Any:
        self.x, c = x, math.sqrt(2 / math.pi)
        for part in self.parts:
            x, t, out = self.x[part], self.t[part], self.out[part]
            np.multiply(x, x, out=t)
            t *= 0.044715 * c
            t += c
            t *= x
            np.tanh(t, out=t)
            np.multiply(x, 0.5, out=out)
            out += np.multiply(out, t, out=self.free[:len(x)])
        return self.out

    def backward(self, g: Any) -> Any:
        """(1 + t) (1 + x (1 − t) u′) / 2, with u′ = √(2/π) (1 + 3 · 0.044715 x²)"""
        c = math.sqrt(2 / math.pi)
        for part in self.parts:
            x, t, dx, free = self.x[part], self.t[part], self.dx[part], self.free[:part.stop - part.start]
            np.multiply(x, x, out=dx)
            dx *= 3 * 0.044715 * c
            dx += c
            dx *= x
            dx *= np.subtract(1, t, out=free)
            dx += 1
            dx *= np.multiply(np.add(t, 1, out=free), 0.5, out=free)
            dx *= g[part]
        return self.dx


class AdamW:
    """All parameters as one array, and their gradients as another, a piece at a time, while it is in the cache."""

    def __init__(self, w: Any, g: Any) -> None:
        self.w, self.g, self.m, self.v, self.t = w, g, np.zeros_like(w), np.zeros_like(w), 0
        self.free = np.empty(min(2 ** 15, len(w)), w.dtype)

    def step(self) -> None:
        self.t += 1
        (b1, b2), size = BETAS, len(self.free)
        rate, root = RATE / (1 - b1 ** self.t), math.sqrt(1 - b2 ** self.t)
        for i in range(0, len(self.w), size):
            w, g, m, v = (a[i:i + size] for a in (self.w, self.g, self.m, self.v))
            free = self.free[:len(w)]
            m *= b1
            m += np.multiply(g, 1 - b1, out=free)
            v *= b2
            np.multiply(g, g, out=free)
            free *= 1 - b2
            v += free
            np.sqrt(v, out=free)
            free *= 1 / root
            free += EPS
            np.divide(m, free, out=free)
            free *= rate
            w *= 1 - RATE * DECAY
            w -= free


def laid_out(flat: Any, shapes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parts of a flat array that are the parameters of those names and shapes."""
    start = 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        yield name, flat[start:start + size].reshape(shape)
        start += size


def gpt_step(p: SimpleNamespace) -> Run:
    shapes = {name: a.shape for name, a in p.parameters.items()}
    flat = np.concatenate([a.ravel() for a in p.parameters.values()])
    flat_gradient = np.empty_like(flat)
    w, dw = dict(laid_out(flat, shapes)), dict(laid_out(flat_gradient, shapes))
    rows, tokens, d_tokens = p.B * p.L, w["tokens.weight"], dw["tokens.weight"]

    def made(kind: Callable[..., Any], name: str) -> Any:
        return kind(rows, *(table[f"{name}.{part}"] for table in (w, dw) for part in ("weight", "bias")))

    blocks = []
    for block in (f"blocks.layers.{i}." for i in range(p.layers)):
        blocks += [[made(LayerNorm, block + "norm1"), MultiHead(p, w, dw, block + "self_attn.", causal=True)],
                   [made(LayerNorm, block + "norm2"), made(Linear, block + "linear1"), Gelu(rows, 4 * p.E, p.dtype),
                    made(Linear, block + "linear2")]]
    final = made(LayerNorm, "blocks.norm")
    ids, targets, row = p.ids.ravel(), p.targets.ravel(), np.arange(rows)
    one_hot = np.zeros((p.V, rows), p.dtype)
    one_hot[ids, row] = 1
    stream, g = np.empty((2, rows, p.E), p.dtype)
    logits, ones, optimizer = np.empty((rows, p.V), p.dtype), np.ones((p.V, 1), p.dtype), AdamW(flat, flat_gradient)

    def run() -> tuple[Any, ...]:
        np.take(tokens, ids, axis=0, out=stream)
        stream.reshape(p.B, p.L, p.E)[:] += w["positions.weight"]
        for parts in blocks:
            x = stream
            for part in parts:
                x = part.forward(x)
            np.add(stream, x, out=stream)
        last = final.forward(stream)

        np.matmul(last, tokens.T, out=logits)
        np.subtract(logits, logits.max(axis=1, keepdims=True), out=logits)
        right = logits[row, targets]
        np.exp(logits, out=logits)
        sums = logits @ ones
        loss = (np.log(sums).sum() - right.sum()) / rows
        np.divide(logits, sums * rows, out=logits)                              # now its gradient
        logits[row, targets] -= 1 / rows

        np.matmul(logits.T, last, out=d_tokens)
        np.copyto(g, final.backward(np.matmul(logits, tokens)))
        for parts in reversed(blocks):
            x = g
            for part in reversed(parts):
                x = part.backward(x)
            np.add(g, x, out=g)
        np.add.reduce(g.reshape(p.B, p.L, p.E), axis=0, out=dw["positions.weight"])
        np.add(d_tokens, one_hot @ g, out=d_tokens)
        optimizer.step()
        return loss, *dw.values()
    return run


MAKE: dict[tuple[str, str], Callable[[SimpleNamespace], Run]] = {
    ("recorded op", ""): recorded_op,
    ("example B", ""): example_b,
    ("attention", ""): blocked_attention,
    ("layer", ""): layer,
    ("GPT step", ""): gpt_step,
    ("import", ""): partial(imported, "numpy", "sys"),
}
