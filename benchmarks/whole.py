"""Whole runs beside one fit of the same table: `python -m benchmarks.whole`.

Each command runs in a process of its own, on one thread: seconds of the processor, which other guests of the machine
change least, over those of one fit of the reference on the same training rows, here. What a run's own timings say of
the clock stands below: every second has a name.

    published   simulated proteomics, 4,000 × 2,932, IPC 1000, 300 steps, three validations; with 3 steps instead it is
                what stands around the loop
    private     Adult, IPC 100, ε = 1 end-to-end
    svm         scikit-learn's SVC with probabilities as a black box: simulated CURIAL, 800 rows, IPC 25, 8 steps
"""

from __future__ import annotations

import json
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

STEPS, FEW, VALIDATIONS = 300, 3, 3
RUNS = ("published", "published, around the loop", "private", "svm")


def cohort_of(run: str) -> Cohort:
    """The table of a run."""
    if run == "private":
        return cohorts.adult(declared=True)
    made = datasets.load("proteomics", rows=4000) if run != "svm" else datasets.load("curial", rows=800)
    return Cohort.from_frame(made.frame, **made.how)


def condense(run: str, out: Path) -> None:
    """The run itself, in a process that does nothing else."""
    cohort = cohort_of(run)
    if run == "private":
        dc.condense(cohort, epsilon=1.0, ipc=100, threads=1, out=out)
        return
    if run == "svm":
        from sklearn.svm import SVC

        model = SVC(probability=True).fit(dc.design(cohort), cohort.outcome["label"])
        dc.condense(cohort, method="published", reference=model, noise=False, ipc=25, steps=8, threads=1, out=out)
        return
    steps = STEPS if run == "published" else FEW
    dc.condense(
        cohort,
        method="published",
        sigma_base=8.0,
        ipc=1000,
        steps=steps,
        evaluate_every=steps // VALIDATIONS,
        threads=1,
        out=out,
    )


def seconds_of_a_fit(cohort: Cohort) -> float:
    """Of the kind's default learner on training rows, on one thread."""
    rows = dc.design(cohort).to_numpy(np.float32)[Stratified(0).split(cohort).train]
    outcome = cohort.outcome.take(Stratified(0).split(cohort).train)
    started = time.process_time()
    cohort.outcome.kind.learner().fit(rows, outcome, seed=0, threads=1)
    return time.process_time() - started


def measured(run: str) -> dict[str, Any]:
    """Seconds of a run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        before, began = _children(), time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.whole", "--run", run, "--out", f"{folder}/run"]
        subprocess.run(command, check=True, capture_output=True)
        cpu, clock = _children() - before, time.perf_counter() - began
        kept = json.loads(Path(folder, "run", "internal", "run.json").read_text(encoding="utf-8"))
        release = sum(file.stat().st_size for file in Path(folder, "run", "release").iterdir())
    return {"run": run, "cpu": cpu, "clock": clock, "timings": kept["timings_seconds"], "release_bytes": release}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def page(found: Sequence[dict[str, Any]]) -> str:
    """A table of the runs, and one of their own timings."""
    lines = ["| run | CPU seconds | one fit | fits | by the clock | release |", "| --- " * 6 + "|"]
    for one in found:
        fits = f"{one['cpu'] / one['fit']:.1f}" if one["run"] != "svm" else "—"
        size = f"{one['release_bytes'] / 1e6:.0f} MB"
        lines.append(f"| {one['run']} | {one['cpu']:.1f} | {one['fit']:.2f} | {fits} | {one['clock']:.0f} | {size} |")
    lines += ["", "Their own timings, in seconds by the clock:", ""]
    for one in found:
        told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in one["timings"].items())
        lines.append(f"- {one['run']}: {told}")
    return "\n".join(lines)


def main() -> None:
    if "--run" in sys.argv:
        condense(sys.argv[2], Path(sys.argv[4]))
        return
    found = [{**measured(run), "fit": seconds_of_a_fit(cohort_of(run))} for run in RUNS]
    print(page(found))
    record.write("whole", found, seeds=1, text=page(found))


if __name__ == "__main__":
    main()
