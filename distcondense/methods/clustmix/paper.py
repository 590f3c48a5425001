"""clustmix as published (3A): slices → size-constrained mixtures → kernel inducing points → noise.

Patients are read here for everything: scales, slices, clusters, adapting, and the choice of σ_max by a student's score
on the training rows, as the paper chooses it. No theorem covers that; `accounting.py: WHY` is said wherever its ε is.
Clusters are of one class each, and a slice's points are adapted together.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.persons import Split
from distcondense.data.rules import Rules
from distcondense.errors import BudgetError, DistcondenseWarning
from distcondense.methods.base import Context
from distcondense.methods.clustmix.accounting import WHY, least_size, sigma_of
from distcondense.methods.clustmix.kip import Kip, adapted
from distcondense.methods.clustmix.mixture import clusters
from distcondense.methods.clustmix.options import ClustMixOptions
from distcondense.methods.clustmix.units import Units
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.private_side import shared
from distcondense.privacy import noise
from distcondense.privacy.curves import gaussian_epsilon, gaussian_mu
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

SIGMAS = (0.05, 0.1, 0.2, 0.5)  # σ_max that are tried out where none is said
TARGETS = 2000  # rows of a slice that its points are adapted to, at most
SEEDS = (
    "seed: split, slices, first centres, target rows and students. noise: the operating system, kept only in the "
    "checkpoint of an unfinished run, added to its rows."
)


@dataclass(frozen=True, repr=False)
class Points:
    """Adapted means before noise: of patients, and not to leave this process."""

    rows: Floats  # (m, D) in [0, 1]
    label: Index  # (m,)
    size: Index  # (m,) rows of each cluster


def condense(cohort: Cohort, options: ClustMixOptions, context: Context, split: Split | None = None) -> Result:
    """Condense by clustmix as published. `split` is the seed's, unless a test or a benchmark gives another."""
    kind, timings, started = cohort.outcome.kind, dict[str, float](), clock.perf_counter()
    splitting = context.stratified(options.seed)
    split = splitting.split(cohort) if split is None else split
    features, train = cohort.features.iloc[split.train], cohort.outcome.take(split.train)
    units = Units.of_rows(features, cohort.schema)
    rows, label, classes = units.encode(features), kind.strata(train), len(kind.labels)
    timings["encode"] = clock.perf_counter() - started

    started = clock.perf_counter()
    mu = gaussian_mu(options.epsilon, options.delta)
    tried = _sizes(label, classes, units.size, options)
    part = slices(rows, options.slices, np.random.default_rng([options.seed, 0x511CE]))
    many = len(tried) * len(np.unique(part))
    told = iter(range(1, many + 1))
    made = [
        points(rows, label, part, classes, least, options, lambda: context.progress(step=next(told), steps=many))
        for least in tried.values()
    ]
    timings["points"] = clock.perf_counter() - started
    noisy = _noised(made, mu, classes, context)
    schema = replace(cohort.schema, notes=())
    codec = Codec.fit(features, cohort.schema)

    started = clock.perf_counter()
    frames = [_frame(units, one, Rules(schema), options.seed) for one in noisy]
    labels = [Labelled(replace(train, arrays={"label": one.label.astype(train["label"].dtype)})) for one in made]
    best, scores = 0, list[float]()
    if len(frames) > 1:
        real, student = codec.encode(features), kind.learner()
        for frame, labelled in zip(frames, labels, strict=True):
            model = student.fit(codec.encode(frame), labelled.outcome, seed=options.seed, threads=context.threads)
            scores.append(float(kind.score(model.link, model.scores(real), train)))
        best = int(np.argmax(scores))
    timings["choose"] = clock.perf_counter() - started
    sigma_max, least = list(tried.items())[best]
    context.log(f"σ_max = {sigma_max:g}: {len(frames[best])} clusters of at least {least} rows")
    return Result.from_rows(
        features=frames[best][codec.columns],
        schema=replace(schema.only(codec.columns), notes=()),
        labelled=labels[best],
        privacy=_privacy(cohort, options, mu, classes, units.size, sigma_max, least, len(frames[best])),
        splitting=splitting,
        notes={
            "seeds_policy": SEEDS,
            "scaling": "training rows",
            "sigma_max_tried": list(tried),
            "scores_on_training_rows": scores,
            "constant_columns_dropped": list(codec.dropped),
        },
        timings=timings,
        codec=codec,
    )


def slices(rows: Floats, count: int, rng: np.random.Generator) -> Index:
    """(n,) the slice of each row: cut at the values of count − 1 rows in a column of more values, both by chance."""
    if count == 1:
        return np.zeros(len(rows), np.int64)
    varied = [j for j in range(rows.shape[1]) if len(np.unique(rows[:, j])) > count]
    column = int(rng.choice(varied)) if varied else int(rng.integers(rows.shape[1]))
    cuts = np.unique(rows[rng.choice(len(rows), min(count - 1, len(rows)), replace=False), column])
    return np.asarray(np.searchsorted(cuts, rows[:, column], side="right"), np.int64)


def points(
    rows: Floats,
    label: Index,
    part: Index,
    classes: int,
    least: int,
    options: ClustMixOptions,
    done: Callable[[], None] = lambda: None,
) -> Points:
    """Approximate and adapt, slice by slice: at most IPC clusters of a class, each of at least `least` rows."""
    how = Kip(options.alpha, options.adapt_steps, options.adapt_rate, options.layers, options.ridge)
    there = np.unique(part)
    wanted = list[Index]()
    for c in range(classes):  # by rows, among the slices that can have a cluster of the class at all
        held = np.array([int(((part == s) & (label == c)).sum()) for s in there])
        wanted.append(shared(options.ipc, np.where(held >= least, held, 0).astype(np.float64)))
    out: list[tuple[Floats, int, int]] = []
    for place, s in enumerate(there):
        rng = np.random.default_rng([options.seed, 0xC105, place])
        means, own, size = list[Floats](), list[int](), list[int]()
        for c in range(classes):
            members = rows[(part == s) & (label == c)]
            count = min(int(wanted[c][place]), len(members) // least)
            if count:
                of = clusters(members, count, least, rng)
                means += [members[of == k].mean(axis=0) for k in range(count)]
                own += [c] * count
                size += np.bincount(of, minlength=count).tolist()
        if means:
            target = rng.permutation(np.flatnonzero(part == s))[:TARGETS]
            moved = adapted(np.stack(means), np.array(own), rows[target], label[target], classes, how)
            out += zip(np.clip(moved, 0.0, 1.0), own, size, strict=True)
        done()
    every = list(zip(*out, strict=True))
    return Points(np.stack(every[0]), np.array(every[1]), np.array(every[2]))


def _sizes(label: Index, classes: int, columns: int, options: ClustMixOptions) -> dict[float, int]:
    """σ_max → l_min (eq. 7), of those that leave every class a cluster at all."""
    asked = SIGMAS if options.sigma_max is None else (options.sigma_max,)
    fewest = int(np.bincount(label, minlength=classes).min())
    sizes = {sigma: least_size(options.epsilon, options.delta, sigma, classes, columns) for sigma in asked}
    # a slice holds a part of a class only: a class needs a cluster in one of them
    found = {sigma: least for sigma, least in sizes.items() if least * options.slices <= fewest}
    if not found:
        raise BudgetError(
            "sigma_max",
            "must leave clusters that every class can fill",
            found=f"clusters of at least "
            f"{min(sizes.values())} rows at ε = {options.epsilon:g} (as-published), in {options.slices} slices of "
            f"{fewest} rows of the rarest class",
            fix="say a larger --sigma-max or --epsilon, or fewer --slices",
        )
    return found


def _noised(made: list[Points], mu: float, classes: int, context: Context) -> list[Floats]:
    """The points with noise; drawn once for a run, also if it is resumed."""
    checkpoint = None if context.folder is None else context.folder.checkpoint
    kept = None if checkpoint is None else checkpoint.load()
    if kept is not None:
        return [np.asarray(kept[0][f"noisy_{k}"]) for k in range(len(made))]
    noisy = [noised(one, mu, classes) for one in made]
    if checkpoint is not None:
        checkpoint.save({f"noisy_{k}": one for k, one in enumerate(noisy)}, {"noised": True})
    return noisy


def noised(made: Points, mu: float, classes: int) -> Floats:
    """Eq. 6: (m, D) with N(0, σ_t²) in every column, σ_t that of the cluster's own size."""
    sigma = np.array([sigma_of(float(size), mu, classes, made.rows.shape[1]) for size in made.size])[:, None]
    whole = np.round(made.rows / sigma * noise.GRID).astype(np.int64)
    return noise.discrete_gaussian(whole, noise.GRID) / noise.GRID * sigma


def _frame(units: Units, rows: Floats, rules: Rules, seed: int) -> pd.DataFrame:
    frame = units.decode(rows)
    return rules.completed(rules.repaired(frame, np.random.default_rng([seed, 0x9005]))) if rules else frame


def _privacy(
    cohort: Cohort,
    options: ClustMixOptions,
    mu: float,
    classes: int,
    columns: int,
    sigma_max: float,
    least: int,
    rows: int,
) -> Privacy:
    warnings.warn(
        f"ε = {options.epsilon:g} is as-published: clustmix's own argument does not cover what it does; "
        "--variant theorem has a guarantee",
        DistcondenseWarning,
        stacklevel=4,
    )
    facts: dict[str, Any] = {
        "classes": classes,
        "columns": columns,
        "sigma_max": sigma_max,
        "l_min": least,
        "mu": mu,
        "accounting": "Gaussian differential privacy of eq. 7, μ = √(C·D)/(l·σ) for every row",
    }
    return Privacy(
        guarantee="as-published",
        method="clustmix",
        epsilon=max(options.epsilon, gaussian_epsilon(mu, options.delta)),
        delta=options.delta,
        neighbouring="replace one row (as published; a person with several rows is not covered)",
        noise_source=noise.SOURCE,
        parameters=facts,
        ledger=[{"event": "noisy mixtures", "mu": mu, "count": rows}],
        schema_origin=cohort.schema.origin,
        worst_case_epsilon="unbounded size",
        why=WHY,
    )
