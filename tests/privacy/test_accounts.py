"""What reads a file is charged to that file's account, however it is named; whose rows are counted."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import stat
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import distcondense as dc
from distcondense.data.draft import draft
from distcondense.errors import DistcondenseWarning, RunFolderError, SettingsError
from distcondense.privacy import accounts
from distcondense.privacy.accountant import replay
from distcondense.privacy.accounts import STATE, account_of_files, state_folder
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import ChargedRun
from distcondense.privacy.verify import verify
from distcondense.study.design import Study
from distcondense.study.run import LocalTasks, run_study
from tests import hospital
from tests.conftest import SMALL_TABLE, small_frame
from tests.shell import Call, refused

pytestmark = pytest.mark.usefixtures("quick_placement")
HOW: dict[str, Any] = {"ipc": 5, "epsilon": 1.0, "threads": 1, "holdout": 0.0}
STUDY = """
[study]
name = "s"
seeds = [0, 1]
ipc = [5]

[[data]]
name = "ward"
path = "ward.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "event"]

[[method]]
method = "private"
epsilon = 1

[[method]]
name = "none"
method = "published"
settings = { noise = false, steps = 2, evaluate_every = 1 }
"""


def test_the_state_folder_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_folder() is None  # tests write into nobody's home
    monkeypatch.setenv(STATE, str(tmp_path / "here"))
    assert state_folder() == tmp_path / "here"
    monkeypatch.delenv(STATE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "distcondense"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    small_frame(600).to_csv(tmp_path / "ward.csv", index=False)
    return tmp_path / "ward.csv"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STATE, str(tmp_path / "file"))


def cohort(table: Any) -> dc.Cohort:
    return dc.Cohort.from_file(table, target="died", ignore=["months", "event"], schema=SMALL_TABLE)


def account_of(*files: Any) -> dc.Odometer:
    found = account_of_files(files)
    assert isinstance(found, dc.Odometer)
    return found


def charge(account: dc.Odometer, run: str, cost: float = 0.1) -> None:
    account.charge(run, (Event("gaussian", "sums", (), 4, cost),))


def runs(*files: Any) -> set[str]:
    return {one.run for one in account_of(*files).read().charges}


# -- which account a file has -----------------------------------------------------------------------------------------


def test_a_file_has_one_account_by_any_path_link_uri_move_or_copy(table: Path, tmp_path: Path, monkeypatch) -> None:
    charge(account_of(table), "first")
    os.symlink(table, tmp_path / "soft.csv")
    os.link(table, tmp_path / "hard.csv")
    shutil.copy(table, tmp_path / "copy.csv")
    (tmp_path / "with space").mkdir()
    os.symlink(tmp_path, tmp_path / "with space" / "back")
    monkeypatch.chdir(tmp_path)
    names = ("ward.csv", "./with space/back/ward.csv", "soft.csv", "hard.csv", "copy.csv")
    uris = [f"file://{tmp_path}/{quote(name)}" for name in names]
    for name in (*names, *uris, f"file://localhost{table}"):
        assert runs(name) == {"first"}, name
    with open("copy.csv", "a") as file:  # changed in place: the same patients
        file.write("60,1.0,0,I,0,1,1\n")
    os.rename("copy.csv", "moved.csv")
    assert runs("moved.csv") == {"first"}
    shutil.copy("moved.csv", "edited.csv")
    Path("edited.csv").write_text(Path("edited.csv").read_text() + "61,1.0,0,I,0,1,1\n")
    assert runs("edited.csv") == set()  # what cannot be recognised


def test_what_a_file_held_before_is_known_again(table: Path, tmp_path: Path) -> None:
    charge(account_of(table), "first")
    shutil.copy(table, tmp_path / "backup.csv")
    small_frame(50, seed=1).to_csv(table, index=False)
    assert runs(table) == {"first"}
    assert runs(tmp_path / "backup.csv") == {"first"}


def test_two_accounts_of_one_file_become_one_and_both_runs_count(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    small_frame(50, seed=1).to_csv(other, index=False)
    mine, theirs = account_of(table), account_of(other)
    charge(mine, "first")
    theirs.set_cap(2.0)
    charge(theirs, "second")
    shutil.copy(table, other)  # now the other's path holds these patients
    assert runs(other) == runs(table) == {"first", "second"}
    assert account_of(table).read().cap == 2.0
    charge(theirs, "third")  # by a process that had it open before they were one
    charge(mine, "fourth")
    assert runs(table) == {"first", "second", "third", "fourth"}


def test_a_run_goes_on_when_its_account_has_become_another_ones(table: Path, tmp_path: Path) -> None:
    other, plan = tmp_path / "other.csv", (Event("gaussian", "sums", (), 4, 0.1),) * 3
    small_frame(50, seed=1).to_csv(other, index=False)
    ledger = Ledger(run="one", account=ChargedRun((account_of(other),), "one", plan))
    charge(account_of(table), "first")
    ledger.enter(plan[0])
    shutil.copy(table, other)
    assert runs(other) == {"first", "one"}
    ledger.enter(plan[1])
    assert account_of(table).read().heads["one"] == ledger.head


def test_a_folder_has_the_account_of_every_file_in_it(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    shutil.copy(table, folder / "part-0.csv")
    small_frame(50, seed=1).to_csv(folder / "part-1.csv", index=False)
    small_frame(50, seed=1).to_csv(tmp_path / "one.csv", index=False)
    charge(account_of(table), "first")
    charge(account_of(tmp_path / "one.csv"), "second")
    files = dc.LargeTable.from_path(folder, target="died", ignore=["months", "event"], schema=SMALL_TABLE).read_from
    assert runs(*files) == runs(table) == runs(tmp_path / "one.csv") == runs(folder) == {"first", "second"}


def test_what_lies_at_a_store_goes_by_its_address_without_credentials(table: Path) -> None:
    charge(account_of("s3://key:secret@bucket/t.parquet?region=x"), "first")
    assert runs("s3://bucket/t.parquet") == {"first"}
    assert runs("s3://bucket/u.parquet") == set()
    assert not any(b"secret" in path.read_bytes() for path in (table.parent / "state").rglob("*.jsonl"))


def test_a_file_is_read_once_for_its_digest_until_it_changes(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, real = [], accounts._digest
    monkeypatch.setattr(accounts, "_digest", lambda place, key: read.append(place) or real(place, key))
    for _ in range(3):
        account_of(table)
        account_of(f"file://{table}")
    assert len(read) == 1
    os.utime(table)
    account_of(table)
    assert len(read) == 2


def test_digest_and_key_stay_in_the_state_folder(table: Path, tmp_path: Path) -> None:
    said: list[str] = []
    dc.condense(cohort(table), out=tmp_path / "run", log=said.append, **HOW)
    index = tmp_path / "state" / "files.jsonl"
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    kept = {lines[0]["key"], *(line["digest"] for line in lines[1:])}
    assert hashlib.blake2b(table.read_bytes(), key=bytes.fromhex(lines[0]["key"]), digest_size=32).hexdigest() in kept
    elsewhere = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != index]
    elsewhere.append("".join(said).encode())
    assert not any(secret.encode() in text for secret in kept for text in elsewhere)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) & 0o077 == 0


def test_a_damaged_list_of_files_is_refused_and_not_begun_anew(table: Path, tmp_path: Path) -> None:
    account_of(table)
    os.utime(table)
    account_of(table)
    index = tmp_path / "state" / "files.jsonl"
    index.write_bytes(index.read_bytes().replace(b"ward.csv", b"duck.csv"))
    with pytest.raises(RunFolderError, match="line by line"):
        account_of(table)


def test_processes_that_begin_the_accounts_at_once_charge_one(table: Path, tmp_path: Path) -> None:
    def work(number: int) -> None:
        shutil.copy(table, tmp_path / f"copy-{number}.csv")
        charge(account_of(tmp_path / f"copy-{number}.csv"), f"run {number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    assert len(runs(table)) == 12


@pytest.mark.parametrize("seed", range(12))
def test_the_sum_is_never_below_what_was_asked_of_a_file_its_links_and_copies(table: Path, tmp_path: Path, seed: int):
    """Random runs on random files, killed, copied and resumed, against the joint replay of all that was answered."""
    rng, shelf = random.Random(seed), tmp_path / "shelf"
    shelf.mkdir()
    plan = tuple(Event("gaussian", "sums", (), 4, 0.05 + 0.01 * k) for k in range(4))
    named = dc.Odometer.create(tmp_path / "named.jsonl")
    same = Same()
    folders: list[tuple[Path, str, Path]] = []  # ledger, run, table
    answered: dict[str, list[tuple[Event, tuple[Any, ...]]]] = {}

    def files() -> list[Path]:
        return sorted(path for path in shelf.iterdir())

    def fresh(ending: str = "csv") -> Path:
        return shelf / f"{len(list(tmp_path.rglob('*')))}-{rng.random()}.{ending}"

    def said(path: Path) -> Any:
        uri = rng.random() < 0.3
        return f"file://{path}" if uri else path

    def ask(ledger_path: Path, run: str, path: Path) -> None:
        mine, here = [account_of(said(path)), *([named] if rng.random() < 0.3 else [])], same.node(path)
        try:
            ledger = Ledger(ledger_path, run=run, account=ChargedRun(tuple(mine), run, plan))
            for event in plan:
                if ledger.resume(event) is None:
                    ledger.enter(event)
                    answered.setdefault(run, []).append((event, here))
                    if rng.random() < 0.4:
                        return  # killed
        except RunFolderError as error:
            assert "a copy" in str(error)  # noqa: PT017

    for step in range(40):
        kind = rng.choice(["new", "link", "soft", "copy", "edit", "move", "run", "run", "again", "again", "backup"])
        path = rng.choice(files()) if files() else None
        if kind == "new" or path is None:
            fresh().write_text(f"a\n{step}\n")
        elif kind == "link":
            os.link(path, fresh())
        elif kind == "soft":
            os.symlink(path.resolve(), fresh())
        elif kind == "copy":
            shutil.copy(path, fresh())
        elif kind == "edit":
            path.write_text(f"a\n{step}\n")
        elif kind == "move" and not any(one.is_symlink() for one in files()):
            os.rename(path, fresh())
        elif kind == "run":
            folders.append((tmp_path / f"{step}.ledger", f"run {step}", path))
            ask(*folders[-1])
        elif folders:
            ledger, run, on = rng.choice(folders)
            if kind == "backup" and ledger.exists():
                shutil.copy(ledger, tmp_path / f"{step}.ledger")
                folders.append((tmp_path / f"{step}.ledger", run, on))
            elif on.exists():
                ask(ledger, run, on)
    for path in files():
        total, here = account_of(path).total(), same.root(same.node(path))
        asked = [e for events in answered.values() for e, node in events if same.root(node) == here]
        assert isinstance(total, float)
        assert total >= (replay(asked, 1e-5).epsilon if asked else 0.0) * (1 - 1e-12)


class Same:
    """Which files are the same patients, by hand: of one path, one inode or one content, whenever they were read."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}

    def root(self, node: Any) -> Any:
        while self.parent.setdefault(node, node) != node:
            node = self.parent[node]
        return node

    def node(self, path: Path) -> tuple[Any, ...]:
        real = path.resolve()
        facts = [("path", real), ("inode", real.stat().st_ino), ("content", real.read_bytes())]
        for fact in facts[1:]:
            self.parent[self.root(fact)] = self.root(facts[0])
        return facts[0]


# -- one door ---------------------------------------------------------------------------------------------------------


def test_python_and_the_command_line_are_charged_to_the_account_of_the_file(
    call: Call, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.toml").write_text(SMALL_TABLE.to_toml(), encoding="utf-8")
    how = ("--target", "died", "--ignore", "months", "--ignore", "event", "--schema", "schema.toml")
    how = (*how, "--holdout", "0", "--ipc", "5", "--threads", "1", "--epsilon", "1", "-q")
    assert call("condense", table, *how, "--out", "one").code == 0
    first = dc.condense(cohort(table), **HOW)
    second = dc.condense(cohort(f"file://{table}"), **HOW)
    model = dc.PrivateModel(epsilon=1.0).fit(cohort(table))
    account = account_of(table)
    assert [one.about for one in account.read().charges] == ["one", "", "", "a PrivateModel"]
    assert first.privacy.epsilon_with_earlier_runs < second.privacy.epsilon_with_earlier_runs
    both = [second.privacy.epsilon_with_earlier_runs, model.privacy_.epsilon_with_earlier_runs, account.total()]
    assert both == sorted(both)
    assert model.privacy_.account == second.privacy.account
    assert "the account that is kept of the table's file" in second.privacy.paragraph()
    assert verify(first.save(tmp_path / "saved")).holds
    said = json.loads((tmp_path / "saved/release/privacy.json").read_text())
    assert said["epsilon_with_earlier_runs"] == pytest.approx(account.total(), rel=0.02)  # the later ones too
    assert [about for _, _, about in account.read().reads] == []
    with pytest.warns(DistcondenseWarning, match="nobody was held out"):
        dc.evaluate(cohort(table), second)
    assert [about for _, _, about in account.read().reads] == ["evaluate"]
    assert account.total() == both[-1]  # nothing of it is released


def test_a_run_that_is_refused_before_it_reads_anybody_is_not_charged(call: Call, table: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SMALL_TABLE.to_toml(), encoding="utf-8")
    how = ("--target", "died", "--ignore", "months", "--ignore", "event", "--schema", "schema.toml", "--ipc", "5")
    for _ in range(2):
        answer = call("condense", table, *how, "--memory", "1kB", "--out", "run")
        assert answer.code == 2, answer.err
        assert "memory" in answer.err
    assert account_of(table).read().charges == ()


def test_a_table_in_memory_is_charged_to_the_account_that_is_named_and_the_statement_says_which(tmp_path: Path) -> None:
    frame = dc.Cohort.from_frame(small_frame(600), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    account = dc.Odometer.create(tmp_path / "ward7.jsonl")
    assert (
        "named, 'ward7.jsonl'" in dc.condense(frame, account=account, require_account=True, **HOW).privacy.paragraph()
    )
    assert "NO ACCOUNT" in dc.condense(frame, **HOW).privacy.paragraph()
    with pytest.raises(SettingsError, match="no account was named"):
        dc.condense(frame, require_account=True, **HOW)
    with pytest.raises(SettingsError, match="no account was named"):
        dc.PrivateModel(require_account=True).fit(frame)
    assert len(account.read().charges) == 1


def test_a_named_account_is_charged_besides_that_of_the_file(table: Path, tmp_path: Path) -> None:
    account = dc.Odometer.create(tmp_path / "ward7.jsonl")
    dc.condense(cohort(table), account=account, **HOW)
    assert account_of(table).total() == account.total() > 0


@pytest.mark.usefixtures("nowhere")
def test_where_no_account_can_be_kept_the_run_warns_and_its_statement_says_so(tmp_path: Path, call: Call) -> None:
    small_frame(600).to_csv(tmp_path / "ward.csv", index=False)
    with pytest.warns(DistcondenseWarning, match="NO ACCOUNT of these patients was charged"):
        result = dc.condense(cohort(tmp_path / "ward.csv"), **HOW)
    assert "NO ACCOUNT of these patients was charged" in result.privacy.paragraph()
    with pytest.warns(DistcondenseWarning, match="NO ACCOUNT"):
        dc.PrivateModel().fit(cohort(tmp_path / "ward.csv"))
    (tmp_path / "schema.toml").write_text(SMALL_TABLE.to_toml(), encoding="utf-8")
    how = ("--target", "died", "--ignore", "months", "--ignore", "event", "--schema", "schema.toml", "--ipc", "5")
    refused(call("condense", "ward.csv", *how, "--require-account", "--out", "run"), "require_account", "--account")
    assert not (tmp_path / "run").exists()


def test_the_cells_of_a_study_are_charged_to_the_account_of_their_file(table: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SMALL_TABLE.to_toml(), encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    progress = run_study(Study.from_toml(tmp_path / "study.toml"), tmp_path / "out", LocalTasks(), threads=1)
    assert progress.failed == []
    charges = account_of(table).read().charges
    assert sorted(one.method for one in charges) == ["private", "private", "published", "published"]
    assert account_of(table).total() == "unbounded"


def test_an_identifier_that_repeats_is_hinted_at_where_no_person_is_named() -> None:
    table = hospital.export(120)
    schema = draft(table).schema
    with pytest.warns(DistcondenseWarning, match="record_no looks like an identifier that repeats.*person_id"):
        dc.Cohort.from_frame(table, target="died", schema=schema)
    with pytest.warns(DistcondenseWarning, match='person_id="record_no"'):
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
