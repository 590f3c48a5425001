"""Tab-PE (private evolution for tables; Tran et al., arXiv 2606.08259, ICML 2026) as a peer, through our gate.

The evolution itself, written anew after the authors' published program (DPSDA, its tabular part; settings of its
example on Adult), is a generator of dp-geng: `distcondense/methods/dp_geng/evolution.py`. Here the last vote's rows are
the table. Survival's classes are dead or not, its time a number; classes get IPC rows each, so that their number is
public, where the authors read the classes' shares off the patients. T − 1 votes are the whole account.
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
from distcondense.arrays import Floats
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.errors import SettingsError
from distcondense.methods.base import Context, Options, option
from distcondense.methods.dp_geng.evolution import DECAY, RATES, ROUNDS, VOTES, Space, Votes, crowd, evolved, rate
from distcondense.outcomes.base import Labelled
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.runs.result import Result


@dataclass(frozen=True, kw_only=True)
class TabPEOptions(Options):
    """As in the authors' example on Adult."""

    guarantee: ClassVar[str] = "end-to-end"
    epsilon: float = option(1.0, "Budget, end-to-end.")
    delta: float = option(1e-5, "δ of the budget.")
    cells: int = option(32, "Public cells of a number.")
    rounds: int = option(ROUNDS, "T: populations, the first among them; T − 1 votes.")
    first_rate: float = option(RATES[0], "How much a variation varies, at first.")
    last_rate: float = option(RATES[1], "At last.")
    decay: float = option(DECAY, "The power of t/T by which it falls.")

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        yield from self.need(2 <= self.rounds <= 1000, "rounds", "must be between 2 and 1,000")
        yield from self.need(0 < self.last_rate <= 1, "last_rate", "must be in (0, 1]")
        yield from self.need(self.last_rate <= self.first_rate <= 1, "first_rate", "must be in [last_rate, 1]")
        yield from self.need(self.decay > 0, "decay", "must be above 0")

    def rate(self, t: int) -> float:
        return rate(t, self.rounds, (self.first_rate, self.last_rate), self.decay)


def space_of(coding: Coding) -> Space:
    """The features in their order, then the time where the outcome has one."""
    own = Space.from_cells(coding.cells)
    extra = [size for name, size in coding.sizes.items() if name != LABEL][len(coding.cells) :]
    many = len(extra)
    return Space((*own.sizes, *extra), (*own.numeric, *[True] * many), (*own.hole, *[False] * many))


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
                coding.classes * options.ipc * crowd(t),
                _cost(options),
                by=VOTES,
                unit="person" if facts.by_person else "row",
            )
            for t in range(1, options.rounds)
        )
        return PreparedSampler(facts, options, coding, events)

    def condense(self, cohort: Cohort, prepared: PreparedSampler, context: Context) -> dict[int, Result]:
        options, coding, splitting = prepared.options, prepared.coding, context.holdout_split(0.2)
        began, space = clock.perf_counter(), space_of(coding)
        ledger = Ledger(None if context.folder is None else context.folder.ledger, run=context.run)
        gate = gate_of(cohort.take(splitting.split(cohort).train), coding, options, ledger, splitting)
        names = [name for name in coding.sizes if name != LABEL]
        columns = tuple(gate.names.index(name) for name in (*names, LABEL))

        def vote(t: int, tables: tuple[tuple[Floats, ...], ...]) -> Floats:
            context.progress(doing="voting", step=t, steps=options.rounds - 1)
            return gate.mapped(Votes(columns, tables), mu=_cost(options))

        rates = [options.rate(t) for t in range(options.rounds - 1)]
        rng = np.random.default_rng([options.seed, 0x7AB9E])
        kept = evolved(space, coding.classes, options.ipc, vote, rates, rng)
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


def _cost(options: TabPEOptions) -> float:
    return float(Budget.calibrate(epsilon=options.epsilon, delta=options.delta).mu / math.sqrt(options.rounds - 1))
