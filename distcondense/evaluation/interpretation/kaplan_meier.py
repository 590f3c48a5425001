"""Survival curves of real and condensed rows side by side: on grids that no patient's time is in, by risk group."""

from __future__ import annotations

import math
import warnings

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.outcomes.kaplan_meier import SurvivalCurves

STEPS_DRAWN = 60  # of a curve, at most
AT_RISK = 10  # patients; with fewer at risk a curve ends


def tidy(times: Floats) -> Floats:
    """Without what float64 put into their twelfth digit, so that equal times are equal."""
    longest = float(times.max(initial=0.0))
    return np.round(times, 11 - math.floor(math.log10(longest))) if longest > 0 else times


def public_grid(made: SurvivalCurves, real: SurvivalCurves) -> Floats:
    """(≤ 60,) equal steps to a horizon that no patient's time is in: the released rows' longest time, rounded up to two
    digits, halved until ten patients and one released row reach its half, and cut where fewer are at risk."""
    longest = float(made.time.max())
    digit = 10.0 ** (math.floor(math.log10(longest)) - 1)
    horizon = math.ceil(longest / digit) * digit

    def reached(until: Floats) -> Flags:
        return np.asarray((real.at_risk(until) >= AT_RISK) & (made.at_risk(until) >= 1))

    for _ in range(64):
        if reached(np.array([horizon / 2]))[0]:
            break
        horizon /= 2
    grid = tidy(horizon * np.arange(1, STEPS_DRAWN + 1) / STEPS_DRAWN)
    return grid[reached(grid)]


def common(grid: Floats, real: SurvivalCurves, made: SurvivalCurves) -> Floats:
    """Of the grid, the times at which ten patients are at risk and the condensed curve is known: someone is, or all had
    the event."""
    if not len(real) or not len(made):
        return grid[:0]
    known = (made.at_risk(grid) >= 1) | (made.survival(grid) <= 0)
    both = (real.at_risk(grid) >= AT_RISK) & known
    return grid[: len(grid) if both.all() else int(np.argmin(both))]


def distance(one: Floats, other: Floats, grid: Floats) -> float:
    """∫|S − S′| dt / h over [0, h], by trapezia between the steps of the grid; both curves are 1 at 0."""
    apart = np.concatenate([[0.0], np.abs(one - other)])
    return float(np.trapezoid(apart, np.concatenate([[0.0], grid])) / grid[-1])


def risk_groups(risk: Numbers, groups: int) -> Index:
    """(n,) which part of its own rows each is in, by quantiles of its risk; equal risks are in one group."""
    size = np.asarray(risk, np.float64)
    size = np.round(size / max(float(np.abs(size).max(initial=0.0)), 1e-300), 5)  # float32 tells equal rows apart
    cuts = np.quantile(size, np.arange(1, groups) / groups)
    return np.searchsorted(cuts, size, side="left").astype(np.int64)


def log_rank(lives: SurvivalCurves, group: Index) -> float:
    """lifelines' p-value of the log-rank test between the groups; NaN where there is one group only."""
    from lifelines.statistics import multivariate_logrank_test

    if len(np.unique(group)) < 2 or not lives.event.any():
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(multivariate_logrank_test(lives.time, group, lives.event).p_value)
