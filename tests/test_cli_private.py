"""The command line on its default path: private runs, what they print and refuse, verify and audit."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from distcondense.data import tables
from distcondense.data.schema import Schema
from distcondense.methods.private import placement
from tests.shell import FOLLOWED, TARGET, Call, files, refused, write
from tests.tiny import CANARIES, SCHEMA, patients

PRIVATE = ["--ipc", "10", "--epsilon", "6", "--threads", "1"]


@pytest.fixture(autouse=True)
def quick_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CANDIDATES", 2), ("SWAPS_PER_ROW", 30), ("POOL", 400), ("SURVIVAL_CANDIDATES", 2),
                        ("SURVIVAL_POOL", 1000), ("ROUNDS", 10)):  # fmt: skip
        monkeypatch.setattr(placement, name, value)


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    return write(patients(1500), tmp_path)


def bare(text: str) -> list[str]:
    """Every "ε = number" that has no guarantee in the same sentence."""
    flat = " ".join(text.split())
    parts = [part for part in flat.replace(";", ". ").split(". ") if "ε = " in part]
    return [part for part in parts if "end-to-end" not in part and "as-published" not in part]


def test_private_is_the_default_and_ends_with_a_statement(call: Call, cohort: Path, tmp_path: Path) -> None:
    answer = call("condense", cohort, *TARGET, *PRIVATE, "--out", "run")
    assert answer.code == 0, answer.err
    for part in ("Private model itself", "Condensed (synthetic)", "guarantee: end-to-end", "Not covered"):
        assert part in " ".join(answer.out.split())
    assert bare(answer.out) == []
    assert bare(answer.err) == []
    assert bare((tmp_path / "run/internal/log.txt").read_text()) == []
    assert sorted(files(tmp_path / "run")) == [
        "internal/holdout.json", "internal/ledger.answers", "internal/ledger.jsonl", "internal/log.txt",
        "internal/model.png", "internal/owner.json", "internal/run.json", "release/condensed.csv",
        "release/condensed.parquet", "release/privacy.json", "release/schema.toml",
    ]  # fmt: skip
    assert call("schema", "check", "run/release/schema.toml", "run/release/condensed.csv").code == 0
    said = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert said["settings"]["epsilon_end_to_end"] == 6
    assert "epsilon_as_published" not in said["settings"]


def test_a_survival_table_takes_its_horizon_from_the_schema(call: Call, cohort: Path, tmp_path: Path) -> None:
    answer = call("condense", cohort, *FOLLOWED, *PRIVATE, "--out", "run")
    assert answer.code == 0, answer.err
    assert "C-index" in answer.out
    assert pd.read_csv(tmp_path / "run/release/condensed.csv")["months"].max() <= 1000


def test_json_is_one_object_with_the_ledger_in_it(call: Call, cohort: Path) -> None:
    answer = call("condense", cohort, *TARGET, *PRIVATE, "--json", "--holdout", "0")
    said = json.loads(answer.out)
    assert said["privacy"]["guarantee"] == "end-to-end"
    assert len(said["privacy"]["ledger"]) == 20
    assert "nobody was held out" in said["metrics"]["note"]


def test_verify_is_exit_0_for_an_honest_file_and_2_for_a_better_claim(call: Call, cohort: Path, tmp_path: Path) -> None:
    call("condense", cohort, *TARGET, *PRIVATE, "--out", "run")
    for path in ("run", "run/release", "run/release/privacy.json"):
        answer = call("privacy", "verify", path)
        assert answer.code == 0
        assert "the ledger pays for the stated ε" in answer.out
        assert bare(answer.out) == []
    assert json.loads(call("privacy", "verify", "run", "--json").out)["holds"]
    file = tmp_path / "run/release/privacy.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps({**said, "epsilon": 3.0}))
    answer = call("privacy", "verify", "run")
    assert answer.code == 2
    assert "DOES NOT PAY" in answer.out
    refused(call("privacy", "verify", "elsewhere"), "must be a run folder")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--epsilon", "0.001"], "every answer is noise"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "1", "--rows-per-person", "0"], "rows_per_person"),
        (["--epsilon", "1", "--holdout", "1"], "holdout"),
        (["--epsilon", "60"], "epsilon"),
        (["--epsilon", "1", "--delta", "0"], "delta"),
    ],
)
def test_what_public_knowledge_rules_out_is_refused_before_the_table_is_opened(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    monkeypatch.setattr(tables, "read_table", lambda *_, **__: pytest.fail("the table was opened"))
    refused(call("condense", "not-there.csv", *TARGET, *arguments), says)


def test_no_schema_and_an_inferred_one_are_refused_before_the_table_is_opened(call: Call, tmp_path: Path) -> None:
    refused(call("condense", "not-there.csv", "--target", "died", "--epsilon", "1"), "must be given", "schema infer")
    inferred = Schema(SCHEMA.columns, "inferred")
    (tmp_path / "schema.toml").write_text(inferred.to_toml(), encoding="utf-8")
    refused(call("condense", "not-there.csv", *TARGET, "--epsilon", "1"), "must be declared")


def test_a_trusted_draft_is_told_in_the_statement(call: Call, tmp_path: Path) -> None:
    patients(600).drop(columns=["months", "relapse"]).to_csv(tmp_path / "cohort.csv", index=False)
    answer = call("condense", "cohort.csv", "--target", "died", *PRIVATE, "--trust-inferred-schema")
    assert answer.code == 0, answer.err
    assert "inferred from the patients" in " ".join(answer.out.split())


def test_a_large_epsilon_is_said_aloud(call: Call, cohort: Path) -> None:
    answer = call("condense", cohort, *TARGET, "--ipc", "5", "--epsilon", "12", "--threads", "1")
    assert answer.code == 0
    assert "promises patients very little" in answer.err


def test_a_run_without_an_answer_says_so_and_ends_well(call: Call, tmp_path: Path) -> None:
    frame = patients(400)
    write(frame.assign(died=0), tmp_path)
    answer = call("condense", "cohort.csv", *TARGET, "--ipc", "5", "--epsilon", "1", "--threads", "1", "--out", "run")
    assert answer.code == 0, answer.err
    assert "NO ANSWER" in answer.out
    assert len(pd.read_csv(tmp_path / "run/release/condensed.csv")) == 0
    assert not any(canary in answer.out + answer.err for canary in CANARIES)


def test_the_audit_prints_bounds_beside_claims_and_exits_by_its_verdict(call: Call, tmp_path: Path) -> None:
    answer = call("attack", "audit", "--runs", "20", "--canaries", "20", "--out", "audit.json")
    assert answer.code == 0, answer.err
    assert "end-to-end" in answer.out
    assert "PASSED" in answer.out
    assert json.loads((tmp_path / "audit.json").read_text())["findings"]
    refused(call("attack", "audit", "--mechanism", "magic"), "mechanism")


def test_every_command_explains_itself(call: Call) -> None:
    for command in (["privacy"], ["privacy", "verify"], ["attack"], ["attack", "audit"]):
        answer = call(*command, "--help")
        assert answer.code == 0
        assert "Usage" in answer.out
