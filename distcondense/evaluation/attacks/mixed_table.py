"""Real and condensed rows side by side as plain numbers: one number a column, as an attacker would lay them out.

A category is its code, a number is itself, a hole is NaN (of a category: a code of its own); the outcome's columns
stand last. What an attacker scales or cuts by is read off the condensed rows, which are theirs to see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.cells import public_cells
from distcondense.data.codec import category_codes
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose
from distcondense.outcomes.likeness import quantile_cuts

BLOCK = 4_000_000  # distances held at once
GROUPS = 5  # an outcome without classes is cut into so many groups of condensed rows


@dataclass(frozen=True)
class MixedColumn:
    """A column as an attacker sees it."""

    name: str
    numeric: bool
    spread: float  # numbers: from the least to the most of the condensed rows; differences are shares of it
    column: Column | None = None  # None: the outcome's


@dataclass(frozen=True, repr=False)
class MixedTable:
    """The columns of a release, and its rows as numbers: (m, columns)."""

    columns: tuple[MixedColumn, ...]
    made: Floats
    left_out: int = 0  # columns beyond the most that are looked at

    @classmethod
    def from_inputs(cls, inputs: EvaluationInput, *, most: int, seed: int, rows: int | None = None) -> MixedTable:
        """At most so many columns of features (the outcome besides), and of rows, by chance where there are more."""
        rng = np.random.default_rng([seed, 0x317D])
        every = [block.column for block in inputs.codec.blocks]
        columns = [every[k] for k in choose(len(every), most, rng)]
        frame, outcome = inputs.codec.decode(inputs.rows) if inputs.raw else inputs.frame, inputs.made
        if rows is not None:
            chosen = choose(len(frame), rows, rng)
            frame, outcome = frame.iloc[chosen], outcome.take(chosen)
        made = _laid_out(frame, outcome, columns)
        named: list[tuple[str, bool, Column | None]] = [(column.name, column.numeric, column) for column in columns]
        named += [(f"outcome: {name}", array.dtype.kind == "f", None) for name, array in outcome.arrays.items()]
        mixed = []
        for values, (name, numeric, column) in zip(made.T, named, strict=True):
            there = values[~np.isnan(values)]
            spread = float(np.ptp(there)) if numeric and len(there) else 1.0
            mixed.append(MixedColumn(name, numeric, spread if spread > 0 else 1.0, column))
        return cls(tuple(mixed), made, len(every) - len(columns))

    @property
    def features(self) -> Index:
        """Numbers of the columns that are no outcome."""
        return np.array([j for j, column in enumerate(self.columns) if column.column is not None], np.int64)

    def laid_out(self, features: pd.DataFrame, outcome: Outcome) -> Floats:
        """(n, columns) real rows in the same columns."""
        return _laid_out(features, outcome, [mixed.column for mixed in self.columns if mixed.column is not None])

    def apart(self, rows: Floats, columns: Sequence[int] | Index) -> Iterator[tuple[slice, Matrix]]:
        """In blocks of rows: the sum over columns of differences, (block, m): shares of a spread, or 0 and 1."""
        step = max(1, BLOCK // max(1, len(self.made)))
        for start in range(0, len(rows), step):
            here = slice(start, min(start + step, len(rows)))
            total = np.zeros((here.stop - start, len(self.made)), np.float32)
            for j in columns:
                total += self.differences(rows[here, j], int(j))
            yield here, total

    def differences(self, values: Floats, j: int) -> Matrix:
        """(n, m) of one column: at most 1 each."""
        column, other = self.columns[j], self.made[:, j]
        if not column.numeric:
            return np.asarray(values[:, None] != other[None, :], np.float32)
        holes, others = np.isnan(values), np.isnan(other)
        a = (np.where(holes, 0.0, values) / column.spread).astype(np.float32)
        b = (np.where(others, 0.0, other) / column.spread).astype(np.float32)
        apart = np.minimum(np.abs(a[:, None] - b[None, :]), np.float32(1))
        if holes.any() or others.any():
            apart[holes[:, None] != others[None, :]] = 1.0
            apart[holes[:, None] & others[None, :]] = 0.0
        return apart

    def nearest(self, rows: Floats, columns: Sequence[int] | Index) -> Index:
        """(n,) the condensed row nearest in these columns; the first of several."""
        return np.concatenate([np.empty(0, np.int64), *(total.argmin(1) for _, total in self.apart(rows, columns))])


@dataclass(frozen=True)
class Bins:
    """A column cut into cells: public ones where the schema has them, else of as many condensed rows each."""

    cuts: Floats  # numbers only
    size: int  # with a cell for holes
    numeric: bool

    @classmethod
    def from_column(cls, mixed: MixedColumn, made: Floats, cells: int) -> Bins:
        """At most so many cells of a number; all of a category."""
        column = mixed.column
        if not mixed.numeric:
            known = 0 if column is None else len(column.categories)
            return cls(np.empty(0), max(known, int(made.max(initial=-1)) + 1) + 1, False)
        if column is not None and column.low is not None and not column.searched:
            cuts = public_cells(Schema((column,)), cells)[0].cuts
        else:
            cuts = quantile_cuts(made, cells)
        return cls(cuts, len(cuts) + 2, True)

    def codes(self, values: Floats) -> Index:
        """(n,) from 0; a hole, and a category that nobody listed, in the last."""
        if not self.numeric:
            return np.where((values < 0) | (values >= self.size), self.size - 1, values).astype(np.int64)
        holes = np.isnan(values)
        code = np.searchsorted(self.cuts, np.where(holes, 0.0, values), side="right")
        return np.where(holes, self.size - 1, code).astype(np.int64)


def outcome_groups(made: Outcome, *outcomes: Outcome) -> list[Index]:
    """(n,) the group of each row of each outcome: its class where there are any, else equal parts of the condensed."""
    if "label" in made.arrays:
        return [np.asarray(outcome["label"], np.int64) for outcome in outcomes]
    cuts, *values = (np.asarray(next(iter(outcome.arrays.values())), np.float64) for outcome in (made, *outcomes))
    cuts = quantile_cuts(cuts, GROUPS)
    return [np.searchsorted(cuts, value, side="right").astype(np.int64) for value in values]


def _laid_out(features: pd.DataFrame, outcome: Outcome, columns: Sequence[Column]) -> Floats:
    laid: list[Floats] = []
    for column in columns:
        series = features[column.name]
        number = series.to_numpy(np.float64, na_value=np.nan) if column.numeric else category_codes(series, column)
        laid.append(number.astype(np.float64))
    laid += [np.asarray(array, np.float64) for array in outcome.arrays.values()]
    return np.stack(laid, axis=1) if laid else np.empty((len(features), 0))
