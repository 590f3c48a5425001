"""The augmented Lagrangian of PSyGenTAB, §III-B: eqs 4 and 5, and lines 10–13 of Algorithm 1.

    min over θ of 1 − U(θ), subject to P(θ) ≥ P_min                                        (4)
    L(θ, λ) = (1 − U) + λ(P_min − P) + μ/2 (P_min − P)²                                    (5)

As the paper writes it, the quadratic term also weighs on a P above P_min. "Column-Specific ALM Regularization" (§IV-I):
a multiplier λ_j for every column beside the table's, with a P_j of its own; their terms enter as a mean over columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

# safeguards, which the paper lacks: where P_min is out of reach λ and μ would grow for ever and drown U
MULTIPLIER_MOST = 1.0
PENALTY_MOST = 10.0
LEAST_EPOCHS = 15  # of training, before line 14 is asked
PATIENCE = 5  # epochs without a better likelihood of held-out rows: utility has stabilised (line 14)
BETTER = 0.002  # nats of a column's cell, by which it must be better


@dataclass(frozen=True)
class Lagrangian:
    """λ, μ and what they grow by; `columns` are the λ_j, empty where there is only the table's."""

    p_min: float
    multiplier: float
    penalty: float
    growth: float
    columns: tuple[float, ...] = ()

    def value(self, U: Any, P: Any, by_column: Sequence[Any] = ()) -> Any:
        """Eq. 5, of numbers or of traced arrays."""
        loss = (1 - U) + self._term(self.multiplier, P)
        if self.columns:
            loss = loss + sum(self._term(own, part) for own, part in zip(self.columns, by_column, strict=True)) / len(
                self.columns
            )
        return loss

    def _term(self, multiplier: Any, P: Any) -> Any:
        short = self.p_min - P
        return multiplier * short + self.penalty / 2 * short**2

    def updated(self, P: float, by_column: Sequence[float] = ()) -> Lagrangian:
        """Lines 10–13: μ ← αμ where P < P_min; λ ← max(0, λ + (P_min − P)), and so every λ_j."""
        penalty = max(min(self.growth * self.penalty, PENALTY_MOST), self.penalty) if self.p_min > P else self.penalty
        columns = tuple(self._moved(own, part) for own, part in zip(self.columns, by_column, strict=True))
        return replace(self, penalty=penalty, multiplier=self._moved(self.multiplier, P), columns=columns)

    def _moved(self, multiplier: float, P: float) -> float:
        return max(0.0, min(multiplier + self.p_min - P, max(MULTIPLIER_MOST, multiplier)))

    def done(self, P: float, likelihoods: Sequence[float]) -> bool:
        """Line 14: the constraint is satisfied, and utility has stabilised: the likelihood of held-out rows, an epoch
        each, is on a plateau. (U of an epoch is drawn: two that are near each other tell nothing.)"""
        return self.p_min <= P and len(likelihoods) >= LEAST_EPOCHS and plateau(likelihoods)


def plateau(values: Sequence[float]) -> bool:
    """Whether the last `PATIENCE` of them brought nothing better than what was before."""
    before, since = values[:-PATIENCE], values[-PATIENCE:]
    return bool(before) and max(since) < max(before) + BETTER
