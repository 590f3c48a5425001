"""The published method (paper 000 §4): fit a reference, start from noise, optimise, keep the best step on validation.

Patients are read here for: scaling, the reference model, the real scores of the match loss, the labels' time range and
early stopping. None of that is covered by a theorem; `Privacy` says so wherever its ε appears.
"""

from __future__ import annotations

import secrets
import time as clock
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.cluster.executors import Executor
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Outcome, Split
from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.random import normals, uniforms
from distcondense.kernels.update import NoiseRule, row_norms
from distcondense.methods.base import Condensed, in_unit
from distcondense.methods.published.engine import (
    LABEL_STREAM,
    START_STREAM,
    Matrix,
    Problem,
    Progress,
    RealScores,
    State,
    gradient,
    optimise,
    seed_key,
    widths_of,
)
from distcondense.methods.published.objectives import Composite, aft, bce, cox
from distcondense.models.base import Reference
from distcondense.models.given import in_model_space
from distcondense.models.jacobian import Path
from distcondense.models.learners import Learner, learner, outcome_score, time_scale
from distcondense.privacy.statement import Privacy
from distcondense.privacy.steps import PublishedAccountant, StepRecord, calibrate, in_words
from distcondense.runs.checkpoint import Checkpoint
from distcondense.settings import Settings

Say = Callable[[str], None]
CLIP_SHARE = 0.25


def condense_published(
    cohort: Cohort,
    split: Split,
    settings: Settings,
    *,
    reference: Any,
    link: str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    say: Say = lambda line: None,
    checkpoint: Checkpoint | None = None,
    record: StepRecord | None = None,
    noise_key: int | None = None,
    executor: Executor,
    path: Path = "auto",
) -> Condensed:
    """Condense by the published method; `settings.mechanism` "none" is the same without noise.

    `reference` is a learner's name ("xgb", "aft", "cox") or a fitted model or callable over `dc.design` rows.
    `executor` computes the Jacobian along `path`, here or elsewhere; patients stay in this process.
    `noise_key` makes the noise repeatable, for tests and studies; whoever knows it can subtract the noise.
    """
    timings: dict[str, float] = {}
    given = not isinstance(reference, str)
    started = clock.perf_counter()
    codec = Codec.fit(cohort.features.iloc[split.train], cohort.schema, keep_constant=given)
    train_rows = codec.encode(cohort.features.iloc[split.train])
    valid_rows = codec.encode(cohort.features.iloc[split.validation])
    unit = time_scale(cohort.outcome.take(split.train)) if cohort.task == "survival" else 1.0
    train, valid = (in_unit(cohort.outcome.take(part), unit) for part in (split.train, split.validation))
    timings["encode"] = clock.perf_counter() - started

    started = clock.perf_counter()
    if given:
        model = in_model_space(reference, codec, cohort.task, link, time_unit=unit, threads=threads)
        student = learner({"probability": "xgb", "log-risk": "cox", "log-time": "aft"}[model.link], cohort.task)
    else:
        student = learner(reference, cohort.task)
        model = student.fit(train_rows, train, validation=(valid_rows, valid), seed=settings.seed, threads=threads)
    timings["reference"] = clock.perf_counter() - started
    how = "given, scored" if given else "fitted"
    say(f"reference {model.name}: {how} on {len(train)} rows × {train_rows.shape[1]} encoded columns")

    labels = synthetic_outcome(settings, train)
    problem = _problem(settings, model, train_rows, train, labels)
    accountant = PublishedAccountant(min(1.0, settings.rows / len(train)), settings.delta, settings.rows, record=record)
    if settings.mechanism == "published":
        sigma = settings.sigma_base or calibrate(
            epsilon=settings.epsilon or 0.0,
            delta=settings.delta,
            sampling_rate=accountant.sampling_rate,
            steps=settings.steps,
        )
        problem = replace(problem, noise=NoiseRule(problem.noise.clip, sigma))

    def released(X: Matrix) -> Matrix:
        return X if settings.soft else codec.project(X)

    def validate(X: Matrix) -> float:
        try:
            return student_score(student, released(X), labels, valid_rows, valid, seed=settings.seed, threads=threads)
        except ModelError:  # a Cox model may not converge on the rows of an early step
            return float("nan")

    started = clock.perf_counter()
    widths = widths_of(settings, seed_key(settings.seed), 0, problem.start.shape[1])
    executor.open(model, path, problem.start, widths)
    if not settings.clip:
        clip = _first_clip(problem, settings, threads, executor)
        problem = replace(problem, noise=NoiseRule(clip, problem.noise.sigma_base))
    state = optimise(
        problem,
        settings,
        noise_key=secrets.randbits(64) if noise_key is None else noise_key,
        accountant=accountant,
        validate=validate,
        key_given=noise_key is not None,
        executor=executor,
        threads=threads,
        progress=progress,
        checkpoint=checkpoint,
    )
    timings["condense"] = clock.perf_counter() - started
    assert state.best_X is not None
    say(f"stopped: {state.stopped} at step {state.step}; released step {state.best_step}")
    return Condensed(
        rows=released(state.best_X),
        outcome=replace(in_unit(labels, 1 / unit), names=cohort.outcome.names, labels=cohort.outcome.labels),
        codec=codec,
        reference=model,
        learner=student,
        time_unit=unit,
        privacy=_privacy(cohort, settings, state, accountant, problem.noise),
        best_step=state.best_step,
        stopped=state.stopped,
        key_given=state.key_given,
        history=state.history,
        timings=timings,
        execution={
            **executor.facts(),
            "path": path,
            "steps_per_second": (state.step - state.begun_at) / timings["condense"],
        },
    )


def student_score(
    student: Learner, rows: Matrix, labels: Outcome, test_rows: Matrix, test: Outcome, *, seed: int, threads: int
) -> float:
    """AUROC or C-index on real rows of a fresh model trained on synthetic ones."""
    fitted = student.fit(rows, labels, seed=seed, threads=threads)
    return outcome_score(fitted.link, fitted.scores(test_rows), test)


def synthetic_outcome(settings: Settings, train: Outcome) -> Outcome:
    """Labels of the synthetic rows: negatives (or censored) first, then positives (or events).

    Survival: event times uniform within equal bins between the smallest event time and the largest censoring time, one
    a bin; censored rows at the largest censoring time.
    """
    positives = settings.positives
    label = np.repeat(np.array([0, 1], np.int8), [settings.rows - positives, positives])
    if train.time is None:
        return replace(train, label=label, time=None)
    events, censored = train.time[train.label == 1], train.time[train.label == 0]
    low = events.min()
    high = censored.max() if len(censored) and censored.max() > low else train.time.max()
    inside = uniforms(seed_key(settings.seed), LABEL_STREAM, 0, 0, (1, positives))[0].astype(np.float64)
    times = low + (high - low) * (np.arange(positives) + inside) / positives
    return replace(
        train,
        label=label,
        time=np.where(label == 1, np.concatenate([np.full(len(label) - positives, high), times]), high),
    )


def strata(settings: Settings, train: Outcome, outcome: Outcome) -> NDArray[np.int64]:
    """Stratum of each row: its class; survival: its quantile of the real event times, censored rows apart (eq. 11)."""
    if outcome.time is None or train.time is None:
        return outcome.label.astype(np.int64)
    cuts = np.quantile(train.time[train.label == 1], np.linspace(0, 1, settings.strata + 1)[1:-1])
    return np.where(outcome.label == 1, np.searchsorted(cuts, outcome.time, side="left"), settings.strata).astype(
        np.int64
    )


def _problem(settings: Settings, model: Reference, train_rows: Matrix, train: Outcome, labels: Outcome) -> Problem:
    supervise: Callable[[Any], Any]
    if model.link == "probability":
        supervise = lambda f: bce(f, labels.label)  # noqa: E731
    elif model.link == "log-risk":
        assert labels.time is not None
        time = labels.time
        supervise = lambda f: cox(f, time, labels.label)  # noqa: E731
    else:
        assert labels.time is not None
        time = labels.time
        supervise = lambda f: aft(f, time)  # noqa: E731
    count = 2 if train.time is None else settings.strata + 1
    of_real, of_synthetic = strata(settings, train, train), strata(settings, train, labels)
    scores = model.scores(train_rows).astype(np.float64)
    real = RealScores(
        tuple(scores[of_real == k] for k in range(count)), tuple(int((of_synthetic == k).sum()) for k in range(count))
    )
    shape = (settings.rows, train_rows.shape[1])
    start = normals(seed_key(settings.seed), START_STREAM, 0, 0, shape)
    objective = Composite(supervise, of_synthetic, train.time is not None, settings.rho)
    return Problem(model, start, objective, real, NoiseRule(settings.clip or 1.0))


def _first_clip(problem: Problem, settings: Settings, threads: int, executor: Executor) -> float:
    """C: CLIP_SHARE of the median row norm of the first gradient, so that the signal fills its clip."""
    G, _ = gradient(problem, settings, problem.start, seed_key(settings.seed), 0, threads, executor)
    norms = row_norms(G)
    moved = norms[norms > 0]
    return CLIP_SHARE * float(np.median(moved)) if len(moved) else 1.0


def _privacy(
    cohort: Cohort,
    settings: Settings,
    state: State,
    accountant: PublishedAccountant,
    noise: NoiseRule,
) -> Privacy:
    if settings.mechanism == "none":
        return Privacy("none", "none", None, None, "none", "none", schema_origin=cohort.schema.origin)
    released = state.best_epsilon
    if released is None:
        raise SettingsError("run", "must have been evaluated at least once", found="no evaluation")
    return Privacy(
        guarantee="as-published",
        mechanism="published",
        epsilon=released,
        delta=settings.delta,
        epsilon_at_last_step=accountant.epsilon(),
        worst_case_epsilon=in_words(accountant.worst_case()),
        neighbouring="add or remove one row (as published; a person with several rows is not covered)",
        noise_source="a key the caller gave: whoever knows it can subtract the noise"
        if state.key_given
        else "counter-based generator keyed by the operating system's entropy; the key is not kept",
        parameters={
            "sampling_rate": accountant.sampling_rate,
            "sigma_base": noise.sigma_base,
            "clip": noise.clip,
            "rows": settings.rows,
            "steps": accountant.steps,
            "released_step": state.best_step,
            "accounting": "RDP, Poisson-subsampled Gaussian, smallest noise multiplier of each step (dp-accounting)",
        },
        ledger=[{"event": "noisy gradient step", "noise_multiplier": a, "count": b} for a, b in accountant.ledger],
        schema_origin=cohort.schema.origin,
    )
