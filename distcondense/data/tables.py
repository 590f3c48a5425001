"""Reading a table from disk or a URI: CSV, CSV.gz, Parquet, Feather/Arrow IPC. Errors name the file, never a value."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, TypeVar

import pandas as pd

from distcondense.data.csv_table import CsvFile, read_as
from distcondense.data.dialect import Dialect
from distcondense.data.names import Names
from distcondense.data.query import read_query
from distcondense.errors import UNANSWERED, CohortError, DistcondenseWarning, brief, may, os_errors, refuse_os

# "None" is not here: in hospital extracts it is often an answer ("None" = test not done), not a hole.
MISSING_MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
PATIENCE = 10.0  # seconds until a store must have said something
PART = 16 * 2**20  # bytes that are asked of it at once
READABLE = ".csv, .csv.gz, .parquet, .feather, .arrow"
T = TypeVar("T")


def is_csv(path: str | Path) -> bool:
    """Whether the file's cells are texts without a type."""
    return table_name(path).lower().endswith((".csv", ".csv.gz"))


def read_table(
    path: str | Path,
    *,
    missing_markers: Sequence[str] = MISSING_MARKERS,
    text: Collection[str] = (),
    numbers: Collection[str] = (),
    exact: Collection[str] = (),
    asked: Collection[str] = (),
    holes: Mapping[str, Sequence[str]] | None = None,
    dialect: Dialect | None = None,
    query: str | Path | None = None,
) -> pd.DataFrame:
    """The table in a file or at a URI (s3://, gs://, …), with text that marks a hole turned into missing values.

    Of a CSV, the columns `text` come as they are written and the columns `numbers` as float64; a column of `numbers`
    with anything else in it comes as text that is refused in those rows. Columns `exact` come as they are written, text
    that marks a hole too. `holes`: more texts that mark one, by column. `asked`: names that must be in its header. How
    it was read is in the frame's attributes, and what was neither stated nor plain in a warning. Other formats have
    types, and so have the rows of a `query` of the database that lies there.
    """
    if query is not None:
        return read_query(path, query)
    name = table_name(path)
    what, suffixes = f"table {brief(name)}", "".join(Path(name).suffixes[-2:]).lower()
    source = at_uri(str(path), what) if is_uri(path) else Path(path)
    if isinstance(source, Path):
        _check_file(source, what)
    try:
        if is_csv(name):
            file = CsvFile.opened(source, name, what, dialect or Dialect(), asked)
            frame = file.frame(missing_markers, text, numbers, exact, asked, holes or {})
        elif suffixes.endswith((".parquet", ".pq")):
            frame = _read_parquet(source)
        elif suffixes.endswith((".feather", ".arrow")):
            frame = _read_feather(source)
        else:
            raise CohortError(
                what,
                f"must end in one of {READABLE}",
                found=repr(suffixes or "no ending"),
                fix="export it as CSV or Parquet",
            )
    except CohortError:
        raise
    except UnicodeDecodeError:
        raise CohortError(
            what,
            f"must be text in {(dialect or Dialect()).encoding or 'UTF-8'}",
            found="other bytes below its first line",
            fix="state the encoding it was saved in, e.g. --encoding cp1252 (Latin-1)",
        ) from None
    except pd.errors.ParserError as error:
        raise CohortError(
            what, "rows must have as many fields as the header", found=_broken(str(error)), fix="correct that line"
        ) from None
    except pd.errors.EmptyDataError:
        raise CohortError(
            what, "must have a header and rows", found="nothing to read", fix="check the export"
        ) from None
    except Exception as error:  # readers raise many types, and their messages may quote cells: say the type only
        if isinstance(error, OSError) and error.errno:
            refuse_os(error, what, "must be a readable file", CohortError)
        raise CohortError(
            what,
            f"must be readable as {suffixes.lstrip('.')}",
            found=type(error).__name__,
            fix="check that the whole file was copied, and that it is what its ending says",
        ) from None
    if frame.empty:
        raise CohortError(
            what, "must have at least one row and one column", found=f"{frame.shape[0]} rows", fix="check the export"
        )
    if (how := read_as(frame)) is not None and how.words:
        warnings.warn(f"{what} read as {how.words}", DistcondenseWarning, stacklevel=2)
    return frame


def _broken(message: str) -> str:
    """What pandas says of a broken line, by its numbers alone."""
    if match := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
        return f"{match[3]} fields where there were {match[1]} before, in line {match[2]}"
    if match := re.search(r"EOF inside string starting at row (\d+)", message):
        return f"a quotation mark that is never closed, in row {match[1]}"
    return "a line that cannot be split into fields"


def is_uri(path: str | Path) -> bool:
    return "://" in str(path)


def table_name(path: str | Path) -> str:
    """The file's name, without its folders and what a URI says after it (?region=…, ?endpoint_override=…)."""
    return str(path).partition("?")[0].rstrip("/").rsplit("/", 1)[-1] if is_uri(path) else Path(path).name or str(path)


def _check_file(path: Path, what: str) -> None:
    with os_errors(what, "must be a readable file", CohortError):
        if not os.path.lexists(path) and may(path.parent, os.X_OK):
            raise CohortError(what, "must exist", found="no such file", fix="check the path")
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise CohortError(what, "must be a file", found="a folder", fix="name the file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise CohortError(what, "must be a regular file", found="something else", fix="name a file")
        if not may(path, os.R_OK):
            raise PermissionError(errno.EACCES, "")
    if status.st_size == 0:
        raise CohortError(what, "must have a header and rows", found="an empty file", fix="check the export")


def at_uri(uri: str, what: str) -> Path | bytes:
    """What lies at a URI, in memory: patients are not copied to this machine's disk."""
    from pyarrow import fs

    parts: list[bytes] = []
    with at_store(what):
        system, path = answered(lambda: fs.FileSystem.from_uri(uri))
        if isinstance(system, fs.LocalFileSystem):
            return Path(path)
        with answered(lambda: system.open_input_stream(path, compression=None)) as stream:
            while part := answered(lambda: bytes(stream.read(PART))):
                parts.append(part)
    if not parts:
        raise CohortError(what, "must have a header and rows", found="an empty file", fix="check the export")
    return b"".join(parts)


@contextmanager
def at_store(what: str, rule: str = "must be readable at its URI") -> Iterator[None]:
    """What a store refuses, in words: each has its own errors, and their texts may hold credentials."""
    try:
        yield
    except TimeoutError:
        raise CohortError(
            what,
            "must be where its URI says",
            found=f"no answer in {PATIENCE:g} seconds",
            fix="check the address and the network, or copy the table to this machine",
        ) from None
    except Exception as error:
        raise CohortError(
            what,
            rule,
            found=type(error).__name__,
            fix="check the path and this machine's credentials; file://, s3://, gs://, abfs:// and hdfs:// are known",
        ) from None


def answered(ask: Callable[[], T]) -> T:
    """What a store answers, or TimeoutError: its own patience may be many minutes, and nothing can interrupt it."""
    answers: Queue[tuple[bool, Any]] = Queue()

    def run() -> None:
        try:
            answers.put((True, ask()))
        except BaseException as error:
            answers.put((False, error))

    Thread(target=run, daemon=True, name=UNANSWERED).start()
    try:
        good, value = answers.get(timeout=PATIENCE)
    except Empty:
        raise TimeoutError from None
    if not good:
        raise value
    return value  # type: ignore[no-any-return]


def _read_parquet(source: Path | bytes) -> pd.DataFrame:
    """As pandas reads it, but column by column, so that a wide table is never in memory twice."""
    import pyarrow
    import pyarrow.parquet

    where, mapped = (source, True) if isinstance(source, Path) else (pyarrow.BufferReader(source), False)
    frame = from_arrow(pyarrow.parquet.read_table(where, memory_map=mapped), split_blocks=True, self_destruct=True)
    pyarrow.default_memory_pool().release_unused()
    return frame


def _read_feather(source: Path | bytes) -> pd.DataFrame:
    import pyarrow.feather

    table = pyarrow.feather.read_table(source if isinstance(source, Path) else io.BytesIO(source))
    table.validate(full=True)  # its bytes are taken as they are: a wrong offset would end the process
    return from_arrow(table)


def from_arrow(table: Any, **how: Any) -> pd.DataFrame:
    """As pandas takes it in, but for integers: with one hole it would make floats of them, and round large ones."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_whole_type, **how)
    return frame


def _whole_type(kind: Any) -> Any:
    """pandas' type for an Arrow type of integers, whether there are holes or none; None: its own choice."""
    import pyarrow as pa

    name = str(kind)  # int8 … uint64
    return (
        pd.api.types.pandas_dtype(name.replace("int", "Int").replace("u", "U")) if pa.types.is_integer(kind) else None
    )


def as_frame(table: object) -> pd.DataFrame:
    """A pandas DataFrame from a frame of any library that narwhals knows: Polars, Arrow, DuckDB, …; Arrow's types."""
    if isinstance(table, pd.DataFrame):
        return table
    import narwhals
    import pyarrow

    try:
        if isinstance(table, pyarrow.Table | pyarrow.RecordBatch):
            return from_arrow(table)
        known = narwhals.from_native(table, pass_through=True)  # type: ignore[call-overload]
        if isinstance(known, narwhals.LazyFrame):
            known = known.collect("pyarrow")
        if isinstance(known, narwhals.DataFrame):
            return known.to_pandas() if known.implementation.is_pandas_like() else from_arrow(known.to_arrow())
    except Exception as error:  # theirs may quote cells: say the type only
        raise CohortError(
            "table",
            "must be one that pandas can take",
            found=f"a {type(table).__name__} ({type(error).__name__})",
            fix="check its columns, or make a pandas DataFrame of it",
        ) from None
    raise CohortError(
        "table",
        "must be a frame of pandas, Polars or Arrow, a path or a Cohort",
        found=f"a {type(table).__name__}",
        fix="pd.DataFrame(table)",
    )


def refuse_shape(frame: pd.DataFrame, names: Names) -> None:
    """No rows, no columns, or two columns of one name."""
    if frame.columns.has_duplicates:
        twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
        raise CohortError(
            "table",
            "column names must be unique",
            found=f"repeated: {names.some(twice)}",
            fix="rename or drop one of each",
        )
    if frame.empty:
        raise CohortError(
            "table", "must have at least one row and one column", found=f"{len(frame)} rows", fix="check the table"
        )


def refuse_signals(frame: pd.DataFrame, said: Callable[[str], str], forgiven: Collection[str] = ()) -> None:
    """A Decimal that raises wherever it is compared: not even whether it is a hole can be asked."""
    for name in frame.select_dtypes(object).columns.difference([*forgiven]):
        try:
            frame[name].isna()
        except ArithmeticError:
            raise CohortError(
                said(name),
                "must hold numbers that can be compared",
                found="a signalling NaN",
                fix="make holes of them: None",
            ) from None
