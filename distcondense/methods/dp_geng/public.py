"""What a run knows before it reads a patient: the generator, the three parts of the budget, every question."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from distcondense.data.cohort import Facts
from distcondense.methods.dp_geng.allocation import Allocation
from distcondense.methods.dp_geng.generator import Generator
from distcondense.methods.dp_geng.maps import ClassFeatures, Gradients, weights_of
from distcondense.methods.dp_geng.options import ALL, DpGengOptions
from distcondense.outcomes.private_side import PrivateSide
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event

HAIR = 1e-7  # relative: what a budget is first shortened by where what is planned replays to more than its ε


@dataclass(frozen=True)
class Public:
    """What a run knows before it reads a patient."""

    generator: Generator
    allocation: Allocation
    options: DpGengOptions

    @property
    def side(self) -> PrivateSide:
        return self.generator.public.side

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
        options, classes, unit = self.options, self.side.groups, self.generator.public.unit
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


def public_side(facts: Facts, options: DpGengOptions) -> Public:
    """Everything that can be refused without reading a patient is refused here."""
    generator, hair = Generator.of(facts, options), HAIR
    public = _allocated(generator, generator.budget, options)
    while replay(public.planned, options.delta).epsilon > options.epsilon:
        budget = replace(public.generator.budget, mu=public.generator.budget.mu * (1 - hair))
        public, hair = _allocated(generator, budget, options), 2 * hair
    return public


def _allocated(generator: Generator, budget: Budget, options: DpGengOptions) -> Public:
    return Public(generator.within(budget), Allocation.of(budget.mu, options.shares), options)
