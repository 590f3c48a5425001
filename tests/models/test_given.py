"""Fitted models of any library as references, by their own predict methods."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.errors import ModelError
from distcondense.models.base import BlackBox, EnsembleModel
from distcondense.models.references import LEAST_HAZARD, in_model_space, own_scores
from distcondense.models.support_vectors import support_vectors
from tests.conftest import SMALL_TABLE, small_frame

ROWS = 160
SURVIVAL = ("log-risk", "log-time")


@pytest.fixture(scope="module")
def binary() -> Cohort:
    return Cohort.from_frame(small_frame(ROWS), target="died", ignore=["months", "event"], schema=SMALL_TABLE)


@pytest.fixture(scope="module")
def survival() -> Cohort:
    return Cohort.from_frame(small_frame(ROWS), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)


def codec_of(cohort: Cohort) -> Codec:
    return Codec.fit(cohort.features, cohort.schema, keep_constant=True)


def reference(model: Any, cohort: Cohort, link: str | None = None, **more: Any) -> Any:
    kind = cohort.outcome.kind
    return in_model_space(model, codec_of(cohort), kind.links, link, labels=kind.labels, **more)


def scored(model: Any, cohort: Cohort) -> np.ndarray:
    """The reference's scores of the cohort's own rows, through the engine's space."""
    return model.scores(codec_of(cohort).encode(cohort.features))


# -- two classes ------------------------------------------------------------------------------------------------------


def classifiers() -> dict[str, Any]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    return {
        "network": MLPClassifier((4,), max_iter=30, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "logistic": LogisticRegression(max_iter=500),
        "one tree": DecisionTreeClassifier(max_depth=3, random_state=0),
        "forest": RandomForestClassifier(5, max_depth=3, random_state=0),
    }


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("name", list(classifiers()))
def test_a_fitted_classifier_passes_by_its_own_probabilities(name: str, framed: bool, binary: Cohort) -> None:
    table = dc.design(binary) if framed else dc.design(binary).to_numpy(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network that was not trained to its end
        model = classifiers()[name].fit(table, binary.outcome["label"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that was fitted to a frame gets one
        found = reference(model, binary)
        mine = scored(found, binary)
    assert found.link == "probability"
    assert isinstance(found, EnsembleModel if name == "forest" else BlackBox)  # what Treelite reads, by its trees
    own = model.predict_proba(table)[:, 1]
    assert np.allclose(mine, own, atol=1e-4)


def test_a_machine_of_support_vectors_without_probabilities_gives_the_logistic_of_its_decision(binary: Cohort) -> None:
    from sklearn.svm import SVC

    table = dc.design(binary).to_numpy(np.float32)
    model = SVC().fit(table, binary.outcome["label"])
    expected = 1 / (1 + np.exp(-model.decision_function(table)))
    assert np.allclose(scored(reference(model, binary), binary), expected, atol=1e-4)


def test_lightgbm_that_splits_on_categories_answers_by_itself(binary: Cohort) -> None:
    import lightgbm

    table = dc.design(binary).to_numpy(np.float32)
    how: dict[str, Any] = {"n_estimators": 5, "verbosity": -1, "n_jobs": 1, "min_child_samples": 5}
    plain = lightgbm.LGBMClassifier(**how).fit(table, binary.outcome["label"])
    assert isinstance(reference(plain, binary), EnsembleModel)
    at = list(dc.design(binary).columns).index("age")
    split = lightgbm.LGBMClassifier(**how, min_data_per_group=1, cat_smooth=0.1, max_cat_to_onehot=1)
    split.fit(table, binary.outcome["label"], categorical_feature=[at])
    found = reference(split, binary)
    assert isinstance(found, BlackBox)
    assert np.allclose(scored(found, binary), split.predict_proba(table)[:, 1], atol=1e-4)


@pytest.mark.parametrize("framed", [False, True])
def test_catboost_itself_where_it_is_installed(framed: bool, binary: Cohort) -> None:
    catboost = pytest.importorskip("catboost", reason="catboost is no dependency: pip install catboost")
    table = dc.design(binary) if framed else dc.design(binary).to_numpy(np.float32)
    model = catboost.CatBoostClassifier(iterations=10, depth=3, verbose=0, allow_writing_files=False)
    found = reference(model.fit(table, binary.outcome["label"]), binary)
    assert found.link == "probability"
    assert np.allclose(scored(found, binary), model.predict_proba(table)[:, 1], atol=1e-4)


class LikeCatBoost:
    """The methods of a fitted CatBoostClassifier, whose library need not be there: classes may be words."""

    def __init__(self, classes: tuple[Any, ...] = (0, 1)) -> None:
        self.classes_ = np.array(classes)

    def predict_proba(self, rows: Any) -> np.ndarray:
        p = 1 / (1 + np.exp(-(np.asarray(rows)[:, 0] - 60) / 10))
        return np.stack([1 - p, p], axis=1)

    def predict(self, rows: Any) -> np.ndarray:
        raise AssertionError("a classifier is asked for probabilities")


def test_any_object_with_probabilities_is_a_model_and_words_say_which_class_is_meant(binary: Cohort) -> None:
    codec, rows = codec_of(binary), codec_of(binary).encode(binary.features)
    first = LikeCatBoost().predict_proba(rows.astype(np.float64) * codec.scale + codec.centre)[:, 1]
    for classes, labels, share in (
        ((0, 1), (0, 1), first),
        (("alive", "dead"), ("alive", "dead"), first),
        (("alive", "dead"), ("dead", "alive"), 1 - first),  # the positive value is the model's first class
        ((0, 1), ("no", "yes"), first),  # codes: the second is the positive one
    ):
        found = in_model_space(LikeCatBoost(classes), codec, ("probability",), None, labels=labels)
        assert np.allclose(found.scores(rows), share, atol=1e-5)
        assert found.name == "LikeCatBoost"


def tree_libraries() -> dict[str, Any]:
    import lightgbm
    import xgboost
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier

    return {
        "xgboost": xgboost.XGBClassifier(n_estimators=20, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=20, verbosity=-1, n_jobs=1, min_child_samples=5),
        "forest": RandomForestClassifier(10, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=20, random_state=0),
        "histograms": HistGradientBoostingClassifier(max_iter=20, random_state=0),
    }


@pytest.mark.parametrize("name", list(tree_libraries()))
def test_every_value_of_a_table_goes_where_the_library_sends_it(name: str) -> None:
    """XGBoost splits at values, LightGBM's categories at 1e-35: standardising must not move a value across."""
    cohort = Cohort.from_frame(small_frame(900), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    table = dc.design(cohort).to_numpy(np.float32)
    model = tree_libraries()[name].fit(table, cohort.outcome["label"])
    own = model.predict_proba(table)[:, 1]
    found = reference(model, cohort)
    assert isinstance(found, EnsembleModel)
    assert np.allclose(scored(found, cohort), own, atol=1e-5)
    opaque = reference(lambda rows: model.predict_proba(rows)[:, 1], cohort)
    assert np.allclose(scored(opaque, cohort), own, atol=1e-5)


# -- survival ---------------------------------------------------------------------------------------------------------


def survivors(cohort: Cohort) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    return dc.design(cohort), np.asarray(cohort.outcome["time"], float), cohort.outcome["label"] == 1


def test_cox_models_of_lifelines_and_scikit_survival_give_their_log_risk(survival: Cohort) -> None:
    from lifelines import CoxPHFitter
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    table, time, event = survivors(survival)
    model = CoxPHFitter(penalizer=0.1).fit(table.assign(_t=time, _e=event), "_t", "_e")
    found = reference(model, survival)
    assert found.link == "log-risk"
    assert np.allclose(scored(found, survival), model.predict_log_partial_hazard(table), atol=1e-3)
    for framed in (table, table.to_numpy()):
        other = CoxPHSurvivalAnalysis(alpha=1.0).fit(framed, Surv.from_arrays(event, time))
        found = reference(other, survival)
        assert found.link == "log-risk"
        assert np.allclose(scored(found, survival), other.predict(framed), atol=1e-3)


def test_models_of_times_give_their_logarithm_in_the_unit_of_the_run(survival: Cohort) -> None:
    from lifelines import WeibullAFTFitter
    from sksurv.linear_model import IPCRidge
    from sksurv.util import Surv

    table, time, event = survivors(survival)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lifelines on columns that nearly say the same
        parametric = WeibullAFTFitter(penalizer=0.1).fit(table.assign(_t=time, _e=event), "_t", "_e")
    ridge = IPCRidge(alpha=1.0).fit(table, Surv.from_arrays(event, time))
    for model, times in ((parametric, parametric.predict_median(table)), (ridge, ridge.predict(table))):
        found = reference(model, survival, unit=7.0)
        assert found.link == "log-time"
        assert np.allclose(scored(found, survival), np.log(np.asarray(times, float) / 7.0), atol=1e-3)


def test_a_survival_forest_gives_the_logarithm_of_the_events_it_expects(survival: Cohort) -> None:
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    table, time, event = survivors(survival)
    model = RandomSurvivalForest(5, max_depth=3, random_state=0).fit(table.to_numpy(), Surv.from_arrays(event, time))
    found = reference(model, survival)
    assert found.link == "log-risk"
    expected = np.log(np.maximum(model.predict(table.to_numpy()), LEAST_HAZARD))
    assert np.allclose(scored(found, survival), expected, atol=1e-4)


def test_a_run_against_a_network_ends_and_names_it(binary: Cohort) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = classifiers()["network"].fit(dc.design(binary), binary.outcome["label"])
    how: dict[str, Any] = {"method": "published", "noise": False, "ipc": 5, "steps": 3, "threads": 1}
    assert dc.condense(binary, reference=model, **how).internal["reference"] == "MLPClassifier"


def test_the_jacobian_of_a_fitted_model_is_that_of_its_probabilities() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    model = LogisticRegression().fit(rows, rows[:, 0] > 0)
    mine = dc.jacobian(model, rows[:4], [0.5, 0.5, 0.5])
    theirs = dc.jacobian(lambda at: model.predict_proba(at)[:, 1], rows[:4], [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(mine, theirs)


# -- what cannot be used ----------------------------------------------------------------------------------------------


def test_a_model_of_three_classes_or_none_or_of_other_columns_is_refused_in_words(
    binary: Cohort, survival: Cohort
) -> None:
    from sklearn.linear_model import LinearRegression, LogisticRegression

    table = dc.design(binary).to_numpy(np.float32)
    three = LogisticRegression(max_iter=500).fit(table, np.arange(ROWS) % 3)
    line = LinearRegression().fit(table, binary.outcome["label"])
    short = LogisticRegression().fit(table[:, :2], binary.outcome["label"])
    other = LogisticRegression().fit(dc.design(binary).rename(columns={"age": "years"}), binary.outcome["label"])
    for model, cohort, link, told in (
        (three, binary, None, "one score per row"),
        (line, binary, "probability", "must be a classifier"),
        (short, binary, None, "2 columns"),
        (other, binary, None, "dc.design"),
        (LogisticRegression(), binary, None, "must be fitted"),
        (line, survival, None, "must say what its scores are"),
        (3, binary, None, "callable"),
    ):
        with pytest.raises(ModelError, match=told) as refusal:
            reference(model, cohort, link)
        assert refusal.value.fix or told in ("2 columns",)
    assert reference(line, survival, "log-time").link == "log-time"  # said by the caller
    assert own_scores(object(), ["a"]) is None


@pytest.mark.parametrize("made", ["probable", "balanced", "nu", "plain"])
def test_support_vectors_by_one_product_say_what_libsvm_says(made: str) -> None:
    from sklearn.svm import SVC, NuSVC

    rng = np.random.default_rng(0)
    rows, others = (rng.normal(size=(n, 12)).astype(np.float32) for n in (150, 400))
    label = (rows[:, :4].sum(1) + rng.normal(size=len(rows)) > 0.8).astype(int)
    model = {
        "probable": SVC(probability=True, gamma=0.02),
        "balanced": SVC(probability=True, class_weight="balanced"),
        "nu": NuSVC(probability=True, nu=0.3),
        "plain": SVC(C=30.0),
    }[made]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn would have its probabilities made otherwise
        model.fit(rows, label)
    found = support_vectors(model)
    assert found is not None
    np.testing.assert_allclose(found[0](others), model.decision_function(others), atol=1e-9)
    assert (found[1] is None) == (made == "plain")
    if found[1] is not None:
        np.testing.assert_allclose(found[1](others), model.predict_proba(others), atol=1e-9)


def test_support_vectors_of_another_kind_or_whose_numbers_differ_answer_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    label = (rows[:, 0] > 0).astype(int)
    assert support_vectors(SVC(kernel="linear").fit(rows, label)) is None
    assert support_vectors(SVC().fit(rows, (rows[:, 1] > 0) + label)) is None  # three classes
    model = SVC().fit(rows, label)
    monkeypatch.setattr(model, "decision_function", lambda some: np.zeros(len(some)))  # as another libsvm might
    assert support_vectors(model) is None
