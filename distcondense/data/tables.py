"""Reading a table from disk or a URI: CSV, CSV.gz, Parquet, Feather/Arrow IPC. Errors name the file, never a value.

A CSV cell has no type. Left alone, pandas gives a column the type that all its cells allow, so that one person's row
changes how everybody else's is read ("01" is 1 unless some other row holds a text). Columns named in `text` and
`numbers` are read cell by cell instead, which the privacy argument needs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.errors import CohortError

# "None" is not here: in hospital extracts it is often an answer ("None" = test not done), not a hole.
MISSING_MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
READABLE = ".csv, .csv.gz, .parquet, .feather, .arrow"
NOT_A_NUMBER = "text"  # stands for a cell that is refused; no reader takes it for a number
_FINITE = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
_INFINITE = re.compile(r"[ \t]*[+-]?inf(inity)?[ \t]*", re.IGNORECASE)
_WHOLE = re.compile(r"[ \t]*[+-]?[0-9]{1,400}[ \t]*")
_YES_NO = {word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())}


def is_csv(path: str | Path) -> bool:
    """Whether the file's cells are texts without a type."""
    return table_name(path).lower().endswith((".csv", ".csv.gz"))


def read_cell(text: str) -> str | int | float | bool:
    """What one CSV cell says, from its text alone: a finite number, true or false, or else the text itself."""
    if text in _YES_NO:
        return _YES_NO[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FINITE.fullmatch(text):
        number = float(text)
        if np.isfinite(number):
            return int(number) if number.is_integer() else number
    return text


def number_in(text: str) -> float:
    """The number that a text is, infinite ones too; NaN where it is none."""
    return float(text) if _FINITE.fullmatch(text) or _INFINITE.fullmatch(text) else np.nan


def read_table(
    path: str | Path,
    *,
    missing_markers: Sequence[str] = MISSING_MARKERS,
    text: Collection[str] = (),
    numbers: Collection[str] = (),
    exact: Collection[str] = (),
) -> pd.DataFrame:
    """The table in a file or at a URI (s3://, gs://, …), with text that marks a hole turned into missing values.

    Of a CSV, the columns `text` come as they are written and the columns `numbers` as float64; a column of `numbers`
    with anything else in it comes as text that is refused in those rows. Columns `exact` come as they are written, text
    that marks a hole too. Other formats have types.
    """
    name = table_name(path)
    what, suffixes = f"table {name}", "".join(Path(name).suffixes[-2:]).lower()
    source = at_uri(str(path), what) if is_uri(path) else Path(path)
    if isinstance(source, Path):
        _check_file(source, what)
    try:
        if is_csv(name):
            frame = _read_csv(source, tuple(missing_markers), what, {*text, *exact}, numbers, exact)
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
    except pd.errors.EmptyDataError:
        raise CohortError(
            what, "must have a header and rows", found="nothing to read", fix="check the export"
        ) from None
    except Exception as error:  # readers raise many types, and their messages may quote cells: say the type only
        raise CohortError(
            what,
            f"must be readable as {suffixes.lstrip('.')}",
            found=type(error).__name__,
            fix="open it and check its format",
        ) from None
    if frame.empty:
        raise CohortError(
            what, "must have at least one row and one column", found=f"{frame.shape[0]} rows", fix="check the export"
        )
    return frame


def is_uri(path: str | Path) -> bool:
    return "://" in str(path)


def table_name(path: str | Path) -> str:
    """The file's name, without its folders and what a URI says after it (?region=…, ?endpoint_override=…)."""
    return str(path).partition("?")[0].rstrip("/").rsplit("/", 1)[-1] if is_uri(path) else Path(path).name


def _check_file(path: Path, what: str) -> None:
    if not path.exists():
        raise CohortError(what, "must exist", found="no such file", fix="check the path")
    if path.is_dir():
        raise CohortError(what, "must be a file", found="a folder", fix="name the file inside it")
    if path.stat().st_size == 0:
        raise CohortError(what, "must have a header and rows", found="an empty file", fix="check the export")


def at_uri(uri: str, what: str) -> Path | bytes:
    """What lies at a URI, in memory: patients are not copied to this machine's disk."""
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(uri)
        if isinstance(system, fs.LocalFileSystem):
            return Path(path)
        with system.open_input_stream(path, compression=None) as stream:
            data = bytes(stream.read())
    except Exception as error:  # each store has its own errors, and their texts may hold credentials
        raise CohortError(
            what, "must be readable at its URI", found=type(error).__name__,
            fix="check the URI and this machine's credentials; file://, s3://, gs://, abfs:// and hdfs:// are known",
        ) from None  # fmt: skip
    if not data:
        raise CohortError(what, "must have a header and rows", found="an empty file", fix="check the export")
    return data


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

    return _from_arrow(pyarrow.feather.read_table(source if isinstance(source, Path) else io.BytesIO(source)))


def _from_arrow(table: Any, **how: Any) -> pd.DataFrame:
    """As pandas takes it in, but for 64-bit integers: with a hole it would make floats of them, and round them."""
    whole = {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}
    holes = any(str(column.type) in whole and column.null_count for column in table.columns)
    frame: pd.DataFrame = table.to_pandas(types_mapper=(lambda kind: whole.get(str(kind))) if holes else None, **how)
    return frame


def _read_csv(
    source: Path | bytes,
    markers: tuple[str, ...],
    what: str,
    text: Collection[str],
    numbers: Collection[str],
    exact: Collection[str],
) -> pd.DataFrame:
    packed = what.lower().endswith(".gz")

    def read(**how: Any) -> pd.DataFrame:
        again = source if isinstance(source, Path) else io.BytesIO(source)
        frame: pd.DataFrame = pd.read_csv(again, compression="gzip" if packed else None, **how)
        return frame

    header = read(header=None, nrows=1, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    names = [str(name) for name in header.iloc[0]]
    # pandas would rename the second "age" to "age.1" in silence
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CohortError(
            what,
            "column names must be unique",
            found=f"repeated: {', '.join(map(repr, twice))}",
            fix="rename or drop one of each",
        )
    how: dict[str, Any] = {"keep_default_na": False, "encoding": "utf-8-sig", "low_memory": False,
                           "na_values": {name: list(markers) for name in names if name not in exact},
                           "float_precision": "round_trip"}  # fmt: skip
    as_text = dict.fromkeys(set(names).intersection(text), str)
    as_number = set(names).intersection(numbers).difference(text)
    refused = False
    try:
        frame = read(dtype=as_text | dict.fromkeys(as_number, np.float64), **how)
        # pandas reads a column of nothing but true and false as 1 and 0, and refuses it with a number in it
        doubtful = [name for name in as_number if frame[name].isin((0, 1, np.nan)).all()]
        if doubtful:
            words = read(dtype=str, usecols=doubtful, **how)
            refused = bool(words.isin(list(_YES_NO)).any(axis=None))
    except ValueError:  # a number column holds text (or the file is broken, which the second reading then says)
        refused = True
    if refused:
        frame = read(dtype=as_text | dict.fromkeys(as_number, str), **how)
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the first column for row names: every column shifts
        raise CohortError(what, "rows must have as many fields as the header", found=f"more fields than {len(names)}",
                          fix="remove the comma at the end of the lines, or name the first column")  # fmt: skip
    if refused:
        _mark_text(frame, as_number, what)
    return frame


def _mark_text(frame: pd.DataFrame, names: Collection[str], what: str) -> None:
    """Put `NOT_A_NUMBER` where a cell is no number, so that the whole column's check refuses and counts the rows."""
    found = False
    for name in names:
        bad = [isinstance(cell, str) and np.isnan(number_in(cell)) for cell in frame[name]]
        if any(bad):
            frame.loc[bad, name] = NOT_A_NUMBER
            found = True
    if not found:  # pandas and we disagree about a cell: never go on with a column read in another way
        raise CohortError(what, "number columns must hold numbers", found="text", fix="correct the rows")


def as_frame(table: object) -> pd.DataFrame:
    """A pandas DataFrame from pandas, Arrow, or anything with a `to_pandas` method (Polars, for one)."""
    if isinstance(table, pd.DataFrame):
        return table
    to_arrow = getattr(table, "to_arrow", None)  # Polars
    arrow = table if to_arrow is None else to_arrow()
    if hasattr(arrow, "to_pandas") and hasattr(arrow, "columns") and hasattr(arrow, "schema"):
        return _from_arrow(arrow)
    to_pandas = getattr(table, "to_pandas", None)
    if to_pandas is None:
        raise CohortError(
            "table",
            "must be a pandas DataFrame or an Arrow table",
            found=type(table).__name__,
            fix="pd.DataFrame(table)",
        )
    frame = to_pandas()
    assert isinstance(frame, pd.DataFrame)
    return frame
