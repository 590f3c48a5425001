"""How fast distances and attacks are: `python -m benchmarks.attacks` (a million real rows × 2,000 condensed, d = 50).

    nearest condensed row of each real row, and nearest real row of each condensed one, k = 5, on two threads
    scikit-learn   NearestNeighbors(algorithm="brute") on 20,000 of the real rows, scaled up: a ratio of one run
    rooms          the copy check and every attack that needs the table and the rows only (--rooms)

Each line is a process of its own, so that its peak memory (resident, with its data and the libraries) is its own.
Writes results/attacks.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks import record

NEIGHBOURS = 5
SAMPLE = 20_000
ROOMS = ("copies", "membership", "distance", "domias", "attribute")


def rows_of(count: int, width: int, seed: int) -> Any:
    """Standardised rows, a third of the columns 0/1."""
    rows = np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)
    few = width // 3
    rows[:, :few] = 2 * (rows[:, :few] > 0.5) - 1
    return rows


def kernel(way: str, real: int, made: int, width: int, threads: int) -> dict[str, float]:
    """Seconds of one direction, beside scikit-learn's on fewer real rows, per real row."""
    from sklearn.neighbors import NearestNeighbors

    from distcondense.kernels.neighbours import nearest

    people, condensed = rows_of(real, width, 0), rows_of(made, width, 1)
    nearest(condensed[:10], condensed, NEIGHBOURS, threads)  # compiles
    points, among = (people, condensed) if way == "to condensed" else (condensed, people)
    began, busy = time.perf_counter(), time.process_time()
    nearest(points, among, NEIGHBOURS, threads)
    ours, busy = time.perf_counter() - began, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    some = people[:SAMPLE]
    points, among = (some, condensed) if way == "to condensed" else (condensed, some)
    began = time.perf_counter()
    NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute", n_jobs=threads).fit(among).kneighbors(points)
    theirs = (time.perf_counter() - began) * real / len(some)
    return {
        "seconds": ours,
        "processor_seconds": busy,
        "peak_mb": peak,
        "scikit_learn_seconds_scaled": theirs,
        "ratio": theirs / ours,
    }


def room(name: str, real: int, made: int, width: int, threads: int) -> dict[str, float]:
    """Seconds of one part on a simulated table."""
    import pandas as pd

    import distcondense as dc
    from distcondense.data.codec import Codec
    from distcondense.data.persons import Split, Stratified
    from distcondense.evaluation.inputs import EvaluationInput
    from distcondense.evaluation.suite import SECTIONS  # module or module:function
    from distcondense.outcomes.base import Labelled
    from distcondense.privacy.statement import Privacy
    from distcondense.runs.result import Result

    names = [f"x{k}" for k in range(width)]
    schema = dc.Schema(
        (
            *(dc.Column(name, "continuous", low=-8, high=8) for name in names),
            dc.Column("died", "binary", categories=(0, 1)),
        )
    )

    def cohort(count: int, seed: int) -> dc.Cohort:
        rows = rows_of(count, width, seed)
        frame = pd.DataFrame(rows.astype(np.float64), columns=names)
        frame["died"] = (np.random.default_rng(seed).random(count) < 1 / (1 + np.exp(-rows[:, -1]))).astype(int)
        return dc.Cohort.from_frame(frame, target="died", schema=schema, owned=True)

    table, condensed = cohort(real, 0), cohort(made, 1)
    cut = real * 4 // 5
    codec, split = Codec.public(table.schema), Split(np.arange(cut), np.empty(0, np.int64), np.arange(cut, real))
    result = Result.from_rows(
        condensed.features,
        table.schema,
        Labelled(condensed.outcome),
        Privacy("none", "toy", None, None, "none", "none"),
        Stratified(0),  # nobody asks it: the split is given
        learner=table.outcome.kind.learner(),
        codec=codec,
        encoded=codec.encode(condensed.features),
    )
    home = EvaluationInput(table, split, result)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measure = import_module(SECTIONS[name].split(":")[0]).section
    began, busy = time.perf_counter(), time.process_time()
    part = measure(home, seed=0, threads=threads)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "processor_seconds": busy,
        "peak_mb": peak,
        "table_mb": before,
        "scores": len(part.scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=int, default=1_000_000)
    parser.add_argument("--made", type=int, default=2_000)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rooms", action="store_true", help="the copy check and the attacks, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    size = (asked.real, asked.made, asked.width, asked.threads)
    if asked.one:
        found = room(asked.one, *size) if asked.one in ROOMS else kernel(asked.one, *size)
        print(json.dumps(found))
        return
    sizes = ["--real", str(asked.real), "--made", str(asked.made), "--width", str(asked.width)]
    results: dict[str, Any] = {"real": asked.real, "made": asked.made, "width": asked.width, "threads": asked.threads}
    for name in ("to condensed", "to real", *(ROOMS if asked.rooms else ())):
        call = [sys.executable, "-m", "benchmarks.attacks", *sizes, "--threads", str(asked.threads), "--one", name]
        found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
        results[name] = {key: round(value, 3) for key, value in found.items()}
        print(name, results[name])
    record.write("attacks", results, seeds=[])


if __name__ == "__main__":
    main()
