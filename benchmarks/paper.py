"""Every table of Thakur et al. 2026 in one study that stops and goes on: `python -m benchmarks.paper`.

    python -m benchmarks.paper --minutes 11             what is not there yet, until the time is up
    python -m benchmarks.paper --only seer --seeds 3    some cohorts
    python -m benchmarks.paper --page                   the page of what is there, nothing is run

A cell is one run: cohort × method × reference × records per class × ε × seed. Cells lie in results/paper.json; what is
there is not run again, so the command may be killed and started at will. `published` runs at the ε (as-published) that
is printed beside the cell, in legal rows by its own defaults, and once as printed (`--preset as-printed`, IPC 100);
`private` at the ε printed at IPC 100 and at 1, both end-to-end, where one run gives all records per class.

SEER and Adult by `published` are those of `python -m benchmarks.published`, which has them with three seeds.
The page sets each printed cell beside ours, with a word. Our cohorts are not the paper's (hospitals, proteomics and
diabetes are simulated, SEER is another extract), so what is compared is the distance to the model of all real rows:

    reached: at most 0.005 further away than printed · near: at most 0.02 · not reached, and why · not run

The figures, method by method and with every section of the evaluation: `python -m benchmarks.figures`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.published import TUNED
from distcondense.data.cohort import Cohort
from distcondense.data.datasets import load
from distcondense.errors import UserError
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score, find
from distcondense.methods.published.noise import EVIDENCE
from distcondense.privacy.steps import LOWEST_RUNG

IPC = (50, 100, 500, 1000)
DELTA = 1e-5
REACHED, NEAR = 0.005, 0.02
SITE_ROWS = 20_000  # of another hospital, a fifth of which is tested on
FEW_CASES = 98 / 0.7 / 52_999  # of the paper's training rows 98 had the disease


@dataclass(frozen=True)
class Printed:
    """A row of a printed table: a model's score at each of `IPC`, of all real rows, and the ε beside each."""

    table: str
    cohort: str  # of `COHORTS`
    reference: str
    full: float
    scores: tuple[float, ...]
    epsilon: tuple[float, ...]


TABLES = (
    Printed("2a, PUH", "puh", "xgb", 0.901, (0.862, 0.894, 0.888, 0.884), (2.5, 2.6, 1.8, 3.1)),
    Printed("2b, OUH", "ouh", "xgb", 0.911, (0.855, 0.873, 0.870, 0.891), (2.2, 2.7, 2.1, 1.9)),
    Printed("2c, UHB", "uhb", "xgb", 0.925, (0.849, 0.909, 0.889, 0.886), (1.99, 2.20, 3.19, 3.45)),
    Printed("2d, proteomics", "proteomics", "xgb", 0.898, (0.856, 0.905, 0.913, 0.912), (2.1, 2.6, 1.9, 2.3)),
    Printed("3, diabetes, Cox", "diabetes", "cox", 0.790, (0.787, 0.790, 0.788, 0.789), (1.91, 1.937, 2.442, 2.54)),
    Printed("3, diabetes, XGB", "diabetes", "aft", 0.802, (0.762, 0.775, 0.786, 0.788), (0.491, 0.560, 0.736, 1.146)),
    Printed("3, SEER, Cox", "seer", "cox", 0.729, (0.694, 0.714, 0.732, 0.724), (1.801, 2.611, 2.920, 3.789)),
    Printed("3, SEER, XGB", "seer", "aft", 0.731, (0.689, 0.716, 0.725, 0.724), (1.413, 2.275, 1.916, 2.317)),
)
BESIDE = (  # tables that the paper has not: no number is printed
    Printed("beside it: Adult", "adult", "xgb", np.nan, (np.nan,) * 4, (2.5,) * 4),
    Printed("beside it: BRFSS", "brfss", "xgb", np.nan, (np.nan,) * 4, (2.5,) * 4),
    Printed("beside it: microarray", "microarray", "xgb", np.nan, (np.nan,) * 2, (2.5,) * 2),
    Printed("beside it: microbiome", "microbiome", "xgb", np.nan, (np.nan,) * 3, (2.5,) * 3),
    Printed("beside it: proteomics, 5% cases", "proteomics5", "xgb", np.nan, (np.nan,) * 2, (2.5,) * 2),
    Printed("beside it: GBSG2, Cox", "gbsg2", "cox", np.nan, (np.nan,) * 2, (2.5,) * 2),
    Printed("beside it: GBSG2, XGB", "gbsg2", "aft", np.nan, (np.nan,) * 2, (2.5,) * 2),
)
PAIRS = {  # Table 4: home → elsewhere: the model of all real rows, and condensed rows at each of `IPC`
    ("puh", "uhb"): (0.830, (0.855, 0.860, 0.847, 0.861)),
    ("ouh", "uhb"): (0.842, (0.825, 0.831, 0.864, 0.844)),
    ("puh", "ouh"): (0.863, (0.862, 0.873, 0.848, 0.851)),
    ("uhb", "ouh"): (0.778, (0.806, 0.821, 0.806, 0.803)),
}
WIDE = {"steps": 200}  # of tables of thousands of columns, where fitting the students takes the time


# -- cohorts ----------------------------------------------------------------------------------------------------------


def simulated(name: str, **how: Any) -> Cohort:
    data = load(name, **how)
    return Cohort.from_frame(data.frame, **data.how)


def site(name: str, rows: int | None = None, seed: int = 0) -> Cohort:
    return simulated("curial_like", site=name.upper(), shifted=True, rows=rows, seed=seed)


def wide(name: str) -> Cohort:
    """Real tables of thousands of columns; of the microbiome one sample of each person."""
    from distcondense.data.tables import read_table

    if name == "microarray":
        return Cohort.from_frame(
            read_table(cohorts.path_of("microarray_gravier_168x2905.csv.gz")), target="label", positive="poor"
        )
    frame = read_table(cohorts.path_of("metaml_microbiome_stool.csv.gz")).drop_duplicates("subjectID")
    frame = frame.drop(columns=["dataset_name", "subjectID", "disease", "age", "gender", "country"])
    return Cohort.from_frame(frame.reset_index(drop=True), target="label")


COHORTS: dict[str, tuple[Callable[[], Cohort], str]] = {  # and what was cut
    "puh": (lambda: site("puh"), "simulated, 38,717 rows as printed, sites that shift"),
    "ouh": (lambda: site("ouh", 60_000), "simulated, 60,000 of 161,955 rows, sites that shift"),
    "uhb": (lambda: site("uhb", 60_000), "simulated, 60,000 of 95,236 rows, sites that shift"),
    "proteomics": (
        lambda: simulated("proteomics_like", prevalence=FEW_CASES),
        "simulated, 52,999 × 2,932, about 98 training cases, 200 steps",
    ),
    "diabetes": (lambda: simulated("diabetes_like", rows=60_000), "simulated, 60,000 of 474,886 rows"),
    "seer": (lambda: cohorts.seer(declared=True), "real, 4,024 rows, the public extract"),
    "adult": (lambda: cohorts.adult(declared=True), "real, 48,842 rows"),
    "brfss": (lambda: cohorts.brfss(declared=True), "real, 253,680 rows"),
    "gbsg2": (lambda: simulated("gbsg2"), "real, 686 rows (lifelines)"),
    "microarray": (lambda: wide("microarray"), "real, 168 × 2,905, 200 steps"),
    "microbiome": (lambda: wide("microbiome"), "real, stool, one sample a person, 200 steps"),
    "proteomics5": (
        lambda: simulated("proteomics_like", rows=10_000, prevalence=0.05),
        "simulated, 10,000 × 2,932, 5% cases, 200 steps",
    ),
}
UNDECLARED = ("microarray", "microbiome")  # nobody declared a schema of 2,000 columns: private needs one
MANY_COLUMNS = ("proteomics", "proteomics5", *UNDECLARED)


ELSEWHERE = ("seer", "adult")  # run by benchmarks/published.py


@cache
def cohort_of(name: str) -> Cohort:
    return COHORTS[name][0]()


# -- cells ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One run. `ipc` is 0 for `private`, which makes all of them at once."""

    cohort: str
    method: str  # published, as-printed or private
    reference: str
    ipc: int
    epsilon: float
    seed: int

    @property
    def key(self) -> str:
        return "/".join(map(str, asdict(self).values()))


def cells(seeds: int, names: set[str]) -> Iterator[Cell]:
    """The seed first, so that a study that was cut short has something of everything."""
    for seed in range(seeds):
        for row in (*TABLES, *BESIDE):
            name = row.cohort
            if name not in names or (seed and name in MANY_COLUMNS):
                continue
            for ipc, epsilon in zip(IPC, row.epsilon, strict=False):
                if name not in ELSEWHERE:
                    yield Cell(name, "published", row.reference, ipc, epsilon, seed)
            if name not in MANY_COLUMNS:
                yield Cell(name, "as-printed", row.reference, 100, row.epsilon[1], seed)
            if name not in UNDECLARED and name != "proteomics" and row.reference in ("xgb", "cox"):
                for epsilon in (row.epsilon[1], 1.0):
                    yield Cell(name, "private", "", 0, epsilon, seed)


def run(cell: Cell, threads: int) -> dict[str, Any]:
    """What one cell gives: by records per class the scores at home and elsewhere, and the ε with its words."""
    cohort, started = cohort_of(cell.cohort), time.perf_counter()
    how: dict[str, Any] = {"seed": cell.seed, "threads": threads, "epsilon": cell.epsilon}
    if cell.method == "private":
        ipcs = [ipc for ipc, _ in zip(IPC, _row(cell.cohort).epsilon, strict=False)]
        found = dc.condense(cohort, method="private", ipc=ipcs, **how)
    else:
        how |= WIDE if cell.cohort in MANY_COLUMNS else {}
        how |= TUNED.get((cell.cohort, cell.reference), {}) if cell.method == "published" else {}
        how |= {"preset": "as-printed"} if cell.method == "as-printed" else {}
        one = dc.condense(cohort, method="published", reference=cell.reference, ipc=cell.ipc, **how)
        found = {cell.ipc: one}
    sets: dict[str, Any] = {}
    for ipc, result in found.items():
        scores = [Score.from_dict(entry) for entry in result.internal["scores"]]
        away = {there for home, there in PAIRS if home == cell.cohort}
        if away and len(result.frame):
            external = {there: elsewhere(there) for there in sorted(away)}
            scores += [
                s for s in dc.evaluate(cohort, result, external=external, threads=threads) if s.tested_on in away
            ]
        parameters = result.privacy.parameters
        sets[str(ipc)] = {
            "scores": [slim(score) for score in scores],
            "epsilon": result.privacy.epsilon,
            "epsilon_at_last_step": result.privacy.epsilon_at_last_step,
            "guarantee": result.privacy.guarantee,
            "worst_case_epsilon": result.privacy.worst_case_epsilon,
            "answer": result.privacy.answer,
            "sigma_base": parameters.get("sigma_base"),
            "steps": parameters.get("steps"),
            "noise": result.internal.get("noise"),
        }
    peak = getattr(result, "record", {}).get("peak_memory_bytes")
    made = record.made_now([cell.seed])  # the file's own head is of the command that wrote it last
    return {
        "cell": asdict(cell),
        "made": made,
        "sets": sets,
        "seconds": time.perf_counter() - started,
        "peak_memory_bytes": peak,
    }


def slim(score: Score) -> dict[str, Any]:
    """Without what is empty: 300 cells are kept in one file."""
    blank = Score("", "", "", 0.0, 0.0, 0.0, 0, False).to_dict()
    kept = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in score.to_dict().items()}
    needed = ("measure", "trained_on", "tested_on", "value", "low", "high", "n", "covered")
    return {k: v for k, v in kept.items() if k in needed or v != blank[k]}


@cache
def elsewhere(name: str) -> Cohort:
    """Another hospital's table, of other patients than its own run's."""
    return site(name, SITE_ROWS, seed=1)


def _row(cohort: str) -> Printed:
    return next(row for row in (*TABLES, *BESIDE) if row.cohort == cohort)


def run_elsewhere() -> dict[str, Any]:
    """The cells that `python -m benchmarks.published` left, as if they had been run here."""
    found: dict[str, Any] = {}
    for name in ELSEWHERE:
        for one in (record.read(f"published-{name}") or {"cells": ()})["cells"]:
            for each in one["runs"]:
                cell = Cell(
                    name, "published", one["reference"], one["ipc"], one["epsilon_asked_as_published"], each["seed"]
                )
                privacy = each["privacy"]
                same = ("epsilon", "epsilon_at_last_step", "guarantee", "worst_case_epsilon", "answer")
                parameters = {key: privacy["parameters"].get(key) for key in ("sigma_base", "steps")}
                known = {entry.name for entry in fields(Score)}  # older results name more
                scores = [{k: v for k, v in score.items() if k in known} for score in each["scores"]]
                kept = {key: privacy.get(key) for key in same} | parameters | {"scores": scores}
                found[cell.key] = {"cell": asdict(cell), "sets": {str(cell.ipc): kept}, "seconds": one["seconds"]}
    return found


# -- the page ---------------------------------------------------------------------------------------------------------


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
    done: dict[str, Any], cohort: str, method: str, reference: str, ipc: int, epsilon: float, place: str | None = None
) -> Ours | None:
    """All seeds of one cell, or None where none was run."""
    found, why = [], ""
    for entry in done.values():
        cell = entry["cell"]
        same = (cell["cohort"], cell["method"], cell["epsilon"]) == (cohort, method, epsilon)
        if same and str(ipc) in entry["sets"] and (method == "private" or cell["reference"] == reference):
            found.append(entry["sets"][str(ipc)])
    triples = [tuple(value(one, way, place) for way in (CONDENSED, RANDOM, FULL)) for one in found]
    known = [(a, b, c) for a, b, c in triples if a is not None and b is not None and c is not None]
    if not found:
        return None
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
        return "—"
    text = f"{mine.condensed:.3f} ± {mine.half:.3f}"
    text += "" if np.isnan(mine.spread) else f" (sd {mine.spread:.3f}, {mine.seeds} seeds)"
    return f"**{text}, below random rows**" if mine.below else text


def page(done: dict[str, Any]) -> str:
    """Everything that is there, beside what is printed."""
    done = run_elsewhere() | done
    every = {cell.key for cell in cells(3, set(COHORTS))} | set(run_elsewhere())
    lines = [
        "# Thakur et al. 2026, table by table\n",
        "Printed numbers are of the paper's own cohorts; ours of these:\n",
        *(f"- {name}: {cut}" for name, (_, cut) in COHORTS.items()),
        "",
        "AUROC, or the C-index for survival, on held-out rows; ± is half of the 95% interval of one test set, as"
        " printed, and sd the spread over seeds. A word compares distances to the model of all real rows: reached, at"
        f" most {REACHED} further than printed; near, {NEAR}; not reached, with the reason. “noise: z” means that all"
        f" steps together say z times their noise of a row's direction, under {EVIDENCE:g}. **Bold: below models of as"
        " many random real rows.** ε of `published` is as-published, no theorem, its end-to-end worst case is over 100"
        " unless said; of `private` end-to-end (conditional where nobody attested the schema).\n",
        "Sensitivity, specificity, PPV and NPV are in paper.json, at Youden's cut on validation rows. The cut of the"
        " printed ones is not printed, so they get no word.\n",
    ]
    head = (
        "| IPC | printed (full) | word | published | random real rows | all real rows |"
        " ε (as-published), released / last step | private at the printed ε (end-to-end) |"
        " private at ε = 1 (end-to-end) |"
    )
    for row in (*TABLES, *BESIDE):
        here = [
            (ipc, ours(done, row.cohort, "published", row.reference, ipc, e))
            for ipc, e in zip(IPC, row.epsilon, strict=False)
        ]
        title = f"Table {row.table}" if row in TABLES else row.table.capitalize()
        lines += [f"## {title}: {row.reference} on {COHORTS[row.cohort][1]}\n"]
        if row in BESIDE and all(mine is None for _, mine in here):
            lines += ["Not run.\n"]
            continue
        lines += [head, "| --- " * 9 + "|"]
        for number, (ipc, mine) in enumerate(here):
            printed = row.scores[number]
            says = "—" if np.isnan(printed) else f"{printed:.3f} ({row.full:.3f})"
            eps = "—"
            if mine is not None:
                released, last = (np.mean([one[k] for one in mine.sets]) for k in ("epsilon", "epsilon_at_last_step"))
                eps = f"{released:.2f} / {last:.2f}"
            own = row.reference != "aft"  # students of private are the kind's default
            privates = [ours(done, row.cohort, "private", "", ipc, e) if own else None for e in (row.epsilon[1], 1.0)]
            rest = ["—", "—"] if mine is None else [f"{mine.random:.3f}", f"{mine.full:.3f}"]
            lines.append(
                f"| {ipc} | {says} | {word(mine, printed, row.full)} | {shown(mine)} | {' | '.join(rest)} | {eps} | "
                f"{' | '.join(shown(one) for one in privates)} |"
            )
        if (printed_way := ours(done, row.cohort, "as-printed", row.reference, 100, row.epsilon[1])) is not None:
            lines.append(
                f"\nAs printed (`--preset as-printed`: rate 0.001, raw numbers), IPC 100: {shown(printed_way)}."
            )
        lines.append("")
    lines += [
        "## Table 4: other sites\n",
        "| home → tested at | IPC | printed (full) | word | condensed there | all real rows of home there | gain |",
        "| --- " * 7 + "|",
    ]
    for (home, there), (full, scores) in PAIRS.items():
        row = _row(home)
        for ipc, epsilon, printed in zip(IPC, row.epsilon, scores, strict=True):
            mine = ours(done, home, "published", "xgb", ipc, epsilon, there)
            gain = "—" if mine is None else f"{mine.condensed - mine.full:+.3f} (printed {printed - full:+.3f})"
            real = "—" if mine is None else f"{mine.full:.3f}"
            says = f"{printed:.3f} ({full:.3f}) | {word(mine, printed, full)} | {shown(mine)}"
            lines.append(f"| {home} → {there} | {ipc} | {says} | {real} | {gain} |")
    seconds = sum(entry["seconds"] for entry in done.values())
    lines += [
        "",
        f"{len(done)} cells, {seconds / 60:.0f} minutes of this machine in all, of {len(every)} of the whole study.",
        "",
        "Not possible here: the cohorts of the paper themselves (three hospitals and UK Biobank are under agreements).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="*", default=list(COHORTS), choices=list(COHORTS))
    options.add_argument("--methods", nargs="*", default=["published", "as-printed", "private"])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--minutes", type=float, default=360.0, help="no cell is begun after so many")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--page", action="store_true", help="write the page again, run nothing")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    done: dict[str, Any] = record.read("paper") or {}
    until = time.monotonic() + 60 * said.minutes
    for cell in () if said.page else cells(said.seeds, set(said.only)):
        if cell.key in done or cell.method not in said.methods:
            continue
        if time.monotonic() > until:
            print("time is up: the same command goes on from here")
            break
        try:
            done[cell.key] = run(cell, said.threads)
        except UserError as error:
            print(f"{cell.key}: {error}", flush=True)
            continue
        print(f"{cell.key}: {done[cell.key]['seconds']:.0f} s", flush=True)
        record.write("paper", done, seeds=_seeds(done))
    record.write("paper", done, seeds=_seeds(done), text=page(done))
    print(page(done))


def _seeds(done: dict[str, Any]) -> list[int]:
    return sorted({entry["cell"]["seed"] for entry in (run_elsewhere() | done).values()})


if __name__ == "__main__":
    main()
