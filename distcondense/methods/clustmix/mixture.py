"""Approximate (3A, eqs 1 to 3): a mixture of isotropic Gaussians whose every cluster holds at least l_min rows.

p(s) of eq. 2 is a step: 0 below l_min, the same above. So the best assignment (eq. 3) is the one of least
Σ −log p(x|θ_z) in which no cluster is too small; it is found exactly (kernels/assignment.py).
Where expectation maximisation does not settle, all clusters get one variance: k-means with the same constraint.
"""

from __future__ import annotations

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.kernels.assignment import fill_clusters

ROUNDS = 20  # of expectation maximisation
LEAST_VARIANCE = 1e-4  # of a cluster, in units of the interval [0, 1]


def clusters(rows: Floats, count: int, least: int, rng: np.random.Generator) -> Index:
    """GMMConstrained(X, n, l_min): (n,) the cluster of each row, all of `count` clusters of at least `least` rows."""
    if count == 1:
        return np.zeros(len(rows), np.int64)
    first = _spread(rows, count, rng)
    for one_variance in (False, True):
        own, variance = first, np.full(count, max(float(rows.var(axis=0).mean()), LEAST_VARIANCE))
        before = np.full(len(rows), -1)
        for _ in range(ROUNDS):
            now = assigned(_cost(rows, own, variance), least)
            if np.array_equal(now, before):
                return now
            own = np.stack([rows[now == k].mean(axis=0) for k in range(count)])
            if not one_variance:
                away = np.array([((rows[now == k] - own[k]) ** 2).mean() for k in range(count)])
                variance = np.maximum(away, LEAST_VARIANCE)
            before = now
    return before


def assigned(cost: Floats, least: int) -> Index:
    """(n,) cluster of each row with the least total of (n, K) costs, none with fewer than `least` rows; n ≥ K·least."""
    of = np.asarray(cost.argmin(axis=1), np.int64)
    fill_clusters(np.ascontiguousarray(cost), of, np.bincount(of, minlength=cost.shape[1]).astype(np.int64), least)
    return of


def _cost(rows: Floats, means: Floats, variance: Floats) -> Floats:
    """(n, K) −log p(x | θ_k) of isotropic Gaussians, up to a constant."""
    squared = ((rows**2).sum(1)[:, None] - 2 * rows @ means.T + (means**2).sum(1)[None, :]).clip(min=0)
    return np.asarray(squared / (2 * variance) + rows.shape[1] / 2 * np.log(variance), np.float64)


def _spread(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """k-means++: the first centres, rows far from each other."""
    chosen = [int(rng.integers(len(rows)))]
    away = ((rows - rows[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(count - 1):
        total = away.sum()
        share = away / total if total > 0 else np.full(len(rows), 1 / len(rows))
        chosen.append(int(rng.choice(len(rows), p=share)))
        away = np.minimum(away, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    return rows[chosen].copy()
