"""`TreeEnsemble`: one flat, immutable picture of a tree model, the input of every tree kernel.

Layout, chosen for the walk: siblings are adjacent (the right child is `left + 1`), so one comparison gives the next
node without a branch; at a leaf `feature` is −1 and `threshold` holds the leaf's value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TreeEnsemble:
    """A sum of trees: margin(x) = base + Σ_t leaf_t(x), score = link(margin).

    A row goes left where x < threshold (float32); a missing value goes left where `default_left` is 1.
    """

    feature: NDArray[np.int32]  # (nodes,) −1 at a leaf
    threshold: NDArray[np.float32]  # (nodes,) at a leaf: its value
    left: NDArray[np.int32]  # (nodes,) the right child is left + 1; −1 at a leaf
    default_left: NDArray[np.uint8]  # (nodes,)
    roots: NDArray[np.int32]  # (trees,)
    base: float
    link: Literal["identity", "sigmoid"]
    n_features: int

    def __post_init__(self) -> None:
        for array in (self.feature, self.threshold, self.left, self.default_left, self.roots):
            array.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # what is derived stays here

    @property
    def n_trees(self) -> int:
        return int(self.roots.size)

    @cached_property
    def used(self) -> NDArray[np.int32]:
        """The features that some tree tests, ascending."""
        used: NDArray[np.int32] = np.unique(self.feature[self.feature >= 0]).astype(np.int32)
        used.setflags(write=False)
        return used

    @cached_property
    def compact(self) -> TreeEnsemble:
        """The same trees over the columns `used` alone, numbered from 0."""
        inner = self.feature >= 0
        feature = np.where(inner, np.searchsorted(self.used, self.feature), -1).astype(np.int32)
        return replace(self, feature=feature, n_features=len(self.used))
