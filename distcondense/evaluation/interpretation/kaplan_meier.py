"""Kaplan–Meier curves in NumPy: rows that count any number of times, Greenwood's band, grids that no patient is in.

lifelines is the oracle in the tests; it takes a second for what two hundred resamples need done two hundred times.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.evaluation.score import NORMAL

STEPS_DRAWN = 60  # of a curve, at most
AT_RISK = 10  # patients; with fewer at risk a curve ends


@dataclass(frozen=True, repr=False)
class SurvivalBand:
    """Survival at the times of a grid, with Greenwood's 95% band (log-log), and how many are at risk."""

    survival: Floats
    low: Floats
    high: Floats
    at_risk: Floats


@dataclass(frozen=True, repr=False)
class SurvivalCurves:
    """Times and events, sorted once; each row may count any number of times."""

    time: Floats
    event: Flags

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Index | Flags) -> SurvivalCurves:
        return SurvivalCurves(self.time[rows], self.event[rows])

    @cached_property
    def _sorted(self) -> tuple[Index, Floats, Index]:
        """Rows by time, the different times, and where each of them starts."""
        order = np.argsort(self.time, kind="stable")
        times, starts = np.unique(self.time[order], return_index=True)
        return order, times, starts

    def _counted(self, counts: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Different times, events at each, rows at risk just before each."""
        order, times, starts = self._sorted
        weight = np.ones(len(order)) if counts is None else np.asarray(counts, np.float64)[order]
        events = np.add.reduceat(weight * self.event[order], starts)
        leaving = np.add.reduceat(weight, starts)
        return times, events, np.cumsum(leaving[::-1])[::-1]

    def survival(self, grid: Floats, counts: Floats | None = None) -> Floats:
        """(k,) the Kaplan–Meier estimate S(t) = Π (1 − d/n) over times up to each of the grid."""
        times, events, at_risk = self._counted(counts)
        alive = np.cumprod(1 - np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0))
        return np.concatenate([[1.0], alive])[np.searchsorted(times, grid, side="right")]

    def at_risk(self, grid: Floats) -> Floats:
        """(k,) rows whose time is not before each of the grid."""
        return len(self) - np.searchsorted(np.sort(self.time), grid, side="left").astype(np.float64)

    def curve(self, grid: Floats) -> SurvivalBand:
        """With Var log S = Σ d/(n(n − d)) the band is S^exp(±1.96·√Var/log S), which stays between 0 and 1.

        Where nobody is left it keeps its last upper end.
        """
        times, events, at_risk = self._counted(None)
        alive = self.survival(times)
        left = at_risk * (at_risk - events)
        variance = np.cumsum(np.divide(events, left, out=np.zeros_like(events), where=left > 0))
        inside = (alive > 0) & (alive < 1)
        low, high = alive.copy(), alive.copy()
        log = np.log(alive[inside])
        apart = NORMAL * np.sqrt(variance[inside]) / -log
        low[inside], high[inside] = np.exp(log * np.exp(apart)), np.exp(log * np.exp(-apart))
        gone = alive <= 0
        if gone.any():
            high[gone] = high[~gone][-1] if (~gone).any() else 1.0
        at = np.searchsorted(times, grid, side="right")
        drawn = [np.concatenate([[1.0], part])[at] for part in (alive, low, high)]
        return SurvivalBand(drawn[0], drawn[1], drawn[2], self.at_risk(grid))


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
