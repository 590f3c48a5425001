"""`Score`: one measured number with everything needed to read it. Every table and page is a view of a list of them.

Intervals are 95%: of what each row adds to a measure (outcomes/measures.py), added up by person where rows share one.
Nothing is resampled, so that a million rows take no longer than to sort them. A number computed on patients outside
the guarantee belongs in `internal/`, never in `release/`; `covered` says whether the guarantee covers the *model* that
was tested, never the number itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.outcomes.measures import Measured
from distcondense.runs.files import plain

NORMAL = 1.959963984540054  # of 95%
# what a model was trained on, in the order in which tables show them
FULL, REFERENCE, CONDENSED, RANDOM = "full", "reference", "condensed", "random_real"
TRAINED_ON = {
    FULL: "Real training rows",
    REFERENCE: "Private reference model itself",
    CONDENSED: "Condensed (synthetic)",
    RANDOM: "Random real rows, same number",
}
HELD_OUT = "held out"  # patients whom no method and no model has seen
PLAIN, SOFT = "plain", "soft"  # as a naive recipient: the outcome column alone; with soft labels and weights
WITHOUT_ROWS = (FULL, REFERENCE)  # the same for every condensed set of a run


@dataclass(frozen=True)
class Score:
    """One measured number, with everything needed to read it.

    In one report the same measure, model, training rows, labels, test rows and group have one value.

    Parameters
    ----------
    measure
        What was measured: a key of `outcomes/measures.py: TITLES`, or of the section's own `titles`.
    trained_on
        What the model was trained on: a key of `TRAINED_ON`.
    tested_on
        "held out", another site, "condensed rows" …
    value, low, high
        The number and its 95% interval; NaN where it could not be measured, and `note` says why.
    n
        Rows that it was tested on.
    covered
        The guarantee covers the model that was tested; never the number itself.
    rows
        Rows that the model was trained on.
    threshold
        Of decisions, chosen on rows that are not tested on.
    student
        The learner's name.
    labels
        `PLAIN` (the outcome column alone) or `SOFT` (soft labels and weights); "" for real rows.
    group
        Which of the rows (sex = F), or which column or pair of columns.
    interval
        How `low` and `high` were made.
    ceiling, power
        Of an attack: the most that the guarantee allows, and the smallest value that would have shown.
    luck
        Of an attack: the probability that one which knows nothing reaches this value or more; None of a score that
        could not have shown a leak.

    Notes
    -----
    A measure of models more is a method of a kind of outcome (`Kind.measured`), with a title in
    `outcomes/measures.py`; any other measure is a section's own.

    Examples
    --------
    >>> from distcondense import Score
    >>> score = Score("auroc", "condensed", "held out", 0.81, 0.78, 0.84, n=900, covered=True, rows=100)
    >>> Score.from_dict(score.to_dict()) == score
    True
    """

    measure: str
    trained_on: str
    tested_on: str
    value: float
    low: float
    high: float
    n: int
    covered: bool
    rows: int = 0
    threshold: float | None = None
    note: str = ""
    student: str = ""
    labels: str = ""
    group: str = ""
    interval: str = ""
    ceiling: float | None = None
    power: float | None = None
    luck: float | None = None

    @classmethod
    def from_interval(
        cls, measure: str, trained_on: str, tested_on: str, reach: Interval, n: int, covered: bool, **more: Any
    ) -> Score:
        """A score whose value and ends are those of an interval; `more` are the other fields."""
        return cls(measure, trained_on, tested_on, reach.value, reach.low, reach.high, n, covered, **more)

    def with_interval(self, reach: Interval, interval: str, **changes: Any) -> Score:
        """The same with this value and its ends, and how they were made; `changes` are other fields."""
        return replace(self, value=reach.value, low=reach.low, high=reach.high, interval=interval, **changes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where a number that could not be measured is null."""
        as_json: dict[str, Any] = plain(asdict(self))
        return as_json

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Score:
        """What `to_dict` wrote."""
        number = {k: float("nan") if data[k] is None else float(data[k]) for k in ("value", "low", "high")}
        return cls(**{**data, **number})


@dataclass(frozen=True)
class Interval:
    """A value between the ends of its 95% interval."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(float("nan"), float("nan"), float("nan"))  # could not be measured


def find(scores: Iterable[Score], trained_on: str, measure: str | None = None) -> Score | None:
    """The first score of models that were trained on this; of that measure, where one is said."""
    return next((s for s in scores if s.trained_on == trained_on and measure in (None, s.measure)), None)


def interval(measured: Measured, person: Index | None = None) -> Interval:
    """95%, from the variance of the influences; rows of one person vary together.

    A number within [0, 1] gets Wilson's interval of a share with that variance, which stays there and has a length also
    at its ends; any other number 1.96 standard errors to either side.
    """
    value, none = measured.value, float("nan")
    if not np.isfinite(value) or measured.influence is None:
        return Interval(value, none, none)
    each: Floats = measured.influence
    if person is not None:
        each = np.bincount(np.unique(person, return_inverse=True)[1], each).astype(np.float64)
    variance = float(each @ each)
    if not measured.share:
        return Interval(value, value - NORMAL * variance**0.5, value + NORMAL * variance**0.5)
    spread = value * (1 - value)
    rows = spread / variance if variance > 0 and spread > 0 else float(measured.share)
    return _within(value, rows)


def wilson(count: float, of: float) -> Interval:
    """95% interval of a share; none of nobody."""
    none = float("nan")
    return _within(count / of, of) if of else Interval(none, none, none)


def _within(share: float, rows: float) -> Interval:
    middle, half = wilson_middle(share, rows)
    return Interval(share, min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share))  # rounding aside


def wilson_middle(share: Any, rows: Any) -> tuple[Any, Any]:
    """Middle and half length of Wilson's 95% interval of a share of so many rows, or of several."""
    grown = 1 + NORMAL**2 / rows
    half = NORMAL / grown * (share * (1 - share) / rows + NORMAL**2 / (4 * rows**2)) ** 0.5
    return (share + NORMAL**2 / (2 * rows)) / grown, half
