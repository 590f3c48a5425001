"""PSyGenTAB (PSyGenTAB): utility U under the constraint P ≥ P_min, by the augmented Lagrangian, around two generators.

sampler "network": Algorithm 1 trains a small autoregressive network on patients; no guarantee, and none is claimed
sampler "private": the sampling-time variant steers the private method's sampler, after its budget is spent
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.errors import SettingsError
from distcondense.methods.base import Context, Prepared, method_named
from distcondense.methods.psygentab.options import NETWORK, PsygentabOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


class Psygentab:
    """No guarantee with the network; with the private sampler, its ε."""

    name: ClassVar[str] = "psygentab"
    about: ClassVar[str] = "PSyGenTAB: NO guarantee with its network; sampler private: ε end-to-end"
    guarantee: ClassVar[str] = "none"  # by default; `Options.promise` says what the sampler makes of it
    Options: ClassVar[Any] = PsygentabOptions

    def takes(self, kind: Any) -> bool:
        from distcondense.outcomes.base import Kind

        own: Any = kind if isinstance(kind, type) else type(kind)
        return own.private_side is not Kind.private_side

    def prepare(self, facts: Facts, options: PsygentabOptions) -> Prepared:
        if options.sampler == NETWORK:
            facts.kind.learner(options.reference)
            _need_jax()
            _refuse_unknown(facts)
            return Prepared(facts, options)
        from distcondense.methods.psygentab.condense import PreparedSteering

        return PreparedSteering(facts, options, method_named("private").prepare(facts, options.private))

    def condense(self, cohort: Cohort, prepared: Any, context: Context) -> dict[int, Result]:
        from distcondense.methods.psygentab.condense import network, steered_private

        options: PsygentabOptions = prepared.options
        if options.sampler == NETWORK:
            return {options.ipc: network(cohort, options, context)}
        return {options.ipc: steered_private(cohort, prepared, context)}


def _need_jax() -> None:
    missing = [name for name in ("jax", "optax") if find_spec(name) is None]
    if missing:
        raise SettingsError(
            "sampler network",
            "needs JAX and optax",
            found=f"no {' and no '.join(missing)}",
            fix='pip install "distcondense[neural]", or say --sampler private, which needs neither',
        )


def _refuse_unknown(facts: Facts) -> None:
    """A network's cells are fixed before it is trained: nobody would pay for finding them."""
    unknown = [] if facts.schema is None else [column.name for column in facts.schema.columns if column.unknown]
    if unknown:
        raise SettingsError(
            "sampler network",
            "needs bounds and categories of every column",
            found=f"{unknown[0]!r} declared private",
            fix="declare them, or say --sampler private, which finds them with noise",
        )


METHOD = Psygentab()
