"""What people see: a progress bar on a terminal, one line per milestone elsewhere, and a table a clinician can read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from distcondense.evaluation.findings import Findings
from distcondense.evaluation.leaks import decide, in_words
from distcondense.evaluation.score import CONDENSED, FULL, TRAINED_ON, WITHOUT_ROWS, Score, find
from distcondense.evaluation.shortfall import shortfall_of_sets
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import Privacy
from distcondense.report.text import estimate
from distcondense.runs.release import DATASHEET, MANUAL

LOG = "DISTCONDENSE_LOG"  # json: standard error is a structured log; as --log json
PIPE_WIDTH = 160  # where there is no terminal to ask: enough for the table without cutting words
MEASURES = 5  # in a table on the terminal
LINES_EVERY = 10  # seconds between lines where there is no terminal
LONG = 2  # seconds from which on a phase says how it is going
ANOTHER = " Another run of these patients is charged."
CONDENSING = "condensing"  # a phase that its method does not name


class Console:
    """Speaks to standard error (progress, milestones) and standard output (tables)."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.structured = os.environ.get(LOG) == "json"
        self.err = RichConsole(stderr=True, quiet=quiet, highlight=False)
        self.out = RichConsole(quiet=quiet, highlight=False)
        if not self.out.is_terminal:
            self.out.width = PIPE_WIDTH

    def log(self, line: str) -> None:
        if self.structured:
            self._entry(text=line)
            return
        self.err.print(line, markup=False, soft_wrap=True)  # a milestone is one line, however long its paths

    @contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """A callback for a run (`methods/base.py: Progress`): a bar a phase on a terminal, lines in a log."""
        if self.quiet:
            yield lambda **_: None
        elif self.structured:
            yield _entries(self._entry)
        elif self.err.is_terminal:
            columns = (
                SpinnerColumn(),
                "{task.description}",
                BarColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.err, transient=True) as bar:
                yield _bars(bar)
        else:
            yield _lines(self.log)

    def _entry(self, **said: Any) -> None:
        if not self.quiet:
            self.err.print(log_entry("info", **said), markup=False, soft_wrap=True)

    def run_table(self, name: str, record: dict[str, Any]) -> None:
        """Full data, condensed and random real rows side by side, each number with its 95% interval."""
        sets = record.get("sets", [record])
        for note in dict.fromkeys(one["scores_note"] for one in sets if one["scores_note"]):
            self.log(note)
        groups = {f"IPC {one['ipc']}": [Score.from_dict(entry) for entry in one["scores"]] for one in sets}
        groups = {ipc: scores for ipc, scores in groups.items() if scores}
        if len(groups) > 1:
            every = [score for score in next(iter(groups.values())) if score.trained_on in WITHOUT_ROWS]
            own = {ipc: [s for s in scores if s.trained_on not in WITHOUT_ROWS] for ipc, scores in groups.items()}
            groups = {"every set": every, **own}
        if groups:
            persons = record["data"].get("split_persons", {}).get("test")
            self.out.print(score_table(name, groups, record["privacy"], by="set", persons=persons))

    def findings(self, findings: Findings) -> None:
        """The verdict, then how each section fared in a line."""
        for sentence in findings.verdict():
            self.out.print(f"- {sentence}", style="bold red" if sentence == findings.shortfall else "", markup=False)
        found = decide(findings.parts)
        for part in findings.parts:
            if part.scores or part.notes:
                words = in_words(part, found) if part.name in found.leaks else []
                first = "; ".join([f"{len(part.scores)} scores", *words[:1]]) if part.scores else part.notes[0]
                self.out.print(f"  {part.title}: {first}", markup=False)

    def methods_table(self, name: str, records: dict[str, dict[str, Any]]) -> None:
        """Several methods on one cohort in one table, each labelled as what it is."""
        groups = {
            f"{method}\n{record['privacy']}": [Score.from_dict(entry) for entry in record["scores"]]
            for method, record in records.items()
        }
        for method, record in records.items():
            if record["scores_note"]:
                self.log(f"{method}: {record['scores_note']}")
        self.out.print(score_table(name, groups, ""))

    def verdict(self, record: Mapping[str, Any], privacy: Privacy) -> None:
        """What came of it, in one line; before it, in red, what speaks against these rows."""
        poor = shortfall_of_sets(record)
        if poor:
            another = ANOTHER if privacy.charged else ""
            self.out.print(f"{poor}{another}", style="bold red", markup=False, soft_wrap=True)
        bad = privacy.guarantee == "none" or bool(privacy.answer) or bool(poor)
        self.out.print(run_verdict(record, privacy), style="bold red" if bad else "bold", markup=False, soft_wrap=True)

    def statement(self, privacy: Privacy, release: Path) -> None:
        """What may be said, what may not, and whether a row is somebody: the rest is in the datasheet."""
        for line in (privacy.sentence(), *answers(privacy, release)):
            self.out.print(line, markup=False, soft_wrap=True)


def run_verdict(record: Mapping[str, Any], privacy: Privacy) -> str:
    """How many rows, how good against models of the real ones, and which guarantee: one line."""
    if privacy.answer:
        return f"NO ANSWER, so no rows are released; {privacy.short()} is spent"
    sets = record.get("sets", [record])
    rows = " and ".join(f"{one['rows']:,}" for one in sets)
    several = f" ({len(sets)} sets)" if len(sets) > 1 else ""
    scores = [[Score.from_dict(entry) for entry in one["scores"]] for one in sets]
    main = scores[0][0].measure if scores[0] else ""
    models = [*(find(one, CONDENSED, main) for one in scores), find(scores[0], FULL, main)]
    values = [estimate(None if score is None else score.value) for score in models]
    reached = f"models trained on them reach {title(main)} {' and '.join(values[:-1])} of {values[-1]}"
    if "—" in values:
        reached = "how good they are was not measured"
    return f"condensed {rows} rows{several}: {reached}; {privacy.short()}"


def answers(privacy: Privacy, release: Path) -> tuple[str, ...]:
    """Three lines for whoever is asked about a release."""
    quote = f"say about it: the paragraph to quote in {release / DATASHEET}; how to train on it: {release / MANUAL}"
    if privacy.answer:
        return (f"say about it: that it gave no answer; {release / DATASHEET} has the words",)
    if privacy.guarantee == "none":
        return ("say about it: nothing outside the hospital; treat these rows as patient data",)
    scores = "the scores above are computed on patients: internal, each would be a release of its own"
    if privacy.guarantee == "as-published":
        return (quote, scores, "rows near a patient's: not excluded by this ε; see attack RUN --data TABLE")
    copy = "is a row a real patient? None was copied from one; one may equal somebody's by coincidence (see there)"
    return (quote, scores, copy)


def _bars(bar: Progress) -> Callable[..., None]:
    """One bar, which begins again with every phase; a phase that nobody can foresee moves to and fro."""
    task = bar.add_task("", total=None, facts="", start=False)
    now = ""

    def on_progress(*, step: int, steps: int, doing: str = CONDENSING, **facts: Any) -> None:
        nonlocal now
        if doing != now:
            now = doing
            bar.reset(task, description=doing, total=steps or None, facts="")
        count = f"{step}/{steps}" if steps else ""
        bar.update(task, completed=step, total=steps or None, facts=f"{count}  {_facts(**facts)}".strip())

    return on_progress


def log_entry(level: str, **said: Any) -> str:
    """One line of a structured log: when, how grave, and what. It says what the text would say, and no more."""
    entry = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, **said}
    return json.dumps(entry, ensure_ascii=False)


def _entries(entry: Callable[..., None]) -> Callable[..., None]:
    """An entry where a phase begins and ends, and every LINES_EVERY seconds while it lasts."""
    now, last = "", 0.0

    def on_progress(*, step: int, steps: int, doing: str = CONDENSING, **facts: Any) -> None:
        nonlocal now, last
        moment = time.monotonic()
        if doing == now and moment - last < LINES_EVERY and (step < steps or not steps):
            return
        now, last = doing, moment
        if facts.get("epsilon") is not None:
            facts["epsilon_as_published"] = facts["epsilon"]
        entry(doing=doing, step=step, steps=steps, **{k: v for k, v in facts.items() if k != "epsilon" and v})

    return on_progress


def _lines(log: Callable[[str], None]) -> Callable[..., None]:
    """A line where a phase begins, lines with the time left while it lasts, and one that says how long it took."""
    now, first, started, last = "", 0, 0.0, 0.0

    def on_progress(*, step: int, steps: int, doing: str = CONDENSING, **facts: Any) -> None:
        nonlocal now, first, started, last
        moment = time.monotonic()
        if doing != now:  # a resumed run enters a phase further on
            now, first, started, last = doing, step, moment, moment - LINES_EVERY + LONG
            if step < steps or not steps:
                log(f"{doing} …")
        took, known = moment - started, _facts(**facts)
        known = f", {known}" if known else ""
        if step == steps:
            if took >= LONG or known:
                log(f"{doing}: {step}/{steps}{known}, done in {took:.0f} s")
        elif moment - last >= LINES_EVERY and step > first:
            last = moment
            log(f"{doing}: {step}/{steps}{known}, about {took / (step - first) * (steps - step):.0f} s left")

    return on_progress


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
    table.add_column("trained on", no_wrap=True)
    table.add_column("rows", justify="right")
    measures = list(dict.fromkeys(score.measure for score in every))[:MEASURES]  # the others are in the report
    for measure in measures:
        table.add_column(title(measure), justify="right", overflow="fold")
    for group, scores in groups.items():
        first = True
        for way, label in TRAINED_ON.items():
            here = [score for score in scores if score.trained_on == way]
            if here:
                found = (find(here, way, measure) for measure in measures)
                cells = ["—" if score is None else estimate(score.value, score.low, score.high) for score in found]
                head = [escape(group) if first else ""] if len(groups) > 1 else []
                table.add_row(*head, label, str(here[0].rows), *cells)
                first = False
        table.add_section()
    table.caption = f"[95% intervals]; internal use: these numbers are computed on patients. {privacy}"
    return table


def _facts(
    *, loss: float | None = None, score: float | None = None, epsilon: float | None = None, note: str = ""
) -> str:
    words = [note, "" if loss is None else f"loss {loss:.3f}", "" if score is None else f"validation {score:.3f}"]
    words.append("" if epsilon is None else f"ε {epsilon:.2f} (as-published)")
    return "  ".join(word for word in words if word)


# -- a guided first run ------------------------------------------------------------------------------------------------


def schema_table(name: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    """Columns as they are described now."""
    table = Table(title=f"{escape(name)}: what the schema says")
    for head in ("column", "kind", "declared"):
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def forecast_table(forecasts: Sequence[Any], rows: int) -> Table:
    """What each ε is expected to give, a row for each."""
    measure = next((forecast.measure for forecast in forecasts if forecast.measure), "")
    table = Table(title=f"What ε buys (end-to-end), tried on {rows} simulated rows of this shape")
    for head in ("ε", f"{title(measure) if measure else 'score'}, all rows", "condensed", "expected loss"):
        table.add_column(head, justify="right")
    for forecast in forecasts:
        made = (
            ("no answer", "—") if forecast.condensed is None else (f"{forecast.condensed:.3f}", f"{forecast.loss:.3f}")
        )
        table.add_row(f"{forecast.epsilon:g}", f"{forecast.full:.3f}", *made)
    table.caption = "A guide and no promise: real columns may say more of the outcome, or less. Read off no patient."
    return table
