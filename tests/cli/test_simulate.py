"""A table of nobody on disk, to try sizes with: the rows that `load` gives, their schema, and how to condense them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from distcondense.data import datasets
from distcondense.data.datasets import load
from distcondense.data.schema import Schema
from tests.shell import Call, refused


def test_a_simulated_table_is_the_one_that_is_loaded_and_can_be_condensed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "FILE_ROWS", 2**18)
    answer = call("simulate", "seer", "--rows", "9e2", "--seed", "3", "--out", "sim", "--json")
    assert answer.code == 0, answer.err
    said = json.loads(answer.out)
    expected = load("seer_like", rows=900, seed=3)
    pd.testing.assert_frame_equal(
        pd.read_parquet(said["table"]).astype(str), expected.frame.astype(str), check_dtype=False
    )
    assert Schema.from_toml(tmp_path / said["schema"]) == expected.schema
    program, *command = said["condense"]
    assert program == "distcondense"
    made = call(*command, "--ipc", "5", "--epsilon", "8", "--threads", "1", "--out", "run", "-q")
    assert made.code in (0, 3), made.err


def test_columns_and_rows_of_a_person_are_chosen(call: Call, tmp_path: Path) -> None:
    answer = call("simulate", "curial_like", "--rows", "1200", "--features", "4", "--rows-each", "3", "--out", "sim")
    assert answer.code == 0, answer.err
    assert "--person-id who" in answer.out
    frame = pd.read_parquet(tmp_path / "sim/table")
    assert frame.shape == (1200, 6)
    assert set(frame["who"].value_counts()) == {3}


@pytest.mark.parametrize(
    ("how", "found"),
    [
        (("nowhere",), "data set 'nowhere_like'"),
        (("seer", "--rows", "1.5"), "--rows"),
        (("seer", "--rows", "many"), "--rows"),
    ],
)
def test_what_cannot_be_simulated_is_refused(call: Call, how: tuple[str, ...], found: str, tmp_path: Path) -> None:
    refused(call("simulate", *how, "--out", "sim"), found)
    assert not (tmp_path / "sim").exists()


def test_a_folder_with_files_in_it_is_left_alone(call: Call, tmp_path: Path) -> None:
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim/notes.txt").write_text("mine")
    refused(call("simulate", "seer", "--rows", "100", "--out", "sim"), "must be new or an empty folder")
