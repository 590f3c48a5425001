"""How a private run spends its budget: a function of public facts (number of columns, kind of outcome) alone.

    the kind's own   what must be known first: class counts, a baseline, the outcome's spread   its shares of μ²
    wide tables      PICKS columns are chosen by exponential mechanisms on |gradient sums|      PICK_SHARE of ρ
    histograms       every used column by group of rows: start, cells, prevalence               HISTOGRAM_SHARE of μ²
    gradient sums    EPOCHS rounds through the used columns                                     the rest of μ²

Rounds, shares and cells were set once, on public data sets, and depend on nothing in the table at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from distcondense.errors import BudgetError
from distcondense.outcomes.base import PrivateSide
from distcondense.privacy.budget import Budget

EPOCHS = 3
HISTOGRAM_SHARE = 0.2
WIDE = 128  # from this many columns on, cycling through all of them wastes the budget
PICKS = 16
PICK_SHARE = 0.2
NOISIEST = 1000.0  # persons: with a noise of more than this in every sum no hospital's table could be learned from


@dataclass(frozen=True)
class Plan:
    """How a budget is spent; a function of public facts."""

    columns: int  # of the table
    epochs: int = EPOCHS
    picks: int = 0
    own: Mapping[str, float] = field(default_factory=dict)  # the kind's questions → share of μ²

    @classmethod
    def of(cls, columns: int, side: PrivateSide) -> Plan:
        picks = PICKS if columns > WIDE else 0
        return cls(columns, EPOCHS, picks, side.questions(wide=picks > 0))

    @property
    def used(self) -> int:
        """Columns the model may use."""
        return self.picks or self.columns

    @property
    def answers(self) -> int:
        return self.used * (1 + self.epochs) + len(self.own) + (self.picks > 0)

    def budget(self, epsilon: float, delta: float) -> Budget:
        """The calibrated budget, refused where no table could be learned from at this noise; looks at no data."""
        budget = Budget.calibrate(
            epsilon=epsilon, delta=delta, picks=self.picks, pick_share=PICK_SHARE if self.picks else 0.0
        )
        noise = 1 / self.sums_cost(budget)
        if noise > NOISIEST:
            raise BudgetError(
                "epsilon", f"must leave less noise than {NOISIEST:.0f} persons in each sum, or every answer is noise",
                found=f"ε = {epsilon:g} end-to-end at δ = {delta:g}: {noise:,.0f} persons for {self.used} columns",
                fix="ask for a larger epsilon or use fewer columns; no patient was read",
            )  # fmt: skip
        return budget

    def own_cost(self, budget: Budget, question: str) -> float:
        """μ of one of the kind's own questions."""
        return float(budget.mu * np.sqrt(self.own[question]))

    def histogram_cost(self, budget: Budget) -> float:
        return float(budget.mu * np.sqrt(HISTOGRAM_SHARE / self.used))

    def sums_cost(self, budget: Budget) -> float:
        share = 1 - HISTOGRAM_SHARE - sum(self.own.values())
        return float(budget.mu * np.sqrt(share / (self.epochs * self.used)))
