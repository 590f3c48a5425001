"""`Ceilings`: the most that any membership attack can reach on a release, whatever it knows, by the release's theorem.

A theorem about neighbouring tables is a trade-off curve f: a test that calls a share α of those who are not in the
table members misses at least f(α) of those who are. So a true-positive rate is at most 1 − f(α), the area under any
ROC curve at most ∫(1 − f), and no advantage (true minus false positives) is above max(1 − f(α) − α).

The tightest curve that the statement gives is taken: of its ledger's answers together where it has one (exact for
Gaussian answers, a PLD with choices), else of the curve it stores, and never looser than its (ε, δ):
f(α) = max(0, 1 − δ − e^ε α, e^−ε (1 − δ − α)). Everything is rounded up.

It bounds what is expected over the mechanism's noise and the coin that put a target in or left it out, one target or
the mean of many. One run's number scatters around that: compare the ceiling with the interval, not with the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from distcondense.arrays import Floats
from distcondense.privacy.accountant import trade_off
from distcondense.privacy.events import Event
from distcondense.privacy.statement import Privacy, largest_advantage

# where false positives are looked at: 1e-6 to a hundredth in equal ratios (1e-3 among them), then every thousandth
LEVELS = np.concatenate([[0.0], np.power(10.0, np.arange(-120, -40) / 20), np.arange(10, 1001) / 1000])
NO_CEILING = "no ceiling: there is no theorem about this release"


@dataclass(frozen=True)
class Ceilings:
    """The largest AUROC, advantage, and true positives at given false positives, of any membership attack."""

    auroc: float
    advantage: float
    most: tuple[float, ...]  # true positives at LEVELS
    theorem: str  # which, in words
    with_earlier: Ceilings | None = None  # of somebody who has the earlier releases too; None where there are none

    def tpr(self, fpr: float) -> float:
        """The largest share of members that an attack with so many false alarms can find."""
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr must be in [0, 1], found {fpr}")
        return self.most[min(int(np.searchsorted(LEVELS, fpr * (1 - 1e-12))), len(LEVELS) - 1)]

    def risk(self, control: float) -> float:
        """The largest (attack − control)/(1 − control) where an attack succeeds on so many who were not in it."""
        return 1.0 if control >= 1 else max(0.0, (self.tpr(max(control, 0.0)) - control) / (1 - control))

    @classmethod
    def from_privacy(cls, privacy: Privacy) -> Ceilings | None:
        """What a privacy statement allows.

        Parameters
        ----------
        privacy : Privacy
            The statement of a release.

        Returns
        -------
        Ceilings or None
            None where the statement is no theorem about patients.
        """
        if not privacy.charged or privacy.epsilon is None or privacy.delta is None:
            return None
        most = 1 - _from_budget(privacy.epsilon, privacy.delta)
        if privacy.trade_off:
            most = np.minimum(most, 1 - _stepped(_of_ledger(privacy.events) if privacy.ledger else privacy.trade_off))
        words = f"{privacy.guarantee}, ε = {privacy.epsilon:g} at δ = {privacy.delta:g}"
        largest = [largest_advantage(privacy.epsilon, privacy.delta), privacy.membership_advantage]
        return cls._from_rates(most, words, largest, _earlier(privacy))

    @classmethod
    def _from_rates(
        cls, most: Floats, theorem: str, largest: Sequence[float | None] = (), with_earlier: Ceilings | None = None
    ) -> Ceilings:
        """From true positives at LEVELS. They grow, so between two levels those of the higher one hold."""
        most = np.clip(most, LEVELS, 1.0)
        area = float(np.sum(np.diff(LEVELS) * most[1:]))
        advantage = min(1.0, float(np.max(most[1:] - LEVELS[:-1])), *(limit for limit in largest if limit is not None))
        return cls(min(1.0, area), advantage, tuple(map(float, most)), theorem, with_earlier)


@lru_cache(maxsize=8)
def _of_ledger(events: tuple[Event, ...]) -> tuple[tuple[float, float], ...]:
    """The trade-off curve at LEVELS: seconds of work, asked for by every attack on the same run."""
    return tuple(trade_off(events, LEVELS.tolist()))


def _from_budget(epsilon: float, delta: float) -> Floats:
    """f at LEVELS of (ε, δ) alone."""
    grown = math.exp(min(epsilon, 700.0))
    return np.maximum(0.0, np.maximum(1 - delta - grown * LEVELS, (1 - delta - LEVELS) / grown))


def _stepped(curve: tuple[tuple[float, float], ...]) -> Floats:
    """f at LEVELS of a stored curve: between two of its points the smaller β holds."""
    alphas, betas = np.array(curve, np.float64).T
    at = np.minimum(np.searchsorted(alphas, LEVELS * (1 - 1e-12)), len(alphas) - 1)
    return np.asarray(betas[at], np.float64)


def _earlier(privacy: Privacy) -> Ceilings | None:
    """Of this run and those before it on the same patients; 1 everywhere where no ε bounds them together."""
    both = privacy.epsilon_with_earlier_runs
    if both is None or privacy.delta is None:
        return None
    if isinstance(both, str) or not math.isfinite(both):
        return Ceilings._from_rates(np.ones(len(LEVELS)), f"{privacy.guarantee}, with earlier runs: {both}")
    words = f"{privacy.guarantee}, with earlier runs ε = {both:g} at δ = {privacy.delta:g}"
    largest = [largest_advantage(both, privacy.delta), privacy.advantage_with_earlier_runs]
    return Ceilings._from_rates(1 - _from_budget(both, privacy.delta), words, largest)
