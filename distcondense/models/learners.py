"""Fitting the three published models (paper 000 §4.1, §4.7), as reference models and as students of condensed rows.

XGBoost: learning rate 0.1, depth 5, subsample 0.7, at most 100 rounds. AFT: normal, scale 1. Cox: L2 penalty 1.
With validation rows the number of rounds is the one that scores best there; without, all 100 rounds are kept.
Survival times come divided by s (eq. 1).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.cohort import Outcome, Task
from distcondense.errors import ModelError, SettingsError
from distcondense.models.base import Link, Reference, Rows
from distcondense.models.linear import LinearReference
from distcondense.outcomes.measures import auroc, c_index

ROUNDS = 100
TREES = {"learning_rate": 0.1, "max_depth": 5, "subsample": 0.7, "tree_method": "hist"}
COX_PENALTY = 1.0
BINS = 256  # XGBoost's own default
WIDE, WIDE_BINS = 500, 32  # on wider tables 256 bins a column cost six times the time of 32 and buy nothing here
RARE = 0.2  # class weights are used where the rarer class is below this share ("where needed")

Validation = tuple[Rows, Outcome]


@dataclass(frozen=True)
class Learner:
    """One model class: how to fit it, and what its scores mean."""

    name: str
    task: Task
    link: Link
    fit: Callable[..., Reference]  # (rows, outcome, *, weight, risk, validation, seed, threads)


def outcome_score(link: Link, scores: NDArray[np.floating], outcome: Outcome) -> float:
    """AUROC or C-index of a model's scores; a longer log-time is a lower risk."""
    if outcome.time is None:
        return auroc(outcome.label, scores)
    return c_index(outcome.time, outcome.label, -scores if link == "log-time" else scores)


def time_scale(outcome: Outcome) -> float:
    """(1) s = IQR of the event times if above 0, else their median."""
    assert outcome.time is not None
    times = outcome.time[outcome.label == 1]
    low, middle, high = np.percentile(times, [25, 50, 75])
    return float(high - low) if high > low else float(middle)


def fit_xgb(
    rows: Rows,
    outcome: Outcome,
    *,
    weight: NDArray[np.floating] | None = None,
    risk: NDArray[np.floating] | None = None,
    validation: Validation | None = None,
    seed: int = 0,
    threads: int = 1,
) -> Reference:
    """XGBoost classifier; f(x) = P(y=1). With soft labels `risk` it learns these, without class weights."""
    positives = float(outcome.label.mean())
    params: dict[str, Any] = {"objective": "binary:logistic", "eval_metric": "auc"}
    if risk is None and min(positives, 1 - positives) < RARE and 0 < positives < 1:
        params["scale_pos_weight"] = (1 - positives) / positives
    labels = {"label": outcome.label if risk is None else risk, "weight": weight}
    return _boost(params, rows, labels, validation, "probability", "xgb", seed, threads)


def fit_aft(
    rows: Rows,
    outcome: Outcome,
    *,
    weight: NDArray[np.floating] | None = None,
    risk: NDArray[np.floating] | None = None,
    validation: Validation | None = None,
    seed: int = 0,
    threads: int = 1,
) -> Reference:
    """XGBoost accelerated failure time; f(x) = log-time, in the unit of the times given."""
    if outcome.time is None:
        raise ModelError("reference 'aft'", "needs a survival outcome", found="a binary target")
    upper = np.where(outcome.label == 1, outcome.time, np.inf)
    labels = {"label_lower_bound": outcome.time, "label_upper_bound": upper, "weight": weight}
    params = {
        "objective": "survival:aft",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": 1.0,
    }
    return _boost(params, rows, labels, validation, "log-time", "aft", seed, threads)


def _boost(
    params: dict[str, Any],
    rows: Rows,
    labels: dict[str, Any],
    validation: Validation | None,
    link: Link,
    name: str,
    seed: int,
    threads: int,
) -> Reference:
    import xgboost as xgb

    from distcondense.models.trees import tree_reference

    bins = WIDE_BINS if rows.shape[1] > WIDE else BINS
    settings = {**TREES, **params, "max_bin": bins, "seed": seed, "nthread": threads, "verbosity": 0}
    # binned straight from the array: a DMatrix would first hold a sparse copy of twice its size
    data = xgb.QuantileDMatrix(rows, nthread=threads, max_bin=bins, **labels)
    booster = xgb.train(settings, data, ROUNDS)
    if validation is not None:
        booster = booster[: _best_rounds(booster, validation, link, threads)]
    return tree_reference(booster, link=link, name=name, threads=threads)


def _best_rounds(booster: Any, validation: Validation, link: Link, threads: int) -> int:
    """The number of rounds that scores best on validation; the fewest where several tie."""
    rows, outcome = validation
    booster.set_param({"nthread": threads})
    margin = np.zeros(len(rows))
    best, chosen = -np.inf, 1
    for rounds in range(1, ROUNDS + 1):
        margin += booster.inplace_predict(rows, iteration_range=(rounds - 1, rounds), predict_type="margin")
        score = outcome_score(link, margin, outcome)
        if score > best:
            best, chosen = score, rounds
    return chosen


def fit_cox(
    rows: Rows,
    outcome: Outcome,
    *,
    weight: NDArray[np.floating] | None = None,
    risk: NDArray[np.floating] | None = None,
    validation: Validation | None = None,
    seed: int = 0,
    threads: int = 1,
) -> Reference:
    """Cox model by lifelines with an L2 penalty of 1; f(x) = log-risk. Nothing to tune, so validation is not used."""
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    if outcome.time is None:
        raise ModelError("reference 'cox'", "needs a survival outcome", found="a binary target")
    varies = (rows != rows[0]).any(axis=0)  # a column constant in these rows has no coefficient
    frame = pd.DataFrame(rows[:, varies].astype(np.float64))
    frame.columns = [f"x{j}" for j in range(frame.shape[1])]
    frame["time"], frame["event"] = outcome.time, outcome.label
    if weight is not None:
        frame["weight"] = np.asarray(weight, np.float64)
    model = CoxPHFitter(penalizer=COX_PENALTY)
    try:
        with warnings.catch_warnings():
            # lifelines warns about collinear one-hot columns, which the penalty handles
            warnings.simplefilter("ignore")
            model.fit(
                frame, "time", "event", weights_col=None if weight is None else "weight", robust=weight is not None
            )
    except ConvergenceError as error:
        raise ModelError(
            "reference 'cox'", "must converge", found=type(error).__name__, fix="use reference='aft'"
        ) from None
    beta = np.zeros(rows.shape[1], np.float32)
    beta[varies] = model.params_.to_numpy(np.float32)
    centre = float(rows.mean(axis=0, dtype=np.float64) @ beta)
    return LinearReference(beta, -centre)


LEARNERS = {
    "xgb": Learner("xgb", "binary", "probability", fit_xgb),
    "aft": Learner("aft", "survival", "log-time", fit_aft),
    "cox": Learner("cox", "survival", "log-risk", fit_cox),
}


def learner(name: str, task: Task) -> Learner:
    """The learner of that name, if it fits the task."""
    chosen = LEARNERS.get(name)
    legal = [n for n, entry in LEARNERS.items() if entry.task == task]
    if chosen is None or chosen.task != task:
        raise SettingsError(
            "reference",
            f"for a {task} outcome must be one of {', '.join(legal)}",
            found=repr(name),
            fix=f"say {legal[0]}",
        )
    return chosen
