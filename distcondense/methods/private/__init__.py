"""The private method: the whole budget once, behind a gate; then everything from what left it.

plan and budget (public) → cells (public) → gate → private model and marginals → rows, labels, weights
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Condensed, Context, refuse_kind
from distcondense.methods.private.options import PrivateOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.privacy.events import Event


class Private:
    """ε is end-to-end, a theorem."""

    name: ClassVar[str] = "private"
    about: ClassVar[str] = "the default: ε is end-to-end, a theorem"
    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = PrivateOptions
    takes_large: ClassVar[bool] = True

    def takes(self, kind: Any) -> bool:
        from distcondense.outcomes.base import Kind

        own: Any = kind if isinstance(kind, type) else type(kind)
        return own.private_side is not Kind.private_side

    def refuse(self, facts: Facts, options: PrivateOptions) -> None:
        from distcondense.methods.private.condense import public_side

        refuse_kind(self, facts.kind)
        public_side(facts, options)

    def planned(self, facts: Facts, options: PrivateOptions) -> tuple[Event, ...]:
        from distcondense.methods.private.condense import public_side

        return public_side(facts, options).planned

    def condense(self, cohort: Cohort, options: PrivateOptions, context: Context) -> Condensed:
        from distcondense.methods.private.condense import condense

        return condense(cohort, options, context)

    def condense_each(self, cohort: Cohort, options: PrivateOptions, context: Context) -> dict[int, Condensed]:
        from distcondense.methods.private.condense import condense_each

        return condense_each(cohort, options, context)


METHOD = Private()
