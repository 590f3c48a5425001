"""Pairs of columns in the private model: what two of them add to the score together, found in what rounds left over.

    look      gradient sums of every candidate pair, on few cells of each column          LOOK_SHARE of μ²
    chosen    pairs whose sums are better explained by a table than without one, by more than EVIDENCE, if one candidate
              in all was to be expected
    measure   gradient sums of the chosen ones, on finer cells, one after the other       MEASURE_SHARE of μ²

A pair's sums are ordinary gradient sums (`privacy/gate.py: sums`): gradient and hessian, of a number residual and
count, are one answer of joint norm at most 1. All answers are Gaussian; which pairs are looked at, which are chosen and
what becomes of them is post-processing. Tables are smoothed as single columns are, by kernels of two dimensions
(smoothing.py: pair_kernels), with "no effect" among them and "nothing but what rounds left of each column alone".

Candidates are the pairs of the columns that the model uses most, as many columns as can be looked at so that a pair
which did a part HEREDITY of all that single columns do would stand POWER deviations out of the noise. Where these are
less than the share MOST of the columns, the pair that matters is likely to be missed, and none is looked at: whether
that is to be expected, noisy counts say before the rounds, with a score of deviation USUAL, and then nothing is kept
for pairs. Where something was kept and is not spent, the last round of single columns has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import Cells
from distcondense.methods.private.joint import Pair, believed, coarse_cells
from distcondense.methods.private.plan import LOOK_GROUPS, PAIR_GROUPS, Plan
from distcondense.methods.private.smoothing import diagonals, doubt, pair_kernels, posteriors, smooth
from distcondense.methods.private.uncertainty import ChosenAmong, ColumnEvidence
from distcondense.models.additive import PairTerm
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy.gate import PrivateTable

HEREDITY = 0.2  # of the deviation of all single columns together: what a pair is expected to do
POWER = 2.5  # deviations of noise by which that must stand out
MOST = 0.5  # of the columns that must be candidates, or none is
USUAL = 1.5  # deviation of a model's score, as it may well be: it is looked at again when it is known
EVIDENCE = 1.0  # log odds for a table, against none or one of each column alone, if one candidate in all has one
LOOKED = 0.5  # of what a look told, in a chosen pair's table: it was chosen for it
KEPT = 8  # kernels by which a chosen pair is smoothed: those that explained its look best


@dataclass(frozen=True)
class Grids:
    """The cells of one used column in pairs: maps of its merged cells."""

    fine: Index  # while a pair is measured
    few: Index  # while it is looked at
    ordered: bool
    hole: bool

    @classmethod
    def from_shares(cls, overall: Floats, merge: Index, cells: Cells) -> Grids:
        """`overall` (fine cells,) shares of rows; `merge` the merged cell of each fine one."""
        fine = coarse_cells(overall, merge, cells, PAIR_GROUPS)
        few = coarse_cells(overall, fine[merge], cells, LOOK_GROUPS)[fine]
        return cls(fine, few, cells.ordered, cells.ordered and cells.hole)

    @property
    def sizes(self) -> tuple[int, int]:
        return int(self.fine.max()) + 1, int(self.few.max()) + 1

    def shape(self, size: int) -> tuple[int, bool, bool]:
        return size, self.ordered, self.hole


@dataclass(frozen=True)
class PairSums:
    """Noisy sums of a pair: (S, cells) each, cells in C order."""

    gradient: Floats
    hessian: Floats
    cost: float  # μ of both

    def with_earlier(self, other: PairSums | None) -> PairSums:
        """Together with other sums over the same cells and rows, whose noise is another: each as it is sure."""
        if other is None:
            return self
        both = self.cost**2 + other.cost**2
        mine, theirs = self.cost**2 / both, other.cost**2 / both
        return PairSums(
            mine * self.gradient + theirs * other.gradient,
            mine * self.hessian + theirs * other.hessian,
            float(np.sqrt(both)),
        )


@dataclass(frozen=True)
class Told:
    """What sums say about a pair's table: (S, cells) each."""

    sums: PairSums
    precision: Floats
    information: Floats
    noise: Floats  # variance of the information that privacy noise makes
    hessian: Floats  # as far as it stands out of its noise


class Look(NamedTuple):
    """A pair that stood out."""

    odds: float  # log odds for a table of it
    told: Told
    kernels: Index  # which explain it best


@dataclass
class PairSearch:
    """Pairs of a run: its gate, and where its single columns stand."""

    table: PrivateTable
    plan: Plan
    side: PrivateSide
    columns: Sequence[int]  # the used columns' numbers at the gate
    grids: Sequence[Grids]
    told: Callable[[Any], Any]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def candidates(self, tables: Sequence[Floats], hessians: Sequence[Floats]) -> list[Pair]:
        """The pairs that are worth a look; places among the used columns. (S, merged cells) tables and hessians."""
        scores = self.table.objective.scores
        rows, worth = np.zeros(scores), []
        for table, hessian in zip(tables, hessians, strict=True):
            held = np.maximum(hessian, 0.0)
            share = held / np.maximum(held.sum(1, keepdims=True), 1e-12)
            rows += held.sum(1) / len(tables)
            worth.append((np.square(table - (share * table).sum(1, keepdims=True)) * share).sum(1))
        spread = np.sum(worth, axis=0)  # (S,) variance of the score
        own = (rows**2 * np.array(worth)).sum(1)
        return self._affordable(np.argsort(-own, kind="stable").tolist(), float(np.sqrt((rows**2 * spread).sum())))

    def expected(self, hessians: Sequence[Floats]) -> bool:
        """Whether pairs are worth a look, as far as is known before the rounds."""
        rows = np.mean([np.maximum(hessian, 0.0).sum(1) for hessian in hessians], axis=0)
        return bool(self._affordable(list(range(len(self.grids))), USUAL * float(np.sqrt((rows**2).sum()))))

    def _affordable(self, order: Sequence[int], signal: float) -> list[Pair]:
        """The pairs of the first of these columns, of as many as can be looked at; none where these are too few."""
        sizes = [grid.sizes[1] for grid in self.grids]
        order = [j for j in order if sizes[j] > 1]
        least = max(2, int(np.ceil(MOST * min(len(order), self.plan.terms))))
        for many in range(min(len(order), self.plan.terms), least - 1, -1):
            pairs = [(min(pair), max(pair)) for pair in combinations(order[:many], 2)]
            cells = np.mean([sizes[i] * sizes[j] for i, j in pairs])
            noise = self.sigma(self.plan.look_cost(self.table.budget, len(pairs))) * np.sqrt(cells)
            if HEREDITY * signal >= POWER * noise * np.sqrt(self.table.objective.scores):
                return sorted(pairs)
        return []

    def sigma(self, cost: float) -> float:
        """Noise of a gradient sum; of several that are centred, less."""
        scores = self.table.objective.scores
        return float((np.sqrt(1 - 1 / scores) if scores > 1 else 1.0) / (cost * self.table.objective.scales[0]))

    def _ask(self, pair: Pair, merges: tuple[Index, Index], cost: float) -> PairSums:
        scores = self.table.objective.scores
        maps = [merge.tolist() for merge in merges]
        parts = self.told(self.table.sums((self.columns[pair[0]], self.columns[pair[1]]), mu=cost, merges=maps))
        return PairSums(np.stack(parts[:scores]), np.stack(parts[scores:]), cost)

    def count_noise(self, sums: PairSums) -> float:
        """Of each hessian."""
        return 1 / (sums.cost * self.table.objective.scales[-1])

    def _said(self, sums: PairSums, pair: Pair, merges: tuple[Index, Index], hessians: Sequence[Floats]) -> Told:
        """About a table that is empty so far. Patients' own variation is the same however often they are asked."""
        expected = _independent([np.maximum(hessians[k], 0.0) for k in pair], merges)
        noise = self.count_noise(sums) ** 2
        H = np.stack([believed(one, noise, other) for one, other in zip(sums.hessian, expected, strict=True)])
        sigma = self.sigma(sums.cost)
        variance = sigma**2 + self.facts.get("dispersion", 1.0) * H
        precision = H * H / variance
        information = precision * self.side.newton(sums.gradient, H)
        return Told(sums, precision, information, precision * sigma**2 / variance, H)

    def look(self, pairs: Sequence[Pair], hessians: Sequence[Floats]) -> dict[Pair, Look]:
        """The pairs that stand out, the clearest first."""
        found: dict[Pair, Look] = {}
        for time, many in enumerate(self.plan.looks(len(pairs))):
            pairs = sorted(pairs, key=lambda pair: -found[pair].odds)[:many] if found else pairs
            cost = self.plan.look_cost(self.table.budget, len(pairs), time)
            for i, j in pairs:
                merges, earlier = (self.grids[i].few, self.grids[j].few), found.get((i, j))
                sums = self._ask((i, j), merges, cost).with_earlier(None if earlier is None else earlier.told.sums)
                found[i, j] = self._seen((i, j), self._said(sums, (i, j), merges, hessians))
        order = sorted(pairs, key=lambda pair: -found[pair].odds)[: self.plan.measured]
        return {pair: found[pair] for pair in order if found[pair].odds > EVIDENCE + np.log(len(found))}

    def _seen(self, pair: Pair, said: Told) -> Look:
        """How much clearer a table of a pair explains what was told than none does."""
        both, alone = pair_kernels(*(self.grids[k].shape(self.grids[k].sizes[1]) for k in pair))
        evidence = posteriors(said.precision, said.information[..., None], both)[1][:, 0]
        without = posteriors(said.precision, said.information[..., None], alone)[1][:, 0]
        odds = _mean(evidence) - float(np.logaddexp(0.0, _mean(without)))
        return Look(odds, said, np.argsort(-evidence, kind="stable")[:KEPT])

    def measure(
        self, chosen: Mapping[Pair, Look], hessians: Sequence[Floats], rivals: int
    ) -> tuple[list[PairTerm], list[ColumnEvidence], dict[Pair, PairSums]]:
        """The tables of the chosen pairs over merged cells, one after the other; scores move by each."""
        cost = self.plan.measure_cost(self.table.budget, len(chosen))
        terms, evidence, counts = [], [], {}
        for (i, j), (_, looked, best) in chosen.items():
            first, second = self.grids[i], self.grids[j]
            merges = (first.fine, second.fine)
            said = self._said(self._ask((i, j), merges, cost), (i, j), merges, hessians)
            kernels = pair_kernels(first.shape(first.sizes[0]), second.shape(second.sizes[0]))[0][best]
            precision, information = self._with_look(said, looked, (i, j))
            table = self.side.settled(smooth(precision, information, kernels))
            told = zip(said.precision, said.information, table, strict=True)  # in looks patients vary as they do here
            error = np.stack([doubt(p, e, kernels, t) for p, e, t in told])
            shape = (len(table), first.sizes[0], second.sizes[0])
            block = table.reshape(shape)
            term = PairTerm((i, j), (first.fine, second.fine), block, error.reshape(shape))
            if self.table.objective.scores == 1:
                term = PairTerm(term.columns, term.groups, block[0], term.errors[0])
            step = block[:, first.fine[:, None], second.fine].reshape(len(table), -1)
            self.table.shift((self.columns[i], self.columns[j]), step if len(step) > 1 else step[0])
            terms.append(term)
            chance = ChosenAmong(-(-rivals // len(chosen)))
            held = diagonals(said.precision), diagonals(said.noise)
            evidence.append(ColumnEvidence(*held, said.hessian, kernels, chance))
            counts[i, j] = said.sums
        return terms, evidence, counts

    def _with_look(self, said: Told, looked: Told, pair: Pair) -> tuple[Floats, Floats]:
        """((S, s, s), (S, s)) precision and information of a measured pair together with its look, of coarser cells."""
        lift = [_lift(self.grids[k]) for k in pair]
        coarse = np.ravel(lift[0][:, None] * self.grids[pair[1]].sizes[1] + lift[1])
        precision, information = [], []
        for k, held in enumerate(said.hessian):
            within = held / np.maximum(np.bincount(coarse, held)[coarse], 1e-12)
            seen = np.zeros((looked.precision.shape[1], len(coarse)))
            seen[coarse, np.arange(len(coarse))] = within  # a coarse cell's effect is the mean of its cells'
            precision.append(np.diag(said.precision[k]) + LOOKED * (seen.T * looked.precision[k]) @ seen)
            information.append(said.information[k] + LOOKED * seen.T @ looked.information[k])
        return np.stack(precision), np.stack(information)


def _lift(grid: Grids) -> Index:
    """(fine groups,) the coarse group of each."""
    out = np.zeros(grid.sizes[0], np.int64)
    out[grid.fine] = grid.few
    return out


def _independent(hessians: Sequence[Floats], merges: Sequence[Index]) -> Floats:
    """(S, cells) of a pair: as many in each cell as there would be if columns had nothing to do with each other."""
    first, second = (
        np.stack([np.bincount(merge, one) for one in hessian]) for hessian, merge in zip(hessians, merges, strict=True)
    )
    total = np.maximum((first.sum(1) + second.sum(1)) / 2, 1e-12)
    share = second / np.maximum(second.sum(1, keepdims=True), 1e-12)
    part = first / np.maximum(first.sum(1, keepdims=True), 1e-12)
    return np.asarray((total[:, None, None] * part[:, :, None] * share[:, None, :]).reshape(len(first), -1), np.float64)


def _mean(evidence: Floats) -> float:
    """The log of the mean of evidences."""
    most = float(evidence.max())
    return most + float(np.log(np.mean(np.exp(evidence - most))))
