"""Utility U (eqs 1, 2) and privacy-preservability P (eq. 3) of a table's places, as PSyGenTAB §III-A names their parts.

The paper leaves the parts' formulas and weights open; the choices are those of our own evaluation
(`evaluation/fidelity/composite.py: CHOICES`), with numbers cut into public cells for U, so that they can be asked for
at every round. P is a score of distances, not a guarantee. Who the "records" of P are is the caller's business:
training patients where a network learns (guarantee none), rows drawn from the private model where that is the sampler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.outcome import Outcome
from distcondense.errors import DistcondenseError
from distcondense.kernels.neighbours import nearest_manhattan
from distcondense.methods.psygentab.layout import Layout
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.measures import auroc

P_WEIGHTS = (0.5, 0.25, 0.25)  # λ₁, λ₂, λ₃ of eq. 3; it then lies within ±½ and is moved by ½ into [0, 1]
COARSE = 8  # cells of a column while pairs of columns are counted
PAIRS = 300  # pairs looked at, at most
FENCE = 1.5  # interquartile ranges
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
        found = {**utility_parts(self.layout, self.held, made), "e_pred": self.efficacy(made)}
        U = float(np.mean([value for value in found.values() if np.isfinite(value)]))
        P, parts, by_column = self.privacy(made)
        return TableScores(U, P, by_column, {**found, **parts})

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

    # -- the last part of U, eq. 1

    @cached_property
    def taught(self) -> Model | None:
        """The student of the records, for testing on made rows."""
        return self._fitted(self.records)

    def _fitted(self, places: Floats) -> Model | None:
        outcome = self._outcome(places)
        if outcome.kind.lacking(outcome):
            return None
        try:
            return self.learner.fit(self.layout.rows(places), outcome, seed=self.seed, threads=self.threads)
        except DistcondenseError:  # some sets of few rows have no Cox model
            return None

    def _outcome(self, places: Floats) -> Outcome:
        return self.layout.outcome.outcome(places[:, : self.layout.first])

    def efficacy(self, made: Floats) -> float:
        """Trained on made rows and tested on held-out ones, and the other way round: mean of the main measures."""
        there, back = self._tested(self._fitted(made), self.held), self._tested(self.taught, made)
        return float(np.mean([np.clip(0.0 if np.isnan(one) else one, 0.0, 1.0) for one in (there, back)]))

    def _tested(self, model: Model | None, places: Floats) -> float:
        outcome = self._outcome(places)
        if model is None or outcome.kind.lacking(outcome):
            return 0.0  # rows that teach nothing are worth nothing
        kind: Any = outcome.kind
        return float(kind.score(model.link, model.scores(self.layout.rows(places)), outcome))


def composed_privacy(closest: Any, overfit: Any, copied: Any) -> Any:
    """Eq. 3, moved into [0, 1]; of numbers or of traced arrays."""
    first, second, third = P_WEIGHTS
    return first * closest - second * overfit - third * copied + second + third


# -- U ----------------------------------------------------------------------------------------------------------------


def utility_parts(layout: Layout, real: Floats, made: Floats) -> dict[str, float]:
    """F_marg (eq. 2), F_rare, F_joint and C_div; T_dyn has nothing to compare (rows are no series), E_pred is apart."""
    cells = [np.floor(rows).astype(np.int64) for rows in (real, made)]
    shares = [
        tuple(np.bincount(rows[:, j], minlength=size) / max(len(rows), 1) for rows in cells)
        for j, size in enumerate(layout.sizes)
    ]
    columns = list(zip(shares, layout.ordered, layout.holes, strict=True))
    return {
        "f_marg": 1 - float(np.mean([_apart(p, q, ordered, hole) for (p, q), ordered, hole in columns])),
        "f_rare": float(np.mean([_rare(p, q, ordered, hole) for (p, q), ordered, hole in columns])),
        "f_joint": _joint(layout, *cells),
        "c_div": float(np.mean([_covered(p, q, ordered) for (p, q), ordered, _ in columns])),
    }


def _apart(p: Floats, q: Floats, ordered: bool, hole: bool) -> float:
    """δ of eq. 2: of ordered cells the mean of Kolmogorov–Smirnov, 1 − exp(−KL), Jensen–Shannon and the range that is
    not spanned; of categories total variation."""
    if not ordered:
        return float(np.abs(p - q).sum() / 2)
    middle = (p + q) / 2
    shannon = (_divergence(p, middle) + _divergence(q, middle)) / (2 * np.log(2))
    smooth = (q + 1e-6) / (1 + 1e-6 * len(q))
    inner = len(p) - hole
    there, spanned = (np.flatnonzero(one[:inner] > 0) for one in (p, q))
    missed = 0.0
    if len(there) and there[-1] > there[0]:
        low, high = (max(spanned[0], there[0]), min(spanned[-1], there[-1])) if len(spanned) else (0, 0)
        missed = 1 - max(high - low, 0) / (there[-1] - there[0])
    far = np.abs(np.cumsum(p - q)).max()
    return float(np.mean([far, 1 - np.exp(-_divergence(p, smooth)), shannon, missed]))


def _divergence(p: Floats, q: Floats) -> float:
    there = p > 0
    return float(np.sum(p[there] * np.log(p[there] / q[there])))


def _rare(p: Floats, q: Floats, ordered: bool, hole: bool) -> float:
    """min/max of the shares beyond the fences of ordered cells, or in the rarest category that there is."""
    if not ordered:
        rarest = int(np.argmin(np.where(p > 0, p, np.inf)))
        return _alike(float(p[rarest]), float(q[rarest]))
    inner = len(p) - hole
    reached = np.cumsum(p[:inner]) / max(float(p[:inner].sum()), 1e-12)
    low, high = np.searchsorted(reached, [0.25, 0.75])
    cell = np.arange(inner)
    beyond = (cell < low - FENCE * (high - low)) | (cell > high + FENCE * (high - low))
    return _alike(float(p[:inner][beyond].sum()), float(q[:inner][beyond].sum()))


def _alike(first: float, second: float) -> float:
    return 1.0 if first == second else min(first, second) / max(first, second)


def _covered(p: Floats, q: Floats, ordered: bool) -> float:
    """Category coverage; of ordered cells the mean over those that real rows have of min(1, made/real share)."""
    there = p > 0
    return float(np.mean(np.minimum(q[there] / p[there], 1.0) if ordered else q[there] > 0))


def _joint(layout: Layout, real: Index, made: Index) -> float:
    """Mean of eq. 11's 1 − ‖difference of correlations‖/d over ordered columns, and of 1 − total variation of coarse
    tables over pairs with categories."""
    lines = [
        j for j, (size, ordered) in enumerate(zip(layout.sizes, layout.ordered, strict=True)) if ordered or size == 2
    ]
    parts = []
    if len(lines) > 1:
        first, second = (correlations(rows[:, lines]) for rows in (real, made))
        parts.append(max(1 - float(np.linalg.norm(first - second)) / len(lines), 0.0))
    pairs = [(i, j) for i in range(len(layout.sizes)) for j in range(i) if not {i, j} <= set(lines)]
    pairs = [pairs[k] for k in np.linspace(0, len(pairs) - 1, min(PAIRS, len(pairs))).astype(int)] if pairs else []
    if pairs:
        coarse = [np.minimum(np.arange(size) * COARSE // max(size, COARSE), COARSE - 1) for size in layout.sizes]
        gaps = []
        for i, j in pairs:
            tables = [
                np.bincount(coarse[i][rows[:, i]] * COARSE + coarse[j][rows[:, j]], minlength=COARSE**2) / len(rows)
                for rows in (real, made)
            ]
            gaps.append(1 - np.abs(tables[0] - tables[1]).sum() / 2)
        parts.append(float(np.mean(gaps)))
    return float(np.mean(parts)) if parts else float("nan")


def correlations(codes: Index | Floats) -> Floats:
    """Pearson's, of columns as numbers; 0 with a column that is constant."""
    apart = codes - codes.mean(0)
    scale = np.sqrt((apart**2).sum(0))
    return np.asarray((apart.T @ apart) / np.maximum(np.outer(scale, scale), 1e-12), np.float64)
