"""A file of JSON lines that only ever grows, each naming the digest of the line before it.

A line that was changed, moved or taken out from between others is noticed; lines cut off at the end are not. Every line
is synced before it counts; processes and threads lock the file while they read it and while they add to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, brief, refuse_os
from distcondense.outside import parse_json
from distcondense.privacy.ledger import sync_folder

DRAFT = ".draft-"
OLDER = (
    "it must be as it was after its last line: an older copy counts too little. Without it what was spent is not "
    "known: begin another account, and tell in its about that this one is lost"
)
WRITABLE = "must be writable: a run is charged before it reads"


class UnwritableFileError(RunFolderError):
    """The disk, or the right to it, does not allow to write the file."""


class ChainedFile:
    """The chained file at `path`, called `name` in errors."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def create(self, head: dict[str, Any], *entries: dict[str, Any]) -> None:
        """Begin it with a first line, and entries after it; one that is there already is not touched."""
        lines = [_line({**head, "when": _now()})]
        for entry in entries:
            lines.append(_linked(lines, entry))
        try:
            self._begin(b"".join(lines))
        except FileExistsError:
            raise RunFolderError(
                self.name, "must be new to be created", found="a file of that name", fix="use it as it is, or another"
            ) from None
        except OSError as error:
            refuse_os(error, self.name, WRITABLE, UnwritableFileError)

    def read(self) -> list[bytes]:
        """Its whole lines, each with its end."""
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except FileNotFoundError:
            raise RunFolderError(
                self.name,
                "must exist",
                found="no such file",
                fix=f"check the path, or begin one: distcondense privacy ledger {self.path} --create",
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a name that no disk can hold
            raise RunFolderError(
                brief(self.name), "must be a readable file", found=type(error).__name__, fix="check the path"
            ) from None
        return self._lines(content)

    @contextlib.contextmanager
    def locked(self) -> Iterator[tuple[int, list[bytes]]]:
        """The open file and its lines, for one process (and one thread) at a time."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            self.read()  # raises what there is to say
            raise
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, however this process ends
            self._clear_drafts()
            parts = []
            while part := os.read(file, 2**20):
                parts.append(part)
            yield file, self._lines(b"".join(parts))
        finally:
            os.close(file)

    def append(self, file: int, lines: list[bytes], entry: dict[str, Any]) -> None:
        """One more line, synced. What could not be written whole is taken back: nobody has read anything for it yet."""
        size = sum(map(len, lines))
        torn = b"" if lines[-1].endswith(b"\n") else b"\n"  # whole but for its end
        line = _linked(lines, entry)
        try:
            _write(file, torn + line)
        except OSError as error:
            os.ftruncate(file, size)
            os.fsync(file)
            raise self._unwritable(error) from None
        lines[-1] += torn
        lines.append(line)

    def _begin(self, content: bytes) -> None:
        """A new file that has its name only when it is whole: an empty one is damage, never one that was just begun."""
        self._clear_drafts()
        if os.path.lexists(self.path):
            raise FileExistsError
        draft = self.path.with_name(f"{self.path.name}{DRAFT}{uuid.uuid4().hex[:8]}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # it is being written, whoever clears up
            _write(file, content)
            try:
                os.link(draft, self.path)  # unlike a move a link never replaces what another process has begun
            except FileExistsError:
                raise
            except OSError:  # a disk that has no links
                os.rename(draft, self.path)
        finally:
            try:
                draft.unlink(missing_ok=True)
            finally:
                os.close(file)
        sync_folder(self.path.parent)

    def _clear_drafts(self) -> None:
        """Remove what a process left that was killed while it began this file."""
        for draft in self.path.parent.glob(f"{glob.escape(self.path.name)}{DRAFT}*"):
            with contextlib.suppress(OSError), open(draft, "rb") as file:
                # one that is the file itself is whole, and whoever reads it locks both names
                if not (self.path.exists() and draft.samefile(self.path)):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink(missing_ok=True)

    def _lines(self, content: bytes) -> list[bytes]:
        """Whole lines. One torn by a power cut is refused: it may be one that was cut off later."""
        lines = content.splitlines(keepends=True)
        if not lines:
            raise RunFolderError(self.name, "must be an account's file", found="an empty file", fix=OLDER)
        if not lines[-1].endswith(b"\n") and parsed_line(lines[-1]) is None:
            raise RunFolderError(
                self.name,
                "must end with a whole line",
                found=f"line {len(lines)} cut off",
                fix=f"{OLDER}; only if the machine went down while the line was written, nobody has read anything for "
                "it, and it may be taken out",
            )
        return lines

    def _unwritable(self, error: OSError) -> UnwritableFileError:
        return UnwritableFileError(
            self.name,
            WRITABLE,
            found=type(error).__name__,
            fix="ask the custodian for the right to write it, or for room on its disk; no patient was read",
        )


def entry_of(lines: list[bytes], number: int) -> dict[str, Any]:
    """The entry on line `number` (from 1 on); ValueError where it is not the one that was written there."""
    entry = parsed_line(lines[number])
    if not isinstance(entry, dict) or entry.get("number") != number:
        raise ValueError
    if entry.get("previous") != line_digest(lines[number - 1]):
        raise ValueError
    return entry


def parsed_line(line: bytes) -> Any:
    """What a line holds; None where it is no JSON."""
    try:
        return parse_json(line)
    except ValueError:
        return None


def line_digest(line: bytes) -> str:
    """SHA-256 of a line without its end."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def _linked(lines: list[bytes], entry: dict[str, Any]) -> bytes:
    """An entry as the line after these."""
    return _line({"number": len(lines), "previous": line_digest(lines[-1]), "when": _now(), **entry})


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
    os.fsync(file)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
