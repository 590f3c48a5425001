"""Peers that need no package: samplers of noisy histograms, through our gate, and real rows.

`naive-bayes`: all of the budget on a histogram of every column by class; rows of a class are drawn column by column.
`marginals`: histograms of the columns alone, the outcome among them: what rows are worth that do not hang together.
Both are theorems (end-to-end): patients are read by the gate alone. `random-rows` are patients: no privacy at all.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from benchmarks.peers.coding import LABEL, TIME, TIMES, Coding
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.persons import HoldoutSplit, reading_order
from distcondense.errors import SettingsError
from distcondense.methods.base import Context, Options, Prepared, option
from distcondense.outcomes.base import Labelled
from distcondense.privacy.accountant import membership_advantage, replay, trade_off
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.noise import SOURCE
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

ROWS_PER_PERSON = 5
KINDS = ("binary", "multiclass", "survival")
PUBLIC = ("the schema (columns, kinds, bounds, categories)", "which columns are the outcome", "the settings")
LITTLE = 1e-9  # of a cell that noise has emptied


@dataclass(frozen=True, kw_only=True)
class SamplerOptions(Options):
    """What a sampler is asked."""

    guarantee: ClassVar[str] = "end-to-end"
    ipc: int | tuple[int, ...] = option(100, "Rows of each class; several from one read.")  # type: ignore[assignment]
    epsilon: float = option(1.0, "Budget, end-to-end.")
    delta: float = option(1e-5, "δ of the budget.")
    cells: int = option(16, "Public cells of a number.")

    @property
    def ipcs(self) -> tuple[int, ...]:
        return self.ipc if isinstance(self.ipc, tuple) else (self.ipc,)

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")


@dataclass(frozen=True)
class PreparedSampler(Prepared):
    """A run before it reads a patient: how rows become codes, and what will be asked about them."""

    coding: Coding
    planned: tuple[Event, ...] = ()  # type: ignore[assignment]  # a property of `Prepared`


class Sampler:
    """Histograms through the gate, then rows column by column."""

    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = SamplerOptions

    def __init__(self, name: str, by_class: bool) -> None:
        self.name, self.by_class = name, by_class
        self.about = f"peer: noisy histograms{' by class' if by_class else ''}, by hand"

    def takes(self, kind: Any) -> bool:
        return kind.name in KINDS

    def prepare(self, facts: Facts, options: SamplerOptions) -> PreparedSampler:
        if facts.schema is None or not facts.kind.labels_public:
            raise SettingsError(
                f"peer {self.name}",
                "needs a declared schema and outcome",
                found="none",
                fix="declare bounds and categories",
            )
        coding = Coding.of(facts, options.cells)
        cost = _cost(options, len(self._columns(coding)))
        by, many = ("label", coding.classes) if self.by_class else ("none", 1)
        events = tuple(
            Event(
                "gaussian",
                "histogram",
                (name,),
                many * coding.sizes[name],
                cost,
                by=by,
                unit="person" if facts.by_person else "row",
            )
            for name in self._columns(coding)
        )
        return PreparedSampler(facts, options, coding, events)

    def condense(self, cohort: Cohort, prepared: PreparedSampler, context: Context) -> dict[int, Result]:
        options, coding, splitting = prepared.options, prepared.coding, context.holdout_split(0.2)
        began = clock.perf_counter()
        ledger = Ledger(None if context.folder is None else context.folder.ledger, run=context.run)
        gate = gate_of(cohort.take(splitting.split(cohort).train), coding, options, ledger, splitting)
        cost, names = _cost(options, len(self._columns(coding))), list(gate.names)
        asked = {
            name: np.maximum(gate.histogram((names.index(name),), by="label" if self.by_class else "none", mu=cost), 0)
            for name in self._columns(coding)
        }
        rng, made = np.random.default_rng([options.seed, 0xBA7E5]), {}
        privacy = statement_of(self.name, ledger, options, cohort.facts)
        for ipc in options.ipcs:
            frame, outcome = coding.rows(self._drawn(asked, coding, ipc, rng), rng)
            made[ipc] = Result.from_rows(
                features=frame,
                schema=cohort.schema,
                labelled=Labelled(outcome),
                privacy=privacy,
                splitting=splitting,
                notes={"scaling": "public"},
                codec=Codec.public(cohort.schema),
                timings={"condense": clock.perf_counter() - began},
            )
        return made

    def _columns(self, coding: Coding) -> list[str]:
        return [name for name in coding.sizes if not (self.by_class and name == LABEL)]

    def _drawn(self, asked: dict[str, Any], coding: Coding, ipc: int, rng: np.random.Generator) -> pd.DataFrame:
        """IPC rows of each class (marginals: as many in all, of the classes as common as they are)."""
        rows = ipc * coding.classes
        label = np.repeat(np.arange(coding.classes), ipc)
        found: dict[str, Any] = {LABEL: label} if self.by_class else {}
        for name, counts in asked.items():
            counts = np.atleast_2d(counts) + LITTLE
            if self.by_class:
                drawn = [rng.choice(counts.shape[1], ipc, p=of / of.sum()) for of in counts]
                found[name] = np.concatenate(drawn)
            else:
                found[name] = rng.choice(counts.shape[1], rows, p=counts[0] / counts[0].sum())
        return pd.DataFrame(found)


def _cost(options: SamplerOptions, questions: int) -> float:
    return float(Budget.calibrate(epsilon=options.epsilon, delta=options.delta).mu / math.sqrt(questions))


def gate_of(cohort: Cohort, coding: Coding, options: Any, ledger: Ledger, coins: HoldoutSplit) -> PrivateTable:
    """Features and, as further columns of codes, the outcome."""
    codes: dict[str, Any] = {
        f"c{j}": cells.codes(cohort.features[cells.column.name]) for j, cells in enumerate(coding.cells)
    }
    codes[LABEL] = np.asarray(cohort.outcome["label"])
    if coding.horizon is not None:
        codes[TIME] = np.clip(np.floor(TIMES * cohort.outcome["time"] / coding.horizon), 0, TIMES - 1)
    side = (
        cohort.outcome.kind.private_side(horizon=coding.horizon)
        if coding.horizon
        else (cohort.outcome.kind.private_side())
    )
    return PrivateTable(
        np.stack([np.asarray(one, np.int64) for one in codes.values()], axis=1),
        list(coding.sizes.values()),
        cohort.outcome.arrays,
        names=list(codes),
        objective=side.objective,
        budget=Budget.calibrate(epsilon=options.epsilon, delta=options.delta),
        ledger=ledger,
        person=cohort.person,
        rows_per_person=ROWS_PER_PERSON,
        order=reading_order(cohort, coins),
    )


def statement_of(name: str, ledger: Ledger, options: Any, facts: Facts) -> Privacy:
    spent = math.ceil(replay(ledger.events, options.delta).epsilon * 1e6) / 1e6
    unit = "person" if facts.by_person else "row"
    return Privacy(
        "end-to-end",
        name,
        min(options.epsilon, spent),
        options.delta,
        f"add or remove one {unit}",
        SOURCE,
        unit=unit,
        ledger=[event.to_dict() for event in ledger.events],
        labels_public=facts.kind.labels_public,
        public=PUBLIC,
        trade_off=tuple(trade_off(ledger.events)),
        membership_advantage=membership_advantage(ledger.events),
    )


@dataclass(frozen=True, kw_only=True)
class RandomOptions(Options):
    """Nothing but how many."""

    ipc: int | tuple[int, ...] = option(100, "Rows of each class.")  # type: ignore[assignment]

    @property
    def ipcs(self) -> tuple[int, ...]:
        return self.ipc if isinstance(self.ipc, tuple) else (self.ipc,)


class RandomRows:
    """Patients themselves: what rows of theirs teach, and what attacks must find."""

    name = "random-rows"
    about = "peer: random real rows, no privacy at all"
    guarantee: ClassVar[str] = "none"
    Options: ClassVar[Any] = RandomOptions

    def takes(self, kind: Any) -> bool:
        return kind.name in KINDS

    def prepare(self, facts: Facts, options: RandomOptions) -> Prepared:
        return Prepared(facts, options)

    def condense(self, cohort: Cohort, prepared: Prepared, context: Context) -> dict[int, Result]:
        options = prepared.options
        splitting = context.holdout_split(0.2)
        given, made = cohort.take(splitting.split(cohort).train), {}
        label = np.asarray(given.outcome["label"])
        privacy = Privacy("none", self.name, None, None, "none", "none", why=("These rows are patients.",))
        for ipc in options.ipcs:
            rng = np.random.default_rng([options.seed, 0x4EA1, ipc])
            chosen = np.concatenate([rng.permutation(np.flatnonzero(label == c))[:ipc] for c in np.unique(label)])
            some = given.take(chosen)
            made[ipc] = Result.from_rows(
                features=some.features,
                schema=cohort.schema,
                labelled=Labelled(some.outcome),
                privacy=privacy,
                splitting=splitting,
                notes={"scaling": "public"},
                codec=Codec.public(cohort.schema),
            )
        return made


BY_HAND = (Sampler("naive-bayes", by_class=True), Sampler("marginals", by_class=False), RandomRows())
