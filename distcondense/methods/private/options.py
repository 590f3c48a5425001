"""The settings of the private method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from distcondense.errors import SettingsError
from distcondense.methods.base import Options, option

DELTA_MOST = 0.01


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(Options):
    """What a private run is made of."""

    guarantee: ClassVar[str] = "end-to-end"
    epsilon: float = option(
        1.0, "Budget. Private: end-to-end, 1 if not said. Published: as-published.",
        typical="typical values are 0.5 to 5",
    )  # fmt: skip
    delta: float = option(1e-5, "δ of the budget.")
    reference: str | None = option(
        None, "The model that the rows are for: xgb, cox, aft, … of the outcome's kind.",
        typical="say a learner's name: a model from elsewhere is not covered by the guarantee",
    )  # fmt: skip
    rows_per_person: int = option(5, "Rows of one person beyond this many are not read.")
    holdout: float = option(0.2, "Share of persons left out of the fit, to measure on; 0: nobody.")
    horizon: float | None = option(
        None, "Survival: public end of follow-up, if the schema does not say.",
        typical="the length of follow-up by design, in the unit of the time column",
    )  # fmt: skip
    trust_inferred_schema: bool = option(
        False, "Take bounds and categories off the patients; the guarantee is then called conditional."
    )
    categories_checked: tuple[str, ...] = option(
        (), "Column whose categories look like identifiers and were checked to be none. May be repeated.",
        typical="a list of columns",
    )  # fmt: skip

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
        yield from self.need(
            self.horizon is None or 0 < self.horizon < float("inf"), "horizon", "must be above 0 and finite"
        )
