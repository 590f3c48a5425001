"""Dates as whole numbers from a public origin, and back; ages and durations computed from them, each row on its own.

What a date becomes depends on its own text (or typed value), the column's `format`, `origin` and `unit`, never on
another row: no format is guessed from a column's other cells.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.errors import CohortError

if TYPE_CHECKING:
    from distcondense.data.column import Column
    from distcondense.data.schema import Schema

ISO = "%Y-%m-%d"
EPOCH = "1970-01-01"
UNITS = {
    "days": dt.timedelta(days=1),
    "hours": dt.timedelta(hours=1),
    "minutes": dt.timedelta(minutes=1),
    "seconds": dt.timedelta(seconds=1),
}
COMMON = (
    ISO,
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%Y%m%d",
    "%d/%m/%y",
    "%d.%m.%y",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%d.%m.%Y %H:%M",
)
_BETWEEN = re.compile(r"\s*(\w+)_between\(\s*(`[^`]+`|\w+)\s*,\s*(`[^`]+`|\w+)\s*\)\s*")


def moment(value: Any, form: str = ISO) -> dt.datetime | None:
    """One value as a moment without a time zone (UTC where it has one); None where it is no date."""
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    if value is pd.NaT:
        return None
    if isinstance(value, dt.datetime):  # pandas' timestamps too
        stamp = value.to_pydatetime(warn=False) if isinstance(value, pd.Timestamp) else value
        try:
            return stamp if stamp.tzinfo is None else stamp.astimezone(dt.UTC).replace(tzinfo=None)
        except OverflowError:  # in UTC it lies before the year 1 or after 9999
            return None
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, str):
        return None
    try:
        return dt.datetime.strptime(value.strip(), form)
    except ValueError:
        return None


def declared(value: Any) -> dt.datetime | None:
    """A date of a schema file: TOML's own, or a text in ISO 8601."""
    try:
        return moment(dt.datetime.fromisoformat(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def readable(form: str) -> bool:
    """Whether dates can be written in this format, and read again."""
    try:
        dt.datetime.strptime(dt.datetime(2001, 2, 3).strftime(form), form)
    except (ValueError, re.error):  # re.error: the same field twice
        return False
    return True


def since(value: dt.datetime, origin: dt.datetime, unit: str) -> float:
    """Whole units from the origin, rounded down."""
    return float((value - origin) // UNITS[unit])


def at(number: float, column: Column) -> dt.datetime:
    """The moment that a number of this column is; OverflowError where no calendar has it."""
    origin = declared(column.origin)
    assert origin is not None
    return origin + int(number) * UNITS[column.unit or "days"]


def numbers_of_dates(series: pd.Series[Any], column: Column) -> Floats:
    """(n,) whole units from the column's origin, NaN for a hole; a value that is no such date is refused."""
    origin, unit = declared(column.origin), column.unit or "days"
    assert origin is not None

    def read(value: Any) -> float:
        date = moment(value, column.format or ISO)
        return np.nan if date is None else since(date, origin, unit)

    return _read(series, column.name, column.format, read, forgives=column.forgives)


def written_dates(column: Column, numbers: pd.Series[Any]) -> pd.Series[Any]:
    """As the column's format writes them; holes stay."""
    form = column.format or ISO
    return numbers.astype("Float64").astype(object).map(lambda n: at(n, column).strftime(form), na_action="ignore")


def with_dates(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """A condensed table's features with dates written as dates."""
    dates = {c.name: written_dates(c, frame[c.name]) for c in schema.columns if c.kind == "date" and c.name in frame}
    return frame.assign(**dates) if dates else frame


def _read(
    series: pd.Series[Any], name: str, form: str, read: Callable[[Any], float], *, forgives: bool = False
) -> Floats:
    from distcondense.data.values import Values, refuse_rows

    values = Values.from_series(series, name)
    numbers: Floats = values.map(read, np.nan, np.float64)
    refuse_rows(
        np.isnan(numbers) & (values.codes >= 0) & (not forgives),
        name,
        f"must be dates written as {form or ISO}",
        "correct the rows, state the column's format, or name codes for missing (missing_values)",
    )
    return numbers


# -- computed from dates ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Between:
    """`years_between(birth, admitted)`: completed years, months, days or hours from the first date to the second."""

    unit: str
    start: str
    end: str

    @classmethod
    def parse(cls, text: str) -> Between | None:
        """None where the text is no such formula."""
        match = _BETWEEN.fullmatch(text)
        if match is None or match[1] not in ("years", "months", "days", "hours"):
            return None
        return cls(match[1], match[2].strip("`"), match[3].strip("`"))

    @property
    def names(self) -> tuple[str, str]:
        return self.start, self.end

    def between(self, start: dt.datetime, end: dt.datetime) -> float:
        if self.unit in ("days", "hours"):
            return float((end - start) // UNITS[self.unit])
        months = (end.year - start.year) * 12 + end.month - start.month
        months -= (end.day, end.time()) < (start.day, start.time())  # the month is not over yet
        return float(months // 12 if self.unit == "years" else months)


def with_computed(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with the columns that the schema computes from its dates; a hole in either date is a hole."""
    computed = {c.name: Between.parse(c.computed) for c in schema.columns if c.computed}
    out: dict[str, Any] = {}
    for name, how in computed.items():
        assert how is not None  # `Schema` refused it
        if name in frame:
            raise CohortError(
                f"column {name!r}",
                "is computed from dates, and must not stand in the table too",
                found="both",
                fix="take `computed` out of the schema, or rename the column in it",
            )
        ends = [_moments(frame, source, schema, forgives=schema[name].forgives) for source in how.names]
        both = zip(*ends, strict=True)
        out[name] = np.array([np.nan if a is None or b is None else how.between(a, b) for a, b in both])
    return frame.assign(**out) if out else frame


def _moments(frame: pd.DataFrame, name: str, schema: Schema, *, forgives: bool) -> list[dt.datetime | None]:
    """The dates that a column is computed from; what is none is a hole where that column forgives it."""
    from distcondense.data.missing import without_codes
    from distcondense.data.values import Values, without_unusable

    column = next(c for c in (*schema.columns, *schema.ignored) if c.name == name)
    if name not in frame:
        raise CohortError(
            f"column {name!r}", "must be in the table: another is computed from it", found="none", fix="check the name"
        )
    series = without_codes(without_unusable(frame[name]) if forgives else frame[name], column)
    _read(
        series,
        name,
        column.format,
        lambda value: np.nan if moment(value, column.format or ISO) is None else 0.0,
        forgives=forgives,
    )
    values = Values.from_series(series, name)
    known = [*(moment(value, column.format or ISO) for value in values.distinct), None]
    return [known[code] for code in values.codes]


def format_of(texts: list[str]) -> str:
    """The first common format that all of these texts have; "" where none does. For drafts alone."""
    present = [text for text in texts if text.strip()]
    if not present:
        return ""
    return next((form for form in COMMON if all(moment(text, form) is not None for text in present)), "")
