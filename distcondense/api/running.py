"""One run of a method, scored and recorded."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from distcondense.api.request import CondenseRequest
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit, NestedSplit
from distcondense.errors import CohortError, DistcondenseWarning, SettingsError, kept_warnings
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.quick import interval_words, measured
from distcondense.evaluation.score import Score
from distcondense.methods.base import Context, Prepared
from distcondense.privacy.accounts import KeptAccounts
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure
from distcondense.runs.record import in_batches, own_notes, run_record, seconds_before
from distcondense.runs.result import Result, Results, RunDetails

T = TypeVar("T")
_NO_COLUMNS: tuple[str, ...] = ()
ON_ACCOUNT = "Other runs on the patients' account"


def run_method(
    table: Cohort | LargeTable,
    request: CondenseRequest,
    prepared: Prepared,
    warned: Sequence[warnings.WarningMessage],
    identity: dict[str, Any],
    context: Context,
    accounts: KeptAccounts,
) -> tuple[Result | Results, tuple[Figure, ...]]:
    """Condense, score and record: the result with its record, and the run's own figures."""
    before, held_out = seconds_before(request.began), request.held_out
    settings, started, worked = prepared.options, time.perf_counter(), _worked()
    for warning in warned:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    with kept_warnings() as caught:
        if accounts.warning:
            warnings.warn(accounts.warning, DistcondenseWarning, stacklevel=4)
        given, context = (table, context) if held_out is None else _without(held_out, table, context)
        sets = dict(request.method.condense(given, prepared, context))  # type: ignore[arg-type]  # takes_large
        sets = {ipc: replace(one, privacy=_with_account(one.privacy, accounts)) for ipc, one in sets.items()}
        if held_out is not None:
            sets = {ipc: _with_test_persons(one, held_out) for ipc, one in sets.items()}
        began, worked = time.perf_counter(), _worked() - worked
        cohort = _seen(table)
        inputs = {ipc: EvaluationInput.from_result(cohort, one) for ipc, one in sets.items()}
        must = not _any(sets).privacy.charged
        scored = _scored(inputs, settings.seed, context, must=must, known=request.known)
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
        method=request.method.name,
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
            accounts=accounts.odometers,
            info=request.about,
        )
        for ipc, one in sets.items()
    }
    if isinstance(settings.ipc, int):
        return _any(results), first.figures
    return Results(results, internal=record | {"sets": list(scored.values())}), first.figures


def _with_account(privacy: Privacy, accounts: KeptAccounts) -> Privacy:
    """A statement about a ledger, with whose runs it counts."""
    if not privacy.charged:
        return privacy
    said = replace(privacy, account=accounts.words)
    return replace(said, earlier_runs=ON_ACCOUNT) if accounts.odometers else said


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
