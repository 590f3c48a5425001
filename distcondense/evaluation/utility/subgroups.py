"""Whom a model serves: its main measure in every group that a categorical column makes, and the gap between groups.

The run's own student, of condensed rows (as the manual says) and of real training rows: a gap that is there in both is
the task's, one that only condensed rows have is theirs. Groups are named by the public schema; groups of few patients,
or of few of one class, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distcondense.arrays import Flags, Index
from distcondense.data.codec import category_codes
from distcondense.data.schema import Column
from distcondense.evaluation.experiment import TESTED, EvaluationSet, Experiment, TrainedModel, dots, titles, why_not
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.models import CLASSES, title_of
from distcondense.evaluation.score import CONDENSED, FULL, TRAINED_ON, Score, interval
from distcondense.evaluation.section import Section, quiet
from distcondense.outcomes.base import Kind
from distcondense.outcomes.measures import Measured, title
from distcondense.runs.figures import DOTS, Figure, Series

TITLE = "By subgroup"
GAP = "gap"
LEVELS = 12  # a column with more is none to make groups of
COLUMNS = 12  # at most: those whose second largest group is largest, for a gap needs two
LEAST_ROWS = 50  # of a group
LEAST_CASES = 10  # of each of two classes, or events: a measure of fewer would say how single patients stand
SHOWN = 36  # groups in the figure, at most
MISSING = "missing"


@dataclass(frozen=True, repr=False)
class Grouping:
    """A column, and its groups that are large enough."""

    column: str
    groups: tuple[tuple[str, Flags], ...]  # a name, and which test rows
    small: int  # groups with rows that are left out

    @property
    def second(self) -> int:
        """Rows of the second largest group."""
        sizes = sorted((int(there.sum()) for _, there in self.groups), reverse=True)
        return sizes[1] if len(sizes) > 1 else 0


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """The main measure by group and the gap of each column, of condensed and of real training rows."""
    if why := why_not(inputs):
        return Section("subgroups", TITLE, notes=(why,))
    experiment = Experiment(inputs, seed, threads)
    groupings, left = groupings_of(experiment)
    notes = [
        *experiment.notes(),
        f"groups of at least {LEAST_ROWS} test rows and {LEAST_CASES} of each of two classes, or {LEAST_CASES} events",
        f"{sum(one.small for one in groupings)} groups of these columns are smaller and were left out; numbers of rows "
        "by group are rounded to tens",
        *left,
    ]
    if not groupings:
        return Section("subgroups", TITLE, notes=(*notes, "no column makes two groups of that size"))
    learner, main = inputs.learner, inputs.kind.measures[0]
    log(f"{title_of(learner.name)} by group: {', '.join(one.column for one in groupings)}")
    scores: list[Score] = []
    for arm in (experiment.condensed(), experiment.full()):
        scores += by_group(experiment.trained(arm, learner), experiment.test, groupings)
    notes.append(
        f"gap: the difference of {title(main)} between a column's best and worst group; being a largest difference, it "
        "is above 0 also where groups do not differ: read its interval beside that of real training rows"
    )
    return Section(
        "subgroups",
        TITLE,
        tuple(scores),
        figures(scores, main),
        notes=tuple(notes),
        titles={**titles((main,)), GAP: f"Gap in {title(main)} between groups (0: none)"},
        settings={
            "tested_rows_at_most": TESTED,
            "levels_at_most": LEVELS,
            "columns_at_most": COLUMNS,
            "rows_of_a_group_at_least": LEAST_ROWS,
            "of_a_class_at_least": LEAST_CASES,
            "seed": seed,
        },
    )


def groupings_of(experiment: Experiment) -> tuple[list[Grouping], list[str]]:
    """Columns that make groups, and what was left out."""
    test, inputs = experiment.test, experiment.inputs
    schema = inputs.cohort.schema.described(inputs.schema.columns)  # with categories that were found privately
    found, many, few = [], 0, 0
    for column in schema.columns:
        if column.numeric or column.unknown:
            continue
        if len(column.categories) > LEVELS:
            many += 1
            continue
        codes = category_codes(test.sample.features[column.name], column)
        public = schema.origin == "declared" or column.searched
        groups, small = _groups(column, codes, test, public=public)
        if len(groups) < 2:
            few += 1
        else:
            found.append(Grouping(column.name, tuple(groups), small))
    found.sort(key=lambda one: (-one.second, one.column))
    more = max(len(found) - COLUMNS, 0)
    said = {
        f"{many} columns have more than {LEVELS} levels and were left out": many,
        f"{few} columns have no two groups of that size and were left out": few,
        f"{more} columns with smaller groups were left out: {COLUMNS} are shown": more,
        "the schema was inferred: its categories are patients' own words, so that groups have numbers instead": (
            schema.origin != "declared"
        ),
    }
    return found[:COLUMNS], [words for words, there in said.items() if there]


def _groups(column: Column, codes: Index, test: EvaluationSet, *, public: bool) -> tuple[list[tuple[str, Flags]], int]:
    kind: Kind = test.outcome.kind
    groups, small = [], 0
    for code in range(len(column.categories) + column.keeps_holes):
        there = codes == code
        if not there.any():
            continue
        if there.sum() < LEAST_ROWS or not _enough(kind, test, there):
            small += 1
            continue
        label = f"level {code + 1}"
        if code == len(column.categories):
            label = MISSING
        elif public:
            label = str(column.categories[code])
        groups.append((f"{column.name} = {label}", there))
    return groups, small


def _enough(kind: Kind, test: EvaluationSet, there: Flags) -> bool:
    """Whether a measure there says nothing about single patients."""
    outcome = test.outcome.take(np.flatnonzero(there))
    if kind.lacking(outcome):
        return False
    if not kind.labels:
        return True
    enough = np.bincount(kind.strata(outcome), minlength=2) >= LEAST_CASES
    return bool(enough.sum() >= 2 if kind.learner().link in CLASSES else enough[1])  # of events, where there is a time


def by_group(model: TrainedModel, test: EvaluationSet, groupings: Sequence[Grouping]) -> Iterator[Score]:
    """The main measure in each group, and per column the gap."""
    main = test.outcome.kind.measures[0]
    for grouping in groupings:
        found: list[tuple[Measured, Index]] = []
        for name, there in grouping.groups:
            rows = np.flatnonzero(there)
            one = model.measured(_only(test, model, rows)).get(main, Measured(float("nan")))
            found.append((one, rows))
            yield replace(model.score(main, one, _only(test, model, rows)), group=name, n=_tens(len(rows)))
        yield _gap(model, test, grouping, found)


def _only(test: EvaluationSet, model: TrainedModel, rows: Index) -> EvaluationSet:
    """These rows of a test set, encoded as the model wants them."""
    codec, person = model.arm.codec, None if test.person is None else test.person[rows]
    sample = Sample(test.sample.features.iloc[rows], test.outcome.take(rows), person, len(rows))
    return EvaluationSet(test.name, sample, {id(codec): test.rows(codec)[rows]})


def _gap(
    model: TrainedModel, test: EvaluationSet, grouping: Grouping, found: Sequence[tuple[Measured, Index]]
) -> Score:
    """Largest minus smallest; what a row adds to it is what it adds to its own group's, with that one's sign."""
    there = [(one, rows) for one, rows in found if np.isfinite(one.value) and one.influence is not None]
    rows_of = _tens(sum(len(rows) for _, rows in found))
    if len(there) < 2:
        score = model.score(GAP, Measured(float("nan")), test)
        return replace(score, group=grouping.column, n=rows_of, note=score.note or "fewer than two groups measured")
    (low, below), (high, above) = min(there, key=lambda one: one[0].value), max(there, key=lambda one: one[0].value)
    assert low.influence is not None
    assert high.influence is not None
    influence = np.zeros(len(test))
    influence[above] += high.influence
    influence[below] -= low.influence
    gap = Measured(high.value - low.value, influence)
    reach = interval(gap, test.person)
    score = model.score(GAP, gap, test)
    return replace(score, group=grouping.column, n=rows_of, low=max(reach.low, 0.0))


def _tens(rows: int) -> int:
    """So that nobody finds the size of a group that was left out by subtracting those that were not."""
    return 10 * round(rows / 10)


def figures(scores: Sequence[Score], main: str) -> tuple[Figure, ...]:
    """The gap of every column, and the measure by group of as many columns as there is room for."""
    columns = list(dict.fromkeys(score.group for score in scores if score.measure == GAP))
    groups = list(dict.fromkeys(score.group for score in scores if score.measure == main))[:SHOWN]
    return (
        Figure(
            "gaps",
            DOTS,
            "Gap between groups",
            "Each column is a feature; its points are the differences between its best and its worst group, with 95% "
            "intervals, of models of condensed and of real training rows. Alike: condensing made no group worse.",
            "Feature",
            f"Gap in {title(main)} (0: none)",
            _series(scores, GAP, columns),
            at=(("no gap", 0.0),),
        ),
        Figure(
            "groups",
            DOTS,
            "Models by group",
            "Each column is a group of held-out patients; its points are models of condensed and of real training "
            "rows, with 95% intervals.",
            "Group",
            titles((main,))[main],
            _series(scores, main, groups),
        ),
    )


def _series(scores: Sequence[Score], measure: str, groups: Sequence[str]) -> tuple[Series, ...]:
    series = []
    for trained_on in (CONDENSED, FULL):
        by_group = {
            score.group: score for score in scores if (score.measure, score.trained_on) == (measure, trained_on)
        }
        shown = {group: by_group[group] for group in groups if group in by_group}
        series.append(dots(TRAINED_ON[trained_on], shown))
    return tuple(series)
