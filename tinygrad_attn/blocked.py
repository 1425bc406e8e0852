"""Beside floor 2. Attention in blocks: softmax(Q Kᵀ · scale) V, and its gradients, with memory that grows with the
length and not with its square.

Scores are never all there at once. They are made tile by tile, used, and made again in the backward pass, of which the
forward pass keeps one number a query: the logarithm of its sum of exponentials (Dao et al. 2022). All exponentials are
powers of 2, which are faster; log₂ e goes into the scale. The usual way to sum them keeps the largest score so far, and
corrects the sum when a larger one comes (Milakov & Gimelshein 2018). Where |q| |k| shows that no score can be large,
there is nothing to subtract and nothing to correct.

Letters in shapes: B batch, G heads of keys, R query heads for each of them, L queries, S keys, D and Dv widths. Several
short heads make one piece of work, N = batches · heads in it, so that NumPy is not called for each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .buffers import empty
from .kernels import Kernel, pieces
from .threads import each

ROWS, COLUMNS = 512, 256                    # queries and keys in a tile of scores, two of which fit into a core's cache
FEWEST = 1 << 15                            # scores; with fewer, the textbook form takes less time
SAFE, SMALL = 32.0, 2.0 ** 60               # what 2 can be raised to, and then times a number whose square is so small
LOG2_E = math.log2(math.e)


class _Problem:
    """One call: queries (B, G, R, L, D), keys and values (B, G, S, D), the mask, and how the work is cut.

    `heads` are pieces of batches and of heads of keys, `rows` the tiles' queries, `columns` their keys. If all scores
    of a head are one tile, several heads make one piece, so that NumPy is not called for each.
    """

    def __init__(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, *, mask: Any, causal: bool, scale: Any,
                 dropout: float, rng: Any, **others: Any) -> None:
        self.q, self.k, self.v = q, k, v
        self.B, self.G, self.R, self.L, self.D = q.shape
        self.S, self.Dv, self.dtype = v.shape[-2], v.shape[-1], q.dtype
        self.scale = 1 / math.sqrt(self.D) if scale is None else float(scale)
        self.causal, self.dropout, self.rng = causal, dropout, rng
        self.mask = mask
        if mask is not None:                # (…, H or 1, L or 1, S or 1) -> (B, G, R, L, S)
            whole = (1,) * (4 - mask.ndim) + mask.shape
            split = (self.G, self.R) if whole[1] > 1 else (1, 1)
            self.mask = np.broadcast_to(mask.reshape(whole[0], *split, *whole[2:]),
                                        (self.B, self.G, self.R, self.L, self.S))
        rows = min(ROWS, COLUMNS) if causal else ROWS       # so that less of what is not seen is computed
        self.rows, self.columns = (list(pieces(n, size)) for n, size in
                                   ((self.L, max(1, rows // self.R)), (self.S, COLUMNS)))
        self.one_tile = len(self.rows) == len(self.columns) == 1
        n = max(1, ROWS * COLUMNS // (self.R * self.L * self.S)) if self.one_tile else 1
        self.heads = [(b, h) for b in pieces(self.B, max(1, n // self.G)) for h in pieces(self.G, min(n, self.G))]

    def stacked(self, x: np.ndarray, i: slice, scale: float = 1.0, column: Any = None) -> np.ndarray:
        """The rows i of all query heads of a piece, one head after the other, times a number: (b, g, R · l, D); with a
        column more, if one is given."""
        x = x[..., i, :]                                                                # (b, g, R, l, D)
        out = _copied(x, self.dtype, column)
        if scale != 1:
            out[..., :x.shape[-1]] *= scale
        return out.reshape(*x.shape[:2], -1, out.shape[-1])

    def summed(self, like: np.ndarray, width: int) -> Any:
        """Where the tiles' parts of a gradient add up, a row for each of `like`; a single tile's part is all of it."""
        return None if self.one_tile else np.zeros((*like.shape[:-1], width), self.dtype)

    def sees_nothing(self, i: slice, j: slice) -> bool:
        return self.causal and j.start >= i.stop

    def masked(self, scores: np.ndarray, at: tuple[slice, slice], i: slice, j: slice) -> np.ndarray | None:
        """Adds a float mask to a tile of scores, and returns what may be seen in it, None if that is all."""
        keep: Any = None
        if self.mask is not None:
            mask = self.mask[at][..., i, j]                                             # (b, g, R, l, s)
            if mask.dtype != bool:
                tile, times = scores.reshape(mask.shape), np.multiply(mask, LOG2_E, dtype=self.dtype)
                most = np.finfo(self.dtype).max
                np.clip(times, -most, most, out=times, where=np.isfinite(mask))
                tile += times
            else:
                keep = np.ascontiguousarray(mask).reshape(scores.shape)
        if self.causal and j.stop - 1 > i.start:
            past = np.tri(i.stop - i.start, j.stop - j.start, i.start - j.start, dtype=bool)
            past = np.tile(past, (self.R, 1))
            keep = past if keep is None else keep & past
        return keep

    def survivors(self, at: tuple[slice, slice], i: slice) -> np.ndarray:
        """Of the rows i of a piece, which weights dropout leaves: those that the textbook form would draw, since each
        row's place in the stream of random numbers is known. (b, g, R · l, S)."""
        (b, g), R, L, S, l = at, self.R, self.L, self.S, i.stop - i.start
        out = empty((b.stop - b.start, g.stop - g.start, R, l, S), np.bool)
        for one in np.ndindex(out.shape[:3]):
            head = ((b.start + one[0]) * self.G + g.start + one[1]) * R + one[2]
            for row in pieces(l, max(1, 65536 // S)):
                numbers = self.rng.generator((head * L + i.start + row.start) * S).random((row.stop - row.start, S))
                np.greater_equal(numbers, self.dropout, out=out[one][row])
        return out.reshape(*out.shape[:2], R * l, S)


def _copied(x: np.ndarray, dtype: Any, column: Any = None) -> np.ndarray:
    """x, one row after the other in memory, with one column more, if it is given."""
    out = empty((*x.shape[:-1], x.shape[-1] + (column is not None)), dtype)
    out[..., :x.shape[-1]] = x
    if column is not None:
        out[..., -1] = column
    return out


def _small(x: np.ndarray) -> np.ndarray:
    """Of which heads all vectors are so short that weights not yet divided by their sum can multiply them: (b, g, 1,
    1)."""
    return np.vecdot(x, x).max(axis=-1, keepdims=True)[..., None] <= SMALL


def _transposed(x: np.ndarray) -> np.ndarray:
    out = empty((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    out[...] = x.mT
    return out


def _forward(p: _Problem, out: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """Fills in the output, (B, G, R, L, Dv), and returns what `_backward` wants to know: the largest scores and the
    logarithms, to base 2, of the sums of exponentials beyond them, (B, G, R, L) each (as one number they would lose
    digits); or, of heads that are one tile, the tile and what it is to be divided by."""
    tops_and_logs, dropout = np.zeros((2, *out.shape[:-1]), p.dtype), p.dropout
    tiles: list[Any] = [None] * len(p.heads)
    added = p.mask is not None and p.mask.dtype != bool

    @np.errstate(all="ignore")
    def work(n: int) -> None:
        at = p.heads[n]
        k, values = p.k[at], _copied(p.v[at], p.dtype)
        keys = [k.mT if p.one_tile else _transposed(k[..., j, :]) for j in p.columns]   # (b, g, D, s)
        longest = np.sqrt(np.vecdot(k, k).max(axis=-1, keepdims=True))                  # (b, g, 1)
        small = _small(values)
        for i in p.rows:
            queries = p.stacked(p.q[at], i, p.scale * LOG2_E)                           # (b, g, R · l, D)
            safe = (longest * np.sqrt(np.vecdot(queries, queries)) <= SAFE)[..., None] & small & (not added)
            all_safe = safe.all()
            survivors = p.survivors(at, i) if dropout else None
            top: Any = None
            total: Any = None
            sums: Any = None
            for j, columns in zip(p.columns, keys):
                if p.sees_nothing(i, j):
                    break
                tile = empty((*queries.shape[:-1], j.stop - j.start), p.dtype)
                np.matmul(queries, columns, out=tile)                                   # (b, g, R · l, s)
                keep = p.masked(tile, at, i, j)
                if not all_safe:
                    if keep is not None:
                        np.copyto(tile, -np.inf, where=~keep)
                    new = np.maximum.reduce(tile, axis=-1, keepdims=True, initial=np.finfo(p.dtype).min)
                    new[safe] = 0
                    if top is not None:
                        np.maximum(new, top, out=new)
                        np.exp2(top - new, out=top)
                        total *= top
                        sums *= top
                    top = new
                    tile -= top
                np.exp2(tile, out=tile)
                if keep is not None and all_safe:
                    tile *= keep
                part = tile @ np.ones((tile.shape[-1], 1), p.dtype)                     # (b, g, R · l, 1)
                left = tile if survivors is None else tile * survivors[..., j]
                part_sums = np.matmul(left, values[..., j, :])                          # (b, g, R · l, Dv)
                if total is None:
                    total, sums = part, part_sums
                else:
                    total += part
                    sums += part_sums
            inverse: Any = np.where(total > 0, 1 / total, total)                        # 0 where nothing is seen
            sums *= inverse if dropout == 0 else inverse / (1 - dropout)
            place = out[at][..., i, :]
            place[...] = sums.reshape(place.shape)
            if p.one_tile:
                tiles[n] = tile, inverse, small
            else:
                logs = np.where(total == 0, np.inf, np.log2(total))
                for whole, part in zip(tops_and_logs, (np.zeros_like(logs) if top is None else top, logs)):
                    whole[at][..., i] = part.reshape(place.shape[:-1])

    each(work, range(len(p.heads)), p.B * p.G * p.R * p.L * p.S)
    return tops_and_logs, tiles


def _backward(p: _Problem, g: np.ndarray, out: np.ndarray, kept: Any, dq: np.ndarray, dk: np.ndarray, dv: np.ndarray
              ) -> None:
    """Fills in the three gradients, in the shapes of the inputs, given g = dL/d out."""
    ((tops, logs), tiles), dropout = kept, p.dropout
    in_product = np.where(tops == 0, -logs, 0)              # what the product with the keys can subtract on its own

    @np.errstate(all="ignore")
    def work(n: int) -> None:
        at = p.heads[n]
        keys, values = _copied(p.k[at], p.dtype, 1), _copied(p.v[at], p.dtype, 1)       # (b, g, S, D + 1)
        finite = p.one_tile or np.isfinite(np.vecdot(keys, keys)).all()
        dkeys, dvalues = (p.summed(keys, width) for width in (p.D, p.Dv))
        # dL/d score = weight · (dL/d weight − D), where D = Σ weight · dL/d weight over the row, which is Σ g · out.
        minus_d = -np.vecdot(g[at], out[at])                                            # (b, g, R, L)
        for i in p.rows:
            gi = p.stacked(g[at], i)                                                    # (b, g, R · l, Dv)
            column = minus_d[..., i].reshape(gi.shape[:-1])
            weights: Any = None
            if p.one_tile:                  # it was not divided by its sums; if numbers are small enough, g can be
                weights, inverse, small = tiles[n]
                small = small & _small(gi)
                gi *= np.where(small, inverse, 1)
                column *= np.where(small, inverse, 1)[..., 0]
                if not small.all():
                    weights = weights * np.where(small, 1, inverse)
            queries = p.stacked(p.q[at], i, p.scale * LOG2_E, None if p.one_tile else in_product[at][..., i])
            top, log = (x[at][..., i].reshape(*gi.shape[:-1], 1) for x in (tops, logs))
            with_d, survivors = _copied(gi, p.dtype, column), p.survivors(at, i) if dropout else None
            dqi = p.summed(gi, p.D)
            for j in p.columns:
                kj, vj = keys[..., j, :], values[..., j, :]
                if p.sees_nothing(i, j):
                    break
                if not p.one_tile:
                    weights = empty((*gi.shape[:-1], j.stop - j.start), p.dtype)
                    np.matmul(queries, kj.mT, out=weights)                              # log₂ of the weights
                    keep = p.masked(weights, at, i, j)
                    if top.any():
                        weights -= top
                        weights -= np.where(top == 0, 0, log)
                    if keep is not None:
                        np.minimum(weights, 0, out=weights)
                    np.exp2(weights, out=weights)
                    if keep is not None and finite:
                        weights *= keep
                    elif keep is not None:  # 0 · NaN is no 0
                        np.copyto(weights, 0, where=~keep)
                dscores, left = empty(weights.shape, p.dtype), weights
                if survivors is None:
                    np.matmul(with_d, vj.mT, out=dscores)                               # dL/d weight − D
                else:
                    np.matmul(gi, vj[..., :-1].mT, out=dscores)
                    dscores *= survivors[..., j]
                    dscores *= 1 / (1 - dropout)
                    dscores += with_d[..., -1:]
                    left = weights * survivors[..., j]
                    left *= 1 / (1 - dropout)
                dscores *= weights
                products = np.matmul(left.mT, gi), np.matmul(dscores.mT, queries[..., :p.D])
                if p.one_tile:
                    (dvalues, dkeys), dqi = products, np.matmul(dscores, kj[..., :-1])
                else:
                    dvalues[..., j, :] += products[0]
                    dkeys[..., j, :] += products[1]
                    dqi += np.matmul(dscores, kj[..., :-1])
            dqi *= p.scale
            place = dq[at][..., i, :]
            place[...] = dqi.reshape(place.shape)
        dkeys *= 1 / LOG2_E
        dk[at], dv[at] = dkeys, dvalues

    each(work, range(len(p.heads)), p.B * p.G * p.R * p.L * p.S)


# --------------------------------------------------------------------- query, key and value, each an array of its own

def _apart(query: Any, key: Any, value: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(..., H, L, D), (..., G, S, D) as (B, G, R, L, D), (B, G, S, D)."""
    k, v = (x.reshape((1,) * (4 - x.ndim) + x.shape if x.ndim < 4 else (-1, *x.shape[-3:])) for x in (key, value))
    return query.reshape(*k.shape[:2], -1, *query.shape[-2:]), k, v


def _fits(query: Any, key: Any, value: Any, *, grouped: bool, **options: Any) -> bool:
    if not 2 <= query.ndim == key.ndim == value.ndim or key.shape[:-1] != value.shape[:-1] or not (
            query.shape[-1] == key.shape[-1] and query.size and value.size):
        return False
    if query.shape[:-2] != key.shape[:-2] and not (grouped and query.ndim > 2 and query.shape[:-3] == key.shape[:-3] and
                                                   query.shape[-3] % key.shape[-3] == 0):
        return False
    return _options_fit((*query.shape[:-1], key.shape[-2]), **options)


def _options_fit(scores: tuple[int, ...], *, mask: Any, causal: bool, scale: Any, dropout: float, rng: Any) -> bool:
    """Whether there are scores enough to be worth it, a number for a scale, a way back to each random number, and a
    mask that can be read in one way only."""
    return (scores[-1] > 1 and math.prod(scores) >= FEWEST and (scale is None or isinstance(scale, (int, float))) and
            (dropout == 0 or (0 < dropout < 1 and getattr(rng, "in_parts", False))) and
            (mask is None or (isinstance(mask, np.ndarray) and mask.dtype.kind in "bf" and
                              0 < mask.ndim <= len(scores) < 5 and
                              all(m in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1])))))


def _attention(query: Any, key: Any, value: Any, **options: Any) -> tuple[np.ndarray, Any]:
    q, k, v = _apart(query, key, value)
    out = empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    kept = _forward(_Problem(q, k, v, **options), out)
    return out.reshape(*query.shape[:-1], v.shape[-1]), (out, kept)


def _attention_backward(wanted: Any, g: Any, kept: Any, query: Any, key: Any, value: Any, **options: Any
                        ) -> dict[str, np.ndarray]:
    """dL/dV = Pᵀ g, dL/dZ = P ∘ (g Vᵀ − Σ g ∘ out), dL/dQ = scale · dL/dZ K, dL/dK = scale · (dL/dZ)ᵀ Q, where P are
    the weights and Z the scores"""
    (q, k, v), (out, kept) = _apart(query, key, value), kept
    dq, dk, dv = (empty(x.shape, q.dtype) for x in (q, k, v))
    _backward(_Problem(q, k, v, **options), g.reshape(out.shape), out, kept, dq, dk, dv)
    return {"query": dq.reshape(query.shape), "key": dk.reshape(key.shape), "value": dv.reshape(value.shape)}


attention = Kernel(("query", "key", "value"), _fits, _attention, _attention_backward)

# -------------------------------------------------------------- query, key and value side by side, as one product made

def _views(qkv: np.ndarray, num_heads: int, num_kv_heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(..., L, (H + 2 G) D) as (B, G, R, L, D), (B, G, L, D), (B, G, L, D), which look into it."""
    H, G, L = num_heads, num_kv_heads, qkv.shape[-2]
    heads = qkv.reshape(-1, L, H + 2 * G, qkv.shape[-1] // (H + 2 * G)).swapaxes(1, 2)          # (B, H + 2 G, L, D)
    return (heads[:, :H].reshape(len(heads), G, H // G, L, -1), heads[:, H:H + G], heads[:, H + G:])


def _packed_fits(qkv: Any, *, num_heads: int, num_kv_heads: int, **options: Any) -> bool:
    return (qkv.ndim > 1 and qkv.size > 0 and qkv.flags.c_contiguous and num_kv_heads > 0 and
            num_heads % num_kv_heads == 0 and qkv.shape[-1] % (num_heads + 2 * num_kv_heads) == 0 and
            _options_fit((*qkv.shape[:-2], num_heads, qkv.shape[-2], qkv.shape[-2]), **options))


def _packed(qkv: Any, *, num_heads: int, num_kv_heads: int, **options: Any) -> tuple[np.ndarray, Any]:
    q, k, v = _views(qkv, num_heads, num_kv_heads)
    B, G, R, L, D = q.shape
    out = empty((B, L, G, R, D), q.dtype)                   # the heads' outputs side by side
    kept = _forward(_Problem(q, k, v, **options), out.transpose(0, 2, 3, 1, 4))
    return out.reshape(*qkv.shape[:-1], G * R * D), (out, kept)


def _packed_backward(wanted: Any, g: Any, kept: Any, qkv: Any, *, num_heads: int, num_kv_heads: int, **options: Any
                     ) -> dict[str, np.ndarray]:
    """dL/dV = Pᵀ g, dL/dZ = P ∘ (g Vᵀ − Σ g ∘ out), dL/dQ = scale · dL/dZ K, dL/dK = scale · (dL/dZ)ᵀ Q, where P are
    the weights and Z the scores"""
    out, kept = kept
    dqkv = empty(qkv.shape, qkv.dtype)
    problem = _Problem(*_views(qkv, num_heads, num_kv_heads), **options)
    g, out = (x.reshape(out.shape).transpose(0, 2, 3, 1, 4) for x in (g, out))
    _backward(problem, g, out, kept, *_views(dqkv, num_heads, num_kv_heads))
    return {"qkv": dqkv}


packed_attention = Kernel(("qkv",), _packed_fits, _packed, _packed_backward)
