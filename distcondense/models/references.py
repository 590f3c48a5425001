"""A model fitted elsewhere, or any callable, as a reference in the engine's space.

Such a model was trained on original units with one-hot categories (`dc.design(cohort)`); the engine moves standardised
rows. For trees the thresholds are moved into that space once; a callable gets its rows moved back at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distcondense.data.codec import Codec
from distcondense.errors import ModelError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import BlackBox, EnsembleModel, Link, Model, Rows
from distcondense.models.trees import library_of, tree_model

LINKS = ("probability", "log-risk", "log-time")  # of one score a row


def in_model_space(
    model: Any, codec: Codec, links: Sequence[Link], link: str | None, *, unit: float = 1.0, threads: int = 1
) -> Model:
    """A model over `dc.design` columns, as a model over the codec's standardised rows.

    Parameters
    ----------
    model : fitted tree model, Model or callable
        Trained on `dc.design(cohort)`; a callable maps (k, d) rows to (k,) scores.
    codec : Codec
        Between original units and standardised rows.
    links : sequence of str
        What scores may be for the outcome at hand.
    link : str, optional
        Which of them the model's scores are; needed of a callable where several are possible.
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
    if library_of(model) is not None:
        fitted = tree_model(model, link=link, threads=threads)
        _check(fitted.name, fitted.link, links, fitted.n_features, codec)
        shift = math.log(unit) if fitted.link == "log-time" else 0.0
        return EnsembleModel(fitted.name, fitted.link, _standardised(fitted.ensemble, codec, shift), threads)
    if isinstance(model, Model):
        function: Callable[[Rows], Any] = model.scores
        name, link, width = model.name, link or model.link, model.n_features
    elif callable(model):
        function, name, width = model, getattr(model, "__name__", "black box"), len(codec.names)
        link = link or (links[0] if len(links) == 1 else None)
    else:
        raise ModelError(
            "reference", "must be a name, a fitted tree model or a callable rows → scores", found=type(model).__name__
        )
    if link is None:
        raise ModelError(
            "reference",
            "a callable must say what its scores are",
            found="no link",
            fix=" or ".join(f'link="{link}"' for link in links),
        )
    _check(name, link, links, width, codec)
    shift = math.log(unit) if link == "log-time" else 0.0

    def scores(rows: Rows) -> Any:
        answer = function((rows.astype(np.float64) * codec.scale + codec.centre).astype(np.float32))
        return np.asarray(answer) - shift

    return BlackBox(scores, link, width, name)


def _standardised(ensemble: TreeEnsemble, codec: Codec, shift: float) -> TreeEnsemble:
    """The same trees over standardised rows: every threshold moved."""
    inner = ensemble.feature >= 0
    at = np.where(inner, ensemble.feature, 0)
    moved = (ensemble.threshold - codec.centre[at]) / codec.scale[at]
    threshold = np.where(inner, moved, ensemble.threshold).astype(np.float32)
    return replace(ensemble, threshold=threshold, base=ensemble.base - shift)


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
