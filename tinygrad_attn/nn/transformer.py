"""Transformer layers: attention lets tokens exchange, a small network works on each alone, and both add to what was
there.

With `norm_first` each part sees normalised input, and the path from the loss to the first layer is a plain sum
(pre-norm); without, the sum itself is normalised, as in the paper (post-norm). Batch comes first everywhere. Parameters
have the names of PyTorch's layers. Letters in shapes: B batch, L and S lengths, E width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from .attention import KVCache, MultiHeadAttention
from .layers import Dropout, LayerNorm, Linear, activation_named
from .module import Module
from .positions import ALiBi, Rotary


class _Layer(Module):
    """What encoder and decoder layers share; a decoder layer has an attention to the memory besides."""

    _memory = False

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", *, layer_norm_eps: float = 1e-5, norm_first: bool = False,
                 num_kv_heads: int | None = None, positions: Rotary | ALiBi | None = None, dtype: Any = None,
                 rng: Any = None) -> None:
        rng, owner = np.random.default_rng(rng), type(self).__name__
        self.self_attn = MultiHeadAttention(d_model, nhead, dropout=dropout, num_kv_heads=num_kv_heads,
                                            positions=positions, dtype=dtype, rng=rng)
        if self._memory:
            self.multihead_attn = MultiHeadAttention(d_model, nhead, dropout=dropout, num_kv_heads=num_kv_heads,
                                                     dtype=dtype, rng=rng)
        self.linear1 = Linear(d_model, dim_feedforward, dtype=dtype, rng=rng)
        self.linear2 = Linear(dim_feedforward, d_model, dtype=dtype, rng=rng)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps, dtype=dtype) for _ in range(2))
        if self._memory:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, dtype=dtype)
        self.dropout, self.activation = Dropout(dropout, rng=rng), activation_named(owner, activation)
        self.norm_first = norm_first

    def _feed_forward(self, x: Any) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _add(self, x: Any, norm: Module, part: Any) -> Any:
        """x + part(norm(x)), or norm(x + part(x))."""
        return x + self.dropout(part(norm(x))) if self.norm_first else norm(x + self.dropout(part(x)))

    def facts(self) -> str:
        return "norm_first" if self.norm_first else ""


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each added to its input: (B, L, E) -> (B, L, E).

    `mask` (True = may attend) and `causal` are those of the attention; `cache` is for decoding with `causal=True`. The
    activation is "relu", "gelu", "gelu_tanh", "silu", "tanh" or a function. `num_kv_heads` and `positions` go to the
    attention. (Vaswani et al. 2017, §3.1; Xiong et al. 2020 for pre-norm.)

    >>> layer = TransformerEncoderLayer(8, 2, dim_feedforward=16, rng=0)
    >>> layer.eval()(np.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def forward(self, x: Any, mask: Any = None, *, causal: bool = False, cache: KVCache | None = None) -> Any:
        x = self._add(x, self.norm1, lambda x: self.self_attn(x, mask=mask, causal=causal, cache=cache,
                                                              need_weights=False)[0])
        return self._add(x, self.norm2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Causal self-attention, then attention to `memory`, then a feed-forward network: (B, L, E), (B, S, E) -> (B, L,
    E).

    A decoder writes one token after the other, and looks at what the encoder read, the memory. `mask` is for the
    self-attention, `memory_mask` for the other, `padding_mask(lengths, S)` for example. `caches` are two, for the
    self-attention and for the memory. (Vaswani et al. 2017, §3.1.)

    >>> layer = TransformerDecoderLayer(8, 2, dim_feedforward=16, rng=0)
    >>> layer.eval()(np.ones((1, 3, 8)), np.ones((1, 5, 8))).shape
    (1, 3, 8)
    """

    _memory = True

    def forward(self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None, *, causal: bool = True,
                caches: tuple[KVCache, KVCache] | None = None) -> Any:
        own, others = caches or (None, None)
        x = self._add(x, self.norm1, lambda x: self.self_attn(x, mask=mask, causal=causal, cache=own,
                                                              need_weights=False)[0])
        x = self._add(x, self.norm2, lambda x: self.multihead_attn(x, memory, mask=memory_mask, cache=others,
                                                                   need_weights=False)[0])
        return self._add(x, self.norm3, self._feed_forward)


def several(layers: Any) -> list[Module]:
    """The layers of a stack."""
    if not isinstance(layers, (list, tuple)) or not all(isinstance(layer, Module) for layer in layers):
        raise TypeError("a stack is made of a list of layers, each with its own start: [TransformerEncoderLayer(...) "
                        "for _ in range(6)]")
    return list(layers)


def with_caches(layers: Sequence[Module], caches: Sequence[Any] | None) -> Iterable[tuple[Module, Any]]:
    """Each layer and what it keeps."""
    if caches is not None and len(caches) != len(layers):
        raise ValueError(f"there are {len(layers)} layers and {len(caches)} caches; each layer needs its own")
    each = [id(cache) for item in caches or () for cache in (item if isinstance(item, tuple) else (item,))]
    if len(set(each)) < len(each):
        raise ValueError("one cache is given to several layers; each needs its own: [KVCache() for _ in layers]")
    return zip(layers, caches if caches is not None else repeat(None))


class TransformerEncoder(Module):
    """Encoder layers one after the other, and a norm at the end, which pre-norm layers need. `caches`, for decoding
    with `causal=True`, is a list of one `KVCache` for each layer.

    >>> layers = [TransformerEncoderLayer(8, 2, 16, rng=i) for i in range(2)]
    >>> TransformerEncoder(layers, norm=LayerNorm(8)).eval()(np.ones((1, 3, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, layers: Sequence[Module], norm: Module | None = None) -> None:
        self.layers, self.norm = several(layers), norm

    def forward(self, x: Any, mask: Any = None, *, causal: bool = False,
                caches: Sequence[KVCache] | None = None) -> Any:
        for layer, cache in with_caches(self.layers, caches):
            x = layer(x, mask, causal=causal, cache=cache)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Decoder layers one after the other, and a norm at the end. `caches`, for decoding, is a list of one pair of
    `KVCache` for each layer.

    >>> layers = [TransformerDecoderLayer(8, 2, 16, rng=i) for i in range(2)]
    >>> TransformerDecoder(layers).eval()(np.ones((1, 3, 8)), np.ones((1, 5, 8))).shape
    (1, 3, 8)
    """

    def __init__(self, layers: Sequence[Module], norm: Module | None = None) -> None:
        self.layers, self.norm = several(layers), norm

    def forward(self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None, *, causal: bool = True,
                caches: Sequence[tuple[KVCache, KVCache]] | None = None) -> Any:
        for layer, pair in with_caches(self.layers, caches):
            x = layer(x, memory, mask, memory_mask, causal=causal, caches=pair)
        return x if self.norm is None else self.norm(x)
