"""`Budget`: what a run may spend in all, and the largest one that composes to at most ε at δ."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from functools import lru_cache

from distcondense.errors import BudgetError, SettingsError, brief, need
from distcondense.privacy.curves import collision_delta, exact_epsilon, gaussian_mu, grid_delta, pld_epsilon, root

FAINTEST = 1e-2  # of the budget without choices: where less is left with them, δ is nearly all spent on the grid
SLACK = 1e-8  # relative; between what a budget allows and what it was calibrated to, far over floating-point error


def check_budget(*, epsilon: float | None = None, delta: float | None = None) -> None:
    """ε > 0 and 0 < δ < 1, or one clear error."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if value is not None:
            need(value, numbers.Real, name, "a number")
            if isinstance(value, int) and abs(value) > 2**1000:  # no float holds it
                raise SettingsError(name, "must be finite", found=brief(value), fix="typical values: 0.5 to 5, 1e-5")
    if epsilon is not None and not (0 < epsilon < math.inf):
        raise SettingsError("epsilon", "must be above 0 and finite", found=f"{epsilon}", fix="typical values: 0.5 to 5")
    if delta is not None and not (0 < delta < 1):
        raise SettingsError(
            "delta", "must be in (0, 1)", found=f"{delta}", fix="typical: 1e-5, below 1/number of patients"
        )


@dataclass(frozen=True)
class Budget:
    """What may be spent in all: Gaussian answers up to √Σμ_q² = mu, and so many picks at ε₀ = pick_epsilon each."""

    epsilon: float
    delta: float
    mu: float
    picks: int = 0
    pick_epsilon: float = 0.0
    delta_categories: float = 0.0  # of δ, for values that only one person brings (accountant.py)

    def __post_init__(self) -> None:
        check_budget(epsilon=self.epsilon, delta=self.delta)
        if not (0 <= self.mu < math.inf and 0 <= self.pick_epsilon < math.inf and self.picks >= 0):
            raise SettingsError(
                "budget",
                "must have mu, picks and pick_epsilon of 0 or more",
                found=f"mu {self.mu}, picks {self.picks}, pick_epsilon {self.pick_epsilon}",
            )
        if not 0 <= self.delta_categories < self.delta:
            raise SettingsError(
                "delta_categories", "must be 0 or more and below delta", found=f"{self.delta_categories}"
            )
        if (self.picks > 0) != (self.pick_epsilon > 0):
            raise SettingsError(
                "budget",
                "must have picks and pick_epsilon both or neither",
                found=f"picks {self.picks}, pick_epsilon {self.pick_epsilon}",
            )

    @classmethod
    def calibrate(
        cls, *, epsilon: float, delta: float, picks: int = 0, pick_share: float = 0.0, delta_categories: float = 0.0
    ) -> Budget:
        """The largest budget that composes to at most ε at δ.

        Parameters
        ----------
        epsilon, delta : float
            What the whole run may cost; what the grid of the noise and the hashes of rows cost (curves.py)
            is taken off δ first.
        picks : int
            How many columns or pairs will be chosen, at most.
        pick_share : float
            The share of the budget that goes to these choices, in the sense of zCDP: picks·ε₀²/8 against μ²/2.
        delta_categories : float
            Of δ, for values of unlisted columns that only one person brings (accountant.py).

        Raises
        ------
        SettingsError
            If a number is outside its range.
        BudgetError
            If the grid of the noise and the hashes of rows alone cost δ, or leaves no room for choices.

        Examples
        --------
        >>> from distcondense.privacy.budget import Budget
        >>> budget = Budget.calibrate(epsilon=1.0, delta=1e-5)
        >>> round(budget.mu, 4), budget.total_epsilon() <= 1.0
        (0.2681, True)
        """
        check_budget(epsilon=epsilon, delta=delta)
        if delta_categories:
            rest = cls.calibrate(
                epsilon=epsilon + math.log1p(-delta_categories),
                delta=delta - delta_categories,
                picks=picks,
                pick_share=pick_share,
            )
            return replace(rest, epsilon=epsilon, delta=delta, delta_categories=delta_categories)
        if not 0 <= pick_share < 1 or picks < 0 or (picks > 0) != (pick_share > 0):
            raise SettingsError(
                "pick_share",
                "must be in (0, 1) with picks of 1 or more, or 0 with none",
                found=f"pick_share {pick_share}, picks {picks}",
            )
        left = delta - grid_delta(epsilon) - collision_delta(epsilon)
        if left <= 0:
            raise BudgetError(
                "epsilon",
                "must leave some of delta after what the grid of the noise and the hashes of rows cost",
                found=f"epsilon {epsilon} at delta {delta}",
                fix="ask for a smaller epsilon (20 protects nobody)",
            )
        whole = gaussian_mu(epsilon, left)
        if not picks:
            return cls(epsilon, delta, whole * (1 - SLACK))
        factor = _calibrated(epsilon, delta, picks, pick_share, whole)
        mu, each = _split(factor * whole, picks, pick_share)
        return cls(epsilon, delta, mu * (1 - SLACK), picks, each)

    def total_epsilon(self) -> float:
        """ε at δ when everything is spent, rounded up."""
        delta, more = self.delta - self.delta_categories, -math.log1p(-self.delta_categories)
        if not self.picks:
            return exact_epsilon(self.mu, delta) + more
        return pld_epsilon(self.mu, ((self.pick_epsilon, self.picks),), delta) + more


def _split(mu: float, picks: int, share: float) -> tuple[float, float]:
    """ρ = μ²/2 divided: (1 − share)·ρ to the Gaussian answers, share·ρ = picks·ε₀²/8 to the choices."""
    return mu * math.sqrt(1 - share), 2 * mu * math.sqrt(share / picks)


@lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float, picks: int, share: float, whole: float) -> float:
    """The factor on the all-Gaussian budget at which the PLD reaches ε."""

    def over(factor: float) -> float:
        mu, each = _split(factor * whole, picks, share)
        return pld_epsilon(mu, ((each, picks),), delta) - epsilon

    low, high = 0.8, 1.05
    while over(low) > 0:
        low /= 2
        if low < FAINTEST:
            raise BudgetError(
                "delta",
                "must leave room for choices of columns after what the grid of the noise costs",
                found=f"epsilon {epsilon} at delta {delta}",
                fix="ask for a larger delta (1e-5 is usual)",
            )
    while over(high) <= 0:
        low, high = high, high * 1.5
    factor = root(over, low, high, 1e-5)
    while over(factor) > 0:  # the root finder stops on either side: step to the safe one
        factor *= 1 - 5e-6
    return factor
