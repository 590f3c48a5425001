"""What a drawn row must pass (KDE-KNN §3.8): its class found again (step 5), far enough from patients (step 6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distcondense.arrays import Flags, Index, Matrix
from distcondense.kernels.neighbours import nearest, nearest_manhattan
from distcondense.methods.kde_knn.options import FOREST, KNN, NOBODY, KdeKnnOptions

Classifier = Callable[[Matrix], Index]  # (k, d) rows → (k,) classes
TREES = {"n_estimators": 120, "max_depth": 16, "min_samples_split": 4, "min_samples_leaf": 2}  # Table A3
SUPPORT = {"C": 4.0, "kernel": "rbf", "gamma": "scale"}  # Table A1


def validator(rows: Matrix, label: Index, classes: int, options: KdeKnnOptions, threads: int) -> Classifier | None:
    """Step 1: the model M of the training rows; None where nobody validates."""
    if options.validator == NOBODY:
        return None
    if options.validator == KNN:
        return lambda drawn: voted(rows, label, classes, drawn, options.neighbours, threads)
    if options.validator == FOREST:
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(**TREES, random_state=options.seed % 2**32, n_jobs=threads)
    else:
        from sklearn.svm import SVC

        model = SVC(**SUPPORT)
    model.fit(rows, label)
    return lambda drawn: np.asarray(model.predict(drawn), np.int64)


def voted(rows: Matrix, label: Index, classes: int, drawn: Matrix, neighbours: int, threads: int) -> Index:
    """(k,) the class that most of the nearest rows have, by Manhattan distance (Table A2); of equals the first."""
    _, near = nearest_manhattan(drawn, rows, neighbours, threads)
    votes = np.zeros((len(drawn), classes), np.int64)
    for k in range(near.shape[1]):
        votes[np.arange(len(drawn)), label[near[:, k]]] += 1
    return np.asarray(votes.argmax(axis=1), np.int64)


def mean_distance(rows: Matrix, threads: int) -> float:
    """Eq. 3, the paper's σ: how far a real row is from its nearest other, on average."""
    distance, _ = nearest(rows, rows, 2, threads)  # the first is the row itself, or its copy
    return float(distance[:, -1].mean()) if distance.shape[1] == 2 else 0.0


def far(drawn: Matrix, rows: Matrix, least: float, threads: int) -> Flags:
    """Step 6, eq. 4: (k,) whether a drawn row's nearest real one is at least so far away."""
    distance, _ = nearest(drawn, rows, 1, threads)
    return np.asarray(distance[:, 0] >= least)
