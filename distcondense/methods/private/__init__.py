"""The private method: the whole budget once, behind a gate; then everything from what left it.

plan and budget (public) → cells (public) → gate → private model and marginals → rows, labels, weights
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Context, Prepared
from distcondense.methods.private.options import PrivateOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


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

    def prepare(self, facts: Facts, options: PrivateOptions) -> Prepared:
        from distcondense.methods.private.prepare import prepare, refuse

        if facts.schema is None:  # to be inferred, and trusted: there is nothing to plan yet
            refuse(facts, options)
            return Prepared(facts, options)
        return prepare(facts, options)

    def condense(self, cohort: Cohort, prepared: Any, context: Context) -> dict[int, Result]:
        from distcondense.methods.private.condense import condense

        return condense(cohort, prepared, context)


METHOD = Private()
