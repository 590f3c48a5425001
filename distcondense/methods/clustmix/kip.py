"""Adapt (3A, eqs 4 and 5): kernel inducing points under the fully connected NTK, kept near where they began.

    L(X_s) = α·‖X_s − X̃_s‖²/‖X̃_s‖² + (1 − α)·½‖y_t − K_ts (K_ss + λI)⁻¹ y_s‖²

α is the weight of staying: 1 leaves the centroids, 0 only fits the classifier (the paper's text says it the other way
round; this is its equation). Adam on z-scored rows, as in Nguyen 2021; labels are one-hot less 1/C; λ is fixed, a share
of the mean diagonal of K at the start. Target rows may have weights, in which the squares count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from distcondense.arrays import Floats, Index
from distcondense.methods.clustmix.ntk import kernel_and_slopes, own, own_slope, pulled

BETAS, TINY = (0.9, 0.999), 1e-8  # of Adam


@dataclass(frozen=True)
class Kip:
    """What the points are adapted with."""

    alpha: float
    steps: int
    rate: float
    layers: int
    ridge: float  # λ as a share of the mean diagonal of K


def centred(label: Index, classes: int) -> Floats:
    """(n, C) one-hot labels less 1/C."""
    return np.asarray(np.eye(classes)[label] - 1 / classes, np.float64)


def loss_and_gradient(
    X: Floats, y: Floats, start: Floats, T: Floats, y_t: Floats, weight: Floats, ridge: float, how: Kip
) -> tuple[float, Floats]:
    """Eq. 5 at X (s, d), and its gradient; T (n, d) are the target rows, `ridge` is λ."""
    K, K_a, K_p = kernel_and_slopes(X, X, how.layers)
    np.fill_diagonal(K, own(X, how.layers))
    cross, cross_a, cross_p = kernel_and_slopes(X, T, how.layers)  # (s, n): of X first, whose gradient it is
    whole = linalg.cho_factor(K + ridge * np.eye(len(X)), lower=True)
    solved = linalg.cho_solve(whole, y)
    rest = y_t - cross.T @ solved
    pull = linalg.cho_solve(whole, cross @ (weight[:, None] * rest))
    away, length = X - start, float((start**2).sum()) or 1.0
    fit = 0.5 * float((weight[:, None] * rest**2).sum())
    loss = how.alpha * float((away**2).sum()) / length + (1 - how.alpha) * fit

    by_cross = -solved @ (weight[:, None] * rest).T
    by_K = pull @ solved.T
    both = by_K + by_K.T  # Θ_ij moves with x_i and with x_j
    np.fill_diagonal(both, 0.0)
    gradient = pulled(by_cross, cross_a, cross_p, X, T) + pulled(both, K_a, K_p, X, X)
    gradient += 2 * own_slope(X.shape[1], how.layers) * np.diag(by_K)[:, None] * X
    return loss, how.alpha * 2 * away / length + (1 - how.alpha) * gradient


def adapted(
    centroids: Floats, label: Index, rows: Floats, target: Index, classes: int, how: Kip, weight: Floats | None = None
) -> Floats:
    """(s, d) the centroids after `how.steps` steps towards points that teach a kernel regression the target rows."""
    if how.steps == 0 or how.alpha == 1 or len(np.unique(label)) < 2:
        return centroids.copy()
    weight = np.ones(len(rows)) if weight is None else weight
    middle, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-6)
    start, T = (centroids - middle) / spread, (rows - middle) / spread
    y, y_t = centred(label, classes), centred(target, classes)
    ridge = how.ridge * float(own(start, how.layers).mean())
    X, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, how.steps + 1):
        _, gradient = loss_and_gradient(X, y, start, T, y_t, weight, ridge, how)
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        X = X - how.rate * (first / (1 - BETAS[0] ** step)) / (np.sqrt(second / (1 - BETAS[1] ** step)) + TINY)
    return np.asarray(X * spread + middle, np.float64)
