"""The gate in two halves: a site's, which gives its rows' sum with its own part of the noise, and the coordinator's.

Both enter the same event for the same question, at the same price (accounting.py). All checks of what may be asked are
those of the gate itself. A site's half stands before its rows; the coordinator's holds none, and gets noisy totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.errors import SettingsError
from distcondense.federated.accounting import Sharing
from distcondense.methods.private.plan import LOOK_GROUPS
from distcondense.privacy import noise
from distcondense.privacy.answering import BEHIND, BehindGate
from distcondense.privacy.budget import Budget
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Query, Unit
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import Question
from distcondense.privacy.rows import MARGIN, ExactAnswers


class SharedTable(PrivateTable):
    """A gate whose noise is made of parts of several sites."""

    __slots__ = ("sharing",)
    sharing: Sharing

    @classmethod
    def before(cls, behind: BehindGate, sharing: Sharing) -> Any:
        """A gate before what another one holds."""
        table = cls.__new__(cls)
        BEHIND[table], table.sharing = behind, sharing
        return table

    def _noised(self, exact: Index) -> Index:
        """What is released of the rows' integers."""
        raise NotImplementedError

    def _integers(
        self, question: Question, query: Query, cells: int, mu: float, columns: tuple[int, ...], by: str, unit: float
    ) -> tuple[Index, float]:
        """The answer in grid units, and the limit of one site."""
        sharing, rows = self.sharing, BEHIND[self].rows
        if cells > CELLS_MAX:
            raise SettingsError("question", f"must have at most {CELLS_MAX} cells", found=f"{cells}")
        limit = sharing.limit(mu)
        event = self._event(
            query, cells, sharing.cost(mu), columns=columns, by=by, sensitivity=unit * sharing.hospitals
        )
        noisy = self._ask(question, event, limit, self._noised, lambda: self._noised(rows.answer(question, limit)))
        return noisy, limit

    def _gaussian(
        self,
        question: Question,
        query: Query,
        cells: int,
        mu: float,
        *,
        columns: tuple[int, ...] = (),
        by: str = "",
        sensitivity: float = 1.0,
    ) -> Floats:
        noisy, limit = self._integers(question, query, cells, mu, columns, by, sensitivity)
        return np.asarray(noisy / (limit * MARGIN), np.float64)

    def _top(self, question: Question, count: int, named: tuple[str, ...], by: str = "") -> Index:
        raise SettingsError(
            "choice", "must be made of Gaussian answers: nobody holds exact scores of several sites", fix="histogram"
        )


class SiteTable(SharedTable):
    """One site's half: its integers with its own part of the noise, not to be shown to anybody without masks."""

    __slots__ = ("part",)
    part: Index  # of the last answer

    def _noised(self, exact: Index) -> Index:
        return noise.discrete_gaussian(exact, self.sharing.scale)

    def _integers(
        self, question: Question, query: Query, cells: int, mu: float, columns: tuple[int, ...], by: str, unit: float
    ) -> tuple[Index, float]:
        self.part, limit = super()._integers(question, query, cells, mu, columns, by, unit)
        return np.zeros_like(self.part), limit  # whoever asks through the gate's methods gets nothing


class PairRows(NamedTuple):
    """Noisy numbers of rows of a pair of columns, in few cells."""

    rows: Floats  # (few cells,)
    place: Index  # (cells of the first, cells of the second) the few cell that each is part of


def few_cells(rows: Floats) -> Index:
    """Neighbouring cells of a column in LOOK_GROUPS groups at most, of about as many rows: public, or noisy before."""
    if len(rows) <= LOOK_GROUPS:
        return np.arange(len(rows))
    share = np.maximum(rows, 0) / max(float(np.maximum(rows, 0).sum()), 1e-12)
    group = np.minimum(((np.cumsum(share) - share / 2) * LOOK_GROUPS).astype(np.int64), LOOK_GROUPS - 1)
    return np.asarray(np.unique(group, return_inverse=True)[1], np.int64)


class SummedTable(SharedTable):
    """The coordinator's half: rows are elsewhere, and what comes from there is noised.

    Pairs of columns are chosen by noisy tables of all candidates, which are asked when pairs are first compared.
    """

    __slots__ = ("choice_cost", "looks")
    choice_cost: float
    looks: dict[tuple[int, int], PairRows]

    @classmethod
    def over(
        cls,
        rows: SummedExact,
        sharing: Sharing,
        *,
        names: Sequence[str],
        budget: Budget,
        ledger: Ledger,
        unit: Unit,
        choice_cost: float,
    ) -> SummedTable:
        table: SummedTable = cls.before(BehindGate(rows, tuple(names), budget, ledger, unit, None), sharing)
        table.choice_cost, table.looks = choice_cost, {}
        return table

    def _noised(self, exact: Index) -> Index:
        return exact

    def _integers(
        self, question: Question, query: Query, cells: int, mu: float, columns: tuple[int, ...], by: str, unit: float
    ) -> tuple[Index, float]:
        rows = BEHIND[self].rows
        assert isinstance(rows, SummedExact)
        rows.next(question, mu)
        return super()._integers(question, query, cells, mu, columns, by, unit)

    def related(
        self, pairs: Sequence[tuple[int, int]], expected: Sequence[Floats], ahead: Sequence[float] | None = None
    ) -> int:
        """Which of these pairs differs most from what is expected of it, by noisy tables of all of them.

        They have few cells of each column: the fewer, the less noise in all. Σ |rows − expected| over n of them is
        taken for √(2n/π) times the root of Σ (noisy − expected)² − nσ².
        """
        among, worth = [self._columns(pair) for pair in pairs], []
        for (i, j), table in zip(among, expected, strict=True):
            if (i, j) not in self.looks:
                few = tuple(tuple(few_cells(np.sum(table, axis=axis)).tolist()) for axis in (1, 0))
                told = self.histogram((i, j), by="none", mu=self.choice_cost, merges=few)[0]
                self.looks[i, j] = PairRows(told, np.array(few[0])[:, None] * (max(few[1]) + 1) + np.array(few[1]))
            look = self.looks[i, j]
            apart = look.rows - np.bincount(look.place.ravel(), np.ravel(table), len(look.rows))
            square = float(apart @ apart) - apart.size / self.choice_cost**2
            worth.append(np.sign(square) * np.sqrt(2 / np.pi * apart.size * abs(square)))
        return int(np.argmax(np.array(worth) + (0.0 if ahead is None else np.asarray(ahead, np.float64))))


class SummedExact(ExactAnswers):
    """Totals from elsewhere."""

    def next(self, question: Question, mu: float) -> None:
        """This question comes now; its total may be kept already."""
        raise NotImplementedError
