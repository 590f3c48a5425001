"""Algorithm 1 of DP-GENG from line 4 on: rows chosen by k-means, then moved by matching and by the expert.

Everything here is post-processing: generated rows, networks, noisy class means that have left the gate, a seed.

- Rows start as those generated rows of their class that lie nearest to the centres of k-means in feature space.
- A step takes one extractor at random. For each class j it moves S^j down the slope of
      L_F = ‖ noisy mean of CLIP(φ_F(x), C) over patients of j − mean over S^j ‖²                          (eqs 1, 2)
  and then down that of
      L_E = mean over S of  CE(φ_E(x), y) + KL(φ_E(x) ‖ c_y),  c_y the mean logits of generated rows of y  (eqs 3, 4).
- Classes have no rows in common, so all of them move at once. A slope is taken for each row, not divided by their
  number, so that rates mean the same at any IPC.
- The paper's several images in one image have no meaning for rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.methods.dp_geng.networks import FeatureNetwork

PASSES = 100  # of k-means, at most
REFERENCES = 2000  # generated rows of each class that steps take references from
NORM = 1e-9  # under a root, so that a row without features has a slope


@dataclass(frozen=True, eq=False)
class Distillation:
    """What rows are moved by; a part without networks is switched off."""

    extractors: Sequence[FeatureNetwork]
    targets: Floats  # (extractors, classes, features) noisy means of clipped features
    clips: Floats  # (extractors,) C
    expert: FeatureNetwork | None
    references: Floats  # (classes, k, d) generated rows
    low: Floats  # (d,) the box that rows stay in
    high: Floats
    rate: float  # η_F
    guide_rate: float  # η_E
    batch: int
    iterations: int

    def __call__(self, start: Floats, seed: int) -> Floats:
        """(classes, ipc, d) rows → the same number of them, moved."""
        if not self.extractors and self.expert is None:
            return start
        import jax

        rows = start.astype(np.float32)
        box = (self.low.astype(np.float32), self.high.astype(np.float32))
        extractors = tuple(np.stack(parts) for parts in zip(*map(_weights, self.extractors), strict=True))
        expert = None if self.expert is None else _weights(self.expert)
        given = (
            extractors,
            self.targets.astype(np.float32),
            self.clips.astype(np.float32),
            expert,
            self.references.astype(np.float32),
            box,
            self.rate,
            self.guide_rate,
        )
        walk = _walk(bool(self.extractors), expert is not None, min(self.batch, start.shape[1]), self.iterations)
        return np.asarray(walk(rows, given, jax.random.key(seed % 2**31)), np.float64)


def chosen(features: Floats, count: int, seed: int) -> Index:
    """(count,) rows nearest to the centres of k-means, each row once; where there are too few, some again (line 4)."""
    from sklearn.cluster import KMeans

    if len(features) <= count:
        return np.resize(np.arange(len(features)), count)
    found = KMeans(count, n_init=1, max_iter=PASSES, random_state=seed % 2**31).fit(features)
    taken = np.zeros(len(features), np.bool_)
    rows = []
    for centre in found.cluster_centers_:
        apart = ((features - centre) ** 2).sum(1)
        apart[taken] = np.inf
        rows.append(int(np.argmin(apart)))
        taken[rows[-1]] = True
    return np.array(rows, np.int64)


def reference_rows(rows: Floats, label: Index, classes: int, seed: int) -> Floats:
    """(classes, k, d) generated rows of each class, drawn with replacement where it has fewer."""
    rng = np.random.default_rng(seed)
    return np.stack([rows[rng.choice(np.flatnonzero(label == k), REFERENCES)] for k in range(classes)])


def _weights(network: FeatureNetwork) -> tuple[Any, ...]:
    names = ("w1", "b1", "w2", "b2", "centre", "spread", "w3", "b3")
    return tuple(getattr(network, name).astype(np.float32) for name in names)


@cache
def _walk(matching: bool, guided: bool, batch: int, iterations: int) -> Any:
    """(rows, what moves them, key) → rows, compiled once for each shape."""
    import jax
    import jax.numpy as jnp

    def features(weights: Any, x: Any) -> Any:
        w1, b1, w2, b2, centre, spread, _, _ = weights
        return (jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2) - centre) / spread

    def clipped(f: Any, clip: Any) -> Any:
        return f * jnp.minimum(1.0, clip / jnp.sqrt((f * f).sum(-1, keepdims=True) + NORM))

    def matched(rows: Any, weights: Any, target: Any, clip: Any) -> Any:  # eqs 1 and 2
        means = clipped(features(weights, rows), clip).mean(1)
        return ((target - means) ** 2).sum() * rows.shape[1]

    def logits(weights: Any, x: Any) -> Any:
        return features(weights, x) @ weights[6] + weights[7]

    def aligned(rows: Any, weights: Any, references: Any) -> Any:  # eqs 3 and 4
        towards = jax.nn.log_softmax(logits(weights, references).mean(1))  # (classes, classes)
        here = jax.nn.log_softmax(logits(weights, rows))  # (classes, rows, classes)
        own = jnp.arange(rows.shape[0])
        crossed = -here[own, :, own]
        apart = (jnp.exp(here) * (here - towards[:, None, :])).sum(-1)
        return (crossed + apart).sum()

    def walk(rows: Any, given: Any, key: Any) -> Any:
        extractors, targets, clips, expert, references, (low, high), rate, guide_rate = given

        def moved(some: Any, by: Any) -> Any:
            there = some - by  # what is no number, of a network whose weights have run away, moves nothing
            return jnp.clip(jnp.where(jnp.isnan(there), some, there), low, high)

        def step(rows: Any, key: Any) -> Any:
            which, own, theirs = jax.random.split(key, 3)
            at = jax.random.permutation(own, rows.shape[1])[:batch]
            some = rows[:, at]
            if matching:
                n = jax.random.randint(which, (), 0, targets.shape[0])
                weights = tuple(part[n] for part in extractors)
                some = moved(some, rate * jax.grad(matched)(some, weights, targets[n], clips[n]))
            if guided:
                drawn = jax.random.randint(theirs, (references.shape[0], batch), 0, references.shape[1])
                beside = jnp.take_along_axis(references, drawn[:, :, None], axis=1)
                some = moved(some, guide_rate * jax.grad(aligned)(some, expert, beside))
            return rows.at[:, at].set(some), None

        return jax.lax.scan(step, rows, jax.random.split(key, iterations))[0]

    return jax.jit(walk)
