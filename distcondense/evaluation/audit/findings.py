"""What an audit finds: bounds beside claims, and a verdict in words.

A finding's `bound` holds with 95% confidence. `exceeded` is said at a stricter level: each of the F findings is
compared with its claim at confidence 1 − ALARM/F, and every bound is valid for any method that keeps its claim, so by
the union bound an intact build fails an audit with probability at most ALARM = 1e-4.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats
from distcondense.evaluation.audit import stats

CONFIDENCE = 0.95
ALARM = 1e-4  # chance that a whole audit of an intact build fails


@dataclass(frozen=True)
class Finding:
    """One attack on one pair of neighbours: ε is at least `bound`, with this confidence."""

    neighbour: str
    attack: str
    runs: int  # that count for the bound (one run: the guesses)
    bound: float
    confidence: float
    claim: float  # ε by the method's own account
    guarantee: str
    exceeded: bool  # the claim is refuted, at the confidence of the whole audit
    sure: float  # the bound at that confidence
    reach: float | None = None  # where it is known: ε that the best test finds with endless runs
    fpr: tuple[float, float] | None = None
    fnr: tuple[float, float] | None = None
    mu: float | None = None  # Gaussian readings: μ is at least this, which is ε at least `bound` at the claim's δ
    by: str = ""  # the whole way: what of the release was looked at

    @property
    def power(self) -> float:
        """The bound as a share of the claim."""
        return self.bound / self.claim if self.claim > 0 else math.inf if self.bound > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Audit:
    """All findings about one method."""

    method: str
    guarantee: str
    epsilon: float  # asked
    delta: float
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()  # that need no statistics: an answer outside the ledger, a sum moved too far

    @property
    def passed(self) -> bool:
        return not self.problems and not any(finding.exceeded for finding in self.findings)

    @property
    def power(self) -> float:
        """The best bound as a share of its claim: what an audit that passed was able to see."""
        return max((finding.power for finding in self.findings), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "guarantee": self.guarantee,
            "passed": self.passed,
            "power": self.power if math.isfinite(self.power) else None,
            "problems": list(self.problems),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """The table as text, and the verdict in words."""
        head = (
            "neighbour",
            "attack",
            "runs",
            f"ε at least ({CONFIDENCE:.0%})",
            "claimed",
            "within reach",
            "μ at least",
            "",
        )
        body = [
            (
                f.neighbour,
                f.attack,
                f"{f.runs}",
                f"{f.bound:.2f}",
                f"{f.claim:.2f}",
                "" if f.reach is None else f"{f.reach:.2f}",
                "" if f.mu is None else f"{f.mu:.2f}",
                "EXCEEDED" if f.exceeded else "above" if f.power > 1 else "",
            )
            for f in self.findings
        ]
        width = [max(len(row[k]) for row in (head, *body)) for k in range(len(head))]
        table = [
            "  ".join(
                c.rjust(w) if 2 <= k <= 6 else c.ljust(w) for k, (c, w) in enumerate(zip(row, width, strict=True))
            )
            for row in (head, *body)
        ]
        heading = f"{self.method} at ε = {self.epsilon:g} ({self.guarantee}, δ = {self.delta:g})"
        sources = dict.fromkeys(f"{f.neighbour}: by {f.by}" for f in self.findings if f.by)
        return [heading, *(line.rstrip() for line in table), *sources, *self.problems, self.verdict()]

    def verdict(self) -> str:
        """FAILED, IN DOUBT (more bounds above their claims than chance explains, none of them sure) or PASSED."""
        best = max(self.findings, key=lambda f: (f.exceeded, f.power), default=None)
        above = sum(f.power > 1 for f in self.findings)
        if best is not None and best.exceeded:
            return (
                f"FAILED: ε is at least {best.bound:.2f} ({best.neighbour}; {best.attack}{', by ' * bool(best.by)}"
                f"{best.by}), "
                f"claimed {best.claim:.2f} ({best.guarantee})."
            )
        if self.problems:
            return "FAILED: the method does not keep its own account."
        if stats.chance_of(above, len(self.findings), 1 - CONFIDENCE) < 1 - CONFIDENCE:
            return (
                f"IN DOUBT: {above} of {len(self.findings)} bounds are above their claim ({self.guarantee}), "
                f"each with {CONFIDENCE:.0%} confidence, none sure enough for an alarm: repeat with more runs."
            )
        return (
            f"PASSED: no attack refuted the claim; the best one proved {self.power:.0%} of its claim"
            + (f" ({above} of {len(self.findings)} above it, as chance may do). " if above else ". ")
            + "Attacks can show that a guarantee does not hold, never that it does."
        )


# ---- what an auditor is asked, and what it is


@dataclass(frozen=True)
class AuditRequest:
    """What `run_audit` wants of an auditor."""

    neighbours: tuple[str, ...]
    epsilon: float
    delta: float
    runs: int  # for each pair of neighbours
    canaries: int  # of the one-run attack; 0: leave it out
    seed: int  # of the cohort; coins and noise are always fresh
    threads: int
    whole: int = 0  # runs of each pair that goes the whole way; 0: none does


@dataclass(frozen=True)
class Auditor:
    """How one method is attacked: an entry of `audit.AUDITORS`.

    Parameters
    ----------
    guarantee : str
        What the method promises: end-to-end, as-published.
    neighbours : tuple of str
        The pairs of neighbouring tables that it knows.
    one_run_tables : callable
        Number of canaries → runs that the one-run attack takes.
    attack : callable
        (request, on_run) → (findings before their verdict, problems that need no statistics). It calls `on_run` after
        each run of the method.
    claim : float
        ε that is tested where none is said.
    whole : mapping, optional
        Options of its runs from a file's bytes to the released bytes (end_to_end.py); None: it cannot go that way.
    """

    guarantee: str
    neighbours: tuple[str, ...]
    one_run_tables: Callable[[int], int]
    attack: Callable[[AuditRequest, Callable[[], None]], tuple[list[PendingFinding], tuple[str, ...]]]
    claim: float = 1.0
    whole: Mapping[str, Any] | None = None


# ---- findings before it is known how many there are


@dataclass(frozen=True)
class PendingFinding:
    """A finding whose verdict waits until it is known how many findings share the confidence."""

    finding: Finding
    bound_at: Callable[[float], float]  # confidence → bound


def pending_finding(
    neighbour: str,
    attack: str,
    runs: int,
    claim: float,
    guarantee: str,
    bound_at: Callable[[float], float],
    **more: Any,
) -> PendingFinding:
    """The finding with its bound at CONFIDENCE; `more` are further fields of `Finding`."""
    about = {"claim": claim, "guarantee": guarantee, "exceeded": False, "sure": 0.0, **more}
    return PendingFinding(Finding(neighbour, attack, runs, bound_at(CONFIDENCE), CONFIDENCE, **about), bound_at)


def settled(pending: Sequence[PendingFinding]) -> tuple[Finding, ...]:
    """Each compared with its claim at the confidence that all of them share."""
    findings = []
    for draft in pending:
        sure = draft.bound_at(1 - ALARM / len(pending))
        findings.append(replace(draft.finding, sure=sure, exceeded=sure > draft.finding.claim))
    return tuple(findings)


def coins(count: int) -> Flags:
    """Fair and fresh: what is proved about a guesser is proved over these."""
    return np.random.default_rng(secrets.randbits(128)).random(count) < 0.5


def first_runs(count: int, pilot: float) -> Flags:
    """Which of so many runs choose what is looked at; the others count."""
    return np.arange(count) < max(10, int(pilot * count))


def many_runs(
    name: str,
    statistic: Floats,
    member: Flags,
    claim: float,
    delta: float,
    guarantee: str,
    *,
    gaussian: bool,
    reach: float | None = None,
    known: stats.Threshold | None = None,
    pilot: float = 0.5,
    by: str = "",
) -> list[PendingFinding]:
    """Findings from one statistic: thresholds from the first runs, error rates from the rest; then its whole curve.

    Parameters
    ----------
    name : str
        Of the pair of neighbours.
    statistic : (runs,) float64
        Higher where the canary is believed to be in.
    member : (runs,) bool
        Whether it was, by fair coins.
    claim, delta, guarantee
        What the method states.
    gaussian : bool
        The claim is that of a Gaussian mechanism, and is held to it.
    reach : float, optional
        ε that the best test finds with endless runs.
    known : Threshold, optional
        A threshold known beforehand, which needs no pilot: all runs count, for the curve too.
    pilot : float
        The share of the runs that choose thresholds.
    by : str
        What of the release was looked at.

    Returns
    -------
    list of PendingFinding
    """
    first = first_runs(len(member), pilot)

    def best(value: Callable[[Floats, Floats], Floats]) -> stats.Threshold:
        return stats.best_cut(statistic[first], member[first], value, CONFIDENCE)

    def cut(value: Callable[[Floats, Floats], Floats]) -> stats.ErrorCounts:
        return best(value).count(statistic[~first], member[~first])

    def finding(attack: str, runs: int, bound_at: Callable[[float], float], **more: Any) -> PendingFinding:
        return pending_finding(name, attack, runs, claim, guarantee, bound_at, reach=reach, by=by, **more)

    def counted(
        attack: str,
        counts: stats.ErrorCounts,
        bound: Callable[[stats.ErrorCounts, float, float], float],
        mu: Callable[[stats.ErrorCounts, float], float] | None = None,
    ) -> PendingFinding:
        fpr, fnr = counts.intervals(CONFIDENCE)
        proved = None if mu is None else mu(counts, CONFIDENCE)
        return finding(attack, counts.runs, lambda level: bound(counts, delta, level), fpr=fpr, fnr=fnr, mu=proved)

    game = known.count(statistic, member) if known else cut(lambda fpr, fnr: 1 - (fpr + fnr) / 2)
    sign, rest = (known.sign, np.ones_like(first)) if known else (best(stats.mu_of_rates).sign, ~first)
    curve = sign * statistic[rest], member[rest]
    rates = counted("threshold, (ε, δ)", cut(partial(stats.epsilon_of_rates, delta=delta)), stats.by_rates)
    along = int(rest.sum())
    if not gaussian:
        return [
            rates,
            counted("coin game, (ε, δ)", game, stats.by_coin_game),
            finding("whole curve, (ε, δ)", along, lambda level: stats.by_curve(*curve, delta, level)),
        ]
    return [
        rates,
        counted("threshold, Gaussian", cut(stats.mu_of_rates), stats.by_gaussian_rates, stats.mu_by_rates),
        counted("coin game, Gaussian", game, stats.by_gaussian_game, stats.mu_by_game),
        finding(
            "whole curve, Gaussian",
            along,
            lambda level: stats.by_gaussian_curve(*curve, delta, level),
            mu=stats.mu_by_curve(*curve, CONFIDENCE),
        ),
    ]


def one_run(
    score: Floats, member: Flags, guesses: int, claim: float, delta: float, guarantee: str, *, name: str = ""
) -> PendingFinding:
    """Guess on the surest canaries: in where the score is above 0."""
    surest = np.argsort(-np.abs(score), kind="stable")[:guesses]
    right = int(((score[surest] > 0) == member[surest]).sum())
    bound = partial(stats.one_run_bound, canaries=len(member), guesses=guesses, right=right, delta=delta)
    words = name or f"{len(member)} canaries", f"one run, {right} right"
    return pending_finding(*words, guesses, claim, guarantee, lambda level: bound(confidence=level))
