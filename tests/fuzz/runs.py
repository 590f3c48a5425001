"""Way in 9: settings that are legal, or nearly, taken to their ends: whatever is refused is refused before it is paid.

A run that was refused has asked patients nothing: its ledger is not there. One that was not ends with a statement that
verifies, a clean folder and numbers that are numbers, or says that there is no answer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from distcondense.data.schema import Schema
from distcondense.errors import UserError
from distcondense.runs.signing import verify_release
from tests.fuzz.driver import TEXT, Room
from tests.fuzz.quick import quickly
from tests.tiny import BINARY, SCHEMA, SURVIVAL, patients

ENDS = (5e-324, 1e-300, 1e-30, 1e-9, 1e3, 1e6, 1e9, 1e30, 1e300, 1.7e308)
PLAIN = (0.01, 0.1, 0.5, 0.9, 0.999, 1.0, np.float32(1.0), np.float16(0.5), 2, 3, 8.0, 20)
QUICK: dict[str, dict[str, Any]] = {
    "private": {"epsilon": 20.0},
    "published": {"epsilon": 2.5, "steps": 2},
    "dp-geng": {"epsilon": 8.0, "generated": 200, "extractors": 2, "extractor_epochs": 1, "expert_epochs": 2,
                "expert_steps": 2, "iterations": 3, "units": 4, "features": 3},
    "clustmix": {"epsilon": 8.0, "adapt_steps": 2},
    "kde-knn": {"neighbours": 3},
    "psygentab": {"sampler": "private", "epsilon": 20.0},
}  # fmt: skip
ALSO: dict[str, dict[str, Any]] = {
    "clustmix": {"variant": "theorem", "parts": 4},
    "published": {"noise": False},
    "psygentab": {"sampler": "network", "hidden": 4, "cells": 4, "epochs": 1, "batch": 64, "rounds": 1},
}
FLOATS: dict[str, tuple[str, ...]] = {
    "private": ("epsilon", "delta", "holdout"),
    "published": ("epsilon", "delta", "sigma_base", "clip", "learning_rate", "rho", "beta1", "beta2", "positive_share"),
    "dp-geng": ("epsilon", "delta", "generator_share", "expert_share", "expert_rate", "rate", "guide_rate", "holdout"),
    "clustmix": ("epsilon", "delta", "sigma_max", "alpha", "adapt_rate", "ridge", "holdout"),
    "kde-knn": ("sigma", "bandwidth"),
    "psygentab": ("epsilon", "delta", "p_min", "multiplier", "penalty", "growth", "holdout", "learning_rate"),
}
WHOLE: dict[str, tuple[str, ...]] = {
    "private": ("ipc", "rows_per_person", "moves"), "published": ("ipc", "steps", "strata", "evaluate_every"),
    "dp-geng": ("ipc", "rows_per_person", "class_batch", "units"), "clustmix": ("ipc", "slices", "layers", "parts"),
    "kde-knn": ("ipc", "neighbours"),
    "psygentab": ("ipc", "rows_per_person", "cells", "hidden", "epochs", "batch", "rounds"),
}  # fmt: skip


def _settings(room: Room, method: str) -> dict[str, Any]:
    rng, how = room.rng, dict(QUICK[method])
    if method in ALSO and rng.random() < 0.3:
        how |= ALSO[method]
        if how.get("noise") is False or how.get("sampler") == "network":  # without a budget, unless it is drawn below
            how.pop("epsilon")
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.75:
            how[rng.choice(FLOATS[method])] = rng.choice(ENDS if rng.random() < 0.4 else PLAIN)
        else:
            how[rng.choice(WHOLE[method])] = rng.choice((0, 1, 1, 1, 2, 2, 7, 7, 2**31, 2**53, 2**63 - 1))
    return {"method": method, "ipc": 2, "threads": 1, **how}


def _schema(room: Room) -> Schema:
    """The table's, with some bounds at the ends of what numbers there are."""
    rng = room.rng
    ends = (1e9, 1e9, 1e15, 1e15, 1e17, 1e18, 2.0**53, 1e300)
    low, high = (-rng.choice(ends), rng.choice(ends)) if rng.random() < 0.4 else (0.0, 500.0)
    holes = {"ferritin": {"missing": "indicator"}} if rng.random() < 0.8 else {}
    changed = {"crp": {"low": low, "high": high}, **holes}
    return Schema(tuple(replace(c, **changed.get(c.name, {})) for c in SCHEMA.columns))


def _table(room: Room) -> pd.DataFrame:
    rng, rows = room.rng, room.rng.choice((1, 2, 8, 60, 300, 300, 300))
    table = patients(rows, rng.randrange(50)).assign(who=[f"{TEXT}-{k % 40}" for k in range(rows)])
    turn = rng.randrange(8)
    if turn == 0:
        table["died"] = 0
    elif turn == 1:
        table["age"] = 50
    elif turn == 2:
        table["stage"] = "I"
    elif turn == 3:
        table["ferritin"] = float("nan")  # nobody has a value; a schema without holes refuses it
    return table


def runs(room: Room) -> None:
    """One run, from the table to its release."""
    rng = room.rng
    method = rng.choice(("private", "private", "private", *QUICK))
    how, roles = _settings(room, method), dict(rng.choice((BINARY, BINARY, SURVIVAL)))
    if method not in ("private", "published", "psygentab"):
        roles = dict(BINARY)
    roles |= rng.choice(({}, {"person_id": "who"}, {"ignore": (*roles["ignore"], "who")}))
    schema = room.call("Schema", lambda: _schema(room))
    if schema is None:
        return
    cohort = room.call("from_frame", lambda: dc.Cohort.from_frame(_table(room), schema=schema, **roles))
    if cohort is None:
        return
    run = room.path / "run"
    with quickly():
        found = room.call(f"condense {how}", lambda: dc.condense(cohort, out=run, **how))
    if found is None:
        if (run / "internal" / "ledger.jsonl").exists():
            room.fault("half-written", f"refused after patients were asked: {how}")
        elif run.exists() and any(run.rglob("*")):
            room.fault("half-written", f"refused, and something is left: {how}")
        return
    room.clean(run)
    room.no_canary_in(run)
    try:
        if not verify_release(run).holds:
            room.fault("half-written", f"the release does not verify: {how}")
    except UserError as error:
        room.fault("half-written", f"the release cannot be verified, {error}: {how}")
    _numbers(room, found, schema, how)


def _numbers(room: Room, found: Any, schema: Schema, how: dict[str, Any]) -> None:
    """What was released lies within its bounds."""
    if found.privacy.answer or not len(found.frame):
        return
    for column in schema.columns:
        if column.numeric and column.name in found.frame and found.schema[column.name].low is not None:
            values = found.frame[column.name].to_numpy(np.float64)
            low, high = found.schema[column.name].low, found.schema[column.name].high
            if np.isinf(values).any() or not ((values >= low) | np.isnan(values)).all() or (values > high).any():
                room.fault("wrong acceptance", f"{column.name} is released out of its bounds: {how}")
            if np.isnan(values).any() and column.missing == "refuse":
                room.fault("wrong acceptance", f"{column.name} is released as no number: {how}")
    epsilon = found.privacy.epsilon
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        room.fault("wrong acceptance", f"ε = {epsilon}: {how}")
