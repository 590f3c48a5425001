"""Simulated neighbours, and a witness who knows both: what an attacker at the gate's mouth can know.

A pair of neighbours is two public synthetic tables that differ by one canary person. They are worst cases: an outlier,
a category nobody else has, a class of one, a person with many rows, for survival an early event.

The witness is an observer of the gate (privacy/gate.py) and hears only what leaves it. Given the answers so far all
public steps are known, so the exact sums s₀ (without) and s₁ (with) of each question can be recomputed from its own two
tables, and the privacy loss Σ ⟨a − (s₀ + s₁)/2, s₁ − s₀⟩/σ² is the best statistic there is. An answer equal to an exact
sum in a coordinate that the canary moves was not noised at all, and settles the matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import Cells, public_cells
from distcondense.data.schema import Column, Schema
from distcondense.methods.private.plan import Plan
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy import noise
from distcondense.privacy.answering import Observer
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
    CategoriesQuery,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MergeBins,
    PairChoice,
    Question,
    Step,
)
from distcondense.privacy.table_rows import TableRows

OUTLIER, UNSEEN, ALONE, MANY, EARLY, SEVERAL, FAR, CHOICE, PAIR, UNLISTED = (
    "outlier",
    "unseen category",
    "class of one",
    "many rows",
    "early event (survival)",
    "class of one (several classes)",
    "far value (a number)",
    "column choice",
    "pair choice",
    "unlisted value",
)
CERTAIN = 1e9  # a statistic that leaves no doubt
ROWS = 400
CAP = 4  # rows per person
EXTRA = 8  # rows that the person with many rows has
SCHEMA = Schema((Column("marker", "integer", low=0, high=3), Column("site", "categorical", categories=("A", "B", "C"))))


@dataclass(frozen=True)
class NeighbourTable:
    """A public synthetic table in cells, as the gate takes it."""

    codes: Index  # (n, d)
    target: Mapping[str, NDArray[Any]]  # (n,) each
    person: Index  # (n,)

    def plus(self, other: NeighbourTable) -> NeighbourTable:
        return NeighbourTable(
            np.concatenate([self.codes, other.codes]),
            {name: np.concatenate([values, other.target[name]]) for name, values in self.target.items()},
            np.concatenate([self.person, other.person]),
        )

    def only(self, rows: Flags) -> NeighbourTable:
        return NeighbourTable(
            self.codes[rows], {name: values[rows] for name, values in self.target.items()}, self.person[rows]
        )


@dataclass(frozen=True)
class AuditSetting:
    """What is public about a table: everything but the rows."""

    cells: tuple[Cells, ...]
    side: PrivateSide
    plan: Plan
    budget: Budget

    @classmethod
    def calibrate(cls, schema: Schema, side: PrivateSide, epsilon: float, delta: float) -> AuditSetting:
        plan = Plan.for_table(len(schema.columns), side)
        return cls(public_cells(schema), side, plan, plan.budget(epsilon, delta))

    @property
    def sizes(self) -> list[int]:
        return [cell.size for cell in self.cells]

    def gate(self, world: NeighbourTable, ledger: Ledger, observer: Observer | None = None) -> PrivateTable:
        return PrivateTable(
            world.codes,
            self.sizes,
            world.target,
            names=[cell.column.name for cell in self.cells],
            objective=self.side.objective,
            budget=self.budget,
            ledger=ledger,
            person=world.person,
            rows_per_person=CAP,
            observer=observer,
        )

    def rows(self, world: NeighbourTable) -> TableRows:
        """The same rows without a gate: the auditor's own, public."""
        return TableRows.from_table(world.codes, self.sizes, world.target, self.side.objective, world.person, CAP)


def neighbouring(name: str, seed: int) -> tuple[NeighbourTable, NeighbourTable]:
    """(everybody else, the canary). Positives lie high on the marker; nobody is at site C."""
    rng = np.random.default_rng([seed, 0xA0D17])
    marker, site = rng.integers(0, 4, ROWS), rng.integers(0, 2, ROWS)
    label = (rng.random(ROWS) < np.array([0.05, 0.2, 0.6, 0.95])[marker]).astype(np.int64)
    if name == ALONE:
        label[:] = 0
    count = EXTRA if name == MANY else 1
    cell, outcome = {
        OUTLIER: ((3, 1), 0),
        UNSEEN: ((1, 2), 1),
        ALONE: ((0, 0), 1),
        MANY: ((0, 0), 1),
        EARLY: ((0, 0), 1),
        SEVERAL: ((0, 0), 2),
        FAR: ((0, 0), 1),
    }[name]
    theirs: dict[str, NDArray[Any]] = {"label": label}
    own: dict[str, NDArray[Any]] = {"label": np.full(count, outcome)}
    if name == EARLY:  # nearly all are followed to the end
        theirs["time"] = np.where(label == 1, rng.uniform(3.0, 5.0, ROWS), 5.0)
        own["time"] = np.full(count, 0.1)
    if name == FAR:  # everybody else's numbers lie low
        theirs, own = {"value": 10.0 * label + rng.uniform(0, 5, ROWS)}, {"value": np.full(count, 100.0)}
    others = NeighbourTable(np.column_stack([marker, site]), theirs, np.arange(ROWS))
    return others, NeighbourTable(np.tile(np.array(cell, np.int64), (count, 1)), own, np.full(count, ROWS))


# ---- the witness


@dataclass(frozen=True)
class ObservedAnswer:
    """One answer as it left the gate, in grid units, beside what it would be without noise in either world."""

    answer: Floats
    without: Floats
    with_: Floats
    cost: float  # μ
    place: Index | None  # one column: the cell of each of its public cells, after merging

    @property
    def moved(self) -> Floats:
        return self.with_ - self.without

    def losses(self) -> Floats:
        """Privacy loss of each coordinate, positive where "with" is likelier."""
        loss = (self.answer - (self.without + self.with_) / 2) * self.moved / noise.GRID**2
        touched = self.moved != 0
        loss[touched & (self.answer == self.with_)] = CERTAIN
        loss[touched & (self.answer == self.without)] = -CERTAIN
        return loss


class GateObserver:
    """An observer who holds both worlds and follows the public steps in each."""

    def __init__(self, worlds: tuple[NeighbourTable, NeighbourTable], setting: AuditSetting) -> None:
        self.seen: list[ObservedAnswer] = []
        self._worlds = tuple(setting.rows(world) for world in worlds)
        self._place = [np.arange(size) for size in setting.sizes]

    def stepped(self, step: Step) -> None:
        for rows in self._worlds:
            rows.apply(step)
        if isinstance(step, MergeBins):
            self._place[step.column] = np.asarray(step.merge, np.int64)[self._place[step.column]]

    def answered(self, question: Question, event: Event, noisy: Index) -> None:
        # choices and unlisted values are attacked on their own (private.py); no world here has such values
        if isinstance(question, ColumnChoice | PairChoice | CategoriesQuery):
            return
        without, with_ = (rows.answer(question, noise.GRID * event.cost).astype(np.float64) for rows in self._worlds)
        columns = question.columns if isinstance(question, HistogramQuery | GradientQuery) else ()
        merged = isinstance(question, HistogramQuery | GradientQuery) and bool(question.merges)
        mixed = isinstance(question, GradientQuery) and bool(question.strategy)
        whole = len(columns) == 1 and not merged and not mixed
        place = self._place[columns[0]].copy() if whole else None
        self.seen.append(ObservedAnswer(noisy.astype(np.float64), without, with_, event.cost, place))

    def unrecorded(self, ledger: Ledger) -> int:
        """Answers that left the gate and are not in the ledger as they left it."""
        kept = [ledger.kept(number) for number, event in enumerate(ledger.events) if event.kind == "gaussian"]
        lost = len(self.seen) - len(kept)
        pairs = zip(self.seen, kept, strict=False)
        return max(lost, 0) + sum(k is None or not np.array_equal(seen.answer, k) for seen, k in pairs)
