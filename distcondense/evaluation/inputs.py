"""`EvaluationInput`: what an evaluation starts from: the patients' table, who was for what, and the condensed rows.

It can be made of what a method left, or again from a finished run's folder and the table, so that another measure may
be taken later without condensing again: a private run is not repeated (or paid for) because somebody wants one more
number. What is computed from it is computed on patients: it belongs in `internal/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from distcondense.arrays import Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.outcome import Outcome
from distcondense.data.persons import Split, split_from
from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.base import Kind, Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result, RunDetails, labelled_of


@dataclass(frozen=True, repr=False)
class Sample:
    """Some of the real rows: all of a part of the split, or a random choice where there are too many."""

    features: pd.DataFrame  # in original units
    outcome: Outcome  # in the run's unit of time
    person: Index | None
    of: int  # rows that there are

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True, repr=False)
class EvaluationInput:
    """The table that was condensed, which of its rows were for what, and the condensed set as models see it.

    Made by `from_result`: the set's `details` are then complete, with codec, encoded rows and learner.
    """

    cohort: Cohort
    split: Split
    result: Result

    @classmethod
    def from_result(cls, cohort: Cohort, result: Result) -> EvaluationInput:
        """A condensed set on its table: as its method left it, or as a finished run's table and record say."""
        details = result.details
        if details is None:
            split = split_from(result.record["splitting"]).split(cohort)
            details = _recorded_details(cohort, split, result)
        else:
            split = details.splitting.split(cohort)
        codec = details.codec or Codec.fit(cohort.features.iloc[split.train], result.schema)
        details = replace(
            details,
            labelled=_telling(details.labelled),
            learner=details.learner or cohort.outcome.kind.learner(),
            codec=codec,
            encoded=codec.encode(details.features) if details.encoded is None else details.encoded,
        )
        return cls(cohort, split, replace(result, details=details))

    @property
    def details(self) -> RunDetails:
        assert self.result.details is not None
        return self.result.details

    @property
    def kind(self) -> Kind:
        kind: Kind = self.cohort.outcome.kind
        return kind

    @property
    def privacy(self) -> Privacy:
        return self.result.privacy

    @property
    def raw(self) -> bool:
        """Whether the frame holds encoded columns, not legal values."""
        return self.result.raw

    @property
    def schema(self) -> Schema:
        """Of the frame."""
        return self.result.schema

    @property
    def frame(self) -> pd.DataFrame:
        """(m, columns) the condensed features as released."""
        return self.details.features

    @property
    def rows(self) -> Matrix:
        """(m, d) condensed, encoded; m = 0 where a private run had no answer."""
        assert self.details.encoded is not None
        return self.details.encoded

    @property
    def codec(self) -> Codec:
        """Of the encoded rows."""
        assert self.details.codec is not None
        return self.details.codec

    @property
    def labelled(self) -> Labelled:
        """The condensed rows' outcome, soft labels and weights."""
        return self.details.labelled

    @property
    def made(self) -> Outcome:
        """The condensed rows' outcome, in the unit that models see."""
        return self.kind.in_unit(self.labelled.outcome, self.unit)

    @property
    def unit(self) -> float:
        return self.details.unit

    @property
    def learner(self) -> Learner:
        """What students are."""
        assert self.details.learner is not None
        return self.details.learner

    @property
    def full(self) -> Model | None:
        """The model of all training rows, where there is one already."""
        return None if self.details.reference_covered else self.details.reference

    @property
    def reference(self) -> Model | None:
        """The model that was condensed against, where the guarantee covers it."""
        return self.details.reference if self.details.reference_covered else None

    @property
    def others(self) -> tuple[tuple[Learner, Model | None], ...]:
        """Further references' learners, and their models of all training rows."""
        return self.details.others

    def by_reference(self) -> dict[str, EvaluationInput]:
        """The same with the student of each further reference."""
        inputs = {}
        for learner, full in self.others:
            result = self.result.with_details(learner=learner, reference=full, reference_covered=False, others=())
            inputs[learner.name] = replace(self, result=result)
        return inputs

    def sample(self, part: Index, most: int, seed: int) -> Sample:
        """At most so many rows of a part of the split (`inputs.split.train`, …), by chance where there are more."""
        chosen = part
        if len(part) > most:
            chosen = np.sort(np.random.default_rng([seed, 0x5A3E]).choice(part, most, replace=False))
        person = None if self.cohort.person is None else self.cohort.person[chosen]
        outcome = self.kind.in_unit(self.cohort.outcome.take(chosen), self.unit)
        return Sample(self.cohort.features.iloc[chosen], outcome, person, len(part))


def _recorded_details(cohort: Cohort, split: Split, result: Result) -> RunDetails:
    """Of a finished run: its rows out of the released table, the rest out of its record."""
    record = result.record
    public = record.get("scaling") == "public"
    schema = result.schema if public else cohort.schema
    codec = Codec.public(schema) if public else Codec.fit(cohort.features.iloc[split.train], schema)
    wanted = list(codec.names) if result.raw else list(result.schema.names)
    if absent := [name for name in wanted if name not in result.frame.columns]:
        raise RunFolderError(
            "condensed table",
            "must have the columns that its schema names",
            found=f"{len(absent)} missing",
            fix="restore release/ from a backup, or make the run again",
        )
    features, encoded = result.frame[wanted], None
    if result.raw:
        encoded = ((features.to_numpy() - codec.centre) / codec.scale).astype(np.float32)
    else:
        features = check_features(features, result.schema)  # dates are numbers again
    labelled = labelled_of(result.frame, result.kind)
    labelled = replace(
        labelled,
        soft=labelled.soft if record["soft_labels"] else None,
        weight=labelled.weight if record["weighted"] else None,
    )
    learner = cohort.outcome.kind.learner(record["student"])
    splitting = split_from(record["splitting"])
    return RunDetails(features, labelled, splitting, codec=codec, encoded=encoded, learner=learner, unit=record["unit"])


def _telling(labelled: Labelled) -> Labelled:
    """Without weights where all are the same: they would say nothing, and only make a model's penalty weaker."""
    weight = labelled.weight
    same = weight is not None and len(weight) > 0 and bool(np.all(weight == weight[0]))
    return replace(labelled, weight=None) if same else labelled
