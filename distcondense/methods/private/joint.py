"""Rows that hang together: which columns belong together is chosen privately, and whole rows are drawn from that.

What is known of a column, by group of rows (class, event status), are its noisy marginals. To these come tables of
pairs of columns, in two steps, each chosen by exponential mechanisms on |rows − expected|:

    forest   pairs that join columns to trees, against columns that are independent within each group of rows
    more     pairs that the forest explains worst, against rows drawn from it; before them those of the forest that are
             nearly a function, once more, in which columns had to give up categories of their own

Each table has as many cells as noise can bear: a column of few categories keeps them, the other one gets the rest. A
noisy table counts where it stands out of its noise (a garrote: y(1 − (σ/y)²)₊ of what differs from the expected); cells
in which nobody seems to be, though many were expected, are empty for good (`empty_cells`): a code nested in another, a
value where nothing was measured. The forest, with the group of rows at every node, is a model that whole rows are drawn
from exactly; the rows are then raked, that is given weights, until all tables agree, and drawn again by weight. In the
limit of many rows that is the distribution of maximum entropy with these marginals; a row never takes values that the
forest gives no chance. Within their cells two numbers of a table lie by a normal copula that fits it (linked.py).

Everything but the questions is post-processing: it reads `Learned`, what left the gate, and a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import Cells
from distcondense.methods.private.linked import (
    Link,
    Number,
    Relation,
    draw_linked,
    fitted,
    found_relation,
    in_line,
    ranges_of_groups,
)
from distcondense.methods.private.plan import PAIR_NOISE, PAIRED
from distcondense.privacy.gate import PrivateTable

Rng = np.random.Generator
Pair = tuple[int, int]

POOL = 100_000  # rows that are raked at once
ROUNDS = 15  # of raking, by which weights have settled
FACTOR = 5.0  # most by which one step changes a weight
FITTED = 60  # rounds of fitting a forest's table to its margins
FAINT = 1e-3  # rows in a cell that a noisy table calls empty: a marginal may need it
THRICE = 3  # rows drawn for each that is kept
LOST = 0.5  # of a table's noise, as far as cells that do not stand out of it are as expected
NEARLY = 0.5  # a table is nearly a function where guessing one column by the other errs less than so often as without
SEEN = 4.0  # a cell is empty where more than so many standard deviations of its noise were expected,
NOBODY = 1.5  # and no more than so many were seen
SURE = 6.0  # a table is a function where so many were expected beside it, in all,
ODD = 2.5  # and no more than so many were seen


@dataclass(frozen=True)
class Counts:
    """Noisy numbers of rows in a pair's cells, which may be finer than those of a table of pairs."""

    rows: Floats  # (cells of the first, cells of the second)
    sigma: float
    first: Index  # the coarse cell of each of the first's cells
    second: Index


@dataclass(frozen=True)
class PairTable:
    """What is known of a pair of columns, in groups of their coarse cells."""

    shares: Floats  # (groups of the first, groups of the second), of all rows; exactly 0: nobody
    first: Index  # the group of each of the first's coarse cells
    second: Index

    @classmethod
    def whole(cls, shares: Floats) -> PairTable:
        """A table of the coarse cells themselves."""
        return cls(shares, np.arange(shares.shape[0]), np.arange(shares.shape[1]))

    def spread(self, blocks: Floats) -> Floats:
        """Of each coarse cell of the pair the number of its group."""
        return np.asarray(blocks[self.first[:, None], self.second[None, :]])

    def summed(self, cells: Floats) -> Floats:
        """(groups of the first, groups of the second) sums over coarse cells of the pair."""
        place = self.first[:, None] * self.shares.shape[1] + self.second[None, :]
        held = np.bincount(place.ravel(), cells.ravel(), self.shares.size)
        return np.asarray(held.reshape(self.shares.shape), np.float64)

    @property
    def empty(self) -> Flags:
        """(coarse of i, coarse of j) whether nobody is there."""
        return np.asarray(self.spread(self.shares) == 0, np.bool_)


@dataclass(frozen=True)
class Joint:
    """Columns in coarse cells, within groups of rows: a forest of tables, and tables beside it."""

    coarse: tuple[Index, ...]  # per column: the coarse cell of each fine one
    marginals: tuple[Floats, ...]  # per column (groups, coarse): shares of all rows, adding up to 1
    forest: Mapping[Pair, Floats]  # (groups, coarse of i, coarse of j) shares of all rows
    more: Mapping[Pair, PairTable]
    links: Mapping[Pair, Link] = field(default_factory=dict)  # pairs of numbers in the forest, and how they go together
    cells: tuple[Cells, ...] = ()  # per column, where there are links

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

    def with_forest(self, tables: Mapping[Pair, PairTable]) -> Joint:
        """Tables of pairs, fitted to what is known of both columns within each group.

        Cells of a column that no cell of the other goes with hold nobody.
        """
        marginals = list(self.marginals)
        for _ in tables:  # what one pair empties another one may depend on
            for (i, j), table in tables.items():
                alone = table.empty | (marginals[i].sum(0) == 0)[:, None] | (marginals[j].sum(0) == 0)[None, :]
                for k, empty in ((i, alone.all(1)), (j, alone.all(0))):
                    if not empty.all():
                        marginals[k] = _without(marginals[k], empty)
        known = replace(self, marginals=tuple(marginals))
        return replace(known, forest={pair: known._fitted(pair, table) for pair, table in tables.items()})

    def _fitted(self, pair: Pair, table: PairTable) -> Floats:
        i, j = pair
        first, second = self.marginals[i], self.marginals[j]
        held = np.where(table.empty, 0.0, self.expected(i, j) + 1e-12)
        for _ in range(FITTED):
            held = held * table.spread(_ratio(table.shares, table.summed(held.sum(0))))[None]
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
        share = self.marginals[0].sum(1)
        draw_linked(codes, self.links, self.coarse, cell, fine, share, self.cells, group, rng)
        return np.stack(codes, axis=1), group

    def in_line(self, codes: Index, inside: Floats) -> tuple[Index, Floats]:
        """Rows as cells and where in them, with numbers moved that are not in the order that was found of them."""
        return in_line(self.links, self.cells, codes, inside)

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
        for (i, j), known in self.more.items():
            place = known.first[cell[i]] * known.shares.shape[1] + known.second[cell[j]]
            wanted.append((place, known.shares.ravel()))
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


def shape_of(sizes: tuple[int, int], most: float) -> tuple[int, int]:
    """Cells of both columns of a table with at most so many: the larger column gives up cells first."""
    first, second = sizes
    while first * second > most and max(first, second) > 2:
        first, second = (first - 1, second) if first >= second else (first, second - 1)
    return first, second


@dataclass(frozen=True)
class PairAnswer:
    """What the gate said of a pair, in groups of its coarse cells: rows, the variance of their noise, and expected."""

    rows: Floats
    variance: Floats
    expected: Floats
    maps: tuple[Index, Index]
    sizes: tuple[int, int]  # of the coarse cells
    numbers: tuple[Number, Number] | None = None  # where both are; holes then are the last cell of a column

    @property
    def whole(self) -> bool:
        """Whether no column gave up cells."""
        return self.rows.shape == self.sizes

    @property
    def nearly_a_function(self) -> bool:
        """Whether one of the columns tells the other one, nearly."""
        total = max(float(self.rows.sum()), 1.0)
        for told, known in ((self.rows, self.expected), (self.rows.T, self.expected.T)):
            guessed = 1 - float(told.max(1).sum()) / total
            if guessed < NEARLY * (1 - float(known.sum(0).max() / known.sum())):
                return True
        return False

    @cached_property
    def guess(self) -> tuple[Link, Floats]:
        """(link, rows in each cell) before the table's own cells count: of two numbers a simple law that fits."""
        if self.numbers is None:
            return Link(0.0), self.expected
        inner = tuple(slice(None, int(one.groups.max()) + 1) for one in self.numbers)
        link, table = fitted(self.rows[inner], self.variance[inner], self.expected[inner], self.numbers)
        whole = self.expected.copy()
        whole[inner] = table
        return link, whole

    def relation(self, pair: Pair, coarse: Sequence[Index], cells: Sequence[Cells]) -> tuple[Relation, Flags]:
        """Whether one number is never above the other, and the cells that this leaves empty."""
        first, second = (cells[k] for k in pair)
        if not (first.numeric and second.numeric and first.column.unit == second.column.unit):
            return "", np.zeros(self.rows.shape, np.bool_)
        low, high = (ranges_of_groups(cells[k], one[coarse[k]]) for k, one in zip(pair, self.maps, strict=True))
        return found_relation(self.rows, self.variance, self.expected, (low, high))

    def table(self, rows: float, nobody: Flags | None = None) -> PairTable:
        """As shares of so many rows: what does not stand out is as expected, and some cells are empty."""
        empty = empty_cells(self.rows, self.variance, self.expected)
        if nobody is not None:
            empty = empty | nobody
        held = np.where(empty, 0.0, believed(self.rows, self.variance, self.guess[1], misfit=self.numbers is not None))
        return PairTable(held * (self.expected.sum() / held.sum() / rows), *self.maps)

    def finer(self, other: PairAnswer) -> PairAnswer:
        """An answer about the coarse cells themselves, together with this one about groups of them."""
        table = PairTable(np.zeros(self.rows.shape), *self.maps)
        many, noise = table.summed(np.ones(self.sizes)), table.summed(other.variance)
        both = 1 / (1 / self.variance + 1 / noise)
        total = table.summed(other.rows)
        change = both * (self.rows - total) / self.variance  # of each group, by how sure either is
        return replace(
            other,
            rows=other.rows + table.spread(change / many),
            variance=other.variance - table.spread((noise - both) / many**2),
        )


def empty_cells(rows: Floats, variance: Floats, expected: Floats) -> Flags:
    """Cells of a noisy table in which nobody seems to be, though more were expected than its noise can hide.

    Cells alone; or a whole table beside the function that it seems to be, and so of any one of its rows and columns.
    """
    noise = np.sqrt(variance)
    empty = (expected > SEEN * noise) & (rows < NOBODY * noise)
    for told, v, known, out in ((rows, variance, expected, empty), (rows.T, variance.T, expected.T, empty.T)):
        beside = np.arange(told.shape[1]) != told.argmax(1)[:, None]
        seen, spread, due = (np.where(beside, one, 0.0).sum(1) for one in (told, v, known))
        whole = due.sum() > SURE * np.sqrt(spread.sum()) and seen.sum() < ODD * np.sqrt(spread.sum())
        part = (due > SEEN * np.sqrt(spread)) & (seen < np.sqrt(spread)) & (told.max(1) > 2 * np.sqrt(v.max(1)))
        out |= beside & (whole | part[:, None])
    for axis in (0, 1):  # where that leaves nothing of a row or column that people seem to be in, the best cell stays
        gone = empty.all(axis) & (rows.sum(axis) > 3 * np.sqrt(variance.sum(axis)))
        best = rows.argmax(axis)
        for k in np.flatnonzero(gone):
            empty[(best[k], k) if axis == 0 else (k, best[k])] = False
    return np.asarray(empty & ~empty.all(), np.bool_)


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
    cells: Sequence[Cells],
    fine: Sequence[Floats],
) -> Joint:
    """The joint model with what the pairs told. The table's cells are the joint's coarse ones already.

    `costs`, `counts`: μ and number of the forest's tables, and of those beside it; `worth` says which columns take part
    where there are too many. `known` are rows of pairs that another question has told already; `fine`: per column the
    shares of all rows in its fine cells.

    Which pairs are asked, in how many cells, and which of them twice, follows from earlier noisy answers; how many
    tables are asked and what each costs does not, once `counts` are fixed.
    """
    among = sorted(np.argsort(-worth, kind="stable")[:PAIRED].tolist())
    pairs = list(combinations(among, 2))
    expected = {(i, j): rows * joint.expected(i, j).sum(0) for i, j in pairs}

    def grouped(column: int, most: int) -> Index:
        share = joint.marginals[column].sum(0)
        return coarse_cells(share, np.arange(len(share)), cells[column], most)

    def asked(pair: Pair, mu: float, most: float, guess: Floats) -> PairAnswer:
        sizes = guess.shape[0], guess.shape[1]
        maps = tuple(grouped(j, size) for j, size in zip(pair, shape_of(sizes, most), strict=True))
        first, second = maps
        shape = int(first.max()) + 1, int(second.max()) + 1
        merges = () if shape == sizes else [one.tolist() for one in maps]
        answer = told(table.histogram((columns[pair[0]], columns[pair[1]]), by="none", mu=mu, merges=merges))[
            0
        ].reshape(shape)
        due = PairTable(np.zeros(shape), first, second).summed(guess)
        before = known.get(pair)
        if before is not None:
            before = replace(before, first=first[before.first], second=second[before.second])
        numbers = None
        if all(cells[k].numeric for k in pair):
            one, other = (
                Number.of_cells(cells[k], fine[k], group[joint.coarse[k]])
                for k, group in zip(pair, (first, second), strict=True)
            )
            numbers = (one, other)
        return PairAnswer(*_together(answer, 1 / mu, before), due, (first, second), sizes, numbers)

    def chosen(candidates: list[Pair], ahead: list[float]) -> Pair:
        place = told(
            table.related(
                [(columns[i], columns[j]) for i, j in candidates], [expected[pair] for pair in candidates], ahead
            )
        )
        return candidates[place]

    # that many rows a table of independent columns is away from what is expected of it
    chance = {pair: distance_by_chance(expected[pair]) for pair in pairs}
    most = max(chance.values(), default=0.0)
    part, forest = {column: column for column in among}, []
    for _ in range(counts[0]):
        apart = [(i, j) for i, j in pairs if part[i] != part[j]]
        pair = chosen(apart, [most - chance[pair] for pair in apart])
        forest.append(pair)
        part = {column: part[pair[0]] if of == part[pair[1]] else of for column, of in part.items()}
    answers = {pair: asked(pair, costs[0], rows * costs[0] / PAIR_NOISE, expected[pair]) for pair in forest}
    again = [pair for pair in forest if not answers[pair].whole and answers[pair].nearly_a_function][: counts[1]]
    for pair in again:
        answers[pair] = answers[pair].finer(asked(pair, costs[1], np.inf, expected[pair]))
    found = {pair: answer.relation(pair, joint.coarse, cells) for pair, answer in answers.items()}
    joint = joint.with_forest({pair: answer.table(rows, found[pair][1]) for pair, answer in answers.items()})
    links = {}
    for i, j in forest:
        if cells[i].numeric and cells[j].numeric:
            link = replace(answers[i, j].guess[0], relation=found[i, j][0])
            if link.close:
                links[i, j] = link
    joint = replace(joint, links=links, cells=tuple(cells) if links else ())
    if counts[1] == len(again):
        return joint

    _, cell = joint.coarse_rows(POOL, rng)
    left = [pair for pair in pairs if pair not in joint.forest]
    for i, j in left:
        shape = expected[i, j].shape
        expected[i, j] = np.bincount(cell[i] * shape[1] + cell[j], minlength=expected[i, j].size).reshape(shape) * (
            rows / POOL
        )
    room = rows * costs[1] / PAIR_NOISE
    noise = {}
    for pair in left:  # what it is away by chance, and what measuring it would add
        first, second = shape_of((len(expected[pair]), len(expected[pair].T)), room)
        noise[pair] = LOST * np.sqrt(2 / np.pi) / costs[1] * first * second + distance_by_chance(expected[pair])
    most, more = max(noise.values()), []
    for _ in range(counts[1] - len(again)):
        pair = chosen(left, [most - noise[pair] for pair in left])
        more.append(pair)
        left.remove(pair)
    return replace(joint, more={pair: asked(pair, costs[1], room, expected[pair]).table(rows) for pair in more})


def distance_by_chance(expected: Floats) -> float:
    """Σ |rows − expected| of rows that come as expected: about that of a Poisson number in each cell."""
    few = 2 * expected * np.exp(-np.minimum(expected, 1.0))
    return float(np.where(expected < 1, few, np.sqrt(2 / np.pi * expected)).sum())


def _without(marginals: Floats, empty: Flags) -> Floats:
    """(groups, cells) shares of rows, of which none lie in these cells; each group keeps its share, if it can."""
    kept = np.where(empty, 0.0, marginals)
    total = kept.sum(1, keepdims=True)
    spare = np.where(empty, 0.0, marginals.sum(0)) + 1e-15 * ~empty
    kept = np.where(total > 0, kept / np.maximum(total, 1e-300), spare / spare.sum())
    return np.asarray(kept * marginals.sum(1, keepdims=True), np.float64)


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


def believed(answer: Floats, variance: Any, expected: Floats, *, misfit: bool = False) -> Floats:
    """A noisy table, of which what does not stand out of the noise is as expected; adds up to what was expected.

    With `misfit` more must stand out where all cells together are hardly further from the expected than by noise.
    """
    apart = answer - expected
    bar = variance
    if misfit:
        own = max(float(np.mean(apart**2 / variance)) - 1, 1e-3)  # of the cells' own spread, in that of their noise
        bar = variance * (1 + 1 / own**2)
    kept = np.maximum(0.0, 1 - bar / np.maximum(apart**2, 1e-12))
    table = np.maximum(expected + kept * apart, FAINT)
    return np.asarray(table * (expected.sum() / table.sum()), np.float64)


def _ratio(wanted: Floats, there: Floats) -> Floats:
    return np.asarray(wanted / np.maximum(there, 1e-15), np.float64)


def _pick(chance: Floats, group: Index, row: Index, rng: Rng) -> Index:
    """(n,) a column of chance[group, row] for each, drawn in proportion."""
    total = chance.sum(2, keepdims=True)
    chance = np.where(total > 0, chance, chance.sum(0, keepdims=True))  # none in that group: as everybody together
    chance = np.where(chance.sum(2, keepdims=True) > 0, chance, chance.sum((0, 1)))
    reached = np.cumsum(chance, axis=2)
    reached = reached / np.maximum(reached[:, :, -1:], 1e-300)
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
