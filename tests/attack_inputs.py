"""Homes to attack: the condensed rows are copies of training rows, or other people of the same population."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from distcondense import Cohort, Column, Schema
from distcondense.data.codec import Codec
from distcondense.data.persons import Split
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from tests.evaluation_inputs import changed, inputs_of

NUMBERS = 6
SCHEMA = Schema(
    (
        *(Column(f"x{k}", "continuous", low=-10, high=10) for k in range(NUMBERS)),
        Column("smoker", "binary", categories=(0, 1)),
        Column("stage", "categorical", categories=("I", "II", "III")),
        Column("died", "binary", categories=(0, 1)),
        Column("months", "continuous", low=0, high=1000),
    )
)


def people(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, NUMBERS)) @ (np.eye(NUMBERS) + 0.3)
    frame = pd.DataFrame(np.clip(x, -9, 9), columns=[f"x{k}" for k in range(NUMBERS)])
    frame["smoker"] = rng.integers(0, 2, rows)
    frame["stage"] = rng.choice(["I", "II", "III"], rows)
    frame["died"] = (rng.random(rows) < 1 / (1 + np.exp(-frame["x0"]))).astype(int)
    frame["months"] = rng.exponential(np.exp(-0.3 * frame["x0"]) * 10).clip(0.1, 900)
    return frame


def home_of(
    kind: str,
    *,
    train: int = 300,
    test: int = 300,
    rows: int = 300,
    seed: int = 0,
    persons: int = 0,
    jitter: float = 1e-3,
    time: bool = False,
    privacy: Privacy | None = None,
    **changes: Any,
) -> EvaluationInput:
    """`kind`: "copies" of training rows with a little noise, or "strangers" of the same population."""
    table = people(train + test, seed)
    goal: dict[str, Any] = {"time": "months", "event": "died"} if time else {"target": "died", "ignore": ["months"]}
    if persons:  # this many rows each; a person is in one part
        table["who"] = [f"p{k // persons}" for k in range(train + test)]
        goal["person_id"] = "who"
    cohort = Cohort.from_frame(table, schema=SCHEMA, **goal)
    split = Split(np.arange(train), np.empty(0, np.int64), np.arange(train, train + test))
    codec = Codec.public(cohort.schema)
    rng = np.random.default_rng([seed, 1])
    if kind == "copies":
        chosen = rng.choice(train, rows, replace=rows > train)
        frame, outcome = cohort.features.iloc[chosen].reset_index(drop=True), cohort.outcome.take(chosen)
        for k in range(NUMBERS):
            frame[f"x{k}"] += jitter * rng.normal(size=rows)
    else:
        goal.pop("person_id", None)
        others = Cohort.from_frame(people(rows, seed + 1000), schema=SCHEMA, **goal)
        frame, outcome = others.features, others.outcome
    none = Privacy("none", "toy", None, None, "none", "none")
    inputs = inputs_of(cohort, split, frame, Labelled(outcome), none if privacy is None else privacy, codec=codec)
    return changed(inputs, **changes)
