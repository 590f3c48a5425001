"""The custodian's afternoon: five commands from a hospital's raw CSV to a release, and nobody's name anywhere in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from distcondense.data.attestation import WORDS
from distcondense.data.schema import Schema
from distcondense.privacy.accounts import STATE
from tests import hospital
from tests.cli.test_init import Screen
from tests.shell import Answer, Call

COMMANDS = (
    "init visits.csv --no-plan",
    "schema check schema.toml visits.csv",
    "condense visits.csv --schema schema.toml --target died --person-id record_no --epsilon 6 --ipc 20 --out run "
    "--threads 1",
    "evaluate run --data visits.csv --parts copies --threads 1",
    "privacy verify run",
)
ANSWERS = (  # of the first command: what is asked, and what is said
    ("whose row it is", ""),
    ("Outcome column", ""),
    ("nothing is known", ""),
    ("Keep which", ""),
    ("Compute the age", ""),
    ("Which units", "weight=kg, creatinine=umol/L"),
    ("Other bounds", ""),
    ("released?", ""),
    ("died means yes", ""),
    ("from the codebook", "all"),
    ("Your name", "Ada Weber"),
)


@dataclass(frozen=True)
class Afternoon:
    folder: Path
    table: pd.DataFrame
    screen: str  # of the first command
    answers: tuple[Answer, ...]  # of the others


@pytest.fixture(scope="module")
def afternoon(call_in: Call, tmp_path_factory: pytest.TempPathFactory) -> Afternoon:
    """All five, once."""
    folder = tmp_path_factory.mktemp("afternoon")
    table = hospital.export(600)
    table.to_csv(folder / "visits.csv", index=False)
    screen = Screen(*COMMANDS[0].split(), cwd=folder)
    for question, said in ANSWERS:
        screen.answer(question, said)
    screen.wait_for("next: distcondense condense")
    assert screen.end() == 0
    return Afternoon(folder, table, screen.shown, tuple(call_in(folder, *words.split()) for words in COMMANDS[1:]))


@pytest.fixture(scope="module")
def call_in() -> Call:
    """Commands as a shell would run them in a folder, with an account in a folder beside it."""
    import os
    import subprocess
    import sys

    def run(folder: Path, *words: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "distcondense", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, STATE: str(folder / "state")},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


def test_five_commands_lead_to_a_release(afternoon: Afternoon) -> None:
    assert [(answer.code, answer.err if answer.code else "") for answer in afternoon.answers] == [(0, "")] * 4
    made = pd.read_csv(afternoon.folder / "run/release/condensed.csv")
    assert len(made) == 40
    assert list(made)[:6] == ["sex", "weight", "crp", "creatinine", "risk", "age"]
    assert made["weight"].dropna().between(0, 400).all()
    assert made["age"].dropna().between(0, 120).all()


def test_no_identifier_date_or_remark_leaves_internal(afternoon: Afternoon) -> None:
    canaries = hospital.canaries(afternoon.table)
    said = [afternoon.screen, *(answer.out + answer.err for answer in afternoon.answers)]
    outside = [path for path in afternoon.folder.rglob("*") if path.is_file() and "internal" not in path.parts]
    for path in outside:
        if path.suffix == ".parquet":
            said.append(pd.read_parquet(path).to_csv())
        elif path.name != "visits.csv":
            said.append(path.read_bytes().decode("utf-8", "replace"))
    everything = "\n".join(said)
    assert len(outside) > 8
    assert not [canary for canary in canaries if canary in everything]
    aside = ("record_no", "birth_date", "visit_date", "remark")
    released = Schema.from_toml(afternoon.folder / "run/release/schema.toml")
    assert released.left_out == aside
    assert not {*aside, "missing_values"} & set(released.to_dict()["columns"])
    assert "missing_values" not in released.to_toml()
    datasheet = (afternoon.folder / "run/release/datasheet.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in datasheet.split("## Left out")[1].split("##")[0] for name in aside)


def test_somebody_stands_for_the_schema_and_the_guarantee_is_end_to_end(afternoon: Afternoon) -> None:
    datasheet = (afternoon.folder / "run/release/datasheet.md").read_text(encoding="utf-8")
    assert f'> "{WORDS}"\n\nAda Weber, ' in datasheet
    stated = json.loads((afternoon.folder / "run/release/privacy.json").read_text(encoding="utf-8"))
    assert stated["guarantee"] == "end-to-end"


def test_few_questions_are_asked() -> None:
    assert len(ANSWERS) <= 15


def test_holes_are_holes_and_no_code_is_released(afternoon: Afternoon) -> None:
    made = pd.read_csv(afternoon.folder / "run/release/condensed.csv", dtype=str, keep_default_na=False)
    assert not made.isin(["?", "-9", "999", "999.0"]).any(axis=None)


def test_rows_are_called_rows_and_persons_persons(afternoon: Afternoon) -> None:
    record = json.loads((afternoon.folder / "run/internal/run.json").read_text(encoding="utf-8"))
    assert record["data"]["persons"] == 600
    tested = record["data"]["split_persons"]["test"]
    assert f"real rows of {tested} persons" in afternoon.answers[1].out + afternoon.answers[1].err
    stated = json.loads((afternoon.folder / "run/release/privacy.json").read_text(encoding="utf-8"))
    assert stated["unit"] == "person"


def test_a_second_folder_knows_of_the_first(afternoon: Afternoon, call_in: Call) -> None:
    """A budget that nothing answers to is refused or not: what was spent before is said first."""
    words = (
        COMMANDS[2]
        .replace("--out run", "--out again --method published --no-noise --steps 2")
        .replace("--epsilon 6 ", "")
    )
    answer = call_in(afternoon.folder, *words.split())
    assert answer.code == 0
    assert "these patients were read before: 1 run, ε = 6 (end-to-end)" in answer.err
