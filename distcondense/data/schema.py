"""`Schema`: what is *public* about a table. Kinds, bounds, categories, units, and what to do with missing values.

A schema is written by a person (or drafted with `Schema.infer`, which marks it as inferred, because bounds read off
patients are no longer public knowledge). It is read and written as TOML:

    format = 1
    origin = "declared"

    [columns.age]
    kind = "integer"
    low = 18
    high = 110
    unit = "years"

    [columns.smoker]
    kind = "categorical"
    categories = ["never", "former", "current"]
    missing = "category"

Its columns are `Column` (data/column.py); relations between them stand beside them, `[[rules]]` (data/relations.py).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args

import pandas as pd

from distcondense.data.attestation import Attestation
from distcondense.data.column import MAX_WHOLE as MAX_WHOLE
from distcondense.data.column import MOST_NUMBER as MOST_NUMBER
from distcondense.data.column import PLAIN, OutOfRange, plain_value, said
from distcondense.data.column import Column as Column
from distcondense.data.column import Label as Label
from distcondense.data.names import nearest
from distcondense.data.relations import Rule, rule_from, rule_problems
from distcondense.data.reserved import MADE_HERE, PREFIX, is_reserved
from distcondense.errors import SchemaError, brief, need, os_errors
from distcondense.outside import OutsideError, leaves, parse_toml, read_text

FORMAT = 1
ORIGINS = ("declared", "inferred")
PARTS = ("columns", "outcome", "added")  # of a schema file, each [PART.NAME]
TABLES = ("rules", "attested")  # each [[PART]]
_TEXTS = ("notes", "left_out")
_Entry = TypeVar("_Entry")
_KEYS = {entry.name for entry in fields(Column)} - {"name"}  # of a column's section
DRAFTED = (
    "# Drafted from the data. Bounds and categories below were read off patients: they are NOT public\n"
    '# knowledge until a person has checked and edited them. Then set origin = "declared".\n'
)
INFERRED = (
    "# What `inferred` lists in a column was read off patients, and nobody has confirmed it: it is NOT public\n"
    "# knowledge until a person who knows it from elsewhere has checked it. Then take each of these lines out, and\n"
    '# set origin = "declared".\n'
)


@dataclass(frozen=True, repr=False)
class Schema:
    """The public description of a table: its columns, in order, and where the knowledge came from.

    Parameters
    ----------
    columns : tuple of Column
        Of the table; those of kind "ignore" are moved to `ignored`.
    origin : {"declared", "inferred"}
        "inferred" where bounds and categories were read off patients, so that the private method refuses it.
    notes : tuple of str
        Remarks for readers.
    rules : tuple of rules
        Relations between columns, as `[[rules]]` of a schema file.
    outcome, added : tuple of Column
        Of a condensed table: its outcome, and columns that were added to it, apart from those that models learn from.
    ignored : tuple of Column
        Columns that are left out.
    left_out : tuple of str
        Of a condensed table: their names, and no more.
    attested : tuple of Attestation
        Who stands for what was first read off a table.

    Raises
    ------
    SchemaError
        With everything that is wrong with any of its columns and rules.

    Examples
    --------
    >>> import distcondense as dc
    >>> schema = dc.Schema((dc.Column("age", "integer", 18, 110), dc.Column("sex", "binary", categories=("f", "m"))))
    >>> schema.names
    ['age', 'sex']
    >>> schema["age"].high
    110
    >>> print(schema.only(["sex"]).to_toml())
    format = 1
    origin = "declared"
    <BLANKLINE>
    [columns.sex]
    kind = "binary"
    categories = [
        "f",
        "m",
    ]
    <BLANKLINE>
    """

    columns: tuple[Column, ...]
    origin: Literal["declared", "inferred"] = "declared"
    notes: tuple[str, ...] = field(default=(), compare=False)
    rules: tuple[Rule, ...] = ()
    outcome: tuple[Column, ...] = ()
    added: tuple[Column, ...] = ()
    ignored: tuple[Column, ...] = ()
    left_out: tuple[str, ...] = ()
    attested: tuple[Attestation, ...] = ()

    def __post_init__(self) -> None:
        for part, kinds, words, fix in (
            *((part, Column, "a tuple of Columns", "Schema((Column(…), …))") for part in (*PARTS, "ignored")),
            ("rules", Rule, "a tuple of rules", ""),
            ("notes", str, "a tuple of texts", ""),
            ("left_out", str, "a tuple of texts", ""),
            ("attested", Attestation, "a tuple of attestations", ""),
        ):
            need(getattr(self, part), tuple, part, words, fix=fix)
            for entry in getattr(self, part):
                need(entry, kinds, part, words, fix=fix)
        if not (isinstance(self.origin, str) and self.origin in ORIGINS):
            raise SchemaError(
                "origin", 'must be "declared" or "inferred"', found=said(self.origin), fix="leave it out: declared"
            )
        for column in self._described():
            need(column.name, str, "column name", "a text")
        aside = tuple(c for c in self.columns if c.is_ignored)
        if aside:
            object.__setattr__(self, "columns", tuple(c for c in self.columns if not c.is_ignored))
            object.__setattr__(self, "ignored", (*self.ignored, *aside))
        if problems := self._problems():
            _refuse_all(problems, "schema")

    def _problems(self) -> list[str]:
        """Everything wrong with its columns, or else with what they say of each other."""
        columns = {part: getattr(self, part) for part in PARTS}
        problems = _column_problems(columns)
        problems += [
            f"[columns.{c.name}] names that begin with {PREFIX} are our own: {MADE_HERE}"
            for c in self.columns
            if is_reserved(c.name)
        ]
        problems += _column_problems({"columns": self.ignored})
        problems += [] if problems else self._source_problems()
        names = [c.name for c in (*self.columns, *self.ignored)]
        problems += [f"column {n!r} appears twice" for n, count in sorted(Counter(names).items()) if count > 1]
        problems += [] if self.columns else ["no columns"]
        if self.rules and not problems:
            return rule_problems(self.rules, {c.name: c for c in self.columns}, lambda name: nearest(name, names))
        return problems

    def _source_problems(self) -> list[str]:
        """Of columns that are computed from others, and of rules about dates."""
        dates = {c.name: c for c in self.columns if c.kind == "date"}
        known = {*dates, *(c.name for c in self.ignored)}
        problems = [
            f"[columns.{c.name}] computed needs {source!r} in the schema, as kind date or ignore"
            for c in self.columns
            for source in c.sources
            if source not in known
        ]
        for number, rule in enumerate(self.rules, 1):
            scales = {(dates[name].origin, dates[name].unit or "days") for name in rule.names if name in dates}
            if len(scales) > 1:
                problems.append(f"[[rules]] {number}: its dates must have one origin and one unit")
        return problems

    def _described(self) -> tuple[Column, ...]:
        return (*self.columns, *self.outcome, *self.added, *self.ignored)

    def __repr__(self) -> str:
        """How many columns, and whether somebody stands for them; `print` shows each, and no patient's category."""
        aside = f" and {len(self.ignored)} left out" if self.ignored else ""
        unknown = sum(bool(c.inferred) for c in self._described())
        stands = f"inferred: nobody stands for {unknown or 'all'} of them" if self.origin == "inferred" else "declared"
        return f"Schema({len(self.columns)} columns{aside}; {stands})"

    def __str__(self) -> str:
        return f"{self!r}\n{self._table().to_string(justify='left')}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self._table().to_html(justify='left')}"

    def _table(self) -> pd.DataFrame:
        """Name, kind, what is declared and what was read off patients of each column."""
        columns = self._described()
        rows = [(str(c.kind), c.described(), ", ".join(c.inferred)) for c in columns]
        names = pd.Index([c.name for c in columns])
        table = pd.DataFrame(rows, columns=["kind", "described as", "read off the table"], index=names)
        return table if any(c.inferred for c in columns) else table.drop(columns="read off the table")

    def __contains__(self, name: str) -> bool:
        return any(c.name == name for c in (*self.columns, *self.outcome))

    def __getitem__(self, name: str) -> Column:
        for column in (*self.columns, *self.outcome):
            if column.name == name:
                return column
        raise SchemaError(
            f"column {name!r}", "must be in the schema", found=nearest(name, self.names), fix="add it to the schema"
        )

    @property
    def names(self) -> list[str]:
        """Names of the columns that models learn from, in order."""
        return [c.name for c in self.columns]

    @property
    def every(self) -> list[str]:
        """Every name that it describes: features, outcome, our own columns and what is ignored."""
        return [c.name for c in self._described()]

    @property
    def features(self) -> Schema:
        """Of what models learn from, and nothing else: what is computed is there."""
        columns = tuple(replace(c, computed="") if c.computed else c for c in self.columns)
        left_out = (*self.left_out, *(c.name for c in self.ignored))
        return replace(self, columns=columns, outcome=(), added=(), ignored=(), left_out=left_out)

    @property
    def released(self) -> Schema:
        """What may go with a condensed table: of columns that were left out their names alone."""
        left_out = (*self.left_out, *(c.name for c in self.ignored))
        return replace(self, columns=tuple(c.released for c in self.columns), ignored=(), left_out=left_out)

    @property
    def in_table(self) -> list[str]:
        """Names that a table must have: what is computed is not there, what it is computed from is."""
        given = [c.name for c in self.columns if not c.computed]
        return list(dict.fromkeys([*given, *(source for c in self.columns for source in c.sources)]))

    def without(self, names: Iterable[str]) -> Schema:
        """All columns but these, and the rules about what is left alone."""
        return self.only(set(self.names).difference(names))

    def only(self, names: Iterable[str]) -> Schema:
        """These columns, in the schema's order, and the rules about them alone."""
        keep = set(names)
        rules = tuple(rule for rule in self.rules if rule.names <= keep)
        return replace(self, columns=tuple(c for c in self.columns if c.name in keep), rules=rules)

    def described(self, columns: Iterable[Column]) -> Schema:
        """With these descriptions of its columns instead; a rule that no longer fits them (a category gone) goes."""
        by_name = {c.name: c for c in self.columns} | {c.name: c for c in columns}
        kept = {name: by_name[name] for name in self.names}
        rules = tuple(rule for rule in self.rules if not rule.problems(kept))
        return replace(self, columns=tuple(kept.values()), rules=rules)

    # -- TOML -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file.

        Parameters
        ----------
        path : str or Path
            Of a file as `to_toml` or `distcondense schema infer` writes it.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            Where it is no TOML, or describes a column in a way that is not legal: all problems at once.

        Examples
        --------
        >>> import distcondense as dc, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "schema.toml"
        >>> _ = path.write_text('[columns.age]\\nkind = "integer"\\nlow = 18\\nhigh = 110\\n')
        >>> dc.Schema.from_toml(path)["age"].high
        110
        """
        need(path, (str, Path), "schema file", "a path")
        what = f"schema file {brief(path)}"
        if not os.path.lexists(path):
            raise SchemaError(what, "must exist", found="no such file", fix="make one: distcondense init TABLE")
        try:
            data = parse_toml(read_text(path, what, SchemaError))
        except OutsideError as error:
            raise SchemaError(what, "must be valid TOML", found=str(error), fix="correct that line") from None
        return cls.from_dict(data, where=brief(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "schema") -> Schema:
        """A schema from the parsed TOML; unknown keys are errors that name the nearest legal key."""
        need(data, Mapping, where, "a table")
        _refuse_what_no_file_holds(data, where)
        lists: dict[str, Any] = {key: [] for key in ("missing_values", "notes", "left_out", "rules", "attested")}
        problems = unknown_keys(data, {"format", "origin", "out_of_range", *lists, *PARTS}, "")
        head: dict[str, Any] = {"format": FORMAT, "origin": "declared", "out_of_range": "refuse"}
        head |= lists | {part: {} for part in PARTS} | dict(data)
        refusals = [
            (head["format"] == FORMAT, f"format must be {FORMAT}", f"write format = {FORMAT}"),
            (head["origin"] in ORIGINS, 'origin must be "declared" or "inferred"', "correct that line"),
            (
                isinstance(head["missing_values"], list | tuple),
                "missing_values must be a list",
                'write missing_values = [-9, "?"]',
            ),
            (
                head["out_of_range"] in get_args(OutOfRange),
                f"out_of_range must be one of {', '.join(get_args(OutOfRange))}",
                "correct that line",
            ),
            *((_are_texts(head[key]), f"{key} must be a list of texts", f'write {key} = ["…"]') for key in _TEXTS),
            *(
                (isinstance(head[key], list | tuple), f"{key} must be a list of tables", f"write [[{key}]]")
                for key in ("rules", "attested")
            ),
            *((isinstance(head[p], Mapping), f"{p} must be tables", f"write [{p}.NAME] sections") for p in PARTS),
        ]
        for legal, rule, fix in refusals:
            if not legal:
                key = rule.split()[0]
                found = said(head[key]) if key in ("format", "origin", "out_of_range") else "another type"
                raise SchemaError(where, rule, found=found, fix=fix)
        shared = head["missing_values"], head["out_of_range"]
        columns = {part: tuple(_columns_in(head[part], part, *shared, problems)) for part in PARTS}
        rules = _tables_in(head["rules"], "rules", rule_from, problems)
        attested = _tables_in(head["attested"], "attested", Attestation.from_entry, problems)
        if head["origin"] == "declared":
            problems += [
                f"[columns.{c.name}] inferred: {', '.join(map(str, c.inferred))}: read off patients, which nothing of "
                "a declared schema is. Check them, then take the line out"
                for c in columns["columns"]
                if c.inferred
            ]
        if problems:  # together with what the columns themselves say
            _refuse_all(problems + _column_problems(columns), where)
        parts: dict[str, Any] = {key: tuple(head[key]) for key in _TEXTS} | columns
        return cls(origin=head["origin"], rules=rules, attested=attested, **parts)

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` reads, and what TOML can hold."""
        head: dict[str, Any] = {"format": FORMAT, "origin": self.origin}
        head |= {key: list(getattr(self, key)) for key in _TEXTS if getattr(self, key)}
        parts = {part: {c.name: c.to_dict() for c in getattr(self, part)} for part in PARTS}
        parts["columns"] |= {c.name: c.to_dict() for c in self.ignored}
        tables = {"rules": [rule.to_dict() for rule in self.rules], "attested": [a.to_dict() for a in self.attested]}
        return head | {part: entry for part, entry in (parts | tables).items() if entry}

    def to_toml(self, path: str | Path | None = None, *, comments: Mapping[str, str] | None = None) -> str:
        """The text of a schema file, which `from_toml` reads; it is written to `path`, where one is given.

        Parameters
        ----------
        path : path, optional
            A file that is made, or replaced.
        comments : mapping of str to str, optional
            Lines below the section of a column, by its name.
        """
        import tomli_w  # the standard library reads TOML but does not write it

        entries = self.to_dict()
        # tables in a row may become `rules = [...]`, which after a section would be the section's
        pieces = [{key: value for key, value in entries.items() if key not in (*PARTS, *TABLES)}]
        pieces += [{part: entries[part]} for part in TABLES if part in entries]
        pieces += [{part: {name: entry}} for part in PARTS for name, entry in entries.get(part, {}).items()]
        below = {
            name: "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
            for name, text in (comments or {}).items()
        }
        text = "\n".join(
            tomli_w.dumps(piece) + "".join(below.get(name, "") for name in piece.get("columns", ())) for piece in pieces
        )
        if self.origin == "inferred":
            text = (INFERRED if any(c.inferred for c in self._described()) else DRAFTED) + text
        if path is not None:
            need(path, (str, Path), "path", "a path", fix='to_toml("cohort.toml")')
            with os_errors(f"file {brief(path)}", "must be writable", SchemaError):
                Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def draft(
        cls,
        table: Any,
        *,
        target: str | None = None,
        time: str | None = None,
        event: str | None = None,
        person_id: str | None = None,
        query: str | Path | None = None,
    ) -> Schema:
        """What `distcondense init` proposes where nobody answers: a schema for `confirm`.

        Kinds, categories and holes are read off the table, and each column says so (`inferred`). Bounds are not: they
        come from the column's name where it has usual ones (age), else they are found privately, for a share of ε.

        Parameters
        ----------
        table : DataFrame or path
            Of pandas, Polars or Arrow; or a file, or with `query` a database, as of `dc.condense`.
        target : str, optional
            The outcome column; or else `time` and `event`.
        time, event : str, optional
            Follow-up time, and whether the event was seen.
        person_id : str, optional
            The column that says whose row it is.
        query : str or Path, optional
            SQL, or a file of it, whose rows are the table.

        Returns
        -------
        Schema
            With origin "inferred". Identifiers, dates, names and free text are left out, with the reason.

        Examples
        --------
        >>> import distcondense as dc, pandas as pd
        >>> table = pd.DataFrame({"age": [34, 71, 58] * 9, "bmi": [21.5, 30.25, 24.0] * 9, "died": [0, 1, 1] * 9})
        >>> schema = dc.Schema.draft(table, target="died")
        >>> schema.origin, schema["age"].high, schema["bmi"].domain
        ('inferred', 120, 'declared')
        >>> schema.confirm(by="A. Weber", changes={"bmi": (10, 80)}).origin
        'declared'
        """
        from distcondense.data.tables import as_frame, read_table

        frame = read_table(table, query=query) if isinstance(table, str | Path) else as_frame(table)
        roles = {"target": target, "time": time, "event": event}
        drafted = import_module("distcondense.guide.wizard").drafted  # the same questions, in a package above this one
        said = {role: name for role, name in roles.items() if name is not None}
        return drafted(frame, said, person_id)  # type: ignore[no-any-return]

    def confirm(self, *names: str, by: str, changes: Mapping[str, Any] | None = None) -> Schema:
        """Stand for what was read off a table, by name: "I know these from the codebook, not from this file."

        Parameters
        ----------
        *names : str
            Columns whose description is known from elsewhere; all of them if none is named.
        by : str
            Who says so. The name stands in the schema and in the datasheet of a release.
        changes : mapping of str to (low, high), list of categories, Column or None, optional
            What is known better than it was drafted: bounds, all the categories there may be, a whole description; or
            None, to leave the column out.

        Returns
        -------
        Schema
            With origin "declared" once somebody stands for every column.

        Raises
        ------
        SchemaError
            Where a column is not there, or a change is no legal description of it.
        """
        columns = {column.name: column for column in (*self.columns, *self.ignored)}
        changes = {} if changes is None else changes
        need(changes, Mapping, "changes", "a mapping by column", fix='e.g. {"age": (18, 110)}')
        for name in (*names, *changes):
            need(name, str, "confirm", "names of columns")
            if name not in columns:
                raise SchemaError(f"column {name!r}", "must be in the schema", found=nearest(name, list(columns)))
        changed = {name: _changed(columns[name], change) for name, change in changes.items()}
        known = dict.fromkeys((*names, *changes) if names else columns)
        if any(c.inferred for c in columns.values()):
            open_ = {name for name, c in columns.items() if c.inferred and name not in known}
        elif self.origin == "inferred":  # `infer`: its bounds are those of the rows
            open_ = {name for name, c in columns.items() if (c.numeric and name not in changes) or name not in known}
            if not names and open_:
                raise SchemaError(
                    ", ".join(sorted(open_)),
                    "must have bounds that somebody knows: these are the rows' own",
                    found="no change",
                    fix='changes={"age": (18, 110), …}, or begin with Schema.draft',
                )
        else:
            open_ = set()
        kept = [replace(c, inferred=()) if name in known else c for name, c in (columns | changed).items()]
        attested = Attestation(by, date.today().isoformat(), columns=tuple(known))
        origin: Literal["declared", "inferred"] = "inferred" if open_ else "declared"
        return replace(self, columns=tuple(kept), ignored=(), origin=origin, attested=(*self.attested, attested))

    @classmethod
    def infer(cls, frame: pd.DataFrame, names: Iterable[str] | None = None) -> Schema:
        """A draft read off the data, for a person to check; it is marked as inferred.

        Parameters
        ----------
        frame : pandas.DataFrame
            Or an Arrow or Polars table.
        names : iterable of str, optional
            The columns to describe; all if not given.

        Returns
        -------
        Schema
            With origin "inferred". Identifiers, dates and free text are ignored, with the reason.

        Examples
        --------
        >>> import distcondense as dc, pandas as pd
        >>> drafted = dc.Schema.infer(pd.DataFrame({"age": [34, 71], "smoker": ["no", "yes"]}))
        >>> drafted.origin, drafted["smoker"].categories
        ('inferred', ('no', 'yes'))
        """
        from distcondense.data.draft import draft
        from distcondense.data.tables import as_frame

        return draft(as_frame(frame), names, codes=False).schema


def _changed(column: Column, change: Any) -> Column:
    """A column as somebody knows it: whole, left out, or with other bounds or categories."""
    if change is None:
        return Column(column.name, "ignore", reason="left out by whoever wrote the schema")
    if isinstance(change, Column):
        return replace(change, name=column.name)
    need(change, (tuple, list), f"changes, {column.name}", "(low, high), a list of categories, a Column or None")
    if isinstance(change, tuple) and column.numeric:
        if len(change) != 2:
            raise SchemaError(f"column {column.name!r}", "bounds must be two numbers", found=f"{len(change)} entries")
        low, high = map(plain_value, change)
        bounded = replace(column, low=low, high=high, domain="declared")
        return bounded if not bounded.problems() else replace(bounded, decimals=None)  # which was read off rows
    kind = column.kind if not column.numeric and len(change) == 2 else "categorical"
    return replace(
        column, kind=kind, low=None, high=None, domain="declared", categories=tuple(map(plain_value, change))
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def _columns_in(
    sections: Mapping[str, Any], part: str, codes_for_all: Sequence[Any], out_of_range: str, problems: list[str]
) -> Iterator[Column]:
    """The columns that one part of a schema file describes; what is wrong with how they are written is a problem."""
    for name, entry in sections.items():
        section = f"[{part}.{name}] "
        if not isinstance(entry, Mapping):
            problems.append(f'{section}must be a table, e.g. kind = "continuous"')
            continue
        values, wrong = _private_words(entry)
        problems += [f"{section}{problem}" for problem in wrong]
        problems += unknown_keys(values, _KEYS, section)
        lists = {key: values.get(key, ()) for key in ("categories", "missing_values", "inferred")}
        unlisted = [key for key, value in lists.items() if not isinstance(value, list | tuple)]
        if "kind" not in values:
            problems.append(f'{section}must have a kind, e.g. kind = "continuous"')
        elif unlisted:
            problems.append(f"{section}{unlisted[0]} must be a list")
        else:
            categories = tuple(map(plain_value, lists["categories"]))
            shared = codes_for_all if part == "columns" and values["kind"] != "ignore" else ()
            codes = [*map(plain_value, lists["missing_values"])]
            codes += [code for code in map(plain_value, shared) if code not in categories]
            legal = {key: value for key, value in values.items() if key in _KEYS}
            different = tuple(code for k, code in enumerate(codes) if code not in codes[:k])
            inferred = tuple(lists["inferred"])
            own = {"name": str(name), "categories": categories, "missing_values": different, "inferred": inferred}
            column = Column(**legal | own)
            if part == "columns" and "out_of_range" not in values:
                wide: Any = replace(column, out_of_range=out_of_range)  # type: ignore[arg-type]
                column = column if column.is_ignored or column.problems() != wide.problems() else wide
            yield column


def _tables_in(
    entries: Iterable[Any], part: str, read: Callable[[Any], _Entry], problems: list[str]
) -> tuple[_Entry, ...]:
    """What the tables of one part say; those that cannot be read are problems."""
    out = []
    for number, entry in enumerate(entries, 1):
        try:
            out.append(read(entry))
        except SchemaError as error:
            problems.append(f"[[{part}]] {number}: {error}")
    return tuple(out)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def _private_words(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """bounds = "private" and categories = "private" as the one field they stand for; and what is wrong with them."""
    numeric = entry.get("kind") in ("continuous", "integer")
    word, other = ("bounds", "categories") if numeric else ("categories", "bounds")
    wrong = []
    if "bounds" in entry and entry["bounds"] != "private":
        wrong.append(f'bounds can only be "private"; else write low and high. Found {said(entry["bounds"])}')
    elif entry.get(other) == "private":
        wrong.append(f'{other} = "private" belongs to {"categorical" if numeric else "continuous and integer"} columns')
    elif entry.get(word) == "private" and ("low" in entry or "high" in entry):
        wrong.append('bounds = "private" and low or high exclude each other')
    private = "private" in (entry.get("bounds"), entry.get("categories"))
    rest = {k: v for k, v in entry.items() if k != "bounds" and not (k == "categories" and v == "private")}
    return (rest | {"domain": "private"} if private else rest), wrong


def _refuse_what_no_file_holds(data: Mapping[str, Any], where: str) -> None:
    """Frames, arrays and the like compare element by element: what follows would trip over them, wherever they are."""
    try:
        odd = next((leaf for leaf in leaves(data) if leaf is pd.NaT or not isinstance(leaf, PLAIN)), None)
    except OutsideError as error:
        raise SchemaError(where, "must be within bounds", found=str(error), fix="write flat tables") from None
    if odd is not None:
        raise SchemaError(
            where,
            "must be made of texts, numbers, dates, lists and tables",
            found=f"a {type(odd).__name__}",
            fix="write what a schema file can hold",
        )


def unknown_keys(data: Mapping[str, Any], legal: set[str], section: str) -> list[str]:
    """A problem for each key that is not legal, with the nearest one that is."""
    return [f"{section}unknown key: {nearest(str(key), sorted(legal))}" for key in data if key not in legal]


def _column_problems(parts: Mapping[str, Iterable[Column]]) -> list[str]:
    return [
        f"[{part}.{c.name}] {problem}" for part, columns in parts.items() for c in columns for problem in c.problems()
    ]


def _refuse_all(problems: Sequence[str], what: str) -> NoReturn:
    listed = f"{len(problems)} problems:" + "".join(f"\n  - {problem}" for problem in problems)
    found = problems[0] if len(problems) == 1 else listed
    raise SchemaError(what, "must describe every column legally", found=found, fix="edit the schema file")
