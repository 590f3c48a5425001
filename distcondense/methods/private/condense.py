"""The private method from a cohort to a condensed set: patients once through the gate, the rest from what left it.

The cohort's rows are read in one place, `open_gate`; what comes after holds a `PrivateTable` or what it answered.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.cells import Cells
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit, reading_order
from distcondense.methods.base import Context
from distcondense.methods.gated import no_answer, statement
from distcondense.methods.private.constants import constants_digest
from distcondense.methods.private.figures import model_figures
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.large import large_gate
from distcondense.methods.private.placement import Draw, Legal, PlacedRows, place
from distcondense.methods.private.prepare import PreparedPrivate
from distcondense.methods.private.sampling import MANY_ROWS, PopulationSampler, legal_rules, released_rows
from distcondense.outcomes.measures import title
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

Steer = Callable[[PrivateFit, PrivateSide, Legal | None], Draw]  # what left the gate → how whole rows are drawn from it

SEEDS = (
    "seed: placement and students. noise: the operating system, never kept. holdout: coins from the "
    "operating system, kept in internal/."
)
MANY = 8  # columns named in a statement
OWN_ROWS = 4000  # drawn, on which the model scores itself
SEVERAL = "all {} sets of synthetic rows (IPC {}) were made"


def condense(
    cohort: Cohort | LargeTable | None,
    prepared: PreparedPrivate,
    context: Context,
    *,
    steer: Steer | None = None,
    gate: Callable[[Ledger], PrivateTable] | None = None,
) -> dict[int, Result]:
    """A set of each IPC from one fit; `options.reference` names the students that the rows are for.

    `steer` makes another way to draw rows out of what was learned, for methods that build on this one. `gate` opens a
    gate whose rows are elsewhere; then there is no cohort.
    """
    timings: dict[str, float] = {}
    options, kind, large = prepared.options, prepared.facts.kind, isinstance(cohort, LargeTable)
    learners = [kind.learner(name) for name in options.named or (None,)]
    log = context.log
    if context.cluster is not None and not large:
        log("a table in memory is learned from, and its rows are placed, in process")
    # where there is no cohort, whoever has the rows leaves some out
    splitting = context.holdout_split(options.holdout) if gate is None else HoldoutSplit(0.0, 0)
    ledger = context.ledger()

    log(f"budget: {prepared.budget_words}; plan: {prepared.plan_words}")
    context.progress(doing="encoding", step=0, steps=0)
    started = clock.perf_counter()
    with ExitStack() as stack:
        if gate is not None:
            table = gate(ledger)
        elif isinstance(cohort, LargeTable):
            table = stack.enter_context(large_gate(cohort, splitting, prepared, ledger, context))
        else:
            assert cohort is not None
            table = open_gate(cohort, splitting, prepared, ledger)
        timings["encode"] = clock.perf_counter() - started
        started = clock.perf_counter()
        learned = fit_private(
            table,
            prepared.cells,
            prepared.plan,
            prepared.side,
            lambda done, of: context.progress(doing="learning", step=done, steps=of),
            options.categories_checked,
        )
        del table
    timings["private model"] = clock.perf_counter() - started

    rows = " + ".join(str(len(learned.shares) * ipc) for ipc in options.ipcs)
    log(f"learned from {len(ledger.events)} noisy answers" + (f"; placing {rows} rows" if learned.informative else ""))
    started = clock.perf_counter()
    legal = legal_rules(learned, prepared.schema)
    draw = None if steer is None else steer(learned, prepared.side, legal)
    how: dict[str, Any] = {"seed": options.seed, "threads": context.threads, "legal": legal, "named": options.among}
    placed = {
        ipc: place(
            learned,
            prepared.side,
            ipc,
            draw=draw,
            **how,
            on_progress=lambda done, of, ipc=ipc: context.progress(doing=f"placing IPC {ipc}", step=done, steps=of),  # type: ignore[misc]
        )
        for ipc in options.ipcs
    }
    timings["condense"] = clock.perf_counter() - started
    if not learned.informative:
        log("no signal above the noise: nothing is released but the statement")
    privacy = statement_of(prepared, learned, ledger, context.earlier())
    if len(placed) > 1:
        several = SEVERAL.format(len(placed), ", ".join(map(str, placed)))
        privacy = replace(privacy, made=several, parameters={**privacy.parameters, "ipc": list(placed)})
    notes: dict[str, Any] = {"seeds_policy": SEEDS, "scaling": "public"}
    if len(learners) > 1:
        notes["references"] = [learner.name for learner in learners]
    shared = {
        "privacy": privacy,
        "splitting": splitting,
        "timings": timings,
        "learner": learners[0],
        "others": tuple((learner, None) for learner in learners[1:]),
        "covered": model_figures(learned, prepared.side, kind.labels),
        # another way to draw rows is its method's own, and would have to be kept as well
        "sampler": PopulationSampler(learned, prepared.side, prepared.schema)
        if learned.informative and steer is None
        else None,
    }
    return {ipc: _result(learned, one, prepared, notes=notes, **shared) for ipc, one in placed.items()}


def open_gate(cohort: Cohort, splitting: HoldoutSplit, prepared: PreparedPrivate, ledger: Ledger) -> PrivateTable:
    """The one place of the private path that reads patients' rows; what it returns does not give them back."""
    train = splitting.split(cohort).train
    codes: list[NDArray[Any]] = [
        cells.codes(cohort.features[cells.column.name].iloc[train]) for cells in prepared.cells
    ]
    return PrivateTable(
        np.stack(codes, axis=1),
        [cells.size for cells in prepared.cells],
        cohort.outcome.take(train).arrays,
        names=[cells.column.name for cells in prepared.cells],
        objective=prepared.side.objective,
        budget=prepared.budget,
        ledger=ledger,
        person=None if cohort.person is None else cohort.person[train],
        rows_per_person=prepared.options.rows_per_person,
        order=None if cohort.person is None else reading_order(cohort, splitting)[train],  # type: ignore[index]
        unlisted={
            j: unlisted(cohort.features[cells.column.name].iloc[train])
            for j, cells in enumerate(prepared.cells)
            if not cells.numeric and cells.column.unknown
        },
    )


def unlisted(values: pd.Series[Any]) -> UnlistedColumn:
    """A column whose values nobody has listed, as the gate takes it: texts, as `check_features` made them."""
    return UnlistedColumn(np.asarray(values.cat.codes, np.int64), list(values.cat.categories))


def _result(learned: PrivateFit, placed: PlacedRows, prepared: PreparedPrivate, **details: Any) -> Result:
    """A set of placed rows as it is released; `details` as `Result.from_rows` takes them."""
    values = placed.features(learned.model.cells)
    features, schema, codec, encoded = released_rows(learned, prepared.schema, values, prepared.options.seed)
    return Result.from_rows(
        features=features,
        schema=schema,
        labelled=placed.labelled,
        codec=codec,
        encoded=encoded,
        reference=learned.model.over(codec),
        reference_covered=True,
        unit=prepared.side.unit,
        **details,
    )


def _paid_for(cells: Sequence[Cells]) -> tuple[str, ...]:
    """What of the schema is not public, in words."""
    names = [repr(one.column.name) for one in cells if one.boundless or one.column.unknown]
    shown = ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")
    return (f"but not the bounds or categories of {shown}: these were found with noise and paid for",) if names else ()


def own_account(learned: PrivateFit, side: PrivateSide, kind: Any) -> list[str | float]:
    """How good the private model takes itself to be: its main measure on rows and outcomes that it draws itself.

    No patient is asked, so that it may be quoted; it is right as far as the model is. Nothing without an answer.
    """
    if not learned.informative or learned.joint is None:
        return []
    rng = np.random.default_rng(0x0ACC)
    codes, _ = learned.joint.draw(learned.marginals, OWN_ROWS, rng)
    margin = learned.model.margin(codes)
    outcome = side.label(learned, codes, rng.random(len(codes)), MANY_ROWS).outcome
    value = kind.score(side.link, np.asarray(side.expected(margin), np.float32), outcome)
    return [title(kind.measures[0]), round(float(value), 3)]


def statement_of(prepared: PreparedPrivate, learned: PrivateFit, ledger: Ledger, earlier: Sequence[Event]) -> Privacy:
    """What the ledger pays for, in numbers and words."""
    facts, options = prepared.facts, prepared.options
    return statement(
        ledger,
        facts,
        earlier,
        method="private",
        epsilon=options.epsilon,
        delta=options.delta,
        rows_per_person=options.rows_per_person,
        origin=prepared.schema.origin,
        parameters={
            "categories_checked": list(options.categories_checked),
            "columns_used": [cells.column.name for cells in learned.model.cells],
            "rows_noisy_estimate": round(learned.rows),
            "group_shares_noisy_estimate": [round(float(share), 4) for share in learned.shares],
            "expected_by_the_model_itself": own_account(learned, prepared.side, facts.kind),
        },
        public=(*prepared.side.public, *_paid_for(prepared.cells)),
        answer=no_answer(learned.doubt, learned.rows, len(prepared.cells), options.epsilon, options.promise),
        constants=constants_digest(type(facts.kind)),
    )
