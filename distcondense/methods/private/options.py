"""The settings of the private method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distcondense.errors import SettingsError
from distcondense.methods.base import name_of, one_by_one, option
from distcondense.methods.gate_options import GateOptions
from distcondense.methods.zero_order import PATHS

CHOSEN, ZERO_ORDER = PLACEMENTS = ("chosen", "zero-order")
PRIVATE_MODEL, STUDENTS = REFERENCES = ("private", "students")


@dataclass(frozen=True, kw_only=True)
class PrivateOptions(GateOptions):
    """The settings of the private method: the budget, who is protected, and how rows are placed.

    `epsilon` is end-to-end, or conditional where an inferred schema is trusted. `ipc` may be a list: several sets from
    one read of the patients at the price of one. `reference`, `placement`, `references`, `moves` and `path` shape what
    comes after the gate and cost nothing.
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
    placement: str = option(CHOSEN, "chosen, or zero-order: then also moved.")
    references: Any = option(  # noqa: RUF009 (a field like the others)
        PRIVATE_MODEL,
        "Zero-order: what rows are moved against, private, students or both; in Python also a public model.",
        beside="placement",
    )
    moves: int = option(100, "Zero-order: steps. Any number of them is free.", beside="placement")
    path: str = option("auto", f"Zero-order: path of the Jacobian: {', '.join(PATHS)}.", beside="placement")

    @property
    def against(self) -> tuple[Any, ...]:
        """What rows are moved against, one by one: names, and models."""
        return one_by_one(self.references)

    @property
    def named(self) -> tuple[str, ...]:
        """Learners that the rows are for; the first is the student that a run is scored with."""
        return one_by_one(self.reference)

    @property
    def among(self) -> tuple[str, ...]:
        """Learners whose students alone choose rows: those named, where several are; all that there are, if none is."""
        return self.named if len(self.named) > 1 else ()

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the models that a user brings, as statements call them."""
        return tuple(name_of(one) for one in self.against if not isinstance(one, str))

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
        yield from self.need(self.placement in PLACEMENTS, "placement", f"must be one of {', '.join(PLACEMENTS)}")
        names = [one for one in self.against if isinstance(one, str)]
        if not self.against or not set(names) <= set(REFERENCES) or len(set(names)) < len(names):
            yield self.wrong(
                "references",
                f"must be {' or '.join(REFERENCES)}, each at most once, or models",
                ", ".join(map(repr, names)) or "nothing",
            )
        elif self.placement == CHOSEN and (len(names) < len(self.against) or names != [PRIVATE_MODEL]):
            yield SettingsError(
                "references",
                "are for rows that are moved",
                found=f"placement {CHOSEN!r}",
                fix=f"say --placement {ZERO_ORDER}, or leave them out",
            )
        yield from self.need(1 <= self.moves < 2**32, "moves", "must be in [1, 2**32)")
        yield from self.need(self.path in PATHS, "path", f"must be one of {', '.join(PATHS)}")

    def to_dict(self) -> dict[str, Any]:
        names = [name_of(one) for one in self.against]
        alone = next(iter(self.named), None)
        return {**super().to_dict(), "references": names, "reference": list(self.named) if self.among else alone}
