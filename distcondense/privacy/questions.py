"""What can be asked of rows behind the gate, and what can be done to them publicly. Data only; all of it is public."""

from __future__ import annotations

from dataclasses import dataclass

from distcondense.arrays import Codes, Floats
from distcondense.privacy.contributions import Objective, PublicMap

STRATEGY = 2**10  # steps of 1 in which the entries of a strategy are counted

# ---- questions: each is answered by a vector of integers, then noised ------------------------------------------


@dataclass(frozen=True)
class HistogramQuery:
    """Rows in each (group, cell); cells in C order of the columns. by="none": one group.

    `starts`, of one column: neighbouring bins count as one cell, the first of each named here, from 0 upwards.
    `merges`, one for each column or none: public maps of its bins to coarser cells, numbered from 0 upwards.
    """

    columns: tuple[int, ...]
    by: str
    starts: tuple[int, ...] = ()
    merges: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class CategoriesQuery:
    """Rows with each value of a column whose values nobody has listed; only those of many rows are told."""

    column: int


@dataclass(frozen=True)
class GradientQuery:
    """What rows contribute in each cell under the current scores, a block of cells for each scale of the objective.

    `merges`, one for each column or none: public maps of its bins to coarser cells, numbered from 0 upwards.
    `strategy`, public rows of a whole number for each cell, in steps of 1/STRATEGY: gradients are told as these
    combinations of cells, hessians by cell. No column of it, as a vector, is longer than 1.
    """

    columns: tuple[int, ...]
    merges: tuple[tuple[int, ...], ...] = ()
    strategy: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class StatisticQuery:
    """One of the objective's statistics, summed over all rows."""

    name: str


@dataclass(frozen=True)
class ColumnChoice:
    """Σ over scores and cells of |Σ rows g| of each candidate, of which the `count` largest are wanted.

    With count 0 the sums themselves are, column after column, score after score, cell after cell: who gets them with
    noise chooses afterwards.

    `widths`: of each candidate so many neighbouring bins count as one cell.
    """

    count: int
    among: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PairChoice:
    """Σ over cells of |rows − expected| of each pair of columns; the pair with the largest is wanted.

    `expected`: for each pair a public table (cells of the first, cells of the second) of numbers of rows.
    `ahead`: public head starts, in rows.
    """

    pairs: tuple[tuple[int, int], ...]
    expected: tuple[Floats, ...]
    ahead: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class MapQuery:
    """A public map of rows, summed over persons: a row's vector counts up to norm 1, and so does a person's sum."""

    map: PublicMap


Question = HistogramQuery | CategoriesQuery | GradientQuery | StatisticQuery | ColumnChoice | PairChoice | MapQuery

# ---- public steps: row by row, so that neighbours stay neighbours ----------------------------------------------


@dataclass(frozen=True, eq=False)
class ShiftScores:
    """Add table[cell] to every row's score: table (cells,), or (S, cells) where rows have S > 1 scores."""

    columns: tuple[int, ...]
    table: Floats


@dataclass(frozen=True, eq=False)
class MergeBins:
    """Replace a column's codes by merge[codes]."""

    column: int
    merge: Codes


@dataclass(frozen=True)
class AdoptCategories:
    """Give a column of unlisted values these cells: one for each label, one for all others, with `hole` one for holes.

    Without `hole` a hole is one of the others.
    """

    column: int
    labels: tuple[str, ...]
    hole: bool


@dataclass(frozen=True)
class SetObjective:
    """Go on with another objective of the same kind, e.g. one that knows a noisy baseline."""

    objective: Objective


Step = ShiftScores | MergeBins | AdoptCategories | SetObjective
