"""What was once met with a traceback, a patient's value, a half-written folder or a wrong yes: each as it was found.

Kinds of case are in tests/fuzz/test_fuzz.py and `make exhaustive`; kills and full disks in tests/runs/test_kills.py;
how a CSV is written in tests/data/test_dialect.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import distcondense as dc
from distcondense.data import tables
from distcondense.data.features import check_features
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SettingsError, UserError
from distcondense.privacy.events import Event
from tests.fuzz.disks import COMMANDS, GRID, stopped
from tests.fuzz.driver import Room
from tests.fuzz.locks import locks_hold
from tests.fuzz.quick import quickly
from tests.fuzz.statements import releases
from tests.shell import TARGET, Answer, Call, refused, write
from tests.tiny import BINARY, SCHEMA, patients

HEADER = "age,crp,ferritin,sex,stage,months,relapse,died\n"
NAN = float("nan")


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    write(patients(60), tmp_path)
    return tmp_path


def condensed(call: Call, *more: Any, table: str = "cohort.csv") -> Any:
    return call("condense", table, *TARGET, "--threads", "1", *more)


# -- refused before anybody is asked ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (("--ipc", "9223372036854775807"), "ipc: must be between"),
        (("--person-id", ""), "person_id: must be a name"),
        (("--method", "published", "--sigma-base", "1e300"), "sigma_base"),
        (("--method", "published", "--sigma-base", "1e-300"), "sigma_base"),
        (("--method", "published", "--epsilon", "2.5", "--clip", "1e300"), "clip"),
        (("--method", "published", "--epsilon", "2.5", "--clip", "1e-300"), "clip"),
        (("--method", "published", "--epsilon", "2.5", "--delta", "0.5"), "delta: must be at most 0.01"),
        (("--epsilon", "nan"), "epsilon"),
        (("--epsilon", "1e400"), "epsilon"),
        (("--threads", "0"), "threads: must be at least 1"),
        (("--method", "clustmix", "--epsilon", "1000"), "epsilon: must be above 0 and at most 100"),
        (("--target", "dyed"), "declared is 'died'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_leaves_no_folder(
    call: Call, ward: Path, how: tuple[str, ...], says: str
) -> None:
    refused(condensed(call, *how), says)
    assert not (ward / "run").exists()


@pytest.mark.parametrize("number", [np.float32(1.0), np.float16(1.0), np.int64(1), Decimal("1")], ids=repr)
def test_a_number_of_any_library_is_a_number_or_refused_before_the_ledger(tmp_path: Path, number: Any) -> None:
    cohort = dc.Cohort.from_frame(patients(60), schema=SCHEMA, **BINARY)
    with quickly():
        if isinstance(number, Decimal):
            with pytest.raises(SettingsError, match="epsilon: must be a number"):
                dc.condense(cohort, epsilon=number, ipc=2, threads=1, out=tmp_path / "run")
            assert not (tmp_path / "run").exists()
        else:
            made = dc.condense(cohort, epsilon=number, ipc=2, threads=1, out=tmp_path / "run")
            assert type(made.privacy.epsilon) is float


@pytest.mark.parametrize("value", ["1e400", "-1e400", "nan", "inf", "9" * 4400, "1e20", "[" * 100 + "]" * 100])
def test_study_and_schema_files_with_numbers_beyond_all_are_refused(call: Call, ward: Path, value: str) -> None:
    (ward / "s.toml").write_text(GRID.replace("ipc = 2", f"ipc = {value}"))
    refused(call("study", "s.toml", "--dry-run"), "s.toml")
    (ward / "schema.toml").write_text(SCHEMA.to_toml().replace("high = 500.0", f"high = {value}"))
    refused(call("schema", "check", "schema.toml"), "schema")


# -- files and folders that may not be read or written ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("condense", "locked/c.csv", *TARGET), "table c.csv: must be a readable file. Found no permission"),
        (("condense", "secret.csv", *TARGET), "table secret.csv: must be a readable file. Found no permission"),
        (("condense", "locked", *TARGET), "no permission"),
        (("condense", "cohort.csv", *TARGET, "--out", "locked/run"), "no permission"),
        (("condense", "cohort.csv", *TARGET, "--schema", "secret.csv"), "no permission"),
        (("condense", "cohort.csv", *TARGET, "--account", "locked/account"), "account"),
        (("schema", "infer", "cohort.csv", "-o", "locked/s.toml"), "no permission"),
        (("schema", "check", "secret.csv"), "no permission"),
        (("init", "cohort.csv", "--yes", "--no-plan", "-o", "locked/s.toml"), "no permission"),
        (("privacy", "verify", "locked"), "no permission"),
        (("privacy", "verify", "secret.csv"), "no permission"),
        (("privacy", "keygen", "locked/keys"), "no permission"),
        (("study", "secret.csv"), "no permission"),
        (("evaluate", "locked", "--data", "cohort.csv"), "locked"),
        (("attack", "audit", "--out", "locked/a.json"), "no permission"),
    ],
)
def test_what_may_not_be_read_or_written_is_said(call: Call, ward: Path, command: tuple[str, ...], says: str) -> None:
    (ward / "locked").mkdir()
    shutil.copy(ward / "cohort.csv", ward / "locked/c.csv")
    shutil.copy(ward / "cohort.csv", ward / "secret.csv")
    for path in (ward / "locked", ward / "secret.csv"):
        path.chmod(0)
    try:
        with locks_hold():
            refused(call(*command), says)
    finally:
        (ward / "locked").chmod(0o700)


@pytest.mark.parametrize("target", [".", "pipe", "/dev/null", "link"])
def test_only_regular_files_are_written_or_replaced(call: Call, ward: Path, target: str) -> None:
    os.mkfifo(ward / "pipe")
    (ward / "link").symlink_to("schema.toml")
    refused(call("schema", "infer", "cohort.csv", "-o", target, "--force"), "must be a new or regular file")
    refused(call("init", "cohort.csv", "--yes", "--no-plan", "-o", target, "--force"), "must be a new or regular file")


# -- tables -----------------------------------------------------------------------------------------------------------

CELLS: dict[str, tuple[str, dict[str, Any], str]] = {  # a CSV, how it is read, what is said
    "1e400": (f"{HEADER}1e400,1,1,f,I,1,0,0\n50,1,1,m,I,1,0,1\n", {}, "column 'age': must be finite. Found 1 row"),
    "no name": ("," + HEADER + "1,50,1,1,f,I,1,0,0\n", {"schema": None}, "column 1: must have a name"),
    "no outcome": (HEADER.replace("died", "dead") + "50,1,1,f,I,1,0,0\n", {}, "column 'died': must be in the table"),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_message_says_the_column_and_what_is_wrong_with_it(tmp_path: Path, name: str) -> None:
    content, how, says = CELLS[name]
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(UserError) as refusal:
        dc.Cohort.from_file(tmp_path / "t.csv", **{"schema": SCHEMA, **BINARY, **how})
    assert says in str(refusal.value)


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_a_draft_of_another_separator_lists_no_row(call: Call, tmp_path: Path, sign: str) -> None:
    patients(30).assign(name="CANARY-NAME").to_csv(tmp_path / "t.csv", sep=sign, index=False)
    answer = call("schema", "infer", "t.csv")
    assert answer.code == 0
    (tmp_path / "s.toml").write_text(answer.out)
    assert {"age", "crp", "died"} <= set(Schema.from_toml(tmp_path / "s.toml").names)


@pytest.mark.parametrize("rows", ["d-0\n", "d-0\nd-1\n"])
def test_a_first_line_longer_than_any_other_is_no_header_of_a_draft(call: Call, tmp_path: Path, rows: str) -> None:
    (tmp_path / "t.csv").write_text(f"NAME,CANARY-NAME,id-0\n{rows}")
    refused(call("schema", "infer", "t.csv"), "its first line must name the columns. Found 3 fields in it and fewer")
    (tmp_path / "t.csv").write_text("age,died,note\n50,1,\n51,0,\n")  # a column with nothing in it
    assert call("schema", "infer", "t.csv").code == 0


def test_a_folder_is_named_where_a_file_is_wanted(call: Call, ward: Path) -> None:
    (ward / "inner").mkdir()
    refused(call("schema", "infer", "inner"), "table inner: must be a file. Found a folder")
    refused(call("schema", "infer", "."), "table .: must be a file. Found a folder")
    refused(call("schema", "check", "inner"), "a folder")
    refused(call("study", "inner"), "a folder")


@pytest.mark.parametrize("person", [[[1]] * 12, [{"a": 1}] * 12], ids=["lists", "dicts"])
def test_nested_identifiers_in_parquet_are_refused(tmp_path: Path, person: list[Any]) -> None:
    kept = pa.Table.from_pandas(patients(12)).append_column("who", pa.array(person))
    pq.write_table(kept, tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"'who'.*must hold texts or numbers"):
        dc.Cohort.from_file(tmp_path / "t.parquet", schema=SCHEMA, person_id="who", **BINARY)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.assign(crp=Decimal("sNaN")),
        lambda t: t.assign(stage="\ud800"),
        lambda t: t.assign(crp=1j),
        lambda t: t.assign(crp=t["crp"].astype(complex)),
        lambda t: t.assign(crp=True),
        lambda t: t.assign(age=t["died"].astype(bool)),
        lambda t: t.assign(crp=pd.Series([[1]] * len(t), dtype=pd.ArrowDtype(pa.list_(pa.int64())))),
        lambda t: t.assign(stage=pd.Series([["I"]] * len(t), dtype=pd.ArrowDtype(pa.list_(pa.string())))),
        lambda t: t.assign(crp=pd.to_timedelta(t["age"], unit="D")),
    ],
)
def test_a_column_of_no_numbers_and_no_labels_is_refused(spoil: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    with pytest.raises(CohortError, match="must"):
        dc.Cohort.from_frame(spoil(patients(12)), schema=SCHEMA, **BINARY)


def test_a_broken_feather_file_does_not_end_the_process(tmp_path: Path) -> None:
    """Arrow takes such a file's bytes as they are: an offset that leads out of it was a segmentation fault."""
    table = pa.table({"stage": pa.array(["I", "II", "III"] * 4), "died": [0, 1] * 6})
    offsets = np.array([0, 2**30, *range(2, 13)], np.int32)
    texts = pa.Array.from_buffers(pa.string(), 12, [None, pa.py_buffer(offsets), table["stage"].chunk(0).buffers()[2]])
    feather.write_feather(table.set_column(0, "stage", texts), tmp_path / "t.feather", compression="uncompressed")
    with pytest.raises(CohortError, match="must be readable as feather"):
        dc.Cohort.from_file(tmp_path / "t.feather", target="died")


def test_an_outcome_of_hundreds_of_digits_beside_a_number_is_refused_or_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"age,died\n50,{'9' * 400}\n51,1.5\n52,0\n")
    with pytest.raises(UserError, match="must"):
        dc.Cohort.from_file(tmp_path / "t.csv", target="died")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("t.csv", dc.Cohort.from_file),
        ("t.csv.gz", dc.Cohort.from_file),
        ("wide.csv", dc.Cohort.from_file),
        ("t.csv", lambda path, **how: dc.condense(dc.LargeTable.from_path(path.parent, **how), ipc=2, threads=1)),
    ],
    ids=["plain", "packed", "UTF-16", "a folder's"],
)
def test_a_nul_inside_a_cell_is_refused_and_does_not_end_it(
    tmp_path: Path, name: str, read: Callable[..., Any]
) -> None:
    """pandas reads I and a NUL as I: another stage than the file's, in silence."""
    content = patients(40).to_csv(index=False).replace(",II,", ",I\0,", 1)
    line = content[: content.index("\0")].count("\n") + 1
    data = content.encode("utf-16" if name == "wide.csv" else "utf-8")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(CohortError, match=f"{name}.*must be text. Found a NUL character in line {line}"):
        read(tmp_path / name, schema=SCHEMA, **BINARY)


def test_true_and_false_are_no_numbers_in_a_csv_either(tmp_path: Path) -> None:
    patients(12).assign(crp=True).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(CohortError, match="'crp': must be numbers"):
        dc.Cohort.from_file(tmp_path / "t.csv", schema=SCHEMA, **BINARY)


@pytest.mark.parametrize("scheme", ["s3", "gs", "http", "abfs"])
def test_a_store_that_does_not_answer_is_refused_when_patience_ends(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    from threading import Event

    from pyarrow import fs

    never = Event()

    class Silent(fs.FileSystem):  # type: ignore[misc]
        @staticmethod
        def from_uri(uri: str) -> Any:
            never.wait()

    monkeypatch.setattr(fs, "FileSystem", Silent)
    monkeypatch.setattr(tables, "PATIENCE", 0.01)
    with pytest.raises(CohortError, match=r"no answer in 0.01 seconds.*or copy the table"):
        dc.Cohort.from_file(f"{scheme}://nowhere/cohort.csv", schema=SCHEMA, **BINARY)
    never.set()


IMPATIENT = """
import sys
from distcondense import cli
from distcondense.data import tables
tables.PATIENCE = 0.5
cli.main()
"""


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://me:secret@ward/c.csv?scheme=http&region=here&endpoint_override={}", "no answer in 0.5 seconds"),
        ("gs://anonymous@ward/c.csv?scheme=http&endpoint_override={}", "no answer in 0.5 seconds"),
        ("http://{}/c.csv", "file://, s3://"),
        ("https://{}/c.csv", "file://, s3://"),
    ],
    ids=["s3", "gs", "http", "https"],
)
def test_a_server_that_takes_a_call_and_never_answers_is_left_alone(tmp_path: Path, uri: str, says: str) -> None:
    """In a process of its own, which must end, too: nothing can interrupt whoever waits inside a store's library."""
    write(patients(12), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        command = [sys.executable, "-c", IMPATIENT, "condense", uri.format(address), *TARGET, "--out", "run"]
        environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    refused(Answer(done.returncode, done.stdout, done.stderr), says)
    assert "secret" not in done.stderr
    assert not (tmp_path / "run").exists()


# -- run folders ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A private and a published run that were killed on their way."""
    import random

    found = {}
    for name, at in (("private", 40), ("published", 24)):
        folder = tmp_path_factory.mktemp(name)
        write(patients(60), folder)
        with quickly():
            assert stopped(Room(folder, random.Random(0)), COMMANDS[name], at, None)
        found[name] = folder
    return found


DAMAGE: dict[str, tuple[str, str, Any]] = {  # how the run was made, its file, what stands there instead
    "holdout damaged": ("private", "holdout.json", b"[]"),
    "holdout empty": ("private", "holdout.json", b""),
    "holdout deleted": ("private", "holdout.json", None),
    "holdout a folder": ("private", "holdout.json", "folder"),
    "ledger a folder": ("private", "ledger.jsonl", "folder"),
    "ledger of another shape": ("private", "ledger.jsonl", b'["x"]\n'),
    "owner a list": ("private", "owner.json", b"[]"),
    "owner a folder": ("private", "owner.json", "folder"),
    "owner a loop": ("private", "owner.json", "loop"),
    "steps of another shape": ("published", "steps.jsonl", b'["x"]\n{"a": 1}\n'),
    "steps a folder": ("published", "steps.jsonl", "folder"),
    "steps damaged": ("published", "steps.jsonl", b"\xff\n"),
    "checkpoint empty": ("published", "checkpoint.npz", b""),
    "checkpoint no archive": ("published", "checkpoint.npz", b"x" * 100),
    "checkpoint a folder": ("published", "checkpoint.npz", "folder"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_run_folder_with_a_damaged_file_is_refused_in_words(
    call: Call, tmp_path: Path, halves: dict[str, Path], name: str
) -> None:
    method, file, instead = DAMAGE[name]
    shutil.copytree(halves[method], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run/internal" / file
    assert path.exists(), sorted(one.name for one in path.parent.iterdir())
    path.unlink()
    if instead == "folder":
        path.mkdir()
    elif instead == "loop":
        path.symlink_to(path.name)
    elif instead is not None:
        path.write_bytes(instead)
    with quickly():
        refused(call(*COMMANDS[method], "--resume"))


def test_answers_that_are_lost_are_told(call: Call, tmp_path: Path, halves: dict[str, Path]) -> None:
    """One is lost with any kill at the wrong moment; many are a damaged folder, and the run may not find its way."""
    shutil.copytree(halves["private"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "run/internal/ledger.answers").unlink()
    with quickly():
        answer = call(*[word for word in COMMANDS["private"] if word != "--quiet"], "--resume")
    if answer.code == 2:
        refused(answer, "must have its answers beside it", "start again with --force")
    else:
        assert answer.code == 3
        assert "noisy answers are lost: they stay paid for" in answer.err


RECORDS: dict[str, Callable[[dict[str, Any]], Any]] = {  # what somebody made of run.json
    "another split": lambda record: record["splitting"].update(seed=7),
    "no student": lambda record: record.pop("student"),
    "no fractions": lambda record: record["splitting"].update(fractions=None),
    "another column left out": lambda record: record["data"]["how"].update(ignore=["months"]),
    "no reader": lambda record: record["data"].pop("how"),
    "no digest and no split": lambda record: (record.pop("digest"), record.pop("splitting")),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_was_changed_since_is_not_relied_on(call: Call, ward: Path, name: str) -> None:
    with quickly():
        assert call(*COMMANDS["uniform"]).code == 0
    path = ward / "run/internal/run.json"
    record = json.loads(path.read_text())
    RECORDS[name](record)
    path.write_text(json.dumps(record))
    refused(call("evaluate", "run", "--data", "cohort.csv", "--parts", "fidelity"), "run.json must be as the run wrote")


@pytest.mark.parametrize("file", ["condensed.parquet", "schema.toml"])
def test_a_release_that_was_changed_since_is_not_measured(call: Call, ward: Path, file: str) -> None:
    with quickly():
        assert call(*COMMANDS["uniform"]).code == 0
    with (ward / "run/release" / file).open("ab") as out:
        out.write(b"\n")
    says = f"release/ must be as the run wrote it. Found {file} is not the file"
    refused(call("evaluate", "run", "--data", "cohort.csv", "--parts", "fidelity"), says)


ENTRIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {  # what somebody made of an account's lines
    "no delta": lambda lines: lines[0].update(delta=None),
    "asked a billion times": lambda lines: lines[1]["events"][0].update(times=10**9),
    "a run that is a table": lambda lines: lines[1]["events"][0].update(run={}),
    "a price that is true": lambda lines: lines[1]["events"][0].update(cost=True),
    "a pick beyond all memory": lambda lines: lines[2]["events"][0].update(cost=1e6),
    "picks beyond all memory": lambda lines: lines[2]["events"][0].update(picks=10**9),
}


def forged(lines: list[dict[str, Any]]) -> bytes:
    """An account's file whose lines name each other's digests, whatever they say."""
    written = list[bytes]()
    for line in lines:
        link = {"previous": hashlib.sha256(written[-1]).hexdigest()} if written else {}
        written.append(json.dumps({**line, **link}).encode())
    return b"\n".join(written) + b"\n"


@pytest.fixture
def account(tmp_path: Path) -> list[dict[str, Any]]:
    kept = dc.Odometer.create(tmp_path / "account.jsonl")
    kept.charge("first", [Event("gaussian", "sums", ("age",), 2, 0.5, unit="person")])
    kept.charge("second", [Event("choice", "choice", (), 2, 0.1, 2, unit="person")])
    return [json.loads(line) for line in kept.path.read_text().splitlines()]


@pytest.mark.parametrize("name", ENTRIES)
def test_an_account_that_nobody_wrote_is_refused_in_words(
    call: Call, tmp_path: Path, account: list[dict[str, Any]], name: str
) -> None:
    ENTRIES[name](account)
    (tmp_path / "account.jsonl").write_bytes(forged(account))
    refused(call("privacy", "ledger", "account.jsonl"), "must be as it was written, line by line")


@pytest.mark.parametrize(("line", "change"), [(1, {"cost": 2.0**53}), (2, {"times": 1_000_000})])
def test_prices_beyond_what_can_be_added_up_are_unbounded(
    call: Call, tmp_path: Path, account: list[dict[str, Any]], line: int, change: dict[str, Any]
) -> None:
    account[line]["events"][0].update(change)
    (tmp_path / "account.jsonl").write_bytes(forged(account))
    answer = call("privacy", "ledger", "account.jsonl")
    assert answer.code == 0
    assert "together: 2 runs, ε = unbounded" in answer.out


# -- statements -------------------------------------------------------------------------------------------------------

STATEMENTS: dict[str, Callable[[bytes], bytes]] = {
    "deep": lambda text: b"[" * 100_000 + b"]" * 100_000,
    "deep inside": lambda text: text.replace(b'"answer": ""', b'"answer": ' + b"[" * 500 + b"]" * 500),
    "1e400": lambda text: text.replace(b'"delta": 1e-05', b'"delta": 1e400'),
    "infinite": lambda text: text.replace(b'"delta": 1e-05', b'"delta": Infinity'),
    "not a number": lambda text: text.replace(b'"delta": 1e-05', b'"delta": NaN'),
    "5,000 digits": lambda text: text.replace(b'"delta": 1e-05', b'"delta": ' + b"9" * 5000),
    "a file with a long name": lambda text: text.replace(b'"condensed.csv": ', b'"' + b"c" * 3000 + b'": '),
    "a list": lambda text: b"[]",
    "empty": lambda text: b"",
    "bytes": lambda text: b"\xff\xfe",
    "an endless count": lambda text: text.replace(b'"count": ', b'"count": 99999999'),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_that_is_none_is_refused_in_words(call: Call, tmp_path: Path, name: str) -> None:
    for file, content in releases()["published"].items():
        (tmp_path / file).write_bytes(content)
    before = (tmp_path / "privacy.json").read_bytes()
    spoiled = STATEMENTS[name](before)
    assert spoiled != before
    (tmp_path / "privacy.json").write_bytes(spoiled)
    refused(call("privacy", "verify", tmp_path), "privacy.json")


# -- the API ----------------------------------------------------------------------------------------------------------

COHORT = dc.Cohort.from_frame(patients(40), schema=SCHEMA, **BINARY)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: dc.condense(COHORT, held_out=3),
        lambda: dc.condense(COHORT, known=[3]),
        lambda: dc.condense(COHORT, memory="2GB"),
        lambda: dc.condense(COHORT, scratch=3),
        lambda: dc.condense(COHORT, resume=np.array([1, 2])),
        lambda: dc.condense(COHORT, progress=3),
        lambda: dc.condense(COHORT, threads=2**70),
        lambda: dc.condense(COHORT, epsilon=10**400),
        lambda: dc.condense(COHORT, method="published", epsilon=2.5, strata=2**31),
        lambda: dc.evaluate(3, 3),
        lambda: dc.evaluate_run(3, COHORT),
        lambda: dc.evaluate_run("run", 3),
        lambda: dc.evaluate_run("run", COHORT, threads="all"),
        lambda: dc.evaluate_run("run", COHORT, seed=-1),
        lambda: dc.evaluate_run("run", COHORT, parts="utility"),
        lambda: dc.evaluate_run("run", COHORT, external={"north": 3}),
        lambda: dc.evaluate_run("run", COHORT, shadows=-1),
        lambda: dc.Cluster(num_cpus="2"),
        lambda: dc.Cluster(actors=1.5),
        lambda: dc.Cluster(address=3),
        lambda: dc.LargeTable.from_path(3, schema=SCHEMA, **BINARY),
        lambda: dc.LargeTable.from_path("x", schema=SCHEMA, target="died", ignore="age"),
        lambda: dc.design(3),
        lambda: dc.Odometer.create("x", delta=None),
        lambda: dc.Odometer.create("x", cap=10**400),
        lambda: dc.Odometer.create("x", about="\ud800"),
        lambda: dc.PrivateModel(epsilon=10**400).fit(COHORT),
        lambda: dc.PrivateModel(categories_checked=None).fit(COHORT),
        lambda: dc.PrivateModel(bounds=3).fit(patients(12)[["age"]], patients(12)["crp"]),
        lambda: dc.PrivateModel(bounds=("a", "b")).fit(patients(12)[["age"]], patients(12)["crp"]),
        lambda: dc.PrivateModel(classes=3).fit(patients(12)[["age"]], patients(12)["died"]),
        lambda: dc.PrivateModel().predict(patients(12)),
        lambda: Schema(3),
        lambda: Schema((3,)),
        lambda: Schema.infer(3),
        lambda: Schema((Column("a", "continuous", low=0, high=1, spacing=patients(3)),)),  # type: ignore[arg-type]
        lambda: Schema((Column("a", "continuous", low=0, high=1, missing=patients(3)),)),  # type: ignore[arg-type]
        lambda: check_features(patients(3).assign(crp=Decimal("sNaN")), SCHEMA),
        lambda: Schema.infer(patients(3).assign(crp=Decimal("sNaN"))),
        lambda: dc.LargeTable.from_path("\0", schema=SCHEMA, **BINARY),
        lambda: dc.Cohort.from_frame(pa.array([1, 2]), schema=SCHEMA, **BINARY),
        lambda: dc.Cohort.from_frame(pa.Table, schema=SCHEMA, **BINARY),
        lambda: dc.condense(COHORT, seed=10**5000),
        lambda: dc.condense(COHORT, method="clustmix", ridge=1e300),
        lambda: dc.condense(COHORT, method="kde-knn", sigma=5e-324),
        lambda: dc.evaluate_run("run", COHORT, log=3),
        lambda: Schema(SCHEMA.columns, origin=patients(3)),  # type: ignore[arg-type]
        lambda: Schema(SCHEMA.columns, rules=(3,)),  # type: ignore[arg-type]
        lambda: Schema(SCHEMA.columns, notes=3),  # type: ignore[arg-type]
    ],
)
def test_a_call_with_another_type_or_range_is_refused_in_words(wrong: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match="must"):
        wrong()


@pytest.mark.parametrize(
    "thing",
    [patients(3), np.arange(3), [[1]], {"a": 1}, object(), pd.NaT, "\ud800", Decimal("sNaN"), 10**5000],
    ids=["frame", "array", "list", "dict", "object", "no time", "half a pair", "signalling", "digits"],
)
@pytest.mark.parametrize(
    "legal",
    [
        {"kind": "continuous", "low": 0, "high": 1},
        {"kind": "categorical", "categories": ("x",)},
        {"kind": "date", "low": "2020-01-01", "high": "2021-01-01"},
        {"kind": "ignore"},
    ],
    ids=lambda legal: str(legal["kind"]),
)
def test_whatever_a_column_is_described_by_is_refused_in_words(legal: dict[str, Any], thing: Any) -> None:
    for entry in fields(Column):
        with pytest.raises(UserError, match=r"must|says nothing") as refusal:
            Schema((Column(**{"name": "a", **legal, entry.name: thing}), *SCHEMA.columns))
        assert "ferritin" not in str(refusal.value)  # as a table prints itself


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("computed = 1.5", "computed must be text"),
        ("missing_values = [[1]]", "missing_values must be texts and numbers"),
        ('kind = "date"\nlow = 0\nhigh = 1e15', "high must be a date between the years 1 and 9999"),
        ('kind = "date"\nlow = 0\nhigh = 9\nformat = "%Y %Y"', "format must write dates that can be read again"),
        ('kind = "date"\nlow = 0\nhigh = 9\nformat = "%"', "format must write dates that can be read again"),
    ],
)
def test_a_line_of_another_type_in_a_schema_file_is_refused_in_words(
    call: Call, tmp_path: Path, line: str, says: str
) -> None:
    kind = "" if "kind" in line else 'kind = "continuous"\n'
    (tmp_path / "schema.toml").write_text(f"[columns.seen]\n{kind}{line}\n")
    refused(call("schema", "check", "schema.toml"), says)


def test_a_date_with_a_time_zone_bounds_a_column(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[columns.seen]\nkind = "date"\nlow = "2020-01-01T01:00:00+02:00"\nhigh = 2021-01-01T00:00:00Z\n'
    )
    assert Schema.from_toml(tmp_path / "s.toml")["seen"].to_dict()["low"] == "2019-12-31"


@pytest.mark.parametrize("given", [patients(3), [patients(3)]], ids=["a table", "a list of one"])
def test_a_table_given_as_a_reference_is_refused_and_not_compared(given: Any) -> None:
    with pytest.raises(SettingsError, match="reference: "):
        dc.condense(COHORT, reference=given)


def test_a_setting_that_nobody_knows_is_told_and_never_shown() -> None:
    with pytest.raises(SettingsError, match="takes only settings of its own") as refusal:
        dc.condense(COHORT, mechanism=patients(3))
    assert "ferritin" not in str(refusal.value)


def test_a_parquet_part_with_spoiled_metadata_or_texts_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    spoiled = pa.Table.from_pandas(patients(40), preserve_index=False).replace_schema_metadata({"pandas": b"\xee{"})
    pq.write_table(spoiled, tmp_path / "table/a.parquet")
    table = dc.LargeTable.from_path(tmp_path / "table", schema=SCHEMA, **BINARY)
    with quickly():
        assert dc.condense(table, ipc=2, threads=1).privacy.guarantee == "end-to-end"
    texts = pa.Array.from_buffers(
        pa.string(), 40, [None, pa.py_buffer(np.arange(41, dtype=np.int32)), pa.py_buffer(b"\xee" * 40)]
    )
    pq.write_table(spoiled.set_column(4, "stage", texts), tmp_path / "table/a.parquet")
    with pytest.raises(CohortError, match=r"a\.parquet"):
        dc.condense(dc.LargeTable.from_path(tmp_path / "table", schema=SCHEMA, **BINARY), ipc=2, threads=1)


def test_a_folder_of_files_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "a.csv").write_text(HEADER)
    with pytest.raises(CohortError, match="at least one row"):
        dc.condense(dc.LargeTable.from_path(tmp_path / "table", schema=SCHEMA, **BINARY), ipc=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
