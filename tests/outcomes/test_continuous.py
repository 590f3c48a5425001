"""A number as outcome: read, learned through the gate, released within its bounds, scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, ModelError, SchemaError, SettingsError
from distcondense.outcomes.continuous import CLIP, Continuous, Residuals
from distcondense.outcomes.private_side import without_invented
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.shell import Call

COST = Column("cost", "continuous", low=0.0, high=500.0, decimals=1, unit="€")
SCHEMA = Schema((*SMALL_SCHEMA.columns, COST))


def costs(rows: int = 2000, seed: int = 0) -> pd.DataFrame:
    frame = small_frame(rows, seed).drop(columns=["died", "months", "event"])
    noise = np.random.default_rng(seed + 1).normal(0, 20, rows)
    cost = 100 + 2 * (frame["age"] - 55) + 60 * frame["smoker"] + noise
    return frame.assign(cost=cost.clip(0, 500).round(1))


def cohort(rows: int = 2000, schema: Schema = SCHEMA) -> Cohort:
    return Cohort.from_frame(costs(rows), target="cost", schema=schema)


def objective(**how: Any) -> Residuals:
    side = cohort(50).outcome.kind.private_side()
    return replace(side.objective, centre=120.0, unit=60.0, cuts=(80.0, 110.0, 140.0), **how)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_declared_number_is_a_continuous_outcome_and_zero_and_one_are_not():
    assert isinstance(cohort(50).outcome.kind, Continuous)
    whole = Schema((*SMALL_SCHEMA.columns, Column("cost", "integer", low=0, high=1)))
    flags = costs(50).assign(cost=np.arange(50) % 2)
    assert Cohort.from_frame(flags, target="cost", schema=whole).outcome.kind.name == "binary"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: f.assign(cost=f["cost"].where(f.index != 7, 987654.25)), ("bounds [0.0, 500.0]", "1 row", "row 8")),
        (lambda f: f.assign(cost=f["cost"].astype(object).where(f.index != 7, "CANARY")), ("numbers", "text in 1 row")),
        (lambda f: f.assign(cost=f["cost"].where(f.index > 3)), ("'cost'", "missing values in 4 rows")),
        (lambda f: f.assign(cost=f["cost"].where(f.index != 7, np.inf)), ("'cost'", "finite")),
    ],
)
def test_outcomes_that_do_not_fit_are_refused_by_column_and_count_alone(spoil, says):
    with pytest.raises(CohortError) as caught:
        Cohort.from_frame(spoil(costs(60)), target="cost", schema=SCHEMA)
    text = str(caught.value)
    assert all(part in text for part in says), text
    assert "987654" not in text
    assert "CANARY" not in text


def test_bounds_are_needed_before_a_row_is_read():
    unbounded = Schema((*SMALL_SCHEMA.columns, Column("cost", "continuous")))
    with pytest.raises(SchemaError, match="needs public bounds"):
        dc.condense(cohort(50, unbounded))
    with pytest.raises(SettingsError, match="outcomes with a time"):
        dc.condense(cohort(50), horizon=3.0)


def test_published_refuses_a_number_by_name():
    with pytest.raises(SettingsError, match=r"method published: takes .*Found a continuous outcome"):
        dc.condense(cohort(100), method="published", epsilon=2.5)


# -- what a row adds --------------------------------------------------------------------------------------------------


@given(value=st.floats(allow_nan=True, allow_infinity=True), score=st.floats(-1e6, 1e6), clip=st.floats(1e-3, 10.0))
def test_a_contribution_has_norm_at_most_one_whatever_the_value(value: float, score: float, clip: float):
    residuals = objective(clip=clip)
    target = residuals.prepare({"value": np.array([value])})
    parts = residuals.contributions(np.array([score]), target)
    assert np.hypot(*(float(part[0]) for part in parts)) <= 1 + 1e-12
    square = residuals.statistics["residuals"].values(target, np.array([score]))[0]
    assert 0 <= square[0] <= 1


def test_gradients_are_the_slope_of_half_the_square_inside_the_clip():
    residuals = objective(clip=CLIP)
    target = residuals.prepare({"value": np.array([100.0, 130.0, 180.0])})
    score, step = np.array([0.3, -0.2, 0.9]), 1e-6

    def loss(at: np.ndarray) -> np.ndarray:
        return (at - target["u"]) ** 2 / 2

    slope = (loss(score + step) - loss(score - step)) / (2 * step)
    gradient = residuals.contributions(score, target)[0] / residuals.scales[0]
    assert gradient == pytest.approx(slope, abs=1e-6)


def test_one_person_moves_the_sums_by_at_most_what_is_paid_for():
    """Neighbours through the gate's own integers: a person with several extreme rows comes or goes."""
    rng = np.random.default_rng(0)
    budget = Budget.calibrate(epsilon=1.0, delta=1e-5)
    seen: list[np.ndarray] = []

    class Exact:
        def stepped(self, step: Any) -> None: ...

        def answered(self, question: Any, event: Any, noisy: Any) -> None:
            seen.append(np.asarray(noisy))

    def answers(rows: int) -> list[np.ndarray]:
        seen.clear()
        codes = np.concatenate([rng_codes, np.full((4, 1), 2)])[:rows]
        value = np.concatenate([rng_values, [500.0, 500.0, 0.0, 1e9]])[:rows]
        person = np.concatenate([np.arange(60), np.full(4, 60)])[:rows]
        table = PrivateTable(
            codes,
            [3],
            {"value": value},
            names=["c"],
            objective=objective(),
            budget=budget,
            ledger=Ledger(),
            person=person,
            rows_per_person=4,
            observer=Exact(),
        )
        table.sums((0,), mu=0.1)
        table.histogram((0,), by="stratum", mu=0.1)
        table.total("residuals", mu=0.1)
        return [answer.astype(np.float64) for answer in seen]

    rng_codes, rng_values = rng.integers(0, 3, (60, 1)), rng.uniform(0, 500, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcondense.privacy.noise.discrete_gaussian", lambda sums, scale: sums)
        without, with_ = answers(60), answers(64)
    from distcondense.privacy.noise import GRID

    for before, after in zip(without, with_, strict=True):
        assert np.linalg.norm(after - before) <= 0.1 * GRID


def test_noise_invents_no_mass():
    counts = np.array([500.0, 300.0, -40.0, 35.0, -20.0, 25.0])
    share = without_invented(counts)
    assert share.sum() == pytest.approx(1)
    assert share[0] + share[1] > 0.95  # clipping at 0 alone would leave 0.93


# -- the whole path ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result() -> dc.Result:
    return dc.condense(cohort(), ipc=20, epsilon=5.0, threads=1)


def test_released_outcomes_are_within_bounds_with_the_declared_decimals(result: dc.Result):
    cost = result.frame["cost"]
    assert len(cost) == 100  # five strata
    assert cost.between(0, 500).all()
    assert (cost.round(1) == cost).all()
    assert result.frame["distcondense_expected"].between(0, 500).all()
    assert result.frame.columns[-3:].tolist() == ["cost", "distcondense_expected", "distcondense_weight"]


def test_a_student_of_the_condensed_rows_is_almost_as_good_as_the_private_model(result: dc.Result):
    found = {(s["trained_on"], s["measure"]): s["value"] for s in result.internal["scores"]}
    assert found["condensed", "r2"] > found["reference", "r2"] - 0.05
    assert found["reference", "r2"] > 0.7
    assert found["condensed", "rmse"] > found["condensed", "mae"] > 0


def test_training_data_is_the_expectation(result: dc.Result):
    X, y, weight = result.training_data()
    assert y == pytest.approx(result.frame["distcondense_expected"].to_numpy())
    assert weight.mean() == pytest.approx(1)
    assert result.soft_data()[1] == pytest.approx(y)
    assert len(X) == len(y)


def test_the_ledger_holds_the_kinds_own_questions(result: dc.Result):
    asked = [(event.query, event.by) for event in result.privacy.events]
    assert asked[0] == ("histogram", "cell")
    assert asked.count(("total", "residuals")) == 3
    assert result.privacy.epsilon <= 5.0


def test_integers_stay_integers():
    schema = Schema((*SMALL_SCHEMA.columns, Column("cost", "integer", low=0, high=500)))
    frame = costs().assign(cost=lambda f: f["cost"].round().astype(int))
    made = dc.condense(Cohort.from_frame(frame, target="cost", schema=schema), ipc=10, epsilon=5.0, threads=1)
    assert made.frame["cost"].dtype == np.int64


def test_a_private_model_predicts_in_the_outcomes_own_units():
    frame = costs()
    model = dc.PrivateModel(schema=SMALL_SCHEMA, bounds=(0.0, 500.0), epsilon=5.0).fit(
        frame.drop(columns="cost"), frame["cost"]
    )
    expected = model.predict(frame)
    assert np.corrcoef(expected, frame["cost"])[0, 1] > 0.85
    assert abs(expected.mean() - frame["cost"].mean()) < 8
    parts = model.explain(frame).sum(axis=1).to_numpy()
    assert parts + model.base_ == pytest.approx(model.decision_function(frame))
    with pytest.raises(ModelError, match="no such answer"):
        model.predict_proba(frame)


def test_an_outcome_that_nothing_explains_has_no_answer():
    frame = costs(1200)
    shuffled = frame.assign(cost=np.random.default_rng(3).permutation(frame["cost"]))
    made = dc.condense(Cohort.from_frame(shuffled, target="cost", schema=SCHEMA), ipc=5, epsilon=1.0, threads=1)
    assert made.privacy.answer
    assert len(made.frame) == 0


def test_an_outcome_with_one_value_for_most_has_fewer_strata():
    frame = costs(3000).assign(cost=lambda f: np.where(f["age"] > 75, f["cost"], 0.0))
    made = dc.condense(Cohort.from_frame(frame, target="cost", schema=SCHEMA), ipc=10, epsilon=5.0, threads=1)
    assert len(made.frame) % 10 == 0
    assert made.frame["cost"].between(0, 500).all()


def test_from_the_command_line(call: Call):
    costs(1500).to_csv("t.csv", index=False)
    with open("s.toml", "w") as file:
        file.write(SCHEMA.to_toml())
    answer = call(
        "condense",
        "t.csv",
        "--target",
        "cost",
        "--schema",
        "s.toml",
        "--epsilon",
        5,
        "--ipc",
        10,
        "--threads",
        1,
        "--out",
        "run",
    )
    assert answer.code == 0, answer.err
    assert "R²" in answer.out
    assert len(pd.read_csv("run/release/condensed.csv")) == 50
    beyond = costs(200).assign(cost=lambda f: f["cost"] + 987654.25)
    beyond.to_csv("b.csv", index=False)
    answer = call("condense", "b.csv", "--target", "cost", "--schema", "s.toml", "--out", "other")
    assert answer.code == 2
    assert "bounds" in answer.err
    assert "987654" not in answer.err
