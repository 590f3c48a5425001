"""Runs that leak everything, and runs that leak nothing, for tests of attacks that must tell them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense import Cohort
from distcondense.data.persons import Split
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.leaks import decide, in_words
from distcondense.evaluation.section import Section
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result
from tests.conftest import SMALL_TABLE, small_frame

NONE = Privacy("none", "toy", None, None, "none", "none")


def said(section: Section) -> str:
    """What a page says of an attack that stands there alone."""
    return " ".join(in_words(section, decide([section])))


class Kept:
    """A splitting that keeps a share of the rows for training, by a seed of its own."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self.seed = share, seed

    def split(self, cohort: Cohort) -> Split:
        inside = np.random.default_rng([self.seed, 0x1EA1]).random(len(cohort)) < self.share
        return Split(np.flatnonzero(inside), np.empty(0, np.int64), np.flatnonzero(~inside))


def cohort_of(rows: int, *, seed: int = 0, survival: bool = False) -> Cohort:
    frame = small_frame(rows, seed)
    if survival:
        return Cohort.from_frame(frame, time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    return Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_TABLE)


def condensed_of(cohort: Cohort, splitting: Any, rows: Any, source: Cohort, privacy: Privacy = NONE) -> Result:
    """The source's rows as they are."""
    return Result.from_rows(
        source.features.iloc[rows].reset_index(drop=True),
        cohort.schema,
        Labelled(source.outcome.take(rows)),
        privacy,
        splitting,
    )


def memorised(cohort: Cohort, *, seed: int = 0, share: float = 0.5, privacy: Privacy = NONE) -> Result:
    """The training rows are handed over."""
    splitting = Kept(share, seed)
    return condensed_of(cohort, splitting, splitting.split(cohort).train, cohort, privacy)


def independent(cohort: Cohort, source: Cohort, *, seed: int = 0, privacy: Privacy = NONE) -> Result:
    """Rows of other people of the same population: nothing of this table is in them."""
    rows = np.random.default_rng([seed, 0x0DD]).permutation(len(source))[: len(cohort) // 2]
    return condensed_of(cohort, Kept(0.5, seed), rows, source, privacy)


def home_that_memorised(rows: int = 600, **how: Any) -> EvaluationInput:
    cohort = cohort_of(rows)
    return EvaluationInput.from_result(cohort, memorised(cohort, **how))


def home_that_knows_nothing(rows: int = 600, *, seed: int = 0, privacy: Privacy = NONE) -> EvaluationInput:
    cohort = cohort_of(rows)
    return EvaluationInput.from_result(
        cohort, independent(cohort, cohort_of(rows, seed=1 + seed), seed=seed, privacy=privacy)
    )
