"""Public cells: every column cut into cells by its schema alone, and cells turned back into legal values.

Numbers get at most `FINE` cells between their public bounds: one per legal number (whole, or of the declared decimals)
where these are few, else of equal width, or of equal width in log(1 + distance from the lower bound) where the schema
says `spacing = "log"`. With `fine=MICRO` the grid is so fine that `FINE` cells which follow the rows can be made out of
it by noisy answers (methods/private/domain.py). Categories are their own cells; a hole is a cell of its own where the
policy keeps holes. Nothing here looks at data: cutting a table into cells is a public, row-by-row map
(docs/privacy.md, §2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.data.codec import category_codes
from distcondense.data.schema import MAX_WHOLE, Column, Schema
from distcondense.data.writing import written_labels, written_numbers
from distcondense.errors import SchemaError

FINE = 128
MICRO = 2**14  # FINE²: one coarse count of FINE cells says which of them are worth FINE cells more
OCTAVES = 40  # bounds are looked for between ±2^40 (1.1e12), and numbers down to 2^−40 told from 0
SUBSTEPS = 2**12  # of each octave
LOG_UNIT = 1e-4  # of a continuous column's range: where its logarithmic cells begin to widen (integers: 1)
PARTS = 20.0  # of a cell, to which a number is rounded where nobody said how it is measured,
MOST_DIGITS = 15  # before or after the point
FINEST = 2.0**50  # legal numbers are counted up to here; more would not be told apart by float64


@dataclass(frozen=True)
class Cells:
    """One column's public cells: numbers in order, or categories; the last one may stand for a hole."""

    column: Column
    cuts: Floats  # (k − 1,) numbers only: cell b holds cuts[b − 1] ≤ x < cuts[b]
    hole: bool  # the last cell is "missing"
    boundless: bool = False  # a number whose bounds are still to be found: the column's are the widest there are

    @property
    def numeric(self) -> bool:
        return self.column.numeric

    @property
    def ordered(self) -> bool:
        """Neighbouring cells are alike: numbers, and categories whose order is public."""
        return self.column.numeric or self.column.ordered

    @property
    def size(self) -> int:
        if not self.numeric and self.column.unknown:
            return 1  # until its categories are found nobody is told from anybody
        return (len(self.cuts) + 1 if self.numeric else len(self.column.categories)) + self.hole

    @property
    def _kind(self) -> np.dtype[Any]:
        """The smallest integers that hold a cell's number: a wide table of them is the peak of a run's memory."""
        return np.min_scalar_type(self.size)

    def codes(self, values: pd.Series[Any]) -> Codes:
        """(n,) cell of each value; numbers beyond the bounds fall into the outermost cells."""
        if not self.numeric and self.column.unknown:
            return np.zeros(len(values), self._kind)
        if not self.numeric:
            return category_codes(values, self.column).astype(self._kind)
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        holes = np.isnan(numbers)
        code = np.searchsorted(self.cuts, np.where(holes, self.column.stand_in, numbers), side="right")
        return np.where(holes & self.hole, self.size - 1, code).astype(self._kind)

    def values(self, codes: NDArray[np.integer[Any]], inside: Floats, *, exact: bool = False) -> Any:
        """(m,) legal values in original units, `inside` ∈ [0, 1) of the way through each number's cell."""
        if not self.numeric:
            return written_labels(self.column, codes)
        return written_numbers(self.column, self.numbers(codes, inside, exact=exact))

    @property
    def edges(self) -> Floats:
        """(k + 1,) a number's bounds and cuts; where cells follow the logarithm, on the scale on which they do."""
        low, high = _bounds(self.column)
        edges = np.concatenate([[low], self.cuts, [high]])
        if self.column.spacing == "linear":
            return edges
        unit = 1.0 if self.column.whole else LOG_UNIT * (high - low)
        return np.asarray(np.log1p((edges - low) / unit), np.float64)

    def joined(self, starts: Index) -> Cells:
        """A number's cells with neighbours joined: each new cell begins at one of these old ones, the first at 0."""
        return replace(self, cuts=self.cuts[starts[1:] - 1])

    def numbers(self, codes: NDArray[np.integer[Any]], inside: Floats, *, exact: bool = False) -> Floats:
        """(m,) a legal number in each cell, `inside` ∈ [0, 1) of the way through it; a hole is NaN.

        Where nobody said how a number is measured it has few digits, unless it is to be `exact`.
        """
        low, high = _bounds(self.column)
        edges = np.concatenate([[low], self.cuts, [high]])
        code = np.minimum(codes, len(edges) - 2)
        per = _per_unit(self.column)
        if per is None:
            width = edges[code + 1] - edges[code]
            out = edges[code] + inside * width
            if self.column.decimals is not None:
                out = self.column.rounded(out)
            elif not exact:
                out = _rounded(out, edges[code], width)
        else:
            ticks = _ticks(self.column, edges, per)
            ticks[-1] += 1  # the last cell holds its upper end
            out = _at(self.column, ticks[code] + np.floor(inside * (ticks[code + 1] - ticks[code])), per)
        return np.where((codes == self.size - 1) & self.hole, np.nan, out)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and highest legal number."""
        return _bounds(self.column)

    def located(self, numbers: Floats) -> tuple[Index, Floats]:
        """`numbers` undone for legal numbers that are no holes: the cell of each, and how far through it it lies."""
        low, high = _bounds(self.column)
        edges = np.concatenate([[low], self.cuts, [high]])
        code = np.searchsorted(self.cuts, numbers, side="right").astype(np.int64)
        per = _per_unit(self.column)
        if per is None:
            width = edges[code + 1] - edges[code]
            inside = np.divide(numbers - edges[code], width, out=np.zeros(len(code)), where=width > 0)
        else:
            ticks = _ticks(self.column, edges, per)
            ticks[-1] += 1
            inside = (_ticks(self.column, numbers, per) - ticks[code] + 0.5) / (ticks[code + 1] - ticks[code])
        return code, np.clip(inside, 0.0, 1 - 2.0**-53)


def public_cells(schema: Schema, fine: int = FINE) -> tuple[Cells, ...]:
    """Cells of every column; a number without public bounds has none, and is refused."""
    unbounded = [c.name for c in schema.columns if c.numeric and c.low is None and not c.unknown]
    if unbounded:
        raise SchemaError(
            f"column {unbounded[0]!r}" + (f" and {len(unbounded) - 1} more" if len(unbounded) > 1 else ""),
            "needs public bounds in the schema: the private method may not read them off patients",
            found="no low and high",
            fix=f"add low and high to [columns.{unbounded[0]}] from what is known about the measurement",
        )
    return tuple(_cells(c, fine) for c in schema.columns)


def _cells(column: Column, fine: int) -> Cells:
    if not column.numeric:
        return Cells(column, np.empty(0), column.keeps_holes)
    if column.unknown:
        widest = replace(column, low=-(2.0**OCTAVES), high=2.0**OCTAVES)
        return Cells(widest, _widest_cuts(column), column.keeps_holes, boundless=True)
    return Cells(column, _cuts(column, fine), column.keeps_holes)


def _widest_cuts(column: Column) -> Floats:
    """Of numbers whose bounds nobody knows: around 0, each power of two up to 2^±OCTAVES in SUBSTEPS equal parts."""
    octaves = np.arange(0 if column.whole else -OCTAVES, OCTAVES)
    away = np.ldexp(1 + np.arange(SUBSTEPS)[None, :] / SUBSTEPS, octaves[:, None]).ravel()
    per = 1.0 if column.whole else None if column.decimals is None else 10.0**column.decimals
    if per is not None:  # legal numbers only
        away = np.unique(np.ceil(np.round(away * per, 6))) / per
    return np.concatenate([-away[::-1], [0.0], away])


def _rounded(numbers: Floats, low: Floats, width: Floats) -> Floats:
    """Numbers of cells that begin at `low`, with no more digits than tell apart PARTS of a cell, and still in it."""
    with np.errstate(divide="ignore"):
        decimals = np.clip(np.ceil(-np.log10(width / PARTS)), -MOST_DIGITS, MOST_DIGITS)
    per, unit = 10.0 ** np.maximum(decimals, 0), 10.0 ** np.maximum(-decimals, 0)  # one of them is 1
    ticks = np.round(numbers * per / unit)
    ticks = ticks + (ticks * unit / per < low)
    ticks = ticks - (ticks * unit / per >= low + width)
    out = ticks * unit / per
    return np.where((out >= low) & (out < low + width), out, numbers)


def _per_unit(column: Column) -> float | None:
    """Legal numbers in a unit, 10^decimals or 1/step, so that every cell holds one; None where any number is legal."""
    if column.whole and column.step is None:
        return 1.0
    assert column.low is not None
    assert column.high is not None
    per = None if column.decimals is None else 10.0**column.decimals
    if column.step is not None:
        per = 1 / column.step
    return None if per is None or max(-column.low, column.high) * per > FINEST else per


def _ticks(column: Column, numbers: Floats, per: float) -> Floats:
    """The first legal number from each of these on, counted in legal numbers."""
    if column.whole and column.step is None:
        return np.ceil(numbers)
    return np.ceil(np.round((numbers - column.counted_from) * per, 6))  # 0.7·10 is above 7


def _at(column: Column, ticks: Floats, per: float) -> Floats:
    """Legal numbers from their count."""
    if column.step is None:
        return ticks / per
    legal: Floats = column.rounded(column.counted_from + ticks * column.step)
    return legal


def _bounds(column: Column) -> tuple[float, float]:
    assert column.low is not None
    assert column.high is not None
    if column.whole and column.step is None:
        return max(np.ceil(column.low), -MAX_WHOLE), min(np.floor(column.high), MAX_WHOLE)
    if (per := _per_unit(column)) is not None:
        first = _ticks(column, np.array([column.low]), per)
        last = np.floor(np.round((np.array([column.high]) - column.counted_from) * per, 6))
        return float(_at(column, first, per)[0]), float(_at(column, last, per)[0])
    return column.low, column.high


def _cuts(column: Column, fine: int) -> Floats:
    low, high = _bounds(column)
    per = _per_unit(column)
    if per is not None and round((high - low) * per) < fine and column.spacing == "linear":
        first = round((low - column.counted_from) * per)
        return _at(column, np.arange(1.0, round((high - low) * per) + 1) + first, per)
    at = np.arange(1, fine) / fine
    if column.spacing == "log":
        unit = 1.0 if column.whole else LOG_UNIT * (high - low)
        cuts = low + unit * np.expm1(at * np.log1p((high - low) / unit))
        if fine > FINE and low < 0 < high:  # the lower bound may be a generous one: most values then lie near 0
            near = unit * np.expm1(at * np.log1p(max(-low, high) / unit))
            cuts = np.concatenate([cuts[1::2], -near[3::4], near[3::4]])
    else:
        cuts = low + at * (high - low)
    if fine > FINE and low < 0 < high:  # nobody's 0 shares a cell with negative numbers
        cuts = np.unique(np.append(cuts, 0.0))
        cuts = cuts[(cuts > low) & (cuts < high)]
    if per is None:
        return cuts
    cuts = _at(column, np.unique(_ticks(column, cuts, per)), per)
    return cuts[cuts > low]
