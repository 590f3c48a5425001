"""`StudyFolder`: where a study's cells and its own files are, and what they are called.

    OUT/cells/NAME/release    what may be handed over, under the guarantee its privacy.json states
    OUT/cells/NAME/internal   run.json, ledger, checkpoint; elsewhere.json, parts.json, cost.json: measured by the study
    OUT/internal              the study's own: computed on patients, for the custodian
    OUT/internal/salt         what NAME is salted with
    OUT/internal/failed       why cells failed when they were last tried

NAME is a readable part and a digest of (salt, what the cell is with the contents of its table). Without the salt it
tells nobody anything; unsalted, whoever knows all other rows could test for one.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError
from distcondense.outside import parse_json
from distcondense.runs.files import write_json, write_whole
from distcondense.runs.folder import RunFolder
from distcondense.study.design import Cell
from distcondense.study.sources import Endpoint, Source
from distcondense.study.toml_table import digest


class StudyFolder:
    """A study's folder: where its cells and its own files are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.internal = path / "internal"
        self.cells = path / "cells"
        self.definitions = self.internal / "definitions"
        self.progress_file = self.internal / "study.json"  # how it stands with every cell, as of now
        self._salt = ""  # once it is there, it stays

    @property
    def salt(self) -> str:
        """The secret of this folder's names; empty while there is none."""
        if not self._salt:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._salt = (self.internal / "salt").read_text(encoding="utf-8").strip()
        return self._salt

    def make_salt(self) -> None:
        """Once, by whoever holds the study's lock; cells that were named with another one would be made again."""
        if self.salt:
            return
        if any(self.definitions.glob("*.json")):
            raise RunFolderError(
                f"study folder {self.path.name}",
                "must have the salt that its cells are named with",
                found="cells, but no salt",
                fix="restore internal/salt from a backup, or choose another --out: what its cells spent adds up",
            )
        fresh = secrets.token_hex(32)
        write_whole(self.internal / "salt", lambda draft: draft.write_text(fresh, encoding="utf-8"), mode=0o600)

    def name(self, cell: Cell) -> str:
        """Of the cell's folder: stable, another for another definition; its readable part while there is no salt."""
        return f"{cell.name}-{digest([self.salt, cell.identity])[:10]}" if self.salt else cell.name

    def definition(self, cell: Cell) -> Path:
        """What this cell is, written before it runs."""
        return self.definitions / f"{self.name(cell)}.json"

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.cells / self.name(cell))

    def failure(self, cell: Cell) -> str:
        """Why the cell failed when it was last tried, in this run of the study or in one before; "" if it did not."""
        return "" if self.finished(cell) else str(read_json(self._failed(cell)).get("reason", ""))

    def note_failure(self, cell: Cell, reason: str) -> None:
        """Kept until the cell is finished: a report of a part of the grid tells of the others' failures, too."""
        self._failed(cell).parent.mkdir(exist_ok=True)
        write_json(self._failed(cell), {"reason": reason})

    def _failed(self, cell: Cell) -> Path:
        return self.internal / "failed" / f"{self.name(cell)}.json"

    def yardstick(self, cell: Cell) -> Path:
        """Models of real rows, which cells of one table, outcome, student and seed share."""
        sites = [site_identity(source, endpoint) for source, endpoint in cell.test_on]
        what = [self.salt, "real", site_identity(cell.source, cell.endpoint), cell.reference, cell.seed, cell.test]
        return self.internal / "real" / f"{digest([*what, sites, cell.students])[:20]}.json"

    def elsewhere(self, cell: Cell) -> dict[str, Any]:
        """The tests at other sites that are done: site → its identity, the scores, and why there are none."""
        return read_json(self.run(cell).internal / "elsewhere.json")

    def parts(self, cell: Cell) -> dict[str, dict[str, Any]]:
        """The parts of the evaluation that are done: IPC → part → its scores and notes."""
        return read_json(self.run(cell).internal / "parts.json")

    def finished(self, cell: Cell) -> bool:
        """Its run is, every site has been tested on, and every part measured."""
        return self.run(cell).finished and not self.sites_to_do(cell) and not self.parts_to_do(cell)

    def sites_to_do(self, cell: Cell) -> list[tuple[Source, Endpoint]]:
        if not cell.test_on:
            return []
        done = self.elsewhere(cell)
        return [(s, e) for s, e in cell.test_on if done.get(s.name, {}).get("site") != site_identity(s, e)]

    def parts_to_do(self, cell: Cell) -> dict[int, list[str]]:
        """IPC → parts that are asked for and not there."""
        if not cell.parts:
            return {}
        done = self.parts(cell)
        left = {ipc: [part for part in cell.parts if part not in done.get(str(ipc), {})] for ipc in cell.ipcs}
        return {ipc: names for ipc, names in left.items() if names}

    def seconds(self, cell: Cell) -> float:
        record = read_json(self.run(cell).internal / "run.json")
        return float(record.get("timings_seconds", {}).get("total") or 0.0)

    def peak(self, cell: Cell) -> float | None:
        """Bytes that the cell's process held at most while it made the cell; None where nobody looked."""
        peak = read_json(self.run(cell).internal / "cost.json").get("peak_memory_bytes")
        return None if peak is None else float(peak)

    @contextlib.contextmanager
    def lock(self, name: str, patience: float, rule: str, fix: str) -> Iterator[None]:
        """One process at a time; the system releases it when the process ends, however it ends."""
        path = self._lock(name)
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

    def locked(self, name: str) -> bool:
        """Whether a process of this machine (or of one that shares the folder's locks) is at work; nothing is made."""
        try:
            with open(self._lock(name), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def _lock(self, name: str) -> Path:
        return self.internal / "locks" / f"{name}.lock"


def site_identity(source: Source, endpoint: Endpoint) -> str:
    return digest([source.identity, endpoint.identity()])


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of ours; nothing where there is none."""
    try:
        return dict(parse_json(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError):
        raise RunFolderError(
            f"file {path.name}",
            "must be as the study wrote it",
            found="a damaged file",
            fix="restore it from a backup, or remove the cell's folder (its cost adds up)",
        ) from None
