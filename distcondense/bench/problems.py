"""The problems: XGBoost classifiers on simulated rows, and the sizes a run goes through.

The base problem is the proteomics one: trees trained on all of its features. The growth series use trees trained on few
features and placed among d columns, so that d varies and the trees do not; each series varies one size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import SettingsError

if TYPE_CHECKING:
    from distcondense.models.trees import TreeModel

F32 = NDArray[np.float32]
TRAINING_ROWS = 3000
SIGNAL = 60  # features the outcome depends on
SIZES = ("rows", "features", "trees", "depth")


@dataclass(frozen=True)
class BenchProblem:
    """One step's input: a tree model, rows X (m, d) float32 and steps (d,) float32, all made from a seed."""

    name: str
    rows: int
    features: int
    trees: int
    depth: int
    booster: bytes = field(repr=False)
    series: tuple[str, ...] = ()
    seed: int = 0

    @cached_property
    def X(self) -> F32:
        X = np.random.default_rng((self.seed, 1)).standard_normal((self.rows, self.features), dtype=np.float32)
        X.setflags(write=False)
        return X

    @cached_property
    def steps(self) -> F32:
        """ε_j ~ U(0.025, 2), as the paper draws them."""
        return np.random.default_rng((self.seed, 2)).uniform(0.025, 2, self.features).astype(np.float32)

    @cached_property
    def slopes(self) -> F32:
        """∂ℓ/∂f of a mean loss, (m,)."""
        return (np.random.default_rng((self.seed, 3)).normal(size=self.rows) / self.rows).astype(np.float32)

    @cached_property
    def reference(self) -> TreeModel:
        from distcondense.models.trees import tree_model

        return tree_model(loaded(self.booster), name=self.name)

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """The features that some tree tests."""
        feature = self.reference.ensemble.feature
        return np.unique(feature[feature >= 0]).astype(np.int64)

    @property
    def facts(self) -> dict[str, Any]:
        sizes = {size: getattr(self, size) for size in SIZES}
        nodes = int(self.reference.ensemble.feature.size)
        return {"name": self.name, **sizes, "used_features": len(self.used), "nodes": nodes, "series": self.series}


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """How big a run is: the base problem's sizes, the series, and how often things are measured."""

    name: str
    rows: int = 2000
    features: int = 2932
    trees: int = 100
    depth: int = 5
    vary: Mapping[str, tuple[int, ...]]
    tree_features: int = 500  # of the growth series' trees
    rounds: int  # each way is measured in each round; slow ways once
    calls: int  # fast ways so often per round
    growth_rounds: int
    growth_calls: int
    slow_seconds: float  # aimed at for one slow way on the base problem, all rounds together
    slow_growth_seconds: float | None  # the same for a problem of the growth series; None: leave slow ways out there
    memory: tuple[str, ...] = ()  # the ways whose peak memory is measured, on the base problem

    def __post_init__(self) -> None:
        if set(self.vary) - set(SIZES):
            raise SettingsError("vary", f"must name sizes among {', '.join(SIZES)}", found=", ".join(self.vary))
        least = min(self.features, *self.vary.get("features", (self.features,)))
        if least < self.tree_features:
            raise SettingsError(
                "tree_features", f"must be at most the fewest features, {least}", found=str(self.tree_features)
            )


_MEMORY = (
    "copy",
    "naive XGBoost",
    "inplace_predict",
    "GTIL",
    "tl2cgen",
    "structured/Numba",
    "structured/C++",
    "structured/Numba, sparse",
    "structured/C++, sparse",
    "fused/Numba",
    "fused/C++",
)
QUICK = BenchPlan(
    name="quick",
    vary={"rows": (500, 2000), "features": (500, 2932, 20_000), "trees": (25, 100), "depth": (3, 5)},
    rounds=3, calls=4, growth_rounds=1, growth_calls=3, slow_seconds=2.5, slow_growth_seconds=None,
    memory=("naive XGBoost", "tl2cgen", "structured/Numba", "fused/C++"),
)  # fmt: skip
FULL = BenchPlan(
    name="full",
    vary={
        "rows": (500, 1000, 2000, 4000, 8000),
        "features": (500, 1000, 2932, 8000, 20_000),
        "trees": (25, 50, 100, 200, 400),
        "depth": (2, 3, 5, 8),
    },
    rounds=5, calls=6, growth_rounds=3, growth_calls=3, slow_seconds=8.0, slow_growth_seconds=1.0, memory=_MEMORY,
)  # fmt: skip


def problems(plan: BenchPlan, log: Callable[[str], None]) -> list[BenchProblem]:
    """The base problem first, then each point of each series once (the centre belongs to all series)."""
    log(f"training {plan.trees} trees of depth {plan.depth} on {TRAINING_ROWS:,} × {plan.features:,}")
    base = _train(plan.features, plan.trees, plan.depth)
    every = [
        BenchProblem(
            "base", plan.rows, plan.features, plan.trees, plan.depth, bytes(base.save_raw("ubj")), series=("base",)
        )
    ]
    centre = {size: int(getattr(plan, size)) for size in SIZES}
    points: dict[tuple[int, ...], list[str]] = {tuple(centre.values()): []} if plan.vary else {}
    for size, values in plan.vary.items():
        for value in sorted({*values, centre[size]}):
            points.setdefault(tuple({**centre, size: value}.values()), []).append(size)
    most = max((point[2] for point in points), default=0)
    boosters: dict[int, Any] = {}
    for (rows, features, trees, depth), series in points.items():
        if depth not in boosters:
            rounds = most if depth == plan.depth else plan.trees
            log(f"training {rounds} trees of depth {depth} on {plan.tree_features:,} features for the growth series")
            boosters[depth] = _train(plan.tree_features, rounds, depth)
        raw = _place(boosters[depth][:trees], features)
        name = f"{rows} × {features}, {trees} trees, depth {depth}"
        every.append(BenchProblem(name, rows, features, trees, depth, raw, series=tuple(series)))
    return every


def loaded(raw: bytes, threads: int = 1) -> Any:
    """An XGBoost booster from its bytes, with an explicit number of threads."""
    import xgboost as xgb

    booster = xgb.Booster({"nthread": threads})
    booster.load_model(bytearray(raw))
    booster.set_param({"nthread": threads, "device": "cpu"})
    return booster


def _train(features: int, trees: int, depth: int) -> Any:
    """On one thread, so that the trees are the same everywhere."""
    import xgboost as xgb

    rng = np.random.default_rng(0)
    A = rng.standard_normal((TRAINING_ROWS, features), dtype=np.float32)
    signal = min(SIGNAL, features)
    y = (A[:, :signal] @ rng.normal(size=signal) > 0).astype(np.float32)
    settings = {
        "objective": "binary:logistic",
        "max_depth": depth,
        "eta": 0.1,
        "colsample_bytree": 0.2,
        "max_bin": 32,
        "nthread": 1,
        "seed": 0,
    }
    return xgb.train(settings, xgb.QuantileDMatrix(A, label=y, max_bin=32, nthread=1), trees)


def _place(booster: Any, d: int) -> bytes:
    """The same trees with their features spread at random over d columns, in order."""
    model = json.loads(bytes(booster.save_raw("json")))
    learner = model["learner"]
    few = int(learner["learner_model_param"]["num_feature"])
    places = np.sort(np.random.default_rng(4).choice(d, few, replace=False))
    for tree in learner["gradient_booster"]["model"]["trees"]:
        tree["split_indices"] = places[tree["split_indices"]].tolist()
        tree["tree_param"]["num_feature"] = str(d)
    learner["learner_model_param"]["num_feature"] = str(d)
    learner["feature_names"], learner["feature_types"] = [], []
    return json.dumps(model).encode()
