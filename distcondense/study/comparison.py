"""Which method when: one table a data set that a reader can decide from, and sentences on where the default is behind.

A row is a way to condense at one IPC: what it promises in words, what students learn from the plain outcome column and
as the manual says (the mean of all students of the study's "utility" part; where that was not measured, of the run's
own student), fidelity of columns and pairs, the strongest membership attack, time and memory. Numbers are means over
seeds; intervals are 95% over test persons, averaged. Beside them stands on how many seeds they rest. A way that made no
table stands there too, with the reason. Before them stands one table of who teaches best at each ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Floats
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, REFERENCE, SOFT
from distcondense.methods.base import default_method
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import meaning, rounded_up
from distcondense.report.text import estimate, markdown_table
from distcondense.runs.figures import DOTS, Figure, Series, Table
from distcondense.study.design import STUDENTS
from distcondense.study.results import QUICK, ScoreRows, SeedMean, mean_of

RANKS = {"end-to-end": 0, "none": 2}  # theorems before the rest, what promises nothing last; any other is 1
COLUMNS = (
    "method",
    "what it promises",
    "one run takes",
    "plain labels",
    "as the manual says",
    "its own model",
    "membership attack",
    "columns: distance",
    "pairs: likeness",
    "IPC",
    "seeds",
)
MODEL = "model"  # beside PLAIN and SOFT: not trained on rows, but what the method fitted itself under its guarantee
FEWEST = 3  # seeds that a difference is told by
COMPARED = {PLAIN: "plain labels", SOFT: "as the manual says", MODEL: "its own model"}
ABOUT = (
    "{measure}, mean of {students}; models of real rows reach {full}. Columns: total variation distance, 0 is the "
    "same. Pairs: contingency similarity, 1 is the same. Attack: AUROC, 0.5 is guessing. What a run takes: "
    "without its evaluation. Its own model: what a method fitted to patients under the same ε, without rows."
)
OVERVIEW = (
    "Mean ± standard deviation over (so many) seeds, of the mean of all students; best is who is furthest ahead of the "
    "default (+), or least behind (−), on the seeds that both have. end-to-end: a theorem about "
    "patients; as-published: its authors' account, which is no theorem of ours. A model without rows teaches nobody "
    "and is not here."
)


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to condense one table at one IPC, with its results of all seeds."""

    data: str
    method: str
    reference: str
    epsilon: float  # asked for; NaN: none
    ipc: int
    rows: ScoreRows

    @cached_property
    def guarantee(self) -> str:
        return str(self.rows["guarantee"][0])

    @cached_property
    def is_default(self) -> bool:
        return bool(self.rows["made_by"][0] == default_method())

    @cached_property
    def _of_labels(self) -> dict[str, ScoreRows]:
        return {}

    def measured(self, labels: str) -> ScoreRows:
        """The main measure of students trained on these labels, or of the method's own model."""
        if labels not in self._of_labels:
            self._of_labels[labels] = self._measured(labels)
        return self._of_labels[labels]

    @cached_property
    def _main(self) -> ScoreRows:
        return self.rows.where(self.rows["main"] & ~np.isnan(self.rows["value"]))

    def _measured(self, labels: str) -> ScoreRows:
        main = self._main
        if labels == MODEL:
            return main.where(main["trained_on"] == REFERENCE)
        rows = main.where(main["trained_on"] == CONDENSED)
        students = rows.where((rows["part"] == STUDENTS) & (rows["labels"] == labels))
        if len(students):
            return students
        return rows.where(rows["part"] == QUICK) if labels == SOFT else rows.where(rows["labels"] == labels)

    def ahead_of(self, other: Contender, labels: str, theirs: str = "") -> Floats:
        """On the seeds that both have: the mean of students of these labels, less that of the other's (`theirs`)."""
        mine, its = self._seeds(labels), other._seeds(theirs or labels)
        return np.array([mine[seed] - its[seed] for seed in sorted(mine.keys() & its.keys())])

    def _seeds(self, labels: str) -> dict[float, float]:
        if labels not in self._of_seeds:
            groups = self.measured(labels).groups("seed")
            self._of_seeds[labels] = {seed: float(part["value"].mean()) for (seed,), part in groups}
        return self._of_seeds[labels]

    @cached_property
    def _of_seeds(self) -> dict[str, dict[float, float]]:
        return {}

    @cached_property
    def attack(self) -> float:
        """The highest AUROC of a membership attack; NaN where none was tried."""
        rows = self.rows
        found = rows["value"][(rows["part"] == "membership") & (rows["metric"] == "auroc")]
        return float(np.nanmax(found)) if (~np.isnan(found)).any() else math.nan

    def fidelity(self, metric: str) -> SeedMean:
        """Of the rows with the weights they came with, where that was measured."""
        rows = self.rows.where((self.rows["part"] == "fidelity") & (self.rows["metric"] == metric))
        weighted = rows.where((rows["labels"] == SOFT) & ~np.isnan(rows["value"]))
        return SeedMean.from_rows(weighted if len(weighted) else rows)

    def same_place(self, other: Contender) -> bool:
        """Whether both condensed one table at the same ε of the same guarantee, and IPC: an ε of another is another."""
        mine, theirs = ((way.data, way.guarantee, way.epsilon, way.ipc) for way in (self, other))
        return mine == theirs


class StudyComparison:
    """Scores on each site's own test persons, with what all questions about them share.

    Parameters
    ----------
    results : ScoreRows
        Of one study, or of several.
    failed : ScoreRows, optional
        Rows of cells that made no table; their `note` says why.
    """

    def __init__(self, results: ScoreRows, failed: ScoreRows | None = None) -> None:
        self.results, self.failed = results, failed

    @cached_property
    def ways(self) -> list[Contender]:
        """Every way to condense, in the order of the results."""
        trained = self.results["trained_on"]
        rows = self.results.where((trained == CONDENSED) | (trained == REFERENCE))
        return [
            Contender(data, method, reference, epsilon, int(ipc), group)
            for (data, method, reference, epsilon, ipc), group in rows.groups(
                "data", "method", "reference", "epsilon_asked", "ipc"
            )
        ]

    @cached_property
    def budgets(self) -> list[Contender]:
        """Those that have an ε."""
        return [way for way in self.ways if not math.isnan(way.epsilon)]

    @cached_property
    def by_data(self) -> dict[str, ScoreRows]:
        """The results of each table."""
        return {data: rows for (data,), rows in self.results.groups("data")}

    def of(self, data: str) -> list[Contender]:
        """The ways that condensed one table."""
        return [way for way in self.ways if way.data == data]

    def real(self, data: str, trained_on: str, ipc: int | None = None) -> SeedMean:
        """The main measure of models of real rows: of all students, where they were trained."""
        if (data, trained_on, ipc) not in self._real:
            rows = self.by_data[data]
            rows = rows.where(rows["main"] & (rows["trained_on"] == trained_on))
            rows = rows if ipc is None else rows.where(rows["ipc"] == ipc)
            students = rows.where(rows["part"] == STUDENTS)
            self._real[data, trained_on, ipc] = SeedMean.from_rows(students if len(students) else rows)
        return self._real[data, trained_on, ipc]

    @cached_property
    def _real(self) -> dict[tuple[str, str, int | None], SeedMean]:
        return {}

    def measure(self, data: str) -> str:
        """The title of the table's main measure."""
        rows = self.by_data[data]
        return title(rows["metric"][rows["main"]][0])

    def common_ipc(self, data: str) -> int:
        """The smallest number of rows per class that most methods have."""
        methods: dict[int, set[str]] = {}
        for way in self.of(data):
            if way.rows["main"].any():
                methods.setdefault(way.ipc, set()).add(way.method)
        return min(methods, key=lambda ipc: (-len(methods[ipc]), ipc))


# -- tables -----------------------------------------------------------------------------------------------------------


def decisions(comparison: StudyComparison) -> list[Table]:
    """A table for each data set, a row for each way: by ε, theorems before the rest, best plain labels first."""
    tables = []
    for data, here in comparison.by_data.items():
        lines = [line for line in map(_line, comparison.of(data)) if line is not None]
        if comparison.failed is not None:
            lost = comparison.failed.where(comparison.failed["data"] == data)
            lines += [
                _failed_line(*key)
                for key, _ in lost.groups("method", "epsilon_asked", "guarantee_asked", "ipc", "note")
            ]
        if lines:
            about = ABOUT.format(
                measure=comparison.measure(data),
                students="several kinds of students" if (here["part"] == STUDENTS).any() else "one student",
                full=estimate(comparison.real(data, FULL).value),
            )
            rows = tuple(row for _, row in sorted(lines, key=lambda line: line[0]))
            tables.append(Table(f"decide-{data}", f"{data}: which method when", COLUMNS, rows, about))
    return tables


Line = tuple[tuple[Any, ...], tuple[Any, ...]]  # where a row stands, and the row


def _line(way: Contender) -> Line | None:
    """A row of a decision table; nothing for a way that has neither a number nor a reason."""
    means = [SeedMean.from_rows(way.measured(labels)) for labels in COMPARED]
    plain, soft, model = (mean.bounds if mean.seeds else "" for mean in means)
    main = way.rows.where(way.rows["main"])
    lacking = np.isnan(main["value"])
    if not plain and not soft:
        notes = [note for note in main["note"][lacking] if note is not None]
        if not notes:
            return None
        plain = f"no table: {notes[0]}"
    known, words = way.rows["epsilon"][~np.isnan(way.rows["epsilon"])], meaning(way.guarantee, way.rows["unit"][0])
    row = (
        way.method,
        f"ε = {rounded_up(float(known.max()), 3)} {way.guarantee}: {words}" if len(known) else words,
        _cost(way.rows),
        plain,
        soft,
        model,
        "" if math.isnan(way.attack) else round(way.attack, 3),
        _interval(way.fidelity("total_variation")),
        _interval(way.fidelity("contingency_similarity")),
        way.ipc,
        len(set(main["seed"][~lacking])),
    )
    # by plain labels; then by models without rows; then what made no table
    best = next(((number, -mean.value) for number, mean in enumerate(means) if mean.seeds), (len(means), 0.0))
    return (_last_if_none(way.epsilon), RANKS.get(way.guarantee, 1), way.ipc, best), row


def _failed_line(method: str, epsilon: float, guarantee: str, ipc: float, note: str) -> Line:
    words = meaning("none", "") if math.isnan(epsilon) else f"ε ≤ {epsilon:g} {guarantee}, not reached"
    row = (method, words, "", f"no table: {note}", *[""] * 5, int(ipc), 0)
    return (_last_if_none(epsilon), 3, ipc, (len(COMPARED), 0.0)), row


def _last_if_none(epsilon: float) -> float:
    return math.inf if math.isnan(epsilon) else epsilon


def _cost(rows: ScoreRows) -> str:
    """Of a run without its evaluation; no seconds of runs whose processor nobody here has watched."""
    seconds, memory = mean_of(rows["cpu_seconds"]), rows["peak_memory_bytes"][~np.isnan(rows["peak_memory_bytes"])]
    words = [] if math.isnan(seconds) else [f"{seconds:.1f} CPU s"]
    return ", ".join([*words, f"{memory.max() / 2**30:.2f} GiB"] if len(memory) else words)


def _interval(mean: SeedMean) -> tuple[float, ...] | str:
    return mean.bounds if mean.seeds else ""


def overview(comparison: StudyComparison) -> list[Table]:
    """Who teaches best with plain labels at each ε of the default's guarantee: it, the best other, real rows.

    An ε as its authors account for it is no ε of these: such methods stand in the tables below, and are ranked nowhere.
    """
    ways = [way for way in comparison.budgets if len(way.measured(PLAIN))]
    defaults = {(way.epsilon, way.ipc, way.data): way for way in reversed(ways) if way.is_default}
    rows = []
    for place in sorted(defaults):
        ours = defaults[place]
        others = [way for way in ways if way.same_place(ours) and not way.is_default]
        if others:
            rows.append(
                (
                    ours.data,
                    f"ε = {ours.epsilon:g} ({ours.guarantee}), IPC {ours.ipc}",
                    _spread(SeedMean.from_rows(ours.measured(PLAIN))),
                    _best(others, ours),
                    _spread(comparison.real(ours.data, RANDOM, ours.ipc)),
                    _spread(comparison.real(ours.data, FULL)),
                )
            )
    columns = (
        "table",
        "asked for",
        default_method(),
        "best other of the same guarantee",
        "random real rows (no privacy)",
        "all real rows (no privacy)",
    )
    heading = "At equal ε of the same guarantee: who teaches best with plain labels"
    return [Table("overview", heading, columns, tuple(rows), OVERVIEW)] if rows else []


def _best(others: Sequence[Contender], ours: Contender) -> str:
    """The way that does best against the default on the seeds that both have, and how far it is ahead there."""
    ahead = []
    for way in others:
        gap = way.ahead_of(ours, PLAIN)
        if len(gap):
            ahead.append(
                (float(gap.mean()), f"{way.method} {_spread(SeedMean.from_rows(way.measured(PLAIN)))}", len(gap))
            )
    if not ahead:
        return "—"
    by, words, seeds = max(ahead)
    return f"{words}: {by:+.3f} on {seeds} shared"


def _spread(mean: SeedMean) -> str:
    """0.871 ± 0.004 (3): mean and standard deviation over so many seeds."""
    return f"{mean.value:.3f}{mean.plus_minus} ({mean.seeds})" if mean.seeds else "—"


# -- sentences and figures --------------------------------------------------------------------------------------------


def behind(comparison: StudyComparison) -> list[str]:
    """Where the default method is not ahead of another one at the same ε of the same guarantee and IPC, in words.

    Clearly: the 95% interval (Student's t) of the difference over three shared seeds or more leaves out zero. Those
    come first.
    """
    home, compared, surely_ahead = default_method(), 0, 0
    sentences: list[tuple[bool, str]] = []
    ways = comparison.budgets
    apart = _not_compared(ways)
    for way in ways:
        ours = next((other for other in ways if other.is_default and other.same_place(way)), None)
        if way.is_default or ours is None:
            continue
        for labels, words in COMPARED.items():
            gap = ours.ahead_of(way, labels)
            if not len(gap):
                continue
            clear = is_clear(gap)
            compared, surely_ahead = compared + 1, surely_ahead + (clear and gap.mean() > 0)
            if gap.mean() <= 0:
                spread = f" ± {gap.std(ddof=1):.3f}" if len(gap) > 1 else ""
                sentence = (
                    f"{way.data}, IPC {way.ipc}, {words}: {way.method} ({way.reference}, ε = {way.epsilon:g} "
                    f"{way.guarantee}) is ahead of {home} by {-gap.mean():.3f}{spread} over {len(gap)} "
                    f"seed{'s' * (len(gap) > 1)}{', clearly' if clear else ''}."
                )
                sentences.append((clear, sentence))
    if not compared:
        return [f"No other method was measured beside {home} at the same ε of the same guarantee and IPC.", *apart]
    if not sentences:
        ahead = f"At equal ε of the same guarantee and IPC {home} is ahead of every other method, wherever both were"
        return [f"{ahead} measured.", *apart]
    counted = (
        f"At equal ε of the same guarantee and IPC {home} is ahead in {compared - len(sentences)} of {compared} "
        "comparisons with other methods (each table, method, ε, IPC and kind of label is one), clearly in "
        f"{surely_ahead} (three seeds or more, and the 95% interval of the difference over them is above zero), and "
        f"clearly behind in {sum(clear for clear, _ in sentences)}; of so "
        "many, one in forty would look so by chance where there is no difference. Where it is not ahead:"
    )
    return [counted, *(sentence for _, sentence in sorted(sentences, key=lambda entry: not entry[0])), *apart]


def _not_compared(ways: Sequence[Contender]) -> list[str]:
    """Which methods have an ε that is none of the default's guarantee, so that no number of theirs is held to it."""
    ours = {way.guarantee for way in ways if way.is_default}
    others = dict.fromkeys((way.method, way.guarantee) for way in ways if ours and way.guarantee not in ours)
    if not others:
        return []
    named = ", ".join(f"{method} ({guarantee})" for method, guarantee in others)
    return [f"Not compared, as their ε is of another guarantee than that of {default_method()}: {named}."]


def is_clear(gap: Floats) -> bool:
    """Whether the mean over seeds differs from zero by more than seeds do."""
    if len(gap) < FEWEST:
        return False
    half = float(stats.t.ppf(0.975, len(gap) - 1)) * float(gap.std(ddof=1)) / math.sqrt(len(gap))
    return abs(float(gap.mean())) > half


def promises(comparison: StudyComparison) -> list[str]:
    """What stands behind an ε, or in its place, wherever that is no theorem of ours: a sentence a method."""
    rows = comparison.results
    said = zip(rows["trained_on"], rows["method"], rows["guarantee"], rows["why"], strict=True)
    first: dict[str, str] = {}
    for trained_on, method, guarantee, why in said:
        if why is not None and trained_on in (CONDENSED, REFERENCE):
            first.setdefault(method, f"{method} ({guarantee}): {why}")
    return list(first.values())


def in_markdown(
    study: str,
    finished: int,
    cells: int,
    advice: Sequence[tuple[str, str]],
    told: Sequence[str],
    tables: Sequence[Table],
    promised: Sequence[str],
) -> str:
    """decide.md: the same as the page's first part, for whoever reads text.

    `advice` are needs and what the results say to them (`answer.answer`), `told` is what `behind` says, `tables` are
    those of `overview` and `decisions`, `promised` is what `promises` says.
    """
    lines = [
        f"# Study {study}: which method when",
        "",
        f"{finished} of {cells} cells are in these tables; the numbers "
        "are computed on patients and not covered by any guarantee. What a method *teaches* is the score on real test "
        "rows of students that saw nothing but its rows, with the plain outcome column; differences are of that score.",
        "",
        *(f"{number}. **{need}:** {words}" for number, (need, words) in enumerate(advice, 1)),
    ]
    for table in tables:
        rows = ([estimate(*cell) if isinstance(cell, tuple) else str(cell) for cell in row] for row in table.rows)
        lines += ["", f"## {table.title}", "", table.about, "", *markdown_table(table.columns, rows)]
    first, *others = told
    lines += ["", "## Against the default, comparison by comparison", "", first, ""]
    lines += [f"- {sentence}" for sentence in others]
    if promised:
        lines += ["", "## What stands behind an ε that is no theorem of ours", "", *(f"- {line}" for line in promised)]
    return "\n".join(lines) + "\n"


def pictures(comparison: StudyComparison) -> Iterator[Figure]:
    """Plain labels by method, a series an ε, at the smallest IPC that most methods have."""
    for number, data in enumerate(dict.fromkeys(way.data for way in comparison.ways)):
        ipc = comparison.common_ipc(data)
        means = [(way, SeedMean.from_rows(way.measured(PLAIN))) for way in comparison.of(data) if way.ipc == ipc]
        by_epsilon: dict[tuple[float, str], list[tuple[Contender, SeedMean]]] = {}
        for way, mean in sorted(means, key=lambda pair: _last_if_none(pair[0].epsilon)):
            if mean.seeds:
                by_epsilon.setdefault((_last_if_none(way.epsilon), way.guarantee), []).append((way, mean))
        series = []
        for (epsilon, guarantee), measured in by_epsilon.items():
            name = "no ε" if math.isinf(epsilon) else f"ε {epsilon:g} ({guarantee})"
            values = zip(*(mean.bounds for _, mean in measured), strict=True)
            series.append(Series(name, tuple(way.method for way, _ in measured), *values))
        full = comparison.real(data, FULL)
        if series:
            metric = comparison.measure(data)
            yield Figure(
                f"methods-{number}",
                DOTS,
                f"{data}: {metric} with plain labels, IPC {ipc}",
                "Each point is a method at one ε, the mean over seeds and students, with its 95% interval over test "
                "persons; the table above says which ε is a theorem.",
                "method",
                f"{metric} on test persons",
                tuple(series),
                at=(("real rows, no privacy", full.value),) if full.seeds else (),
            )
