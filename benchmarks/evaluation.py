"""The quick part of the evaluation at scale: `python -m benchmarks.evaluation [--rows 1000000]`.

A simulated table, condensed at ε = 1 (end-to-end). In one run: seconds of the quick part (models of a bounded sample of
real rows, of the condensed rows and of random ones; all held-out rows tested on, with intervals) beside those of one
XGBoost fit on all training rows. The ratio is what counts; it is wanted below 1.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import record
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.quick import measured as first_scores

COLUMNS = 20


def table(rows: int, seed: int = 0) -> Cohort:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, COLUMNS)).clip(-5, 5).round(2)
    risk = values[:, :6] @ np.array([0.9, -0.7, 0.5, 0.4, -0.3, 0.2]) + 0.5 * values[:, 0] * values[:, 1] - 1.5
    names = [f"x{j}" for j in range(COLUMNS)]
    frame = pd.DataFrame(values, columns=names)
    frame["ill"] = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    columns = [Column(name, "continuous", low=-5, high=5, decimals=2) for name in names]
    schema = Schema((*columns, Column("ill", "binary", categories=(0, 1))))
    return Cohort.from_frame(frame, target="ill", schema=schema, owned=True)


def measured(rows: int, threads: int) -> dict[str, float]:
    cohort = table(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        result = dc.condense(cohort, epsilon=1.0, ipc=100, threads=threads)
        whole = time.perf_counter() - started
    home = EvaluationInput.from_result(cohort, result)
    started = time.perf_counter()
    scores, _ = first_scores(home, seed=0, threads=threads)
    quick = time.perf_counter() - started
    train = home.split.train
    started = time.perf_counter()
    home.learner.fit(home.codec.encode(cohort.features.iloc[train]), cohort.outcome.take(train), threads=threads)
    fit = time.perf_counter() - started
    return {
        "rows": rows,
        "threads": threads,
        "condense, with the quick part": whole,
        "quick part": quick,
        "one XGBoost fit on all training rows": fit,
        "ratio": quick / fit,
        "scores": len(scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    found = measured(asked.rows, asked.threads)
    record.write("evaluation", found, seeds=[0])
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
