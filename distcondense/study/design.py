"""The study file: TOML → a checked grid, data × outcome × method × reference × IPC × ε × seeds.

    [study]
    name = "breast"
    seeds = [0, 1, 2]
    ipc = [50, 100]
    memory_gb = 2                      # of one cell: bounds how many run at once

    [[data]]
    name = "seer"
    path = "../seer.csv"               # from this file's folder, or a URI; or simulated = "…", options = {rows = 500}
    schema = "seer-schema.toml"
    time = "months"                    # or target = "…"; several outcomes: [[data.outcome]] tables, each with a name
    event = "status"

    [[method]]
    mechanism = "private"
    reference = ["cox", "aft"]
    epsilon = [1.0, 2.5]               # end-to-end for private, as-published for published
    settings = {holdout = 0.2}         # any other field of Settings

Every problem of a file is in one message. A cell's folder is named after what the cell is: a readable part and a digest
of its definition with the contents of its table, so a changed file never finds the cells of another definition.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from distcondense.data.cohort import Task
from distcondense.data.datasets import DATASETS, RECIPES
from distcondense.data.populations import count
from distcondense.data.schema import Label, Schema, nearest, unknown_keys
from distcondense.data.tables import MISSING_MARKERS, at_uri, is_csv, is_uri, table_name
from distcondense.errors import SettingsError, UserError
from distcondense.methods.private.condense import public_side
from distcondense.models.learners import LEARNERS
from distcondense.settings import Mechanism, Settings

GUARANTEES = {"private": "end-to-end", "published": "as-published", "none": "none"}
OUTCOME = ("target", "time", "event", "positive", "ignore")
STUDY = ("name", "seeds", "ipc", "memory_gb", "threads")
DATA = ("name", "path", "simulated", "options", "schema", *OUTCOME, "outcome", "person_id", "missing_markers", "rename",
        "where", "test_on")  # fmt: skip
METHOD = ("name", "mechanism", "reference", "epsilon", "ipc", "data", "settings")
ELSEWHERE = {"mechanism", "ipc", "epsilon", "seed"}  # fields of Settings that the grid itself sets
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
MOST_CELLS = 10_000  # a typing error in a list, not a study


@dataclass(frozen=True)
class Goal:
    """One outcome of a table."""

    name: str = ""  # where a table has several
    target: str | None = None
    time: str | None = None
    event: str | None = None
    positive: Label | None = None
    ignore: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        return "binary" if self.time is None else "survival"


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
    rename: dict[str, str] = field(default_factory=dict)  # the file's name → the schema's
    where: dict[str, Label] = field(default_factory=dict)  # only rows with these values, e.g. of one site

    def identity(self) -> dict[str, Any]:
        schema = {} if self.schema is None else self.schema.to_dict()
        schema.pop("notes", None)
        return {
            "content": self.content, "schema": schema, "person_id": self.person_id, "rename": self.rename,
            "missing_markers": self.missing_markers, "where": self.where,
        }  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run: everything a process needs to make it, and nothing else."""

    source: Source
    goal: Goal
    method: str
    mechanism: str
    reference: str
    ipc: int
    epsilon: float | None
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    test_on: tuple[tuple[Source, Goal], ...] = ()  # other sites to test on; not part of what the run itself is

    @property
    def guarantee(self) -> str:
        return GUARANTEES[self.mechanism]

    @property
    def data(self) -> str:
        """The table, and which of its outcomes where there are several."""
        return f"{self.source.name}:{self.goal.name}" if self.goal.name else self.source.name

    def identity(self) -> dict[str, Any]:
        """What the run is; where the table lies, how it is called and where else it is tested are not part of it."""
        goal = {key: getattr(self.goal, key) for key in OUTCOME}
        return {
            "data": self.source.identity(), "outcome": goal, "mechanism": self.mechanism, "reference": self.reference,
            "ipc": self.ipc, f"epsilon_{self.guarantee}": self.epsilon, "seed": self.seed, "settings": self.settings,
        }  # fmt: skip

    @cached_property
    def name(self) -> str:
        """The folder's name: stable, readable, and another one for another definition."""
        epsilon = "" if self.epsilon is None else f"eps{self.epsilon:g}-{self.guarantee}"
        parts = (self.source.name, self.goal.name, self.method, self.reference, f"ipc{self.ipc}", epsilon,
                 f"seed{self.seed}", digest(self.identity())[:10])  # fmt: skip
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Study:
    """A checked study file."""

    name: str
    cells: tuple[Cell, ...]
    memory_gb: float
    threads: int
    text: str  # the file as it was read

    @classmethod
    def from_toml(cls, path: str | Path) -> Study:
        """Read and check a study file; all that is wrong with it is said at once."""
        path = Path(path)
        what = f"study file {path.name}"
        try:
            text = path.read_text(encoding="utf-8")
            data = tomllib.loads(text)
        except FileNotFoundError:
            raise SettingsError(what, "must exist", found="no such file", fix="check the path") from None
        except OSError as error:
            raise SettingsError(
                what, "must be a readable file", found=type(error).__name__, fix="check the path"
            ) from None
        except UnicodeDecodeError:
            raise SettingsError(what, "must be text in UTF-8", found="other bytes", fix="save it as UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(what, "must be valid TOML", found=str(error), fix="correct that line") from None
        problems: list[str] = []
        study = _study(data, path.parent, text, problems)
        if problems or study is None:
            _refuse_all(what, problems)
        return study


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _refuse_all(what: str, problems: Sequence[str]) -> NoReturn:
    problems = list(dict.fromkeys(problems))  # one wrong line may spoil many cells in the same words
    shown = (
        problems[0] if len(problems) == 1 else f"{len(problems)} problems:" + "".join(f"\n  - {p}" for p in problems)
    )
    raise SettingsError(what, "must describe a study", found=shown, fix="edit the study file")


# -- reading ----------------------------------------------------------------------------------------------------------


class _Table:
    """One table of the file; every answer that is not of the asked kind becomes a problem, and then a default."""

    def __init__(self, values: Any, where: str, legal: Sequence[str], problems: list[str]) -> None:
        self.where, self.problems = where, problems
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        if not isinstance(values, Mapping):
            self.wrong("must be a table")
        problems += unknown_keys(self.values, set(legal), f"{where} ")

    def wrong(self, text: str) -> None:
        self.problems.append(f"{self.where} {text}")

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value):
            self.wrong(f"{key} must be a text")
            return default
        return value

    def name(self, key: str, default: str = "") -> str:
        value = self.text(key, default or None)
        if value is None:
            self.wrong(f"must have a {key}")
            return ""
        if not NAME.fullmatch(value):
            self.wrong(f"{key} must be at most 40 letters, digits and . _ + - (it names folders). Found {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """One text or a list of them."""
        return self._list(key, "texts", lambda v: isinstance(v, str) and bool(v))

    def wholes(self, key: str) -> tuple[int, ...]:
        return self._list(key, "whole numbers", lambda v: isinstance(v, int) and not isinstance(v, bool))

    def numbers(self, key: str) -> tuple[float, ...]:
        found = self._list(key, "numbers", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
        return tuple(map(float, found))

    def one(self, key: str, found: tuple[Any, ...], default: Any) -> Any:
        if len(found) > 1:
            self.wrong(f"{key} must be one number")
        return found[0] if found else default

    def _list(self, key: str, kind: str, good: Any) -> tuple[Any, ...]:
        value = self.values.get(key, [])
        value = value if isinstance(value, list) else [value]
        if not all(map(good, value)):
            self.wrong(f"{key} must be {kind}")
            return ()
        twice = [repr(v) for v, times in Counter(value).items() if times > 1]
        if twice:
            self.wrong(f"{key} must not repeat. Found {', '.join(twice)} twice")
        return tuple(dict.fromkeys(value))

    def table(self, key: str) -> dict[str, Any]:
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.wrong(f"{key} must be a table, e.g. {key} = {{…}}")
            return {}
        return dict(value)

    def tables(self, key: str) -> list[Any]:
        value = self.values.get(key, [])
        if not isinstance(value, list):
            self.wrong(f"{key} must be written as [[{key}]]")
            return []
        return value


def _study(data: Mapping[str, Any], folder: Path, text: str, problems: list[str]) -> Study | None:
    top = _Table(data, "the file:", ("study", "data", "method"), problems)
    head = _Table(data.get("study", {}), "[study]", STUDY, problems)
    name, seeds, ipc = head.name("name"), head.wholes("seeds") or (0,), head.wholes("ipc")
    memory = head.one("memory_gb", head.numbers("memory_gb"), 1.0)
    threads = head.one("threads", head.wholes("threads"), 1)
    if not 0 < memory < float("inf"):
        head.wrong(f"memory_gb must be above 0. Found {memory:g}")
    if threads < 1:
        head.wrong(f"threads must be at least 1. Found {threads}")
    sources = [_data(entry, number, folder, problems) for number, entry in enumerate(top.tables("data"), 1)]
    methods = [_method(entry, number, ipc, problems) for number, entry in enumerate(top.tables("method"), 1)]
    for key, entries in (("data", sources), ("method", methods)):
        if not entries:
            problems.append(f"the file: must have a [[{key}]] table")
        names = Counter(entry.name for entry in entries)
        problems += [f"[[{key}]] names must differ. Found {n!r} {k} times: give each a name"
                     for n, k in names.items() if k > 1 and n]  # fmt: skip
    known = {source.name: source for source in sources}
    for source in sources:
        _check_test_on(source, known, problems)
    used = {name for method in methods for name in method.data or known}
    for method in methods:
        problems += [f"{method.where} data: {nearest(n, sorted(known))}" for n in method.data if n not in known]
    tested = {name for source in sources for name in source.test_on}
    problems += [f"{s.where} is used by no method and no test_on" for s in sources if s.name not in used | tested]
    if problems:
        return None
    cells = tuple(_cells(sources, methods, seeds, problems))
    if not problems and len(cells) > MOST_CELLS:
        problems.append(f"the file: must not ask for more than {MOST_CELLS:,} cells. Found {len(cells):,}")
    return None if problems else Study(name, cells, memory, threads, text)


@dataclass(frozen=True)
class _Data:
    where: str
    name: str
    source: Source
    goals: tuple[Goal, ...]
    test_on: tuple[str, ...]


def _data(entry: Any, number: int, folder: Path, problems: list[str]) -> _Data:
    table = _Table(entry, f"[[data]] {number}:", DATA, problems)
    name = table.name("name")
    table.where = f"[[data]] {name or number}:"
    path, simulated, schema = table.text("path"), table.text("simulated"), table.text("schema")
    if (path is None) == (simulated is None):
        table.wrong("must have a path or simulated, one of the two")
    goals = _goals(table, problems)
    common: dict[str, Any] = {
        "person_id": table.text("person_id"), "rename": table.table("rename"), "where": table.table("where"),
        "missing_markers": (*MISSING_MARKERS, *table.texts("missing_markers")),
    }  # fmt: skip
    for key in ("rename", "where"):
        if not all(isinstance(v, str if key == "rename" else str | int | float) for v in common[key].values()):
            table.wrong(f'{key} must be of the form {key} = {{column = "…"}}')
    if simulated is not None:
        source, goals = _simulated(table, name, simulated)
    else:
        source = Source(name, "", schema=_schema(table, folder, schema), **common)
        if "options" in table.values:
            table.wrong("options belong to simulated data")
        if path is not None:
            source = _on_disk(table, source, folder, path, goals)
    return _Data(table.where, name, source, goals, table.texts("test_on"))


def _goals(table: _Table, problems: list[str]) -> tuple[Goal, ...]:
    """The outcomes of a table: its own keys, or its [[data.outcome]] tables."""
    if "outcome" not in table.values:
        return () if table.values.get("simulated") is not None else (_goal(table, ""),)
    here = [key for key in OUTCOME if key in table.values and key != "ignore"]
    if here:
        table.wrong(f"has [[data.outcome]] tables, so {', '.join(here)} must be in them")
    goals = []
    for number, entry in enumerate(table.tables("outcome"), 1):
        inner = _Table(entry, f"{table.where} [[data.outcome]] {number}:", ("name", *OUTCOME), problems)
        goal = _goal(inner, inner.name("name"))
        goals.append(replace(goal, ignore=(*table.texts("ignore"), *goal.ignore)))
    if len({goal.name for goal in goals}) < len(goals):
        table.wrong("[[data.outcome]] names must differ")
    return tuple(goals)


def _goal(table: _Table, name: str) -> Goal:
    target, time, event = (table.text(key) for key in ("target", "time", "event"))
    if (target is not None) == (time is not None or event is not None) or (time is None) != (event is None):
        table.wrong("needs a target (binary outcome), or a time and an event (survival)")
    elif time is not None and time == event:
        table.wrong("time and event must be two columns")
    positive = table.values.get("positive")
    if positive is not None and not isinstance(positive, str | int | float):
        table.wrong("positive must be a value of the outcome column")
        positive = None
    return Goal(name, target, time, event, positive, table.texts("ignore"))


def _simulated(table: _Table, name: str, simulated: str) -> tuple[Source, tuple[Goal, ...]]:
    foreign = [k for k in ("schema", *OUTCOME, "outcome", "person_id", "rename", "where", "missing_markers")
               if k in table.values]  # fmt: skip
    if foreign:
        table.wrong(f"simulated data bring their own schema and outcome. Found {', '.join(foreign)}")
    options = table.table("options")
    blank = Source(name, "", simulated=simulated), (Goal(target=""),)
    if simulated not in DATASETS:
        table.wrong(f"simulated: {nearest(simulated, DATASETS)}")
        return blank
    legal = list(inspect.signature(DATASETS[simulated]).parameters)
    unknown = unknown_keys(options, set(legal), "options: ")
    for problem in unknown:
        table.wrong(problem)
    if unknown:
        return blank
    try:
        for key in ("rows", "seed"):
            count(key, options.get(key, 1), least=int(key == "rows"))
        population = {key: value for key, value in options.items() if key not in ("rows", "seed")}
        made = RECIPES.get(simulated, DATASETS[simulated])(**population)  # columns and outcome, without its rows
    except (UserError, TypeError) as error:
        table.wrong(f"options: {error}")
        return blank
    content = digest({"simulated": simulated, "options": options})
    source = Source(name, content, simulated=simulated, options=options, schema=made.schema)
    return source, (Goal(target=made.target, time=made.time, event=made.event),)


def _schema(table: _Table, folder: Path, schema: str | None) -> Schema | None:
    try:
        return None if schema is None else Schema.from_toml(folder / schema)
    except UserError as error:
        table.wrong(f"schema: {error}")
        return None


def _on_disk(table: _Table, source: Source, folder: Path, path: str, goals: Sequence[Goal]) -> Source:
    """The table's whole contents decide which patients these are; of its columns only the names are read here."""
    place = path if is_uri(path) else str((folder / path).resolve())
    try:
        found = at_uri(path, f"table {table_name(path)}") if is_uri(path) else Path(place)
        with io.BytesIO(found) if isinstance(found, bytes) else open(found, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            names = _column_names(stream, table_name(path).lower())
    except FileNotFoundError:
        table.wrong(f"path: no such file, {path}")
        return source
    except (OSError, EOFError) as error:
        table.wrong(f"path must be a readable table. Found {type(error).__name__}")
        return source
    except UserError as error:
        table.wrong(f"path: {error}")
        return source
    source = replace(source, path=place, content=content)
    if names is not None:
        absent = [old for old in (*source.rename, *source.where) if old not in names]
        renamed = [source.rename.get(n, n) for n in names]
        asked = [c for g in goals for c in (g.target, g.time, g.event, *g.ignore) if c is not None]
        absent += [c for c in (*asked, *([source.person_id] if source.person_id else [])) if c not in renamed]
        for column in dict.fromkeys(absent):
            table.wrong(f"column {column!r} must be in the table. Found {nearest(column, [*names, *renamed])}")
    return source


def _column_names(stream: Any, name: str) -> list[str] | None:
    """From the header; None where the format is not known or the file is broken, which reading it will say."""
    import pandas as pd
    import pyarrow.parquet

    try:
        if is_csv(name):
            packed: Literal["gzip"] | None = "gzip" if name.endswith(".gz") else None
            return [str(n) for n in pd.read_csv(stream, nrows=0, compression=packed, encoding="utf-8-sig").columns]
        if name.endswith((".parquet", ".pq")):
            return [str(n) for n in pyarrow.parquet.read_schema(stream).names]
    except (ValueError, pyarrow.ArrowException):
        pass
    return None


def _check_test_on(data: _Data, known: Mapping[str, _Data], problems: list[str]) -> None:
    for name in data.test_on:
        other = known.get(name)
        if other is None or name == data.name:
            rest = sorted(set(known) - {data.name})
            found = "the table itself" if other is not None else nearest(name, rest)
            problems.append(f"{data.where} test_on must name other [[data]]. Found {found}")
            continue
        if data.source.schema is None or other.source.schema is None or _features(data) != _features(other):
            problems.append(f"{data.where} test_on {name!r}: both need a schema, with the same columns and categories")
        theirs = {goal.name: goal for goal in other.goals}
        for goal in data.goals:
            if goal.name not in theirs or theirs[goal.name].task != goal.task:
                problems.append(f"{data.where} test_on {name!r}: both must have the same outcomes")


def _features(data: _Data) -> set[Any]:
    """What a model must find again at another site."""
    aside = {data.source.person_id, *data.source.where, *(n for g in data.goals for n in (g.target, g.time, g.event))}
    columns = () if data.source.schema is None else data.source.schema.columns
    return {(c.name, c.kind, c.categories, c.missing) for c in columns if c.name not in aside}


# -- the grid ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Method:
    where: str
    name: str
    mechanism: str
    references: tuple[str, ...]
    epsilons: tuple[float, ...]
    ipcs: tuple[int, ...]
    data: tuple[str, ...]
    settings: dict[str, Any]


def _method(entry: Any, number: int, ipc: tuple[int, ...], problems: list[str]) -> _Method:
    table = _Table(entry, f"[[method]] {number}:", METHOD, problems)
    mechanism = table.text("mechanism", "private") or ""
    name = table.name("name", mechanism)
    table.where = f"[[method]] {name or number}:"
    if mechanism not in get_args(Mechanism):
        table.wrong(f"mechanism must be one of {', '.join(get_args(Mechanism))}. Found {mechanism!r}")
    references = table.texts("reference")
    problems += [f"{table.where} reference: {nearest(r, LEARNERS)}" for r in references if r not in LEARNERS]
    ipcs = table.wholes("ipc") or ipc
    if not ipcs:
        table.wrong("must have an ipc, here or in [study]")
    settings = table.table("settings")
    kinds = {f.name: str(f.type) for f in fields(Settings) if f.name not in ELSEWHERE}
    problems += unknown_keys(settings, set(kinds), f"{table.where} settings: ")
    for key, value in settings.items():
        if key in kinds and not _is_a(value, kinds[key]):
            table.wrong(f"settings: {key} must be {_words(kinds[key])}")
    if "perturbation" in settings and isinstance(settings["perturbation"], list):
        settings["perturbation"] = tuple(settings["perturbation"])
    return _Method(table.where, name, mechanism, references, table.numbers("epsilon"), ipcs, table.texts("data"),
                   settings)  # fmt: skip


def _is_a(value: Any, kind: str) -> bool:
    """Whether a TOML value is what a field of `Settings` with this annotation holds."""
    if kind == "bool":
        return isinstance(value, bool)
    if kind.startswith("tuple"):
        return isinstance(value, list) and len(value) == 2 and all(_is_a(v, "float") for v in value)
    return isinstance(value, int if kind.startswith("int") else int | float) and not isinstance(value, bool)


def _words(kind: str) -> str:
    if kind.startswith("tuple"):
        return "two numbers"
    return {"bool": "true or false", "int": "a whole number"}.get(kind.removesuffix(" | None"), "a number")


def _cells(
    sources: Sequence[_Data], methods: Sequence[_Method], seeds: tuple[int, ...], problems: list[str]
) -> Iterator[Cell]:
    known = {data.name: data for data in sources}
    for data, method in product(sources, methods):
        if method.data and data.name not in method.data:
            continue
        for goal in data.goals:
            others = (known[name] for name in data.test_on)
            sites = tuple((o.source, next(g for g in o.goals if g.name == goal.name)) for o in others)
            for reference in _references(data, goal, method, problems):
                for epsilon in method.epsilons or (None,):
                    cells = [Cell(data.source, goal, method.name, method.mechanism, reference, ipc, epsilon, seed,
                                  method.settings, sites) for ipc in method.ipcs for seed in seeds]  # fmt: skip
                    _check(cells, method.where, problems)
                    yield from cells


def _references(data: _Data, goal: Goal, method: _Method, problems: list[str]) -> list[str]:
    """The method's references, if they are for this kind of outcome."""
    legal = [name for name, learner in LEARNERS.items() if learner.task == goal.task]
    asked = method.references or ({"binary": "xgb", "survival": "cox"}[goal.task],)
    problems += [
        f"{method.where} reference {name!r} does not fit data {data.name!r}, which has a {goal.task} outcome: say "
        f'{" or ".join(legal)}, or name the data this method is for (data = ["…"])'
        for name in asked if name not in legal
    ]  # fmt: skip
    return [name for name in asked if name in legal]


def _check(cells: Sequence[Cell], where: str, problems: list[str]) -> None:
    """Refuse what `condense` would refuse without reading a patient; the cells differ in IPC and seed only."""
    for cell in cells:
        try:
            settings = Settings(
                mechanism=cell.mechanism, ipc=cell.ipc, epsilon=cell.epsilon, seed=cell.seed,  # type: ignore[arg-type]
                **cell.settings,
            )  # fmt: skip
        except UserError as error:
            problems.append(f"{where} {error}")
            return
    source, goal = cells[0].source, cells[0].goal
    if cells[0].mechanism != "private" or (source.schema is None and settings.trust_inferred_schema):
        return
    if source.schema is None:
        problems.append(f"[[data]] {source.name}: needs a schema, whose bounds and categories mechanism private takes "
                        "as public")  # fmt: skip
        return
    if goal.time is not None and settings.horizon is None and goal.time in source.schema:
        settings = replace(settings, horizon=source.schema[goal.time].high)
    names = (goal.target or "",) if goal.time is None else (goal.time, goal.event or "")
    aside = (*names, *goal.ignore, *source.where, source.person_id or "")
    try:
        public_side(source.schema.without(aside), settings, goal.task, names)
    except UserError as error:
        problems.append(f"{where} data {source.name!r}: {error}")
