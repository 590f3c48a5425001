"""Other hospitals' patients: models of one site's condensed, real and random real rows, tested there (Thakur et al.
2026, Table 4).

Beside them each site's own model, of its own training rows: what a site would have without anybody's help. Of another
site only the test rows of its split are tested on; its own model is trained on its training rows, and its decisions are
settled on its validation rows. Decisions of the home's models are settled at home, as a recipient would. Studies test
at sites with the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from distcondense.arrays import Index
from distcondense.data.cohort import Cohort
from distcondense.data.features import some_names
from distcondense.data.persons import Split, Splitting, Stratified
from distcondense.data.schema import Column
from distcondense.data.values import labels_of, numbers_of, refuse_holes
from distcondense.errors import CohortError, UserError
from distcondense.evaluation.experiment import (
    CHOOSING,
    TESTED,
    TRAINED,
    Arm,
    EvaluationSet,
    Experiment,
    dots,
    some_rows,
    titles,
    why_not,
)
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.models import most_rows, title_of
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.outcomes.measures import title
from distcondense.runs.figures import DOTS, Figure, Table

TITLE = "At other sites"
OWN = "own model"  # group of a site's own model, which is trained on FULL rows: its own
ROWS = (  # of the table: trained on, labels, group, name
    (FULL, "", "", "Home's real training rows"),
    (CONDENSED, PLAIN, "", "Home's condensed rows, outcome column only"),
    (CONDENSED, SOFT, "", "Home's condensed rows, as the manual says"),
    (RANDOM, "", "", "Random real rows of home, same number"),
    (FULL, "", OWN, "The site's own training rows"),
)


def section(
    inputs: EvaluationInput,
    *,
    sites: Mapping[str, Cohort],
    seed: int,
    threads: int,
    log: Callable[[str], None] = quiet,
    known: Sequence[Score] = (),
) -> Section:
    """Every arm of the home, at home and at every site; and each site's own model."""
    if why := why_not(inputs):
        return Section("sites", TITLE, notes=(why,))
    if not sites:
        return Section("sites", TITLE, notes=("no other site was given",))
    experiment, learner = Experiment(inputs, seed, threads, known), inputs.learner
    places, lacking = fitting_sites(inputs, sites, Stratified(seed))
    tests, own = [experiment.test], list[Score]()
    notes = experiment.notes() + [f"{name}: not measured. {why}" for name, why in lacking.items()]
    for name, (cohort, split) in places.items():
        test = site_test(inputs, name, cohort, split, seed)
        tests.append(test)
        notes.append(f"{name}: tested on {some_rows(test.sample)} rows, a fifth of its table")
        log(f"{title_of(learner.name)} of {name}'s own rows")
        train = _sample(inputs, cohort, split.train, TRAINED, seed)
        apart = EvaluationSet("", _sample(inputs, cohort, split.validation, CHOOSING, seed))
        codec = experiment.all_columns
        validation = (apart.rows(codec), apart.outcome)
        arm = Arm(FULL, codec, codec.encode(train.features), train.outcome, validation=validation, group=OWN)
        own += experiment.trained(arm, learner, choosing=apart).scores(test)
    scores: list[Score] = []
    for arm in (experiment.full(), *experiment.condensed_both(learner), experiment.random()):
        log(f"{title_of(learner.name)} of {arm.trained_on} rows, at {len(tests)} sites")
        scores += experiment.scores(arm, learner, tests)
    scores += own
    main = inputs.kind.measures[0]
    return Section(
        "sites",
        TITLE,
        tuple(scores),
        (_figure(scores, main),),
        tuple(_tables(scores, inputs.kind.measures)),
        notes=(*notes, f"model: {title_of(learner.name)}; decisions of home's models are settled at home"),
        titles=titles(inputs.kind.measures),
        settings={"tested_rows_at_most": TESTED, "training_rows_at_most": most_rows(learner.name), "seed": seed},
    )


def fitting_sites(
    inputs: EvaluationInput, sites: Mapping[str, Cohort], splitting: Splitting
) -> tuple[dict[str, tuple[Cohort, Split]], dict[str, str]]:
    """Sites as the home's models read them, with their split; and of those that cannot be measured why.

    Raises
    ------
    CohortError
        Where a site has another outcome, or lacks columns or categories of the home's.
    """
    places, lacking = {}, {}
    for name, site in sites.items():
        cohort = fitting(inputs, name, site)
        try:
            split = splitting.split(cohort)
        except UserError as error:
            lacking[name] = str(error)
            continue
        if need := inputs.kind.lacking(cohort.outcome.take(split.test)):
            lacking[name] = f"the test part of {name} needs {need}"
        else:
            places[name] = (cohort, split)
    return places, lacking


def site_test(inputs: EvaluationInput, name: str, cohort: Cohort, split: Split, seed: int) -> EvaluationSet:
    """The test rows of a site."""
    return EvaluationSet(name, _sample(inputs, cohort, split.test, TESTED, seed))


def _sample(inputs: EvaluationInput, cohort: Cohort, rows: Index, most: int, seed: int) -> Sample:
    return replace(inputs, cohort=cohort).sample(rows, most, seed)


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


def _figure(scores: Sequence[Score], main: str) -> Figure:
    sites = list(dict.fromkeys(score.tested_on for score in scores))
    return Figure(
        "sites",
        DOTS,
        "Models of home, at home and elsewhere",
        "Each column is where models were tested; its points are what they were trained on, with 95% intervals.",
        "Tested on",
        titles((main,))[main],
        tuple(
            dots(name, {site: by_site[site] for site in sites if site in by_site})
            for name, by_site in _by_row(scores, main)
        ),
    )


def _tables(scores: Sequence[Score], measures: Sequence[str]) -> Iterator[Table]:
    """One a site, as in Thakur et al. 2026, Table 4."""
    for site in dict.fromkeys(score.tested_on for score in scores):
        by_measure = {measure: dict(_by_row(scores, measure)) for measure in measures}
        rows = []
        for *_, name in ROWS:
            values = [by_measure[measure].get(name, {}).get(site) for measure in measures]
            if any(score is not None for score in values):
                rows.append((name, *("" if score is None else _words(score) for score in values)))
        yield Table(
            f"site-{site}",
            f"Tested on {site} (Thakur et al. 2026, Table 4)",
            ("Trained on", *map(title, measures)),
            tuple(rows),
        )


def _by_row(scores: Sequence[Score], measure: str) -> Iterator[tuple[str, dict[str, Score]]]:
    for trained_on, labels, group, name in ROWS:
        key = (trained_on, labels, group, measure)
        yield name, {s.tested_on: s for s in scores if (s.trained_on, s.labels, s.group, s.measure) == key}


def _words(score: Score) -> str:
    if score.note and score.value != score.value:
        return "–"
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"
