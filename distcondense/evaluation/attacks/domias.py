"""DOMIAS (van Breugel et al. 2023): where condensed rows are denser than people are, somebody may have been copied.

The attacker knows other people of the same population (half of the outsiders) and scores a target by
log p(target | condensed rows) − log p(target | those people). Densities are Gaussian kernels over the leading principal
components, scaled to variance 1, of condensed rows and known people together: no target is looked at for them. Twice:
with Scott's bandwidth, and with a quarter of it, which sees copies that the wider one smooths away.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from distcondense.arrays import Floats, Matrix
from distcondense.evaluation.attacks.base import attack, attacked
from distcondense.evaluation.attacks.targets import MOST_CONDENSED, condensed_rows, draw_targets
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.arguments import over_rows

NAME, TITLE = "domias", "Membership attack by densities (DOMIAS)"
COMPONENTS = 8  # at most: kernels see nothing in more dimensions
MOST_KNOWN = 5000  # people whom the attacker knows
WIDTHS = {"kernels": 1.0, "narrow kernels": 0.25}  # of Scott's bandwidth
BLOCK = 256


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attack on a condensed table."""
    targets = draw_targets(inputs, seed=seed, threads=threads, reference=True)
    log(f"densities at {len(targets):,} targets")
    known = inputs.codec.encode(inputs.cohort.features.iloc[targets.reference[:MOST_KNOWN]])
    ruler = targets.ruler
    at, condensed, people = leading(targets.ruled, ruler(condensed_rows(inputs, seed)), ruler(known))
    attacks = {
        name: log_density(at, condensed, width, threads) - log_density(at, people, width, threads)
        for name, width in WIDTHS.items()
    }
    notes = [f"The attacker knows {len(known):,} other people; densities over {at.shape[1]} principal components."]
    settings = {"known": len(known), "components": at.shape[1], "widths": dict(WIDTHS), "most_rows": MOST_CONDENSED}
    return attacked(NAME, TITLE, inputs, targets, attacks, seed=seed, notes=notes, settings=settings)


def leading(targets: Matrix, condensed: Matrix, known: Matrix) -> tuple[Floats, Floats, Floats]:
    """All three in the leading principal components of the latter two, scaled to variance 1."""
    from sklearn.decomposition import PCA

    both = np.concatenate([condensed, known]).astype(np.float64)
    model = PCA(min(COMPONENTS, *both.shape), random_state=0).fit(both)
    variance = model.explained_variance_
    there = variance > 1e-9 * max(float(variance[0]), 1e-300)
    turn = model.components_[there].T / np.sqrt(variance[there])
    turned = [(rows.astype(np.float64) - model.mean_) @ turn for rows in (targets, condensed, known)]
    return turned[0], turned[1], turned[2]


def log_density(at: Floats, rows: Floats, width: float, threads: int) -> Floats:
    """(n,) the log density of Gaussian kernels around `rows` at each point, but for a constant."""
    m, d = rows.shape
    scott = width * m ** (-1 / (d + 4)) * max(float(rows.std()), 1e-6)
    points, kernels = at / scott, rows / scott
    norm, density = (kernels**2).sum(1), np.empty(len(at))

    def block(start: int, stop: int) -> None:
        for first in range(start, stop, BLOCK):
            here = points[first : min(first + BLOCK, stop)]
            squared = (here**2).sum(1)[:, None] - 2 * here @ kernels.T + norm
            density[first : first + len(here)] = logsumexp(-np.maximum(squared, 0) / 2, axis=1)

    over_rows(block, len(at), threads)
    return density - np.log(m) - d * np.log(scott)
