"""Other hospitals' patients: models of the home's condensed, real and random real rows, tested there (000 Table 4).

Beside them each site's own model, of its own training rows: what a site would have without anybody's help. Of another
site only the test part (20%, stratified, same seed) is tested on; its own model is taught its training part and its
decisions are settled on its validation part. Decisions of the home's models are settled at home, as a recipient would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from distcondense.arrays import Index
from distcondense.data.cohort import Cohort
from distcondense.data.features import some_names
from distcondense.data.persons import Stratified
from distcondense.data.schema import Column
from distcondense.data.values import labels_of, numbers_of, refuse_holes
from distcondense.errors import CohortError, UserError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.evaluation.utility.lessons import CHOOSING, Drawn, Given, Lessons, some, titles, trained, why_not
from distcondense.evaluation.utility.students import MOST_ROWS, student_of
from distcondense.outcomes.measures import title
from distcondense.runs.figures import DOTS, Figure, Series, Table

TITLE = "At other sites"
TESTED = 50_000  # rows of a site, at most
OWN = "own model"  # group of a site's own model, which is trained on FULL rows: its own
ROWS = (  # of the table: trained on, taught, group, name
    (FULL, "", "", "Home's real training rows"),
    (CONDENSED, PLAIN, "", "Home's condensed rows, outcome column only"),
    (CONDENSED, SOFT, "", "Home's condensed rows, as the manual says"),
    (RANDOM, "", "", "Random real rows of home, same number"),
    (FULL, "", OWN, "The site's own training rows"),
)


def section(
    inputs: EvaluationInput, *, sites: Mapping[str, Cohort], seed: int, threads: int, log: Callable[[str], None] = quiet
) -> Section:
    """Every way to train at home, at home and at every site; and each site's own model."""
    if why := why_not(inputs):
        return Section("sites", TITLE, notes=(why,))
    if not sites:
        return Section("sites", TITLE, notes=("no other site was given",))
    checked = {name: fitting(inputs, name, cohort) for name, cohort in sites.items()}
    lessons, student = Lessons.of(inputs, seed=seed, tested=TESTED), student_of(inputs.learner)
    exams, notes, own = [lessons.test], lessons.notes(), list[Score]()
    for name, cohort in checked.items():
        try:
            split = Stratified(seed).split(cohort)
        except UserError as error:
            notes.append(f"{name}: not measured. {error}")
            continue
        train, apart, exam = (
            _drawn(inputs, cohort, name, rows, most, seed)
            for rows, most in ((split.train, MOST_ROWS), (split.validation, CHOOSING), (split.test, TESTED))
        )
        exams.append(exam)
        notes.append(f"{name}: tested on {some(len(exam), exam.of)} rows, a fifth of its table")
        log(f"{student.title} of {name}'s own rows")
        given = Given(FULL, lessons.every, train.rows(lessons.every), train.outcome, group=OWN)
        own += trained(lessons, student, given, threads=threads, choosing=apart).in_exam(exam)
    scores: list[Score] = []
    for given in (lessons.full(), *lessons.condensed(student), lessons.random()):
        log(f"{student.title} of {given.trained_on} rows, at {len(exams)} sites")
        model = trained(lessons, student, given, threads=threads)
        for exam in exams:
            scores += model.in_exam(exam)
    scores += own
    main = inputs.kind.measures[0]
    return Section(
        "sites",
        TITLE,
        tuple(scores),
        (_figure(scores, main),),
        tuple(_tables(scores, inputs.kind.measures)),
        notes=(*notes, f"model: {student.title}; decisions of home's models are settled at home"),
        titles=titles(inputs.kind.measures),
        settings={"tested_rows_at_most": TESTED, "training_rows_at_most": student.most, "seed": seed},
    )


def fitting(inputs: EvaluationInput, name: str, cohort: Cohort) -> Cohort:
    """The site's rows as the home's models read them; refused where they cannot be."""
    ours, theirs = inputs.kind, cohort.outcome.kind
    same = type(ours) is type(theirs) and tuple(map(str, ours.labels)) == tuple(map(str, theirs.labels))
    if not same:
        raise CohortError(
            f"site {name!r}",
            "must have an outcome of the home's kind, with the same labels",
            found=f"a {theirs.name} outcome with {len(theirs.labels)} labels",
            fix="name the same outcome columns, and declare the same labels in the schema",
        )
    schema = inputs.cohort.schema.described(inputs.schema.columns)
    missing = [column for column in schema.names if column not in cohort.features]
    if missing:
        raise CohortError(
            f"site {name!r}",
            "must have every column of the home's table",
            found=f"{len(missing)} missing: {some_names(missing)}",
            fix="add the columns to the site's table",
        )
    features = cohort.features.copy(deep=False)
    for column in schema.columns:
        if column.unknown:
            continue
        try:
            features[column.name] = _read(features[column.name], column)
        except CohortError as error:
            raise CohortError(
                f"site {name!r}, {error.what}",
                error.rule,
                found=error.found,
                fix="write the site's column as the home's schema has it, or leave these rows out",
            ) from None
    return replace(cohort, features=features, schema=schema)


def _read(series: pd.Series[Any], column: Column) -> Any:
    """A site's column in the home's categories; numbers beyond the home's bounds stay what they are."""
    if column.missing == "refuse":
        refuse_holes(series, column.name)
    if column.numeric:
        return numbers_of(series, column.name)
    codes = labels_of(series, column, "must hold the categories of the home's schema only")
    return pd.Categorical.from_codes(codes, categories=list(column.categories))  # type: ignore[call-overload]


def _drawn(inputs: EvaluationInput, cohort: Cohort, name: str, rows: Index, most: int, seed: int) -> Drawn:
    there = replace(inputs, cohort=cohort)
    return Drawn.of_sample(name, there.sample(rows, most, seed))


def _figure(scores: Sequence[Score], main: str) -> Figure:
    sites = list(dict.fromkeys(score.tested_on for score in scores))
    series = []
    for name, chosen in _by_row(scores, main):
        shown = [chosen[site] for site in sites if site in chosen]
        series.append(
            Series(
                name,
                tuple(one.tested_on for one in shown),
                tuple(one.value for one in shown),
                tuple(one.low for one in shown),
                tuple(one.high for one in shown),
            )
        )
    return Figure(
        "sites",
        DOTS,
        "Models of home, at home and elsewhere",
        "Each column is where models were tested; its points are what they were trained on, with 95% intervals.",
        "Tested on",
        titles((main,))[main],
        tuple(series),
    )


def _tables(scores: Sequence[Score], measures: Sequence[str]) -> Iterator[Table]:
    """One a site, as in Thakur et al. 2026, Table 4."""
    for site in dict.fromkeys(score.tested_on for score in scores):
        found = {measure: dict(_by_row(scores, measure)) for measure in measures}
        rows = []
        for *_, name in ROWS:
            values = [found[measure].get(name, {}).get(site) for measure in measures]
            if any(one is not None for one in values):
                rows.append((name, *("" if one is None else _words(one) for one in values)))
        yield Table(
            f"site-{site}", f"Tested on {site} (000 Table 4)", ("Trained on", *map(title, measures)), tuple(rows)
        )


def _by_row(scores: Sequence[Score], measure: str) -> Iterator[tuple[str, dict[str, Score]]]:
    for trained_on, labels, group, name in ROWS:
        key = (trained_on, labels, group, measure)
        yield name, {s.tested_on: s for s in scores if (s.trained_on, s.labels, s.group, s.measure) == key}


def _words(score: Score) -> str:
    if score.note and score.value != score.value:
        return "–"
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"
