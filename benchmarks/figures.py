"""Thakur et al. 2026, figure by figure: `python -m benchmarks.figures seer|adult|brfss|curial|proteomics|diabetes`.

Methods side by side on one cohort: every method that takes it, at the ε of `PLANS` (each with the words for which
guarantee it is). One command condenses, evaluates on held-out rows and writes

    benchmarks/results/figures-NAME.md            the tables, and what the figures say in numbers
    FOLDER/figures-NAME-METHOD.html               the page with the figures, with --pages FOLDER

The cohorts are not the paper's: SEER, Adult and BRFSS are public tables of another extract, the CURIAL sites and the
proteomics cohort are simulated (distcondense/data/populations.py). Constants of the private method were set with Adult,
BRFSS and SEER in view.

    Table 2, 3   held-out scores              Table 4  other sites            Table 5   hazard ratios
    Figure 1     landscape                    Figure 2 Kaplan–Meier curves    Figure 3  other students
    Figure 4     SHAP (S1: of proteomics)     Figure 5 membership and attribute inference; R² by named attribute
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import distcondense as dc
from benchmarks import record
from benchmarks.paper import cohort_of, elsewhere
from distcondense.api import evaluate_run
from distcondense.data.cohort import Cohort
from distcondense.evaluation.attacks.targets import places
from distcondense.evaluation.findings import Findings
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import TRAINED_ON, Score
from distcondense.evaluation.section import Section
from distcondense.methods.base import method_named, method_names
from distcondense.outcomes.measures import title

PARTS = ("utility", "sites", "interpretation", "hazards", "curves", "landscape", "copies", "membership", "attribute")
FIGURES = {
    "landscape": "Figure 1",
    "curves": "Figure 2",
    "utility": "Figure 3",
    "interpretation": "Figure 4",
    "hazards": "Table 5",
    "sites": "Table 4",
    "membership": "Figure 5A",
    "attribute": "Figure 5B",
    "copies": "Beside it",
}
PLANS: dict[str, dict[str, Any]] = {
    "seer": {"ipc": 100, "private": {"epsilon": 2.5}, "published": {"epsilon": 2.5}},
    "adult": {"ipc": 100, "private": {"epsilon": 1.0}, "published": {"epsilon": 2.5}},
    "brfss": {"ipc": 100, "private": {"epsilon": 1.0}, "published": {"epsilon": 2.5}},
    "curial": {"ipc": 100, "private": {"epsilon": 1.0}, "published": {"epsilon": 2.5}},
    "diabetes": {"ipc": 100, "private": {"epsilon": 1.0}, "published": {"epsilon": 1.937}},
    "proteomics": {"ipc": 100, "private": {"epsilon": 2.5}, "published": {"epsilon": 2.5, "steps": 200}},
}
HOMES = {"curial": "puh", "proteomics": "proteomics5"}  # plan → cohort of benchmarks/paper.py, where called otherwise
OTHERS = {"curial": ("ouh", "uhb")}
NAMED = {  # the attributes of Figure 5B, as Thakur et al. name them (§4.6)
    "curial": ("c_reactive_protein", "estimated_gfr", "oxygen_saturation", "creatinine", "oxygen_device"),
    "proteomics": ("ACTA2", "CD27", "CD5L", "IL10RB", "TNFRSF12B"),
}
MOST_ATTRIBUTES = 60  # columns that are guessed, the named ones first
STRONGEST = 10
ATTRIBUTE_SEEDS = 5


def tables(name: str) -> tuple[Cohort, dict[str, Cohort]]:
    """The cohort, and other sites of the same columns."""
    return cohort_of(HOMES.get(name, name)), {other: elsewhere(other) for other in OTHERS.get(name, ())}


def attributes(name: str, method: str, cohort: Cohort, threads: int) -> Iterator[str]:
    """Figure 5B: R² of each attribute of real rows, learned from the others of condensed rows, over five seeds.

    Gradient boosting as printed (100 trees, depth 3, rate 0.1), every column as a number; a category is its code.
    """
    from xgboost import XGBRegressor

    plan, found = PLANS[name], dict[str, list[float]]()
    for seed in range(ATTRIBUTE_SEEDS):
        result = dc.condense(cohort, method=method, ipc=plan["ipc"], seed=seed, threads=threads, **plan[method])
        inputs = EvaluationInput.from_result(cohort, result)
        real = inputs.codec.encode(inputs.sample(inputs.split.train, 5_000, seed).features)
        every = places(inputs.codec)
        named = [(block, place) for block, place in every if block.column.name in NAMED.get(name, ())]
        rest = [one for one in every if one[0].column.name not in NAMED.get(name, ())]
        for block, place in [*named, *rest][:MOST_ATTRIBUTES]:
            of_made, of_real = (
                rows[:, place].argmax(1).astype(np.float64) if block.values else rows[:, place.start]
                for rows in (inputs.rows, real)
            )
            if np.ptp(of_real) == 0:
                continue
            learned, asked = (np.delete(rows, np.r_[place], axis=1) for rows in (inputs.rows, real))
            model = XGBRegressor(n_estimators=100, max_depth=3, learning_rate=0.1, n_jobs=threads, random_state=seed)
            wrong = model.fit(learned, of_made).predict(asked) - of_real
            found.setdefault(block.column.name, []).append(float(1 - (wrong**2).mean() / of_real.var()))
    mean = {column: float(np.mean(values)) for column, values in found.items()}
    strongest = sorted(mean, key=lambda column: -mean[column])[:STRONGEST]
    printed = [column for column in NAMED.get(name, ()) if column in mean]
    yield f"## Figure 5B: R² by attribute ({method}), {ATTRIBUTE_SEEDS} seeds\n"
    yield f"{len(found)} of {len(places(inputs.codec))} columns were guessed, of 5,000 training rows at most.\n"
    rows = [
        (
            column,
            "named in the paper" if column in printed else "",
            f"{mean[column]:.3f}",
            f"{np.std(found[column], ddof=1):.3f}",
        )
        for column in dict.fromkeys([*printed, *strongest])
    ]
    yield from grid(["attribute", "", "R², mean", "sd over seeds"], rows)


def run(
    name: str, method: str, cohort: Cohort, sites: Mapping[str, Cohort], threads: int, pages: Path | None
) -> Findings:
    """Condensed and evaluated, in a folder that is thrown away but for its page, where one is wanted."""
    plan = PLANS[name]
    with tempfile.TemporaryDirectory() as room, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = Path(room) / f"{name}-{method}"
        dc.condense(cohort, method=method, ipc=plan["ipc"], threads=threads, out=out, **plan[method])
        (found,) = evaluate_run(out, cohort, parts=PARTS, external=sites, threads=threads, log=print).values()
        if pages is not None:
            shutil.copy(out / "internal/report.html", pages / f"figures-{name}-{method}.html")
    return found


def number(score: Score) -> str:
    if math.isnan(score.value):
        return f"— ({score.note})" if score.note else "—"
    low, high = (f"{x:.3f}" if not math.isnan(x) else "—" for x in (score.low, score.high))
    return f"{score.value:.3f} [{low}, {high}]"


def grid(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |"
    yield ""


def quick(found: Mapping[str, Findings]) -> Iterator[str]:
    """Tables 2 and 3."""
    yield "## Tables 2 and 3: held-out rows\n"
    measures = list(dict.fromkeys(s.measure for one in found.values() for s in one.quick))
    rows = []
    for method, one in found.items():
        for way, words in TRAINED_ON.items():
            here = {s.measure: s for s in one.quick if s.trained_on == way}
            if here:
                rows.append(
                    [
                        method,
                        words,
                        next(iter(here.values())).rows,
                        *(number(here[m]) if m in here else "—" for m in measures),
                    ]
                )
    yield from grid(["method", "trained on", "rows", *(title(m) for m in measures)], rows)


def part_of(part: Section) -> Iterator[str]:
    for table in part.tables:
        yield f"{table.title}\n"
        yield from grid(table.columns, ([_cell(cell) for cell in row] for row in table.rows))
    main = [s for s in part.scores if not s.group or part.name in ("subgroups",)]
    if main:
        rows = [
            [
                part.titles.get(s.measure, title(s.measure)),
                TRAINED_ON.get(s.trained_on, s.trained_on),
                s.tested_on,
                s.student,
                s.labels,
                number(s),
                "" if s.ceiling is None else f"{s.ceiling:.3f}",
                "" if s.power is None else f"{s.power:.3f}",
            ]
            for s in main
        ]
        head = ["measure", "trained on", "tested on", "student", "labels", "value [95%]", "ceiling", "power"]
        kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
        yield from grid([head[i] for i in kept], ([row[i] for i in kept] for row in rows))
    for note in part.notes:
        yield f"- {note}"
    yield ""


def _cell(cell: Any) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def report(name: str, found: Mapping[str, Findings], seconds: float) -> str:
    lines = [
        f"# {name}: Thakur et al. 2026's tables and figures, as produced here\n",
        f"One run of each method, {seconds:.0f} s in all. Every interval is 95% over"
        " held-out rows. Cohorts are not the paper's (see benchmarks/figures.py). "
        "Constants of the private method were set with Adult, BRFSS and SEER in view.\n",
    ]
    lines += [f"- {method}: {one.privacy.short()}" for method, one in found.items()]
    lines += ["", *quick(found)]
    for part_name in PARTS:
        for method, one in found.items():
            for part in one.parts:
                if part.name == part_name:
                    lines += [f"## {FIGURES[part_name]}: {part.title} ({method})\n", *part_of(part)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(PLANS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--methods", default=",".join(method_names()), help="with commas between them")
    parser.add_argument("--pages", type=Path, help="a folder for the pages with the figures")
    asked = parser.parse_args()
    started, (cohort, sites) = time.perf_counter(), tables(asked.name)
    found = {}
    for method in asked.methods.split(","):
        if method in PLANS[asked.name] and method_named(method).takes(cohort.outcome.kind):
            found[method] = run(asked.name, method, cohort, sites, asked.threads, asked.pages)
    text = report(asked.name, found, time.perf_counter() - started)
    if "published" in found:
        text += "\n" + "\n".join(attributes(asked.name, "published", cohort, asked.threads))
    record.write(f"figures-{asked.name}", seeds=[0], text=text)
    print(text)


if __name__ == "__main__":
    main()
