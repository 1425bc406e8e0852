"""The floor: the matrix products of forward and backward and nothing else, in NumPy, on contiguous operands and into
outputs that are there. What computes these products on the same BLAS can only be slower.

With several threads there are two floors, and the faster one counts: a BLAS with that many threads, and a BLAS with one
thread for each of as many Python threads, among which the products are split by hand ("split").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from .rows import Run

Product = tuple[int, int, int, int]         # how many, of (n, k) @ (k, m)
TILE = 512                                  # of queries and keys, whose scores stay in the cache


def with_backward(forward: list[Product]) -> Iterator[Product]:
    """Z = X Y needs two products more: dX = dZ Yᵀ and dY = Xᵀ dZ."""
    yield from forward
    for count, n, k, m in forward:
        yield count, n, m, k
        yield count, k, n, m


def layer(B: int, L: int, E: int, H: int) -> list[Product]:
    """Q, K and V in one; scores; weights times values; output."""
    D = E // H
    return [(1, B * L, E, 3 * E), (B * H, L, D, L), (B * H, L, L, D), (1, B * L, E, E)]


def layer_floor(p: SimpleNamespace, split: bool = False) -> Run:
    return products(with_backward(layer(p.B, p.L, p.E, p.H)), p, split)


def gpt_floor(p: SimpleNamespace, split: bool = False) -> Run:
    """The output is one more product; the embedding and its gradient are none."""
    rows, E = p.B * p.L, p.E
    block = [*layer(p.B, p.L, E, p.H), (1, rows, E, 4 * E), (1, rows, 4 * E, E)]
    return products(with_backward([*(block * p.layers), (1, rows, E, p.V)]), p, split)


def attention_floor(p: SimpleNamespace, split: bool = False) -> Run:
    """Tile by tile: scores and output; then scores again, dP, and the gradients of values, queries and keys."""
    tile = min(TILE, p.L)
    scores, narrow = (1, tile, p.D, tile), (1, tile, tile, p.D)
    return products([scores, narrow, scores, scores, narrow, narrow, narrow], p, split,
                    times=p.H * (p.L // tile) ** 2)


def products(shapes: Any, p: SimpleNamespace, split: bool, times: int = 1) -> Run:
    """Each product, so many times; split among threads by times, by how many there are, or by rows."""
    rng, n = np.random.default_rng(0), p.threads if split else 1
    operands = []
    for count, rows, inner, columns in shapes:
        x, y = rng.random((count, rows, inner)).astype(p.dtype), rng.random((count, inner, columns)).astype(p.dtype)
        out = np.empty((count, rows, columns), p.dtype)
        operands.append((x, y, out) if count > 1 else (x[0], y[0], out[0]))
    if not split:
        return lambda: multiplied(operands, times)
    shares: list[list[Any]] = [[] for _ in range(n)]
    for x, y, out in operands:
        for i, share in enumerate(shares):
            part = slice(len(x) * i // n, len(x) * (i + 1) // n)
            share.append((x, y, np.empty_like(out)) if times > 1 else
                         (x[part], y if x.ndim == 2 else y[part], out[part]))
    counts = [times * (i + 1) // n - times * i // n for i in range(n)] if times > 1 else [1] * n
    pool = ThreadPoolExecutor(n)
    return lambda: sum(pool.map(multiplied, shares, counts), ())


def multiplied(operands: list[Any], times: int) -> tuple[Any, ...]:
    for _ in range(times):
        for x, y, out in operands:
            np.matmul(x, y, out=out)
    return ()


MAKE: dict[tuple[str, str], Callable[[SimpleNamespace], Run]] = {
    (work, variant): partial(floor, split=bool(variant))
    for work, floor in (("layer", layer_floor), ("attention", attention_floor), ("GPT step", gpt_floor))
    for variant in ("", "split")
}
