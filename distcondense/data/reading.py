"""A CSV, cell by cell: what a row says depends on its own text and the schema, not on the other rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.csv_table import decimal_of, number_in, number_or_limit, read_cell
from distcondense.data.dialect import POINT, Dialect
from distcondense.data.missing import texts_of_codes
from distcondense.data.outcome import ReadableKind
from distcondense.data.schema import Column, Label, Schema
from distcondense.data.tables import MISSING_MARKERS, read_table
from distcondense.data.values import category_codes_by_text, refuse_rows


def read_csv_cells(
    path: str | Path,
    schema: Schema | None,
    *,
    kind: ReadableKind | None = None,
    person_id: str | None = None,
    ignore: Iterable[str] = (),
    exact: Iterable[str] = (),
    missing_markers: Sequence[str] = MISSING_MARKERS,
    dialect: Dialect | None = None,
) -> pd.DataFrame:
    """A CSV with the schema's labels and numbers, every cell read from its own text and the schema alone.

    A label is the one written exactly so, else the one that is the number (or true, false) the text stands for; any
    other text stays, and is refused by the checks. Person ids stay as they are written, and so do columns `exact`,
    which are no features and have no holes. Columns that neither the schema nor an argument names are read as pandas
    reads them: nothing but `Schema.infer` looks at those.
    """
    exact, ignore = tuple(exact), tuple(ignore)
    roles = {} if kind is None else dict(zip(kind.roles, kind.names, strict=True))
    outcome_numbers = set() if kind is None else {roles[role] for role in kind.numeric_roles}
    outcome_labels = set() if kind is None else set(kind.names) - outcome_numbers
    aside = {*outcome_labels, person_id, *ignore, *exact}
    features = () if schema is None else tuple(c for c in schema.columns if c.name not in aside | outcome_numbers)
    labelled = [c for c in features if not c.numeric]
    dates = {c.name for c in features if c.kind == "date"} | {source for c in features for source in c.sources}
    censored = {c.name for c in features if c.censored}
    text = {c.name for c in labelled} | dates | censored | outcome_labels
    text |= {person_id} if person_id is not None else set()
    numbers = {c.name for c in features if c.numeric and not c.computed} - dates - censored | outcome_numbers
    names = () if schema is None else schema.in_table
    holes = None if schema is None else texts_of_codes(schema)
    asked = {*names, *(() if kind is None else kind.names), *ignore, *exact, *([person_id] if person_id else [])}
    frame = read_table(
        path,
        missing_markers=missing_markers,
        text=text,
        numbers=numbers,
        exact=exact,
        asked=asked,
        holes=holes,
        dialect=dialect,
    )
    decimal = decimal_of(frame)
    for column in labelled:
        if column.name in frame:
            frame[column.name] = _each_text(frame[column.name], _label_of(column, decimal))
    marks = {number for text in missing_markers if (number := number_in(text)) == number}
    for name in censored & set(frame.columns):
        frame[name] = _each_text(frame[name], lambda text: _number_or_text(text, decimal, marks))
    for label in outcome_labels - {person_id}:
        if label in frame:
            declared = None if kind is None else kind.declared
            text_of = frame[label]
            frame[label] = (
                _undeclared_label(text_of, label, decimal)
                if declared is None
                else _each_text(text_of, _label_of(declared, decimal))
            )
    return frame


def _label_of(column: Column, decimal: str = POINT) -> Callable[[str], Label]:
    """From a cell's text to the column's label, or to the same text where there is none."""
    written = category_codes_by_text(column)
    numbers = {label: code for code, label in enumerate(column.categories) if not isinstance(label, str)}

    def read(text: str) -> Label:
        code = written.get(text)
        if code is None:
            value = read_cell(text, decimal)
            code = None if isinstance(value, str) else numbers.get(value)
        return text if code is None else column.categories[code]

    return read


def _number_or_text(text: str, decimal: str, marks: Collection[float]) -> Label:
    """The number of a cell that may be a limit; what is none stays, and is refused or a hole as the schema says.

    `marks`: numbers that stand for a hole, however they are written.
    """
    if number_in(text, decimal) in marks:
        return np.nan
    number = number_or_limit(text, decimal)
    return text if np.isnan(number) else number


def _undeclared_label(series: pd.Series[Any], name: str, decimal: str) -> pd.Series[Any]:
    """Numbers, or true and false, where all cells are; else texts. For methods that take labels off the rows."""
    read = _each_text(series, lambda text: read_cell(text, decimal))
    if read.map(lambda v: isinstance(v, str)).any():
        return series
    words = read.map(lambda v: isinstance(v, bool)).to_numpy(dtype=bool)
    numbers = read.map(lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == v).to_numpy(dtype=bool)
    if words.any():  # else one row would decide whether everybody's outcome is released as true/false or as 0/1
        refuse_rows(numbers, name, "must be all true/false or all numbers", found="both")
    return read.infer_objects()


def _each_text(series: pd.Series[Any], read: Callable[[str], Label]) -> pd.Series[Any]:
    """`read` of every cell, holes left; each distinct text is read once."""
    codes, uniques = pd.factorize(series)
    values = np.empty(len(uniques) + 1, dtype=object)  # the last one is for holes, whose code is -1
    values[:-1] = [read(str(text)) for text in uniques]
    values[-1] = np.nan
    return pd.Series(values[codes], index=series.index, name=series.name, dtype=object)
