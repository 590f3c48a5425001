"""From an attacker's right and wrong guesses to a lower bound on ε, with confidence. No assumption but the one named.

Many runs. A test that says "with" has a false-positive rate FPR and a false-negative rate FNR, bounded above by
Clopper–Pearson at half the error each. Readings of the same counts:

    (ε, δ)            ε ≥ log((1 − δ − FNR)/FPR), and the same with the two rates exchanged
    Gaussian          a μ-GDP mechanism has Φ⁻¹(1 − FPR) − Φ⁻¹(FNR) ≤ μ; μ gives ε at δ (Nasr et al. 2023). Tests the
                      claim "no worse than this Gaussian mechanism", which is what a ledger of Gaussian answers claims
    bounded range     one ε₀-bounded-range pick has logit(1 − FNR) − logit(FPR) ≤ ε₀ (curves.py)
    coin game         with fair coins the number of right guesses in n runs is at most Binomial(n, a): a = Φ(μ/2) for
                      μ-GDP, (e^ε + δ)/(1 + e^ε) for (ε, δ). One interval instead of two, so fewer runs show more
    whole curve       tests along the whole trade-off curve, their rates bounded above all together; the largest μ whose
                      curve no point of the band allows. No threshold has to be chosen beforehand

One run (Steinke, Nasr, Jagielski 2023, corollary 5.4 and appendix D). Of m canaries, each in by a fair coin, r are
guessed and v guesses are right. Under (ε, δ), with W ~ Binomial(r, e^ε/(1 + e^ε)),

    P(right ≥ v) ≤ P(W ≥ v) + 2mδ·max_{1≤i≤v} P(v − i ≤ W < v)/i.

Several runs on separate tables, each with canaries of its own, are one such mechanism: a coin touches one table only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from distcondense.arrays import Flags, Floats, Index
from distcondense.privacy.curves import gaussian_epsilon

EPSILON_MAX = 50.0  # no number of runs shows more


@dataclass(frozen=True)
class ErrorCounts:
    """What a test got wrong: of `negatives` runs without the canary and `positives` runs with it."""

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    @property
    def runs(self) -> int:
        return self.negatives + self.positives

    @property
    def right(self) -> int:
        return self.runs - self.false_positives - self.false_negatives

    def intervals(self, confidence: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Two-sided Clopper–Pearson of FPR and FNR."""
        each = 1 - (1 - confidence) / 2
        errors = ((self.false_positives, self.negatives), (self.false_negatives, self.positives))
        low, high = ([float(limit(k, n, each)) for k, n in errors] for limit in (rate_below, rate_above))
        return (low[0], high[0]), (low[1], high[1])


def rate_above(errors: float | Floats, trials: float, confidence: float) -> Floats:
    """Clopper–Pearson: the rate is at most this, with confidence."""
    k = np.asarray(errors, np.float64)
    return np.where(k >= trials, 1.0, stats.beta.ppf(confidence, k + 1, np.maximum(trials - k, 1e-9)))


def rate_below(errors: float | Floats, trials: float, confidence: float) -> Floats:
    """Clopper–Pearson: the rate is at least this, with confidence."""
    k = np.asarray(errors, np.float64)
    return np.where(k <= 0, 0.0, stats.beta.ppf(1 - confidence, np.maximum(k, 1e-9), trials - k + 1))


def epsilon_of_rates(fpr: Floats, fnr: Floats, delta: float) -> Floats:
    """The smallest ε ≥ 0 that allows a test with these error rates, in either direction."""
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.maximum(np.log((1 - delta - fnr) / fpr), np.log((1 - delta - fpr) / fnr))
    return np.clip(np.nan_to_num(both, nan=0.0), 0.0, EPSILON_MAX)


def mu_of_rates(fpr: Floats, fnr: Floats) -> Floats:
    """The smallest μ ≥ 0 whose trade-off curve allows these error rates."""
    return np.maximum(np.nan_to_num(special.ndtri(1 - fpr) - special.ndtri(fnr), nan=0.0), 0.0)


def epsilon_of_mu(mu: float, delta: float) -> float:
    return min(gaussian_epsilon(mu, delta), EPSILON_MAX) if mu > 0 else 0.0


def by_rates(counts: ErrorCounts, delta: float, confidence: float) -> float:
    """(ε, δ) bound from both error rates."""
    return float(epsilon_of_rates(*_worst(counts, confidence), delta))


def mu_by_rates(counts: ErrorCounts, confidence: float) -> float:
    """μ bound from both error rates."""
    return float(mu_of_rates(*_worst(counts, confidence)))


def by_gaussian_rates(counts: ErrorCounts, delta: float, confidence: float) -> float:
    """Bound from both error rates through the Gaussian trade-off."""
    return epsilon_of_mu(mu_by_rates(counts, confidence), delta)


def by_range(counts: ErrorCounts, delta: float, confidence: float) -> float:
    """Bound on the ε₀ of one bounded-range pick from both error rates; δ plays no part."""
    fpr, fnr = _worst(counts, confidence)
    return min(max(float(special.logit(1 - fnr) - special.logit(fpr)), 0.0), EPSILON_MAX)


def by_coin_game(counts: ErrorCounts, delta: float, confidence: float) -> float:
    """(ε, δ) bound from the number of right guesses; worlds drawn by fair coins."""
    accuracy = float(rate_below(counts.right, counts.runs, confidence))
    if accuracy <= (1 + delta) / 2:
        return 0.0
    return min(math.log((accuracy - delta) / (1 - accuracy)), EPSILON_MAX)


def mu_by_game(counts: ErrorCounts, confidence: float) -> float:
    """μ bound from the number of right guesses: μ = 2Φ⁻¹(accuracy)."""
    accuracy = float(rate_below(counts.right, counts.runs, confidence))
    return 2 * float(special.ndtri(max(accuracy, 0.5)))


def by_gaussian_game(counts: ErrorCounts, delta: float, confidence: float) -> float:
    """Bound from the number of right guesses through the Gaussian trade-off."""
    return epsilon_of_mu(mu_by_game(counts, confidence), delta)


def _worst(counts: ErrorCounts, confidence: float) -> tuple[Floats, Floats]:
    each = 1 - (1 - confidence) / 2
    return (
        rate_above(counts.false_positives, counts.negatives, each),
        rate_above(counts.false_negatives, counts.positives, each),
    )


def chance_of(successes: int, trials: int, chance: float) -> float:
    """P(Binomial(trials, chance) ≥ successes)."""
    return float(stats.binom.sf(successes - 1, trials, chance))


# ---- the threshold -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold:
    """Says "with" where sign·statistic > threshold."""

    threshold: float
    sign: int = 1

    def count(self, statistic: Floats, member: Flags) -> ErrorCounts:
        said = self.sign * statistic > self.threshold
        return ErrorCounts(
            int((said & ~member).sum()), int((~member).sum()), int((~said & member).sum()), int(member.sum())
        )


def best_cut(
    statistic: Floats, member: Flags, value: Callable[[Floats, Floats], Floats], confidence: float
) -> Threshold:
    """The test with the largest `value(FPR, FNR)` on these runs, which must not be used again for the bound.

    Rates are taken at their upper confidence limits, so that a threshold no run ever crossed does not look perfect.
    """
    found, best = Threshold(0.0), -math.inf
    positives, negatives, each = int(member.sum()), int((~member).sum()), 1 - (1 - confidence) / 2
    for sign in (1, -1):
        order = np.argsort(sign * statistic, kind="stable")
        x, m = (sign * statistic)[order], member[order]
        fn = np.concatenate([[0], np.cumsum(m)]).astype(np.float64)  # cut k: the k lowest are said to be without
        fp = negatives - np.concatenate([[0], np.cumsum(~m)]).astype(np.float64)
        values = value(rate_above(fp, negatives, each), rate_above(fn, positives, each))
        values[1:-1][x[1:] == x[:-1]] = -math.inf  # ties cannot be cut
        k = int(np.argmax(values))
        if values[k] > best:
            edges = np.concatenate([[x[0] - 1.0], (x[1:] + x[:-1]) / 2, [x[-1] + 1.0]])
            found, best = Threshold(float(edges[k]), sign), float(values[k])
    return found


# ---- the whole trade-off curve -------------------------------------------------------------------------------


def band(statistic: Floats, member: Flags, confidence: float) -> tuple[Floats, Floats]:
    """(k,) FPR and FNR of k tests along the curve: each is at most this, all of them together with confidence.

    A test says "with" above a threshold. Thresholds are order statistics whose ranks are fixed beforehand: the one with
    e of the runs without the canary above it has an FPR that is Beta(e + 1, n − e) at most, ties included, and given
    those runs it is a fixed threshold for the others. The same with the two exchanged. Bonferroni over all 2k rates.
    """
    without, with_ = np.sort(statistic[~member]), np.sort(statistic[member])
    n, m = len(without), len(with_)
    if n == 0 or m == 0:
        return np.ones(0), np.ones(0)
    few, fewer = ranks(n), ranks(m)
    each = 1 - (1 - confidence) / (2 * (len(few) + len(fewer)))
    missed = np.searchsorted(with_, without[n - 1 - few], side="right")  # threshold: a run without
    alarms = n - np.searchsorted(without, with_[fewer], side="left")  # just below a run with
    return (
        np.concatenate([rate_above(few.astype(np.float64), n, each), rate_above(alarms.astype(np.float64), n, each)]),
        np.concatenate([rate_above(missed.astype(np.float64), m, each), rate_above(fewer.astype(np.float64), m, each)]),
    )


def ranks(runs: int) -> Index:
    """Errors that the tests along a curve make on one side: 0, 1, 2, 4, … up to half of the runs."""
    return np.array([0, *(2**k for k in range(max(runs, 1).bit_length()) if 2 * 2**k <= runs)], np.int64)


def mu_by_curve(statistic: Floats, member: Flags, confidence: float) -> float:
    """The largest μ whose trade-off curve the band excludes."""
    return float(np.max(mu_of_rates(*band(statistic, member, confidence)), initial=0.0))


def by_curve(statistic: Floats, member: Flags, delta: float, confidence: float) -> float:
    """(ε, δ) bound from the whole curve."""
    return float(np.max(epsilon_of_rates(*band(statistic, member, confidence), delta), initial=0.0))


def by_gaussian_curve(statistic: Floats, member: Flags, delta: float, confidence: float) -> float:
    """Bound from the whole curve through the Gaussian trade-off."""
    return epsilon_of_mu(mu_by_curve(statistic, member, confidence), delta)


def mu_of_curve(curve: Sequence[tuple[float, float]], least: float) -> float:
    """The smallest μ whose curve lies below a stated one where both its errors are at least `least`.

    A rate that was measured in n runs is never bounded below 1/n, so what is stated further out cannot be tested.
    """
    stated = np.array([point for point in curve if min(point) >= least], np.float64).reshape(-1, 2)
    return float(np.max(mu_of_rates(stated[:, 0], stated[:, 1]), initial=0.0))


# ---- one run -------------------------------------------------------------------------------------------------


def one_run_p_value(*, canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The chance of so many right guesses, or more, under (ε, δ): at most this."""
    chance = float(special.expit(epsilon))
    tail = float(stats.binom.sf(right - 1, guesses, chance))
    if delta > 0 and right > 0:
        below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))  # P(v − i ≤ W < v)
        tail += 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
    return min(tail, 1.0)


def one_run_bound(*, canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """The largest ε that so many right guesses refute, rounded down."""

    def refuted(epsilon: float) -> bool:
        p = one_run_p_value(canaries=canaries, guesses=guesses, right=right, epsilon=epsilon, delta=delta)
        return p < 1 - confidence

    low, high = 0.0, EPSILON_MAX
    if not refuted(low):
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def planned_guesses(canaries: int, mu: float, delta: float, confidence: float) -> int:
    """How many of the surest guesses to make, from what a μ-GDP mechanism would be expected to give; looks at no run.

    A guess with privacy loss ℓ is right with chance 1/(1 + e^−ℓ), and |ℓ| has quantiles of |N(μ²/2, μ²)|.
    """
    ranks = (np.arange(canaries) + 0.5) / canaries
    loss = np.sort(np.abs(mu * mu / 2 + mu * special.ndtri(ranks)))[::-1]
    right = np.cumsum(special.expit(loss))
    tried = sorted({max(1, round(canaries * share)) for share in (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1)})

    def promise(guesses: int) -> tuple[float, int]:  # where nothing can be proved, guess on all
        expected = int(right[guesses - 1])
        bound = one_run_bound(canaries=canaries, guesses=guesses, right=expected, delta=delta, confidence=confidence)
        return bound, guesses

    return max(tried, key=promise)
