"""Fidelity: every measure against SDMetrics, SciPy or scikit-learn; what may be shown; and the part as a whole."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense import Cohort, Column, Schema
from distcondense.data.persons import Split
from distcondense.evaluation.fidelity import columns as fidelity
from distcondense.evaluation.fidelity.comparison import bars, centred, compared, too_few
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM, SOFT
from distcondense.evaluation.section import Section
from distcondense.outcomes import likeness
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.divergences import (
    SMOOTHING,
    category_coverage,
    correlation,
    hellinger,
    information,
    jensen_shannon,
    kolmogorov_smirnov,
    kullback_leibler,
    range_coverage,
    shared_information,
    shares,
    total_variation,
)
from distcondense.outcomes.likeness import FEWEST, ComparedColumn
from tests.conftest import SMALL_TABLE, small_frame
from tests.fidelity_inputs import home_of, small_cohort, split_of


@st.composite
def counts(draw):
    """Two tables of the same cells, some of them empty, neither wholly."""
    k = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    p, q = (rng.integers(0, draw(st.integers(2, 30)), k).astype(float) for _ in range(2))
    p[rng.integers(k)] += 1
    q[rng.integers(k)] += 1
    return p, q


@st.composite
def numbers(draw):
    """Two samples of numbers with ties, one number at least."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    most = draw(st.integers(1, 30))
    return tuple(rng.integers(0, most, draw(st.integers(1, 40))).astype(float) for _ in range(2))


def repeated(values, times):
    return np.repeat(values, times.astype(int))


# -- against the libraries --------------------------------------------------------------------------------------------


@given(counts())
def test_distances_of_shares_are_scipys(case):
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    p, q = map(shares, case)
    assert jensen_shannon(p, q) == pytest.approx(jensenshannon(p, q, base=2), abs=1e-7)
    smooth = [shares(table + SMOOTHING) for table in case]
    assert kullback_leibler(*case) == pytest.approx(entropy(*smooth), abs=1e-12)
    assert hellinger(p, q) == pytest.approx(np.sqrt(max(1 - np.sqrt(p * q).sum(), 0)), abs=1e-7)
    for distance in (total_variation, jensen_shannon, hellinger):
        assert distance(p, p) == pytest.approx(0, abs=1e-7)
        assert distance(p, q) == pytest.approx(distance(q, p))
        assert -1e-12 <= distance(p, q) <= 1 + 1e-12


@given(numbers(), st.integers(0, 10**6))
def test_the_kolmogorov_smirnov_distance_is_scipys_and_takes_weights(case, seed):
    from scipy.stats import ks_2samp

    real, other = case
    assert kolmogorov_smirnov(real, other) == pytest.approx(ks_2samp(real, other, method="asymp").statistic)
    weight = np.random.default_rng(seed).integers(0, 4, len(other)).astype(float)
    weight[0] = 1
    assert kolmogorov_smirnov(real, other, weight) == pytest.approx(kolmogorov_smirnov(real, repeated(other, weight)))


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_mutual_information_is_scikit_learns(seed, a, b):
    from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, a, 40), rng.integers(0, b, 40)
    table = np.zeros((a, b))
    np.add.at(table, (x, y), 1)
    assert information(table) == pytest.approx(mutual_info_score(x, y), abs=1e-12)
    if len(set(x)) > 1 or len(set(y)) > 1:
        assert shared_information(table) == pytest.approx(normalized_mutual_info_score(x, y), abs=1e-10)
    else:
        assert shared_information(table) == 0


def test_columns_agree_with_sdmetrics():
    single = pytest.importorskip("sdmetrics.single_column")
    rng = np.random.default_rng(2)
    for _ in range(10):
        real, other = rng.normal(0, 1, 80).round(1), rng.normal(0.5, 0.5, 50).round(1)
        assert 1 - kolmogorov_smirnov(real, other) == pytest.approx(
            single.KSComplement.compute(pd.Series(real), pd.Series(other))
        )
        assert range_coverage(real, other) == pytest.approx(
            single.RangeCoverage.compute(pd.Series(real), pd.Series(other))
        )
        x, y = rng.choice(6, 80, p=[0.4, 0.2, 0.2, 0.1, 0.1, 0.0]), rng.choice(5, 30, p=[0.5, 0.3, 0.0, 0.1, 0.1])
        tallied = [np.bincount(codes, minlength=6).astype(float) for codes in (x, y)]
        names = np.array(list("abcdef"), object)
        assert 1 - total_variation(*map(shares, tallied)) == pytest.approx(
            single.TVComplement.compute(pd.Series(names[x]), pd.Series(names[y])), abs=1e-6
        )
        assert category_coverage(*tallied) == pytest.approx(
            single.CategoryCoverage.compute(pd.Series(names[x]), pd.Series(names[y]))
        )


def test_pairs_agree_with_sdmetrics_also_beside_holes():
    double = pytest.importorskip("sdmetrics.column_pairs")
    rng = np.random.default_rng(4)

    def table(n):
        x = rng.normal(size=n)
        y = x * rng.normal() + rng.normal(size=n)
        return np.where(rng.random(n) < 0.1, np.nan, x), np.where(rng.random(n) < 0.1, np.nan, y)

    for _ in range(5):
        real, other = table(90), table(60)
        found = [float(correlation(*rows, np.ones(len(rows[0])))) for rows in (real, other)]
        theirs = double.CorrelationSimilarity.compute(*(pd.DataFrame(np.array(rows).T) for rows in (real, other)))
        assert 1 - abs(found[0] - found[1]) / 2 == pytest.approx(theirs)
        codes = [(rng.integers(0, 4, n), rng.integers(0, 3, n)) for n in (90, 60)]
        joint = [np.bincount(a * 3 + b, minlength=12).astype(float) for a, b in codes]
        theirs = double.ContingencySimilarity.compute(
            *(pd.DataFrame({"a": a.astype(str), "b": b.astype(str)}) for a, b in codes)
        )
        assert 1 - total_variation(*map(shares, joint)) == pytest.approx(theirs)


@given(st.integers(0, 10**6))
def test_a_correlation_with_counts_is_that_of_repeated_rows(seed):
    rng = np.random.default_rng(seed)
    x, y, times = rng.integers(0, 5, 30) * 1.0, rng.integers(0, 5, 30) + 1e6, rng.integers(0, 3, (30, 4)) * 1.0
    found = correlation(x, y, times)
    for k in range(4):
        a, b = repeated(x, times[:, k]), repeated(y, times[:, k])
        alone = len(set(a)) < 2 or len(set(b)) < 2
        assert found[k] == pytest.approx(np.nan if alone else np.corrcoef(a, b)[0, 1], abs=1e-8, nan_ok=True)


# -- the ends ---------------------------------------------------------------------------------------------------------


def test_the_same_is_0_and_the_disjoint_is_as_far_as_it_gets():
    p, q = np.array([3.0, 7.0, 0.0, 0.0]), np.array([0.0, 0.0, 2.0, 2.0])
    for distance in (total_variation, jensen_shannon, hellinger):
        assert distance(shares(p), shares(q)) == pytest.approx(1)
    assert kullback_leibler(p, p) == 0
    assert 0 < kullback_leibler(p, q) < np.inf
    assert (category_coverage(p, p), category_coverage(p, q)) == (1, 0)
    low, high = np.arange(5.0), np.arange(10.0, 15.0)
    assert (kolmogorov_smirnov(low, low), kolmogorov_smirnov(low, high)) == (0, 1)
    assert (range_coverage(low, low), range_coverage(low, high)) == (1, 0)


def test_nobody_one_row_and_constants_have_no_measure_or_a_plain_one():
    none, one = np.empty(0), np.array([2.0])
    assert np.isnan(kolmogorov_smirnov(none, one))
    assert np.isnan(range_coverage(one, one))
    assert np.isnan(range_coverage(np.arange(3.0), none))
    assert kolmogorov_smirnov(one, one) == 0
    assert np.isnan(correlation(np.full(7, 0.1), np.arange(7.0), np.ones(7)))
    assert np.isnan(correlation(one, one, np.ones(1)))
    assert shared_information(np.array([[5.0]])) == 0


def test_an_interval_is_the_spread_of_the_resamples_around_the_value():
    found = centred(np.concatenate([[0.1], 0.3 + np.linspace(-0.05, 0.05, 201)]))
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.0525, 0.1475))
    assert centred(np.concatenate([[0.01], 0.3 + np.linspace(-0.05, 0.05, 201)])).low == 0


# -- what may be shown ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), min_size=2, max_size=25), st.booleans())
def test_a_bar_has_enough_rows_or_there_is_one_bar(held, ordered):
    held = np.array(held, float)
    labels = tuple(map(str, range(len(held))))
    facet = ComparedColumn("x", labels, False, ordered, (np.zeros(0, int),) * 3)
    bar, names = bars(facet, held)
    each = np.bincount(bar, held, minlength=len(names))
    assert len(each) == len(names)
    assert each.sum() == held.sum()
    assert len(names) == 1 or each.min() >= FEWEST
    assert not ordered or (np.diff(bar) >= 0).all()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=25))
def test_what_is_hidden_cannot_be_told_from_what_is_shown(held):
    held = np.array(held, float)
    few = too_few(held)
    assert (held[~few] >= FEWEST).all()
    hidden = held[few].sum()
    assert hidden == 0 or hidden >= FEWEST or few.all()


# -- the part ---------------------------------------------------------------------------------------------------------


def test_a_copy_of_held_out_rows_is_the_same_and_the_yardstick_is_near():
    cohort = small_cohort(400)
    split = split_of(400)
    labelled = Labelled(cohort.outcome.take(split.test))
    inputs = home_of(cohort, cohort.features.iloc[split.test], labelled, split=split)
    part = fidelity.section(inputs, seed=1, threads=1)
    for score in part.scores:
        if score.trained_on == CONDENSED:
            assert score.value == pytest.approx(float("similarity" in score.measure or "coverage" in score.measure))
        if score.trained_on == RANDOM and score.measure == "total_variation":
            assert 0 < score.value < 0.35
    assert Section.from_dict(json.loads(json.dumps(part.to_dict(), allow_nan=False))).to_dict() == part.to_dict()


def values_of(part, measure, labels=PLAIN, way=CONDENSED):
    return {s.group: s for s in part.scores if (s.measure, s.labels, s.trained_on) == (measure, labels, way)}


def test_every_column_is_measured_as_a_loop_over_its_cells_does():
    cohort = small_cohort(300)
    inputs = home_of(cohort, cohort.features.iloc[:50])
    part = fidelity.section(inputs, seed=0, threads=1)
    real, made = cohort.features.iloc[inputs.split.test], inputs.frame
    found = values_of(part, "total_variation")
    stages = {name: [(table["stage"] == name).mean() for table in (real, made)] for name in ("I", "II", "III")}
    assert found["stage"].value == pytest.approx(sum(abs(a - b) for a, b in stages.values()) / 2)
    binned = [np.minimum(table["crp"] // 20, 19) for table in (real, made)]  # 20 cells of [0, 400]
    by_hand = sum(abs((binned[0] == k).mean() - (binned[1] == k).mean()) for k in range(20)) / 2
    assert found["crp"].value == pytest.approx(by_hand)
    mean = np.mean([score.value for group, score in found.items() if group])
    assert found[""].value == pytest.approx(mean)
    assert all(s.low <= s.value <= s.high for s in found.values())
    assert set(found) == {"", *cohort.schema.names, "died"}
    assert set(part.titles) == {score.measure for score in part.scores}


def test_weights_restore_the_population():
    cohort = small_cohort(600)
    label = cohort.outcome["label"]
    train = split_of(600).train
    few = [np.flatnonzero(label[train] == value)[:60] for value in (0, 1)]
    chosen = np.concatenate([few[0], few[1]])
    weight = np.repeat([(label[train] == value).mean() for value in (0, 1)], 60)
    inputs = home_of(cohort, cohort.features.iloc[chosen], Labelled(cohort.outcome.take(chosen)), weight=weight)
    part = fidelity.section(inputs, seed=0, threads=1)
    weighted, plain = (values_of(part, "total_variation", labels)["died"].value for labels in (SOFT, PLAIN))
    assert weighted < plain / 2
    assert values_of(part, "correlation_difference", SOFT)[""].labels == SOFT


def test_holes_are_a_category_and_a_constant_column_does_no_harm():
    frame = small_frame(300)
    frame["bmi"] = np.where(np.arange(300) % 3 == 0, np.nan, 20.0 + np.arange(300) % 7)
    frame["same"] = 5
    schema = Schema(
        (
            Column("bmi", "continuous", low=10, high=60, missing="indicator"),
            Column("same", "integer", low=0, high=9),
            Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
            Column("died", "binary", categories=(0, 1)),
        )
    )
    frame.loc[frame.index % 5 == 0, "stage"] = None
    cohort = Cohort.from_frame(frame[["bmi", "same", "stage", "died"]], target="died", schema=schema)
    with pytest.warns(match="constant"):
        inputs = home_of(cohort, cohort.features.iloc[:60].assign(bmi=25.0, stage="I"))
    part = fidelity.section(inputs, seed=0, threads=1)
    found = values_of(part, "total_variation")
    real = cohort.features.iloc[inputs.split.test]
    cell = ((real["bmi"] >= 25) & (real["bmi"] < 27.5)).mean()  # the cell of 25 holds all condensed rows
    assert found["bmi"].value == pytest.approx(1 - cell)
    assert found["stage"].value == pytest.approx(1 - (real["stage"] == "I").mean())
    assert found["same"].value == 0
    assert np.isnan(values_of(part, "range_coverage")["same"].value)
    assert any("no correlation" in note for note in part.notes)


def test_nothing_is_said_of_a_number_that_few_patients_have():
    frame = small_frame(300)
    frame["rare"] = np.nan
    frame.loc[[3, 5, 290, 295], "rare"] = 0.777123
    schema = Schema(
        (
            Column("rare", "continuous", missing="indicator"),
            Column("age", "integer", low=0, high=120),
            Column("died", "binary", categories=(0, 1)),
        )
    )
    cohort = Cohort.from_frame(frame[["rare", "age", "died"]], target="died", schema=schema)
    part = fidelity.section(home_of(cohort, cohort.features.iloc[:30]), seed=0, threads=1)
    for measure in ("ks", "range_coverage"):
        found = values_of(part, measure)["rare"]
        assert np.isnan(found.value)
        assert found.note
    heat = next(figure for figure in part.figures if figure.name == "correlations_real")
    assert all(np.isnan(series.y[heat.series[0].x.index("rare")]) for series in heat.series)


def test_no_value_of_a_patient_is_in_the_part():
    frame = small_frame(500)
    frame["secret"] = np.round(np.random.default_rng(0).normal(50, 5, 500), 5)
    frame.loc[480, "secret"] = 98765.43211
    frame.loc[7, "secret"] = -4321.98765
    schema = Schema(
        (
            Column("secret", "continuous"),
            Column("age", "integer", low=0, high=120),
            Column("stage", "categorical", categories=("I", "II", "III", "canary")),
            Column("died", "binary", categories=(0, 1)),
        )
    )
    frame.loc[490, "stage"] = "canary"
    cohort = Cohort.from_frame(frame[["secret", "age", "stage", "died"]], target="died", schema=schema)
    text = json.dumps(fidelity.section(home_of(cohort, cohort.features.iloc[:40]), seed=0, threads=1).to_dict())
    for canary in ("98765", "-4321", "canary"):
        assert canary not in text
    for value in frame["secret"].round(3):
        assert f"{value:.3f}" not in text


def test_words_and_bounds_that_only_patients_said_are_not_shown():
    frame = small_frame(500).replace({"stage": {"I": "CANARY-ONE", "II": "CANARY-TWO"}})
    frame["crp"] += 1234.5
    cohort = Cohort.from_frame(frame, target="died", ignore=["months", "event"])  # the schema is inferred
    text = json.dumps(fidelity.section(home_of(cohort, cohort.features.iloc[:40]), seed=0, threads=1).to_dict())
    assert "CANARY" not in text
    assert "level 1" in text
    assert not any(f'"{edge}' in text for edge in ("12", "13", "14"))


def test_the_same_seed_gives_the_same_part_and_the_bounds_hold(monkeypatch):
    from distcondense.evaluation.fidelity import comparison

    cohort = small_cohort(400)
    inputs = home_of(cohort, cohort.features.iloc[:80])
    monkeypatch.setattr(comparison, "HELD", 50)
    monkeypatch.setattr(comparison, "COLUMNS", 2)
    first, again = (fidelity.section(inputs, seed=5, threads=1) for _ in range(2))
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert {score.n for score in first.scores} == {50}
    assert len(values_of(first, "total_variation")) == 1 + 2 + 1  # the mean, two columns, the outcome
    assert any("a random 50 of 160" in note for note in first.notes)
    assert any("2 columns, chosen at random, of 4" in note for note in first.notes)


def test_rows_of_one_person_are_resampled_together():
    frame = pd.concat([small_frame(60)] * 5, ignore_index=True)
    frame["who"] = np.tile(np.arange(60), 5)
    given = {"target": "died", "ignore": ["months", "event"], "schema": SMALL_TABLE}
    together = Cohort.from_frame(frame, person_id="who", **given)
    alone = Cohort.from_frame(frame.drop(columns="who"), **given)
    persons = np.arange(300) % 60 < 30
    split = Split(np.flatnonzero(persons), np.empty(0, np.int64), np.flatnonzero(~persons))
    widths = []
    for cohort, words in ((together, "persons"), (alone, "rows")):
        part = fidelity.section(home_of(cohort, cohort.features.iloc[:40], split=split), seed=0, threads=1)
        found = values_of(part, "contingency_similarity")[""]
        widths.append(found.high - found.low)
        assert words in found.interval
    assert widths[0] > 1.5 * widths[1]


def test_without_rows_or_patients_there_is_a_note_and_no_score():
    cohort = small_cohort(300)
    empty = home_of(cohort, cohort.features.iloc[:0])
    nobody = home_of(cohort, cohort.features.iloc[:50], split=Split(np.arange(300), *[np.empty(0, np.int64)] * 2))
    for inputs in (empty, nobody):
        part = fidelity.section(inputs, seed=0, threads=1)
        assert not part.scores
        assert "Not measured" in part.notes[0]


def test_one_condensed_row_and_one_column_are_enough():
    frame = small_frame(200)[["age", "died"]]
    schema = Schema((Column("age", "integer", low=0, high=120), Column("died", "binary", categories=(0, 1))))
    cohort = Cohort.from_frame(frame, target="died", schema=schema)
    part = fidelity.section(home_of(cohort, cohort.features.iloc[:1]), seed=0, threads=1)
    assert np.isfinite(values_of(part, "ks")["age"].value)
    assert np.isfinite(values_of(part, "correlation_difference")[""].value)


def test_pairs_are_those_of_a_loop_over_rows():
    cohort = small_cohort(250)
    comparison = compared(home_of(cohort, cohort.features.iloc[:70]), 3)
    facets = [likeness.grouped(facet) for facet in comparison.columns]
    assert all(facet.size <= likeness.GROUPS for facet in facets)
    found = likeness.joint_tables(comparison, 3)[0][0][:, 0]
    for value, (i, j) in zip(found, likeness.some_pairs(len(facets), 3), strict=True):
        gap = 0.0
        for a in range(facets[i].size):
            for b in range(facets[j].size):
                shown = [np.mean((facets[i].codes[w] == a) & (facets[j].codes[w] == b)) for w in (0, 1)]
                gap += abs(shown[0] - shown[1]) / 2
        assert value == pytest.approx(1 - gap)


def test_at_most_so_many_pairs_are_looked_at_and_groups_made():
    chosen = likeness.some_pairs(60, 1)
    assert len(chosen) == len(set(chosen)) == likeness.PAIRS
    codes = np.arange(400) % 40
    many = ComparedColumn("many", tuple(map(str, range(41))), True, False, (codes, codes[:50], np.full(9, 40)))
    few = likeness.grouped(many)
    assert few.size == likeness.GROUPS
    assert (few.codes[2] == likeness.GROUPS - 1).all()  # a hole stays one
    assert set(few.codes[0]) == set(range(likeness.GROUPS - 1))
