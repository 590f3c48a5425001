"""`evaluate` and `evaluate_run`: scores of a result or of a run folder, on patients it held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from distcondense.api.request import available_threads, need_calls, silent
from distcondense.data.cohort import Cohort
from distcondense.errors import MOST_THREADS, DistcondenseWarning, need, whole
from distcondense.evaluation.findings import Findings
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.quick import kept_or_measured
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import SECTIONS, EvaluationRequest, evaluated
from distcondense.methods.base import method_named
from distcondense.privacy.accounts import accounts_of
from distcondense.privacy.odometer import Odometer
from distcondense.report.internal_files import findings_of, in_order, kept_sections, write_findings
from distcondense.runs.folder import RunFolder
from distcondense.runs.reading import read_back, refuse_another_table
from distcondense.runs.result import Result

_NO_COLUMNS: tuple[str, ...] = ()


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
    need_calls(progress=progress, log=log)
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
            (log or silent)(note)
        else:
            rerun = _rerun(result, request.threads) if request.shadows else None
            known += [score for section in kept for score in section.scores]
            sections = evaluated(
                inputs, request, known=known, log=log or silent, progress=_after_first(progress), rerun=rerun
            )
        found[name] = findings_of(folder, result, quick, note, in_order([*kept, *sections]), seed=request.seed)
        write_findings(folder, name, found[name])
    return found


def _note_reading(cohort: Cohort, accounts: Sequence[Odometer] = ()) -> None:
    """On the patients' accounts: an evaluation reads them, without a price, as nothing of it leaves `internal/`."""
    kept = accounts_of(None, cohort.read_from).odometers
    for odometer in {one.path.resolve(): one for one in (*accounts, *kept)}.values():
        odometer.note("evaluate")


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


def _after_first(progress: Callable[[str, int, int], None] | None) -> Callable[[str, int, int], None] | None:
    """For what comes after the first scores."""
    return None if progress is None else lambda part, done, of: progress(part, done + 1, of + 1)
