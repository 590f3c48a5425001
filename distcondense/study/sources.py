"""The [[data]] tables of a study file: where rows come from, what is predicted. Of a table only its header is read."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from distcondense.data.cohort import Facts
from distcondense.data.csv_table import header_of
from distcondense.data.datasets import DATASETS, POPULATIONS
from distcondense.data.dialect import Dialect
from distcondense.data.names import Names, nearest
from distcondense.data.outcome import Goal
from distcondense.data.populations import count
from distcondense.data.roles import ROLES
from distcondense.data.schema import Label, Schema, unknown_keys
from distcondense.data.tables import MISSING_MARKERS, at_uri, is_csv, is_uri, table_name
from distcondense.errors import UserError
from distcondense.privacy.odometer import Odometer
from distcondense.study.toml_table import TomlTable, digest

WRITTEN = ("separator", "encoding", "decimal")
OUTCOME = (*ROLES, "positive", "kind", "ignore")
DATA = (
    "name",
    "path",
    "simulated",
    "options",
    "schema",
    *OUTCOME,
    "outcome",
    "person_id",
    "missing_markers",
    *WRITTEN,
    "rename",
    "where",
    "test_on",
    "odometer",
)


@dataclass(frozen=True)
class Endpoint:
    """One outcome of a table, and the columns that are no features beside it."""

    goal: Goal = field(default_factory=Goal)
    name: str = ""  # where a table has several
    ignore: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        return {
            "columns": dict(self.goal.columns),
            "positive": self.goal.positive,
            "kind": self.goal.kind,
            "ignore": self.ignore,
        }


@dataclass(frozen=True)
class Source:
    """Where rows come from: a table on disk, or a simulated population."""

    name: str
    content: str  # digest of the file, or of the simulation: who the patients are
    path: str | None = None  # absolute, or a URI
    simulated: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    schema: Schema | None = None
    person_id: str | None = None
    missing_markers: tuple[str, ...] = MISSING_MARKERS
    dialect: Dialect = field(default_factory=Dialect)  # how a CSV is written
    rename: dict[str, str] = field(default_factory=dict)  # the file's name → the schema's
    where: dict[str, Label] = field(default_factory=dict)  # only rows with these values, each row by its own cell

    @cached_property
    def identity(self) -> dict[str, Any]:
        schema = {} if self.schema is None else self.schema.to_dict()
        schema.pop("notes", None)
        return {
            "content": self.content,
            "schema": schema,
            "person_id": self.person_id,
            "rename": self.rename,
            "missing_markers": self.missing_markers,
            "where": self.where,
            **self.dialect.stated(),
        }

    def aside(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Columns that are no features besides outcome and person: ignored, or the same in all rows that are read."""
        return (*endpoint.ignore, *(self.rename.get(name, name) for name in self.where))

    def facts(self, endpoint: Endpoint) -> Facts:
        """What is public about its rows with this outcome."""
        return Facts.from_goal(endpoint.goal, self.schema, person_id=self.person_id, ignore=self.aside(endpoint))


@dataclass(frozen=True)
class DataTable:
    """A [[data]] table as it was read."""

    where: str
    name: str
    source: Source
    endpoints: tuple[Endpoint, ...]
    facts: Mapping[str, Facts]  # endpoint's name → what is public about the rows with it; none where it is illegal
    test_on: tuple[str, ...]
    odometer: str | None = None  # the account of its patients


def read_odometer(entry: TomlTable, folder: Path) -> str | None:
    """Where the account lies that [study] or a [[data]] names; one that cannot be read is a problem."""
    said = entry.text("odometer")
    if said is None:
        return None
    try:
        place = os.path.realpath(folder / said)
    except ValueError:  # a NUL in it: no file, which the account then says
        place = str(folder / said)
    try:
        Odometer(place)
    except UserError as error:
        entry.wrong(f"odometer: {error}")
    return place


def read_data(values: Any, number: int, folder: Path, problems: list[str]) -> DataTable:
    """One [[data]] table; what is wrong with it goes to `problems`."""
    entry = TomlTable(values, f"[[data]] {number}:", DATA, problems)
    name = entry.name("name")
    entry.where = f"[[data]] {name or number}:"
    path, simulated, schema = entry.text("path"), entry.text("simulated"), entry.text("schema")
    if (path is None) == (simulated is None):
        entry.wrong("must have a path or simulated, one of the two")
    endpoints = _endpoints(entry, problems)
    common: dict[str, Any] = {
        "person_id": entry.text("person_id"),
        "rename": entry.table("rename"),
        "where": entry.table("where"),
        "missing_markers": (*MISSING_MARKERS, *entry.texts("missing_markers")),
        "dialect": _dialect(entry),
    }
    for key in ("rename", "where"):
        if not all(isinstance(v, str if key == "rename" else str | int | float) for v in common[key].values()):
            entry.wrong(f'{key} must be of the form {key} = {{column = "…"}}')
    if simulated is not None:
        source, endpoints = _simulated(entry, name, simulated)
    else:
        source = Source(name, "", schema=_schema(entry, folder, schema), **common)
        if "options" in entry.values:
            entry.wrong("options belong to simulated data")
        if path is not None:
            source = _on_disk(entry, source, folder, path, endpoints)
    chosen = {source.rename.get(column, column) for column in source.where}
    for column in sorted(chosen & {c for endpoint in endpoints for c in endpoint.goal.columns.values()}):
        entry.wrong(f"where must not choose rows by their outcome. Found {column!r}")
    broken = schema is not None and source.schema is None  # then nothing can be said about outcomes
    facts = {} if broken else _facts(entry, source, endpoints)
    return DataTable(entry.where, name, source, endpoints, facts, entry.texts("test_on"), read_odometer(entry, folder))


def _endpoints(entry: TomlTable, problems: list[str]) -> tuple[Endpoint, ...]:
    """The outcomes of a table: its own keys, or its [[data.outcome]] tables."""
    if "outcome" not in entry.values:
        return () if entry.values.get("simulated") is not None else (_endpoint(entry, ""),)
    here = [key for key in OUTCOME if key in entry.values and key != "ignore"]
    if here:
        entry.wrong(f"has [[data.outcome]] tables, so {', '.join(here)} must be in them")
    found = []
    for number, values in enumerate(entry.tables("outcome"), 1):
        inner = TomlTable(values, f"{entry.where} [[data.outcome]] {number}:", ("name", *OUTCOME), problems)
        endpoint = _endpoint(inner, inner.name("name"))
        found.append(replace(endpoint, ignore=(*entry.texts("ignore"), *endpoint.ignore)))
    if len({endpoint.name for endpoint in found}) < len(found):
        entry.wrong("[[data.outcome]] names must differ")
    return tuple(found)


def _endpoint(entry: TomlTable, name: str) -> Endpoint:
    positive = entry.values.get("positive")
    if positive is not None and not isinstance(positive, str | int | float):
        entry.wrong("positive must be a value of the outcome column")
        positive = None
    columns = {role: entry.text(role) for role in ROLES}
    goal = Goal.from_roles(positive=positive, kind=entry.text("kind"), **columns)
    return Endpoint(goal, name, entry.texts("ignore"))


def _facts(entry: TomlTable, source: Source, endpoints: Sequence[Endpoint]) -> dict[str, Facts]:
    """What is public about each outcome; columns that are none of any kind are a problem."""
    found = {}
    for endpoint in endpoints:
        try:
            found[endpoint.name] = source.facts(endpoint)
        except UserError as error:
            entry.wrong(f"[[data.outcome]] {endpoint.name}: {error}" if endpoint.name else str(error))
    return found


def _simulated(entry: TomlTable, name: str, simulated: str) -> tuple[Source, tuple[Endpoint, ...]]:
    foreign = [
        k
        for k in ("schema", *OUTCOME, "outcome", "person_id", "rename", "where", "missing_markers", *WRITTEN)
        if k in entry.values
    ]
    if foreign:
        entry.wrong(f"simulated data bring their own schema and outcome. Found {', '.join(foreign)}")
    options = entry.table("options")
    blank: tuple[Source, tuple[Endpoint, ...]] = Source(name, "", simulated=simulated), ()
    if simulated not in DATASETS:
        entry.wrong(f"simulated: {nearest(simulated, DATASETS)}")
        return blank
    legal = list(inspect.signature(DATASETS[simulated]).parameters)
    unknown = unknown_keys(options, set(legal), "options: ")
    for problem in unknown:
        entry.wrong(problem)
    if unknown:
        return blank
    try:
        for key in ("rows", "seed"):
            count(key, options.get(key, 1), least=int(key == "rows"))
        population = {key: value for key, value in options.items() if key not in ("rows", "seed")}
        made = POPULATIONS.get(simulated, DATASETS[simulated])(**population)  # columns and outcome, without its rows
    except (UserError, TypeError) as error:
        entry.wrong(f"options: {error}")
        return blank
    content = digest({"simulated": simulated, "options": options})
    source = Source(name, content, simulated=simulated, options=options, schema=made.schema)
    return source, (Endpoint(Goal.from_roles(**{role: getattr(made, role, None) for role in ROLES})),)


def _schema(entry: TomlTable, folder: Path, schema: str | None) -> Schema | None:
    try:
        return None if schema is None else Schema.from_toml(folder / schema)
    except UserError as error:
        entry.wrong(f"schema: {error}")
        return None


def _dialect(entry: TomlTable) -> Dialect:
    try:
        return Dialect(*(entry.text(key) for key in WRITTEN))
    except UserError as error:
        entry.wrong(str(error))
        return Dialect()


def _on_disk(entry: TomlTable, source: Source, folder: Path, path: str, endpoints: Sequence[Endpoint]) -> Source:
    """The table's whole contents decide which patients these are; of its columns only the names are read here."""
    try:
        place = path if is_uri(path) else os.path.realpath(folder / Path(path).expanduser())
        found = at_uri(path, f"table {table_name(path)}") if is_uri(path) else Path(place)
        with io.BytesIO(found) if isinstance(found, bytes) else open(found, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            names = _column_names(found, stream, table_name(path).lower(), source, endpoints)
    except FileNotFoundError:
        entry.wrong(f"path: no such file, {path}")
        return source
    except UserError as error:
        entry.wrong(f"path: {error}")
        return source
    except (OSError, EOFError, ValueError, RuntimeError) as error:  # RuntimeError: a ~ that is nobody's home
        entry.wrong(f"path must be a readable table. Found {type(error).__name__}")
        return source
    source = replace(source, path=place, content=content)
    if names is not None:
        absent = [old for old in (*source.rename, *source.where) if old not in names]
        renamed = [source.rename.get(n, n) for n in names]
        asked = [c for endpoint in endpoints for c in (*endpoint.goal.columns.values(), *endpoint.ignore)]
        absent += [c for c in (*asked, *([source.person_id] if source.person_id else [])) if c not in renamed]
        known = {*asked, *source.rename, *source.where, *(() if source.schema is None else source.schema.every)}
        header = Names([*names, *renamed], known)
        for column in dict.fromkeys(absent):
            entry.wrong(f"column {column!r} must be in the table. Found {header.nearest(column)}")
    return source


def _column_names(
    found: Path | bytes, stream: Any, name: str, source: Source, endpoints: Sequence[Endpoint]
) -> list[str] | None:
    """From the header; None where the format is not known or the file is broken, which reading it will say."""
    import pyarrow.parquet

    try:
        if is_csv(name):
            in_file = {new: old for old, new in source.rename.items()}
            asked = [c for endpoint in endpoints for c in (*endpoint.goal.columns.values(), *endpoint.ignore)]
            asked += [*([] if source.schema is None else source.schema.names), *filter(None, [source.person_id])]
            return header_of(found, name, source.dialect, {*(in_file.get(c, c) for c in asked), *source.where})
        if name.endswith((".parquet", ".pq")):
            return [str(n) for n in pyarrow.parquet.read_schema(stream).names]
    except UserError:
        raise
    except (ValueError, pyarrow.ArrowException):
        pass
    return None


# -- other sites ------------------------------------------------------------------------------------------------------


def wrong_sites(data: DataTable, known: Mapping[str, DataTable]) -> Iterator[str]:
    """What keeps models of this table from being tested on those it names."""
    for name in data.test_on:
        other = known.get(name)
        if other is None or name == data.name:
            rest = sorted(set(known) - {data.name})
            found = "the table itself" if other is not None else nearest(name, rest)
            yield f"{data.where} test_on must name other [[data]]. Found {found}"
            continue
        for endpoint, here in data.facts.items():
            there = other.facts.get(endpoint)
            if there is None or _predicted(here) != _predicted(there):
                yield f"{data.where} test_on {name!r}: both must have the same outcomes"
            if there is not None and (_features(here) is None or _features(here) != _features(there)):
                yield f"{data.where} test_on {name!r}: both need a schema, with the same columns and categories"


def _features(facts: Facts) -> set[Any] | None:
    """What a model must find again at another site; None where that is not known before the rows are."""
    return None if facts.schema is None else {(c.name, c.kind, c.categories, c.missing) for c in facts.schema.columns}


def _predicted(facts: Facts) -> dict[str, Any]:
    """What kind of outcome it is and its values; a site may call its columns as it likes."""
    return {key: value for key, value in facts.kind.facts().items() if key != "columns"}
