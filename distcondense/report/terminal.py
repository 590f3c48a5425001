"""What people see: a progress bar on a terminal, one line per milestone elsewhere, and a table a clinician can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from distcondense.privacy.statement import Privacy

NAMES = {
    "auroc": "AUROC", "sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "npv": "NPV",
    "c_index": "C-index",
}  # fmt: skip
ROWS = {
    "full": "All real training rows",
    "private_model": "Private model itself",
    "condensed": "Condensed (synthetic)",
    "random_real": "Random real rows, same number",
}
PIPE_WIDTH = 160  # where there is no terminal to ask: enough for the table without cutting words
LINES_EVERY = 10  # seconds between lines where there is no terminal


class Console:
    """Speaks to standard error (progress, milestones) and standard output (tables)."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.err = RichConsole(stderr=True, quiet=quiet, highlight=False)
        self.out = RichConsole(quiet=quiet, highlight=False)
        if not self.out.is_terminal:
            self.out.width = PIPE_WIDTH

    def say(self, line: str) -> None:
        self.err.print(line, markup=False, soft_wrap=True)  # a milestone is one line, however long its paths

    @contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """A callback for the engine: a bar on a terminal, a line every few seconds in a log."""
        if self.quiet:
            yield lambda **_: None
        elif self.err.is_terminal:
            columns = ("{task.description}", BarColumn(), TextColumn("{task.completed}/{task.total}"),
                       TextColumn("{task.fields[facts]}"), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
            with Progress(*columns, console=self.err, transient=True) as bar:
                task = bar.add_task("condensing", total=None, facts="")
                yield lambda *, step, steps, **facts: bar.update(
                    task, completed=step, total=steps, facts=_facts(**facts)
                )
        else:
            yield self._lines()

    def _lines(self) -> Callable[..., None]:
        started = last = 0.0
        first: int | None = None

        def line(*, step: int, steps: int, **facts: Any) -> None:
            nonlocal started, last, first
            now = time.monotonic()
            if first is None:  # the clock starts with the loop, which a resumed run enters further on
                first, started, last = step, now, now
            if now - last >= LINES_EVERY or step == steps:
                last = now
                left = (now - started) / max(step - first, 1) * (steps - step)
                self.say(f"step {step}/{steps}  {_facts(**facts)}  {left:.0f} s left")

        return line

    def table(self, name: str, record: dict[str, Any]) -> None:
        """Full data, condensed and random real rows side by side, each number with its 95% interval."""
        metrics = record["metrics"]
        if "note" in metrics:
            self.say(metrics["note"])
            return
        table = Table(
            title=f"{escape(name)}: trained on …, tested on {metrics['rows']['test']} real patients "
            "never used in training"
        )
        table.add_column("trained on", overflow="fold")
        table.add_column("rows", justify="right")
        shown = [key for key in NAMES if any(key in metrics.get(row, {}) for row in ROWS)]
        for key in shown:
            table.add_column(NAMES[key], justify="right", overflow="fold")
        for row, label in ROWS.items():
            if row not in metrics:
                continue
            cells = [estimate(metrics[row].get(key)) for key in shown]
            table.add_row(label, str(metrics["rows"][row]), *cells)
        table.caption = f"[95% intervals]; internal use: these numbers are computed on patients. {record['privacy']}"
        self.out.print(table)

    def statement(self, privacy: Privacy) -> None:
        self.out.print(privacy.paragraph(), style="bold red" if privacy.guarantee == "none" else None, markup=False)


def estimate(found: dict[str, float | None] | None) -> str:
    """0.912 [0.90, 0.92], or a dash."""
    if not found or found["value"] is None:
        return "—"
    low, high = (f"{found[k]:.3f}" if found[k] is not None else "—" for k in ("low", "high"))
    return f"{found['value']:.3f} [{low}, {high}]"


def _facts(*, loss: float | None, score: float | None, epsilon: float | None) -> str:
    text = "noisy answers" if loss is None else f"loss {loss:.3f}"
    if score is not None:
        text += f"  validation {score:.3f}"
    if epsilon is not None:
        text += f"  ε {epsilon:.2f} (as-published)"
    return text
