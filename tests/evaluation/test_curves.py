"""Kaplan–Meier curves and calibration by risk: lifelines' own numbers, on grids that no patient is in."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test

from distcondense import Cohort
from distcondense.evaluation.interpretation import curves, survival, training
from distcondense.evaluation.interpretation.curves import RiskTenths
from distcondense.evaluation.interpretation.survival import common, distance, log_rank, public_grid, risk_groups, tidy
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT
from distcondense.evaluation.section import Section
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.runs.figures import LINES, STEPS
from tests import naive
from tests.conftest import SMALL_TABLE, small_frame
from tests.evaluation_inputs import changed
from tests.naive_interpretation import SPLIT, as_text, home_of

TIMES = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=40)
GRID = np.arange(0.5, 14, 0.5)


def lives_of(rows) -> SurvivalCurves:
    return SurvivalCurves(np.array([time for time, _ in rows], float), np.array([event for _, event in rows]))


def some_lives(rows: int, seed: int = 0, rate: float = 0.05) -> SurvivalCurves:
    rng = np.random.default_rng(seed)
    time, end = rng.exponential(1 / rate, rows), rng.uniform(5, 60, rows)
    return SurvivalCurves(np.minimum(time, end), time <= end)


@given(TIMES)
def test_curves_are_those_of_the_formula(rows):
    lives = lives_of(rows)
    slow = [naive.survival_after(lives.time, lives.event, np.ones(len(lives)), at) for at in GRID]
    np.testing.assert_allclose(lives.survival(GRID), slow, atol=1e-12)


@given(TIMES)
def test_curves_and_greenwoods_bands_are_lifelines(rows):
    lives = lives_of(rows)
    model = KaplanMeierFitter().fit(lives.time, lives.event)
    survival, low, high = lives.band(GRID)
    np.testing.assert_allclose(survival, model.survival_function_at_times(GRID), atol=1e-9)
    bounds = model.confidence_interval_survival_function_
    at = np.searchsorted(bounds.index.to_numpy(), GRID, side="right") - 1
    inside = (survival > 0) & (survival < 1)  # at the ends lifelines has no band
    np.testing.assert_allclose(low[inside], bounds.iloc[at, 0].to_numpy()[inside], atol=1e-6)
    np.testing.assert_allclose(high[inside], bounds.iloc[at, 1].to_numpy()[inside], atol=1e-6)
    assert np.all((low <= survival) & (survival <= high))
    np.testing.assert_array_equal(lives.at_risk(GRID), [(lives.time >= at).sum() for at in GRID])


@given(TIMES, st.integers(0, 100))
def test_a_row_that_counts_twice_is_two_rows(rows, seed):
    lives = lives_of(rows)
    counts = np.random.default_rng(seed).integers(0, 4, len(rows))
    if counts.sum():
        repeated = lives.take(np.repeat(np.arange(len(rows)), counts))
        np.testing.assert_allclose(lives.survival(GRID, counts), repeated.survival(GRID), atol=1e-12)


def test_grids_have_no_patients_time_and_enough_patients():
    real, made = some_lives(500), some_lives(200, seed=1)
    grid = public_grid(made, real)
    assert 30 <= len(grid) <= 60
    np.testing.assert_allclose(np.diff(grid), grid[0])
    assert real.at_risk(grid)[-1] >= 10
    assert not set(real.time) & set(grid)
    same = public_grid(
        made, SurvivalCurves(real.time * 0.999, real.event)
    )  # made of the released rows, not of patients
    assert len(set(same) - set(grid)) == 0 or len(set(grid) - set(same)) == 0


def test_one_released_row_far_away_does_not_make_steps_too_long():
    real, made = some_lives(500), some_lives(200, seed=1)
    far = SurvivalCurves(np.append(made.time, 1e7), np.append(made.event, True))
    grid = public_grid(far, real)
    assert 30 <= len(grid) <= 60
    assert grid[-1] < 61


def test_equal_times_stay_equal_through_a_unit():
    months = np.arange(1.0, 61)
    unit = 7.3
    np.testing.assert_array_equal(tidy(months / unit * unit), months)
    grid = public_grid(
        SurvivalCurves(months, np.ones(60, bool)), SurvivalCurves(np.repeat(months, 20), np.ones(1200, bool))
    )
    np.testing.assert_array_equal(grid, months)


def test_distance_is_the_mean_gap():
    grid = np.arange(1.0, 101)
    assert distance(np.ones(100), np.ones(100), grid) == 0
    assert distance(np.ones(100), np.full(100, 0.9), grid) == pytest.approx(0.1, abs=1e-3)
    one, other = np.exp(-0.01 * grid), np.exp(-0.02 * grid)
    exact = ((1 - np.exp(-1)) / 0.01 - (1 - np.exp(-2)) / 0.02) / 100
    assert distance(one, other, grid) == pytest.approx(exact, abs=1e-4)


def test_a_common_curve_ends_where_one_is_not_known():
    grid = np.arange(1.0, 21)
    real = SurvivalCurves(np.repeat(np.arange(1.0, 21), 2), np.ones(40, bool))
    ended = SurvivalCurves(
        np.array([3.0, 5.0]), np.array([True, True])
    )  # all had the event: the curve is 0 from there on
    left = SurvivalCurves(np.array([3.0, 5.0]), np.array([True, False]))  # nobody knows what came after 5
    assert common(grid, real, ended)[-1] == 16  # ten of the forty are there still
    assert common(grid, real, left)[-1] == 5
    assert len(common(grid, real.take(np.zeros(0, int)), left)) == 0


def test_risk_groups_are_parts_of_the_rows_own():
    assert np.bincount(risk_groups(np.random.default_rng(0).random(300), 3)).tolist() == [100, 100, 100]
    group = risk_groups(np.repeat([0.0, 1.0], [290, 10]), 3)
    assert len(np.unique(group[:290])) == 1  # equal risks are not torn apart
    risk = np.random.default_rng(1).random(50)
    assert risk[risk_groups(risk, 2) == 0].max() < risk[risk_groups(risk, 2) == 1].min()


def test_the_log_rank_test_is_lifelines_and_needs_two_groups():
    lives = some_lives(120)
    group = np.arange(120) % 3
    theirs = multivariate_logrank_test(lives.time, group, lives.event).p_value
    assert log_rank(lives, group) == pytest.approx(theirs)
    assert np.isnan(log_rank(lives, group * 0))


def big(rows: int = 900) -> Cohort:
    return Cohort.from_frame(small_frame(rows), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)


def by_group(part: Section, trained_on: str = CONDENSED):
    every = (score for score in part.scores if score.measure == "curve_distance")
    return {score.group: score for score in every if score.trained_on == trained_on}


def test_the_same_rows_have_the_same_curves():
    cohort = big()
    part = curves.section(home_of(cohort, SPLIT.split(cohort).test), seed=0, threads=1)
    found = by_group(part)
    assert set(found) == {"all rows", "low risk", "middle risk", "high risk", "mean of risk groups"}
    for score in found.values():
        assert score.value == 0 == score.low < score.high < 0.3
    assert all(score.value > 0 for score in by_group(part, RANDOM).values())
    assert [figure.kind for figure in part.figures] == [STEPS, STEPS, STEPS]
    for figure in part.figures[:2]:
        for real, made in zip(figure.series[::2], figure.series[1::2], strict=True):
            assert (real.y, real.low, real.high) == (made.y, made.low, made.high)
            assert len(real.x) <= 61
            assert real.y[0] == 1
    assert Section.from_dict(json.loads(as_text(part))).to_dict() == part.to_dict()
    assert set(part.titles) >= {score.measure for score in part.scores}


@pytest.mark.parametrize("name", ["cox", "aft"])
def test_predicted_curves_are_the_mean_of_a_models_own_and_near_what_was_observed(name):
    cohort = big()
    inputs, learner = home_of(cohort, SPLIT.split(cohort).train), cohort.outcome.kind.learner(name)
    train, test = (inputs.sample(rows, 20_000, 0) for rows in (inputs.split.train, inputs.split.test))
    real = survival._curves(test.outcome, inputs.unit)
    grid = public_grid(survival._curves(inputs.labelled.outcome, 1.0), real)
    (figure,), scores = survival._predicted(inputs, learner, train, test, real, grid, seed=0, threads=1)
    observed, by_real, by_made = figure.series
    found = {score.trained_on: score for score in scores}
    assert found[FULL].value < 0.05
    assert found[CONDENSED].value == pytest.approx(found[FULL].value, abs=0.02)  # the same rows taught both
    model = learner.fit(inputs.codec.encode(train.features), train.outcome, seed=0, threads=1)
    rows = inputs.codec.encode(test.features)
    rule = inputs.kind.rule(model.link, model.scores(inputs.codec.encode(train.features)), train.outcome)
    alone = model.scores(rows)
    for at in (5, 20):  # slow twin: row by row
        time = np.array([by_real.x[at] / inputs.unit])
        slow = np.mean([rule.survival(alone[i : i + 1], time)[0, 0] for i in range(len(rows))])
        assert by_real.y[at] == pytest.approx(slow, abs=1e-4)
    assert len(observed.y) == len(by_real.y) == len(by_made.y)


def test_a_row_stands_as_often_as_it_weighs():
    weight = np.array([1.0, 3.0, 0.0, 6.0])
    counts = np.bincount(survival._as_often(weight, 4), minlength=4)
    np.testing.assert_allclose(counts / counts.sum(), weight / 10, atol=1e-3)
    assert survival._as_often(None, 3).tolist() == [0, 1, 2]


def test_rows_that_live_half_as_long_are_found_out():
    cohort = big()
    rows = SPLIT.split(cohort).train
    outcome = cohort.take(rows).outcome
    inputs = home_of(cohort, rows, outcome=outcome.with_arrays(time=outcome["time"] / 3))
    wrong = by_group(curves.section(inputs, seed=0, threads=1))
    fair = by_group(curves.section(home_of(cohort, rows), seed=0, threads=1))
    for group in ("all rows", "mean of risk groups"):
        assert wrong[group].low > fair[group].high


def test_times_are_in_the_tables_unit_whatever_models_see():
    cohort = big()
    inputs = home_of(cohort, SPLIT.split(cohort).test)
    one, other = (curves.section(changed(inputs, unit=unit), seed=0, threads=1) for unit in (1.0, 7.3))
    assert one.figures[0].series == other.figures[0].series
    assert one.settings["horizon"] == other.settings["horizon"] == 60


def test_few_patients_at_risk_are_not_counted_out():
    cohort = big(600)
    part = curves.section(home_of(cohort, SPLIT.split(cohort).train), seed=0, threads=1)
    table = next(table for table in part.tables if table.name == "at-risk")
    assert len(table.columns) == 6
    real = {row[0]: row[1:] for row in table.rows if row[0].endswith("real")}
    assert "<10" in [cell for row in real.values() for cell in row]
    assert all(cell >= 10 for row in real.values() for cell in row if isinstance(cell, int))
    for k in range(5):  # the total does not give away the one that is missing
        groups = [row[k] for name, row in real.items() if not name.startswith("all")]
        if "<10" in groups:
            assert not isinstance(real["all rows, real"][k], int)
    assert real["all rows, real"][0] == len(SPLIT.split(cohort).test)


def test_few_rows_are_two_groups_and_fewer_none(survival):
    part = curves.section(home_of(survival, range(40)), seed=0, threads=1)
    assert {"lower risk", "higher risk"} < set(by_group(part))
    part = curves.section(home_of(survival, range(8)), seed=0, threads=1)
    assert set(by_group(part)) == {"all rows"}
    assert any("no risk groups" in note for note in part.notes)


def test_condensed_rows_that_score_alike_say_which_group_has_none(survival):
    part = curves.section(home_of(survival, np.repeat(5, 30)), seed=0, threads=1)
    scores = by_group(part)
    assert any(np.isnan(score.value) and score.note for score in scores.values())
    as_text(part)


def test_persons_are_resampled_together():
    frame = small_frame(600)
    frame["person"] = np.arange(600) // 5
    cohort = Cohort.from_frame(
        frame, time="months", event="event", ignore=["died"], schema=SMALL_TABLE, person_id="person"
    )
    part = curves.section(home_of(cohort, range(100)), seed=0, threads=1)
    assert by_group(part)["all rows"].interval == "200 resamples of held-out persons"


# -- two classes ------------------------------------------------------------------------------------------------------


def test_tenths_of_risk_hold_ten_of_either_class():
    rng = np.random.default_rng(0)
    said = rng.random(2000) ** 2
    label = rng.random(2000) < said
    tenths = RiskTenths.from_risks(said, label)
    assert tenths.rows.sum() == 2000
    assert np.all(tenths.rows * tenths.observed >= 9.999)
    assert np.all(tenths.rows * (1 - tenths.observed) >= 9.999)
    assert np.all(np.diff(tenths.said) > 0)
    assert (tenths.rows @ tenths.said) / 2000 == pytest.approx(said.mean())
    assert tenths.error < 0.05 < RiskTenths.from_risks(np.minimum(said + 0.3, 1), label).error
    rare = RiskTenths.from_risks(said, rng.random(2000) < 0.008)  # about 16 have it: no two parts with ten
    assert len(rare.rows) == 1


def test_tenths_are_those_of_scikit_learn():
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(1)
    said = rng.random(3000)
    label = rng.random(3000) < said
    observed, mean = calibration_curve(label, said, n_bins=10, strategy="quantile")
    tenths = RiskTenths.from_risks(said, label)
    np.testing.assert_allclose(tenths.observed, observed)
    np.testing.assert_allclose(tenths.said, mean)


def test_bands_of_observed_shares_are_wilsons():
    from scipy.stats import binomtest

    tenths = RiskTenths(np.array([0.1, 0.5]), np.array([0.2, 0.5]), np.array([50.0, 80.0]))
    low, high = tenths.band
    for k, (hits, rows) in enumerate(((10, 50), (40, 80))):
        theirs = binomtest(hits, rows).proportion_ci(method="wilson")
        assert (low[k], high[k]) == pytest.approx((theirs.low, theirs.high))


def test_the_same_rows_are_calibrated_alike(binary):
    inputs = home_of(binary, SPLIT.split(binary).train)
    part = curves.section(inputs, seed=0, threads=1)
    by_way = {(score.trained_on, score.labels): score for score in part.scores}
    assert by_way[FULL, ""].value == by_way[CONDENSED, PLAIN].value
    (figure,) = part.figures
    assert figure.kind == LINES
    assert figure.diagonal
    real, made = figure.series
    assert (real.x, real.y) == (made.x, made.y)


def test_turned_labels_are_not_calibrated():
    cohort = Cohort.from_frame(small_frame(900), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    rows = SPLIT.split(cohort).train
    outcome = cohort.take(rows).outcome
    turned = outcome.with_arrays(label=(1 - outcome["label"]).astype(np.int8))
    inputs = home_of(cohort, rows, outcome=turned, soft=outcome["label"].astype(float))
    by_way = {(score.trained_on, score.labels): score for score in curves.section(inputs, seed=0, threads=1).scores}
    assert by_way[CONDENSED, PLAIN].low > by_way[FULL, ""].high
    assert by_way[CONDENSED, SOFT].value == pytest.approx(by_way[FULL, ""].value, abs=0.02)  # the manual's are right


def test_one_class_says_why_there_is_no_number(binary):
    part = curves.section(home_of(binary, np.flatnonzero(binary.outcome["label"] == 1)[:30]), seed=0, threads=1)
    score = next(score for score in part.scores if score.trained_on == CONDENSED)
    assert np.isnan(score.value)
    assert score.note
    as_text(part)


# -- any outcome ------------------------------------------------------------------------------------------------------


def test_without_rows_there_is_a_note(binary, survival):
    for cohort in (binary, survival):
        part = curves.section(home_of(cohort, []), seed=0, threads=1)
        assert part.notes
        assert not part.scores
        assert not part.figures


def test_outcomes_without_curves_have_a_note():
    frame = small_frame().drop(columns=["died", "months", "event"])
    cohort = Cohort.from_frame(frame, target="stage", kind="multiclass")
    part = curves.section(home_of(cohort, range(60)), seed=0, threads=1)
    assert part.notes
    assert not part.scores


def test_bounds_are_said_and_the_seed_decides(survival, monkeypatch):
    monkeypatch.setattr(curves, "TESTED", 40)
    for module in (curves, training):
        monkeypatch.setattr(module, "ROWS", 100)
    first, again = (curves.section(home_of(survival, range(100)), seed=3, threads=1) for _ in range(2))
    assert as_text(first) == as_text(again)
    assert first.settings["held-out rows"] == 40
    assert "a random 100 of" in first.notes[0]
    assert as_text(curves.section(home_of(survival, range(100)), seed=4, threads=1)) != as_text(first)


@pytest.mark.parametrize("target", [{"time": "months", "event": "event"}, {"target": "died"}])
def test_no_patient_stands_in_the_part(target):
    frame = small_frame(600)
    frame.loc[::2, "crp"] = 123.456789
    frame.loc[::4, "months"] = 17.7654321
    frame.loc[2, "months"] = 59.8765432  # and the longest
    frame.loc[frame.months > 59.9, "months"] = 59.0
    ignore = [name for name in ("died", "months", "event") if name not in target.values()]
    cohort = Cohort.from_frame(frame, ignore=ignore, schema=SMALL_TABLE, **target)
    text = as_text(curves.section(home_of(cohort, range(1, 600, 2)), seed=0, threads=1))
    for digits in ("123.4", "17.76", "59.87"):
        assert digits not in text
    if "time" in target:  # nor does the longest released time, which is rounded up
        longest = frame.months[1::2].max()
        assert f"{longest:.4f}"[:5] not in text or longest == round(longest)
