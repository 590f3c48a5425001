"""The page: every printed cell beside ours with a word, then the figures in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.paper.cells import cells
from benchmarks.paper.figures import ATTRIBUTE_SEEDS, MOST_ATTRIBUTES, SECTIONS
from benchmarks.paper.printed import BESIDE, COHORTS, HAZARDS, NAMED, PAIRS, TABLES, Printed, row_of
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, SOFT, Score, find
from distcondense.methods.published.noise import EVIDENCE
from distcondense.outcomes.measures import title
from distcondense.privacy.steps import LOWEST_RUNG

REACHED, NEAR = 0.005, 0.02
STRONGEST, HAZARDS_SHOWN = 10, 10
SEEDS = 3
LEFT_OUT = ("condensed rows", "own rows")  # of the figures: models of other rows than patients'

Done = dict[str, Any]


def value(one: dict[str, Any], way: str, place: str | None = None) -> Score | None:
    """The main score of a set, at home or at another site."""
    scores = [Score.from_dict(entry) for entry in one["scores"]]
    if place is None:
        return find([s for s in scores if s.tested_on not in COHORTS], way)
    return find([s for s in scores if s.tested_on == place], way)


@dataclass(frozen=True)
class Ours:
    """A cell over its seeds: means of what models of condensed, of random and of all real rows reach."""

    condensed: float
    half: float  # of the 95% interval of one test set, on average
    spread: float  # over seeds
    random: float
    full: float
    seeds: int
    why: str
    sets: list[dict[str, Any]]

    @property
    def below(self) -> bool:
        return self.condensed < self.random


def ours(
    done: Done, cohort: str, method: str, reference: str, ipc: int, epsilon: float, place: str | None = None
) -> Ours | None:
    """All seeds of one cell, or None where none was run."""
    found, why = [], ""
    for entry in done.values():
        cell = entry["cell"]
        same = (cell["cohort"], cell["method"], cell["epsilon"]) == (cohort, method, epsilon)
        if same and str(ipc) in entry.get("sets", ()) and (method == "private" or cell["reference"] == reference):
            found.append(entry["sets"][str(ipc)])
    triples = [tuple(value(one, way, place) for way in (CONDENSED, RANDOM, FULL)) for one in found]
    known = [(a, b, c) for a, b, c in triples if a is not None and b is not None and c is not None]
    for one in found:
        if one["answer"]:
            why = "no answer"
        elif one["sigma_base"]:
            reach = (one["steps"] or 0) ** 0.5 / (LOWEST_RUNG * one["sigma_base"])
            why = f"noise: {reach:.2g}" if reach < EVIDENCE else ""
    if not known:
        return Ours(np.nan, np.nan, np.nan, np.nan, np.nan, 0, why, found) if why == "no answer" else None
    values = np.array([[score.value for score in triple] for triple in known])
    halves = [(a.high - a.low) / 2 for a, _, _ in known]
    spread = float(values[:, 0].std(ddof=1)) if len(values) > 1 else float("nan")
    means = values.mean(axis=0)
    return Ours(float(means[0]), float(np.mean(halves)), spread, *map(float, means[1:]), len(values), why, found)


def word(mine: Ours | None, printed: float, full: float) -> str:
    """reached, near, not reached (why) or not run: by the distance to the model of all real rows."""
    if mine is None:
        return "not run"
    if np.isnan(mine.condensed):
        return f"not reached ({mine.why})"
    if np.isnan(printed):
        return ""
    gap = (mine.condensed - mine.full) - (printed - full)
    if gap >= -REACHED:
        return "reached"
    return "near" if gap >= -NEAR else f"not reached ({mine.why or f'{gap:+.3f}'})"


def shown(mine: Ours | None) -> str:
    if mine is None or np.isnan(mine.condensed):
        return "—" if mine is None else mine.why
    text = f"{mine.condensed:.3f} ± {mine.half:.3f}"
    text += "" if np.isnan(mine.spread) else f" (sd {mine.spread:.3f}, {mine.seeds} seeds)"
    return f"**{text}, below random rows**" if mine.below else text


def grid(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |"
    yield ""


def page(done: Done) -> str:
    """Everything that is there, beside what is printed."""
    lines = [
        "# Thakur et al. 2026, table by table and figure by figure\n",
        "Printed numbers are of the paper's own cohorts, which are under agreements and **not possible here**; ours"
        " are of these:\n",
        *(f"- {name}: {cut}" for name, (_, cut) in COHORTS.items()),
        "",
        "AUROC, or the C-index for survival, on held-out rows; ± is half of the 95% interval of one test set, as"
        " printed, and sd the spread over seeds. A word compares distances to the model of all real rows: reached, at"
        f" most {REACHED} further than printed; near, {NEAR}; not reached, with the reason, or by how much. It is of"
        " raw numbers, which is what the paper trains on, where they were run, else of legal values. “noise: z” means"
        " that all steps together say z times their noise of a row's direction, under"
        f" {EVIDENCE:g}. **Bold: below models of as many random real rows.** ε of `published` is as-published, no"
        " theorem, its end-to-end worst case is over 100 unless said; of `private` end-to-end (conditional where nobody"
        " attested the schema).\n",
        "Sensitivity, specificity, PPV and NPV are in paper.json, at Youden's cut on validation rows. The cut of the"
        " printed ones is not printed, so they get no word.\n",
        *_summary(done),
        *(line for row in (*TABLES, *BESIDE) for line in _table(done, row)),
        *_sites(done),
        *_figures(done),
        *_hazards(done),
        *_attributes(done),
    ]
    planned = {cell.key for cell in cells(SEEDS, set(COHORTS))}
    minutes = sum(entry.get("cpu_seconds", entry["seconds"]) for entry in done.values()) / 60
    wide = done.get("proteomics/published/xgb/1000/2.3/0")
    if wide is not None:
        lines.append(
            f"Proteomics at IPC 1000: {wide['cpu_seconds']:.0f} s of a core ({wide['seconds']:.0f} s beside other"
            " work, the same bits as a Ray job: paper-job.md) and at most"
            f" {wide['peak_memory_bytes'] / 1e9:.1f} GB.\n"
        )
    lines.append(
        f"{len(done)} cells, {minutes:.0f} minutes of a core in all; {len(planned - set(done))} of the whole study's"
        f" {len(planned)} (with {SEEDS} seeds) were not run. Cut to fit: seeds and rows as said above, 200 steps of"
        " tables of thousands of columns, as-printed at IPC 100 alone, one seed of the figures."
    )
    return "\n".join(lines) + "\n"


def _summary(done: Done) -> Iterator[str]:
    said = [word(_best_form(done, row, ipc, e), printed, row.full) for row in TABLES for ipc, printed, e in row]
    far = sum(one.startswith("not reached") for one in said)
    below = [
        f"{row.table} at {ipc}"
        for row in TABLES
        for ipc, _, e in row
        if (mine := ours(done, row.cohort, "published", row.reference, ipc, e)) and mine.below
    ]
    yield (
        f"Of {len(said)} printed cells of Tables 2 and 3: {said.count('reached')} reached, {said.count('near')} near,"
        f" {far} not reached, {said.count('not run')} not run. Legal values are below random real rows in"
        f" **{len(below)}**: {', '.join(below) or 'none'}.\n"
    )


def _best_form(done: Done, row: Printed, ipc: int, epsilon: float) -> Ours | None:
    """Raw numbers as the paper's, where they were run."""
    raw = ours(done, row.cohort, "raw", row.reference, ipc, epsilon)
    return raw or ours(done, row.cohort, "published", row.reference, ipc, epsilon)


def _table(done: Done, row: Printed) -> Iterator[str]:
    name = f"Table {row.table}" if row in TABLES else f"Beside it: {row.table}"
    yield f"## {name}: {row.reference} on {COHORTS[row.cohort][1]}\n"
    rows = []
    for ipc, printed, epsilon in row:
        legal, raw = (ours(done, row.cohort, way, row.reference, ipc, epsilon) for way in ("published", "raw"))
        mine, eps = legal or raw, "—"
        if mine is not None:
            released, last = (np.mean([one[k] for one in mine.sets]) for k in ("epsilon", "epsilon_at_last_step"))
            eps = f"{released:.2f} / {last:.2f}"
        own = row.reference != "aft"  # students of private are the kind's default
        privates = [ours(done, row.cohort, "private", "", ipc, e) if own else None for e in (row.epsilon[1], 1.0)]
        rows.append(
            (
                ipc,
                "—" if np.isnan(printed) else f"{printed:.3f} ({row.full:.3f})",
                word(raw or legal, printed, row.full),
                shown(raw),
                shown(legal),
                *(("—", "—") if mine is None else (f"{mine.random:.3f}", f"{mine.full:.3f}")),
                eps,
                *map(shown, privates),
            )
        )
    if row in BESIDE and all(one[3] == one[4] == "—" for one in rows):
        yield "Not run.\n"
        return
    yield from grid(
        (
            "IPC",
            "printed (full)",
            "word",
            "published, raw numbers",
            "published, legal values",
            "random real rows",
            "all real rows",
            "ε (as-published), released / last step",
            f"private at ε = {row.epsilon[1]:g} (end-to-end)",
            "private at ε = 1 (end-to-end)",
        ),
        rows,
    )
    if (as_printed := ours(done, row.cohort, "as-printed", row.reference, 100, row.epsilon[1])) is not None:
        yield f"As printed (`--preset as-printed`: rate 0.001, raw numbers), IPC 100: {shown(as_printed)}.\n"


def _sites(done: Done) -> Iterator[str]:
    yield "## Table 4: other sites\n"
    yield "Legal values. A model of all real rows of home, and of condensed rows, tested on another hospital's rows.\n"
    rows = []
    for (home, there), (full, scores) in PAIRS.items():
        row = row_of(home)
        for (ipc, _, epsilon), printed in zip(row, scores, strict=True):
            mine = ours(done, home, "published", "xgb", ipc, epsilon, there)
            gain = "—" if mine is None else f"{mine.condensed - mine.full:+.3f} (printed {printed - full:+.3f})"
            real = "—" if mine is None else f"{mine.full:.3f}"
            private = shown(ours(done, home, "private", "", ipc, 1.0, there))
            words = (f"{printed:.3f} ({full:.3f})", word(mine, printed, full), shown(mine), real, gain, private)
            rows.append((f"{home} → {there}", ipc, *words))
    head = (
        "home → tested at",
        "IPC",
        "printed (full)",
        "word",
        "condensed there",
        "all real rows of home there",
        "gain",
    )
    yield from grid((*head, "private there, ε = 1 (end-to-end)"), rows)


def _figures(done: Done) -> Iterator[str]:
    """Each section's measures: cohorts and methods as rows; models or tables of condensed, random and real rows."""
    runs = {(e["cell"]["cohort"], e["cell"]["method"][8:]): e for e in done.values() if "figures" in e}
    for section, (name, measures) in SECTIONS.items():
        yield f"## {name}\n"
        rows = []
        for (cohort, method), entry in sorted(runs.items()):
            part = entry["figures"].get(section, {"scores": (), "titles": {}})
            scores = [Score.from_dict(one) for one in part["scores"]]
            scores = [
                s
                for s in scores
                if s.measure in measures and not s.group and s.tested_on not in ("condensed rows", "own rows")
            ]
            kinds = dict.fromkeys((s.measure, s.student, s.tested_on) for s in scores)
            for measure, student, place in kinds:
                here = [s for s in scores if (s.measure, s.student, s.tested_on) == (measure, student, place)]
                told = part["titles"].get(measure, title(measure))
                ways = (_number(here, way) for way in (CONDENSED, RANDOM, FULL))
                rows.append((cohort, _guarantee(entry, method), told, student or "—", place, *ways))
        if rows:
            head = ("cohort", "method", "measure", "model", "of", "condensed rows", "random real rows", "real rows")
            yield from grid(head, rows)
        else:
            yield "Not run.\n"


def _guarantee(entry: dict[str, Any], method: str) -> str:
    epsilon = f"ε = {entry['cell']['epsilon']:g}"
    return f"{method}, {epsilon} ({'end-to-end' if method == 'private' else 'as-published'})"


def _number(scores: list[Score], way: str) -> str:
    """Plain labels, which is what a recipient has."""
    score = next((s for s in scores if s.trained_on == way and s.labels != SOFT), None)
    if score is None or np.isnan(score.value):
        return "—"
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"


def _hazards(done: Done) -> Iterator[str]:
    for cohort, printed in HAZARDS.items():
        entry = next(
            (e for e in done.values() if e["cell"]["cohort"] == cohort and e["cell"]["method"] == "figures-published"),
            None,
        )
        if entry is None or "hazard-ratios-penalised" not in entry["figures"]["hazards"]["tables"]:
            continue
        head, *rows = entry["figures"]["hazards"]["tables"]["hazard-ratios-penalised"]
        yield f"### Table 5, {cohort}: penalised (L2 1), per standard deviation, `published` at IPC 100\n"
        said = ", ".join(f"{name} {real:g} ({made:g})" for name, (real, made) in printed.items())
        yield f"Printed, of real rows (of condensed ones): {said}.\n"
        yield from grid(head, rows[:HAZARDS_SHOWN])


def _attributes(done: Done) -> Iterator[str]:
    yield "## Figure 5B: R² of attributes\n"
    yield (
        f"From condensed rows of `published` at IPC 100 and the patient's other columns; at most {MOST_ATTRIBUTES}"
        f" columns, {ATTRIBUTE_SEEDS} seeds; the {STRONGEST} strongest, and those that the paper names.\n"
    )
    for entry in done.values():
        if "attributes" in entry:
            found, cohort = entry["attributes"], entry["cell"]["cohort"]
            named = [column for column in NAMED.get(cohort, ()) if column in found]
            strongest = sorted(found, key=lambda column: -np.mean(found[column]))[:STRONGEST]
            rows = [
                (
                    column,
                    "named in the paper" if column in named else "",
                    f"{np.mean(found[column]):.3f}",
                    f"{np.std(found[column], ddof=1):.3f}",
                )
                for column in dict.fromkeys([*strongest, *named])
            ]
            yield f"### {cohort}, {len(found)} columns\n"
            yield from grid(("attribute", "", "R², mean", "sd over seeds"), rows)
