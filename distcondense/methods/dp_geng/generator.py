"""DP-generated rows (DP-GENG §3.1): T̂, which stands for patients wherever they need not be asked, made with μ_G.

    private    the sampler of the private method: its model, marginals and pairs are fitted as they are there, with a
               share of μ²; choices of pairs keep their own small share. Whole rows get a class by its probabilities.
    tab-pe     private evolution (evolution.py): a histogram of one column by class, and T − 1 votes
    marginals  a histogram of every column by class: rows hang together by their class alone

The one file here that knows the private method; the other two share its way of opening the gate and of releasing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.cells import public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.persons import HoldoutSplit
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.errors import SettingsError
from distcondense.methods.base import Context
from distcondense.methods.dp_geng.evolution import ROUNDS, VOTES, Space, Votes, crowd, evolved, rate
from distcondense.methods.dp_geng.options import MARGINALS, PRIVATE, TAB_PE, DpGengOptions
from distcondense.methods.private.condense import open_gate, statement_of
from distcondense.methods.private.constants import constants_digest
from distcondense.methods.private.domain import most_cells
from distcondense.methods.private.figures import model_figures
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.placement import Legal, population, values_of
from distcondense.methods.private.prepare import PreparedPrivate, prepare
from distcondense.methods.private.prepare import refuse as refuse_sampler
from distcondense.methods.private.sampling import legal_rules, released_rows
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure

DRAW, CLASS, EVOLUTION = 0xD601, 0xD602, 0xD608  # what seeds rows, their classes, and populations
CELLS = {TAB_PE: 32, MARGINALS: 16}  # of a number
EVOLVED = 500  # rows of each class that evolve
LITTLE = 0.5  # of a cell that nobody, or noise, has emptied
STANDS_OUT = 3.0  # standard deviations of its noise that a class's number of rows must have


@dataclass(frozen=True)
class Generated:
    """T̂: rows as cells, where in their cells, their classes, and the probabilities these were drawn by."""

    codes: Index  # (n, d)
    inside: Floats  # (n, d) in [0, 1)
    label: Index  # (n,)
    chance: Floats  # (n, classes)


@dataclass(frozen=True)
class RowGenerator:
    """What is public about the sampler: the other method's public side, whose plan is a part of the whole budget."""

    prepared: PreparedPrivate
    way: str = PRIVATE
    share: float = 1.0  # of μ²

    @classmethod
    def from_facts(cls, facts: Facts, options: DpGengOptions) -> RowGenerator:
        """Everything that can be refused without reading a patient is refused here."""
        prepared, share = prepare(facts, sampler_options(options), part=options.shares[0]), options.shares[0]
        if options.generator == PRIVATE:
            return cls(prepared, share=share)
        if unknown := [column.name for column in prepared.schema.columns if column.unknown]:
            raise SettingsError(
                f"generator {options.generator}",
                "needs bounds and categories of every column",
                found=f"{unknown[0]!r} declared private",
                fix=f"declare them, or say --generator {PRIVATE}, which finds them with noise",
            )
        cells = public_cells(prepared.schema.without(Rules(prepared.schema).derived), CELLS[options.generator])
        budget = Budget.calibrate(epsilon=options.epsilon, delta=options.delta)  # nothing is chosen
        return cls(replace(prepared, cells=cells, budget=budget), options.generator, share)

    @property
    def planned(self) -> tuple[Event, ...]:
        """What it asks of patients, and its price."""
        if self.way == PRIVATE:
            return self.prepared.planned
        cells, groups, cost = self.prepared.cells, self.prepared.side.groups, self.cost

        def histogram(j: int) -> Event:
            own, unit = cells[j], self.prepared.unit
            return Event("gaussian", "histogram", (own.column.name,), groups * own.size, cost, by="label", unit=unit)

        if self.way == MARGINALS:
            return tuple(map(histogram, range(len(cells))))
        names = tuple(own.column.name for own in cells)
        votes = [
            Event("gaussian", "mapped", names, groups * EVOLVED * crowd(t), cost, by=VOTES, unit=self.prepared.unit)
            for t in range(1, ROUNDS)
        ]
        return (histogram(self.smallest), *votes)

    @property
    def cost(self) -> float:
        """μ of one answer, of as many as there are."""
        many = len(self.prepared.cells) if self.way == MARGINALS else ROUNDS
        return self.prepared.budget.mu * math.sqrt(self.share / many)

    @property
    def smallest(self) -> int:
        """The column of fewest cells: its histogram counts the classes with the least noise."""
        return int(np.argmin([cells.size for cells in self.prepared.cells]))

    @property
    def options(self) -> PrivateOptions:
        """Of the sampler."""
        return self.prepared.options

    @property
    def budget(self) -> Budget:
        """All that a run may spend."""
        return self.prepared.budget

    def within(self, budget: Budget) -> RowGenerator:
        return replace(self, prepared=replace(self.prepared, budget=budget))

    @property
    def widest(self) -> int:
        """Numbers that a row becomes for a network, at most: one for each category, two for a number."""
        return sum(2 if cells.numeric else most_cells(cells) for cells in self.prepared.cells)

    def fitted(
        self, cohort: Cohort, splitting: HoldoutSplit, ledger: Ledger, progress: Callable[[int, int], None]
    ) -> PrivateFit:
        """The sampler, fitted through the gate with its share of μ²."""
        table = open_gate(cohort, splitting, self.prepared, ledger)
        own = self.prepared
        if self.way == MARGINALS:
            asked = []
            for j in range(len(own.cells)):
                asked.append(table.histogram((j,), by="label", mu=self.cost))
                progress(j + 1, len(own.cells))
            counts = np.mean([one.sum(axis=1) for one in asked], axis=0)
            noise = math.sqrt(sum(cells.size for cells in own.cells)) / len(own.cells) / self.cost
            return self._fit(counts, noise, [np.maximum(one, 0) for one in asked])
        if self.way == TAB_PE:
            counts = table.histogram((self.smallest,), by="label", mu=self.cost).sum(axis=1)
            noise = math.sqrt(own.cells[self.smallest].size) / self.cost
            columns = tuple(range(len(own.cells)))

            def vote(t: int, tables: tuple[tuple[Floats, ...], ...]) -> Floats:
                progress(t, ROUNDS - 1)
                return table.mapped(Votes(columns, tables, own.side.objective), mu=self.cost)

            kept = evolved(
                Space.from_cells(own.cells),
                own.side.groups,
                EVOLVED,
                vote,
                [rate(t) for t in range(ROUNDS - 1)],
                np.random.default_rng([own.options.seed, EVOLUTION]),
            )
            tables = [
                np.stack([np.bincount(rows[:, j], minlength=cells.size) for rows in kept]).astype(np.float64)
                for j, cells in enumerate(own.cells)
            ]
            return replace(self._fit(counts, noise, tables), facts={"evolved": kept})
        return fit_private(table, own.cells, own.plan, own.side, progress, own.options.categories_checked)

    def _fit(self, counts: Floats, noise: float, asked: Sequence[Floats]) -> PrivateFit:
        """Classes' noisy numbers and (classes, cells) tables as what a private fit is; its model is naive Bayes."""
        own, rows = self.prepared, np.maximum(counts, 1.0)
        shares = rows / rows.sum()
        marginals = [(one + LITTLE) / (one + LITTLE).sum(axis=1, keepdims=True) for one in asked]
        logs, prior = [np.log(one) for one in marginals], np.log(shares)
        one_score = own.side.objective.scores == 1
        model = AdditiveModel(
            own.cells,
            float(prior[1] - prior[0]) if one_score else prior,
            tuple(log[1] - log[0] if one_score else log for log in logs),
            own.side.link,
            f"naive Bayes of {self.way}",
        )
        columns = tuple(range(len(own.cells)))
        doubt = "" if counts.min() > STANDS_OUT * noise else "fewer rows of a class than would stand out from the noise"
        return PrivateFit(
            model, columns, tuple(marginals), float(rows.sum()), shares, 0.0, own.side.objective, doubt=doubt
        )

    def opened(self, cohort: Cohort, splitting: HoldoutSplit, learned: PrivateFit, ledger: Ledger) -> PrivateTable:
        """The gate again, on the cells that the fit has found: same ledger, same budget, the rest of it."""
        found = {cells.column.name: cells for cells in learned.model.cells}
        unlisted = [cells.column.name for cells in self.prepared.cells if not cells.numeric and cells.column.unknown]
        here = tuple(
            cells if cells.column.name in unlisted else found[cells.column.name]
            for cells in self.prepared.cells
            if cells.column.name in found
        )
        table = open_gate(cohort, splitting, replace(self.prepared, cells=here), ledger)
        for place, cells in enumerate(here):
            if cells.column.name in unlisted:  # the last of its cells are those of other values, and of holes
                told = found[cells.column.name]
                table.adopt(place, [str(label) for label in told.column.categories[:-1]], hole=told.hole)
        return table

    def drawn(self, learned: PrivateFit, rows: int, seed: int) -> Generated:
        """T̂, whole rows that obey the rules of the domain, each with a class drawn by the model's probabilities."""
        legal = legal_rules(learned, self.prepared.schema)
        if self.way != PRIVATE:
            return self._drawn(learned, rows, seed, legal)
        codes, inside = population(learned, rows, np.random.default_rng([seed, DRAW]), legal)
        chance = self.prepared.side.probabilities(learned.model.margin(codes))
        upto = np.cumsum(chance, axis=1)
        at = np.random.default_rng([seed, CLASS]).random(len(codes))
        label = (at[:, None] > upto[:, :-1] / upto[:, -1:]).sum(1)
        return Generated(codes, inside, _everywhere(label.astype(np.int64), chance), chance)

    def _drawn(self, learned: PrivateFit, rows: int, seed: int, legal: Legal | None) -> Generated:
        """Rows of each class as common as it is; of those that obey the rules, where any does."""
        rng, classes = np.random.default_rng([seed, DRAW]), len(learned.shares)
        label = np.repeat(np.arange(classes), np.maximum(np.rint(rows * learned.shares).astype(np.int64), 1))
        if self.way == TAB_PE:
            evolution = enumerate(learned.facts["evolved"])
            codes = np.concatenate([of[rng.integers(len(of), size=(label == k).sum())] for k, of in evolution])
        else:
            each = zip(learned.marginals, self.prepared.cells, strict=True)
            codes = np.stack([_column(by_class, label, cells.size, rng) for by_class, cells in each], axis=1)
        inside = rng.random(codes.shape)
        if legal is not None and (obeys := legal(values_of(self.prepared.cells, codes, inside))).any():
            keep = obeys | ~np.isin(label, label[obeys])  # a class of which no row obeys is repaired when released
            codes, inside, label = codes[keep], inside[keep], label[keep]
        chance = np.eye(classes)[label]
        if self.way == MARGINALS:
            chance = self.prepared.side.probabilities(learned.model.margin(codes))
        return Generated(codes, inside, label, chance)

    # ---- what is released

    def nothing(self, learned: PrivateFit) -> pd.DataFrame:
        """No rows of the used columns."""
        none = np.empty((0, len(learned.model.cells)), np.int64)
        return values_of(learned.model.cells, none, none.astype(np.float64))

    def released(self, learned: PrivateFit, values: pd.DataFrame) -> tuple[pd.DataFrame, Schema, Codec, Matrix]:
        """Values of the used columns as they are released: (legal, schema, codec, encoded)."""
        return released_rows(learned, self.prepared.schema, values, self.options.seed)

    def shown(self, learned: PrivateFit) -> Mapping[str, tuple[Figure, ...]]:
        """Of the sampler, for everybody."""
        if self.way != PRIVATE:
            return {}
        return model_figures(learned, self.prepared.side, self.prepared.side.kind.labels)

    def statement(self, learned: PrivateFit, ledger: Ledger, context: Context, own: tuple[ModuleType, ...]) -> Privacy:
        """What the whole ledger pays for, this method's own questions included; `own` modules have constants too."""
        said = statement_of(self.prepared, learned, ledger, context.earlier())
        return replace(said, constants=constants_digest(type(self.prepared.facts.kind), own))

    def rows_of(self, learned: PrivateFit, codes: Index, inside: Floats) -> Matrix:
        """Cells as the numbers of a public codec."""
        cells = learned.model.cells
        return Codec.public(Schema(tuple(one.column for one in cells))).encode(values_of(cells, codes, inside))


def _column(by_class: Floats, label: Index, size: int, rng: np.random.Generator) -> Index:
    """(n,) a cell for each row, by the shares of its class."""
    codes = np.empty(len(label), np.int64)
    for k, share in enumerate(by_class):
        codes[label == k] = rng.choice(size, (label == k).sum(), p=share / share.sum())
    return codes


def refuse(facts: Facts, options: DpGengOptions) -> None:
    """Raise what can be told before the schema is known."""
    refuse_sampler(facts, sampler_options(options))


def sampler_options(options: DpGengOptions) -> PrivateOptions:
    """The settings of the sampler that a run's settings ask for."""
    return PrivateOptions(
        epsilon=options.epsilon,
        delta=options.delta,
        seed=options.seed,
        rows_per_person=options.rows_per_person,
        holdout=options.holdout,
        trust_inferred_schema=options.trust_inferred_schema,
        categories_checked=options.categories_checked,
    )


def _everywhere(label: Index, chance: Floats) -> Index:
    """Classes as they are; one that nobody was drawn for gets the rows that the model finds likeliest to be in it."""
    few = max(1, len(label) // 100)
    for value in range(chance.shape[1]):
        if not (label == value).any():
            label[np.argsort(-chance[:, value], kind="stable")[:few]] = value
    return label
