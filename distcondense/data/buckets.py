"""Coded rows on disk: brought together by person, coins thrown, then laid out for the gate in mapped files.

A row goes to the bucket that its person's hash names; rows without a person to that of their own content. So whatever
decides which rows are read (a person's coin and rows, the coin of the k-th of equal rows) is decided inside one bucket,
which fits memory, and does not depend on how the table was cut into files, or in which order these were read. A bucket
becomes one shard (privacy/shards.py).

Rows wait as records in one file a bucket. A shard is one file, too: column after column, then scores, mapped; its pages
belong to the file and can be dropped by the system at any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Index, Marks
from distcondense.data.cells import Cells
from distcondense.data.coding import Coded
from distcondense.data.persons import Coins, Ranks, numbered, ordered
from distcondense.errors import RunFolderError
from distcondense.privacy.rows import Kept

BUCKET_ROWS = 2**19  # about so many rows in a bucket
BUCKETS_MOST = 1024  # files that are open at once
CHUNK_ROWS = 2**20  # of one bucket that are in memory at once


def buckets_for(rows: int) -> int:
    """How many buckets a table of so many rows is cut into: a power of two."""
    return min(BUCKETS_MOST, 1 << max(0, (rows // BUCKET_ROWS).bit_length()))


@dataclass(frozen=True)
class Layout:
    """What a record holds; public."""

    cells: tuple[Cells, ...]
    target: tuple[tuple[str, str], ...]  # names and types of the outcome's arrays
    by_person: bool

    @classmethod
    def of(cls, cells: tuple[Cells, ...], target: Mapping[str, NDArray[Any]], by_person: bool) -> Layout:
        kinds = {name: "<f8" if np.asarray(values).dtype.kind == "f" else "<i4" for name, values in target.items()}
        return cls(cells, tuple(sorted(kinds.items())), by_person)

    @property
    def unlisted(self) -> tuple[int, ...]:
        return tuple(k for k, one in enumerate(self.cells) if not one.numeric and one.column.unknown)

    @property
    def codes(self) -> list[np.dtype[Any]]:
        wide = self.unlisted
        return [np.dtype("<u8") if k in wide else np.min_scalar_type(one.size) for k, one in enumerate(self.cells)]

    @property
    def record(self) -> np.dtype[Any]:
        parts: list[Any] = [(f"c{k}", kind) for k, kind in enumerate(self.codes)]
        parts += [(f"t.{name}", np.dtype(kind)) for name, kind in self.target] + [("mark", np.dtype("<u8"), (2,))]
        return np.dtype(parts + ([("who", np.dtype("<u8"), (2,))] if self.by_person else []))

    def records(self, coded: Coded) -> NDArray[Any]:
        out = np.empty(len(coded), self.record)
        for k, codes in enumerate(coded.codes):
            out[f"c{k}"] = codes
        for name, _ in self.target:
            out[f"t.{name}"] = coded.target[name]
        out["mark"] = coded.mark
        if coded.who is not None:
            out["who"] = coded.who
        return out

    def parted(self, coded: Coded, buckets: int) -> list[NDArray[Any]]:
        """Records of each bucket."""
        home = coded.mark[:, 0] if coded.who is None else coded.who[:, 0]
        number = (home >> np.uint64(64 - 10)) & np.uint64(buckets - 1)
        order = np.argsort(number.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(number.astype(np.int64), minlength=buckets))
        return np.split(self.records(coded)[order], ends[:-1])


@dataclass
class Buckets:
    """Records of a table on disk, bucket by bucket. Threads may add at once."""

    folder: Path
    layout: Layout
    count: int
    words: dict[int, dict[int, str]] = field(default_factory=dict)  # texts of unlisted values, by hash
    rows: Index = field(init=False)

    def __post_init__(self) -> None:
        self.rows = np.zeros(self.count, np.int64)
        self._locks = [Lock() for _ in range(self.count)]

    def add(self, coded: Coded) -> None:
        parts = self.layout.parted(coded, self.count)
        for number, part in enumerate(parts):
            self.append(number, part)
        self.know(coded.words)

    def know(self, words: Mapping[int, Mapping[int, str]]) -> None:
        for column, texts in words.items():
            self.words.setdefault(column, {}).update(texts)

    def append(self, number: int, records: NDArray[Any]) -> None:
        if len(records):
            with self._locks[number], _room(self.folder), open(self._path(number), "ab") as file:
                file.write(records.tobytes())
                self.rows[number] += len(records)

    def _path(self, number: int) -> Path:
        return self.folder / f"records-{number:04d}"

    def _chunks(self, number: int) -> Iterator[NDArray[Any]]:
        if self.rows[number]:
            with open(self._path(number), "rb") as file:
                while len(chunk := np.fromfile(file, self.layout.record, CHUNK_ROWS)):
                    yield chunk

    def shard(self, number: int, coins: Coins, most: int, scores: int) -> Shard:
        """The bucket's rows that count, laid out in a file of their own; its records go."""
        parts = list(self._of_people(number, coins, most) if self.layout.by_person else self._of_rows(number, coins))
        kept = Shard.write(self.folder / f"shard-{number:04d}", self.layout, parts, scores, self.words)
        if self.rows[number]:
            os.unlink(self._path(number))
        return kept

    def _of_rows(self, number: int, coins: Coins) -> Iterator[NDArray[Any]]:
        """Rows that are persons of their own: the k-th of equal ones has the coin of its content and k."""
        rank = Ranks(int(self.rows[number]) if coins.share > 0 else 0)
        for chunk in self._chunks(number):
            if coins.share > 0:
                mark = np.ascontiguousarray(chunk["mark"])
                chunk = chunk[~coins.lost(*numbered(mark, rank))]
            yield chunk

    def _of_people(self, number: int, coins: Coins, most: int) -> Iterator[NDArray[Any]]:
        """At most so many rows of each person who is not left out."""
        kept = np.zeros(0, self.layout.record)
        for chunk in self._chunks(number):
            if coins.share > 0:
                chunk = chunk[~coins.lost(chunk["who"][:, 0], chunk["who"][:, 1])]
            kept = _first_rows(np.concatenate([kept, chunk]) if len(kept) else chunk, most)
        alone = _alone(kept["who"])
        yield np.concatenate([kept[alone], kept[~alone]])


def _first_rows(records: NDArray[Any], most: int) -> NDArray[Any]:
    """Person by person, the first `most` of each by `reading_order`."""
    who = records["who"]
    order = np.lexsort((ordered(records["mark"], who[:, 0]), who[:, 1], who[:, 0]))
    records = records[order]
    start = np.flatnonzero(_begins(records["who"]))
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

    kept: Kept
    score: NDArray[np.float64]

    @classmethod
    def write(
        cls, path: Path, layout: Layout, parts: Sequence[NDArray[Any]], scores: int,
        words: Mapping[int, Mapping[int, str]],
    ) -> Shard:  # fmt: skip
        rows = sum(map(len, parts))
        labels: dict[int, Sequence[str]] = {}
        kinds = layout.codes
        for k in layout.unlisted:
            there = np.unique(np.concatenate([part[f"c{k}"] for part in parts] or [np.zeros(0, np.uint64)]))
            known = sorted((words[k][code], code) for code in there.tolist() if code)
            labels[k] = [text for text, _ in known]
            place = {code: number for number, (_, code) in enumerate(known)}
            for part in parts:
                part[f"c{k}"] = [place.get(code, len(known)) for code in part[f"c{k}"].tolist()]
            kinds[k] = np.min_scalar_type(len(known))
        given = [(f"c{k}", kind) for k, kind in enumerate(kinds)] + [(f"t.{n}", np.dtype(t)) for n, t in layout.target]
        arrays = _mapped(path, [*(kind for _, kind in given), np.dtype("<f8")], [1] * len(given) + [scores], rows)
        at = 0
        for part in parts:
            for (name, _), out in zip(given, arrays, strict=False):
                out[at : at + len(part)] = part[name]
            at += len(part)
        several = np.zeros(0, np.int64)
        if layout.by_person and rows:
            who = parts[0]["who"]
            first = _begins(who)
            several = np.flatnonzero(first & ~_alone(who))
        codes = arrays[: len(kinds)]
        target = {name: array for (name, _), array in zip(layout.target, arrays[len(kinds) :], strict=False)}
        score = arrays[-1] if scores == 1 else arrays[-1].reshape(rows, scores)
        return cls(Kept(codes, target, np.append(several, rows), labels), score)


def _mapped(path: Path, kinds: Sequence[np.dtype[Any]], wide: Sequence[int], rows: int) -> list[NDArray[Any]]:
    """Arrays of zeros in one file, which has its room on disk before anything is written: else a full disk kills."""
    starts, size = [], 0
    for kind, width in zip(kinds, wide, strict=True):
        starts.append(size)
        size += -(-kind.itemsize * width * rows // 64) * 64
    if not rows:
        return [np.zeros(0, kind) for kind in kinds]
    with _room(path.parent), open(path, "w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        whole = np.memmap(file, np.uint8, "r+", shape=(size,))
    return [
        np.ndarray((rows * width,), kind, whole.data, start)
        for kind, width, start in zip(kinds, wide, starts, strict=True)
    ]


class _room:
    """Says in words that a disk is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError):
            raise RunFolderError(
                f"scratch folder {self.folder}", "must have room for the coded rows", found=error.strerror or "no room",
                fix="free space there, or say --scratch FOLDER on another disk",
            ) from None  # fmt: skip
