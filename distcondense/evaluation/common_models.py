"""Common models as recipients train them: scikit-learn's and XGBoost's own, with settings that fit few rows.

Models are called by the names of learners: xgb, forest, logistic, ridge, svm, mlp.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from distcondense.arrays import Matrix
from distcondense.models import learners

SEED = 1001
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


def standardised(rows: Matrix, people: Matrix) -> tuple[Matrix, Matrix]:
    """As a careful recipient does: by the mean and spread of the rows at hand."""
    centre, scale = rows.mean(0), rows.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    return (rows - centre) / scale, (people - centre) / scale
