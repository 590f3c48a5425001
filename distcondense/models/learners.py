"""Fitting models to plain arrays (Thakur et al. §4.1, §4.7): boosted trees, proportional hazards, and scikit-learn's.

What the arrays mean is a kind of outcome's business (`outcomes/`): each enters its learners, as reference models and as
students of condensed rows. XGBoost: learning rate 0.1, depth 5, subsample 0.7, at most 100 rounds; with validation rows
the number of rounds is the one that scores best there; without, all 100 rounds are kept. Cox: L2 penalty 1.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Labels, Numbers
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.models.base import LinearModel, Link, Model, Rows, Scores

ROUNDS = 100
TREES = {"learning_rate": 0.1, "max_depth": 5, "subsample": 0.7, "tree_method": "hist"}
COX_PENALTY = 1.0
BINS = 256  # XGBoost's own default
WIDE, WIDE_BINS = 500, 32  # on wider tables 256 bins a column cost six times the time of 32 and buy nothing here


@dataclass(frozen=True)
class Learner:
    """One model class of a kind of outcome: how to fit it, and what its scores mean.

    Parameters
    ----------
    name
        What options, reports and `Kind.learners` call it.
    link
        What its scores are: a probability, a value, a log-risk …
    fit
        `fit(rows, outcome, *, weight, soft, validation, seed, threads) -> Model`; made by `@learner`.
    soft
        It learns soft labels instead of the outcome, where there are any.
    """

    name: str
    link: Link
    fit: Callable[..., Model]
    soft: bool = True


@dataclass(frozen=True, repr=False)
class TrainingSet:
    """What a model is fitted to; which of it a learner uses is the learner's business."""

    rows: Rows
    outcome: Outcome
    weight: Numbers | None = None
    soft: Numbers | None = None  # (m,) or (m, S): what is expected of each row, learned instead of its outcome
    validation: tuple[Rows, Outcome] | None = None
    seed: int = 0
    threads: int = 1


def learner(train: Callable[[TrainingSet], Model]) -> Callable[..., Model]:
    """`fit(rows, outcome, *, weight, soft, validation, seed, threads)` from a function of the training set."""

    @wraps(train)
    def fit(rows: Rows, outcome: Outcome, **how: Any) -> Model:
        return train(TrainingSet(rows, outcome, **how))

    return fit


KEPT = 2  # models that `fitted_once` remembers in this process
_kept: dict[tuple[Callable[..., Model], bytes], Model] = {}


def fitted_once(learner: Learner, rows: Rows, outcome: Outcome, **how: Any) -> Model:
    """`learner.fit`, or what it gave for these very rows before: runs of a study share a table and its reference."""
    training = TrainingSet(rows, outcome, **how)
    key = (learner.fit, _digest(training, ROUNDS))
    if key not in _kept:
        while len(_kept) >= KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = learner.fit(rows, outcome, **how)
    return _kept[key]


def _digest(training: TrainingSet, rounds: int) -> bytes:
    """Of everything that a fit depends on."""
    apart = training.validation
    held = [(training.rows, training.outcome), *([] if apart is None else [apart])]
    digest = hashlib.blake2b(repr((training.seed, training.threads, rounds)).encode())
    for values in (
        training.weight,
        training.soft,
        *(part for rows, outcome in held for part in _arrays(rows, outcome)),
    ):
        given = None if values is None else np.ascontiguousarray(values)
        digest.update(repr(None if given is None else (given.dtype, given.shape)).encode())
        digest.update(b"" if given is None else given.data)
    for _, outcome in held:
        digest.update(repr((outcome.kind, sorted(outcome.arrays))).encode())
    return digest.digest()


def _arrays(rows: Rows, outcome: Outcome) -> list[Any]:
    return [rows, *(outcome.arrays[name] for name in sorted(outcome.arrays))]


@dataclass(frozen=True)
class FittedModel:
    """A model that is only known by its scores: (k, d) rows → (k,) or (k, S)."""

    function: Callable[[Rows], Any]
    link: Link
    n_features: int
    name: str

    def scores(self, rows: Rows) -> Scores:
        return np.asarray(self.function(rows), dtype=np.float32)


def boosted(
    params: dict[str, Any],
    training: TrainingSet,
    labels: dict[str, Any],
    *,
    link: Link,
    name: str,
    score: Callable[[Numbers, Outcome], float] | None = None,
) -> Model:
    """XGBoost with one score a row, as a model whose trees are known.

    `score` of margins against an outcome says how many rounds are enough, where there are validation rows.
    """
    from distcondense.models.trees import tree_model

    booster = booster_of(params, training, labels)
    if training.validation is not None and score is not None:
        rows, outcome = training.validation
        booster = booster[: _best_rounds(booster, rows, lambda margin: score(margin, outcome), training.threads)]
    return tree_model(booster, link=link, name=name, threads=training.threads)


def boosted_many(
    params: dict[str, Any], training: TrainingSet, labels: dict[str, Any], *, link: Link, name: str
) -> Model:
    """XGBoost with several scores a row: they are its library's own."""
    booster = booster_of(params, training, labels)
    booster.set_param({"nthread": training.threads})
    columns = training.rows.shape[1]
    return FittedModel(lambda at: booster.inplace_predict(at, validate_features=False), link, columns, name)


def booster_of(params: dict[str, Any], training: TrainingSet, labels: dict[str, Any]) -> Any:
    import xgboost as xgb

    rows, seed, threads = training.rows, training.seed, training.threads
    bins = WIDE_BINS if rows.shape[1] > WIDE else BINS
    settings = {**TREES, **params, "max_bin": bins, "seed": seed, "nthread": threads, "verbosity": 0}
    # binned straight from the array: a DMatrix would first hold a sparse copy of twice its size
    data = xgb.QuantileDMatrix(rows, nthread=threads, max_bin=bins, **labels)
    return xgb.train(settings, data, ROUNDS)


def _best_rounds(booster: Any, rows: Rows, score: Callable[[Numbers], float], threads: int) -> int:
    """The number of rounds that scores best on validation; the fewest where several tie."""
    booster.set_param({"nthread": threads})
    margin = np.zeros(len(rows))
    best, chosen = -np.inf, 1
    for rounds in range(1, ROUNDS + 1):
        margin += booster.inplace_predict(rows, iteration_range=(rounds - 1, rounds), predict_type="margin")
        reached = score(margin)
        if reached > best:
            best, chosen = reached, rounds
    return chosen


def proportional_hazards(rows: Rows, time: Floats, event: Labels, weight: Numbers | None = None) -> Model:
    """Cox model by lifelines with an L2 penalty of 1; f(x) = log-risk."""
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    varies = (rows != rows[0]).any(axis=0)  # a column constant in these rows has no coefficient
    frame = pd.DataFrame(rows[:, varies].astype(np.float64))
    frame.columns = [f"x{j}" for j in range(frame.shape[1])]
    frame["time"], frame["event"] = time, event
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
    return LinearModel(beta, -centre)


def sklearn_model(model: Any, rows: Rows, label: Any, *, weight: Numbers | None, link: Link, name: str) -> Model:
    """A scikit-learn estimator: its predictions, or its probabilities where the link says so."""
    model.fit(rows, label, sample_weight=weight)
    answer = model.predict_proba if link == "probabilities" else model.predict
    return FittedModel(answer, link, rows.shape[1], name)
