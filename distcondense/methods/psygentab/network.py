"""A small autoregressive network over cells, in JAX: P(row) = Π_j P(column j | columns before it).

It stands where PSyGenTAB has REaLTabFormer. A masked network (two hidden layers, every unit sees a prefix of the
columns): one pass gives all conditionals, and rows are drawn column after column, the outcome first. This is the only
module of the method that imports JAX, and it is imported only for sampler "network".

Training needs a synthetic batch that gradients go through: cells are drawn by Gumbel's trick and passed on as they are,
with the gradient of the softmax behind them (straight-through). On that batch stand soft versions of the parts of U
and P (scores.py); what they are compared with is computed once, from all training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from distcondense.arrays import Floats, Index
from distcondense.methods.psygentab.lagrangian import Lagrangian
from distcondense.methods.psygentab.layout import Layout
from distcondense.methods.psygentab.scores import composed_privacy, correlations
from distcondense.outcomes.divergences import REACH

Params = dict[str, Any]
NEVER = -1e9  # logit of a cell that a column does not have
SOFTNESS = 0.7  # of Gumbel's softmax
NEAR = 0.005  # softness of the nearest record, as a Gower distance
COPY = 0.002  # distance at which a row counts as a copy by 1/e
CHUNK = 1024  # rows drawn at once
CLIPPED = 1.0  # norm of a gradient, at most


@dataclass(frozen=True, eq=False)
class AutoregressiveNetwork:
    """The shape of it: masks from the columns' order, and which cells there are."""

    layout: Layout
    hidden: int

    @property
    def columns(self) -> int:
        return len(self.layout.sizes)

    @property
    def most(self) -> int:
        return max(self.layout.sizes)

    def masks(self) -> tuple[Floats, Floats, Floats]:
        """Column → unit, unit → unit, unit → column: a unit of degree k sees columns 0…k and speaks to later ones."""
        column = np.repeat(np.arange(self.columns), self.most)
        degree = np.arange(self.hidden) % max(self.columns - 1, 1)
        first = column[:, None] <= degree[None, :]
        second = degree[:, None] <= degree[None, :]
        third = degree[:, None] < column[None, :]
        return first.astype(np.float32), second.astype(np.float32), third.astype(np.float32)

    def allowed(self) -> Floats:
        """(columns, most) 1 where a column has that cell."""
        return (np.arange(self.most)[None, :] < np.array(self.layout.sizes)[:, None]).astype(np.float32)

    def start(self, codes: Index, seed: int) -> Params:
        """Random weights; every column begins as its marginal is among these rows."""
        keys = jax.random.split(jax.random.key(seed), 3)
        width, hidden = self.columns * self.most, self.hidden
        shapes = {"in": (width, hidden), "mid": (hidden, hidden), "out": (hidden, width)}
        fan = {"in": self.columns, "mid": hidden, "out": 4 * hidden}
        params: Params = {
            name: jax.random.normal(key, shape) / np.sqrt(fan[name])
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }
        counts = self.shares(codes) * len(codes) + 0.5
        params["marginal"] = jnp.asarray(np.log(counts / counts.sum(1, keepdims=True)), jnp.float32)
        return {**params, "first": jnp.zeros(hidden), "second": jnp.zeros(hidden)}

    def shares(self, codes: Index) -> Floats:
        """(columns, most) how common each cell is."""
        return np.stack([np.bincount(codes[:, j], minlength=self.most) / len(codes) for j in range(self.columns)])

    def logits(self, params: Params, rows: Any) -> Any:
        """(n, columns, most) rows as 0 and 1 → log odds of every column's cells, given the columns before it."""
        first, second, third = self.masks()
        at = jnp.tanh(rows.reshape(len(rows), -1) @ (params["in"] * first) + params["first"])
        at = at + jnp.tanh(at @ (params["mid"] * second) + params["second"])
        found = (at @ (params["out"] * third)).reshape(rows.shape) + params["marginal"]
        return jnp.where(self.allowed() > 0, found, NEVER)

    def likelihood(self, params: Params, codes: Any) -> Any:
        """Mean log-probability of a column's cell."""
        rows = jax.nn.one_hot(codes, self.most)
        logs = jax.nn.log_softmax(self.logits(params, rows), axis=-1)
        return jnp.sum(rows * logs) / (codes.shape[0] * codes.shape[1])

    # -- drawing

    def _drawn(self, params: Params, rows: int, pick: Callable[[Any, Any, Any], tuple[Any, Any]], given: Any) -> Any:
        """Column after column: pick(logits (rows, most), column, what is given for it) → its cells as 0 and 1, and what
        is kept. What the units have seen so far is carried along, so that a column costs one column's products."""
        first, second, third = self.masks()
        shape = (self.columns, self.most, self.hidden)
        seen_by = (params["in"] * first).reshape(shape)
        said_by = (params["out"] * third).T.reshape(shape)
        middle = params["mid"] * second

        def draw(seen: Any, column: Any) -> tuple[Any, Any]:
            j, enter, leave, start, allowed, own = column
            at = jnp.tanh(seen + params["first"])
            at = at + jnp.tanh(at @ middle + params["second"])
            cells, keep = pick(jnp.where(allowed > 0, at @ leave.T + start, NEVER), j, own)
            return seen + cells @ enter, keep

        each = (jnp.arange(self.columns), seen_by, said_by, params["marginal"], jnp.asarray(self.allowed()), given)
        return jax.lax.scan(draw, jnp.zeros((rows, self.hidden)), each)[1]

    def soft_rows(self, params: Params, key: Any, rows: int) -> Any:
        """(rows, columns, most) a synthetic batch, 0 and 1, through which gradients go."""

        def pick(logits: Any, j: Any, noise: Any) -> tuple[Any, Any]:
            at = logits + noise
            soft = jax.nn.softmax(at / SOFTNESS)
            cells = jax.nn.one_hot(jnp.argmax(at, axis=-1), self.most) + soft - jax.lax.stop_gradient(soft)
            return cells, cells

        made = self._drawn(params, rows, pick, jax.random.gumbel(key, (self.columns, rows, self.most)))
        return jnp.moveaxis(made, 0, 1)

    @partial(jax.jit, static_argnums=0)
    def _some(self, params: Params, key: Any, fixed: Any, temperature: Any, top_p: Any) -> Any:
        def pick(logits: Any, j: Any, uniform: Any) -> tuple[Any, Any]:
            p = jax.nn.softmax(logits / temperature, axis=-1)
            order = jnp.argsort(-p, axis=-1)
            sorted_p = jnp.take_along_axis(p, order, axis=-1)
            ahead = jnp.cumsum(sorted_p, axis=-1) - sorted_p
            kept = jnp.where(ahead < top_p, sorted_p, 0.0)
            reached = jnp.cumsum(kept, axis=-1)
            place = jnp.sum(uniform[:, None] * reached[:, -1:] > reached, axis=-1)
            free = jnp.take_along_axis(order, place[:, None], axis=-1)[:, 0]
            code = jnp.where((j == 0) & (fixed >= 0), fixed, free)
            return jax.nn.one_hot(code, self.most), code

        return self._drawn(params, CHUNK, pick, jax.random.uniform(key, (self.columns, CHUNK), minval=1e-7)).T

    def draw(
        self,
        params: Params,
        rows: int,
        seed: Sequence[int],
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        fixed: Index | None = None,
    ) -> Index:
        """(rows, columns) codes; `fixed` (rows,) are the first column's, where they are not to be drawn."""
        key = jax.random.key(seed[0])
        for part in seed[1:]:
            key = jax.random.fold_in(key, part)
        fixed = np.full(rows, -1) if fixed is None else fixed
        parts = []
        for at in range(0, rows, CHUNK):
            some = np.resize(fixed[at : at + CHUNK], CHUNK)
            found = self._some(params, jax.random.fold_in(key, at), some, temperature, top_p)
            parts.append(np.asarray(found, np.int64)[: rows - at])
        return np.concatenate(parts)


# -- eq. 5 on a batch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """What a soft batch is compared with, from all training rows; and how far held-out rows are from a few of them."""

    shares: Floats  # (columns, most)
    rare: Floats  # (columns, most) 1 for cells beyond the fences, or the rarest
    value: Floats  # (columns, most) a cell as one number, to correlate
    correlations: Floats
    line: Floats  # (features, most, 2) where a cell of an ordered feature lies; 0 of others
    within: Floats  # (features,) how far apart two numbers in one cell are, on average
    ordered: Floats  # (columns,)
    usual: Floats  # distances of held-out rows to `bank` records, sorted
    usual_columns: Floats  # (features,)
    bank: int  # records of a step

    @classmethod
    def from_rows(cls, network: AutoregressiveNetwork, train: Index, held: Floats, bank: int, seed: int) -> SoftTargets:
        layout, most = network.layout, network.most
        shares = network.shares(train)
        rare, value = np.zeros_like(shares), np.zeros_like(shares)
        for j, size in enumerate(layout.sizes):
            p = shares[j, :size]
            if layout.ordered[j]:
                reached = np.cumsum(p)
                low, high = np.searchsorted(reached, [0.25, 0.75])
                cell = np.arange(size)
                rare[j, :size] = (cell < low - REACH * (high - low)) | (cell > high + REACH * (high - low))
                value[j, :size] = layout.line(j, cell.astype(np.float64))[:, 0]
            else:
                rare[j, int(np.argmin(np.where(p > 0, p, np.inf)))] = 1
                value[j, int(np.argmax(p))] = 1
        at = np.stack([value[j][train[:, j]] for j in range(len(layout.sizes))], axis=1)
        features = range(layout.first, len(layout.sizes))
        line = np.zeros((len(features), most, 2))
        for k, j in enumerate(features):
            if layout.ordered[j]:
                line[k, : layout.sizes[j]] = layout.line(j, np.arange(layout.sizes[j], dtype=np.float64))
        rng = np.random.default_rng([seed, 0xA185])
        few = train[rng.permutation(len(train))[:bank]]
        within = np.array([_within(layout, j) for j in features])
        some = np.floor(held[:512, layout.first :]).astype(np.int64)
        apart = np.maximum(_column_distances(layout, some, few[:, layout.first :]), within)
        nearest = apart.mean(2).argmin(1)
        own = apart[np.arange(len(apart)), nearest]
        return cls(
            shares,
            rare,
            value,
            correlations(at),
            line,
            within,
            np.array(layout.ordered, np.float64),
            np.sort(own.mean(1)),
            own.mean(0),
            len(few),
        )


def _column_distances(layout: Layout, rows: Index, records: Index) -> Floats:
    """(n, records, features) Gower's distance in each column."""
    parts = []
    for k in range(rows.shape[1]):
        j = layout.first + k
        table = layout.numbers(j, np.arange(layout.sizes[j], dtype=np.float64))
        parts.append(np.abs(table[rows[:, k]][:, None] - table[records[:, k]][None]).sum(-1))
    return np.stack(parts, axis=-1)


def _within(layout: Layout, column: int) -> float:
    """A third of a cell, for numbers of which a cell holds more than one."""
    cells = layout.features[column - layout.first]
    if not cells.numeric:
        return 0.0
    codes = np.arange(cells.size - cells.hole)
    low, high = (cells.numbers(codes, np.full(len(codes), inside)) for inside in (0.0, 0.999))
    return float(np.mean(high > low)) / (3 * len(codes))


def soft_utility(targets: SoftTargets, made: Any, likelihood: Any, weight: float = 1.0) -> Any:
    """The parts of eq. 1 on a soft batch, equal weights but for that of E_pred, how well the network foretells each
    column."""
    p, q = targets.shares, made.mean(0)
    far = jnp.where(targets.ordered > 0, jnp.abs(jnp.cumsum(p - q, axis=1)).max(1), jnp.abs(p - q).sum(1) / 2)
    first, second = (p * targets.rare).sum(1), (q * targets.rare).sum(1)
    alike = (jnp.minimum(first, second) + 1e-3) / (jnp.maximum(first, second) + 1e-3)
    at = (made * targets.value).sum(-1)
    apart = at - at.mean(0)
    scale = jnp.sqrt((apart**2).sum(0) + 1e-6)
    gap = (apart.T @ apart) / jnp.outer(scale, scale) - targets.correlations
    gap = gap - jnp.diag(jnp.diag(gap))
    joint = 1 - jnp.sqrt((gap**2).sum() + 1e-12) / len(p)
    covered = jnp.where(p > 0, jnp.minimum(q / jnp.maximum(p, 1e-9), 1.0), 0.0).sum(1) / (p > 0).sum(1)
    return (1 - far.mean() + alike.mean() + joint + covered.mean() + weight * jnp.exp(likelihood)) / (4 + weight)


def soft_privacy(targets: SoftTargets, made: Any, records: Any) -> tuple[Any, Any]:
    """Eq. 3 on a soft batch against (bank, features) records, and each column's P_j."""
    features, most, _ = targets.line.shape
    own, known = made[:, -features:], jax.nn.one_hot(records, most)
    at, there = (jnp.einsum("njk,jke->nje", rows, targets.line) for rows in (own, known))
    ordered = jnp.abs(at[:, None] - there[None]).sum(-1)  # (n, bank, features)
    other = 1 - jnp.einsum("njk,bjk->nbj", own, known)  # of categories: the chance that they differ
    apart = jnp.maximum(jnp.where(targets.ordered[-features:] > 0, ordered, other), targets.within)
    distance = apart.mean(-1)
    weight = jax.nn.softmax(-distance / NEAR, axis=1)  # of records, by how near they are
    nearest = (weight * distance).sum(1)
    two = jnp.sort(distance, axis=1)[:, :2]
    ratio = two[:, 0] / jnp.maximum(two[:, -1], 1e-6)
    closest = (nearest.mean() + ratio.mean()) / 2
    nearer = jax.nn.sigmoid((targets.usual[None] - nearest[:, None]) / NEAR).mean()
    overfit = jnp.maximum(2 * nearer - 1, 0.0)
    copied = jnp.exp(-nearest / COPY).mean()
    columns = jnp.einsum("nb,nbj->nj", weight, apart).mean(0)
    by_column = jnp.where(
        targets.usual_columns > 0, jnp.minimum(columns / jnp.maximum(targets.usual_columns, 1e-9), 1.0), 1.0
    )
    return composed_privacy(closest, overfit, copied), by_column


def training_step(
    network: AutoregressiveNetwork,
    targets: SoftTargets | None,
    lagrangian: Lagrangian,
    learning_rate: float,
    batch: int,
    *,
    likelihood_weight: float = 1.0,
) -> tuple[Callable[..., Any], Any]:
    """One update of θ (lines 3–7 of Algorithm 1), and the optimiser; without `targets` plain maximum likelihood.

    step(params, state, codes, records, key, λ, μ, λ_j) → params, state, loss
    """
    optimiser = optax.chain(optax.clip_by_global_norm(CLIPPED), optax.adam(learning_rate))

    def loss(params: Params, codes: Any, records: Any, key: Any, multiplier: Any, penalty: Any, columns: Any) -> Any:
        likelihood = network.likelihood(params, codes)
        if targets is None:
            return -likelihood
        made = network.soft_rows(params, key, batch)
        U = soft_utility(targets, made, likelihood, likelihood_weight)
        P, by_column = soft_privacy(targets, made, records)
        own = tuple(columns[j] for j in range(len(lagrangian.columns)))
        now = Lagrangian(lagrangian.p_min, multiplier, penalty, lagrangian.growth, own)
        return now.value(U, P, [by_column[j] for j in range(len(own))])

    @jax.jit  # type: ignore[untyped-decorator]
    def step(params: Params, state: Any, *given: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(params, *given)
        change, state = optimiser.update(slope, state, params)
        return optax.apply_updates(params, change), state, value

    return step, optimiser
