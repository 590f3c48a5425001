"""A CSV as a frame: which columns come as text, which as numbers, which sign their decimals have.

A CSV cell has no type. Left alone, pandas gives a column the type that all its cells allow, so that one person's row
changes how everybody else's is read ("01" is 1 unless some other row holds a text). Columns named as text or numbers
are read cell by cell instead, which the privacy argument needs. How a CSV is written: data/dialect.py.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.dialect import (
    COMMA,
    EITHER,
    POINT,
    SEPARATORS,
    CsvFormat,
    Dialect,
    check_header,
    csv_format,
    pointed,
    unpacked,
)
from distcondense.errors import CohortError

NOT_A_NUMBER = "text"  # stands for a cell that is refused; no reader takes it for a number,
A_LIMIT = "<1"  # nor this, for one that is a limit
_PART = 16 * 2**20  # bytes that are looked through at once
_FINITE = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
_INFINITE = re.compile(r"[ \t]*[+-]?inf(inity)?[ \t]*", re.IGNORECASE)
_THOUSANDS = re.compile(r"[ \t]*[+-]?[1-9][0-9]{0,2},[0-9]{3}[ \t]*")  # 1,234: or is it 1.234?
_SIGNS = ",;|\t:^~ "  # that separate fields
_WIDE = re.compile("utf[-_]?(16|32)", re.IGNORECASE)  # encodings in which every other byte of a plain text is NUL
_WHOLE = re.compile(r"[ \t]*[+-]?[0-9]{1,300}[ \t]*")  # more digits fit no float
_LIMIT = re.compile(r"[ \t]*([<>]=?|[≤≥])")  # of what a laboratory can measure
_HOW = "distcondense_read_as"
_YES_NO = {word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())}


def read_cell(text: str, decimal: str = POINT) -> str | int | float | bool:
    """What one CSV cell says, from its text alone: a finite number, true or false, or else the text itself."""
    if text in _YES_NO:
        return _YES_NO[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    written = pointed(text, decimal)
    if _FINITE.fullmatch(written):
        number = float(written)
        if np.isfinite(number):
            return int(number) if number.is_integer() else number
    return text


def number_in(text: str, decimal: str = POINT) -> float:
    """The number that a text is, infinite ones too; NaN where it is none."""
    text = pointed(text, decimal)
    return float(text) if _FINITE.fullmatch(text) or _INFINITE.fullmatch(text) else np.nan


def number_or_limit(text: str, decimal: str = POINT) -> float:
    """The number that a text is, or that stands in it behind the sign of a limit; NaN where it is neither."""
    sign = _LIMIT.match(text)
    return number_in(text[sign.end() :] if sign else text, decimal)


def header_of(source: Path | bytes, name: str, dialect: Dialect, asked: Collection[str]) -> list[str]:
    """The column names of a CSV, checked."""
    return CsvFile.opened(source, name, f"table {name}", dialect, asked).header(asked)


def read_as(frame: pd.DataFrame) -> CsvFormat | None:
    """How a CSV was read that this frame came from."""
    how = frame.attrs.get(_HOW)
    return how if isinstance(how, CsvFormat) else None


def decimal_of(frame: pd.DataFrame) -> str:
    """The decimal signs of the CSV that a frame came from."""
    how = read_as(frame)
    return POINT if how is None else how.decimal


@dataclass(frozen=True)
class CsvFile:
    """A CSV file and how it is written."""

    source: Path | bytes
    what: str
    how: CsvFormat
    packed: bool

    @classmethod
    def opened(cls, source: Path | bytes, name: str, what: str, dialect: Dialect, asked: Collection[str]) -> CsvFile:
        """The file, and how it is written: as is stated, or as its first line and the names asked for show."""
        packed = name.lower().endswith(".gz")
        return cls(source, what, csv_format(source, what, dialect, asked, packed=packed), packed)

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
        markers: Sequence[str],
        text: Collection[str],
        numbers: Collection[str],
        exact: Collection[str],
        asked: Collection[str],
        holes: Mapping[str, Sequence[str]],
    ) -> pd.DataFrame:
        """The rows; the arguments are those of `tables.py: read_table`."""
        self._refuse_nul()
        names = self.header(asked)
        how: dict[str, Any] = {
            "low_memory": False,
            "float_precision": "round_trip",
            "na_values": {name: [*markers, *holes.get(name, ())] for name in names if name not in exact},
        }
        as_text = dict.fromkeys(set(names).intersection((*text, *exact)), str)
        as_number = set(names).intersection(numbers).difference(as_text)
        typed, sign = self._typed(as_text, as_number, how)
        frame = typed
        if frame is None:
            frame = self.read(dtype=as_text | dict.fromkeys(as_number, str), **how)
        if not isinstance(frame.index, pd.RangeIndex):  # the first column was taken for row names: all others shift
            raise CohortError(
                self.what,
                "rows must have as many fields as the header",
                found=f"more fields than {len(names)}",
                fix=f"remove the {SEPARATORS.get(self.how.separator, 'separator')} at the end of the lines, or name "
                "the first column",
            )
        frame.columns = pd.Index(names)  # pandas calls an empty name "Unnamed: 0"
        if typed is None:
            sign = self._mark_text(frame, as_number, how["na_values"])
        if sign == POINT and self.how.decimal == EITHER:
            sign = self._read_commas(frame, set(names) - as_number - set(as_text), strict=not asked)
        if not asked:
            self._refuse_header_again(frame)
            self._refuse_whole_rows(frame)
            self._refuse_lone_header(frame)
        frame.attrs[_HOW] = replace(self.how, commas=sign == COMMA)
        return frame

    def _refuse_nul(self) -> None:
        """pandas ends a cell at a NUL and says nothing: another value than the file's."""
        encoding, line = self.how.encoding if _WIDE.match(self.how.encoding) else "latin-1", 1
        with unpacked(self.source, self.packed) as stream:
            for text in codecs.iterdecode(iter(lambda: stream.read(_PART), b""), encoding):
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

    def _mark_text(self, frame: pd.DataFrame, names: Collection[str], markers: Mapping[str, Sequence[str]]) -> str:
        """Put `NOT_A_NUMBER` where a cell is no number, so that the whole column's check refuses and counts the rows.

        A marker of holes that is a number marks every way to write it, as where pandas reads the numbers itself.
        Numbers get a point for a decimal sign; which sign they had is the answer.
        """
        refused, signs = False, {POINT: list[str](), COMMA: list[str]()}
        for name in sorted(names):
            cells = frame[name].tolist()
            read = [number_in(cell, self.how.decimal) if isinstance(cell, str) else 0.0 for cell in cells]
            marked = np.isin(read, [number_in(text) for text in markers.get(name, ())])
            if marked.any():
                frame.loc[marked, name] = np.nan
            bad = np.isnan(read)
            refused = refused or not np.isfinite(read).all()
            for sign, columns in signs.items():
                if any(isinstance(cell, str) and sign in cell for cell in frame[name][~bad]):
                    columns.append(name)
            frame[name] = frame[name].map(lambda cell: pointed(cell, self.how.decimal), na_action="ignore")
            if bad.any():  # a column of holes alone holds no text to put one beside
                limits = [not np.isnan(number_or_limit(str(cells[k]), self.how.decimal)) for k in np.flatnonzero(bad)]
                frame.loc[bad, name] = np.where(limits, A_LIMIT, NOT_A_NUMBER)
        if all(signs.values()):
            raise CohortError(
                self.what,
                "numbers must have one decimal sign",
                fix="correct the rows, then state --decimal",
                found=f"points in column {signs[POINT][0]!r}, commas in column {signs[COMMA][0]!r}",
            )
        if not refused and not signs[COMMA]:  # pandas and we disagree: never go on with a column read in another way
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
                clear = any("," in cell and not _THOUSANDS.fullmatch(cell) for cell in cells)
                (sure if clear else open_).append(place)
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
        with unpacked(self.source, self.packed) as stream:
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
