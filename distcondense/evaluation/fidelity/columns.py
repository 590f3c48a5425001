"""Fidelity: how alike condensed and held-out rows are, column by column and pair by pair (PSyGenTAB §III-A, Table III).

Beside every number stands the same for as many random training rows: what so few rows reach at best. The headline
weights condensed rows as the manual says, because their weights restore the population (comparison.py). The numbers are
computed on patients: they belong in `internal/`.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Floats, Index
from distcondense.evaluation.fidelity.comparison import (
    COLUMNS,
    HELD,
    MADE,
    Comparison,
    bars,
    centred,
    compared,
    side_words,
    why_not,
)
from distcondense.evaluation.fidelity.pairs import TITLES as PAIR_TITLES
from distcondense.evaluation.fidelity.pairs import correlations, pair_scores
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import RESAMPLES
from distcondense.evaluation.score import Interval, Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.outcomes.divergences import SMOOTHING, shares
from distcondense.outcomes.likeness import (
    BINS,
    FEWEST,
    GROUPS,
    PAIRS,
    REAL,
    ComparedColumn,
    ComparedRows,
    column_scores,
)
from distcondense.runs.figures import BARS, HEAT, Figure, Series

NAME, TITLE = "fidelity", "How alike columns and pairs of columns are"
SHOWN = 12  # columns whose distributions are drawn
LISTED = 40  # columns in the overview of distances
HEATED = 25  # columns in a picture of correlations
NO_RESAMPLES = "none: resamples do not tell how far extremes may lie"
TITLES = {
    "ks": "Kolmogorov–Smirnov distance (0: same)",
    "total_variation": "Total variation distance (0: same)",
    "jensen_shannon": "Jensen–Shannon distance (0: same)",
    "hellinger": "Hellinger distance (0: same)",
    "kullback_leibler": "Kullback–Leibler divergence from real, nats (0: same)",
    "range_coverage": "Share of the real range that is spanned (1: all)",
    "category_coverage": "Share of real categories that occur (1: all)",
    **PAIR_TITLES,
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Every column and some pairs of columns, with and without weights, beside the yardstick."""
    if why := why_not(inputs):
        return Section(NAME, TITLE, notes=(f"Not measured: {why}.",), titles=TITLES)
    comparison = compared(inputs, seed)
    log(f"comparing {len(comparison.columns)} columns")
    scores = []
    with threadpool_limits(limits=threads):
        each = [column_scores(comparison, column) for column in comparison.columns]
        paired, notes = pair_scores(comparison, seed)
    found = {side: [one[k] for one in each] for k, side in enumerate(comparison.sides)}
    for side in comparison.sides:
        scores += _means(comparison, found[side], side)
    scores += paired
    for side in comparison.sides:
        for column, measures in zip(comparison.columns, found[side], strict=True):
            scores += _listed(comparison, column, measures, side)
    notes = [
        *comparison.notes,
        f"Numbers are compared in {BINS} public cells between declared bounds, else in {BINS} parts of as many "
        "held-out rows each; the Kolmogorov–Smirnov distance and the range as they are. Missing is a category of its "
        "own.",
        f"Kullback–Leibler: every cell of either table counts {SMOOTHING:g} rows more, so that no cell is empty.",
        "Spanned ranges are rounded to 0.01, so that no extreme can be read off them.",
        *notes,
    ]
    settings = {
        "held-out rows, at most": HELD,
        "condensed rows, at most": MADE,
        "columns, at most": COLUMNS,
        "pairs, at most": PAIRS,
        "groups a column in pairs, at most": GROUPS,
        "cells of a number": BINS,
        "resamples": RESAMPLES,
    }
    figures = (*_overview(comparison, found), *_heat(comparison), *_marginals(comparison, found))
    return Section(NAME, TITLE, tuple(scores), figures, (), tuple(notes), TITLES, settings)


# -- columns ----------------------------------------------------------------------------------------------------------


def _listed(
    comparison: Comparison, column: ComparedColumn, measures: dict[str, Floats], side: ComparedRows
) -> list[Score]:
    return [
        comparison.score(
            name, side, _interval(name, values), group=column.name, how=NO_RESAMPLES if name == "range_coverage" else ""
        )
        for name, values in measures.items()
    ]


def _interval(name: str, values: Floats) -> Interval:
    return centred(values, highest=np.inf if name == "kullback_leibler" else 1.0)


def _means(comparison: Comparison, found: list[dict[str, Floats]], side: ComparedRows) -> list[Score]:
    """Means over columns, which vary together from resample to resample."""
    scores = []
    for name in TITLES:
        if name in PAIR_TITLES:
            continue
        values = [one[name] for one in found if name in one and np.isfinite(one[name][0])]
        mean = np.mean(values, axis=0) if values else np.array([np.nan])
        note = "" if values else "no column has it"
        how = NO_RESAMPLES if name == "range_coverage" else ""
        scores.append(comparison.score(name, side, _interval(name, mean), note=note, how=how))
    return scores


# -- figures ----------------------------------------------------------------------------------------------------------


def _far(comparison: Comparison, found: dict[ComparedRows, list[dict[str, Floats]]]) -> Index:
    """Columns, the farthest first."""
    return np.argsort([-one["total_variation"][0] for one in found[comparison.headline]], kind="stable")


def _overview(comparison: Comparison, found: dict[ComparedRows, list[dict[str, Floats]]]) -> list[Figure]:
    shown = _far(comparison, found)[:LISTED]
    names = tuple(comparison.columns[k].name for k in shown)
    series = []
    for side in (comparison.headline, comparison.sides[-1]):
        each = [centred(found[side][k]["total_variation"]) for k in shown]
        series.append(
            Series(
                side_words(side), names, *(tuple(getattr(one, at) for one in each) for at in ("value", "low", "high"))
            )
        )
    return [
        Figure(
            "total_variation",
            BARS,
            "Distance of every column from held-out rows",
            f"Total variation distance: the share of rows that would have to move. The {len(names)} columns that are "
            "farthest away; beside each the distance of as many random real rows.",
            "column",
            TITLES["total_variation"],
            tuple(series),
            y_range=(0.0, 1.0),
        )
    ]


def _heat(comparison: Comparison) -> list[Figure]:
    compared_columns = [column for column in comparison.columns if column.line is not None][:HEATED]
    if len(compared_columns) < 2:
        return []
    side, names = comparison.headline, tuple(column.name for column in compared_columns)
    real = correlations(compared_columns, REAL, comparison.counts[:, 0])
    made = correlations(compared_columns, side.which, side.weight)
    about = f"Pearson's correlation of each pair of the first {len(names)} columns that are numbers or have two values"
    return [
        Figure(
            f"correlations_{name}",
            HEAT,
            title,
            f"{about}{more}. Blank: a column that does not vary.",
            "column",
            "column",
            tuple(Series(row, names, tuple(values)) for row, values in zip(names, matrix.tolist(), strict=True)),
            y_range=(-1.0, 1.0),
        )
        for name, title, matrix, more in (
            ("real", "Correlations in held-out rows", real, ""),
            ("condensed", "Correlations in condensed rows", made, f" ({side_words(side)})"),
            ("difference", "Difference of correlations", made - real, ": condensed minus held out"),
        )
    ]


def _marginals(comparison: Comparison, found: dict[ComparedRows, list[dict[str, Floats]]]) -> list[Figure]:
    """The columns that are farthest away, in bars of at least `FEWEST` held-out rows."""
    figures: list[Figure] = []
    side = comparison.headline
    for k in _far(comparison, found):
        column = comparison.columns[k]
        counts = column.counts(REAL, comparison.counts[:, 0])
        bar, names = bars(column, counts)
        if len(names) < 2 or len(figures) == SHOWN:
            continue
        series = []
        for words, held in (("held out", counts), (side_words(side), column.counts(side.which, side.weight))):
            series.append(
                Series(words, tuple(names), tuple(shares(np.bincount(bar, held).astype(np.float64)).tolist()))
            )
        figures.append(
            Figure(
                f"marginal_{len(figures) + 1}",
                BARS,
                column.name,
                f"Share of rows in each bar. Every bar stands for at least {FEWEST} held-out rows; rarer values are "
                "put together." + ("" if column.numbers is None else " A bar begins at the number below it."),
                column.name,
                "share of rows",
                tuple(series),
            )
        )
    return figures
