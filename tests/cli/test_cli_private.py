"""The command line on its default path: private runs, what they print and refuse, verify and audit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.data import tables
from distcondense.data.schema import Column, Schema
from tests.conftest import quicken
from tests.shell import FOLLOWED, TARGET, Answer, Call, files, refused, write
from tests.tiny import CANARIES, NUMBER, SCHEMA, TEXT, patients, put

PRIVATE = ["--ipc", "10", "--epsilon", "6", "--threads", "1"]


@pytest.fixture(autouse=True)
def quick_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few exchanges, few candidates: only to save time."""
    quicken(monkeypatch)


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
    for part in ("Private reference model itself", "Condensed (synthetic)", "guarantee: end-to-end", "say about it: "):
        assert part in " ".join(answer.out.split())
    assert bare(answer.out) == []
    assert bare(answer.err) == []
    assert bare((tmp_path / "run/internal/log.txt").read_text()) == []
    assert sorted(files(tmp_path / "run")) == [
        "internal/holdout.json",
        "internal/ledger.answers",
        "internal/ledger.jsonl",
        "internal/log.txt",
        "internal/owner.json",
        "internal/report.html",
        "internal/report.json",
        "internal/run.json",
        "internal/sampler.json",
        "release/README.md",
        "release/condensed.csv",
        "release/condensed.parquet",
        "release/croissant.json",
        "release/datasheet.md",
        "release/deployment.json",
        "release/model.svg",
        "release/privacy.json",
        "release/report.html",
        "release/schema.toml",
    ]
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
    ledger = said["privacy"]["ledger"]
    assert {"histogram", "sums", "total", "choice"} == {entry["query"] for entry in ledger}
    rounds = [entry for entry in ledger if entry["query"] == "sums" and len(entry["columns"]) == 1]
    assert len(rounds) % 3 == 0  # three rounds over single columns; the others are of pairs
    assert said["scores"] == []
    assert said["poor"] == ""  # nothing was measured
    assert "nobody was held out" in said["scores_note"]


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
        (["--epsilon", "1", "--horizon", "60"], "is for outcomes with a time"),
    ],
)
def test_what_public_knowledge_rules_out_is_refused_before_the_table_is_opened(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    monkeypatch.setattr(tables, "read_table", lambda *_, **__: pytest.fail("the table was opened"))
    refused(call("condense", "not-there.csv", *TARGET, *arguments), says)


def four_parts(answer: Answer) -> None:
    """One message: what, the rule it breaks, what was found, how to fix it."""
    assert re.search(r"^error: [^:]+: .+\. Found .+\. Fix: .+\.$", answer.err, re.MULTILINE | re.DOTALL), answer.err


@pytest.mark.parametrize(
    ("spoil", "arguments", "says"),
    [
        (lambda frame: frame.drop(columns="crp"), [], ("every column of the schema", "1 missing: 'crp'")),
        (put("crp", TEXT), [], ("'crp': must be numbers", "text in 2 rows, first at row 8")),
        (lambda frame: frame, ["--epsilon", "-2"], ("epsilon: must be above 0 and finite", "Found -2")),
    ],
    ids=["missing column", "text in a number column", "impossible epsilon"],
)
def test_wrong_input_is_one_message_with_a_fix_and_no_patient(
    call: Call,
    tmp_path: Path,
    spoil: Callable[[pd.DataFrame], pd.DataFrame],
    arguments: list[str],
    says: tuple[str, ...],
) -> None:
    table = write(spoil(patients().assign(ferritin=NUMBER)), tmp_path)
    before = files(tmp_path)
    answer = call("condense", table, *TARGET, *PRIVATE, *arguments, "--out", "run")
    refused(answer, *says)
    four_parts(answer)
    assert answer.err.count("error:") == 1
    assert len([line for line in answer.err.splitlines() if not line.startswith("reading ")]) == 1
    assert files(tmp_path) == before


def test_no_schema_and_an_inferred_one_are_refused_before_the_table_is_opened(call: Call, tmp_path: Path) -> None:
    answer = call("condense", "not-there.csv", "--target", "died", "--epsilon", "1")
    refused(answer, "must be declared", "Found none", "distcondense init TABLE", "--trust-inferred-schema")
    inferred = Schema(SCHEMA.columns, "inferred")
    (tmp_path / "schema.toml").write_text(inferred.to_toml(), encoding="utf-8")
    refused(call("condense", "not-there.csv", *TARGET, "--epsilon", "1"), "must be declared")


def test_a_trusted_draft_is_told_in_the_statement(call: Call, tmp_path: Path) -> None:
    patients(600).drop(columns=["months", "relapse"]).to_csv(tmp_path / "cohort.csv", index=False)
    answer = call("condense", "cohort.csv", "--target", "died", *PRIVATE, "--trust-inferred-schema")
    assert answer.code == 0, answer.err
    assert "only if what was read off the patients is public anyway" in " ".join(answer.out.split())
    assert "inferred from the patients" in (tmp_path / "run/release/datasheet.md").read_text(encoding="utf-8")


def test_a_large_epsilon_is_said_aloud(call: Call, cohort: Path) -> None:
    answer = call("condense", cohort, *TARGET, *PRIVATE, "--epsilon", "12")
    assert answer.code == 0
    assert "promises patients very little" in answer.err


@pytest.mark.parametrize("said", [(), ("-q",), ("--json",), ("--ipc", "5,7")], ids=["aloud", "quiet", "json", "two"])
def test_a_run_without_an_answer_writes_a_statement_and_no_table_and_exits_with_3(
    call: Call, tmp_path: Path, said: tuple[str, ...]
) -> None:
    write(patients(400).assign(died=0), tmp_path)
    asked = [*TARGET, "--ipc", "5", "--epsilon", "1", "--threads", "1", "--out", "run", *said]
    answer = call("condense", "cohort.csv", *asked)
    assert answer.code == 3, answer.err
    assert answer.err.splitlines()[-1].startswith("NO ANSWER")  # however quiet
    assert "What would help: more patients" in answer.err
    assert "an ε above 1 (end-to-end)" in answer.err
    if "-q" in said:
        assert answer.out == ""
        assert len(answer.err.splitlines()) == 1
    elif "--json" in said:
        assert json.loads(answer.out)["answer"] is False
    else:
        assert answer.out.startswith("NO ANSWER")  # the verdict comes first
    released = sorted(path.name for path in (tmp_path / "run/release").iterdir())
    papers = ["README.md", "croissant.json", "datasheet.md", "deployment.json", "privacy.json", "report.html"]
    assert released == [*papers, "schema.toml"]
    assert "There is no table in this folder" in (tmp_path / "run/release/README.md").read_text(encoding="utf-8")
    assert not any(canary in answer.out + answer.err for canary in CANARIES)


def test_what_comes_after_a_run_without_an_answer_copes_with_its_folder(call: Call, tmp_path: Path) -> None:
    write(patients(400).assign(died=lambda f: f["died"].sample(frac=1, random_state=1).to_numpy()), tmp_path)
    asked = [*TARGET, "--ipc", "5", "--epsilon", "0.1", "--threads", "1", "--out", "run"]
    assert call("condense", "cohort.csv", *asked).code == 3
    assert call("privacy", "verify", "run").code == 0
    for command in ("evaluate", "attack"):
        answer = call(command, "run", "--data", "cohort.csv", "--threads", "1")
        assert answer.code == 0, answer.err
        assert "NO ANSWER" in answer.out
    assert call("condense", "cohort.csv", *asked, "--force").code == 3  # the account goes on
    (tmp_path / "run/release/condensed.csv").write_text("age\n88\n")
    answer = call("privacy", "verify", "run")
    assert answer.code == 2
    assert "condensed.csv is not part of the release" in answer.out


# -- several classes --------------------------------------------------------------------------------------------------

GRADES = ("mild", "moderate", "severe")
GRADED = ["--target", "grade", "--schema", "grades.toml"]


def graded(rows: int = 1200, seed: int = 0) -> pd.DataFrame:
    """Patients whose age and stage say how ill they are."""
    frame = patients(rows, seed)[["age", "crp", "stage"]]
    rng = np.random.default_rng([seed, 1])
    risk = (frame["age"] - 55) / 12 + frame["stage"].map({"I": -1.5, "II": 0.0, "III": 1.5}) + rng.normal(0, 0.7, rows)
    return frame.assign(grade=np.array(GRADES)[np.digitize(risk, [-1.0, 1.0])])


def write_graded(frame: pd.DataFrame, classes: Sequence[str] = GRADES) -> None:
    features = tuple(column for column in SCHEMA.columns if column.name in frame)
    schema = Schema((*features, Column("grade", "categorical", categories=tuple(classes))))
    frame.to_csv("grades.csv", index=False)
    Path("grades.toml").write_text(schema.to_toml(), encoding="utf-8")


def test_several_classes_go_from_a_csv_to_a_release(call: Call, tmp_path: Path) -> None:
    write_graded(graded())
    answer = call("condense", "grades.csv", *GRADED, *PRIVATE, "--out", "run")
    assert answer.code == 0, answer.err
    for part in ("AUROC, macro", "Balanced accuracy", "F1, macro", "Private reference model itself", "end-to-end"):
        assert part in " ".join(answer.out.split())
    assert bare(answer.out + answer.err) == []
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    risks = [f"distcondense_risk_{grade}" for grade in GRADES]
    assert list(made) == ["age", "crp", "stage", "grade", *risks, "distcondense_weight"]
    assert dict(made["grade"].value_counts()) == dict.fromkeys(GRADES, 10)  # IPC of each class
    np.testing.assert_allclose(made[risks].sum(axis=1), 1.0, atol=1e-9)
    scores = json.loads((tmp_path / "run/internal/run.json").read_text())["scores"]
    found = {(score["trained_on"], score["measure"]): score for score in scores}
    assert found["reference", "macro_auroc"]["value"] > 0.75
    assert all(score["low"] <= score["value"] <= score["high"] for score in scores)
    assert call("privacy", "verify", "run").code == 0


@pytest.mark.parametrize("count", [1, 2, 21])
def test_too_few_or_too_many_classes_are_refused_before_the_table_is_opened(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    write_graded(graded(20), [f"class {k}" for k in range(count)])
    monkeypatch.setattr(tables, "read_table", lambda *_, **__: pytest.fail("the table was opened"))
    answer = call("condense", "grades.csv", *GRADED, *PRIVATE, "--out", "run")
    refused(answer, "outcome 'grade': must have 3 to 20 classes", f"Found {count} declared")
    four_parts(answer)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "says"),
    [(np.nan, "missing values in 2 rows"), (TEXT, "2 rows, first at row 8")],
    ids=["missing outcomes", "a class the schema does not have"],
)
def test_a_spoiled_class_is_refused_with_counts_and_no_value(call: Call, tmp_path: Path, value: Any, says: str) -> None:
    frame = graded(200)
    frame.loc[[7, 11], "grade"] = value
    write_graded(frame)
    answer = call("condense", "grades.csv", *GRADED, *PRIVATE, "--out", "run")
    refused(answer, "column 'grade'", says)
    four_parts(answer)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("severe", [0, 1], ids=["a class of nobody", "a class of one patient"])
def test_a_class_of_nobody_or_of_one_patient_raises_nothing_that_would_tell(call: Call, severe: int) -> None:
    frame = graded(800)
    kept = np.flatnonzero(frame["grade"] == "severe")[:severe]
    write_graded(pd.concat([frame[frame["grade"] != "severe"], frame.iloc[kept]]))
    answer = call("condense", "grades.csv", *GRADED, *PRIVATE, "--out", "run", "--quiet")
    assert answer == Answer(0, "", "")


def test_published_refuses_several_classes_by_name(call: Call, tmp_path: Path) -> None:
    write_graded(graded(200))
    answer = call("condense", "grades.csv", *GRADED, "--method", "published", "--epsilon", "2.5", "--out", "run")
    refused(answer, "method published: takes", "Found a multiclass outcome", "private")
    assert not (tmp_path / "run").exists()


def test_classes_read_off_the_rows_are_refused_unless_a_draft_is_trusted(call: Call) -> None:
    write_graded(graded(600))
    how = ["--target", "grade", "--kind", "multiclass", *PRIVATE]
    refused(call("condense", "grades.csv", *how), "must be declared")
    answer = call("condense", "grades.csv", *how, "--trust-inferred-schema")
    assert answer.code == 0, answer.err
    assert any("(conditional" in line for line in answer.out.splitlines()[:2])


# -- audit, help ------------------------------------------------------------------------------------------------------


def test_the_audit_prints_bounds_beside_claims_and_exits_by_its_verdict(call: Call, tmp_path: Path) -> None:
    answer = call("attack", "audit", "--runs", "20", "--canaries", "20", "--out", "audit.json")
    assert answer.code == 0, answer.err
    assert "end-to-end" in answer.out
    assert "PASSED" in answer.out
    assert json.loads((tmp_path / "audit.json").read_text())["findings"]
    refused(call("attack", "audit", "--method", "magic"), "method")


def test_every_command_explains_itself(call: Call) -> None:
    for command in (["privacy"], ["privacy", "verify"], ["attack"], ["attack", "audit"]):
        answer = call(*command, "--help")
        assert answer.code == 0
        assert "Usage" in answer.out
