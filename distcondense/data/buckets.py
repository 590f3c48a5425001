"""Coded rows on disk: brought together by person, coins thrown, then laid out for the gate in mapped files.

A row goes to the bucket that its person's hash names; rows without a person to that of their own content. So whatever
decides which rows are read (a person's coin and rows, the coin of the k-th of equal rows) is decided inside one bucket,
which fits memory, and does not depend on how the table was cut into files, or in which order these were read. A bucket
becomes one shard (privacy/shards.py).

Rows wait as records in one file a bucket. A shard is one file, too: columns of one width after each other, then scores,
mapped; its pages belong to the file and can be dropped by the system at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Index, Marks
from distcondense.data.cells import Cells
from distcondense.data.coding import Coded
from distcondense.data.persons import TEXT, HoldoutSplit, Ranks, numbered, ordered
from distcondense.errors import RunFolderError
from distcondense.kernels import scatter as kernels
from distcondense.privacy.layout import KeptRows

Each = Callable[[Callable[[int], Any], Iterable[int]], list[Any]]  # calls for each, some at a time, in order

BUCKET_ROWS = 2**19  # about so many rows in a bucket
BUCKETS_MOST = 1024  # files that are open at once
CHUNK_ROWS = 2**20  # of one bucket that are in memory at once
SCORES = np.dtype(np.float64)


def buckets_for(rows: int) -> int:
    """How many buckets a table of so many rows is cut into: a power of two."""
    return min(BUCKETS_MOST, 1 << max(0, (rows // BUCKET_ROWS).bit_length()))


@dataclass(frozen=True)
class RecordLayout:
    """What a record holds; public."""

    cells: tuple[Cells, ...]
    target: tuple[tuple[str, str], ...]  # names and types of the outcome's arrays
    by_person: bool

    @classmethod
    def from_arrays(cls, cells: tuple[Cells, ...], target: Mapping[str, NDArray[Any]], by_person: bool) -> RecordLayout:
        kinds = {name: _kept_as(np.asarray(values).dtype) for name, values in target.items()}
        return cls(cells, tuple(sorted(kinds.items())), by_person)

    @property
    def unlisted(self) -> tuple[int, ...]:
        return tuple(k for k, one in enumerate(self.cells) if not one.numeric and one.column.unknown)

    @cached_property
    def fields(self) -> dict[str, np.dtype[Any]]:
        """Names and types of all that a record holds, widest first, so that each lies where its type wants it."""
        kinds = [("mark0", np.dtype("<u8")), ("mark1", np.dtype("<u8"))]
        if self.by_person:
            kinds += [("who0", np.dtype("<u8")), ("who1", np.dtype("<u8"))]
        kinds += [(f"t.{name}", np.dtype(kind)) for name, kind in self.target]
        for k, one in enumerate(self.cells):
            if k in self.unlisted:
                kinds += [(name, np.dtype("<u8")) for name in _text_fields(k)]
            else:
                kinds.append((f"c{k}", np.min_scalar_type(one.size)))
        return dict(sorted(kinds, key=lambda field: -field[1].itemsize))

    @cached_property
    def record(self) -> np.dtype[Any]:
        size = sum(kind.itemsize for kind in self.fields.values())
        return np.dtype([*self.fields.items(), *([("filling", f"V{-size % 8}")] if size % 8 else [])])

    @cached_property
    def blocks(self) -> list[FieldGroup]:
        """The fields by width: a kernel moves all of one width at once."""
        names: dict[int, list[str]] = {}
        for name, kind in self.fields.items():
            names.setdefault(kind.itemsize, []).append(name)
        fields: Mapping[str, Any] = self.record.fields or {}
        return [
            FieldGroup(np.dtype(f"<u{width}"), tuple(own), np.array([fields[name][1] // width for name in own]))
            for width, own in names.items()
        ]

    def records(self, coded: Coded, place: Index) -> NDArray[Any]:
        """Row i becomes record place[i]."""
        given: dict[str, NDArray[Any]] = {}
        for k, codes in enumerate(coded.codes):
            given |= dict(zip(_text_fields(k), codes.T, strict=True)) if k in self.unlisted else {f"c{k}": codes}
        given |= {f"t.{name}": coded.target[name] for name, _ in self.target}
        for name, both in (("mark", coded.mark), ("who", coded.who)):
            if both is not None:
                given |= {f"{name}{lane}": both[:, lane] for lane in (0, 1)}
        out = np.empty(len(coded), self.record)
        for block in self.blocks:
            fields = np.empty((len(block.names), len(coded)), block.kind)
            for row, name in zip(fields, block.names, strict=True):
                row.view(self.fields[name])[:] = given[name]
            kernels.scatter_fields(fields, place, block.at, block.of(out))
        return out

    def parted(self, coded: Coded, buckets: int) -> list[NDArray[Any]]:
        """Records of each bucket."""
        home = coded.mark[:, 0] if coded.who is None else coded.who[:, 0]
        number = ((home >> np.uint64(kernels.TOP)) & np.uint64(buckets - 1)).astype(np.int64)
        ends = np.cumsum(np.bincount(number, minlength=buckets))
        place = np.empty(len(coded), np.int64)
        kernels.places_by_number(number, np.append(0, ends[:-1]), place)
        return np.split(self.records(coded, place), ends[:-1])


@dataclass(frozen=True, repr=False)
class FieldGroup:
    """Fields of one width, as unsigned integers of it."""

    kind: np.dtype[Any]
    names: tuple[str, ...]
    at: Index  # where each stands in a record, counted in that width

    def of(self, records: NDArray[Any]) -> NDArray[Any]:
        """(n, …) the records, seen as such integers."""
        return records.view(self.kind).reshape(len(records), records.itemsize // self.kind.itemsize)

    def without(self, names: Container[str]) -> FieldGroup:
        """What a shard holds of them: hashes of rows and persons stay behind, and what is said otherwise."""
        kept = [k for k, name in enumerate(self.names) if name not in names and name[:-1] not in ("mark", "who")]
        return FieldGroup(self.kind, tuple(self.names[k] for k in kept), self.at[kept])


def _text_fields(column: int) -> list[str]:
    """What a record calls the words of an unlisted value's hash."""
    return [f"c{column}.{word}" for word in range(TEXT)]


def _pair(records: NDArray[Any], name: str) -> Marks:
    """(n, 2) both halves of a hash."""
    return np.stack([records[f"{name}0"], records[f"{name}1"]], axis=1)


def _kept_as(kind: np.dtype[Any]) -> str:
    """The type of an outcome's array on disk."""
    return "<f8" if kind.kind == "f" else "<i1" if kind in (np.int8, np.bool_) else "<i4"


@dataclass
class Buckets:
    """Records of a table on disk, bucket by bucket. Threads may add at once."""

    folder: Path
    layout: RecordLayout
    count: int
    words: dict[int, dict[bytes, str]] = field(default_factory=dict)  # texts of unlisted values, by hash
    rows: Index = field(init=False)

    def __post_init__(self) -> None:
        self.rows = np.zeros(self.count, np.int64)
        self._locks = [Lock() for _ in range(self.count)]

    def add(self, coded: Coded) -> None:
        parts = self.layout.parted(coded, self.count)
        for number, part in enumerate(parts):
            self.append(number, part)
        self.know(coded.words)

    def know(self, words: Mapping[int, Mapping[bytes, str]]) -> None:
        for column, texts in words.items():
            self.words.setdefault(column, {}).update(texts)

    def append(self, number: int, *parts: NDArray[Any]) -> None:
        rows = sum(map(len, parts))
        if rows:
            with self._locks[number], full_disk(self.folder):
                file = os.open(self._path(number), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    for part in parts:
                        _append(file, part.view(np.uint8).data)
                finally:
                    os.close(file)
                self.rows[number] += rows

    def _path(self, number: int) -> Path:
        return self.folder / f"records-{number:04d}"

    def _chunks(self, number: int) -> Iterator[NDArray[Any]]:
        if self.rows[number]:
            with open(self._path(number), "rb") as file:
                while len(chunk := np.fromfile(file, self.layout.record, CHUNK_ROWS)):
                    yield chunk

    def shard(self, number: int, coins: HoldoutSplit, most: int, scores: int, kind: np.dtype[Any] = SCORES) -> Shard:
        """The bucket's rows that count, laid out in a file of their own, with scores of that kind; its records go."""
        parts = self._of_people(number, coins, most) if self.layout.by_person else self._of_rows(number, coins)
        kept = Shard.write(self._shard(number), self.layout, parts, scores, kind, self.words)
        if self.rows[number]:
            os.unlink(self._path(number))
        return kept

    def laid_out(self, coins: HoldoutSplit, most: int, each: Each) -> list[KeptRows]:
        """All buckets; scores are somebody else's."""
        return each(lambda number: self.shard(number, coins, most, 0).kept, range(self.count))

    @property
    def all_rows(self) -> int:
        return int(self.rows.sum())

    def close(self) -> None:
        """Nothing is open between two calls."""

    def forget(self, number: int) -> None:
        """Nothing of a bucket that was laid out is left; its rows may come again."""
        self.rows[number] = 0
        self._shard(number).unlink(missing_ok=True)

    def _shard(self, number: int) -> Path:
        return self.folder / f"shard-{number:04d}"

    def _of_rows(self, number: int, coins: HoldoutSplit) -> list[ChosenRecords]:
        """Rows that are persons of their own: the k-th of equal ones has the coin of its content and k."""
        rank, parts = Ranks(int(self.rows[number]) if coins.share > 0 else 0), []
        for chunk in self._chunks(number):
            lost = (
                coins.held_out(*numbered(_pair(chunk, "mark"), rank))
                if coins.share > 0
                else np.zeros(len(chunk), np.bool_)
            )
            parts.append(ChosenRecords(chunk, np.flatnonzero(~lost)))
        return parts

    def _of_people(self, number: int, coins: HoldoutSplit, most: int) -> list[ChosenRecords]:
        """At most so many rows of each person who is not left out; people with one row first."""
        kept = np.zeros(0, self.layout.record)
        for chunk in self._chunks(number):
            if coins.share > 0:
                chunk = chunk[~coins.held_out(chunk["who0"], chunk["who1"])]
            kept = _first_rows(np.concatenate([kept, chunk]) if len(kept) else chunk, most)
        alone = _alone(_pair(kept, "who"))
        return [ChosenRecords(kept, np.concatenate([np.flatnonzero(alone), np.flatnonzero(~alone)]))]


def _append(file: int, left: memoryview) -> None:
    """All of it, without a copy."""
    while len(left):
        left = left[os.write(file, left) :]


def write_all(file: int, values: NDArray[Any], at: int) -> None:
    """The same at a place of the file."""
    left = values.reshape(-1).view(np.uint8).data
    while len(left):
        done = os.pwrite(file, left, at)
        left, at = left[done:], at + done


@dataclass(frozen=True, repr=False)
class ChosenRecords:
    """Some of these records count, in this order."""

    records: NDArray[Any]
    which: Index


def _first_rows(records: NDArray[Any], most: int) -> NDArray[Any]:
    """Person by person, the first `most` of each by `reading_order`."""
    first, second = records["who0"], records["who1"]
    records = records[np.lexsort((ordered(records["mark0"], first), second, first))]
    start = np.flatnonzero(_begins(_pair(records, "who")))
    rank = np.arange(len(records)) - np.repeat(start, np.diff(np.append(start, len(records))))
    return records[rank < most]


def _begins(who: Marks) -> Flags:
    """Where another person begins, in rows that lie person by person."""
    first = np.ones(len(who), np.bool_)
    first[1:] = np.any(who[1:] != who[:-1], axis=1)
    return first


def _alone(who: Marks) -> Flags:
    first = _begins(who)
    return first & np.append(first[1:], True)


@dataclass(frozen=True, repr=False)
class Shard:
    """Rows that count, in a mapped file."""

    kept: KeptRows
    score: NDArray[Any]

    @classmethod
    def write(
        cls,
        path: Path,
        layout: RecordLayout,
        parts: Sequence[ChosenRecords],
        scores: int,
        kind: np.dtype[Any],
        words: Mapping[int, Mapping[bytes, str]],
    ) -> Shard:
        rows = sum(len(part.which) for part in parts)
        labels: dict[int, Sequence[str]] = {}
        texts: dict[str, NDArray[Any]] = {}
        for k in layout.unlisted:
            hashes = [np.stack([part.records[name][part.which] for name in _text_fields(k)], axis=1) for part in parts]
            labels[k], texts[f"c{k}"] = _numbered(hashes, words.get(k, {}))
        apart = {name for k in layout.unlisted for name in _text_fields(k)}
        blocks = [block.without(apart) for block in layout.blocks]
        kinds = [*(block.kind for block in blocks), *(codes.dtype for codes in texts.values()), kind]
        arrays = _mapped(path, kinds, [*(len(block.names) for block in blocks), *(1 for _ in texts), scores], rows)
        columns = {name: array[0] for name, array in zip(texts, arrays[len(blocks) :], strict=False)}
        for block, array in zip(blocks, arrays, strict=False):
            at = 0
            for part in parts:
                kernels.gather_fields(block.of(part.records), part.which, block.at, array[:, at : at + len(part.which)])
                at += len(part.which)
            columns |= {name: row.view(layout.fields[name]) for name, row in zip(block.names, array, strict=True)}
        for name, codes in texts.items():
            columns[name][:] = codes
        several = np.zeros(0, np.int64)
        if layout.by_person and rows:
            who = _pair(parts[0].records[parts[0].which], "who")
            several = np.flatnonzero(_begins(who) & ~_alone(who))
        codes_of = [columns[f"c{k}"] for k in range(len(layout.cells))]
        score = arrays[-1].reshape(-1) if scores == 1 else arrays[-1].reshape(rows, scores)
        return cls(
            KeptRows(codes_of, {n: columns[f"t.{n}"] for n, _ in layout.target}, np.append(several, rows), labels),
            score,
        )


def _numbered(parts: Sequence[Marks], words: Mapping[bytes, str]) -> tuple[Sequence[str], NDArray[Any]]:
    """The texts of hashes (zeros: a hole), in their order, and each row's number among them; that of a hole is last."""
    hashes = np.concatenate(parts) if parts else np.zeros((0, TEXT), np.uint64)
    order = np.lexsort(hashes.T)
    first = np.ones(len(hashes), np.bool_)
    first[1:] = np.any(hashes[order[1:]] != hashes[order[:-1]], axis=1)
    row = np.empty(len(hashes), np.int64)
    row[order] = np.cumsum(first) - 1
    there = [hashes[at].tobytes() for at in order[first]]
    known = sorted((words[code], code) for code in there if code != bytes(8 * TEXT))
    place = {code: number for number, (_, code) in enumerate(known)}
    numbers = np.array([place.get(code, len(known)) for code in there], np.min_scalar_type(len(known)))
    return [text for text, _ in known], numbers[row]


def _mapped(path: Path, kinds: Sequence[np.dtype[Any]], deep: Sequence[int], rows: int) -> list[NDArray[Any]]:
    """(deep, rows) arrays of zeros in one file, which has its room on disk before anything is written: else a full disk
    kills."""
    starts, size = [], 0
    for kind, own in zip(kinds, deep, strict=True):
        starts.append(size)
        size += -(-kind.itemsize * own * rows // 64) * 64
    if not rows:
        return [np.zeros((own, 0), kind) for kind, own in zip(kinds, deep, strict=True)]
    with full_disk(path.parent), open(path, "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        whole = np.memmap(file, np.uint8, "r+", shape=(size,))
    return [
        np.ndarray((own, rows), kind, whole.data, start) for kind, own, start in zip(kinds, deep, starts, strict=True)
    ]


class full_disk:
    """Says in words that a disk is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError):
            raise RunFolderError(
                f"scratch folder {self.folder}",
                "must have room for the coded rows",
                found=error.strerror or "no room",
                fix="free space there, or say --scratch FOLDER on another disk",
            ) from None
