"""Who gets how much of the budget (DP-GENG §3.4, Appendix D and F): μ_G, μ_F, μ_E, Theorem 2, and the search.

The composition is Gaussian: μ_total² = μ_G² + μ_F² + μ_E² (Lemma 2, eq. 7). The paper sets μ_G and μ_E by binary search
for a quality of the generated rows and of the expert, and gives feature matching the rest (eq. 8). Its search scores
candidates on the private rows and charges nobody for that, so it is here a function for public tables only
(`searched`; benchmarks/companions/dp_geng.py uses it), and a run takes public shares.

Theorem 2 amplifies by sampling (Lemma 5, a limit theorem). Here every question is asked of all rows, once: nothing is
sampled and no limit is taken, so that what the ledger adds up to is exact. σ_F of the theorem, as it is printed and as
its own eq. 10 says, is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FID_FACTOR, ACCURACY_SHARE = 1.2, 0.9  # Appendix D: as near to the full budget's as this is near enough


@dataclass(frozen=True)
class Allocation:
    """The three parts of μ_total; a part that is switched off has 0."""

    generator: float  # μ_G
    matching: float  # μ_F
    expert: float  # μ_E

    @classmethod
    def from_shares(cls, mu: float, shares: Sequence[float]) -> Allocation:
        """By shares of μ²."""
        return cls(*(mu * math.sqrt(share) for share in shares))

    @property
    def total(self) -> float:
        """Lemma 2, eq. 7."""
        return math.sqrt(self.generator**2 + self.matching**2 + self.expert**2)


def matching_left(total: float, generator: float, expert: float) -> float:
    """μ_F, what the other two leave (eq. 8)."""
    return math.sqrt(max(0.0, total**2 - generator**2 - expert**2))


def sigma_of_theorem_2(matching: float, *, sampled: float, steps: int) -> float:
    """σ_F for `steps` batches that each person is in with probability `sampled`, as printed (Theorem 2, eq. 11).

    Eq. 10 solved for σ_F has that fraction the other way round (`sigma_of_lemma_5`): where p²T > μ_F² what is printed
    is too little noise for the μ_F it names, and where p²T < μ_F² too much.
    """
    return math.log(steps * sampled**2 / matching**2 + 1) ** -0.5


def sigma_of_lemma_5(matching: float, *, sampled: float, steps: int) -> float:
    """σ_F by eq. 10: the noise at which Lemma 5 gives μ_F."""
    return math.log(matching**2 / (steps * sampled**2) + 1) ** -0.5


def mu_of_sampling(sigma: float, *, sampled: float, steps: int) -> float:
    """Lemma 5, eq. 9: the limit of many sampled steps of noise σ."""
    return sampled * math.sqrt(steps * math.expm1(sigma**-2))


def searched(
    total: float, distance: Callable[[float], float], accuracy: Callable[[float], float], *, rounds: int = 12
) -> Allocation:
    """The paper's rule (Appendix D), for public rows: the smallest μ_G and μ_E that are good enough, the rest to μ_F.

    `distance` of generated rows made with μ_G to the rows (the paper: FID), `accuracy` of an expert made with μ_E.
    """
    nearest, best = distance(total), accuracy(total)
    generator = _smallest(total, lambda mu: distance(mu) <= FID_FACTOR * nearest, rounds)
    expert = _smallest(total, lambda mu: accuracy(mu) >= ACCURACY_SHARE * best, rounds)
    return Allocation(generator, matching_left(total, generator, expert), expert)


def _smallest(most: float, good: Callable[[float], bool], rounds: int) -> float:
    """By bisection; `most` is good."""
    low, high = 0.0, most
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high
