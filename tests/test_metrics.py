"""Every measure against its naive twin, scikit-learn and lifelines; the bootstrap, and scores as JSON holds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.outcome import Outcome, kinds
from distcondense.evaluate.score import Score, bootstrap, find
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.measures import (
    TITLES,
    AurocSample,
    CIndexSample,
    ConfusionSample,
    ErrorSample,
    MacroAurocSample,
    auroc,
    best_threshold,
    c_index,
    title,
)
from tests import naive


@st.composite
def samples(draw):
    n = draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    label = rng.integers(0, 2, n).astype(np.int8)
    score = rng.integers(0, draw(st.integers(1, 20)), n).astype(float)
    time = rng.integers(1, draw(st.integers(2, 20)), n).astype(float)
    return label, score, time, rng.integers(0, 4, n).astype(float)


@given(samples())
def test_weighted_auroc_counts_pairs(case):
    label, score, _, weight = case
    assert AurocSample(label, score)(weight) == pytest.approx(naive.auroc(label, score, weight), nan_ok=True)


@given(samples())
def test_weighted_c_index_counts_comparable_pairs(case):
    event, risk, time, weight = case
    assert CIndexSample(time, event, risk)(weight) == pytest.approx(
        naive.c_index(time, event, risk, weight), nan_ok=True
    )


def test_the_libraries_agree_on_a_larger_sample_with_ties():
    from lifelines.utils import concordance_index
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    label, score, time = (
        rng.integers(0, 2, 2000).astype(np.int8),
        rng.integers(0, 50, 2000) / 7,
        rng.integers(1, 90, 2000) * 1.0,
    )
    assert auroc(label, score) == pytest.approx(roc_auc_score(label, score), abs=1e-12)
    assert c_index(time, label, score) == pytest.approx(concordance_index(time, -score, label), abs=1e-12)


def test_no_cases_means_no_number():
    assert np.isnan(auroc(np.zeros(4, np.int8), np.arange(4.0)))
    assert np.isnan(c_index(np.arange(1, 5.0), np.zeros(4, np.int8), np.arange(4.0)))


@given(samples())
def test_the_threshold_maximises_sensitivity_plus_specificity(case):
    label, score, _, _ = case
    if label.min() == label.max():
        return

    def youden(cut):
        flagged = score >= cut
        return flagged[label == 1].mean() - flagged[label == 0].mean()

    assert youden(best_threshold(label, score)) == pytest.approx(max(youden(cut) for cut in np.unique(score)))


def test_the_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(100):
        label = (rng.random(150) < 0.4).astype(np.int8)
        score = rng.normal(size=150) + label  # the true AUROC is Φ(1/√2) = 0.7602
        found = bootstrap({"auroc": AurocSample(label, score)}, 150, seed=trial, resamples=200)["auroc"]
        hits += found.low <= 0.7602 <= found.high
    assert 85 <= hits <= 100


def test_rows_of_one_person_are_resampled_together():
    label = np.tile([0, 1], 50).astype(np.int8)
    score = np.random.default_rng(0).normal(size=100) + label
    alone = bootstrap({"a": AurocSample(label, score)}, 100, seed=0)["a"]
    paired = bootstrap(
        {"a": AurocSample(np.repeat(label, 4), np.repeat(score, 4))}, 400, seed=0, person=np.repeat(np.arange(100), 4)
    )["a"]
    naive_rows = bootstrap({"a": AurocSample(np.repeat(label, 4), np.repeat(score, 4))}, 400, seed=0)["a"]
    assert paired.high - paired.low == pytest.approx(alone.high - alone.low, rel=0.05)
    assert naive_rows.high - naive_rows.low < 0.7 * (alone.high - alone.low)


def test_measures_at_a_threshold_are_shares_of_the_confusion_matrix():
    outcome = Outcome(Binary(("y",)), {"label": np.array([1, 1, 1, 0, 0], np.int8)})
    found = outcome.kind.samples("probability", np.array([0.9, 0.8, 0.1, 0.7, 0.2]), outcome, 0.5)
    values = {name: measure(None) for name, measure in found.items()}
    assert values["sensitivity"] == pytest.approx(2 / 3)
    assert values["specificity"] == pytest.approx(1 / 2)
    assert values["ppv"] == pytest.approx(2 / 3)
    assert values["npv"] == pytest.approx(1 / 2)


# -- several classes, and numbers -------------------------------------------------------------------------------------


@st.composite
def classes(draw):
    """Labels, probabilities with ties, decisions and bootstrap counts; classes may be absent, weights may be 0."""
    n, k = draw(st.integers(2, 25)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    label = rng.integers(0, draw(st.integers(1, k)), n)
    probabilities = rng.integers(1, draw(st.integers(2, 12)), (n, k)).astype(float)
    probabilities /= probabilities.sum(1, keepdims=True)
    return label, probabilities, rng.integers(0, k, n), rng.integers(0, 4, n).astype(float)


@given(classes())
def test_weighted_measures_of_classes_are_those_of_their_slow_twins(case):
    label, probabilities, decided, weight = case
    k = probabilities.shape[1]
    for w in (None, weight):
        ones = np.ones(len(label)) if w is None else w
        assert MacroAurocSample(label, probabilities)(w) == pytest.approx(
            naive.macro_auroc(label, probabilities, ones), nan_ok=True
        )
        assert ConfusionSample(label, decided, k, f1=False)(w) == pytest.approx(
            naive.balanced_accuracy(label.tolist(), decided.tolist(), ones), nan_ok=True
        )
        assert ConfusionSample(label, decided, k, f1=True)(w) == pytest.approx(
            naive.macro_f1(label.tolist(), decided.tolist(), ones), nan_ok=True
        )


@given(samples(), st.sampled_from(["r2", "rmse", "mae"]))
def test_weighted_measures_of_numbers_are_those_of_their_slow_twins(case, measure):
    _, predicted, value, weight = case
    for w in (None, weight):
        ones = np.ones(len(value)) if w is None else w
        found = ErrorSample(value, predicted, measure)(w)
        assert found == pytest.approx(naive.error_of(value, predicted, ones, measure), nan_ok=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_agrees_on_classes_and_numbers(weighted):
    from sklearn import metrics

    rng = np.random.default_rng(3)
    n, k = 1500, 4
    label = np.append(np.arange(k), rng.choice(k, n - k, p=[0.6, 0.3, 0.08, 0.02]))
    probabilities = rng.dirichlet(np.ones(k), n) + 0.5 * np.eye(k)[label]
    probabilities = np.round(probabilities / probabilities.sum(1, keepdims=True), 2)  # with ties
    decided = probabilities.argmax(1)
    weight = rng.integers(0, 4, n).astype(float) if weighted else None
    if weight is not None:
        weight[:k] = 1
    one_vs_rest = np.mean(  # its own macro takes weights, but only probabilities that add up
        [metrics.roc_auc_score(label == c, probabilities[:, c], sample_weight=weight) for c in range(k)]
    )
    assert MacroAurocSample(label, probabilities)(weight) == pytest.approx(one_vs_rest, abs=1e-12)
    assert ConfusionSample(label, decided, k, f1=False)(weight) == pytest.approx(
        metrics.balanced_accuracy_score(label, decided, sample_weight=weight), abs=1e-12
    )
    assert ConfusionSample(label, decided, k, f1=True)(weight) == pytest.approx(
        metrics.f1_score(label, decided, average="macro", sample_weight=weight), abs=1e-12
    )
    value = rng.normal(50, 9, n)
    predicted = value + rng.normal(0, 5, n)
    for measure, theirs in (
        ("r2", metrics.r2_score), ("rmse", metrics.root_mean_squared_error), ("mae", metrics.mean_absolute_error),
    ):  # fmt: skip
        ours = ErrorSample(value, predicted, measure)(weight)
        assert ours == pytest.approx(theirs(value, predicted, sample_weight=weight), rel=1e-12)


def test_a_constant_outcome_has_no_r2_but_an_error_and_no_rows_have_neither():
    same = np.full(5, 3.0)
    for constant in (same, np.full(7, 0.1)):  # of 0.1 the variance is above 0, by rounding
        assert np.isnan(ErrorSample(constant, constant + 1, "r2")(None))
    assert np.isnan(ErrorSample(np.array([1.0, 1.0, 2.0]), np.zeros(3), "r2")(np.array([1.0, 2.0, 0.0])))
    assert ErrorSample(same, same + 1, "rmse")(None) == 1.0
    for measure in ("r2", "rmse", "mae"):
        assert np.isnan(ErrorSample(same, same + 1, measure)(np.zeros(5)))


def test_a_class_nobody_has_is_left_out_of_the_mean():
    label = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]])
    assert MacroAurocSample(label, probabilities)(None) == 1.0
    assert ConfusionSample(label, probabilities.argmax(1), 3, f1=True)(None) == 1.0
    assert np.isnan(MacroAurocSample(np.zeros(4, int), probabilities)(None))


def test_every_measure_of_every_kind_has_a_title():
    for kind in kinds():
        assert set(kind.measures) <= set(TITLES)
    assert title("r2") == "R²"
    assert title("something else") == "something else"


# -- scores -----------------------------------------------------------------------------------------------------------


def test_a_score_survives_json_also_where_nothing_could_be_measured():
    import json

    none = float("nan")
    for score in (
        Score("auroc", "condensed", "held out", 0.81, 0.78, 0.84, 500, True, 200, 0.41),
        Score("c_index", "random_real", "PUH", none, none, none, 0, False, note="must converge"),
    ):
        stored = json.loads(json.dumps(score.to_dict(), allow_nan=False))
        again = Score.from_dict(stored)
        assert repr(again) == repr(score)
    assert stored["value"] is None


def test_a_score_is_found_by_what_was_trained_on_and_by_measure():
    one, two = (Score(m, "condensed", "t", 0.5, 0.4, 0.6, 9, True) for m in ("auroc", "npv"))
    assert find([one, two], "condensed") is one
    assert find([one, two], "condensed", "npv") is two
    assert find([one, two], "full") is None
