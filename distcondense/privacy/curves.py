"""What one noisy answer costs, and many together: curves δ(ε), and the ε where they meet δ.

Every Gaussian answer is μ_q-GDP; adaptively chosen ones compose to μ = √Σμ_q² exactly,
δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ).

Column choices are peeled exponential mechanisms; each pick is ε₀-*bounded-range*: for every pair of neighbours the
privacy loss lies in some interval [t − ε₀, t]. Of all pairs with that range the two-point one, loss t or t − ε₀, is
the worst. With p = P(loss = t) and q the same under the neighbour, p = e^t q and 1 − p = e^{t−ε₀}(1 − q), so
p/(1−p) = e^{ε₀}·q/(1−q) whatever t is. Its trade-off curve has one corner, at (q, 1 − p), and the corners of all t
lie on f(α) = 1 − σ(logit α + ε₀), which is convex and is the trade-off curve of Logistic(0, 1) against
Logistic(ε₀, 1): chords of a convex curve lie above it, so that pair dominates every pick, and dominating pairs compose
adaptively. In closed form, from the threshold u that maximises σ(u + ε₀) − e^ε σ(u),

    δ(ε) = (1 − e^{(ε−ε₀)/2})² / (1 − e^{−ε₀})   for |ε| ≤ ε₀,   0 above,   1 − e^ε below.

The noise is discrete; what that costs is reserved first: δ_grid = (1 + e^ε)·N·τ (noise.py), N = `CELLS_MAX`
coordinates in all.

Rows, persons and texts are told apart by keyed hashes (data/persons.py). Let p be the chance, over a run's key, that
among the rows of a table two that differ share one; without that, a run is what it would be if they were compared
themselves. So it is within total variation p of that one, on both neighbours, and (1 + e^ε)·p is reserved too. Of
n ≤ `ROWS_ALL_MAX` = 2⁴⁰ rows or persons and a hash of 128 bits, a random function has p ≤ n²/2¹²⁹; texts have 192 bits,
so that all of them, of up to 2²³ columns, do not double it. `COLLISION` = n²/2¹²⁸ = 2⁻⁴⁸ is more than both. ASSUMPTION:
that SipHash-2-4-128 and keyed BLAKE2b are pseudo-random functions to whoever does not know the key; how well anybody
can tell them from random ones comes on top.

Every rounding goes to the safe side: ε up, μ down, PLD pessimistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import fft, special

from distcondense.arrays import Floats
from distcondense.privacy.dp_library import dp_accounting
from distcondense.privacy.noise import GRID, distance_to_rounded
from distcondense.privacy.rows import ROWS_ALL_MAX

CELLS_MAX = 2**22  # planned number of noisy coordinates of one release, public; the gate refuses more
COLLISION = ROWS_ALL_MAX**2 / 2.0**128  # chance at most, of one run, that rows that differ share a mark: see above
LOSS_STEP = 1e-4  # the PLD's grid of losses
PLD_SLACK = 1e-4  # share of δ left for the error of differences and FFTs inside the PLD
TAIL = -50.0  # log of the Gaussian mass whose losses are not told apart, theirs by default
TAIL_MASS = 1e-15  # that composing may move to the ends, theirs by default
LOSSES = np.linspace(-30.0, 30.0, 2401)  # slopes of the lines under a trade-off curve

Picks = tuple[tuple[float, int], ...]  # (ε₀ of one pick, how many), sorted


def root(function: Callable[[float], float], low: float, high: float, width: float) -> float:
    """Where a function that changes its sign between `low` and `high` does so, within `width` or what float64 tells.

    By secants that keep the change between them (the Illinois rule): `scipy.optimize` takes longer to import than all
    that is asked of it here takes to compute.
    """
    below, above, moved = function(low), function(high), 0
    while high - low > max(width, 1e-13 * abs(high)) and below != 0 != above:
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
        value = function(middle)
        if (value > 0) == (above > 0):
            below = below / 2 if moved > 0 else below
            high, above, moved = middle, value, 1
        else:
            above = above / 2 if moved < 0 else above
            low, below, moved = middle, value, -1
    return low if below == 0 else high if above == 0 else (low + high) / 2


# ---- the exact Gaussian --------------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a μ-GDP Gaussian mechanism."""
    if mu <= 0:
        return -math.expm1(min(epsilon, 0.0))  # e^ε alone could overflow
    upper, lower = float(special.log_ndtr(mu / 2 - epsilon / mu)), float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(upper) * -math.expm1(min(0.0, epsilon + lower - upper))  # e^ε Φ(…) alone could overflow


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 with δ(ε) ≤ delta, rounded up."""
    if not 0 < delta < 1:
        return 0.0 if delta >= 1 else math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9  # the zCDP bound
    if gaussian_delta(mu, high) > delta:  # μ so large that float64 has no digits left for ε: no number is safe
        return math.inf
    epsilon = root(lambda e: gaussian_delta(mu, e) - delta, 0.0, high, 1e-13)
    while gaussian_delta(mu, epsilon) > delta:
        epsilon = epsilon * (1 + 1e-12) + 1e-14
    return epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest μ with δ(ε) ≤ delta, rounded down."""
    if not 0 < delta < 1:
        return math.inf if delta >= 1 else 0.0
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2
    mu = root(lambda m: gaussian_delta(m, epsilon) - delta, 0.0, high, 1e-15)
    while gaussian_delta(mu, epsilon) > delta:
        mu *= 1 - 1e-12
    return mu


# ---- column choices and the PLD ------------------------------------------------------------------------------


def choice_delta(pick_epsilon: float, epsilon: float) -> float:
    """δ(ε) of one ε₀-bounded-range pick at worst: of Logistic(ε₀, 1) against Logistic(0, 1)."""
    if abs(epsilon) >= pick_epsilon:
        return -math.expm1(min(epsilon, 0.0))
    return math.expm1((epsilon - pick_epsilon) / 2) ** 2 / -math.expm1(-pick_epsilon)


def grid_delta(epsilon: float, cells: int = CELLS_MAX) -> float:
    """δ reserved because the noise is discrete: (1 + e^ε)·N·τ."""
    if epsilon > 700:
        return math.inf
    return (1 + math.exp(epsilon)) * cells * distance_to_rounded(GRID)


def collision_delta(epsilon: float, runs: int = 1) -> float:
    """δ reserved because rows are told apart by hashes, under a key for each run: (1 + e^ε)·p of each."""
    if epsilon > 700:
        return math.inf
    return (1 + math.exp(epsilon)) * runs * COLLISION


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
    pld = dp_accounting().pld
    return pld.privacy_loss_distribution.PrivacyLossDistribution(
        pld.pld_pmf.create_pmf(dict(zip(losses.tolist(), mass.tolist(), strict=True)), step, 0.0, True)
    )


def _gaussian_pld(mu: float, step: float) -> Any:
    """`from_gaussian_mechanism(1 / mu)`, to the bit: it asks for one loss after the other, we for all at once."""
    pld, sigma = dp_accounting().pld, 1 / mu
    left = special.ndtri(0.5 * math.exp(TAIL)) * sigma  # beyond it and −it losses are not told apart
    low = math.floor((-0.5 + left) / sigma**2 / step)
    high = math.ceil((-0.5 - (left - 1)) / sigma**2 / step)
    losses = np.arange(low, high + 1) * step
    points = -0.5 - losses * sigma**2  # where the loss is that
    deltas = special.ndtr((points + 1) / sigma) - np.exp(losses + special.log_ndtr(points / sigma))
    return pld.privacy_loss_distribution.PrivacyLossDistribution(
        pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, low, high, np.clip(deltas, 0, 1))
    )


def _compose(one: Any, other: Any) -> Any:
    """`one.compose(other)` of symmetric pairs on more than a few losses, to the bit, without `scipy.signal`."""
    pld = dp_accounting().pld
    one, other = one._pmf_remove.to_dense_pmf(), other._pmf_remove.to_dense_pmf()
    size = one.size + other.size - 1
    fast = fft.next_fast_len(size, True)
    masses = fft.irfftn(fft.rfftn(one._probs, [fast]) * fft.rfftn(other._probs, [fast]), [fast])[:size]
    before, masses, beyond = pld.pld_pmf._truncate_tails(masses, TAIL_MASS, True)
    infinite = one._infinity_mass + other._infinity_mass - one._infinity_mass * other._infinity_mass
    return pld.privacy_loss_distribution.PrivacyLossDistribution(
        pld.pld_pmf.DensePLDPmf(
            one._discretization, one._lower_loss + other._lower_loss + before, masses, infinite + beyond, True
        )
    )


@lru_cache(maxsize=64)
def composed(mu: float, picks: Picks) -> Any:
    """PLD of one μ-GDP Gaussian and all picks."""
    step = LOSS_STEP
    if picks:  # so that the smallest ε₀ lies on the grid
        step = picks[0][0] / math.ceil(picks[0][0] / LOSS_STEP)
    parts = [_pick_pld(each, step).self_compose(count) for each, count in picks]
    if mu > 0:
        parts.append(_gaussian_pld(mu, step))
    if not parts:
        return dp_accounting().pld.privacy_loss_distribution.identity(step)
    whole = parts[0]
    for part in parts[1:]:
        whole = _compose(whole, part)
    return whole


@lru_cache(maxsize=64)
def composed_deltas(mu: float, picks: Picks) -> Floats:
    """δ of that at each of `LOSSES`: what its `get_delta_for_epsilon` adds up in a loop, which takes a second."""
    pmf = composed(mu, picks)._pmf_remove.to_dense_pmf()  # nobody else tells the masses; of symmetric pairs the one
    losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
    there = losses > LOSSES[0]
    falling, mass = losses[there][::-1], pmf._probs[there][::-1]
    upper = np.cumsum(np.concatenate([[pmf._infinity_mass], mass]))
    lower = np.cumsum(np.concatenate([[0.0], mass * np.exp(-falling)]))
    above = np.searchsorted(-falling, -LOSSES, side="left")  # so many losses are above each ε
    deltas = upper[above] - np.exp(LOSSES) * lower[above]
    deltas.flags.writeable = False  # whoever asks again gets the same array
    return np.asarray(deltas, np.float64)


def _settle(epsilon_at: Callable[[float], float], delta: float, cells: int, runs: int) -> float:
    """The smallest ε (rounded up) with ε ≥ epsilon_at(what is left of δ); inf where the reserve costs all."""
    epsilon = 0.0
    while True:
        left = delta - grid_delta(epsilon, cells) - collision_delta(epsilon, runs)
        needed = epsilon_at(left) if left > 0 else math.inf
        if needed <= epsilon or math.isinf(needed):
            return max(epsilon, needed)
        epsilon = needed * (1 + 1e-10) + 1e-12


def exact_epsilon(mu: float, delta: float, cells: int = CELLS_MAX, runs: int = 1) -> float:
    """ε at δ of Gaussian answers alone, after what discrete noise on so many cells and the hashes of runs cost."""
    return 0.0 if mu == 0 else _settle(lambda left: gaussian_epsilon(mu, left), delta, cells, runs)


@lru_cache(maxsize=1024)
def pld_epsilon(mu: float, picks: Picks, delta: float, cells: int = CELLS_MAX, runs: int = 1) -> float:
    """The same of Gaussian answers and picks, by dp-accounting's privacy loss distribution."""
    if mu == 0 and not picks:
        return 0.0
    together = composed(mu, picks)
    return _settle(
        lambda left: float(together.get_epsilon_for_delta(left * (1 - PLD_SLACK))), delta, cells if mu > 0 else 0, runs
    )


def rdp_epsilon(mu: float, picks: Picks, delta: float, cells: int = CELLS_MAX, runs: int = 1) -> float:
    """The same by dp-accounting's Rényi accountant: a Gaussian, and ε₀²/8-zCDP for each bounded-range pick."""
    library = dp_accounting()
    accountant = library.rdp.RdpAccountant()
    if mu > 0:
        accountant.compose(library.GaussianDpEvent(1 / mu))
    for each, count in picks:
        accountant.compose(library.ZCDpEvent(each**2 / 8), count)
    return _settle(lambda left: float(accountant.get_epsilon(left)), delta, cells if mu > 0 else 0, runs)
