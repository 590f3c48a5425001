"""How kept rows lie in memory: which rows of a person count, in which order they stand, and in which cells they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Index
from distcondense.kernels import cell_sums as kernels
from distcondense.privacy.contributions import Target

CHUNK = 2**15  # rows taken at a time, with a few numbers of each: fits the cache


@dataclass(frozen=True)
class UnlistedColumn:
    """A column's values where nobody has listed them: (n,) numbers of `labels`, −1 where a value is missing."""

    codes: Index
    labels: Sequence[str]


@dataclass(frozen=True, repr=False)
class KeptRows:
    """Rows as they lie: people with one row first, then the others person by person; n in all."""

    codes: list[NDArray[Any]]  # (n,) of each column
    target: Target  # (n,) arrays by name
    begin: Index  # where each of the people with several rows begins, and n; [n] where nobody has several
    labels: Mapping[int, Sequence[str]]  # unlisted columns: what their codes number; one more is a missing value

    @property
    def rows(self) -> int:
        return int(self.begin[-1])

    def people(self, step: int = CHUNK) -> Iterator[tuple[slice, Index]]:
        """Rows of people who have several, some people at a time; and where each of them begins in these rows."""
        first = 0
        while first < len(self.begin) - 1:
            start = self.begin[first]
            last = max(first + 1, int(np.searchsorted(self.begin, start + step, side="right")) - 1)
            yield slice(int(start), int(self.begin[last])), self.begin[first : last + 1] - start
            first = last


def keep_rows(
    codes: Codes,
    sizes: Sequence[int],
    target: Target,
    person: NDArray[Any] | None,
    most: int,
    unlisted: Mapping[int, UnlistedColumn] | None = None,
    order: NDArray[Any] | None = None,
) -> KeptRows:
    """The rows of a table that count, laid out; codes (n, d) are moved to the nearest bin there is."""
    rows, begin = rows_by_person(person, len(codes), most, order)
    labels: dict[int, Sequence[str]] = {}
    columns: list[NDArray[Any]] = []
    for column, size in enumerate(map(int, sizes)):
        if unlisted and column in unlisted:
            code, labels[column] = _present(unlisted[column], rows)
            size = len(labels[column]) + 1
        else:
            code = np.clip(codes[rows, column].astype(np.int64), 0, size - 1)
        columns.append(code.astype(np.min_scalar_type(size - 1)))
    return KeptRows(columns, {name: np.asarray(values)[rows] for name, values in target.items()}, begin, labels)


def _present(column: UnlistedColumn, rows: Index) -> tuple[Index, Sequence[str]]:
    """The kept rows' values, and no others: how many a person brings is then bounded by their kept rows."""
    codes = np.asarray(column.codes)[rows]
    present, place = np.unique(codes[codes >= 0], return_inverse=True)
    kept = np.full(len(codes), len(present), np.int64)
    kept[codes >= 0] = place
    return kept, [column.labels[code] for code in present]


def rows_by_person(
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


@dataclass(frozen=True, repr=False)
class RowCells:
    """In which cells rows lie: their codes as given, each column's map of these to its cells, and their number.

    Of one column the codes as given are cells, too, only finer ones: sums by them are merged by its map.
    """

    codes: tuple[NDArray[Any], ...]
    to: tuple[NDArray[np.int32], ...]
    sizes: tuple[int, ...]

    @property
    def cells(self) -> int:
        return math.prod(self.sizes)

    @property
    def fine_cells(self) -> int:
        return len(self.to[0]) if len(self.to) == 1 else self.cells

    def cell(self, part: slice) -> Index:
        """(n,) the joint cell of each row, in C order of the columns."""
        cell = np.zeros(part.stop - part.start, np.int64)
        for codes, to, size in zip(self.codes, self.to, self.sizes, strict=True):
            kernels.place(codes[part], to, size, cell)
        return cell

    def fine(self, part: slice) -> NDArray[Any]:
        """(n,) the fine cell of each row."""
        return self.codes[0][part] if len(self.to) == 1 else self.cell(part)

    def merged(self, sums: Index) -> Index:
        """(K, fine cells) sums → (K, cells)."""
        if len(self.to) != 1:
            return sums
        assert len(self.to[0]) == sums.shape[1]
        total = np.zeros((len(sums), self.cells), np.int64)
        for merged, fine in zip(total, sums, strict=True):
            np.add.at(merged, self.to[0], fine)
        return total


@dataclass(frozen=True, repr=False)
class PendingShift:
    """A shift of scores as it was meant when it was asked for; later steps may lay columns out anew."""

    cells: RowCells
    table: NDArray[Any]  # (fine cells, S), of the type that scores have

    @property
    def narrow(self) -> bool:
        """Of one column of one byte, and one score: a kernel may make it with whatever it does next."""
        return len(self.cells.codes) == 1 and self.cells.codes[0].itemsize == 1 and self.table.shape[1] == 1


def chunks(start: int, stop: int, step: int = CHUNK) -> list[slice]:
    """start … stop − 1 in slices of `step`."""
    return [slice(first, min(first + step, stop)) for first in range(start, stop, step)]
