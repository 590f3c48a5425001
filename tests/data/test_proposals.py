"""Rules proposed from a table: those that hold and that few would obey by chance, and none unconfirmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from distcondense.cli import app
from distcondense.data.proposals import proposed_rules, with_rules
from distcondense.data.relations import Nested
from distcondense.data.rules import Rules
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError
from distcondense.guide import confirming
from distcondense.guide.confirming import with_confirmed_rules
from distcondense.guide.prompts import DefaultAnswers

ROWS = 600
PARTS = {"heart": ("failure", "arrhythmia"), "lung": ("asthma", "copd")}


def patients(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    wide = rng.choice(list(PARTS), ROWS)
    measured, sex = rng.random(ROWS) < 0.5, rng.choice(["f", "m"], ROWS)
    low, age = rng.uniform(40, 110, ROWS).round(), rng.integers(18, 90, ROWS)
    weight, height = rng.uniform(45, 120, ROWS).round(1), rng.uniform(150, 200, ROWS).round()
    high = (low + rng.uniform(0, 70, ROWS)).round()
    return pd.DataFrame(
        {
            "age": age,
            "age_again": age,
            "class": wide,
            "group": [rng.choice(PARTS[one]) for one in wide],
            "sex": sex,
            "pregnant": np.where((sex == "f") & (rng.random(ROWS) < 0.3), "yes", "no"),
            "smoker": rng.choice(["no", "yes"], ROWS),
            "diastolic": low,
            "systolic": high,
            "tsh_measured": np.where(measured, "t", "f"),
            "tsh": np.where(measured, rng.uniform(0, 9, ROWS).round(2), np.nan),
            "weight": weight,
            "height": height,
            "bmi": (weight / (height / 100) ** 2).round(1),
        }
    )


def column(name: str, frame: pd.DataFrame) -> Column:
    series = frame[name]
    if series.dtype.kind in "if":
        decimals = {"tsh": 2, "weight": 1, "bmi": 1}.get(name, 0)
        holes: Any = "indicator" if series.isna().any() else "refuse"
        kind: Any = "integer" if series.dtype.kind == "i" else "continuous"
        own = {} if kind == "integer" else {"decimals": decimals}
        return Column(name, kind, low=0, high=250, missing=holes, **own)
    return Column(name, "categorical", categories=tuple(sorted(set(series))))


def described(frame: pd.DataFrame) -> Schema:
    return Schema(tuple(column(name, frame) for name in frame), origin="declared")


EXPECTED = {
    "age_again = age",
    "bmi = weight / (height / 100) ** 2",
    "diastolic <= systolic",
    "group nested in class",
    'if tsh_measured == "f" then tsh is missing; if tsh_measured == "t" then tsh is not missing',
    'if sex == "m" then pregnant == "no"',
}


@pytest.mark.parametrize("seed", range(3))
def test_rules_that_hold_are_proposed_and_no_others(seed: int) -> None:
    frame = patients(seed)
    schema = described(frame)
    found = {proposal.words for proposal in proposed_rules(frame, schema)}
    assert found >= EXPECTED
    spare = found - EXPECTED
    assert not any("smoker" in words for words in spare)
    for proposal in proposed_rules(frame, schema):
        with_it = replace(schema, rules=proposal.rules)
        assert all(rows == 0 for _, rows in Rules(with_it).broken(frame)), proposal.words
        assert proposal.question.endswith("?")
        assert "by definition" in proposal.question


@pytest.mark.parametrize(
    ("spoiled", "name", "value"),
    [
        ("age_again = age", "age_again", 17),
        ("diastolic <= systolic", "systolic", 1),
        ('if sex == "m" then pregnant == "no"', "pregnant", "yes"),
        ("group nested in class", "group", "asthma"),
    ],
)
def test_one_row_that_contradicts_a_rule_is_enough(spoiled: str, name: str, value: Any) -> None:
    frame = patients()
    row = frame.index[(frame["sex"] == "m") & (frame["class"] == "heart")][-1]
    frame.loc[row, name] = value
    assert spoiled not in {proposal.words for proposal in proposed_rules(frame, described(patients()))}


def test_columns_of_chance_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{k}": rng.integers(0, 200, ROWS) for k in range(6)})
    for k in range(4):
        frame[f"c{k}"] = rng.choice(list("abcd"), ROWS)
    assert proposed_rules(frame, described(frame)) == []


def test_the_outcome_and_what_is_known_already_are_not_proposed() -> None:
    frame = patients()
    schema = described(frame)
    every = proposed_rules(frame, schema)
    known = with_rules(schema, every, "Dr. Who")
    assert proposed_rules(frame, known) == []
    assert {proposal.words for proposal in proposed_rules(frame, schema, without=("group",))} == {
        proposal.words for proposal in every if not any("group" in rule.names for rule in proposal.rules)
    }


def test_a_category_that_nobody_has_may_be_anywhere() -> None:
    frame = patients()
    schema = described(frame)
    wider = replace(
        schema,
        columns=tuple(
            replace(c, categories=(*c.categories, "unheard of")) if c.name == "group" else c for c in schema.columns
        ),
    )
    (rule,) = (p.rules[0] for p in proposed_rules(frame, wider) if p.words == "group nested in class")
    assert isinstance(rule, Nested)
    assert all("unheard of" in parts for _, parts in rule.allowed)


class Answers(DefaultAnswers):
    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers

    def text(self, question: str, default: str) -> str:
        return self.answers.get(question, default)


def test_nothing_that_nobody_confirmed_by_name_becomes_a_rule() -> None:
    frame = patients()
    schema = described(frame)
    for answers in ({}, {confirming.QUESTION: "all"}, {confirming.NAME: "Dr. Who"}):
        assert with_confirmed_rules(frame, schema, (), Answers(answers)) == schema
    said = {confirming.QUESTION: "1, 3", confirming.NAME: "Dr. Who"}
    confirmed = with_confirmed_rules(frame, schema, (), Answers(said))
    proposals = proposed_rules(frame, schema)
    words = tuple(rule.words for k in (0, 2) for rule in proposals[k].rules)
    assert tuple(rule.words for rule in confirmed.rules) == words
    (attested,) = confirmed.attested
    assert (attested.by, attested.rules, attested.columns) == ("Dr. Who", words, ())
    assert "by definition" in attested.words


def test_a_table_that_does_not_fit_its_schema_is_asked_about_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = patients()

    def refuse(*args: Any) -> Any:
        raise CohortError("table", "must fit its schema")

    monkeypatch.setattr(confirming, "proposed_rules", refuse)
    assert with_confirmed_rules(frame, described(frame), (), Answers({})) == described(frame)


def test_the_command_lists_proposals_and_writes_nothing_unattended(tmp_path: Path) -> None:
    frame = patients()
    frame.to_csv(tmp_path / "table.csv", index=False)
    described(frame).to_toml(tmp_path / "schema.toml")
    words = ["schema", "rules", str(tmp_path / "table.csv"), "--schema", str(tmp_path / "schema.toml")]
    shown = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "new.toml"), "--without", "tsh"])
    assert shown.exit_code == 0, shown.output
    assert "by definition? age_again = age." in shown.output
    assert "tsh is missing" not in shown.output
    assert not (tmp_path / "new.toml").exists()
    wrong = CliRunner().invoke(app, [*words, "--without", "tshh"])
    assert wrong.exit_code != 0
