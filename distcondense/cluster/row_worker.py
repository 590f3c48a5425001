"""`RowWorker`: reads pieces of a large table and owns some of its buckets. A plain class: no Ray, no noise.

Every worker both reads and owns. What it reads it parts by owner; what it owns it lays out and sums. It has patients'
coded rows in its memory and in a scratch folder of its own; what it tells are exact sums, to the driver alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from distcondense.cluster.shards import SCRATCH, check_room, scratch_folder
from distcondense.cluster.worker import Identity, versions
from distcondense.data.buckets import Buckets, RecordLayout
from distcondense.data.cells import Cells
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit
from distcondense.privacy.contributions import Objective
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import IntegerSums
from distcondense.privacy.shards import ShardedRows, ThreadShards
from distcondense.privacy.table_rows import TableRows, score_type


@dataclass(frozen=True)
class ShardPlan:
    """A table and how it becomes shards; all of it is public but the key of the holdout split."""

    table: LargeTable
    cells: tuple[Cells, ...]
    objective: Objective
    coins: HoldoutSplit
    most: int
    buckets: int
    name: str  # of the run's scratch folders
    scratch: str | None = None
    threads: int = 1


@dataclass(frozen=True)
class Load:
    """What one piece holds for one owner: records by bucket, and texts of unlisted values by hash."""

    layout: RecordLayout
    records: dict[int, list[NDArray[Any]]]
    words: dict[int, dict[bytes, str]]


@dataclass(frozen=True)
class PieceRead:
    """What the driver hears of a piece: how large it was, and the rows of it that evaluation sees."""

    rows: int
    bytes: int
    sample: list[Any] = field(default_factory=list)


class RowWorker:
    """Reads pieces of a table for all owners, and owns some of its buckets.

    Parameters
    ----------
    shard_plan
        The table, its cells, and how many buckets it has.
    owned
        The buckets that are this worker's own.
    """

    def __init__(self, shard_plan: ShardPlan, owned: Sequence[int]) -> None:
        self.shard_plan, self.owned = shard_plan, list(owned)
        self._coder = shard_plan.table.coder(shard_plan.cells, shard_plan.coins)
        self._folder: Path | None = None
        self._buckets: Buckets | None = None
        self._shards: dict[int, TableRows] = {}
        self._stepped: set[int] = set()  # buckets whose shards have made all public steps
        self._rows: ShardedRows | None = None

    def identity(self) -> Identity:
        """Who this is; its sums are integers, so its BLAS does not matter."""
        return Identity(socket.gethostname(), os.getpid(), "", versions())

    def read(
        self, number: int, wanted: Mapping[int, Sequence[int]], owners: int, sampled: bool, reader: int = -1
    ) -> tuple[Any, ...]:
        """A piece in parts: what the driver hears, then for each of all `owners` a `Load` of the buckets it wants.

        None for an owner that wants nothing. What the reader, by its number, wants itself it takes at once, and it
        does not travel.
        """
        table, piece, rows = self.shard_plan.table, self.shard_plan.table.pieces[number], 0
        parts: dict[int, list[NDArray[Any]]] = {bucket: [] for buckets in wanted.values() for bucket in buckets}
        words: dict[int, dict[bytes, str]] = {}
        sample, layout = list[Any](), None
        for batch in table.read(piece, self._coder):
            coded = batch.coded
            layout = layout or RecordLayout.from_arrays(self.shard_plan.cells, coded.target, coded.who is not None)
            for bucket, records in enumerate(layout.parted(coded, self.shard_plan.buckets)):
                if len(records) and bucket in parts:
                    parts[bucket].append(records)
            for column, texts in coded.words.items():
                words.setdefault(column, {}).update(texts)
            if sampled and (flags := table.sampled(batch, self.shard_plan.coins, table.rate)).any():
                sample.append(batch.some(flags))
            rows += len(coded)
        loads: list[Load | None] = [None] * owners
        for owner, buckets in wanted.items() if layout is not None else ():
            there = {bucket: parts[bucket] for bucket in buckets if parts[bucket]}
            loads[owner] = Load(layout, there, words)  # type: ignore[arg-type]
        if reader in wanted:
            self.take(loads[reader])
            loads[reader] = None
        return (PieceRead(rows, piece.bytes, sample), *loads)

    def take(self, *loads: Load | None) -> None:
        """Keep loads on disk."""
        shard_plan = self.shard_plan
        for load in loads:
            if load is None:
                continue
            if self._buckets is None:
                self._folder = self._folder or scratch_folder(shard_plan.scratch, shard_plan.name)
                check_room(self._folder, shard_plan.table.rows * len(self.owned) // shard_plan.buckets, load.layout)
                self._buckets = Buckets(self._folder, load.layout, shard_plan.buckets)
            for bucket, parts in load.records.items():
                self._buckets.append(bucket, *parts)
            self._buckets.know(load.words)

    def lay_out(self, bucket: int) -> None:
        """A bucket that has all its rows becomes a shard."""
        shard_plan, objective = self.shard_plan, self.shard_plan.objective
        if self._buckets is not None:  # else nothing came
            kind = score_type(objective)
            shard = self._buckets.shard(bucket, shard_plan.coins, shard_plan.most, objective.scores, kind)
            sizes = [cell.size for cell in shard_plan.cells]
            self._shards[bucket] = TableRows(shard.kept, shard.score, sizes, objective, shard_plan.most)

    def replay(self, steps: Sequence[Step]) -> None:
        """All public steps so far, on shards that are new; from then on they answer with the others."""
        shard_plan = self.shard_plan
        new = [shard for bucket, shard in self._shards.items() if bucket not in self._stepped]
        sizes = [cell.size for cell in shard_plan.cells]
        self._rows = ShardedRows(ThreadShards(new, shard_plan.threads), sizes, shard_plan.objective, shard_plan.most)
        self.apply(steps)
        self._gather()

    def forget(self, buckets: Sequence[int]) -> None:
        """These are somebody else's now."""
        for bucket in buckets:
            self._shards.pop(bucket, None)
            if self._buckets is not None:
                self._buckets.forget(bucket)
        self._gather()

    def _gather(self) -> None:
        """All shards answer together from here on."""
        assert self._rows is not None
        self._rows.shards = ThreadShards(list(self._shards.values()), self.shard_plan.threads)
        self._stepped = set(self._shards)

    def counted(self, question: Question, limit: float, steps: Sequence[Step] = ()) -> IntegerSums | None:
        """The sums, once the steps are made that came after the last question."""
        self.apply(steps)
        assert self._rows is not None
        return self._rows.counted(question, limit) if self._shards else None

    def apply(self, steps: Sequence[Step]) -> None:
        """Public steps, on all shards that answer."""
        assert self._rows is not None
        for step in steps:
            self._rows.apply(step)

    def close(self) -> None:
        """Forget all rows, and remove their files."""
        self._shards.clear()
        self._rows = self._buckets = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def sweep(name: str, scratch: str | None) -> None:
    """Scratch folders that killed workers of a run left on this machine."""
    for folder in Path(scratch or tempfile.gettempdir()).glob(f"{SCRATCH}{name}-*"):
        shutil.rmtree(folder, ignore_errors=True)
