"""Anonymize as published (3A, theorem 2 and eq. 7), and what it would take to be true.

A synthetic row is the mean of l rows in [0, 1]^D plus N(0, σ²I). *If* one patient changed that mean by at most 1/l in
each column, and one row of each of C classes, the release would be μ-GDP with μ = √(C·D)/(l·σ), and

    δ(ε, σ, l, C, D) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)                                                  (eq. 7).

It is not true of what is done: `WHY` says why, and every statement carries it.
"""

from __future__ import annotations

import math

from distcondense.privacy.curves import gaussian_delta, gaussian_mu

WHY = (
    "That accounting holds only if one patient changes one mean per class by at most 1/l, which needs slices, clusters "
    "and scales that do not depend on patients.",
    "Here the cuts between slices are patients' own values, clusters are fitted to the patients, so that one of them "
    "moves others between clusters, and columns are scaled by the smallest and the largest patient.",
    "Kernel inducing points then move every point of a slice by all patients of it, by no bounded amount.",
    "Not counted either: the choice of the noise level by a score on the training rows, and the number of rows.",
)


def delta_of(epsilon: float, sigma: float, size: int, classes: int, columns: int) -> float:
    """Eq. 7."""
    return gaussian_delta(math.sqrt(classes * columns) / (size * sigma), epsilon)


def sigma_of(size: float, mu: float, classes: int, columns: int) -> float:
    """The least noise of a cluster of so many rows that keeps eq. 7 at the μ of the budget."""
    return math.sqrt(classes * columns) / (size * mu)


def least_size(epsilon: float, delta: float, sigma_max: float, classes: int, columns: int) -> int:
    """l_min(ε, δ, σ_max): the smallest clusters whose noise is at most σ_max."""
    size = math.ceil(sigma_of(1.0, gaussian_mu(epsilon, delta), classes, columns) / sigma_max)
    while delta_of(epsilon, sigma_max, size, classes, columns) > delta:  # rounding
        size += 1
    return size
