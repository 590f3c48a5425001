"""The features of a table, checked column by column: what a value becomes depends on it and the schema alone.

Everything wrong with a table is said at once, without a patient's value: the column, the rule, how many rows break it
and the first such row's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Floats
from distcondense.data.schema import Column, Schema, plain_value
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
    if problems:
        if len(problems) == 1:
            raise CohortError("table", "must fit its schema", found=problems[0])
        shown = "".join(f"\n  - {p}" for p in problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise CohortError("table", "must fit its schema", found=f"{len(problems)} problems:{shown}{more}")
    return pd.DataFrame(out, copy=False)


def _check_column(series: pd.Series[Any], column: Column) -> Any:
    if column.missing == "refuse":
        refuse_holes(series, column.name)
    if column.numeric:
        values = numbers_of(series, column.name)
        present = ~np.isnan(values)
        refuse_rows(np.isinf(values), column.name, "must be finite")
        if column.kind == "integer":
            refuse_rows(
                present & (values != np.round(values)),
                column.name,
                "must be whole numbers",
                'make its kind "continuous"',
            )
        if column.low is not None and column.high is not None:
            outside = present & ((values < column.low) | (values > column.high))
            refuse_rows(
                outside,
                column.name,
                f"must be within the schema's bounds [{column.low}, {column.high}]",
                "correct the rows, clip them, or widen the bounds",
            )
        return values
    return _labels(series, column)


def _labels(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """The column as a Categorical over the schema's categories; text and numbers that read the same are the same."""
    refuse_nested(series, column.name)
    holes = series.isna().to_numpy()
    known = category_codes_by_label(column)
    codes, uniques = pd.factorize(series)
    lookup = np.array(
        [known.get(plain_value(u), known.get(str(plain_value(u)), -1)) for u in uniques] + [-1], dtype=np.int64
    )
    coded = lookup[codes]
    refuse_rows(
        (coded < 0) & ~holes,
        column.name,
        "must hold the schema's categories only",
        "add the category to the schema, or correct the rows",
    )
    return pd.Categorical.from_codes(coded, categories=list(column.categories))  # type: ignore[call-overload]


def category_codes_by_label(column: Column) -> dict[Any, int]:
    """Category codes by label, and by the label's text."""
    known: dict[Any, int] = {}
    for code, category in enumerate(column.categories):
        known[category] = code
        known.setdefault(str(category), code)
    return known


def numbers_of(series: pd.Series[Any], name: str) -> Floats:
    if series.dtype == np.float32:  # as it is: a wide omics table twice as large would be the peak of a run's memory
        return series.to_numpy()  # type: ignore[return-value]
    if pd.api.types.is_numeric_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    refuse_rows(
        np.isnan(numbers) & ~series.isna().to_numpy(),
        name,
        "must be numbers",
        "correct the rows, or name the text that marks a hole (--missing-marker)",
        found="text",
    )
    return numbers


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


def refuse_rows(bad: Flags, name: str, rule: str, fix: str = "correct or drop these rows", found: str = "") -> None:
    if bad.any():
        rows = int(np.count_nonzero(bad))
        count = f"{found + ' in ' if found else ''}{rows} row{'s' if rows > 1 else ''}"
        where = f"{count}, first at row {int(np.argmax(bad)) + 1}"
        raise CohortError(f"column {name!r}", rule, found=where, fix=fix)


def some_names(names: Iterable[str], most: int = 8) -> str:
    names = [repr(n) for n in names]
    return ", ".join(names[:most]) + (f" … and {len(names) - most} more" if len(names) > most else "")
