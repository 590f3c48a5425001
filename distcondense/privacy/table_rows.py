"""The rows of one table behind the gate: their exact integer sums, a few thousand rows at a time.

Nothing here raises for a value: codes outside their column's bins are moved to the nearest bin, outcomes into their
legal range by the objective, row by row, without a word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.kernels import cell_sums as kernels
from distcondense.kernels import elementwise
from distcondense.privacy.contributions import FINITE, Objective, OnGrid, PublicMap, Target, in_steps
from distcondense.privacy.layout import CHUNK, KeptRows, PendingShift, RowCells, UnlistedColumn, chunks, keep_rows
from distcondense.privacy.questions import (
    STRATEGY,
    AdoptCategories,
    CategoriesQuery,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MapQuery,
    MergeBins,
    PairChoice,
    Question,
    SetObjective,
    ShiftScores,
    StatisticQuery,
    Step,
)
from distcondense.privacy.rows import MARGIN, ExactAnswers, IntegerSums

LONG = 2**20  # where a kernel writes nothing down for a row but its score: calls cost more than the cache saves
VALUES = 2**21  # of a map, computed at a time
NARROW = 2**8  # cells that one byte numbers
JOINT = 2**12  # cells of three columns that are counted together: their tally fits the nearest cache


class TableRows(ExactAnswers):
    """The kept rows of a table, column by column: people with one row first, then the others person by person.

    Codes stay as they were given; what public steps made of them stands in a map of each column. So a column's rows are
    summed by the codes as given, and their sums put together by its map. Shifts of scores wait for the next question
    that looks at scores, which goes through all rows anyway.
    """

    def __init__(
        self,
        kept: KeptRows,
        score: NDArray[Any],
        sizes: Sequence[int],
        objective: Objective,
        most: int,
        *,
        hold: bool = False,
    ) -> None:
        """Rows that are laid out already, e.g. in mapped files; `score`: zeros of `score_type`, theirs to write to.

        `most`: rows of one person. `hold`: keep what the objective makes of the target in memory.
        """
        super().__init__(sizes, objective, most)
        self.kept, self.score, self._hold = kept, score, hold
        self._step = objective.step if isinstance(objective, OnGrid) else None  # of scores, whatever is set later
        self.single = int(kept.begin[0])
        self._shifts: list[PendingShift] = []  # that scores have not made yet
        self._to: list[NDArray[np.int32]] = []
        for column, size in enumerate(self.sizes):
            labels = kept.labels.get(column)  # of unlisted values nobody is told from anybody
            self._to.append(np.arange(size, dtype=np.int32) if labels is None else np.zeros(len(labels) + 1, np.int32))
        self._target = objective.prepare(kept.target) if hold else None

    @classmethod
    def from_table(
        cls,
        codes: Codes,
        sizes: Sequence[int],
        target: Target,
        objective: Objective,
        person: NDArray[Any] | None = None,
        rows_per_person: int = 1,
        unlisted: Mapping[int, UnlistedColumn] | None = None,
        order: NDArray[Any] | None = None,
    ) -> TableRows:
        """The rows that count of (n, d) bin codes below `sizes`, the outcome's (n,) arrays by name and (n,) persons.

        `order` (n,): which of a person's rows come first, where more than are read; table order if not given.
        """
        kept = keep_rows(codes, sizes, target, person, rows_per_person, unlisted, order)
        shape = kept.rows if objective.scores == 1 else (kept.rows, objective.scores)
        score = np.zeros(shape, score_type(objective))
        return cls(kept, score, sizes, objective, 1 if person is None else rows_per_person, hold=True)

    # ---- public steps

    def _applied(self, step: Step) -> None:
        match step:
            case ShiftScores(columns, table):
                added: NDArray[Any] = np.ascontiguousarray(table.T).reshape(-1, self.objective.scores)
                if self._step is not None:
                    added = in_steps(added, self._step)
                cells = self._cells_of(columns)
                self._shifts.append(PendingShift(cells, added[cells.to[0]] if len(cells.to) == 1 else added))
            case MergeBins(column, merge):
                self._to[column] = np.asarray(merge, np.int32)[self._to[column]]
                self._narrow(column)
            case AdoptCategories(column, labels, hole):
                place = {label: code for code, label in enumerate(labels)}
                to = [place.get(label, len(labels)) for label in self.kept.labels[column]]
                self._to[column] = np.array([*to, len(labels) + hole], np.int32)  # the last: a hole
            case SetObjective(objective):
                self._target = objective.prepare(self.kept.target) if self._hold else None
            case _:
                assert_never(step)

    def _narrow(self, column: int) -> None:
        """Codes of two bytes and more, of which few cells are left, become these cells in one byte, where they lie."""
        codes, size = self.kept.codes[column], self.sizes[column]
        if codes.itemsize == 1 or size > NARROW or column in self.kept.labels:
            return
        if self._shifts:  # they may lie by the codes that go
            for part in chunks(0, self.kept.rows):
                self._shifted(part)
            self._shifts.clear()
        narrow = codes.view(np.uint8)[: self.kept.rows]
        kernels.look_up(codes, self._to[column], narrow)  # upwards: what is written over was read
        self.kept.codes[column] = narrow
        self._to[column] = np.arange(size, dtype=np.int32)

    # ---- cells and contributions of some of the rows

    def _cells_of(self, columns: tuple[int, ...], merges: tuple[tuple[int, ...], ...] = ()) -> RowCells:
        """In which cells rows lie at present, or in which of a question's own, coarser ones."""
        codes, to = (tuple(held[column] for column in columns) for held in (self.kept.codes, self._to))
        if not merges:
            return RowCells(codes, to, tuple(self.sizes[column] for column in columns))
        coarse = tuple(np.array(merge, np.int32)[here] for merge, here in zip(merges, to, strict=True))
        return RowCells(codes, coarse, tuple(max(merge) + 1 for merge in merges))

    def target(self, part: slice) -> Target:
        """The outcome inside its legal range."""
        if self._target is not None:
            return {name: values[part] for name, values in self._target.items()}
        return self.objective.prepare({name: values[part] for name, values in self.kept.target.items()})

    def _shifted(self, part: slice) -> NDArray[Any]:
        """Their scores as they are kept, after all shifts; who has asked for all rows, each once, clears the shifts."""
        score = self.score[part]
        for shift in self._shifts:
            kernels.shift_scores(shift.cells.fine(part), shift.table, score.reshape(len(score), -1))
        return score

    def scores(self, part: slice) -> Floats:
        """Their scores, (n,) or (n, S) float64."""
        score = self._shifted(part)
        return score if self._step is None else score * self._step

    def contributions(self, part: slice) -> Sequence[Floats]:
        """(n,) arrays, one for each of the objective's scales."""
        return self.objective.contributions(self.scores(part), self.target(part))

    # ---- sums

    def counted(self, question: Question, limit: float) -> IntegerSums:
        match question:
            case HistogramQuery(columns, by, starts, merges):
                return IntegerSums(self.histogram(columns, by, limit, starts, merges))
            case CategoriesQuery(column):
                return IntegerSums(self.categories(column, limit), tuple(self.kept.labels[column]))
            case GradientQuery(columns, merges, strategy):
                return IntegerSums(self._sum(self._cells_of(columns, merges), limit, strategy=strategy))
            case StatisticQuery(name):
                return IntegerSums(self._sum(self._cells_of(()), limit, name))
            case ColumnChoice():
                return IntegerSums(self.choice_cells(question, limit))
            case PairChoice(pairs, _, _):
                return IntegerSums(self.pair_cells(pairs, limit))
            case MapQuery(map_):
                return IntegerSums(self.mapped(map_, limit))
            case _:
                assert_never(question)

    def histogram(
        self,
        columns: tuple[int, ...],
        by: str,
        limit: float,
        starts: tuple[int, ...] = (),
        merges: tuple[tuple[int, ...], ...] = (),
    ) -> Index:
        """Rows in each (group, cell), in units of the limit, a person's cells scaled down to norm 1."""
        groups = 1 if by == "none" else self.objective.groupings[by]
        cells = self._cells_of(columns, merges)
        if starts:  # a public map of cells to coarser ones
            coarse = np.searchsorted(starts, np.arange(self.cells(columns)), side="right") - 1
            cells = replace(cells, to=(coarse.astype(np.int32)[cells.to[0]],), sizes=(len(starts),))

        def group(part: slice) -> Codes | None:
            return None if by == "none" else np.clip(self.objective.group(by, self.target(part)), 0, groups - 1)

        return self._numbers(cells, group, groups, limit)

    def categories(self, column: int, limit: float) -> Index:
        """Rows with each value that a kept row has; a hole takes part in a person's norm and is not counted."""
        size = len(self.kept.labels[column]) + 1
        cells = RowCells((self.kept.codes[column],), (np.arange(size, dtype=np.int32),), (size,))
        return self._numbers(cells, lambda part: None, 1, limit)[:-1]

    def _numbers(self, cells: RowCells, group: Callable[[slice], Codes | None], groups: int, limit: float) -> Index:
        """The same of any cells; `group` gives (n,) groups of some rows, None where all are in the first."""
        unit, fine, first = (
            math.floor(limit * MARGIN),
            np.zeros((groups, cells.fine_cells), np.int64),
            np.zeros(1, np.int8),
        )
        for part in chunks(0, self.single, LONG):
            of = group(part)
            kernels.count(cells.fine(part), first if of is None else of, fine)
        total = cells.merged(fine) * unit
        for part, begin in self.kept.people():
            of, ones = group(part), np.full((1, part.stop - part.start), float(unit))
            cell = cells.cell(part) + (0 if of is None else cells.cells * of.astype(np.int64))
            self._add_people(begin, cell, ones, limit, total.reshape(1, -1))
        return total.ravel()

    def choice_cells(self, question: ColumnChoice, limit: float) -> Index:
        """Column after column, score after score: Σ rows g in each coarse cell."""
        scores, columns = self.objective.scores, question.among
        coarse = [self._to[column] // width for column, width in zip(columns, question.widths, strict=True)]
        totals = [np.zeros((scores, cells), np.int64) for cells in self.coarse_cells(question)]
        for part, begin in (*((part, None) for part in chunks(0, self.single)), *self.kept.people()):
            gradients = self.contributions(part)[:scores]
            values = [np.trunc(np.clip(g, -1.0, 1.0) * (limit * MARGIN)) for g in gradients]
            length = np.sum(np.abs(values), axis=0)
            if begin is not None:
                length = np.repeat(np.add.reduceat(length, begin[:-1]), np.diff(begin))
            shrink = _shrink(length, limit)
            for column, to, total in zip(columns, coarse, totals, strict=True):
                cell = np.zeros(part.stop - part.start, np.int64)
                kernels.place(self.kept.codes[column][part], to, 1, cell)
                for sums, value in zip(total, values, strict=True):
                    kernels.add(cell, value * shrink, 1.0, sums)
        self._shifts.clear()
        return np.concatenate([total.ravel() for total in totals])

    def pair_cells(self, pairs: tuple[tuple[int, int], ...], limit: float) -> Index:
        """Pair after pair: rows in each cell, a person's sharing one unit."""
        unit = math.floor(limit * MARGIN)
        columns = sorted({column for pair in pairs for column in pair})
        place = {column: k for k, column in enumerate(columns)}
        placed = [(place[i], place[j]) for i, j in pairs]
        sizes = np.array([*(self.sizes[column] for column in columns), 1], np.int64)  # and one that has one cell
        joined = pairs_by_triple(placed, sizes.tolist())
        among = np.array([triple for triple, _ in joined], np.int64).reshape(-1, 3)
        begins = np.append(0, np.cumsum(np.prod(sizes[among], axis=1)))
        rows = np.zeros(begins[-1], np.int64)
        for part in chunks(0, self.single):
            kernels.count_triples(self._small_cells(columns, part), among, sizes, begins, rows)
        blocks: list[Any] = [None] * len(pairs)
        for (triple, within), begin, end in zip(joined, begins[:-1], begins[1:], strict=True):
            cells = rows[begin:end].reshape(sizes[list(triple)])
            for number, axes in within:
                block = cells.sum(3 - sum(axes))
                blocks[number] = block if axes[0] < axes[1] else block.T
        total: Index = np.concatenate([block.ravel() for block in blocks]) * unit
        first, second = np.array(placed, np.int64).reshape(-1, 2).T.copy()
        starts = np.append(0, np.cumsum([self.cells(pair) for pair in pairs])[:-1])
        for part, begin in self.kept.people():
            weight = unit // np.repeat(np.diff(begin), np.diff(begin))
            kernels.add_pairs(self._small_cells(columns, part), weight, first, second, sizes, starts, total)
        return total

    def _small_cells(self, columns: Sequence[int], part: slice) -> NDArray[Any]:
        """(columns + 1, rows) cells in one byte each, if all of them fit; the last column has one cell."""
        few = max(self.sizes[column] for column in columns) <= NARROW
        small = np.zeros((len(columns) + 1, part.stop - part.start), np.uint8 if few else np.int32)
        for column, out in zip(columns, small, strict=False):
            kernels.look_up(self.kept.codes[column][part], self._to[column], out)
        return small

    def mapped(self, map_: PublicMap, limit: float) -> Index:
        """Σ over people of clip(Σ rows clip(map(row))), so many people at a time that memory is bounded."""
        total, step = np.zeros(map_.size, np.int64), min(CHUNK, max(1, VALUES // map_.size))
        for part in chunks(0, self.single, step):
            total += self._row_vectors(map_, part, limit).sum(0).astype(np.int64)
        for part, begin in self.kept.people(step):
            vectors = np.add.reduceat(self._row_vectors(map_, part, limit), begin[:-1])
            total += np.trunc(vectors * _shrink(_norms(vectors), limit)[:, None]).sum(0).astype(np.int64)
        return total

    def _row_vectors(self, map_: PublicMap, part: slice, limit: float) -> Floats:
        """(rows, size) whole numbers, of each row together at most `limit`; what is no number is 0."""
        codes = np.empty((part.stop - part.start, len(map_.columns)), np.int64)
        for place, column in enumerate(map_.columns):
            codes[:, place] = self._to[column][self.kept.codes[column][part]]
        with np.errstate(all="ignore"):  # a warning would depend on a patient
            vectors = np.array(map_.values(codes, self.target(part)), np.float64)
        vectors = np.clip(np.nan_to_num(vectors, nan=0.0), -FINITE, FINITE)
        return np.trunc(vectors * (limit * MARGIN / np.maximum(_norms(vectors), 1.0))[:, None])

    def _sum(
        self, cells: RowCells, limit: float, statistic: str = "", strategy: tuple[tuple[int, ...], ...] = ()
    ) -> Index:
        """Σ over people of their clipped vectors: coordinate (value, cell). A single row has norm ≤ 1 already.

        With a strategy a row's whole numbers are of a norm of limit/STRATEGY, and then multiplied by whole numbers
        whose columns have a norm of STRATEGY at most: no sum is larger than it would be without.
        """
        mix = np.array(strategy, np.int64)
        factor = limit * MARGIN / (STRATEGY if strategy else 1)
        known = self.objective.statistics[statistic] if statistic else None
        fine = np.zeros((known.size if known else len(self.objective.scales), cells.fine_cells), np.int64)

        def values(part: slice) -> Sequence[Floats]:
            return known.values(self.target(part), self.scores(part)) if known else self.contributions(part)

        if known is None and isinstance(self.objective, OnGrid) and self.objective.step == self._step:
            last = self._shifts.pop() if self._shifts and self._shifts[-1].narrow else None  # made on the way
            for part in chunks(0, self.single, LONG):
                shift = None if last is None else (last.cells.fine(part), last.table[:, 0])
                self.objective.add(cells.fine(part), self._shifted(part), self.target(part), factor, fine, shift)
            self._shifts += [] if last is None else [last]  # for rows of people with several
        else:
            for part in chunks(0, self.single):
                cell = cells.fine(part)
                for sums, value in zip(fine, values(part), strict=True):
                    kernels.add(cell, value, factor, sums)
        total, scores = cells.merged(fine), self.objective.scores
        told, own = (total[:scores] @ mix.T, total[scores:] * STRATEGY) if strategy else (total[:0], total)
        step = min(CHUNK, max(1, VALUES // len(mix))) if strategy else CHUNK
        for part, begin in self.kept.people(step):
            several = np.stack([np.trunc(value * factor) for value in values(part)])
            if strategy:
                self._add_mixed(begin, cells.cell(part), several, mix, limit, told, own)
            else:
                self._add_people(begin, cells.cell(part), several, limit, own)
        self._shifts.clear()
        return np.concatenate([told.ravel(), own.ravel()])

    def _add_people(self, begin: Index, cell: Index, values: Floats, limit: float, total: Index) -> None:
        """The same for people with several rows: add up each person's cells, clip the person, add up people.

        values (K, rows), total (K, cells). Cells are added upwards, so that no norm depends on the order of rows.
        """
        owner, where, parts = _by_person(begin, cell, values)
        square = np.zeros(len(owner))
        for part in parts:
            square += part * part
        shrink = _shrink(np.sqrt(np.bincount(owner, square)), limit)[owner]
        for sums, part in zip(total, parts, strict=True):
            kernels.add(where, part * shrink, 1.0, sums)

    def _add_mixed(
        self, begin: Index, cell: Index, values: Floats, mix: Index, limit: float, told: Index, own: Index
    ) -> None:
        """The same with a strategy `mix` (r, cells): each person's answers are put together, then the person clipped.

        told (S, r) of gradients, own (K − S, cells) of hessians. All numbers are whole, below 2⁵³, until they are
        shortened, so no norm depends on an order.
        """
        owner, where, parts = _by_person(begin, cell, values)
        scores, starts = len(told), np.flatnonzero(np.diff(owner, prepend=-1))
        answers = [np.add.reduceat(part[:, None] * mix.T[where], starts) for part in parts[:scores]]  # (people, r) each
        rest = parts[scores:] * STRATEGY
        square = np.zeros(len(starts))
        for answer in answers:
            square += elementwise.row_sums(answer * answer)
        for part in rest:
            square += np.add.reduceat(part * part, starts)
        shrink = _shrink(np.sqrt(square), limit)
        for sums, answer in zip(told, answers, strict=True):
            sums += np.trunc(answer * shrink[:, None]).sum(0).astype(np.int64)
        for sums, part in zip(own, rest, strict=True):
            kernels.add(where, part * shrink[owner], 1.0, sums)


def score_type(objective: Objective) -> np.dtype[Any]:
    """How scores are kept: as floats, or in steps."""
    return np.dtype(np.int32 if isinstance(objective, OnGrid) else np.float64)


def _by_person(begin: Index, cell: Index, values: Floats) -> tuple[Index, Index, Floats]:
    """Whose, in which cell, and (K, …) the sums there: of each person's rows, person by person, cells upwards."""
    owner, where, parts = np.empty_like(cell), np.empty_like(cell), np.empty_like(values)
    many = kernels.sum_by_person(begin, cell, values, owner, where, parts)
    return owner[:many], where[:many], parts[:, :many]


def _shrink(length: Floats, limit: float) -> Floats:
    """Factor that brings each length under the limit, with the margin."""
    bound = limit * MARGIN
    return bound / np.maximum(length, bound)


def _norms(vectors: Floats) -> Floats:
    """(n,) L2 norms of the rows of (n, size); squares are added from left to right, so no row depends on another."""
    return np.sqrt(elementwise.row_sums(vectors * vectors))


def pairs_by_triple(
    pairs: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> list[tuple[tuple[int, int, int], list[tuple[int, tuple[int, int]]]]]:
    """Columns three by three, until every pair is among three of them, and the pairs within: (number, its axes).

    The joint cells of three columns cost what those of two do, and tell of three pairs; where they would be too many,
    the third is the last column, which has one cell.
    """
    left: dict[frozenset[int], list[int]] = {}
    for number, pair in enumerate(pairs):
        left.setdefault(frozenset(pair), []).append(number)
    columns, last = sorted({column for pair in pairs for column in pair}), len(sizes) - 1
    triples = []
    while left:
        i, j = sorted(next(iter(left)))
        fits = [k for k in columns if k not in (i, j) and sizes[i] * sizes[j] * sizes[k] <= JOINT]
        new = [frozenset((i, k)) in left and frozenset((j, k)) in left for k in fits]
        half = [frozenset((i, k)) in left or frozenset((j, k)) in left for k in fits]
        third = next((k for whole in (new, half) for k, good in zip(fits, whole, strict=True) if good), last)
        triple, within = (i, j, third), []
        for a, b in ((0, 1), (0, 2), (1, 2)):
            for number in left.pop(frozenset((triple[a], triple[b])), ()):
                within.append((number, (a, b) if pairs[number] == (triple[a], triple[b]) else (b, a)))
        triples.append((triple, within))
    return triples
