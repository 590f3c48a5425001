"""The features of a table, checked column by column: what a value becomes depends on it and the schema alone.

Everything wrong with a table is said at once, without a patient's value: the column, the rule, how many rows break it
and the first such row's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.dates import numbers_of_dates
from distcondense.data.missing import without_codes
from distcondense.data.schema import Column, Schema
from distcondense.data.values import (
    ABSENT,
    Values,
    labels_of,
    numbers_of,
    refuse_holes,
    refuse_rows,
    usable_text_of,
    without_unusable,
)
from distcondense.errors import CohortError

CHOICE = (
    'choose in the schema what becomes of such values: out_of_range = "clip" (the nearest legal one) or "missing" (a '
    "hole)"
)


def check_features(features: pd.DataFrame, schema: Schema, *, nearest: bool = False) -> pd.DataFrame:
    """The schema's columns in its order, with legal dtypes (uncopied where they are so already).

    Every problem of every column is in one error. `nearest`, for rows that a model is applied to: a number out of
    bounds is the nearest legal one, and a category that the schema does not have is a hole, where there may be holes.
    """
    out: dict[str, Any] = {}
    problems: list[str] = []
    for column in schema.columns:
        if nearest:
            kept = column.out_of_range if column.missing == "refuse" else "missing"
            column = replace(column, out_of_range="clip" if column.numeric else kept)
        try:
            out[column.name] = _check_column(features[column.name], column)
        except CohortError as error:
            problems.append(str(error))
        except ArithmeticError:  # a Decimal that signals wherever it is compared
            problems.append(f"column {column.name!r}: must hold numbers that can be compared. Found a signalling NaN")
    if problems:
        if len(problems) == 1:
            raise CohortError("table", "must fit its schema", found=problems[0])
        listed = "".join(f"\n  - {p}" for p in problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise CohortError("table", "must fit its schema", found=f"{len(problems)} problems:{listed}{more}")
    return pd.DataFrame(out, copy=False)


def _check_column(series: pd.Series[Any], column: Column) -> Any:
    if column.forgives:
        series = without_unusable(series)
    series = without_codes(series, column)
    if column.missing == "refuse" and not column.searched:
        refuse_holes(series, column.name)
    if column.numeric:
        read = numbers_of_dates(series, column) if column.kind == "date" else _numbers(series, column)
        return _mended(read, column) if column.searched or column.out_of_range != "refuse" else _legal(read, column)
    return _texts(series, column) if column.unknown else _labels(series, column)


def _numbers(series: pd.Series[Any], column: Column) -> Floats:
    return numbers_of(series, column.name, forgives=column.forgives, censored=column.censored)


def _legal(values: Floats, column: Column) -> Floats:
    """Numbers that its kind and bounds allow, or the table is refused."""
    present = ~np.isnan(values)
    refuse_rows(np.isinf(values), column.name, "must be finite", f"correct these rows, or {CHOICE}")
    if column.kind == "integer":
        refuse_rows(
            present & (values != np.round(values)),
            column.name,
            "must be whole numbers",
            f'make its kind "continuous", or {CHOICE}',
        )
    if column.low is not None and column.high is not None:
        refuse_rows(
            present & ((values < column.low) | (values > column.high)),
            column.name,
            f"must be within the schema's bounds {_bounds(column)}",
            "if these are codes for missing (-9, 999 …), name them: missing_values = [-9, 999]; else correct the "
            f"rows, or {CHOICE}. Bounds that are widened to fit the rows are read off patients",
        )
    return values


def _mended(values: Floats, column: Column) -> Floats:
    """(n,) float64: what is not legal is the nearest legal number or a hole, each by itself and the schema alone."""
    values = np.asarray(values, np.float64)
    low, high = column.limits
    whole = np.round(values) if column.whole else values
    if column.out_of_range == "missing":
        return np.where((whole == values) & (values >= low) & (values <= high), values, np.nan)
    nearest = np.clip(whole, low, high)
    if column.searched and column.missing == "refuse":  # then a public number stands for a hole
        nearest = np.where(np.isnan(nearest), column.stand_in, nearest)
    return nearest


def _bounds(column: Column) -> str:
    entry = column.to_dict()  # dates as dates
    return f"[{entry['low']}, {entry['high']}]"


def _texts(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """A column of categories that nobody has listed yet: each value's own text, whatever stands beside it."""
    values = Values.from_series(series, column.name)
    texts = [*map(usable_text_of, values.distinct), None]
    if column.missing == "refuse" and None in {texts[code] for code in set(values.codes.tolist())}:
        texts = [ABSENT if text is None else text for text in texts]
    known = sorted({text for text in texts if text is not None})
    place = {text: code for code, text in enumerate(known)}
    codes = np.array([-1 if text is None else place[text] for text in texts], np.int64)[values.codes]
    return pd.Categorical.from_codes(codes, categories=known)  # type: ignore[call-overload]


def _labels(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """The column as a Categorical over the schema's categories."""
    return pd.Categorical.from_codes(labels_of(series, column), categories=list(column.categories))  # type: ignore[call-overload]


def some_names(names: Iterable[str], most: int = 8) -> str:
    names = [repr(n) for n in names]
    return ", ".join(names[:most]) + (f" … and {len(names) - most} more" if len(names) > most else "")
