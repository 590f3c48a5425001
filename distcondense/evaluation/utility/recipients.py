"""What recipients get out of a condensed table: every common model, trained on it and tested on held-out patients.

Train-synthetic-test-real (Thakur et al. Fig. 3; PSyGenTAB §IV-G): as a naive recipient, who takes the outcome column
and nothing else, and as the manual says, with soft labels where a model takes them and with weights. Beside it the same
models of real training rows, which is the ceiling, and of as many random real rows, which is what condensing has to
beat. Train-real-test-synthetic: models of real rows, tested on the condensed rows as if these were patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.evaluation.utility.lessons import (
    CHANCE,
    CHOOSING,
    CONDENSED_ROWS,
    HELD_OUT,
    TESTED,
    Lessons,
    titles,
    trained,
    why_not,
)
from distcondense.evaluation.utility.students import Student, students_of
from distcondense.runs.figures import DOTS, Figure, Series

TITLE = "What recipients get out of it"
SERIES = (  # of the figure: trained on, taught, name
    (CONDENSED, PLAIN, "Condensed, outcome column only"),
    (CONDENSED, SOFT, "Condensed, as the manual says"),
    (FULL, "", "Real training rows"),
    (RANDOM, "", "Random real rows, same number"),
)


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """Every student of condensed, real and random real rows, on held-out patients; and the other way round."""
    if why := why_not(inputs):
        return Section("utility", TITLE, notes=(why,))
    lessons, students = Lessons.of(inputs, seed=seed, tested=TESTED), students_of(inputs.kind)
    scores: list[Score] = []
    for student in students:
        log(f"{student.title}: condensed, real and random real rows")
        scores += _of_student(lessons, student, threads)
    measures = inputs.kind.measures
    return Section(
        "utility",
        TITLE,
        tuple(scores),
        (cross_model(scores, students, measures[0]),),
        notes=(*lessons.notes(), *_notes(lessons, students)),
        titles=titles(measures),
        settings={
            "tested_rows_at_most": TESTED,
            "choosing_rows_at_most": CHOOSING,
            "seed": seed,
            "training_rows_at_most": {student.name: student.most for student in students},
        },
    )


def _of_student(lessons: Lessons, student: Student, threads: int) -> list[Score]:
    """On patients: condensed rows in both ways, real and random real rows; and real rows, on condensed ones."""
    real = trained(lessons, student, lessons.full(), threads=threads)
    found = [*real.in_exam(lessons.test)]
    for given in (*lessons.condensed(student), lessons.random()):
        found += trained(lessons, student, given, threads=threads).in_exam(lessons.test)
    if real.given.codec is not lessons.inputs.codec:  # it saw columns that condensed rows do not have
        real = trained(lessons, student, lessons.full(condensed_columns=True), threads=threads)
    return [*found, *real.in_exam(lessons.condensed_exam())]


def cross_model(scores: Sequence[Score], students: Sequence[Student], measure: str) -> Figure:
    """Thakur et al. 2026, Fig. 3: the main measure of every student."""
    names = titles((measure,))
    series = []
    for trained_on, labels, name in SERIES:
        there = [s for s in scores if (s.trained_on, s.labels, s.measure) == (trained_on, labels, measure)]
        by_student = {score.student: score for score in there if score.tested_on == HELD_OUT}
        shown = [(student.title, by_student[student.name]) for student in students if student.name in by_student]
        series.append(
            Series(
                name,
                tuple(label for label, _ in shown),
                tuple(one.value for _, one in shown),
                tuple(one.low for _, one in shown),
                tuple(one.high for _, one in shown),
            )
        )
    return Figure(
        "students",
        DOTS,
        "Models of condensed rows beside models of real ones, on held-out patients",
        "Each column is a common model; its points are what it was trained on, with 95% intervals. Condensed rows are "
        "good where their points reach those of the real training rows and lie above random real rows of the same "
        "number.",
        "Model",
        names[measure],
        tuple(series),
        at=(("chance", CHANCE[measure]),) if measure in CHANCE else (),
    )


def _notes(lessons: Lessons, students: Sequence[Student]) -> list[str]:
    bounds = [f"{student.title} {student.most:,}" for student in students]
    found = [f"rows that a student is trained on, at most: {', '.join(bounds)}"]
    if lessons.inputs.kind.labels and any(student.name == "svm" for student in students):
        found.append(
            "support vectors say distances: a logistic regression on the student's own training rows (Platt) makes "
            "probabilities of them"
        )
    labelled = lessons.inputs.labelled
    if labelled.weight is None and labelled.soft is None:
        found.append("these rows have neither soft labels nor weights: the manual asks for the outcome column only")
    else:
        soft = [student.title for student in students if student.soft] if labelled.soft is not None else []
        found.append(
            f"as the manual says: {'weights' if labelled.weight is not None else 'no weights'}"
            + (f", and soft labels for {', '.join(soft)}" if soft else "")
        )
    found.append(
        f"tested on {CONDENSED_ROWS}: models of real rows, each condensed row counted once; far below what the same "
        "models reach on patients, the rows' outcome hangs together otherwise than patients' does; far above, it is "
        "simpler than theirs"
    )
    return found
