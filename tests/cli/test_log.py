"""The structured log: every line of standard error one JSON object, and nothing of a patient in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shell import TARGET, Call, write
from tests.tiny import CANARIES, NUMBER, TEXT, patients

SMALL = ["--method", "published", "--no-noise", "--ipc", "5", "--steps", "4", "--threads", "1"]


def entries(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("place", [0, 1])
def test_every_line_of_a_run_is_an_entry(call: Call, tmp_path: Path, place: int) -> None:
    write(patients(), tmp_path)
    command = ["condense", "cohort.csv", *TARGET, *SMALL, "--out", "run"]
    answer = call(*(["--log", "json", *command] if place == 0 else [*command, "--log=json"]))
    assert answer.code == 0, answer.err
    found = entries(answer.err)
    assert all({"at", "level"} <= entry.keys() for entry in found)
    assert {"text"} < set().union(*found)
    phases = {str(entry["doing"]) for entry in found if "doing" in entry}
    assert {"condensing", "writing"} <= phases
    assert any("release: " in str(entry.get("text")) for entry in found)
    assert not call("condense", "cohort.csv", *TARGET, *SMALL, "--out", "other").err.startswith("{")  # for once


def test_a_refusal_is_an_entry_too_and_says_no_value(call: Call, tmp_path: Path) -> None:
    frame = patients()
    frame["stage"], frame["crp"] = TEXT, NUMBER
    write(frame, tmp_path)
    answer = call("condense", "cohort.csv", *TARGET, *SMALL, "--out", "run", "--log", "json")
    assert answer.code == 2
    (error,) = [entry for entry in entries(answer.err) if entry["level"] == "error"]
    assert "Found " in str(error["text"])
    assert not any(canary in answer.err for canary in CANARIES)


def test_another_log_is_refused_and_what_is_behind_the_dashes_is_not_ours(call: Call) -> None:
    assert "must be text or json" in call("--log", "xml", "schema", "--help").err
    assert "--log" in call("--help").out
