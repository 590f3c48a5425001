"""A new method and a new kind of outcome are one class each: they run everywhere without another change."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.errors import SettingsError
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.shell import Call
from tests.toys import registered


@pytest.fixture(autouse=True)
def _toys() -> Iterator[None]:
    with registered():
        yield


def shares(rows: int = 1200) -> pd.DataFrame:
    frame = small_frame(rows).drop(columns=["months", "event", "died"])
    rng = np.random.default_rng(1)
    odds = 0.06 * (frame["age"] - 55) + 0.9 * frame["smoker"] + rng.normal(0, 0.3, rows)
    return frame.assign(adherence=1 / (1 + np.exp(-odds)))


def cohort_of_shares() -> Cohort:
    return Cohort.from_frame(shares(), target="adherence", kind="fraction", schema=SMALL_SCHEMA)


def test_a_toy_kind_goes_through_the_private_method_and_its_evaluation():
    result = dc.condense(cohort_of_shares(), ipc=20, epsilon=5.0, threads=1)
    assert len(result.frame) == 40
    assert result.frame["adherence"].between(0, 1).all()
    found = {score["trained_on"]: score["value"] for score in result.internal["scores"]}
    assert set(found) == {"full", "reference", "condensed", "random_real"}
    assert found["condensed"] < 0.25  # a share guessed by its mean is off by 0.27
    again = dc.evaluate(cohort_of_shares(), result, threads=1)
    assert {score.measure for score in again} == {"mae"}


def test_a_toy_kind_has_a_private_model():
    frame = shares()
    model = dc.PrivateModel(epsilon=5.0).fit(cohort_of_shares())
    expected = 1 / (1 + np.exp(-model.decision_function(frame)))
    assert np.corrcoef(expected, frame["adherence"])[0, 1] > 0.8


def test_a_method_that_does_not_take_a_kind_refuses_it_by_name():
    with pytest.raises(SettingsError, match=r"published.*takes.*Found a fraction outcome"):
        dc.condense(cohort_of_shares(), method="published", epsilon=2.5)


def test_a_toy_method_condenses_every_kind_and_is_evaluated(binary, survival):
    for cohort in (binary, survival, cohort_of_shares()):
        result = dc.condense(cohort, method="uniform", ipc=15, threads=1)
        assert len(result.frame) == 30
        assert {score["trained_on"] for score in result.internal["scores"]} == {"full", "condensed", "random_real"}
        assert result.privacy.guarantee == "none"


def test_a_toy_method_has_its_options_in_help_and_refuses_others(call: Call):
    assert "Method uniform" in call("condense", "--method", "uniform", "--help").out
    small_frame().to_csv("t.csv", index=False)
    answer = call("condense", "t.csv", "--target", "died", "--method", "uniform", "--steps", 5)
    assert answer.code == 2
    assert "steps belongs to method published" in answer.err


def test_both_toys_run_from_the_command_line(call: Call):
    shares().to_csv("t.csv", index=False)
    with open("s.toml", "w") as file:
        file.write(SMALL_SCHEMA.to_toml())
    shared = ("--target", "adherence", "--kind", "fraction", "--schema", "s.toml", "--threads", 1, "--json")
    answer = call("condense", "t.csv", *shared, "--method", "uniform", "--spread", 0.5, "--out", "a")
    assert answer.code == 0, answer.err
    assert {score["measure"] for score in json.loads(answer.out)["scores"]} == {"mae"}
    answer = call("condense", "t.csv", *shared, "--epsilon", 5, "--ipc", 20, "--out", "b")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["privacy"]["guarantee"] == "end-to-end"


def test_both_toys_run_in_a_study(call: Call):
    shares(600).to_csv("t.csv", index=False)
    with open("s.toml", "w") as file:
        file.write(SMALL_SCHEMA.to_toml())
    with open("study.toml", "w") as file:
        file.write(
            '[study]\nname = "toys"\nipc = 15\n[[data]]\nname = "shares"\npath = "t.csv"\nschema = "s.toml"\n'
            'target = "adherence"\nkind = "fraction"\n[[method]]\nmethod = "uniform"\nsettings = {spread = 0.5}\n'
            '[[method]]\nmethod = "private"\nepsilon = 5\n'
        )
    answer = call("study", "study.toml", "--in-process", "--out", "out")
    assert answer.code == 0, answer.err
    results = pd.read_csv("out/internal/results.csv")
    assert set(results["method"].dropna()) == {"uniform", "private"}  # models of real rows are of no method
    assert set(results["metric"]) == {"mae"}
