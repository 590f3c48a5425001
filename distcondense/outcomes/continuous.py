"""Continuous outcomes: a number between public bounds. Learned as an additive expectation, scored by R².

Privately: a noisy histogram of the outcome gives its mean, its spread and cuts between strata of about equal size;
columns are counted by stratum, and IPC counts rows of each. Residuals are clipped to a few private spreads, which a
small question after each round brings up to date. In a condensed table `expected` is what the private model expects of
a row; the outcome itself has a part of the private residual spread on top, rounded as its column is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from distcondense.arrays import Floats, Index, Numbers
from distcondense.data.cells import Cells, public_cells
from distcondense.data.features import check_features
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.reserved import EXPECTED
from distcondense.data.schema import Column, Schema
from distcondense.data.values import numbers_of, refuse_absent, refuse_rows
from distcondense.errors import SchemaError
from distcondense.models.base import Model
from distcondense.models.learners import Learner, TrainingSet, boosted, learner, sklearn_model
from distcondense.outcomes.base import Kind, Labelled, Rule
from distcondense.outcomes.binary import by_chance, refuse_horizon
from distcondense.outcomes.measures import Measured, error
from distcondense.outcomes.private_side import (
    NewtonStep,
    PrivateFit,
    PrivateQueries,
    PrivateSide,
    newton_step,
    present,
    without_invented,
)
from distcondense.outcomes.recipes import Recipe, Released, of_a_number
from distcondense.privacy.contributions import Objective, Statistic, Target

OUTCOME_CELLS = 64  # of the outcome's histogram
OUTCOME_SHARE = 0.03  # of μ², for the outcome's histogram
SPREAD_SHARE = 0.02  # of μ², for the residual spread after each of the rounds together
ROUNDS = 3
STRATA = 5
GRID = 10_000  # values by which the mean of a stratum is known
CLIP = 2.5  # residuals are clipped to so many spreads
GRADIENT_WEIGHT = 0.9  # of the residual in a row's norm; the rest counts rows
LEAST_SPREAD = 0.1  # of the outcome's own: less is not believed
RESIDUAL = 0.25  # of the private residual spread on top of the expectation: with all of it few rows teach far less
TREES = 300  # of a forest


@learner
def fit_xgb(training: TrainingSet) -> Model:
    """XGBoost regression, all rounds; f(x) is the expected value. With soft labels it learns these."""
    labels = {"label": _taught_values(training), "weight": training.weight}
    return boosted({"objective": "reg:squarederror"}, training, labels, link="value", name="xgb")


@learner
def fit_ridge(training: TrainingSet) -> Model:
    """Ridge regression of scikit-learn."""
    from sklearn.linear_model import Ridge

    label = _taught_values(training)
    return sklearn_model(Ridge(1.0), training.rows, label, weight=training.weight, link="value", name="ridge")


@learner
def fit_forest(training: TrainingSet) -> Model:
    """Random forest of scikit-learn."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=training.seed, n_jobs=training.threads)
    label = _taught_values(training)
    return sklearn_model(model, training.rows, label, weight=training.weight, link="value", name="forest")


def _taught_values(training: TrainingSet) -> Numbers:
    return training.outcome["value"] if training.soft is None else training.soft


@dataclass(frozen=True)
class Continuous(Kind):
    """A target that is a number."""

    name: ClassVar[str] = "continuous"
    roles: ClassVar[tuple[str, ...]] = ("target",)
    arrays: ClassVar[Mapping[str, type[np.generic]]] = {"value": np.float64}
    numeric_roles: ClassVar[tuple[str, ...]] = ("target",)
    measures: ClassVar[tuple[str, ...]] = ("r2", "rmse", "mae")
    learners: ClassVar[Mapping[str, Learner]] = {
        "xgb": Learner("xgb", "value", fit_xgb),
        "ridge": Learner("ridge", "value", fit_ridge),
        "forest": Learner("forest", "value", fit_forest),
    }
    groups_named: ClassVar[str] = "stratum of the outcome"
    too_few: ClassVar[tuple[str, str]] = ("one value only", "check the column")

    names: tuple[str, ...]
    column: Column
    labels_public: bool = True  # its bounds are

    @classmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool:
        """A number that may take more than two values; 0 and 1 are a yes and a no."""
        name = goal.columns["target"]
        if schema is None or name not in schema or not schema[name].numeric:
            return False
        column = schema[name]
        if column.kind != "integer" or column.low is None or column.high is None:
            return True
        return bool(np.floor(column.high) - np.ceil(column.low) >= 2)

    @classmethod
    def from_goal(cls, goal: Goal, schema: Schema | None) -> Continuous:
        name = goal.columns["target"]
        if schema is None or name not in schema:
            return cls((name,), Column(name, "continuous"), labels_public=False)
        column = schema[name]
        if not column.numeric:
            raise SchemaError(
                f"outcome {name!r}",
                "must be declared as a number",
                found=f"kind = {column.kind!r}",
                fix='declare kind = "continuous" or "integer" with low and high, or leave out --kind',
            )
        return cls((name,), column, schema.origin == "declared")

    def read(self, frame: pd.DataFrame) -> Outcome:
        name = self.names[0]
        refuse_absent(frame[name], name)
        refuse_rows(~np.isfinite(numbers_of(frame[name], name)), name, "must be finite")
        return Outcome(
            self, {"value": check_features(frame[[name]], Schema((self.column.known,)))[name].to_numpy(np.float64)}
        )

    @property
    def groups(self) -> int:
        return STRATA

    def strata(self, outcome: Outcome) -> Index:
        """Fifths of these very rows."""
        return _fifths(outcome["value"])

    def alike(self, real: Outcome, synthetic: Outcome, rng: np.random.Generator) -> Index:
        """As many, whatever their outcome: a number has no classes to balance."""
        return rng.permutation(len(real))[: len(synthetic)]

    def lacking(self, outcome: Outcome) -> str:
        return "two values or more" if len(np.unique(outcome["value"])) < 2 else ""

    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        return error(outcome["value"], scores, "r2").value

    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        return {measure: error(outcome["value"], scores, measure) for measure in self.measures}

    def outcome_columns(self) -> tuple[Column, ...]:
        meaning = "the outcome, a number, with less chance in it than among patients."
        return (replace(self.column.known, out_of_range="refuse", meaning=meaning),)

    def added_columns(self) -> tuple[Column, ...]:
        meaning = "what is expected of patients like this row. It is computed from the row, and is no feature."
        return (Column(EXPECTED, "continuous", unit=self.column.unit, meaning=meaning),)

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        return of_a_number(table)

    def write(self, frame: pd.DataFrame, labelled: Labelled) -> None:
        super().write(frame, labelled)
        if self.column.kind == "integer":
            frame[self.names[0]] = frame[self.names[0]].astype(np.int64)

    def training_target(self, labelled: Labelled) -> Any:
        """The expected value."""
        return labelled.soft

    def private_side(self, *, horizon: float | None = None) -> PrivateSide:
        refuse_horizon(self, horizon)
        if self.column.low is None or self.column.high is None:
            raise SchemaError(
                f"outcome {self.names[0]!r}",
                "needs public bounds in the schema: they may not be read off patients",
                found="no low and high",
                fix=f"add low and high to [columns.{self.names[0]}] of the schema, in Python "
                f"schema.confirm(by=…, changes={{{self.names[0]!r}: (low, high)}}); or, where its numbers are names "
                "of classes, --kind multiclass",
            )
        cells = public_cells(Schema((self.column.known,)), fine=OUTCOME_CELLS)[0]
        return Expectation(self, Residuals(cells))


# -- the private method -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residuals:
    """g = F − u and h = 1 for the outcome in units of its private spread, u = (value − centre)/unit. `target`: value.

    A row adds (a·clip(g, ±R)/R, √(1 − a²)), a = 0.9: norm at most 1 for every value and score. The second part counts
    rows again in every sum, so that a person with several rows is shortened in both alike. Values outside the public
    bounds are moved to the nearest one.

    Groupings: "cell" (the outcome's own public cells), "stratum" (between private cuts). Statistic "residuals": a row
    adds min(g², R²)/R², between 0 and 1; read as a sum of squares in units of the private spread.
    """

    cells: Cells
    centre: float | None = None
    unit: float = 1.0
    cuts: tuple[float, ...] = ()
    clip: float = CLIP  # R

    @property
    def low(self) -> float:
        return float(self.cells.column.low or 0.0)

    @property
    def high(self) -> float:
        return float(self.cells.column.high or 0.0)

    @property
    def scores(self) -> int:
        return 1

    @property
    def scales(self) -> tuple[float, ...]:
        return (GRADIENT_WEIGHT / self.clip, float(np.sqrt(1 - GRADIENT_WEIGHT**2)))

    @property
    def groupings(self) -> Mapping[str, int]:
        # before the cuts are known so many strata are planned
        return {"cell": self.cells.size, "stratum": len(self.cuts) + 1 if self.ready else STRATA}

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        most = self.clip**2

        def values(target: Target, score: Floats) -> list[Floats]:
            return [np.minimum(np.square(score - target["u"]), most) / most]

        return {"residuals": Statistic(1, values, lambda answer: answer * most, most)}

    @property
    def ready(self) -> bool:
        return self.centre is not None

    def prepare(self, target: Target) -> Target:
        value = np.nan_to_num(np.asarray(target["value"], np.float64), nan=self.low, posinf=self.high, neginf=self.low)
        value = np.clip(value, self.low, self.high)
        return {"value": value, "u": (value - (self.centre or 0.0)) / self.unit}

    def group(self, by: str, target: Target) -> NDArray[np.intp]:
        cuts = self.cells.cuts if by == "cell" else np.array(self.cuts)
        return np.searchsorted(cuts, target["value"], side="right")

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        g = np.clip(score - target["u"], -self.clip, self.clip) * (GRADIENT_WEIGHT / self.clip)
        return g, np.full(len(g), self.scales[1])

    def continues(self, earlier: Objective) -> bool:
        return isinstance(earlier, Residuals) and self.cells is earlier.cells


@dataclass(frozen=True)
class Expectation(PrivateSide):
    """An additive model of the expected value."""

    kind: Continuous
    objective: Objective
    link: str = "value"
    grouping: str = "stratum"
    balanced: bool = False
    effect: str = "expected value"
    steady: bool = True
    public: tuple[str, ...] = ("the bounds of the outcome",)

    questions: ClassVar[Mapping[str, float]] = {
        "outcome": OUTCOME_SHARE,
        **{f"spread {number + 1}": SPREAD_SHARE / ROUNDS for number in range(ROUNDS)},
    }

    def begin(self, ask: PrivateQueries) -> Mapping[str, Any]:
        objective = ask.objective
        assert isinstance(objective, Residuals)
        counts = ask.counts("cell", "outcome")
        share = without_invented(counts)
        edges = np.concatenate([[objective.low], objective.cells.cuts, [objective.high]])
        middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        centre = float(share @ middle)
        unit = float(np.sqrt(max(share @ ((middle - centre) ** 2 + width**2 / 12), (width.min() / 2) ** 2)))
        cuts = _cuts(edges, share)
        ask.set_objective(replace(objective, centre=centre, unit=unit, cuts=cuts))
        means = tuple((_means(edges, share, cuts) - centre) / unit)
        rows = max(float(counts.sum()), 1.0)
        facts = {"centre": centre, "unit": unit, "rows": rows, "means": means}
        return {**facts, "spread": 1.0, "dispersion": 1.0, "asked": 0}

    def histogram_step(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> NewtonStep:
        """Rows of a stratum taken at its mean."""
        apart, rows = np.array(facts["means"])[:, None] - table, present(held, noise)
        seen, own = (apart * held).sum(0), noise * (apart**2).sum(0)
        return newton_step(seen[None], rows[None], own[None], facts["dispersion"] * rows[None], table)

    def after_round(self, ask: PrivateQueries, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """The residuals' spread, one standard deviation of its noise on the safe side, clips the next round."""
        objective, number = ask.objective, facts["asked"] + 1
        assert isinstance(objective, Residuals)
        squares = float(ask.total("residuals", f"spread {number}")[0])
        noise = objective.clip**2 * ask.noise(f"spread {number}")
        spread = float(np.sqrt(np.clip((squares + noise) / facts["rows"], LEAST_SPREAD**2, 1.0)))
        ask.set_objective(replace(objective, clip=CLIP * spread))
        return {**facts, "spread": spread, "dispersion": spread**2, "asked": number}

    def least_share(self, shares: Floats) -> float:
        return 1.0  # every row says something

    def expected(self, margin: Floats) -> Floats:
        column = self.kind.column
        return np.asarray(np.clip(margin, column.low, column.high), np.float64)

    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """What is expected, and as much of the residuals as so many rows can afford."""
        margin = learned.model.margin(codes)
        share = RESIDUAL + (1 - RESIDUAL) * by_chance(rows)
        column = self.kind.column
        spread = share * learned.facts["spread"] * learned.facts["unit"] * special.ndtri(at)
        value = np.clip(column.rounded(np.clip(margin + spread, column.low, column.high)), column.low, column.high)
        outcome = Outcome(self.kind, {"value": np.asarray(value, np.float64)})
        return Labelled(outcome, self.expected(margin))

    def strata(self, labelled: Labelled) -> Index:
        """Fifths of what is expected of the population."""
        assert labelled.soft is not None
        return _fifths(labelled.soft)


def _fifths(values: Floats) -> Index:
    """(n,) which fifth of these very values each is in; fewer than five where many are equal."""
    cuts = np.unique(np.quantile(values, np.arange(1, STRATA) / STRATA)) if len(values) else np.empty(0)
    return np.searchsorted(cuts, values, side="right").astype(np.int64)


def _cuts(edges: Floats, share: Floats) -> tuple[float, ...]:
    """Cuts between strata of about equal size: quantiles of the cells' shares, fewer where many are equal."""
    reached = np.concatenate([[0.0], np.cumsum(share)])
    at = np.interp(np.arange(1, STRATA) / STRATA, reached / reached[-1], edges)
    inside = np.unique(at[(at > edges[0]) & (at < edges[-1])])
    return tuple(float(cut) for cut in inside)


def _means(edges: Floats, share: Floats, cuts: tuple[float, ...]) -> Floats:
    """(strata,) the mean of each stratum, by the cells' shares; cells are even inside."""
    reached = np.concatenate([[0.0], np.cumsum(share)])
    values = np.interp((np.arange(GRID) + 0.5) / GRID, reached / reached[-1], edges)
    stratum = np.searchsorted(cuts, values, side="right")
    many = np.bincount(stratum, minlength=len(cuts) + 1)
    middle = np.concatenate([edges[:1], cuts, edges[-1:]])
    empty = (middle[1:] + middle[:-1]) / 2
    return np.where(many > 0, np.bincount(stratum, values, len(cuts) + 1) / np.maximum(many, 1), empty)
