"""The gate in two halves: a site's, which gives its rows' sum with its own part of the noise, and the coordinator's.

Both enter the same event for the same question, at the same price (accounting.py). All checks of what may be asked are
those of the gate itself. A site's half stands before its rows; the coordinator's holds none, and gets noisy totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.errors import SettingsError
from distcondense.federated.accounting import Sharing
from distcondense.methods.private.plan import LOOK_GROUPS
from distcondense.privacy import noise
from distcondense.privacy.answering import BEHIND, BehindGate
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event, Query, Unit
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import ColumnChoice, Question
from distcondense.privacy.rows import ExactAnswers


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

    def _limit(self, mu: float) -> float:
        """Of one site: at all that a person may be at, that is their price."""
        return self.sharing.limit(mu)

    def _event(
        self,
        query: Query,
        cells: int,
        mu: float,
        *,
        columns: tuple[int, ...] = (),
        by: str = "",
        sensitivity: float = 1.0,
        delta: float = 0.0,
    ) -> Event:
        sharing, said = self.sharing, {"columns": columns, "by": by, "delta": delta}
        return super()._event(query, cells, sharing.cost(mu), sensitivity=sensitivity * sharing.hospitals, **said)  # type: ignore[arg-type]

    def column_sums(self, columns: Sequence[int], widths: Sequence[int], *, mu: float) -> list[Floats]:
        """Noisy gradient sums of each of these columns, in cells of so many neighbouring bins, all for one price.

        Sensitivity Δ = 1 for all of them together: of each of d columns a person moves the sums by 1/√d at most.
        """
        among = self._columns(tuple(columns))
        if len(widths) != len(among) or not among or min(widths) < 1:
            raise SettingsError("widths", f"must hold {len(among)} numbers of 1 or more", found=f"{len(widths)}")
        self._check_ready()
        scores = self.objective.scores
        sizes = [scores * -(-self.sizes[j] // width) for j, width in zip(among, widths, strict=True)]
        question = ColumnChoice(0, among, tuple(int(width) for width in widths))
        answer = self._gaussian(question, "sums", sum(sizes), mu, by="columns")
        return np.split(answer * math.sqrt(len(among)), np.cumsum(sizes)[:-1])

    def _top(self, question: Question, count: int, named: tuple[str, ...], by: str = "") -> Index:
        raise SettingsError(
            "choice", "must be made of Gaussian answers: nobody holds exact scores of several sites", fix="histogram"
        )


class SiteTable(SharedTable):
    """One site's half: its integers with its own part of the noise, not to be shown to anybody without masks."""

    __slots__ = ("part", "replaying")
    part: Index  # of the last answer
    replaying: bool  # what is asked was answered before a kill: it is in the ledger, and nothing is drawn

    @classmethod
    def before(cls, behind: BehindGate, sharing: Sharing) -> Any:
        table = super().before(behind, sharing)
        table.replaying = False
        return table

    def _noised(self, exact: Index) -> Index:
        return noise.discrete_gaussian(exact, self.sharing.scale)

    def _ask(
        self,
        question: Question,
        event: Event,
        limit: float,
        noised: Callable[[Index], Index],
        lost: Callable[[], Index],
    ) -> Index:
        """Enter, compute, noise, and keep it in `part`: no file has it, and who asks through the gate gets zeros.

        An event that a kill left in the ledger without its answer is answered now; the site sees to it that none left.
        """
        behind, ledger = BEHIND[self], self.ledger
        with behind.lock, ledger.lock:
            if ledger.resume(event) is None:
                self._afford(event)
                ledger.enter(event)
            if not self.replaying:
                self.part = noised(behind.rows.answer(question, limit))
        return np.zeros(event.cells, np.int64)


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


def stands_out(sums: Floats, variance: float, rivals: int) -> float:
    """By how much Σ (noisy sums)² is above what the luckiest of so many columns would have of noise alone.

    Of c sums it is c·variance, give or take √(2c)·variance, and the luckiest has √(2·log rivals) of that more. The
    (S, cells) sums are looked at as they are and with neighbours joined, (a + b)/√2, again and again: what changes
    slowly loses nothing by it, and has less noise in it. The best of these looks counts.
    """
    luck, best = math.sqrt(2 * math.log(max(rivals, 2))), -math.inf
    while True:
        best = max(best, float((sums**2).sum()) - variance * (sums.size + luck * math.sqrt(2 * sums.size)))
        if sums.shape[1] <= 2:
            return best
        even = np.pad(sums, ((0, 0), (0, sums.shape[1] % 2)))
        sums = (even[:, ::2] + even[:, 1::2]) / math.sqrt(2)


class SummedTable(SharedTable):
    """The coordinator's half: rows are elsewhere, and what comes from there is noised.

    Columns are chosen by noisy sums of all of them at once, pairs of columns by noisy tables of all candidates, which
    are asked when pairs are first compared.
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

    def _gaussian(self, question: Question, query: Query, cells: int, mu: float, **said: Any) -> Floats:
        rows = BEHIND[self].rows
        assert isinstance(rows, SummedExact)
        rows.next(question, mu)
        return super()._gaussian(question, query, cells, mu, **said)

    def _ask(
        self,
        question: Question,
        event: Event,
        limit: float,
        noised: Callable[[Index], Index],
        lost: Callable[[], Index],
    ) -> Index:
        """One that a kill took is asked again: sites send what they have stored."""
        return super()._ask(question, event, limit, noised, lambda: BEHIND[self].rows.answer(question, limit))

    def choose(self, count: int, columns: Sequence[int] | None = None, *, coarse: Sequence[int] | None = None) -> Index:
        """The columns whose noisy gradient sums stand out most."""
        among = tuple(range(len(self.names))) if columns is None else tuple(columns)
        told = self.column_sums(among, (1,) * len(among) if coarse is None else coarse, mu=self.choice_cost)
        variance, scores = len(among) / self.choice_cost**2, self.objective.scores
        worth = [stands_out(sums.reshape(scores, -1), variance, len(among)) for sums in told]
        return np.array(among, np.int64)[np.argsort(np.negative(worth), kind="stable")[:count]]

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

    def answer(self, question: Question, limit: float) -> Index:
        """What sites answer is the answer already."""
        return self.counted(question, limit).values

    def next(self, question: Question, mu: float) -> None:
        """This question comes now; its total may be kept already."""
        raise NotImplementedError
