"""Small networks: feature extractors φ_F and the expert φ_E (DP-GENG §3.2, §3.3), two layers and a head each.

They are trained on generated rows alone, by JAX and optax, which nothing imports before this is called. What a trained
network says of a row is computed without either, in float64 and a fixed order (`kernels/elementwise.py`), for it is
also asked about patients. The paper's networks are convolutions of images; a table has no neighbouring pixels. The
paper's learn drawn classes; the generator knows the probabilities that classes were drawn by, and networks learn
these: the same in expectation, without the chance of the draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.errors import SettingsError
from distcondense.kernels import elementwise
from distcondense.kernels.elementwise import affine

RATE = 1e-3  # Adam's
BATCH = 256  # generated rows in a step
FLAT = 1e-3  # a feature that varies less over generated rows is not blown up
NEEDED = ("jax", "optax")


def refuse_without_jax() -> None:
    """Before any patient is read."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(
            "method dp-geng",
            "needs the extra neural, for it trains networks",
            found=f"no {' and no '.join(missing)}",
            fix='pip install "distcondense[neural]"',
        )


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """x → features f = (relu(relu(x·w1 + b1)·w2 + b2) − centre)/spread → logits f·w3 + b3. All of it public."""

    w1: Floats  # (d, hidden)
    b1: Floats
    w2: Floats  # (hidden, features)
    b2: Floats
    centre: Floats  # (features,) of generated rows
    spread: Floats
    w3: Floats  # (features, classes)
    b3: Floats

    @property
    def classes(self) -> int:
        return len(self.b3)

    def layers(self, rows: Floats) -> tuple[Floats, Floats]:
        """((n, hidden), (n, features) before they are centred), each row by itself."""
        first = np.maximum(affine(rows, self.w1, self.b1), 0.0)
        return first, np.maximum(affine(first, self.w2, self.b2), 0.0)

    def features(self, rows: Floats) -> Floats:
        """(n, features)."""
        return (self.layers(rows)[1] - self.centre) / self.spread

    def logits(self, rows: Floats) -> Floats:
        """(n, classes)."""
        return affine(self.features(rows), self.w3, self.b3)

    def gradients(self, rows: Floats, label: Index, *, whole: bool) -> Floats:
        """(n, weights) of each row's cross-entropy: w3 and b3, and after them, if `whole`, w2, b2, w1 and b1."""
        first, second = self.layers(rows)
        features = (second - self.centre) / self.spread
        wrong = softmax(affine(features, self.w3, self.b3))
        wrong[np.arange(len(rows)), label] -= 1.0
        parts = [_outer(features, wrong), wrong]
        if whole:
            back = affine(wrong, self.w3.T, np.zeros(len(self.centre))) / self.spread * (second > 0)
            parts += [_outer(first, back), back]
            back = affine(back, self.w2.T, np.zeros(len(self.b1))) * (first > 0)
            parts += [_outer(rows, back), back]
        return np.concatenate(parts, axis=1)

    def moved(self, step: Floats) -> FeatureNetwork:
        """With `step` added to its weights, in the order of `gradients`."""
        names = ("w3", "b3", "w2", "b2", "w1", "b1")
        changed, at = {}, 0
        for name in names:
            old = getattr(self, name)
            if at < len(step):
                changed[name] = old + step[at : at + old.size].reshape(old.shape)
            at += old.size
        return replace(self, **changed)


def softmax(logits: Floats) -> Floats:
    """(n, K) → probabilities, each row by itself."""
    high = elementwise.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(high / elementwise.row_sums(high)[:, None], np.float64)


def _outer(left: Floats, right: Floats) -> Floats:
    """(n, a), (n, b) → (n, a·b)."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


# ---- training, on generated rows ------------------------------------------------------------------------------------


def trained(
    rows: Floats, chance: Floats, *, hidden: int, features: int, epochs: int, seed: tuple[int, ...]
) -> FeatureNetwork:
    """A network of these generated rows and (n, classes) probabilities; another `seed` starts elsewhere."""
    key = int(np.random.default_rng(list(seed)).integers(2**31))
    learn = _learner(hidden, features, chance.shape[1], epochs, min(BATCH, len(rows)))
    weights = [np.asarray(part, np.float64) for part in learn(rows.astype(np.float32), chance.astype(np.float32), key)]
    w1, b1, w2, b2, w3, b3 = weights
    bare = FeatureNetwork(w1, b1, w2, b2, np.zeros(features), np.ones(features), w3, b3)
    second = bare.layers(rows)[1]
    centre, spread = second.mean(0), np.maximum(second.std(0), FLAT)
    return replace(bare, centre=centre, spread=spread, w3=spread[:, None] * w3, b3=b3 + centre @ w3)


@cache
def _learner(hidden: int, features: int, classes: int, epochs: int, batch: int) -> Any:
    """(rows, probabilities, key) → weights, compiled once for each shape."""
    import jax
    import jax.numpy as jnp
    import optax

    adam = optax.adam(RATE)

    def logits(weights: Any, x: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = weights
        return jax.nn.relu(jax.nn.relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy(logits(weights, x), y).mean()

    def learn(X: Any, y: Any, key: Any) -> Any:
        keys = jax.random.split(jax.random.key(key), 4)
        shapes = ((X.shape[1], hidden), (hidden, features), (features, classes))
        weights = []
        for one, (fan_in, fan_out) in zip(keys, shapes, strict=False):
            weights += [jax.random.normal(one, (fan_in, fan_out)) * jnp.sqrt(2 / fan_in), jnp.zeros(fan_out)]

        def step(state: Any, at: Any) -> Any:
            weights, moments = state
            slope = jax.grad(loss)(weights, X[at], y[at])
            change, moments = adam.update(slope, moments)
            return (optax.apply_updates(weights, change), moments), None

        def epoch(state: Any, key: Any) -> Any:
            order = jax.random.permutation(key, len(X))[: len(X) // batch * batch].reshape(-1, batch)
            return jax.lax.scan(step, state, order)

        start = (weights, adam.init(weights))
        (weights, _), _ = jax.lax.scan(epoch, start, jax.random.split(keys[3], epochs))
        return weights

    return jax.jit(learn)
