"""The settings that every method shares whose patients are read through the gate: the budget, and who is protected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from distcondense.errors import SettingsError
from distcondense.methods.base import Options, option

DELTA_MOST = 0.01  # of an end-to-end guarantee: beyond it ε says little


@dataclass(frozen=True, kw_only=True)
class GateOptions(Options):
    """A budget that is spent behind the gate, end-to-end, and whose rows are read.

    A method whose every look at patients goes through the gate inherits these, with their checks and their words.
    """

    guarantee: ClassVar[str] = "end-to-end"
    epsilon: float = option(1.0, "Budget, end-to-end.", typical="typical values are 0.5 to 5")
    delta: float = option(1e-5, "δ of the budget.")
    rows_per_person: int = option(5, "Rows of a person that are read, at most.")
    holdout: float = option(0.2, "Share of persons left out, to measure on.")
    trust_inferred_schema: bool = option(False, "Bounds off the patients: a conditional guarantee.")
    categories_checked: tuple[str, ...] = option(
        (), "Column whose categories are no identifiers.", typical="a list of columns"
    )

    @property
    def promise(self) -> str:
        """Before a row is read nobody knows what will be inferred: what may be is not called a theorem."""
        return "conditional" if self.trust_inferred_schema else self.guarantee

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        yield from self.need(
            not DELTA_MOST < self.delta < 1, "delta", f"of an end-to-end guarantee must be at most {DELTA_MOST}"
        )
        yield from self.need(1 <= self.rows_per_person <= 2**16, "rows_per_person", "must be in [1, 65536]")
        yield from self.need(0 <= self.holdout < 1, "holdout", "must be in [0, 1)")
