"""Hazard ratios: lifelines' own numbers, in public units, beside each other; and without any patient in them."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

from distcondense import Cohort, Column, Schema
from distcondense.evaluation.interpretation import hazards
from distcondense.evaluation.interpretation.hazards import cox, independent, interval_overlap, score_test
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM, SOFT
from distcondense.evaluation.section import Section
from tests.conftest import OUTCOMES, SMALL_TABLE, small_frame
from tests.naive_interpretation import SPLIT, as_text, home_of, overlap


def values(part: Section, trained_on: str = CONDENSED, labels: str = PLAIN):
    return {s.measure: s for s in part.scores if (s.trained_on, s.labels) == (trained_on, labels)}


def lives(rows: int = 400, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = np.stack([rng.normal(size=rows), rng.integers(0, 2, rows), rng.random(rows)], axis=1)
    time = rng.exponential(np.exp(-x @ np.array([0.5, -0.7, 0.0])))
    end = rng.exponential(2.0, rows)
    return x, np.minimum(time, end), time <= end


def oracle(x, time, event, weight=None):
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])]).assign(time=time, event=event)
    if weight is not None:
        frame["weight"] = weight
    return CoxPHFitter().fit(
        frame, "time", "event", weights_col=None if weight is None else "weight", robust=weight is not None
    )


def test_ratios_and_intervals_are_lifelines():
    x, time, event = lives()
    found, model = cox(list(x.T), time, event), oracle(x, time, event)
    np.testing.assert_allclose(found.log, model.params_, rtol=1e-6)
    bounds = model.confidence_intervals_.to_numpy()
    np.testing.assert_allclose(np.stack([found.low, found.high], 1), bounds, rtol=1e-5, atol=1e-7)
    assert found.penalty == 0


def test_a_cox_model_agrees_with_a_second_library():
    sksurv = pytest.importorskip("sksurv.linear_model")
    x, time, event = lives()
    target = np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])
    theirs = sksurv.CoxPHSurvivalAnalysis(ties="efron", tol=1e-10).fit(x, target)
    np.testing.assert_allclose(cox(list(x.T), time, event).log, theirs.coef_, rtol=1e-4, atol=1e-5)


def test_weights_have_robust_errors_whatever_they_add_up_to():
    x, time, event = lives(150)
    weight = np.random.default_rng(1).uniform(0.5, 2, 150)
    model = oracle(x, time, event, weight / weight.mean())
    for scale in (1, 1000):
        found = cox(list(x.T), time, event, weight * scale)
        np.testing.assert_allclose(found.log, model.params_, rtol=1e-6)
        np.testing.assert_allclose(found.error, model.standard_errors_, rtol=1e-6)


def test_a_covariate_that_does_not_vary_has_no_ratio():
    x, time, event = lives(150)
    found = cox([x[:, 0], np.ones(150), x[:, 1]], time, event)
    assert np.isnan(found.log[1])
    np.testing.assert_allclose(found.log[[0, 2]], oracle(x[:, :2], time, event).params_, rtol=1e-6)


@pytest.mark.parametrize("weight", [None, np.linspace(1, 2, 200)])
def test_a_ratio_without_an_end_gets_the_smallest_penalty_that_holds_it(weight):
    x, time, event = lives(200)
    spared = (np.arange(200) % 4 == 0).astype(float)
    event = event & (spared == 0)  # nobody of these has the event: their ratio is 0
    found = cox([x[:, 0], spared], time, event, weight)
    assert found.penalty == hazards.PENALTIES[1]
    assert -20 < found.log[1] < -2


def test_without_two_events_there_is_no_model():
    x, time, event = lives(50)
    with pytest.raises(hazards.ModelError):
        cox(list(x.T), time, np.zeros(50, bool))
    with pytest.raises(hazards.ModelError):
        cox([np.ones(50)], time, event)


def test_overlap_of_intervals_is_karrs():
    rng = np.random.default_rng(2)
    low, other = rng.normal(size=40), rng.normal(size=40)
    high, other_high = low + rng.random(40) + 0.1, other + rng.random(40) + 0.1
    slow = [
        overlap(*pair) for pair in zip(zip(low, high, strict=True), zip(other, other_high, strict=True), strict=True)
    ]
    np.testing.assert_allclose(interval_overlap(low, high, other, other_high), slow)
    assert 0 < np.mean(slow) < 1
    one = np.array([0.0]), np.array([2.0])
    assert interval_overlap(*one, *one) == 1
    assert interval_overlap(*one, np.array([3.0]), np.array([4.0])) == 0
    assert interval_overlap(*one, np.array([0.5]), np.array([1.5])) == pytest.approx((1 / 2 + 1) / 2)


def test_a_covariate_that_repeats_others_is_found():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=50), rng.normal(size=50)
    assert independent([a, b, 2 * a - 3 * b + 1, np.full(50, 7.0), a * b]) == [True, True, False, False, True]
    assert independent([rng.random(3) for _ in range(5)])[2:] == [False] * 3  # more covariates than rows
    assert independent([]) == []


def test_the_score_test_finds_what_matters_alone():
    x, time, event = lives(2000)
    z = score_test(x, time, event)
    assert z[0] > 5 > abs(z[2])
    assert z[1] < -5
    assert score_test(np.ones((10, 1)), np.arange(1.0, 11), np.ones(10, bool)) == 0


def test_the_same_rows_have_the_same_ratios(survival):
    part = hazards.section(home_of(survival, SPLIT.split(survival).train), seed=0, threads=1)
    found = values(part)
    assert found["hazard_direction"].value == found["hazard_covered"].value == 1
    assert found["hazard_overlap"].value == pytest.approx(1)
    assert found["hazard_difference"].value == pytest.approx(0, abs=1e-9)
    real, made = part.figures[0].series
    assert real.y == pytest.approx(made.y)
    assert Section.from_dict(json.loads(as_text(part))).to_dict() == part.to_dict()
    assert set(part.titles) >= {score.measure for score in part.scores}


def test_rows_that_turn_every_effect_around_are_found_out():
    cohort = Cohort.from_frame(small_frame(900), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    rows = SPLIT.split(cohort).train
    outcome = cohort.take(rows).outcome
    turned = outcome.with_arrays(time=61 - outcome["time"], label=np.ones(len(rows), np.int8))
    part = hazards.section(home_of(cohort, rows, outcome=turned), seed=0, threads=1)
    wrong, fair = values(part), values(part, RANDOM, "")
    assert wrong["hazard_direction_clear"].value == 0
    assert fair["hazard_direction_clear"].value == 1
    assert wrong["hazard_difference"].low > fair["hazard_difference"].high


def test_units_are_public_and_categories_have_a_reference():
    cohort = Cohort.from_frame(small_frame(900), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    rows = SPLIT.split(cohort).train
    part = hazards.section(home_of(cohort, rows), seed=0, threads=1)
    table = {row[0]: row for row in part.tables[0].rows}
    assert {name: row[1] for name, row in table.items()} == {
        "age": "12 years",
        "crp": "40 mg/L",
        "smoker=1": "against 0",
        "stage=II": "against I",
        "stage=III": "against I",
    }
    frame = cohort.take(rows).features
    design = pd.DataFrame(
        {
            "age": frame.age / 12,
            "crp": frame.crp / 40,
            "smoker": frame.smoker.astype(int),
            "II": frame.stage == "II",
            "III": frame.stage == "III",
        }
    ).astype(float)
    outcome = cohort.take(rows).outcome
    model = oracle(design.to_numpy(), outcome["time"], outcome["label"])
    bounds = np.exp(model.confidence_intervals_.to_numpy())
    names = ("age", "crp", "smoker=1", "stage=II", "stage=III")
    for name, ratio, (low, high) in zip(names, model.hazard_ratios_, bounds, strict=True):
        said = [float(number) for number in re.findall(r"[\d.]+", table[name][2])]
        assert said == pytest.approx([ratio, low, high], rel=0.006)


def test_weighted_condensed_rows_are_a_way_of_their_own(survival):
    rows = SPLIT.split(survival).train[:120]
    part = hazards.section(home_of(survival, rows, weight=np.linspace(1, 30, 120)), seed=0, threads=1)
    assert values(part, labels=SOFT)["hazard_difference"].value != values(part)["hazard_difference"].value
    assert not values(hazards.section(home_of(survival, rows), seed=0, threads=1), labels=SOFT)


def test_one_row_of_each_person_is_fitted():
    frame = small_frame(400)
    frame["person"] = np.arange(400) // 4
    cohort = Cohort.from_frame(
        frame, time="months", event="event", ignore=["died"], schema=SMALL_TABLE, person_id="person"
    )
    part = hazards.section(home_of(cohort, range(60)), seed=0, threads=1)
    persons = len(np.unique(cohort.person[SPLIT.split(cohort).train]))
    assert part.settings["rows"] == persons < 400
    assert "one row of each person" in part.notes[0]


def test_of_many_covariates_those_are_compared_that_matter(monkeypatch):
    monkeypatch.setattr(hazards, "COVARIATES", 2)
    x, time, event = lives(600)
    frame = pd.DataFrame(
        {"a": x[:, 2], "strong": x[:, 0].clip(-3, 3), "b": x[::-1, 2], "m": time, "e": event.astype(int)}
    )
    frame["m"] += 1e-3
    columns = (
        Column("a", "continuous", low=0, high=1),
        Column("strong", "continuous", low=-3, high=3),
        Column("b", "continuous", low=0, high=1),
        Column("m", "continuous"),
        Column("e", "binary", categories=(0, 1)),
    )
    cohort = Cohort.from_frame(frame, time="m", event="e", schema=Schema(columns))
    part = hazards.section(home_of(cohort, range(100)), seed=0, threads=1)
    assert part.settings["covariates"] == 2
    assert part.tables[0].rows[0][0] == "strong"
    assert any("those 2 are compared" in note for note in part.notes)


def test_other_outcomes_and_no_rows_have_a_note(binary, survival):
    for inputs in (home_of(binary, range(50)), home_of(survival, [])):
        part = hazards.section(inputs, seed=0, threads=1)
        assert part.notes
        assert not part.scores
        assert not part.tables


def test_condensed_rows_without_events_say_why_there_is_no_number(survival):
    rows = np.flatnonzero(survival.outcome["label"] == 0)
    part = hazards.section(home_of(survival, rows), seed=0, threads=1)
    assert all(np.isnan(score.value) and score.note for score in values(part).values())
    assert values(part)
    as_text(part)


def test_no_patient_and_no_rare_category_stands_in_the_part():
    frame = small_frame(600)
    frame.loc[::2, "crp"] = 123.456789
    frame.loc[::3, "months"] = 17.7654321
    frame.loc[[2, 4, 6], "stage"] = "IV"  # three patients
    columns = [*SMALL_TABLE.columns[:3], Column("stage", "categorical", categories=("I", "II", "III", "IV")), *OUTCOMES]
    cohort = Cohort.from_frame(frame, time="months", event="event", ignore=["died"], schema=Schema(tuple(columns)))
    part = hazards.section(home_of(cohort, range(1, 500, 2)), seed=0, threads=1)
    text = as_text(part)
    assert not re.search(r"123\.45|17\.76", text)
    names = [row[0] for row in part.tables[0].rows]
    assert "stage=IV" not in names
    assert "stage=III" in names


# -- as printed -------------------------------------------------------------------------------------------------------


def printed(part: Section):
    return next(table for table in part.tables if table.name == "hazard-ratios-penalised")


def test_penalised_ratios_are_lifelines_per_standard_deviation(survival):
    inputs = home_of(survival, SPLIT.split(survival).train)
    table = printed(hazards.section(inputs, seed=0, threads=1))
    real = inputs.sample(inputs.split.train, hazards.ROWS, 0)
    rows = pd.DataFrame(inputs.codec.encode(real.features) * inputs.codec.scale)
    rows = rows.loc[:, rows.std() > 0]
    frame = (rows / rows.std(ddof=0)).set_axis([f"x{k}" for k in range(rows.shape[1])], axis=1)
    frame = frame.assign(time=real.outcome["time"], event=real.outcome["label"])
    model = CoxPHFitter(penalizer=1.0).fit(frame, "time", "event")
    expected = sorted(f"{ratio:.3g}" for ratio in model.hazard_ratios_)
    assert sorted(row[2].split(" ")[0] for row in table.rows) == expected
    strength = [abs(np.log(float(row[2].split(" ")[0]))) for row in table.rows]
    assert strength == sorted(strength, reverse=True)
    assert [row[1] for row in table.rows] == list(range(1, len(table.rows) + 1))


def test_the_same_rows_keep_the_order_of_penalised_ratios(survival):
    found = values(hazards.section(home_of(survival, SPLIT.split(survival).train), seed=0, threads=1))
    assert found["hazard_order"].value == pytest.approx(1)
    assert found["hazard_strongest"].value == 1
    by_hand = hazards._order(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]))
    assert by_hand == pytest.approx(-1)
    assert np.isnan(hazards._order(np.zeros(3), np.arange(3.0)))
