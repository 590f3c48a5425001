"""The rows behind the gate: exact integer answers that one person changes by at most a limit. No noise here.

A person's vector over *all* coordinates of an answer is scaled down to L2 norm 1 where it is longer, multiplied by the
limit and rounded towards zero. That cannot lengthen it, and integer sums do not depend on order, so one person changes
the answer by at most the limit in L2 (a choice: each score by at most the limit). Factors carry a margin of 2⁻³⁰ for
float64. A single row has norm at most 1 already: its objective proves that (contributions.py).

Nothing here raises for a value: codes outside their column's bins are moved to the nearest bin, outcomes into their
legal range by the objective, row by row, without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.privacy.contributions import FINITE, Objective, PublicMap, Target
from distcondense.privacy.questions import (
    Adopt,
    Aim,
    Choice,
    Histogram,
    Mapped,
    Merge,
    Named,
    Question,
    Related,
    Shift,
    Step,
    Sums,
    Total,
)

MARGIN = 1 - 2.0**-30  # on every factor that bounds a norm: far over the error of float64, far under any noise
MU_MAX = 8.0  # one answer at μ = 8 protects nobody (ε over 60); the bound keeps integer sums inside 64 bits
# rows taken at a time: fits the cache, and CHUNK·GRID·MU_MAX = 2⁵⁰, so that float64 sums of integers are exact
CHUNK = 2**15
ROWS_ALL_MAX = 2**27  # ROWS_ALL_MAX·GRID·MU_MAX = 2⁶²: integer sums cannot overflow
ROWS_MAX = 2**16  # of one person: their float64 sums of integers are exact too, of up to 32 scores
VALUES = 2**21  # of a map, computed at a time
SLOTS_KEPT = 64  # groupings of people with several rows that are remembered

_Slots = tuple[tuple[int, ...], str, tuple[int, ...]]  # (columns, by, starts) of a grouping


@dataclass(frozen=True)
class Unlisted:
    """A column's values where nobody has listed them: (n,) numbers of `labels`, −1 for a hole."""

    codes: Index
    labels: Sequence[str]


class Rows(Protocol):
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
        """Of a column of unlisted values, those that kept rows have, in the order of `answer`. Not public."""
        ...

    def answer(self, question: Question, limit: float) -> Index:
        """An integer vector that one person changes by at most `limit`: in L2, each score of a choice in size."""
        ...

    def apply(self, step: Step) -> None:
        """A public step, row by row."""
        ...


class TableRows:
    """The kept rows of a table, column by column: people with one row first, then the others person by person."""

    def __init__(
        self,
        codes: Codes,
        sizes: Sequence[int],
        target: Target,
        objective: Objective,
        person: NDArray[Any] | None = None,
        rows_per_person: int = 1,
        unlisted: Mapping[int, Unlisted] | None = None,
    ) -> None:
        """(n, d) bin codes below `sizes`, the outcome's (n,) arrays by name, (n,) whose each row is."""
        self.most = 1 if person is None else rows_per_person
        order, self.owner = _by_person(person, len(codes), rows_per_person)
        self.single = len(order) - len(self.owner)
        self.sizes = [int(size) for size in sizes]
        self.codes: list[NDArray[Any]] = []
        for column, size in enumerate(self.sizes):
            code = np.clip(codes[order, column].astype(np.int64), 0, size - 1)
            self.codes.append(code.astype(np.min_scalar_type(size - 1)))
        self._unlisted = {column: _present(one, order) for column, one in (unlisted or {}).items()}
        self._contributions: list[Floats] | None = None
        self._slots: dict[_Slots, tuple[Index, Index]] = {}
        self._pairs: dict[tuple[tuple[int, int], float], Index] = {}
        self._given = {name: np.asarray(values)[order] for name, values in target.items()}
        self.score = np.zeros(len(order) if objective.scores == 1 else (len(order), objective.scores))
        self._aim(objective)

    # ---- public steps

    def apply(self, step: Step) -> None:
        match step:
            case Shift(columns, table):
                self.score += table.T[self.cell(columns)]
                self._contributions = None
            case Merge(column, merge):
                self._merge(column, merge)
            case Adopt(column, labels, hole):
                self._adopt(column, labels, hole)
            case Aim(objective):
                self._aim(objective)
            case _:
                assert_never(step)

    def _aim(self, objective: Objective) -> None:
        self.objective = objective
        self.target = objective.prepare(self._given)
        self._contributions = None
        self._slots.clear()  # a grouping may look at what the objective now knows

    def _merge(self, column: int, merge: Codes) -> None:
        size = int(merge.max()) + 1
        self.codes[column] = merge.astype(np.min_scalar_type(size - 1))[self.codes[column]]
        self.sizes[column] = size
        self._slots = {key: slots for key, slots in self._slots.items() if column not in key[0]}
        self._pairs.clear()

    def _adopt(self, column: int, labels: tuple[str, ...], hole: bool) -> None:
        own, place = self._unlisted[column], {label: code for code, label in enumerate(labels)}
        size = len(labels) + 1 + hole
        to = [place.get(label, len(labels)) for label in own.labels]
        self.codes[column] = np.array([*to, size - 1], np.min_scalar_type(size - 1))[own.codes]  # the last: a hole
        self.sizes[column] = size
        self._slots = {key: slots for key, slots in self._slots.items() if column not in key[0]}
        self._pairs.clear()

    # ---- cells and contributions

    def count(self, columns: tuple[int, ...]) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def cell(self, columns: tuple[int, ...]) -> Index:
        """The joint cell of each row, in C order of the columns."""
        if not columns:
            return np.zeros(len(self.score), np.intp)
        cell = self.codes[columns[0]].astype(np.intp)
        for column in columns[1:]:
            cell *= self.sizes[column]
            cell += self.codes[column]
        return cell

    def contributions(self) -> list[Floats]:
        """(n,) arrays, one for each of the objective's scales."""
        if self._contributions is None:
            made = [np.empty(len(self.score)) for _ in self.objective.scales]
            for part in _chunks(len(self.score)):
                target = {name: values[part] for name, values in self.target.items()}
                for whole, values in zip(made, self.objective.contributions(self.score[part], target), strict=True):
                    whole[part] = values
            self._contributions = made
        return self._contributions

    # ---- answers

    def answer(self, question: Question, limit: float) -> Index:
        match question:
            case Histogram(columns, by, starts):
                return self.histogram(columns, by, limit, starts)
            case Named(column):
                return self.named(column, limit)
            case Sums(columns):
                return self._sum(columns, self.contributions(), limit)
            case Total(name):
                return self._sum((), self.objective.statistics[name].values(self.target, self.score), limit)
            case Choice(_, among, widths):
                return self.choice_scores(among, widths, limit)
            case Related(pairs, expected, ahead):
                return self.pair_scores(pairs, expected, ahead, limit)
            case Mapped(map_):
                return self.mapped(map_, limit)
            case _:
                assert_never(question)

    def histogram(self, columns: tuple[int, ...], by: str, limit: float, starts: tuple[int, ...] = ()) -> Index:
        cells, cell, groups = self.count(columns), self.cell(columns), 1
        if starts:  # a public map of cells to coarser ones
            cells, cell = len(starts), np.searchsorted(starts, np.arange(cells), side="right")[cell] - 1
        if by != "none":
            groups = self.objective.groupings[by]
            cell += cells * np.clip(self.objective.group(by, self.target), 0, groups - 1)
        unit = math.floor(limit * MARGIN)
        alone = np.bincount(cell[: self.single], minlength=groups * cells).astype(np.int64) * unit
        if not len(self.owner):
            return alone
        ones = np.full(len(self.owner), float(unit))
        return alone + self._together((columns, by, starts), cell[self.single :], groups * cells, [ones], limit)

    def labels(self, column: int) -> Sequence[str]:
        return self._unlisted[column].labels

    def named(self, column: int, limit: float) -> Index:
        """Rows with each value that a kept row has; a hole takes part in a person's norm and is not counted."""
        own = self._unlisted[column]
        cells = len(own.labels) + 1
        cell = np.where(own.codes < 0, cells - 1, own.codes)
        unit = math.floor(limit * MARGIN)
        total = np.bincount(cell[: self.single], minlength=cells).astype(np.int64) * unit
        if len(self.owner):
            ones = np.full(len(self.owner), float(unit))
            total += self._together(((column,), "value", ()), cell[self.single :], cells, [ones], limit)
        return total[:-1]

    def choice_scores(self, columns: tuple[int, ...], widths: tuple[int, ...], limit: float) -> Index:
        """Σ over scores and cells of |Σ rows g| for each column, g as it counts in the norm.

        A person's g are scaled down to Σ_rows Σ_scores |g| ≤ limit; by the triangle inequality no score moves further.
        """
        gradients = self.contributions()[: self.objective.scores]
        values = [np.trunc(np.clip(g, -1.0, 1.0) * (limit * MARGIN)) for g in gradients]
        length = np.sum(np.abs(values), axis=0)
        if len(self.owner):
            length[self.single :] = np.bincount(self.owner, length[self.single :])[self.owner]
        shrink = _shrink(length, limit)
        values = [np.trunc(value * shrink) for value in values]
        scores = []
        for column, width in zip(columns, widths, strict=True):
            cell = self.codes[column] if width == 1 else self.codes[column] // width
            scores.append(sum(int(np.abs(_add(cell, value, self.sizes[column])).sum()) for value in values))
        return np.array(scores, np.int64)

    def pair_scores(
        self, pairs: tuple[tuple[int, int], ...], expected: tuple[Floats, ...], ahead: tuple[float, ...], limit: float
    ) -> Index:
        """Σ over cells of |rows − expected| for each pair; a person's rows share one unit, so none moves further."""
        ones = np.full(len(self.score), float(math.floor(limit * MARGIN)))
        if len(self.owner):
            ones[self.single :] = np.trunc(ones[self.single :] / np.bincount(self.owner)[self.owner])
        scores = []
        for pair, table, start in zip(pairs, expected, ahead, strict=True):
            key = (pair, limit)
            if key not in self._pairs:  # asked again and again, of fewer and fewer pairs
                self._pairs[key] = _add(self.cell(pair), ones, self.count(pair))
            public = np.trunc(table.ravel() * limit).astype(np.int64)
            scores.append(int(np.abs(self._pairs[key] - public).sum()) + math.trunc(start * limit))
        return np.array(scores, np.int64)

    def mapped(self, map_: PublicMap, limit: float) -> Index:
        """Σ over people of clip(Σ rows clip(map(row))), so many people at a time that memory is bounded."""
        total, step = np.zeros(map_.size, np.int64), min(CHUNK, max(1, VALUES // map_.size))
        for start in range(0, self.single, step):
            vectors = self._row_vectors(map_, slice(start, min(start + step, self.single)), limit)
            total += vectors.sum(0).astype(np.int64)
        edges = np.flatnonzero(np.diff(self.owner, prepend=-1, append=-1))  # where each person's rows begin
        people = max(1, step // self.most)
        for first in range(0, len(edges) - 1, people):
            begin = edges[first : first + people + 1]
            vectors = self._row_vectors(map_, slice(self.single + begin[0], self.single + begin[-1]), limit)
            own = np.add.reduceat(vectors, begin[:-1] - begin[0])
            total += np.trunc(own * _shrink(_lengths(own), limit)[:, None]).sum(0).astype(np.int64)
        return total

    def _row_vectors(self, map_: PublicMap, part: slice, limit: float) -> Floats:
        """(rows, size) whole numbers, of each row together at most `limit`; what is no number is 0."""
        codes = np.empty((part.stop - part.start, len(map_.columns)), np.int64)
        for place, column in enumerate(map_.columns):
            codes[:, place] = self.codes[column][part]
        target = {name: values[part] for name, values in self.target.items()}
        with np.errstate(all="ignore"):  # a warning would depend on a patient
            given = np.array(map_.values(codes, target), np.float64)
        given = np.clip(np.nan_to_num(given, nan=0.0), -FINITE, FINITE)
        return np.trunc(given * (limit * MARGIN / np.maximum(_lengths(given), 1.0))[:, None])

    def _sum(self, columns: tuple[int, ...], values: list[Floats], limit: float) -> Index:
        """Σ over people of their clipped vectors: coordinate (value, cell). A single row has norm ≤ 1 already."""
        factor, cell, cells = limit * MARGIN, self.cell(columns), self.count(columns)
        total = np.concatenate([_add(cell[: self.single], value[: self.single], cells, factor) for value in values])
        if len(self.owner):
            several = [np.trunc(value[self.single :] * factor) for value in values]
            total += self._together((columns, "none", ()), cell[self.single :], cells, several, limit)
        return total

    def _together(self, key: _Slots, cell: Index, cells: int, values: list[Floats], limit: float) -> Index:
        """The same for people with several rows: add up each person's cells, clip the person, add up people."""
        if key not in self._slots:
            if len(self._slots) >= SLOTS_KEPT:
                self._slots.pop(next(iter(self._slots)))
            # a slot is one cell of one person; sorted, so that a person's norm does not depend on the order of rows
            self._slots[key] = np.unique(self.owner * cells + cell, return_inverse=True)
        slots, slot = self._slots[key]
        owner, where = slots // cells, slots % cells
        parts = [np.bincount(slot, value, minlength=len(slots)) for value in values]
        square = np.zeros(len(slots))
        for part in parts:
            square += part * part
        shrink = _shrink(np.sqrt(np.bincount(owner, square)), limit)[owner]
        return np.concatenate([_add(where, part * shrink, cells) for part in parts])


def _present(column: Unlisted, order: Index) -> Unlisted:
    """The kept rows' values, and no others: how many a person brings is then bounded by their kept rows."""
    codes = column.codes[order]
    present, place = np.unique(codes[codes >= 0], return_inverse=True)
    kept = np.full(len(codes), -1, np.int64)
    kept[codes >= 0] = place
    return Unlisted(kept, [column.labels[code] for code in present])


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


def _add(cell: Codes, values: Floats, cells: int, factor: float = 1.0) -> Index:
    """Sums by cell of trunc(factor·value), exact at any number of rows."""
    total = np.zeros(cells, np.int64)
    for part in _chunks(len(values)):
        total += np.bincount(cell[part], np.trunc(values[part] * factor), minlength=cells).astype(np.int64)
    return total


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _by_person(person: NDArray[Any] | None, n: int, most: int) -> tuple[Index, Index]:
    """Kept rows, people with one kept row first; and the owner, from 0, of each of the rows after those."""
    if person is None:
        return np.arange(n), np.zeros(0, np.intp)
    _, number = np.unique(np.asarray(person), return_inverse=True)
    order = np.argsort(number, kind="stable")  # stable: within a person, table order
    people = number[order]
    first = np.concatenate([[True], people[1:] != people[:-1]]) if n else np.zeros(0, np.bool_)
    start = np.flatnonzero(first)
    rank = np.arange(n) - np.repeat(start, np.diff(np.append(start, n)))
    kept = rank < most
    order, people = order[kept], people[kept]
    several = np.bincount(people, minlength=1)[people] > 1
    _, owner = np.unique(people[several], return_inverse=True)
    return np.concatenate([order[~several], order[several]]), owner.astype(np.intp)
