"""Public cells: every column cut into cells by its schema alone, and cells turned back into legal values.

Numbers get at most `FINE` cells between their public bounds: one per legal number (whole, or of the declared decimals)
where these are few, else of equal width, or of equal width in log(1 + distance from the lower bound) where the schema
says `spacing = "log"`. Categories are their own cells; a hole is a cell of its own where the policy keeps holes.
Nothing here looks at data: cutting a table into cells is a public, row-by-row map (docs/privacy.md, "What is public").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats
from distcondense.data.codec import category_codes, fill_value
from distcondense.data.schema import MAX_WHOLE, Column, Schema
from distcondense.errors import SchemaError

FINE = 128
LOG_UNIT = 1e-4  # of a continuous column's range: where its logarithmic cells begin to widen (integers: 1)
FINEST = 2.0**50  # legal numbers are counted up to here; more would not be told apart by float64


@dataclass(frozen=True)
class Cells:
    """One column's public cells: numbers in order, or categories; the last one may stand for a hole."""

    column: Column
    cuts: Floats  # (k − 1,) numbers only: cell b holds cuts[b − 1] ≤ x < cuts[b]
    hole: bool  # the last cell is "missing"

    @property
    def numeric(self) -> bool:
        return self.column.numeric

    @property
    def ordered(self) -> bool:
        """Neighbouring cells are alike: numbers, and categories whose order is public."""
        return self.column.numeric or self.column.ordered

    @property
    def size(self) -> int:
        return (len(self.cuts) + 1 if self.numeric else len(self.column.categories)) + self.hole

    @property
    def _kind(self) -> np.dtype[Any]:
        """The smallest integers that hold a cell's number: a wide table of them is the peak of a run's memory."""
        return np.min_scalar_type(self.size)

    def codes(self, values: pd.Series[Any]) -> Codes:
        """(n,) cell of each value; numbers beyond the bounds fall into the outermost cells."""
        if not self.numeric:
            return category_codes(values, self.column).astype(self._kind)
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        holes = np.isnan(numbers)
        code = np.searchsorted(self.cuts, np.where(holes, fill_value(self.column), numbers), side="right")
        return np.where(holes & self.hole, self.size - 1, code).astype(self._kind)

    def values(self, codes: NDArray[np.integer[Any]], inside: Floats) -> Any:
        """(m,) legal values in original units, `inside` ∈ [0, 1) of the way through each number's cell."""
        if not self.numeric:
            labels = np.empty(self.size, object)
            labels[: len(self.column.categories)] = self.column.categories
            found = pd.Series(labels[codes])
            return found if found.isna().any() else found.infer_objects()  # with holes pandas would make 1.0 of 1
        numbers = self.numbers(codes, inside)
        return numbers.astype(np.int64) if self.column.kind == "integer" and not self.hole else numbers

    def numbers(self, codes: NDArray[np.integer[Any]], inside: Floats) -> Floats:
        """(m,) a legal number in each cell, `inside` ∈ [0, 1) of the way through it; a hole is NaN."""
        low, high = _bounds(self.column)
        edges = np.concatenate([[low], self.cuts, [high]])
        code = np.minimum(codes, len(edges) - 2)
        per = _per_unit(self.column)
        if per is None:
            out = self.column.rounded(edges[code] + inside * (edges[code + 1] - edges[code]))
        else:
            ticks = _ticks(edges, per)
            ticks[-1] += 1  # the last cell holds its upper end
            out = (ticks[code] + np.floor(inside * (ticks[code + 1] - ticks[code]))) / per
        return np.where((codes == self.size - 1) & self.hole, np.nan, out)


def public_cells(schema: Schema, fine: int = FINE) -> tuple[Cells, ...]:
    """Cells of every column; a number without public bounds has none, and is refused."""
    unbounded = [c.name for c in schema.columns if c.numeric and c.low is None]
    if unbounded:
        raise SchemaError(
            f"column {unbounded[0]!r}" + (f" and {len(unbounded) - 1} more" if len(unbounded) > 1 else ""),
            "needs public bounds in the schema: the private method may not read them off patients",
            found="no low and high",
            fix=f"add low and high to [columns.{unbounded[0]}] from what is known about the measurement",
        )
    return tuple(Cells(c, _cuts(c, fine) if c.numeric else np.empty(0), _keeps_holes(c)) for c in schema.columns)


def _keeps_holes(column: Column) -> bool:
    return column.missing in ("indicator", "category")


def _per_unit(column: Column) -> float | None:
    """Legal numbers in a unit, 10^decimals, so that every cell holds one; None where any number is legal."""
    if column.kind == "integer":
        return 1.0
    assert column.low is not None
    assert column.high is not None
    per = None if column.decimals is None else 10.0**column.decimals
    return None if per is None or max(-column.low, column.high) * per > FINEST else per


def _ticks(numbers: Floats, per: float) -> Floats:
    """The first legal number from each of these on, counted in legal numbers."""
    return np.ceil(numbers if per == 1 else np.round(numbers * per, 6))  # 0.7·10 is above 7


def _bounds(column: Column) -> tuple[float, float]:
    assert column.low is not None
    assert column.high is not None
    if column.kind == "integer":
        return max(np.ceil(column.low), -MAX_WHOLE), min(np.floor(column.high), MAX_WHOLE)
    if (per := _per_unit(column)) is not None:
        low, negative = _ticks(np.array([column.low, -column.high]), per) / per
        return float(low), float(-negative)
    return column.low, column.high


def _cuts(column: Column, fine: int) -> Floats:
    low, high = _bounds(column)
    per = _per_unit(column)
    if per is not None and (high - low) * per < fine and column.spacing == "linear":
        return np.arange(np.round(low * per) + 1, np.round(high * per) + 1) / per
    at = np.arange(1, fine) / fine
    if column.spacing == "log":
        unit = 1.0 if column.kind == "integer" else LOG_UNIT * (high - low)
        cuts = low + unit * np.expm1(at * np.log1p((high - low) / unit))
    else:
        cuts = low + at * (high - low)
    if per is None:
        return cuts
    cuts = np.unique(_ticks(cuts, per)) / per
    return cuts[cuts > low]
