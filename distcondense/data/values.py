"""A column's values, each on its own: of what type it is, which label or number it means, whom it names.

pandas gives a column the one type that all its values allow, and takes True for 1 where both stand in it: one person's
row would then change how everybody else's is read. And Python takes many values for equal that are written differently:
1 and 1.0, 2⁵³ and its float, a moment in two time zones. Here a value is read by itself, and once only where equal ones
of its own type cannot be written in two ways; it means what it means beside any other values:

- a label is the one of the same type (text, number, true/false) that is equal; else the one that is written the same
  ("1" and 1, "True" and True); else true and false stand for 1 and 0, and 1 and 0 for true and false;
- a number is a number, or a text that is one; true and false are none;
- an identifier is its text; one with a decimal point is none, because whoever made it may have lost digits;
- what cannot be used (half a character, a list, a number too long for a float) is a hole where the column forgives it.
"""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.column import MAX_WHOLE, Column, Label, plain_value
from distcondense.data.csv_table import number_in, number_or_limit
from distcondense.errors import CohortError

ABSENT = "missing"  # the text that stands for a hole where categories are private and no policy takes one
TEXT, NUMBER, TRUTH, DATE, OTHER = "texts", "numbers", "true/false", "dates", "other values"
# of these equal values of one type are written alike; of others (zones, scales, decimals) each is read by itself
_ALIKE = (str, bool, int, float, np.bool_, np.integer, np.floating)
_HALF = re.compile("[\ud800-\udfff]")
_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)


def type_of(value: Any) -> str:
    """What a value is, in words for a message."""
    kind: Any = type(value)
    return _type_named(kind)


@cache
def _type_named(kind: Any) -> str:
    if issubclass(kind, bool | np.bool_):
        return TRUTH
    if issubclass(kind, str):
        return TEXT
    if issubclass(kind, _DATES):  # first: NumPy takes a timedelta64 for a whole number
        return DATE
    return NUMBER if issubclass(kind, numbers.Real | Decimal) else OTHER


@dataclass(frozen=True)
class Values:
    """The values of a column, equal ones of one type once where they are written alike; and which of them each row
    holds."""

    codes: Index  # (n,) numbers of `distinct`; −1: a hole
    distinct: Sequence[Any]

    @classmethod
    def from_series(cls, series: pd.Series[Any], name: str) -> Values:
        if isinstance(series.dtype, pd.CategoricalDtype):
            return cls(np.asarray(series.cat.codes, np.int64), list(series.cat.categories))
        if isinstance(series.dtype, pd.ArrowDtype):  # its lists and structs have no distinct values
            series = series.astype(object)
        if series.dtype != object:
            codes, values = pd.factorize(series)
            return cls(np.asarray(codes, np.int64), list(values))
        refuse_nested(series, name)
        cells, holes = series.to_numpy(), series.isna().to_numpy()
        kinds = {kind: number for number, kind in enumerate(set(map(type, cells[~holes])))}
        of_row = np.where(holes, -1, 0)
        if len(kinds) > 1:
            of_row = np.where(holes, -1, [kinds.get(type(cell), -1) for cell in cells])
        codes, distinct = np.full(len(cells), -1, np.int64), list[Any]()
        for kind, number in kinds.items():  # apart: pandas takes True, 1 and 1.0 for one value
            here = of_row == number
            part, part_values = _listed(cells[here], kind)
            codes[here] = part + len(distinct)
            distinct += part_values
        return cls(codes, distinct)

    def map(self, read: Callable[[Any], Any], hole: Any, dtype: Any) -> Any:
        """(n,) `read` of every row's value; each distinct one is read once."""
        return np.array([*map(read, self.distinct), hole], dtype)[self.codes]

    def rows_by_type(self) -> dict[str, Flags]:
        """Which rows hold values of each type there is."""
        kinds = np.array([*(type_of(value) for value in self.distinct), ""])[self.codes]
        return {str(kind): kinds == kind for kind in sorted(set(kinds) - {""})}


def _listed(cells: Any, kind: type) -> tuple[Index, list[Any]]:
    """The place of each cell's value in a list of values, all of one type."""
    if kind is not datetime.date and not issubclass(kind, _ALIKE):
        return np.arange(len(cells)), list(cells)
    codes, values = pd.factorize(cells)
    return codes.astype(np.int64), list(values)


def text_of(value: Any) -> str:
    """How a value is written: the same by whatever library it was made."""
    if isinstance(value, str):
        return value
    scalar: Any = {np.datetime64: pd.Timestamp, datetime.datetime: pd.Timestamp}.get(type(value))
    if isinstance(value, np.timedelta64 | datetime.timedelta):
        scalar = pd.Timedelta
    if scalar is not None:
        with suppress(ValueError, OverflowError):  # beyond what pandas can hold
            value = scalar(value)
    return str(plain_number(value))


def usable_text_of(value: Any) -> str | None:
    """The same; None where it is none that could be released as a category."""
    if type_of(value) == OTHER:
        return None
    try:
        text = text_of(value)
    except (ValueError, ArithmeticError):  # a number of more digits than Python writes, a Decimal that signals
        return None
    return None if not text.isascii() and _HALF.search(text) else text


def without_unusable(series: pd.Series[Any]) -> pd.Series[Any]:
    """With holes where a cell holds what can be neither compared nor looked up."""
    if series.dtype != object:
        return series
    bad = np.fromiter((not _is_value(cell) for cell in series), bool, len(series))
    return series.mask(bad) if bad.any() else series


def _is_value(cell: Any) -> bool:
    if isinstance(cell, Decimal):
        return not cell.is_snan()
    return pd.api.types.is_hashable(cell)


# -- labels -----------------------------------------------------------------------------------------------------------


def labels_of(series: pd.Series[Any], column: Column, rule: str = "must hold the schema's categories only") -> Index:
    """(n,) numbers of the column's categories, −1 for holes; any other value is refused, and so are several types."""
    values = Values.from_series(series, column.name)
    codes: Index = values.map(_code_of(column), -1, np.int64)
    if column.searched:  # its last category stands for all that were not found
        others = len(column.categories) - 1
        codes = np.where((codes < 0) & (values.codes >= 0), others, codes)
        absent = category_codes_by_text(column).get(ABSENT, others) if column.missing == "refuse" else -1
        return np.where(codes < 0, absent, codes)
    if column.out_of_range == "missing":
        return codes
    refuse_rows(
        (codes < 0) & (values.codes >= 0),
        column.name,
        rule,
        "add the category to the schema where it is in the codebook, correct the rows, or choose that they become "
        'holes: out_of_range = "missing"',
    )
    refuse_mixture(values, column.name, column.categories)
    return codes


def _code_of(column: Column) -> Callable[[Any], int]:
    exact = {(type_of(label), label): code for code, label in enumerate(column.categories)}
    written = category_codes_by_text(column)

    def code(value: Any) -> int:
        kind, plain = type_of(value), plain_number(value)
        if isinstance(value, float | np.floating) and not abs(float(value)) < MAX_WHOLE:
            return -1  # which whole number it was before it became a float nobody knows
        number = exact.get((kind, plain))
        if number is None and (text := usable_text_of(value)) is not None:
            number = written.get(text)
        if number is None and kind == TRUTH:
            number = exact.get((NUMBER, int(plain)))
        if number is None and kind == NUMBER and plain in (0, 1):
            number = exact.get((TRUTH, bool(plain)))
        return -1 if number is None else number

    return code


def category_codes_by_text(column: Column) -> dict[str, int]:
    """Category codes by how they are written; a text comes before a number that is written the same."""
    codes = {str(label): code for code, label in reversed(list(enumerate(column.categories)))}
    return codes | {label: code for code, label in enumerate(column.categories) if isinstance(label, str)}


def plain_number(value: Any) -> Any:
    """Numbers of any library as Python's, whole ones as int; dates and the rest as they are."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return value
    if isinstance(value, Decimal) and value.is_nan():
        return float("nan")
    if isinstance(value, Decimal | Fraction):
        size = _number(value)
        value = int(value) if np.isfinite(size) and value == int(value) else size
    return plain_value(value)


def refuse_mixture(values: Values, name: str, labels: Sequence[Label] = ()) -> None:
    """Values of several types in one column, other than those that its labels are declared in."""
    rows_of = values.rows_by_type()
    if len(rows_of) < 2 or set(rows_of) <= {type_of(label) for label in labels}:
        return
    counts = "; ".join(f"{kind} in {count_rows(rows)}" for kind, rows in rows_of.items())
    raise CohortError(
        f"column {name!r}",
        "must hold values of one type",
        found=counts,
        fix="make them one type where the table is made, as the schema declares it",
    )


# -- numbers ----------------------------------------------------------------------------------------------------------


def numbers_of(series: pd.Series[Any], name: str, *, forgives: bool = False, censored: bool = False) -> Floats:
    """(n,) float64 (float32 stays), holes NaN; a value that is no number is refused, or is a hole too.

    With `censored` a text may be a number behind the sign of a limit.
    """
    if series.dtype == np.float32:  # as it is: a wide omics table twice as large would be the peak of a run's memory
        return series.to_numpy()  # type: ignore[return-value]
    if pd.api.types.is_integer_dtype(series) or pd.api.types.is_float_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    values = Values.from_series(series, name)
    of_text = number_or_limit if censored else number_in
    read: Floats = values.map(lambda value: _number(value, of_text), np.nan, np.float64)
    bad = np.isnan(read) & (values.codes >= 0)
    if bad.any() and not forgives:
        kinds = [kind for kind, rows in values.rows_by_type().items() if (rows & bad).any()]
        limits = bad & ~np.isnan(values.map(lambda value: _number(value, number_or_limit), np.nan, np.float64))
        refuse_rows(
            bad,
            name,
            "must be numbers",
            "say that limits such as <1 are read as numbers (censored = true, in the column's section of the schema)"
            if limits[bad].all()
            else "correct the rows, or name the text that marks a hole (--missing-marker)",
            found=" and ".join("text" if kind == TEXT else kind for kind in kinds),
        )
    return read


def _number(value: Any, of_text: Callable[[str], float] = number_in) -> float:
    """NaN: it is none."""
    kind = type_of(value)
    if kind == TEXT:
        return of_text(value)
    if kind != NUMBER:
        return np.nan
    try:
        return float(value)
    except ValueError:  # a Decimal that signals
        return np.nan
    except OverflowError:
        return np.inf if value > 0 else -np.inf


# -- identifiers ------------------------------------------------------------------------------------------------------


def identifiers_of(series: pd.Series[Any], name: str) -> tuple[Index, tuple[str, ...]]:
    """Whose row each is, (n,) numbers, and the text that each number stands for."""
    refuse_absent(series, name)
    values = Values.from_series(series, name)
    refuse_rows(
        values.map(_has_point, False, bool),
        name,
        "identifiers must be texts or whole numbers",
        "give them as they were issued: read the column as text, e.g. dtype={name: str}",
        found=f"floats or decimals ({series.dtype})",
    )
    texts = np.empty(len(values.distinct), object)  # 7 and "7" are one person
    texts[:] = [text_of(value) for value in values.distinct]
    codes, known = pd.factorize(texts[values.codes])
    return codes.astype(np.int64), tuple(map(str, known))


def _has_point(value: Any) -> bool:
    return type_of(value) == NUMBER and not isinstance(value, numbers.Integral)


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse_nested(series: pd.Series[Any], name: str) -> None:
    if series.dtype == object:
        nested = ~np.fromiter(map(pd.api.types.is_hashable, series), bool, len(series))
        refuse_rows(
            nested,
            name,
            "must hold texts or numbers",
            "drop it, or make one column of each part",
            found="nested values",
        )


def refuse_holes(series: pd.Series[Any], name: str) -> None:
    refuse_rows(
        series.isna().to_numpy(),
        name,
        "has missing values but no policy for them",
        'declare one in the schema: missing = "constant", "category" or "indicator"',
        found="missing values",
    )


def refuse_absent(series: pd.Series[Any], name: str) -> None:
    """Of outcomes and identifiers, which no policy fills."""
    refuse_rows(
        series.isna().to_numpy(),
        name,
        "must be known in every row",
        "complete these rows, or drop them before; the schema has no policy for this column's holes",
        found="missing values",
    )


def refuse_rows(bad: Flags, name: str, rule: str, fix: str = "correct or drop these rows", found: str = "") -> None:
    if bad.any():
        where = f"{found + ' in ' if found else ''}{count_rows(bad)}"
        raise CohortError(f"column {name!r}", rule, found=where, fix=fix)


def count_rows(bad: Flags) -> str:
    rows = int(np.count_nonzero(bad))
    return f"{rows} row{'s' if rows > 1 else ''}, first at row {int(np.argmax(bad)) + 1}"
