"""One cell: a run folder, made or finished by a plain function in whatever process it is called.

    OUT/cells/NAME/release    what may be handed over, under the guarantee its privacy.json states
    OUT/cells/NAME/internal   run.json, ledger, checkpoint; elsewhere.json: the tests at other sites
    OUT/internal              the study's own room: computed on patients, for the custodian
    OUT/internal/salt         what NAME is salted with

NAME is a readable part and a digest of (salt, what the cell is with the contents of its table). Without the salt it
tells nobody anything; unsalted, whoever knows all other rows could test for one.

A cell is finished when its run.json is there and every site it is to be tested on has been. Killed at any time, the
next call goes on where the run folder says: from the checkpoint, or from the answers in the ledger, never by asking
patients again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcondense.api import condense
from distcondense.data.cohort import Cohort
from distcondense.errors import DistcondenseWarning, RunFolderError, UserError
from distcondense.evaluate.home import Home
from distcondense.evaluate.quick import evaluate_elsewhere
from distcondense.evaluate.score import Score
from distcondense.runs.files import write_json, write_whole
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import TABLE
from distcondense.runs.result import read_back
from distcondense.study.design import Cell
from distcondense.study.entries import digest
from distcondense.study.rows import load
from distcondense.study.sources import Endpoint, Source

NOT_SHARED = "its machine has another folder at --out than this one: choose an --out that all machines share"
PATIENCE = 60.0  # seconds to wait for a process that is still at work on the cell: one of a study that was killed


@dataclass(frozen=True)
class Finished:
    """What a cell says about itself: how long its run took, and why it has failed where it has."""

    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class StudyFolder:
    """Where a study's cells and its own files are."""

    path: Path

    @property
    def internal(self) -> Path:
        return self.path / "internal"

    @property
    def cells(self) -> Path:
        return self.path / "cells"

    @property
    def definitions(self) -> Path:
        return self.internal / "definitions"

    @property
    def salt(self) -> str:
        """The secret of this folder's names; empty while there is none."""
        try:
            return (self.internal / "salt").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def make_salt(self) -> None:
        """Once, by whoever holds the study's lock; cells that were named with another one would be made again."""
        if self.salt:
            return
        if any(self.definitions.glob("*.json")):
            raise RunFolderError(
                f"study folder {self.path.name}", "must have the salt that its cells are named with",
                found="cells, but no salt",
                fix="restore internal/salt from a backup, or choose another --out: what its cells spent adds up",
            )  # fmt: skip
        fresh = secrets.token_hex(32)
        write_whole(self.internal / "salt", lambda draft: draft.write_text(fresh, encoding="utf-8"), mode=0o600)

    def name(self, cell: Cell) -> str:
        """Of the cell's folder: stable, another for another definition; its readable part while there is no salt."""
        return f"{cell.name}-{digest([self.salt, cell.identity()])[:10]}" if self.salt else cell.name

    def definition(self, cell: Cell) -> Path:
        """What this cell is, written before it runs."""
        return self.definitions / f"{self.name(cell)}.json"

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.cells / self.name(cell))

    def elsewhere(self, cell: Cell) -> dict[str, Any]:
        """The tests at other sites that are done: site → its identity, the scores, and why there are none."""
        return read_json(self.run(cell).internal / "elsewhere.json")

    def finished(self, cell: Cell) -> bool:
        return self.run(cell).finished and not _sites_to_do(cell, self.elsewhere(cell))

    def seconds(self, cell: Cell) -> float:
        record = read_json(self.run(cell).internal / "run.json")
        return float(record.get("timings_seconds", {}).get("total") or 0.0)

    @contextlib.contextmanager
    def lock(self, name: str, patience: float, rule: str, fix: str) -> Iterator[None]:
        """One process at a time; the system releases it when the process ends, however it ends."""
        path = self.internal / "locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + patience
        with open(path, "ab") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= until:
                        raise RunFolderError(name, rule, found="another process at work on it", fix=fix) from None
                    time.sleep(0.1)
            yield


def run_cell(cell: Cell, out: Path, threads: int) -> Finished:
    """Make the cell or go on with it. A failure is an answer, in words without a patient's value, not an exception."""
    folder = StudyFolder(out)
    if not folder.definition(cell).exists():  # before a patient is read: a ledger left elsewhere would be lost
        return Finished(reason=NOT_SHARED)
    try:
        with (
            warnings.catch_warnings(),
            folder.lock(
                folder.name(cell), PATIENCE, "must be made by one process", "start the study again when it has ended"
            ),
        ):
            warnings.simplefilter("ignore", DistcondenseWarning)  # they are in the cell's run.json
            _make(cell, folder, threads)
        return Finished(folder.seconds(cell))
    except UserError as error:
        return Finished(reason=str(error))
    except MemoryError:
        return Finished(reason="out of memory: give the study a larger memory_gb, or a machine with more")
    except Exception as error:  # a library's message may quote a cell of the table: say its type and the place only
        return Finished(reason=f"{type(error).__name__} in {_place(error)}")


def _make(cell: Cell, folder: StudyFolder, threads: int) -> None:
    run = folder.run(cell)
    cohort = None
    if not run.finished:
        run.clear_unsigned()
        cohort = load(cell.source, cell.endpoint)
        condense(
            cohort, method=cell.made_by, threads=threads, out=run.path, resume=True, odometer=cell.odometer,
            **cell.options,
        )  # fmt: skip
    done = folder.elsewhere(cell)
    to_do = _sites_to_do(cell, done)
    if to_do:
        cohort = load(cell.source, cell.endpoint) if cohort is None else cohort
        sites = {source.name: load(source, endpoint, apart_from=cell.source) for source, endpoint in to_do}
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in sites}
        known: list[Score] = []
        for ipc in cell.ipcs:
            home = home_of(run, cohort, ipc if len(cell.ipcs) > 1 else None)
            tests = evaluate_elsewhere(home, sites, seed=cell.seed, threads=threads, known=known)
            known = [score for scores, _ in tests.values() for score in scores]
            for name, (scores, note) in tests.items():
                found[name].append({"ipc": ipc, "scores": [s.to_dict() for s in scores], "scores_note": note})
        for source, endpoint in to_do:
            sets = found[source.name]
            done[source.name] = {
                "site": _identity(source, endpoint), **({"sets": sets} if len(sets) > 1 else sets[0])
            }  # fmt: skip
        write_json(run.internal / "elsewhere.json", done)


def _place(error: BaseException) -> str:
    """Where it was raised: file and line, no values."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "distcondense" in Path(f.filename).parts] or frames
    return f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}"


# -- other sites ------------------------------------------------------------------------------------------------------


def _identity(source: Source, endpoint: Endpoint) -> str:
    return digest([source.identity(), endpoint.identity()])


def _sites_to_do(cell: Cell, done: dict[str, Any]) -> list[tuple[Source, Endpoint]]:
    return [(s, e) for s, e in cell.test_on if done.get(s.name, {}).get("site") != _identity(s, e)]


def home_of(run: RunFolder, cohort: Cohort, ipc: int | None = None) -> Home:
    """What a finished run condensed, from its release and its record: nobody condenses again for one more test.

    ipc: which of its sets, where it has several.
    """
    table = TABLE if ipc is None else f"{TABLE}-{ipc}"
    return Home.of_result(cohort, read_back(run, cohort.outcome.kind)[table])


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of ours; nothing where there is none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
