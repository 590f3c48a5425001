"""Ways of placing rows after the budget is spent: `python -m benchmarks.placement adult --ipc 50 100 --seeds 3`.

One private model per seed (ε end-to-end at δ = 1e-5, a fifth of the rows kept for the test), the same for every way;
all ways read `Learned` and a seed, no patient. Each set trains XGBoost (soft labels and weights; mean of three student
seeds) and logistic regression, scored by AUROC on the real test rows. Cells are mean ± standard deviation over seeds,
differences are paired with the product's way; seconds are of one core, and no way may take more than about 15.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distcondense as dc
from benchmarks import cohorts
from distcondense.arrays import Floats, Index
from distcondense.data.codec import design_of
from distcondense.data.outcome import Outcome
from distcondense.data.persons import Coins
from distcondense.data.schema import Schema
from distcondense.methods.private import placement
from distcondense.methods.private.placement import Encoder, Mixture, Placed, Rng, closer, place
from distcondense.models.jacobian import jacobian
from distcondense.outcomes.base import Labelled, Learned
from distcondense.outcomes.binary import STUDENT, Binary, LogOdds
from distcondense.outcomes.measures import auroc

RESULTS = Path(__file__).parent / "results"
DELTA = 1e-5
PRODUCT = "best of 32 candidates (the product)"
STUDENTS = 3  # XGBoost seeds averaged: one student's luck is no property of the rows

KIP_POOL = 1000
KIP_MOVES = 1_000_000  # moves × rows
RIDGE = 1e-2  # of kernel ridge regression, beside a kernel of 1 on its diagonal
ZERO_STEPS, ZERO_RATE = 60, 0.05
BOUNDARY_FLOOR = 0.25  # least density beside 1 at a probability of one half
CLIMB_START, CLIMB_STEPS = 8, 45


@dataclass(frozen=True)
class Side(LogOdds):
    """The product's, with another number of candidates."""

    candidates: int = 32


SIDE = Side(Binary(("outcome",)))


@dataclass
class Lab:
    """One private model, a number of rows and a seed: all that a way of placing rows may know."""

    learned: Learned
    ipc: int
    seed: int
    width: float = field(init=False)  # of kernels: a standard deviation of the score
    swaps: int = field(init=False)

    def __post_init__(self) -> None:
        half = np.concatenate([placement._independent(self.learned, c, 2000, self.rng(1)) for c in (0, 1)])
        self.width = max(float(self.learned.model.margin(half).std()), 1e-3)
        self.swaps = int(min(placement.SWAPS_PER_ROW * 2 * self.ipc, placement.MAX_WORK / (2 * self.ipc)))

    def rng(self, *way: int) -> Rng:
        return np.random.default_rng([self.seed, 0xB0, *way])

    def pool(self, rows: int, rng: Rng) -> Index:
        """I.i.d. rows of the population that the marginals describe."""
        positive = int(np.clip(round(rows * self.learned.shares[1]), 1, rows - 1))
        parts = ((0, rows - positive), (1, positive))
        return np.concatenate([placement._independent(self.learned, c, n, rng) for c, n in parts])

    def stratified(self, rng: Rng, learned: Learned | None = None) -> Index:
        tables = (learned or self.learned).marginals
        return np.concatenate([placement.stratified([p[c] for p in tables], self.ipc, rng) for c in (0, 1)])

    def exchanged(self, rng: Rng, learned: Learned | None = None) -> Index:
        mixture = Mixture.of(learned or self.learned, self.width)
        return closer(self.stratified(rng, learned), mixture, self.swaps, rng)

    def contributions(self, codes: Index) -> Floats:
        """(n, d) what each cell adds to the log odds."""
        return np.stack([table[codes[:, j]] for j, table in enumerate(self.learned.model.tables)], axis=1)

    def placed(
        self, codes: Index, rng: Rng, *, inside: Floats | None = None, weight: Floats | None = None, hard: bool = False
    ) -> Placed:
        m = len(codes)
        label = np.repeat(np.array([0, 1], np.int8), m // 2)
        risk = label.astype(float) if hard else probability(self.learned, codes)
        share = np.ones(m) if weight is None else weight / weight.mean()
        inside = rng.random(codes.shape) if inside is None else inside
        outcome = Outcome(SIDE.kind, {"label": label})
        return Placed(codes, inside, Labelled(outcome, risk, share * self.learned.rows / m))

    def agreement(self) -> Callable[[Placed], float]:
        """The product's judgement: how well students of rows rank a pool like the private model does."""
        rng, encode = self.rng(2), Encoder(self.learned.model.cells)
        pool = self.pool(placement.POOL, rng)
        judge = SIDE.judge(self.learned, pool, encode(pool, rng.random(pool.shape)))
        return lambda placed: judge(encode(placed.codes, placed.inside), placed.labelled)


def probability(learned: Learned, codes: Index) -> Floats:
    return SIDE.expected(learned.model.margin(codes), learned)


def best(lab: Lab, count: int, make: Callable[[Rng], Placed]) -> Placed:
    """The set whose students agree best with the private model."""
    return max((make(lab.rng(3, k)) for k in range(count)), key=lab.agreement())


# -- the ways ---------------------------------------------------------------------------------------------------------


def independent(lab: Lab, *, hard: bool) -> Placed:
    rng = lab.rng(4)
    codes = np.concatenate([placement._independent(lab.learned, c, lab.ipc, rng) for c in (0, 1)])
    return lab.placed(codes, rng, hard=hard)


def stratified(lab: Lab) -> Placed:
    return lab.placed(lab.stratified(lab.rng(5)), lab.rng(6))


def product(lab: Lab, *, count: int) -> Placed:
    """`place` as released, with another number of candidates."""
    return place(lab.learned, replace(SIDE, candidates=count), lab.ipc, seed=lab.seed)


def best_stratified(lab: Lab) -> Placed:
    """The product's judgement without the exchange: what is each of the two worth?"""
    return best(lab, 32, lambda rng: lab.placed(lab.stratified(rng), rng))


def inducing_points(lab: Lab, *, count: int) -> Placed:
    """Paper 002: rows that make kernel ridge regression on them predict the private log odds of a pool.

    Moves are taken while the loss falls: a fresh row of the same class, or one column's cells of two rows swapped.
    """
    moves = KIP_MOVES // (2 * lab.ipc) // count

    def descend(rng: Rng) -> Placed:
        return lab.placed(kip(lab, lab.exchanged(rng), moves, rng), rng)

    return best(lab, count, descend) if count > 1 else descend(lab.rng(7))


def kip(lab: Lab, codes: Index, moves: int, rng: Rng) -> Index:
    codes = codes.copy()
    m, d = codes.shape
    pool = lab.contributions(lab.pool(KIP_POOL, rng))
    centre = float(pool.sum(1).mean())
    truth = pool.sum(1) - centre
    rows = lab.contributions(codes)
    gram, cross = laplace(rows, rows, lab.width), laplace(pool, rows, lab.width)

    def loss(gram: Floats, rows: Floats, changed: Index, fresh: Floats) -> float:
        alpha = cho_solve(cho_factor(gram + RIDGE * np.eye(m), check_finite=False), rows.sum(1) - centre)
        found = cross @ alpha + (fresh - cross[:, changed]) @ alpha[changed]
        return float(np.mean((found - truth) ** 2))

    lowest = loss(gram, rows, np.empty(0, np.int64), np.empty((KIP_POOL, 0)))
    for _ in range(moves):
        if rng.random() < 0.5:
            changed = rng.integers(m, size=1)
            new = placement._independent(lab.learned, int(changed[0] >= m // 2), 1, rng)
        else:
            changed, j = rng.choice(m, 2, replace=False), int(rng.integers(d))
            new = codes[changed]
            new[:, j] = new[::-1, j]
        moved = rows.copy()
        moved[changed] = lab.contributions(new)
        fresh, own = laplace(pool, moved[changed], lab.width), laplace(moved, moved[changed], lab.width)
        trial = gram.copy()
        trial[:, changed], trial[changed] = own, own.T
        value = loss(trial, moved, changed, fresh)
        if value < lowest:
            lowest, gram, rows = value, trial, moved
            codes[changed], cross[:, changed] = new, fresh
    return codes


def laplace(a: Floats, b: Floats, width: float) -> Floats:
    return np.asarray(np.exp(-cdist(a, b, "cityblock") / width), np.float64)


def zero_order(lab: Lab, *, count: int) -> Placed:
    """Steps on the values themselves: every cell as its contribution to the log odds, moved by finite differences."""

    def descend(rng: Rng) -> Placed:
        return lab.placed(zero_order_steps(lab, lab.exchanged(rng), ZERO_STEPS // count, rng), rng)

    return best(lab, count, descend) if count > 1 else descend(lab.rng(8))


def zero_order_steps(lab: Lab, codes: Index, steps: int, rng: Rng) -> Index:
    """Adam on the loss of a smooth student (kernel ridge regression) over a pool, then the nearest legal cells.

    L = ½ mean r², r = K_pool α − y_pool, α = A⁻¹ y, A = K + λI. The engine's split: ∂L/∂K and ∂L/∂y in closed form, the
    kernels' change with a row's values by finite differences. With β = A⁻¹ K_poolᵀ r / n, row i sees
    α_i [Σ_t r_t k(x_t, ·)/n − Σ_k β_k k(x_k, ·)] − β_i Σ_k α_k k(x_k, ·) + β_i f(·), and f is the sum of its values.
    """
    pool = lab.contributions(lab.pool(KIP_POOL // 2, rng))
    centre = float(pool.sum(1).mean())
    spread = np.maximum(pool.std(0), 1e-3)
    low, high = (np.array([edge(table) for table in lab.learned.model.tables]) / spread for edge in (np.min, np.max))
    z = lab.contributions(codes) / spread
    first, second = np.zeros_like(z), np.zeros_like(z)

    def kernel(a: Floats, b: Floats) -> Floats:
        return np.asarray(np.exp(-cdist(a * spread, b * spread, "sqeuclidean") / (2 * lab.width**2)), np.float64)

    for step in range(1, steps + 1):
        gram, cross = kernel(z, z) + RIDGE * np.eye(len(z)), kernel(pool / spread, z)
        factor = cho_factor(gram)
        alpha = cho_solve(factor, (z * spread).sum(1) - centre)
        r = (cross @ alpha - (pool.sum(1) - centre)) / len(pool)
        beta = cho_solve(factor, cross.T @ r)
        points, pull = np.concatenate([pool / spread, z]), np.concatenate([r, -beta])
        eps = rng.uniform(0.1, 0.5, z.shape[1])
        along_alpha = jacobian(lambda x, p=points, c=pull: kernel(np.asarray(x, float), p) @ c, z, eps)
        along_beta = jacobian(lambda x, p=z, c=alpha: kernel(np.asarray(x, float), p) @ c, z, eps)
        gradient = alpha[:, None] * along_alpha - beta[:, None] * along_beta + beta[:, None] * spread
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        adam = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-12)
        z = np.clip(z - ZERO_RATE * adam, low, high)
    return nearest_cells(lab, z * spread, codes, rng)


def nearest_cells(lab: Lab, values: Floats, codes: Index, rng: Rng) -> Index:
    """Legal cells whose contributions are nearest; a cell that need not move stays, else one of the alike is drawn."""
    out = codes.copy()
    for j, table in enumerate(lab.learned.model.tables):
        levels, group = np.unique(table, return_inverse=True)
        wanted = np.abs(values[:, [j]] - levels).argmin(1)
        likely = lab.learned.marginals[j].mean(0) + 1e-12
        for i in np.flatnonzero(group[codes[:, j]] != wanted):
            alike = np.flatnonzero(group == wanted[i])
            out[i, j] = rng.choice(alike, p=likely[alike] / likely[alike].sum())
    return out


def boundary(lab: Lab, *, count: int) -> Placed:
    """More rows where the private model is undecided, and less weight on each; otherwise as the product."""
    learned = lab.learned
    pools = [placement._independent(learned, c, 4000, lab.rng(9, c)) for c in (0, 1)]
    dense = [undecided(learned, codes) for codes in pools]
    tilted = tuple(
        np.stack([np.bincount(pools[c][:, j], dense[c], p.shape[1]) / dense[c].sum() for c in (0, 1)])
        for j, p in enumerate(learned.marginals)
    )
    tilted_learned = replace(learned, marginals=tilted)

    def make(rng: Rng) -> Placed:
        codes = lab.exchanged(rng, tilted_learned)
        return lab.placed(codes, rng, weight=1 / undecided(learned, codes))

    return best(lab, count, make) if count > 1 else make(lab.rng(10))


def undecided(learned: Learned, codes: Index) -> Floats:
    p = probability(learned, codes)
    return BOUNDARY_FLOOR + (1 - BOUNDARY_FLOOR) * 4 * p * (1 - p)


def at_the_cuts(lab: Lab) -> Placed:
    """The product's rows, numbers moved to the ends of their stretch of equal contribution, so that a tree which cuts
    half-way between two rows cuts where the private model does; the outermost stretches stay as they are."""
    placed = product(lab, count=32)
    codes, inside, rng = placed.codes.copy(), placed.inside.copy(), lab.rng(11)
    for j, (cells, table) in enumerate(zip(lab.learned.model.cells, lab.learned.model.tables, strict=True)):
        if not cells.numeric:
            continue
        inner = cells.size - cells.hole
        run = np.concatenate([[0], np.cumsum(np.diff(table[:inner]) != 0)])
        ends = np.flatnonzero(np.append(np.diff(run) != 0, True))
        starts = np.concatenate([[0], ends[:-1] + 1])
        here = np.flatnonzero(codes[:, j] < inner)
        mine = run[codes[here, j]]
        here, mine = here[(mine > 0) & (mine < run[-1])], mine[(mine > 0) & (mine < run[-1])]
        upper = rng.random(len(here)) < 0.5
        codes[here, j] = np.where(upper, ends[mine], starts[mine])
        inside[here, j] = np.where(upper, 0.999, 0.0)
    return replace(placed, codes=codes, inside=inside)


def climb(lab: Lab, *, start: int, steps: int) -> Placed:
    """After the candidates, single rows drawn afresh while the students of the judge agree better."""
    rng, agreement = lab.rng(12), lab.agreement()
    now = product(lab, count=start)
    value = agreement(now)
    for _ in range(steps):
        codes, inside = now.codes.copy(), now.inside.copy()
        i = int(rng.integers(len(codes)))
        codes[i], inside[i] = (
            placement._independent(lab.learned, int(now.labelled.outcome["label"][i]), 1, rng)[0],
            rng.random(codes.shape[1]),
        )
        trial = lab.placed(codes, rng, inside=inside)
        found = agreement(trial)
        if found >= value:
            now, value = trial, found
    return now


WAYS: dict[str, Callable[[Lab], Placed]] = {
    "i.i.d. draws, hard labels": lambda lab: independent(lab, hard=True),
    "i.i.d. draws, soft labels": lambda lab: independent(lab, hard=False),
    "stratified draws": stratified,
    "one MMD exchange": lambda lab: product(lab, count=1),
    "best of 32 stratified, no exchange": best_stratified,
    "best of 8 candidates": lambda lab: product(lab, count=8),
    PRODUCT: lambda lab: product(lab, count=32),
    "kernel-inducing points": lambda lab: inducing_points(lab, count=1),
    "kernel-inducing points, best of 8": lambda lab: inducing_points(lab, count=8),
    "zero-order steps": lambda lab: zero_order(lab, count=1),
    "zero-order steps, best of 8": lambda lab: zero_order(lab, count=8),
    "boundary-aware": lambda lab: boundary(lab, count=1),
    "boundary-aware, best of 32": lambda lab: boundary(lab, count=32),
    "the product, numbers at the cuts": at_the_cuts,
    "best of 8, then single rows": lambda lab: climb(lab, start=CLIMB_START, steps=CLIMB_STEPS),
}  # fmt: skip


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """Real rows that nothing was fitted on."""

    schema: Schema
    X: pd.DataFrame
    label: NDArray[Any]

    def scores(self, placed: Placed, learned: Learned, seed: int) -> dict[str, float]:
        X = design_of(placed.features(learned.model.cells), self.schema)
        risk, persons = placed.labelled.soft, placed.labelled.weight
        assert risk is not None
        assert persons is not None
        rows = xgb.DMatrix(X.to_numpy(), label=risk, weight=persons, nthread=1)
        settings = {**STUDENT, "nthread": 1}
        boosters = [xgb.train({**settings, "seed": 10 * seed + k}, rows, 100) for k in range(STUDENTS)]
        found = [auroc(self.label, booster.inplace_predict(self.X.to_numpy())) for booster in boosters]
        weight = persons / persons.mean()
        weights = np.concatenate([weight * (1 - risk), weight * risk])
        used, y = weights > 0, np.repeat([0, 1], len(X))
        chain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        chain.fit(pd.concat([X, X])[used], y[used], logisticregression__sample_weight=weights[used])
        return {"xgb": float(np.mean(found)), "logistic": auroc(self.label, chain.decision_function(self.X))}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", nargs="+", choices=("adult", "brfss", "diabetes130"))
    options.add_argument("--ipc", type=int, nargs="+", default=[50, 100])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--epsilon", type=float, default=1.0, help="end-to-end")
    options.add_argument("--ways", nargs="*", help="only ways whose name contains one of these; writes no file")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    ways = {name: way for name, way in WAYS.items() if not said.ways or any(part in name for part in said.ways)}
    records: list[dict[str, Any]] = []
    product(Lab(tiny(), 2, 0), count=1)  # compiles, so that no way pays for it
    for data in said.data:
        cohort = getattr(cohorts, data)(declared=True)
        for seed in range(said.seeds):
            split = Coins(0.2, entropy=seed).of(cohort)
            train, real = cohort.take(split.train), cohort.take(split.test)
            model = dc.PrivateModel(epsilon=said.epsilon, delta=DELTA).fit(train)
            learned = model.learned_
            schema = Schema(tuple(cells.column for cells in learned.model.cells))
            names = [column.name for column in schema.columns]
            test = Test(schema, design_of(real.features[names], schema), real.outcome["label"])
            itself = auroc(test.label, model.decision_function(real.features))
            for ipc in said.ipc:
                lab = Lab(learned, ipc, seed)
                for name, way in ways.items():
                    started = time.process_time()
                    placed = way(lab)
                    seconds = time.process_time() - started
                    found = test.scores(placed, learned, seed)
                    records.append({"data": data, "seed": seed, "ipc": ipc, "way": name, **found, "seconds": seconds,
                                    "private_model": itself})  # fmt: skip
                    print(f"{data} seed {seed} IPC {ipc} {name}: {found['xgb']:.4f} {found['logistic']:.4f} "
                          f"{seconds:.1f} s", flush=True)  # fmt: skip
    text = page(vars(said), records)
    print(f"\n{text}")
    if not said.ways:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "placement.json").write_text(json.dumps({"options": vars(said), "cells": records}, indent=1) + "\n")
        (RESULTS / "placement.md").write_text(text + "\n")


def tiny() -> Learned:
    """A model of one column that needs no patient."""
    from distcondense.data.cells import public_cells
    from distcondense.models.additive import AdditiveModel

    cells = public_cells(Schema((dc.Column("x", "binary", categories=(0, 1)),)))
    model = AdditiveModel(cells, 0.0, (np.array([-1.0, 1.0]),))
    marginals = (np.array([[0.7, 0.3], [0.3, 0.7]]),)
    return Learned(model, (0,), marginals, 100.0, np.array([0.5, 0.5]), 99.0, SIDE.objective)


def page(options: dict[str, Any], records: list[dict[str, Any]]) -> str:
    command = f"python -m benchmarks.placement {' '.join(options['data'])} --ipc {' '.join(map(str, options['ipc']))}"
    return (
        f"`{command} --seeds {options['seeds']} --epsilon {options['epsilon']:g}`: AUROC on real test rows, ε = "
        f"{options['epsilon']:g} end-to-end, δ = {DELTA:g}; Δ: paired difference to the product's way; "
        f"seconds of one core per set.\n\n{overall(records)}\n\n{table(records)}"
    )


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, one row per way; differences to the product's way are taken seed by seed."""
    lines = ["| data | IPC | way | XGBoost | Δ | logistic | Δ | seconds |", "| --- " * 8 + "|"]
    frame = pd.DataFrame(records)
    for (data, ipc), cell in frame.groupby(["data", "ipc"], sort=False):
        seeds = cell.drop_duplicates("seed")
        lines.append(f"| {data} | {ipc} | the private model itself | {spread(seeds['private_model'])} | | | | |")
        usual = cell[cell["way"] == PRODUCT].set_index("seed")
        for way, found in cell.groupby("way", sort=False):
            parts = [str(data), str(ipc), str(way)]
            for student in ("xgb", "logistic"):
                own = found.set_index("seed")[student]
                apart = spread(own - usual[student], sign="+") if way != PRODUCT and len(usual) else ""
                parts += [spread(own), apart]
            lines.append("| " + " | ".join([*parts, f"{found['seconds'].mean():.1f}"]) + " |")
    return "\n".join(lines)


def overall(records: list[dict[str, Any]]) -> str:
    """Markdown: difference to the product's way over all, one number per data set and seed (mean of its IPCs)."""
    lines = [
        "| way | Δ XGBoost, mean ± standard error | Δ logistic | cells where XGBoost is better |",
        "| --- " * 4 + "|",
    ]
    frame = pd.DataFrame(records).set_index(["data", "seed", "ipc"])
    usual = frame[frame["way"] == PRODUCT][["xgb", "logistic"]]
    for way, found in frame.groupby("way", sort=False):
        if way == PRODUCT or usual.empty:
            continue
        apart = found[["xgb", "logistic"]] - usual
        units = apart.groupby(level=["data", "seed"]).mean()
        error = units.std(ddof=1) / np.sqrt(len(units))
        parts = [f"{units[name].mean():+.4f} ± {error[name]:.4f}" for name in ("xgb", "logistic")]
        lines.append("| " + " | ".join([str(way), *parts, f"{int((apart['xgb'] > 0).sum())} of {len(apart)}"]) + " |")
    return "\n".join(lines)


def spread(values: pd.Series[float], sign: str = "") -> str:
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}"


if __name__ == "__main__":
    main()
