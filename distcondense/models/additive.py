"""`AdditiveModel`: margin(x) = intercept + Σ_j table_j[cell_j(x)], over public cells; and the same model as trees.

As a `TreeEnsemble` it runs through every fast path (the sparse Jacobian, the fused step, Treelite): a number's table is
one balanced tree over the cuts where it changes, a category's table one stump per category.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.cells import Cells
from distcondense.data.codec import Codec, fill_value
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import Link
from distcondense.models.flat import EnsembleReference

Floats = NDArray[np.float64]
Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class AdditiveModel:
    """A fitted additive model; `tables` has one entry per public cell of each column."""

    cells: tuple[Cells, ...]
    intercept: float
    tables: tuple[Floats, ...]
    link: Link = "probability"  # or "log-risk"
    name: str = "private additive model"

    @property
    def n_features(self) -> int:
        return len(self.cells)

    def codes(self, features: pd.DataFrame) -> Codes:
        """(n, d) public cells of a table's rows."""
        return np.stack([cells.codes(features[cells.column.name]) for cells in self.cells], axis=1)

    def margin(self, codes: Codes) -> Floats:
        """(n, d) cells → (n,) log odds, or log hazard ratio."""
        out = np.full(len(codes), self.intercept)
        for j, table in enumerate(self.tables):
            out += table[codes[:, j]]
        return out

    def probability(self, codes: Codes) -> Floats:
        """(n, d) cells → (n,) probabilities of the positive class."""
        return np.asarray(1 / (1 + np.exp(-self.margin(codes))), np.float64)

    def predict(self, features: pd.DataFrame) -> Floats:
        """Probabilities (binary) or log hazard ratios (survival) of rows in original units."""
        codes = self.codes(features)
        return self.probability(codes) if self.link == "probability" else self.margin(codes)

    def contributions(self, codes: Codes) -> Floats:
        """(n, d) what each column adds to a row's margin: for an additive model these are its Shapley values."""
        return np.stack([table[codes[:, j]] for j, table in enumerate(self.tables)], axis=1)

    def reference(self, codec: Codec) -> EnsembleReference:
        """The model over a codec's encoded rows, as trees."""
        return EnsembleReference(self.name, self.link, ensemble_of(self, codec))


def to_treelite(ensemble: TreeEnsemble) -> Any:
    """The same trees as a `treelite.Model`, for GTIL, tl2cgen and whatever else reads Treelite."""
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    trees = ensemble.n_trees
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(ensemble.n_features, "kRegressor", False, 1, [1], (1, 1)),
        tree_annotation=TreeAnnotation(trees, [0] * trees, [0] * trees),
        postprocessor=PostProcessorFunc("sigmoid" if ensemble.link == "sigmoid" else "identity"),
        base_scores=[ensemble.base],
    )
    for root in ensemble.roots:
        builder.start_tree()
        todo = [int(root)]
        while todo:
            node = todo.pop()
            builder.start_node(node - int(root))
            if ensemble.feature[node] < 0:
                builder.leaf(float(ensemble.threshold[node]))
            else:
                left = int(ensemble.left[node])
                builder.numerical_test(
                    int(ensemble.feature[node]), float(ensemble.threshold[node]), opname="<",
                    default_left=bool(ensemble.default_left[node]),
                    left_child_key=left - int(root), right_child_key=left + 1 - int(root),
                )  # fmt: skip
                todo += [left + 1, left]
            builder.end_node()
        builder.end_tree()
    return builder.commit()


class _Forest:
    """Grows trees in the flat layout: siblings adjacent, leaves hold their value in `threshold`."""

    def __init__(self) -> None:
        self.feature: list[int] = []
        self.threshold: list[float] = []
        self.left: list[int] = []
        self.roots: list[int] = []

    def tree(self, feature: int, cuts: Floats, values: Floats) -> None:
        """One balanced tree on one feature: values[b] where cuts[b − 1] ≤ x < cuts[b]."""
        self.roots.append(self._node())
        self._grow(self.roots[-1], feature, cuts, values)

    def _node(self) -> int:
        self.feature.append(-1)
        self.threshold.append(0.0)
        self.left.append(-1)
        return len(self.feature) - 1

    def _grow(self, node: int, feature: int, cuts: Floats, values: Floats) -> None:
        if not len(cuts):
            self.threshold[node] = float(values[0])
            return
        middle = len(cuts) // 2
        left = self._node()
        right = self._node()
        self.feature[node], self.threshold[node], self.left[node] = feature, float(cuts[middle]), left
        self._grow(left, feature, cuts[:middle], values[: middle + 1])
        self._grow(right, feature, cuts[middle + 1 :], values[middle + 1 :])


def ensemble_of(model: AdditiveModel, codec: Codec) -> TreeEnsemble:
    """The model's tables as trees over the codec's encoded columns; columns the model ignores get no tree."""
    tables = {cells.column.name: (cells, table) for cells, table in zip(model.cells, model.tables, strict=True)}
    forest, base, at = _Forest(), model.intercept, 0
    for block in codec.blocks:
        here = slice(at, at + block.width)
        centre, scale = codec.centre[here], codec.scale[here]
        if block.column.name in tables:
            cells, table = tables[block.column.name]
            if cells.numeric:
                inner = table[: cells.size - cells.hole]
                changes = np.flatnonzero(np.diff(inner))
                forest.tree(at, (cells.cuts[changes] - centre[0]) / scale[0], inner[[*changes, len(inner) - 1]])
                if cells.hole:  # the number of a hole is the public fill: what its cell adds there is taken back
                    fill = fill_value(block.column)
                    own = inner[np.searchsorted(cells.cuts, fill, side="right")]
                    forest.tree(at + 1, (np.array([0.5]) - centre[1]) / scale[1], np.array([0.0, table[-1] - own]))
            elif block.column.kind == "binary":
                forest.tree(at, (np.array([0.5]) - centre) / scale, table[:2])
            else:
                for k, code in enumerate(block.values):
                    forest.tree(at + k, (np.array([0.5]) - centre[k : k + 1]) / scale[k], np.array([0.0, table[code]]))
        at += block.width
    return TreeEnsemble(
        feature=np.array(forest.feature, np.int32),
        threshold=np.array(forest.threshold, np.float32),
        left=np.array(forest.left, np.int32),
        default_left=np.zeros(len(forest.left), np.uint8),
        roots=np.array(forest.roots, np.int32),
        base=base,
        link="sigmoid" if model.link == "probability" else "identity",
        n_features=at,
    )
