"""Tab-PE (private evolution for tables; Tran et al., arXiv 2606.08259, ICML 2026), by hand and through our gate.

After the authors' published program (DPSDA, its tabular part; settings of its example on Adult), written anew:

    P ← N rows of each class, every column drawn uniformly from its public values
    for t = 1 … T − 1:
        every patient votes for the nearest row of P that has its class; noise is added to the votes
        t < 5:  N rows drawn by their votes (none below 0), then one variation of each takes their place
        t ≥ 5:  the N rows with the most votes, kept, and three variations of each
    the rows that the last vote chose are the table

A variation moves each number by up to ±r of its range and redraws each category with chance r; r falls from 0.5 to 0.01
as r₀ − (r₀ − r₁)(t/T)^0.2. Distances are Euclidean, numbers over [0, 1], categories one-hot at 1/3.

Where tables here need another choice: numbers are whole numbers of public cells; a hole beside numbers is a category of
its own (hole or number, mismatch as of categories, redrawn with chance r); survival's classes are dead or not, its time
a number; classes get IPC rows each, so N is public, where the authors read the classes' shares off the patients. One
patient's votes of a round have norm 1: the gate's `mapped` question, asked T − 1 times, is the whole account.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from benchmarks.peers.by_hand import KINDS, PreparedSampler, gate_of, statement_of
from benchmarks.peers.coding import LABEL, Coding
from distcondense.arrays import Codes, Floats, Index
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.errors import SettingsError
from distcondense.methods.base import Context, Options, option
from distcondense.outcomes.base import Labelled
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Target
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.runs.result import Result

CATEGORY = 1 / 3  # the weight of a category in distances
DRAWN_ROUNDS = 5  # rounds below this draw rows by their votes, those after it keep the best
VARIATIONS = 3  # of each kept row
VOTES = "votes for the nearest row"


@dataclass(frozen=True, kw_only=True)
class TabPEOptions(Options):
    """As in the authors' example on Adult."""

    guarantee: ClassVar[str] = "end-to-end"
    epsilon: float = option(1.0, "Budget, end-to-end.")
    delta: float = option(1e-5, "δ of the budget.")
    cells: int = option(32, "Public cells of a number.")
    rounds: int = option(30, "T: populations, the first among them; T − 1 votes.")
    first_rate: float = option(0.5, "How much a variation varies, at first.")
    last_rate: float = option(0.01, "At last.")
    decay: float = option(0.2, "The power of t/T by which it falls.")

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        yield from self.need(2 <= self.rounds <= 1000, "rounds", "must be between 2 and 1,000")
        yield from self.need(0 < self.last_rate <= 1, "last_rate", "must be in (0, 1]")
        yield from self.need(self.last_rate <= self.first_rate <= 1, "first_rate", "must be in [last_rate, 1]")
        yield from self.need(self.decay > 0, "decay", "must be above 0")

    def rate(self, t: int) -> float:
        return self.first_rate - (self.first_rate - self.last_rate) * (t / self.rounds) ** self.decay


@dataclass(frozen=True)
class Space:
    """Public columns of codes: which are numbers, and which have a code for a hole at their end."""

    sizes: tuple[int, ...]
    numeric: tuple[bool, ...]
    hole: tuple[bool, ...]

    @classmethod
    def of(cls, coding: Coding) -> Space:
        """The features in their order, then the time where the outcome has one."""
        sizes = [size for name, size in coding.sizes.items() if name != LABEL]
        extra = len(sizes) - len(coding.cells)
        return cls(
            tuple(sizes),
            (*(cells.numeric for cells in coding.cells), *([True] * extra)),
            (*(cells.numeric and cells.hole for cells in coding.cells), *([False] * extra)),
        )

    def steps(self, j: int) -> int:
        """The largest number among column j's codes."""
        return self.sizes[j] - 1 - self.hole[j]

    def drawn(self, rows: int, rng: np.random.Generator) -> Index:
        """(rows, columns) uniform: RANDOM_API."""
        found = np.empty((rows, len(self.sizes)), np.int64)
        for j in range(len(self.sizes)):
            found[:, j] = rng.integers(0, self.steps(j) + 1, rows)
            if self.hole[j]:
                found[rng.random(rows) < 0.5, j] = self.sizes[j] - 1
        return found

    def varied(self, rows: Index, rate: float, rng: np.random.Generator) -> Index:
        """A variation of each row: VARIATION_API."""
        found, uniform = rows.copy(), self.drawn(len(rows), rng)
        for j in range(len(self.sizes)):
            again = rng.random(len(rows)) < rate
            if not self.numeric[j]:
                found[again, j] = uniform[again, j]
                continue
            most = self.steps(j)
            moved = np.clip(np.round(rows[:, j] + rng.uniform(-rate, rate, len(rows)) * most), 0, most).astype(np.int64)
            was, is_ = rows[:, j] > most, uniform[:, j] > most  # a hole before; one if redrawn
            found[:, j] = np.where(
                was, np.where(again, uniform[:, j], rows[:, j]), np.where(again & is_, uniform[:, j], moved)
            )
        return found

    def distances(self, j: int, to: Index) -> Floats:
        """(codes, rows) squared distances in column j from each of its codes to the rows' codes `to`."""
        code = np.arange(self.sizes[j])[:, None]
        differs = 2 * CATEGORY**2 * (code != to)
        if not self.numeric[j]:
            return differs
        most = self.steps(j)
        apart = ((code - to) / max(most, 1)) ** 2
        return np.where((code > most) | (to > most), differs, apart)


@dataclass(frozen=True, eq=False)
class Votes:
    """A patient's vote: 1 at the nearest row of its class, the first of equally near ones. Looks at one patient's row.

    The map's columns are the features' codes, time's where there is one, and the label's, which is the last.
    """

    columns: tuple[int, ...]
    tables: tuple[tuple[Floats, ...], ...]  # of each class: of each column (codes, rows) squared distances
    name: str = VOTES

    @property
    def size(self) -> int:
        return sum(of[0].shape[1] for of in self.tables)

    def values(self, codes: Codes, target: Target) -> Floats:
        found, start = np.zeros((len(codes), self.size)), 0
        for label, of in enumerate(self.tables):
            own = np.flatnonzero(codes[:, -1] == label)
            distance = np.zeros((len(own), of[0].shape[1]))
            for j, table in enumerate(of):  # one addition after another: a row's bits do not depend on other rows
                distance += table[codes[own, j]]
            if len(own):
                found[own, start + distance.argmin(1)] = 1.0
            start += of[0].shape[1]
        return found


def chosen(votes: Floats, rows: int, draw: bool, rng: np.random.Generator) -> Index:
    """Which rows of one class go on: drawn by their votes, or those with the most."""
    if not draw:
        return np.argsort(votes, kind="stable")[::-1][:rows]
    weight = np.maximum(votes, 0.0)
    share = weight / weight.sum() if weight.sum() > 0 else None
    return rng.choice(len(votes), rows, p=share)


class TabPE:
    """Private evolution of a table."""

    name = "tab-pe"
    about = "peer: private evolution for tables (Tab-PE), by hand"
    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = TabPEOptions

    def takes(self, kind: Any) -> bool:
        return kind.name in KINDS

    def prepare(self, facts: Facts, options: TabPEOptions) -> PreparedSampler:
        if facts.schema is None or not facts.kind.labels_public:
            raise SettingsError(
                f"peer {self.name}",
                "needs a declared schema and outcome",
                found="none",
                fix="declare bounds and categories",
            )
        coding = Coding.of(facts, options.cells)
        names = [name for name in coding.sizes if name != LABEL]
        events = tuple(
            Event(
                "gaussian",
                "mapped",
                (*names, LABEL),
                coding.classes * options.ipc * _crowd(t),
                _cost(options),
                by=VOTES,
                unit="person" if facts.by_person else "row",
            )
            for t in range(1, options.rounds)
        )
        return PreparedSampler(facts, options, coding, events)

    def condense(self, cohort: Cohort, prepared: PreparedSampler, context: Context) -> dict[int, Result]:
        options, coding, splitting = prepared.options, prepared.coding, context.holdout_split(0.2)
        began, space = clock.perf_counter(), Space.of(coding)
        ledger = Ledger(None if context.folder is None else context.folder.ledger, run=context.run)
        gate = gate_of(cohort.take(splitting.split(cohort).train), coding, options, ledger, splitting)
        names = [name for name in coding.sizes if name != LABEL]
        columns = tuple(gate.names.index(name) for name in (*names, LABEL))
        rng = np.random.default_rng([options.seed, 0x7AB9E])
        crowd = [space.drawn(options.ipc, rng) for _ in range(coding.classes)]
        kept = crowd
        for t in range(1, options.rounds):
            context.progress(doing="voting", step=t, steps=options.rounds - 1)
            tables = tuple(tuple(space.distances(j, rows[:, j]) for j in range(len(names))) for rows in crowd)
            votes = gate.mapped(Votes(columns, tables), mu=_cost(options))
            draw, rate = t < DRAWN_ROUNDS, options.rate(t - 1)
            of_class = np.split(votes, len(crowd))
            kept = [rows[chosen(own, options.ipc, draw, rng)] for rows, own in zip(crowd, of_class, strict=True)]
            fresh = [[space.varied(rows, rate, rng) for _ in range(1 if draw else VARIATIONS)] for rows in kept]
            crowd = [np.concatenate([*new, *([] if draw else [old])]) for new, old in zip(fresh, kept, strict=True)]
        codes = pd.DataFrame(np.concatenate(kept), columns=names)
        codes[LABEL] = np.repeat(np.arange(coding.classes), options.ipc)
        frame, outcome = coding.rows(codes, rng)
        made = Result.from_rows(
            features=frame,
            schema=cohort.schema,
            labelled=Labelled(outcome),
            splitting=splitting,
            privacy=statement_of(self.name, ledger, options, cohort.facts),
            notes={"scaling": "public"},
            codec=Codec.public(cohort.schema),
            timings={"condense": clock.perf_counter() - began},
        )
        return {options.ipc: made}


def _crowd(t: int) -> int:
    """Rows that the vote of round t is about, in numbers of those that go on."""
    return 1 if t <= DRAWN_ROUNDS else 1 + VARIATIONS


def _cost(options: TabPEOptions) -> float:
    return float(Budget.calibrate(epsilon=options.epsilon, delta=options.delta).mu / math.sqrt(options.rounds - 1))
