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
from distcondense.data.csv_table import number_in, number_or_limit
from distcondense.data.dates import ISO, format_of
from distcondense.data.missing import SYMBOLS, TEXT_CODES, Hint, far_codes, text_codes, without_codes
from distcondense.data.names import Names
from distcondense.data.reserved import refuse_reserved
from distcondense.data.schema import Schema
from distcondense.data.tables import refuse_shape, refuse_signals
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
    r"(.*_)?(id|ids|mrn|pid|uid|uuid|guid|nhs|ssn|nr|nbr|no|number|identifier|e?mail|phone|surname|address)"
)
_OF_PERSON = re.compile(r"(.*_)?(patients?|subjects?|persons?|participants?|mrn|pid|nhs|ssn|pseudonym)(_.*)?")
_CODE = re.compile(r"(.*_)?(id|ids|code|codes)")
_WRITTEN = re.compile(  # names of columns in which people write what they like, or call people by name
    r"(.*_)?(remarks?|comments?|notes?|text|freetext|letters?|narrative|bemerkung\w*|kommentar\w*|notiz\w*|remarques?"
    r"|commentaires?|name|names|surname|forename|firstname|lastname|doctor|physician|nurse|address|street|e?mail)(_?\d+)?"
)
_PERSON = re.compile(r"[^\W\d_a-z][\w'’-]*\.?,?( [^\W\d_a-z][\w'’-]*\.?)+")  # Anna Schmidt; Schmidt, A.; Dr. Weber
PLAIN_ANSWERS = {"yes", "no", "y", "n", "true", "false", "0", "1", "t", "f", "ja", "nein", "j", "oui", "non"}
MANY_WORDS, LONG_PHRASE = 5, 40  # of one answer: nobody lists sentences in a codebook
SHARE_OF_IDENTIFIERS, MANY_IDENTIFIERS = 0.2, 1000  # different values by row, or at all, of a column named like one
_BIRTH = re.compile(r"birth|dob|geb|naiss", re.IGNORECASE)


@dataclass(frozen=True)
class SchemaDraft:
    """A schema to check, what to ask about it, and lines that stand below its sections."""

    schema: Schema
    codes: tuple[Hint, ...] = ()  # what seem to be codes for missing, and are taken for them
    offers: tuple[Hint, ...] = ()  # answers that may mean missing, and are taken for answers
    aside: dict[str, Column] = field(default_factory=dict)  # what columns would be that are ignored, but for dates
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
        return self.schema.to_toml(comments=self.comments)


def as_objects(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts and dates as Python has them, whatever pandas or Arrow calls their type: a draft looks at values."""
    named = [
        name
        for name in frame.columns[~frame.columns.duplicated(keep=False)]
        if isinstance(dtype := frame[name].dtype, pd.StringDtype)
        or (isinstance(dtype, pd.ArrowDtype) and not pd.api.types.is_numeric_dtype(dtype))
    ]
    return frame.assign(**{name: frame[name].astype(object).where(frame[name].notna(), None) for name in named})


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
    frame = as_objects(frame)
    names = list(map(str, frame.columns if names is None else names))
    places = Names(list(frame.columns), ())  # whether its first line is a header nobody has said
    refuse_shape(frame, places)
    refuse_signals(frame, places.said)
    columns, suspected, offers, dates = list[Column](), list[Hint](), list[Hint](), list[str]()
    comments, aside, written = dict[str, str](), dict[str, Column](), set[str]()
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
            comments[name] = _date_comment(name, form)
            continue
        hints = _codes_of(name, series) if codes else []
        column, why = describe(series, name, [hint.code for hint in hints], places)
        if words := "" if why or column.numeric else like_free_text(name, column.categories):
            why = f"{len(column.categories)} different values, {words}: free text or names?"
            written.add(name)
        if why:  # never listed: one may be somebody's name
            columns.append(Column(name, "ignore", reason=why))
            aside[name] = column
            continue
        columns.append(column)
        suspected += hints
        offers += [hint for hint in _unknowns(name, series) if codes and not column.numeric and hint not in hints]
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
        age = age_between(births[0], others[0])
        comments[births[0]] += "\n\n# Or an age instead of both dates, which stay ignored:\n" + _commented(age)
    persons = {c.name: repeats(frame[c.name]) for c in schema.ignored if c.name not in {*dates, *written}}
    many = {name: count for name, count in persons.items() if count is not None}
    many = dict(sorted(many.items(), key=lambda one: not _OF_PERSON.fullmatch(_words(one[0]))))  # likely ones first
    return SchemaDraft(schema, tuple(suspected), tuple(offers), aside, tuple(many), tuple(dates), comments, many)


def describe(series: pd.Series[Any], name: str, codes: Sequence[Label], said: Names) -> tuple[Column, str]:
    """What a column holds, with these codes as holes; and why it should not be used, empty where it may."""
    series = without_codes(series, Column(name, "ignore", missing_values=tuple(codes)))
    censored = _are_limits(series)
    series = _as_numbers(series, censored=censored) if codes or censored or _are_decimals(series) else series
    column = _infer_column(name, series.dropna(), bool(series.isna().any()), said)
    column = replace(_as_codes(column, series), missing_values=tuple(codes))
    return replace(column, censored=censored and column.numeric), _why_not(name, series, column)


def _as_codes(column: Column, series: pd.Series[Any]) -> Column:
    """Whole numbers of a column that is named like a list of codes are categories: nothing lies between two of them."""
    if column.kind != "integer" or not _CODE.fullmatch(_words(column.name)):
        return column
    numbers = sorted({int(value) for value in series.dropna().unique() if np.isfinite(float(value))})
    if not 2 <= len(numbers) <= MAX_INFERRED_CATEGORIES:
        return column
    listed = Column(column.name, "categorical", categories=tuple(numbers))
    return replace(listed, missing="category") if column.missing == "indicator" else listed


def age_between(birth: str, seen: str) -> Column:
    """Completed years between two columns of dates."""
    names = ", ".join(name if re.fullmatch(r"\w+", name) else f"`{name}`" for name in (birth, seen))
    formula = f"years_between({names})"
    return Column("age", "integer", low=0, high=120, unit="years", computed=formula, missing="indicator")


def own_rows(frame: pd.DataFrame, names: Iterable[str]) -> bool:
    """Whether one of these columns is named as one of persons, and no two rows share a value of it."""
    return any(_OF_PERSON.fullmatch(_words(name)) and frame[name].is_unique for name in names)


def repeats(series: pd.Series[Any]) -> tuple[int, int] | None:
    """Rows and different values of a column of identifiers that repeat; None where they do not, or are hardly any."""
    values = Values.from_series(series, str(series.name))
    rows, different = int(np.count_nonzero(values.codes >= 0)), len(values.distinct)
    texts = all(isinstance(v, str) for v in values.distinct)
    long = texts and float(np.mean([len(v.split()) for v in values.distinct] or [0])) > 2  # sentences are nobody's name
    return (rows, different) if MAX_SURE_IDENTIFIERS < different < rows and not long else None


def persons_in(frame: pd.DataFrame, names: Iterable[str], said: Names) -> list[str]:
    """A hint for each of these columns that looks like an identifier of persons with several rows."""
    lines, wanted = [], list(names)
    frame = as_objects(frame[wanted])
    for name in wanted:
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


def _words(name: str) -> str:
    """A column's name in small letters, with _ between its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()


def _many_identifiers(name: str, different: int, rows: int) -> bool:
    """Whether a column is named like an identifier and has as many values as identifiers of these rows would have."""
    many = different > max(MAX_SURE_IDENTIFIERS, SHARE_OF_IDENTIFIERS * rows) or different > MANY_IDENTIFIERS
    return many and bool(_NAMED.fullmatch(_words(name)))


def like_free_text(name: str, categories: Sequence[Label]) -> str:
    """Why a list of answers, however short, looks written by people as they like, or like people's names.

    Empty where it does not. Not one of them is in the words.
    """
    texts = [str(label).strip() for label in categories if isinstance(label, str)]
    if not texts or all(text.casefold() in PLAIN_ANSWERS for text in texts):
        return ""
    if _WRITTEN.fullmatch(_words(name)):
        return "in a column that is named as one for remarks or names"
    if any(len(text) > LONG_PHRASE or len(text.split()) >= MANY_WORDS for text in texts):
        return "of which some are sentences"
    if sum(bool(_PERSON.fullmatch(text)) for text in texts) > len(texts) / 2:
        return "most of them written as people's names"
    return ""


def _why_not(name: str, series: pd.Series[Any], column: Column) -> str:
    """Why a column should not be used as it is; empty where it may."""
    if not column.numeric:
        why, many = like_identifiers(column.categories), len(column.categories)
        if why or many > MAX_INFERRED_CATEGORIES or _many_identifiers(name, many, len(series)):
            return f"{many} different values{f', {why}' if why else ''}: an identifier or free text?"
        return ""
    if column.kind != "integer":
        return ""
    numbers = np.unique(series.dropna().to_numpy(np.float64))
    issued = numbers.min() >= 10 ** (MIN_DIGITS - 1) and len(str(int(numbers.min()))) == len(str(int(numbers.max())))
    many = len(numbers) > max(MAX_SURE_IDENTIFIERS, 0.1 * len(series))
    if _many_identifiers(name, len(numbers), len(series)) or (len(numbers) > MAX_SURE_IDENTIFIERS and issued and many):
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


def _date_comment(name: str, form: str) -> str:
    dated = Column(name, "date", low="1900-01-01", high="2100-01-01", missing="indicator", format=form)  # type: ignore[arg-type]
    return (
        "# To use it as days from a public origin, uncomment this in place of the lines above, with bounds from the\n"
        "# protocol or the calendar, never from patients:\n" + _commented(dated)
    )


def _commented(column: Column) -> str:
    """Its section of a schema file, to stand in comments; valid as it is, whatever its name."""
    import tomli_w  # as in `Schema.to_toml`

    return tomli_w.dumps({"columns": {column.name: column.to_dict()}}).rstrip()


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
    numbers = _as_numbers(rest, censored=_are_limits(rest))
    if numbers is rest:
        return [hint for hint in texts if hint.code in SYMBOLS]
    return texts + far_codes(name, numbers.to_numpy(np.float64))


def _unknowns(name: str, series: pd.Series[Any]) -> list[Hint]:
    """Answers of a list of categories that may say that nothing is known."""
    return text_codes(name, series) if series.dtype == object and all(map(pd.api.types.is_hashable, series)) else []


def _as_numbers(series: pd.Series[Any], *, censored: bool = False) -> pd.Series[Any]:
    """A column of texts that are all numbers, or limits, or of decimals, as numbers; any other as it is."""
    if series.dtype != object or not series.notna().any():
        return series
    if _are_decimals(series):
        return series.astype(np.float64)
    read = number_or_limit if censored else number_in
    numbers = series.map(lambda v: read(v) if isinstance(v, str) else np.nan, na_action="ignore").astype(np.float64)
    return numbers if bool((numbers.notna() == series.notna()).all()) else series


def _are_limits(series: pd.Series[Any]) -> bool:
    """Whether all texts are numbers or limits of what can be measured (<0.1, >200), and there are some of both."""
    if series.dtype != object or not all(isinstance(value, str) for value in series.dropna()):
        return False
    texts = series.dropna().unique()
    plain = sum(bool(np.isfinite(number_in(text))) for text in texts)
    return 0 < plain < len(texts) and all(np.isfinite(number_or_limit(text)) for text in texts)


def _are_decimals(series: pd.Series[Any]) -> bool:
    return series.dtype == object and all(isinstance(value, Decimal) for value in series.dropna())


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


def written_alike(categories: Sequence[Label]) -> bool:
    """Whether some answers are the same but for capitals and spaces."""
    return len({" ".join(str(label).casefold().split()) for label in categories}) < len(categories)


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
