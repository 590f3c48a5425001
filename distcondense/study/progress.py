"""How a study stands: with every cell, as data for study.json and Prometheus, and as people see it.

`StudyProgress` is written while a study runs; `Status` reads it back, then and after (`distcondense study status`):
from files of the study's `internal/` alone. Nothing is written there, and no table is opened.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from distcondense.errors import RunFolderError
from distcondense.report.terminal import Console
from distcondense.report.text import duration, estimate
from distcondense.study.design import Cell
from distcondense.study.folder import StudyFolder, read_json

# kept: done before; external: done elsewhere (--with); left: not asked for this time (--only)
State = Literal["waiting", "running", "done", "kept", "external", "failed", "left"]
DONE: dict[State, State] = {"kept": "done", "external": "done"}  # as files and gauges count them
LISTED = 12  # running or failed cells that are listed
GRID_ROWS = 60  # of the grid, on a terminal


@dataclass
class CellProgress:
    """How it stands with one cell."""

    cell: Cell
    name: str  # of its folder
    state: State = "waiting"
    seconds: float = 0.0  # of its run, once it is done
    started: float = 0.0  # by the monotonic clock
    reason: str = ""  # why it failed

    @property
    def alike(self) -> tuple[Any, ...]:
        """Cells that take about as long."""
        return self.cell.data, self.cell.method, self.cell.reference, self.cell.ipc

    def to_dict(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "cell": self.name,
            "state": DONE.get(self.state, self.state),
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
        }
        if self.state == "running":
            began = datetime.fromtimestamp(time.time() - time.monotonic() + self.started, UTC)
            entry["started_at"] = began.isoformat(timespec="seconds")
        return entry


@dataclass
class StudyProgress:
    """How it stands with all of them."""

    lines: list[CellProgress]
    at_once: int = 1
    folder: Path = field(default_factory=Path)

    def count(self, *states: State) -> int:
        return sum(line.state in states for line in self.lines)

    @property
    def failed(self) -> list[CellProgress]:
        return [line for line in self.lines if line.state == "failed"]

    def seconds_left(self) -> float | None:
        """From what cells alike took, else from the mean of all; None while nothing is known."""
        took: dict[Any, list[float]] = {}
        for line in self.lines:
            if line.state in ("done", "kept") and line.seconds > 0:
                for key in (line.alike, None):
                    took.setdefault(key, []).append(line.seconds)
        if not took:
            return None
        now, left = time.monotonic(), 0.0
        for line in self.lines:
            if line.state in ("waiting", "running"):
                alike = took.get(line.alike, took[None])
                since = now - line.started if line.state == "running" else 0.0
                left += max(sum(alike) / len(alike) - since, 0.0)
        return left / max(self.at_once, 1)

    def words(self) -> str:
        left = self.seconds_left()
        parts = [f"{self.count('done', 'kept', 'external')} of {len(self.lines)} cells done"]
        now = self.count("done", "running", "failed")  # none: nothing has been begun, or all of it is over
        parts += [f"{self.count('kept')} of them before"] if self.count("kept") and now else []
        parts += [f"{self.count('external')} of them elsewhere"] if self.count("external") else []
        parts += [f"{self.count(state)} {state}" for state in ("running", "failed", "waiting") if self.count(state)]
        parts += [f"{self.count('left')} not asked for"] if self.count("left") else []
        if left is not None and self.count("waiting", "running"):
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def counts(self) -> dict[str, int]:
        """By state; what was done before counts as done."""
        return dict(Counter(DONE.get(line.state, line.state) for line in self.lines))

    def to_dict(self) -> dict[str, Any]:
        left = self.seconds_left()
        return {
            "cells": [line.to_dict() for line in self.lines],
            "counts": self.counts(),
            "at_once": self.at_once,
            "words": self.words(),
            "seconds_left": None if left is None else round(left, 1),
        }


GAUGES = {  # of a study, by name → what it says
    "distcondense_study_cells": "Cells of the study by state.",
    "distcondense_study_seconds_left": "Seconds until the study is done, as far as is known.",
    "distcondense_study_updated_timestamp_seconds": "When these numbers were written, in seconds since 1970.",
}


def prometheus(study: str, counts: Mapping[str, int], seconds_left: float | None) -> str:
    """The gauges in Prometheus's text format, for the textfile collector of a node exporter; numbers of cells only."""
    tag = f'study="{study}"'  # a study's name has no quotes: it names folders
    states = ("done", "running", "failed", "waiting", "left")
    values = {
        "distcondense_study_cells": [(f'{tag},state="{state}"', float(counts.get(state, 0))) for state in states],
        "distcondense_study_seconds_left": [] if seconds_left is None else [(tag, seconds_left)],
        "distcondense_study_updated_timestamp_seconds": [(tag, round(time.time(), 3))],
    }
    lines = []
    for name, about in GAUGES.items():
        if values[name]:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{tags}}} {value:.15g}" for tags, value in values[name]]
    return "\n".join(lines) + "\n"


# -- what people see --------------------------------------------------------------------------------------------------


@contextmanager
def watching(console: Console) -> Iterator[Callable[[StudyProgress], None]]:
    """A live table on a terminal, a line per finished cell in a log."""
    if console.quiet:
        yield lambda progress: None
    elif console.err.is_terminal and not console.err.is_dumb_terminal:
        with Live(console=console.err, auto_refresh=False, transient=True) as live:
            yield lambda progress: live.update(live_table(progress), refresh=True)
    else:
        yield logged(console.log)


def logged(log: Callable[[str], None]) -> Callable[[StudyProgress], None]:
    """What logs each cell once, when it is done or has failed."""
    known: set[int] = set()

    def watch(progress: StudyProgress) -> None:
        if not known and progress.count("kept"):
            log(f"{progress.count('kept')} of {len(progress.lines)} cells are finished already and are kept")
        for number, line in enumerate(progress.lines):
            if number not in known and line.state in ("done", "failed", "kept"):
                known.add(number)
                if line.state != "kept":
                    how = f"failed: {line.reason}" if line.reason else f"done in {line.seconds:.1f} s"
                    log(f"{line.name}: {how} ({progress.words()})")

    return watch


def live_table(progress: StudyProgress) -> Group:
    """Counts first, then what runs, then what failed and why."""
    left = progress.seconds_left()
    counts = {
        "done": progress.count("done", "kept", "external"),
        **{state: progress.count(state) for state in ("running", "failed", "waiting")},
        "time left": "—" if left is None else duration(left),
    }
    first = Table(expand=False)
    for name in counts:
        first.add_column(name, justify="right")
    first.add_row(*map(str, counts.values()))
    tables = [first]
    for state, heading in (("running", "running for"), ("failed", "failed because")):
        lines = [line for line in progress.lines if line.state == state]
        if lines:
            table = Table("cell", heading, expand=False)
            for line in lines[-LISTED:]:
                table.add_row(escape(line.name), escape(line.reason) or duration(time.monotonic() - line.started))
            tables.append(table)
    return Group(*tables)


# -- from the folder --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """What study.json says, and whether anybody is still at work."""

    folder: StudyFolder
    record: dict[str, Any]  # study.json
    at_work: bool

    @classmethod
    def from_folder(cls, out: Path) -> Status:
        """How the study in a folder stands.

        Parameters
        ----------
        out : Path
            The study's --out.

        Returns
        -------
        Status
            As its files say, while it runs and after.

        Raises
        ------
        RunFolderError
            Where no study has begun.
        """
        folder = StudyFolder(out)
        record = read_json(folder.progress_file)
        if "cells" not in record:
            raise RunFolderError(
                f"study folder {out}",
                "must hold a study that has begun",
                found="no internal/study.json",
                fix="say the --out of a study",
            )
        return cls(folder, record, folder.locked("study"))

    @property
    def state(self) -> str:
        """running, finished, stopped (it said so) or killed (it said nothing, and nobody is at work)."""
        state = str(self.record["state"])
        return "killed" if state == "running" and not self.at_work else state

    def to_dict(self) -> dict[str, Any]:
        return {**self.record, "state": self.state, "out": str(self.folder.path)}

    def lines(self) -> list[str]:
        """For people, most important first."""
        now = datetime.now(UTC)

        def since(stamp: str) -> str:
            return duration(max((now - datetime.fromisoformat(stamp)).total_seconds(), 0.0))

        lines = [
            f"study {self.record['study']}: {self.state}, as of {since(self.record['updated_at'])} ago",
            str(self.record["words"]),
        ]
        if self.state in ("stopped", "killed"):
            lines.append("nobody is at work on it: the command that began it goes on where it stopped")
        cells = self.record["cells"]
        running = [cell for cell in cells if cell["state"] == "running" and self.state == "running"]
        lines += [f"{cell['cell']} running for {since(cell['started_at'])}" for cell in running[-LISTED:]]
        failed = [cell for cell in cells if cell["state"] == "failed"]
        lines += [f"{cell['cell']} failed: {cell['reason']}" for cell in failed[-LISTED:]]
        internal = self.folder.internal
        if (internal / "report.html").exists():
            lines.append(f"for you only: {internal / 'tables.md'}, {internal / 'report.html'}")
        return lines

    def show(self, console: Console) -> None:
        """The lines, and the grid's main numbers so far."""
        for line in self.lines():
            console.out.print(line, markup=False, soft_wrap=True)
        grid = read_json(self.folder.internal / "report.json").get("grid")
        if not grid:
            return
        table = Table("table", "measure", "method", "ε, with its guarantee", "IPC", "seeds", "condensed", "real rows")
        for row in grid[:GRID_ROWS]:
            words = (escape(str(row[name])) for name in ("table", "measure", "method", "epsilon", "ipc", "seeds"))
            table.add_row(*words, estimate(*row["condensed"]), estimate(*row["full"]))
        table.caption = "means over seeds [95% interval]; computed on patients, for you only"
        console.out.print(table)
        if len(grid) > GRID_ROWS:
            console.out.print(f"{len(grid) - GRID_ROWS} further rows are in tables.md", markup=False)
