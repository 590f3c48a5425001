"""Features ↔ rows in [0, 1]^D, in which ClustMix mixes and adds noise (3A, "Data preprocessing").

A number is scaled between two ends: the training rows' as published, the schema's where there is a theorem. A category
is its place among the declared ones, one column a table column, as the paper's D of Table 2 counts them; or, `one_hot`,
a column for each category. A hole has the schema's public fill, and a column of its own where the schema keeps holes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.data.schema import Schema


@dataclass(frozen=True)
class Units:
    """How a table's features become numbers between 0 and 1, and back to legal values."""

    codec: Codec  # original units, one-hot categories
    low: Floats  # (D,)
    high: Floats  # (D,)
    one_hot: bool = False

    @classmethod
    def of_rows(cls, features: pd.DataFrame, schema: Schema) -> Units:
        """Between the smallest and the largest value of these rows: reads patients."""
        codec = Codec.plain(schema)
        raw = _numbers(codec, features, False)
        return cls(codec, raw.min(0), np.where(raw.max(0) > raw.min(0), raw.max(0), raw.min(0) + 1))

    @classmethod
    def of_schema(cls, schema: Schema, *, one_hot: bool = False) -> Units:
        """Between the schema's bounds: public."""
        codec = Codec.plain(schema)
        low, high = np.array([ends for block in codec.blocks for ends in _ends(block, one_hot)]).T
        return cls(codec, low, high, one_hot)

    @property
    def size(self) -> int:
        return len(self.low)

    def encode(self, features: pd.DataFrame) -> Floats:
        """(n, D) in [0, 1]; what lies beyond the ends is moved to them."""
        raw = _numbers(self.codec, features, self.one_hot)
        return np.clip((raw - self.low) / (self.high - self.low), 0.0, 1.0)

    def decode(self, rows: Floats) -> pd.DataFrame:
        """(m, D) any numbers → the nearest legal values in original units."""
        raw = np.clip(rows, 0.0, 1.0) * (self.high - self.low) + self.low
        plain, at = list[Floats](), 0
        for block in self.codec.blocks:
            width = 1 if block.values and not self.one_hot else block.width
            own, at = raw[:, at : at + width], at + width
            if block.values and not self.one_hot:
                code = np.clip(np.round(own[:, 0]), 0, block.width - 1).astype(np.int64)
                own = np.eye(block.width)[code]
            plain.append(own)
        return self.codec.decode(np.concatenate(plain, axis=1).astype(np.float32))


def _ends(block: EncodedColumn, one_hot: bool) -> list[tuple[float, float]]:
    """The public ends of each column that a block has here."""
    column = block.column
    if block.values:
        return [(0.0, 1.0)] * block.width if one_hot else [(0.0, float(max(block.width - 1, 1)))]
    first = (0.0, 1.0)
    if column.numeric and column.low is not None and column.high is not None:
        first = (float(column.low), float(column.high if column.high > column.low else column.low + 1))
    return [first, *[(0.0, 1.0)] * (block.width - 1)]


def _numbers(codec: Codec, features: pd.DataFrame, one_hot: bool) -> Floats:
    raw = codec.encode(features).astype(np.float64)
    if one_hot:
        return raw
    out, at = list[Floats](), 0
    for block in codec.blocks:
        own, at = raw[:, at : at + block.width], at + block.width
        out.append(own.argmax(axis=1)[:, None].astype(np.float64) if block.values else own)
    return np.concatenate(out, axis=1)
