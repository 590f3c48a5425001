"""One account for a set of patients: nothing that was read is forgotten, by a folder, a model, a study or threads."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pickle
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.cells import public_cells
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Goal
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.errors import BudgetError, DistcondenseWarning, RunFolderError, SettingsError
from distcondense.methods import gated
from distcondense.methods.private import condense as private
from distcondense.methods.private import estimator
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy.accountant import Replay, replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.steps import StepRecord
from distcondense.privacy.verify import verify
from distcondense.runs import files
from distcondense.runs.folder import RunFolder
from tests.conftest import SMALL_SCHEMA, SMALL_TABLE, small_frame
from tests.shell import Call, refused

pytestmark = pytest.mark.usefixtures("quick_placement")
DECLARED = SMALL_TABLE
FEATURES = ["age", "crp", "smoker", "stage"]


@pytest.fixture(scope="module")
def large() -> Cohort:
    return Cohort.from_frame(small_frame(900), target="died", ignore=["months", "event"], schema=DECLARED)


@pytest.fixture
def spend():
    """A private run where only the account matters: nobody is held out."""
    return lambda cohort, **more: dc.condense(
        cohort, **{"ipc": 10, "epsilon": 2.0, "threads": 1, "holdout": 0.0, **more}
    )


def published(cohort: Cohort, **more: Any) -> dc.Result:
    return dc.condense(cohort, method="published", noise=False, ipc=5, steps=2, evaluate_every=1, threads=1, **more)


def refuse(*_: Any, **__: Any) -> None:
    raise SettingsError("x", "y")


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


# -- a folder remembers runs without privacy (8) ----------------------------------------------------------------------


def test_a_replaced_run_without_privacy_counts_as_infinite(large, tmp_path, spend):
    published(large, out=tmp_path / "run")
    again = spend(large, out=tmp_path / "run", force=True)
    assert again.privacy.epsilon_with_earlier_runs == "unbounded"
    assert "unbounded" in again.privacy.paragraph()
    assert "unbounded" in again.privacy.short()
    said = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert said["epsilon_with_earlier_runs"] == "unbounded"
    assert verify(tmp_path / "run").holds
    third = spend(large, out=tmp_path / "run", force=True)
    assert third.privacy.epsilon_with_earlier_runs == "unbounded"


def test_a_run_without_privacy_in_the_folder_of_a_private_one_keeps_its_account(large, tmp_path, spend):
    first = spend(large, out=tmp_path / "run")
    published(large, out=tmp_path / "run", force=True)
    folder = RunFolder(tmp_path / "run")
    assert folder.earlier_events() == first.privacy.events
    spend(large, out=tmp_path / "run", force=True)
    kinds = [event.kind for event in folder.earlier_events()]
    assert kinds.count("nonprivate") == 1
    assert len(kinds) == 1 + len(first.privacy.events)


def test_an_unfinished_run_without_privacy_counts_too(large, tmp_path, spend):
    def dies(*, step: int, **_: Any) -> None:
        if step >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dc.condense(
            large,
            method="published",
            noise=False,
            ipc=5,
            steps=4,
            evaluate_every=1,
            threads=1,
            out=tmp_path / "run",
            progress=dies,
        )
    assert not RunFolder(tmp_path / "run").finished
    assert spend(large, out=tmp_path / "run", force=True).privacy.epsilon_with_earlier_runs == "unbounded"


def test_a_replacement_that_is_refused_leaves_the_folder_and_its_account_as_they_were(
    large, tmp_path, monkeypatch, spend
):
    published(large, out=tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(private, "condense", refuse)
        with pytest.raises(SettingsError):
            spend(large, out=tmp_path / "run", force=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert spend(large, out=tmp_path / "run", force=True).privacy.epsilon_with_earlier_runs == "unbounded"


def test_a_private_run_killed_before_its_first_answer_costs_nothing(large, tmp_path, monkeypatch, spend):
    with monkeypatch.context() as patch:
        patch.setattr(private, "open_gate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            spend(large, out=tmp_path / "run")
    assert spend(large, out=tmp_path / "run", force=True).privacy.epsilon_with_earlier_runs is None


# -- threads (7) ------------------------------------------------------------------------------------------------------


def test_a_model_that_eight_threads_fit_counts_eight_fits(monkeypatch):
    frame, together = small_frame(400), Barrier(8)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=1.0)

    def fit() -> None:
        together.wait()
        model.fit(frame[FEATURES], frame["died"])

    monkeypatch.setattr(estimator.warnings, "warn", lambda *_, **__: None)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(fit) for _ in range(8)]:
            done.result()
    assert len({event.run for event in model._spent}) == 8
    alone = model.privacy_.events
    eight = replay([event for _ in range(8) for event in alone], model.delta).epsilon
    assert model.privacy_.epsilon_with_earlier_runs == pytest.approx(eight)


def test_a_fitted_model_can_be_pickled_with_its_account():
    frame = small_frame(900)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=4.0).fit(frame[FEATURES], frame["died"])
    again = pickle.loads(pickle.dumps(model))
    assert again._spent == model._spent
    assert np.array_equal(again.decision_function(frame[FEATURES]), model.decision_function(frame[FEATURES]))
    again.fit(frame[FEATURES], frame["died"])
    assert again.privacy_.epsilon_with_earlier_runs > again.privacy_.epsilon


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_ledger_that_threads_share_loses_no_event(tmp_path, on_disk):
    ledger = Ledger(tmp_path / "ledger.jsonl" if on_disk else None)
    together = Barrier(8)

    def enter(thread: int) -> list[int]:
        together.wait()
        return [ledger.enter(Event("gaussian", "sums", (str(thread),), 1, 0.1)) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        numbers = [number for part in pool.map(enter, range(8)) for number in part]
    assert sorted(numbers) == list(range(160))
    assert len(ledger.events) == 160
    if on_disk:
        assert Ledger(tmp_path / "ledger.jsonl").events == ledger.events


# -- a plan is replayed before it is paid for (10) --------------------------------------------------------------------

OUTCOMES = {
    "two classes": Column("y", "binary", categories=(0, 1)),
    "four classes": Column("y", "categorical", categories=("a", "b", "c", "d")),
    "a number": Column("y", "continuous", low=0, high=100),
    "a time": None,
}


def facts_of(columns: int, outcome: str, person_id: str | None = None) -> Facts:
    described = OUTCOMES[outcome]
    features = tuple(Column(f"c{k}", "integer", low=0, high=9 + k % 7) for k in range(columns))
    if described is None:
        schema = Schema(
            (*features, Column("t", "continuous", low=0, high=60), Column("e", "binary", categories=(0, 1)))
        )
        return Facts.from_goal(Goal.from_roles(time="t", event="e"), schema, person_id=person_id)
    return Facts.from_goal(Goal.from_roles(target="y"), Schema((*features, described)), person_id=person_id)


# of 1,678 wide plans at δ from 1e-14 to 1e-8, calibrated as they are, 76 replayed to more than their ε: some of them
OVER = [
    (0.1052233587336528, 5.5680055436483206e-14),
    (1.1644831699230338, 8.535251969335614e-13),
    (1.4435061464767678, 1.0053506723247894e-13),
    (1.0706977184200939, 3.416755022417459e-14),
    (0.19344766539473246, 2.6421503144919476e-14),
    (0.3, 1e-12),
]


@pytest.mark.parametrize(("epsilon", "delta"), OVER)
def test_a_plan_that_replayed_to_more_than_its_budget_does_so_no_more(epsilon, delta):
    for outcome in OUTCOMES:
        public = prepare(facts_of(200, outcome), PrivateOptions(epsilon=epsilon, delta=delta))
        found = replay(public.planned, delta)
        assert epsilon * (1 - 1e-3) < found.epsilon <= epsilon, outcome


@pytest.mark.parametrize("columns", [4, 200])
@pytest.mark.parametrize("too_much", [1e-9, 1e-6, 1e-3])
def test_a_budget_that_is_calibrated_too_large_is_made_smaller_before_anybody_is_read(columns, too_much, monkeypatch):
    real = Budget.calibrate

    def generous(**asked: Any) -> Budget:
        budget = real(**asked)
        return replace(budget, mu=budget.mu * (1 + too_much + 2e-8))

    monkeypatch.setattr(Budget, "calibrate", generous)
    facts = facts_of(columns, "two classes")
    public = prepare(facts, PrivateOptions(epsilon=1.0))
    assert replay(public.planned, 1e-5).epsilon <= 1.0


@settings(max_examples=30)
@given(
    st.floats(0.05, 9.9),
    st.floats(-14.0, -2.0),
    st.sampled_from([1, 2, 5, 30, 128, 129, 200, 600]),
    st.sampled_from(sorted(OUTCOMES)),
    st.booleans(),
)
def test_what_a_plan_will_ask_replays_to_at_most_the_budget(epsilon, exponent, columns, outcome, persons):
    options = PrivateOptions(epsilon=epsilon, delta=10.0**exponent)
    try:
        public = prepare(facts_of(columns, outcome, "who" if persons else None), options)
    except BudgetError:
        return
    found = replay(public.planned, options.delta)
    assert found.epsilon <= epsilon
    if exponent > -12 or not found.picks:  # the PLD of choices has no digits left where the grid takes most of δ
        assert epsilon * (1 - 2e-3) <= found.epsilon
    assert len(public.planned) == public.plan.answers
    assert {event.unit for event in public.planned} == {"person" if persons else "row"}


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
@pytest.mark.parametrize("columns", [4, 140])
def test_what_is_asked_is_what_was_planned(outcome, columns):
    rng = np.random.default_rng(0)
    facts = facts_of(columns, outcome)
    schema = facts.schema
    assert schema is not None
    frame = pd.DataFrame({cells.column.name: rng.integers(0, 9, 600) for cells in public_cells(schema)}).copy()
    labels = {"two classes": [0, 1], "four classes": ["a", "b", "c", "d"]}
    full = Schema(
        (
            *schema.columns,
            *(
                [OUTCOMES[outcome]]
                if OUTCOMES[outcome] is not None
                else [Column("t", "continuous", low=0, high=60), Column("e", "binary", categories=(0, 1))]
            ),
        )
    )
    if outcome == "a time":
        frame["t"], frame["e"] = rng.uniform(1, 60, 600), rng.integers(0, 2, 600)
        how = {"time": "t", "event": "e"}
    else:
        how = {"target": "y"}
        frame["y"] = rng.choice(labels[outcome], 600) if outcome in labels else rng.uniform(0, 100, 600)
    cohort = Cohort.from_frame(frame, schema=full, **how)
    options = PrivateOptions(epsilon=3.0)
    public, ledger = prepare(cohort.facts, options), Ledger()
    table = private.open_gate(cohort, HoldoutSplit(0.0, 1), public, ledger)
    private.fit_private(table, public.cells, public.plan, public.side)
    others, sums = (
        [[e for e in of if (e.query == "sums") == own] for of in (ledger.events, public.planned)] for own in (0, 1)
    )
    asked, price = (sorted((event.kind, event.cost, event.picks, event.unit) for event in of) for of in others)
    assert asked == price
    # which pairs are asked about is told by answers; what is kept for them and not spent the last round of sums has
    assert len(sums[0]) <= len(sums[1])
    spent, kept = (sum(event.cost**2 for event in of) for of in sums)
    assert spent == pytest.approx(kept, rel=1e-9)
    assert sum(event.cells for event in ledger.events) <= sum(event.cells for event in public.planned)
    planned = replay(public.planned, options.delta).epsilon
    assert replay(ledger.events, options.delta).epsilon == pytest.approx(planned, rel=1e-6)
    assert replay(ledger.events, options.delta).epsilon <= options.epsilon


def test_a_release_never_fails_on_rounding(large, tmp_path, monkeypatch, spend):
    """Should accountants ever round apart, what was paid for is written, and says so."""
    real = gated.replay

    def apart(events: Any, delta: float) -> Replay:
        found = real(events, delta)
        return Replay(**{**vars(found), "epsilon": 2.0000003, "pld": 9.0})

    monkeypatch.setattr(gated, "replay", apart)
    with pytest.warns(DistcondenseWarning, match="accountants"):
        result = spend(large, out=tmp_path / "run")
    assert result.privacy.epsilon >= 2.0000003
    assert "accountants" in result.privacy.paragraph()
    assert RunFolder(tmp_path / "run").finished


# -- what is on disk stays there (12) ---------------------------------------------------------------------------------


class Disk:
    """Which files and folders were synced, by their path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)


def test_a_whole_file_is_synced_and_so_is_its_name(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    files.write_text(tmp_path / "a.json", "{}")
    assert disk.synced == [str(tmp_path / "a.json.draft"), str(tmp_path)]


def test_what_earlier_runs_spent_is_synced_before_their_ledger_goes(large, tmp_path, monkeypatch, spend):
    spend(large, out=tmp_path / "run")
    disk, removed, real = Disk(monkeypatch), [], shutil.rmtree

    def rmtree(path: Path, **how: Any) -> None:
        removed.append((str(path), len(disk.synced)))
        real(path, **how)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    RunFolder(tmp_path / "run")._set_aside()
    written = [number for number, path in enumerate(disk.synced) if path.endswith("earlier.jsonl.draft")]
    assert written
    assert str(tmp_path / "run") in disk.synced[written[0] :]
    gone = [at for path, at in removed if path.endswith("/internal")]
    assert all(at > written[0] for at in gone)


def test_the_names_of_append_only_files_are_synced_when_they_are_new(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    Ledger(tmp_path / "ledger.jsonl").enter(Event("gaussian", "sums", (), 1, 0.1))
    assert disk.synced == [str(tmp_path / "ledger.jsonl"), str(tmp_path)]
    disk.synced.clear()
    record = StepRecord(tmp_path / "steps.jsonl")
    record.enter(0, 1.0)
    record.write()
    assert disk.synced == [str(tmp_path / "steps.jsonl"), str(tmp_path)]


# -- one account for a set of patients --------------------------------------------------------------------------------


def gaussian(cost: float, **more: Any) -> Event:
    return Event("gaussian", "sums", ("age",), 4, cost, **more)


@pytest.fixture
def account(tmp_path: Path) -> dc.Odometer:
    return dc.Odometer.create(tmp_path / "patients.jsonl", about="the ward of 2019")


def test_an_account_adds_up_what_runs_in_any_folder_are_charged(account):
    assert account.total() == 0.0
    account.charge("one", [gaussian(0.3), gaussian(0.4)], "first project", method="private")
    account.charge("two", [gaussian(0.5)])
    events = [replace(gaussian(mu), run=run) for mu, run in ((0.3, "one"), (0.4, "one"), (0.5, "two"))]
    assert account.total() == replay(events, 1e-5).epsilon  # each run's hashes have a key of their own
    assert dc.Odometer(account.path).total() == account.total()
    assert [event.run for event in account.others("one")] == ["two"]


def test_a_run_is_charged_once_however_often_it_is_resumed(account):
    for _ in range(3):
        account.charge("one", [gaussian(0.3), gaussian(0.3)])
    assert len(account.read().charges) == 1
    with pytest.raises(RunFolderError, match="one price for one run"):
        account.charge("one", [gaussian(0.3)])
    with pytest.raises(SettingsError, match="name of a run"):
        account.charge("", [gaussian(0.3)])
    with pytest.raises(SettingsError, match="what it will ask"):
        account.charge("two", [])


def test_over_the_cap_nothing_is_written(tmp_path):
    account = dc.Odometer.create(tmp_path / "a.jsonl", cap=1.0)
    account.charge("one", [gaussian(0.2)])
    before = account.path.read_bytes()
    with pytest.raises(BudgetError) as error:
        account.charge("two", [gaussian(0.3)])
    assert all((error.value.what, error.value.rule, error.value.found, error.value.fix))
    assert "(end-to-end)" in str(error.value)
    assert "no patient was read" in str(error.value)
    assert account.path.read_bytes() == before
    account.charge("one", [gaussian(0.2)])  # a run that was charged goes on, whatever the cap is now
    account.set_cap(3.0)
    account.charge("two", [gaussian(0.3)])
    account.set_cap(0.1)
    with pytest.raises(BudgetError, match="within its cap"):
        account.charge("three", [gaussian(0.01)])
    account.set_cap(None)
    account.charge("three", [gaussian(3.0)])
    assert [cap for _, _, cap in account.read().caps] == [1.0, 3.0, 0.1, None]


def test_a_run_without_a_gate_is_infinite_and_no_cap_can_hold_it(tmp_path, account):
    account.charge("one", [gaussian(0.2)])
    account.charge("two", [Event.nonprivate()], method="published", guarantee="as-published")
    assert account.total() == "unbounded"
    assert "without a gate" in account.lines()[-2]
    capped = dc.Odometer.create(tmp_path / "capped.jsonl", cap=50.0)
    with pytest.raises(BudgetError, match="another account for it, or take the cap away"):
        capped.charge("two", [Event.nonprivate()], method="published", guarantee="none")
    account.set_cap(99.0)
    with pytest.raises(BudgetError, match="bound of all its runs"):
        account.charge("three", [gaussian(0.1)])


def test_rows_and_persons_have_no_common_total(account):
    account.charge("one", [gaussian(0.2)])
    account.charge("two", [gaussian(0.2, unit="person")])
    assert account.total() == "different units"
    assert "different units" in account.lines()[-2]


def test_the_words_give_every_price_with_its_guarantee_and_what_the_total_means(account):
    assert "nobody has read anything" in account.lines()[-2]
    account.charge("one", [gaussian(0.2, unit="person")], "ward.csv", method="private")
    account.charge("two", [gaussian(0.3, unit="person")], method="private", guarantee="conditional")
    head, one, two, total, cap = account.lines()
    assert "the ward of 2019" in head
    assert "(end-to-end)" in one
    assert "ward.csv" in one
    assert "(conditional)" in two
    advantage = 1 + math.erf(math.sqrt(0.2**2 + 0.3**2) / math.sqrt(8))
    assert f"at most {math.ceil(advantage * 1000) / 1000:.4g}" in total
    assert "2 runs" in total
    assert "(conditional) at δ = 1e-05 for every person" in total
    assert cap.endswith("no cap")


# ---- the file


@pytest.fixture
def full(account) -> dc.Odometer:
    for run in ("one", "two", "three"):
        account.charge(run, [gaussian(0.2)] * 3)
    account.set_cap(7.0)
    return account


def test_every_line_that_is_changed_moved_or_taken_out_is_noticed(full):
    lines = full.path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    wrong = [
        *([*lines[:k], *lines[k + 1 :]] for k in range(4)),
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines, lines[-1]],
        [*lines[:2], lines[2].replace(b"0.2", b"0.1"), *lines[3:]],
        [*lines[:2], lines[2].replace(b'"times": 3', b'"times": 1'), *lines[3:]],
        [lines[0].replace(b"1e-05", b"1e-06"), *lines[1:]],
        [*lines[:3], b"\n", *lines[3:]],
        [*lines[:3], b"{}\n"],
        [b"when,what\n", *lines[1:]],
        [lines[0].replace(b'"odometer": 1', b'"odometer": 2'), *lines[1:]],
        [],
    ]
    for content in wrong:
        full.path.write_bytes(b"".join(content))
        for look in (
            full.read,
            full.total,
            full.lines,
            lambda: full.charge("x", [gaussian(0.1)]),
            lambda: full.set_cap(1.0),
            lambda: dc.Odometer(full.path),
        ):
            with pytest.raises(RunFolderError) as error:
                look()
            assert error.value.fix
        assert full.path.read_bytes() == b"".join(content)


def test_a_torn_last_line_is_completed_or_refused_and_never_counted_as_nothing(full):
    whole, total = full.path.read_bytes(), full.total()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        full.path.write_bytes(whole[:end])
        with pytest.raises(RunFolderError, match=r"line 5 cut off"):
            full.total()
        with pytest.raises(RunFolderError, match="cut off"):
            full.charge("four", [gaussian(0.1)])
    full.path.write_bytes(whole[:-1])  # only its end is missing: it is all there, and counts
    assert full.total() == total
    assert full.read().cap == 7.0
    full.charge("four", [gaussian(0.1)])
    assert full.path.read_bytes().startswith(whole)
    assert len(full.read().charges) == 4


def test_a_file_that_cannot_be_written_can_be_read_and_is_refused_before_anybody_is(full, monkeypatch):
    os.chmod(full.path, stat.S_IRUSR)
    real = os.open

    def refused_by_the_system(path: Any, flags: int, *mode: Any, **how: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and Path(path) == full.path:  # root may write everything
            raise PermissionError
        return real(path, flags, *mode, **how)

    monkeypatch.setattr(os, "open", refused_by_the_system)
    assert len(full.read().charges) == 3
    with pytest.raises(RunFolderError, match="must be writable"):
        full.charge("four", [gaussian(0.1)])


def test_a_disk_that_is_full_leaves_the_account_as_it_was(full, monkeypatch):
    before, real = full.path.read_bytes(), os.write

    def half(file: int, content: bytes) -> int:
        if len(content) > 100:
            return real(file, content[:100])
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(RunFolderError, match="must be writable"):
        full.charge("four", [gaussian(0.1)])
    monkeypatch.undo()
    assert full.path.read_bytes() == before


def test_what_is_no_account_is_refused_in_words(tmp_path, full):
    with pytest.raises(RunFolderError, match="--create"):
        dc.Odometer(tmp_path / "no.jsonl")
    with pytest.raises(RunFolderError, match="readable file"):
        dc.Odometer(tmp_path)
    with pytest.raises(RunFolderError, match="must be new"):
        dc.Odometer.create(full.path)
    with pytest.raises(RunFolderError, match="must be writable"):
        dc.Odometer.create(tmp_path / "nowhere" / "a.jsonl")
    (tmp_path / "table.csv").write_text("age,died\n61,1\n")
    with pytest.raises(RunFolderError, match="another file"):
        dc.Odometer(tmp_path / "table.csv")
    for wrong in ({"cap": 0.0}, {"cap": math.inf}, {"delta": 0.0}, {"delta": 1.0}):
        with pytest.raises(SettingsError):
            dc.Odometer.create(tmp_path / "b.jsonl", **wrong)
    assert not (tmp_path / "b.jsonl").exists()


def test_a_charge_is_on_disk_before_it_returns(account, monkeypatch):
    disk = Disk(monkeypatch)
    account.charge("one", [gaussian(0.1)])
    assert disk.synced == [str(account.path)]
    made = dc.Odometer.create(account.path.with_name("b.jsonl"))
    synced, folder = disk.synced[1:]
    assert synced.startswith(f"{made.path}.draft-")  # it has its name when it is whole
    assert folder == str(made.path.parent)
    assert {file.name for file in made.path.parent.iterdir()} == {account.path.name, made.path.name}


def test_an_account_that_was_killed_while_it_was_begun_is_begun_again(tmp_path):
    path = tmp_path / "a.jsonl"
    (tmp_path / "a.jsonl.draft-1234").write_bytes(b'{"odom')
    with open(tmp_path / "a.jsonl.draft-5678", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # another process is writing it
        dc.Odometer.create(path)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.draft-5678"]
    dc.Odometer(path).charge("one", [gaussian(0.1)])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl"]
    os.link(path, tmp_path / "a.jsonl.draft-9abc")  # killed when the account had both names
    dc.Odometer(path).charge("two", [gaussian(0.1)])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl"]


PROCESS = """
import sys
import distcondense as dc
from distcondense.errors import BudgetError
from distcondense.privacy.events import Event
account, name = dc.Odometer(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(5):
    try:
        account.charge(f"{name}-{number}", [Event("gaussian", "sums", (), 1, 0.2)])
        print("charged", flush=True)
    except BudgetError:
        print("refused", flush=True)
"""


@pytest.mark.parametrize("cap", [None, 2.0])
def test_processes_that_charge_at_once_lose_nothing_and_stay_within_the_cap(tmp_path, cap):
    account = dc.Odometer.create(tmp_path / "a.jsonl", cap=cap)
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(account.path), str(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in range(4)
    ]
    for process in crew:
        assert process.stdout.readline() == "ready\n"
    for process in crew:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [line for process in crew for line in process.communicate()[0].split()]
    assert [process.returncode for process in crew] == [0] * 4
    charges = account.read().charges
    assert len(said) == 20
    assert len(charges) == said.count("charged")
    if cap is None:
        assert len(charges) == 20
    else:
        total = account.total()
        assert total <= cap
        assert replay([gaussian(0.2)] * (len(charges) + 1), 1e-5).epsilon > cap  # and not a run fewer than it allows


def test_threads_that_charge_at_once_lose_nothing(account):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: account.charge(f"run {k}", [gaussian(0.1)]), range(40)))
    assert len(account.read().charges) == 40


KILLED = """
import os, sys
import distcondense as dc
from distcondense.privacy.events import Event
account = dc.Odometer(sys.argv[1])
os.fsync = lambda file: os._exit(9)
account.charge("one", [Event("gaussian", "sums", (), 1, 0.2)])
"""


def test_a_run_killed_between_its_line_and_the_sync_is_charged_and_goes_on_under_its_name(account):
    done = subprocess.run([sys.executable, "-c", KILLED, str(account.path)], check=False)
    assert done.returncode == 9
    assert account.total() == replay([gaussian(0.2)], 1e-5).epsilon
    account.charge("one", [Event("gaussian", "sums", (), 1, 0.2)])
    assert len(account.read().charges) == 1


# ---- runs and models on it


def test_runs_and_models_share_an_account_and_their_statements_count_it(large, account, tmp_path, spend):
    first = spend(large, account=account, out=tmp_path / "one")
    assert first.privacy.epsilon_with_earlier_runs is None
    assert account.total() == replay(first.privacy.events, 1e-5).epsilon
    second = spend(large, account=account.path, out=tmp_path / "two")
    both = replay([*first.privacy.events, *second.privacy.events], 1e-5).epsilon
    assert second.privacy.epsilon_with_earlier_runs == pytest.approx(both)
    assert "account" in second.privacy.paragraph()
    assert account.total() == pytest.approx(both)
    assert verify(tmp_path / "two").holds
    frame = small_frame(900)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=2.0, account=account.path)
    for _ in range(2):
        model.fit(frame[FEATURES], frame["died"])
    events = [*first.privacy.events, *second.privacy.events, *model._spent]
    assert account.total() == pytest.approx(replay(events, 1e-5).epsilon)
    assert model.privacy_.epsilon_with_earlier_runs == pytest.approx(account.total())
    assert "account" in model.privacy_.paragraph()
    saved = spend(large, account=account).save(tmp_path / "later")
    said = json.loads((saved / "release" / "privacy.json").read_text())
    assert said["epsilon_with_earlier_runs"] == pytest.approx(account.total())
    assert [charge.about for charge in account.read().charges] == ["one", "two", "a PrivateModel", "a PrivateModel", ""]


def test_a_run_without_a_gate_makes_every_later_statement_unbounded(large, account, tmp_path, spend):
    published(large, account=account)
    assert account.total() == "unbounded"
    (charge,) = account.read().charges
    assert (charge.method, charge.gated) == ("published", False)
    assert spend(large, account=account).privacy.epsilon_with_earlier_runs == "unbounded"


def test_over_the_cap_no_patient_is_read(large, tmp_path, monkeypatch, spend):
    account = dc.Odometer.create(tmp_path / "a.jsonl", cap=2.5)
    spend(large, account=account)
    monkeypatch.setattr(private, "open_gate", interrupt)
    monkeypatch.setattr(estimator, "open_gate", interrupt)
    with pytest.raises(BudgetError, match="within its cap"):
        spend(large, account=account, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BudgetError, match="within its cap"):
        dc.PrivateModel(epsilon=2.0, account=account).fit(large)
    with pytest.raises(BudgetError, match="no run without a gate can keep"):
        published(large, account=account)
    assert len(account.read().charges) == 1


def test_a_run_of_exactly_the_cap_is_allowed(large, tmp_path, spend):
    account = dc.Odometer.create(tmp_path / "a.jsonl", cap=2.0)
    spend(large, account=account)
    assert account.total() <= 2.0


def test_a_killed_run_is_charged_and_not_charged_again_when_it_goes_on(large, account, tmp_path, monkeypatch, spend):
    for killed in (private, PrivateTable):
        with monkeypatch.context() as patch:
            patch.setattr(killed, "open_gate" if killed is private else "sums", interrupt)
            with pytest.raises(KeyboardInterrupt):
                spend(large, account=account, out=tmp_path / "run", resume=killed is PrivateTable)
        assert len(account.read().charges) == (killed is PrivateTable)  # nobody is read before the first answer
    done = spend(large, account=account, out=tmp_path / "run", resume=True)
    (charge,) = account.read().charges
    assert {event.run for event in done.privacy.events} == {charge.run}
    assert done.privacy.epsilon_with_earlier_runs is None
    assert account.total() == replay(done.privacy.events, 1e-5).epsilon


def test_a_forced_run_on_an_account_counts_every_run_once(large, account, tmp_path, spend):
    first = spend(large, account=account, out=tmp_path / "run")
    second = spend(large, account=account, out=tmp_path / "run", force=True)
    both = replay([*first.privacy.events, *second.privacy.events], 1e-5).epsilon
    assert second.privacy.epsilon_with_earlier_runs == pytest.approx(both)
    assert account.total() == pytest.approx(both)


def test_a_model_on_an_account_can_be_cloned_and_its_clone_is_counted(account):
    from sklearn.base import clone

    frame, model = small_frame(900), dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=4.0, account=account)
    model.fit(frame[FEATURES], frame["died"])
    again = clone(model).fit(frame[FEATURES], frame["died"])
    assert again.privacy_.epsilon_with_earlier_runs == pytest.approx(account.total())
    assert len(account.read().charges) == 2


# ---- the command line


def test_the_command_shows_creates_and_caps_an_account(call: Call, tmp_path):
    refused(call("privacy", "ledger", "a.jsonl"), "must exist", "--create")
    made = call("privacy", "ledger", "a.jsonl", "--create", "--cap", "3", "--about", "the ward")
    assert made.code == 0
    assert "the ward" in made.out
    assert "a cap of ε = 3 (end-to-end)" in made.out
    refused(call("privacy", "ledger", "a.jsonl", "--create"), "must be new")
    refused(call("privacy", "ledger", "a.jsonl", "--cap", "much"), "must be a number or none")
    refused(call("privacy", "ledger", "a.jsonl", "--cap", "-1"), "must be above 0")
    refused(call("privacy", "ledger", "a.jsonl", "--delta", "1e-6"), "when an account begins")
    assert "a cap of ε = 5" in call("privacy", "ledger", "a.jsonl", "--cap", "5").out
    assert call("privacy", "ledger", "a.jsonl", "--cap", "none").out.endswith("cap:      no cap\n")
    said = json.loads(call("privacy", "ledger", "a.jsonl", "--json").out)
    assert [entry["cap"] for entry in said["caps"]] == [3.0, 5.0, None]
    assert (said["total_epsilon"], said["charges"]) == (0.0, [])


def test_condense_on_the_command_line_charges_the_account_or_is_refused(call: Call, tmp_path):
    small_frame(600).to_csv(tmp_path / "ward.csv", index=False)
    (tmp_path / "schema.toml").write_text(SMALL_TABLE.to_toml(), encoding="utf-8")
    call("privacy", "ledger", "a.jsonl", "--create", "--cap", "2")
    how = (
        "condense",
        "ward.csv",
        "--target",
        "died",
        "--ignore",
        "months",
        "--ignore",
        "event",
        "--schema",
        "schema.toml",
        "--account",
        "a.jsonl",
        "--ipc",
        "5",
        "--threads",
        "1",
        "--quiet",
    )
    done = call(*how, "--epsilon", "1.5", "--holdout", "0", "--out", "one")
    assert done.code == 0, done.err
    refused(call(*how, "--epsilon", "1.5", "--out", "two"), "within its cap", "no patient was read")
    refused(call(*how, "--method", "published", "--no-noise", "--out", "two"), "no run without a gate can keep")
    refused(call(*how, "--out", "two", "--account", "b.jsonl"), "must exist")
    assert not (tmp_path / "two").exists()
    assert "private: ε = 1.5 (end-to-end), one" in call("privacy", "ledger", "a.jsonl").out
