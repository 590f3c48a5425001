"""The sampling-time variant (PSyGenTAB, §III-B), as the authors' published program has it: the generator stays.

    λ = 0, μ = 1; rounds times:
        each temperature × each top-p: draw rows, measure U and P,
            L = (1 − U) + λ·max(0, P_min − P) + μ/2·max(0, P_min − P)²
        of the pair with the smallest L: short of P_min, λ ← λ + (P_min − P), and μ doubles after `PATIENCE` such
        rounds; else λ halves
    the pair with the highest P of all that were tried is what rows are drawn with

What is released does not depend on λ, μ or U: they say which pair the Lagrangian would have chosen, and a run keeps
that beside the other. What is drawn from, and which records P looks at, is the caller's business: see `network.py` and
`private_sampler.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distcondense.arrays import Floats
from distcondense.methods.psygentab.scores import TableScorer, TableScores

TEMPERATURES = (0.7, 0.9, 1.0, 1.1, 1.3)
TOP_PS = (0.90, 0.95, 0.98, 0.99, 1.0)
PATIENCE = 3  # rounds short of P_min after which μ doubles
PENALTY, DOUBLED, HALVED = 1.0, 2.0, 0.5  # μ at first; what moves μ and λ


@dataclass(frozen=True)
class SamplingSettings:
    """How rows are drawn; as the generator draws them by itself, if nothing is said."""

    temperature: float = 1.0
    top_p: float = 1.0

    @property
    def still(self) -> bool:
        return self == SamplingSettings()


# (rows, settings, number of the draw) → (rows, columns) places, the same for the same arguments
RowSampler = Callable[[int, SamplingSettings, int], Floats]


@dataclass(frozen=True)
class SearchResult:
    """What the search found: the pair that is released, and the pair of the smallest Lagrangian in the last round."""

    settings: SamplingSettings
    judged: TableScores
    by_lagrangian: SamplingSettings
    p_min: float
    history: list[dict[str, Any]] = field(default_factory=list)  # a round each: its pair, λ and μ as they weighed it
    tried: list[dict[str, float]] = field(default_factory=list)  # U and P of each pair, mean over rounds

    @property
    def satisfied(self) -> bool:
        return self.p_min <= self.judged.P


def lagrangian(judged: TableScores, p_min: float, multiplier: float, penalty: float) -> float:
    """Eq. 5 with a penalty below P_min only, as the program has it."""
    short = max(0.0, p_min - judged.P)
    return 1 - judged.U + multiplier * short + penalty / 2 * short**2


def steered(draw: RowSampler, judge: TableScorer, p_min: float, rows: int, rounds: int) -> SearchResult:
    """The pair of temperature and top-p with the highest P, after so many rounds over all pairs."""
    pairs = [SamplingSettings(heat, share) for heat in TEMPERATURES for share in TOP_PS]
    multiplier, penalty, bad = 0.0, PENALTY, 0
    every, history = list[tuple[SamplingSettings, TableScores]](), list[dict[str, Any]]()
    for turn in range(rounds):
        tried = [(pair, judge(draw(rows, pair, turn * len(pairs) + k))) for k, pair in enumerate(pairs)]
        every += tried
        best, found = min(tried, key=lambda one: lagrangian(one[1], p_min, multiplier, penalty))
        history.append(
            {
                "temperature": best.temperature,
                "top_p": best.top_p,
                "U": found.U,
                "P": found.P,
                "multiplier": multiplier,
                "penalty": penalty,
            }
        )
        if p_min > found.P:
            multiplier, bad = multiplier + p_min - found.P, bad + 1
            if bad >= PATIENCE:
                penalty, bad = penalty * DOUBLED, 0
        else:
            multiplier, bad = multiplier * HALVED, 0
    settings, judged = max(every, key=lambda one: one[1].P)
    return SearchResult(settings, judged, best, p_min, history, [_mean(pair, every) for pair in pairs])


def _mean(pair: SamplingSettings, every: list[tuple[SamplingSettings, TableScores]]) -> dict[str, float]:
    """U and P that a pair had, over rounds: what lets one see the front that the search went along."""
    own = [judged for settings, judged in every if settings == pair]
    U, P = (sum(values) / len(own) for values in ((one.U for one in own), (one.P for one in own)))
    return {"temperature": pair.temperature, "top_p": pair.top_p, "U": U, "P": P}
