"""`Method`: one small protocol for every way to make a condensed table, and the registry of them.

A method is one folder here and one line in `_HOMES`. It says which guarantee it can give and which outcomes it takes,
has frozen `Options` of its own, refuses what public facts rule out before a patient is read, and condenses. This
module, and the `__init__` of every method, import nothing heavy: the command line reads the options from them.
"""

from __future__ import annotations

import math
import numbers
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args, get_type_hints

from distcondense.errors import SettingsError, brief

if TYPE_CHECKING:
    from pathlib import Path

    from distcondense.cluster.config import Cluster
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.data.persons import HoldoutSplit, Stratified
    from distcondense.outcomes.base import Kind
    from distcondense.privacy.events import Event
    from distcondense.privacy.ledger import Ledger
    from distcondense.privacy.odometer import ChargedRun
    from distcondense.runs.folder import RunFolder
    from distcondense.runs.result import Result

_HOMES = {  # name → module:object, in the order in which help lists them; the first is the default
    "private": "distcondense.methods.private:METHOD",
    "published": "distcondense.methods.published:METHOD",
    "dp-geng": "distcondense.methods.dp_geng:METHOD",
    "clustmix": "distcondense.methods.clustmix:METHOD",
    "kde-knn": "distcondense.methods.kde_knn:METHOD",
    "psygentab": "distcondense.methods.psygentab:METHOD",
}
_LOADED: dict[str, Method] = {}
OTHER_NAMES = {  # what other libraries call it → what it is called here
    **dict.fromkeys(("y", "label", "outcome", "target_column"), "target"),
    **dict.fromkeys(("n", "n_rows", "n_samples", "num_rows", "size"), "rows"),
    **dict.fromkeys(("id", "groups", "patient_id", "subject_id"), "person_id"),
    "duration_col": "time",
    "event_col": "event",
    "random_state": "seed",
    "n_jobs": "threads",
    "eps": "epsilon",
}
MOST_IPC = 1_000_000  # more rows would be no condensed table, and memory could end after the budget is spent
LEAST_NUMBER, MOST_NUMBER = 1e-18, 1e18  # of any setting: float32 holds their squares


# -- options ----------------------------------------------------------------------------------------------------------


def option(default: Any, about: str, *, typical: str = "", cli: bool = True, identity: bool = True) -> Any:
    """A field of `Options`: its default, what help says, the fix offered where a value is wrong.

    `cli`: can be said on the command line. `identity`: part of what a run is, so that a resumed one must have the same.
    """
    metadata = {"about": about, "typical": typical, "cli": cli, "identity": identity}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings that every method takes; each method's own settings are a subclass.

    A field is made by `option(default, about, …)`: it is then an argument of `dc.condense`, an option of the command
    line and a key of a study file.

    Parameters
    ----------
    ipc : int
        Records per class; survival: per event status; a number as outcome: per stratum of it.
    seed : int
        Seed of everything but the privacy noise.

    Raises
    ------
    SettingsError
        All settings that are of a wrong type, out of range or contradict each other, at once.
    """

    guarantee: ClassVar[str] = "none"  # which ε an `epsilon` among them is
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # of a field `preset`: what each of its values sets
    ipc: int = option(100, "Records per class (survival: event status; a number: stratum).")
    seed: int = option(0, "Seed of everything but the privacy noise.")

    def __post_init__(self) -> None:
        problems = [*self._types()]
        problems += [] if problems else [*self.problems()]
        problems += [] if problems else [*self._sizes()]
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise SettingsError("settings", "must be legal", found="".join(f"\n  - {p}" for p in problems))

    def _types(self) -> Iterator[SettingsError]:
        """Numbers of any library become Python's; anything else than the field's type is a problem."""
        own: Any = type(self)
        hints = types_of(own)
        for entry in fields(self):
            value, kind = getattr(self, entry.name), hints[entry.name]
            if kind is Any or (value is None and type(None) in get_args(kind)):
                continue
            plain = as_type(value, kind)
            if plain is None:
                yield self.wrong(entry.name, f"must be {words_for(kind)}", type(value).__name__)
            else:
                object.__setattr__(self, entry.name, plain)

    def _sizes(self) -> Iterator[SettingsError]:
        """Numbers so large or so small that their squares and quotients are no numbers, whatever they are for."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            within = not isinstance(value, float) or value == 0 or LEAST_NUMBER <= abs(value) <= MOST_NUMBER
            yield from self.need(within, entry.name, f"must be 0 or between {LEAST_NUMBER:g} and {MOST_NUMBER:g}")

    def problems(self) -> Iterator[SettingsError]:
        """Everything outside its range, and settings that contradict each other."""
        yield from self.need(len(self.ipcs) > 0, "ipc", "must name at least one number")
        within = all(1 <= ipc <= MOST_IPC for ipc in self.ipcs)
        yield from self.need(within, "ipc", f"must be between 1 and {MOST_IPC:,}")
        yield from self.need(len(set(self.ipcs)) == len(self.ipcs), "ipc", "must not repeat")
        yield from self.need(0 <= self.seed < 2**63, "seed", "must be in [0, 2**63)")

    def need(self, good: bool, name: str, rule: str) -> Iterator[SettingsError]:
        if not good:
            yield self.wrong(name, rule, brief(getattr(self, name)))

    def wrong(self, name: str, rule: str, found: str) -> SettingsError:
        entry = next(entry for entry in fields(self) if entry.name == name)
        default = None if entry.default is MISSING else entry.default
        fix = entry.metadata["typical"] or (f"leave it out for the default, {default}" if default is not None else "")
        return SettingsError(name, rule, found=found, fix=fix)

    @property
    def ipcs(self) -> tuple[int, ...]:
        """Of every set that is made: one, or more where the method takes a list as `ipc`."""
        return (self.ipc,)

    @property
    def promise(self) -> str:
        """Which guarantee an ε of these settings is: `guarantee`, or what the settings make of it."""
        return self.guarantee

    def to_dict(self) -> dict[str, Any]:
        """For run.json and a run's identity, where ε stands beside its guarantee like everywhere."""
        out = {}
        for entry in fields(self):
            if entry.metadata["identity"]:
                value = getattr(self, entry.name)
                if not isinstance(value, str | int | float | bool | tuple | type(None)):
                    value = type(value).__name__  # a fitted model
                name = f"epsilon_{self.promise.replace('-', '_')}" if entry.name == "epsilon" else entry.name
                out[name] = list(value) if isinstance(value, tuple) else value
        return out


def one_by_one(said: Any) -> tuple[Any, ...]:
    """References as they were said: none, one, names with commas between them, or a list of names and models."""
    if said is None:
        return ()
    several = said.split(",") if isinstance(said, str) else said if isinstance(said, tuple | list) else (said,)
    return tuple(one.strip() if isinstance(one, str) else one for one in several)


@cache
def types_of(options: Any) -> dict[str, Any]:
    return get_type_hints(options)


def as_type(value: Any, kind: Any) -> Any:
    """The value as that type (of several, the first that fits), or None where it is of none."""
    if getattr(kind, "__origin__", None) is tuple:
        if not isinstance(value, tuple | list):
            return None
        inner = (get_args(kind)[0],) * len(value) if any_length(kind) else get_args(kind)
        if len(value) != len(inner):
            return None
        parts = [as_type(part, one) for part, one in zip(value, inner, strict=True)]
        return None if None in parts else tuple(parts)
    if type(value).__name__ == "timedelta64":  # which NumPy takes for a whole number
        return None
    truth = type(value).__name__ in ("bool", "bool_")  # NumPy's is called one or the other
    for one in get_args(kind) or (kind,):
        if getattr(one, "__origin__", None) is tuple:
            if (several := as_type(value, one)) is not None:
                return several
            continue
        if truth:
            if one is bool:
                return bool(value)
            continue
        if one is int and isinstance(value, numbers.Integral):
            return int(value)
        if one is float and isinstance(value, numbers.Real):
            try:
                return float(value)
            except OverflowError:  # of either sign: no range holds it
                return math.inf
        if one is str and isinstance(value, str):
            return value
    return None


def any_length(kind: Any) -> bool:
    """Whether it is a list of texts (or numbers), as many as one likes."""
    return getattr(kind, "__origin__", None) is tuple and get_args(kind)[-1] is Ellipsis


def one_or_list(kind: Any) -> bool:
    """Whether it is one number or a list of them."""
    return any(map(any_length, get_args(kind)))


def words_for(kind: Any) -> str:
    if any_length(kind):
        return f"a list of {'whole numbers' if get_args(kind)[0] is int else 'texts'}"
    if getattr(kind, "__origin__", None) is tuple:
        return "two numbers"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    words = (words_for(one) if any_length(one) else names.get(one) for one in get_args(kind) or (kind,))
    return " or ".join(filter(None, words))


# -- what a method works with -----------------------------------------------------------------------------------------


class Progress(Protocol):
    """A function that is called as a run goes on: once a step, a noisy answer, a candidate set, a model or a file.

    Parameters
    ----------
    step, steps : int
        How many are done, and how many there will be in this phase; 0 where nobody knows.
    doing : str
        The phase.
    loss, score, epsilon : float, optional
        The newest known.
    note : str
        What is being done, in a word.
    """

    def __call__(
        self,
        *,
        step: int,
        steps: int,
        doing: str = "condensing",
        loss: float | None = None,
        score: float | None = None,
        epsilon: float | None = None,
        note: str = "",
    ) -> None: ...


def no_progress(
    *,
    step: int,
    steps: int,
    doing: str = "condensing",
    loss: float | None = None,
    score: float | None = None,
    epsilon: float | None = None,
    note: str = "",
) -> None:
    """Do nothing: the default of everything that reports progress."""


@dataclass(frozen=True)
class Context:
    """Where a method runs, as `Method.condense` gets it.

    It also hands out what belongs to the run: its `ledger()`, who is left out (`holdout_split`, `stratified`) and what
    `earlier()` runs spent on the same patients.
    """

    threads: int = 1
    log: Callable[[str], None] = lambda line: None
    progress: Progress = no_progress
    folder: RunFolder | None = None
    cluster: Cluster | None = None
    run: str = ""  # a random name, which accounts know the run by
    account: ChargedRun | None = None  # what it is charged to, before its first answer; without a gate before it begins
    memory: int | None = None  # bytes that a table that is read in batches may take, about
    scratch: Path | None = None  # where its coded rows lie meanwhile; None: in the run's folder
    apart: bool = False  # whoever called keeps test persons for itself: the method need leave out nobody

    def holdout_split(self, share: float) -> HoldoutSplit:
        """Who is left out, by coins of the operating system; a resumed run leaves out the same persons."""
        from distcondense.data.persons import HoldoutSplit

        fresh = secrets.randbits(128)
        entropy = fresh if self.folder is None else self.folder.holdout_entropy(fresh)
        return HoldoutSplit(0.0 if self.apart else share, entropy)

    def stratified(self, seed: int) -> Stratified:
        """Train, validation and test; where test persons are apart already, the first two in the same proportion."""
        from distcondense.data.persons import FRACTIONS, Stratified

        train, validation, test = FRACTIONS
        return Stratified(seed, (train / (1 - test), validation / (1 - test), 0.0) if self.apart else FRACTIONS)

    def earlier(self) -> tuple[Event, ...]:
        """What other runs spent on the same patients: in this folder before, and on the account."""
        from distcondense.privacy.accountant import unite

        return unite(
            () if self.folder is None else self.folder.earlier_events(),
            () if self.account is None else self.account.others(),
        )

    def ledger(self) -> Ledger:
        """The run's ledger, in its folder where it has one; what a damaged folder has lost is said."""
        from distcondense.privacy.ledger import Ledger

        path = None if self.folder is None else self.folder.ledger
        found = Ledger(path, run=self.run, account=self.account)
        if found.lost > 1:  # one is lost with a kill at the wrong moment
            self.log(f"{found.lost} noisy answers are lost: they stay paid for, and count as nothing")
        return found


@dataclass(frozen=True)
class Prepared:
    """A run as far as it is known before a row is read: public facts, checked settings, what will be asked.

    Methods that read patients through the gate make one of their own, with plan and calibrated budget in it. It is
    made once, by `prepare`, and handed on: to the account that is charged, and to the method.
    """

    facts: Facts
    options: Any  # the method's own `Options`

    @property
    def planned(self) -> tuple[Event, ...]:
        """What the run will ask of patients, at its price; that it reads all of them, where it has no gate."""
        from distcondense.privacy.events import Event

        return (Event.nonprivate(),)


class Method(Protocol):
    """One way to make a condensed table: a folder in `methods/` and one line in the registry.

    A run calls `prepare` once, charges the account what `Prepared.planned` says, and calls `condense` with it.
    One with `takes_large = True` also condenses a `data.large.LargeTable`, which it reads in batches, once. One whose
    options take a list as `ipc` makes a set of each, all from one read of the patients under one guarantee, and so with
    one schema, statement and splitting.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # for help, one line
    guarantee: ClassVar[str]  # the best that it can give
    Options: ClassVar[Any]  # a subclass of `Options`

    def takes(self, kind: Kind | type[Kind]) -> bool:
        """Whether it can condense for this kind of outcome."""
        ...

    def prepare(self, facts: Facts, options: Any) -> Prepared:
        """Plan a run from public facts; no row has been read, and none is.

        Parameters
        ----------
        facts : Facts
            The outcome, the schema and whose rows they are. `facts.schema` is None where it will be inferred from the
            rows: then only what needs no schema is refused, and the run is prepared once more when they have been read.
        options : Options
            The method's own settings.

        Returns
        -------
        Prepared
            Plan, budget and price, for the account and for `condense`.

        Raises
        ------
        UserError
            What public facts alone rule out.
        """
        ...

    def condense(self, cohort: Cohort, prepared: Any, context: Context) -> Mapping[int, Result]:
        """Make the condensed sets.

        Parameters
        ----------
        cohort : Cohort
            The patients; a `LargeTable` where `takes_large`.
        prepared : Prepared
            What `prepare` gave back.
        context : Context
            Threads, log, run folder, account.

        Returns
        -------
        dict of int to Result
            A condensed set for each number of records per class.
        """
        ...


# -- the registry -----------------------------------------------------------------------------------------------------


def register(method: Method) -> None:
    _HOMES[method.name] = f"{type(method).__module__}:{type(method).__name__}"
    _LOADED[method.name] = method


def forget(name: str) -> None:
    """Undo `register`."""
    _HOMES.pop(name, None)
    _LOADED.pop(name, None)


def method_names() -> tuple[str, ...]:
    return tuple(_HOMES)


def default_method() -> str:
    return next(iter(_HOMES))


def method_named(name: str) -> Method:
    if name not in _HOMES:
        raise SettingsError(
            "method",
            f"must be one of {', '.join(_HOMES)}",
            found=repr(name),
            fix=f"say {_near(str(name), _HOMES) or default_method()}",
        )
    if name not in _LOADED:
        module, _, attribute = _HOMES[name].partition(":")
        _LOADED[name] = getattr(import_module(module), attribute)
    return _LOADED[name]


def methods() -> list[Method]:
    return [method_named(name) for name in _HOMES]


def options_of(method: Method, given: Mapping[str, Any]) -> Any:
    """The method's options with these settings; one that is not its own is refused, with the nearest that is."""
    legal = [entry.name for entry in fields(method.Options)]
    unknown = [name for name in given if name not in legal]
    if unknown:
        raise SettingsError(
            f"method {method.name}",
            "takes only settings of its own",
            found=", ".join(unknown),
            fix="; ".join(_instead(name, method, legal) for name in unknown),
        )
    several = given.get("ipc")
    if isinstance(several, tuple | list) and not takes_several(method):
        raise SettingsError(
            "ipc",
            f"must be one whole number for method {method.name}: every IPC is a run of its own",
            found=f"a list of {len(several)}",
            fix="start one run per IPC, each with its own --out",
        )
    preset = method.Options.presets.get(str(given.get("preset")), {})  # what is said beside it stands
    return method.Options(**{**preset, **given})


def takes_several(method: Method) -> bool:
    """Whether it makes sets of several IPC in one run: its `ipc` may be a list."""
    return one_or_list(types_of(method.Options)["ipc"])


def takes_large(method: Method) -> bool:
    """Whether it condenses tables that are read in batches."""
    return bool(getattr(method, "takes_large", False))


def _instead(name: str, method: Method, legal: list[str]) -> str:
    if name in ("epsilon", "delta") and method.guarantee == "none":  # not a setting that was forgotten: there is none
        return f"method {method.name} gives no privacy guarantee, whatever the {name}: for one say {default_method()}"
    others = [other.name for other in methods() if name in {entry.name for entry in fields(other.Options)}]
    if others:
        return f"{name} belongs to method {' and '.join(others)}: leave it out, or say that method"
    if name in OTHER_NAMES:
        return f"{name} is called {OTHER_NAMES[name]} here"
    near = _near(name, legal)
    return f"the nearest to {name} is {near}" if near else f"see help for the settings of method {method.name}"


def _near(name: str, legal: Any) -> str:
    return next(iter(get_close_matches(name, list(legal), n=1, cutoff=0.5)), "")


def prepare(method: Method, facts: Facts, options: Any) -> Prepared:
    """`Method.prepare`, after what is refused whatever the method; no row is read."""
    from distcondense.data.reserved import refuse_reserved

    refuse_reserved(facts.kind.names)
    refuse_kind(method, facts.kind)
    return method.prepare(facts, options)


def has_classes(kind: Any) -> bool:
    """Whether an outcome of this kind has classes: models of it say probabilities."""
    return next(iter(kind.learners.values())).link in ("probability", "probabilities")


def refuse_kind(method: Method, kind: Kind) -> None:
    """One message for an outcome that a method does not take."""
    if method.takes(kind):
        return
    from distcondense.data.outcome import kinds

    taken = [other.name for other in kinds() if method.takes(other)]
    raise SettingsError(
        f"method {method.name}",
        f"takes {' and '.join(taken) or 'no'} outcomes",
        found=f"a {kind.name} outcome",
        fix=f"say another method ({', '.join(m.name for m in methods() if m.takes(kind)) or 'none takes it'})",
    )
