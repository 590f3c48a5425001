"""`dc.PrivateModel`: the private additive model on its own, in scikit-learn's style."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Codes, Floats
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features, some_names
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, DistcondenseWarning, ModelError, SettingsError, need
from distcondense.methods.base import refuse_kind
from distcondense.methods.private import METHOD
from distcondense.methods.private.condense import open_gate, statement_of
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.accountant import unite
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import Odometer

_TARGET, _TIME, _PERSON = "outcome_", "time_", "person_"
_CLASSES = (0, 1)
OTHERS = "other runs on the patients' account"
NOISE = (
    "the model is noise: what the budget could pay for shows {doubt} (too few cases, too small an ε, or nothing there)"
)


class PrivateModel:
    """An additive model of any kind of outcome, fitted with differential privacy.

    Its ε is end-to-end: everything that can be read off the fitted model is covered. Fits of one instance add up, and
    `privacy_.epsilon_with_earlier_runs` is their sum; fits of other instances (a clone, another process, a grid search)
    are seen only where they share an account, the `odometer`.

    Parameters
    ----------
    epsilon, delta : float
        The budget, spent by each fit.
    rows_per_person : int
        Rows of one person beyond this many are not read.
    horizon : float, optional
        Survival: the public end of follow-up, where the schema does not say.
    trust_inferred_schema : bool
        Take bounds and categories off the patients; the guarantee is then called conditional.
    categories_checked : sequence of str
        Columns whose categories look like identifiers and were checked to be none.
    odometer : path or Odometer, optional
        The patients' account, charged before a row is read.

    Attributes
    ----------
    privacy_ : Privacy
        What is guaranteed, for whom; `privacy_.paragraph()` says it in words.
    tables_ : dict of str to Series or DataFrame
        What each public cell of a used column adds to the score.
    base_ : float or (classes,) array
        The score of the average person.
    classes_, feature_names_in_ : arrays
        As in scikit-learn.
    schema_ : Schema
        Of the features.
    learned_ : PrivateFit
        All that left the gate.

    Examples
    --------
    >>> import numpy as np, pandas as pd, distcondense as dc
    >>> schema = dc.Schema((dc.Column("age", "integer", low=0, high=100),))
    >>> X = pd.DataFrame({"age": np.arange(4000) % 100})
    >>> model = dc.PrivateModel(epsilon=2.0).fit(X, (X["age"] > 50).astype(int), schema=schema)
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    >>> model.privacy_.guarantee
    'end-to-end'
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        rows_per_person: int = 5,
        horizon: float | None = None,
        trust_inferred_schema: bool = False,
        categories_checked: Sequence[str] = (),
        odometer: str | Path | Odometer | None = None,
    ) -> None:
        self.epsilon, self.delta, self.rows_per_person = epsilon, delta, rows_per_person
        self.horizon, self.trust_inferred_schema = horizon, trust_inferred_schema
        self.categories_checked, self.odometer = categories_checked, odometer
        self._spent: tuple[Event, ...] = ()  # by all fits of this instance
        self._lock = Lock()  # one fit of an instance at a time: its account and its attributes belong to one fit

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as scikit-learn asks for them."""
        names = (
            "epsilon",
            "delta",
            "rows_per_person",
            "horizon",
            "trust_inferred_schema",
            "categories_checked",
            "odometer",
        )
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> PrivateModel:
        """Change parameters by name; an unknown one is refused."""
        unknown = sorted(set(params) - set(self.get_params()))
        if unknown:
            raise SettingsError("parameter", "must be known", found=", ".join(unknown), fix="see help(dc.PrivateModel)")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(
        self,
        X: pd.DataFrame | Cohort,
        y: Any = None,
        *,
        schema: Schema | None = None,
        person: ArrayLike | None = None,
        classes: tuple[Any, ...] = _CLASSES,
        bounds: tuple[float, float] | None = None,
    ) -> PrivateModel:
        """Fit to a cohort, or to features `X` and an outcome `y`.

        Every fit of this instance reads patients, so their costs add up in `privacy_.epsilon_with_earlier_runs`, as if
        all had read the same patients. Threads that fit one instance take turns.

        Parameters
        ----------
        X : DataFrame or Cohort
            Features, one row each; a cohort brings outcome, schema and persons along, and is given alone.
        y : array-like or DataFrame of two columns
            Classes, a number, or time and event.
        schema : Schema, optional
            Of the features. It must be declared, unless `trust_inferred_schema`.
        person : array-like, optional
            Whose row each is; every row is one person where it is left out.
        classes : tuple
            The publicly known values of `y` (of the event), the negative first.
        bounds : (float, float), optional
            Make `y` a number between them.

        Returns
        -------
        PrivateModel
            This instance.

        Raises
        ------
        SettingsError, SchemaError, BudgetError
            What public facts rule out, before a row is read.
        CohortError
            Rows that the schema does not allow; the error says no value.
        """
        with self._lock:
            return self._fit(X, y, schema, person, classes, bounds)

    def _fit(
        self,
        X: pd.DataFrame | Cohort,
        y: Any,
        schema: Schema | None,
        person: ArrayLike | None,
        classes: tuple[Any, ...],
        bounds: tuple[float, float] | None,
    ) -> PrivateModel:
        need(classes, (list, tuple), "classes", "a list of the values that y may have", fix="e.g. (0, 1)")
        need(self.categories_checked, (list, tuple, set), "categories_checked", "a list of column names")
        if isinstance(X, Cohort):
            _check_alone(y, schema, person, classes, bounds)
        cohort = X if isinstance(X, Cohort) else _cohort(X, y, schema, person, classes, bounds)
        options = PrivateOptions(
            epsilon=self.epsilon,
            delta=self.delta,
            rows_per_person=self.rows_per_person,
            holdout=0.0,
            trust_inferred_schema=self.trust_inferred_schema,
            horizon=self.horizon,
            categories_checked=tuple(self.categories_checked),
        )
        refuse_kind(METHOD, cohort.outcome.kind)
        prepared = prepare(cohort.facts, options)
        ledger, account = Ledger(), Odometer.open(self.odometer)
        others: tuple[Event, ...] = ()
        if account is not None:  # refused over its cap, and on disk before a patient is read
            account.charge(
                ledger.run, prepared.planned, "a PrivateModel", method=METHOD.name, guarantee=options.promise
            )
            others = account.others(ledger.run)
        before, earlier = self._spent, unite(self._spent, others)
        try:
            table = open_gate(cohort, np.arange(len(cohort)), prepared, ledger)
            learned = fit_private(
                table, prepared.cells, prepared.plan, prepared.side, checked=options.categories_checked
            )
        finally:  # a fit that is interrupted has read patients too
            self._spent = (*before, *ledger.events)
        self._learned, self._side = learned, prepared.side
        self.classes_ = np.array(cohort.outcome.kind.labels, dtype=object)
        self.feature_names_in_ = np.array(cohort.schema.names, dtype=object)
        self.schema_ = cohort.schema
        said = statement_of(prepared, learned, ledger, earlier)
        noise = NOISE.format(doubt=learned.doubt)
        self.privacy_ = replace(
            said,
            made="the model was made",
            earlier_runs="Earlier fits of this model" + ("" if account is None else f", or {OTHERS},"),
            answer=f"NO ANSWER: {noise}. The budget is spent all the same." if learned.doubt else "",
        )
        if learned.doubt:
            warnings.warn(noise, DistcondenseWarning, stacklevel=3)
        return self

    @property
    def learned_(self) -> PrivateFit:
        """Model, marginals and sizes: all that left the gate."""
        if not hasattr(self, "_learned"):
            raise ModelError("PrivateModel", "must be fitted first", found="no fit", fix="call fit(X, y, schema=…)")
        return self._learned

    @property
    def model_(self) -> AdditiveModel:
        return self.learned_.model

    @property
    def tables_(self) -> dict[str, Any]:
        """Per used column: what each public cell adds to the score, by its lower edge or category.

        A series; with several classes a frame with a column for each.
        """
        out: dict[str, Any] = {}
        for cells, table in zip(self.model_.cells, self.model_.tables, strict=True):
            inner = cells.size - cells.hole
            names = [cells.column.low, *cells.cuts] if cells.numeric else list(cells.column.categories)
            index = [*names[:inner], *(["missing"] if cells.hole else [])]
            several = np.ndim(table) == 2
            out[cells.column.name] = (
                pd.DataFrame(table.T, index=index, columns=list(self.classes_))
                if several
                else pd.Series(table, index=index)
            )
        return out

    def decision_function(self, X: pd.DataFrame) -> Floats:
        """Log odds, log hazard ratios, or expected values; (n, classes) scores with several classes."""
        return self.model_.margin(self._codes(X))

    def predict_proba(self, X: pd.DataFrame) -> Floats:
        """(n, classes) probabilities of the classes, in the order of `classes_`.

        Raises
        ------
        ModelError
            Where nothing is fitted, or the outcome has no classes.
        """
        margin = self.decision_function(X)  # says it where nothing is fitted
        return self._side.probabilities(margin)

    def predict(self, X: pd.DataFrame) -> NDArray[Any]:
        """The likeliest class, the expected value, or the log hazard ratio (survival)."""
        margin = self.decision_function(X)
        return np.asarray(self._side.predict(margin))

    def survival_function(self, X: pd.DataFrame, times: ArrayLike) -> Floats:
        """(n, len(times)) probability of being free of the event at each time, up to the public horizon.

        Raises
        ------
        ModelError
            Where nothing is fitted, or the outcome has no time.
        """
        margin = self.decision_function(X)
        try:
            at = np.asarray(times, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise SettingsError(
                "times", "must be numbers", found=f"a {type(times).__name__}", fix="e.g. [12, 24]"
            ) from None
        return self._side.survival(margin, self.learned_, at)

    def explain(self, X: pd.DataFrame) -> Any:
        """What each used column adds to a row's score, against the average person: Shapley values.

        Together with `base_` they add up to `decision_function`. With several classes: a dict of frames, one a class.
        """
        parts, names = self.model_.contributions(self._codes(X)), [cells.column.name for cells in self.model_.cells]
        if parts.ndim == 2:
            return pd.DataFrame(parts, columns=names)
        return {label: pd.DataFrame(parts[:, :, k], columns=names) for k, label in enumerate(self.classes_)}

    @property
    def base_(self) -> Any:
        """The score of the average person."""
        return self.model_.intercept

    def _codes(self, X: pd.DataFrame) -> Codes:
        model = self.model_  # says it where nothing is fitted
        need(X, pd.DataFrame, "X", "a pandas DataFrame")
        if absent := [name for name in self.schema_.names if name not in X]:
            raise CohortError(
                "X",
                "must have every column of the schema",
                found=f"{len(absent)} missing: {some_names(absent)}",
                fix="give the columns that the model was fitted to",
            )
        return model.codes(check_features(X, self.schema_))


def _check_alone(y: Any, schema: Schema | None, person: Any, classes: tuple[Any, ...], bounds: Any) -> None:
    """A cohort has its own outcome, schema and persons; others beside it would be ignored."""
    said = (("y", y), ("schema", schema), ("person", person), ("bounds", bounds))
    given = [name for name, value in said if value is not None]
    given += ["classes"] if tuple(classes) != _CLASSES else []
    if given:
        raise SettingsError(
            "fit",
            "takes a cohort alone: it has its own outcome, schema and persons",
            found=", ".join(given),
            fix="make the cohort with them (Cohort.from_frame), or pass features and y",
        )


def _cohort(
    X: pd.DataFrame,
    y: Any,
    schema: Schema | None,
    person: Any,
    classes: tuple[Any, ...],
    bounds: tuple[float, float] | None,
) -> Cohort:
    if schema is not None:
        need(schema, Schema, "schema", "a Schema")
    frame = _features(X)
    names = {*frame.columns, *(schema.names if schema is not None else ())}
    if taken := [name for name in (_TARGET, _TIME, _PERSON) if name in names]:
        raise SettingsError(
            "X",
            f"must not have columns named {_TARGET}, {_TIME} or {_PERSON}, which stand for y and person",
            found=", ".join(taken),
            fix="rename the column",
        )
    outcome = _columns(y)
    if len(outcome) not in (1, 2) or any(len(column) != len(frame) for column in outcome):
        raise SettingsError(
            "y",
            "must have one entry per row of X: a class, a number, or time and event",
            found=f"{len(outcome)} columns of {', '.join(str(len(column)) for column in outcome)} rows",
        )
    frame[_TARGET] = outcome[-1]
    described = [_described(classes, bounds)]
    how: dict[str, Any] = {"target": _TARGET}
    if len(outcome) == 2:
        frame[_TIME] = outcome[0]  # checked with the cohort, whose errors show no value
        described.append(Column(_TIME, "continuous"))
        how = {"time": _TIME, "event": _TARGET}
    if person is not None:
        persons = _columns(person)
        if len(persons) != 1 or len(persons[0]) != len(frame):
            raise SettingsError(
                "person", "must have one entry per row of X", found=f"{len(persons[0]) if persons else 0} rows"
            )
        frame[_PERSON] = persons[0]
        how["person_id"] = _PERSON
    if schema is not None:
        schema = replace(schema, columns=(*schema.columns, *described))
    return Cohort.from_frame(frame, schema=schema, owned=True, **how)


def _features(X: Any) -> pd.DataFrame:
    try:
        return pd.DataFrame(X).reset_index(drop=True)
    except (TypeError, ValueError, AttributeError):
        raise SettingsError(
            "X", "must be a table or a Cohort", found=f"a {type(X).__name__}", fix="give a pandas DataFrame"
        ) from None


def _columns(given: Any) -> list[pd.Series[Any]]:
    """The columns of what a caller gave, every value as it is: NumPy would make one type of a list's values."""
    if given is None:
        return []
    if isinstance(given, pd.DataFrame):
        return [given.iloc[:, place].reset_index(drop=True) for place in range(given.shape[1])]
    if isinstance(given, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return [pd.Series(given).reset_index(drop=True)]
    if isinstance(given, np.ndarray) and given.dtype.names:
        return [pd.Series(given[name]) for name in given.dtype.names]
    if isinstance(given, np.ndarray):
        return [pd.Series(column) for column in (given.T if given.ndim == 2 else [given.ravel()])]
    try:
        rows = list(given)
    except TypeError:
        raise SettingsError(
            "y and person", "must have one entry per row of X", found=f"a {type(given).__name__}", fix="give a list"
        ) from None
    if rows and all(isinstance(row, list | tuple | np.ndarray) and len(row) == 2 for row in rows):
        return [pd.Series([row[place] for row in rows], dtype=object) for place in (0, 1)]
    return [pd.Series(rows, dtype=object)]


def _described(classes: tuple[Any, ...], bounds: tuple[float, float] | None) -> Column:
    """The outcome's column as its public facts make it."""
    if bounds is not None:
        need(bounds, (list, tuple), "bounds", "two numbers", fix="e.g. (0, 100)")
        if len(bounds) != 2:
            raise SettingsError("bounds", "must be two numbers", found=f"{len(bounds)} entries", fix="e.g. (0, 100)")
        for bound in bounds:
            need(bound, Real, "bounds", "two numbers", fix="e.g. (0, 100)")
        try:
            float(bounds[0]), float(bounds[1])
        except OverflowError:
            raise SettingsError("bounds", "must be numbers that can be held", found="larger ones") from None
        return Column(_TARGET, "continuous", low=float(bounds[0]), high=float(bounds[1]))
    return Column(_TARGET, "binary" if len(classes) == 2 else "categorical", categories=tuple(classes))
