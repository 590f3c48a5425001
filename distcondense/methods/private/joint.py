"""Rows that hang together: which columns belong together is chosen privately, and whole rows are drawn from that.

What is known of a column, by group of rows (class, event status), are its noisy marginals. To these come tables of
pairs of columns, in two steps, each chosen by exponential mechanisms on |rows − expected|:

    forest   pairs that join all columns to one tree, against columns that are independent within each group of rows
    more     pairs that the forest explains worst, against rows drawn from it

A noisy table counts where it stands out of its noise (a garrote: y(1 − (σ/y)²)₊ of what differs from the expected).
The forest, with the group of rows at every node, is a model that whole rows are drawn from exactly; the rows are then
raked, that is given weights, until all tables agree, and drawn again by weight. In the limit of many rows that is the
distribution of maximum entropy with these marginals; a row never takes values that the forest gives no chance.

Everything but the questions is post-processing: it reads `Learned`, what left the gate, and a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import Cells
from distcondense.methods.private.plan import PAIRED
from distcondense.privacy.gate import PrivateTable

Rng = np.random.Generator
Pair = tuple[int, int]

POOL = 100_000  # rows that are raked at once
ROUNDS = 15  # of raking, by which weights have settled
FACTOR = 5.0  # most by which one step changes a weight
FITTED = 60  # rounds of fitting a forest's table to its margins
FAINT = 1e-3  # rows in a cell that a noisy table calls empty: a marginal may need it
THRICE = 3  # rows drawn for each that is kept


@dataclass(frozen=True)
class Counts:
    """Noisy numbers of rows in a pair's cells, which may be finer than those of a table of pairs."""

    rows: Floats  # (cells of the first, cells of the second)
    sigma: float
    first: Index  # the coarse cell of each of the first's cells
    second: Index


@dataclass(frozen=True)
class Joint:
    """Columns in coarse cells, within groups of rows: a forest of tables, and tables beside it."""

    coarse: tuple[Index, ...]  # per column: the coarse cell of each fine one
    marginals: tuple[Floats, ...]  # per column (groups, coarse): shares of all rows, adding up to 1
    forest: Mapping[Pair, Floats]  # (groups, coarse of i, coarse of j) shares of all rows
    more: Mapping[Pair, Floats]  # (coarse of i, coarse of j)

    @classmethod
    def independent(cls, marginals: Sequence[Floats], shares: Floats, coarse: Sequence[Index]) -> Joint:
        """Nothing known but the marginals of each group of rows."""
        held = []
        for by_group, where in zip(marginals, coarse, strict=True):
            size = int(where.max()) + 1
            held.append(shares[:, None] * np.stack([np.bincount(where, row, size) for row in by_group]))
        return cls(tuple(coarse), tuple(held), {}, {})

    def expected(self, i: int, j: int) -> Floats:
        """(groups, coarse of i, coarse of j): independent within each group of rows."""
        first, second = self.marginals[i], self.marginals[j]
        group = np.maximum(first.sum(1), 1e-12)
        return np.asarray(first[:, :, None] * second[:, None, :] / group[:, None, None], np.float64)

    def with_forest(self, tables: Mapping[Pair, Floats]) -> Joint:
        """Tables of pairs (coarse of i, coarse of j), fitted to what is known of both columns within each group."""
        return Joint(self.coarse, self.marginals, {p: self._fitted(p, t) for p, t in tables.items()}, self.more)

    def _fitted(self, pair: Pair, table: Floats) -> Floats:
        i, j = pair
        first, second = self.marginals[i], self.marginals[j]
        held = self.expected(i, j) + 1e-12
        for _ in range(FITTED):
            held = held * _ratio(table, held.sum(0))[None]
            held = held * _ratio(first, held.sum(2))[:, :, None]
            held = held * _ratio(second, held.sum(1))[:, None, :]
        return np.asarray(held, np.float64)

    # -- drawing

    def draw(self, fine: Sequence[Floats], rows: int, rng: Rng) -> tuple[Index, Index]:
        """((rows, d) fine cells, (rows,) group of each): whole rows. `fine`: per column (groups, cells)."""
        parts, left = [], rows
        while left > 0:
            now = min(left, POOL // THRICE)
            parts.append(self._some(fine, now, rng))
            left -= now
        codes, group = (np.concatenate(both) for both in zip(*parts, strict=True))
        return codes, group

    def _some(self, fine: Sequence[Floats], rows: int, rng: Rng) -> tuple[Index, Index]:
        many = THRICE * rows if self.more else rows
        group, cell = self.coarse_rows(many, rng)
        if self.more:
            weight = self.raked(group, cell)
            at = (np.arange(rows) + rng.random()) / rows
            kept = rng.permutation(np.searchsorted(np.cumsum(weight)[:-1] / weight.sum(), at, side="right"))
            group, cell = group[kept], [one[kept] for one in cell]
        codes = [_within(p, where, one, group, rng) for p, where, one in zip(fine, self.coarse, cell, strict=True)]
        return np.stack(codes, axis=1), group

    def coarse_rows(self, rows: int, rng: Rng) -> tuple[Index, list[Index]]:
        """((rows,) group, per column (rows,) coarse cell), by the forest alone."""
        share = self.marginals[0].sum(1)
        at = (np.arange(rows) + rng.random()) / rows
        group = rng.permutation(np.searchsorted(np.cumsum(share)[:-1] / share.sum(), at, side="right"))
        cell: list[Any] = [None] * len(self.marginals)
        tables = {**self.forest, **{(j, i): table.transpose(0, 2, 1) for (i, j), table in self.forest.items()}}
        waiting = list(range(len(cell)))
        while waiting:
            known = next(((i, j) for i, j in tables if cell[i] is not None and cell[j] is None), None)
            if known is None:
                child, chance, row = waiting[0], self.marginals[waiting[0]][:, None, :], np.zeros(rows, np.int64)
            else:
                child, chance, row = known[1], tables[known], cell[known[0]]
            cell[child] = _pick(chance, group, row, rng)
            waiting.remove(child)
        return group, cell

    def raked(self, group: Index, cell: Sequence[Index]) -> Floats:
        """(n,) weights with which rows of the forest have all tables."""
        wanted: list[tuple[Index, Floats]] = []
        for (i, j), table in self.more.items():
            wanted.append((cell[i] * table.shape[1] + cell[j], table.ravel()))
        for (i, j), table in self.forest.items():
            wanted.append((cell[i] * table.shape[2] + cell[j], table.sum(0).ravel()))
        for one, held in zip(cell, self.marginals, strict=True):
            wanted.append((group * held.shape[1] + one, held.ravel()))
        weight = np.full(len(group), 1 / len(group))
        for _ in range(ROUNDS):
            for where, share in wanted:
                there = np.asarray(np.bincount(where, weight, minlength=len(share)), np.float64)
                weight = weight * np.clip(_ratio(share, there), 1 / FACTOR, FACTOR)[where]
        return np.asarray(weight / weight.sum(), np.float64)


def coarse_cells(overall: Floats, merged: Index, cells: Cells, most: int) -> Index:
    """(merged cells,) the coarse cell of each: neighbours of about equal mass, or the heaviest categories and the rest.

    `merged` is the merged cell of each fine one; `overall` the share of rows in each fine one.
    """
    held = np.bincount(merged, overall)
    size, hole = len(held), cells.ordered and cells.hole
    if size <= most:
        return np.arange(size)
    if not cells.ordered:
        coarse = np.full(size, most - 1)
        coarse[np.argsort(-held, kind="stable")[: most - 1]] = np.arange(most - 1)
        return np.unique(coarse, return_inverse=True)[1]
    inner, many = size - hole, most - hole
    share = held[:inner] / max(float(held[:inner].sum()), 1e-12)
    middle = np.cumsum(share) - share / 2
    coarse = np.unique(np.minimum((middle * many).astype(np.int64), many - 1), return_inverse=True)[1]
    return np.append(coarse, coarse.max() + 1) if hole else coarse


def ask_pairs(
    table: PrivateTable,
    columns: Sequence[int],
    joint: Joint,
    rows: float,
    costs: tuple[float, float],
    counts: tuple[int, int],
    told: Callable[[Any], Any],
    rng: Rng,
    worth: Floats,
    known: Mapping[Pair, Counts],
) -> Joint:
    """The joint model with what the pairs told. The table's cells are the joint's coarse ones already.

    `costs`, `counts`: μ and number of the forest's tables, and of those beside it; `worth` says which columns take part
    where there are too many. `known` are rows of pairs that another question has told already.
    """
    among = sorted(np.argsort(-worth, kind="stable")[:PAIRED].tolist())
    pairs = list(combinations(among, 2))
    expected = {(i, j): rows * joint.expected(i, j).sum(0) for i, j in pairs}

    def asked(pair: Pair, mu: float) -> Floats:
        shape = expected[pair].shape
        answer = told(table.histogram((columns[pair[0]], columns[pair[1]]), by="none", mu=mu))[0].reshape(shape)
        return believed(*_together(answer, 1 / mu, known.get(pair)), expected[pair]) / rows

    def chosen(candidates: list[Pair], ahead: list[float]) -> Pair:
        place = told(
            table.related(
                [(columns[i], columns[j]) for i, j in candidates], [expected[pair] for pair in candidates], ahead
            )
        )
        return candidates[place]

    part, forest = {column: column for column in among}, []
    for _ in range(counts[0]):
        apart = [(i, j) for i, j in pairs if part[i] != part[j]]
        pair = chosen(apart, [0.0] * len(apart))
        forest.append(pair)
        part = {column: part[pair[0]] if of == part[pair[1]] else of for column, of in part.items()}
    joint = joint.with_forest({pair: asked(pair, costs[0]) for pair in forest})
    if not counts[1]:
        return joint

    _, cell = joint.coarse_rows(POOL, rng)
    left = [pair for pair in pairs if pair not in joint.forest]
    for i, j in left:
        shape = expected[i, j].shape
        expected[i, j] = np.bincount(cell[i] * shape[1] + cell[j], minlength=expected[i, j].size).reshape(shape) * (
            rows / POOL
        )
    noise = {pair: np.sqrt(2 / np.pi) / costs[1] * expected[pair].size for pair in left}  # what measuring it would add
    most, more = max(noise.values()), []
    for _ in range(counts[1]):
        pair = chosen(left, [most - noise[pair] for pair in left])
        more.append(pair)
        left.remove(pair)
    return Joint(joint.coarse, joint.marginals, joint.forest, {pair: asked(pair, costs[1]) for pair in more})


def _together(answer: Floats, sigma: float, known: Counts | None) -> tuple[Floats, Floats]:
    """A noisy table and the variance of its cells, together with another answer about the same cells, if there is one.

    The other one's cells may be finer: its noise is then that of several.
    """
    variance = np.full(answer.shape, sigma**2)
    if known is None:
        return answer, variance
    place = known.first[:, None] * answer.shape[1] + known.second
    other = np.bincount(place.ravel(), known.rows.ravel(), answer.size).reshape(answer.shape)
    noise = known.sigma**2 * np.maximum(np.bincount(place.ravel(), minlength=answer.size).reshape(answer.shape), 1)
    both = 1 / (1 / variance + 1 / noise)
    return np.asarray(both * (answer / variance + other / noise), np.float64), both


def believed(answer: Floats, variance: Any, expected: Floats) -> Floats:
    """A noisy table, of which what does not stand out of the noise is as expected; adds up to what was expected."""
    apart = answer - expected
    kept = np.maximum(0.0, 1 - variance / np.maximum(apart**2, 1e-12))
    table = np.maximum(expected + kept * apart, FAINT)
    return np.asarray(table * (expected.sum() / table.sum()), np.float64)


def _ratio(wanted: Floats, there: Floats) -> Floats:
    return np.asarray(wanted / np.maximum(there, 1e-15), np.float64)


def _pick(chance: Floats, group: Index, row: Index, rng: Rng) -> Index:
    """(n,) a column of chance[group, row] for each, drawn in proportion."""
    reached = np.cumsum(chance, axis=2)
    reached = reached / np.maximum(reached[:, :, -1:], 1e-15)
    u = rng.random(len(group))
    found = np.zeros(len(group), np.int64)
    for step in range(chance.shape[2] - 1):  # few cells: a step for each is faster than a table for every row
        found += u > reached[group, row, step]
    return found


def _within(fine: Floats, coarse: Index, cell: Index, group: Index, rng: Rng) -> Index:
    """(n,) a fine cell of each row's coarse cell, by the marginals of its group of rows."""
    order = np.argsort(coarse, kind="stable")
    many = np.bincount(coarse)
    start = np.cumsum(many) - many
    everybody = fine.mean(0)
    out = np.empty(len(cell), np.int64)
    u = rng.random(len(cell))
    for number, p in enumerate(fine):
        there = np.flatnonzero(group == number)
        mass = np.bincount(coarse, p)
        p = np.where((mass > 0)[coarse], p, everybody + 1e-15)[order]
        reached = np.concatenate([[0.0], np.cumsum(p)])
        low, high = reached[start], reached[start + many]
        at = low[cell[there]] + u[there] * (high - low)[cell[there]]
        place = np.searchsorted(reached, at, side="right") - 1
        first = start[cell[there]]
        out[there] = order[np.clip(place, first, first + many[cell[there]] - 1)]
    return out
