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
from distcondense.models.base import BlackBox, Link, Model, Rows
from distcondense.models.flat import EnsembleModel
from distcondense.models.trees import library_of, tree_model

LINKS = ("probability", "log-risk", "log-time")  # of one score a row


def in_model_space(
    model: Any, codec: Codec, links: Sequence[Link], link: str | None, *, unit: float = 1.0, threads: int = 1
) -> Model:
    """`model` over `dc.design` columns, as a model over the codec's standardised rows and outcomes / unit.

    `links`: what scores may be for the outcome at hand; `link` says which of them these are.
    """
    width = len(codec.names)
    if library_of(model) is not None:
        fitted = tree_model(model, link=_link(link, None, links) if link else None, threads=threads)
        _check_width(fitted.name, fitted.n_features, width)
        _check_link(fitted.link, links, fitted.name)
        shift = math.log(unit) if fitted.link == "log-time" else 0.0
        return EnsembleModel(fitted.name, fitted.link, _moved(fitted.ensemble, codec, shift), threads)
    if isinstance(model, Model):
        function: Callable[[Rows], Any] = model.scores
        name, known = model.name, _link(link, model.link, links)
        _check_width(name, model.n_features, width)
    elif callable(model):
        function, name = model, getattr(model, "__name__", "black box")
        known = _link(link, links[0] if len(links) == 1 else None, links)
    else:
        raise ModelError(
            "reference", "must be a name, a fitted tree model or a callable rows → scores", found=type(model).__name__
        )
    _check_link(known, links, name)
    shift = math.log(unit) if known == "log-time" else 0.0

    def scores(rows: Rows) -> Any:
        answer = function((rows.astype(np.float64) * codec.scale + codec.centre).astype(np.float32))
        return np.asarray(answer) - shift

    return BlackBox(scores, known, width, name)


def _moved(ensemble: TreeEnsemble, codec: Codec, shift: float) -> TreeEnsemble:
    inner = ensemble.feature >= 0
    at = np.where(inner, ensemble.feature, 0)
    moved = (ensemble.threshold - codec.centre[at]) / codec.scale[at]
    threshold = np.where(inner, moved, ensemble.threshold).astype(np.float32)
    return replace(ensemble, threshold=threshold, base=ensemble.base - shift)


def _link(said: str | None, natural: Link | None, links: Sequence[Link]) -> Link:
    if said is None and natural is None:
        raise ModelError(
            "reference",
            "a callable must say what its scores are",
            found="no link",
            fix=" or ".join(f'link="{link}"' for link in links),
        )
    if said is not None and said not in LINKS:
        raise ModelError("link", f"must be one of {', '.join(LINKS)}", found=repr(said))
    return said or natural  # type: ignore[return-value]


def _check_link(link: Link, links: Sequence[Link], name: str) -> None:
    if link not in links:
        raise ModelError(
            f"reference {name!r}",
            f"must have scores that are a {' or a '.join(links)}, for this outcome",
            found=f"scores that are a {link}",
        )


def _check_width(name: str, found: int, need: int) -> None:
    if found != need:
        raise ModelError(
            f"reference {name!r}",
            f"must take the {need} columns of dc.design(cohort)",
            found=f"{found} columns",
            fix="train it on dc.design(cohort)",
        )
