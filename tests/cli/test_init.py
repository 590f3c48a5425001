"""`distcondense init`: driven at a pseudo-terminal, without a terminal, and what it says ε will buy."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distcondense.data.attestation import WORDS
from distcondense.data.draft import draft
from distcondense.data.ranges import RANGES, range_in, ranges_of
from distcondense.data.schema import Column, Schema
from distcondense.errors import SchemaError
from distcondense.guide.forecast import FRESH, BudgetForecast, about, forecasts, simulated, suggested
from distcondense.guide.prompts import DefaultAnswers
from distcondense.guide.wizard import likely_outcome, run_wizard
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

    def enter(self) -> None:
        """Enter to whatever will be asked."""
        os.write(self.master, b"\n" * 60)

    def end(self) -> int:
        try:
            while more := os.read(self.master, 65536):
                self.shown += more.decode("utf-8", "replace")
        except OSError:  # the other end is closed
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
    screen.answer("Which of these mean that nothing is known", "")
    screen.answer("Keep which of these after all", "")
    screen.answer("Compute the age in years from birth_date to visit_date?", "y")
    screen.wait_for("1 mg/dL = 88.4 µmol/L")
    screen.answer("Which units", "1=stone")
    screen.answer("Which units", "weight = kg; 2=umol/l")
    screen.answer("Other bounds", "4=zero ten")
    screen.answer("Other bounds", "4=0 100")
    screen.answer("may they be released?", "risk=private")
    screen.answer("Which value of died means yes", "yes")
    screen.answer("Which lines do you know from the codebook", "all")
    screen.answer("Your name", "Dr. Ada Weber")
    screen.wait_for("next: distcondense condense visits.csv --schema schema.toml --target died --person-id record_no")
    assert screen.end() == 0
    schema = Schema.from_toml(tmp_path / "schema.toml")
    assert schema.origin == "declared"
    assert (schema["weight"].low, schema["weight"].high, schema["weight"].unit) == (0, 400, "kg")
    assert (schema["score"].low, schema["score"].high) == (0, 100)
    assert schema["risk"].unknown
    assert schema["age"].computed == "years_between(birth_date, visit_date)"
    assert [c.name for c in schema.ignored] == ["record_no", "birth_date", "visit_date", "remark"]
    (stood,) = schema.attested
    assert (stood.by, stood.words, set(stood.columns)) == ("Dr. Ada Weber", WORDS, set(schema.every))
    assert not [canary for canary in hospital.canaries(table) if canary in screen.shown]


def with_one_more(frame: pd.DataFrame) -> pd.DataFrame:
    """One more person, whose numbers are larger and finer, whose class nobody else has, and who has holes."""
    odd = frame.iloc[[0]].assign(
        record_no="MRN9999999", weight=450.0, crp="0.123", days=9300, died="unclear", sex=None, score=1e6
    )
    return pd.concat([frame, odd], ignore_index=True)


def without_what_is_inferred(path: Path) -> str:
    """A schema file without what it marks as inferred."""
    data = Schema.from_toml(path).to_dict()
    for entry in data["columns"].values():
        for key in [*entry.get("inferred", ()), "inferred"]:
            entry.pop(key, None)
    return json.dumps(data)


def test_enter_to_every_question_declares_nothing_that_one_person_can_change(tmp_path: Path, call: Call) -> None:
    table = hospital.export(150)
    table = table.assign(score=np.arange(len(table)) % 37, days=np.arange(len(table)) % 2000)
    schemas = []
    for name, frame in (("one", table), ("other", with_one_more(table))):
        folder = tmp_path / name
        folder.mkdir()
        frame.to_csv(folder / "visits.csv", index=False)
        screen = Screen("init", "visits.csv", "--no-plan", cwd=folder)
        screen.enter()
        assert screen.end() == 0
        schemas.append(folder / "schema.toml")
    assert schemas[0].read_text() != schemas[1].read_text()
    assert without_what_is_inferred(schemas[0]) == without_what_is_inferred(schemas[1])
    for path in schemas:
        schema = Schema.from_toml(path)
        assert (schema.origin, schema.attested) == ("inferred", ())
        assert all(column.inferred for column in (*schema.columns, *schema.ignored))
    words = f"condense {schemas[1].with_name('visits.csv')} --schema {schemas[1]} --target died --ipc 5 --threads 1"
    refused(call(*words.split(), "--out", "run"), "must be declared", "--trust-inferred-schema")
    assert call(*words.split(), "--out", "run", "--trust-inferred-schema").code in (0, 3)
    said = (tmp_path / "run/release/privacy.json").read_text() + (tmp_path / "run/release/datasheet.md").read_text()
    assert json.loads((tmp_path / "run/release/privacy.json").read_text())["guarantee"] == "conditional"
    assert "Nobody has confirmed" in said
    assert "end-to-end" not in said


class Answers(DefaultAnswers):
    """Says what it was told to questions that hold a text, takes the default of all others; keeps what was shown."""

    def __init__(self, **answers: str) -> None:
        super().__init__()
        self.answers, self.shown = answers, ""

    def show(self, title: str, text: str) -> None:
        super().show(title, text)
        self.shown += f"{title}\n{text}\n"

    def text(self, question: str, default: str) -> str:
        known = [said for words, said in self.answers.items() if words.replace("_", " ") in question]
        return known[0] if known else super().text(question, default)


LETTERS = ["Lives alone, daughter visits", "sent home by Dr. Weber with a letter to her", "no complaints"]


def with_letters(rows: int = 300) -> pd.DataFrame:
    """A doctor's few phrases, again and again."""
    rng = np.random.default_rng(1)
    return pd.DataFrame({
        "age": rng.integers(20, 90, rows), "sex": rng.choice(["f", "m"], rows),
        "Remarks": rng.choice(LETTERS, rows), "seen_by": rng.choice(["Anna Schmidt", "Bo Chen", "Dr. Eva Roth"], rows),
        "died": rng.choice(["no", "yes"], rows),
    })  # fmt: skip


def test_remarks_and_names_are_left_out_however_few_they_are() -> None:
    prompts = Answers()
    schema = run_wizard(with_letters(), prompts).schema
    assert [c.name for c in schema.ignored] == ["Remarks", "seen_by"]
    assert not [text for text in [*LETTERS, "Schmidt"] if text in prompts.shown + schema.to_toml()]


def test_an_answer_is_released_as_listed_found_privately_or_left_out() -> None:
    kept = run_wizard(with_letters(), Answers(Keep_which="2", may_they_be_released="seen_by=private, sex=out")).schema
    assert kept["seen_by"].unknown
    assert {c.name for c in kept.ignored} == {"Remarks", "sex"}
    listed = run_wizard(with_letters(), Answers(Keep_which="all")).schema
    assert listed["Remarks"].categories == tuple(sorted(LETTERS))
    assert "categories" in listed["Remarks"].inferred


def test_what_is_left_out_and_who_stands_for_the_rest_is_in_the_datasheet(tmp_path: Path, call: Call) -> None:
    frame = with_letters()
    frame.to_csv(tmp_path / "table.csv", index=False)
    schema = run_wizard(frame, Answers(Which_lines="all", Your_name="Ada | Weber")).schema
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    words = "condense table.csv --schema schema.toml --target died --ipc 5 --threads 1 --out run"
    assert call(*words.split()).code in (0, 3)
    sheet = (tmp_path / "run/release/datasheet.md").read_text()
    assert WORDS in sheet
    assert f"Ada | Weber, {schema.attested[0].on}" in sheet
    left_out = sheet.split("## Left out")[1].split("##")[0]
    assert "Remarks" in left_out
    assert "seen_by" in left_out
    released = Schema.from_toml(tmp_path / "run/release/schema.toml")
    assert (released.left_out, released.attested) == (("Remarks", "seen_by"), schema.attested)


def test_what_nobody_stands_for_stays_inferred() -> None:
    state = run_wizard(with_letters(), Answers(Which_lines="age, sex", Your_name="Ada Weber"))
    assert state.schema.origin == "inferred"
    assert [c.name for c in (*state.schema.columns, *state.schema.ignored) if not c.inferred] == ["age", "sex"]
    assert "died" in state.problems[0]
    nobody = run_wizard(with_letters(), Answers(Which_lines="all"))
    assert (nobody.schema.origin, nobody.schema.attested) == ("inferred", ())


def test_a_declared_schema_has_nothing_inferred_left(tmp_path: Path) -> None:
    text = run_wizard(with_letters(), Answers()).to_toml()
    (tmp_path / "schema.toml").write_text(text.replace('"inferred"\n', '"declared"\n', 1))
    with pytest.raises(SchemaError, match=r"\[columns.age\] inferred: kind"):
        Schema.from_toml(tmp_path / "schema.toml")


@pytest.mark.parametrize("kind", ["numeric", "time"])
def test_bounds_are_never_read_off_patients(kind: str) -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"x": rng.normal(50, 9, 200), "stay": rng.integers(0, 89, 200), "dead": rng.integers(0, 2, 200)}
    )
    asked = Answers(Outcome_column="stay" if kind == "numeric" else "stay,dead")
    state = run_wizard(frame, asked)
    assert state.schema["stay"].unknown
    assert state.schema["x"].unknown
    assert any("stay needs bounds" in problem for problem in state.problems)
    asked.answers["Other_bounds"] = "stay=0 365"
    assert run_wizard(frame, asked).schema["stay"].high == 365


def hospital_table(rows: int = 400) -> pd.DataFrame:
    """Laboratory values with a flag beside them, a time with its event, a code, a copy, a constant."""
    rng = np.random.default_rng(3)
    sex = rng.choice(["f", "m"], rows)
    return pd.DataFrame({
        "patient_nbr": 5_000_000 + 17 * (np.arange(rows) // 2), "sex": sex, "gender": sex, "centre": ["main"] * rows,
        "discharge_disposition_id": rng.integers(1, 27, rows), "smoking": rng.choice(["never", "now", "unknown"], rows),
        "creatinine": np.round(rng.gamma(4, 0.3, rows), 2), "days": rng.integers(1, 900, rows),
        "died": rng.integers(0, 2, rows), "TBG_measured": rng.choice(["f", "t"], rows),
        "seen on": [f"{1 + k % 28:02d}.03.2019" for k in range(rows)],
        "birth date": [f"{1 + k % 28:02d}.05.{1930 + k % 60}" for k in range(rows)],
    })  # fmt: skip


def test_a_hospitals_export_is_described_as_its_data_manager_would() -> None:
    prompts = Answers(Which_of_these_mean="unknown in smoking", Which_units="creatinine=mg/dL")
    state = run_wizard(hospital_table(), prompts)
    assert state.outcome == {"time": "days", "event": "died"}
    assert state.person == "patient_nbr"
    assert "--person-id" in state.command("table.csv", "schema.toml")
    assert {"gender", "centre"} <= {c.name for c in state.schema.ignored}
    code = state.schema["discharge_disposition_id"]
    assert (code.kind, len(code.categories)) == ("categorical", 26)
    assert (state.schema["smoking"].categories, state.schema["smoking"].missing) == (("never", "now"), "category")
    assert (state.schema["creatinine"].high, state.schema["creatinine"].unit) == (35, "mg/dL")


def test_limits_of_a_laboratory_are_numbers_and_no_identifiers() -> None:
    rng = np.random.default_rng(4)
    crp = [f"<{v}" if v < 1 else f">{v}" if v > 90 else str(v) for v in np.round(rng.gamma(1, 30, 400), 1)]
    state = run_wizard(hospital_table().assign(CRP=crp), Answers())
    assert state.person == "patient_nbr"
    column = state.schema["CRP"]
    assert (column.kind, column.censored, column.high) == ("continuous", True, 1000)
    assert "censored" in column.inferred  # until somebody stands for it
    assert not any("CRP" in problem for problem in state.problems if "nobody stands for" not in problem)


def test_where_every_row_has_its_own_number_of_a_patient_no_other_column_says_whose_rows_they_are() -> None:
    drug = [f"A{100 + k % 130}BC" for k in range(400)]
    table = hospital_table().drop(columns="patient_nbr").assign(drug=drug)
    assert run_wizard(table, Answers()).person == "drug"
    assert run_wizard(table.assign(MRN=np.arange(400) + 700_000), Answers()).person == ""
    several = table.assign(subject=[f"S{k // 2:05d}" for k in range(400)])
    assert run_wizard(several, Answers()).person == "subject"


def test_answers_that_differ_in_capitals_alone_are_pointed_out_until_somebody_stands_for_them() -> None:
    table = hospital_table().assign(ward=["North", "north ", "South", "East"] * 100)
    prompts = Answers()
    assert any("answers of ward differ in capitals" in problem for problem in run_wizard(table, prompts).problems)
    assert "(some differ in capitals or spaces alone)" in prompts.shown
    assert not any("capitals" in problem for problem in run_wizard(hospital_table(), Answers()).problems)


def test_unknown_is_offered_as_missing_and_stays_an_answer_by_default() -> None:
    prompts = Answers()
    schema = run_wizard(hospital_table(), prompts).schema
    assert "unknown in smoking" in prompts.shown
    assert "unknown" in schema["smoking"].categories


def test_what_gives_the_outcome_away_in_other_words_is_left_out() -> None:
    table = hospital_table()
    table = table.assign(deceased=table["died"].map({0: "no", 1: "yes"}), male=(table["sex"] == "m").astype(int))
    reasons = {c.name: c.reason for c in run_wizard(table, Answers()).schema.ignored}
    assert reasons["deceased"] == "in other words the same as died in every row"
    assert reasons["male"] == "in other words the same as sex in every row"
    assert "died" not in reasons
    few = pd.DataFrame({"sex": ["f", "m"] * 9, "smoker": ["no", "yes"] * 9, "died": [0, 1, 1] * 6})
    assert not run_wizard(few, Answers()).schema.ignored


@pytest.mark.parametrize(
    ("names", "suggested"),
    [
        ("age TBG_measured", ""),
        ("age_of_death died", "died"),
        ("months_to_relapse months_to_death relapse", "months_to_relapse,relapse"),
        ("TSH_measured diagnosis", "diagnosis"),
    ],
)
def test_an_outcome_is_suggested_by_name_or_not_at_all(names: str, suggested: str) -> None:
    def column(name: str) -> Column:
        if name.startswith(("age", "months")):
            return Column(name, "integer", low=0, high=100)
        return Column(name, "categorical", categories=("a", "b", "c")[: 3 if name == "diagnosis" else 2])

    assert likely_outcome(list(map(column, names.split()))) == suggested


def test_what_stands_in_comments_is_valid_when_it_is_uncommented() -> None:
    drafted = draft(hospital_table())
    assert list(drafted.comments) == ["seen on", "birth date"]
    for text in drafted.comments.values():
        sections = tomllib.loads(text)["columns"]
        others = {name: {"kind": "ignore", "format": "%d.%m.%Y"} for name in ("seen on", "birth date")}
        schema = Schema.from_dict({"columns": others | sections})
        assert set(schema.names) <= {"seen on", "birth date", "age"}


def test_without_a_terminal_it_writes_a_draft_and_lists_what_is_open(
    call: Call, table: pd.DataFrame, tmp_path: Path
) -> None:
    answer = call("init", "visits.csv", "--yes", "--no-plan")
    assert answer.code == 0
    schema = Schema.from_toml(tmp_path / "schema.toml")
    assert schema.origin == "inferred"
    opened = [line for line in answer.out.splitlines() if line.startswith("open: ")]
    assert any("whose row it is" in line and "record_no" in line for line in opened)
    assert any("nobody stands for" in line for line in opened)
    (once, now) = (line for line in answer.out.splitlines() if "distcondense condense visits.csv" in line)
    assert once.startswith("next, once a person has confirmed what is open")
    assert now.startswith("or now, and the guarantee is conditional: ")
    # the command that is offered runs as it stands, once the outcome is named
    words = shlex.split(now.partition("conditional: ")[2])[1:]
    assert "--trust-inferred-schema" in words
    assert call(*words, "--ipc", "5", "--threads", "1").code in (0, 3)
    assert not [canary for canary in hospital.canaries(table) if canary in answer.out + answer.err]
    refused(call("init", "visits.csv", "--yes"), "exists already", "--force")


def test_what_is_no_code_is_a_value_again() -> None:
    prompts = Answers(Which_of_these_mean="? in crp, -9 in creatinine")
    schema = run_wizard(hospital.export(120), prompts).schema
    assert schema["weight"].missing_values == ()
    assert "999 in weight" in prompts.shown
    assert schema["creatinine"].missing_values == (-9,)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("weight_kg", ["kg"]),
        ("weight", ["kg", "lb"]),
        ("Creatinine", ["µmol/L", "mg/dL"]),
        ("Creatinine mg/dL", ["mg/dL"]),
        ("creatinine_umol_l", ["µmol/L"]),
        ("SystolicBP", ["mmHg"]),
        ("temp_c", ["°C"]),
        ("body temperature", ["°C", "°F"]),
        ("age_at_visit", ["years"]),
        ("stage", []),
        ("passage_count", []),
    ],
)
def test_common_measurements_have_public_ranges_and_a_unit_is_said(name: str, units: list[str]) -> None:
    assert [one.unit for one in ranges_of(name)] == units


def test_a_unit_is_known_however_it_is_written_and_every_range_is_one() -> None:
    assert range_in("creatinine", "UMOL/l") == RANGES["creatinine|crea|kreatinin"][0]
    assert range_in("creatinine", "kg") is None
    for ranges in RANGES.values():
        assert all(one.low < one.high for one in ranges)
        assert all(one.conversion for one in ranges[1:])


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


def test_times_in_whole_days_are_simulated_as_whole_days() -> None:
    days = Column("days", "integer", low=0, high=365)
    schema = Schema((Column("age", "integer", low=0, high=120), days, Column("died", "binary", categories=(0, 1))))
    cohort = simulated(schema, {"time": "days", "event": "died"}, 400)
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
