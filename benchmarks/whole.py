"""Whole runs beside one fit of the same table: `python -m benchmarks.whole [--only RUN …] [--beside CHECKOUT]`.

Each command runs in a process of its own, on one thread: seconds of the processor, which other guests of the machine
change least, over those of one fit of the reference on the same training rows, here: of the whole process, with Python,
its libraries and the table, and of the call of `condense` alone. What a run's own timings say of the clock stands
below. Of two runs the one that took less counts. Another checkout's runs, one before a change, are made in turn with
this one's.

    published   simulated proteomics, 4,000 × 2,932, IPC 1000, 300 steps, three validations; with 3 steps instead it is
                what stands around the loop
    private     Adult, IPC 100, ε = 1 end-to-end
    svm         scikit-learn's SVC with probabilities as a black box: simulated CURIAL, 800 rows, IPC 25, 8 steps
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data import datasets
from distcondense.data.cohort import Cohort
from distcondense.data.persons import Stratified
from distcondense.runs.release import commit_of

STEPS, FEW, VALIDATIONS = 300, 3, 3
RUNS = ("published", "published, around the loop", "private", "svm")


def cohort_of(run: str) -> Cohort:
    """The table of a run."""
    if run == "private":
        return cohorts.adult(declared=True)
    made = datasets.load("proteomics_like", rows=4000) if run != "svm" else datasets.load("curial_like", rows=800)
    return Cohort.from_frame(made.frame, **made.how)


def condense(run: str, out: Path) -> float:
    """The run itself, in a process that does nothing else; CPU seconds of the call."""
    cohort = cohort_of(run)
    steps = FEW if run == "published, around the loop" else STEPS
    how: dict[str, Any] = {
        "method": "published",
        "sigma_base": 8.0,
        "ipc": 1000,
        "steps": steps,
        "evaluate_every": steps // VALIDATIONS,
    }
    if run == "private":
        how = {"epsilon": 1.0, "ipc": 100}
    elif run == "svm":
        from sklearn.svm import SVC

        model = SVC(probability=True, random_state=0).fit(dc.design(cohort), cohort.outcome["label"])
        how = {"method": "published", "reference": model, "noise": False, "ipc": 25, "steps": 8}
    started = time.process_time()
    dc.condense(cohort, **how, threads=1, out=out)
    return time.process_time() - started


def seconds_of_a_fit(cohort: Cohort) -> float:
    """Of the kind's default learner on training rows, on one thread."""
    rows = dc.design(cohort).to_numpy(np.float32)[Stratified(0).split(cohort).train]
    outcome = cohort.outcome.take(Stratified(0).split(cohort).train)
    started = time.process_time()
    cohort.outcome.kind.learner().fit(rows, outcome, seed=0, threads=1)
    return time.process_time() - started


def measured(run: str, checkout: Path) -> dict[str, Any]:
    """Seconds of a run in a process of its own, by the code of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = _children(), time.perf_counter()
        command = [sys.executable, __file__, "--run", run, "--out", f"{folder}/run"]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        cpu, clock = _children() - before, time.perf_counter() - began
        kept = json.loads(Path(folder, "run", "internal", "run.json").read_text(encoding="utf-8"))
        release = sum(file.stat().st_size for file in Path(folder, "run", "release").iterdir())
    commit = (commit_of(checkout) or "unknown")[:10]
    return {
        "run": run,
        "commit": commit,
        "cpu": cpu,
        "call": float(said.split()[-1]),
        "clock": clock,
        "timings": kept["timings_seconds"],
        "release_bytes": release,
    }


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def page(found: Sequence[dict[str, Any]]) -> str:
    """A table of the runs, and one of their own timings."""
    lines = ["| run | commit | CPU seconds | the call | one fit | fits | the call | by the clock | release |"]
    lines.append("| --- " * 9 + "|")
    for one in found:
        seconds = [f"{one[key]:.1f}" for key in ("cpu", "call")]
        fits = [f"{one[key] / one['fit']:.1f}" if one["run"] != "svm" else "—" for key in ("cpu", "call")]
        size = f"{one['release_bytes'] / 1e6:.0f} MB"
        cells = (one["run"], one["commit"], *seconds, f"{one['fit']:.2f}", *fits, f"{one['clock']:.0f}", size)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Their own timings, in seconds by the clock:", ""]
    for one in found:
        told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one["timings"].items())
        lines.append(f"- {one['run']}, {one['commit']}: {told}")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--beside", type=Path, help="another checkout")
    options.add_argument("--only", nargs="+", choices=RUNS, default=RUNS)
    options.add_argument("--run", help=argparse.SUPPRESS)
    options.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    said = options.parse_args()
    if said.run:
        print(condense(said.run, said.out))
        return
    checkouts = [record.ROOT] if said.beside is None else [said.beside, record.ROOT]
    found = []
    for run in said.only:
        fit = seconds_of_a_fit(cohort_of(run))
        both = [measured(run, checkout) for checkout in checkouts * 2]  # the first of each may compile kernels
        better = [min(both[k :: len(checkouts)], key=lambda one: one["cpu"]) for k in range(len(checkouts))]
        found += [{**one, "fit": fit} for one in better]
    print(page(found))
    record.write("whole", found, seeds=1, text=page(found))


if __name__ == "__main__":
    main()
