"""What one row may add to a sum: the objectives of the private model, and why each contribution has norm at most 1.

`gradients` gives the pair (g, c·h) of every row, already clipped, so that √(g² + (c·h)²) ≤ 1 = Δ. The weight c spends
the room that g leaves on the hessian: its sum comes back divided by c, with c times less noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import SettingsError

Floats = NDArray[np.float64]
FINITE = 1e100  # of public numbers, so that no product of two overflows: a warning would depend on a patient
SCORE_MAX = 30.0  # scores are clipped to ±30 before any exponential


@dataclass(frozen=True)
class Logistic:
    """Binary outcomes: g = p − y and h = p(1 − p), p = σ(F).

    g² + c²h² ≤ 1 for all p and both y when c = 3.3. By symmetry take y = 0 and u = 1 − p: (1−u)²(1 + c²u²) ≤ 1 is, for
    0 < u < 1, the same as c² ≤ (2 − u)/(u(1−u)²). The right side is smallest where u² − 3u + 1 = 0, at
    u = (3 − √5)/2, where it is (11 + 5√5)/2 = 11.09 > 10.89 = 3.3². So nothing is ever clipped.
    """

    hessian_weight: float = 3.3

    def __post_init__(self) -> None:
        if not 0 < self.hessian_weight <= 3.3:
            raise SettingsError("hessian_weight", "must be in (0, 3.3]", found=f"{self.hessian_weight}")

    def gradients(self, score: Floats, label: NDArray[np.bool_], cumulative: Floats | None) -> tuple[Floats, Floats]:
        """(g, c·h) of each row, norm at most 1."""
        p = 1 / (1 + np.exp(-np.clip(score, -SCORE_MAX, SCORE_MAX)))
        return p - label, self.hessian_weight * p * (1 - p)


@dataclass(frozen=True)
class PiecewiseExponential:
    """Survival: constant baseline hazard on public intervals, g = a − E and h = a, a = Λ₀(T)e^F clipped to [0, most].

    The pair (a − E, c·a) is scaled down to norm 1 where it is longer: never for an event with c ≤ 1 and a ≤ 1, for a
    censored row once a > 1/√(1 + c²). Times past the horizon are censored there. Unlike Cox there are no risk sets, so
    one person touches only their own terms.
    """

    cuts: tuple[float, ...]  # public interior cut points of time, increasing
    horizon: float  # public end of follow-up
    hazard: tuple[float, ...] | None = None  # (K,) baseline, per unit of time; from `PrivateTable.hazard`
    most: float = 1.0
    hessian_weight: float = 1.0

    def __init__(
        self,
        cuts: Sequence[float] | NDArray[Any],
        horizon: float,
        hazard: Sequence[float] | NDArray[Any] | None = None,
        most: float = 1.0,
        hessian_weight: float = 1.0,
    ) -> None:
        for name, value in (
            ("cuts", tuple(float(cut) for cut in cuts)),
            ("horizon", float(horizon)),
            ("hazard", None if hazard is None else tuple(float(rate) for rate in hazard)),
            ("most", float(most)),
            ("hessian_weight", float(hessian_weight)),
        ):
            object.__setattr__(self, name, value)
        edges = self.edges
        if not (np.all(np.abs(edges) <= FINITE) and np.all(np.diff(edges) > 0)):
            raise SettingsError(
                "cuts", "must increase strictly between 0 and the horizon", found=f"{len(self.cuts)} cuts, {horizon}"
            )
        if self.hazard is not None and (
            len(self.hazard) != self.intervals or not all(0 <= rate <= FINITE for rate in self.hazard)
        ):
            raise SettingsError(
                "hazard",
                "must be finite, 0 or more, one per interval",
                found=f"{len(self.hazard)} for {self.intervals}",
            )
        if not (0 < self.most <= 1e3 and 0 < self.hessian_weight <= 1e3):
            raise SettingsError(
                "most and hessian_weight", "must be above 0 and at most 1000", found=f"{most}, {hessian_weight}"
            )

    @property
    def intervals(self) -> int:
        """K."""
        return len(self.cuts) + 1

    @property
    def edges(self) -> Floats:
        """(K+1,) 0, the cuts, the horizon."""
        return np.array([0.0, *self.cuts, self.horizon])

    @property
    def widths(self) -> Floats:
        return np.diff(self.edges)

    def with_hazard(self, hazard: Sequence[float] | NDArray[Any]) -> PiecewiseExponential:
        return replace(self, hazard=tuple(float(rate) for rate in hazard))

    def interval(self, time: ArrayLike) -> NDArray[np.intp]:
        """The interval [edge_k, edge_k+1) of each time; the horizon and later belong to the last."""
        return np.searchsorted(np.array(self.cuts), np.asarray(time, np.float64), side="right")

    def cumulative(self, time: ArrayLike) -> Floats:
        """Λ₀ at each time in [0, horizon]."""
        if self.hazard is None:
            raise SettingsError("hazard", "must be set before gradients are asked", fix="objective.with_hazard(...)")
        rates, where = np.array(self.hazard), self.interval(time)
        before = np.concatenate([[0.0], np.cumsum(rates * self.widths)])
        return before[where] + rates[where] * (np.asarray(time, np.float64) - self.edges[where])

    def gradients(self, score: Floats, label: NDArray[np.bool_], cumulative: Floats | None) -> tuple[Floats, Floats]:
        """(g, c·h) of each row, norm at most 1; `cumulative` is Λ₀(T)."""
        assert cumulative is not None
        a = np.minimum(cumulative * np.exp(np.clip(score, -SCORE_MAX, SCORE_MAX)), self.most)
        g, h = a - label, self.hessian_weight * a
        shrink = 1 / np.maximum(1.0, np.sqrt(g * g + h * h))
        return g * shrink, h * shrink


Objective = Logistic | PiecewiseExponential
