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
from distcondense.evaluation.inputs import EvaluationInput, Sample

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

    traits: tuple[MixedColumn, ...]
    made: Floats
    left_out: int = 0  # columns beyond the most that are looked at

    @classmethod
    def of(cls, inputs: EvaluationInput, *, most: int, seed: int, rows: int | None = None) -> MixedTable:
        """At most so many columns of features (the outcome besides), and of rows, by chance where there are more."""
        rng = np.random.default_rng([seed, 0x317D])
        columns = [block.column for block in inputs.codec.blocks]
        kept = np.sort(rng.choice(len(columns), most, replace=False)) if len(columns) > most else range(len(columns))
        chosen = [columns[int(k)] for k in kept]
        frame = inputs.codec.decode(inputs.rows) if inputs.raw else inputs.frame
        outcome = inputs.made
        if rows is not None and len(frame) > rows:
            some = np.sort(rng.choice(len(frame), rows, replace=False))
            frame, outcome = frame.iloc[some], outcome.take(some)
        made = _laid_out(frame, outcome, chosen)
        traits: list[tuple[str, bool, Column | None]] = [(column.name, column.numeric, column) for column in chosen]
        traits += [(f"outcome: {name}", array.dtype.kind == "f", None) for name, array in outcome.arrays.items()]
        found = tuple(
            MixedColumn(name, numeric, _spread(made[:, j]) if numeric else 1.0, column)
            for j, (name, numeric, column) in enumerate(traits)
        )
        return cls(found, made, len(columns) - len(chosen))

    @property
    def features(self) -> Index:
        """Numbers of the columns that are no outcome."""
        return np.array([j for j, trait in enumerate(self.traits) if trait.column is not None], np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(trait.name for trait in self.traits)

    def laid_out(self, features: pd.DataFrame, outcome: Outcome) -> Floats:
        """(n, columns) real rows in the same columns."""
        return _laid_out(features, outcome, [one.column for one in self.traits if one.column is not None])

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
        trait, other = self.traits[j], self.made[:, j]
        if not trait.numeric:
            return np.asarray(values[:, None] != other[None, :], np.float32)
        holes, others = np.isnan(values), np.isnan(other)
        a = (np.where(holes, 0.0, values) / trait.spread).astype(np.float32)
        b = (np.where(others, 0.0, other) / trait.spread).astype(np.float32)
        apart = np.minimum(np.abs(a[:, None] - b[None, :]), np.float32(1))
        if holes.any() or others.any():
            apart[holes[:, None] != others[None, :]] = 1.0
            apart[holes[:, None] & others[None, :]] = 0.0
        return apart

    def nearest(self, rows: Floats, columns: Sequence[int] | Index) -> Index:
        """(n,) the condensed row nearest in these columns; the first of several."""
        found = np.zeros(len(rows), np.int64)
        for here, total in self.apart(rows, columns):
            found[here] = total.argmin(1)
        return found


@dataclass(frozen=True)
class Bins:
    """A column cut into cells: public ones where the schema has them, else of as many condensed rows each."""

    cuts: Floats  # numbers only
    size: int  # with a cell for holes
    numeric: bool

    @classmethod
    def of(cls, trait: MixedColumn, made: Floats, cells: int) -> Bins:
        """At most so many cells of a number; all of a category."""
        column = trait.column
        if not trait.numeric:
            known = 0 if column is None else len(column.categories)
            seen = int(made.max()) + 1 if len(made) else 0
            return cls(np.empty(0), max(known, seen) + 1, False)
        if column is not None and column.low is not None and not column.searched:
            cuts = public_cells(Schema((column,)), cells)[0].cuts
        else:
            there = made[~np.isnan(made)]
            cuts = np.unique(np.quantile(there, np.arange(1, cells) / cells)) if len(there) else np.empty(0)
        return cls(cuts, len(cuts) + 2, True)

    def codes(self, values: Floats) -> Index:
        """(n,) from 0; a hole, and a category that nobody listed, in the last."""
        if not self.numeric:
            return np.where((values < 0) | (values >= self.size), self.size - 1, values).astype(np.int64)
        holes = np.isnan(values)
        code = np.searchsorted(self.cuts, np.where(holes, 0.0, values), side="right")
        return np.where(holes, self.size - 1, code).astype(np.int64)


@dataclass(frozen=True)
class OutcomeGroups:
    """Groups of outcomes that real and condensed rows share: classes where there are any, else equal parts."""

    cuts: Floats | None

    @classmethod
    def of(cls, made: Outcome) -> OutcomeGroups:
        if "label" in made.arrays:
            return cls(None)
        value = next(iter(made.arrays.values()))
        return cls(np.unique(np.quantile(value, np.arange(1, GROUPS) / GROUPS)) if len(value) else np.empty(0))

    def codes(self, outcome: Outcome) -> Index:
        if self.cuts is None:
            return np.asarray(outcome["label"], np.int64)
        value = next(iter(outcome.arrays.values()))
        return np.searchsorted(self.cuts, value, side="right").astype(np.int64)


def one_a_person(sample: Sample, seed: int) -> Index:
    """Rows of which no two are one person's, in random order: guesses about them are independent."""
    order = np.random.default_rng([seed, 0x09E9]).permutation(len(sample))
    if sample.person is None:
        return order
    return order[np.sort(np.unique(sample.person[order], return_index=True)[1])]


def _laid_out(features: pd.DataFrame, outcome: Outcome, columns: Sequence[Column]) -> Floats:
    laid = [_numbers(features[column.name], column) for column in columns]
    laid += [np.asarray(array, np.float64) for array in outcome.arrays.values()]
    return np.stack(laid, axis=1) if laid else np.empty((len(features), 0))


def _numbers(series: pd.Series, column: Column) -> Floats:  # type: ignore[type-arg]
    if column.numeric:
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return category_codes(series, column).astype(np.float64)


def _spread(values: Floats) -> float:
    there = values[~np.isnan(values)]
    width = float(there.max() - there.min()) if len(there) else 0.0
    return width if width > 0 else 1.0
