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
    Figure 4     SHAP                         Figure 5 membership and attribute inference
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

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.api import evaluate_run
from distcondense.data.cohort import Cohort
from distcondense.data.datasets import load
from distcondense.evaluation.findings import Findings
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
    "proteomics": {"ipc": 100, "private": {"epsilon": 2.5}, "published": {"epsilon": 2.5}},
}
PROTEOMICS: dict[str, Any] = {"rows": 10_000, "prevalence": 0.05}  # of 2,932 proteins; the paper has 52,999 rows
CURIAL = ("OUH", "PUH", "UHB")  # the first is home


def tables(name: str) -> tuple[Cohort, dict[str, Cohort]]:
    """The cohort, and other sites of the same columns."""
    if name in ("seer", "adult", "brfss"):
        return getattr(cohorts, name)(declared=True), {}
    if name == "proteomics":
        return simulated("proteomics_like", **PROTEOMICS), {}
    home, *others = (simulated("curial_like", site=site) for site in CURIAL)
    return home, dict(zip(CURIAL[1:], others, strict=True))


def simulated(name: str, **how: Any) -> Cohort:
    data = load(name, **how)
    return Cohort.from_frame(data.frame, **data.how)


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
    record.write(f"figures-{asked.name}", seeds=[0], text=text)
    print(text)


if __name__ == "__main__":
    main()
