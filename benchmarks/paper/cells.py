"""What is run: a cell is one run, and what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import distcondense as dc
from benchmarks import record
from benchmarks.paper import figures
from benchmarks.paper.printed import (
    BESIDE,
    MANY_COLUMNS,
    PAIRS,
    TABLES,
    TUNED,
    UNDECLARED,
    WIDE,
    cohort_of,
    elsewhere,
    row_of,
)
from distcondense.evaluation.score import Score
from distcondense.runs.memory import MemoryPeak

METHODS = ("published", "raw", "as-printed", "private", "figures-published", "figures-private", "attributes")
FIGURES = {  # cohort → reference: those that figures are made of, each by `published` and by `private`
    "seer": "cox", "diabetes": "cox", "puh": "xgb", "adult": "xgb", "proteomics5": "xgb",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run. `ipc` is 0 for `private`, which makes all of them at once."""

    cohort: str
    method: str  # of `METHODS`
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
            for ipc, _, epsilon in row:
                yield Cell(name, "published", row.reference, ipc, epsilon, seed)
                if name not in MANY_COLUMNS and (row in TABLES or name == "adult"):
                    yield Cell(name, "raw", row.reference, ipc, epsilon, seed)
            if name not in MANY_COLUMNS:
                yield Cell(name, "as-printed", row.reference, 100, row.epsilon[1], seed)
            if name not in UNDECLARED and name != "proteomics" and row.reference in ("xgb", "cox"):
                for epsilon in (row.epsilon[1], 1.0):
                    yield Cell(name, "private", "", 0, epsilon, seed)
            if seed == 0 and FIGURES.get(name) == row.reference:
                yield Cell(name, "figures-published", row.reference, 100, row.epsilon[1], 0)
                yield Cell(name, "figures-private", "", 100, row.epsilon[1], 0)
                if name != "adult":
                    yield Cell(name, "attributes", row.reference, 100, row.epsilon[1], 0)


def run(cell: Cell, threads: int) -> dict[str, Any]:
    """What one cell gives, with its processor's seconds and how it was made."""
    cohort, memory = cohort_of(cell.cohort), MemoryPeak()
    started, worked = time.perf_counter(), time.process_time()
    if cell.method == "attributes":
        found = {"attributes": figures.attributes(cell.cohort, cohort, settings(cell, threads), threads)}
    elif cell.method.startswith("figures-"):
        found = {"figures": figures.sections(cohort, settings(cell, threads), threads)}
    else:
        found = {"sets": scored(cell, threads)}
    return {
        "cell": asdict(cell),
        "made": record.made_now([cell.seed]),  # the file's own head is of the command that wrote it last
        **found,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
        "peak_memory_bytes": memory.peak,
    }


def settings(cell: Cell, threads: int) -> dict[str, Any]:
    """The arguments of `dc.condense` for a cell."""
    how: dict[str, Any] = {"seed": cell.seed, "threads": threads, "epsilon": cell.epsilon, "ipc": cell.ipc or None}
    if cell.method in ("private", "figures-private"):
        ipcs = [ipc for ipc, *_ in row_of(cell.cohort)]
        return {**how, "method": "private", "ipc": cell.ipc or ipcs}
    how |= {"method": "published", "reference": cell.reference}
    if cell.method == "as-printed":
        return {**how, "preset": "as-printed"}
    how |= WIDE if cell.cohort in MANY_COLUMNS else {}
    how |= TUNED.get((cell.cohort, cell.reference), {})
    return {**how, "soft": True} if cell.method == "raw" else how


def scored(cell: Cell, threads: int) -> dict[str, Any]:
    """By records per class the scores at home and elsewhere, and the ε with its words."""
    cohort = cohort_of(cell.cohort)
    made = dc.condense(cohort, **settings(cell, threads))
    sets: dict[str, Any] = {}
    for ipc, result in (made if cell.method == "private" else {cell.ipc: made}).items():
        scores = [Score.from_dict(entry) for entry in result.internal["scores"]]
        away = {there for home, there in PAIRS if home == cell.cohort}
        if away and len(result.frame) and cell.method in ("published", "private"):
            external = {there: elsewhere(there) for there in sorted(away)}
            scores += [
                s for s in dc.evaluate(cohort, result, external=external, threads=threads) if s.tested_on in away
            ]
        privacy, timings = result.privacy, result.record["timings_seconds"]
        sets[str(ipc)] = {
            "scores": [slim(score) for score in scores],
            "epsilon": privacy.epsilon,
            "epsilon_at_last_step": privacy.epsilon_at_last_step,
            "guarantee": privacy.guarantee,
            "worst_case_epsilon": privacy.worst_case_epsilon,
            "answer": privacy.answer,
            "sigma_base": privacy.parameters.get("sigma_base"),
            "steps": privacy.parameters.get("steps"),
            "noise": result.internal.get("noise"),
            "timings": {name: round(seconds, 2) for name, seconds in timings.items()},
        }
    return sets


def slim(score: Score) -> dict[str, Any]:
    """Without what is empty: hundreds of cells are kept in one file."""
    blank = Score("", "", "", 0.0, 0.0, 0.0, 0, False).to_dict()
    kept = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in score.to_dict().items()}
    needed = ("measure", "trained_on", "tested_on", "value", "low", "high", "n", "covered")
    return {k: v for k, v in kept.items() if k in needed or v != blank[k]}
