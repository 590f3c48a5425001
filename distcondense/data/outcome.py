"""`Outcome`: what is predicted, as arrays; and what the data room needs to know about a kind of outcome to read it.

Kinds live in `outcomes/`, one file each, and are found by name or by what the schema says about the outcome's columns.
The registry below is the only list of them: a kind is one file there and one line here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Index
from distcondense.data.roles import ROLES
from distcondense.data.schema import Column, Label, Schema
from distcondense.errors import SettingsError, need

_HOMES = {  # name → module:class, in the order in which they are tried; loaded on first use
    "survival": "distcondense.outcomes.survival:Survival",
    "multiclass": "distcondense.outcomes.multiclass:Multiclass",
    "continuous": "distcondense.outcomes.continuous:Continuous",
    "binary": "distcondense.outcomes.binary:Binary",
}
_LOADED: dict[str, type[Any]] = {}


@dataclass(frozen=True)
class Goal:
    """Which columns are the outcome, as a user says it: public, before any row is read."""

    columns: Mapping[str, str] = field(default_factory=dict)  # role → column
    positive: Label | None = None  # the value that means yes, where the schema does not say
    kind: str | None = None  # a kind's name; None: found from the schema

    @classmethod
    def from_roles(cls, *, positive: Label | None = None, kind: str | None = None, **columns: str | None) -> Goal:
        return cls({role: name for role, name in columns.items() if name is not None}, positive, kind)

    def renamed(self, names: Mapping[str, str]) -> Goal:
        return replace(self, columns={role: names.get(name, name) for role, name in self.columns.items()})


class ReadableKind(Protocol):
    """What reading a CSV needs to know of a kind of outcome; the whole is `outcomes/base.py: Kind`."""

    roles: ClassVar[tuple[str, ...]]  # columns it needs, in order
    numeric_roles: ClassVar[tuple[str, ...]]  # whose cells are numbers; the others are labels, read as text

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns, in the order of its roles."""
        ...

    @property
    def declared(self) -> Column | None:
        """How its label column's cells are written, where the schema says so."""
        ...


@dataclass(frozen=True, repr=False)  # a repr ends up in tracebacks, and this one would print patients
class Outcome:
    """What is predicted: a kind, and its arrays by name, (n,) each."""

    kind: Any  # an outcomes.base.Kind
    arrays: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __repr__(self) -> str:
        return f"Outcome({self.kind.name}, {len(self)} rows)"

    def take(self, rows: Index) -> Outcome:
        return replace(self, arrays={name: array[rows] for name, array in self.arrays.items()})

    def with_arrays(self, **arrays: NDArray[Any]) -> Outcome:
        """The same kind with other rows, or other numbers in these."""
        return replace(self, arrays={**self.arrays, **arrays})

    def digest_parts(self) -> Iterable[bytes]:
        return (np.ascontiguousarray(array).tobytes() for array in self.arrays.values())


# -- the registry -----------------------------------------------------------------------------------------------------


def register(kind: type[Any]) -> None:
    """Make a kind known by its name; it is tried before those that are known already."""
    earlier = dict(_HOMES)
    _HOMES.clear()
    _HOMES[kind.name] = f"{kind.__module__}:{kind.__qualname__}"
    _HOMES.update({name: home for name, home in earlier.items() if name != kind.name})
    _LOADED[kind.name] = kind


def forget(name: str) -> None:
    """Undo `register`."""
    _HOMES.pop(name, None)
    _LOADED.pop(name, None)


def kind_names() -> tuple[str, ...]:
    return tuple(_HOMES)


def kind_named(name: str) -> type[Any]:
    """The kind of that name."""
    need(name, str, "kind", "a text")
    if name not in _HOMES:
        close = get_close_matches(name, list(_HOMES), n=1, cutoff=0.5)
        raise SettingsError(
            "kind",
            f"must be one of {', '.join(_HOMES)}",
            found=repr(name),
            fix=f"say {close[0]}" if close else "leave it out: the schema says",
        )
    if name not in _LOADED:
        module, _, attribute = _HOMES[name].partition(":")
        _LOADED[name] = getattr(import_module(module), attribute)
    return _LOADED[name]


def kinds() -> list[type[Any]]:
    return [kind_named(name) for name in _HOMES]


def kind_of(goal: Goal, schema: Schema | None) -> Any:
    """The kind of outcome that a goal's columns are, with what is public about it."""
    roles = set(goal.columns)
    if goal.kind is not None:
        chosen = kind_named(goal.kind)
        if set(chosen.roles) != roles:
            raise _wrong_roles(goal, [chosen])
    else:
        fitting = [kind for kind in kinds() if set(kind.roles) == roles]
        if not fitting:
            raise _wrong_roles(goal, kinds())
        chosen = next((kind for kind in fitting if kind.recognises(goal, schema)), fitting[-1])
    twice = [name for name in goal.columns.values() if list(goal.columns.values()).count(name) > 1]
    if twice:
        raise SettingsError(
            "outcome",
            f"{' and '.join(goal.columns)} must be two columns",
            found=repr(twice[0]),
            fix="say which column is which",
        )
    return chosen.from_goal(goal, schema)


def _wrong_roles(goal: Goal, kinds: Sequence[type[Any]]) -> SettingsError:
    combinations = list(dict.fromkeys(kind.roles for kind in kinds))
    words = ", or ".join(
        " and ".join(f"a{'n' if role[0] in 'aeiou' else ''} {role}" for role in roles) for roles in combinations
    )
    given = [role for role in ROLES if role in goal.columns]
    found = (
        "neither"
        if not given
        else "both"
        if any(set(roles) < set(given) for roles in combinations)
        else f"only {given[0]}"
    )
    options = ", or ".join(" and ".join(f"--{role}" for role in roles) for roles in combinations)
    return SettingsError("outcome", f"needs {words}", found=found, fix=f"say {options}")
