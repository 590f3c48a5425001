"""Reading a table from disk or a URI: CSV, CSV.gz, Parquet, Feather/Arrow IPC. Errors name the file, never a value.

A CSV cell has no type. Left alone, pandas gives a column the type that all its cells allow, so that one person's row
changes how everybody else's is read ("01" is 1 unless some other row holds a text). Columns named in `text` and
`numbers` are read cell by cell instead, which the privacy argument needs. How a CSV is written: data/dialect.py.
"""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import os
import re
import stat
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from distcondense.data.dialect import COMMA, EITHER, POINT, SEPARATORS, Dialect, Taken, check_header, pointed, taken
from distcondense.errors import UNANSWERED, CohortError, DistcondenseWarning, brief, may, os_errors, refuse_os

# "None" is not here: in hospital extracts it is often an answer ("None" = test not done), not a hole.
MISSING_MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
PATIENCE = 10.0  # seconds until a store must have said something
PART = 16 * 2**20  # bytes that are asked of it at once
READABLE = ".csv, .csv.gz, .parquet, .feather, .arrow"
NOT_A_NUMBER = "text"  # stands for a cell that is refused; no reader takes it for a number
_FINITE = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
_INFINITE = re.compile(r"[ \t]*[+-]?inf(inity)?[ \t]*", re.IGNORECASE)
_THOUSANDS = re.compile(r"[ \t]*[+-]?[1-9][0-9]{0,2},[0-9]{3}[ \t]*")  # 1,234: or is it 1.234?
_SIGNS = ",;|\t:^~ "  # that separate fields
_WIDE = re.compile("utf[-_]?(16|32)", re.IGNORECASE)  # encodings in which every other byte of a plain text is NUL
_WHOLE = re.compile(r"[ \t]*[+-]?[0-9]{1,300}[ \t]*")  # more digits fit no float
T = TypeVar("T")
_HOW = "distcondense_read_as"
_YES_NO = {word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())}


def is_csv(path: str | Path) -> bool:
    """Whether the file's cells are texts without a type."""
    return table_name(path).lower().endswith((".csv", ".csv.gz"))


def read_cell(text: str, decimal: str = POINT) -> str | int | float | bool:
    """What one CSV cell says, from its text alone: a finite number, true or false, or else the text itself."""
    if text in _YES_NO:
        return _YES_NO[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    said = pointed(text, decimal)
    if _FINITE.fullmatch(said):
        number = float(said)
        if np.isfinite(number):
            return int(number) if number.is_integer() else number
    return text


def number_in(text: str, decimal: str = POINT) -> float:
    """The number that a text is, infinite ones too; NaN where it is none."""
    text = pointed(text, decimal)
    return float(text) if _FINITE.fullmatch(text) or _INFINITE.fullmatch(text) else np.nan


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
) -> pd.DataFrame:
    """The table in a file or at a URI (s3://, gs://, …), with text that marks a hole turned into missing values.

    Of a CSV, the columns `text` come as they are written and the columns `numbers` as float64; a column of `numbers`
    with anything else in it comes as text that is refused in those rows. Columns `exact` come as they are written, text
    that marks a hole too. `holes`: more texts that mark one, by column. `asked`: names that must be in its header. How
    it was read is in the frame's attributes, and what was neither stated nor plain in a warning. Other formats have
    types.
    """
    name = table_name(path)
    what, suffixes = f"table {brief(name)}", "".join(Path(name).suffixes[-2:]).lower()
    source = at_uri(str(path), what) if is_uri(path) else Path(path)
    if isinstance(source, Path):
        _check_file(source, what)
    try:
        if is_csv(name):
            packed = name.lower().endswith(".gz")
            how = taken(source, what, dialect or Dialect(), asked, packed=packed)
            frame = _Csv(source, what, how, packed).frame(
                tuple(missing_markers), {*text, *exact}, numbers, exact, asked, holes or {}
            )
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
    except OSError as error:
        if error.errno:
            refuse_os(error, what, "must be a readable file", CohortError)
        raise CohortError(
            what,
            f"must be readable as {suffixes.lstrip('.')}",
            found=type(error).__name__,
            fix="check that the whole file was copied, and that it is what its ending says",
        ) from None
    except Exception as error:  # readers raise many types, and their messages may quote cells: say the type only
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
    if (said := read_as(frame)) is not None and said.words:
        warnings.warn(f"{what} read as {said.words}", DistcondenseWarning, stacklevel=2)
    return frame


def _broken(said: str) -> str:
    """What pandas says of a broken line, by its numbers alone."""
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said):
        return f"{found[3]} fields where there were {found[1]} before, in line {found[2]}"
    if found := re.search(r"EOF inside string starting at row (\d+)", said):
        return f"a quotation mark that is never closed, in row {found[1]}"
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
    found: Queue[tuple[bool, Any]] = Queue()

    def run() -> None:
        try:
            found.put((True, ask()))
        except BaseException as error:
            found.put((False, error))

    Thread(target=run, daemon=True, name=UNANSWERED).start()
    try:
        good, value = found.get(timeout=PATIENCE)
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
    frame = _from_arrow(pyarrow.parquet.read_table(where, memory_map=mapped), split_blocks=True, self_destruct=True)
    pyarrow.default_memory_pool().release_unused()
    return frame


def _read_feather(source: Path | bytes) -> pd.DataFrame:
    import pyarrow.feather

    table = pyarrow.feather.read_table(source if isinstance(source, Path) else io.BytesIO(source))
    table.validate(full=True)  # its bytes are taken as they are: a wrong offset would end the process
    return _from_arrow(table)


def _from_arrow(table: Any, **how: Any) -> pd.DataFrame:
    """As pandas takes it in, but for 64-bit integers: with a hole it would make floats of them, and round them."""
    whole = {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}
    holes = any(str(column.type) in whole and column.null_count for column in table.columns)
    frame: pd.DataFrame = table.to_pandas(types_mapper=(lambda kind: whole.get(str(kind))) if holes else None, **how)
    return frame


def header_of(source: Path | bytes, name: str, dialect: Dialect, asked: Collection[str]) -> list[str]:
    """The column names of a CSV, checked."""
    what, packed = f"table {name}", name.lower().endswith(".gz")
    file = _Csv(source, what, taken(source, what, dialect, asked, packed=packed), packed)
    return file.header(asked)


def read_as(frame: pd.DataFrame) -> Taken | None:
    """How a CSV was read that this frame came from."""
    found = frame.attrs.get(_HOW)
    return found if isinstance(found, Taken) else None


def decimal_of(frame: pd.DataFrame) -> str:
    """The decimal signs of the CSV that a frame came from."""
    how = read_as(frame)
    return POINT if how is None else how.decimal


@dataclass(frozen=True)
class _Csv:
    """A CSV file and how it is written."""

    source: Path | bytes
    what: str
    how: Taken
    packed: bool

    def read(self, **more: Any) -> pd.DataFrame:
        again = self.source if isinstance(self.source, Path) else io.BytesIO(self.source)
        frame: pd.DataFrame = pd.read_csv(
            again,
            compression="gzip" if self.packed else None,
            sep=self.how.separator,
            encoding=self.how.encoding,
            keep_default_na=False,
            **more,
        )
        return frame

    def header(self, asked: Collection[str]) -> list[str]:
        first = self.read(header=None, nrows=1, dtype=str)
        names = [str(name) for name in first.iloc[0]]
        check_header(names, asked, self.what, self.how)
        return names

    def frame(
        self,
        markers: tuple[str, ...],
        text: Collection[str],
        numbers: Collection[str],
        exact: Collection[str],
        asked: Collection[str],
        holes: Mapping[str, Sequence[str]],
    ) -> pd.DataFrame:
        self._refuse_nul()
        names = self.header(asked)
        how: dict[str, Any] = {
            "low_memory": False,
            "float_precision": "round_trip",
            "na_values": {name: [*markers, *holes.get(name, ())] for name in names if name not in exact},
        }
        as_text = dict.fromkeys(set(names).intersection(text), str)
        as_number = set(names).intersection(numbers).difference(text)
        frame, sign = self._typed(as_text, as_number, how)
        refused = frame is None
        if frame is None:
            frame = self.read(dtype=as_text | dict.fromkeys(as_number, str), **how)
        if not isinstance(
            frame.index, pd.RangeIndex
        ):  # pandas took the first column for row names: every column shifts
            raise CohortError(
                self.what,
                "rows must have as many fields as the header",
                found=f"more fields than {len(names)}",
                fix=f"remove the {SEPARATORS.get(self.how.separator, 'separator')} at the end of the lines, or name "
                "the first column",
            )
        frame.columns = pd.Index(names)  # pandas calls an empty name "Unnamed: 0"
        if refused:
            sign = self._mark_text(frame, as_number)
        if sign == POINT and self.how.decimal == EITHER:
            sign = self._read_commas(frame, set(names) - as_number - set(as_text), strict=not asked)
        if not asked:
            self._refuse_header_again(frame)
            self._refuse_whole_rows(frame)
            self._refuse_lone_header(frame)
        frame.attrs[_HOW] = replace(self.how, commas=sign == COMMA)
        return frame

    @contextmanager
    def _unpacked(self) -> Iterator[Any]:
        """The bytes of the text."""
        with io.BytesIO(self.source) if isinstance(self.source, bytes) else open(self.source, "rb") as raw:
            yield gzip.GzipFile(fileobj=raw) if self.packed else raw

    def _refuse_nul(self) -> None:
        """pandas ends a cell at a NUL and says nothing: another value than the file's."""
        encoding, line = self.how.encoding if _WIDE.match(self.how.encoding) else "latin-1", 1
        with self._unpacked() as stream:
            for text in codecs.iterdecode(iter(lambda: stream.read(PART), b""), encoding):
                before, nul, _ = text.partition("\0")
                line += before.count("\n")
                if nul:
                    raise CohortError(
                        self.what,
                        "must be text",
                        found=f"a NUL character in line {line}",
                        fix="check that the whole file was copied, or take the character out",
                    )

    def _typed(
        self, as_text: dict[str, Any], as_number: Collection[str], how: dict[str, Any]
    ) -> tuple[pd.DataFrame | None, str]:
        """Number columns as float64, and the decimal sign that all of them use; None where some cell is no number."""
        for sign in self.how.decimal:
            try:
                frame = self.read(dtype=as_text | dict.fromkeys(as_number, np.float64), decimal=sign, **how)
            except ValueError:  # a number column holds text (or the file is broken, which the next reading then says)
                continue
            # pandas reads a column of nothing but true and false as 1 and 0, and refuses it with a number in it
            doubtful = [name for name in as_number if frame[name].isin((0, 1, np.nan)).all()]
            if doubtful and self.read(dtype=str, usecols=doubtful, **how).isin(list(_YES_NO)).any(axis=None):
                break
            if sign == COMMA and self.how.decimal == EITHER:
                broken = [name for name in as_number if (frame[name] % 1 != 0).any()]
                self._refuse_thousands(self.read(dtype=str, usecols=broken, **how), broken)
            return frame, sign
        return None, POINT

    def _mark_text(self, frame: pd.DataFrame, names: Collection[str]) -> str:
        """Put `NOT_A_NUMBER` where a cell is no number, so that the whole column's check refuses and counts the rows.

        Numbers get a point for a decimal sign; which sign they had is the answer.
        """
        found, signs = False, {POINT: list[str](), COMMA: list[str]()}
        for name in sorted(names):
            cells = frame[name].tolist()
            read = [number_in(cell, self.how.decimal) if isinstance(cell, str) else 0.0 for cell in cells]
            bad = np.isnan(read)
            found = found or not np.isfinite(read).all()
            for sign, columns in signs.items():
                if any(isinstance(cell, str) and sign in cell for cell in frame[name][~bad]):
                    columns.append(name)
            frame[name] = frame[name].map(lambda cell: pointed(cell, self.how.decimal), na_action="ignore")
            frame.loc[bad, name] = NOT_A_NUMBER
        if all(signs.values()):
            raise CohortError(
                self.what,
                "numbers must have one decimal sign",
                fix="correct the rows, then state --decimal",
                found=f"points in column {signs[POINT][0]!r}, commas in column {signs[COMMA][0]!r}",
            )
        if not found and not signs[COMMA]:  # pandas and we disagree: never go on with a column read in another way
            raise CohortError(self.what, "number columns must hold numbers", found="text", fix="correct the rows")
        return COMMA if signs[COMMA] else POINT

    def _refuse_thousands(self, frame: pd.DataFrame, names: Sequence[str]) -> None:
        """1,234 may be 1234 or 1.234: some cell must show which."""
        for name in names:
            cells = frame[name].dropna()
            if any("," in cell and not _THOUSANDS.fullmatch(cell) for cell in cells):
                return
        raise CohortError(
            self.what,
            "commas in numbers must be decimal signs",
            fix="state --decimal , or take the commas out",
            found=f"only numbers like 1,234 in {len(names)} columns, first in column {names[0]!r}",
        )

    def _read_commas(self, frame: pd.DataFrame, names: Collection[str], *, strict: bool) -> str:
        """Columns that nobody declared: those all of whose cells are numbers, some with a decimal comma, as numbers."""
        sure, open_, points = list[int](), list[int](), list[int]()
        for place, name in enumerate(frame.columns):
            if name not in names:
                continue
            if not pd.api.types.is_object_dtype(frame[name]):
                points += [place] * bool(pd.api.types.is_float_dtype(frame[name]) and (frame[name] % 1 > 0).any())
                continue
            cells = frame[name].dropna().tolist()
            if cells and all(isinstance(cell, str) and np.isfinite(number_in(cell, COMMA)) for cell in cells):
                shown = any("," in cell and not _THOUSANDS.fullmatch(cell) for cell in cells)
                (sure if shown else open_).append(place)
        if strict and (sure or open_) and (points or not sure):
            also = f", decimal points in column {points[0] + 1}" if points else " like 1,234 only"
            raise CohortError(
                self.what,
                "numbers must have one decimal sign",
                fix="state --decimal , or correct the rows",
                found=f"commas in column {(sure or open_)[0] + 1}{also}",
            )
        if not sure:
            return POINT
        for place in sure + open_:
            read = frame.iloc[:, place].map(lambda cell: number_in(cell, COMMA), na_action="ignore")
            frame[frame.columns[place]] = read.astype(np.float64)
        return COMMA

    def _refuse_whole_rows(self, frame: pd.DataFrame) -> None:
        """Cells that another sign would split into more fields than there are columns: each may be a person's row."""
        for place in range(frame.shape[1]):
            cells = [cell for cell in frame.iloc[:, place].dropna() if isinstance(cell, str)]
            if 2 * sum(_like_a_row(cell, frame.shape[1]) for cell in cells) > len(cells):
                raise CohortError(
                    self.what,
                    "its lines must be split into fields",
                    fix="state the sign between them, e.g. --separator semicolon",
                    found=f"several in one, in column {place + 1} ({self.how.whole})",
                )

    def _refuse_lone_header(self, frame: pd.DataFrame) -> None:
        """A first line with more fields than any other line is a whole row among torn ones, or no row at all."""
        if frame.empty or not frame.iloc[:, -1].isna().all():
            return
        with self._unpacked() as stream:
            text = io.TextIOWrapper(stream, encoding=self.how.encoding, newline="")
            rows = filter(None, csv.reader(text, delimiter=self.how.separator))
            widths = {len(row) for row in islice(rows, 1, 1000)}
        if max(widths, default=0) < frame.shape[1]:
            raise CohortError(
                self.what,
                "its first line must name the columns",
                fix="add a header line, or complete the rows",
                found=f"{frame.shape[1]} fields in it and fewer in the lines below",
            )

    def _refuse_header_again(self, frame: pd.DataFrame) -> None:
        """A first line whose words come again as values is no header."""
        again = [
            place
            for place, name in enumerate(frame.columns, 1)
            if frame[name].dtype == object and (frame[name] == name).any()
        ]
        if again:
            raise CohortError(
                self.what,
                "its first line must name the columns",
                fix="add a header line, or drop its copies",
                found=f"{len(again)} of its {frame.shape[1]} fields again as values, first in column {again[0]}",
            )


def _like_a_row(cell: str, columns: int) -> bool:
    """Whether a cell holds fields: of a lone column where any sign stands in it, else more than there are columns."""
    if columns == 1 and any(sign in cell for sign in _SIGNS.strip()):
        return True
    for sign in _SIGNS:
        parts = cell.split(sign)
        if len(parts) > max(columns, 3) and sum(bool(_FINITE.fullmatch(part)) for part in parts) > 1:
            return True
    return False


def as_frame(table: object) -> pd.DataFrame:
    """A pandas DataFrame from pandas, Arrow, or anything with a `to_pandas` method (Polars, for one)."""
    if isinstance(table, pd.DataFrame):
        return table
    try:
        frame = _foreign(table)
    except Exception as error:  # theirs may quote cells: say the type only
        raise CohortError(
            "table",
            "must be one that pandas can take",
            found=f"a {type(table).__name__} ({type(error).__name__})",
            fix="check its columns, or make a pandas DataFrame of it",
        ) from None
    if not isinstance(frame, pd.DataFrame):
        raise CohortError(
            "table",
            "must be a pandas DataFrame or an Arrow table",
            found=type(table).__name__,
            fix="pd.DataFrame(table)",
        )
    return frame


def _foreign(table: object) -> object:
    """What another library's table is to pandas; None where it is none."""
    to_arrow = getattr(table, "to_arrow", None)  # Polars
    arrow = table if to_arrow is None else to_arrow()
    if hasattr(arrow, "to_pandas") and hasattr(arrow, "columns") and hasattr(arrow, "schema"):
        return _from_arrow(arrow)
    to_pandas = getattr(table, "to_pandas", None)
    return None if to_pandas is None else to_pandas()


def refuse_signals(frame: pd.DataFrame, said: Callable[[str], str]) -> None:
    """A Decimal that raises wherever it is compared: not even whether it is a hole can be asked."""
    for name in frame.select_dtypes(object).columns:
        try:
            frame[name].isna()
        except ArithmeticError:
            raise CohortError(
                said(name),
                "must hold numbers that can be compared",
                found="a signalling NaN",
                fix="make holes of them: None",
            ) from None
