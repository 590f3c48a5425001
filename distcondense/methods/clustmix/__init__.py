"""The method `clustmix` (3A): approximate by a mixture, adapt by kernel inducing points, anonymise by noise.

Two variants. `paper` follows the paper; its sensitivity argument does not cover what it does, so its ε is as-published.
`theorem` asks patients for noisy sums over a public partition only, through the gate; all else comes after, so its ε is
end-to-end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Condensed, Context, has_classes, refuse_kind
from distcondense.methods.clustmix.options import THEOREM, ClustMixOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.privacy.events import Event


class ClustMix:
    """ε is as published, not a theorem; of the variant `theorem` end-to-end."""

    name: ClassVar[str] = "clustmix"
    about: ClassVar[str] = "3A: ε is as published, not a theorem; --variant theorem: ε is end-to-end"
    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = ClustMixOptions

    def takes(self, kind: Any) -> bool:
        return has_classes(kind)

    def refuse(self, facts: Facts, options: ClustMixOptions) -> None:
        refuse_kind(self, facts.kind)
        if options.variant == THEOREM:
            from distcondense.methods.clustmix.theorem import public_side

            public_side(facts, options)

    def planned(self, facts: Facts, options: ClustMixOptions) -> tuple[Event, ...]:
        from distcondense.privacy.events import Event

        if options.variant != THEOREM:
            return (Event.nonprivate(),)
        from distcondense.methods.clustmix.theorem import public_side

        public = public_side(facts, options)
        return () if public is None else public.planned

    def condense(self, cohort: Cohort, options: ClustMixOptions, context: Context) -> Condensed:
        if options.variant == THEOREM:
            from distcondense.methods.clustmix.theorem import condense
        else:
            from distcondense.methods.clustmix.paper import condense
        return condense(cohort, options, context)


METHOD = ClustMix()
