"""A model fitted elsewhere, or any callable, as a reference in the engine's space.

Such a model was trained on original units with one-hot categories (`dc.design(cohort)`); the engine moves standardised
rows. For trees the thresholds are moved into that space once; a callable gets its rows moved back at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from distcondense.data.codec import Codec
from distcondense.data.cohort import Task
from distcondense.errors import ModelError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import BlackBox, Link, Reference, Rows
from distcondense.models.flat import EnsembleReference
from distcondense.models.trees import library_of, tree_reference


def in_model_space(
    model: Any, codec: Codec, task: Task, link: str | None, *, time_unit: float = 1.0, threads: int = 1
) -> Reference:
    """`model` over `dc.design` columns, as a reference over the codec's standardised rows and times / time_unit."""
    width = len(codec.names)
    if library_of(model) is not None:
        fitted = tree_reference(model, link=_link(link, None) if link else None, threads=threads)
        _check_width(fitted.name, fitted.n_features, width)
        _check_task(fitted.link, task, fitted.name)
        shift = math.log(time_unit) if fitted.link == "log-time" else 0.0
        return EnsembleReference(fitted.name, fitted.link, _moved(fitted.ensemble, codec, shift), threads)
    if isinstance(model, Reference):
        function: Callable[[Rows], Any] = model.scores
        name, known = model.name, _link(link, model.link)
        _check_width(name, model.n_features, width)
    elif callable(model):
        function, name = model, getattr(model, "__name__", "black box")
        known = _link(link, "probability" if task == "binary" else None)
    else:
        raise ModelError(
            "reference", "must be a name, a fitted tree model or a callable rows → scores", found=type(model).__name__
        )
    _check_task(known, task, name)
    shift = math.log(time_unit) if known == "log-time" else 0.0

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


def _link(said: str | None, natural: Link | None) -> Link:
    if said is None and natural is None:
        raise ModelError("reference", "a callable for survival must say what its scores are", found="no link",
                         fix='link="log-risk" (higher dies earlier) or link="log-time"')  # fmt: skip
    if said is not None and said not in get_args(Link):
        raise ModelError("link", f"must be one of {', '.join(get_args(Link))}", found=repr(said))
    return said or natural  # type: ignore[return-value]


def _check_task(link: Link, task: Task, name: str) -> None:
    if (link == "probability") != (task == "binary"):
        raise ModelError(f"reference {name!r}", f"must fit a {task} outcome", found=f"scores that are a {link}")


def _check_width(name: str, found: int, need: int) -> None:
    if found != need:
        raise ModelError(
            f"reference {name!r}", f"must take the {need} columns of dc.design(cohort)", found=f"{found} columns",
            fix="train it on dc.design(cohort)",
        )  # fmt: skip
