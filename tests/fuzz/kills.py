"""Every command that writes, killed (SIGKILL) at every one of its file operations, and what must hold afterwards.

`python -m tests.fuzz.kills --all` is all of them. Without `--all` one stands for its like: each place in our code that
touches a file, by what it does and to which file, the first time and the last in the first command that comes there,
and a few operations of every command. A command runs in forks of a process that has run it before, so that a kill costs
what the command costs, and all in one folder, since accounts that are kept by themselves go by a table's path.

After a kill the run goes on with --resume and can be started again with --force: what had been asked of patients is in
the account either way, the folder is clean, the statement verifies, and where two undisturbed runs are the same bits
the resumed one is, too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before anything makes threads: they do not live on in a fork
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"

from tests.fuzz.disks import COMMANDS, prepared, trouble, usable
from tests.fuzz.driver import Room
from tests.fuzz.quick import quickly
from tests.shell import files

FORCED = "--force"
REPLACING = (
    "uniform",
    "private",
    "published",
    "answered",
    "several",
    "clustmix",
    "kde-knn",
    "dp-geng",
    "psygentab",
    "network",
    "batches",
    "charged",
)
COLD = ("dp-geng", "network")  # JAX does not outlive a fork: they are never run in the process that is forked
WAYS = (*COMMANDS, *(f"{name} {FORCED}" for name in REPLACING))
# their places are those of other commands, nearly all: killed by `make exhaustive` only
LONG = ("answered", "sample", "several", "psygentab", "batches", "clustmix", "kde-knn", "attack", "demo", "audit")
SHORT = (*(name for name in COMMANDS if name not in (*COLD, *LONG)), f"uniform {FORCED}", f"private {FORCED}")
FEW = 3  # kills of a command all of whose places are known; one in so many also starts again with --force
MOST = 20  # kills of a command among the tests, which must end in minutes; `--all` has no such bound
Operation = tuple[str, ...]  # what is done, to which file, at which line of ours


@dataclass
class Told:
    """What became of one command's kills."""

    way: str
    operations: int = 0
    kills: int = 0
    faults: list[str] = field(default_factory=list)


def in_a_fork(work: Callable[[], Any]) -> tuple[int, Any]:
    """(the signal that ended it or 0, what it gave): whatever it does to its process, this one goes on."""
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(there)
        try:
            os.write(here, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(1)
    os.close(here)
    with open(there, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status), None
    return 0, json.loads(said) if said else ["fuzzer: the check itself failed"]


def place_of(kind: str, file: str) -> Operation:
    """What tells an operation from its like."""
    frame = sys._getframe(1)
    while frame is not None and f"{os.sep}distcondense{os.sep}" not in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    line = "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return kind, re.sub(r"(?<=draft-)\w+|[0-9a-f]{8,}|\d+", "#", Path(file).name), line


def standing_for(seen: list[Operation], known: set[Operation]) -> list[int]:
    """Of operations that are alike the last, where none was known before, and a few in any case; of many some."""
    last = {operation: number for number, operation in enumerate(seen) if operation not in known}
    some = range(len(seen) // (2 * FEW), len(seen), max(1, len(seen) // FEW))
    chosen = sorted({*some, *last.values()})
    return chosen[:: -(-len(chosen) // MOST)]


class Bench:
    """A folder in which one command is killed again and again."""

    def __init__(self, home: Path, way: str) -> None:
        self.name, _, forced = way.partition(" ")
        self.command = (*COMMANDS[self.name], *([forced] if forced else []))
        self.told, self.start, self.here = Told(way), home / "start", home / "here"
        self.condenses = self.command[0] == "condense"
        self.whole: dict[str, bytes] | None = None  # what every undisturbed run releases, where that is always the same
        self.here.mkdir()
        os.environ["XDG_STATE_HOME"] = str(self.here / "state")
        room = Room(self.here, random.Random(0))
        prepared(room, self.name)
        self.told.faults += room.faults
        self.here.rename(self.start)
        if forced:  # a finished run lies there
            self.told.faults += in_a_fork(partial(self.undisturbed, COMMANDS[self.name]))[1][2]
            shutil.rmtree(self.start)
            self.here.rename(self.start)

    def room(self) -> Room:
        """As the command finds it."""
        shutil.rmtree(self.here, ignore_errors=True)
        return Room(shutil.copytree(self.start, self.here, symlinks=True), random.Random(0))

    def undisturbed(self, command: tuple[Any, ...]) -> tuple[list[Operation], dict[str, str], list[str]]:
        """(its operations, what it releases, what was wrong)"""
        seen, room = list[Operation](), self.room()
        with trouble(self.here, seen=lambda kind, file: seen.append(place_of(kind, file))):
            code = room.cli(*command)
        if code not in (0, 3):
            room.fault("half-written", f"undisturbed, it ends with {code}")
        release = {name: content.hex() for name, content in files(self.here / "run" / "release").items()}
        return seen, release, room.faults

    def survey(self) -> list[Operation]:
        """Its operations, in order; run here, so that what it needs is loaded in every fork."""
        run = partial(self.undisturbed, self.command)
        runs = [in_a_fork(run)[1] if self.name in COLD else run() for _ in range(2 if self.condenses else 1)]
        (seen, release, faults), again = runs[0], runs[-1][1]
        if self.condenses and release and release == again:
            self.whole = {name: bytes.fromhex(content) for name, content in release.items()}
        self.told.operations, self.told.faults = len(seen), [*self.told.faults, *faults]
        return [tuple(operation) for operation in seen]

    def kill(self, at: int, *, again: bool) -> None:
        """At that operation; then all that must hold. `again`: also when it is started again."""
        room = self.room()

        def killed() -> list[str]:
            with trouble(self.here, at, real=True):
                room.cli(*self.command)
            return room.faults

        ended, faults = in_a_fork(killed)
        if ended != signal.SIGKILL:  # noise decided that there is less to do
            self.told.faults += faults or []
            return
        self.told.kills += 1
        left = self.here.with_name("left")
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(self.here, left, symlinks=True)
        spent = account(self.here / "run")
        for check in (self.goes_on, self.starts_again) if self.condenses and again else (self.goes_on,):
            if check == self.starts_again:
                shutil.rmtree(self.here)
                left.rename(self.here)
            ended, faults = in_a_fork(partial(check, spent))
            if ended:
                faults = [f"traceback: ended by signal {ended}"]
            self.told.faults += [f"{fault} [{self.told.way}, killed at operation {at}]" for fault in faults]

    def goes_on(self, spent: dict[str, float]) -> list[str]:
        room, run = Room(self.here, random.Random(0)), self.here / "run"
        replaced = FORCED in self.command and (run / "internal" / "run.json").exists()
        usable(room, self.name)
        if self.condenses:
            self.paid(room, spent)
            if self.whole is not None and not replaced and files(run / "release") != self.whole:
                room.fault("half-written", "the resumed run's release is not that of an undisturbed one")
        return room.faults

    def starts_again(self, spent: dict[str, float]) -> list[str]:
        room, run = Room(self.here, random.Random(0)), self.here / "run"
        if room.cli(*COMMANDS[self.name], FORCED) not in (0, 3):
            room.fault("half-written", "--force does not start again")
            return room.faults
        room.clean(run)
        room.no_canary_in(run)
        room.no_drafts()
        self.paid(room, spent)
        if room.cli("privacy", "verify", "run", "--least", "none") != 0:
            room.fault("half-written", "the run that was started again does not verify")
        return room.faults

    def paid(self, room: Room, spent: dict[str, float]) -> None:
        here = account(self.here / "run")
        if lost := sum(here.get(run, 0.0) < cost * (1 - 1e-9) for run, cost in spent.items()):
            room.fault("wrong acceptance", f"what {lost} runs asked of patients is in no account")


def account(run: Path) -> dict[str, float]:
    """What a folder says that each run spent on patients, its own and earlier ones: Σ of its answers' squared costs.

    Of a run that two accounts know the larger counts: the one that is kept by itself notes all that was planned.
    """
    found: dict[str, float] = {}
    for name in ("ledger.jsonl", "earlier.jsonl"):
        for room in (run / "internal", run / "internal.coming", run / "replaced" / "internal"):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                here = Counter[str]()
                for line in (room / name).read_text().split("\n")[:-1]:  # what follows the last end of line is torn
                    event = json.loads(line)
                    here[event["run"]] += math.inf if event["kind"] == "nonprivate" else event["cost"] ** 2  # type: ignore[assignment]
                found |= {run: max(cost, found.get(run, 0.0)) for run, cost in here.items()}
    return found


@contextlib.contextmanager
def bench(way: str) -> Iterator[Bench]:
    home = Path(tempfile.mkdtemp(prefix="distcondense-kills-"))
    try:
        with quickly():
            yield Bench(home, way)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def killed_everywhere(way: str, known: set[Operation], *, every: bool) -> dict[str, Any]:
    with bench(way) as one:
        seen = one.survey()
        chosen = range(len(seen)) if every else standing_for(seen, known)
        gc.freeze()  # a fork that collects what it inherits would copy all of it
        for number, at in enumerate(chosen):
            one.kill(at, again=every or number % FEW == 0)
        return {**vars(one.told), "places": sorted(set(seen))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kills", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--all", action="store_true", help="at every operation, not at one for its like")
    parser.add_argument("--json", action="store_true", help="what became of each, a line a command")
    said = parser.parse_args()
    os.environ.pop("DISTCONDENSE_STATE", None)  # accounts are kept, each in its command's folder
    warnings.simplefilter("ignore")
    total, known = Counter[str](), set[Operation]()
    for way in said.ways or (WAYS if said.all else SHORT):
        ended, told = in_a_fork(partial(killed_everywhere, way, known, every=said.all))
        if ended or not isinstance(told, dict):
            told = {**vars(Told(way, faults=[f"fuzzer: ended by signal {ended}"])), "places": []}
        known |= set(map(tuple, told.pop("places")))
        total.update({name: told[name] for name in ("operations", "kills")}, faults=len(told["faults"]))
        line = f"{way:<20} {told['operations']:>4} operations, {told['kills']:>4} kills, "
        shown = json.dumps(told) if said.json else line + f"{len(told['faults'])} faults"
        sys.stdout.write("\n      ".join([shown, *([] if said.json else told["faults"][:5])]) + "\n")
        sys.stdout.flush()
    if not said.json:
        sys.stdout.write(", ".join(f"{count:,} {name}" for name, count in total.items()) + "\n")
    sys.exit(1 if total["faults"] else 0)


if __name__ == "__main__":
    main()
