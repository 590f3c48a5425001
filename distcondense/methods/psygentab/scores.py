"""Utility U (eq. 1) and privacy-preservability P (eq. 3) of a table's places, as PSyGenTAB §III-A names their parts.

U is the formula of `outcomes/utility.py`, the one that `distcondense evaluate` uses. P is a score of distances, not a
guarantee. Who the "records" of P are is the caller's business: training patients where a network learns (guarantee
none), rows drawn from the private model where that is the sampler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Schema
from distcondense.errors import DistcondenseError
from distcondense.kernels.neighbours import nearest_manhattan
from distcondense.methods.psygentab.layout import Layout
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.likeness import (
    SYNTHETIC,
    ComparedRows,
    ComparedTables,
    correlation_gaps,
    feature_column,
    outcome_column,
)
from distcondense.outcomes.measures import Measured, auroc
from distcondense.outcomes.utility import Part, both_ways, nothing, utility

P_WEIGHTS = (0.5, 0.25, 0.25)  # λ₁, λ₂, λ₃ of eq. 3; it then lies within ±½ and is moved by ½ into [0, 1]
RECORDS = 5000  # rows that the nearest is looked for among, at most
HELD = 2000  # rows that stand for the population, at most


@dataclass(frozen=True)
class TableScores:
    """What eq. 5 needs of a set of rows."""

    U: float
    P: float
    by_column: tuple[float, ...]  # P_j of each feature
    parts: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class TableScorer:
    """Rows to be like (U), rows not to be near to (P), and rows that are as near as rows by chance are."""

    layout: Layout
    learner: Learner
    records: Floats  # (r, d) places
    held: Floats  # (h, d)
    seed: int
    threads: int

    @classmethod
    def from_rows(
        cls, layout: Layout, learner: Learner, records: Floats, held: Floats, *, seed: int, threads: int
    ) -> TableScorer:
        rng = np.random.default_rng([seed, 0x5C08])
        some = [np.sort(rng.permutation(len(rows))[:most]) for rows, most in ((records, RECORDS), (held, HELD))]
        return cls(layout, learner, records[some[0]], held[some[1]], seed, threads)

    def __call__(self, made: Floats) -> TableScores:
        found = self.utility(made)
        P, parts, by_column = self.privacy(made)
        return TableScores(found["utility"], P, by_column, {**found, **parts})

    # -- U, eq. 1

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(cells.column for cells in self.layout.features))

    def read(self, places: Floats) -> tuple[pd.DataFrame, Outcome]:
        """Rows in original units, and their outcome."""
        return self.layout.frame(places), self.layout.outcome.outcome(places[:, : self.layout.first])

    @cached_property
    def _held(self) -> tuple[pd.DataFrame, Outcome]:
        return self.read(self.held)

    def utility(self, made: Floats) -> dict[str, float]:
        """U and those of its parts that are defined."""
        (real, truth), (frame, outcome) = self._held, self.read(made)
        columns = [feature_column(self.schema, name, [real[name], frame[name]], False) for name in self.schema.names]
        columns += [outcome_column(truth.kind, name, [truth[name], outcome[name]]) for name in truth.arrays]
        side = ComparedRows("made", "", SYNTHETIC, np.ones(len(made)))
        tables = ComparedTables(tuple(columns), (side,), np.ones((len(real), 1)))
        gaps = correlation_gaps(tables, self.seed)
        (found,) = utility(tables, gaps, [self.efficacy(frame, outcome)], self.seed)
        return {name: float(values[0]) for name, (values, _) in found.items() if np.isfinite(values[0])}

    @cached_property
    def taught(self) -> Model | None:
        """The student of the records, for testing on made rows."""
        return self._fitted(*self.read(self.records))

    @cached_property
    def codec(self) -> Codec:
        return Codec.public(self.schema)

    def _fitted(self, frame: pd.DataFrame, outcome: Outcome) -> Model | None:
        if outcome.kind.lacking(outcome):
            return None
        try:
            return self.learner.fit(self.codec.encode(frame), outcome, seed=self.seed, threads=self.threads)
        except DistcondenseError:  # some sets of few rows have no Cox model
            return None

    def efficacy(self, frame: pd.DataFrame, outcome: Outcome) -> Part:
        """Trained on made rows and tested on held-out ones, and the other way round; decisions settled on records."""
        there = self._measured(self._fitted(frame, outcome), *self._held)
        back = self._measured(self.taught, frame, outcome)
        if not (names := both_ways(there, back)):
            return nothing("no measure within [0, 1], or nothing could be learned")
        return np.array([np.mean([np.clip(one[name].value, 0, 1) for one in (there, back) for name in names])]), ""

    @cached_property
    def _settling(self) -> tuple[Matrix, Outcome]:
        frame, outcome = self.read(self.records)
        return self.codec.encode(frame), outcome

    def _measured(self, model: Model | None, frame: pd.DataFrame, outcome: Outcome) -> dict[str, Measured]:
        kind: Any = outcome.kind
        if model is None or kind.lacking(outcome):
            return {}
        known, settled = self._settling
        rule = kind.rule(model.link, model.scores(known), settled)
        measured: dict[str, Measured] = kind.measured(model.link, model.scores(self.codec.encode(frame)), outcome, rule)
        return measured

    # -- P, eq. 3

    @cached_property
    def known(self) -> Matrix:
        return np.ascontiguousarray(self.layout.rows(self.records))

    @cached_property
    def usual(self) -> tuple[Floats, Floats]:
        """Of held-out rows: (h, 2) distances to the two nearest records, (features,) mean distance in each column."""
        return self.near(self.held)

    def near(self, made: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """The same of any rows; `weights` (features,) say how much each column counts in the distance."""
        rows, known = self.layout.rows(made), self.known
        if weights is not None:
            widths = np.diff(np.append(self.layout.starts, known.shape[1]))
            by = np.repeat(weights / weights.mean(), widths).astype(np.float32)
            rows, known = rows * by, known * by
        distance, which = nearest_manhattan(np.ascontiguousarray(rows), np.ascontiguousarray(known), 2, self.threads)
        apart = np.add.reduceat(np.abs(rows - known[which[:, 0]]), self.layout.starts, axis=1)
        return distance, apart.mean(0).astype(np.float64) * apart.shape[1]

    def privacy(self, made: Floats) -> tuple[float, dict[str, float], tuple[float, ...]]:
        (distance, apart), (usual, usually) = self.near(made), self.usual
        ratio = np.divide(distance[:, 0], distance[:, -1], out=np.zeros(len(made)), where=distance[:, -1] > 0)
        closest = float(np.mean(np.minimum(distance[:, 0], 1.0) + ratio) / 2)
        nearer = auroc(
            np.repeat(np.array([1, 0], np.int8), [len(usual), len(made)]), np.append(usual[:, 0], distance[:, 0])
        )
        overfit = max(2 * nearer - 1, 0.0)
        features = made[:, self.layout.first :]
        first = np.zeros(len(made), np.bool_)
        first[np.unique(features, axis=0, return_index=True)[1]] = True
        copied = float(np.mean((distance[:, 0] == 0) | ~first))
        by_column = np.where(usually > 0, np.minimum(apart / np.maximum(usually, 1e-12), 1.0), 1.0)
        parts = {"d_c": closest, "delta_dist": overfit, "r_dup": copied}
        return composed_privacy(closest, overfit, copied), parts, tuple(by_column.tolist())


def composed_privacy(closest: Any, overfit: Any, copied: Any) -> Any:
    """Eq. 3, moved into [0, 1]; of numbers or of traced arrays."""
    first, second, third = P_WEIGHTS
    return first * closest - second * overfit - third * copied + second + third


def correlations(codes: Index | Floats) -> Floats:
    """Pearson's, of columns as numbers; 0 with a column that is constant."""
    apart = codes - codes.mean(0)
    scale = np.sqrt((apart**2).sum(0))
    return np.asarray((apart.T @ apart) / np.maximum(np.outer(scale, scale), 1e-12), np.float64)
