"""What is asked of patients beyond the generator: sums of two public maps (`privacy/contributions.py: PublicMap`).

    ClassFeatures   e_class ⊗ φ_F(x)/C           the gate clips it to norm 1: CLIP(φ_F(x), C)/C of eq. 1, by class
    Gradients       ∇ of the expert's loss / C   the gate clips it to norm 1: lines 5 and 6 of Algorithm 2

Both look at one row, in a fixed order of additions. The noise is the gate's. Nothing is sampled: each question is
asked of everybody, once, and its noisy answer serves every step that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Codes, Floats
from distcondense.methods.dp_geng.encoding import Encoding
from distcondense.methods.dp_geng.networks import FeatureNetwork
from distcondense.privacy.contributions import Objective, Target


@dataclass(frozen=True, eq=False)
class ClassFeatures:
    """φ_F of each row in the block of its class."""

    network: FeatureNetwork
    encoding: Encoding
    objective: Objective  # says which class a row is in
    clip: float  # C

    name = "features by class"

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.encoding.tables)))

    @property
    def size(self) -> int:
        return self.network.classes * len(self.network.centre)

    def values(self, codes: Codes, target: Target) -> Floats:
        features = self.network.features(self.encoding.rows(codes)) / self.clip
        out = np.zeros((len(codes), self.network.classes, features.shape[1]))
        out[np.arange(len(codes)), self.objective.group("label", target)] = features
        return out.reshape(len(codes), -1)


@dataclass(frozen=True, eq=False)
class Gradients:
    """What each row would change about the expert."""

    network: FeatureNetwork
    encoding: Encoding
    objective: Objective
    clip: float  # C
    whole: bool  # all weights, or the head's

    name = "gradients of the expert"

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(len(self.encoding.tables)))

    @property
    def size(self) -> int:
        (width, hidden), (_, features) = self.network.w1.shape, self.network.w2.shape
        return weights_of(width, hidden, features, self.network.classes, whole=self.whole)

    def values(self, codes: Codes, target: Target) -> Floats:
        rows, label = self.encoding.rows(codes), self.objective.group("label", target).astype(np.int64)
        return self.network.gradients(rows, label, whole=self.whole) / self.clip


def weights_of(width: int, hidden: int, features: int, classes: int, *, whole: bool) -> int:
    """Numbers in a gradient."""
    head = (features + 1) * classes
    return head + whole * ((hidden + 1) * features + (width + 1) * hidden)
