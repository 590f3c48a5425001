"""`condense`: table in, condensed table out. Splits, runs the method, evaluates on test rows, writes the folder."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense import kernels
from distcondense.cluster.config import Cluster
from distcondense.cluster.executors import executor_of
from distcondense.data.cohort import Cohort, Split
from distcondense.data.schema import Column, Schema
from distcondense.errors import DistcondenseWarning, SettingsError, UserError
from distcondense.evaluate.utility import evaluate
from distcondense.methods.base import Condensed
from distcondense.methods.private.condense import check_private, condense_private
from distcondense.methods.published.condense import condense_published
from distcondense.methods.published.engine import Progress
from distcondense.models.jacobian import PATHS
from distcondense.models.learners import learner
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.steps import StepRecord
from distcondense.report.plots import plot_history, plot_private
from distcondense.runs.folder import RunFolder
from distcondense.runs.result import RISK, WEIGHT, Result, check_outcome_names
from distcondense.settings import Settings

PACKAGES = (
    "distcondense",
    "numpy",
    "pandas",
    "numba",
    "xgboost",
    "lifelines",
    "treelite",
    "dp-accounting",
    "opendp",
    "scikit-learn",
    "ray",
)
SEEDS = {
    "private": "seed: placement, students and bootstrap. noise: the operating system, never kept. holdout: coins from "
    "the operating system, kept in internal/.",
    "published": "seed: split, start, labels, perturbations, real draws, students and bootstrap. "
    "noise: a key from the operating system, kept only in the checkpoint of an unfinished run.",
    "none": "seed: split, start, labels, perturbations, real draws, students and bootstrap.",
}


def available_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def condense(
    cohort: Cohort,
    *,
    mechanism: str = "private",
    reference: Any = None,
    link: str | None = None,
    ipc: int = 100,
    epsilon: float | None = None,
    delta: float = 1e-5,
    seed: int = 0,
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    noise_key: int | None = None,
    cluster: Cluster | None = None,
    path: str = "auto",
    **more: Any,
) -> Result:
    """Condense a cohort.

    mechanism: "private" (the default: ε is end-to-end, a theorem), "published" (paper 000; its ε is as-published, not
        a theorem) or "none".
    reference: "xgb" (binary), "cox" or "aft" (survival). Published also takes a fitted XGBoost, LightGBM or
        scikit-learn tree model, or a callable rows → scores, both over the columns of `dc.design(cohort)`; `link` says
        what its scores are. Private fits a model of its own, and the name only says what students the rows are for.
    epsilon, delta: the budget; private: 1 if not said. Published: `sigma_base=` fixes the noise instead.
    cluster: published: spread the Jacobian over Ray (`dc.Cluster()` starts one here); same result to the bit.
        A callable is called from several threads at once in process; say threads=1 if it cannot stand that.
    path: published: how the Jacobian is computed, see `dc.jacobian`.
    out: a run folder, written as the run goes; with `resume` an interrupted run goes on to the same result.
    more: the other fields of `Settings`: rows_per_person, holdout, horizon, trust_inferred_schema for private; steps,
        learning_rate, clip, rho, early_stopping, soft, … for published.
    """
    unknown = sorted(set(more) - set(Settings.__dataclass_fields__))
    if unknown:
        raise SettingsError("settings", "must be known", found=", ".join(unknown), fix="see help(dc.Settings)")
    if cohort.horizon is not None and mechanism == "private":
        more.setdefault("horizon", cohort.horizon)
    settings = Settings(mechanism=mechanism, ipc=ipc, epsilon=epsilon, delta=delta, seed=seed, **more)  # type: ignore[arg-type]
    if reference is None:
        reference = "xgb" if cohort.task == "binary" else "cox"
    threads = available_threads() if threads is None else threads
    if threads < 1:
        raise SettingsError("threads", "must be at least 1", found=str(threads), fix="leave it out for all cores")
    check_outcome_names(cohort.outcome.names, cohort.schema.names)
    private = settings.mechanism == "private"
    if private:
        _check_private(cohort, settings, reference, link, noise_key)
    split = None if private else cohort.split(seed=settings.seed)
    if path not in PATHS:
        raise SettingsError("path", f"must be one of {', '.join(PATHS)}", found=repr(path))
    identity = {
        "settings": settings.to_dict(), "data": cohort.fingerprint(), "link": link, "backend": kernels.backend(),
        "reference": reference if isinstance(reference, str) else type(reference).__name__, "path": path,
        "gpu": cluster is not None and cluster.num_gpus > 0,  # its rounding is its own
    }  # fmt: skip
    folder = RunFolder(Path(out)) if out is not None else None
    if folder:
        folder.claim(identity, resume=resume, force=force)

    def tell(line: str) -> None:
        if folder:
            folder.log(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}")
        if say:
            say(line)

    def run() -> tuple[Condensed, Split]:
        if split is None:
            if cluster is not None:
                tell("the private path has no Jacobian to spread: it runs in process; a study runs many of them on Ray")
            return _private(cohort, settings, reference, folder, threads, tell, progress)
        _say_sizes(cohort, split, settings, tell)
        with executor_of(cluster, threads=threads, say=tell) as executor:
            return condense_published(
                cohort, split, settings, reference=reference, link=link, threads=threads, say=tell, progress=progress,
                checkpoint=folder.checkpoint if folder else None, record=StepRecord(folder.steps) if folder else None,
                noise_key=noise_key, executor=executor, path=path,  # type: ignore[arg-type]
            ), split  # fmt: skip

    try:
        result, condensed = _run(run, cohort, settings, identity, threads)
        if private and folder:
            result = replace(result, earlier=folder.earlier_events())
    except UserError:
        if folder:
            folder.abandon()
            if folder.checkpoint.path.exists():
                tell("what was done is kept: --resume goes on from there")
        raise
    if folder:
        if condensed.private_model is None:
            plot_history(condensed.history, folder.internal / "history.png")
        result.write(folder)
        if condensed.private_model is not None:
            _draw(condensed, folder.internal / "model.png", tell)
        tell(f"written: {folder.path}")
    return result


def _draw(condensed: Condensed, path: Path, tell: Callable[[str], None]) -> None:
    """The picture of a private run comes last and may fail: what was paid for is already on disk."""
    assert condensed.private_model is not None
    try:
        plot_private(condensed.private_model, condensed.privacy.trade_off, path, condensed.privacy.short())
    except Exception as error:  # names and units of columns are anybody's text, bounds anybody's numbers
        tell(f"no picture: {type(error).__name__}")


def _measured(cohort: Cohort, split: Split, condensed: Condensed, settings: Settings, threads: int) -> dict[str, Any]:
    """Metrics on patients; on the private path a failure is a note, because the budget is already spent."""
    try:
        return evaluate(cohort, split, condensed, seed=settings.seed, threads=threads)
    except Exception as error:
        if settings.mechanism != "private":
            raise
        return {"rows": {"condensed": len(condensed.outcome), "test": len(split.test)},
                "note": f"could not be measured on patients: {type(error).__name__}"}  # fmt: skip


def _check_private(cohort: Cohort, settings: Settings, reference: Any, link: str | None, noise_key: int | None) -> None:
    """Refuse what the guarantee would not cover, before a patient is read."""
    if not isinstance(reference, str) or link is not None:
        raise SettingsError(
            "reference", "must be a name in mechanism private: a model fitted elsewhere on patients is not covered",
            found=f"a {type(reference).__name__}", fix="leave it out, or say mechanism='published'",
        )  # fmt: skip
    if noise_key is not None:
        raise SettingsError("noise_key", "must not be given: private noise cannot be repeated", fix="leave it out")
    learner(reference, cohort.task)
    check_private(cohort, settings)


def _private(
    cohort: Cohort, settings: Settings, reference: str, folder: RunFolder | None, threads: int,
    say: Callable[[str], None], progress: Progress | None,
) -> tuple[Condensed, Split]:  # fmt: skip
    entropy = folder.holdout_entropy(secrets.randbits(128)) if folder else secrets.randbits(128)
    split = cohort.holdout(settings.holdout, entropy)

    def told(done: int, of: int) -> None:
        if progress:
            progress(step=done, steps=of, loss=None, score=None, epsilon=None)

    condensed = condense_private(
        cohort, split.train, settings, reference=reference, ledger=Ledger(folder.ledger if folder else None),
        earlier=folder.earlier_events() if folder else (), threads=threads, say=say, progress=told,
    )  # fmt: skip
    return condensed, split


def _run(
    run: Callable[[], tuple[Condensed, Split]], cohort: Cohort, settings: Settings, identity: dict[str, Any],
    threads: int,
) -> tuple[Result, Condensed]:  # fmt: skip
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DistcondenseWarning)
        condensed, split = run()
        before = time.perf_counter()
        metrics = _measured(cohort, split, condensed, settings, threads)
        condensed.timings["evaluate"] = time.perf_counter() - before
    for warning in caught:  # seen once by the caller, and kept in run.json
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    said = [str(w.message) for w in caught if issubclass(w.category, DistcondenseWarning)]
    condensed.timings["total"] = time.perf_counter() - started
    result = Result(
        frame=_frame(condensed, settings), schema=_release_schema(cohort, condensed), outcome=cohort.outcome.names,
        labels=cohort.outcome.labels, privacy=condensed.privacy, soft=settings.soft, identity=identity,
        internal=_run_record(cohort, split, settings, condensed, metrics, threads, said),
    )  # fmt: skip
    return result, condensed


def _say_sizes(cohort: Cohort, split: Split, settings: Settings, tell: Callable[[str], None]) -> None:
    if settings.mechanism == "none":
        tell("NO PRIVACY: mechanism none adds no noise; treat the result as patient data")
    label = cohort.outcome.label[split.train]
    fewest = int(min((label == 0).sum(), label.sum()))
    if settings.ipc > fewest:
        warnings.warn(
            f"IPC {settings.ipc} is more than the rarer class has in training ({fewest}): allowed, not a condensation",
            DistcondenseWarning, stacklevel=3,
        )  # fmt: skip


def _frame(condensed: Condensed, settings: Settings) -> pd.DataFrame:
    codec, outcome = condensed.codec, condensed.outcome
    frame = codec.soften(condensed.rows) if settings.soft else codec.decode(condensed.rows)
    written = np.empty(2, object)
    written[:] = outcome.labels
    if outcome.time is not None:
        frame[outcome.names[0]] = outcome.time
    frame[outcome.names[-1]] = pd.Series(written[outcome.label.astype(int)]).infer_objects()
    if outcome.time is None:
        frame[RISK] = outcome.label.astype(np.float64) if condensed.risk is None else condensed.risk
    frame[WEIGHT] = 1.0 if condensed.weight is None else condensed.weight
    return frame


def _release_schema(cohort: Cohort, condensed: Condensed) -> Schema:
    """The schema of what is released; a category no training row had is not a category of the released table's rows."""
    kept = set(condensed.codec.columns)
    columns: list[Column] = [c for c in cohort.schema.columns if c.name in kept]
    return Schema(tuple(columns), cohort.schema.origin)


def _run_record(
    cohort: Cohort, split: Split, settings: Settings, condensed: Condensed, metrics: dict[str, Any], threads: int,
    said: list[str],
) -> dict[str, Any]:  # fmt: skip
    return {
        "status": "finished",
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.to_dict(),
        "reference": condensed.reference.name,
        "student": condensed.learner.name,
        "seeds_policy": SEEDS[settings.mechanism]
        + (" This run's noise key was given by the caller." if condensed.key_given else ""),
        "backend": kernels.backend(),
        "threads": threads,
        "execution": condensed.execution or {"executor": "in-process", "threads": threads},
        "data": {
            "rows": len(cohort), "columns": len(cohort.schema.columns), "encoded_columns": len(condensed.codec.names),
            "positive": int(cohort.outcome.label.sum()), "task": cohort.task,
            "split": {name: len(part) for name, part in asdict(split).items()},
            "constant_columns_dropped": list(condensed.codec.dropped), "columns_not_in_schema": list(cohort.ignored),
        },
        "released_step": condensed.best_step,
        "stopped": condensed.stopped,
        "privacy": condensed.privacy.short(),
        "metrics": metrics,
        "history": condensed.history,
        "warnings": said,
        "timings_seconds": condensed.timings,
        "versions": {"python": sys.version.split()[0], "platform": platform.machine(),
                     **{name: metadata.version(name) for name in PACKAGES if _installed(name)}},
    }  # fmt: skip


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
