"""`Ruler`: the scale on which distances between rows are measured: every encoded column centred, with variance 1.

A codec that scales by public bounds makes a number with wide bounds small, and its differences would not count beside
those of categories. Whoever has rows of the population can do better; so attacks and copy checks do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Floats, Matrix

CONSTANT = 1e-6  # a smaller spread is none


@dataclass(frozen=True, repr=False)
class Ruler:
    """Encoded rows → rows whose Euclidean distances are compared."""

    centre: Floats  # (d,)
    scale: Floats  # (d,) > 0

    @classmethod
    def of(cls, rows: Matrix) -> Ruler:
        """By these rows: real ones, members and outsiders alike. A column that is constant in them is left as it is."""
        if not len(rows):
            return cls(np.zeros(rows.shape[1]), np.ones(rows.shape[1]))
        spread = rows.std(0, dtype=np.float64)
        return cls(rows.mean(0, dtype=np.float64), np.where(spread > CONSTANT, spread, 1.0))

    def __call__(self, rows: Matrix) -> Matrix:
        return ((rows - self.centre) / self.scale).astype(np.float32)
