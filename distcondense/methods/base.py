"""What every method returns: synthetic rows in the model's space, their outcome, and how they came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.codec import Codec
from distcondense.cohort import Outcome
from distcondense.privacy.statement import Privacy
from distcondense.references.base import Reference
from distcondense.references.learners import Learner

Matrix = NDArray[np.float32]


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
    history: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
