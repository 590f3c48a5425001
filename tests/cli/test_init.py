"""`distcondense init`: driven at a pseudo-terminal, without a terminal, and what it says ε will buy."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distcondense.data.ranges import RANGES, range_for, ranges_of
from distcondense.data.schema import Column, Schema
from distcondense.guide.forecast import FRESH, BudgetForecast, about, forecasts, simulated, suggested
from distcondense.guide.prompts import DefaultAnswers
from distcondense.guide.wizard import run_wizard
from tests import hospital
from tests.shell import Call, refused

PATIENCE = 300  # seconds a loaded machine may take for one answer


class Screen:
    """A command at a pseudo-terminal: what it shows is read, answers are typed."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.master, slave = os.openpty()
        env = {**os.environ, "TERM": "dumb", "COLUMNS": "100", "DISTCONDENSE_STATE": "off"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distcondense", *words], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env
        )
        os.close(slave)
        self.shown, self.read_to = "", 0

    def wait_for(self, text: str) -> None:
        """Until it stands on the screen, after what was waited for before."""
        while text not in self.shown[self.read_to :]:
            ready, _, _ = select.select([self.master], [], [], PATIENCE)
            assert ready, self.shown
            try:
                more = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                more = b""
            assert more, self.shown
            self.shown += more.decode("utf-8", "replace")
        self.read_to += self.shown[self.read_to :].index(text) + len(text)

    def answer(self, question: str, said: str) -> None:
        self.wait_for(question)
        os.write(self.master, f"{said}\n".encode())

    def end(self) -> int:
        try:
            while os.read(self.master, 65536):
                pass
        except OSError:
            pass
        os.close(self.master)
        return self.process.wait(PATIENCE)


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    frame = hospital.export(150).assign(score=np.arange(len(hospital.export(150))) % 37)
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return frame


def test_a_person_at_a_terminal_is_led_to_a_declared_schema_and_a_command(table: pd.DataFrame, tmp_path: Path) -> None:
    screen = Screen("init", "visits.csv", "--no-plan", cwd=tmp_path)
    screen.answer("Column that says whose row it is", "")
    screen.answer("Outcome column", "died")
    screen.answer("Is 999 in weight a code for missing?", "")
    screen.answer("Is ? in crp a code for missing?", "y")
    screen.answer("Is -9 in creatinine a code for missing?", "y")
    screen.answer("Compute the age in years from birth_date to visit_date?", "y")
    screen.answer("Are these all the answers that sex", "y")
    screen.answer("Are these all the answers that risk", "n")
    screen.wait_for("Bounds of score")
    screen.answer("Bounds of score (private)", "zero ten")
    screen.answer("Bounds of score (private)", "0 100")
    screen.answer("Which value of died means yes", "yes")
    screen.wait_for("next: distcondense condense visits.csv --schema schema.toml --target died --person-id record_no")
    assert screen.end() == 0
    schema = Schema.from_toml(tmp_path / "schema.toml")
    assert schema.origin == "declared"
    assert (schema["weight"].low, schema["weight"].high, schema["weight"].unit) == (0.0, 400.0, "kg")
    assert (schema["score"].low, schema["score"].high) == (0, 100)
    assert schema["risk"].unknown
    assert schema["age"].computed == "years_between(birth_date, visit_date)"
    assert [c.name for c in schema.ignored] == ["record_no", "birth_date", "visit_date", "remark"]
    assert not [canary for canary in hospital.canaries(table) if canary in screen.shown]


def test_without_a_terminal_it_writes_a_draft_and_lists_what_is_open(
    call: Call, table: pd.DataFrame, tmp_path: Path
) -> None:
    answer = call("init", "visits.csv", "--yes", "--no-plan")
    assert answer.code == 0
    schema = Schema.from_toml(tmp_path / "schema.toml")
    assert schema.origin == "inferred"
    opened = [line for line in answer.out.splitlines() if line.startswith("open: ")]
    assert any("whose row it is" in line and "record_no" in line for line in opened)
    assert any('origin = "declared"' in line for line in opened)
    assert "next: distcondense condense visits.csv" in answer.out
    assert not [canary for canary in hospital.canaries(table) if canary in answer.out + answer.err]
    refused(call("init", "visits.csv", "--yes"), "exists already", "--force")


def test_what_is_no_code_is_a_value_again() -> None:
    class Doubter(DefaultAnswers):
        def confirm(self, question: str, default: bool = True) -> bool:
            return "999" not in question

    schema = run_wizard(hospital.export(120), Doubter(), declared=True).schema
    assert schema["weight"].missing_values == ()
    assert schema["weight"].unknown  # beyond what is public about weights
    assert schema["creatinine"].missing_values == (-9,)


@pytest.mark.parametrize(
    ("name", "low", "high", "unit"),
    [
        ("weight_kg", 40, 160, "kg"),
        ("Creatinine", 0.4, 9.1, "µmol/L"),
        ("SystolicBP", 70, 230, "mmHg"),
        ("temp_c", 34, 41, "°C"),
        ("body temperature", 95, 105, "°F"),
        ("age_at_visit", 18, 101, "years"),
    ],
)
def test_common_measurements_have_public_ranges(name: str, low: float, high: float, unit: str) -> None:
    found = range_for(name, low, high)
    assert found is not None
    assert found.unit == unit


def test_other_columns_have_none_and_every_range_is_one() -> None:
    assert ranges_of("stage") == ranges_of("passage_count") == ()
    assert range_for("age", 18, 999) is None
    assert all(one.low < one.high for ranges in RANGES.values() for one in ranges)


SHAPE = Schema((
    Column("age", "integer", low=0, high=120), Column("crp", "continuous", low=0.0, high=500.0, decimals=1),
    Column("stage", "categorical", categories=("I", "II", "III")), Column("ward", "categorical", domain="private",
                                                                           missing="category"),
    Column("lactate", "continuous", domain="private", missing="indicator"),
    Column("seen", "date", low="2015-01-01", high="2020-01-01"),  # type: ignore[arg-type]
    Column("died", "binary", categories=("no", "yes")), Column("grade", "categorical", categories=("a", "b", "c")),
    Column("months", "continuous", low=0.0, high=60.0), Column("cost", "integer", low=0, high=5000),
))  # fmt: skip


@pytest.mark.parametrize(
    "outcome",
    [{"target": "died"}, {"target": "grade"}, {"target": "cost"}, {"time": "months", "event": "died"}],
    ids=str,
)
def test_a_simulated_table_has_the_declared_shape(outcome: dict[str, str]) -> None:
    cohort = simulated(SHAPE, outcome, 400)
    assert len(cohort) == 400 + FRESH
    assert "ward" not in cohort.features
    assert cohort.outcome.kind.names == tuple(outcome.values())
    cohort.outcome.kind.check(cohort.outcome)


def test_the_plan_says_what_more_of_the_budget_buys() -> None:
    cohort = simulated(SHAPE.only(["age", "crp", "stage", "died"]), {"target": "died"}, 1500)
    (expected,) = forecasts(cohort, epsilons=(8.0,), ipc=20, threads=1)
    assert expected.measure == "auroc"
    assert 0.6 < expected.full < 0.95
    assert expected.condensed is not None
    assert expected.loss == expected.full - expected.condensed
    assert expected.loss < 0.15
    assert (about(1236), about(7), about(10**7)) == (1200, 7, 20_000)


def test_the_command_takes_the_smallest_budget_that_loses_little() -> None:
    tried = [BudgetForecast(e, "auroc", 0.8, made) for e, made in ((0.5, None), (1.0, 0.74), (2.5, 0.78), (5.0, 0.79))]
    assert suggested(tried) == 2.5
    assert suggested(tried[:2]) == 1.0
    assert suggested(tried[:1]) == 1.0
