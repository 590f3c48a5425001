"""Every measure against its naive twin, the twin's derivative and the libraries; intervals; scores as JSON has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.outcome import Outcome, kinds
from distcondense.evaluation.score import Score, find, interval
from distcondense.outcomes import measures
from distcondense.outcomes.base import Rule
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.outcomes.measures import TITLES, Measured, auroc, best_threshold, c_index, title
from distcondense.outcomes.survival import Survival, breslow, longer
from tests import naive


@st.composite
def samples(draw):
    n = draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    label = rng.integers(0, 2, n).astype(np.int8)
    score = rng.integers(0, draw(st.integers(1, 20)), n).astype(float)
    time = rng.integers(1, draw(st.integers(2, 20)), n).astype(float)
    return label, score, time


def agrees(found: Measured, twin, rows: int) -> None:
    """The value is the twin's at weights of 1, the influences are its derivatives there."""
    ones = [1.0] * rows
    assert found.value == pytest.approx(twin(ones), rel=1e-9, abs=1e-12, nan_ok=True)
    if found.influence is not None and np.isfinite(found.value):
        slope = naive.slope(twin, ones)
        np.testing.assert_allclose(found.influence, slope, atol=2e-6, rtol=1e-4)


@given(samples())
def test_the_auroc_counts_pairs_and_its_influences_are_delongs(case):
    label, score, _ = case
    found = measures.ranking(label, score)
    assert found.value == pytest.approx(naive.auroc(label, score, np.ones(len(label))), nan_ok=True)
    cases = int(label.sum())
    if 1 < cases < len(label) - 1:
        apart = [[float(a > b) + 0.5 * (a == b) for b in score[label == 0]] for a in score[label == 1]]
        above, below = np.mean(apart, axis=1), np.mean(apart, axis=0)
        delong = above.var(ddof=1) / cases + below.var(ddof=1) / (len(label) - cases)
        assert found.influence @ found.influence == pytest.approx(delong, abs=1e-12)


@given(samples())
def test_measures_of_two_classes_are_those_of_their_slow_twins(case):
    label, score, time = case
    n = len(label)
    agrees(measures.precision(label, score), lambda w: naive.average_precision(label, score, w), n)
    decided = (time > 5).astype(int)
    hit = (label == 1).tolist()
    agrees(
        measures.share(decided == 1, label == 1),
        lambda w: (
            sum(w[i] for i in range(n) if hit[i] and decided[i]) / sum(w[i] for i in range(n) if hit[i])
            if any(hit)
            else float("nan")
        ),
        n,
    )
    squares = (score / 20 - label) ** 2
    agrees(measures.brier(label, score / 20), lambda w: float(np.dot(w, squares) / np.sum(w)), n)


@given(samples())
def test_the_c_index_counts_comparable_pairs(case):
    event, risk, time = case
    agrees(measures.concordance(time, event, risk), lambda w: naive.c_index(time, event, risk, w), len(time))


def test_the_libraries_agree_on_a_larger_sample_with_ties():
    from lifelines import KaplanMeierFitter
    from lifelines.utils import concordance_index
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(1)
    label, score, time = (
        rng.integers(0, 2, 2000).astype(np.int8),
        rng.integers(0, 50, 2000) / 7,
        rng.integers(1, 90, 2000) * 1.0,
    )
    assert auroc(label, score) == pytest.approx(roc_auc_score(label, score), abs=1e-12)
    assert measures.precision(label, score).value == pytest.approx(average_precision_score(label, score), abs=1e-12)
    assert c_index(time, label, score) == pytest.approx(concordance_index(time, -score, label), abs=1e-12)
    at = np.array([0.0, 1.0, 7.5, 40.0, 89.0, 200.0])
    theirs = KaplanMeierFitter().fit(time, label).survival_function_at_times(at).to_numpy()
    np.testing.assert_allclose(SurvivalCurves(time, label == 1).survival(at), theirs, atol=1e-12)


def test_no_cases_means_no_number():
    assert np.isnan(auroc(np.zeros(4, np.int8), np.arange(4.0)))
    assert np.isnan(c_index(np.arange(1, 5.0), np.zeros(4, np.int8), np.arange(4.0)))
    assert np.isnan(measures.precision(np.zeros(4, np.int8), np.arange(4.0)).value)
    assert np.isnan(measures.calibration_slope(np.array([0, 0, 1], np.int8), np.array([0.1, 0.2, 0.9])).value)


# -- calibration ------------------------------------------------------------------------------------------------------


def test_the_calibration_slope_is_that_of_a_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    said = rng.normal(0, 1.5, 800)
    label = (rng.random(800) < 1 / (1 + np.exp(-0.4 - 0.6 * said))).astype(np.int8)
    found = measures.calibration_slope(label, 1 / (1 + np.exp(-said)))
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(said[:, None], label)
    assert found.value == pytest.approx(model.coef_[0, 0], abs=1e-5)
    weight = np.ones(800)
    for row in (3, 77):  # the influence is what the slope gains when the row counts a little more
        weight[row] = 1.001
        moved = LogisticRegression(C=np.inf, tol=1e-13, max_iter=5000).fit(said[:, None], label, weight).coef_[0, 0]
        weight[row] = 1.0
        base = LogisticRegression(C=np.inf, tol=1e-13, max_iter=5000).fit(said[:, None], label, weight).coef_[0, 0]
        assert (moved - base) / 0.001 == pytest.approx(found.influence[row], rel=0.05, abs=2e-5)


def lives(seed: int, rows: int):
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=rows)
    life, left = rng.exponential(np.exp(-0.8 * risk) * 10), rng.exponential(15, rows)
    return risk, np.maximum(np.ceil(np.minimum(life, left)), 1.0), (life <= left).astype(np.int8)


@pytest.mark.parametrize("seed", range(4))
def test_survival_losses_are_those_of_their_slow_twins(seed):
    risk, time, event = lives(seed, 25)
    times = np.array([2.0, 5.0, 9.0])
    alive = np.exp(-np.outer(np.exp(risk), times) / 12)
    twin = lambda w: naive.survival_loss(time, event, alive, times, w)  # noqa: E731
    agrees(measures.survival_loss(time, event, alive, times), twin, 25)

    def ratio(w):
        said = float(np.dot(w, 1 - alive[:, -1]) / np.sum(w))
        return said / (1 - naive.survival_after(time, event, w, 9.0))

    agrees(measures.expected_over_observed(time, event, alive[:, -1], 9.0), ratio, 25)


def test_scikit_survival_has_the_same_brier_score():
    sksurv = pytest.importorskip("sksurv.metrics")
    from sksurv.util import Surv

    risk, time, event = lives(7, 400)
    time = time + np.random.default_rng(0).random(400)  # without ties, of which there are two readings
    times = np.array([2.5, 4.5, 8.5, 12.5])
    alive = np.exp(-np.outer(np.exp(0.8 * risk), times) / 10)
    truth = Surv.from_arrays(event == 1, time)
    _, theirs = sksurv.brier_score(truth, truth, alive, times)
    assert measures.survival_loss(time, event, alive, times).value == pytest.approx(theirs.mean(), rel=0.02)


def test_breslow_and_residuals_say_the_survival_that_there_is():
    import pandas as pd
    from lifelines import CoxPHFitter

    risk, time, event = lives(3, 1500)
    frame = pd.DataFrame({"x": risk, "time": time, "event": event})
    cox = CoxPHFitter().fit(frame, "time", "event")
    score = cox.params_.iloc[0] * risk
    at = np.array([1.0, 4.0, 10.0])
    ours = breslow(score, time, event)(score[:50], at)
    theirs = cox.predict_survival_function(frame.iloc[:50], at).T.to_numpy()
    np.testing.assert_allclose(ours, theirs, atol=0.01)
    same = longer(np.zeros(1500), time, event)(np.zeros(3), at)  # no score: everybody has the Kaplan–Meier curve
    np.testing.assert_allclose(same, np.tile(SurvivalCurves(time, event == 1).survival(at), (3, 1)), atol=1e-9)


@pytest.mark.parametrize("link", ["log-risk", "log-time"])
def test_a_right_model_of_survival_is_calibrated_and_a_wrong_one_is_not(link):
    risk, time, event = lives(11, 4000)
    kind = Survival(("time", "event"))
    outcome = Outcome(kind, {"label": event, "time": time})
    half = np.arange(4000) < 2000
    scores = 0.8 * risk if link == "log-risk" else np.log(10) - 0.8 * risk
    rule = kind.rule(link, scores[half], outcome.take(np.flatnonzero(half)))
    found = kind.measured(link, scores[~half], outcome.take(np.flatnonzero(~half)), rule)
    right = interval(found["calibration"])
    assert right.low - 0.03 < 1 < right.high + 0.03
    null = kind.measured(
        link,
        np.zeros(2000),
        outcome.take(np.flatnonzero(~half)),
        kind.rule(link, np.zeros(2000), outcome.take(np.flatnonzero(half))),
    )
    assert found["integrated_brier"].value < null["integrated_brier"].value - 0.01
    assert list(found) == list(Survival.measures)


@given(samples())
def test_the_threshold_maximises_sensitivity_plus_specificity(case):
    label, score, _ = case
    if label.min() == label.max():
        return

    def youden(cut):
        flagged = score >= cut
        return flagged[label == 1].mean() - flagged[label == 0].mean()

    assert youden(best_threshold(label, score)) == pytest.approx(max(youden(cut) for cut in np.unique(score)))


# -- intervals --------------------------------------------------------------------------------------------------------


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    hits = {"auroc": 0, "share": 0}
    for _ in range(400):
        label = (rng.random(150) < 0.4).astype(np.int8)
        score = rng.normal(size=150) + label  # the true AUROC is Φ(1/√2) = 0.7602
        found = interval(measures.ranking(label, score))
        hits["auroc"] += found.low <= 0.7602 <= found.high
        rare = interval(measures.share(rng.random(60) < 0.05, np.ones(60, bool)))
        hits["share"] += rare.low <= 0.05 <= rare.high
    assert all(360 <= hit <= 398 for hit in hits.values()), hits


def test_intervals_are_as_long_as_those_of_a_bootstrap():
    rng = np.random.default_rng(0)
    risk, time, event = lives(5, 60)
    label = (rng.random(60) < 1 / (1 + np.exp(-risk))).astype(np.int8)
    value = risk + rng.normal(size=60)
    for found, twin in (
        (measures.ranking(label, risk), lambda w: naive.auroc(label, risk, w)),
        (measures.precision(label, risk), lambda w: naive.average_precision(label, risk, w)),
        (measures.concordance(time, event, risk), lambda w: naive.c_index(time, event, risk, w)),
        (measures.error(value, risk, "rmse"), lambda w: naive.error_of(value, risk, w, "rmse")),
        (measures.error(value, risk, "r2"), lambda w: naive.error_of(value, risk, w, "r2")),
    ):
        ours = interval(found)
        low, high = naive.resampled(twin, 60, rng, 120)
        assert 0.7 < (ours.high - ours.low) / (high - low) < 1.4


def test_rows_of_one_person_vary_together():
    label = np.tile([0, 1], 50).astype(np.int8)
    score = np.random.default_rng(0).normal(size=100) + label
    four = measures.ranking(np.repeat(label, 4), np.repeat(score, 4))
    alone, paired = interval(measures.ranking(label, score)), interval(four, np.repeat(np.arange(100), 4))
    assert paired.high - paired.low == pytest.approx(alone.high - alone.low, rel=0.05)
    assert interval(four).high - interval(four).low < 0.7 * (alone.high - alone.low)


def test_a_perfect_score_has_an_interval_and_an_undefined_one_has_none():
    perfect = interval(measures.ranking(np.repeat([0, 1], 10).astype(np.int8), np.arange(20.0)))
    assert perfect.high == 1.0
    assert 0.6 < perfect.low < 0.9  # Wilson's of 10 of 10
    assert np.isnan(interval(measures.NONE).low)


def test_measures_at_a_threshold_are_shares_of_the_confusion_matrix():
    outcome = Outcome(Binary(("y",)), {"label": np.array([1, 1, 1, 0, 0], np.int8)})
    found = outcome.kind.measured("probability", np.array([0.9, 0.8, 0.1, 0.7, 0.2]), outcome, Rule(0.5))
    values = {name: one.value for name, one in found.items()}
    assert values["sensitivity"] == pytest.approx(2 / 3)
    assert values["specificity"] == pytest.approx(1 / 2)
    assert values["ppv"] == pytest.approx(2 / 3)
    assert values["npv"] == pytest.approx(1 / 2)
    assert values["balanced_accuracy"] == pytest.approx(7 / 12)
    assert values["f1"] == pytest.approx(2 / 3)
    assert values["brier"] == pytest.approx((0.01 + 0.04 + 0.81 + 0.49 + 0.04) / 5)
    assert list(found) == list(Binary.measures)


# -- several classes, and numbers -------------------------------------------------------------------------------------


@st.composite
def classes(draw):
    """Labels, probabilities with ties, and decisions; classes may be absent."""
    n, k = draw(st.integers(2, 25)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    label = rng.integers(0, draw(st.integers(1, k)), n)
    probabilities = rng.integers(1, draw(st.integers(2, 12)), (n, k)).astype(float)
    probabilities /= probabilities.sum(1, keepdims=True)
    return label, probabilities, rng.integers(0, k, n)


@given(classes())
def test_measures_of_classes_are_those_of_their_slow_twins(case):
    label, probabilities, decided = case
    n, k = probabilities.shape
    found = measures.macro_ranking(label, probabilities)
    assert found.value == pytest.approx(naive.macro_auroc(label, probabilities, np.ones(n)), nan_ok=True)
    pairwise = measures.pairwise_ranking(label, probabilities)
    assert pairwise.value == pytest.approx(naive.pairwise_auroc(label, probabilities), nan_ok=True)
    assert pairwise.influence is None or len(pairwise.influence) == n
    said = decided.tolist()
    agrees(measures.recall(label, decided, k), lambda w: naive.balanced_accuracy(label.tolist(), said, w), n)
    agrees(measures.f1(label, decided, range(k)), lambda w: naive.macro_f1(label.tolist(), said, w), n)


@given(samples(), st.sampled_from(["r2", "rmse", "mae"]))
def test_measures_of_numbers_are_those_of_their_slow_twins(case, measure):
    _, predicted, value = case
    found = measures.error(value, predicted, measure)
    if measure == "rmse" and found.value == 0:
        return  # the root has no derivative there
    agrees(found, lambda w: naive.error_of(value, predicted, w, measure), len(value))


def test_scikit_learn_agrees_on_classes_and_numbers():
    from sklearn import metrics

    rng = np.random.default_rng(3)
    n, k = 1500, 4
    label = np.append(np.arange(k), rng.choice(k, n - k, p=[0.6, 0.3, 0.08, 0.02]))
    probabilities = rng.dirichlet(np.ones(k), n) + 0.5 * np.eye(k)[label]
    probabilities = np.round(probabilities / probabilities.sum(1, keepdims=True), 2)  # with ties
    decided = probabilities.argmax(1)
    one_vs_rest = np.mean([metrics.roc_auc_score(label == c, probabilities[:, c]) for c in range(k)])
    assert measures.macro_ranking(label, probabilities).value == pytest.approx(one_vs_rest, abs=1e-12)
    balanced = metrics.balanced_accuracy_score(label, decided)
    assert measures.recall(label, decided, k).value == pytest.approx(balanced, abs=1e-12)
    theirs = metrics.f1_score(label, decided, average="macro")
    assert measures.f1(label, decided, range(k)).value == pytest.approx(theirs, abs=1e-12)
    value = rng.normal(50, 9, n)
    predicted = value + rng.normal(0, 5, n)
    for measure, library in (
        ("r2", metrics.r2_score),
        ("rmse", metrics.root_mean_squared_error),
        ("mae", metrics.mean_absolute_error),
    ):
        assert measures.error(value, predicted, measure).value == pytest.approx(library(value, predicted), rel=1e-12)


def test_a_constant_outcome_has_no_r2_but_an_error_and_no_rows_have_neither():
    same = np.full(5, 3.0)
    for constant in (same, np.full(7, 0.1)):  # of 0.1 the variance is above 0, by rounding
        assert np.isnan(measures.error(constant, constant + 1, "r2").value)
    assert measures.error(same, same + 1, "rmse").value == 1.0
    for measure in ("r2", "rmse", "mae"):
        assert np.isnan(measures.error(same[:0], same[:0], measure).value)


def test_a_class_nobody_has_is_left_out_of_the_mean():
    label = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.2, 0.7, 0.1]])
    assert measures.macro_ranking(label, probabilities).value == 1.0
    assert measures.f1(label, probabilities.argmax(1), range(3)).value == 1.0
    assert np.isnan(measures.macro_ranking(np.zeros(4, int), probabilities).value)


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
