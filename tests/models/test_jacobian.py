"""`jacobian`: every path gives the same finite differences, on the cases where they could part."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace

import numba
import numpy as np
import pytest
import xgboost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier

from distcondense.errors import DistcondenseWarning, ModelError, SettingsError
from distcondense.models import compiled
from distcondense.models.base import BlackBox
from distcondense.models.jacobian import jacobian
from distcondense.models.trees import tree_model
from tests import naive

FEW = 6 if numba.config.DISABLE_JIT else 0  # examples where the kernels are plain Python


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def boosted(X, y, *, rounds=10, objective="binary:logistic", **settings):
    """A small XGBoost model on exact splits, one thread."""
    params = {"objective": objective, "nthread": 1, "tree_method": "exact", "eta": 0.3, **settings}
    if objective == "survival:aft":
        data = xgboost.DMatrix(X, label_lower_bound=y + 1.0, label_upper_bound=y + 1.0, nthread=1)
    else:
        data = xgboost.DMatrix(X, label=y, nthread=1)
    return xgboost.train(params, data, rounds)


def problem(seed=0, *, n=200, m=12, d=6, missing=0.0):
    """Training rows, labels, rows to differentiate at and steps, all on the grid ¼ℤ: thresholds are hit exactly."""
    rng = np.random.default_rng(seed)
    A = naive.grid_rows(rng, n, d, missing=missing)
    signal = np.nan_to_num(A[:, 0]) + np.nan_to_num(A[:, min(1, d - 1)]) * np.nan_to_num(A[:, -1])
    y = (signal + rng.normal(size=n) > 0).astype(np.float32)
    y[:2] = 0, 1
    return A, y, naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)


def assert_agree(reference, X, steps, paths, **kwargs):
    """float32 scores have an error near 1e-7 each, which the quotient divides by 2ε."""
    J = jacobian(reference, X, steps, "structured")
    size = max(1.0, float(np.abs(reference.scores(X)).max()))
    for path in paths:
        other = jacobian(reference, X, steps, path, **kwargs)
        assert other.dtype == np.float32
        assert other.shape == X.shape
        worst = np.abs(other - J) * steps
        assert worst.max() < 1e-6 * size, path
    return J


@pytest.mark.parametrize("objective", ["binary:logistic", "survival:aft", "reg:squarederror"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_all_paths_agree(objective, missing):
    A, y, X, steps = problem(missing=missing)
    reference = tree_model(boosted(A, y, objective=objective, max_depth=4))
    J = assert_agree(reference, X, steps, ("compiled", "blocked", "naive"), memory_budget=5000)
    assert 0.1 < np.mean(J != 0) < 1
    assert (J[np.isnan(X)] == 0).all()


@pytest.mark.parametrize("depth", [1, 2, 6, 12])
def test_all_paths_agree_at_every_depth(depth):
    A, y, X, steps = problem(depth, n=400)
    reference = tree_model(boosted(A, y, max_depth=depth, min_child_weight=0, rounds=3))
    paths = ("compiled", "blocked", "naive") if depth in (1, 12) else ("blocked", "naive")
    assert np.any(assert_agree(reference, X, steps, paths))


@settings(deadline=None, max_examples=FEW or 25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(5, 80),
    m=st.integers(1, 8),
    d=st.integers(1, 30),
    depth=st.integers(1, 12),
    rounds=st.integers(1, 4),
    missing=st.sampled_from([0.0, 0.3]),
    constant=st.booleans(),
)
def test_structured_blocked_and_naive_agree_on_any_model(seed, n, m, d, depth, rounds, missing, constant):
    A, y, X, steps = problem(seed, n=n, m=m, d=d, missing=missing)
    if constant:
        A[:, 0] = X[:, 0] = 1
    reference = tree_model(boosted(A, y, max_depth=depth, rounds=rounds, min_child_weight=0))
    J = assert_agree(reference, X, steps, ("blocked", "naive"), memory_budget=3000)
    if constant:
        assert (J[:, 0] == 0).all()


def test_landing_exactly_on_a_threshold_counts_as_not_below():
    A = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
    reference = tree_model(boosted(A, np.float32([0, 0, 1, 1]), max_depth=1, rounds=1, min_child_weight=0))
    cut = float(reference.ensemble.threshold[0])
    X = np.array([[cut - 0.25], [cut - 0.5], [cut], [cut + 0.25]], np.float32)
    J = assert_agree(reference, X, np.float32([0.25]), ("compiled", "blocked", "naive"))
    # x + ε = t goes right, so row 0 moves; row 1 does not reach t; row 2 leaves by −ε; row 3 lands on t and stays
    np.testing.assert_array_equal(J[:, 0] != 0, [True, False, True, False])


def test_three_thousand_features_and_one_row():
    rng = np.random.default_rng(3)
    A, X = rng.normal(size=(60, 3000)).astype(np.float32), rng.normal(size=(1, 3000)).astype(np.float32)
    y = (A[:, 7] > 0).astype(np.float32)
    reference = tree_model(boosted(A, y, max_depth=3, rounds=5, colsample_bytree=0.1))
    steps = rng.uniform(0.025, 2, 3000).astype(np.float32)
    J = assert_agree(reference, X, steps, ("compiled", "blocked", "naive"))
    assert 0 < np.count_nonzero(J) < 60


def test_float64_libraries_agree_through_the_compiled_path_too():
    A, y, X, steps = problem(5)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0, n_jobs=1).fit(A, y)
    assert_agree(tree_model(forest), X, steps, ("compiled", "blocked", "naive"))


def test_raw_models_are_wrapped():
    A, y, X, steps = problem()
    booster = boosted(A, y)
    expected = jacobian(tree_model(booster), X, steps)
    np.testing.assert_array_equal(jacobian(booster, X, steps), expected)
    as_function = jacobian(lambda rows: booster.inplace_predict(rows), X, steps)
    np.testing.assert_allclose(as_function, expected, atol=4e-6)
    assert not np.array_equal(as_function, np.zeros_like(expected))


@dataclass(frozen=True)
class Line:
    """A linear score, as a Cox model has it."""

    coefficients: np.ndarray
    name: str = "line"
    link: str = "log-risk"

    @property
    def n_features(self) -> int:
        return len(self.coefficients)

    def scores(self, rows):
        return (rows.astype(np.float64) @ self.coefficients).astype(np.float32)


def test_a_linear_score_takes_its_closed_form():
    line = Line(np.array([0.5, -2.0, 0.0]))
    X, steps = np.random.default_rng(0).normal(size=(4, 3)), np.array([0.1, 1, 2])
    J = jacobian(line, X, steps)
    np.testing.assert_array_equal(J, np.tile(np.float32([0.5, -2, 0]), (4, 1)))
    for path in ("blocked", "naive"):
        np.testing.assert_allclose(jacobian(line, X, steps, path), J, atol=1e-5)


@settings(deadline=None, max_examples=FEW or 20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    m=st.integers(1, 20),
    d=st.integers(1, 30),
    depth=st.integers(1, 6),
    missing=st.sampled_from([0.0, 0.3]),
    path=st.sampled_from(["auto", "structured", "blocked", "naive"]),
)
def test_the_sparse_form_is_the_dense_one_on_any_model(seed, m, d, depth, missing, path):
    A, y, X, steps = problem(seed, m=m, d=d, missing=missing)
    reference = tree_model(boosted(A, y, max_depth=depth, rounds=3, min_child_weight=0))
    sparse, dense = jacobian(reference, X, steps, path, form="csr"), jacobian(reference, X, steps, path)
    assert (sparse.format, sparse.shape, sparse.dtype) == ("csr", dense.shape, np.float32)
    assert sparse.nnz == np.count_nonzero(dense)
    assert sparse.has_canonical_format
    np.testing.assert_array_equal(sparse.toarray(), dense)


def test_the_sparse_form_makes_no_dense_array(monkeypatch):
    A, y, X, steps = problem()
    reference = tree_model(boosted(A, y))
    expected = jacobian(reference, X, steps)

    def never(*_args, **_kwargs):
        raise AssertionError("a dense Jacobian was made")

    monkeypatch.setattr(sys.modules[jacobian.__module__], "_dense", never)  # the name on the package is the function
    np.testing.assert_array_equal(jacobian(reference, X, steps, form="csr").toarray(), expected)


def test_a_linear_score_and_a_black_box_have_a_sparse_form_too():
    X, steps = np.random.default_rng(0).normal(size=(4, 3)), np.array([0.1, 1, 2])
    assert jacobian(Line(np.array([0.5, -2.0, 0.0])), X, steps, form="csr").nnz == 8
    assert jacobian(lambda rows: rows[:, 0], X, steps, form="csr").nnz == 4


def test_a_black_box_is_asked_in_batches_within_the_budget():
    sizes = []

    def model(rows):
        sizes.append(rows.nbytes)
        return np.tanh(rows).sum(axis=1)

    X, steps = np.random.default_rng(0).normal(size=(40, 9)).astype(np.float32), np.full(9, 0.01, np.float32)
    J = jacobian(model, X, steps, memory_budget=2 * X.nbytes * 4)
    assert max(sizes) == 2 * X.nbytes * 4  # four columns at a time
    assert len(sizes) == 3
    np.testing.assert_allclose(J, 1 / np.cosh(X) ** 2, atol=2e-3)
    sizes.clear()
    np.testing.assert_allclose(jacobian(model, X, steps, memory_budget=1000), J, atol=1e-6)
    assert max(sizes) <= 1000


def test_a_black_box_cannot_spoil_the_batch():
    def vandal(rows):
        rows *= 0
        return rows[:, 0]

    with pytest.raises(ValueError, match="read-only"):
        jacobian(vandal, np.ones((3, 2), np.float32), np.ones(2), "blocked")


def test_features_the_model_never_uses_are_not_evaluated(monkeypatch):
    A, y, X, steps = problem(d=8)
    reference = tree_model(boosted(A[:, :8], y, max_depth=1, rounds=1))
    calls = []
    real = compiled.CompiledPredictor.__call__

    def counted(self, rows):
        calls.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(compiled.CompiledPredictor, "__call__", counted)
    jacobian(reference, X, steps, "compiled")
    assert sum(calls) == 2 * len(X) + 2 * compiled.TRIED  # and what a compiled model is tried on


def test_a_tree_model_asked_in_batches_is_asked_about_columns_that_it_tests_only():
    A, y, X, steps = problem(d=8)
    reference = tree_model(boosted(A, y, max_depth=1, rounds=2))
    counted = []
    trees = replace(reference, predictor=lambda rows: counted.append(len(rows)) or reference.predictor(rows))
    some = jacobian(trees, X, steps, "blocked")
    assert sum(counted) == 2 * len(X) * len(reference.ensemble.used) < 2 * X.size
    np.testing.assert_array_equal(some, jacobian(BlackBox(reference.scores, "probability", 8), X, steps, "naive"))


def test_without_a_compiler_the_interpreter_answers_and_a_warning_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "find_toolchain", lambda: None)
    A, y, X, steps = problem(11, missing=0.1)
    reference = tree_model(boosted(A, y))
    with pytest.warns(DistcondenseWarning, match="compiler"):
        assert_agree(reference, X, steps, ("compiled",))
    assert not list(tmp_path.rglob("*.so"))


def test_without_tl2cgen_the_interpreter_answers_too(monkeypatch):
    monkeypatch.setattr(compiled, "find_spec", lambda name: None)
    A, y, X, steps = problem(13)
    with pytest.warns(DistcondenseWarning, match="not installed"):
        assert_agree(tree_model(boosted(A, y)), X, steps, ("compiled",))


def test_a_compiled_library_is_made_once(monkeypatch, tmp_path):
    import tl2cgen

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    A, y, X, steps = problem(12)
    booster = boosted(A, y, rounds=2)
    first = jacobian(booster, X, steps, "compiled")
    assert len(list(tmp_path.rglob("*.so"))) == 1

    def never(*_args, **_kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr(tl2cgen, "export_lib", never)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistcondenseWarning)
        np.testing.assert_array_equal(jacobian(booster, X, steps, "compiled"), first)
        with pytest.raises(DistcondenseWarning, match="compiled again"):  # another model is another library
            jacobian(boosted(A, 1 - y, rounds=2), X, steps, "compiled")


def test_tl2cgen_reads_a_newer_treelite_without_a_word_and_the_same_trees(monkeypatch, tmp_path, capfd):
    import treelite

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    A, y, X, steps = problem(14, missing=0.1)
    assert_agree(tree_model(boosted(A, y)), X, steps, ("compiled",))
    said = capfd.readouterr()
    assert "ersion" not in said.out + said.err  # "originated from a newer Treelite version"
    forest = treelite.Model.deserialize_bytes(tree_model(boosted(A, y)).treelite_bytes)
    own, known = forest.serialize_bytes(), compiled.AsKnown(forest).serialize_bytes()
    assert own[12:] == known[12:]
    assert tuple(np.frombuffer(known[:12], np.int32)) == compiled.KNOWN


def test_a_compiled_model_that_scores_otherwise_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    A, y, X, steps = problem(15)
    reference, real = tree_model(boosted(A, y)), compiled._load

    class Off:
        def __init__(self, engine):
            self.engine = engine

        def predict(self, *rows, **how):
            return self.engine.predict(*rows, **how) + 0.01

    monkeypatch.setattr(compiled, "_load", lambda *asked: Off(real(*asked)))
    with pytest.warns(DistcondenseWarning, match="scores otherwise"):
        assert_agree(reference, X, steps, ("compiled",))


@pytest.mark.parametrize("steps", [[0.0, 1.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf], [1.0], [1e-60, 1.0]])
def test_steps_must_be_finite_and_above_zero(steps):
    with pytest.raises(SettingsError, match="steps"):
        jacobian(lambda rows: rows[:, 0], np.ones((3, 2), np.float32), steps)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"path": "fast"}, "path"),
        ({"path": "structured"}, "path"),
        ({"path": "compiled"}, "path"),
        ({"form": "coo"}, "form"),
        ({"threads": 0}, "threads"),
        ({"memory_budget": 0}, "memory_budget"),
    ],
)
def test_settings_outside_their_range_are_named(settings, named):
    with pytest.raises(SettingsError, match=named):
        jacobian(lambda rows: rows[:, 0], np.ones((3, 2), np.float32), np.ones(2), **settings)


def test_rows_of_another_width_and_things_that_are_no_model_are_refused():
    box = BlackBox(lambda rows: rows[:, 0], "probability", n_features=3)
    with pytest.raises(SettingsError, match="3 features"):
        jacobian(box, np.ones((3, 2), np.float32), np.ones(2))
    with pytest.raises(SettingsError, match="two dimensions"):
        jacobian(box, np.ones(3, np.float32), np.ones(3))
    with pytest.raises(ModelError, match="Found str"):
        jacobian("xgb", np.ones((3, 2), np.float32), np.ones(2))
