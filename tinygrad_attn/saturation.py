"""A side room on floor 4. The thesis, measured: unscaled scores saturate the softmax, and its gradient vanishes.

Queries and keys have independent standard normal components, so a dot product of length d_k has variance d_k,
and standard deviation √d_k. Dividing by √d_k brings that back to 1. How much gradient the softmax lets through
is the size of its Jacobian, diag(p) − p pᵀ, here in the Frobenius norm, obtained from the framework's own vjps.

Three things that popular accounts leave out. The norm first *rises* with d_k, since the softmax of small scores
is nearly flat. Its *median* over draws then collapses exponentially in √d_k, while its mean falls only like
1/√d_k, because now and then the two largest scores nearly tie. And this is the gradient at the *scores*; on its
way to Q it is multiplied by K, whose size grows with d_k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .engine import grad
from .ops import softmax
from .tensor import Tensor

D_K = (1, 4, 16, 64, 256, 1024, 4096)
SCALES: dict[str, Callable[[int], float]] = {"none": lambda d_k: 1.0, "sqrt": lambda d_k: 1 / math.sqrt(d_k)}


@dataclass(frozen=True)
class Row:
    """What was measured at one d_k with one scale, over `draws` queries, each against `n_keys` keys."""

    d_k: int
    scale: str                              # "none": Q Kᵀ as it is; "sqrt": divided by √d_k
    score_std: float                        # standard deviation of all scores of all draws
    largest_weight: float                   # mean over draws of the largest attention weight
    jacobian_median: float                  # median over draws of ‖diag(p) − p pᵀ‖
    jacobian_mean: float                    # its mean
    near_tie_share: float                   # the part of it from the tenth of draws whose top two scores are nearest
    witness: float                          # largest |vjp − finite difference| at the sampled draws
    witness_scale: float                    # largest |finite difference| there


def sweep(d_k: Sequence[int] = D_K, *, scales: Sequence[str] = ("none", "sqrt"), n_keys: int = 64, draws: int = 500,
          seed: int = 0, witnesses: int = 4, progress: Callable[[int, int], None] | None = None) -> list[Row]:
    """A row for each d_k and each scale, from the same draws for all scales.

    `progress(done, total)` is called after each row. The Jacobians hold draws · n_keys² numbers at a time.

    >>> unscaled, scaled = sweep([1024], draws=100)
    >>> unscaled.jacobian_median < scaled.jacobian_median / 100
    True
    """
    if len(d_k) == 0 or any(d < 1 or d != int(d) for d in d_k):
        raise ValueError(f"sweep: d_k={d_k!r}; give lengths of at least 1")
    if draws < 1 or n_keys < 2 or witnesses < 1:
        raise ValueError(f"sweep: draws={draws}, n_keys={n_keys}, witnesses={witnesses}; it takes at least a draw and "
                         "a witness, and two keys")
    unknown = [scale for scale in scales if scale not in SCALES]
    if unknown:
        raise ValueError(f"sweep: unknown scale {unknown[0]!r}; it is one of {', '.join(SCALES)}")
    rows = []
    for row in _rows(d_k, scales, n_keys, draws, seed, witnesses):
        rows.append(row)
        if progress:
            progress(len(rows), len(d_k) * len(scales))
    return rows


def _rows(d_k: Sequence[int], scales: Sequence[str], n_keys: int, draws: int, seed: int,
          witnesses: int) -> Iterator[Row]:
    for d in d_k:
        rng = np.random.default_rng([seed, d])
        raw = np.empty((draws, n_keys))
        for draw in range(draws):
            raw[draw] = rng.standard_normal((n_keys, d)) @ rng.standard_normal(d)
        sampled = rng.choice(draws, size=min(witnesses, draws), replace=False)
        for scale in scales:
            scores = raw * SCALES[scale](d)
            jacobians = softmax_jacobians(scores)
            norms = np.sqrt((jacobians ** 2).sum(axis=(1, 2)))
            second, first = np.sort(scores, axis=1)[:, -2:].T
            nearest = np.argsort(first - second)[:max(1, draws // 10)]
            numeric = finite_difference_jacobians(scores[sampled])
            yield Row(d, scale, score_std=float(scores.std()),
                      largest_weight=float(softmax(scores).max(axis=-1).mean()),
                      jacobian_median=float(np.median(norms)), jacobian_mean=float(norms.mean()),
                      near_tie_share=float(norms[nearest].sum() / norms.sum()),
                      witness=float(np.abs(jacobians[sampled] - numeric).max()),
                      witness_scale=float(np.abs(numeric).max()))


def softmax_jacobians(scores: np.ndarray) -> np.ndarray:
    """(draws, n) -> (draws, n, n): the Jacobian of softmax at each row of scores, one vjp for each of its rows."""
    x = Tensor(scores, requires_grad=True)
    p = softmax(x)
    rows = [grad(p, x, np.broadcast_to(one_hot, scores.shape)).numpy() for one_hot in np.eye(scores.shape[-1])]
    return np.stack(rows, axis=1)


def finite_difference_jacobians(scores: np.ndarray, eps: float = 1e-5) -> np.ndarray:
    """The same by central differences. Near eps² for truncation, and 1e-16 / eps for rounding, so absolute
    errors of 1e-11 to 1e-10 are what it can resolve: of one below that it confirms only that it is small."""
    steps = eps * np.eye(scores.shape[-1])[:, None, :]      # (n, 1, n): move one score of every draw
    change = (softmax(scores + steps) - softmax(scores - steps)) / (2 * eps)        # (n moved, draws, n)
    return change.transpose(1, 2, 0)
