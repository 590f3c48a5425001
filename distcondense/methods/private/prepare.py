"""What a private run knows before it reads a patient: its cells, plan and budget, and so all that it will ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from distcondense.data.cells import FINE, MICRO, Cells, public_cells
from distcondense.data.cohort import Facts
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.errors import SchemaError
from distcondense.methods.base import Prepared
from distcondense.methods.gated import check_categories, refuse_unpublic
from distcondense.methods.private.domain import most_cells
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.plan import OWN_GROUPS, Plan
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy.budget import Budget
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Event, Unit


@dataclass(frozen=True)
class PreparedPrivate(Prepared):
    """A private run before it reads a patient: objective, cells, plan and calibrated budget."""

    options: PrivateOptions
    schema: Schema
    side: PrivateSide
    cells: tuple[Cells, ...]
    plan: Plan
    budget: Budget

    @property
    def unit(self) -> Unit:
        """Whose presence is protected."""
        return "person" if self.facts.by_person else "row"

    @property
    def rows_per_person(self) -> int:
        """Rows of one person that are read, at most."""
        return self.options.rows_per_person if self.facts.by_person else 1

    @cached_property
    def planned(self) -> tuple[Event, ...]:
        """Everything that will be asked of patients, and its price."""
        return self.plan.events(self.budget, self.cells, self.side, self.unit, self.rows_per_person)

    @property
    def budget_words(self) -> str:
        return f"ε = {self.budget.epsilon:g} {self.options.promise} at δ = {self.budget.delta:g}"

    @property
    def plan_words(self) -> str:
        chosen = f"{self.plan.picks} columns chosen privately, " if self.plan.picks else ""
        pairs = f", up to {self.plan.pairs} pairs of columns" if self.plan.pairs else ""
        return f"{chosen}{self.plan.used} histograms, {self.plan.epochs} rounds of gradient sums{pairs}"


def refuse(facts: Facts, options: PrivateOptions) -> None:
    """Raise what can be told before the schema is known."""
    for name in options.named:
        facts.kind.learner(name)
    refuse_unpublic(facts, trusted=options.trust_inferred_schema, epsilon=options.epsilon, promise=options.promise)
    facts.kind.private_side(horizon=options.horizon)


def prepare(facts: Facts, options: PrivateOptions, *, part: float = 1.0, choices: bool = True) -> PreparedPrivate:
    """Refuse all that public facts rule out, plan the questions and calibrate the budget.

    `part` of μ² is for what is planned here, where a method asks something else besides. `choices`: `Plan.choices`.
    """
    refuse(facts, options)
    schema, side = facts.schema, facts.kind.private_side(horizon=options.horizon)
    assert schema is not None
    check_categories(schema, options.categories_checked)
    rules = Rules(schema)
    rules.check()
    asked = schema.without(rules.derived)  # what is computed is not asked for
    cells = public_cells(asked, MICRO)
    plan = replace(Plan.for_table(len(cells), side, cells), part=part, choices=choices)
    _check_cells(cells, plan, side)
    return PreparedPrivate(facts, options, schema, side, cells, plan, plan.budget(options.epsilon, options.delta))


def _check_cells(cells: Sequence[Cells], plan: Plan, side: PrivateSide) -> None:
    """The account covers so many noisy numbers and no more."""
    largest = sorted((most_cells(cell) for cell in cells), reverse=True)[: plan.used]
    own = len(plan.own) * plan.own_cells(side) + plan.domain * (FINE + 1) + plan.pairs * OWN_GROUPS**2
    if (side.groups + len(side.objective.scales) * plan.epochs) * sum(largest) + own > CELLS_MAX:
        raise SchemaError(
            "schema",
            f"must not need more than {CELLS_MAX:,} noisy answers in all",
            found=f"{sum(largest):,} categories and cells in {len(largest)} columns",
            fix="leave out columns with very many categories, or group them",
        )
