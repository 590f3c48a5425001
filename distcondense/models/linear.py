"""A linear score, which is what a Cox model is: f(x) = x·β + b. Its Jacobian is β, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distcondense.models.base import Link, Rows, Scores


@dataclass(frozen=True)
class LinearModel:
    """f(x) = x·coefficients + intercept."""

    coefficients: NDArray[np.float32]  # (d,)
    intercept: float
    link: Link = "log-risk"
    name: str = "cox"

    @property
    def n_features(self) -> int:
        return len(self.coefficients)

    def scores(self, rows: Rows) -> Scores:
        return (rows @ self.coefficients + np.float32(self.intercept)).astype(np.float32)
