"""What a study measures beside each run's own scores: models of real rows, once for all methods, and further parts.

`yardstick`: the model of all training rows and, where students of several kinds are asked for, all of theirs: of one
table, outcome, student and seed there is one, on the same test persons as every method's, so one dashed line is one
number. `measured_parts`: any part of the evaluation (`evaluation/suite.py`) of a finished run. Of students only those
of condensed and of random real rows are trained for each cell: those of all real rows are the yardstick's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Matrix
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.errors import UserError
from distcondense.evaluation.experiment import Experiment, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import learners_of
from distcondense.evaluation.quick import first_scores
from distcondense.evaluation.score import FULL, HELD_OUT, Score
from distcondense.evaluation.suite import EvaluationRequest, evaluated
from distcondense.evaluation.utility.recipients import of_few_rows
from distcondense.evaluation.utility.sites import fitting_sites, site_test
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.files import write_json
from distcondense.runs.result import Result
from distcondense.study.design import STUDENTS, Cell
from distcondense.study.folder import StudyFolder, read_json

LONG = 3600.0  # seconds that a cell waits for another one that is measuring the same real rows


@dataclass(frozen=True)
class Yardstick:
    """Models of real training rows: tested at home, at other sites, and those of all students at home."""

    home: tuple[Score, ...]
    elsewhere: tuple[Score, ...]
    students: tuple[Score, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Yardstick:
        return cls(*(tuple(Score.from_dict(one) for one in data[name]) for name in ("home", "elsewhere", "students")))


def yardstick(cell: Cell, folder: StudyFolder, cohort: Cohort, sites: Mapping[str, Cohort], threads: int) -> Yardstick:
    """Measured by the first cell that needs it, kept for the others."""
    path = folder.yardstick(cell)
    with folder.lock(f"real-{path.stem}", LONG, "must be measured by one process", "start the study again"):
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_json(path, _measured(cell, cohort, sites, threads))
    return Yardstick.from_dict(read_json(path))


def _measured(cell: Cell, cohort: Cohort, sites: Mapping[str, Cohort], threads: int) -> dict[str, Any]:
    yardstick: dict[str, list[Score]] = {"home": [], "elsewhere": [], "students": []}
    if (home := real_home(cell, cohort)) is not None:
        experiment = Experiment(home, cell.seed, threads)
        places, _ = fitting_sites(home, sites, cell.held_out)
        away = [site_test(home, name, *place, cell.seed) for name, place in places.items()]
        for score in first_scores(experiment, [experiment.test, *away]):
            yardstick["home" if score.tested_on == HELD_OUT else "elsewhere"].append(score)
        if cell.students:
            experiment, full = replace(experiment, known=yardstick["home"]), experiment.full()
            for learner in learners_of(home.kind):
                yardstick["students"] += experiment.scores(full, learner, [experiment.test])
    return {name: [score.to_dict() for score in scores] for name, scores in yardstick.items()}


def at_sites(
    inputs: EvaluationInput, sites: Mapping[str, Cohort], cell: Cell, *, threads: int, known: Sequence[Score] = ()
) -> dict[str, tuple[list[Score], str]]:
    """A run's first scores on other sites' patients: per site its scores, or why there are none.

    Of another site only its test persons are used, whom the same coins hold out there, so that its own models and those
    from elsewhere are measured on the same patients.
    """
    places, lacking = fitting_sites(inputs, sites, cell.held_out)
    tests = [site_test(inputs, name, *place, cell.seed) for name, place in places.items()]
    scores = first_scores(Experiment(inputs, cell.seed, threads, known), tests) if tests else []
    return {name: ([score for score in scores if score.tested_on == name], lacking.get(name, "")) for name in sites}


def real_home(cell: Cell, cohort: Cohort) -> EvaluationInput | None:
    """The table with its test persons apart, and no condensed row; None where no model of it could be measured."""
    split, kind, nobody = cell.held_out.split(cohort), cohort.outcome.kind, np.empty(0, np.int64)
    if any(kind.lacking(cohort.outcome.take(part)) for part in (split.train, split.test)):
        return None
    try:
        codec = Codec.fit(cohort.features.iloc[split.train], cohort.schema)
    except UserError:  # categories that a run is to find itself: it measures its own models of real rows
        return None
    none: Matrix = np.empty((0, len(codec.names)), np.float32)
    result = Result.from_rows(
        features=cohort.features.iloc[nobody],
        schema=cohort.schema,
        labelled=Labelled(cohort.outcome.take(nobody)),
        privacy=Privacy("none", "", None, None, "none", "none"),
        splitting=cell.held_out,
        learner=kind.learner(cell.reference),
        codec=codec,
        encoded=none,
        unit=kind.unit(cohort.outcome.take(split.train)),
    )
    return EvaluationInput(cohort, split, result)


def measured_parts(
    home: EvaluationInput, parts: Sequence[str], *, seed: int, threads: int, known: Sequence[Score] = ()
) -> Iterator[tuple[str, Any]]:
    """Part by part: its name, and its scores and notes as JSON holds them. Scores of single columns are left out.

    known: the run's first scores, which are kept.
    """
    for name in parts:
        if name == STUDENTS:
            scores, notes = _students(home, seed, threads, known)
        else:
            (section,) = evaluated(home, EvaluationRequest((name,), seed, threads), known=known)
            scores, notes = list(section.scores), section.notes
        kept = [score.to_dict() for score in scores if not score.group and score.trained_on != FULL]
        yield name, {"scores": kept, "notes": list(notes)}


def _students(
    home: EvaluationInput, seed: int, threads: int, known: Sequence[Score]
) -> tuple[list[Score], Sequence[str]]:
    """Every model of condensed rows, with the plain outcome column and as the manual says, and of random real rows."""
    if why := why_not(home):
        return [], (why,)
    experiment = Experiment(home, seed, threads, known)
    scores = [score for learner in learners_of(home.kind) for score in of_few_rows(experiment, learner)]
    return scores, experiment.notes()
