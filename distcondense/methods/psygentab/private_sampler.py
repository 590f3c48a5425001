"""The private method's sampler of whole rows, steered after its budget is spent: post-processing, the guarantee stays.

Nothing here sees a patient: it reads `PrivateFit`, what left the gate, and a seed. So U and P are not measured against
patients either: the "records" and the "held-out rows" are rows drawn from the private model itself. P then says how far
rows lie from other rows of the model, not from patients, whom the guarantee protects whatever P is.

Whole rows come from the joint model at once, so temperature and top-p are those of rows, not of single columns: with a
row's density q under the model (its forest of pairs), rows are kept in proportion to q^(1/T − 1), and of them the
densest that hold a share `top_p`. With temperature 1 and top-p 1 the rows are the private sampler's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Floats, Index
from distcondense.methods.private.placement import population
from distcondense.methods.psygentab.layout import Layout, OutcomeCells
from distcondense.methods.psygentab.sampling import SamplingSettings
from distcondense.methods.psygentab.scores import HELD, RECORDS, TableScorer
from distcondense.models.learners import Learner
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.private_side import PrivateFit, PrivateSide

Rng = np.random.Generator
Legal = Callable[[pd.DataFrame], Flags]
OUTCOME_CELLS = 32  # of a time or a value
SPARE = 4  # rows drawn for each that is kept
STEEPEST = 5.0  # a row's chance is multiplied by at most e to this power


@dataclass(frozen=True)
class PrivateSampler:
    """The private model as a generator of rows, and rows of it that stand where patients would."""

    learned: PrivateFit
    side: PrivateSide
    seed: int
    learner: Learner
    threads: int = 1
    legal: Legal | None = None

    @cached_property
    def layout(self) -> Layout:
        return Layout(OutcomeCells.from_outcome(self._pool[2].outcome, OUTCOME_CELLS), tuple(self.learned.model.cells))

    @cached_property
    def _pool(self) -> tuple[Index, Floats, Labelled]:
        rng = np.random.default_rng([self.seed, 0x9011])
        codes, inside = population(self.learned, RECORDS + HELD, rng, self.legal)
        return codes, inside, self._labelled(codes, rng)

    def _labelled(self, codes: Index, rng: Rng) -> Labelled:
        """As the kind of outcome labels so many rows; an even cover of chance."""
        at = rng.permutation((np.arange(len(codes)) + 0.5) / len(codes))
        return self.side.label(self.learned, codes, at, len(codes))

    @cached_property
    def judge(self) -> TableScorer:
        codes, inside, labelled = self._pool
        features = self.layout.drawn(codes, inside)
        places = np.concatenate([self.layout.outcome.places(labelled.outcome), features], axis=1)
        return TableScorer.from_rows(
            self.layout, self.learner, places[:RECORDS], places[RECORDS:], seed=self.seed, threads=self.threads
        )

    def __call__(self, rows: int, settings: SamplingSettings, number: int = 0) -> Floats:
        """Labelled rows as places, to be judged; another number is another draw."""
        rng = np.random.default_rng([self.seed, 0x9012, number])
        codes, inside = self.draw(rows, rng, settings)
        own = self.layout.outcome.places(self._labelled(codes, rng).outcome)
        return np.concatenate([own, self.layout.drawn(codes, inside)], axis=1)

    def draw(self, rows: int, rng: Rng, settings: SamplingSettings) -> tuple[Index, Floats]:
        """((rows, d) cells, (rows, d) where in them), as `population` gives them, steered by the settings."""
        if settings.still:
            return population(self.learned, rows, rng, self.legal)
        codes, inside = population(self.learned, SPARE * rows, rng, self.legal)
        density = log_density(self.learned, codes)
        tilt = np.clip((1 / settings.temperature - 1) * (density - np.median(density)), -STEEPEST, STEEPEST)
        order = np.argsort(-density, kind="stable")
        mass = np.cumsum(np.exp(tilt[order]))
        inner = order[: max(int(np.searchsorted(mass, settings.top_p * mass[-1])) + 1, min(rows, len(order)))]
        chance = tilt[inner] + rng.gumbel(size=len(inner))  # the largest are drawn without replacement
        chosen = inner[np.sort(np.argsort(-chance, kind="stable")[:rows])]
        return codes[chosen], inside[chosen]


def log_density(learned: PrivateFit, codes: Index) -> Floats:
    """(n,) of whole rows under the private model's forest: Σ_j log p(x_j) + Σ_pairs log p(x_i, x_j)/p(x_i)p(x_j), mixed
    over the groups of rows. What is raked on top of the forest is left out."""
    joint, groups = learned.joint, []
    for g, share in enumerate(learned.shares):
        total = np.full(len(codes), np.log(max(float(share), 1e-12)))
        for j, fine in enumerate(learned.marginals):
            total += np.log(np.maximum(fine[g][codes[:, j]], 1e-12))
        for (i, j), table in joint.forest.items():
            a, b = joint.coarse[i][codes[:, i]], joint.coarse[j][codes[:, j]]
            first, second = joint.marginals[i][g], joint.marginals[j][g]
            apart = table[g][a, b] * first.sum() / np.maximum(first[a] * second[b], 1e-15)
            total += np.log(np.maximum(apart, 1e-6))
        groups.append(total)
    return np.asarray(np.logaddexp.reduce(groups, axis=0), np.float64)
