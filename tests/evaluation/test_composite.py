"""PSyGenTAB's composites: U, P and FAITH part by part against loops, at their ends, and without telling on anybody."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense import Cohort, Column, Schema
from distcondense.data.persons import Split
from distcondense.data.relations import rule_from
from distcondense.data.rules import Rules
from distcondense.evaluation.fidelity import composite
from distcondense.evaluation.fidelity.comparison import compared
from distcondense.evaluation.fidelity.faith import TrainingSupport, gower_rows, hidden, obeying, p_parts
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM, SOFT
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.divergences import alike, support_coverage
from distcondense.outcomes.likeness import FEWEST, correlation_gaps
from distcondense.outcomes.utility import alignment
from tests import toys
from tests.conftest import OUTCOMES, SMALL_SCHEMA, SMALL_TABLE, small_frame
from tests.evaluation_inputs import changed
from tests.fidelity_inputs import home_of, small_cohort, split_of


def found_in(part, way=CONDENSED, labels=PLAIN):
    return {s.measure: s for s in part.scores if s.trained_on == way and s.labels == labels}


# -- U ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied():
    """Condensed rows are the held-out rows themselves."""
    cohort = small_cohort(500)
    split = split_of(500)
    labelled = Labelled(cohort.outcome.take(split.test))
    inputs = home_of(cohort, cohort.features.iloc[split.test], labelled, split=split)
    return inputs, composite.section(inputs, seed=0, threads=1)


def test_rows_that_are_the_held_out_ones_have_every_statistical_part_at_1(copied):
    found = found_in(copied[1])
    for measure in ("f_marg", "f_rare", "f_joint", "c_div", "s_align"):
        value = found[measure].value
        assert value == pytest.approx(1, abs=1e-6)
    assert 0.5 < found["e_pred"].value <= 1


def test_the_composites_are_the_means_of_what_is_defined(copied):
    for way, labels in ((CONDENSED, PLAIN), (RANDOM, "")):
        found = {name: score.value for name, score in found_in(copied[1], way, labels).items()}
        parts = [found[name] for name in ("f_marg", "f_rare", "f_joint", "c_div", "e_pred")]
        assert found["utility"] == pytest.approx(np.mean(parts))
        assert np.isnan(found["t_dyn"])
        assert np.isnan(found["s_fact"])  # no rules
        assert found["faith"] == pytest.approx(np.mean([found[name] for name in ("s_align", "s_integ", "s_track")]))
    assert found_in(copied[1])["utility"].note == "without t_dyn"
    assert found_in(copied[1])["t_dyn"].note


def test_everything_is_titled_has_an_interval_and_survives_json(copied):
    part = copied[1]
    assert {score.measure for score in part.scores} == set(part.titles)
    assert "not a privacy guarantee" in part.titles["p_distance"]
    for score in part.scores:
        assert np.isnan(score.value) or score.low <= score.value <= score.high
        assert np.isnan(score.value) or 0 <= score.value <= 1
        assert score.interval
    again = composite.section(copied[0], seed=0, threads=1)
    assert json.dumps(part.to_dict(), allow_nan=False) == json.dumps(again.to_dict())


def test_marginal_fidelity_is_1_minus_the_mean_distance_of_columns():
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy, ks_2samp

    cohort = small_cohort(400)
    inputs = home_of(cohort, cohort.features.iloc[:60])
    real, made = cohort.features.iloc[inputs.split.test], inputs.frame
    apart = []
    for name, top in (("age", 120), ("crp", 400)):
        cells = [np.bincount(np.minimum(t[name] // (top / 20), 19).astype(int), minlength=20) for t in (real, made)]
        smooth = [(c + 0.5) / (c + 0.5).sum() for c in cells]
        spanned = 1 - (
            max(made[name].min() - real[name].min(), 0) + max(real[name].max() - made[name].max(), 0)
        ) / np.ptp(real[name])
        apart.append(
            np.mean(
                [
                    ks_2samp(real[name], made[name], method="asymp").statistic,
                    1 - np.exp(-entropy(*smooth)),
                    jensenshannon(*cells, base=2) ** 2,
                    1 - round(spanned, 2),
                ]
            )
        )
    for name in ("smoker", "stage"):
        both = [t[name].astype(str).value_counts(normalize=True) for t in (real, made)]
        apart.append(both[0].sub(both[1], fill_value=0).abs().sum() / 2)
    label = [cohort.outcome["label"][inputs.split.test].mean(), inputs.made["label"].mean()]
    apart.append(abs(label[0] - label[1]))
    found = found_in(composite.section(inputs, seed=0, threads=1))
    assert found["f_marg"].value == pytest.approx(1 - np.mean(apart), abs=1e-9)


def test_alignment_is_the_frobenius_norm_over_the_number_of_columns():
    cohort = small_cohort(300)
    inputs = home_of(cohort, cohort.features.iloc[:90])
    comparison = compared(inputs, 0)
    found = alignment(comparison, correlation_gaps(comparison, 0)[0])
    tables = []
    for which in (0, 1):
        tables.append(np.corrcoef([facet.line[which] for facet in comparison.columns if facet.line is not None]))
    assert found[0] == pytest.approx(1 - np.linalg.norm(tables[0] - tables[1]) / len(tables[0]))


def test_shares_that_are_alike():
    assert alike(0.0, 0.0) == 1
    assert alike(0.2, 0.0) == 0
    assert alike(0.1, 0.2) == pytest.approx(0.5)
    p, q = np.array([0.5, 0.4, 0.1, 0.0]), np.array([0.8, 0.2, 0.0, 0.0])
    assert support_coverage(p, q) == pytest.approx((1 + 0.5 + 0) / 3)


def test_efficacy_needs_an_outcome_with_a_measure_within_0_and_1():
    with toys.registered():
        frame = small_frame(300)
        frame["share"] = np.linspace(0, 1, 300)
        schema = Schema((*SMALL_SCHEMA.columns, Column("share", "continuous", low=0, high=1)))
        cohort = Cohort.from_frame(
            frame[[*SMALL_SCHEMA.names, "share"]], target="share", kind="fraction", schema=schema
        )
        inputs = home_of(cohort, cohort.features.iloc[:50])
        efficacy = found_in(composite.section(inputs, seed=0, threads=1))["e_pred"]
    assert np.isnan(efficacy.value)
    assert efficacy.note


def test_condensed_rows_of_one_class_teach_nothing_and_the_rest_is_measured():
    cohort = small_cohort(300)
    label = np.zeros(40, np.int8)
    inputs = home_of(
        cohort, cohort.features.iloc[:40], Labelled(cohort.outcome.take(np.arange(40)).with_arrays(label=label))
    )
    found = found_in(composite.section(inputs, seed=0, threads=1))
    assert np.isnan(found["e_pred"].value)
    assert "both classes" in found["e_pred"].note
    assert np.isfinite(found["utility"].value)


@pytest.mark.parametrize(
    "how",
    [
        {"time": "months", "event": "event", "ignore": ["died"]},
        {"target": "crp", "kind": "continuous", "ignore": ["died", "months", "event"]},
        {"target": "stage", "kind": "multiclass", "ignore": ["died", "months", "event"]},
    ],
)
def test_every_kind_of_outcome_has_its_composites(how):
    cohort = Cohort.from_frame(small_frame(400), schema=SMALL_TABLE, **how)
    train = split_of(400).train[:80]
    inputs = home_of(cohort, cohort.features.iloc[train], Labelled(cohort.outcome.take(train)), weight=np.ones(80))
    part = composite.section(inputs, seed=0, threads=1)
    for labels in (SOFT, PLAIN):
        found = found_in(part, CONDENSED, labels)
        assert np.isfinite(found["e_pred"].value)
        assert np.isfinite(found["utility"].value)


# -- P ----------------------------------------------------------------------------------------------------------------


def gower_by_hand(one, other, schema, train):
    total = 0.0
    for column in schema.columns:
        a, b = one[column.name], other[column.name]
        if not column.numeric:
            total += (a != b) and not (pd.isna(a) and pd.isna(b))
        elif pd.isna(a) or pd.isna(b):
            low, width = train[column.name].min(), np.ptp(train[column.name].dropna())
            there = [value for value in (a, b) if not pd.isna(value)]
            total += 0.5 + abs((there[0] - low) / width - 0.5) if there else 0.0
        else:
            total += abs(a - b) / np.ptp(train[column.name].dropna())
    return total / len(schema.columns)


def test_gower_distances_are_those_of_a_loop_with_holes():
    schema = Schema(
        (
            Column("age", "integer", low=0, high=120),
            Column("bmi", "continuous", low=10, high=60, missing="indicator"),
            Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
        )
    )
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame(
            {
                "age": rng.integers(20, 90, n),
                "bmi": np.where(rng.random(n) < 0.3, np.nan, rng.uniform(15, 40, n)),
                "stage": rng.choice(np.array(["I", "II", "III", None], object), n),
            }
        )
        for n in (30, 8)
    ]
    train, made = gower_rows(schema, tables[0], *tables)
    for i in range(8):
        for j in range(30):
            by_hand = gower_by_hand(tables[1].iloc[i], tables[0].iloc[j], schema, tables[0])
            assert np.abs(made[i] - train[j]).sum() == pytest.approx(by_hand, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 30))
def test_p_is_the_sum_of_its_parts(seed, m, n):
    rng = np.random.default_rng(seed)
    made, held = (np.sort(rng.integers(0, 6, (rows, 2)) / 10, axis=1) for rows in (m, n))
    repeated = rng.random(m) < 0.2
    found = {name: one.value for name, one in p_parts(made, held, repeated).items()}
    ratio = [a / b if b > 0 else 0.0 for a, b in made]
    nearer = np.mean([(a < b) + (a == b) / 2 for a in made[:, 0] for b in held[:, 0]])
    copies = min(hidden(int((repeated | (made[:, 0] == 0)).sum())), m) / m
    assert found["d_c"] == pytest.approx((made[:, 0].mean() + np.mean(ratio)) / 2)
    assert found["delta_dist"] == pytest.approx(max(2 * nearer - 1, 0))
    assert found["r_dup"] == pytest.approx(copies)
    wanted = 0.5 * found["d_c"] - 0.25 * found["delta_dist"] - 0.25 * copies + 0.5
    assert found["p_distance"] == pytest.approx(wanted)
    assert 0 <= found["p_distance"] <= 1


def test_copies_of_training_rows_have_the_lowest_p_and_no_integrity():
    cohort = small_cohort(500)
    found = found_in(composite.section(home_of(cohort), seed=0, threads=1))
    assert found["r_dup"].value == 1
    assert found["s_integ"].value == 0
    assert found["d_c"].value < 0.1
    assert found["delta_dist"].value > 0.8
    fresh = found_in(composite.section(home_of(cohort), seed=0, threads=1), RANDOM, "")
    assert fresh["p_distance"].value > found["p_distance"].value + 0.3
    assert fresh["s_integ"].value > 0.9


def test_a_few_copies_are_not_counted_exactly():
    cohort = small_cohort(500)
    parts = []
    for copies in (2, 7):
        frame = cohort.features.iloc[:80].reset_index(drop=True).copy()
        frame.loc[copies:, "crp"] = 200 + np.arange(80 - copies) / 7  # nobody's
        part = composite.section(home_of(cohort, frame), seed=0, threads=1)
        parts.append(found_in(part)["r_dup"])
    assert parts[0].value == parts[1].value == FEWEST / 80
    assert "taken for 10" in parts[0].note
    assert [hidden(count) for count in (0, 1, 9, 10, 50)] == [0, 10, 10, 10, 50]


# -- FAITH ------------------------------------------------------------------------------------------------------------


def ruled(rows=400):
    rules = tuple(
        map(
            rule_from,
            (
                {"compare": "age >= 18"},
                {"if": 'stage == "III"', "then": "crp > 1"},
                {"derived": "double", "formula": "age * 2"},
            ),
        )
    )
    schema = Schema((*SMALL_SCHEMA.columns, Column("double", "integer", low=0, high=240), OUTCOMES[0]), rules=rules)
    frame = small_frame(rows)
    frame["crp"] = np.maximum(frame["crp"], 1.5)
    frame["double"] = frame["age"] * 2
    return Cohort.from_frame(frame[[*SMALL_SCHEMA.names, "double", "died"]], target="died", schema=schema)


def test_factuality_counts_rows_that_break_any_rule_derived_ones_too():
    cohort = ruled()
    frame = cohort.features.iloc[:50].reset_index(drop=True).copy()
    frame.loc[:4, "age"], frame.loc[:4, "double"] = 10, 20
    frame.loc[3:7, "stage"], frame.loc[3:7, "crp"] = "III", 0.5
    frame.loc[40:42, "double"] += 1
    bad = {*range(8), 40, 41, 42}
    obeys = obeying(Rules(cohort.schema), frame)
    assert set(np.flatnonzero(~obeys)) == bad
    part = composite.section(home_of(cohort, frame), seed=0, threads=1)
    assert found_in(part)["s_fact"].value == pytest.approx(1 - len(bad) / 50)
    assert found_in(part, RANDOM, "")["s_fact"].value == 1
    rows = {row[0]: row[1:] for row in part.tables[0].rows}
    assert rows["age >= 18"] == (5, 0)
    assert [count for count, _ in rows.values()] == [5, 5, 3]
    assert not np.isnan(found_in(part)["faith"].value)


def test_tracking_counts_rows_beyond_what_training_rows_have():
    cohort = small_cohort(400)
    train = cohort.features.iloc[split_of(400).train]
    frame = cohort.features.iloc[:60].reset_index(drop=True).copy()
    frame.loc[:19, "age"] = int(train["age"].max()) + 1
    frame.loc[15:24, "crp"] = float(train["crp"].max()) + 0.1
    inputs = home_of(cohort, frame)
    assert TrainingSupport.from_inputs(inputs).outside(frame).sum() == 25
    assert found_in(composite.section(inputs, seed=0, threads=1))["s_track"].value == pytest.approx(1 - 25 / 60)


def test_a_category_that_no_training_row_has_is_beyond_and_a_hole_is_not():
    schema = Schema(
        (
            Column("age", "integer", low=0, high=120, missing="indicator"),
            Column("stage", "categorical", categories=("I", "II", "III", "IV")),
            OUTCOMES[0],
        )
    )
    cohort = Cohort.from_frame(small_frame(200)[["age", "stage", "died"]], target="died", schema=schema)
    frame = pd.DataFrame({"age": [40.0, np.nan, 50.0], "stage": ["IV", "I", "II"]})
    inputs = home_of(cohort, frame)
    assert TrainingSupport.from_inputs(inputs).outside(inputs.frame).tolist() == [True, False, False]


# -- nobody is told on ------------------------------------------------------------------------------------------------


def test_no_value_of_a_patient_is_in_the_part():
    frame = small_frame(400)
    frame["crp"] = np.random.default_rng(0).uniform(20, 60, 400).round(5)
    frame.loc[[5, 390], "crp"] = [397.13579, 0.02468]
    cohort = Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    text = json.dumps(composite.section(home_of(cohort, cohort.features.iloc[:40]), seed=0, threads=1).to_dict())
    for value in frame["crp"]:
        assert f"{value:.4f}"[:-1] not in text


def test_few_patients_that_break_a_rule_are_not_counted_exactly():
    cohort = ruled()
    cohort.features.loc[[390, 391, 392], "double"] += 1
    part = composite.section(home_of(cohort, cohort.features.iloc[:50]), seed=0, threads=1)
    assert [row[2] for row in part.tables[0].rows] == [0, 0, f"<{FEWEST}"]
    assert found_in(part, RANDOM, "")["s_fact"].value == pytest.approx(1 - FEWEST / 160)


def test_without_rows_or_patients_there_is_a_note_and_raw_numbers_are_compared_as_legal_ones():
    cohort = small_cohort(300)
    nobody = Split(np.arange(300), *[np.empty(0, np.int64)] * 2)
    for inputs in (home_of(cohort, cohort.features.iloc[:0]), home_of(cohort, cohort.features.iloc[:50], split=nobody)):
        part = composite.section(inputs, seed=0, threads=1)
        assert not part.scores
        assert "Not measured" in part.notes[0]
    inputs = home_of(cohort, cohort.features.iloc[:50])
    raw = changed(inputs, frame=inputs.codec.soften(inputs.rows), raw=True)
    legal, same = (found_in(composite.section(one, seed=0, threads=1))["f_marg"].value for one in (inputs, raw))
    assert legal == pytest.approx(same, abs=1e-3)
