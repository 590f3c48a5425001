"""`PrivateModel` as scikit-learn's users take it: in checks, pipelines, cross-validation and searches."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import distcondense as dc
from distcondense.errors import CohortError, DistcondenseWarning

NOISE = "two fits of the same rows differ by privacy noise, which nobody may make repeatable"
EXPECTED = {"check_fit_idempotent": NOISE, "check_supervised_y_2d": NOISE, "check_classifier_data_not_an_array": NOISE}
SCHEMA = dc.Schema((dc.Column("age", "integer", 18, 100), dc.Column("sex", "binary", categories=("f", "m"))))


def patients(n: int = 1500, seed: int = 3) -> tuple[pd.DataFrame, pd.Series[Any]]:
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 101, n)
    died = rng.random(n) < 1 / (1 + np.exp(-(age - 60) / 6))
    return pd.DataFrame({"age": age, "sex": rng.choice(["f", "m"], n)}), pd.Series(died.astype(int))


CHECKS = list(estimator_checks_generator(dc.PrivateModel(trust_inferred_schema=True, classes=None), legacy=True))


@pytest.mark.filterwarnings("ignore")  # their tables are of thirty rows, whose model is noise
@pytest.mark.parametrize(
    ("model", "check"), CHECKS, ids=lambda one: getattr(getattr(one, "func", one), "__name__", "-")
)
def test_scikit_learn_s_own_checks_pass(model: Any, check: Any) -> None:
    if check.func.__name__ in EXPECTED:
        pytest.xfail(EXPECTED[check.func.__name__])
    check(model)


def test_it_works_in_a_pipeline_a_column_transformer_and_cross_validation() -> None:
    X, y = patients()
    kept = ColumnTransformer([("keep", "passthrough", ["age", "sex"])], verbose_feature_names_out=False)
    pipeline = make_pipeline(kept.set_output(transform="pandas"), dc.PrivateModel(schema=SCHEMA, epsilon=4.0))
    assert pipeline.fit(X.assign(note="x"), y).score(X.assign(note="x"), y) > 0.7
    with pytest.warns(DistcondenseWarning, match="no account of these patients is kept"):
        scores = cross_val_score(dc.PrivateModel(schema=SCHEMA, epsilon=4.0), X, y, cv=3, scoring="roc_auc")
    assert scores.min() > 0.8


def test_each_fit_of_a_search_is_charged_and_its_best_model_has_no_guarantee(tmp_path: Path) -> None:
    X, y = patients()
    account = dc.Odometer.create(tmp_path / "account.jsonl")
    model = dc.PrivateModel(schema=SCHEMA, account=account.path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)
        search = GridSearchCV(model, {"epsilon": [2.0, 4.0]}, cv=2).fit(X, y)
    assert len(dc.Odometer(account.path).read().charges) == 5  # two settings in two folds, and the best of them
    best = search.best_estimator_.privacy_
    assert (best.guarantee, best.epsilon) == ("none", None)
    assert "chosen by scores on real rows" in best.paragraph()
    assert "none" in best.short() or "no " in best.short()
    assert dc.PrivateModel(schema=SCHEMA, epsilon=4.0).fit(X, y).privacy_.guarantee == "end-to-end"


def test_the_schema_of_the_whole_table_says_what_the_outcome_may_be() -> None:
    X, y = patients()
    died = y.map({0: "no", 1: "yes"}).rename("died")
    whole = dc.Schema((*SCHEMA.columns, dc.Column("died", "binary", categories=("no", "yes"))))
    model = dc.PrivateModel(schema=whole, epsilon=4.0).fit(X, died)
    assert list(model.classes_) == ["no", "yes"]
    assert model.privacy_.guarantee == "end-to-end"
    assert model.score(X, died) > 0.7
    with pytest.raises(CohortError, match=r"y: must hold the known classes only.*1500 rows.*classes=\(NO, YES\)"):
        dc.PrivateModel(schema=SCHEMA).fit(X, died)
    with pytest.raises(CohortError, match="1 missing: 'died'"):  # nobody said that it is the outcome
        dc.PrivateModel(schema=whole).fit(X, y.rename(None))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        array = model.predict_proba(X.to_numpy())
    np.testing.assert_array_equal(array, model.predict_proba(X))


def test_lifelines_columns_are_an_outcome_and_the_schema_says_the_horizon() -> None:
    X, y = patients(2000)
    outcome = pd.DataFrame({"months": np.where(y, 7.0, 24.0), "died": y})
    times = dc.Column("months", "continuous", low=0, high=24)
    whole = dc.Schema((*SCHEMA.columns, times, dc.Column("died", "binary", categories=(0, 1))))
    model = dc.PrivateModel(schema=whole, epsilon=6.0).fit(X, outcome)
    assert model.unique_times_[-1] == 24
    assert model.score(X, outcome) > 0.6


def test_rows_out_of_bounds_are_predicted_as_the_nearest_legal_ones() -> None:
    X, y = patients()
    model = dc.PrivateModel(schema=SCHEMA, epsilon=4.0).fit(X, y)
    beyond = pd.DataFrame({"age": [100, 250], "sex": ["f", "f"]})
    first, second = model.predict_proba(beyond)
    np.testing.assert_array_equal(first, second)


def test_survival_is_that_of_scikit_survival() -> None:
    from sksurv.metrics import concordance_index_censored
    from sksurv.util import Surv

    rng = np.random.default_rng(8)
    X, _ = patients(3000)
    time = np.minimum(rng.exponential(40 / np.exp((X["age"] - 60) / 20)), 30.0)
    y = Surv.from_arrays(event=time < 30, time=time)
    model = dc.PrivateModel(schema=SCHEMA, epsilon=6.0, horizon=30.0).fit(X, y)
    curves = model.predict_survival_function(X[:4])
    array = model.predict_survival_function(X[:4], return_array=True)
    assert array.shape == (4, len(model.unique_times_))
    for curve, row in zip(curves, array, strict=True):
        np.testing.assert_allclose(curve(model.unique_times_), row)
        assert curve(0.0) == 1.0
        assert curve.domain == (0.0, 30.0)
    np.testing.assert_allclose(model.predict_survival_function(X[:4], [12.0])[:, 0], [c(12.0) for c in curves])
    theirs = concordance_index_censored(y["event"], y["time"], model.predict(X))[0]
    assert model.score(X, y) == pytest.approx(theirs, abs=1e-3)
    assert theirs > 0.6
