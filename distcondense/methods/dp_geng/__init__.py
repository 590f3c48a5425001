"""The method dp-geng (DP-GENG): rows distilled against patients' features and an expert, all through the gate.

    allocation.py  μ_G, μ_F, μ_E (§3.4, Theorem 2)           prepare.py   all that will be asked, before a row is read
    generator.py   the DP-generated rows (§3.1)              encoding.py  cells ↔ the numbers that networks see
    networks.py    extractors and expert (§3.2, §3.3)        maps.py      what is asked of patients (eq. 1, Alg. 2)
    distil.py      Alg. 1 from line 4 on (eqs 2 to 4)        run.py, condense.py    one run from a cohort to a set

What is as in the paper and what is not, by equation: docs/methods/dp-geng.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Context, Prepared
from distcondense.methods.dp_geng.options import DpGengOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


class DpGeng:
    """ε is end-to-end, a theorem: every look at patients goes through the gate."""

    name: ClassVar[str] = "dp-geng"
    about: ClassVar[str] = "DP-GENG, classes only, needs distcondense[neural]: ε is end-to-end, a theorem"
    guarantee: ClassVar[str] = "end-to-end"
    Options: ClassVar[Any] = DpGengOptions

    def takes(self, kind: Any) -> bool:
        from distcondense.outcomes.base import Kind

        own: Any = kind if isinstance(kind, type) else type(kind)
        return own.private_side is not Kind.private_side and own.groups_named == Kind.groups_named

    def prepare(self, facts: Facts, options: DpGengOptions) -> Prepared:
        from distcondense.methods.dp_geng.networks import refuse_without_jax

        refuse_without_jax()
        if facts.schema is None:  # to be inferred, and trusted: there is nothing to plan yet
            from distcondense.methods.dp_geng.generator import refuse

            refuse(facts, options)
            return Prepared(facts, options)
        from distcondense.methods.dp_geng.prepare import prepare

        return prepare(facts, options)

    def condense(self, cohort: Cohort, prepared: Any, context: Context) -> dict[int, Result]:
        from distcondense.methods.dp_geng.condense import condense

        return {prepared.options.ipc: condense(cohort, prepared, context)}


METHOD = DpGeng()
