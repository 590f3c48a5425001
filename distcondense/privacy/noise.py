"""The only place in the package that draws privacy noise: opendp's samplers, seeded by the operating system.

Sums arrive as integers on a grid and leave as integers: no floating-point number touches the noise, so none of its
rounding can leak (Mironov 2012). With per-person L2 sensitivity Δ and cost μ a query's noise has σ = Δ/μ and its grid
is γ = σ/GRID; in grid units every query has the same noise scale s = GRID and sensitivity at most GRID·μ.

How far the discrete Gaussian N_Z(0, s²) is from the *rounded* continuous one, round(s·Z), in total variation, per
coordinate. Write φ for the normal density, h = 1/s. The rounded one gives k the mass ∫φ over a cell of width h around
kh; the discrete one gives hφ(kh)/c with c = Σ hφ(kh) = 1 + 2e^{−2π²s²} + … . The midpoint rule errs by h³φ''(ξ)/24
with ξ in the cell, and Σ h·sup_cell|φ''| ≤ ∫|φ''| + h·∫|φ'''|. With ∫|φ''| = E|Z²−1| = 4φ(1) = 0.968 and
∫|φ'''| = E|Z³−3Z| ≤ √6, half the L1 distance is

    τ(s) ≤ (4φ(1) + √6/s) / (48 s²) + 2e^{−2π²s²},        leading term E|Z²−1|/(48 s²) = 0.0202/s².

The rounded continuous mechanism is post-processing of a Gaussian mechanism, hence exactly μ-GDP; a transcript of N
adaptively chosen coordinates of discrete noise is within N·τ of its transcript. So (ε, δ) becomes
(ε, δ + (1 + e^ε)·N·τ), which the accountant reserves out of δ before anything is spent.

Where several sites add a part of the noise each, it is a sum of m independent discrete Gaussians of variance s²/m. The
log ratio of its probabilities and those of N_Z(0, s²) is at most (Kairouz, Liu and Steinke 2021)

    κ = 10·Σ_{j=1}^{m−1} e^{−2π²(s²/m)·j/(j+1)},        so that their total variation is at most κ, too,

and τ is larger by κ. At s = GRID and m ≤ 1000 that is below 10^(−10¹⁵), and τ has room: E|Z³−3Z| is 1.51, not √6.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from distcondense.arrays import Index
from distcondense.errors import BudgetError

# noise scale in grid units, a power of two: fine enough that 2²² coordinates cost 5e-15·(1+e^ε) of δ (ε ≤ 20 at 1e-5)
GRID = 2.0**32
SOURCE = "opendp discrete Gaussian and Gumbel, operating-system entropy"


def distance_to_rounded(scale: float, parts: int = 1) -> float:
    """τ(s): total variation between one discrete Gaussian and the rounded continuous one, at most; s ≥ 1.

    `parts`: the discrete one is a sum of so many.
    """
    bell = 4 * math.exp(-0.5) / math.sqrt(2 * math.pi)
    alone = (bell + math.sqrt(6) / scale) / (48 * scale**2) + 2 * math.exp(-2 * math.pi**2 * scale**2)
    return alone + distance_of_sum(parts, scale)


def distance_of_sum(parts: int, scale: float) -> float:
    """κ: total variation between a sum of so many discrete Gaussians and one, both of deviation `scale`, at most."""
    each = scale**2 / parts  # variance; at least ¼
    return 10 * sum(math.exp(-2 * math.pi**2 * each * j / (j + 1)) for j in range(1, parts))


def discrete_gaussian(sums: Index, scale: float) -> Index:
    """`sums` plus independent discrete Gaussian noise of standard deviation `scale` on each coordinate.

    Python's integers, which come where int64 has no room, get opendp's noise of as many zeros: the same law.
    """
    if sums.dtype == object:
        alone = _gaussian(scale)([0] * sums.size)
        return np.array([int(value) + draw for value, draw in zip(sums.ravel(), alone, strict=True)], object)
    noisy = _gaussian(scale)([int(value) for value in sums.ravel()])
    return np.array(noisy, np.int64).reshape(sums.shape)


def threshold(limit: float, scale: float, values: int, delta: float) -> int:
    """What a noisy count must be above, so that values only one person brings are told with probability δ at most.

    Such a person has `values` of them at the most, each with a count of `limit` at the most. With the noise within τ of
    the rounded continuous one, P[count + noise > T] ≤ P[Z > (T + ½ − limit)/scale] + τ; a union bound over values.
    """
    each = delta / values - distance_to_rounded(scale)
    if not 0 < each < 0.5:
        raise BudgetError(
            "delta of categories",
            "must be above what the grid of the noise costs, and below ½ for each value",
            found=f"{delta:g} for {values} values of one person",
            fix="ask for a larger delta, or read fewer rows of each person",
        )
    return math.ceil(limit) + math.ceil(scale * float(special.ndtri_exp(math.log(each))) * -(1 + 1e-9))


def gaussian_rho(distance: float, scale: float) -> float:
    """opendp's own account of `discrete_gaussian`: zCDP ρ of one answer with L2 sensitivity `distance`."""
    return float(_gaussian(scale).map(distance))


def noisy_top(scores: Index, count: int, scale: float) -> Index:
    """Indices of the `count` highest scores under Gumbel(`scale`) noise, best first.

    The same law as `count` exponential mechanisms one after the other, P(j) ∝ exp(score_j/scale) among what is left:
    with scores of sensitivity D in sup norm each pick is (2D/scale)-bounded-range.

    Python's integers, which come where int64 has no room, are picked one after the other, each time relative to the
    largest that is left, which changes no probability; what lies 2⁶² below it is moved up to there. That changes one
    by e^(−2⁶²/scale) at most: no float64 is as small, for any scale that a budget gives.
    """
    if scores.dtype != object:
        return np.array(_top(count, scale)([int(value) for value in scores]), np.int64)
    left, picked = list(range(len(scores))), []
    for _ in range(count):
        best = max(scores[place] for place in left)
        (pick,) = _top(1, scale)([max(int(scores[place] - best), -(2**62)) for place in left])
        picked.append(left.pop(int(pick)))
    return np.array(picked, np.int64)


def choice_rho(distance: int, count: int, scale: float) -> float:
    """opendp's own account of `noisy_top`: zCDP ρ of all picks together, count·ε₀²/8 with ε₀ = 2·distance/scale."""
    return float(_top(count, scale).map(distance))


@lru_cache(maxsize=8)
def _gaussian(scale: float) -> Any:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=scale)


@lru_cache(maxsize=8)
def _top(count: int, scale: float) -> Any:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_top_k
    from opendp.measures import zero_concentrated_divergence
    from opendp.metrics import linf_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain, metric = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
    return make_noisy_top_k(domain, metric, zero_concentrated_divergence(), k=count, scale=scale)
