"""One case after another: a room of its own, a call as a user makes it, and what must hold whatever comes of it."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcondense import cli
from distcondense.errors import UserError

TEXT, NUMBER = "CANARY-NAME", "987654"  # of patients: in no message and no release
FIRST = "FIRSTLINE-NAME"  # in a first line that is no header: in nothing at all
CANARIES = (TEXT, NUMBER, FIRST)
# a number stands by itself: the same digits inside a hash or a long fraction are nobody's
_SEEN = {one: re.compile(rf"(?<![0-9a-f.]){one}(?![0-9a-f])" if one == NUMBER else re.escape(one)) for one in CANARIES}
KINDS = {
    "traceback": "tracebacks",
    "canary": "canaries",
    "half-written": "half-written",
    "wrong acceptance": "wrong acceptances",
    "endless": "endless",
    "fuzzer": "faults of the fuzzer",
}
LONGEST = 120  # seconds of computing that a case may take: some would never end. A busy machine takes none of them


@dataclass
class Room:
    """Where a case happens, what it draws from, and what was found wrong."""

    path: Path
    rng: random.Random
    faults: list[str] = field(default_factory=list)

    def fault(self, kind: str, what: str) -> None:
        self.faults.append(f"{kind}: {what}")

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.path / name
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path

    # -- calls

    def cli(self, *arguments: Any, shown: bool = False) -> int:
        """A command as a shell would run it; `shown`: what it prints may hold patients' values (a draft)."""
        out, err, code, before = io.StringIO(), io.StringIO(), 0, (sys.argv, Path.cwd())
        there = self._files()
        sys.argv = ["distcondense", *map(str, arguments)]
        os.chdir(self.path)
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                warnings.catch_warnings(),
                _filters_kept(),
            ):
                cli.main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 0 if done.code is None else 1
        except Exception as error:  # what a user would see as a traceback
            self.fault("traceback", f"{_last(error)} from {' '.join(map(str, arguments))[:200]!r}")
            code = 1
        finally:
            sys.argv = before[0]
            os.chdir(before[1])
        if code not in (0, 1, 2, 3):
            self.fault("traceback", f"exit code {code}")
        said = err.getvalue() + ("" if shown and code == 0 else out.getvalue())
        self.no_canary(said, "the terminal")
        if FIRST in out.getvalue():
            self.fault("canary", "a first line on the terminal")
        for path in self._files().items() - there.items():
            self._no_canary_in_file(path[0], (FIRST,) if shown else CANARIES)
        return code

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """With the case's own folder as the working directory: whatever is written, is written there."""
        before = Path.cwd()
        os.chdir(self.path)
        try:
            yield
        finally:
            os.chdir(before)

    def call(self, what: str, call: Callable[[], Any]) -> Any:
        """A call of the API: an answer, or an error of our own tree. None where it was refused."""
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = call()
        except UserError as error:
            self.no_canary(str(error), f"the refusal of {what}")
            return None
        except Exception as error:
            self.fault("traceback", f"{_last(error)} from {what}")
            return None
        for one in said:
            self.no_canary(str(one.message), f"a warning of {what}")
        return found

    # -- what must hold

    def no_canary(self, text: str, where: str) -> None:
        for canary in CANARIES:
            if _SEEN[canary].search(text):
                self.fault("canary", f"{canary} in {where}")

    def _files(self) -> dict[Path, tuple[int, int]]:
        """Every file outside internal/, and what changes when it is written."""
        found = {}
        for path in self.path.rglob("*"):
            with contextlib.suppress(OSError):
                if (
                    not any(part.startswith("internal") for part in path.relative_to(self.path).parts)
                    and path.is_file()
                ):
                    found[path] = (path.stat().st_mtime_ns, path.stat().st_size)
        return found

    def _no_canary_in_file(self, path: Path, canaries: tuple[str, ...]) -> None:
        content = path.read_bytes().decode("latin-1")
        for canary in canaries:
            if _SEEN[canary].search(content):
                self.fault("canary", f"{canary} in {path.relative_to(self.path)}")

    def no_canary_in(self, folder: Path) -> None:
        """Nowhere outside internal/."""
        for path in self._files():
            if folder in path.parents:
                self._no_canary_in_file(path, CANARIES)

    def no_drafts(self) -> None:
        """Nothing half-written, wherever."""
        left = [str(path.relative_to(self.path)) for path in self.path.rglob("*") if ".draft" in path.name]
        if left:
            self.fault("half-written", f"left over: {left[:3]}")

    def clean(self, run: Path) -> None:
        """A finished run's folder: two rooms, nothing left over."""
        names = {path.name for path in run.iterdir()}
        if not {"internal", "release"} <= names <= {"internal", "release", "cells"}:
            self.fault("half-written", f"a finished folder holds {sorted(names)}")
        left = [str(path.relative_to(run)) for path in run.rglob("*") if ".draft" in path.name]
        if left:
            self.fault("half-written", f"drafts after a finished run: {left[:3]}")


@contextlib.contextmanager
def _filters_kept() -> Iterator[None]:
    """`main` sets what shows a warning, for a process of its own."""
    before = warnings.showwarning
    try:
        yield
    finally:
        warnings.showwarning = before


def _last(error: BaseException) -> str:
    """Type, message and the innermost place of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}distcondense{os.sep}" in frame.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__}({str(error)[:80]!r}) at {place}"


Way = Callable[[Room], None]


def run_case(way: Way, seed: int) -> list[str]:
    """One case in a fresh room; what was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="distcondense-fuzz-"))
    room = Room(folder, random.Random(seed))
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # accounts that are kept by themselves, of this case only
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        way(room)
    except TooLong:
        room.fault("endless", f"more than {LONGEST} seconds of computing")
    except Exception as error:  # the fuzzer's own mistake is a fault too
        room.fault("fuzzer", "".join(traceback.format_exception(error))[-600:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
    return room.faults


class TooLong(BaseException):
    """A case that does not end; no `except Exception` may swallow it."""


def _too_long(*_: Any) -> None:
    raise TooLong
