"""Hospitals together against all rows in one place, at the same ε: `python -m benchmarks.federated adult 3`.

adult: five sites, split by years of education, so that they differ. hospitals: a simulated cohort at three hospitals of
different size. The second argument is the number of seeds (1). Each seed holds out a fifth of the rows anew. Sites are
processes of this machine with real messages in a folder; one site may collude (t = 1). All ε are end-to-end at
δ = 1e-5. Scores are on the held-out rows: AUROC of the private model itself and of an XGBoost student of the released
rows' soft labels (100 a class); "pairs" is the total variation over all pairs of columns, as benchmarks/private.py has
it: there one sees what choosing pairs by Gaussian answers loses.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.private import pairs, students
from distcondense.data.cohort import Cohort
from distcondense.data.tables import read_table
from distcondense.federated.accounting import Sharing
from distcondense.federated.demo import demo
from distcondense.methods.private.options import PrivateOptions
from distcondense.outcomes.measures import auroc
from distcondense.privacy.accounts import STATE
from distcondense.privacy.verify import verify

EPSILON, DELTA, IPC = 1.0, 1e-5, 100
SCHOOL = (8, 9, 10, 12)  # years of education, last of each site but the fifth's
ROWS, SHARES = 20_000, (0.5, 0.3, 0.2)


def adult() -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """Rows, how they are read, and at which of five sites each is."""
    frame = read_table(cohorts.path_of("adult_48842.csv.gz")).drop(columns=["split", "education"]).replace("?", None)
    how = {"target": "income", "positive": ">50K", "schema": cohorts.schema_of("adult")}
    return frame, how, np.searchsorted(SCHOOL, frame["education-num"].to_numpy(float))


def hospitals() -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """A simulated cohort at three hospitals."""
    from distcondense.data.datasets import load

    made = load("curial_like", rows=ROWS, seed=1)
    place = np.random.default_rng(1).choice(len(SHARES), len(made.frame), p=SHARES)
    return made.frame, {name: value for name, value in made.how.items() if value is not None}, place


def runs(data: str, seeds: int) -> Iterator[dict[str, Any]]:
    frame, how, place = {"adult": adult, "hospitals": hospitals}[data]()
    sharing, options = Sharing(int(place.max()) + 1, 1), {"epsilon": EPSILON, "delta": DELTA, "ipc": IPC}
    for seed in range(seeds):
        held = np.random.default_rng([seed, 34]).random(len(frame)) < 0.2
        train, test = (Cohort.from_frame(frame[part], **how) for part in (~held, held))
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            central = dc.condense(train, **options, seed=seed, holdout=0.0, out=f"{folder}/central")
            yield {"seed": seed, "where": "one place", **_scores(central, train, test, seed, began)}
            began = time.perf_counter()
            tables = {f"site-{k + 1}": frame[~held & (place == k)] for k in range(sharing.sites)}
            reading = {name: value for name, value in how.items() if name != "schema"}
            settings = PrivateOptions(**options, seed=seed, holdout=0.0)
            made = demo(Path(folder) / "sites", tables, how["schema"], reading, settings, sharing, log=print)
            found = _scores(dc.load(made.run), train, test, seed, began)
            yield {
                "seed": seed,
                "where": f"{sharing.sites} sites",
                **found,
                "seconds": made.seconds,
                "rounds": made.rounds,
                "bytes_each": made.bytes_each,
                "verified": verify(made.run).holds,
            }


def _scores(result: Any, train: Cohort, test: Cohort, seed: int, began: float) -> dict[str, Any]:
    seconds, learned = time.perf_counter() - began, result.sampler.learned
    codes = np.stack([one.codes(test.features[one.column.name]) for one in learned.model.cells], axis=1)
    made = pairs(learned, train, test, seed)
    return {
        "private model": float(auroc(test.outcome["label"], learned.model.margin(codes))),
        "xgb, soft": students(result, train, test, seed, 2)["xgb, soft"],
        **{f"pairs, {name}": value for name, value in made.items()},
        "epsilon_end_to_end": result.privacy.epsilon,
        "seconds": seconds,
    }


def table(data: str, found: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    frame = pd.DataFrame(found)
    columns = [name for name in frame.columns if name not in ("seed", "where", "verified")]
    lines = [f"## {data}, ε = {EPSILON:g} (end-to-end)", "", "| | " + " | ".join(columns) + " |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for where, rows in frame.groupby("where", sort=False):
        means = (rows[name].mean() for name in columns)
        lines.append(f"| {where} | " + " | ".join("" if np.isnan(m) else f"{m:,.4g}" for m in means) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=["adult", "hospitals"])
    parser.add_argument("seeds", type=int, nargs="?", default=1)
    asked = parser.parse_args()
    os.environ[STATE] = "off"  # nobody's patients
    found = list(runs(asked.data, asked.seeds))
    print(text := table(asked.data, found))
    record.write(f"federated-{asked.data}", found, seeds=asked.seeds, text=text)


if __name__ == "__main__":
    main()
