"""The first section of every evaluation: the run's own model of condensed rows beside its models of real ones.

(Thakur et al. §2.4, Table 4.) `condense` measures it by itself and keeps it in run.json; a later `evaluate` goes on
from there. Intervals resample nothing. The numbers are computed on patients: they belong in `internal/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distcondense.arrays import Index
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.schema import Schema
from distcondense.errors import SettingsError
from distcondense.evaluation.experiment import Arm, EvaluationSet, Experiment, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import recipient
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE, WITHOUT_ROWS, Score
from distcondense.runs.result import Result, labelled_of

OnProgress = Callable[[int, int], None]  # (models so far, in all)


def first_scores(
    experiment: Experiment, tests: Sequence[EvaluationSet], *, on_progress: OnProgress | None = None
) -> list[Score]:
    """Scores of the run's learner on each test set, trained on each arm.

    The arms are real rows, the private reference model, condensed rows with soft labels and weights, and as many random
    real rows. Of `experiment.known` only models that no condensed row taught are taken over: those of another set of
    the same run, or of a study's other methods, are the same.
    """
    inputs = experiment.inputs
    scores = [score for score in experiment.known if score.trained_on in WITHOUT_ROWS]
    arms: dict[str, Callable[[], Arm]] = {FULL: experiment.full}
    if inputs.reference is not None:
        arms[REFERENCE] = experiment.reference
    if len(inputs.rows):  # a private run without an answer has none
        arms |= {CONDENSED: experiment.condensed, RANDOM: experiment.random}
    for name in {score.trained_on for score in scores}:
        arms.pop(name, None)
    for number, arm in enumerate(arms.values()):
        if on_progress is not None:
            on_progress(number, len(arms))
        model = experiment.trained(arm(), inputs.learner)
        scores += [score for test in tests for score in model.scores(test)]
    if on_progress is not None:
        on_progress(len(arms), len(arms))
    return scores


def measured(
    inputs: EvaluationInput,
    *,
    seed: int,
    threads: int,
    must: bool = True,
    known: Sequence[Score] = (),
    on_progress: OnProgress | None = None,
) -> tuple[list[Score], str]:
    """The first scores on held-out patients; and, where there are none, why.

    must: a failure is raised. Otherwise it is a note: a budget that is spent is not lost for it.
    known: scores of another set of the same run, on the same patients.
    """
    if why := why_not(inputs, without_rows=True):
        return [], why
    experiment = Experiment(inputs, seed, threads, known)
    try:
        return first_scores(experiment, [experiment.test], on_progress=on_progress), ""
    except Exception as error:
        if must:
            raise
        return [], f"could not be measured on patients: {type(error).__name__}"


def kept_or_measured(
    inputs: EvaluationInput, record: Mapping[str, Any], *, seed: int, threads: int
) -> tuple[list[Score], str, list[Score]]:
    """First scores of a finished run, or why there are none; and all scores that its record knows.

    Those that the run left in its record are kept. By another seed than the run's everything is drawn anew.
    """
    if record["settings"]["seed"] != seed or not record["scores"]:
        scores, why = measured(inputs, seed=seed, threads=threads)
        return scores, why, scores
    scores = [Score.from_dict(score) for score in record["scores"]]
    further = [score for own in record.get("scores_by_reference", {}).values() for score in own]
    mine = {score.student for score in scores}
    known = scores + [Score.from_dict(score) for score in further if score["student"] not in mine]
    return scores, "", known


def score_on(result: Result, table: Any, student: str | None) -> float:
    """The main measure, on a table of patients, of a model of a result's rows: `Result.score`."""
    kind, schema = result.kind, result.schema.features
    if result.raw or not len(result.frame):
        raise SettingsError(
            "score",
            "needs rows as patients are",
            found="encoded ones" if result.raw else "none",
            fix="dc.evaluate(cohort, result)",
        )
    read = Schema(
        (*(replace(c, out_of_range="clip") if c.numeric else c for c in schema.columns), *result.schema.outcome)
    )
    roles = ("target",) if len(kind.names) == 1 else ("time", "event")
    cohort = Cohort.from_frame(table, schema=read, **dict(zip(roles, kind.names, strict=True)))  # type: ignore[arg-type]
    kind.check(cohort.outcome)
    codec, labelled = Codec.public(schema), labelled_of(result.frame, kind)
    rows = codec.encode(check_features(result.frame[schema.names], schema))
    how: dict[str, Any] = {"weight": labelled.weight, "soft": labelled.soft, "seed": 0, "threads": 1}
    model = recipient(kind.learner(student)).fit(rows, labelled.outcome, **how)
    return float(kind.score(model.link, model.scores(codec.encode(cohort.features)), cohort.outcome))


def interval_words(person: Index | None) -> str:
    """How the intervals of first scores were made."""
    return f"95%, from what each test {'row' if person is None else 'person'} adds (DeLong; infinitesimal jackknife)"
