"""`condense` and `evaluate`: check · run · record · write. What differs between methods and outcomes is theirs."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, overload

import pandas as pd

from distcondense import kernels
from distcondense.cluster.config import IN_A_JOB, Cluster
from distcondense.cluster.executors import refuse_missing_gpus
from distcondense.cluster.shards import half_of_memory
from distcondense.data.cohort import Cohort, Facts, checked_roles
from distcondense.data.files import files_of
from distcondense.data.large import LargeTable, is_large
from distcondense.data.outcome import Goal
from distcondense.data.persons import HoldoutSplit, NestedSplit
from distcondense.data.roles import ROLES
from distcondense.data.schema import Label, Schema
from distcondense.data.tables import as_frame, table_name
from distcondense.errors import (
    MOST_THREADS,
    CohortError,
    DistcondenseWarning,
    RunFolderError,
    SettingsError,
    SystemCallError,
    UserError,
    brief,
    library_calls,
    need,
    os_errors,
    whole,
)
from distcondense.evaluation.findings import Findings
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.quick import interval_words, kept_or_measured, measured
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import SECTIONS, EvaluationRequest, evaluated
from distcondense.methods.base import (
    Context,
    Method,
    Options,
    Prepared,
    Progress,
    default_method,
    method_named,
    methods,
    no_progress,
    options_of,
    prepare,
    takes_large,
)
from distcondense.privacy.accounts import KeptAccounts, accounts_of
from distcondense.privacy.ledger import new_run
from distcondense.privacy.odometer import ChargedRun, Odometer
from distcondense.privacy.statement import Privacy
from distcondense.report.internal_files import findings_of, in_order, kept_sections, write_findings, write_first_report
from distcondense.runs.figures import Figure
from distcondense.runs.folder import RunFolder
from distcondense.runs.reading import read_back, refuse_another_table
from distcondense.runs.record import in_batches, own_notes, run_record, seconds_before
from distcondense.runs.release import ReleaseInfo
from distcondense.runs.result import Result, Results, RunDetails
from distcondense.runs.saving import write_run

T = TypeVar("T")
_NO_COLUMNS: tuple[str, ...] = ()
OF_CSV = ("missing_markers", "separator", "encoding", "decimal")
READING = (*ROLES, "positive", "kind", "person_id", "schema", "ignore", "query", *OF_CSV)  # how a table is read
ON_ACCOUNT = "Other runs on the patients' account"


def available_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@overload
def condense(table: Any, target: str | None = None, *, ipc: list[int] | tuple[int, ...], **how: Any) -> Results: ...
@overload
def condense(table: Any, target: str | None = None, **how: Any) -> Result: ...
def condense(
    table: Any,
    target: str | None = None,
    *,
    time: str | None = None,
    event: str | None = None,
    schema: Schema | str | Path | None = None,
    person_id: str | None = None,
    positive: Label | None = None,
    kind: str | None = None,
    ignore: Iterable[str] = _NO_COLUMNS,
    missing_markers: Sequence[str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    query: str | Path | None = None,
    method: str | None = None,
    rows: int | None = None,
    about: ReleaseInfo | Mapping[str, Any] | str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    log: Callable[[str], None] | None = None,
    cluster: Cluster | None = None,
    account: str | Path | Odometer | None = None,
    require_account: bool = False,
    memory: int | None = None,
    scratch: str | Path | None = None,
    held_out: HoldoutSplit | None = None,
    known: Sequence[Score] = (),
    **options: Any,
) -> Result | Results:
    """Condense a table into a small synthetic one, and say what privacy it has.

    Parameters
    ----------
    table : DataFrame, path, Cohort or LargeTable
        The patients' table: a frame of pandas, Polars or Arrow, a file (also at a URI, or a folder of files), or one
        that was read before; with `query`, a database.
    target : str, optional
        The outcome column; or else `time` and `event` (survival). These and what follows up to `decimal` say how a
        frame or a file is read, as in `Cohort.from_file`; a `Cohort` has it all.
    time, event : str, optional
        Follow-up time, and whether the event was seen.
    schema : Schema or path, optional
        What is public about the table. Method private needs one: `Schema.draft(table, target=…)` and
        `schema.confirm(…)`, or `distcondense init`.
    person_id : str, optional
        The column that says whose row it is: persons are protected. Every row is one person where it is left out.
    positive, kind, ignore, missing_markers, separator, encoding, decimal : optional
        Which value means yes, the kind of outcome, columns that are no features, and how a CSV is written.
    query : str or path, optional
        SQL, or a file of it, whose rows are the table: `table` is then a DuckDB file, ":memory:" or the URI of a
        database (postgresql://…). It has no file whose account could be charged: `account` must be named.
    method : str, optional
        "private" (the default: ε is end-to-end, a theorem), "published" (Thakur et al. 2026: its ε is as-published, not
        a theorem; `noise=False` adds none), or a companion: "dp-geng", "clustmix", "kde-knn", "psygentab".
    rows : int, optional
        Rows of the condensed table, shared evenly by the classes; or else `ipc`, rows of each class.
    about : ReleaseInfo, mapping or path, optional
        What the custodian says of the release, for catalogues: as entries of release.toml.
    out : path, optional
        A run folder, written as the run goes.
    resume, force : bool
        Go on with an interrupted run in `out`, to the same result; replace what is there.
    threads : int, optional
        All cores if not given.
    progress, log : callable, optional
        Called as the run goes on (`methods.base.Progress`), and with each line of its log.
    cluster : Cluster, optional
        Spread the work over Ray; the same result to the bit.
    account : Odometer or path, optional
        An account of these patients, which every run on them shares: this run is charged before its first answer, and
        refused where that is over the custodian's cap. What was read from a file is charged to that file's account,
        too, which is kept in the custodian's state folder; a table in memory has none but the one that is named here.
    require_account : bool
        Refuse to run where no account can be charged. Otherwise the statement says so.
    memory, scratch : int, path, optional
        Of a table that is read in batches: bytes that it may take, about, and a folder for its coded rows.
    held_out : HoldoutSplit, optional
        Test persons that are kept from the method, so that several methods are tested on the same persons.
    known : list of Score, optional
        Scores of models of the real rows on those persons, which are then not measured again.
    **options
        The method's own settings, such as `ipc`, `epsilon`, `delta`, `seed`, `reference`
        (`distcondense condense --method NAME --help` lists them). `ipc`: private also takes a list, for several sets
        from one read of the patients and one ε. `trust_inferred_schema=True` does without a schema: the guarantee is
        then conditional. `reference`: a learner of the outcome's kind ("xgb", "logistic", "cox", "aft", …) or several;
        published also takes any fitted model, or a callable rows → scores, over the columns of `dc.design(cohort)`,
        which is called from several threads unless threads=1.

    Returns
    -------
    Result or Results
        The condensed set; `Results` where `ipc` is a list. A private run whose budget or cases are too few has no rows,
        and `result.privacy.answer` says why.

    Raises
    ------
    UserError
        What is wrong, where, what was found and how to mend it; never a patient's value. What can be refused is
        refused before the table is read.

    Examples
    --------
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> schema = data.how["schema"]
    >>> result = dc.condense(data.frame, target="malignant", schema=schema, rows=10, epsilon=5.0)
    >>> result.privacy.guarantee
    'end-to-end'
    >>> X, y, weight = result.training_data()
    >>> len(X) == len(y) == len(weight) == 10
    True
    """
    said = locals()  # the one list of what may be said is the one above
    asked = _asked(said)
    if isinstance(table, Cohort | LargeTable):
        if asked.reading:
            raise SettingsError(
                ", ".join(asked.reading),
                "says how a frame or a file is read",
                found=f"a {type(table).__name__}, which was read before",
                fix="leave it out, or give the frame or the file",
            )
        return _condense(table, *_prepared(asked, table.facts), asked)
    return _read_and_condense(table if isinstance(table, str | Path) else as_frame(table), asked)


def _read_and_condense(table: str | Path | pd.DataFrame, asked: _Asked) -> Result | Results:
    """What can be refused is refused before the table is read; one that would not fit memory is read in batches."""
    queried = "query" in asked.reading
    other = "a query" if queried else "a frame" if isinstance(table, pd.DataFrame) else ""
    if other and (of_csv := [name for name in OF_CSV if name in asked.reading]):
        raise SettingsError(
            ", ".join(of_csv), "says how a CSV is written", found=other, fix="leave it out, or give the file"
        )
    if queried:
        _check_query(table, asked)
    reading = checked_roles(asked.reading)
    schema = reading.get("schema")
    goal = Goal.from_roles(
        positive=reading.get("positive"), kind=reading.get("kind"), **{role: reading.get(role) for role in ROLES}
    )
    facts = Facts.from_goal(goal, schema, person_id=reading.get("person_id"), ignore=reading["ignore"])
    prepared, warned = _prepared(asked, facts)
    kept = accounts_of(asked.account, () if queried else _files(table), required=asked.require_account)
    if schema is not None and not asked.resume:
        _charged_run(new_run(), prepared, asked, kept).check()
    cohort: Cohort | LargeTable
    if isinstance(table, pd.DataFrame):
        cohort = Cohort.from_frame(table, **reading)
    else:
        in_batches = not queried and (
            is_large(table, 2**63)
            or (
                takes_large(asked.method)
                and schema is not None
                and (asked.memory is not None or is_large(table, half_of_memory()))
            )
        )
        asked.progress(doing=f"reading {table_name(table)}", step=0, steps=0)
        cohort = LargeTable.from_path(table, **reading) if in_batches else Cohort.from_file(table, **reading)
    if cohort.facts != facts:  # the schema, or the outcome's labels, were to be inferred
        prepared, warned = _prepared(asked, cohort.facts)
    return _condense(cohort, prepared, warned, asked)


def _check_query(table: str | Path | pd.DataFrame, asked: _Asked) -> None:
    """What can be said of a query before it is asked."""
    if isinstance(table, pd.DataFrame):
        raise SettingsError(
            "query", "is of a database", found="a frame", fix="name the database (a DuckDB file, or its URI)"
        )
    if asked.account is None:
        raise SettingsError(
            "query",
            "has no file whose account could be charged",
            found="no account",
            fix="name one (--account FILE); begin it with: distcondense privacy ledger FILE --create",
        )


def _files(table: str | Path | pd.DataFrame) -> tuple[str | Path, ...]:
    """What a table is read from: a file, a folder and every file in it; nothing for a frame."""
    if isinstance(table, pd.DataFrame):
        return ()
    return (table, *(name for name, _, _ in files_of(str(table)))) if is_large(table, 2**63) else (table,)


@dataclass(frozen=True)
class _Asked:
    """What `condense` was asked for, checked."""

    reading: Mapping[str, Any]  # how the table is read, as far as it was said
    method: Method
    options: Options
    rows: int | None
    about: ReleaseInfo
    threads: int
    out: Path | None
    resume: bool
    force: bool
    progress: Progress
    log: Callable[[str], None]
    cluster: Cluster | None
    account: Odometer | None
    require_account: bool
    memory: int | None
    scratch: Path | None
    held_out: HoldoutSplit | None
    known: Sequence[Score]
    began: float  # on the clock of time.perf_counter


def _asked(said: Mapping[str, Any]) -> _Asked:
    """The arguments of `condense`, by name, checked."""
    began = time.perf_counter()
    for what in ("out", "scratch"):
        if said[what] is not None:
            need(said[what], (str, Path), what, "a path")
    if said["cluster"] is not None:
        need(said["cluster"], Cluster, "cluster", "a Cluster", fix="dc.Cluster()")
    if said["method"] is not None:
        need(said["method"], str, "method", "a text")
    for what in ("resume", "force", "require_account"):
        need(said[what], bool, what, "true or false")
    _need_calls(progress=said["progress"], log=said["log"])
    if said["held_out"] is not None:
        need(said["held_out"], HoldoutSplit, "held_out", "coins that say who is left out")
    need(said["known"], (list, tuple), "known", "a list of scores")
    for score in said["known"]:
        need(score, Score, "known", "a list of scores")
    reading = {name: said[name] for name in READING if said[name] is not None and said[name] is not _NO_COLUMNS}
    if isinstance(schema := reading.get("schema"), str | Path):
        reading["schema"] = Schema.from_toml(schema)
    method, rows = method_named(default_method() if said["method"] is None else said["method"]), said["rows"]
    if rows is not None and "ipc" in said["options"]:
        raise SettingsError("rows", "and ipc say the same in two ways", found="both", fix="leave one of them out")
    options = options_of(method, said["options"])
    if said["cluster"] is not None:
        refuse_missing_gpus(said["cluster"])
    return _Asked(
        reading=reading,
        method=method,
        options=options,
        rows=None if rows is None else whole(rows, "rows", 1),
        about=ReleaseInfo.from_any(said["about"]),
        threads=available_threads() if said["threads"] is None else whole(said["threads"], "threads", 1, MOST_THREADS),
        out=None if said["out"] is None else Path(said["out"]),
        resume=said["resume"],
        force=said["force"],
        progress=no_progress if said["progress"] is None else said["progress"],
        log=_silent if said["log"] is None else said["log"],
        cluster=said["cluster"],
        account=Odometer.open(said["account"]),
        require_account=said["require_account"],
        memory=None if said["memory"] is None else whole(said["memory"], "memory", 1, 2**63 - 1),
        scratch=None if said["scratch"] is None else Path(said["scratch"]),
        held_out=said["held_out"],
        known=said["known"],
        began=began,
    )


def _prepared(asked: _Asked, facts: Facts) -> tuple[Prepared, list[warnings.WarningMessage]]:
    """The run as far as public facts go, and what was warned of meanwhile: it is shown, and kept, with the run."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", DistcondenseWarning)
        options = asked.options
        if asked.rows is not None:
            options = replace(options, ipc=_per_group(asked.rows, facts.kind))
        return prepare(asked.method, facts, options), warned


def _per_group(rows: int, kind: Any) -> int:
    """Rows of each class (or what a kind has for one) where so many are wanted in all; IPC."""
    ipc = rows // kind.groups
    if ipc == 0:
        rule = f"must be at least one for each {kind.groups_named}: {kind.groups}"
        raise SettingsError("rows", rule, found=str(rows), fix="ask for more rows")
    if ipc * kind.groups != rows:
        warnings.warn(
            f"rows: {ipc * kind.groups:,} instead of {rows:,}, as many of each {kind.groups_named} ({ipc:,})",
            DistcondenseWarning,
            stacklevel=5,
        )
    return ipc


def _condense(
    cohort: Cohort | LargeTable, prepared: Prepared, warned: list[warnings.WarningMessage], asked: _Asked
) -> Result | Results:
    """Claim the folder, run, charge the account, record and write."""
    method, held_out = asked.method, asked.held_out
    kept = accounts_of(asked.account, cohort.read_from, required=asked.require_account)
    if isinstance(cohort, LargeTable) and not takes_large(method):
        able = ", ".join(one.name for one in methods() if takes_large(one))
        raise SettingsError(
            f"method {method.name}",
            "needs the whole table in memory",
            found="one that is read in batches",
            fix=f"give it a file that fits, or say a method that reads in batches: {able}",
        )
    identity = {
        "method": method.name,
        "options": prepared.options.to_dict(),
        "data": cohort.fingerprint(),
        "backend": kernels.backend(),
        "gpu": asked.cluster is not None and asked.cluster.num_gpus > 0,  # its rounding is its own
    }
    if held_out is not None:
        identity["held_out"] = held_out.to_dict()
    folder = None if asked.out is None else RunFolder(asked.out)
    if folder:
        folder.claim(identity, resume=asked.resume, force=asked.force)

    def log_everywhere(line: str) -> None:
        if folder:
            folder.log(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}")
        asked.log(line)

    run = folder.run if folder else new_run()
    context = Context(
        threads=asked.threads,
        log=log_everywhere,
        progress=asked.progress,
        folder=folder,
        cluster=asked.cluster,
        run=run,
        account=_charged_run(run, prepared, asked, kept, log_everywhere) if kept.odometers else None,
        memory=asked.memory,
        scratch=asked.scratch,
    )
    if folder and isinstance(cohort, Cohort) and cohort.read_as:
        folder.log(f"table read as {cohort.read_as}")
    where = "run" if folder is None else f"run folder {brief(folder.path)}"
    try:
        with (
            os_errors(where, "must be readable and writable to the end", RunFolderError),
            library_calls(None if folder is None else folder.path),
            _shown(context, asked) as context,
        ):
            _check_account(context, kept, resume=asked.resume)
            result, figures = _run(
                method,
                cohort,
                prepared,
                warned,
                identity,
                context,
                kept,
                held_out,
                asked.known,
                asked.about,
                seconds_before(asked.began),
            )
    except SystemCallError as error:
        log_everywhere(str(error))  # nothing is removed: the log says what came before
        raise
    except UserError:
        if folder:
            folder.abandon()
            if folder.checkpoint.path.exists():
                log_everywhere("what was done is kept: --resume goes on from there")
        raise
    if folder:
        context.progress(doing="writing", step=0, steps=2)
        with os_errors(where, "must be writable to the end", RunFolderError):
            write_run(folder, result)
        context.progress(doing="writing", step=1, steps=2)
        write_first_report(folder, result, figures, log_everywhere)
        context.progress(doing="writing", step=2, steps=2)
        log_everywhere(f"written: {folder.path}")
    return result


def evaluate(
    cohort: Cohort,
    result: Result,
    *,
    parts: Sequence[str] = (),
    external: Mapping[str, Cohort] | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> list[Score]:
    """Compare models of a result's rows with models of real rows, on patients that its run held out.

    The numbers are computed on patients, outside the guarantee: they are for the custodian.

    Parameters
    ----------
    cohort : Cohort
        The one that was condensed.
    result : Result
        What `condense` gave back.
    parts : sequence of str
        Further sections, by name: utility, fidelity, attacks, … (`distcondense evaluate --help` lists them).
    external : mapping of str to Cohort, optional
        Other sites' tables by name, which the same models are tested on.
    seed : int, optional
        The run's own if not given; scores that the run has measured already are then kept.
    threads : int, optional
        All cores if not given.

    Returns
    -------
    list of Score
        Each with its interval, what it was trained on and what it was tested on.

    Examples
    --------
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> cohort = dc.Cohort.from_frame(data.frame, **data.how)
    >>> result = dc.condense(cohort, method="published", ipc=5, steps=5, noise=False)
    >>> sorted({score.trained_on for score in dc.evaluate(cohort, result)})
    ['condensed', 'full', 'random_real']
    """
    need(cohort, Cohort, "cohort", "a Cohort", fix="the one that was condensed")
    need(result, Result, "result", "a Result", fix="what dc.condense gave back")
    request = _request(result.record, parts, external, 0, seed, threads)
    _note_reading(cohort, result.accounts)
    inputs = EvaluationInput.from_result(cohort, result)
    scores, note, known = kept_or_measured(inputs, result.record, seed=request.seed, threads=request.threads)
    if note:
        warnings.warn(note, DistcondenseWarning, stacklevel=2)
        return scores
    return scores + [score for section in evaluated(inputs, request, known=known) for score in section.scores]


def evaluate_run(
    run: str | Path,
    cohort: Cohort,
    *,
    parts: Sequence[str] | None = None,
    external: Mapping[str, Cohort] | None = None,
    shadows: int = 0,
    seed: int | None = None,
    threads: int | None = None,
    log: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Findings]:
    """Evaluate a finished run's sets on its own table, and write the report into its `internal/`.

    Parameters
    ----------
    run : path
        The run folder.
    cohort : Cohort
        The table that was condensed; another one is refused.
    parts : sequence of str, optional
        Sections by name; all but attacks if not given. Those that were measured before and are not asked for stay.
    external : mapping of str to Cohort, optional
        Other sites' tables by name.
    shadows : int
        Runs of the same method on random halves of the table, for the attack that needs them (LiRA).
    seed : int, optional
        The run's own if not given; by another one everything is drawn anew, and nothing of an earlier report stays.
    threads, log, progress : optional
        As of `condense`; `progress` is called with a section's name, how many are done and how many there are.

    Returns
    -------
    dict of str to Findings
        What the report says of each table of the run.

    Raises
    ------
    UserError
        The folder is not that of a finished run, or the table not the one that was condensed.

    Examples
    --------
    >>> import tempfile
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> cohort = dc.Cohort.from_frame(data.frame, **data.how)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = f"{folder}/run"
    ...     result = dc.condense(cohort, method="published", ipc=5, steps=5, noise=False, out=out)
    ...     findings = dc.evaluate_run(out, cohort, parts=["copies"])
    >>> [section.name for section in findings["condensed"].parts]
    ['course', 'copies']
    """
    need(run, (str, Path), "run", "a path")
    need(cohort, Cohort, "cohort", "a Cohort", fix="the one that was condensed")
    _need_calls(progress=progress, log=log)
    folder = RunFolder(Path(run))
    sets = read_back(folder, cohort.outcome.kind)
    record = next(iter(sets.values())).record
    refuse_another_table(folder, cohort, record)
    parts = EvaluationRequest().parts if parts is None else parts
    request = _request(record, parts, external, shadows, seed, threads)
    _note_reading(cohort)
    found = {}
    for name, result in sets.items():
        inputs = EvaluationInput.from_result(cohort, result)
        if progress is not None:
            progress("first scores", 0, 1 + len(request.parts))
        quick, note, known = kept_or_measured(inputs, result.record, seed=request.seed, threads=request.threads)
        kept, sections = kept_sections(folder, name, request), list[Section]()
        if note:
            (log or _silent)(note)
        else:
            rerun = _rerun(result, request.threads) if request.shadows else None
            known += [score for section in kept for score in section.scores]
            sections = evaluated(
                inputs, request, known=known, log=log or _silent, progress=_after_first(progress), rerun=rerun
            )
        found[name] = findings_of(folder, result, quick, note, in_order([*kept, *sections]), seed=request.seed)
        write_findings(folder, name, found[name])
    return found


def _note_reading(cohort: Cohort, accounts: Sequence[Odometer] = ()) -> None:
    """On the patients' accounts: an evaluation reads them, without a price, as nothing of it leaves `internal/`."""
    kept = accounts_of(None, cohort.read_from).odometers
    for odometer in {one.path.resolve(): one for one in (*accounts, *kept)}.values():
        odometer.note("evaluate")


@contextmanager
def _shown(context: Context, asked: _Asked) -> Iterator[Context]:
    """The run with its progress on the gauges of the cluster that it joins, or whose job it is."""
    if asked.cluster is None and IN_A_JOB not in os.environ:  # on one machine ray is not imported
        yield context
        return
    from distcondense.cluster.ray.gauges import on_gauges

    name = "run" if context.folder is None else brief(context.folder.path.name)
    with on_gauges(asked.cluster, name, context.progress, context.log) as progress:
        yield replace(context, progress=progress)


def _need_calls(**told: Any) -> None:
    for what, call in told.items():
        if call is not None:
            need(call, Callable, what, "something to call")


def _request(
    record: Mapping[str, Any],
    parts: Sequence[str],
    external: Mapping[str, Cohort] | None,
    shadows: int,
    seed: int | None,
    threads: int | None,
) -> EvaluationRequest:
    """What is asked for, checked; by the run's own seed where none is said."""
    need(parts, (list, tuple), "parts", "a list of names", fix=f"some of {', '.join(SECTIONS)}")
    for name in parts:
        need(name, str, "parts", "a list of names")
    sites = {} if external is None else external
    need(sites, Mapping, "external", "tables by name", fix='e.g. {"north": cohort}')
    for name, site in sites.items():
        need(name, str, "external", "tables by name")
        need(site, Cohort, "external", "a Cohort for each name")
    names = (*parts, *(["sites"] if sites and "sites" not in parts else []))
    threads = available_threads() if threads is None else whole(threads, "threads", 1, MOST_THREADS)
    seed = record["settings"]["seed"] if seed is None else whole(seed, "seed", 0)
    return EvaluationRequest(names, seed, threads, sites, whole(shadows, "shadows", 0, 100_000))


def _rerun(result: Result, threads: int) -> Any:
    """The run's own method on another table, for shadow runs; nothing of them is written or charged."""
    from distcondense.evaluation.attacks.lira import rerun_of

    record = result.record
    known = {entry.name for entry in fields(method_named(record["method"]).Options)}
    said = {("epsilon" if name.startswith("epsilon_") else name): value for name, value in record["settings"].items()}
    said = {name: tuple(v) if isinstance(v, list) else v for name, v in said.items() if name in known}
    return rerun_of(record["method"], {**said, "ipc": record["ipc"]}, threads=threads)


def _silent(line: str) -> None:
    """Nobody listens."""


def _after_first(progress: Callable[[str, int, int], None] | None) -> Callable[[str, int, int], None] | None:
    """For what comes after the first scores."""
    return None if progress is None else lambda part, done, of: progress(part, done + 1, of + 1)


def _charged_run(
    run: str, prepared: Prepared, asked: _Asked, kept: KeptAccounts, log: Callable[[str], None] = lambda line: None
) -> ChargedRun:
    return ChargedRun(
        kept.odometers,
        run,
        prepared.planned,
        method=asked.method.name,
        guarantee=prepared.options.promise,
        about="" if asked.out is None else asked.out.name,
        on_charge=lambda path: log(f"charged: {path}"),
    )


def _check_account(context: Context, kept: KeptAccounts, *, resume: bool) -> None:
    """Refuse what is over a cap. A run without a gate is charged here, once; others before their first answer."""
    if context.account is None:
        return
    if not resume and (before := kept.before):
        context.log(f"hint: these patients were read before: {before}")
    if any(event.kind == "nonprivate" for event in context.account.events):
        context.account.charge()
    else:
        context.account.check()


def _run(
    method: Method,
    table: Cohort | LargeTable,
    prepared: Prepared,
    warned: list[warnings.WarningMessage],
    identity: dict[str, Any],
    context: Context,
    kept: KeptAccounts,
    held_out: HoldoutSplit | None = None,
    known: Sequence[Score] = (),
    about: ReleaseInfo | None = None,
    before: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Result | Results, tuple[Figure, ...]]:
    settings, started, worked = prepared.options, time.perf_counter(), _worked()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DistcondenseWarning)
        if kept.warning:
            warnings.warn(kept.warning, DistcondenseWarning, stacklevel=4)
        given, context = (table, context) if held_out is None else _without(held_out, table, context)
        sets = dict(method.condense(given, prepared, context))  # type: ignore[arg-type]  # takes_large
        sets = {ipc: replace(one, privacy=_with_account(one.privacy, kept)) for ipc, one in sets.items()}
        if held_out is not None:
            sets = {ipc: _with_test_persons(one, held_out) for ipc, one in sets.items()}
        began, worked = time.perf_counter(), _worked() - worked
        cohort = _seen(table)
        inputs = {ipc: EvaluationInput.from_result(cohort, one) for ipc, one in sets.items()}
        must = not _any(sets).privacy.charged
        scored = _scored(inputs, settings.seed, context, must=must, known=known)
    for warning in (*warned, *caught):  # seen once by the caller, and kept in run.json
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    details = {ipc: _details(one) for ipc, one in sets.items()}
    notes = own_notes({ipc: one.notes for ipc, one in details.items()})
    first, now = _any(details), time.perf_counter()  # what is said once for all sets is the same in all of them
    record = run_record(
        _any(sets),
        replace(
            _details(_any(inputs).result),
            labelled=first.labelled,
            notes={name: note for name, note in first.notes.items() if name not in _any(notes)},
            # the processor's seconds are of condensing: what it takes whatever else the machine does
            timings={**before, **first.timings, "evaluate": now - began, "cpu": worked, "total": now - started},
        ),
        cohort,
        _any(inputs).split,
        method=method.name,
        settings=settings.to_dict(),
        threads=context.threads,
        fingerprint=identity["data"],
    )
    said = [str(w.message) for w in (*warned, *caught) if issubclass(w.category, DistcondenseWarning)]
    record |= {"interval": interval_words(cohort.person), "warnings": said}
    if isinstance(table, LargeTable):
        record["data"] |= in_batches(table, cohort)
        context.log(f"evaluated on a sample of {len(cohort):,} of {table.read_rows:,} rows")
    scored = {ipc: own | notes[ipc] for ipc, own in scored.items()}
    earlier = context.earlier()
    results = {
        ipc: replace(
            one,
            details=None,
            identity=identity,
            internal=record | scored[ipc],
            earlier=earlier,
            accounts=kept.odometers,
            info=about or ReleaseInfo(),
        )
        for ipc, one in sets.items()
    }
    if isinstance(settings.ipc, int):
        return _any(results), first.figures
    return Results(results, internal=record | {"sets": list(scored.values())}), first.figures


def _with_account(privacy: Privacy, kept: KeptAccounts) -> Privacy:
    """A statement about a ledger, with whose runs it counts."""
    if not privacy.charged:
        return privacy
    said = replace(privacy, account=kept.words)
    return replace(said, earlier_runs=ON_ACCOUNT) if kept.odometers else said


def _details(result: Result) -> RunDetails:
    assert result.details is not None  # it has no record yet
    return result.details


def _with_test_persons(result: Result, held_out: HoldoutSplit) -> Result:
    """A method's result with the persons who were kept from it as test persons."""
    return result.with_details(splitting=NestedSplit(held_out, _details(result).splitting))


def _worked() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    now = os.times()
    return time.process_time() + now.children_user + now.children_system


def _seen(table: Cohort | LargeTable) -> Cohort:
    """What evaluation sees: the table, or its sample."""
    if isinstance(table, Cohort):
        return table
    if table.sample is None:
        raise CohortError("table", "must have rows to be measured on", found="no row in the sample")
    return table.sample


def _without(held_out: HoldoutSplit, table: Cohort | LargeTable, context: Context) -> tuple[Cohort, Context]:
    """The rows that a method is given, where test persons are kept from it."""
    if not isinstance(table, Cohort):
        raise SettingsError(
            "held_out",
            "keeps persons of a table in memory from a method",
            found="a table that is read in batches",
            fix="leave it out: a run on such a table leaves out persons of its own",
        )
    return table.take(held_out.split(table).train), replace(context, apart=True)


def _any(sets: Mapping[int, T]) -> T:
    return next(iter(sets.values()))


def _scored(
    inputs_by_ipc: Mapping[int, EvaluationInput], seed: int, context: Context, *, must: bool, known: Sequence[Score]
) -> dict[int, dict[str, Any]]:
    """What run.json says of each set on its own. Models of the real rows are the same for all, and fitted once."""
    found = {}
    for ipc, inputs in inputs_by_ipc.items():

        def on_progress(done: int, of: int, ipc: int = ipc) -> None:
            context.progress(doing=f"measuring IPC {ipc}", step=done, steps=of)

        known, note = measured(
            inputs, seed=seed, threads=context.threads, must=must, known=known, on_progress=on_progress
        )
        scores = [score.to_dict() for score in known]
        found[ipc] = {"ipc": ipc, "rows": len(inputs.rows), "scores": scores, "scores_note": note}
        if inputs.others:  # condensed against several references: a student of each
            apart = {
                name: measured(one, seed=seed, threads=context.threads, must=must)[0]
                for name, one in inputs.by_reference().items()
            }
            found[ipc]["scores_by_reference"] = {
                inputs.learner.name: scores,
                **{name: [one.to_dict() for one in own] for name, own in apart.items()},
            }
    return found
