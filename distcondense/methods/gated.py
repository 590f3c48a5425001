"""What methods that read patients through the gate have in common: what they refuse first, and what they state last."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from distcondense.data.cohort import Facts
from distcondense.data.draft import like_identifiers
from distcondense.data.names import nearest
from distcondense.data.schema import Schema
from distcondense.errors import DistcondenseWarning, SchemaError, SettingsError
from distcondense.privacy.accountant import (
    advantage_with_earlier,
    membership_advantage,
    replay,
    trade_off,
    with_earlier,
)
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.noise import SOURCE
from distcondense.privacy.statement import LARGE_EPSILON, Guarantee, Privacy, rounded_up

PUBLIC = (
    "the schema (columns, kinds, bounds, categories, missing-value policies, rules)",
    "which columns are the outcome",
    "the settings (ε, δ, IPC, seed, rows per person)",
)
NOT_COVERED = (
    "what many people together have in common, which is what the table is for",
    "the custodian's own folder internal/, which holds numbers computed on patients",
    "other releases about the same patients, whose ε adds up with this one",
    "side channels: how long a run took, its memory, file times and power; who is inside its process or machine",
)
APART = (
    "a doubt: two accountants of the same ledger contradict each other (PLD: {}, the other: {}; the larger is stated)"
)
NO_ANSWER = (
    "NO ANSWER: what the budget could pay for shows {doubt} (too few cases, too small an ε, or nothing there), so no "
    "synthetic rows are released. The budget is spent all the same. What would help: more patients than about {rows:,} "
    "(a noisy count), those of the rarer class above all; fewer columns than {columns}: those that are known to "
    "matter; or an ε above {epsilon:g} ({guarantee}), which adds to what is spent already."
)


def no_answer(doubt: str, rows: float, columns: int, epsilon: float, guarantee: str) -> str:
    """Why there is no answer and what would help, from noisy answers and public facts; empty where there is no doubt.

    rows: a noisy number of them. epsilon: what was asked for, of that guarantee.
    """
    said = NO_ANSWER.format(
        doubt=doubt, rows=max(round(rows), 0), columns=columns, epsilon=epsilon, guarantee=guarantee
    )
    return said if doubt else ""


# -- before a row is read ---------------------------------------------------------------------------------------------


def refuse_unpublic(facts: Facts, *, trusted: bool, epsilon: float, promise: str) -> None:
    """What must be public is declared, or trusted by name; a very large ε is warned of."""
    schema = facts.schema
    if (schema is None or schema.origin == "inferred") and not trusted:
        raise SchemaError(
            "schema",
            "must be declared: its bounds and categories are taken as public",
            found="none" if schema is None else "a schema inferred from the table",
            fix="describe it (distcondense init TABLE) and pass --schema; or say --trust-inferred-schema: "
            "the guarantee is then conditional",
        )
    if not facts.kind.labels_public and not trusted:
        known = [] if schema is None else schema.names
        near = [one for name in facts.kind.names for one in get_close_matches(name, known, n=1, cutoff=0.7)]
        raise SettingsError(
            f"outcome {' and '.join(map(repr, facts.kind.names))}",
            "must be declared in the schema",
            found="no declared column of that name, so that its values would be read off the rows"
            + "".join(f"; declared is {name!r}" for name in near),
            fix='check its name, or declare every column of it, e.g. kind = "binary", categories = [0, 1]; '
            "also where it is 0/1",
        )
    if epsilon > LARGE_EPSILON:
        warnings.warn(
            f"ε = {epsilon:g} ({promise}) is more than {LARGE_EPSILON:g}: it promises patients very little",
            DistcondenseWarning,
            stacklevel=5,
        )


def check_categories(schema: Schema, checked: Sequence[str]) -> None:
    """Every category may be released, so a list of identifiers is refused, by its length and shape alone."""
    for name in checked:
        if name not in schema:
            raise SettingsError(
                "categories_checked",
                "must name columns of the schema",
                found=nearest(name, schema.names),
                fix="check the name",
            )
    for column in schema.columns:
        why = like_identifiers(column.categories)
        if why and column.name not in checked:
            raise SchemaError(
                f"column {column.name!r}",
                "must not have identifiers for categories: the release lists them",
                found=f"{len(column.categories):,} categories, {why}",
                fix="take the column out of the schema, or group its values; if nobody can be found by them, say "
                f"--categories-checked {column.name}",
            )


# -- after the last answer --------------------------------------------------------------------------------------------


def statement(
    ledger: Ledger,
    facts: Facts,
    earlier: Sequence[Event],
    *,
    method: str,
    epsilon: float,
    delta: float,
    rows_per_person: int,
    origin: str,
    parameters: Mapping[str, Any],
    public: Sequence[str] = (),
    answer: str = "",
    constants: str = "",
) -> Privacy:
    """What the ledger pays for, in numbers and words; `epsilon` is what was asked, `origin` that of the schema."""
    total = replay(ledger.events, delta)
    # never seen, and too late to refuse: the budget is spent, so the larger number is stated, and that they differ
    holds = total.epsilon if total.agree else max(total.epsilon, total.pld, total.exact_or_rdp)
    apart = () if total.agree else (APART.format(rounded_up(total.pld, 6), rounded_up(total.exact_or_rdp, 6)),)
    if apart:
        warnings.warn(apart[0], DistcondenseWarning, stacklevel=3)
    spent = math.ceil(holds * 1e6) / 1e6
    inferred = origin == "inferred" or not facts.kind.labels_public
    guarantee: Guarantee = "conditional" if inferred else "end-to-end"
    both = with_earlier(ledger.events, earlier, delta)
    persons = (
        f"add or remove one person with all their rows, of which at most {rows_per_person} are read"
        if facts.by_person
        else "add or remove one row; every row is taken as one person"
    )
    return Privacy(
        guarantee=guarantee,
        method=method,
        epsilon=min(epsilon, spent) if holds <= epsilon else spent,  # what holds, not what was asked
        delta=delta,
        neighbouring=persons,
        unit="person" if facts.by_person else "row",
        noise_source=SOURCE,
        labels_public=facts.kind.labels_public,
        parameters={
            f"epsilon_asked_{guarantee.replace('-', '_')}": epsilon,
            "accounting": "exact composition of Gaussian mechanisms"
            + ("; choices of columns and pairs by PLD of the dominating logistic pair" if total.picks else ""),
            "epsilon_by_second_accountant": total.exact_or_rdp if total.picks else total.pld,
            "second_accountant": "a Rényi bound of the picks, which need not give the same number"
            if total.picks
            else "PLD of the same curve, which agrees to a thousandth",
            "mu": total.mu,
            "picks": total.picks,
            "delta_reserved_for_discrete_noise": total.delta_grid,
            "delta_reserved_for_found_categories": total.delta_categories,
            "delta_reserved_for_collisions": total.delta_collisions,
            **parameters,
        },
        ledger=[event.to_dict() for event in ledger.events],
        schema_origin=origin,
        public=(*PUBLIC, *public),
        not_covered=(*apart, *NOT_COVERED),
        answer=answer,
        trade_off=tuple(trade_off(ledger.events)),
        membership_advantage=membership_advantage(ledger.events),
        epsilon_with_earlier_runs=both,
        advantage_with_earlier_runs=advantage_with_earlier(ledger.events, earlier, both),
        constants=constants,
    )


def constants_of(modules: Sequence[ModuleType]) -> dict[str, Any]:
    """Numbers in capitals, and collections of numbers, of these modules, by their full names."""
    return {
        f"{module.__name__}.{name}": list(value) if isinstance(value, tuple) else value
        for module in modules
        for name, value in sorted(vars(module).items())
        if name.isupper() and _numbers(value)
    }


def _numbers(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
    return all(isinstance(part, int | float) for part in parts)
