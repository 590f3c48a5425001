"""`Odometer`: one account for a set of patients, shared by runs, models and studies across folders and processes.

A file of JSON lines that only ever grows: what it is, then a line for every charge and for every change of the cap. A
run is charged all that it will ask before it asks anything; the line is synced before `charge` returns. So a run killed
at any moment has paid for everything it may have seen, and going on under the same name it is not charged again. A run
that reads without a gate has no price: it makes the total unbounded, and where the custodian set a cap it is refused.

Every line names the digest of the one before it (chained_file.py): a line that was changed, moved or taken out from
between others is noticed. Lines cut off at the end are not; keep the file with the patients' table, and back it up like
one.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distcondense.errors import BudgetError, RunFolderError, SettingsError, UserError, need
from distcondense.privacy.accountant import NoSum, membership_advantage, together
from distcondense.privacy.budget import check_budget
from distcondense.privacy.chained_file import BACKUP, ChainedFile, entry_of, parsed_line
from distcondense.privacy.events import Event
from distcondense.privacy.statement import NO_SUM, rounded_up

VERSION = 1
DELTA = 1e-5
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
        """Whether it reads through the gate only."""
        return not any(event.kind == "nonprivate" for event in self.events)

    def price(self, delta: float) -> str:
        """Its ε at δ in words, with its guarantee."""
        return f"{_epsilon_words(together(self.events, delta))} ({self.guarantee})"


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
        """All events of all charges."""
        return tuple(event for charge in self.charges for event in charge.events)

    @property
    def guarantee(self) -> str:
        """Which ε the total is: that of its weakest charge."""
        return "conditional" if any(charge.guarantee == "conditional" for charge in self.charges) else "end-to-end"

    def total(self, more: Sequence[Event] = ()) -> float | NoSum:
        """ε at δ of all charges (and of `more`), or why there is no such number."""
        events = (*self.events, *more)
        return together(events, self.delta) if events else 0.0

    def lines(self) -> list[str]:
        """For the custodian: every entry, then the total and what it means."""
        entries = {number: f"{when}  {self._cap_words(cap)}" for number, when, cap in self.caps}
        for charge in self.charges:
            about = f", {charge.about}" if charge.about else ""
            entries[charge.number] = f"{charge.when}  {charge.method or 'a run'}: {charge.price(self.delta)}{about}"
        return [
            f"account:  {self.about or 'of one set of patients'}, δ = {self.delta:g}",
            *(f"{number:>7}   {entries[number]}" for number in sorted(entries)),
            f"together: {self.meaning()}",
            f"cap:      {self._cap_words(self.cap)}",
        ]

    def meaning(self) -> str:
        """The total, and what it means to somebody who was in the table."""
        if not self.charges:
            return "nobody has read anything yet"
        total = self.total()
        runs = "1 run" if len(self.charges) == 1 else f"{len(self.charges)} runs"
        if isinstance(total, str):
            bare = [str(charge.number) for charge in self.charges if not charge.gated]
            if bare:
                return (
                    f"{runs}, {NO_SUM[total][0]}: {'entries' if len(bare) > 1 else 'entry'} {', '.join(bare)} read the "
                    "patients without a gate, and nothing bounds what may be found out about one of them"
                )
            return f"{runs}, {NO_SUM[total][0]}"
        by_person = {event.unit for event in self.events} == {"person"}
        most = rounded_up(min(2.0, 1 + membership_advantage(self.events)), DIGITS)
        return (
            f"{runs}, ε = {rounded_up(total, DIGITS)} ({self.guarantee}) at δ = {self.delta:g} for every "
            f"{'person' if by_person else 'row'}: the best possible test of whether "
            f"{'somebody' if by_person else 'a row'} was in the table, by all that these runs released, has "
            f"sensitivity plus specificity of at most {most}, where guessing has 1"
        )

    def _cap_words(self, cap: float | None) -> str:
        return "no cap" if cap is None else f"a cap of ε = {cap:g} ({self.guarantee})"

    def to_dict(self) -> dict[str, Any]:
        """For --json; every number finite."""
        total = self.total()
        number = total if isinstance(total, float) and math.isfinite(total) else None
        names = ("number", "when", "run", "method", "guarantee", "about")
        return {
            "delta": self.delta,
            "about": self.about,
            "cap": self.cap,
            "guarantee": self.guarantee,
            "total_epsilon": number,
            "total": total if isinstance(total, str) else rounded_up(total, DIGITS),
            "membership_advantage": membership_advantage(self.events) if number is not None else None,
            "charges": [
                {**{name: getattr(charge, name) for name in names}, "price": charge.price(self.delta)}
                for charge in self.charges
            ],
            "caps": [{"number": number, "when": when, "cap": cap} for number, when, cap in self.caps],
        }


class Odometer:
    """The account of a set of patients, kept in a file that their runs share.

    Hand it (or its path) to `dc.condense`: the run is charged before it reads, and refused where all runs together
    would pass the custodian's cap. Threads and processes may share it: every look and every charge locks the file.

    Parameters
    ----------
    path : str or Path
        The file; `Odometer.create` begins one.

    Raises
    ------
    RunFolderError
        If there is no such file, or a line of it is not as it was written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import distcondense as dc
    >>> path = Path(tempfile.mkdtemp()) / "patients.jsonl"
    >>> account = dc.Odometer.create(path, cap=3.0, about="ward 7")
    >>> account.total()
    0.0
    >>> print("\\n".join(account.lines()[-2:]))
    together: nobody has read anything yet
    cap:      a cap of ε = 3 (end-to-end)
    """

    def __init__(self, path: str | Path) -> None:
        need(path, (str, Path), "odometer", "the path of an account", fix="dc.Odometer.create(path) begins one")
        self.path = Path(path)
        self._file = ChainedFile(self.path, f"odometer {self.path}")
        self.read()

    @classmethod
    def create(cls, path: str | Path, *, cap: float | None = None, delta: float = DELTA, about: str = "") -> Odometer:
        """Begin an account; one that is there already is not touched.

        Parameters
        ----------
        path : str or Path
            The new file; keep it with the patients' table.
        cap : float, optional
            The largest ε at δ that all runs may reach together.
        delta : float
            The δ of the total.
        about : str
            Whose account it is, in words.

        Raises
        ------
        SettingsError
            If a number is outside its range.
        RunFolderError
            If there is a file of that name, or it cannot be written.
        """
        need(path, (str, Path), "odometer", "the path of an account")
        need(about, str, "about", "a text")
        if about != about.encode("utf-8", "replace").decode():
            raise SettingsError(
                "about", "must be a text that UTF-8 can write", found="half of a pair", fix="other words"
            )
        path = Path(path)
        need(delta, numbers.Real, "delta", "a number")
        check_budget(epsilon=cap, delta=delta)
        caps = [] if cap is None else [{"entry": "cap", "cap": float(cap)}]
        head = {"odometer": VERSION, "delta": float(delta), "about": about}
        ChainedFile(path, f"odometer {path}").create(head, *caps)
        return cls(path)

    @classmethod
    def open(cls, given: str | Path | Odometer | None) -> Odometer | None:
        """The account that a caller named by its path or brought along; None where there is none."""
        return given if given is None or isinstance(given, Odometer) else cls(given)

    def __repr__(self) -> str:
        return f"Odometer({str(self.path)!r})"

    def read(self) -> Account:
        """What the file holds now, checked from its first line to its last."""
        return self._account(self._file.read())

    def total(self) -> float | NoSum:
        """ε at the account's δ of everything that was charged; "unbounded" or "different units" where there is none."""
        return self.read().total()

    def others(self, run: str) -> tuple[Event, ...]:
        """What all runs but this one were charged, each event under its run's name."""
        return tuple(event for event in self.read().events if event.run != run)

    def lines(self) -> list[str]:
        """For the custodian: every entry, then the total and what it means."""
        return self.read().lines()

    def check(self, run: str, events: Sequence[Event], *, method: str = "", guarantee: str = "end-to-end") -> None:
        """Refuse what `charge` would refuse; nothing is written."""
        self._refuse(self.read(), _new_charge(run, events, method, guarantee, ""))

    def charge(
        self, run: str, events: Sequence[Event], about: str = "", *, method: str = "", guarantee: str = "end-to-end"
    ) -> None:
        """Enter all that a run may ask, before it asks: on disk when this returns. Once for each name of a run.

        Parameters
        ----------
        run : str
            The run's name; a run that is in the account already is not charged again.
        events : sequence of Event
            All that it may ask; `Event.nonprivate()` where it reads without a gate.
        about, method, guarantee : str
            For the custodian who reads the account.

        Raises
        ------
        BudgetError
            Over the custodian's cap; nothing is written.
        RunFolderError
            If the same run was charged another price, or the file cannot be written.
        """
        wanted = _new_charge(run, events, method, guarantee, about)
        with self._file.locked() as (file, lines):
            if self._refuse(self._account(lines), wanted):
                return
            counted = [{"times": times, **event.to_dict()} for event, times in _price_list(events).items()]
            facts = {"run": run, "method": method, "guarantee": guarantee, "about": about, "events": counted}
            self._file.append(file, lines, {"entry": "charge", **facts})

    def set_cap(self, cap: float | None) -> None:
        """The largest ε at the account's δ that runs may reach together, None for no cap: an entry of its own."""
        check_budget(epsilon=cap)
        with self._file.locked() as (file, lines):
            self._account(lines)
            self._file.append(file, lines, {"entry": "cap", "cap": None if cap is None else float(cap)})

    def _refuse(self, account: Account, wanted: Charge) -> bool:
        """True where the run is in the account already; an error where it must not be."""
        for charge in account.charges:
            if charge.run == wanted.run:
                if _price_list(charge.events) != _price_list(wanted.events):
                    raise RunFolderError(
                        self._file.name,
                        "must hold one price for one run",
                        found="the same run with another price",
                        fix="resume with the settings and the version of the run, or start it anew (its cost adds up)",
                    )
                return True
        if account.cap is None:
            return False
        what, guarantee, unread = f"account {self.path.name}", account.guarantee, "; no patient was read"
        if not wanted.gated:
            raise BudgetError(
                what,
                f"has a cap of ε = {account.cap:g} ({guarantee}), which no run without a gate can keep",
                found=f"method {wanted.method or 'unknown'}, guarantee {wanted.guarantee}: no ε bounds what it reads",
                fix=f"use another account for it, or take the cap away (distcondense privacy ledger {self.path} "
                f"--cap none){unread}",
            )
        total = account.total(wanted.events)
        if isinstance(total, str):
            raise BudgetError(
                what,
                f"has a cap of ε = {account.cap:g} ({guarantee}), which must be a bound of all its runs together",
                found=NO_SUM[total][0],
                fix=f"use another account for it{unread}",
            )
        if total > account.cap:
            before = account.total()
            spent = rounded_up(before, DIGITS) if isinstance(before, float) else before
            raise BudgetError(
                what,
                f"must stay within its cap of ε = {account.cap:g} at δ = {account.delta:g} ({guarantee})",
                found=f"ε = {rounded_up(total, DIGITS)} with this run, {spent} before it ({guarantee})",
                fix=f"ask for a smaller epsilon; only the custodian may raise the cap{unread}",
            )
        return False

    def _account(self, lines: list[bytes]) -> Account:
        """The lines as what they mean; the first that is not as it was written is refused."""
        head = parsed_line(lines[0])
        if not isinstance(head, dict) or head.get("odometer") != VERSION:
            raise RunFolderError(
                self._file.name,
                "must be an odometer's file of this version",
                found="another version" if isinstance(head, dict) and "odometer" in head else "another file",
                fix="check the path, or read it with the version that wrote it",
            )
        charges: list[Charge] = []
        caps: list[tuple[int, str, float | None]] = []
        number = 0
        try:
            delta, about = float(head["delta"]), str(head["about"])
            check_budget(delta=delta)
            for number in range(1, len(lines)):
                entry = entry_of(lines, number)
                when = str(entry["when"])
                if entry["entry"] == "cap":
                    cap = None if entry["cap"] is None else float(entry["cap"])
                    check_budget(epsilon=cap)
                    caps.append((number, when, cap))
                    continue
                facts = {key: str(entry[key]) for key in ("run", "method", "guarantee", "about")}
                if entry["entry"] != "charge" or any(facts["run"] == charge.run for charge in charges):
                    raise ValueError
                charges.append(Charge(number, when, events=_charged_events(entry["events"], facts["run"]), **facts))
        except (UserError, ValueError, KeyError, TypeError, AttributeError):
            raise RunFolderError(
                self._file.name,
                "must be as it was written, line by line",
                found=f"line {number + 1} changed, moved or damaged",
                fix=BACKUP,
            ) from None
        return Account(delta, about, caps[-1][2] if caps else None, tuple(caps), tuple(charges))


def _charged_events(counted: Sequence[dict[str, Any]], run: str) -> tuple[Event, ...]:
    """The events of a charge as a line holds them: each once, with how often it is asked."""
    events: list[Event] = []
    for entry in counted:
        times = entry["times"]
        if type(times) is not int or not 1 <= times <= MOST_TIMES:
            raise ValueError
        event = Event.from_dict({key: value for key, value in entry.items() if key != "times"})
        events += [replace(event, run=run)] * times
    if not events:
        raise ValueError
    return tuple(events)


def _new_charge(run: str, events: Sequence[Event], method: str, guarantee: str, about: str) -> Charge:
    if not run or not events:
        raise SettingsError(
            "charge",
            "must have the name of a run and what it will ask",
            found=f"run {run!r}, {len(events)} events",
            fix="give it a name of its own, e.g. uuid.uuid4().hex",
        )
    return Charge(0, "", run, method, guarantee, about, tuple(replace(event, run=run) for event in events))


def _price_list(events: Sequence[Event]) -> Counter[Event]:
    """What an account keeps of events: all but their columns and their run, and how often each is asked."""
    return Counter(replace(event, columns=(), run="") for event in events)


def _epsilon_words(total: float | NoSum) -> str:
    return f"ε = {rounded_up(total, DIGITS)}" if isinstance(total, float) else NO_SUM[total][0]
