"""The copy check: copies are seen, coincidences are not called copies, and every number stands beside a control."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from distcondense import Cohort, Column, Schema
from distcondense.data.codec import Codec
from distcondense.data.persons import Split
from distcondense.evaluation import copies
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.section import Section
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from tests.attack_inputs import home_of
from tests.evaluation_inputs import changed, inputs_of


def check(inputs, **how):
    return copies.section(inputs, seed=0, threads=1, **how)


def value(part, measure, tested_on):
    (score,) = [score for score in part.scores if (score.measure, score.tested_on) == (measure, tested_on)]
    return score


def test_copies_are_seen():
    part = check(home_of("copies", jitter=0.0, rows=150))
    assert value(part, copies.EXACT, copies.TRAIN).value == 1.0
    assert value(part, copies.EXACT_OUTCOME, copies.EVERY).value == 1.0
    assert value(part, copies.EXACT, copies.HELD).value == 0.0
    assert value(part, "dcr_mean", copies.TRAIN).value == 0.0
    assert value(part, copies.NEARER, copies.TRAIN).low > 0.9
    assert any("were copied" in note for note in part.notes)


def test_jitter_hides_equality_but_not_closeness():
    part = check(home_of("copies", jitter=1e-3, rows=150))
    assert value(part, copies.EXACT, copies.TRAIN).value == 0.0
    assert value(part, "dcr_mean", copies.TRAIN).high < value(part, "dcr_5%", copies.HELD).low
    assert value(part, "nndr_median", copies.TRAIN).high < 0.1
    assert value(part, copies.DROPPED, copies.TRAIN).value == 1.0


def test_strangers_are_as_near_to_either():
    part = check(home_of("strangers", rows=250))
    nearer = value(part, copies.NEARER, copies.TRAIN)
    assert nearer.low < 0.5 < nearer.high
    for measure in ("dcr_mean", "dcr_median", "nndr_mean", copies.DROPPED):
        ours, theirs = (value(part, measure, side) for side in (copies.TRAIN, copies.HELD))
        assert ours.low <= theirs.high
        assert theirs.low <= ours.high


def test_the_numbers_are_those_of_a_loop():
    """DCR, NNDR and σ from the paper's formulas, on standardised rows."""
    inputs = home_of("strangers", train=40, test=40, rows=30)
    ruler = Ruler.of(inputs.codec.encode(inputs.cohort.features))
    train, made = (
        ruler(inputs.codec.encode(inputs.cohort.features.iloc[:40])).astype(float),
        ruler(inputs.rows).astype(float),
    )
    apart = np.array([[np.linalg.norm(a - b) for b in train] for a in made])
    first, second = np.sort(apart, axis=1)[:, :2].T
    among = np.array([[np.linalg.norm(a - b) for b in train] for a in train])
    np.fill_diagonal(among, np.inf)
    sigma = among.min(1).mean()
    part = check(inputs)
    assert part.settings["sigma"] == pytest.approx(sigma, rel=1e-5)
    for name, statistic in (("mean", np.mean), ("median", np.median), ("5%", lambda x: np.quantile(x, 0.05))):
        assert value(part, f"dcr_{name}", copies.TRAIN).value == pytest.approx(statistic(first), rel=1e-5)
        assert value(part, f"nndr_{name}", copies.TRAIN).value == pytest.approx(statistic(first / second), rel=1e-5)
    assert value(part, copies.DROPPED, copies.TRAIN).value == pytest.approx(np.mean(first < sigma))


def common_table(copied: bool) -> EvaluationInput:
    """Two columns of a few values: everybody's row is somebody else's, too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 3, 400), "b": rng.integers(0, 3, 400), "y": rng.integers(0, 2, 400)})
    if copied:  # in training rows only
        frame.loc[:199, "a"] += 10
    schema = Schema(
        (
            Column("a", "integer", low=0, high=20),
            Column("b", "integer", low=0, high=2),
            Column("y", "binary", categories=(0, 1)),
        )
    )
    cohort = Cohort.from_frame(frame, target="y", schema=schema)
    chosen, codec = np.arange(100), Codec.public(cohort.schema)
    made = cohort.features.iloc[chosen]
    split = Split(np.arange(200), np.empty(0, np.int64), np.arange(200, 400))
    none = Privacy("none", "toy", None, None, "none", "none")
    return inputs_of(cohort, split, made, Labelled(cohort.outcome.take(chosen)), none, codec=codec)


def test_rows_that_many_share_are_called_a_coincidence():
    part = check(common_table(copied=False))
    assert value(part, copies.EXACT, copies.HELD).value == 1.0
    assert any("coincidence gives: rows that many people share" in note for note in part.notes)
    assert value(part, "nndr_mean", copies.TRAIN).value == 1.0  # 0/0: nobody is singled out
    assert math.isnan(value(part, copies.NEARER, copies.TRAIN).value)
    assert any("were copied" in note for note in check(common_table(copied=True)).notes)


def test_few_are_not_counted_out():
    inputs = home_of("strangers", rows=60)
    frame = inputs.frame.copy()
    frame.iloc[:3] = inputs.cohort.features.iloc[:3].to_numpy()
    frame = frame.astype(inputs.cohort.features.dtypes)
    part = check(changed(inputs, frame=frame, rows=inputs.codec.encode(frame)))
    (table,) = part.tables
    assert table.rows[0][1] == "<10"
    assert not any("3 of 60" in note for note in part.notes)
    assert part.figures == ()  # a quantile of so few rows would be one of them


def test_equal_rows_have_equal_fingerprints_and_others_do_not():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 4, (3000, 5)).astype(np.float32)
    _, by_value = np.unique(rows, axis=0, return_inverse=True)
    _, by_print = np.unique(copies.fingerprints(rows), return_inverse=True)
    assert len(set(zip(by_value.tolist(), by_print.tolist(), strict=True))) == by_value.max() + 1 == by_print.max() + 1
    zero = np.array([[0.0, 1.0], [-0.0, 1.0]], np.float32)
    assert len(set(copies.fingerprints(zero))) == 1


def test_without_rows_or_held_out_people_it_says_so():
    inputs = home_of("strangers", rows=20)
    empty = changed(inputs, rows=inputs.rows[:0], frame=inputs.frame.iloc[:0])
    nobody = replace(inputs, split=Split(inputs.split.train, inputs.split.validation, inputs.split.test[:0]))
    for one in (empty, nobody):
        part = check(one)
        assert part.scores == ()
        assert part.notes[0].startswith("Not checked")


def test_it_is_bounded_and_survives_json(monkeypatch):
    monkeypatch.setattr(copies, "MOST", 50)
    monkeypatch.setattr(copies, "MOST_CONDENSED", 120)
    part = check(home_of("strangers", rows=150))
    assert part.settings["real_rows"] == 50
    assert value(part, "dcr_mean", copies.TRAIN).n == 120
    assert any("random 50 of 300 training" in note for note in part.notes)
    assert part.figures
    assert Section.from_dict(part.to_dict()).to_dict() == part.to_dict()
    assert set(part.titles) == {score.measure for score in part.scores}
    assert part.to_dict() == check(home_of("strangers", rows=150)).to_dict()
