"""`Odometer`: one account for a set of patients, shared by runs, models and studies across folders and processes.

A file of JSON lines that only ever grows: what it is, then a line for every charge and for every change of the cap. A
run is charged all that it will ask before it asks anything; the line is synced before `charge` returns. So a run killed
at any moment has paid for everything it may have seen, and going on under the same name it is not charged again. A run
that reads without a gate has no price: it makes the total unbounded, and where the custodian set a cap it is refused.

Every line names the digest of the one before it: a line that was changed, moved or taken out from between others is
noticed. Lines cut off at the end are not; keep the file with the patients' table, and back it up like one.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import math
import numbers
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distcondense.errors import BudgetError, RunFolderError, SettingsError, UserError, brief, need, refuse_os
from distcondense.outside import parse_json
from distcondense.privacy.accountant import NoSum, membership_advantage, together
from distcondense.privacy.budget import check_budget
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import sync_folder
from distcondense.privacy.statement import NO_SUM, rounded_up

VERSION = 1
DRAFT = ".draft-"
DELTA = 1e-5
BACKUP = "restore it from a backup: what was spent is not known without it"
DIGITS = 4
MOST_TIMES = 1_000_000  # that one run asks the same: more nobody counted


@dataclass(frozen=True)
class Charge:
    """What one run was charged. Everything here is public."""

    number: int  # of its line
    when: str
    run: str
    method: str
    guarantee: str
    about: str
    events: tuple[Event, ...]  # all that it may ask; of which columns is not kept

    @property
    def gated(self) -> bool:
        return not any(event.kind == "nonprivate" for event in self.events)


@dataclass(frozen=True)
class Account:
    """What an odometer's file holds."""

    delta: float
    about: str
    cap: float | None
    caps: tuple[tuple[int, str, float | None], ...]  # (number of its line, when, cap)
    charges: tuple[Charge, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(event for charge in self.charges for event in charge.events)

    @property
    def guarantee(self) -> str:
        """Which ε the total is: that of its weakest charge."""
        return "conditional" if any(charge.guarantee == "conditional" for charge in self.charges) else "end-to-end"

    def total(self, more: Sequence[Event] = ()) -> float | NoSum:
        """ε at δ of all charges (and of `more`), or why there is no such number."""
        events = (*self.events, *more)
        return together(events, self.delta) if events else 0.0


class Odometer:
    """The account in the file at `path`. Threads and processes may share it: every look and every charge locks it."""

    def __init__(self, path: str | Path) -> None:
        need(path, (str, Path), "odometer", "the path of an account", fix="dc.Odometer.create(path) begins one")
        self.path = Path(path)
        self.read()

    @classmethod
    def create(cls, path: str | Path, *, cap: float | None = None, delta: float = DELTA, about: str = "") -> Odometer:
        """Begin an account; one that is there already is not touched. `cap`: the largest ε at δ that is allowed."""
        need(path, (str, Path), "odometer", "the path of an account")
        need(about, str, "about", "a text")
        if about != about.encode("utf-8", "replace").decode():
            raise SettingsError(
                "about", "must be a text that UTF-8 can write", found="half of a pair", fix="other words"
            )
        path = Path(path)
        need(delta, numbers.Real, "delta", "a number")
        check_budget(epsilon=cap, delta=delta)
        cap, delta = None if cap is None else float(cap), float(delta)
        head = _line({"odometer": VERSION, "delta": delta, "about": about, "when": _now()})
        capped = b"" if cap is None else _line(_linked(head, 1, {"entry": "cap", "cap": cap}))
        try:
            _begin(path, head + capped)
        except FileExistsError:
            raise RunFolderError(
                _what(path), "must be new to be created", found="a file of that name", fix="use it as it is, or another"
            ) from None
        except OSError as error:
            refuse_os(error, _what(path), "must be writable: a run is charged before it reads", RunFolderError)
        return cls(path)

    @classmethod
    def open(cls, given: str | Path | Odometer | None) -> Odometer | None:
        """The account that a caller named by its path or brought along."""
        return given if given is None or isinstance(given, Odometer) else cls(given)

    def __repr__(self) -> str:
        return f"Odometer({str(self.path)!r})"

    # ---- looking

    def read(self) -> Account:
        """What the file holds now, checked from its first line to its last."""
        try:
            with open(self.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except FileNotFoundError:
            raise RunFolderError(
                _what(self.path),
                "must exist",
                found="no such file",
                fix=f"check the path, or begin one: distcondense privacy ledger {self.path} --create",
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a name that no disk can hold
            raise RunFolderError(
                brief(_what(self.path)), "must be a readable file", found=type(error).__name__, fix="check the path"
            ) from None
        return _account(_lines(content, self.path), self.path)

    def total(self) -> float | NoSum:
        """ε at the account's δ of everything that was charged; "unbounded" or "different units" where there is none."""
        return self.read().total()

    def others(self, run: str) -> tuple[Event, ...]:
        """What all runs but this one were charged, each event under its run's name."""
        return tuple(event for event in self.read().events if event.run != run)

    def lines(self) -> list[str]:
        """For the custodian: every entry, then the total and what it means."""
        return _words(self.read())

    # ---- writing

    def check(self, run: str, events: Sequence[Event], *, method: str = "", guarantee: str = "end-to-end") -> None:
        """Refuse what `charge` would refuse; nothing is written."""
        self._refuse(self.read(), _charge(run, events, method, guarantee, ""))

    def charge(
        self, run: str, events: Sequence[Event], about: str = "", *, method: str = "", guarantee: str = "end-to-end"
    ) -> None:
        """Enter all that a run may ask, before it asks: on disk when this returns. Once for each name of a run.

        Over the custodian's cap it is refused, and nothing is written.
        """
        wanted = _charge(run, events, method, guarantee, about)
        with self._open() as (file, lines):
            account = _account(lines, self.path)
            if self._refuse(account, wanted):
                return
            counted = [{"times": times, **event.to_dict()} for event, times in Counter(_nameless(events)).items()]
            entry = {
                "entry": "charge",
                "run": run,
                "method": method,
                "guarantee": guarantee,
                "about": about,
                "events": counted,
            }
            _append(file, lines, entry, self.path)

    def set_cap(self, cap: float | None) -> None:
        """The largest ε at the account's δ that runs may reach together, None for no cap: an entry of its own."""
        check_budget(epsilon=cap)
        cap = None if cap is None else float(cap)
        with self._open() as (file, lines):
            _account(lines, self.path)
            _append(file, lines, {"entry": "cap", "cap": cap}, self.path)

    def _refuse(self, account: Account, wanted: Charge) -> bool:
        """True where the run is in the account already; an error where it must not be."""
        for there in account.charges:
            if there.run == wanted.run:
                if Counter(_nameless(there.events)) != Counter(_nameless(wanted.events)):
                    raise RunFolderError(
                        _what(self.path),
                        "must hold one price for one run",
                        found="the same run with another price",
                        fix="resume with the settings and the version of the run, or start it anew (its cost adds up)",
                    )
                return True
        if account.cap is None:
            return False
        what, guarantee = f"account {self.path.name}", account.guarantee
        read = "; no patient was read"
        if not wanted.gated:
            raise BudgetError(
                what,
                f"has a cap of ε = {account.cap:g} ({guarantee}), which no run without a gate can keep",
                found=f"method {wanted.method or 'unknown'}, guarantee {wanted.guarantee}: no ε bounds what it reads",
                fix=f"use another account for it, or take the cap away (distcondense privacy ledger {self.path} "
                f"--cap none){read}",
            )
        both = account.total(wanted.events)
        if isinstance(both, str):
            raise BudgetError(
                what,
                f"has a cap of ε = {account.cap:g} ({guarantee}), which must be a bound of all its runs together",
                found=NO_SUM[both][0],
                fix=f"use another account for it{read}",
            )
        if both > account.cap:
            before = account.total()
            spent = rounded_up(before, DIGITS) if isinstance(before, float) else before
            raise BudgetError(
                what,
                f"must stay within its cap of ε = {account.cap:g} at δ = {account.delta:g} ({guarantee})",
                found=f"ε = {rounded_up(both, DIGITS)} with this run, {spent} before it ({guarantee})",
                fix=f"ask for a smaller epsilon; only the custodian may raise the cap{read}",
            )
        return False

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[int, list[bytes]]]:
        """The file to append to, and its lines, by one process (and one thread) at a time."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            self.read()  # says it
            raise
        except OSError as error:
            raise _unwritable(self.path, error) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, however this process ends
            _clear_drafts(self.path)
            parts = []
            while part := os.read(file, 2**20):
                parts.append(part)
            yield file, _lines(b"".join(parts), self.path)
        finally:
            os.close(file)


# ---- the file ------------------------------------------------------------------------------------------------


def _begin(path: Path, content: bytes) -> None:
    """A new file that has its name only when it is whole: an empty one is damage, never one that was just begun."""
    _clear_drafts(path)
    if os.path.lexists(path):
        raise FileExistsError
    draft = path.with_name(f"{path.name}{DRAFT}{uuid.uuid4().hex[:8]}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # it is being written, whoever clears up
        _write(file, content)
        _name(draft, path)
    finally:
        try:
            draft.unlink(missing_ok=True)
        finally:
            os.close(file)
    sync_folder(path.parent)


def _name(draft: Path, path: Path) -> None:
    """Unlike a move a link never replaces what another process has begun."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a disk that has no links
        os.rename(draft, path)


def _clear_drafts(path: Path) -> None:
    """What a process left that was killed while it began this account."""
    for draft in path.parent.glob(f"{glob.escape(path.name)}{DRAFT}*"):
        with contextlib.suppress(OSError), open(draft, "rb") as file:
            if not (path.exists() and draft.samefile(path)):  # that one is whole, and whoever reads it locks both names
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink(missing_ok=True)


def _lines(content: bytes, path: Path) -> list[bytes]:
    """Whole lines, each with its end. One torn by a power cut is refused: it may be one that was cut off later."""
    lines = content.splitlines(keepends=True)
    if not lines:
        raise RunFolderError(_what(path), "must be an odometer's file", found="an empty file", fix=BACKUP)
    if not lines[-1].endswith(b"\n"):
        try:
            parse_json(lines[-1])
        except ValueError:
            raise RunFolderError(
                _what(path),
                "must end with a whole line",
                found=f"line {len(lines)} cut off",
                fix=f"{BACKUP}; only if the machine went down while a run was being charged, that run has read nobody, "
                "and its unfinished line may be taken out",
            ) from None
    return lines


def _account(lines: Sequence[bytes], path: Path) -> Account:
    """The lines as what they mean; the first that is not as it was written is refused."""
    head = _parsed(lines[0])
    if head.get("odometer") != VERSION:
        raise RunFolderError(
            _what(path),
            "must be an odometer's file of this version",
            found="another file" if "odometer" not in head else "another version",
            fix="check the path, or read it with the version that wrote it",
        )
    charges: list[Charge] = []
    caps: list[tuple[int, str, float | None]] = []
    number = 0
    try:
        delta, about = float(head["delta"]), str(head["about"])
        check_budget(delta=delta)
        for number, line in enumerate(lines[1:], 1):
            entry = _parsed(line)
            if entry.get("previous") != _digest(lines[number - 1]) or entry.get("number") != number:
                raise ValueError
            when = str(entry["when"])
            if entry["entry"] == "cap":
                cap = None if entry["cap"] is None else float(entry["cap"])
                check_budget(epsilon=cap)
                caps.append((number, when, cap))
            elif entry["entry"] == "charge":
                facts = {key: str(entry[key]) for key in ("run", "method", "guarantee", "about")}
                if any(facts["run"] == charge.run for charge in charges):
                    raise ValueError
                charges.append(Charge(number, when, events=_events(entry["events"], facts["run"]), **facts))
            else:
                raise ValueError
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        raise RunFolderError(
            _what(path),
            "must be as it was written, line by line",
            found=f"line {number + 1} changed, moved or damaged",
            fix=BACKUP,
        ) from None
    return Account(delta, about, caps[-1][2] if caps else None, tuple(caps), tuple(charges))


def _events(counted: Sequence[dict[str, Any]], run: str) -> tuple[Event, ...]:
    events: list[Event] = []
    for one in counted:
        times = one["times"]
        if type(times) is not int or not 1 <= times <= MOST_TIMES:
            raise ValueError
        event = Event.from_dict({key: value for key, value in one.items() if key != "times"})
        events += [replace(event, run=run)] * times
    if not events:
        raise ValueError
    return tuple(events)


def _charge(run: str, events: Sequence[Event], method: str, guarantee: str, about: str) -> Charge:
    if not run or not events:
        raise SettingsError(
            "charge",
            "must have the name of a run and what it will ask",
            found=f"run {run!r}, {len(events)} events",
            fix="give it a name of its own, e.g. uuid.uuid4().hex",
        )
    return Charge(0, "", run, method, guarantee, about, tuple(replace(event, run=run) for event in events))


def _nameless(events: Sequence[Event]) -> list[Event]:
    """What an account keeps of events: all but their columns and their run, so that equal ones are counted."""
    return [replace(event, columns=(), run="") for event in events]


def _append(file: int, lines: Sequence[bytes], entry: dict[str, Any], path: Path) -> None:
    """One more line, synced. What could not be written whole is taken back: nobody has read anything for it yet."""
    size = sum(map(len, lines))
    torn = b"" if lines[-1].endswith(b"\n") else b"\n"  # whole but for its end
    line = _line(_linked(lines[-1] + torn, len(lines), entry))
    try:
        _write(file, torn + line)
    except OSError as error:
        os.ftruncate(file, size)
        os.fsync(file)
        raise _unwritable(path, error) from None


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
    os.fsync(file)


def _linked(before: bytes, number: int, entry: dict[str, Any]) -> dict[str, Any]:
    return {"number": number, "previous": _digest(before), "when": _now(), **entry}


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = parse_json(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _digest(line: bytes) -> str:
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _what(path: Path) -> str:
    return f"odometer {path}"


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        _what(path),
        "must be writable: a run is charged before it reads",
        found=type(error).__name__,
        fix="ask the custodian for the right to write it, or for room on its disk; no patient was read",
    )


# ---- words ---------------------------------------------------------------------------------------------------


def _words(account: Account) -> list[str]:
    out = [f"account:  {account.about or 'of one set of patients'}, δ = {account.delta:g}"]
    entries = {number: f"{when}  {_cap_words(cap, account)}" for number, when, cap in account.caps}
    for charge in account.charges:
        about = f", {charge.about}" if charge.about else ""
        entries[charge.number] = f"{charge.when}  {charge.method or 'a run'}: {_price(charge, account.delta)}{about}"
    out += [f"{number:>7}   {entries[number]}" for number in sorted(entries)]
    return [*out, f"together: {_together(account)}", f"cap:      {_cap_words(account.cap, account)}"]


def _price(charge: Charge, delta: float) -> str:
    alone = together(charge.events, delta)
    words = f"ε = {rounded_up(alone, DIGITS)}" if isinstance(alone, float) else NO_SUM[alone][0]
    return f"{words} ({charge.guarantee})"


def _cap_words(cap: float | None, account: Account) -> str:
    return "no cap" if cap is None else f"a cap of ε = {cap:g} ({account.guarantee})"


def _together(account: Account) -> str:
    """The total, and what it means to somebody who was in the table."""
    if not account.charges:
        return "nobody has read anything yet"
    both, charges = account.total(), account.charges
    runs = "1 run" if len(charges) == 1 else f"{len(charges)} runs"
    if isinstance(both, str):
        bare = [str(charge.number) for charge in charges if not charge.gated]
        if bare:
            return (
                f"{runs}, {NO_SUM[both][0]}: {'entries' if len(bare) > 1 else 'entry'} {', '.join(bare)} read the "
                "patients without a gate, and nothing bounds what may be found out about one of them"
            )
        return f"{runs}, {NO_SUM[both][0]}"
    by_person = {event.unit for event in account.events} == {"person"}
    advantage = membership_advantage(account.events)
    return (
        f"{runs}, ε = {rounded_up(both, DIGITS)} ({account.guarantee}) at δ = {account.delta:g} for every "
        f"{'person' if by_person else 'row'}: the best possible test of whether "
        f"{'somebody' if by_person else 'a row'} was in the table, by all that these runs released, has sensitivity "
        f"plus specificity of at most {rounded_up(min(2.0, 1 + advantage), DIGITS)}, where guessing has 1"
    )


def to_dict(account: Account) -> dict[str, Any]:
    """For --json; every number finite."""
    both = account.total()
    number = both if isinstance(both, float) and math.isfinite(both) else None
    return {
        "delta": account.delta,
        "about": account.about,
        "cap": account.cap,
        "guarantee": account.guarantee,
        "total_epsilon": number,
        "total": both if isinstance(both, str) else rounded_up(both, DIGITS),
        "membership_advantage": membership_advantage(account.events) if number is not None else None,
        "charges": [
            {
                "number": charge.number,
                "when": charge.when,
                "run": charge.run,
                "method": charge.method,
                "guarantee": charge.guarantee,
                "about": charge.about,
                "price": _price(charge, account.delta),
            }
            for charge in account.charges
        ],
        "caps": [{"number": number, "when": when, "cap": cap} for number, when, cap in account.caps],
    }
