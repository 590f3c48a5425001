"""Codes for missing values (`missing_values = [-9, 999, "?"]`): holes before bounds are checked, each value on its own.

Typical codes that stand far from the rest of a column are counted for the custodian's screen; they come from a fixed
public list, so that no patient's value is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.csv_table import number_in, read_cell
from distcondense.data.schema import Column, Label, Schema
from distcondense.data.values import NUMBER, TEXT, Values, plain_number, type_of

NUMBER_CODES = (-9, -99, -999, -9999, -1, -8, -7, 99, 999, 9999, 99999, 888, 8888)
TEXT_CODES = ("?", "-", ".", "n/a", "unknown", "unk", "not known", "missing", "not recorded")
SYMBOLS = ("?", "-", ".")  # of them no answer in any list of categories
FEWEST = 2  # rows that hold a code before it is one
FAR = 0.99  # the rest of a column is what lies within this quantile


def without_codes(series: pd.Series[Any], column: Column) -> pd.Series[Any]:
    """The column with its codes turned into holes.

    A number's codes are compared as the float64 that its values become, however the table holds them: a CSV column of
    decimals has no others. Answers are compared exactly.
    """
    if not column.missing_values:
        return series
    numbers = number_codes(column)
    if column.numeric and pd.api.types.is_numeric_dtype(series):
        return series.mask(np.isin(series.to_numpy(np.float64, na_value=np.nan), list(numbers)))
    if pd.api.types.is_integer_dtype(series):  # NumPy's own have no holes: floats would be made of them, and rounded
        kind: Any = pd.UInt64Dtype() if pd.api.types.is_unsigned_integer_dtype(series) else pd.Int64Dtype()
        limits = np.iinfo(kind.numpy_dtype)
        whole = [int(code) for code in numbers if code == int(code) and limits.min <= code <= limits.max]
        exact = series.astype(kind)
        return exact.mask(exact.isin(whole).to_numpy(bool))
    if pd.api.types.is_float_dtype(series):
        floats = [float(code) for code in numbers if float(code) == code]
        return series.mask(np.isin(series.to_numpy(np.float64, na_value=np.nan), floats))
    texts = {str(code) for code in column.missing_values}

    def coded(value: Any) -> bool:
        if isinstance(value, str):
            if value.strip() in texts:
                return True
            value = read_cell(value)
        return type_of(value) == NUMBER and compared(value, column) in numbers

    return series.mask(Values.from_series(series, column.name).map(coded, False, bool))


def compared(value: Any, column: Column) -> int | float:
    """A number as codes are compared with it."""
    number = plain_number(value)
    if not column.numeric:
        return number
    try:
        return float(number)
    except OverflowError:
        return np.inf


def number_codes(column: Column) -> frozenset[int | float]:
    """Its codes that are numbers, each as it is; of numbers, texts that are one too, as a CSV cannot tell them."""
    codes = [code for code in column.missing_values if type_of(code) == NUMBER]
    if column.numeric:
        codes += [number_in(code) for code in column.missing_values if isinstance(code, str)]
    return frozenset(compared(code, column) for code in codes if np.isfinite(float(code)))


def texts_of_codes(schema: Schema) -> dict[str, list[str]]:
    """Codes that are texts and no number, by column: a reader must know them before it takes one for numbers."""
    return {
        c.name: texts
        for c in schema.columns
        if (texts := [v for v in c.missing_values if isinstance(v, str) and np.isnan(number_in(v))])
    }


# -- hints ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hint:
    """That a column holds what looks like a code."""

    column: str
    code: Label
    rows: int

    def __str__(self) -> str:
        code = f'"{self.code}"' if isinstance(self.code, str) else f"{self.code}"
        return f"column {self.column}: {self.rows} rows hold {code}: a code for missing? missing_values = [{code}]"


def far_codes(name: str, values: Floats) -> list[Hint]:
    """Numbers of the public list that lie beyond the rest of a column, or below zero where the rest does not."""
    there = values[np.isfinite(values)]
    rest = there[~np.isin(there, NUMBER_CODES)]
    if len(rest) == 0:
        return []
    low, middle, high = (float(q) for q in np.quantile(rest, (1 - FAR, 0.5, FAR)))
    hints = []
    for code in NUMBER_CODES:
        rows = int(np.count_nonzero(there == code))
        below = code < 0 and float(rest.min()) >= 0 and code < low - (middle - low) * (code > -9)
        above = code > 0 and code > high + max(high - middle, 1.0)
        if rows >= FEWEST and (below or above):
            hints.append(Hint(name, code, rows))
    return hints


def text_codes(name: str, series: pd.Series[Any], codes: Sequence[str] = TEXT_CODES) -> list[Hint]:
    """Texts of the public list, however they are written."""
    texts = series.dropna()
    texts = texts[[isinstance(value, str) for value in texts]]
    counts = texts.str.strip().value_counts()
    return [Hint(name, str(text), int(rows)) for text, rows in counts.items() if str(text).casefold() in codes]


def hints(frame: pd.DataFrame, schema: Schema) -> list[Hint]:
    """Codes that a table seems to hold and its schema does not name."""
    suspected: list[Hint] = []
    for column in schema.columns:
        if column.name not in frame or column.kind == "date":
            continue
        series = without_codes(frame[column.name], column)
        if not column.numeric:
            known = {str(category) for category in column.categories} - set(SYMBOLS)
            suspected += [hint for hint in text_codes(column.name, series) if str(hint.code) not in known]
            continue
        numbers = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        suspected += far_codes(column.name, numbers)
        suspected += text_codes(column.name, series) if type_of_series(series) == TEXT else []
    return suspected


def type_of_series(series: pd.Series[Any]) -> str:
    return TEXT if series.dtype == object else NUMBER
