"""A model fitted elsewhere, or any callable, as a reference in the engine's space.

Such a model was trained on original units with one-hot categories (`dc.design(cohort)`); the engine moves standardised
rows. For trees the thresholds are moved into that space once; whatever else scores rows, by its own predict methods or
as a callable, gets its rows moved back at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Matrix
from distcondense.data.codec import Codec
from distcondense.errors import ModelError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import BlackBox, EnsembleModel, Link, Model, Rows
from distcondense.models.support_vectors import support_vectors
from distcondense.models.trees import library_of, multi_class, tree_model

LINKS = ("probability", "log-risk", "log-time")  # of one score a row
LEAST_HAZARD, LEAST_TIME = 1e-3, 1e-6  # below which a logarithm would run away
CODES = ("0", "1"), ("False", "True")  # classes that are codes: the second is the positive one


def in_model_space(
    model: Any,
    codec: Codec,
    links: Sequence[Link],
    link: str | None,
    *,
    labels: Sequence[Any] = (),
    unit: float = 1.0,
    threads: int = 1,
) -> Model:
    """A model over `dc.design` columns, as a model over the codec's standardised rows.

    Parameters
    ----------
    model : fitted model, Model or callable
        Trained on `dc.design(cohort)`: trees that Treelite can read, anything else with predict methods of its own
        (`own_scores`), or a callable that maps (k, d) rows to (k,) scores.
    codec : Codec
        Between original units and standardised rows.
    links : sequence of str
        What scores may be for the outcome at hand.
    link : str, optional
        Which of them the model's scores are; needed of a callable where several are possible.
    labels : sequence
        Of two classes, the positive one last: which column of a classifier's probabilities is meant.
    unit : float
        Times are divided by it.
    threads : int
        For a tree library's own prediction.

    Raises
    ------
    ModelError
        If it is no model, takes other columns, or has scores of another kind.
    """
    if link is not None and link not in LINKS:
        raise ModelError("link", f"must be one of {', '.join(LINKS)}", found=repr(link))
    unread: ModelError | None = None
    if library_of(model) is not None:
        try:
            fitted = tree_model(model, link=link, threads=threads)
        except ModelError as error:  # a network, a pipeline, categorical splits: its own methods can still answer
            unread = error
        else:
            _check(fitted.name, fitted.link, links, fitted.n_features, codec)
            shift = math.log(unit) if fitted.link == "log-time" else 0.0
            return EnsembleModel(fitted.name, fitted.link, _standardised(fitted.ensemble, codec, shift), threads)
    own = None if isinstance(model, Model) else own_scores(model, codec.names, link=link, labels=labels, unread=unread)
    if isinstance(model, Model):
        function: Callable[[Rows], Any] = model.scores
        name, link, width = model.name, link or model.link, model.n_features
    elif own is not None:
        function, natural = own
        name, width = type(model).__name__, int(getattr(model, "n_features_in_", len(codec.names)))
        link = link or natural or (links[0] if len(links) == 1 else None)
    elif unread is not None:
        raise unread
    elif callable(model):
        function, name, width = model, getattr(model, "__name__", "black box"), len(codec.names)
        link = link or (links[0] if len(links) == 1 else None)
    else:
        raise ModelError(
            "reference",
            "must be a name, a fitted model or a callable rows → scores",
            found=type(model).__name__,
            fix="pass lambda rows: model.predict_proba(rows)[:, 1]",
        )
    if link is None:
        raise ModelError(
            "reference",
            "must say what its scores are, where its methods do not",
            found="no link",
            fix=" or ".join(f'link="{link}"' for link in links),
        )
    _check(name, link, links, width, codec)
    shift = math.log(unit) if link == "log-time" else 0.0

    # what encoding put into the seventh digit is taken off, so that a value at a threshold falls as it did in training
    digits = 10.0 ** (5 - np.floor(np.log10(codec.scale)))

    def scores(rows: Rows) -> Any:
        raw = rows.astype(np.float64) * codec.scale + codec.centre
        return np.asarray(function((np.round(raw * digits) / digits).astype(np.float32))) - shift

    found = BlackBox(scores, link, width, name)
    if own is not None:
        _try(found, codec)
    return found


def own_scores(
    model: Any, names: Sequence[str], *, link: str | None = None, labels: Sequence[Any] = (), unread: Any = None
) -> tuple[Callable[[Rows], Any], Link | None] | None:
    """A fitted model of any library by its own predict methods: rows → scores, and what these are.

    Parameters
    ----------
    model : object
        scikit-learn and whatever has its methods (CatBoost, a Pipeline): `predict_proba`, the logistic transform of
        `decision_function`, or `predict`. scikit-survival: `predict`, a risk (of its forests an expected number of
        events, whose logarithm is taken) or a time, whose logarithm is taken. lifelines: `predict_log_partial_hazard`,
        else the logarithm of `predict_median`.
    names : sequence of str
        The columns, for models that were fitted to a frame.
    link : str, optional
        What the caller says that scores are; only checked where it cannot be true.
    labels : sequence
        The two classes, the positive one last.
    unread : ModelError, optional
        Why Treelite could not read it, where that was tried.

    Returns
    -------
    (function, link) or None
        The link is None where the methods do not say it (`predict` of a regression); None for no such methods.

    Raises
    ------
    ModelError
        For more than two classes, or probabilities asked of a regression.
    """
    name = type(model).__name__
    modules = [parent.__module__ for parent in type(model).__mro__]
    survival = any(module.split(".")[0] in ("sksurv", "lifelines") for module in modules)
    framed = hasattr(model, "feature_names_in_") or any(module.startswith("lifelines") for module in modules)

    def given(rows: Rows) -> Any:
        return pd.DataFrame(rows, columns=list(names)) if framed else rows

    if not survival and link == "probability" and not _classifies(model) and hasattr(model, "predict"):
        raise ModelError(
            f"model {name!r}",
            "must be a classifier for link 'probability'",
            found="a regression",
            fix="leave out link, or train a classifier",
        )
    if hasattr(model, "predict_log_partial_hazard"):
        return lambda rows: np.asarray(model.predict_log_partial_hazard(given(rows))), "log-risk"
    if survival and hasattr(model, "predict_median"):
        return lambda rows: _log(model.predict_median(given(rows)), LEAST_TIME), "log-time"
    if survival and hasattr(model, "predict"):
        if not getattr(model, "_predict_risk_score", True):
            return lambda rows: _log(model.predict(given(rows)), LEAST_TIME), "log-time"
        if any(module.startswith(("sksurv.tree", "sksurv.ensemble.forest")) for module in modules):
            return lambda rows: _log(model.predict(given(rows)), LEAST_HAZARD), "log-risk"
        return lambda rows: np.asarray(model.predict(given(rows))), "log-risk"
    if _classifies(model):
        classes = [str(one) for one in getattr(model, "classes_", CODES[0])]
        if len(classes) != 2:
            raise unread or multi_class(name, len(classes))
        wanted = [str(one) for one in labels]
        second = tuple(classes) in CODES or wanted[-1:] != classes[:1]
        same = list(getattr(model, "feature_names_in_", names)) == list(names)
        quick = support_vectors(model) if same else None
        if hasattr(model, "predict_proba"):
            if quick is not None and quick[1] is not None:
                probabilities = quick[1]
                return lambda rows: probabilities(rows)[:, int(second)], "probability"
            return lambda rows: np.asarray(model.predict_proba(given(rows)))[:, int(second)], "probability"
        sign = 1.0 if second else -1.0
        decision = quick[0] if quick is not None else lambda rows: np.asarray(model.decision_function(given(rows)))
        return lambda rows: 1 / (1 + np.exp(-sign * decision(rows))), "probability"
    if hasattr(model, "predict"):
        return lambda rows: np.asarray(model.predict(given(rows))), None
    return None


def _classifies(model: Any) -> bool:
    return hasattr(model, "predict_proba") or (hasattr(model, "decision_function") and hasattr(model, "classes_"))


def _log(values: Any, least: float) -> Any:
    return np.log(np.maximum(np.asarray(values, np.float64).reshape(-1), least))


def _try(model: BlackBox, codec: Codec) -> None:
    """One row through it, so that what it cannot take is refused before a run, in words."""
    try:
        model.scores(np.zeros((1, len(codec.names)), np.float32))
    except ModelError:
        raise
    except Exception as error:  # each library has its own; a message may quote a value, its type does not
        raise ModelError(
            f"reference {model.name!r}",
            f"must be fitted, and score rows of the {len(codec.names)} columns of dc.design(cohort)",
            found=type(error).__name__,
            fix="train it on dc.design(cohort)",
        ) from None


def _standardised(ensemble: TreeEnsemble, codec: Codec, shift: float) -> TreeEnsemble:
    """The same trees over standardised rows: every threshold moved, so that each value of a table goes where it went.

    Of a test x < t either t or the float32 below it may be a value that tables have (XGBoost splits at values,
    x ≤ v is x < the next one): the one with fewer digits, which is encoded as values are. Zero, which categories
    have beside LightGBM's thresholds of 1e-35, is minded by itself.
    """
    inner = ensemble.feature >= 0
    at = np.where(inner, ensemble.feature, 0)
    t, centre, scale = ensemble.threshold, codec.centre[at], codec.scale[at]
    with np.errstate(over="ignore", invalid="ignore"):
        unique, of = np.unique(t, return_inverse=True)
        here, below = (_digits(one) for one in (unique, np.nextafter(unique, np.float32(-np.inf))))
        stays = np.array([len(repr(v)) < len(repr(u)) for u, v in zip(here, below, strict=True)])[of]
        value = np.where(stays, below[of], here[of])  # of it the test says yes where it is the one below, else no
        moved = ((value - centre) / scale).astype(np.float32)
        moved = np.where(stays, np.nextafter(moved, np.float32(np.inf)), moved)
    zero = (-centre / scale).astype(np.float32)
    moved = np.where(t > 0, np.maximum(moved, np.nextafter(zero, np.float32(np.inf))), np.minimum(moved, zero))
    threshold = np.where(inner, moved, t).astype(np.float32)
    return replace(ensemble, threshold=threshold, base=ensemble.base - shift)


def _digits(values: Matrix) -> Floats:
    """The float64 that people write for each float32: 4.3, not 4.300000190734863."""
    return np.array([float(str(value)) for value in values], np.float64)


def _check(name: str, link: Link, links: Sequence[Link], width: int, codec: Codec) -> None:
    """Refuse a model of other columns, or whose scores are of another kind."""
    if width != len(codec.names):
        raise ModelError(
            f"reference {name!r}",
            f"must take the {len(codec.names)} columns of dc.design(cohort)",
            found=f"{width} columns",
            fix="train it on dc.design(cohort)",
        )
    if link not in links:
        raise ModelError(
            f"reference {name!r}",
            f"must have scores that are a {' or a '.join(links)}, for this outcome",
            found=f"scores that are a {link}",
        )
