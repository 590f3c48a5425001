"""A run killed at any of its file operations, or on a disk that refuses one, goes on; a finished folder is clean."""

from __future__ import annotations

import contextlib
import errno
import json
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
import typer

from distcondense import cli
from tests.fuzz.disks import COMMANDS, ERRORS, prepared, stopped, usable
from tests.fuzz.driver import Room
from tests.fuzz.kills import SHORT
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


def at_operations(folder: Path, name: str, error: int, first: int, step: int) -> int:
    """Refuse the command one of its operations after the other, and go on; how many there were."""
    start = room_in(folder, "start", name)
    for at in range(first, MOST, step):
        room = Room(shutil.copytree(start.path, folder / f"at-{at}"), random.Random(0))
        there = stopped(room, COMMANDS[name], at, error)
        if there:
            usable(room, name)
        assert not room.faults, (name, at, room.faults)
        if not there:
            return at
    raise AssertionError("no end of operations")


@pytest.fixture(scope="module")
def killed() -> dict[str, dict[str, Any]]:
    """What became of each command's kills: in one process that never had threads, which would not outlive its forks."""
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "tests.fuzz.kills", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told, done.stderr
    return {one["way"]: one for one in told}


@pytest.mark.parametrize("way", SHORT)
def test_a_command_killed_at_its_file_operations_goes_on_and_leaves_a_clean_folder(
    killed: dict[str, dict[str, Any]], way: str
) -> None:
    """At some of the places that touch a file: tests/fuzz/kills.py, where `--all` is each of its operations."""
    assert killed[way]["faults"] == []
    assert killed[way]["kills"] >= 2


def test_a_kill_of_every_command_that_writes_is_tried() -> None:
    """Whoever adds a command says how it is killed, or here that it writes nothing."""
    silent = {"plan", "privacy verify", "schema check", "submit"}
    # asks at a terminal before its one file, written whole or not at all; each party: tests/federated/test_kills.py
    elsewhere = {"schema rules", "federate"}
    # of simulated tables, each file whole or not at all: tests/bench/test_bench.py, tests/cli
    measured = {"bench", "simulate"}
    groups, found = ("privacy", "schema", "attack"), set[str]()
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        found |= {f"{name} {one}" for one in command.commands} if name in groups else {name}
    tried = {" ".join(words[:2]) if words[0] in groups else words[0] for words in COMMANDS.values()}
    assert "attack run" in tried  # of the release in run/, a command without a name
    assert {name for name in found if name != "attack a-run"} == (
        tried - {"attack run"}
    ) | silent | elsewhere | measured


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_kill_before_a_run_is_replaced_leaves_nothing_beside_it(tmp_path: Path, at: int) -> None:
    room = room_in(tmp_path, "replacing")
    assert room.cli(*COMMANDS["uniform"]) == 0
    assert stopped(room, (*COMMANDS["published"], "--force"), at, None)
    usable(room, "published")  # refused: the run there has other settings
    assert not room.faults


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", ERRORS[:3], ids=errno.errorcode.get)
def test_a_disk_that_refuses_is_said_and_the_run_goes_on(tmp_path: Path, error: int) -> None:
    assert at_operations(tmp_path, "uniform", error, first=ERRORS.index(error), step=6) > 20


@contextlib.contextmanager
def full(most: int) -> Iterator[None]:
    """Inside, no file grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("name", "most"), [("uniform", 50), ("uniform", 2000), ("private", 50), ("private", 900)])
def test_a_full_disk_says_what_happened_and_that_resume_goes_on(
    call: Call, tmp_path: Path, name: str, most: int
) -> None:
    write(patients(60), tmp_path)
    with full(most):
        answer = call(*COMMANDS[name])
    refused(answer, "a limit on the size of files")
    there = (tmp_path / "run").exists()  # else nothing of the run was written, and there is nothing to go on with
    assert not there or "--resume" in answer.err
    assert call(*COMMANDS[name], *(["--resume"] if there else [])).code in (0, 3)
    assert not [file for file in files(tmp_path / "run") if "draft" in file]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["draft", "init", "keys", "account", "sign", "evaluate", "attack", "study"])
def test_a_full_disk_stops_any_command_in_words_and_leaves_nothing_half(call: Call, tmp_path: Path, name: str) -> None:
    room = room_in(tmp_path, name, name)
    with full(10), room.inside():
        answer = call(*COMMANDS[name])
    refused(answer, "a limit on the size of files")
    usable(room, name)
    assert not room.faults
