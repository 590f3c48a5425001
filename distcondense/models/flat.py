"""`EnsembleModel`: flat trees that belong to no library, as a reference model."""

from __future__ import annotations

from dataclasses import dataclass

from distcondense import kernels
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import Link, Rows, Scores


@dataclass(frozen=True)
class EnsembleModel:
    """A flat ensemble scored by our own walk: moved trees, or a private model's tables, which no library knows."""

    name: str
    link: Link
    ensemble: TreeEnsemble
    threads: int = 1

    @property
    def n_features(self) -> int:
        return self.ensemble.n_features

    def scores(self, rows: Rows) -> Scores:
        return kernels.scores(self.ensemble, rows, self.threads)
