"""The sampling-time variant (PSyGenTAB, §III-B and §IV-B1): the generator stays, its rows are steered and filtered.

Three settings: temperature, top-p, and a multiplier on the distance to the nearest record, by which rows are kept.
Every round looks at the settings next to the current ones, takes the one with the smallest augmented Lagrangian (eq.
5), and then updates μ and λ as lines 10–13 of Algorithm 1 do; it ends where P ≥ P_min and nothing next to it is better.

What is drawn from and which records P looks at is the caller's business: see `network.py` and `private_sampler.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.methods.psygentab.lagrangian import Lagrangian
from distcondense.methods.psygentab.scores import TableScorer, TableScores

TEMPERATURES = (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
TOP_PS = (0.8, 0.9, 0.95, 1.0)
DISTANCES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
SPARE = 4  # rows drawn for each that is kept, where rows are filtered


@dataclass(frozen=True)
class SamplingSettings:
    """How rows are drawn; as the generator draws them by itself, if nothing is said."""

    temperature: float = 1.0
    top_p: float = 1.0
    distance: float = 0.0  # how much the distance to the nearest record counts when rows are kept

    @property
    def still(self) -> bool:
        return self == SamplingSettings()

    def around(self) -> Iterator[SamplingSettings]:
        """These, and those next to them."""
        yield self
        for name, scale in (("temperature", TEMPERATURES), ("top_p", TOP_PS), ("distance", DISTANCES)):
            at = scale.index(getattr(self, name))
            for place in (at - 1, at + 1):
                if 0 <= place < len(scale):
                    yield replace(self, **{name: scale[place]})


# (rows, settings, weights of columns in the distance) → (rows, columns) places, the same for the same arguments
RowSampler = Callable[[int, SamplingSettings, Floats | None], Floats]


@dataclass(frozen=True)
class SearchResult:
    """Where the search ended."""

    settings: SamplingSettings
    judged: TableScores
    lagrangian: Lagrangian
    weights: Floats | None
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def satisfied(self) -> bool:
        return self.lagrangian.p_min <= self.judged.P


def steered(draw: RowSampler, judge: TableScorer, lagrangian: Lagrangian, rows: int, rounds: int) -> SearchResult:
    """The settings with the smallest augmented Lagrangian after at most so many rounds."""
    settings, history = SamplingSettings(), list[dict[str, Any]]()
    seen: dict[tuple[SamplingSettings, tuple[float, ...]], TableScores] = {}

    def look(at: SamplingSettings) -> TableScores:
        weighted = lagrangian.columns if at.distance else ()
        if (at, weighted) not in seen:
            seen[at, weighted] = judge(draw(rows, at, _weights(weighted)))
        return seen[at, weighted]

    for _ in range(rounds):
        before = settings
        values = {at: lagrangian.value(*_of(look(at), lagrangian)) for at in settings.around()}
        settings = min(values, key=lambda at: values[at])
        found = look(settings)
        history.append(
            {
                "temperature": settings.temperature,
                "top_p": settings.top_p,
                "distance": settings.distance,
                "U": found.U,
                "P": found.P,
                "multiplier": lagrangian.multiplier,
                "penalty": lagrangian.penalty,
            }
        )
        if lagrangian.p_min <= found.P and settings == before:
            break
        lagrangian = lagrangian.updated(found.P, found.by_column if lagrangian.columns else ())
    return SearchResult(
        settings, look(settings), lagrangian, _weights(lagrangian.columns if settings.distance else ()), history
    )


def _of(judged: TableScores, lagrangian: Lagrangian) -> tuple[Any, ...]:
    return (judged.U, judged.P, judged.by_column) if lagrangian.columns else (judged.U, judged.P)


def _weights(columns: tuple[float, ...]) -> Floats | None:
    """Columns count the more in the distance, the larger their own multiplier is."""
    return 1 + np.array(columns) if columns else None


def kept(distance: Floats, usual: float, rows: int, multiplier: float, rng: np.random.Generator) -> Index:
    """`rows` of the candidates, drawn without replacement in proportion to exp(multiplier · distance / usual)."""
    chance = multiplier * distance / max(usual, 1e-12) + rng.gumbel(size=len(distance))
    return np.sort(np.argsort(-chance, kind="stable")[:rows])
