"""`Section`: one room of the evaluation as it is kept in `internal/report.json`: scores, tables, and figures as data.

A page draws parts without knowing what they measured, so a new measure or attack is one room. Only aggregates may stand
in a part: counts, means, curves; never a patient's row or value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from distcondense.evaluation.score import Score
from distcondense.runs.figures import Figure, Table
from distcondense.runs.files import plain

Say = Callable[[str], None]  # who hears what a part is doing


def quiet(line: str) -> None:
    """Nobody listens: the `say` of a part that is asked from elsewhere than the command line."""


@dataclass(frozen=True)
class Section:
    """What one room found."""

    name: str  # a key of evaluation/suite.py: SECTIONS
    title: str
    scores: tuple[Score, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()  # what was not measured and why, bounds of samples, how to read it
    titles: Mapping[str, str] = field(default_factory=dict)  # of its measures: what people read
    settings: Mapping[str, Any] = field(default_factory=dict)  # bounds, thresholds, numbers of runs

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where a number that could not be measured is null."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Section:
        figures = tuple(Figure.from_dict(one) for one in data["figures"])
        tables = tuple(Table.from_dict(one) for one in data["tables"])
        scores = tuple(Score.from_dict(one) for one in data["scores"])
        return cls(**{**data, "scores": scores, "figures": figures, "tables": tables, "notes": tuple(data["notes"])})
