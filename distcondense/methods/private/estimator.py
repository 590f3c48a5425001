"""`dc.PrivateModel`: the private additive model on its own, in scikit-learn's style."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
from lifelines.utils import concordance_index
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from distcondense.arrays import Codes, Floats
from distcondense.data.cohort import Cohort, inferred_schema
from distcondense.data.features import check_features, some_names
from distcondense.data.names import Names
from distcondense.data.schema import Column, Schema
from distcondense.data.tables import as_frame
from distcondense.errors import CohortError, DistcondenseWarning, ModelError, SettingsError, need
from distcondense.methods.base import Context, refuse_kind
from distcondense.methods.private import METHOD
from distcondense.methods.private.condense import open_gate, statement_of
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.accountant import unite
from distcondense.privacy.accounts import accounts_of
from distcondense.privacy.ledger import Ledger, new_run
from distcondense.privacy.odometer import ChargedRun, Odometer

_TARGET, _TIME, _PERSON = "outcome_", "time_", "person_"
_CLASSES = (0, 1)
CURVE = 200  # times of a survival curve
SEARCHES = (BaseSearchCV, SequentialFeatureSelector, RFECV)  # of settings, or of columns
SEARCHED = (
    "The model's settings were chosen by scores on real rows, which nothing covers: no ε can be stated. Fit it once "
    "with fixed settings for a guarantee."
)
NOT_KEPT = "no account of these patients is kept: fits of other models on them are not counted (account=…)"
OTHERS = "other runs on the patients' account"
NOISE = (
    "the model is noise: what the budget could pay for shows {doubt} (too few cases, too small an ε, or nothing there)"
)


class UnfittedError(ModelError, NotFittedError):  # type: ignore[misc]  # scikit-learn has no types
    """A model is asked before it was fitted."""


@dataclass(frozen=True)
class SurvivalCurve:
    """The probability of being free of the event, of one row: callable, as scikit-survival's step functions are."""

    x: Floats  # times
    y: Floats
    at: Callable[[Floats], Floats] = field(repr=False)

    def __call__(self, times: ArrayLike) -> Any:
        """At any time up to the public horizon."""
        found = self.at(np.atleast_1d(np.asarray(times, np.float64)))
        return found if np.ndim(times) else float(found[0])

    @property
    def domain(self) -> tuple[float, float]:
        return float(self.x[0]), float(self.x[-1])


class PrivateModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An additive model of any kind of outcome, fitted with differential privacy.

    Its ε is end-to-end: everything that can be read off the fitted model is covered. Fits of one instance add up, and
    `privacy_.epsilon_with_earlier_runs` is their sum; fits of other instances (a clone, another process, a grid search)
    are seen only where they share an `account`, or read one file. A search (`GridSearchCV`) chooses by scores on real
    rows, which no ε covers: what is fitted in one says guarantee `none`. At predict a number outside the schema's
    bounds counts as the nearest legal one.

    Parameters
    ----------
    schema : Schema, optional
        Of the features. It must be declared, unless `trust_inferred_schema`; a cohort brings its own. Where it has the
        outcome too, by the name of `y`, that says the classes and the longest time.
    classes : tuple, optional
        The publicly known values of `y` (of the event), the negative first; None: read off `y`, which needs
        `trust_inferred_schema`.
    bounds : (float, float), optional
        Make `y` a number between them.
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
    account : path or Odometer, optional
        An account of the patients, charged before the first answer. A cohort that was read from a file is charged to
        that file's account, too.
    require_account : bool
        Refuse to fit where no account can be charged.

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
    n_features_in_ : int
        How many features were given.
    unique_times_ : array
        Survival: times up to the horizon, for curves.
    learned_ : PrivateFit
        All that left the gate.

    Examples
    --------
    >>> import numpy as np, pandas as pd, distcondense as dc
    >>> schema = dc.Schema((dc.Column("age", "integer", low=0, high=100),))
    >>> X = pd.DataFrame({"age": np.arange(4000) % 100})
    >>> model = dc.PrivateModel(schema=schema, epsilon=2.0).fit(X, (X["age"] > 50).astype(int))
    >>> model.predict_proba(X[:3]).shape
    (3, 2)
    >>> model.privacy_.guarantee
    'end-to-end'
    """

    def __init__(
        self,
        *,
        schema: Schema | None = None,
        classes: tuple[Any, ...] | None = _CLASSES,
        bounds: tuple[float, float] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        rows_per_person: int = 5,
        horizon: float | None = None,
        trust_inferred_schema: bool = False,
        categories_checked: Sequence[str] = (),
        account: str | Path | Odometer | None = None,
        require_account: bool = False,
    ) -> None:
        self.schema, self.classes, self.bounds = schema, classes, bounds
        self.epsilon, self.delta, self.rows_per_person = epsilon, delta, rows_per_person
        self.horizon, self.trust_inferred_schema = horizon, trust_inferred_schema
        self.categories_checked = categories_checked
        self.account, self.require_account = account, require_account

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_lock"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False  # a cohort has its own
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        tags.non_deterministic = True  # its noise is the operating system's
        if self.bounds is not None:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags(poor_score=True)
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(poor_score=True)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_learned")

    def fit(self, X: Any, y: Any = None, *, person: ArrayLike | None = None) -> PrivateModel:
        """Fit to a cohort, or to features `X` and an outcome `y`.

        Every fit of this instance reads patients, so their costs add up in `privacy_.epsilon_with_earlier_runs`, as if
        all had read the same patients. Threads that fit one instance take turns.

        Parameters
        ----------
        X : frame, array or Cohort
            Features, one row each; a cohort brings outcome, schema and persons along, and is given alone.
        y : array-like or frame of two columns
            Classes, a number, or time and event; also as scikit-survival's structured array of event and time.
        person : array-like, optional
            Whose row each is; every row is one person where it is left out.

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
        # one fit of an instance at a time: its account and its attributes belong to one fit
        with self.__dict__.setdefault("_lock", Lock()):
            return self._fit(X, y, person)

    def _fit(self, X: Any, y: Any, person: ArrayLike | None) -> PrivateModel:
        classes, bounds, schema = self.classes, self.bounds, self.schema
        if classes is not None or not self.trust_inferred_schema:
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
        kept = accounts_of(Odometer.open(self.account), cohort.read_from, required=self.require_account)
        if kept.warning:
            warnings.warn(kept.warning, DistcondenseWarning, stacklevel=3)
        charged = ChargedRun(
            kept.odometers, new_run(), prepared.planned, METHOD.name, options.promise, "a PrivateModel"
        )
        charged.check()  # over a cap nobody is read
        ledger = Ledger(run=charged.run, account=charged)
        spent = getattr(self, "_spent", ())  # by all fits of this instance
        before, earlier = spent, unite(spent, charged.others())
        try:
            table = open_gate(cohort, Context().holdout_split(0.0), prepared, ledger)
            learned = fit_private(
                table, prepared.cells, prepared.plan, prepared.side, checked=options.categories_checked
            )
        finally:  # a fit that is interrupted has read patients too
            self._spent = (*before, *ledger.events)
        self._learned, self._side = learned, prepared.side
        self._kind = cohort.outcome.kind
        if self._kind.labels and len(self._kind.names) == 1:
            self.classes_ = _plain(self._kind.labels)
        self.n_features_in_ = len(cohort.schema.names)
        if not isinstance(X, np.ndarray):
            self.feature_names_in_ = np.array(cohort.schema.names, dtype=object)
        self.schema_ = cohort.schema
        said = statement_of(prepared, learned, ledger, earlier)
        noise = NOISE.format(doubt=learned.doubt)
        self.privacy_ = replace(
            said,
            made="the model was made",
            earlier_runs="Earlier fits of this model" + (f", or {OTHERS}," if kept.odometers else ""),
            account=kept.words,
            answer=f"NO ANSWER: {noise}. The budget is spent all the same." if learned.doubt else "",
        )
        if fitted_by(SEARCHES, "fit"):
            self.privacy_ = replace(
                self.privacy_,
                guarantee="none",
                epsilon=None,
                delta=None,
                membership_advantage=None,
                trade_off=(),
                epsilon_with_earlier_runs=None,
                advantage_with_earlier_runs=None,
                why=(SEARCHED,),
            )
        if not kept.odometers and not kept.warning and fitted_by(object, "_fit_and_score"):
            warnings.warn(NOT_KEPT, DistcondenseWarning, stacklevel=3)
        if learned.doubt:
            warnings.warn(noise, DistcondenseWarning, stacklevel=3)
        return self

    @property
    def learned_(self) -> PrivateFit:
        """Model, marginals and sizes: all that left the gate."""
        if not hasattr(self, "_learned"):
            raise UnfittedError("PrivateModel", "must be fitted first", found="no fit", fix="call fit(X, y)")
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
                pd.DataFrame(table.T, index=index, columns=list(self._kind.labels))
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
        found = np.asarray(self._side.predict(margin))
        return found.astype(self.classes_.dtype) if hasattr(self, "classes_") else found

    def score(self, X: Any, y: Any) -> float:
        """Mean accuracy of classes, R² of a number, the concordance index of survival: not covered by any ε.

        These are scores on the rows that are given; where they are patients' nothing protects them.
        """
        found, outcome = self.predict(X), _columns(y)
        if len(outcome) == 2:
            time, event = outcome
            return float(concordance_index(time.astype(float), -found.astype(float), event.astype(int)))
        return float((accuracy_score if hasattr(self, "classes_") else r2_score)(outcome[0].to_numpy(), found))

    @property
    def unique_times_(self) -> Floats:
        """Times up to the public horizon, for curves."""
        return np.linspace(0.0, self._side.objective.horizon, CURVE)  # type: ignore[attr-defined]  # of a time alone

    def predict_survival_function(self, X: Any, times: ArrayLike | None = None, *, return_array: bool = False) -> Any:
        """The probability of being free of the event, up to the public horizon.

        Parameters
        ----------
        X : frame or array
            Features.
        times : array-like, optional
            At these times: the result is (n, len(times)), what lifelines has transposed.
        return_array : bool
            At `unique_times_`: (n, times), as in scikit-survival.

        Returns
        -------
        array
            Of curves that can be called, one a row (as scikit-survival's), where neither is asked for.

        Raises
        ------
        ModelError
            Where nothing is fitted, or the outcome has no time.
        """
        margin = self.decision_function(X)
        self._side.survival(margin[:1], self.learned_, np.zeros(1))  # says it where the outcome has no time
        try:
            at = self.unique_times_ if times is None else np.asarray(times, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise SettingsError(
                "times", "must be numbers", found=f"a {type(times).__name__}", fix="e.g. [12, 24]"
            ) from None
        values = self._side.survival(margin, self.learned_, at)
        if return_array or times is not None:
            return values
        curves = np.empty(len(values), object)
        for row, (one, y) in enumerate(zip(margin[:, None], values, strict=True)):
            curves[row] = SurvivalCurve(at, y, partial(self._free_of_event, one))
        return curves

    def _free_of_event(self, margin: Floats, times: Floats) -> Floats:
        return self._side.survival(margin, self.learned_, times)[0]

    def explain(self, X: pd.DataFrame) -> Any:
        """What each used column adds to a row's score, against the average person: Shapley values.

        Together with `base_` they add up to `decision_function`. With several classes: a dict of frames, one a class.
        """
        parts, names = self.model_.contributions(self._codes(X)), [cells.column.name for cells in self.model_.cells]
        if parts.ndim == 2:
            return pd.DataFrame(parts, columns=names)
        return {label: pd.DataFrame(parts[:, :, k], columns=names) for k, label in enumerate(self._kind.labels)}

    @property
    def base_(self) -> Any:
        """The score of the average person."""
        return self.model_.intercept

    def _codes(self, X: Any) -> Codes:
        model = self.model_  # says it where nothing is fitted
        frame = _features(X)
        if not hasattr(self, "feature_names_in_") or isinstance(X, np.ndarray):
            validate_data(self, X, reset=False, skip_check_array=True)  # how many, in scikit-learn's words
            frame = frame.set_axis(self.schema_.names, axis=1)  # without names: in the order of those of fit
        if absent := [name for name in self.schema_.names if name not in frame]:
            raise CohortError(
                "X",
                "must have every column of the schema",
                found=f"{len(absent)} missing: {some_names(absent)}",
                fix="give the columns that the model was fitted to",
            )
        return model.codes(check_features(frame, self.schema_, nearest=True))


def fitted_by(kinds: Any, function: str) -> bool:
    """Whether a search of scikit-learn, or one of its rounds of cross-validation, is what fits: by the call stack."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == function and isinstance(frame.f_locals.get("self"), kinds):
            return True
        frame = frame.f_back
    return False


def _check_alone(y: Any, schema: Schema | None, person: Any, classes: tuple[Any, ...] | None, bounds: Any) -> None:
    """A cohort has its own outcome, schema and persons; others beside it would be ignored."""
    said = (("y", y), ("schema", schema), ("person", person), ("bounds", bounds))
    given = [name for name, value in said if value is not None]
    given += ["classes"] if classes is not None and tuple(classes) != _CLASSES else []
    if given:
        raise SettingsError(
            "fit",
            "takes a cohort alone: it has its own outcome, schema and persons",
            found=", ".join(given),
            fix="make the cohort with them (Cohort.from_frame), or pass features and y",
        )


def _cohort(
    X: Any,
    y: Any,
    schema: Schema | None,
    person: Any,
    classes: tuple[Any, ...] | None,
    bounds: tuple[float, float] | None,
) -> Cohort:
    if schema is not None:
        need(schema, Schema, "schema", "a Schema")
    inferred = classes is None and bounds is None
    frame = _features(X)
    names = {*frame.columns, *(schema.names if schema is not None else ())}
    if taken := [name for name in (_TARGET, _TIME, _PERSON) if name in names]:
        raise SettingsError(
            "X",
            f"must not have columns named {_TARGET}, {_TIME} or {_PERSON}, which stand for y and person",
            found=", ".join(taken),
            fix="rename the column",
        )
    if y is None:
        rule = "requires y to be passed, but the target y is None"  # in scikit-learn's words
        raise SettingsError(
            "PrivateModel", rule, found="features alone", fix="give one entry per row of X, or a Cohort"
        )
    outcome, known = _columns(y), dict[int, Column]()
    if schema is not None:  # of the table that X and y were taken from
        named = [name if name in schema and name not in frame else "" for name in _names(y)]
        known = {place: schema[name] for place, name in enumerate(named) if name}
        schema = schema.without(column.name for column in known.values())
    label = known.get(len(outcome) - 1)
    if label is not None and label.categories and bounds is None and (classes is None or tuple(classes) == _CLASSES):
        classes, inferred = label.categories, False
    if len(outcome) not in (1, 2) or any(len(column) != len(frame) for column in outcome):
        raise SettingsError(
            "y",
            "must have one entry per row of X: a class, a number, or time and event",
            found=f"{len(outcome)} columns of {', '.join(str(len(column)) for column in outcome)} rows",
        )
    frame[_TARGET] = outcome[-1]
    how: dict[str, Any] = {"target": _TARGET}
    if inferred:
        classes = _classes_of(outcome[-1])
    described = [_described(classes or _CLASSES, bounds)]
    if len(outcome) == 2:
        frame[_TIME] = outcome[0]  # checked with the cohort, whose errors show no value
        described.append(replace(known[0], name=_TIME) if 0 in known else Column(_TIME, "continuous"))
        how = {"time": _TIME, "event": _TARGET}
    if person is not None:
        persons = _columns(person)
        if len(persons) != 1 or len(persons[0]) != len(frame):
            raise SettingsError(
                "person", "must have one entry per row of X", found=f"{len(persons[0]) if persons else 0} rows"
            )
        frame[_PERSON] = persons[0]
        how["person_id"] = _PERSON
    if schema is None:
        features = [name for name in frame.columns if name not in (_TARGET, _TIME, _PERSON)]
        schema = inferred_schema(frame, features, Names(list(frame.columns), ()))
    elif inferred:
        schema = replace(schema, origin="inferred")
    schema = replace(schema, columns=(*schema.columns, *described))
    try:
        return Cohort.from_frame(frame, schema=schema, owned=True, **how)
    except CohortError as error:
        if repr(_TARGET) not in error.what or not described[0].categories:
            raise
        fix = "say the values that it may have (classes=(NO, YES), or a schema with them), or bounds=(low, high)"
        rule = "must hold the known classes only" if "categories" in error.rule else error.rule
        raise CohortError("y", rule, found=error.found, fix=fix) from None


def _names(y: Any) -> list[str]:
    """What the columns of an outcome are called, as far as they are; in the order of `_columns`."""
    if getattr(getattr(y, "dtype", None), "names", None):
        return sorted(y.dtype.names, key=lambda name: y.dtype[name] == np.bool_)
    if hasattr(y, "columns"):
        return list(map(str, y.columns))
    return [str(name)] if (name := getattr(y, "name", None)) is not None else []


def _features(X: Any) -> pd.DataFrame:
    """A frame of any library, or an array, whose columns are then called x0, x1, …"""
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True).set_axis(list(map(str, X.columns)), axis=1)
    if hasattr(X, "columns"):
        return as_frame(X).reset_index(drop=True)
    if not isinstance(X, list) and not hasattr(X, "__array__") and not issparse(X):
        raise SettingsError("X", "must be a table or a Cohort", found=f"a {type(X).__name__}", fix="give a DataFrame")
    try:
        array = check_array(X, dtype=None, ensure_all_finite="allow-nan")
    except (TypeError, ValueError, OverflowError) as error:  # whose further lines quote the array
        said = str(error).split("\n")[0].rstrip(":.")
        known = said.startswith(("Expected 2D", "Complex data", "Found array", "Input", "Sparse data"))
        found = said if known else type(error).__name__
        raise SettingsError("X", "must be a table", found=found, fix="Reshape your data, or give a DataFrame") from None
    return pd.DataFrame(array, columns=[f"x{place}" for place in range(array.shape[1])])


def _classes_of(y: pd.Series[Any]) -> tuple[Any, ...]:
    """The classes that the rows have: the guarantee is conditional then."""
    values = _plain(y.tolist())
    try:
        check_classification_targets(values)
    except (TypeError, ValueError):
        fix = "say classes, or bounds=(low, high) of a number"
        found = "Unknown label type: continuous or mixed values"
        raise SettingsError("y", "must be classes", found=found, fix=fix) from None
    classes = tuple(np.unique(values).tolist())
    if len(classes) < 2:
        raise SettingsError("y", "must have at least two classes", found=f"{len(classes)} class", fix="say classes")
    return classes


def _plain(labels: Sequence[Any]) -> NDArray[Any]:
    """Classes as NumPy has them: texts, numbers or truth values where all are of one type."""
    return np.array(labels) if len({type(label) for label in labels}) == 1 else np.array(labels, dtype=object)


def _columns(given: Any) -> list[pd.Series[Any]]:
    """The columns of what a caller gave, every value as it is: NumPy would make one type of a list's values."""
    if given is None:
        return []
    if isinstance(given, pd.DataFrame):
        return [given.iloc[:, place].reset_index(drop=True) for place in range(given.shape[1])]
    if isinstance(given, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return [pd.Series(given).reset_index(drop=True)]
    if not isinstance(given, list | tuple) and hasattr(given, "__array__"):
        given = np.asarray(given)
    if isinstance(given, np.ndarray) and given.dtype.names:  # scikit-survival's: the event is the one of truth values
        names = sorted(given.dtype.names, key=lambda name: given.dtype[name] == np.bool_)
        return [pd.Series(given[name]) for name in names]
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 1:
        return [pd.Series(column_or_1d(given, warn=True))]
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
