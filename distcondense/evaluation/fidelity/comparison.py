"""Held-out, condensed and random real rows side by side, column by column, in groups that can be counted.

The condensed rows are compared with held-out patients twice, with their weights (which restore what the population is
like) and without; as a yardstick stand as many random training rows. Numbers are cut by the schema: `BINS` public cells
between declared bounds; without bounds into `BINS` parts of as many held-out rows, whose edges are never shown. A hole
is a group of its own where the column keeps holes, and else what the schema puts in its place. The outcome is compared
like any column. Condensed rows are what was released, so only the held-out rows are resampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.codec import MISSING, category_codes
from distcondense.data.features import check_features
from distcondense.data.schema import Column, Schema
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import in_words, resampled, some_of
from distcondense.evaluation.ruler import quantile_cuts
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM, SOFT, Interval, Score

HELD = 5_000  # held-out rows, at most: their resamples still fit into a cache
MADE = 20_000  # condensed rows, at most
COLUMNS = 100  # columns, at most
BINS = 20  # groups of a number
CLASSES = 100  # whole numbers of an outcome up to here are its groups
FEWEST = 10  # held-out rows that a shown count must have
HELD_OUT = "held out"
REAL, SYNTHETIC, DRAWN = 0, 1, 2  # which rows: held out, condensed, random training rows


@dataclass(frozen=True, repr=False)
class ComparedColumn:
    """One column of the three tables."""

    name: str
    labels: tuple[str, ...]  # of its groups, as they may be shown
    hole: bool  # the last group is "missing"
    ordered: bool
    codes: tuple[Index, Index, Index]  # (n,) group of each row: held out, condensed, random
    numbers: tuple[Floats, Floats, Floats] | None = None  # of a number: as it is, NaN for a hole

    @property
    def size(self) -> int:
        return len(self.labels)

    @property
    def line(self) -> tuple[Floats, Floats, Floats] | None:
        """Numbers to correlate: a number's own, 0 and 1 of two categories; None of others."""
        if self.numbers is not None or self.size - self.hole != 2:
            return self.numbers
        real, made, drawn = (np.where(codes < 2, codes, np.nan).astype(np.float64) for codes in self.codes)
        return real, made, drawn

    def counts(self, which: int, weight: Floats) -> Floats:
        return np.bincount(self.codes[which], weight, minlength=self.size).astype(np.float64)


@dataclass(frozen=True, repr=False, eq=False)
class ComparedRows:
    """Rows that are held against the held-out ones."""

    name: str  # CONDENSED or RANDOM
    labels: str  # SOFT with weights, PLAIN without
    which: int
    weight: Floats  # adding up to the number of rows

    @property
    def words(self) -> str:
        return {SOFT: "condensed, weighted", PLAIN: "condensed"}.get(self.labels, "random real rows, same number")


@dataclass(frozen=True, repr=False)
class Comparison:
    columns: tuple[ComparedColumn, ...]
    sides: tuple[ComparedRows, ...]
    counts: Floats  # (n, 1 + RESAMPLES) how often each held-out row counts; once each in the first
    interval: str  # how intervals are made, in words
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def headline(self) -> ComparedRows:
        """The condensed rows as they are meant to be used."""
        return self.sides[0]

    def counted(self, codes: Index, size: int) -> Floats:
        """(size, 1 + RESAMPLES) held-out rows of each group."""
        from scipy.sparse import csr_array

        n = len(codes)
        return np.asarray(csr_array((np.ones(n), (codes, np.arange(n))), shape=(size, n)) @ self.counts)

    def score(
        self, measure: str, side: ComparedRows, found: Interval, *, group: str = "", note: str = "", how: str = ""
    ) -> Score:
        if not np.isfinite(found.value) and not note:
            note = "not defined here"
        about = {"rows": len(side.weight), "note": note, "labels": side.labels, "group": group}
        covered, how = side.name == CONDENSED, how or self.interval
        return Score.from_interval(measure, side.name, HELD_OUT, found, self.rows, covered, interval=how, **about)


def centred(values: Any, lowest: float = 0.0, highest: float = 1.0) -> Interval:
    """The first value, and the spread of the others around their mean put around it.

    Resamples of a distance lie above it, because a resample differs from the sample too; their spread is what matters.
    """
    value, drawn = float(values[0]), np.asarray(values[1:], np.float64)
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or not len(drawn):
        return Interval(value, float("nan"), float("nan"))
    low, high = np.percentile(drawn - drawn.mean(), [2.5, 97.5])
    return Interval(value, float(max(value + min(low, 0.0), lowest)), float(min(value + max(high, 0.0), highest)))


def too_few(counts: Floats) -> Flags:
    """Cells that are not shown: fewer than `FEWEST` rows, and more where these would follow from the others."""
    few: Flags = counts < FEWEST
    for cell in np.argsort(counts, axis=None, kind="stable"):
        if not 0 < counts[few].sum() < FEWEST:
            break
        few.flat[cell] = True
    return few


def why_not(inputs: EvaluationInput) -> str:
    """Why nothing can be compared, if so."""
    if not len(inputs.rows):
        return "the run made no rows, so there is nothing to compare"
    if len(inputs.split.test) < FEWEST:
        return f"fewer than {FEWEST} rows were held out, so nothing is compared with patients"
    return ""


def legal_frame(inputs: EvaluationInput) -> pd.DataFrame:
    """The condensed features as legal values; raw numbers as the legal ones nearest to them."""
    return inputs.codec.decode(inputs.rows) if inputs.raw else check_features(inputs.frame, inputs.schema)


def compared(inputs: EvaluationInput, seed: int) -> Comparison:
    """Everything that is compared; see `why_not` first."""
    rng = np.random.default_rng([seed, 0xC011])
    held = inputs.sample(inputs.split.test, HELD, seed)
    frame, weight, made = legal_frame(inputs), inputs.labelled.weight, inputs.made
    chosen = np.sort(rng.permutation(len(frame))[:MADE])
    drawn = inputs.sample(inputs.split.train, len(chosen), seed)
    frame, made = frame.iloc[chosen], made.take(chosen)
    known = [c.name for c in inputs.schema.columns if c.numeric or not c.unknown]
    schema = inputs.schema.only(name for name in known if name in frame and name in held.features)
    names = list(np.array(schema.names, object)[np.sort(rng.permutation(len(schema.names))[:COLUMNS])])
    words = (
        f"{some_of(len(chosen), len(inputs.rows))} condensed rows against {some_of(len(held), held.of)} held-out "
        f"rows; the yardstick is {len(drawn):,} random training rows."
    )
    notes = [words[0].upper() + words[1:]]
    if len(names) < len(schema.names):
        notes.append(f"{len(names)} columns, chosen at random, of {len(schema.names)}.")
    if inputs.raw:
        notes.append("The released numbers are raw: they were compared as the legal rows nearest to them.")
    tables = (held.features, frame, drawn.features)
    shown = schema.origin == "declared"
    compared_columns = [_column(schema, name, [table[name] for table in tables], shown) for name in names]
    outcomes = (held.outcome.arrays, made.arrays, drawn.outcome.arrays)
    for name in outcomes[0]:
        if name in outcomes[1]:
            compared_columns.append(_outcome(inputs, name, [arrays[name] for arrays in outcomes]))
    ones = np.ones(len(chosen))
    sides = [ComparedRows(CONDENSED, PLAIN, SYNTHETIC, ones), ComparedRows(RANDOM, "", DRAWN, np.ones(len(drawn)))]
    if weight is not None and weight[chosen].sum() > 0:
        sides.insert(0, ComparedRows(CONDENSED, SOFT, SYNTHETIC, weight[chosen] * len(chosen) / weight[chosen].sum()))
    else:
        notes.append("The condensed rows have no weights: every row counts once.")
    counts = np.column_stack([np.ones(len(held)), *resampled(len(held), held.person, seed=seed)])
    interval = f"{in_words(held.person)}, spread around the value"
    return Comparison(tuple(compared_columns), tuple(sides), counts, interval, tuple(notes))


# -- columns as groups ------------------------------------------------------------------------------------------------


def _column(schema: Schema, name: str, series: list[Any], shown: bool) -> ComparedColumn:
    column = schema[name]
    if not column.numeric:
        named = map(str, column.categories) if shown else (f"level {k + 1}" for k in range(len(column.categories)))
        labels = (*named, *([MISSING] if column.keeps_holes else []))
        codes = [np.minimum(category_codes(one, column), len(labels) - 1) for one in series]
        return ComparedColumn(name, labels, column.keeps_holes, column.ordered, _three(codes))
    numbers = [column_numbers(one, column) for one in series]
    if column.low is None or column.high is None:
        return _parts(name, numbers, column.keeps_holes)
    cells = public_cells(schema.only([name]), BINS)[0]
    codes = [np.asarray(cells.codes(one), np.int64) for one in series]
    edges = np.concatenate([[column.low], cells.cuts])
    labels = tuple(f"{edge:g}" for edge in edges) if shown else _places(len(edges))
    return ComparedColumn(
        name, (*labels, *([MISSING] if cells.hole else [])), cells.hole, True, _three(codes), _three(numbers)
    )


def _outcome(inputs: EvaluationInput, name: str, arrays: list[NDArray[Any]]) -> ComparedColumn:
    kind = inputs.kind
    title = kind.names[0] if len(kind.names) == 1 else f"outcome: {name}"
    whole = all(np.issubdtype(array.dtype, np.integer) for array in arrays)
    if not whole or max(array.max(initial=0) for array in arrays) >= CLASSES or min(map(np.min, arrays)) < 0:
        return _parts(title, [np.asarray(array, np.float64) for array in arrays], False)
    codes = [array.astype(np.int64) for array in arrays]
    size = max(int(array.max()) + 1 for array in codes)
    named = kind.labels_public and len(kind.labels) >= size
    labels = tuple(map(str, kind.labels)) if named else tuple(f"class {k}" for k in range(size))
    return ComparedColumn(title, labels, False, False, _three(codes))


def _parts(name: str, numbers: list[Floats], hole: bool) -> ComparedColumn:
    """Parts of as many held-out rows each: where they are cut is nobody's business."""
    cuts = quantile_cuts(numbers[REAL], BINS)
    size = len(cuts) + 1
    codes = [np.where(np.isnan(one), size if hole else 0, np.searchsorted(cuts, one, side="right")) for one in numbers]
    labels = (*_places(size), *([MISSING] if hole else []))
    return ComparedColumn(name, labels, hole, True, _three(codes), _three(numbers))


def column_numbers(series: pd.Series[Any], column: Column) -> Floats:
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return values if column.keeps_holes else np.where(np.isnan(values), column.stand_in, values)


def _places(size: int) -> tuple[str, ...]:
    return tuple(f"part {k + 1}" for k in range(size))


def _three(arrays: list[Any]) -> tuple[Any, Any, Any]:
    return arrays[0], arrays[1], arrays[2]


def bars(column: ComparedColumn, counts: Floats) -> tuple[Index, list[str]]:
    """The bar of each group, so that every bar has `FEWEST` held-out rows: neighbours together, or all rare ones."""
    if not column.ordered:
        few: Flags = counts < FEWEST
        for group in np.argsort(counts, kind="stable"):
            if not few.any() or counts[few].sum() >= FEWEST:
                break
            few[group] = True
        bar = np.where(few, (~few).sum(), np.cumsum(~few) - 1)
        return bar, [column.labels[g] for g in np.flatnonzero(~few)] + (["few"] if few.any() else [])
    bar, held = np.zeros(column.size, np.int64), 0.0
    for group in range(column.size):
        bar[group] = bar[group - 1] if group else 0
        if held >= FEWEST and counts[group:].sum() >= FEWEST:
            bar[group] += 1
            held = 0.0
        held += counts[group]
    return bar, list(_spans(column, bar))


def _spans(column: ComparedColumn, bar: Index) -> Iterator[str]:
    """A number's bar is called by where it begins, the next one says where it ends; categories by first and last."""
    for k in range(int(bar.max()) + 1):
        inside = np.flatnonzero(bar == k)
        first, last = column.labels[inside[0]], column.labels[inside[-1]]
        if column.numbers is None and first != last:
            yield f"{first} to {last}"
        else:
            yield f"{first} or {MISSING}" if column.hole and len(inside) > 1 and last == MISSING else first
