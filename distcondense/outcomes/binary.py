"""Binary outcomes: yes or no. Learned as log odds, scored by AUROC, written in the table's own two values.

In a condensed table `distcondense_risk` is the probability of yes that the private model gives a row (where a method
has hard labels only: 0 or 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index, Labels, Matrix, Numbers
from distcondense.data.column import Column, Label, plain_value
from distcondense.data.csv_table import read_cell
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.reserved import RISK
from distcondense.data.schema import Schema
from distcondense.data.values import TRUTH, Values, labels_of, plain_number, refuse_absent, refuse_mixture, type_of
from distcondense.errors import CohortError, SettingsError
from distcondense.kernels import cell_sums, elementwise
from distcondense.models.base import BlackBox, Model, Rows
from distcondense.models.learners import Learner, TrainingSet, boosted, learner
from distcondense.outcomes.base import Kind, Labelled, Rule, as_written
from distcondense.outcomes.measures import (
    Measured,
    auroc,
    best_threshold,
    brier,
    calibration_slope,
    f1,
    precision,
    ranking,
    recall,
    share,
)
from distcondense.outcomes.private_side import (
    GroupCounts,
    NewtonStep,
    PrivateFit,
    PrivateQueries,
    PrivateSide,
    newton_step,
    present,
    restoring,
    shaped,
)
from distcondense.outcomes.recipes import Recipe, Released, of_two_classes
from distcondense.privacy.contributions import SCORE_MAX, Objective, Statistic, Steps, Target

RARE = 0.2  # class weights are used where the rarer class is below this share ("where needed")
COUNT_SHARE = 0.01  # of μ², for the class counts before anything else
SURE = 2000  # rows up to which a label says on which side of the prevalence a risk lies, and nothing else
CHANCE = 20_000  # rows from which on it is drawn by chance, as patients' are
UNEVEN = 5.0  # most by which weights of rows of one label differ
VECTORS = 2000  # rows that support vectors are chosen among, at most: their time grows with the square
EXTREME = 0.05  # of candidates are on the rarer side, at least


@learner
def fit_xgb(training: TrainingSet) -> Model:
    """XGBoost classifier; f(x) = P(y=1). With soft labels it learns these, without class weights."""
    label = training.outcome["label"]
    positives = float(label.mean())
    params: dict[str, Any] = {"objective": "binary:logistic", "eval_metric": "auc"}
    if training.soft is None and min(positives, 1 - positives) < RARE and 0 < positives < 1:
        params["scale_pos_weight"] = (1 - positives) / positives
    labels = {"label": label if training.soft is None else training.soft, "weight": training.weight}
    return boosted(
        params, training, labels, link="probability", name="xgb", score=lambda at, real: auroc(real["label"], at)
    )


@learner
def fit_logistic(training: TrainingSet) -> Model:
    """Logistic regression of scikit-learn; f(x) = P(y=1). With soft labels a row counts for each class by its share."""
    from sklearn.linear_model import LogisticRegression

    rows, label, weight = training.rows, training.outcome["label"], training.weight
    if (constant := _one_class(training, "logistic")) is not None:
        return constant
    if training.soft is not None:
        own = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)
        weight = np.concatenate([own * (1 - training.soft), own * training.soft])
        rows, label, weight = np.tile(rows, (2, 1)), np.repeat([0, 1], len(rows)), weight / weight.mean()
    line = LogisticRegression(max_iter=2000).fit(rows, label, sample_weight=weight)
    weights, start = line.coef_[0].astype(np.float32), np.float32(line.intercept_[0])
    return BlackBox(lambda at: 1 / (1 + np.exp(-(at @ weights + start))), "probability", rows.shape[1], "logistic")


@learner
def fit_svm(training: TrainingSet) -> Model:
    """Support vectors of scikit-learn, of at most `VECTORS` rows; f(x) = P(y=1), by a logistic regression of the
    distances to the margin (Platt). They learn the plain labels only."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    rows, label, weight = training.rows, training.outcome["label"], training.weight
    if len(rows) > VECTORS:
        chosen = np.sort(np.random.default_rng([training.seed, 0x5CEC]).choice(len(rows), VECTORS, replace=False))
        rows, label, weight = rows[chosen], label[chosen], None if weight is None else np.asarray(weight)[chosen]
    if constant := _one_class(
        replace(training, rows=rows, outcome=Outcome(training.outcome.kind, {"label": label})), "svm"
    ):
        return constant
    weight = None if weight is None else weight / np.mean(weight)
    model = SVC().fit(rows, label, sample_weight=weight)
    held, dual = np.asarray(model.support_vectors_, np.float32), model.dual_coef_[0].astype(np.float32)
    squares, width, start = (held * held).sum(1), np.float32(model._gamma), np.float32(model.intercept_[0])

    def distance(at: Rows) -> Matrix:  # scikit-learn's own takes a row at a time, and a Jacobian asks about many
        far = (at * at).sum(1)[:, None] - 2 * (at @ held.T) + squares
        return np.asarray(np.exp(-width * np.maximum(far, 0)) @ dual + start, np.float32)

    platt = LogisticRegression(max_iter=2000).fit(distance(rows)[:, None], label, sample_weight=weight)
    slope, shift = np.float32(platt.coef_[0, 0]), np.float32(platt.intercept_[0])
    return BlackBox(lambda at: 1 / (1 + np.exp(-(slope * distance(at) + shift))), "probability", rows.shape[1], "svm")


def _one_class(training: TrainingSet, name: str) -> Model | None:
    """What rows of one class teach; None where both are there."""
    label = training.outcome["label"]
    if len(np.unique(label)) > 1:
        return None
    only = float(label[0])
    return BlackBox(lambda at: np.full(len(at), only), "probability", training.rows.shape[1], name)


@dataclass(frozen=True)
class Binary(Kind):
    """A target with two values."""

    name: ClassVar[str] = "binary"
    roles: ClassVar[tuple[str, ...]] = ("target",)
    arrays: ClassVar[Mapping[str, type[np.generic]]] = {"label": np.int8}
    measures: ClassVar[tuple[str, ...]] = (
        "auroc",
        "sensitivity",
        "specificity",
        "ppv",
        "npv",
        "auprc",
        "balanced_accuracy",
        "f1",
        "brier",
        "calibration_slope",
    )
    learners: ClassVar[Mapping[str, Learner]] = {
        "xgb": Learner("xgb", "probability", fit_xgb),
        "logistic": Learner("logistic", "probability", fit_logistic),
        "svm": Learner("svm", "probability", fit_svm),
    }

    too_few: ClassVar[tuple[str, str]] = ("one class only", "check the column, and which value means yes (--positive)")

    names: tuple[str, ...]
    labels: tuple[Label, Label] = (0, 1)
    labels_public: bool = True  # declared: 0 and 1 are no exception, or one row could make them something else
    declared: Column | None = None
    positive: Label | None = None

    @classmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool:
        return declared_labels(schema, goal.columns["target"]) is not None

    @classmethod
    def from_goal(cls, goal: Goal, schema: Schema | None) -> Binary:
        name = goal.columns["target"]
        declared = declared_labels(schema, name)
        public = declared is not None and is_public(schema, name)
        return cls((name,), labels_public=public, declared=declared, positive=goal.positive)

    def read(self, frame: pd.DataFrame) -> Outcome:
        series = frame[self.names[0]]
        refuse_absent(series, self.names[0])
        label, labels = read_label(series, self.names[0], self.positive, self.declared)
        return Outcome(replace(self, labels=labels), {"label": label})

    def lacking(self, outcome: Outcome) -> str:
        label = outcome["label"]
        return "both classes" if len(label) == 0 or label.max() == 0 or label.min() == 1 else ""

    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        return auroc(outcome["label"], scores)

    def rule(self, link: str, scores: Numbers, outcome: Outcome) -> Rule:
        return Rule(best_threshold(outcome["label"], scores))

    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        label = outcome["label"]
        case, flagged = label == 1, scores >= (np.inf if rule.threshold is None else rule.threshold)
        probability = scores if link == "probability" else 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
        return {
            "auroc": ranking(label, scores),
            "sensitivity": share(flagged, case),
            "specificity": share(~flagged, ~case),
            "ppv": share(case, flagged),
            "npv": share(~case, ~flagged),
            "auprc": precision(label, scores),
            "balanced_accuracy": recall(label, flagged, 2),
            "f1": f1(label, flagged, range(1, 2)),
            "brier": brier(label, probability),
            "calibration_slope": calibration_slope(label, probability),
        }

    def outcome_columns(self) -> tuple[Column, ...]:
        no, yes = self.labels
        meaning = (
            f"the outcome, {yes} or {no}. In a small table a row is {yes} where its risk lies above the average, so "
            "that any model learns from this column alone; it is not as common here as among patients."
        )
        return (Column(self.names[0], "binary", categories=self.labels, meaning=meaning),)

    def added_columns(self) -> tuple[Column, ...]:
        meaning = (
            f"the probability of {self.labels[1]} among patients like this row. It is computed from the row, and is no "
            "feature."
        )
        return (Column(RISK, "continuous", low=0, high=1, meaning=meaning),)

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        return of_two_classes(table)

    def training_target(self, labelled: Labelled) -> Any:
        """The plain label, 0 or 1."""
        return labelled.outcome["label"].astype(np.int64)

    def invented(self, train: Outcome, rows: int, positives: int, inside: Floats) -> Outcome:
        return train.with_arrays(label=np.repeat(np.array([0, 1], np.int8), [rows - positives, positives]))

    def match_strata(self, train: Outcome, outcome: Outcome, count: int) -> tuple[Index, int, bool]:
        return outcome["label"].astype(np.int64), 2, False

    def private_side(self, *, horizon: float | None = None) -> PrivateSide:
        refuse_horizon(self, horizon)
        return LogOdds(self)


def refuse_horizon(kind: Kind, horizon: float | None) -> None:
    """A horizon is for outcomes that have a time."""
    if horizon is not None:
        raise SettingsError(
            "horizon", "is for outcomes with a time", found=f"a {kind.name} outcome", fix="leave it out"
        )


# -- reading two values -----------------------------------------------------------------------------------------------


def declared_labels(schema: Schema | None, name: str) -> Column | None:
    """The column, where the schema declares it with two categories, or as the whole numbers from 0 to 1."""
    if schema is None or name not in schema:
        return None
    column = schema[name]
    if column.kind == "integer" and column.low is not None and column.high is not None:
        return Column(name, "binary", categories=(0, 1)) if -1 < column.low <= 0 and 1 <= column.high < 2 else None
    return column if column.kind == "binary" else None


def is_public(schema: Schema | None, *names: str) -> bool:
    """Whether these columns stand in a schema that a person declared."""
    return schema is not None and schema.origin == "declared" and all(name in schema for name in names)


def read_label(
    series: pd.Series[Any], name: str, positive: Label | None, declared: Column | None
) -> tuple[Labels, tuple[Label, Label]]:
    """0/1, and how the two are written: as declared, or as found (which is then not public)."""
    if declared is None:
        return _as_found(series, name, positive)
    labels = _declared_order(name, positive, declared)
    code = labels_of(series, declared.known, "must hold the schema's two categories only")
    return (code == declared.categories.index(labels[1])).astype(np.int8), labels


def _declared_order(name: str, positive: Label | None, declared: Column) -> tuple[Label, Label]:
    """The two labels, the positive second."""
    labels = (declared.categories[0], declared.categories[1])
    if positive is None:
        return labels
    if str(positive) not in map(str, labels):
        raise CohortError(
            f"column {name!r}",
            "must have the positive value that was named among the schema's two categories",
            found="another value",
            fix="check --positive and the schema",
        )
    return labels if str(positive) == str(labels[1]) else (labels[1], labels[0])


def _as_found(series: pd.Series[Any], name: str, positive: Label | None) -> tuple[Labels, tuple[Label, Label]]:
    """Two values read off the rows, for methods that take them."""
    found = Values.from_series(series, name)
    refuse_mixture(found, name)
    kinds, present = found.rows_by_type(), np.unique(found.codes)
    values = list(dict.fromkeys(plain_number(found.distinct[code]) for code in present))
    if len(values) > 2:
        raise CohortError(
            f"column {name!r}",
            "an outcome must have two values, or be declared in the schema as categories or as a number with bounds",
            found=f"{len(values)} distinct values",
            fix="declare it in the schema, or make it 0/1 first, e.g. df[name] = (df[name] == 'yes').astype(int)",
        )
    if set(values) <= {0, 1}:  # whichever of the two is there: a missing one must not show
        labels: tuple[Label, Label] = (False, True) if TRUTH in kinds else (0, 1)
        if positive is not None and not any(_named(label, positive) for label in labels):
            raise CohortError(
                f"column {name!r}",
                "must contain the positive value that was named",
                found="a column of 0 and 1",
                fix="check --positive",
            )
        if positive is not None and _named(labels[0], positive):
            labels = (labels[1], labels[0])
    elif positive is not None:
        wanted = [v for v in values if _named(v, positive)]
        if not wanted:
            raise CohortError(
                f"column {name!r}",
                "must contain the positive value that was named",
                found="no such row",
                fix="check --positive",
            )
        others = [v for v in values if v != wanted[0]]
        labels = (others[0] if others else f"not {wanted[0]}", wanted[0])
    else:
        raise CohortError(
            f"column {name!r}",
            "must be 0/1, or the positive value must be named",
            found=f"{len(values)} text or number values",
            fix="say --positive VALUE",
        )
    label: Labels = found.map(lambda value: plain_number(value) == labels[1], False, np.int8)
    return label, labels


def _named(value: Label, positive: Label) -> bool:
    """Whether a value is the one that a user named: as it is written, or as what was written says."""
    said = read_cell(positive) if isinstance(positive, str) else plain_value(positive)
    return str(value) == str(positive) or (type_of(value) == type_of(said) and value == said)


# -- the private method -----------------------------------------------------------------------------------------------


STEP = 2.0**-10  # of log odds: far below what any noise lets one tell
_NO_SHIFT = (np.zeros(0, np.uint8), np.zeros(0, np.int32))  # scores stay where they are


@dataclass(frozen=True)
class Logistic:
    """g = p − y and h = p(1 − p), p = σ(F). `target`: label, 1 for yes; anything else is no.

    g² + c²h² ≤ 1 for all p and both y when c = 3.3. By symmetry take y = 0 and u = 1 − p: (1−u)²(1 + c²u²) ≤ 1 is, for
    0 < u < 1, the same as c² ≤ (2 − u)/(u(1−u)²). The right side is smallest where u² − 3u + 1 = 0, at
    u = (3 − √5)/2, where it is (11 + 5√5)/2 = 11.09 > 10.89 = 3.3². So nothing is ever clipped.
    """

    hessian_weight: float = 3.3
    scores: int = 1
    ready: bool = True
    step: float = STEP

    def __post_init__(self) -> None:
        if not 0 < self.hessian_weight <= 3.3:
            raise SettingsError("hessian_weight", "must be in (0, 3.3]", found=f"{self.hessian_weight}")

    @property
    def scales(self) -> tuple[float, ...]:
        return (1.0, self.hessian_weight)

    @property
    def groupings(self) -> Mapping[str, int]:
        return {"label": 2}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        return {}

    def prepare(self, target: Target) -> Target:
        return {"label": np.asarray(target["label"]) == 1}

    def group(self, by: str, target: Target) -> Codes:
        return target["label"].astype(np.int8)

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        g, h = np.empty(len(score)), np.empty(len(score))
        elementwise.logistic(score, target["label"], SCORE_MAX, self.hessian_weight, g, h)
        return g, h

    def add(
        self,
        cell: Codes,
        score: Steps,
        target: Target,
        factor: float,
        total: Index,
        shift: tuple[Codes, Steps] | None = None,
    ) -> None:
        code, table = _NO_SHIFT if shift is None else shift
        if target["label"].dtype == np.bool_:
            cell_sums.looked_up_sums(code, table, cell, score, target["label"], _entries(self, factor), total)
            return
        score += table[code] if shift is not None else 0  # a kind that builds on this one has shares: no two labels
        for own, value in zip(total, self.contributions(score.astype(np.float64) * self.step, target), strict=True):
            cell_sums.add(cell, value, factor, own)

    def continues(self, earlier: Objective) -> bool:
        return type(self) is type(earlier)


@lru_cache(maxsize=8)
def _entries(objective: Logistic, factor: float) -> NDArray[np.int64]:
    """(2, scores, 2): trunc(g·factor) and trunc(h·factor) by label, at every step of the log odds that counts."""
    most = int(SCORE_MAX / objective.step)
    score = np.arange(-most, most + 1, dtype=np.float64) * objective.step
    found = np.empty((2, len(score), 2), np.int64)
    for label in (0, 1):
        both = objective.contributions(score, {"label": np.full(len(score), label == 1)})
        found[label] = np.stack([np.trunc(value * factor) for value in both], axis=1)
    found.flags.writeable = False
    return found


def _stepped(values: Any) -> Any:
    """Rounded to steps, as scores are."""
    return np.rint(np.asarray(values) / STEP) * STEP


class ClassSide(PrivateSide):
    """What two and several classes have in common: classes are counted first, and a set has as many rows of each."""

    # gradients start from the prevalence, and too few cases are seen as such
    questions: ClassVar[Mapping[str, float]] = {"count": COUNT_SHARE}

    def begin(self, ask: PrivateQueries) -> Mapping[str, Any]:
        counted = GroupCounts(ask.counts("label", "count"), ask.noise("count"))
        counts = np.maximum(counted.rows, 1.0)
        start = self.intercept(np.clip(counts / counts.sum(), 1e-4, 1.0))
        ask.shift(start)
        return {"started": start, "counted": counted}

    def hessian(self, H: Floats, look: NewtonStep | None, noise: float) -> Floats:
        return super().hessian(H, look, noise) if look is None else shaped(H, look.hessian, noise)

    def weighted(self, learned: PrivateFit, labelled: Labelled) -> Labelled:
        """So that every class has its private prevalence."""
        return replace(labelled, weight=restoring(labelled.outcome["label"], learned.shares, learned.rows))


@dataclass(frozen=True)
class LogOdds(ClassSide):
    """An additive model of the log odds."""

    kind: Kind
    objective: Objective = Logistic()
    link: str = "probability"
    effect: str = "log odds"

    def intercept(self, shares: Floats) -> float:
        return float(_stepped(logit(float(np.clip(shares[1], 1e-4, 1 - 1e-4)))))

    def settled(self, table: Floats, facts: Mapping[str, Any] = MappingProxyType({})) -> Floats:
        return np.asarray(_stepped(table), np.float64)

    def histogram_step(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> NewtonStep:
        p, rows = 1 / (1 + np.exp(-(logit(float(shares[1])) + table))), present(held, noise)
        slope = p * (1 - p) * rows
        own = noise * (p**2 + (1 - p) ** 2)  # of (1 − p) cases less p controls
        return newton_step((1 - p) * held[1] - p * held[0], slope, own, slope, table)

    def expected(self, margin: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-np.clip(margin, -elementwise.RANGE, elementwise.RANGE))), np.float64)

    def predict(self, margin: Floats) -> Any:
        return as_written(self.kind.labels, (self.expected(margin) >= 0.5).astype(int)).to_numpy(object)

    def probabilities(self, margin: Floats) -> Floats:
        positive = self.expected(margin)
        return np.stack([1 - positive, positive], axis=1)

    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """Yes where the risk is above the prevalence: among as many cases as controls, where yes is the likelier.

        Few rows cannot afford chance; the more there are, the more of it they get, up to as much as patients have.
        """
        margin = learned.model.margin(codes)
        start = np.clip(logit(float(learned.shares[1])), *np.quantile(margin, [EXTREME, 1 - EXTREME]))
        chance = by_chance(rows) * np.log(at / (1 - at))
        label = (margin - start + chance > 0).astype(np.int8)
        return Labelled(Outcome(self.kind, {"label": label}), self.expected(margin))

    def weighted(self, learned: PrivateFit, labelled: Labelled) -> Labelled:
        """So that the label has the private prevalence; and the risk too, as far as no row counts much for others."""
        assert labelled.soft is not None
        label, risk, share = labelled.outcome["label"].astype(np.int64), labelled.soft, float(learned.shares[1])

        def tilted(by: float) -> Floats:
            weight = restoring(label, learned.shares, learned.rows)
            for value in (0, 1):
                there = label == value
                if there.any():
                    own = np.exp(by * (risk[there] - risk[there].max() if by > 0 else risk[there] - risk[there].min()))
                    weight[there] *= own / own.mean()
            return weight

        spread = max(float(np.ptp(risk[label == value])) if (label == value).any() else 0.0 for value in (0, 1))
        low, high = (-np.log(UNEVEN) / max(spread, 1e-6), np.log(UNEVEN) / max(spread, 1e-6))
        for _ in range(50):
            middle = (low + high) / 2
            weight = tilted(middle)
            low, high = (middle, high) if weight @ risk < share * weight.sum() else (low, middle)
        return replace(labelled, weight=tilted((low + high) / 2))


def logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def by_chance(rows: int) -> float:
    """How much of a label is chance in a set of so many rows: 0 to 1."""
    return float(np.clip(np.log(rows / SURE) / np.log(CHANCE / SURE), 0.0, 1.0))
