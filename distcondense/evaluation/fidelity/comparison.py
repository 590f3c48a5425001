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

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.codec import MISSING
from distcondense.data.features import check_features
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import in_words, resampled, some_of
from distcondense.evaluation.score import CONDENSED, HELD_OUT, PLAIN, RANDOM, SOFT, Interval, Score
from distcondense.outcomes.likeness import (
    DRAWN,
    FEWEST,
    SYNTHETIC,
    ComparedColumn,
    ComparedRows,
    ComparedTables,
    feature_column,
    outcome_column,
)

HELD = 5_000  # held-out rows, at most: their resamples still fit into a cache
MADE = 20_000  # condensed rows, at most
COLUMNS = 100  # columns, at most


@dataclass(frozen=True, repr=False)
class Comparison(ComparedTables):
    """Held-out patients are the real rows, and are resampled."""

    interval: str  # how intervals are made, in words
    notes: tuple[str, ...] = field(default=())

    def score(
        self, measure: str, side: ComparedRows, found: Interval, *, group: str = "", note: str = "", how: str = ""
    ) -> Score:
        if not np.isfinite(found.value) and not note:
            note = "not defined here"
        about = {"rows": len(side.weight), "note": note, "labels": side.labels, "group": group}
        covered, how = side.name == CONDENSED, how or self.interval
        return Score.from_interval(measure, side.name, HELD_OUT, found, self.rows, covered, interval=how, **about)


def side_words(side: ComparedRows) -> str:
    return {SOFT: "condensed, weighted", PLAIN: "condensed"}.get(side.labels, "random real rows, same number")


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
    compared_columns = [feature_column(schema, name, [table[name] for table in tables], shown) for name in names]
    outcomes = (held.outcome.arrays, made.arrays, drawn.outcome.arrays)
    for name in outcomes[0]:
        if name in outcomes[1]:
            compared_columns.append(outcome_column(inputs.kind, name, [arrays[name] for arrays in outcomes]))
    ones = np.ones(len(chosen))
    sides = [ComparedRows(CONDENSED, PLAIN, SYNTHETIC, ones), ComparedRows(RANDOM, "", DRAWN, np.ones(len(drawn)))]
    if weight is not None and weight[chosen].sum() > 0:
        sides.insert(0, ComparedRows(CONDENSED, SOFT, SYNTHETIC, weight[chosen] * len(chosen) / weight[chosen].sum()))
    else:
        notes.append("The condensed rows have no weights: every row counts once.")
    counts = np.column_stack([np.ones(len(held)), *resampled(len(held), held.person, seed=seed)])
    interval = f"{in_words(held.person)}, spread around the value"
    return Comparison(tuple(compared_columns), tuple(sides), counts, interval, tuple(notes))


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
