"""Tree ensembles as reference models, read through Treelite: XGBoost, LightGBM and scikit-learn.

Treelite gives one picture of all three libraries; here it becomes the flat `TreeEnsemble` of the kernels. A library
that tests x ≤ t in float64 is turned into x < t′ with the float32 t′ that decides the same for every float32 x.
What has no one score per row (multi-class, several targets) or no order to move along (categorical splits) is refused.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import ModelError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import Link, Rows, Scores

_LT, _LE, _GT, _GE = 2, 3, 4, 5  # Treelite's comparison codes
_CALLABLE = "pass a function rows → scores instead, e.g. lambda rows: model.predict_proba(rows)[:, 1]"


Predictor = Callable[[Rows], NDArray[Any]]  # the original library's answer, one number per row


@dataclass(frozen=True)
class TreeModel:
    """A fitted tree model: scores by its own library, and the same trees flat for the kernels."""

    name: str
    link: Link
    n_features: int
    ensemble: TreeEnsemble
    predictor: Predictor = field(repr=False)
    treelite_bytes: bytes = field(repr=False)
    raw_margin: bool = False  # f is the margin although the library would transform it (AFT, Cox)

    def scores(self, rows: Rows) -> Scores:
        return np.asarray(self.predictor(rows), dtype=np.float32)

    def on_gpu(self) -> TreeModel:
        """The same model with its own library's GPU prediction, where that library is XGBoost; else itself."""
        if not isinstance(self.predictor, _XGBoost):
            return self
        booster = self.predictor.booster.copy()
        booster.set_param({"device": "cuda"})
        return replace(self, predictor=_XGBoost(booster, self.predictor.margin))

    @property
    def fingerprint(self) -> str:
        """A hash of the trees, the name under which compiled libraries are kept."""
        return hashlib.sha256(self.treelite_bytes).hexdigest()


@dataclass(frozen=True)
class _XGBoost:
    booster: Any
    margin: bool

    def __call__(self, rows: Rows) -> NDArray[Any]:
        kind = "margin" if self.margin else "value"
        return np.asarray(self.booster.inplace_predict(rows, predict_type=kind, validate_features=False))


@dataclass(frozen=True)
class _LightGBM:
    booster: Any
    threads: int

    def __call__(self, rows: Rows) -> NDArray[Any]:
        return np.asarray(self.booster.predict(rows, num_threads=self.threads))


@dataclass(frozen=True)
class _Sklearn:
    model: Any
    threads: int

    def __call__(self, rows: Rows) -> NDArray[Any]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(limits=self.threads, user_api="openmp"):
            if hasattr(self.model, "predict_proba"):
                return np.asarray(self.model.predict_proba(rows)[:, 1])
            return np.asarray(self.model.predict(rows))


def library_of(model: object) -> str | None:
    """Which library a fitted model comes from, without importing any; subclasses count as their parent's."""
    roots = [parent.__module__.split(".")[0] for parent in type(model).__mro__]
    return next((library for library in roots if library in _READERS), None)


def tree_model(model: Any, *, link: Link | None = None, name: str | None = None, threads: int = 1) -> TreeModel:
    """A fitted XGBoost, LightGBM or scikit-learn tree model as a reference.

    Parameters
    ----------
    model : fitted model
        Of XGBoost, LightGBM or scikit-learn.
    link : str, optional
        What its scores are: "probability" for classifiers, "log-time" for AFT and "log-risk" for other regressions.
    name : str, optional
        For reports; its class if not given.
    threads : int
        What the original library may use in `scores`.

    Raises
    ------
    ModelError
        If it is no fitted tree model with one score per row and splits on numbers only.
    """
    name = name or type(model).__name__
    library = library_of(model)
    if library is None:
        raise ModelError(
            f"model {name!r}", "must be a fitted XGBoost, LightGBM or scikit-learn tree model", fix=_CALLABLE
        )
    try:
        forest, predictor, natural, raw_margin = _READERS[library](model, threads)
    except ModelError:
        raise
    except Exception as error:  # each library has its own errors for "not fitted" and "not a tree model"
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise ModelError(
            f"model {name!r}", "must be fitted and readable by Treelite", found=reason, fix=_CALLABLE
        ) from error
    ensemble = flatten(forest, name=name, raw_margin=raw_margin)
    if link == "probability" and natural != "probability":
        raise ModelError(
            f"model {name!r}",
            "must be a classifier for link 'probability'",
            found="a regression",
            fix="leave out link, or train a classifier",
        )
    return TreeModel(
        name=name,
        link=link or natural,
        n_features=ensemble.n_features,
        ensemble=ensemble,
        predictor=predictor,
        treelite_bytes=forest.serialize_bytes(),
        raw_margin=raw_margin,
    )


_Read = tuple[Any, Predictor, Link, bool]


def _read_xgboost(model: Any, threads: int) -> _Read:
    import json

    import treelite

    if hasattr(model, "get_booster"):
        booster = model.get_booster()
        best = booster.attr("best_iteration")
        # the wrapper predicts with the best rounds only, a bare Booster with all
        booster = booster[: int(best) + 1] if best is not None else booster.copy()
    else:
        booster = model.copy()
    booster.set_param({"nthread": threads, "device": "cpu"})
    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    raw = objective in ("survival:aft", "survival:cox")
    natural: Link = "log-time" if objective == "survival:aft" else "log-risk"
    if objective in ("binary:logistic", "reg:logistic"):
        natural = "probability"
    return treelite.frontend.from_xgboost(booster), _XGBoost(booster, raw), natural, raw


def _read_lightgbm(model: Any, threads: int) -> _Read:
    import lightgbm
    import treelite

    booster = getattr(model, "booster_", model)
    text = booster.model_to_string(num_iteration=None)  # the best rounds only, as predict does
    booster = lightgbm.Booster(model_str=text)
    objective = next((line for line in text.splitlines() if line.startswith("objective=")), "objective=")[10:]
    natural: Link = "probability" if objective.split(" ")[0] in ("binary", "cross_entropy") else "log-risk"
    return treelite.frontend.from_lightgbm(booster), _LightGBM(booster, threads), natural, False


def _read_sklearn(model: Any, threads: int) -> _Read:
    import treelite
    from sklearn.base import is_classifier

    if is_classifier(model) and len(model.classes_) != 2:
        raise multi_class(type(model).__name__, len(model.classes_))
    forest = treelite.sklearn.import_model(model)
    if hasattr(model, "n_jobs"):
        model = copy.copy(model)
        model.n_jobs = threads
    return forest, _Sklearn(model, threads), "probability" if is_classifier(model) else "log-risk", False


_READERS = {"xgboost": _read_xgboost, "lightgbm": _read_lightgbm, "sklearn": _read_sklearn}


def multi_class(name: str, classes: int) -> ModelError:
    return ModelError(
        f"model {name!r}",
        "must give one score per row",
        found=f"{classes} classes or targets",
        fix="train a binary model, one class against the rest",
    )


def flatten(forest: Any, *, name: str = "tree model", raw_margin: bool = False) -> TreeEnsemble:
    """A `treelite.Model` as a `TreeEnsemble`; averages and slopes go into the leaves."""
    header = forest.get_header_accessor()

    def number(key: str) -> Any:
        return header.get_field(key)[0]

    classes, shape = int(number("num_class")), header.get_field("leaf_vector_shape")
    binary_votes = classes == 2 and tuple(shape) == (1, 2)  # a forest of class shares: take those of class 1
    if int(number("num_target")) != 1 or (classes != 1 and not binary_votes):
        raise multi_class(name, max(classes, int(number("num_target"))))
    post = header.get_field("postprocessor")
    link: Literal["identity", "sigmoid"] = "sigmoid" if post == "sigmoid" else "identity"
    plain = post in ("sigmoid", "identity", "identity_multiclass") or (post == "exponential" and raw_margin)
    if not plain:
        raise ModelError(
            f"model {name!r}", "must score by a sum of trees or its logistic transform", found=post, fix=_CALLABLE
        )
    scale = float(number("sigmoid_alpha")) if post == "sigmoid" else 1.0
    base = float(header.get_field("base_scores")[1 if binary_votes else 0]) * scale
    if number("average_tree_output"):
        scale /= max(forest.num_tree, 1)
    parts, roots, offset = [], [], 0
    for t in range(forest.num_tree):
        tree = _flatten_tree(forest.get_tree_accessor(t), offset, scale, binary_votes, name)
        parts.append(tree)
        roots.append(offset)
        offset += len(tree[0])
    columns = zip(*parts, strict=True) if parts else ([np.empty(0)] for _ in range(4))
    feature, threshold, left, default_left = (np.concatenate(column) for column in columns)
    return TreeEnsemble(
        feature=feature.astype(np.int32),
        threshold=threshold.astype(np.float32),
        left=left.astype(np.int32),
        default_left=default_left.astype(np.uint8),
        roots=np.array(roots, np.int32),
        base=base,
        link=link,
        n_features=int(number("num_feature")),
    )


def _flatten_tree(tree: Any, offset: int, scale: float, votes: bool, name: str) -> tuple[NDArray[Any], ...]:
    """(feature, threshold, left, default_left) of one tree, breadth first, its nodes numbered from `offset`."""
    if tree.get_field("has_categorical_split")[0]:
        raise ModelError(
            f"model {name!r}",
            "must split on numbers only",
            found="categorical splits",
            fix="encode categories one-hot before training",
        )
    cleft, cright, cmp = (tree.get_field(key) for key in ("cleft", "cright", "cmp"))
    default_left = tree.get_field("default_left").astype(bool)
    inner = cleft >= 0
    if not np.isin(cmp[inner], (_LT, _LE, _GT, _GE)).all():
        raise ModelError(f"model {name!r}", "must compare with <, ≤, > or ≥", found="another test", fix=_CALLABLE)
    # x > t is the negation of x ≤ t, and x ≥ t of x < t: swap the children; a missing value keeps its child
    swap = np.isin(cmp, (_GT, _GE))
    cleft, cright = np.where(swap, cright, cleft), np.where(swap, cleft, cright)
    default_left = default_left ^ swap
    threshold = np.where(
        np.isin(cmp, (_LE, _GT)),
        below_or_equal(tree.get_field("threshold")),
        strictly_below(tree.get_field("threshold")),
    )
    if votes:
        ends = tree.get_field("leaf_vector_end").astype(np.int64)
        leaves = np.zeros(len(cleft))
        leaves[~inner] = tree.get_field("leaf_vector")[ends[~inner] - 1]
    else:
        leaves = tree.get_field("leaf_value").astype(np.float64)
    order, left = _siblings_adjacent(cleft, cright)
    inner = inner[order]
    return (
        np.where(inner, tree.get_field("split_index")[order], -1),
        np.where(inner, threshold[order], (leaves[order] * scale).astype(np.float32)),
        np.where(inner, left + offset, -1),
        default_left[order] & inner,
    )


def _siblings_adjacent(cleft: NDArray[np.int32], cright: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The nodes in breadth-first order, and each one's left child in the new numbering (the right one follows)."""
    order: list[NDArray[Any]] = [np.zeros(1, np.int64)]
    lefts, size = [], 1
    while order[-1].size:
        level = order[-1]
        parents = cleft[level] >= 0
        lefts.append(np.where(parents, size + 2 * (np.cumsum(parents) - 1), -1))
        order.append(np.column_stack((cleft[level[parents]], cright[level[parents]])).ravel())
        size += order[-1].size
    return np.concatenate(order), np.concatenate(lefts)


def strictly_below(threshold: NDArray[Any]) -> NDArray[np.float32]:
    """The float32 t′ with x < t′ ⟺ x < t for every float32 x: the smallest that is not below t."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
        return np.where(near < threshold, np.nextafter(near, np.float32(np.inf)), near)


def below_or_equal(threshold: NDArray[Any]) -> NDArray[np.float32]:
    """The float32 t′ with x < t′ ⟺ x ≤ t for every finite float32 x: the smallest that is above t."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
        return np.where(near <= threshold, np.nextafter(near, np.float32(np.inf)), near)
