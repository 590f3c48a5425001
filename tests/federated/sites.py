"""Sites in one process, or at folders, over a small table of each kind of outcome: what tests of the protocol share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.federated import parties
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import Agreement
from distcondense.federated.coordinator import SummedRows
from distcondense.federated.folder import SharedFolder, round_name
from distcondense.federated.messages import OwnKeys
from distcondense.federated.session import SiteSession, join_payload
from distcondense.federated.site import Site
from distcondense.federated.tables import SiteTable
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import ChargedRun

NAMES = ("east", "north", "west")  # of a region
OUTCOMES: dict[str, Column] = {
    "died": Column("died", "binary", categories=("no", "yes")),
    "stage": Column("stage", "categorical", categories=("i", "ii", "iii")),
    "cost": Column("cost", "continuous", 0, 100),
}


def patients(rows: int = 300, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, crp = rng.integers(20, 90, rows), np.round(rng.gamma(2, 20, rows).clip(0, 200), 1)
    score = 0.05 * (age - 55) + 0.02 * (crp - 40) + rng.normal(0, 0.5, rows)
    return pd.DataFrame(
        {
            "who": rng.integers(0, rows // 2, rows),
            "age": age,
            "crp": np.where(rng.random(rows) < 0.05, np.nan, crp),
            "ward": rng.choice(["a", "b", "c"], rows),
            "died": np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no"),
            "stage": np.array(["i", "ii", "iii"])[np.clip(np.round(score + 1), 0, 2).astype(int)],
            "cost": np.clip(np.round(50 + 10 * score), 0, 100),
            "followed": np.round(rng.exponential(20 * np.exp(-0.3 * score)).clip(0.1, 60), 1),
        }
    )


def described(target: str) -> tuple[Schema, dict[str, Any]]:
    """The schema, and what says how the table is read."""
    features = (
        Column("age", "integer", 20, 90),
        Column("crp", "continuous", 0, 200, missing="indicator"),
        Column("ward", "categorical", categories=("a", "b", "c")),
    )
    if target == "followed":
        columns = (*features, Column("followed", "continuous", 0, 60), OUTCOMES["died"])
        return Schema(columns), {"time": "followed", "event": "died"}
    return Schema((*features, OUTCOMES[target])), {"target": target}


class Hall:
    """All parties of a session in one process; the folders of each are under `folder`."""

    def __init__(
        self,
        folder: Path,
        tables: Sequence[pd.DataFrame],
        target: str = "died",
        *,
        colluding: int = 0,
        hospitals: int = 1,
        epsilon: float = 8.0,
        by_person: bool = True,
        schema: Schema | None = None,
        account: Callable[[str, Agreement], ChargedRun | None] = lambda name, agreement: None,
    ) -> None:
        self.folder, self.account = folder, account
        known, reading = described(target)
        schema = known if schema is None else schema
        reading |= {"person_id": "who"} if by_person else {}
        self.keys = OwnKeys.from_file(self._made(folder / "coordinator") / "keys.json")
        options = PrivateOptions(epsilon=epsilon, ipc=5, holdout=0.0, rows_per_person=20)
        sharing = Sharing(len(tables), colluding, hospitals)
        self.agreement = Agreement.propose(self.keys.public()["signing"], schema, reading, options, sharing)
        self.names = [f"site-{k}" for k in range(len(tables))]
        self.cohorts = dict(zip(self.names, (self.read(table) for table in tables), strict=True))
        self.site_keys = {name: OwnKeys.from_file(self._made(folder / name) / "keys.json") for name in self.names}
        joins = {
            name: keys.sealed("join", name, join_payload(self.agreement, keys)) for name, keys in self.site_keys.items()
        }
        self.session = SiteSession.of_joined(self.agreement, joins)
        self.sites: dict[str, Site] = {}
        self.ledgers: dict[str, Ledger] = {}

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def read(self, table: pd.DataFrame) -> Cohort:
        how = self.agreement.how
        own = [*how["schema"].names, *(["who"] if how.get("person_id") else [])]
        return Cohort.from_frame(table[own], **how)

    def open(self, name: str) -> Site:
        """A site as a new process would find it."""
        run = self.agreement.session
        ledger = Ledger(self.folder / name / "ledger.jsonl", run=run, account=self.account(name, self.agreement))
        gate = open_gate(self.cohorts[name], HoldoutSplit(0.0, 0), self.agreement.prepared, ledger)
        table = SiteTable.before(BEHIND[gate], self.agreement.sharing)
        self.ledgers[name] = ledger
        self.sites[name] = Site(name, self.session, self.site_keys[name], table, self.folder / name / "messages")
        return self.sites[name]

    def ask(self, number: int, message: bytes) -> Mapping[str, bytes]:
        """An exchange: every site answers."""
        return {name: (self.sites.get(name) or self.open(name)).answer(message) for name in self.names}

    def rows(self) -> SummedRows:
        """The coordinator's view of all rows."""
        return SummedRows(self.session, self.keys, self, self.folder / "coordinator" / "messages")


class Region:
    """Three hospitals, each with a file and a folder of its own, and a folder between them."""

    def __init__(self, folder: Path, rows: int = 600, schema: Schema | None = None, **options: Any) -> None:
        self.folder, self.shared, self.own = folder, folder / "shared", folder / "coordinator"
        os.environ["DISTCONDENSE_STATE"] = str(folder / "state")
        known, self.reading = described("died")
        self.schema = known if schema is None else schema
        self.frame = patients(rows)[[*self.schema.names]]
        settings = PrivateOptions(**{"epsilon": 8.0, "ipc": 5, "holdout": 0.2, **options})
        parties.init(self.shared, self.own, self.schema, self.reading, settings, Sharing(3, 1))

    def table(self, name: str, frame: pd.DataFrame | None = None) -> str:
        file = self.folder / f"{name}.csv"
        (self.frame.iloc[NAMES.index(name) :: 3] if frame is None else frame).to_csv(file, index=False)
        return str(file)

    def join(self, name: str, frame: pd.DataFrame | None = None) -> None:
        parties.join(self.shared, self.folder / name, self.table(name, frame), name)

    @property
    def fingerprint(self) -> str:
        return parties.set_of_sites(parties.Own(self.own), SharedFolder(self.shared)).fingerprint

    def run(self) -> Path:
        """All of it, each party in a thread."""
        keys, log = self.fingerprint, list[str]()
        with ThreadPoolExecutor(3) as pool:
            sites = [
                pool.submit(parties.round_, self.shared, self.folder / name, keys=keys, wait=True) for name in NAMES
            ]

            def alive() -> None:
                for site in sites:
                    if site.done():
                        site.result()

            parties.round_(self.shared, self.own, wait=True, on_wait=alive, log=log.append)
            parties.close(self.shared, self.own)
            for site in sites:
                assert site.result().startswith("closed; the release is")
        return self.own / "run"

    def steps(self, sites: Sequence[str] = NAMES) -> None:
        """All questions and answers, in one thread: whenever the coordinator waits, sites answer what is there."""
        keys = self.fingerprint
        with ExitStack() as stack:
            there = [
                stack.enter_context(
                    parties.open_site(
                        parties.Own(self.folder / name), SharedFolder(self.shared), keys, lambda line: None
                    )
                )
                for name in sites
            ]
            folder = SharedFolder(self.shared)

            def answered() -> None:
                for site in there:
                    question = round_name(site.rounds, "question")
                    if folder.has(*question):
                        number = site.rounds
                        folder.put(site.answer(folder.get(*question)), *round_name(number, site.name))

            parties.round_(self.shared, self.own, wait=True, on_wait=answered)
