"""From a table to a checked schema by a few questions: persons, outcome, codes for missing, ages, bounds, categories.

Whatever a person confirms or types is a declaration, so the schema may be called declared; one nobody answered for
stays inferred. Proposed bounds come from `data/ranges.py`, never from patients; where nothing is public about a column
its bounds can be found privately, for a share of ε.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import pandas as pd

from distcondense.data.dates import with_computed
from distcondense.data.draft import SchemaDraft, births_and_others, draft
from distcondense.data.features import check_features
from distcondense.data.ranges import Range, range_for, ranges_of
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SchemaError
from distcondense.guide.prompts import Prompts

OUTCOMES = re.compile(r"died|death|dead|mortal|outcome|target|label|event|readmi|relapse|case|surviv", re.IGNORECASE)
PRIVATE, NONE = "private", "none"


@dataclass(frozen=True)
class WizardState:
    """What the questions led to."""

    schema: Schema
    comments: dict[str, str] = field(default_factory=dict)  # lines below a column's section
    outcome: dict[str, str] = field(default_factory=dict)  # role → column
    person: str = ""  # the column that says whose row it is
    problem: str = ""  # why the table does not fit yet

    def to_toml(self) -> str:
        return self.schema.to_toml(self.comments)

    def command(self, table: str, schema: str, *, epsilon: float = 1.0, ipc: int = 100) -> list[str]:
        """The words of the command to run next."""
        options = {"schema": schema, **self.outcome, **({"person-id": self.person} if self.person else {})}
        options |= {"epsilon": f"{epsilon:g}", "ipc": str(ipc), "out": "run"}
        return ["distcondense", "condense", table, *(w for name, v in options.items() for w in (f"--{name}", v))]

    def summary(self) -> list[tuple[str, str, str]]:
        """Name, kind and what is declared of each column, for a table on the screen."""
        rows = [(c.name, str(c.kind), _described(c)) for c in self.schema.columns]
        return rows + [(c.name, "ignore", c.reason) for c in self.schema.ignored]


def run_wizard(frame: pd.DataFrame, prompts: Prompts, *, declared: bool) -> WizardState:
    """Ask, and describe the table.

    Parameters
    ----------
    frame : pandas.DataFrame
        The table, as it was read.
    prompts : Prompts
        Who is asked.
    declared : bool
        Whether a person answers, so that what is kept was confirmed.

    Returns
    -------
    WizardState
        The schema, which columns are the outcome, whose rows they are, and why the table does not fit yet.
    """
    drafted = draft(frame)
    person = _person(drafted, prompts)
    columns = {c.name: c for c in drafted.schema.columns}
    outcome = _outcome(columns, prompts)
    _codes(frame, drafted, columns, prompts)
    ages = _age(drafted, columns, prompts)
    for name, column in columns.items():
        if name not in outcome.values() and name not in ages:
            columns[name] = _bounded(column, prompts, PRIVATE) if column.numeric else _labelled(column, prompts)
    for name in outcome.values():
        columns[name] = _settled_outcome(columns[name], prompts)
    schema = Schema((*columns.values(), *drafted.schema.ignored), "declared" if declared else "inferred")
    problem = ""
    try:
        check_features(with_computed(frame, schema), schema)
    except CohortError as error:  # no patient's value is in its words
        problem = str(error)
    return WizardState(schema, {} if ages else drafted.comments, outcome, person, problem)


def _person(drafted: SchemaDraft, prompts: Prompts) -> str:
    """The column that says whose row it is; empty where there is none."""
    if not drafted.persons:
        return ""
    repeating = "\n".join(
        f"{name}: {rows} rows, {different} different" for name, (rows, different) in drafted.counts.items()
    )
    prompts.show(
        "Whose rows are these?",
        f"These columns look like identifiers that repeat:\n{repeating}\nIf one of them says "
        "whose row it is, the guarantee is about persons, and tests hold whole persons out.",
    )
    answer = prompts.text(f"Column that says whose row it is, or {NONE}", drafted.persons[0])
    return "" if answer == NONE else answer


def _outcome(columns: dict[str, Column], prompts: Prompts) -> dict[str, str]:
    """Role → column; empty where nobody says what is predicted."""
    likely = [c.name for c in columns.values() if c.kind != "date" and OUTCOMES.search(c.name)]
    two = [c.name for c in columns.values() if len(c.categories) == 2]
    best = next((name for name in likely if name in two), next(iter([*likely, *two[::-1]]), ""))
    prompts.show("What should models predict?", "Columns: " + ", ".join(columns))
    while True:
        answer = prompts.text("Outcome column (survival: TIME,EVENT)", best)
        names = [name.strip() for name in answer.split(",")]
        if all(name in columns for name in names) and len(names) <= 2:
            return {"target": names[0]} if len(names) == 1 else {"time": names[0], "event": names[1]}
        if answer == best:  # nobody can say better
            return {}
        prompts.show("No such column", "One of: " + ", ".join(columns))


def _codes(frame: pd.DataFrame, drafted: SchemaDraft, columns: dict[str, Column], prompts: Prompts) -> None:
    """Codes that are none after all are values again, within bounds that hold them."""
    for hint in drafted.codes:
        if hint.column not in columns:
            continue
        prompts.show(f"Column {hint.column}", f"{hint.rows} rows hold {hint.code}, far from the rest.")
        if not prompts.confirm(f"Is {hint.code} in {hint.column} a code for missing?"):
            column = columns[hint.column]
            left = tuple(code for code in column.missing_values if code != hint.code)
            plain = column if left else draft(frame[[hint.column]], codes=False).schema[hint.column]
            columns[hint.column] = replace(plain, missing_values=left)


def _age(drafted: SchemaDraft, columns: dict[str, Column], prompts: Prompts) -> set[str]:
    """A column of ages in place of dates, where it is wanted: its name."""
    births, others = births_and_others(drafted.dates)
    if not births or not others or "age" in columns:
        return set()
    prompts.show("Dates", f"Dates are left out: {', '.join(drafted.dates)}. An age can stand for them.")
    if not prompts.confirm(f"Compute the age in years from {births[0]} to {others[0]}?"):
        return set()
    formula = f"years_between({births[0]}, {others[0]})"
    columns["age"] = Column("age", "integer", low=0, high=120, unit="years", computed=formula, missing="indicator")
    return {"age"}


def _bounded(column: Column, prompts: Prompts, default: str) -> Column:
    """A number with bounds that somebody stands for; one screen where nothing is public about it."""
    assert column.low is not None
    assert column.high is not None
    known = range_for(column.name, column.low, column.high)
    if known is not None:
        return _within(column, known)
    tried = "; ".join(f"{usual.low:g} to {usual.high:g} {usual.unit}" for usual in ranges_of(column.name))
    odd = f"Some rows lie beyond what is usual ({tried}).\n" if tried else ""
    private = f", or {PRIVATE}: they are then found with noise, for a share of ε" if default == PRIVATE else ""
    prompts.show(
        f"Bounds of {column.name}",
        f"{odd}Which numbers can this column hold, as anybody knows who never saw a "
        f"patient's? Generous bounds cost next to nothing. Type LOW HIGH{private}.",
    )
    while True:
        answer = prompts.text(f"Bounds of {column.name}", default)
        if answer == PRIVATE == default:
            return replace(column, low=None, high=None, domain="private")
        try:
            low, high = (float(part) for part in answer.replace(",", " ").split())
            return _within(column, Range(low, high, column.unit))
        except (ValueError, SchemaError):
            prompts.show("Not two numbers", "For example: 0 250")


def _within(column: Column, known: Range) -> Column:
    number = int if column.kind == "integer" else float
    bounded = replace(column, low=number(known.low), high=number(known.high), unit=known.unit)
    if problems := bounded.problems():
        raise SchemaError(f"column {column.name!r}", problems[0])
    return bounded


def _labelled(column: Column, prompts: Prompts) -> Column:
    """Categories that somebody stands for; else they are found privately."""
    prompts.show(f"Categories of {column.name}", ", ".join(map(str, column.categories)))
    if prompts.confirm(f"Are these all the answers that {column.name} may have, and may they be released?"):
        return column
    kind = "categorical" if len(column.categories) == 2 and column.missing == "refuse" else column.kind
    return replace(column, kind=kind, categories=(), domain="private", fill=None, missing="category")


def _settled_outcome(column: Column, prompts: Prompts) -> Column:
    """Which of two values means yes; bounds of a number must be declared, those of the draft are only a proposal."""
    if column.numeric:
        return _bounded(column, prompts, f"{column.low:g} {column.high:g}")
    if len(column.categories) != 2:
        return column
    either = " or ".join(map(str, column.categories))
    yes = prompts.text(f"Which value of {column.name} means yes ({either})", str(column.categories[1]))
    return replace(column, categories=tuple(sorted(column.categories, key=lambda label: str(label) == yes)))


def _described(column: Column) -> str:
    """What is declared of a column, in words."""
    domain = f"{len(column.categories)} categories"
    if column.unknown:
        domain = f"{'bounds' if column.numeric else 'categories'} found privately"
    elif column.numeric:
        entry = column.to_dict()  # dates as dates
        domain = f"{entry.get('low')} to {entry.get('high')} {column.unit}".strip()
    codes = f"; missing: {', '.join(map(str, column.missing_values))}" if column.missing_values else ""
    return f"{domain}{codes}{f'; {column.computed}' if column.computed else ''}"
