"""From a table to a checked schema by a few sheets: persons, outcome, codes, ages, units, bounds, categories.

What was read off patients is shown and stays `inferred` until a person says on the last sheet that they know it from
elsewhere, and signs with their name: Enter to every question declares nothing. Bounds are never read off patients:
they come from `data/ranges.py` by a column's name, or a person types them, or they are found privately, for a share
of ε.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.attestation import WORDS, Attestation
from distcondense.data.column import plain_value
from distcondense.data.dates import with_computed
from distcondense.data.draft import (
    MAX_INFERRED_CATEGORIES,
    SchemaDraft,
    age_between,
    as_objects,
    births_and_others,
    describe,
    draft,
    own_rows,
    written_alike,
)
from distcondense.data.features import check_features
from distcondense.data.missing import without_codes
from distcondense.data.names import Names, nearest
from distcondense.data.ranges import Range, range_in, ranges_of
from distcondense.data.schema import Column, Schema
from distcondense.data.values import numbers_of
from distcondense.errors import CohortError, SchemaError
from distcondense.guide.confirming import with_confirmed_rules
from distcondense.guide.prompts import DefaultAnswers, Prompts
from distcondense.guide.sheets import ALL, NONE, changed, picked

OUTCOMES = re.compile(
    r"died|death|dead|deceased|mortal|outcome|target|label|event|readmi|relapse|recur|progress|surviv"
    r"|diagnosis|(^|_)(class|disease|y|case|status)($|_)",
    re.IGNORECASE,
)
TIMES = re.compile(
    r"(^|_)(time|days?|weeks?|months?|years?|follow_?up|fu|surv|survival|os|pfs|dfs|duration)($|_)", re.IGNORECASE
)
ASIDE = re.compile(
    r"measured|missing|available|recorded|flag|(^|_)(date|birth|age|prior|history|family)(_|$)", re.IGNORECASE
)
MEANS_YES = {"yes", "y", "1", "true", "t", "ja", "oui", "dead", "died", "positive", "pos"}
ROWS_ALIKE = 30  # in fewer two lists of answers may agree by chance
PRIVATE, LISTED, OUT = "private", "listed", "out"
PERSON = f"Column that says whose row it is, or {NONE}"  # questions that a program answers too
OUTCOME = f"Outcome column, or TIME,EVENT, or {NONE}"
READ = (  # off patients
    "kind", "format", "categories", "decimals", "missing", "missing_values", "censored", "computed", "reason",
)  # fmt: skip


@dataclass(frozen=True)
class WizardState:
    """What the questions led to."""

    schema: Schema
    comments: dict[str, str] = field(default_factory=dict)  # lines below a column's section
    outcome: dict[str, str] = field(default_factory=dict)  # role → column
    person: str = ""  # the column that says whose row it is
    problems: tuple[str, ...] = ()  # what is left to do before the command runs

    def to_toml(self) -> str:
        return self.schema.to_toml(comments=self.comments)

    def command(
        self, table: str, schema: str, *, epsilon: float = 1.0, ipc: int = 100, query: str | None = None
    ) -> list[str]:
        """The words of the command to run next; a query has no file that an account could be kept of."""
        options = {} if query is None else {"query": query, "account": "patients.jsonl"}
        options |= {"schema": schema, **self.outcome, **({"person-id": self.person} if self.person else {})}
        options |= {"epsilon": f"{epsilon:g}", "ipc": str(ipc), "out": "run"}
        return ["distcondense", "condense", table, *(w for name, v in options.items() for w in (f"--{name}", v))]

    def summary(self) -> list[tuple[str, str, str]]:
        """Name, kind and what is declared of each column, for a table on the screen."""
        rows = [(c.name, str(c.kind), c.described()) for c in self.schema.columns]
        return rows + [(c.name, "ignore", c.reason) for c in self.schema.ignored]


def drafted(frame: pd.DataFrame, outcome: Mapping[str, str], person: str | None) -> Schema:
    """What is proposed where nobody answers but for the outcome, and whose rows these are: `Schema.draft`."""
    if unknown := [name for name in (*outcome.values(), *([person] if person else [])) if name not in frame]:
        found = nearest(unknown[0], list(map(str, frame.columns)))
        raise CohortError(f"column {unknown[0]!r}", "must be in the table", found=found, fix="check the name")
    return run_wizard(frame, _Said(dict(outcome), person or NONE)).schema


class _Said(DefaultAnswers):
    """Answers two questions, and takes the default of all others."""

    def __init__(self, outcome: Mapping[str, str], person: str) -> None:
        super().__init__()
        self.answers = {PERSON: person, OUTCOME: ",".join(outcome.values())}

    def text(self, question: str, default: str) -> str:
        return self.answers.get(question) or default


def run_wizard(frame: pd.DataFrame, prompts: Prompts) -> WizardState:
    """Ask, and describe the table.

    Parameters
    ----------
    frame : pandas.DataFrame
        The table, as it was read.
    prompts : Prompts
        Who is asked.

    Returns
    -------
    WizardState
        The schema, which columns are the outcome, whose rows they are, and what is left to do.
    """
    frame = as_objects(frame)
    drafted = draft(frame)
    columns = {c.name: c for c in (*drafted.schema.columns, *drafted.schema.ignored)}
    person = _person(frame, columns, drafted, prompts)
    outcome = _outcome(columns, prompts)
    _codes(frame, drafted, columns, prompts)
    wanted = {*outcome.values(), person}
    spare = _spare(frame, [c for c in columns.values() if not c.is_ignored], wanted)
    aside = drafted.aside | {name: columns[name] for name in spare}
    columns |= {name: Column(name, "ignore", reason=why) for name, why in spare.items()}
    _left_out(columns, aside, {*drafted.dates, person}, prompts)
    dated = _age(drafted, columns, prompts)
    _units(columns, prompts)
    _bounds(frame, columns, outcome, prompts)
    _categories(columns, drafted, outcome, prompts)
    _yes(columns, outcome, prompts)
    columns = {name: _marked(column) for name, column in columns.items()}
    columns, attested = _attested(columns, prompts)
    schema = Schema(tuple(columns.values()), attested=attested)
    if any(c.inferred for c in columns.values()):
        schema = replace(schema, origin="inferred")
    schema = with_confirmed_rules(frame, schema, {*outcome.values(), person}, prompts)
    comments = {} if dated else drafted.comments
    return WizardState(schema, comments, outcome, person, tuple(_problems(frame, schema, outcome)))


# -- whose rows, and what is predicted --------------------------------------------------------------------------------


def _person(frame: pd.DataFrame, columns: dict[str, Column], drafted: SchemaDraft, prompts: Prompts) -> str:
    """The column that says whose row it is; empty where every row is a person of its own."""
    counts = [f"{name}: {rows} rows, {different} different" for name, (rows, different) in drafted.counts.items()]
    seen = "No column looks like an identifier that repeats."
    prompts.show(
        "Whose rows are these?",
        "\n".join(["These columns look like identifiers that repeat:", *counts] if counts else [seen])
        + "\nIf a column says whose row it is, the guarantee is about persons, and tests hold whole persons out.",
    )
    alone = own_rows(frame, [c.name for c in drafted.schema.ignored])  # then every row is a person of its own
    usual = NONE if alone else next(iter(drafted.persons), NONE)
    while True:
        answer = prompts.text(PERSON, usual)
        if answer == NONE:
            return ""
        if answer in columns:
            columns[answer] = replace(Column(answer, "ignore"), reason="says whose row it is")
            return answer
        prompts.show("No such column", "One of: " + ", ".join(columns))


def _outcome(columns: dict[str, Column], prompts: Prompts) -> dict[str, str]:
    """Role → column; empty where nobody says what is predicted."""
    used = {c.name: c for c in columns.values() if not c.is_ignored}
    usual = likely_outcome(list(used.values()))
    prompts.show(
        "What should models predict?",
        f"Columns: {', '.join(used)}\nAn event that has a time of its own (died, and days to it) is two: TIME,EVENT.",
    )
    while True:
        answer = prompts.text(OUTCOME, usual)
        if answer in ("", NONE):
            return {}
        names = [answer] if answer in used else [name.strip() for name in answer.split(",")]
        if all(name in used for name in names) and len(names) <= 2:
            return {"target": names[0]} if len(names) == 1 else {"time": names[0], "event": names[1]}
        prompts.show("No such column", "One of: " + ", ".join(used))


def likely_outcome(columns: Sequence[Column]) -> str:
    """What a table seems to be about, by its columns' names: COLUMN, or TIME,EVENT; empty where none says so.

    Two answers before several before numbers; an event goes with the one number that is named like a time.
    """
    likely = [c for c in columns if OUTCOMES.search(c.name) and not ASIDE.search(c.name)]
    labelled = sorted((c for c in likely if c.categories), key=lambda c: len(c.categories) != 2)
    times = [c.name for c in columns if c.numeric and TIMES.search(c.name) and "birth" not in c.name.casefold()]
    if not labelled:
        return next((c.name for c in likely if c.name not in times), "")
    event = labelled[0]
    near = [name for name in times if event.name.casefold() in name.casefold() or OUTCOMES.search(name)]
    pair = near or (times if len(times) == 1 else [])
    return f"{pair[0]},{event.name}" if len(event.categories) == 2 and pair else event.name


# -- what a column holds ----------------------------------------------------------------------------------------------


def _codes(frame: pd.DataFrame, drafted: SchemaDraft, columns: dict[str, Column], prompts: Prompts) -> None:
    """Which of the typical codes that a column holds stand for a hole."""
    hints = {f"{hint.code} in {hint.column}": hint for hint in (*drafted.codes, *drafted.offers)}
    hints = {line: hint for line, hint in hints.items() if not columns[hint.column].is_ignored}
    if not hints:
        return
    taken = [line for line, hint in hints.items() if hint in drafted.codes]
    lines = {line: f"{line}: {hint.rows} rows" for line, hint in hints.items()}
    chosen = picked(prompts, "Codes for missing", lines, "Which of these mean that nothing is known", taken)
    for name in {hint.column for hint in hints.values()}:
        codes = [hint.code for line, hint in hints.items() if line in chosen and hint.column == name]
        if codes != list(columns[name].missing_values):
            columns[name] = describe(frame[name], name, codes, Names(list(frame.columns), ()))[0]


def _spare(frame: pd.DataFrame, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, str]:
    """Columns that say nothing of their own, and why: one value in every row, or what another one says (1/0, yes/no).

    Those that are wanted are never spare: what says the same as the outcome gives it away.
    """
    spare: dict[str, str] = {}
    kept: dict[tuple[bool, bytes], str] = {}
    for column in sorted(columns, key=lambda c: c.name not in wanted):
        series = frame[column.name]
        if column.name not in wanted and series.nunique(dropna=False) == 1:
            spare[column.name] = "the same value in every row"
            continue
        coded = bool(column.categories) and len(series) >= ROWS_ALIKE
        said = pd.Series(pd.factorize(series, use_na_sentinel=False)[0]) if coded else series
        key = (coded, pd.util.hash_pandas_object(said, index=False).to_numpy().tobytes())
        if key in kept and column.name not in wanted:
            same = (
                "the same as"
                if series.astype(object).equals(frame[kept[key]].astype(object))
                else "in other words the same as"
            )
            spare[column.name] = f"{same} {kept[key]} in every row"
        kept.setdefault(key, column.name)
    return spare


def _left_out(columns: dict[str, Column], aside: Mapping[str, Column], fixed: set[str], prompts: Prompts) -> None:
    """Columns that are left out unless somebody wants them: identifiers, free text, names, copies; not dates."""
    lines = {
        c.name: f"{c.name}: {c.reason}"
        for c in columns.values()
        if c.is_ignored and c.name in aside and c.name not in fixed
    }
    if not lines:
        return
    question = "Left out of everything that is released. Keep which of these after all"
    for name in picked(prompts, "Left out", lines, question, []):
        columns[name] = aside[name]


def _age(drafted: SchemaDraft, columns: dict[str, Column], prompts: Prompts) -> bool:
    """Whether a column of ages stands in place of dates."""
    births, others = births_and_others(drafted.dates)
    if not births or not others or "age" in columns:
        return False
    prompts.show("Dates", f"Dates are left out: {', '.join(drafted.dates)}. An age can stand for them.")
    if not prompts.confirm(f"Compute the age in years from {births[0]} to {others[0]}?"):
        return False
    columns["age"] = age_between(births[0], others[0])
    return True


# -- numbers ----------------------------------------------------------------------------------------------------------


def _units(columns: dict[str, Column], prompts: Prompts) -> None:
    """Bounds that are public by a column's name; where they depend on the unit it is asked, never guessed."""
    several: dict[str, str] = {}
    for column in list(columns.values()):
        known = ranges_of(column.name)
        if not column.numeric or column.computed:
            continue
        columns[column.name] = _within(column, known[0]) if len(known) == 1 else _unbounded(column)
        if len(known) > 1:
            units = " or ".join(f"{one.unit} ({one.low:g} to {one.high:g})" for one in known)
            several[column.name] = f"{column.name}: {units}. " + ". ".join(one.conversion for one in known[1:])
    if not several:
        return

    def read(name: str, said: str) -> Range:
        if (found := range_in(name, said)) is None:
            raise ValueError
        return found

    question = "Which units, such as 1=mg/dL; Enter: nobody knows, bounds are found privately"
    for name, found in changed(prompts, "Units", several, question, read, "For example: 1=mg/dL, 2=kg").items():
        columns[name] = _within(columns[name], found)


def _bounds(frame: pd.DataFrame, columns: dict[str, Column], outcome: Mapping[str, str], prompts: Prompts) -> None:
    """Which numbers a column can hold, as anybody knows who never saw a patient's."""
    numbers = {c.name: c for c in columns.values() if c.numeric and not c.computed}
    if not numbers:
        return
    lines = {}
    for name, column in numbers.items():
        known = "found privately, for a share of ε" if column.low is None else column.described()
        if column.low is None and name in outcome.values():
            known = "not known yet; of an outcome they must be typed"
        beyond = _beyond(frame[name], column)
        lines[name] = f"{name}: {known}{f' ({beyond} rows lie beyond)' if beyond else ''}"

    def read(name: str, said: str) -> Column:
        if said == PRIVATE:
            return _unbounded(numbers[name])
        low, high = (float(part) for part in said.split())
        try:
            return _within(numbers[name], Range(low, high, numbers[name].unit))
        except SchemaError:
            raise ValueError from None

    question = f"Other bounds from a textbook or the codebook, such as 1=0 250 or 1={PRIVATE}; Enter: as shown"
    legal = f"For example: 1=0 250, 2=-5 5, 3={PRIVATE}"
    columns.update(changed(prompts, "Bounds", lines, question, read, legal))


def _beyond(series: pd.Series[Any], column: Column) -> int:
    """How many rows lie beyond the bounds, for the custodian's screen."""
    if column.low is None or column.high is None:
        return 0
    values = numbers_of(without_codes(series, column), column.name, forgives=True, censored=column.censored)
    return int(np.count_nonzero((values < column.low) | (values > column.high)))


def _unbounded(column: Column) -> Column:
    return replace(column, low=None, high=None, domain="private", unit="")


def _within(column: Column, known: Range) -> Column:
    low, high = plain_value(float(known.low)), plain_value(float(known.high))
    bounded = replace(column, low=low, high=high, unit=known.unit, domain="declared")
    if problems := bounded.problems():
        bounded = replace(bounded, decimals=None)  # bounds may be finer than what was read off patients
        if bounded.problems():
            raise SchemaError(f"column {column.name!r}", problems[0])
    return bounded


# -- categories -------------------------------------------------------------------------------------------------------


def _categories(columns: dict[str, Column], drafted: SchemaDraft, outcome: Mapping[str, str], prompts: Prompts) -> None:
    """Answers are released as they are listed, or found privately, or the column is left out."""
    labelled = {c.name: c for c in columns.values() if c.categories}
    hidden = [name for name, c in labelled.items() if len(c.categories) > MAX_INFERRED_CATEGORIES]  # not to be checked
    for name in hidden:
        columns[name] = _found_privately(columns[name])
    if not labelled:
        return
    lines = {
        name: f"{name}: {len(c.categories)} answers, found privately"
        if name in hidden
        else f"{name}: {', '.join(map(str, c.categories))}"
        + (" (some differ in capitals or spaces alone)" if written_alike(c.categories) else "")
        for name, c in labelled.items()
    }
    legal = {
        name: {PRIVATE, OUT, LISTED} - ({LISTED} if name in hidden else set())
        if name not in outcome.values()
        else {LISTED}
        for name in labelled
    }

    def read(name: str, said: str) -> str:
        if said not in legal[name]:
            raise ValueError
        return said

    question = f"All the answers there may be, and may they be released? Else 1={PRIVATE} or 1={OUT}; Enter: as shown"
    words = (
        f"For example: 1={PRIVATE}, 2={OUT}. {LISTED}: released as shown. {PRIVATE}: found with noise, those of few "
        f"rows are never seen. {OUT}: left out of everything that is released. An outcome is {LISTED}."
    )
    for name, said in changed(prompts, "Categories", lines, question, read, words).items():
        if said == OUT:
            columns[name] = Column(name, "ignore", reason="left out by whoever wrote the schema")
        elif said == PRIVATE:
            columns[name] = _found_privately(labelled[name])


def _found_privately(column: Column) -> Column:
    return replace(
        column, kind="categorical", categories=(), domain="private", ordered=False, fill=None, missing="category"
    )


def _yes(columns: dict[str, Column], outcome: Mapping[str, str], prompts: Prompts) -> None:
    """Which of an outcome's two values means yes: the second one."""
    name = outcome.get("event", outcome.get("target", ""))
    if name not in columns or len(columns[name].categories) != 2:
        return
    labels = columns[name].categories
    likely = [label for label in labels if str(label).casefold() in MEANS_YES]
    usual = str((likely or list(labels[1:]))[0])
    while True:
        answer = prompts.text(f"Which value of {name} means yes ({labels[0]} or {labels[1]})", usual)
        if answer in map(str, labels):
            break
    columns[name] = replace(columns[name], categories=tuple(sorted(labels, key=lambda label: str(label) == answer)))


# -- what somebody stands for -----------------------------------------------------------------------------------------


def _marked(column: Column) -> Column:
    """With the names of what was read off patients; whose categories are searched keeps holes in any case."""
    usual = {entry.name: entry.default for entry in fields(Column)}
    found = tuple(key for key in READ if key in ("kind", "missing") or getattr(column, key) != usual[key])
    left = {"missing"} if column.is_ignored or column.computed or (column.unknown and not column.numeric) else set()
    return replace(column, inferred=tuple(key for key in found if key not in left))


def _attested(columns: dict[str, Column], prompts: Prompts) -> tuple[dict[str, Column], tuple[Attestation, ...]]:
    """The last sheet: what nobody stands for stays inferred."""
    lines = {name: f"{name}: {column.described(whole=True)}" for name, column in columns.items()}
    question = f"Which lines do you know from the codebook, not from this file ({ALL}, numbers, {NONE})"
    known = picked(prompts, "Read off this file: public only if it is known from elsewhere", lines, question, [])
    name = (
        prompts.text("Your name, which stands in the schema and in the datasheet; Enter: nobody", "") if known else ""
    )
    if not name:
        return columns, ()
    columns = {key: replace(c, inferred=()) if key in known else c for key, c in columns.items()}
    return columns, (Attestation(name, date.today().isoformat(), WORDS, tuple(known)),)


def _problems(frame: pd.DataFrame, schema: Schema, outcome: Mapping[str, str]) -> list[str]:
    """What keeps the command from running; no patient's value is in the words."""
    problems = []
    if not outcome:
        problems.append("nobody said what models should predict: --target COLUMN, or --time and --event")
    alike = [c.name for c in schema.columns if c.inferred and written_alike(c.categories)]
    problems += [
        f"some answers of {name} differ in capitals or spaces alone: where these are one answer, correct the table"
        for name in alike
    ]
    unbounded = [c.name for c in schema.columns if c.name in outcome.values() and c.unknown]
    problems += [f"the outcome {name} needs bounds: low and high, in its section of the schema" for name in unbounded]
    open_ = [c.name for c in (*schema.columns, *schema.ignored) if c.inferred]
    if open_:
        problems.append(
            f"nobody stands for what was read off the table: {', '.join(open_)}. The private method refuses such a "
            "schema unless told --trust-inferred-schema, which makes its guarantee conditional"
        )
    try:
        check_features(with_computed(frame, schema), schema)
    except CohortError as error:
        problems.append(str(error))
    return problems
