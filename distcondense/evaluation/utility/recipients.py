"""What recipients get out of a condensed table: every common model, trained on it and tested on held-out patients.

Train-synthetic-test-real (Thakur et al. Fig. 3; PSyGenTAB §IV-G): as a naive recipient, who takes the outcome column
and nothing else, and as the manual says, with soft labels where a model takes them and with weights. Beside it the same
models of real training rows, which is the ceiling, and of as many random real rows, which is what condensing has to
beat. Train-real-test-synthetic: models of real rows, tested on the condensed rows as if these were patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distcondense.evaluation.experiment import (
    CHANCE,
    CHOOSING,
    CONDENSED_ROWS,
    TESTED,
    Experiment,
    dots,
    titles,
    why_not,
)
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import learners_of, most_rows, recipient, title_of
from distcondense.evaluation.score import CONDENSED, FULL, HELD_OUT, PLAIN, RANDOM, SOFT, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.models.learners import Learner
from distcondense.runs.figures import DOTS, Figure

TITLE = "What recipients get out of it"
SERIES = (  # of the figure: trained on, labels, name
    (CONDENSED, PLAIN, "Condensed, outcome column only"),
    (CONDENSED, SOFT, "Condensed, as the manual says"),
    (FULL, "", "Real training rows"),
    (RANDOM, "", "Random real rows, same number"),
)


def section(
    inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet, known: Sequence[Score] = ()
) -> Section:
    """Every model of condensed, real and random real rows, on held-out patients; and the other way round."""
    if why := why_not(inputs):
        return Section("utility", TITLE, notes=(why,))
    experiment, learners = Experiment(inputs, seed, threads, known), learners_of(inputs.kind)
    full, test, scores = experiment.full(), experiment.test, list[Score]()
    # where models of real rows see columns that condensed rows do not have, another is tested on condensed rows
    same_columns = full if full.codec is inputs.codec else experiment.full(inputs.codec)
    for learner in learners:
        log(f"{title_of(learner.name)}: condensed, real and random real rows")
        if same_columns is full:
            scores += experiment.scores(full, learner, [test, experiment.condensed_rows])
        else:
            scores += experiment.scores(full, learner, [test])
            scores += experiment.scores(same_columns, learner, [experiment.condensed_rows])
        scores += of_few_rows(experiment, learner)
    measures = inputs.kind.measures
    return Section(
        "utility",
        TITLE,
        tuple(scores),
        (cross_model(scores, learners, measures[0]),),
        notes=(*experiment.notes(), *_notes(inputs, learners)),
        titles=titles(measures),
        settings={
            "tested_rows_at_most": TESTED,
            "choosing_rows_at_most": CHOOSING,
            "seed": seed,
            "training_rows_at_most": {learner.name: most_rows(learner.name) for learner in learners},
        },
    )


def of_few_rows(experiment: Experiment, learner: Learner) -> list[Score]:
    """A learner's models of condensed rows, plain and soft, and of random real rows, on held-out patients."""
    arms = (*experiment.condensed_both(learner), experiment.random())
    return [score for arm in arms for score in experiment.scores(arm, learner, [experiment.test])]


def cross_model(scores: Sequence[Score], learners: Sequence[Learner], measure: str) -> Figure:
    """Thakur et al. 2026, Fig. 3: the main measure of every model."""
    series = []
    for trained_on, labels, name in SERIES:
        key = (trained_on, labels, measure, HELD_OUT)
        by_learner = {s.student: s for s in scores if (s.trained_on, s.labels, s.measure, s.tested_on) == key}
        shown = [learner.name for learner in learners if learner.name in by_learner]
        series.append(dots(name, {title_of(learner): by_learner[learner] for learner in shown}))
    return Figure(
        "students",
        DOTS,
        "Models of condensed rows beside models of real ones, on held-out patients",
        "Each column is a common model; its points are what it was trained on, with 95% intervals. Condensed rows are "
        "good where their points reach those of the real training rows and lie above random real rows of the same "
        "number.",
        "Model",
        titles((measure,))[measure],
        tuple(series),
        at=(("chance", CHANCE[measure]),) if measure in CHANCE else (),
    )


def _notes(inputs: EvaluationInput, learners: Sequence[Learner]) -> list[str]:
    bounds = [f"{title_of(learner.name)} {most_rows(learner.name):,}" for learner in learners]
    notes = [f"rows that a model is trained on, at most: {', '.join(bounds)}"]
    if inputs.kind.labels and any(learner.name == "svm" for learner in learners):
        notes.append(
            "support vectors say distances: a logistic regression on the model's own training rows (Platt) makes "
            "probabilities of them"
        )
    weight, soft = inputs.labelled.weight, inputs.labelled.soft
    if weight is None and soft is None:
        notes.append("these rows have neither soft labels nor weights: the manual asks for the outcome column only")
    else:
        softened = [title_of(one.name) for one in learners if soft is not None and recipient(one).soft]
        notes.append(
            f"as the manual says: {'weights' if weight is not None else 'no weights'}"
            + (f", and soft labels for {', '.join(softened)}" if softened else "")
        )
    notes.append(
        f"tested on {CONDENSED_ROWS}: models of real rows, each condensed row counted once; far below what the same "
        "models reach on patients, the rows' outcome hangs together otherwise than patients' does; far above, it is "
        "simpler than theirs"
    )
    return notes
