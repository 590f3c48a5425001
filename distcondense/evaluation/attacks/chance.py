"""What luck reaches, and what would have been found: of every score an attack reports, its null and its power.

A coin decided who is a member, so an attack that knows nothing scores members and outsiders alike, whatever the table
and the attack are. Under that alone
    an AUROC            is Mann and Whitney's statistic, with its variance without ties, which is the largest
    shares of both      are Fisher's: with so many successes in all, how many of them are members'
    true positives      above the c + 1st highest of the outsiders: a run of hypergeometric draws
    anything else       is one of its values where members and outsiders are exchanged at random (Besag, Clifford 1991)
No variance is estimated from the very scores that are judged: of twenty targets such estimates are wrong just where it
counts, in the far tail. Where so many targets vary like one, they count as one, rounded against a leak.

The power is the smallest value that would have been called a leak with a probability of 80% whatever other scores
stand on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, stats

from distcondense.arrays import Flags, Floats
from distcondense.evaluation.leaks import FAR, SURELY

LIKELY = 0.8  # probability with which `power` would have been found
LIKELY_Z = float(stats.norm.ppf(LIKELY))
SURE = FAR + LIKELY_Z  # standard deviations above chance of what is found so surely
ENOUGH = 20  # exchanges as good as what was found, after which it is surely luck
EXCHANGES = 9_999  # at most
TOGETHER = 200


# -- luck -------------------------------------------------------------------------------------------------------------


def auroc_luck(area: float, members: float, outsiders: float) -> float:
    """The probability that an AUROC by chance is this or more."""
    return float(stats.norm.sf((area - 0.5) / auroc_error(members, outsiders)))


def auroc_error(members: float, outsiders: float) -> float:
    """Standard deviation of an AUROC by chance."""
    return math.sqrt((members + outsiders + 1) / (12 * members * outsiders))


def shares_luck(hits: float, of: float, alarms: float, among: float) -> float:
    """The probability that of so many successes in all so many or more fall on members (Fisher)."""
    ours, members, theirs, outsiders = math.floor(hits), math.floor(of), math.ceil(alarms), math.floor(among)
    theirs = min(theirs, outsiders)
    return float(stats.hypergeom.sf(ours - 1, members + outsiders, ours + theirs, members))


def rate_luck(caught: float, members: float, alarms: float, outsiders: float) -> float:
    """The probability that so many members or more lie above the outsider after the highest `alarms` of them."""
    found, of, c, among = math.floor(caught), math.floor(members), math.ceil(alarms), math.floor(outsiders)
    if found == 0 or c >= among:
        return 1.0
    return float(stats.hypergeom.cdf(c, of + among, among, found + c))


def exchanged_luck(sums: Floats, member: Flags, statistic: Callable[[Floats, Floats], Floats], *, seed: int) -> float:
    """The probability that a statistic is as large as it is where members and outsiders change places at random.

    Parameters
    ----------
    sums : (n, k) float64
        What each target adds to the sums that the statistic is of.
    member : (n,) bool
    statistic : callable
        ((e, k) sums of members, (e, k) sums of outsiders) -> (e,), NaN where it is not defined.
    seed : int

    Returns
    -------
    float
        Of at most `EXCHANGES`; fewer where `ENOUGH` of them are as good.
    """
    rng, whole = np.random.default_rng([seed, 0x10CC]), sums.sum(0)
    inside = sums[member].sum(0)
    found = statistic(inside[None], (whole - inside)[None])[0]
    as_good, tried = 0, 0
    while as_good < ENOUGH and tried < EXCHANGES:
        who = rng.permuted(np.tile(member, (min(TOGETHER, EXCHANGES - tried), 1)), axis=1)
        inside = who @ sums
        as_good += int((~(statistic(inside, whole - inside) < found)).sum())
        tried += len(who)
    return (as_good + 1) / (tried + 1)


# -- what would have been found ---------------------------------------------------------------------------------------


def auroc_power(members: float, outsiders: float) -> float:
    """The smallest AUROC that would have been found (Hanley and McNeil 1982)."""

    def error(area: float) -> float:
        pairs, triples = area / (2 - area), 2 * area**2 / (1 + area)
        spread = area * (1 - area) + (members - 1) * (pairs - area**2) + (outsiders - 1) * (triples - area**2)
        return math.sqrt(max(spread, 0.0) / (members * outsiders))

    due = FAR * auroc_error(members, outsiders)
    return _least(lambda area: area - 0.5 - due - LIKELY_Z * error(area), 0.5)


def difference_power(members: float, outsiders: float) -> float:
    """The same for the difference of two shares, where they vary most: around a half."""
    each = math.sqrt((1 / members + 1 / outsiders) / 4)
    return _least(lambda a: a - each * (FAR + LIKELY_Z * math.sqrt(max(1 - a * a, 0.0))), 0.0)


def shares_power(control: float, members: float, outsiders: float) -> float:
    """The smallest share of members that would have been found, where outsiders have this one (Casagrande et al. 1978).

    Fisher's counts are whole, which costs half of one on either side.
    """

    def beyond(share: float) -> float:
        pooled = (share * members + control * outsiders) / (members + outsiders)
        by_luck = math.sqrt(pooled * (1 - pooled) * (1 / members + 1 / outsiders))
        really = math.sqrt(share * (1 - share) / members + control * (1 - control) / outsiders)
        return share - control - FAR * by_luck - LIKELY_Z * really - (1 / members + 1 / outsiders) / 2

    return _least(beyond, control)


def rate_power(members: int, outsiders: int, rate: float, crowd: float = 1.0) -> float | None:
    """The same for true positives at this rate of false ones; None where no number of them would show anything."""
    alarms = math.floor(outsiders * rate)
    low, high = 0, members  # the fewest that would show: more are rarer
    if rate_luck(high / crowd, members / crowd, alarms / crowd, outsiders / crowd) > SURELY:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        shows = rate_luck(middle / crowd, members / crowd, alarms / crowd, outsiders / crowd) <= SURELY
        low, high = (low, middle) if shows else (middle, high)
    of = members / crowd
    return float(stats.beta.ppf(LIKELY, high / crowd, max(of - high / crowd, 0.0) + 1))


def _least(beyond: Callable[[float], float], low: float) -> float:
    return 1.0 if beyond(1.0) <= 0 else float(optimize.brentq(beyond, low, 1.0))
