"""What an answer costs whose noise several sites share: the part of each, the price, and what is said of it.

Write c for the price that is charged. A person at up to k sites moves the sum by k times the limit of one site, so that
limit is GRID·c/k. Of n sites t may collude; the others, n − t, add discrete Gaussians of variance GRID²/(n − t) each,
GRID² together. That sum is as near to one discrete Gaussian as noise.py says, and GRID² against GRID·c is what one gate
adds for c. All n parts together are a noise of √(n/(n − t)), so that whoever wants noise of 1/μ is charged `cost(μ)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from distcondense.errors import SettingsError
from distcondense.privacy.answering import gaussian_limit
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.noise import GRID, distance_to_rounded
from distcondense.privacy.rows import MU_MAX, ROWS_ALL_MAX

CHOICE_SHARE = 0.05  # of μ², for tables that pairs of columns are chosen by
MOST_SITES = 1000
MOST_HOSPITALS = 100  # that one person may be at
SPARE = 2**45  # deviations of noise that no draw reaches


@dataclass(frozen=True)
class Sharing:
    """How many sites share the noise, how many of them may collude, and at how many a person may be."""

    sites: int  # n
    colluding: int = 1  # t
    hospitals: int = 1  # k

    def __post_init__(self) -> None:
        if not 2 <= self.sites <= MOST_SITES:
            raise SettingsError("sites", f"must be between 2 and {MOST_SITES}", found=f"{self.sites}")
        if not 0 <= self.colluding <= self.sites - 2:
            raise SettingsError(
                "colluding",
                "must leave two sites or more that do not collude: the sum of a single one is no secret of its own",
                found=f"{self.colluding} of {self.sites}",
                fix=f"0 to {self.sites - 2}",
            )
        if not 1 <= self.hospitals <= min(MOST_HOSPITALS, self.sites):
            raise SettingsError(
                "hospitals",
                f"must be between 1 and {min(MOST_HOSPITALS, self.sites)}",
                found=f"{self.hospitals}",
                fix="the most sites at which one person has rows",
            )

    @property
    def honest(self) -> int:
        """n − t, whose noise alone is counted."""
        return self.sites - self.colluding

    @property
    def scale(self) -> float:
        """Deviation of one site's noise, in grid units."""
        return GRID / math.sqrt(self.honest)

    @property
    def factor(self) -> float:
        """Price of an answer whose total noise is 1/μ, in units of μ."""
        return self.hospitals * math.sqrt(self.sites / self.honest)

    def cost(self, mu: float) -> float:
        """What an answer is charged whose total noise is 1/μ."""
        return mu * self.factor

    def limit(self, mu: float) -> float:
        """The most that a person moves one site's integers by, in L2."""
        return gaussian_limit(self.cost(mu)) / self.hospitals

    @property
    def alone(self) -> float:
        """How many times as much an answer costs if all other sites collude: a site has its own noise alone."""
        return math.sqrt(self.honest)

    @property
    def delta_reserved(self) -> bool:
        """Whether the δ that one gate reserves for its grid covers a sum of so many discrete Gaussians."""
        return CELLS_MAX * distance_to_rounded(GRID, self.honest) <= CELLS_MAX * distance_to_rounded(GRID)

    def largest(self, persons: int = ROWS_ALL_MAX) -> int:
        """No total is larger in size: persons × grid, and all noise."""
        return persons * int(GRID * MU_MAX) + self.sites * SPARE * int(GRID)

    @property
    def words(self) -> str:
        """For the statement of a release."""
        most = "one site" if self.hospitals == 1 else f"{self.hospitals} of the sites"
        return (
            f"Made by {self.sites} sites that shared masked sums only: each added its own part of the noise, and who "
            f"added them up saw noisy totals. The guarantee holds against that coordinator and up to {self.colluding} "
            "of the sites together. Each site must trust that no more collude; if all others do, each of its answers "
            f"costs {self.alone:.4g} times the μ in the ledger. A person has rows at {most} at the most, as was "
            "declared; nobody checked it. A site that invents rows can spoil the table, and nobody would see it."
        )
