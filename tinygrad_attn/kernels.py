"""Beside floor 2. Fast forms of a few compositions, on raw arrays: in place, in tiles, in buffers, on several threads.

Nothing here is needed to understand the package: each kernel computes what the textbook form of its name does, and a
test holds the two equal. A kernel has three functions. `fits` tells whether it can take these inputs; what it cannot,
the textbook form does, and raises the errors. `forward` returns the output and what `backward` is to be told;
`backward` returns the gradient of each input that is in `wanted`.

Pieces of work are cut by shapes alone, so the number of threads does not change a bit of the result. Elementwise work
goes block by block, each small enough to stay in the cache from the first step to the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .buffers import empty
from .threads import each

# Elements of a block of elementwise work: few enough for a core's cache, so many that threads seldom wait for the lock.
BLOCK = 1 << 17
ROWS = 512                                  # of a block of a matrix product
FEWEST = 1 << 18                            # multiplications; for fewer, the textbook form of a product takes less time


class Kernel(NamedTuple):
    """`inputs` are the names of the arguments that have gradients, in the order of the textbook form's signature."""

    inputs: tuple[str, ...]
    fits: Callable[..., bool]
    forward: Callable[..., tuple[np.ndarray, Any]]
    backward: Callable[..., dict[str, np.ndarray]]


def pieces(n: int, size: int) -> Iterator[slice]:
    """0 … n in even pieces of about `size`."""
    number = max(1, round(n / size))
    return (slice(n * i // number, n * (i + 1) // number) for i in range(number))


def rows_of(x: np.ndarray) -> np.ndarray:
    """(..., n) as (rows, n); a view where there can be one."""
    return x.reshape(-1, x.shape[-1])


def blocks_of(rows: np.ndarray) -> Iterator[slice]:
    """Rows of (rows, n) in blocks of elementwise work."""
    return pieces(len(rows), max(1, BLOCK // rows.shape[-1]))


def sum_of_rows(g: np.ndarray, out: np.ndarray) -> None:
    """As a product with ones, which is faster than `sum`."""
    np.matmul(np.ones(len(g), g.dtype), g, out=out)


# ------------------------------------------------------------------------------------------------------ linear

def _linear_fits(x: Any, weight: Any, bias: Any) -> bool:
    return weight.ndim == 2 and x.ndim > 0 and x.shape[-1] == weight.shape[1] and (
        bias is None or bias.shape == weight.shape[:1]) and x.size * len(weight) >= FEWEST


def _linear(x: Any, weight: Any, bias: Any) -> tuple[np.ndarray, tuple[()]]:
    rows = rows_of(x)
    out = empty((len(rows), len(weight)), x.dtype)

    def block(i: slice) -> None:
        np.matmul(rows[i], weight.T, out=out[i])
        if bias is not None:
            out[i] += bias
    each(block, pieces(len(rows), ROWS), rows.size * len(weight) // 32)
    return out.reshape(*x.shape[:-1], -1), ()


def _linear_backward(wanted: Any, g: Any, kept: Any, x: Any, weight: Any, bias: Any) -> dict[str, np.ndarray]:
    """dL/dx = g W, dL/dW = gᵀ x, dL/db = Σ g"""
    g, rows, found = rows_of(g), rows_of(x), {}
    work: list[Callable[[], Any]] = []
    if "weight" in wanted:
        found["weight"] = dw = empty(weight.shape, x.dtype)
        work += [partial(np.matmul, g[:, j].T, rows, out=dw[j]) for j in pieces(len(weight), ROWS // 2)]
    if "x" in wanted:
        dx = empty(rows.shape, x.dtype)
        found["x"] = dx.reshape(x.shape)
        work += [partial(np.matmul, g[i], weight, out=dx[i]) for i in pieces(len(g), ROWS)]
    if "bias" in wanted:
        found["bias"] = db = np.empty(len(weight), x.dtype)
        work.append(partial(sum_of_rows, g, db))
    each(lambda do: do(), work, rows.size * len(weight) // 32)
    return found


linear = Kernel(("x", "weight", "bias"), _linear_fits, _linear, _linear_backward)

# -------------------------------------------------------------------------------------------------- layer norm

def _norm_fits(x: Any, weight: Any, bias: Any, *, eps: float) -> bool:
    return x.ndim > 0 and x.size > 0 and isinstance(eps, (int, float)) and all(
        w is None or w.shape == x.shape[-1:] for w in (weight, bias))


def _layer_norm(x: Any, weight: Any, bias: Any, *, eps: float) -> tuple[np.ndarray, Any]:
    rows, n = rows_of(x), x.shape[-1]
    out, scale = empty(rows.shape, x.dtype), np.empty((len(rows), 1), x.dtype)
    normal, ones = empty(rows.shape, x.dtype), np.ones(n, x.dtype)

    def block(i: slice) -> None:
        y = normal[i]
        np.subtract(rows[i], (rows[i] @ ones / n)[:, None], out=y)
        s = np.vecdot(y, y)[:, None]
        s /= n
        s += float(eps)
        np.sqrt(s, out=s)
        np.reciprocal(s, out=scale[i])
        y *= scale[i]
        np.multiply(y, 1 if weight is None else weight, out=out[i])
        if bias is not None:
            out[i] += bias
    each(block, blocks_of(rows), rows.size)
    return out.reshape(x.shape), (normal, scale)


def _layer_norm_backward(wanted: Any, g: Any, kept: Any, x: Any, weight: Any, bias: Any, *,
                         eps: float) -> dict[str, np.ndarray]:
    """dL/dx = (h − mean h − y mean(h ∘ y)) / √(var + eps), with h = g ∘ weight and y = (x − mean) / √(var + eps);
    dL/dweight = Σ g ∘ y, dL/dbias = Σ g"""
    (normal, scale), n, g = kept, x.shape[-1], rows_of(g)
    dx, ones, blocks = empty(g.shape, x.dtype), np.ones(n, x.dtype), list(blocks_of(g))
    dw, db = np.empty((2, len(blocks), n), x.dtype)         # of each block

    def block(k: int) -> None:
        i = blocks[k]
        h, y, gi = dx[i], normal[i], g[i]
        sum_of_rows(gi, db[k])
        np.multiply(gi, y, out=h)
        sum_of_rows(h, dw[k])
        if "x" in wanted:
            np.multiply(gi, 1 if weight is None else weight, out=h)
            along = np.vecdot(h, y)[:, None] / n
            h -= (h @ ones / n)[:, None]
            h -= y * along
            h *= scale[i]
    each(block, range(len(blocks)), g.size)
    return {"x": dx.reshape(x.shape), "weight": dw.sum(axis=0), "bias": db.sum(axis=0)}


layer_norm = Kernel(("x", "weight", "bias"), _norm_fits, _layer_norm, _layer_norm_backward)

# -------------------------------------------------------------------------------------------------------- gelu

a = math.sqrt(2 / math.pi)                  # out = x (1 + tanh(a x + b x³)) / 2
b = a * 0.044715


def _gelu_fits(x: Any, *, approximate: str) -> bool:
    return x.size > 0 and approximate in ("none", "tanh")


def _gelu(x: Any, *, approximate: str) -> tuple[np.ndarray, Any]:
    """x ∘ p; what is kept is p, of which `backward` makes the derivative."""
    flat = x.reshape(-1)
    out, p = empty(flat.shape, x.dtype), empty(flat.shape, x.dtype)

    def block(i: slice) -> None:
        x, y = flat[i], p[i]
        if approximate == "none":
            np.multiply(x, math.sqrt(0.5), out=y)
            _erf(y)
        else:
            np.multiply(x, x, out=y)
            y *= b
            y += a
            y *= x
            np.tanh(y, out=y)
        y += 1
        y *= 0.5
        np.multiply(x, y, out=out[i])
    each(block, pieces(flat.size, BLOCK), flat.size)
    return out.reshape(x.shape), p


def _gelu_backward(wanted: Any, g: Any, p: Any, x: Any, *, approximate: str) -> dict[str, np.ndarray]:
    """dL/dx = g ∘ (p + x p′), where out = x p"""
    flat, g = x.reshape(-1), g.reshape(-1)
    dx = empty(flat.shape, x.dtype)

    def block(i: slice) -> None:
        x, y, d = flat[i], p[i], dx[i]
        np.multiply(x, x, out=d)
        if approximate == "none":           # p′ = exp(−x²/2) / √2π
            d *= -0.5
            np.exp(d, out=d)
            d *= a / 2
        else:                               # p′ = 2 p (1 − p) (a + 3 b x²)
            d *= 6 * b
            d += 2 * a
            d *= y
            d *= 1 - y
        d *= x
        d += y
        d *= g[i]
    each(block, pieces(flat.size, BLOCK), flat.size)
    return {"x": dx.reshape(x.shape)}


def _erf_table() -> np.ndarray:
    """Row k: the coefficients of the Taylor series of erf at k / STEPS, highest power first."""
    points = np.arange(6 * STEPS + 1) / STEPS
    # Each derivative is 2/√π exp(−t²) times a polynomial: p₁ = 1, pₙ₊₁ = pₙ′ − 2 t pₙ, the Hermite ones.
    rows, p = [np.array([math.erf(t) for t in points])], np.polynomial.Polynomial([1.0])
    for n in range(1, TERMS):
        rows.append(p(points) * 2 / math.sqrt(math.pi) * np.exp(-points ** 2) / math.factorial(n))
        p = p.deriv() - np.polynomial.Polynomial([0.0, 2.0]) * p
    return np.array(rows[::-1])


STEPS, TERMS = 64, 8                        # so that the first term left out is below 1e-17


def _erf(x: np.ndarray) -> None:
    """erf in place: the Taylor series at the nearest of a table of points. NumPy has none."""
    global _table
    if _table is None:
        _table = _erf_table()
    size = np.minimum(np.abs(x), 6)         # erf 6 is 1 − 2e-17; NaN stays
    k = np.nan_to_num(size * STEPS).astype(np.intp)
    size -= k / x.dtype.type(STEPS)
    total = np.zeros_like(x)
    for row in _table.astype(x.dtype, copy=False):
        total *= size
        total += row[k]
    np.copysign(total, x, out=x, where=~np.isnan(x))


_table: np.ndarray | None = None
gelu = Kernel(("x",), _gelu_fits, _gelu, _gelu_backward)

# ----------------------------------------------------------------------------------------------- cross-entropy

def _cross_entropy_fits(logits: Any, *, targets: Any, weight: Any, ignore_index: int, label_smoothing: float,
                        reduction: str) -> bool:
    if not (weight is None and label_smoothing == 0 and reduction in ("mean", "sum") and logits.ndim and logits.size and
            isinstance(targets, np.ndarray) and targets.dtype.kind == "i" and targets.shape == logits.shape[:-1]):
        return False
    kept = targets[targets != ignore_index]
    return kept.size > 0 and kept.min() >= 0 and kept.max() < logits.shape[-1]


def _cross_entropy(logits: Any, *, targets: Any, ignore_index: int, reduction: str, **others: Any) -> tuple[Any, Any]:
    """What is kept is softmax, where the targets are, which rows count, and what the sum was divided by."""
    rows, at = rows_of(logits), targets.reshape(-1)
    counts = at != ignore_index
    at = np.where(counts, at, 0)
    p, losses = empty(rows.shape, logits.dtype), np.empty(len(rows), logits.dtype)

    def block(i: slice) -> None:
        y, places = p[i], (np.arange(i.stop - i.start), at[i])
        np.subtract(rows[i], np.maximum.reduce(rows[i], axis=-1, keepdims=True), out=y)
        right = y[places]
        np.exp(y, out=y)
        total = np.add.reduce(y, axis=-1)
        np.subtract(np.log(total), right, out=losses[i])
        y *= np.reciprocal(total)[:, None]
    each(block, blocks_of(rows), rows.size)
    n = int(np.count_nonzero(counts)) if reduction == "mean" else 1
    return losses.sum(where=counts) / n, (p, at, counts, n)


def _cross_entropy_backward(wanted: Any, g: Any, kept: Any, logits: Any, **options: Any) -> dict[str, np.ndarray]:
    """dL/dlogits = (softmax(logits) − one-hot(targets)) · g / n"""
    p, at, counts, n = kept
    dx = empty(p.shape, p.dtype)
    scale = np.where(counts, g / n, 0).astype(p.dtype)[:, None]

    def block(i: slice) -> None:
        np.multiply(p[i], scale[i], out=dx[i])
        dx[i][np.arange(i.stop - i.start), at[i]] -= scale[i][:, 0]
    each(block, blocks_of(p), p.size)
    return {"logits": dx.reshape(logits.shape)}


cross_entropy = Kernel(("logits",), _cross_entropy_fits, _cross_entropy, _cross_entropy_backward)

# --------------------------------------------------------------------------------------------------- embedding

def _embedding_fits(weight: Any, *, ids: Any) -> bool:
    return weight.ndim == 2 and weight.size > 0 and (
        isinstance(ids, np.ndarray) and ids.dtype.kind == "i" and ids.size > 0 and
        ids.min() >= 0 and ids.max() < len(weight))


def _embedding(weight: Any, *, ids: Any) -> tuple[np.ndarray, tuple[()]]:
    out = empty((*ids.shape, weight.shape[1]), weight.dtype)
    return np.take(weight, ids, axis=0, out=out, mode="clip"), ()        # "raise" would make a copy first


def _embedding_backward(wanted: Any, g: Any, kept: Any, weight: Any, *, ids: Any) -> dict[str, np.ndarray]:
    """dL/dweight[i] = Σ g where ids == i"""
    flat = ids.reshape(-1)                  # sorted by id, the rows of g for one id stand together
    order = np.argsort(flat, kind="stable")
    flat = flat[order]
    starts = np.flatnonzero(np.diff(flat, prepend=-1))
    dw = np.zeros_like(weight)
    dw[flat[starts]] = np.add.reduceat(rows_of(g)[order], starts, axis=0)
    return {"weight": dw}


embedding = Kernel(("weight",), _embedding_fits, _embedding, _embedding_backward)
