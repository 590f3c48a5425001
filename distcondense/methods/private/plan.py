"""How a private run spends its budget: a function of public facts (number of columns, kind of outcome) alone.

    the kind's own   what must be known first: class counts, a baseline, the outcome's spread   its shares of μ²
    wide tables      PICKS columns are chosen by exponential mechanisms on |gradient sums|      PICK_SHARE of ρ
    numbers          where the rows of each used number lie, on grids too fine to count them all  DOMAIN_SHARE of μ²
    histograms       every used column by group of rows: start, cells, prevalence   HISTOGRAM_SHARE of μ², or less
    gradient sums    EPOCHS rounds through the used columns                                     the rest of μ²
    pair terms       what pairs of columns add to what rounds left over, looked for and measured   TERM_SHARE of μ²
    agreement        whether scores and outcomes go together better than by chance              AGREEMENT_SHARE of μ²
    pairs            which columns belong together, by exponential mechanisms, and their tables  PAIR_SHARE of μ²

Wide tables have no pairs, and small ones ask for few or none: as many as the noisy number of rows can measure well.
The sums get what is left of the pairs' share. Pair terms (terms.py) are looked for where noisy
answers say that one would stand out, and measured where one does; else the last round of sums gets their share.

Of numbers gradient sums are asked for by strategy (smoothing.py: low_frequencies) and tell more for their share than
histograms do: the more of a table's columns are such, the less histograms have, down to NUMBERS_SHARE. With several
scores histograms tell of all of them at once, and keep theirs.

Numbers have fewer cells in their histograms where a rare group's rows would drown in more: as a noisy count tells.

Rounds, shares and cells were set once, on public data sets that benchmarks share (benchmarks/small.py says which), and
depend on nothing in the table at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distcondense.data.cells import FINE, Cells
from distcondense.errors import BudgetError
from distcondense.methods.private.domain import levels, most_cells
from distcondense.methods.private.smoothing import LOW, has_frequencies
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event, Query, Unit

EPOCHS = 3
HISTOGRAM_SHARE = 0.4  # of μ², where columns are categories,
NUMBERS_SHARE = 0.2  # and where all have an order
CELL_NOISE = 2.0  # rows of a rare group in a number's cell, in deviations of its noise, or there are fewer cells,
PLACE_NOISE = 8.0  # the same of rows of all groups, where it asks for more cells,
FEWEST_CELLS = 16  # but so many
DOMAIN_SHARE = 0.04  # of μ², over all columns whose cells are to follow their rows; nothing where there are none
AGREEMENT_SHARE = 0.03  # of μ², for whether the model agrees with the outcomes
NAMED_SHARE = 0.1  # of δ, for values of unlisted columns that only one person has
WIDE = 128  # from this many columns on, cycling through all of them wastes the budget
PICKS = 16
PICK_SHARE = 0.2
PAIR_SHARE = 0.13  # of μ², for tables of pairs of columns
PAIR_PICK_SHARE = 0.04  # of ρ, for choosing them
PAIRED = 32  # columns that pairs are chosen among
MORE = 2  # pairs beside the forest, for each of its own,
LESS = 0.75  # each at such a part of what one of the forest costs in μ²
PAIR_GROUPS = 12  # cells of a number in a table of pairs, at most,
OWN_GROUPS = 24  # and of a column of categories
TERM_SHARE = 0.2  # of μ², for what pairs add to the model,
LOOK_SHARE = 0.5  # of which so much is for looking at the candidates,
LOOKS = (0.5, 0.3, 0.2)  # time after time such parts of it, each time at
KEPT_SHARE = 0.4  # of those of the time before, that look best
LOOK_GROUPS = 6  # cells of a column while pairs are looked at
TERMS = 24  # pairs in a model, at most
FEWEST_GROUPS = 4  # with fewer cells a table of pairs tells too little for what it costs: fewer pairs are asked for,
FEW_PAIRS = 0.2  # at this part of their share
ENOUGH_GROUPS = 8  # with fewer cells of each column no pairs are asked beside the forest, but
FEWEST_MORE = 6
PAIR_NOISE = 3.0  # a cell of such a table holds on average so many standard deviations of its noise, or has fewer cells
HAIR = 1e-7  # relative: what a budget is first shortened by where its plan replays to more than its ε
NOISIEST = 1000.0  # persons: with a noise of more than this in every sum no hospital's table could be learned from


@dataclass(frozen=True)
class PairPlan:
    """How many tables of pairs are asked, in a forest and beside it, and for what part of their share."""

    forest: int
    more: int
    part: float = 1.0

    @property
    def weight(self) -> float:
        return self.forest + LESS * self.more


@dataclass(frozen=True)
class Plan:
    """How a budget is spent; a function of public facts."""

    columns: int  # of the table
    epochs: int = EPOCHS
    picks: int = 0
    own: Mapping[str, float] = field(default_factory=dict)  # the kind's questions and the agreement → share of μ²
    domain: int = 0  # counts of where rows lie, at most
    unlisted: int = 0  # columns whose categories are to be found
    forest: int = 0  # pairs of columns without which rows would not hang together
    more: int = 0  # pairs beside them
    terms: int = 0  # columns whose pairs may be terms of the model, at most
    part: float = 1.0  # of μ², which all shares are shares of; less where a run asks something else besides
    histograms: float = HISTOGRAM_SHARE  # of μ², over all used columns
    choices: bool = True  # by exponential mechanisms; else the gate makes them of Gaussian answers of its own

    @classmethod
    def for_table(cls, columns: int, side: PrivateSide, cells: Sequence[Cells] = ()) -> Plan:
        """For a table of so many columns; without `cells` none of them has a grid too fine to be counted at once."""
        picks = PICKS if columns > WIDE else 0
        asked = sorted((levels(one) for one in cells), reverse=True)[: picks or None]
        unlisted = sum(not one.numeric and one.column.unknown for one in cells)
        among = 0 if picks else min(columns, PAIRED)
        forest = max(among - 1, 0)
        more = min(MORE * forest, among * (among - 1) // 2 - forest)
        own = {**side.questions, "agreement": AGREEMENT_SHARE}
        terms = min(picks or columns, PAIRED)
        terms = terms if terms > 1 else 0
        mixed = np.mean([has_frequencies(one) for one in cells]) if cells and side.objective.scores == 1 else 0.0
        histograms = HISTOGRAM_SHARE + float(mixed) * (NUMBERS_SHARE - HISTOGRAM_SHARE)
        return cls(columns, EPOCHS, picks, own, sum(asked), unlisted, forest, more, terms=terms, histograms=histograms)

    @property
    def used(self) -> int:
        """Columns the model may use."""
        return self.picks or self.columns

    @property
    def answers(self) -> int:
        """At most: which columns are chosen, and how many of them are numbers on a fine grid, is told by answers."""
        model = self.used * (1 + self.epochs) + len(self.own) + (self.picks > 0) + self.domain + self.unlisted
        return model + 2 * self.pairs + self.looked + self.measured

    @staticmethod
    def looks(pairs: int) -> tuple[int, ...]:
        """How many of so many pairs are looked at, time after time."""
        return tuple(int(np.ceil(pairs * KEPT_SHARE**time)) for time in range(len(LOOKS))) if pairs else ()

    @property
    def looked(self) -> int:
        """Looks at pairs, at most."""
        return sum(self.looks(self.terms * (self.terms - 1) // 2))

    @property
    def measured(self) -> int:
        """Pairs in the model, at most."""
        return min(TERMS, self.terms * (self.terms - 1) // 2)

    @property
    def pairs(self) -> int:
        return self.forest + self.more

    def budget(self, epsilon: float, delta: float) -> Budget:
        """The calibrated budget, refused where no table could be learned from at this noise; looks at no data."""
        share = 0.0 if not self.choices else PICK_SHARE if self.picks else PAIR_PICK_SHARE if self.pairs else 0.0
        budget = Budget.calibrate(
            epsilon=epsilon,
            delta=delta,
            picks=(self.picks or self.pairs) if self.choices else 0,
            pick_share=share,
            delta_categories=NAMED_SHARE * delta if self.unlisted else 0.0,
        )
        noise = 1 / self.sums_cost(budget)
        if noise > NOISIEST:
            raise BudgetError(
                "epsilon",
                f"must leave less noise than {NOISIEST:.0f} persons in each sum, or every answer is noise",
                found=f"ε = {epsilon:g} end-to-end at δ = {delta:g}: {noise:,.0f} persons for {self.used} columns",
                fix="ask for a larger epsilon or use fewer columns; no patient was read",
            )
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
        choice = (
            Event(
                "choice",
                "choice",
                (),
                self.picks,
                budget.pick_epsilon,
                self.picks,
                1.0,
                2 / budget.pick_epsilon,
                unit=unit,
            )
            if self.picks and self.choices
            else None
        )
        pick = (
            Event(
                "choice", "choice", (), 1, budget.pick_epsilon, 1, 1.0, 2 / budget.pick_epsilon, by="pairs", unit=unit
            )
            if self.pairs and self.choices
            else None
        )
        categories = (
            Event(
                "gaussian",
                "categories",
                (),
                0,
                self.domain_cost(budget),
                noise=1 / self.domain_cost(budget),
                by="value",
                unit=unit,
                delta=self.named_delta(budget),
            )
            if self.unlisted
            else None
        )
        return (
            *(event for events in own for event in events),
            *((categories,) * self.unlisted if categories is not None else ()),
            *((choice,) if choice is not None else ()),
            *(asked("histogram", self.domain_cost(budget), self.domain, "none") if self.domain else ()),
            *asked("histogram", self.histogram_cost(budget), self.used),
            *asked("sums", self.sums_cost(budget), self.used * self.epochs),
            *(
                event
                for time, many in enumerate(self.looks(self.terms * (self.terms - 1) // 2))
                for event in asked("sums", self.look_cost(budget, many, time), many, "looked")
            ),
            *(asked("sums", self.measure_cost(budget, self.measured), self.measured, "pairs") if self.terms else ()),
            *((pick,) * self.pairs if pick is not None else ()),
            *(asked("histogram", self.pair_cost(budget, self.all_pairs), self.forest, "pairs") if self.forest else ()),
            *(
                asked("histogram", self.pair_cost(budget, self.all_pairs, more=True), self.more, "pairs")
                if self.more
                else ()
            ),
        )

    def events(
        self, budget: Budget, cells: Sequence[Cells], side: PrivateSide, unit: Unit, rows_per_person: int = 1
    ) -> tuple[Event, ...]:
        """All that a run will ask, public before it reads anybody: costs as they will be entered, cells at the most.

        Which columns are chosen, and how many of their cells are left after merging, is told by answers only.
        """
        largest = sorted(cells, key=lambda one: -most_cells(one))[: self.used]
        counted = (one for one in cells for _ in range(levels(one)))
        unlisted = (one for one in cells if not one.numeric and one.column.unknown)
        own, by_group, by_scale = self.own_cells(side), side.groups, len(side.objective.scales)
        planned, seen = [], {"histogram": 0, "sums": 0}
        for event in self._prices(budget, unit):
            if event.query == "histogram" and event.by == "pairs":
                event = replace(event, by="none", cells=OWN_GROUPS**2)
            elif event.query == "sums" and event.by:
                groups = LOOK_GROUPS if event.by == "looked" else PAIR_GROUPS
                event = replace(event, by="", cells=groups**2 * by_scale)
            elif event.by == "none":
                names = () if self.picks else (next(counted).column.name,)
                event = replace(event, columns=names, cells=FINE + 1)
            elif event.query == "categories":
                event = replace(event, columns=(next(unlisted).column.name,), cells=rows_per_person)
            elif event.query in seen:
                one = largest[seen[event.query] % len(largest)]
                seen[event.query] += 1
                many = most_cells(one) * (by_group if event.query == "histogram" else by_scale)
                many += LOW * side.objective.scores if event.query == "sums" else 0
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
        agreement = 1 + 2 * side.objective.scores
        return max(*side.objective.groupings.values(), *statistics, agreement)

    def own_cost(self, budget: Budget, question: str) -> float:
        """μ of one of the kind's own questions."""
        return float(self._mu(budget) * np.sqrt(self.own[question]))

    def _mu(self, budget: Budget) -> float:
        """Of everything in the plan."""
        return float(budget.mu * np.sqrt(self.part))

    def domain_cost(self, budget: Budget) -> float:
        """μ of one count of where rows lie, or of the values of one column."""
        return float(self._mu(budget) * np.sqrt(DOMAIN_SHARE / (self.domain + self.unlisted)))

    def named_delta(self, budget: Budget) -> float:
        """δ of finding the categories of one column."""
        return budget.delta_categories / self.unlisted

    def number_cells(self, budget: Budget, rows: float, rare: float, groups: int) -> int:
        """Cells of a number in its histogram, for so many rows, of which `rare` are a rare group's on average.

        Noise counts in every one of them; rows of all groups together say where cells lie at least.
        """
        of_rare = max(rare, 0.0) / CELL_NOISE
        of_all = max(rows, 0.0) / (PLACE_NOISE * np.sqrt(groups))
        return int(np.clip(max(of_rare, of_all) * self.histogram_cost(budget), FEWEST_CELLS, FINE))

    def histogram_cost(self, budget: Budget) -> float:
        return float(self._mu(budget) * np.sqrt(self.histograms / self.used))

    def pair_cost(self, budget: Budget, pairs: PairPlan, *, more: bool = False) -> float:
        """μ of one table of a pair of columns: of the forest, or beside it."""
        part = pairs.part * (LESS if more else 1.0) / pairs.weight
        return float(self._mu(budget) * np.sqrt(PAIR_SHARE * part))

    @property
    def all_pairs(self) -> PairPlan:
        return PairPlan(self.forest, self.more)

    def pairs_for(self, budget: Budget, rows: float) -> PairPlan:
        """As many pairs as a noisy number of rows can measure well: the fewer, the less noise is in each.

        All of the plan where each column of every table has ENOUGH_GROUPS; else a forest and fewer beside it; else a
        few pairs, for a part of the share; in the end none.
        """
        if not self.pairs:
            return PairPlan(0, 0, 0.0)

        def affordable(groups: int, cost: float) -> float:
            """The weight at which tables of so many groups a column still have PAIR_NOISE."""
            return cost * PAIR_SHARE * (self._mu(budget) * max(rows, 0.0) / (PAIR_NOISE * groups**2)) ** 2

        whole = self.all_pairs
        if LESS * affordable(FEWEST_GROUPS, 1.0) >= whole.weight:
            beside = int((LESS * affordable(ENOUGH_GROUPS, 1.0) - self.forest) / LESS)
            return PairPlan(self.forest, int(np.clip(beside, min(FEWEST_MORE, self.more), self.more)))
        few = int(affordable(FEWEST_GROUPS, FEW_PAIRS))
        return PairPlan(min(few, self.forest), 0, FEW_PAIRS) if few else PairPlan(0, 0, 0.0)

    def look_cost(self, budget: Budget, pairs: int, time: int = 0) -> float:
        """μ of looking once at one of so many pairs, for the first time or later."""
        return float(self._mu(budget) * np.sqrt(TERM_SHARE * LOOK_SHARE * LOOKS[time] / pairs))

    def measure_cost(self, budget: Budget, pairs: int) -> float:
        """μ of measuring one of so many chosen pairs."""
        return float(self._mu(budget) * np.sqrt(TERM_SHARE * (1 - LOOK_SHARE) / pairs))

    def last_cost(self, budget: Budget, cost: float, *, looked: bool) -> float:
        """μ of one sum of the last round, whose others cost `cost`, where no pair is measured."""
        left = TERM_SHARE * (1 - LOOK_SHARE if looked else 1.0)
        return float(np.sqrt(cost**2 + self._mu(budget) ** 2 * left / self.used))

    def sums_cost(self, budget: Budget, *, pairs: float = 1.0, terms: bool = True) -> float:
        """μ of one sum of a round, where `pairs` is the part of their share that tables of pairs have."""
        share = 1 - self.histograms - sum(self.own.values()) - (DOMAIN_SHARE if self.domain + self.unlisted else 0.0)
        share -= (PAIR_SHARE * pairs if self.pairs else 0.0) + (TERM_SHARE if terms and self.terms else 0.0)
        return float(self._mu(budget) * np.sqrt(share / (self.epochs * self.used)))
