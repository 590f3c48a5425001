"""How a private run spends its budget: a function of public facts (number of columns, kind of outcome) alone.

    the kind's own   what must be known first: class counts, a baseline, the outcome's spread   its shares of μ²
    wide tables      PICKS columns are chosen by exponential mechanisms on |gradient sums|      PICK_SHARE of ρ
    histograms       every used column by group of rows: start, cells, prevalence               HISTOGRAM_SHARE of μ²
    gradient sums    EPOCHS rounds through the used columns                                     the rest of μ²

Rounds, shares and cells were set once, on public data sets, and depend on nothing in the table at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distcondense.data.cells import Cells
from distcondense.errors import BudgetError
from distcondense.outcomes.base import PrivateSide
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event, Query, Unit

EPOCHS = 3
HISTOGRAM_SHARE = 0.2
WIDE = 128  # from this many columns on, cycling through all of them wastes the budget
PICKS = 16
PICK_SHARE = 0.2
HAIR = 1e-7  # relative: what a budget is first shortened by where its plan replays to more than its ε
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
        return self._replayed(budget)

    def _replayed(self, budget: Budget) -> Budget:
        """The budget, a hair shorter where its parts, added up by the accountant of the statement, round to more."""
        hair = HAIR
        while replay(self._prices(budget), budget.delta).epsilon > budget.epsilon:
            budget, hair = replace(budget, mu=budget.mu * (1 - hair)), 2 * hair
        return budget

    def _prices(self, budget: Budget, unit: Unit = "row") -> tuple[Event, ...]:
        """What will be asked, by cost alone: the kind's own questions, the choice, histograms, rounds of sums."""

        def asked(query: Query, cost: float, times: int, by: str = "") -> tuple[Event, ...]:
            return (Event("gaussian", query, (), 0, cost, noise=1 / cost, by=by, unit=unit),) * times

        own = [asked("total", self.own_cost(budget, question), 1, question) for question in self.own]
        choice = Event("choice", "choice", (), self.picks, budget.pick_epsilon, self.picks, 1.0,
                       2 / budget.pick_epsilon, unit=unit) if self.picks else None  # fmt: skip
        return (
            *(event for events in own for event in events),
            *((choice,) if choice is not None else ()),
            *asked("histogram", self.histogram_cost(budget), self.used),
            *asked("sums", self.sums_cost(budget), self.used * self.epochs),
        )

    def events(self, budget: Budget, cells: Sequence[Cells], side: PrivateSide, unit: Unit) -> tuple[Event, ...]:
        """All that a run will ask, public before it reads anybody: costs as they will be entered, cells at the most.

        Which columns are chosen, and how many of their cells are left after merging, is told by answers only.
        """
        largest = sorted(cells, key=lambda one: -one.size)[: self.used]
        own, by_group, by_scale = self.own_cells(side), side.groups, len(side.objective.scales)
        planned, seen = [], {"histogram": 0, "sums": 0}
        for event in self._prices(budget, unit):
            if event.query in seen:
                one = largest[seen[event.query] % len(largest)]
                seen[event.query] += 1
                many = one.size * (by_group if event.query == "histogram" else by_scale)
                names = () if self.picks else (one.column.name,)
                by = side.grouping if event.query == "histogram" else ""
                event = replace(event, columns=names, cells=many, by=by)
            elif event.query == "total":
                event = replace(event, cells=own)
            planned.append(event)
        return tuple(planned)

    @staticmethod
    def own_cells(side: PrivateSide) -> int:
        """Noisy numbers that one of the kind's own questions may ask for at most."""
        statistics = (statistic.size for statistic in side.objective.statistics.values())
        return max(*side.objective.groupings.values(), *statistics, 1)

    def own_cost(self, budget: Budget, question: str) -> float:
        """μ of one of the kind's own questions."""
        return float(budget.mu * np.sqrt(self.own[question]))

    def histogram_cost(self, budget: Budget) -> float:
        return float(budget.mu * np.sqrt(HISTOGRAM_SHARE / self.used))

    def sums_cost(self, budget: Budget) -> float:
        share = 1 - HISTOGRAM_SHARE - sum(self.own.values())
        return float(budget.mu * np.sqrt(share / (self.epochs * self.used)))
