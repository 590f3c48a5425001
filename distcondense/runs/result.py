"""`Result`: the condensed table in original units, what privacy it has, and how to hand it over.

A pickle or a copy of a result holds what may be released and nothing that was computed on patients: neither the run's
record (exact numbers of rows, scores) nor its identity (a digest of the data).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.codec import design_of
from distcondense.data.schema import Schema
from distcondense.errors import SettingsError
from distcondense.outcomes.base import WEIGHT, Kind, Labelled
from distcondense.privacy.accountant import advantage_with_earlier, unite, with_earlier
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import Privacy
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import label_frame, write_release


def table_of(features: pd.DataFrame, kind: Kind, labelled: Labelled) -> pd.DataFrame:
    """The condensed table: features, the outcome in the table's own labels, soft labels, weights."""
    frame = features.copy()
    kind.write(frame, labelled)
    frame[WEIGHT] = 1.0 if labelled.weight is None else labelled.weight
    return frame


def labelled_of(frame: pd.DataFrame, kind: Kind) -> Labelled:
    """The outcome, soft labels and weights of a condensed table."""
    return replace(kind.written(frame), weight=frame[WEIGHT].to_numpy(np.float64))


@dataclass(frozen=True)
class Result:
    """What `condense` gives back.

    `frame` has the features in original units and categories, the outcome in the table's own labels, soft labels where
    the kind of outcome has them (binary: `risk`) and `weight` (private: they add up to the noisy number of patients).
    Where a private run found no answer it has no rows; `privacy.answer` says why.
    """

    frame: pd.DataFrame
    schema: Schema  # of the features in `frame`
    kind: Kind  # of outcome
    privacy: Privacy
    raw: bool = False  # frame holds raw numbers, one column per category
    internal: dict[str, Any] = field(default_factory=dict, repr=False)  # run.json
    identity: dict[str, Any] = field(default_factory=dict, repr=False)
    earlier: tuple[Event, ...] = field(default=(), repr=False)  # what private runs before this one spent

    def __post_init__(self) -> None:
        label_frame(self.frame, self.privacy)

    def __getstate__(self) -> dict[str, Any]:
        """The release side only: pickles travel."""
        return {**self.__dict__, "internal": {}, "identity": {}}

    @property
    def record(self) -> dict[str, Any]:
        """run.json: computed on patients, for the custodian; an error where this result came out of a pickle."""
        if not self.internal:
            raise SettingsError(
                "result", "must have the record of its run", found="one that was pickled or copied, which holds the "
                "release side only", fix="use the result that dc.condense gave back, or its run folder",
            )  # fmt: skip
        return self.internal

    @property
    def outcome(self) -> tuple[str, ...]:
        """Names of the outcome's columns."""
        return self.kind.names

    def training_data(self) -> tuple[pd.DataFrame, Any, Floats]:
        """X, y, sample_weight for scikit-learn or lifelines; weights have mean 1.

        X is numeric, in original units, categories one-hot. Binary: y is 0/1 and a row with a soft label appears as a
        weighted pair; several classes: as one weighted row a class. Continuous: y is the expected value. Survival: y is
        a frame with the time and the event (0/1).
        """
        labelled = self._labelled()
        assert labelled.weight is not None
        mean = labelled.weight.mean() if len(labelled.weight) else 1.0
        return self.kind.training_data(self._features(), replace(labelled, weight=labelled.weight / mean))

    def soft_data(self) -> tuple[pd.DataFrame, Floats, Floats]:
        """X, soft labels, weights (in persons, as released) for models that take expectations as labels.

        Binary: probabilities of yes, for XGBoost and LightGBM. Several classes: (m, K) probabilities. Continuous:
        expected values. Better than weighted pairs there: a booster that subsamples rows would tear a pair apart.
        """
        labelled = self._labelled()
        if labelled.soft is None:
            raise SettingsError(
                "soft_data", "is for outcomes with soft labels", found=f"a {self.kind.name} outcome",
                fix="use training_data()",
            )  # fmt: skip
        assert labelled.weight is not None
        return self._features(), labelled.soft, labelled.weight

    def _labelled(self) -> Labelled:
        return labelled_of(self.frame, self.kind)

    def _features(self) -> pd.DataFrame:
        features = self.frame.drop(columns=[*self.outcome, *self.kind.own_columns(), WEIGHT])
        return features.astype(np.float64) if self.raw else design_of(features, self.schema)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run folder: `release/` to hand over, `internal/` for the custodian only."""
        self.record  # noqa: B018  (refused before a folder is made)
        folder = RunFolder(Path(path))
        folder.claim(self.identity, resume=not force and not folder.finished and folder.internal.exists(), force=force)
        self.write(folder)
        return folder.path

    def write(self, folder: RunFolder) -> None:
        """Fill a folder that is already this run's; run.json comes last and marks it finished."""
        if self.privacy.charged:
            self._bring_the_account(folder)
        folder.write_release(lambda room: write_release(room, self.frame, self.schema.to_toml(), self.privacy))
        folder.finish(self.internal)

    def _bring_the_account(self, folder: RunFolder) -> None:
        """The folder's ledger becomes this run's; what other runs spent, here or where it was made, stays counted."""
        own, there = self.privacy.events, read_events(folder.ledger)
        others = unite(self.earlier, folder.earlier_events(), there)
        if {event.run for event in there} != {event.run for event in own}:
            folder.replace_ledger(own)
        folder.account(others)
        assert self.privacy.delta is not None
        earlier = folder.earlier_events()
        both = with_earlier(own, earlier, self.privacy.delta)
        counted = replace(
            self.privacy, epsilon_with_earlier_runs=both,
            advantage_with_earlier_runs=advantage_with_earlier(own, earlier, both),
        )  # fmt: skip
        object.__setattr__(self, "privacy", counted)
        label_frame(self.frame, counted)
