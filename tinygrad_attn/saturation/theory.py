"""What theory says of attention over random scores, without a free parameter.

Take one query and n keys, with independent standard normal components. Given the query, the n scores are
independent and normal, with mean 0 and standard deviation σ = s ‖q‖, where s is the scale: ‖q‖ is near √d_k, so σ
is near √d_k without scaling (s = 1), 1 with s = 1/√d_k, and 1/√d_k with s = 1/d_k.

**σ small: flat.** All weights are near 1/n. Then ‖diag(p) − p pᵀ‖ = √(n − 1) / n, the entropy is ln n.

**σ large: saturated.** The two largest scores decide, and what matters is the gap Δ ≥ 0 between them. With
p = 1 / (1 + e^−Δ), the Jacobian is p (1 − p) [[1, −1], [−1, 1]], of norm 2 p (1 − p), which for a large gap is 2 e^−Δ.

*The median collapses.* Δ = σ · (the gap of n standard normals), whose median m_n is a number: so the median of the norm
is 2 e^(−m_n σ), exponential in √d_k.

*The mean does not.* However large σ is, the gap is below 1 now and then: with probability near f_n(0) / σ, where f_n
is the density of the gap of n standard normals. Those near ties carry the mean:

    E ‖J‖       ≈  (f_n(0) / σ) ∫₀^∞ 2 p (1 − p) dΔ            =  c / σ,   c = f_n(0)
    E entropy   ≈  (f_n(0) / σ) ∫₀^∞ (−p ln p − …) dΔ          =  (π² / 6) c / σ
    E (1 − p₁)  ≈  (f_n(0) / σ) ∫₀^∞ (1 − p) dΔ                =  (ln 2) c / σ

with f_n(0) = n (n − 1) ∫ φ(x)² Φ(x)ⁿ⁻² dx, since the two largest are equal, at x, and the others below.

*The gradients.* The loss here is the attention's output with values v of width 1, standard normal too. At a near tie
∂L/∂scores = p (1 − p) (v₁ − v₂) (1, −1), and E |v₁ − v₂| = 2/√π. To the query it is multiplied by s (k₁ − k₂), of
length near s √(2 d_k), and to the keys by s q, of length s ‖q‖:

    E ‖∂L/∂scores‖  ≈  √(2/π) c / σ          E ‖∂L/∂Q‖  =  E ‖∂L/∂K‖  ≈  √(2/π) c,   whatever d_k and s are

since s ‖q‖ = σ cancels for the keys, and for the query k₁ − k₂ is orthogonal to q at a tie, so that its length is √2
times that of a normal vector of d_k − 1 components, whose mean times E 1/‖q‖ is 1. So the *mean* gradient at Q and K
does not vanish at all: nearly all queries get nothing, and a few get a gradient that is as much larger as they are
fewer.

These are leading terms in 1/σ. A third score near the tie takes its share: with 64 keys the exact mean norm is 15 %
below c / σ at σ = 16, 7 % at 32 and 4 % at 64 (hundreds of thousands of draws of scores): a share of about c / σ. The
gradients are below their limits by about 0.8 of that, the entropy above its limit by 0.7; 1 − p₁ is nearly exact. The
median norm is 5 to 10 % above 2 e^(−m_n σ) for 64 keys and more. With two keys there is no third, and all hold.

(The scale: Vaswani et al. 2017, §3.2.1. Gaps of order statistics: David & Nagaraja 2003, "Order Statistics".)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..ops import erf

SCALES: dict[str, Callable[[int], float]] = {"none": lambda d_k: 1.0, "sqrt": lambda d_k: 1 / math.sqrt(d_k),
                                             "linear": lambda d_k: 1 / d_k}
_X = np.linspace(-12.0, 12.0, 4001)         # where a standard normal has its mass, for integrals by the trapezoid rule


def _density(x: np.ndarray) -> np.ndarray:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _below(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + erf(x / math.sqrt(2)))


@lru_cache
def tie_density(n: int) -> float:
    """f_n(0): how densely the gap between the two largest of n standard normals lies at 0.

    >>> round(tie_density(2), 6), round(1 / math.sqrt(math.pi), 6)          # |x − y| of two: known in closed form
    (0.56419, 0.56419)
    """
    return n * (n - 1) * float(np.trapezoid(_density(_X) ** 2 * _below(_X) ** (n - 2), _X))


@lru_cache
def median_gap(n: int) -> float:
    """The median of the gap between the two largest of n standard normals.

    >>> round(median_gap(2), 4)             # of |x − y|: √2 times the upper quartile, 0.6745
    0.9539
    """
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        larger = n * float(np.trapezoid(_density(_X) * _below(_X - middle) ** (n - 1), _X))     # P(gap > middle)
        low, high = (middle, high) if larger > 0.5 else (low, middle)
    return low


def mean_inverse_length(d_k: int) -> float:
    """E 1/‖q‖ of a standard normal vector, near 1/√d_k; infinite at d_k = 1, where the query may be near 0."""
    return math.exp(math.lgamma((d_k - 1) / 2) - math.lgamma(d_k / 2)) / math.sqrt(2) if d_k > 1 else math.inf


def score_std(d_k: int, scale: float) -> float:
    """The standard deviation of all scores, exactly: √d_k · scale."""
    return math.sqrt(d_k) * scale


def flat(n: int) -> dict[str, float]:
    """What all weights equal, 1/n, would give: the limit for small scores."""
    return {"entropy": math.log(n), "largest_weight": 1 / n, "jacobian": math.sqrt(n - 1) / n}


def score_std_of_a_draw(d_k: int, scale: float, n: int) -> tuple[float, float]:
    """Mean and standard deviation, over draws, of the standard deviation of a draw's n scores: E ‖q‖ times that of n
    standard normals, and what is missing to the mean square."""
    length = math.sqrt(2) * math.exp(math.lgamma((d_k + 1) / 2) - math.lgamma(d_k / 2))
    of_n = math.sqrt(2 / n) * math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2))
    mean = scale * length * of_n
    return mean, math.sqrt(max(0.0, scale ** 2 * d_k * (n - 1) / n - mean ** 2))


def saturated_means(d_k: int, scale: float, n: int) -> dict[str, float]:
    """The means in the limit of large scores, by the name of the measurement."""
    share = tie_density(n) * mean_inverse_length(d_k) / scale
    arriving = math.sqrt(2 / math.pi) * tie_density(n)
    return {"entropy": math.pi ** 2 / 6 * share, "largest_weight": 1 - math.log(2) * share, "jacobian": share,
            "grad_scores": math.sqrt(2 / math.pi) * share, "grad_query": arriving, "grad_key": arriving}


def saturated_deviations(d_k: int, scale: float, n: int) -> dict[str, float]:
    """The standard deviations over draws there. A draw has a near tie with a small probability, so each is nearly the
    root of the mean square, which is the integral of the square over the gap, times the density of ties."""
    gap = np.linspace(0, 60, 20_001)
    rest = np.exp(-gap) / (1 + np.exp(-gap))
    entropy = -rest * np.log(rest) - (1 - rest) * np.log1p(-rest)
    share = tie_density(n) * mean_inverse_length(d_k) / scale
    # ∫ p² (1 − p)² dΔ = 1/12, E (v₁ − v₂)² = 2, and E ‖q‖ = (d_k − 1) E 1/‖q‖.
    squares = {"entropy": share * float(np.trapezoid(entropy ** 2, gap)), "largest_weight": share * (math.log(2) - 0.5),
               "jacobian": share / 3, "grad_scores": share / 3, "grad_query": share * scale ** 2 * (d_k - 1) / 3,
               "grad_key": share * scale ** 2 * (d_k - 1) / 3}
    means = saturated_means(d_k, scale, n)
    means["largest_weight"] = 1 - means["largest_weight"]
    return {name: math.sqrt(max(square - means[name] ** 2, 0.0)) for name, square in squares.items()}


def saturated_medians(d_k: int, scale: float, n: int) -> dict[str, float]:
    """The medians there, of what follows from the median gap alone."""
    gap = median_gap(n) * score_std(d_k, scale)
    rest = math.exp(-gap) / (1 + math.exp(-gap))            # the weight of the second
    return {"largest_weight": 1 - rest, "jacobian": 2 * rest * (1 - rest)}


SATURATED = 16.0                            # from this spread of the scores on, the limit is set beside measurements


def next_term(spread: float, n: int) -> float:
    """How far, as a share of it, a mean may be from its limit at this spread: 1.3 c / σ, and nothing if n = 2."""
    return 1.3 * tie_density(n) / spread if n > 2 else 0.01
