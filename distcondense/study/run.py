"""The runner: which cell runs when, and what is written meanwhile.

Cells run through a small protocol, `Tasks`: in this process, or as Ray tasks (`cluster.ray`). Only as many are
handed out as may run at once, so whatever stops a study leaves the rest untouched; seed after seed, so that a stopped
one has whole tables of fewer seeds. One failed cell does not stop the others; a table that cannot be read stops all of
them, once, before any runs. study.json, study.prom and the tables grow while it runs (`study.status` reads them).
"""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from distcondense.data.cohort import Cohort
from distcondense.errors import CohortError, DistcondenseWarning, RunFolderError, UserError
from distcondense.report.terminal import Console
from distcondense.runs.files import write_json, write_text
from distcondense.study.cell import NOT_SHARED, CellOutcome, run_cell
from distcondense.study.design import Cell, Study
from distcondense.study.external import NO_RESULTS, ExternalResults
from distcondense.study.folder import StudyFolder
from distcondense.study.progress import CellProgress, StudyProgress, prometheus, watching
from distcondense.study.report import write_report
from distcondense.study.rows import load
from distcondense.study.sources import Endpoint, Source

LOOK_EVERY = 1.0  # seconds between two looks at the running cells
REPORT_EVERY = 20.0  # seconds between two reports while cells run, and
REPORT_SHARE = 20  # this many times as long as the last one took to write


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

    def show(self, study: str, cells: Mapping[str, int], seconds_left: float | None) -> None:
        """Gauges, where there is a place for them."""


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

    def show(self, study: str, cells: Mapping[str, int], seconds_left: float | None) -> None:
        """study.prom has them."""


def plan(
    study: Study, out: Path, chosen: Sequence[Cell] | None = None, external: ExternalResults = NO_RESULTS
) -> StudyProgress:
    """The grid, with the cells that are finished, here or elsewhere; of those that are not `chosen` none is waiting."""
    folder, wanted = StudyFolder(out), None if chosen is None else {id(cell) for cell in chosen}
    lines = []
    for cell in study.cells:
        line = CellProgress(cell, folder.name(cell))
        if folder.finished(cell):
            folder.run(cell).erase_key()  # killed just before it would have done so itself
            line.state, line.seconds = "kept", folder.seconds(cell)
        elif external.has(cell):
            line.state = "external"
        elif wanted is not None and id(cell) not in wanted:
            line.state = "left"
        lines.append(line)
    return StudyProgress(lines, folder=out)


def run_study(
    study: Study,
    out: Path,
    tasks: Tasks,
    *,
    threads: int,
    watch: Callable[[StudyProgress], None] = lambda progress: None,
    chosen: Sequence[Cell] | None = None,
    external: ExternalResults = NO_RESULTS,
) -> StudyProgress:
    """Run every cell that is not finished, and write the report. Killed at any time, the same call goes on.

    Parameters
    ----------
    study : Study
        The checked study file.
    out : Path
        The study's folder: new, empty, or this study's.
    tasks : Tasks
        Where cells run.
    threads : int
        Of each cell.
    watch : callable
        Is told how it stands whenever that changes.
    chosen : sequence of Cell, optional
        Only these are run; the report is of all that are done.
    external : ExternalResults
        Cells that other machines made: they are not run, and are in the report.

    Returns
    -------
    StudyProgress
        How it stands with every cell at the end; one that failed says why and does not stop the others.

    Raises
    ------
    RunFolderError
        For a folder that holds something else, or that another process runs a study in.
    CohortError
        For a table that cannot be read, before any cell runs.
    """
    out = out.resolve()
    folder = _claimed(out)
    with folder.lock("study", 0.0, "must be run once at a time", "wait for the other one, or choose another --out"):
        folder.make_salt()
        write_text(folder.internal / "study.toml", study.text)
        progress = plan(study, out, chosen, external)
        progress.at_once = tasks.at_once
        for line in progress.lines:
            if line.state == "kept":
                folder.run(line.cell).tidy()  # killed after its last file that counts, it may have left others half
        check_tables([line.cell for line in progress.lines if line.state == "waiting"])
        _write_definitions([line.cell for line in progress.lines if line.state == "waiting"], folder)
        order = sorted(range(len(progress.lines)), key=lambda number: progress.lines[number].cell.seed)
        waiting = deque(number for number in order if progress.lines[number].state == "waiting")
        files = _StudyFiles(study, folder, progress, tasks, external)
        files.write("running")
        watch(progress)
        try:
            while waiting or progress.count("running"):
                while waiting and progress.count("running") < tasks.at_once:
                    number = waiting.popleft()
                    line = progress.lines[number]
                    line.state, line.started = "running", time.monotonic()
                    tasks.start(number, run_cell, line.cell, out, threads)
                files.write("running")
                watch(progress)
                for number, value in tasks.wait(LOOK_EVERY):
                    _note(progress.lines[number], value, folder)
                    watch(progress)
                    files.report()
        except BaseException:
            tasks.cancel()
            for line in progress.lines:
                line.state = "waiting" if line.state == "running" else line.state
            files.write("stopped")
            raise
        files.close()
    return progress


def run_tasks(
    study: Study,
    out: Path,
    console: Console,
    *,
    ray: str | None,
    in_process: bool,
    at_once: int | None,
    threads: int,
    chosen: Sequence[Cell] | None = None,
    external: ExternalResults = NO_RESULTS,
) -> StudyProgress:
    """`run_study` here or on Ray, with a live table or log lines on `console`."""
    with watching(console) as watch:
        run = partial(run_study, study, out, threads=threads, watch=watch, chosen=chosen, external=external)
        if in_process:
            return run(LocalTasks())
        from distcondense.cluster.config import Cluster
        from distcondense.cluster.ray.session import connected
        from distcondense.cluster.ray.tasks import TaskPool

        with connected(Cluster(address=ray or "")) as session:
            console.log(str(session))
            memory = int(study.memory_gb * 2**30)
            return run(TaskPool(session, at_once=at_once, num_cpus=threads, memory=memory))


def check_tables(cells: Sequence[Cell]) -> None:
    """Read every table that these cells need, once: what is wrong with one is said before any cell runs."""
    needed = {
        (source.name, endpoint.name): (source, endpoint)
        for cell in cells
        for source, endpoint in ((cell.source, cell.endpoint), *cell.test_on)
    }
    for source, endpoint in needed.values():
        read_named(source, endpoint)


def read_named(source: Source, endpoint: Endpoint) -> Cohort:
    """A table's cohort; what is wrong with it is said with its name in the study."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)  # each run says it, and keeps it in run.json
            return load(source, endpoint)
    except UserError as error:
        raise CohortError(
            f"data {source.name!r}",
            "must be a table that can be read; no cell has run",
            found=str(error),
            fix="mend the table or the study file, and start the study again",
        ) from None


@dataclass
class _StudyFiles:
    """What a study writes about itself while it runs."""

    study: Study
    folder: StudyFolder
    progress: StudyProgress
    tasks: Tasks
    external: ExternalResults
    began: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    reported: float = -math.inf  # when, by the monotonic clock
    took: float = 0.0
    written: tuple[Any, ...] = ()  # what study.json says of the cells, and when

    def write(self, state: str) -> None:
        """study.json and study.prom, where anything has changed, and every ten seconds."""
        counts, left = self.progress.counts(), self.progress.seconds_left()
        now = (state, counts, int(time.monotonic() // 10))
        if now == self.written:
            return
        self.written = now
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        head = {"study": self.study.name, "state": state, "began_at": self.began, "updated_at": stamp}
        write_json(self.folder.progress_file, {**head, **self.progress.to_dict()})
        write_text(self.folder.internal / "study.prom", prometheus(self.study.name, counts, left))
        self.tasks.show(self.study.name, counts, left)

    def report(self) -> None:
        """The tables of what is finished; now and then, as each report looks at every cell."""
        began = time.monotonic()
        if began - self.reported >= max(REPORT_EVERY, REPORT_SHARE * self.took):
            write_report(self.study, self.folder, self.external)
            self.reported, self.took = time.monotonic(), time.monotonic() - began

    def close(self) -> None:
        """The last report, and that it is finished."""
        write_report(self.study, self.folder, self.external)
        self.write("finished")


def _note(line: CellProgress, value: Any, folder: StudyFolder) -> None:
    if not isinstance(value, CellOutcome):  # the process is gone: killed, or out of memory
        value = CellOutcome(reason=str(value) or type(value).__name__)
    reason = " ".join(value.reason.split())  # one line, wherever it is shown
    if not reason and not folder.finished(line.cell):
        reason = NOT_SHARED
    if reason:
        folder.note_failure(line.cell, reason)
    line.state, line.seconds, line.reason = "failed" if reason else "done", value.seconds, reason


def _claimed(out: Path) -> StudyFolder:
    what = f"study folder {out.name}"
    folder = StudyFolder(out)
    if out.exists() and not out.is_dir():
        raise RunFolderError(what, "must be a folder", found="a file", fix="choose another --out")
    # an internal/ without anything is all that a study leaves that was killed before it had made its first folder there
    if not (folder.internal / "locks").is_dir() and [*islice(out.rglob("*"), 2)] not in ([], [folder.internal]):
        raise RunFolderError(
            what, "must be new, empty or a study's", found="other files in it", fix="choose another --out"
        )
    try:
        (folder.internal / "locks").mkdir(parents=True, exist_ok=True)
        folder.cells.mkdir(exist_ok=True)
    except OSError as error:
        raise RunFolderError(what, "must be writable", found=type(error).__name__, fix="choose another --out") from None
    return folder


def _write_definitions(cells: Sequence[Cell], folder: StudyFolder) -> None:
    """What each folder will be, kept when the study file changes: whose patients a cell read must not be lost."""
    folder.definitions.mkdir(exist_ok=True)
    for cell in cells:
        path = folder.definition(cell)
        if not path.exists():
            write_json(path, {"data": cell.source.name, "patients": cell.source.content, "cell": cell.identity})
