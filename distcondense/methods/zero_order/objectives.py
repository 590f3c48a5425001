"""The losses of Thakur et al. 2026 and their derivatives with respect to the scores f(x_i), numbered as there.

Each function returns (loss, ∂loss/∂f) with f the (m,) scores of the synthetic rows; chain with ∂f/∂X elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Floats, Index, Labels
from distcondense.data.outcome import Outcome

Valued = tuple[float, Floats]

P_FLOOR = 1e-6  # probabilities are kept this far from 0 and 1, so that a sure model does not give infinite gradients
ALPHA_FLOOR = 1e-8


def bce(p: Floats, y: Labels) -> Valued:
    """(2) mean_i[−y_i log p_i − (1−y_i) log(1−p_i)]."""
    q = np.clip(p, P_FLOOR, 1 - P_FLOOR)
    loss = -np.mean(np.where(y == 1, np.log(q), np.log1p(-q)))
    return float(loss), np.where(y == 1, -1 / q, 1 / (1 - q)) / len(p)


def cox(f: Floats, time: Floats, event: Labels) -> Valued:
    """(9) −Σ_{i:E_i=1}[f_i − log Σ_{j:T_j≥T_i} exp f_j], O(m log m); rows tied with i are in its risk set."""
    order = np.argsort(-time, kind="stable")  # latest first: a risk set is a prefix
    g, t, e = f[order], time[order], event[order]
    prefix = np.logaddexp.accumulate(g)
    last = np.searchsorted(-t, -t, side="right") - 1  # the prefix that holds all ties of the row
    log_risk_set = prefix[last]
    loss = -np.sum(e * (g - log_risk_set))
    # Σ over events i with T_i ≤ T_k of 1/Σrisk_i: a suffix sum that starts at the first row tied with k
    log_inverse = np.where(e == 1, -log_risk_set, -np.inf)
    suffix = np.logaddexp.accumulate(log_inverse[::-1])[::-1]
    first = np.searchsorted(-t, -t, side="left")
    slope = np.empty_like(f)
    slope[order] = np.exp(g + suffix[first]) - e
    return float(loss), slope


def aft(f: Floats, time: Floats) -> Valued:
    """(10) mean_i SmoothL1(f_i, log T_i), the quadratic part within 1."""
    gap = f - np.log(time)
    inner = np.abs(gap) < 1
    loss = np.mean(np.where(inner, gap**2 / 2, np.abs(gap) - 0.5))
    return float(loss), np.where(inner, gap, np.sign(gap)) / len(f)


def match(f: Floats, stratum: Index, real_means: Floats, *, average: bool) -> Valued:
    """(3) Σ_c |mean_{i∈c} f_i − real mean_c| over classes, or (11) with `average`: the mean over K strata.

    A stratum without synthetic rows, or with no real mean (NaN), is left out.
    """
    strata = len(real_means)
    count = np.bincount(stratum, minlength=strata)
    used = (count > 0) & np.isfinite(real_means)
    sums = np.bincount(stratum, weights=f, minlength=strata)
    gap = np.where(used, sums / np.maximum(count, 1) - np.where(used, real_means, 0.0), 0.0)
    share = 1 / strata if average else 1.0
    slope = np.sign(gap)[stratum] / np.maximum(count, 1)[stratum] * share
    return float(np.abs(gap).sum() * share), slope


@dataclass(frozen=True)
class Composite:
    """(4, 5) ℓ = ℓ_sup + α·ℓ_match with α = ℓ_sup/(ℓ_match + 1e-8)·ρ/(1−ρ), α held constant in the gradient."""

    supervise: Callable[[Floats], Valued]
    stratum: Index  # (m,) class or survival stratum of each synthetic row
    average: bool  # (11) averages over strata, (3) sums over classes
    rho: float = 0.1  # 0 switches the match loss off

    def __call__(self, f: Floats, real_means: Floats) -> Valued:
        loss, slope = self.supervise(f)
        if self.rho == 0:
            return loss, slope
        matched, match_slope = match(f, self.stratum, real_means, average=self.average)
        alpha = loss / (matched + ALPHA_FLOOR) * self.rho / (1 - self.rho)
        return loss + alpha * matched, slope + alpha * match_slope


# what a score is → the supervised loss of scores against synthetic labels (eqs 2, 9, 10)
LOSSES: dict[str, Callable[[Floats, Outcome], Valued]] = {
    "probability": lambda f, labels: bce(f, labels["label"]),
    "log-risk": lambda f, labels: cox(f, labels["time"], labels["label"]),
    "log-time": lambda f, labels: aft(f, labels["time"]),
}
