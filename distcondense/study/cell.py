"""One cell: a run folder, made or finished by a plain function in whatever process it is called.

    OUT/cells/NAME/release    what may be handed over, under the guarantee its privacy.json states
    OUT/cells/NAME/internal   run.json, ledger, checkpoint; elsewhere.json: the tests at other sites
    OUT/internal              the study's own room: computed on patients, for the custodian

A cell is finished when its run.json is there and every site it is to be tested on has been. Killed at any time, the
next call goes on where the run folder says: from the checkpoint, or from the answers in the ledger, never by asking
patients again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.api import condense
from distcondense.data import datasets
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Outcome, check_features, positive_as_read, read_csv_cells
from distcondense.data.schema import Column, Schema, plain_value
from distcondense.data.tables import is_csv, read_table
from distcondense.errors import CohortError, DistcondenseWarning, RunFolderError, UserError
from distcondense.evaluate.elsewhere import Home, evaluate_elsewhere
from distcondense.models.learners import learner, time_scale
from distcondense.runs.folder import RunFolder, write_json
from distcondense.runs.result import RISK, WEIGHT
from distcondense.study.design import Cell, Goal, Source, digest

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

    def definition(self, cell: Cell) -> Path:
        """What this cell is, written before it runs."""
        return self.internal / "definitions" / f"{cell.name}.json"

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.cells / cell.name)

    def elsewhere(self, cell: Cell) -> dict[str, Any]:
        """The tests at other sites that are done: site → its identity and the metrics."""
        return _read(self.run(cell).internal / "elsewhere.json")

    def finished(self, cell: Cell) -> bool:
        return self.run(cell).finished and not _sites_to_do(cell, self.elsewhere(cell))

    def seconds(self, cell: Cell) -> float:
        record = _read(self.run(cell).internal / "run.json")
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
            folder.lock(cell.name, PATIENCE, "must be made by one process", "start the study again when it has ended"),
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
        _clear_stillborn(run)
        cohort = load(cell.source, cell.goal)
        condense(
            cohort, mechanism=cell.mechanism, reference=cell.reference, ipc=cell.ipc, epsilon=cell.epsilon,
            seed=cell.seed, threads=threads, out=run.path, resume=True, **cell.settings,
        )  # fmt: skip
    done = folder.elsewhere(cell)
    to_do = _sites_to_do(cell, done)
    if to_do:
        home = _home(cell, run, load(cell.source, cell.goal) if cohort is None else cohort)
        sites = {source.name: load(source, goal, apart_from=cell.source) for source, goal in to_do}
        found = evaluate_elsewhere(home, sites, seed=cell.seed, threads=threads)
        new = {source.name: {"site": _identity(source, goal), "metrics": found[source.name]} for source, goal in to_do}
        write_json(run.internal / "elsewhere.json", {**done, **new})


def _clear_stillborn(run: RunFolder) -> None:
    """Killed between making the folder and signing it, a run leaves nothing but empty rooms: not a run, not foreign."""
    if run.path.is_dir() and not (run.internal / "owner.json").exists():
        files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if not p.is_dir()}
        if files <= {"internal/owner.json.draft"}:
            shutil.rmtree(run.path)


def _place(error: BaseException) -> str:
    """Where it was raised: file and line, no values."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "distcondense" in Path(f.filename).parts] or frames
    return f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}"


# -- tables -----------------------------------------------------------------------------------------------------------


def load(source: Source, goal: Goal, *, apart_from: Source | None = None) -> Cohort:
    """The cohort of a source; where two sources share a file, without the persons of the other one."""
    if source.simulated is not None:
        made = datasets.load(source.simulated, **source.options)
        return Cohort.from_frame(made.frame, owned=True, **made.how)
    frame = _rows(source, goal)
    person = source.person_id
    if person is not None and apart_from is not None and apart_from.path == source.path:
        frame = frame[~frame[person].isin(_rows(apart_from, goal)[person])].reset_index(drop=True)
    positive, label = goal.positive, goal.event if goal.target is None else goal.target
    assert source.path is not None
    if is_csv(source.path):
        positive = positive_as_read(positive, source.schema, label)
    aside = [source.rename.get(name, name) for name in source.where]
    return Cohort.from_frame(
        frame, target=goal.target, time=goal.time, event=goal.event, positive=positive, person_id=person,
        schema=None if source.schema is None else source.schema.without(aside), ignore=(*goal.ignore, *aside),
        owned=True,
    )  # fmt: skip


def _rows(source: Source, goal: Goal) -> pd.DataFrame:
    """The rows asked for, under the schema's names."""
    assert source.path is not None
    in_file = {new: old for old, new in source.rename.items()}

    def old(name: str | None) -> str | None:
        return None if name is None else in_file.get(name, name)

    if is_csv(source.path):
        schema = source.schema
        if schema is not None:
            columns = [Column(**{**vars(column), "name": old(column.name)}) for column in schema.columns]
            schema = Schema(tuple(columns), schema.origin)
        frame = read_csv_cells(
            source.path, schema, label=old(goal.event if goal.target is None else goal.target), time=old(goal.time),
            person_id=old(source.person_id), ignore=[str(old(name)) for name in goal.ignore],
            missing_markers=source.missing_markers,
        )  # fmt: skip
    else:
        frame = read_table(source.path, missing_markers=source.missing_markers)
    for column, value in source.where.items():
        frame = frame[frame[column].map(lambda v: str(plain_value(v))) == str(plain_value(value))]
        if frame.empty:
            raise CohortError(f"data {source.name!r}", f"must have rows where {column!r} is as asked", found="none",
                              fix="check where = {…} in the study file")  # fmt: skip
    return frame.rename(columns=source.rename).reset_index(drop=True)


# -- other sites ------------------------------------------------------------------------------------------------------


def _identity(source: Source, goal: Goal) -> str:
    return digest([source.identity(), vars(goal)])


def _sites_to_do(cell: Cell, done: dict[str, Any]) -> list[tuple[Source, Goal]]:
    return [(s, g) for s, g in cell.test_on if done.get(s.name, {}).get("site") != _identity(s, g)]


def _home(cell: Cell, run: RunFolder, cohort: Cohort) -> Home:
    """What was condensed here, from its release, and the parts the run split its table into."""
    settings = _read(run.internal / "run.json")["settings"]
    frame = pd.read_parquet(run.release / "condensed.parquet")
    schema = Schema.from_toml(run.release / "schema.toml")
    names = cohort.outcome.names
    label = (frame[names[-1]].map(str) == str(cohort.outcome.labels[1])).to_numpy().astype(np.int8)
    survival = cohort.task == "survival"
    outcome = Outcome(label, frame[names[0]].to_numpy(np.float64) if survival else None, names)
    common: dict[str, Any] = {"learner": learner(cell.reference, cohort.task), "outcome": outcome}
    if cell.mechanism == "private":
        split = cohort.holdout(settings["holdout"], int(_read(run.internal / "holdout.json")["entropy"]))
        codec = Codec.public(schema)
        return Home(
            cohort, split, codec=codec, rows=codec.encode(check_features(frame, schema)), private=True,
            time_unit=settings["horizon"] / 2 if survival else 1.0, weight=frame[WEIGHT].to_numpy(np.float64),
            risk=None if survival else frame[RISK].to_numpy(np.float64), **common,
        )  # fmt: skip
    split = cohort.split(seed=cell.seed)
    codec = Codec.fit(cohort.features.iloc[split.train], cohort.schema)
    if settings["soft"]:
        rows = ((frame[codec.names].to_numpy() - codec.centre) / codec.scale).astype(np.float32)
    else:
        rows = codec.encode(check_features(frame, schema))
    unit = time_scale(cohort.outcome.take(split.train)) if survival else 1.0
    return Home(cohort, split, codec=codec, rows=rows, time_unit=unit, private=False, **common)


def _read(path: Path) -> dict[str, Any]:
    """A JSON file of ours; nothing where there is none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return {}
