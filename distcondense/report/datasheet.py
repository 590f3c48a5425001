"""`release/datasheet.md`: for the data-protection officer who signs, in the order in which she asks.

What may be said, what ε means in words and numbers, what was spent in all, what is public, what is not covered,
whether a row is a patient, and how to check all of it. Made of the statement, the schema and the number of rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from distcondense.data.attestation import Attestation
from distcondense.data.schema import Column, Schema
from distcondense.privacy.statement import Privacy, rounded_up
from distcondense.report.manual import WARNINGS, code, expected_words, markdown
from distcondense.report.text import clean
from distcondense.runs.release import MANUAL, PAGE, SCHEMA, csv_name, missing_for_health_record, software
from distcondense.runs.result import Result

TRUST = "central: one trusted curator holds the records; recipients get the release and nothing else"
BIASES = (
    "What is rare among patients is rarer or noisier here: noise covers small groups first. Subgroups must be checked "
    "on real patients before a model is used."
)
STEPS_OF_A_NUMBER = 100  # different values that a number is taken to have, where nobody says its steps


def datasheet(sets: Mapping[str, Result]) -> str:
    """Of a run's sets by their tables' names."""
    first = next(iter(sets.values()))
    privacy, columns = first.privacy, first.schema.columns
    rows = [len(one.frame) for one in sets.values()]
    made = software()
    return markdown("datasheet.md.j2").render(
        outcome=" and ".join(map(code, first.kind.names)),
        privacy=privacy,
        warning=WARNINGS.get(privacy.guarantee, ""),
        paragraph=clean(privacy.paragraph()),
        quote=clean(quotable(first, rows)),
        spent=clean(spent(privacy)),
        factor=factor(privacy),
        biases=BIASES,
        answer=clean(privacy.answer),
        rows=rows,
        columns=len(columns),
        tables=[csv_name(name, one.frame) for name, one in sets.items()] if not privacy.answer else [],
        possible=possible(columns),
        expected=expected_words(privacy),
        facts=[(name, clean(str(value))) for name, value in facts(privacy)],
        public=[clean(line) for line in privacy.public],
        attested=[(clean(one.words), clean(one.by), one.on, stood_for(one)) for one in first.schema.attested],
        inferred=[(code(c.name), ", ".join(c.inferred)) for c in described(first.schema) if c.inferred],
        left_out=[code(name) for name in first.schema.left_out],
        not_covered=[clean(line) for line in privacy.not_covered],
        questions=questions(privacy),
        names={"manual": MANUAL, "page": PAGE, "schema": SCHEMA},
        version=made["version"],
        key=clean(first.info.key),
        lacking=missing_for_health_record(first.info),
        commit=made["commit"],
    )


def facts(privacy: Privacy) -> list[tuple[str, Any]]:
    """The numbers, each with its name."""
    number = "none" if privacy.epsilon is None else rounded_up(privacy.epsilon, 6)
    facts = [
        ("guarantee", privacy.guarantee),
        (f"ε ({privacy.guarantee})", number),
        ("δ", "none" if privacy.delta is None else f"{privacy.delta:g}"),
        ("unit that is protected", privacy.unit),
        ("neighbouring tables", privacy.neighbouring),
        ("method", privacy.method),
        ("noise", privacy.noise_source),
        ("trust model", TRUST),
    ]
    if privacy.membership_advantage is not None:
        most = f"at most {rounded_up(1 + privacy.membership_advantage, 4)}, where guessing has 1"
        facts.append(("sensitivity plus specificity of the best test of who was in the table", most))
    if privacy.worst_case_epsilon:
        facts.append(("worst case of the same noise, end to end", f"ε of {privacy.worst_case_epsilon}"))
    return facts


def spent(privacy: Privacy) -> str:
    """Everything that was spent on these patients, as far as the run knew."""
    if privacy.epsilon is None:
        return "Patients were read without a gate: nothing bounds what was spent, ε is unbounded (guarantee: none)."
    this = f"This release: ε = {rounded_up(privacy.epsilon, 4)} ({privacy.guarantee}) at δ = {privacy.delta:g}."
    both = privacy.epsilon_with_earlier_runs
    if both is None:
        known = "No earlier run on these patients was known to it"
        return f"{this} {known}: in this folder there was none, and no account that says otherwise was given."
    if isinstance(both, str):
        return f"{this} Together with earlier runs on the same patients: {both}. Read the statement below."
    return f"{this} {privacy.earlier_runs} included: ε = {rounded_up(both, 4)} ({privacy.guarantee}), the total known."


def factor(privacy: Privacy) -> str:
    """e^ε, rounded up: by how much one person may change the odds of anything."""
    both = privacy.epsilon_with_earlier_runs
    epsilon = max(privacy.epsilon or 0.0, both if isinstance(both, float) else 0.0)
    return rounded_up(math.exp(epsilon), 3) if privacy.charged and epsilon < 20 else ""


def quotable(first: Result, rows: Sequence[int]) -> str:
    """A paragraph that may be quoted as it stands; it holds nothing that was computed on patients."""
    privacy = first.privacy
    if privacy.guarantee == "none":
        return ""
    many = " and ".join(f"{count:,}" for count in rows)
    of = f"a table of {many} synthetic rows" if len(rows) == 1 else f"tables of {many} synthetic rows"
    who = f"distcondense {software()['version']} (method {privacy.method})"
    made = f"{who} made {of} for models that predict {' and '.join(first.kind.names)}"
    if privacy.answer:
        made = f"{who} was run and gave no answer: no rows exist"
    assert privacy.epsilon is not None
    assert privacy.delta is not None
    if not privacy.charged:
        return (
            f"{made}. It follows a published method whose own accounting gives ε = {rounded_up(privacy.epsilon, 3)} "
            f"(as-published); that is not a differential-privacy guarantee for the patients, and none is claimed."
        )
    whom = "every person, with all their rows," if privacy.unit == "person" else "every row"
    condition = "" if privacy.guarantee == "end-to-end" else ", provided that the schema is public knowledge"
    both = privacy.epsilon_with_earlier_runs
    total = (
        f" Together with all earlier runs known, ε is {rounded_up(both, 3)} ({privacy.guarantee})."
        if isinstance(both, float)
        else f" Together with earlier runs: {both}."
        if both
        else ""
    )
    expected = expected_words(privacy)
    good = f" By its own account, from noisy answers, the model behind it has {expected}." if expected else ""
    return (
        f"{made}. Everything released satisfies {privacy.guarantee} (ε, δ)-differential privacy with ε = "
        f"{rounded_up(privacy.epsilon, 3)} and δ = {privacy.delta:g} for {whom} in the table{condition}: patients were "
        f"read only through noisy sums, each of which is listed in privacy.json.{total}{good}"
    )


def possible(columns: Sequence[Column]) -> str:
    """How many different rows the public schema allows, as a power of ten."""
    size = 0.0
    for column in columns:
        values = len(column.categories) or STEPS_OF_A_NUMBER
        if column.kind == "integer" and column.low is not None and column.high is not None:
            values = max(int(column.high - column.low) + 1, 1)
        size += math.log10(max(values + column.keeps_holes, 1))
    return f"{10**size:,.0f}" if size < 4 else f"10^{math.floor(size)}"


def described(schema: Schema) -> tuple[Column, ...]:
    """The columns of a condensed table that a schema file may have described."""
    return (*schema.columns, *schema.outcome)


def stood_for(one: Attestation) -> str:
    """What somebody confirmed."""
    columns = f"columns {', '.join(map(code, one.columns))}" if one.columns else ""
    rules = f"the rules {'; '.join(map(code, one.rules))}" if one.rules else ""
    return " and ".join(part for part in (columns, rules) if part)


def questions(privacy: Privacy) -> list[tuple[str, int]]:
    """What was asked of patients: in words, and how often."""
    events = privacy.events if privacy.charged else ()
    return list(Counter(KINDS.get(event.kind, event.kind) for event in events).items())


KINDS = {"gaussian": "noisy sums and counts", "choice": "noisy choices of columns or pairs"}
