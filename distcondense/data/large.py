"""`LargeTable`: a table that is read in batches and never held: a Parquet file, a CSV, or a folder of either.

What is wrong with its files is found before a row is read where their own headers tell (names and types of columns);
what is wrong with rows is said by the checks of `Cohort`, batch by batch, with the file's name. A batch is read by
itself, which a declared schema makes possible. Evaluation sees a sample of people (or of rows that name nobody), by a
hash of the run's secret; who is held out of the table is held out of the sample.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from distcondense.data.coding import Coded, Coder, is_plain
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.features import some_names
from distcondense.data.outcome import Goal
from distcondense.data.persons import Coins, digests
from distcondense.data.roles import ROLES
from distcondense.data.tables import answered, as_frame, is_csv, is_uri, table_name
from distcondense.errors import CohortError, DistcondenseWarning, SchemaError

BATCH_ROWS = 2**17  # read at a time
PIECE_ROWS = 2**20  # of a file, that one worker reads at a time
CSV_BYTES = 2**25  # of a CSV, read at a time
SAMPLE = 200_000  # rows that evaluation sees, about
PARQUET = (".parquet", ".pq")
_OF_CSV = ("missing_markers", "separator", "encoding", "decimal")  # how a CSV is read


@dataclass(frozen=True)
class Piece:
    """A part of a file: some row groups of a Parquet file, or all of a CSV."""

    file: str
    groups: tuple[int, ...] = ()
    rows: int = 0  # of a CSV about so many
    bytes: int = 0
    first: int = 0  # its first row's number in the file, from 0


@dataclass(frozen=True, repr=False)
class Batch:
    """Some rows of a file."""

    coded: Coded
    some: Callable[[Any], Any]  # which of them → these as they are: an Arrow table or a Cohort
    file: str
    first: int  # the first row's number in the file, from 0


@dataclass(repr=False)
class LargeTable:
    """A table on disk or at a URI, and how it is to be read."""

    path: str
    how: Mapping[str, Any]  # as `Cohort.from_file` takes it
    facts: Facts
    pieces: tuple[Piece, ...]
    files: tuple[tuple[str, int, int], ...]  # name, bytes, time of the last change
    ignored: tuple[str, ...] = ()
    sample: Cohort | None = field(default=None)  # once it was read
    read_rows: int = 0  # that were read

    def __repr__(self) -> str:
        return f"LargeTable({len(self.files)} files, {self.facts.kind.name})"

    @property
    def schema(self) -> Any:
        return self.facts.schema

    @property
    def rows(self) -> int:
        """Rows of all its files; of CSV about so many."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)

    def fingerprint(self) -> str:
        """Which data this is, by its files' names, sizes and times: for telling run folders apart."""
        facts = (self.facts.schema.to_dict(), self.facts.kind.identity(), self.how.get("person_id"), self.files)  # type: ignore[union-attr]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @classmethod
    def of(cls, path: str | Path, **how: Any) -> LargeTable:
        """`how` as in `Cohort.from_file`; the schema must be declared."""
        schema = how.get("schema")
        if schema is None:
            raise SchemaError(
                "schema", "must be declared for a table that is read in batches", found="none",
                fix="draft one from a part of it (distcondense schema infer), check it, and pass --schema",
            )  # fmt: skip
        goal = Goal.of(positive=how.get("positive"), kind=how.get("kind"), **{role: how.get(role) for role in ROLES})
        ignore, person_id = tuple(how.get("ignore", ())), how.get("person_id")
        facts = Facts.of(goal, schema, person_id=person_id, ignore=ignore)
        files = _files(str(path))
        pieces: list[Piece] = []
        kinds: dict[str, tuple[str, str]] = {}
        extra: tuple[str, ...] = ()
        features = [c.name for c in facts.schema.columns if not getattr(c, "computed", "")]  # type: ignore[union-attr]
        needed = [*dict.fromkeys((*features, *facts.kind.names, *([person_id] if person_id else [])))]
        for name, size, _ in files:
            if is_csv(name):
                pieces.append(Piece(name, rows=max(1, size // 100), bytes=size))
                continue
            found, names = _row_groups(name, size, needed, kinds)
            pieces += found
            aside = {*needed, *ignore, *(c.name for c in schema.ignored)}
            extra = extra or tuple(one for one in names if one not in aside)
        if extra:
            warnings.warn(f"{len(extra)} columns are not in the schema and are left out: {some_names(extra)}",
                          DistcondenseWarning, stacklevel=2)  # fmt: skip
        if not any(piece.rows for piece in pieces):
            raise CohortError("table", "must have at least one row", found="files without rows", fix="check the export")
        said = {name: value for name, value in how.items() if value is not None}
        return cls(str(path), {**said, "ignore": ignore}, facts, tuple(pieces), files, extra)

    def coder(self, cells: Any) -> Coder:
        assert self.facts.schema is not None
        plain = all(is_plain(column) for column in (*self.how["schema"].columns, *self.how["schema"].outcome))
        return Coder(
            self.facts.schema, self.facts.kind, tuple(cells), self.how.get("person_id"), None if plain else self._cohort
        )

    def _cohort(self, frame: Any) -> Cohort:
        """Rows as `Cohort` reads them, whatever that takes."""
        said = {name: value for name, value in self.how.items() if name not in _OF_CSV}
        said["ignore"] = tuple(name for name in said["ignore"] if name in frame)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)  # said once, for the whole table
            return Cohort.from_frame(frame, owned=True, **said)

    def read(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        """A piece in batches, coded."""
        yield from (self._csv if is_csv(piece.file) else self._parquet)(piece, coder)

    def _parquet(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        import pyarrow as pa

        at = 0
        with _readable(piece.file):
            file = _parquet_file(piece.file)
            batches = file.iter_batches(BATCH_ROWS, list(piece.groups), coder.columns, use_threads=False)
        while True:
            with _readable(piece.file):
                batch = next(batches, None)
            if batch is None:
                break
            with _somewhere(piece, at):
                coded = coder.of_batch(batch)

            def some(flags: Any, batch: Any = batch) -> Any:
                return pa.Table.from_batches([batch.filter(pa.array(flags))])

            yield Batch(coded, some, piece.file, piece.first + at)
            at += batch.num_rows

    def _csv(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        """Parts of the file, cut where a line ends outside quotes, each with its header, as files of their own."""
        at = 0
        for text in _parts(piece.file):
            with tempfile.TemporaryDirectory() as folder:  # readable by its owner alone
                part = Path(folder) / "part.csv"
                part.write_bytes(text)
                with _somewhere(piece, at), warnings.catch_warnings():
                    warnings.simplefilter("ignore", DistcondenseWarning)
                    cohort = Cohort.from_file(part, **self.how)
                    coded = coder.of_cohort(cohort)

            def some(flags: Any, cohort: Cohort = cohort) -> Any:
                return cohort.take(np.flatnonzero(flags))

            yield Batch(coded, some, piece.file, at)
            at += len(cohort)

    def sampled(self, batch: Batch, coins: Coins, rate: float) -> Any:
        """(n,) whose rows evaluation sees: a person's all or none; rows without a person each by itself.

        Any of equal rows may be the first of them: so the coins of a sample are those of as many rows of the table.
        """
        coded = batch.coded
        if coded.who is not None:
            return coins.tossed(coded.who[:, 0], coded.who[:, 1], "sample") < rate
        places = np.arange(batch.first, batch.first + len(coded), dtype=np.uint64)
        return coins.tossed(coded.mark[:, 0], places ^ digests([table_name(batch.file)])[0, 0], "sample") < rate

    def take_sample(self, parts: Sequence[Any]) -> None:
        """What `read` gave of the sampled rows becomes the cohort that evaluation sees."""
        import pyarrow as pa

        parts = [part for part in parts if len(part)]
        if not parts:
            return
        if isinstance(parts[0], Cohort):
            self.sample = _joined(parts)
            return
        self.sample = self._cohort(as_frame(pa.concat_tables(map(_decoded, parts), promote_options="permissive")))

    def draw(self, coins: Coins) -> Cohort:
        """The sample alone, again: what a run that was made with these coins was measured on."""
        coder, parts, rate = self.coder(()), list[Any](), self.rate
        for piece in self.pieces:
            for batch in self.read(piece, coder):
                if (flags := self.sampled(batch, coins, rate)).any():
                    parts.append(batch.some(flags))
        self.take_sample(parts)
        assert self.sample is not None
        return self.sample

    @property
    def rate(self) -> float:
        """Share of the rows that evaluation sees."""
        return min(1.0, SAMPLE / max(self.rows, 1))


def _decoded(table: Any) -> Any:
    """Without dictionaries, which another file may do without."""
    import pyarrow as pa

    columns = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in table.columns]
    return pa.table(columns, names=table.column_names)


def is_large(path: str | Path, memory: int) -> bool:
    """Whether a table is a folder, or a file that would not fit so much memory as a frame, about."""
    if is_uri(path):
        return not table_name(path).lower().endswith((".csv", ".csv.gz", ".feather", ".arrow", *PARQUET))
    if os.path.isdir(path):
        return True
    if not os.path.isfile(path) or not _is_table(str(path)):
        return False
    size = os.path.getsize(path)
    if is_csv(path):
        return size * (25 if str(path).lower().endswith(".gz") else 5) > memory
    try:
        meta = _parquet_file(str(path)).metadata
    except Exception:
        return False  # whoever reads it will say what is wrong
    return bool(meta.num_rows * meta.num_columns * 24 > memory)


def _joined(cohorts: Sequence[Cohort]) -> Cohort:
    first = cohorts[0]
    columns = {}
    for column in first.schema.columns:
        own = [cohort.features[column.name] for cohort in cohorts]
        unlisted = column.unknown and not column.numeric
        columns[column.name] = union_categoricals(own, sort_categories=True) if unlisted else pd.concat(own).array
    features = pd.DataFrame(columns)
    arrays = {name: np.concatenate([cohort.outcome[name] for cohort in cohorts]) for name in first.outcome.arrays}
    person, identifiers = None, tuple[str, ...]()
    if first.person is not None:
        texts = np.concatenate([np.array(cohort.identifiers, object)[cohort.person] for cohort in cohorts])
        codes, known = pd.factorize(texts)
        person, identifiers = codes.astype(np.int64), tuple(known)
    outcome = replace(first.outcome, arrays=arrays)
    return replace(first, features=features, outcome=outcome, person=person, identifiers=identifiers)


# -- files ------------------------------------------------------------------------------------------------------------


def _files(path: str) -> tuple[tuple[str, int, int], ...]:
    """(name, bytes, time of change) of a file, or of all tables in a folder and the folders in it, by name."""
    from pyarrow import fs

    what = f"table {table_name(path)}"
    try:
        local = (fs.LocalFileSystem(), os.path.abspath(path))
        system, root = answered(lambda: fs.FileSystem.from_uri(path)) if is_uri(path) else local
        info = answered(lambda: system.get_file_info(root))
        if info.type == fs.FileType.Directory:
            found = [one for one in system.get_file_info(fs.FileSelector(root, recursive=True)) if one.is_file]
        else:
            found = [info]
    except Exception as error:  # each store has its own errors, and their texts may hold credentials
        raise CohortError(
            what, "must be readable", found=type(error).__name__, fix="check the path and this machine's credentials"
        ) from None
    if info.type == fs.FileType.NotFound:
        raise CohortError(what, "must exist", found="no such file or folder", fix="check the path")
    shown = [one for one in found if not any(part[:1] in "._" for part in one.path[len(root) :].split("/") if part)]
    tables = sorted((one for one in shown if _is_table(one.path)), key=lambda one: one.path)
    kinds = {is_csv(one.path) for one in tables}
    if len(kinds) != 1:
        raise CohortError(
            what, "must be a .parquet or .csv file, or a folder of one kind of them",
            found="both" if kinds else "neither", fix="name the folder of one kind",
        )  # fmt: skip
    if empty := [table_name(one.path) for one in tables if one.size == 0]:
        raise CohortError(
            f"file {empty[0]}", "must have a header and rows", found="an empty file",
            fix="check the export; a part without rows still has a header",
        )  # fmt: skip
    ahead, _, query = path.partition("?")
    scheme = ahead.split("://")[0] + "://" if is_uri(path) and not isinstance(system, fs.LocalFileSystem) else ""
    behind = f"?{query}" if scheme and query else ""
    return tuple((f"{scheme}{one.path}{behind}", int(one.size), int(one.mtime_ns or 0)) for one in tables)


def _is_table(path: str) -> bool:
    return is_csv(path) or path.lower().endswith(PARQUET)


def _opened(name: str) -> Any:
    """A file to read from, mapped where it is this machine's."""
    import pyarrow as pa
    from pyarrow import fs

    if not is_uri(name):
        return pa.memory_map(name)
    system, path = fs.FileSystem.from_uri(name)
    return system.open_input_file(path)


def _parquet_file(name: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(_opened(name), pre_buffer=is_uri(name))


def _row_groups(
    name: str, size: int, needed: Sequence[str], kinds: dict[str, tuple[str, str]]
) -> tuple[list[Piece], list[str]]:
    """A Parquet file in pieces of row groups; refused where its columns are not those of the other files."""
    what = f"file {table_name(name)}"
    with _readable(name):
        file = _parquet_file(name)
        meta, schema = file.metadata, file.schema_arrow
    missing = [one for one in needed if one not in schema.names]
    if missing:
        raise CohortError(
            what, "must have every column of the schema, the outcome and the person's identifier",
            found=f"{len(missing)} missing: {some_names(missing)}", fix="add the columns, or take the file away",
        )  # fmt: skip
    for one in needed if meta.num_rows else ():
        kind = _kind_of(schema.field(one).type)
        first, other = kinds.setdefault(one, (kind, what)) if kind else ("", "")
        if kind != first:
            raise CohortError(
                f"column {one!r}", "must have one type in all files", found=f"{first} in {other}, {kind} in {what}",
                fix="write the files alike",
            )  # fmt: skip
    pieces, groups, rows, first_row = [], list[int](), 0, 0
    for group in range(meta.num_row_groups):
        groups.append(group)
        rows += meta.row_group(group).num_rows
        if rows >= PIECE_ROWS or group == meta.num_row_groups - 1:
            share = size * rows // max(1, meta.num_rows)
            pieces.append(Piece(name, tuple(groups), rows, share, first_row))
            first_row += rows
            groups, rows = [], 0
    return pieces, schema.names


def _kind_of(kind: Any) -> str:
    """What a column holds, in words, nothing where it holds holes only; files may differ in how wide numbers are."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return ""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "true/false"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numbers"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "texts"
    return "dates" if pa.types.is_temporal(kind) else "other values"


def _parts(name: str) -> Iterator[bytes]:
    """A CSV in parts, each with the first line: cut behind a line's end that stands outside quotes."""
    with _readable(name):
        raw = _opened(name)
        stream: Any = gzip.GzipFile(fileobj=raw) if name.partition("?")[0].lower().endswith(".gz") else raw
        text = bytes(stream.read(CSV_BYTES))
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise CohortError(
            f"file {table_name(name)}", "must be in UTF-8 or an encoding of one byte to be read in parts",
            found="UTF-16 or UTF-32", fix="save it in UTF-8",
        )  # fmt: skip
    header = None
    while text:
        with _readable(name):
            more = bytes(stream.read(CSV_BYTES))
        end = len(text) if not more else _last_line_end(text)
        if header is None and end:
            header = text[: _first_line_end(text)]
            body = text[len(header) : end]
        else:
            body = text[:end]
        if body.strip():
            assert header is not None
            yield header + body
        text = text[end:] + more
        if not more and not text:
            break


def _first_line_end(text: bytes) -> int:
    at = 0
    while (at := text.find(b"\n", at) + 1) > 0:
        if text.count(b'"', 0, at) % 2 == 0:
            return at
    return len(text)


def _last_line_end(text: bytes) -> int:
    """Behind the last line's end with an even number of quotes before it; 0 where there is none."""
    end, odd = len(text), text.count(b'"') % 2
    while (at := text.rfind(b"\n", 0, end)) >= 0:
        odd = (odd + text.count(b'"', at, end)) % 2
        if not odd:
            return at + 1
        end = at
    return 0


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """A file that is gone, or is no Parquet, in words; readers' own messages may quote cells."""
    try:
        yield
    except CohortError:
        raise
    except Exception as error:
        gone = isinstance(error, FileNotFoundError)
        raise CohortError(
            f"file {table_name(name)}", "must stay, and be readable, while the run reads it",
            found="no such file" if gone else type(error).__name__,
            fix="restore it, and resume the run" if gone else "open it and check its format",
        ) from None  # fmt: skip


@contextmanager
def _somewhere(piece: Piece, at: int) -> Iterator[None]:
    """What is wrong with a batch, with the file's name and where in it the batch begins."""
    try:
        yield
    except CohortError as error:
        raise CohortError(
            f"file {table_name(piece.file)}", "must hold rows that fit the schema",
            found=f"in rows {piece.first + at + 1} and further, counted from there: {error}",
        ) from None  # fmt: skip
