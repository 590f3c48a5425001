"""What one row may add to a sum: the protocol of a private objective.

An objective belongs to a kind of outcome (`outcomes/`), which proves its norm bound beside its formulas. All its maps
are public and row by row: what a row adds depends on that row, its score and earlier noisy answers, on nobody else's.
Nothing here may raise, or warn, for a value: values outside the legal range are moved to its nearest end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index

FINITE = 1e100  # of public numbers, so that no product of two overflows: a warning would depend on a patient
SCORE_MAX = 30.0  # scores are clipped to ±30 before any exponential
FARTHEST = 2**20  # steps of one shift

Steps = NDArray[np.int32]  # scores in whole steps (OnGrid)

Target = Mapping[str, NDArray]  # type: ignore[type-arg]  # what the gate holds of each row's outcome, by name, (n,) each


@dataclass(frozen=True)
class Statistic:
    """A public map of a row's outcome and score to a vector of norm at most 1, whose sum may be asked."""

    size: int  # coordinates
    values: Callable[[Target, Floats], list[Floats]]  # `size` arrays (n,), of each row together of norm at most 1
    undo: Callable[[Floats], Floats]  # a noisy sum (size,) → the units it is read in
    unit: float = 1.0  # the noise of its first coordinate in those units, at μ = 1; for the reader of a ledger


class Objective(Protocol):
    """A private objective: what is learned by gradient sums, and which groups rows can be counted by."""

    @property
    def scores(self) -> int:
        """S: scores that a row has; 1, or one for each class. Scores are (n,) where S is 1, else (n, S)."""
        ...

    @property
    def scales(self) -> tuple[float, ...]:
        """One for each array of `contributions`: S of the gradient, then none or S of the hessian.

        A contribution is scale × (gradient or hessian); a sum comes back divided by its scale.
        """
        ...

    @property
    def groupings(self) -> Mapping[str, int]:
        """Ways to group rows by their outcome: name → number of groups."""
        ...

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """Sums over all rows that may be asked, by name."""
        ...

    @property
    def ready(self) -> bool:
        """Whether gradients can be asked: what they need from earlier answers is set."""
        ...

    def prepare(self, target: Target) -> Target:
        """The target inside its legal range, with whatever the maps below would compute again and again."""
        ...

    def group(self, by: str, target: Target) -> Codes:
        """(n,) group of each row."""
        ...

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        """(n,) arrays, one per scale; of each row together they have L2 norm at most 1."""
        ...

    def continues(self, earlier: Objective) -> bool:
        """Whether this may take the place of `earlier` as a public step: same kind, same grid."""
        ...


@runtime_checkable
class OnGrid(Protocol):
    """An objective with one score that is always a whole number of steps, so that what a row adds can be looked up.

    Shifts are rounded to the step, for every row alike; not every objective is one.
    """

    @property
    def step(self) -> float:
        """A power of two, so that a score in steps and as a float are the same number."""
        ...

    def add(
        self,
        cell: Codes,
        score: Steps,
        target: Target,
        factor: float,
        total: Index,
        shift: tuple[Codes, Steps] | None = None,
    ) -> None:
        """(scales, cells) total += Σ trunc(contribution·factor) in each cell, of the bits that `contributions` has.

        `score` (n,) in steps. `shift`: (codes, table) that scores make before, score += table[code].
        """
        ...


def in_steps(values: Floats, step: float) -> Steps:
    """Each as so many steps; longer than FARTHEST nobody goes at once, so that sums of thousands stay whole numbers."""
    return np.clip(np.rint(values / step), -FARTHEST, FARTHEST).astype(np.int32)


class PublicMap(Protocol):
    """A public map of a row to a vector, whose sum over persons may be asked (`questions.py: MapQuery`).

    It need not be bounded: the rows behind the gate shorten what is longer than 1, and count what is no number as 0.
    """

    @property
    def name(self) -> str:
        """For the reader of a ledger."""
        ...

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns it looks at."""
        ...

    @property
    def size(self) -> int:
        """Coordinates."""
        ...

    def values(self, codes: Codes, target: Target) -> Floats:
        """(n, columns) cells and the prepared outcome of n rows → (n, size).

        Each row by itself, also in floating point: its bits must not depend on its place among rows or on their number.
        """
        ...
