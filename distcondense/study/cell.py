"""One cell: a run folder, made or finished by a plain function in whatever process it is called.

A cell is finished when its run.json is there, every site it is to be tested on has been, and every part of the
evaluation that the study asks for is measured. Killed at any time, the next call goes on where the run folder says:
from the checkpoint, or from the answers in the ledger, never by asking patients again.
"""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from distcondense.api import condense
from distcondense.data.cohort import Cohort
from distcondense.errors import DistcondenseWarning, UserError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import Score
from distcondense.runs.files import write_json
from distcondense.runs.folder import RunFolder
from distcondense.runs.memory import MemoryPeak
from distcondense.runs.reading import read_back
from distcondense.runs.release import TABLE, table_names
from distcondense.study.design import Cell, load_modules
from distcondense.study.folder import StudyFolder, site_identity
from distcondense.study.measure import Yardstick, at_sites, measured_parts, yardstick
from distcondense.study.rows import load
from distcondense.study.sources import Endpoint, Source

NOT_SHARED = "its machine has another folder at --out than this one: choose an --out that all machines share"
PATIENCE = 60.0  # seconds to wait for a process that is still at work on the cell: one of a study that was killed


@dataclass(frozen=True)
class CellOutcome:
    """What a cell says about itself: how long its run took, and why it has failed where it has."""

    seconds: float = 0.0
    reason: str = ""


def run_cell(cell: Cell, out: Path, threads: int) -> CellOutcome:
    """Make the cell or go on with it, in whatever process.

    Parameters
    ----------
    cell : Cell
        What is to be made.
    out : Path
        The study's folder, which all machines share.
    threads : int
        Of the run.

    Returns
    -------
    CellOutcome
        How long it took. A failure is an answer, in words without a patient's value, not an exception.
    """
    folder = StudyFolder(out)
    try:
        load_modules(cell.modules)
        if not folder.definition(cell).exists():  # before a patient is read: a ledger left elsewhere would be lost
            return CellOutcome(reason=NOT_SHARED)
        with (
            warnings.catch_warnings(),
            folder.lock(
                folder.name(cell), PATIENCE, "must be made by one process", "start the study again when it has ended"
            ),
        ):
            warnings.simplefilter("ignore", DistcondenseWarning)  # they are in the cell's run.json
            _CellRun(cell, folder, threads).finish()
        return CellOutcome(folder.seconds(cell))
    except UserError as error:
        return CellOutcome(reason=str(error))
    except MemoryError:
        return CellOutcome(reason="out of memory: give the study a larger memory_gb, or a machine with more")
    except Exception as error:  # a library's message may quote a cell of the table: say its type and the place only
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "distcondense" in Path(frame.filename).parts] or frames
        place = f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}"
        return CellOutcome(reason=f"{type(error).__name__} in {place}")


@dataclass(frozen=True)
class _CellRun:
    """A cell at work. Its table is read once, if anything is to be done that needs it."""

    cell: Cell
    folder: StudyFolder
    threads: int

    @cached_property
    def cohort(self) -> Cohort:
        return read_once(self.cell.source, self.cell.endpoint)

    @cached_property
    def sites(self) -> dict[str, Cohort]:
        return {s.name: load(s, e, apart_from=self.cell.source) for s, e in self.cell.test_on}

    @cached_property
    def yardstick(self) -> Yardstick:
        return yardstick(self.cell, self.folder, self.cohort, self.sites, self.threads)

    def finish(self) -> None:
        run = self.folder.run(self.cell)
        if not run.finished:
            run.clear_unsigned()
            self._condense(run)
        if self.folder.sites_to_do(self.cell):
            self._test_elsewhere(run)
        for ipc, parts in self.folder.parts_to_do(self.cell).items():
            self._measure(run, ipc, parts)

    def _condense(self, run: RunFolder) -> None:
        cell, known = self.cell, self.yardstick.home
        memory = MemoryPeak()
        condense(
            self.cohort,
            method=cell.made_by,
            threads=self.threads,
            out=run.path,
            resume=True,
            account=cell.account,
            held_out=cell.held_out,
            known=known,
            **cell.options,
        )
        write_json(run.internal / "cost.json", {"peak_memory_bytes": memory.peak})

    def _test_elsewhere(self, run: RunFolder) -> None:
        cell = self.cell
        sets: dict[str, list[dict[str, Any]]] = {name: [] for name in self.sites}
        known: list[Score] = list(self.yardstick.elsewhere)
        for ipc in cell.ipcs:
            tests = at_sites(self._input(run, ipc), self.sites, cell, threads=self.threads, known=known)
            known = [score for scores, _ in tests.values() for score in scores]
            for name, (scores, note) in tests.items():
                sets[name].append({"ipc": ipc, "scores": [s.to_dict() for s in scores], "scores_note": note})
        done = {
            source.name: {"site": site_identity(source, endpoint), "sets": sets[source.name]}
            for source, endpoint in cell.test_on
        }
        write_json(run.internal / "elsewhere.json", done)

    def _measure(self, run: RunFolder, ipc: int, parts: list[str]) -> None:
        """Written part by part: what is measured stays measured, whatever comes next."""
        record = run.record()
        first = next(one["scores"] for one in record.get("sets", [record]) if one["ipc"] == ipc)
        known, inputs = [Score.from_dict(score) for score in first], self._input(run, ipc)
        for part, scores in measured_parts(inputs, parts, seed=self.cell.seed, threads=self.threads, known=known):
            done = self.folder.parts(self.cell)
            done.setdefault(str(ipc), {})[part] = scores
            write_json(run.internal / "parts.json", done)

    def _input(self, run: RunFolder, ipc: int) -> EvaluationInput:
        return evaluation_input(run, self.cohort, table_names(self.cell.ipcs)[ipc])


_LAST: dict[str, Cohort] = {}  # the table that this process read last: cells of one table follow each other


def read_once(source: Source, endpoint: Endpoint) -> Cohort:
    """A cell's table; not read again where it is the last one's, contents and all."""
    key = site_identity(source, endpoint)
    if key not in _LAST:
        _LAST.clear()  # before the next is read: one is in memory at a time
        _LAST[key] = load(source, endpoint)
    return _LAST[key]


def evaluation_input(run: RunFolder, cohort: Cohort, table: str = TABLE) -> EvaluationInput:
    """What a finished run condensed, from its release and its record: nobody condenses again for one more test."""
    return EvaluationInput.from_result(cohort, read_back(run, cohort.outcome.kind)[table])
