"""The settings of the private method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distcondense.errors import SettingsError
from distcondense.methods.base import one_by_one, option
from distcondense.methods.gate_options import GateOptions


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(GateOptions):
    """The settings of the private method: the budget, who is protected, and who rows are for.

    `epsilon` is end-to-end, or conditional where an inferred schema is trusted. `ipc` may be a list: several sets from
    one read of the patients at the price of one. `reference` shapes what comes after the gate and costs nothing.
    """

    ipc: int | tuple[int, ...] = option(  # type: ignore[assignment]  # wider than every method's: see `ipcs`
        100, "Records per class, or several: 50,100,500."
    )
    reference: str | tuple[str, ...] | None = option(
        None,
        "Model that rows are for: xgb, cox, … Repeatable.",
        typical="say a learner's name: a model from elsewhere is not covered by the guarantee",
    )
    horizon: float | None = option(
        None,
        "Survival: end of follow-up; else the schema's.",
        typical="the length of follow-up by design, in the unit of the time column",
    )

    @property
    def named(self) -> tuple[str, ...]:
        """Learners that the rows are for; the first is the student that a run is scored with."""
        return one_by_one(self.reference)

    @property
    def among(self) -> tuple[str, ...]:
        """Learners whose students alone choose rows: those named, where several are; all that there are, if none is."""
        return self.named if len(self.named) > 1 else ()

    @property
    def ipcs(self) -> tuple[int, ...]:
        return self.ipc if isinstance(self.ipc, tuple) else (self.ipc,)

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(
            self.horizon is None or 0 < self.horizon < float("inf"), "horizon", "must be above 0 and finite"
        )
        yield from self.need(
            self.reference is None or len(set(self.named)) == len(self.named) > 0,
            "reference",
            "must name at least one, and none twice",
        )

    def to_dict(self) -> dict[str, Any]:
        alone = next(iter(self.named), None)
        return {**super().to_dict(), "reference": list(self.named) if self.among else alone}
