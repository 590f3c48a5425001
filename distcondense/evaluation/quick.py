"""The quick part of the evaluation: fresh models of condensed rows beside models of real ones, on held-out patients.

(Thakur et al. §2.4, Table 4.) On by default, so everything is bounded: models of real rows are fitted to a sample
(`TRAINED`), what turns scores into decisions is settled on another (`CHOOSING`); all held-out rows are tested on, and
intervals resample nothing. The numbers are computed on patients: they belong in `internal/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distcondense.arrays import Index
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE, SOFT, WITHOUT_ROWS, Score, interval
from distcondense.models.base import Model

TRAINED = 100_000  # real rows that a model is fitted to, at most
CHOOSING = 20_000  # and that a threshold is chosen on


Told = Callable[[int, int], None]  # (models so far, in all)


def _untold(done: int, of: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Way:
    """One way to train: how, on how many rows, and how rows are encoded for it."""

    name: str
    rows: int
    codec: Codec
    fit: Callable[[], Model]
    covered: bool = False


def ways_to_train(inputs: EvaluationInput, *, seed: int, threads: int) -> Iterator[Way]:
    """Real rows, the private reference, the condensed rows, and as many random real rows of the same balance.

    Where scaling is public the model of all rows sees all columns, also those that the private model did not use.
    """
    split, kind = inputs.split, inputs.kind
    sample = inputs.sample(split.train, TRAINED, seed)
    train = sample.outcome
    every = inputs.codec if len(split.validation) else _all_columns(inputs)

    def full() -> Model:
        if inputs.full is not None:
            return inputs.full
        held = None
        if len(split.validation):
            apart = inputs.sample(split.validation, CHOOSING, seed)
            held = (every.encode(apart.features), apart.outcome)
        return inputs.learner.fit(every.encode(sample.features), train, validation=held, seed=seed, threads=threads)

    yield Way(FULL, len(split.train) if inputs.full is not None else len(sample), every, full)
    if inputs.reference is not None:
        yield Way(REFERENCE, len(split.train), inputs.codec, lambda: inputs.reference, covered=True)  # type: ignore[arg-type, return-value]
    labelled = inputs.labelled
    if not len(labelled.outcome):  # a private run without an answer has no rows
        return
    chosen = kind.alike(train, labelled.outcome, np.random.default_rng([seed, 0x4EA1]))
    yield Way(
        CONDENSED,
        len(labelled.outcome),
        inputs.codec,
        lambda: inputs.learner.fit(
            inputs.rows, inputs.made, weight=labelled.weight, soft=labelled.soft, seed=seed, threads=threads
        ),
        covered=True,
    )
    yield Way(
        RANDOM,
        len(chosen),
        inputs.codec,
        lambda: inputs.learner.fit(
            inputs.codec.encode(sample.features.iloc[chosen]), train.take(chosen), seed=seed, threads=threads
        ),
    )


def _all_columns(inputs: EvaluationInput) -> Codec:
    """A codec of every column, scaled by the schema; the condensed rows' own where that has all of them."""
    if inputs.codec.columns == inputs.cohort.schema.names:
        return inputs.codec
    return Codec.public(inputs.cohort.schema.described(inputs.schema.columns))


@dataclass(frozen=True)
class Site:
    """Where models are tested: a table, and the rows of it that nothing was fitted on."""

    name: str
    cohort: Cohort
    test: Index


def evaluate(
    inputs: EvaluationInput,
    *,
    seed: int,
    threads: int,
    name: str = "held out",
    known: Sequence[Score] = (),
    told: Told = _untold,
) -> tuple[list[Score], str]:
    """Every way to train on the held-out part of home; and, where nothing can be measured, why.

    known: the scores of another set of the same run at the same place. Models that no synthetic row taught are theirs.
    """
    if why := _nothing_to_measure(inputs):
        return [], why
    here = Site(name, inputs.cohort, inputs.split.test)
    return evaluate_at(inputs, [here], seed=seed, threads=threads, known=known, told=told), ""


def evaluate_elsewhere(
    inputs: EvaluationInput,
    cohorts: Mapping[str, Cohort],
    held_out: HoldoutSplit,
    *,
    seed: int,
    threads: int,
    known: Sequence[Score] = (),
) -> dict[str, tuple[list[Score], str]]:
    """The same on other sites' patients: per site its scores, or why there are none.

    Of another site only its test persons are used, whom the same coins hold out there, so that its own models and those
    from elsewhere are measured on the same patients.
    """
    sites, why = [], {}
    for name, cohort in cohorts.items():
        test = held_out.split(cohort).test
        if need := inputs.kind.lacking(cohort.outcome.take(test)):
            why[name] = f"the test part of {name} needs {need}"
        else:
            sites.append(Site(name, cohort, test))
    scores = evaluate_at(inputs, sites, seed=seed, threads=threads, known=known) if sites else []
    return {name: ([score for score in scores if score.tested_on == name], why.get(name, "")) for name in cohorts}


def evaluate_at(
    inputs: EvaluationInput,
    sites: list[Site],
    *,
    seed: int,
    threads: int,
    known: Sequence[Score] = (),
    told: Told = _untold,
) -> list[Score]:
    """Scores of every way to train at home, at every site. Thresholds are chosen at home, on rows not tested on."""
    scores = [score for score in known if score.trained_on in WITHOUT_ROWS]
    done = {score.trained_on for score in scores}
    ways = [way for way in ways_to_train(inputs, seed=seed, threads=threads) if way.name not in done]
    for number, way in enumerate(ways):
        told(number, len(ways))
        scores += _scores_of(inputs, way, sites, seed)
    told(len(ways), len(ways))
    return scores


def _scores_of(inputs: EvaluationInput, way: Way, sites: list[Site], seed: int) -> Iterator[Score]:
    kind, labels = inputs.kind, SOFT if way.name == CONDENSED else ""
    try:
        model = way.fit()
    except ModelError as error:
        for site in sites:
            none = float("nan")
            yield Score(
                kind.measures[0],
                way.name,
                site.name,
                none,
                none,
                none,
                len(site.test),
                way.covered,
                way.rows,
                note=str(error),
                student=inputs.learner.name,
                labels=labels,
            )
        return
    apart = inputs.sample(inputs.split.choosing, CHOOSING, seed)
    rule = kind.rule(model.link, model.scores(way.codec.encode(apart.features)), apart.outcome)
    for site in sites:
        scores = model.scores(way.codec.encode(site.cohort.features.iloc[site.test]))
        real = kind.in_unit(site.cohort.outcome.take(site.test), inputs.unit)
        person = None if site.cohort.person is None else site.cohort.person[site.test]
        for measure, found in kind.measured(model.link, scores, real, rule).items():
            reach = interval(found, person)
            yield Score(
                measure,
                way.name,
                site.name,
                reach.value,
                reach.low,
                reach.high,
                len(real),
                way.covered,
                way.rows,
                rule.threshold,
                student=model.name,
                labels=labels,
            )


def _nothing_to_measure(inputs: EvaluationInput) -> str:
    """Why a release cannot be measured on patients; a run that has spent its budget must not fail for that."""
    if not len(inputs.split.test):
        return "nobody was held out, so nothing was measured on patients"
    if any(inputs.kind.lacking(inputs.cohort.outcome.take(part)) for part in (inputs.split.train, inputs.split.test)):
        return "too few rows of one class to measure on patients"
    return ""


def measured(
    inputs: EvaluationInput, *, seed: int, threads: int, must: bool, known: Sequence[Score] = (), told: Told = _untold
) -> tuple[list[Score], str]:
    """`evaluate`, where a failure is a note unless it `must` work: a budget that is spent is not lost for it."""
    try:
        return evaluate(inputs, seed=seed, threads=threads, known=known, told=told)
    except Exception as error:
        if must:
            raise
        return [], f"could not be measured on patients: {type(error).__name__}"


def interval_words(person: Any) -> str:
    return f"95%, from what each test {'row' if person is None else 'person'} adds (DeLong; infinitesimal jackknife)"
