"""A draft of a schema, read off a table for a person to check: kinds, bounds rounded outwards, what to leave out.

A column of identifiers, free text or dates is marked `kind = "ignore"` with the reason, and not one of its values is
listed. What a draft cannot know it asks: `SchemaDraft.hints` are lines for the custodian's screen, with columns and
counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.column import MAX_WHOLE, MOST_NUMBER, Column, Label, plain_value
from distcondense.data.csv_table import number_in
from distcondense.data.dates import ISO, format_of
from distcondense.data.missing import SYMBOLS, TEXT_CODES, Hint, far_codes, text_codes, without_codes
from distcondense.data.names import Names
from distcondense.data.reserved import refuse_reserved
from distcondense.data.schema import Schema
from distcondense.data.tables import refuse_signals
from distcondense.data.values import DATE, Values, type_of
from distcondense.errors import SchemaError

MAX_INFERRED_CATEGORIES = 100  # more distinct texts than this look like identifiers or free text
MAX_SURE_IDENTIFIERS = 20  # more dates, addresses, long numbers than this are no list of categories
MAX_INFERRED_DECIMALS = 6
MAX_CATEGORIES = 1000  # of whatever shape: nobody lists more answers than this
MIN_DIGITS = 6  # of a number that is issued, not measured
_SURE = re.compile(
    r"[^\s@]+@[^\s@]+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|\d{6,}"
    r"|\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(.*_)?(id|ids|mrn|pid|uid|uuid|guid|nhs|ssn|nr|no|number|identifier|e?mail|phone|surname|address)"
)
_BIRTH = re.compile(r"birth|dob|geb|naiss", re.IGNORECASE)


@dataclass(frozen=True)
class SchemaDraft:
    """A schema to check, what to ask about it, and lines that stand below its sections."""

    schema: Schema
    codes: tuple[Hint, ...] = ()  # what seem to be codes for missing
    persons: tuple[str, ...] = ()  # columns that look like identifiers of persons with several rows
    dates: tuple[str, ...] = ()
    comments: dict[str, str] = field(default_factory=dict)
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # of persons' columns: rows, different values

    @property
    def hints(self) -> list[str]:
        """One line each, for the custodian alone."""
        lines = [person_hint(name, *self.counts[name], name) for name in self.persons]
        lines += [f"column {c.name} is ignored: {c.reason}" for c in self.schema.ignored]
        return lines + [str(hint) for hint in self.codes]

    def to_toml(self) -> str:
        return self.schema.to_toml(self.comments)


def person_hint(column: str, rows: int, different: int, name: str = "with its name") -> str:
    return (
        f"column {column} looks like an identifier that repeats ({rows} rows, {different} different): if these are "
        f"persons, say --person-id {name}, or one person's rows count as several people's"
    )


def draft(frame: pd.DataFrame, names: Iterable[str] | None = None, *, codes: bool = True) -> SchemaDraft:
    """Read off these columns of a table. With `codes`, what seem to be codes for missing values are taken as such."""
    if not all(isinstance(name, str) for name in frame.columns):
        frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    refuse_reserved(frame.columns)
    names = list(map(str, frame.columns if names is None else names))
    places = Names(list(frame.columns), ())  # whether its first line is a header nobody has said
    refuse_signals(frame, places.said)
    columns, suspected, comments, dates = list[Column](), list[Hint](), dict[str, str](), list[str]()
    if nameless := [name for name in names if not name.strip()]:
        raise SchemaError(
            places.said(nameless[0]), "must have a name", found="an empty one", fix="name the column, or drop it"
        )
    for name in names:
        series = frame[name]
        form = _date_format(series)
        if form:
            dates.append(name)
            columns.append(Column(name, "ignore", reason="dates: no two patients need share one", format=form))
            comments[name] = _date_comment(name, form, bool(series.isna().any()))
            continue
        hints = _codes_of(name, series) if codes else []
        series = without_codes(series, Column(name, "ignore", missing_values=tuple(hint.code for hint in hints)))
        series = _as_numbers(series) if hints else series
        column = _infer_column(name, series.dropna(), bool(series.isna().any()), places)
        why = _why_not(name, series, column)
        if why:  # never listed: one may be somebody's name
            columns.append(Column(name, "ignore", reason=why))
            continue
        columns.append(replace(column, missing_values=tuple(hint.code for hint in hints)))
        suspected += hints
    if columns and all(column.kind == "ignore" for column in columns):
        raise SchemaError(
            "table",
            "must have a column that is no identifier: no column is left to describe",
            found="; ".join(f"{places.said(c.name)}: {c.reason}" for c in columns),
            fix="check the table, or write the schema by hand",
        )
    schema = Schema(tuple(columns), "inferred")
    births, others = births_and_others(dates)
    if births and others:  # ages may stand for dates of birth
        comments[births[0]] += (
            "\nAn age instead of both dates, which stay ignored:\n"
            '[columns.age]\nkind = "integer"\nlow = 0\nhigh = 120\nunit = "years"\n'
            f'computed = "years_between({births[0]}, {others[0]})"'
        )
    persons = {c.name: repeats(frame[c.name]) for c in schema.ignored if c.name not in dates}
    many = {name: count for name, count in persons.items() if count is not None}
    return SchemaDraft(schema, tuple(suspected), tuple(many), tuple(dates), comments, many)


def repeats(series: pd.Series[Any]) -> tuple[int, int] | None:
    """Rows and different values of a column of identifiers that repeat; None where they do not, or are hardly any."""
    values = Values.from_series(series, str(series.name))
    rows, different = int(np.count_nonzero(values.codes >= 0)), len(values.distinct)
    texts = all(isinstance(v, str) for v in values.distinct)
    long = texts and float(np.mean([len(v.split()) for v in values.distinct] or [0])) > 2  # sentences are nobody's name
    return (rows, different) if MAX_SURE_IDENTIFIERS < different < rows and not long else None


def persons_in(frame: pd.DataFrame, names: Iterable[str], said: Names) -> list[str]:
    """A hint for each of these columns that looks like an identifier of persons with several rows."""
    lines = []
    for name in names:
        series = frame[name]
        if _date_format(series) or not all(map(pd.api.types.is_hashable, series)):
            continue
        try:
            column = _infer_column(name, series.dropna(), False, said)
        except SchemaError:  # no identifiers, and nothing that is read
            continue
        if _why_not(name, series, column) and (count := repeats(series)):
            known = name in said
            lines.append(person_hint(name if known else str(said.place(name)), *count, *([name] if known else [])))
    return lines


def named_like_an_identifier(name: str) -> bool:
    return bool(_NAMED.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()))


def _why_not(name: str, series: pd.Series[Any], column: Column) -> str:
    """Why a column should not be used as it is; empty where it may."""
    if not column.numeric:
        why, many = like_identifiers(column.categories), len(column.categories)
        if why or many > MAX_INFERRED_CATEGORIES or (many > MAX_SURE_IDENTIFIERS and named_like_an_identifier(name)):
            return f"{many} different values{f', {why}' if why else ''}: an identifier or free text?"
        return ""
    if column.kind != "integer":
        return ""
    numbers = np.unique(series.dropna().to_numpy(np.float64))
    issued = numbers.min() >= 10 ** (MIN_DIGITS - 1) and len(str(int(numbers.min()))) == len(str(int(numbers.max())))
    many = len(numbers) > max(MAX_SURE_IDENTIFIERS, 0.1 * len(series))
    if len(numbers) > MAX_SURE_IDENTIFIERS and (named_like_an_identifier(name) or (issued and many)):
        return f"{len(numbers)} different whole numbers, as they are issued and not measured: an identifier?"
    return ""


def _date_format(series: pd.Series[Any]) -> str:
    """How a column writes dates; empty where it holds something else."""
    present = series.dropna()
    if pd.api.types.is_datetime64_any_dtype(present):
        return ISO if len(present) else ""
    if present.dtype != object or not len(present) or not all(map(pd.api.types.is_hashable, present)):
        return ""
    distinct = Values.from_series(present, str(series.name)).distinct
    if all(type_of(value) == DATE for value in distinct):
        return ISO
    if not all(isinstance(value, str) for value in distinct):
        return ""
    return format_of([value for value in distinct if value.strip().casefold() not in TEXT_CODES])


def _date_comment(name: str, form: str, missing: bool) -> str:
    hole = '\nmissing = "indicator"' if missing else ""
    return (
        "To use it as days from a public origin, put this in place of the lines above, with bounds from the protocol\n"
        "or the calendar, never from patients:\n"
        f'[columns.{name}]\nkind = "date"\nformat = "{form}"\nlow = "YYYY-MM-DD"\nhigh = "YYYY-MM-DD"{hole}'
    )


def births_and_others(dates: Iterable[str]) -> tuple[list[str], list[str]]:
    """Columns of dates: those of births, by their names, and the others."""
    births = [name for name in dates if _BIRTH.search(name)]
    return births, [name for name in dates if name not in births]


def _codes_of(name: str, series: pd.Series[Any]) -> list[Hint]:
    """Of numbers, also where they are texts beside a code; of categories the signs that are no answer."""
    if pd.api.types.is_bool_dtype(series):
        return []
    if pd.api.types.is_numeric_dtype(series):
        return far_codes(name, series.to_numpy(np.float64, na_value=np.nan))
    if series.dtype != object or not all(map(pd.api.types.is_hashable, series)):
        return []
    texts = text_codes(name, series)
    rest = without_codes(series, Column(name, "ignore", missing_values=tuple(hint.code for hint in texts)))
    numbers = _as_numbers(rest)
    if numbers is rest:
        return [hint for hint in texts if hint.code in SYMBOLS]
    return texts + far_codes(name, numbers.to_numpy(np.float64))


def _as_numbers(series: pd.Series[Any]) -> pd.Series[Any]:
    """A column of texts that are all numbers, as numbers; any other as it is."""
    if series.dtype != object or not series.notna().any():
        return series
    read = series.map(lambda v: number_in(v) if isinstance(v, str) else np.nan, na_action="ignore").astype(np.float64)
    return read if bool((read.notna() == series.notna()).all()) else series


def like_identifiers(categories: Sequence[Label]) -> str:
    """Why a list of categories looks like one of identifiers, by its length and the shape of most of its entries.

    Empty where it does not. Not one of them is in the words.
    """
    texts = [str(label).strip() for label in categories]
    most = len(texts) / 2
    if len(texts) > MAX_SURE_IDENTIFIERS and sum(bool(_SURE.fullmatch(text)) for text in texts) > most:
        return "most of them dates, addresses, UUIDs or numbers of six digits or more"
    if len(texts) <= MAX_INFERRED_CATEGORIES:
        return ""
    if sum(len(text) > 3 and any(letter.isdigit() for letter in text) for text in texts) > most:
        return "most of them codes with digits, of four letters or more"
    words = [text.replace(",", " ").split() for text in texts]
    if sum(len(parts) > 1 for parts in words) > most and len({part for parts in words for part in parts}) > most:
        return "most of them several words that seldom occur twice, as in names"
    return "more than anybody lists by hand" if len(texts) > MAX_CATEGORIES else ""


def _label(value: Any) -> Label:
    """A value as TOML can hold it: dates and the like as text."""
    value = plain_value(float(value) if isinstance(value, Decimal) else value)
    return value if isinstance(value, str | int | float) else str(value)


def _infer_column(name: str, present: pd.Series[Any], missing: bool, said: Names) -> Column:
    numeric = pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present)
    if pd.api.types.is_complex_dtype(present):
        raise SchemaError(
            said.said(name),
            "must hold texts or real numbers",
            found="complex numbers",
            fix="make two columns of it, or drop it",
        )
    if not numeric:
        if not all(map(pd.api.types.is_hashable, present)):
            raise SchemaError(
                said.said(name),
                "must hold texts or numbers",
                found="lists or other nested values",
                fix="drop it, or make one column of each part",
            )
        categories = tuple(sorted({_label(v) for v in present.astype(object).unique()}, key=str)) or ("unknown",)
        if len(categories) == 2 and not missing:
            return Column(name, "binary", categories=categories)
        return Column(name, "categorical", categories=categories, missing="category" if missing else "refuse")
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size and float(np.abs(values).max()) > MOST_NUMBER / 10:
        raise SchemaError(
            said.said(name),
            f"numbers must lie within ±{MOST_NUMBER / 10:g}",
            found="larger ones",
            fix="correct the rows, or divide them by a unit",
        )
    if values.size == 0:
        return Column(name, "continuous", low=0.0, high=1.0, missing="indicator")
    whole = bool(np.all(values == np.round(values))) and float(np.abs(values).max()) < MAX_WHOLE
    if whole and set(np.unique(values)) == {0.0, 1.0} and not missing:
        return Column(name, "binary", categories=(0, 1))
    decimals = None if whole else _decimals(values, np.float32 if present.dtype == np.float32 else np.float64)
    low, high = _round_out(float(values.min()), float(values.max()), whole, decimals)
    column = Column(
        name,
        "integer" if whole else "continuous",
        low=low,
        high=high,
        missing="indicator" if missing else "refuse",
        decimals=decimals,
    )
    return replace(column, decimals=None) if column.problems() else column


def _decimals(values: Floats, own: Any) -> int | None:
    """The fewest digits after the point that all values have; None where six are not enough."""
    if float(np.abs(values).max()) * 10.0**MAX_INFERRED_DECIMALS > MAX_WHOLE:
        return None
    digits = range(MAX_INFERRED_DECIMALS + 1)
    return next((d for d in digits if np.array_equal(np.round(values, d).astype(own), values.astype(own))), None)


def _round_out(low: float, high: float, whole: bool, decimals: int | None = None) -> tuple[float, float]:
    """Bounds rounded outwards to two significant digits of the range, and no more decimals than the column has."""
    span = high - low or max(abs(high), 1.0)
    unit = 10.0 ** math.floor(math.log10(span) - 1)
    if whole or decimals is not None:
        unit = max(unit, 10.0 ** -(decimals or 0))
    lowest, highest = low, high
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    if high <= low:
        high = low + unit
    digits = max(0, -math.floor(math.log10(unit)))
    if whole:
        return int(low), int(high)
    return min(round(low, digits), lowest), max(round(high, digits), highest)  # float rounding may have gone inwards
