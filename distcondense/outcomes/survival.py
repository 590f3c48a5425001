"""Survival outcomes: the time to an event, or to the end of follow-up. Learned as a hazard, scored by the C-index.

Privately: a piecewise-exponential model, which gives a whole survival curve. Its intervals follow the events: noisy
counts of ends of follow-up between public moments say where cuts lie, dense where events are, and the rows in each of
these intervals are counted anew. A synthetic row ends as the model has it, by the event or by leaving, and the times of
a set are quantiles of the private curve: a Kaplan-Meier curve of the rows, without weights, is the population's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.data.features import check_features
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.schema import Column, Label, Schema
from distcondense.data.values import numbers_of, refuse_absent, refuse_rows
from distcondense.errors import CohortError, SettingsError
from distcondense.kernels import elementwise
from distcondense.models.base import Model
from distcondense.models.learners import Learner, TrainingSet, boosted, learner, proportional_hazards
from distcondense.outcomes.base import Kind, Labelled, Rule
from distcondense.outcomes.binary import declared_labels, is_public, read_label
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.outcomes.measures import Measured, c_index, concordance, expected_over_observed, survival_loss
from distcondense.outcomes.private_side import (
    GroupCounts,
    NewtonStep,
    PrivateFit,
    PrivateQueries,
    PrivateSide,
    newton_step,
    present,
    without_invented,
)
from distcondense.outcomes.recipes import Recipe, Released, of_survival
from distcondense.privacy.contributions import FINITE, SCORE_MAX, Objective, Statistic, Target

EVEN = 16  # public moments: equal parts of the horizon,
HALVINGS = 24  # and the horizon divided by √2 so many times
MOMENT_SHARE = 0.02  # of μ², for where ends of follow-up lie among them
FOLLOW_UP_SHARE = 0.04  # of μ², for how many rows end in each interval, and how
EVENT_PARTS = (4, 16)  # of all events lie between cuts, fewest and most,
LEAVING_PARTS = (2, 8)  # and of those who leave,
STANDING = 3.0  # as far as a part has so many standard deviations of noise
WALKS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # prior standard deviations of log hazards beside a line,
WALK = 2.0  # which are alike over so many intervals,
SLOPE = 0.5  # and of that line in log time
NEWTON = 40  # steps of fitting them,
LONGEST = 1.0  # none of them longer
ACCURATE = 1e-3  # of themselves: no closer are counts believed
FINER = 64  # steps of the curve that is drawn, about
POPULATION = 2000  # drawn rows that have the private curve together,
RISKS = 400  # by so many quantiles of their log hazards
MERGED = 8
GRID = 1000  # ends of follow-up by which gradients are known to vary
LEAST_VARIES = 0.1
PARTS = 10  # of either status by time, within which rows are exchanged
FOLLOWED = 0.8  # of the rows end by the horizon of survival scores, which are taken at so many times:
MOMENTS = 20
INFLATED = 250  # rows of which a Cox model finds log hazard ratios of about twice their size


def risk_of(link: str, scores: Numbers) -> Numbers:
    """A longer log-time is a lower risk."""
    return -scores if link == "log-time" else scores


def breslow(risk: Numbers, time: Floats, event: NDArray[np.int8]) -> Callable[[Numbers, Floats], Floats]:
    """S(t | risk) = exp(−H(t)·e^risk), with Breslow's estimate of the cumulative hazard H on these rows."""
    order = np.argsort(time, kind="stable")
    centre = float(np.mean(risk))
    weight = np.exp(np.clip(np.asarray(risk, np.float64)[order] - centre, -30, 30))
    moments, first = np.unique(np.asarray(time)[order], return_index=True)
    there = np.cumsum(weight[::-1])[::-1][first]
    events = np.add.reduceat((np.asarray(event)[order] == 1).astype(float), first)
    hazard = np.concatenate([[0.0], np.cumsum(events / there)])

    def alive(scores: Numbers, times: Floats) -> Floats:
        relative = np.exp(np.clip(np.asarray(scores, np.float64) - centre, -30, 30))
        return np.asarray(np.exp(-relative[:, None] * hazard[np.searchsorted(moments, times, side="right")][None]))

    return alive


def longer(scores: Numbers, time: Floats, event: NDArray[np.int8]) -> Callable[[Numbers, Floats], Floats]:
    """S(t | score) of an accelerated failure time: how many of these rows outlived their log-time by log t − score."""
    residual = np.log(time) - np.asarray(scores, np.float64)
    happened = np.asarray(event) == 1
    ends = np.unique(residual[happened])
    steps = np.concatenate([[1.0], SurvivalCurves(residual, happened).survival(ends)])

    def alive(scores: Numbers, times: Floats) -> Floats:
        apart = np.log(times)[None] - np.asarray(scores, np.float64)[:, None]
        return np.asarray(steps[np.searchsorted(ends, apart, side="right")])

    return alive


@learner
def fit_aft(training: TrainingSet) -> Model:
    """XGBoost accelerated failure time, normal, scale 1; f(x) = log-time, in the unit of the times given."""
    time, event = training.outcome["time"], training.outcome["label"]
    upper = np.where(event == 1, time, np.inf)
    labels = {"label_lower_bound": time, "label_upper_bound": upper, "weight": training.weight}
    params = {"objective": "survival:aft", "aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.0}

    def score(at: Numbers, real: Outcome) -> float:
        return c_index(real["time"], real["label"], risk_of("log-time", at))

    return boosted(params, training, labels, link="log-time", name="aft", score=score)


@learner
def fit_cox(training: TrainingSet) -> Model:
    """Cox model with an L2 penalty of 1; f(x) = log-risk. Nothing to tune, so validation is not used."""
    return proportional_hazards(training.rows, training.outcome["time"], training.outcome["label"], training.weight)


@dataclass(frozen=True)
class Survival(Kind):
    """A time and an event."""

    name: ClassVar[str] = "survival"
    roles: ClassVar[tuple[str, ...]] = ("time", "event")
    arrays: ClassVar[Mapping[str, type[np.generic]]] = {"time": np.float64, "label": np.int8}
    numeric_roles: ClassVar[tuple[str, ...]] = ("time",)
    measures: ClassVar[tuple[str, ...]] = ("c_index", "integrated_brier", "calibration")
    learners: ClassVar[Mapping[str, Learner]] = {
        "cox": Learner("cox", "log-risk", fit_cox),
        "aft": Learner("aft", "log-time", fit_aft),
    }
    groups_named: ClassVar[str] = "event status"
    too_few: ClassVar[tuple[str, str]] = ("all rows censored", "check which value means an event (--positive)")

    names: tuple[str, ...]
    labels: tuple[Label, Label] = (0, 1)
    labels_public: bool = True  # time and event are declared
    declared: Column | None = None  # of the event
    time: Column | None = None
    positive: Label | None = None

    @classmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool:
        return True

    @classmethod
    def from_goal(cls, goal: Goal, schema: Schema | None) -> Survival:
        time, event = goal.columns["time"], goal.columns["event"]
        declared = declared_labels(schema, event)
        if declared is None and schema is not None and event in schema and len(schema[event].categories) > 2:
            raise _competing(event, f"{len(schema[event].categories)} declared categories")
        return cls(
            (time, event),
            labels_public=declared is not None and is_public(schema, time, event),
            declared=declared,
            positive=goal.positive,
            time=schema[time] if schema is not None and time in schema else None,
        )

    def read(self, frame: pd.DataFrame) -> Outcome:
        time, event = self.names
        refuse_absent(frame[event], event)
        if self.declared is None and (several := frame[event].nunique()) > 2:
            raise _competing(event, f"{several} distinct values")
        label, labels = read_label(frame[event], event, self.positive, self.declared)
        times = numbers_of(frame[time], time)
        refuse_absent(frame[time], time)
        refuse_rows(~np.isfinite(times), time, "must be finite")
        refuse_rows(times <= 0, time, "times must be above 0", "drop these rows or add the length of one time unit")
        if self.time is not None:
            times = check_features(frame[[time]], Schema((self.time.known,)))[time].to_numpy()
        return Outcome(replace(self, labels=labels), {"label": label, "time": times})

    def check(self, outcome: Outcome) -> None:
        super().check(outcome)
        if len(np.unique(outcome["time"][outcome["label"] == 1])) < 2:
            raise CohortError(
                f"time {self.names[0]!r}",
                "events must happen at two times at least",
                found="one event time",
                fix="use a finer unit of time, or a target without a time",
            )

    def lacking(self, outcome: Outcome) -> str:
        return "" if outcome["label"].any() else "at least one event"

    def unit(self, outcome: Outcome) -> float:
        """(1) s = IQR of the event times if above 0, else their median."""
        times = outcome["time"][outcome["label"] == 1]
        low, middle, high = np.percentile(times, [25, 50, 75])
        return float(high - low) if high > low else float(middle)

    def in_unit(self, outcome: Outcome, unit: float) -> Outcome:
        return outcome.with_arrays(time=outcome["time"] / unit)

    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        return c_index(outcome["time"], outcome["label"], risk_of(link, scores))

    def rule(self, link: str, scores: Numbers, outcome: Outcome) -> Rule:
        """Survival to times within the horizon, by which all but the last fifth of these rows have ended."""
        time, event = outcome["time"], outcome["label"]
        horizon = float(np.quantile(time, FOLLOWED))
        likely = longer(scores, time, event) if link == "log-time" else breslow(risk_of(link, scores), time, event)
        return Rule(survival=likely, horizon=horizon)

    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        time, event = outcome["time"], outcome["label"]
        found = {"c_index": concordance(time, event, risk_of(link, scores))}
        if rule.survival is not None and rule.horizon is not None:
            times = rule.horizon * (np.arange(MOMENTS) + 1) / MOMENTS
            alive = rule.survival(risk_of(link, scores) if link != "log-time" else scores, times)
            found["integrated_brier"] = survival_loss(time, event, alive, times)
            found["calibration"] = expected_over_observed(time, event, alive[:, -1], rule.horizon)
        return found

    def outcome_columns(self) -> tuple[Column, ...]:
        yes, no = self.labels[1], self.labels[0]
        known = Column(self.names[0], "continuous") if self.time is None else self.time
        followed = replace(known.known, domain="declared")
        event = Column(self.names[1], "binary", categories=self.labels)
        return (
            replace(followed, meaning="the outcome: how long the row was followed."),
            replace(
                event,
                meaning=f"the outcome: {yes} where the event ended that time, {no} where nothing more is "
                "known. As common as among patients: a Kaplan–Meier curve needs no weights.",
            ),
        )

    def write(self, frame: pd.DataFrame, labelled: Labelled) -> None:
        super().write(frame, labelled)
        name = self.names[0]
        if self.time is not None and self.time.kind == "integer" and (frame[name] % 1 == 0).all():
            frame[name] = frame[name].astype(np.int64)

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        return of_survival(table, self.labels[1])

    def training_target(self, labelled: Labelled) -> Any:
        """A frame with the time and the event (0/1)."""
        time, event = labelled.outcome["time"], labelled.outcome["label"].astype(np.int64)
        return pd.DataFrame({self.names[0]: time, self.names[1]: event})

    def invented(self, train: Outcome, rows: int, positives: int, inside: Floats) -> Outcome:
        """Event times uniform within equal bins between the smallest event time and the largest censoring time, one a
        bin; censored rows at the largest censoring time."""
        label = np.repeat(np.array([0, 1], np.int8), [rows - positives, positives])
        time, event = train["time"], train["label"]
        events, censored = time[event == 1], time[event == 0]
        low = events.min()
        high = censored.max() if len(censored) and censored.max() > low else time.max()
        times = low + (high - low) * (np.arange(positives) + inside) / positives
        drawn = np.where(label == 1, np.concatenate([np.full(rows - positives, high), times]), high)
        return train.with_arrays(label=label, time=drawn)

    def match_strata(self, train: Outcome, outcome: Outcome, count: int) -> tuple[Index, int, bool]:
        """Its quantile of the real event times, censored rows apart (eq. 11)."""
        cuts = np.quantile(train["time"][train["label"] == 1], np.linspace(0, 1, count + 1)[1:-1])
        stratum = np.where(outcome["label"] == 1, np.searchsorted(cuts, outcome["time"], side="left"), count)
        return stratum.astype(np.int64), count + 1, True

    def private_side(self, *, horizon: float | None = None) -> PrivateSide:
        """The horizon is what the user says, else the schema's upper bound of the time: one rule, before any row."""
        if horizon is None:
            horizon = None if self.time is None else self.time.high
        if horizon is None:
            raise SettingsError(
                "horizon",
                "the public end of follow-up must be known: it may not be read off patients",
                found="nothing",
                fix=f"say --horizon, or declare {self.names[0]!r} with low and high in the schema",
            )
        grid = public_moments(horizon, self.time)
        return LogHazard(self, PiecewiseExponential(grid, horizon, grid=grid), unit=horizon / 2)


# -- the private method -----------------------------------------------------------------------------------------------


def public_moments(horizon: float, column: Column | None) -> tuple[float, ...]:
    """Moments within follow-up, told by the schema: closer together towards its beginning, never at a legal time."""
    even = horizon * np.arange(1, EVEN) / EVEN
    halved = horizon * 2.0 ** (-np.arange(1, HALVINGS + 1) / 2)
    return tuple(_between_ticks(np.concatenate([even, halved]), horizon, column).tolist())


def _between_ticks(moments: Floats, horizon: float, column: Column | None) -> Floats:
    """Increasing moments within follow-up, moved to the middle between two times as the column measures them.

    So every time that is rounded to its legal neighbour stays in its interval.
    """
    measured = _measured(column)
    if measured is not None:
        first, tick = measured
        moments = first + (np.maximum(np.floor((moments - first) / tick), 1.0) + 0.5) * tick
    return np.unique(moments[(moments > 0) & (moments < horizon)])


def _measured(column: Column | None) -> tuple[float, float] | None:
    """(a legal time, how far apart legal times are); None where any time is legal."""
    if column is None or not (column.whole or column.step is not None or column.decimals is not None):
        return None
    tick = column.step or (1.0 if column.whole else 10.0 ** -(column.decimals or 0))
    return column.counted_from if column.step is not None else 0.0, tick


@dataclass(frozen=True)
class PiecewiseExponential:
    """Constant baseline hazard on intervals, g = a − E and h = a, a = Λ₀(T)e^F clipped to [0, most].

    `target`: label (1 = event) and time. The pair (a − E, c·a) is scaled down to norm 1 where it is longer: never for
    an event with c ≤ 1 and a ≤ 1, for a censored row once a > 1/√(1 + c²). Times past the horizon are censored there.
    Unlike Cox there are no risk sets, so one person touches only their own terms.

    Groupings: "label" (event status); how and when follow-up ends, between public moments ("moment") or cuts
    ("stratum"): left in each of K intervals, followed to the horizon, event in each of K intervals. A row is in one
    group of each, whatever the cuts, so cuts may be told by an earlier noisy answer: histograms have sensitivity 1.
    """

    cuts: tuple[float, ...]  # interior cut points of time, increasing; public, or of earlier noisy answers
    horizon: float  # public end of follow-up
    hazard: tuple[float, ...] | None = None  # (K,) baseline, per unit of time; of earlier noisy answers
    most: float = 1.0
    hessian_weight: float = 1.0
    grid: tuple[float, ...] = ()  # public moments

    def __init__(
        self,
        cuts: Sequence[float] | NDArray[Any],
        horizon: float,
        hazard: Sequence[float] | NDArray[Any] | None = None,
        most: float = 1.0,
        hessian_weight: float = 1.0,
        grid: Sequence[float] | NDArray[Any] = (),
    ) -> None:
        for name, value in (
            ("cuts", tuple(float(cut) for cut in cuts)),
            ("horizon", float(horizon)),
            ("hazard", None if hazard is None else tuple(float(rate) for rate in hazard)),
            ("most", float(most)),
            ("hessian_weight", float(hessian_weight)),
            ("grid", tuple(float(moment) for moment in grid)),
        ):
            object.__setattr__(self, name, value)
        for name in ("cuts", "grid"):
            edges = self._edges(getattr(self, name))
            if not (np.all(np.abs(edges) <= FINITE) and np.all(np.diff(edges) > 0)):
                raise SettingsError(
                    name,
                    "must increase strictly between 0 and the horizon",
                    found=f"{len(edges) - 2} of them, {horizon}",
                )
        if self.hazard is not None and (
            len(self.hazard) != self.intervals or not all(0 <= rate <= FINITE for rate in self.hazard)
        ):
            raise SettingsError(
                "hazard",
                "must be finite, 0 or more, one per interval",
                found=f"{len(self.hazard)} for {self.intervals}",
            )
        if not (0 < self.most <= 1e3 and 0 < self.hessian_weight <= 1e3):
            raise SettingsError(
                "most and hessian_weight", "must be above 0 and at most 1000", found=f"{most}, {hessian_weight}"
            )

    @property
    def scores(self) -> int:
        return 1

    @property
    def scales(self) -> tuple[float, ...]:
        return (1.0, self.hessian_weight)

    @property
    def groupings(self) -> Mapping[str, int]:
        return {"label": 2, "moment": 2 * len(self.grid) + 3, "stratum": 2 * self.intervals + 1}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        return {}

    @property
    def ready(self) -> bool:
        return self.hazard is not None

    @property
    def intervals(self) -> int:
        """K."""
        return len(self.cuts) + 1

    @property
    def edges(self) -> Floats:
        """(K+1,) 0, the cuts, the horizon."""
        return self._edges(self.cuts)

    def _edges(self, inside: tuple[float, ...]) -> Floats:
        return np.array([0.0, *inside, self.horizon])

    @property
    def widths(self) -> Floats:
        return np.diff(self.edges)

    def with_cuts(self, cuts: Sequence[float] | NDArray[Any]) -> PiecewiseExponential:
        return replace(self, cuts=tuple(float(cut) for cut in cuts), hazard=None)

    def with_hazard(self, hazard: Sequence[float] | NDArray[Any]) -> PiecewiseExponential:
        return replace(self, hazard=tuple(float(rate) for rate in hazard))

    def interval(self, time: ArrayLike) -> NDArray[np.intp]:
        """The interval [edge_k, edge_k+1) of each time; the horizon and later belong to the last."""
        return np.searchsorted(np.array(self.cuts), np.asarray(time, np.float64), side="right")

    def cumulative(self, time: ArrayLike) -> Floats:
        """Λ₀ at each time in [0, horizon]."""
        if self.hazard is None:
            raise SettingsError("hazard", "must be set before gradients are asked", fix="objective.with_hazard(...)")
        rates, where = np.array(self.hazard), self.interval(time)
        before = np.concatenate([[0.0], np.cumsum(rates * self.widths)])
        return before[where] + rates[where] * (np.asarray(time, np.float64) - self.edges[where])

    def prepare(self, target: Target) -> Target:
        late = np.nan_to_num(np.asarray(target["time"], np.float64), nan=0.0, posinf=np.inf, neginf=0.0)
        label = (np.asarray(target["label"]) == 1) & (late <= self.horizon)
        time = np.clip(late, 0.0, self.horizon)
        ready = {} if self.hazard is None else {"cumulative": self.cumulative(time)}
        return {"label": label, "time": time, **ready}

    def group(self, by: str, target: Target) -> NDArray[np.intp]:
        label, time = target["label"].astype(np.intp), target["time"]
        if by == "label":
            return label
        cuts = np.array(self.cuts if by == "stratum" else self.grid)
        followed = (time >= self.horizon) & (label == 0)
        interval = np.searchsorted(cuts, time, side="right") + followed
        return (len(cuts) + 2) * label + interval

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        a = np.minimum(target["cumulative"] * elementwise.exp(np.clip(score, -SCORE_MAX, SCORE_MAX)), self.most)
        g, h = a - target["label"], self.hessian_weight * a
        shrink = 1 / np.maximum(1.0, np.sqrt(g * g + h * h))
        return g * shrink, h * shrink

    def continues(self, earlier: Objective) -> bool:
        return (
            isinstance(earlier, PiecewiseExponential) and self.grid == earlier.grid and self.horizon == earlier.horizon
        )


@dataclass(frozen=True)
class LogHazard(PrivateSide):
    """An additive model of the log hazard over a private baseline."""

    kind: Survival
    objective: Objective
    link: str = "log-risk"
    merged: int = MERGED
    balanced: bool = False  # an unweighted survival curve of a set is the population's
    effect: str = "log hazard"
    drifts: bool = True  # a hazard is cut at 1, which many events push scores against
    unit: float = 1.0
    public: tuple[str, ...] = ("the end of follow-up",)

    questions: ClassVar[Mapping[str, float]] = {"moments": MOMENT_SHARE, "follow-up": FOLLOW_UP_SHARE}

    def begin(self, ask: PrivateQueries) -> Mapping[str, Any]:
        """Where ends of follow-up lie; then, on cuts that follow them, how many rows end in each interval, and how."""
        objective, noise = ask.objective, ask.noise("follow-up")
        assert isinstance(objective, PiecewiseExponential)
        edges = np.array([0.0, *objective.grid, objective.horizon])
        cuts = followed_cuts(edges, ask.counts("moment", "moments"), noise)
        objective = objective.with_cuts(_between_ticks(cuts, objective.horizon, self.kind.time))
        ask.set_objective(objective)
        ends = ask.counts("stratum", "follow-up")
        left, events = np.split(ends, [objective.intervals + 1])
        told = Ends(objective.edges, events, left, noise)
        hazard, leaving = told.known(float(events.sum()), float(left.sum())).rates(objective.edges)
        objective = objective.with_hazard(hazard)
        ask.set_objective(objective)
        counted = GroupCounts(np.array([left.sum(), events.sum()]), float(noise * np.sqrt(objective.intervals + 1)))
        dispersion = _dispersion(objective, leaving)
        return {"ends": told, "counted": counted, "dispersion": dispersion}

    def completed(self, learned: PrivateFit) -> PrivateFit:
        """With the private curve in fine steps, and the baseline with which the population has it."""
        objective, rows = learned.objective, learned.rows * learned.shares
        assert isinstance(objective, PiecewiseExponential)
        told: Ends = learned.facts["ends"]
        ends = told.known(float(rows[1]), float(rows[0]))
        edges = ends.finer()
        dying, leaving = ends.rates(edges)
        facts = {**learned.facts, "dying": tuple(dying.tolist()), "leaving": tuple(leaving.tolist())}
        codes, _ = learned.joint.draw(learned.marginals, POPULATION, np.random.default_rng(0x5407))
        objective = objective.with_cuts(edges[1:-1]).with_hazard(dying)
        learned = replace(learned, objective=objective, facts=facts)
        hazard = FollowUp.calibrated(learned, learned.model.margin(codes)).hazard
        return replace(learned, objective=objective.with_hazard(hazard))

    def newton(self, G: Floats, H: Floats) -> Floats:
        """A hazard multiplies: observed over expected events is 1 − G/H, and its logarithm the exact step, where
        Newton's own would run far past it; noise below the half of what is expected is not believed."""
        return np.log1p(np.maximum(super().newton(G, H), -0.5))

    def histogram_step(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> NewtonStep:
        """Who has the event at all, as if all were followed alike: 1 − exp(−Λ·e^t) of a cell's rows."""
        rows, hazard = present(held, noise), -np.log1p(-shares[1]) * np.exp(np.clip(table, -SCORE_MAX, SCORE_MAX))
        p = -np.expm1(-hazard)
        own = noise * (p**2 + (1 - p) ** 2)
        seen, slope = (1 - p) * held[1] - p * held[0], rows * hazard * (1 - p)
        step = newton_step(seen, slope, own, rows * p * (1 - p), table)
        return step._replace(hessian=rows * p)  # that of the rounds: expected events

    def least_share(self, shares: Floats) -> float:
        """Of events; that nobody is censored is no fault."""
        return float(shares[1])

    def expected(self, margin: Floats) -> Floats:
        return margin

    def survival(self, margin: Floats, learned: PrivateFit, times: Floats) -> Floats:
        """Free of the event at each time, up to the public horizon."""
        objective = learned.objective
        assert isinstance(objective, PiecewiseExponential)
        at = np.clip(self._told_by(times), 0.0, objective.horizon)
        return np.exp(-np.exp(margin)[:, None] * objective.cumulative(at)[None, :])

    def curve(self, learned: PrivateFit) -> tuple[Floats, Floats]:
        """The private curve: at the ends of its steps, where any time is legal, else at the legal times before them."""
        population, measured = FollowUp.population(learned), _measured(self.kind.time)
        reached = np.cumsum(population.hazard * np.diff(population.edges))
        times = population.edges[1:]
        if measured is not None:
            first, tick = measured
            times = np.unique(first + np.floor((times - first) / tick) * tick)
            times = times[times > 0]
        at = np.clip(self._told_by(times), 0.0, population.edges[-1])
        return times, np.exp(-np.interp(at, population.edges, np.append(0.0, reached)))

    def _told_by(self, times: Floats) -> Floats:
        """Where on the axis all has happened that is measured at these times or earlier: half a legal step later."""
        measured = _measured(self.kind.time)
        if measured is None:
            return times
        first, tick = measured
        legal = first + np.floor((times - first) / tick + 1e-9) * tick
        return np.where(legal > 0, legal + tick / 2, 0.0)

    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """How and when follow-up ends, by chance, as the model has it: the event, or leaving without it.

        A Cox model of few rows finds hazard ratios that are too large, the more so as rows are chosen that teach; by so
        much the log hazards are made smaller before.
        """
        margin = learned.model.margin(codes) * (rows / (rows + INFLATED))
        label, time = FollowUp.calibrated(learned, margin).drawn(margin, at)
        return Labelled(Outcome(self.kind, {"label": label.astype(np.int8), "time": self._written(time)}))

    def weighted(self, learned: PrivateFit, labelled: Labelled) -> Labelled:
        """Times by quota: those of a status become as many quantiles of the private curve, in the same order."""
        outcome, curve = labelled.outcome, FollowUp.population(learned)
        time = np.array(outcome["time"], np.float64)
        for status, mass in zip((1, 0), curve.ends(np.zeros(1)), strict=True):
            there = np.flatnonzero(outcome["label"] == status)
            at = (np.arange(len(there)) + 0.5) / max(len(there), 1)
            time[there[np.argsort(time[there], kind="stable")]] = curve.quantile(np.repeat(mass, len(at), axis=0), at)
        by_quota = replace(labelled, outcome=outcome.with_arrays(time=self._written(time)))
        return super().weighted(learned, by_quota)

    def _written(self, time: Floats) -> Floats:
        """As the time's column is measured; never 0, which no model of survival takes."""
        column = self.kind.time
        if column is None:
            return time
        rounded = column.rounded(time)
        return np.asarray(np.where(rounded > 0, rounded, column.rounded(np.ceil(time))), np.float64)

    def strata(self, labelled: Labelled) -> Index:
        """Event status and time, in parts of as many rows each: exchanges leave the survival curve as it is."""
        label, time = labelled.outcome["label"], labelled.outcome["time"]
        out = np.zeros(len(label), np.int64)
        for status in (0, 1):
            there = label == status
            if there.any():
                cuts = np.unique(np.quantile(time[there], np.arange(1, PARTS) / PARTS))
                out[there] = status * PARTS + np.searchsorted(cuts, time[there], side="right")
        return out

    def student_labels(self, labelled: Labelled) -> tuple[Floats, Floats | None]:
        """What a row's end says of its hazard: the event, less what was to be expected in the time it was seen."""
        label, time = labelled.outcome["label"], labelled.outcome["time"]
        order = np.argsort(time, kind="stable")
        at_risk = np.arange(len(time), 0, -1)
        expected = np.empty(len(time))
        expected[order] = np.cumsum(label[order] / at_risk)
        return (label - expected)[:, None], None


def _competing(event: str, found: str) -> CohortError:
    return CohortError(
        f"event {event!r}",
        "must say of each row whether the event happened or not: competing events are not taken",
        found=found,
        fix="keep one kind of event, and take every other end as the end of follow-up (a cause-specific hazard), or "
        "count all kinds as one: in either case make a column of two values, of which --positive is the event",
    )


def followed_cuts(edges: Floats, counts: Floats, noise: float) -> Floats:
    """Cuts between ends of follow-up: quantiles of the events, and of those who leave, by noisy counts between `edges`.

    `counts` as of the grouping "moment". An interval holds STANDING times the `noise` that it is counted with next.
    """
    left, events = np.split(counts, [len(edges)])
    cuts, reached = [], np.zeros(len(edges))
    for held, (fewest, most) in ((events, EVENT_PARTS), (left[:-1], LEAVING_PARTS)):
        rows = max(float(held.sum()), 0.0)
        upto = np.concatenate([[0.0], np.cumsum(without_invented(held))])
        parts = int(np.clip(rows / (STANDING * noise), fewest, most))
        cuts.append(np.interp(np.arange(1, parts) / parts, upto / upto[-1], edges))
        reached += rows * upto / upto[-1]
    kept: list[float] = []
    last = 0.0
    for cut in np.sort(np.concatenate(cuts)):
        rows = float(np.interp(cut, edges, reached))
        if not kept or rows - last >= STANDING * noise:
            kept.append(float(cut))
            last = rows
    return np.array(kept)


@dataclass(frozen=True)
class Ends:
    """How many rows end in each interval of time, and how: by the event, or by leaving; the rest are followed on."""

    edges: Floats  # (K + 1,)
    events: Floats  # (K,)
    left: Floats  # (K + 1,) the last: at the horizon
    noise: float  # standard deviation of each count

    def known(self, died: float, stayed: float) -> Ends:
        """The same with totals that are known better: what is missing is spread over all cells alike."""

        def spread(counts: Floats, total: float) -> Floats:
            return max(total, 1.0) * without_invented(counts + (total - counts.sum()) / len(counts))

        return replace(self, events=spread(self.events, died), left=spread(self.left, stayed))

    def at_risk(self, edges: Floats) -> Floats:
        """Rows whose follow-up has not ended by each of these, along a monotone curve through the interval's edges."""
        from scipy.interpolate import PchipInterpolator  # slow to import

        ended = np.concatenate([[0.0], np.cumsum(self.events + self.left[:-1])])
        rows = float(ended[-1] + self.left[-1])
        return np.asarray(np.maximum(rows - PchipInterpolator(self.edges, ended)(edges), 0.0), np.float64)

    def finer(self) -> Floats:
        """About FINER edges, among them these."""
        parts = max(1, FINER // len(self.events))
        inside = self.edges[:-1, None] + np.diff(self.edges)[:, None] * np.arange(parts) / parts
        return np.append(inside.ravel(), self.edges[-1])

    def rates(self, edges: Floats) -> tuple[Floats, Floats]:
        """(hazard of the event, of leaving), per unit of time, between these edges, of which mine are some."""
        from scipy.interpolate import PchipInterpolator

        fine = self.finer()
        still = self.at_risk(fine)
        lived = np.diff(
            np.concatenate([[0.0], np.cumsum((still[1:] + still[:-1]) / 2 * np.diff(fine))])[
                np.searchsorted(fine, self.edges)
            ]
        )
        hazard = smooth_hazard(self.events, lived, (self.edges[1:] + self.edges[:-1]) / 2, self.noise)
        hazard *= self.events.sum() / float(hazard @ lived)
        reached = PchipInterpolator(self.edges, np.concatenate([[0.0], np.cumsum(hazard * np.diff(self.edges))]))
        dying = np.maximum(np.diff(reached(edges)), 0.0)
        stayed = np.log(self.at_risk(edges) + 0.5) + np.append(0.0, np.cumsum(dying))
        leaving = -np.diff(np.minimum.accumulate(stayed))
        return dying / np.diff(edges), leaving / np.diff(edges)


def smooth_hazard(events: Floats, lived: Floats, middle: Floats, noise: float) -> Floats:
    """(K,) hazards of noisy events in the time lived between cuts: as smooth as the counts themselves say.

    Log hazards are a line in log time and, beside it, a walk from interval to interval. Each size of the walk is
    fitted by Newton's steps, and all are averaged by their evidence (Laplace's approximation): counts that drown in
    noise are smoothed into a curve, others kept.
    """
    mean = np.log(max(float(events.sum()), 1.0) / max(float(lived.sum()), 1e-12))
    lived = np.maximum(lived, 1e-12 * max(float(lived.max()), 1e-12))
    when, place = np.log(middle), np.arange(len(events))
    line = 1.0 + SLOPE**2 * np.outer(when - when.mean(), when - when.mean())
    apart = np.exp(-np.abs(place[:, None] - place) / WALK)
    found, evidence = [], []
    for size in WALKS:
        prior, log = line + size**2 * apart, np.zeros(len(events))
        for _ in range(NEWTON):
            expected = lived * np.exp(mean + log)
            varies = noise**2 + (ACCURATE * expected) ** 2
            weight = expected**2 / varies
            told = weight * log + expected * (events - expected) / varies
            system = np.eye(len(events)) + weight[:, None] * prior
            pull = np.linalg.solve(system, told)
            log = log + np.clip(prior @ pull - log, -LONGEST, LONGEST)
        expected = lived * np.exp(mean + log)
        missed = float(np.sum((events - expected) ** 2 / varies))
        found.append(np.exp(mean + log))
        evidence.append(-0.5 * (missed + float(log @ pull) + np.linalg.slogdet(system)[1]))
    share = np.exp(np.array(evidence) - max(evidence))
    return np.asarray(share @ np.array(found) / share.sum(), np.float64)


def _dispersion(objective: Objective, leaving: Floats) -> float:
    """Variance of a row's gradient over its hessian where features say nothing: less than 1 where many have events."""
    assert isinstance(objective, PiecewiseExponential)
    still = np.zeros(GRID)
    curve = FollowUp(objective.edges, np.array(objective.hazard), leaving)
    label, time = curve.drawn(still, (np.arange(GRID) + 0.5) / GRID)
    g, h = objective.contributions(still, objective.prepare({"label": label, "time": time}))
    return float(np.clip(np.var(g) / max(float(np.mean(h)) / objective.hessian_weight, 1e-9), LEAST_VARIES, 1.0))


@dataclass(frozen=True)
class FollowUp:
    """Two competing ends of follow-up per row: the event, by the private hazard, and leaving without it."""

    edges: Floats  # (K + 1,)
    hazard: Floats  # (K,) of a row of margin 0
    leaving: Floats  # (K,)

    @classmethod
    def population(cls, learned: PrivateFit) -> FollowUp:
        """Of all rows together, at margin 0: the private curve."""
        assert isinstance(learned.objective, PiecewiseExponential)
        facts = learned.facts
        return cls(learned.objective.edges, np.array(facts["dying"]), np.array(facts["leaving"]))

    @classmethod
    def calibrated(cls, learned: PrivateFit, margin: Floats) -> FollowUp:
        """With the baseline under which rows of these margins have the private curve together."""
        whole = cls.population(learned)
        wanted = np.cumsum(whole.hazard * np.diff(whole.edges))
        risks = np.quantile(np.clip(margin, -SCORE_MAX, SCORE_MAX), (np.arange(RISKS) + 0.5) / RISKS)
        low, high = wanted * np.exp(-risks[-1]), wanted * np.exp(-risks[0])
        for _ in range(60):  # bisection on the logarithm: mean survival falls as the baseline grows
            middle = np.sqrt(low * high)
            alive = np.exp(-np.exp(risks)[:, None] * middle).mean(axis=0)
            low, high = np.where(alive > np.exp(-wanted), middle, low), np.where(alive > np.exp(-wanted), high, middle)
        reached = np.maximum.accumulate(np.concatenate([[0.0], np.sqrt(low * high)]))
        return replace(whole, hazard=np.diff(reached) / np.diff(whole.edges))

    def ends(self, margin: Floats) -> tuple[Floats, Floats]:
        """((n, K) probability of an event in each interval, (n, K + 1) of leaving in each, and at the horizon)."""
        die = self.hazard * np.exp(np.clip(margin, -SCORE_MAX, SCORE_MAX))[:, None]
        both = die + self.leaving + 1e-12
        ended = -np.expm1(-both * np.diff(self.edges))
        alive = np.cumprod(np.pad(1 - ended, ((0, 0), (1, 0)), constant_values=1.0), axis=1)
        stay = alive[:, :-1] * ended
        return stay * die / both, np.concatenate([stay * self.leaving / both, alive[:, -1:]], axis=1)

    def drawn(self, margin: Floats, at: Floats) -> tuple[Flags, Floats]:
        """(n,) whether each row's follow-up ends by the event, and when, at these uniforms (n,)."""
        seen, left = self.ends(margin)
        dies = seen.sum(1)
        label = at < dies
        rest = np.where(label, at / np.maximum(dies, 1e-12), (at - dies) / np.maximum(1 - dies, 1e-12))
        mass = np.where(label[:, None], np.pad(seen, ((0, 0), (0, 1))), left)
        return label, self.quantile(mass, np.clip(rest, 1e-6, 1 - 1e-6))

    def quantile(self, mass: Floats, at: Floats) -> Floats:
        """The time at which a share `at` of a row's mass is reached; the last mass sits on the horizon."""
        reached = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
        k = np.minimum((at[:, None] > reached).sum(axis=1), mass.shape[1] - 1)
        row = np.arange(len(at))
        before = np.where(k > 0, reached[row, k - 1], 0.0)
        part = np.clip((at - before) / np.maximum(reached[row, k] - before, 1e-12), 0.02, 1.0)
        edges = np.append(self.edges, self.edges[-1])
        return np.asarray(edges[k] + part * (edges[k + 1] - edges[k]), np.float64)
