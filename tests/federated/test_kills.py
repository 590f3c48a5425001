"""Every party killed at its file operations: the same command goes on, and no question is ever answered in two ways."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distcondense.errors import RunFolderError
from distcondense.federated import parties
from distcondense.federated.folder import WaitingError
from distcondense.federated.session import agreement_of
from distcondense.privacy import noise
from distcondense.privacy.ledger import Ledger, read_events
from distcondense.privacy.odometer import Odometer
from distcondense.privacy.verify import verify
from tests.federated.sites import NAMES, Region
from tests.fuzz.disks import Killed, trouble
from tests.fuzz.quick import quickly

Command = Callable[[], Any]
EAST = "east"


class Stage:
    """A session at one moment, put back before every kill: to the same place, for accounts go by where a table lies."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.start = Path(tempfile.mkdtemp(dir=region.folder.parent)) / "start"
        shutil.copytree(region.folder, self.start)

    def back(self, to: Path | None = None) -> None:
        shutil.rmtree(self.region.folder)
        shutil.copytree(to or self.start, self.region.folder)

    def kills(self, command: Command, *, step: int = 1, first: int = 0) -> Iterator[int]:
        """Killed at one of its operations after the other; ends where it has no more of them."""
        for at in itertools.count(first, step):
            self.back()
            with trouble(self.region.folder, at) as disk, suppress(Killed):
                command()
            if disk.count <= at:
                return
            yield at


@pytest.fixture
def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    """Small placements; all have joined."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "region" / "state"))
    with quickly():
        made = Region(tmp_path / "region", 90)
        for name in NAMES:
            made.join(name)
        yield made


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a site drew noise."""
    real, seen = noise.discrete_gaussian, list[int]()
    monkeypatch.setattr(noise, "discrete_gaussian", lambda exact, scale: seen.append(1) or real(exact, scale))  # type: ignore[func-returns-value]
    return seen


def asked(region: Region) -> None:
    """The coordinator's next question is out."""
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)


def answer(region: Region, name: str = EAST) -> str:
    return parties.round_(region.shared, region.folder / name, keys=region.fingerprint)


def sent(region: Region, number: int) -> bytes | None:
    file = region.shared / "rounds" / f"{number:06d}" / EAST
    return file.read_bytes() if file.exists() else None


def ledger(region: Region) -> Path:
    return region.folder / EAST / "run" / "internal" / "ledger.jsonl"


@pytest.mark.parametrize("number", [0, 1])
def test_a_site_killed_at_any_file_operation_gives_one_answer(region: Region, drawn: list[int], number: int) -> None:
    """Also where the kill, or somebody, took the stored answers: then it has sent nothing, or draws nothing more."""
    asked(region)
    if number:
        for name in NAMES:
            answer(region, name)
        asked(region)
    stage, (kills, refused) = Stage(region), (0, 0)
    before = len(Ledger(ledger(region)).noted)
    for at in stage.kills(lambda: answer(region)):
        kills += 1
        gone = sent(region, number)
        left = region.folder.with_name("left")
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(region.folder, left)
        assert answer(region).startswith(f"{number + 1} questions answered"), at
        assert gone in (None, sent(region, number))
        assert len(read_events(ledger(region))) == number + 1
        accounts = [Odometer(file).read() for file in (region.folder / "state" / "accounts").iterdir()]
        assert max(len(account.charges) for account in accounts) == 1
        stage.back(left)
        shutil.rmtree(region.folder / EAST / "messages", ignore_errors=True)
        noted = len(Ledger(ledger(region)).noted)
        drawn.clear()
        if noted:
            refused += 1
            with pytest.raises(RunFolderError, match="stored answers"):
                answer(region)
            assert not drawn
        else:
            assert gone is None
            answer(region)
    assert kills > 12
    assert refused > (8 if before else 2)


def test_an_answer_that_is_lost_put_back_or_changed_is_not_drawn_again(region: Region, drawn: list[int]) -> None:
    asked(region)
    answer(region)
    first = Stage(region)
    for name in NAMES[1:]:
        answer(region, name)
    asked(region)
    answer(region)
    stored = region.folder / EAST / "messages"
    drawn.clear()
    shutil.rmtree(stored)
    shutil.copytree(first.start / EAST / "messages", stored)  # put back to when one question was answered
    with pytest.raises(RunFolderError, match="1 files, and 2 answers to 2 questions"):
        answer(region)
    (stored / "000001").write_bytes((stored / "000000").read_bytes())
    with pytest.raises(RunFolderError, match="other bytes"):
        answer(region)
    shutil.rmtree(region.folder / EAST)
    shutil.copytree(first.start / EAST, region.folder / EAST)  # all of it is older: the account is further on
    with pytest.raises(RunFolderError, match="a copy or a backup"):
        answer(region)
    assert not drawn


def test_without_an_account_an_older_folder_is_known_by_what_it_has_sent(
    region: Region, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", "off")
    asked(region)
    stage = Stage(region)
    answer(region)
    drawn.clear()
    shutil.rmtree(region.folder / EAST)
    shutil.copytree(stage.start / EAST, region.folder / EAST)
    with pytest.raises(RunFolderError, match="an older copy"):
        answer(region)
    assert not drawn
    assert read_events(ledger(region)) == ()


def test_init_and_join_killed_at_any_file_operation_are_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "region" / "state"))
    (tmp_path / "region").mkdir()
    blank = Region.__new__(Region)
    blank.folder = tmp_path / "region"
    stage, kills = Stage(blank), 0
    for at in stage.kills(lambda: Region(blank.folder, 60)):
        kills += 1
        there = blank.folder / "shared" / "agreement"
        if there.exists():
            agreement_of(there.read_bytes())
            with pytest.raises(RunFolderError, match="must be new for a session"):
                Region(blank.folder, 60)
        else:
            Region(blank.folder, 60)
        assert agreement_of(there.read_bytes()).coordinator, at
    assert kills > 5
    stage.back()
    region = Region(blank.folder, 60)
    table = region.table(EAST)
    stage, kills = Stage(region), 0
    for _ in stage.kills(lambda: parties.join(region.shared, region.folder / EAST, table, EAST)):
        kills += 1
        joined = region.shared / "joined" / EAST
        gone = joined.read_bytes() if joined.exists() else None
        parties.join(region.shared, region.folder / EAST, table, EAST)
        assert gone in (None, joined.read_bytes())
    assert kills > 5


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_close_killed_at_any_file_operation_makes_one_release(region: Region, step: int) -> None:
    region.steps()
    stage, kills = Stage(region), 0
    for at in stage.kills(lambda: parties.close(region.shared, region.own), step=step):
        kills += 1
        shared = region.shared / "release" / "privacy.json"
        gone = shared.read_bytes() if shared.exists() else None
        parties.close(region.shared, region.own)
        assert gone in (None, shared.read_bytes()), at
        assert verify(region.own / "run").holds
        assert verify(region.shared / "release").holds
    assert kills > 40 / step
    stage.back()
    parties.close(region.shared, region.own)
    stage, kills = Stage(region), 0
    for at in stage.kills(lambda: parties.close(region.shared, region.folder / EAST), step=step):
        kills += 1
        assert parties.close(region.shared, region.folder / EAST).startswith("closed"), at
        assert verify(region.folder / EAST / "release").holds
        assert '"agreeing": ""' in (region.folder / EAST / "keys.json").read_text()
    assert kills > 15 / step
