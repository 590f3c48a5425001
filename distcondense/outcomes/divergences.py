"""How far two distributions are apart: of one column, of a pair of columns, of numbers as they are.

Counts and shares have cells along their first axis and may have resamples along the last, so that a measure and its
200 resamples are one call: p (k,) or (k, r) against q (k,) or (k, 1). KDE-KNN and PSyGenTAB name the measures; the
tests hold them against SDMetrics, SciPy and scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.arrays import Floats

SMOOTHING = 0.5  # rows that every cell of either table has more, in the Kullback–Leibler divergence only
REACH = 1.5  # interquartile ranges beyond the quartiles: farther out is a rare value


def shares(counts: Floats) -> Floats:
    """Counts as shares of their sum over the cells; all 0 where there is nobody."""
    total = counts.sum(axis=0)
    return np.asarray(counts / np.where(total > 0, total, 1.0), np.float64)


def total_variation(p: Floats, q: Floats) -> Any:
    """½ Σ|p − q|: 0 the same, 1 disjoint."""
    return 0.5 * np.abs(p - q).sum(axis=0)


def hellinger(p: Floats, q: Floats) -> Any:
    """√(½ Σ(√p − √q)²): 0 the same, 1 disjoint."""
    return np.sqrt(0.5 * ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=0))


def jensen_shannon(p: Floats, q: Floats) -> Any:
    """The distance, √ of the divergence in bits: 0 the same, 1 disjoint."""
    middle = (p + q) / 2
    divergence = (_relative(p, middle) + _relative(q, middle)) / 2 / np.log(2)
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def kullback_leibler(counts: Floats, others: Floats) -> Any:
    """KL(real ‖ other) in nats of counts with SMOOTHING more rows in every cell of either: an empty cell is finite."""
    p, q = (shares(table + SMOOTHING) for table in (counts, others))
    return np.maximum(_relative(p, q), 0.0)


def _relative(p: Floats, q: Floats) -> Any:
    """Σ p·log(p/q), where 0·log 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = p * (np.log(p) - np.log(q))
    return np.where(p > 0, each, 0.0).sum(axis=0)


def category_coverage(counts: Floats, others: Floats) -> Any:
    """Of the cells that real rows have, the share that the others have too; NaN without any."""
    there = counts > 0
    total = there.sum(axis=0)
    return np.where(total > 0, (there & (others > 0)).sum(axis=0) / np.maximum(total, 1), np.nan)


def support_coverage(p: Floats, q: Floats) -> Any:
    """Mean over the cells that real rows have of min(1, q/p): a rare cell counts as much as a common one."""
    there = p > 0
    reached = np.minimum(1.0, np.divide(q + 0 * p, p, out=np.zeros(np.broadcast(p, q).shape), where=there))
    return (reached * there).sum(axis=0) / np.maximum(there.sum(axis=0), 1)


def kolmogorov_smirnov(real: Floats, other: Floats, weight: Floats | None = None) -> float:
    """The largest gap between two distribution functions of numbers; `weight` of the others. NaN where one is empty."""
    if not len(real) or not len(other):
        return float("nan")
    points = np.unique(np.concatenate([real, other]))
    ours = np.searchsorted(np.sort(real), points, side="right") / len(real)
    order = np.argsort(other, kind="stable")
    each = np.ones(len(other)) if weight is None else weight[order]
    below = np.concatenate([[0.0], np.cumsum(each)])
    if below[-1] <= 0:
        return float("nan")
    theirs = below[np.searchsorted(other[order], points, side="right")] / below[-1]
    return float(np.abs(ours - theirs).max())


def range_coverage(real: Floats, other: Floats) -> float:
    """The share of the real range that the other one spans; NaN where real numbers do not vary or one is empty."""
    if not len(real) or not len(other):
        return float("nan")
    low, high = float(real.min()), float(real.max())
    if high <= low:
        return float("nan")
    lacking = max(other.min() - low, 0.0) + max(high - other.max(), 0.0)
    return float(max(1 - lacking / (high - low), 0.0))


def information(table: Floats) -> Any:
    """Mutual information of (a, b) or (a, b, r) joint counts, in nats."""
    joint = table / np.maximum(table.sum(axis=(0, 1)), np.finfo(float).tiny)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = joint * (np.log(joint) - np.log(apart))
    return np.maximum(np.where(joint > 0, each, 0.0).sum(axis=(0, 1)), 0.0)


def shared_information(table: Floats) -> Any:
    """The same over the mean of both entropies: 0 nothing, 1 either tells the other; 0 where neither varies."""
    entropy = sum(_entropy(shares(table.sum(axis=axis))) for axis in (0, 1)) / 2
    return np.where(entropy > 1e-12, information(table) / np.maximum(entropy, 1e-12), 0.0)


def _entropy(p: Floats) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * np.log(p), 0.0).sum(axis=0)


def correlation(x: Floats, y: Floats, counts: Floats, fewest: int = 2) -> Any:
    """Pearson's, of (n,) numbers that each count (n,) or (n, r) times; NaN where one does not vary.

    Rows in which either has a hole (NaN) are left out; of fewer than `fewest` others nothing is said.
    """
    there = ~(np.isnan(x) | np.isnan(y))
    if not there.all():
        x, y, counts = x[there], y[there], counts[there]
    if len(x) < fewest:
        return np.full(counts.shape[1:], np.nan)
    x, y = x - x.mean(), y - y.mean()  # what is left of a large mean would drown the rest
    sums = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y]) @ counts
    n = np.where(sums[0] > 0, sums[0], np.nan)
    mean_x, mean_y, xx, yy, xy = (total / n for total in sums[1:])
    varies = np.maximum(xx - mean_x**2, 0.0), np.maximum(yy - mean_y**2, 0.0)
    solid = (varies[0] > 1e-12 * xx) & (varies[1] > 1e-12 * yy)
    scale = np.sqrt(np.where(solid, varies[0] * varies[1], 1.0))
    return np.where(solid, np.clip((xy - mean_x * mean_y) / scale, -1.0, 1.0), np.nan)


def fences(values: Floats) -> tuple[float, float]:
    """Q1 − 1.5·IQR and Q3 + 1.5·IQR of the numbers that are there; NaN without any."""
    there = values[~np.isnan(values)]
    if not len(there):
        return float("nan"), float("nan")
    first, third = np.quantile(there, [0.25, 0.75])
    return float(first - REACH * (third - first)), float(third + REACH * (third - first))


def alike(a: Any, b: Any) -> Any:
    """min/max of two shares: 1 the same (also where both are 0), 0 where only one of them is 0."""
    more = np.maximum(a, b)
    return np.where(more > 0, np.minimum(a, b) / np.where(more > 0, more, 1.0), 1.0)
