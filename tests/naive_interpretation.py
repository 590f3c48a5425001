"""Slow twins for `evaluation/interpretation/`: loops straight from the formula; and homes to try."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd

from distcondense import Cohort
from distcondense.data.persons import Stratified
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

SPLIT = Stratified(0)


def home_of(cohort: Cohort, rows: Any, **labels: Any) -> EvaluationInput:
    """A home whose condensed rows are these rows of the cohort; `outcome`, `soft` and `weight` are other labels."""
    made = cohort.take(np.asarray(rows, np.int64))
    return of_features(cohort, made.features, labels.pop("outcome", made.outcome), **labels)


def of_features(cohort: Cohort, features: pd.DataFrame, outcome: Any, **labels: Any) -> EvaluationInput:
    labelled = Labelled(outcome, labels.get("soft"), labels.get("weight"))
    privacy = Privacy("none", "toy", None, None, "none", "none")
    return EvaluationInput.from_result(
        cohort,
        Result.from_rows(features.reset_index(drop=True), cohort.schema, labelled, privacy, SPLIT, shuffle=False),
    )


def as_text(part: Any) -> str:
    """The part as it stands in report.json; NaN would not be JSON."""
    return json.dumps(part.to_dict(), allow_nan=False, ensure_ascii=False)


def shapley(trees: list[dict[str, Any]], row: Any) -> np.ndarray:
    """Shapley values of a boosted model by all subsets of columns; a column not known follows both branches by cover.

    `trees`: XGBoost's own JSON dump with statistics.
    """
    d = len(row)
    known = [frozenset(s) for size in range(d + 1) for s in itertools.combinations(range(d), size)]
    worth = {s: sum(_expected(tree, row, s) for tree in trees) for s in known}
    out = np.zeros(d)
    for j in range(d):
        for s in known:
            if j not in s:
                share = math.factorial(len(s)) * math.factorial(d - len(s) - 1) / math.factorial(d)
                out[j] += share * (worth[s | {j}] - worth[s])
    return out


def _expected(node: dict[str, Any], row: Any, known: frozenset[int]) -> float:
    if "leaf" in node:
        return float(node["leaf"])
    children = {child["nodeid"]: child for child in node["children"]}
    yes, no = children[node["yes"]], children[node["no"]]
    column = int(node["split"].removeprefix("f"))
    if column in known:
        return _expected(yes if row[column] < np.float32(node["split_condition"]) else no, row, known)
    return (yes["cover"] * _expected(yes, row, known) + no["cover"] * _expected(no, row, known)) / node["cover"]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Karr et al. 2006 of two intervals."""
    common = max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
    return (common / (one[1] - one[0]) + common / (other[1] - other[0])) / 2
