"""The published method (Thakur et al. 2026 §4): zero-order optimisation of synthetic rows against a reference model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Context, Prepared
from distcondense.methods.published.options import PublishedOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


class Published:
    """ε is as published, not a theorem."""

    name: ClassVar[str] = "published"
    about: ClassVar[str] = "Thakur et al. 2026: ε is as published, not a theorem; noise=False: none at all"
    guarantee: ClassVar[str] = "as-published"
    Options: ClassVar[Any] = PublishedOptions

    def takes(self, kind: Any) -> bool:
        from distcondense.methods.zero_order.objectives import LOSSES

        return next(iter(kind.learners.values())).link in LOSSES

    def prepare(self, facts: Facts, options: PublishedOptions) -> Prepared:
        for reference in options.against:
            if isinstance(reference, str):
                facts.kind.learner(reference)
        return Prepared(facts, options)

    def condense(self, cohort: Cohort, prepared: Prepared, context: Context) -> dict[int, Result]:
        from distcondense.methods.published.condense import condense

        return {prepared.options.ipc: condense(cohort, prepared.options, context)}


METHOD = Published()
