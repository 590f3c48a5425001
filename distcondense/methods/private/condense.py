"""The private method (SPEC §4): patients once through the gate, then everything from what left it.

    plan and budget (public) → cells (public) → gate → private model and marginals → rows, labels, weights

The cohort's rows are read in one place, `open_gate`; what comes after holds a `PrivateTable` or what it answered.
"""

from __future__ import annotations

import math
import time as clock
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.data.cells import Cells, public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Outcome
from distcondense.data.schema import Schema
from distcondense.errors import DistcondenseWarning, SchemaError, SettingsError
from distcondense.methods.base import Condensed
from distcondense.methods.private.fit import INTERVALS, Learned, Plan, fit_private
from distcondense.methods.private.placement import Placed, place
from distcondense.models.learners import learner
from distcondense.privacy.accountant import (
    CELLS_MAX,
    Budget,
    Event,
    membership_advantage,
    replay,
    trade_off,
    with_earlier,
)
from distcondense.privacy.gate import Logistic, Objective, PiecewiseExponential, PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.noise import SOURCE
from distcondense.privacy.statement import LARGE_EPSILON, Privacy
from distcondense.settings import Settings

Say = Callable[[str], None]
Told = Callable[[int, int], None]
Index = NDArray[np.int64]
PUBLIC = (
    "the schema (columns, kinds, bounds, categories, missing-value policies)",
    "which columns are the outcome",
    "the settings (ε, δ, IPC, seed, rows per person)",
)
NOT_COVERED = (
    "what many people together have in common, which is what the table is for",
    "the custodian's own folder internal/, which holds numbers computed on patients",
    "other releases about the same patients, whose ε adds up with this one",
)
NO_ANSWER = (
    "NO ANSWER: what the budget could pay for shows {doubt} (too few cases, too small an ε, or nothing there), so no "
    "synthetic rows are released. The budget is spent all the same."
)


def condense_private(
    cohort: Cohort, train: Index, settings: Settings, *, reference: str, ledger: Ledger | None = None,
    earlier: Sequence[Event] = (), threads: int = 1, say: Say = lambda line: None,
    progress: Told = lambda done, of: None,
) -> Condensed:  # fmt: skip
    """Condense the `train` rows; `reference` names the student ("xgb", "cox", "aft") that the rows are for."""
    timings: dict[str, float] = {}
    student = learner(reference, cohort.task)
    public = public_side(cohort.schema, settings, cohort.task, cohort.outcome.names)
    ledger = Ledger() if ledger is None else ledger

    say(f"budget: {public.budget_words}; plan: {public.plan_words}")
    started = clock.perf_counter()
    table = open_gate(cohort, train, settings, public, ledger)
    timings["encode"] = clock.perf_counter() - started
    started = clock.perf_counter()
    learned = fit_private(table, public.cells, public.plan, progress)
    del table
    timings["private model"] = clock.perf_counter() - started

    say(f"learned from {len(ledger.events)} noisy answers; placing {settings.rows} rows")
    started = clock.perf_counter()
    placed = place(learned, settings.ipc, seed=settings.seed, threads=threads)
    timings["condense"] = clock.perf_counter() - started
    if not learned.informative:
        say("no signal above the noise: nothing is released but the statement")
    return _condensed(cohort, settings, public, learned, placed, ledger, student, timings, earlier)


class Public:
    """What a private run knows before it reads a patient: cells, plan, budget, objective."""

    def __init__(self, schema: Schema, settings: Settings, objective: Objective) -> None:
        assert settings.epsilon is not None
        self.schema, self.objective = schema, objective
        self.cells: tuple[Cells, ...] = public_cells(schema)
        self.plan = Plan.of(len(self.cells), survival=isinstance(objective, PiecewiseExponential))
        self.budget: Budget = self.plan.budget(settings.epsilon, settings.delta)
        largest = sorted((cells.size for cells in self.cells), reverse=True)[: self.plan.used]
        if 2 * (1 + self.plan.epochs) * sum(largest) > CELLS_MAX:
            raise SchemaError(
                "schema", f"must not need more than {CELLS_MAX:,} noisy answers in all",
                found=f"{sum(largest):,} categories and cells in {len(largest)} columns",
                fix="leave out columns with very many categories, or group them",
            )  # fmt: skip

    @property
    def budget_words(self) -> str:
        return f"ε = {self.budget.epsilon:g} end-to-end at δ = {self.budget.delta:g}"

    @property
    def plan_words(self) -> str:
        chosen = f"{self.plan.picks} columns chosen privately, " if self.plan.picks else ""
        return f"{chosen}{self.plan.used} histograms, {self.plan.epochs} rounds of gradient sums"


def check_private(cohort: Cohort, settings: Settings) -> Public:
    """Refuse what the guarantee would not cover, before a patient is read."""
    if not cohort.outcome.labels_public and not settings.trust_inferred_schema:
        raise SettingsError(
            f"outcome {cohort.outcome.names[-1]!r}", "must have two publicly known values",
            found="values read off the rows",
            fix='declare it in the schema: kind = "binary", categories = ["no", "yes"]; or make it 0/1',
        )  # fmt: skip
    assert settings.epsilon is not None
    if settings.epsilon > LARGE_EPSILON:
        warnings.warn(
            f"ε = {settings.epsilon:g} (end-to-end) is more than {LARGE_EPSILON:g}: it promises patients very little",
            DistcondenseWarning, stacklevel=4,
        )  # fmt: skip
    return public_side(cohort.schema, settings, cohort.task, cohort.outcome.names)


def public_side(schema: Schema, settings: Settings, task: str, outcome: tuple[str, ...]) -> Public:
    """Everything that can be refused without reading a patient is refused here."""
    if schema.origin == "inferred" and not settings.trust_inferred_schema:
        raise SchemaError(
            "schema", "must be declared: the private mechanism takes bounds and categories as public",
            found="a schema inferred from the table",
            fix='draft one (distcondense schema infer TABLE), check it, set origin = "declared" and pass --schema; '
            "or say --trust-inferred-schema, which the statement will tell",
        )  # fmt: skip
    if task == "binary":
        return Public(schema, settings, Logistic())
    if settings.horizon is None:
        raise SettingsError(
            "horizon", "the public end of follow-up must be known: it may not be read off patients", found="nothing",
            fix=f"say --horizon, or declare {outcome[0]!r} with low and high in the schema",
        )  # fmt: skip
    cuts = settings.horizon * np.arange(1, INTERVALS) / INTERVALS
    return Public(schema, settings, PiecewiseExponential(tuple(cuts), settings.horizon))


def open_gate(cohort: Cohort, train: Index, settings: Settings, public: Public, ledger: Ledger) -> PrivateTable:
    """The one place of the private path that reads patients' rows; what it returns does not give them back."""
    codes: list[NDArray[Any]] = [cells.codes(cohort.features[cells.column.name].iloc[train]) for cells in public.cells]
    return PrivateTable(
        np.stack(codes, axis=1),
        [cells.size for cells in public.cells],
        cohort.outcome.label[train],
        names=public.schema.names,
        objective=public.objective,
        budget=public.budget,
        ledger=ledger,
        time=None if cohort.outcome.time is None else cohort.outcome.time[train],
        person=None if cohort.person is None else cohort.person[train],
        rows_per_person=settings.rows_per_person,
    )


def _condensed(
    cohort: Cohort, settings: Settings, public: Public, learned: Learned, placed: Placed, ledger: Ledger,
    student: Any, timings: dict[str, float], earlier: Sequence[Event],
) -> Condensed:  # fmt: skip
    used = Schema(tuple(cells.column for cells in learned.model.cells), public.schema.origin)
    codec = Codec.public(used)
    time = placed.time
    horizon = settings.horizon
    return Condensed(
        rows=codec.encode(placed.features(learned.model.cells)),
        outcome=Outcome(placed.label.astype(np.int8), time, cohort.outcome.names, cohort.outcome.labels),
        codec=codec,
        reference=learned.model.reference(codec),
        learner=student,
        time_unit=1.0 if horizon is None else horizon / 2,
        privacy=statement_of(
            settings,
            public,
            learned,
            ledger,
            earlier,
            by_person=cohort.person is not None,
            labels_public=cohort.outcome.labels_public,
        ),
        best_step=0,
        stopped="budget spent",
        private_model=learned.model,
        risk=placed.risk,
        weight=placed.weight,
        timings=timings,
    )


def statement_of(
    settings: Settings, public: Public, learned: Learned, ledger: Ledger, earlier: Sequence[Event] = (), *,
    by_person: bool, labels_public: bool = True,
) -> Privacy:  # fmt: skip
    """What the ledger pays for, in numbers and words."""
    total = replay(ledger.events, settings.delta)
    assert settings.epsilon is not None
    if not (total.agree and total.epsilon <= settings.epsilon):  # never seen; a statement must not be wrong
        raise AssertionError("the ledger does not add up to the budget")
    persons = (
        f"add or remove one person with all their rows, of which at most {settings.rows_per_person} are read"
        if by_person
        else "add or remove one row; every row is taken as one person"
    )
    known = PUBLIC if settings.horizon is None else (*PUBLIC, "the end of follow-up and its intervals")
    return Privacy(
        guarantee="end-to-end",
        mechanism="private",
        epsilon=min(settings.epsilon, math.ceil(total.epsilon * 1e6) / 1e6),
        delta=settings.delta,
        neighbouring=persons,
        noise_source=SOURCE,
        parameters={
            "epsilon_asked_end_to_end": settings.epsilon,
            "accounting": "exact composition of Gaussian mechanisms"
            + ("; column choices by PLD of the dominating logistic pair" if public.plan.picks else ""),
            "epsilon_by_second_accountant": total.exact_or_rdp if public.plan.picks else total.pld,
            "outcome_labels": "public" if labels_public else "read off the rows",
            "mu": total.mu,
            "picks": total.picks,
            "delta_reserved_for_discrete_noise": total.delta_grid,
            "columns_used": [cells.column.name for cells in learned.model.cells],
            "rows_noisy_estimate": round(learned.rows),
            "positive_share_noisy_estimate": round(learned.positive, 4),
        },
        ledger=[event.to_dict() for event in ledger.events],
        schema_origin=public.schema.origin,
        public=known,
        not_covered=NOT_COVERED,
        answer=NO_ANSWER.format(doubt=learned.doubt) if learned.doubt else "",
        trade_off=tuple(trade_off(ledger.events)),
        membership_advantage=membership_advantage(ledger.events),
        epsilon_with_earlier_runs=with_earlier(ledger.events, earlier, settings.delta),
    )
