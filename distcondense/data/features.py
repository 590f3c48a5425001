"""The features of a table, checked column by column: what a value becomes depends on it and the schema alone.

Everything wrong with a table is said at once, without a patient's value: the column, the rule, how many rows break it
and the first such row's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.dates import numbers_of_dates
from distcondense.data.missing import without_codes
from distcondense.data.schema import Column, Schema
from distcondense.data.values import Values, labels_of, numbers_of, plain_number, refuse_holes, refuse_rows
from distcondense.errors import CohortError


def check_features(features: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The schema's columns in its order, with legal dtypes (uncopied where they are so already).

    Every problem of every column is in one error.
    """
    out: dict[str, Any] = {}
    problems: list[str] = []
    for column in schema.columns:
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
    series = without_codes(series, column)
    if column.missing == "refuse":
        refuse_holes(series, column.name)
    if column.numeric:
        values = numbers_of_dates(series, column) if column.kind == "date" else numbers_of(series, column.name)
        present = ~np.isnan(values)
        refuse_rows(np.isinf(values), column.name, "must be finite")
        if column.kind == "integer":
            refuse_rows(
                present & (values != np.round(values)),
                column.name,
                "must be whole numbers",
                'make its kind "continuous"',
            )
        if column.low is not None and column.high is not None and not column.searched:
            outside = present & ((values < column.low) | (values > column.high))
            refuse_rows(
                outside,
                column.name,
                f"must be within the schema's bounds {_bounds(column)}",
                "if these are codes for missing (-9, 999 …), name them: missing_values = [-9, 999]; else correct the "
                "rows, or widen the bounds",
            )
        return values
    return _texts(series, column) if column.unknown else _labels(series, column)


def _bounds(column: Column) -> str:
    entry = column.to_dict()  # dates as dates
    return f"[{entry['low']}, {entry['high']}]"


def _texts(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """A column of categories that nobody has listed yet: each value's own text, whatever stands beside it."""
    values = Values.from_series(series, column.name)
    texts = [value if isinstance(value, str) else str(plain_number(value)) for value in values.distinct]
    known = sorted(set(texts))
    place = {text: code for code, text in enumerate(known)}
    codes = np.array([*(place[text] for text in texts), -1], np.int64)[values.codes]
    return pd.Categorical.from_codes(codes, categories=known)  # type: ignore[call-overload]


def _labels(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """The column as a Categorical over the schema's categories."""
    return pd.Categorical.from_codes(labels_of(series, column), categories=list(column.categories))  # type: ignore[call-overload]


def some_names(names: Iterable[str], most: int = 8) -> str:
    names = [repr(n) for n in names]
    return ", ".join(names[:most]) + (f" … and {len(names) - most} more" if len(names) > most else "")
