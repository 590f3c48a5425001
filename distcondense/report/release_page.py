"""`release/report.html`: what the guarantee covers, from what a run releases and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distcondense.outcomes.base import WEIGHTS
from distcondense.report.manual import recipes
from distcondense.report.page import release_page
from distcondense.runs.files import plain
from distcondense.runs.release import MANUAL, software
from distcondense.runs.result import Result


def released_page(sets: Mapping[str, Result]) -> str:
    """Of a run's sets by their tables' names; it reads what is released with them and nothing else."""
    return release_page(released(sets))


def released(sets: Mapping[str, Result]) -> dict[str, Any]:
    """What the page shows, as plain data."""
    first = next(iter(sets.values()))
    privacy, kind, schema = first.privacy, first.kind, first.schema
    stated = plain(
        {
            **privacy.to_dict(),
            "short": privacy.short(),
            "sentence": privacy.sentence(),
            "paragraph": privacy.paragraph(),
            "software": software(),
        }
    )
    shown: dict[str, Any] = plain(
        {
            "format": 1,
            "name": f"Condensed table: {' and '.join(kind.names)}",
            "privacy": stated,
            "schema": [asdict(column) for column in schema.columns],
            "outcome": [*kind.words(), f"{WEIGHTS.name}: {WEIGHTS.meaning}"],
            "rows": sum(len(one.frame) for one in sets.values()),
            **{name: [asdict(figure) for figure in figures] for name, figures in first.covered.items()},
            "ledger": [_asked(entry) for entry in privacy.ledger] if privacy.charged else [],
            "rules": [str(rule) for rule in schema.rules],
            "use": _use(sets, first),
        }
    )
    return shown


def _asked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One question of the ledger, in words."""
    return {name: value for name, value in entry.items() if value not in (None, "", [], {}) and name != "run"}


def _use(sets: Mapping[str, Result], first: Result) -> list[str]:
    """How a recipient trains a model: the manual's first recipe, and what must not be a feature."""
    if first.privacy.answer:
        return []
    files = " and ".join(f"{name}.csv" for name in sets)
    own = [*first.kind.names, *first.kind.own_columns(), WEIGHTS.name]
    code = [f"    {line}" for one in recipes(sets)[:1] for line in one.code.splitlines()]
    return [
        f"{files} holds one synthetic patient a row; the same rows are in the Parquet file of that name.",
        f"Features are all columns but {', '.join(own)}: the outcome and what was computed from it.",
        *code,
        f"{MANUAL} has the same for other tools. Test a model on real patients before it is used: scores on synthetic "
        "rows say little.",
    ]
