"""`AdditiveModel`: margin(x) = intercept + Σ_j table_j[cell_j(x)] + Σ_ij table_ij[…], over public cells; and as trees.

As a `TreeEnsemble` it runs through every fast path (the sparse Jacobian, the fused step, Treelite): a number's table is
one balanced tree over the cuts where it changes, a category's table one stump per category, and a pair's table one tree
that finds the first column's group, then the second's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats, Index
from distcondense.data.cells import Cells
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.models.base import EnsembleModel, Link, Model
from distcondense.models.learners import FittedModel


@dataclass(frozen=True)
class PairTerm:
    """What two columns add together, beyond what each of them adds alone: a table over groups of their cells."""

    columns: tuple[int, int]  # places in the model's `cells`
    groups: tuple[Index, Index]  # of each of the two: the group of every public cell
    table: Floats  # (groups, groups), or (S, groups, groups)
    errors: Floats  # of the same shape: standard deviations

    def margin(self, codes: Codes) -> Floats:
        """(n,) or (n, S): what it adds to each row."""
        first, second = (group[codes[:, j]] for j, group in zip(self.columns, self.groups, strict=True))
        return np.asarray(self.table[..., first, second].T, np.float64)


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
    pairs: tuple[PairTerm, ...] = ()

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
        for pair in self.pairs:
            out += pair.margin(codes)
        return out

    def contributions(self, codes: Codes) -> Floats:
        """(n, d) or (n, d, S): what each column adds to a row's margin, and half of what its pairs add.

        For an additive model these are its Shapley values, and with pairs whose tables have mean 0, too.
        """
        out = np.stack([table[..., codes[:, j]].T for j, table in enumerate(self.tables)], axis=1)
        for pair in self.pairs:
            half = pair.margin(codes) / 2
            for j in pair.columns:
                out[:, j] += half
        return out

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
            self,
            intercept=float(self.intercept[k]),
            tables=tuple(table[k] for table in self.tables),
            link="margin",
            pairs=tuple(replace(pair, table=pair.table[k], errors=pair.errors[k]) for pair in self.pairs),
        )


Grow = Callable[[int], None]  # what grows at a node


class _Forest:
    """Grows trees in the flat layout: siblings adjacent, leaves hold their value in `threshold`."""

    def __init__(self) -> None:
        self.feature: list[int] = []
        self.threshold: list[float] = []
        self.left: list[int] = []
        self.roots: list[int] = []

    def tree(self, feature: int, cuts: Floats, values: Floats) -> None:
        """One balanced tree on one feature: values[b] where cuts[b − 1] ≤ x < cuts[b]."""
        self.runs(self.root(), feature, cuts, [self._leaf(float(value)) for value in values])

    def root(self) -> int:
        """The root of a new tree, to be grown."""
        self.roots.append(self._node())
        return self.roots[-1]

    def pair(self, node: int, first: _Grouped, second: _Grouped, table: Floats) -> None:
        """A tree that finds the first column's group, then the second's: table[group, group]."""
        rows = [[self._leaf(float(value)) for value in row] for row in table]
        first.grow(self, node, [lambda at, row=row: second.grow(self, at, row) for row in rows])  # type: ignore[misc]

    def _node(self) -> int:
        self.feature.append(-1)
        self.threshold.append(0.0)
        self.left.append(-1)
        return len(self.feature) - 1

    def _leaf(self, value: float) -> Grow:
        def grow(node: int) -> None:
            self.threshold[node] = value

        return grow

    def split(self, node: int, feature: int, cut: float, below: Grow, above: Grow) -> None:
        """A test at this node, and what grows on either side."""
        left = self._node()
        right = self._node()
        self.feature[node], self.threshold[node], self.left[node] = feature, cut, left
        below(left)
        above(right)

    def runs(self, node: int, feature: int, cuts: Floats, ends: Sequence[Grow]) -> None:
        """A balanced tree on one feature: ends[b] grows where cuts[b − 1] ≤ x < cuts[b]."""
        if not len(cuts):
            ends[0](node)
            return
        middle = len(cuts) // 2
        self.split(
            node,
            feature,
            float(cuts[middle]),
            lambda at: self.runs(at, feature, cuts[:middle], ends[: middle + 1]),
            lambda at: self.runs(at, feature, cuts[middle + 1 :], ends[middle + 1 :]),
        )


@dataclass(frozen=True)
class _Grouped:
    """A column in groups of its cells, as its encoded features tell them apart."""

    cells: Cells
    block: EncodedColumn
    groups: Index
    at: int  # the first of its features
    centre: Floats
    scale: Floats

    def grow(self, forest: _Forest, node: int, ends: Sequence[Grow]) -> None:
        """ends[g] grows where a row is in group g."""
        tests = (0.5 - self.centre) / self.scale
        if self.cells.numeric:
            inner = self.groups[: self.cells.size - self.cells.hole]
            changes = np.flatnonzero(np.diff(inner))
            cuts = (self.cells.cuts[changes] - self.centre[0]) / self.scale[0]
            present = [ends[group] for group in inner[[*changes, len(inner) - 1]]]

            def number(node: int) -> None:
                forest.runs(node, self.at, cuts, present)

            if self.cells.hole:
                forest.split(node, self.at + 1, float(tests[1]), number, ends[self.groups[-1]])
            else:
                number(node)
        elif self.block.column.kind == "binary":
            forest.split(node, self.at, float(tests[0]), ends[self.groups[0]], ends[self.groups[1]])
        else:
            others = int(np.bincount(self.groups[list(self.block.values)]).argmax())
            named = [(k, self.groups[code]) for k, code in enumerate(self.block.values) if self.groups[code] != others]
            self._named(forest, node, named, tests, ends, others)

    def _named(
        self,
        forest: _Forest,
        node: int,
        named: Sequence[tuple[int, int]],
        tests: Floats,
        ends: Sequence[Grow],
        others: int,
    ) -> None:
        """Category after category; what is none of them is in the group that most are in."""
        if not named:
            ends[others](node)
            return
        (k, group), rest = named[0], named[1:]
        forest.split(
            node,
            self.at + k,
            float(tests[k]),
            lambda at: self._named(forest, at, rest, tests, ends, others),
            ends[group],
        )


def ensemble_of(model: AdditiveModel, codec: Codec) -> TreeEnsemble:
    """The model's tables as trees over the codec's encoded columns; columns the model ignores get no tree."""
    tables = {cells.column.name: (cells, table) for cells, table in zip(model.cells, model.tables, strict=True)}
    forest, base, at = _Forest(), model.intercept, 0
    places = {cells.column.name: place for place, cells in enumerate(model.cells)}
    blocks: dict[int, tuple[EncodedColumn, int]] = {}
    for block in codec.blocks:
        here = slice(at, at + block.width)
        centre, scale = codec.centre[here], codec.scale[here]
        if block.column.name in tables:
            blocks[places[block.column.name]] = (block, at)
            cells, table = tables[block.column.name]
            if cells.numeric:
                inner = table[: cells.size - cells.hole]
                changes = np.flatnonzero(np.diff(inner))
                forest.tree(at, (cells.cuts[changes] - centre[0]) / scale[0], inner[[*changes, len(inner) - 1]])
                if cells.hole:  # the number of a hole is the public fill: what its cell adds there is taken back
                    fill = block.column.stand_in
                    filled = inner[np.searchsorted(cells.cuts, fill, side="right")]
                    forest.tree(at + 1, (np.array([0.5]) - centre[1]) / scale[1], np.array([0.0, table[-1] - filled]))
            elif block.column.kind == "binary":
                forest.tree(at, (np.array([0.5]) - centre) / scale, table[:2])
            else:
                for k, code in enumerate(block.values):
                    forest.tree(at + k, (np.array([0.5]) - centre[k : k + 1]) / scale[k], np.array([0.0, table[code]]))
        at += block.width
    for pair in model.pairs:
        if all(place in blocks for place in pair.columns):
            first, second = (
                _Grouped(
                    model.cells[place],
                    blocks[place][0],
                    groups,
                    blocks[place][1],
                    codec.centre[blocks[place][1] : blocks[place][1] + blocks[place][0].width],
                    codec.scale[blocks[place][1] : blocks[place][1] + blocks[place][0].width],
                )
                for place, groups in zip(pair.columns, pair.groups, strict=True)
            )
            forest.pair(forest.root(), first, second, pair.table)
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
