"""What people see: a progress bar on a terminal, one line per milestone elsewhere, and a table a clinician can read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from distcondense.evaluate.findings import Findings
from distcondense.evaluate.score import WAYS, WITHOUT_ROWS, Score, find
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import Privacy

PIPE_WIDTH = 160  # where there is no terminal to ask: enough for the table without cutting words
MEASURES = 5  # in a table on the terminal
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
    def progress(self, what: str = "condensing") -> Iterator[Callable[..., None]]:
        """A callback for the engine: a bar on a terminal, a line every few seconds in a log."""
        if self.quiet:
            yield lambda **_: None
        elif self.err.is_terminal:
            columns = ("{task.description}", BarColumn(), TextColumn("{task.completed}/{task.total}"),
                       TextColumn("{task.fields[facts]}"), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
            with Progress(*columns, console=self.err, transient=True) as bar:
                task = bar.add_task(what, total=None, facts="")
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

    def run_table(self, name: str, record: dict[str, Any]) -> None:
        """Full data, condensed and random real rows side by side, each number with its 95% interval."""
        sets = record.get("sets", [record])
        for note in dict.fromkeys(one["scores_note"] for one in sets if one["scores_note"]):
            self.say(note)
        groups = {f"IPC {one['ipc']}": [Score.from_dict(entry) for entry in one["scores"]] for one in sets}
        groups = {ipc: scores for ipc, scores in groups.items() if scores}
        if len(groups) > 1:
            every = [score for score in next(iter(groups.values())) if score.trained_on in WITHOUT_ROWS]
            own = {ipc: [s for s in scores if s.trained_on not in WITHOUT_ROWS] for ipc, scores in groups.items()}
            groups = {"every set": every, **own}
        if groups:
            persons = record["data"].get("split_persons", {}).get("test")
            self.out.print(score_table(name, groups, record["privacy"], by="set", persons=persons))

    def findings(self, found: Findings) -> None:
        """The verdict, then how each part fared in a line."""
        for sentence in found.verdict():
            self.out.print(f"- {sentence}", markup=False)
        for part in found.parts:
            if part.scores or part.notes:
                first = f"{len(part.scores)} scores" if part.scores else part.notes[0]
                self.out.print(f"  {part.title}: {first}", markup=False)

    def methods_table(self, name: str, records: dict[str, dict[str, Any]]) -> None:
        """Several methods on one cohort in one table, each labelled as what it is."""
        groups = {
            f"{method}\n{record['privacy']}": [Score.from_dict(entry) for entry in record["scores"]]
            for method, record in records.items()
        }
        for method, record in records.items():
            if record["scores_note"]:
                self.say(f"{method}: {record['scores_note']}")
        self.out.print(score_table(name, groups, ""))

    def statement(self, privacy: Privacy) -> None:
        """The claim on a line of its own, then the details."""
        claim = privacy.sentence()
        self.out.print(claim, style="bold red" if privacy.guarantee == "none" else "bold", markup=False)
        self.out.print(privacy.paragraph().removeprefix(claim).lstrip(), markup=False)


def fate(privacy: Privacy) -> str:
    """What may be done with a release folder, in a few words."""
    if privacy.guarantee == "none":
        return "treat as patient data"
    if privacy.guarantee == "as-published":
        return "not covered by a theorem"
    if isinstance(privacy.epsilon_with_earlier_runs, str):
        return "no bound together with earlier runs: see the statement"
    if privacy.answer:
        return "no answer: a statement, and no rows to hand over"
    if privacy.guarantee == "conditional":
        return "to hand over only if what was read off the patients is public"
    return "to hand over"


def score_table(
    name: str, groups: Mapping[str, Sequence[Score]], privacy: str, by: str = "method", persons: int | None = None
) -> Table:
    """A row per way to train, a column per measure; a group of rows per entry."""
    every = [score for scores in groups.values() for score in scores]
    tested = sorted({score.n for score in every})
    rows = " and ".join(map(str, tested)) + " real rows" + ("" if persons is None else f" of {persons} persons")
    table = Table(title=f"{escape(name)}: trained on …, tested on {rows} never used in training")
    if len(groups) > 1:
        table.add_column(by, overflow="fold", max_width=44)
    table.add_column("trained on", overflow="fold")
    table.add_column("rows", justify="right")
    measures = list(dict.fromkeys(score.measure for score in every))[:MEASURES]  # the others are in the report
    for measure in measures:
        table.add_column(title(measure), justify="right", overflow="fold")
    for group, scores in groups.items():
        first = True
        for way, label in WAYS.items():
            here = [score for score in scores if score.trained_on == way]
            if here:
                cells = [estimate(find(here, way, measure)) for measure in measures]
                head = [escape(group) if first else ""] if len(groups) > 1 else []
                table.add_row(*head, label, str(here[0].rows), *cells)
                first = False
        table.add_section()
    table.caption = f"[95% intervals]; internal use: these numbers are computed on patients. {privacy}"
    return table


def estimate(score: Score | None) -> str:
    """0.912 [0.90, 0.92], or a dash."""
    if score is None or math.isnan(score.value):
        return "—"
    low, high = ("—" if math.isnan(bound) else _digits(bound) for bound in (score.low, score.high))
    return f"{_digits(score.value)} [{low}, {high}]"


def _digits(value: float) -> str:
    """Three decimals; of large numbers (an error in the outcome's own units) four significant digits."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _facts(
    *, loss: float | None = None, score: float | None = None, epsilon: float | None = None, doing: str | None = None
) -> str:
    if doing is not None:
        return doing
    text = "noisy answers" if loss is None else f"loss {loss:.3f}"
    if score is not None:
        text += f"  validation {score:.3f}"
    if epsilon is not None:
        text += f"  ε {epsilon:.2f} (as-published)"
    return text
