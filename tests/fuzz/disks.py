"""Ways in 10 and 11: run folders that were damaged, disks that refuse, and kills at any file operation.

A kill is an exception at the k-th file operation, after which every other operation fails too, so that no clean-up
runs, as none does after SIGKILL. (Real ones, at every operation of every command: tests/fuzz/kills.py.) Operations of
others, such as Arrow's own writing, are not seen, but the move that makes their files count is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.driver import Room
from tests.fuzz.quick import quickly
from tests.fuzz.statements import releases
from tests.shell import TARGET, write
from tests.tiny import patients

WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.ESTALE, errno.EFBIG, errno.EDQUOT, errno.EMFILE)
INSTEAD = (b"[]", b"{}", b"null", b"1", b'"x"', b"[" * 9999, b'{"a": 1e400}', b"\xff", b"\0" * 50)
FEW = {
    "uniform": 37,
    "published": 50,
    "clustmix": 44,
    "kde-knn": 40,
    "draft": 4,
    "init": 4,
    "keys": 10,
    "account": 3,
    "cap": 2,
    "sign": 4,
    "sample": 4,
    "audit": 4,
    "attack": 8,
    "evaluate": 8,
}  # file operations of a command, about


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Disk:
    """Counts the file operations inside a folder, and at one of them goes wrong."""

    folder: str = ""
    at: int = -1
    error: int | None = None  # None: a kill, and everything after it fails too
    count: int = 0
    dead: bool = False
    asleep: bool = True
    seen: Callable[[str, str], None] | None = None  # told of every operation, and of its file
    real: bool = False  # the kill is the system's

    def touch(self, kind: str, place: str) -> None:
        if self.dead:
            raise Killed
        self.count += 1
        if self.seen is not None:
            self.seen(kind, place)
        if self.count - 1 == self.at:
            if kind == "opened" and self.error is None:
                self.asleep = True
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT))
                self.asleep = False
            if self.real:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.error is None:
                self.dead = True
                raise Killed
            raise OSError(self.error, os.strerror(self.error))


DISK = Disk()
_real_fsync = os.fsync


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in WATCHED or DISK is None or DISK.asleep:  # None: the interpreter is ending
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
        return
    if DISK.folder in (place := _place(arguments[0])):
        DISK.touch(event, place)
        if event == "open" and arguments[2] & os.O_CREAT and not os.path.lexists(place):
            DISK.touch("opened", place)  # it is there, and nothing in it


def _fsync(file: Any) -> None:
    if not DISK.asleep:
        DISK.touch("os.fsync", _place(file))
    _real_fsync(file)


def _place(file: Any) -> str:
    """Where a file is that was said by its path or by its number."""
    if isinstance(file, int):
        with contextlib.suppress(OSError):  # elsewhere than on Linux nobody says
            return os.readlink(f"/proc/self/fd/{file}")
        return ""
    return os.path.abspath(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else ""


sys.addaudithook(_hook)


@contextlib.contextmanager
def trouble(folder: Path, at: int = -1, error: int | None = None, **more: Any) -> Iterator[Disk]:
    """Inside, the disk goes wrong at that operation."""
    DISK.__init__(str(folder), at, error, asleep=False, **more)  # type: ignore[misc]
    os.fsync = _fsync
    try:
        yield DISK
    finally:
        DISK.asleep = True
        os.fsync = _real_fsync


CONDENSE = ("condense", "cohort.csv", *TARGET, "--threads", "1", "--ipc", "2", "--quiet")
COMMANDS: dict[str, tuple[Any, ...]] = {
    "uniform": (*CONDENSE, "--method", "uniform", "--out", "run"),
    "published": (*CONDENSE, "--method", "published", "--sigma-base", "6", "--steps", "3", "--out", "run"),
    "private": (*CONDENSE, "--epsilon", "1", "--out", "run"),
    "answered": (*CONDENSE, "--epsilon", "1", "--out", "run"),  # of many patients: the budget is enough
    "several": (*CONDENSE, "--ipc", "2,3", "--epsilon", "8", "--out", "run"),
    "clustmix": (*CONDENSE, "--method", "clustmix", "--epsilon", "8", "--adapt-steps", "2", "--out", "run"),
    "kde-knn": (*CONDENSE, "--method", "kde-knn", "--neighbours", "3", "--out", "run"),
    "dp-geng": (*CONDENSE, "--method", "dp-geng", "--generated", "200", "--extractors", "2", "--iterations", "3",
                "--units", "4", "--features", "3", "--epsilon", "8", "--out", "run"),
    "psygentab": (*CONDENSE, "--method", "psygentab", "--sampler", "private", "--epsilon", "8", "--out", "run"),
    "network": (*CONDENSE, "--method", "psygentab", "--hidden", "4", "--cells", "4", "--epochs", "1", "--rounds", "1",
                "--out", "run"),
    "charged": (*CONDENSE, "--epsilon", "8", "--account", "account.jsonl", "--out", "run"),
    "batches": ("condense", "table/", *CONDENSE[2:], "--epsilon", "8", "--out", "run"),
    "draft": ("schema", "infer", "cohort.csv", "--out", "draft.toml", "--force"),
    "init": ("init", "cohort.csv", "--yes", "--no-plan", "--out", "draft.toml", "--force"),
    "keys": ("privacy", "keygen", "keys"),
    "account": ("privacy", "ledger", "account.jsonl", "--create", "--cap", "90"),
    "cap": ("privacy", "ledger", "account.jsonl", "--cap", "99"),
    "sample": ("sample", "run", "--rows", "3", "--out", "more.csv", "--force"),
    "sign": ("privacy", "sign", "run", "--key", "keys/private.pem"),
    "study": ("study", "s.toml", "--in-process", "--quiet", "--out", "grid"),
    "evaluate": ("evaluate", "run", "--data", "cohort.csv", "--parts", "fidelity", "--threads", "1", "--quiet"),
    "attack": ("attack", "run", "--data", "cohort.csv", "--only", "membership", "--threads", "1", "--quiet"),
    "demo": ("demo", "--method", "uniform", "--threads", "1", "--quiet", "--out", "demo", "--force"),
    "audit": ("attack", "audit", "--runs", "20", "--canaries", "0", "--out", "audit.json", "--quiet"),
}  # fmt: skip
GRID = """
[study]
name = "s"
seeds = [0]
ipc = 2

[[data]]
name = "ward"
path = "cohort.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "relapse"]

[[method]]
method = "uniform"
"""


def prepared(room: Room, name: str) -> None:
    """What a command finds there."""
    write(patients(3000 if name in ("answered", "sample") else 60), room.path)
    if name == "batches":
        (room.path / "table").mkdir()
        for part in range(2):
            patients(30, part).to_csv(room.path / "table" / f"part-{part}.csv", index=False)
    if name in ("evaluate", "attack", "sign"):
        room.cli(*COMMANDS["uniform"])
    if name == "sample":
        room.cli(*COMMANDS["answered"])
    if name == "sign":
        room.cli(*COMMANDS["keys"])
    if name in ("cap", "charged"):
        room.cli(*COMMANDS["account"])
    if name == "study":
        room.write("s.toml", GRID)


def stopped(room: Room, command: tuple[Any, ...], at: int, error: int | None) -> bool:
    """Run it on a disk that goes wrong there; whether it got so far. Killed, it leaves what a killed process leaves."""
    with trouble(room.path, at, error) as disk, contextlib.suppress(Killed):
        code = room.cli(*command)
        if error is not None and disk.count > at and code not in (0, 2, 3):
            room.fault("traceback", f"exit code {code} where the disk said {errno.errorcode[error]}")
    return disk.count > at


def usable(room: Room, name: str) -> None:
    """After a kill the same command, with --resume where it has one, ends well and leaves a clean folder."""
    command = COMMANDS[name]
    if command[0] == "condense":
        run = room.path / "run"
        if (run / "internal" / "run.json").exists() and not (run / "internal.coming").exists():
            if room.cli(*command, "--resume") != 2:
                room.fault("half-written", "a finished run was resumed")
        elif room.cli(*command, "--resume") not in (0, 3):  # 3: no answer at this budget, which is an end, too
            room.fault("half-written", f"--resume does not go on ({name})")
            return
        room.clean(run)
        room.no_canary_in(run)
        if room.cli("privacy", "verify", "run", "--least", "none") != 0:
            room.fault("half-written", f"the resumed run does not verify ({name})")
    elif name in ("account", "keys"):
        if room.cli(*command) not in (0, 2):  # 2: it is there already
            room.fault("half-written", f"{name}: neither there nor to be made")
        if name == "account" and room.cli("privacy", "ledger", "account.jsonl") != 0:
            room.fault("half-written", "the account cannot be read")
        if name == "keys" and not all((room.path / "keys" / key).exists() for key in ("private.pem", "public.pem")):
            room.fault("half-written", "half a pair of keys")
    elif room.cli(*command, shown=name in ("draft", "init")) != 0:
        room.fault("half-written", f"{name} cannot be done again")
    if name in ("evaluate", "attack", "sign"):
        room.clean(room.path / "run")
        if room.cli("privacy", "verify", "run", "--least", "none") != 0:
            room.fault("half-written", f"the run does not verify any more ({name})")
    if name in ("study", "demo"):
        for run in (room.path / "grid" / "cells").iterdir() if name == "study" else (room.path / "demo").glob("*/*"):
            room.clean(run)
            room.no_canary_in(run)
    room.no_drafts()


def kills(room: Room, name: str | None = None, at: int | None = None) -> bool:
    """A kill, or a disk that refuses, at one file operation; then the same again, to the end. Whether it got so far."""
    rng = room.rng
    name = name or rng.choice(("uniform",) * 12 + tuple(COMMANDS))
    at = rng.randrange(FEW.get(name, 130)) if at is None else at
    with quickly():
        prepared(room, name)
        if COMMANDS[name][0] == "condense" and rng.random() < 0.3:  # a finished run lies there and is replaced
            room.cli(*COMMANDS["uniform"])
            command = (*COMMANDS[name], "--force")
        else:
            command = COMMANDS[name]
        there = stopped(room, command, at, rng.choice(ERRORS) if rng.random() < 0.3 else None)
        usable(room, name)
    return there


def folders(room: Room) -> None:
    """A run's folder with one of its files damaged, then whatever a user might do with it."""
    rng = room.rng
    write(patients(60), room.path)
    run = room.path / "run"
    if rng.random() < 0.5:
        release = run / "release"
        release.mkdir(parents=True)
        for name, content in releases()[rng.choice(("private", "published"))].items():
            (release / name).write_bytes(content)
        shutil.copytree(_finished(), run / "internal")
    else:
        shutil.copytree(_unfinished(), run)
    there = sorted(path for path in run.rglob("*") if path.is_file())
    for _ in range(rng.choice((1, 1, 2))):
        _damaged(room, rng.choice(there))
    with quickly():
        command = rng.choice(
            (
                (*COMMANDS["uniform"], "--resume"),
                (*COMMANDS["uniform"], "--force"),
                COMMANDS["uniform"],
                ("privacy", "verify", "run"),
                ("evaluate", "run", "--data", "cohort.csv", "--parts", "fidelity"),
                ("attack", "run", "--data", "cohort.csv", "--only", "copies"),
                (*COMMANDS["private"], "--resume"),
                (*COMMANDS["published"], "--resume"),
            )
        )
        code = room.cli(*command)
    if code == 0 and command[0] == "condense":
        room.clean(run)


def _damaged(room: Room, path: Path) -> None:
    rng = room.rng
    content = path.read_bytes() if path.is_file() else b""
    path.unlink(missing_ok=True) if not path.is_dir() or path.is_symlink() else shutil.rmtree(path)
    turn = rng.randrange(8)
    if turn == 0:
        path.mkdir()
    elif turn == 1:
        path.symlink_to(path.name)
    elif turn == 2:
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif turn == 3:
        path.write_bytes(rng.choice(INSTEAD))
    elif turn == 4:
        path.write_bytes(b"")
    elif turn == 5:
        place = rng.randrange(len(content) + 1)
        path.write_bytes(content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :])
    elif turn == 6:
        path.write_bytes(content + content)


def _kept(make: Callable[[Room], Path], name: str) -> Path:
    """A folder that is made once and copied."""
    import atexit
    import random
    import tempfile

    if name not in _KEPT:
        home = Path(tempfile.mkdtemp(prefix="distcondense-fuzz-kept-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        room = Room(home, random.Random(0))
        write(patients(60), home)
        with quickly():
            _KEPT[name] = make(room)
        assert not room.faults, room.faults
    return _KEPT[name]


_KEPT: dict[str, Path] = {}


def _finished() -> Path:
    def make(room: Room) -> Path:
        room.cli(*COMMANDS["uniform"])
        return room.path / "run" / "internal"

    return _kept(make, "finished")


def _unfinished() -> Path:
    """Of a private run that was killed when it had asked some of its questions."""

    def make(room: Room) -> Path:
        stopped(room, COMMANDS["private"], 30, None)
        return room.path / "run"

    return _kept(make, "unfinished")
