"""Students as recipients train them: common models on the plain outcome column, no weights, no manual.

They judge candidate sets (`PrivateSide.judge`): each is trained on a set's rows and asked about rows of the population,
for which the private model's answer is known. Settings are the libraries' own where these fit few rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats, Matrix
from distcondense.models import learners

SEED = 1001  # not a user's default, so that no one student's luck is chosen
TREES = 60
HIDDEN = (32,)
PASSES = 120
BOOSTED: dict[str, Any] = {
    **learners.TREES,
    "n_estimators": learners.ROUNDS,
    "n_jobs": 1,
    "verbosity": 0,
    "random_state": SEED,
}


LEARNERS = {  # students → the learner of a kind that each stands for
    "boosted trees": "xgb",
    "forest": "forest",
    "logistic": "logistic",
    "ridge": "ridge",
    "support vectors": "svm",
}


def _among(made: dict[str, Callable[[], Any]], among: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """The students that stand for these learners; all where none is named."""
    return {name: model for name, model in made.items() if not among or LEARNERS.get(name) in among}


def takes_soft(among: Sequence[str]) -> bool:
    """Whether a student of soft labels is listened to, which boosted trees are."""
    return not among or LEARNERS["boosted trees"] in among


def classifiers(
    classes: int, among: Sequence[str] = ()
) -> Iterator[tuple[str, Callable[[Matrix, NDArray[Any], Matrix], Floats]]]:
    """Name, and fit-and-ask: rows, labels from 0, rows to ask about → (r, classes) scores, larger for likelier."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC
    from xgboost import XGBClassifier

    made: dict[str, Callable[[], Any]] = {
        "boosted trees": lambda: XGBClassifier(**BOOSTED),
        "forest": lambda: RandomForestClassifier(TREES, random_state=SEED, n_jobs=1),
        "logistic": lambda: LogisticRegression(max_iter=500),
        "support vectors": lambda: SVC(),
        "network": lambda: MLPClassifier(hidden_layer_sizes=HIDDEN, max_iter=PASSES, random_state=SEED),
    }
    for name, model in _among(made, among).items():

        def ask(rows: Matrix, labels: NDArray[Any], people: Matrix, _model: Any = model) -> Floats:
            there, code = np.unique(labels, return_inverse=True)
            answers = np.zeros((len(people), classes))
            if len(there) < 2:  # one class teaches nothing, and most models refuse it
                return answers
            student = _quietly(_model().fit, rows, code)
            if hasattr(student, "decision_function"):
                given = student.decision_function(people)
                given = np.stack([-given, given], axis=1) if given.ndim == 1 else given
            else:
                given = student.predict_proba(people)
            answers[:, there] = given
            return answers

        yield name, ask


def regressors(among: Sequence[str] = ()) -> Iterator[tuple[str, Callable[[Matrix, Floats, Matrix], Floats]]]:
    """Name, and fit-and-ask: rows, values in units of their spread, rows to ask about → (r,) values."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.svm import SVR
    from xgboost import XGBRegressor

    made: dict[str, Callable[[], Any]] = {
        "boosted trees": lambda: XGBRegressor(**BOOSTED),
        "forest": lambda: RandomForestRegressor(TREES, random_state=SEED, n_jobs=1),
        "ridge": lambda: Ridge(),
        "support vectors": lambda: SVR(),
        "network": lambda: MLPRegressor(hidden_layer_sizes=HIDDEN, max_iter=PASSES, random_state=SEED),
    }
    for name, model in _among(made, among).items():

        def ask(rows: Matrix, values: Floats, people: Matrix, _model: Any = model) -> Floats:
            return np.asarray(_quietly(_model().fit, rows, values).predict(people), np.float64)

        yield name, ask


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


def _quietly(fit: Callable[..., Any], *given: Any) -> Any:
    """Students of few rows may stop early; that they say so is no news here."""
    with _QUIET:
        return fit(*given)
