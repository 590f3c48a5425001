"""Students: the common models that a recipient of a condensed table trains, with one interface.

Outcomes with classes: XGBoost, LightGBM, a random forest, support vectors, logistic regression and a neural network;
numbers: the same with ridge regression; outcomes with a time and an event, and any other: the learners of the kind.
What a kind has as a learner of its own is used as it is; the others have the settings of the students that judge
candidate sets (outcomes/panel.py), and the libraries' own defaults beyond these. Support vectors give distances: they
become probabilities by a logistic regression (Platt) on the student's own training rows. Networks, support vectors and
linear models see columns standardised by the rows at hand. Each student is trained on a bounded number of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats, Index, Numbers
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.models import learners
from distcondense.models.base import Model, Rows
from distcondense.models.learners import FittedModel, Learner, TrainingSet, learner
from distcondense.outcomes import panel
from distcondense.outcomes.base import Kind

MOST_ROWS = 50_000  # that a student is trained on
MOST_ROWS_OF = {"svm": 5_000, "mlp": 20_000, "cox": 20_000, "forest": 20_000}  # whose time grows faster than the rows
LINEAR_STEPS = 500  # of a logistic regression, at most: as in outcomes/panel.py
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
CLASSES = ("probability", "probabilities")  # what scores are where an outcome has classes
STANDARDISED = ("svm", "logistic", "ridge", "mlp")
SCIKIT = (
    *STANDARDISED,
    "forest",
)  # are taught by `Result.training_data`: weights of mean 1, and classes are plain ones


@dataclass(frozen=True)
class Student:
    """One model class as recipients train it."""

    name: str
    learn: Callable[..., Model]  # (rows, outcome, *, weight, soft, seed, threads)
    soft: bool = True  # learns soft labels instead of the outcome, where there are any

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def most(self) -> int:
        """Rows that it is trained on, by chance where there are more."""
        return MOST_ROWS_OF.get(self.name, MOST_ROWS)

    def fit(
        self,
        rows: Rows,
        outcome: Outcome,
        *,
        weight: Numbers | None = None,
        soft: Numbers | None = None,
        seed: int,
        threads: int,
    ) -> Model:
        """The model of these rows, or of so many of them as it takes; a `ModelError` where they teach nothing."""
        if len(rows) > self.most:
            chosen = np.sort(np.random.default_rng([seed, 0x57D7]).choice(len(rows), self.most, replace=False))
            rows, outcome = rows[chosen], outcome.take(chosen)
            weight, soft = (None if part is None else part[chosen] for part in (weight, soft))
        if lacking := outcome.kind.lacking(outcome):
            raise ModelError(f"student {self.name}", f"needs rows with {lacking}", found=f"{len(rows)} rows without")
        if weight is not None and self.name in SCIKIT:
            weight = weight / weight.mean()
        how: dict[str, Any] = {"weight": weight, "soft": soft if self.soft else None, "threads": threads}
        how["seed"] = seed % 2**31  # scikit-learn and LightGBM take no larger one
        scaled = self.name in STANDARDISED
        with _quiet(threads):
            model = self.learn(panel.standardised(rows, rows[:0])[0] if scaled else rows, outcome, **how)

        def scores(at: Rows) -> Any:
            with _quiet(threads):
                return model.scores(panel.standardised(rows, at)[1] if scaled else at)

        return FittedModel(scores, model.link, rows.shape[1], self.name)


def students_of(kind: Kind) -> tuple[Student, ...]:
    """Everybody who may be taught this kind of outcome, the kind's default first."""
    link = kind.learner().link
    ours = _OURS.get(link, {})
    found = {name: Student(name, one.fit, _takes_soft(name, link)) for name, one in kind.learners.items()}
    for name, learn in ours.items():
        found.setdefault(name, Student(name, learn, _takes_soft(name, link)))
    order = [name for name in TITLES if name in found] + [name for name in found if name not in TITLES]
    order.sort(key=lambda name: name != kind.learner().name)
    return tuple(found[name] for name in order)


def student_of(learner: Learner) -> Student:
    """A learner of the kind's own as a student."""
    return Student(learner.name, learner.fit, _takes_soft(learner.name, learner.link))


def _takes_soft(name: str, link: str) -> bool:
    """As the manual says: soft labels of classes are for boosters; of a number everybody learns what is expected."""
    return not (link in CLASSES and name in SCIKIT)


@contextmanager
def _quiet(threads: int) -> Iterator[None]:
    """On so many threads; that few rows separate, or that a network could go on, is no news here."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- classes ----------------------------------------------------------------------------------------------------------


@learner
def _forest_classes(training: TrainingSet) -> Model:
    from sklearn.ensemble import RandomForestClassifier

    return _classifier(
        RandomForestClassifier(panel.TREES, random_state=training.seed, n_jobs=training.threads), training, "forest"
    )


@learner
def _logistic_classes(training: TrainingSet) -> Model:
    from sklearn.linear_model import LogisticRegression

    return _classifier(LogisticRegression(max_iter=LINEAR_STEPS), training, "logistic")


@learner
def _network_classes(training: TrainingSet) -> Model:
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(hidden_layer_sizes=panel.HIDDEN, max_iter=panel.PASSES, random_state=training.seed)
    return _classifier(model, training, "mlp")


@learner
def _vectors_classes(training: TrainingSet) -> Model:
    """Distances to the margin; a logistic regression of the student's own rows makes probabilities of them (Platt)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    there, code = np.unique(training.outcome["label"], return_inverse=True)
    model = SVC(random_state=training.seed).fit(training.rows, code, sample_weight=training.weight)

    def distances(at: Rows) -> Any:
        given = np.asarray(model.decision_function(at))
        return given[:, None] if given.ndim == 1 else given

    platt = LogisticRegression(max_iter=LINEAR_STEPS)
    platt.fit(distances(training.rows), code, sample_weight=training.weight)
    return _of_classes(lambda at: platt.predict_proba(distances(at)), there, training, "svm")


@learner
def _lightgbm_classes(training: TrainingSet) -> Model:
    """One booster of the classes; with soft labels one a class, against the rest."""
    if training.soft is None:
        there, code = np.unique(training.outcome["label"], return_inverse=True)
        many = {"objective": "softmax", "num_class": len(there)} if len(there) > 2 else {"objective": "cross_entropy"}
        answer = _lightgbm(many, training, code)
        return _of_classes(lambda at: _two_columns(answer(at)), there, training, "lightgbm")
    soft = np.clip(np.asarray(training.soft, np.float64), 0.0, 1.0)  # (m,) of the second of two classes, or (m, K)
    each = [_lightgbm({"objective": "cross_entropy"}, training, one) for one in np.atleast_2d(soft.T)]

    def answers(at: Rows) -> Any:
        given = [one(at) for one in each]
        columns = _two_columns(given[0]) if len(given) == 1 else np.stack(given, axis=1)
        return columns / np.maximum(columns.sum(1, keepdims=True), 1e-12)

    return _of_classes(answers, np.arange(len(training.outcome.kind.labels)), training, "lightgbm")


def _two_columns(answer: NDArray[Any]) -> NDArray[Any]:
    """(n,) probabilities of the second of two classes as (n, 2)."""
    return np.stack([1 - answer, answer], axis=1) if answer.ndim == 1 else answer


def _classifier(model: Any, training: TrainingSet, name: str) -> Model:
    there, code = np.unique(training.outcome["label"], return_inverse=True)
    model.fit(training.rows, code, **_weights(model, training))
    return _of_classes(model.predict_proba, there, training, name)


def _of_classes(answer: Callable[[Rows], Any], there: Sequence[int] | Index, training: TrainingSet, name: str) -> Model:
    """Probabilities of the classes `there` as the kind's own learner gives them: of the second of two, or of all."""
    kind: Kind = training.outcome.kind
    link, classes = kind.learner().link, len(kind.labels)

    def scores(at: Rows) -> Any:
        out = np.zeros((len(at), classes))
        out[:, there] = answer(at)
        return out[:, 1] if link == "probability" else out

    return FittedModel(scores, link, training.rows.shape[1], name)


# -- numbers ----------------------------------------------------------------------------------------------------------


@learner
def _forest_values(training: TrainingSet) -> Model:
    from sklearn.ensemble import RandomForestRegressor

    return _regressor(
        RandomForestRegressor(panel.TREES, random_state=training.seed, n_jobs=training.threads), training, "forest"
    )


@learner
def _ridge_values(training: TrainingSet) -> Model:
    from sklearn.linear_model import Ridge

    return _regressor(Ridge(), training, "ridge")


@learner
def _vectors_values(training: TrainingSet) -> Model:
    from sklearn.svm import SVR

    return _regressor(SVR(), training, "svm")


@learner
def _network_values(training: TrainingSet) -> Model:
    from sklearn.neural_network import MLPRegressor

    model = MLPRegressor(hidden_layer_sizes=panel.HIDDEN, max_iter=panel.PASSES, random_state=training.seed)
    return _regressor(model, training, "mlp")


@learner
def _lightgbm_values(training: TrainingSet) -> Model:
    answer = _lightgbm({"objective": "regression"}, training, _values(training))
    return FittedModel(answer, training.outcome.kind.learner().link, training.rows.shape[1], "lightgbm")


def _regressor(model: Any, training: TrainingSet, name: str) -> Model:
    """Values are learned in units of their spread: networks and support vectors are made for such numbers."""
    value = _values(training)
    centre, unit = float(value.mean()), float(value.std()) or 1.0
    model.fit(training.rows, (value - centre) / unit, **_weights(model, training))
    link = training.outcome.kind.learner().link
    return FittedModel(lambda at: centre + unit * model.predict(at), link, training.rows.shape[1], name)


def _values(training: TrainingSet) -> Floats:
    return np.asarray(training.outcome["value"] if training.soft is None else training.soft, np.float64)


# -- both -------------------------------------------------------------------------------------------------------------


def _lightgbm(params: dict[str, Any], training: TrainingSet, label: NDArray[Any]) -> Callable[[Rows], NDArray[Any]]:
    """The settings of the house's XGBoost in LightGBM's words."""
    try:
        import lightgbm
    except ImportError:
        raise ModelError(
            "student lightgbm",
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


_CLASSES: dict[str, Callable[..., Model]] = {
    "lightgbm": _lightgbm_classes,
    "forest": _forest_classes,
    "svm": _vectors_classes,
    "logistic": _logistic_classes,
    "mlp": _network_classes,
}
_OURS: dict[str, dict[str, Callable[..., Model]]] = {  # by what the kind's own learner's scores are
    **dict.fromkeys(CLASSES, _CLASSES),
    "value": {
        "lightgbm": _lightgbm_values,
        "forest": _forest_values,
        "ridge": _ridge_values,
        "svm": _vectors_values,
        "mlp": _network_values,
    },
}
