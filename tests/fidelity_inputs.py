"""Homes for tests of the evaluation: a small cohort, a split, and condensed rows as the test wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from distcondense import Cohort, Schema
from distcondense.data.codec import Codec
from distcondense.data.features import check_features
from distcondense.data.persons import Split
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from tests.conftest import SMALL_TABLE, small_frame
from tests.evaluation_inputs import inputs_of

NONE = Privacy("none", "toy", None, None, "none", "none")


def split_of(rows: int, test: float = 0.4) -> Split:
    """The last rows are held out."""
    held = int(rows * test)
    return Split(np.arange(rows - held), np.empty(0, np.int64), np.arange(rows - held, rows))


def small_cohort(rows: int = 400, seed: int = 0, schema: Schema = SMALL_TABLE) -> Cohort:
    return Cohort.from_frame(small_frame(rows, seed), target="died", ignore=["months", "event"], schema=schema)


def home_of(
    cohort: Cohort,
    frame: pd.DataFrame | None = None,
    labelled: Labelled | None = None,
    *,
    split: Split | None = None,
    weight: Any = None,
) -> EvaluationInput:
    """Condensed rows as given; without any, the training rows themselves: a method that copies."""
    split = split_of(len(cohort)) if split is None else split
    if frame is None:
        frame, labelled = cohort.features.iloc[split.train], Labelled(cohort.outcome.take(split.train))
    if labelled is None:
        labelled = Labelled(cohort.outcome.take(np.resize(split.train, len(frame))))
    if weight is not None:
        labelled = Labelled(labelled.outcome, labelled.soft, np.asarray(weight, float))
    codec = Codec.fit(cohort.features.iloc[split.train], cohort.schema)
    checked = check_features(frame, cohort.schema)
    return inputs_of(cohort, split, checked, labelled, NONE, codec=codec)
