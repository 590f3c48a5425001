"""Condensation as post-processing (SPEC §4.4): few rows whose students agree with the private model.

Nothing here sees a patient: it reads `Learned`, what left the gate, and a seed. What was tried and what won is measured
by `python -m benchmarks.placement`; the winners:

Binary. Half the rows are drawn from each class's marginals, every column stratified; cells are swapped between rows
while the rows come closer to the population that the marginals describe (exact MMD, Laplace kernel on the columns'
contributions to the score); of several such sets the one is kept whose students rank a pool most like the private
model. `risk` is the private model's probability; weights are equal and add up to the noisy number of rows.

Survival. Events and censored rows are drawn from marginals tilted by the model's probability of either; columns are
made uncorrelated by swaps; times are stratified quantiles of the private survival curve (or of follow-up); weights give
the private event share; of several sets the one is kept whose Cox student follows the private model best over a pool.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.cells import Cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Outcome
from distcondense.data.schema import Schema
from distcondense.errors import ModelError
from distcondense.kernels.exchange import exchange_decorrelate, exchange_mmd
from distcondense.methods.private.fit import Learned
from distcondense.models.learners import fit_cox
from distcondense.privacy.gate import PiecewiseExponential

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rng = np.random.Generator

SWAPS_PER_ROW = 1500  # about where the discrepancy stops falling
MAX_WORK = 4.0e9  # swaps × rows over all candidates: bounds the time of large sets
CANDIDATES = 64
BANDWIDTH = 1.0  # of the kernel, in standard deviations of the score
POOL = 4000
STUDENT_SEEDS = (1001, 1002)  # two, and neither a user's default, so that no one student's luck is chosen
STUDENT = {"objective": "binary:logistic", "max_depth": 5, "learning_rate": 0.1, "subsample": 0.7, "verbosity": 0}
ROUNDS = 100

SURVIVAL_POOL = 20_000
SWEEPS = 3
FEW = 8  # cells up to which a student is taken to see a column one-hot
RARE = 0.15  # smallest standard deviation a feature is divided by
SURVIVAL_CANDIDATES = 16
SURVIVAL_WORK = 3200  # rows over all candidates: bounds the time of large sets


@dataclass(frozen=True)
class Placed:
    """Synthetic rows as public cells, and their outcome."""

    codes: Ints  # (m, d)
    inside: Floats  # (m, d) in [0, 1): where within its cell a number lies
    label: NDArray[np.int8]  # (m,) class, or event
    weight: Floats  # (m,) adding up to the noisy number of rows
    risk: Floats | None = None  # (m,) soft label, binary
    time: Floats | None = None  # (m,) survival

    def features(self, cells: tuple[Cells, ...]) -> pd.DataFrame:
        """Legal values in original units."""
        return _values(cells, self.codes, self.inside)


def _values(cells: tuple[Cells, ...], codes: Ints, inside: Floats) -> pd.DataFrame:
    return pd.DataFrame({c.column.name: c.values(codes[:, j], inside[:, j]) for j, c in enumerate(cells)})


class _Encoder:
    """Cells as the numbers students see: the codec's rows of legal values."""

    def __init__(self, cells: tuple[Cells, ...]) -> None:
        self.cells = cells
        self.codec = Codec.public(Schema(tuple(c.column for c in cells)))

    def __call__(self, codes: Ints, inside: Floats) -> NDArray[np.float32]:
        return self.codec.encode(_values(self.cells, codes, inside))


def place(learned: Learned, ipc: int, *, seed: int, threads: int = 1) -> Placed:
    """2·IPC rows, IPC of each class (event status); none where nothing was learned."""
    survival = isinstance(learned.objective, PiecewiseExponential)
    if not learned.informative:
        empty = np.empty(0)
        codes = np.empty((0, len(learned.marginals)), np.int64)
        return Placed(codes, codes.astype(float), empty.astype(np.int8), empty,
                      None if survival else empty, empty if survival else None)  # fmt: skip
    return _place_survival(learned, ipc, seed) if survival else _place_binary(learned, ipc, seed, threads)


# -- binary -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mixture:
    """The population the marginals describe, as the exchange sees it: contributions, kernels, mean embeddings."""

    groups: tuple[Ints, ...]  # per column: cells with the same contribution are one
    values: Floats  # (d, s, s)
    mean: Floats  # (2, d, s)
    pick: Floats  # (d,) how often a column is proposed

    @classmethod
    def of(cls, learned: Learned, bandwidth: float) -> _Mixture:
        found = [np.unique(table, return_inverse=True) for table in learned.model.tables]
        d, size = len(found), max(len(levels) for levels, _ in found)
        values, mean, spread = np.ones((d, size, size)), np.ones((2, d, size)), np.zeros(d)
        for j, (levels, group) in enumerate(found):
            s = len(levels)
            values[j, :s, :s] = np.exp(-np.abs(levels[:, None] - levels) / bandwidth)
            for c in (0, 1):
                mean[c, j, :s] = values[j, :s, :s] @ np.bincount(group, learned.marginals[j][c], minlength=s)
            both = learned.marginals[j].mean(0)
            spread[j] = np.sqrt(max(both @ learned.model.tables[j] ** 2 - (both @ learned.model.tables[j]) ** 2, 0.0))
        pick = spread + 0.05 * max(float(spread.max()), 1e-9)
        return cls(tuple(group.astype(np.int64) for _, group in found), values, mean, pick / pick.sum())


def _place_binary(learned: Learned, ipc: int, seed: int, threads: int) -> Placed:
    m, rng = 2 * ipc, np.random.default_rng([seed, 0x9001])
    half = np.concatenate([_independent(learned, c, POOL // 2, rng) for c in (0, 1)])
    mixture = _Mixture.of(learned, BANDWIDTH * max(float(learned.model.margin(half).std()), 1e-3))
    judge = _Judge(learned, rng)
    swaps = int(min(SWAPS_PER_ROW * m, MAX_WORK / m))
    count = int(np.clip(MAX_WORK / (swaps * m), 1, CANDIDATES))

    def candidate(number: int) -> tuple[float, Ints, Floats]:
        own = np.random.default_rng([seed, 0x9002, number])
        codes = np.concatenate([_stratified([p[c] for p in learned.marginals], ipc, own) for c in (0, 1)])
        codes = _closer(codes, mixture, swaps, own)
        inside = own.random(codes.shape)
        return (judge(codes, inside) if count > 1 else 0.0), codes, inside

    with ThreadPoolExecutor(threads) as pool:  # kernels and XGBoost leave the interpreter alone while they work
        found = list(pool.map(candidate, range(count)))
    _, codes, inside = max(found, key=lambda one: one[0])
    label = np.repeat(np.array([0, 1], np.int8), ipc)
    return Placed(codes, inside, label, np.full(m, learned.rows / m), risk=learned.model.probability(codes))


def _closer(codes: Ints, mixture: _Mixture, swaps: int, rng: Rng) -> Ints:
    """The rows after swaps; marginals over all rows stay, classes mix."""
    m, d = codes.shape
    x = np.stack([group[codes[:, j]] for j, group in enumerate(mixture.groups)])
    payload = np.ascontiguousarray(codes.T)
    column = rng.choice(d, swaps, p=mixture.pick)
    first, second = rng.integers(m, size=(2, swaps))
    exchange_mmd(x, payload, mixture.values, mixture.mean, column, first, second)
    return np.ascontiguousarray(payload.T)


class _Judge:
    """How well students of a candidate set rank a pool like the private model does."""

    def __init__(self, learned: Learned, rng: Rng) -> None:
        import xgboost as xgb

        self.learned = learned
        self.encode = _Encoder(learned.model.cells)
        positives = int(np.clip(round(POOL * learned.positive), 1, POOL - 1))
        pool = np.concatenate([_independent(learned, c, n, rng) for c, n in ((0, POOL - positives), (1, positives))])
        self.truth = learned.model.probability(pool)
        self.pool = xgb.DMatrix(self.encode(pool, rng.random(pool.shape)), nthread=1)

    def __call__(self, codes: Ints, inside: Floats) -> float:
        import xgboost as xgb

        label = self.learned.model.probability(codes)
        weight = np.full(len(codes), self.learned.rows / len(codes))
        rows = xgb.DMatrix(self.encode(codes, inside), label=label, weight=weight, nthread=1)
        total = 0.0
        for seed in STUDENT_SEEDS:
            student = xgb.train({**STUDENT, "seed": seed, "nthread": 1}, rows, ROUNDS)
            total += expected_auroc(student.predict(self.pool, output_margin=True), self.truth)
        return total / len(STUDENT_SEEDS)


def expected_auroc(score: NDArray[Any], probability: Floats) -> float:
    """The AUROC `score` would have if outcomes were drawn with these probabilities; ties count half."""
    order = np.argsort(score, kind="stable")
    ranked, p = score[order], probability[order]
    start = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    positive, negative = np.add.reduceat(p, start), np.add.reduceat(1 - p, start)
    return float((positive * (negative.cumsum() - negative / 2)).sum() / (positive.sum() * negative.sum()))


def _independent(learned: Learned, group: int, rows: int, rng: Rng) -> Ints:
    """(rows, d) i.i.d. draws from one class's marginals."""
    return np.stack([rng.choice(p.shape[1], rows, p=p[group]) for p in learned.marginals], axis=1).astype(np.int64)


def _stratified(marginals: list[Floats], rows: int, rng: Rng) -> Ints:
    """(rows, d) a systematic sample of each column's marginal, shuffled."""

    def column(p: Floats) -> Ints:
        at = (np.arange(rows) + rng.random()) / rows
        return rng.permutation(np.searchsorted(np.cumsum(p)[:-1], at, side="right"))

    return np.stack([column(p) for p in marginals], axis=1).astype(np.int64)


# -- survival ---------------------------------------------------------------------------------------------------------


def _place_survival(learned: Learned, ipc: int, seed: int) -> Placed:
    rng = np.random.default_rng([seed, 0x9003])
    share, overall = learned.positive, learned.overall
    pool = _stratified(overall, SURVIVAL_POOL, rng)
    curve = _Curve.of(learned, pool)
    dies = curve.ends(learned.model.margin(pool))[0].sum(1)
    tilted = [
        [np.bincount(pool[:, j], chance, minlength=len(p)) / chance.sum() for j, p in enumerate(overall)]
        for chance in (1 - dies, dies)
    ]
    judge = _CoxJudge(learned, pool[:POOL], rng)
    label = np.repeat(np.array([0, 1], np.int8), ipc)
    weight = np.where(label == 1, share, 1 - share) * learned.rows / ipc

    def candidate(number: int) -> Placed:
        own = np.random.default_rng([seed, 0x9004, number])
        parts: list[tuple[Ints, Floats]] = []
        for event in (0, 1):
            codes, at = _uncorrelated(tilted[event], ipc, own)
            seen, left = curve.ends(learned.model.margin(codes))
            parts.append((codes, curve.quantile(np.pad(seen, ((0, 0), (0, 1))) if event else left, at)))
        codes, time = (np.concatenate(both) for both in zip(*parts, strict=True))
        return Placed(codes, own.random(codes.shape), label, weight, time=time)

    count = int(np.clip(SURVIVAL_WORK // (2 * ipc), 1, SURVIVAL_CANDIDATES))
    found = [candidate(number) for number in range(count)]
    return max(found, key=judge) if count > 1 else found[0]


class _CoxJudge:
    """How closely a Cox student of a candidate set follows the private model's log hazard over a pool."""

    def __init__(self, learned: Learned, pool: Ints, rng: Rng) -> None:
        self.encode = _Encoder(learned.model.cells)
        self.truth = learned.model.margin(pool)
        self.pool = self.encode(pool, rng.random(pool.shape))

    def __call__(self, placed: Placed) -> float:
        rows = self.encode(placed.codes, placed.inside)
        if not (rows != rows[0]).any():
            return -1.0
        centre, scale = rows.mean(0), np.maximum(rows.std(0), 1e-6)
        outcome = Outcome(placed.label, placed.time, ("time", "event"))
        try:
            student = fit_cox((rows - centre) / scale, outcome, weight=placed.weight / placed.weight.mean())
        except ModelError:  # some sets of few rows have no Cox model
            return -1.0
        answer = student.scores(((self.pool - centre) / scale).astype(np.float32))
        spread = float(answer.std() * self.truth.std())
        return float(np.mean((answer - answer.mean()) * (self.truth - self.truth.mean()))) / spread if spread else -1.0


@dataclass(frozen=True)
class _Curve:
    """Two competing ends of follow-up per row: the event, by the private hazard, and leaving without it."""

    edges: Floats  # (K + 1,)
    hazard: Floats  # (K,) of a row of margin 0
    leaving: Floats  # (K,)
    shift: float = 0.0  # of the margin, so that as many events are seen as the private share says

    @classmethod
    def of(cls, learned: Learned, pool: Ints) -> _Curve:
        objective = learned.objective
        assert isinstance(objective, PiecewiseExponential)
        assert objective.hazard is not None
        margin, low, high = learned.model.margin(pool), -4.0, 4.0
        curve = cls(objective.edges, np.array(objective.hazard), np.array(learned.leaving))
        for _ in range(40):
            middle = (low + high) / 2
            curve = cls(curve.edges, curve.hazard, curve.leaving, middle)
            low, high = (middle, high) if curve.ends(margin)[0].sum(1).mean() < learned.positive else (low, middle)
        return curve

    def ends(self, margin: Floats) -> tuple[Floats, Floats]:
        """((n, K) probability of an event in each interval, (n, K + 1) of leaving in each, and at the horizon)."""
        die = self.hazard * np.exp(np.clip(margin + self.shift, -8, 8))[:, None]
        both = die + self.leaving + 1e-12
        ended = -np.expm1(-both * np.diff(self.edges))
        alive = np.cumprod(np.pad(1 - ended, ((0, 0), (1, 0)), constant_values=1.0), axis=1)
        stay = alive[:, :-1] * ended
        return stay * die / both, np.concatenate([stay * self.leaving / both, alive[:, -1:]], axis=1)

    def quantile(self, mass: Floats, at: Floats) -> Floats:
        """The time at which a share `at` of a row's mass is reached; the last mass sits on the horizon."""
        reached = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
        k = np.minimum((at[:, None] > reached).sum(axis=1), mass.shape[1] - 1)
        row = np.arange(len(at))
        before = np.where(k > 0, reached[row, k - 1], 0.0)
        part = np.clip((at - before) / np.maximum(reached[row, k] - before, 1e-12), 0.02, 1.0)
        edges = np.append(self.edges, self.edges[-1])
        return np.asarray(edges[k] + part * (edges[k + 1] - edges[k]), np.float64)


def _uncorrelated(marginals: list[Floats], rows: int, rng: Rng) -> tuple[Ints, Floats]:
    """Rows whose columns are uncorrelated as a student sees them, and a stratified u unrelated to all of them."""
    codes = _stratified(marginals, rows, rng)
    u = rng.permutation((np.arange(rows) + 0.5) / rows)
    blocks = [*_seen(codes, marginals), np.sqrt(12) * (u[:, None] - 0.5)]
    z = np.concatenate(blocks, axis=1)
    z -= z.mean(0)
    z /= np.maximum(z.std(0), RARE)
    index = np.concatenate([codes, np.round(u * rows - 0.5).astype(np.int64)[:, None]], axis=1)
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    sweeps = SWEEPS if rows <= 200 else 1  # the more rows, the less correlated they are to begin with
    exchange_decorrelate(
        np.ascontiguousarray(z), index, ends, rng.integers(rows, size=(sweeps, len(blocks), 2 * rows, 2))
    )
    return index[:, :-1], (index[:, -1] + 0.5) / rows


def _seen(codes: Ints, marginals: list[Floats]) -> list[Floats]:
    """What a student is likely to see of each column: one-hot where there are few cells, else the standardised cell."""
    sizes = [len(p) for p in marginals]
    return [
        np.eye(s)[codes[:, j]] if s <= FEW else np.linspace(-1.7, 1.7, s)[codes[:, [j]]] for j, s in enumerate(sizes)
    ]
