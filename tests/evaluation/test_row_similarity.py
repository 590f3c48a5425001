"""Whole rows: density and coverage against a loop over pairs, propensity against its theory, detection, rare values;
and the landscape, which draws nobody."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.persons import Split
from distcondense.evaluation.fidelity import landscape, row_similarity
from distcondense.evaluation.fidelity.comparison import FEWEST
from distcondense.evaluation.fidelity.row_similarity import guesses, in_balls, propensity
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM
from distcondense.outcomes.divergences import fences
from distcondense.outcomes.measures import auroc
from tests.conftest import small_frame
from tests.fidelity_inputs import home_of, small_cohort, split_of


def balls_by_hand(real, others, k):
    """How many others lie within the distance of each real row's k-th nearest other real row."""
    inside = []
    for i, row in enumerate(real):
        apart = sorted(np.sqrt(((row - one) ** 2).sum()) for j, one in enumerate(real) if j != i)
        inside.append(sum(np.sqrt(((row - one) ** 2).sum()) <= apart[k - 1] for one in others))
    return inside


@given(st.integers(0, 10**6), st.integers(7, 20), st.integers(1, 20), st.integers(1, 4), st.booleans())
def test_balls_hold_whom_a_loop_finds_also_with_ties(seed, n, m, d, whole):
    rng = np.random.default_rng(seed)
    real, others = (rng.normal(size=(rows, d)) for rows in (n, m))
    if whole:
        real, others = np.round(real), np.round(others)
    for k in (1, 5):
        assert in_balls(real, others, k).tolist() == balls_by_hand(real, others, k)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    real, others = rng.normal(size=(50, 3)), rng.normal(size=(40, 3))
    whole = in_balls(real, others, 5)
    monkeypatch.setattr(row_similarity, "BLOCK", 120)
    assert (in_balls(real, others, 5) == whole).all()


def found_in(part, way=CONDENSED, group=""):
    return {s.measure: s for s in part.scores if s.trained_on == way and s.group == group}


def test_real_rows_are_like_real_rows_and_others_are_not():
    rng = np.random.default_rng(1)
    real, same, far = (rng.normal(size=(400, 3)) + shift for shift in (0, 0, 20))
    told = {
        name: row_similarity.row_measures(real, other, seed=0, threads=1)[0]
        for name, other in (("same", same), ("far", far))
    }
    same, far = ({measure: reach for measure, (reach, _) in told[name].items()} for name in ("same", "far"))
    assert same["density"].value == pytest.approx(1, abs=0.25)
    assert same["coverage"].value > 0.9
    assert same["detection_auroc"].value == pytest.approx(0.5, abs=5 * 0.021)
    assert same["pmse_ratio"].value < 1 + 5 * np.sqrt(2 / 3)
    assert (far["density"].value, far["coverage"].value) == (0, 0)
    assert far["detection_auroc"].value == pytest.approx(1, abs=0.01)
    assert far["pmse"].value == pytest.approx(0.25, abs=0.01)  # every guess is right
    copied, _ = row_similarity.row_measures(real, real, seed=0, threads=1)
    assert copied["coverage"][0].value == 1


def test_the_propensity_score_of_one_flag_is_that_of_its_two_shares():
    rng = np.random.default_rng(2)
    real, others = (rng.random((200, 1)) < p for p in (0.3, 0.5))
    found, chance, parameters = propensity(real * 1.0, others * 1.0, 0)
    both = np.concatenate([real, others])[:, 0]
    label = np.repeat([0.0, 1.0], 200)
    by_hand = np.mean([(label[both == value].mean() - 0.5) ** 2 for value in both])
    assert found == pytest.approx(by_hand, abs=1e-5)
    assert parameters == 1
    assert chance == pytest.approx(0.5**2 / 400)


def test_chance_alone_gives_the_propensity_score_that_theory_says():
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(60):
        rows = rng.normal(size=(400, 4))
        rows = np.column_stack([rows, rows[:, 0] + rows[:, 1]])  # says nothing new: no parameter
        found, chance, parameters = propensity(rows[:200], rows[200:], 0)
        assert parameters == 4
        ratios.append(found / chance)
    assert np.mean(ratios) == pytest.approx(1, abs=5 * np.sqrt(2 / 4 / 60))


def test_who_is_asked_was_not_learned_from():
    """Rows of noise can be learned by heart, and are not told apart all the same."""
    rng = np.random.default_rng(4)
    label, guessed = guesses(rng.normal(size=(250, 30)), rng.normal(size=(250, 30)), seed=0, threads=1)
    assert abs(auroc(label, guessed) - 0.5) < 5 * 0.026
    assert label.sum() == 250


def test_the_part_has_every_measure_for_condensed_and_random_rows_and_is_the_same_again():
    cohort = small_cohort(600)
    inputs = home_of(cohort, cohort.features.iloc[:100])
    part, again = (row_similarity.section(inputs, seed=2, threads=1) for _ in range(2))
    assert json.dumps(part.to_dict(), allow_nan=False) == json.dumps(again.to_dict())
    assert {score.measure for score in part.scores} == set(part.titles)
    whole = {m for m in part.titles if m != "rare_share"}
    assert set(found_in(part)) == set(found_in(part, RANDOM)) == whole
    for score in part.scores:
        assert np.isnan(score.value) == bool(score.note)
        assert np.isnan(score.value) or score.low <= score.value <= score.high
        assert score.interval
    assert found_in(part)["detection_auroc"].rows == 100


def test_rare_values_are_counted_beyond_the_fences_of_held_out_rows():
    frame = small_frame(1000)
    frame.loc[frame.index % 10 == 0, "crp"] = 350.0
    cohort = small_cohort(1000)
    cohort.features["crp"] = frame["crp"].to_numpy()
    inputs = home_of(cohort, cohort.features.iloc[:100].assign(crp=350.0))
    part = row_similarity.section(inputs, seed=0, threads=1)
    real = cohort.features["crp"].to_numpy()
    low, high = fences(real[inputs.split.test])
    first, third = np.quantile(real[inputs.split.test], [0.25, 0.75])
    assert (low, high) == pytest.approx((2.5 * first - 1.5 * third, 2.5 * third - 1.5 * first))
    rare = {way: found_in(part, way, "crp")["rare_share"].value for way in (CONDENSED, RANDOM, FULL)}
    outside = (real < low) | (real > high)
    assert rare[CONDENSED] == 1
    assert rare[FULL] == pytest.approx(outside[inputs.split.train].mean())
    age = found_in(part, FULL, "age")["rare_share"]
    assert np.isnan(age.value)
    assert age.note == f"<{FEWEST} rows"
    gap = found_in(part)["rare_difference"].value
    assert gap == pytest.approx((1 - outside[inputs.split.test].mean()) / 2, abs=1e-9)  # of crp and age


@pytest.mark.parametrize("room", [row_similarity, landscape])
def test_without_rows_or_patients_there_is_a_note(room):
    cohort = small_cohort(300)
    nobody = Split(np.arange(300), *[np.empty(0, np.int64)] * 2)
    for inputs in (home_of(cohort, cohort.features.iloc[:0]), home_of(cohort, cohort.features.iloc[:50], split=nobody)):
        part = room.section(inputs, seed=0, threads=1)
        assert not part.scores
        assert "Not measured" in part.notes[0]


def test_a_handful_of_condensed_rows_have_no_measure_but_a_reason():
    cohort = small_cohort(300)
    part = row_similarity.section(home_of(cohort, cohort.features.iloc[:3]), seed=0, threads=1)
    for measure in ("density", "coverage", "detection_auroc", "pmse", "pmse_ratio"):
        assert np.isnan(found_in(part)[measure].value)
        assert found_in(part)[measure].note


def test_a_wide_table_gets_fewer_rows(monkeypatch):
    cohort = small_cohort(400)
    inputs = home_of(cohort, cohort.features.iloc[:100])
    monkeypatch.setattr(row_similarity, "WORK", 30.0**2 * inputs.rows.shape[1])
    rows = row_similarity.alike_rows(inputs, 0)
    assert [len(table) for table in (rows.held, rows.made, rows.drawn)] == [30, 30, 30]


# -- the landscape ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_map(monkeypatch):
    monkeypatch.setattr(landscape, "MAPPED", 260)
    monkeypatch.setattr(landscape, "CONDENSED_MAPPED", 60)


@pytest.mark.usefixtures("small_map")
def test_the_landscape_shows_shares_of_cells_with_enough_patients_and_nobody():
    cohort = small_cohort(500)
    cohort.features.loc[3, "crp"] = 398.7654
    inputs = home_of(cohort, cohort.features.iloc[:80])
    part = landscape.section(inputs, seed=1, threads=1)
    figures = {figure.name: figure for figure in part.figures}
    assert set(figures) == {"map_real", "map_condensed", "nearest"}
    real = np.array([series.y for series in figures["map_real"].series])
    shown = np.isfinite(real)
    assert shown.sum() > 0
    assert (np.round(real[shown] * 200, 6) >= FEWEST).all()
    assert real[shown].sum() <= 1
    made = np.array([series.y for series in figures["map_condensed"].series])
    assert (np.isfinite(made) == shown).all()
    for series in figures["nearest"].series:
        there = np.array(series.y)[np.isfinite(series.y)]
        assert (there > 0).all()
        assert there.sum() <= 1 + 1e-9
    text = json.dumps(part.to_dict(), allow_nan=False)
    assert "398.76" not in text
    assert json.dumps(landscape.section(inputs, seed=1, threads=1).to_dict()) == text


@pytest.mark.usefixtures("small_map")
def test_nearest_distances_are_those_of_a_loop_and_copies_lie_at_0():
    cohort = small_cohort(200)
    inputs = home_of(cohort)  # its condensed rows are the training rows
    part = landscape.section(inputs, seed=0, threads=1)
    found = {score.trained_on: score for score in part.scores}
    assert found[CONDENSED].value == 0
    train, test = (
        inputs.codec.encode(cohort.features.iloc[rows]).astype(float)
        for rows in (inputs.split.train, inputs.split.test)
    )
    scale = train.std(axis=0)
    near = [min(np.sqrt((((row - one) / scale) ** 2).sum()) for one in train) for row in test]
    assert found[RANDOM].value == pytest.approx(np.median(near), rel=5e-3)  # said with three digits
    own = [
        min(np.sqrt((((row - one) / scale) ** 2).sum()) for j, one in enumerate(train) if j != i)
        for i, row in enumerate(train)
    ]
    assert found[FULL].value == pytest.approx(np.median(own), rel=5e-3, abs=1e-9)


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        found = landscape.median_between(rng.exponential(size=60))
        hits += found.low <= np.log(2) <= found.high
    assert hits / 300 > 0.95 - 5 * 0.0126


def test_a_grid_counts_everybody_once():
    rng = np.random.default_rng(0)
    places = rng.normal(size=(300, 2))
    real, made = landscape.grids(places, 200, 5)
    assert (real.sum(), made.sum()) == (200, 100)


def test_condensed_rows_that_are_all_one_row_can_be_mapped(small_map):
    cohort = small_cohort(300)
    inputs = home_of(cohort, cohort.features.iloc[[5] * 50], split=split_of(300))
    assert len(landscape.section(inputs, seed=0, threads=1).scores) == 3
