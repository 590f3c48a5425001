"""What a sequence of private answers costs: frozen events, and accountants that read them.

Neighbouring: one person more or less, with all their rows. Every Gaussian answer is μ_q-GDP; adaptively chosen ones
compose to μ = √Σμ_q² exactly, δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

Column choices are peeled exponential mechanisms; each pick is ε₀-*bounded-range*: for every pair of neighbours the
privacy loss lies in some interval [t − ε₀, t]. Of all pairs with that range the two-point one, loss t or t − ε₀, is
the worst. With p = P(loss = t) and q the same under the neighbour, p = e^t q and 1 − p = e^{t−ε₀}(1 − q), so
p/(1−p) = e^{ε₀}·q/(1−q) whatever t is. Its trade-off curve has one corner, at (q, 1 − p), and the corners of all t
lie on f(α) = 1 − σ(logit α + ε₀), which is convex and is the trade-off curve of Logistic(0, 1) against
Logistic(ε₀, 1): chords of a convex curve lie above it, so that pair dominates every pick, and dominating pairs compose
adaptively. In closed form, from the threshold u that maximises σ(u + ε₀) − e^ε σ(u),

    δ(ε) = (1 − e^{(ε−ε₀)/2})² / (1 − e^{−ε₀})   for |ε| ≤ ε₀,   0 above,   1 − e^ε below.

The noise is discrete; what that costs is reserved first: δ_grid = (1 + e^ε)·N·τ (noise.py), N = `CELLS_MAX`
coordinates in all. Every rounding goes to the safe side: ε up, μ down, PLD pessimistic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import dp_accounting
import numpy as np
from dp_accounting import rdp
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, special

from distcondense.errors import BudgetError, SettingsError
from distcondense.privacy.noise import GRID, distance_to_rounded
from distcondense.privacy.steps import check_budget

CELLS_MAX = 2**22  # planned number of noisy coordinates of one release, public; the gate refuses more
MU_MAX = 8.0  # one answer at μ = 8 protects nobody (ε over 60); the bound keeps integer sums inside 64 bits
LOSS_STEP = 1e-4  # the PLD's grid of losses
SLACK = 1e-8  # relative; between what a budget allows and what it was calibrated to, far over floating-point error
PLD_SLACK = 1e-4  # share of δ left for the error of differences and FFTs inside the PLD

Picks = tuple[tuple[float, int], ...]  # (ε₀ of one pick, how many), sorted


@dataclass(frozen=True)
class Event:
    """One access to patients, and its price. Everything here is public."""

    kind: Literal["gaussian", "choice"]
    query: str  # in words
    columns: tuple[str, ...]  # names; for a choice the candidates, none named: all columns
    cells: int  # released coordinates
    cost: float  # gaussian: μ_q; choice: ε₀ of one pick
    picks: int = 1  # choice: number of picks
    sensitivity: float = 1.0  # Δ, for the reader
    noise: float = 0.0  # σ in the query's own units, for the reader
    unit: str = "row"  # whose presence is protected: "row" or "person"
    run: str = ""  # a random name of the run that asked; stamped by the ledger

    def __post_init__(self) -> None:
        if self.kind not in ("gaussian", "choice"):
            raise SettingsError("event kind", "must be gaussian or choice", found=repr(self.kind))
        if not (math.isfinite(self.cost) and self.cost > 0 and self.cells >= 0 and self.picks >= 1):
            raise SettingsError(
                "event", "must have a finite cost above 0, cells of 0 or more and picks of 1 or more",
                found=f"cost {self.cost}, cells {self.cells}, picks {self.picks}",
            )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "columns": list(self.columns)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Event:
        known = {field.name for field in fields(cls)}
        try:
            if set(data) - known:
                raise KeyError(sorted(set(data) - known)[0])
            return cls(**{**data, "columns": tuple(map(str, data["columns"]))})
        except (KeyError, TypeError) as error:
            raise SettingsError(
                "event", "must have the fields of an Event", found=f"{type(error).__name__}: {error}"
            ) from None


# ---- the exact Gaussian --------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a μ-GDP Gaussian mechanism."""
    if mu <= 0:
        return max(0.0, -math.expm1(epsilon))
    upper, lower = float(special.log_ndtr(mu / 2 - epsilon / mu)), float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(upper) * -math.expm1(min(0.0, epsilon + lower - upper))  # e^ε Φ(…) alone could overflow


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ delta, rounded up."""
    if not 0 < delta < 1:
        return 0.0 if delta >= 1 else math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9  # the zCDP bound
    found = float(optimize.brentq(lambda e: gaussian_delta(mu, e) - delta, 0.0, high, xtol=1e-13, rtol=1e-13))
    while gaussian_delta(mu, found) > delta:
        found = found * (1 + 1e-12) + 1e-14
    return found


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ with δ(ε) ≤ delta, rounded down."""
    if not 0 < delta < 1:
        return math.inf if delta >= 1 else 0.0
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    found = float(optimize.brentq(lambda m: gaussian_delta(m, epsilon) - delta, 0.0, high, xtol=1e-15, rtol=1e-13))
    while gaussian_delta(found, epsilon) > delta:
        found *= 1 - 1e-12
    return found


# ---- column choices and the PLD ------------------------------------------------------------------------------


def choice_delta(pick_epsilon: float, epsilon: float) -> float:
    """δ(ε) of one ε₀-bounded-range pick at worst: of Logistic(ε₀, 1) against Logistic(0, 1)."""
    if abs(epsilon) >= pick_epsilon:
        return max(0.0, -math.expm1(epsilon))
    return math.expm1((epsilon - pick_epsilon) / 2) ** 2 / -math.expm1(-pick_epsilon)


def grid_delta(epsilon: float, cells: int = CELLS_MAX) -> float:
    """δ reserved because the noise is discrete: (1 + e^ε)·N·τ."""
    if epsilon > 700:
        return math.inf
    return (1 + math.exp(epsilon)) * cells * distance_to_rounded(GRID)


def _pick_pld(pick_epsilon: float, step: float) -> Any:
    """Connect-the-dots PLD of the logistic pair, ε₀ rounded up to the grid of losses.

    On a grid that holds ±ε₀ the second differences of δ(ε) have a closed form, free of cancellation: with
    a_i = e^{(ε_i−ε₀)/2}, mass 2a_i·tanh(step/4)/(1 − e^{−ε₀}) at each inner point and half of it at the two ends.
    """
    top = max(1, math.ceil(pick_epsilon / step - 1e-9))
    end = top * step
    losses = np.arange(-top, top + 1)
    mass = 2 * np.exp((losses * step - end) / 2) * math.tanh(step / 4) / -math.expm1(-end)
    mass[[0, -1]] /= 2
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf(dict(zip(losses.tolist(), mass.tolist(), strict=True)), step, 0.0, True)
    )


@lru_cache(maxsize=64)
def _composed(mu: float, picks: Picks) -> Any:
    """PLD of one μ-GDP Gaussian and all picks."""
    step = LOSS_STEP
    if picks:  # so that the smallest ε₀ lies on the grid
        step = picks[0][0] / math.ceil(picks[0][0] / LOSS_STEP)
    parts = [_pick_pld(each, step).self_compose(count) for each, count in picks]
    if mu > 0:
        parts.append(pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step))
    if not parts:
        return pld.identity(step)
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole


def _settle(epsilon_at: Callable[[float], float], delta: float, cells: int) -> float:
    """The smallest ε (rounded up) with ε ≥ epsilon_at(δ − δ_grid(ε)); inf where the grid alone costs more than δ."""
    epsilon = 0.0
    while True:
        left = delta - grid_delta(epsilon, cells)
        found = epsilon_at(left) if left > 0 else math.inf
        if found <= epsilon or math.isinf(found):
            return max(epsilon, found)
        epsilon = found * (1 + 1e-10) + 1e-12


def _exact_epsilon(mu: float, delta: float, cells: int = CELLS_MAX) -> float:
    return 0.0 if mu == 0 else _settle(lambda left: gaussian_epsilon(mu, left), delta, cells)


def _pld_epsilon(mu: float, picks: Picks, delta: float, cells: int = CELLS_MAX) -> float:
    if mu == 0 and not picks:
        return 0.0
    composed = _composed(mu, picks)
    return _settle(
        lambda left: float(composed.get_epsilon_for_delta(left * (1 - PLD_SLACK))), delta, cells if mu > 0 else 0
    )


def _rdp_epsilon(mu: float, picks: Picks, delta: float, cells: int = CELLS_MAX) -> float:
    """Rényi: a Gaussian, and ε₀²/8-zCDP for each bounded-range pick."""
    accountant = rdp.RdpAccountant()
    if mu > 0:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / mu))
    for each, count in picks:
        accountant.compose(dp_accounting.ZCDpEvent(each**2 / 8), count)
    return _settle(lambda left: float(accountant.get_epsilon(left)), delta, cells if mu > 0 else 0)


# ---- budget --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What may be spent in all: Gaussian answers up to √Σμ_q² = mu, and so many picks at ε₀ = pick_epsilon each."""

    epsilon: float
    delta: float
    mu: float
    picks: int = 0
    pick_epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_budget(epsilon=self.epsilon, delta=self.delta)
        if not (0 <= self.mu < math.inf and 0 <= self.pick_epsilon < math.inf and self.picks >= 0):
            raise SettingsError(
                "budget", "must have mu, picks and pick_epsilon of 0 or more",
                found=f"mu {self.mu}, picks {self.picks}, pick_epsilon {self.pick_epsilon}",
            )  # fmt: skip
        if (self.picks > 0) != (self.pick_epsilon > 0):
            raise SettingsError(
                "budget", "must have picks and pick_epsilon both or neither",
                found=f"picks {self.picks}, pick_epsilon {self.pick_epsilon}",
            )  # fmt: skip

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float, picks: int = 0, pick_share: float = 0.0) -> Budget:
        """The largest budget that composes to at most ε at δ, after δ_grid.

        `pick_share` of the budget goes to column choice, in the sense of zCDP: picks·ε₀²/8 against μ²/2.
        """
        check_budget(epsilon=epsilon, delta=delta)
        if not 0 <= pick_share < 1 or picks < 0 or (picks > 0) != (pick_share > 0):
            raise SettingsError(
                "pick_share", "must be in (0, 1) with picks of 1 or more, or 0 with none",
                found=f"pick_share {pick_share}, picks {picks}",
            )  # fmt: skip
        left = delta - grid_delta(epsilon)
        if left <= 0:
            raise BudgetError(
                "epsilon", "must leave some of delta after what the grid of the noise costs",
                found=f"epsilon {epsilon} at delta {delta}", fix="ask for a smaller epsilon (20 protects nobody)",
            )  # fmt: skip
        whole = gaussian_mu(epsilon, left)
        if not picks:
            return cls(epsilon, delta, whole * (1 - SLACK))
        factor = _calibrated(epsilon, delta, picks, pick_share, whole)
        mu, each = _split(factor * whole, picks, pick_share)
        return cls(epsilon, delta, mu * (1 - SLACK), picks, each)

    def total_epsilon(self) -> float:
        """ε at δ when everything is spent, rounded up."""
        if not self.picks:
            return _exact_epsilon(self.mu, self.delta)
        return _pld_epsilon(self.mu, ((self.pick_epsilon, self.picks),), self.delta)


def _split(mu: float, picks: int, share: float) -> tuple[float, float]:
    """ρ = μ²/2 divided: (1 − share)·ρ to the Gaussian answers, share·ρ = picks·ε₀²/8 to the choices."""
    return mu * math.sqrt(1 - share), 2 * mu * math.sqrt(share / picks)


@lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float, picks: int, share: float, whole: float) -> float:
    """The factor on the all-Gaussian budget at which the PLD reaches ε."""

    def over(factor: float) -> float:
        mu, each = _split(factor * whole, picks, share)
        return _pld_epsilon(mu, ((each, picks),), delta) - epsilon

    low, high = 0.8, 1.05
    while over(low) > 0:
        low /= 2
    while over(high) <= 0:
        low, high = high, high * 1.5
    found = float(optimize.brentq(over, low, high, xtol=1e-5, rtol=1e-5))
    while over(found) > 0:  # the root finder stops on either side: step to the safe one
        found *= 1 - 5e-6
    return found


# ---- reading a ledger ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replay:
    """What a ledger adds up to.

    `epsilon` is the reported one: the exact Gaussian where no column was chosen, else the PLD. `pld` and
    `exact_or_rdp` are the two accountants. Without picks both describe the same curve and agree to a thousandth. With
    picks neither may fall below the exact ε of the Gaussian part alone, and the PLD may lie above Rényi accounting by
    no more than the logistic pair costs over ε₀²/8-zCDP: √(4/3) in the scale of the loss (its Fisher information is 1/3
    where zCDP has 1/4). It usually lies below: Rényi loses on the way to δ, most with few large picks.
    """

    epsilon: float
    delta: float
    pld: float
    exact_or_rdp: float
    mu: float
    picks: int
    cells: int
    delta_grid: float
    gaussian_part: float  # exact ε of the Gaussian answers alone

    @property
    def agree(self) -> bool:
        if self.picks == 0:
            return abs(self.pld - self.exact_or_rdp) <= 1e-3 * (1 + self.exact_or_rdp)
        above_floor = min(self.pld, self.exact_or_rdp) >= self.gaussian_part * (1 - 1e-3)
        return above_floor and self.pld <= math.sqrt(4 / 3) * self.exact_or_rdp + 1e-3


def totals(events: Sequence[Event]) -> tuple[float, Picks, int]:
    """(μ of all Gaussian answers, picks by ε₀, noisy coordinates)."""
    gaussian = [event for event in events if event.kind == "gaussian"]
    picks: Counter[float] = Counter()
    for event in events:
        if event.kind == "choice":
            picks[event.cost] += event.picks
    mu = math.sqrt(math.fsum(event.cost**2 for event in gaussian))
    return mu, tuple(sorted(picks.items())), sum(event.cells for event in gaussian)


def replay(events: Sequence[Event], delta: float) -> Replay:
    """ε at δ of all events together, by two accountants."""
    check_budget(delta=delta)
    mu, picks, cells = totals(events)
    reserved = max(CELLS_MAX, cells)  # the planned number: ε must not fall when a query is left out
    exact = _exact_epsilon(mu, delta, reserved)
    by_pld = _pld_epsilon(mu, picks, delta, reserved)
    epsilon = by_pld if picks else exact
    return Replay(
        epsilon=epsilon,
        delta=delta,
        pld=by_pld,
        exact_or_rdp=_rdp_epsilon(mu, picks, delta, reserved) if picks else exact,
        mu=mu,
        picks=sum(count for _, count in picks),
        cells=cells,
        delta_grid=grid_delta(epsilon, reserved) if mu > 0 else 0.0,
        gaussian_part=exact,
    )


def trade_off(events: Sequence[Event], points: int = 101) -> list[tuple[float, float]]:
    """f-DP: (false positives α, the fewest false negatives β any membership test can have), α from 0 to 1.

    Exact for Gaussian answers; with picks the best of the supporting lines β ≥ 1 − δ(ε) − e^ε α of the PLD. The grid's
    total variation N·τ is taken off both errors.
    """
    mu, picks, cells = totals(events)
    alphas = np.linspace(0.0, 1.0, points)
    far = max(CELLS_MAX, cells) * distance_to_rounded(GRID) if mu > 0 else 0.0
    moved = np.minimum(1.0, alphas + far)
    if picks:
        composed = _composed(mu, picks)
        losses = np.linspace(-30.0, 30.0, 2401)
        deltas = np.asarray(composed.get_delta_for_epsilon(losses), np.float64)
        betas = np.max((1 - deltas)[:, None] - np.exp(losses)[:, None] * moved[None, :], axis=0)
    else:
        betas = special.ndtr(-special.ndtri(moved) - mu)
    betas = np.clip(betas - far, 0.0, 1.0)
    return [(float(alpha), float(beta)) for alpha, beta in zip(alphas, betas, strict=True)]


def membership_advantage(events: Sequence[Event]) -> float:
    """The largest 1 − α − β of any membership test: total variation between neighbours, δ(0)."""
    mu, picks, cells = totals(events)
    far = max(CELLS_MAX, cells) * distance_to_rounded(GRID) if mu > 0 else 0.0
    at_zero = float(_composed(mu, picks).get_delta_for_epsilon(0.0)) if picks else gaussian_delta(mu, 0.0)
    return min(1.0, at_zero + 2 * far)


# ---- several runs on the same patients -----------------------------------------------------------------------


def unite(*accounts: Sequence[Event]) -> tuple[Event, ...]:
    """All events of all accounts, each run once: where two accounts know the same run, the longer record counts."""
    runs: dict[str, list[Event]] = {}
    nameless: list[Event] = []
    for account in accounts:
        found: dict[str, list[Event]] = {}
        for event in account:
            (found.setdefault(event.run, []) if event.run else nameless).append(event)
        for run, events in found.items():
            if len(events) > len(runs.get(run, [])):
                runs[run] = events
    return (*nameless, *(event for events in runs.values() for event in events))


def with_earlier(own: Sequence[Event], earlier: Sequence[Event], delta: float) -> float | str | None:
    """ε at δ of this run and those before it; words where there is no such number, None where there were none."""
    if not earlier:
        return None
    if len({event.unit for event in (*own, *earlier)}) > 1:
        return "without a common bound: the runs protect different units, rows and persons"
    total = replay((*earlier, *own), delta).epsilon
    return total if math.isfinite(total) else "unbounded"
