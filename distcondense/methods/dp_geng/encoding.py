"""Cells as the numbers that networks see, the same for generated rows and for patients, and rows back in units.

A row is a point of a public codec (numbers by their bounds, one number for each category), centred and scaled by the
generated rows. A patient is known by cells, so a number stands at the middle of its cell, for generated rows too. Where
rows are moved, numbers and categories move alike, between their public ends, like the pixels of the paper; the largest
of a category's numbers is the category in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats, Matrix
from distcondense.data.cells import Cells
from distcondense.data.codec import Codec
from distcondense.data.schema import Schema

LEAST = 0.2  # smallest deviation that a number of the codec is divided by: a rare category is not far away


@dataclass(frozen=True, eq=False)
class Encoding:
    """Public: made of the schema and of generated rows."""

    codec: Codec
    tables: tuple[Floats, ...]  # per column (cells, width): what its cells are
    centre: Floats  # (d,) in the codec's numbers
    scale: Floats  # (d,)

    @classmethod
    def from_cells(cls, cells: Sequence[Cells], codes: Codes) -> Encoding:
        """For these columns, scaled by these (n, columns) generated rows."""
        codec = Codec.public(Schema(tuple(one.column for one in cells)))
        tables = _tables(codec, cells)
        plain = cls(codec, tables, np.zeros(len(codec.centre)), np.ones(len(codec.centre)))
        rows = plain.rows(codes)
        centre, scale = rows.mean(0), np.maximum(rows.std(0), LEAST)
        at = np.cumsum([0, *(table.shape[1] for table in tables)])
        own = [(table - centre[a:b]) / scale[a:b] for table, a, b in zip(tables, at[:-1], at[1:], strict=True)]
        return cls(codec, tuple(own), centre, scale)

    @property
    def width(self) -> int:
        return len(self.centre)

    def rows(self, codes: Codes) -> Floats:
        """(n, columns) cells → (n, d): looked up, so that a row's bits depend on that row alone."""
        return np.concatenate([table[codes[:, j]] for j, table in enumerate(self.tables)], axis=1)

    def of_codec(self, rows: Matrix) -> Floats:
        """The codec's rows as networks see them."""
        return (rows.astype(np.float64) - self.centre) / self.scale

    def to_codec(self, rows: Floats) -> Matrix:
        """`of_codec` undone."""
        return (rows * self.scale + self.centre).astype(np.float32)

    @property
    def box(self) -> tuple[Floats, Floats]:
        """((d,) lowest, (d,) highest) that a row may be: the ends of what cells are."""
        low = np.concatenate([table.min(0) for table in self.tables])
        return low, np.concatenate([table.max(0) for table in self.tables])


def _tables(codec: Codec, cells: Sequence[Cells]) -> tuple[Floats, ...]:
    """Per column the codec's numbers of the middle of each cell."""
    tables, at = [], 0
    for block, one in zip(codec.blocks, cells, strict=True):
        codes = np.arange(one.size)
        frame = pd.DataFrame({one.column.name: one.values(codes, np.full(one.size, 0.5))})
        alone = Codec((block,), codec.centre[at : at + block.width], codec.scale[at : at + block.width])
        tables.append(alone.encode(frame).astype(np.float64))
        at += block.width
    return tuple(tables)
