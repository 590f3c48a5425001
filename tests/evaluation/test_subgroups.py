"""By subgroup: each group's number against a library, the gap and its interval, and who must not be shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from distcondense import Cohort, Column, Schema
from distcondense.data.persons import HoldoutSplit
from distcondense.evaluation import experiment
from distcondense.evaluation.score import CONDENSED, FULL, SOFT, interval
from distcondense.evaluation.utility import subgroups
from tests.conftest import SMALL_TABLE, small_frame
from tests.evaluation_inputs import HOW, cohort_of, home_of, nobody_held_out, without_rows


def of(part, way=FULL, measure="auroc"):
    return {s.group: s for s in part.scores if (s.trained_on, s.measure) == (way, measure)}


def unfair_cohort(rows=4000, seed=0, persons=False, extra=()):
    """The column `age` says much about the outcome of one half of the patients, and nothing about the other's."""
    rng = np.random.default_rng(seed)
    frame = small_frame(rows, seed)
    seen = frame["smoker"] == 1
    frame["died"] = np.where(seen, frame["age"] + rng.normal(0, 8, rows) > 55, rng.random(rows) < 0.5).astype(int)
    for name, values in extra:
        frame[name] = values
    if persons:
        frame["who"] = np.arange(rows) // 2
    schema = Schema(
        (
            *SMALL_TABLE.columns,
            *(
                Column(name, "categorical", categories=tuple(dict.fromkeys(values)), missing="refuse")
                for name, values in extra
            ),
        )
    )
    return Cohort.from_frame(frame, schema=schema, **HOW["binary"], **({"person_id": "who"} if persons else {}))


def test_every_group_has_the_librarys_number_and_the_gap_is_their_difference():
    from sklearn.metrics import roc_auc_score

    inputs = home_of(unfair_cohort(), 500)
    part = subgroups.section(inputs, seed=0, threads=1)
    split = inputs.split
    train, apart, test = (inputs.cohort.take(rows) for rows in (split.train, split.validation, split.test))
    validation = (inputs.codec.encode(apart.features), apart.outcome)
    real = inputs.codec.encode(train.features)
    models = {
        FULL: inputs.learner.fit(real, train.outcome, validation=validation, seed=0, threads=1),
        CONDENSED: inputs.learner.fit(
            inputs.rows, inputs.made, weight=inputs.labelled.weight, soft=inputs.labelled.soft, seed=0
        ),
    }
    for way, model in models.items():
        said, found = model.scores(inputs.codec.encode(test.features)), of(part, way)
        wanted = {}
        for column, level in (("smoker", 0), ("smoker", 1), ("stage", "I"), ("stage", "II"), ("stage", "III")):
            there = (test.features[column] == level).to_numpy()
            wanted[f"{column} = {level}"] = roc_auc_score(test.outcome["label"][there], said[there])
        assert {name: score.value for name, score in found.items()} == pytest.approx(wanted, abs=1e-9)
        gaps = of(part, way, subgroups.GAP)
        assert gaps["smoker"].value == pytest.approx(abs(wanted["smoker = 1"] - wanted["smoker = 0"]), abs=1e-9)
        stages = [wanted[f"stage = {level}"] for level in ("I", "II", "III")]
        assert gaps["stage"].value == pytest.approx(max(stages) - min(stages), abs=1e-9)
    assert {s.labels for s in part.scores if s.trained_on == CONDENSED} == {SOFT}
    assert of(part, FULL, subgroups.GAP)["smoker"].low > 0.2  # of those whom age says nothing about
    assert [len(series.x) for series in part.figures[0].series] == [2, 2]
    assert [len(series.x) for series in part.figures[1].series] == [5, 5]
    assert subgroups.GAP in part.titles


def test_groups_share_no_rows_so_the_variance_of_a_gap_is_the_sum_of_theirs():
    inputs = home_of(unfair_cohort(), 500)
    part = subgroups.section(inputs, seed=0, threads=1)
    rows = np.arange(len(inputs.split.test))
    again = subgroups.Measured(0.5, np.full(len(rows), 0.01))
    assert interval(again).high == pytest.approx(0.5 + 1.959964 * np.sqrt(len(rows)) * 0.01)
    gap = of(part, FULL, subgroups.GAP)["smoker"]
    one, other = (of(part)[f"smoker = {level}"] for level in (0, 1))
    widths = np.hypot(one.high - one.low, other.high - other.low)
    assert gap.high - gap.value == pytest.approx(widths / 2, rel=0.05)  # Wilson's are a little narrower


def test_persons_with_several_rows_widen_intervals():
    cohort = unfair_cohort(persons=True)
    twice = cohort.take(np.repeat(np.arange(0, len(cohort), 2), 2))  # both rows of a person are the same
    inputs = home_of(twice, 500)
    by_person = of(subgroups.section(inputs, seed=0, threads=1))["smoker = 0"]
    by_row = of(subgroups.section(replace(inputs, cohort=replace(twice, person=None)), seed=0, threads=1))["smoker = 0"]
    assert by_person.value == by_row.value
    assert by_person.high - by_person.low == pytest.approx(np.sqrt(2) * (by_row.high - by_row.low), rel=0.05)


@pytest.mark.parametrize("kind", HOW)
def test_every_kind_of_outcome_has_groups(kind):
    inputs = home_of(cohort_of(kind, 2000))
    part = subgroups.section(inputs, seed=0, threads=1)
    main = inputs.kind.measures[0]
    assert {"smoker = 0", "smoker = 1"} <= set(of(part, FULL, main))
    assert set(of(part, CONDENSED, subgroups.GAP)) == {"smoker", "stage"} - {*inputs.kind.names}


def test_small_groups_and_groups_of_few_cases_are_left_out_and_counted():
    rows = 2000
    rng = np.random.default_rng(1)
    tiny = np.where(np.arange(rows) < 30, "rare", np.where(rng.random(rows) < 0.5, "this", "that"))
    cohort = unfair_cohort(rows, extra=[("sort", tiny)])
    part = subgroups.section(home_of(cohort, 300), seed=0, threads=1)
    assert {name for name in of(part) if name.startswith("sort")} == {"sort = this", "sort = that"}
    assert any(note.startswith("1 groups of these columns are smaller") for note in part.notes)
    assert all(score.n % 10 == 0 for score in part.scores)  # so that the rest cannot be had by subtraction
    # a group of many rows in which nearly all lived says how the few stand who did not
    label = cohort.outcome["label"].copy()
    label[(tiny == "this") & (np.arange(rows) % 300 > 0)] = 0
    few = replace(cohort, outcome=cohort.outcome.with_arrays(label=label))
    assert not [name for name in of(subgroups.section(home_of(few, 300), seed=0, threads=1)) if name.startswith("sort")]


def test_columns_are_bounded_and_those_with_many_levels_are_none(monkeypatch):
    rows = 2000
    rng = np.random.default_rng(1)
    cohort = unfair_cohort(rows, extra=[("ward", rng.choice([f"w{k}" for k in range(13)], rows))])
    part = subgroups.section(home_of(cohort, 300), seed=0, threads=1)
    assert set(of(part, FULL, subgroups.GAP)) == {"smoker", "stage"}
    assert any("1 columns have more than 12 levels" in note for note in part.notes)
    monkeypatch.setattr(subgroups, "COLUMNS", 1)
    part = subgroups.section(home_of(cohort, 300), seed=0, threads=1)
    assert set(of(part, FULL, subgroups.GAP)) == {"smoker"}  # its second group is the larger
    assert any("1 columns with smaller groups were left out" in note for note in part.notes)


def test_words_that_only_patients_said_are_not_shown():
    frame = small_frame(1500).replace({"stage": {"I": "CANARY-ONE", "II": "CANARY-TWO", "III": "CANARY-THREE"}})
    cohort = Cohort.from_frame(frame, target="died", ignore=["months", "event"])  # the schema is inferred
    part = subgroups.section(home_of(cohort, 300), seed=0, threads=1)
    assert "CANARY" not in repr(part)
    assert {"stage = level 1", "stage = level 2"} <= set(of(part))
    assert any("inferred" in note for note in part.notes)


def test_a_hole_is_a_group_of_its_own_where_it_is_a_category():
    frame = small_frame(1500)
    frame.loc[frame.index % 3 == 0, "stage"] = None
    stage = Column("stage", "categorical", categories=("I", "II", "III"), missing="category")
    schema = SMALL_TABLE.described([stage])
    cohort = Cohort.from_frame(frame, schema=schema, **HOW["binary"])
    assert "stage = missing" in of(subgroups.section(home_of(cohort, 300), seed=0, threads=1))


def test_the_same_seed_gives_the_same_numbers_and_rows_that_are_not_there_are_a_note(monkeypatch):
    monkeypatch.setattr(experiment, "TESTED", 300)
    inputs = home_of(unfair_cohort(2000), 300, split=HoldoutSplit(0.3, 3))
    one, again, other = (subgroups.section(inputs, seed=seed, threads=1) for seed in (0, 0, 1))
    assert repr(one) == repr(again)
    assert repr(one.scores) != repr(other.scores)
    assert f"tested on a random 300 of {len(inputs.split.test)} held-out rows" in one.notes
    cohort = cohort_of("binary", 300)
    for inputs, words in ((without_rows(home_of(cohort)), "no condensed rows"), (nobody_held_out(cohort), "held out")):
        part = subgroups.section(inputs, seed=0, threads=1)
        assert part.scores == ()
        assert words in part.notes[0]


def test_a_table_without_such_columns_says_so():
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=300).clip(-5, 5)})
    frame["y"] = (frame["x"] > 0).astype(int)
    schema = Schema((Column("x", "continuous", low=-5, high=5), Column("y", "binary", categories=(0, 1))))
    part = subgroups.section(home_of(Cohort.from_frame(frame, target="y", schema=schema), 50), seed=0, threads=1)
    assert part.scores == ()
    assert "no column makes two groups" in part.notes[-1]
