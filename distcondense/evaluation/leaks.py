"""What counts as a leak: the one rule, for a section's verdict, for the page, for the terminal and for benchmarks.

An attack's score is a leak where it is so far above chance that the best of all the scores that every attack together
reports would be there by luck once in twenty pages. The distance does not depend on which attacks were asked for: the
same score is a leak, or none, wherever it stands. The same distance above its ceiling refutes the guarantee.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from distcondense.evaluation.score import NORMAL, Score

CHANCE = {"auroc": 0.5, "tpr_at_0.1": 0.1, "tpr_at_0.001": 0.001}  # of a guess; 0 of an advantage, an excess or a risk
ONCE = 0.05  # how often all attacks on one page together may call luck a leak
SCORES = 200  # that all attacks together report, at most
FAR = NormalDist().inv_cdf(1 - ONCE / SCORES) / NORMAL  # in lengths of the lower half of a 95% interval


def chance(measure: str) -> float:
    """What an attack that knows nothing reaches."""
    return CHANCE.get(measure, 0.0)


def excess(score: Score, level: float | None = None) -> float:
    """How far a score lies above chance, or above `level`, in lengths of the lower half of its 95% interval.

    −∞ for a score that tests nothing: one without a value, or of which no value would have shown anything (no power).
    """
    if score.power is None or not math.isfinite(score.low):
        return -math.inf
    above = score.value - (chance(score.measure) if level is None else level)
    return above / max(score.value - score.low, 1e-9)


def is_leak(score: Score) -> bool:
    """Whether members are told from outsiders by more than luck.

    Parameters
    ----------
    score : Score
        Of an attack: its measure says what chance is, its interval how much it varies.

    Returns
    -------
    bool
        True only for a score that was able to show a leak (it has a power) and is `FAR` above chance.
    """
    return excess(score) > FAR


def above_ceiling(score: Score) -> bool:
    """Whether it is above what the guarantee allows by more than luck: then the guarantee does not hold as stated."""
    return score.ceiling is not None and excess(score, score.ceiling) > FAR
