"""What a new folder knows of earlier runs: the account that is kept by a table's path, and whose rows are counted."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import distcondense as dc
from distcondense.data.draft import draft
from distcondense.errors import DistcondenseWarning
from distcondense.privacy.accounts import STATE, account_of_table, earlier_spending, state_folder
from distcondense.privacy.events import Event
from tests import hospital


def test_the_state_folder_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_folder() is None  # tests write into nobody's home
    monkeypatch.setenv(STATE, str(tmp_path / "here"))
    assert state_folder() == tmp_path / "here"
    monkeypatch.delenv(STATE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "distcondense"


def test_an_account_is_one_for_a_path_whatever_the_file_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    table = tmp_path / "t.csv"
    table.write_text("a\n1\n")
    account = account_of_table(table)
    assert account is not None
    assert earlier_spending(account) == ""
    account.charge("one", (Event.nonprivate(),), method="a method", guarantee="none")
    table.write_text("a\n1\n2\n")
    monkeypatch.chdir(tmp_path)
    again = account_of_table("t.csv")
    assert again is not None
    assert again.path == account.path
    assert earlier_spending(again).startswith("1 run")
    other = account_of_table(tmp_path / "u.csv")
    assert other is not None
    assert earlier_spending(other) == ""


def test_where_nothing_can_be_written_no_account_is_kept_and_nothing_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STATE, str(tmp_path / "file"))
    assert account_of_table(tmp_path / "t.csv") is None


def test_an_identifier_that_repeats_is_hinted_at_where_no_person_is_named() -> None:
    table = hospital.export(120)
    schema = draft(table).schema
    with pytest.warns(DistcondenseWarning, match="record_no looks like an identifier that repeats.*--person-id"):
        dc.Cohort.from_frame(table, target="died", schema=schema)
    with pytest.warns(DistcondenseWarning, match="--person-id record_no"):
        dc.Cohort.from_frame(table, target="died", schema=schema.features, ignore=[c.name for c in schema.ignored])
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistcondenseWarning)
        dc.Cohort.from_frame(table, target="died", schema=schema, person_id="record_no")
        dc.Cohort.from_frame(table.drop_duplicates("record_no"), target="died", schema=schema)


def test_a_record_counts_rows_as_rows_and_persons_as_persons(tmp_path: Path) -> None:
    table = hospital.export(150)
    cohort = dc.Cohort.from_frame(table, target="died", schema=draft(table).schema, person_id="record_no")
    how = {"method": "published", "noise": False, "steps": 3, "ipc": 5, "threads": 1}
    data = dc.condense(cohort, out=tmp_path / "run", **how).record["data"]
    assert (data["rows"], data["persons"]) == (len(table), 150)
    assert sum(data["split_persons"].values()) == 150  # nobody is on two sides
    assert sum(data["split"].values()) == len(table)
    assert json.loads((tmp_path / "run/internal/run.json").read_text())["data"]["persons"] == 150
