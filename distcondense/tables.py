"""Reading a table from disk: CSV, CSV.gz, Parquet, Feather/Arrow IPC. Errors name the file and a fix, never a value."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from distcondense.errors import CohortError

# "None" is not here: in hospital extracts it is often an answer ("None" = test not done), not a hole.
MISSING_MARKERS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
READABLE = ".csv, .csv.gz, .parquet, .feather, .arrow"


def read_table(path: str | Path, *, missing_markers: Sequence[str] = MISSING_MARKERS) -> pd.DataFrame:
    """The table in a file, with text that marks a hole turned into missing values."""
    path = Path(path)
    what = f"table {path.name}"
    if not path.exists():
        raise CohortError(what, "must exist", found="no such file", fix="check the path")
    if path.is_dir():
        raise CohortError(what, "must be a file", found="a folder", fix="name the file inside it")
    if path.stat().st_size == 0:
        raise CohortError(what, "must have a header and rows", found="an empty file", fix="check the export")
    suffixes = "".join(path.suffixes[-2:]).lower()
    try:
        if suffixes.endswith((".csv", ".csv.gz")):
            frame = _read_csv(path, tuple(missing_markers), what)
        elif suffixes.endswith((".parquet", ".pq")):
            frame = _read_parquet(path)
        elif suffixes.endswith((".feather", ".arrow")):
            frame = pd.read_feather(path)
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


def _read_parquet(path: Path) -> pd.DataFrame:
    """As pandas reads it, but column by column, so that a wide table is never in memory twice."""
    import pyarrow
    import pyarrow.parquet

    frame: pd.DataFrame = pyarrow.parquet.read_table(path, memory_map=True).to_pandas(
        split_blocks=True, self_destruct=True
    )
    pyarrow.default_memory_pool().release_unused()
    return frame


def _read_csv(path: Path, markers: tuple[str, ...], what: str) -> pd.DataFrame:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as lines:
        header = lines.readline().rstrip("\r\n")
    names = [str(n) for n in pd.read_csv(_text(header), header=None, dtype=str, keep_default_na=False).iloc[0]]
    # pandas would rename the second "age" to "age.1" in silence
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CohortError(
            what,
            "column names must be unique",
            found=f"repeated: {', '.join(map(repr, twice))}",
            fix="rename or drop one of each",
        )
    frame = pd.read_csv(path, keep_default_na=False, na_values=list(markers), encoding="utf-8-sig", low_memory=False)
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes the first column for row names: every column shifts
        raise CohortError(what, "rows must have as many fields as the header", found=f"more fields than {len(names)}",
                          fix="remove the comma at the end of the lines, or name the first column")  # fmt: skip
    return frame


def _text(line: str):  # type: ignore[no-untyped-def]
    import io

    return io.StringIO(line + "\n")


def as_frame(table: object) -> pd.DataFrame:
    """A pandas DataFrame from pandas, Arrow, or anything with a `to_pandas` method (Polars, for one)."""
    if isinstance(table, pd.DataFrame):
        return table
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
