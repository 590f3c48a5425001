"""DP-generated rows (DP-GENG §3.1): the sampler of the private method is the generator, fitted with μ_G.

The one file here that knows that method. Its model, marginals and pairs are fitted through the gate as they are there,
with a share of μ²; choices of pairs keep their own small share. Whole rows are then drawn from it and get a class by
the model's probabilities: T̂, which stands for patients wherever they need not be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Schema
from distcondense.methods.base import Context
from distcondense.methods.dp_geng.options import DpGengOptions
from distcondense.methods.private.condense import open_gate, statement_of
from distcondense.methods.private.constants import constants_digest
from distcondense.methods.private.domain import most_cells
from distcondense.methods.private.figures import model_figures
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.placement import population, values_of
from distcondense.methods.private.prepare import PreparedPrivate, prepare
from distcondense.methods.private.prepare import refuse as refuse_sampler
from distcondense.methods.private.sampling import legal_rules, released_rows
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure

DRAW, CLASS = 0xD601, 0xD602  # what seeds rows and their classes


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

    @classmethod
    def from_facts(cls, facts: Facts, options: DpGengOptions) -> RowGenerator:
        """Everything that can be refused without reading a patient is refused here."""
        return cls(prepare(facts, sampler_options(options), part=options.shares[0]))

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
        return fit_private(table, own.cells, own.plan, own.side, progress, own.options.categories_checked)

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
        codes, inside = population(learned, rows, np.random.default_rng([seed, DRAW]), legal)
        chance = self.prepared.side.probabilities(learned.model.margin(codes))
        upto = np.cumsum(chance, axis=1)
        at = np.random.default_rng([seed, CLASS]).random(len(codes))
        label = (at[:, None] > upto[:, :-1] / upto[:, -1:]).sum(1)
        return Generated(codes, inside, _everywhere(label.astype(np.int64), chance), chance)

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
        return model_figures(learned, self.prepared.side, self.prepared.side.kind.labels)

    def statement(self, learned: PrivateFit, ledger: Ledger, context: Context, own: tuple[ModuleType, ...]) -> Privacy:
        """What the whole ledger pays for, this method's own questions included; `own` modules have constants too."""
        said = statement_of(self.prepared, learned, ledger, context.earlier())
        return replace(said, constants=constants_digest(type(self.prepared.facts.kind), own))

    def rows_of(self, learned: PrivateFit, codes: Index, inside: Floats) -> Matrix:
        """Cells as the numbers of a public codec."""
        cells = learned.model.cells
        return Codec.public(Schema(tuple(one.column for one in cells))).encode(values_of(cells, codes, inside))


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
