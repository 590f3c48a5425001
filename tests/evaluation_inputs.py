"""Homes to evaluate: small cohorts of every kind of outcome, whose condensed rows are some of their training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense import Cohort, Column, Schema
from distcondense.data.codec import Codec
from distcondense.data.persons import HoldoutSplit, Split, Stratified
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result
from tests.conftest import SMALL_TABLE, small_frame

HOW: dict[str, dict[str, Any]] = {  # kind → how a small frame is read
    "binary": {"target": "died", "ignore": ["months", "event"]},
    "multiclass": {"target": "stage", "kind": "multiclass", "ignore": ["died", "months", "event"]},
    "continuous": {"target": "crp", "kind": "continuous", "ignore": ["died", "months", "event"]},
    "survival": {"time": "months", "event": "event", "ignore": ["died"]},
}


def cohort_of(kind: str, rows: int = 500, seed: int = 0) -> Cohort:
    return Cohort.from_frame(small_frame(rows, seed), schema=SMALL_TABLE, **HOW[kind])


def noise_cohort(rows: int, columns: int, seed: int = 0, persons: int = 0) -> Cohort:
    """Columns of noise, the first of which says much about the outcome; `persons`: so many copies of each row."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).clip(-6, 6)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(columns)])
    frame["y"] = (x[:, 0] + 0.5 * rng.normal(size=rows) > 0).astype(int)
    numbers = (Column(f"x{k}", "continuous", low=-6, high=6) for k in range(columns))
    schema = Schema((*numbers, Column("y", "binary", categories=(0, 1))))
    if not persons:
        return Cohort.from_frame(frame, target="y", schema=schema)
    frame = frame.loc[np.repeat(np.arange(rows), persons)].reset_index(drop=True)
    frame["who"] = np.repeat(np.arange(rows), persons)
    return Cohort.from_frame(frame, target="y", person_id="who", schema=schema)


def home_of(
    cohort: Cohort,
    rows: int = 120,
    *,
    seed: int = 0,
    manual: bool = True,
    split: Any = None,
    codec: Codec | None = None,
) -> EvaluationInput:
    """Random training rows as condensed ones; with soft labels and weights where there is a manual."""
    parts = (Stratified(seed) if split is None else split).split(cohort)
    rng = np.random.default_rng([seed, 1])
    chosen = rng.permutation(parts.train)[:rows]
    made, kind = cohort.take(chosen), cohort.outcome.kind
    codec = Codec.fit(cohort.features.iloc[parts.train], cohort.schema) if codec is None else codec
    soft = weight = None
    if manual:
        weight = 10 * rng.uniform(0.5, 2.0, len(chosen))
        link = kind.learner().link
        if link == "probability":
            soft = 0.1 + 0.8 * made.outcome["label"]
        elif link == "probabilities":
            soft = 0.8 * np.eye(len(kind.labels))[made.outcome["label"]] + 0.2 / len(kind.labels)
        elif link == "value":
            soft = made.outcome["value"]
    none = Privacy("none", "toy", None, None, "none", "none")
    return inputs_of(
        cohort,
        parts,
        made.features,
        Labelled(made.outcome, soft, weight),
        none,
        codec=codec,
        unit=kind.unit(cohort.outcome.take(parts.train)),
    )


def inputs_of(
    cohort: Cohort,
    split: Split,
    features: pd.DataFrame,
    labelled: Labelled,
    privacy: Privacy,
    *,
    codec: Codec,
    **details: Any,
) -> EvaluationInput:
    """These condensed rows, as a method would have left them, beside their table."""
    details = {"encoded": codec.encode(features), "learner": cohort.outcome.kind.learner(), **details}
    splitting = Stratified(0)  # nobody asks it: the split is given
    result = Result.from_rows(
        features, cohort.schema, labelled, privacy, splitting, codec=codec, shuffle=False, **details
    )
    return EvaluationInput(cohort, split, result)


DETAILS = {"rows": "encoded", "frame": "features", "reference": "reference"}
DETAILS |= {name: name for name in ("labelled", "codec", "unit", "learner")}


def changed(inputs: EvaluationInput, **changes: Any) -> EvaluationInput:
    """The same with other condensed rows, by the names that `EvaluationInput` has for them."""
    details = {DETAILS[name]: changes.pop(name) for name in [*changes] if name in DETAILS}
    if "reference" in details:
        details["reference_covered"] = True
    return replace(inputs, result=replace(inputs.result.with_details(**details), **changes))


def without_rows(inputs: EvaluationInput) -> EvaluationInput:
    """A run that found no answer."""
    none = np.empty(0, np.int64)
    labelled = Labelled(
        inputs.labelled.outcome.take(none),
        *(None if part is None else part[none] for part in (inputs.labelled.soft, inputs.labelled.weight)),
    )
    return changed(inputs, frame=inputs.frame.iloc[:0], rows=inputs.rows[:0], labelled=labelled)


def nobody_held_out(cohort: Cohort) -> EvaluationInput:
    return home_of(cohort, split=HoldoutSplit(0.0, 7))
