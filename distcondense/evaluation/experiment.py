"""What is compared with what: models of real, condensed and random real rows, tested on the same held-out patients.

Every section that trains models goes this one way (first scores, utility, subgroups, sites, imbalance, studies), so
that a number has one value wherever it stands: an `Arm` (what is trained on) and a learner make a `TrainedModel`,
which gives `Score`s on an `EvaluationSet`. Numbers that are there already (`Experiment.known`) are kept, not made
again. Rows of every use are bounded, drawn by chance where there are more. What turns scores into decisions is settled
on the validation rows, or on training rows where a run has none; never on rows that are tested on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.outcome import Outcome
from distcondense.errors import UserError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.models import most_rows, recipient
from distcondense.evaluation.score import CONDENSED, FULL, HELD_OUT, PLAIN, RANDOM, REFERENCE, SOFT, Score, interval
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.base import Kind, Rule
from distcondense.outcomes.measures import Measured, title
from distcondense.runs.figures import Series

NOT_DEFINED = "not defined on these rows"  # the note of a measure of nobody: no PPV where nobody was flagged
CONDENSED_ROWS = "condensed rows"
TRAINED = 100_000  # real rows that a model is fitted to, at most; some models take fewer (evaluation/models.py)
CHOOSING = 20_000  # rows that decisions are settled on, at most
TESTED = 100_000  # rows that a model is tested on, at most
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
class Arm:
    """One arm of the experiment: the rows that a model is trained on, and what scores say of them.

    Parameters
    ----------
    trained_on
        A key of `score.TRAINED_ON`.
    codec
        How rows are encoded, also those that the model is tested on.
    rows, outcome
        (m, d) float32 encoded rows and their outcome; no row where there is a `model` already.
    weight, soft
        (m,) weights; (m,) or (m, S) soft labels.
    validation
        Rows and outcome that say when enough is learned, for learners that ask.
    labels
        `PLAIN` or `SOFT`; both where they are the same; "" for real rows.
    covered
        The run's guarantee covers a model of these rows.
    group
        What was done to the rows, or whose they are, where that is not the usual.
    model, fitted_to
        A model that was fitted before, and to how many rows.
    """

    trained_on: str
    codec: Codec
    rows: Matrix
    outcome: Outcome
    weight: Floats | None = None
    soft: Floats | None = None
    validation: tuple[Matrix, Outcome] | None = None
    labels: tuple[str, ...] = ("",)
    covered: bool = False
    group: str = ""
    model: Model | None = None
    fitted_to: int = 0


@dataclass(frozen=True, repr=False)
class EvaluationSet:
    """Rows that models are tested on, or that decisions are settled on; encoded once for each codec."""

    name: str
    sample: Sample
    encoded: dict[int, Matrix] = field(default_factory=dict)  # by the codec's id

    def __len__(self) -> int:
        return len(self.sample.outcome)

    @property
    def outcome(self) -> Outcome:
        return self.sample.outcome

    @property
    def person(self) -> Index | None:
        return self.sample.person

    def take(self, rows: Index, codec: Codec) -> EvaluationSet:
        """Some of its rows, encoded."""
        sample, person = self.sample, None if self.person is None else self.person[rows]
        some = Sample(sample.features.iloc[rows], sample.outcome.take(rows), person, len(rows))
        return EvaluationSet(self.name, some, {id(codec): self.rows(codec)[rows]})

    def rows(self, codec: Codec) -> Matrix:
        """(n, d) float32."""
        if id(codec) not in self.encoded:
            self.encoded[id(codec)] = codec.encode(self.sample.features)
        return self.encoded[id(codec)]


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A model of one arm, with the rule that makes decisions of its scores; or why there is none."""

    name: str  # the learner's
    arm: Arm
    fitted_to: int  # rows
    model: Model | None = None
    rule: Rule | None = None
    why: str = ""

    def scores(self, test: EvaluationSet) -> list[Score]:
        """Every measure of the kind of outcome; where nothing can be measured, the main one with a note."""
        return [
            replace(self.score(measure, value, test), labels=labels)
            for measure, value in self.measured(test).items()
            for labels in self.arm.labels
        ]

    def measured(self, test: EvaluationSet) -> Mapping[str, Measured]:
        """Measure → value, and what each row adds to it."""
        kind: Kind = test.outcome.kind
        if self.model is None or kind.lacking(test.outcome):
            return {kind.measures[0]: Measured(float("nan"))}
        answers = self.model.scores(test.rows(self.arm.codec))
        return kind.measured(self.model.link, answers, test.outcome, self.rule or Rule())

    def score(self, measure: str, measured: Measured, test: EvaluationSet) -> Score:
        """A measured number with its interval and everything else that a score says."""
        reach, person = interval(measured, test.person), test.person
        how = f"influence of each {'row' if person is None else 'person'}{', Wilson' if measured.share else ''}"
        return Score(
            measure,
            self.arm.trained_on,
            test.name,
            reach.value,
            reach.low,
            reach.high,
            len(test),
            self.arm.covered,
            self.fitted_to,
            None if self.rule is None else self.rule.threshold,
            note=self.why or ("" if np.isfinite(reach.value) else NOT_DEFINED),
            student=self.name,
            labels=self.arm.labels[-1],
            group=self.arm.group,
            interval="" if measured.influence is None else how,
        )


@dataclass(frozen=True, repr=False)
class Experiment:
    """The arms of one condensed set and the rows they are tested on, each drawn once.

    Parameters
    ----------
    inputs
        The patients' table, who of them was for what, and the condensed rows.
    seed, threads
        Of everything that is drawn and fitted.
    known
        Scores that are there already: a model is not trained again for a number among them.
    """

    inputs: EvaluationInput
    seed: int
    threads: int
    known: Sequence[Score] = ()

    @cached_property
    def all_columns(self) -> Codec:
        """Of models of real rows: the condensed rows' own codec, or of every column where they have fewer."""
        inputs = self.inputs
        if set(inputs.cohort.schema.names) <= {*inputs.codec.columns, *inputs.codec.dropped}:
            return inputs.codec
        return Codec.public(inputs.cohort.schema.described(inputs.schema.columns))

    @cached_property
    def train(self) -> Sample:
        return self.inputs.sample(self.inputs.split.train, TRAINED, self.seed)

    @cached_property
    def choosing(self) -> EvaluationSet:
        """Rows that decisions are settled on."""
        return EvaluationSet("", self.inputs.sample(self.inputs.split.choosing, CHOOSING, self.seed))

    @cached_property
    def test(self) -> EvaluationSet:
        """Held-out patients."""
        return EvaluationSet(HELD_OUT, self.inputs.sample(self.inputs.split.test, TESTED, self.seed))

    @cached_property
    def condensed_rows(self) -> EvaluationSet:
        """The condensed rows as rows to test on, each counted once."""
        inputs = self.inputs
        sample = Sample(inputs.frame, inputs.made, None, len(inputs.rows))
        return EvaluationSet(CONDENSED_ROWS, sample, {id(inputs.codec): inputs.rows})

    # -- arms ----------------------------------------------------------------------------------------------------------

    def full(self, codec: Codec | None = None) -> Arm:
        """Real training rows, with all columns unless a codec is given; the run's own model of them if it left one."""
        codec = self.all_columns if codec is None else codec
        if self.inputs.full is not None:
            return self._fitted(FULL, codec, self.inputs.full)
        apart = (self.choosing.rows(codec), self.choosing.outcome) if len(self.inputs.split.validation) else None
        return Arm(FULL, codec, codec.encode(self.train.features), self.train.outcome, validation=apart)

    def reference(self) -> Arm:
        """The model that the run fitted under its guarantee."""
        assert self.inputs.reference is not None
        return replace(self._fitted(REFERENCE, self.inputs.codec, self.inputs.reference), covered=True)

    def condensed(self, labels: str = SOFT) -> Arm:
        """The condensed rows: as a naive recipient has them (`PLAIN`), or with soft labels and weights (`SOFT`)."""
        inputs = self.inputs
        arm = Arm(CONDENSED, inputs.codec, inputs.rows, inputs.made, labels=(labels,), covered=True)
        if labels == PLAIN:
            return arm
        return replace(arm, weight=inputs.labelled.weight, soft=inputs.labelled.soft)

    def condensed_both(self, learner: Learner) -> list[Arm]:
        """Plain and soft; one arm of both where this learner makes no difference between them."""
        soft = self.condensed(SOFT)
        if soft.weight is None and (soft.soft is None or not recipient(learner).soft):
            return [replace(soft, soft=None, labels=(PLAIN, SOFT))]
        return [self.condensed(PLAIN), soft]

    def random(self) -> Arm:
        """As many real rows as condensed ones, of the same balance."""
        inputs, train = self.inputs, self.train
        rng = np.random.default_rng([self.seed, 0x4EA1])
        chosen = inputs.kind.alike(train.outcome, inputs.labelled.outcome, rng)
        return Arm(RANDOM, inputs.codec, inputs.codec.encode(train.features.iloc[chosen]), train.outcome.take(chosen))

    def _fitted(self, trained_on: str, codec: Codec, model: Model) -> Arm:
        nobody = np.empty(0, np.int64)
        none = np.empty((0, len(codec.names)), np.float32)
        rows = len(self.inputs.split.train)
        return Arm(trained_on, codec, none, self.train.outcome.take(nobody), model=model, fitted_to=rows)

    # -- models and their scores ---------------------------------------------------------------------------------------

    def trained(
        self, arm: Arm, learner: Learner, *, choosing: EvaluationSet | None = None, rule: Rule | None = None
    ) -> TrainedModel:
        """The learner's model of an arm; decisions are settled on `choosing`, or by a rule that is given."""
        student, apart = recipient(learner), choosing or self.choosing
        name = learner.name if arm.model is None else arm.model.name
        rows = arm.fitted_to or min(len(arm.rows), most_rows(learner.name))
        try:
            model = arm.model or student.fit(
                arm.rows,
                arm.outcome,
                weight=arm.weight,
                soft=arm.soft,
                validation=arm.validation,
                seed=self.seed,
                threads=self.threads,
            )
            if rule is None:
                rule = self.inputs.kind.rule(model.link, model.scores(apart.rows(arm.codec)), apart.outcome)
            return TrainedModel(name, arm, rows, model, rule)
        except Exception as error:  # of whatever library: its words may hold values, so they are ours or none
            why = str(error) if isinstance(error, UserError) else f"could not be fitted: {type(error).__name__}"
            return TrainedModel(name, arm, rows, why=why)

    def scores(self, arm: Arm, learner: Learner, tests: Iterable[EvaluationSet]) -> list[Score]:
        """Every measure of the learner's model of an arm on every test set; those that are known are kept."""
        scores: list[Score] = []
        model = None
        name = learner.name if arm.model is None else arm.model.name
        for test in tests:
            kept = self._known.get((name, arm.trained_on, arm.labels[-1], test.name, arm.group))
            if kept is None:
                model = model or self.trained(arm, learner)
                kept = model.scores(test)
            else:
                kept = [replace(score, labels=labels) for score in kept for labels in arm.labels]
            scores += kept
        return scores

    @cached_property
    def _known(self) -> dict[tuple[str, ...], list[Score]]:
        scores: dict[tuple[str, ...], list[Score]] = {}
        for score in self.known:
            key = (score.student, score.trained_on, score.labels, score.tested_on, score.group)
            scores.setdefault(key, []).append(score)
        return scores

    def notes(self) -> list[str]:
        """How many rows were used for what."""
        inputs, apart, train = self.inputs, self.choosing.sample, self.train
        of = "validation rows" if len(inputs.split.validation) else "training rows: this run has no validation rows"
        notes = [
            f"tested on {some_rows(self.test.sample)} held-out rows",
            f"decisions settled on {some_rows(apart)} {of}",
            f"models of real rows were trained on {some_rows(train)} training rows at most",
        ]
        if self.all_columns is not inputs.codec:
            seen, columns = len(inputs.codec.columns), len(self.all_columns.columns)
            notes.append(f"models of real rows saw all {columns} columns; the condensed rows have {seen} of them")
        return notes


def why_not(inputs: EvaluationInput, *, without_rows: bool = False) -> str:
    """Why nothing can be measured; empty where it can. A run that has no condensed rows may still have a reference."""
    if not len(inputs.rows) and not without_rows:
        return "the run has no condensed rows, so nothing was trained on them"
    if not len(inputs.split.test):
        return "nobody was held out, so nothing was measured on patients"
    if any(inputs.kind.lacking(inputs.cohort.outcome.take(part)) for part in (inputs.split.train, inputs.split.test)):
        return "too few rows of one class to measure on patients"
    return ""


# -- words and dots ----------------------------------------------------------------------------------------------------


def titles(measures: Iterable[str]) -> dict[str, str]:
    """What people read of measures, with their direction."""
    return {measure: f"{title(measure)} ({DIRECTIONS.get(measure, 'higher is better')})" for measure in measures}


def some_rows(sample: Sample) -> str:
    """Rows in words, and of how many they were drawn."""
    return f"{len(sample):,}" if len(sample) == sample.of else f"a random {len(sample):,} of {sample.of:,}"


def dots(name: str, scores: Mapping[str, Score]) -> Series:
    """Scores by where they stand on the x axis, as one series of a figure."""
    shown = scores.values()
    return Series(
        name, tuple(scores), tuple(s.value for s in shown), tuple(s.low for s in shown), tuple(s.high for s in shown)
    )
