"""Random choices of rows and persons, and resamples of them for measures whose interval no formula gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from distcondense.arrays import Floats, Index
from distcondense.evaluation.score import Interval

RESAMPLES = 200


def choose(rows: int | Index, most: int, rng: np.random.Generator) -> Index:
    """These row numbers (of so many rows: all of them), or a random choice of `most` of them, in order."""
    every = np.arange(rows) if isinstance(rows, int) else rows
    return every if len(every) <= most else np.sort(rng.choice(every, most, replace=False))


def one_row_each(rows: Index, person: Index | None, rng: np.random.Generator) -> Index:
    """Row numbers in random order, of a person with several rows one of them; `person` is of every row there is."""
    mixed = rng.permutation(rows)
    return mixed if person is None else mixed[np.sort(np.unique(person[mixed], return_index=True)[1])]


def resampled(rows: int, person: Index | None, *, seed: int, resamples: int = RESAMPLES) -> Iterator[Floats]:
    """(rows,) counts of each resample; rows of one person are drawn together."""
    rng = np.random.default_rng([seed, 0xB007])
    unit = np.arange(rows) if person is None else np.unique(person, return_inverse=True)[1]
    units = int(unit.max()) + 1 if rows else 0
    for _ in range(resamples if rows else 0):
        yield np.bincount(rng.integers(0, units, units), minlength=units).astype(np.float64)[unit]


def between(value: float, resamples: ArrayLike) -> Interval:
    """The middle 95% of what resamples gave, and the value itself, which a bounded measure's resamples may all miss."""
    values = np.asarray(resamples, np.float64)
    values = values[np.isfinite(values)]  # a resample may leave nothing to measure
    if not len(values) or not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(value, float(min(low, value)), float(max(high, value)))


def in_words(person: Index | None, what: str = "held-out") -> str:
    """How an interval was made."""
    return f"{RESAMPLES} resamples of {what} {'rows' if person is None else 'persons'}"


def some_of(some: int, of: int) -> str:
    """How many rows were looked at, in words."""
    return f"all {of:,}" if some == of else f"a random {some:,} of {of:,}"
