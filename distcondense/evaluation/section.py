"""`Section`: one section of the evaluation as `internal/report.json` keeps it: scores, tables, and figures as data.

A page draws sections without knowing what they measured, so a new measure or attack is one module (suite.py). Only
aggregates may stand in a section: counts, means, curves; never a patient's row or value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from distcondense.evaluation.score import Score
from distcondense.runs.figures import Figure, Table
from distcondense.runs.files import plain

Log = Callable[[str], None]  # takes a line about what a section is doing


def quiet(line: str) -> None:
    """A log that keeps nothing."""


@dataclass(frozen=True)
class Section:
    """What one section of the evaluation measured.

    Parameters
    ----------
    name
        A key of `suite.SECTIONS`.
    title
        Its heading.
    scores, figures, tables
        What was measured, and how it is shown.
    notes
        What was not measured and why, bounds of samples, how to read it.
    titles
        Of its measures: what people read.
    settings
        Bounds, thresholds, numbers of runs.

    Notes
    -----
    A new section is one module with `section(inputs, *, seed, threads, log) -> Section` and a line in `suite.SECTIONS`.
    """

    name: str
    title: str
    scores: tuple[Score, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where a number that could not be measured is null."""
        as_json: dict[str, Any] = plain(asdict(self))
        return as_json

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Section:
        figures = tuple(Figure.from_dict(one) for one in data["figures"])
        tables = tuple(Table.from_dict(one) for one in data["tables"])
        scores = tuple(Score.from_dict(one) for one in data["scores"])
        return cls(**{**data, "scores": scores, "figures": figures, "tables": tables, "notes": tuple(data["notes"])})
