"""run.json: how a run was made, of which table, with what. For the custodian."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from distcondense import kernels
from distcondense.arrays import Index
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import Split
from distcondense.errors import is_command
from distcondense.runs.files import plain
from distcondense.runs.result import Result, RunDetails

PACKAGES = (
    "distcondense",
    "numpy",
    "pandas",
    "numba",
    "xgboost",
    "lifelines",
    "treelite",
    "dp-accounting",
    "opendp",
    "scikit-learn",
    "ray",
)


def run_record(
    result: Result,
    details: RunDetails,
    cohort: Cohort,
    split: Split,
    *,
    method: str,
    settings: Mapping[str, Any],
    threads: int,
    fingerprint: str,
) -> dict[str, Any]:
    """What run.json says of a run, but for its scores and times.

    `details` must have a codec and a learner; of several sets any will do, for their notes are told apart before.
    """
    assert details.codec is not None
    assert details.learner is not None
    parts = asdict(split)
    return {
        "status": "finished",
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": method,
        "settings": settings,
        "reference": None if details.reference is None else details.reference.name,
        "student": details.learner.name,
        "unit": details.unit,
        "soft_labels": details.labelled.soft is not None,
        "weighted": details.labelled.weight is not None,
        "raw": result.raw,
        "splitting": details.splitting.to_dict(),
        "backend": kernels.backend(),
        "threads": threads,
        "execution": {"executor": "in-process", "threads": threads},
        "data": {
            "rows": len(cohort),
            "persons": _persons(cohort),
            "fingerprint": fingerprint,
            "how": how_read(cohort),
            "columns": len(cohort.schema.columns),
            "encoded_columns": len(details.codec.names),
            "outcome": cohort.outcome.kind.facts(),
            "split": {name: len(rows) for name, rows in parts.items()},
            "split_persons": {name: _persons(cohort, rows) for name, rows in parts.items()},
            "columns_not_in_schema": list(cohort.ignored),
        },
        "privacy": result.privacy.short(),
        **details.notes,
        "timings_seconds": details.timings,
        "versions": {"python": sys.version.split()[0], "platform": platform.machine(), **_versions()},
    }


def seconds_before(began: float) -> dict[str, float]:
    """What a run took before it began: reading and checking the table since `began`, and a command's start before that.

    `began` is on the clock of `time.perf_counter`.
    """
    now, taken = time.perf_counter(), {}
    if is_command():
        try:
            ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
            taken["start"] = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK") - (now - began)
        except (OSError, ValueError, AttributeError):  # not on Linux
            pass
    return {**taken, "read": now - began}


def how_read(table: Cohort | LargeTable) -> dict[str, Any]:
    """How the table was read, so that `runs.reading.read_again` can read it again."""
    schema = table.how.get("schema")
    batches = {"in_batches": True} if isinstance(table, LargeTable) else {}
    return {**table.how, "schema": None if schema is None else schema.to_dict(), **batches}


def in_batches(table: LargeTable, sample: Cohort) -> dict[str, Any]:
    """What `data` says otherwise of a table that was read in batches, and measured on a sample."""
    return {
        "rows": table.read_rows,
        "files": len(table.files),
        "persons": None,
        "evaluated_on_rows": len(sample),
        "how": how_read(table),
        "columns_not_in_schema": list(table.ignored),
    }


def own_notes(notes: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Of each set's notes those that are not the same for all."""
    first = next(iter(notes.values()))
    names = [name for name in first if any(plain(own.get(name)) != plain(first[name]) for own in notes.values())]
    return {ipc: {name: own[name] for name in names} for ipc, own in notes.items()}


def _persons(cohort: Cohort, rows: Index | slice = slice(None)) -> int | None:
    """How many persons these rows are of; None where rows name nobody."""
    return None if cohort.person is None else len(np.unique(cohort.person[rows]))


def _versions() -> dict[str, str]:
    """Of the packages that are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
