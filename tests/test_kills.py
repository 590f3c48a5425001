"""A run killed at any of its file operations, or on a disk that refuses one, goes on; a finished folder is clean."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.disks import COMMANDS, ERRORS, prepared, stopped, usable
from tests.fuzz.driver import Room
from tests.fuzz.quick import quickly
from tests.shell import Call, files, refused, write
from tests.tiny import patients

MOST = 200  # no command has so many file operations


@pytest.fixture
def quick() -> Iterator[None]:
    """Small placements, and nothing is measured: what is tested are the files."""
    with quickly():
        yield


def room_in(folder: Path, name: str, command: str = "uniform") -> Room:
    path = folder / name
    path.mkdir()
    room = Room(path, random.Random(0))
    prepared(room, command)
    return room


def every_operation(
    folder: Path, name: str, *, force: bool, error: int | None = None, first: int = 0, step: int = 1
) -> int:
    """Stop the command at each of its operations in turn, and go on; how many there were."""
    start = room_in(folder, "start", name)
    if force:
        assert start.cli(*COMMANDS["uniform"]) == 0
    for at in range(first, MOST, step):
        room = Room(shutil.copytree(start.path, folder / f"at-{at}"), random.Random(0))
        command = (*COMMANDS[name], *(["--force"] if force else []))
        there = stopped(room, command, at, error)
        if there:
            usable(room, name)
        assert not room.faults, (name, at, room.faults)
        if not there:
            return at
    raise AssertionError("no end of operations")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("force", [False, True], ids=["new", "replacing"])
def test_a_run_killed_at_any_file_operation_goes_on_and_leaves_a_clean_folder(tmp_path: Path, force: bool) -> None:
    assert every_operation(tmp_path, "uniform", force=force, step=3 if force else 1) > 20  # make fuzz tries the others


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["private", "published", "batches", "clustmix", "kde-knn"])
def test_a_run_with_an_account_killed_at_its_file_operations_goes_on(tmp_path: Path, name: str) -> None:
    assert every_operation(tmp_path, name, force=False, first=3, step=37 if name == "published" else 59) > 20


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_kill_before_a_run_is_replaced_leaves_nothing_beside_it(tmp_path: Path, at: int) -> None:
    room = room_in(tmp_path, "replacing")
    assert room.cli(*COMMANDS["uniform"]) == 0
    assert stopped(room, (*COMMANDS["published"], "--force"), at, None)
    usable(room, "published")  # refused: the run there has other settings
    assert not room.faults


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["draft", "init", "keys", "account", "cap", "sign", "evaluate", "attack"])
def test_a_small_command_killed_at_any_file_operation_leaves_nothing_half(tmp_path: Path, name: str) -> None:
    slow = name in ("evaluate", "attack")  # make fuzz tries the others
    assert every_operation(tmp_path, name, force=False, first=slow, step=3 if slow else 1) >= 2


@pytest.mark.usefixtures("quick")
def test_a_study_killed_at_its_file_operations_goes_on(tmp_path: Path) -> None:
    assert every_operation(tmp_path, "study", force=False, first=1, step=23) > 100


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", ERRORS[:3], ids=errno.errorcode.get)
def test_a_disk_that_refuses_is_said_and_the_run_goes_on(tmp_path: Path, error: int) -> None:
    assert every_operation(tmp_path, "uniform", force=False, error=error, first=ERRORS.index(error), step=6) > 20


@pytest.mark.usefixtures("quick")
def test_a_full_disk_says_what_happened_and_that_resume_goes_on(call: Call, tmp_path: Path) -> None:
    write(patients(60), tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        answer = call(*COMMANDS["uniform"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    refused(answer, "a limit on the size of files", "--resume")
    assert call(*COMMANDS["uniform"], "--resume").code == 0
    assert not [name for name in files(tmp_path / "run") if "draft" in name]


SCRIPT = """
import os, signal, sys
from tests.fuzz.disks import COMMANDS, DISK, trouble
from pathlib import Path
last = int(sys.argv[1])
type(DISK).touch = lambda self: (setattr(self, "count", self.count + 1),
                                 os.kill(os.getpid(), signal.SIGKILL) if self.count > last else None)
from distcondense import cli
sys.argv = ["distcondense", *COMMANDS["private"]]
with trouble(Path.cwd()):
    cli.main()
"""


@pytest.mark.usefixtures("quick")
def test_a_process_that_was_really_killed_goes_on(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    room = room_in(tmp_path, "killed")
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, "40"], cwd=room.path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    usable(room, "private")
    assert not room.faults
