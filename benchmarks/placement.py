"""Ways of placing rows after the budget is spent: `python -m benchmarks.placement adult brfss seer --seeds 3`.

One private model per seed (ε end-to-end at δ = 1e-5, a fifth of the persons kept for the test), the same for every way;
all ways read `PrivateFit` and a seed, no patient. curial is simulated: of 30,000 rows 10,000 are learned from.

    drawn        whole rows of the joint model, as many of each stratum as a set has
    chosen       `place`, the product's: rows exchanged while a panel of students learns better from them

Each set trains students as a recipient would, on the plain outcome column without weights (XGBoost, forest, logistic
regression, SVM, a small network; survival: Cox, AFT), and XGBoost on the soft labels, where there are any. Scores are
AUROC or C-index on the real test rows. Cells are mean ± standard deviation over seeds, differences are paired with the
product's way; seconds are of one core. What one XGBoost fit of the training rows takes stands below each table.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.arrays import Matrix
from distcondense.data import datasets
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Schema
from distcondense.evaluation.common_models import CLASSIFIERS, standardised, unfitted
from distcondense.methods.private import placement
from distcondense.methods.private.placement import PlacedRows, place
from distcondense.outcomes.base import Kind
from distcondense.outcomes.private_side import PrivateFit, PrivateSide

DELTA = 1e-5
TESTED = {"curial": 2 / 3}  # share of the persons that are kept for the test
PRODUCT = "chosen (the product)"


@dataclass
class Lab:
    """One private model, a number of rows and a seed: all that a way of placing rows may know."""

    learned: PrivateFit
    side: PrivateSide
    ipc: int
    seed: int

    def place(self) -> PlacedRows:
        return place(self.learned, self.side, self.ipc, seed=self.seed)

    @cached_property
    def chosen(self) -> PlacedRows:
        return self.place()

    @cached_property
    def drawn(self) -> PlacedRows:
        with patch.object(placement, "LARGE", 0):
            return self.place()


WAYS: dict[str, Callable[[Lab], PlacedRows]] = {"drawn": lambda lab: lab.drawn, PRODUCT: lambda lab: lab.chosen}


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """Real rows that nothing was fitted on."""

    real: Cohort
    codec: Codec
    rows: Matrix
    unit: float

    @classmethod
    def of(cls, real: Cohort, learned: PrivateFit, side: PrivateSide) -> Test:
        codec = Codec.public(Schema(tuple(cells.column for cells in learned.model.cells)))
        return cls(real, codec, codec.encode(real.features), side.unit)

    def scores(self, placed: PlacedRows, learned: PrivateFit, seed: int) -> dict[str, float]:
        rows, labelled = self.codec.encode(placed.features(learned.model.cells)), placed.labelled
        kind: Kind = self.real.outcome.kind
        found = dict(self._students(rows, labelled.outcome, seed))
        if labelled.soft is not None:
            student = kind.learner().fit(rows, labelled.outcome, weight=labelled.weight, soft=labelled.soft, seed=seed)
            found["xgb, soft"] = kind.score(student.link, student.scores(self.rows), self.real.outcome)
        return found

    def _students(self, rows: Matrix, outcome: Any, seed: int) -> Iterator[tuple[str, float]]:
        kind: Kind = self.real.outcome.kind
        here, there = standardised(rows, self.rows)
        if "time" in outcome.arrays:
            for name, learner in kind.learners.items():
                student = learner.fit(here.astype(np.float32), kind.in_unit(outcome, self.unit), seed=seed)
                yield name, kind.score(learner.link, student.scores(there.astype(np.float32)), self.real.outcome)
            return
        for name in CLASSIFIERS:
            yield name, kind.score("probability", asked(name, here, outcome["label"], there), self.real.outcome)


def curial() -> Cohort:
    """COVID-19 status, simulated, at the first site."""
    made = datasets.load("curial_like", rows=30_000, seed=1)
    return Cohort.from_frame(made.frame, owned=True, **made.how)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", nargs="+", choices=("adult", "brfss", "diabetes130", "seer", "curial"))
    options.add_argument("--ipc", type=int, nargs="+", default=[100])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--epsilon", type=float, default=1.0, help="end-to-end")
    options.add_argument("--ways", nargs="*", help="only ways whose name contains one of these; writes no file")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    ways = {name: way for name, way in WAYS.items() if not said.ways or any(part in name for part in said.ways)}
    records: list[dict[str, Any]] = []
    for data in said.data:
        cohort = curial() if data == "curial" else getattr(cohorts, data)(declared=True)
        for seed in range(said.seeds):
            split = HoldoutSplit(TESTED.get(data, 0.2), entropy=seed).split(cohort)
            train, real = cohort.take(split.train), cohort.take(split.test)
            model = dc.PrivateModel(epsilon=said.epsilon, delta=DELTA).fit(train)
            side = cohort.outcome.kind.private_side()
            test = Test.of(real, model.learned_, side)
            fit = seconds_of_a_fit(train, test.codec, seed)
            for ipc in said.ipc:
                lab = Lab(model.learned_, side, ipc, seed)
                for name, way in ways.items():
                    started = time.process_time()
                    placed = way(lab)
                    seconds = time.process_time() - started
                    found = test.scores(placed, model.learned_, seed)
                    cell = {"data": data, "seed": seed, "ipc": ipc, "way": name, "scores": found}
                    records.append({**cell, "seconds": seconds, "fit": fit})
                    shown = " ".join(f"{score:.4f}" for score in found.values())
                    print(f"{data} seed {seed} IPC {ipc} {name}: {shown} {seconds:.1f} s", flush=True)
    text = page(vars(said), records)
    print(f"\n{text}")
    if not said.ways:
        record.write("placement", {"options": vars(said), "cells": records}, seeds=said.seeds, text=text)


def page(options: dict[str, Any], records: list[dict[str, Any]]) -> str:
    command = f"python -m benchmarks.placement {' '.join(options['data'])} --ipc {' '.join(map(str, options['ipc']))}"
    head = (
        f"`{command} --seeds {options['seeds']} --epsilon {options['epsilon']:g}`: AUROC (survival: C-index) on real "
        f"test rows, ε = {options['epsilon']:g} end-to-end, δ = {DELTA:g}. Plain labels without weights, but for the "
        "column that says soft. Δ: mean over the columns, paired difference to the product's way; seconds of one core."
    )
    cells = [
        table(data, ipc, [r for r in records if (r["data"], r["ipc"]) == (data, ipc)])
        for data, ipc in dict.fromkeys((r["data"], r["ipc"]) for r in records)
    ]
    return "\n\n".join([head, *cells])


def table(data: str, ipc: int, records: list[dict[str, Any]]) -> str:
    """Markdown, one row per way; differences to the product's way are taken seed by seed."""
    students = list(records[0]["scores"])
    lines = [f"**{data}, IPC {ipc}**", "", f"| way | {' | '.join(students)} | Δ | seconds |"]
    lines.append("| --- " * (len(students) + 3) + "|")
    means = {(r["way"], r["seed"]): float(np.mean(list(r["scores"].values()))) for r in records}
    for way in dict.fromkeys(r["way"] for r in records):
        own = [r for r in records if r["way"] == way]
        parts = [spread(pd.Series([r["scores"][student] for r in own])) for student in students]
        pairs = [means[way, r["seed"]] - means[PRODUCT, r["seed"]] for r in own if (PRODUCT, r["seed"]) in means]
        apart = spread(pd.Series(pairs), sign="+") if pairs and way != PRODUCT else ""
        seconds = f"{np.mean([r['seconds'] for r in own]):.1f}"
        lines.append("| " + " | ".join([way, *parts, apart, seconds]) + " |")
    fit = np.mean([r["fit"] for r in records])
    return "\n".join([*lines, "", f"One XGBoost fit of the training rows: {fit:.2f} seconds."])


def asked(name: str, rows: Matrix, label: Any, there: Matrix) -> Any:
    """What a common model of two classes, trained on these rows, says of others: larger for likelier."""
    model = unfitted(name, classes=True).fit(rows, label)
    return model.decision_function(there) if name == "svm" else model.predict_proba(there)[:, 1]


def seconds_of_a_fit(train: Cohort, codec: Codec, seed: int) -> float:
    """Of the kind's default learner on all training rows, on one core: what other times are read against."""
    rows, kind = codec.encode(train.features), train.outcome.kind
    started = time.process_time()
    kind.learner().fit(rows, train.outcome, seed=seed, threads=1)
    return time.process_time() - started


def spread(values: pd.Series[float], sign: str = "") -> str:
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}"


if __name__ == "__main__":
    main()
