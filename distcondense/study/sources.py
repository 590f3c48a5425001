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
from typing import Any, BinaryIO

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
    "seen_by",
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
    "account",
)


FOREIGN = ("schema", *OUTCOME, "outcome", "person_id", "rename", "where", "missing_markers", *WRITTEN)  # of simulated


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
    account: str | None = None  # the account of its patients
    seen_by: tuple[str, ...] = ()  # methods whose constants were set with this table in view


def read_account(table: TomlTable, folder: Path) -> str | None:
    """Where the account lies that [study] or a [[data]] names; one that cannot be read is a problem."""
    path = table.text("account")
    if path is None:
        return None
    try:
        place = os.path.realpath(folder / path)
    except ValueError:  # a NUL in it: no file, which the account then says
        place = str(folder / path)
    with table.noting("account: "):
        Odometer(place)
    return place


def read_data(values: Any, number: int, folder: Path, problems: list[str]) -> DataTable:
    """One [[data]] table.

    Parameters
    ----------
    values : Any
        What the file holds there.
    number : int
        Which of the file's [[data]] tables it is, from 1.
    folder : Path
        The study file's, from which paths are.
    problems : list of str
        What is wrong goes here, in words; the table that is given back is then not to be used.

    Returns
    -------
    DataTable
        Its source, outcomes and what is public about them. Of a table's rows nothing but a digest was read.
    """
    table = TomlTable(values, f"[[data]] {number}:", DATA, problems)
    name = table.name("name")
    table.where = f"[[data]] {name or number}:"
    path, simulated = table.text("path"), table.text("simulated")
    if (path is None) == (simulated is None):
        table.wrong("must have a path or simulated, one of the two")
    if simulated is not None:
        source, endpoints = _simulated(table, name, simulated)
    else:
        source, endpoints = _described(table, name, folder), _endpoints(table, problems)
    if path is not None and simulated is None:
        source = _on_disk(table, source, folder, path, endpoints)
    chosen = {source.rename.get(column, column) for column in source.where}
    for column in sorted(chosen & {c for endpoint in endpoints for c in endpoint.goal.columns.values()}):
        table.wrong(f"where must not choose rows by their outcome. Found {column!r}")
    facts = {}
    # of a broken schema nothing can be said about outcomes; columns that are no outcome of any kind are a problem
    for endpoint in endpoints if source.schema is not None or "schema" not in table.values else ():
        with table.noting(f"[[data.outcome]] {endpoint.name}: " if endpoint.name else ""):
            facts[endpoint.name] = source.facts(endpoint)
    account = read_account(table, folder)
    return DataTable(
        table.where, name, source, endpoints, facts, table.texts("test_on"), account, table.texts("seen_by")
    )


def _endpoints(table: TomlTable, problems: list[str]) -> tuple[Endpoint, ...]:
    """The outcomes of a table: its own keys, or its [[data.outcome]] tables."""
    if "outcome" not in table.values:
        return (_endpoint(table, ""),)
    here = [key for key in OUTCOME if key in table.values and key != "ignore"]
    if here:
        table.wrong(f"has [[data.outcome]] tables, so {', '.join(here)} must be in them")
    endpoints = []
    for number, values in enumerate(table.tables("outcome"), 1):
        inner = TomlTable(values, f"{table.where} [[data.outcome]] {number}:", ("name", *OUTCOME), problems)
        endpoint = _endpoint(inner, inner.name("name"))
        endpoints.append(replace(endpoint, ignore=(*table.texts("ignore"), *endpoint.ignore)))
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        table.wrong("[[data.outcome]] names must differ")
    return tuple(endpoints)


def _endpoint(table: TomlTable, name: str) -> Endpoint:
    positive = table.values.get("positive")
    if positive is not None and not isinstance(positive, str | int | float):
        table.wrong("positive must be a value of the outcome column")
        positive = None
    columns = {role: table.text(role) for role in ROLES}
    goal = Goal.from_roles(positive=positive, kind=table.text("kind"), **columns)
    return Endpoint(goal, name, table.texts("ignore"))


def _simulated(table: TomlTable, name: str, simulated: str) -> tuple[Source, tuple[Endpoint, ...]]:
    foreign = [key for key in FOREIGN if key in table.values]
    if foreign:
        table.wrong(f"simulated data bring their own schema and outcome. Found {', '.join(foreign)}")
    options = table.table("options")
    blank: tuple[Source, tuple[Endpoint, ...]] = Source(name, "", simulated=simulated), ()
    if simulated not in DATASETS:
        table.wrong(f"simulated: {nearest(simulated, DATASETS)}")
        return blank
    if unknown := unknown_keys(options, set(inspect.signature(DATASETS[simulated]).parameters), "options: "):
        for problem in unknown:
            table.wrong(problem)
        return blank
    try:
        for key in ("rows", "seed"):
            count(key, options.get(key, 1), least=int(key == "rows"))
        population = {key: value for key, value in options.items() if key not in ("rows", "seed")}
        shape = POPULATIONS.get(simulated, DATASETS[simulated])(**population)  # columns and outcome, without its rows
    except (UserError, TypeError) as error:
        table.wrong(f"options: {error}")
        return blank
    content = digest({"simulated": simulated, "options": options})
    source = Source(name, content, simulated=simulated, options=options, schema=shape.schema)
    return source, (Endpoint(Goal.from_roles(**{role: getattr(shape, role, None) for role in ROLES})),)


def _described(table: TomlTable, name: str, folder: Path) -> Source:
    """A table on disk as the study file describes it."""
    if "options" in table.values:
        table.wrong("options belong to simulated data")
    rename, where = table.table("rename"), table.table("where")
    for key, values, types in (("rename", rename, str), ("where", where, str | int | float)):
        if not all(isinstance(value, types) for value in values.values()):
            table.wrong(f'{key} must be of the form {key} = {{column = "…"}}')
    path, schema, dialect = table.text("schema"), None, Dialect()
    with table.noting("schema: "):
        schema = None if path is None else Schema.from_toml(folder / path)
    with table.noting():
        dialect = Dialect(*(table.text(key) for key in WRITTEN))
    return Source(
        name,
        "",
        schema=schema,
        person_id=table.text("person_id"),
        missing_markers=(*MISSING_MARKERS, *table.texts("missing_markers")),
        dialect=dialect,
        rename=rename,
        where=where,
    )


def _on_disk(table: TomlTable, source: Source, folder: Path, path: str, endpoints: Sequence[Endpoint]) -> Source:
    """The table's whole contents decide which patients these are; of its columns only the names are read here."""
    columns = [c for endpoint in endpoints for c in (*endpoint.goal.columns.values(), *endpoint.ignore)]
    columns += filter(None, [source.person_id])
    try:
        place = path if is_uri(path) else os.path.realpath(folder / Path(path).expanduser())
        file = at_uri(path, f"table {table_name(path)}") if is_uri(path) else Path(place)
        with io.BytesIO(file) if isinstance(file, bytes) else open(file, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            names = _column_names(file, stream, table_name(path).lower(), source, columns)
    except FileNotFoundError:
        table.wrong(f"path: no such file, {path}")
        return source
    except UserError as error:
        table.wrong(f"path: {error}")
        return source
    except (OSError, EOFError, ValueError, RuntimeError) as error:  # RuntimeError: a ~ that is nobody's home
        table.wrong(f"path must be a readable table. Found {type(error).__name__}")
        return source
    if names is not None:
        renamed = [source.rename.get(name, name) for name in names]
        absent = [name for name in (*source.rename, *source.where) if name not in names]
        absent += [name for name in columns if name not in renamed]
        known = {*columns, *source.rename, *source.where, *(() if source.schema is None else source.schema.every)}
        header = Names([*names, *renamed], known)
        for column in dict.fromkeys(absent):
            table.wrong(f"column {column!r} must be in the table. Found {header.nearest(column)}")
    return replace(source, path=place, content=content)


def _column_names(
    file: Path | bytes, stream: BinaryIO, name: str, source: Source, columns: Sequence[str]
) -> list[str] | None:
    """From the header; None where the format is not known or the file is broken, which reading it will say."""
    import pyarrow.parquet

    try:
        if is_csv(name):
            in_file = {new: old for old, new in source.rename.items()}
            named = [*columns, *([] if source.schema is None else source.schema.names)]
            return header_of(file, name, source.dialect, {*(in_file.get(c, c) for c in named), *source.where})
        if name.endswith((".parquet", ".pq")):
            return [str(column) for column in pyarrow.parquet.read_schema(stream).names]
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
            named = "the table itself" if other is not None else nearest(name, rest)
            yield f"{data.where} test_on must name other [[data]]. Found {named}"
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
