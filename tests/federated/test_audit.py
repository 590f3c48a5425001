"""A run of several sites, audited: what the coordinator and a colluding site see tells no more than is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from distcondense.arrays import Floats
from distcondense.data.persons import HoldoutSplit
from distcondense.federated.tables import SiteTable
from distcondense.methods.private.condense import open_gate
from distcondense.privacy.accountant import totals
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import HistogramQuery
from tests.federated.sites import Hall, patients

TRIALS, COLUMNS, MU = 3000, (0, 1, 2), 0.4
ODDS = 1e-6  # that a bound is wrong


class Audited:
    """Four sites of which one colludes; the victim has a row at two of the others."""

    def __init__(self, folder: Path) -> None:
        frame = patients(30, 5)
        self.hall = Hall(folder, [frame] * 4, colluding=1, hospitals=2, by_person=False)
        self.there = [self.table(frame), self.table(frame), self.table(frame)]
        self.gone = [self.table(frame.iloc[1:]), self.table(frame.iloc[1:]), self.table(frame)]
        apart = [self.exact(self.there[0], j) - self.exact(self.gone[0], j) for j in COLUMNS]
        self.cells = [int(np.argmax(np.abs(one))) for one in apart]

    def table(self, frame: Any) -> SiteTable:
        prepared = self.hall.agreement.prepared
        gate = open_gate(self.hall.read(frame), HoldoutSplit(0.0, 0), prepared, Ledger())
        made: SiteTable = SiteTable.before(BEHIND[gate], prepared.sharing)
        return made

    def exact(self, table: SiteTable, column: int) -> Any:
        return BEHIND[table].rows.answer(HistogramQuery((column,), "none"), self.hall.agreement.sharing.limit(MU))

    def views(self, tables: list[SiteTable], silent: int) -> Floats:
        """(TRIALS,) the best statistic of what the colluding ones leave of the totals; `silent` sites add no noise."""
        found = np.zeros(TRIALS)
        for number, table in enumerate(tables):
            for column, cell in zip(COLUMNS, self.cells, strict=True):
                exact = np.full(TRIALS, self.exact(table, column)[cell])
                found += exact if number < silent else table._noised(exact)  # as a site answers, so many times
        return found

    @property
    def charged(self) -> float:
        """μ in the ledger of a site, for all questions."""
        if not self.there[0].ledger.events:
            for column in COLUMNS:
                self.there[0].histogram((column,), by="none", mu=MU)
        return totals(self.there[0].ledger.events).mu

    def least(self, silent: int = 0) -> float:
        """A lower bound of μ by experiment."""
        one, other = self.views(self.there, silent), self.views(self.gone, silent)
        spread = np.sqrt((np.var(one, ddof=1) + np.var(other, ddof=1)) / 2)
        apart = abs(np.mean(one) - np.mean(other)) / spread
        error = np.sqrt(2 / TRIALS + apart**2 / (4 * TRIALS))
        return float(apart - stats.norm.isf(ODDS) * error)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    return Audited(tmp_path_factory.mktemp("audited"))


def test_a_run_tells_a_coordinator_and_a_colluding_site_no_more_than_is_charged(audited: Audited) -> None:
    least = audited.least()
    assert 0.5 * audited.charged < least <= audited.charged


def test_sites_that_forget_their_noise_are_caught_by_the_audit(audited: Audited) -> None:
    assert audited.least(silent=2) > audited.charged
