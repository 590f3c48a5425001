"""Survival outcomes: the time to an event, or to the end of follow-up. Learned as a hazard, scored by the C-index.

Privately: a piecewise-exponential model over public intervals, which gives a whole survival curve. A synthetic row ends
as the model has it, by the event or by leaving, in the population's shares: a Kaplan-Meier curve of the rows, without
weights, is the population's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Flags, Floats, Index, Matrix, Numbers
from distcondense.data.features import check_features
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.schema import Column, Label, Schema
from distcondense.data.values import numbers_of, refuse_absent, refuse_rows
from distcondense.errors import CohortError, ModelError, SettingsError
from distcondense.kernels import elementwise
from distcondense.models.base import Model
from distcondense.models.learners import Learner, TrainingSet, boosted, learner, proportional_hazards
from distcondense.outcomes.base import Kind, Labelled, Rule
from distcondense.outcomes.binary import declared_labels, is_public, read_label
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.outcomes.measures import Measured, c_index, concordance, expected_over_observed, survival_loss
from distcondense.outcomes.panel import SEED, standardised
from distcondense.outcomes.private_side import (
    GroupCounts,
    Judge,
    NewtonStep,
    PrivateFit,
    PrivateQueries,
    PrivateSide,
    newton_step,
    present,
)
from distcondense.outcomes.recipes import Recipe, Released, of_survival
from distcondense.privacy.contributions import FINITE, SCORE_MAX, Objective, Statistic, Target

INTERVALS = 5  # of follow-up time
EXPOSURE_WEIGHT = 0.5  # share of the norm in "hazard": events are few, time at risk is plenty
HAZARD_SHARE = 0.03  # of μ², for the baseline
FOLLOW_UP_SHARE = 0.02  # of μ², for how follow-up ends
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
        label, labels = read_label(frame[event], event, self.positive, self.declared)
        times = numbers_of(frame[time], time)
        refuse_absent(frame[time], time)
        refuse_rows(~np.isfinite(times), time, "must be finite")
        refuse_rows(times <= 0, time, "times must be above 0", "drop these rows or add the length of one time unit")
        if self.time is not None:
            check_features(frame[[time]], Schema((self.time,)))
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
        followed = replace(known, missing="refuse", fill=None, domain="declared")
        event = Column(self.names[1], "binary", categories=self.labels)
        return (
            replace(followed, meaning="the outcome: how long the row was followed."),
            replace(
                event,
                meaning=f"the outcome: {yes} where the event ended that time, {no} where nothing more is "
                "known. As common as among patients: a Kaplan–Meier curve needs no weights.",
            ),
        )

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
        cuts = horizon * np.arange(1, INTERVALS) / INTERVALS
        return LogHazard(self, PiecewiseExponential(tuple(cuts), horizon), unit=horizon / 2)


# -- the private method -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PiecewiseExponential:
    """Constant baseline hazard on public intervals, g = a − E and h = a, a = Λ₀(T)e^F clipped to [0, most].

    `target`: label (1 = event) and time. The pair (a − E, c·a) is scaled down to norm 1 where it is longer: never for
    an event with c ≤ 1 and a ≤ 1, for a censored row once a > 1/√(1 + c²). Times past the horizon are censored there.
    Unlike Cox there are no risk sets, so one person touches only their own terms.

    Groupings: "label" (event status), "stratum" (event status × interval: event·K + k). Statistic "hazard": one row
    adds w·(1 at the event's interval, ½K^(−½)·share of each interval lived), w = 1/√1.25: norm at most 1 without
    clipping, so that long lives are not counted less than short ones. Read as events (K,), then time at risk (K,).
    """

    cuts: tuple[float, ...]  # public interior cut points of time, increasing
    horizon: float  # public end of follow-up
    hazard: tuple[float, ...] | None = None  # (K,) baseline, per unit of time; from the statistic "hazard"
    most: float = 1.0
    hessian_weight: float = 1.0

    def __init__(
        self,
        cuts: Sequence[float] | NDArray[Any],
        horizon: float,
        hazard: Sequence[float] | NDArray[Any] | None = None,
        most: float = 1.0,
        hessian_weight: float = 1.0,
    ) -> None:
        for name, value in (
            ("cuts", tuple(float(cut) for cut in cuts)),
            ("horizon", float(horizon)),
            ("hazard", None if hazard is None else tuple(float(rate) for rate in hazard)),
            ("most", float(most)),
            ("hessian_weight", float(hessian_weight)),
        ):
            object.__setattr__(self, name, value)
        edges = self.edges
        if not (np.all(np.abs(edges) <= FINITE) and np.all(np.diff(edges) > 0)):
            raise SettingsError(
                "cuts", "must increase strictly between 0 and the horizon", found=f"{len(self.cuts)} cuts, {horizon}"
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
        return {"label": 2, "stratum": 2 * self.intervals}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        k, whole = self.intervals, math.sqrt(1 + EXPOSURE_WEIGHT**2)
        weight = EXPOSURE_WEIGHT / math.sqrt(k) / whole
        edges, widths = self.edges, self.widths

        def values(target: Target, score: Floats) -> list[Floats]:
            label, time, interval = target["label"], target["time"], self.interval(target["time"])
            found = [(1 / whole) * (label & (interval == at)) for at in range(k)]
            return found + [weight * np.clip((time - edges[at]) / widths[at], 0.0, 1.0) for at in range(k)]

        def undo(answer: Floats) -> Floats:
            return np.concatenate([answer[:k] * whole, answer[k:] / weight * widths])

        return {"hazard": Statistic(2 * k, values, undo, whole)}

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
        return np.array([0.0, *self.cuts, self.horizon])

    @property
    def widths(self) -> Floats:
        return np.diff(self.edges)

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
        label = target["label"].astype(np.intp)
        return label if by == "label" else self.intervals * label + self.interval(target["time"])

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        a = np.minimum(target["cumulative"] * elementwise.exp(np.clip(score, -SCORE_MAX, SCORE_MAX)), self.most)
        g, h = a - target["label"], self.hessian_weight * a
        shrink = 1 / np.maximum(1.0, np.sqrt(g * g + h * h))
        return g * shrink, h * shrink

    def continues(self, earlier: Objective) -> bool:
        return (
            isinstance(earlier, PiecewiseExponential) and self.cuts == earlier.cuts and self.horizon == earlier.horizon
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
    public: tuple[str, ...] = ("the end of follow-up and its intervals",)

    questions: ClassVar[Mapping[str, float]] = {"hazard": HAZARD_SHARE, "follow-up": FOLLOW_UP_SHARE}

    def begin(self, ask: PrivateQueries) -> Mapping[str, Any]:
        assert isinstance(ask.objective, PiecewiseExponential)
        events, exposure = np.split(ask.total("hazard", "hazard"), 2)
        ask.set_objective(ask.objective.with_hazard(_baseline(events, exposure)))
        ends = ask.counts("stratum", "follow-up").reshape(2, -1)
        counted = GroupCounts(ends.sum(1), float(ask.noise("follow-up") * np.sqrt(ends.shape[1])))
        leaving = _baseline(ends[0], exposure)
        dispersion = _dispersion(ask.objective, leaving)
        return {"leaving": tuple(float(rate) for rate in leaving), "counted": counted, "dispersion": dispersion}

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
        at = np.clip(times, 0.0, objective.horizon)
        return np.exp(-np.exp(margin)[:, None] * objective.cumulative(at)[None, :])

    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """How and when follow-up ends, by chance, as the model has it: the event, or leaving without it.

        A Cox model of few rows finds hazard ratios that are too large, the more so as rows are chosen that teach; by so
        much the log hazards are made smaller before.
        """
        margin = learned.model.margin(codes) * (rows / (rows + INFLATED))
        label, time = FollowUp.calibrated(learned, margin).drawn(margin, at)
        return Labelled(Outcome(self.kind, {"label": label.astype(np.int8), "time": self._written(time)}))

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

    def judge(self, learned: PrivateFit, pool: Index, rows: Matrix, among: Sequence[str] = ()) -> Judge:
        """How closely unweighted Cox and AFT students, or those named, follow the private model's log hazard."""
        truth, population, named = learned.model.margin(pool), rows, among or ("cox", "aft")

        def judge(rows: Matrix, labelled: Labelled) -> float:
            if not (rows != rows[0]).any():
                return -1.0
            here, there = standardised(rows, population)
            outcome, risks = self.kind.in_unit(labelled.outcome, self.unit), []
            try:
                if "cox" in named:
                    risks.append(np.asarray(fit_cox(here, outcome).scores(there.astype(np.float32)), np.float64))
                if "aft" in named:
                    risks.append(-np.asarray(fit_aft(rows, outcome, seed=SEED).scores(population), np.float64))
            except ModelError:  # some sets of few rows have no Cox model
                return -1.0
            return sum(_correlation(risk, truth) for risk in risks) / len(risks)

        return judge


def _baseline(events: Floats, exposure: Floats) -> Floats:
    """Events per unit of time in each interval, at least a fifth of their mean: a noisy zero is not believed."""
    total = max(float(events.sum()), 1.0)
    floor = 0.2 * total / len(events)
    at_risk = np.maximum(exposure, 0.02 * max(float(np.max(exposure)), 1.0))
    return np.maximum(events, floor) / at_risk


def _dispersion(objective: Objective, leaving: Floats) -> float:
    """Variance of a row's gradient over its hessian where features say nothing: less than 1 where many have events."""
    assert isinstance(objective, PiecewiseExponential)
    still = np.zeros(GRID)
    curve = FollowUp(objective.edges, np.array(objective.hazard), leaving)
    label, time = curve.drawn(still, (np.arange(GRID) + 0.5) / GRID)
    g, h = objective.contributions(still, objective.prepare({"label": label, "time": time}))
    return float(np.clip(np.var(g) / max(float(np.mean(h)) / objective.hessian_weight, 1e-9), LEAST_VARIES, 1.0))


def _correlation(answer: Floats, truth: Floats) -> float:
    spread = float(answer.std() * truth.std())
    return float(np.mean((answer - answer.mean()) * (truth - truth.mean()))) / spread if spread else -1.0


@dataclass(frozen=True)
class FollowUp:
    """Two competing ends of follow-up per row: the event, by the private hazard, and leaving without it."""

    edges: Floats  # (K + 1,)
    hazard: Floats  # (K,) of a row of margin 0
    leaving: Floats  # (K,)
    shift: float = 0.0  # of the margin, so that as many events are seen as the private share says

    @classmethod
    def calibrated(cls, learned: PrivateFit, margin: Floats) -> FollowUp:
        """`margin` of a pool of rows."""
        objective = learned.objective
        assert isinstance(objective, PiecewiseExponential)
        assert objective.hazard is not None
        low, high = -4.0, 4.0
        curve = cls(objective.edges, np.array(objective.hazard), np.array(learned.facts["leaving"]))
        for _ in range(40):
            middle = (low + high) / 2
            curve = replace(curve, shift=middle)
            low, high = (middle, high) if curve.ends(margin)[0].sum(1).mean() < learned.shares[1] else (low, middle)
        return curve

    def ends(self, margin: Floats) -> tuple[Floats, Floats]:
        """((n, K) probability of an event in each interval, (n, K + 1) of leaving in each, and at the horizon)."""
        die = self.hazard * np.exp(np.clip(margin + self.shift, -8, 8))[:, None]
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
