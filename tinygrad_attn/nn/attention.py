"""Multi-head attention as a layer: projections that are learned, around the attention of the floor below.

Letters in shapes: B batch, H heads, G heads of keys and values, L queries, S keys, E width, D = E / H.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import functional as F
from ..attention import attention, causal_mask, fitting
from ..engine import operand
from ..errors import GraphError, ShapeError
from ..grouped import for_query_heads, grouped_attention, merged, packed_attention, split
from ..ops import concatenate, where
from ..scope import scope
from .layers import Linear, array, filled, probability, size, uniform
from .module import Module, Parameter
from .positions import ALiBi, Rotary


class KVCache:
    """The keys and values of the tokens so far, so that the next one costs one row and not all of them again. Each
    layer needs one of its own; a model is given a list of them.

    `keys` and `values` are (B, G, S, D), None while there is nothing; `len()` is S. It is for decoding, under
    `no_grad()`.

    >>> from tinygrad_attn import no_grad
    >>> layer, cache, x = MultiHeadAttention(4, 2, rng=0), KVCache(), np.ones((1, 3, 4))
    >>> with no_grad():
    ...     for i in range(3):
    ...         last, _ = layer(x[:, i:i + 1], causal=True, cache=cache)
    >>> len(cache), np.allclose(last, layer(x, causal=True)[0][:, 2:])
    (3, True)
    """

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None

    def __len__(self) -> int:
        return 0 if self.keys is None else self.keys.shape[-2]

    def with_new(self, key: Any, value: Any) -> tuple[Any, Any]:
        """All keys and values, those of new tokens last; nothing is kept yet."""
        if key.requires_grad or value.requires_grad:
            raise GraphError("KVCache: it holds what was computed before, for decoding, and no graph: wrap the "
                             "decoding in `with no_grad():`")
        if self.keys is not None:
            if self.keys.shape[:-2] != key.shape[:-2]:
                raise ShapeError(f"KVCache: it holds keys {self.keys.shape}, the new ones are {key.shape}; a cache is "
                                 "for one batch of sequences")
            return concatenate([self.keys, key], axis=-2), concatenate([self.values, value], axis=-2)
        return key, value


class MultiHeadAttention(Module):
    """H heads that look things up side by side: (B, L, E), (B, S, kdim), (B, S, vdim) -> (B, L, E), (B, H, L, S).

    Headₕ = attention(Q W_qₕ, K W_kₕ, V W_vₕ), each of width D = E / H; their outputs, side by side, times W_o. The key
    is the query if it is not given, and the value the key: self-attention. Batch comes first; (L, E) works as well.

    `num_kv_heads` G < H makes groups of H / G neighbouring heads share keys and values (grouped-query attention, and
    with 1 multi-query), which makes a cache H / G times smaller. `positions`, a `Rotary` or an `ALiBi`, are for
    self-attention. The mask is as in `attention`, boolean, True = may attend, or float, added to the scores; (L, S),
    (B, 1, 1, S) from `padding_mask`, or anything that broadcasts to (B, H, L, S). With a `cache`, self-attention
    appends the new keys to it, and cross-attention fills it once; `causal=True` then aligns the last query with the
    last key. `dropout` acts on the weights, in training; those returned are before it. `need_weights=False` returns
    None for them, and works in blocks, in which they are never all there.

    Names are PyTorch's: `in_proj_weight` has the rows of W_q, W_k, W_v; with other widths of keys or values there are
    `q_proj_weight`, `k_proj_weight`, `v_proj_weight`; `in_proj_bias`; `out_proj`. What does not fit is a ValueError.
    (Vaswani et al. 2017, §3.2.2; Ainslie et al. 2023 for groups.)

    >>> layer = MultiHeadAttention(8, 2, rng=0)
    >>> output, weights = layer(np.ones((1, 3, 8)), causal=True)
    >>> output.shape, weights[0, 0].numpy().round(2)
    ((1, 3, 8), array([[1.  , 0.  , 0.  ],
           [0.5 , 0.5 , 0.  ],
           [0.33, 0.33, 0.33]]))
    """

    def __init__(self, embed_dim: int, num_heads: int, *, bias: bool = True, dropout: float = 0.0,
                 kdim: int | None = None, vdim: int | None = None, num_kv_heads: int | None = None,
                 positions: Rotary | ALiBi | None = None, dtype: Any = None, rng: Any = None) -> None:
        E, H = size("MultiHeadAttention", "embed_dim", embed_dim), size("MultiHeadAttention", "num_heads", num_heads)
        G = size("MultiHeadAttention", "num_kv_heads", H if num_kv_heads is None else num_kv_heads)
        if E % H:
            raise ValueError(f"MultiHeadAttention: embed_dim={E} cannot be divided among num_heads={H}; each head gets "
                             "E / H features")
        if H % G:
            raise ValueError(f"MultiHeadAttention: num_heads={H} cannot be divided among num_kv_heads={G}; each key "
                             "head serves H / G query heads")
        D = E // H
        if positions is not None and not isinstance(positions, (Rotary, ALiBi)):
            raise TypeError(f"MultiHeadAttention: positions={positions!r}; it is a Rotary() or an ALiBi(). Sinusoidal "
                            "and learned positions are added to the embedding")
        if isinstance(positions, Rotary) and D % 2:
            raise ValueError(f"MultiHeadAttention: {H} heads of width {E} have {D} features each, an odd number, and "
                             "Rotary turns them in pairs")
        self.embed_dim, self.num_heads, self.num_kv_heads, self.positions = E, H, G, positions
        self.kdim = size("MultiHeadAttention", "kdim", E if kdim is None else kdim)
        self.vdim = size("MultiHeadAttention", "vdim", E if vdim is None else vdim)
        self.dropout, self.rng = probability("MultiHeadAttention", dropout), np.random.default_rng(rng)
        rows = (E, G * D, G * D)
        if self.kdim == self.vdim == E:
            self.in_proj_weight = _xavier((sum(rows), E), dtype, self.rng)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                _xavier((n, width), dtype, self.rng) for n, width in zip(rows, (E, self.kdim, self.vdim)))
        self.in_proj_bias = filled((sum(rows),), 0, dtype) if bias else None
        self.out_proj = Linear(E, E, bias=bias, dtype=dtype, rng=self.rng)
        if self.out_proj.bias is not None:
            self.out_proj.bias.data = np.zeros(E)

    def forward(self, query: Any, key: Any = None, value: Any = None, mask: Any = None, *, causal: bool = False,
                scale: float | None = None, need_weights: bool = True, cache: KVCache | None = None
                ) -> tuple[Any, Any]:
        itself = key is None or (key is query and (value is None or value is query))        # self-attention
        query = array(query)
        key = query if itself else array(key)
        value = key if value is None or itself else array(value)
        self._check(query, key, value)
        self._check_use(query, mask, itself, causal, cache)
        start = len(cache) if cache is not None and itself else 0
        if itself and not need_weights and cache is None and not isinstance(self.positions, Rotary) and hasattr(
                self, "in_proj_weight"):
            return self._packed(query, mask, causal, scale), None
        w_q, w_k, w_v = self._projections()
        with scope("project"):
            query = split(F.linear(query, *w_q), self.num_heads)          # (B, L, E) -> (B, H, L, D)
            if cache is not None and not itself and len(cache):
                if (*cache.keys.shape[:-3], len(cache)) != key.shape[:-1]:
                    raise ShapeError(f"MultiHeadAttention: the cache holds keys {cache.keys.shape} of another memory "
                                     f"than {key.shape}; begin a new one")
                key, value = cache.keys, cache.values
            else:
                key = split(F.linear(key, *w_k), self.num_kv_heads)       # (B, S, kdim) -> (B, G, S, D)
                value = split(F.linear(value, *w_v), self.num_kv_heads)
                if isinstance(self.positions, Rotary):
                    key = self.positions(key, start)
                if cache is not None:
                    key, value = cache.with_new(key, value)
            if isinstance(self.positions, Rotary):
                query = self.positions(query, start)
        kept = key, value
        mask, causal = self._mask((*query.shape[:-1], key.shape[-2]), mask, causal, cache is not None and itself)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            if self.num_kv_heads < self.num_heads:                              # (B, G, S, D) -> (B, H, S, D)
                key, value = (for_query_heads(x, query) for x in (key, value))
            output, weights = attention(query, key, value, mask, causal=causal, scale=scale, dropout=dropout,
                                        rng=self.rng)
        else:
            weights, output = None, grouped_attention(query, key, value, mask, causal=causal, scale=scale, grouped=True,
                                                      dropout=dropout, rng=self.rng)
        if cache is not None:               # when nothing can fail any more
            cache.keys, cache.values = kept
        with scope("merge"):
            return self.out_proj(merged(output)), weights                       # (B, H, L, D) -> (B, L, E)

    def _check(self, query: Any, key: Any, value: Any) -> None:
        for name, x, width in (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim)):
            if x.ndim not in (2, 3) or x.shape[-1] != width or x.ndim != query.ndim:
                raise ShapeError(f"MultiHeadAttention: {name} {x.shape}; it must be (B, length, {width}), batch "
                                 f"first, or (length, {width}), and all three alike")
        if query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1]:
            raise ShapeError(f"MultiHeadAttention: query {query.shape}, key {key.shape}, value {value.shape}: the "
                             "batch must be the same, and each key has one value")

    def _check_use(self, query: Any, mask: Any, itself: bool, causal: bool, cache: KVCache | None) -> None:
        """What would give numbers, and not those that are meant."""
        if self.positions is not None and not itself:
            raise ValueError(f"MultiHeadAttention: {type(self.positions).__name__} is for self-attention; between two "
                             "sequences there is no distance: leave key and value out, or make the layer without it")
        if cache is not None and causal and not itself:
            raise ValueError("MultiHeadAttention: causal=True with a cache is for self-attention: leave out key "
                             "and value")
        if cache is not None and itself and not causal and mask is None and query.shape[-2] > 1:
            raise ValueError(f"MultiHeadAttention: of {query.shape[-2]} new tokens, each would see those after it: "
                             "give causal=True, or a mask")
        if cache is not None and len(cache) and mask is not None and np.shape(mask)[-1:] == (1,):
            raise ShapeError(f"MultiHeadAttention: mask {np.shape(mask)} would be repeated for the {len(cache)} keys "
                             "in the cache; it must cover them too")

    def _projections(self) -> list[tuple[Any, Any]]:
        """Weight and bias of the query, the key, and the value."""
        E, n = self.embed_dim, self.num_kv_heads * (self.embed_dim // self.num_heads)
        rows = (slice(0, E), slice(E, E + n), slice(E + n, E + 2 * n))
        weights = ([self.in_proj_weight[part] for part in rows] if hasattr(self, "in_proj_weight") else
                   [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight])
        return [(w, None if self.in_proj_bias is None else self.in_proj_bias[part]) for w, part in zip(weights, rows)]

    def _packed(self, x: Any, mask: Any, causal: bool, scale: float | None) -> Any:
        """Self-attention without weights: all projections are one product, and stay together."""
        with scope("project"):
            qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)           # (B, L, E) -> (B, L, (H + 2 G) D)
        mask, causal = self._mask((*x.shape[:-2], self.num_heads, x.shape[-2], x.shape[-2]), mask, causal, cached=False)
        output = packed_attention(qkv, self.num_heads, self.num_kv_heads, mask, causal=causal, scale=scale,
                                  dropout=self.dropout if self.training else 0.0, rng=self.rng)
        return self.out_proj(output)

    def _mask(self, scores: tuple[int, ...], mask: Any, causal: bool, cached: bool) -> tuple[Any, bool]:
        """One mask of the one that was given and ALiBi; and of the causal one, unless attention itself can do that."""
        L, S = scores[-2:]
        if mask is not None:
            if np.ndim(mask) == 3 and len(scores) == 4:
                raise ShapeError(f"MultiHeadAttention: mask {np.shape(mask)} could be one for each sequence or one for "
                                 "each head: write mask[:, None] for (B, 1, L, S), mask[None] for (1, H, L, S)")
            mask = fitting(mask, scores)
            mask = operand(mask) if mask.dtype == bool else mask
        if isinstance(self.positions, ALiBi):
            bias = self.positions(self.num_heads, L, S)
            mask = bias if mask is None else where(mask, bias, -np.inf) if mask.dtype == bool else mask + bias
        if not causal or L == S:
            return mask, causal
        past = causal_mask(L, S, align="lower_right" if cached else None)
        return (past if mask is None else mask & past if mask.dtype == bool else where(past, mask, -np.inf)), False

    def facts(self) -> str:
        facts = [f"{self.embed_dim}, {self.num_heads}"]
        for name, usual in (("kdim", self.embed_dim), ("vdim", self.embed_dim), ("num_kv_heads", self.num_heads)):
            facts += [f"{name}={getattr(self, name)}"] if getattr(self, name) != usual else []
        facts += [f"dropout={self.dropout:g}"] if self.dropout else []
        return ", ".join(facts)


def _xavier(shape: tuple[int, int], dtype: Any, rng: Any) -> Parameter:
    """Evenly drawn from ±√(6 / (rows + columns)). (Glorot & Bengio 2010.)"""
    return uniform(shape, math.sqrt(6 / sum(shape)), dtype, rng)
