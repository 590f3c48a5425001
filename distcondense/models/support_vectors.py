"""Support vectors of scikit-learn by one product of matrices a batch: libsvm scores a row at a time, holding the
interpreter's lock, in twenty times the time.

The numbers are libsvm's own to rounding, its probabilities included, which it finds by an iteration that stops early
(Wu, Lin and Weng 2004, algorithm 2). Whether they are is tried on some of the model's own support vectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from distcondense.arrays import Floats

TRIED = 64  # support vectors
STOPS = 0.005 / 2  # libsvm's iteration, of two classes
LEAST = 1e-7  # libsvm's probability


def support_vectors(model: Any) -> tuple[Callable[[Any], Floats], Callable[[Any], Floats] | None] | None:
    """`decision_function` and `predict_proba` (None where it has none) of two classes; None where it is no such model.

    Parameters
    ----------
    model : object
        A fitted SVC or NuSVC with a Gaussian kernel, fitted to dense rows.
    """
    home = type(model).__module__, type(model).__name__
    if home not in (("sklearn.svm._classes", "SVC"), ("sklearn.svm._classes", "NuSVC")) or model.kernel != "rbf":
        return None
    if getattr(model, "_sparse", True) or len(model.classes_) != 2:
        return None
    held, dual = np.asarray(model.support_vectors_, np.float64), np.asarray(model.dual_coef_[0], np.float64)
    squares, width, start = (held * held).sum(1), float(model._gamma), float(model.intercept_[0])

    def decision(rows: Any) -> Floats:
        at = np.asarray(rows, np.float64)
        far = (at * at).sum(1)[:, None] - 2 * (at @ held.T) + squares
        return np.asarray(np.exp(-width * np.maximum(far, 0)) @ dual + start)

    if not _agree(decision, model.decision_function, held[:TRIED]):
        return None
    if not hasattr(model, "predict_proba"):
        return decision, None
    try:
        slope, shift = float(model._probA[0]), float(model._probB[0])
    except (AttributeError, IndexError):  # as another scikit-learn keeps them
        return None

    def probabilities(rows: Any) -> Floats:
        with np.errstate(over="ignore"):
            first = np.clip(1 / (1 + np.exp(shift - slope * decision(rows))), LEAST, 1 - LEAST)
        return _of_two(first)

    return (decision, probabilities) if _agree(probabilities, model.predict_proba, held[:TRIED]) else None


def _agree(ours: Callable[[Any], Floats], theirs: Callable[[Any], Any], rows: Floats) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without names of columns
        return np.allclose(ours(rows), theirs(rows), atol=1e-6)


def _of_two(first: Floats) -> Floats:
    """(n, 2) probabilities as libsvm couples them from how likely the first class is against the second, (n,)."""
    other = 1 - first
    Q = np.array([[other * other, -other * first], [-other * first, first * first]])
    p, left = np.full((2, len(first)), 0.5), np.arange(len(first))
    for _ in range(100):
        here, at = Q[:, :, left], p[:, left]
        Qp = (here * at).sum(1)
        pQp = (at * Qp).sum(0)
        going = np.abs(Qp - pQp).max(0) >= STOPS
        if not going.any():
            break
        left, here, at, Qp, pQp = left[going], here[:, :, going], at[:, going], Qp[:, going], pQp[going]
        for t in (0, 1):
            step = (pQp - Qp[t]) / here[t, t]
            at[t] += step
            pQp = (pQp + step * (step * here[t, t] + 2 * Qp[t])) / (1 + step) ** 2
            Qp = (Qp + step * here[t]) / (1 + step)
            at = at / (1 + step)
        p[:, left] = at
    return p.T
