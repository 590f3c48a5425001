"""`condense`: check, read, claim the folder, run, charge the accounts, record and write."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, overload

import pandas as pd

from distcondense import kernels
from distcondense.api.request import NO_COLUMNS, OF_CSV, CondenseRequest, silent
from distcondense.api.running import run_method
from distcondense.cluster.config import IN_A_JOB, Cluster
from distcondense.cluster.shards import half_of_memory
from distcondense.data.cohort import Cohort, Facts, checked_roles
from distcondense.data.files import files_of
from distcondense.data.large import LargeTable, is_large
from distcondense.data.outcome import Goal
from distcondense.data.persons import HoldoutSplit
from distcondense.data.roles import ROLES
from distcondense.data.schema import Label, Schema
from distcondense.data.tables import as_frame, table_name
from distcondense.errors import (
    RunFolderError,
    SettingsError,
    SystemCallError,
    UserError,
    brief,
    library_calls,
    os_errors,
)
from distcondense.evaluation.score import Score
from distcondense.methods.base import Context, Prepared, Progress, methods, takes_large
from distcondense.privacy.accounts import KeptAccounts, accounts_of
from distcondense.privacy.ledger import new_run
from distcondense.privacy.odometer import ChargedRun, Odometer
from distcondense.report.internal_files import write_first_report
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import ReleaseInfo
from distcondense.runs.result import Result, Results
from distcondense.runs.saving import write_run


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
    ignore: Iterable[str] = NO_COLUMNS,
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
    request = CondenseRequest.from_arguments(locals())  # the one list of arguments is the one above
    if isinstance(table, Cohort | LargeTable):
        if request.reading:
            raise SettingsError(
                ", ".join(request.reading),
                "says how a frame or a file is read",
                found=f"a {type(table).__name__}, which was read before",
                fix="leave it out, or give the frame or the file",
            )
        return _condense(table, *request.prepared(table.facts), request)
    return _read_and_condense(table if isinstance(table, str | Path) else as_frame(table), request)


def _read_and_condense(table: str | Path | pd.DataFrame, request: CondenseRequest) -> Result | Results:
    """What can be refused is refused before the table is read; one that would not fit memory is read in batches."""
    queried = "query" in request.reading
    other = "a query" if queried else "a frame" if isinstance(table, pd.DataFrame) else ""
    if other and (of_csv := [name for name in OF_CSV if name in request.reading]):
        raise SettingsError(
            ", ".join(of_csv), "says how a CSV is written", found=other, fix="leave it out, or give the file"
        )
    if queried:
        _check_query(table, request)
    reading = checked_roles(request.reading)
    schema = reading.get("schema")
    goal = Goal.from_roles(
        positive=reading.get("positive"), kind=reading.get("kind"), **{role: reading.get(role) for role in ROLES}
    )
    facts = Facts.from_goal(goal, schema, person_id=reading.get("person_id"), ignore=reading["ignore"])
    prepared, warned = request.prepared(facts)
    accounts = accounts_of(request.account, () if queried else _files(table), required=request.require_account)
    if schema is not None and not request.resume:
        _charged_run(new_run(), prepared, request, accounts).check()
    cohort: Cohort | LargeTable
    if isinstance(table, pd.DataFrame):
        cohort = Cohort.from_frame(table, **reading)
    else:
        in_batches = not queried and (
            is_large(table, 2**63)
            or (
                takes_large(request.method)
                and schema is not None
                and (request.memory is not None or is_large(table, half_of_memory()))
            )
        )
        request.progress(doing=f"reading {table_name(table)}", step=0, steps=0)
        cohort = LargeTable.from_path(table, **reading) if in_batches else Cohort.from_file(table, **reading)
    if cohort.facts != facts:  # the schema, or the outcome's labels, were to be inferred
        prepared, warned = request.prepared(cohort.facts)
    return _condense(cohort, prepared, warned, request)


def _check_query(table: str | Path | pd.DataFrame, request: CondenseRequest) -> None:
    """What can be said of a query before it is sent."""
    if isinstance(table, pd.DataFrame):
        raise SettingsError(
            "query", "is of a database", found="a frame", fix="name the database (a DuckDB file, or its URI)"
        )
    if request.account is None:
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


def _condense(
    cohort: Cohort | LargeTable, prepared: Prepared, warned: list[warnings.WarningMessage], request: CondenseRequest
) -> Result | Results:
    """Claim the folder, run, charge the account, record and write."""
    method, held_out = request.method, request.held_out
    accounts = accounts_of(request.account, cohort.read_from, required=request.require_account)
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
        "gpu": request.cluster is not None and request.cluster.num_gpus > 0,  # its rounding is its own
    }
    if held_out is not None:
        identity["held_out"] = held_out.to_dict()
    folder = None if request.out is None else RunFolder(request.out)
    if folder:
        folder.claim(identity, resume=request.resume, force=request.force)

    def log_everywhere(line: str) -> None:
        if folder:
            folder.log(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}")
        request.log(line)

    run = folder.run if folder else new_run()
    context = Context(
        threads=request.threads,
        log=log_everywhere,
        progress=request.progress,
        folder=folder,
        cluster=request.cluster,
        run=run,
        account=_charged_run(run, prepared, request, accounts, log_everywhere) if accounts.odometers else None,
        memory=request.memory,
        scratch=request.scratch,
    )
    if folder and isinstance(cohort, Cohort) and cohort.read_as:
        folder.log(f"table read as {cohort.read_as}")
    where = "run" if folder is None else f"run folder {brief(folder.path)}"
    try:
        with (
            os_errors(where, "must be readable and writable to the end", RunFolderError),
            library_calls(None if folder is None else folder.path),
            _with_gauges(context, request) as context,
        ):
            _check_account(context, accounts, resume=request.resume)
            result, figures = run_method(cohort, request, prepared, warned, identity, context, accounts)
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


@contextmanager
def _with_gauges(context: Context, request: CondenseRequest) -> Iterator[Context]:
    """The run with its progress on the gauges of the cluster that it joins, or whose job it is."""
    if request.cluster is None and IN_A_JOB not in os.environ:  # on one machine ray is not imported
        yield context
        return
    from distcondense.cluster.ray.gauges import on_gauges

    name = "run" if context.folder is None else brief(context.folder.path.name)
    with on_gauges(request.cluster, name, context.progress, context.log) as progress:
        yield replace(context, progress=progress)


def _charged_run(
    run: str, prepared: Prepared, request: CondenseRequest, accounts: KeptAccounts, log: Callable[[str], None] = silent
) -> ChargedRun:
    return ChargedRun(
        accounts.odometers,
        run,
        prepared.planned,
        method=request.method.name,
        guarantee=prepared.options.promise,
        about="" if request.out is None else request.out.name,
        on_charge=lambda path: log(f"charged: {path}"),
    )


def _check_account(context: Context, accounts: KeptAccounts, *, resume: bool) -> None:
    """Refuse what is over a cap. A run without a gate is charged here, once; others before their first answer."""
    if context.account is None:
        return
    if not resume and (before := accounts.before):
        context.log(f"hint: these patients were read before: {before}")
    if any(event.kind == "nonprivate" for event in context.account.events):
        context.account.charge()
    else:
        context.account.check()
