"""The published method (Thakur et al. §4): fit a reference, start from noise, optimise, keep the best step.

Patients are read here for: scaling, the reference model, the real scores of the match loss, the labels' range and early
stopping. None of that is covered by a theorem; `Privacy` says so wherever its ε appears.

Several references f₁ … f_K at once, which the paper leaves to the future: with ℓ_k the whole loss (eqs 4, 5) of f_k,

    ℓ(X) = 1/K Σ_k ℓ_k(X)/ℓ_k(X₀)        ∂ℓ/∂X = 1/K Σ_k (1/ℓ_k(X₀)) · ∂ℓ_k/∂f_k · ∂f_k/∂X

X₀ being the start, so that no loss drowns the others; one reference is taken as it is. The Jacobian engine is called
for each f_k with the same widths. The rows of the joint gradient are clipped to C and get noise once a step: the
as-published account is that of one clipped sum a step, however many references there are, and as little a theorem as
with one. A student of each reference is trained for validation, and the best step is that of their mean score.
"""

from __future__ import annotations

import secrets
import time as clock
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Matrix
from distcondense.cluster.executors import Executor
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.data.persons import Split
from distcondense.data.rules import Rules
from distcondense.errors import DistcondenseWarning, ModelError, SettingsError
from distcondense.kernels.random import normals, uniforms
from distcondense.kernels.update import NoiseRule, row_norms
from distcondense.methods.base import Context
from distcondense.methods.published import noise as noise_words
from distcondense.methods.published.figures import history
from distcondense.methods.published.options import PublishedOptions
from distcondense.methods.zero_order.engine import (
    LABEL_STREAM,
    START_STREAM,
    Problem,
    RealScores,
    ReferenceLoss,
    State,
    gradient,
    in_units_of_the_start,
    optimise,
    seed_key,
    widths_of,
)
from distcondense.methods.zero_order.objectives import LOSSES, Composite
from distcondense.methods.zero_order.several import opened
from distcondense.models.base import Model
from distcondense.models.jacobian import tested_columns
from distcondense.models.learners import Learner, fitted_once
from distcondense.models.references import in_model_space
from distcondense.outcomes.base import Kind, Labelled
from distcondense.privacy.statement import Privacy
from distcondense.privacy.steps import WHY, WHY_WITHOUT_NOISE, StepAccountant, StepRecord, calibrate, in_words
from distcondense.runs.result import Result

CLIP_SHARE = 0.25
FEW = 10  # rows of the rarest stratum below which the user is warned
SEEDS = "seed: split, start, labels, perturbations, real draws and students."
KEY_POLICY = " noise: a key from the operating system, kept only in the checkpoint of an unfinished run."
KEY_GIVEN = " This run's noise key was given by the caller."


@dataclass(frozen=True)
class EncodedCohort:
    """A cohort as the loop sees it: encoded rows and outcomes in the models' unit."""

    codec: Codec
    train_rows: Matrix
    valid_rows: Matrix
    train: Outcome
    valid: Outcome
    unit: float

    @classmethod
    def from_cohort(cls, cohort: Cohort, split: Split, *, keep_constant: bool) -> EncodedCohort:
        codec = Codec.fit(cohort.features.iloc[split.train], cohort.schema, keep_constant=keep_constant)
        kind: Kind = cohort.outcome.kind
        unit = kind.unit(cohort.outcome.take(split.train))
        train, valid = (kind.in_unit(cohort.outcome.take(part), unit) for part in (split.train, split.validation))
        train_rows, valid_rows = (codec.encode(cohort.features.iloc[part]) for part in (split.train, split.validation))
        return cls(codec, train_rows, valid_rows, train, valid, unit)


def condense(cohort: Cohort, options: PublishedOptions, context: Context, split: Split | None = None) -> Result:
    """Condense by the published method. `split` is the seed's, unless a test or an audit gives another."""
    kind: Kind = cohort.outcome.kind
    splitting = context.stratified(options.seed)
    split = splitting.split(cohort) if split is None else split
    _say_sizes(kind, cohort.outcome.take(split.train), options, context)
    timings: dict[str, float] = {}
    given = any(not isinstance(one, str) for one in options.against)
    started = clock.perf_counter()
    data = EncodedCohort.from_cohort(cohort, split, keep_constant=given)
    timings["encode"] = clock.perf_counter() - started
    started = clock.perf_counter()
    references = [_reference(kind, data, one, options, context.threads) for one in options.against or (None,)]
    students = dict.fromkeys(student for student, _ in references)
    timings["reference"] = clock.perf_counter() - started
    for one, (_, model) in zip(options.against or (None,), references, strict=True):
        how = "fitted" if isinstance(one, str | type(None)) else "given, scored"
        size = f"{len(data.train)} rows × {data.train_rows.shape[1]} encoded columns"
        context.log(f"reference {model.name}: {how} on {size}")

    labels = synthetic_outcome(options, data.train)
    problem = _problem(options, [model for _, model in references], data, labels, context.threads)
    record = None if context.folder is None else StepRecord(context.folder.steps)
    accountant = StepAccountant(min(1.0, options.rows / len(data.train)), options.delta, options.rows, record=record)
    if options.noise:
        sigma = options.sigma_base or calibrate(
            epsilon=options.epsilon or 0.0,
            delta=options.delta,
            sampling_rate=accountant.sampling_rate,
            steps=options.steps,
        )
        problem = replace(problem, noise=NoiseRule(problem.noise.clip, sigma))

    def released(X: Matrix) -> Matrix:
        return X if options.soft else data.codec.project(X)

    # what no reference tests has no gradient: noise, from which a student could only learn noise, and slowly
    tested = np.unique(np.concatenate([tested_columns(model) for _, model in references]))
    tested = tested if len(tested) else np.arange(data.train_rows.shape[1])
    valid_rows = data.valid_rows[:, tested]

    def validate(X: Matrix) -> float:
        rows, found = released(X)[:, tested], []
        for student in students:
            try:
                fitted = student.fit(rows, labels, seed=options.seed, threads=context.threads)
            except ModelError:  # a Cox model may not converge on the rows of an early step
                return float("nan")
            found.append(kind.score(fitted.link, fitted.scores(valid_rows), data.valid))
        return sum(found) / len(found)

    started = clock.perf_counter()
    widths = widths_of(options, seed_key(options.seed), 0, problem.start.shape[1])
    with opened(problem.models, options.path, problem.start, widths, context) as executors:  # type: ignore[arg-type]
        if not options.clip:
            clip = _first_clip(problem, options, context.threads, executors)
            problem = replace(problem, noise=NoiseRule(clip, problem.noise.sigma_base))
        if options.noise:
            context.log(noise_words.beforehand(problem.noise, accountant, options.steps, options.epsilon))
            if words := noise_words.too_loud(problem.noise, accountant, options.steps):
                warnings.warn(words, DistcondenseWarning, stacklevel=3)
        state = optimise(
            problem,
            options,
            noise_key=secrets.randbits(64) if options.noise_key is None else options.noise_key,
            accountant=accountant,
            validate=validate,
            key_given=options.noise_key is not None,
            executors=executors,
            threads=context.threads,
            progress=context.progress,
            checkpoint=None if context.folder is None else context.folder.checkpoint,
        )
        timings["condense"] = clock.perf_counter() - started
        longest: dict[str, Any] = max((executor.facts() for executor in executors), key=len)  # of the one with machines
        execution = {
            **longest,
            "path": options.path,
            "steps_per_second": (state.step - state.begun_at) / timings["condense"],
        }
    assert state.best_X is not None
    context.log(f"stopped: {state.stopped} at step {state.step}; released step {state.best_step}")
    if options.noise:
        context.log(noise_words.afterwards(state, accountant, problem.noise.sigma_base))
    rows, codec = released(state.best_X), data.codec
    # a category no training row had is not a category of the released table's rows, but stays one of its schema
    schema = replace(cohort.schema.only(codec.columns), notes=())
    rules = Rules(schema)
    frame = codec.soften(rows) if options.soft else codec.decode(rows)
    if rules and not options.soft:
        frame = rules.completed(rules.repaired(frame, np.random.default_rng([options.seed, 0x9005])))
        rows = codec.encode(frame)
    return Result.from_rows(
        features=frame,
        schema=schema,
        labelled=Labelled(kind.in_unit(labels, 1 / data.unit)),
        privacy=_privacy(cohort, options, state, accountant, problem),
        splitting=splitting,
        notes={
            "seeds_policy": SEEDS + (KEY_POLICY if options.noise else "") + (KEY_GIVEN if state.key_given else ""),
            "scaling": "training rows",
            "released_step": state.best_step,
            "stopped": state.stopped,
            "history": state.history,
            **({"noise": noise_words.facts(state.tally)} if options.noise else {}),
            "execution": execution,
            "constant_columns_dropped": list(codec.dropped),
            **({"references": [model.name for _, model in references]} if len(references) > 1 else {}),
        },
        timings=timings,
        codec=codec,
        encoded=rows,
        raw=options.soft,
        reference=references[0][1],
        learner=references[0][0],
        others=tuple(references[1:]),
        unit=data.unit,
        figures=history(state.history),
    )


def _say_sizes(kind: Kind, train: Outcome, options: PublishedOptions, context: Context) -> None:
    if not options.noise:
        context.log("NO PRIVACY: no noise is added; treat the result as patient data")
    fewest = int(np.bincount(kind.strata(train)).min())
    if options.ipc > fewest:
        warnings.warn(
            f"IPC {options.ipc} is more than the rarer {kind.groups_named} has in training ({fewest}): allowed, not a "
            "condensation",
            DistcondenseWarning,
            stacklevel=4,
        )
    if fewest < FEW:
        warnings.warn(
            f"{kind.names[-1]!r}: fewer than {FEW} training rows of the rarer {kind.groups_named}",
            DistcondenseWarning,
            stacklevel=4,
        )


def _reference(
    kind: Kind, data: EncodedCohort, said: Any, options: PublishedOptions, threads: int
) -> tuple[Learner, Model]:
    """What students are, and the model that is condensed against."""
    if isinstance(said, str | type(None)):
        student = kind.learner(said)
        apart = (data.valid_rows, data.valid)
        model = fitted_once(student, data.train_rows, data.train, validation=apart, seed=options.seed, threads=threads)
        return student, model
    model = in_model_space(
        said, data.codec, kind.links, options.link, labels=kind.labels, unit=data.unit, threads=threads
    )
    return next(learner for learner in kind.learners.values() if learner.link == model.link), model


def synthetic_outcome(options: PublishedOptions, train: Outcome) -> Outcome:
    """Labels of the synthetic rows: negatives (or censored) first, then positives (or events)."""
    inside = uniforms(seed_key(options.seed), LABEL_STREAM, 0, 0, (1, options.positives))[0].astype(np.float64)
    drawn: Outcome = train.kind.invented(train, options.rows, options.positives, inside)
    return drawn


def _problem(
    options: PublishedOptions, models: Sequence[Model], data: EncodedCohort, labels: Outcome, threads: int
) -> Problem:
    """The start, and a loss for each reference; of several, each in units of its first value (see above)."""
    kind = data.train.kind
    of_real, count, average = kind.match_strata(data.train, data.train, options.strata)
    of_synthetic, _, _ = kind.match_strata(data.train, labels, options.strata)
    wanted = tuple(int((of_synthetic == k).sum()) for k in range(count))
    shape = (options.rows, data.train_rows.shape[1])
    start = normals(seed_key(options.seed), START_STREAM, 0, 0, shape)

    def loss_of(model: Model) -> ReferenceLoss:
        loss, scores = LOSSES[model.link], model.scores(data.train_rows).astype(np.float64)
        real = RealScores(tuple(scores[of_real == k] for k in range(count)), wanted)
        return ReferenceLoss((model,), Composite(lambda f: loss(f, labels), of_synthetic, average, options.rho), real)

    losses = in_units_of_the_start([loss_of(model) for model in models], start, seed_key(options.seed), threads)
    return Problem(losses, start, NoiseRule(options.clip or 1.0))


def _first_clip(problem: Problem, options: PublishedOptions, threads: int, executors: Sequence[Executor]) -> float:
    """C: CLIP_SHARE of the median row norm of the first gradient, so that the signal fills its clip."""
    G, _ = gradient(problem, options, problem.start, seed_key(options.seed), 0, threads, executors)
    norms = row_norms(G)
    moved = norms[norms > 0]
    return CLIP_SHARE * float(np.median(moved)) if len(moved) else 1.0


def _privacy(
    cohort: Cohort, options: PublishedOptions, state: State, accountant: StepAccountant, problem: Problem
) -> Privacy:
    noise = problem.noise
    if not options.noise:
        origin = cohort.schema.origin
        return Privacy("none", "published", None, None, "none", "none", schema_origin=origin, why=WHY_WITHOUT_NOISE)
    released = state.best_epsilon
    if released is None:
        raise SettingsError("run", "must have been evaluated at least once", found="no evaluation")
    facts: dict[str, Any] = {
        "sampling_rate": accountant.sampling_rate,
        "sigma_base": noise.sigma_base,
        "clip": noise.clip,
        "rows": options.rows,
        "steps": accountant.steps,
        "released_step": state.best_step,
        **({"references": [model.name for model in problem.models]} if len(problem.models) > 1 else {}),
        "accounting": "RDP, Poisson-subsampled Gaussian, smallest noise multiplier of each step (dp-accounting)",
    }
    return Privacy(
        guarantee="as-published",
        method="published",
        epsilon=released,
        delta=options.delta,
        epsilon_at_last_step=accountant.epsilon(),
        worst_case_epsilon=in_words(accountant.worst_case()),
        neighbouring="add or remove one row (as published; a person with several rows is not covered)",
        noise_source="a key the caller gave: whoever knows it can subtract the noise"
        if state.key_given
        else "counter-based generator keyed by the operating system's entropy; the key is not kept",
        parameters=facts,
        ledger=[{"event": "noisy gradient step", "noise_multiplier": a, "count": b} for a, b in accountant.ledger],
        schema_origin=cohort.schema.origin,
        why=WHY,
    )
