"""Two or three tables side by side, column by column, in groups that can be counted, and how far apart they are.

The first table is the real one, and it alone may be resampled; the others are held against it. Numbers are cut by the
schema: `BINS` public cells between declared bounds; without bounds into `BINS` parts of as many real rows, whose edges
are never shown. A hole is a group of its own where the column keeps holes, and else what the schema puts in its place.
Pairs of columns have at most `GROUPS` groups each; at most `PAIRS` pairs are looked at, chosen at random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.codec import MISSING, category_codes
from distcondense.data.schema import Column, Schema
from distcondense.outcomes.base import Kind
from distcondense.outcomes.divergences import (
    category_coverage,
    correlation,
    hellinger,
    jensen_shannon,
    kolmogorov_smirnov,
    kullback_leibler,
    range_coverage,
    shared_information,
    shares,
    total_variation,
)

BINS = 20  # groups of a number
CLASSES = 100  # whole numbers of an outcome up to here are its groups
FEWEST = 10  # real rows that a shown count must have
KNOTS = 256  # points at which distribution functions of resamples are compared
PAIRS = 300
GROUPS = 12
REAL, SYNTHETIC, DRAWN = 0, 1, 2  # which rows: held out, condensed, random training rows


@dataclass(frozen=True, repr=False)
class ComparedColumn:
    """One column of the three tables."""

    name: str
    labels: tuple[str, ...]  # of its groups, as they may be shown
    hole: bool  # the last group is "missing"
    ordered: bool
    codes: tuple[Index, ...]  # of each table (n,) the group of each row
    numbers: tuple[Floats, ...] | None = None  # of a number: as it is, NaN for a hole

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def line(self) -> tuple[Floats, ...] | None:
        """Numbers to correlate: a number's own, 0 and 1 of two categories; None of others."""
        if self.numbers is not None or self.size - self.hole != 2:
            return self.numbers
        return tuple(np.where(codes < 2, codes, np.nan).astype(np.float64) for codes in self.codes)

    def counts(self, which: int, weight: Floats) -> Floats:
        return np.bincount(self.codes[which], weight, minlength=self.size).astype(np.float64)


@dataclass(frozen=True, repr=False, eq=False)
class ComparedRows:
    """Rows that are held against the held-out ones."""

    name: str  # CONDENSED or RANDOM
    labels: str  # SOFT with weights, PLAIN without
    which: int
    weight: Floats  # adding up to the number of rows


@dataclass(frozen=True, repr=False)
class ComparedTables:
    """The columns of the tables, which rows are held against the real ones, and how often each real row counts."""

    columns: tuple[ComparedColumn, ...]
    sides: tuple[ComparedRows, ...]
    counts: Floats  # (n, 1 + resamples) how often each real row counts; once each in the first

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def headline(self) -> ComparedRows:
        """The condensed rows as they are meant to be used."""
        return self.sides[0]

    def counted(self, codes: Index, size: int) -> Floats:
        """(size, 1 + resamples) real rows of each group."""
        if self.counts.shape[1] == 1:
            return np.bincount(codes, self.counts[:, 0], minlength=size)[:, None].astype(np.float64)
        from scipy.sparse import csr_array

        n = len(codes)
        return np.asarray(csr_array((np.ones(n), (codes, np.arange(n))), shape=(size, n)) @ self.counts)


# -- columns as groups ------------------------------------------------------------------------------------------------


def feature_column(schema: Schema, name: str, series: list[Any], shown: bool) -> ComparedColumn:
    column = schema[name]
    if not column.numeric:
        named = map(str, column.categories) if shown else (f"level {k + 1}" for k in range(len(column.categories)))
        labels = (*named, *([MISSING] if column.keeps_holes else []))
        codes = [np.minimum(category_codes(one, column), len(labels) - 1) for one in series]
        return ComparedColumn(name, labels, column.keeps_holes, column.ordered, tuple(codes))
    numbers = [column_numbers(one, column) for one in series]
    if column.low is None or column.high is None:
        return _parts(name, numbers, column.keeps_holes)
    cells = public_cells(schema.only([name]), BINS)[0]
    codes = [np.asarray(cells.codes(one), np.int64) for one in series]
    edges = np.concatenate([[column.low], cells.cuts])
    labels = tuple(f"{edge:g}" for edge in edges) if shown else _places(len(edges))
    return ComparedColumn(
        name, (*labels, *([MISSING] if cells.hole else [])), cells.hole, True, tuple(codes), tuple(numbers)
    )


def outcome_column(kind: Kind, name: str, arrays: list[NDArray[Any]]) -> ComparedColumn:
    title = kind.names[0] if len(kind.names) == 1 else f"outcome: {name}"
    whole = all(np.issubdtype(array.dtype, np.integer) for array in arrays)
    if not whole or max(array.max(initial=0) for array in arrays) >= CLASSES or min(map(np.min, arrays)) < 0:
        return _parts(title, [np.asarray(array, np.float64) for array in arrays], False)
    codes = [array.astype(np.int64) for array in arrays]
    size = max(int(array.max()) + 1 for array in codes)
    named = kind.labels_public and len(kind.labels) >= size
    labels = tuple(map(str, kind.labels)) if named else tuple(f"class {k}" for k in range(size))
    return ComparedColumn(title, labels, False, False, tuple(codes))


def _parts(name: str, numbers: list[Floats], hole: bool) -> ComparedColumn:
    """Parts of as many real rows each: where they are cut is nobody's business."""
    cuts = quantile_cuts(numbers[REAL], BINS)
    size = len(cuts) + 1
    codes = [np.where(np.isnan(one), size if hole else 0, np.searchsorted(cuts, one, side="right")) for one in numbers]
    labels = (*_places(size), *([MISSING] if hole else []))
    return ComparedColumn(name, labels, hole, True, tuple(codes), tuple(numbers))


def column_numbers(series: pd.Series[Any], column: Column) -> Floats:
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return values if column.keeps_holes else np.where(np.isnan(values), column.stand_in, values)


def _places(size: int) -> tuple[str, ...]:
    return tuple(f"part {k + 1}" for k in range(size))


def quantile_cuts(values: Floats, parts: int) -> Floats:
    """(< parts,) where values are cut into parts of as many each; holes (NaN) do not count, equal cuts are one."""
    there = values[~np.isnan(values)]
    return np.unique(np.quantile(there, np.arange(1, parts) / parts)) if len(there) else np.empty(0)


def beyond(values: Floats, limits: tuple[float, float]) -> Flags:
    """(n,) rare values; a hole is none."""
    with np.errstate(invalid="ignore"):
        return (values < limits[0]) | (values > limits[1])


# -- a column ---------------------------------------------------------------------------------------------------------


def column_scores(comparison: ComparedTables, column: ComparedColumn) -> list[dict[str, Floats]]:
    """For every way, every measure of one column: of the sample first, then of its resamples; NaN where it has none."""
    real = comparison.counted(column.codes[REAL], column.size)
    p, there = shares(real), slice(None, column.size - column.hole)
    steps = None if column.numbers is None else StepFunctions.from_numbers(comparison, column.numbers[REAL])
    out = []
    for side in comparison.sides:
        other = column.counts(side.which, side.weight)[:, None]
        q = shares(other)
        found = {
            "total_variation": np.asarray(total_variation(p, q)),
            "jensen_shannon": np.asarray(jensen_shannon(p, q)),
            "hellinger": np.asarray(hellinger(p, q)),
            "kullback_leibler": np.asarray(kullback_leibler(real, other)),
        }
        if steps is None or column.numbers is None:
            found["category_coverage"] = np.asarray(category_coverage(real[there], other[there]))
        else:
            found |= steps.against(column.numbers[side.which], side.weight)
        out.append(found)
    return out


@dataclass(frozen=True, repr=False)
class StepFunctions:
    """Numbers that held-out rows have, and at `KNOTS` points the distribution functions of their resamples."""

    numbers: Floats
    knots: Floats
    below: Floats  # (knots, 1 + resamples)

    @classmethod
    def from_numbers(cls, comparison: ComparedTables, numbers: Floats) -> StepFunctions:
        there = ~np.isnan(numbers)
        knots = np.unique(np.quantile(numbers[there], np.linspace(0, 1, KNOTS))) if there.any() else np.empty(0)
        codes = np.where(there, np.searchsorted(knots, numbers, side="left"), len(knots))
        counts = comparison.counted(codes, len(knots) + 1)[: len(knots)]
        return cls(numbers[there], knots, np.cumsum(shares(counts), axis=0))

    def against(self, numbers: Floats, weight: Floats) -> dict[str, Floats]:
        """The distance exactly for the sample, at the points for its resamples, which tells their spread."""
        there = ~np.isnan(numbers)
        exact = kolmogorov_smirnov(self.numbers, numbers[there], weight[there])
        if len(self.numbers) < FEWEST or not np.isfinite(exact):  # it would tell about single patients
            return {"ks": np.array([np.nan]), "range_coverage": np.array([np.nan])}
        codes = np.searchsorted(self.knots, numbers[there], side="left")
        other = np.cumsum(np.bincount(codes, weight[there], minlength=len(self.knots) + 1))
        gaps = np.abs(self.below - other[: len(self.knots), None] / other[-1]).max(axis=0)
        spanned = round(range_coverage(self.numbers, numbers[there]), 2)
        return {"ks": np.concatenate([[exact], gaps[1:]]), "range_coverage": np.array([spanned])}


# -- pairs of columns -------------------------------------------------------------------------------------------------


def some_pairs(many: int, seed: int) -> list[tuple[int, int]]:
    """All pairs of so many columns, or `PAIRS` of them by chance."""
    every, rng = list(combinations(range(many), 2)), np.random.default_rng([seed, 0x9A12])
    return every if len(every) <= PAIRS else [every[k] for k in np.sort(rng.choice(len(every), PAIRS, replace=False))]


def grouped(column: ComparedColumn) -> ComparedColumn:
    """The column with at most `GROUPS` groups."""
    if column.size <= GROUPS:
        return column
    room = GROUPS - column.hole
    if column.numbers is not None:
        cuts = quantile_cuts(column.numbers[REAL], room)
        codes = [np.searchsorted(cuts, one, side="right") for one in column.numbers]
        size = len(cuts) + 1
        hole = [np.isnan(one) for one in column.numbers]
    else:
        often = np.argsort(
            -column.counts(REAL, np.ones(len(column.codes[REAL])))[: column.size - column.hole], kind="stable"
        )
        place = np.full(column.size, room - 1)
        place[often[: room - 1]] = np.arange(room - 1)
        codes = [place[one] for one in column.codes]
        size = room
        hole = [one == column.size - 1 for one in column.codes]
    if column.hole:
        codes = [np.where(empty, size, one) for one, empty in zip(codes, hole, strict=True)]
    labels = tuple(map(str, range(size + column.hole)))
    return replace(column, labels=labels, codes=tuple(codes))


def correlation_gaps(comparison: ComparedTables, seed: int) -> list[Floats]:
    """For every way (pairs, 1 + resamples): |real − other correlation|, NaN where a real column does not vary."""
    lines = [column.line for column in comparison.columns if column.line is not None]
    found: list[list[Floats]] = [[] for _ in comparison.sides]
    for i, j in some_pairs(len(lines), seed):
        x, y = lines[i], lines[j]
        real = correlation(x[REAL], y[REAL], comparison.counts, FEWEST)
        for gaps, side in zip(found, comparison.sides, strict=True):
            other = float(correlation(x[side.which], y[side.which], side.weight))
            gaps.append(
                np.abs(real - (other if np.isfinite(other) else 0.0))
            )  # what does not vary is related to nothing
    return [np.array(gaps).reshape(len(gaps), -1) if gaps else np.empty((0, 1)) for gaps in found]


def joint_tables(comparison: ComparedTables, seed: int, *, mixed: bool = False) -> list[tuple[Floats, Floats]]:
    """For every way (pairs, 1 + resamples): similarity of joint tables, and of what one column tells of the other.

    mixed: only pairs in which not both are numbers.
    """
    compared_columns = [grouped(column) for column in comparison.columns]
    found: list[tuple[list[Floats], list[Floats]]] = [([], []) for _ in comparison.sides]
    for i, j in some_pairs(len(compared_columns), seed):
        if mixed and compared_columns[i].numbers is not None and compared_columns[j].numbers is not None:
            continue
        shape = compared_columns[i].size, compared_columns[j].size
        real = comparison.counted(_joint(compared_columns[i], compared_columns[j], REAL), shape[0] * shape[1])
        known = shared_information(real.reshape(*shape, -1))
        for (same, information_alike), side in zip(found, comparison.sides, strict=True):
            other = np.bincount(
                _joint(compared_columns[i], compared_columns[j], side.which), side.weight, len(real)
            ).astype(np.float64)
            same.append(1 - total_variation(shares(real), shares(other)[:, None]))
            information_alike.append(1 - np.abs(known - shared_information(other.reshape(shape))))
    return [(np.array(same), np.array(information_alike)) for same, information_alike in found]


def defined_mean(values: Floats) -> Floats:
    """Over the first axis, of the numbers that are defined; NaN where none is."""
    there = np.isfinite(values)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _joint(one: ComparedColumn, other: ComparedColumn, which: int) -> Index:
    return np.asarray(one.codes[which] * other.size + other.codes[which], np.int64)
