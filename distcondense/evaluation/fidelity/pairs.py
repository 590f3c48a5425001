"""Pairs of columns: correlations, joint tables of groups, and how much one column tells of the other.

Every column has at most `GROUPS` groups here: numbers parts of as many held-out rows each, categories the most frequent
ones and the rest. At most `PAIRS` pairs are looked at, chosen at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.evaluation.fidelity.comparison import FEWEST, REAL, ComparedColumn, Comparison, centred
from distcondense.evaluation.fidelity.divergences import correlation, shared_information, shares, total_variation
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.ruler import quantile_cuts
from distcondense.evaluation.score import Score

PAIRS = 300
GROUPS = 12
TITLES = {
    "correlation_difference": "Difference of correlations, mean over pairs (0: same)",
    "correlation_difference_most": "Difference of correlations, largest of the pairs (0: same)",
    "contingency_similarity": "Joint tables of pairs, similarity (1: same)",
    "information_similarity": "Mutual information of pairs, similarity (1: same)",
}


def some_pairs(many: int, seed: int) -> list[tuple[int, int]]:
    """All pairs of so many columns, or `PAIRS` of them by chance."""
    every = list(combinations(range(many), 2))
    return [every[k] for k in choose(len(every), PAIRS, np.random.default_rng([seed, 0x9A12]))]


def grouped(column: ComparedColumn) -> ComparedColumn:
    """The column with at most `GROUPS` groups."""
    if column.size <= GROUPS:
        return column
    room = GROUPS - column.hole
    if column.numbers is not None:
        cuts = quantile_cuts(column.numbers[REAL], room)
        codes = [np.searchsorted(cuts, one, side="right") for one in column.numbers]
        size = len(cuts) + 1
        hole = [np.isnan(one) for one in column.numbers]
    else:
        often = np.argsort(
            -column.counts(REAL, np.ones(len(column.codes[REAL])))[: column.size - column.hole], kind="stable"
        )
        place = np.full(column.size, room - 1)
        place[often[: room - 1]] = np.arange(room - 1)
        codes = [place[one] for one in column.codes]
        size = room
        hole = [one == column.size - 1 for one in column.codes]
    if column.hole:
        codes = [np.where(empty, size, one) for one, empty in zip(codes, hole, strict=True)]
    labels = tuple(map(str, range(size + column.hole)))
    return replace(column, labels=labels, codes=(codes[0], codes[1], codes[2]))


def pair_scores(comparison: Comparison, seed: int) -> tuple[list[Score], list[str]]:
    """Over all pairs looked at, for every way; and what was left out."""
    notes = [f"At most {PAIRS} pairs of columns, chosen at random; at most {GROUPS} groups a column in joint tables."]
    scores: list[Score] = []
    gaps = correlation_gaps(comparison, seed)
    joint = joint_tables(comparison, seed)
    none = np.full(2, np.nan)
    for side, each, (same, information_alike) in zip(comparison.sides, gaps, joint, strict=True):
        there = each[np.isfinite(each[:, 0])]
        mean = most = none
        if len(there):
            mean, largest = defined_mean(there), np.where(np.isfinite(there), there, -np.inf).max(axis=0)
            most = np.where(np.isfinite(largest), largest, np.nan)
        note = "" if len(there) else "no two columns of numbers that vary"
        scores.append(comparison.score("correlation_difference", side, centred(mean, highest=2), note=note))
        scores.append(comparison.score("correlation_difference_most", side, centred(most, highest=2), note=note))
        for measure, found in (("contingency_similarity", same), ("information_similarity", information_alike)):
            mean, note = (found.mean(axis=0), "") if len(found) else (none, "there is only one column")
            scores.append(comparison.score(measure, side, centred(mean), note=note))
    if left := int((~np.isfinite(gaps[0][:, 0])).sum()):
        notes.append(f"{left} pairs have no correlation, because a column does not vary in the held-out rows.")
    return scores, notes


def correlation_gaps(comparison: Comparison, seed: int) -> list[Floats]:
    """For every way (pairs, 1 + resamples): |real − other correlation|, NaN where a real column does not vary."""
    lines = [column.line for column in comparison.columns if column.line is not None]
    found: list[list[Floats]] = [[] for _ in comparison.sides]
    for i, j in some_pairs(len(lines), seed):
        x, y = lines[i], lines[j]
        real = correlation(x[REAL], y[REAL], comparison.counts, FEWEST)
        for gaps, side in zip(found, comparison.sides, strict=True):
            other = float(correlation(x[side.which], y[side.which], side.weight))
            gaps.append(
                np.abs(real - (other if np.isfinite(other) else 0.0))
            )  # what does not vary is related to nothing
    return [np.array(gaps).reshape(len(gaps), -1) if gaps else np.empty((0, 1)) for gaps in found]


def joint_tables(comparison: Comparison, seed: int, *, mixed: bool = False) -> list[tuple[Floats, Floats]]:
    """For every way (pairs, 1 + resamples): similarity of joint tables, and of what one column tells of the other.

    mixed: only pairs in which not both are numbers.
    """
    compared_columns = [grouped(column) for column in comparison.columns]
    found: list[tuple[list[Floats], list[Floats]]] = [([], []) for _ in comparison.sides]
    for i, j in some_pairs(len(compared_columns), seed):
        if mixed and compared_columns[i].numbers is not None and compared_columns[j].numbers is not None:
            continue
        shape = compared_columns[i].size, compared_columns[j].size
        real = comparison.counted(_joint(compared_columns[i], compared_columns[j], REAL), shape[0] * shape[1])
        known = shared_information(real.reshape(*shape, -1))
        for (same, information_alike), side in zip(found, comparison.sides, strict=True):
            other = np.bincount(
                _joint(compared_columns[i], compared_columns[j], side.which), side.weight, len(real)
            ).astype(np.float64)
            same.append(1 - total_variation(shares(real), shares(other)[:, None]))
            information_alike.append(1 - np.abs(known - shared_information(other.reshape(shape))))
    return [(np.array(same), np.array(information_alike)) for same, information_alike in found]


def defined_mean(values: Floats) -> Floats:
    """Over the first axis, of the numbers that are defined; NaN where none is."""
    there = np.isfinite(values)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _joint(one: ComparedColumn, other: ComparedColumn, which: int) -> Index:
    return np.asarray(one.codes[which] * other.size + other.codes[which], np.int64)


def correlations(compared_columns: Sequence[ComparedColumn], which: int, weight: Floats) -> Floats:
    """(d, d) of columns that have a line; NaN where one does not vary, or too few patients have both."""
    lines = [column.line for column in compared_columns if column.line is not None]
    fewest = FEWEST if which == REAL else 2
    found = np.full((len(lines), len(lines)), np.nan)
    for i, j in combinations_with_replacement(range(len(lines)), 2):
        found[i, j] = found[j, i] = correlation(lines[i][which], lines[j][which], weight, fewest)
    return found
