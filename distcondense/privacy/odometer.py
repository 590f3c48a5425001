"""`Odometer`: one account for a set of patients, shared by runs, models and studies across folders and processes.

A file of JSON lines that only ever grows: what it is, then a line for every charge, for every answer and for every
change of the cap. A run is charged all that it will ask when it asks first, before that is answered (`ChargedRun`); the
line is synced before anything is computed. So a run killed at any moment has paid for everything it may have seen, and
going on under the same name it is not charged again. A run that reads without a gate has no price: it makes the total
unbounded, and where the custodian set a cap it is refused.

What a run was charged covers each of its questions once. So the account holds its head, the number of events in its
ledger and their digest, and moves it on before every answer, if it is where the ledger is. Of a run's folder and its
copies, backups among them, one goes on; whoever comes second is refused before a row is touched.

Every line names the digest of the one before it (chained_file.py): a line that was changed, moved or taken out from
between others is noticed. Lines cut off at the end are not: keep the file with the patients' table, and never put an
older copy in its place.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distcondense.errors import BudgetError, RunFolderError, SettingsError, UserError, need
from distcondense.privacy.accountant import NoSum, membership_advantage, together, unite
from distcondense.privacy.budget import check_budget
from distcondense.privacy.chained_file import OLDER, ChainedFile, entry_of, parsed_line
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import NO_EVENTS, Head
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
    heads: dict[str, Head]  # run → how far its ledger goes
    reads: tuple[tuple[int, str, str], ...] = ()  # (number of its line, when, what for): nothing of it was released

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
        for number, when, what in self.reads:
            entries[number] = f"{when}  {what}: for the custodian alone, no charge: nothing of it is released"
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
            "reads": [{"number": number, "when": when, "about": what} for number, when, what in self.reads],
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
        need(path, (str, Path), "account", "the path of an account", fix="dc.Odometer.create(path) begins one")
        self._file = ChainedFile(Path(path), f"account {path}")
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
        need(path, (str, Path), "account", "the path of an account")
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
        ChainedFile(path, f"account {path}").create(head, *caps)
        return cls(path)

    @classmethod
    def open(cls, given: str | Path | Odometer | None) -> Odometer | None:
        """The account that a caller named by its path or brought along; None where there is none."""
        return given if given is None or isinstance(given, Odometer) else cls(given)

    def __repr__(self) -> str:
        return f"Odometer({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The file; where it was joined to another account, that one's."""
        return self._file.path

    def read(self) -> Account:
        """What the file holds now, checked from its first line to its last."""
        while self._followed(lines := self._file.read()):
            pass
        return self._account(lines)

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
        with _held([self]) as ((_, file, lines),):
            if not self._refuse(self._account(lines), wanted):
                self._file.append(file, lines, _charge_entry(wanted))

    def set_cap(self, cap: float | None) -> None:
        """The largest ε at the account's δ that runs may reach together, None for no cap: an entry of its own."""
        check_budget(epsilon=cap)
        with _held([self]) as ((_, file, lines),):
            self._account(lines)
            self._file.append(file, lines, _cap_entry(cap))

    def note(self, about: str) -> None:
        """That somebody read the patients for the custodian alone, and what for: it has no price."""
        with _held([self]) as ((_, file, lines),):
            self._account(lines)
            self._file.append(file, lines, {"entry": "read", "about": about})

    def join(self, other: Odometer) -> None:
        """These are the same patients: what stands on this account goes to the other, which is this one from now on.

        A process that still has this one open goes on there. The smaller of the two caps holds.
        """
        with _held([self, other]) as held:
            if len(held) == 1:  # they are one already
                return
            places = {odometer: (file, lines) for odometer, file, lines in held}
            (file, lines), (there, into) = places[self], places[other]
            here, known = self._account(lines), other._account(into)
            runs = {charge.run for charge in known.charges}
            entries = [_charge_entry(charge) for charge in here.charges if charge.run not in runs]
            entries += [
                _head_entry(run, head) for run, head in here.heads.items() if head > known.heads.get(run, NO_EVENTS)
            ]
            if here.cap is not None and (known.cap is None or here.cap < known.cap):
                entries.append(_cap_entry(here.cap))
            for entry in entries:
                other._file.append(there, into, entry)
            self._file.append(file, lines, {"entry": "joined", "to": str(other.path.resolve())})

    def _followed(self, lines: list[bytes]) -> bool:
        """Go over to the account that this one was joined to; whether there is one."""
        entry = parsed_line(lines[-1])
        if not isinstance(entry, dict) or entry.get("entry") != "joined":
            return False
        self._account(lines)
        self._file = ChainedFile(Path(entry["to"]), f"account {entry['to']}")
        return True

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
        charges: dict[str, Charge] = {}
        caps: list[tuple[int, str, float | None]] = []
        reads: list[tuple[int, str, str]] = []
        heads: dict[str, Head] = {}
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
                elif entry["entry"] == "head" and entry["run"] in charges:
                    heads[entry["run"]] = _head_of(entry)
                elif entry["entry"] == "read":
                    reads.append((number, when, str(entry["about"])))
                elif entry["entry"] == "charge" and entry["run"] not in charges:
                    facts = {key: str(entry[key]) for key in ("run", "method", "guarantee", "about")}
                    events = _charged_events(entry["events"], facts["run"])
                    charges[facts["run"]] = Charge(number, when, events=events, **facts)
                elif entry["entry"] != "joined" or number != len(lines) - 1 or not isinstance(entry["to"], str):
                    raise ValueError
        except (UserError, ValueError, KeyError, TypeError, AttributeError):
            raise RunFolderError(
                self._file.name,
                "must be as it was written, line by line",
                found=f"line {number + 1} changed, moved or damaged",
                fix=OLDER,
            ) from None
        cap = caps[-1][2] if caps else None
        return Account(delta, about, cap, tuple(caps), tuple(charges.values()), heads, tuple(reads))


@dataclass(frozen=True)
class ChargedRun:
    """A run and the accounts of its patients: charged when it first asks, its head moved on before every answer."""

    accounts: tuple[Odometer, ...]
    run: str
    events: tuple[Event, ...]  # all that it may ask
    method: str = ""
    guarantee: str = "end-to-end"
    about: str = ""
    on_charge: Callable[[Path], None] = field(default=lambda path: None)

    def others(self) -> tuple[Event, ...]:
        """What all other runs were charged, each once, whichever accounts know it."""
        return unite(*(account.others(self.run) for account in self.accounts))

    def check(self) -> None:
        """Refuse what an account would refuse; nothing is written."""
        for account in self.accounts:
            account.check(self.run, self.events, method=self.method, guarantee=self.guarantee)

    def charge(self) -> None:
        """Of a run that reads without a gate: before it reads. All accounts, or none."""
        with _held(self.accounts) as held:
            self._enter(held, [account._refuse(account._account(lines), self._wanted) for account, _, lines in held])

    def opened(self, head: Head, one_before: Head) -> None:
        """A ledger that is there again must be the head, or have one line more: that was entered and never answered."""
        with _held(self.accounts) as held:
            for account, file, lines in held:
                known = _newest_head(lines, self.run)
                if known is not None and known == one_before != head:
                    account._file.append(file, lines, _head_entry(self.run, head))
                elif known is not None and known != head:
                    raise _moved_on(account, known, head)

    @contextmanager
    def moving(self, before: Head, after: Head) -> Iterator[None]:
        """Compare and swap on every account: `before` must be the head, the ledger's line is written in here."""
        with _held(self.accounts) as held:
            charged = []
            for account, _, lines in held:
                known = _newest_head(lines, self.run)
                if known is not None and known != before:
                    raise _moved_on(account, known, before)
                charged.append(known is not None or account._refuse(account._account(lines), self._wanted))
            self._enter(held, charged)
            yield
            for account, file, lines in held:
                account._file.append(file, lines, _head_entry(self.run, after))

    @property
    def _wanted(self) -> Charge:
        return _new_charge(self.run, self.events, self.method, self.guarantee, self.about)

    def _enter(self, held: Sequence[_Held], charged: Sequence[bool]) -> None:
        """The charge, where it is not entered yet; no account has refused it."""
        for (account, file, lines), done in zip(held, charged, strict=True):
            if not done:
                account._file.append(file, lines, _charge_entry(self._wanted))
                self.on_charge(account.path)


_Held = tuple[Odometer, int, list[bytes]]  # an account, its open and locked file, its lines


@contextmanager
def _held(accounts: Sequence[Odometer]) -> Iterator[list[_Held]]:
    """Accounts, each once, locked until the end; in one order, so that no two wait for each other."""
    while True:
        with ExitStack() as stack:
            places = {_place(account.path): account for account in accounts}  # a file has one lock, whatever its names
            held = [(places[place], *stack.enter_context(places[place]._file.locked())) for place in sorted(places)]
            if not any(account._followed(lines) for account, _, lines in held):
                yield held
                return


def _place(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # whoever opens it says what is wrong
        return (0, 0)
    return status.st_dev, status.st_ino


def _moved_on(account: Odometer, known: Head, head: Head) -> RunFolderError:
    return RunFolderError(
        account._file.name,
        "must know the run's ledger as it is: what the run was charged covers each of its questions once",
        found=f"{known.events} answers on the account, a ledger of {head.events}: the folder is a copy or a backup"
        if known.events != head.events
        else f"another ledger of {head.events} answers: a copy of the folder went on",
        fix="go on in the folder that went on; or start again with --force, which is charged (its cost adds up)",
    )


def _newest_head(lines: Sequence[bytes], run: str) -> Head | None:
    """How far the account knows a run's ledger; None where it was not charged or has asked nothing."""
    for line in reversed(lines):
        entry = parsed_line(line)
        if isinstance(entry, dict) and entry.get("run") == run:
            return _head_of(entry) if entry["entry"] == "head" else NO_EVENTS
    return None


def _head_of(entry: dict[str, Any]) -> Head:
    if type(entry["asked"]) is not int or not isinstance(entry["ledger"], str):
        raise ValueError
    return Head(entry["asked"], entry["ledger"])


def _head_entry(run: str, head: Head) -> dict[str, Any]:
    return {"entry": "head", "run": run, "asked": head.events, "ledger": head.digest}


def _cap_entry(cap: float | None) -> dict[str, Any]:
    return {"entry": "cap", "cap": None if cap is None else float(cap)}


def _charge_entry(charge: Charge) -> dict[str, Any]:
    counted = [{"times": times, **event.to_dict()} for event, times in _price_list(charge.events).items()]
    facts = {name: getattr(charge, name) for name in ("run", "method", "guarantee", "about")}
    return {"entry": "charge", **facts, "events": counted}


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
    return Counter(replace(event, columns=(), run="", session="") for event in events)


def _epsilon_words(total: float | NoSum) -> str:
    return f"ε = {rounded_up(total, DIGITS)}" if isinstance(total, float) else NO_SUM[total][0]
