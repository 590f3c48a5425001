"""Attributions of columns: exact against all subsets, alike for the same rows, and without any patient in them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy import stats

from distcondense import Cohort, Column, Schema
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.evaluation.interpretation import attributions as interpretation
from distcondense.evaluation.interpretation import training
from distcondense.evaluation.interpretation.attributions import by_column, compared, explained_line, explained_trees
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM, SOFT
from distcondense.evaluation.section import Section
from distcondense.models import learners
from tests import toys
from tests.conftest import SMALL_TABLE, small_frame
from tests.naive_interpretation import SPLIT, as_text, home_of, of_features, shapley


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    """Students of 20 rounds are explained as those of 100 are."""
    monkeypatch.setattr(learners, "ROUNDS", 20)


def values(part: Section, student: str, trained_on: str = CONDENSED, labels: str = PLAIN, tested_on: str = "held out"):
    return {
        s.measure: s
        for s in part.scores
        if (s.student, s.trained_on, s.labels, s.tested_on) == (student, trained_on, labels, tested_on)
    }


def plain_codec(*widths: int) -> Codec:
    """Columns a, b, …, with so many encoded columns each."""
    blocks = []
    for name, width in zip("abcdefgh", widths, strict=False):
        column = Column(name, "continuous", low=0, high=1)
        blocks.append(EncodedColumn(column, tuple(f"{name}{k}" for k in range(width))))
    return Codec(tuple(blocks), np.zeros(sum(widths)), np.ones(sum(widths)))


@pytest.fixture(scope="module")
def fitted():
    """Three encoded columns that interact, and boosted trees of them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)).astype(np.float32)
    label = (rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.3 * rng.normal(size=400) > 0).astype(int)
    params = {"objective": "binary:logistic", "max_depth": 3, "verbosity": 0, "nthread": 1}
    return xgb.train(params, xgb.DMatrix(rows, label), 8), rows[:25]


def test_attributions_of_trees_are_the_shapley_values_over_all_subsets(fitted):
    booster, rows = fitted
    trees = [json.loads(tree) for tree in booster.get_dump(with_stats=True, dump_format="json")]
    slow = np.array([shapley(trees, row) for row in rows])
    assert np.abs(slow).mean() > 0.05
    each = explained_trees(booster, plain_codec(1, 1, 1), 1)(rows)
    np.testing.assert_allclose(each, np.abs(slow), atol=1e-4)
    together = explained_trees(booster, plain_codec(1, 2), 1)(rows)  # the last two are one column of the table
    np.testing.assert_allclose(together, np.abs(np.stack([slow[:, 0], slow[:, 1] + slow[:, 2]], 1)), atol=1e-4)


def test_attributions_of_all_columns_add_up_to_the_margin(fitted):
    booster, rows = fitted
    margin = booster.predict(xgb.DMatrix(rows), output_margin=True)
    bias = booster.predict(xgb.DMatrix(rows), pred_contribs=True)[:, -1]
    found = explained_trees(booster, plain_codec(3), 1)(rows)[:, 0]
    np.testing.assert_allclose(found, np.abs(margin - bias), atol=1e-4)


def test_explaining_in_blocks_changes_nothing(fitted, monkeypatch):
    booster, rows = fitted
    whole = explained_trees(booster, plain_codec(1, 2), 1)(rows)
    monkeypatch.setattr(interpretation, "BLOCK", 20)
    np.testing.assert_array_equal(explained_trees(booster, plain_codec(1, 2), 1)(rows), whole)


def test_a_line_is_explained_by_coefficient_times_distance():
    rng = np.random.default_rng(1)
    rows, beta = rng.normal(size=(30, 3)).astype(np.float32), np.array([2.0, -1.0, 0.5])
    found = explained_line(beta, plain_codec(1, 2))(rows)
    apart = (rows - rows.mean(0, dtype=np.float64)) * beta
    np.testing.assert_allclose(found, np.abs(np.stack([apart[:, 0], apart[:, 1] + apart[:, 2]], 1)), atol=1e-6)
    np.testing.assert_allclose(found.mean(0)[0], 2 * np.abs(rows[:, 0] - rows[:, 0].mean()).mean(), rtol=1e-5)


def test_classes_are_added_up_by_their_absolute_values():
    given = np.array([[[1.0, -3.0, 2.0], [-4.0, 0.0, 1.0]]])  # one row, two classes, three encoded columns
    np.testing.assert_allclose(by_column(given, plain_codec(1, 2)), [[1 + 4, abs(-3 + 2) + 1]])


def test_the_rank_correlation_is_spearmans():
    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = rng.integers(0, 5, 12).astype(float), rng.random(12)
        assert interpretation.rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert np.isnan(interpretation.rank_correlation(np.ones(5), np.arange(5.0)))
    assert np.isnan(interpretation.rank_correlation(np.arange(2.0), np.arange(2.0)))


def test_overlap_counts_columns_that_matter_only():
    a = np.array([5.0, 4, 3, 0, 0, 0])
    assert interpretation.top_overlap(a, a, 5) == 1
    assert interpretation.top_overlap(a, a[::-1].copy(), 5) == 0  # not the zeros that both lists are filled up with
    assert interpretation.top_overlap(a, np.array([5.0, 0, 3, 4, 0, 0]), 3) == pytest.approx(2 / 3)
    assert np.isnan(interpretation.top_overlap(a * 0, a * 0, 3))


def test_shares_of_importance_are_apart_by_half_their_difference():
    assert interpretation.share_distance(np.array([1.0, 1]), np.array([2.0, 2])) == 0
    assert interpretation.share_distance(np.array([1.0, 0]), np.array([0.0, 3])) == 1
    assert interpretation.share_distance(np.array([3.0, 1]), np.array([1.0, 1])) == pytest.approx(0.25)


def test_persons_are_resampled_together():
    rng = np.random.default_rng(3)
    one, other = rng.random((200, 8)), rng.random((200, 8))
    columns = list("abcdefgh")
    alone = compared(one, other, columns, person=None, apart=False, seed=0)
    in_two = compared(one, other, columns, person=np.repeat([0, 1], 100), apart=False, seed=0)
    assert alone["attribution_distance"].value == in_two["attribution_distance"].value
    assert alone["attribution_distance"].low != in_two["attribution_distance"].low


@pytest.mark.parametrize("outcome", ["binary", "survival"])
def test_the_same_rows_are_explained_alike(outcome, request):
    cohort = request.getfixturevalue(outcome)
    inputs = home_of(cohort, SPLIT.split(cohort).train)
    part = interpretation.section(inputs, seed=0, threads=1)
    for student in ("trees", "linear"):
        for tested_on in ("held out", "own rows"):
            found = values(part, student, tested_on=tested_on)
            assert found["attribution_correlation"].value == pytest.approx(1)
            assert found["attribution_top"].value == found["attribution_short"].value == 1
            assert found["attribution_distance"].value == pytest.approx(0, abs=1e-9)
        figure = next(figure for figure in part.figures if figure.name.endswith(student))
        real, made = figure.series
        assert real.y == pytest.approx(made.y)
        assert sum(real.y) == pytest.approx(1, abs=1e-3)
        assert set(real.x) == set(cohort.schema.names)
    assert Section.from_dict(json.loads(as_text(part))).to_dict() == part.to_dict()
    assert set(part.titles) >= {score.measure for score in part.scores}


def test_rows_that_teach_the_opposite_order_are_found_out():
    rng = np.random.default_rng(4)
    x = rng.random((900, 6))
    frame = pd.DataFrame(x, columns=list("abcdef"))
    frame["y"] = (rng.random(900) < 1 / (1 + np.exp(-(x - 0.5) @ np.array([16, 8, 4, 2, 1, 0.5])))).astype(int)
    columns = [Column(name, "continuous", low=0, high=1) for name in "abcdef"]
    schema = Schema((*columns, Column("y", "binary", categories=(0, 1))))
    cohort = Cohort.from_frame(frame, target="y", schema=schema)
    rows = SPLIT.split(cohort).train
    turned = cohort.take(rows).features[list("fedcba")].set_axis(list("abcdef"), axis=1)
    part = interpretation.section(of_features(cohort, turned, cohort.take(rows).outcome), seed=0, threads=1)
    for student in ("trees", "linear"):
        worse, fair = values(part, student), values(part, student, RANDOM, "")
        assert worse["attribution_correlation"].high < 0 < fair["attribution_correlation"].low
        assert worse["attribution_short"].value < fair["attribution_short"].value == 1
        assert worse["attribution_distance"].low > fair["attribution_distance"].high


def test_soft_labels_and_weights_are_a_way_of_their_own(binary):
    rows = SPLIT.split(binary).train[:80]
    label = binary.outcome["label"][rows].astype(float)
    inputs = home_of(binary, rows, soft=0.1 + 0.8 * label, weight=np.linspace(1, 3, 80))
    part = interpretation.section(inputs, seed=0, threads=1)
    for student in ("trees", "linear"):
        assert 0 < values(part, student, labels=SOFT)["attribution_distance"].value < 0.5
    assert not values(interpretation.section(home_of(binary, rows), seed=0, threads=1), "trees", labels=SOFT)


def test_what_weights_add_up_to_changes_no_linear_model(survival):
    rows = SPLIT.split(survival).train[:80]
    small, large = (
        interpretation.section(home_of(survival, rows, weight=np.linspace(1, 3, 80) * by), seed=0, threads=1)
        for by in (1, 1000)
    )
    first, second = (values(part, "linear", labels=SOFT)["attribution_distance"].value for part in (small, large))
    assert first == pytest.approx(second, rel=1e-4)
    assert first != values(small, "linear")["attribution_distance"].value


def many_kinds():
    frame = small_frame()
    frame["ward"] = np.where(frame.crp > 25, "x", np.where(frame.age > 50, "y", "z"))
    ward = Column("ward", "categorical", categories=("x", "y", "z"))
    features = SMALL_TABLE.columns[:4]
    frame["share"] = frame.age / 100
    score = Column("score", "continuous", low=0, high=100)
    frame["score"] = frame.age / 2 + frame.crp / 10
    drop = ["died", "months", "event"]
    yield Cohort.from_frame(
        frame.drop(columns=[*drop, "share", "score"]), target="ward", schema=Schema((*features, ward))
    )
    yield Cohort.from_frame(
        frame.drop(columns=[*drop, "share", "ward"]), target="score", schema=Schema((*features, score))
    )
    with toys.registered():
        yield Cohort.from_frame(
            frame.drop(columns=[*drop, "score", "ward"]),
            target="share",
            kind="fraction",
            schema=Schema((*features, Column("share", "continuous", low=0, high=1))),
        )


def test_other_kinds_of_outcome_are_explained_by_what_they_have():
    for cohort, lines in zip(many_kinds(), (True, True, False), strict=True):
        split = SPLIT.split(cohort)
        part = interpretation.section(home_of(cohort, split.train), seed=0, threads=1)
        assert values(part, "trees")["attribution_distance"].value == pytest.approx(0, abs=1e-9)
        linear = values(part, "linear")["attribution_distance"]
        assert np.isfinite(linear.value) == lines
        assert bool(linear.note) != lines  # the toy has no linear model, and says so


def test_soft_labels_of_several_classes_are_explained_too():
    cohort = next(many_kinds())
    rows = SPLIT.split(cohort).train[:90]
    soft = 0.1 + 0.7 * np.eye(3)[cohort.outcome["label"][rows].astype(int)]
    part = interpretation.section(home_of(cohort, rows, soft=soft), seed=0, threads=1)
    for student in ("trees", "linear"):
        assert values(part, student, labels=SOFT)["attribution_correlation"].value > 0


def test_rows_of_one_class_say_why_there_is_no_number(binary):
    rows = np.flatnonzero(binary.outcome["label"] == 1)[:20]
    part = interpretation.section(home_of(binary, rows), seed=0, threads=1)
    found = [score for score in part.scores if score.trained_on == CONDENSED]
    assert found
    assert all(np.isnan(score.value) and score.note for score in found)
    as_text(part)


def test_without_rows_there_is_a_note(binary):
    part = interpretation.section(home_of(binary, []), seed=0, threads=1)
    assert part.notes
    assert not part.scores
    assert not part.figures


def test_nothing_is_said_about_few_held_out_rows(binary, monkeypatch):
    monkeypatch.setattr(interpretation, "FEWEST", 10_000)
    part = interpretation.section(home_of(binary, range(50)), seed=0, threads=1)
    assert not part.figures
    assert not part.tables
    assert all(np.isnan(score.value) and "held out" in score.note for score in part.scores)


def test_samples_are_bounded_and_said(binary, monkeypatch):
    for module, name, most in (
        (interpretation, "ROWS", 100),
        (training, "ROWS", 100),
        (interpretation, "EXPLAINED", 30),
    ):
        monkeypatch.setattr(module, name, most)
    part = interpretation.section(home_of(binary, range(150)), seed=0, threads=1)
    assert part.settings["taught with rows"] == 100
    assert {score.n for score in part.scores} == {30}
    assert {score.rows for score in part.scores if score.trained_on == CONDENSED} == {100}
    assert "a random 100 of" in part.notes[0]
    again = interpretation.section(home_of(binary, range(150)), seed=0, threads=1)
    assert as_text(again) == as_text(part)


def test_no_patient_stands_in_the_part():
    frame = small_frame()
    frame.loc[::2, "crp"] = 123.456789
    frame.loc[7, "crp"] = 399.87654
    cohort = Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    text = as_text(interpretation.section(home_of(cohort, range(1, 200, 2)), seed=0, threads=1))
    assert "123.45" not in text
    assert "399.87" not in text
