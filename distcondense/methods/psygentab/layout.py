"""A table as public cells, with the outcome in front: what the network writes, and what U and P are measured on.

The outcome is one more column, or two (event status and time), each an array of `Outcome`. Its classes are cells; a
number among them (a time, a value) is cut between the smallest and the largest of the rows it is learned from, which
are training patients where a network learns (guarantee none) and rows of the private model where that is the sampler.

A table stands as one array of places (n, columns): the number of the cell and, for a number, how far through the cell
its legal value lies. Two places are the same where the values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.cells import Cells
from distcondense.data.outcome import Outcome

INSIDE = 1 - 2.0**-40  # the end of a cell


@dataclass(frozen=True)
class OutcomeCells:
    """The arrays of an outcome as cells: classes as they are, numbers between edges."""

    like: Outcome  # of no rows: the kind, and each array's name and type
    sizes: tuple[int, ...]
    edges: tuple[Floats | None, ...]
    whole: tuple[bool, ...]  # numbers that are all whole stay so

    @classmethod
    def from_outcome(cls, outcome: Outcome, cells: int) -> OutcomeCells:
        sizes, whole = list[int](), list[bool]()
        edges = list[Floats | None]()
        for values in outcome.arrays.values():
            if np.issubdtype(values.dtype, np.floating):
                low, high = float(values.min()), float(values.max())
                cuts = np.linspace(low, high if high > low else low + 1.0, cells + 1)
                sizes, edges = [*sizes, cells], [*edges, cuts]
                whole.append(bool((values == np.rint(values)).all()))
            else:
                many = max(len(outcome.kind.labels), int(values.max()) + 1)
                sizes, edges, whole = [*sizes, many], [*edges, None], [*whole, True]
        return cls(outcome.take(np.empty(0, np.int64)), tuple(sizes), tuple(edges), tuple(whole))

    def places(self, outcome: Outcome) -> Floats:
        """(n, arrays)"""
        columns = []
        for values, cuts in zip(outcome.arrays.values(), self.edges, strict=True):
            if cuts is None:
                columns.append(values.astype(np.float64))
            else:
                code = np.searchsorted(cuts[1:-1], values, side="right")
                columns.append(code + np.clip((values - cuts[code]) / (cuts[1] - cuts[0]), 0.0, INSIDE))
        return np.stack(columns, axis=1)

    def outcome(self, places: Floats) -> Outcome:
        """Back to an outcome."""
        arrays: dict[str, Any] = {}
        for j, (name, values) in enumerate(self.like.arrays.items()):
            cuts = self.edges[j]
            if cuts is None:
                arrays[name] = places[:, j].astype(values.dtype)
            else:
                at = cuts[0] + places[:, j] * (cuts[1] - cuts[0])
                arrays[name] = np.clip(np.rint(at) if self.whole[j] else at, cuts[0], cuts[-1])
        return self.like.with_arrays(**arrays)


@dataclass(frozen=True)
class Layout:
    """Which cells stand in which column: the outcome's first, then the features'."""

    outcome: OutcomeCells
    features: tuple[Cells, ...]

    @property
    def first(self) -> int:
        """The first feature's column."""
        return len(self.outcome.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return (*self.outcome.sizes, *(cells.size for cells in self.features))

    @cached_property
    def ordered(self) -> tuple[bool, ...]:
        return (*(cuts is not None for cuts in self.outcome.edges), *(cells.ordered for cells in self.features))

    @cached_property
    def holes(self) -> tuple[bool, ...]:
        return (*(False for _ in self.outcome.sizes), *(cells.hole for cells in self.features))

    # -- places

    def patients(self, features: pd.DataFrame, outcome: Outcome) -> Floats:
        """(n, columns) places of a checked table's rows."""
        columns = []
        for cells in self.features:
            values = features[cells.column.name]
            place = cells.codes(values).astype(np.float64)
            if cells.numeric:
                there = ~values.isna().to_numpy()
                numbers = np.clip(values.to_numpy(np.float64, na_value=np.nan)[there], *cells.bounds)
                place[there] = _place(cells, numbers)
            columns.append(place)
        return np.concatenate([self.outcome.places(outcome), np.stack(columns, axis=1)], axis=1)

    def drawn(self, codes: Index, inside: Floats) -> Floats:
        """(n, features) places of rows that were drawn as cells, and where in them: of the legal values they become."""
        out = codes.astype(np.float64)
        for j, cells in enumerate(self.features):
            if cells.numeric:
                there = codes[:, j] < cells.size - cells.hole
                numbers = cells.numbers(codes[there, j], inside[there, j])
                out[there, j] = _place(cells, numbers)
        return out

    def placed(self, codes: Index, rng: np.random.Generator) -> Floats:
        """(n, columns) places of rows of cells, each number anywhere in its cell."""
        inside = rng.random(codes.shape)
        own = codes[:, : self.first] + inside[:, : self.first] * INSIDE * self.ordered[: self.first]
        return np.concatenate([own, self.drawn(codes[:, self.first :], inside[:, self.first :])], axis=1)

    def frame(self, places: Floats) -> pd.DataFrame:
        """Legal values of the features, in original units."""
        own = places[:, self.first :]
        codes = np.floor(own).astype(np.int64)
        return pd.DataFrame(
            {
                one.column.name: one.values(codes[:, j], own[:, j] - codes[:, j], exact=True)
                for j, one in enumerate(self.features)
            }
        )

    # -- as numbers

    def line(self, column: int, places: Floats) -> Floats:
        """(n, 2) where places lie on an ordered column's line from 0 to 1; a hole lies half a range aside."""
        inner = self.sizes[column] - self.holes[column]
        number = column < self.first or self.features[column - self.first].numeric
        hole = places >= inner
        at = np.where(hole, 0.5, places / inner if number else places / max(inner - 1, 1))
        return np.stack([at, hole / 2], axis=1)

    def numbers(self, column: int, places: Floats) -> Floats:
        """(n, width) numbers whose Manhattan distance is Gower's in this column: 0 to 1."""
        if self.ordered[column]:
            return self.line(column, places)
        return np.eye(self.sizes[column])[places.astype(np.int64)] / 2

    def rows(self, places: Floats) -> Matrix:
        """(n, width) the features as numbers; the Gower distance is the mean over columns."""
        parts = [self.numbers(j, places[:, j]) for j in range(self.first, len(self.sizes))]
        return np.concatenate(parts, axis=1).astype(np.float32) / np.float32(len(parts))

    @cached_property
    def starts(self) -> Index:
        """Where each feature's numbers begin in `rows`."""
        own = range(self.first, len(self.sizes))
        widths = [2 if self.ordered[j] else self.sizes[j] for j in own]
        return np.cumsum([0, *widths[:-1]]).astype(np.int64)


def _place(cells: Cells, numbers: Floats) -> Floats:
    """Cell and way through it as one number, which rounding must not carry into the next cell."""
    code, inside = cells.located(numbers)
    return np.asarray(code + np.minimum(inside, INSIDE), np.float64)
