"""What a schema says of columns that are no plain numbers or categories: left out, dates, codes for missing values."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.dates import Between, numbers_of_dates, written_dates
from distcondense.data.draft import draft
from distcondense.data.features import check_features
from distcondense.data.missing import far_codes, hints, without_codes
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SchemaError
from tests import hospital, naive
from tests.shell import Call, refused

DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2199, 12, 31))
SEEN = Column("seen", "date", low="1900-01-01", high="2199-12-31", format="%d/%m/%Y")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return hospital.export(120)


@pytest.fixture(scope="module")
def drafted(table: pd.DataFrame) -> Schema:
    return draft(table).schema


# -- drafts -----------------------------------------------------------------------------------------------------------


def test_a_draft_ignores_identifiers_dates_and_free_text_and_lists_none_of_them(table: pd.DataFrame) -> None:
    found = draft(table)
    assert [c.name for c in found.schema.ignored] == ["record_no", "birth_date", "visit_date", "remark"]
    assert all(c.reason for c in found.schema.ignored)
    shown = found.to_toml() + "\n".join(found.hints)
    assert not [canary for canary in hospital.canaries(table) if canary in shown]
    assert 'computed = "years_between(birth_date, visit_date)"' in shown
    assert Schema.from_dict(tomllib.loads(found.to_toml())) == found.schema


def test_a_draft_reads_codes_as_missing_and_keeps_them_out_of_the_bounds(drafted: Schema) -> None:
    assert {c.name: c.missing_values for c in drafted.columns if c.missing_values} == {
        "weight": (999,),
        "crp": ("?",),
        "creatinine": (-9,),
    }
    assert drafted["crp"].kind == "continuous"
    assert drafted["weight"].high is not None
    assert drafted["weight"].high < 200
    assert drafted["creatinine"].low == 40


def test_a_repeated_identifier_is_hinted_at_as_a_person(table: pd.DataFrame) -> None:
    assert draft(table).persons == ("record_no",)
    assert "--person-id record_no" in "\n".join(draft(table).hints)
    assert draft(table.drop_duplicates("record_no")).persons == ()


@pytest.mark.parametrize(
    ("name", "values", "ignored"),
    [
        ("case", 4_100_000 + np.arange(300), True),
        ("PatientID", np.arange(300), True),
        ("platelets", 150_000 + 1000 * (np.arange(300) % 25), False),
        ("visit_number", np.arange(300) % 7, False),
        ("cost", 90 + 977 * np.arange(300), False),
    ],
)
def test_issued_numbers_are_told_from_measured_ones(name: str, values: Any, ignored: bool) -> None:
    found = draft(pd.DataFrame({name: values, "sex": ["f", "m"] * 150})).schema
    assert [c.name for c in found.ignored] == [name] * ignored


def test_numbers_that_merely_lie_near_a_code_are_no_codes() -> None:
    assert far_codes("platelets", np.arange(20.0, 1200)) == []
    assert far_codes("change", np.arange(-60.0, 60)) == []
    assert [h.code for h in far_codes("age", np.array([*range(18, 90), 999, 999, 999]))] == [999]


# -- ignored ----------------------------------------------------------------------------------------------------------


def test_ignored_columns_are_no_features_and_not_in_the_public_schema(table: pd.DataFrame, drafted: Schema) -> None:
    cohort = dc.Cohort.from_frame(table, target="died", schema=drafted, person_id="record_no")
    assert list(cohort.features) == ["sex", "weight", "crp", "creatinine", "risk"]
    assert cohort.schema.ignored == ()
    assert "record_no" in cohort.schema.released.left_out  # its name, and nothing else
    assert "record_no" not in cohort.schema.released.to_dict()["columns"]
    assert len(cohort.identifiers) == 120


def test_an_ignored_outcome_is_refused(table: pd.DataFrame, drafted: Schema) -> None:
    with pytest.raises(CohortError, match=r"'visit_date'.*described"):
        dc.Cohort.from_frame(table, target="visit_date", schema=drafted)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"kind": "ignore", "low": 3}, "says nothing about a column that is ignored"),
        ({"kind": "date", "low": "2015-01-01"}, "high must be dates"),
        ({"kind": "date", "low": "then", "high": "2015-01-01"}, "low must be dates"),
        ({"kind": "date", "low": "2015-01-01", "high": "2016-01-01", "unit": "weeks"}, "unit of a date"),
        ({"kind": "date", "low": "2015-01-01", "high": "2016-01-01", "origin": "x"}, "origin must be a date"),
        ({"kind": "integer", "format": "%Y"}, "belong to kind"),
        ({"kind": "integer", "reason": "x"}, "reason belongs"),
        ({"kind": "integer", "computed": "age(birth)"}, "computed must be"),
        ({"kind": "integer", "computed": "years_between(a, b)"}, "needs 'a' in the schema"),
        ({"kind": "binary", "categories": [0, 9], "missing_values": [9]}, "category must not be among"),
        ({"kind": "integer", "missing_values": 9}, "missing_values must be a list"),
    ],
)
def test_illegal_kinds_are_refused(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        Schema.from_dict({"columns": {"x": entry}})


# -- dates ------------------------------------------------------------------------------------------------------------


@given(st.lists(DAYS, min_size=1, max_size=5))
def test_a_date_becomes_days_and_the_same_date_again(days: list[dt.date]) -> None:
    texts = pd.Series([day.strftime("%d/%m/%Y") for day in days], dtype=object)
    numbers = numbers_of_dates(texts, SEEN)
    assert numbers.tolist() == [(day - dt.date(1970, 1, 1)).days for day in days]
    assert written_dates(SEEN, pd.Series(numbers)).tolist() == texts.tolist()
    for typed in (pd.Series(days, dtype=object), pd.Series(pd.to_datetime(days))):
        assert numbers_of_dates(typed, SEEN).tolist() == numbers.tolist()


@given(DAYS, DAYS)
def test_years_between_counts_birthdays(born: dt.date, day: dt.date) -> None:
    ends = [dt.datetime(d.year, d.month, d.day) for d in sorted((born, day))]
    how = Between.parse("years_between(born, day)")
    assert how is not None
    assert how.between(*ends) == naive.birthdays_passed(*ends)


def test_a_date_depends_on_its_own_cell_alone() -> None:
    alone = numbers_of_dates(pd.Series(["03/04/2020"]), SEEN)
    beside = numbers_of_dates(pd.Series(["03/04/2020", "31/12/2020", None]), SEEN)
    assert alone[0] == beside[0]
    with pytest.raises(CohortError, match=r"'seen'.*dates written as %d/%m/%Y.*1 row, first at row 2"):
        numbers_of_dates(pd.Series(["03/04/2020", "12/31/2020"]), SEEN)


def test_bounds_of_a_date_are_dates_in_the_file_and_in_the_error() -> None:
    column = Column("seen", "date", low="2015-01-01", high="2020-12-31", format="%d/%m/%Y")  # type: ignore[arg-type]
    schema = Schema((column, Column("x", "integer", low=0, high=9)))
    assert 'low = "2015-01-01"' in schema.to_toml()
    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema
    with pytest.raises(CohortError, match=r"\[2015-01-01, 2020-12-31\]"):
        check_features(pd.DataFrame({"seen": ["01/01/2021"], "x": [1]}), schema)


def test_an_age_is_computed_from_dates_that_stay_ignored(table: pd.DataFrame, tmp_path: Path) -> None:
    said = draft(table).schema.to_dict()
    said["columns"]["age"] = {
        "kind": "integer",
        "low": 0,
        "high": 120,
        "computed": "years_between(birth_date, visit_date)",
    }
    schema = Schema.from_dict(said)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    ages = [
        naive.birthdays_passed(*(dt.datetime.strptime(day, "%d/%m/%Y") for day in pair))
        for pair in zip(table["birth_date"], table["visit_date"], strict=True)
    ]
    for file in ("t.csv", "t.parquet"):
        cohort = dc.Cohort.from_file(tmp_path / file, target="died", schema=schema, person_id="record_no")
        assert cohort.features["age"].tolist() == ages
        assert "birth_date" not in cohort.features
    assert "computed" not in cohort.schema.released.to_toml()


def test_dates_are_released_as_dates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2016-01-01") + pd.to_timedelta(rng.integers(0, 1400, 800), "D")
    died = np.where(rng.random(800) < 0.15 + 0.7 * (days.year > 2017), "yes", "no")
    frame = pd.DataFrame({"seen": days.strftime("%d/%m/%Y"), "age": rng.integers(20, 80, 800), "died": died})
    column = Column("seen", "date", low="2015-01-01", high="2020-12-31", format="%d/%m/%Y")  # type: ignore[arg-type]
    schema = Schema(
        (column, Column("age", "integer", low=0, high=120), Column("died", "binary", categories=("no", "yes")))
    )
    cohort = dc.Cohort.from_frame(frame, target="died", schema=schema)
    result = dc.condense(cohort, ipc=20, epsilon=8.0, threads=1, out=tmp_path / "run")
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    read = pd.to_datetime(made["seen"], format="%d/%m/%Y")
    assert read.between("2015-01-01", "2020-12-31").all()
    assert read.nunique() > 5
    assert result.training_data()[0]["seen"].between(16000, 19000).all()
    assert np.isfinite([score.value for score in dc.evaluate(cohort, result, threads=1)]).all()


# -- codes for missing ------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([-9, 999, 1, 2.5, "?", "999", "-9.0", "x", None, np.nan]), min_size=1, max_size=6))
def test_codes_become_holes_whatever_stands_beside_them(values: list[Any]) -> None:
    column = Column("x", "continuous", missing_values=(-9, 999, "?"))
    series = pd.Series(values, dtype=object)
    alone = [bool(without_codes(pd.Series([value], dtype=object), column).isna()[0]) for value in values]
    assert without_codes(series, column).isna().tolist() == alone
    coded = [value in (-9, 999, "?", "999", "-9.0") or value is None or value != value for value in values]
    assert alone == coded


def test_codes_of_the_schema_hold_for_every_column_but_where_they_are_categories() -> None:
    said = {
        "missing_values": [-9, "?"],
        "columns": {
            "x": {"kind": "integer", "low": 0, "high": 5, "missing": "indicator", "missing_values": [99]},
            "y": {"kind": "categorical", "categories": ["a", "?"]},
        },
    }
    schema = Schema.from_dict(said)
    assert schema["x"].missing_values == (99, -9, "?")
    assert schema["y"].missing_values == (-9,)
    checked = check_features(pd.DataFrame({"x": [1, -9, 99], "y": ["a", "?", "a"]}), schema)
    assert checked["x"].isna().tolist() == [False, True, True]
    assert checked["y"].isna().sum() == 0


def test_a_csv_and_a_parquet_file_give_the_same_holes(table: pd.DataFrame, drafted: Schema, tmp_path: Path) -> None:
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    how = {"target": "died", "schema": drafted, "person_id": "record_no"}
    one, two = (dc.Cohort.from_file(tmp_path / name, **how) for name in ("t.csv", "t.parquet"))
    pd.testing.assert_frame_equal(one.features, two.features)
    assert one.features["crp"].isna().equals(table["crp"] == "?")
    assert one.features["weight"].isna().equals(table["weight"] == 999)


def test_the_bounds_error_names_codes_as_a_fix_and_generous_bounds_get_a_hint(
    call: Call, table: pd.DataFrame, drafted: Schema, tmp_path: Path
) -> None:
    table.to_csv(tmp_path / "t.csv", index=False)
    said = drafted.to_dict()
    said["columns"]["weight"].pop("missing_values")
    (tmp_path / "tight.toml").write_text(Schema.from_dict(said).to_toml(), encoding="utf-8")
    refused(call("schema", "check", "tight.toml", "t.csv"), "'weight'", "missing_values = [-9, 999]")
    said["columns"]["weight"] |= {"low": 0.0, "high": 2000.0}
    (tmp_path / "wide.toml").write_text(Schema.from_dict(said).to_toml(), encoding="utf-8")
    answer = call("schema", "check", "wide.toml", "t.csv")
    assert answer.code == 0
    rows = int((table["weight"] == 999).sum())
    assert f"hint: column weight: {rows} rows hold 999" in answer.err
    assert [hint.column for hint in hints(table, drafted)] == []
