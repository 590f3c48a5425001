"""The study file: TOML → a checked grid, data × outcome × method × reference × IPC × ε × seeds.

    [study]
    name = "breast"
    seeds = [0, 1, 2]
    ipc = [50, 100]
    memory_gb = 2                      # of one cell: bounds how many run at once
    account = "patients.jsonl"        # the patients' account, which cells are charged on; or in one [[data]]
    test = 0.2                         # share of persons kept from all methods, the same ones for a seed
    parts = ["utility", "fidelity"]    # of the evaluation, beside each run's own scores (`dc.PARTS`)
    attacks = { parts = ["membership"], seeds = [0] }  # also these, for some of the seeds (data, epsilon)
    modules = ["benchmarks.peers"]     # Python modules with `register()`, which adds methods that are not ours

    [[data]]
    name = "seer"
    path = "../seer.csv"               # from this file's folder, or a URI; or simulated = "…", options = {rows = 500}
    schema = "seer-schema.toml"
    time = "months"                    # or target = "…"; several outcomes: [[data.outcome]] tables, each with a name
    event = "status"                   # what kind of outcome it is the schema says, or kind = "…"

    [[method]]
    method = "private"                 # which, by its name; its own name here is the same unless you give one
    reference = ["cox", "aft"]
    epsilon = [1.0, 2.5]               # of the guarantee that the method can give
    settings = {rows_per_person = 3}   # any other option of the method
    seeds = [0, 1]                     # where it is to have fewer than the others; ipc, data: alike

Where a method makes sets of several IPC from one read of the patients, they are one cell: one fit, one split, one ε.

Every problem of a file is in one message. A cell's folder is named after what the cell is: a readable part and a digest
of its definition with the contents of its table, so a changed file never finds the cells of another definition. The
digest is salted by the study's folder (`study.folder.StudyFolder`): nobody outside can tell whose rows are in it.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from distcondense.data.cohort import Facts
from distcondense.data.names import nearest
from distcondense.data.outcome import kinds
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import DistcondenseWarning, SettingsError, UserError, brief
from distcondense.evaluation.suite import SECTIONS
from distcondense.methods.base import Method, default_method, method_named, options_of, prepare, takes_several
from distcondense.outside import OutsideError, parse_toml, read_text
from distcondense.study.sources import DataTable, Endpoint, Source, read_account, read_data, wrong_sites
from distcondense.study.toml_table import TomlTable, digest

STUDY = ("name", "seeds", "ipc", "memory_gb", "threads", "account", "test", "parts", "attacks", "modules")
METHOD = ("name", "method", "reference", "epsilon", "ipc", "data", "settings", "seeds")
ATTACKED = ("parts", "seeds", "data", "epsilon")
STUDENTS = "utility"  # the part that trains students of several kinds
TEST = 0.2  # of the persons, kept from all methods
GRID = ("ipc", "epsilon", "seed", "reference")  # options that the grid itself sets
MOST_CELLS = 10_000  # a typing error in a list, not a study
IPC_SHOWN = 40  # letters of a folder's name


@dataclass(frozen=True)
class Cell:
    """One run: everything a process needs to make it, and nothing else."""

    source: Source
    endpoint: Endpoint
    method: str  # as the study calls it
    made_by: str  # as the registry of methods calls it
    reference: str
    ipc: int | tuple[int, ...]  # several: of a method that makes all of them from one read of the patients
    epsilon: float | None
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    test_on: tuple[tuple[Source, Endpoint], ...] = ()  # other sites to test on; not part of what the run itself is
    account: str | None = None  # the account of its patients; no part of it either
    test: float = TEST  # share of the persons that every method is tested on
    parts: tuple[str, ...] = ()  # of the evaluation; not part of what the run is either
    modules: tuple[str, ...] = ()  # that know its method

    @cached_property
    def guarantee(self) -> str:
        """Which ε its ε is."""
        return str(options_of(method_named(self.made_by), self.options).promise)

    @property
    def held_out(self) -> HoldoutSplit:
        """Whom every method is kept from and tested on: one test set a seed, the same for all methods.

        A coin is made of the seed and of what one person is, so with or without a person the rows that a method is
        given differ by that person's at most: a method that reads through the gate keeps its theorem. That rows without
        identifiers are told apart rests on nobody having chosen them who knew the seed, which is the key of their
        hashes here (docs/privacy.md, §2). Persons of several tables are tested on in all of them or in none.
        """
        return HoldoutSplit(self.test, int(digest(["test", self.seed])[:32], 16))

    @property
    def students(self) -> bool:
        """Whether students of several kinds are trained."""
        return STUDENTS in self.parts

    @property
    def data(self) -> str:
        """The table, and which of its outcomes where there are several."""
        return f"{self.source.name}:{self.endpoint.name}" if self.endpoint.name else self.source.name

    @property
    def ipcs(self) -> tuple[int, ...]:
        return self.ipc if isinstance(self.ipc, tuple) else (self.ipc,)

    @property
    def options(self) -> dict[str, Any]:
        """For its method. One that has no choice of a reference trains the outcome's default student."""
        options = {"ipc": self.ipc, "seed": self.seed, **self.settings}
        if self.epsilon is not None:
            options["epsilon"] = self.epsilon
        return options | ({"reference": self.reference} if _has(method_named(self.made_by), "reference") else {})

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the run is; where the table lies, how it is called and where else it is tested are not part of it."""
        return {
            "data": self.source.identity,
            "outcome": self.endpoint.identity(),
            "method": self.made_by,
            "reference": self.reference,
            "ipc": self.ipc,
            f"epsilon_{self.guarantee}": self.epsilon,
            "seed": self.seed,
            "settings": self.settings,
            "test": self.test,
        }

    @cached_property
    def key(self) -> str:
        """A digest of all that is public about the run, and of what its table is called: the same on every machine."""
        rows = {key: value for key, value in self.source.identity.items() if key != "content"}
        return digest([self.data, self.method, {**self.identity, "data": rows}])[:16]

    @cached_property
    def name(self) -> str:
        """The readable part of its folder's name, which says nothing about patients."""
        epsilon = "" if self.epsilon is None else f"eps{self.epsilon:g}-{self.guarantee}"
        ipc = f"ipc{'+'.join(map(str, self.ipcs))}"
        if len(ipc) > IPC_SHOWN:
            ipc = f"{len(self.ipcs)}-ipcs"
        parts = (self.source.name, self.endpoint.name, self.method, self.reference, ipc, epsilon, f"seed{self.seed}")
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Study:
    """A checked study file."""

    name: str
    cells: tuple[Cell, ...]
    memory_gb: float
    threads: int
    text: str  # the file as it was read
    seen_by: Mapping[str, tuple[str, ...]]  # table → methods whose constants were set with it in view

    def only(self, wanted: Mapping[str, Sequence[str]]) -> tuple[Cell, ...]:
        """The cells with these values (`data`, `method`, `reference`, `epsilon`, `seed`), as texts; all, without any.

        A value that no cell has is refused.
        """
        values_of: dict[str, Callable[[Cell], set[str]]] = {
            "data": lambda cell: {cell.source.name, cell.data},
            "method": lambda cell: {cell.method},
            "reference": lambda cell: {cell.reference},
            "seed": lambda cell: {str(cell.seed)},
            "epsilon": lambda cell: {"none" if cell.epsilon is None else f"{cell.epsilon:g}"},
        }
        left = self.cells
        for key, values in wanted.items():
            if key not in values_of:
                raise SettingsError(
                    "--only",
                    f"must name one of {', '.join(values_of)}",
                    found=repr(key),
                    fix="for example --only data=adult",
                )
            legal = {value for cell in self.cells for value in values_of[key](cell)}
            if absent := [value for value in values if value not in legal]:
                raise SettingsError(
                    f"--only {key}",
                    "must be in the study",
                    found=nearest(absent[0], sorted(legal)),
                    fix="check the study file",
                )
            left = tuple(cell for cell in left if values_of[key](cell) & set(values))
        return left

    @classmethod
    def from_toml(cls, path: str | Path, *, prepared: bool = True) -> Study:
        """Read and check a study file; no method reads a patient.

        Parameters
        ----------
        path : path
            The TOML file; paths in it are from its folder.
        prepared : bool
            Whether each cell is prepared as its run would be, so that what `condense` would refuse is said here. A
            report of what is done runs nothing, and does without: budgets of some hundred cells take seconds.

        Returns
        -------
        Study
            With every cell of its grid.

        Raises
        ------
        SettingsError
            With all that is wrong with the file in one message.
        """
        path = Path(path)
        what = f"study file {brief(path.name)}"
        text = read_text(path, what, SettingsError)
        try:
            data = parse_toml(text)
        except OutsideError as error:
            raise SettingsError(what, "must be valid TOML", found=str(error), fix="correct that line") from None
        problems: list[str] = []
        study = _study(data, path.parent, text, prepared, problems)
        if study is not None and not problems:
            return study
        problems = list(dict.fromkeys(problems))  # one wrong line may spoil many cells in the same words
        listed = f"{len(problems)} problems:" + "".join(f"\n  - {problem}" for problem in problems)
        found = problems[0] if len(problems) == 1 else listed
        raise SettingsError(what, "must describe a study", found=found, fix="edit the study file")


def _study(data: Mapping[str, Any], folder: Path, text: str, prepared: bool, problems: list[str]) -> Study | None:
    top = TomlTable(data, "the file:", ("study", "data", "method"), problems)
    head = TomlTable(data.get("study", {}), "[study]", STUDY, problems)
    name, seeds, ipcs = head.name("name"), head.wholes("seeds") or (0,), head.wholes("ipc")
    memory, threads, test = head.number("memory_gb", 1.0), head.number("threads", 1), head.number("test", TEST)
    if not 0 < memory < float("inf"):
        head.wrong(f"memory_gb must be above 0. Found {memory:g}")
    if threads < 1:
        head.wrong(f"threads must be at least 1. Found {threads}")
    if not 0 < test < 1:
        head.wrong(f"test must be a share between 0 and 1. Found {test:g}")
    modules = head.texts("modules")
    with head.noting():
        load_modules(modules)
    parts = _Parts.from_toml(head, problems)
    tables = [read_data(values, number, folder, problems) for number, values in enumerate(top.tables("data"), 1)]
    methods = [_method(values, number, ipcs, seeds, problems) for number, values in enumerate(top.tables("method"), 1)]
    for key, names in (("data", [table.name for table in tables]), ("method", [method.name for method in methods])):
        if not names:
            problems.append(f"the file: must have a [[{key}]] table")
        problems += [
            f"[[{key}]] names must differ. Found {n!r} {k} times: give each a name"
            for n, k in Counter(names).items()
            if k > 1 and n
        ]
    known = {table.name: table for table in tables}
    for table in tables:
        problems += wrong_sites(table, known)
    used = {name for table in tables for name in table.test_on}
    names = sorted({method.made_by for method in methods})
    problems += [f"{t.where} seen_by: {nearest(n, names)}" for t in tables for n in t.seen_by if n not in names]
    for method in methods:
        problems += [f"{method.where} data: {nearest(n, sorted(known))}" for n in method.data if n not in known]
        used |= set(method.data or known)
    problems += [f"{table.where} is used by no method and no test_on" for table in tables if table.name not in used]
    if problems:
        return None
    cells = tuple(
        replace(cell, parts=parts.of_cell(cell), test=test, modules=modules)
        for cell in _cells(tables, methods, read_account(head, folder), prepared, problems)
    )
    if len(cells) > MOST_CELLS:
        problems.append(f"the file: must not ask for more than {MOST_CELLS:,} cells. Found {len(cells):,}")
    return Study(name, cells, memory, threads, text, {table.name: table.seen_by for table in tables})


def load_modules(names: Sequence[str]) -> None:
    """Make methods known that are not ours: each module has `register()`, which may be called again."""
    for name in names:
        try:
            import_module(name).register()
        except (ImportError, AttributeError) as error:
            where = "" if "" in sys.path or "." in sys.path else "; this program does not look in the current folder"
            raise SettingsError(
                f"modules: {name!r}",
                "must be a Python module with register()",
                found=f"{type(error).__name__}{where}",
                fix="run `python -m distcondense study …` in the folder it lies in",
            ) from None


@dataclass(frozen=True)
class _Parts:
    """Which parts of the evaluation are asked for, and which attacks of which cells."""

    parts: tuple[str, ...]
    attacks: tuple[str, ...]
    where: Mapping[str, tuple[Any, ...]]

    @classmethod
    def from_toml(cls, head: TomlTable, problems: list[str]) -> _Parts:
        inner = TomlTable(head.table("attacks"), "[study] attacks:", ATTACKED, problems)
        parts, attacks = head.texts("parts"), inner.texts("parts")
        legal = [name for name in SECTIONS if name != "sites"]  # other sites are `test_on`'s
        problems += [f"[study] parts: {nearest(name, legal)}" for name in (*parts, *attacks) if name not in legal]
        if inner.values and not attacks:
            inner.wrong("must name parts")
        where = {"seed": inner.wholes("seeds"), "data": inner.texts("data"), "epsilon": inner.numbers("epsilon")}
        return cls(parts, attacks, {key: values for key, values in where.items() if values})

    def of_cell(self, cell: Cell) -> tuple[str, ...]:
        has = {"seed": cell.seed, "data": cell.source.name, "epsilon": cell.epsilon}
        # without an ε there is one way only: an attack on some ε is also on what has none
        attacked = all(has[key] in values or has[key] is None for key, values in self.where.items())
        return (*self.parts, *(name for name in self.attacks if attacked and name not in self.parts))


# -- methods ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MethodTable:
    """A [[method]] table."""

    where: str
    name: str
    made_by: str
    references: tuple[str, ...]
    epsilons: tuple[float | None, ...]  # None: the default
    ipcs: tuple[int, ...]
    data: tuple[str, ...]
    settings: dict[str, Any]
    seeds: tuple[int, ...]

    @property
    def together(self) -> tuple[int | tuple[int, ...], ...]:
        """What a cell has for IPC: all of them where the method makes their sets from one read, else one."""
        several = len(self.ipcs) > 1 and takes_several(method_named(self.made_by))
        return (tuple(sorted(self.ipcs)),) if several else self.ipcs  # sorted: their order in the file is nothing new


def _method(
    values: Any, number: int, ipcs: tuple[int, ...], seeds: tuple[int, ...], problems: list[str]
) -> _MethodTable:
    table = TomlTable(values, f"[[method]] {number}:", METHOD, problems)
    made_by = table.text("method", default_method()) or ""
    name = table.name("name", made_by)
    table.where = f"[[method]] {name or number}:"
    references = table.texts("reference")
    legal = [learner for kind in kinds() for learner in kind.learners]
    problems += [f"{table.where} reference: {nearest(r, legal)}" for r in references if r not in legal]
    ipcs = table.wholes("ipc") or ipcs
    if not ipcs:
        table.wrong("must have an ipc, here or in [study]")
    settings = table.table("settings")
    for word in [word for word in GRID if word in settings]:
        table.wrong(f"settings: {word} must stand beside settings, or in [study]")
        del settings[word]
    if settings.pop("holdout", None) is not None:
        table.wrong("settings: a study holds out the same persons for all methods: say test in [study] for holdout")
    epsilons, seeds = table.numbers("epsilon") or (None,), table.wholes("seeds") or seeds
    method = _MethodTable(table.where, name, made_by, references, epsilons, ipcs, table.texts("data"), settings, seeds)
    problems += dict.fromkeys(_wrong_options(method))
    return method


def _wrong_options(table: _MethodTable) -> Iterator[str]:
    """What the method says about these options, whatever the data."""
    try:
        method = method_named(table.made_by)
    except UserError as error:
        yield f"{table.where} {error}"
        return
    if table.references and not _has(method, "reference"):
        yield f"{table.where} reference: method {method.name} has none to choose: leave it out"
    if len(table.ipcs) * len(table.epsilons) * len(table.seeds) > MOST_CELLS:
        yield f"{table.where} must not ask for more than {MOST_CELLS:,} cells of one table"
        return
    for ipc, epsilon, seed in product(table.ipcs, table.epsilons, table.seeds):
        budget = {} if epsilon is None else {"epsilon": epsilon}
        try:
            options_of(method, {**table.settings, **budget, "ipc": ipc, "seed": seed})
        except UserError as error:
            yield f"{table.where} {error}"


def _has(method: Method, option: str) -> bool:
    return option in {entry.name for entry in fields(method.Options)}


# -- the grid ---------------------------------------------------------------------------------------------------------


def _cells(
    tables: Sequence[DataTable],
    methods: Sequence[_MethodTable],
    account: str | None,
    prepared: bool,
    problems: list[str],
) -> Iterator[Cell]:
    """Every cell of the grid; `prepared`: what `condense` would refuse without reading a patient is a problem."""
    known = {table.name: table for table in tables}
    for table, method in product(tables, methods):
        if method.data and table.name not in method.data:
            continue
        for endpoint in table.endpoints:
            facts = table.facts[endpoint.name]
            others = (known[name] for name in table.test_on)
            sites = tuple((o.source, next(e for e in o.endpoints if e.name == endpoint.name)) for o in others)
            references = _references(table, facts, method, problems)
            for reference, epsilon, ipc in product(references, method.epsilons, method.together):
                cells = [
                    Cell(
                        table.source,
                        endpoint,
                        method.name,
                        method.made_by,
                        reference,
                        ipc,
                        epsilon,
                        seed,
                        method.settings,
                        sites,
                        table.account or account,
                    )
                    for seed in method.seeds
                ]
                yield from cells
                if not prepared:
                    continue
                made_by = method_named(method.made_by)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter(
                            "ignore", DistcondenseWarning
                        )  # the run says it, and keeps it in run.json
                        prepare(made_by, facts, options_of(made_by, cells[0].options))
                except UserError as error:
                    problems.append(f"{method.where} data {table.name!r}: {error}")


def _references(table: DataTable, facts: Facts, method: _MethodTable, problems: list[str]) -> list[str]:
    """The method's references, if they are for this kind of outcome."""
    kind = facts.kind
    wanted = method.references or (kind.learner().name,)
    problems += [
        f"{method.where} reference {name!r} does not fit data {table.name!r}, which has a {kind.name} outcome: say "
        f'{" or ".join(kind.learners)}, or name the data this method is for (data = ["…"])'
        for name in wanted
        if name not in kind.learners
    ]
    return [name for name in wanted if name in kind.learners]
