"""Generous bounds, and none at all: `python -m benchmarks.domain adult|brfss|laboratory`.

The private model at ε = 1 end-to-end, δ = 1e-5, on real test rows that nothing was fitted on: with the declared schema,
with every number's bounds widened around their middle, and with `bounds = "private"` and `categories = "private"`
wherever a column is no yes/no. Mean ± standard deviation over seeds, each a split of its own with fresh noise. Beside
it the largest share, over the table's numbers, of values drawn from the model's cells that lie outside the range of
99.8% of the real training rows; of bounds that were found the largest share of real rows beyond them, and how many
times as wide the widest are as that range; and the total variation over pairs of columns, as in `benchmarks.private`.
`laboratory` is simulated: 9,000 rows of 28 numbers, some over four decades.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.private import pairs
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.outcomes.measures import auroc

EPSILON, DELTA = 1.0, 1e-5
DRAWN = 20_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=("adult", "brfss", "laboratory"))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--fits", type=int, default=4, help="fits for each seed, each with its own noise")
    options.add_argument("--ways", nargs="*", help="of the schema, by name; all if not said")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    cohort: Cohort = laboratory() if said.data == "laboratory" else getattr(cohorts, said.data)(declared=True)
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
    for way, change in ((way, ways[way]) for way in said.ways or ways):
        schema = Schema(tuple(change(column) for column in cohort.schema.columns))
        table = replace(cohort, schema=schema, features=check_features(cohort.features, schema))
        for seed in range(said.seeds):
            split = HoldoutSplit(0.2, entropy=seed).split(table)
            train, test = table.take(split.train), table.take(split.test)
            for _ in range(said.fits):
                model = dc.PrivateModel(epsilon=EPSILON, delta=DELTA).fit(train)
                score = auroc(test.outcome["label"], model.decision_function(test.features))
                found = {"outside": outside(model, train, seed), **fitting(model, train)}
                apart = pairs(model.learned_, train, test, seed)
                found |= {f"pairs, {what}": apart[f"drawn rows, {what}"] for what in ("mean", "largest")}
                records.append({"way": way, "seed": seed, "auroc": score, **found})
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


def fitting(model: dc.PrivateModel, train: Cohort) -> dict[str, float]:
    """Of numbers whose bounds were found: the largest share of real rows beyond them, the largest width."""
    beyond, wide = [0.0], [0.0]
    for cells in model.learned_.model.cells:
        if cells.numeric and cells.column.searched:
            values, (low, high) = train.features[cells.column.name].dropna(), cells.bounds
            real = np.ptp(values.quantile([0.001, 0.999]))
            beyond.append(float(((values < low) | (values > high)).mean()))
            wide.append(float((high - low) / max(real, 1e-12)))
    return {"beyond": max(beyond), "wide": max(wide)}


def laboratory(rows: int = 9000) -> Cohort:
    """Simulated numbers of a hospital, declared with generous bounds; the outcome follows some of them."""
    rng = np.random.default_rng(1)
    declared: dict[str, tuple[Any, float, float, int]] = {
        "heart_rate": (np.clip(rng.normal(97, 30, rows), 0, 300), 0, 350, 0),
        "bilirubin": (np.clip(np.exp(rng.normal(-0.3, 1.1, rows)), 0.1, 63), 0, 70, 1),
        "tsh": (np.clip(np.exp(rng.normal(0.5, 1.4, rows)), 0.01, 500), 0, 1000, 2),
        "probability": (rng.beta(2, 1.5, rows), 0, 1, 3),
        "risk": (rng.beta(0.5, 3, rows), 0, 1, 3),
        "schooling": (np.clip(rng.normal(11.7, 3.4, rows), 0, 31), 0, 40, 0),
        "four_decades": (np.clip(10 ** rng.normal(1.5, 0.6, rows), 0.1, 20_000), 0, 50_000, 1),
        "temperature": (rng.normal(37.1, 1.2, rows), 20, 46, 1),
        "sodium": (rng.normal(137.5, 6, rows), 80, 220, 0),
        "leukocytes": (np.exp(rng.normal(2.4, 0.6, rows)), 0, 1000, 1),
        "count": (rng.poisson(1.9, rows).astype(float), 0, 60, 0),
        "charges": (np.clip(np.exp(rng.normal(10.2, 1.1, rows)), 0, 3e6), 0, 5e6, 0),
        "base_excess": (rng.normal(-1, 5, rows), -60, 60, 1),
        "saturation": (100 * rng.beta(8, 1.5, rows), 0, 100, 0),
        "mostly_none": (np.where(rng.random(rows) < 0.85, 0, np.exp(rng.normal(6, 1, rows))), 0, 100_000, 0),
        "age": (np.clip(rng.normal(62, 16, rows), 18, 101), 0, 120, 1),
        **{f"value_{k}": (np.exp(rng.normal(1, 0.7, rows)), 0, 500, 2) for k in range(12)},
    }
    frame = pd.DataFrame({name: np.round(values, decimals) for name, (values, _, _, decimals) in declared.items()})
    risk = (frame["heart_rate"] - 97) / 40 + np.log(frame["bilirubin"]) / 2 + (frame["age"] - 62) / 25 - 0.7
    frame["died"] = (rng.logistic(size=rows) < risk).astype(int)
    columns = tuple(
        Column(name, "continuous", low=low, high=high, decimals=decimals)
        for name, (_, low, high, decimals) in declared.items()
    )
    schema = Schema((*columns, Column("died", "binary", categories=(0, 1))), origin="declared")
    return Cohort.from_frame(frame, target="died", schema=schema)


def shown(records: list[dict[str, Any]]) -> str:
    ways = list(dict.fromkeys(cell["way"] for cell in records))
    seeds = sorted({cell["seed"] for cell in records})
    lines = [
        "| schema | private model, AUROC | against declared | largest share outside the real 0.1–99.9% "
        "| real rows beyond bounds, largest share | widest bounds, in real 0.1–99.9% ranges "
        "| pairs, total variation, mean (largest) |",
        "| --- " * 7 + "|",
    ]

    def by_seed(way: str) -> Any:
        return np.array([np.mean([r["auroc"] for r in records if (r["way"], r["seed"]) == (way, s)]) for s in seeds])

    def fit(way: str) -> str:
        here = [r for r in records if r["way"] == way]
        beyond, wide = np.array([r["beyond"] for r in here]), np.array([r["wide"] for r in here])
        return (
            f"{100 * beyond.mean():.2f}% (most {100 * beyond.max():.2f}%) | {wide.mean():.1f} (most {wide.max():.1f})"
            if wide.max()
            else "— | —"
        )

    for way in ways:
        score, change = by_seed(way), by_seed(way) - by_seed(ways[0])
        here = [r for r in records if r["way"] == way]
        out, mean, largest = (np.mean([r[key] for r in here]) for key in ("outside", "pairs, mean", "pairs, largest"))
        lines.append(
            f"| {way} | {score.mean():.4f} ± {score.std():.4f} | {change.mean():+.4f} ± {change.std():.4f} "
            f"| {100 * out:.2f}% | {fit(way)} | {mean:.4f} ({largest:.4f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
