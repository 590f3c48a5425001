"""Multi-class outcomes: one of 3 to 20 classes. Learned as an additive softmax, scored by macro one-vs-rest AUROC.

In a condensed table `distcondense_risk_CLASS` are the probabilities that the private model gives a row (where a method
has hard labels only: 0 or 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Floats, Index, Numbers
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.reserved import RISK, each_named
from distcondense.data.schema import Column, Label, Schema
from distcondense.data.values import Values, labels_of, plain_number, refuse_absent, refuse_mixture
from distcondense.errors import CohortError, SchemaError
from distcondense.kernels import elementwise
from distcondense.models.base import Model, Rows
from distcondense.models.learners import Learner, TrainingSet, boosted_many, learner, sklearn_model
from distcondense.outcomes.base import Kind, Labelled, Rule, as_written
from distcondense.outcomes.binary import ClassSide, by_chance, refuse_horizon
from distcondense.outcomes.measures import Measured, brier, f1, macro_ranking, pairwise_ranking, recall
from distcondense.outcomes.private_side import NewtonStep, PrivateFit, PrivateSide, newton_step, present
from distcondense.outcomes.recipes import Recipe, Released, of_classes
from distcondense.privacy.contributions import SCORE_MAX, Objective, Statistic, Target

FEWEST, MOST = 3, 20  # classes
HESSIAN_WEIGHT = 1.5  # of h beside g in a row's contribution
LEAST_CANDIDATES = 0.3  # of an even share of candidates has each class, at least
TREES = 300  # of a forest
STEEP = 8.0  # beyond this an entry of a table counts as this


def softmax(margin: Floats) -> Floats:
    """(n, K) → probabilities."""
    high = elementwise.exp(np.clip(margin - margin.max(axis=1, keepdims=True), -2 * SCORE_MAX, 0.0))
    return np.asarray(high / elementwise.row_sums(high)[:, None], np.float64)


def class_scores(link: str, scores: Numbers) -> Floats:
    """(n, K) what ranks rows for each class, and classes for each row: margins of one softmax become probabilities."""
    given = np.asarray(scores, np.float64)
    return softmax(given) if link == "margins" else given


@learner
def fit_xgb(training: TrainingSet) -> Model:
    """XGBoost; f(x) = P(y = k) for every class. Soft labels (m, K) are learned class by class against the rest."""
    params: dict[str, Any] = {"objective": "binary:logistic"}
    if training.soft is None:
        params = {"objective": "multi:softprob", "num_class": len(training.outcome.kind.labels)}
    label = training.outcome["label"] if training.soft is None else training.soft
    return boosted_many(params, training, {"label": label, "weight": training.weight}, link="probabilities", name="xgb")


def expanded(training: TrainingSet) -> tuple[Any, Any, Any]:
    """Rows, labels and weights for a model that takes hard labels: with soft ones, a row for each class."""
    rows, weight, soft = training.rows, training.weight, training.soft
    if soft is None:
        return rows, training.outcome["label"], weight
    own = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)
    classes = soft.shape[1]
    weights = (own[:, None] * soft).T.ravel()
    return np.tile(rows, (classes, 1)), np.repeat(np.arange(classes), len(rows)), weights / weights.mean()


@learner
def fit_forest(training: TrainingSet) -> Model:
    """Random forest of scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    return _sklearn(
        RandomForestClassifier(TREES, min_samples_leaf=2, random_state=training.seed, n_jobs=training.threads),
        training,
        "forest",
    )


@learner
def fit_logistic(training: TrainingSet) -> Model:
    """Multinomial logistic regression of scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    return _sklearn(LogisticRegression(max_iter=2000), training, "logistic")


def _sklearn(model: Any, training: TrainingSet, name: str) -> Model:
    """Its probabilities, with a column for every class, also for those that no row has."""
    classes = len(training.outcome.kind.labels)
    more, label, weights = expanded(training)
    fitted = sklearn_model(model, more, label, weight=weights, link="probabilities", name=name)
    there = np.asarray(model.classes_, np.int64)

    def scores(at: Rows) -> Floats:
        out = np.zeros((len(at), classes))
        out[:, there] = fitted.scores(at)
        return out

    return replace(fitted, function=scores)  # type: ignore[type-var]


@dataclass(frozen=True)
class Multiclass(Kind):
    """A target with several classes."""

    name: ClassVar[str] = "multiclass"
    roles: ClassVar[tuple[str, ...]] = ("target",)
    arrays: ClassVar[Mapping[str, type[np.generic]]] = {"label": np.int64}
    measures: ClassVar[tuple[str, ...]] = ("macro_auroc", "pairwise_auroc", "balanced_accuracy", "macro_f1", "brier")
    learners: ClassVar[Mapping[str, Learner]] = {
        "xgb": Learner("xgb", "probabilities", fit_xgb),
        "forest": Learner("forest", "probabilities", fit_forest),
        "logistic": Learner("logistic", "probabilities", fit_logistic),
    }

    names: tuple[str, ...]
    labels: tuple[Label, ...] = ()
    labels_public: bool = True
    declared: Column | None = None

    @classmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool:
        name = goal.columns["target"]
        return schema is not None and name in schema and schema[name].kind == "categorical"

    @classmethod
    def from_goal(cls, goal: Goal, schema: Schema | None) -> Multiclass:
        name = goal.columns["target"]
        if schema is None or name not in schema or not schema[name].categories:
            return cls((name,), labels_public=False)  # they will be read off the rows
        labels = schema[name].categories
        if not FEWEST <= len(labels) <= MOST:
            raise SchemaError(
                f"outcome {name!r}",
                f"must have {FEWEST} to {MOST} classes",
                found=f"{len(labels)} declared",
                fix='declare two classes as kind = "binary"; group classes where there are many',
            )
        return cls((name,), labels, schema.origin == "declared", schema[name])

    def read(self, frame: pd.DataFrame) -> Outcome:
        name = self.names[0]
        series = frame[name]
        refuse_absent(series, name)
        kind = self if self.labels else self._as_found(series)
        column = Column(name, "categorical", categories=kind.labels)
        return Outcome(kind, {"label": labels_of(series, column, "must hold the schema's classes only")})

    def _as_found(self, series: pd.Series[Any]) -> Multiclass:
        """Classes read off the rows: not public, and refused by the private method."""
        values = Values.from_series(series, self.names[0])
        refuse_mixture(values, self.names[0])
        found = sorted({plain_number(values.distinct[code]) for code in np.unique(values.codes)}, key=str)
        if not FEWEST <= len(found) <= MOST:
            raise CohortError(
                f"column {self.names[0]!r}",
                f"must have {FEWEST} to {MOST} classes",
                found=f"{len(found)} distinct values",
                fix="group them, or declare the outcome in the schema",
            )
        return replace(self, labels=tuple(found), labels_public=False)

    def lacking(self, outcome: Outcome) -> str:
        return "two classes or more" if len(np.unique(outcome["label"])) < 2 else ""

    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        return macro_ranking(outcome["label"], class_scores(link, scores)).value

    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        """A decision is the likeliest class."""
        label, classes, ranks = outcome["label"], len(self.labels), class_scores(link, scores)
        decided = np.argmax(ranks, axis=1)
        return {
            "macro_auroc": macro_ranking(label, ranks),
            "pairwise_auroc": pairwise_ranking(label, ranks),
            "balanced_accuracy": recall(label, decided, classes),
            "macro_f1": f1(label, decided, range(classes)),
            "brier": brier(label, ranks),
        }

    def outcome_columns(self) -> tuple[Column, ...]:
        meaning = (
            "the outcome. In a small table a row has the class whose probability lies highest above its share among "
            "patients; models learn more from the probabilities."
        )
        return (Column(self.names[0], "categorical", categories=self.labels, meaning=meaning),)

    def added_columns(self) -> tuple[Column, ...]:
        named = zip(each_named(RISK, self.labels), self.labels, strict=True)
        words = {name: f"the probability of {label} among patients like this row. No feature." for name, label in named}
        return tuple(Column(name, "continuous", low=0, high=1, meaning=meaning) for name, meaning in words.items())

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        return of_classes(table, self.labels)

    def training_target(self, labelled: Labelled) -> Any:
        """The class as the table writes it."""
        return as_written(self.labels, labelled.outcome["label"]).to_numpy()

    def private_side(self, *, horizon: float | None = None) -> PrivateSide:
        refuse_horizon(self, horizon)
        # before the table is read the classes may be unknown; what follows from their number is checked again then
        return Softmax(self, SoftmaxLoss(len(self.labels) or FEWEST))


# -- the private method -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxLoss:
    """g = p − e_y and h = p∘(1 − p) for the K scores of a row, p = softmax(F). `target`: label, a class from 0.

    A row adds (g, c·h), c = 1.5, scaled down to norm 1 where it is longer: ‖g‖² ≤ 2(1 − p_y)², so that happens mostly
    to rows that the model is wrong about and sure of. Without scaling, s·(g, 2h) with s = 1/√2 would do (on [0, 1]
    x² + 4x²(1−x)² ≤ x, hence ‖(g, 2h)‖² ≤ 2(1 − p_y)); it costs more in noise than the scaling does in truth. A label
    outside its range is moved to the nearest class.
    """

    classes: int
    ready: bool = True

    @property
    def scores(self) -> int:
        return self.classes

    @property
    def scales(self) -> tuple[float, ...]:
        return (1.0,) * self.classes + (HESSIAN_WEIGHT,) * self.classes

    @property
    def groupings(self) -> Mapping[str, int]:
        return {"label": self.classes}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        return {}

    def prepare(self, target: Target) -> Target:
        return {"label": np.clip(np.asarray(target["label"]).astype(np.int64), 0, self.classes - 1)}

    def group(self, by: str, target: Target) -> NDArray[np.intp]:
        return target["label"].astype(np.intp)

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        p = softmax(np.clip(score, -SCORE_MAX, SCORE_MAX))
        g, h = p.copy(), HESSIAN_WEIGHT * p * (1 - p)
        g[np.arange(len(g)), target["label"]] -= 1.0
        shrink = 1 / np.maximum(1.0, np.sqrt(elementwise.row_sums(g * g) + elementwise.row_sums(h * h)))
        return (*(g * shrink[:, None]).T, *(h * shrink[:, None]).T)

    def continues(self, earlier: Objective) -> bool:
        return isinstance(earlier, SoftmaxLoss) and self.classes == earlier.classes


@dataclass(frozen=True)
class Softmax(ClassSide):
    """An additive model of K scores."""

    kind: Multiclass
    objective: Objective
    link: str = "margins"
    effect: str = "score of each class"

    def intercept(self, shares: Floats) -> Floats:
        logs = np.log(shares)
        return np.asarray(logs - logs.mean(), np.float64)

    def newton(self, G: Floats, H: Floats) -> Floats:
        """All classes of a cell move at once, so that each goes (K − 1)/K of its own way (Friedman et al. 2000)."""
        G = G - G.mean(axis=0)  # without noise the gradients of a row add up to 0
        return self._part * super().newton(G, H)

    @property
    def _part(self) -> float:
        return (self.groups - 1) / self.groups

    def histogram_step(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> NewtonStep:
        p, rows = softmax(np.log(shares) + table.T).T, present(held, noise)
        slope = p * (1 - p) * rows
        own = noise * ((1 - p) ** 2 + (len(p) - 1) * p**2)
        return newton_step(held - p * held.sum(0), slope, own, slope, table, self._part)

    def settled(self, table: Floats, facts: Mapping[str, Any] = MappingProxyType({})) -> Floats:
        """Σ share·exp(table) = 1 in each cell: an entry says how much likelier a class is here than elsewhere.

        So a class whose column says nothing, 0 everywhere, is as likely in all cells, whatever the others do there.
        """
        if "counted" not in facts:
            return table - table.mean(axis=0)
        held = np.maximum(facts["counted"].rows, 1.0)
        return table - np.log(np.tensordot(held / held.sum(), np.exp(np.clip(table, -STEEP, STEEP)), 1))

    def expected(self, margin: Floats) -> Floats:
        return softmax(margin)

    def predict(self, margin: Floats) -> Any:
        return as_written(self.kind.labels, np.argmax(margin, axis=1)).to_numpy(object)

    def probabilities(self, margin: Floats) -> Floats:
        return softmax(margin)

    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """The class whose probability is highest above its prevalence: among as many of each, the likeliest.

        Chance comes in with the number of rows, as with two classes. A class that no candidate belongs to is moved
        ahead until some do.
        """
        soft = softmax(learned.model.margin(codes))
        share = by_chance(rows)
        if share > 0:
            likely = soft / np.maximum(learned.shares, 1e-12)
            likely = likely ** (1 / max(share, 0.05))
            reached = np.cumsum(likely / likely.sum(1, keepdims=True), axis=1)
            label = (at[:, None] > reached[:, :-1]).sum(1)
        else:
            ahead = np.log(np.maximum(soft, 1e-12)) - np.log(learned.shares)
            least = LEAST_CANDIDATES / soft.shape[1] * len(soft)
            for _ in range(200):
                label = np.argmax(ahead, axis=1)
                few = np.bincount(label, minlength=soft.shape[1]) < least
                if not few.any():
                    break
                ahead = ahead + 0.1 * few
        return Labelled(Outcome(self.kind, {"label": label.astype(np.int64)}), soft)
