"""Utility on held-out patients: fresh models of condensed rows beside models of real ones (paper 000 §2.4, Table 4).

Everything here can be made again from a finished run and the table, so another site may be tested later without
condensing again: a private run is not repeated (and not paid for) because somebody wants one more test. The numbers are
computed on patients: they belong in `internal/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.persons import Split, Stratified, split_from
from distcondense.data.schema import Schema
from distcondense.errors import ModelError, UserError
from distcondense.evaluate.score import CONDENSED, FULL, RANDOM, REFERENCE, RESAMPLES, WITHOUT_ROWS, Score, bootstrap
from distcondense.methods.base import Condensed
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.base import Kind, Labelled
from distcondense.runs.result import Result, labelled_of


@dataclass(frozen=True, repr=False)
class Home:
    """The table that was condensed, which of its rows were for what, and the condensed rows as models see them."""

    cohort: Cohort
    split: Split
    learner: Learner
    codec: Codec
    rows: Matrix  # (m, d) condensed, encoded; m = 0 where a private run had no answer
    labelled: Labelled
    unit: float = 1.0
    full: Model | None = None  # the model of all training rows, where there is one already
    reference: Model | None = None  # covered by the guarantee: a way of its own

    @property
    def kind(self) -> Kind:
        kind: Kind = self.cohort.outcome.kind
        return kind

    @classmethod
    def of(cls, cohort: Cohort, condensed: Condensed) -> Home:
        """As a method left it."""
        split = condensed.splitting.of(cohort)
        codec = condensed.codec or _codec(cohort, split, condensed.schema)
        rows = codec.encode(condensed.frame) if condensed.encoded is None else condensed.encoded
        own, covered = condensed.reference, condensed.reference_covered
        return cls(
            cohort, split, condensed.learner or cohort.outcome.kind.learner(), codec, rows, condensed.labelled,
            condensed.unit, full=None if covered else own, reference=own if covered else None,
        )  # fmt: skip

    @classmethod
    def of_result(cls, cohort: Cohort, result: Result) -> Home:
        """As a finished run's table and record say."""
        record = result.record
        split = split_from(record["splitting"]).of(cohort)
        public = record.get("scaling") == "public"
        codec = Codec.public(result.schema) if public else _codec(cohort, split, cohort.schema)
        if result.raw:
            rows = ((result.frame[codec.names].to_numpy() - codec.centre) / codec.scale).astype(np.float32)
        else:
            rows = codec.encode(check_features(result.frame, result.schema))
        labelled = labelled_of(result.frame, result.kind)
        labelled = replace(
            labelled, soft=labelled.soft if record["soft_labels"] else None,
            weight=labelled.weight if record["weighted"] else None,
        )  # fmt: skip
        return cls(cohort, split, cohort.outcome.kind.learner(record["student"]), codec, rows, labelled, record["unit"])


def _codec(cohort: Cohort, split: Split, schema: Schema) -> Codec:
    return Codec.fit(cohort.features.iloc[split.train], schema)


@dataclass(frozen=True)
class Way:
    """One way to train: how, on how many rows, and how rows are encoded for it."""

    name: str
    rows: int
    codec: Codec
    fit: Callable[[], Model]
    covered: bool = False


def ways_to_train(home: Home, *, seed: int, threads: int) -> Iterator[Way]:
    """All real rows, the private reference, the condensed rows, and as many random real rows of the same balance.

    Where scaling is public the model of all rows sees all columns, also those that the private model did not use.
    """
    cohort, split, kind = home.cohort, home.split, home.kind
    train = kind.in_unit(cohort.outcome.take(split.train), home.unit)
    every = home.codec if len(split.validation) else _all_columns(home)

    def rows(codec: Codec, part: Index) -> Matrix:
        return codec.encode(cohort.features.iloc[part])

    def full() -> Model:
        if home.full is not None:
            return home.full
        held = None
        if len(split.validation):
            held = (rows(every, split.validation), kind.in_unit(cohort.outcome.take(split.validation), home.unit))
        return home.learner.fit(rows(every, split.train), train, validation=held, seed=seed, threads=threads)

    yield Way(FULL, len(split.train), every, full)
    if home.reference is not None:
        yield Way(REFERENCE, len(split.train), home.codec, lambda: home.reference, covered=True)  # type: ignore[arg-type, return-value]
    labelled = home.labelled
    if not len(labelled.outcome):  # a private run without an answer has no rows
        return
    made = kind.in_unit(labelled.outcome, home.unit)
    chosen = kind.alike(train, labelled.outcome, np.random.default_rng([seed, 0x4EA1]))
    yield Way(
        CONDENSED, len(made), home.codec,
        lambda: home.learner.fit(
            home.rows, made, weight=labelled.weight, soft=labelled.soft, seed=seed, threads=threads
        ),
        covered=True,
    )  # fmt: skip
    yield Way(
        RANDOM, len(chosen), home.codec,
        lambda: home.learner.fit(
            rows(home.codec, split.train[chosen]), train.take(chosen), seed=seed, threads=threads
        ),
    )  # fmt: skip


def _all_columns(home: Home) -> Codec:
    """A codec of every column, scaled by the schema; the condensed rows' own where that has all of them."""
    return home.codec if home.codec.columns == home.cohort.schema.names else Codec.public(home.cohort.schema)


@dataclass(frozen=True)
class Site:
    """Where models are tested: a table, and the rows of it that nothing was fitted on."""

    name: str
    cohort: Cohort
    test: Index


def evaluate(
    home: Home, *, seed: int, threads: int, name: str = "held out", known: Sequence[Score] = ()
) -> tuple[list[Score], str]:
    """Every way to train on the held-out part of home; and, where nothing can be measured, why.

    known: the scores of another set of the same run at the same place. Models that no synthetic row taught are theirs.
    """
    if why := _nothing_to_measure(home):
        return [], why
    return evaluate_at(home, [Site(name, home.cohort, home.split.test)], seed=seed, threads=threads, known=known), ""


def evaluate_elsewhere(
    home: Home, cohorts: Mapping[str, Cohort], *, seed: int, threads: int, known: Sequence[Score] = ()
) -> dict[str, tuple[list[Score], str]]:
    """The same on other sites' patients: per site its scores, or why there are none.

    Of another site only the test part (20%, same seed) is used, so that its own models and those from elsewhere are
    measured on the same patients.
    """
    sites, why = [], {}
    for name, cohort in cohorts.items():
        try:
            sites.append(Site(name, cohort, Stratified(seed).of(cohort).test))
        except UserError as error:
            why[name] = str(error)
    scores = evaluate_at(home, sites, seed=seed, threads=threads, known=known) if sites else []
    return {name: ([score for score in scores if score.tested_on == name], why.get(name, "")) for name in cohorts}


def evaluate_at(home: Home, sites: list[Site], *, seed: int, threads: int, known: Sequence[Score] = ()) -> list[Score]:
    """Scores of every way to train at home, at every site. Thresholds are chosen at home, on rows not tested on."""
    scores = [score for score in known if score.trained_on in WITHOUT_ROWS]
    done = {score.trained_on for score in scores}
    for way in ways_to_train(home, seed=seed, threads=threads):
        if way.name not in done:
            scores += _scores_of(home, way, sites, seed)
    return scores


def _scores_of(home: Home, way: Way, sites: list[Site], seed: int) -> Iterator[Score]:
    kind, choosing = home.kind, home.split.choosing
    try:
        model = way.fit()
    except ModelError as error:
        for site in sites:
            none = float("nan")
            yield Score(kind.measures[0], way.name, site.name, none, none, none, len(site.test), way.covered, way.rows,
                        note=str(error))  # fmt: skip
        return
    chosen = kind.in_unit(home.cohort.outcome.take(choosing), home.unit)
    threshold = kind.threshold(model.scores(way.codec.encode(home.cohort.features.iloc[choosing])), chosen)
    for site in sites:
        scores = model.scores(way.codec.encode(site.cohort.features.iloc[site.test]))
        real = kind.in_unit(site.cohort.outcome.take(site.test), home.unit)
        person = None if site.cohort.person is None else site.cohort.person[site.test]
        measured = bootstrap(kind.samples(model.link, scores, real, threshold), len(real), seed=seed, person=person)
        for measure, found in measured.items():
            yield Score(measure, way.name, site.name, found.value, found.low, found.high, len(real), way.covered,
                        way.rows, threshold)  # fmt: skip


def _nothing_to_measure(home: Home) -> str:
    """Why a release cannot be measured on patients; a run that has spent its budget must not fail for that."""
    if not len(home.split.test):
        return "nobody was held out, so nothing was measured on patients"
    if any(home.kind.lacking(home.cohort.outcome.take(part)) for part in (home.split.train, home.split.test)):
        return "too few rows of one class to measure on patients"
    return ""


def measured(
    home: Home, *, seed: int, threads: int, must: bool, known: Sequence[Score] = ()
) -> tuple[list[Score], str]:
    """`evaluate`, where a failure is a note unless it `must` work: a budget that is spent is not lost for it."""
    try:
        return evaluate(home, seed=seed, threads=threads, known=known)
    except Exception as error:
        if must:
            raise
        return [], f"could not be measured on patients: {type(error).__name__}"


def interval_words(person: Any) -> str:
    return f"95% percentile bootstrap, {RESAMPLES} resamples of test {'rows' if person is None else 'persons'}"
