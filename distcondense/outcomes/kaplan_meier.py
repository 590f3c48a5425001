"""`SurvivalCurves`: the Kaplan–Meier estimator of this package, in NumPy.

One implementation for scores weighted by censoring, for curves with Greenwood's band, and for the resamples of both.
lifelines is the oracle in the tests and not used here: it sorts the rows anew for each of two hundred resamples, takes
a second to import, and answers at the patients' own times, where curves here are read at times that no patient has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from distcondense.arrays import Flags, Floats, Index

NORMAL = 1.959963984540054  # of 95%


@dataclass(frozen=True, repr=False)
class SurvivalCurves:
    """Times and events of rows, sorted once; each row may count any number of times.

    Parameters
    ----------
    time : (n,) float64
        Of the event, or of the end of follow-up.
    event : (n,) bool
        Whether the event happened then.
    """

    time: Floats
    event: Flags

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Index | Flags) -> SurvivalCurves:
        """Some of the rows."""
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

    def survival(self, at: Floats, counts: Floats | None = None) -> Floats:
        """The share that is free of the event after each time.

        Parameters
        ----------
        at : (k,) float64
            Times, in any order.
        counts : (n,) float64, optional
            How often each row counts: a resample. Once each if left out.

        Returns
        -------
        (k,) float64
            S(t) = Π (1 − d/n) over the times up to t; 1 where there are no rows.
        """
        if not len(self):
            return np.ones(len(at))
        times, events, at_risk = self._counted(counts)
        alive = np.cumprod(1 - np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0))
        return np.concatenate([[1.0], alive])[np.searchsorted(times, at, side="right")]

    def at_risk(self, at: Floats) -> Floats:
        """(k,) rows whose time is not before each of these."""
        return len(self) - np.searchsorted(np.sort(self.time), at, side="left").astype(np.float64)

    def band(self, at: Floats) -> tuple[Floats, Floats, Floats]:
        """(k,) survival with the lower and upper end of Greenwood's 95% band (log-log).

        With Var log S = Σ d/(n(n − d)) the band is S^exp(±1.96·√Var/log S), which stays between 0 and 1. Where nobody
        is left it keeps its last upper end.
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
        place = np.searchsorted(times, at, side="right")
        survival, low, high = (np.concatenate([[1.0], end])[place] for end in (alive, low, high))
        return survival, low, high
