"""Tree models read through Treelite score as their own library does, or are refused with a reason."""

from __future__ import annotations

import pickle
import warnings

import lightgbm
import numpy as np
import pytest
import treelite
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import ensemble as sklearn_ensemble
from sklearn.linear_model import LogisticRegression
from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

from distcondense.errors import ModelError
from distcondense.kernels import walk
from distcondense.models.base import Model
from distcondense.models.trees import below_or_equal, flatten, strictly_below, tree_model
from tests import naive

TOLERANCE = 1e-6  # of float32 scores near 1: the libraries add the same leaves in other orders and widths


def table(seed=0, *, n=300, d=5, missing=0.0):
    rng = np.random.default_rng(seed)
    X = naive.grid_rows(rng, n, d, missing=missing)
    y = (np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) * np.nan_to_num(X[:, 2]) + rng.normal(size=n) > 0).astype(int)
    return X, y


def sklearn_model(name, **kwargs):
    return getattr(sklearn_ensemble, name)(random_state=0, **kwargs)


FOREST = {"n_estimators": 7, "max_depth": 5, "n_jobs": 1}
LIGHT = {"n_estimators": 8, "num_leaves": 12, "min_child_samples": 3, "n_jobs": 1, "verbose": -1}
MODELS = {  # name: (how to make it, its link, whether the library takes missing values)
    "xgboost classifier": (lambda: xgboost.XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1), "probability", True),
    "xgboost dart": (
        lambda: xgboost.XGBClassifier(n_estimators=8, booster="dart", rate_drop=0.3, n_jobs=1), "probability", True,
    ),
    "xgboost forest": (lambda: xgboost.XGBRFClassifier(n_estimators=5, n_jobs=1), "probability", True),
    "xgboost regressor": (lambda: xgboost.XGBRegressor(n_estimators=8, n_jobs=1), "log-risk", True),
    "lightgbm classifier": (lambda: lightgbm.LGBMClassifier(**LIGHT), "probability", True),
    "lightgbm steep sigmoid": (lambda: lightgbm.LGBMClassifier(**LIGHT, sigmoid=0.6), "probability", True),
    "lightgbm forest": (
        lambda: lightgbm.LGBMClassifier(**LIGHT, boosting_type="rf", subsample=0.6, subsample_freq=1),
        "probability", True,
    ),
    "lightgbm regressor": (lambda: lightgbm.LGBMRegressor(**LIGHT), "log-risk", True),
    "random forest": (lambda: sklearn_model("RandomForestClassifier", **FOREST), "probability", True),
    "random forest regressor": (lambda: sklearn_model("RandomForestRegressor", **FOREST), "log-risk", True),
    "extra trees": (lambda: sklearn_model("ExtraTreesClassifier", **FOREST), "probability", True),
    "extra trees regressor": (lambda: sklearn_model("ExtraTreesRegressor", **FOREST), "log-risk", True),
    "gradient boosting": (lambda: sklearn_model("GradientBoostingClassifier", n_estimators=7), "probability", False),
    "gradient boosting regressor": (
        lambda: sklearn_model("GradientBoostingRegressor", n_estimators=7), "log-risk", False,
    ),
    "hist gradient boosting": (
        lambda: sklearn_model("HistGradientBoostingClassifier", max_iter=7), "probability", True,
    ),
    "hist gradient boosting regressor": (
        lambda: sklearn_model("HistGradientBoostingRegressor", max_iter=7), "log-risk", True,
    ),
}  # fmt: skip


def original_scores(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # LightGBM's wrapper misses the column names it made up itself
        return model.predict_proba(X)[:, 1] if hasattr(model, "predict_proba") else model.predict(X)


CASES = [(name, missing) for name in MODELS for missing in (0.0, 0.15) if MODELS[name][2] or not missing]


@pytest.mark.parametrize(("name", "missing"), CASES)
def test_the_flat_trees_score_as_the_library_does(name, missing):
    make, link, _ = MODELS[name]
    X, y = table(missing=missing)
    model = make().fit(X, y)
    reference = tree_model(model)
    # the grid of the rows is also where thresholds lie midway or exactly, and fresh rows fall anywhere
    fresh = np.random.default_rng(1).normal(size=(200, X.shape[1])).astype(np.float32)
    for rows in (X, fresh):
        expected = original_scores(model, rows)
        np.testing.assert_allclose(reference.scores(rows), expected, atol=TOLERANCE)
        np.testing.assert_allclose(walk.scores(reference.ensemble, rows), expected, atol=TOLERANCE)
        assert np.ptp(expected) > 0.1
    assert isinstance(reference, Model)
    assert (reference.link, reference.n_features) == (link, X.shape[1])


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(4, 100),
    d=st.integers(1, 12),
    depth=st.integers(1, 12),
    rounds=st.integers(1, 6),
    missing=st.sampled_from([0.0, 0.3]),
    objective=st.sampled_from(["binary:logistic", "survival:aft", "survival:cox", "reg:squarederror"]),
)
def test_any_xgboost_model_is_read_exactly(seed, n, d, depth, rounds, missing, objective):
    rng = np.random.default_rng(seed)
    X, y = naive.grid_rows(rng, n, d, missing=missing), rng.integers(0, 2, n)
    y[:2] = 0, 1
    data = xgboost.DMatrix(X, label=y, nthread=1)
    if objective == "survival:aft":
        data = xgboost.DMatrix(X, label_lower_bound=y + 1.0, label_upper_bound=y + 1.5, nthread=1)
    params = {"objective": objective, "max_depth": depth, "min_child_weight": 0, "nthread": 1}
    booster = xgboost.train(params, data, rounds)
    reference = tree_model(booster)
    survival = objective.startswith("survival")
    expected = booster.predict(xgboost.DMatrix(X, nthread=1), output_margin=survival)
    np.testing.assert_allclose(reference.scores(X), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(walk.scores(reference.ensemble, X), expected, rtol=1e-6, atol=1e-6)
    assert reference.link == {"survival:aft": "log-time", "binary:logistic": "probability"}.get(objective, "log-risk")


def test_an_early_stopped_wrapper_is_read_up_to_its_best_round():
    X, y = table()
    model = xgboost.XGBClassifier(n_estimators=60, learning_rate=0.9, early_stopping_rounds=3, n_jobs=1)
    model.fit(X[:150], y[:150], eval_set=[(X[150:], y[150:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    reference = tree_model(model)
    assert reference.ensemble.n_trees == model.best_iteration + 1
    np.testing.assert_allclose(reference.scores(X), model.predict_proba(X)[:, 1], atol=TOLERANCE)


def test_a_lightgbm_model_is_read_up_to_its_best_round():
    X, y = table()
    params = {"objective": "binary", "learning_rate": 0.9, "num_threads": 1, "verbose": -1}
    booster = lightgbm.train(params, lightgbm.Dataset(X, y), 10)
    every_round = booster.predict(X)
    booster.best_iteration = 3
    reference = tree_model(booster)
    assert reference.ensemble.n_trees == 3
    np.testing.assert_allclose(walk.scores(reference.ensemble, X), booster.predict(X), atol=TOLERANCE)
    assert np.abs(reference.scores(X) - every_round).max() > 0.01


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=300)
@given(x=FINITE, threshold=st.one_of(FINITE, st.floats(allow_nan=False)), near=st.integers(-2, 2))
def test_float64_thresholds_become_float32_without_changing_a_decision(x, threshold, near):
    # half of the thresholds sit within two float64 neighbours of x, where rounding would go wrong
    if near:
        threshold = float(x)
        for _ in range(abs(near)):
            threshold = float(np.nextafter(threshold, np.inf * near))
    cut = np.array([threshold])
    assert (np.float32(x) < below_or_equal(cut)[0]) == (float(x) <= threshold)
    assert (np.float32(x) < strictly_below(cut)[0]) == (float(x) < threshold)
    assert below_or_equal(cut).dtype == strictly_below(cut).dtype == np.float32


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("default_left", [True, False])
def test_every_comparison_and_default_direction_is_kept(operator, default_left):
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(
            num_feature=1,
            task_type="kRegressor",
            average_tree_output=False,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=TreeAnnotation(num_tree=1, target_id=[0], class_id=[0]),
        postprocessor=PostProcessorFunc(name="identity"),
        base_scores=[0.5],
    )
    builder.start_tree()
    builder.start_node(0)
    builder.numerical_test(
        feature_id=0, threshold=1.0, default_left=default_left, opname=operator, left_child_key=1, right_child_key=2
    )
    builder.end_node()
    for key, value in ((1, 10.0), (2, 20.0)):
        builder.start_node(key)
        builder.leaf(value)
        builder.end_node()
    builder.end_tree()
    X = np.array([[0.0], [1.0], [2.0], [np.nan]], np.float32)
    holds = {"<": X < 1, "<=": X <= 1, ">": X > 1, ">=": X >= 1}[operator][:, 0]
    holds[3] = default_left
    expected = np.where(holds, 10.5, 20.5)
    forest = builder.commit()
    np.testing.assert_array_equal(treelite.gtil.predict(forest, X, nthread=1).ravel(), expected)
    np.testing.assert_array_equal(walk.scores(flatten(forest), X), expected)


def test_children_are_siblings_and_arrays_are_read_only():
    X, y = table()
    trees = tree_model(MODELS["lightgbm classifier"][0]().fit(X, y)).ensemble
    inner = np.flatnonzero(trees.feature >= 0)
    children = np.sort(np.concatenate((trees.left[inner], trees.left[inner] + 1, trees.roots)))
    np.testing.assert_array_equal(children, np.arange(len(trees.feature)))  # each node has one parent or is a root
    with pytest.raises(ValueError, match="read-only"):
        trees.threshold[0] = 1


def test_a_reference_survives_pickling():
    X, y = table()
    for name in ("xgboost classifier", "lightgbm classifier", "random forest"):
        reference = tree_model(MODELS[name][0]().fit(X, y))
        twin = pickle.loads(pickle.dumps(reference))
        np.testing.assert_array_equal(twin.scores(X), reference.scores(X))
        assert twin.fingerprint == reference.fingerprint


def test_the_callers_model_is_left_as_it_was():
    X, y = table()
    model = sklearn_model("RandomForestClassifier", n_estimators=3, n_jobs=2).fit(X, y)
    assert tree_model(model, threads=1).predictor.model.n_jobs == 1
    assert model.n_jobs == 2


def categorical(X, y):
    import pandas

    frame = pandas.DataFrame(X)
    frame[0] = pandas.Categorical((4 * frame[0]).astype(int))
    return xgboost.XGBClassifier(n_estimators=3, enable_categorical=True, max_cat_to_onehot=1, n_jobs=1).fit(frame, y)


REFUSED = {
    "several classes": lambda X, y: xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, np.arange(len(y)) % 3),
    "classes in a forest": lambda X, y: sklearn_model("RandomForestClassifier", n_estimators=2).fit(
        X, np.arange(300) % 3
    ),
    "several targets": lambda X, y: sklearn_model("RandomForestRegressor", n_estimators=2).fit(X, np.c_[y, y]),
    "categorical splits": categorical,
    "counts": lambda X, y: xgboost.XGBRegressor(objective="count:poisson", n_estimators=2, n_jobs=1).fit(X, y),
    "no trees": lambda X, y: LogisticRegression().fit(X, y),
    "linear booster": lambda X, y: xgboost.XGBClassifier(booster="gblinear", n_estimators=2, n_jobs=1).fit(X, y),
    "not fitted": lambda X, y: xgboost.XGBClassifier(),
    "not a model": lambda X, y: object(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_a_way_out(name):
    X, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = REFUSED[name](X, y)
    with pytest.raises(ModelError, match="must") as refusal:
        tree_model(model)
    assert refusal.value.fix


def test_a_regression_is_no_probability():
    X, y = table()
    with pytest.raises(ModelError, match="classifier"):
        tree_model(xgboost.XGBRegressor(n_estimators=2, n_jobs=1).fit(X, y), link="probability")
