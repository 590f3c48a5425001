"""The tidy table of a study: the scores of all finished cells, one row each, with what the cell is and promises.

One row per cell × IPC × part × student × tested on × trained on × metric; part "quick" is the run's own scores. A cell
that failed has one row per IPC, of part "failed", whose note says why.
`method` is what the study file calls a method, `made_by` which one it is; `main` marks the
metric that tables by IPC and plots show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from distcondense.data.outcome import kind_named
from distcondense.evaluation.score import CONDENSED, Score
from distcondense.study.design import STUDENTS, Cell, Study
from distcondense.study.folder import StudyFolder, read_json

COLUMNS = {  # name → its type
    "study": "string", "cell": "string", "data": "string", "outcome": "string", "method": "string", "made_by": "string",
    "reference": "string", "ipc": "Int64", "seed": "Int64", "tested_on": "string", "trained_on": "string",
    "rows": "Int64", "test_rows": "Int64", "metric": "string", "main": "bool", "value": "float64", "low": "float64",
    "high": "float64", "epsilon": "float64", "guarantee": "string", "delta": "float64",
    "worst_case_epsilon_end_to_end": "string", "epsilon_asked": "float64", "guarantee_asked": "string",
    "privacy": "string", "note": "string", "seconds": "float64", "making_seconds": "float64", "cpu_seconds": "float64",
    "peak_memory_bytes": "float64", "part": "string", "student": "string", "labels": "string",
    "unit": "string", "why": "string", "key": "string", "measured": "string", "commit": "string",
}  # fmt: skip
QUICK = "quick"  # the part that every run measures itself
FAILED = "failed"  # no part: there is nothing to measure
ON_PATIENTS = {"guarantee": "none", "privacy": "none: trained on patients"}


def tidy(study: Study, folder: StudyFolder) -> pd.DataFrame:
    """All finished cells; a model that could not be fitted or had no answer has rows without a value, and a note."""
    rows = []
    for cell in study.cells:
        measured = {int(ipc): " ".join(sorted(parts)) for ipc, parts in folder.parts(cell).items()}
        rows += [{**row, "measured": measured.get(row["ipc"], "")} for row in _rows_of(study.name, cell, folder)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows_of(study: str, cell: Cell, folder: StudyFolder) -> Iterator[dict[str, Any]]:
    run, name = folder.run(cell), {"study": study, "cell": folder.name(cell), **what_it_is(cell)}
    if reason := folder.failure(cell):
        yield from ({**name, "ipc": ipc, "part": FAILED, "main": False, "note": reason} for ipc in cell.ipcs)
    if not run.finished:
        return
    record, stated = read_json(run.internal / "run.json"), read_json(run.release / "privacy.json")
    outcome, took = record["data"]["outcome"]["kind"], record["timings_seconds"]
    main = kind_named(outcome).measures[0]
    head = {
        **name,
        "outcome": outcome,
        "commit": (stated.get("software") or {}).get("commit"),
        "seconds": took["total"],
        "making_seconds": took["total"] - took.get("evaluate", 0.0),
        "cpu_seconds": took.get("cpu"),
        "peak_memory_bytes": max(folder.peak(cell) or 0, record.get("peak_memory_bytes", 0)) or None,
    }
    claim = {
        "epsilon": stated["epsilon"],
        "guarantee": stated["guarantee"],
        "delta": stated["delta"],
        "unit": stated["unit"],
        "why": _why(stated),
        "privacy": record["privacy"],
        "worst_case_epsilon_end_to_end": stated["worst_case_epsilon"] or None,
    }
    done = folder.elsewhere(cell)
    tests = {cell.source.name: record, **{s.name: done[s.name] for s, _ in cell.test_on if s.name in done}}
    sets = ((place, ipc, test) for place, found in tests.items() for ipc, test in _sets(cell, found).items())
    for place, ipc, test in sets:
        scores = [Score.from_dict(found) for found in test["scores"]]
        for score in scores:
            yield {
                **head,
                "ipc": ipc,
                "tested_on": place,
                "part": QUICK,
                "main": score.measure == main,
                **_number(score, claim),
            }
        if CONDENSED not in {score.trained_on for score in scores}:
            none = bool(stated["answer"])  # a release without an answer has no rows
            yield {
                **head,
                "ipc": ipc,
                "tested_on": place,
                "trained_on": CONDENSED,
                "rows": 0 if none else None,
                "metric": main,
                "main": True,
                "part": QUICK,
                **claim,
                "note": test["scores_note"] or stated["answer"] or "not measured",
            }

    students = read_json(folder.yardstick(cell)).get("students", [])
    for of_ipc, parts in folder.parts(cell).items():
        for part, found in parts.items():
            own = found["scores"] + (students if part == STUDENTS else [])
            for score in map(Score.from_dict, own):
                yield {
                    **head,
                    "ipc": int(of_ipc),
                    "tested_on": cell.source.name,
                    "part": part,
                    "main": part == STUDENTS and score.measure == main,
                    **_number(score, claim),
                }


def what_it_is(cell: Cell) -> dict[str, Any]:
    """Which cell it is, wherever it is run."""
    return {
        "key": cell.key,
        "data": cell.data,
        "method": cell.method,
        "made_by": cell.made_by,
        "seed": cell.seed,
        "reference": cell.reference,
        "epsilon_asked": cell.epsilon,
        "guarantee_asked": "none" if cell.epsilon is None else cell.guarantee,
    }


def _why(stated: dict[str, Any]) -> str | None:
    """Why it is no theorem, in its statement's first words; None where it is one."""
    return next(iter(stated.get("why", ())), None)


def _number(score: Score, claim: dict[str, Any]) -> dict[str, Any]:
    """One score, with what its model promises."""
    return {
        "trained_on": score.trained_on,
        "rows": score.rows,
        "test_rows": score.n,
        "metric": score.measure,
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "note": score.note or None,
        "student": score.student,
        "labels": score.labels,
        **(claim if score.covered else ON_PATIENTS),
    }


def _sets(cell: Cell, tested: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """IPC → scores and note of each set that the cell has."""
    return {one["ipc"]: one for one in tested["sets"]} if "sets" in tested else {cell.ipcs[0]: tested}
