"""One charge pays for one run: of a folder and its copies one goes on, and no answer is given that was not charged."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.errors import BudgetError, RunFolderError
from distcondense.privacy.accountant import replay, unite
from distcondense.privacy.accounts import STATE, state_folder
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import NO_EVENTS, Ledger, read_events
from distcondense.privacy.odometer import ChargedRun
from tests.conftest import SMALL_TABLE, small_frame

pytestmark = pytest.mark.usefixtures("quick_placement")
HOW: dict[str, Any] = {"ipc": 5, "epsilon": 1.0, "threads": 1, "holdout": 0.0}
PLAN = tuple(Event("gaussian", "sums", ("age",), 4, 0.1 + 0.01 * k) for k in range(6))


@pytest.fixture
def account(tmp_path: Path) -> dc.Odometer:
    return dc.Odometer.create(tmp_path / "patients.jsonl")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    small_frame(600).to_csv(tmp_path / "ward.csv", index=False)
    return tmp_path / "ward.csv"


def cohort(table: Path) -> Cohort:
    return Cohort.from_file(table, target="died", ignore=["months", "event"], schema=SMALL_TABLE)


def begin(table: Path, out: Path, answers: int) -> None:
    """A private run that is killed after so many answers."""
    real, left = PrivateTable.sums, [answers]

    def sums(self: PrivateTable, *columns: Any, **how: Any) -> Any:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, *columns, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateTable, "sums", sums)
        with pytest.raises(KeyboardInterrupt):
            dc.condense(cohort(table), out=out, **HOW)


def kept_account() -> dc.Odometer:
    folder = state_folder()
    assert folder is not None
    (path,) = (folder / "accounts").iterdir()
    return dc.Odometer(path)


def test_of_a_killed_run_and_its_copy_one_goes_on_and_the_other_is_refused(table: Path, tmp_path: Path) -> None:
    begin(table, tmp_path / "run", 2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    first = dc.condense(cohort(table), out=tmp_path / "run", resume=True, **HOW)
    before = read_events(tmp_path / "copy/internal/ledger.jsonl")
    with pytest.raises(RunFolderError, match="a copy or a backup") as error:
        dc.condense(cohort(table), out=tmp_path / "copy", resume=True, **HOW)
    assert "--force" in error.value.fix
    assert read_events(tmp_path / "copy/internal/ledger.jsonl") == before
    assert not (tmp_path / "copy/release").exists()
    assert kept_account().total() >= replay(first.privacy.events, 1e-5).epsilon
    again = dc.condense(cohort(table), out=tmp_path / "copy", force=True, **HOW)
    everything = replay(unite(first.privacy.events, before, again.privacy.events), 1e-5).epsilon
    sums = [everything * (1 - 1e-12), again.privacy.epsilon_with_earlier_runs, kept_account().total()]
    assert sums == sorted(sums)


def test_an_older_backup_of_a_run_is_not_answered_again(table: Path, tmp_path: Path) -> None:
    begin(table, tmp_path / "run", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "backup")
    dc.condense(cohort(table), out=tmp_path / "run", resume=True, **HOW)
    shutil.rmtree(tmp_path / "run")
    shutil.move(tmp_path / "backup", tmp_path / "run")
    with pytest.raises(RunFolderError, match="a copy or a backup"):
        dc.condense(cohort(table), out=tmp_path / "run", resume=True, **HOW)


# -- the head, by itself ----------------------------------------------------------------------------------------------


def charged(*accounts: dc.Odometer, run: str = "one") -> ChargedRun:
    return ChargedRun(accounts, run, PLAN)


def reopened(path: Path, account: ChargedRun | None = None, run: str = "one") -> Ledger:
    """A ledger that was replayed to its end, as a resumed run does."""
    ledger, place = Ledger(path, run=run, account=account), 0
    while ledger.resuming:
        ledger.resume(PLAN[place])
        place += 1
    return ledger


def test_the_charge_and_the_head_are_on_the_account_before_an_answer_is_computed(account: dc.Odometer, tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.jsonl", run="one", account=charged(account))
    assert account.read().charges == ()  # nobody was asked anything yet
    ledger.enter(PLAN[0])
    (charge,) = account.read().charges
    assert charge.events == tuple(replace(event, columns=(), run="one") for event in PLAN)
    assert account.read().heads == {"one": ledger.head}
    ledger.enter(PLAN[1])
    assert account.read().heads == {"one": ledger.head}
    assert len(account.read().charges) == 1


def test_over_the_cap_the_first_question_is_refused_and_no_ledger_is_begun(tmp_path: Path) -> None:
    capped, free = dc.Odometer.create(tmp_path / "a.jsonl", cap=0.1), dc.Odometer.create(tmp_path / "b.jsonl")
    ledger = Ledger(tmp_path / "ledger.jsonl", run="one", account=charged(free, capped))
    with pytest.raises(BudgetError, match="within its cap"):
        ledger.enter(PLAN[0])
    assert ledger.head == NO_EVENTS
    assert not ledger.path.exists()
    assert free.read().charges == capped.read().charges == ()


def test_a_line_that_was_entered_and_never_answered_is_lost_and_the_run_goes_on(account: dc.Odometer, tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path, run="one", account=charged(account)).enter(PLAN[0])
    reopened(path).enter(PLAN[1])  # the machine went down before the account heard of it
    shutil.copy(path, tmp_path / "copy.jsonl")
    assert account.read().heads["one"].events == 1
    here, there = (reopened(one, charged(account)) for one in (path, tmp_path / "copy.jsonl"))
    assert account.read().heads["one"] == here.head == there.head
    there.enter(PLAN[2])
    with pytest.raises(RunFolderError, match="a copy or a backup"):
        here.enter(PLAN[2])
    assert here.head.events == len(read_events(path)) == 2


def test_an_account_that_was_put_back_to_an_older_copy_is_noticed(account: dc.Odometer, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path, run="one", account=charged(account)).enter(PLAN[0])
    older = account.path.read_bytes()
    reopened(path, charged(account)).enter(PLAN[1])
    reopened(path, charged(account)).enter(PLAN[2])
    account.path.write_bytes(older)
    with pytest.raises(RunFolderError, match="1 answers on the account, a ledger of 3"):
        Ledger(path, run="one", account=charged(account))


def test_a_run_that_goes_on_is_charged_to_an_account_that_does_not_know_it(account: dc.Odometer, tmp_path: Path):
    path = tmp_path / "ledger.jsonl"
    Ledger(path, run="one").enter(PLAN[0])  # without an account
    shutil.copy(path, tmp_path / "copy.jsonl")
    reopened(path, charged(account)).enter(PLAN[1])
    assert len(account.read().charges) == 1
    with pytest.raises(RunFolderError, match="a copy or a backup"):
        reopened(tmp_path / "copy.jsonl", charged(account))


def test_of_copies_that_ask_at_once_one_is_answered(account: dc.Odometer, tmp_path: Path) -> None:
    Ledger(tmp_path / "0.jsonl", run="one", account=charged(account)).enter(PLAN[0])
    for copy in range(1, 6):
        shutil.copy(tmp_path / "0.jsonl", tmp_path / f"{copy}.jsonl")
    ledgers = [reopened(tmp_path / f"{copy}.jsonl", charged(account)) for copy in range(6)]
    together = Barrier(6)

    def ask(ledger: Ledger) -> bool:
        together.wait()
        try:
            ledger.enter(PLAN[1])
        except RunFolderError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(ask, ledgers)) == 1
    assert account.read().heads["one"].events == 2


def test_runs_on_two_accounts_at_once_wait_for_nobody_for_ever(account: dc.Odometer, tmp_path: Path) -> None:
    other = dc.Odometer.create(tmp_path / "other.jsonl")

    def work(number: int) -> None:
        both = (account, other) if number % 2 else (other, account)
        ledger = Ledger(run=f"run {number}", account=charged(*both, run=f"run {number}"))
        for event in PLAN:
            ledger.enter(event)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert account.total() == other.total() == pytest.approx(replay(PLAN * 4, 1e-5).epsilon, rel=1e-6)


# -- several records of one run ----------------------------------------------------------------------------------------


def test_two_copies_that_both_went_on_without_an_account_both_count(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.jsonl", tmp_path / "copy.jsonl"
    for number in range(2):
        reopened(path).enter(PLAN[number])
    shutil.copy(path, copy)
    for number in range(2, 6):
        reopened(path).enter(PLAN[number])
        reopened(copy).enter(PLAN[number])
    united = unite(read_events(path), read_events(copy), read_events(path))
    assert sorted(event.cost for event in united) == sorted(event.cost for event in (*PLAN, *PLAN[2:]))
    plan = tuple(replace(event, columns=(), run="one") for event in PLAN)
    assert replay(unite(plan, united), 1e-5).epsilon == replay((*PLAN, *PLAN[2:]), 1e-5).epsilon
    assert sorted(event.cost for event in unite(plan, read_events(path)[:3])) == sorted(e.cost for e in PLAN)
