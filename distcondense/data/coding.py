"""A batch of a table as cells: what `Cohort.read` and `Cells.codes` make of it, read off Arrow where it is plain.

A batch is read by itself: with a declared schema a row means what it means beside any other rows, so that batches may
be cut anywhere. Numbers are cut into cells by a kernel, labels are read once for each value that a batch holds. Where a
column of a batch is not plain, or holds anything that must be refused, the slow way reads it, and says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Floats, Marks
from distcondense.data.cells import Cells
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.persons import PERSON, HoldoutSplit, RowHash, marks_of, texts_of, words_of
from distcondense.data.schema import Column, Schema
from distcondense.data.tables import as_frame
from distcondense.data.values import identifiers_of
from distcondense.errors import CohortError
from distcondense.kernels import binning

FEW = 1000  # values of a column that are read once each, and remembered for the next batch
STEPS = 4  # for each cut, of a number's range, by which its cell is looked up
LISTED = 2**14  # whole numbers in a range, of each of which the cell is looked up at once
WHOLE = ("int32", "int64")  # of Arrow, that a kernel is compiled for
# what the fast way knows about a column; one of which anything else is said is read in the slow way
KNOWN = {
    "name",
    "kind",
    "low",
    "high",
    "categories",
    "unit",
    "missing",
    "fill",
    "spacing",
    "ordered",
    "decimals",
    "step",
    "domain",
    "meaning",
    "out_of_range",
}


@dataclass(frozen=True, repr=False)
class Coded:
    """Rows as the gate takes them in, and by what they are told apart; n each."""

    codes: list[NDArray[Any]]  # of each column; of unlisted values (n, TEXT) keyed hashes of texts, zeros for a hole
    target: Mapping[str, NDArray[Any]]
    mark: Marks
    who: Marks | None  # (n, 2)
    words: Mapping[int, Mapping[bytes, str]] = field(default_factory=dict)  # column → hash → text

    def __len__(self) -> int:
        return len(self.mark)


@dataclass(frozen=True)
class Coder:
    """What is public about a table's columns, how each becomes cells; and the secret that rows are hashed with."""

    schema: Schema  # of the features
    kind: Any  # an outcomes.base.Kind
    cells: tuple[Cells, ...]  # of those features that are asked for
    coins: HoldoutSplit  # whose secret keys all hashes
    person_id: str | None = None
    whole: Callable[[Any], Cohort] | None = None  # reads a frame, where columns are computed or have codes for holes

    @cached_property
    def plain(self) -> Mapping[str, _Grid | None]:
        """Columns that can be read in the fast way; of numbers, how."""
        asked = {cells.column.name: cells for cells in self.cells}
        return {
            column.name: _Grid.from_column(column, asked.get(column.name)) if column.numeric else None
            for column in self.schema.columns
            if is_plain(column)
        }

    @cached_property
    def _last(self) -> dict[str, tuple[Any, Any]]:
        """By column: the values that were read last, and what became of them; most batches hold the same."""
        return {}

    def _once(self, name: str, values: Any, read: Callable[[Any], Any]) -> Any:
        """What `read` makes of an array of distinct values, in a frame of one column."""
        import pyarrow as pa

        key = (str(values.type), values.to_pylist()) if len(values) <= FEW else None
        last = self._last.get(name)
        if key is not None and last is not None and last[0] == key:
            return last[1]
        value = read(as_frame(pa.table({name: values})))
        self._last[name] = (key, value)
        return value

    @property
    def columns(self) -> tuple[str, ...] | None:
        """All that it reads; None: whatever there is."""
        if self.whole is not None:
            return None
        return tuple(
            dict.fromkeys((*self.schema.names, *self.kind.names, *([self.person_id] if self.person_id else [])))
        )

    def of_cohort(self, cohort: Cohort) -> Coded:
        """The slow way, and the oracle of the other."""
        coded = [self._cell_codes(cells, cohort.features[cells.column.name]) for cells in self.cells]
        words = {place: texts for place, (_, texts) in enumerate(coded) if texts is not None}
        who = None if cohort.person is None else self.coins.digests(cohort.identifiers, PERSON)[cohort.person]
        return Coded([codes for codes, _ in coded], cohort.outcome.arrays, marks_of(cohort, self.coins), who, words)

    def of_batch(self, batch: Any) -> Coded:
        """The same of a batch of Arrow's."""
        if self.whole is not None:
            return self.of_cohort(self.whole(as_frame(batch)))
        asked = {cells.column.name: cells for cells in self.cells}
        rows, problems = RowHash(batch.num_rows, self.coins), list[str]()
        coded: dict[str, tuple[Any, dict[bytes, str] | None]] = {}
        for column in self.schema.columns:
            try:
                coded[column.name] = self._column(batch.column(column.name), column, asked.get(column.name), rows)
            except CohortError as error:
                problems.append(str(error))
        if problems:
            raise CohortError(
                "table",
                "must fit its schema",
                found="\n  - ".join(["", *problems]) if len(problems) > 1 else problems[0],
            )
        target = self._outcome(batch)
        rows.add_outcome(target)
        codes = [coded[name][0] for name in asked]
        words = {place: texts for place, name in enumerate(asked) if (texts := coded[name][1]) is not None}
        return Coded(codes, target, rows.marks(), self._who(batch), words)

    def _who(self, batch: Any) -> Marks | None:
        """(n, 2) keyed hashes of the persons' identifiers."""
        import pyarrow as pa

        if self.person_id is None:
            return None
        values = batch.column(self.person_id)
        if pa.types.is_integer(values.type) and not values.null_count:  # nothing about them can be refused
            person, numbers = pd.factorize(values.to_numpy())
            return self.coins.digests(map(str, numbers.tolist()), PERSON)[person]
        person, texts = identifiers_of(as_frame(batch.select([self.person_id]))[self.person_id], self.person_id)
        return self.coins.digests(texts, PERSON)[person]

    def _outcome(self, batch: Any) -> Mapping[str, NDArray[Any]]:
        """As the kind reads it; of one column of few values, each of them once."""
        import pyarrow as pa

        names = list(self.kind.names)
        values = batch.column(names[0])
        if len(names) == 1 and not pa.types.is_floating(values.type) and not values.null_count:
            packed = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            index = packed.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            there = np.bincount(index, minlength=len(packed.dictionary)) > 0
            if len(there) <= FEW and there.all():
                with suppress(CohortError):  # said below, with the rows
                    arrays_of_values = self._once(
                        names[0], packed.dictionary, lambda frame: self.kind.read(frame).arrays
                    )
                    return {name: array[index] for name, array in arrays_of_values.items()}
        arrays: Mapping[str, NDArray[Any]] = self.kind.read(as_frame(batch.select(names))).arrays
        return arrays

    def _column(
        self, values: Any, column: Column, cells: Cells | None, rows: RowHash
    ) -> tuple[Any, dict[bytes, str] | None]:
        """(cells of the rows, hashes → texts of unlisted values); and the column into the rows' hash."""
        import pyarrow as pa

        kind, plain = values.type, column.name in self.plain
        if plain and column.numeric and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            grid = self.plain[column.name]
            assert grid is not None
            codes = grid.coded(values, rows)
            if codes is not None:
                return (codes if cells is not None else None), None
        elif plain and not column.numeric and (pa.types.is_primitive(kind) or _may_be_packed(kind)):
            labels = self._labels(values, column, cells, rows)
            if labels is not None:
                return labels
        checked = _checked(as_frame(pa.table({column.name: values})), column)
        rows.add_column(column, checked)
        return self._cell_codes(cells, checked)

    def _labels(
        self, values: Any, column: Column, cells: Cells | None, rows: RowHash
    ) -> tuple[Any, dict[bytes, str] | None] | None:
        """Every value that the batch holds, read once by the slow way; None where it would refuse one."""
        import pyarrow as pa

        packed = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        if column.missing == "refuse" and (packed.indices.null_count or packed.dictionary.null_count):
            return None
        index = packed.indices.fill_null(len(packed.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        there = np.zeros(len(packed.dictionary) + 1, np.bool_)
        there[index] = True
        used = np.flatnonzero(there[:-1])
        distinct = packed.dictionary if len(used) == len(packed.dictionary) else packed.dictionary.take(pa.array(used))
        try:
            checked = self._once(column.name, distinct, lambda frame: _checked(frame, column))
        except CohortError:
            return None
        number = np.full(len(there), len(used))  # of each value among those used; the last: a hole
        number[used] = np.arange(len(used))
        index = number[index]
        codes = np.append(np.asarray(checked.cat.codes, np.int64), -1)  # of the values, and a hole behind them
        each = pd.Series(pd.Categorical.from_codes(codes, categories=checked.cat.categories))
        rows.add_words(words_of(column, each, self.coins)[index])
        cell, words = self._cell_codes(cells, each)
        return (None if cell is None else cell[index]), words

    def _cell_codes(self, cells: Cells | None, values: pd.Series[Any]) -> tuple[Any, dict[bytes, str] | None]:
        """(n,) cells of checked values; of unlisted ones (n, TEXT) hashes of texts, zeros for a hole; hash → text."""
        if cells is None:
            return None, None
        if cells.numeric or not cells.column.unknown:
            return cells.codes(values), None
        hashes, texts = texts_of(values, self.coins), list(values.cat.categories)
        words = {one.tobytes(): text for one, text in zip(hashes, texts, strict=False)}
        return hashes[np.asarray(values.cat.codes, np.int64)], words


def _checked(frame: pd.DataFrame, column: Column) -> pd.Series[Any]:
    """The one column, as a cohort takes it in."""
    return check_features(frame, Schema((column,)))[column.name]


def _may_be_packed(kind: Any) -> bool:
    """Whether Arrow's type is one of texts, or of values that are listed once each."""
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_plain(column: Column) -> bool:
    """Whether the fast way knows all that is said about a column."""
    more = (key for key in fields(column) if key.name not in KNOWN)
    return column.kind != "date" and all(getattr(column, key.name) == key.default for key in more)


@dataclass(frozen=True, repr=False)
class _Grid:
    """How a plain column of numbers becomes cells; public."""

    low: float
    high: float
    whole: bool
    refuses: bool  # holes
    cuts: Floats  # and infinity
    jumps: tuple[NDArray[np.int32], float, float]
    hole: Any  # the code of a hole, of the type that codes have
    first: int = 0  # the first legal whole number
    codes: NDArray[Any] | None = None  # of each legal whole number, where there are few
    words: Marks | None = None  # their float64s, as bits

    @classmethod
    def from_column(cls, column: Column, cells: Cells | None) -> _Grid:
        cuts = np.zeros(0) if cells is None else cells.cuts
        low, high = column.low, column.high
        if low is None or high is None or column.searched:
            low, high = -np.inf, np.inf
        hole = np.zeros(1, np.uint8)[0] if cells is None else cells.codes(pd.Series([np.nan]))[0]
        grid = cls(
            float(low),
            float(high),
            column.whole,
            column.missing == "refuse",
            np.append(cuts, np.inf),
            _jumps(cuts),
            hole,
        )
        if not np.isfinite(high - low) or high - low > LISTED or cells is None:
            return grid
        each = np.arange(np.ceil(low), np.floor(high) + 1)
        codes = np.searchsorted(cuts, each, side="right").astype(hole.dtype)
        return replace(grid, first=math.ceil(low), codes=codes, words=(each + 0.0).view(np.uint64))

    def coded(self, values: Any, rows: RowHash) -> NDArray[Any] | None:
        """(n,) cells of legal numbers, which the rows' hash then holds; None where one must be refused, or a hole."""
        out = np.empty(len(values), self.hole.dtype)
        if self.codes is not None and self.words is not None and str(values.type) in WHOLE and not values.null_count:
            given = values.to_numpy(zero_copy_only=True)
            if not len(given) or (given.min() >= self.first and given.max() < self.first + len(self.codes)):
                rows.add_listed(given, self.first, self.codes, self.words, out)
                return out
        if str(values.type) != "double":
            values = values.cast("float64", safe=False)
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
        holes, bad = binning.bin_numbers(numbers, self.cuts, *self.jumps, self.low, self.high, self.whole, out)
        if bad or (holes and self.refuses):
            return None
        if holes:
            binning.fill_missing(numbers, self.hole, out)
        rows.add_numbers(numbers)
        return out


def _jumps(cuts: Floats) -> tuple[NDArray[np.int32], float, float]:
    """Equal steps over the range of the cuts, and how many cuts lie below each of their edges."""
    if len(cuts) < 2 or not np.isfinite(cuts[-1] - cuts[0]):
        return np.array([0, len(cuts)], np.int32), 0.0, 0.0
    steps = STEPS * len(cuts)
    origin, scale = float(cuts[0]), steps / float(cuts[-1] - cuts[0])
    edges = origin + np.arange(steps + 1) / scale
    jump = np.searchsorted(cuts, edges, side="left").astype(np.int32)
    jump[0], jump[-1] = 0, len(cuts)
    return jump, origin, scale
