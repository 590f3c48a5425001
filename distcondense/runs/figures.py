"""Figures and tables as data, for pages that draw them without knowing what they show (report/).

Only aggregates may stand in one: counts, means, curves; never a patient's row or value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BARS, LINES, STEPS, DOTS, HEAT = "bars", "lines", "steps", "dots", "heat"


@dataclass(frozen=True)
class Series:
    """Points of one name. `x` are numbers or names; `low` and `high` are 95% intervals where there are any.

    `look` is the number of its colour, dash and mark, where they are to be the same in several figures; else its place.
    `broken` says whether its line is, where that means something.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    look: int | None = field(default=None, kw_only=True)
    broken: bool | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Figure:
    """A figure as data. `heat` has a series a row: its name is the row's, x the columns, y the values."""

    name: str  # a word, of its own in the part
    kind: str  # BARS, LINES, STEPS, DOTS (with whiskers), HEAT
    title: str  # what it says
    about: str  # how to read it, in a sentence or two: also its description for those who cannot see it
    x: str  # what the axes are, with units
    y: str
    series: tuple[Series, ...]
    diagonal: bool = False  # a line y = x to compare with
    at: tuple[tuple[str, float], ...] = ()  # named levels of y to compare with: ("chance", 0.5)
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    support: tuple[float, ...] = ()  # STEPS: the share of everybody in each stretch between two x of the first series

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Figure:
        """What `dataclasses.asdict` and JSON made of it, read back."""
        series = tuple(_series(one) for one in data["series"])
        ranges = {name: None if data[name] is None else tuple(data[name]) for name in ("x_range", "y_range")}
        more = {"at": tuple((name, y) for name, y in data["at"]), "support": tuple(data["support"])}
        return cls(**{**data, **ranges, **more, "series": series})


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # texts and numbers
    about: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Table:
        return cls(**{**data, "columns": tuple(data["columns"]), "rows": tuple(map(tuple, data["rows"]))})


def _series(data: Mapping[str, Any]) -> Series:
    bounds = _numbers(data["low"]), _numbers(data["high"])
    drawn = {name: data.get(name) for name in ("look", "broken")}
    return Series(data["name"], tuple(data["x"]), _numbers(data["y"]) or (), *bounds, **drawn)


def _numbers(values: Any) -> tuple[float, ...] | None:
    return None if values is None else tuple(float("nan") if value is None else float(value) for value in values)
