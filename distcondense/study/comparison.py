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
from typing import Any, cast

import pandas as pd
from scipy import stats

from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, REFERENCE, SOFT
from distcondense.methods.base import default_method
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import rounded_up
from distcondense.runs.figures import DOTS, Figure, Series, Table
from distcondense.study.design import STUDENTS
from distcondense.study.results import QUICK

KEYS = ["data", "method", "reference", "epsilon_asked", "ipc"]
WORDS = {  # guarantee → what stands behind its ε
    "end-to-end": "a theorem about {unit}s",
    "conditional": "a theorem only if what was read off patients is public",
    "as-published": "an account of its authors', no theorem of ours",
    "none": "no privacy at all",
}
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
PLAIN_AT, SOFT_AT, MODEL_AT, IPC_AT = 3, 4, 5, 9
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


@dataclass(frozen=True)
class FailedCell:
    """A cell that made no table, and why."""

    data: str
    method: str
    epsilon: float | None  # asked for
    guarantee: str
    ipc: int
    reason: str


def decisions(results: pd.DataFrame, lost: Sequence[FailedCell] = ()) -> list[Table]:
    """A table for each data set: by ε, theorems before the rest, best plain labels first."""
    found = []
    for data in results["data"].unique():
        here = results[results["data"] == data]
        ordered = [(_order(key[3], row), row) for key, part in _ways(here) if (row := _row(part)) is not None]
        ordered += [_lost_row(one) for one in dict.fromkeys(one for one in lost if one.data == data)]
        rows = [row for _, row in sorted(ordered, key=lambda pair: pair[0])]
        if rows:
            main = here.loc[here["main"], "metric"].iloc[0]
            full = _estimate(_full(here))
            words = "several kinds of students" if _several(here) else "one student"
            about = ABOUT.format(measure=title(main), students=words, full="—" if full is None else f"{full[0]:.3f}")
            found.append(Table(f"decide-{data}", f"{data}: which method when", COLUMNS, tuple(rows), about))
    return found


def overview(results: pd.DataFrame) -> list[Table]:
    """Who teaches best with plain labels at each ε: the default, the best other of each promise, real rows."""
    home = default_method()
    ways = {key: part for key, part in _ways(results) if not math.isnan(key[3]) and _estimate(_of_labels(part, PLAIN))}
    rows = []
    for epsilon, ipc, data in sorted({(key[3], key[4], key[0]) for key in ways}):
        here = [part for key, part in ways.items() if (key[0], key[3], key[4]) == (data, epsilon, ipc)]
        ours = [part for part in here if _made_by(part) == home]
        others = [part for part in here if _made_by(part) != home]
        proved = [part for part in others if part["guarantee"].iloc[0] == "end-to-end"]
        told = [part for part in others if part["guarantee"].iloc[0] == "as-published"]
        if ours and others:
            real = results[(results["data"] == data) & results["main"]]
            random = real[(real["trained_on"] == RANDOM) & (real["ipc"] == ipc)]
            random = random[random["part"] == STUDENTS] if _several(random) else random
            rows.append(
                (
                    data,
                    f"ε = {epsilon:g}, IPC {ipc}",
                    _spread(_of_labels(ours[0], PLAIN)),
                    _best(proved, ours[0]),
                    _best(told, ours[0]),
                    _spread(random),
                    _spread(_full(results[results["data"] == data])),
                )
            )
    columns = (
        "table",
        "asked for",
        f"{home} (end-to-end)",
        "best other, end-to-end",
        "best other, as-published",
        "random real rows (no privacy)",
        "all real rows (no privacy)",
    )
    title_ = "At equal ε: who teaches best with plain labels"
    return [Table("overview", title_, columns, tuple(rows), OVERVIEW)] if rows else []


def _best(parts: Sequence[pd.DataFrame], ours: pd.DataFrame) -> str:
    """The way that does best against the default on the seeds that both have, and how far it is ahead there."""
    own, found = _seeds(ours, PLAIN), []
    for part in parts:
        gap = (_seeds(part, PLAIN) - own).dropna().astype(float)
        if len(gap):
            found.append((float(gap.mean()), f"{part['method'].iloc[0]} {_spread(_of_labels(part, PLAIN))}", len(gap)))
    if not found:
        return "—"
    ahead, words, seeds = max(found)
    return f"{words}: {ahead:+.3f} on {seeds} shared"


def _spread(rows: pd.DataFrame) -> str:
    """0.871 ± 0.004 (3): mean and standard deviation over so many seeds."""
    seeds = rows.groupby("seed")["value"].mean().dropna()
    if seeds.empty:
        return "—"
    return f"{seeds.mean():.3f}" + (f" ± {seeds.std(ddof=1):.3f}" if len(seeds) > 1 else "") + f" ({len(seeds)})"


def behind(results: pd.DataFrame) -> list[str]:
    """Where the default method is not ahead of another one that has an ε, at the same ε and IPC, in words.

    Clearly: the 95% interval (Student's t) of the difference over three shared seeds or more leaves out zero. Those
    come first.
    """
    home, compared, sure = default_method(), 0, 0
    said: list[tuple[bool, str]] = []
    ways = {key: part for key, part in _ways(results) if not math.isnan(key[3])}
    for (data, method, reference, epsilon, ipc), part in ways.items():
        ours = [p for k, p in ways.items() if (k[0], k[3], k[4]) == (data, epsilon, ipc) and _made_by(p) == home]
        if _made_by(part) == home or not ours:
            continue
        for labels, words in COMPARED.items():
            theirs, own = _seeds(part, labels), _seeds(ours[0], labels)
            both = theirs.index.intersection(own.index)
            if not len(both):
                continue
            gap = (own[both] - theirs[both]).astype(float)
            clear = _clear(gap)
            compared, sure = compared + 1, sure + (clear and gap.mean() > 0)
            if gap.mean() <= 0:
                spread = f" ± {gap.std(ddof=1):.3f}" if len(both) > 1 else ""
                promise, sure_of = part["guarantee"].iloc[0], ", clearly" if clear else ""
                said.append(
                    (
                        clear,
                        f"{data}, IPC {ipc}, {words}: {method} ({reference}, ε = {epsilon:g} {promise}) is ahead of "
                        f"{home} by {-gap.mean():.3f}{spread} over {len(both)} seed{'s' * (len(both) > 1)}{sure_of}.",
                    )
                )
    if not compared:
        return [f"No other method with an ε was measured beside {home}, at the same ε and IPC."]
    if not said:
        return [f"At equal ε and IPC {home} is ahead of every other method with an ε, wherever both were measured."]
    lost = sum(clear for clear, _ in said)
    counted = (
        f"At equal ε and IPC {home} is ahead in {compared - len(said)} of {compared} comparisons with other methods "
        f"that have an ε (each table, method, ε, IPC and kind of label is one), clearly in {sure} (three seeds or "
        f"more, and the 95% interval of the difference over them is above zero), and clearly behind in {lost}; of so "
        "many, one in forty would look so by chance where there is no difference. Where it is not ahead:"
    )
    return [counted, *(sentence for _, sentence in sorted(said, key=lambda one: not one[0]))]


def _clear(gap: pd.Series[Any]) -> bool:
    """Whether its mean differs from zero by more than seeds do."""
    if len(gap) < FEWEST:
        return False
    half = float(stats.t.ppf(0.975, len(gap) - 1)) * float(gap.std(ddof=1)) / math.sqrt(len(gap))
    return abs(float(gap.mean())) > half


def in_markdown(study: str, finished: int, cells: int, results: pd.DataFrame, lost: Sequence[FailedCell] = ()) -> str:
    """decide.md: the same as the page's first part, for whoever reads text."""
    lines = [
        f"# Study {study}: which method when",
        "",
        f"{finished} of {cells} cells are in these tables; the numbers "
        "are computed on patients and not covered by any guarantee.",
        "",
    ]
    first, *rest = behind(results)
    lines += [first, "", *(f"- {sentence}" for sentence in rest)]
    for table in (*overview(results), *decisions(results, lost)):
        lines += ["", f"## {table.title}", "", table.about, "", f"| {' | '.join(table.columns)} |"]
        lines += ["| --- " * len(table.columns) + "|"]
        lines += [f"| {' | '.join(map(_written, row))} |" for row in table.rows]
    told = promises(results)
    if told:
        lines += ["", "## What stands behind an ε that is no theorem of ours", "", *(f"- {line}" for line in told)]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"{value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]"
    return str(value)


def promises(results: pd.DataFrame) -> list[str]:
    """What stands behind an ε, or in its place, wherever that is no theorem of ours: a sentence a method."""
    made = results[results["trained_on"].isin([CONDENSED, REFERENCE]) & results["why"].notna()]
    told = made[["method", "guarantee", "why"]].drop_duplicates("method")
    return [f"{method} ({guarantee}): {why}" for method, guarantee, why in told.itertuples(index=False)]


def pictures(results: pd.DataFrame) -> Iterator[Figure]:
    """Plain labels by method, a series an ε, at the smallest IPC that most methods have."""
    for number, data in enumerate(results["data"].unique()):
        here = results[results["data"] == data]
        main = here[here["main"] & (here["trained_on"].isin([CONDENSED, REFERENCE]))]
        if main.empty:
            continue
        ipc = main.groupby("ipc")["method"].nunique().sort_index(ascending=True).idxmax()
        series = []
        ways = [(key, part) for key, part in _ways(here) if key[4] == ipc]
        for epsilon in [*sorted({key[3] for key, _ in ways if not math.isnan(key[3])}), math.nan]:
            same = [
                (key, _estimate(_of_labels(part, PLAIN)))
                for key, part in ways
                if key[3] == epsilon or (math.isnan(epsilon) and math.isnan(key[3]))
            ]
            same = [(key, value) for key, value in same if value is not None]
            if same:
                name = "no ε" if math.isnan(epsilon) else f"ε {epsilon:g}, of the guarantee in the table"
                values = [cast(list[float], value) for _, value in same]
                series.append(
                    Series(
                        name,
                        tuple(key[1] for key, _ in same),
                        tuple(v[0] for v in values),
                        tuple(v[1] for v in values),
                        tuple(v[2] for v in values),
                    )
                )
        full = _estimate(_full(here))
        if series:
            metric = title(main["metric"].iloc[0])
            yield Figure(
                f"methods-{number}",
                DOTS,
                f"{data}: {metric} with plain labels, IPC {ipc}",
                "Each point is a method at one ε, the mean over seeds and students, with its 95% interval over test "
                "persons; the table above says which ε is a theorem.",
                "method",
                f"{metric} on test persons",
                tuple(series),
                at=() if full is None else (("real rows, no privacy", full[0]),),
            )


# -- one way to condense ----------------------------------------------------------------------------------------------


def _ways(results: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str, float, int], pd.DataFrame]]:
    made = results[results["trained_on"].isin([CONDENSED, REFERENCE])]
    for key, part in made.groupby(KEYS, sort=False, dropna=False):
        yield cast(tuple[str, str, str, float, int], key), part


def _row(part: pd.DataFrame) -> tuple[Any, ...] | None:
    plain, manual, model = (_estimate(_of_labels(part, labels)) for labels in COMPARED)
    first, measured = part.iloc[0], part.loc[part["main"] & part["value"].notna(), "seed"].nunique()
    missing = part[part["main"] & part["value"].isna()]["note"].dropna()
    if plain is None and manual is None:
        if missing.empty:
            return None
        plain = cast(Any, f"no table: {missing.iloc[0]}")
    attack = part[(part["part"] == "membership") & (part["metric"] == "auroc")]["value"].astype(float)
    return (
        str(first["method"]),
        _promise(part),
        _cost(part),
        plain or "",
        manual or "",
        model or "",
        "" if attack.empty else round(float(attack.max()), 3),
        _fidelity(part, "total_variation"),
        _fidelity(part, "contingency_similarity"),
        int(first["ipc"]),
        int(measured),
    )


def _order(epsilon: float, row: Sequence[Any]) -> tuple[Any, ...]:
    theorem = 0 if "a theorem about" in row[1] else 1 if "ε" in row[1] else 2
    values = [(at, -row[at][0]) for at in (PLAIN_AT, SOFT_AT, MODEL_AT) if isinstance(row[at], list)]
    rank = values[0] if values else (IPC_AT, 0.0)  # by plain labels; then models without rows; then what made no table
    return math.inf if math.isnan(epsilon) else epsilon, theorem, row[IPC_AT], rank


def _lost_row(one: FailedCell) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    asked = "no privacy at all" if one.epsilon is None else f"ε ≤ {one.epsilon:g} {one.guarantee}, not reached"
    row = (one.method, asked, "", f"no table: {one.reason}", *[""] * (IPC_AT - PLAIN_AT - 1), one.ipc, 0)
    return (math.inf if one.epsilon is None else one.epsilon, 3, one.ipc, (IPC_AT, 0.0)), row


def _promise(part: pd.DataFrame) -> str:
    known, guarantee = part["epsilon"].dropna().astype(float), str(part["guarantee"].iloc[0])
    words = WORDS.get(guarantee, guarantee).format(unit=part["unit"].iloc[0])
    return words if known.empty else f"ε = {rounded_up(float(known.max()), 3)} {guarantee}: {words}"


def _cost(part: pd.DataFrame) -> str:
    """Of a run without its evaluation; no seconds of runs whose processor nobody here has watched."""
    seconds, memory = part["cpu_seconds"].astype(float).mean(), part["peak_memory_bytes"].astype(float).max()
    said = [] if math.isnan(seconds) else [f"{seconds:.1f} CPU s"]
    return ", ".join(said if math.isnan(memory) else [*said, f"{memory / 2**30:.2f} GiB"])


def _made_by(part: pd.DataFrame) -> str:
    return str(part["made_by"].iloc[0])


def _several(part: pd.DataFrame) -> bool:
    return bool((part["part"] == STUDENTS).any())


def _of_labels(part: pd.DataFrame, labels: str) -> pd.DataFrame:
    """The main measure of students trained on these labels, or of the method's own model."""
    main = part[part["main"] & part["value"].notna()]
    if labels == MODEL:
        return main[main["trained_on"] == REFERENCE]
    rows = main[main["trained_on"] == CONDENSED]
    of = rows[(rows["part"] == STUDENTS) & (rows["labels"] == labels)]
    if len(of):
        return of
    return rows[rows["part"] == QUICK] if labels == SOFT else rows[rows["labels"] == labels]


def _full(here: pd.DataFrame) -> pd.DataFrame:
    main = here[here["main"] & (here["trained_on"] == FULL)]
    return main[main["part"] == STUDENTS] if _several(main) else main


def _seeds(part: pd.DataFrame, labels: str) -> pd.Series[Any]:
    return _of_labels(part, labels).groupby("seed")["value"].mean()


def _estimate(rows: pd.DataFrame) -> list[float] | None:
    """Of seeds: value, low, high; None where nothing was measured."""
    if rows.empty:
        return None
    mean = rows.groupby("seed")[["value", "low", "high"]].mean().mean()
    return [float(mean[name]) for name in ("value", "low", "high")]


def _fidelity(part: pd.DataFrame, metric: str) -> Any:
    rows = part[(part["part"] == "fidelity") & (part["metric"] == metric) & part["value"].notna()]
    weighted = rows[rows["labels"] == SOFT]
    found = _estimate(weighted if len(weighted) else rows)
    return "" if found is None else found
