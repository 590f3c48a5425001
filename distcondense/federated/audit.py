"""Attacks on a whole run of several sites, by its coordinator and a colluding site, with all that both of them know.

Every message of every round is real. The attackers have the total, the rows, the noise and the streams of the colluding
site, and everybody else's rows: the privacy loss of what is left of the totals is the statistic (evaluation/audit).
Of each honest site's message they also try to take off the masks; whatever reads like a site's integers then is a
broken build, with no need of statistics.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from distcondense.arrays import Index
from distcondense.data.schema import Column, Schema
from distcondense.evaluation.audit.findings import Auditor, AuditRequest, PendingFinding
from distcondense.evaluation.audit.neighbours import (
    ALONE,
    CAP,
    EARLY,
    FAR,
    MANY,
    OUTLIER,
    ROWS,
    SCHEMA,
    SEVERAL,
    UNSEEN,
    AuditSetting,
    GateObserver,
    NeighbourTable,
)
from distcondense.evaluation.audit.private import GUARANTEE, Checks, losses
from distcondense.federated import session as kinds
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import Agreement
from distcondense.federated.coordinator import SummedRows, summed_table
from distcondense.federated.masks import MODULUS, from_bytes, keystream, masked
from distcondense.federated.messages import OwnKeys, opened
from distcondense.federated.session import SiteSession, join_payload
from distcondense.federated.site import Site
from distcondense.federated.tables import SiteTable
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import Question

SITES = HONEST, OTHER, COLLUDING = ("site-0", "site-1", "site-2")
SHARING = Sharing(len(SITES), 1)
CASE = ((Column("case", "binary", categories=("no", "yes")),), {"target": "case"})
OUTCOMES: Mapping[str, tuple[tuple[Column, ...], dict[str, str]]] = {
    EARLY: ((Column("time", "continuous", 0, 5), *CASE[0]), {"time": "time", "event": "case"}),
    SEVERAL: ((Column("group", "categorical", categories=("A", "B", "C")),), {"target": "group"}),
    FAR: ((Column("value", "continuous", 0, 100),), {"target": "value"}),
}
MEMORY = Path("/dev/shm")  # where there is such a folder: messages under attack need no disk
GUESSES, FEW = 256, 2  # keys that are tried, of a build that seeds its masks with a byte, and on how many numbers


def attack(request: AuditRequest, on_run: Callable[[], None]) -> tuple[list[PendingFinding], tuple[str, ...]]:
    """All chosen pairs of neighbours, each in sessions of its own."""
    checks, pending = Checks(request.epsilon, request.delta), list[PendingFinding]()
    unmasked: dict[str, None] = {}
    with tempfile.TemporaryDirectory(prefix="distcondense-audit-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for name in request.neighbours:
            runs = AttackedSessions(name, request, Path(folder), unmasked)
            pending += losses(name, request, checks, on_run, runs.watched, runs.setting)
    return pending, (*checks.problems(), *unmasked)


AUDITOR = Auditor(GUARANTEE, (OUTLIER, UNSEEN, ALONE, MANY, EARLY, SEVERAL, FAR), lambda canaries: 0, attack)


class AttackedSessions:
    """Sessions of one agreement, each with new keys; `unmasked` gets the words for masks that came off."""

    def __init__(self, name: str, request: AuditRequest, folder: Path, unmasked: dict[str, None]) -> None:
        columns, reading = OUTCOMES.get(name, CASE)
        options = PrivateOptions(
            epsilon=request.epsilon,
            delta=request.delta,
            holdout=0.0,
            rows_per_person=CAP,
            horizon=5.0 if name == EARLY else None,
        )
        self.folder, self.unmasked, self.sessions = folder, unmasked, 0
        self.keys = self._keys("coordinator")
        schema = Schema((*SCHEMA.columns, *columns))
        public = self.keys.public()["signing"]
        self.agreement = Agreement.propose(public, schema, {**reading, "person_id": "who"}, options, SHARING)
        prepared = self.agreement.prepared
        self.setting = AuditSetting(prepared.cells, prepared.side, prepared.plan, prepared.budget)

    def _keys(self, name: str) -> OwnKeys:
        return OwnKeys.from_file(Path(tempfile.mkdtemp(dir=self.folder)) / f"{name}.json")

    def watched(
        self,
        world: NeighbourTable,
        worlds: tuple[NeighbourTable, NeighbourTable],
        setting: AuditSetting,
        ledger: Ledger,
    ) -> Attackers:
        """One session on `world`."""
        keys = {name: self._keys(name) for name in SITES}
        joins = {name: own.sealed(kinds.JOIN, name, join_payload(self.agreement, own)) for name, own in keys.items()}
        session = SiteSession.of_joined(self.agreement, joins)
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            sites = {
                name: Site(
                    name,
                    session,
                    keys[name],
                    SiteTable.before(BEHIND[setting.gate(_rows_of(world, name), Ledger())], SHARING),
                    Path(place) / name,
                )
                for name in SITES
            }
            honest = tuple(world.only(world.person % len(SITES) != SITES.index(COLLUDING)) for world in worlds)
            # keys are guessed in the first session only: it takes as long as the rest
            attackers = Attackers(honest, setting, sites, self.unmasked, 0 if self.sessions else GUESSES)  # type: ignore[arg-type]
            self.sessions += 1
            rows = SummedRows(session, self.keys, attackers, Path(place) / "coordinator")
            attackers.rows = rows
            table = summed_table(rows, ledger)
            BEHIND[table].observer = attackers
            fit_private(table, setting.cells, setting.plan, setting.side)
        return attackers


def _rows_of(world: NeighbourTable, name: str) -> NeighbourTable:
    return world.only(world.person % len(SITES) == SITES.index(name))


class Attackers(GateObserver):
    """The coordinator and the colluding site: `coordinator.Exchange`, and an observer of all totals."""

    rows: SummedRows

    def __init__(
        self,
        worlds: tuple[NeighbourTable, NeighbourTable],
        setting: AuditSetting,
        sites: Mapping[str, Site],
        unmasked: dict[str, None],
        guesses: int,
    ) -> None:
        super().__init__(worlds, setting)
        self.sites, self._unmasked, self._guesses = sites, unmasked, guesses
        self._before: dict[str, list[int]] = {}

    def ask(self, number: int, message: bytes) -> Mapping[str, bytes]:
        """Every site answers, and its masks are tried."""
        answers = {name: site.answer(message) for name, site in self.sites.items()}
        for name in (HONEST, OTHER):
            self._try(name, answers[name])
        return answers

    def answered(self, question: Question, event: Event, noisy: Index) -> None:
        """What the honest sites say together: the colluding one takes its part out of the total."""
        super().answered(question, event, noisy - self.sites[COLLUDING]._table.part)

    def unrecorded(self, ledger: Ledger) -> int:
        """Answers that left some site and are not in its ledger."""
        return sum(max(len(self.seen) - len(site._ledger.events), 0) for site in self.sites.values())

    def _try(self, name: str, message: bytes) -> None:
        """Take off what the colluding site knows, and look whether the rest still hides the site's integers."""
        session, question = self.rows.session, self.rows.transcript
        body = opened(message, kinds.ANSWER, name, session.members[name]["signing"]).partition(b"\n")[2]
        shared = keystream(self.sites[COLLUDING]._pairs[name], question, len(body) // 16)
        left = masked(from_bytes(body), COLLUDING, {name: shared})
        before, self._before[name] = self._before.get(name), left
        tried = [("left out", left)]
        if before is not None:
            again = [(now - then) % MODULUS for now, then in zip(left, before, strict=False)]
            tried.append(("those of the question before", again))
        else:
            other = OTHER if name == HONEST else HONEST
            for seed in range(self._guesses):
                stream = keystream(bytes([seed]), question, FEW)
                tried.append((f"made of one of {GUESSES} keys", masked(left[:FEW], other, {name: stream})))
        largest = SHARING.largest(ROWS)
        for words, values in tried:
            if all(min(value, MODULUS - value) <= largest for value in values):
                self._unmasked[f"MASKS: {words}: a site's own integers can be read off what it sends."] = None
