"""What students are taught and tested on: real rows, condensed rows, random real rows; and how an exam is marked.

The rooms that train models (recipients, subgroups, sites, imbalance) share it, so that their numbers can be compared.
Everything is bounded. Rows that decisions are settled on are neither trained nor tested on: the validation part, or
where a run has none a tenth of the training rows, persons together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.outcome import Outcome
from distcondense.errors import UserError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, Score, interval
from distcondense.evaluation.utility.students import MOST_ROWS, Student
from distcondense.models.base import Model
from distcondense.outcomes.base import Kind, Rule
from distcondense.outcomes.measures import Measured, title

HELD_OUT = "held out"
CONDENSED_ROWS = "condensed rows"
TESTED = 20_000  # rows of an exam, at most
CHOOSING = 5_000  # rows that decisions are settled on, at most
SET_APART = 0.1  # of the training rows are for that, where a run has no validation part
LOWER = "lower is better"
DIRECTIONS = {
    "brier": LOWER,
    "integrated_brier": LOWER,
    "rmse": LOWER,
    "mae": LOWER,
    "calibration_slope": "1: calibrated",
    "calibration": "1: as observed",
}
CHANCE = {"auroc": 0.5, "macro_auroc": 0.5, "c_index": 0.5, "r2": 0.0}  # of a model that knows nothing


@dataclass(frozen=True, repr=False)
class Drawn:
    """Rows that were drawn to teach or to test, encoded once for each codec."""

    name: str
    outcome: Outcome
    features: pd.DataFrame | None = None  # None: they are encoded already, for one codec
    person: Index | None = None
    of: int = 0  # rows that there are
    encoded: dict[int, Matrix] = field(default_factory=dict)  # by codec

    def __len__(self) -> int:
        return len(self.outcome)

    def rows(self, codec: Codec) -> Matrix:
        if id(codec) not in self.encoded:
            assert self.features is not None
            self.encoded[id(codec)] = codec.encode(self.features)
        return self.encoded[id(codec)]

    @classmethod
    def of_sample(cls, name: str, sample: Sample) -> Drawn:
        return cls(name, sample.outcome, sample.features, sample.person, sample.of)


@dataclass(frozen=True, repr=False)
class Given:
    """What a model is trained on."""

    trained_on: str  # a key of score.WAYS
    codec: Codec
    rows: Matrix
    outcome: Outcome
    weight: Floats | None = None
    soft: Floats | None = None
    labels: tuple[str, ...] = ("",)  # PLAIN, SOFT, or both where the manual asks for nothing else
    covered: bool = False
    group: str = ""


@dataclass(frozen=True, repr=False)
class Lessons:
    """A home's rows, drawn once."""

    inputs: EvaluationInput
    every: Codec  # of all columns: of models of real rows
    train: Drawn
    choosing: Drawn
    test: Drawn
    seed: int

    @classmethod
    def of(cls, inputs: EvaluationInput, *, seed: int, tested: int) -> Lessons:
        """With at most so many rows to test on."""
        train, choosing = _apart(inputs, seed)
        return cls(
            inputs,
            _all_columns(inputs),
            Drawn.of_sample("", inputs.sample(train, MOST_ROWS, seed)),
            Drawn.of_sample("", inputs.sample(choosing, CHOOSING, seed)),
            Drawn.of_sample(HELD_OUT, inputs.sample(inputs.split.test, tested, seed)),
            seed,
        )

    def full(self, *, condensed_columns: bool = False) -> Given:
        """Real training rows: all columns, or those that condensed rows have."""
        codec = self.inputs.codec if condensed_columns else self.every
        return Given(FULL, codec, self.train.rows(codec), self.train.outcome)

    def condensed(self, student: Student) -> Iterator[Given]:
        """As a naive recipient has them, and as the manual says, which may be the same."""
        inputs = self.inputs
        plain = Given(CONDENSED, inputs.codec, inputs.rows, inputs.made, labels=(PLAIN,), covered=True)
        weight, soft = inputs.labelled.weight, inputs.labelled.soft if student.soft else None
        if weight is None and soft is None:
            yield replace(plain, labels=(PLAIN, SOFT))
            return
        yield plain
        yield replace(plain, weight=weight, soft=soft, labels=(SOFT,))

    def random(self) -> Given:
        """As many real rows, of the same balance."""
        rng = np.random.default_rng([self.seed, 0x4EA1])
        chosen = self.inputs.kind.alike(self.train.outcome, self.inputs.labelled.outcome, rng)
        rows = self.train.rows(self.inputs.codec)[chosen]
        return Given(RANDOM, self.inputs.codec, rows, self.train.outcome.take(chosen))

    def condensed_exam(self) -> Drawn:
        """The condensed rows as rows to test on, each counted once."""
        made = self.inputs.made
        return Drawn(CONDENSED_ROWS, made, of=len(made), encoded={id(self.inputs.codec): self.inputs.rows})

    def notes(self) -> list[str]:
        """How many rows were used."""
        found = [f"tested on {some(len(self.test), self.test.of)} held-out rows"]
        apart = "training rows that no model was taught"
        if len(self.inputs.split.validation):
            apart = "validation rows"
        elif self.choosing.of == self.train.of:
            apart = "of the very rows that models were taught: there are too few to set some apart"
        found.append(f"decisions settled on {some(len(self.choosing), self.choosing.of)} {apart}")
        found.append(f"models of real rows were taught {some(len(self.train), self.train.of)} training rows at most")
        if self.every is not self.inputs.codec:
            seen, all_of = len(self.inputs.codec.columns), len(self.every.columns)
            found.append(f"models of real rows saw all {all_of} columns; the condensed rows have {seen} of them")
        return found


def why_not(inputs: EvaluationInput) -> str:
    """Why nothing can be measured; empty where it can."""
    if not len(inputs.rows):
        return "the run has no condensed rows, so nothing was trained on them"
    if not len(inputs.split.test):
        return "nobody was held out, so nothing was measured on patients"
    if any(inputs.kind.lacking(inputs.cohort.outcome.take(part)) for part in (inputs.split.train, inputs.split.test)):
        return "too few rows of one class to measure on patients"
    return ""


@dataclass(frozen=True, repr=False)
class Trained:
    """A student of some rows, with how its scores become decisions."""

    student: Student
    given: Given
    model: Model | None = None  # None: it could not learn
    rule: Rule | None = None
    why: str = ""  # it could not

    def in_exam(self, exam: Drawn) -> Iterator[Score]:
        """Every measure; where there is no model, why."""
        for labels in self.given.labels:
            for measure, found in self.measured(exam).items():
                yield replace(self.score(measure, found, exam), labels=labels)

    def measured(self, exam: Drawn) -> Mapping[str, Measured]:
        kind: Kind = exam.outcome.kind
        if self.model is None or kind.lacking(exam.outcome):
            return {kind.measures[0]: Measured(float("nan"))}
        return kind.measured(
            self.model.link, self.model.scores(exam.rows(self.given.codec)), exam.outcome, self.rule or Rule()
        )

    def score(self, measure: str, found: Measured, exam: Drawn) -> Score:
        reach = interval(found, exam.person)
        note = self.why or ("" if np.isfinite(reach.value) else "not defined on these rows")
        given, rows = self.given, min(len(self.given.rows), self.student.most)
        return Score(
            measure,
            given.trained_on,
            exam.name,
            reach.value,
            reach.low,
            reach.high,
            len(exam),
            given.covered,
            rows,
            None if self.rule is None else self.rule.threshold,
            note,
            self.student.name,
            given.labels[-1],
            given.group,
            interval_words(found, exam.person),
        )


def trained(
    lessons: Lessons,
    student: Student,
    given: Given,
    *,
    threads: int,
    choosing: Drawn | None = None,
    rule: Rule | None = None,
) -> Trained:
    """A student of these rows. Decisions are settled on the home's rows for that, unless others or a rule are given."""
    kind, apart = lessons.inputs.kind, lessons.choosing if choosing is None else choosing
    try:
        model = student.fit(
            given.rows, given.outcome, weight=given.weight, soft=given.soft, seed=lessons.seed, threads=threads
        )
        if rule is None:
            rule = kind.rule(model.link, model.scores(apart.rows(given.codec)), apart.outcome)
        return Trained(student, given, model, rule)
    except Exception as error:  # of whatever library: its words may hold values, so they are ours or none
        why = str(error) if isinstance(error, UserError) else f"could not be fitted: {type(error).__name__}"
        return Trained(student, given, why=why)


def interval_words(found: Measured, person: Index | None) -> str:
    """How an interval was made."""
    if found.influence is None:
        return ""
    return f"influence of each {'row' if person is None else 'person'}{', Wilson' if found.share else ''}"


def titles(measures: tuple[str, ...]) -> dict[str, str]:
    """What people read of measures, with their direction."""
    return {measure: f"{title(measure)} ({DIRECTIONS.get(measure, 'higher is better')})" for measure in measures}


def some(rows: int, of: int) -> str:
    """Rows in words, and of how many they were drawn."""
    return f"{rows:,}" if rows == of else f"a random {rows:,} of {of:,}"


def _apart(inputs: EvaluationInput, seed: int) -> tuple[Index, Index]:
    """Rows to teach and rows to settle decisions on."""
    split = inputs.split
    if len(split.validation):
        return split.train, split.validation
    person = split.train if inputs.cohort.person is None else inputs.cohort.person[split.train]
    who = np.unique(person)
    drawn = np.random.default_rng([seed, 0xA9A7]).permutation(who)[: int(np.ceil(SET_APART * len(who)))]
    aside = np.isin(person, drawn)
    parts = split.train[~aside], split.train[aside]
    if any(inputs.kind.lacking(inputs.cohort.outcome.take(part)) for part in parts):
        return split.train, split.train  # too few rows to set any apart
    return parts


def _all_columns(inputs: EvaluationInput) -> Codec:
    """A codec of every column, scaled by the schema; the condensed rows' own where that has all of them."""
    left_out = set(inputs.cohort.schema.names) - {*inputs.codec.columns, *inputs.codec.dropped}
    if not left_out:
        return inputs.codec
    return Codec.public(inputs.cohort.schema.described(inputs.schema.columns))
