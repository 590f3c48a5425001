"""The method `clustmix` (3A): approximate by a mixture, adapt by kernel inducing points, anonymise by noise.

Two variants. `paper` follows the paper; its sensitivity argument does not cover what it does, so its ε is as-published.
`theorem` asks patients for noisy sums over a public partition only, through the gate; all else comes after, so its ε is
end-to-end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Context, Prepared, has_classes
from distcondense.methods.clustmix.options import THEOREM, ClustMixOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


class ClustMix:
    """ε is as published, not a theorem; of the variant `theorem` end-to-end."""

    name: ClassVar[str] = "clustmix"
    about: ClassVar[str] = "3A: ε is as published, not a theorem; --variant theorem: ε is end-to-end"
    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = ClustMixOptions

    def takes(self, kind: Any) -> bool:
        return has_classes(kind)

    def prepare(self, facts: Facts, options: ClustMixOptions) -> Prepared:
        if options.variant != THEOREM:
            return Prepared(facts, options)
        from distcondense.methods.clustmix.theorem import prepare, refuse

        if facts.schema is None:  # to be inferred, and trusted: there is nothing to plan yet
            refuse(facts, options)
            return Prepared(facts, options)
        return prepare(facts, options)

    def condense(self, cohort: Cohort, prepared: Any, context: Context) -> dict[int, Result]:
        from distcondense.methods.clustmix import paper, theorem

        options: ClustMixOptions = prepared.options
        if options.variant == THEOREM:
            return {options.ipc: theorem.condense(cohort, prepared, context)}
        return {options.ipc: paper.condense(cohort, options, context)}


METHOD = ClustMix()
