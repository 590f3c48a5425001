"""Files of a large table: found in a folder or at a URI, cut into pieces, read as batches of Arrow or parts of CSV.

Parquet and Arrow IPC (Feather) tell names, types and numbers of rows before a row is read: files that do not go
together are refused by them. Readers' own messages may quote cells: none of them is passed on.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from distcondense.data.features import some_names
from distcondense.data.tables import PATIENCE, answered, at_store, is_csv, is_uri, table_name
from distcondense.errors import CohortError, os_errors, refuse_os

BATCH_ROWS = 2**16  # read at a time: with their marks about what the caches of a core hold
PIECE_ROWS = 2**20  # of a file, that one worker reads at a time
PIECE_MOST = 2**22  # the same where there are many workers: what each piece holds for each of them is handed over
PIECES_EACH = 8  # pieces for each worker, at least: so many that a slow one reads less than the others
HANDED = 2**12  # calls of which nobody takes notice
CSV_BYTES = 2**25  # of a CSV, read at a time
PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow")


@dataclass(frozen=True)
class Piece:
    """A part of a file: some row groups of a Parquet file, some record batches of an Arrow file, or all of a CSV."""

    file: str
    groups: tuple[int, ...] = ()
    rows: int = 0  # of a CSV about so many
    bytes: int = 0
    first: int = 0  # its first row's number in the file, from 0


File = tuple[str, int, int]  # name, bytes, time of the last change


def format_of(path: str | Path) -> str:
    """By its ending; nothing for what is no table."""
    name = table_name(path).lower()
    if is_csv(name):
        return "CSV"
    return "Parquet" if name.endswith(PARQUET) else "Arrow" if name.endswith(ARROW) else ""


def files_of(path: str) -> tuple[File, ...]:
    """A file, or all tables in a folder and the folders in it, by name."""
    from pyarrow import fs

    what = f"table {table_name(path)}"
    with at_store(what) if is_uri(path) else os_errors(what, "must be readable", CohortError):
        local = (fs.LocalFileSystem(), os.path.abspath(path))
        system, root = answered(lambda: fs.FileSystem.from_uri(path)) if is_uri(path) else local
        root = root.rstrip("/") or root
        info = answered(lambda: system.get_file_info(root))
        if info.type == fs.FileType.Directory:
            every = answered(lambda: system.get_file_info(fs.FileSelector(root, recursive=True)))
            infos = [entry for entry in every if entry.is_file]
        else:
            infos = [info]
    if info.type == fs.FileType.NotFound:
        raise CohortError(what, "must exist", found="no such file or folder", fix="check the path")
    visible = [
        entry for entry in infos if not any(part[:1] in "._" for part in entry.path[len(root) :].split("/") if part)
    ]
    tables = sorted((entry for entry in visible if format_of(entry.path)), key=lambda entry: entry.path)
    kinds = {format_of(entry.path) for entry in tables}
    if len(kinds) != 1:
        raise CohortError(
            what,
            "must be a .parquet, .feather, .arrow or .csv file, or a folder of one kind of them",
            found=" and ".join(sorted(kinds)) or "none of them",
            fix="name the folder of one kind",
        )
    if empty := [table_name(entry.path) for entry in tables if entry.size == 0]:
        raise CohortError(
            f"file {empty[0]}",
            "must have a header and rows",
            found="an empty file",
            fix="check the export; a part without rows still has a header",
        )
    here = isinstance(system, fs.LocalFileSystem)
    names = [entry.path if here else _below(path, entry.path[len(root) :]) for entry in tables]
    return tuple((name, int(entry.size), int(entry.mtime_ns or 0)) for name, entry in zip(names, tables, strict=True))


def _below(uri: str, rest: str) -> str:
    """A file's own URI; whatever a URI says of host, user and options is said of its files, too."""
    ahead, mark, query = uri.partition("?")
    return ahead.rstrip("/") + quote(rest) + mark + query


def opened(name: str) -> Any:
    """A file to read from, mapped where it is this machine's."""
    import pyarrow as pa
    from pyarrow import fs

    if not is_uri(name):
        return pa.memory_map(name)
    system, path = answered(lambda: fs.FileSystem.from_uri(name))
    return answered(lambda: system.open_input_file(path))


def parquet_file(name: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(opened(name), pre_buffer=is_uri(name))


def arrow_file(name: str, columns: Sequence[str] | None = None) -> Any:
    """An Arrow IPC file, of which these columns are read; None: all."""
    import pyarrow as pa

    source = opened(name)
    file = pa.ipc.open_file(source)
    if columns is None:
        return file
    fields = [file.schema.get_field_index(one) for one in columns]
    return pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))


def shape_of(name: str) -> tuple[list[int], Any]:
    """Rows of each row group or record batch, and the names and types of columns."""
    import pyarrow as pa

    if format_of(name) == "Parquet":
        file = parquet_file(name)
        meta = file.metadata
        return [meta.row_group(group).num_rows for group in range(meta.num_row_groups)], file.schema_arrow
    schema = arrow_file(name).schema
    light = next((one.name for one in schema if pa.types.is_primitive(one.type)), *schema.names[:1])
    file = arrow_file(name, [light])
    return [file.get_batch(number).num_rows for number in range(file.num_record_batches)], schema


def pieces_of(
    file: File, needed: Sequence[str], kinds: dict[str, tuple[str, str]]
) -> tuple[list[Piece], Sequence[str]]:
    """A file in pieces, and its columns; refused where these are not those of the other files (`kinds`)."""
    name, size, _ = file
    if format_of(name) == "CSV":
        return [Piece(name, rows=max(1, size // 100), bytes=size)], ()
    what = f"file {table_name(name)}"
    with readable(name):
        counts, schema = shape_of(name)
    missing = [one for one in needed if one not in schema.names]
    if missing:
        raise CohortError(
            what,
            "must have every column of the schema, the outcome and the person's identifier",
            found=f"{len(missing)} missing: {some_names(missing)}",
            fix="add the columns, or take the file away",
        )
    all_rows = sum(counts)
    for one in needed if all_rows else ():
        kind = _kind_of(schema.field(one).type)
        first, other = kinds.setdefault(one, (kind, what)) if kind else ("", "")
        if kind != first:
            raise CohortError(
                f"column {one!r}",
                "must have one type in all files",
                found=f"{first} in {other}, {kind} in {what}",
                fix="write the files alike",
            )
    pieces, groups, rows, first_row = [], list[int](), 0, 0
    for group, count in enumerate(counts):
        groups.append(group)
        rows += count
        if rows >= PIECE_ROWS or group == len(counts) - 1:
            pieces.append(Piece(name, tuple(groups), rows, size * rows // max(1, all_rows), first_row))
            first_row += rows
            groups, rows = [], 0
    return pieces, schema.names


def fewer(pieces: Sequence[Piece], workers: int) -> tuple[Piece, ...]:
    """Neighbouring pieces of a file together, where the driver would be kept busy: it hands every piece over to every
    worker, by a call each. A reader then has so much more in memory."""
    if len(pieces) * workers <= HANDED:
        return tuple(pieces)
    most = min(PIECE_MOST, sum(piece.rows for piece in pieces) // (PIECES_EACH * workers))
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and piece.groups and last.file == piece.file and last.rows + piece.rows <= most:
            both = (last.groups + piece.groups, last.rows + piece.rows, last.bytes + piece.bytes)
            joined[-1] = Piece(piece.file, *both, last.first)
        else:
            joined.append(piece)
    return tuple(joined)


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


def arrow_batches(piece: Piece, columns: Sequence[str] | None) -> Iterator[Any]:
    """The rows of a piece of a typed file, `BATCH_ROWS` at a time."""
    with readable(piece.file):
        batches = (_of_parquet if format_of(piece.file) == "Parquet" else _of_arrow)(piece, columns)
    while True:
        with readable(piece.file):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _of_parquet(piece: Piece, columns: Sequence[str] | None) -> Iterator[Any]:
    file = parquet_file(piece.file)
    yield from file.iter_batches(BATCH_ROWS, list(piece.groups), columns, use_threads=False)


def _of_arrow(piece: Piece, columns: Sequence[str] | None) -> Iterator[Any]:
    """A record batch that was written compressed is in memory whole; any other stays in its mapped file."""
    file = arrow_file(piece.file, columns)
    for number in piece.groups:
        batch = file.get_batch(number)
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def csv_parts(name: str) -> Iterator[bytes]:
    """A CSV in parts, each with the first line: cut behind a line's end that stands outside quotes."""
    with readable(name):
        raw = opened(name)
        stream: Any = gzip.GzipFile(fileobj=raw) if name.partition("?")[0].lower().endswith(".gz") else raw
        text = bytes(stream.read(CSV_BYTES))
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise CohortError(
            f"file {table_name(name)}",
            "must be in UTF-8 or an encoding of one byte to be read in parts",
            found="UTF-16 or UTF-32",
            fix="save it in UTF-8",
        )
    header = None
    while text:
        with readable(name):
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
def readable(name: str) -> Iterator[None]:
    """A file that is gone, or is not what its ending says, in words."""
    try:
        yield
    except CohortError:
        raise
    except Exception as error:
        what, rule = f"file {table_name(name)}", "must stay, and be readable, while the run reads it"
        if isinstance(error, OSError) and error.errno and not is_uri(name) and not isinstance(error, FileNotFoundError):
            refuse_os(error, what, rule, CohortError)
        again = "check the store and the network, and resume the run"
        found, fix = type(error).__name__, again if is_uri(name) and isinstance(error, OSError) else ""
        if isinstance(error, FileNotFoundError):
            found, fix = "no such file", "restore it, and resume the run"
        elif isinstance(error, TimeoutError):
            found = f"no answer in {PATIENCE:g} seconds"
        raise CohortError(
            what, rule, found=found, fix=fix or "check that all of it was copied, and its ending"
        ) from None
