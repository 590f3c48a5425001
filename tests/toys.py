"""A toy method and a toy kind of outcome, one class each: what a stranger writes to add one. The tests register them.

`Uniform` draws rows from the schema alone. `Fraction` is a share between 0 and 1, learned as the log odds of a share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from distcondense.data import outcome as kinds
from distcondense.data.cells import public_cells
from distcondense.data.features import numbers_of, refuse_holes, refuse_rows
from distcondense.data.outcome import Outcome
from distcondense.data.persons import Stratified
from distcondense.methods import base as methods
from distcondense.methods.base import Options, Prepared, option
from distcondense.models.learners import Learner, TrainingSet, boosted, learner
from distcondense.outcomes.base import Kind, Labelled
from distcondense.outcomes.binary import Logistic, LogOdds
from distcondense.outcomes.measures import error
from distcondense.outcomes.private_side import PrivateSide
from distcondense.outcomes.survival import PiecewiseExponential
from distcondense.privacy.contributions import Statistic
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

# -- a method ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UniformOptions(Options):
    spread: float = option(1.0, "Share of the public range that rows are drawn from.")


class Uniform:
    """Rows from the schema alone: no patient is read, nothing is learned."""

    name: ClassVar[str] = "uniform"
    about: ClassVar[str] = "rows from the schema alone"
    guarantee: ClassVar[str] = "none"
    Options: ClassVar[type[Options]] = UniformOptions

    def takes(self, kind: Any) -> bool:
        return True

    def prepare(self, facts: Any, options: Any) -> Prepared:
        return Prepared(facts, options)

    def condense(self, cohort: Any, prepared: Prepared, context: Any) -> dict[int, Result]:
        options = prepared.options
        rng = np.random.default_rng(options.seed)
        rows = 2 * options.ipc
        cells = public_cells(cohort.schema)
        frame = pd.DataFrame(
            {c.column.name: c.values(rng.integers(0, c.size - c.hole, rows), rng.random(rows)) for c in cells}
        )
        chosen = rng.permutation(np.resize(np.arange(len(cohort)), rows))  # a toy: real outcomes, hence guarantee none
        privacy = Privacy("none", self.name, None, None, "none", "none")
        labelled = Labelled(cohort.outcome.take(chosen))
        made = Result.from_rows(frame, cohort.schema, labelled, privacy, Stratified(options.seed), notes={"toy": True})
        return {options.ipc: made}


# -- an objective with a statistic of several coordinates -----------------------------------------------------------


class Lived(PiecewiseExponential):
    """A hazard whose events and time at risk may be asked together.

    Statistic "hazard": one row adds w·(1 at the event's interval, ½K^(−½)·share of each interval lived), w = 1/√1.25:
    norm at most 1 without clipping. Read as events (K,), then time at risk (K,).
    """

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        k, whole = self.intervals, math.sqrt(1.25)
        weight = 0.5 / math.sqrt(k) / whole
        edges, widths = self.edges, self.widths

        def values(target: Any, score: Any) -> list[Any]:
            label, time, interval = target["label"], target["time"], self.interval(target["time"])
            found = [(1 / whole) * (label & (interval == at)) for at in range(k)]
            return found + [weight * np.clip((time - edges[at]) / widths[at], 0.0, 1.0) for at in range(k)]

        def undo(answer: Any) -> Any:
            return np.concatenate([answer[:k] * whole, answer[k:] / weight * widths])

        return {"hazard": Statistic(2 * k, values, undo, whole)}


# -- a kind of outcome ------------------------------------------------------------------------------------------------


@learner
def fit_shares(training: TrainingSet) -> Any:
    labels = {"label": training.outcome["share"] if training.soft is None else training.soft, "weight": training.weight}
    return boosted({"objective": "binary:logistic"}, training, labels, link="share", name="trees")


class SoftLogistic(Logistic):
    """The logistic objective with outcomes between 0 and 1: |p − y| ≤ max(p, 1 − p), so its norm bound holds."""

    def prepare(self, target: Any) -> Any:
        share = np.clip(np.nan_to_num(np.asarray(target["share"], np.float64)), 0.0, 1.0)
        return {"share": share, "label": share}

    def group(self, by: str, target: Any) -> Any:
        return (target["share"] >= 0.5).astype(np.intp)


@dataclass(frozen=True)
class ShareSide(LogOdds):
    kind: Any
    objective: Any = field(default_factory=SoftLogistic)
    link: str = "share"

    def label(self, learned: Any, codes: Any, at: Any, rows: int) -> Labelled:
        share = self.expected(learned.model.margin(codes))
        return Labelled(Outcome(self.kind, {"share": share}), share)

    def weighted(self, learned: Any, labelled: Labelled) -> Labelled:
        return PrivateSide.weighted(self, learned, labelled)


@dataclass(frozen=True)
class Fraction(Kind):
    name: ClassVar[str] = "fraction"
    roles: ClassVar[tuple[str, ...]] = ("target",)
    arrays: ClassVar[Mapping[str, Any]] = {"share": np.float64}
    numeric_roles: ClassVar[tuple[str, ...]] = ("target",)
    measures: ClassVar[tuple[str, ...]] = ("mae",)
    learners: ClassVar[Mapping[str, Learner]] = {"trees": Learner("trees", "share", fit_shares)}
    groups_named: ClassVar[str] = "half"

    names: tuple[str, ...]

    @classmethod
    def recognises(cls, goal: Any, schema: Any) -> bool:
        return False  # only where it is named: kind="fraction"

    @classmethod
    def from_goal(cls, goal: Any, schema: Any) -> Fraction:
        return cls((goal.columns["target"],))

    def read(self, frame: pd.DataFrame) -> Outcome:
        refuse_holes(frame[self.names[0]], self.names[0])
        share = numbers_of(frame[self.names[0]], self.names[0])
        refuse_rows((share < 0) | (share > 1), self.names[0], "must be between 0 and 1")
        return Outcome(self, {"share": np.asarray(share, np.float64)})

    def strata(self, outcome: Outcome) -> Any:
        return (outcome["share"] >= 0.5).astype(np.int64)

    def lacking(self, outcome: Outcome) -> str:
        return "" if len(outcome) > 1 else "two rows"

    def score(self, link: str, scores: Any, outcome: Outcome) -> float:
        return -error(outcome["share"], scores, "mae").value

    def measured(self, link: str, scores: Any, outcome: Outcome, rule: Any) -> dict[str, Any]:
        return {"mae": error(outcome["share"], scores, "mae")}

    def private_side(self, *, horizon: float | None = None) -> PrivateSide:
        return ShareSide(self)


@contextmanager
def registered() -> Iterator[None]:
    """Both are known inside the `with`."""
    methods.register(Uniform())
    kinds.register(Fraction)
    try:
        yield
    finally:
        methods.forget(Uniform.name)
        kinds.forget(Fraction.name)
