"""What the gate needs of the rows it guards: exact integer answers that one person changes by at most a limit.

A person's vector over *all* coordinates of an answer is scaled down to L2 norm 1 where it is longer, multiplied by the
limit and rounded towards zero. That cannot lengthen it, and integer sums do not depend on order, so one person changes
the answer by at most the limit in L2 (a choice: each score by at most the limit). Factors carry a margin of 2⁻³⁰ for
float64. A single row has norm at most 1 already: its objective proves that (contributions.py).

`counted` gives sums over rows (table_rows.py), which add up over shards (shards.py); what is not a sum (the worth of a
column or a pair) is made of the total, once, by `ExactAnswers.answer`. No noise here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Index
from distcondense.privacy.contributions import Objective
from distcondense.privacy.questions import (
    AdoptCategories,
    CategoriesQuery,
    ColumnChoice,
    HistogramQuery,
    MergeBins,
    PairChoice,
    Question,
    SetObjective,
    ShiftScores,
    Step,
)

MARGIN = 1 - 2.0**-30  # on every factor that bounds a norm: far over the error of float64, far under any noise
MU_MAX = 8.0  # one answer at μ = 8 protects nobody (ε over 60); the bound keeps integer sums inside 64 bits
ROWS_SHARD_MAX = 2**27  # of one shard; times GRID·MU_MAX it is 2⁶²: its integer sums cannot overflow
ROWS_ALL_MAX = 2**40  # of all shards together, whose sums have no such bound (shards.py: ShardTotal)
ROWS_MAX = 2**16  # of one person: their float64 sums of integers are exact too, of up to 32 scores


@dataclass(frozen=True)
class IntegerSums:
    """Integer sums for a question over some rows; sums of disjoint rows add up, those with labels label by label."""

    values: NDArray[Any]  # (coordinates,) int64, or Python's integers where those are too small
    labels: tuple[str, ...] | None = None  # CategoriesQuery: the value that each coordinate counts


class ExactAnswers(ABC):
    """Answers from sums: what rows of any kind have in common, be they in one place or in many."""

    def __init__(self, sizes: Sequence[int], objective: Objective, most: int) -> None:
        """`sizes`: bins of each column; `most`: rows of one person. Both are public, and so is the objective."""
        self.sizes = [int(size) for size in sizes]
        self.objective, self.most = objective, most
        self._pairs: dict[tuple[tuple[int, int], float], NDArray[Any]] = {}
        self._labels: dict[int, tuple[str, ...]] = {}

    @abstractmethod
    def counted(self, question: Question, limit: float) -> IntegerSums:
        """The question's integer sums over these rows: of a choice or of pairs, those of each cell, block by block."""

    @abstractmethod
    def _applied(self, step: Step) -> None:
        """Carry out a public step on every row."""

    def apply(self, step: Step) -> None:
        """A public step; what is public about it is done here."""
        match step:
            case MergeBins(column, merge):
                self.sizes[column] = int(merge.max()) + 1
                self._pairs.clear()
            case AdoptCategories(column, labels, hole):
                self.sizes[column] = len(labels) + 1 + hole
                self._pairs.clear()
            case SetObjective(objective):
                self.objective = objective
            case ShiftScores():
                pass
            case _:
                assert_never(step)
        self._applied(step)

    def labels(self, column: int) -> Sequence[str]:
        """Of an unlisted column the values that kept rows have, in the order of its last answer. Not public."""
        return self._labels[column]

    def answer(self, question: Question, limit: float) -> Index:
        """An integer vector that one person changes by at most `limit`: in L2, each score of a choice in size."""
        match question:
            case CategoriesQuery(column):
                sums = self.counted(question, limit)
                assert sums.labels is not None
                self._labels[column] = sums.labels
                return sums.values
            case ColumnChoice(0, among):  # of each column a person moves at most that in L1, so in L2; √ of many in all
                return self.counted(question, limit / math.sqrt(len(among))).values
            case ColumnChoice():
                return self.choice_scores(question, limit)
            case PairChoice():
                return self.pair_scores(question, limit)
            case HistogramQuery(columns, "none", (), merges) if (known := self.pair_known(columns, limit)) is not None:
                return self._joined(known, columns, merges) if merges else known
            case _:
                return self.counted(question, limit).values

    def cells(self, columns: tuple[int, ...]) -> int:
        """The number of joint cells of some columns."""
        return math.prod(self.sizes[column] for column in columns)

    def choice_scores(self, question: ColumnChoice, limit: float) -> Index:
        """Σ over scores and cells of |Σ rows g| for each column, g as it counts in the norm.

        A person's g are scaled down to Σ_rows Σ_scores |g| ≤ limit; by the triangle inequality no score moves further.
        """
        total = self.counted(question, limit).values
        ends = np.cumsum([self.objective.scores * cells for cells in self.coarse_cells(question)])
        return _integers(_lengths(total, ends))

    def coarse_cells(self, question: ColumnChoice) -> list[int]:
        """The number of cells of each candidate, so many neighbouring bins in one."""
        return [-(-self.sizes[column] // width) for column, width in zip(question.among, question.widths, strict=True)]

    def pair_scores(self, question: PairChoice, limit: float) -> Index:
        """Σ over cells of |rows − expected| for each pair; a person's rows share one unit, so none moves further."""
        new = tuple(dict.fromkeys(pair for pair in question.pairs if (pair, limit) not in self._pairs))
        if new:  # the same pairs are asked for again and again, of fewer and fewer of them
            total = self.counted(PairChoice(new, (), ()), limit).values
            ends = np.cumsum([self.cells(pair) for pair in new])
            for pair, block in zip(new, np.split(total, ends[:-1]), strict=True):
                self._pairs[pair, limit] = block
        held = np.concatenate([self._pairs[pair, limit] for pair in question.pairs])
        public = np.trunc(np.concatenate([table.ravel() for table in question.expected]) * limit)
        public = public.astype(np.int64) if public.max(initial=0) < 2**62 else _integers(map(int, public))
        lengths = _lengths(held - public, np.cumsum([table.size for table in question.expected]))
        starts = [math.trunc(start * limit) for start in question.ahead]
        return _integers(length + start for length, start in zip(lengths, starts, strict=True))

    def pair_known(self, columns: tuple[int, ...], limit: float) -> NDArray[Any] | None:
        """A pair's histogram, where its rows were counted for a choice and every row is a person: no need to ask."""
        for (pair, at), held in self._pairs.items():
            if pair == columns and self.most == 1:
                rows, unit = held // math.floor(at * MARGIN), math.floor(limit * MARGIN)
                small = int(rows.max(initial=0)) * unit < 2**62
                return (rows.astype(np.int64) if small else rows.astype(object)) * unit
        return None

    def _joined(
        self, counts: NDArray[Any], columns: tuple[int, ...], merges: tuple[tuple[int, ...], ...]
    ) -> NDArray[Any]:
        """Counts of joint cells, added up in coarser ones."""
        places = np.meshgrid(*(np.array(merge, np.int64) for merge in merges), indexing="ij")
        shape = tuple(max(merge) + 1 for merge in merges)
        out = np.zeros(math.prod(shape), counts.dtype)
        np.add.at(out, np.ravel_multi_index(tuple(place.ravel() for place in places), shape), counts)
        return out


def _lengths(values: NDArray[Any], ends: Index) -> list[int]:
    """Σ |value| of each block of cells, the blocks one behind the other; Python's integers: no sum is too large."""
    size, starts = np.abs(values), np.append(0, ends[:-1])
    if values.dtype == object:
        return [sum(size[start:end]) for start, end in zip(starts, ends, strict=True)]
    high, low = np.add.reduceat(size >> 32, starts), np.add.reduceat(size & (2**32 - 1), starts)
    return [(int(upper) << 32) + int(lower) for upper, lower in zip(high, low, strict=True)]


def _integers(values: Iterable[int]) -> NDArray[Any]:
    """Integers in int64 where all of them fit, with room for noise and a sum of two; else Python's."""
    numbers = list(values)
    fits = all(-(2**62) < value < 2**62 for value in numbers)
    return np.array(numbers, np.int64 if fits else object)
