"""`Score`: one measured number with everything needed to read it. Every table and page is a view of a list of them.

Intervals are 95% percentile bootstrap over test patients (persons together where rows share a person). A number
computed on patients outside the guarantee belongs in `internal/`, never in `release/`; `covered` says whether the
guarantee covers the *model* that was tested, never the number itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.runs.files import plain

RESAMPLES = 1000
# what a model was trained on, in the order in which tables show them
FULL, REFERENCE, CONDENSED, RANDOM = "full", "reference", "condensed", "random_real"
WAYS = {
    FULL: "All real training rows",
    REFERENCE: "Private reference model itself",
    CONDENSED: "Condensed (synthetic)",
    RANDOM: "Random real rows, same number",
}
WITHOUT_ROWS = (FULL, REFERENCE)  # the same for every condensed set of a run


@dataclass(frozen=True)
class Score:
    """A measure of a model on test rows."""

    measure: str  # a key of outcomes/measures.py: TITLES
    trained_on: str  # a key of WAYS
    tested_on: str  # the table, or another site's
    value: float  # NaN: could not be measured, see `note`
    low: float
    high: float
    n: int  # test rows
    covered: bool  # the guarantee covers the model that was tested
    rows: int = 0  # rows it was trained on
    threshold: float | None = None  # of decisions, chosen on rows that are not tested on
    note: str = ""  # why there is no value

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where a number that could not be measured is null."""
        found: dict[str, Any] = plain(asdict(self))
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Score:
        number = {k: float("nan") if data[k] is None else float(data[k]) for k in ("value", "low", "high")}
        return cls(**{**data, **number})


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float


def find(scores: Iterable[Score], trained_on: str, measure: str | None = None) -> Score | None:
    """The first score of a way to train; of that measure, where one is said."""
    for score in scores:
        if score.trained_on == trained_on and measure in (None, score.measure):
            return score
    return None


def bootstrap(
    measures: Mapping[str, Callable[[Floats | None], float]],
    rows: int,
    *,
    seed: int,
    person: Index | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """Each measure on the sample and its percentile interval; a measure takes counts per row (None: all ones)."""
    rng = np.random.default_rng([seed, 0xB007])
    unit = np.arange(rows) if person is None else np.unique(person, return_inverse=True)[1]
    units = int(unit.max()) + 1
    drawn: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, units, units), minlength=units).astype(np.float64)[unit]
        for name, measure in measures.items():
            drawn[name].append(measure(counts))
    out = {}
    for name, measure in measures.items():
        values = np.array(drawn[name])
        values = values[np.isfinite(values)]  # a resample without cases has no AUROC
        low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (np.nan, np.nan)
        out[name] = Interval(measure(None), float(low), float(high))
    return out
