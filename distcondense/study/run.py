"""The runner: which cell runs when, and what people see meanwhile.

Cells run through a small protocol, `Tasks`: in this process, or as Ray tasks (`cluster.ray`). Only as many are
handed out as may run at once, so whatever stops a study leaves the rest untouched. One failed cell does not stop the
others.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from distcondense.errors import RunFolderError
from distcondense.report.terminal import Console
from distcondense.runs.files import write_json, write_text
from distcondense.study.cell import NOT_SHARED, Finished, StudyFolder, run_cell
from distcondense.study.design import Cell, Study
from distcondense.study.report import write_report

State = Literal["waiting", "running", "done", "kept", "failed"]
LOOK_EVERY = 1.0  # seconds between two looks at the running cells
SHOWN = 12  # running or failed cells listed in the live table


class Tasks(Protocol):
    """Somewhere functions can run, several at once."""

    @property
    def at_once(self) -> int:
        """How many may run at the same time."""

    def start(self, number: int, function: Callable[..., Any], *arguments: Any) -> None: ...

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        """Finished since the last call: (number, value or exception). Returns when one is done, or after `seconds`."""

    def cancel(self) -> None:
        """Give up what is running."""


class LocalTasks:
    """In this process, one after another: a function runs inside `wait`."""

    at_once = 1

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()

    def start(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._waiting.append((number, function, arguments))

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        if not self._waiting:
            return []
        number, function, arguments = self._waiting.popleft()
        try:
            return [(number, function(*arguments))]
        except Exception as error:
            return [(number, error)]

    def cancel(self) -> None:
        self._waiting.clear()


@dataclass
class Line:
    """How it stands with one cell."""

    cell: Cell
    name: str  # of its folder
    state: State = "waiting"
    seconds: float = 0.0  # of its run, once it is done
    started: float = 0.0  # by the monotonic clock
    reason: str = ""  # why it failed


@dataclass
class Board:
    """How it stands with all of them."""

    lines: list[Line]
    at_once: int = 1
    folder: Path = field(default_factory=Path)

    def count(self, *states: State) -> int:
        return sum(line.state in states for line in self.lines)

    @property
    def failed(self) -> list[Line]:
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
        parts = [f"{self.count('done', 'kept')} of {len(self.lines)} cells done"]
        parts += [f"{self.count('kept')} of them before"] if self.count("kept") else []
        parts += [f"{self.count(state)} {state}" for state in ("running", "failed", "waiting") if self.count(state)]
        if left is not None and self.count("waiting", "running"):
            parts.append(f"about {_duration(left)} left")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        cells = [
            {"cell": line.name, "state": "done" if line.state == "kept" else line.state,
             "seconds": round(line.seconds, 3), "reason": line.reason}
            for line in self.lines
        ]  # fmt: skip
        return {"cells": cells, "counts": dict(Counter(cell["state"] for cell in cells))}


def _alike(cell: Cell) -> tuple[Any, ...]:
    return cell.data, cell.method, cell.reference, cell.ipc


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan(study: Study, out: Path) -> Board:
    """The grid, with the cells that are finished already."""
    folder = StudyFolder(out)
    lines = []
    for cell in study.cells:
        kept = folder.finished(cell)
        if kept:
            folder.run(cell).erase_key()  # killed just before it would have done so itself
        lines.append(
            Line(cell, folder.name(cell), "kept" if kept else "waiting", folder.seconds(cell) if kept else 0.0)
        )
    return Board(lines, folder=out)


def run_study(
    study: Study, out: Path, tasks: Tasks, *, threads: int, watch: Callable[[Board], None] = lambda board: None
) -> Board:
    """Run every cell that is not finished, and write the report. Killed at any time, the same call goes on."""
    out = out.resolve()
    folder = _claimed(out)
    with folder.lock("study", 0.0, "must be run once at a time", "wait for the other one, or choose another --out"):
        folder.make_salt()
        write_text(folder.internal / "study.toml", study.text)
        board = plan(study, out)
        board.at_once = tasks.at_once
        _write_definitions(study, folder)
        waiting = deque(number for number, line in enumerate(board.lines) if line.state == "waiting")
        watch(board)
        try:
            while waiting or board.count("running"):
                while waiting and board.count("running") < tasks.at_once:
                    number = waiting.popleft()
                    line = board.lines[number]
                    line.state, line.started = "running", time.monotonic()
                    tasks.start(number, run_cell, line.cell, out, threads)
                watch(board)
                for number, value in tasks.wait(LOOK_EVERY):
                    _note(board.lines[number], value, folder)
                    watch(board)
        except BaseException:
            tasks.cancel()
            raise
        write_json(folder.internal / "study.json", {"study": study.name, **board.to_dict()})
        write_report(study, folder, {line.name: line.reason for line in board.failed})
    return board


def run_tasks(
    study: Study, out: Path, console: Console, *, ray: str | None, in_process: bool, at_once: int | None, threads: int
) -> Board:  # fmt: skip
    """`run_study` here or on Ray, with a live table or log lines on `console`."""
    with watching(console) as watch:
        if in_process:
            return run_study(study, out, LocalTasks(), threads=threads, watch=watch)
        from distcondense.cluster.config import Cluster
        from distcondense.cluster.ray.session import connected
        from distcondense.cluster.ray.tasks import TaskPool

        with connected(Cluster(address=ray or "")) as session:
            console.say(str(session))
            memory = int(study.memory_gb * 2**30)
            tasks = TaskPool(session, at_once=at_once, num_cpus=threads, memory=memory)
            return run_study(study, out, tasks, threads=threads, watch=watch)


def _note(line: Line, value: Any, folder: StudyFolder) -> None:
    if not isinstance(value, Finished):  # the process is gone: killed, or out of memory
        value = Finished(reason=str(value) or type(value).__name__)
    value = Finished(value.seconds, " ".join(value.reason.split()))  # one line, wherever it is shown
    if not value.reason and not folder.finished(line.cell):
        value = Finished(reason=NOT_SHARED)
    line.state, line.seconds, line.reason = "failed" if value.reason else "done", value.seconds, value.reason


def _claimed(out: Path) -> StudyFolder:
    what = f"study folder {out.name}"
    folder = StudyFolder(out)
    if out.exists() and not out.is_dir():
        raise RunFolderError(what, "must be a folder", found="a file", fix="choose another --out")
    if out.exists() and any(out.iterdir()) and not (folder.internal / "locks").is_dir():
        raise RunFolderError(
            what, "must be new, empty or a study's", found="other files in it", fix="choose another --out"
        )
    try:
        (folder.internal / "locks").mkdir(parents=True, exist_ok=True)
        folder.cells.mkdir(exist_ok=True)
    except OSError as error:
        raise RunFolderError(what, "must be writable", found=type(error).__name__, fix="choose another --out") from None
    return folder


def _write_definitions(study: Study, folder: StudyFolder) -> None:
    """What each folder is, kept when the study file changes: whose patients a private cell read must not be lost."""
    folder.definitions.mkdir(exist_ok=True)
    for cell in study.cells:
        path = folder.definition(cell)
        if not path.exists():
            write_json(path, {"data": cell.source.name, "patients": cell.source.content, "cell": cell.identity()})


# -- what people see --------------------------------------------------------------------------------------------------


@contextmanager
def watching(console: Console) -> Iterator[Callable[[Board], None]]:
    """A live table on a terminal, a line per finished cell in a log."""
    if console.quiet:
        yield lambda board: None
    elif console.err.is_terminal and not console.err.is_dumb_terminal:
        with Live(console=console.err, auto_refresh=False, transient=True) as live:
            yield lambda board: live.update(live_table(board), refresh=True)
    else:
        yield _logged(console.say)


def _logged(say: Callable[[str], None]) -> Callable[[Board], None]:
    said: set[int] = set()

    def watch(board: Board) -> None:
        if not said and board.count("kept"):
            say(f"{board.count('kept')} of {len(board.lines)} cells are finished already and are kept")
        for number, line in enumerate(board.lines):
            if number in said or line.state in ("waiting", "running"):
                continue
            said.add(number)
            if line.state != "kept":
                how = f"failed: {line.reason}" if line.reason else f"done in {line.seconds:.1f} s"
                say(f"{line.name}: {how} ({board.words()})")

    return watch


def live_table(board: Board) -> Group:
    """Counts first, then what runs, then what failed and why."""
    counts = Table(expand=False)
    for state in ("done", "running", "failed", "waiting"):
        counts.add_column(state, justify="right")
    counts.add_column("time left", justify="right")
    left = board.seconds_left()
    counts.add_row(
        str(board.count("done", "kept")), str(board.count("running")), str(board.count("failed")),
        str(board.count("waiting")), "—" if left is None else _duration(left),
    )  # fmt: skip
    shown: list[Any] = [counts]
    for state, heading in (("running", "running for"), ("failed", "failed because")):
        lines = [line for line in board.lines if line.state == state]
        if lines:
            table = Table("cell", heading, expand=False)
            for line in lines[-SHOWN:]:
                table.add_row(escape(line.name), escape(line.reason) or _duration(time.monotonic() - line.started))
            shown.append(table)
    return Group(*shown)
