"""Tiny seeded tables and every way to spoil one: what the tests of the cohort and of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.schema import Column, Schema

# A patient's value, in one number and one text. Neither may ever be in a message.
NUMBER, TEXT = 987654.25, "CANARY-NAME"
CANARIES = ("987654", "CANARY")

SCHEMA = Schema(
    (
        Column("age", "integer", low=18, high=110, unit="years"),
        Column("crp", "continuous", low=0.0, high=500.0, unit="mg/L"),
        Column("ferritin", "continuous", low=0.0, high=1e6, unit="µg/L"),
        Column("sex", "binary", categories=("f", "m")),
        Column("stage", "categorical", categories=("I", "II", "III")),
        Column("months", "continuous", low=0.0, high=1000.0),
        Column("relapse", "binary", categories=(0, 1)),
        Column("died", "binary", categories=(0, 1)),
    )
)
BINARY = {"target": "died", "ignore": ("months", "relapse")}
SURVIVAL = {"time": "months", "event": "relapse", "ignore": ("died",)}


def patients(rows: int = 240, seed: int = 0) -> pd.DataFrame:
    """A table that fits `SCHEMA`, with a signal in age and stage."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, rows),
            "crp": rng.gamma(2, 20, rows).round(1).clip(0.1, 400),
            "ferritin": rng.gamma(3, 50, rows).round(2),
            "sex": rng.choice(["f", "m"], rows),
            "stage": rng.choice(["I", "II", "III"], rows),
        }
    )
    risk = (frame["age"] - 55) / 10 + frame["stage"].map({"I": -1.0, "II": 0.0, "III": 1.0})
    frame["months"] = (rng.exponential(60, rows) * np.exp(-risk / 3)).round(1).clip(0.1, 900)
    frame["relapse"] = (rng.random(rows) < 0.6).astype(int)
    frame["died"] = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    return frame


@dataclass(frozen=True)
class Spoiled:
    """One thing wrong with a table, and what the message must say about it."""

    name: str
    spoil: Callable[[pd.DataFrame], pd.DataFrame]
    says: tuple[str, ...]
    how: dict[str, Any]


def put(column: str, value: Any, rows: Sequence[int] = (7, 11)) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Write `value` into these rows of the column; the same rows carry a legal canary in another column."""

    def spoil(frame: pd.DataFrame) -> pd.DataFrame:
        frame[column] = frame[column].astype(object)
        frame.loc[list(rows), column] = value
        frame[column] = frame[column].infer_objects()
        if column != "ferritin":
            frame.loc[list(rows), "ferritin"] = NUMBER
        return frame

    return spoil


def everywhere(column: str, value: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**{column: value, "ferritin": NUMBER})


def two_labels(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(died=np.where(frame["died"] == 1, TEXT, "no"))


SPOILED = [
    Spoiled(
        "a value above its bounds", put("crp", NUMBER), ("'crp'", "bounds [0.0, 500.0]", "2 rows", "row 8"), BINARY
    ),
    Spoiled("a value below its bounds", put("crp", -NUMBER, [3]), ("'crp'", "bounds", "1 row,", "row 4"), BINARY),
    Spoiled("an unknown category", put("stage", TEXT), ("'stage'", "categories only", "2 rows"), BINARY),
    Spoiled("an unknown binary value", put("sex", TEXT), ("'sex'", "categories only", "2 rows"), BINARY),
    Spoiled("text in a number column", put("age", TEXT), ("'age'", "must be numbers", "text in 2 rows"), BINARY),
    Spoiled("a fraction in an integer column", put("age", NUMBER), ("'age'", "whole numbers", "2 rows"), BINARY),
    Spoiled("an infinite value", put("crp", np.inf), ("'crp'", "must be finite", "2 rows"), BINARY),
    Spoiled("missing values without a policy", put("crp", np.nan), ("'crp'", "no policy", "2 rows"), BINARY),
    Spoiled("a missing target", put("died", np.nan), ("'died'", "missing values in 2 rows"), BINARY),
    Spoiled("a third class", put("died", TEXT), ("'died'", "schema's two categories", "2 rows"), BINARY),
    Spoiled("a class the schema does not have", two_labels, ("'died'", "schema's two categories"), BINARY),
    Spoiled("one class only", everywhere("died", 0), ("'died'", "both classes", "one class only"), BINARY),
    Spoiled(
        "all rows censored",
        everywhere("relapse", 0),
        ("'relapse'", "at least one event", "all rows censored"),
        SURVIVAL,
    ),
    Spoiled("a negative time", put("months", -NUMBER), ("'months'", "above 0", "2 rows"), SURVIVAL),
    Spoiled("a time of zero", put("months", 0.0), ("'months'", "above 0", "2 rows"), SURVIVAL),
    Spoiled("a time above its bounds", put("months", NUMBER), ("'months'", "bounds", "2 rows"), SURVIVAL),
    Spoiled("an infinite time", put("months", np.inf), ("'months'", "must be finite", "2 rows"), SURVIVAL),
    Spoiled("a missing time", put("months", np.nan), ("'months'", "missing values in 2 rows"), SURVIVAL),
    Spoiled(
        "text in the time column", put("months", TEXT), ("'months'", "must be numbers", "text in 2 rows"), SURVIVAL
    ),
    Spoiled("one event time", everywhere("months", 12.0), ("'months'", "two times", "one event time"), SURVIVAL),
    Spoiled("a column missing", lambda frame: frame.drop(columns="crp"), ("every column", "1 missing: 'crp'"), BINARY),
    Spoiled("no target", lambda f: f.rename(columns={"died": "diedd"}), ("'died'", "nearest is 'diedd'"), BINARY),
]
