"""What a run knows before it reads a patient: the generator, the three parts of the budget, every question."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from distcondense.data.cohort import Facts
from distcondense.methods.base import Prepared
from distcondense.methods.dp_geng.allocation import Allocation
from distcondense.methods.dp_geng.generator import RowGenerator
from distcondense.methods.dp_geng.maps import ClassFeatures, Gradients, weights_of
from distcondense.methods.dp_geng.options import ALL, DpGengOptions
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event

HAIR = 1e-7  # relative: what a budget is first shortened by where what is planned replays to more than its ε


@dataclass(frozen=True)
class PreparedDpGeng(Prepared):
    """A run before it reads a patient: its generator, and how the budget is divided."""

    options: DpGengOptions
    generator: RowGenerator
    allocation: Allocation

    @property
    def side(self) -> PrivateSide:
        return self.generator.prepared.side

    @property
    def planned(self) -> tuple[Event, ...]:
        """Everything that will be asked of patients, and its price."""
        return (*self.generator.planned, *self.mapped)

    @property
    def matching_cost(self) -> float:
        """μ of one extractor's class means."""
        return self.allocation.matching / math.sqrt(self.options.extractors)

    @property
    def gradient_cost(self) -> float:
        """μ of one noisy gradient."""
        return self.allocation.expert / math.sqrt(self.options.expert_steps)

    @property
    def mapped(self) -> tuple[Event, ...]:
        """What is asked beyond the generator; of columns and cells only the most is known before."""
        options, classes, unit = self.options, self.side.groups, self.generator.prepared.unit
        weights = weights_of(
            self.generator.widest, options.units, options.features, classes, whole=options.fine_tune == ALL
        )

        def asked(name: str, cells: int, cost: float, times: int) -> tuple[Event, ...]:
            return (Event("gaussian", "mapped", (), cells, cost, noise=1 / cost, by=name, unit=unit),) * times

        return (
            *(
                asked(ClassFeatures.name, classes * options.features, self.matching_cost, options.extractors)
                if options.matching
                else ()
            ),
            *(asked(Gradients.name, weights, self.gradient_cost, options.expert_steps) if options.expert else ()),
        )


def prepare(facts: Facts, options: DpGengOptions) -> PreparedDpGeng:
    """Refuse all that public facts rule out, and divide the calibrated budget."""
    generator, hair = RowGenerator.from_facts(facts, options), HAIR
    prepared = _allocated(facts, generator, generator.budget, options)
    while replay(prepared.planned, options.delta).epsilon > options.epsilon:
        budget = replace(prepared.generator.budget, mu=prepared.generator.budget.mu * (1 - hair))
        prepared, hair = _allocated(facts, generator, budget, options), 2 * hair
    return prepared


def _allocated(facts: Facts, generator: RowGenerator, budget: Budget, options: DpGengOptions) -> PreparedDpGeng:
    return PreparedDpGeng(facts, options, generator.within(budget), Allocation.from_shares(budget.mu, options.shares))
