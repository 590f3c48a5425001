"""`Ledger`: the append-only record of every access to patients, on disk before the access is made.

With a path each event is one JSON line, flushed and synced before `enter` returns, and the gate enters before it
computes. So a run killed at any moment has paid for everything it may have seen. Beside it lies a second file with the
noisy answers (already private: they are what the guarantee covers), so that a killed run resumes without asking again.
An event whose answer was not kept stays spent: it is lost with the crash and is never asked a second time.

Two copies of a ledger would each be answered once more. So where the patients have an account it holds the ledger's
`Head`, and moves it on while the line is written: of two copies only the first can.

A site among several keeps its answers elsewhere, and enters which bytes it gave (`note`): nothing else may be given.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import uuid
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import RunFolderError, SettingsError, os_errors
from distcondense.outside import parse_json
from distcondense.privacy.events import Event

_WRITABLE = "must be a file that can be read and written"


class Head(NamedTuple):
    """How far a ledger goes."""

    events: int
    digest: str  # SHA-256 of its lines


NO_EVENTS = Head(0, hashlib.sha256().hexdigest())


class Heads(Protocol):
    """What an account does for a ledger: it knows how far the ledger went, and whether this is the one."""

    def opened(self, head: Head, one_before: Head) -> None:
        """A ledger is there again: refused where it is neither the one that went on nor that with one line more."""
        ...

    def moving(self, before: Head, after: Head) -> AbstractContextManager[None]:
        """Write a line in here: `before` must be the head, `after` is."""
        ...


class Ledger:
    """Append-only. `earlier` events (of other runs on the same patients) count as spent and are not answered again.

    Threads may share one; `lock` holds together what must not be torn apart, e.g. to look at it and then to enter.
    """

    def __init__(
        self, path: Path | None = None, earlier: Sequence[Event] = (), *, run: str = "", account: Heads | None = None
    ) -> None:
        """`run`: the name that events are entered under; a random one if not said, that of the file if it has some."""
        self.path = path
        self.lock = RLock()
        self._earlier = tuple(earlier)
        self._own: list[Event] = []
        self._answers: dict[int, NDArray[Any]] = {}
        self._noted: dict[int, str] = {}
        self._size = 0  # of the file as this ledger knows it
        self._session, self._account = new_run(), account
        self._hash, self._one_before = hashlib.sha256(), NO_EVENTS
        if path is not None and path.exists():
            self._load(path)
        elif path is not None and self._beside(path).exists():
            self._refuse_shortened()
        self.run = self._own[0].run if self._own else run or new_run()
        self._loaded = len(self._own)  # these were entered by a run that ended, and are replayed before anything new
        self._cursor = 0
        if account is not None:
            account.opened(self.head, self._one_before)

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is spent: earlier runs, this run's file, this run."""
        return (*self._earlier, *self._own)

    @property
    def head(self) -> Head:
        """How far it goes: this run's own events."""
        return Head(len(self._own), self._hash.hexdigest())

    @property
    def resuming(self) -> bool:
        """True while events of the run that ended are still to be replayed."""
        return self._cursor < self._loaded

    @property
    def lost(self) -> int:
        """Events of the run that ended whose answers are not there: a kill loses one, a damaged disk any number."""
        return sum(number not in self._answers for number in range(self._loaded))

    def enter(self, event: Event) -> int:
        """Write the event; its number. On disk when this returns."""
        with self.lock:
            if self.resuming:
                raise RunFolderError(
                    "ledger",
                    "must be replayed to its end before anything new is asked",
                    found=f"{self._loaded - self._cursor} events still to come",
                    fix="resume with the settings of the run",
                )
            event = replace(event, run=self.run, session=self._session)
            self._write(event_line(event), len(self._own) + 1)
            self._own.append(event)
            self._loaded = self._cursor = len(self._own)
            return len(self._own) - 1

    def note(self, number: int, digest: str) -> None:
        """Enter which bytes, by their digest, are an event's answer, before anybody gets them. On disk on return."""
        with self.lock:
            if number in self._noted or number != len(self._own) - 1:
                raise SettingsError("note", "must follow its event, once", found=f"event {number}")
            self._write(_note_line(number, digest), len(self._own))
            self._noted[number] = digest

    @property
    def noted(self) -> dict[int, str]:
        """Digests of the bytes that answered, by the number of their event."""
        return dict(self._noted)

    def resume(self, event: Event) -> int | None:
        """The number under which a run that ended already entered this event; None where there is nothing to replay."""
        with self.lock:
            if not self.resuming:
                return None
            number, entered = self._cursor, self._own[self._cursor]
            if entered != replace(event, run=self.run, session=entered.session):
                if self.lost:
                    raise RunFolderError(
                        "ledger",
                        "must have its answers beside it, or a run cannot go on as it began",
                        found=f"{self.lost} of {self._loaded} answers lost",
                        fix="start again with --force (its cost adds up)",
                    )
                raise RunFolderError(
                    "ledger",
                    "must hold the same questions in the same order when a run is resumed",
                    found=f"{entered.words!r} on {len(entered.columns)} columns as event {number}, "
                    f"asked {event.words!r}",
                    fix="resume with the settings of the run, or start a new run folder (its cost adds up)",
                )
            self._cursor += 1
            return number

    def keep(self, number: int, answer: NDArray[Any]) -> None:
        """Store a noisy answer, so that a resumed run need not ask again."""
        with self.lock:
            if number in self._answers or not 0 <= number < len(self._own):
                raise SettingsError("answer", "must belong to one event and be kept once", found=f"event {number}")
            self._answers[number] = np.array(answer)
            if self.path is not None:
                plain = answer.astype(str) if answer.dtype == object else answer  # beyond 64 bits: texts, no pickles
                body = io.BytesIO()
                np.save(body, plain, allow_pickle=False)
                record = io.BytesIO()
                np.save(record, np.array([number, zlib.crc32(body.getvalue())], np.int64), allow_pickle=False)
                with (
                    os_errors("ledger's answers", _WRITABLE, RunFolderError),
                    self._beside(self.path).open("ab") as file,
                ):  # not synced: an answer that is lost stays paid for
                    file.write(record.getvalue() + body.getvalue())

    def kept(self, number: int) -> NDArray[Any] | None:
        """The noisy answer of an event, None where it was lost."""
        answer = self._answers.get(number)
        return None if answer is None else answer.copy()

    @staticmethod
    def _beside(path: Path) -> Path:
        return path.with_suffix(".answers")

    def _write(self, line: bytes, events: int) -> None:
        """A line that makes so many events in all, while the account moves on."""
        hashed = self._hash.copy()
        hashed.update(line)
        after = Head(events, hashed.hexdigest())
        with nullcontext() if self._account is None else self._account.moving(self.head, after):
            if self.path is not None:
                self._append(self.path, line)
        self._hash = hashed

    def _append(self, path: Path, line: bytes) -> None:
        fresh = not path.exists()
        with os_errors("ledger", _WRITABLE, RunFolderError), path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # held until the file closes: two runs must not share what is left
            if file.seek(0, os.SEEK_END) != self._size:
                raise RunFolderError(
                    "ledger",
                    "must be written by one run at a time",
                    found="lines this run did not write",
                    fix="wait for the other run, then resume",
                )
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(line)
        if fresh:
            sync_folder(path.parent)

    def _load(self, path: Path) -> None:
        with os_errors("ledger", _WRITABLE, RunFolderError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a line that another run is writing must not look torn
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):  # torn by a kill inside `enter`: its answer was never computed
                file.truncate(len(whole))
        self._size = len(whole)
        last = whole.rstrip(b"\n").rfind(b"\n") + 1
        self._hash.update(whole[:last])
        before = self._hash.hexdigest()
        self._hash.update(whole[last:])
        self._own, self._noted = _events(whole)
        events = len(self._own)
        self._one_before = Head(events if events - 1 in self._noted else max(events - 1, 0), before)
        answers = self._beside(path)
        if answers.exists():
            self._load_answers(answers)

    @staticmethod
    def _refuse_shortened() -> NoReturn:
        raise RunFolderError(
            "ledger",
            "must hold every event that was answered",
            found="answers to events it does not list",
            fix="start again with --force, and count as spent all that this run had planned, as an account does",
        )

    def _load_answers(self, path: Path) -> None:
        with os_errors("ledger's answers", _WRITABLE, RunFolderError):
            content = path.read_bytes()
        file, good = io.BytesIO(content), 0
        while good < len(content):
            try:
                number, check = (int(value) for value in np.load(file, allow_pickle=False))
                start = file.tell()
                answer = np.load(file, allow_pickle=False)
            except (ValueError, EOFError, OSError, TypeError):
                break  # torn: this answer, the last, is lost
            if zlib.crc32(content[start : file.tell()]) != check:
                break
            if not 0 <= number < len(self._own):
                self._refuse_shortened()
            self._answers[number] = np.array([int(v) for v in answer], object) if answer.dtype.kind == "U" else answer
            good = file.tell()
        if good < len(content):
            os.truncate(path, good)


def new_run() -> str:
    """A random name for a run: a name, not noise."""
    return uuid.uuid4().hex


def sync_folder(path: Path) -> None:
    """The names in a folder must survive a power cut too: of files that are new, moved or gone."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_events(path: Path) -> tuple[Event, ...]:
    """The events of a ledger on disk, which is left as it is: a line torn by a kill is not one. None where no file."""
    if not os.path.lexists(path):
        return ()
    with os_errors("ledger", "must be a readable file", RunFolderError):
        text = path.read_bytes()
    return tuple(_events(text[: text.rfind(b"\n") + 1])[0])


def event_line(event: Event) -> bytes:
    """An event as a ledger's file holds it."""
    return json.dumps(event.to_dict(), ensure_ascii=False).encode() + b"\n"


def _note_line(number: int, digest: str) -> bytes:
    return json.dumps({"noted": number, "digest": digest}).encode() + b"\n"


def _events(lines: bytes) -> tuple[list[Event], dict[int, str]]:
    """The events, and the digests of answers by the number of their event."""
    events: list[Event] = []
    noted: dict[int, str] = {}
    for number, line in enumerate(lines.splitlines()):
        try:
            entry = parse_json(line)
            if "noted" not in entry:
                events.append(Event.from_dict(entry))
            elif entry["noted"] == len(events) - 1 and entry["noted"] not in noted:  # it follows its event
                noted[len(events) - 1] = str(entry["digest"])
            else:
                raise ValueError
        except (ValueError, KeyError, AttributeError, TypeError):
            raise RunFolderError(
                "ledger",
                "must hold one event on each line",
                found=f"line {number + 1} unreadable",
                fix="read it with the version that wrote it, or start again in a new folder: all that this run "
                "had planned counts as spent, as an account does",
            ) from None
    return events, noted
