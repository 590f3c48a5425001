"""`Cohort`: the real table, checked against its schema, with its outcome and a seeded split. (Paper 000 §2.1, §4.1.)

Everything wrong with a table is found here, before any model is fitted, and said without a patient's value: the
column, the rule, how many rows break it and the first such row's number.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.schema import MAX_INFERRED_CATEGORIES, Column, Label, Schema, nearest, plain_value
from distcondense.data.tables import MISSING_MARKERS, as_frame, is_csv, read_cell, read_table
from distcondense.errors import CohortError, DistcondenseWarning, SettingsError

Task = Literal["binary", "survival"]
Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, repr=False)  # a repr ends up in tracebacks, and this one would print patients
class Outcome:
    """What is predicted: `label` is the class (binary) or the event indicator (survival), `time` survival only."""

    label: NDArray[np.int8]  # (n,)
    time: Floats | None  # (n,) > 0
    names: tuple[str, ...]  # (target,) or (time, event)
    labels: tuple[Label, Label] = (0, 1)  # how negative and positive are written in the table
    labels_public: bool = True  # 0/1 or declared in the schema, not read off the rows

    @property
    def task(self) -> Task:
        return "binary" if self.time is None else "survival"

    @property
    def lacks_a_class(self) -> bool:
        """Without both classes (survival: without an event) no model can be fitted or measured."""
        label = self.label
        return len(label) == 0 or label.max() == 0 or (self.task == "binary" and label.min() == 1)

    def __repr__(self) -> str:
        return f"Outcome({self.task}, {len(self)} rows)"

    def take(self, rows: Index) -> Outcome:
        return replace(self, label=self.label[rows], time=None if self.time is None else self.time[rows])

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Split:
    """Row numbers of the three parts."""

    train: Index
    validation: Index
    test: Index


@dataclass(frozen=True, repr=False)
class Cohort:
    """Features (in the schema's order), outcome and, where given, who each row belongs to."""

    features: pd.DataFrame
    schema: Schema  # of the features
    outcome: Outcome
    person: Index | None = None  # (n,) codes
    ignored: tuple[str, ...] = ()  # columns of the table that are not in the schema
    horizon: float | None = None  # survival: the schema's upper bound of the time column, where it is declared

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"Cohort({len(self)} rows × {len(self.schema.columns)} columns, {self.task})"

    @property
    def task(self) -> Task:
        return self.outcome.task

    @classmethod
    def from_file(cls, path: str | Path, *, missing_markers: Sequence[str] = MISSING_MARKERS, **how: Any) -> Cohort:
        """A cohort from CSV, CSV.gz, Parquet or Arrow; `how` as in `from_frame`.

        A CSV is read cell by cell: what a row says depends on its own text and the schema, not on the other rows.
        """
        how["ignore"] = tuple(how.get("ignore", ()))
        if not is_csv(path):
            return cls.from_frame(read_table(path, missing_markers=missing_markers), owned=True, **how)
        event = how.get("event")
        label = event if how.get("target") is None else how["target"]
        frame = read_csv_cells(
            path,
            how.get("schema"),
            label=label,
            time=how.get("time"),
            person_id=how.get("person_id"),
            ignore=how["ignore"],
            missing_markers=missing_markers,
        )
        how["positive"] = positive_as_read(how.get("positive"), how.get("schema"), label)
        return cls.from_frame(frame, owned=True, **how)

    @classmethod
    def from_frame(
        cls,
        table: Any,
        *,
        target: str | None = None,
        time: str | None = None,
        event: str | None = None,
        positive: Label | None = None,
        person_id: str | None = None,
        schema: Schema | None = None,
        ignore: Iterable[str] = (),
        owned: bool = False,
    ) -> Cohort:
        """Check a table and take it in.

        Either `target` (binary outcome) or `time` and `event` (survival). `positive` says which value of the target or
        event column means "yes" where it is not 0/1 and the schema does not say. Columns in `ignore` are not features.
        Without a `schema` one is inferred, and marked so. `owned` says that nobody will change the table any more.
        """
        frame = as_frame(table)
        if not all(isinstance(name, str) for name in frame.columns):
            frame = frame.rename(columns=str)
        if frame.columns.has_duplicates:
            twice = sorted({str(c) for c in frame.columns[frame.columns.duplicated()]})
            raise CohortError(
                "table",
                "column names must be unique",
                found=f"repeated: {', '.join(map(repr, twice))}",
                fix="rename or drop one of each",
            )
        if frame.empty:
            raise CohortError(
                "table", "must have at least one row and one column", found=f"{len(frame)} rows", fix="check the table"
            )
        outcome_names = _outcome_names(target, time, event)
        drop = list(ignore)
        for name in (*outcome_names, *drop, *([person_id] if person_id else [])):
            if name not in frame:
                raise CohortError(
                    f"column {name!r}", "must be in the table", found=nearest(name, frame.columns), fix="check the name"
                )
        outcome = _read_outcome(frame, outcome_names, positive, schema)
        person = None
        if person_id is not None:
            _no_holes(frame[person_id], person_id)
            person = pd.factorize(frame[person_id])[0].astype(np.int64)
        aside = {*outcome_names, *drop, *([person_id] if person_id else [])}
        names = [c for c in frame.columns if c not in aside]
        if not names:
            raise CohortError(
                "table",
                "must have at least one feature column",
                found="only the outcome",
                fix="add features, or ignore fewer columns",
            )
        horizon = None
        if time is not None and schema is not None and schema.origin == "declared" and time in schema:
            horizon = schema[time].high
        schema = _inferred(frame, names) if schema is None else schema.without(aside)
        known = set(schema.names)
        missing = [c for c in schema.names if c not in frame]
        if missing:
            raise CohortError(
                "table",
                "must have every column of the schema",
                found=f"{len(missing)} missing: {_names(missing)}",
                fix="add the columns or take them out of the schema",
            )
        extra = tuple(c for c in names if c not in known)
        if extra:
            warnings.warn(
                f"{len(extra)} columns are not in the schema and are left out: {_names(extra)}",
                DistcondenseWarning,
                stacklevel=2,
            )
        features = check_features(frame, schema)
        # the caller's table may change later; one we read ourselves is nobody else's, and may be too large to copy
        return cls(features if owned else features.copy(), schema, outcome, person, extra, horizon)

    def fingerprint(self) -> str:
        """Which data this is, for telling run folders apart. Kept in `internal/` only."""
        digest = hashlib.sha256(repr((self.schema.to_dict(), self.outcome.names)).encode())
        digest.update(pd.util.hash_pandas_object(self.features, index=False).to_numpy().tobytes())
        digest.update(self.outcome.label.tobytes())
        for part in (self.outcome.time, self.person):  # who shares a person decides the split
            digest.update(b"none" if part is None else part.tobytes())
        return digest.hexdigest()

    def take(self, rows: Index) -> Cohort:
        """These rows only."""
        person = None if self.person is None else self.person[rows]
        features = self.features.iloc[rows].reset_index(drop=True)
        return replace(self, features=features, outcome=self.outcome.take(rows), person=person)

    def holdout(self, share: float, entropy: int) -> Split:
        """Each person is left out by a coin of their own: who else is in the table changes nobody's part."""
        person = np.arange(len(self)) if self.person is None else self.person
        out = (np.random.default_rng(entropy).random(int(person.max()) + 1) < share)[person]
        return Split(np.flatnonzero(~out), np.empty(0, np.int64), np.flatnonzero(out))

    def check_outcome(self) -> None:
        """Both classes, or events at two times at least: what a model without privacy needs.

        Not asked on the private path, where such an error would tell something about patients.
        """
        label, names = self.outcome.label, self.outcome.names
        if len(names) == 1 and label.min() == label.max():
            raise CohortError(
                f"target {names[-1]!r}",
                "must have both classes",
                found="one class only",
                fix="check the column, and which value means yes (--positive)",
            )
        if len(names) == 2 and not label.any():
            raise CohortError(
                f"event {names[-1]!r}",
                "must have at least one event",
                found="all rows censored",
                fix="check which value means an event (--positive)",
            )
        if self.outcome.time is not None and len(np.unique(self.outcome.time[label == 1])) < 2:
            raise CohortError(
                f"time {names[0]!r}",
                "events must happen at two times at least",
                found="one event time",
                fix="use a finer unit of time, or a binary target",
            )

    def split(self, *, seed: int, fractions: tuple[float, float, float] = (0.7, 0.1, 0.2)) -> Split:
        """70/10/20 train/validation/test, stratified by outcome, seeded; rows of one person stay together."""
        if min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
            raise SettingsError("split fractions", "must be positive and sum to 1", found=str(fractions))
        self.check_outcome()
        rng = np.random.default_rng([seed, 0x5917])
        person = np.arange(len(self)) if self.person is None else self.person
        who = np.unique(person)
        stratum = np.zeros(who.max() + 1, np.int8)
        np.maximum.at(stratum, person, self.outcome.label)  # a person with any event is in the event stratum
        part = np.empty(who.max() + 1, np.int8)
        for value in (0, 1):
            members = rng.permutation(who[stratum[who] == value])
            first, second = np.round(np.cumsum(fractions[:2]) * len(members)).astype(int)
            part[members[:first]], part[members[first:second]], part[members[second:]] = 0, 1, 2
        of_row = part[person]
        split = Split(*(np.flatnonzero(of_row == k) for k in range(3)))
        _usable(split, self.outcome)
        if self.outcome.label.sum() < 10:
            kind = "class" if self.task == "binary" else "event"
            warnings.warn(
                f"{self.outcome.names[-1]!r}: fewer than 10 rows of the positive {kind}",
                DistcondenseWarning,
                stacklevel=2,
            )
        return split


def _inferred(frame: pd.DataFrame, names: list[str]) -> Schema:
    """A draft that may be used as it is; one with a column of names or codes would release them as categories."""
    schema = Schema.infer(frame, names)
    if schema.notes:
        raise CohortError(
            "table",
            f"a text column with more than {MAX_INFERRED_CATEGORIES} values needs a declared schema",
            found="; ".join(schema.notes),
            fix="leave the column out (--ignore NAME), or declare its categories in a schema",
        )
    return schema


# -- CSV, cell by cell ------------------------------------------------------------------------------------------------


def read_csv_cells(
    path: str | Path,
    schema: Schema | None,
    *,
    label: str | None = None,
    time: str | None = None,
    person_id: str | None = None,
    ignore: Iterable[str] = (),
    missing_markers: Sequence[str] = MISSING_MARKERS,
) -> pd.DataFrame:
    """A CSV with the schema's labels and numbers, every cell read from its own text and the schema alone.

    A label is the one written exactly so, else the one that is the number (or true, false) the text stands for; any
    other text stays, and is refused by the checks. Person ids stay as they are written. Columns that neither the
    schema nor an argument names are read as pandas reads them.
    """
    aside = {label, person_id, *ignore}
    features = () if schema is None else tuple(c for c in schema.columns if c.name not in {*aside, time})
    labelled = [c for c in features if not c.numeric]
    text = {c.name for c in labelled} | {name for name in (label, person_id) if name is not None}
    numbers = {c.name for c in features if c.numeric} | ({time} if time is not None else set())
    frame = read_table(path, missing_markers=missing_markers, text=text, numbers=numbers)
    for column in labelled:
        if column.name in frame:
            frame[column.name] = _each_text(frame[column.name], _label_of(column))
    if label is not None and label in frame and label != person_id:
        if schema is not None and _declares(schema, label):
            frame[label] = _each_text(frame[label], _label_of(schema[label]))
        else:
            frame[label] = _undeclared_label(frame[label], label)
    return frame


def positive_as_read(positive: Label | None, schema: Schema | None, label: str | None) -> Label | None:
    """Which value of a CSV's outcome column means yes, read as that column's own cells are."""
    return read_cell(positive) if isinstance(positive, str) and not _declares(schema, label) else positive


def _declares(schema: Schema | None, label: str | None) -> bool:
    return schema is not None and label is not None and label in schema and schema[label].kind == "binary"


def _label_of(column: Column) -> Callable[[str], Label]:
    """From a cell's text to the column's label, or to the same text where there is none."""
    known = _known(column)

    def read(text: str) -> Label:
        code = known.get(text)
        if code is None:
            said = read_cell(text)
            code = None if isinstance(said, str) else known.get(said)
        return text if code is None else column.categories[code]

    return read


def _undeclared_label(series: pd.Series[Any], name: str) -> pd.Series[Any]:
    read = _each_text(series, read_cell)
    words = read.map(lambda v: isinstance(v, bool)).to_numpy(dtype=bool)
    numbers = read.map(lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == v).to_numpy(dtype=bool)
    if words.any():  # else one row would decide whether everybody's outcome is released as true/false or as 0/1
        _refuse(numbers, name, "must be all true/false or all numbers", found="both")
    return read.infer_objects()


def _each_text(series: pd.Series[Any], read: Callable[[str], Label]) -> pd.Series[Any]:
    """`read` of every cell, holes left; each distinct text is read once."""
    codes, uniques = pd.factorize(series)
    values = np.empty(len(uniques) + 1, dtype=object)  # the last one is for holes, whose code is -1
    values[:-1] = [read(str(text)) for text in uniques]
    values[-1] = np.nan
    return pd.Series(values[codes], index=series.index, name=series.name, dtype=object)


# -- the outcome ------------------------------------------------------------------------------------------------------


def _outcome_names(target: str | None, time: str | None, event: str | None) -> tuple[str, ...]:
    if target is not None and (time is not None or event is not None):
        raise SettingsError(
            "outcome",
            "is either a target, or a time and an event",
            found="both",
            fix="say --target, or --time and --event",
        )
    if target is not None:
        return (target,)
    if time is None or event is None:
        found = "neither" if time is None and event is None else f"only {'time' if event is None else 'event'}"
        raise SettingsError(
            "outcome", "needs a target, or a time and an event", found=found, fix="say --target, or --time and --event"
        )
    if time == event:
        raise SettingsError(
            "outcome", "time and event must be two columns", found=repr(time), fix="say which column is which"
        )
    return (time, event)


def _read_outcome(
    frame: pd.DataFrame, names: tuple[str, ...], positive: Label | None, schema: Schema | None
) -> Outcome:
    label_name = names[-1]
    series = frame[label_name]
    _no_holes(series, label_name)
    label, labels, public = _read_label(series, label_name, positive, schema)
    if len(names) == 1:
        return Outcome(label, None, names, labels, public)
    times = _numbers(frame[names[0]], names[0])
    _no_holes(frame[names[0]], names[0])
    _refuse(~np.isfinite(times), names[0], "must be finite")
    _refuse(times <= 0, names[0], "times must be above 0", "drop these rows or add the length of one time unit")
    if schema is not None and names[0] in schema:
        check_features(frame[[names[0]]], Schema((schema[names[0]],)))
    return Outcome(label, times, names, labels, public)


def _read_label(
    series: pd.Series[Any], name: str, positive: Label | None, schema: Schema | None
) -> tuple[NDArray[np.int8], tuple[Label, Label], bool]:
    """0/1, how the two are written, and whether that is public knowledge (declared, or 0/1)."""
    _hashable(series, name)
    values = [plain_value(v) for v in series.unique()]
    if len(values) > 2:
        raise CohortError(
            f"column {name!r}",
            "an outcome must have two values",
            found=f"{len(values)} distinct values",
            fix="make it 0/1 first, e.g. df[name] = (df[name] == 'yes').astype(int)",
        )
    declared = _declares(schema, name)
    if declared:
        assert schema is not None
        labels = (schema[name].categories[0], schema[name].categories[1])
        unknown = [v for v in values if v not in labels]
        if unknown:
            raise CohortError(
                f"column {name!r}",
                "must hold the schema's two categories only",
                found=f"{len(unknown)} other value(s)",
                fix="edit the schema or the table",
            )
        if positive is not None:
            if str(positive) not in map(str, labels):
                raise CohortError(
                    f"column {name!r}",
                    "must have the positive value that was named among the schema's two categories",
                    found="another value",
                    fix="check --positive and the schema",
                )
            labels = labels if str(positive) == str(labels[1]) else (labels[1], labels[0])
    elif set(values) <= {0, 1}:  # whichever of the two is there: a missing one must not show
        labels = (False, True) if pd.api.types.is_bool_dtype(series) else (0, 1)
        if positive is not None and str(plain_value(positive)) not in map(str, labels):
            raise CohortError(
                f"column {name!r}",
                "must contain the positive value that was named",
                found="a column of 0 and 1",
                fix="check --positive",
            )
        if positive is not None and str(plain_value(positive)) == str(labels[0]):
            labels = (labels[1], labels[0])
    elif positive is not None:
        wanted = [v for v in values if str(v) == str(positive)]
        if not wanted:
            raise CohortError(
                f"column {name!r}",
                "must contain the positive value that was named",
                found="no such row",
                fix="check --positive",
            )
        others = [v for v in values if v != wanted[0]]
        labels = (others[0] if others else f"not {wanted[0]}", wanted[0])
    else:
        raise CohortError(
            f"column {name!r}",
            "must be 0/1, or the positive value must be named",
            found=f"{len(values)} text or number values",
            fix="say --positive VALUE",
        )
    public = (declared and schema is not None and schema.origin == "declared") or set(labels) == {0, 1}
    return (series == labels[1]).to_numpy().astype(np.int8), labels, public


# -- the features -----------------------------------------------------------------------------------------------------


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
        _no_holes(series, column.name)
    if column.numeric:
        values = _numbers(series, column.name)
        present = ~np.isnan(values)
        _refuse(np.isinf(values), column.name, "must be finite")
        if column.kind == "integer":
            _refuse(
                present & (values != np.round(values)),
                column.name,
                "must be whole numbers",
                'make its kind "continuous"',
            )
        if column.low is not None and column.high is not None:
            outside = present & ((values < column.low) | (values > column.high))
            _refuse(
                outside,
                column.name,
                f"must be within the schema's bounds [{column.low}, {column.high}]",
                "correct the rows, clip them, or widen the bounds",
            )
        return values
    return _labels(series, column)


def _labels(series: pd.Series[Any], column: Column) -> pd.Categorical:
    """The column as a Categorical over the schema's categories; text and numbers that read the same are the same."""
    _hashable(series, column.name)
    holes = series.isna().to_numpy()
    known = _known(column)
    codes, uniques = pd.factorize(series)
    lookup = np.array(
        [known.get(plain_value(u), known.get(str(plain_value(u)), -1)) for u in uniques] + [-1], dtype=np.int64
    )
    coded = lookup[codes]
    _refuse(
        (coded < 0) & ~holes,
        column.name,
        "must hold the schema's categories only",
        "add the category to the schema, or correct the rows",
    )
    return pd.Categorical.from_codes(coded, categories=list(column.categories))  # type: ignore[call-overload]


def _known(column: Column) -> dict[Any, int]:
    """Category codes by label, and by the label's text."""
    known: dict[Any, int] = {}
    for code, category in enumerate(column.categories):
        known[category] = code
        known.setdefault(str(category), code)
    return known


def _numbers(series: pd.Series[Any], name: str) -> Floats:
    if series.dtype == np.float32:  # as it is: a wide omics table twice as large would be the peak of a run's memory
        return series.to_numpy()  # type: ignore[return-value]
    if pd.api.types.is_numeric_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    _refuse(
        np.isnan(numbers) & ~series.isna().to_numpy(),
        name,
        "must be numbers",
        "correct the rows, or name the text that marks a hole (--missing-marker)",
        found="text",
    )
    return numbers


def _hashable(series: pd.Series[Any], name: str) -> None:
    if series.dtype == object:
        nested = ~np.fromiter(map(pd.api.types.is_hashable, series), bool, len(series))
        _refuse(
            nested,
            name,
            "must hold texts or numbers",
            "drop it, or make one column of each part",
            found="nested values",
        )


def _no_holes(series: pd.Series[Any], name: str) -> None:
    _refuse(
        series.isna().to_numpy(),
        name,
        "has missing values but no policy for them",
        'declare one in the schema: missing = "constant", "category" or "indicator"',
        found="missing values",
    )


def _refuse(
    bad: NDArray[np.bool_], name: str, rule: str, fix: str = "correct or drop these rows", found: str = ""
) -> None:
    if bad.any():
        rows = int(np.count_nonzero(bad))
        count = f"{found + ' in ' if found else ''}{rows} row{'s' if rows > 1 else ''}"
        where = f"{count}, first at row {int(np.argmax(bad)) + 1}"
        raise CohortError(f"column {name!r}", rule, found=where, fix=fix)


def _usable(split: Split, outcome: Outcome) -> None:
    for name in ("train", "validation", "test"):
        if outcome.take(getattr(split, name)).lacks_a_class:
            need = "both classes" if outcome.task == "binary" else "at least one event"
            raise CohortError(
                "table",
                f"the {name} part needs {need}",
                found=f"{len(outcome)} rows in all",
                fix="give more rows: a split of 70/10/20 leaves too few here",
            )


def _names(names: Iterable[str], most: int = 8) -> str:
    names = [repr(n) for n in names]
    return ", ".join(names[:most]) + (f" … and {len(names) - most} more" if len(names) > most else "")
