"""clustmix with a theorem: patients are asked once, for noisy sums over a public partition; all else comes after.

Every person falls into one of P parts by a keyed hash of their own (`data/persons.py: HoldoutSplit.parts`): mixing at
random, as in the paper this one improves on, and the one way to mix that depends on nobody else. A row adds to the sum
of its part and class

    (β·(x − c)/R, √(1 − β²)),        x ∈ [0, 1]^D by the schema, R the largest ‖x − c‖ that the schema allows,

a vector of norm at most 1, whose sum over persons the gate answers with noise (`privacy/questions.py: MapQuery`).
Means, clusters of means, kernel inducing points and labels are made of that one answer, so its ε is end-to-end.
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats, Index
from distcondense.data.cells import Cells, public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit, reading_order
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.errors import SchemaError
from distcondense.methods.base import Context, Prepared
from distcondense.methods.clustmix import kip, ntk
from distcondense.methods.clustmix.kip import Kip, adapted
from distcondense.methods.clustmix.options import ClustMixOptions
from distcondense.methods.clustmix.units import Units
from distcondense.methods.gated import check_categories, constants_of, no_answer, refuse_unpublic, statement
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy import accountant, budget, contributions, curves, gate, noise, rows
from distcondense.privacy.accountant import replay
from distcondense.privacy.binding import json_digest
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective, Target
from distcondense.privacy.events import Event, Unit
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

BETA = 0.95  # of a row's vector: its values; the rest counts it
SIGMA_MAX = 0.2  # noise of a row at most, as a share of each column's range, where nobody says
STANDS_OUT = 3.0  # standard deviations of its noise that a class's number of rows must have
HAIR = 1e-7  # relative: what the budget is shortened by where its one answer replays to more than its ε
PART = "part of the partition"  # the column beside the schema's, for the reader of a ledger
SEEDS = (
    "seed: students. noise: the operating system, never kept. holdout and partition: coins from the operating system, "
    "kept in internal/."
)
MODULES = (kip, ntk, accountant, budget, contributions, curves, gate, noise, rows)  # and this one


@dataclass(frozen=True)
class PartSums:
    """The public map: a row's scaled values, and 1 for itself, in the block of its part and class."""

    tables: tuple[Floats, ...]  # of each column (cells, width): x − c
    parts: int
    objective: Objective
    grouping: str
    name: str = "rows by part and class"

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.tables) + 1))

    @property
    def width(self) -> int:
        return sum(table.shape[1] for table in self.tables)

    @property
    def groups(self) -> int:
        return self.objective.groupings[self.grouping]

    @property
    def size(self) -> int:
        return self.parts * self.groups * (self.width + 1)

    @property
    def reach(self) -> float:
        """R."""
        return float(np.sqrt(sum(float((table**2).sum(axis=1).max()) for table in self.tables)))

    def values(self, codes: Codes, target: Target) -> Floats:
        n, step = len(codes), self.width + 1
        out = np.zeros((n, self.parts * self.groups, step))
        block = codes[:, -1] * self.groups + self.objective.group(self.grouping, target)
        every, at, factor = np.arange(n), 0, BETA / self.reach
        for place, table in enumerate(self.tables):  # looked up and multiplied one by one: no sum, so no order
            for k in range(table.shape[1]):
                out[every, block, at] = table[codes[:, place], k] * factor
                at += 1
        out[every, block, at] = np.sqrt(1 - BETA**2)
        return out.reshape(n, -1)

    def read(self, answer: Floats) -> tuple[Floats, Floats]:
        """A noisy sum → (parts, classes, D) sums of x − c, and (parts, classes) numbers of rows."""
        blocks = answer.reshape(self.parts, self.groups, self.width + 1)
        return blocks[..., :-1] * (self.reach / BETA), blocks[..., -1] / np.sqrt(1 - BETA**2)


@dataclass(frozen=True)
class PreparedTheorem(Prepared):
    """A run before it reads a patient: its one question, and its calibrated budget."""

    options: ClustMixOptions
    schema: Schema
    side: PrivateSide
    cells: tuple[Cells, ...]
    units: Units
    budget: Budget
    sums: PartSums

    @property
    def unit(self) -> Unit:
        """Whose presence is protected."""
        return "person" if self.facts.by_person else "row"

    @property
    def planned(self) -> tuple[Event, ...]:
        mu, names = self.budget.mu, (*(cells.column.name for cells in self.cells), PART)
        return (
            Event("gaussian", "mapped", names, self.sums.size, mu, noise=1 / mu, by=self.sums.name, unit=self.unit),
        )

    @cached_property
    def centre(self) -> Floats:
        return centre_of(self.units)

    @property
    def noise(self) -> float:
        """Standard deviation of one column's sum."""
        return self.sums.reach / (BETA * self.budget.mu)

    @property
    def total_noise(self) -> float:
        """Standard deviation of a class's number of rows, which is added up over the parts."""
        return float(np.sqrt(self.sums.parts / (1 - BETA**2)) / self.budget.mu)


def refuse(facts: Facts, options: ClustMixOptions) -> None:
    """Raise what can be told before the schema is known."""
    refuse_unpublic(facts, trusted=options.trust_inferred_schema, epsilon=options.epsilon, promise=options.promise)


def prepare(facts: Facts, options: ClustMixOptions) -> PreparedTheorem:
    """Refuse all that public facts rule out, and calibrate the budget of the one question."""
    refuse(facts, options)
    schema = facts.schema
    assert schema is not None
    check_categories(schema, ())
    searched = [column.name for column in schema.columns if column.unknown]
    if searched:
        raise SchemaError(
            f"column {searched[0]!r}",
            "must have its bounds or categories declared: this method does not pay for finding them",
            found=f"{len(searched)} columns without",
            fix="declare them, or say the default method",
        )
    rules = Rules(schema)
    rules.check()
    own = schema.without(rules.derived)  # what is computed is not asked for
    side, cells = facts.kind.private_side(), public_cells(own)
    assert side is not None  # `takes` let it in
    sums = PartSums(tuple(map(table_of, cells)), options.parts, side.objective, side.grouping)
    if sums.size > curves.CELLS_MAX:
        raise SchemaError(
            "schema",
            f"must not need more than {curves.CELLS_MAX:,} noisy answers in all",
            found=f"{sums.size:,} for {options.parts} parts of {sums.width} numbers a row",
            fix="say fewer --parts, or leave out columns with very many categories",
        )
    units = Units.of_schema(own, one_hot=True)
    calibrated = Budget.calibrate(epsilon=options.epsilon, delta=options.delta)
    prepared = PreparedTheorem(facts, options, schema, side, cells, units, calibrated, sums)
    hair = HAIR
    while replay(prepared.planned, options.delta).epsilon > options.epsilon:
        prepared, hair = replace(prepared, budget=replace(calibrated, mu=calibrated.mu * (1 - hair))), 2 * hair
    return prepared


def centre_of(units: Units) -> Floats:
    """c: the middle of numbers and of yes and no; 0 of categories and holes, of which a row has one or none."""
    centre = list[float]()
    for block in units.codec.blocks:
        centre += [0.0] * block.width if block.values else [0.5, *[0.0] * (block.width - 1)]
    return np.array(centre)


def table_of(cells: Cells) -> Floats:
    """(cells, width) x − c of a value in the middle of each of a column's public cells."""
    units = Units.of_schema(Schema((cells.column,)), one_hot=True)
    codes = np.arange(cells.size)
    values = pd.DataFrame({cells.column.name: cells.values(codes, np.full(cells.size, 0.5), exact=True)})
    return np.asarray(units.encode(values) - centre_of(units), np.float64)


# -- patients, once ---------------------------------------------------------------------------------------------------


def condense(cohort: Cohort, prepared: PreparedTheorem, context: Context) -> Result:
    """Condense by the variant with a theorem."""
    options, timings = prepared.options, dict[str, float]()
    splitting = context.holdout_split(options.holdout)
    ledger = context.ledger()
    context.log(
        f"budget: ε = {options.epsilon:g} {options.promise} at δ = {options.delta:g}; one noisy sum of "
        f"{prepared.sums.size:,} numbers over {options.parts} parts"
    )
    started = clock.perf_counter()
    table = open_gate(cohort, splitting, prepared, ledger)
    context.progress(step=0, steps=2)
    answer = table.mapped(prepared.sums, mu=prepared.budget.mu)
    del table
    context.progress(step=1, steps=2)
    timings["patients"] = clock.perf_counter() - started

    started = clock.perf_counter()
    made = after(answer, prepared)
    context.progress(step=2, steps=2)
    timings["condense"] = clock.perf_counter() - started
    context.log(f"{len(made.rows)} clusters of noisy means" if not made.doubt else "no answer above the noise")
    return _condensed(made, prepared, splitting, timings, _privacy(made, prepared, ledger, context))


def open_gate(cohort: Cohort, splitting: HoldoutSplit, prepared: PreparedTheorem, ledger: Ledger) -> PrivateTable:
    """The one place of this path that reads patients' rows; what it returns does not give them back."""
    options = prepared.options
    train = splitting.split(cohort).train
    codes: list[Any] = [cells.codes(cohort.features[cells.column.name].iloc[train]) for cells in prepared.cells]
    codes.append(splitting.parts(cohort, options.parts)[train])
    return PrivateTable(
        np.stack([np.asarray(column, np.int64) for column in codes], axis=1),
        [*(cells.size for cells in prepared.cells), options.parts],
        cohort.outcome.take(train).arrays,
        names=[*(cells.column.name for cells in prepared.cells), PART],
        objective=prepared.side.objective,
        budget=prepared.budget,
        ledger=ledger,
        person=None if cohort.person is None else cohort.person[train],
        rows_per_person=options.rows_per_person,
        order=None if cohort.person is None else reading_order(cohort, splitting)[train],  # type: ignore[index]
    )


# -- what left the gate -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisyClusters:
    """Clusters of noisy means; all of it is covered."""

    rows: Floats  # (m, D) in [0, 1]
    label: Index  # (m,)
    count: Floats  # (m,) noisy numbers of rows
    total: Floats  # (classes,) noisy numbers of rows
    least: float  # l_min
    doubt: str = ""


def after(answer: Floats, prepared: PreparedTheorem) -> NoisyClusters:
    """Noisy sums → clusters of means of at least l_min rows → adapted points. Looks at nobody."""
    options = prepared.options
    sums, counts = prepared.sums.read(answer)
    least = prepared.noise / (options.sigma_max or SIGMA_MAX)
    total, classes = counts.sum(axis=0), counts.shape[1]
    none = np.empty((0, prepared.sums.width))
    if total.min() < max(least * np.sqrt(len(counts)), STANDS_OUT * prepared.total_noise):
        doubt = "fewer rows of a class than would stand out from the noise"
        return NoisyClusters(none, np.empty(0, np.int64), np.empty(0), total, least, doubt)
    means, label, held = list[Floats](), list[int](), list[float]()
    for c in range(classes):
        for some, many in merged(sums[:, c], counts[:, c], least, options.ipc):
            means.append(some / many)
            label.append(c)
            held.append(many)
    centroids = np.clip(np.stack(means) + prepared.centre, 0.0, 1.0)
    usable = counts.ravel() >= least
    targets = sums.reshape(-1, sums.shape[2])[usable] / counts.ravel()[usable, None] + prepared.centre
    target = np.tile(np.arange(classes), len(counts))[usable]
    how = Kip(options.alpha, options.adapt_steps, options.adapt_rate, options.layers, options.ridge)
    if len(targets) > 1:
        centroids = adapted(centroids, np.array(label), np.clip(targets, 0.0, 1.0), target, classes, how)
    return NoisyClusters(np.clip(centroids, 0.0, 1.0), np.array(label), np.array(held), total, least)


def merged(sums: Floats, counts: Floats, least: float, most: int) -> list[tuple[Floats, float]]:
    """Parts of one class joined, the smallest with the one of the nearest mean, until all are large enough.

    (sum, count) of at most `most` clusters. `least` rows make a mean of one part stand out from its noise; of k parts,
    whose noises add up, it takes √k times as many, which all together have.
    """
    some, many, joined = list(sums), [float(count) for count in counts], [1] * len(counts)

    def stands_out() -> list[float]:
        return [count / np.sqrt(k) for count, k in zip(many, joined, strict=True)]

    while len(some) > 1 and (min(stands_out()) < least or len(some) > most):
        k = int(np.argmin(stands_out()))
        own, count, parts = some.pop(k), many.pop(k), joined.pop(k)
        means = np.stack([one / max(n, least) for one, n in zip(some, many, strict=True)])
        near = int(((means - own / max(count, least)) ** 2).sum(axis=1).argmin())
        some[near], many[near], joined[near] = some[near] + own, many[near] + count, joined[near] + parts
    return list(zip(some, many, strict=True))


def _condensed(
    made: NoisyClusters, prepared: PreparedTheorem, splitting: HoldoutSplit, timings: dict[str, float], privacy: Privacy
) -> Result:
    used = replace(prepared.schema, notes=())
    rules, codec = Rules(used), Codec.public(used)
    frame = prepared.units.decode(made.rows)
    if rules and len(frame):
        frame = rules.completed(rules.repaired(frame, np.random.default_rng([prepared.options.seed, 0x9005])))
    if not len(frame):
        frame = pd.DataFrame({name: frame[name] if name in frame else pd.Series(dtype=object) for name in used.names})
    nobody = prepared.side.kind.no_rows()
    labels = made.label.astype(nobody.outcome["label"].dtype)
    weight = made.count * (max(float(made.total.sum()), 1.0) / max(float(made.count.sum()), 1.0))
    labelled = Labelled(Outcome(nobody.outcome.kind, {"label": labels}), None, weight) if len(frame) else nobody
    return Result.from_rows(
        features=frame[used.names],
        schema=used,
        labelled=labelled,
        privacy=privacy,
        splitting=splitting,
        notes={"seeds_policy": SEEDS, "scaling": "public"},
        timings=timings,
        codec=codec,
        encoded=codec.encode(frame[used.names]),
        unit=prepared.side.unit,
    )


def _privacy(made: NoisyClusters, prepared: PreparedTheorem, ledger: Ledger, context: Context) -> Privacy:
    from distcondense.methods.clustmix import theorem

    options = prepared.options
    return statement(
        ledger,
        prepared.facts,
        context.earlier(),
        method="clustmix",
        epsilon=options.epsilon,
        delta=options.delta,
        rows_per_person=options.rows_per_person,
        origin=prepared.schema.origin,
        parameters={
            "variant": options.variant,
            "parts": options.parts,
            "l_min": round(made.least, 3),
            "rows_noisy_estimate": round(float(made.total.sum())),
        },
        public=prepared.side.public,
        answer=no_answer(
            made.doubt, float(made.total.sum()), len(prepared.schema.columns), options.epsilon, options.promise
        ),
        constants=json_digest(constants_of((theorem, *MODULES))),
    )
