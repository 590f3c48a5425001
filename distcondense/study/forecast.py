"""What a study will take, before it runs: `--dry-run`. Its tables are opened and checked; no method reads anybody.

Cells are counted; ε is added up from what every cell will ask (`Prepared.planned`), beside what cells of earlier
versions of the file have read already; time comes from cells alike that are done, else it is a lower bound that is
measured here: to read the table and to fit one model of its rows. Memory is what reading the table took.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.api.request import available_threads
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.errors import DistcondenseWarning, UserError
from distcondense.evaluation.experiment import TRAINED
from distcondense.methods.base import method_named, options_of, prepare
from distcondense.report.text import duration
from distcondense.runs.memory import MemoryPeak
from distcondense.study.accounts import PatientAccount, accounts, groups_of
from distcondense.study.design import Cell, Study
from distcondense.study.folder import StudyFolder
from distcondense.study.progress import StudyProgress
from distcondense.study.run import read_named

TRIED = 20_000  # rows that the time of one model is measured with


@dataclass(frozen=True)
class TableForecast:
    """One table with one outcome."""

    name: str
    rows: int
    columns: int
    cells: int  # that wait for it
    seconds: float  # of one cell, at least: read it, fit one model of its rows
    memory: int  # bytes, to read it

    @property
    def words(self) -> str:
        return (
            f"{self.name}: {self.rows:,} rows × {self.columns} columns; {self.cells} cells to run, each at least "
            f"{duration(self.seconds)} (to read it and fit one model), {self.memory / 2**30:.2f} GiB to read it"
        )


@dataclass(frozen=True)
class StudyForecast:
    """What all of it will take."""

    tables: tuple[TableForecast, ...]
    read: dict[str, str]  # set of patients → the ε of all cells together, in words
    seconds: float | None  # of all that is left; None: nothing is left
    known: bool  # from cells alike; else a lower bound
    at_once: int
    memory_gb: float

    def lines(self) -> list[str]:
        lines = [table.words for table in self.tables]
        lines += [f"{name}: when all cells are done, {words}" for name, words in self.read.items()]
        if self.seconds is not None:
            how = "about" if self.known else "at least"
            why = "from cells alike" if self.known else "reading and one model a cell; methods take their own time"
            lines.append(
                f"time: {how} {duration(self.seconds)} with {self.at_once} at once on this machine ({why}); memory: "
                f"{self.at_once} × {self.memory_gb:g} GiB (memory_gb)"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "tables": [table.__dict__ for table in self.tables],
            "read": self.read,
            "seconds": self.seconds,
            "seconds_from": "cells alike" if self.known else "a lower bound",
            "at_once": self.at_once,
            "memory_gb": self.memory_gb,
        }


def forecast(study: Study, progress: StudyProgress, *, at_once: int | None, threads: int) -> StudyForecast:
    """What the cells that wait will take.

    Parameters
    ----------
    study : Study
        The checked study file.
    progress : StudyProgress
        How it stands now (`study.run.plan`).
    at_once : int or None
        Cells at the same time; as many as cores and memory of this machine allow where it is None.
    threads : int
        Of each cell.

    Returns
    -------
    StudyForecast
        Tables, ε, time and memory.

    Raises
    ------
    CohortError
        For a table that cannot be read, as the study itself would.
    """
    waiting: dict[str, list[Cell]] = {}
    for line in progress.lines:
        if line.state == "waiting":
            waiting.setdefault(line.cell.data, []).append(line.cell)
    tables = tuple(_table(name, cells, threads) for name, cells in waiting.items())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    progress.at_once = at_once or max(1, min(available_threads() // threads, int(memory / study.memory_gb)))
    left = progress.seconds_left()
    known = left is not None and bool(waiting)
    if left is None:
        left = sum(table.cells * table.seconds for table in tables) / progress.at_once
    read = _read(study, StudyFolder(progress.folder))
    return StudyForecast(tables, read, left if waiting else None, known, progress.at_once, study.memory_gb)


def _table(name: str, cells: Sequence[Cell], threads: int) -> TableForecast:
    cell, memory, began = cells[0], MemoryPeak(), time.monotonic()
    cohort = read_named(cell.source, cell.endpoint)
    for source, endpoint in cell.test_on:
        read_named(source, endpoint)
    seconds, grown = time.monotonic() - began, memory.grown
    seconds += _one_model(cell, cohort, threads)
    return TableForecast(name, len(cohort), len(cohort.schema.columns), len(cells), seconds, grown)


def _one_model(cell: Cell, cohort: Cohort, threads: int) -> float:
    """Seconds to fit the cell's student to as many rows as the evaluation would, from a smaller number of them."""
    some = cohort.take(np.arange(0, len(cohort), max(1, len(cohort) // TRIED)))
    began = time.monotonic()
    try:
        rows = Codec.fit(some.features, some.schema).encode(some.features)
        cohort.outcome.kind.learner(cell.reference).fit(rows, some.outcome, seed=0, threads=threads)
    except UserError:  # too few rows to tell
        return 0.0
    return (time.monotonic() - began) * min(len(cohort), TRAINED) / len(some)


def _read(study: Study, folder: StudyFolder) -> dict[str, str]:
    """Every cell of the file as planned, and what other cells of the folder have read: patients → words."""
    by_cell = accounts(folder) if folder.salt else {}
    for cell in study.cells:
        name, method = folder.name(cell), method_named(cell.made_by)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)
            prepared = prepare(method, cell.source.facts(cell.endpoint), options_of(method, cell.options))
        events = tuple(replace(event, run=name) for event in prepared.planned)
        if name not in by_cell or len(events) > len(by_cell[name].accounts[0]):
            source, conditional = cell.source, cell.guarantee == "conditional"
            by_cell[name] = PatientAccount({source.name}, {source.content}, [events], conditional)
    words = {}
    for group in groups_of(by_cell.values()):
        gated = f"{len(group.gated)} cells will have read it through the gate: " if group.gated else ""
        words[group.title] = f"{gated}{group.words}"
    return words
