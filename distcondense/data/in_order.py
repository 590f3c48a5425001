"""Rows that are persons of their own, laid out as they are read: nothing must be brought together but equal rows.

Without identifiers every row is a person, and the only thing about a row that other rows decide is its coin: the k-th
of equal rows has the coin of its content and k (persons.py). So rows go straight into shards, each on the side that the
coin of a first row names. Their marks wait in a file, bucket by bucket. Once all rows were read, the equal ones of each
bucket are numbered off, and those whose own coin says otherwise change sides. Which of equal rows these are does not
matter; so neither do files, their order and the threads that read them.

A shard is a file of columns with room for so many rows: those that count from the front on, those that are left out
from the back. It is written batch by batch and then mapped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Index, Marks
from distcondense.data.buckets import Each, RecordLayout, full_disk, write_all
from distcondense.data.coding import Coded
from distcondense.data.persons import HoldoutSplit, Ranks, numbered
from distcondense.kernels import scatter as kernels
from distcondense.privacy.layout import KeptRows

MARK_BYTES = 16
SLOTS = 8  # for each mark of a bucket, at least: an eighth of those without an equal look as if they had one


@dataclass(frozen=True, repr=False)
class Columns:
    """Where the columns of a shard lie in its file; public."""

    layout: RecordLayout
    room: int

    @cached_property
    def kinds(self) -> dict[str, np.dtype[Any]]:
        """Of codes and outcome; marks stay behind."""
        return {name: kind for name, kind in self.layout.fields.items() if name[:-1] != "mark"}

    @cached_property
    def starts(self) -> dict[str, int]:
        starts, size = {}, 0
        for name, kind in self.kinds.items():
            starts[name] = size
            size += -(-kind.itemsize * self.room // 64) * 64
        return {**starts, "": size}

    @property
    def size(self) -> int:
        return self.starts[""]

    def mapped(self, path: Path) -> dict[str, NDArray[Any]]:
        whole = np.memmap(path, np.uint8, "r+", shape=(self.size,))
        return {
            name: np.ndarray((self.room,), kind, whole.data, self.starts[name]) for name, kind in self.kinds.items()
        }


@dataclass(repr=False)
class RowBuffer:
    """A shard that grows."""

    number: int
    path: Path
    file: int
    kept: int = 0
    lost: int = 0


@dataclass(frozen=True, repr=False)
class Segment:
    """Rows that came together: where their marks lie, bucket after bucket, and where the rows themselves do."""

    marks: int  # their first mark's number in the file of marks
    ends: NDArray[np.int32]  # (2 · buckets,) of each bucket, first of rows that count, then of those that do not
    shard: int
    kept: int  # the first row's place in the shard, of those that count
    lost: int  # and of the others


@dataclass(repr=False)
class InOrderRows:
    """The rows of a table on disk. Threads may add at once."""

    folder: Path
    layout: RecordLayout
    coins: HoldoutSplit
    buckets: int  # of marks; a power of two
    room: int  # rows of a shard, at most
    rows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.columns = Columns(self.layout, self.room)
        self._lock = Lock()
        self._piles: list[RowBuffer] = []
        self._free: list[RowBuffer] = []
        self._segments: list[Segment] = []
        self._marked = 0
        self._changed: NDArray[np.uint8] | None = None
        self._marks = -1
        if self.coins.share > 0:
            with full_disk(self.folder):
                self._marks = os.open(self.folder / "marks", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)

    def add(self, coded: Coded) -> None:
        """Rows of a batch; what does not fit one shard goes to the next."""
        given: dict[str, NDArray[Any]] = {f"c{k}": codes for k, codes in enumerate(coded.codes)}
        given |= {f"t.{name}": coded.target[name] for name, _ in self.layout.target}
        given = {name: np.ascontiguousarray(given[name], kind) for name, kind in self.columns.kinds.items()}
        first = 0
        with full_disk(self.folder):
            while first < len(coded):
                pile = self._taken()
                last = min(len(coded), first + self.room - pile.kept - pile.lost)
                part = slice(first, last)
                self._laid(pile, {name: values[part] for name, values in given.items()}, coded.mark[part])
                self._back(pile)
                first = last

    def _taken(self) -> RowBuffer:
        """A shard that has room, of which nobody else knows meanwhile."""
        with self._lock:
            if self._free:
                return self._free.pop()
            number = len(self._piles)
            path = self.folder / f"shard-{number:04d}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self._piles.append(pile := RowBuffer(number, path, file))
        os.posix_fallocate(file, 0, self.columns.size)  # rows may change places in the map: a full disk would kill
        return pile

    def _back(self, pile: RowBuffer) -> None:
        with self._lock:
            if pile.kept + pile.lost < self.room:
                self._free.append(pile)
                return
        os.close(pile.file)
        pile.file = -1

    def _laid(self, pile: RowBuffer, given: Mapping[str, NDArray[Any]], mark: Marks) -> None:
        rows = len(mark)
        place, ends = self._places(mark) if self.coins.share > 0 else (None, np.full(1, rows, np.int32))
        kept = int(ends[len(ends) // 2 - 1]) if place is not None else rows
        begin = self.room - pile.lost - (rows - kept)
        for name, kind in self.columns.kinds.items():
            values = given[name]
            if place is not None:
                values = np.empty(rows, kind)
                kernels.scatter_values(_bits(given[name]), place, _bits(values))
            start = self.columns.starts[name]
            write_all(pile.file, values[:kept], start + pile.kept * kind.itemsize)
            write_all(pile.file, values[kept:], start + begin * kind.itemsize)
        if place is not None:
            marks = np.empty((rows, 2), np.uint64)
            kernels.scatter_pairs(mark, place, marks)
            with self._lock:
                at, self._marked = self._marked, self._marked + rows
                self._segments.append(Segment(at, ends, pile.number, pile.kept, begin))
            write_all(self._marks, marks, at * MARK_BYTES)
        pile.kept, pile.lost = pile.kept + kept, pile.lost + rows - kept
        with self._lock:
            self.rows += rows

    def _places(self, mark: Marks) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Where each row goes: rows that count, bucket by bucket, then the others in the same way; and the ends."""
        lost = self.coins.held_out(mark[:, 0], mark[:, 1])  # as first rows of their content
        key, place = np.empty(len(mark), np.int32), np.empty(len(mark), np.int32)
        counts = np.zeros(2 * self.buckets, np.int64)
        kernels.bucket_keys(mark, lost, self.buckets, key, counts)
        ends = np.cumsum(counts)
        kernels.places_by_number(key, np.append(0, ends[:-1]), place)
        return place, ends.astype(np.int32)

    # ---- once all rows were read

    def number_off(self, bucket: int) -> None:
        """The coins of equal rows in a bucket: whose own says otherwise than that of a first row is noted down."""
        mark, begin, where = self._of_bucket(bucket)
        there = np.flatnonzero(_suspects(mark))
        suspects = mark[there]
        first = self.coins.held_out(suspects[:, 0], suspects[:, 1])
        wrong = there[first != self.coins.held_out(*numbered(suspects, Ranks(len(suspects))))]
        if not len(wrong):
            return
        part = np.searchsorted(begin, wrong, side="right") - 1
        place = where[part] + wrong - begin[part]
        with self._lock, full_disk(self.folder):
            if self._changed is None:
                self._changed = _zeros(self.folder / "changed", len(self._piles) * self.room)
        self._changed[place] = 1

    def _of_bucket(self, bucket: int) -> tuple[Marks, Index, Index]:
        """Its marks; where each stretch of them begins, and the place of its first row: shard · room + row."""
        file, ends, begins = self._read
        first, many, place = list[Index](), list[Index](), list[Index]()
        for side, at in ((0, begins[:, 1]), (self.buckets, begins[:, 2])):
            ends_before = ends[:, bucket + side]
            first.append(begins[:, 0] + ends_before)
            many.append(ends[:, bucket + side + 1] - ends_before)
            place.append(at + ends_before - ends[:, side])
        begin = np.append(0, np.cumsum(np.concatenate(many)))
        mark = np.empty((int(begin[-1]), 2), np.uint64)
        kernels.gather_stretches(file, np.concatenate(first), begin, mark)
        return mark, begin[:-1], np.concatenate(place)

    @cached_property
    def _read(self) -> tuple[Marks, Index, Index]:
        """All marks, mapped; of each segment where its buckets end, a 0 in front; and where there begin (its marks, its
        rows that count, those that do not)."""
        file = np.memmap(self.folder / "marks", np.uint64, "r", shape=(self._marked, 2))
        ends = np.stack([np.append(0, one.ends) for one in self._segments]).astype(np.int64)
        places = [(one, one.shard * self.room) for one in self._segments]
        begins = np.array([(one.marks, shard + one.kept, shard + one.lost) for one, shard in places], np.int64)
        return file, ends, begins

    def close(self) -> None:
        """Nothing more is added or numbered off: marks go."""
        if self._marks >= 0:
            os.close(self._marks)
            os.unlink(self.folder / "marks")
        for pile in self._piles:
            if pile.file >= 0:
                os.close(pile.file)
        self.__dict__.pop("_read", None)
        self._marks, self._free = -1, []

    def laid_out(self, coins: HoldoutSplit, most: int, each: Each) -> list[KeptRows]:
        """All shards, once equal rows have the coins that are theirs; every row is a person, so there are no `most`."""
        assert coins == self.coins
        if self._marked:
            each(self.number_off, range(self.buckets))
        return each(self.shard, range(len(self._piles)))

    @property
    def all_rows(self) -> int:
        return self.rows

    def shard(self, number: int) -> KeptRows:
        """The rows of a shard that count."""
        pile = self._piles[number]
        columns, rows = self.columns.mapped(pile.path), pile.kept
        if self._changed is not None:
            changed = np.flatnonzero(self._changed[number * self.room : (number + 1) * self.room])
            rows, source, target = moves(pile.kept, changed)
            for values in columns.values():
                values[target] = values[source]
        kept = {name: values[:rows] for name, values in columns.items()}
        return KeptRows(
            [kept[f"c{k}"] for k in range(len(self.layout.cells))],
            {n: kept[f"t.{n}"] for n, _ in self.layout.target},
            np.array([rows]),
            {},
        )


def moves(kept: int, changed: Index) -> tuple[int, Index, Index]:
    """Rows 0 … kept − 1 count, and others that lie further back do not; those at `changed`, upwards, change sides.

    How many count then, and which rows have to go where, so that these are the first ones again.
    """
    away, back = changed[changed < kept], changed[changed >= kept]
    rows = kept - len(away) + len(back)
    behind = np.setdiff1d(np.arange(rows, kept), away, assume_unique=True)
    between = np.setdiff1d(np.arange(kept, rows), back, assume_unique=True)
    return rows, np.concatenate([behind, back[back >= rows]]), np.concatenate([away[away < rows], between])


def _suspects(mark: Marks) -> Flags:
    """Marks that may have an equal: all that have, and few others."""
    seen = np.zeros(1 << max(4, (SLOTS * len(mark) - 1).bit_length()), np.uint8)
    out = np.empty(len(mark), np.bool_)
    kernels.maybe_repeated(mark, seen, out)
    return out


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """The same, as unsigned integers: a kernel is compiled for each width and not for each type."""
    return values.view(f"u{values.itemsize}")


def _zeros(path: Path, size: int) -> NDArray[np.uint8]:
    with open(path, "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, np.uint8, "r+", shape=(size,))


def scores_of(rows: Sequence[int], scores: int, kind: np.dtype[Any], folder: Path, allowed: int) -> list[NDArray[Any]]:
    """Zeros for every shard: in memory where all of them fit what is allowed, else in a mapped file.

    Every round writes them, and pages of a file that are written again and again go to the disk again and again.
    """
    ends = np.cumsum([0, *rows]) * scores
    size = int(ends[-1])
    if size * kind.itemsize <= allowed or not size:
        whole: NDArray[Any] = np.zeros(size, kind)
    else:
        with full_disk(folder):
            whole = _zeros(folder / "scores", size * kind.itemsize).view(kind)
    parts = [whole[first:last] for first, last in pairwise(ends.tolist())]
    return parts if scores == 1 else [part.reshape(-1, scores) for part in parts]
