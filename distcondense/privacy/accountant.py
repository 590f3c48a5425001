"""What a ledger adds up to: accountants that read events.

Neighbouring: one person more or less, with all their rows. The curves and their proofs are in curves.py. What discrete
noise and hashes of rows cost is reserved out of δ first. Every rounding goes to the safe side: ε up, PLD pessimistic.

Values that nobody listed. Such an answer tells only values whose noisy count passes a threshold; let D′ be D and one
person p more. Δ is the sum of the answers' `delta`: with probability at most Δ any value that p alone has is told. Let
H be the run on D′ from which those values are kept back. H against the run on D is what the costs say, (ε, δ). The run
on D′ tells more than H with probability at most Δ, and otherwise the same; and it makes each transcript of H with at
least 1 − Δ of its probability, the noise of p's own values being independent of the rest. Hence

    P[D′ ∈ S] ≤ P[H ∈ S] + Δ ≤ e^ε P[D ∈ S] + δ + Δ,     P[D ∈ S] ≤ e^ε P[H ∈ S] + δ ≤ e^ε/(1 − Δ) · P[D′ ∈ S] + δ:

all of it is (ε − log(1 − Δ), δ + Δ), whatever ε is, and Δ of several runs add up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import special

from distcondense.privacy.budget import check_budget
from distcondense.privacy.curves import (
    CELLS_MAX,
    COLLISION,
    LOSSES,
    Picks,
    collision_delta,
    composed,
    composed_deltas,
    exact_epsilon,
    gaussian_delta,
    grid_delta,
    pld_epsilon,
    rdp_epsilon,
)
from distcondense.privacy.events import Event
from distcondense.privacy.noise import GRID, distance_to_rounded

MOST_LOSS = 1000.0  # Σ ε₀ of all picks: far beyond any budget, and as much as the grid of losses has memory for
ROUNDED = 1e-9  # two sums of the same numbers, in another order, differ by less
NoSum = Literal["unbounded", "different units"]  # why several runs have no ε together


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
    delta_categories: float = 0.0  # of δ, for values that only one person brings
    delta_collisions: float = 0.0  # of δ, for rows that differ and share a hash

    @property
    def agree(self) -> bool:
        """Whether the two accountants agree in the sense above."""
        if self.picks == 0:
            return abs(self.pld - self.exact_or_rdp) <= 1e-3 * (1 + self.exact_or_rdp)
        above_floor = min(self.pld, self.exact_or_rdp) >= self.gaussian_part * (1 - 1e-3)
        return above_floor and self.pld <= math.sqrt(4 / 3) * self.exact_or_rdp + 1e-3


class Totals(NamedTuple):
    """What accountants need of a list of events: numbers that do not depend on their order."""

    mu: float  # √Σμ² of the Gaussian answers; infinite where nothing bounds what was read
    picks: Picks  # (ε₀ of one pick, how many), sorted
    cells: int  # noisy coordinates
    delta_categories: float  # Δ: at most so likely an answer tells a value that only one person brings
    runs: int = 1  # each with a key of its own

    @property
    def picked(self) -> int:
        """The number of picks."""
        return sum(count for _, count in self.picks)

    @property
    def distance(self) -> float:
        """Total variation to runs with rounded noise, N·τ, of the planned number of cells, and with rows for hashes."""
        grid = max(CELLS_MAX, self.cells) * distance_to_rounded(GRID) if self.mu > 0 else 0.0
        return grid + self.runs * COLLISION if self.mu > 0 or self.picks else 0.0


def totals(events: Sequence[Event]) -> Totals:
    """The events added up.

    μ is infinite where anybody read without a gate, and where there are so many picks that nobody can add them up.
    """
    gaussian = [event for event in events if event.kind == "gaussian"]
    picks: Counter[float] = Counter()
    for event in events:
        if event.kind == "choice":
            picks[event.cost] += event.picks
    mu = math.sqrt(math.fsum(event.cost**2 for event in gaussian))
    if any(event.kind == "nonprivate" for event in events) or sum(e * n for e, n in picks.items()) > MOST_LOSS:
        mu = math.inf
    delta_categories = math.fsum(event.delta for event in events)
    runs = max(1, len({event.run for event in events}))
    return Totals(mu, tuple(sorted(picks.items())), sum(event.cells for event in gaussian), delta_categories, runs)


def replay(events: Sequence[Event], delta: float) -> Replay:
    """ε at δ of all events together, by two accountants.

    Parameters
    ----------
    events : sequence of Event
        What was asked of patients, e.g. `Ledger.events`; their order does not matter.
    delta : float
        The δ at which ε is wanted, in (0, 1).

    Returns
    -------
    Replay
        ε by both accountants, never rounded down. The same totals are accounted for once a process.

    Examples
    --------
    >>> from distcondense.privacy.accountant import replay
    >>> from distcondense.privacy.events import Event
    >>> twice = [Event("gaussian", "histogram", ("age",), cells=10, cost=0.1)] * 2
    >>> total = replay(twice, delta=1e-5)
    >>> round(total.epsilon, 3), total.agree
    (0.497, True)
    """
    check_budget(delta=delta)
    return _replay(totals(events), delta)


@lru_cache(maxsize=256)
def _replay(spent: Totals, delta: float) -> Replay:
    mu, picks, cells, apart, runs = spent
    if apart >= delta:
        return Replay(math.inf, delta, math.inf, math.inf, mu, spent.picked, cells, 0.0, math.inf, apart)
    left, more = delta - apart, -math.log1p(-apart)  # what values of one person cost: see above
    reserved = max(CELLS_MAX, cells)  # the planned number: ε must not fall when a query is left out
    exact = exact_epsilon(mu, left, reserved, runs) if math.isfinite(mu) else math.inf
    # no accountant finds less than the Gaussian part alone: where that is unbounded, a PLD would take minutes to say so
    by_pld = pld_epsilon(mu, picks, left, reserved, runs) if math.isfinite(exact) else math.inf
    by_rdp = rdp_epsilon(mu, picks, left, reserved, runs) if picks and math.isfinite(exact) else exact
    epsilon = by_pld if picks else exact
    return Replay(
        epsilon=epsilon + more,
        delta=delta,
        pld=by_pld + more,
        exact_or_rdp=by_rdp + more,
        mu=mu,
        picks=spent.picked,
        cells=cells,
        delta_grid=grid_delta(epsilon, reserved) if mu > 0 else 0.0,
        gaussian_part=exact + more,
        delta_categories=apart,
        delta_collisions=collision_delta(epsilon, runs) if mu > 0 or picks else 0.0,
    )


def _false_alarms() -> tuple[float, ...]:
    """Where the trade-off curve is stored: ten points a decade from 1e-6 at both ends, every hundredth between."""
    tail = [0.0, *(float(f"{10 ** (k / 10):.3g}") for k in range(-60, -13))]
    middle = [k / 100 for k in range(5, 96)]
    return (*tail, *middle, *(round(1 - alpha, 9) for alpha in reversed(tail)))


FALSE_ALARMS = _false_alarms()


def trade_off(events: Sequence[Event], at: Sequence[float] = FALSE_ALARMS) -> list[tuple[float, float]]:
    """f-DP: (false positives α, the fewest false negatives β any membership test can have), α from 0 to 1.

    A step curve: between two points the smaller β holds (`missed_at`), so that no reading is above the exact curve, as
    chords of a convex one would be. Exact at its points for Gaussian answers; with picks the best of the supporting
    lines β ≥ 1 − δ(ε) − e^ε α of the PLD. The total variation of grid and hashes, and Δ, is taken off both errors.
    """
    spent, alphas = totals(events), np.asarray(at, np.float64)
    if math.isinf(spent.mu):
        return [(float(alpha), 0.0) for alpha in at]
    apart = spent.distance + spent.delta_categories
    moved = np.minimum(1.0, alphas + apart)
    if spent.picks:
        deltas = composed_deltas(spent.mu, spent.picks)
        betas = np.max((1 - deltas)[:, None] - np.exp(LOSSES)[:, None] * moved[None, :], axis=0)
    else:
        betas = special.ndtr(-special.ndtri(moved) - spent.mu)
    betas = np.clip(betas - apart, 0.0, 1.0)
    return [(float(alpha), float(beta)) for alpha, beta in zip(alphas, betas, strict=True)]


def missed_at(curve: Sequence[tuple[float, float]], alpha: float) -> float:
    """What a stored trade-off curve says at any α: the smaller β of the two points around it."""
    return next(beta for point, beta in curve if point >= alpha)


def membership_advantage(events: Sequence[Event]) -> float:
    """The largest 1 − α − β of any membership test: total variation between neighbours, δ(0)."""
    return _advantage(totals(events))


@lru_cache(maxsize=256)
def _advantage(spent: Totals) -> float:
    mu, picks, _, apart, _ = spent
    if math.isinf(mu):
        return 1.0
    at_zero = float(composed(mu, picks).get_delta_for_epsilon(0.0)) if picks else gaussian_delta(mu, 0.0)
    return min(1.0, at_zero + 2 * spent.distance + apart)


def advantage_with_earlier(
    own: Sequence[Event], earlier: Sequence[Event], epsilon: float | NoSum | None
) -> float | None:
    """The membership advantage of this run and those before it; None where their ε together is no number."""
    return membership_advantage((*earlier, *own)) if isinstance(epsilon, int | float) else None


# ---- several runs on the same patients -----------------------------------------------------------------------


def unite(*accounts: Sequence[Event]) -> tuple[Event, ...]:
    """All events of all accounts, each once.

    What a ledger holds was asked in sessions: two records of one session are one, the longer of them; two sessions that
    went on from copies of one folder have answers of their own, and both count. What a run was charged before it asked
    is in no session: it counts in place of what was asked where it covers that.
    """
    runs: dict[str, dict[str, list[Event]]] = {}  # run → session, "" what was charged → its events
    nameless: list[Event] = []
    for account in accounts:
        records: dict[tuple[str, str], list[Event]] = {}
        for event in account:
            (records.setdefault((event.run, event.session), []) if event.run else nameless).append(event)
        for (run, session), events in records.items():
            sessions = runs.setdefault(run, {})
            if len(events) > len(sessions.get(session, [])):
                sessions[session] = events
    return (*nameless, *(event for sessions in runs.values() for event in _dearest(sessions)))


def _dearest(sessions: dict[str, list[Event]]) -> list[Event]:
    """Of a run: what was charged or asked, whichever is more; of each price, where neither is in all."""
    charged = sessions.get("", [])
    asked = [event for session, events in sessions.items() if session for event in events]
    if _covers(charged, asked):
        return charged
    if _covers(asked, charged):
        return asked
    known: dict[Any, tuple[list[Event], list[Event]]] = {}
    for place, events in enumerate((charged, asked)):
        for event in events:
            price = (event.kind, event.cost, event.picks, event.unit, event.delta)
            known.setdefault(price, ([], []))[place].append(event)
    return [event for both in known.values() for event in max(both, key=len)]


def _covers(events: Sequence[Event], others: Sequence[Event]) -> bool:
    """Whether no accountant finds more in the others, whatever they are added to: no total of theirs is larger."""
    these, those = totals(events), totals(others)
    picks = dict(these.picks)
    return (
        those.mu <= these.mu * (1 + ROUNDED)
        and those.delta_categories <= these.delta_categories * (1 + ROUNDED)
        and those.cells <= these.cells
        and all(count <= picks.get(each, 0) for each, count in those.picks)
        and {event.unit for event in others} <= {event.unit for event in events}
    )


def with_earlier(own: Sequence[Event], earlier: Sequence[Event], delta: float) -> float | NoSum | None:
    """ε at δ of this run and those before it; why there is no such number, or None where nothing came before."""
    return together((*earlier, *own), delta) if earlier else None


def together(events: Sequence[Event], delta: float) -> float | NoSum:
    """ε at δ of all these events, or why there is no such number."""
    if any(event.kind == "nonprivate" for event in events):
        return "unbounded"
    if len({event.unit for event in events}) > 1:
        return "different units"
    total = replay(events, delta).epsilon
    return total if math.isfinite(total) else "unbounded"
