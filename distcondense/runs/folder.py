"""Run folders: two rooms, atomic writes, one owner.

`release/` holds only what the stated guarantee covers. `internal/` holds what was computed from patients outside it.
A folder remembers which settings and data it belongs to; a finished one is replaced only with `force`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, brief, os_errors
from distcondense.outside import OutsideError, parse_json, read_text
from distcondense.privacy.accountant import unite
from distcondense.privacy.binding import json_digest
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import event_line, new_run, read_events, sync_folder
from distcondense.runs.checkpoint import Checkpoint
from distcondense.runs.files import plain, write_json, write_whole

RECORD = "run.json"
# who owns a folder between two runs: killed there, any run may go on with it, and what was spent stays noted
ABANDONED, REPLACING = NOBODY = ("abandoned", "replacing")


@dataclass(frozen=True)
class RunFolder:
    """One run's folder."""

    path: Path

    @property
    def release(self) -> Path:
        return self.path / "release"

    @property
    def internal(self) -> Path:
        return self.path / "internal"

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.internal / "checkpoint.npz")

    @property
    def sampler(self) -> Path:
        """What left the gate, for further rows; covered, though it is not handed over."""
        return self.internal / "sampler.json"

    @property
    def ledger(self) -> Path:
        """Every access of a private run to patients, on disk before it is made."""
        return self.internal / "ledger.jsonl"

    @property
    def steps(self) -> Path:
        """The noise of every step of a published run, on disk before the state that came of it."""
        return self.internal / "steps.jsonl"

    @property
    def _earlier(self) -> Path:
        """What runs spent that this folder held before: their patients were read all the same."""
        return self.internal / "earlier.jsonl"

    def earlier_events(self) -> tuple[Event, ...]:
        return read_events(self._earlier)

    def replace_ledger(self, events: Sequence[Event]) -> None:
        """Another run's result is saved here: its ledger takes the place of the one that lies here."""
        for path in (self.ledger, self.ledger.with_suffix(".answers")):
            path.unlink(missing_ok=True)
        write_events(self.ledger, events)

    def account(self, events: Sequence[Event]) -> None:
        """Note these as spent by earlier runs, but for those of the run that lies here."""
        here = {self.run, *(event.run for event in read_events(self.ledger))}
        rest = [event for event in unite(events) if event.run not in here or not event.run]
        if rest or self._earlier.exists():
            write_events(self._earlier, rest)

    def holdout_entropy(self, fresh: int) -> int:
        """The coins that decide who is left out: drawn once, kept so that a resumed run leaves out the same persons."""
        path = self.internal / "holdout.json"
        if os.path.lexists(path):
            try:
                return int(parse_json(read_text(path, "holdout.json", RunFolderError))["entropy"])
            except (OutsideError, KeyError, TypeError, ValueError):
                raise RunFolderError(
                    "holdout.json",
                    "must say who is left out",
                    found="a damaged file",
                    fix="start again with --force (its cost adds up)",
                ) from None
        if read_events(self.ledger):  # who is left out was decided before anybody was read
            raise RunFolderError(
                "holdout.json",
                "must be kept: it says who is left out",
                found="a ledger, but no holdout.json",
                fix="start again with --force (its cost adds up)",
            )
        write_json(path, {"entropy": str(fresh)})
        return fresh

    @property
    def run(self) -> str:
        """The random name of the run whose folder this is, which accounts know it by; empty where it has none."""
        return str(self._signature().get("run", ""))

    @property
    def finished(self) -> bool:
        return (self.internal / RECORD).exists()

    def record(self) -> dict[str, Any]:
        """run.json as the run wrote it: what it says of who was held out, or how the table was read, is relied on."""
        what = f"run folder {brief(self.path)}"
        with os_errors(what, "must be readable", RunFolderError):
            finished = self.finished
        if not finished:
            raise RunFolderError(
                what,
                "must hold a finished run",
                found=f"no {RECORD}",
                fix="say the folder that condense wrote; --resume finishes one that was interrupted",
            )
        try:
            found = parse_json(read_text(self.internal / RECORD, RECORD, RunFolderError))
            digest = found.pop("digest", None)
            good = json_digest(found) == digest
        except (OutsideError, TypeError, AttributeError):
            good = False
        if not good:
            raise RunFolderError(
                what,
                f"{RECORD} must be as the run wrote it",
                found="a changed or damaged file",
                fix="restore it from a backup, or condense again",
            )
        return dict(found)

    def claim(self, identity: dict[str, Any], *, resume: bool, force: bool) -> None:
        """Make the folder this run's, or say why not. Nothing is written if it cannot be."""
        what = f"run folder {brief(self.path)}"
        if resume and force:
            raise RunFolderError(
                what, "takes --resume or --force", found="both", fix="--resume to go on, --force to start again"
            )
        if os.path.lexists(self.path) and not self.path.is_dir():
            raise RunFolderError(what, "must be a folder", found="a file", fix="choose another --out")
        mine, name = _digest(identity), new_run()
        with os_errors(what, "must be readable and writable", RunFolderError):
            self._claim(what, mine, name, resume=resume, force=force)

    def _claim(self, what: str, mine: str, name: str, *, resume: bool, force: bool) -> None:
        self._finish_replacing()
        self.clear_unsigned()
        owner = self._owner()
        if (
            owner is None and self.path.exists() and any(self.path.iterdir())
        ):  # not ours: --force must not clear it either
            raise RunFolderError(
                what, "must be new, empty or a run's", found="other files in it", fix="choose another --out"
            )
        if owner is not None and self.finished and not force:
            self.tidy()  # what a kill left, of the run itself or of one that was to replace it
        if force and owner is not None:
            self._set_aside()
        elif owner is not None and owner != mine and owner not in NOBODY:
            raise RunFolderError(
                what,
                "belongs to a run with other settings or data",
                found="a different run in it",
                fix="choose another --out, or --force to replace it",
            )
        elif owner is not None and self.finished:
            raise RunFolderError(
                what, "holds a finished run", found="run.json", fix="choose another --out, or --force to replace it"
            )
        elif owner is not None and not resume:
            raise RunFolderError(
                what, "holds an unfinished run", found="no run.json", fix="--resume to go on, or --force to start again"
            )
        elif owner is not None:
            asked = read_events(self.ledger)  # it goes on under the name that accounts know it by
            name = asked[0].run if asked else self.run or name
        self.internal.mkdir(parents=True, exist_ok=True)
        write_json(self.internal / "owner.json", {"identity": mine, "run": name})
        for folder in (self.path, self.path.parent):
            sync_folder(folder)
        self._clear_drafts()

    def abandon(self) -> None:
        """Undo a claim whose run failed before there was anything to resume: the folder is as it was.

        A run that has read patients through the gate is not undone: its ledger must stay.
        """
        if self.checkpoint.load() is None and not self.finished and not self.ledger.exists():
            spent = self.earlier_events()
            if spent and not self._replaced.exists():  # of an unfinished run that is gone: its account stays
                write_json(self.internal / "owner.json", {"identity": ABANDONED})
                return
            self._clear()
            if self._replaced.exists():
                for room in self._replaced.iterdir():
                    os.replace(room, self.path / room.name)
                self._replaced.rmdir()
                self.account(spent)
            with contextlib.suppress(OSError):
                self.path.rmdir()  # only if it is empty

    def finish(self, record: Any) -> None:
        """run.json marks the run as finished; its checkpoint (with the noise key) and what it replaced go."""
        said = plain(record)
        write_json(self.internal / RECORD, {**said, "digest": json_digest(said)})
        self.tidy()

    def tidy(self) -> None:
        """Of a finished run: its key, what it replaced and what a kill left half-written go."""
        self.erase_key()
        shutil.rmtree(self._replaced, ignore_errors=True)
        self._clear_drafts()

    def _clear_drafts(self) -> None:
        """What a kill left half-written."""
        for draft in (*self.path.glob("release.draft-*"), *self.path.glob("internal.draft-*")):
            shutil.rmtree(draft, ignore_errors=True)
        for draft in self.internal.glob("*.draft"):
            draft.unlink(missing_ok=True)

    def erase_key(self) -> None:
        """Of a finished run; again by whoever comes next, in case it was killed between its last file and this."""
        self.checkpoint.erase()

    def clear_unsigned(self) -> None:
        """Killed between making the folder and signing it, a run leaves empty rooms: not a run, and nobody's files."""
        if self.path.is_dir() and not (self.internal / "owner.json").exists():
            found = {str(p.relative_to(self.path)) for p in self.path.rglob("*")}
            if found <= {"internal", "internal/owner.json.draft"}:
                for name in sorted(found, reverse=True):
                    (self.path / name).rmdir() if name == "internal" else (self.path / name).unlink()

    def log(self, line: str) -> None:
        """A line of the log, where there is room for it: no run stops for its log."""
        with contextlib.suppress(OSError), open(self.internal / "log.txt", "a", encoding="utf-8") as out:
            out.write(line + "\n")

    def write_release(self, fill: Callable[[Path], None]) -> None:
        """Write all of `release/` aside and move it into place at once."""
        draft = Path(tempfile.mkdtemp(prefix="release.draft-", dir=self.path))
        try:
            fill(draft)
            os.chmod(draft, 0o755)
            if self.release.exists():
                shutil.rmtree(self.release)
            os.replace(draft, self.release)
            sync_folder(self.path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _owner(self) -> str | None:
        found = self._signature()
        return str(found.get("identity", "unreadable")) if found else None

    def _signature(self) -> dict[str, Any]:
        """owner.json; nothing where there is none."""
        try:
            found = parse_json((self.internal / "owner.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OutsideError, IsADirectoryError):
            found = None
        return found if isinstance(found, dict) and found else {"identity": "unreadable"}

    @property
    def _replaced(self) -> Path:
        return self.path / "replaced"

    def _set_aside(self) -> None:
        """A finished run that is to be replaced is kept until its successor is finished; an unfinished one is not.

        What was spent on patients goes first into the room that will take the place of `internal/`: killed at any
        moment, `_finish_replacing` finds it.
        """
        shutil.rmtree(self._coming, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="internal.draft-", dir=self.path))
        if spent := unite(self.earlier_events(), self.read_here()):
            write_events(draft / self._earlier.name, spent)
        write_json(draft / "owner.json", {"identity": REPLACING})
        os.replace(draft, self._coming)
        sync_folder(self.path)
        if self.finished:
            shutil.rmtree(self._replaced, ignore_errors=True)
            self._replaced.mkdir()
            for room in (self.release, self.internal):
                if room.exists():
                    os.replace(room, self._replaced / room.name)
        self._finish_replacing()

    def read_here(self) -> tuple[Event, ...]:
        """What the run that lies here read: its ledger; where it has none, without a gate if anything came of it."""
        charged = read_events(self.ledger)
        made = self.finished or any(path.exists() for path in (self.checkpoint.path, self.steps))
        return (Event.nonprivate(self.run or new_run()),) if made and not charged else charged

    def _finish_replacing(self) -> None:
        if self._coming.exists():
            self._clear()
            os.replace(self._coming, self.internal)
            sync_folder(self.path)

    @property
    def _coming(self) -> Path:
        return self.path / "internal.coming"

    def _clear(self) -> None:
        """Remove what a run wrote, and nothing else that may lie in the folder."""
        drafts = (*self.path.glob("release.draft-*"), *self.path.glob("internal.draft-*"))
        for room in (self.release, self.internal, *drafts):
            shutil.rmtree(room, ignore_errors=True)


def write_events(path: Path, events: Sequence[Event]) -> None:
    """A whole account at once; a run's own ledger grows by `Ledger.enter` only."""
    write_whole(path, lambda draft: draft.write_bytes(b"".join(map(event_line, events))))


def _digest(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain(identity), sort_keys=True).encode()).hexdigest()
