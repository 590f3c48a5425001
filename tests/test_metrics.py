"""AUROC and C-index against their naive twins, scikit-learn and lifelines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.cohort import Outcome
from distcondense.evaluate.utility import best_threshold, bootstrap, measures_of
from distcondense.outcomes.measures import AurocSample, CIndexSample, auroc, c_index
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
    outcome = Outcome(np.array([1, 1, 1, 0, 0], np.int8), None, ("y",))
    found = measures_of("probability", np.array([0.9, 0.8, 0.1, 0.7, 0.2]), outcome, 0.5)
    values = {name: measure(None) for name, measure in found.items()}
    assert values["sensitivity"] == pytest.approx(2 / 3)
    assert values["specificity"] == pytest.approx(1 / 2)
    assert values["ppv"] == pytest.approx(2 / 3)
    assert values["npv"] == pytest.approx(1 / 2)
