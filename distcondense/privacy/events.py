"""`Event`: one access to patients and its price, as data. Accountants read it, the ledger keeps it."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from distcondense.errors import SettingsError

Kind = Literal["gaussian", "choice", "nonprivate"]  # which noise, hence how it is accounted for
# what was asked; "table": all of it, with nothing in between
Query = Literal["histogram", "categories", "sums", "total", "mapped", "choice", "table"]
Unit = Literal["row", "person"]  # whose presence is protected
LEAST_COST = 1e-18  # and 1e18 at most: beyond, squares and quotients of prices say nothing in float64
DEAREST_PICK = 100.0  # ε₀: no budget pays for it, and the grid of losses of a dearer one fits no memory
MOST_PICKS = 2**16
MOST = 2**53  # of cells


@dataclass(frozen=True)
class Event:
    """One access to patients, and its price. Everything here is public."""

    kind: Kind
    query: Query
    columns: tuple[str, ...]  # names; for a choice the candidates, none named: all columns
    cells: int  # released coordinates
    cost: float  # gaussian: μ_q; choice: ε₀ of one pick; nonprivate: 0, for no number is its price
    picks: int = 1  # choice: number of picks
    sensitivity: float = 1.0  # Δ in the query's own units, for the reader
    noise: float = 0.0  # σ in the query's own units, for the reader
    by: str = ""  # histogram: how rows are grouped; total: the name of the statistic; mapped: that of the map
    unit: Unit = "row"
    run: str = ""  # a random name of the run that asked; stamped by the ledger
    session: str = ""  # a random name of the process that asked: two that go on from one copy differ in it
    delta: float = 0.0  # categories: probability at most that a value only one person brings is told

    def __post_init__(self) -> None:
        texts = (self.by, self.run, self.session, *self.columns)
        prices = (self.cost, self.sensitivity, self.noise, self.delta)
        numeric = all(isinstance(price, numbers.Real) and not isinstance(price, bool) for price in prices)
        if not (numeric and all(map(math.isfinite, prices)) and all(isinstance(text, str) for text in texts)):
            raise SettingsError(
                "event",
                "must have texts for columns, by, run and session, and finite numbers for cost, sensitivity, noise "
                "and delta",
                found="another type",
            )
        for name, value, known in (
            ("kind", self.kind, get_args(Kind)),
            ("query", self.query, get_args(Query)),
            ("unit", self.unit, get_args(Unit)),
        ):
            if value not in known:
                raise SettingsError(f"event {name}", f"must be one of {', '.join(known)}", found=repr(value))
        if (self.kind == "choice") != (self.query == "choice"):
            raise SettingsError(
                "event", "must be a choice in kind and query, or in neither", found=f"query {self.query}"
            )
        if (self.kind == "nonprivate") != (self.query == "table"):
            raise SettingsError(
                "event", "must be nonprivate where the whole table is read, and only there", found=f"query {self.query}"
            )
        if not 0 <= self.delta < 1 or (self.delta > 0) != (self.query == "categories"):
            raise SettingsError(
                "event",
                "must have a delta in (0, 1) where categories are found, and 0 elsewhere",
                found=f"delta {self.delta}, query {self.query}",
            )
        most = DEAREST_PICK if self.kind == "choice" else 1 / LEAST_COST
        priced = self.cost == 0 if self.kind == "nonprivate" else LEAST_COST <= self.cost <= most
        counted = all(
            isinstance(n, numbers.Integral) and not isinstance(n, bool) and n <= MOST for n in (self.cells, self.picks)
        )
        if not (priced and counted and self.cells >= 0 and 1 <= self.picks <= MOST_PICKS):
            raise SettingsError(
                "event",
                f"must have a finite cost above 0 (nonprivate: 0; choice: at most {DEAREST_PICK:g}), cells of "
                f"0 or more and from 1 to {MOST_PICKS:,} picks",
                found=f"cost {self.cost}, cells {self.cells}, picks {self.picks}",
            )

    @classmethod
    def nonprivate(cls, run: str = "") -> Event:
        """A run that read the table without a gate: no ε bounds it (dp-accounting's NonPrivateDpEvent)."""
        return cls("nonprivate", "table", (), 0, 0.0, run=run)

    @property
    def words(self) -> str:
        """What was asked, for people."""
        words: dict[Query, str] = {
            "table": "the whole table, without a gate",
            "categories": "categories of many rows",
            "histogram": "histogram" if self.by in ("", "none") else f"histogram by {self.by}",
            "total": f"total of {self.by}",
            "mapped": f"sum of {self.by}",
            "choice": "choice of a pair of columns" if self.by == "pairs" else "choice of columns",
            "sums": "gradient sums",
        }
        return words[self.query]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, as a ledger's line and privacy.json hold it."""
        return {**asdict(self), "columns": list(self.columns)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        """The event that such data hold; SettingsError where they hold none."""
        known = {field.name for field in fields(cls)}
        try:
            if set(data) - known:
                raise KeyError(sorted(set(data) - known)[0])
            return cls(**{**data, "columns": tuple(map(str, data["columns"]))})
        except (KeyError, TypeError) as error:
            raise SettingsError(
                "event", "must have the fields of an Event", found=f"{type(error).__name__}: {error}"
            ) from None
