"""The models that an evaluation trains: every learner of a kind of outcome, and those that recipients know besides.

Outcomes with classes: XGBoost, LightGBM, a random forest, support vectors, logistic regression and a neural network;
numbers: the same with ridge regression; outcomes with a time and an event, and any other: the learners of the kind.
What a kind has as a learner of its own is used as it is; the others have settings that
fit few rows (common_models.py). All are trained as a recipient does (`recipient`). A model more is a learner of its
kind (`Kind.learners`), or an entry in `_MORE` and a title here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats, Index, Numbers
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.evaluation.common_models import CLASSIFIERS, REGRESSORS, standardised, unfitted
from distcondense.models import learners
from distcondense.models.base import Model, Rows
from distcondense.models.learners import FittedModel, Learner, TrainingSet, learner
from distcondense.outcomes.base import Kind

TITLES = {
    "xgb": "XGBoost",
    "lightgbm": "LightGBM",
    "forest": "Random forest",
    "svm": "Support vectors",
    "logistic": "Logistic regression",
    "ridge": "Ridge regression",
    "mlp": "Neural network",
    "cox": "Cox",
    "aft": "AFT",
}
MOST_ROWS = 100_000  # that a model is trained on
MOST_ROWS_OF = {"svm": 5_000, "mlp": 20_000, "forest": 20_000}  # whose time grows faster than the rows
CLASSES = ("probability", "probabilities")  # what scores are where an outcome has classes
STANDARDISED = ("svm", "logistic", "ridge", "mlp")
SCIKIT = (*STANDARDISED, "forest")  # trained on `Result.training_data`: weights of mean 1, and classes are plain ones


def title_of(name: str) -> str:
    """What people read of a learner."""
    return TITLES.get(name, name)


def most_rows(name: str) -> int:
    """Rows that a learner is trained on, by chance where there are more."""
    return MOST_ROWS_OF.get(name, MOST_ROWS)


def learners_of(kind: Kind) -> tuple[Learner, ...]:
    """Every model that may be trained for this kind of outcome, the kind's default first."""
    link = kind.learner().link
    every = {name: Learner(name, link, fit) for name, fit in _MORE.get(link, {}).items()} | dict(kind.learners)
    order = [name for name in TITLES if name in every] + [name for name in every if name not in TITLES]
    return tuple(every[name] for name in sorted(order, key=lambda name: name != kind.learner().name))


def recipient(learner: Learner) -> Learner:
    """The learner as a recipient trains it.

    On at most `most_rows`; linear models, networks and support vectors on columns standardised by the rows at hand;
    scikit-learn's with weights of mean 1 and, for classes, without soft labels, as the manual says.
    Its `fit` raises `ModelError` where rows say nothing about the outcome.
    """
    name, most, scaled = learner.name, most_rows(learner.name), learner.name in STANDARDISED
    soft_too = learner.soft and not (learner.link in CLASSES and name in SCIKIT)

    def fit(
        rows: Rows,
        outcome: Outcome,
        *,
        weight: Numbers | None = None,
        soft: Numbers | None = None,
        validation: tuple[Rows, Outcome] | None = None,
        seed: int,
        threads: int,
    ) -> Model:
        if len(rows) > most:
            chosen = np.sort(np.random.default_rng([seed, 0x57D7]).choice(len(rows), most, replace=False))
            rows, outcome = rows[chosen], outcome.take(chosen)
            weight, soft = (None if values is None else values[chosen] for values in (weight, soft))
        if lacking := outcome.kind.lacking(outcome):
            raise ModelError(f"model {name}", f"needs rows with {lacking}", found=f"{len(rows)} rows without")
        if weight is not None and name in SCIKIT:
            weight = weight / weight.mean()
        options: dict[str, Any] = {"weight": weight, "soft": soft if soft_too else None, "threads": threads}
        if validation is not None and not scaled:
            options["validation"] = validation
        options["seed"] = seed % 2**31  # scikit-learn and LightGBM take no larger one
        with _quiet(threads):
            model = learner.fit(standardised(rows, rows[:0])[0] if scaled else rows, outcome, **options)

        def scores(at: Rows) -> Any:
            with _quiet(threads):
                return model.scores(standardised(rows, at)[1] if scaled else at)

        return FittedModel(scores, model.link, rows.shape[1], name)

    return replace(learner, fit=fit, soft=soft_too)


@contextmanager
def _quiet(threads: int) -> Iterator[None]:
    """On so many threads; that few rows separate, or that a network could go on, is no news here."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- classes ----------------------------------------------------------------------------------------------------------


def _scikit_classes(name: str) -> Callable[..., Model]:
    """`fit` of a scikit-learn classifier."""

    @learner
    def fit(training: TrainingSet) -> Model:
        there, code = np.unique(training.outcome["label"], return_inverse=True)
        model = unfitted(name, classes=True, seed=training.seed, threads=training.threads)
        model.fit(training.rows, code, **_weights(model, training))
        answer = model.predict_proba if name != "svm" else _platt(model, training, code)
        return _of_classes(answer, there, training, name)

    return fit


def _platt(model: Any, training: TrainingSet, code: Index) -> Callable[[Rows], Any]:
    """Probabilities of distances to the margin, by a logistic regression of the model's own training rows (Platt)."""

    def distances(at: Rows) -> Any:
        answer = np.asarray(model.decision_function(at))
        return answer[:, None] if answer.ndim == 1 else answer

    platt = unfitted("logistic", classes=True).fit(distances(training.rows), code, sample_weight=training.weight)
    return lambda at: platt.predict_proba(distances(at))


@learner
def _lightgbm_classes(training: TrainingSet) -> Model:
    """One booster of the classes; with soft labels one a class, against the rest."""
    if training.soft is None:
        there, code = np.unique(training.outcome["label"], return_inverse=True)
        many = {"objective": "softmax", "num_class": len(there)} if len(there) > 2 else {"objective": "cross_entropy"}
        answer = _lightgbm(many, training, code)
        return _of_classes(lambda at: _two_columns(answer(at)), there, training, "lightgbm")
    soft = np.clip(np.asarray(training.soft, np.float64), 0.0, 1.0)  # (m,) of the second of two classes, or (m, K)
    boosters = [_lightgbm({"objective": "cross_entropy"}, training, share) for share in np.atleast_2d(soft.T)]

    def answers(at: Rows) -> Any:
        shares = [booster(at) for booster in boosters]
        columns = _two_columns(shares[0]) if len(shares) == 1 else np.stack(shares, axis=1)
        return columns / np.maximum(columns.sum(1, keepdims=True), 1e-12)

    return _of_classes(answers, np.arange(len(training.outcome.kind.labels)), training, "lightgbm")


def _two_columns(answer: NDArray[Any]) -> NDArray[Any]:
    """(n,) probabilities of the second of two classes as (n, 2)."""
    return np.stack([1 - answer, answer], axis=1) if answer.ndim == 1 else answer


def _of_classes(answer: Callable[[Rows], Any], there: Index, training: TrainingSet, name: str) -> Model:
    """Probabilities of the classes `there` as the kind's own learner gives them: of the second of two, or of all."""
    kind: Kind = training.outcome.kind
    link, classes = kind.learner().link, len(kind.labels)

    def scores(at: Rows) -> Any:
        out = np.zeros((len(at), classes))
        out[:, there] = answer(at)
        return out[:, 1] if link == "probability" else out

    return FittedModel(scores, link, training.rows.shape[1], name)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _scikit_values(name: str) -> Callable[..., Model]:
    """`fit` of a scikit-learn regressor.

    Values are learned in units of their spread: networks and support vectors are made for such numbers.
    """

    @learner
    def fit(training: TrainingSet) -> Model:
        value = _values(training)
        centre, unit = float(value.mean()), float(value.std()) or 1.0
        model = unfitted(name, classes=False, seed=training.seed, threads=training.threads)
        model.fit(training.rows, (value - centre) / unit, **_weights(model, training))
        link = training.outcome.kind.learner().link
        return FittedModel(lambda at: centre + unit * model.predict(at), link, training.rows.shape[1], name)

    return fit


@learner
def _lightgbm_values(training: TrainingSet) -> Model:
    answer = _lightgbm({"objective": "regression"}, training, _values(training))
    return FittedModel(answer, training.outcome.kind.learner().link, training.rows.shape[1], "lightgbm")


def _values(training: TrainingSet) -> Floats:
    return np.asarray(training.outcome["value"] if training.soft is None else training.soft, np.float64)


# -- both -------------------------------------------------------------------------------------------------------------


def _lightgbm(params: dict[str, Any], training: TrainingSet, label: NDArray[Any]) -> Callable[[Rows], NDArray[Any]]:
    """The settings of our XGBoost in LightGBM's words."""
    try:
        import lightgbm
    except ImportError:
        raise ModelError(
            "model lightgbm",
            "needs the package lightgbm",
            found="that it is not installed",
            fix="pip install 'distcondense[lightgbm]'",
        ) from None
    trees = learners.TREES
    settings = {
        **params,
        "learning_rate": trees["learning_rate"],
        "max_depth": trees["max_depth"],
        "bagging_fraction": trees["subsample"],
        "bagging_freq": 1,
        "seed": training.seed,
        "num_threads": training.threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(training.rows, label, weight=training.weight, params={"verbosity": -1})
    booster = lightgbm.train(settings, data, learners.ROUNDS)
    return lambda at: np.asarray(booster.predict(at, num_threads=training.threads))


def _weights(model: Any, training: TrainingSet) -> dict[str, Any]:
    """For `fit`: of a library in which this model knows no weights, none."""
    from sklearn.utils.validation import has_fit_parameter

    known = training.weight is not None and has_fit_parameter(model, "sample_weight")
    return {"sample_weight": training.weight} if known else {}


_OF_CLASSES = {"lightgbm": _lightgbm_classes, **{name: _scikit_classes(name) for name in CLASSIFIERS if name != "xgb"}}
_MORE: dict[str, dict[str, Callable[..., Model]]] = {  # by what the kind's own learner's scores are
    **dict.fromkeys(CLASSES, _OF_CLASSES),
    "value": {"lightgbm": _lightgbm_values, **{name: _scikit_values(name) for name in REGRESSORS if name != "xgb"}},
}
