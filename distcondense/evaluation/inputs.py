"""`Home`: everything an evaluation starts from: the patients' table, who of them was for what, and the condensed rows.

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
from distcondense.methods.base import Condensed
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.base import Kind, Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result, labelled_of


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
    """The table that was condensed, which of its rows were for what, and the condensed rows as models see them."""

    cohort: Cohort
    split: Split
    learner: Learner
    codec: Codec
    frame: pd.DataFrame  # (m, columns) the condensed features as released
    schema: Schema  # of the frame
    rows: Matrix  # (m, d) condensed, encoded; m = 0 where a private run had no answer
    labelled: Labelled
    privacy: Privacy
    unit: float = 1.0
    raw: bool = False  # the frame holds encoded columns, not legal values
    full: Model | None = None  # the model of all training rows, where there is one already
    reference: Model | None = None  # covered by the guarantee: a way of its own
    others: tuple[tuple[Learner, Model | None], ...] = ()  # further references' students, and their models of all data

    @property
    def kind(self) -> Kind:
        kind: Kind = self.cohort.outcome.kind
        return kind

    @property
    def made(self) -> Outcome:
        """The condensed rows' outcome, in the unit that models see."""
        return self.kind.in_unit(self.labelled.outcome, self.unit)

    def by_reference(self) -> dict[str, EvaluationInput]:
        """The same with the student of each further reference."""
        return {
            learner.name: replace(self, learner=learner, full=full, reference=None, others=())
            for learner, full in self.others
        }

    def sample(self, part: Index, most: int, seed: int) -> Sample:
        """At most so many rows of a part of the split (`home.split.train`, …), by chance where there are more."""
        chosen = part
        if len(part) > most:
            chosen = np.sort(np.random.default_rng([seed, 0x5A3E]).choice(part, most, replace=False))
        person = None if self.cohort.person is None else self.cohort.person[chosen]
        outcome = self.kind.in_unit(self.cohort.outcome.take(chosen), self.unit)
        return Sample(self.cohort.features.iloc[chosen], outcome, person, len(part))

    @classmethod
    def of(cls, cohort: Cohort, condensed: Condensed) -> EvaluationInput:
        """As a method left it."""
        split = condensed.splitting.split(cohort)
        codec = condensed.codec or _codec(cohort, split, condensed.schema)
        rows = codec.encode(condensed.frame) if condensed.encoded is None else condensed.encoded
        own, covered = condensed.reference, condensed.reference_covered
        return cls(
            cohort,
            split,
            condensed.learner or cohort.outcome.kind.learner(),
            codec,
            condensed.frame,
            condensed.schema,
            rows,
            _telling(condensed.labelled),
            condensed.privacy,
            condensed.unit,
            condensed.raw,
            full=None if covered else own,
            reference=own if covered else None,
            others=condensed.others,
        )

    @classmethod
    def of_result(cls, cohort: Cohort, result: Result) -> EvaluationInput:
        """As a finished run's table and record say."""
        record = result.record
        split = split_from(record["splitting"]).split(cohort)
        public = record.get("scaling") == "public"
        codec = Codec.public(result.schema) if public else _codec(cohort, split, cohort.schema)
        wanted = list(codec.names) if result.raw else list(result.schema.names)
        if absent := [name for name in wanted if name not in result.frame.columns]:
            raise RunFolderError(
                "condensed table",
                "must have the columns that its schema names",
                found=f"{len(absent)} missing",
                fix="restore release/ from a backup, or make the run again",
            )
        frame = result.frame[wanted]
        if result.raw:
            rows = ((frame.to_numpy() - codec.centre) / codec.scale).astype(np.float32)
        else:
            frame = check_features(frame, result.schema)  # dates are numbers again
            rows = codec.encode(frame)
        labelled = labelled_of(result.frame, result.kind)
        labelled = replace(
            labelled,
            soft=labelled.soft if record["soft_labels"] else None,
            weight=labelled.weight if record["weighted"] else None,
        )
        return cls(
            cohort,
            split,
            cohort.outcome.kind.learner(record["student"]),
            codec,
            frame,
            result.schema,
            rows,
            _telling(labelled),
            result.privacy,
            record["unit"],
            result.raw,
        )


def _telling(labelled: Labelled) -> Labelled:
    """Without weights where all are the same: they would say nothing, and only make a model's penalty weaker."""
    weight = labelled.weight
    same = weight is not None and len(weight) > 0 and bool(np.all(weight == weight[0]))
    return replace(labelled, weight=None) if same else labelled


def _codec(cohort: Cohort, split: Split, schema: Schema) -> Codec:
    return Codec.fit(cohort.features.iloc[split.train], schema)
