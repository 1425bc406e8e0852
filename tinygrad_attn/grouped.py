"""A side room on floor 4. Attention as layers use it: without weights, so that a kernel can do it in blocks, and with
groups of query heads that share keys and values.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from . import blocked, ops
from .attention import attention, causal_mask
from .errors import ShapeError
from .fused import fused


class Draws:
    """The next n numbers of a generator, which goes on after them: they can be drawn again, in parts, in any order.

    A backward pass in blocks needs, of each block, the weights that dropout left.
    """

    def __init__(self, rng: Any, n: int) -> None:
        rng, n = np.random.default_rng(rng), int(n)
        self.before = copy.deepcopy(rng.bit_generator)
        self.in_parts = isinstance(rng.bit_generator, (np.random.PCG64, np.random.PCG64DXSM))   # one step, one number
        if self.in_parts:
            half = {key: rng.bit_generator.state[key] for key in ("has_uint32", "uinteger")}    # may be left over
            rng.bit_generator.advance(n)                                                        # and is forgotten here
            rng.bit_generator.state = {**rng.bit_generator.state, **half}
        else:
            rng.random(n)

    def generator(self, skipped: int = 0) -> np.random.Generator:
        """At the start, or at a later place."""
        bits = copy.deepcopy(self.before)
        return np.random.Generator(bits.advance(skipped) if skipped else bits)


def _draws(dropout: float, rng: Any, query: tuple[int, ...], key: tuple[int, ...]) -> Any:
    """The numbers that dropout will take, if it takes some; what does not fit is left for attention to say."""
    if rng is None or not 0 < dropout < 1 or len(query) < 2 or len(key) < 2:
        return None if dropout == 0 else rng
    try:
        heads = np.broadcast_shapes(query[:-2], key[:-2])
    except ValueError:
        return rng
    return Draws(rng, math.prod((*heads, query[-2], key[-2])))


def grouped_attention(query: Any, key: Any, value: Any, mask: Any = None, *, causal: bool = False, scale: Any = None,
                      grouped: bool = False, dropout: float = 0.0, rng: Any = None) -> Any:
    """The output of `attention`, for (..., H, L, D), (..., G, S, D), (..., G, S, Dv) -> (..., H, L, Dv).

    With `grouped`, each of the G heads of keys and values serves H / G neighbouring heads of the queries. `causal` with
    L ≠ S aligns query 0 with key 0.
    """
    if dropout != 0:
        L, S = np.shape(query), np.shape(key)
        rng = _draws(dropout, rng, L, (*S[:-3], *L[-3:-2], *S[-2:]) if grouped else S)
    return _grouped_attention(query, key, value, mask=mask, causal=causal, scale=scale, grouped=grouped,
                              dropout=dropout, rng=None if dropout == 0 else rng)


@fused(blocked.attention)
def _grouped_attention(query: Any, key: Any, value: Any, *, mask: Any = None, causal: bool = False, scale: Any = None,
                       grouped: bool = False, dropout: float = 0.0, rng: Any = None) -> Any:
    """softmax(Q Kᵀ · scale) V, for groups of query heads that share keys and values, and without the weights"""
    if grouped and query.shape[:-2] != key.shape[:-2]:
        key, value = for_query_heads(key, query), for_query_heads(value, query)
    if causal and query.shape[-2] != key.shape[-2]:
        past, causal = causal_mask(query.shape[-2], key.shape[-2], align="upper_left"), False
        mask = past if mask is None else mask & past if mask.dtype == bool else ops.where(past, mask, -np.inf)
    return attention(query, key, value, mask, causal=causal, scale=scale, dropout=dropout,
                     rng=rng.generator() if isinstance(rng, Draws) else rng)[0]


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
                                 rng: Any = None) -> Any:
    """`attention` with the signature and meaning of PyTorch's function of this name: output only, (..., L, Dv).

    Long sequences are worked on in blocks, so that memory grows with L and S and not with L · S. (Dao et al. 2022.)
    `is_causal` with L ≠ S aligns query 0 with key 0. With `enable_gqa`, of queries (..., H, L, D) each group of
    H / H_kv neighbouring heads shares one of the H_kv heads of key and value. `rng` is ours, for dropout.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: give attn_mask or is_causal=True, not both")
    return grouped_attention(query, key, value, mask=attn_mask, causal=is_causal, scale=scale, grouped=enable_gqa,
                             dropout=dropout_p, rng=rng)


def packed_attention(qkv: Any, num_heads: int, num_kv_heads: int, mask: Any = None, *, causal: bool = False,
                     scale: Any = None, dropout: float = 0.0, rng: Any = None) -> Any:
    """Self-attention of heads whose queries, keys and values are side by side: (..., L, (H + 2 G) D) -> (..., L, H D).

    First the queries of H heads, then the keys of G, then their values, as one product with stacked weights makes them.
    So there is nothing to copy apart, and one gradient to send back.
    """
    rng = _draws(dropout, rng, *[(*qkv.shape[:-2], num_heads, *qkv.shape[-2:])] * 2)
    return _packed_attention(qkv, num_heads=num_heads, num_kv_heads=num_kv_heads, mask=mask, causal=causal, scale=scale,
                             dropout=dropout, rng=rng)


@fused(blocked.packed_attention)
def _packed_attention(qkv: Any, *, num_heads: int, num_kv_heads: int, mask: Any = None, causal: bool = False,
                      scale: Any = None, dropout: float = 0.0, rng: Any = None) -> Any:
    """softmax(Q Kᵀ · scale) V for each head, where Q, K and V are side by side, and so are the outputs"""
    H, G = num_heads, num_kv_heads
    D, rest = divmod(qkv.shape[-1], H + 2 * G)
    if rest:
        raise ShapeError(f"packed_attention: {qkv.shape} cannot be divided among {H} heads of queries and {G} each of "
                         "keys and values; the last axis must be (H + 2 G) D")
    ends = (slice(0, H * D), slice(H * D, (H + G) * D), slice((H + G) * D, None))
    query, key, value = (split(qkv[..., part], heads) for part, heads in zip(ends, (H, G, G)))
    output = _grouped_attention(query, key, value, mask=mask, causal=causal, scale=scale, grouped=True, dropout=dropout,
                                rng=rng)
    return merged(output)


def split(x: Any, heads: int) -> Any:
    """(..., L, heads · D) -> (..., heads, L, D)"""
    return x.reshape((*x.shape[:-1], heads, x.shape[-1] // heads)).swapaxes(-3, -2)


def merged(x: Any) -> Any:
    """(..., heads, L, D) -> (..., L, heads · D)"""
    x = x.swapaxes(-3, -2)
    return x.reshape((*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def for_query_heads(x: Any, query: Any) -> Any:
    """(..., H_kv, S, D) -> (..., H, S, D), each head repeated for its group of query heads."""
    if x.ndim < 3 or query.ndim < 3 or not x.shape[-3] or query.shape[-3] % x.shape[-3]:
        raise ShapeError(f"scaled_dot_product_attention: query {query.shape} cannot share the heads of {x.shape}; they "
                         "are (..., H, L, D) and (..., H_kv, S, D), with H a multiple of H_kv")
    groups = ops.broadcast_to(x[..., None, :, :], shape=(*x.shape[:-2], query.shape[-3] // x.shape[-3], *x.shape[-2:]))
    return groups.reshape((*x.shape[:-3], query.shape[-3], *x.shape[-2:]))
