"""`condense`: table in, condensed table out. Splits, runs the method, evaluates on test rows, writes the folder."""

from __future__ import annotations

import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense import kernels
from distcondense.cohort import Cohort, Split
from distcondense.engine import Progress
from distcondense.errors import DistcondenseWarning, SettingsError, UserError
from distcondense.evaluate.utility import evaluate
from distcondense.methods.base import Condensed
from distcondense.methods.published import condense_published
from distcondense.plots import plot_history
from distcondense.result import RISK, WEIGHT, Result, check_outcome_names
from distcondense.runfolder import RunFolder
from distcondense.schema import Column, Schema
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
    "scikit-learn",
)
SEEDS = (
    "seed: split, start, labels, perturbations, real draws, students and bootstrap. "
    "noise: a key from the operating system, kept only in the checkpoint of an unfinished run."
)


def available_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def condense(
    cohort: Cohort,
    *,
    mechanism: str | None = None,
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
    **more: Any,
) -> Result:
    """Condense a cohort against a reference model.

    reference: "xgb" (binary), "cox" or "aft" (survival), a fitted XGBoost, LightGBM or scikit-learn tree model, or a
        callable rows → scores, the latter two over the columns of `dc.design(cohort)`; `link` says what its scores are.
    mechanism: "published" (paper 000; its ε is as-published, not a theorem) or "none". There is no default: the
        mechanism that deserves to be one is not in this version.
    epsilon, delta: the as-published budget; `sigma_base=` fixes the noise instead.
    out: a run folder, written as the run goes; with `resume` an interrupted run goes on to the same result.
    more: the other fields of `Settings` (steps, learning_rate, clip, rho, early_stopping, soft, …).
    """
    if mechanism is None:
        raise SettingsError("mechanism", "must be said: published or none", found="nothing",
                            fix='mechanism="published" (on the command line: --mechanism published)')  # fmt: skip
    unknown = sorted(set(more) - set(Settings.__dataclass_fields__))
    if unknown:
        raise SettingsError("settings", "must be known", found=", ".join(unknown), fix="see help(dc.Settings)")
    settings = Settings(mechanism=mechanism, ipc=ipc, epsilon=epsilon, delta=delta, seed=seed, **more)  # type: ignore[arg-type]
    if reference is None:
        reference = "xgb" if cohort.task == "binary" else "cox"
    threads = available_threads() if threads is None else threads
    if threads < 1:
        raise SettingsError("threads", "must be at least 1", found=str(threads), fix="leave it out for all cores")
    check_outcome_names(cohort.outcome.names, cohort.schema.names)
    split = cohort.split(seed=settings.seed)
    identity = {
        "settings": settings.to_dict(), "data": cohort.fingerprint(), "link": link, "backend": kernels.backend(),
        "reference": reference if isinstance(reference, str) else type(reference).__name__,
    }  # fmt: skip
    folder = RunFolder(Path(out)) if out is not None else None
    if folder:
        folder.claim(identity, resume=resume, force=force)

    def tell(line: str) -> None:
        if folder:
            folder.log(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}")
        if say:
            say(line)

    try:
        checkpoint = folder.checkpoint if folder else None
        result = _run(cohort, split, settings, identity, reference=reference, link=link, threads=threads, say=tell,
                      progress=progress, checkpoint=checkpoint, noise_key=noise_key)  # fmt: skip
    except UserError:
        if folder:
            folder.abandon()
        raise
    if folder:
        plot_history(result.internal["history"], folder.internal / "history.png")
        result.write(folder)
        tell(f"written: {folder.path}")
    return result


def _run(
    cohort: Cohort, split: Split, settings: Settings, identity: dict[str, Any], *, threads: int, noise_key: int | None,
    say: Callable[[str], None], **how: Any,
) -> Result:  # fmt: skip
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DistcondenseWarning)
        _say_sizes(cohort, split, settings, say)
        condensed = condense_published(cohort, split, settings, threads=threads, say=say, noise_key=noise_key, **how)
        before = time.perf_counter()
        metrics = evaluate(cohort, split, condensed, seed=settings.seed, threads=threads)
        condensed.timings["evaluate"] = time.perf_counter() - before
    for warning in caught:  # seen once by the caller, and kept in run.json
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    said = [str(w.message) for w in caught if issubclass(w.category, DistcondenseWarning)]
    condensed.timings["total"] = time.perf_counter() - started
    return Result(
        frame=_frame(condensed, settings), schema=_release_schema(cohort, condensed), outcome=cohort.outcome.names,
        labels=cohort.outcome.labels, privacy=condensed.privacy, soft=settings.soft, identity=identity,
        internal=_run_record(cohort, split, settings, condensed, metrics, threads, said, noise_key),
    )  # fmt: skip


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
        frame[RISK] = outcome.label.astype(np.float64)
    frame[WEIGHT] = 1.0
    return frame


def _release_schema(cohort: Cohort, condensed: Condensed) -> Schema:
    """The schema of what is released; a category no training row had is not a category of the released table's rows."""
    kept = set(condensed.codec.columns)
    columns: list[Column] = [c for c in cohort.schema.columns if c.name in kept]
    return Schema(tuple(columns), cohort.schema.origin)


def _run_record(
    cohort: Cohort, split: Split, settings: Settings, condensed: Condensed, metrics: dict[str, Any], threads: int,
    said: list[str], noise_key: int | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "status": "finished",
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.to_dict(),
        "reference": condensed.reference.name,
        "student": condensed.learner.name,
        "seeds_policy": SEEDS if noise_key is None else SEEDS + " This run's noise key was given by the caller.",
        "backend": kernels.backend(),
        "threads": threads,
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
