"""Pairs of columns: the scores of correlations, joint tables of groups, and how much one column tells of the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np

from distcondense.arrays import Floats
from distcondense.evaluation.fidelity.comparison import Comparison, centred
from distcondense.evaluation.score import Score
from distcondense.outcomes.divergences import correlation
from distcondense.outcomes.likeness import (
    FEWEST,
    GROUPS,
    PAIRS,
    REAL,
    ComparedColumn,
    correlation_gaps,
    defined_mean,
    joint_tables,
)

TITLES = {
    "correlation_difference": "Difference of correlations, mean over pairs (0: same)",
    "correlation_difference_most": "Difference of correlations, largest of the pairs (0: same)",
    "contingency_similarity": "Joint tables of pairs, similarity (1: same)",
    "information_similarity": "Mutual information of pairs, similarity (1: same)",
}


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


def correlations(compared_columns: Sequence[ComparedColumn], which: int, weight: Floats) -> Floats:
    """(d, d) of columns that have a line; NaN where one does not vary, or too few patients have both."""
    lines = [column.line for column in compared_columns if column.line is not None]
    fewest = FEWEST if which == REAL else 2
    found = np.full((len(lines), len(lines)), np.nan)
    for i, j in combinations_with_replacement(range(len(lines)), 2):
        found[i, j] = found[j, i] = correlation(lines[i][which], lines[j][which], weight, fewest)
    return found
