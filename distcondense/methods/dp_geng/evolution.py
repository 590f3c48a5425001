"""Private evolution of a table (Tab-PE; Tran et al., arXiv 2606.08259), written anew after its authors' program.

    P ← rows of each class, every column drawn uniformly from its public values
    for t = 1 … T − 1:
        every patient votes for the nearest row of P that has its class; noise is added to the votes
        t < 5:  as many rows, drawn by their votes (none below 0), then one variation of each takes their place
        t ≥ 5:  the rows with the most votes, kept, and three variations of each
    the rows that the last vote chose are the table

A variation moves each number by up to ±r of its range and redraws each category with chance r; r falls from 0.5 to 0.01
as r₀ − (r₀ − r₁)(t/T)^0.2. Distances are Euclidean, numbers over [0, 1], categories one-hot at 1/3. Numbers are whole
numbers of public cells; a hole beside numbers is a category of its own (hole or number, mismatch as of categories,
redrawn with chance r). One patient's votes of a round have norm 1: the gate's `mapped` question, T − 1 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Codes, Floats, Index
from distcondense.data.cells import Cells
from distcondense.privacy.contributions import Objective, Target

CATEGORY = 1 / 3  # the weight of a category in distances
DRAWN_ROUNDS = 5  # rounds below this draw rows by their votes, those after it keep the best
VARIATIONS = 3  # of each kept row
ROUNDS = 30  # T: populations, the first among them
RATES, DECAY = (0.5, 0.01), 0.2  # how much a variation varies, at first and at last, and how it falls
VOTES = "votes for the nearest row"


@dataclass(frozen=True)
class Space:
    """Public columns of codes: which are numbers, and which have a code for a hole at their end."""

    sizes: tuple[int, ...]
    numeric: tuple[bool, ...]
    hole: tuple[bool, ...]

    @classmethod
    def from_cells(cls, cells: Sequence[Cells]) -> Space:
        numeric = tuple(one.numeric for one in cells)
        return cls(tuple(one.size for one in cells), numeric, tuple(one.numeric and one.hole for one in cells))

    def steps(self, j: int) -> int:
        """The largest number among column j's codes."""
        return self.sizes[j] - 1 - self.hole[j]

    def drawn(self, rows: int, rng: np.random.Generator) -> Index:
        """(rows, columns) uniform: RANDOM_API."""
        found = np.empty((rows, len(self.sizes)), np.int64)
        for j in range(len(self.sizes)):
            found[:, j] = rng.integers(0, self.steps(j) + 1, rows)
            if self.hole[j]:
                found[rng.random(rows) < 0.5, j] = self.sizes[j] - 1
        return found

    def varied(self, rows: Index, rate: float, rng: np.random.Generator) -> Index:
        """A variation of each row: VARIATION_API."""
        found, uniform = rows.copy(), self.drawn(len(rows), rng)
        for j in range(len(self.sizes)):
            again = rng.random(len(rows)) < rate
            if not self.numeric[j]:
                found[again, j] = uniform[again, j]
                continue
            most = self.steps(j)
            moved = np.clip(np.round(rows[:, j] + rng.uniform(-rate, rate, len(rows)) * most), 0, most).astype(np.int64)
            was, is_ = rows[:, j] > most, uniform[:, j] > most  # a hole before; one if redrawn
            found[:, j] = np.where(
                was, np.where(again, uniform[:, j], rows[:, j]), np.where(again & is_, uniform[:, j], moved)
            )
        return found

    def distances(self, j: int, to: Index) -> Floats:
        """(codes, rows) squared distances in column j from each of its codes to the rows' codes `to`."""
        code = np.arange(self.sizes[j])[:, None]
        differs = 2 * CATEGORY**2 * (code != to)
        if not self.numeric[j]:
            return differs
        most = self.steps(j)
        apart = ((code - to) / max(most, 1)) ** 2
        return np.where((code > most) | (to > most), differs, apart)


@dataclass(frozen=True, eq=False)
class Votes:
    """A patient's vote: 1 at the nearest row of its class, the first of equally near ones. Looks at one patient's row.

    Its vector is 1 in one place, so it has norm 1. The class is what the objective says or, without one, the code of
    the last column.
    """

    columns: tuple[int, ...]
    tables: tuple[tuple[Floats, ...], ...]  # of each class: of each column (codes, rows) squared distances
    objective: Objective | None = None
    name: str = VOTES

    @property
    def size(self) -> int:
        return sum(of[0].shape[1] for of in self.tables)

    def values(self, codes: Codes, target: Target) -> Floats:
        found, start = np.zeros((len(codes), self.size)), 0
        group = codes[:, -1] if self.objective is None else self.objective.group("label", target)
        for label, of in enumerate(self.tables):
            own = np.flatnonzero(group == label)
            distance = np.zeros((len(own), of[0].shape[1]))
            for j, table in enumerate(of):  # one addition after another: a row's bits do not depend on other rows
                distance += table[codes[own, j]]
            if len(own):
                found[own, start + distance.argmin(1)] = 1.0
            start += of[0].shape[1]
        return found


def chosen(votes: Floats, rows: int, draw: bool, rng: np.random.Generator) -> Index:
    """Which rows of one class go on: drawn by their votes, or those with the most."""
    if not draw:
        return np.argsort(votes, kind="stable")[::-1][:rows]
    weight = np.maximum(votes, 0.0)
    share = weight / weight.sum() if weight.sum() > 0 else None
    return rng.choice(len(votes), rows, p=share)


def crowd(t: int) -> int:
    """Rows that the vote of round t is about, in numbers of those that go on."""
    return 1 if t <= DRAWN_ROUNDS else 1 + VARIATIONS


def rate(t: int, rounds: int = ROUNDS, rates: tuple[float, float] = RATES, decay: float = DECAY) -> float:
    return rates[0] - (rates[0] - rates[1]) * (t / rounds) ** decay


def evolved(
    space: Space,
    classes: int,
    rows: int,
    vote: Callable[[int, tuple[tuple[Floats, ...], ...]], Floats],
    rates: Sequence[float],
    rng: np.random.Generator,
) -> list[Index]:
    """`rows` rows of each class; vote(t, tables of distances) are the noisy votes of round t, rates[t − 1] its rate."""
    population = [space.drawn(rows, rng) for _ in range(classes)]
    kept = population
    for t, varies in enumerate(rates, 1):
        tables = tuple(tuple(space.distances(j, of[:, j]) for j in range(len(space.sizes))) for of in population)
        of_class, draw = np.split(vote(t, tables), classes), t < DRAWN_ROUNDS
        kept = [of[chosen(own, rows, draw, rng)] for of, own in zip(population, of_class, strict=True)]
        fresh = [[space.varied(of, varies, rng) for _ in range(1 if draw else VARIATIONS)] for of in kept]
        population = [np.concatenate([*new, *([] if draw else [old])]) for new, old in zip(fresh, kept, strict=True)]
    return kept
