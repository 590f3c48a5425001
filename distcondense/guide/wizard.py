"""From a table to a checked schema by a few questions: persons, outcome, codes for missing, ages, bounds, categories.

Whatever a person confirms or types is a declaration, so the schema may be called declared; one nobody answered for
stays inferred. Proposed bounds come from `data/ranges.py`, never from patients; where nothing is public about a column
its bounds can be found privately, for a share of ε.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from distcondense.data.dates import with_computed
from distcondense.data.draft import SchemaDraft, draft
from distcondense.data.features import check_features
from distcondense.data.ranges import Range, range_for, ranges_of
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SchemaError
from distcondense.guide.prompts import Asker

OUTCOMES = re.compile(r"died|death|dead|mortal|outcome|target|label|event|readmi|relapse|case|surviv", re.IGNORECASE)
PRIVATE, NONE = "private", "none"


@dataclass(frozen=True)
class WizardState:
    """What the questions led to."""

    schema: Schema
    comments: dict[str, str] = field(default_factory=dict)
    target: str = ""
    time: str = ""
    event: str = ""
    person: str = ""
    problem: str = ""  # why the table does not fit yet

    @property
    def outcome(self) -> dict[str, str]:
        said = {"target": self.target, "time": self.time, "event": self.event}
        return {role: name for role, name in said.items() if name}

    def to_toml(self) -> str:
        return self.schema.to_toml(self.comments)

    def command(self, table: str, schema: str, *, epsilon: float = 1.0, ipc: int = 100) -> list[str]:
        """The words of the command to run next."""
        roles = [word for role, name in self.outcome.items() for word in (f"--{role}", name)]
        person = ["--person-id", self.person] if self.person else []
        return [
            "distcondense",
            "condense",
            table,
            "--schema",
            schema,
            *roles,
            *person,
            "--epsilon",
            f"{epsilon:g}",
            "--ipc",
            str(ipc),
            "--out",
            "run",
        ]


def begin(frame: pd.DataFrame, ask: Asker, *, declared: bool) -> WizardState:
    """Ask, and describe the table. `declared`: a person answers, so what is kept was confirmed."""
    found = draft(frame)
    person = _person(found, ask)
    columns = {c.name: c for c in found.schema.columns}
    outcome = _outcome(columns, ask)
    _codes(frame, found, columns, ask)
    ages = _age(found, columns, ask)
    for name, column in columns.items():
        if name not in outcome.values() and name not in ages:
            columns[name] = _settled(column, ask)
    for name in outcome.values():
        columns[name] = _settled_outcome(columns[name], ask)
    schema = Schema((*columns.values(), *found.schema.ignored), "declared" if declared else "inferred")
    begun = WizardState(schema, found.comments if not ages else {}, person=person, **outcome)
    return replace(begun, problem=_problem(frame, schema))


def _person(found: SchemaDraft, ask: Asker) -> str:
    if not found.persons:
        return ""
    shown = "\n".join(f"{name}: {rows} rows, {different} different" for name, (rows, different) in found.counts.items())
    ask.show(
        "Whose rows are these?",
        f"These columns look like identifiers that repeat:\n{shown}\nIf one of them says "
        "whose row it is, the guarantee is about persons, and tests hold whole persons out.",
    )
    said = ask.text(f"Column that says whose row it is, or {NONE}", found.persons[0])
    return "" if said == NONE else said


def _outcome(columns: dict[str, Column], ask: Asker) -> dict[str, str]:
    likely = [c.name for c in columns.values() if c.kind != "date" and OUTCOMES.search(c.name)]
    two = [c.name for c in columns.values() if len(c.categories) == 2]
    best = next((name for name in likely if name in two), next(iter([*likely, *two[::-1]]), ""))
    ask.show("What should models predict?", "Columns: " + ", ".join(columns))
    while True:
        said = ask.text("Outcome column (survival: TIME,EVENT)", best)
        names = [name.strip() for name in said.split(",")]
        if all(name in columns for name in names) and len(names) <= 2:
            return {"target": names[0]} if len(names) == 1 else {"time": names[0], "event": names[1]}
        if said == best:  # nobody can say better
            return {}
        ask.show("No such column", "One of: " + ", ".join(columns))


def _codes(frame: pd.DataFrame, found: SchemaDraft, columns: dict[str, Column], ask: Asker) -> None:
    """Codes that are none after all are values again, within bounds that hold them."""
    for hint in found.codes:
        if hint.column not in columns:
            continue
        ask.show(f"Column {hint.column}", f"{hint.rows} rows hold {hint.code}, far from the rest.")
        if not ask.confirm(f"Is {hint.code} in {hint.column} a code for missing?"):
            own = columns[hint.column]
            left = tuple(code for code in own.missing_values if code != hint.code)
            plain = draft(frame[[hint.column]], codes=False).schema[hint.column] if not left else own
            columns[hint.column] = replace(plain, missing_values=left)


def _age(found: SchemaDraft, columns: dict[str, Column], ask: Asker) -> set[str]:
    births = [name for name in found.dates if re.search(r"birth|dob|geb|naiss", name, re.IGNORECASE)]
    others = [name for name in found.dates if name not in births]
    if not births or not others or "age" in columns:
        return set()
    ask.show("Dates", f"Dates are left out: {', '.join(found.dates)}. An age can stand for them.")
    if not ask.confirm(f"Compute the age in years from {births[0]} to {others[0]}?"):
        return set()
    how = f"years_between({births[0]}, {others[0]})"
    columns["age"] = Column("age", "integer", low=0, high=120, unit="years", computed=how, missing="indicator")
    return {"age"}


def _settled(column: Column, ask: Asker) -> Column:
    """With bounds or categories that somebody stands for; one screen where there is a doubt."""
    if not column.numeric:
        return _settled_labels(column, ask)
    return _bounded(column, ask, PRIVATE)


def _bounded(column: Column, ask: Asker, default: str) -> Column:
    assert column.low is not None
    assert column.high is not None
    known = range_for(column.name, column.low, column.high)
    if known is not None:
        return _within(column, known)
    tried = "; ".join(f"{one.low:g} to {one.high:g} {one.unit}" for one in ranges_of(column.name))
    odd = f"Some rows lie beyond what is usual ({tried}).\n" if tried else ""
    found = f", or {PRIVATE}: they are then found with noise, for a share of ε" if default == PRIVATE else ""
    ask.show(
        f"Bounds of {column.name}",
        f"{odd}Which numbers can this column hold, as anybody knows who never saw a "
        f"patient's? Generous bounds cost next to nothing. Type LOW HIGH{found}.",
    )
    while True:
        said = ask.text(f"Bounds of {column.name}", default)
        if said == PRIVATE == default:
            return replace(column, low=None, high=None, domain="private")
        try:
            low, high = (float(part) for part in said.replace(",", " ").split())
            return _within(column, Range(low, high, column.unit))
        except (ValueError, SchemaError):
            ask.show("Not two numbers", "For example: 0 250")


def _within(column: Column, known: Range) -> Column:
    whole = column.kind == "integer"
    low, high = (int(known.low), int(known.high)) if whole else (float(known.low), float(known.high))
    made = replace(column, low=low, high=high, unit=known.unit)
    if made.problems():
        raise SchemaError(f"column {column.name!r}", made.problems()[0])
    return made


def _settled_labels(column: Column, ask: Asker) -> Column:
    ask.show(f"Categories of {column.name}", ", ".join(map(str, column.categories)))
    if ask.confirm(f"Are these all the answers that {column.name} may have, and may they be released?"):
        return column
    if len(column.categories) == 2 and column.missing == "refuse":
        column = replace(column, kind="categorical")
    return replace(column, categories=(), domain="private", fill=None, missing="category")


def _settled_outcome(column: Column, ask: Asker) -> Column:
    """Which of two values means yes; bounds of a number must be declared, those of the draft are only a proposal."""
    if column.numeric:
        return _bounded(column, ask, f"{column.low:g} {column.high:g}")
    if len(column.categories) == 2:
        yes = ask.text(
            f"Which value of {column.name} means yes ({' or '.join(map(str, column.categories))})",
            str(column.categories[1]),
        )
        return replace(column, categories=tuple(sorted(column.categories, key=lambda label: str(label) == yes)))
    return column


def _problem(frame: pd.DataFrame, schema: Schema) -> str:
    """Why the table does not fit its schema; no patient's value is in it."""
    try:
        check_features(with_computed(frame, schema), schema)
    except CohortError as error:
        return str(error)
    return ""


def summary(begun: WizardState) -> list[tuple[str, str, str]]:
    """Name, kind and what is declared of each column, for a table on the screen."""
    rows = [(c.name, str(c.kind), _described(c)) for c in begun.schema.columns]
    return rows + [(c.name, "ignore", c.reason) for c in begun.schema.ignored]


def _described(column: Column) -> str:
    said: dict[str, Any] = column.to_dict()
    if column.numeric:
        bounds = (
            "bounds found privately" if column.unknown else f"{said.get('low')} to {said.get('high')} {column.unit}"
        )
    else:
        bounds = "categories found privately" if column.unknown else f"{len(column.categories)} categories"
    codes = f"; missing: {', '.join(map(str, column.missing_values))}" if column.missing_values else ""
    return f"{bounds.strip()}{codes}{f'; {column.computed}' if column.computed else ''}"
