"""Common models as recipients train them: scikit-learn's and XGBoost's own, with settings that fit few rows.

Two uses. The private method lets them judge candidate sets (`PrivateSide.judge`): each is trained on a set's rows and
the plain outcome column, and asked about rows of the population, for which the private model's answer is known
(`classifiers`, `regressors`). The evaluation trains them on real and condensed rows (evaluation/models.py). Models are
called by the names of learners: xgb, forest, logistic, ridge, svm, mlp.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats, Matrix
from distcondense.models import learners

Ask = Callable[[Matrix, NDArray[Any], Matrix], Floats]
SEED = 1001  # not a user's default, so that no one model's luck is chosen
TREES = 60
HIDDEN = (32,)
PASSES = 120
STEPS = 500  # of a logistic regression, at most
BOOSTED: dict[str, Any] = {
    **learners.TREES,
    "n_estimators": learners.ROUNDS,
    "n_jobs": 1,
    "verbosity": 0,
    "random_state": SEED,
}
CLASSIFIERS = ("xgb", "forest", "logistic", "svm", "mlp")
REGRESSORS = ("xgb", "forest", "ridge", "svm", "mlp")
LIBRARIES = {  # name → module, classifier, regressor
    "xgb": ("xgboost", "XGBClassifier", "XGBRegressor"),
    "forest": ("sklearn.ensemble", "RandomForestClassifier", "RandomForestRegressor"),
    "logistic": ("sklearn.linear_model", "LogisticRegression", ""),
    "ridge": ("sklearn.linear_model", "", "Ridge"),
    "svm": ("sklearn.svm", "SVC", "SVR"),
    "mlp": ("sklearn.neural_network", "MLPClassifier", "MLPRegressor"),
}


def unfitted(name: str, *, classes: bool, seed: int = SEED, threads: int = 1) -> Any:
    """A scikit-learn model, or XGBoost's own with that interface, of `CLASSIFIERS` or of `REGRESSORS`."""
    settings: dict[str, dict[str, Any]] = {
        "xgb": BOOSTED,
        "forest": {"n_estimators": TREES, "random_state": seed, "n_jobs": threads},
        "logistic": {"max_iter": STEPS},
        "mlp": {"hidden_layer_sizes": HIDDEN, "max_iter": PASSES, "random_state": seed},
    }
    module, classifier, regressor = LIBRARIES[name]
    return getattr(import_module(module), classifier if classes else regressor)(**settings.get(name, {}))


def takes_soft(among: Sequence[str]) -> bool:
    """Whether a model of soft labels judges too, which boosted trees do."""
    return not among or "xgb" in among


def classifiers(classes: int, among: Sequence[str] = ()) -> Iterator[tuple[str, Ask]]:
    """Name, and fit-and-ask: rows, labels from 0, rows to ask about → (r, classes) scores, larger for likelier."""
    for name in CLASSIFIERS:
        if not among or name in among:
            yield name, partial(_ask_classifier, name, classes)


def regressors(among: Sequence[str] = ()) -> Iterator[tuple[str, Ask]]:
    """Name, and fit-and-ask: rows, values in units of their spread, rows to ask about → (r,) values."""
    for name in REGRESSORS:
        if not among or name in among:
            yield name, partial(_ask_regressor, name)


def _ask_classifier(name: str, classes: int, rows: Matrix, labels: NDArray[Any], people: Matrix) -> Floats:
    there, code = np.unique(labels, return_inverse=True)
    answers = np.zeros((len(people), classes))
    if len(there) < 2:  # one class teaches nothing, and most models refuse it
        return answers
    model = _quietly(unfitted(name, classes=True).fit, rows, code)
    if hasattr(model, "decision_function"):
        margin = model.decision_function(people)
        answers[:, there] = np.stack([-margin, margin], axis=1) if margin.ndim == 1 else margin
    else:
        answers[:, there] = model.predict_proba(people)
    return answers


def _ask_regressor(name: str, rows: Matrix, values: Floats, people: Matrix) -> Floats:
    return np.asarray(_quietly(unfitted(name, classes=False).fit, rows, values).predict(people), np.float64)


def standardised(rows: Matrix, people: Matrix) -> tuple[Matrix, Matrix]:
    """As a careful recipient does: by the mean and spread of the rows at hand."""
    centre, scale = rows.mean(0), rows.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    return (rows - centre) / scale, (people - centre) / scale


class _Quiet:
    """Warnings of all threads are ignored from when the first comes in until the last has left.

    `warnings.catch_warnings` alone would let one thread restore what another had changed.
    """

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.kept = warnings.catch_warnings()
                self.kept.__enter__()
                warnings.simplefilter("ignore")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.kept.__exit__(None, None, None)


_QUIET = _Quiet()


def _quietly(fit: Callable[..., Any], *arguments: Any) -> Any:
    """`fit(*arguments)`; that a model of few rows stops early is no news here."""
    with _QUIET:
        return fit(*arguments)
