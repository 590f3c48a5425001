"""Generous bounds, and none at all: `python -m benchmarks.domain adult|brfss`.

The private model at ε = 1 end-to-end, δ = 1e-5, on real test rows that nothing was fitted on: with the declared schema,
with every number's bounds widened around their middle, and with `bounds = "private"` and `categories = "private"`
wherever a column is no yes/no. Mean ± standard deviation over seeds, each a split of its own with fresh noise. Beside
it the largest share, over the table's numbers, of values drawn from the model's cells that lie outside the range of
99.8% of the real training rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.outcomes.measures import auroc

EPSILON, DELTA = 1.0, 1e-5
DRAWN = 20_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=("adult", "brfss"))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--fits", type=int, default=4, help="fits for each seed, each with its own noise")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    cohort: Cohort = getattr(cohorts, said.data)(declared=True)
    ways: dict[str, Callable[[Column], Column]] = {
        "declared": lambda column: column,
        "bounds × 10": lambda column: widened(column, 10),
        "bounds × 100": lambda column: widened(column, 100),
        "bounds × 1000": lambda column: widened(column, 1000),
        "private bounds": lambda column: private(column, numbers=True, labels=False),
        "private categories": lambda column: private(column, numbers=False, labels=True),
        "private domain": lambda column: private(column, numbers=True, labels=True),
    }
    records: list[dict[str, Any]] = []
    for way, change in ways.items():
        schema = Schema(tuple(change(column) for column in cohort.schema.columns))
        table = replace(cohort, schema=schema, features=check_features(cohort.features, schema))
        for seed in range(said.seeds):
            split = HoldoutSplit(0.2, entropy=seed).split(table)
            train, test = table.take(split.train), table.take(split.test)
            for _ in range(said.fits):
                model = dc.PrivateModel(epsilon=EPSILON, delta=DELTA).fit(train)
                score = auroc(test.outcome["label"], model.decision_function(test.features))
                records.append({"way": way, "seed": seed, "auroc": score, "outside": outside(model, train, seed)})
    text = shown(records)
    print(f"# {said.data}: {cohort!r}, {said.seeds} seeds × {said.fits} fits, ε = {EPSILON:g} end-to-end\n\n{text}")
    record.write(f"domain-{said.data}", {"options": vars(said), "cells": records}, seeds=said.seeds, text=text)


def widened(column: Column, times: float) -> Column:
    """Bounds `times` as far apart, around the same middle."""
    if not column.numeric or column.low is None or column.high is None:
        return column
    middle, half = (column.low + column.high) / 2, times * (column.high - column.low) / 2
    low, high = middle - half, middle + half
    if column.kind == "integer":
        low, high = float(np.floor(low)), float(np.ceil(high))
    return replace(column, low=low, high=high)


def private(column: Column, *, numbers: bool, labels: bool) -> Column:
    if column.numeric and numbers:
        return replace(column, low=None, high=None, spacing="linear", domain="private")
    if column.kind == "categorical" and labels:
        return replace(column, categories=(), ordered=False, domain="private")
    return column


def outside(model: dc.PrivateModel, train: Cohort, seed: int) -> float:
    """Over all numbers the largest share of drawn values outside the real 0.1–99.9% range."""
    rng, worst, learned = np.random.default_rng(seed), 0.0, model.learned_
    for cells, mass in zip(learned.model.cells, learned.overall, strict=True):
        if cells.numeric:
            codes = rng.choice(len(mass), DRAWN, p=np.maximum(mass, 0) / np.maximum(mass, 0).sum())
            values = cells.numbers(codes, rng.random(DRAWN))
            low, high = train.features[cells.column.name].quantile([0.001, 0.999])
            worst = max(worst, float(np.mean((values < low) | (values > high))))
    return worst


def shown(records: list[dict[str, Any]]) -> str:
    ways = list(dict.fromkeys(cell["way"] for cell in records))
    seeds = sorted({cell["seed"] for cell in records})
    lines = [
        "| schema | private model, AUROC | against declared | largest share outside the real 0.1–99.9% |",
        "| --- | --- | --- | --- |",
    ]

    def by_seed(way: str) -> Any:
        return np.array([np.mean([r["auroc"] for r in records if (r["way"], r["seed"]) == (way, s)]) for s in seeds])

    for way in ways:
        score, change = by_seed(way), by_seed(way) - by_seed(ways[0])
        out = np.mean([r["outside"] for r in records if r["way"] == way])
        lines.append(
            f"| {way} | {score.mean():.4f} ± {score.std():.4f} | {change.mean():+.4f} ± {change.std():.4f} "
            f"| {100 * out:.2f}% |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
