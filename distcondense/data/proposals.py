"""Rules that a table's rows happen to obey, proposed to whoever knows whether they hold by definition.

A rule of a schema is public knowledge and costs nothing, so it must not come from patients: what is found here is a
question for a person, whose answer is no until they say otherwise, and nothing that nobody confirmed is used. Proposed
are codes nested in others, copies, orders, values that are there only where another column says so, answers that only
one sex has, and formulas (body mass index, mean arterial pressure, sums).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations, permutations

import numpy as np
import pandas as pd

from distcondense.arrays import Flags
from distcondense.data.attestation import Attestation
from distcondense.data.column import Column
from distcondense.data.features import check_features
from distcondense.data.relations import Copy, Derived, Implies, Nested, Rule, rule_problems
from distcondense.data.rules import Values, table_of
from distcondense.data.schema import Schema

BY_DEFINITION = "These hold by definition, whoever the patients are: I did not take them from this file."
FEWEST = 20  # rows, below which that a rule holds says nothing
RARE = 0.05  # an order says something where by chance so many rows would break it
LOOKED = 2000  # rows that are looked at before all of them are
ADDED = 20  # numbers among which sums are looked for, at most
SETTLED = 0.95  # rows in which another column says whether there is a value
EXCEPTIONS = 0.01  # rows whose computed number may be another: rounded elsewhere, or mistyped
SEX = re.compile(r"(^|_)(sex|gender|geschlecht|sexe)(_|$)", re.IGNORECASE)
FORMULAS = (  # of numbers by their names: the computed one, what it is computed from, how
    (("bmi|body_mass_index",), ("weight|weight_kg", "height|height_cm"), "{0} / ({1} / 100) ** 2"),
    (("bmi|body_mass_index",), ("weight|weight_kg", "height|height_m"), "{0} / {1} ** 2"),
    (("map|mean_arterial_pressure",), ("systolic|sbp|sys", "diastolic|dbp|dia"), "{1} + ({0} - {1}) / 3"),
)


@dataclass(frozen=True)
class Proposal:
    """Rules that go together, and what is asked about them."""

    rules: tuple[Rule, ...]
    question: str
    rows: int  # that can say something about it

    @property
    def words(self) -> str:
        return "; ".join(rule.words for rule in self.rules)

    @property
    def line(self) -> str:
        """For a sheet on the custodian's screen."""
        return f"{self.words}. {self.question} (so in all {self.rows:,} rows that tell)"


def proposed_rules(frame: pd.DataFrame, schema: Schema, without: Collection[str] = ()) -> list[Proposal]:
    """Rules of these kinds that no row of a table contradicts, and that few tables would obey by chance.

    Parameters
    ----------
    frame : pandas.DataFrame
        The table.
    schema : Schema
        Its description; what its rules say already is not proposed.
    without : collection of str
        Columns that no rule may name: the outcome, and whose row it is.
    """
    derived = {rule.derived for rule in schema.rules if isinstance(rule, Copy | Derived)}
    columns = {c.name: c for c in schema.columns if c.name in frame and c.name not in {*without, *derived}}
    # categories that are to be found privately are nobody's to list
    columns = {name: c for name, c in columns.items() if c.numeric or c.categories}
    used = Schema(tuple(columns.values()), origin=schema.origin)
    table = table_of(check_features(frame, used, nearest=True), columns)
    known = {rule.words for rule in schema.rules}
    taken: set[str] = set()
    out = []
    for proposal in (
        *_copies(table, columns),
        *_formulas(table, columns),
        *_orders(table, columns),
        *_nested(table, columns),
        *_empty_unless(table, columns),
        *_of_one_sex(table, columns),
    ):
        computed = {rule.derived for rule in proposal.rules if isinstance(rule, Copy | Derived)}
        spoken_of = frozenset().union(*(rule.names for rule in proposal.rules))
        if computed & taken or (spoken_of & taken and not computed) or {rule.words for rule in proposal.rules} <= known:
            continue  # of a column that is computed nothing else need be said
        if not rule_problems(proposal.rules, columns, str) and not _contradicted(proposal, table, columns):
            taken |= computed
            out.append(proposal)
    return out


def with_rules(schema: Schema, proposals: Sequence[Proposal], by: str) -> Schema:
    """The schema with rules that somebody stands for."""
    rules = tuple(rule for proposal in proposals for rule in proposal.rules)
    if not rules:
        return schema
    said = Attestation(by, date.today().isoformat(), BY_DEFINITION, rules=tuple(rule.words for rule in rules))
    return replace(schema, rules=(*schema.rules, *rules), attested=(*schema.attested, said))


def _contradicted(proposal: Proposal, table: Values, columns: dict[str, Column]) -> bool:
    """By more rows than may be exceptions: of a formula a few."""
    for rule in proposal.rules:
        broken = int(np.count_nonzero(rule.broken(table, columns)))
        if broken > (EXCEPTIONS * proposal.rows if isinstance(rule, Derived) else 0):
            return True
    return False


def _text(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _is(column: Column, code: int) -> str:
    """A condition that says that a column has this category."""
    label = column.categories[code]
    return f"{_text(column.name)} == {json.dumps(label, ensure_ascii=False) if isinstance(label, str) else repr(label)}"


def _both(table: Values, *names: str) -> Flags:
    """(n,) rows in which none of these is empty."""
    return np.asarray(np.logical_and.reduce([~np.isnan(table[name]) for name in names]), np.bool_)


def _some(table: Values) -> Values:
    """Rows that are spread over the table."""
    rows = len(next(iter(table.values()), ()))
    at = np.unique(np.linspace(0, max(rows - 1, 0), min(rows, LOOKED)).astype(np.int64))
    return {name: values[at] for name, values in table.items()}


def _copies(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    few = _some(table)
    for first, second in combinations(columns, 2):
        one, other = columns[first], columns[second]
        same = one.kind == other.kind and (
            one.numeric or set(map(str, other.categories)) == set(map(str, one.categories))
        )
        if not same:
            continue
        rule = Copy(second, first)
        if rule_problems((rule,), columns, str) or rule.broken(few, columns).any():
            continue
        empty = np.isnan(table[first]) != np.isnan(table[second])
        told = int(_both(table, first, second).sum())
        if told >= FEWEST and not empty.any() and len(np.unique(table[first][~np.isnan(table[first])])) > 1:
            yield Proposal((rule,), f"Is {second} by definition the same as {first}?", told)


def _formulas(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    numbers = [name for name, column in columns.items() if column.numeric]

    def named(words: str) -> list[str]:
        return [name for name in numbers if re.search(rf"(^|_)({words})(_|$)", name.casefold())]

    for (goal,), sources, formula in FORMULAS:
        for derived in named(goal):
            for first in named(sources[0]):
                for second in named(sources[1]):
                    if len({derived, first, second}) == 3:
                        rule = Derived(derived, formula.format(_text(first), _text(second)))
                        yield from _computed(rule, table, columns)
    few = _some(table)
    varied = [name for name in numbers if len(np.unique(few[name][~np.isnan(few[name])])) >= 10][:ADDED]
    for first, second in combinations(varied, 2):
        for derived in varied:
            if derived not in (first, second):
                rule = Derived(derived, f"{_text(first)} + {_text(second)}")
                apart = np.abs(few[first] + few[second] - few[derived])
                if _both(few, first, second, derived).sum() >= FEWEST and not np.nanmedian(apart) > 0.51:
                    yield from _computed(rule, table, columns)


def _computed(rule: Derived, table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    told = int(_both(table, *rule.names).sum())
    if told >= FEWEST:
        yield Proposal((rule,), f"Is {rule.derived} by definition computed so?", told)


def _orders(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    numbers = [name for name, column in columns.items() if column.numeric]
    found: dict[tuple[str, str], int] = {}
    few = _some(table)
    for first, second in permutations(numbers, 2):
        units = {columns[first].unit, columns[second].unit}
        if len(units) > 1 or _above(few, first, second).any() or _above(table, first, second).any():
            continue
        there = _both(table, first, second)
        a, b = table[first][there], table[second][there]
        chance = np.searchsorted(np.sort(b), a).mean() / max(len(b), 1) if len(b) else 0.0  # of any two rows
        if len(a) >= FEWEST and chance >= RARE and np.any(a < b):
            found[first, second] = len(a)
    for (first, second), rows in found.items():
        between = any((first, other) in found and (other, second) in found for other in numbers)
        if not between:
            rule = Implies(f"{_text(first)} <= {_text(second)}")
            yield Proposal((rule,), f"Can {first} by definition never be above {second}?", rows)


def _above(table: Values, first: str, second: str) -> Flags:
    with np.errstate(invalid="ignore"):
        return np.asarray(table[first] > table[second], np.bool_)


def _nested(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    labelled = [name for name, column in columns.items() if not column.numeric]
    for part, whole in permutations(labelled, 2):
        there = _both(table, part, whole)
        one, other = columns[part], columns[whole]
        counts = np.zeros((len(one.categories), len(other.categories)), np.int64)
        np.add.at(counts, (table[part][there].astype(np.int64), table[whole][there].astype(np.int64)), 1)
        seen, wide = counts.sum(1) > 0, int((counts.sum(0) > 0).sum())
        one_each = (counts > 0).sum(1).max(initial=0) == 1
        if not one_each or wide < 2 or seen.sum() < max(wide, 3) or counts.sum() < FEWEST:
            continue
        if (seen.sum() == wide and part > whole) or counts.sum(1)[counts.sum(1) < 5].sum() > 0.1 * counts.sum():
            continue  # the same codes in other words are said once; few rows are nested in anything
        allowed = tuple(
            (str(label), tuple(one.categories[k] for k in range(len(seen)) if counts[k, place] or not seen[k]))
            for place, label in enumerate(other.categories)
        )
        question = f"Does every category of {part} by definition belong to one of {whole}, as it does here?"
        yield Proposal((Nested(part, whole, allowed),), question, int(counts.sum()))


def _empty_unless(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    for name, column in columns.items():
        empty = np.isnan(table[name])
        if not column.keeps_holes or not empty.any() or empty.all():
            continue
        for other, said in columns.items():
            if said.numeric or other == name:
                continue
            rules: list[Rule] = []
            never, always = [], []
            for code in range(len(said.categories)):
                here = table[other] == code
                if here.sum() >= FEWEST:
                    never += [code] if empty[here].all() else []
                    always += [code] if not empty[here].any() else []
            rules += [Implies(f"{_text(name)} is missing", _is(said, code)) for code in never]
            settled = np.isin(table[other], [*never, *always]).sum()
            if never and settled >= SETTLED * np.count_nonzero(~np.isnan(table[other])):
                rules += [Implies(f"{_text(name)} is not missing", _is(said, code)) for code in always]
                yield Proposal(tuple(rules), f"Does {other} by definition say whether {name} has a value?", len(empty))


def _of_one_sex(table: Values, columns: dict[str, Column]) -> Iterator[Proposal]:
    for sex, column in columns.items():
        if column.numeric or not SEX.search(sex) or len(column.categories) > 4:
            continue
        for name, other in columns.items():
            if other.numeric or name == sex:
                continue
            there = _both(table, sex, name)
            for code in range(len(column.categories)):
                here, outside = there & (table[sex] == code), there & (table[sex] != code)
                answers = np.unique(table[name][here]).astype(np.int64)
                due = here.sum() * (table[name][outside] != answers[0]).mean() if len(answers) and outside.any() else 0
                if len(answers) == 1 and due >= FEWEST / 2:
                    rule = Implies(_is(other, int(answers[0])), _is(column, code))
                    question = f"Can {name} by definition have no other answer where {_is(column, code)}?"
                    yield Proposal((rule,), question, int(here.sum()))
