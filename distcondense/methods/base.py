"""What every method returns: synthetic rows in the model's space, their outcome, and how they came about."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.data.codec import Codec
from distcondense.data.cohort import Outcome
from distcondense.models.additive import AdditiveModel
from distcondense.models.base import Reference
from distcondense.models.learners import Learner
from distcondense.privacy.statement import Privacy

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Condensed:
    """A condensed set as a method leaves it."""

    rows: Matrix  # (m, d) encoded, in the form that is released: legal values, or raw where settings.soft
    outcome: Outcome  # (m,) synthetic; times in original units
    codec: Codec
    reference: Reference
    learner: Learner  # what a student of these rows is
    time_unit: float  # students and scores see time / time_unit (eq. 1); 1 for binary outcomes
    privacy: Privacy
    best_step: int
    stopped: str
    private_model: AdditiveModel | None = None  # the reference before it became trees
    risk: Floats | None = None  # (m,) soft labels, binary outcomes; None: the hard ones
    weight: Floats | None = None  # (m,); None: all 1
    history: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    key_given: bool = False  # the caller knows the key of the noise
    execution: dict[str, Any] = field(default_factory=dict)  # where the loop ran, and what it moved

    def student(self, *, seed: int, threads: int) -> Reference:
        """A fresh model of these rows."""
        outcome = in_unit(self.outcome, self.time_unit)
        return self.learner.fit(
            self.rows, outcome, weight=self.weight, risk=self.risk, seed=seed, threads=threads
        )  # fmt: skip


def in_unit(outcome: Outcome, unit: float) -> Outcome:
    """The outcome with its times divided by `unit`."""
    return outcome if outcome.time is None else replace(outcome, time=outcome.time / unit)
