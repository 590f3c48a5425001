"""`dc.PrivateModel`: the private additive model on its own, in scikit-learn's style.

    model = dc.PrivateModel(epsilon=1.0).fit(X, y, schema=schema)
    model.predict_proba(X_new)        binary outcomes
    model.survival_function(X_new, times)   survival: y is a table of time and event
    model.explain(X_new)              what each column adds to a row (Shapley values)
    model.privacy_.paragraph()        what is guaranteed, for whom
    model.tables_["age"]              what the model says about each cell of a column

Its ε is end-to-end: everything that can be read off the fitted model is covered. Fits of one instance add up, and
`privacy_.epsilon_with_earlier_runs` is their sum; fits of other instances (a clone, another process, a grid search) are
not seen, and only the custodian knows of them.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from distcondense.data.cohort import Cohort, check_features
from distcondense.data.schema import Column, Schema
from distcondense.errors import DistcondenseWarning, ModelError, SettingsError
from distcondense.methods.private.condense import check_private, open_gate, statement_of
from distcondense.methods.private.fit import Learned, fit_private
from distcondense.models.additive import AdditiveModel
from distcondense.privacy.accountant import Event
from distcondense.privacy.gate import PiecewiseExponential
from distcondense.privacy.ledger import Ledger
from distcondense.settings import Settings

Floats = NDArray[np.float64]
_TARGET, _TIME, _PERSON = "outcome_", "time_", "person_"
_CLASSES = (0, 1)
NOISE = (
    "the model is noise: what the budget could pay for shows {doubt} (too few cases, too small an ε, or nothing there)"
)


class PrivateModel:
    """Private additive model of a binary or survival outcome; parameters as in `dc.condense`."""

    def __init__(
        self, *, epsilon: float = 1.0, delta: float = 1e-5, rows_per_person: int = 5, horizon: float | None = None,
        trust_inferred_schema: bool = False,
    ) -> None:  # fmt: skip
        self.epsilon, self.delta, self.rows_per_person = epsilon, delta, rows_per_person
        self.horizon, self.trust_inferred_schema = horizon, trust_inferred_schema
        self._spent: tuple[Event, ...] = ()  # by all fits of this instance

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        names = ("epsilon", "delta", "rows_per_person", "horizon", "trust_inferred_schema")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> PrivateModel:
        unknown = sorted(set(params) - set(self.get_params()))
        if unknown:
            raise SettingsError("parameter", "must be known", found=", ".join(unknown), fix="see help(dc.PrivateModel)")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(
        self, X: pd.DataFrame | Cohort, y: Any = None, *, schema: Schema | None = None, person: ArrayLike | None = None,
        classes: tuple[Any, Any] = _CLASSES,
    ) -> PrivateModel:  # fmt: skip
        """Fit to a cohort, or to features `X` and `y`: two classes, or a table of two columns, time and event.

        `classes` are the two publicly known values of `y` (of the event), the negative first; `person` says whose row
        each is. A cohort brings all of these along. Every fit of this instance reads patients, so their costs add up in
        `privacy_.epsilon_with_earlier_runs`, as if all had read the same patients; other instances are not seen.
        """
        if isinstance(X, Cohort):
            _check_alone(y, schema, person, classes)
        cohort = X if isinstance(X, Cohort) else _cohort(X, y, schema, person, classes)
        settings = Settings(
            epsilon=self.epsilon, delta=self.delta, rows_per_person=self.rows_per_person, holdout=0.0,
            trust_inferred_schema=self.trust_inferred_schema,
            horizon=self.horizon if self.horizon is not None else cohort.horizon,
        )  # fmt: skip
        public = check_private(cohort, settings)
        ledger, earlier = Ledger(), self._spent
        try:
            table = open_gate(cohort, np.arange(len(cohort)), settings, public, ledger)
            learned = fit_private(table, public.cells, public.plan)
        finally:  # a fit that is interrupted has read patients too
            self._spent = (*earlier, *ledger.events)
        self._learned = learned
        self.classes_ = np.array(cohort.outcome.labels, dtype=object)
        self.feature_names_in_ = np.array(cohort.schema.names, dtype=object)
        self.schema_ = cohort.schema
        said = statement_of(
            settings, public, learned, ledger, earlier, by_person=cohort.person is not None,
            labels_public=cohort.outcome.labels_public,
        )  # fmt: skip
        noise = NOISE.format(doubt=learned.doubt)
        self.privacy_ = replace(
            said, made="the model was made", earlier_runs="Earlier fits of this model",
            answer=f"NO ANSWER: {noise}. The budget is spent all the same." if learned.doubt else "",
        )  # fmt: skip
        if learned.doubt:
            warnings.warn(noise, DistcondenseWarning, stacklevel=2)
        return self

    @property
    def learned_(self) -> Learned:
        """Model, marginals and sizes: all that left the gate."""
        if not hasattr(self, "_learned"):
            raise ModelError("PrivateModel", "must be fitted first", found="no fit", fix="call fit(X, y, schema=…)")
        return self._learned

    @property
    def model_(self) -> AdditiveModel:
        return self.learned_.model

    @property
    def tables_(self) -> dict[str, pd.Series[Any]]:
        """Per used column: what each public cell adds to the log odds (log hazard), by its lower edge or category."""
        out = {}
        for cells, table in zip(self.model_.cells, self.model_.tables, strict=True):
            inner = cells.size - cells.hole
            names = [cells.column.low, *cells.cuts] if cells.numeric else list(cells.column.categories)
            out[cells.column.name] = pd.Series(table, index=[*names[:inner], *(["missing"] if cells.hole else [])])
        return out

    def decision_function(self, X: pd.DataFrame) -> Floats:
        """Log odds, or log hazard ratios."""
        return self.model_.margin(self._codes(X))

    def predict_proba(self, X: pd.DataFrame) -> Floats:
        """(n, 2) probabilities of the two classes."""
        self._need("probability")
        positive = self.model_.probability(self._codes(X))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, X: pd.DataFrame) -> NDArray[Any]:
        """The likelier class (binary), or the log hazard ratio (survival)."""
        if self.model_.link != "probability":
            return self.decision_function(X)
        return self.classes_[(self.predict_proba(X)[:, 1] >= 0.5).astype(int)]

    def survival_function(self, X: pd.DataFrame, times: ArrayLike) -> Floats:
        """(n, len(times)) probability of being free of the event at each time, up to the public horizon."""
        self._need("log-risk")
        objective = self.learned_.objective
        assert isinstance(objective, PiecewiseExponential)
        at = np.clip(np.asarray(times, np.float64), 0.0, objective.horizon)
        return np.exp(-np.exp(self.decision_function(X))[:, None] * objective.cumulative(at)[None, :])

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """What each used column adds to a row's log odds (log hazard), against the average person: Shapley values.

        Together with `base_` they add up to `decision_function`.
        """
        model = self.model_
        return pd.DataFrame(model.contributions(self._codes(X)), columns=[cells.column.name for cells in model.cells])

    @property
    def base_(self) -> float:
        """The margin of the average person."""
        return self.model_.intercept

    def _need(self, link: str) -> None:
        if self.model_.link != link:
            other = "decision_function and survival_function" if link == "probability" else "predict_proba"
            raise ModelError("PrivateModel", "has no such answer for this kind of outcome", fix=f"use {other}")

    def _codes(self, X: pd.DataFrame) -> NDArray[Any]:
        return self.model_.codes(check_features(X, self.schema_))


def _check_alone(y: Any, schema: Schema | None, person: Any, classes: tuple[Any, Any]) -> None:
    """A cohort has its own outcome, schema and persons; others beside it would be ignored."""
    given = [name for name, value in (("y", y), ("schema", schema), ("person", person)) if value is not None]
    given += ["classes"] if tuple(classes) != _CLASSES else []
    if given:
        raise SettingsError(
            "fit", "takes a cohort alone: it has its own outcome, schema and persons", found=", ".join(given),
            fix="make the cohort with them (Cohort.from_frame), or pass features and y",
        )  # fmt: skip


def _cohort(X: pd.DataFrame, y: Any, schema: Schema | None, person: Any, classes: tuple[Any, Any]) -> Cohort:
    frame = pd.DataFrame(X).reset_index(drop=True)
    names = {*frame.columns, *(schema.names if schema is not None else ())}
    if taken := [name for name in (_TARGET, _TIME, _PERSON) if name in names]:
        raise SettingsError(
            "X", f"must not have columns named {_TARGET}, {_TIME} or {_PERSON}, which stand for y and person",
            found=", ".join(taken), fix="rename the column",
        )  # fmt: skip
    outcome = pd.DataFrame(np.asarray(y)) if y is not None else pd.DataFrame()
    if len(outcome) != len(frame) or outcome.shape[1] not in (1, 2):
        raise SettingsError(
            "y", "must have one entry per row of X: a class, or time and event", found=f"shape {outcome.shape}"
        )
    frame[_TARGET] = outcome.iloc[:, -1].to_numpy()
    how: dict[str, Any] = {"target": _TARGET}
    if outcome.shape[1] == 2:
        frame[_TIME] = outcome.iloc[:, 0].to_numpy()  # checked with the cohort, whose errors show no value
        how = {"time": _TIME, "event": _TARGET}
    if person is not None:
        frame[_PERSON] = np.asarray(person)
        how["person_id"] = _PERSON
    if schema is not None:
        schema = Schema((*schema.columns, Column(_TARGET, "binary", categories=tuple(classes))), schema.origin)
    return Cohort.from_frame(frame, schema=schema, owned=True, **how)
