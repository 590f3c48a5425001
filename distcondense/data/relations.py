"""What a schema may declare about its columns together, `[[rules]]`: public knowledge, no patient is asked about it.

    [[rules]]
    compare = "systolic >= diastolic"

    [[rules]]
    if = 'sex == "male"'
    then = 'pregnant == "no"'

    [[rules]]
    nested = "group"
    within = "class"
    map = { heart = ["arrhythmia", "failure"], lung = ["asthma"] }

    [[rules]]
    derived = "bmi"
    formula = "weight / (height / 100) ** 2"

    [[rules]]
    derived = "sex_at_birth"
    copy = "sex"

A row breaks a rule only where it contradicts it: a comparison with a hole holds, an `if` with one does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from distcondense.arrays import Flags, Floats
from distcondense.data.expressions import Columns, Condition, Formula, Table, code_of
from distcondense.errors import SchemaError

if TYPE_CHECKING:
    from distcondense.data.schema import Column, Label

SLACK = 1e-6  # relative, of a computed number


@dataclass(frozen=True)
class Compare:
    """Comparisons that every row obeys."""

    compare: str

    def __post_init__(self) -> None:
        Condition(self.compare)

    @cached_property
    def then(self) -> Condition:
        return Condition(self.compare)

    @property
    def names(self) -> frozenset[str]:
        return self.then.names

    @property
    def targets(self) -> frozenset[str]:
        """Columns to change first where a row breaks it."""
        return self.names

    @property
    def words(self) -> str:
        return self.compare

    def problems(self, columns: Columns) -> list[str]:
        return self.then.problems(columns)

    def broken(self, table: Table, columns: Columns) -> Flags:
        """(m,) rows that contradict it."""
        return self.then.truth(table, columns)[1]

    def to_dict(self) -> dict[str, Any]:
        return {"compare": self.compare}


@dataclass(frozen=True)
class Implies:
    """Where the first condition is true, the second is."""

    condition: str
    consequence: str

    def __post_init__(self) -> None:
        Condition(self.condition)
        Condition(self.consequence)

    @cached_property
    def when(self) -> Condition:
        return Condition(self.condition)

    @cached_property
    def then(self) -> Condition:
        return Condition(self.consequence)

    @property
    def names(self) -> frozenset[str]:
        return self.when.names | self.then.names

    @property
    def targets(self) -> frozenset[str]:
        return self.then.names - self.when.names or self.names

    @property
    def words(self) -> str:
        return f"if {self.condition} then {self.consequence}"

    def problems(self, columns: Columns) -> list[str]:
        return [*self.when.problems(columns), *self.then.problems(columns)]

    def broken(self, table: Table, columns: Columns) -> Flags:
        return self.when.truth(table, columns)[0] & self.then.truth(table, columns)[1]

    def to_dict(self) -> dict[str, Any]:
        return {"if": self.condition, "then": self.consequence}


@dataclass(frozen=True)
class Nested:
    """Each category of one column belongs to certain categories of another."""

    nested: str
    within: str
    allowed: tuple[tuple[str, tuple[Label, ...]], ...]  # the wider category as it is written → its parts

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.nested, self.within))

    @property
    def targets(self) -> frozenset[str]:
        return frozenset((self.nested,))

    @property
    def words(self) -> str:
        return f"{self.nested} nested in {self.within}"

    def problems(self, columns: Columns) -> list[str]:
        part, whole = columns[self.nested], columns[self.within]
        if part.numeric or whole.numeric or part is whole:
            return ["nested and within must be two columns with categories"]
        keys = [key for key, _ in self.allowed]
        listed = [label for _, labels in self.allowed for label in labels]
        found = [f"map has {key!r}, which is no category of {whole.name!r}" for key in keys if _row(whole, key) is None]
        found += [
            f"map lists {label!r}, which is no category of {part.name!r}"
            for label in listed
            if code_of(part, label) is None
        ]
        found += [
            f"map must list every category of {whole.name!r}; {str(label)!r} is not there"
            for label in whole.categories
            if str(label) not in keys
        ]
        known = {code_of(part, label) for label in listed}
        found += [
            f"map must list every category of {part.name!r}; {label!r} is not there"
            for code, label in enumerate(part.categories)
            if code not in known
        ]
        return found

    def broken(self, table: Table, columns: Columns) -> Flags:
        part, whole = columns[self.nested], columns[self.within]
        legal = np.zeros((len(whole.categories) + 1, len(part.categories) + 1), bool)
        legal[-1], legal[:, -1] = True, True  # holes
        for key, labels in self.allowed:
            for label in labels:
                legal[_row(whole, key), code_of(part, label)] = True
        inner, outer = (
            np.where(np.isnan(codes), -1, codes).astype(np.int64) for codes in (table[part.name], table[whole.name])
        )
        return ~legal[outer, inner]

    def to_dict(self) -> dict[str, Any]:
        return {"nested": self.nested, "within": self.within, "map": {key: list(part) for key, part in self.allowed}}


def _row(column: Column, key: str) -> int | None:
    """Keys of a TOML table are texts: a category by how it is written."""
    return next((code for code, label in enumerate(column.categories) if str(label) == key), None)


@dataclass(frozen=True)
class Derived:
    """A column computed from others."""

    derived: str
    formula: str

    def __post_init__(self) -> None:
        Formula(self.formula)

    @cached_property
    def by(self) -> Formula:
        return Formula(self.formula)

    @property
    def sources(self) -> frozenset[str]:
        return self.by.names

    @property
    def names(self) -> frozenset[str]:
        return self.sources | {self.derived}

    @property
    def words(self) -> str:
        return f"{self.derived} = {self.formula}"

    def problems(self, columns: Columns) -> list[str]:
        column = columns[self.derived]
        if not column.numeric:
            return [f"{self.derived!r} is computed by a formula, so its kind must be a number's"]
        return [*self.by.problems(columns), *_target_problems(column, self.sources, columns)]

    def values(self, table: Table, columns: Columns) -> Floats:
        """(m,) as computed, before it is rounded."""
        return np.broadcast_to(self.by.values(table, columns), np.shape(next(iter(table.values()))))

    def differs(self, table: Table, columns: Columns) -> Flags:
        """(m,) rows whose own value is another, by more than half a unit of its last digit or step and `SLACK`."""
        column, own, due = columns[self.derived], table[self.derived], self.values(table, columns)
        unit = unit_of(column)
        return np.abs(own - due) > unit / 2 * (1 + SLACK) + SLACK * np.abs(due)  # a hole differs from nothing

    def to_dict(self) -> dict[str, Any]:
        return {"derived": self.derived, "formula": self.formula}


@dataclass(frozen=True)
class Copy:
    """A column that says what another says."""

    derived: str
    source: str

    @property
    def sources(self) -> frozenset[str]:
        return frozenset((self.source,))

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.source, self.derived))

    @property
    def words(self) -> str:
        return f"{self.derived} = {self.source}"

    def problems(self, columns: Columns) -> list[str]:
        own, source = columns[self.derived], columns[self.source]
        if own.kind != source.kind:
            return [f"{own.name!r} is a copy, so its kind must be that of {source.name!r}, {source.kind}"]
        if not own.numeric and source.domain != "declared":
            return [f"{own.name!r} is a copy, so the categories of {source.name!r} must be declared"]
        found = [
            f"{own.name!r} is a copy, so it must have category {label!r}"
            for label in source.categories
            if code_of(own, label) is None
        ]
        if (own.decimals, own.step) != (source.decimals, source.step):
            found.append(f"{own.name!r} is a copy, so its decimals or step must be those of {source.name!r}")
        if own.low is not None and own.high is not None:
            low, high = (source.low, source.high)
            if low is None or high is None or low < own.low or high > own.high:
                found.append(
                    f"{own.name!r} is a copy, so its bounds must not be narrower than those of {source.name!r}"
                )
        return [*found, *_target_problems(own, self.sources, columns)]

    def values(self, table: Table, columns: Columns) -> Floats:
        own, source = columns[self.derived], columns[self.source]
        given = table[self.source]
        if source.numeric:
            return given
        codes = np.array([*(code_of(own, label) for label in source.categories), np.nan], np.float64)
        return codes[np.where(np.isnan(given), -1, given).astype(np.int64)]

    def differs(self, table: Table, columns: Columns) -> Flags:
        own, due = table[self.derived], self.values(table, columns)
        return np.abs(own - due) > SLACK * np.abs(due)

    def to_dict(self) -> dict[str, Any]:
        return {"derived": self.derived, "copy": self.source}


Constraint = Compare | Implies | Nested
Derivation = Derived | Copy
Rule = Constraint | Derivation


def unit_of(column: Column) -> float:
    """The distance of two neighbouring legal numbers; 0 where any number is legal."""
    if column.step is not None:
        return column.step
    if column.whole:
        return 1.0
    return 0.0 if column.decimals is None else 10.0**-column.decimals


def _target_problems(column: Column, sources: frozenset[str], columns: Columns) -> list[str]:
    if column.domain != "declared":
        return [
            f"{column.name!r} is computed, so nothing about it is found privately: declare its domain, or no bounds"
        ]
    holes = sorted(name for name in sources if columns[name].keeps_holes)
    if holes and column.missing == "refuse":
        return [f"{column.name!r} is computed from {holes[0]!r}, which may be missing, so it needs a policy for holes"]
    return []


# -- reading ----------------------------------------------------------------------------------------------------------

_FORMS: dict[frozenset[str], Callable[..., Rule]] = {
    frozenset(("compare",)): lambda compare: Compare(compare),
    frozenset(("if", "then")): lambda **parts: Implies(parts["if"], parts["then"]),
    frozenset(("nested", "within", "map")): lambda nested, within, map: _nested(nested, within, map),
    frozenset(("derived", "formula")): lambda derived, formula: Derived(derived, formula),
    frozenset(("derived", "copy")): lambda derived, copy: Copy(derived, copy),
}


def rule_from(entry: Any) -> Rule:
    """A rule from its TOML table."""
    form = _FORMS.get(frozenset(entry)) if isinstance(entry, Mapping) else None
    if form is None:
        raise SchemaError(
            "rule",
            "must be compare; or if and then; or nested, within and map; or derived with formula or copy",
            found=", ".join(map(str, entry)) if isinstance(entry, Mapping) else "no table",
            fix="write one of these",
        )
    for key, value in entry.items():
        if key != "map" and not isinstance(value, str):
            raise SchemaError("rule", f"{key} must be a text", found=repr(value), fix=f'write {key} = "…"')
    return form(**entry)


def _nested(part: str, whole: str, allowed: Any) -> Nested:
    legal = isinstance(allowed, Mapping) and all(
        isinstance(labels, list | tuple) and all(isinstance(label, str | int | float) for label in labels)
        for labels in allowed.values()
    )
    if not legal:
        raise SchemaError(
            "rule",
            f"map must give the categories of {part!r} for every category of {whole!r}",
            found="another form",
            fix='write map = { CATEGORY = ["PART", "PART"] }',
        )
    return Nested(part, whole, tuple((str(key), tuple(labels)) for key, labels in allowed.items()))


# -- together ---------------------------------------------------------------------------------------------------------


def in_order(rules: Sequence[Rule]) -> tuple[list[Derivation], list[str]]:
    """Derivations, each after those it needs; and the columns of those that need each other in a circle."""
    waiting = [rule for rule in rules if isinstance(rule, Derived | Copy)]
    done: list[Derivation] = []
    while waiting:
        open_ = {rule.derived for rule in waiting}
        ready = [rule for rule in waiting if not rule.sources & open_]
        if not ready:
            return done, sorted(open_)
        done += ready
        waiting = [rule for rule in waiting if rule not in ready]
    return done, []


def rule_problems(rules: Sequence[Rule], columns: Columns, nearest: Callable[[str], str]) -> list[str]:
    """Everything wrong with a schema's rules, all at once; `nearest` says which column may be meant."""
    found = []
    for number, rule in enumerate(rules, 1):
        unknown = sorted(rule.names - set(columns))
        own = [f"unknown column: {nearest(name)}" for name in unknown] or rule.problems(columns)
        found += [f"[[rules]] {number}, {rule.words}: {problem}" for problem in own]
    derived = [rule.derived for rule in rules if isinstance(rule, Derived | Copy)]
    found += [f"[[rules]] column {n!r} is derived twice" for n in sorted({n for n in derived if derived.count(n) > 1})]
    if circle := in_order(rules)[1]:
        found.append(f"[[rules]] derived in a circle: {', '.join(map(repr, circle))}")
    return found
