"""The rows behind the gate: exact integer answers that one person changes by at most a limit. No noise here.

A person's vector over *all* coordinates of an answer is scaled down to L2 norm 1 where it is longer, multiplied by the
limit and rounded towards zero. That cannot lengthen it, and integer sums do not depend on order, so one person changes
the answer by at most the limit in L2 (a choice: each score by at most the limit). Factors carry a margin of 2⁻³⁰ for
float64. A single row has norm at most 1 already: its objective proves that (contributions.py).

`counted` gives sums over rows, which add up over shards (shards.py); what is not a sum (the worth of a column or a
pair) is made of the total, once, by `ExactAnswers.answer`.

Nothing here raises for a value: codes outside their column's bins are moved to the nearest bin, outcomes into their
legal range by the objective, row by row, without a word.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.kernels import cell_sums as kernels
from distcondense.privacy.contributions import FINITE, Objective, OnGrid, PublicMap, Target, in_steps
from distcondense.privacy.questions import (
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

MARGIN = 1 - 2.0**-30  # on every factor that bounds a norm: far over the error of float64, far under any noise
MU_MAX = 8.0  # one answer at μ = 8 protects nobody (ε over 60); the bound keeps integer sums inside 64 bits
CHUNK = 2**15  # rows taken at a time, with a few numbers of each: fits the cache
LONG = 2**20  # where a kernel writes nothing down for a row but its score: calls cost more than the cache saves
ROWS_SHARD_MAX = 2**27  # of one shard; times GRID·MU_MAX it is 2⁶²: its integer sums cannot overflow
ROWS_ALL_MAX = 2**40  # of all shards together, whose sums have no such bound (shards.py: ShardTotal)
ROWS_MAX = 2**16  # of one person: their float64 sums of integers are exact too, of up to 32 scores
VALUES = 2**21  # of a map, computed at a time
NARROW = 2**8  # cells that one byte numbers
JOINT = 2**12  # cells of three columns that are counted together: their tally fits the nearest cache


@dataclass(frozen=True)
class UnlistedColumn:
    """A column's values where nobody has listed them: (n,) numbers of `labels`, −1 for a hole."""

    codes: Index
    labels: Sequence[str]


@dataclass(frozen=True)
class IntegerSums:
    """Integer sums for a question over some rows; sums of disjoint rows add up, those with labels label by label."""

    values: NDArray[Any]  # (coordinates,) int64, or Python's integers where those are too small
    labels: tuple[str, ...] | None = None  # CategoriesQuery: the value that each coordinate counts


class GuardedRows(Protocol):
    """What the gate needs of the rows it guards."""

    @property
    def sizes(self) -> Sequence[int]:
        """Number of bins of each column; public."""
        ...

    @property
    def objective(self) -> Objective:
        """Public."""
        ...

    @property
    def most(self) -> int:
        """Rows of one person, at most; public."""
        ...

    def labels(self, column: int) -> Sequence[str]:
        """Of a column of unlisted values, those that kept rows have, in the order of its last answer. Not public."""
        ...

    def answer(self, question: Question, limit: float) -> Index:
        """An integer vector that one person changes by at most `limit`: in L2, each score of a choice in size."""
        ...

    def apply(self, step: Step) -> None:
        """A public step, row by row."""
        ...


class ExactAnswers(ABC):
    """Answers from sums: what rows of any kind have in common, be they in one place or in many."""

    most: int
    objective: Objective

    def __init__(self, sizes: Sequence[int], objective: Objective, most: int) -> None:
        self.sizes = [int(size) for size in sizes]
        self.objective, self.most = objective, most
        self._pairs: dict[tuple[tuple[int, int], float], NDArray[Any]] = {}
        self._told: dict[int, tuple[str, ...]] = {}

    @abstractmethod
    def counted(self, question: Question, limit: float) -> IntegerSums:
        """The question's integer sums over these rows: of a choice or of pairs, those of each cell, block by block."""

    @abstractmethod
    def _applied(self, step: Step) -> None:
        """Carry out a public step on every row."""

    def apply(self, step: Step) -> None:
        """A public step; what is public about it is done here."""
        match step:
            case MergeBins(column, merge):
                self.sizes[column] = int(merge.max()) + 1
                self._pairs.clear()
            case AdoptCategories(column, labels, hole):
                self.sizes[column] = len(labels) + 1 + hole
                self._pairs.clear()
            case SetObjective(objective):
                self.objective = objective
            case ShiftScores():
                pass
            case _:
                assert_never(step)
        self._applied(step)

    def labels(self, column: int) -> Sequence[str]:
        return self._told[column]

    def answer(self, question: Question, limit: float) -> Index:
        match question:
            case CategoriesQuery(column):
                named = self.counted(question, limit)
                assert named.labels is not None
                self._told[column] = named.labels
                return named.values
            case ColumnChoice():
                return self.choice_scores(question, limit)
            case PairChoice():
                return self.pair_scores(question, limit)
            case HistogramQuery(columns, "none", ()) if (known := self.pair_known(columns, limit)) is not None:
                return known
            case _:
                return self.counted(question, limit).values

    def count(self, columns: tuple[int, ...]) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def choice_scores(self, question: ColumnChoice, limit: float) -> Index:
        """Σ over scores and cells of |Σ rows g| for each column, g as it counts in the norm.

        A person's g are scaled down to Σ_rows Σ_scores |g| ≤ limit; by the triangle inequality no score moves further.
        """
        total = self.counted(question, limit).values
        ends = np.cumsum([self.objective.scores * cells for cells in self.coarse(question)])
        return _whole(_length(block) for block in np.split(total, ends[:-1]))

    def coarse(self, question: ColumnChoice) -> list[int]:
        """Cells of each candidate, so many neighbouring bins in one."""
        return [-(-self.sizes[column] // width) for column, width in zip(question.among, question.widths, strict=True)]

    def pair_scores(self, question: PairChoice, limit: float) -> Index:
        """Σ over cells of |rows − expected| for each pair; a person's rows share one unit, so none moves further."""
        new = tuple(dict.fromkeys(pair for pair in question.pairs if (pair, limit) not in self._pairs))
        if new:  # the same pairs are asked for again and again, of fewer and fewer of them
            total = self.counted(PairChoice(new, (), ()), limit).values
            ends = np.cumsum([self.count(pair) for pair in new])
            for pair, block in zip(new, np.split(total, ends[:-1]), strict=True):
                self._pairs[pair, limit] = block
        held = np.concatenate([self._pairs[pair, limit] for pair in question.pairs])
        public = np.trunc(np.concatenate([table.ravel() for table in question.expected]) * limit)
        public = public.astype(np.int64) if public.max(initial=0) < 2**62 else _whole(int(one) for one in public)
        ends = np.cumsum([table.size for table in question.expected])
        lengths = _lengths_of(held - public, ends)
        return _whole(own + math.trunc(start * limit) for own, start in zip(lengths, question.ahead, strict=True))

    def pair_known(self, columns: tuple[int, ...], limit: float) -> NDArray[Any] | None:
        """A pair's histogram, where its rows were counted for a choice and every row is a person: no need to ask."""
        for (pair, at), held in self._pairs.items():
            if pair == columns and self.most == 1:
                rows, unit = held // math.floor(at * MARGIN), math.floor(limit * MARGIN)
                small = int(rows.max(initial=0)) * unit < 2**62
                return (rows.astype(np.int64) if small else rows.astype(object)) * unit
        return None


class TableRows(ExactAnswers):
    """The kept rows of a table, column by column: people with one row first, then the others person by person.

    Codes stay as they were given; what public steps made of them stands in a map of each column. So a column's rows are
    summed by the codes as given, and their sums put together by its map. Shifts of scores wait for the next question
    that looks at scores, which goes through all rows anyway.
    """

    def __init__(
        self,
        codes: Codes,
        sizes: Sequence[int],
        target: Target,
        objective: Objective,
        person: NDArray[Any] | None = None,
        rows_per_person: int = 1,
        unlisted: Mapping[int, UnlistedColumn] | None = None,
        order: NDArray[Any] | None = None,
    ) -> None:
        """(n, d) bin codes below `sizes`, the outcome's (n,) arrays by name, (n,) whose each row is.

        `order` (n,): which of a person's rows come first, where more than are read; table order if not said.
        """
        kept = kept_rows(codes, sizes, target, person, rows_per_person, unlisted, order)
        score = np.zeros(kept.rows if objective.scores == 1 else (kept.rows, objective.scores), score_kind(objective))
        self._take(kept, score, sizes, objective, 1 if person is None else rows_per_person, hold=True)

    @classmethod
    def of(
        cls,
        kept: KeptRows,
        score: NDArray[Any],
        sizes: Sequence[int],
        objective: Objective,
        most: int,
        *,
        hold: bool = False,
    ) -> TableRows:
        """Rows that are laid out already, e.g. in mapped files; `score`: zeros of `score_kind`, theirs to write to."""
        rows = cls.__new__(cls)
        rows._take(kept, score, sizes, objective, most, hold=hold)
        return rows

    def _take(
        self, kept: KeptRows, score: NDArray[Any], sizes: Sequence[int], objective: Objective, most: int, *, hold: bool
    ) -> None:
        ExactAnswers.__init__(self, sizes, objective, most)
        self.kept, self.score, self._hold = kept, score, hold
        self._step = objective.step if isinstance(objective, OnGrid) else None  # of scores, whatever is aimed at later
        self.single = int(kept.begin[0])
        self._moves: list[_Move] = []  # that scores have not made yet
        self._to: list[NDArray[np.int32]] = []
        for column, size in enumerate(self.sizes):
            own = kept.labels.get(column)  # of values that nobody has listed nobody is told from anybody
            self._to.append(np.arange(size, dtype=np.int32) if own is None else np.zeros(len(own) + 1, np.int32))
        self._aim(objective)

    # ---- public steps

    def _applied(self, step: Step) -> None:
        match step:
            case ShiftScores(columns, table):
                given: NDArray[Any] = np.ascontiguousarray(table.T).reshape(-1, self.objective.scores)
                if self._step is not None:
                    given = in_steps(given, self._step)
                self._moves.append(_Move.of(self._places(columns), given))
            case MergeBins(column, merge):
                self._to[column] = np.asarray(merge, np.int32)[self._to[column]]
                self._narrow(column)
            case AdoptCategories(column, labels, hole):
                place = {label: code for code, label in enumerate(labels)}
                to = [place.get(label, len(labels)) for label in self.kept.labels[column]]
                self._to[column] = np.array([*to, len(labels) + hole], np.int32)  # the last: a hole
            case SetObjective(objective):
                self._aim(objective)
            case _:
                assert_never(step)

    def _narrow(self, column: int) -> None:
        """Codes of two bytes and more, of which few cells are left, become these cells in one byte, where they lie."""
        codes, size = self.kept.codes[column], self.sizes[column]
        if codes.itemsize == 1 or size > NARROW or column in self.kept.labels:
            return
        if self._moves:  # they may lie by the codes that go
            for part in _chunks(0, self.kept.rows):
                self._shifted(part)
            self._all_moved()
        narrow = codes.view(np.uint8)[: self.kept.rows]
        kernels.look_up(codes, self._to[column], narrow)  # upwards: what is written over was read
        self.kept.codes[column] = narrow
        self._to[column] = np.arange(size, dtype=np.int32)

    def _aim(self, objective: Objective) -> None:
        self._target = objective.prepare(self.kept.target) if self._hold else None

    # ---- cells and contributions of some of the rows

    def _places(self, columns: tuple[int, ...]) -> _Places:
        """Where rows lie at present."""
        return _Places(
            tuple(self.kept.codes[column] for column in columns),
            tuple(self._to[column] for column in columns),
            tuple(self.sizes[column] for column in columns),
        )

    def target(self, part: slice) -> Target:
        """The outcome inside its legal range."""
        if self._target is not None:
            return {name: values[part] for name, values in self._target.items()}
        return self.objective.prepare({name: values[part] for name, values in self.kept.target.items()})

    def _shifted(self, part: slice) -> NDArray[Any]:
        """Their scores as they are kept; whoever has asked for those of all rows, each once, says `_all_moved`."""
        score = self.score[part]
        for move in self._moves:
            move.make(part, score.reshape(len(score), -1))
        return score

    def moved(self, part: slice) -> Floats:
        """Their scores."""
        score = self._shifted(part)
        return score if self._step is None else score * self._step

    def _all_moved(self) -> None:
        self._moves.clear()

    def contributions(self, part: slice) -> Sequence[Floats]:
        """(n,) arrays, one for each of the objective's scales."""
        return self.objective.contributions(self.moved(part), self.target(part))

    # ---- sums

    def counted(self, question: Question, limit: float) -> IntegerSums:
        match question:
            case HistogramQuery(columns, by, starts):
                return IntegerSums(self.histogram(columns, by, limit, starts))
            case CategoriesQuery(column):
                return IntegerSums(self.named(column, limit), tuple(self.kept.labels[column]))
            case GradientQuery(columns):
                return IntegerSums(self._sum(columns, limit))
            case StatisticQuery(name):
                return IntegerSums(self._sum((), limit, name))
            case ColumnChoice():
                return IntegerSums(self.choice_cells(question, limit))
            case PairChoice(pairs, _, _):
                return IntegerSums(self.pair_cells(pairs, limit))
            case MapQuery(map_):
                return IntegerSums(self.mapped(map_, limit))
            case _:
                assert_never(question)

    def histogram(self, columns: tuple[int, ...], by: str, limit: float, starts: tuple[int, ...] = ()) -> Index:
        groups = 1 if by == "none" else self.objective.groupings[by]
        places = self._places(columns)
        if starts:  # a public map of cells to coarser ones
            coarse = np.searchsorted(starts, np.arange(self.count(columns)), side="right") - 1
            places = replace(places, to=(coarse.astype(np.int32)[places.to[0]],), sizes=(len(starts),))

        def group(part: slice) -> Codes | None:
            return None if by == "none" else np.clip(self.objective.group(by, self.target(part)), 0, groups - 1)

        return self._numbers(places, group, groups, limit)

    def named(self, column: int, limit: float) -> Index:
        """Rows with each value that a kept row has; a hole takes part in a person's norm and is not counted."""
        cells = len(self.kept.labels[column]) + 1
        places = _Places((self.kept.codes[column],), (np.arange(cells, dtype=np.int32),), (cells,))
        return self._numbers(places, lambda part: None, 1, limit)[:-1]

    def _numbers(self, places: _Places, group: Callable[[slice], Codes | None], groups: int, limit: float) -> Index:
        """Rows in each (group, cell), in units of the limit, a person's cells scaled down to norm 1."""
        unit, given = math.floor(limit * MARGIN), np.zeros((groups, places.given_cells), np.int64)
        for part in _chunks(0, self.single, LONG):
            kernels.count(places.given(part), _or_first(group(part)), given)
        total = places.merged(given) * unit
        for part, begin in self._people():
            own, ones = group(part), np.full((1, part.stop - part.start), float(unit))
            cell = places.cell(part) + (0 if own is None else places.cells * own.astype(np.int64))
            self._together(begin, cell, ones, limit, total.reshape(1, -1))
        return total.ravel()

    def choice_cells(self, question: ColumnChoice, limit: float) -> Index:
        """Column after column, score after score: Σ rows g in each coarse cell."""
        scores, columns = self.objective.scores, question.among
        coarse = [self._to[column] // width for column, width in zip(columns, question.widths, strict=True)]
        totals = [np.zeros((scores, cells), np.int64) for cells in self.coarse(question)]
        for part, begin in (*((part, None) for part in _chunks(0, self.single)), *self._people()):
            gradients = self.contributions(part)[:scores]
            values = [np.trunc(np.clip(g, -1.0, 1.0) * (limit * MARGIN)) for g in gradients]
            length = np.sum(np.abs(values), axis=0)
            if begin is not None:
                length = np.repeat(np.add.reduceat(length, begin[:-1]), np.diff(begin))
            shrink = _shrink(length, limit)
            for column, to, total in zip(columns, coarse, totals, strict=True):
                cell = np.zeros(part.stop - part.start, np.int64)
                kernels.place(self.kept.codes[column][part], to, 1, cell)
                for own, value in zip(total, values, strict=True):
                    kernels.add(cell, value * shrink, 1.0, own)
        self._all_moved()
        return np.concatenate([total.ravel() for total in totals])

    def pair_cells(self, pairs: tuple[tuple[int, int], ...], limit: float) -> Index:
        """Pair after pair: rows in each cell, a person's sharing one unit."""
        unit = math.floor(limit * MARGIN)
        columns = sorted({column for pair in pairs for column in pair})
        place = {column: k for k, column in enumerate(columns)}
        own = [(place[i], place[j]) for i, j in pairs]
        sizes = np.array([*(self.sizes[column] for column in columns), 1], np.int64)  # and one that has one cell
        joined = in_threes(own, sizes.tolist())
        among = np.array([three for three, _ in joined], np.int64).reshape(-1, 3)
        begins = np.append(0, np.cumsum(np.prod(sizes[among], axis=1)))
        rows = np.zeros(begins[-1], np.int64)
        for part in _chunks(0, self.single):
            kernels.count_triples(self._small(columns, part), among, sizes, begins, rows)
        blocks: list[Any] = [None] * len(pairs)
        for (three, told), begin, end in zip(joined, begins[:-1], begins[1:], strict=True):
            cells = rows[begin:end].reshape(sizes[list(three)])
            for number, axes in told:
                blocks[number] = cells.sum(3 - sum(axes)) if axes[0] < axes[1] else cells.sum(3 - sum(axes)).T
        total: Index = np.concatenate([block.ravel() for block in blocks]) * unit
        first, second = np.array(own, np.int64).reshape(-1, 2).T.copy()
        starts = np.append(0, np.cumsum([self.count(pair) for pair in pairs])[:-1])
        for part, begin in self._people():
            weight = unit // np.repeat(np.diff(begin), np.diff(begin))
            kernels.add_pairs(self._small(columns, part), weight, first, second, sizes, starts, total)
        return total

    def _small(self, columns: Sequence[int], part: slice) -> NDArray[Any]:
        """(columns + 1, rows) cells in one byte each, if all of them fit; the last column has one cell."""
        few = max(self.sizes[column] for column in columns) <= NARROW
        small = np.zeros((len(columns) + 1, part.stop - part.start), np.uint8 if few else np.int32)
        for column, out in zip(columns, small, strict=False):
            kernels.look_up(self.kept.codes[column][part], self._to[column], out)
        return small

    def mapped(self, map_: PublicMap, limit: float) -> Index:
        """Σ over people of clip(Σ rows clip(map(row))), so many people at a time that memory is bounded."""
        total, step = np.zeros(map_.size, np.int64), min(CHUNK, max(1, VALUES // map_.size))
        for part in _chunks(0, self.single, step):
            total += self._row_vectors(map_, part, limit).sum(0).astype(np.int64)
        for part, begin in self._people(step):
            own = np.add.reduceat(self._row_vectors(map_, part, limit), begin[:-1])
            total += np.trunc(own * _shrink(_lengths(own), limit)[:, None]).sum(0).astype(np.int64)
        return total

    def _row_vectors(self, map_: PublicMap, part: slice, limit: float) -> Floats:
        """(rows, size) whole numbers, of each row together at most `limit`; what is no number is 0."""
        codes = np.empty((part.stop - part.start, len(map_.columns)), np.int64)
        for place, column in enumerate(map_.columns):
            codes[:, place] = self._to[column][self.kept.codes[column][part]]
        with np.errstate(all="ignore"):  # a warning would depend on a patient
            given = np.array(map_.values(codes, self.target(part)), np.float64)
        given = np.clip(np.nan_to_num(given, nan=0.0), -FINITE, FINITE)
        return np.trunc(given * (limit * MARGIN / np.maximum(_lengths(given), 1.0))[:, None])

    def _sum(self, columns: tuple[int, ...], limit: float, statistic: str = "") -> Index:
        """Σ over people of their clipped vectors: coordinate (value, cell). A single row has norm ≤ 1 already."""
        factor, places = limit * MARGIN, self._places(columns)
        known = self.objective.statistics[statistic] if statistic else None
        given = np.zeros((known.size if known else len(self.objective.scales), places.given_cells), np.int64)

        def values(part: slice) -> Sequence[Floats]:
            return known.values(self.target(part), self.moved(part)) if known else self.contributions(part)

        if known is None and isinstance(self.objective, OnGrid) and self.objective.step == self._step:
            last = self._moves.pop() if self._moves and self._moves[-1].alone else None  # made on the way
            for part in _chunks(0, self.single, LONG):
                way = None if last is None else (last.places.given(part), last.table[:, 0])
                self.objective.add(places.given(part), self._shifted(part), self.target(part), factor, given, way)
            self._moves += [] if last is None else [last]  # for rows of people with several
        else:
            for part in _chunks(0, self.single):
                cell = places.given(part)
                for own, value in zip(given, values(part), strict=True):
                    kernels.add(cell, value, factor, own)
        total = places.merged(given)
        for part, begin in self._people():
            several = np.stack([np.trunc(value * factor) for value in values(part)])
            self._together(begin, places.cell(part), several, limit, total)
        self._all_moved()
        return total.ravel()

    def _together(self, begin: Index, cell: Index, values: Floats, limit: float, total: Index) -> None:
        """The same for people with several rows: add up each person's cells, clip the person, add up people.

        values (K, rows), total (K, cells). Cells are added upwards, so that no norm depends on the order of rows.
        """
        owner, where, parts = np.empty_like(cell), np.empty_like(cell), np.empty_like(values)
        found = kernels.sum_by_person(begin, cell, values, owner, where, parts)
        owner, where, parts = owner[:found], where[:found], parts[:, :found]
        square = np.zeros(found)
        for part in parts:
            square += part * part
        shrink = _shrink(np.sqrt(np.bincount(owner, square)), limit)[owner]
        for own, part in zip(total, parts, strict=True):
            kernels.add(where, part * shrink, 1.0, own)

    def _people(self, step: int = CHUNK) -> Iterator[tuple[slice, Index]]:
        """Rows of people who have several, some people at a time; and where each of them begins in these rows."""
        begin, first = self.kept.begin, 0
        while first < len(begin) - 1:
            last = max(first + 1, int(np.searchsorted(begin, begin[first] + step, side="right")) - 1)
            yield slice(int(begin[first]), int(begin[last])), begin[first : last + 1] - begin[first]
            first = last


@dataclass(frozen=True, repr=False)
class _Places:
    """Where rows lie in some columns: their codes as given, each column's map of these to its cells, and cells of it.

    Of one column the codes as given are cells, too, only finer ones: sums by them are merged by its map.
    """

    codes: tuple[NDArray[Any], ...]
    to: tuple[NDArray[np.int32], ...]
    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        return math.prod(self.sizes)

    @property
    def given_cells(self) -> int:
        return len(self.to[0]) if len(self.to) == 1 else self.cells

    def cell(self, part: slice) -> Index:
        """The joint cell of each row, in C order of the columns."""
        cell = np.zeros(part.stop - part.start, np.int64)
        for codes, to, size in zip(self.codes, self.to, self.sizes, strict=True):
            kernels.place(codes[part], to, size, cell)
        return cell

    def given(self, part: slice) -> NDArray[Any]:
        return self.codes[0][part] if len(self.to) == 1 else self.cell(part)

    def merged(self, sums: Index) -> Index:
        """(K, given cells) sums → (K, cells)."""
        if len(self.to) != 1:
            return sums
        assert len(self.to[0]) == sums.shape[1]
        total = np.zeros((len(sums), self.cells), np.int64)
        for own, given in zip(total, sums, strict=True):
            np.add.at(own, self.to[0], given)
        return total


@dataclass(frozen=True, repr=False)
class _Move:
    """A shift of scores as it was meant when it was said; later steps may lay columns out anew."""

    places: _Places
    table: NDArray[Any]  # (given cells, S), of the type that scores have

    @classmethod
    def of(cls, places: _Places, table: NDArray[Any]) -> _Move:
        """Of a (cells, S) table."""
        return cls(places, table[places.to[0]] if len(places.to) == 1 else table)

    @property
    def alone(self) -> bool:
        """Of one column of one byte, and one score: a kernel may make it with whatever it does next."""
        return len(self.places.codes) == 1 and self.places.codes[0].itemsize == 1 and self.table.shape[1] == 1

    def make(self, part: slice, scores: NDArray[Any]) -> None:
        """(n, S) scores of these rows."""
        kernels.shift_scores(self.places.given(part), self.table, scores)


@dataclass(frozen=True, repr=False)
class KeptRows:
    """Rows as they lie: people with one row first, then the others person by person; n in all."""

    codes: list[NDArray[Any]]  # (n,) of each column
    target: Target  # (n,) arrays by name
    begin: Index  # where each of the people with several rows begins, and n; [n] where nobody has several
    labels: Mapping[int, Sequence[str]]  # columns of unlisted values: what their codes number; one more is a hole

    @property
    def rows(self) -> int:
        return int(self.begin[-1])


def score_kind(objective: Objective) -> np.dtype[Any]:
    """How scores are kept: as floats, or in steps."""
    return np.dtype(np.int32 if isinstance(objective, OnGrid) else np.float64)


def kept_rows(
    codes: Any,
    sizes: Sequence[int],
    target: Target,
    person: NDArray[Any] | None,
    most: int,
    unlisted: Mapping[int, UnlistedColumn] | None = None,
    order: NDArray[Any] | None = None,
) -> KeptRows:
    """The rows of a table that count, laid out; codes (n, d) are moved to the nearest bin there is."""
    rows, begin = _by_person(person, len(codes), most, order)
    labels: dict[int, Sequence[str]] = {}
    laid: list[NDArray[Any]] = []
    for column, size in enumerate(map(int, sizes)):
        if unlisted and column in unlisted:
            code, labels[column] = _present(unlisted[column], rows)
            size = len(labels[column]) + 1
        else:
            code = np.clip(codes[rows, column].astype(np.int64), 0, size - 1)
        laid.append(code.astype(np.min_scalar_type(size - 1)))
    return KeptRows(laid, {name: np.asarray(values)[rows] for name, values in target.items()}, begin, labels)


def _present(column: UnlistedColumn, rows: Index) -> tuple[Index, Sequence[str]]:
    """The kept rows' values, and no others: how many a person brings is then bounded by their kept rows."""
    codes = np.asarray(column.codes)[rows]
    present, place = np.unique(codes[codes >= 0], return_inverse=True)
    kept = np.full(len(codes), len(present), np.int64)
    kept[codes >= 0] = place
    return kept, [column.labels[code] for code in present]


def _or_first(group: Codes | None) -> Codes:
    """(n,) groups; (1,) where all rows are in the first."""
    return np.zeros(1, np.int8) if group is None else group


def _shrink(length: Floats, limit: float) -> Floats:
    """Factor that brings each length under the limit, with the margin."""
    bound = limit * MARGIN
    return bound / np.maximum(length, bound)


def _lengths(vectors: Floats) -> Floats:
    """(n,) L2 norms of the rows of (n, size); squares are added from left to right, so no row depends on another."""
    square = np.zeros(len(vectors))
    for column in range(vectors.shape[1]):
        square += vectors[:, column] * vectors[:, column]
    return np.sqrt(square)


def _length(values: NDArray[Any]) -> int:
    """Σ |value|, in Python's integers: no sum of them is too large."""
    return _lengths_of(values, np.array([len(values)]))[0]


def _lengths_of(values: NDArray[Any], ends: Index) -> list[int]:
    """The same of each block; blocks have cells, and stand one behind the other."""
    size, starts = np.abs(values), np.append(0, ends[:-1])
    if values.dtype == object:
        return [sum(size[start:end]) for start, end in zip(starts, ends, strict=True)]
    high, low = np.add.reduceat(size >> 32, starts), np.add.reduceat(size & (2**32 - 1), starts)
    return [(int(one) << 32) + int(other) for one, other in zip(high, low, strict=True)]


def in_threes(
    pairs: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> list[tuple[tuple[int, int, int], list[tuple[int, tuple[int, int]]]]]:
    """Columns three by three, until every pair is among three of them, and which pairs each three tells of: (number of
    the pair, its axes). The joint cells of three columns cost what those of two do, and tell of three pairs; where they
    would be too many, the third is the last column, which has one cell.
    """
    left: dict[frozenset[int], list[int]] = {}
    for number, pair in enumerate(pairs):
        left.setdefault(frozenset(pair), []).append(number)
    columns, last = sorted({column for pair in pairs for column in pair}), len(sizes) - 1
    found = []
    while left:
        i, j = sorted(next(iter(left)))
        fits = [k for k in columns if k not in (i, j) and sizes[i] * sizes[j] * sizes[k] <= JOINT]
        new = [frozenset((i, k)) in left and frozenset((j, k)) in left for k in fits]
        half = [frozenset((i, k)) in left or frozenset((j, k)) in left for k in fits]
        third = next((k for whole in (new, half) for k, good in zip(fits, whole, strict=True) if good), last)
        three = (i, j, third)
        told = []
        for a, b in ((0, 1), (0, 2), (1, 2)):
            for number in left.pop(frozenset((three[a], three[b])), ()):
                told.append((number, (a, b) if pairs[number] == (three[a], three[b]) else (b, a)))
        found.append((three, told))
    return found


def _whole(values: Any) -> NDArray[Any]:
    """Integers in int64 where all of them fit, with room for noise and a sum of two; else Python's."""
    found = list(values)
    fits = all(-(2**62) < value < 2**62 for value in found)
    return np.array(found, np.int64 if fits else object)


def _chunks(start: int, stop: int, step: int = CHUNK) -> list[slice]:
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]


def _by_person(
    person: NDArray[Any] | None, n: int, most: int, order: NDArray[Any] | None = None
) -> tuple[Index, Index]:
    """Kept rows, people with one kept row first; and where each of the others begins among them, and their end."""
    if person is None:
        return np.arange(n), np.array([n])
    _, number = np.unique(np.asarray(person), return_inverse=True)
    # stable: within a person by `order`, then by table order
    rows = np.argsort(number, kind="stable") if order is None else np.lexsort((order, number))
    people = number[rows]
    first = np.concatenate([[True], people[1:] != people[:-1]]) if n else np.zeros(0, np.bool_)
    start = np.flatnonzero(first)
    rank = np.arange(n) - np.repeat(start, np.diff(np.append(start, n)))
    kept = rank < most
    rows, people = rows[kept], people[kept]
    several = np.bincount(people, minlength=1)[people] > 1
    rows, people = np.concatenate([rows[~several], rows[several]]), people[several]
    begin = np.flatnonzero(np.diff(people, prepend=-1)) + len(rows) - len(people)
    return rows, np.append(begin, len(rows))
