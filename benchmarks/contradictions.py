"""Do released rows contradict themselves? `python -m benchmarks.contradictions simulated|adult [--seeds 5]`.

Tables in which columns depend on each other as they do in hospitals: a code nested in another, a copy, an order, a
value that is there only where it was measured, answers that only one sex has. `simulated` is made of 9,000 patients,
`adult` of 9,000 people of the Adult table with such columns made of its own; a quarter as many more are the test. The
private model at ε = 1 end-to-end, δ = 1e-5: the share of rows that contradict a dependency, where nobody declared it,
and where each is declared as a rule of the schema, of 20,000 rows as `Result.sample` draws them, and of released sets
of 100 and 500 rows of each class; beside it the model's AUROC on real test rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.data.relations import Copy, Implies, Nested, Rule
from distcondense.data.schema import Column, Schema
from distcondense.methods.private.sampling import PopulationSampler
from distcondense.outcomes.measures import auroc

IPCS = (100, 500)
EPSILON, DRAWN, ROWS = 1.0, 20_000, 11_250  # rows with the fifth that is the test
CLASSES = {
    "heart": ("arrhythmia", "failure", "infarction"),
    "lung": ("asthma", "copd", "pneumonia"),
    "cancer": ("solid", "blood"),
    "other": ("trauma", "sepsis"),
}
Broken = Callable[[pd.DataFrame], "pd.Series[bool]"]


@dataclass(frozen=True)
class Problem:
    """A table, what contradicts itself in a row of it, and the rules that say so."""

    frame: pd.DataFrame
    schema: Schema
    target: str
    broken: Mapping[str, Broken]
    rules: tuple[Rule, ...]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=("simulated", "adult"))
    options.add_argument("--seeds", type=int, default=5)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    problem = simulated() if said.data == "simulated" else adult()
    records: list[dict[str, Any]] = []
    for declared in (False, True):
        schema = replace(problem.schema, rules=problem.rules if declared else ())
        cohort = Cohort.from_frame(problem.frame, target=problem.target, schema=schema)
        for seed in range(said.seeds):
            split = HoldoutSplit(0.2, entropy=seed).split(cohort)
            train, test = cohort.take(split.train), cohort.take(split.test)
            fitted = dc.PrivateModel(epsilon=EPSILON).fit(train)
            side = train.outcome.kind.private_side()
            assert side is not None
            drawn = PopulationSampler(fitted.learned_, side, schema).drawn(DRAWN, np.random.default_rng(seed))
            model = auroc(test.outcome["label"], fitted.decision_function(test.features))
            records.append({"rules": declared, "rows": "drawn", "seed": seed, "model": model, **shares(problem, drawn)})
            for ipc, result in dc.condense(train, ipc=IPCS, epsilon=EPSILON, seed=seed, holdout=0.0, threads=1).items():
                found = shares(problem, result.frame)
                records.append({"rules": declared, "rows": f"IPC {ipc}", "seed": seed, **found})
    text = shown(records, [*problem.broken, "any of them"])
    print(f"# {said.data}: {len(problem.frame):,} rows, {said.seeds} seeds, ε = {EPSILON:g} end-to-end\n\n{text}")
    record.write(f"contradictions-{said.data}", {"options": vars(said), "cells": records}, seeds=said.seeds, text=text)


def shares(problem: Problem, rows: pd.DataFrame) -> dict[str, float]:
    """Of rows that contradict each dependency, and any of them."""
    parts = {name: broken(rows) for name, broken in problem.broken.items()}
    together = {name: float(part.mean()) for name, part in parts.items()}
    return {**together, "any of them": float(np.logical_or.reduce(list(parts.values())).mean())}


def simulated(rows: int = ROWS, seed: int = 28) -> Problem:
    """Patients of an intensive care unit; no two columns here are anybody's."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(rows) < 0.48, "f", "m")
    age = np.clip(rng.normal(63, 16, rows), 18, 100).round()
    broad = rng.choice(list(CLASSES), rows, p=[0.35, 0.25, 0.2, 0.2])
    group = np.array([rng.choice(CLASSES[one]) for one in broad])
    severity = rng.normal(0, 1, rows) + 0.4 * (broad == "cancer") + (age - 63) / 40
    two, six = (1 / (1 + np.exp(severity - at + 0.15 * rng.normal(size=rows))) for at in (1.2, 0.7))
    six = np.minimum(two, six)
    measured = rng.random(rows) < 0.35
    tsh = np.where(measured, np.exp(rng.normal(0.6, 0.9, rows)).clip(0.01, 100), np.nan)
    pregnant = (sex == "f") & (age < 50) & (rng.random(rows) < 0.5)
    frame = pd.DataFrame(
        {
            "age": age,
            "age_at_admission": age,
            "age_at_first_visit": np.clip(age - rng.integers(0, 4, rows), 17, 100),
            "sex": sex,
            "pregnant": np.where(pregnant, "yes", "no"),
            "class": broad,
            "group": group,
            "survival_2m": two.round(3),
            "survival_6m": six.round(3),
            "tsh_measured": np.where(measured, "t", "f"),
            "tsh": tsh.round(2),
            "heart_rate": np.clip(rng.normal(95 + 8 * severity, 22), 20, 250).round(),
            "creatinine": np.exp(rng.normal(0.1 + 0.25 * severity, 0.5)).clip(0.1, 20).round(2),
            "sodium": rng.normal(138, 5, rows).clip(100, 180).round(),
            "ventilated": np.where(rng.random(rows) < 1 / (1 + np.exp(1 - severity)), "yes", "no"),
            "died": (rng.logistic(size=rows) < 1.1 * severity - 0.6).astype(int),
        }
    )
    columns = (
        *(Column(name, "integer", low=0, high=120) for name in ("age", "age_at_admission", "age_at_first_visit")),
        Column("sex", "binary", categories=("f", "m")),
        Column("pregnant", "binary", categories=("no", "yes")),
        Column("class", "categorical", categories=tuple(CLASSES)),
        Column("group", "categorical", categories=tuple(sorted(sum(CLASSES.values(), ())))),
        *(Column(name, "continuous", low=0, high=1, decimals=3) for name in ("survival_2m", "survival_6m")),
        Column("tsh_measured", "binary", categories=("f", "t")),
        Column("tsh", "continuous", low=0, high=200, decimals=2, missing="indicator"),
        Column("heart_rate", "integer", low=0, high=350),
        Column("creatinine", "continuous", low=0, high=35, decimals=2),
        Column("sodium", "integer", low=80, high=220),
        Column("ventilated", "binary", categories=("no", "yes")),
        Column("died", "binary", categories=(0, 1)),
    )
    inside = {part: broad for broad, parts in CLASSES.items() for part in parts}
    broken: dict[str, Broken] = {
        "nested": lambda t: t["group"].astype(str).map(inside) != t["class"].astype(str),
        "copy": lambda t: t["age"] != t["age_at_admission"],
        "nearly a copy": lambda t: (t["age"] - t["age_at_first_visit"]).abs() > 5,
        "order": lambda t: t["survival_6m"] > t["survival_2m"],
        "empty unless": lambda t: t["tsh"].notna() != (t["tsh_measured"] == "t"),
        "sex-bound": lambda t: (t["pregnant"] == "yes") & (t["sex"] == "m"),
    }
    rules: tuple[Rule, ...] = (
        Nested("group", "class", tuple(CLASSES.items())),
        Copy("age_at_admission", "age"),
        Implies("age_at_first_visit <= age and age_at_first_visit >= age - 5"),
        Implies("survival_6m <= survival_2m"),
        Implies("tsh is missing", 'tsh_measured == "f"'),
        Implies("tsh is not missing", 'tsh_measured == "t"'),
        Implies('pregnant == "no"', 'sex == "m"'),
    )
    return Problem(frame, Schema(columns, origin="declared"), "died", broken, rules)


def adult(rows: int = ROWS, seed: int = 28) -> Problem:
    """People of the Adult table, with columns made of its own."""
    cohort = cohorts.adult(declared=True)
    chosen = np.random.default_rng(seed).choice(len(cohort.features), rows, replace=False)
    frame = cohort.features.iloc[chosen].reset_index(drop=True).copy()
    frame.columns = [str(name).replace("-", "_") for name in frame]
    own = [replace(column, name=column.name.replace("-", "_")) for column in cohort.schema.columns]
    known = {column.name: column for column in own if column.name != "income"}
    kind = {"Private": "private", "Self-emp-not-inc": "self", "Self-emp-inc": "self", "Never-worked": "none"}
    kind |= {"Without-pay": "none"} | dict.fromkeys(("Federal-gov", "Local-gov", "State-gov"), "state")
    labels = [str(label) for label in known["workclass"].categories]
    wide = {label: kind.get(label.strip(), "unknown") for label in labels}
    frame["sector"] = frame["workclass"].astype(str).map(wide).fillna("unknown")
    frame["age_at_census"] = frame["age"]
    rng = np.random.default_rng(seed)
    frame["years_worked"] = ((frame["age"].astype(float) - 16) * rng.beta(4, 2, rows)).round().clip(0, 90)
    hours = frame["hours_per_week"].astype(float)
    frame["hours_known"] = np.where(rng.random(rows) < 0.6, "yes", "no")
    frame["hours_per_week"] = hours.where(frame["hours_known"] == "yes")
    frame["income"] = cohort.outcome["label"][chosen]
    sectors = tuple(dict.fromkeys(wide.values()))
    if frame["workclass"].isna().any() and "unknown" not in sectors:
        sectors = (*sectors, "unknown")
    columns = (
        *(replace(c, missing="indicator") if c.name == "hours_per_week" else c for c in known.values()),
        Column("sector", "categorical", categories=sectors),
        replace(known["age"], name="age_at_census"),
        Column("years_worked", "integer", low=0, high=100),
        Column("hours_known", "binary", categories=("no", "yes")),
        Column("income", "binary", categories=(0, 1)),
    )
    allowed = tuple((one, tuple(label for label in labels if wide[label] == one)) for one in sectors)
    broken: dict[str, Broken] = {
        "nested": lambda t: t["workclass"].notna() & (t["workclass"].astype(str).map(wide) != t["sector"].astype(str)),
        "copy": lambda t: t["age"] != t["age_at_census"],
        "order": lambda t: t["years_worked"] > t["age"],
        "empty unless": lambda t: t["hours_per_week"].notna() != (t["hours_known"] == "yes"),
    }
    rules: tuple[Rule, ...] = (
        Nested("workclass", "sector", allowed),
        Copy("age_at_census", "age"),
        Implies("years_worked <= age"),
        Implies("hours_per_week is missing", 'hours_known == "no"'),
        Implies("hours_per_week is not missing", 'hours_known == "yes"'),
    )
    return Problem(frame, Schema(columns, origin="declared"), "income", broken, rules)


def shown(records: list[dict[str, Any]], names: list[str]) -> str:
    lines = [f"| rules | rows | {' | '.join(names)} | private model, AUROC |", "| --- " * (len(names) + 3) + "|"]
    for declared in (False, True):
        for rows in dict.fromkeys(one["rows"] for one in records):
            here = [one for one in records if (one["rules"], one["rows"]) == (declared, rows)]
            cells = [np.array([one[name] for one in here]) for name in names]
            held = " | ".join(f"{100 * cell.mean():.1f}% (most {100 * cell.max():.1f}%)" for cell in cells)
            model = np.array([one["model"] for one in here if "model" in one])
            score = f"{model.mean():.3f} ± {model.std():.3f}" if len(model) else ""
            lines.append(f"| {'declared' if declared else 'none'} | {rows} | {held} | {score} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
