"""`Cohort`: the real table, checked against its schema, with its outcome. (Thakur et al. 2026 §2.1, §4.1.)

Everything wrong with a table is found here, before any model is fitted, and said without a patient's value: the
column, the rule, how many rows break it and the first such row's number.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Index
from distcondense.data.csv_table import read_as
from distcondense.data.dates import with_computed
from distcondense.data.dialect import Dialect
from distcondense.data.features import check_features, some_names
from distcondense.data.missing import without_codes
from distcondense.data.names import Names
from distcondense.data.outcome import Goal, Outcome, kind_of
from distcondense.data.query import query_text, read_query
from distcondense.data.reading import read_csv_cells
from distcondense.data.reserved import refuse_reserved
from distcondense.data.roles import ROLES
from distcondense.data.schema import Label, Schema
from distcondense.data.tables import MISSING_MARKERS, as_frame, is_csv, is_uri, read_table, refuse_shape, refuse_signals
from distcondense.data.values import identifiers_of
from distcondense.errors import CohortError, DistcondenseWarning, SettingsError, need

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Facts:
    """What is public about a cohort before a row of it is read."""

    schema: Schema | None  # of the features; None: it will be inferred from the rows
    kind: Any  # an outcomes.base.Kind
    by_person: bool

    @classmethod
    def from_goal(
        cls, goal: Goal, schema: Schema | None, *, person_id: str | None = None, ignore: Iterable[str] = ()
    ) -> Facts:
        kind = kind_of(goal, schema)
        aside = {*kind.names, *ignore, *([person_id] if person_id else [])}
        return cls(None if schema is None else schema.without(aside).features, kind, person_id is not None)


@dataclass(frozen=True, repr=False)
class Cohort:
    """The real table, checked: its features in the schema's order, its outcome and, where given, whose row each is.

    Make one with `from_file` or `from_frame`. Its `repr` shows no patient.

    Attributes
    ----------
    features : pandas.DataFrame
        Numbers as float, labels as Categorical over the schema's categories.
    schema : Schema
        Of the features.
    outcome : Outcome
        What is predicted, as arrays, and its kind.
    person : (n,) int64 array or None
        Codes of persons; `identifiers` has the text that each stands for.
    ignored : tuple of str
        Columns of the table that are not in the schema.

    Examples
    --------
    >>> import distcondense as dc, pandas as pd
    >>> table = pd.DataFrame({"age": [34, 71, 58], "died": ["no", "yes", "no"]})
    >>> schema = dc.Schema((dc.Column("age", "integer", 18, 110),
    ...                     dc.Column("died", "binary", categories=("no", "yes"))))
    >>> cohort = dc.Cohort.from_frame(table, target="died", schema=schema)
    >>> cohort
    Cohort(3 rows × 1 columns, binary)
    >>> cohort.take([0, 1]).outcome["label"].tolist()
    [0, 1]
    """

    features: pd.DataFrame
    schema: Schema  # of the features
    outcome: Outcome
    person: Index | None = None  # (n,) codes
    ignored: tuple[str, ...] = ()  # columns of the table that are not in the schema
    identifiers: tuple[str, ...] = ()  # the text that each code stands for: each person's own, as it was given
    how: Mapping[str, Any] = field(default_factory=dict)  # it was read, so that the same table can be read again
    file: str = ""  # that it was read from, a path or URI; empty for a frame
    read_as: str = ""  # what a CSV's own first line decided, in words; empty where it was plain or stated

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"Cohort({len(self)} rows × {len(self.schema.columns)} columns, {self.outcome.kind.name})"

    @property
    def facts(self) -> Facts:
        """What is public about it."""
        return Facts(self.schema, self.outcome.kind, self.person is not None)

    @property
    def read_from(self) -> tuple[str, ...]:
        """The file whose patients these are; nothing for a frame."""
        return (self.file,) if self.file else ()

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        missing_markers: Sequence[str] = MISSING_MARKERS,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        query: str | Path | None = None,
        **how: Any,
    ) -> Cohort:
        """A cohort from CSV, CSV.gz, Parquet or Arrow, or from a query of a database.

        A CSV is read cell by cell: what a row says depends on its own text and the schema, not on the other rows. Of
        a typed table the same holds for values (data/values.py).

        Parameters
        ----------
        path : str or Path
            A file, or a URI (s3://, gs://, …); with `query` a DuckDB file or the URI of a database.
        missing_markers : sequence of str
            Texts of a CSV that mark a hole.
        separator, encoding, decimal : str, optional
            How a CSV is written, where its first line does not show it. What was taken without being stated is said in
            a warning, unless it is the plain way (comma, UTF-8, point).
        query : str or Path, optional
            SQL, or a file of it (.sql), whose rows are the table (data/query.py).
        **how
            As in `from_frame`: target, time, event, positive, kind, person_id, schema, ignore.

        Returns
        -------
        Cohort

        Raises
        ------
        CohortError
            Where the file cannot be read, or does not fit its schema: all problems at once, without a patient's value.

        Examples
        --------
        >>> import distcondense as dc, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "visits.csv"
        >>> _ = path.write_text("age,died\\n34,no\\n71,yes\\n")
        >>> dc.Cohort.from_file(path, target="died", positive="yes")
        Cohort(2 rows × 1 columns, binary)
        """
        how = checked_roles(how)
        need(path, (str, Path), "table", "a path or URI")
        need(missing_markers, (list, tuple, set), "missing_markers", "a list of texts")
        for marker in missing_markers:
            need(marker, str, "missing_markers", "a list of texts")
        dialect = Dialect(separator, encoding, decimal)
        again = {"missing_markers": tuple(missing_markers), **dialect.stated()}
        if query is not None:
            text = query_text(query)
            rows = cls.from_frame(read_query(path, text), owned=True, **how)
            return replace(rows, how={**rows.how, "query": text})
        if not is_csv(path):
            typed = cls.from_frame(read_table(path, missing_markers=missing_markers), owned=True, **how)
            return replace(typed, how={**typed.how, **again}, file=_place(path))
        goal = Goal.from_roles(
            positive=how.pop("positive", None),
            kind=how.pop("kind", None),
            **{role: how.pop(role, None) for role in ROLES},
        )
        schema = how.get("schema")
        frame = read_csv_cells(
            path,
            schema,
            kind=kind_of(goal, schema),
            person_id=how.get("person_id"),
            ignore=how["ignore"],
            missing_markers=missing_markers,
            dialect=dialect,
        )
        cohort, how_read = cls.read(frame, goal, owned=True, **how), read_as(frame)
        words = "" if how_read is None else how_read.words
        return replace(cohort, how={**cohort.how, **again}, file=_place(path), read_as=words)

    @classmethod
    def from_frame(
        cls,
        table: Any,
        *,
        target: str | None = None,
        time: str | None = None,
        event: str | None = None,
        positive: Label | None = None,
        kind: str | None = None,
        person_id: str | None = None,
        schema: Schema | None = None,
        ignore: Iterable[str] = (),
        owned: bool = False,
    ) -> Cohort:
        """Check a table and take it in.

        Parameters
        ----------
        table : pandas.DataFrame
            Or an Arrow or Polars table.
        target : str, optional
            The outcome column; or else `time` and `event` (survival).
        time, event : str, optional
            Follow-up time, and whether the event was seen.
        positive : label, optional
            Which value of the target or event column means yes, where it is not 0/1 and the schema does not say. The
            private method takes declared outcomes only.
        kind : str, optional
            The kind of outcome; if not given the schema says: two categories, several, or a number with bounds.
        person_id : str, optional
            The column that says whose row it is, by text or whole numbers.
        schema : Schema, optional
            If not given, one is inferred, and marked so.
        ignore : iterable of str
            Columns that are no features.
        owned : bool
            Nobody will change the table any more, so that it need not be copied.

        Returns
        -------
        Cohort

        Raises
        ------
        CohortError
            Where the table does not fit its schema: all problems at once, without a patient's value.
        """
        roles = {
            "target": target,
            "time": time,
            "event": event,
            "positive": positive,
            "kind": kind,
            "person_id": person_id,
            "schema": schema,
            "ignore": ignore,
        }
        ignore = checked_roles(roles)["ignore"]
        goal = Goal.from_roles(positive=positive, kind=kind, target=target, time=time, event=event)
        return cls.read(as_frame(table), goal, person_id=person_id, schema=schema, ignore=ignore, owned=owned)

    @classmethod
    def read(
        cls,
        frame: pd.DataFrame,
        goal: Goal,
        *,
        person_id: str | None = None,
        schema: Schema | None = None,
        ignore: Iterable[str] = (),
        owned: bool = False,
    ) -> Cohort:
        """The same for a goal that is made already."""
        if not all(isinstance(name, str) for name in frame.columns):
            frame = frame.rename(columns=str)
        refuse_reserved(frame.columns)
        ignore = tuple(ignore)
        roles = (*goal.columns.values(), *ignore, *([person_id] if person_id else []))
        names_of = Names(list(frame.columns), {*roles, *(() if schema is None else schema.every)})
        refuse_shape(frame, names_of)
        forgiven = frozenset(() if schema is None else (c.name for c in schema.columns if c.forgives))
        refuse_signals(frame, names_of.said, forgiven)
        if not owned:  # what we read ourselves was decoded
            _refuse_halves(frame, names_of, forgiven)
        _refuse_ignored(goal, schema)
        kind = kind_of(goal, schema)
        if schema is not None:
            frame = _with_holes(with_computed(frame, schema), schema, kind.names)
        how = {
            **goal.columns,
            "positive": goal.positive,
            "kind": goal.kind,
            "person_id": person_id,
            "ignore": ignore,
            "schema": schema,
        }
        aside = {*kind.names, *ignore, *([person_id] if person_id else [])}
        for name in (*kind.names, *ignore, *([person_id] if person_id else [])):
            if name not in frame:
                raise CohortError(
                    f"column {name!r}", "must be in the table", found=names_of.nearest(name), fix="check the name"
                )
        outcome = kind.read(frame)
        person, identifiers = (None, ()) if person_id is None else identifiers_of(frame[person_id], person_id)
        aside |= set() if schema is None else {c.name for c in schema.ignored}
        names = [c for c in frame.columns if c not in aside]
        if not names:
            raise CohortError(
                "table",
                "must have at least one feature column",
                found="only the outcome",
                fix="add features, or ignore fewer columns",
            )
        if schema is not None and any(not rule.names.isdisjoint(kind.names) for rule in schema.rules):
            warnings.warn(
                "rules that name the outcome are for checking tables: released rows need not obey them",
                DistcondenseWarning,
                stacklevel=3,
            )
        schema = inferred_schema(frame, names, names_of) if schema is None else schema.without(aside).features
        missing = [c for c in schema.names if c not in frame]
        if missing:
            raise CohortError(
                "table",
                "must have every column of the schema",
                found=f"{len(missing)} missing: {some_names(missing)}",
                fix="add the columns or take them out of the schema",
            )
        known = set(schema.names)
        extra = tuple(c for c in names if c not in known)
        if extra:
            warnings.warn(
                f"{len(extra)} columns are not in the schema and are left out: {names_of.some(extra)}",
                DistcondenseWarning,
                stacklevel=3,
            )
        if person_id is None:
            from distcondense.data.draft import persons_in

            for hint in persons_in(frame, [c for c in frame.columns if c not in {*known, *kind.names}], names_of):
                warnings.warn(hint, DistcondenseWarning, stacklevel=3)
        features = check_features(frame, schema)
        # the caller's table may change later; one we read ourselves is nobody else's, and may be too large to copy
        return cls(features if owned else features.copy(), schema, outcome, person, extra, identifiers, how)

    def fingerprint(self) -> str:
        """Which data this is, for telling run folders apart. Kept in `internal/` only."""
        public = repr((self.schema.to_dict(), (self.outcome.kind.name, self.outcome.kind.names)))
        digest = hashlib.sha256(public.encode("utf-8", "surrogatepass"))
        digest.update(pd.util.hash_pandas_object(self.features, index=False).to_numpy().tobytes())
        for part in self.outcome.digest_parts():
            digest.update(part)
        digest.update(b"none" if self.person is None else self.person.tobytes())  # they decide the split
        digest.update(repr(self.identifiers).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def take(self, rows: Index) -> Cohort:
        """These rows only, by their numbers from 0."""
        person = None if self.person is None else self.person[rows]
        features = self.features.iloc[rows].reset_index(drop=True)
        return replace(self, features=features, outcome=self.outcome.take(rows), person=person)


def _place(path: str | Path) -> str:
    """Where a file lies, wherever this process goes."""
    return str(path) if is_uri(path) else os.path.abspath(path)


def _refuse_halves(frame: pd.DataFrame, said: Names, forgiven: Collection[str]) -> None:
    """Half of a pair of UTF-16 is no text: it can neither be hashed nor written into a release."""
    for name in frame.select_dtypes(["object", "category"]).columns.difference([*forgiven]):
        series = frame[name]
        values = series.cat.categories if isinstance(series.dtype, pd.CategoricalDtype) else series
        bad = [isinstance(v, str) and not v.isascii() and _HALF.search(v) is not None for v in values]
        if any(bad):
            raise CohortError(
                said.said(name),
                "must hold texts that can be written as UTF-8",
                found=f"{sum(bad)} that cannot",
                fix="read the table again with the encoding it was saved in",
            )


def checked_roles(how: Mapping[str, Any]) -> dict[str, Any]:
    """What a caller says about columns, by type: names are texts that are not empty."""
    ignore, positive, schema = how.get("ignore", ()), how.get("positive"), how.get("schema")
    for what in (*ROLES, "kind", "person_id"):
        if how.get(what) is not None:
            need(how[what], str, what, "a text", fix="" if what == "kind" else "name one of the table's columns")
            if not how[what]:
                raise SettingsError(what, "must be a name", found="an empty text", fix="leave it out, or say the name")
    if positive is not None:
        need(positive, (str, int, float, np.generic), "positive", "a text, a number or true/false")
    if isinstance(ignore, str) or not isinstance(ignore, Iterable):
        need(ignore, tuple, "ignore", "a list of column names", fix='e.g. ["visit"]')
    ignore = tuple(ignore)
    for name in ignore:
        need(name, str, "ignore", "a list of column names")
    if schema is not None:
        need(schema, Schema, "schema", "a Schema", fix="dc.Schema.from_toml(path)")
    return {**how, "ignore": ignore}


def _with_holes(frame: pd.DataFrame, schema: Schema, names: Iterable[str]) -> pd.DataFrame:
    """The outcome's codes for missing turned into holes; the features' are when they are checked."""
    coded = {name: schema[name] for name in names if name in schema and name in frame and schema[name].missing_values}
    return frame.assign(**{name: without_codes(frame[name], column) for name, column in coded.items()})


def _refuse_ignored(goal: Goal, schema: Schema | None) -> None:
    for role, name in goal.columns.items():
        if schema is not None and any(c.name == name for c in schema.ignored):
            raise CohortError(
                f"column {name!r}",
                f"is the {role}, and must be described in the schema",
                found='kind = "ignore"',
                fix="declare its kind and categories or bounds",
            )


def inferred_schema(frame: pd.DataFrame, names: list[str], said: Names) -> Schema:
    """A draft that may be used as it is; one with a column of names or codes would release them as categories."""
    schema = Schema.infer(frame, names)
    if schema.ignored:
        raise CohortError(
            "table",
            "a column of identifiers, dates or free text needs a declared schema",
            found="; ".join(f"{said.said(c.name)}: {c.reason}" for c in schema.ignored),
            fix="leave the column out (--ignore NAME), or declare a schema",
        )
    return schema
