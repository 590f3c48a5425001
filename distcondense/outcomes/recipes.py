"""How a recipient trains on a released table with tools of their own: a few lines each that need no distcondense.

A kind of outcome picks its recipes (`Kind.recipes`); the manual of a release prints them, and tests run them. Names of
columns are anybody's text: tools that refuse some characters get bare arrays. Holes are empty cells: where a tool stops
at them a line fills them. Our own columns and the outcome are never features.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

READ = 'table = pd.read_csv({file}, keep_default_na=False, na_values=[""]{texts})'
FEATURES = "X = pd.get_dummies(table.drop(columns={drop}), dtype=float)"
FILLED = (
    "for (name in names(table)) table[[name]] <- if (is.numeric(table[[name]])) replace(table[[name]], "
    "is.na(table[[name]]), median(table[[name]], na.rm = TRUE)) else addNA(table[[name]], ifany = TRUE)"
)


@dataclass(frozen=True)
class Recipe:
    """Code that reads the released CSV and leaves a trained `model`."""

    tool: str
    language: str  # as Markdown names it
    code: str


@dataclass(frozen=True)
class Released:
    """A released CSV, as its recipient finds it."""

    file: str
    outcome: tuple[str, ...]
    soft: tuple[str, ...]  # what the model expects of a row, in columns of our own
    weight: str
    texts: tuple[str, ...] = ()  # columns whose categories are texts that tools take for something else: 007, T, 1e5

    @property
    def apart(self) -> list[str]:
        """Columns that are never features."""
        return [*self.outcome, *self.soft, self.weight]

    def python(self, tool: str, imports: Sequence[str], *lines: str) -> Recipe:
        drop = json.dumps(self.apart, ensure_ascii=False)
        texts = ", ".join(f"{_py(name)}: str" for name in self.texts)
        read = READ.format(file=_py(self.file), texts=f", dtype={{{texts}}}" if texts else "")
        return Recipe(
            tool, "python", "\n".join(["import pandas as pd", *imports, read, FEATURES.format(drop=drop), *lines])
        )

    def r(self, tool: str, keep: Sequence[str], *lines: str, package: str = "") -> Recipe:
        """In R: without our columns and without columns that are the same in all rows, holes filled."""
        drop = ", ".join(_r(name) for name in self.apart if name not in keep)
        texts = ", ".join(f'{_r(name)} = "character"' for name in self.texts)
        read = 'na.strings = "", check.names = FALSE, stringsAsFactors = TRUE'
        head = [
            f"table <- read.csv({_r(self.file)}, {read}{f', colClasses = c({texts})' if texts else ''})",
            f"table <- table[, !(names(table) %in% c({drop}))]",
            FILLED,
            "table <- table[, vapply(table, function(x) length(unique(x)) > 1, TRUE)]",
        ]
        first = [f"library({package})"] if package else []
        return Recipe(tool, "r", "\n".join([*first, *head, *lines]))


def of_two_classes(table: Released) -> tuple[Recipe, ...]:
    """Boosters learn best from the probability, with weights; a plain model from the outcome column alone."""
    (target,), (risk,) = table.outcome, table.soft
    soft = f"label=table[{_py(risk)}], weight=table[{_py(table.weight)}])"
    return (
        table.python(
            "scikit-learn",
            ["from sklearn.ensemble import HistGradientBoostingClassifier"],
            f"model = HistGradientBoostingClassifier().fit(X, table[{_py(target)}])",
        ),
        table.python(
            "XGBoost",
            ["import xgboost as xgb"],
            f"data = xgb.DMatrix(X.to_numpy(), {soft}",
            'model = xgb.train({"objective": "binary:logistic", "max_depth": 4, "eta": 0.1}, data, 100)',
        ),
        table.python(
            "LightGBM",
            ["import lightgbm as lgb"],
            f"data = lgb.Dataset(X.to_numpy(), {soft}",
            'model = lgb.train({"objective": "cross_entropy", "verbose": -1}, data, 100)',
        ),
        table.r(
            "R", [risk], f'model <- glm(reformulate(".", as.name({_r(risk)})), data = table, family = quasibinomial)'
        ),
    )


def of_classes(table: Released, classes: Sequence[Any]) -> tuple[Recipe, ...]:
    """Each row once for each class, weighted by its probability: all that is known of it, in any tool with weights.

    `classes`, as the table writes them, in the order of the columns of probabilities.
    """
    names = ", ".join(f"{_py(name)}: {_py(label)}" for name, label in zip(table.soft, classes, strict=True))
    weighted = f".mul(table[{_py(table.weight)}], axis=0)"
    once = (
        f"chances = {{{names}}}  # each row once for each class, weighted by its probability",
        f"once = table[list(chances)]{weighted}.melt()",
    )
    several, weight = "pd.concat([X] * len(chances))", "sample_weight=once.value / once.value.mean()"
    numbers = f"rows, y = {several}.to_numpy(), pd.factorize(once.variable)[0]  # answers in the order of chances"
    return (
        table.python(
            "scikit-learn",
            ["from sklearn.ensemble import HistGradientBoostingClassifier"],
            *once,
            f"rows, y = {several}, once.variable.map(chances)",
            f"model = HistGradientBoostingClassifier().fit(rows, y, {weight})",
        ),
        table.python(
            "XGBoost",
            ["import xgboost as xgb"],
            *once,
            numbers,
            f"model = xgb.XGBClassifier(max_depth=4, n_estimators=100).fit(rows, y, {weight})",
        ),
        table.python(
            "LightGBM",
            ["import lightgbm as lgb"],
            *once,
            numbers,
            f"model = lgb.LGBMClassifier(n_estimators=100, verbose=-1).fit(rows, y, {weight})",
        ),
        table.r(
            "R",
            table.soft,
            f"chances <- c({', '.join(map(_r, table.soft))})  # columns of probabilities, a class each",
            "y <- as.matrix(table[, chances])",
            "model <- multinom(y ~ ., data = table[, setdiff(names(table), chances)], trace = FALSE)",
            package="nnet",
        ),
    )


def of_a_number(table: Released) -> tuple[Recipe, ...]:
    (expected,) = table.soft
    y = f"table[{_py(expected)}]"
    return (
        table.python(
            "scikit-learn",
            ["from sklearn.ensemble import HistGradientBoostingRegressor"],
            f"model = HistGradientBoostingRegressor().fit(X, {y})",
        ),
        table.python(
            "XGBoost",
            ["import xgboost as xgb"],
            f"model = xgb.XGBRegressor(max_depth=4, n_estimators=100).fit(X.to_numpy(), {y})",
        ),
        table.python(
            "LightGBM",
            ["import lightgbm as lgb"],
            f"model = lgb.LGBMRegressor(n_estimators=100, verbose=-1).fit(X.to_numpy(), {y})",
        ),
        table.r("R", [expected], f'model <- lm(reformulate(".", as.name({_r(expected)})), data = table)'),
    )


def of_survival(table: Released, event: Any) -> tuple[Recipe, ...]:
    """`event`: how the table writes that it happened. Weights are left alone: rows come as often as among patients."""
    time, happened = table.outcome
    seen = f"(table[{_py(happened)}] == {_py(event)})"
    return (
        table.python(
            "lifelines",
            ["from lifelines import CoxPHFitter"],
            "X = X.loc[:, X.nunique() > 1].fillna(X.median())  # lifelines takes no holes",
            f"X = X.assign(**{{{_py(time)}: table[{_py(time)}], {_py(happened)}: {seen}.astype(int)}})",
            f"model = CoxPHFitter(penalizer=0.1).fit(X, {_py(time)}, {_py(happened)})",
        ),
        table.python(
            "XGBoost",
            ["import xgboost as xgb"],
            f"data = xgb.DMatrix(X.to_numpy(), label=table[{_py(time)}].where({seen}, -table[{_py(time)}]))",
            'model = xgb.train({"objective": "survival:cox", "max_depth": 3, "eta": 0.1}, data, 50)',
        ),
        table.r(
            "R",
            [time, happened],
            f"y <- Surv(table[[{_r(time)}]], table[[{_r(happened)}]] == {_r(event)})",
            f"model <- coxph(y ~ ., data = table[, setdiff(names(table), c({_r(time)}, {_r(happened)}))])",
            package="survival",
        ),
    )


def _py(value: Any) -> str:
    """A text or a number as Python writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _r(value: Any) -> str:
    """A text or a number as R writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
