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

from distcondense.api import available_threads
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.errors import DistcondenseWarning, UserError
from distcondense.evaluation.experiment import TRAINED
from distcondense.methods.base import method_named, options_of, prepare
from distcondense.study.accounts import PatientAccount, accounts, groups_of
from distcondense.study.cell import MemoryPeak
from distcondense.study.design import Cell, Study
from distcondense.study.folder import StudyFolder
from distcondense.study.progress import StudyProgress, duration
from distcondense.study.rows import load
from distcondense.study.run import readable

TRIED = 20_000  # rows that the time of one model is measured with


@dataclass(frozen=True)
class TableForecast:
    """One table with one outcome."""

    name: str
    rows: int
    columns: int
    cells: int  # that wait for it
    seconds: float  # of one cell, at least: read it, fit one model of its rows
    memory: float | None  # bytes, to read it

    @property
    def words(self) -> str:
        memory = "" if self.memory is None else f", {self.memory / 2**30:.2f} GiB to read it"
        return (
            f"{self.name}: {self.rows:,} rows × {self.columns} columns; {self.cells} cells to run, each at least "
            f"{duration(self.seconds)} (to read it and fit one model){memory}"
        )


@dataclass(frozen=True)
class Forecast:
    """What all of it will take."""

    tables: tuple[TableForecast, ...]
    read: dict[str, str]  # set of patients → the ε of all cells together, in words
    seconds: float | None  # of all that is left; None: nothing is left
    known: bool  # from cells alike; else a lower bound
    at_once: int
    memory_gb: float

    def lines(self) -> list[str]:
        found = [table.words for table in self.tables]
        found += [f"{name}: when all cells are done, {words}" for name, words in self.read.items()]
        if self.seconds is not None:
            how = "about" if self.known else "at least"
            why = "from cells alike" if self.known else "reading and one model a cell; methods take their own time"
            found.append(
                f"time: {how} {duration(self.seconds)} with {self.at_once} at once on this machine ({why}); memory: "
                f"{self.at_once} × {self.memory_gb:g} GiB (memory_gb)"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "tables": [table.__dict__ for table in self.tables],
            "read": self.read,
            "seconds": self.seconds,
            "seconds_from": "cells alike" if self.known else "a lower bound",
            "at_once": self.at_once,
            "memory_gb": self.memory_gb,
        }


def forecast(study: Study, progress: StudyProgress, *, at_once: int | None, threads: int) -> Forecast:
    """Of the cells that wait; a table that cannot be read is refused here, as the study itself would."""
    waiting = [line.cell for line in progress.lines if line.state == "waiting"]
    tables = tuple(_tables(waiting, threads))
    progress.at_once = at_once or _at_once(study.memory_gb, threads)
    left = progress.seconds_left()
    known = left is not None and bool(waiting)
    if left is None:
        left = sum(table.cells * table.seconds for table in tables) / progress.at_once
    read = _read(study, StudyFolder(progress.folder))
    return Forecast(tables, read, left if waiting else None, known, progress.at_once, study.memory_gb)


def _tables(cells: Sequence[Cell], threads: int) -> list[TableForecast]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.data, []).append(cell)
    return [_table(name, of_table, threads) for name, of_table in found.items()]


def _table(name: str, cells: Sequence[Cell], threads: int) -> TableForecast:
    cell, mark, began = cells[0], MemoryPeak(), time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)
        with readable(cell.source):
            cohort = load(cell.source, cell.endpoint)
        for source, endpoint in cell.test_on:
            with readable(source):
                load(source, endpoint)
        read, memory = time.monotonic() - began, mark.grown()
        seconds = read + _one_model(cell, cohort, threads)
    return TableForecast(name, len(cohort), len(cohort.schema.columns), len(cells), seconds, memory)


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


def _at_once(memory_gb: float, threads: int) -> int:
    """As many as cores and memory of this machine allow."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(available_threads() // threads, int(room / memory_gb)))


def _read(study: Study, folder: StudyFolder) -> dict[str, str]:
    """Every cell of the file as planned, and what other cells of the folder have read."""
    found = accounts(folder) if folder.salt else {}
    for cell in study.cells:
        name, method = folder.name(cell), method_named(cell.made_by)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)
            prepared = prepare(method, cell.source.facts(cell.endpoint), options_of(method, cell.options))
        events = tuple(replace(event, run=name) for event in prepared.planned)
        if name not in found or len(events) > len(found[name].accounts[0]):
            found[name] = PatientAccount(
                {cell.source.name}, {cell.source.content}, [events], cell.guarantee == "conditional"
            )
    return {group.title: _through(group) for group in groups_of(found.values())}


def _through(group: PatientAccount) -> str:
    gated = len(group.gated)
    return f"{gated} cells will have read it through the gate: {group.words}" if gated else group.words
