"""What each ε is expected to give: the method tried on a simulated table of the declared shape. No patient is read.

Every column is drawn from its declared bounds or categories, a few of them move the outcome, about as strongly as
clinical models rank patients (`STRENGTH`). Real columns may say more or less: the loss is a guide, and no promise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.errors import DistcondenseWarning
from distcondense.evaluation.experiment import EvaluationSet, Experiment
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.score import CONDENSED, FULL
from distcondense.methods.base import Context, default_method, method_named, options_of, prepare

EPSILONS = (0.5, 1.0, 2.5, 5.0)
MOST_ROWS = 20_000
MOVING = 5  # columns that move the outcome
STRENGTH = 1.5  # standard deviations of its log odds
SHARE = 0.3  # of rows have the outcome
FRESH = 4000  # simulated rows that models are tested on
SMALL = 0.03  # a loss that few will mind


@dataclass(frozen=True)
class BudgetForecast:
    """What one ε gives on the simulated table; the guarantee is that of the method."""

    epsilon: float
    measure: str
    full: float
    condensed: float | None  # None: no answer at this budget

    @property
    def loss(self) -> float | None:
        return None if self.condensed is None else self.full - self.condensed


def about(rows: int) -> int:
    """A number of rows to two digits, and no more than are simulated."""
    digits = max(len(str(rows)) - 2, 0)
    return min(max(round(rows, -digits), 1), MOST_ROWS)


def simulated(schema: Schema, outcome: Mapping[str, str], rows: int, seed: int = 0) -> Cohort:
    """A table of the declared shape, and `FRESH` more rows; columns whose categories nobody knows are left out."""
    rows += FRESH
    rng = np.random.default_rng(seed)
    columns = [_known(c) for c in schema.columns if c.numeric or not c.unknown]
    features = [c for c in columns if c.name not in outcome.values()]
    drawn = {c.name: _drawn(c, rng, rows) for c in features}
    moving = rng.permutation(len(features))[:MOVING]
    score = sum((_standard(drawn[features[j].name][1]) for j in moving), np.zeros(rows))
    score = STRENGTH * _standard(score)
    frame = pd.DataFrame({name: values for name, (values, _) in drawn.items()})
    known = {c.name: c for c in columns}
    for role, name in outcome.items():
        frame[name] = _result(known[name], role, score, rng)
    kept = Schema(tuple(replace(c.known, missing_values=(), computed="", inferred=()) for c in columns))
    return Cohort.from_frame(frame, schema=kept, owned=True, **outcome)


def _known(column: Column) -> Column:
    if column.numeric and column.low is None:
        return replace(column, low=0, high=100, domain="declared")
    return replace(column, kind="integer", format="", origin="", unit="") if column.kind == "date" else column


def _drawn(column: Column, rng: np.random.Generator, rows: int) -> tuple[Any, Floats]:
    """Values as the column writes them, and as numbers."""
    if not column.numeric:
        weights = rng.dirichlet(np.full(len(column.categories), 2.0))
        codes = rng.choice(len(column.categories), rows, p=weights)
        labels = np.empty(len(column.categories), object)
        labels[:] = column.categories
        return labels[codes], rng.standard_normal(len(weights))[codes]
    assert column.low is not None
    assert column.high is not None
    values = column.low + (column.high - column.low) * rng.beta(3.0, 5.0, rows)
    values = np.clip(column.rounded(values), column.low, column.high)
    return values, values


def _result(column: Column, role: str, score: Floats, rng: np.random.Generator) -> Any:
    """The outcome of rows with these scores."""
    if role == "time":
        longest = float(column.high or 100)
        drawn = longest * rng.exponential(0.5, len(score)) * np.exp(-0.7 * score)
        shortest = max(float(column.low or 0), longest / 100)
        if column.kind == "integer":
            shortest = np.ceil(shortest)
        return column.rounded(np.clip(drawn, shortest, longest))
    if column.numeric:
        low, high = float(column.low or 0), float(column.high or 1)
        noisy = score + rng.standard_normal(len(score))
        return np.clip(column.rounded(low + (high - low) * (0.5 + noisy / 12)), low, high)
    noisy = score + rng.logistic(0, 1, len(score))
    cuts = np.quantile(
        noisy,
        np.linspace(1 - SHARE, 1, len(column.categories))[:-1]
        if len(column.categories) == 2
        else np.arange(1, len(column.categories)) / len(column.categories),
    )
    labels = np.empty(len(column.categories), object)
    labels[:] = column.categories
    return labels[np.digitize(noisy, np.atleast_1d(cuts))]


def _standard(values: Floats) -> Floats:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))


def _reached(home: EvaluationInput, fresh: Cohort, threads: int, arm: str) -> float:
    """The main measure of a model of all rows, or of the condensed ones."""
    experiment, outcome = Experiment(home, 0, threads), home.kind.in_unit(fresh.outcome, home.unit)
    test = EvaluationSet("fresh", Sample(fresh.features, outcome, None, len(fresh)))
    rows = experiment.full() if arm == FULL else experiment.condensed()
    return experiment.trained(rows, home.learner).measured(test)[home.kind.measures[0]].value


def suggested(expected: Sequence[BudgetForecast]) -> float:
    """The smallest ε whose loss is small, else the one that lost least; 1 where nothing answered."""
    scores = {forecast.epsilon: forecast.condensed for forecast in expected if forecast.condensed is not None}
    small = [forecast.epsilon for forecast in expected if forecast.loss is not None and forecast.loss < SMALL]
    if small or not scores:
        return min(small, default=1.0)
    return max(scores, key=scores.__getitem__)


def forecasts(
    cohort: Cohort,
    *,
    epsilons: tuple[float, ...] = EPSILONS,
    ipc: int = 100,
    threads: int | None = None,
    on_progress: Callable[..., None] | None = None,
) -> Iterator[BudgetForecast]:
    """Condense the simulated table but for its last `FRESH` rows at each ε, and test models of both on these."""
    from distcondense.api.request import available_threads

    method = method_named(default_method())
    threads = available_threads() if threads is None else threads
    table, fresh = (cohort.take(rows) for rows in np.split(np.arange(len(cohort)), [len(cohort) - FRESH]))
    full = None
    for k, epsilon in enumerate(epsilons):
        if on_progress is not None:
            on_progress(doing="planning", step=k, steps=len(epsilons), note=f"trying ε = {epsilon:g} (simulated)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)
            prepared = prepare(method, table.facts, options_of(method, {"ipc": ipc, "epsilon": epsilon}))
            (result,) = method.condense(table, prepared, Context(threads=threads)).values()
            home = EvaluationInput.from_result(table, result)
            full = _reached(home, fresh, threads, FULL) if full is None else full
            condensed = _reached(home, fresh, threads, CONDENSED) if len(home.rows) else None
        yield BudgetForecast(epsilon, result.kind.measures[0], full, condensed)
    if on_progress is not None:
        on_progress(doing="planning", step=len(epsilons), steps=len(epsilons))
