"""Floor 4. Attention, the subject of this package, composed of matmul, softmax and reshape.

A Python dict is a hard lookup: a query equals one key, and the answer is its value. Attention is the soft one.
The query is compared with all keys, by dot products; softmax makes the scores weights that sum to 1; the
answer is the weighted sum of the values. It can be differentiated, so what to look for, what to offer and what
to tell can all be learned.

Letters in shapes: B batch, H heads, L queries, S keys, E model width, D = E / H head width.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .engine import Value, operand
from .errors import ShapeError, broadcast_fault
from .ops import at_least_single, expand_dims, matmul, softmax, stack
from .ops import dropout as _dropout
from .scope import scope


@scope("attention")                         # names this part for pictures, and changes no number
def attention(query: Any, key: Any, value: Any, mask: Any = None, *, causal: bool = False,
              scale: Any = None, dropout: float = 0.0, rng: Any = None) -> tuple[Any, Any]:
    """softmax(Q Kᵀ / √D) V: (..., L, D), (..., S, D), (..., S, Dv) -> output (..., L, Dv), weights (..., L, S).

    Of two independent vectors with components of mean 0 and variance 1, the dot product has variance D. Without
    the division by √D the scores have standard deviation √D, softmax saturates, and its gradient vanishes.
    `scale=None` is 1/√D; `scale=1.0` leaves the scores as they are.

    A boolean `mask`, broadcast to (..., L, S), is True where a query may attend; a query that may attend to
    nothing gets 0. A float mask is added to the scores. `causal=True` lets query i see keys 0 … i. What is
    masked has weight 0, but must be finite, since 0 · NaN is NaN. `dropout` acts on the weights, with `rng`
    (there is no training flag: give 0 in evaluation); the weights returned are those before it. What does not
    fit is a ShapeError, an integer mask a TypeError. (Vaswani et al. 2017, §3.2.1, eq. 1.)

    >>> keys, values = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[10.0], [20.0]])
    >>> output, weights = attention(np.array([[0.0, 50.0]]), keys, values)      # it looks for the second key
    >>> output.round(3), weights.round(3)
    (array([[20.]]), array([[0., 1.]]))
    """
    query, key, value = _arrays(query, key, value)
    _check_shapes(query, key, value)
    (L, D), S = query.shape[-2:], key.shape[-2]
    if causal and L != S:
        raise ValueError(f"attention: causal=True with {L} queries and {S} keys leaves open which are aligned: "
                         f'give mask=causal_mask({L}, {S}, align="upper_left") or "lower_right"')
    scale = 1 / math.sqrt(D) if scale is None else scale if isinstance(scale, Value) else float(scale)
    with scope("scale"):
        scaled = at_least_single(query) * scale     # (..., L, D); before the product, while the numbers are small
    with scope("scores"):
        scores = scaled @ at_least_single(key).mT   # (..., L, S)
        scores, keep = _masked(scores, mask, causal_mask(L, S) if causal else None)
    weights = softmax(scores, where=keep)
    weights = weights.astype(np.float16) if query.dtype == key.dtype == np.float16 else weights
    with scope("weigh"):
        return _dropout(weights, dropout, rng=rng) @ value, weights


def _arrays(*inputs: Any) -> list[Any]:
    """The inputs as Tensors or arrays, so that they have a shape."""
    return [x if isinstance(x, Value) else np.asarray(operand(x)) for x in inputs]


def _check_shapes(query: Any, key: Any, value: Any) -> None:
    fault = next((f"the {name} must be (..., length, width), width at least 1; one vector is x[None, :]" for name, x in
                  (("query", query), ("key", key), ("value", value)) if x.ndim < 2 or not x.shape[-1]), None)
    if not fault and query.shape[-1] != key.shape[-1]:
        fault = f"widths {query.shape[-1]} and {key.shape[-1]} differ, but queries are compared with keys; project them"
    if not fault and key.shape[-2] != value.shape[-2]:
        fault = f"there are {key.shape[-2]} keys and {value.shape[-2]} values, but each key has one value"
    batches = {x.shape[:-2] for x in (query, key, value)}
    if fault := fault or (broadcast_fault([(*batch, 1, 1) for batch in batches]) if len(batches) > 1 else None):
        raise ShapeError(f"attention: query {query.shape}, key {key.shape}, value {value.shape}: {fault}")


def _masked(scores: Any, mask: Any, past: np.ndarray | None) -> tuple[Any, Any]:
    """The scores, with a float mask added, and which of them take part, by a boolean one and by the causal one."""
    if mask is None:
        return scores, past
    mask = fitting(mask, scores.shape)
    if mask.dtype == bool:
        return scores, operand(mask) if past is None else operand(mask) & past
    with np.errstate(over="ignore"):        # too large a negative number for a short dtype is −∞, as intended
        return scores + mask.astype(scores.dtype), past


def fitting(mask: Any, scores: tuple[int, ...]) -> Any:
    """The mask, if it can be read in one way only and broadcasts to scores of that shape."""
    (mask,) = _arrays(mask)
    if mask.dtype.kind not in "bf":
        raise TypeError(f"attention: a mask of dtype {mask.dtype} could be read two ways: give a boolean one, True = "
                        "may attend (mask == 1), or a float one, which is added to the scores")
    if not 0 < mask.ndim <= len(scores) or any(m not in (1, n) for m, n in zip(mask.shape[::-1], scores[::-1])):
        raise ShapeError(f"attention: mask {mask.shape} does not broadcast to the scores, {scores}, (..., L, S). "
                         "If it tells which keys of each sequence are padding, (B, S), make it padding_mask(lengths, "
                         "S), or (S,) of one; True = may attend, the opposite of a key_padding_mask in PyTorch")
    return mask


def causal_mask(L: int, S: int | None = None, *, align: str | None = None) -> np.ndarray:
    """Boolean (L, S): query i may attend to keys 0 … i, so that no position sees what comes after it.

    If L ≠ S, say which ends are aligned: "upper_left", query 0 with key 0, or "lower_right", the last query
    with the last key, as when the new tokens' queries meet cached keys.

    >>> causal_mask(2, 3, align="lower_right")
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    S = L if S is None else S
    if align not in ("upper_left", "lower_right") and not (align is None and L == S):
        raise ValueError(f'causal_mask: {L} queries, {S} keys: give align="upper_left" or "lower_right", not {align!r}')
    return np.tri(L, S, S - L if align == "lower_right" else 0, dtype=bool)


def padding_mask(lengths: Any, S: int) -> np.ndarray:
    """Boolean (B, 1, 1, S): the keys of sequence b that exist, the first `lengths[b]`, for all heads and queries.

    >>> padding_mask([1, 3], 3)[:, 0, 0]
    array([[ True, False, False],
           [ True,  True,  True]])
    """
    lengths = np.asarray(operand(lengths))
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or np.any((lengths < 0) | (lengths > S)):
        raise ValueError(f"padding_mask: lengths must be integers from 0 to S={S}, one per sequence, not {lengths!r}")
    return np.arange(S) < lengths[:, None, None, None]


@scope("multi_head_attention")
def multi_head_attention(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, num_heads: int, mask: Any = None, *,
                         context: Any = None, causal: bool = False, scale: Any = None) -> Any:
    """Concat(head₁ … head_H) W_o, headₕ = attention(X W_qₕ, C W_kₕ, C W_vₕ): (..., L, E) -> (..., L, E).

    `w_q`, `w_k`, `w_v` hold one matrix (E, D) per head, as a list or as an array (H, E, D); `w_o` is (H·D, E).
    Heads can look for different things at once, which one weighted average cannot. Keys and values are made
    of `context` C, (..., S, E), in cross-attention, and of x itself in self-attention. The scale is 1/√D, with
    the width of a head. The mask broadcasts to (..., H, L, S). (Vaswani et al. 2017, §3.2.2.)

    >>> x, one = np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2)
    >>> heads = [one[:, :1], one[:, 1:]]                    # head h sees feature h
    >>> multi_head_attention(x, heads, heads, heads, one, 2, mask=np.eye(2, dtype=bool))
    array([[1., 2.],
           [3., 4.]])
    """
    source = "x" if context is None else "context"
    x, context = _arrays(x, x if context is None else context)
    with scope("project"):                                  # (..., L, E) -> (..., H, L, D)
        query = _project("x", x, "w_q", w_q, num_heads)
        key = _project(source, context, "w_k", w_k, num_heads)
        value = _project(source, context, "w_v", w_v, num_heads)
    output, _ = attention(query, key, value, mask, causal=causal, scale=scale)      # (..., H, L, D)
    with scope("merge"):
        output = output.swapaxes(-3, -2)                                            # (..., L, H, D)
        output = output.reshape((*output.shape[:-2], output.shape[-2] * output.shape[-1]))     # (..., L, H·D)
        return matmul(output, w_o)                                                  # (..., L, E)


def _project(source: str, x: Any, name: str, w: Any, num_heads: int) -> Any:
    """x W for each head: (..., L, E) -> (..., H, L, D)."""
    w = stack(w) if isinstance(w, (list, tuple)) else w
    if np.ndim(w) != 3 or np.shape(w)[0] != num_heads or x.ndim < 2 or x.shape[-1] != np.shape(w)[1]:
        raise ShapeError(f"multi_head_attention: {source} {x.shape}, {name} {np.shape(w)}, {num_heads} heads: {name} "
                         "must be (H, E, D), one (E, D) per head. For one (E, H·D), pass "
                         "w.reshape(E, H, D).swapaxes(0, 1)")
    return matmul(x if x.ndim == 2 else expand_dims(x, axis=-3), w)     # (L, E) broadcasts to the heads as it is
