"""`AdditiveModel`: margin(x) = intercept + Σ_j table_j[cell_j(x)], over public cells; and the same model as trees.

As a `TreeEnsemble` it runs through every fast path (the sparse Jacobian, the fused step, Treelite): a number's table is
one balanced tree over the cuts where it changes, a category's table one stump per category.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats
from distcondense.data.cells import Cells
from distcondense.data.codec import Codec, fill_value
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import EnsembleModel, Link, Model
from distcondense.models.learners import FittedModel


@dataclass(frozen=True)
class AdditiveModel:
    """A fitted additive model; `tables` has one entry per public cell of each column.

    With several scores a row (S > 1) every table is (S, cells), the intercept (S,) and a margin (n, S).
    """

    cells: tuple[Cells, ...]
    intercept: Any  # a number, or (S,)
    tables: tuple[Floats, ...]  # (cells,) each, or (S, cells)
    link: Link = "probability"
    name: str = "private additive model"

    @property
    def n_features(self) -> int:
        return len(self.cells)

    def codes(self, features: pd.DataFrame) -> Codes:
        """(n, d) public cells of a table's rows."""
        return np.stack([cells.codes(features[cells.column.name]) for cells in self.cells], axis=1)

    def margin(self, codes: Codes) -> Floats:
        """(n, d) cells → (n,) or (n, S) scores: log odds, log hazard ratio, …"""
        out = np.full((len(codes), *np.shape(self.intercept)), self.intercept, np.float64)
        for j, table in enumerate(self.tables):
            out += table[..., codes[:, j]].T
        return out

    def contributions(self, codes: Codes) -> Floats:
        """(n, d) or (n, d, S): what each column adds to a row's margin; for an additive model its Shapley values."""
        return np.stack([table[..., codes[:, j]].T for j, table in enumerate(self.tables)], axis=1)

    def over(self, codec: Codec) -> Model:
        """The model over a codec's encoded rows, as trees; with several scores, of margins side by side."""
        if np.ndim(self.intercept) == 0:
            return EnsembleModel(self.name, self.link, ensemble_of(self, codec))
        parts = [
            EnsembleModel(self.name, "margin", ensemble_of(self.score(k), codec)) for k in range(len(self.intercept))
        ]
        return FittedModel(
            lambda rows: np.stack([part.scores(rows) for part in parts], axis=1),
            self.link,
            parts[0].n_features,
            self.name,
        )

    def score(self, k: int) -> AdditiveModel:
        """One of several scores as a model of its own."""
        return replace(
            self, intercept=float(self.intercept[k]), tables=tuple(table[k] for table in self.tables), link="margin"
        )


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
                    filled = inner[np.searchsorted(cells.cuts, fill, side="right")]
                    forest.tree(at + 1, (np.array([0.5]) - centre[1]) / scale[1], np.array([0.0, table[-1] - filled]))
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
