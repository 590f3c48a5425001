"""`distcondense study status DIR`: how a study stands, from the files it writes, while it runs and after.

Only files of the study's own room are read (study.json, report.json); nothing is written, no table is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from distcondense.errors import RunFolderError
from distcondense.report.terminal import Console
from distcondense.study.folder import StudyFolder, read_json
from distcondense.study.progress import duration

ROWS = 60  # of the grid, on a terminal
LISTED = 12  # running or failed cells


@dataclass(frozen=True)
class Status:
    """What study.json says, and whether anybody is still at work."""

    folder: StudyFolder
    said: dict[str, Any]
    at_work: bool

    @classmethod
    def of(cls, out: Path) -> Status:
        folder = StudyFolder(out)
        said = read_json(folder.progress_file)
        if not said or "cells" not in said:
            raise RunFolderError(
                f"study folder {out}",
                "must hold a study that has begun",
                found="no internal/study.json",
                fix="say the --out of a study",
            )
        return cls(folder, said, folder.locked("study"))

    @property
    def state(self) -> str:
        """running, finished, stopped (it said so) or killed (it said nothing, and nobody is at work)."""
        said = str(self.said.get("state", "finished"))
        return "killed" if said == "running" and not self.at_work else said

    def to_dict(self) -> dict[str, Any]:
        return {**self.said, "state": self.state, "out": str(self.folder.path)}

    def lines(self) -> list[str]:
        """For people, most important first."""
        now = datetime.now(UTC)

        def since(stamp: str) -> str:
            return duration(max((now - datetime.fromisoformat(stamp)).total_seconds(), 0.0))

        updated = f", as of {since(self.said['updated_at'])} ago" if "updated_at" in self.said else ""
        found = [f"study {self.said['study']}: {self.state}{updated}", str(self.said.get("words", ""))]
        if self.state in ("stopped", "killed"):
            found.append("nobody is at work on it: the command that began it goes on where it stopped")
        for state, words in (("running", "running for"), ("failed", "failed")):
            cells = [cell for cell in self.said["cells"] if cell["state"] == state and self.state == "running"]
            cells = cells if state == "running" else [c for c in self.said["cells"] if c["state"] == state]
            for cell in cells[-LISTED:]:
                more = since(cell["started_at"]) if "started_at" in cell else f": {cell['reason']}"
                found.append(f"{cell['cell']} {words} {more}".replace(" :", ":"))
        room = self.folder.internal
        found += [f"for you only: {room / 'tables.md'}, {room / 'report.html'}"] * (room / "report.html").exists()
        return [line for line in found if line]

    def show(self, console: Console) -> None:
        for line in self.lines():
            console.out.print(line, markup=False, soft_wrap=True)
        grid = read_json(self.folder.internal / "report.json").get("grid") or []
        if grid:
            table = Table(
                "table", "measure", "method", "ε, with its guarantee", "IPC", "seeds", "condensed", "real rows"
            )
            for row in grid[:ROWS]:
                table.add_row(
                    *(escape(str(row[name])) for name in ("table", "measure", "method", "epsilon", "ipc", "seeds")),
                    _estimate(row["condensed"]),
                    _estimate(row["full"]),
                )
            table.caption = "means over seeds [95% interval]; computed on patients, for you only"
            console.out.print(table)
            if len(grid) > ROWS:
                console.out.print(f"{len(grid) - ROWS} further rows are in tables.md", markup=False)


def _estimate(value: Any) -> str:
    middle, low, high = value
    if middle is None:
        return "—"
    return f"{middle:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")
