"""Pairs of columns: correlations, joint tables of groups, and how much one column tells of the other.

Every column has at most `GROUPS` groups here: numbers parts of as many held-out rows each, categories the most frequent
ones and the rest. At most `PAIRS` pairs are looked at, chosen at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.evaluation.fidelity.comparison import FEWEST, REAL, ComparedColumn, Comparison, centred
from distcondense.evaluation.fidelity.divergences import correlation, shared_information, shares, total_variation
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
    rng = np.random.default_rng([seed, 0x9A12])
    total = many * (many - 1) // 2
    if total <= PAIRS:
        return list(combinations(range(many), 2))
    every = list(combinations(range(many), 2))
    return [every[k] for k in np.sort(rng.choice(total, PAIRS, replace=False))]


def grouped(facet: ComparedColumn) -> ComparedColumn:
    """The column with at most `GROUPS` groups."""
    if facet.size <= GROUPS:
        return facet
    room = GROUPS - facet.hole
    if facet.numbers is not None:
        there = facet.numbers[REAL][~np.isnan(facet.numbers[REAL])]
        cuts = np.unique(np.quantile(there, np.arange(1, room) / room)) if len(there) else np.empty(0)
        codes = [np.searchsorted(cuts, one, side="right") for one in facet.numbers]
        size = len(cuts) + 1
        hole = [np.isnan(one) for one in facet.numbers]
    else:
        often = np.argsort(
            -facet.counts(REAL, np.ones(len(facet.codes[REAL])))[: facet.size - facet.hole], kind="stable"
        )
        place = np.full(facet.size, room - 1)
        place[often[: room - 1]] = np.arange(room - 1)
        codes = [place[one] for one in facet.codes]
        size = room
        hole = [one == facet.size - 1 for one in facet.codes]
    if facet.hole:
        codes = [np.where(empty, size, one) for one, empty in zip(codes, hole, strict=True)]
    labels = tuple(map(str, range(size + facet.hole)))
    return replace(facet, labels=labels, codes=(codes[0], codes[1], codes[2]))


def pair_scores(comparison: Comparison, seed: int) -> tuple[list[Score], list[str]]:
    """Over all pairs looked at, for every way; and what was left out."""
    notes = [f"At most {PAIRS} pairs of columns, chosen at random; at most {GROUPS} groups a column in joint tables."]
    scores: list[Score] = []
    gaps = correlation_gaps(comparison, seed)
    joint = joint_tables(comparison, seed)
    none = np.full(2, np.nan)
    for way, each, (same, told) in zip(comparison.ways, gaps, joint, strict=True):
        there = each[np.isfinite(each[:, 0])]
        mean, most = (defined_mean(there), _defined_most(there)) if len(there) else (none, none)
        note = "" if len(there) else "no two columns of numbers that vary"
        scores.append(comparison.score("correlation_difference", way, centred(mean, highest=2), note=note))
        scores.append(comparison.score("correlation_difference_most", way, centred(most, highest=2), note=note))
        for measure, found in (("contingency_similarity", same), ("information_similarity", told)):
            mean, note = (found.mean(axis=0), "") if len(found) else (none, "there is only one column")
            scores.append(comparison.score(measure, way, centred(mean), note=note))
    if left := int((~np.isfinite(gaps[0][:, 0])).sum()):
        notes.append(f"{left} pairs have no correlation, because a column does not vary in the held-out rows.")
    return scores, notes


def correlation_gaps(comparison: Comparison, seed: int) -> list[Floats]:
    """For every way (pairs, 1 + resamples): |real − other correlation|, NaN where a real column does not vary."""
    lines = [facet.line for facet in comparison.facets if facet.line is not None]
    found: list[list[Floats]] = [[] for _ in comparison.ways]
    for i, j in some_pairs(len(lines), seed):
        x, y = lines[i], lines[j]
        real = correlation(x[REAL], y[REAL], comparison.counts, FEWEST)
        for gaps, way in zip(found, comparison.ways, strict=True):
            other = float(correlation(x[way.which], y[way.which], way.weight))
            gaps.append(
                np.abs(real - (other if np.isfinite(other) else 0.0))
            )  # what does not vary is related to nothing
    return [np.array(gaps).reshape(len(gaps), -1) if gaps else np.empty((0, 1)) for gaps in found]


def joint_tables(comparison: Comparison, seed: int, *, mixed: bool = False) -> list[tuple[Floats, Floats]]:
    """For every way (pairs, 1 + resamples): similarity of joint tables, and of what one column tells of the other.

    mixed: only pairs in which not both are numbers.
    """
    facets = [grouped(facet) for facet in comparison.facets]
    found: list[tuple[list[Floats], list[Floats]]] = [([], []) for _ in comparison.ways]
    for i, j in some_pairs(len(facets), seed):
        if mixed and facets[i].numbers is not None and facets[j].numbers is not None:
            continue
        shape = facets[i].size, facets[j].size
        real = comparison.counted(_joint(facets[i], facets[j], REAL), shape[0] * shape[1])
        known = shared_information(real.reshape(*shape, -1))
        for (same, told), way in zip(found, comparison.ways, strict=True):
            other = _tallied(_joint(facets[i], facets[j], way.which), way.weight, len(real))
            same.append(1 - total_variation(shares(real), shares(other)[:, None]))
            told.append(1 - np.abs(known - shared_information(other.reshape(shape))))
    return [(np.array(same), np.array(told)) for same, told in found]


def defined_mean(values: Floats) -> Floats:
    """Over the first axis, of the numbers that are defined; NaN where none is."""
    there = np.isfinite(values)
    total = np.where(there, values, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _defined_most(values: Floats) -> Floats:
    most = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    return np.where(np.isfinite(most), most, np.nan)


def _tallied(codes: Index, weight: Floats, size: int) -> Floats:
    return np.bincount(codes, weight, minlength=size).astype(np.float64)


def _joint(one: ComparedColumn, other: ComparedColumn, which: int) -> Index:
    return np.asarray(one.codes[which] * other.size + other.codes[which], np.int64)


def correlations(facets: Sequence[ComparedColumn], which: int, weight: Floats) -> Floats:
    """(d, d) of columns that have a line; NaN where one does not vary, or too few patients have both."""
    lines, fewest = [facet.line for facet in facets], FEWEST if which == REAL else 2
    found = np.full((len(lines), len(lines)), np.nan)
    for i, j in combinations(range(len(lines)), 2):
        x, y = lines[i], lines[j]
        assert x is not None
        assert y is not None
        found[i, j] = found[j, i] = correlation(x[which], y[which], weight, fewest)
    for i, x in enumerate(lines):
        assert x is not None
        found[i, i] = correlation(x[which], x[which], weight, fewest)
    return found
