"""A large table as shards behind a gate, on this machine: read in pieces, brought together by person, mapped, summed.

What is in memory at once is a batch for each thread while rows are read, a bucket for each thread while it is laid out,
and a chunk for each thread while questions are answered: none of it grows with the table. Rows lie in files of a
scratch folder that is readable by its owner alone and goes with the rows.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.data.buckets import BUCKET_ROWS, BUCKETS_MOST, Buckets, RecordLayout, buckets_for
from distcondense.data.cells import Cells
from distcondense.data.coding import Coded
from distcondense.data.files import Piece
from distcondense.data.in_order import InOrderRows, scores_of
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import CohortError, RunFolderError, SettingsError
from distcondense.privacy.contributions import Objective
from distcondense.privacy.layout import KeptRows
from distcondense.privacy.rows import ROWS_ALL_MAX
from distcondense.privacy.shards import ShardedRows, ThreadShards
from distcondense.privacy.table_rows import TableRows, score_type

Log = Callable[[str], None]
SCRATCH = "distcondense-rows-"
LOG_SECONDS = 10.0  # between two lines of progress
ROW_BYTES = 900  # of memory for each row of a bucket that is laid out: its records, their order, and copies of both
LEAST_MEMORY = 256 * 2**20
MARKS_EACH = 2  # buckets of records whose rows share one of marks, which are a fraction of a record
SCORES_HELD = 2**30  # bytes of scores in memory, where nobody says how much it may be
BUCKETS_EACH = 16  # for each worker, at least: so many that a slow one can give some away


@dataclass
class ReadProgress:
    """How far a table is read: rows, bytes and pieces, in words and numbers; nothing that a row says."""

    rows: int
    bytes: int
    pieces: int
    log: Log = lambda line: None
    clock: Callable[[], float] = time.monotonic
    done: dict[str, int] = field(default_factory=lambda: {"rows": 0, "bytes": 0, "pieces": 0})

    def __post_init__(self) -> None:
        self._lock, self._began = Lock(), self.clock()
        self._logged = self._began

    def add(self, *, rows: int = 0, bytes_: int = 0, pieces: int = 0) -> None:
        """So much more is read; a line now and then."""
        with self._lock:
            for name, more in (("rows", rows), ("bytes", bytes_), ("pieces", pieces)):
                self.done[name] += more
            now = self.clock()
            if now - self._logged >= LOG_SECONDS:
                self._logged = now
                self.log(str(self))

    def numbers(self) -> dict[str, float]:
        """Rows per second, rows and bytes so far, and about how many seconds are left."""
        rate = self.done["rows"] / max(self.clock() - self._began, 1e-9)
        return {
            "rows_per_second": rate,
            "rows_read": float(self.done["rows"]),
            "bytes_read": float(self.done["bytes"]),
            "seconds_left": max(0.0, (self.rows - self.done["rows"]) / max(rate, 1e-9)),
        }

    def __str__(self) -> str:
        numbers = self.numbers()
        return (
            f"read {self.done['rows']:,} of about {self.rows:,} rows, {self.done['bytes'] / 1e9:.1f} GB, "
            f"{self.done['pieces']} of {self.pieces} pieces; {numbers['rows_per_second']:,.0f} rows/s, "
            f"about {numbers['seconds_left']:.0f} s left"
        )


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """A folder for coded rows, in `folder` or where the system has its own; readable by its owner, and then gone."""
    place = scratch_folder(folder)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def scratch_folder(folder: str | Path | None, name: str = "here") -> Path:
    """Such a folder, which somebody has to remove; what killed processes of this machine left beside it goes first."""
    parent, host = Path(folder or tempfile.gettempdir()), socket.gethostname()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{SCRATCH}*-{host}-*-*"):  # others may share the disk, and have processes of their own
            if not _lives(left.name.rsplit("-", 2)[1]):
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{name}-{host}-{os.getpid()}-", dir=parent))  # mode 0700
    except OSError as error:
        raise RunFolderError(
            f"scratch folder {parent}",
            "must be possible to make",
            found=error.strerror or "an error",
            fix="say --scratch FOLDER on a disk that can be written to",
        ) from None


def _lives(pid: str) -> bool:
    """Whether there is such a process, one that is dead and not yet buried aside; what is no number is not ours."""
    if not pid.isdigit():
        return True
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return not Path("/proc/self").exists()  # where there is no /proc, nothing is known


def check_room(place: Path, rows: int, layout: RecordLayout) -> None:
    """Records and shards of so many rows must fit the disk, which is known before a row is read."""
    need, free = rows * (layout.record.itemsize + 8), shutil.disk_usage(place).free
    if need > free:
        raise RunFolderError(
            f"scratch folder {place.parent}",
            f"must have room for {need / 1e9:.1f} GB of coded rows",
            found=f"{free / 1e9:.1f} GB",
            fix="free space there, or say --scratch FOLDER on another disk",
        )


def bucket_count(rows: int, memory: int | None, threads: int) -> int:
    """So many buckets that one for each thread fits the memory that was allowed."""
    if memory is None:
        return buckets_for(rows)
    if memory < LEAST_MEMORY:
        raise SettingsError("memory", f"must be at least {LEAST_MEMORY / 2**20:.0f} MiB", found=f"{memory} bytes")
    fits = max(1, (memory - LEAST_MEMORY // 2) // (threads * ROW_BYTES))
    return buckets_for(rows * max(1, BUCKET_ROWS // fits))


def buckets_on(config: Cluster, rows: int, memory: int | None) -> int:
    """The same on a cluster, where every worker owns some; how many workers a cluster has is not known beforehand."""
    least = 1 << (BUCKETS_EACH * (config.actors or 4) - 1).bit_length()
    return min(BUCKETS_MOST, max(least, bucket_count(rows, memory, config.threads)))


def opened(
    table: LargeTable,
    cells: tuple[Cells, ...],
    objective: Objective,
    coins: HoldoutSplit,
    most: int,
    place: Path,
    *,
    threads: int = 1,
    memory: int | None = None,
    log: Log = lambda line: None,
) -> ShardedRows:
    """Read a table once; its rows as the gate takes them, and its sample."""
    _check_rows(table)
    coder, parts, lock = table.coder(cells, coins), list[Any](), Lock()
    progress = ReadProgress(table.rows, table.bytes, len(table.pieces), log)
    stores: list[Buckets | InOrderRows] = []

    def store(coded: Coded) -> Buckets | InOrderRows:
        with lock:
            if not stores:  # the first batch tells what an outcome is made of
                layout = RecordLayout.from_arrays(cells, coded.target, coded.who is not None)
                check_room(place, table.rows, layout)
                stores.append(_store(layout, coins, table.rows, place, memory, threads))
            return stores[0]

    def take(piece: Piece) -> None:
        for batch in table.read(piece, coder):
            coded = batch.coded
            store(coded).add(coded)
            flags = table.sampled(batch, coins, table.rate)
            if flags.any():
                parts.append(batch.some(flags))
            progress.add(rows=len(coded), bytes_=int(piece.bytes * len(coded) / max(piece.rows, 1)))
        progress.add(pieces=1)

    with ExitStack() as ends:
        ends.callback(lambda: [store.close() for store in stores])
        each(take, table.pieces, threads)
        if not stores:
            raise CohortError("table", "must have at least one row", found="files without rows", fix="check the export")
        table.read_rows = stores[0].all_rows
        table.take_sample(parts)
        log(f"{progress}; laying {table.read_rows:,} rows out")
        kept: list[KeptRows] = stores[0].laid_out(coins, most, lambda call, items: each(call, items, threads))
    allowed = SCORES_HELD if memory is None else memory - LEAST_MEMORY // 2
    scores = scores_of([rows.rows for rows in kept], objective.scores, score_type(objective), place, allowed)
    sizes = [cell.size for cell in cells]
    shards = [TableRows(rows, score, sizes, objective, most) for rows, score in zip(kept, scores, strict=True)]
    return ShardedRows(ThreadShards(shards, threads), sizes, objective, most)


def _check_rows(table: LargeTable) -> None:
    """So many rows are what sums have digits for, and what the chance of a shared hash is stated for (curves.py)."""
    if table.rows > ROWS_ALL_MAX:
        raise SettingsError("table", f"must have at most {ROWS_ALL_MAX} rows", found=f"{table.rows}")


def _store(
    layout: RecordLayout, coins: HoldoutSplit, rows: int, place: Path, memory: int | None, threads: int
) -> Buckets | InOrderRows:
    """Rows are brought together where there are persons, or values without a list, whose numbers a bucket gives."""
    count = bucket_count(rows, memory, threads)
    if layout.by_person or layout.unlisted:
        return Buckets(place, layout, count)
    return InOrderRows(place, layout, coins, max(1, count // MARKS_EACH), max(1, min(rows, BUCKET_ROWS)))


@contextmanager
def opened_on(
    config: Cluster,
    table: LargeTable,
    cells: tuple[Cells, ...],
    objective: Objective,
    coins: HoldoutSplit,
    most: int,
    *,
    scratch_: Path | None = None,
    memory: int | None = None,
    log: Log = lambda line: None,
) -> Iterator[ShardedRows]:
    """The same on a cluster, whose workers read the files themselves; each must see them under the same name."""
    from distcondense.cluster.ray.rows import remote_shards
    from distcondense.cluster.row_worker import ShardPlan

    _check_rows(table)
    shard_plan = ShardPlan(
        table,
        cells,
        objective,
        coins,
        most,
        buckets_on(config, table.rows, memory),
        token_hex(8),
        None if scratch_ is None else str(scratch_),
        config.threads,
    )
    with remote_shards(config, shard_plan, log) as shards:
        yield ShardedRows(shards, [cell.size for cell in cells], objective, most)


def each(call: Callable[[Any], Any], items: Any, threads: int) -> list[Any]:
    """In order; the first error ends it, and what has not begun does not begin."""
    if threads <= 1:
        return [call(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(call, items))  # which cancels the others where one raises


def half_of_memory() -> int:
    """Bytes: half of what this machine can give without writing others' to disk."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 512
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 4
