"""Whom a model serves: its main measure in every group that a categorical column makes, and the gap between groups.

The run's own model, of condensed rows (as the manual says) and of real training rows: a gap that is there in both is
the task's, one that only condensed rows have is theirs. Groups are named by the public schema; groups of few patients,
or of few of one class, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distcondense.arrays import Index
from distcondense.data.codec import category_codes
from distcondense.data.outcome import Outcome
from distcondense.evaluation.experiment import TESTED, EvaluationSet, Experiment, TrainedModel, dots, titles, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import CLASSES, title_of
from distcondense.evaluation.score import CONDENSED, FULL, TRAINED_ON, Score
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


Groups = dict[str, Index]  # name → its test rows


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """The main measure by group and the gap of each column, of condensed and of real training rows."""
    if why := why_not(inputs):
        return Section("subgroups", TITLE, notes=(why,))
    experiment = Experiment(inputs, seed, threads)
    by_column, left = groups_by_column(experiment)
    notes = [
        *experiment.notes(),
        f"groups of at least {LEAST_ROWS} test rows and {LEAST_CASES} of each of two classes, or {LEAST_CASES} events",
        *left,
    ]
    if not by_column:
        return Section("subgroups", TITLE, notes=(*notes, "no column makes two groups of that size"))
    learner, main = inputs.learner, inputs.kind.measures[0]
    log(f"{title_of(learner.name)} by group: {', '.join(by_column)}")
    scores: list[Score] = []
    for arm in (experiment.condensed(), experiment.full()):
        scores += by_group(experiment.trained(arm, learner), experiment.test, by_column)
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


def groups_by_column(experiment: Experiment) -> tuple[dict[str, Groups], list[str]]:
    """Columns that make two groups or more, and what was left out."""
    test, inputs = experiment.test, experiment.inputs
    schema = inputs.cohort.schema.described(inputs.schema.columns)  # with categories that were found privately
    by_column, small, many, few = dict[str, Groups](), dict[str, int](), 0, 0
    for column in schema.columns:
        if column.numeric or column.unknown:
            continue
        if len(column.categories) > LEVELS:
            many += 1
            continue
        public = schema.origin == "declared" or column.searched
        labels = [str(label) if public else f"level {code + 1}" for code, label in enumerate(column.categories)]
        codes = category_codes(test.sample.features[column.name], column)
        labels += [MISSING] * column.keeps_holes
        rows = {f"{column.name} = {label}": np.flatnonzero(codes == k) for k, label in enumerate(labels)}
        groups = {name: there for name, there in rows.items() if _enough(test.outcome.take(there))}
        if len(groups) < 2:
            few += 1
        else:
            by_column[column.name] = groups
            small[column.name] = sum(len(there) > 0 for there in rows.values()) - len(groups)

    def second_largest(name: str) -> tuple[int, str]:
        return -sorted(len(there) for there in by_column[name].values())[-2], name

    shown = sorted(by_column, key=second_largest)[:COLUMNS]
    more = len(by_column) - len(shown)
    notes = {
        f"{sum(small[name] for name in shown)} groups of these columns are smaller and were left out; numbers of rows "
        "by group are rounded to tens": True,
        f"{many} columns have more than {LEVELS} levels and were left out": many,
        f"{few} columns have no two groups of that size and were left out": few,
        f"{more} columns with smaller groups were left out: {COLUMNS} are shown": more,
        "the schema was inferred: its categories are patients' own words, so that groups have numbers instead": (
            schema.origin != "declared"
        ),
    }
    return {name: by_column[name] for name in shown}, [note for note, applies in notes.items() if applies]


def _enough(outcome: Outcome) -> bool:
    """Whether a measure of these rows says nothing about single patients."""
    kind: Kind = outcome.kind
    if len(outcome) < LEAST_ROWS or kind.lacking(outcome):
        return False
    if not kind.labels:
        return True
    enough = np.bincount(kind.strata(outcome), minlength=2) >= LEAST_CASES
    return bool(enough.sum() >= 2 if kind.learner().link in CLASSES else enough[1])  # of events, where there is a time


def by_group(model: TrainedModel, test: EvaluationSet, by_column: Mapping[str, Groups]) -> Iterator[Score]:
    """The main measure in each group, and per column the gap."""
    main = test.outcome.kind.measures[0]
    for column, groups in by_column.items():
        measured = []
        for name, rows in groups.items():
            some = test.take(rows, model.arm.codec)
            value = model.measured(some).get(main, Measured(float("nan")))
            measured.append((value, rows))
            yield replace(model.score(main, value, some), group=name, n=_tens(len(rows)))
        score = _gap(model, test, [(value, rows) for value, rows in measured if value.influence is not None])
        yield replace(score, group=column, n=_tens(sum(map(len, groups.values()))))


def _gap(model: TrainedModel, test: EvaluationSet, measured: Sequence[tuple[Measured, Index]]) -> Score:
    """Largest minus smallest; what a row adds to it is what it adds to its own group's, with that one's sign."""
    by_value = sorted(((one, rows) for one, rows in measured if np.isfinite(one.value)), key=lambda pair: pair[0].value)
    if len(by_value) < 2:
        score = model.score(GAP, Measured(float("nan")), test)
        return replace(score, note=model.why or "fewer than two groups measured")
    (low, below), *_, (high, above) = by_value
    influence = np.zeros(len(test))
    influence[above] = high.influence
    influence[below] = -np.asarray(low.influence)
    score = model.score(GAP, Measured(high.value - low.value, influence), test)
    return replace(score, low=max(score.low, 0.0))


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
    return tuple(
        dots(
            TRAINED_ON[trained_on],
            {s.group: s for s in scores if (s.measure, s.trained_on) == (measure, trained_on) and s.group in groups},
        )
        for trained_on in (CONDENSED, FULL)
    )
