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

from collections import Counter
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
class Implies:
    """Where the condition is true, the consequence is; without a condition every row obeys the consequence."""

    consequence: str
    condition: str | None = None

    def __post_init__(self) -> None:
        self.names  # noqa: B018  (read now, so that a wrong text is refused where it is written)

    @cached_property
    def when(self) -> Condition | None:
        return None if self.condition is None else Condition(self.condition)

    @cached_property
    def then(self) -> Condition:
        return Condition(self.consequence)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (self.then,) if self.when is None else (self.when, self.then)

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(condition.names for condition in self.conditions))

    @property
    def targets(self) -> frozenset[str]:
        """Columns to change first where a row breaks it."""
        return self.names if self.when is None else self.then.names - self.when.names or self.names

    @property
    def words(self) -> str:
        return self.consequence if self.condition is None else f"if {self.condition} then {self.consequence}"

    def problems(self, columns: Columns) -> list[str]:
        return [problem for condition in self.conditions for problem in condition.problems(columns)]

    def broken(self, table: Table, columns: Columns) -> Flags:
        """(m,) rows that contradict it."""
        contradicted = self.then.truth(table, columns)[1]
        return contradicted if self.when is None else self.when.truth(table, columns)[0] & contradicted

    def to_dict(self) -> dict[str, Any]:
        if self.condition is None:
            return {"compare": self.consequence}
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
        wider = list(map(str, whole.categories))  # keys of a TOML table are texts: a category by how it is written
        known = {code_of(part, label) for label in listed}
        absent = [label for code, label in enumerate(part.categories) if code not in known]
        every = "map must list every category of"
        return [
            *(f"map has {key!r}, which is no category of {whole.name!r}" for key in keys if key not in wider),
            *(
                f"map lists {label!r}, which is no category of {part.name!r}"
                for label in listed
                if code_of(part, label) is None
            ),
            *(f"{every} {whole.name!r}; {label!r} is not there" for label in wider if label not in keys),
            *(f"{every} {part.name!r}; {label!r} is not there" for label in absent),
        ]

    def broken(self, table: Table, columns: Columns) -> Flags:
        part, whole = columns[self.nested], columns[self.within]
        legal = np.zeros((len(whole.categories) + 1, len(part.categories) + 1), bool)
        legal[-1], legal[:, -1] = True, True  # holes
        wider = list(map(str, whole.categories))
        for key, labels in self.allowed:
            for label in labels:
                legal[wider.index(key), code_of(part, label)] = True
        inner, outer = (
            np.where(np.isnan(codes), -1, codes).astype(np.int64) for codes in (table[part.name], table[whole.name])
        )
        return ~legal[outer, inner]

    def to_dict(self) -> dict[str, Any]:
        return {"nested": self.nested, "within": self.within, "map": {key: list(part) for key, part in self.allowed}}


@dataclass(frozen=True)
class Derived:
    """A column computed from others."""

    derived: str
    formula: str

    def __post_init__(self) -> None:
        self.by  # noqa: B018  (read now, so that a wrong text is refused where it is written)

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

    def broken(self, table: Table, columns: Columns) -> Flags:
        """(m,) rows whose own value is another, by more than half a unit of its last digit or step and `SLACK`."""
        unit, due = unit_of(columns[self.derived]), self.values(table, columns)
        distance = np.abs(table[self.derived] - due)
        return distance > unit / 2 * (1 + SLACK) + SLACK * np.abs(due)  # a hole differs from nothing

    def to_dict(self) -> dict[str, Any]:
        return {"derived": self.derived, "formula": self.formula}


@dataclass(frozen=True)
class Copy:
    """A column that says what another says."""

    derived: str
    copy: str

    @property
    def sources(self) -> frozenset[str]:
        return frozenset((self.copy,))

    @property
    def names(self) -> frozenset[str]:
        return frozenset((self.copy, self.derived))

    @property
    def words(self) -> str:
        return f"{self.derived} = {self.copy}"

    def problems(self, columns: Columns) -> list[str]:
        copy, source = columns[self.derived], columns[self.copy]
        said, given = f"{copy.name!r} is a copy, so", repr(source.name)
        if copy.kind != source.kind:
            return [f"{said} its kind must be that of {given}, {source.kind}"]
        if not copy.numeric and source.domain != "declared":
            return [f"{said} the categories of {given} must be declared"]
        absent = [label for label in source.categories if code_of(copy, label) is None]
        problems = [f"{said} it must have category {label!r}" for label in absent]
        if (copy.decimals, copy.step) != (source.decimals, source.step):
            problems.append(f"{said} its decimals or step must be those of {given}")
        if copy.low is not None and copy.high is not None:
            low, high = (source.low, source.high)
            if low is None or high is None or low < copy.low or high > copy.high:
                problems.append(f"{said} its bounds must not be narrower than those of {given}")
        return [*problems, *_target_problems(copy, self.sources, columns)]

    def values(self, table: Table, columns: Columns) -> Floats:
        copy, source = columns[self.derived], columns[self.copy]
        given = table[self.copy]
        if source.numeric:
            return given
        codes = np.array([*(code_of(copy, label) for label in source.categories), np.nan], np.float64)
        return codes[np.where(np.isnan(given), -1, given).astype(np.int64)]

    def broken(self, table: Table, columns: Columns) -> Flags:
        """(m,) rows whose own value is another."""
        due = self.values(table, columns)
        return np.abs(table[self.derived] - due) > SLACK * np.abs(due)

    def to_dict(self) -> dict[str, Any]:
        return {"derived": self.derived, "copy": self.copy}


Constraint = Implies | Nested
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


def _nested(nested: str, within: str, map: Any) -> Nested:
    """A rule from its TOML table, whose keys these are."""
    legal = isinstance(map, Mapping) and all(
        isinstance(labels, list | tuple) and all(isinstance(label, str | int | float) for label in labels)
        for labels in map.values()
    )
    if not legal:
        raise SchemaError(
            "rule",
            f"map must give the categories of {nested!r} for every category of {within!r}",
            found="another form",
            fix='write map = { CATEGORY = ["PART", "PART"] }',
        )
    return Nested(nested, within, tuple((str(key), tuple(labels)) for key, labels in map.items()))


_FORMS: dict[frozenset[str], Callable[..., Rule]] = {
    frozenset(("compare",)): lambda compare: Implies(compare),
    frozenset(("if", "then")): lambda **parts: Implies(parts["then"], parts["if"]),
    frozenset(("nested", "within", "map")): _nested,
    frozenset(("derived", "formula")): Derived,
    frozenset(("derived", "copy")): Copy,
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


# -- together ---------------------------------------------------------------------------------------------------------


def derivations_in_order(rules: Sequence[Rule]) -> tuple[list[Derivation], list[str]]:
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
    problems = []
    for number, rule in enumerate(rules, 1):
        unknown = [f"unknown column: {nearest(name)}" for name in sorted(rule.names - set(columns))]
        problems += [f"[[rules]] {number}, {rule.words}: {text}" for text in unknown or rule.problems(columns)]
    derived = Counter(rule.derived for rule in rules if isinstance(rule, Derived | Copy))
    problems += [f"[[rules]] column {name!r} is derived twice" for name in sorted(derived) if derived[name] > 1]
    if circle := derivations_in_order(rules)[1]:
        problems.append(f"[[rules]] derived in a circle: {', '.join(map(repr, circle))}")
    return problems
