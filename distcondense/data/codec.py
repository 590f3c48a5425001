"""Original units ↔ the numbers models see: standardised numbers, one-hot categories (Thakur et al. §2.1), and back.

Every encoded column is (value − centre)/scale, one-hot columns included, so that one N(0, I) start and one range of
perturbations suit them all. `published` takes centre and scale from the training rows (`Codec.fit`); nothing else here
looks at data.

Back again there are two forms. *Legal* (the default): integers are integers, categories are the nearest legal ones,
bounds hold. *Soft*: the raw numbers in original units, one column per category, as the optimiser left them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Floats, Matrix
from distcondense.data.cohort import Cohort
from distcondense.data.schema import MAX_WHOLE, Column, Schema
from distcondense.data.writing import written_labels, written_numbers
from distcondense.errors import CohortError, DistcondenseWarning, SchemaError, need

MISSING = "missing"  # the name of the category or indicator that stands for a hole


@dataclass(frozen=True)
class EncodedColumn:
    """The encoded columns one table column becomes."""

    column: Column
    names: tuple[str, ...]  # of the encoded columns
    values: tuple[int, ...] = ()  # category codes, one per one-hot column; len(categories) stands for "missing"

    @property
    def width(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Codec:
    """Encodes a table's features to (n, d) float32 and decodes synthetic rows."""

    blocks: tuple[EncodedColumn, ...]
    centre: Floats  # (d,)
    scale: Floats  # (d,) > 0
    dropped: tuple[str, ...] = ()  # constant columns, left out

    @classmethod
    def fit(cls, features: pd.DataFrame, schema: Schema, *, keep_constant: bool = False) -> Codec:
        """Centre and scale of these rows; columns constant in them are dropped, with a warning.

        With `keep_constant` every encoded column of the schema stays (scale 1), for a model that was fitted elsewhere
        on all of them.
        """
        blocks, dropped, centres, scales = [], [], [], []
        for column in schema.columns:
            if column.unknown and not column.numeric:
                raise SchemaError(
                    f"column {column.name!r}",
                    "must have its categories declared for a method that does not pay for finding them",
                    found="categories that are to be found",
                    fix="list them in the schema",
                )
            block = _block(column)
            raw = _raw(features[column.name], block)
            centre, scale = raw.mean(0), raw.std(0)
            keep = scale > 1e-12 * np.abs(centre)  # relative: concentrations in mol/L are small, not constant
            if keep_constant:
                scale[~keep] = 1.0
            elif not keep.any():
                dropped.append(column.name)
                continue
            elif column.numeric and not keep[0]:  # constant where present, yet sometimes missing: keep both columns
                scale[0] = 1.0
            elif not keep.all():
                block = _only(block, keep)  # categories nobody has: the model knows nothing about them
                centre, scale = centre[keep], scale[keep]
            blocks.append(block)
            centres.append(centre)
            scales.append(scale)
        if not blocks:
            raise CohortError(
                "table",
                "must have a feature that varies",
                found=f"{len(dropped)} constant columns",
                fix="give rows or columns that differ",
            )
        if dropped:
            names = ", ".join(map(repr, dropped[:8])) + (" …" if len(dropped) > 8 else "")
            warnings.warn(f"{len(dropped)} constant columns dropped: {names}", DistcondenseWarning, stacklevel=2)
        return cls(tuple(blocks), np.concatenate(centres), np.concatenate(scales), tuple(dropped))

    @classmethod
    def public(cls, schema: Schema) -> Codec:
        """Scaled by the schema alone: a number by the middle and the spread of its public bounds, a category by ½."""
        blocks = tuple(_block(column) for column in schema.columns)
        centre, scale = [], []
        for block in blocks:
            for k in range(block.width):
                bounded = block.column.numeric and k == 0 and block.column.high is not None
                centre.append(block.column.middle if bounded else 0.5)
                width = (block.column.high or 0.0) - (block.column.low or 0.0)
                scale.append(width / np.sqrt(12) if bounded else 0.5)
        return cls(blocks, np.array(centre), np.array(scale))

    @classmethod
    def plain(cls, schema: Schema) -> Codec:
        """No scaling: original units, one-hot categories, every column of the schema."""
        blocks = tuple(_block(column) for column in schema.columns)
        width = sum(b.width for b in blocks)
        return cls(blocks, np.zeros(width), np.ones(width))

    @property
    def names(self) -> list[str]:
        """Names of the d encoded columns: `age`, `stage=II`, `bmi=missing`."""
        return [n for b in self.blocks for n in b.names]

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns that are kept."""
        return [b.column.name for b in self.blocks]

    def encode(self, features: pd.DataFrame) -> Matrix:
        """(n, d) float32. A category the training rows did not have becomes all zeros before standardising."""
        out = np.empty((len(features), len(self.centre)), np.float32)
        at = 0
        for block in self.blocks:
            here = slice(at, at + block.width)
            out[:, here] = (_raw(features[block.column.name], block) - self.centre[here]) / self.scale[here]
            at += block.width
        return out

    def legal(self, rows: Matrix) -> Floats:
        """(m, d) the nearest legal raw numbers: within bounds, whole where integer, one-hot where categorical."""
        raw = self._unscale(rows)
        low, high, whole = self._limits
        np.clip(raw, low, high, out=raw)
        raw[:, whole] = np.round(raw[:, whole])
        at = 0
        for block in self.blocks:
            here = slice(at, at + block.width)
            if block.column.numeric:
                raw[:, at] = block.column.rounded(raw[:, at])
            if block.values:
                raw[:, here] = np.eye(block.width)[np.argmax(raw[:, here], axis=1)]
            elif block.width == 2:  # a missing value's number is the public fill, whatever the optimiser did to it
                raw[raw[:, at + 1] > 0.5, at] = block.column.stand_in
            at += block.width
        return raw

    def decode(self, rows: Matrix) -> pd.DataFrame:
        """Legal values in original units; missing where the column's policy has holes."""
        legal = self.legal(rows)
        out: dict[str, Any] = {}
        at = 0
        for block in self.blocks:
            raw = legal[:, at : at + block.width]
            at += block.width
            column = block.column
            if column.numeric:
                values = raw[:, 0].copy()
                if block.width == 2:
                    values[raw[:, 1] > 0.5] = np.nan
                out[column.name] = written_numbers(column, values)
            elif column.kind == "binary":
                out[column.name] = written_labels(column, raw[:, 0].astype(np.int64))
            else:
                out[column.name] = written_labels(column, np.asarray(block.values)[np.argmax(raw, axis=1)])
        return pd.DataFrame(out)

    def soften(self, rows: Matrix) -> pd.DataFrame:
        """The raw numbers in original units, one column per encoded column: what the optimiser really made."""
        return pd.DataFrame(self._unscale(rows), columns=self.names)

    def project(self, rows: Matrix) -> Matrix:
        """The legal rows nearest to these, encoded again: what a reader of the released table will train on."""
        return ((self.legal(rows) - self.centre) / self.scale).astype(np.float32)

    def _unscale(self, rows: Matrix) -> Floats:
        return rows.astype(np.float64) * self.scale + self.centre

    @cached_property
    def _limits(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Per encoded column: lowest and highest legal number, and whether it must be whole (0/1 columns are)."""
        low, high, whole = [], [], []
        for block in self.blocks:
            column = block.column
            for k in range(block.width):
                number = column.numeric and k == 0
                integer = column.whole and number
                # one-hot groups are settled together, by their largest member, so neither clipped nor rounded alone
                bounds = (-np.inf, np.inf) if number or block.values else (0.0, 1.0)
                if number and column.low is not None and column.high is not None:
                    bounds = (np.ceil(column.low), np.floor(column.high)) if integer else (column.low, column.high)
                if integer:  # whole numbers that neither float64 nor int64 would change
                    bounds = (max(bounds[0], -MAX_WHOLE), min(bounds[1], MAX_WHOLE))
                low.append(bounds[0])
                high.append(bounds[1])
                whole.append(integer or (bounds == (0.0, 1.0) and not number))
        return np.array(low, float), np.array(high, float), np.array(whole, bool)


def design(cohort: Cohort) -> pd.DataFrame:
    """Features in original units with one-hot categories: what a model fitted elsewhere should be trained on.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    pandas.DataFrame
        (n, d) float64: a column for each number, for each category, and for holes where the schema keeps them.

    Examples
    --------
    >>> import distcondense as dc, pandas as pd
    >>> table = pd.DataFrame({"stage": ["I", "II", "III"], "age": [34, 71, 58], "died": [0, 1, 0]})
    >>> dc.design(dc.Cohort.from_frame(table, target="died"))
       stage=I  stage=II  stage=III   age
    0      1.0       0.0        0.0  34.0
    1      0.0       1.0        0.0  71.0
    2      0.0       0.0        1.0  58.0
    """
    from distcondense.data.cohort import Cohort

    need(cohort, Cohort, "cohort", "a Cohort", fix="dc.Cohort.from_frame(table, …)")
    return design_of(cohort.features, cohort.schema)


def design_of(features: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The same for a bare table of features."""
    codec = Codec.plain(schema)
    raw = [_raw(features[b.column.name], b) for b in codec.blocks]
    return pd.DataFrame(np.concatenate(raw, axis=1), columns=codec.names)


def _block(column: Column) -> EncodedColumn:
    if column.numeric:
        hole = (f"{column.name}={MISSING}",) if column.missing == "indicator" else ()
        return EncodedColumn(column, (column.name, *hole))
    if column.kind == "binary":
        return EncodedColumn(column, (column.name,))
    if column.unknown:
        return EncodedColumn(column, ())
    values = tuple(range(len(column.categories)))
    names = tuple(f"{column.name}={c}" for c in column.categories)
    if column.missing == "category":
        own = f"{column.name}={MISSING}"
        while own in names:  # a category of the same name is an answer, not a hole
            own += "_"
        values, names = (*values, len(values)), (*names, own)
    return EncodedColumn(column, names, values)


def _only(block: EncodedColumn, keep: NDArray[np.bool_]) -> EncodedColumn:
    chosen = np.flatnonzero(keep)
    values = tuple(block.values[k] for k in chosen) if block.values else ()
    return EncodedColumn(block.column, tuple(block.names[k] for k in chosen), values)


def _raw(series: pd.Series, block: EncodedColumn) -> Floats:  # type: ignore[type-arg]
    """(n, width) float64: the column in original units, one-hot where it has categories, holes by policy."""
    column = block.column
    if column.numeric:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        holes = np.isnan(values)
        filled = np.where(holes, column.stand_in, values)
        return np.stack([filled, holes], axis=1) if block.width == 2 else filled[:, None]
    codes = category_codes(series, column)
    if column.kind == "binary":
        return (codes == 1).astype(np.float64)[:, None]
    return (codes[:, None] == np.asarray(block.values)).astype(np.float64)


def category_codes(series: pd.Series, column: Column) -> NDArray[np.int64]:  # type: ignore[type-arg]
    if isinstance(series.dtype, pd.CategoricalDtype) and list(series.cat.categories) == list(column.categories):
        codes = series.cat.codes.to_numpy(dtype=np.int64)
    else:
        codes = pd.Categorical(series, categories=list(column.categories)).codes.astype(np.int64)
    fill = column.categories.index(column.fill) if column.missing == "constant" else len(column.categories)
    if column.searched:  # its last category stands for all that were not found
        codes = np.where((codes < 0) & series.notna().to_numpy(), len(column.categories) - 1, codes)
    return np.where(codes < 0, fill, codes)
