"""`Board`: how it stands with every cell, as data for study.json and Prometheus, and as people see it meanwhile."""

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

from distcondense.report.terminal import Console
from distcondense.study.design import Cell

# kept: done before; external: done elsewhere (--with); left: not asked for this time (--only)
State = Literal["waiting", "running", "done", "kept", "external", "failed", "left"]
DONE: dict[State, State] = {"kept": "done", "external": "done"}  # as files and gauges count them
SHOWN = 12  # running or failed cells listed in the live table


@dataclass
class CellProgress:
    """How it stands with one cell."""

    cell: Cell
    name: str  # of its folder
    state: State = "waiting"
    seconds: float = 0.0  # of its run, once it is done
    started: float = 0.0  # by the monotonic clock
    reason: str = ""  # why it failed


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
        now = time.monotonic()
        took: dict[Any, list[float]] = {}
        for line in self.lines:
            if line.state in ("done", "kept") and line.seconds > 0:
                for key in (_alike(line.cell), None):
                    took.setdefault(key, []).append(line.seconds)
        if not took:
            return None
        left = 0.0
        for line in self.lines:
            if line.state in ("waiting", "running"):
                alike = took.get(_alike(line.cell), took[None])
                spent = now - line.started if line.state == "running" else 0.0
                left += max(sum(alike) / len(alike) - spent, 0.0)
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
        now, clock = datetime.now(UTC).timestamp(), time.monotonic()
        cells: list[dict[str, Any]] = []
        for line in self.lines:
            entry: dict[str, Any] = {
                "cell": line.name,
                "state": DONE.get(line.state, line.state),
                "seconds": round(line.seconds, 3),
                "reason": line.reason,
            }
            if line.state == "running":
                began = datetime.fromtimestamp(now - clock + line.started, UTC)
                entry["started_at"] = began.isoformat(timespec="seconds")
            cells.append(entry)
        left = self.seconds_left()
        return {
            "cells": cells,
            "counts": self.counts(),
            "at_once": self.at_once,
            "words": self.words(),
            "seconds_left": None if left is None else round(left, 1),
        }


def _alike(cell: Cell) -> tuple[Any, ...]:
    return cell.data, cell.method, cell.reference, cell.ipc


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    said: set[int] = set()

    def watch(progress: StudyProgress) -> None:
        if not said and progress.count("kept"):
            log(f"{progress.count('kept')} of {len(progress.lines)} cells are finished already and are kept")
        for number, line in enumerate(progress.lines):
            if number in said or line.state in ("waiting", "running", "left", "external"):
                continue
            said.add(number)
            if line.state != "kept":
                how = f"failed: {line.reason}" if line.reason else f"done in {line.seconds:.1f} s"
                log(f"{line.name}: {how} ({progress.words()})")

    return watch


def live_table(progress: StudyProgress) -> Group:
    """Counts first, then what runs, then what failed and why."""
    counts = Table(expand=False)
    for state in ("done", "running", "failed", "waiting"):
        counts.add_column(state, justify="right")
    counts.add_column("time left", justify="right")
    left = progress.seconds_left()
    counts.add_row(
        str(progress.count("done", "kept", "external")),
        str(progress.count("running")),
        str(progress.count("failed")),
        str(progress.count("waiting")),
        "—" if left is None else duration(left),
    )
    shown: list[Any] = [counts]
    for state, heading in (("running", "running for"), ("failed", "failed because")):
        lines = [line for line in progress.lines if line.state == state]
        if lines:
            table = Table("cell", heading, expand=False)
            for line in lines[-SHOWN:]:
                table.add_row(escape(line.name), escape(line.reason) or duration(time.monotonic() - line.started))
            shown.append(table)
    return Group(*shown)
