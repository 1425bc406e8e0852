"""Two whole models: a GPT, which goes on with a text, and an encoder-decoder, which makes one sequence of another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import functional as F
from ..engine import no_grad, operand
from ..errors import ShapeError
from ..ops import softmax
from .attention import KVCache
from .layers import Dropout, Embedding, LayerNorm, size
from .module import Module
from .positions import ALiBi, LearnedPositions, Rotary, SinusoidalPositions
from .transformer import TransformerDecoder, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


class GPT(Module):
    """A decoder-only transformer: token ids (B, L) -> logits of the next token at each place, (B, L, vocab_size).

    Tokens become vectors, know their positions, pass through pre-norm layers in which each sees only those before it,
    and are compared with all tokens' vectors: the output matrix is the embedding (tied). `positions` is one of
    learned, sinusoidal, rotary, alibi, none. Weights start normal with standard deviation 0.02, those that add to the
    stream smaller by √(2 · layers), as GPT-2's; sinusoids, which would drown such tokens, are scaled by 0.02 too. Ids
    that are no tokens are an IndexError, more than `max_len` tokens a ShapeError. All sequences of a batch have one
    length; there is no padding mask. `caches`, for decoding, is a list of one `KVCache` for each layer; `generate`
    makes them itself. (Radford et al. 2019.)

    >>> model = GPT(vocab_size=10, max_len=8, d_model=16, num_heads=2, num_layers=2, rng=0)
    >>> model([[1, 2, 3]]).shape
    (1, 3, 10)
    """

    def __init__(self, vocab_size: int, max_len: int, d_model: int, num_heads: int, num_layers: int, *,
                 dropout: float = 0.0, positions: str = "learned", num_kv_heads: int | None = None, dtype: Any = None,
                 rng: Any = None) -> None:
        rng = np.random.default_rng(rng)
        if positions not in POSITIONS:
            raise ValueError(f"GPT: positions={positions!r}; it is one of {', '.join(POSITIONS)}")
        num_layers = size("GPT", "num_layers", num_layers)
        self.max_len = size("GPT", "max_len", max_len)
        self.tokens = Embedding(vocab_size, d_model, dtype=dtype, rng=rng)
        self.tokens.weight.data = self.tokens.weight.data * 0.02
        self.positions: Module | None = (
            LearnedPositions(max_len, d_model, dtype=dtype, rng=rng) if positions == "learned" else
            SinusoidalPositions(d_model, scale=0.02) if positions == "sinusoidal" else None)
        inside = Rotary() if positions == "rotary" else ALiBi() if positions == "alibi" else None
        self.dropout = Dropout(dropout, rng=rng)
        self.blocks = TransformerEncoder(
            [TransformerEncoderLayer(d_model, num_heads, 4 * d_model, dropout, "gelu_tanh", norm_first=True,
                                     num_kv_heads=num_kv_heads, positions=inside, dtype=dtype, rng=rng)
             for _ in range(num_layers)], LayerNorm(d_model, dtype=dtype))
        for name, parameter in self.blocks.named_parameters():
            if name.endswith("bias"):
                parameter.data = np.zeros(parameter.shape)
            elif parameter.ndim == 2:
                adds = name.endswith(("out_proj.weight", "linear2.weight"))
                parameter.data = rng.normal(0, 0.02 / math.sqrt(2 * num_layers if adds else 1), parameter.shape)

    def forward(self, ids: Any, *, caches: list[KVCache] | None = None) -> Any:
        ids = _sequences("GPT", ids)
        start = len(caches[0]) if caches else 0
        if start + ids.shape[1] > self.max_len:
            raise ShapeError(f"GPT: {start + ids.shape[1]} tokens, but max_len is {self.max_len}; shorten the "
                             "sequence, or make a model for longer ones")
        x = self.tokens(ids)                                                            # (B, L, E)
        x = self.dropout(self.positions(x, start) if self.positions else x)
        return F.linear(self.blocks(x, causal=True, caches=caches), self.tokens.weight)  # (B, L, V)

    def generate(self, ids: Any, new: int, *, temperature: float = 1.0, rng: Any = None,
                 cache: bool = True) -> np.ndarray:
        """Go on with each of the sequences by `new` tokens: ids (B, L) -> (B, L + new).

        Each token is drawn from softmax(logits / temperature); at temperature 0 it is the likeliest one. With the
        cache, a step computes one new row; without, all again: the tokens are the same. Only the last `max_len` tokens
        are seen. Dropout is off meanwhile.
        """
        ids, rng = _sequences("GPT.generate", ids), np.random.default_rng(rng)
        if not ids.shape[1]:
            raise ShapeError("GPT.generate: there must be a token to go on from")
        if not temperature >= 0 or new < 0:
            raise ValueError(f"GPT.generate: temperature={temperature!r}, new={new!r}; neither can be negative")
        with no_grad(), evaluation(self):
            caches: list[KVCache] = []
            for _ in range(new):
                seen = ids[:, -self.max_len:]
                if not cache or not caches or len(caches[0]) == self.max_len:           # from the start
                    caches = [KVCache() for _ in self.blocks.layers]
                    rows = seen
                else:
                    rows = ids[:, -1:]
                logits = self(rows, caches=caches if cache else None)[:, -1].numpy()
                ids = np.concatenate([ids, drawn(logits, temperature, rng)[:, None]], axis=1)
        return ids


class EncoderDecoder(Module):
    """A transformer as in the paper: source ids (B, S), target ids (B, L) -> logits of the next target, (B, L, V).

    The encoder reads the source, each token seeing all others; the decoder writes the target from left to right. One
    embedding serves both and the output; its vectors are multiplied by √d_model, since it starts with standard
    deviation 1/√d_model; positions are sinusoids. Ids equal to `pad` are not attended to in the source. (Vaswani et
    al. 2017.)

    >>> model = EncoderDecoder(vocab_size=10, d_model=16, num_heads=2, num_layers=1, rng=0)
    >>> model([[1, 2, 3]], [[0, 1]]).shape
    (1, 2, 10)
    """

    def __init__(self, vocab_size: int, d_model: int, num_heads: int, num_layers: int, *,
                 dim_feedforward: int | None = None, dropout: float = 0.0, norm_first: bool = True,
                 pad: int | None = None, dtype: Any = None, rng: Any = None) -> None:
        rng, width = np.random.default_rng(rng), dim_feedforward or 4 * d_model
        self.tokens, self.pad = Embedding(vocab_size, d_model, dtype=dtype, rng=rng), pad
        self.tokens.weight.data = self.tokens.weight.data / math.sqrt(d_model)
        self.positions, self.dropout = SinusoidalPositions(d_model), Dropout(dropout, rng=rng)
        encoders, decoders = ([kind(d_model, num_heads, width, dropout, norm_first=norm_first, dtype=dtype, rng=rng)
                               for _ in range(size("EncoderDecoder", "num_layers", num_layers))]
                              for kind in (TransformerEncoderLayer, TransformerDecoderLayer))
        norms = [LayerNorm(d_model, dtype=dtype) if norm_first else None for _ in range(2)]
        self.encoder, self.decoder = TransformerEncoder(encoders, norms[0]), TransformerDecoder(decoders, norms[1])

    def _embed(self, ids: np.ndarray, start: int = 0) -> Any:
        return self.dropout(self.positions(self.tokens(ids) * math.sqrt(self.tokens.weight.shape[1]), start))

    def encode(self, source: Any) -> tuple[Any, Any]:
        """The memory (B, S, E), and its mask, None if there is no padding."""
        source = _sequences("EncoderDecoder", source)
        mask = None if self.pad is None else (source != self.pad)[:, None, None, :]
        return self.encoder(self._embed(source), mask), mask

    def decode(self, target: Any, memory: Any, memory_mask: Any = None, *,
               caches: list[tuple[KVCache, KVCache]] | None = None) -> Any:
        """The logits at each place of the target, which sees the places before it, and the memory."""
        x = self._embed(_sequences("EncoderDecoder", target), len(caches[0][0]) if caches else 0)
        x = self.decoder(x, memory, memory_mask=memory_mask, caches=caches)
        return F.linear(x, self.tokens.weight)

    def forward(self, source: Any, target: Any) -> Any:
        return self.decode(target, *self.encode(source))

    def generate(self, source: Any, length: int, *, start: int, cache: bool = True) -> np.ndarray:
        """The likeliest target, token by token, after the token `start`: source (B, S) -> (B, length)."""
        with no_grad(), evaluation(self):
            memory, mask = self.encode(source)
            ids = np.full((memory.shape[0], 1), start)
            caches = [(KVCache(), KVCache()) for _ in self.decoder.layers] if cache else None
            for _ in range(length):
                logits = self.decode(ids[:, -1:] if cache else ids, memory, mask, caches=caches)[:, -1].numpy()
                ids = np.concatenate([ids, drawn(logits, 0.0, None)[:, None]], axis=1)
        return ids[:, 1:]


class evaluation:
    """Inside, the module is in evaluation; afterwards each part is as it was."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __enter__(self) -> None:
        self.before = [(module, module.training) for _, module in self.module.named_modules()]
        self.module.eval()

    def __exit__(self, *exception: object) -> None:
        for module, training in self.before:
            module.training = training


def drawn(logits: np.ndarray, temperature: float, rng: Any) -> np.ndarray:
    """A class for each row, (B, C) -> (B,): drawn from softmax(logits / temperature), at 0 the likeliest."""
    if not np.isfinite(logits).all():
        raise ValueError("generate: a logit is not finite; are the weights?")
    if temperature == 0:
        return logits.argmax(axis=-1)
    wide = logits.astype(np.float64)
    sums = softmax((wide - wide.max(axis=-1, keepdims=True)) / max(temperature, 1e-100)).cumsum(axis=-1)
    return (sums < rng.random((len(logits), 1)) * sums[:, -1:]).sum(axis=-1)


def _sequences(owner: str, ids: Any) -> np.ndarray:
    try:
        ids = np.asarray(operand(ids))
    except ValueError:
        raise ShapeError(f"{owner}: the sequences of a batch must have one length") from None
    if not ids.size or ids.dtype.kind == "u":
        ids = ids.astype(np.intp)           # an empty list is of floats, and unsigned numbers go with no others
    if ids.ndim != 2:
        raise ShapeError(f"{owner}: ids {ids.shape}; they must be (B, L), a row for each sequence: one is ids[None]")
    return ids
